"""What a screen can ask, and what the answers say: the contract of every question.

A `Question` holds what is asked, its settings, and what stands in its way; its `assess` turns
trials into a `Posterior`, which holds everything that a screen wants to know. `Screen` is built on
these two alone. To add a question, write the two classes and name the question in `screen.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from earshift.engine.audiogram import Audiogram
from earshift.engine.domain import Domain
from earshift.engine.limits import Limits
from earshift.engine.norms import Hyperprior
from earshift.engine.rules import Rule
from earshift.engine.strategy import Strategy
from earshift.engine.thresholds import SMALLEST_SLOPE, threshold
from earshift.engine.tone import Trial

if TYPE_CHECKING:  # a field loads its compiled kernels, which not every question needs
    from earshift.engine.field import Field

Array = NDArray[np.float64]

UNCHANGED, NO_NOTCH = "unchanged", "no notch"
CLEARING = (UNCHANGED, NO_NOTCH)  # decisions that send somebody home


class Settings(Protocol):
    """What every question's settings have; each question has further ones of its own."""

    @property
    def strategy(self) -> str | Strategy:
        """By which the next tone is chosen: one of `choose.STRATEGIES`, or the user's own."""

    @property
    def guess(self) -> float:
        """Probability of "heard" without hearing."""

    @property
    def lapse(self) -> float:
        """Probability of "missed" in spite of hearing."""

    @property
    def max_tones(self) -> int:
        """After which a screen is done, decided or not."""

    def to_dict(self) -> dict[str, Any]:
        """As plain data; a stored design keeps it."""


class Posterior(Protocol):
    """What some answers say."""

    @property
    def tones(self) -> int:
        """How many answers it stands on."""

    @property
    def p_changed(self) -> float:
        """Posterior probability of what is asked: of change, of a rule met, of a notch."""

    @property
    def log_bf(self) -> float:
        """Log evidence for what is asked over the contrary."""

    @property
    def decision(self) -> str:
        """changed, unchanged, inconclusive or not determinable; of a notch, notch or no notch."""

    @property
    def converged(self) -> bool:
        """Whether the numerical fit settled."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that belong to every output."""

    @property
    def evidence_hz(self) -> tuple[float, ...]:
        """The frequencies that carry the decision, where that can be said."""

    def hypotheses(self, places: Array, intensities: Array) -> tuple[Array, Array]:
        """Probability of each hypothesis, and P(heard) under it on places x intensities."""

    def before_and_after(
        self, places: Array, count: int, rng: np.random.Generator, weighed: bool
    ) -> tuple[Array, Array]:
        """Samples of the old and the new thresholds together, in model units: (count, places).

        Of all hypotheses by their probability (`weighed`), or of the changed ear alone.
        """

    def tied(self, other: Self, p_same_change: float) -> Self:
        """This ear's posterior when the other ear of the person may have changed with it."""


class Question(Protocol):
    """What is asked of one ear, and what stays fixed while the answers come in."""

    @property
    def settings(self) -> Settings:
        """The question's own settings."""

    @property
    def obstacles(self) -> Mapping[float, str]:
        """Frequencies in Hz at which nothing can be said, and why."""

    @property
    def judges_around_obstacles(self) -> bool:
        """Whether its decision already leaves the obstacles out; else they prevent a clearing."""

    @property
    def protocol_name(self) -> str | None:
        """The name that a verdict carries, where no rule is asked about."""

    @property
    def rule(self) -> Rule | None:
        """The rule that is asked about, if it is one."""

    # Typed by what every posterior is: a question takes back only posteriors of its own.
    def assess(self, trials: Sequence[Trial], before: Any = None) -> Posterior:
        """Everything the trials say.

        `before`, when given, is the posterior of all trials but the last. It only saves work: the
        answer is the same without it.
        """


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What can be played to an ear, and how much of it is known from before.

    Attributes:
        domain: the candidate tones.
        limits: how loud they may be; None for no limits.
        other_ear: thresholds of the other ear, if they are known.
        transducer: one of `values.TRANSDUCERS`; says how much the head keeps from the other ear.
        seed: of the screen's chance.
        measured_hz: frequencies at which the reference has a threshold; None for everywhere.
        reference_levels: the ear's own earlier threshold at every place, in the unit of the
            domain's levels, nan where it is unknown; None where nothing is known of this ear.
    """

    domain: Domain
    limits: Limits | None
    other_ear: Audiogram | None
    transducer: str
    seed: int
    measured_hz: frozenset[float] | None
    reference_levels: Array | None

    def range_at(self, frequencies_hz: Array) -> tuple[Array, Array]:
        """The softest and loudest level that may ever be played at these frequencies."""
        axis = self.domain.intensity
        softest = np.full(frequencies_hz.size, axis.values[0])
        loudest = np.full(frequencies_hz.size, axis.values[-1])
        if self.limits is not None:
            low, high = self.limits.range_at(self.domain)
            nearest = [
                int(np.abs(np.log2(np.array(self.domain.smooth[0].values) / f)).argmin())
                for f in frequencies_hz
            ]
            softest, loudest = np.maximum(softest, low[nearest]), np.minimum(loudest, high[nearest])
        return softest, loudest


@dataclass(frozen=True, kw_only=True)
class Setup(Circumstances):
    """What a question about fields finds when it is asked.

    Attributes:
        reference: the field of the reference.
        prior: hyperprior of a new field.
    """

    reference: "Field"
    prior: Hyperprior


def levels_of(field: "Field", places: Array, domain: Domain) -> Array:
    """A field's mean thresholds at these places, in the unit of the domain's levels."""
    mean, _ = field.latent(places)
    axis = domain.intensity
    levels = threshold(max(float(mean[0]), SMALLEST_SLOPE), mean[1:])
    return np.array([axis.from_model(float(level)) for level in levels])


def obstacle_notes(obstacles: Mapping[float, str]) -> tuple[str, ...]:
    """One sentence for every reason why nothing can be said somewhere."""
    reasons: dict[str, list[str]] = {}
    for f, reason in obstacles.items():
        reasons.setdefault(reason, []).append(f"{f:g}")
    return tuple(
        f"Not determinable at {', '.join(where)} Hz: {reason}." for reason, where in reasons.items()
    )
