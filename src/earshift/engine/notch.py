"""The noise notch: is there a dip around 3-6 kHz, in a person who has no earlier exam?

Bayesian active model selection between two kinds of audiogram. Without: an ear of a population
whose 3-6 kHz thresholds stand out from neither neighbour, a mixture of Gaussians learned from real
ears (`norms.json`). With: such an ear plus a Gaussian dip half an octave wide, whose centre and
depth are averaged over a small grid. Every part of either mixture is a field of its own, and the
answers are explained by it exactly as `change.same` explains them by a reference.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from earshift.engine import change, ep, field
from earshift.engine.answers import Answers, answers_of
from earshift.engine.checks import finite, whole
from earshift.engine.domain import Domain
from earshift.engine.field import Field
from earshift.engine.norms import Norm, tables
from earshift.engine.obstacles import unplayable
from earshift.engine.question import NO_NOTCH, Setup, obstacle_notes
from earshift.engine.refusal import Refusal
from earshift.engine.rules import Rule
from earshift.engine.tone import Trial
from earshift.engine.values import HEARING_LEVEL
from earshift.engine.verdict import NOTCH

Array = NDArray[np.float64]

CENTRES_HZ = (3000.0, 3570.0, 4240.0, 5050.0, 6000.0)
DEPTHS_DB = {15.0: 0.25, 20.0: 0.5, 26.0: 0.25}  # with their weights
DIP_SD_OCTAVES = 0.5
LOWEST_HZ, HIGHEST_HZ = 2000.0, 8000.0  # the neighbours that a notch stands out from
MOST_LOST = 0.01  # prior weight of parts without a fixed point that a state may leave out


# Whom the ear was compared with decides what counts as a notch: every verdict says it.
POPULATION_NOTES = {
    "level": "Compared with ears whose 3-6 kHz thresholds exceed neither 2 kHz nor 8 kHz by 10 dB: "
    "a steeply sloping loss may pass for a notch.",
    "any": "Compared with all ears without a notch, sloping losses among them: a notch in a level "
    "ear may pass for a slope.",
}


@dataclass(frozen=True)
class NotchSettings:
    """How a notch is screened for: whom to expect, and when to stop.

    The population `level` holds ears whose 3-6 kHz thresholds exceed neither 2 kHz nor 8 kHz by
    10 dB; `any` all ears without a notch, sloping losses among them. On those a dip of 20 dB and
    the slope are hard to tell apart, so `any` finds fewer notches in level ears.

    Attributes:
        population: whom to expect: "level" or "any".
        prevalence: probability of a notch before the first tone.
        notch_at: "notch" from this probability on.
        no_notch_at: "no notch" up to this probability.
        guess: probability of "heard" without hearing, from 0 to below 0.5.
        lapse: probability of "missed" in spite of hearing, from 0 to below 0.5.
        max_tones: after which the screen is done, decided or not.
        strategy: by which the next tone is chosen.
    """

    population: str = "level"
    prevalence: float = 0.5
    notch_at: float = 0.9
    no_notch_at: float = 0.1
    guess: float = 0.01
    lapse: float = 0.02
    max_tones: int = 20
    strategy: str = "differential"

    def __post_init__(self) -> None:
        known = tables()["without_notch"]["populations"]
        if self.population not in known:
            raise Refusal(f"population must be one of {', '.join(known)}, got {self.population!r}")
        for name in ("prevalence", "notch_at", "no_notch_at", "guess", "lapse"):
            object.__setattr__(self, name, finite(getattr(self, name), name))
        object.__setattr__(self, "max_tones", whole(self.max_tones, "max_tones", 1))
        if not 0.0 < self.no_notch_at < self.prevalence < self.notch_at < 1.0:
            raise Refusal(
                "settings need 0 < no_notch_at < prevalence < notch_at < 1, got "
                f"{self.no_notch_at}, {self.prevalence}, {self.notch_at}"
            )
        ep.check_rates(self.guess, self.lapse)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def dip(frequencies_hz: Array, centre_hz: float) -> Array:
    """A dip of unit depth at these frequencies."""
    octaves = np.log2(frequencies_hz / centre_hz)
    return np.asarray(np.exp(-0.5 * (octaves / DIP_SD_OCTAVES) ** 2))


@cache
def parts_without(population: str) -> tuple[tuple[float, Norm], ...]:
    """The population's Gaussians with their weights."""
    block = tables()["without_notch"]
    kind = block["populations"][population]
    rows = zip(kind["weights"], kind["mean_db_hl"], kind["covariance_db2"], strict=True)
    return tuple(
        (float(weight), Norm(tuple(block["frequencies_hz"]), tuple(mean), cov, block["source"]))
        for weight, mean, cov in rows
    )


