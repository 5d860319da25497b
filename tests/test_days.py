"""Local days, ages, and when an ear was measured."""

from datetime import UTC, date, datetime, timedelta

import pytest

from earshift.days import age_on, local_day, local_time, today, zone_info
from earshift.records import (
    ExamRecord,
    Visit,
    measured_at,
    measured_on,
    measured_or_entered_at,
    visit_day,
)

LATE = datetime(2026, 3, 4, 23, 30, tzinfo=UTC)
VISIT = Visit(42, 17, LATE, "Europe/Berlin", "supervised", "jk")


def exam(kind: str, measured: datetime | None = None) -> ExamRecord:
    return ExamRecord(1, 42, "right", kind, "done", {}, "0.1.0", measured_at=measured)


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("UTC", date(2026, 3, 4)),
        ("Europe/Berlin", date(2026, 3, 5)),
        ("Pacific/Honolulu", date(2026, 3, 4)),
        ("Pacific/Kiritimati", date(2026, 3, 5)),
    ],
)
def test_a_day_is_that_of_the_zone(zone: str, day: date) -> None:
    assert local_day(LATE, zone) == day
    assert local_time(LATE, zone) == LATE
    assert visit_day(VISIT) == date(2026, 3, 5)


def test_clocks_that_change_are_followed() -> None:
    hour = timedelta(hours=1)
    before = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
    assert local_time(before, "Europe/Berlin").utcoffset() == hour
    assert local_time(before + hour, "Europe/Berlin").utcoffset() == 2 * hour


def test_today_is_a_day_of_the_zone() -> None:
    east, west = today("Pacific/Kiritimati"), today("Pacific/Honolulu")
    assert east - west == timedelta(days=1)  # 24 hours apart, always
    assert abs(today() - today("UTC")) <= timedelta(days=1)


@pytest.mark.parametrize("name", ["Berlin", "", "../etc/passwd", None, 2])
def test_a_zone_has_an_iana_name(name: object) -> None:
    with pytest.raises(ValueError, match="IANA name such as Europe/Berlin, got"):
        zone_info(name)


def test_age_is_in_completed_years() -> None:
    born = date(1980, 3, 5)
    assert age_on(born, date(2026, 3, 4)) == 45
    assert age_on(born, date(2026, 3, 5)) == 46
    assert age_on(date(2000, 2, 29), date(2001, 2, 28)) == 0
    assert age_on(date(2026, 3, 6), date(2026, 3, 5)) == -1


def test_an_exam_was_measured_at_its_visit() -> None:
    for kind in ("exam", "screen"):
        assert measured_at(exam(kind), VISIT) == LATE
        assert measured_on(exam(kind), VISIT) == date(2026, 3, 5)


def test_an_audiogram_was_measured_when_it_says_so() -> None:
    taken = datetime(2020, 5, 1, 22, 30, tzinfo=UTC)
    assert measured_at(exam("audiogram", taken), VISIT) == taken
    assert measured_on(exam("audiogram", taken), VISIT) == date(2020, 5, 2)
    assert measured_or_entered_at(exam("audiogram", taken), VISIT) == taken


def test_an_audiogram_without_a_date_has_a_place_in_the_order_only() -> None:
    undated = exam("audiogram")
    assert measured_at(undated, VISIT) is None
    assert measured_on(undated, VISIT) is None
    assert measured_or_entered_at(undated, VISIT) == LATE
