"""Moments and local days: the one place that turns a stored time into somebody's calendar.

All stored times are UTC. A day is that of a time zone, by its IANA name: a visit's own, as a rule.
"""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

from earshift.engine.refusal import Refusal
from earshift.records import ExamRecord, Visit


def zone_info(name: object) -> ZoneInfo:
    """A time zone by its IANA name."""
    try:
        if not isinstance(name, str):
            raise ValueError
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise Refusal(f"a time zone has an IANA name such as Europe/Berlin, got {name!r}") from None


def local_time(moment: datetime, zone: str) -> datetime:
    """The moment on the clocks of a time zone."""
    return moment.astimezone(zone_info(zone))


def local_day(moment: datetime, zone: str) -> date:
    """The day of the moment in a time zone."""
    return local_time(moment, zone).date()


def today(zone: str | None = None) -> date:
    """The day that it is now in a time zone, or, without one, on this machine."""
    now = datetime.now(UTC)
    return now.astimezone().date() if zone is None else local_day(now, zone)


def visit_day(visit: Visit) -> date:
    """The local day of a visit."""
    return local_day(visit.started_at, visit.zone)


def age_on(born: date, day: date) -> int:
    """Completed years of age on a day; below zero when the day is before the birth."""
    return day.year - born.year - ((day.month, day.day) < (born.month, born.day))


def measured_at(record: ExamRecord, visit: Visit) -> datetime | None:
    """When the ear was measured; None of an imported audiogram that does not say."""
    if record.measured_at is None and record.kind != "audiogram":
        return visit.started_at
    return record.measured_at


def measured_on(record: ExamRecord, visit: Visit) -> date | None:
    """The local day on which the ear was measured; None of an audiogram that does not say."""
    at = measured_at(record, visit)
    return None if at is None else local_day(at, visit.zone)


def measured_or_entered_at(record: ExamRecord, visit: Visit) -> datetime:
    """When the ear was measured, or when an audiogram without a date was entered.

    For putting records in order, never for saying a date.
    """
    return measured_at(record, visit) or visit.started_at
