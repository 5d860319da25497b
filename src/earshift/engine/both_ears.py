"""Both ears in one sitting: `Exam(ears="both")` and `Screen(reference, ears="both")`.

An exam ties the ears' fields by the paper's conjoint kernel K_t x K, its correlation marginalised
on a grid (method.md, section 4), and asks the ear and the tone that teach most. A screen holds one
ordinary screen per ear and ties them by the prior of change: what happened to one ear is likelier
to have happened to the other. Either way an answer belongs to the ear it was given for; the other
ear only learns what the tie says.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from earshift.engine import ep, field
from earshift.engine.audiogram import Audiogram
from earshift.engine.change import ModelState, Protocol
from earshift.engine.checks import as_heard, finite, whole
from earshift.engine.cross_hearing import INTERAURAL_DB
from earshift.engine.domain import Domain
from earshift.engine.exam import (
    Exam,
    Reference,
    Screen,
    Sitting,
    Spot,
    Verdict,
    answers_of,
    audiogram_of,
    full_exam,
    halton_tone,
    question_from_design,
    reference_from_dict,
    reference_kind,
    stored_catches,
)
from earshift.engine.field import Answers, Field, Threshold
from earshift.engine.limits import Limits, allowed
from earshift.engine.norms import Hyperprior, Norm, hyperprior
from earshift.engine.notch import NotchState
from earshift.engine.refusal import Refusal
from earshift.engine.rules import Rule, person_decision
from earshift.engine.shift import ALIKE_SHARE, SMALLEST_SLOPE, RuleSettings, ShiftState
from earshift.engine.tone import Stimulus, Tone, Trial
from earshift.engine.values import EARS

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# The correlations between the ears that are averaged over, all as likely before the first tone, and
# the one at which the hyperparameters are fitted: one fit a tone, not one for every correlation.
# Chosen on the tuning half of the people (docs/method.md).
CORRELATIONS = np.linspace(0.05, 0.95, 7)
FITTED_AT = 0.5
TOLERANCE = 1e-6  # of EP at each correlation


def the_other(ear: str) -> str:
    return EARS[1 - EARS.index(ear)]


def ear_of(tone: object) -> str:
    """The ear of a tone, or a ValueError: where both ears are tested a tone needs one."""
    ear = getattr(tone, "ear", None)
    if ear not in EARS:
        raise Refusal(f"both ears are tested: give a tone with ear 'right' or 'left', got {tone!r}")
    return str(ear)


def trials_of(trials: Sequence[Trial], ear: str) -> tuple[Trial, ...]:
    """One ear's trials, in order."""
    return tuple(trial for trial in trials if trial.tone.ear == ear)


def candidate_of_both(domain: Domain, place: int, level: int) -> Tone:
    """The tone in this row and column of scores that stack the left ear below the right one."""
    number, place = divmod(place, domain.shape[0])
    return replace(domain.tone(place, level), ear=EARS[number])


# The joint field ---------------------------------------------------------------------------------


def answers_of_both(trials: Sequence[Trial], domain: Domain) -> Answers:
    """Trials of both ears in model units, the left ear's places counted on from the right one's."""
    answers = answers_of(trials, domain)
    left = np.array([trial.tone.ear == "left" for trial in trials], dtype=np.int64)
    return replace(answers, place=answers.place + left * answers.places.shape[0])


