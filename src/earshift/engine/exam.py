"""Exams that ask tones and take answers: `Exam` measures a field, `Screen` decides on change.

Both are folds over their trials: design + trials rebuild every state, a fit never starts from an
earlier one, and chance comes from (seed, number of trials) alone. So asking twice gives the same
tone, and an exam read back from a file asks what the unbroken one would have asked.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from earshift.engine import choose, ep, field
from earshift.engine.audiogram import Audiogram
from earshift.engine.change import ModelQuestion, ModelState, Protocol, as_protocol
from earshift.engine.checks import as_heard, finite, whole
from earshift.engine.cross_hearing import crossing_level, own_ear_only
from earshift.engine.domain import Axis, Domain, as_domain
from earshift.engine.field import Answers, Field, PlaceThreshold, Threshold
from earshift.engine.limits import Limits, allowed
from earshift.engine.norms import Hyperprior, Norm, hyperprior, population_norm
from earshift.engine.notch import (
    HIGHEST_HZ,
    LOWEST_HZ,
    NOTCH,
    POPULATION_NOTES,
    NotchModel,
    NotchSettings,
    NotchState,
)
from earshift.engine.refusal import Refusal
from earshift.engine.rules import Rule, as_rule, unverified_note
from earshift.engine.shift import SMALLEST_SLOPE, RuleSettings, ShiftModel, ShiftState
from earshift.engine.tone import Stimulus, Tone, Trial

Array = NDArray[np.float64]
Spot = float | tuple[float, ...]  # a place in the axes' units; of a tone, its frequency in Hz

SCHEMA = 1  # of to_dict
SAMPLES = 4000  # for thresholds and shifts
FAIR_PRESSES, POOR_PRESSES = 2, 4  # outside every response window: from so many on
SMALL_CHANGE_DB = 10.0  # a smaller one need not be found for "unchanged"
UNCHECKED_DB_HL = 40.0  # from here on a tone may be heard by another ear of normal hearing
AUDIOMETRIC_HZ = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)

# Separate streams of chance for separate purposes, so that none depends on whether another ran.
_PICK, _SAMPLE, _HALTON = 1, 2, 3


class Sitting:
    """What every exam has: a design, trials, and one tone to ask next."""

    kind: ClassVar[str]

    def __init__(
        self,
        *,
        seed: int,
        max_tones: int,
        domain: str | Domain,
        limits: Limits | None,
        other_ear: Audiogram | None,
        transducer: str,
    ) -> None:
        self.seed = whole(seed, "seed", 0)
        self.max_tones = whole(max_tones, "max_tones", 1)
        self.domain = as_domain(domain)
        if limits is not None and not isinstance(limits, Limits):
            raise Refusal(f"limits must be earshift.Limits or None, got {limits!r}")
        self.limits = limits
        allowed(limits, self.domain, ())  # refuses limits that leave nothing to play
        self.other_ear, self.transducer = other_ear, transducer
        self._own_ear_only = own_ear_only(self.domain, other_ear, transducer)
        self._reference_levels: Array | None = None  # this ear's earlier thresholds, by place
        self._trials: tuple[Trial, ...] = ()
        self._next: tuple[int, Tone] | None = None

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All tones told so far, with their answers, in order."""
        return self._trials

    def tell(self, tone: Tone | Stimulus, heard: object) -> None:
        """Take the answer to a tone, asked for or not. Bad input changes nothing."""
        self._trials = (*self._trials, Trial(self.domain.check(tone), as_heard(heard)))

    def ask(self) -> Tone:
        """The tone to play next. Asking again gives the same tone until an answer is told.

        On a domain with other axes than a tone's it is a `Stimulus` with these axes' names.
        """
        count = len(self._trials)
        if self._next is None or self._next[0] != count:
            self._next = (count, self._choose())
        return self._next[1]

    def fork(self) -> Self:
        """Another one with the same trials; what either is told is no concern of the other's."""
        return copy.copy(self)

    @property
    def done(self) -> bool:
        """Advice: nothing more is needed. Asking and telling go on working."""
        raise NotImplementedError

    def scores(self) -> Array:
        """Score of every candidate (places x levels of the domain) by the strategy, now."""
        raise NotImplementedError

    def _playable(self) -> NDArray[np.bool_]:
        """Which candidates may be played now; never one that the other ear might hear."""
        mask = allowed(self.limits, self.domain, self._trials, self._reference_levels)
        return mask & self._own_ear_only

    def _choose(self) -> Tone:
        mask = self._playable()
        return self._candidate(*choose.pick(self.scores(), mask, self._rng(_PICK)))

    @property
    def _shape(self) -> tuple[int, int]:
        """Rows and columns of the scores."""
        return self.domain.shape

    def _candidate(self, place: int, level: int) -> Tone:
        """The candidate in this row and column of the scores."""
        return self.domain.tone(place, level)

    def _rng(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, len(self._trials), purpose))

    @property
    def _answers(self) -> Answers:
        return answers_of(self._trials, self.domain)

    def _spots(self, wanted: Sequence[Spot] | None) -> tuple[list[tuple[float, ...]], Array]:
        """Where thresholds are wanted: in the axes' units, and as places.

        By default the audiometric frequencies that are in range; on other axes than a tone's, every
        place of the domain.
        """
        if self.domain.of_tones:
            frequencies, places = self._frequencies(wanted)
            return [(float(f),) for f in frequencies], places
        axes = self.domain.smooth
        if wanted is None:
            wanted = list(product(*(axis.values for axis in axes)))
        spots = []
        for spot in wanted:
            values = (spot,) if isinstance(spot, int | float | np.number) else tuple(spot)
            if len(values) != len(axes):
                names = ", ".join(axis.name for axis in axes)
                raise Refusal(f"a place of this domain has a value for {names}; got {spot!r}")
            spots.append(
                tuple(a.check(finite(v, a.name)) for a, v in zip(axes, values, strict=True))
            )
        if not spots:
            raise Refusal("thresholds need at least one place")
        units = [[a.to_model(v) for a, v in zip(axes, s, strict=True)] for s in spots]
        return spots, np.array(units)

    def _frequencies(self, wanted: Sequence[Spot] | None) -> tuple[Array, Array]:
        """Frequencies in Hz and as places; by default the audiometric ones that are in range."""
        axis = self.domain.smooth[0]
        if wanted is None:
            low, high = axis.values[0], axis.values[-1]
            wanted = [f for f in AUDIOMETRIC_HZ if low <= f <= high]
        checked = [axis.check(Tone(cast(float, f), 0.0).frequency_hz) for f in wanted]
        if not checked:
            raise Refusal("thresholds need at least one frequency")
        return np.array(checked), np.array([[axis.to_model(f)] for f in checked])

    def _design(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "max_tones": self.max_tones,
            "domain": self.domain.to_dict(),
            "limits": None if self.limits is None else self.limits.to_dict(),
            "other_ear": None if self.other_ear is None else self.other_ear.to_dict(),
            "transducer": self.transducer,
        }

    def to_dict(self) -> dict[str, Any]:
        """Design and trials as plain JSON data: all that is needed to go on elsewhere."""
        return {
            "kind": self.kind,
            "schema": SCHEMA,
            "design": self._design(),
            "trials": [trial.to_dict() for trial in self._trials],
        }

    @classmethod
    def _from_design(cls, design: dict[str, Any]) -> Self:
        raise NotImplementedError

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild an exam from `to_dict`'s data; it asks the same next tone."""
        try:
            if data["kind"] != cls.kind or data["schema"] != SCHEMA:
                raise Refusal(
                    f"expected data of kind {cls.kind!r}, schema {SCHEMA}, "
                    f"got {data['kind']!r}, {data['schema']!r}"
                )
            design = dict(data["design"])
            _ = design["seed"], design["max_tones"]  # a default here would ask other tones
            design["domain"] = Domain.from_dict(design["domain"])
            design["limits"] = None if design["limits"] is None else Limits(**design["limits"])
            if design.get("other_ear") is not None:
                design["other_ear"] = Audiogram.from_dict(design["other_ear"])
            sitting = cls._from_design(design)
            trials = [Trial.from_dict(row) for row in data["trials"]]
        except (KeyError, TypeError, AttributeError) as error:
            raise Refusal(f"not the data of an earshift {cls.kind}: {error!r}") from None
        for trial in trials:
            sitting.tell(trial.tone, trial.heard)
        return sitting


