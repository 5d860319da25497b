"""What is kept: plain records that the store writes and reads, and that reports and exports show.

Nothing here computes or knows a database. All times are UTC with their zone attached; what a person
or a deadline needs in local time is worked out from the visit's zone.
"""

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, NamedTuple

from earshift.days import local_day
from earshift.engine.values import HEARING_LEVEL, RELATIVE_LEVEL

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
    name: str | None = None
    birth_date: date | None = None
    sex: str | None = None
    created_at: datetime | None = None
    erased_at: datetime | None = None


@dataclass(frozen=True)
class Device:
    """An audiometer or a sound card with its transducer; one calibrated unit.

    A device that plays through a browser has a `fingerprint`: browser, system, sample rate,
    earphones, connection, volume. Another fingerprint is another device.
    """

    id: int
    name: str
    transducer: str = "unknown"  # one of TRANSDUCERS
    model: str = ""
    serial: str = ""
    fingerprint: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Calibration:
    """One calibration of a device. A table that names no coupler is no calibration."""

    id: int
    device_id: int
    done_on: date
    due_on: date
    laboratory: str
    coupler: str
    kind: str = "acoustic"  # acoustic, exhaustive or biological
    table: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Visit:
    """One sitting of one person: when, where, how, with what."""

    id: int
    person_id: int
    started_at: datetime
    zone: str  # IANA name of the site's time zone
    mode: str  # one of VISIT_MODES
    author: str
    device_id: int | None = None
    checklist: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExamRecord:
    """One ear's exam, screen or imported audiogram.

    `design` is what `Exam.to_dict()["design"]` (or `Screen`'s, or an `Audiogram`'s data) says;
    design and live trials rebuild the exam.
    """

    id: int
    visit_id: int
    ear: str  # one of EARS
    kind: str  # one of EXAM_KINDS
    state: str  # one of EXAM_STATES
    design: dict[str, Any]
    engine_version: str
    reference_exam_id: int | None = None
    measured_at: datetime | None = None  # of an imported audiogram: when it was taken
    source: str = ""  # of an imported audiogram: file, system, method
    delivery: dict[str, Any] = field(default_factory=dict)  # how it was given: delivery.Delivery

    @property
    def unit(self) -> str:
        """The unit of its levels."""
        domain = self.design.get("domain")
        return HEARING_LEVEL if domain is None else str(domain["intensity"]["unit"])

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


@dataclass(frozen=True)
class TrialRecord:
    """One presentation and its answer. A voided one stays, and counts for nothing."""

    id: int
    exam_id: int
    number: int  # 1, 2, ... in the order of presentation, voided ones included
    kind: str  # one of TRIAL_KINDS; practice never enters the likelihood
    ear: str
    frequency_hz: float
    asked_db_hl: float | None  # of a catch trial: none
    played_db_hl: float | None
    heard: bool
    at: datetime
    author: str
    reaction_ms: float | None = None
    voided_at: datetime | None = None
    voided_by: str | None = None
    void_reason: str | None = None


@dataclass(frozen=True)
class Press:
    """A press of the button outside every response window: an answer to silence."""

    id: int
    exam_id: int
    number: int  # of the presentation it came in or before
    at: datetime
    author: str
    after_onset_ms: float | None = None  # none before the first tone


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
    opened_at: datetime | None
    """When it was begun, or gone on with after a break; an audiogram never was."""
    of_visit: tuple[int, ...]
    """Ids of the visit's exams that have trials, this one among them, in the order they began."""
    version: int
    """How many rows make up the exam. Rows are only added, so that every change shows."""

    @property
    def counts(self) -> TrialCounts:
        """What the next answer is an answer to."""
        void = sum(trial.voided_at is not None for trial in self.trials)
        return TrialCounts(len(self.trials), void)


@dataclass(frozen=True)
class Baseline:
    """The exam that an ear is compared with from then on, and who chose it and why."""

    id: int
    person_id: int
    ear: str  # one of EARS
    exam_id: int
    at: datetime
    author: str
    reason: str


@dataclass(frozen=True)
class ResultRecord:
    """What was shown at the end of an exam, word for word; never recomputed.

    `shown` holds: `verdict` (Verdict.to_dict(), screens only), `words` (the verdict's sentence),
    `rule` (Rule.to_dict() or None), `thresholds` and `reference_thresholds` (lists of
    Threshold as dicts, with the band), and `tones` (how many were answered).
    """

    id: int
    exam_id: int
    at: datetime
    author: str
    shown: dict[str, Any]
    settings: dict[str, Any]  # the exam's whole design when the result was made
    engine_version: str
    trials_sha256: str


@dataclass(frozen=True)
class Note:
    """Free text about a person, a visit or an exam."""

    id: int
    person_id: int
    at: datetime
    author: str
    text: str
    visit_id: int | None = None
    exam_id: int | None = None


@dataclass(frozen=True)
class AuditEntry:
    """Who did what to which row, when and why."""

    id: int
    at: datetime
    author: str
    action: str
    subject: str  # table:id
    reason: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExamBundle:
    """An exam with all that belongs to it, for a report or an export."""

    exam: ExamRecord
    trials: tuple[TrialRecord, ...] = ()
    results: tuple[ResultRecord, ...] = ()
    reference: ExamRecord | None = None


@dataclass(frozen=True)
class VisitBundle:
    """A whole visit: the input of a report and of the exports."""

    person: Person
    visit: Visit
    exams: tuple[ExamBundle, ...]
    device: Device | None = None
    calibration: Calibration | None = None  # the one in force at the visit
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True)
class ImportedAudiogram:
    """One ear's audiogram from elsewhere, ready to be stored as a reference.

    `code` finds the person or names a new one. `audiogram` is `Audiogram.to_dict()`'s data.
    """

    code: str
    ear: str  # one of EARS
    audiogram: dict[str, Any]
    measured_at: datetime | None = None  # unknown in many research files
    source: str = ""  # file, system, method
    name: str | None = None
    birth_date: date | None = None
    sex: str | None = None
