"""Numbers from SAS transport files, version 5 (XPORT, `.xpt`; SAS technical note TS-140).

A file is a row of 80-byte records: headers, one 140-byte description (NAMESTR) per variable, then
the observations at a fixed width, blank-padded to the last record. Numbers are IBM 360 doubles,
cut to the variable's length; a lone first byte `.`, `_` or A-Z is a missing value.

Only what public survey files need is here: numeric columns of a single data set. Data-frame
libraries read them too, but bring tens of megabytes for a hundred lines.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from earshift.engine.refusal import Refusal

RECORD = 80
HEADER = b"HEADER RECORD*******%s HEADER RECORD!!!!!!!"
NAMESTR = 140  # bytes that describe a variable
MAX_ROW = 100_000  # bytes; a longer row means a damaged header
CHUNK = 4_000_000  # bytes, about
MISSING = np.zeros(256, dtype=bool)
MISSING[list(b"._ABCDEFGHIJKLMNOPQRSTUVWXYZ")] = True


@dataclass(frozen=True)
class Variable:
    """A column: its name, and where its bytes stand in a row."""

    name: str
    numeric: bool
    position: int
    length: int


@dataclass(frozen=True)
class Xpt:
    """The header of a transport file."""

    path: Path
    variables: tuple[Variable, ...]
    row_length: int
    start: int
    size: int
    n_rows: int

    @classmethod
    def open(cls, path: Path) -> "Xpt":
        """Read the header; a ValueError says what is wrong with a file that is no such file."""
        size = path.stat().st_size
        with path.open("rb") as file:

            def record(kind: bytes) -> bytes:
                found = file.read(RECORD)
                if len(found) < RECORD or not found.startswith(HEADER % kind.ljust(7)):
                    raise Refusal(
                        f"{{file}} is damaged or cut off where its {kind.decode()} header belongs",
                        file=path,
                        got=found[:48],
                    )
                return found

            first = file.read(RECORD)
            if first.startswith(b"HEADER RECORD*******LIBV8"):
                raise Refusal(
                    "{file} is a SAS transport file of version 8; only version 5 is read", file=path
                )
            if not first.startswith(HEADER % b"LIBRARY"):
                if not first:
                    raise Refusal(
                        "{file} is not a SAS transport (XPT) file: it is empty", file=path
                    )
                raise Refusal(
                    "{file} is not a SAS transport (XPT) file: it does not start like one",
                    file=path,
                    got=first[:20],
                )
            file.read(2 * RECORD)  # version, operating system, dates
            _number(path, record(b"MEMBER")[74:78], NAMESTR, NAMESTR)
            record(b"DSCRPTR")
            file.read(2 * RECORD)  # data set name, dates
            n_variables = _number(path, record(b"NAMESTR")[54:58], 1, 9999)
            described = file.read(math.ceil(n_variables * NAMESTR / RECORD) * RECORD)
            record(b"OBS")
            start_of_rows = file.tell()
            file.seek(max(start_of_rows, size - RECORD + 1))
            tail = file.read()
        variables = tuple(
            _variable(path, described[i * NAMESTR : (i + 1) * NAMESTR]) for i in range(n_variables)
        )
        row_length = sum(v.length for v in variables)
        if row_length > MAX_ROW or any(v.position + v.length > row_length for v in variables):
            raise Refusal("{file} is damaged: its variables do not fit in a row", file=path)
        # The last record is padded with blanks, which may be as long as several short rows.
        blanks = len(tail) - len(tail.rstrip(b" "))
        n_rows = math.ceil((size - start_of_rows - blanks) / row_length)
        if size % RECORD or n_rows * row_length > size - start_of_rows:
            raise Refusal(
                "{file} does not end with a row: it is cut off, or contains more than one data set",
                file=path,
            )
        return cls(path, variables, row_length, start_of_rows, size, n_rows)

    def numbers(self, names: Sequence[str]) -> Iterator[tuple[NDArray[np.float64], int]]:
        """Chunks of rows x `names`, NaN where missing, and the position in the file after each."""
        by_name = {v.name: v for v in self.variables}
        columns = [by_name[name] for name in names]
        text = [v.name for v in columns if not v.numeric]
        if text:
            raise Refusal(
                f"{{file}} has text in the columns {', '.join(text)}, not numbers", file=self.path
            )
        # A whole number of rows and of records, so that no header straddles two chunks.
        step = math.lcm(self.row_length, RECORD)
        step *= max(1, CHUNK // step)
        left = self.n_rows
        with self.path.open("rb") as file:
            file.seek(self.start)
            while left:
                data = file.read(step)
                if HEADER % b"MEMBER " in data:
                    raise Refusal(
                        "{file} contains more than one data set; only one is read", file=self.path
                    )
                n = min(left, len(data) // self.row_length)
                if n == 0:
                    raise Refusal("{file} was cut off while it was read", file=self.path)
                rows = np.frombuffer(data, np.uint8, n * self.row_length).reshape(n, -1)
                left -= n
                yield (
                    np.column_stack(
                        [ibm_doubles(rows[:, v.position : v.position + v.length]) for v in columns]
                    ),
                    file.tell(),
                )


def ibm_doubles(rows: NDArray[np.uint8]) -> NDArray[np.float64]:
    """IBM 360 doubles, one per row of 2 to 8 bytes: sign, 7 bits of exponent, fraction.

    The value is (-1)^sign 16^(exponent - 64) times the fraction, a number of 56 bits below one.
    """
    padded = np.zeros((len(rows), 8), dtype=np.uint8)
    padded[:, : rows.shape[1]] = rows
    bits = padded.view(">u8")[:, 0].astype(np.uint64)
    first = padded[:, 0]
    fraction = (bits & np.uint64(0x00FF_FFFF_FFFF_FFFF)).astype(np.float64)
    exponent = (first & 0x7F).astype(np.int32)
    values = np.ldexp(fraction, 4 * (exponent - 64) - 56)
    values[first >= 0x80] *= -1
    values[(fraction == 0) & MISSING[first]] = np.nan
    return values


def _number(path: Path, digits: bytes, low: int, high: int) -> int:
    """A number from a header, which must lie in a range."""
    if not (digits.isdigit() and low <= int(digits) <= high):
        expected = f"{low} to {high}" if low < high else low
        raise Refusal(
            f"{{file}} is damaged or of an unknown kind: {expected} belongs in its header",
            file=path,
            got=digits,
        )
    return int(digits)


def _variable(path: Path, described: bytes) -> Variable:
    kind, length = (int.from_bytes(described[i : i + 2], "big") for i in (0, 4))
    name = described[8:16].decode("latin-1").strip()
    position = int.from_bytes(described[84:88], "big")
    if kind not in (1, 2) or not (2 <= length <= 8 if kind == 1 else length > 0):
        raise Refusal(
            "{file} is damaged: the description of a variable is wrong", file=path, got=name
        )
    return Variable(name.upper(), kind == 1, position, length)