def answers_of(trials: Sequence[Trial], domain: Domain) -> Answers:
    """Trials in model units."""
    return Answers.of(
        places=[domain.place_of(trial.tone) for trial in trials],
        intensities=[domain.intensity_of(trial.tone) for trial in trials],
        answers=[ep.HEARD if trial.heard else ep.MISSED for trial in trials],
        axes=len(domain.smooth),
    )


def halton_tone(seed: int, number: int, domain: Domain, mask: NDArray[np.bool_]) -> Tone:
    """Point `number` of the seed's scrambled Halton sequence, snapped to the allowed candidates."""
    from scipy.stats import qmc  # slow to import, and only needed here

    engine = qmc.Halton(
        d=len(domain.smooth) + 1, scramble=True, rng=np.random.default_rng((seed, _HALTON))
    )
    engine.fast_forward(number)
    point = engine.random(1)[0]
    axes: list[Axis] = [*domain.smooth, domain.intensity]
    low = np.array([axis.model_values[0] for axis in axes])
    high = np.array([axis.model_values[-1] for axis in axes])
    target = low + point * (high - low)
    span = np.where(high > low, high - low, 1.0)
    playable = mask.any(axis=1)
    away = (((domain.places - target[:-1]) / span[:-1]) ** 2).sum(axis=1)
    place = int(np.where(playable, away, np.inf).argmin())
    level = int(np.where(mask[place], np.abs(domain.intensities - target[-1]), np.inf).argmin())
    return domain.tone(place, level)


def _for_ears(cls: type[Any], ears: str | None) -> type[Any]:
    """The class itself for one ear, its sibling in `bothears` for both."""
    if ears is None:
        return cls
    if ears != "both":
        raise Refusal(f"ears must be 'both', or left out for one ear, got {ears!r}")
    from earshift.engine import both_ears as bothears  # it builds on this module

    return {Exam: bothears.BothEarsExam, Screen: bothears.BothEarsScreen}.get(cls, cls)


