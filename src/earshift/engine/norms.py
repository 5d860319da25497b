"""Numbers learned from people, each with its source (method.md, sections 2 and 7).

`norms.json` is written by `studies/derive_norms.py` from NHANES audiograms; nothing in it is typed
by hand. Here it becomes hearing-loss classes, standard audiograms, a population norm and the
hyperpriors of the psychometric field.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from earshift.engine.checks import finite
from earshift.engine.refusal import Refusal

Array = NDArray[np.float64]


@cache
def tables() -> dict[str, Any]:
    """The shipped tables, as plain data."""
    text = resources.files("earshift.engine").joinpath("norms.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def class_names() -> tuple[str, ...]:
    """The seven hearing-loss classes, best hearing first."""
    return tuple(tables()["class_medians"]["thresholds_db_hl"])


def class_median(name: str) -> dict[float, float]:
    """Median thresholds of one hearing-loss class: frequency in Hz to dB HL (NHANES)."""
    block = tables()["class_medians"]
    medians = block["thresholds_db_hl"]
    if name not in medians:
        raise Refusal(f"unknown hearing-loss class {name!r}; known: {', '.join(medians)}")
    pairs = zip(block["frequencies_hz"], medians[name], strict=True)
    return {float(f): float(level) for f, level in pairs}


def _cholesky(cov: Sequence[Sequence[float]]) -> Array:
    """The lower triangular root in plain numbers: every fit starts from it, anywhere alike."""
    size = len(cov)
    root = np.zeros((size, size))
    for k in range(size):
        for j in range(k, size):
            rest = cov[j][k]
            for i in range(k):
                rest -= root[j, i] * root[k, i]
            root[j, k] = math.sqrt(rest) if j == k else rest * (1.0 / root[k, k])
    return root


class Whitened(NamedTuple):
    """A Gaussian hyperprior as theta = centre + chol u, with u standard normal."""

    centre: Array
    chol: Array


@dataclass(frozen=True)
class Hyperprior:
    """Gaussian over theta = (c, log alpha, log beta, log l), and the prior mean of the slope."""

    mean: tuple[float, ...]
    cov: tuple[tuple[float, ...], ...]
    slope_mean: float = 0.0

    @cached_property
    def _whitened(self) -> Whitened:
        return Whitened(np.array(self.mean), _cholesky(self.cov))

    def whitened(self, axes: int = 1) -> Whitened:
        """Centre and Cholesky factor, for so many smooth axes; without one there is no length.

        Each further smooth axis gets a length of its own, with the same prior as the first but
        independent of it; its mean is the first one's unless this prior was centred on a theta
        that has its own.
        """
        centre, chol = self._whitened
        size = _BEFORE_LENGTHS + axes
        if size == chol.shape[0]:
            return self._whitened
        if size < chol.shape[0]:
            return Whitened(centre[:size].copy(), np.ascontiguousarray(chol[:size, :size]))
        length_sd = float(np.sqrt(np.array(self.cov)[-1, -1]))
        wide = np.diag(np.full(size, length_sd))
        wide[: chol.shape[0], : chol.shape[0]] = chol
        centre = np.concatenate([centre, np.repeat(centre[-1], size - centre.size)])
        return Whitened(centre, wide)

    def centred_on(self, theta: Array) -> "Hyperprior":
        """The same spread around another mode."""
        return replace(self, mean=tuple(float(t) for t in theta))

    def scaled(self, factor: float) -> "Hyperprior":
        """The same mode with all standard deviations multiplied by a factor."""
        return replace(self, cov=tuple(tuple(factor**2 * c for c in row) for row in self.cov))

    def of_mean_alone(self, sd: float) -> "Hyperprior":
        """The same mode, with c free by this SD and all but nothing else."""
        size = len(self.cov)
        spread = np.diag([sd**2, *[_HELD**2] * (size - 1)])
        return replace(self, cov=tuple(tuple(row) for row in spread.tolist()))


_BEFORE_LENGTHS = 3  # hyperparameters in theta before the lengths
_HELD = 1e-4  # SD of a hyperparameter that is not free, in log units: too small to be seen


READING_SD_DB = 4.3  # of one threshold of an audiogram; the hyperprior's length depends on it


def reading_sds() -> tuple[float, ...]:
    """The assumed noises of a reading for which a hyperprior ships."""
    return tuple(sorted([READING_SD_DB, *_other_hyperpriors()]))


@cache
def _other_hyperpriors() -> dict[float, dict[str, Any]]:
    return {b["threshold_noise_sd_db"]: b for b in tables()["hyperprior"]["sensitivity"]}


@cache
def hyperprior(sloped: bool = False, reading_sd_db: float = READING_SD_DB) -> Hyperprior:
    """The population hyperprior; `sloped` gives the slope a positive prior mean.

    The sloped one is for references that carry no trials (an audiogram, a norm): they say where
    the threshold is and nothing about how steeply hearing rises there. Another `reading_sd_db` is
    for studies of how much the hyperprior matters.
    """
    if sloped:
        block = tables()["hyperprior_sloped"]
    elif reading_sd_db == READING_SD_DB:
        block = tables()["hyperprior"]
    elif reading_sd_db in _other_hyperpriors():
        block = _other_hyperpriors()[reading_sd_db]
    else:
        known = ", ".join(f"{sd:g}" for sd in reading_sds())
        raise Refusal(f"there is no hyperprior for a reading SD of {reading_sd_db!r}: {known}")
    return Hyperprior(
        mean=tuple(block["mean"]),
        cov=tuple(tuple(row) for row in block["covariance"]),
        slope_mean=float(block.get("slope_mean", 0.0)),
    )


@dataclass(frozen=True)
class Norm:
    """A population's thresholds: mean and covariance over frequencies, with their source.

    The shipped one is `population_norm()`. Norms by age and sex need the user's own table: the one
    at hand (ISO 7029 as transcribed by others) is not verified and does not ship.

    Attributes:
        frequencies_hz: in Hz.
        mean_db_hl: mean threshold at each of them, in dB HL.
        cov_db2: covariance of the thresholds, in dB squared.
        source: where the numbers come from.

    Raises:
        Refusal: for lists that do not match, or a covariance that is none.

    Examples:
        >>> Norm((1000, 4000), (10, 20), ((80, 40), (40, 120)), source="my clinic").source
        'my clinic'
    """

    frequencies_hz: tuple[float, ...]
    mean_db_hl: tuple[float, ...]
    cov_db2: tuple[tuple[float, ...], ...]
    source: str = "supplied by the user"

    def __post_init__(self) -> None:
        try:
            frequencies = tuple(finite(f, "a frequency of a norm") for f in self.frequencies_hz)
            means = tuple(finite(m, "a mean of a norm") for m in self.mean_db_hl)
            cov = np.array(self.cov_db2, dtype=float)
        except TypeError as error:
            raise Refusal(f"a norm needs lists of numbers: {error}") from None
        size = len(frequencies)
        if size == 0 or len(means) != size or cov.shape != (size, size):
            raise Refusal(
                "a norm needs as many means as frequencies, at least one, and a square covariance "
                f"to match; got {size}, {len(means)} and {cov.shape}"
            )
        if min(frequencies) <= 0 or len(set(frequencies)) != size:
            raise Refusal("a norm needs different, positive frequencies")
        if not np.isfinite(cov).all():
            raise Refusal("a norm needs finite covariances")
        if not np.allclose(cov, cov.T) or np.linalg.eigvalsh(cov).min() <= 0:
            raise Refusal("a norm's covariance must be symmetric and positive definite")
        object.__setattr__(self, "frequencies_hz", frequencies)
        object.__setattr__(self, "mean_db_hl", means)
        object.__setattr__(self, "cov_db2", tuple(tuple(row) for row in cov.tolist()))

    def to_dict(self) -> dict[str, Any]:
        """As plain data.

        Returns:
            Plain values that JSON can hold; `from_dict` reads them back.
        """
        return {
            "frequencies_hz": list(self.frequencies_hz),
            "mean_db_hl": list(self.mean_db_hl),
            "cov_db2": [list(row) for row in self.cov_db2],
            "source": self.source,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Norm":
        """A norm from `to_dict`'s data.

        Args:
            data: what `to_dict` gave.

        Returns:
            The norm that was written down.
        """
        return cls(
            frequencies_hz=tuple(data["frequencies_hz"]),
            mean_db_hl=tuple(data["mean_db_hl"]),
            cov_db2=tuple(tuple(row) for row in data["cov_db2"]),
            source=data["source"],
        )


def population_norm() -> Norm:
    """US adults, 2011-2016 (NHANES): mean and covariance of thresholds at seven frequencies.

    Examples:
        >>> population_norm().frequencies_hz[:3]
        (500.0, 1000.0, 2000.0)
    """
    block = tables()["population"]
    return Norm(
        frequencies_hz=tuple(block["frequencies_hz"]),
        mean_db_hl=tuple(block["mean_db_hl"]),
        cov_db2=tuple(tuple(row) for row in block["covariance_db2"]),
        source=block["source"],
    )
