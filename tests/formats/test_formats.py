"""Raw survey files: NHANES (SAS transport) and NIOSH (CSV), sound and damaged."""

import csv
import gzip
import io
import math
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earshift.formats import SOURCES, cells, nhanes, niosh, read_ears
from earshift.formats.xpt import Xpt, ibm_doubles
from earshift.simulate.classes import FREQUENCIES_HZ, Ears, class_medians
from support.helpers import DATA, needs_data

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


# --- NHANES: a writer of SAS transport files ------------------------------------------------------


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For examples that Hypothesis draws; each overwrites the last."""
    return tmp_path_factory.mktemp("formats")


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("4110000000000000", 1.0),
        ("c276a00000000000", -118.625),
        ("401999999999999a", 0.1),
        ("42640000", 100.0),
        ("c1a0", -10.0),
        ("0000000000000000", 0.0),
        ("8000000000000000", 0.0),
        ("2e00000000000000", math.nan),  # .
        ("5f00000000000000", math.nan),  # ._
        ("4100000000000000", math.nan),  # .A
        ("5a0000", math.nan),  # .Z
        ("2e10000000000000", 16.0**-19),  # the same first byte in front of a number
    ],
)
def test_numbers_of_the_ibm_360(data: str, value: float) -> None:
    rows = np.frombuffer(bytes.fromhex(data), np.uint8).reshape(1, -1)
    np.testing.assert_equal(ibm_doubles(rows), np.array([value]))


@given(st.floats(-1e70, 1e70, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-70))
def test_doubles_survive_the_way_there_and_back(value: float) -> None:
    rows = np.frombuffer(ibm(value), np.uint8).reshape(1, -1)
    assert ibm_doubles(rows)[0] == value


def test_zero_as_nhanes_stores_it_is_zero(tmp_path: Path) -> None:
    tiny = 16.0**-65
    assert tiny == pytest.approx(5.4e-79, rel=1e-3)
    assert ibm(tiny).hex() == "0010000000000000"
    path = saved(tmp_path, aux([tiny] * 7 + GOOD))
    ears, left_out = joined(nhanes.read_ears(path))
    assert ears == [("R", [0] * 7), ("L", GOOD)]
    assert left_out == {}


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (666.0, "no-response"),
        (888.0, "could-not-obtain"),
        (".", "missing"),
        ("_", "missing"),
        ("A", "missing"),
        ("Z", "missing"),
        (777.0, "not-a-threshold"),
        (131.0, "not-a-threshold"),
        (-21.0, "not-a-threshold"),
        (12.5, "not-a-threshold"),
    ],
)
@pytest.mark.parametrize("place", range(7))
def test_nhanes_codes_are_never_averaged(
    tmp_path: Path, cell: Cell, reason: str, place: int
) -> None:
    spoilt: list[Cell] = [*GOOD]
    spoilt[place] = cell
    path = saved(tmp_path, aux([*GOOD, *spoilt], [*spoilt, *GOOD]))
    ears, left_out = joined(nhanes.read_ears(path))
    assert ears == [("R", GOOD), ("L", GOOD)]
    assert left_out == {reason: 2}
    table = class_medians(nhanes.read_ears(path))
    assert table.medians_db_hl["normal"] == tuple(GOOD)


def test_an_ear_counts_under_one_reason(tmp_path: Path) -> None:
    several: list[Cell] = [".", 12.5, 888.0, 666.0, 888.0, 12.5, "."]
    path = saved(tmp_path, aux([*several, ".", *GOOD[:5], 12.5]))
    assert joined(nhanes.read_ears(path)) == ([], {"no-response": 1, "not-a-threshold": 1})


def test_only_the_first_reading_at_1_khz_counts(tmp_path: Path) -> None:
    names = ["SEQN", "AUXU1K2R", *nhanes.COLUMNS, "AUXU1K2L", "COMMENT"]
    row: list[Cell] = [62161.0, 95.0, *GOOD, *GOOD, 666.0, "no remarks"]
    path = saved(tmp_path, xpt(names, [row, row], {"COMMENT": 11, "SEQN": 4}, {"COMMENT"}))
    ears, left_out = joined(nhanes.read_ears(path))
    assert ears == [("R", GOOD), ("L", GOOD)] * 2
    assert left_out == {}


@pytest.mark.parametrize("length", range(3, 9))
def test_numbers_may_be_stored_in_fewer_bytes(tmp_path: Path, length: int) -> None:
    lengths = dict.fromkeys(nhanes.COLUMNS, length)
    rows: list[list[Cell]] = [[*GOOD, *[120.0] * 7], [*[-10.0] * 7, *GOOD[:6], "."]]
    path = saved(tmp_path, xpt(nhanes.COLUMNS, rows, lengths))
    ears, left_out = joined(nhanes.read_ears(path))
    assert ears == [("R", GOOD), ("L", [120] * 7), ("R", [-10] * 7)]
    assert left_out == {"missing": 1}


@pytest.mark.parametrize("n_rows", range(25))
@pytest.mark.parametrize("n_columns", [1, 3, 14])
def test_blanks_at_the_end_are_no_rows(tmp_path: Path, n_rows: int, n_columns: int) -> None:
    names = [f"X{i}" for i in range(n_columns)]
    rows = [[float(r + i) for i in range(n_columns)] for r in range(n_rows)]
    file = Xpt.open(saved(tmp_path, xpt(names, rows)))
    assert file.n_rows == n_rows
    assert [row for values, _ in file.numbers(names) for row in values.tolist()] == rows


def test_a_file_longer_than_a_chunk_is_read_to_its_end(tmp_path: Path) -> None:
    rows = [[*[float(i % 100)] * 7, *GOOD] for i in range(2_000)]
    path = saved(tmp_path, aux(*rows))
    with mock.patch("earshift.formats.xpt.CHUNK", 10_000):
        chunks = list(nhanes.read_ears(path))
    assert len(chunks) > 10
    assert [c.done for c in chunks] == sorted(c.done for c in chunks)
    assert (chunks[-1].done, chunks[-1].total) == (path.stat().st_size,) * 2
    ears, _ = joined(iter(chunks))
    assert ears == [e for row in rows for e in (("R", row[:7]), ("L", GOOD))]


def test_missing_nhanes_columns_are_named(tmp_path: Path) -> None:
    names = ["SEQN", *(c for c in nhanes.COLUMNS if c not in ("AUXU3KR", "AUXU500L"))]
    path = saved(tmp_path, xpt(names, []))
    with pytest.raises(ValueError, match="lacks the columns AUXU3KR, AUXU500L; it has 'SEQN'"):
        nhanes.check(path)


def test_names_are_the_same_in_small_letters(tmp_path: Path) -> None:
    path = saved(tmp_path, WHOLE.replace(b"AUXU4KR", b"auxu4kr"))
    assert len(joined(nhanes.read_ears(path))[0]) == 2


def test_thresholds_as_text_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, xpt(nhanes.COLUMNS, [["10"] * 14], {}, set(nhanes.COLUMNS)))
    with pytest.raises(ValueError, match="has text in the columns AUXU500R"):
        list(nhanes.read_ears(path))


def test_every_cut_through_a_transport_file_is_noticed(tmp_path: Path) -> None:
    """Only a file that ends with both a row and a record could have been shorter from the start."""
    whole = aux(*[[*GOOD, *GOOD]] * 12)
    start = whole.index(b"OBS     HEADER") - 20 + 80
    for size in range(0, len(whole), 8):
        path = saved(tmp_path, whole[:size])
        if size >= start and (size - start) % math.lcm(80, 14 * 8) == 0:
            assert len(joined(nhanes.read_ears(path))[0]) == 2 * (size - start) // (14 * 8)
        else:
            with pytest.raises(ValueError, match=r"cut off|not a SAS transport"):
                list(nhanes.read_ears(path))


@pytest.mark.parametrize("n", range(1, 30))
def test_two_data_sets_in_one_file_are_refused(tmp_path: Path, n: int) -> None:
    """Whether or not the second happens to end where a row of the first would."""
    both = aux(*[[*GOOD, *GOOD]] * n) + member(["X"], [[1.0]] * n, {}, set())
    with pytest.raises(ValueError, match="more than one data set"):
        list(nhanes.read_ears(saved(tmp_path, both)))


WHOLE = aux([*GOOD, *GOOD])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is not a SAS transport .* is empty"),
        (b"<!DOCTYPE html>" * 100, "is not a SAS transport .*<!DOCTYPE html>"),
        (b"SEQN,AUXU500R\n1,5\n", "is not a SAS transport .*SEQN"),
        (bytes(100_000), "is not a SAS transport"),
        (WHOLE.replace(b"LIBRARY ", b"LIBV8   "), "version 8"),
        (WHOLE.replace(b"00000140 ", b"00000136 "), "b'0136' where 140 belongs"),
        (
            WHOLE.replace(b"!!!!!!!0000000014", b"!!!!!!!000000zz14"),
            "b'zz14' where 1 to 9999 belongs",
        ),
        (WHOLE.replace(b"!!!!!!!0000000014", b"!!!!!!!0000009999"), "instead of its OBS header"),
        (WHOLE.replace(b"DSCRPTR", b"DISCRTR"), "instead of its DSCRPTR header"),
        (WHOLE.replace(b"\0\1\0\0\0\x08\0\2", b"\0\3\0\0\0\x08\0\2"), "AUXU1K1R' wrongly"),
        (WHOLE.replace(b"\0\1\0\0\0\x08\0\2", b"\0\1\0\0\0\x09\0\2"), "AUXU1K1R' wrongly"),
        (WHOLE.replace(b"\0\1\0\0\0\x08\0\2", b"\0\2\0\0\xff\xff\0\2"), "is cut off"),
        (WHOLE.replace(b"\0\0\0\x08".ljust(56, b"\0"), b"\0\0\1\0".ljust(56, b"\0")), "do not fit"),
        (xpt(["A", "B"], [], {"A": 65_535, "B": 65_535}, {"A", "B"}), "do not fit in a row"),
    ],
)
def test_what_is_no_transport_file_is_refused(tmp_path: Path, data: bytes, says: str) -> None:
    path = saved(tmp_path, data)
    with pytest.raises(ValueError, match=says):
        list(nhanes.read_ears(path))


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=6))
def test_damaged_transport_files_are_read_or_refused(
    folder: Path, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(WHOLE)
    for place, byte in changes:
        data[place] = byte
    path = saved(folder, bytes(data))
    try:
        ears, left_out = joined(nhanes.read_ears(path))
    except ValueError as error:
        refusal = str(error)
    else:
        refusal = ""
        assert len(ears) + sum(left_out.values()) == 2
    assert refusal == "" or str(path) in refusal


# --- NIOSH ----------------------------------------------------------------------------------------

HEADER = "test_date,nid," + ",".join(niosh.COLUMNS) + ",gender,naics,age_group,region,NAICS_descr"
LEFT, RIGHT = [10, 5, 0, 15, 25, 30, 20], [20, 20, 25, -10, 120, 30, 25]


def line(left: Sequence[object], right: Sequence[object], industry: str = "Foundries") -> str:
    return f"12-FEB-2007,1,{','.join(map(str, [*left, *right]))},M,331512,4,MA,{industry}"


def niosh_file(folder: Path, *lines: str, end: str = "\n") -> Path:
    return saved(folder, "".join(text + end for text in (HEADER, *lines)).encode("latin-1"))


def test_the_shape_of_the_published_file(tmp_path: Path) -> None:
    assert "nid,L500k,L1k,L2k,L3k,L4k,L6k,L8k,R500k,R1k,R2k,R3k,R4k,R6k,R8k,gender" in HEADER
    ears, left_out = joined(niosh.read_ears(niosh_file(tmp_path, line(LEFT, RIGHT))))
    assert ears == [("L", LEFT), ("R", RIGHT)]
    assert left_out == {}


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("997", "code-997"),
        ("998", "code-998"),
        ("999", "code-999"),
        ("999.0", "code-999"),
        ("", "missing"),
        (" ", "missing"),
        (".", "missing"),
        ("NA", "missing"),
        ("nan", "missing"),
        ("DNT", "not-a-number"),
        ("10 dB HL (masked)", "not-a-number"),
        ("12.5", "not-a-threshold"),
        ("131", "not-a-threshold"),
        ("-21", "not-a-threshold"),
        ("inf", "not-a-threshold"),
        ("1e300", "not-a-threshold"),
    ],
)
@pytest.mark.parametrize("place", [0, 3, 6])
def test_niosh_codes_are_never_averaged(tmp_path: Path, cell: str, reason: str, place: int) -> None:
    spoilt: list[object] = [*LEFT]
    spoilt[place] = cell
    path = niosh_file(tmp_path, line(LEFT, spoilt), line(spoilt, LEFT))
    ears, left_out = joined(niosh.read_ears(path))
    assert ears == [("L", LEFT), ("R", LEFT)]
    assert left_out == {reason: 2}
    assert class_medians(niosh.read_ears(path)).medians_db_hl["normal"] == tuple(LEFT)


@pytest.mark.parametrize(
    "cell", ["10", "10.0", " 10", "10 ", '"10"', "+10", "1e1", "000000010", "10.00000000000"]
)
def test_a_number_may_be_written_in_many_ways(tmp_path: Path, cell: str) -> None:
    path = niosh_file(tmp_path, line([cell] * 7, [cell, *LEFT[1:]]))
    assert joined(niosh.read_ears(path))[0] == [("L", [10] * 7), ("R", LEFT)]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "industry",
    [
        '"Sawmills, Hardwood"',
        '"say ""mill"""',
        '"two\nlines,\r\nand more"',
        '""',
        "",
        "Café",
        '""""',
    ],
)
def test_quoted_fields_stay_whole(tmp_path: Path, industry: str, end: str) -> None:
    path = niosh_file(tmp_path, *[line(LEFT, RIGHT, industry)] * 3, end=end)
    assert joined(niosh.read_ears(path)) == ([("L", LEFT), ("R", RIGHT)] * 3, {})


