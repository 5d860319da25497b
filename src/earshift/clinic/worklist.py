"""Who has to be tested: everybody is listed unless nothing is left to do for either ear.

Listed is whoever has not left and was not erased, and of whom one of these holds on that day: an
ear was never tested; its interval is over, or soon will be; an exam is not finished; a verdict
calls for a retest, a full audiogram, a reviewer or a letter (`earshift.clinic.standing`). Nothing
falls off the list by growing old.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING

from earshift.acts import Closing
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
from earshift.records import ExamRecord, WorkRow
from earshift.store import Store, WorkFilter

if TYPE_CHECKING:
    from earshift.store.standings import Derive

FIRST, DUE = "first", "due"
WHYS = {
    UNFINISHED: "test not finished",
    AUDIOGRAM: "full audiogram after a change",
    RETEST: "retest: nothing was decided",
    REVIEW: "review: a finding that nobody has signed",
    LETTER: "letter: tell the person of the shift",
    FIRST: "never tested in full",
    DUE: "periodic full audiogram",
}
# Of a site where screens keep the interval, too.
OF_ANY = {FIRST: "never tested", DUE: "periodic test"}


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
    full: bool = False
    """Whether only a full audiogram of these ears ends it."""


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
    """Work out again how people stand of whom something new is known, or all that is worked out."""
    return store.refresh_standings(_derive(store), everybody=everybody)


def astray(store: Store) -> list[int]:
    """People whom the lists show otherwise than follows from their records, or not at all."""
    return store.astray(_derive(store))


def _derive(store: Store) -> "Derive":
    corrected = bool(site_settings(store)["age_correction"].value)
    return partial(standing_of, age_corrected=corrected)


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
    by_any = row.why in OF_ANY and not wanted.by_full
    return WorkItem(
        person_id=row.person_id,
        code=row.code,
        name=row.name,
        department=row.department,
        job=row.job,
        why=row.why,
        words=OF_ANY[row.why] if by_any else WHYS[row.why],
        ears=tuple(row.ears.split()),
        since=date.fromordinal(row.day),
        by=date.fromordinal(by),
        overdue_days=max(0, wanted.today - by),
        exam_id=row.exam_id,
        full=row.why in (FIRST, DUE, AUDIOGRAM) and not by_any,
    )


def next_due(store: Store, person_id: int) -> date | None:
    """When somebody's next full audiogram is due, by the older ear; None: one is missing."""
    refresh(store)
    day = store.full_day(person_id)
    interval = timedelta(days=int(site_settings(store)["test_interval_days"].value))
    return None if day is None else date.fromordinal(day) + interval


def ears_meant(exam: ExamRecord, ears: Collection[str]) -> tuple[str, ...]:
    """The ears that a word on an exam is about: those named, else all that it tested."""
    if not set(ears) <= set(exam.ears):
        tested = " and ".join(exam.ears)
        raise Refusal(f"an ear is one of the exam's: {tested}", got=" ".join(ears))
    return tuple(ear for ear in exam.ears if ear in ears) or exam.ears


def ears_to_keep(exam: ExamRecord, meant: tuple[str, ...]) -> str:
    """As the store keeps them: nothing where a word is about the whole exam."""
    return "" if meant == exam.ears else " ".join(meant)


def closed_ears(store: Store, exam: ExamRecord) -> dict[str, Closing]:
    """The ears of an exam of which nothing more has to be done, each with who said so."""
    return _closed_ears(exam, store.closings(exam.id))


def _closed_ears(exam: ExamRecord, closings: Sequence[Closing]) -> dict[str, Closing]:
    said = {ear: one for one in closings for ear in (one.ears.split() or exam.ears)}
    return {ear: one for ear, one in said.items() if one.closed}


def _last(closings: Sequence[Closing]) -> int:
    """The last word on a verdict: whoever says the next one must have known it."""
    return closings[-1].id if closings else 0


def close_verdict(
    store: Store, exam_id: int, *, author: str, reason: str, ears: Collection[str] = ()
) -> Closing:
    """A reviewer's word that nothing more has to be done about the verdict of a finished test, or
    about what it says of these ears."""
    if not reason.strip():
        raise Refusal("closing a verdict needs a reason")
    exam = store.exam(exam_id)
    meant = ears_meant(exam, ears)
    if exam.state != "done":
        raise Conflict(f"{{exam}} is {exam.state} and has no verdict to close", exam=exam_id)
    said = store.closings(exam_id)
    if set(meant) <= set(_closed_ears(exam, said)):
        raise Conflict("the verdict of {exam} is closed already", exam=exam_id)
    kept, last = ears_to_keep(exam, meant), _last(said)
    return store.close_verdict(exam_id, author=author, reason=reason, ears=kept, after=last)


def reopen_verdict(
    store: Store, exam_id: int, *, author: str, reason: str, ears: Collection[str] = ()
) -> Closing:
    """Take a closing back: the verdict calls for what it called for before."""
    if not reason.strip():
        raise Refusal("reopening a verdict needs a reason")
    exam = store.exam(exam_id)
    meant = ears_meant(exam, ears)
    said = store.closings(exam_id)
    if not set(meant) & set(_closed_ears(exam, said)):
        raise Conflict("the verdict of {exam} is not closed", exam=exam_id)
    kept, last = ears_to_keep(exam, meant), _last(said)
    return store.close_verdict(
        exam_id, author=author, reason=reason, closed=False, ears=kept, after=last
    )


def devices_to_see_to(store: Store, today: date) -> list[DeviceToday]:
    """Devices that are blocked, expired or not checked today."""
    devices = [device_today(store, device, today) for device in store.devices()]
    return [device for device in devices if device.needs_attention]
