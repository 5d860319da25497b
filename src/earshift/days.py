"""Moments and local days: the one place that turns a stored time into somebody's calendar.

All stored times are UTC. A day is that of a time zone, by its IANA name: a visit's own, as a rule.
"""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from earshift.engine.refusal import Refusal


def zone_info(name: object) -> ZoneInfo:
    """A time zone by its IANA name."""
    try:
        if not isinstance(name, str):
            raise ValueError
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise Refusal("a time zone has an IANA name such as Europe/Berlin", got=name) from None


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


def noon(day: date, zone: str) -> datetime:
    """The moment that stands for a day of which nobody knows the hour."""
    return datetime.combine(day, time(12), zone_info(zone))


def is_noon(moment: datetime, zone: str) -> bool:
    """Whether a moment is one that stands for a day: of audiograms from elsewhere, most are."""
    return local_time(moment, zone).time() == time(12)


def year_before(day: date) -> date:
    """The first day of the year that ends with this one."""
    try:
        before = day.replace(year=day.year - 1)
    except ValueError:  # 29 February
        before = day.replace(year=day.year - 1, day=28)
    return before + timedelta(days=1)


def age_on(born: date, day: date) -> int:
    """Completed years of age on a day; below zero when the day is before the birth."""
    return day.year - born.year - ((day.month, day.day) < (born.month, born.day))
