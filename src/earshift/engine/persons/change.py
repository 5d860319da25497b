"""How an ear's thresholds move between two tests: T_new = T_old + delta, in dB.

Every ear jitters from day to day: a smooth part over the frequencies and a rough part at each. A
share of the ears has changed besides, by a shape times a size, with a smooth residual on top. The
shapes are what noise, age, drugs and disease do to an audiogram; **one frequency alone** is among
them, because a rule such as "15 dB at any frequency" exists for it.

The shares are the model's own and not a site's prevalence: a Bayes factor between "the rule is met"
and "it is not" must not depend on how often a site sees either.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]

SMOOTH_JITTER_DB, JITTER_OCTAVES = 3.0, 1.0
ROUGH_JITTER_DB = 2.0
RESIDUAL_DB, RESIDUAL_OCTAVES = 4.0, 0.7
# Of all ears. Consecutive audiograms of workers make it 0.37 with every small change counted
# (`population.json`); a fifth was chosen on the tuning half, where more left more shifts open.
CHANGED_SHARE = 0.2
BETTER_SHARE = 0.25
SMALLEST_DB, WORSE_SCALE_DB, BETTER_SCALE_DB = 5.0, 12.0, 8.0

# How often, relative to each other. A change of the low frequencies alone is not what noise does;
# it is there so that nobody is cleared at frequencies that were never asked about.
FAMILIES = {"flat": 1.0, "high": 1.0, "notch": 1.0, "low": 0.8, "alone": 0.8}

# The audiometric frequencies: a change at one of them alone has faded out at the next.
_STEPS_HZ = (250.0, 500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0, 12000.0)


@dataclass(frozen=True)
class Shape:
    """One shape of change: its family, and the frequency in Hz that it turns or centres on."""

    family: str
    kind: str  # flat, above, below, notch or alone
    hz: float = 0.0

    def at(self, octaves: Array) -> Array:
        """The change at these frequencies (octaves re 1 kHz), where the whole of it is 1."""
        if self.kind == "flat":
            return np.ones(octaves.size)
        gap = octaves - math.log2(self.hz / 1000.0)
        if self.kind == "above":
            return np.asarray(1.0 / (1.0 + np.exp(-gap / 0.25)))
        if self.kind == "below":
            return np.asarray(1.0 / (1.0 + np.exp(gap / 0.25)))
        if self.kind == "notch":
            return np.asarray(np.exp(-0.5 * (gap / 0.5) ** 2))
        place = _STEPS_HZ.index(self.hz)
        steps = np.log2(np.array(_STEPS_HZ[place - 1 : place + 2]) / 1000.0)
        return np.interp(octaves, steps, (0.0, 1.0, 0.0))


SHAPES = (
    Shape("flat", "flat"),
    *(Shape("high", "above", hz) for hz in (1500.0, 2300.0, 3500.0)),
    *(Shape("notch", "notch", hz) for hz in (2000.0, 3000.0, 4000.0, 6000.0)),
    Shape("low", "below", 1200.0),
    *(Shape("low", "notch", hz) for hz in (500.0, 1000.0)),
    *(Shape("alone", "alone", hz) for hz in _STEPS_HZ[1:-1]),
)
UNCHANGED = -1  # in place of a shape's index


def _octaves(frequencies_hz: Sequence[float]) -> Array:
    return np.log2(np.asarray(frequencies_hz, dtype=float) / 1000.0)


def shapes(frequencies_hz: Sequence[float]) -> Array:
    """Every shape at these frequencies: (shapes, frequencies)."""
    return np.array([shape.at(_octaves(frequencies_hz)) for shape in SHAPES])


def shape_weights() -> Array:
    """P(shape | changed)."""
    members = [sum(s.family == shape.family for s in SHAPES) for shape in SHAPES]
    share = np.array([FAMILIES[s.family] / n for s, n in zip(SHAPES, members, strict=True)])
    return np.asarray(share / share.sum())


def covariances(frequencies_hz: Sequence[float]) -> tuple[Array, Array]:
    """Covariance in dB^2 of delta about its shape: of an ear that jitters, of one that changed."""
    octaves = _octaves(frequencies_hz)
    gaps = (octaves[:, None] - octaves[None, :]) ** 2
    jitter = SMOOTH_JITTER_DB**2 * np.exp(-0.5 * gaps / JITTER_OCTAVES**2)
    jitter = jitter + ROUGH_JITTER_DB**2 * np.eye(octaves.size)
    return jitter, jitter + RESIDUAL_DB**2 * np.exp(-0.5 * gaps / RESIDUAL_OCTAVES**2)


def log_size_density(size_db: Array) -> Array:
    """Log density of a change's size in dB (worse is positive)."""
    over = np.abs(size_db) - SMALLEST_DB
    worse = math.log((1.0 - BETTER_SHARE) / WORSE_SCALE_DB) - over / WORSE_SCALE_DB
    better = math.log(BETTER_SHARE / BETTER_SCALE_DB) - over / BETTER_SCALE_DB
    return np.where(over < 0.0, -np.inf, np.where(size_db > 0.0, worse, better))


