"""What is kept: plain records that the store writes and reads, and that reports and exports show.

Nothing here computes or knows a database. All times are UTC with their zone attached; what a person
or a deadline needs in local time is worked out from the visit's zone.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, NamedTuple, TypeVar

from earshift.acts import RoomNoise, ShiftFinding, Signature
from earshift.days import local_day
from earshift.engine.values import BOTH, EARS, HEARING_LEVEL, RELATIVE_LEVEL

T = TypeVar("T")

TRIAL_KINDS = ("tone", "catch", "practice")
EXAM_KINDS = ("exam", "screen", "audiogram")  # an audiogram is imported or typed in: no trials
EXAM_STATES = ("open", "paused", "done", "abandoned")
VISIT_MODES = ("supervised", "self", "simulated", "imported")


@dataclass(frozen=True)
class Person:
    """Somebody's identity. `code` is the clinic's own number; all but the id may be missing.

    After an erasure only the id is left and `erased_at` says when.
    """

    id: int
    code: str | None = None
    """The clinic's own number for this person, nobody else's."""
    name: str | None = None
    birth_date: date | None = None
    sex: str | None = None
    created_at: datetime | None = None
    """When the person was first stored, UTC."""
    erased_at: datetime | None = None
    """When the identity was erased, UTC; None while it is known."""
    department: str | None = None
    job: str | None = None
    hired_on: date | None = None
    """First day at work; exposure to noise counts from here."""
    left_on: date | None = None
    """Last day at work; None for who is still there."""
    merged_into: int | None = None
    """Id of the record that this person goes by: this one is another record of the same person."""


@dataclass(frozen=True)
class Device:
    """An audiometer or a sound card with its transducer; one calibrated unit.

    A device that plays through a browser has a `fingerprint`: browser, system, sample rate,
    earphones, connection, volume. Another fingerprint is another device.
    """

    id: int
    name: str
    """What the clinic calls it, such as "booth 1"."""
    transducer: str = "unknown"
    """One of `earshift.engine.values.TRANSDUCERS`."""
    model: str = ""
    serial: str = ""
    fingerprint: dict[str, Any] = field(default_factory=dict)
    """Of a device that plays through a browser; empty for an audiometer by hand."""


@dataclass(frozen=True)
class Calibration:
    """One calibration of a device. A table that names no coupler is no calibration."""

    id: int
    device_id: int
    done_on: date
    """The local day it was made."""
    due_on: date
    """The last day it is good for."""
    laboratory: str
    """Who made it; of a biological check, whose ears."""
    coupler: str
    """What the earphone was measured on, such as "IEC 60318-1"."""
    kind: str = "acoustic"
    """acoustic, exhaustive, or biological: a daily check with a known listener's ears."""
    table: dict[str, Any] = field(default_factory=dict)
    """What was measured: sound pressure at full scale in dB SPL and RETSPL for each ear and
    frequency, or the deviations of a biological check in dB."""


@dataclass(frozen=True)
class Visit:
    """One visit of one person: when, where, how, with what."""

    id: int
    person_id: int
    started_at: datetime
    """UTC"""
    zone: str
    """IANA name of the site's time zone: it says which local day the visit was on."""
    mode: str
    """One of VISIT_MODES: who presents the tones and takes the answers."""
    author: str
    """Who opened it."""
    device_id: int | None = None
    """What the tones are played on; None for a device that is not listed."""
    checklist: dict[str, Any] = field(default_factory=dict)
    """What was checked before: quiet hours, otoscopy, instruction and the like."""


