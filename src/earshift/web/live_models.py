"""What goes over the wire about a test as it runs, and as it ended: verdict, trials, pictures."""

from datetime import datetime

from earshift.web.models import Answer, ThresholdShown


class TrialShown(Answer):
    number: int
    kind: str  # tone, catch, practice
    ear: str
    frequency_hz: float
    level: float | None
    heard: bool
    void: bool
    at: datetime | None


class ProbabilityAt(Answer):
    tone: int
    p: float


class DecisionLimits(Answer):
    """Probabilities at which a screen decides: its Bayes factor at the prevalence it expects."""

    changed_at: float
    unchanged_at: float


class ShiftShown(Answer):
    """Change of a threshold in dB, worse is positive, with its 95 % interval."""

    frequency_hz: float
    shift: float
    low: float
    high: float
    censored: bool


class AmountShown(Answer):
    """What the rule speaks of, such as an average, with its 95 % interval in dB."""

    what: str  # mean, least, most, dip
    frequencies_hz: list[float]
    middle: float
    low: float
    high: float
    rule_db: float
    unit: str  # of thresholds; empty for a shift
    beyond: bool  # it may be any larger


class RuleLine(Answer):
    """From how large a shift on a rule is met at these frequencies; an improvement is negative."""

    frequencies_hz: list[float]
    shift: float
    combine: str  # mean or all


class Live(Answer):
    number: int
    kind: str
    ear: str
    state: str
    unit: str
    rule: str | None
    sentence: str  # a screen's verdict in one sentence; older results and exams have none
    words: str  # all that is said; begins with that sentence
    decision: str | None
    reason: str | None  # why nothing was decided; only of a screen by a rule or for a notch
    next_step: str | None  # more tones, better reference, retest
    reliability: str | None
    attention: float | None  # probability of having been attentive at the last tone
    p_not_listening: float | None  # probability that the answers do not follow the tones
    notes: list[str]
    tones: int
    max_tones: int
    catch_trials: int
    false_alarms: int
    presses: int
    trials: list[TrialShown]
    thresholds: list[ThresholdShown]
    reference: list[ThresholdShown]
    tested_hz: list[float]  # where tones were answered: elsewhere thresholds are inferred
    reference_tested_hz: list[float]
    shifts: list[ShiftShown]  # by frequency; empty where there is no reference
    amount: AmountShown | None  # what the rule speaks of; older results have none
    rule_lines: list[RuleLine]
    p_changed: list[ProbabilityAt]
    limits: DecisionLimits | None
    ears: list["Live"]  # of both ears in one sitting: each one's part, and no picture above
