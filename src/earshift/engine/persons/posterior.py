"""What is known after some answers, and the tone to ask next.

Tones are chosen with even odds between yes and no.
"""

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from earshift.engine.persons.decision import Decisions
from earshift.engine.persons.evidence import logistic
from earshift.engine.persons.outlook import Outlook, entropy

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

TIE = 1e-9  # scores closer than this are equal, and the first in the grid's order is asked
CLEARING_BONUS = 1.25  # for a tone that clears a frequency besides what it tells


def information(weights: Array, heard: Array) -> Array:
    """Nats that the answer tells about the hypothesis: P(hypotheses), P(heard) of each by tone."""
    return np.asarray(entropy(weights @ heard) - weights @ entropy(heard))


def cloud_weights(mass: Array) -> Array:
    """Persons' weights, summing to 1."""
    weights = mass.sum(axis=(0, 1))
    return np.asarray(weights / weights.sum())


class Posterior(Decisions):
    """All that is known after some answers, and how much each tone is wanted next."""

    def _outlook(self, side: int) -> Outlook:
        """What a side's persons expect of every tone."""
        s = self.design
        cloud = self.clouds[side]
        assert cloud is not None
        persons, mass = cloud.persons, self.mass(side)
        rows, extra, ears = s.grid
        thresholds = rows @ persons.after.reshape(persons.count, -1).T + persons.offset_db
        log_sd = persons.log_spread.T[ears]
        rough = extra > 0.0
        log_sd[rough] = 0.5 * np.log(np.exp(2.0 * log_sd[rough]) + extra[rough, None])
        a, b = s.answers.outlook(mass / mass.sum(), persons.lapse)
        return Outlook(thresholds, log_sd, a, b, s.levels_db)

    @cached_property
    def p_heard(self) -> Array:
        """P(heard | side) of every tone: (sides, tones); nan for a side that nobody is on."""
        s = self.design
        out = np.full((s.side_count, len(s.grid[2]) * len(s.levels_db)), np.nan)
        for k, cloud in enumerate(self.clouds):
            if cloud is not None:
                out[k] = self._outlook(k).heard.ravel()
        return out

    def hypotheses(self, question: int = 0) -> tuple[Array, Array]:
        """Probabilities of no, yes (at even odds) and not listening; P(heard) of each by tone."""
        yes = self.yes_sides(question)
        heard = []
        for side in (~yes, yes):
            there = side & np.isfinite(self.log_evidence) & (self.shares > 0.0)
            if not there.any():  # nobody is on this side, and its probability is zero
                heard.append(np.zeros(self.p_heard.shape[1]))
                continue
            logs = np.where(there, self.log_evidence, -np.inf)
            weights = np.exp(logs - logs.max()) * self.shares
            there = weights > 0.0
            heard.append(weights[there] @ self.p_heard[there] / weights.sum())
        p = logistic(self.log_bf(question))
        idle = np.full(heard[0].size, self._idle_heard)
        odds = np.array([1.0 - p, p]) * (1.0 - self.p_idle)
        return np.array([*odds, self.p_idle]), np.array([*heard, idle])

    @property
    def _idle_heard(self) -> float:
        return self.design.answers.idle_heard(self.heard_tones, len(self.told), self.catches)

    @property
    def shape(self) -> tuple[int, int]:
        """Places (ear by ear) and levels of the scores."""
        return len(self.design.grid[2]), len(self.design.levels_db)

    @cached_property
    def scores(self) -> Array:
        """Nats that each tone's answer is expected to tell: (places, levels)."""
        if not self.design.asked:
            return self._about_thresholds()
        total = sum(information(*self.hypotheses(j)) for j in self._open or [0])
        return np.asarray(total).reshape(self.shape)

    def _about_thresholds(self) -> Array:
        """What the answer tells about the person, and about each of the wanted thresholds.

        The first is information about everything, the spread of the answers too; the second looks
        at the thresholds one by one, as if they were Gaussian. Each alone wastes tones: on what
        nobody wants to know, or on frequencies that a neighbour would tell about. So they count
        alike, in parts of the best tone's.
        """
        s = self.design
        cloud = self.clouds[0]
        assert cloud is not None
        expected = self._outlook(0)
        w = cloud_weights(self.mass(0))
        rows = np.array([s.row(f, e)[0] for e in range(s.prior.ears) for f in s.wanted_hz])
        levels = rows @ cloud.persons.after.reshape(w.size, -1).T
        levels = levels - (levels @ w)[:, None]
        p = expected.heard
        link = expected.heard_times(levels)
        r2 = link**2 / ((levels**2 @ w)[:, None, None] * p * (1.0 - p))
        each = -0.5 * np.log1p(-np.minimum(r2, 0.999)).sum(axis=0)
        listens = np.array([1.0 - self.p_idle, self.p_idle])
        either = np.array([p.ravel(), np.full(p.size, self._idle_heard)])
        whole = listens[0] * expected.information() + information(listens, either).reshape(p.shape)
        return np.asarray(whole / whole.max() + each / each.max())

    def wanted(self, playable: Flags | None = None) -> Array:
        """How much each tone is wanted: its score, more if it clears; -inf where not playable.

        When a question only waits for tones that clear it, no others are wanted, and of these the
        loudest at each place: a softer one may be missed again and again.
        """
        mask = np.ones(self.shape, dtype=bool) if playable is None else playable
        clears = self._clearing_tones() & mask
        scores = self.scores * np.where(clears, CLEARING_BONUS, 1.0)
        if self._waits_for_clearing and clears.any():
            louder = np.cumsum(clears[:, ::-1], axis=1)[:, ::-1]
            mask = clears & (louder == 1)
        return np.where(mask, scores, -np.inf)

    def best(self, playable: Flags | None = None) -> tuple[int, int]:
        """Place and level (indices into the scores) of the tone to ask next."""
        scores = self.wanted(playable)
        first = int(np.flatnonzero(scores.ravel() >= scores.max() - TIE)[0])
        return first // self.shape[1], first % self.shape[1]

    @property
    def _open(self) -> list[int]:
        """Questions without a decision that tones are chosen for."""
        steering = self.design.steering
        wanted = range(len(self.design.asked)) if steering is None else steering
        return [j for j in wanted if self.decision(j) == "inconclusive"]

    @property
    def _waits_for_clearing(self) -> bool:
        """Whether all that is open has evidence enough against it."""
        stop = self.design.stopping
        enough = all(self.log_bf(j) <= -math.log(stop.bayes_factor) for j in self._open)
        return enough and self.p_idle <= stop.doubt

    def _clearing_tones(self) -> Flags:
        """Tones that, when answered, clear a frequency of an open question."""
        s = self.design
        out = np.zeros(self.shape, dtype=bool)
        levels = np.array(s.levels_db)
        for j in self._open:
            for f, loudest in self.uncleared(j).items():
                if f in s.frequencies_hz:
                    out[s.place(f, s.asked[j].ear)] |= levels <= loudest
        return out