def fit_ears(answers: Answers, prior: Hyperprior, guess: float, lapse: float) -> dict[str, Field]:
    """Both ears' fields under the conjoint kernel, the correlation marginalised.

    The ears share theta. At every correlation the posterior of either ear is a field on the places
    played, and a mixture of such fields has the mean and covariance of one field again: with
    weights v_j, b = sum v_j b_j and G = sum v_j G_j - Cov_v(b_j). So each ear comes out as an
    ordinary `Field`, exact in its first two moments.
    """
    with ep.compiling("exam"):
        fitted = field.fit_theta(answers, prior, guess, lapse, FITTED_AT)
        parts = [fitted.at(rho, TOLERANCE) for rho in CORRELATIONS]
    one = answers.places.shape[0] + 1
    log_Z = np.array([value if ok else -np.inf for value, _, _, ok in parts])
    bs = np.zeros((CORRELATIONS.size, 2 * one))
    Gs = np.zeros((CORRELATIONS.size, 2 * one, 2 * one))
    settled = bool(np.isfinite(log_Z).any())
    if settled:
        for j, (_, b, G, _) in enumerate(parts):
            # Before the left ear's first answer EP knows of the right one only: zeros are left.
            bs[j, : b.size], Gs[j, : b.size, : b.size] = b, G
    else:  # no fixed point anywhere: the prior, and it says so
        log_Z = np.zeros(CORRELATIONS.size)
    top = float(log_Z.max())
    weights = np.exp(log_Z - top)
    log_evidence = top + float(np.log(weights.mean()))
    mean_b, mixed_G = field.mixed_ears(weights / weights.sum(), CORRELATIONS, bs, Gs)
    return {
        ear: Field(
            theta=fitted.theta,
            slope_mean=prior.slope_mean,
            places=answers.places,
            b=mean_b[number],
            G=mixed_G[number],
            log_evidence=log_evidence,
            converged=fitted.settled and settled,
            guess=guess,
            lapse=lapse,
        )
        for number, ear in enumerate(EARS)
    }


# The exam ----------------------------------------------------------------------------------------


class BothEarsExam(Exam):
    """An exam of both ears together: what one ear teaches is a hint for the other.

    `ask` gives tones with their ear, `tell` needs it. Level limits look at each ear's own trials.

    A tone `INTERAURAL_DB` above the other ear's threshold might be heard there. The other ear's
    threshold is what the exam has learnt so far, so such tones are not asked once both slopes are
    known, and `cross_heard` looks back at all tones with what is known now. A threshold that lies
    past that level is flagged `cross_hearing`: finding it needs masking.

    >>> exam = Exam(ears="both", seed=1)
    >>> while not exam.done:
    ...     tone = exam.ask()
    ...     exam.tell(tone, heard=listeners[tone.ear](tone))
    >>> exam.thresholds([500, 1000, 2000, 4000], ear="left")
    """

    def __init__(
        self, *, ears: str = "both", ear: str | None = None, max_tones: int = 80, **options: Any
    ) -> None:
        if options.get("other_ear") is not None:
            raise Refusal("other_ear is for an exam of one ear: this one tests both")
        super().__init__(max_tones=max_tones, **options)
        if not self.domain.of_tones:
            raise Refusal("both ears need a domain of tones: other stimuli have no ear")
        if ear not in (None, *EARS):
            raise Refusal(f"ear must be 'right', 'left' or None, got {ear!r}")
        self.ear = ear
        self._fields: tuple[int, dict[str, Field]] | None = None

    def tell(self, tone: Tone | Stimulus, heard: object) -> None:
        ear_of(self.domain.check(tone))
        super().tell(tone, heard)

    @property
    def fields(self) -> dict[str, Field]:
        """The psychometric field of each ear, fitted to all trials so far."""
        count = len(self._trials)
        if self._fields is None or self._fields[0] != count:
            answers = answers_of_both(self._trials, self.domain)
            self._fields = (count, fit_ears(answers, hyperprior(), self.guess, self.lapse))
        return self._fields[1]

    @property
    def field(self) -> Field:
        return self.fields[self._one(None)]

    def _one(self, ear: str | None) -> str:
        """The ear that is spoken of."""
        ear = self.ear if ear is None else ear
        if ear not in EARS:
            raise Refusal(f"this exam is of both ears: say ear='right' or 'left', got {ear!r}")
        return ear

    def of(self, ear: str) -> Self:
        """This exam as the exam of one ear: the reference of a screen of that ear."""
        one = copy(self)
        one.ear = self._one(ear)
        return one

    def refitted(self, domain: Domain, prior: Hyperprior, guess: float, lapse: float) -> Field:
        ear = self._one(None)
        if not trials_of(self._trials, ear):
            raise Refusal(f"the reference exam has no trials of the {ear} ear: run it first")
        return fit_ears(answers_of_both(self._trials, domain), prior, guess, lapse)[ear]

    def _moments(self) -> tuple[Array, Array]:
        places, intensities = self.domain.places, self.domain.intensities
        each = [self.fields[ear].moments(places, intensities) for ear in EARS]
        return np.vstack([mean for mean, _ in each]), np.vstack([var for _, var in each])

    @property
    def _shape(self) -> tuple[int, int]:
        return 2 * self.domain.shape[0], self.domain.shape[1]

    def _candidate(self, place: int, level: int) -> Tone:
        return candidate_of_both(self.domain, place, level)

    def _playable(self) -> Mask:
        """Which candidates may be played now: the right ear's places x levels, then the left's."""
        return np.vstack([self._playable_in(ear) for ear in EARS])

    def _playable_in(self, ear: str) -> Mask:
        mask = allowed(self.limits, self.domain, trials_of(self._trials, ear))
        crossing = self._crossing_levels(the_other(ear), self.domain.places)
        return np.asarray(mask & (np.array(self.domain.intensity.values) < crossing[:, None]))

    def _crossing_levels(self, listening: str, places: Array) -> Array:
        """Levels from which this ear, by all that is known now, hears what the other is played.

        Infinite before the exam knows that loudness helps: there is no threshold then. A threshold
        below the softest candidate counts as there, so that something is left to play.
        """
        mean, _ = self.fields[listening].latent(places)
        if mean[0] < SMALLEST_SLOPE:
            return np.full(places.shape[0], np.inf)
        axis = self.domain.intensity
        levels = axis.origin - axis.scale * mean[1:] / mean[0]
        return np.asarray(np.maximum(levels, axis.values[0]) + INTERAURAL_DB[self.transducer])

    def _choose(self) -> Tone:
        count = len(self._trials)
        if count >= self.halton_tones:
            return super()._choose()
        # One sequence for both ears in turn, so that what one leaves out the other fills.
        ear = EARS[count % 2]
        mask = self._playable_in(ear)
        if not mask.any():
            return super()._choose()
        return replace(halton_tone(self.seed, count, self.domain, mask), ear=ear)

    @property
    def cross_heard(self) -> tuple[Trial, ...]:
        """The trials whose tone the other ear might have heard, by all that is known now."""
        out = []
        for trial in self._trials:
            place = np.array([self.domain.place_of(trial.tone)])
            crossing = self._crossing_levels(the_other(ear_of(trial.tone)), place)[0]
            if trial.tone.level_db_hl >= crossing:
                out.append(trial)
        return tuple(out)

    def thresholds(
        self, frequencies_hz: Sequence[Spot] | None = None, *, ear: str | None = None
    ) -> list[Threshold]:
        """One ear's thresholds in dB HL with 95 % intervals."""
        ear = self._one(ear)
        found = self._thresholds_of(self.fields[ear], frequencies_hz)
        places = self._frequencies([t.frequency_hz for t in found])[1]
        crossing = self._crossing_levels(the_other(ear), places)
        return [
            replace(t, cross_hearing=bool(t.level_db_hl >= level))
            for t, level in zip(found, crossing, strict=True)
        ]

    def _design(self) -> dict[str, Any]:
        return {**super()._design(), "ears": "both", "ear": self.ear}


