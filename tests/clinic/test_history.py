"""An ear over time: what each exam says against the baseline of its day, and when to revise it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import earshift as es
from earshift.cli import app
from earshift.clinic import history as monitor
from earshift.clinic.history import (
    IMPROVED,
    PERSISTENT,
    Occasion,
    ear_history,
    propose,
    revise_baseline,
)
from earshift.clinic.plan import Plan, open_exam, plan_exam, plan_screen
from earshift.clinic.session import Session
from earshift.engine.rules import RULES
from earshift.records import ImportedAudiogram, Person
from earshift.store import Store
from support.databases import prepare
from support.helpers import HZ, MILD, NORMAL

OSHA = RULES["osha-sts"]
WORSE = {f: level + (25.0 if f >= 2000.0 else 0.0) for f, level in NORMAL.items()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "clinic.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    prepare(path)
    with Store(path) as opened:
        yield opened


@pytest.fixture
def person(store: Store) -> Person:
    return store.add_person(author="mh", code="A1")


def imported(
    store: Store, ear: dict[float, float], year: int | None, side: str = "right", code: str = "A1"
) -> int:
    at = None if year is None else datetime(year, 5, 5, tzinfo=UTC)
    item = ImportedAudiogram(code, side, es.Audiogram(ear).to_dict(), at, f"paper {year} {ear}")
    return store.import_audiograms([item], author="mh", zone="UTC").added[0].id


def sit(store: Store, plan: Plan, person_id: int, ear: dict[float, float]) -> int:
    """A whole procedure of a simulated person, stored as if it were a real one."""
    visit = store.open_visit(person_id, author="mh", zone="UTC", mode="supervised")
    record = open_exam(store, visit, plan, author="mh")
    session, listener = Session(store, record.id, author="mh"), es.Listener(ear, seed=3)
    while not session.done:
        shown = session.presentation()
        level = shown.level_db_hl
        session.answer(level is not None and listener(es.Tone(shown.frequency_hz, level)))
    session.finish()
    return record.id


def full_exam(store: Store, person: Person, ear: dict[float, float]) -> int:
    return sit(store, plan_exam("right", seed=1, max_tones=30), person.id, ear)


def screened(store: Store, person: Person, ear: dict[float, float], **options: Any) -> int:
    plan = plan_screen(store, person.id, "right", seed=1, **options)
    return sit(store, plan, person.id, ear)


# The proposal, from plain occasions --------------------------------------------------------------


def occasion(number: int, decision: str, day: int, **changes: Any) -> Occasion:
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day)
    plain = Occasion(number, "exam", at, at.date(), 1, OSHA.name, decision, 0.9)
    return replace(plain, **changes)


def shifts(db: float) -> tuple[tuple[float, float], ...]:
    return tuple((f, db) for f in HZ)


def test_two_days_in_a_row_are_persistent_and_one_is_not() -> None:
    once = [occasion(2, "unchanged", 0), occasion(3, "changed", 100)]
    assert propose(once, OSHA, 1) is None
    again = [*once, occasion(4, "changed", 200)]
    proposal = propose(again, OSHA, 1)
    assert proposal is not None
    assert (proposal.reason, proposal.exam_id) == (PERSISTENT, 4)
    assert "2026-04-11" in proposal.words
    assert "2026-07-20" in proposal.words
    assert propose([*again, occasion(5, "unchanged", 300)], OSHA, 1) is None


def test_a_retest_on_the_same_day_is_no_second_occasion() -> None:
    same_day = [occasion(3, "changed", 100), occasion(4, "changed", 100)]
    assert propose(same_day, OSHA, 1) is None


def test_what_decided_nothing_does_not_break_a_run() -> None:
    rows = [
        occasion(3, "changed", 100),
        occasion(4, "inconclusive", 150),
        occasion(5, "not determinable", 160),
        occasion(6, "changed", 200),
    ]
    proposal = propose(rows, OSHA, 1)
    assert proposal is not None
    assert proposal.exam_id == 6


def test_screens_alone_ask_for_a_full_exam_first() -> None:
    rows = [occasion(n, "changed", 100 * n, kind="screen") for n in (3, 4)]
    proposal = propose(rows, OSHA, 1)
    assert proposal is not None
    assert proposal.exam_id is None
    assert "a full exam is needed" in proposal.words


@pytest.mark.parametrize("other", [{"against": 7}, {"rule": "niosh-15"}, {"rule": None}])
def test_another_baseline_or_rule_counts_for_nothing(other: dict[str, Any]) -> None:
    rows = [occasion(3, "changed", 100, **other), occasion(4, "changed", 200)]
    assert propose(rows, OSHA, 1) is None


def test_an_improvement_is_the_rule_the_other_way_round() -> None:
    for db, found in ((-10.0, True), (-9.0, False), (10.0, False)):
        proposal = propose([occasion(3, "unchanged", 100, shifts_db=shifts(db))], OSHA, 1)
        assert (proposal is not None) is found
        if proposal is not None:
            assert (proposal.reason, proposal.exam_id) == (IMPROVED, 3)
    partial = occasion(3, "unchanged", 100, shifts_db=((2000.0, -30.0), (3000.0, -30.0)))
    assert propose([partial], OSHA, 1) is None
    by_screen = occasion(3, "unchanged", 100, kind="screen", shifts_db=shifts(-20.0))
    assert propose([by_screen], OSHA, 1) is None


# Histories from the store ------------------------------------------------------------------------


def test_audiograms_are_judged_by_rule_against_the_oldest(store: Store, person: Person) -> None:
    newest = imported(store, WORSE, 2025)
    oldest = imported(store, NORMAL, 2020)
    middle = imported(store, WORSE, 2024)
    history = ear_history(store, person.id, "right")
    assert history.baseline == oldest
    assert history.chosen == ()
    assert [o.exam_id for o in history.occasions] == [oldest, middle, newest]
    first, second, third = history.occasions
    assert (first.decision, first.note) == (None, "the baseline")
    assert (second.decision, second.against, second.p_changed) == ("changed", oldest, None)
    assert dict(third.shifts_db)[3000.0] == 25.0
    assert third.day == date(2025, 5, 5)
    assert history.proposal is not None
    assert (history.proposal.reason, history.proposal.exam_id) == (PERSISTENT, newest)


@pytest.mark.slow
def test_full_exams_are_judged_by_thresholds_and_screens_as_shown(
    store: Store, person: Person
) -> None:
    first = full_exam(store, person, NORMAL)
    same = full_exam(store, person, NORMAL)
    worse = full_exam(store, person, WORSE)
    screen = screened(store, person, WORSE)
    rows = {o.exam_id: o for o in ear_history(store, person.id, "right").occasions}
    assert rows[first].note == "the baseline"
    assert rows[same].decision == "unchanged"
    assert rows[worse].decision == "changed"
    assert rows[same].p_changed is rows[worse].p_changed is None
    assert set(dict(rows[worse].shifts_db)) >= {500.0, 8000.0}  # not the rule's alone
    assert dict(rows[worse].shifts_db)[3000.0] == pytest.approx(25.0, abs=8.0)
    # A screen's row is what was shown at its end.
    shown = store.results(screen)[-1].shown["verdict"]
    assert rows[screen].p_changed == shown["p_changed"]
    assert rows[screen].decision == shown["decision"] == "changed"
    assert rows[screen].against == first


@pytest.mark.slow
def test_a_revision_changes_what_comes_and_nothing_that_was(store: Store, person: Person) -> None:
    first = full_exam(store, person, NORMAL)
    worse = full_exam(store, person, WORSE)
    before = ear_history(store, person.id, "right").occasions
    choice = revise_baseline(
        store, person.id, "right", worse, author="dr", reason="persistent shift"
    )
    again = full_exam(store, person, WORSE)
    history = ear_history(store, person.id, "right")
    assert history.occasions[:2] == before
    assert history.baseline == worse
    assert history.chosen == (choice,)
    last = history.occasions[-1]
    assert (last.exam_id, last.against, last.decision) == (again, worse, "unchanged")
    assert before[1].against == first
    assert ear_history(store, person.id, "left").occasions == ()


def test_simulated_and_unfinished_exams_are_not_there(store: Store, person: Person) -> None:
    imported(store, NORMAL, 2020)
    visit = store.open_visit(person.id, author="mh", zone="UTC", mode="simulated")
    plan = plan_exam("right", seed=1, max_tones=3)
    for where in (visit, store.open_visit(person.id, author="mh", zone="UTC", mode="supervised")):
        open_exam(store, where, plan, author="mh")
    assert len(ear_history(store, person.id, "right").occasions) == 1


def test_ears_and_people_are_never_mixed(store: Store, person: Person) -> None:
    imported(store, NORMAL, 2020)
    imported(store, MILD, 2024, side="left")
    store.add_person(author="mh", code="B2")
    others = imported(store, MILD, 2024, code="B2")
    assert [o.note for o in ear_history(store, person.id, "right").occasions] == ["the baseline"]
    assert [o.note for o in ear_history(store, person.id, "left").occasions] == ["the baseline"]
    for exam_id, words in (
        (others, "belongs to another person"),
        (2, "never mixed"),
        (99, "no exam 99"),
    ):
        with pytest.raises(ValueError, match=words):
            revise_baseline(store, person.id, "right", exam_id, author="dr", reason="x")
    assert store.baselines(person.id) == []


def test_a_revision_needs_a_reason_and_a_full_exam(store: Store, person: Person) -> None:
    imported(store, NORMAL, 2020)
    screen = screened(store, person, NORMAL)
    with pytest.raises(ValueError, match="a screen is not a full exam"):
        revise_baseline(store, person.id, "right", screen, author="dr", reason="x")
    for nothing in ("", "  ", None):
        with pytest.raises(ValueError, match="reason"):
            revise_baseline(store, person.id, "right", 1, author="dr", reason=nothing)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="right or left"):
        ear_history(store, person.id, "both")


def test_an_audiogram_without_a_date_says_so(store: Store, person: Person) -> None:
    imported(store, NORMAL, 2020)
    imported(store, WORSE, None)
    last = ear_history(store, person.id, "right").occasions[-1]
    assert monitor.UNDATED in last.note
    assert last.decision == "changed"


def test_another_rule_may_judge(store: Store, person: Person) -> None:
    imported(store, NORMAL, 2020)
    notched = {**NORMAL, 6000.0: NORMAL[6000.0] + 20.0}
    imported(store, notched, 2024)
    decisions = [
        ear_history(store, person.id, "right", rule).occasions[-1].decision
        for rule in ("osha-sts", "niosh-15")
    ]
    assert decisions == ["unchanged", "changed"]


# The command line --------------------------------------------------------------------------------

Run = Callable[..., Any]


@pytest.fixture
def run(path: Path, store: Store, person: Person) -> Run:
    imported(store, NORMAL, 2020)
    imported(store, WORSE, 2024)
    imported(store, WORSE, 2025)

    def command(*words: str) -> Any:
        return CliRunner().invoke(app, [*words, "--db", str(path)], env={"COLUMNS": "200"})

    return command


def test_shifts_without_tones_are_bracketed(run: Run, store: Store, person: Person) -> None:
    screen = screened(store, person, WORSE)
    row = ear_history(store, person.id, "right").occasions[-1]
    assert row.exam_id == screen
    tested_hz = store.results(screen)[-1].shown["tested_hz"]
    assert row.inferred_hz
    assert not set(row.inferred_hz) & set(tested_hz)
    shown = run("person", "history", "A1").output
    for f, shift in row.shifts_db:
        assert (f"({f:g}:{shift:+.0f})" in shown) == (f in row.inferred_hz)
    assert "no tone was given there" in shown


def test_history_and_baseline_at_the_command_line(run: Run, store: Store, person: Person) -> None:
    shown = run("person", "history", "A1")
    assert shown.exit_code == 0, shown.output
    assert "none has been chosen" in shown.output
    assert (
        "For a professional to judge: The OSHA standard threshold shift rule was met on 2024-05-05"
        in shown.output
    )
    assert "left ear: nothing measured yet" in shown.output
    words = ("--ear", "right", "--exam", "3", "--reason", "persistent, Dr K", "--author", "dr")
    done = run("person", "baseline", "A1", *words)
    assert done.exit_code == 0, done.output
    assert "From now on the right ear is compared with exam 3" in done.output
    chosen = store.baseline(person.id, "right")
    assert chosen is not None
    assert (chosen.exam_id, chosen.author, chosen.reason) == (3, "dr", "persistent, Dr K")
    after = run("person", "history", "A1", "--ear", "right")
    assert "chosen on" in after.output
    assert "persistent, Dr K" in after.output
    assert "To be judged" not in after.output
    assert '"baseline": 3' in run("person", "history", "A1", "--json").output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("history", "A1", "--ear", "up"), "right or left"),
        (("history", "nobody"), "nobody has this id or code"),
        (("history", "A1", "--rule", "mine"), "mine"),
        (("baseline", "A1", "--ear", "left", "--exam", "1", "--reason", "x"), "never mixed"),
        (("baseline", "A1", "--ear", "right", "--exam", "77", "--reason", "x"), "no exam 77"),
        (("baseline", "A1", "--ear", "right", "--exam", "1", "--reason", " "), "reason"),
    ],
)
def test_misuse_at_the_command_line(run: Run, words: tuple[str, ...], message: str) -> None:
    done = run("person", *words, "--author", "dr") if "baseline" in words else run("person", *words)
    assert done.exit_code == 2
    assert message in done.output
