"""What goes over the wire about review: findings, signatures, follow-ups, room noise."""

from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import Field

from earshift.web.live_models import ShiftShown
from earshift.web.models import Answer, Ear, ExamSummary, Id, Input, Line, Person, Words

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Meaning = Literal["reviewed", "approved", "responsible for the result"]
FollowUpKind = Literal["letter", "protector", "training", "referral"]
Band = Annotated[str, Field(pattern=r"^[0-9]{3,4}$")]
NoiseLevel = Annotated[float, Field(ge=-10, le=140, allow_inf_nan=False)]


class FindingShown(Answer):
    """What OSHA's rule says of a full audiogram against its baseline."""

    exam: str
    ear: str
    day: date
    baseline_day: date | None
    decision: str
    shift_db: float | None
    level_db_hl: float | None
    age_db: float | None
    age_counts: bool
    work_related: bool | None
    work_said_by: str
    recordable: bool | None
    closed: bool
    sentences: list[str]


class ReadingShown(Answer):
    frequency_hz: float
    level: float
    low: float | None  # of an audiogram nobody knows the interval
    high: float | None
    censored: str | None  # below, above


class EarCompared(Answer):
    """One ear of a test, beside what it was compared with."""

    exam: str
    ear: str
    kind: str
    unit: str
    on: date | None
    thresholds: list[ReadingShown]
    tested_hz: list[float] | None  # null: all
    reference: list[ReadingShown]  # of a full audiogram the baseline
    reference_on: date | None
    reference_tested_hz: list[float] | None
    shifts: list[ShiftShown]


class SignatureShown(Answer):
    name: str
    meaning: str
    author: str
    at: datetime
    sha256: str
    amends: str | None  # the hash of the signature before it


class FollowUpShown(Answer):
    kind: str
    done_on: date
    done_by: str
    details: str
    author: str
    at: datetime


class VisitReview(Answer):
    """A visit as somebody's file lists it."""

    visit: str
    on: date
    findings: list[FindingShown]
    signature: SignatureShown | None  # the newest
    follow_ups: list[FollowUpShown]


class ClosedEar(Answer):
    """A verdict on an ear of which a reviewer said that nothing more has to be done."""

    exam: str
    ear: str
    author: str
    at: datetime
    reason: str


class ReviewShown(Answer):
    """A visit as a reviewer sees it."""

    person: Person
    on: date
    exams: list[ExamSummary]
    ears: list[EarCompared]
    cautions: list[str]  # what the checklist says against the results
    findings: list[FindingShown]
    room_noise: str | None
    signatures: list[SignatureShown]  # newest last
    follow_ups: list[FollowUpShown]
    seen: str  # the hash of what a signature would be of now
    changed_since: bool  # something was stored after the newest signature
    obstacle: str  # why it cannot be signed
    letter: bool  # a standard threshold shift was signed
    letter_by: date | None
    sender: str  # the site's name, as the letter has it
    closed: list[ClosedEar]


class NewSignature(Input):
    name: Name
    meaning: Meaning
    seen: Sha256
    amends: Sha256 | None = None
    reason: Annotated[str, Field(max_length=4000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]*$")] = ""
    password: Annotated[str, Field(max_length=1000)] = ""
    """The signer's own, typed for this signature; a single user has none."""
    code: Annotated[str, Field(max_length=60)] = ""


class NewFollowUp(Input):
    kind: FollowUpKind
    done_on: date
    done_by: Name
    details: Line = ""
    done: bool = True


class NewWorkRelation(Input):
    related: bool | None
    ears: Annotated[tuple[Ear, ...], Field(max_length=2)] = ()  # of the exam's; none: all of them
    name: Name
    reason: Words


class NoiseChecked(Answer):
    words: str
    too_loud: bool


class NoiseShown(Answer):
    measured_on: date
    device: str | None
    room: str
    instrument: str
    levels: dict[str, float]
    checks: list[NoiseChecked]  # for each kind of earphones with a limit, or its device's
    author: str


class NewNoise(Input):
    measured_on: date
    device: Id | None = None
    room: Line = ""
    instrument: Line = ""
    levels: Annotated[dict[Band, NoiseLevel], Field(min_length=1, max_length=7)]
