"""What goes over the wire: the API's inputs, each checked, and its answers.

Ids are the random ones of the store's handles. What is not known is null.
"""

from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

# Text that both databases can hold, in one line or several.
Line = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Words = Annotated[
    str, Field(min_length=1, max_length=4000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]+$")
]
Id = Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[A-Za-z0-9_-]+$")]
Ear = Literal["right", "left"]
Hertz = Annotated[str, Field(pattern=r"^[0-9]{2,5}(\.[0-9]{1,3})?$")]
Decibels = Annotated[float, Field(ge=-200, le=200, allow_inf_nan=False)]
Level = Annotated[float, Field(ge=-20, le=130, allow_inf_nan=False)]


def _each_once(values: dict[str, float]) -> dict[str, float]:
    if len({float(frequency) for frequency in values}) < len(values):
        raise ValueError("a frequency is given twice")
    return values


ByFrequency = Annotated[dict[Hertz, Decibels], Field(max_length=60), AfterValidator(_each_once)]
Thresholds = Annotated[dict[Hertz, Level], Field(max_length=30), AfterValidator(_each_once)]
Milliseconds = Annotated[float, Field(ge=0, le=600_000, allow_inf_nan=False)]
TrialId = Annotated[int, Field(ge=1, le=10**12)]
Sex = Literal["female", "male", "other", "unknown"]


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Answer(BaseModel):
    model_config = ConfigDict(from_attributes=True)


# People


class PersonSearch(Input):
    text: Line | None = None
    after: Id | None = None


class NewPerson(Input):
    code: Line | None = None
    name: Line | None = None
    birth_date: date | None = None
    sex: Sex | None = None
    department: Line | None = None
    job: Line | None = None
    hired_on: date | None = None
    left_on: date | None = None


class PersonCorrection(NewPerson):
    reason: Words


class NewNote(Input):
    text: Words


class NewAudiogram(Input):
    """A reference typed in from paper."""

    ear: Ear
    measured_on: date | None = None
    thresholds: Thresholds = {}
    no_response: Thresholds = {}
    source: Line = ""


class Person(Answer):
    id: str
    code: str | None
    name: str | None
    birth_date: date | None
    sex: str | None
    erased: bool
    department: str | None
    job: str | None
    hired_on: date | None
    left_on: date | None
    merged_into: str | None  # the record that this person goes by


class People(Answer):
    people: list[Person]
    next: str | None


class NoteShown(Answer):
    at: datetime
    author: str
    text: str


class ExamSummary(Answer):
    id: str
    visit: str
    ear: str
    kind: str  # exam, screen, audiogram
    state: str  # open, paused, done, abandoned
    measured_on: date | None
    mode: str
    rule: str | None
    decision: str | None
    next_step: str | None  # of a screen that decided nothing: more tones, better reference, retest
    words: str | None
    sentence: str | None  # the verdict in one sentence; of older results all of its words
    p_changed: float | None
    tones: int | None
    source: str
    sound: str  # calibrated, relative, external, imported, simulated
    device: str | None


class HistoryPoint(Answer):
    on: date | None
    exam: str
    kind: str
    unit: str
    thresholds: dict[str, float]  # where tones were given
    intervals: dict[str, tuple[float, float]]  # of these, where known: 95 %
    no_response: dict[str, float]  # the level up to which nothing was heard
    p_changed: float | None
    decision: str | None


class EarBaseline(Answer):
    """What the next screen of an ear is compared with."""

    exam: str | None
    chosen_by: str | None  # nobody chose: the oldest counts
    reason: str | None


class OccasionShown(Answer):
    exam: str
    kind: str
    on: date
    against: str | None
    rule: str | None
    decision: str | None
    p_changed: float | None
    shifts_db: dict[str, float]
    note: str


class EarMonitored(Answer):
    """An ear over time against its baseline, and whether that is to be revised."""

    baseline: EarBaseline
    occasions: list[OccasionShown]
    proposal: str | None  # for a professional to judge
    proposed_exam: str | None


class NewBaseline(Input):
    ear: Ear
    exam: Id
    reason: Words


class ReferenceChoice(Answer):
    """A full exam or audiogram that a new screen may be compared with, or why not."""

    exam: str
    kind: str  # exam, audiogram
    measured_on: date | None
    source: str
    baseline: bool  # the ear's baseline: chosen by a professional, or the oldest usable one
    default: bool  # what is taken when none is named
    reason: str | None  # why it cannot be chosen
    caution: str | None  # what to know before choosing it


