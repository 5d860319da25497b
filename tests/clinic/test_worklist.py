"""Nobody forgotten: who is on the list of a day, why, by when, and who is not."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earshift.clinic.worklist import (
    WHYS,
    worklist,
)
from earshift.days import noon
from earshift.engine.values import EARS
from earshift.records import Person
from earshift.store import Store

START = date(2020, 1, 6)
SIX = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0)
INTERVAL, NOTICE = 365, 30


def on(day: int) -> date:
    return START + timedelta(days=day)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for many examples: each has people of its own."""
    with Store(tmp_path_factory.mktemp("worklist") / "clinic.db") as opened:
        yield opened


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "clinic.db") as opened:
        yield opened


def visit_on(store: Store, person: Person, day: int, mode: str = "supervised") -> int:
    at = noon(on(day), "Europe/Berlin")
    return store.open_visit(
        person.id, author="mh", zone="Europe/Berlin", mode=mode, started_at=at
    ).id


def taken(
    store: Store,
    person: Person,
    day: int,
    ear: str,
    kind: str = "exam",
    *,
    state: str = "done",
    levels: dict[float, float] | None = None,
    mode: str = "supervised",
    unit: str = "dB HL",
    **shown: Any,
) -> int:
    """A test with a result as it would be stored, without its tones."""
    reference = None
    if kind == "screen":
        older = [e for e in store.exams(person.id, ear=ear, kind="exam") if e.state == "done"]
        reference = older[0].id if older else None
    exam = store.open_exam(
        visit_on(store, person, day, mode),
        author="mh",
        ear=ear,
        kind=kind,
        design={"domain": {"intensity": {"unit": unit}}},
        engine_version="0",
        reference_exam_id=reference,
    )
    if state in ("done", "abandoned"):
        thresholds = [
            {"frequency_hz": f, "level_db_hl": level, "censored": None}
            for f, level in (levels or {}).items()
        ]
        said = {"thresholds": thresholds, "verdict": None, "words": "", "rule": None, "tones": 1}
        store.add_result(
            exam.id,
            author="mh",
            shown={**said, **shown},
            settings={},
            engine_version="0",
            closes_as=state,
        )
    elif state == "paused":
        store.set_exam_state(exam.id, "paused", author="mh")
    return exam.id


def full(store: Store, person: Person, day: int, ear: str, level: float = 10.0, **more: Any) -> int:
    return taken(store, person, day, ear, levels=dict.fromkeys(SIX, level), **more)


def screen(store: Store, person: Person, day: int, ear: str, decision: str, **more: Any) -> int:
    verdict = {"decision": decision, "rule": "osha-sts"}
    return taken(store, person, day, ear, "screen", verdict=verdict, **more)


def both(store: Store, person: Person, day: int, level: float = 10.0) -> None:
    for ear in EARS:
        full(store, person, day, ear, level)


def lines(store: Store, day: int, **filters: Any) -> list[tuple[str | None, str, int]]:
    """Code, reason and days overdue of every line."""
    found = worklist(store, on(day), **filters)
    assert sum(found.counts.values()) == len(found.items)
    assert found.overdue == sum(item.overdue_days > 0 for item in found.items)
    return [(item.code, item.why, item.overdue_days) for item in found.items]


# Any history, any day -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    gap: int  # days since the event before
    ear: str
    what: str
    closed: bool


DECISIONS = ("changed", "unchanged", "inconclusive", "not determinable")
EVENTS = st.builds(
    Event,
    gap=st.sampled_from([0, 1, 5, 29, 40, 300, 365, 400]),
    ear=st.sampled_from(EARS),
    what=st.sampled_from([*DECISIONS, "full", "worse", "partial", "open", "paused", "abandoned"]),
    closed=st.booleans(),
)


@dataclass(frozen=True)
class Life:
    events: list[Event]
    both_tested: bool  # a full audiogram of both ears to begin with
    fate: str