def draw_sizes(rng: np.random.Generator, count: int | tuple[int, ...]) -> Array:
    """Sizes of change in dB."""
    better = rng.random(count) < BETTER_SHARE
    over = rng.exponential(1.0, count)
    return np.where(
        better, -SMALLEST_DB - BETTER_SCALE_DB * over, SMALLEST_DB + WORSE_SCALE_DB * over
    )


@cache
def _shape_edges() -> Array:
    return np.cumsum(np.concatenate([[1.0 - CHANGED_SHARE], CHANGED_SHARE * shape_weights()]))


def draw_shapes(rng: np.random.Generator, count: int | tuple[int, ...]) -> Index:
    """Indices into SHAPES, UNCHANGED where nothing but jitter happened."""
    edges = _shape_edges()
    picks = np.searchsorted(edges, rng.random(count) * edges[-1], side="right")
    return np.asarray(np.minimum(picks, len(SHAPES)) - 1)


class ChangePrior:
    """Delta at a list of frequencies, given its shape and size: Gaussian about shape times size."""

    def __init__(self, frequencies_hz: Sequence[float]) -> None:
        self.units = np.vstack([shapes(frequencies_hz), np.zeros(len(frequencies_hz))])
        pair = np.array(covariances(frequencies_hz))
        self._root = np.linalg.cholesky(pair)
        self._whiten = np.linalg.inv(self._root)
        self._log_scale = np.log(np.diagonal(self._root, axis1=1, axis2=2)).sum(axis=1)

    def mean(self, shape: Index, size_db: Array) -> Array:
        """Shape times size; UNCHANGED is the last row of `units` and moves nothing."""
        return np.asarray(self.units[shape] * size_db[..., None])

    def draw(self, rng: np.random.Generator, shape: Index, size_db: Array) -> Array:
        """delta in dB: the arrays' shape plus an axis of frequencies."""
        noise = rng.standard_normal((shape.size, self.units.shape[1]))
        rest = _by_kind(noise, shape, self._root)
        mean = self.mean(shape, size_db)
        return np.asarray(mean + rest.reshape(mean.shape))

    def log_density(self, delta: Array, shape: Index, size_db: Array) -> Array:
        """Log density of delta, without the constant that all share."""
        rest = (delta - self.mean(shape, size_db)).reshape(-1, delta.shape[-1])
        z = _by_kind(rest, shape, self._whiten)
        squares = np.einsum("ij,ij->i", z, z).reshape(shape.shape)
        return np.asarray(-0.5 * squares - np.where(shape != UNCHANGED, *self._log_scale[::-1]))


@lru_cache(maxsize=64)
def change_prior(frequencies_hz: tuple[float, ...]) -> ChangePrior:
    """The one at these frequencies, made once."""
    return ChangePrior(frequencies_hz)


def _by_kind(rows: Array, shape: Index, matrices: NDArray[Any]) -> Array:
    """Each row times its kind of ear's matrix, transposed: of jitter alone, or of a change."""
    changed = np.flatnonzero(shape != UNCHANGED)
    out: Array = rows @ matrices[0].T
    out[changed] = rows[changed] @ matrices[1].T
    return out
