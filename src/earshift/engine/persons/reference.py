"""What an earlier test says of a person: the cloud that a `Returning` person is drawn from.

From an exam's answers (the fold over them, so it depends on answers and seed alone), from an
audiogram (readings with their noise; "no response" only says that the threshold is higher), or from
a population norm. Nobody's spread was measured by an audiogram or a norm: it is the population's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from earshift.engine.persons import population
from earshift.engine.persons.people import Earlier
from earshift.engine.persons.posterior import Posterior

Array = NDArray[np.float64]

PERSONS = 2000
READING_SD_DB = 6.1 / np.sqrt(2.0)  # two manual readings differ by an SD of 6.1 dB (Mahomed 2013)


def from_posterior(posterior: Posterior, nodes_hz: Sequence[float]) -> Earlier:
    """The persons that an exam's answers leave, at these nodes."""
    settled = posterior.refreshed()
    people = settled.samples(PERSONS)
    ears = people.after.shape[1]
    levels = np.stack([settled.at(people.after, nodes_hz, ear) for ear in range(ears)], axis=1)
    return Earlier(tuple(nodes_hz), levels, people.log_spread)


@dataclass(frozen=True)
class Readings:
    """The audiogram of one ear, in dB HL by frequency in Hz.

    `method_offset_db` is what the method reads above the 50 % point. Where there was no response,
    the level given was the loudest tried.
    """

    thresholds_db: Mapping[float, float]
    no_response_db: Mapping[float, float] = field(default_factory=dict)
    sd_db: float = READING_SD_DB
    method_offset_db: float = 0.0


def from_audiograms(
    ears: Sequence[Readings],
    nodes_hz: Sequence[float],
    *,
    level_offset_sd_db: float = 0.0,
    seed: int = 0,
) -> Earlier:
    """Persons of the population weighed by the readings of one ear, or of both together.

    `level_offset_sd_db` is for readings that are no hearing levels: by how much all of them may be
    off.
    """
    nodes = tuple(nodes_hz)

    def row(frequency_hz: float, ear: int) -> tuple[Array, float]:
        weights = np.zeros((len(ears), len(nodes)))
        weights[ear], variance = population.interpolation(nodes, frequency_hz)
        return weights.ravel(), variance + ears[ear].sd_db ** 2

    mixture = population.thresholds(nodes, len(ears), level_offset_sd_db)
    read = [
        (*row(f, ear), level - one.method_offset_db)
        for ear, one in enumerate(ears)
        for f, level in one.thresholds_db.items()
    ]
    if read:
        rows, variances, levels_read = (np.array(column) for column in zip(*read, strict=True))
        mixture = mixture.given(rows, levels_read, variances)
    rng = np.random.default_rng((seed, 0, 11))
    censored = [
        (*row(f, ear), loudest - one.method_offset_db)
        for ear, one in enumerate(ears)
        for f, loudest in one.no_response_db.items()
    ]
    levels = mixture.draw(rng, PERSONS if not censored else 50 * PERSONS)
    if censored:
        log_w = np.zeros(levels.shape[0])
        for weights, variance, loudest in censored:
            gap = levels @ weights - loudest
            log_w += np.log(np.maximum(ndtr(gap / np.sqrt(variance)), 1e-300))
        edges = np.cumsum(np.exp(log_w - log_w.max()))
        spots = (np.arange(PERSONS) + rng.random()) / PERSONS * edges[-1]
        levels = levels[np.minimum(np.searchsorted(edges, spots), levels.shape[0] - 1)]
    spread = population.draw_log_spread(rng, PERSONS)
    return Earlier(
        nodes,
        levels.reshape(PERSONS, len(ears), len(nodes)),
        np.repeat(spread[:, None], len(ears), axis=1),
    )


def from_norm(
    frequencies_hz: Sequence[float],
    mean_db: Sequence[float],
    cov_db2: Any,
    nodes_hz: Sequence[float],
    seed: int = 0,
) -> Earlier:
    """Persons of a norm: a Gaussian over its frequencies, carried to the nodes."""
    matrix, extra = population.on_nodes(frequencies_hz, nodes_hz)
    cov = matrix @ np.array(cov_db2, dtype=float) @ matrix.T + extra + 1e-6 * np.eye(len(nodes_hz))
    rng = np.random.default_rng((seed, 0, 12))
    noise = rng.standard_normal((PERSONS, len(nodes_hz)))
    levels = matrix @ np.array(mean_db, dtype=float) + noise @ np.linalg.cholesky(cov).T
    spread = population.draw_log_spread(rng, PERSONS)
    return Earlier(tuple(nodes_hz), levels[:, None, :], spread[:, None])


def together(one: Earlier, other: Earlier) -> Earlier:
    """Both ears of a person from one test of both: row by row they belong together."""
    return Earlier(
        one.nodes_hz,
        np.concatenate([one.levels_db, other.levels_db], axis=1),
        np.concatenate([one.log_spread, other.log_spread], axis=1),
    )


def joined(one: Earlier, other: Earlier) -> Earlier:
    """Both ears of a person, each tested by itself."""
    return replace(together(one, other), apart=True)
