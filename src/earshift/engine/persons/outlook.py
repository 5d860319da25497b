"""What a cloud of persons expects of every tone, by bins of threshold and spread.

The chance that the next tone is heard is a sum over persons of weight times Phi((level - T) / s).
For a whole grid of tones that sum is taken over bins of (T, s): one histogram per place, one product
with a table that never changes. Bins are half a dB and a twelfth of a log unit wide; only the choice
of the tone rests on them, never the evidence.
"""

from functools import cache

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
    middle = LOWEST_DB + STEP_DB * np.arange(_LEVELS)
    spread = np.exp(LOWEST_LOG + STEP_LOG * np.arange(_SPREADS))
    each = phi(np.array(levels_db), middle[None, :, None], spread[:, None, None])
    return np.ascontiguousarray(each.reshape(BINS, -1))


def bins(thresholds_db: Array, log_sd: Array) -> Index:
    """The bin of every person (both arrays alike)."""
    level = np.rint((thresholds_db - LOWEST_DB) * (1.0 / STEP_DB))
    spread = np.rint((log_sd - LOWEST_LOG) * (1.0 / STEP_LOG))
    np.clip(level, 0, _LEVELS - 1, out=level)
    np.clip(spread, 0, _SPREADS - 1, out=spread)
    return np.asarray(spread * _LEVELS + level, dtype=np.intp)


def expected(where: Index, weights: Array, levels_db: tuple[float, ...]) -> Array:
    """Sum over persons of weight times Phi: (kinds of weight, levels) for one place.

    `where` is the persons' bins there, `weights` (kinds, persons).
    """
    used, inverse = np.unique(where, return_inverse=True)
    sums = np.array([np.bincount(inverse, kind, used.size) for kind in weights])
    return np.asarray(sums @ table(levels_db)[used])
