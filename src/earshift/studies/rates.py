"""How often a method is right: proportions with their intervals, calls, and calibration."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def wilson(hits: int, n: int, z: float = 1.959964) -> tuple[float, float]:
    """95 % interval of a proportion (Wilson's score interval)."""
    if n == 0:
        return 0.0, 1.0
    p = hits / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Proportion:
    """So many of n, with its interval."""

    hits: int
    n: int

    @property
    def value(self) -> float:
        return self.hits / self.n if self.n else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.hits, self.n)

    def __str__(self) -> str:
        if not self.n:
            return "-"
        low, high = self.interval
        return f"{self.value:.1%} [{low:.1%}, {high:.1%}]"


@dataclass(frozen=True)
class Calls:
    """The calls on ears whose truth is on one side, well away from the criterion."""

    ears: int
    right: Proportion
    wrong: Proportion
    undecided: Proportion  # inconclusive, or not determinable
    tones_mean: float
    tones_median: float
    tones_p95: float


def calls_of(decisions: Sequence[str], tones: Array, changed: bool) -> Calls:
    """Sum up the calls on ears that are all changed, or all unchanged, in truth."""
    n = len(decisions)
    right = sum(d == ("changed" if changed else "unchanged") for d in decisions)
    wrong = sum(d == ("unchanged" if changed else "changed") for d in decisions)
    spread = np.quantile(tones, (0.5, 0.95)) if n else (math.nan, math.nan)
    return Calls(
        n, Proportion(right, n), Proportion(wrong, n), Proportion(n - right - wrong, n),
        float(tones.mean()) if n else math.nan, float(spread[0]), float(spread[1]),
    )  # fmt: skip


@dataclass(frozen=True)
class Calibration:
    """How true stated probabilities are."""

    n: int
    error: float  # expected calibration error over ten bins of equal mass
    low: float  # bootstrap over people, 95 %
    high: float
    brier: float
    log_score: float
    bins: tuple[tuple[float, float, int], ...]  # mean stated, fraction true, n


def _bins(p: Array, met: Array, count: int = 10) -> list[tuple[float, float, int]]:
    order = np.argsort(p, kind="stable")
    parts = [part for part in np.array_split(order, count) if part.size]
    return [(float(p[k].mean()), float(met[k].mean()), int(k.size)) for k in parts]


def _expected_error(p: Array, met: Array) -> float:
    return sum(n * abs(said - true) for said, true, n in _bins(p, met)) / p.size


def calibration(p: Array, met: Array, person: Array, draws: int = 500) -> Calibration:
    """Expected calibration error, Brier and log score of probabilities against what was true."""
    met = met.astype(float)
    rng = np.random.default_rng(0)
    people = np.unique(person)
    index = {who: np.flatnonzero(person == who) for who in people}
    errors = []
    for _ in range(draws):
        rows = np.concatenate([index[who] for who in rng.choice(people, people.size)])
        errors.append(_expected_error(p[rows], met[rows]))
    low, high = np.quantile(errors, (0.025, 0.975))
    safe = np.clip(p, 1e-4, 1.0 - 1e-4)
    return Calibration(
        n=int(p.size),
        error=_expected_error(p, met),
        low=float(low),
        high=float(high),
        brier=float(np.mean((p - met) ** 2)),
        log_score=float(-np.mean(met * np.log(safe) + (1.0 - met) * np.log(1.0 - safe))),
        bins=tuple(_bins(p, met)),
    )