class ReferenceChoices(Answer):
    """By ear: the default one first, then the others that may be chosen, then the rest."""

    device: str | None  # one whose levels are relative; null: any device in dB HL, or none
    ears: dict[str, list[ReferenceChoice]]


class LastTest(Answer):
    """How somebody was tested last, to be tested so again."""

    on: date
    kind: str
    ears: list[str]
    rule: str | None
    notch: bool
    device: str | None
    mode: str
    answered_by: str


class PersonFile(Person):
    last_test: LastTest | None
    next_due: date | None  # of the next full audiogram; null: an ear has none yet
    kept_until: date | None  # by rule and site; null while employed, or erased
    others: list[Person]  # other records of the same person
    exams: list[ExamSummary]
    baselines: dict[str, EarBaseline]
    references: list[ReferenceChoices]
    notes: list[NoteShown]
    history: dict[str, list[HistoryPoint]]


class NeededReason(Input):
    reason: Words


class Merging(Input):
    """Another record of the same person, whose visits are this one's from then on."""

    other: Id
    reason: Words


# Devices


class Fingerprint(Input):
    """What makes a browser's sound this device's and no other's."""

    browser: Line
    system: Line
    sample_rate: Annotated[float, Field(ge=8000, le=400_000)]
    channels: Annotated[int, Field(ge=1, le=64)]
    earphones: Line
    connection: Literal["wired", "bluetooth", "usb", "unknown"]
    volume: Line
    installation: Line = ""


class NewDevice(Input):
    name: Annotated[Line, Field(min_length=1)]
    transducer: Literal["supra-aural", "circumaural", "insert", "unknown"] = "unknown"
    model: Line = ""
    serial: Line = ""
    fingerprint: Fingerprint | None = None


class NewCalibration(Input):
    """`retspl` is a preset's name or a table; a browser needs it with `full_scale_db_spl`."""

    done_on: date
    due_on: date
    laboratory: Annotated[Line, Field(min_length=1)]
    coupler: Annotated[Line, Field(min_length=1)]
    kind: Literal["acoustic", "exhaustive"] = "acoustic"
    retspl: Line | ByFrequency | None = None
    full_scale_db_spl: dict[Ear, ByFrequency] | None = None
    floor_dbfs: Annotated[float, Field(ge=-140, lt=-20)] = -90.0


class NewCheck(Input):
    """A daily check: how far today's thresholds of a known listener are from their usual ones."""

    listener: Annotated[Line, Field(min_length=1)]
    deviations_db: dict[Ear, ByFrequency]


class DefaultDevice(Input):
    default: bool = True


class CalibrationShown(Answer):
    state: str
    done_on: date | None
    due_on: date | None
    laboratory: str | None
    coupler: str | None
    kind: str | None


class DailyCheck(Answer):
    state: str  # done, missing, failed, needs calibration
    on: date | None


class Device(Answer):
    id: str
    name: str
    transducer: str
    model: str
    serial: str
    fingerprint: dict[str, Any]
    sound: str  # external, relative, calibrated
    unit: str  # dB HL or relative dB
    answered_by: list[str]  # examiner, listener: who can answer a test on it
    calibration: CalibrationShown
    daily_check: DailyCheck
    blocked: str | None
    default: bool  # what the site uses unless another is chosen
    in_order: bool
    warnings: list[str]  # what the examiner should know before a test today


class RetsplShown(Answer):
    name: str
    earphone: str
    coupler: str
    status: str
    source: str
    values: dict[str, float]


class RuleShown(Answer):
    name: str
    text: str
    source: str
    unverified: str | None


# Tests


class TimingAsked(Input):
    """Milliseconds; what is left out is as usual."""

    pulses: Annotated[int, Field(ge=1, le=10)] = 3
    pulse_ms: Milliseconds = 225
    pause_ms: Milliseconds = 225
    ramp_ms: Annotated[float, Field(ge=20, le=50)] = 35
    window_opens_ms: Milliseconds = 100
    window_closes_ms: Milliseconds = 2000
    gap_min_ms: Milliseconds = 1000
    gap_max_ms: Milliseconds = 2500


class Checklist(Input):
    """What a technician looks at and asks before a test."""

    otoscopy_right: Literal["normal", "wax", "collapsing canal", "other"] | None = None
    otoscopy_left: Literal["normal", "wax", "collapsing canal", "other"] | None = None
    cold_or_earache: bool | None = None
    loud_noise_24h: bool | None = None
    hours_since_noise: Annotated[float, Field(ge=0, le=100_000)] | None = None
    tinnitus: bool | None = None
    better_ear: Literal["right", "left", "same", "unknown"] | None = None
    hearing_aids_out: bool | None = None
    protector: Line | None = None
    room_noise: Literal["quiet", "noisy", "measured ok", "unknown"] | None = None
    examiner_certificate: Line | None = None
    remarks: Words | None = None


