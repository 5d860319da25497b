"""Raw survey files as NHANES (SAS transport) and NIOSH (CSV) publish them, written for tests."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from earshift.formats import nhanes, niosh
from earshift.simulate.classes import Ears

GOOD = [10.0, 5.0, 0.0, 15.0, 25.0, 30.0, 20.0]
Cell = float | str


def joined(chunks: Iterator[Ears]) -> tuple[list[tuple[str, list[int]]], dict[str, int]]:
    """All ears with their side, and the reasons that occurred."""
    ears, left_out = [], dict[str, int]()
    for chunk in chunks:
        ears += list(zip(chunk.sides.tolist(), chunk.thresholds_db_hl.tolist(), strict=True))
        for reason, n in chunk.left_out.items():
            left_out[reason] = left_out.get(reason, 0) + n
    return ears, {reason: n for reason, n in left_out.items() if n}


def ibm(value: Cell, length: int = 8) -> bytes:
    """An IBM 360 double, or the missing value of a letter, a dot or an underscore."""
    if isinstance(value, str):
        return value.encode().ljust(length, b"\0")
    if value == 0:
        return bytes(length)
    exponent = 64
    fraction = abs(value)
    while fraction >= 1:
        fraction, exponent = fraction / 16, exponent + 1
    while fraction < 1 / 16:
        fraction, exponent = fraction * 16, exponent - 1
    first = exponent | (0x80 if value < 0 else 0)
    return (bytes([first]) + int(fraction * 2**56).to_bytes(7, "big"))[:length]


def record(text: str) -> bytes:
    return text.encode().ljust(80)


def padded(data: bytes) -> bytes:
    return data + b" " * (-len(data) % 80)


def member(
    names: Sequence[str], rows: Sequence[Sequence[Cell]], lengths: dict[str, int], texts: set[str]
) -> bytes:
    """One data set; columns in `texts` hold characters."""
    described, position = b"", 0
    for number, name in enumerate(names, start=1):
        length = lengths.get(name, 8)
        kind = 2 if name in texts else 1
        part = b"".join(n.to_bytes(2, "big") for n in (kind, 0, length, number))
        part += name.encode().ljust(8) + b"a label".ljust(40) + b" " * 8 + bytes(8) + b" " * 8
        described += (part + bytes(4) + position.to_bytes(4, "big")).ljust(140, b"\0")
        position += length
    data = b"".join(
        str(value).encode().ljust(lengths.get(name, 8))
        if name in texts
        else ibm(value, lengths.get(name, 8))
        for row in rows
        for name, value in zip(names, row, strict=True)
    )
    zeros = "0" * 30
    return b"".join(
        [
            record(f"HEADER RECORD*******MEMBER  HEADER RECORD!!!!!!!{zeros[:17]}1600000000140"),
            record(f"HEADER RECORD*******DSCRPTR HEADER RECORD!!!!!!!{zeros}"),
            record("SAS     AUX     SASDATA 9.4"),
            record("01JAN20:00:00:00"),
            record(
                f"HEADER RECORD*******NAMESTR HEADER RECORD!!!!!!!{len(names):010d}{zeros[:20]}"
            ),
            padded(described),
            record(f"HEADER RECORD*******OBS     HEADER RECORD!!!!!!!{zeros}"),
            padded(data),
        ]
    )


def xpt(
    names: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    lengths: dict[str, int] | None = None,
    texts: set[str] | None = None,
) -> bytes:
    library = record(f"HEADER RECORD*******LIBRARY HEADER RECORD!!!!!!!{'0' * 30}")
    library += record("SAS     SAS     SASLIB  9.4     X64_10PR") + record("01JAN20:00:00:00")
    return library + member(names, rows, lengths or {}, texts or set())


def aux(*rows: Sequence[Cell]) -> bytes:
    """An audiometry file whose rows are seven thresholds of the right ear, then of the left."""
    return xpt(nhanes.COLUMNS, rows)


def saved(folder: Path, data: bytes, name: str = "file") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


HEADER = "test_date,nid," + ",".join(niosh.COLUMNS) + ",gender,naics,age_group,region,NAICS_descr"
LEFT, RIGHT = [10, 5, 0, 15, 25, 30, 20], [20, 20, 25, -10, 120, 30, 25]


def line(left: Sequence[object], right: Sequence[object], industry: str = "Foundries") -> str:
    return f"12-FEB-2007,1,{','.join(map(str, [*left, *right]))},M,331512,4,MA,{industry}"


def niosh_file(folder: Path, *lines: str, end: str = "\n") -> Path:
    return saved(folder, "".join(text + end for text in (HEADER, *lines)).encode("latin-1"))
