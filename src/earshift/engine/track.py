"""One ear of a screen: its question, its trials, and what they say so far.

A `Screen` holds one of these, or two that are tied. `Track` is what all of them are; `EarTrack`
asks whether the ear's field has changed, `clinical_track.ClinicalTrack` what a clinic asks.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from earshift.engine.cross_hearing import own_ear_only
from earshift.engine.limits import allowed
from earshift.engine.procedure import SAMPLE, chance
from earshift.engine.protocol import Protocol
from earshift.engine.question import CLEARING, Circumstances, Posterior, Question, Setup
from earshift.engine.refusal import Refusal
from earshift.engine.rules import unverified_note
from earshift.engine.thresholds import (
    SAMPLES,
    Location,
    Threshold,
    locations_of,
    named,
    thresholds_from_samples,
)
from earshift.engine.tone import Trial
from earshift.engine.verdict import (
    FAIR_PRESSES,
    NOT_ASSESSED,
    PlaceShift,
    Shift,
    Verdict,
    reliability,
)

if TYPE_CHECKING:
    from earshift.engine.change import ChangePosterior
    from earshift.engine.field import Field

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

LARGEST_LOG = 700.0  # of a number that a float can hold
UNCHECKED_DB_HL = 40.0  # from here on a tone may be heard by another ear of normal hearing


class Track(ABC):
    """One ear's part of a screen, whatever is asked.

    Attributes:
        setup: what can be played, and what is known from before.
        max_tones: of this ear.
        trials: this ear's, in order.
        sitting: all trials in order, the other ear's too where both are tested.
        catch_responses: answers to silent trials, True for "heard".
        presses: of the button, when nothing was to be answered.
        note: a sentence that belongs to every verdict on a clinic's question.
    """

    note: str = ""

    def __init__(self, setup: Circumstances, max_tones: int) -> None:
        self.setup, self.max_tones = setup, max_tones
        self.trials: tuple[Trial, ...] = ()
        self.sitting: tuple[Trial, ...] = ()
        self.catch_responses: tuple[bool, ...] = ()
        self.presses = 0
        self._unheard_elsewhere = own_ear_only(setup.domain, setup.other_ear, setup.transducer)

    @abstractmethod
    def tie(self, partner: Any, p_same_change: float) -> None:
        """Let what became of the other ear say something about what became of this one."""

    @abstractmethod
    def fork(self) -> Self:
        """Another one with the same trials; a tie has to be made anew."""

    def take(self, trial: Trial, own: bool) -> None:
        """Count a trial of this sitting, of this ear or of the other."""
        self.sitting = (*self.sitting, trial)
        if own:
            self.trials = (*self.trials, trial)

    def take_back(self, own: bool) -> None:
        """Forget the last trial of this sitting."""
        self.sitting = self.sitting[:-1]
        if own:
            self.trials = self.trials[:-1]

    def without_trials(self) -> Self:
        """Another one before the first trial; a tie has to be made anew."""
        other = self.fork()
        other.trials = other.sitting = ()
        return other

    @property
    @abstractmethod
    def posterior(self) -> Any:
        """What all answers so far say: of the ear's field, or of persons."""

    @property
    @abstractmethod
    def p_changed(self) -> float:
        """Posterior probability of what is asked."""

    @property
    @abstractmethod
    def log_bf(self) -> float:
        """Log evidence for what is asked over the contrary."""

    @property
    def e_value(self) -> float | None:
        """Anytime-valid factor for change; None where a clinic's question is asked."""
        return None

    @property
    def e_value_same(self) -> float | None:
        """Anytime-valid factor for "unchanged"; None where a clinic's question is asked."""
        return None

    @abstractmethod
    def p_changed_after(self, tones: int) -> float:
        """What `p_changed` was after the first so many tones of this ear."""

    @property
    @abstractmethod
    def decision(self) -> str:
        """By the evidence now."""

    @property
    @abstractmethod
    def reliability(self) -> str:
        """good, fair, poor or not assessed: how far the answers can be trusted."""

    @property
    def done(self) -> bool:
        """Decided, or enough tones."""
        return len(self.trials) >= self.max_tones or self.decision != "inconclusive"

    @abstractmethod
    def scores(self) -> Array:
        """Score of every candidate, now."""

    def wanted(self) -> Array:
        """How much each candidate is wanted next, -inf for those that may not be played."""
        return np.where(self.playable(), self.scores(), -np.inf)

    @abstractmethod
    def verdict(self, frequencies_hz: Sequence[Location] | None = None, which: int = 0) -> Verdict:
        """What is said of this ear now, with the shift at each frequency.

        `which` of several rules, by its number.
        """

    @property
    def reference_field(self) -> "Field":
        """The reference as a field, where the question is about fields."""
        raise Refusal("a screen by a rule has no field: see reference_thresholds()")

    def reference_thresholds(self, frequencies_hz: Sequence[float]) -> list[Threshold]:
        """The reference's thresholds with their intervals, where the question is a clinic's."""
        raise Refusal("a screen without a rule has a field: see reference_field")

    @abstractmethod
    def _draws(
        self, locations: list[tuple[float, ...]], places: Array, weighed: bool
    ) -> tuple[Array, Array] | None:
        """Samples of the old and the new thresholds there, in model units: (count, places).

        Of all hypotheses by their probability (`weighed`), or of the changed ear alone. None where
        nothing is known of an old one and none is wanted.
        """

    def playable(self) -> Mask:
        """Which candidates may be played now; never one that the other ear might hear."""
        setup = self.setup
        mask = allowed(setup.limits, setup.domain, self.trials, setup.reference_levels)
        return mask & self._unheard_elsewhere

    def _chance(self, purpose: int) -> np.random.Generator:
        return chance(self.setup.seed, len(self.trials), purpose)

    def _notes(self) -> list[str]:
        """What is to be said of the answers and the tones, whatever the question."""
        notes = []
        if any(self.catch_responses):
            notes.append(
                f"{sum(self.catch_responses)} of {len(self.catch_responses)} silent trials were "
                f"reported as heard: reliability {self.reliability}."
            )
        if self.presses >= FAIR_PRESSES:
            notes.append(f"The button was pressed {self.presses} times when nothing was played.")
        loudest = max((getattr(t.tone, "level_db_hl", -np.inf) for t in self.trials), default=0.0)
        if self.setup.other_ear is None and loudest >= UNCHECKED_DB_HL:
            notes.append("Thresholds of the other ear were not given: cross-hearing not checked.")
        return notes

    def thresholds(self, frequencies_hz: Sequence[Location] | None = None) -> list[Threshold]:
        """The ear's thresholds now, changed and unchanged weighed by their probability."""
        locations, places = locations_of(self.setup.domain, frequencies_hz)
        drawn = self._draws(locations, places, weighed=True)
        assert drawn is not None
        return thresholds_from_samples(locations, drawn[1], self.setup.domain)

    def _shifts(self, frequencies_hz: Sequence[Location] | None) -> tuple[Shift, ...]:
        domain = self.setup.domain
        locations, places = locations_of(domain, frequencies_hz)
        drawn = self._draws(locations, places, weighed=False)
        if drawn is None:
            return ()
        before, after = drawn
        axis = domain.intensity
        low, high = axis.model_values[0], axis.model_values[-1]
        # A threshold outside the domain is only known to be outside: cut, then compare.
        change = (np.clip(after, low, high) - np.clip(before, low, high)) * axis.scale
        middle, lower, upper = np.quantile(change, (0.5, 0.025, 0.975), axis=0)
        outside = np.zeros(len(locations), dtype=bool)
        for levels in (before, after):
            typical = np.median(levels, axis=0)
            outside |= (typical < low) | (typical > high)
        out = []
        for k, location in enumerate(locations):
            sizes = float(middle[k]), float(lower[k]), float(upper[k])
            if domain.of_tones:
                out.append(Shift(location[0], *sizes, bool(outside[k])))
            else:
                unit = "octaves" if axis.logarithmic else axis.unit
                there = PlaceShift(named(location, domain), *sizes, bool(outside[k]), unit)
                out.append(cast(Shift, there))
        return tuple(out)


