"""Nothing is done twice or half by the routes: requests at the same time, and wrong clocks."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine, event
from test_web_clinic import HEARING, ZONE, Desk, Listener, answer_to_the_end

from earshift.clinic import session as clinic_session
from earshift.devices.sound import Timing
from earshift.store import Store, checks
from earshift.store.chain import CHAIN_LOCK
from earshift.store.database import WAIT_SECONDS
from earshift.web.settings import Settings
from support.databases import PostgresqlServer, raw
from support.web import TestClient, client_of, with_users


@pytest.fixture
def app_store(database: str) -> Iterator[Store]:
    with_users(database)
    with Store.open(database) as store:
        yield store


@pytest.fixture
def desk(database: str, app_store: Store) -> Iterator[Desk]:
    with client_of(Settings(db=database, zone=ZONE)) as client:
        yield Desk(client)


def at_once(desk: Desk, path: str, body: Any) -> list[int]:
    """The states that four requests at the same time came back with."""

    def send(_: int) -> int:
        answer = desk.client.post(f"/api{path}", headers=desk.headers, json=body)
        return int(answer.status_code)

    with ThreadPoolExecutor(4) as pool:
        return sorted(pool.map(send, range(4)))


def test_four_tests_begun_at_once_are_one(desk: Desk, app_store: Store) -> None:
    person = desk.person()
    body = {"kind": "exam", "ears": ["right", "left"], "practice": False}
    assert at_once(desk, f"/people/{person}/tests", body) == [201, 409, 409, 409]
    assert len(app_store.exams(1)) == 2
    assert len(app_store.visits(1)) == 1


def test_four_undos_and_retests_at_once_are_one(desk: Desk, app_store: Store) -> None:
    exam = desk.supervised()["exams"][0]["id"]
    play = desk.get(f"/exams/{exam}")["play"]
    for _ in range(3):
        body = {"trial": play["presentation"]["trial"], "heard": True}
        play = desk.post(f"/exams/{exam}/answer", body)
    at = {"trial": play["presentation"]["trial"]}
    assert at_once(desk, f"/exams/{exam}/undo", at) == [200] * 4
    stored = app_store.trials(app_store.behind("exams", exam))
    assert sum(trial.voided_at is not None for trial in stored) == 1
    answer_to_the_end(desk, exam)
    assert at_once(desk, f"/exams/{exam}/retest", {}) == [201, 409, 409, 409]


def test_practice_ends_after_the_clock_was_put_back(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, _ = desk.listening(desk.person(), kind="exam", device=desk.device(), mode="self")
    now = checks.now
    play = listener.ready()
    monkeypatch.setattr(checks, "now", lambda: now() - timedelta(hours=1))
    for _ in range(40):
        if play["state"] != "play":
            break
        play = listener.call("/answer", {"trial": play["presentation"]["trial"], "heard": False})
    assert play["state"] == "check"
    assert "volume" in play["problem"]


def test_nobody_answers_faster_than_tones_are_played(
    desk: Desk, app_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [1000.0]
    monkeypatch.setattr(clinic_session, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    person = desk.person()
    desk.reference(person)
    device = desk.calibrated()
    desk.checked(device)
    usual = Timing().to_dict()
    listener, test = desk.listening(person, device=device, timing=usual)
    exam_id = app_store.behind("exams", test["exams"][0]["id"])
    asked = listener.ready()["presentation"]
    for heard in (True, False):
        said = listener.call("/answer", {"trial": asked["trial"], "heard": heard}, 422)
        assert "before it can have been played" in said["detail"]
    unmeasured = {"trial": asked["trial"], "heard": True, "reaction_ms": None}
    assert "how long" in listener.call("/answer", unmeasured, 422)["detail"]
    assert app_store.trials(exam_id) == ()
    assert listener.call()["presentation"] == asked  # which takes nothing off the time
    seconds[0] += (asked["gap_ms"] + usual["window_opens_ms"]) / 1000
    following = listener.call("/answer", {"trial": asked["trial"], "heard": True})["presentation"]
    assert len(app_store.trials(exam_id)) == 1
    listener.call("/answer", {"trial": following["trial"], "heard": True}, 422)
    assert len(app_store.trials(exam_id)) == 1


def test_a_server_that_was_started_again_judges_no_time(
    desk: Desk, database: str, app_store: Store
) -> None:
    device = desk.device()
    listener, test = desk.listening(
        desk.person(), kind="exam", device=device, mode="self", timing=Timing().to_dict()
    )
    trial = listener.ready()["presentation"]["trial"]
    with client_of(Settings(db=database, zone=ZONE)) as other:  # or another worker
        elsewhere = Listener(other, listener.token)
        elsewhere.call("/answer", {"trial": trial, "heard": True})
    assert len(app_store.trials(app_store.behind("exams", test["exams"][0]["id"]))) == 1


def test_a_frequency_given_twice_is_refused(desk: Desk) -> None:
    person = desk.person()
    body = {"ear": "right", "thresholds": {**HEARING, "1000.0": 60}}
    said = desk.post(f"/people/{person}/audiograms", body, 422)
    assert said["detail"] == "thresholds is not valid"


@pytest.mark.parametrize(
    "content",
    [
        '{"ear": "right", "thresholds": {"1000": 10, "1000": 60}}',
        '{"ear": "right", "ear": "left", "thresholds": {"1000": 10}}',
    ],
)
def test_a_body_that_says_something_twice_is_refused(desk: Desk, content: str) -> None:
    path, headers = f"/api/people/{desk.person()}/audiograms", desk.headers
    for kind in ("application/json", "application/json; charset=utf-8", ""):
        typed = {**headers, "Content-Type": kind}
        answer = desk.client.post(path, headers=typed, content=content)
        assert answer.status_code == 422, answer.text
    assert "appears twice" in desk.client.post(path, headers=headers, content=content).text


def test_the_same_typed_audiogram_is_refused(desk: Desk) -> None:
    person = desk.person()
    desk.reference(person)
    body = {"ear": "right", "thresholds": HEARING, "measured_on": "2025-05-05"}
    said = desk.post(f"/people/{person}/audiograms", body, 409)
    assert "is stored already" in str(said)


def test_names_that_a_preview_or_a_check_shows_are_in_the_audit(
    desk: Desk, app_store: Store
) -> None:
    desk.person(name="Ada")
    device = desk.calibrated()
    desk.checked(device)
    desk.get(f"/devices/{device}/checks")
    desk.post("/imports/roster?preview=true", content=b"code,name\n1,Grace\n")
    looks = [
        (one.author, one.action, one.subject, one.details.get("what"))
        for one in app_store.audit(limit=1000)
        if "what" in one.details
    ]
    assert looks == [
        ("bob", "view", f"devices:{app_store.behind('devices', device)}", "daily checks"),
        ("bob", "list", "people", "roster"),
    ]


# Trouble with the database


@pytest.mark.parametrize("trouble", ["locked", "read-only"])
def test_a_session_that_cannot_be_renewed_still_reads(
    desk: Desk, database: str, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    state = state_of(desk.client)
    monkeypatch.setattr(state.accounts, "_clock", lambda: checks.now() + timedelta(minutes=6))
    with raw(database) as other:
        if trouble == "read-only":
            _make_read_only(state.store.engine)
        elif "://" in database:  # as a program that is about to commit
            other.execute("BEGIN")
            other.execute(f"SELECT pg_advisory_xact_lock({CHAIN_LOCK})")
        else:
            other.execute("BEGIN IMMEDIATE")
        cookie = dict(desk.client.cookies)
        began = time.monotonic()
        for path in ("/me", "/rules", "/retspl"):
            desk.get(path)
        assert time.monotonic() - began < WAIT_SECONDS / 2  # nobody waited for the other program
        assert dict(desk.client.cookies) == cookie
        if trouble == "locked":
            other.execute("ROLLBACK")
    if trouble == "locked":  # and afterwards all is as ever
        desk.get("/me")
        assert dict(desk.client.cookies) != cookie
        desk.person()


def _make_read_only(engine: Engine) -> None:
    """As a file that became read-only, or a server that became a standby."""

    def closed(dbapi: Any, _record: Any) -> None:
        if engine.dialect.name == "sqlite":
            dbapi.execute("PRAGMA query_only = ON")
        else:
            dbapi.execute("SET default_transaction_read_only = on")
            dbapi.commit()

    event.listen(engine, "connect", closed)
    engine.dispose()


def test_a_full_disk_is_said_and_nothing_is_stored(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with_users(str(file))
    with client_of(Settings(db=str(file), zone=ZONE)) as client:
        desk = Desk(client)
        engine = state_of(client).store.engine
        with engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()

        def full(dbapi: Any, _record: Any) -> None:
            dbapi.execute(f"PRAGMA max_page_count = {pages}")

        event.listen(engine, "connect", full)  # SQLite says what it says of a full disk
        engine.dispose()
        for number in range(100):
            answer = client.post(
                "/api/people",
                headers=desk.headers,
                json={"code": f"{number}", "name": "Ada " * 40},
            )
            if answer.status_code != 201:
                break
        assert answer.status_code == 503
        assert "disk is full" in answer.json()["detail"]
        state_of(client).accounts._clock = lambda: checks.now() + timedelta(minutes=6)
        desk.get("/me")  # a session that cannot be renewed still reads
        assert client.get("/api/health").status_code == 200


def state_of(client: TestClient) -> Any:
    app: Any = client.app
    return app.state


def test_a_database_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with_users(str(file))
    with client_of(Settings(db=str(file), zone=ZONE)) as client:
        desk = Desk(client)
        _make_read_only(state_of(client).store.engine)
        said = desk.post("/people", {"code": "1"}, 503)
        assert said["detail"].startswith("the database cannot be written to")


def test_a_database_that_is_gone_is_said(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with_users(str(file))
    with client_of(Settings(db=str(file), zone=ZONE)) as client:
        desk = Desk(client)
        file.rename(tmp_path / "moved.db")
        assert "was moved or replaced" in desk.post("/people", {"code": "1"}, 503)["detail"]
        answer = client.get("/api/health/ready")
        assert (answer.status_code, answer.json()["waiting_for"][0]) == (503, "database-gone")
        assert client.get("/api/health").status_code == 200


def test_a_server_that_was_lost_is_said(postgresql_server: PostgresqlServer) -> None:
    url = postgresql_server.new_database()
    with_users(url)
    with client_of(Settings(db=url, zone=ZONE)) as client:
        desk = Desk(client)
        postgresql_server.stop()
        try:
            said = desk.post("/people", {"code": "1"}, 503)
            ready = client.get("/api/health/ready")
        finally:
            postgresql_server.start()
        assert "has lost its database" in said["detail"]
        assert (ready.status_code, ready.json()["waiting_for"][0]) == (503, "database-lost")
        desk.post("/people", {"code": "1"}, 201)


def test_readiness_waits_for_the_engine(desk: Desk) -> None:
    sessions = state_of(desk.client).sessions
    while not sessions.warm:
        time.sleep(0.05)
    assert desk.get("/health/ready")["state"] == "ready"
    sessions._warm.clear()
    said = desk.get("/health/ready", 503)
    assert (said["state"], said["waiting_for"]) == ("not ready", ["engine"])
