"""A cloud of weighted persons: what the answers of a test leave of them.

One cloud holds one *side* of a question ("the rule is met"), with its own evidence: P(answers |
this side). Each answer multiplies every person's mass by the probability of that answer. When few
persons carry most of the weight (the effective size falls below half), they are drawn again by
weight and moved about by Metropolis steps that leave "prior times all answers, on this side" as
it is.

A cloud never changes; `after` gives the next one. Chance comes from (seed, number of tones, side),
so the same answers in the same order always give the same cloud.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from earshift.engine.persons.answers import AnswerModel, phi
from earshift.engine.persons.people import Persons, Prior

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Flags = NDArray[np.bool_]

PERSONS = 2500  # on each side
EXAM_PERSONS = 4000  # where there is one side only, and the ends of intervals are wanted
RESAMPLE_BELOW = 0.5  # of the persons, by effective size
ROUNDING = 1e-9  # nats
DRAWS_AT_ONCE = 16_384
MOST_DRAWS = 40 * DRAWS_AT_ONCE  # for a side that is rare
MOST_DRAWS_OF_MANY = 8 * DRAWS_AT_ONCE  # where there are many sides, and the rare weigh little

ALL = slice(None)

Sides = Callable[[Persons], Index]  # on which side of the question each person is


@dataclass(frozen=True, eq=False)
class Told:
    """A tone and its answer, in the terms of the nodes."""

    weights: Array  # (E * K,): threshold at the tone = weights @ thresholds at the nodes
    variance_db2: float  # of that threshold about it; zero at a node
    ear: int
    level_db: float
    heard: bool


def phis(persons: Persons, told: Sequence[Told], which: Index | slice = ALL) -> Array:
    """Phi((level - threshold) / spread) of every answer and these persons: (answers, persons)."""
    rows = np.array([t.weights for t in told])
    levels = np.array([t.level_db for t in told])[:, None]
    extra = np.array([t.variance_db2 for t in told])[:, None]
    ears = [t.ear for t in told]
    after = persons.after.reshape(persons.count, -1)[which]
    thresholds = rows @ after.T + persons.offset_db[which]
    variance = np.exp(2.0 * persons.log_spread[which].T)[ears]
    return phi(levels, thresholds, np.sqrt(variance + extra))


@dataclass(frozen=True, eq=False)
class Cloud:
    """Weighted persons on one side of a question."""

    side: int
    persons: Persons
    mass: Array  # (attention on/off, guess rates, persons), summing to 1
    log_evidence: float  # of the answers to tones

    @property
    def weights(self) -> Array:
        return np.asarray(self.mass.sum(axis=(0, 1)))

    @property
    def effective_size(self) -> float:
        """Of how many equally weighted persons this cloud is worth."""
        w = self.weights
        return float(w.sum() ** 2 / (w**2).sum())

    def after(
        self,
        told: Sequence[Told],
        prior: Prior,
        sides: Sides,
        answers: AnswerModel,
        seed: int,
    ) -> "Cloud":
        """The cloud once the last of these answers is known; it knows all the others."""
        last = told[-1]
        here = phis(self.persons, [last])[0]
        mass = answers.told(self.mass, here, self.persons.lapse, last.heard)
        total = float(mass.sum())
        new = replace(self, mass=mass / total, log_evidence=self.log_evidence + math.log(total))
        if new.effective_size >= RESAMPLE_BELOW * self.persons.count:
            return new
        return new.moved(told, prior, sides, answers, seed)

    def moved(
        self,
        told: Sequence[Told],
        prior: Prior,
        sides: Sides,
        answers: AnswerModel,
        seed: int,
    ) -> "Cloud":
        """Drawn again by weight, then moved: the same distribution by other persons."""
        rng = np.random.default_rng((seed, len(told), self.side))
        count = self.persons.count
        edges = np.cumsum(self.weights)
        which = np.searchsorted(edges, (np.arange(count) + rng.random()) / count * edges[-1])
        persons = self.persons.take(np.minimum(which, count - 1))
        heard = [t.heard for t in told]
        mass, fit = answers.told_all(phis(persons, told), persons.lapse, heard)
        for propose in prior.steps(rng, persons, answers):
            step = propose(persons)
            log_u = np.log(rng.random(count))
            # No answers have a probability above 1: who would have to stay even then stays, and
            # is not looked at further.
            chosen = log_u < (
                step.log_ratio if step.heard_alike else step.log_ratio - fit + ROUNDING
            )
            if not persons.stands_like(step.to):
                chosen &= sides(step.to) == self.side
            if not step.heard_alike:
                may = np.flatnonzero(chosen)
                new_mass, new_fit = answers.told_all(
                    phis(step.to, told, may), step.to.lapse[may], heard
                )
                goes = log_u[may] < step.log_ratio[may] + new_fit - fit[may]
                chosen[may] = goes
                may = may[goes]
                mass[:, :, may], fit[may] = new_mass[:, :, goes], new_fit[goes]
            persons = persons.where(chosen, step.to)
        return replace(self, persons=persons, mass=mass / count)


def first_clouds(
    prior: Prior, sides: Sides, side_count: int, answers: AnswerModel, seed: int,
    persons: int = PERSONS,
) -> tuple[tuple[Cloud | None, ...], Array]:  # fmt: skip
    """One cloud of the prior's persons on each side, and each side's share of the prior.

    A side that hardly anybody is on has its few persons several times; one that nobody is on has
    no cloud.
    """
    rng = np.random.default_rng((seed, 0, side_count))
    parts: list[list[Persons]] = [[] for _ in range(side_count)]
    counts = np.zeros(side_count)
    drawn = 0
    most = MOST_DRAWS if side_count <= 4 else MOST_DRAWS_OF_MANY
    while drawn < most and (counts < persons).any():
        if drawn >= 4 * DRAWS_AT_ONCE and (counts[counts < persons] == 0).all():
            break
        batch = prior.draw(rng, DRAWS_AT_ONCE if side_count > 1 else persons, answers)
        where = sides(batch)
        for side in range(side_count):
            here = np.flatnonzero(where == side)
            if counts[side] < persons:
                parts[side].append(batch.take(here[: persons - int(counts[side])]))
            counts[side] += here.size
        drawn += batch.count
    clouds: list[Cloud | None] = []
    for side in range(side_count):
        if counts[side] == 0:
            clouds.append(None)
            continue
        found = joined(parts[side])
        chosen = prior.weighed(found.take(np.arange(persons) % found.count))
        mass = answers.at_start(persons) / persons
        clouds.append(Cloud(side, chosen, mass, 0.0))
    return tuple(clouds), counts / counts.sum()


def joined(parts: list[Persons]) -> Persons:
    """All persons of a list of batches."""
    if len(parts) == 1:
        return parts[0]
    newcomers = parts[0].before is parts[0].after
    names = [f.name for f in fields(Persons) if not (newcomers and f.name == "before")]
    done = {name: np.concatenate([getattr(p, name) for p in parts]) for name in names}
    return Persons(**{"before": done["after"], **done})
