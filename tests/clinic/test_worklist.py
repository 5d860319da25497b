"""Nobody forgotten: who is on the list of a day, why, by when, and who is not."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earshift.clinic.findings import findings_of
from earshift.clinic.programme import programme
from earshift.clinic.review import sign
from earshift.clinic.site import SETTINGS, change_setting, site_settings
from earshift.clinic.worklist import (
    WHYS,
    close_verdict,
    next_due,
    refresh,
    reopen_verdict,
    worklist,
)
from earshift.days import noon
from earshift.engine.refusal import Refusal
from earshift.engine.values import EARS, RELATIVE_LEVEL
from earshift.records import Person
from earshift.store import Store, rows
from earshift.store.database import writing
from earshift.store.tables import baselines

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


def visit_on(store: Store, person: Person, day: int, mode: str = "supervised", **more: Any) -> int:
    at = noon(on(day), "Europe/Berlin")
    return store.open_visit(
        person.id, author="mh", zone="Europe/Berlin", mode=mode, started_at=at, **more
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
    reference: int | None = None,
    design: dict[str, Any] | None = None,
    checklist: dict[str, Any] | None = None,
    **shown: Any,
) -> int:
    """A test with a result as it would be stored, without its tones."""
    if kind == "screen" and reference is None and design is None:
        older = [e for e in store.exams(person.id, ear=ear, kind="exam") if e.state == "done"]
        reference = older[0].id if older else None
    exam = store.open_exam(
        visit_on(store, person, day, mode, checklist=checklist),
        author="mh",
        ear=ear,
        kind=kind,
        design={"domain": {"intensity": {"unit": unit}}, **(design or {})},
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


def notch(store: Store, person: Person, day: int, ear: str, decision: str) -> int:
    verdict = {"decision": decision, "rule": None}
    return taken(store, person, day, ear, "screen", verdict=verdict, design={"hypotheses": "notch"})


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
    ears: tuple[str, ...]
    what: str
    fate: str  # of its verdict: open, closed, signed, or signed and told by letter


DECISIONS = ("changed", "unchanged", "inconclusive", "not determinable")
FULL = {"full": 10.0, "worse": 35.0}
NOTCHES = {"notch": "notch", "no notch": "no notch", "unclear notch": "inconclusive"}
EVENTS = st.builds(
    Event,
    gap=st.sampled_from([0, 1, 5, 29, 40, 300, 365, 400]),
    ears=st.sampled_from([("right",), ("left",), EARS]),
    what=st.sampled_from(
        [*DECISIONS, *FULL, *NOTCHES, "partial", "rebaselined", "open", "paused", "abandoned"]
    ),
    fate=st.sampled_from(["open", "open", "closed", "signed", "told"]),
)


@dataclass(frozen=True)
class Life:
    events: list[Event]
    both_tested: bool  # a full audiogram of both ears to begin with
    fate: str
    two_records: bool  # every other event was stored for a second record of the person


LIVES = st.builds(
    Life,
    events=st.lists(EVENTS, max_size=6),
    both_tested=st.booleans(),
    fate=st.sampled_from(["stays", "stays", "stays", "left", "leaves later", "erased"]),
    two_records=st.booleans(),
)


@dataclass(frozen=True)
class Lived:
    """Something that was finished of one ear, or the choice of a baseline."""

    day: int
    what: str
    fate: str
    exam: int

    @property
    def settled(self) -> bool:
        return self.fate != "open"


def in_force(earlier: list[Lived], day: int) -> Lived | None:
    """The baseline of a day: the one chosen last, before it; else the oldest exam."""
    exams = [one for one in earlier if one.what in (*FULL, "partial")]
    chosen = [one.exam for one in earlier if one.what == "rebaselined" and one.day < day]
    return next((one for one in exams if not chosen or one.exam == chosen[-1]), None)


def lived(store: Store, life: Life) -> tuple[Person, int, dict[str, list[Lived]], bool]:
    """Store a life. Its person, last day, what was finished by ear, and whether a test is open."""
    person = store.add_person(author="mh", hired_on=START)
    twin = store.add_person(author="mh", hired_on=START) if life.two_records else person
    day, running = 0, False
    done: dict[str, list[Lived]] = {ear: [] for ear in EARS}
    if life.both_tested:
        for ear in EARS:
            done[ear].append(Lived(0, "full", "open", full(store, person, 0, ear)))
    for number, event in enumerate(life.events):
        day += event.gap
        whose = twin if number % 2 else person
        if event.what in ("open", "paused", "abandoned"):
            taken(store, whose, day, event.ears[0], "screen", state=event.what)
            running |= event.what != "abandoned"
            continue
        for ear in event.ears:
            before = in_force(done[ear], day)
            fulls = [one for one in done[ear] if one.what in FULL]
            if event.what == "rebaselined":
                if fulls:
                    choose(store, person, day, ear, fulls[-1].exam)
                    done[ear].append(Lived(day, event.what, "open", fulls[-1].exam))
                continue
            if event.what in DECISIONS:
                against = None if before is None or whose is not person else before.exam
                exam = screen(store, whose, day, ear, event.what, reference=against)
            elif event.what in NOTCHES:
                exam = notch(store, whose, day, ear, NOTCHES[event.what])
            else:
                levels = dict.fromkeys(SIX, FULL.get(event.what, 5.0))
                kept = levels if event.what in FULL else {1000.0: 5.0}
                exam = taken(store, whose, day, ear, levels=kept)
            fate = "open" if event.what in ("partial", "unchanged", "no notch") else event.fate
            if fate == "closed":
                store.close_verdict(exam, author="rv", reason="seen by Dr K")
            done[ear].append(Lived(day, event.what, fate, exam))
    if life.two_records:
        store.merge_people(twin.id, person.id, author="mh", reason="hired twice")
    # Signed are visits as they were found in the end, against the baselines of their days.
    for of_ear in done.values():
        for one in of_ear:
            if one.fate in ("signed", "told") and one.what != "rebaselined":
                signed(store, one.exam)
            if one.fate == "told":
                visit = store.exam(one.exam).visit_id
                store.add_follow_up(visit, "letter", author="mh", done_on=on(one.day), done_by="mh")
    return person, day, done, running


def choose(store: Store, person: Person, day: int, ear: str, exam: int) -> None:
    """Choose a baseline on the evening of a day; `Store.set_baseline` would do it today."""
    at = noon(on(day), "Europe/Berlin") + timedelta(hours=6)
    values = {"person_id": person.id, "ear": ear, "exam_id": exam, "at": at}
    said = {"author": "mh", "reason": "persistent"}
    with writing(store.engine) as connection:
        rows.add_row(connection, baselines, values | said, "mh", "persistent", about=person.id)


def signed(store: Store, exam_id: int) -> None:
    sign(store, store.exam(exam_id).visit_id, author="rv", name="Dr K", meaning="reviewed")


def verdicts(tests: list[Lived]) -> list[str]:
    """What was said of a change of an ear, in its order, as the clinic speaks of it."""
    found: list[str] = []
    for place, one in enumerate(tests):
        if one.what in DECISIONS:
            # A signature is no full audiogram: what a screen calls for is still to be done.
            found.append("settled" if one.fate == "closed" else one.what)
        elif one.what in FULL:
            baseline = in_force(tests[:place], one.day)
            waits = bool(found) and found[-1] not in ("unchanged", "settled")
            if baseline is None and not waits:
                continue
            if baseline is not None and baseline.what in FULL:
                shift = one.what == "worse" and baseline.what == "full"
                if not shift:
                    found.append("unchanged")
                    continue
                found.append({"signed": "untold"}.get(one.fate, ""))
            found.append("settled" if one.settled else "to review")
    return [word for word in found if word]


def notches(tests: list[Lived]) -> list[str]:
    """What was said of a notch of an ear."""
    settling = {"notch": ("closed", "signed", "told"), "unclear notch": ("closed",)}
    return [
        "settled" if one.fate in settling.get(one.what, ()) else one.what
        for one in tests
        if one.what in NOTCHES
    ]


def calm(word: str) -> bool:
    return word in ("unchanged", "settled", "no notch")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(life=LIVES, later=st.sampled_from([0, 1, 20, 30, 31, 200, 334, 335, 365, 366, 4000]))
def test_everybody_is_listed_unless_nothing_is_left_to_do(
    shared: Store, life: Life, later: int
) -> None:
    person, last, done, running = lived(shared, life)
    today = last + later
    if life.fate == "erased":
        shared.erase_person(person.id, author="mh", reason="asked by the person")
    elif life.fate != "stays":
        leaves = on(today if life.fate == "left" else today + 1)
        shared.correct_person(person.id, author="mh", reason="left", left_on=leaves)
    found = worklist(shared, on(today))
    mine = [item for item in found.items if item.person_id == person.id]
    if life.fate in ("left", "erased"):
        assert mine == []
        return
    newest = {
        ear: max((one.day for one in tests if one.what in FULL), default=None)
        for ear, tests in done.items()
    }
    inside = all(day is not None and today <= day + INTERVAL for day in newest.values())
    said = [words for tests in done.values() for words in (verdicts(tests), notches(tests))]
    untold = any("untold" in words for words in said)
    decided = not untold and all(not words or calm(words[-1]) for words in said)
    if not (inside and not running and decided):
        assert mine, (life, today)
    soon = any(day is None or today >= day + INTERVAL - NOTICE for day in newest.values())
    if inside and not running and not soon and all(calm(word) for words in said for word in words):
        assert mine == [], (life, today)
    # Every line says by when, and how much too late it is.
    for item in mine:
        assert item.overdue_days == max(0, (on(today) - item.by).days)
        assert set(item.ears) <= set(EARS)
        assert len(set(item.ears)) == len(item.ears)
        assert item.words
        assert item.why in WHYS
    assert [item.by for item in found.items] == sorted(item.by for item in found.items)
    # What is kept of it can be worked out from nothing.
    assert worklist(shared, on(today)) == found


# What each line says ------------------------------------------------------------------------------


@pytest.fixture
def worker(clinic: Store) -> Person:
    person = clinic.add_person(
        author="mh", code="A1", name="Ann", hired_on=START, department="Press"
    )
    both(clinic, person, 0)
    return person


def test_who_was_never_tested_is_listed_from_the_first_day(clinic: Store) -> None:
    clinic.add_person(author="mh", code="N1", hired_on=START)
    assert lines(clinic, 0) == [("N1", "first", 0)]
    assert lines(clinic, 180) == [("N1", "first", 0)]
    assert lines(clinic, 181) == [("N1", "first", 1)]


def test_a_periodic_test_is_listed_before_it_is_due(clinic: Store, worker: Person) -> None:
    assert lines(clinic, 334) == []
    assert lines(clinic, 335) == [("A1", "due", 0)]
    assert lines(clinic, 366) == [("A1", "due", 1)]
    assert next_due(clinic, worker.id) == on(365)


def test_a_screen_is_not_an_audiogram(clinic: Store, worker: Person) -> None:
    for ear in EARS:
        screen(clinic, worker, 300, ear, "unchanged")
    assert lines(clinic, 400) == [("A1", "due", 35)]
    change_setting(clinic, "screen_keeps_interval", "yes", author="kp", reason="not under OSHA")
    assert lines(clinic, 400) == []
    assert lines(clinic, 700) == [("A1", "due", 35)]
    assert next_due(clinic, worker.id) == on(365)  # OSHA's date stays


def test_a_changed_screen_asks_for_a_full_audiogram(clinic: Store, worker: Person) -> None:
    changed = screen(clinic, worker, 100, "left", "changed")
    (item,) = worklist(clinic, on(131), why="audiogram").items
    assert (item.why, item.ears, item.by, item.overdue_days, item.exam_id) == (
        *("audiogram", ("left",), on(130), 1), changed,
    )  # fmt: skip
    assert lines(clinic, 131, why="review") == [("A1", "review", 24)]
    full(clinic, worker, 131, "left", 35.0)
    assert lines(clinic, 139) == [("A1", "review", 1)]


def test_a_full_audiogram_that_does_not_confirm_ends_it(clinic: Store, worker: Person) -> None:
    screen(clinic, worker, 100, "left", "changed")
    full(clinic, worker, 105, "left", 15.0)
    assert lines(clinic, 106) == []


def test_who_chooses_a_baseline_settles_no_shift(clinic: Store, worker: Person) -> None:
    worse = full(clinic, worker, 100, "left", 35.0)
    choose(clinic, worker, 100, "left", worse)
    assert lines(clinic, 101) == [("A1", "review", 0)]
    (found,) = findings_of(clinic, worker.id, {worse})
    assert (found.decision, found.shift_db) == ("changed", 25.0)
    assert programme(clinic, on(90), on(110)).everybody.confirmed == 1
    signed(clinic, worse)
    assert [why for _, why, _ in lines(clinic, 101)] == ["letter"]
    # From then on the ear is compared with it, and not the tests before.
    same = full(clinic, worker, 200, "left", 35.0)
    (found,) = findings_of(clinic, worker.id, {same})
    assert (found.decision, found.baseline_exam_id) == ("unchanged", worse)


def test_an_older_baseline_takes_no_shift_back(clinic: Store, worker: Person) -> None:
    first = full(clinic, worker, 100, "left", 35.0)
    close_verdict(clinic, first, author="rv", reason="ear infection")
    second = full(clinic, worker, 200, "left", 35.0)
    choose(clinic, worker, 201, "left", first)
    assert lines(clinic, 202) == [("A1", "review", 0)]
    close_verdict(clinic, second, author="rv", reason="known since the infection")
    assert lines(clinic, 202) == []


def test_a_baseline_with_too_few_frequencies_calls_for_a_reviewer(clinic: Store) -> None:
    person = clinic.add_person(author="mh", code="P1", hired_on=START)
    taken(clinic, person, 0, "left", levels={1000.0: 5.0})
    both(clinic, person, 1, 35.0)
    assert lines(clinic, 2) == [("P1", "review", 0)]


def test_a_notch_calls_for_a_reviewer_and_no_answer_for_a_retest(
    clinic: Store, worker: Person
) -> None:
    notch(clinic, worker, 10, "left", "inconclusive")
    assert lines(clinic, 11) == [("A1", "retest", 0)]
    full(clinic, worker, 12, "left")  # says nothing of a notch
    assert lines(clinic, 13) == [("A1", "retest", 0)]
    found = notch(clinic, worker, 14, "left", "notch")
    screen(clinic, worker, 14, "left", "changed")
    (review,) = worklist(clinic, on(15), why="review").items
    assert review.ears == ("left",)
    screen(clinic, worker, 16, "left", "unchanged")
    assert lines(clinic, 17) == [("A1", "review", 0)]
    signed(clinic, found)
    assert lines(clinic, 17) == []
    notch(clinic, worker, 18, "right", "notch")
    notch(clinic, worker, 19, "right", "no notch")
    assert lines(clinic, 20) == []


def test_an_inconclusive_screen_has_a_window_of_its_own(clinic: Store, worker: Person) -> None:
    screen(clinic, worker, 100, "right", "inconclusive")
    change_setting(clinic, "inconclusive_retest_days", 10, author="kp", reason="ours")
    assert lines(clinic, 3000) == [("A1", "retest", 2890), ("A1", "due", 2635)]


def test_both_ears_for_one_reason_are_one_line(clinic: Store, worker: Person) -> None:
    for ear in EARS:
        screen(clinic, worker, 50, ear, "changed")
    items = worklist(clinic, on(51)).items
    assert [(item.why, item.ears) for item in items] == [("review", EARS), ("audiogram", EARS)]


def test_simulated_and_relative_tests_keep_no_date(clinic: Store) -> None:
    person = clinic.add_person(author="mh", code="S1", hired_on=START)
    for ear in EARS:
        full(clinic, person, 1, ear, mode="simulated")
        full(clinic, person, 1, ear, unit=RELATIVE_LEVEL)
    assert lines(clinic, 2) == [("S1", "first", 0)]


def test_unreliable_full_exams_are_repeated(clinic: Store, worker: Person) -> None:
    full(clinic, worker, 200, "right", reliability="poor")
    assert lines(clinic, 201) == [("A1", "retest", 0)]


def test_a_reviewer_closes_and_reopens(clinic: Store, worker: Person) -> None:
    exam = screen(clinic, worker, 100, "left", "changed")
    with pytest.raises(Refusal, match="needs a reason"):
        close_verdict(clinic, exam, author="rv", reason=" ")
    close_verdict(clinic, exam, author="rv", reason="wax, seen by Dr K")
    assert lines(clinic, 101) == []
    with pytest.raises(Refusal, match="closed already"):
        close_verdict(clinic, exam, author="rv", reason="again")
    reopen_verdict(clinic, exam, author="rv", reason="was another person's")
    assert lines(clinic, 101) == [("A1", "review", 0), ("A1", "audiogram", 0)]
    with pytest.raises(Refusal, match="is not closed"):
        reopen_verdict(clinic, exam, author="rv", reason="again")
    known = clinic.closings(exam)[-1].id
    clinic.close_verdict(exam, author="rv", reason="first", after=known)
    with pytest.raises(Refusal, match="just now"):  # of two at once, the other one
        clinic.close_verdict(exam, author="rw", reason="second", after=known)
    running = taken(clinic, worker, 100, "left", "screen", state="paused")
    with pytest.raises(Refusal, match="is paused"):
        close_verdict(clinic, running, author="rv", reason="x")


def test_filters_and_pages_lose_nobody(clinic: Store) -> None:
    new = [
        {"code": f"C{n}", "hired_on": START, "department": f"D{n % 2}", "job": "welder"}
        for n in range(230)
    ]
    clinic.change_people(new, {}, author="mh", reason="roster")
    whole = worklist(clinic, on(10))
    assert whole.total == len(whole.items) == 230
    paged = [
        item
        for start in range(0, 230, 100)
        for item in worklist(clinic, on(10), start=start, limit=100).items
    ]
    assert tuple(paged) == whole.items
    assert worklist(clinic, on(10), department="D1", limit=1).total == 115
    assert worklist(clinic, on(10), job="welder", why="due").total == 0
    assert [item.code for item in worklist(clinic, on(10), search="c229").items] == ["C229"]
    assert worklist(clinic, on(10), overdue=True).total == 0
    assert worklist(clinic, on(181), overdue=True, limit=3).overdue == 230
    assert clinic.employments("department") == ["D0", "D1"]
    with pytest.raises(Refusal, match="a reason is one of"):
        worklist(clinic, on(10), why="boredom")


def test_the_list_can_be_worked_out_from_nothing(clinic: Store, worker: Person) -> None:
    screen(clinic, worker, 100, "left", "changed")
    before = worklist(clinic, on(500))
    assert refresh(clinic) == 0
    assert refresh(clinic, everybody=True) == 1
    assert worklist(clinic, on(500)) == before


def test_merged_records_are_one_person(clinic: Store, worker: Person) -> None:
    twin = clinic.add_person(author="mh", code="A2", hired_on=START)
    both(clinic, twin, 300)
    assert lines(clinic, 366) == [("A1", "due", 1)]
    clinic.merge_people(twin.id, worker.id, author="mh", reason="hired twice")
    assert lines(clinic, 366) == []
    assert len(clinic.exams(worker.id)) == 4
    with pytest.raises(Refusal, match="another record"):
        clinic.open_visit(twin.id, author="mh", zone="UTC", mode="supervised")
    clinic.separate_people(twin.id, author="mh", reason="brothers")
    assert lines(clinic, 366) == [("A1", "due", 1)]
    assert len(clinic.exams(worker.id)) == 2
    with pytest.raises(Refusal, match="not merged"):
        clinic.separate_people(twin.id, author="mh", reason="again")
    with pytest.raises(Refusal, match="two records"):
        clinic.merge_people(twin.id, twin.id, author="mh", reason="x")


def test_a_merged_person_is_erased_whole(clinic: Store, worker: Person) -> None:
    twin = clinic.add_person(author="mh", code="A2", name="Anne")
    both(clinic, twin, 300)
    clinic.merge_people(twin.id, worker.id, author="mh", reason="hired twice")
    refresh(clinic)
    clinic.erase_person(worker.id, author="mh", reason="asked by the person", delete_trials=True)
    assert all(person.name is None and person.erased_at for person in clinic.people())
    assert clinic.check() == []
    assert lines(clinic, 400) == []


# What a site settles ------------------------------------------------------------------------------


def test_every_setting_has_its_source_and_keeps_its_history(clinic: Store) -> None:
    assert all(one.source and one.text for one in SETTINGS)
    assert site_settings(clinic)["retest_days"].author is None
    change_setting(clinic, "retest_days", "21", author="kp", reason="our physician")
    now = site_settings(clinic)["retest_days"]
    assert (now.value, now.author, now.reason) == (21, "kp", "our physician")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("retest_days", "0", "from 1 to 365"),
        ("retest_days", "-3", "whole number of days"),
        ("retest_days", "3.5", "whole number"),
        ("retest_days", True, "whole number"),
        ("retest_days", "30", "is 30 already"),
        ("screen_keeps_interval", "perhaps", "yes or no"),
        ("screen_keeps_interval", 1, "yes or no"),
        ("tea_break", "5", "a setting is one of"),
    ],
)
def test_wrong_settings_are_refused(clinic: Store, name: str, value: Any, said: str) -> None:
    with pytest.raises(Refusal, match=said):
        change_setting(clinic, name, value, author="kp", reason="x")
    with pytest.raises(Refusal):
        change_setting(clinic, "retest_days", "20", author="kp", reason=" ")
    assert site_settings(clinic)["retest_days"].value == 30
