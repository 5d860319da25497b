"""What can be asked of a person: each a few lines on the thresholds before and now.

`met` says for every person whether the answer is yes. Thresholds are (persons, ears, nodes) in dB;
a question looks at one ear. `clearing` lists the levels that have to be heard before the answer may
be no: nobody is cleared at a frequency where nothing was asked.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from earshift.engine.amount import Amount
from earshift.engine.rules import Rule

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

NOTCH_DB = 10.0
NOTCH_HZ, NEIGHBOURS_HZ = (3000.0, 4000.0, 6000.0), (2000.0, 8000.0)


class Asked(Protocol):
    """A question with the answer yes or no."""

    @property
    def ear(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def needs_hz(self) -> tuple[float, ...]: ...

    @property
    def apparent(self) -> bool: ...

    def met(self, before: Array, after: Array, nodes_hz: Sequence[float]) -> Flags: ...

    def clearing(self, before: Array, nodes_hz: Sequence[float]) -> dict[float, float]: ...

    def carried_by_hz(
        self, before: Array, after: Array, nodes_hz: Sequence[float]
    ) -> tuple[float, ...]:
        """The frequencies in Hz that a yes rests on, in these persons."""
        ...

    def amount(self, before: Array, after: Array, nodes_hz: Sequence[float]) -> Amount:
        """What the question speaks of, in dB, with its 95 % interval over these persons."""
        ...

    @property
    def as_played(self) -> "Asked | None":
        """The same of what the equipment makes of it; None where a device cannot feign a yes."""
        ...


def _at(levels: Array, nodes_hz: Sequence[float], wanted_hz: Sequence[float]) -> Array:
    where = {f: k for k, f in enumerate(nodes_hz)}
    return np.asarray(levels[..., [where[f] for f in wanted_hz]])


@dataclass(frozen=True)
class RuleMet:
    """Has hearing changed by the rule? Or are the thresholds of now at its limits?

    With `apparent`, has what the equipment makes of it: a device that plays too soft counts as a
    shift.
    """

    rule: Rule
    ear: int = 0
    unusable_hz: Collection[float] = ()  # criteria that need them are left out
    apparent: bool = False

    @property
    def name(self) -> str:
        return self.rule.name

    @cached_property
    def judged(self) -> Rule:
        """The rule with the criteria that can be judged."""
        unusable = set(self.unusable_hz)
        kept = [c for c in self.rule.criteria if not unusable & set(c.frequencies_hz)]
        return replace(self.rule, criteria=tuple(kept))

    @property
    def needs_hz(self) -> tuple[float, ...]:
        return self.judged.frequencies_hz

    @property
    def as_played(self) -> "RuleMet | None":
        return replace(self, apparent=True) if self.rule.needs_reference else None

    def _asked_about(self, before: Array, after: Array) -> Array:
        """The shifts that the rule speaks of, or else the thresholds: (persons, nodes), in dB."""
        now = after[:, self.ear]
        return now - before[:, self.ear] if self.rule.needs_reference else now

    def met(self, before: Array, after: Array, nodes_hz: Sequence[float]) -> Flags:
        rule = self.judged
        levels = _at(self._asked_about(before, after), nodes_hz, rule.frequencies_hz)
        return np.asarray(rule.margin(levels) >= 0.0)

    def clearing(self, before: Array, nodes_hz: Sequence[float]) -> dict[float, float]:
        if self.rule.better:
            return {}
        then = np.median(before[:, self.ear], axis=0)
        least = {
            f: min(c.at_least_db for c in self.judged.criteria if f in c.frequencies_hz)
            for f in self.needs_hz
        }
        if not self.rule.needs_reference:
            return least
        return {f: float(_at(then, nodes_hz, [f])[0]) + db for f, db in least.items()}

    def carried_by_hz(
        self, before: Array, after: Array, nodes_hz: Sequence[float]
    ) -> tuple[float, ...]:
        levels = self._asked_about(before, after)
        if self.rule.better:
            levels = -levels
        likely: dict[float, float] = {}
        for criterion in self.judged.criteria:
            margin = criterion.margin(_at(levels, nodes_hz, criterion.frequencies_hz))
            p = float((margin >= 0).mean())
            for f in criterion.frequencies_hz:
                likely[f] = max(likely.get(f, 0.0), p)
        least = min(0.5, max(likely.values()))
        return tuple(f for f in self.needs_hz if likely[f] >= least)

    def amount(self, before: Array, after: Array, nodes_hz: Sequence[float]) -> Amount:
        """Of the criterion that is nearest to being met.

        Where any one frequency suffices and none is likely to, the most changed of all.
        """
        toward = -1.0 if self.rule.better else 1.0
        levels = toward * self._asked_about(before, after)
        criteria = self.judged.criteria
        margins = np.array([c.margin(_at(levels, nodes_hz, c.frequencies_hz)) for c in criteria])
        likely = (margins >= 0.0).mean(axis=1)
        nearest = int(np.lexsort((margins.mean(axis=1), likely))[-1])
        criterion = criteria[nearest]
        single = len(criteria) > 1 and all(
            len(c.frequencies_hz) == 1 and c.at_least_db == criterion.at_least_db for c in criteria
        )
        what = "mean" if criterion.combine == "mean" else "least"
        where, past = criterion.frequencies_hz, margins[nearest]
        if single and likely[nearest] < 0.5:
            what, where, past = "most", self.needs_hz, margins.max(axis=0)
        ends = _interval(toward * (past + criterion.at_least_db))
        return Amount(
            what,
            where,
            *ends,
            rule_db=toward * criterion.at_least_db,
            any_of_hz=self.needs_hz if single else (),
        )


def _interval(values: Array) -> tuple[float, float, float]:
    """Lower end, median and upper end (95 %)."""
    low, middle, high = np.quantile(values, (0.025, 0.5, 0.975))
    return float(low), float(middle), float(high)


@dataclass(frozen=True)
class NotchThere:
    """Is one of 3, 4 and 6 kHz at least 10 dB worse than both 2 and 8 kHz?"""

    ear: int = 0
    name: str = "notch"
    needs_hz: tuple[float, ...] = (2000.0, 3000.0, 4000.0, 6000.0, 8000.0)
    apparent: bool = False
    as_played: None = None

    def met(self, before: Array, after: Array, nodes_hz: Sequence[float]) -> Flags:
        return np.asarray(self._dip(after, nodes_hz) >= NOTCH_DB)

    def clearing(self, before: Array, nodes_hz: Sequence[float]) -> dict[float, float]:
        return {}

    def carried_by_hz(
        self, before: Array, after: Array, nodes_hz: Sequence[float]
    ) -> tuple[float, ...]:
        return self.needs_hz

    def amount(self, before: Array, after: Array, nodes_hz: Sequence[float]) -> Amount:
        """How far the worst of 3, 4 and 6 kHz lies below the worse of 2 and 8 kHz."""
        ends = _interval(self._dip(after, nodes_hz))
        return Amount("dip", self.needs_hz, *ends, rule_db=NOTCH_DB)

    def _dip(self, after: Array, nodes_hz: Sequence[float]) -> Array:
        now = after[:, self.ear]
        worst = _at(now, nodes_hz, NOTCH_HZ).max(axis=1)
        return np.asarray(worst - _at(now, nodes_hz, NEIGHBOURS_HZ).max(axis=1))
