"""Nothing is done twice or half: programs at the same time, and clocks that jump."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_store import AUDIOGRAM, BERLIN, a_person, a_trial

from earshift.clinic.worklist import worklist
from earshift.records import ImportedAudiogram, in_order
from earshift.store import Store, StoreConflict, StoreTrouble, checks, database, imports
from earshift.store.accounts import LONGEST_WAIT, Accounts, Throttled
from support.databases import prepare

PLANNED = {"kind": "exam", "design": {"seed": 1}, "engine_version": "0.1"}
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def at_once(calls: int, call: Any) -> list[Any]:
    """What each of several calls at the same time gave, or was refused with."""

    def tried(_: int) -> Any:
        try:
            return call()
        except StoreConflict as refusal:
            return refusal

    with ThreadPoolExecutor(calls) as pool:
        return list(pool.map(tried, range(calls)))


def a_test(store: Store, person_id: int, *ears: str) -> Any:
    return store.open_test(
        person_id,
        [{"ear": ear, **PLANNED} for ear in ears],
        author="mh",
        zone=BERLIN,
        mode="supervised",
    )


def test_of_tests_that_are_begun_at_once_one_is_opened(store: Store) -> None:
    person = a_person(store)
    found = at_once(4, lambda: a_test(store, person.id, "right", "left"))
    refused = [one for one in found if isinstance(one, StoreConflict)]
    assert [one.code for one in refused] == ["unfinished-exam"] * 3
    assert len(store.exams(person.id)) == 2
    assert len(store.visits(person.id)) == 1  # whoever was refused left no empty visit


def test_a_test_opens_all_of_its_ears_or_none(store: Store) -> None:
    person = a_person(store)
    a_test(store, person.id, "left")
    with pytest.raises(StoreConflict, match="of the left ear is not finished"):
        a_test(store, person.id, "right", "left")
    assert [one.ear for one in store.exams(person.id)] == ["left"]


def test_of_exams_that_follow_at_once_one_is_opened(store: Store) -> None:
    person = a_person(store)
    visit, _ = a_test(store, person.id)
    found = at_once(
        4, lambda: store.open_exam(visit.id, author="mh", ear="right", alone=True, **PLANNED)
    )
    assert sum(isinstance(one, StoreConflict) for one in found) == 3
    assert len(store.exams(person.id)) == 1


def test_a_simulated_exam_does_not_stand_in_the_way_of_a_real_one(store: Store) -> None:
    person = a_person(store)
    given = {"author": "mh", "zone": BERLIN}
    store.open_test(person.id, [{"ear": "right", **PLANNED}], mode="simulated", **given)
    store.open_test(person.id, [{"ear": "right", **PLANNED}], mode="supervised", **given)
    assert len(store.exams(person.id)) == 2


def test_the_same_audiogram_is_not_stored_twice(store: Store) -> None:
    person = a_person(store)
    typed = {"ear": "right", "kind": "audiogram", "design": AUDIOGRAM, "engine_version": "0.1"}

    def enter(**changed: Any) -> Any:
        return store.open_test(
            person.id, [{**typed, **changed}], author="mh", zone=BERLIN, mode="imported"
        )

    found = at_once(4, enter)
    assert [one.code for one in found if isinstance(one, StoreConflict)] == ["known-audiogram"] * 3
    enter(ear="left")
    enter(measured_at=NOON)
    assert len(store.exams(person.id)) == 3


# Clocks


class JumpingClock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


HOURS = st.sampled_from([0, 0, -1, 1, -30, 30, -24 * 400, 24 * 400])


# Each example has people, names and addresses of its own, so that all share one store.
EXAMPLES = count(1)
SHARED = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture],
}


@settings(max_examples=12, **SHARED)
@given(st.lists(st.tuples(HOURS, st.sampled_from(["test", "trial", "break"])), max_size=8))
def test_a_clock_that_jumps_changes_nothing_but_times(
    store: Store, monkeypatch: pytest.MonkeyPatch, steps: list[tuple[int, str]]
) -> None:
    clock = JumpingClock()
    with monkeypatch.context() as patched:
        patched.setattr(checks, "now", clock)
        person = a_person(store, code=f"jumps {next(EXAMPLES)}")
        _, (exam,) = a_test(store, person.id, "right")
        rows, trials, opened_after = [exam.id], 0, 0
        for hours, step in steps:
            clock.now += timedelta(hours=hours)
            if step == "trial":
                a_trial(store, exam)
                trials += 1
            elif step == "break":
                store.set_exam_state(exam.id, "paused", author="mh")
                store.set_exam_state(exam.id, "open", author="mh")
                opened_after = trials
            else:
                store.set_exam_state(exam.id, "abandoned", author="mh")
                _, (exam,) = a_test(store, person.id, "right")
                rows.append(exam.id)
                trials = opened_after = 0
            snapshot = store.snapshot(exam.id)
            assert snapshot.opened_after == opened_after
            assert [one.number for one in snapshot.trials] == list(range(1, trials + 1))
            waiting = worklist(store, clock.now.date(), search=person.code).items
            reasons = [one.why for one in waiting if one.person_id == person.id]
            assert reasons.count("unfinished") == 1
        assert [one.id for one in store.exams(person.id)] == rows
        assert store.check() == []


@settings(max_examples=8, **SHARED)
@given(st.lists(st.tuples(HOURS, st.sampled_from(["make", "end", "look"])), max_size=8))
def test_a_link_that_was_ended_stays_ended_whatever_the_clock_says(
    store: Store, steps: list[tuple[int, str]]
) -> None:
    clock = JumpingClock()
    accounts = Accounts(store, clock)
    name = f"bob{next(EXAMPLES)}"
    accounts.add_user(name, "correct horse battery", role="admin", author="test", temporary=False)
    person = a_person(store, code=name)
    visit, (exam,) = a_test(store, person.id, "right")
    ended: list[str] = []
    made: list[str] = []
    for hours, step in steps:
        clock.now += timedelta(hours=hours)
        if step == "make":
            ended += made  # a new link takes the place of the one before
            made = [accounts.make_link(visit.id, [exam.id], name)]
            assert accounts.link(made[0]) is not None
        elif step == "end":
            accounts.end_links(visit.id, name)
            ended += made
            made = []
        assert [accounts.link(secret) for secret in ended] == [None] * len(ended)
    assert store.check() == []


def test_what_was_measured_elsewhere_stands_by_its_day_and_the_rest_by_its_rows() -> None:
    first, second = date(2026, 3, 1), date(2026, 3, 5)
    tests = {
        1: (second, True),
        2: (first, True),  # the clock was put back
        3: (first, False),
        4: (date(2026, 3, 9), False),
        5: (date(2026, 3, 10), True),
        6: (second, False),
    }
    ordered = in_order(tests, lambda row: (row, *tests[row]))
    assert [row for _, row in ordered] == [3, 1, 2, 6, 4, 5]
    assert {row: day for day, row in ordered}[2] == second


@settings(max_examples=8, **SHARED)
@given(st.lists(HOURS, min_size=1, max_size=10))
def test_throttling_waits_at_most_what_is_documented(store: Store, jumps: list[int]) -> None:
    clock = JumpingClock()
    accounts = Accounts(store, clock)
    number = next(EXAMPLES)
    for hours in jumps:
        clock.now += timedelta(hours=hours)
        wait = _guess(accounts, number)
        assert wait <= LONGEST_WAIT.total_seconds()
        if wait:
            clock.now += timedelta(seconds=wait + 1)
            assert _guess(accounts, number) == 0


def _guess(accounts: Accounts, number: int) -> int:
    """The seconds to wait before the next guess; none if this one was let through."""
    try:
        accounts.sign_in(f"nobody{number}", "wrong password here", f"192.0.2.{number % 250}")
    except Throttled as refusal:
        return refusal.retry_after
    return 0


# Restoring


def test_a_store_that_is_open_is_not_restored_over(tmp_path: Path) -> None:
    file, copy = tmp_path / "store.db", tmp_path / "copy"
    prepare(file)
    with Store.open(file) as store:
        a_person(store)
        store.backup(copy)
        for one in tmp_path.glob("store.db*"):
            if one.suffix != ".in-use":  # as somebody would who makes room for the backup
                one.rename(tmp_path / f"old-{one.name}")
        with pytest.raises(StoreConflict, match=r"another program has .* open"):
            Store.restore(copy, file)
        assert not file.exists()
    Store.restore(copy, file)
    with Store.open(file) as store:
        assert [one.code for one in store.people()] == ["4711"]


def test_an_answer_is_not_acknowledged_into_a_file_that_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    prepare(file)
    with Store.open(file) as store:
        _, (exam,) = a_test(store, a_person(store).id, "right")
        a_trial(store, exam)
        file.rename(tmp_path / "moved.db")
        with pytest.raises(StoreTrouble, match="was moved, replaced or deleted"):
            a_trial(store, exam)
        prepare(file)  # another store of the same name
        with pytest.raises(StoreTrouble, match="was moved, replaced or deleted"):
            a_trial(store, exam)


# Imports


def an_item(number: int, ear: str = "right", **given: Any) -> ImportedAudiogram:
    values = {"code": f"C{number}", "ear": ear, "audiogram": AUDIOGRAM, "measured_at": NOON}
    return ImportedAudiogram(**{**values, **given})


def test_others_get_their_turn_during_an_import(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "HOLD_SECONDS", 0.0)
    items = [an_item(number, ear) for number in range(4) for ear in ("right", "left")]
    before = store.seal().links
    done = store.import_audiograms(items, author="mh", zone=BERLIN)
    assert len(done.added) == 8
    assert store.seal().links == before + 4  # a transaction for each person
    assert store.count_visits() == 4
    assert store.check() == []


def test_an_import_that_was_killed_is_completed_by_repeating_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "HOLD_SECONDS", 0.0)
    items = [an_item(number, ear) for number in range(4) for ear in ("right", "left")]
    real, calls = imports.import_one, count(1)

    def dying(*given: Any) -> Any:
        if next(calls) == 6:  # between the ears of the third person
            raise KeyboardInterrupt
        return real(*given)

    with monkeypatch.context() as killed:
        killed.setattr(imports, "import_one", dying)
        with pytest.raises(KeyboardInterrupt):
            store.import_audiograms(items, author="mh", zone=BERLIN)
    assert len(store.people()) == 2
    done = store.import_audiograms(items, author="mh", zone=BERLIN)
    assert (len(done.known), len(done.added)) == (4, 4)
    assert store.count_visits() == 4
    assert store.check() == []


def test_what_an_import_refuses_is_found_before_anything_is_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "HOLD_SECONDS", 0.0)
    items = [an_item(1, name="Ada"), an_item(2), an_item(1, "left", name="Grace")]
    refused = store.refused_imports(items, author="mh", zone=BERLIN)
    assert [str(one) for one in refused.values()] == [
        "the person of an earlier row is known with another name; "
        "correct the person or the file first"
    ]
    with pytest.raises(StoreConflict, match=r"audiogram 3 .*another name"):
        store.import_audiograms(items, author="mh", zone=BERLIN)
    with pytest.raises(StoreConflict, match="already belongs to"):
        store.change_people([{"code": "A"}, {"code": "A"}], {}, author="mh", reason="roster")
    assert store.people() == []
