"""A reviewer's word on one ear of a sitting of both says nothing of the other ear."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from test_worklist import SIX, both, on, visit_on

from earshift.clinic.findings import findings_of
from earshift.clinic.review import say_work_related
from earshift.clinic.worklist import close_verdict, reopen_verdict, worklist
from earshift.engine.refusal import Conflict, Refusal
from earshift.records import Person
from earshift.store import Store

REVIEWER = {"author": "rv", "reason": "seen by Dr K"}


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "clinic.db") as opened:
        yield opened


@pytest.fixture
def worker(clinic: Store) -> Person:
    person = clinic.add_person(author="mh", code="A1")
    both(clinic, person, 0)
    return person


def sitting(store: Store, person: Person, kind: str, ears: dict[str, dict[str, Any]]) -> int:
    """A finished test of both ears with a result of each, without its tones."""
    exam = store.open_exam(
        visit_on(store, person, 100),
        author="mh",
        ear="both",
        kind=kind,
        design={"domain": {"intensity": {"unit": "dB HL"}}},
        engine_version="0",
        delivery={"references": {"right": 1, "left": 2}} if kind == "screen" else None,
    )
    said: dict[str, Any] = {"thresholds": [], "verdict": None, "words": "", "tones": 1}
    shown = {**said, "ears": {ear: {**said, **one} for ear, one in ears.items()}}
    store.add_result(
        exam.id, author="mh", shown=shown, settings={}, engine_version="0", closes_as="done"
    )
    return exam.id


def screened(store: Store, person: Person, right: str, left: str) -> int:
    verdicts = {"right": right, "left": left}
    ears = {
        ear: {"verdict": {"decision": decision, "rule": "osha-sts"}}
        for ear, decision in verdicts.items()
    }
    return sitting(store, person, "screen", ears)


def measured(store: Store, person: Person, right: float, left: float) -> int:
    levels = {"right": right, "left": left}
    ears = {
        ear: {
            "thresholds": [
                {"frequency_hz": hertz, "level_db_hl": level, "censored": None} for hertz in SIX
            ]
        }
        for ear, level in levels.items()
    }
    return sitting(store, person, "exam", ears)


def lines(store: Store) -> set[tuple[str, tuple[str, ...]]]:
    return {(item.why, item.ears) for item in worklist(store, on(110)).items}


def test_closing_one_ear_leaves_the_other_on_the_list(clinic: Store, worker: Person) -> None:
    exam = screened(clinic, worker, right="changed", left="inconclusive")
    waiting = {("audiogram", ("right",)), ("review", ("right",))}
    assert lines(clinic) == {*waiting, ("retest", ("left",))}
    close_verdict(clinic, exam, ears=("left",), **REVIEWER)
    assert lines(clinic) == waiting
    with pytest.raises(Conflict, match="closed already"):
        close_verdict(clinic, exam, ears=("left",), **REVIEWER)
    with pytest.raises(Conflict, match="not closed"):
        reopen_verdict(clinic, exam, ears=("right",), **REVIEWER)
    close_verdict(clinic, exam, **REVIEWER)  # all that is left of it
    assert lines(clinic) == set()
    reopen_verdict(clinic, exam, ears=("right",), **REVIEWER)
    assert lines(clinic) == waiting
    said = [(one.closed, one.ears) for one in clinic.closings(exam)]
    assert said == [(True, "left"), (True, ""), (False, "right")]


def test_the_same_decision_of_both_ears_is_closed_each_by_itself(
    clinic: Store, worker: Person
) -> None:
    exam = screened(clinic, worker, right="changed", left="changed")
    assert ("review", ("right", "left")) in lines(clinic)
    close_verdict(clinic, exam, ears=("right",), **REVIEWER)
    assert lines(clinic) == {("audiogram", ("left",)), ("review", ("left",))}


@pytest.mark.parametrize("ears", [("up",), ("right", "up"), ("both",)])
def test_an_ear_that_was_not_tested_is_refused(
    clinic: Store, worker: Person, ears: tuple[str, ...]
) -> None:
    exam = screened(clinic, worker, right="changed", left="changed")
    before = lines(clinic)
    for act in (close_verdict, reopen_verdict):
        with pytest.raises(Refusal, match="ear"):
            act(clinic, exam, ears=ears, **REVIEWER)
    assert lines(clinic) == before
    (first,) = [one for one in clinic.exams(worker.id) if (one.ear, one.id) == ("right", 1)]
    with pytest.raises(Refusal, match="ear"):
        close_verdict(clinic, first.id, ears=("left",), **REVIEWER)


def words(store: Store, person: Person) -> dict[str, tuple[bool | None, bool | None]]:
    day = on(100) - timedelta(days=1)
    return {
        one.ear: (one.work_related, one.recordable)
        for one in findings_of(store, person.id)
        if one.day > day
    }


def test_work_may_explain_one_ear_and_not_the_other(clinic: Store, worker: Person) -> None:
    exam = measured(clinic, worker, right=40.0, left=40.0)
    said = {"name": "Dr K", **REVIEWER}
    assert words(clinic, worker) == {"right": (None, None), "left": (None, None)}
    say_work_related(clinic, exam, False, ears=("left",), **said)  # a burst eardrum
    assert words(clinic, worker) == {"right": (None, None), "left": (False, False)}
    say_work_related(clinic, exam, True, ears=("right",), **said)
    assert words(clinic, worker) == {"right": (True, True), "left": (False, False)}
    say_work_related(clinic, exam, None, ears=("left",), **said)
    assert words(clinic, worker) == {"right": (True, True), "left": (None, None)}
    say_work_related(clinic, exam, False, **said)  # of no ear in particular: of both
    assert words(clinic, worker) == {"right": (False, False), "left": (False, False)}


def test_a_word_on_work_is_of_an_ear_with_a_shift(clinic: Store, worker: Person) -> None:
    exam = measured(clinic, worker, right=40.0, left=10.0)
    said = {"name": "Dr K", **REVIEWER}
    for ears in (("left",), ("right", "left")):
        with pytest.raises(Conflict, match="no full audiogram with a standard threshold shift"):
            say_work_related(clinic, exam, True, ears=ears, **said)
    say_work_related(clinic, exam, True, **said)
    assert words(clinic, worker)["right"] == (True, True)
