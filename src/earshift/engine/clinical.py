"""Answers under the model of persons, as exams and screens use it.

`Listening` keeps a fold over the answers of one listener up to date. The rest says whom a test
expects before its first tone: the population, or the person that an earlier test knows.
"""

from collections.abc import Sequence
from copy import copy
from functools import lru_cache
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from earshift.engine.audiogram import Audiogram
from earshift.engine.domain import Domain
from earshift.engine.norms import Norm
from earshift.engine.persons import reference as known_from
from earshift.engine.persons.design import Design
from earshift.engine.persons.people import Earlier, Newcomer, Returning
from earshift.engine.persons.population import AUDIOMETRIC_HZ
from earshift.engine.persons.posterior import TIE, Posterior
from earshift.engine.refusal import Refusal
from earshift.engine.tone import Trial
from earshift.engine.values import HEARING_LEVEL
from earshift.engine.verdict import NOT_ASSESSED, reliability

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Levels that nobody has calibrated are off by one unknown number: nearly any is possible.
RELATIVE_OFFSET_SD_DB = 25.0
GRADES = ("poor", "fair", NOT_ASSESSED, "good")


class Listening:
    """The answers of one listener, and what they say.

    Attributes:
        design: what is asked, of whom, with which tones.
        trials: answered tones, in order.
        catches: answers to silent trials, True for "heard".
        presses: of the button, when nothing was to be answered.
    """

    def __init__(self, design: Design) -> None:
        self.design = design
        self.trials: tuple[Trial, ...] = ()
        self.catches: tuple[bool, ...] = ()
        self.presses = 0
        self._known: Posterior | None = None

    def fork(self) -> Self:
        """Another one with the same answers; arrays never change, so they are shared."""
        return copy(self)

    @property
    def posterior(self) -> Posterior:
        """What all answers say."""
        # The newest alone is kept: an earlier one is a fold away.
        self._known = Posterior.assess(
            self.design, self.trials, self.catches, self.presses, self._known
        )
        return self._known

    @property
    def reliability(self) -> str:
        """good, fair or poor: whether the answers follow the tones, and those to silence.

        Not assessed before the first answer, and where nothing is wrong but silence was not tried.
        """
        if not self.trials and not self.catches and not self.presses:
            return NOT_ASSESSED
        posterior = self.posterior
        silence = reliability(self.catches, self.presses, len(self.trials))
        grades = [posterior.reliability, silence]
        if not posterior.converged:
            grades.append("fair")
        return min(grades, key=GRADES.index)

    def doubts(self) -> list[str]:
        """What made the model doubt that somebody listens, as sentences."""
        if self.posterior.reliability != "poor":
            return []
        heard, tones = sum(trial.heard for trial in self.trials), len(self.trials)
        if heard == 0:
            what = f"none of {tones} tones was reported as heard"
        elif heard == tones:
            what = f"all {tones} tones were reported as heard, even the softest"
        else:
            what = f"{heard} of {tones} tones were reported as heard, regardless of their level"
        return [f"The answers do not follow the tones: {what}."]


def first_of_best(wanted: Array) -> tuple[int, int]:
    """Row and column of the best score; among equals the first, so on every machine the same."""
    if not np.isfinite(wanted).any():
        raise Refusal(
            "no tone may be played: the level limits, the device and the other ear leave none"
        )
    first = int(np.flatnonzero(wanted.ravel() >= wanted.max() - TIE)[0])
    row, column = divmod(first, int(wanted.shape[1]))
    return row, column


def check_tones(domain: Domain, what: str) -> None:
    """A refusal of a domain that is not of tones: the model knows of hearing alone."""
    if not domain.of_tones:
        raise Refusal(
            f"{what} needs a domain of tones, got the axes {', '.join(domain.names)}; on others "
            "use Exam(domain=...) or a screen with a protocol"
        )


def nodes_for(frequencies_hz: Sequence[float]) -> tuple[float, ...]:
    """Where thresholds are modelled: the audiometric frequencies, and these."""
    return tuple(sorted({*AUDIOMETRIC_HZ, *frequencies_hz}))


