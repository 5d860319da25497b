"""Both ears of one paper audiogram are one visit: read, signed and told of once."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from earshift.clinic.audiograms import store_typed_audiogram
from earshift.clinic.review import review_of, sign
from earshift.records import ExamRecord, Person
from earshift.store import Store

DAY, TODAY = date(2024, 3, 1), date(2026, 3, 1)
HERTZ = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0)


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "clinic.db") as opened:
        yield opened


@pytest.fixture
def person(clinic: Store) -> Person:
    return clinic.add_person(author="mh", code="A1")


def typed(
    store: Store, person: Person, ear: str, day: date | None = DAY, level: float = 10.0
) -> ExamRecord:
    return store_typed_audiogram(
        store,
        person.id,
        ear,
        thresholds_db_hl=dict.fromkeys(HERTZ, level),
        no_response_db_hl={},
        measured_on=day,
        source="paper",
        author="mh",
        zone="Europe/Berlin",
        today=TODAY,
    )


def test_the_other_ear_of_the_same_day_joins_the_visit(clinic: Store, person: Person) -> None:
    right, left = typed(clinic, person, "right"), typed(clinic, person, "left")
    assert right.visit_id == left.visit_id
    assert [one.exam.ear for one in clinic.visit_bundle(right.visit_id).exams] == ["right", "left"]
    sign(clinic, right.visit_id, author="rv", name="Dr K", meaning="reviewed")
    assert not review_of(clinic, right.visit_id).changed_since


def test_another_day_person_or_reading_is_another_visit(clinic: Store, person: Person) -> None:
    other = clinic.add_person(author="mh", code="B2")
    exams = [
        typed(clinic, person, "right"),
        typed(clinic, person, "right", level=15.0),
        typed(clinic, person, "left", date(2024, 3, 2)),
        typed(clinic, other, "left"),
        typed(clinic, person, "left", None),
        typed(clinic, person, "right", None),
    ]
    assert len({one.visit_id for one in exams}) == len(exams)


def test_what_was_signed_is_not_added_to(clinic: Store, person: Person) -> None:
    right = typed(clinic, person, "right")
    sign(clinic, right.visit_id, author="rv", name="Dr K", meaning="reviewed")
    assert typed(clinic, person, "left").visit_id != right.visit_id
    assert not review_of(clinic, right.visit_id).changed_since
