"""What pages read of many tests: the programme of any period, and as few queries for many exams as
for one."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from test_worklist import START, both, full, on, screen

from earshift.clinic.programme import programme
from earshift.clinic.references import baseline_exam, choices, ear_tests
from earshift.store import Store
from earshift.web import views

FULL = {"P0": [0, 400], "P1": [0], "P2": [100], "P3": []}
SCREENS = {"P0": [200], "P1": [50, 300], "P2": [], "P3": [20]}
LEFT_ALONE = {"P3": [150]}  # one ear


@pytest.mark.parametrize("first", [0, 1, 101, 151, 201, 401])
@pytest.mark.parametrize("last", [0, 60, 150, 250, 500])
def test_whoever_was_tested_in_a_period_counts_in_it_whatever_came_later(
    counted: Store, first: int, last: int
) -> None:
    if last < first:
        return

    def within(days: dict[str, list[int]]) -> set[str]:
        return {who for who, when in days.items() if any(first <= day <= last for day in when)}

    found = programme(counted, on(first), on(last)).everybody
    assert found.audiograms == len(within(FULL) | within(LEFT_ALONE))
    assert found.tested == len(within(FULL) | within(SCREENS) | within(LEFT_ALONE))


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Store(tmp_path_factory.mktemp("programme") / "clinic.db") as store:
        for code in FULL:
            person = store.add_person(author="mh", code=code, hired_on=START)
            made = [(day, "full") for day in FULL[code]] + [(day, "s") for day in SCREENS[code]]
            made += [(day, "left") for day in LEFT_ALONE.get(code, [])]
            for day, what in sorted(made):
                if what == "full":
                    both(store, person, day)
                elif what == "left":
                    full(store, person, day, "left", 10.0)
                else:
                    screen(store, person, day, "right", "unchanged")
        yield store


def test_a_department_that_all_have_left_is_not_shown(tmp_path: Path) -> None:
    with Store(tmp_path / "clinic.db") as store:
        store.add_person(author="mh", code="A", department="Old", hired_on=START, left_on=on(10))
        store.add_person(author="mh", code="B", department="New", hired_on=START)
        assert [one.name for one in programme(store, on(20), on(30)).groups] == ["New"]
        assert [one.name for one in programme(store, on(0), on(5)).groups] == ["New", "Old"]


def test_many_exams_are_read_by_as_many_queries_as_one(tmp_path: Path) -> None:
    with Store(tmp_path / "clinic.db") as store:
        asked = []
        event.listen(store.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
        person = store.add_person(author="mh", code="A", hired_on=START)
        counts = []
        for day in range(5):
            full(store, person, day, "left", 10.0)
            exams = store.exams(person.id)
            views.summaries(store, exams)  # gives new exams their handles
            asked.clear()
            said = views.summaries(store, exams)
            tests = ear_tests(store, person.id, "left")
            offered = choices(store, tests)
            drawn = views.history(store, exams, said)
            counts.append(len(asked))
            assert len(said) == len(offered) == len(drawn["left"]) == day + 1
            assert exams[0].id == baseline_exam(tests) == offered[0].record.id
        assert counts == [counts[0]] * 5