class NewTest(Input):
    kind: Literal["screen", "exam"]
    ears: Annotated[list[Ear | Literal["both"]], Field(min_length=1, max_length=2)]
    rule: Line | None = None
    protocol: Line | None = None
    notch: bool = False  # instead of a rule: is there a notch around 3-6 kHz?
    device: Id | None = None
    mode: Literal["supervised", "self"] = "supervised"
    answered_by: Literal["listener", "examiner"] = "examiner"
    checklist: Checklist = Checklist()
    loud_confirmed: bool = False
    accept_calibration: bool = False
    accept_unverified: bool = False
    practice: bool = True
    reference: dict[Ear, Id] | None = None
    timing: TimingAsked | None = None


class SoundShown(Answer):
    kind: str  # calibrated, relative, external
    unit: str
    device: str
    fingerprint: dict[str, Any] | None
    channel: dict[str, int] = {"left": 0, "right": 1}
    table: dict[str, list[tuple[float, float, float]]] | None
    zero_dbfs: float | None
    floor_dbfs: float
    highest_dbfs: float
    cap_db: float
    cap_db_spl: float | None


class PresentationShown(Answer):
    trial: int
    practice: bool
    ear: str
    frequency_hz: float
    level: float | None
    dbfs: float | None
    gap_ms: int


class ThresholdShown(Answer):
    frequency_hz: float
    level: float
    low: float
    high: float
    censored: str | None  # below, above


class Released(Answer):
    """What the person tested may know of an ear, in plain words, and the audiogram to them."""

    words: str
    decision: str | None
    ear: str
    headline: str
    plain: list[str]  # what was found, how sure that is, what it means, what comes next
    caution: str
    unit: str
    thresholds: list[ThresholdShown]
    reference: list[ThresholdShown]
    tested_hz: list[float]
    reference_tested_hz: list[float]


class Counted(Answer):
    now: int
    of: int


class Progress(Answer):
    answered: int
    at_most: int


class Play(Answer):
    """All that a player needs: what to play now, through what, when, and how loud at most."""

    state: str  # check, held, play, done, over, ended
    held_by_examiner: bool = False
    exam: Counted
    ear: str  # right, left or both; each presentation has its own
    sound: SoundShown
    timing: TimingAsked
    progress: Progress
    presentation: PresentationShown | None
    problem: str | None = None
    released: list[Released] | None = None


class EarOfVisit(Answer):
    ear: str
    exam: str
    kind: str
    state: str


class LinkShown(Answer):
    expires_at: datetime


class Exam(ExamSummary):
    person: Person
    ears_of_visit: list[EarOfVisit]
    answered_by: str
    play: Play | None
    can: list[str]
    link: LinkShown | None
    held: str | None  # why the listener waits for the examiner
    released: bool
    remarks: list[str]
    cautions: list[str]  # what the checklist says against its result


class Test(Answer):
    visit: str
    exams: list[Exam]
    warnings: list[str]


class NewLink(Answer):
    url: str
    qr: list[str]  # its whole address as a QR code: rows of 1 (dark) and 0
    expires_at: datetime


class Release(Input):
    released: bool = True


class Reason(Input):
    reason: Words | None = None


class Undo(Reason):
    trial: TrialId | None = None  # the trial in force when it was decided; another one: no undo


class GivenAnswer(Input):
    trial: TrialId
    heard: bool
    reaction_ms: Milliseconds | None = None


class ExaminersAnswer(GivenAnswer):
    played_db: Level | None = None


class Ready(Input):
    fingerprint: Fingerprint | None = None


class Pressed(Input):
    trial: TrialId
    after_onset_ms: Annotated[float, Field(ge=-600_000, le=600_000)] | None = None


class Stopped(Input):
    trial: TrialId | None = None
    reason: Literal["panic", "pause", "hidden", "device", "interrupted", "error"]


# A simulated person


class Try(Input):
    """A simulated person after so many tones."""

    seed: Annotated[int, Field(ge=0, le=2**31)] = 1
    hearing: Line = "normal"
    change: Line = "none"
    rule: Line = "osha-sts"
    tones: Annotated[int, Field(ge=0, le=30)] = 0


class TryChoices(Answer):
    hearing: list[str]
    change: list[str]
    rules: list[str]
