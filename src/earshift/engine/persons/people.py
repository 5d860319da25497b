"""Persons before a test: where their thresholds come from, and how to step among them.

A `Newcomer` is known by the population alone. Somebody `Returning` was seen before: their earlier
thresholds and spread come from the cloud of an earlier test (`reference`), and the change prior
says how far they moved. Either draws persons and proposes Metropolis steps that leave its own
distribution as it is; `cloud` weighs these by the answers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from earshift.engine.persons import change, population
from earshift.engine.persons.answers import AnswerModel

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Persons:
    """So many persons (N) with E ears whose thresholds in dB are known at K nodes."""

    before: Array  # (N, E, K): at the earlier test; of a newcomer the same array as `after`
    after: Array  # (N, E, K): now
    log_spread: Array  # (N, E)
    lapse: Array  # (N,)
    shape: Index  # (N, E): of the change, `change.UNCHANGED` for none
    size_db: Array  # (N, E): of the change
    offset_db: Array  # (N,): by which the equipment of this test plays too soft
    log_prior: Array  # (N,): log density before any answer, as far as steps need it

    @property
    def count(self) -> int:
        return self.lapse.size

    def take(self, which: Index) -> "Persons":
        """These persons, in this order."""
        return self._each(lambda values, _: values[which], self)

    def stands_like(self, other: "Persons") -> bool:
        """Whether the other persons are on the same side of every question, without asking it."""
        return (
            other.before is self.before
            and other.after is self.after
            and other.offset_db is self.offset_db
        )

    def where(self, chosen: Flags, other: "Persons") -> "Persons":
        """The other person where chosen, else this one."""

        def pick(own: Any, new: Any) -> Any:
            if new is own:
                return own
            return np.where(chosen.reshape(-1, *(1,) * (own.ndim - 1)), new, own)

        return self._each(pick, other)

    def _each(self, act: Callable[[Any, Any], Any], other: "Persons") -> "Persons":
        names = [f.name for f in fields(self)]
        newcomers = self.before is self.after
        done: dict[str, Any] = {
            name: act(getattr(self, name), getattr(other, name))
            for name in names
            if not (newcomers and name == "before")
        }
        return Persons(**{"before": done["after"], **done})


@dataclass(frozen=True, eq=False)
class Step:
    """A proposed step: the persons it leads to, and the log ratio of their prior densities.

    The ratio includes that of the proposals. `heard_alike` says that the answers cannot tell.
    """

    to: Persons
    log_ratio: Array
    heard_alike: bool = False


Propose = Callable[[Persons], Step]


class Prior(Protocol):
    """Persons as they are before this test's answers."""

    @property
    def nodes_hz(self) -> tuple[float, ...]: ...

    @property
    def ears(self) -> int: ...

    def draw(self, rng: np.random.Generator, count: int, answers: AnswerModel) -> Persons:
        """So many persons, whose `log_prior` is not worked out yet."""
        ...

    def weighed(self, persons: Persons) -> Persons:
        """Persons that were drawn, with their `log_prior`."""
        ...

    def steps(
        self, rng: np.random.Generator, persons: Persons, answers: AnswerModel
    ) -> Iterator[Propose]: ...


def _walk(rng: np.random.Generator, values: Array, scale: float) -> Array:
    """Steps with the cloud's own covariance: Gaussian, or with scale 0 from person to person.

    The difference of two other persons leads from one hump of a cloud to the next.
    """
    count, size = values.shape
    if scale == 0.0:
        return np.asarray(values[rng.permutation(count)] - values[rng.permutation(count)])
    cov = np.cov(values.T).reshape(size, size) + 1e-6 * np.eye(size)
    steps = rng.standard_normal(values.shape) @ np.linalg.cholesky(cov).T
    return np.asarray(steps * (scale * 2.38 / np.sqrt(size)))


def _with(values: Any, ears: int | slice, new: Any) -> Any:
    """The values (persons, ears, ...) with those of one ear, or of all, replaced."""
    if values.shape[1] == 1:
        return new.reshape(values.shape)
    out = values.copy()
    out[:, ears] = new
    return out