@dataclass(frozen=True)
class ExamRecord:
    """An exam, screen or imported audiogram of one ear, or an exam or screen of both.

    `design` is what `Exam.to_dict()["design"]` (or `Screen`'s, or an `Audiogram`'s data) says;
    design and live trials rebuild the exam.
    """

    id: int
    visit_id: int
    ear: str
    """One of `earshift.engine.values.EARS`, or "both" of one sitting of both."""
    kind: str
    """One of EXAM_KINDS."""
    state: str
    """One of EXAM_STATES, the newest."""
    design: dict[str, Any]
    """All settings that the exam or screen is rebuilt from, its seed and reference included."""
    engine_version: str
    """The version of earshift that opened it."""
    reference_exam_id: int | None = None
    """Of a screen: the exam or audiogram it is compared with; of both ears see `references`."""
    measured_at: datetime | None = None
    """Of an imported audiogram: when it was taken, UTC; None if nobody knows."""
    source: str = ""
    """Of an imported audiogram: file, system, method."""
    delivery: dict[str, Any] = field(default_factory=dict)
    """How it is given: `earshift.devices.delivery.Delivery.to_dict()`."""

    @property
    def unit(self) -> str:
        """The unit of its levels."""
        domain = self.design.get("domain")
        return HEARING_LEVEL if domain is None else str(domain["intensity"]["unit"])

    @property
    def ears(self) -> tuple[str, ...]:
        """The ears that it tests."""
        return EARS if self.ear == BOTH else (self.ear,)

    @property
    def references(self) -> dict[str, int]:
        """Of a screen: the exam or audiogram that each ear is compared with."""
        if self.ear == BOTH:
            return dict(self.delivery.get("references") or {})
        return {} if self.reference_exam_id is None else {self.ear: self.reference_exam_id}

    def of(self, ear: str) -> "ExamRecord":
        """What it says of one of its ears: the same exam, with that ear and its reference.

        The design is that of the sitting, which both ears' trials rebuild.
        """
        return replace(self, ear=ear, reference_exam_id=self.references.get(ear))

    @property
    def continues(self) -> int | None:
        """Of a full exam that goes on from a screen: the screen's id."""
        return self.delivery.get("continues")

    @property
    def relative(self) -> bool:
        """Whether its levels are those of an uncalibrated device, and so no dB HL."""
        return self.unit == RELATIVE_LEVEL


def measured_at(exam: ExamRecord, visit: Visit) -> datetime | None:
    """When the ear was measured; None for an audiogram that came without a date."""
    if exam.measured_at is None and exam.kind != "audiogram":
        return visit.started_at
    return exam.measured_at


def measured_on(exam: ExamRecord, visit: Visit) -> date | None:
    """The local day on which the ear was measured, or None as above."""
    at = measured_at(exam, visit)
    return None if at is None else local_day(at, visit.zone)


def measured_or_entered_at(exam: ExamRecord, visit: Visit) -> datetime:
    """When the ear was measured, or when an audiogram without a date was entered.

    For putting records in order, never for saying a date.
    """
    return measured_at(exam, visit) or visit.started_at


def in_order(
    tests: Iterable[T], place: Callable[[T], tuple[int, date, bool]]
) -> list[tuple[date, T]]:
    """Tests as they followed each other, whatever the clock said meanwhile, each with its day.

    `place` gives a test's row, its local day, and whether it was done or entered here. What happens
    here follows in the order of its rows: after a clock was put back, a test still comes after
    those before it. What was measured elsewhere stands by its day.
    """
    placed = sorted(((place(test), test) for test in tests), key=lambda one: one[0][0])
    latest, days = date.min, []
    for number, ((_, day, here), _) in enumerate(placed):
        latest = max(latest, day) if here else latest
        days.append((latest if here else day, number))
    return [(day, placed[number][1]) for day, number in sorted(days)]


def visit_day(visit: Visit) -> date:
    """The local day of a visit."""
    return local_day(visit.started_at, visit.zone)


@dataclass(frozen=True)
class TrialRecord:
    """One presentation and its answer. A voided one stays, and counts for nothing."""

    id: int
    exam_id: int
    number: int
    """1, 2, ... in the order of presentation, those that were voided included."""
    kind: str
    """One of TRIAL_KINDS; practice never enters the likelihood."""
    ear: str
    frequency_hz: float
    asked_db_hl: float | None
    """The level that was asked for, in dB HL or in the exam's relative dB; of a catch trial none"""
    played_db_hl: float | None
    """The level that was played, in the same unit: this one counts."""
    heard: bool
    at: datetime
    """When it was answered, UTC."""
    author: str
    """Who answered or took the answer down."""
    reaction_ms: float | None = None
    """From the onset of the tone to the press, in milliseconds."""
    voided_at: datetime | None = None
    """When it was taken back, UTC; None while it counts."""
    voided_by: str | None = None
    void_reason: str | None = None


@dataclass(frozen=True)
class Press:
    """A press of the button outside every response window: an answer to silence."""

    id: int
    exam_id: int
    number: int
    """Of the presentation it came in or before."""
    at: datetime
    """UTC"""
    author: str
    after_onset_ms: float | None = None
    """Milliseconds after the onset of that tone, negative before it; None before the first."""


class TrialCounts(NamedTuple):
    """How many trials an exam has and how many of them are void.

    Every answer makes the first one larger and every answer that is taken back the second, so that
    the pair says whether a program still knows the exam that it is about to answer.
    """

    trials: int
    void: int