@dataclass(frozen=True)
class Part:
    """One field of a mixture: an ear of some kind, with or without a dip."""

    norm: Norm  # its thresholds, dip included
    field: Field
    weight: float  # prior, within its hypothesis
    centre_hz: float = CENTRES_HZ[0]
    depth_db: float = 0.0  # none


class NotchModel:
    """The two hypotheses before any answer."""

    judges_around_obstacles = False
    protocol_name: str | None = NOTCH
    rule: Rule | None = None

    def __init__(
        self,
        domain: Domain,
        settings: NotchSettings,
        obstacles: Mapping[float, str] | None = None,
    ) -> None:
        self.obstacles = {} if obstacles is None else obstacles
        if not domain.of_tones or domain.intensity.unit != HEARING_LEVEL:
            raise Refusal("a notch is judged against other people: it needs tones in dB HL")
        axis = domain.smooth[0]
        if axis.values[0] > LOWEST_HZ or axis.values[-1] < HIGHEST_HZ:
            raise Refusal(
                f"a notch is judged between {LOWEST_HZ:g} and {HIGHEST_HZ:g} Hz; the domain has "
                f"only {axis.values[0]:g} to {axis.values[-1]:g} Hz"
            )
        self.domain, self.settings = domain, settings
        kinds = parts_without(settings.population)
        self.without = tuple(self._part(norm, weight) for weight, norm in kinds)
        self.having = tuple(
            self._part(norm, weight * share / len(CENTRES_HZ), centre, depth)
            for (weight, norm), centre, (depth, share) in product(
                kinds, CENTRES_HZ, DEPTHS_DB.items()
            )
        )

    def _part(
        self, norm: Norm, weight: float, centre_hz: float = CENTRES_HZ[0], depth_db: float = 0.0
    ) -> Part:
        shape = depth_db * dip(np.array(norm.frequencies_hz), centre_hz)
        moved = replace(norm, mean_db_hl=tuple(np.array(norm.mean_db_hl) + shape))
        expected = field.from_norm(moved, self.domain, self.settings.guess, self.settings.lapse)
        return Part(moved, expected, weight, centre_hz, depth_db)

    @classmethod
    def asked(cls, setup: Setup, settings: NotchSettings) -> Self:
        """The question whether there is a notch, with what stands in its way."""
        return cls(setup.domain, settings, unplayable(setup, LOWEST_HZ, HIGHEST_HZ))

    def assess(self, trials: Sequence[Trial], before: "NotchState | None" = None) -> "NotchState":
        """Everything the trials say; what was known before the last of them is of no use here."""
        return self.weigh(answers_of(trials, self.domain))

    def weigh(self, answers: Answers) -> "NotchState":
        """What the answers say of either hypothesis."""
        with ep.compiling("screen"):
            without, having = (Mixture.of(parts, answers) for parts in (self.without, self.having))
        return NotchState(self, answers, without, having)


