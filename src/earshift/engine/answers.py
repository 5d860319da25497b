"""Trials in model units: what the numerical part of the method reads of an exam."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from earshift.engine import ep
from earshift.engine.domain import Domain
from earshift.engine.evidence import Rows
from earshift.engine.kernels import squared_gaps
from earshift.engine.tone import Trial

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Answers:
    """The distinct places that were played, and for each answer its place and intensity.

    Attributes:
        places: the distinct places, (F, P), in model units (a tone's: octaves re 1 kHz).
        place: index into `places` of each answer, (n,); a left ear beside a right one counts on
            from F.
        intensity: of each answer, (n,), in model units (a tone's: tens of dB re 50 dB HL).
        answer: `ep.HEARD`, `ep.MISSED` or `ep.GAUSSIAN`, (n,).
        gauss_tau: precision of the Gaussian rows, (n,); 0 for the others.
    """

    places: Array
    place: Ints
    intensity: Array
    answer: Ints
    gauss_tau: Array

    @property
    def count(self) -> int:
        """How many answers."""
        return int(self.answer.size)

    @classmethod
    def of(
        cls,
        places: Sequence[tuple[float, ...]],
        intensities: Sequence[float],
        answers: Sequence[int],
        axes: int,
        gauss_tau: Sequence[float] | None = None,
    ) -> "Answers":
        """Collect rows; equal places share one latent."""
        rows = np.array(places, dtype=float).reshape(len(places), axes)
        if axes:
            distinct, index = np.unique(rows, axis=0, return_inverse=True)
        else:  # one place, and nothing to say about it
            distinct, index = rows[:1], np.zeros(len(rows), dtype=np.int64)
        return cls(
            places=distinct,
            place=index.reshape(-1).astype(np.int64),
            intensity=np.array(intensities, dtype=float),
            answer=np.array(answers, dtype=np.int64),
            gauss_tau=np.zeros(len(answers))
            if gauss_tau is None
            else np.array(gauss_tau, dtype=float),
        )

    def rows(self, between_ears: float = 0.0) -> Rows:
        """As the kernels take them; `between_ears` is the correlation between two ears' fields."""
        return Rows(
            self.place,
            self.intensity,
            self.answer,
            self.gauss_tau,
            squared_gaps(self.places, self.places),
            between_ears,
        )


def answers_of(trials: Sequence[Trial], domain: Domain) -> Answers:
    """Trials in model units."""
    return Answers.of(
        places=[domain.place_of(trial.tone) for trial in trials],
        intensities=[domain.intensity_of(trial.tone) for trial in trials],
        answers=[ep.HEARD if trial.heard else ep.MISSED for trial in trials],
        axes=len(domain.smooth),
    )