@dataclass(frozen=True)
class ExamSnapshot:
    """All that a session of an exam is made from, of one moment."""

    exam: ExamRecord
    trials: tuple[TrialRecord, ...]
    """In order of presentation, those that were taken back included."""
    presses: int
    """Presses of the button outside every response window."""
    carried: tuple[TrialRecord, ...]
    """Of a full exam that goes on from a screen: the screen's trials."""
    opened_after: int
    """How many trials there were when it was begun, or resumed after a break."""
    of_visit: tuple[int, ...]
    """Ids of the visit's exams that have trials, this one among them, in the order they began."""
    reason: str
    """Why it is in the state it is in, as it was said then."""
    version: int
    """How many rows make up the exam. Rows are only added, so that every change shows."""

    @property
    def counts(self) -> TrialCounts:
        """What the next answer is an answer to."""
        void = sum(trial.voided_at is not None for trial in self.trials)
        return TrialCounts(len(self.trials), void)

    @property
    def states(self) -> int:
        """How often the exam was opened, set aside and gone on with."""
        return self.version - sum(self.counts) - self.presses


@dataclass(frozen=True)
class Baseline:
    """The exam that an ear is compared with from then on, and who chose it and why."""

    id: int
    person_id: int
    ear: str
    """One of `earshift.engine.values.EARS`."""
    exam_id: int
    """The full exam or audiogram that was chosen."""
    at: datetime
    """When it was chosen, UTC."""
    author: str
    reason: str


@dataclass(frozen=True)
class SiteSetting:
    """A setting as somebody chose it."""

    id: int
    name: str
    value: Any
    at: datetime
    """UTC"""
    author: str
    reason: str


@dataclass(frozen=True)
class StoredTest:
    """A real exam, screen or audiogram with all that the worklist goes by."""

    id: int
    ear: str
    kind: str
    """One of EXAM_KINDS."""
    state: str
    day: date | None
    """The local day on which the ear was measured; None for an audiogram without a date."""
    entered: tuple[date, int]
    """The day it was measured or entered, and its id: puts tests in order."""
    design: dict[str, Any]
    shown: dict[str, Any] | None
    """The newest result as it was shown."""
    reference_exam_id: int | None
    closed: bool
    """Whether a reviewer has closed its verdict."""
    visit_id: int = 0
    signed: bool = False
    """Whether a reviewer has signed its visit."""
    shift_since: date | None = None
    """Day on which it was first signed as a shift; None where it was not, or is no more."""
    letter_sent: bool = False
    """Whether the person was told of what the visit found."""
    known_at: datetime | None = None
    """When it was begun or entered here, UTC: baselines that were chosen before count for it."""


class ChosenBaseline(NamedTuple):
    """The exam that somebody chose as an ear's baseline, and when, UTC."""

    exam_id: int
    at: datetime


@dataclass(frozen=True)
class HistoryOfTests:
    """Somebody's tests in the order they were measured, and the baselines that were chosen."""

    person: Person
    tests: tuple[StoredTest, ...]
    baselines: dict[str, tuple[ChosenBaseline, ...]]
    """Of each ear in the order they were chosen; an ear without one goes by its oldest."""


@dataclass(frozen=True)
class Task:
    """Something that an exam calls for. Days are those of `date.toordinal`."""

    why: str
    ears: str
    day: int
    """Of the exam."""
    exam_id: int


@dataclass(frozen=True)
class DoneTest:
    """A finished test of one ear."""

    exam_id: int
    ear: str
    day: int
    complete: bool
    """Whether it has thresholds in dB HL at all six frequencies."""
    shift: str
    """waiting, confirmed or not confirmed where a shift was found; else empty."""


@dataclass(frozen=True)
class Standing:
    """What somebody's tests come to. A day of None says that an ear was never tested so."""

    full_day: int | None
    """The older one of both ears' newest full audiograms."""
    full_ears: str
    """Whose that is, or the ears that have none."""
    any_day: int | None
    """The same for tests of any kind."""
    any_ears: str
    tasks: tuple[Task, ...] = ()
    tested: tuple[DoneTest, ...] = ()


@dataclass(frozen=True)
class WorkRow:
    """A line of the worklist as it is stored, before anybody's windows are added."""

    person_id: int
    why: str
    ears: str
    day: int
    """When the window began: the day of an exam or the last test, or the first day at work."""
    exam_id: int | None
    code: str | None
    name: str | None
    department: str | None
    job: str | None


