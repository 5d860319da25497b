"""From the numbers of a file to thresholds, or to the reason why there is none.

Within a chunk every cell is one small integer: a threshold in dB HL, or `NO_THRESHOLD` plus the
position of a reason. A missing-value code can so never be averaged, and the largest integer of an
ear says whether it is complete and, if not, why.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earshift.engine.refusal import Refusal
from earshift.simulate.classes import FREQUENCIES_HZ, HIGHEST_DB_HL, LOWEST_DB_HL, Ears

NO_THRESHOLD = 1000
MISSING, NOT_A_NUMBER, NOT_A_THRESHOLD = "missing", "not-a-number", "not-a-threshold"
WHOLE_DB = 1e-6  # zero may be 5.4e-79, the smallest number that SAS transport files can hold

Codes = NDArray[np.int16]


class Sentinels:
    """The missing-value codes of one format, each with the reason it stands for.

    An ear that lacks thresholds for several reasons counts under the first of: the codes in the
    order given, a number that cannot be a threshold, text, a blank.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        self.by_value = dict(reasons)
        self.reasons = (MISSING, NOT_A_NUMBER, NOT_A_THRESHOLD, *list(reasons.values())[::-1])

    def code(self, reason: str) -> int:
        return NO_THRESHOLD + self.reasons.index(reason)

    def encode(self, values: ArrayLike) -> Codes:
        """Codes of numbers; NaN is a missing value."""
        numbers = np.asarray(values, dtype=float)
        levels = np.rint(numbers)
        with np.errstate(invalid="ignore"):  # infinity less infinity
            whole = np.abs(numbers - levels) < WHOLE_DB
        plausible = whole & (levels >= LOWEST_DB_HL) & (levels <= HIGHEST_DB_HL)
        codes = np.where(plausible, levels, self.code(NOT_A_THRESHOLD))
        for value, reason in self.by_value.items():
            codes[numbers == value] = self.code(reason)
        codes[np.isnan(numbers)] = self.code(MISSING)
        return codes.astype(np.int16)

    def ears(self, codes: Codes, sides: Sequence[str], done: int, total: int) -> Ears:
        """The complete ears among rows of codes that hold, side after side, seven cells each."""
        by_ear = codes.reshape(-1, len(FREQUENCIES_HZ))
        worst = by_ear.max(axis=1)
        complete = worst < NO_THRESHOLD
        why = np.bincount(worst[~complete] - NO_THRESHOLD, minlength=len(self.reasons))
        return Ears(
            thresholds_db_hl=by_ear[complete],
            sides=np.tile(np.array(sides), len(by_ear) // len(sides))[complete],
            left_out={r: int(n) for r, n in zip(self.reasons, why, strict=True)},
            done=done,
            total=total,
        )


def missing_columns(path: object, wanted: Sequence[str], found: Sequence[str]) -> None:
    """Refuse a file that lacks a column, and say which ones."""
    missing = [name for name in wanted if name not in found]
    if missing:
        shown = ", ".join(repr(name[:20]) for name in found[:8])
        more = f" and {len(found) - 8} more" if len(found) > 8 else ""
        raise Refusal(
            f"{{file}} lacks the columns {', '.join(missing)}; it has {shown or 'none'}{more}",
            file=path,
        )
