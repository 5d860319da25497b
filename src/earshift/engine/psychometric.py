"""What a posterior says of psychometric functions: thresholds, slope, width, rates, fit.

P(heard) = guess + (1 - guess - lapse) Phi((level - threshold) / spread), drawn many times.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, rel_entr

from earshift.engine import plots
from earshift.engine.checks import finite
from earshift.engine.refusal import Refusal
from earshift.engine.tables import Row, html

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Groups = NDArray[np.intp]

STEEPEST = 1.0 / math.sqrt(2.0 * math.pi)  # slope of Phi at zero
WIDTH = float(ndtri(0.95) - ndtri(0.05))  # from 5 % to 95 %, in spreads
INTERVAL = (0.5, 0.025, 0.975)
LEAST_P = 1e-12  # of an answer: its logarithm has to be a number
BINS_OF_A_CURVE = 121


@dataclass(frozen=True)
class Estimate:
    """A number that is not known exactly.

    Attributes:
        value: the estimate: the posterior's median, of a rate its mean.
        low: lower end of its 95 % interval.
        high: upper end of its 95 % interval; the same as `low` where the number was given.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True, eq=False)
class Curves:
    """Psychometric functions drawn from a posterior, at some places, in model units.

    Attributes:
        threshold: (draws, places).
        spread: (draws, places), or (draws, 1) where it is the same everywhere.
        guess: (draws,).
        lapse: (draws,).
    """

    threshold: Array
    spread: Array
    guess: Array
    lapse: Array

    def at_performance(self, performance: float) -> Array:
        """Where this share of the way from guess to 1 - lapse is reached: (draws, places)."""
        if performance == 0.5:
            return self.threshold
        return np.asarray(self.threshold + self.spread * ndtri(performance))

    def p_heard(self, levels: Array, place: int) -> Array:
        """P(heard) of these levels at a place, in every draw: (draws, levels)."""
        spread = self.spread[:, min(place, self.spread.shape[1] - 1)]
        z = (levels[None, :] - self.threshold[:, place, None]) / spread[:, None]
        gain = 1.0 - self.guess - self.lapse
        return np.asarray(self.guess[:, None] + gain[:, None] * ndtr(z))


def as_performance(given: object) -> float:
    """The share of the way from the guess rate to 1 - lapse rate, or a refusal."""
    value = finite(given, "performance")
    if not 0.0 < value < 1.0:
        raise Refusal(
            f"performance is a share of the audible range between 0 and 1, got {given!r}",
            advice="0.75 is three quarters of the way from the guess rate to 1 - lapse rate",
        )
    return value


def estimate(draws: Array) -> Estimate:
    """Median and 95 % interval of draws."""
    return Estimate(*(float(q) for q in np.quantile(draws, INTERVAL)))


def rate_estimate(rates: Array, weights: Array) -> Estimate:
    """Mean and 95 % interval of a rate on a grid with these weights."""
    order = np.argsort(rates)
    rates, weights = rates[order], weights[order] / weights.sum()
    edges = np.cumsum(weights)
    low, high = (
        float(rates[min(int(np.searchsorted(edges, q)), rates.size - 1)]) for q in (0.025, 0.975)
    )
    return Estimate(float(rates @ weights), low, high)