@dataclass(frozen=True)
class ResultRecord:
    """What was shown at the end of an exam, word for word; never recomputed.

    `shown` holds: `verdict` (Verdict.to_dict(), screens only), `words` (the verdict's sentence),
    `rule` (Rule.to_dict() or None), `thresholds` and `reference_thresholds` (lists of
    Threshold as dicts, with the band), and `tones` (how many were answered). Of both ears in one
    sitting it holds what is said of the person, and under `ears` all of the above for each ear.
    """

    id: int
    exam_id: int
    at: datetime
    """UTC"""
    author: str
    shown: dict[str, Any]
    """As above; the same as `earshift.clinic.view.ExamView.to_result()` gave then."""
    settings: dict[str, Any]
    """The exam's whole design when the result was made."""
    engine_version: str
    """The version of earshift that made it."""
    trials_sha256: str
    """Fingerprint of the trials it was made from."""

    def of(self, ear: str) -> "ResultRecord":
        """What it says of one ear."""
        return replace(self, shown=shown_of(self.shown, ear))


def shown_of(shown: dict[str, Any], ear: str) -> dict[str, Any]:
    """What a stored result says of one of the exam's ears."""
    ears: dict[str, dict[str, Any]] = shown.get("ears") or {}
    return ears.get(ear, shown)


@dataclass(frozen=True)
class Note:
    """Free text about a person, a visit or an exam."""

    id: int
    person_id: int
    at: datetime
    """UTC"""
    author: str
    text: str
    visit_id: int | None = None
    """Of a note about one visit, or about an exam of it."""
    exam_id: int | None = None
    """Of a note about one exam."""


@dataclass(frozen=True)
class AuditEntry:
    """Who did what to which row, when and why."""

    id: int
    at: datetime
    author: str
    action: str
    """add, void, correct, view, sign in and the like."""
    subject: str
    """Which row: table:id."""
    reason: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    """What else there is to know, never a name."""


@dataclass(frozen=True)
class ExamBundle:
    """An exam with all that belongs to it, for a report or an export."""

    exam: ExamRecord
    trials: tuple[TrialRecord, ...] = ()
    """In order, voided ones flagged."""
    results: tuple[ResultRecord, ...] = ()
    """Newest last."""
    reference: ExamRecord | None = None
    """Of a screen of one ear: what it was compared with."""
    references: tuple[ExamRecord, ...] = ()
    """Of a screen of both ears: what they were compared with."""

    def by_ear(self) -> tuple["ExamBundle", ...]:
        """Of both ears, what belongs to each; of one ear, the exam as it is."""
        if self.exam.ear != BOTH:
            return (self,)
        known = {one.id: one for one in self.references}
        return tuple(
            ExamBundle(
                exam=self.exam.of(ear),
                trials=tuple(trial for trial in self.trials if trial.ear == ear),
                results=tuple(result.of(ear) for result in self.results),
                reference=known[number].of(ear) if number in known else None,
            )
            for ear in EARS
            for number in (self.exam.references.get(ear, 0),)
        )


@dataclass(frozen=True)
class VisitBundle:
    """A whole visit: the input of a report and of the exports."""

    person: Person
    visit: Visit
    exams: tuple[ExamBundle, ...]
    device: Device | None = None
    calibration: Calibration | None = None
    """Of the device: the one in force on the day of the visit."""
    notes: tuple[Note, ...] = ()
    """About the visit and its exams, oldest first."""
    room_noise: RoomNoise | None = None
    """Where it was: the newest measurement of that day or before."""
    findings: tuple[ShiftFinding, ...] = ()
    """Of its full audiograms against the baselines, where the clinic has worked them out."""
    signatures: tuple[Signature, ...] = ()
    """Of whoever signed the visit, newest last; the rest is then what the newest one is of."""
    seal: str = ""
    """Head of the chain when it was signed: printed, it proves that nothing before was changed."""

    @property
    def of_ears(self) -> tuple[ExamBundle, ...]:
        """Its exams ear by ear: one of both ears is two."""
        return tuple(part for one in self.exams for part in one.by_ear())


@dataclass(frozen=True)
class ImportedAudiogram:
    """One ear's audiogram from elsewhere, ready to be stored as a reference.

    `code` finds the person or names a new one. `audiogram` is `Audiogram.to_dict()`'s data.
    """

    code: str
    """The clinic's number of the person."""
    ear: str
    """One of `earshift.engine.values.EARS`."""
    audiogram: dict[str, Any]
    """Thresholds in dB HL by frequency in Hz, and where nothing was heard."""
    measured_at: datetime | None = None
    """UTC; unknown in many research files."""
    source: str = ""
    """File, system, method."""
    name: str | None = None
    birth_date: date | None = None
    sex: str | None = None
    row: int = field(default=0, compare=False)
    """Of the file that it came from; 0 if it came from none."""
