"""A day at a site: its visits in one list, who is being tested now, and visits of a period."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from earshift.clinic.session import holds
from earshift.days import zone_info
from earshift.engine.refusal import Refusal
from earshift.records import ExamBundle, ExamRecord, VisitBundle
from earshift.store import Store

BACKUP = "backup"  # the subject of its line in the audit
OLD_BACKUP_DAYS = 7
OLD_BACKUP = "The newest backup is {days} days old. Make a new one."
NO_BACKUP = "No backup has been made yet. Make one, and keep it elsewhere."


@dataclass(frozen=True)
class DayExam:
    """One exam of a day: how far it is, and what it said."""

    record: ExamRecord
    answered: int
    """Tones and silent trials so far."""
    last_at: datetime | None
    """Of the newest answer."""
    decision: str | None
    held: str | None
    """Why its listener waits for the examiner."""


@dataclass(frozen=True)
class DayVisit:
    """One visit of a day."""

    bundle: VisitBundle
    exams: tuple[DayExam, ...]

    @property
    def going_on(self) -> bool:
        return any(one.record.state in ("open", "paused") for one in self.exams)


def visits_of_period(
    store: Store,
    first: date | None,
    last: date | None,
    zone: str,
    *,
    person_id: int | None = None,
    simulated: bool = False,
) -> Iterator[VisitBundle]:
    """Visits that began from one day to another, both included, by the site's calendar."""
    if first is not None and last is not None and last < first:
        raise Refusal("the last day is before the first", got=last)
    return store.iter_visit_bundles(
        person_id,
        since=None if first is None else _begin(first, zone),
        before=None if last is None else _begin(last + timedelta(days=1), zone),
        simulated=simulated,
    )


def visits_of_day(store: Store, day: date, zone: str) -> list[DayVisit]:
    """The visits of a day on which somebody was tested, newest first; none of a simulation."""
    found = []
    for bundle in visits_of_period(store, day, day, zone):
        exams = tuple(_exam(store, one) for one in bundle.exams if one.exam.kind != "audiogram")
        if exams:
            found.append(DayVisit(bundle, exams))
    return found[::-1]


def backup_warning(store: Store, now: datetime | None = None) -> str | None:
    """What to say of backups, if the newest that earshift knows of is old or there is none.

    A database without a finished visit has nothing to lose yet.
    """
    made = store.audit(subject=BACKUP, newest_first=True, limit=1)
    if not made:
        return NO_BACKUP if store.count_visits() else None
    days = ((now or datetime.now(UTC)) - made[0].at).days
    return None if days < OLD_BACKUP_DAYS else OLD_BACKUP.format(days=days)


def _exam(store: Store, one: ExamBundle) -> DayExam:
    live = [t for t in one.trials if t.voided_at is None and t.kind != "practice"]
    shown: dict[str, Any] = one.results[-1].shown if one.results else {}
    paused = one.exam.state == "paused"
    return DayExam(
        record=one.exam,
        answered=len(live),
        last_at=max((t.at for t in one.trials), default=None),
        decision=(shown.get("verdict") or {}).get("decision"),
        held=holds(store.snapshot(one.exam.id)) if paused else None,
    )


def _begin(day: date, zone: str) -> datetime:
    return datetime.combine(day, time(0), zone_info(zone)).astimezone(UTC)