@dataclass(frozen=True)
class Mixture:
    """A hypothesis after some answers: its parts fitted and weighed by their evidence."""

    parts: tuple[Part, ...]
    fits: tuple[change.Hypothesis, ...]
    weights: Array
    log_evidence: float
    converged: bool

    @classmethod
    def of(cls, parts: tuple[Part, ...], answers: Answers) -> "Mixture":
        fits = tuple(change.same(part.field, answers) for part in parts)
        prior = np.array([part.weight for part in parts])
        usable = np.array([fit.converged and math.isfinite(fit.log_evidence) for fit in fits])
        if not usable.any():  # no fixed point anywhere, no evidence: the prior, and it says so
            return cls(parts, fits, prior / prior.sum(), 0.0, False)
        # EP has no fixed point only where the answers all but refute a part: it counts for nothing.
        logs = np.array([fit.log_evidence for fit in fits])
        logs = np.where(usable, logs, -np.inf) + np.log(prior)
        top = logs.max()
        mass = np.exp(logs - top)
        return cls(
            parts, fits, mass / mass.sum(), float(top + np.log(mass.sum())),
            bool(prior[~usable].sum() < MOST_LOST),
        )  # fmt: skip

    def p_heard(self, places: Array, intensities: Array) -> Array:
        """P(heard) on places x intensities, averaged over the parts."""
        out = np.zeros((places.shape[0], intensities.size))
        for fit, weight in zip(self.fits, self.weights, strict=True):
            if weight > 1e-6:
                out += weight * fit.p_heard(places, intensities)
        return np.asarray(out / self.weights[self.weights > 1e-6].sum())

    def draw(self, places: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Samples of the thresholds in model units, and of the dip in dB, at the places."""
        levels, depths = [], []
        frequencies = 1000.0 * 2.0 ** places[:, 0]
        shares = rng.multinomial(count, self.weights)
        for part, fit, share in zip(self.parts, self.fits, shares, strict=True):
            if share:
                levels.append(fit.before_and_after(places, int(share), rng)[1])
                shape = part.depth_db * dip(frequencies, part.centre_hz)
                depths.append(np.repeat(shape[None], share, axis=0))
        return np.concatenate(levels), np.concatenate(depths)


@dataclass(frozen=True)
class NotchState:
    """Both hypotheses after some answers; "changed" stands for the ear with a notch."""

    model: NotchModel
    answers: Answers
    without: Mixture
    having: Mixture

    evidence_hz: tuple[float, ...] = ()

    @property
    def tones(self) -> int:
        return self.answers.count

    @property
    def notes(self) -> tuple[str, ...]:
        """Whom the ear was compared with, and where nothing could be said."""
        population = POPULATION_NOTES[self.model.settings.population]
        return population, *obstacle_notes(self.model.obstacles)

    def tied(self, other: Self, p_same_change: float) -> Self:
        """The same: a notch in one ear says nothing here about the other."""
        return self

    @property
    def converged(self) -> bool:
        return self.without.converged and self.having.converged

    @property
    def log_bf(self) -> float:
        """Log evidence of a notch over none."""
        return self.having.log_evidence - self.without.log_evidence

    @property
    def p_changed(self) -> float:
        """P(notch | answers)."""
        return change.posterior(self.log_bf, self.model.settings.prevalence)

    @property
    def decision(self) -> str:
        settings = self.model.settings
        if self.p_changed >= settings.notch_at:
            return "notch"
        return NO_NOTCH if self.p_changed <= settings.no_notch_at else "inconclusive"

    def hypotheses(self, places: Array, intensities: Array) -> tuple[Array, Array]:
        """Probabilities of none and of a notch, and P(heard) of each on places x intensities."""
        heard = [mixture.p_heard(places, intensities) for mixture in (self.without, self.having)]
        return np.array([1.0 - self.p_changed, self.p_changed]), np.array(heard)

    def before_and_after(
        self, places: Array, count: int, rng: np.random.Generator, weighed: bool
    ) -> tuple[Array, Array]:
        """Samples of the thresholds without their dip, and as they are, in model units.

        Of both hypotheses by their probability (`weighed`), or of the notched ear alone.
        """
        notched = int(rng.binomial(count, self.p_changed)) if weighed else count
        parts = [
            mixture.draw(places, number, rng)
            for mixture, number in ((self.having, notched), (self.without, count - notched))
            if number
        ]
        after, depth = (np.concatenate(pair) for pair in zip(*parts, strict=True))
        return after - depth / self.model.domain.intensity.scale, after