def test_byte_order_mark_blank_lines_and_a_missing_last_line_end(tmp_path: Path) -> None:
    names = ",".join(niosh.COLUMNS)
    rows = [",".join(map(str, row)) for row in ([*LEFT, *RIGHT], [*RIGHT, *LEFT], [*LEFT, *LEFT])]
    text = "\r\n".join(["\ufeff" + names, rows[0], "", rows[1], "", rows[2]])
    path = saved(tmp_path, text.encode())
    ears, _ = joined(niosh.read_ears(path))
    assert ears == [("L", LEFT), ("R", RIGHT), ("L", RIGHT), ("R", LEFT), ("L", LEFT), ("R", LEFT)]


@pytest.mark.parametrize("turn", range(15))
def test_columns_may_stand_in_any_order(tmp_path: Path, turn: int) -> None:
    names, values = [*niosh.COLUMNS, "note"], [*LEFT, *RIGHT, '"a, b"']
    lines = [",".join(map(str, part[turn:] + part[:turn])) for part in (names, values, values)]
    path = saved(tmp_path, "\r\n\r\n".join(lines).encode())
    assert joined(niosh.read_ears(path)) == ([("L", LEFT), ("R", RIGHT)] * 2, {})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (
            HEADER.replace("L3k,", "").replace("R500k", "R05k"),
            "lacks the columns L3k, R500k; it has",
        ),
        (HEADER.replace(",", ";"), "lacks the columns L500k, L1k, .*; it has 'test_date;nid;"),
        ("", "lacks the columns .*; it has none"),
        ("\n\n" + HEADER, "lacks the columns .*; it has none"),
        (HEADER + ",L3k", "has the columns L3k more than once"),
        (HEADER + "\r" + line(LEFT, RIGHT), "is not a CSV file with a header"),
    ],
)
def test_missing_niosh_columns_are_named(tmp_path: Path, data: str, says: str) -> None:
    path = saved(tmp_path, data.encode())
    with pytest.raises(ValueError, match=says):
        niosh.check(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_other_encodings_are_refused_with_a_remedy(tmp_path: Path, encoding: str) -> None:
    path = saved(tmp_path, f"{HEADER}\n{line(LEFT, RIGHT)}\n".encode(encoding))
    with pytest.raises(ValueError, match="save it as CSV in UTF-8"):
        niosh.check(path)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (
            [line(LEFT, RIGHT), line(LEFT, RIGHT[:6])],
            "row 3 .* has 20 fields where the header has 21",
        ),
        ([line(LEFT, RIGHT), "", line(LEFT, [*RIGHT, 5])], "row 4 .* has 22 fields"),
        ([line(LEFT, RIGHT), "12-FEB-2007,1"], "row 3 .* has 2 fields"),
        (["x"], "row 2 .* has 1 fields"),
        ([line(LEFT, RIGHT, "Sawmills, Hardwood")], "row 2 .* has 22 fields"),
        ([line(LEFT, RIGHT, '"open'), line(LEFT, RIGHT)], "row 2 .* does not end"),
        ([line(LEFT, RIGHT), line(LEFT, RIGHT, '"open')], "row 3 .* does not end"),
        # Paired, these two would hide the rows between them in one long description.
        (
            [line(LEFT, RIGHT, '5" pipe'), line(LEFT, RIGHT), line(LEFT, RIGHT, '6" pipe')],
            "a quote",
        ),
        (
            [line(LEFT, RIGHT, '5" pipe'), line(LEFT, RIGHT), line(LEFT, RIGHT, 'pipe 6"')],
            "a quote",
        ),
        ([line(LEFT, RIGHT, '"pipe" x')], "a quote within a cell"),
        ([line(LEFT, RIGHT, "a\0b")], "null bytes"),
    ],
)
def test_damaged_rows_are_refused(tmp_path: Path, lines: list[str], says: str) -> None:
    path = niosh_file(tmp_path, *lines)
    with pytest.raises(ValueError, match=says):
        list(niosh.read_ears(path))


