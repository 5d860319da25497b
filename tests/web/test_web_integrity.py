"""Nothing is done twice or half by the routes: requests at the same time, and wrong clocks."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from test_web_clinic import HEARING, ZONE, Desk, answer_to_the_end

from earshift.store import Store, checks
from earshift.web.settings import Settings
from support.web import client_of, with_users


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
