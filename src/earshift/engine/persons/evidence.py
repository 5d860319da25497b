"""What the answers say of the persons: the fold, Bayes factors, thresholds, and who listens.

`Evidence.assess` folds the answers of a design in order into clouds of weighted persons; what it
gives never changes. With several questions at once the persons are sorted by all of their answers
together: a side for each combination, a cloud for each side.

Answers to silence enter on top of the fold, by each guess rate, so their place among the tones does
not matter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from earshift.engine.persons import cloud as clouds_of
from earshift.engine.persons.cloud import Cloud, Told
from earshift.engine.persons.design import Design
from earshift.engine.persons.people import Persons

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

INTERVAL = (0.025, 0.975)
FEWEST_EFFECTIVE = 200.0  # persons on a side; below it the numbers are not to be relied on


@dataclass(frozen=True, eq=False)
class Evidence:
    """The persons that some answers leave, and how well each side explains the answers."""

    design: Design
    clouds: tuple[Cloud | None, ...]
    shares: Array  # of the model's prior, by side
    clearing: tuple[dict[float, float], ...]  # by question: frequency to the loudest that clears
    trials: tuple[Any, ...] = ()
    told: tuple[Told, ...] = ()
    catches: tuple[bool, ...] = ()
    presses: int = 0
    earlier: tuple[Array, ...] = ()  # `by_guess` after each number of tones before these

    # The fold -------------------------------------------------------------------------------

    @classmethod
    def before_any(cls, design: Design) -> Self:
        """What is known before any answer; not kept, because few tests ever go back to it."""
        nodes = design.prior.nodes_hz
        usual = clouds_of.PERSONS if design.asked else clouds_of.EXAM_PERSONS
        found, shares = clouds_of.first_clouds(
            design.prior, design.sides, design.side_count, design.answers, design.seed,
            design.persons or usual,
        )  # fmt: skip
        someone = next((c.persons for c in found if c), None)
        clearing = tuple(
            {} if someone is None else q.clearing(someone.before, nodes) for q in design.asked
        )
        return cls(design, found, shares, clearing)

    @classmethod
    def assess(
        cls,
        design: Design,
        trials: Sequence[Any],
        catches: Sequence[bool] = (),
        presses: int = 0,
        before: Self | None = None,
    ) -> Self:
        """Everything that these answers say; goes on from `before` if that knows the first ones."""
        known = 0 if before is None else len(before.trials)
        if before is None or before.design is not design or before.trials != tuple(trials[:known]):
            before = cls.before_any(design)
        state = before
        for trial in trials[len(state.trials) :]:
            state = state.after(trial)
        return state.with_silence(catches, presses)

    def after(self, trial: Any) -> Self:
        """What is known once this trial's answer is known too."""
        s = self.design
        told = (*self.told, s.told(trial))
        clouds = tuple(
            None if c is None else c.after(told, s.prior, s.sides, s.answers, s.seed)
            for c in self.clouds
        )
        return replace(
            self, clouds=clouds, trials=(*self.trials, trial), told=told,
            earlier=(*self.earlier, self.by_guess),
        )  # fmt: skip

    def with_silence(self, catches: Sequence[bool], presses: int) -> Self:
        """The same with these answers to silent trials, and presses between the tones."""
        given = tuple(bool(c) for c in catches)
        if (given, presses) == (self.catches, self.presses):
            return self
        return replace(self, catches=given, presses=presses)

    def refreshed(self) -> Self:
        """The same distribution by persons drawn again and moved: none is there twice."""
        if not self.told:
            return self
        s = self.design
        clouds = tuple(
            None if c is None else c.moved(self.told, s.prior, s.sides, s.answers, s.seed + 1)
            for c in self.clouds
        )
        return replace(self, clouds=clouds)

    # Evidence -------------------------------------------------------------------------------

    @cached_property
    def _silence(self) -> Array:
        return self.design.answers.silence(self.catches, self.presses, len(self.trials))

    def mass(self, side: int) -> Array:
        """Mass of a side's persons, their answers to silence included."""
        cloud = self.clouds[side]
        assert cloud is not None
        return np.asarray(cloud.mass * self._silence[None, :, None])

    @cached_property
    def by_guess(self) -> Array:
        """Log P(answers to tones and guess rate | side): (sides, guess rates)."""
        rates = len(self.design.answers.guesses)
        with np.errstate(divide="ignore"):
            return np.array([
                np.full(rates, -np.inf) if c is None
                else c.log_evidence + np.log(c.mass.sum(axis=(0, 2)))
                for c in self.clouds
            ])  # fmt: skip

    @cached_property
    def log_evidence(self) -> Array:
        """Log P(all answers | side), for every side."""
        return self._with_silence(self.by_guess)

    def _with_silence(self, by_guess: Array) -> Array:
        with np.errstate(divide="ignore"):
            logs = by_guess + np.log(self._silence)
        return np.array([logsumexp(row) for row in logs])

    def yes_sides(self, question: int) -> Flags:
        """Which sides answer yes to a question."""
        return np.array([bool(k >> question & 1) for k in range(self.design.side_count)])

    def log_bf(self, question: int = 0, tones: int | None = None) -> float:
        """Log Bayes factor of yes over no: now, or as it was after so many tones."""
        evidence = self.log_evidence
        if tones is not None and tones < len(self.trials):
            evidence = self._with_silence(self.earlier[tones])
        with np.errstate(divide="ignore"):
            joint = evidence + np.log(self.shares)
        yes = self.yes_sides(question)
        sums = [
            float(logsumexp(joint[side]) - math.log(self.shares[side].sum()))
            if self.shares[side].sum() > 0.0
            else -math.inf
            for side in (yes, ~yes)
        ]
        return sums[0] - sums[1]

    def p_yes(self, question: int = 0, tones: int | None = None) -> float:
        """P(yes | answers) at the site's prevalence: now, or as it was after so many tones."""
        prevalence = self.design.stopping.prevalence
        return logistic(self.log_bf(question, tones) + math.log(prevalence / (1.0 - prevalence)))

    p_changed = p_yes

    @cached_property
    def p_idle(self) -> float:
        """P(the person does not listen)."""
        model = self.design.answers
        idle = model.log_idle(self.heard_tones, len(self.trials), self.catches, self.presses)
        odds = math.log(model.idle_prior / (1.0 - model.idle_prior))
        return logistic(idle - self.log_listens + odds)

    @property
    def heard_tones(self) -> int:
        """How many of the tones were answered."""
        return sum(t.heard for t in self.told)

    @cached_property
    def log_listens(self) -> float:
        """Log P(all answers | somebody listens), the sides even."""
        present = self.log_evidence[np.isfinite(self.log_evidence)]
        return logsumexp(present) - math.log(present.size)

    @property
    def attention(self) -> float:
        """P(the person was attentive just now), given that they listen at all."""
        return float(sum(w * m[0].sum() / m.sum() for w, m in self._weighed()))

    def _weighed(self) -> list[tuple[float, Array]]:
        """Each side's probability at even odds of the sides' own shares, and its masses."""
        present = [k for k, c in enumerate(self.clouds) if c is not None]
        logs = self.log_evidence[present] + np.log(self.shares[present])
        weights = np.exp(logs - logsumexp(logs))
        return [(float(w), self.mass(k)) for w, k in zip(weights, present, strict=True)]

    @cached_property
    def effective_size(self) -> tuple[float, ...]:
        """Of how many equally weighted persons each side's cloud is worth."""
        out = []
        for k, c in enumerate(self.clouds):
            w = np.zeros(1) if c is None else self.mass(k).sum(axis=(0, 1))
            out.append(float(w.sum() ** 2 / (w**2).sum()) if w.any() else 0.0)
        return tuple(out)

    @property
    def converged(self) -> bool:
        """Whether every side has persons enough to rely on."""
        there = [n for n, share in zip(self.effective_size, self.shares, strict=True) if share]
        return min(there) >= FEWEST_EFFECTIVE

    # Thresholds -----------------------------------------------------------------------------

    def samples(self, count: int, balanced_for: int | None = None) -> Persons:
        """Equally weighted persons of all sides by their probability.

        The sides' prior odds are the model's own; with `balanced_for`, the site's prevalence of
        that question.
        """
        rng = np.random.default_rng((self.design.seed, len(self.trials), 1_000_003))
        present = [k for k, c in enumerate(self.clouds) if c is not None]
        logs = self.log_evidence[present] + np.log(self.shares[present])
        if balanced_for is not None:
            yes = self.yes_sides(balanced_for)[present]
            share = float(np.clip(self.shares[present][yes].sum(), 1e-9, 1.0 - 1e-9))
            odds = math.log(self.design.stopping.prevalence / (1 - self.design.stopping.prevalence))
            logs = logs + np.where(yes, odds - math.log(share / (1.0 - share)), 0.0)
        weights = np.concatenate([
            math.exp(log - logsumexp(logs)) * (m := self.mass(k).sum(axis=(0, 1))) / m.sum()
            for log, k in zip(logs, present, strict=True)
        ])  # fmt: skip
        everyone = clouds_of.joined([c.persons for c in self.clouds if c is not None])
        edges = np.cumsum(weights)
        which = np.searchsorted(edges, (np.arange(count) + rng.random()) / count * edges[-1])
        return everyone.take(np.minimum(which, weights.size - 1))

    def thresholds(
        self, frequencies_hz: Sequence[float], ear: int = 0
    ) -> tuple[Array, Array, Array]:
        """Low end, median and high end (95 %) of the thresholds of now, in dB."""
        people = self.samples(4000)
        levels = self.at(people.after, frequencies_hz, ear)
        low, middle, high = np.quantile(levels, (INTERVAL[0], 0.5, INTERVAL[1]), axis=0)
        return low, middle, high

    def at(self, levels: Array, frequencies_hz: Sequence[float], ear: int) -> Array:
        """Samples at these frequencies from samples at the nodes: (samples, frequencies)."""
        rng = np.random.default_rng((self.design.seed, len(self.trials), 1_000_004))
        flat = levels.reshape(levels.shape[0], -1)
        columns = []
        for f in frequencies_hz:
            weights, variance = self.design.row(f, ear)
            rough = math.sqrt(variance) * rng.standard_normal(flat.shape[0]) if variance else 0.0
            columns.append(flat @ weights + rough)
        return np.column_stack(columns)


def logsumexp(logs: Array) -> float:
    """log of the sum of exponentials."""
    top = float(logs.max())
    return top if math.isinf(top) else top + math.log(float(np.exp(logs - top).sum()))


def logistic(x: float) -> float:
    """Probability from log odds."""
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0.0 else math.exp(x) / (1.0 + math.exp(x))