class Exam(Sitting):
    """A first exam: Halton tones to look around, then the most informative tone, and again.

    `ears="both"` examines both ears together: see `bothears.BothEarsExam`.

    >>> exam = Exam(seed=1)
    >>> while not exam.done:
    ...     tone = exam.ask()
    ...     exam.tell(tone, heard=listener(tone))
    >>> exam.thresholds([500, 1000, 2000, 4000])
    """

    kind = "exam"

    def __new__(cls, *, ears: str | None = None, **_: Any) -> Self:
        exam: Self = super().__new__(_for_ears(cls, ears))
        return exam

    def __init__(
        self,
        *,
        ears: str | None = None,  # __new__ looks at it
        seed: int = 0,
        max_tones: int = 50,
        domain: str | Domain = "fine",
        limits: Limits | None = None,
        other_ear: Audiogram | None = None,
        transducer: str = "unknown",
        strategy: str = "bald",
        halton_tones: int = 15,
        guess: float = 0.0,
        lapse: float = 0.0,
    ) -> None:
        super().__init__(
            seed=seed,
            max_tones=max_tones,
            domain=domain,
            limits=limits,
            other_ear=other_ear,
            transducer=transducer,
        )
        known = [name for name in choose.STRATEGIES if name != "differential"]
        if strategy not in known:
            raise Refusal(
                f"strategy of an exam must be one of {', '.join(known)}, got {strategy!r}"
            )
        ep.check_rates(guess, lapse)
        self.strategy = strategy
        self.halton_tones = whole(halton_tones, "halton_tones", 0)
        self.guess, self.lapse = float(guess), float(lapse)
        self._fitted: tuple[int, Field] | None = None

    @classmethod
    def clinical(cls, **options: Any) -> Self:
        """An exam as a clinic runs it: an audiometer's tones, thresholds sought, human answers.

        The settings with the smallest threshold error after 50 tones on real ears (tuning half).
        """
        settings = {
            "domain": "audiometer",
            "strategy": "level_set",
            "halton_tones": 5,
            "guess": 0.01,
            "lapse": 0.02,
        }
        return cls(**{**settings, **options})

    @property
    def done(self) -> bool:
        """Advice: enough tones. Asking and telling go on working."""
        return len(self._trials) >= self.max_tones

    @property
    def field(self) -> Field:
        """The psychometric field fitted to all trials so far."""
        count = len(self._trials)
        if self._fitted is None or self._fitted[0] != count:
            fitted = field.fit(self._answers, hyperprior(), self.guess, self.lapse)
            self._fitted = (count, fitted)
        return self._fitted[1]

    def scores(self) -> Array:
        outlook = choose.Outlook(
            rng=self._rng(_SAMPLE),
            guess=self.guess,
            lapse=self.lapse,
            latent=self._moments,
            shape=self._shape,
        )
        return choose.STRATEGIES[self.strategy](outlook)

    def _moments(self) -> tuple[Array, Array]:
        """Mean and variance of the latent of every candidate."""
        return self.field.moments(self.domain.places, self.domain.intensities)

    def _choose(self) -> Tone:
        count = len(self._trials)
        if count < self.halton_tones:
            return halton_tone(self.seed, count, self.domain, self._playable())
        return super()._choose()

    def thresholds(
        self, frequencies_hz: Sequence[Spot] | None = None, *, ear: str | None = None
    ) -> list[Threshold]:
        """Thresholds in dB HL with 95 % intervals, from the field's samples with rising slope.

        On other axes than a tone's the places are numbers (tuples of them with several smooth
        axes), all of the domain's by default, and each result is a `PlaceThreshold`. `ear` is for
        an exam of both ears, which has two fields.
        """
        if ear is not None:
            raise Refusal(f"this exam is of one ear: leave out ear={ear!r}")
        return self._thresholds_of(self.field, frequencies_hz)

    def _thresholds_of(
        self, known: Field, frequencies_hz: Sequence[Spot] | None
    ) -> list[Threshold]:
        spots, places = self._spots(frequencies_hz)
        mean, cov = known.latent(places)
        draws = field.positive_slope_samples(mean, cov, [0], SAMPLES, self._rng(_SAMPLE))
        levels = -draws[:, 1:] / draws[:, :1]
        return thresholds_from_samples(spots, levels, self.domain)

    def refitted(self, domain: Domain, prior: Hyperprior, guess: float, lapse: float) -> Field:
        """The field of these trials as a screen sees it: its domain, prior and listener."""
        return field.fit(answers_of(self._trials, domain), prior, guess, lapse)

    def _design(self) -> dict[str, Any]:
        return {
            **super()._design(),
            "strategy": self.strategy,
            "halton_tones": self.halton_tones,
            "guess": self.guess,
            "lapse": self.lapse,
        }

    @classmethod
    def _from_design(cls, design: dict[str, Any]) -> Self:
        return cls(**design)


def thresholds_from_samples(
    spots: Sequence[tuple[float, ...]], levels: Array, domain: Domain
) -> list[Threshold]:
    """Median and 95 % interval of sampled thresholds (model units), cut to the domain."""
    axis = domain.intensity
    low_edge, high_edge = axis.values[0], axis.values[-1]
    out = []
    for k, spot in enumerate(spots):
        middle, low, high = (
            axis.from_model(float(q)) for q in np.quantile(levels[:, k], (0.5, 0.025, 0.975))
        )
        censored = "below" if middle < low_edge else "above" if middle > high_edge else None
        cut = [min(max(v, low_edge), high_edge) for v in (middle, low, high)]
        if domain.of_tones:
            out.append(Threshold(spot[0], cut[0], cut[1], cut[2], censored))
        else:
            there = PlaceThreshold(_named(spot, domain), cut[0], cut[1], cut[2], censored)
            out.append(cast(Threshold, there))
    return out


