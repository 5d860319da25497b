"""The NIOSH audiogram file (SD-1001-2014-0, `Paper1_WebData_Final.csv`): 1.1 million tests.

One row per test with seven thresholds per ear. The codes 997, 998 and 999 stand for thresholds
that were not found; the file does not say how they differ, so each is counted by itself.

A block of the file is split at all its commas and line ends at once, and the cells of interest are
looked up as whole words of eight bytes in a table of the texts seen so far, which soon holds all
that occur. This takes less than half the time of the standard library's reader, and every row's
number of fields is known.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from earshift.engine.refusal import Refusal
from earshift.formats.cells import MISSING, NOT_A_NUMBER, Codes, Sentinels, missing_columns
from earshift.simulate.classes import Ears

SIDES = ("L", "R")
COLUMNS = tuple(
    f"{side}{frequency}"
    for side in SIDES
    for frequency in ("500k", "1k", "2k", "3k", "4k", "6k", "8k")  # 500 Hz is spelled "500k"
)
SENTINELS = Sentinels({997: "code-997", 998: "code-998", 999: "code-999"})
BLANKS = {"", ".", "na", "nan", "null"}

BLOCK = 1 << 20  # bytes; also the longest row, so that what is no CSV is not read in one piece
MAX_HEADER = 1 << 16
MAX_TEXTS = 10_000  # distinct cells to remember
COMMA, LINE_END, RETURN, QUOTE = b',\n\r"'
WORD = 8

Positions = NDArray[np.intp]


def check(path: Path) -> None:
    """Refuse a file of the wrong shape with a ValueError; only its header is read."""
    with path.open("rb") as file:
        _header(path, file)


def read_ears(path: Path) -> Iterator[Ears]:
    """The ears of the file in chunks, left and right of each test in turn."""
    total = path.stat().st_size
    texts = _Texts()
    with path.open("rb") as file:
        header = _header(path, file)
        columns = [header.index(name) for name in COLUMNS]
        rest, row = b"", 2  # the header is row 1
        while True:
            data = file.read(BLOCK)
            block = rest + data
            if not data and block and not block.endswith(b"\n"):
                block += b"\n"
            if not block:
                return
            starts, ends, used, n_rows = _split(path, block, len(header), row)
            if used == 0 and (not data or len(block) >= 2 * BLOCK):
                raise Refusal(
                    f"row {row} of {{file}} does not end; a quote may be open, or this is not CSV",
                    file=path,
                )
            codes = texts.codes(block, starts[:, columns], ends[:, columns])
            rest, row = block[used:], row + n_rows
            yield SENTINELS.ears(codes, SIDES, file.tell() - len(rest), total)


def _header(path: Path, file: BinaryIO) -> list[str]:
    """The column names; the file stands at the first row after."""
    line = file.readline(MAX_HEADER).removeprefix(b"\xef\xbb\xbf")  # a UTF-8 byte order mark
    _refuse_nulls(path, line)
    try:
        # What matters is ASCII; as Latin-1 any other text passes unread, whatever its encoding.
        header = [name.strip() for name in next(csv.reader([line.decode("latin-1")]), [])]
    except csv.Error as error:
        raise Refusal(f"{{file}} is not a CSV file with a header: {error}", file=path) from None
    missing_columns(path, COLUMNS, header)
    twice = [name for name in COLUMNS if header.count(name) > 1]
    if twice:
        raise Refusal(f"{{file}} has the columns {', '.join(twice)} more than once", file=path)
    return header


def _refuse_nulls(path: Path, data: bytes) -> None:
    if b"\0" in data:
        raise Refusal(
            "{file} is not a plain CSV file: it contains null bytes, like an archive, a "
            "spreadsheet or UTF-16 text; unpack it or save it as CSV in UTF-8",
            file=path,
        )


def _split(path: Path, block: bytes, width: int, row: int) -> tuple[Positions, Positions, int, int]:
    """Start and end of the cells, per complete row and column; bytes used, and rows they held.

    `row` is the number of the block's first row. Blank lines give no cells.
    """
    _refuse_nulls(path, block)
    text = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero((text == COMMA) | (text == LINE_END))
    if b'"' in block:
        ends = ends[_outside_quotes(path, text, row)[ends]]
    last = np.flatnonzero(text[ends] == LINE_END)  # in each row, the last of its ends
    if last.size == 0:
        return np.empty((0, width), np.intp), np.empty((0, width), np.intp), 0, 0
    ends = ends[: last[-1] + 1]
    starts = np.concatenate([[0], ends[:-1] + 1])
    fields = np.diff(last, prepend=-1)
    blank = (fields == 1) & np.isin(text[starts[last]], (LINE_END, RETURN))
    wrong = np.flatnonzero((fields != width) & ~blank)
    if wrong.size:
        raise Refusal(
            f"row {row + wrong[0]} of {{file}} has {fields[wrong[0]]} fields where the header has "
            f"{width}; the file may be cut off or damaged",
            file=path,
        )
    full = np.repeat(~blank, fields)
    shape = (-1, width)
    return starts[full].reshape(shape), ends[full].reshape(shape), int(ends[-1]) + 1, fields.size


def _outside_quotes(path: Path, text: NDArray[np.uint8], row: int) -> NDArray[np.bool_]:
    """Which bytes stand outside quotes; the block's first one does.

    Quotes count in pairs, and a doubled quote within quotes is two pairs that touch. A quote
    elsewhere than around a whole cell is refused: it would hide rows in the cell it opens.
    """
    quotes = np.flatnonzero(text == QUOTE)
    opening, closing = quotes[0::2], quotes[1::2]
    before = text[opening[opening > 0] - 1]
    after = text[closing[closing < text.size - 1] + 1]
    if not (
        np.isin(before, (COMMA, LINE_END, QUOTE)).all()
        and np.isin(after, (COMMA, LINE_END, RETURN, QUOTE)).all()
    ):
        raise Refusal(f"{{file}} has a quote within a cell, in row {row} or soon after", file=path)
    inside: NDArray[np.bool_] = (text == QUOTE).cumsum(dtype=np.uint8) % 2 == 1
    return ~inside


class _Texts:
    """The code of every text seen in a cell, for lookup by many cells at once.

    A text of up to eight bytes is one unsigned integer; they are kept in order.
    """

    words: NDArray[np.uint64]
    known: Codes
    masks = np.array([(1 << 8 * n) - 1 for n in range(WORD + 1)], dtype=np.uint64)

    def __init__(self) -> None:
        self._forget()

    def codes(self, block: bytes, starts: Positions, ends: Positions) -> Codes:
        """The codes of the cells between `starts` and `ends`, in the same shape."""
        everywhere = np.ndarray(len(block), "<u8", block + bytes(WORD), strides=(1,))
        lengths = ends - starts
        words = everywhere[starts] & self.masks[np.minimum(lengths, WORD)]
        at, new = self._find(words)
        if new.any():
            if self.words.size > MAX_TEXTS:
                self._forget()
                at, new = self._find(words)
            self._learn(np.unique(words[new]))
            at, _ = self._find(words)
        codes = self.known[at]
        for cell in zip(*np.nonzero(lengths > WORD), strict=True):
            codes[cell] = _code(block[starts[cell] : ends[cell]])
        return codes

    def _find(self, words: NDArray[np.uint64]) -> tuple[Positions, NDArray[np.bool_]]:
        """Where the words stand in the table, and which of them do not."""
        at = np.minimum(np.searchsorted(self.words, words), self.words.size - 1)
        return at, self.words[at] != words

    def _learn(self, words: NDArray[np.uint64]) -> None:
        codes = [_code(int(word).to_bytes(WORD, "little").rstrip(b"\0")) for word in words]
        both = np.concatenate([self.words, words])
        order = np.argsort(both)
        self.words = both[order]
        self.known = np.concatenate([self.known, np.array(codes, dtype=np.int16)])[order]

    def _forget(self) -> None:
        self.words = np.zeros(1, dtype=np.uint64)
        self.known = np.array([_code(b"")], dtype=np.int16)


def _code(cell: bytes) -> int:
    text = cell.decode("latin-1").strip().strip('"').strip()
    if text.lower() in BLANKS:
        return SENTINELS.code(MISSING)
    try:
        return int(SENTINELS.encode([float(text)])[0])
    except ValueError:
        return SENTINELS.code(NOT_A_NUMBER)
