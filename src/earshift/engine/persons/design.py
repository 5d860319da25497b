"""What a test asks, of whom, and with which tones: fixed before the first answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earshift.engine.persons.answers import AnswerModel
from earshift.engine.persons.cloud import Told
from earshift.engine.persons.people import Persons, Prior
from earshift.engine.persons.population import AUDIOMETRIC_HZ, interpolation
from earshift.engine.persons.questions import Asked
from earshift.engine.values import EARS

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Stopping:
    """When enough is known."""

    bayes_factor: float = 100.0
    prevalence: float = 0.12  # prior P(yes) of a site, for probabilities alone
    doubt: float = 0.01  # no decision while P(does not listen) is larger
    not_reliable: float = 0.5  # from this P(does not listen) on, after `not_reliable_tones`
    not_reliable_tones: int = 8
    within_db: float = 5.0  # an exam's 95 % intervals reach at most so far to either side


@dataclass(frozen=True, eq=False)
class Design:
    """What is asked, of whom, with which tones."""

    prior: Prior
    asked: tuple[Asked, ...] = ()  # none: an exam, what are the thresholds?
    frequencies_hz: tuple[float, ...] = AUDIOMETRIC_HZ  # of the tones that may be asked
    levels_db: tuple[float, ...] = tuple(float(level) for level in range(-10, 101, 5))
    wanted_hz: tuple[float, ...] = AUDIOMETRIC_HZ  # thresholds that an exam seeks
    seed: int = 0
    answers: AnswerModel = field(default_factory=AnswerModel)
    stopping: Stopping = field(default_factory=Stopping)
    persons: int | None = None  # on each side; None: as many as the kind of test needs
    steering: tuple[int, ...] | None = None  # questions that tones are chosen for; None: all
    softest_db: Mapping[float, float] = field(default_factory=dict)  # playable, by frequency in Hz
    ears: tuple[str, ...] = EARS  # in the persons' order, where they have two
    offered_ear: int | None = None  # whose tones may be asked; None: those of every ear

    @property
    def side_count(self) -> int:
        return 1 << len(self.asked)

    def sides(self, persons: Persons) -> NDArray[np.intp]:
        """Bit j is set where the answer to question j is yes."""
        out = np.zeros(persons.count, dtype=np.intp)
        for j, question in enumerate(self.asked):
            after = persons.after
            if question.apparent:
                after = after + persons.offset_db[:, None, None]
            yes = question.met(persons.before, after, self.prior.nodes_hz)
            out += yes.astype(np.intp) << j
        return out

    def told(self, trial: Any) -> Told:
        """A trial (of a tone with `frequency_hz`, `level_db_hl` and `ear`) for the nodes."""
        ear = self.ears.index(trial.tone.ear) if self.prior.ears == 2 else 0
        weights, variance = self.row(trial.tone.frequency_hz, ear)
        return Told(weights, variance, ear, float(trial.tone.level_db_hl), bool(trial.heard))

    def row(self, frequency_hz: float, ear: int) -> tuple[Array, float]:
        """Weights over both ears' nodes for the threshold at a frequency, and its variance."""
        nodes = self.prior.nodes_hz
        own, variance = interpolation(nodes, frequency_hz)
        weights = np.zeros(self.prior.ears * len(nodes))
        weights[ear * len(nodes) : (ear + 1) * len(nodes)] = own
        return weights, variance

    @cached_property
    def grid(self) -> tuple[Array, Array, list[int]]:
        """Weights (places, nodes), variances and ears of every place: ear by ear, low to high."""
        places = [(ear, f) for ear in self._offered for f in self.frequencies_hz]
        rows = [self.row(f, ear) for ear, f in places]
        return (
            np.array([weights for weights, _ in rows]),
            np.array([variance for _, variance in rows]),
            [ear for ear, _ in places],
        )

    @property
    def _offered(self) -> Sequence[int]:
        return range(self.prior.ears) if self.offered_ear is None else (self.offered_ear,)

    def place(self, frequency_hz: float, ear: int) -> int:
        """The row of the grid with the tones of this frequency in this ear."""
        row = self._offered.index(ear) * len(self.frequencies_hz)
        return row + self.frequencies_hz.index(frequency_hz)
