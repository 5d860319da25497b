"""Days as people count them: a moment is stored in UTC and belongs to a day at its site."""

from datetime import UTC, date, datetime, time
from zoneinfo import ZoneInfo


def local_day(moment: datetime, zone: str) -> date:
    """The day of a moment in this time zone (an IANA name such as Europe/Berlin)."""
    return moment.astimezone(ZoneInfo(zone)).date()


def today(zone: str | None = None) -> date:
    """The day it is now in this time zone; without one, on this machine."""
    now = datetime.now(UTC)
    return now.astimezone().date() if zone is None else local_day(now, zone)


def noon(day: date, zone: str) -> datetime:
    """The moment that stands for a day of which nobody knows the hour."""
    return datetime.combine(day, time(12), ZoneInfo(zone))
