"""Who has to be tested: everybody is listed unless nothing is left to do for either ear.

Listed is whoever has not left and was not erased, and of whom one of these holds on that day: an
ear was never tested; its interval is over, or soon will be; an exam is not finished; a verdict
calls for a retest, a full audiogram, a reviewer or a letter (`earshift.clinic.standing`). Nothing
falls off the list by growing old.
"""

from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial

from earshift.clinic.devices import DeviceToday, device_today
from earshift.clinic.site import Settled, site_settings
from earshift.clinic.standing import (
    AUDIOGRAM,
    LETTER,
    RETEST,
    REVIEW,
    UNFINISHED,
    standing_of,
)
from earshift.engine.refusal import Conflict, Refusal
from earshift.records import Closing, WorkRow
from earshift.store import Store, WorkFilter

FIRST, DUE = "first", "due"
WHYS = {
    UNFINISHED: "test not finished",
    AUDIOGRAM: "full audiogram after a change",
    RETEST: "retest: nothing was decided",
    REVIEW: "review: changed, and nobody has signed",
    LETTER: "letter: tell the person of the shift",
    FIRST: "never tested in full",
    DUE: "periodic test",
}
# Of a site where screens keep the interval, too.
FIRST_OF_ANY = "never tested"


@dataclass(frozen=True)
class WorkItem:
    """One line of the worklist: who, what of which ears, why and by when."""

    person_id: int
    code: str | None
    name: str | None
    department: str | None
    job: str | None
    why: str
    words: str
    ears: tuple[str, ...]
    since: date
    """The day of the test that it follows from, or the first day at work."""
    by: date
    overdue_days: int
    """0 until the day after `by`."""
    exam_id: int | None = None


@dataclass(frozen=True)
class Worklist:
    """A page of the list, and how long the whole of it is."""

    today: date
    items: tuple[WorkItem, ...]
    counts: dict[str, int]
    """Lines by reason, on all pages."""
    overdue: int

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def refresh(store: Store, *, everybody: bool = False) -> int:
    """Work out again how people stand of whom something new is known."""
    corrected = bool(site_settings(store)["age_correction"].value)
    derive = partial(standing_of, age_corrected=corrected)
    return store.refresh_standings(derive, everybody=everybody)


def worklist(
    store: Store,
    today: date,
    *,
    search: str | None = None,
    department: str | None = None,
    job: str | None = None,
    why: str | None = None,
    overdue: bool = False,
    start: int = 0,
    limit: int | None = None,
) -> Worklist:
    """The list of a day, the most urgent first; without a limit, all of it."""
    if why is not None and why not in WHYS:
        raise Refusal(f"a reason is one of {', '.join(WHYS)}", got=why)
    refresh(store)
    settled = site_settings(store)
    wanted = WorkFilter(
        today=today.toordinal(),
        windows=windows(settled),
        notice=int(settled["notice_days"].value),
        by_full=not settled["screen_keeps_interval"].value,
        search=(search or "").strip() or None,
        department=department or None,
        job=job or None,
        whys=None if why is None else (why,),
        overdue=overdue,
    )
    rows, counts, late = store.work(wanted, start=start, limit=limit)
    items = tuple(_item(row, wanted) for row in rows)
    return Worklist(today, items, counts, late)


def windows(settled: dict[str, Settled]) -> dict[str, int]:
    """Days from the day of a line to the day by which it has to be done."""
    return {
        UNFINISHED: 0,
        AUDIOGRAM: int(settled["retest_days"].value),
        RETEST: int(settled["inconclusive_retest_days"].value),
        REVIEW: int(settled["review_days"].value),
        LETTER: int(settled["letter_days"].value),
        FIRST: int(settled["baseline_within_days"].value),
        DUE: int(settled["test_interval_days"].value),
    }


def _item(row: WorkRow, wanted: WorkFilter) -> WorkItem:
    by = row.day + wanted.windows[row.why]
    words = WHYS[row.why] if wanted.by_full or row.why != FIRST else FIRST_OF_ANY
    return WorkItem(
        person_id=row.person_id,
        code=row.code,
        name=row.name,
        department=row.department,
        job=row.job,
        why=row.why,
        words=words,
        ears=tuple(row.ears.split()),
        since=date.fromordinal(row.day),
        by=date.fromordinal(by),
        overdue_days=max(0, wanted.today - by),
        exam_id=row.exam_id,
    )


def next_due(store: Store, person_id: int) -> date | None:
    """When somebody's next full audiogram is due, by the older ear; None: one is missing."""
    refresh(store)
    day = store.full_day(person_id)
    interval = timedelta(days=int(site_settings(store)["test_interval_days"].value))
    return None if day is None else date.fromordinal(day) + interval


def close_verdict(store: Store, exam_id: int, *, author: str, reason: str) -> Closing:
    """A reviewer's word that nothing more has to be done about the verdict of a finished test."""
    if not reason.strip():
        raise Refusal("closing a verdict needs a reason")
    exam = store.exam(exam_id)
    if exam.state != "done":
        raise Conflict(f"{{exam}} is {exam.state} and has no verdict to close", exam=exam_id)
    said = store.closings(exam_id)
    if said and said[-1].closed:
        raise Conflict("the verdict of {exam} is closed already", exam=exam_id)
    return store.close_verdict(exam_id, author=author, reason=reason)


def reopen_verdict(store: Store, exam_id: int, *, author: str, reason: str) -> Closing:
    """Take a closing back: the verdict calls for what it called for before."""
    if not reason.strip():
        raise Refusal("reopening a verdict needs a reason")
    said = store.closings(exam_id)
    if not said or not said[-1].closed:
        raise Conflict("the verdict of {exam} is not closed", exam=exam_id)
    return store.close_verdict(exam_id, author=author, reason=reason, closed=False)


def devices_to_see_to(store: Store, today: date) -> list[DeviceToday]:
    """Devices that are blocked, expired or not checked today."""
    devices = [device_today(store, device, today) for device in store.devices()]
    return [device for device in devices if device.needs_attention]
