"""NIOSH files (CSV), sound and damaged."""

import csv
import io
import subprocess
import sys
import tracemalloc
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earshift.formats import niosh
from earshift.simulate.classes import class_medians
from support.surveys import (
    HEADER,
    LEFT,
    RIGHT,
    joined,
    line,
    niosh_file,
    saved,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For examples that Hypothesis draws; each overwrites the last."""
    return tmp_path_factory.mktemp("formats")


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


@pytest.mark.slow
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