def _named(spot: tuple[float, ...], domain: Domain) -> tuple[tuple[str, float], ...]:
    """A place by the names of the smooth axes."""
    return tuple((axis.name, value) for axis, value in zip(domain.smooth, spot, strict=True))


@dataclass(frozen=True)
class Shift:
    """Change of one threshold in dB, worse is positive: median and 95 % interval.

    Under a rule, of the whole posterior; without one, under the hypothesis that the ear is another
    (if it is the same the shift is zero). `censored` says that the old or the new threshold lies
    outside the domain's levels, so that the size is a guess.
    """

    frequency_hz: float
    shift_db: float
    low_db: float
    high_db: float
    censored: bool


@dataclass(frozen=True)
class PlaceShift:
    """A shift on other axes than a tone's: its place by the axes' names, else as `Shift`.

    In the intensity's unit; on a logarithmic intensity axis in octaves.
    """

    place: tuple[tuple[str, float], ...]
    shift: float
    low: float
    high: float
    censored: bool


@dataclass(frozen=True)
class Verdict:
    """What a screen says now."""

    decision: str  # changed, unchanged, inconclusive or not determinable; notch or no notch
    p_changed: float  # under a rule: P(rule met); of a notch: P(notch)
    log_bf: float  # log evidence of changed over unchanged
    tones: int
    shifts: tuple[Shift, ...]
    converged: bool
    protocol: str | None  # the named settings, without a rule; or "notch"
    rule: str | None = None
    catch_trials: int = 0
    false_alarms: int = 0
    reliability: str = "good"  # good, fair or poor
    evidence_hz: tuple[float, ...] = ()  # under a rule: the frequencies that carry the decision
    unverified: str | None = None  # a rule that was not checked against its source says so here
    not_determinable_hz: tuple[float, ...] = ()  # of the rule: where nothing can be said
    notes: tuple[str, ...] = ()  # sentences that belong to every output

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        # On other axes than a tone's there is nothing to hear.
        elsewhere = any(isinstance(shift, PlaceShift) for shift in self.shifts)
        if self.protocol == NOTCH:
            words = {
                "notch": "A notch around 3-6 kHz",
                "no notch": "No notch around 3-6 kHz",
                "inconclusive": "Not decided whether there is a notch around 3-6 kHz",
                "not determinable": "Whether there is a notch around 3-6 kHz is not determinable",
            }[self.decision]
            what = "probability of a notch"
        elif self.rule is None:
            words = {
                "changed": f"{'Answers have' if elsewhere else 'Hearing has'} changed from the "
                "reference",
                "unchanged": "No change from the reference",
                "inconclusive": "Not decided",
                "not determinable": "Whether hearing has changed is not determinable",
            }[self.decision]
            what = "probability of change"
        else:
            words = {
                "changed": f"The rule {self.rule} is met",
                "unchanged": f"The rule {self.rule} is not met",
                "inconclusive": f"Not decided whether the rule {self.rule} is met",
                "not determinable": f"Whether the rule {self.rule} is met is not determinable",
            }[self.decision]
            what = "probability that it is met"
        doubt = "" if self.converged else " The numerical fit did not settle: treat with care."
        added = "".join(f" {note}" for note in (self.unverified, *self.notes) if note)
        unit = "trial" if elsewhere else "tone"
        after = f"after {self.tones} {unit}{'s' if self.tones != 1 else ''}"
        if self.decision == "not determinable":  # a probability would pass for an answer
            return f"{words} {after}.{doubt}{added}"
        return f"{words}: {what} {self.p_changed:.1%} {after}.{doubt}{added}"


Reference = Exam | Audiogram | Norm
_REFERENCES: dict[str, type[Exam] | type[Audiogram] | type[Norm]] = {
    "exam": Exam,
    "audiogram": Audiogram,
    "norm": Norm,
}


