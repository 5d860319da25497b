"""What a cloud of persons expects of every tone, by bins of threshold and spread.

The chance that the next tone is heard is a sum over persons of weight times Phi((level - T) / s).
For a whole grid of tones that sum is taken over bins of (T, s): one histogram per place, one
product with a table that never changes. Bins are half a dB and a twelfth of a log unit wide; only
the choice of the tone rests on them, never the evidence.
"""

from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from earshift.engine.persons.answers import phi

Array = NDArray[np.float64]
Index = NDArray[np.intp]

LOWEST_DB, HIGHEST_DB, STEP_DB = -60.0, 180.0, 0.5
LOWEST_LOG, HIGHEST_LOG, STEP_LOG = 0.0, 3.0, 1.0 / 12.0
_LEVELS = int((HIGHEST_DB - LOWEST_DB) / STEP_DB) + 1
_SPREADS = int((HIGHEST_LOG - LOWEST_LOG) / STEP_LOG) + 1
BINS = _LEVELS * _SPREADS


@cache
def table(levels_db: tuple[float, ...]) -> Array:
    """Phi of every bin and level: (bins, levels)."""
    middle: Array = LOWEST_DB + STEP_DB * np.arange(_LEVELS, dtype=float)
    spread: Array = np.exp(LOWEST_LOG + STEP_LOG * np.arange(_SPREADS, dtype=float))
    each = phi(np.array(levels_db), middle[None, :, None], spread[:, None, None])
    return np.ascontiguousarray(each.reshape(BINS, -1))


def bins(thresholds_db: Array, log_sd: Array) -> Index:
    """The bin of every person (both arrays alike)."""
    level = np.rint((thresholds_db - LOWEST_DB) * (1.0 / STEP_DB))
    spread = np.rint((log_sd - LOWEST_LOG) * (1.0 / STEP_LOG))
    np.clip(level, 0, _LEVELS - 1, out=level)
    np.clip(spread, 0, _SPREADS - 1, out=spread)
    return np.asarray(spread * _LEVELS + level, dtype=np.intp)


def entropy(p: Array) -> Array:
    """Entropy in nats of a yes with probability p."""
    q = np.clip(p, 1e-12, 1.0 - 1e-12)
    return np.asarray(-q * np.log(q) - (1.0 - q) * np.log1p(-q))


def _used(bin_of: Index) -> tuple[Index, Index]:
    """The bins that somebody is in, and everybody's place among these: `np.unique`, by counting."""
    there = np.zeros(BINS, dtype=np.intp)
    there[bin_of] = 1
    return np.flatnonzero(there), (np.cumsum(there) - 1)[bin_of]


class Outlook:
    """P(heard and person) = a + b Phi, at every place of a grid."""

    def __init__(
        self, thresholds_db: Array, log_sd: Array, a: Array, b: Array, levels_db: tuple[float, ...]
    ) -> None:
        """`thresholds_db` and `log_sd` are (places, persons); a and b belong to persons."""
        self.a, self.b, self.table = a, b, table(levels_db)
        self.places = [_used(row) for row in bins(thresholds_db, log_sd)]

    @cached_property
    def heard(self) -> Array:
        """P(heard): (places, levels)."""
        rows = [np.bincount(to, self.b) @ self.table[used] for used, to in self.places]
        return np.asarray(np.array(rows) + self.a.sum())

    def heard_times(self, numbers: Array) -> Array:
        """Mean of each number (kinds, persons) times being heard: (kinds, places, levels)."""
        out = []
        for used, to in self.places:
            sums = np.array([np.bincount(to, self.b * kind, used.size) for kind in numbers])
            out.append(sums @ self.table[used])
        return np.array(out).transpose(1, 0, 2) + (numbers @ self.a)[:, None, None]

    def information(self) -> Array:
        """Nats that the answer tells about the person: (places, levels).

        The rates of guesses and lapses are taken at their mean: nobody wants to know them.
        """
        a, b = self.a.sum(), self.b.sum()
        rows = []
        for used, to in self.places:
            share = np.bincount(to, self.b) / b
            rows.append(share @ entropy(a + b * self.table[used]))
        return np.asarray(entropy(self.heard) - np.array(rows))
