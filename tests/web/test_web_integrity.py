"""Nothing is done twice or half by the routes: requests at the same time, and wrong clocks."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from test_web_clinic import HEARING, ZONE, Desk, answer_to_the_end

from earshift.store import Store, checks
from earshift.web.settings import Settings
from support.databases import PostgresqlServer
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


def test_a_frequency_given_twice_is_refused(desk: Desk) -> None:
    person = desk.person()
    body = {"ear": "right", "thresholds": {**HEARING, "1000.0": 60}}
    said = desk.post(f"/people/{person}/audiograms", body, 422)
    assert said["detail"] == "thresholds is not valid"


def test_the_same_typed_audiogram_is_refused(desk: Desk) -> None:
    person = desk.person()
    desk.reference(person)
    body = {"ear": "right", "thresholds": HEARING, "measured_on": "2025-05-05"}
    said = desk.post(f"/people/{person}/audiograms", body, 409)
    assert "is stored already" in str(said)


# Trouble with the database


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
        assert client.get("/api/health").status_code == 200


def state_of(client: TestClient) -> Any:
    app: Any = client.app
    return app.state


def test_a_database_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with_users(str(file))
    with client_of(Settings(db=str(file), zone=ZONE)) as client:
        desk = Desk(client)
        engine = state_of(client).store.engine

        def closed(dbapi: Any, _record: Any) -> None:
            dbapi.execute("PRAGMA query_only = ON")  # as a file that became read-only

        event.listen(engine, "connect", closed)
        engine.dispose()
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