class Screen(Sitting):
    """Has this ear changed from its reference? Asks the tones that answer just that.

    With `rule`, "changed" means that the threshold-shift rule is met; without, that another field
    than the reference's explains the answers (Bayesian active differential selection). With
    `hypotheses="notch"` there is no reference: the question is whether the audiogram has a notch
    around 3-6 kHz, and the decision "notch" or "no notch" (`notch.py`).

    A rule's frequency is not determinable where the reference has no threshold, where a shift as
    large as the rule asks would need tones louder than the domain or the limits allow, or where the
    other ear might hear them: `other_ear` gives its thresholds and `transducer` how much the head
    keeps from it. Tones that the other ear might hear are never asked.

    `ears="both"` screens both ears together: see `bothears.BothEarsScreen`.

    >>> screen = Screen(reference=first, rule="osha-sts")
    >>> while not screen.done:
    ...     tone = screen.ask()
    ...     screen.tell(tone, heard=listener(tone))
    >>> print(screen.verdict())
    """

    kind = "screen"

    def __new__(cls, *given: Any, ears: str | None = None, **options: Any) -> Any:
        chosen = _for_ears(cls, ears)
        return super().__new__(cls) if chosen is cls else chosen(*given, **options)

    def __init__(
        self,
        reference: Reference | None = None,
        protocol: str | Protocol | None = None,
        *,
        rule: str | Rule | None = None,
        hypotheses: str | None = None,
        settings: RuleSettings | NotchSettings | None = None,
        allow_unverified: bool = False,
        other_ear: Audiogram | None = None,
        transducer: str = "unknown",
        seed: int = 0,
        max_tones: int | None = None,
        domain: str | Domain | None = None,
        limits: Limits | None = None,
    ) -> None:
        if rule is not None and protocol is not None:
            raise Refusal("give a rule or a protocol, not both: they ask different questions")
        if hypotheses is not None:
            _check_hypotheses(hypotheses, reference, protocol, rule)
        if rule is None and hypotheses is None and settings is not None:
            raise Refusal("settings belong to a rule; without one give a protocol")
        self.rule = None if rule is None else as_rule(rule, allow_unverified)
        self.hypotheses = hypotheses
        self.protocol = as_protocol("best" if protocol is None else protocol)
        kind = RuleSettings if hypotheses is None else NotchSettings
        if settings is not None and not isinstance(settings, kind):
            raise Refusal(f"settings must be earshift.{kind.__name__}, got {settings!r}")
        self.settings = settings if isinstance(settings, RuleSettings) else RuleSettings()
        self.notch = settings if isinstance(settings, NotchSettings) else NotchSettings()
        for asked_for in (self.protocol, self.settings, self.notch):
            if asked_for.strategy not in choose.STRATEGIES:
                raise Refusal(
                    f"strategy must be one of {', '.join(choose.STRATEGIES)}, "
                    f"got {asked_for.strategy!r}"
                )
        if domain is None:
            domain = reference.domain if isinstance(reference, Exam) else "fine"
        asked = self._asked
        super().__init__(
            seed=seed,
            max_tones=asked.max_tones if max_tones is None else max_tones,
            domain=domain,
            limits=limits,
            other_ear=other_ear,
            transducer=transducer,
        )
        self.guess, self.lapse = asked.guess, asked.lapse
        # Kept as data: what happens to the reference exam later is no concern of this screen.
        self._reference_data = None if hypotheses else _reference_to_dict(reference)
        if reference is None:  # nobody's earlier exam: what is known is the population
            reference = population_norm()
        prior = hyperprior(reading_sd_db=self.protocol.reading_sd_db)
        self.reference_field = _reference_field(
            reference, self.domain, prior, self.guess, self.lapse
        )
        if self.reference_field.slope_mean > 0:
            prior = hyperprior(sloped=True)
        self._prior = prior
        if self.limits is not None and self.domain.of_tones:
            self._reference_levels = self._find_reference_levels(reference)
        self._obstacles: dict[float, str] = {}
        self._question: ModelQuestion | ShiftModel | NotchModel
        if self.hypotheses is not None:
            self._question = NotchModel(self.domain, self.notch)
            self._obstacles = self._find_unplayable(LOWEST_HZ, HIGHEST_HZ)
        elif self.rule is None:
            self._obstacles = self._find_unreachable()
            self._question = ModelQuestion(self.reference_field, self.protocol, prior)
        else:
            if not self.domain.of_tones:
                raise Refusal("threshold-shift rules need a domain of tones")
            self._obstacles = self._find_obstacles(reference, self.rule)
            self._question = ShiftModel(
                self.reference_field, self.domain, self.rule, self.settings, self.seed,
                unusable_hz=self._obstacles,
            )  # fmt: skip
        self._states: list[ModelState | ShiftState | NotchState] = []
        self._catches: tuple[bool, ...] = ()
        self._presses = 0

    def _thresholds_before(self, places: Array) -> Array:
        """The reference's thresholds at these places, in the unit of the domain's levels."""
        mean, _ = self.reference_field.latent(places)
        axis = self.domain.intensity
        return axis.origin - axis.scale * mean[1:] / max(float(mean[0]), SMALLEST_SLOPE)

    def _find_reference_levels(self, reference: Reference) -> Array | None:
        """This ear's earlier thresholds at all places; nan beyond the measured frequencies."""
        if isinstance(reference, Norm):
            return None  # other people's
        levels = self._thresholds_before(self.domain.places)
        if isinstance(reference, Audiogram):
            measured = [*reference.thresholds_db_hl, *reference.no_response_db_hl]
            frequencies = np.array(self.domain.smooth[0].values)
            levels[(frequencies < min(measured)) | (frequencies > max(measured))] = np.nan
        return levels

    def _range_at(self, frequencies: Array) -> tuple[Array, Array]:
        """The softest and loudest level that may ever be played at these frequencies."""
        axis = self.domain.intensity
        softest = np.full(frequencies.size, axis.values[0])
        loudest = np.full(frequencies.size, axis.values[-1])
        if self.limits is not None:
            low, high = self.limits.range_at(self.domain)
            nearest = [
                int(np.abs(np.log2(np.array(self.domain.smooth[0].values) / f)).argmin())
                for f in frequencies
            ]
            softest, loudest = np.maximum(softest, low[nearest]), np.minimum(loudest, high[nearest])
        return softest, loudest

    def _find_unreachable(self) -> dict[float, str]:
        """Frequencies at which the limits let nothing be heard even by an unchanged ear."""
        if self._reference_levels is None or self.limits is None:
            return {}
        unit = self.domain.intensity.unit
        found = {}
        for f, level, reach in zip(
            self.domain.smooth[0].values,
            self._reference_levels,
            self.limits.reach(self.domain),
            strict=True,
        ):
            if reach is None:
                found[f] = "the device does not play it"
            elif level > reach[1]:
                found[f] = f"the reference lies above the loudest tone, {reach[1]:g} {unit}"
            elif level + SMALL_CHANGE_DB < reach[0]:
                found[f] = f"the device plays nothing softer than {reach[0]:g} {unit}"
        return found

    def _find_unplayable(self, low_hz: float, high_hz: float) -> dict[float, str]:
        """Frequencies between these two at which the limits let nothing be played."""
        frequencies = np.array(self.domain.smooth[0].values)
        softest, loudest = self._range_at(frequencies)
        return {
            float(f): "the device does not play it"
            for f, low, high in zip(frequencies, softest, loudest, strict=True)
            if low_hz <= f <= high_hz and not low <= high
        }

    @property
    def _asked(self) -> Protocol | RuleSettings | NotchSettings:
        """The settings of the question that is asked."""
        if self.hypotheses is not None:
            return self.notch
        return self.protocol if self.rule is None else self.settings

    def _find_obstacles(self, reference: Reference, rule: Rule) -> dict[float, str]:
        """The rule's frequencies at which nothing can be said, and why."""
        found: dict[float, str] = {}
        known = _measured(reference)
        frequencies, places = self._frequencies(rule.frequencies_hz)
        levels = self._thresholds_before(places)
        unit = self.domain.intensity.unit
        for f, level, softest, top in zip(
            rule.frequencies_hz, levels, *self._range_at(frequencies), strict=True
        ):
            needed = max(c.at_least_db for c in rule.criteria if f in c.frequencies_hz)
            crossing = crossing_level(self.other_ear, self.transducer, f)
            if known is not None and f not in known:
                found[f] = "the reference has no threshold there"
            elif not softest <= top:
                found[f] = "the device does not play it"
            elif level + needed > top:
                found[f] = f"a shift of {needed:g} dB would need tones above {top:g} {unit}"
            elif level + needed < softest:
                found[f] = f"the device plays nothing softer than {softest:g} {unit}"
            elif level + needed >= crossing:
                found[f] = "the other ear might hear the tones"
        return found

    def tell_catch(self, heard: object) -> None:
        """Take the answer to a silent trial: it says how reliable the others are."""
        self._catches = (*self._catches, as_heard(heard))

    def tell_press(self) -> None:
        """Take note of a press of the button when nothing was to be answered."""
        self._presses += 1

    def fork(self) -> Self:
        other = super().fork()
        other._states = list(self._states)
        return other

    @property
    def state(self) -> "ModelState | ShiftState | NotchState":
        """What all trials so far say."""
        count, done = len(self._trials), self._states
        # A product of one-step predictions has to take every step, in order; others need the last.
        step_by_step = self._asked is self.protocol and self.protocol.evidence == "running"
        while not done or done[-1].answers.count != count:
            number = min(len(done), count) if step_by_step else count
            answers = answers_of(self._trials[:number], self.domain)
            if isinstance(self._question, ModelQuestion):
                before = done[-1] if step_by_step and done else None
                assert before is None or isinstance(before, ModelState)
                done.append(self._question.assess(answers, before))
            else:
                done.append(self._question.assess(answers))
        return done[-1]

    @property
    def log_bf(self) -> float:
        """Log Bayes factor: log evidence of changed over unchanged."""
        return self.state.log_bf

    @property
    def p_changed(self) -> float:
        """Posterior probability of change; under a rule, that it is met; else of a notch."""
        return self.state.p_changed

    def p_changed_after(self, tones: int) -> float:
        """What `p_changed` was after the first so many tones."""
        earlier = self.fork()
        earlier._trials = self._trials[:tones]
        earlier._states = [state for state in self._states if state.answers.count <= tones]
        return earlier.p_changed

    @property
    def decision(self) -> str:
        """changed, unchanged, inconclusive or not determinable, by the evidence now.

        Of a notch: notch or no notch. Somebody who reports silence is not cleared by the tones they
        reported, and nobody is cleared at frequencies where the limits let nothing be heard.
        """
        decision = self.state.decision
        if decision not in ("unchanged", "no notch"):
            return decision
        if self.reliability == "poor":
            return "inconclusive"
        # Under a rule the question itself leaves such frequencies out.
        return "not determinable" if self.rule is None and self._obstacles else decision

    @property
    def done(self) -> bool:
        """Advice: decided, or enough tones. Asking and telling go on working."""
        return len(self._trials) >= self.max_tones or self.decision != "inconclusive"

    def scores(self) -> Array:
        state = self.state
        strategy = self._asked.strategy
        hypotheses = None
        if strategy in ("differential", "uncertainty"):
            hypotheses = state.hypotheses(self.domain.places, self.domain.intensities)
        outlook = choose.Outlook(
            rng=self._rng(_SAMPLE),
            guess=self.guess,
            lapse=self.lapse,
            latent=self._own_moments,
            shape=self.domain.shape,
            hypotheses=hypotheses,
        )
        return choose.STRATEGIES[strategy](outlook)

    def _own_moments(self) -> tuple[Array, Array]:
        """The field of the new exam alone, as if there were no reference."""
        alone = field.fit(self._answers, self._prior, self.guess, self.lapse)
        return alone.moments(self.domain.places, self.domain.intensities)

    def verdict(self, frequencies_hz: Sequence[Spot] | None = None) -> Verdict:
        """What the screen says now, with the shift in dB at each frequency.

        On other axes than a tone's the places are given as for `thresholds`, and each shift is a
        `PlaceShift`.
        """
        state = self.state
        return Verdict(
            decision=self.decision,
            p_changed=state.p_changed,
            log_bf=state.log_bf,
            tones=len(self._trials),
            shifts=self._shifts(frequencies_hz),
            converged=self.reference_field.converged and state.converged,
            protocol=self.hypotheses or (self.protocol.name if self.rule is None else None),
            rule=None if self.rule is None else self.rule.name,
            catch_trials=len(self._catches),
            false_alarms=sum(self._catches),
            reliability=self.reliability,
            evidence_hz=state.evidence_hz if isinstance(state, ShiftState) else (),
            unverified=None if self.rule is None else unverified_note(self.rule),
            not_determinable_hz=tuple(self._obstacles),
            notes=self._notes(state),
        )

    def _notes(self, state: "ModelState | ShiftState | NotchState") -> tuple[str, ...]:
        notes = []
        if any(self._catches):
            notes.append(
                f"{sum(self._catches)} of {len(self._catches)} silent trials were reported as "
                f"heard: reliability {self.reliability}."
            )
        if self._presses >= FAIR_PRESSES:
            notes.append(f"The button was pressed {self._presses} times when nothing was played.")
        loudest = max((getattr(t.tone, "level_db_hl", -np.inf) for t in self._trials), default=0.0)
        if self.other_ear is None and loudest >= UNCHECKED_DB_HL:
            notes.append("The other ear's thresholds were not given: cross-hearing not checked.")
        if self.hypotheses is not None:
            notes.append(POPULATION_NOTES[self.notch.population])
        reasons: dict[str, list[str]] = {}
        for f, reason in self._obstacles.items():
            reasons.setdefault(reason, []).append(f"{f:g}")
        for reason, where in reasons.items():
            notes.append(f"Not determinable at {', '.join(where)} Hz: {reason}.")
        if self.rule is None or not isinstance(state, ShiftState):
            return tuple(notes)
        if state.decision == "changed" and self.rule.confirm_by_retest:
            notes.append("The rule asks for an immediate retest of the same ear and frequency.")
        common = state.common_shift_db
        if common is not None:
            notes.append(
                f"A shift of {common[0]:+.0f} dB common to all frequencies: device or hearing, "
                "cannot be told apart."
            )
        return tuple(notes)

    @property
    def reliability(self) -> str:
        """As the answers to silence say; at best fair when the fit did not settle."""
        found = reliability(self._catches, self._presses, len(self._trials))
        settled = self.reference_field.converged and self.state.converged
        return "fair" if found == "good" and not settled else found

    def thresholds(self, frequencies_hz: Sequence[Spot] | None = None) -> list[Threshold]:
        """The ear's thresholds now, changed and unchanged weighed by their probability."""
        spots, places = self._spots(frequencies_hz)
        _, after = self.state.before_and_after(places, SAMPLES, self._rng(_SAMPLE), weighed=True)
        return thresholds_from_samples(spots, after, self.domain)

    def _shifts(self, frequencies_hz: Sequence[Spot] | None) -> tuple[Shift, ...]:
        spots, places = self._spots(frequencies_hz)
        before, after = self.state.before_and_after(
            places, SAMPLES, self._rng(_SAMPLE), weighed=False
        )
        axis = self.domain.intensity
        low, high = axis.model_values[0], axis.model_values[-1]
        # A threshold outside the domain is only known to be outside: cut, then compare.
        change = (np.clip(after, low, high) - np.clip(before, low, high)) * axis.scale
        middle, lower, upper = np.quantile(change, (0.5, 0.025, 0.975), axis=0)
        outside = np.zeros(len(spots), dtype=bool)
        for levels in (before, after):
            typical = np.median(levels, axis=0)
            outside |= (typical < low) | (typical > high)
        out = []
        for k, spot in enumerate(spots):
            sizes = float(middle[k]), float(lower[k]), float(upper[k])
            if self.domain.of_tones:
                out.append(Shift(spot[0], *sizes, bool(outside[k])))
            else:
                there = PlaceShift(_named(spot, self.domain), *sizes, bool(outside[k]))
                out.append(cast(Shift, there))
        return tuple(out)

    def continue_exam(self, max_tones: int = 50) -> Exam:
        """A full exam of this ear that begins with every tone of this screen."""
        return full_exam(self, self._trials, max_tones=max_tones)

    def _design(self) -> dict[str, Any]:
        by_protocol = self._asked is self.protocol
        design = {
            **super()._design(),
            "protocol": self.protocol.to_dict() if by_protocol else None,
            "rule": None if self.rule is None else self.rule.to_dict(),
            "settings": None if by_protocol else self._asked.to_dict(),
            "reference": self._reference_data,
        }
        return design if self.hypotheses is None else {**design, "hypotheses": self.hypotheses}

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "catches": list(self._catches), "presses": self._presses}

    @classmethod
    def _from_design(cls, design: dict[str, Any]) -> Self:
        data = design.pop("reference")
        if "hypotheses" in design:
            del design["protocol"], design["rule"]
            return cls(settings=NotchSettings(**design.pop("settings")), **design)
        return cls(reference_from_dict(data), **question_from_design(design))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        design = data.get("design") if isinstance(data, Mapping) else None
        ears = design.get("ears") if isinstance(design, Mapping) else None
        chosen = _for_ears(cls, ears)
        if chosen is not cls:
            return cast(Self, chosen.from_dict(data))
        screen = super().from_dict(data)
        for heard in stored_catches(data):
            screen.tell_catch(heard)
        screen._presses = whole(data.get("presses", 0), "presses", 0)
        return screen


