"""What can be asked of a person: each a few lines on the thresholds before and now.

`met` says for every person whether the answer is yes. Thresholds are (persons, ears, nodes) in dB;
a question looks at one ear. `clearing` lists the levels that have to be heard before the answer may
be no: nobody is cleared at a frequency where nothing was asked.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

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

    def met(self, before: Array, after: Array, nodes_hz: Sequence[float]) -> Flags: ...

    def clearing(self, before: Array, nodes_hz: Sequence[float]) -> dict[float, float]: ...


def _at(levels: Array, nodes_hz: Sequence[float], wanted_hz: Sequence[float]) -> Array:
    where = {f: k for k, f in enumerate(nodes_hz)}
    return np.asarray(levels[..., [where[f] for f in wanted_hz]])


def judged_rule(rule: Rule, unusable_hz: Collection[float]) -> Rule:
    """The rule with the criteria that need none of these frequencies."""
    kept = [c for c in rule.criteria if not set(c.frequencies_hz) & set(unusable_hz)]
    return replace(rule, criteria=tuple(kept))


@dataclass(frozen=True)
class RuleMet:
    """Has hearing changed by the rule?"""

    rule: Rule
    ear: int = 0
    unusable_hz: Collection[float] = ()  # criteria that need them are left out

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def judged(self) -> Rule:
        """The rule with the criteria that can be judged."""
        return judged_rule(self.rule, self.unusable_hz)

    @property
    def needs_hz(self) -> tuple[float, ...]:
        return self.judged.frequencies_hz

    def met(self, before: Array, after: Array, nodes_hz: Sequence[float]) -> Flags:
        shift = after[:, self.ear] - before[:, self.ear]
        rule = self.judged
        return np.asarray(rule.margin(_at(shift, nodes_hz, rule.frequencies_hz)) >= 0.0)

    def clearing(self, before: Array, nodes_hz: Sequence[float]) -> dict[float, float]:
        if self.rule.better:
            return {}
        then = np.median(before[:, self.ear], axis=0)
        least = {
            f: min(c.at_least_db for c in self.judged.criteria if f in c.frequencies_hz)
            for f in self.needs_hz
        }
        return {f: float(_at(then, nodes_hz, [f])[0]) + db for f, db in least.items()}


@dataclass(frozen=True)
class LimitMet:
    """Do the thresholds of now, whatever they were before, reach the limits of a rule?"""

    rule: Rule
    ear: int = 0
    unusable_hz: Collection[float] = ()  # criteria that need them are left out

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def judged(self) -> Rule:
        """The rule with the criteria that can be judged."""
        return judged_rule(self.rule, self.unusable_hz)

    @property
    def needs_hz(self) -> tuple[float, ...]:
        return self.judged.frequencies_hz

    def met(self, before: Array, after: Array, nodes_hz: Sequence[float]) -> Flags:
        levels = _at(after[:, self.ear], nodes_hz, self.needs_hz)
        return np.asarray(self.judged.margin(levels) >= 0.0)

    def clearing(self, before: Array, nodes_hz: Sequence[float]) -> dict[float, float]:
        return {
            f: min(c.at_least_db for c in self.judged.criteria if f in c.frequencies_hz)
            for f in self.needs_hz
        }


@dataclass(frozen=True)
class NotchThere:
    """Is one of 3, 4 and 6 kHz at least 10 dB worse than both 2 and 8 kHz?"""

    ear: int = 0
    name: str = "notch"
    needs_hz: tuple[float, ...] = (2000.0, 3000.0, 4000.0, 6000.0, 8000.0)

    def met(self, before: Array, after: Array, nodes_hz: Sequence[float]) -> Flags:
        now = after[:, self.ear]
        dip = _at(now, nodes_hz, NOTCH_HZ).max(axis=1)
        return np.asarray(dip - _at(now, nodes_hz, NEIGHBOURS_HZ).max(axis=1) >= NOTCH_DB)

    def clearing(self, before: Array, nodes_hz: Sequence[float]) -> dict[float, float]:
        return {}