def level_offset_sd_db(domain: Domain) -> float:
    """How far the levels of a domain may be off as a whole."""
    return 0.0 if domain.intensity.unit == HEARING_LEVEL else RELATIVE_OFFSET_SD_DB


def newcomer(domain: Domain, nodes_hz: tuple[float, ...], ears: int = 1) -> Newcomer:
    """Somebody of whom nothing is known before this test."""
    return Newcomer(nodes_hz, ears, offset_sd_db=level_offset_sd_db(domain))


class Examined(Protocol):
    """Somebody's earlier exam."""

    @property
    def domain(self) -> Domain: ...

    @property
    def ears(self) -> str | None: ...

    @property
    def trials(self) -> tuple[Trial, ...]: ...

    def earlier(self, nodes_hz: tuple[float, ...]) -> Earlier: ...


def _readings(audiogram: Audiogram) -> known_from.Readings:
    return known_from.Readings(
        audiogram.thresholds_db_hl,
        audiogram.no_response_db_hl,
        audiogram.sd_db,
        audiogram.method_offset_db,
    )


def earlier_of(
    reference: Examined | Audiogram | Norm, nodes_hz: tuple[float, ...], domain: Domain
) -> Earlier:
    """What a reference says of an ear's thresholds and spread at the nodes."""
    if isinstance(reference, Audiogram):
        return known_from.from_audiograms(
            [_readings(reference)], nodes_hz, level_offset_sd_db=level_offset_sd_db(domain)
        )
    if isinstance(reference, Norm):
        return known_from.from_norm(
            reference.frequencies_hz, reference.mean_db_hl, reference.cov_db2, nodes_hz
        )
    if reference.domain.names != domain.names:
        raise Refusal(
            f"the reference exam has the axes {', '.join(reference.domain.names)}, the screen "
            f"{', '.join(domain.names)}: they must be the same"
        )
    return reference.earlier(nodes_hz)


def earlier_of_both(
    one: Examined | Audiogram | Norm,
    other: Examined | Audiogram | Norm,
    nodes_hz: tuple[float, ...],
    domain: Domain,
) -> Earlier:
    """What the references of two ears say of a person, in this order of the ears.

    Of audiograms, and of one exam of both ears, together.
    """
    if isinstance(one, Audiogram) and isinstance(other, Audiogram):
        return known_from.from_audiograms(
            [_readings(one), _readings(other)],
            nodes_hz,
            level_offset_sd_db=level_offset_sd_db(domain),
        )
    known = [earlier_of(each, nodes_hz, domain) for each in (one, other)]
    if (
        not isinstance(one, Audiogram | Norm)
        and not isinstance(other, Audiogram | Norm)
        and one.ears == other.ears == "both"
        and one.trials == other.trials
    ):
        return known_from.together(*known)
    return known_from.joined(*known)


@lru_cache(maxsize=32)
def folded(
    prior: Newcomer | Returning,
    trials: tuple[Trial, ...],
    catches: tuple[bool, ...],
    presses: int,
    seed: int,
    nodes_hz: tuple[float, ...],
) -> Earlier:
    """The persons that the answers of an exam leave: a fold, so it depends on these alone."""
    found = Posterior.assess(Design(prior, seed=seed), trials, catches, presses)
    return known_from.from_posterior(found, nodes_hz)


def levels_at(earlier: Earlier, frequencies_hz: Sequence[float]) -> Array:
    """Median earlier thresholds of the first ear in dB, on the line between the nodes."""
    octaves = np.log2(np.asarray(frequencies_hz, dtype=float))
    nodes = np.log2(np.array(earlier.nodes_hz))
    return np.asarray(np.interp(octaves, nodes, earlier.medians()[0]))


def as_model_units(levels_db: Array, domain: Domain) -> Array:
    """Levels in the domain's unit as model units."""
    axis = domain.intensity
    return np.asarray((levels_db - axis.origin) / axis.scale)