# The screen --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PersonVerdict:
    """What a screen of both ears says now: of the person, and of either ear.

    One ear suffices for "changed"; "unchanged" needs both.
    """

    decision: str  # changed, unchanged, inconclusive or not determinable
    tones: int
    right: Verdict
    left: Verdict

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        ears = "\n".join(f"{ear}: {getattr(self, ear)}" for ear in EARS)
        return f"{self.decision.capitalize()}, after {self.tones} tones.\n{ears}"


def _references(given: Mapping[str, Reference] | BothEarsExam | None) -> dict[str, Reference]:
    """Each ear's reference."""
    if isinstance(given, BothEarsExam):
        return {ear: given.of(ear) for ear in EARS}
    if not isinstance(given, Mapping) or set(given) != set(EARS):
        what = sorted(map(str, given)) if isinstance(given, Mapping) else type(given).__name__
        raise Refusal(
            "a screen of both ears needs a reference that maps 'right' and 'left' to theirs, or an "
            f"exam of both ears; got {what}"
        )
    return {ear: _reference_of(given[ear], ear) for ear in EARS}


def _reference_of(given: Reference, ear: str) -> Reference:
    """The reference itself if it can be this ear's."""
    reference_kind(given)  # refuses what is none
    if isinstance(given, BothEarsExam):
        if given.ear not in (None, ear):
            raise Refusal(f"the {given.ear} ear's exam was given as the {ear} ear's reference")
        return given.of(ear)
    if isinstance(given, Exam) and any(t.tone.ear not in (None, ear) for t in given.trials):
        raise Refusal(f"the {ear} ear's reference has tones of the other ear")
    return given


