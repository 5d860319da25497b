"""Thresholds: where a field crosses zero, from samples to what a person reads."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri_exp

from earshift.engine.checks import finite
from earshift.engine.domain import Domain
from earshift.engine.refusal import Refusal

Array = NDArray[np.float64]
Location = float | tuple[float, ...]  # in the axes' units; of a tone, its frequency in Hz

SAMPLES = 4000  # for thresholds and shifts
SMALLEST_SLOPE = 0.5  # latent units per 10 dB: below it a field says nothing about dB
AUDIOMETRIC_HZ = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)


def threshold(slope: Array | float, offset: Array) -> Array:
    """The intensity at which f = slope * intensity + offset is zero, in model units."""
    return np.asarray(-offset / slope)


@dataclass(frozen=True)
class Threshold:
    """Where a tone is heard half the time (P = 50 % of the audible range, f = 0).

    Attributes:
        frequency_hz: of the tone, in Hz.
        level_db_hl: the threshold in the unit of the domain's levels, dB HL as a rule.
        low_db_hl: lower end of its 95 % interval, in that unit.
        high_db_hl: upper end of its 95 % interval, in that unit.
        censored: "below" or "above" when the estimate lies outside the domain's levels; the
            numbers are then cut to its edge.
        cross_hearing: in an exam of both ears, that the other ear might hear a tone of this level,
            so that finding the threshold would need masking.
    """

    frequency_hz: float
    level_db_hl: float
    low_db_hl: float
    high_db_hl: float
    censored: str | None = None
    cross_hearing: bool = False

    # The names of a `PlaceThreshold`, so that a program can read either.
    @property
    def place(self) -> tuple[tuple[str, float], ...]:
        """Its frequency by name: (("frequency_hz", 1000.0),)."""
        return (("frequency_hz", self.frequency_hz),)

    @property
    def level(self) -> float:
        """The same as `level_db_hl`."""
        return self.level_db_hl

    @property
    def low(self) -> float:
        """The same as `low_db_hl`."""
        return self.low_db_hl

    @property
    def high(self) -> float:
        """The same as `high_db_hl`."""
        return self.high_db_hl


@dataclass(frozen=True)
class PlaceThreshold:
    """A threshold on other axes than a tone's.

    Attributes:
        place: its location by the axes' names.
        level: in the intensity's unit.
        low: lower end of the 95 % interval, in that unit.
        high: upper end of the 95 % interval, in that unit.
        censored: as for a tone's.
    """

    place: tuple[tuple[str, float], ...]
    level: float
    low: float
    high: float
    censored: str | None = None


def named(location: tuple[float, ...], domain: Domain) -> tuple[tuple[str, float], ...]:
    """A location by the names of the smooth axes."""
    return tuple((axis.name, value) for axis, value in zip(domain.smooth, location, strict=True))


def locations_of(
    domain: Domain, wanted: Sequence[Location] | None
) -> tuple[list[tuple[float, ...]], Array]:
    """Where thresholds are wanted: in the axes' units, and as places in model units.

    By default the audiometric frequencies that are in range; on other axes than a tone's, every
    place of the domain.
    """
    if domain.of_tones:
        frequencies, places = frequencies_of(domain, wanted)
        return [(float(f),) for f in frequencies], places
    axes = domain.smooth
    if wanted is None:
        wanted = list(product(*(axis.values for axis in axes)))
    locations = []
    for location in listed(wanted):
        given = (location,) if isinstance(location, int | float | np.number) else tuple(location)
        if not axes and given:
            raise Refusal(
                "this domain has a single psychometric function: leave the place out", got=location
            )
        if len(given) != len(axes):
            names = ", ".join(axis.name for axis in axes)
            raise Refusal(f"a place of this domain has a value for {names}", got=location)
        locations.append(
            tuple(a.check(finite(v, a.name)) for a, v in zip(axes, given, strict=True))
        )
    if not locations:
        raise Refusal("thresholds need at least one place")
    units = [[a.to_model(v) for a, v in zip(axes, s, strict=True)] for s in locations]
    return locations, np.array(units)


def listed(wanted: object) -> list[Any]:
    """Places in a list, an array or anything else that gives them one by one."""
    if isinstance(wanted, str | bytes) or not isinstance(wanted, Iterable):
        raise Refusal("places are given in a list, such as [1000.0, 2000.0]", got=wanted)
    return list(wanted)


def frequencies_of(domain: Domain, wanted: Sequence[Location] | None) -> tuple[Array, Array]:
    """Frequencies in Hz and as places; by default the audiometric ones that are in range."""
    axis = domain.smooth[0]
    if wanted is None:
        low, high = axis.values[0], axis.values[-1]
        wanted = [f for f in AUDIOMETRIC_HZ if low <= f <= high]
    places = listed(wanted)
    if any(isinstance(place, tuple) and not place for place in places):
        raise Refusal("say at which frequency, in Hz: there is one psychometric function for each")
    checked = [axis.check(finite(f, "frequency_hz")) for f in places]
    if not checked:
        raise Refusal("thresholds need at least one frequency")
    return np.array(checked), np.array([[axis.to_model(f)] for f in checked])


def thresholds_from_samples(
    locations: Sequence[tuple[float, ...]], levels: Array, domain: Domain
) -> list[Threshold]:
    """Median and 95 % interval of sampled thresholds (model units), cut to the domain."""
    axis = domain.intensity
    low_edge, high_edge = axis.values[0], axis.values[-1]
    out = []
    for k, location in enumerate(locations):
        middle, low, high = (
            axis.from_model(float(q)) for q in np.quantile(levels[:, k], (0.5, 0.025, 0.975))
        )
        censored = "below" if middle < low_edge else "above" if middle > high_edge else None
        cut = [min(max(v, low_edge), high_edge) for v in (middle, low, high)]
        if domain.of_tones:
            out.append(Threshold(location[0], cut[0], cut[1], cut[2], censored))
        else:
            there = PlaceThreshold(named(location, domain), cut[0], cut[1], cut[2], censored)
            out.append(cast(Threshold, there))
    return out


def positive_slope_samples(
    mean: Array, cov: Array, slopes: Sequence[int], count: int, rng: np.random.Generator
) -> Array:
    """Draws of a latent vector whose slope entries are all positive.

    The slopes come first from their joint Gaussian cut at zero (by its conditionals, so that even
    a posterior that doubts the slope gives draws), the rest given them.
    """
    order = [*slopes, *(k for k in range(mean.size) if k not in set(slopes))]
    m, S = mean[order], cov[np.ix_(order, order)]
    # A posterior may be singular (old and new ear the same) and, by rounding, slightly less.
    values, vectors = np.linalg.eigh(0.5 * (S + S.T))
    values = np.maximum(values, 1e-10 * max(values[-1], 1e-10))
    L = np.linalg.cholesky((vectors * values) @ vectors.T)
    noise = rng.standard_normal((count, mean.size))
    uniform = rng.random((count, len(slopes)))
    for k in range(len(slopes)):
        # noise_k must exceed -(what is fixed so far) / L_kk: sample the upper tail by its log mass.
        fixed = m[k] + noise[:, :k] @ L[k, :k]
        log_mass = log_ndtr(fixed / L[k, k])
        noise[:, k] = -ndtri_exp(np.log1p(-uniform[:, k]) + log_mass)
    draws = np.empty((count, mean.size))
    draws[:, order] = m + noise @ L.T
    draws[:, list(slopes)] = np.maximum(draws[:, list(slopes)], 1e-9)
    return draws
