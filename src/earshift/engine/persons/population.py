"""Whom to expect: thresholds of real ears as a mixture of Gaussians, and the spread of answers.

The mixture was learned from people of the tuning half (`studies/derive_population.py`, numbers and
source in `population.json`): six Gaussians over seven audiometric thresholds of both ears that do
not care which ear is which. A tenth of each one's weight is on twice its covariance, so that an ear
unlike all that were seen is unlikely and not impossible.

Thresholds live on a list of frequencies, the *nodes*. A frequency between two nodes lies on the
line between them (in octaves) with the variance of a Brownian bridge: `roughness * a b / (a + b)`.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

AUDIOMETRIC_HZ = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)
WIDE_SHARE, WIDE_FACTOR = 0.1, 2.0
LOG_SPREAD_MEAN, LOG_SPREAD_SD = math.log(4.0), math.log(2.0) / 1.96  # 95 % in 2 to 8 dB


@cache
def learned() -> dict[str, Any]:
    """What `studies/derive_population.py` wrote: numbers with their source."""
    text = resources.files(__package__).joinpath("population.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def roughness(frequency_hz: float) -> float:
    """dB^2 per octave by which thresholds stray from a line near this frequency."""
    block = learned()["thresholds"]["roughness_db2_per_octave"]
    return float(block["below_2000_hz" if frequency_hz < 2000.0 else "above_2000_hz"])


def interpolation(nodes_hz: Sequence[float], frequency_hz: float) -> tuple[Array, float]:
    """Weights of the nodes' thresholds at a frequency, and the variance in dB^2 about that.

    At a node the variance is zero; beyond the outermost nodes the threshold wanders off from the
    last one.
    """
    octaves = np.log2(np.asarray(nodes_hz, dtype=float))
    place = math.log2(frequency_hz)
    weights = np.zeros(octaves.size)
    above = int(np.searchsorted(octaves, place - 1e-9))
    rough = roughness(frequency_hz)
    if above < octaves.size and abs(octaves[above] - place) < 1e-9:
        weights[above] = 1.0
        return weights, 0.0
    if above in (0, octaves.size):
        last = 0 if above == 0 else octaves.size - 1
        weights[last] = 1.0
        return weights, rough * abs(place - float(octaves[last]))
    a, b = place - octaves[above - 1], octaves[above] - place
    weights[above - 1], weights[above] = b / (a + b), a / (a + b)
    return weights, float(rough * a * b / (a + b))


@dataclass(frozen=True)
class Gaussians:
    """A mixture of Gaussians over a vector of thresholds in dB."""

    weights: Array  # (C,)
    means: Array  # (C, D)
    covs: Array  # (C, D, D)

    @cached_property
    def _whitened(self) -> tuple[Array, Array]:
        roots = np.linalg.cholesky(self.covs)
        scale = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
        return np.linalg.inv(roots), np.log(self.weights) - scale

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """So many vectors: (count, D)."""
        which = np.searchsorted(np.cumsum(self.weights), rng.random(count) * self.weights.sum())
        noise = rng.standard_normal((count, self.means.shape[1]))
        out = np.empty_like(noise)
        for k, root in enumerate(np.linalg.cholesky(self.covs)):
            mine = which == k
            out[mine] = self.means[k] + noise[mine] @ root.T
        return out

    def log_density(self, x: Array) -> Array:
        """Log density of every row."""
        whiten, constants = self._whitened
        logs = np.empty((self.weights.size, x.shape[0]))
        for k, mean in enumerate(self.means):
            z = (x - mean) @ whiten[k].T
            logs[k] = constants[k] - 0.5 * np.einsum("ij,ij->i", z, z)
        top = logs.max(axis=0)
        size = 0.5 * x.shape[1] * math.log(2.0 * math.pi)
        return np.asarray(top + np.log(np.exp(logs - top).sum(axis=0)) - size)

    def given(self, rows: Array, readings: Array, variances: Array) -> "Gaussians":
        """The mixture once `rows @ x` was read with independent Gaussian noise."""
        weights, means, covs = [], [], []
        for weight, mean, cov in zip(self.weights, self.means, self.covs, strict=True):
            link = cov @ rows.T
            seen = rows @ link + np.diag(variances)
            root = np.linalg.cholesky(seen)
            z = np.linalg.solve(root, readings - rows @ mean)
            gain = np.linalg.solve(seen, link.T).T
            weights.append(
                math.log(weight) - 0.5 * float(z @ z) - float(np.log(np.diag(root)).sum())
            )
            means.append(mean + gain @ (readings - rows @ mean))
            new = cov - gain @ link.T
            covs.append(0.5 * (new + new.T) + 1e-9 * np.eye(mean.size))
        logs = np.array(weights)
        shares = np.exp(logs - logs.max())
        return Gaussians(shares / shares.sum(), np.array(means), np.array(covs))


def on_nodes(anchors_hz: Sequence[float], nodes_hz: Sequence[float]) -> tuple[Array, Array]:
    """From thresholds at the anchors to those at the nodes: matrix, and covariance about it.

    Several nodes between the same two anchors are told apart by the bridge's own covariance.
    """
    pairs = [interpolation(anchors_hz, f) for f in nodes_hz]
    matrix = np.array([weights for weights, _ in pairs])
    extra = np.diag([variance for _, variance in pairs])
    octaves = np.log2(np.asarray(nodes_hz, dtype=float))
    for i in range(len(pairs)):
        for j in range(i):
            together = bool(np.array_equal(matrix[i] > 0.0, matrix[j] > 0.0))
            if together and extra[i, i] > 0.0 and extra[j, j] > 0.0:
                extra[i, j] = extra[j, i] = _bridge(anchors_hz, octaves[i], octaves[j])
    return matrix, extra


def _bridge(anchors_hz: Sequence[float], one: float, other: float) -> float:
    """Covariance in dB^2 of two places in octaves between the same two anchors."""
    low, high = sorted((float(one), float(other)))
    octaves = np.log2(np.asarray(anchors_hz, dtype=float))
    rough = roughness(2.0**low)
    if high < octaves[0]:
        return float(rough * (octaves[0] - high))
    if low > octaves[-1]:
        return float(rough * (low - octaves[-1]))
    left, right = octaves[octaves < low].max(), octaves[octaves > high].min()
    return float(rough * (low - left) * (right - high) / (right - left))


@cache
def thresholds(nodes_hz: tuple[float, ...], ears: int = 1, offset_sd_db: float = 0.0) -> Gaussians:
    """The population's thresholds at the nodes: of one ear, or of both, one after the other.

    With `offset_sd_db` they are seen through equipment whose levels are off by an unknown number.
    """
    block = learned()["thresholds"]
    matrix, extra = on_nodes(block["frequencies_hz"], nodes_hz)
    whole = np.kron(np.eye(ears), matrix)
    weights, means, covs = [], [], []
    rows = zip(
        block["weights"], block["mean_db_hl"], block["own_covariance_db2"],
        block["cross_covariance_db2"], strict=True,
    )  # fmt: skip
    for weight, mean, own, cross in rows:
        same, other = np.array(own), np.array(cross)
        cov = same if ears == 1 else np.block([[same, other], [other.T, same]])
        spread = np.kron(np.eye(ears), extra)
        for share, factor in ((1.0 - WIDE_SHARE, 1.0), (WIDE_SHARE, WIDE_FACTOR)):
            weights.append(weight * share)
            means.append(whole @ np.tile(mean, ears))
            covs.append(factor * whole @ cov @ whole.T + spread + offset_sd_db**2)
    return Gaussians(np.array(weights) / np.sum(weights), np.array(means), np.array(covs))


def draw_log_spread(rng: np.random.Generator, count: int) -> Array:
    """Log of the spread in dB of so many people's answers about their threshold."""
    return np.asarray(LOG_SPREAD_MEAN + LOG_SPREAD_SD * rng.standard_normal(count))


def log_spread_density(log_spread: Array) -> Array:
    """Log density of a log spread, without its constant."""
    return np.asarray(-0.5 * ((log_spread - LOG_SPREAD_MEAN) / LOG_SPREAD_SD) ** 2)