class EarTrack(Track):
    """One ear whose field may have changed. A tied partner's answers weigh in all that it says.

    Attributes:
        question: what is asked.
    """

    setup: Setup

    def __init__(self, question: Question, setup: Setup, max_tones: int) -> None:
        super().__init__(setup, max_tones)
        self.question = question
        self._known: dict[int, Posterior] = {}  # by the number of trials
        self._partner: EarTrack | None = None
        self._p_same_change = 0.0
        self._tied: tuple[tuple[int, int], Posterior] | None = None

    def tie(self, partner: "EarTrack", p_same_change: float) -> None:
        """Let the other ear's answers count, as far as both ears may have changed together."""
        self._partner, self._p_same_change = partner, p_same_change

    def fork(self) -> Self:
        """Another one with the same trials; a tie has to be made anew."""
        other = copy(self)
        other._known = dict(self._known)
        other._partner = None
        return other

    def take_back(self, own: bool) -> None:
        """Forget the last trial, and what was computed from it."""
        super().take_back(own)
        self._known = {n: known for n, known in self._known.items() if n <= len(self.trials)}
        self._tied = None
        if self._partner is not None:
            self._partner._tied = None

    @property
    def own_posterior(self) -> Posterior:
        """What this ear's trials say alone."""
        count = len(self.trials)
        if count not in self._known:
            before = self._known.get(count - 1)
            self._known[count] = self.question.assess(self.trials, before)
        return self._known[count]

    @property
    def posterior(self) -> Posterior:
        """What all trials so far say."""
        if self._partner is None:
            return self.own_posterior
        counts = len(self.trials), len(self._partner.trials)
        if self._tied is None or self._tied[0] != counts:
            other = self._partner.own_posterior
            self._tied = counts, self.own_posterior.tied(other, self._p_same_change)
        return self._tied[1]

    @property
    def p_changed(self) -> float:
        """Posterior probability of change."""
        return self.posterior.p_changed

    @property
    def log_bf(self) -> float:
        """Log evidence of changed over unchanged."""
        return self.posterior.log_bf

    def p_changed_after(self, tones: int) -> float:
        """What `p_changed` was after the first so many tones of this ear."""
        earlier = copy(self)
        earlier.trials = self.trials[:tones]
        return earlier.p_changed

    @property
    def e_value(self) -> float | None:
        """Product of p_g/p_f over this ear's answers, each predicted from those before it.

        The other ear's answers do not count.
        """
        log_e = 0.0
        for number, trial in enumerate(self.trials):
            earlier = copy(self)
            earlier.trials = self.trials[:number]
            # Kept in the dict that both share.
            log_e += cast("ChangePosterior", earlier.own_posterior).log_ratio_of(trial)
        return math.exp(min(log_e, LARGEST_LOG))

    @property
    def e_value_same(self) -> float | None:
        """The reverse, 1 / `e_value`, for "unchanged"; None where M_g is not one model.

        It holds on average over the changes that M_g expects, not for each of them.
        """
        forward = self.e_value
        if forward is None or not cast(Protocol, self.question.settings).coherent:
            return None
        return 1.0 / max(forward, math.exp(-LARGEST_LOG))

    @property
    def converged(self) -> bool:
        """Whether the fits of the reference and of the answers settled."""
        return self.setup.reference.converged and self.posterior.converged

    @property
    def reliability(self) -> str:
        """As the answers to silence say; at best fair when the fit did not settle."""
        found = reliability(self.catch_responses, self.presses, len(self.trials))
        return "fair" if found in ("good", NOT_ASSESSED) and not self.converged else found

    @property
    def decision(self) -> str:
        """By the evidence now.

        Somebody who reports silence is not cleared by the tones they reported, and nobody is
        cleared at frequencies where the limits let nothing be heard.
        """
        decision = self.posterior.decision
        if decision not in CLEARING:
            return decision
        if self.reliability == "poor":
            return "inconclusive"
        if self.question.obstacles and not self.question.judges_around_obstacles:
            return "not determinable"
        return decision

    def scores(self) -> Array:
        """Score of every candidate by the strategy, now."""
        from earshift.engine import choose  # with compiled kernels: loaded where they are needed

        posterior, domain = self.posterior, self.setup.domain
        settings = self.question.settings
        hypotheses = None
        if callable(settings.strategy) or settings.strategy in choose.BY_HYPOTHESES:
            hypotheses = posterior.hypotheses(domain.places, domain.intensities)
        outlook = choose.Outlook(
            rng=self._chance(SAMPLE),
            guess=settings.guess,
            lapse=settings.lapse,
            latent=self._own_moments,
            shape=domain.shape,
            hypotheses=hypotheses,
            domain=domain,
            trials=self.trials,
        )
        return choose.scored(settings.strategy, outlook)

    def _own_moments(self) -> tuple[Array, Array]:
        """The field of the new exam alone, as if there were no reference."""
        from earshift.engine import answers, field

        domain, settings = self.setup.domain, self.question.settings
        told = answers.answers_of(self.trials, domain)
        alone = field.fit(told, self.setup.prior, settings.guess, settings.lapse)
        return alone.moments(domain.places, domain.intensities)

    @property
    def reference_field(self) -> "Field":
        """The reference as a field."""
        return self.setup.reference

    def verdict(self, frequencies_hz: Sequence[Location] | None = None, which: int = 0) -> Verdict:
        """What is said of this ear now, with the shift at each frequency."""
        posterior, question = self.posterior, self.question
        return Verdict(
            decision=self.decision,
            p_changed=posterior.p_changed,
            log_bf=posterior.log_bf,
            tones=len(self.trials),
            shifts=self._shifts(frequencies_hz),
            converged=self.converged,
            protocol=question.protocol_name,
            rule=None if question.rule is None else question.rule.name,
            catch_trials=len(self.catch_responses),
            false_alarms=sum(self.catch_responses),
            reliability=self.reliability,
            evidence_hz=posterior.evidence_hz,
            unverified=None if question.rule is None else unverified_note(question.rule),
            not_determinable_hz=tuple(question.obstacles),
            notes=(*self._notes(), *posterior.notes),
        )

    def _draws(
        self, locations: list[tuple[float, ...]], places: Array, weighed: bool
    ) -> tuple[Array, Array]:
        return self.posterior.before_and_after(places, SAMPLES, self._chance(SAMPLE), weighed)
