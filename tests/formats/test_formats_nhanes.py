"""NHANES files (SAS transport), sound and damaged."""

import math
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earshift.formats import nhanes
from earshift.formats.xpt import Xpt, ibm_doubles
from earshift.simulate.classes import class_medians
from support.surveys import GOOD, Cell, aux, ibm, joined, member, saved, xpt


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
        (WHOLE.replace(b"00000140 ", b"00000136 "), "140 belongs in its header, got b'0136'"),
        (
            WHOLE.replace(b"!!!!!!!0000000014", b"!!!!!!!000000zz14"),
            "1 to 9999 belongs in its header, got b'zz14'",
        ),
        (WHOLE.replace(b"!!!!!!!0000000014", b"!!!!!!!0000009999"), "its OBS header"),
        (WHOLE.replace(b"DSCRPTR", b"DISCRTR"), "its DSCRPTR header"),
        (WHOLE.replace(b"\0\1\0\0\0\x08\0\2", b"\0\3\0\0\0\x08\0\2"), "is wrong, got 'AUXU1K1R'"),
        (WHOLE.replace(b"\0\1\0\0\0\x08\0\2", b"\0\1\0\0\0\x09\0\2"), "is wrong, got 'AUXU1K1R'"),
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