def test_a_cut_never_changes_a_threshold(tmp_path: Path) -> None:
    """A cut within the description leaves no trace, but it takes no threshold either."""
    rows = [line(LEFT, RIGHT, '"Sawmills, Hardwood"'), line(RIGHT, [100] * 7)]
    whole = "\n".join([HEADER, *rows]).encode()
    expected = [("L", LEFT), ("R", RIGHT), ("L", RIGHT), ("R", [100] * 7)]
    counts = set()
    for size in range(len(whole) + 1):
        path = saved(tmp_path, whole[:size])
        try:
            ears, left_out = joined(niosh.read_ears(path))
        except ValueError:
            continue
        assert ears == expected[: len(ears)]
        assert left_out == {}
        counts.add(len(ears))
    assert counts == {0, 2, 4}


@pytest.mark.parametrize("header", ["", HEADER + "\n"])
def test_a_file_without_line_ends_is_not_read_whole(tmp_path: Path, header: str) -> None:
    path = saved(tmp_path, header.encode() + b"x" * 50_000_000)
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"row 2 .* does not end|lacks the columns"):
        list(niosh.read_ears(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 15_000_000


def test_progress_counts_whole_rows(tmp_path: Path) -> None:
    path = niosh_file(tmp_path, *[line(LEFT, RIGHT)] * 100)
    with mock.patch.object(niosh, "BLOCK", 1000):
        done = [chunk.done for chunk in niosh.read_ears(path)]
    assert len(done) > 5
    data = path.read_bytes()
    assert {data[n - 1] for n in done} == {ord("\n")}
    assert done[-1] == len(data)


def test_texts_without_end_are_forgotten() -> None:
    texts = niosh._Texts()
    sizes, codes = [], []
    with mock.patch.object(niosh, "MAX_TEXTS", 20):
        for number in range(100):
            cell = str(number).encode()
            ends = np.array([[len(cell)]])
            codes.append(texts.codes(cell + b",", np.zeros_like(ends), ends).item())
            sizes.append(texts.words.size)
    assert codes == list(range(100))
    assert max(sizes) < 25


def naive(text: str) -> list[list[float]]:
    """The thresholds of all complete ears, by the standard library."""
    rows = csv.DictReader(io.StringIO(text, newline=""))
    ears = []
    for row in rows:
        for side in "LR":
            values = [row[name] for name in niosh.COLUMNS if name[0] == side]
            if all(v.strip().lstrip("-").isdigit() and -20 <= int(v) <= 130 for v in values):
                ears.append([float(v) for v in values])
    return ears


field = st.text(st.sampled_from('ab",\n é'), max_size=12)
threshold = st.integers(-30, 140).map(str) | st.sampled_from(["", "997", "999", "NR", " 5"])


@given(
    st.lists(st.tuples(field, st.lists(threshold, min_size=14, max_size=14), field), max_size=25),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(300, 1500),
    st.sampled_from([2, 10_000]),
)
def test_any_table_reads_as_the_standard_library_reads_it(
    folder: Path, rows: list[tuple[str, list[str], str]], end: str, block: int, remember: int
) -> None:
    """However blocks cut the file, and if the texts seen are forgotten in between."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=end)
    writer.writerow(["nid", *niosh.COLUMNS, "NAICS_descr"])
    writer.writerows([before, *thresholds, after] for before, thresholds, after in rows)
    path = saved(folder, text.getvalue().encode())
    with mock.patch.multiple(niosh, BLOCK=block, MAX_TEXTS=remember):
        ears, left_out = joined(niosh.read_ears(path))
    assert [levels for _, levels in ears] == naive(text.getvalue())
    assert len(ears) + sum(left_out.values()) == 2 * len(rows)


def test_a_file_of_the_published_size_takes_little_memory(tmp_path: Path) -> None:
    """1.1 million rows in under 1 GB (`make bench` times it)."""
    rng = np.random.default_rng(1)
    levels = rng.choice([*range(-10, 105, 5), 997, 999], (10_000, 14)).tolist()
    rows = "".join(
        line(r[:7], r[7:], '"Paper, Pulp and Mills of other kinds"') + "\r\n" for r in levels
    )
    path = tmp_path / "niosh.csv"
    with path.open("w", newline="") as file:
        file.write(HEADER + "\r\n")
        for _ in range(110):
            file.write(rows)
    code = (
        "import resource, sys\n"
        "from earshift.simulate.classes import class_medians\n"
        "from earshift.formats import read_ears\n"
        "table = class_medians(read_ears('niosh', sys.argv[1:]))\n"
        "kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "kilobytes /= 1024 if sys.platform == 'darwin' else 1\n"
        "print(table.n + table.n_left_out, kilobytes)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    n, kilobytes = map(float, done.stdout.split())
    assert n == 2_200_000
    assert kilobytes < 1_000_000


# --- both -----------------------------------------------------------------------------------------


def small(folder: Path, source: str, name: str) -> Path:
    text = "\n".join([HEADER, line(LEFT, RIGHT), ""]).encode()
    return saved(folder, text if source == "niosh" else aux([*GOOD, *GOOD]), name)


@pytest.mark.parametrize("source", SOURCES)
def test_files_add_up_and_progress_ends_at_the_total(tmp_path: Path, source: str) -> None:
    paths = [small(tmp_path, source, name) for name in "abc"]
    seen: list[tuple[int, int]] = []
    table = class_medians(read_ears(source, paths), lambda done, total: seen.append((done, total)))
    assert table.n == 6
    total = sum(path.stat().st_size for path in paths)
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)
    assert len(seen) >= 3


@pytest.mark.parametrize("source", SOURCES)
def test_all_headers_are_checked_before_a_file_is_read(tmp_path: Path, source: str) -> None:
    wrong = saved(tmp_path, b"something else\n", "wrong")
    with pytest.raises(ValueError, match="wrong"):
        read_ears(source, [small(tmp_path, source, "a"), wrong])


def test_a_file_of_the_other_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a SAS transport"):
        read_ears("nhanes", [small(tmp_path, "niosh", "a")])
    with pytest.raises(ValueError, match=r"null bytes|lacks the columns"):
        read_ears("niosh", [small(tmp_path, "nhanes", "b")])


def test_the_same_file_twice_is_refused(tmp_path: Path) -> None:
    path = small(tmp_path, "niosh", "a")
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(ValueError, match="link is given twice"):
        read_ears("niosh", [path, link])


def test_unknown_sources_and_no_files_are_refused() -> None:
    with pytest.raises(ValueError, match="'nhans'; known: nhanes, niosh"):
        read_ears("nhans", ["a"])
    with pytest.raises(ValueError, match="no files"):
        read_ears("niosh", [])


@pytest.mark.parametrize("source", SOURCES)
def test_a_file_that_is_not_there_says_so(tmp_path: Path, source: str) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        read_ears(source, [tmp_path / "absent"])


def test_a_code_cannot_pass_for_a_threshold() -> None:
    for sentinels in (nhanes.SENTINELS, niosh.SENTINELS):
        codes = [sentinels.code(reason) for reason in sentinels.reasons]
        assert min(codes) == cells.NO_THRESHOLD
        assert len(set(codes)) == len(codes)


@needs_data
@pytest.mark.parametrize("source", SOURCES)
def test_real_ears_through_a_raw_file_give_the_known_counts(tmp_path: Path, source: str) -> None:
    """The NHANES ears of 2011-2016, put back into the files that they might have come from."""
    with gzip.open(DATA / "nhanes_ears_2011_2016.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    blank = "." if source == "nhanes" else ""
    people: dict[str, dict[str, list[Cell]]] = {}
    for row in rows:
        ear = [float(row[str(f)]) if source == "nhanes" else row[str(f)] for f in FREQUENCIES_HZ]
        people.setdefault(row["SEQN"], {"L": [blank] * 7, "R": [blank] * 7})[row["ear"]] = [*ear]
    if source == "nhanes":
        path = saved(tmp_path, aux(*(p["R"] + p["L"] for p in people.values())))
    else:
        path = niosh_file(tmp_path, *(line(p["L"], p["R"]) for p in people.values()))
    table = class_medians(read_ears(source, [path]))
    assert list(table.counts.values()) == [12712, 2363, 816, 230, 72, 38, 5]
    assert table.n_left_out == table.left_out["missing"] == 2 * len(people) - len(rows)
    assert table.medians_db_hl["profound"] == (95.0, 105.0, 105.0, 105.0, 115.0, 120.0, 110.0)