@dataclass(frozen=True)
class Psychometric:
    """The psychometric function of one place: a tone's frequency, as a rule.

    Attributes:
        place: where, by the axes' names: (("frequency_hz", 1000.0),).
        unit: of the intensity: dB HL as a rule.
        threshold: the intensity that is heard half of the time, guesses and lapses aside.
        slope: steepest rise of P(heard) per unit (per octave on a logarithmic intensity axis),
            guesses and lapses aside.
        width: from 5 % to 95 %, guesses and lapses aside, in the unit (in octaves, as above).
        guess: probability of "heard" without hearing.
        lapse: probability of "missed" in spite of hearing.
        levels: intensities of the curve.
        p_heard: P(heard) there, the posterior's median.
        low: lower ends of its 95 % intervals.
        high: upper ends of its 95 % intervals.
        told: the answers at this very place: (intensity, heard, asked).
        ear: "right" or "left" where both are tested.
        logarithmic: whether the intensity's axis is.
        axis: name of the intensity's axis.
    """

    place: tuple[tuple[str, float], ...]
    unit: str
    threshold: Estimate
    slope: Estimate
    width: Estimate
    guess: Estimate
    lapse: Estimate
    levels: tuple[float, ...]
    p_heard: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    told: tuple[tuple[float, int, int], ...] = ()
    ear: str | None = None
    logarithmic: bool = False
    axis: str = "level_db_hl"

    def rows(self) -> list[Row]:
        """One row for each of threshold, slope, width, guess and lapse.

        Returns:
            A list of dictionaries with plain values.
        """
        where: Row = {"ear": self.ear, **dict(self.place)}
        return [
            {**where, "parameter": name, **asdict(getattr(self, name))}
            for name in ("threshold", "slope", "width", "guess", "lapse")
        ]

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the curve with its 95 % band and the answers there; gives the axes back.

        Args:
            ax: matplotlib axes to draw on; new ones by default.

        Returns:
            The matplotlib axes that were drawn on.
        """
        return plots.psychometric(
            plots.on(ax, 5.0, 3.8),
            plots.Line(
                " ".join(filter(None, (self._where, self.ear))),
                self.levels, self.p_heard, self.low, self.high, self.ear,
            ),
            self.told,
            threshold=(self.threshold.value, self.threshold.low, self.threshold.high),
            rates=(self.guess.value, self.lapse.value),
            level=plots.Scale(
                plots.label_of(self.axis, self.unit),
                self.levels[0], self.levels[-1], self.logarithmic,
            ),
            words=plots.words_of(self.axis == "level_db_hl", self.guess.value),
        )  # fmt: skip

    @property
    def _where(self) -> str:
        return ", ".join(
            f"{value:g} Hz" if name == "frequency_hz" else f"{name} {value:g}"
            for name, value in self.place
        )

    def __str__(self) -> str:
        where = f"{self._where}: " if self.place else ""
        return (
            f"{where}threshold {self.threshold} {self.unit}, width {self.width}, "
            f"slope {self.slope} per {'octave' if self.logarithmic else self.unit.split(' HL')[0]}"
        )

    def _repr_html_(self) -> str:
        where = f" at {self._where}" if self.place else ""
        return html(f"Psychometric function{where}", (), self.rows())


@dataclass(frozen=True)
class GoodnessOfFit:
    """Whether answers like these are to be expected from the fitted model.

    The deviance is twice the log probability of the answers that the proportions heard would give,
    less that of the model; tones that were asked several times count together. It is compared with
    answers that the model itself gives to the same tones: for each draw of the posterior the
    deviance of the real answers and of simulated ones (a posterior predictive check). A small `p`
    says that the answers are worse predicted than the model believes. The check is lenient: under
    a true model `p` gathers about 0.5, and tones that were asked once each say little.

    Attributes:
        deviance: of the answers, its median over the posterior.
        expected: median deviance of simulated answers.
        low: lower end of the middle 95 % of the simulated deviances.
        high: upper end of the middle 95 % of the simulated deviances.
        p: in how many draws the simulated answers were at least as badly predicted as the real
            ones. Each draw judges both by its own curve, so `p` does not follow from the other
            numbers.
        tones: how many answers there were.
        simulated: the simulated deviances.
    """

    deviance: float
    expected: float
    low: float
    high: float
    p: float
    tones: int
    simulated: tuple[float, ...]

    def __str__(self) -> str:
        return (
            f"Deviance {self.deviance:.1f} of {self.tones} answers; simulated answers "
            f"{self.expected:.1f} ({self.low:.1f} to {self.high:.1f}), p = {self.p:.3f}."
        )

    def __repr__(self) -> str:
        return f"<GoodnessOfFit: {self}>"


def goodness_of_fit(p: Array, attentive: Flags, guess: Array, heard: Flags, groups: Groups,
                    rng: np.random.Generator) -> GoodnessOfFit:  # fmt: skip
    """The check from P(heard) of every tone in every draw: (draws, tones).

    Where a draw is not attentive, its simulated answers are guesses; `heard` are the real ones.
    `groups` numbers the tones, the same number for the same tone.
    """
    if not heard.size:
        raise Refusal("there are no answers yet whose fit could be judged")
    p = np.clip(p, LEAST_P, 1.0 - LEAST_P)
    again = rng.random(p.shape) < np.where(attentive, p, guess[:, None])
    same = np.equal.outer(groups, np.unique(groups)).astype(float)  # (tones, groups)
    asked = same.sum(axis=0)
    each = p @ same / asked
    real = _deviance(np.broadcast_to(heard @ same, each.shape), asked, each)
    simulated = _deviance(again @ same, asked, each)
    low, high = np.quantile(simulated, (0.025, 0.975))
    return GoodnessOfFit(
        # Not means: a few draws to which the answers are impossible would outweigh all others.
        deviance=float(np.median(real)),
        expected=float(np.median(simulated)),
        low=float(low),
        high=float(high),
        p=float((simulated >= real).mean()),
        tones=int(heard.size),
        simulated=tuple(float(one) for one in simulated),
    )


def _deviance(heard: Array, asked: Array, p: Array) -> Array:
    """Of so many heard of so many asked, by the group: (draws,)."""
    missed = asked - heard
    return 2.0 * np.asarray(
        (rel_entr(heard, asked * p) + rel_entr(missed, asked * (1.0 - p))).sum(axis=1)
    )


def psychometric(
    curves: Curves, axis: Any, place: tuple[tuple[str, float], ...],
    told: Sequence[tuple[float, bool]], ear: str | None,
) -> Psychometric:  # fmt: skip
    """The function at the only place of the curves; `axis` is the intensity's."""
    model = np.linspace(axis.model_values[0], axis.model_values[-1], BINS_OF_A_CURVE)
    p, low, high = np.quantile(curves.p_heard(model, 0), INTERVAL, axis=0)
    spread = curves.spread[:, 0] * axis.scale
    middle = estimate(curves.threshold[:, 0])
    ends = [
        min(max(axis.from_model(v), axis.values[0]), axis.values[-1])
        for v in (middle.value, middle.low, middle.high)
    ]
    by_level: dict[float, list[bool]] = {}
    for level, heard in told:
        by_level.setdefault(level, []).append(heard)
    return Psychometric(
        place=place,
        unit=axis.unit,
        threshold=Estimate(*ends),
        slope=estimate(STEEPEST / spread),
        width=estimate(WIDTH * spread),
        guess=_rate(curves.guess),
        lapse=_rate(curves.lapse),
        levels=tuple(axis.from_model(float(v)) for v in model),
        p_heard=tuple(float(v) for v in p),
        low=tuple(float(v) for v in low),
        high=tuple(float(v) for v in high),
        told=tuple((at, sum(all_), len(all_)) for at, all_ in sorted(by_level.items())),
        ear=ear,
        logarithmic=axis.logarithmic,
        axis=axis.name,
    )


def _rate(draws: Array) -> Estimate:
    low, high = np.quantile(draws, (0.025, 0.975))
    return Estimate(float(draws.mean()), float(low), float(high))