def _lapse_now_and_then(rng: np.random.Generator, persons: Persons, answers: AnswerModel) -> Array:
    """Lapse rates, a third of them drawn anew: from their prior, so the ratio is 1."""
    again = rng.random(persons.count) < 1.0 / 3.0
    return np.where(again, answers.draw_lapse(rng, persons.count), persons.lapse)


@dataclass(frozen=True)
class Newcomer:
    """A person of whom only the population is known."""

    nodes_hz: tuple[float, ...]
    ears: int = 1
    rounds: int = 6
    offset_sd_db: float = 0.0  # of the equipment's levels, where nobody has calibrated it

    @property
    def _mixture(self) -> population.Gaussians:
        return population.thresholds(self.nodes_hz, self.ears, self.offset_sd_db)

    def draw(self, rng: np.random.Generator, count: int, answers: AnswerModel) -> Persons:
        flat = self._mixture.draw(rng, count)
        spread = population.draw_log_spread(rng, count)
        levels = flat.reshape(count, self.ears, -1)
        return Persons(
            before=levels, after=levels, log_spread=np.repeat(spread[:, None], self.ears, axis=1),
            lapse=answers.draw_lapse(rng, count),
            shape=np.full((count, self.ears), change.UNCHANGED),
            size_db=np.zeros((count, self.ears)), offset_db=np.zeros(count),
            log_prior=np.zeros(count),
        )  # fmt: skip

    def weighed(self, persons: Persons) -> Persons:
        flat = persons.after.reshape(persons.count, -1)
        return replace(persons, log_prior=self._log_prior(flat, persons.log_spread[:, 0]))

    def _log_prior(self, levels: Array, log_spread: Array) -> Array:
        return np.asarray(
            self._mixture.log_density(levels) + population.log_spread_density(log_spread)
        )

    def steps(
        self, rng: np.random.Generator, persons: Persons, answers: AnswerModel
    ) -> Iterator[Propose]:
        def walk(persons: Persons, scale: float) -> Step:
            flat = persons.after.reshape(persons.count, -1)
            step = _walk(rng, np.column_stack([flat, persons.log_spread[:, 0]]), scale)
            after = persons.after + step[:, :-1].reshape(persons.after.shape)
            spread = persons.log_spread + step[:, -1:]
            log_prior = self._log_prior(after.reshape(flat.shape), spread[:, 0])
            to = replace(
                persons, before=after, after=after, log_spread=spread,
                lapse=_lapse_now_and_then(rng, persons, answers), log_prior=log_prior,
            )  # fmt: skip
            return Step(to, log_prior - persons.log_prior)

        for number in range(self.rounds):
            yield partial(walk, scale=(1.0, 0.5, 0.0)[number % 3])


@dataclass(frozen=True, eq=False)
class Earlier:
    """What an earlier test left: equally likely thresholds and spreads of this person."""

    nodes_hz: tuple[float, ...]
    levels_db: Array  # (M, E, K)
    log_spread: Array  # (M, E)
    apart: bool = False  # each ear was tested by itself: any of its rows goes with any other's

    @property
    def ears(self) -> int:
        return int(self.log_spread.shape[1])

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Array, Array]:
        """Thresholds (count, E, K) and log spreads (count, E) of so many possible pasts."""
        columns = self.ears if self.apart else 1
        which = rng.integers(self.log_spread.shape[0], size=(count, columns))
        ears = np.arange(self.ears)[None, :]
        return self.levels_db[which, ears], self.log_spread[which, ears]

    def medians(self) -> Array:
        """Median threshold in dB: (E, K)."""
        return np.asarray(np.median(self.levels_db, axis=0))

    def of(self, ear: int) -> "Earlier":
        """One ear of a person of whom both are known."""
        one = slice(ear, ear + 1)
        return replace(self, levels_db=self.levels_db[:, one], log_spread=self.log_spread[:, one])


