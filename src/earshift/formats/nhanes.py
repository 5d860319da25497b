"""NHANES audiometry (CDC/NCHS `AUX_*.XPT`): one row per person, seven thresholds per ear.

The first of the two 1000 Hz readings counts. Code 666 is "no response" at the loudest tone and 888
"could not obtain"; people who were not tested have blanks.
"""

from collections.abc import Iterator
from pathlib import Path

from earshift.classes import Ears
from earshift.formats.cells import Sentinels, missing_columns
from earshift.formats.xpt import Xpt

SIDES = ("R", "L")
COLUMNS = tuple(
    f"AUXU{frequency}{side}"
    for side in SIDES
    for frequency in ("500", "1K1", "2K", "3K", "4K", "6K", "8K")
)
SENTINELS = Sentinels({666: "no-response", 888: "could-not-obtain"})


def check(path: Path) -> None:
    """Refuse a file of the wrong shape with a ValueError; only its header is read."""
    _open(path)


def read_ears(path: Path) -> Iterator[Ears]:
    """The ears of the file in chunks, right and left of each person in turn."""
    file = _open(path)
    for values, done in file.numbers(COLUMNS):
        yield SENTINELS.ears(SENTINELS.encode(values), SIDES, done, file.size)


def _open(path: Path) -> Xpt:
    file = Xpt.open(path)
    missing_columns(path, COLUMNS, [variable.name for variable in file.variables])
    return file
