"""What a screen says: of one ear, and of the person."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from earshift.engine.rules import rule_title
from earshift.engine.values import EARS

FAIR_PRESSES, POOR_PRESSES = 2, 4  # outside every response window: from so many on
NOT_CONVERGED = "The calculation did not converge fully: treat the numbers with caution."
NOTCH = "notch"  # the name of the question about a notch

REASONS = {
    "evidence": "The answers are not enough to decide.",
    "not heard at every frequency": "A tone still has to be heard at every frequency that counts.",
    "listener in doubt": "It is doubtful whether the answers follow the tones.",
    "not reliable": "The answers are not reliable.",
    "computation": "The calculation did not converge.",
}
NEXT_STEPS = {
    "more tones": "Next step: more tones.",
    "better reference": "Next step: a better reference, such as a full exam.",
    "retest": "Next step: instruct the listener again and repeat the test.",
}


@dataclass(frozen=True)
class Shift:
    """Change of one threshold in dB, worse is positive.

    Under a rule, of the whole posterior; without one, under the hypothesis that the ear is another
    (if it is the same the shift is zero).

    Attributes:
        frequency_hz: where, in Hz.
        shift_db: its median in dB.
        low_db: lower end of its 95 % interval, in dB.
        high_db: upper end of its 95 % interval, in dB.
        censored: the old or the new threshold lies outside the domain's levels, so that the size
            is a guess.
    """

    frequency_hz: float
    shift_db: float
    low_db: float
    high_db: float
    censored: bool


@dataclass(frozen=True)
class PlaceShift:
    """A shift on other axes than a tone's, in the intensity's unit; in octaves on a logarithmic
    intensity axis.

    Attributes:
        place: its location by the axes' names.
        shift: its median.
        low: lower end of its 95 % interval.
        high: upper end of its 95 % interval.
        censored: as for a tone's.
    """

    place: tuple[tuple[str, float], ...]
    shift: float
    low: float
    high: float
    censored: bool


@dataclass(frozen=True)
class Verdict:
    """What a screen says now of one ear.

    Attributes:
        decision: "changed", "unchanged", "inconclusive" or "not determinable"; of a notch "notch"
            or "no notch".
        p_changed: probability of change; under a rule, that it is met; of a notch, that there is
            one.
        log_bf: log evidence of changed over unchanged, in nats.
        tones: how many were answered.
        shifts: the change of each threshold.
        converged: whether the numerical fit settled.
        protocol: name of the settings, without a rule; or "notch".
        rule: name of the rule, if one was asked about.
        catch_trials: how many silent trials there were.
        false_alarms: how many of them were reported as heard.
        reliability: "good", "fair" or "poor".
        evidence_hz: under a rule, the frequencies in Hz that carry the decision.
        unverified: a rule that was not checked against its source says so here.
        not_determinable_hz: frequencies in Hz at which nothing can be said.
        notes: sentences that belong to every output.
        reason: why nothing was decided: "evidence", "not heard at every frequency", "listener in
            doubt", "not reliable" or "computation"; empty where something was.
        next_step: what would help most then: "more tones", "better reference" or "retest".
        attention: probability that the listener was attentive at the last tone; of a rule, limit
            or notch.
        p_not_listening: probability that the answers have nothing to do with the tones.
        effective_size: how many persons the numbers rest on, on each side of the question.
    """

    decision: str
    p_changed: float
    log_bf: float
    tones: int
    shifts: tuple[Shift, ...]
    converged: bool
    protocol: str | None
    rule: str | None = None
    catch_trials: int = 0
    false_alarms: int = 0
    reliability: str = "good"
    evidence_hz: tuple[float, ...] = ()
    unverified: str | None = None
    not_determinable_hz: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    reason: str = ""
    next_step: str = ""
    attention: float | None = None
    p_not_listening: float | None = None
    effective_size: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def __str__(self) -> str:
        # On other axes than a tone's there is nothing to hear.
        elsewhere = any(isinstance(shift, PlaceShift) for shift in self.shifts)
        if self.protocol == NOTCH:
            words = {
                "notch": "A notch around 3-6 kHz",
                "no notch": "No notch around 3-6 kHz",
                "inconclusive": "It is inconclusive whether there is a notch around 3-6 kHz",
                "not determinable": "Whether there is a notch around 3-6 kHz is not determinable",
            }[self.decision]
            what = "probability of a notch"
        elif self.rule is None:
            words = {
                "changed": f"{'Answers have' if elsewhere else 'Hearing has'} changed from the "
                "reference",
                "unchanged": "No change from the reference",
                "inconclusive": "Inconclusive",
                "not determinable": "Whether hearing has changed is not determinable",
            }[self.decision]
            what = "probability of change"
        else:
            rule = f"{rule_title(self.rule)} rule"
            words = {
                "changed": f"The {rule} is met",
                "unchanged": f"The {rule} is not met",
                "inconclusive": f"It is inconclusive whether the {rule} is met",
                "not determinable": f"Whether the {rule} is met is not determinable",
            }[self.decision]
            what = "probability that it is met"
        doubt = "" if self.converged else f" {NOT_CONVERGED}"
        why = " ".join(w for w in (REASONS.get(self.reason), NEXT_STEPS.get(self.next_step)) if w)
        added = "".join(f" {note}" for note in (why, self.unverified, *self.notes) if note)
        unit = "trial" if elsewhere else "tone"
        after = f"after {self.tones} {unit}{'s' if self.tones != 1 else ''}"
        if self.decision == "not determinable":  # a probability would pass for an answer
            return f"{words} {after}.{doubt}{added}"
        return f"{words}: {what} {self.p_changed:.1%} {after}.{doubt}{added}"


@dataclass(frozen=True, init=False)
class PersonVerdict(Verdict):
    """What a screen of both ears says now: of the person, and of either ear.

    One ear suffices for "changed"; "unchanged" needs both. What is not said below, `p_changed`
    among it, is that of the ear which more likely has changed.

    Attributes:
        decision: of the person: "changed", "unchanged", "inconclusive" or "not determinable".
        tones: how many were answered, of both ears.
        right: what the screen says of the right ear.
        left: what the screen says of the left ear.
    """

    right: Verdict = field(kw_only=True)
    left: Verdict = field(kw_only=True)

    def __init__(self, decision: str, tones: int, right: Verdict, left: Verdict) -> None:
        leading = max(right, left, key=lambda one: one.p_changed)
        self.__dict__.update(vars(leading))
        self.__dict__.update(decision=decision, tones=tones, right=right, left=left)

    def to_dict(self) -> dict[str, Any]:
        """As plain data: of the person, and of either ear."""
        ears = {ear: getattr(self, ear).to_dict() for ear in EARS}
        return {"decision": self.decision, "tones": self.tones, **ears}

    def __str__(self) -> str:
        ears = "\n".join(f"{ear}: {getattr(self, ear)}" for ear in EARS)
        return f"{self.decision.capitalize()}, after {self.tones} tones.\n{ears}"


def reliability(catch_responses: Sequence[bool], presses: int, tones: int) -> str:
    """good, fair or poor: how far answers can be trusted that were also given to silence.

    Poor when all silent trials were "heard", or two or more and over a third of them, and when the
    button was pressed between the tones more often than every other time. Fair when any silent
    trial was "heard", or at some presses.
    """
    alarms, silent = sum(catch_responses), len(catch_responses)
    if alarms and (alarms == silent or (alarms >= 2 and alarms > silent / 3)):
        return "poor"
    if presses >= POOR_PRESSES and presses > (tones + silent) / 2:
        return "poor"
    return "fair" if alarms or presses >= FAIR_PRESSES else "good"