@dataclass(frozen=True)
class Returning:
    """A person seen before, who may have changed since."""

    earlier: Earlier
    offset_sd_db: float = 0.0
    sweeps: int = 3

    @property
    def nodes_hz(self) -> tuple[float, ...]:
        return self.earlier.nodes_hz

    @property
    def ears(self) -> int:
        return self.earlier.ears

    def draw(self, rng: np.random.Generator, count: int, answers: AnswerModel) -> Persons:
        before, spread = self.earlier.draw(rng, count)
        shape = change.draw_shapes(rng, (count, self.ears))
        size = change.draw_sizes(rng, (count, self.ears))
        prior = change.change_prior(self.nodes_hz)
        delta = prior.draw(rng, shape, size)
        return Persons(
            before=before, after=before + delta, log_spread=spread,
            lapse=answers.draw_lapse(rng, count), shape=shape, size_db=size,
            offset_db=self.offset_sd_db * rng.standard_normal(count), log_prior=np.zeros(count),
        )  # fmt: skip

    def weighed(self, persons: Persons) -> Persons:
        return replace(persons, log_prior=self._log_prior(persons))

    def _log_prior(self, persons: Persons) -> Array:
        gap = persons.after - persons.before
        each = change.change_prior(self.nodes_hz).log_density(gap, persons.shape, persons.size_db)
        return np.asarray(each.sum(axis=1))

    def steps(
        self, rng: np.random.Generator, persons: Persons, answers: AnswerModel
    ) -> Iterator[Propose]:
        prior = change.change_prior(self.nodes_hz)

        def step_to(persons: Persons, to: Persons, heard_alike: bool = False) -> Step:
            log_prior = self._log_prior(to)
            return Step(
                replace(to, log_prior=log_prior), log_prior - persons.log_prior, heard_alike
            )

        # Ears are stepped one at a time: of two steps at once both would have to be good ones.
        def thresholds_walk(persons: Persons, ear: int) -> Step:
            own = persons.after[:, ear]
            after = _with(persons.after, ear, own + _walk(rng, own, 0.7))
            lapse = _lapse_now_and_then(rng, persons, answers)
            return step_to(persons, replace(persons, after=after, lapse=lapse))

        def another_past(persons: Persons, ears: slice) -> Step:
            """Earlier thresholds drawn anew; half of the persons keep theirs of now."""
            drawn, drawn_spread = self.earlier.draw(rng, persons.count)
            before = _with(persons.before, ears, drawn[:, ears])
            spread = _with(persons.log_spread, ears, drawn_spread[:, ears])
            along = (rng.random(persons.count) < 0.5)[:, None, None]
            after = np.where(along, persons.after + before - persons.before, persons.after)
            return step_to(persons, replace(persons, before=before, after=after, log_spread=spread))

        def another_change(persons: Persons, ear: int) -> Step:
            """Shape and size drawn anew, thresholds as they are."""
            to = replace(
                persons,
                shape=_with(persons.shape, ear, change.draw_shapes(rng, persons.count)),
                size_db=_with(persons.size_db, ear, change.draw_sizes(rng, persons.count)),
            )
            return step_to(persons, to, heard_alike=True)

        def larger_change(persons: Persons, ear: int) -> Step:
            """The size stepped, and the thresholds of now with it."""
            step = 4.0 * rng.standard_normal(persons.count)
            before = persons.size_db[:, ear]
            moved = persons.after[:, ear] + prior.mean(persons.shape[:, ear], step)
            to = replace(
                persons,
                after=_with(persons.after, ear, moved),
                size_db=_with(persons.size_db, ear, before + step),
            )
            ratio = change.log_size_density(before + step) - change.log_size_density(before)
            return Step(to, ratio)

        def other_equipment(persons: Persons) -> Step:
            """The equipment's offset stepped, and the thresholds against it."""
            step = 0.7 * self.offset_sd_db * rng.standard_normal(persons.count)
            offset = persons.offset_db + step
            to = replace(persons, offset_db=offset, after=persons.after - step[:, None, None])
            ratio = 0.5 * (persons.offset_db**2 - offset**2) / self.offset_sd_db**2
            step_made = step_to(persons, to, heard_alike=True)
            return replace(step_made, log_ratio=step_made.log_ratio + ratio)

        every = slice(None)
        for _ in range(self.sweeps):
            for ear in range(self.ears):
                yield partial(thresholds_walk, ear=ear)
                if self.earlier.apart or ear == 0:
                    ears = slice(ear, ear + 1) if self.earlier.apart else every
                    yield partial(another_past, ears=ears)
                yield partial(another_change, ear=ear)
                yield partial(another_change, ear=ear)
                yield partial(larger_change, ear=ear)
            if self.offset_sd_db > 0.0:
                yield other_equipment