class _EarOfScreen(Screen):
    """One ear's screen; all that it says also weighs what the other ear told."""

    partner: "_EarOfScreen"
    alike_share: float
    _tied: tuple[tuple[int, int], ModelState | ShiftState] | None = None

    @property
    def own_state(self) -> ModelState | ShiftState:
        """What this ear's trials say alone."""
        state = super().state
        assert not isinstance(state, NotchState)  # asked of one ear alone
        return state

    @property
    def state(self) -> ModelState | ShiftState:
        counts = len(self.trials), len(self.partner.trials)
        if self._tied is None or self._tied[0] != counts:
            own, other = self.own_state, self.partner.own_state
            if isinstance(own, ShiftState):
                assert isinstance(other, ShiftState)
                self._tied = counts, own.tied(other, self.alike_share)
            else:
                assert isinstance(other, ModelState)
                self._tied = counts, own.tied(other, self.alike_share)
        return self._tied[1]


class BothEarsScreen(Sitting):
    """Has either ear changed from its reference? One screen of both, with a verdict for each.

    `reference` maps "right" and "left" to their references, or is one exam of both ears. Ears are
    tied by `alike_share`: with that probability both changed alike or neither did, else each for
    itself. An ear that is decided is asked no more, unless what the other ear tells opens it again;
    each gets at most half of `max_tones`.

    Tones that the other ear might hear, judged by its reference, are never asked.

    >>> screen = Screen({"right": right, "left": left}, ears="both", rule="osha-sts")
    >>> while not screen.done:
    ...     tone = screen.ask()
    ...     screen.tell(tone, heard=listeners[tone.ear](tone))
    >>> screen.verdict().decision, screen.verdict().left.decision
    """

    kind = "screen"

    def __init__(
        self,
        reference: Mapping[str, Reference] | BothEarsExam | None = None,
        protocol: str | Protocol | None = None,
        *,
        rule: str | Rule | None = None,
        hypotheses: str | None = None,
        other_ear: Audiogram | None = None,
        settings: RuleSettings | None = None,
        allow_unverified: bool = False,
        alike_share: float = ALIKE_SHARE,
        transducer: str = "unknown",
        seed: int = 0,
        max_tones: int | None = None,
        domain: str | Domain | None = None,
        limits: Limits | None = None,
    ) -> None:
        if hypotheses is not None:
            raise Refusal(
                f"hypotheses={hypotheses!r} is asked of one ear at a time: leave out ears='both'"
            )
        if other_ear is not None:
            raise Refusal("other_ear is for a screen of one ear: this one tests both")
        references = _references(reference)
        self.alike_share = finite(alike_share, "alike_share")
        if not 0.0 <= self.alike_share <= 1.0:
            raise Refusal(f"alike_share must be from 0 to 1, got {alike_share!r}")
        each = None if max_tones is None else (whole(max_tones, "max_tones", 1) + 1) // 2
        self._screens: dict[str, _EarOfScreen] = {}
        for ear in EARS:
            other = references[the_other(ear)]
            self._screens[ear] = _EarOfScreen(
                references[ear],
                protocol,
                rule=rule,
                settings=settings,
                allow_unverified=allow_unverified,
                # A population's thresholds say too little of what this person might hear.
                other_ear=None if isinstance(other, Norm) else audiogram_of(other),
                transducer=transducer,
                seed=seed,
                max_tones=each,
                domain=domain,
                limits=limits,
            )
            domain = self._screens[ear].domain  # one domain for both
        self._tie()
        right = self._screens["right"]
        super().__init__(
            seed=seed,
            max_tones=2 * right.max_tones if max_tones is None else max_tones,
            domain=right.domain,
            limits=limits,
            other_ear=None,
            transducer=transducer,
        )
        self._catches: tuple[bool, ...] = ()
        self._presses = 0

    def _tie(self) -> None:
        for ear, screen in self._screens.items():
            screen.partner, screen.alike_share = self._screens[the_other(ear)], self.alike_share

    def fork(self) -> Self:
        other = super().fork()
        other._screens = {ear: screen.fork() for ear, screen in self._screens.items()}
        other._tie()
        return other

    def tell(self, tone: Tone | Stimulus, heard: object) -> None:
        self._screens[ear_of(tone)].tell(tone, heard)
        super().tell(tone, heard)

    def tell_catch(self, heard: object) -> None:
        """Take the answer to a silent trial: it says how reliable the others are, of both ears."""
        for screen in self._screens.values():
            screen.tell_catch(heard)
        self._catches = (*self._catches, as_heard(heard))

    def tell_press(self) -> None:
        """Take note of a press of the button when nothing was to be answered."""
        for screen in self._screens.values():
            screen.tell_press()
        self._presses += 1

    def p_changed(self, ear: str) -> float:
        """Posterior probability that this ear changed; under a rule, that it is met."""
        return self._of(ear).p_changed

    def _of(self, ear: str) -> _EarOfScreen:
        if ear not in EARS:
            raise Refusal(f"ear must be 'right' or 'left', got {ear!r}")
        return self._screens[ear]

    @property
    def decision(self) -> str:
        """Of the person: changed by one ear, unchanged by both, else inconclusive or neither."""
        return person_decision(*self.decisions.values())

    @property
    def decisions(self) -> dict[str, str]:
        """Of either ear: changed, unchanged, inconclusive or not determinable."""
        return {ear: self._screens[ear].decision for ear in EARS}

    @property
    def open_ears(self) -> tuple[str, ...]:
        """The ears that are not decided and have tones left."""
        return tuple(ear for ear in EARS if not self._screens[ear].done)

    @property
    def done(self) -> bool:
        """Advice: both ears decided, or enough tones. Asking and telling go on working."""
        return len(self._trials) >= self.max_tones or not self.open_ears

    def scores(self) -> Array:
        """Score of every candidate: the right ear's places x levels, then the left one's.

        What a tone says about its own ear's question; ears that are decided score nothing while
        the other is open.
        """
        ears = self.open_ears or EARS
        return np.vstack(
            [
                self._screens[ear].scores() if ear in ears else np.full(self.domain.shape, -np.inf)
                for ear in EARS
            ]
        )

    def _playable(self) -> Mask:
        return np.vstack([self._screens[ear]._playable() for ear in EARS])

    def _candidate(self, place: int, level: int) -> Tone:
        return candidate_of_both(self.domain, place, level)

    def verdict(self, frequencies_hz: Sequence[float] | None = None) -> PersonVerdict:
        """What the screen says now, of the person and of either ear."""
        right, left = (self._screens[ear].verdict(frequencies_hz) for ear in EARS)
        return PersonVerdict(self.decision, len(self._trials), right, left)

    def thresholds(
        self, frequencies_hz: Sequence[float] | None = None, *, ear: str
    ) -> list[Threshold]:
        """One ear's thresholds now, changed and unchanged weighed by their probability."""
        return self._of(ear).thresholds(frequencies_hz)

    def continue_exam(self, max_tones: int = 80) -> BothEarsExam:
        """A full exam of both ears that begins with every tone of this screen."""
        options = {"ears": "both", "other_ear": None, "max_tones": max_tones}
        exam = full_exam(self._screens["right"], self._trials, **options)
        assert isinstance(exam, BothEarsExam)
        return exam

    def _design(self) -> dict[str, Any]:
        own = {ear: self._screens[ear]._design() for ear in EARS}
        question = {name: own["right"][name] for name in ("protocol", "rule", "settings")}
        return {
            **super()._design(),
            **question,
            "ears": "both",
            "alike_share": self.alike_share,
            "reference": {ear: own[ear]["reference"] for ear in EARS},
        }

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "catches": list(self._catches), "presses": self._presses}

    @classmethod
    def _from_design(cls, design: dict[str, Any]) -> Self:
        given = {k: v for k, v in question_from_design(design).items() if k not in _FIXED}
        stored = given.pop("reference")
        return cls({ear: reference_from_dict(stored[ear]) for ear in EARS}, **given)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        screen = super().from_dict(data)
        for heard in stored_catches(data):
            screen.tell_catch(heard)
        for _ in range(whole(data.get("presses", 0), "presses", 0)):
            screen.tell_press()
        return screen


_FIXED = ("ears", "other_ear")  # of a stored design: what a screen of both ears is not asked for