def full_exam(screen: Screen, trials: Sequence[Trial], **options: Any) -> Exam:
    """An exam that seeks thresholds and begins with a screen's trials."""
    exam = Exam(**{
        "seed": screen.seed,
        "domain": screen.domain,
        "limits": screen.limits,
        "other_ear": screen.other_ear,
        "transducer": screen.transducer,
        "strategy": "level_set",
        "halton_tones": 0,
        "guess": screen.guess,
        "lapse": screen.lapse,
        **options,
    })  # fmt: skip
    for trial in trials:
        exam.tell(trial.tone, trial.heard)
    return exam


def stored_catches(data: Mapping[str, Any]) -> list[Any]:
    """The answers to silent trials in a screen's data."""
    try:
        return list(data["catches"])
    except (KeyError, TypeError) as error:
        raise Refusal(f"not the data of an earshift screen: {error!r}") from None


def question_from_design(design: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a screen in its stored design: rule or protocol, settings and the rest."""
    rest = {k: v for k, v in design.items() if k not in ("protocol", "rule", "settings")}
    protocol, rule, settings = (design[name] for name in ("protocol", "rule", "settings"))
    if (protocol is None) == (rule is None):
        raise Refusal("a screen's design has a protocol or a rule, and not both")
    return {
        **rest,
        "protocol": None if protocol is None else as_protocol(protocol),
        "rule": None if rule is None else Rule.from_dict(rule),
        "settings": None if settings is None else RuleSettings(**settings),
        "allow_unverified": True,
    }


def audiogram_of(reference: Exam | Audiogram) -> Audiogram:
    """The thresholds of a reference as an audiogram: for what the other ear might hear."""
    if isinstance(reference, Audiogram):
        return reference
    levels = reference.thresholds()
    heard = {t.frequency_hz: t.level_db_hl for t in levels if t.censored != "above"}
    beyond = {t.frequency_hz: t.level_db_hl for t in levels if t.censored == "above"}
    return Audiogram(heard, no_response_db_hl=beyond)


def reliability(catches: Sequence[bool], presses: int, tones: int) -> str:
    """good, fair or poor: how far answers can be trusted that were also given to silence.

    Poor when all silent trials were "heard", or two or more and over a third of them, and when the
    button was pressed between the tones more often than every other time. Fair when any silent
    trial was "heard", or at some presses.
    """
    alarms, silent = sum(catches), len(catches)
    if alarms and (alarms == silent or (alarms >= 2 and alarms > silent / 3)):
        return "poor"
    if presses >= POOR_PRESSES and presses > (tones + silent) / 2:
        return "poor"
    return "fair" if alarms or presses >= FAIR_PRESSES else "good"


def _measured(reference: Reference) -> set[float] | None:
    """The frequencies at which a reference has a threshold.

    An exam's field has one everywhere, unless its device left some frequencies out.
    """
    if isinstance(reference, Audiogram):
        return set(reference.thresholds_db_hl)
    if isinstance(reference, Norm):
        return set(reference.frequencies_hz)
    limits = reference.limits
    if limits is None or limits.device is None:
        return None
    frequencies = reference.domain.smooth[0].values
    reach = limits.reach(reference.domain)
    return {f for f, levels in zip(frequencies, reach, strict=True) if levels is not None}


def _check_hypotheses(hypotheses: object, *others: object) -> None:
    if hypotheses != NOTCH:
        raise Refusal(f'hypotheses must be "{NOTCH}" or None, got {hypotheses!r}')
    if any(other is not None for other in others):
        raise Refusal(
            'a screen with hypotheses="notch" has no reference, protocol or rule: leave them out'
        )


def reference_kind(reference: object) -> str:
    """exam, audiogram or norm; a ValueError for anything else."""
    for kind, known in _REFERENCES.items():
        if isinstance(reference, known):
            return kind
    raise Refusal(
        f"reference must be an earshift Exam, Audiogram or Norm, got {type(reference).__name__}"
        '; without one, only hypotheses="notch" can be asked'
    )


def _reference_to_dict(reference: Any) -> dict[str, Any]:
    return {"kind": reference_kind(reference), "data": reference.to_dict()}


def reference_from_dict(data: Mapping[str, Any]) -> Reference:
    """A reference from its kind and data, as a screen's design keeps it."""
    if data["kind"] not in _REFERENCES:
        raise Refusal(f"a reference is one of {', '.join(_REFERENCES)}, got {data['kind']!r}")
    return _REFERENCES[data["kind"]].from_dict(data["data"])


def _reference_field(
    reference: Reference, domain: Domain, prior: Hyperprior, guess: float, lapse: float
) -> Field:
    if isinstance(reference, Exam):
        if not reference.trials:
            raise Refusal(
                "the reference exam has no trials: run it first, or give an audiogram or a norm"
            )
        if reference.domain.names != domain.names:
            raise Refusal(
                f"the reference exam has the axes {', '.join(reference.domain.names)}, the screen "
                f"{', '.join(domain.names)}: they must be the same"
            )
        return reference.refitted(domain, prior, guess, lapse)
    if not domain.of_tones:
        raise Refusal(
            "an audiogram or a norm is a reference for tones alone; on other axes give an exam"
        )
    if isinstance(reference, Audiogram):
        return field.from_audiogram(reference, domain, guess, lapse)
    return field.from_norm(reference, domain, guess, lapse)
