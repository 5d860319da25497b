"""What people decide, say and sign, as records: closings, merges, signatures, findings; room noise.

Nothing here computes or knows a database. All times are UTC with their zone attached.
"""

from dataclasses import dataclass, field
from datetime import date, datetime

MEANINGS = ("reviewed", "approved", "responsible for the result")  # of a signature
FOLLOW_UPS = ("letter", "protector", "training", "referral")  # after a shift
# Why somebody was erased. No words of anybody's: they would outlive what was erased.
ERASURE_REASONS = ("asked by the person", "no longer needed", "stored by mistake", "other")


@dataclass(frozen=True)
class ShiftFinding:
    """What OSHA's rule says of one ear's full audiogram against its baseline.

    A standard threshold shift is judged at 2000, 3000 and 4000 Hz, with age correction only where
    the site has settled so; whether it is recordable never is corrected for age.
    """

    exam_id: int
    ear: str
    day: date
    """On which the audiogram was taken."""
    baseline_exam_id: int
    baseline_day: date | None
    decision: str
    """changed, unchanged or not determinable, by what counts at the site."""
    shift_db: float | None
    """Mean shift in dB, worse is positive, without age correction; None where one is missing."""
    level_db_hl: float | None
    """Mean threshold now in dB HL, never corrected for age."""
    at_least: bool = False
    """Whether something was not heard at the loudest level: both means are then at least these."""
    age_db: float | None = None
    """Mean of what age alone explains, in dB; None where it cannot be said."""
    age_counts: bool = False
    """Whether the site corrects for age, and this ear could be."""
    age_missing: str = ""
    """Why it cannot be corrected for age."""
    work_related: bool | None = None
    """As a professional said; None: nobody has."""
    work_said_by: str = ""
    recordable: bool | None = None
    """On the 300 log; None: it cannot be said, or waits for the professional's word."""
    closed: bool = False
    """Whether a reviewer has closed the verdict: the shift calls for nothing more."""
    shift_since: date | None = None
    """Of a signed shift: the day on which it was signed first."""
    baseline_db_hl: dict[str, float] = field(default_factory=dict)
    """The baseline's thresholds, by frequency in Hz; missing in what older versions signed."""
    baseline_no_response_db_hl: dict[str, float] = field(default_factory=dict)
    """The loudest level that was not heard at the baseline, where there is no threshold."""
    shifts_db: dict[str, float] = field(default_factory=dict)
    """Shift at each frequency that can be compared, worse is positive, without age correction."""
    at_least_hz: tuple[float, ...] = ()
    """Where nothing is heard any more: the shift is at least this."""

    @property
    def is_shift(self) -> bool:
        """Whether it is a standard threshold shift that stands."""
        return self.decision == "changed" and not self.closed


@dataclass(frozen=True)
class WorkRelation:
    """A professional's word on whether the shift of an exam is related to work."""

    id: int
    exam_id: int
    related: bool | None
    """None: the word was taken back."""
    at: datetime
    """UTC"""
    author: str
    name: str
    """Printed name of the professional."""
    reason: str
    ears: str = ""
    """Which of the exam's ears it is about, such as "left"; empty: all that it tested."""


@dataclass(frozen=True)
class Signature:
    """Who signed a visit, when, and what it means. It stays when the person is erased."""

    id: int
    person_id: int
    visit_id: int
    amends_id: int | None
    """The signature before it, which this one amends."""
    at: datetime
    """UTC"""
    author: str
    """The account that signed."""
    name: str
    """Printed name."""
    meaning: str
    """One of MEANINGS."""
    sha256: str
    """Of what was signed: canonical JSON in UTF-8."""


@dataclass(frozen=True)
class FollowUp:
    """Something that was done because of a shift found on a visit, or was not after all."""

    id: int
    person_id: int
    visit_id: int
    kind: str
    """One of FOLLOW_UPS."""
    done: bool
    """False: it was entered by mistake."""
    done_on: date
    at: datetime
    """When it was entered, UTC."""
    author: str
    done_by: str
    """Who did it."""
    details: str


@dataclass(frozen=True)
class RoomNoise:
    """Background levels of a room by octave band, read from a meter."""

    id: int
    measured_on: date
    device_id: int | None
    """The device that stands there; None for all of the site."""
    room: str
    instrument: str
    levels: dict[str, float]
    """Octave band in Hz to dB SPL."""
    at: datetime
    """When it was entered, UTC."""
    author: str


@dataclass(frozen=True)
class Closing:
    """A reviewer's word on a verdict: nothing more has to be done, or it has after all."""

    id: int
    exam_id: int
    closed: bool
    at: datetime
    """UTC"""
    author: str
    reason: str
    ears: str = ""
    """Which of the exam's ears it is about, such as "left"; empty: all that it tested."""


@dataclass(frozen=True)
class Merge:
    """Two records of one person made one, or two people again where `into_id` is None."""

    id: int
    person_id: int
    """The record that is no longer used by itself."""
    into_id: int | None
    """The record that has its visits as well."""
    at: datetime
    """UTC"""
    author: str
    reason: str