LIVES = st.builds(
    Life,
    events=st.lists(EVENTS, max_size=6),
    both_tested=st.booleans(),
    fate=st.sampled_from(["stays", "stays", "stays", "left", "leaves later", "erased"]),
)


def lived(store: Store, life: Life) -> tuple[Person, int, dict[str, list[tuple[int, str]]], bool]:
    """Store a life. Its person, last day, finished tests by ear, and whether a test is open."""
    person = store.add_person(author="mh", hired_on=START)
    day, running = 0, False
    done: dict[str, list[tuple[int, str]]] = {ear: [] for ear in EARS}
    if life.both_tested:
        both(store, person, 0)
        for ear in EARS:
            done[ear].append((0, "full"))
    for event in life.events:
        day += event.gap
        if event.what in DECISIONS:
            exam = screen(store, person, day, event.ear, event.what)
        elif event.what in ("full", "worse"):
            exam = full(store, person, day, event.ear, 10.0 if event.what == "full" else 35.0)
        elif event.what == "partial":
            exam = taken(store, person, day, event.ear, levels={1000.0: 5.0})
        else:
            taken(store, person, day, event.ear, "screen", state=event.what)
            running |= event.what != "abandoned"
            continue
        closes = event.closed and event.what not in ("partial", "unchanged")
        if closes:
            store.close_verdict(exam, author="rv", reason="seen by Dr K")
        done[event.ear].append((day, "closed " + event.what if closes else event.what))
    return person, day, done, running


def verdicts(tests: list[tuple[int, str]]) -> list[str]:
    """The verdicts of an ear in their order, as the clinic speaks of them."""
    found: list[str] = []
    baseline = None
    for _, what in tests:
        plain = what.removeprefix("closed ")
        if plain in ("full", "worse"):
            if baseline is None:
                baseline = plain
                if found and found[-1] not in ("unchanged", "closed"):
                    found.append("closed" if what != plain else "to review")
            else:
                worse = plain == "worse" and baseline == "full"
                found.append("unchanged" if not worse else what)
        elif plain in DECISIONS:
            found.append("closed" if what != plain else plain)
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(life=LIVES, later=st.sampled_from([0, 1, 20, 30, 31, 200, 334, 335, 365, 366, 4000]))
def test_everybody_is_listed_unless_nothing_is_left_to_do(
    shared: Store, life: Life, later: int
) -> None:
    person, last, done, running = lived(shared, life)
    today = last + later
    if life.fate == "erased":
        shared.erase_person(person.id, author="mh", reason="asked")
    elif life.fate != "stays":
        leaves = on(today if life.fate == "left" else today + 1)
        shared.correct_person(person.id, author="mh", reason="left", left_on=leaves)
    found = worklist(shared, on(today))
    mine = [item for item in found.items if item.person_id == person.id]
    if life.fate in ("left", "erased"):
        assert mine == []
        return
    newest = {
        ear: max(
            (day for day, what in tests if what.split()[-1] in ("full", "worse")), default=None
        )
        for ear, tests in done.items()
    }
    inside = all(day is not None and today <= day + INTERVAL for day in newest.values())
    said = {ear: verdicts(tests) for ear, tests in done.items()}
    decided = all(
        not words or words[-1] == "unchanged" or words[-1].startswith("closed")
        for words in said.values()
    )
    if not (inside and not running and decided):
        assert mine, (life, today)
    calm = all(
        word == "unchanged" or word.startswith("closed")
        for words in said.values()
        for word in words
    )
    soon = any(day is None or today >= day + INTERVAL - NOTICE for day in newest.values())
    if inside and not running and calm and not soon:
        assert mine == [], (life, today)
    # Every line says by when, and how much too late it is.
    for item in mine:
        assert item.overdue_days == max(0, (on(today) - item.by).days)
        assert set(item.ears) <= set(EARS)
        assert item.words
        assert item.why in WHYS
    assert [item.by for item in found.items] == sorted(item.by for item in found.items)
    # What is kept of it can be worked out from nothing.
    assert worklist(shared, on(today)) == found
