"""The server while its machine's clock jumps, by Debian's faketime: a month ahead, back, three
hours back, more than a year back. Nothing changes but the times."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from earshift.store import Store
from earshift.store.accounts import LONGEST_WAIT
from support.clinic_day import BROWSER, Clinic
from support.machine import Clock
from support.web import Served, with_users

JUMPS = ("+30d", "+0", "-3h", "-400d", "+0")
MOST_PRACTICE = 12  # a few tones and what is asked again after a break; it once had no end


def guesses(address: str) -> int:
    """The wait that somebody is told who guesses passwords."""
    for _ in range(20):  # a slow machine may need more than the first waits last
        guess = {"name": "mallory", "password": "not the right one"}
        told = httpx.post(
            f"{address}/api/login", json=guess, headers={"Origin": address}, timeout=60
        )
        if told.status_code == 429:
            return int(told.headers["Retry-After"])
        assert told.status_code == 401, told.text
    raise AssertionError("guesses cost nothing")


def answer(clinic: Clinic, exam: str, asked: list[Any], most: int) -> None:
    """Miss tones, and remember what was asked."""
    for _ in range(most):
        tone = clinic.get(f"/api/exams/{exam}")["play"]["presentation"]
        asked.append((tone["practice"], tone["frequency_hz"], tone["level"]))
        clinic.post(f"/api/exams/{exam}/answer", {"trial": tone["trial"], "heard": False})


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


@pytest.fixture
def served(tmp_path: Path, database: str, clock: Clock) -> Any:
    with_users(database)
    arguments = ("--db", database, "--port", "0")
    with Served(tmp_path, *arguments, surroundings=clock.surroundings) as started:
        yield started


def test_work_goes_on_whatever_the_clock_says(served: Served, database: str, clock: Clock) -> None:
    asked: dict[str, list[Any]] = {}
    first = ""
    for number, jump in enumerate(JUMPS):
        clock.set(jump)
        assert 1 <= guesses(served.address) <= LONGEST_WAIT.total_seconds()
        with Clinic(served.address) as clinic:
            person = clinic.person("Ada", f"C{number}", references=("right",))
            exam = clinic.begin(person, kind="exam", practice=True)["exams"][0]["id"]
            first = first or exam
            asked[exam] = []
            while len(asked[exam]) < MOST_PRACTICE:  # nothing is heard: practice ends all the same
                answer(clinic, exam, asked[exam], 1)
                if not asked[exam][-1][0]:
                    break
            assert not asked[exam][-1][0]
            if exam != first:
                answer(clinic, first, asked[first], 2)  # one exam that lives through all jumps
            assert {one["person"]["id"] for one in clinic.get("/api/worklist")["items"]} >= {person}
    with Store.open(database) as store:
        for public, told in asked.items():
            exam_id = store.behind("exams", public)
            trials = store.trials(exam_id)
            assert [one.number for one in trials] == list(range(1, len(told) + 1))
            stored = [(one.kind == "practice", one.frequency_hz, one.asked_db_hl) for one in trials]
            assert stored == told
        assert store.check() == []
    assert "Traceback" not in served.log_text()


def test_what_was_ended_while_the_clock_was_ahead_stays_ended(
    served: Served, database: str, clock: Clock
) -> None:
    with Clinic(served.address) as bob:
        ends_stay(served, clock, bob)
    with Store.open(database) as store:
        assert store.check() == []


def ends_stay(served: Served, clock: Clock, bob: Clinic) -> None:
    token = bob.post("/api/tokens", {"name": "script", "days": 60})
    device = bob.post("/api/devices", BROWSER)["id"]
    alone = {"answered_by": "listener", "mode": "self", "device": device}
    test = bob.begin(bob.person("Ada", "C1"), kind="exam", **alone)
    link = bob.post(f"/api/visits/{test['visit']}/link")["url"].partition("#")[2]
    keys = {
        "session": lambda: bob.look("/api/me").status_code,
        "token": lambda: with_key(served, "/api/worklist", f"Bearer {token['token']}"),
        "link": lambda: with_key(served, "/api/listen", f"Listener {link}"),
    }
    assert {name: ask() for name, ask in keys.items()} == dict.fromkeys(keys, 200)
    clock.set("+30d")
    ahead = {"session": 401, "token": 200, "link": 401}
    assert {name: ask() for name, ask in keys.items()} == ahead
    clock.set("+0")  # nobody ended them: a clock that was wrong for a while ends nothing for good
    assert {name: ask() for name, ask in keys.items()} == dict.fromkeys(keys, 200)
    clock.set("+30d")
    assert {name: ask() for name, ask in keys.items()} == ahead
    with Clinic(served.address, "ada") as admin:
        admin.post("/api/users/bob/sessions/end", {"reason": "tablet lost"})
        admin.delete(f"/api/tokens/{token['id']}")
        admin.delete(f"/api/visits/{test['visit']}/link")
    for jump in ("+0", "-3h", "+0"):
        clock.set(jump)
        assert {name: ask() for name, ask in keys.items()} == dict.fromkeys(keys, 401), jump
    with Clinic(served.address) as again:
        again.person("Grace", "C2")


def with_key(served: Served, path: str, key: str) -> int:
    headers = {"Authorization": key}
    return httpx.get(f"{served.address}{path}", headers=headers, timeout=60).status_code
