"""Hearing-loss classes, and their medians against numpy's."""

import csv
import gzip
import json
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from earshift.engine.norms import class_names, tables
from earshift.simulate.classes import (
    CLASS_LIMITS,
    CLASS_RANGES,
    FREQUENCIES_HZ,
    HIGHEST_DB_HL,
    LOWEST_DB_HL,
    ClassTable,
    Ears,
    class_medians,
    classify,
)
from support.helpers import DATA, needs_data


def ears(thresholds: object, left_out: dict[str, int] | None = None) -> Ears:
    levels = np.array(thresholds, dtype=np.int16).reshape(-1, 7)
    return Ears(levels, np.full(len(levels), "L"), left_out or {})


def flat(*levels: int) -> list[list[int]]:
    """Ears that hear every frequency alike."""
    return [[level] * 7 for level in levels]


def by_sum(thresholds: NDArray[np.int16]) -> list[NDArray[np.int16]]:
    """Ears per class, from the sum of three thresholds: whole numbers only."""
    sums = thresholds[:, :3].astype(int).sum(axis=1)
    edges = [-(10**6), 45, 75, 120, 165, 210, 270, 10**6]
    return [thresholds[(sums > low) & (sums <= high)] for low, high in pairwise(edges)]


def assert_equals_numpy(table: ClassTable, thresholds: NDArray[np.int16]) -> None:
    for row, members in zip(table.rows(), by_sum(thresholds), strict=True):
        assert row["ears"] == len(members)
        if len(members) == 0:
            assert row["median_db_hl"] is row["p25_db_hl"] is row["p75_db_hl"] is None
            continue
        assert row["median_db_hl"] == tuple(np.median(members, axis=0))
        assert row["p25_db_hl"] == tuple(np.quantile(members, 0.25, axis=0))
        assert row["p75_db_hl"] == tuple(np.quantile(members, 0.75, axis=0))


def test_the_classes_are_those_of_the_shipped_medians() -> None:
    assert tuple(CLASS_LIMITS) == class_names()
    assert list(FREQUENCIES_HZ) == tables()["class_medians"]["frequencies_hz"]
    assert len(CLASS_RANGES) == len(CLASS_LIMITS)


@pytest.mark.parametrize(
    ("pta", "name"),
    [
        (-10, "normal"),
        (15, "normal"),
        (46 / 3, "slight"),
        (16, "slight"),
        (25, "slight"),
        (76 / 3, "mild"),
        (40, "mild"),
        (41, "moderate"),
        (55, "moderate"),
        (56, "moderately-severe"),
        (70, "moderately-severe"),
        (71, "severe"),
        (90, "severe"),
        (271 / 3, "profound"),
        (91, "profound"),
        (120, "profound"),
    ],
)
def test_a_class_ends_at_its_upper_limit(pta: float, name: str) -> None:
    assert classify(pta) == name


@pytest.mark.parametrize("pta", [float("nan"), float("inf")])
def test_no_class_without_a_number(pta: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        classify(pta)


def test_five_decibel_steps_never_fall_between_the_printed_limits() -> None:
    """So rounding the mean or cutting at the limit gives the same class."""
    means = [total / 3 for total in range(3 * LOWEST_DB_HL, 3 * HIGHEST_DB_HL + 1, 5)]
    assert [classify(m) for m in means] == [classify(round(m)) for m in means]
    assert classify(46 / 3) != classify(round(46 / 3))  # thresholds in single dB can differ


levels = st.integers(LOWEST_DB_HL, HIGHEST_DB_HL) | st.sampled_from([10, 15, 20, 25, 40, 55, 90])


@given(
    st.lists(st.lists(levels, min_size=7, max_size=7), min_size=1, max_size=60),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_medians_and_quartiles_equal_numpy_however_the_ears_come(
    rows: list[list[int]], cuts: list[int]
) -> None:
    thresholds = np.array(rows, dtype=np.int16)
    chunks = [ears(part) for part in np.split(thresholds, sorted(min(c, len(rows)) for c in cuts))]
    assert_equals_numpy(class_medians(chunks), thresholds)


def test_many_ears_of_one_class_equal_numpy() -> None:
    thresholds = np.random.default_rng(3).integers(LOWEST_DB_HL, 16, (5001, 7)).astype(np.int16)
    table = class_medians([ears(thresholds)])
    assert table.counts["normal"] == 5001
    assert_equals_numpy(table, thresholds)


def test_an_even_number_of_ears_has_its_median_between_two() -> None:
    assert class_medians([ears(flat(5, 10))]).medians_db_hl["normal"] == (7.5,) * 7


def test_counts_reasons_and_progress_add_up_over_chunks() -> None:
    seen: list[tuple[int, int]] = []
    chunks = [
        Ears(ears(flat(0, 20)).thresholds_db_hl, np.array(["L", "R"]), {"missing": 2}, 10, 30),
        Ears(
            ears(flat(20)).thresholds_db_hl, np.array(["L"]), {"missing": 1, "code-997": 4}, 30, 30
        ),
    ]
    table = class_medians(chunks, progress=lambda done, total: seen.append((done, total)))
    assert table.counts == dict.fromkeys(CLASS_LIMITS, 0) | {"normal": 1, "slight": 2}
    assert table.left_out == {"missing": 3, "code-997": 4}
    assert (table.n, table.n_left_out) == (3, 7)
    assert seen == [(10, 30), (30, 30)]


def test_few_ears_are_marked_and_none_are_not() -> None:
    table = class_medians([ears(flat(*[10] * 30, *[20] * 29))])
    assert table.low_n == ("slight",)
    assert [row["low_n"] for row in table.rows()] == [False, True, *[False] * 5]


def test_the_table_as_json_is_named_like_the_shipped_one() -> None:
    table = class_medians([ears(flat(10, 20, 100), {"missing": 1})])
    plain = json.loads(json.dumps(table.to_dict()))
    assert {"n", "counts", "frequencies_hz", "thresholds_db_hl"} <= plain.keys()
    assert {"n", "counts", "frequencies_hz", "thresholds_db_hl"} <= tables()["class_medians"].keys()
    assert plain["n"] == 3
    assert plain["thresholds_db_hl"]["slight"] == [20.0] * 7
    assert plain["p25_db_hl"]["mild"] is None
    assert plain["left_out"] == {"missing": 1}
    assert plain["low_n"] == ["normal", "slight", "profound"]


@pytest.mark.parametrize(
    ("chunks", "says"),
    [
        ([], "no ear has all 7 thresholds"),
        ([ears([], {"missing": 4, "code-997": 0})], r"\(missing: 4\)"),
        ([Ears(np.zeros((3, 6), np.int16), np.full(3, "L"), {})], "7 thresholds per ear"),
        ([ears(flat(10, 666))], "-20 to 130"),
        ([ears(flat(10, -21))], "-20 to 130"),
    ],
)
def test_what_cannot_be_classed_is_refused(chunks: list[Ears], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        class_medians(chunks)


def test_memory_does_not_grow_with_the_number_of_ears() -> None:
    def chunks(n: int) -> Iterator[Ears]:
        rng = np.random.default_rng(0)
        for _ in range(n):
            yield ears(rng.integers(-10, 121, (2000, 7)))

    def peak(n: int) -> int:
        tracemalloc.start()
        class_medians(chunks(n))
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    peak(2)  # whatever is loaded or cached at first use
    assert peak(60) < peak(3) + 500_000  # keeping the rows would add 1.6 MB


@needs_data
def test_the_ears_of_2011_to_2016_by_class() -> None:
    with gzip.open(DATA / "nhanes_ears_2011_2016.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    thresholds = np.array([[row[str(f)] for f in FREQUENCIES_HZ] for row in rows], dtype=np.int16)
    table = class_medians(ears(part) for part in np.array_split(thresholds, 7))
    assert table.n == 16236
    assert list(table.counts.values()) == [12712, 2363, 816, 230, 72, 38, 5]
    assert table.low_n == ("profound",)
    assert_equals_numpy(table, thresholds)
    # These two cycles are part of the five that the adults' table was made from.
    with (DATA / "canonical_nhanes_adults20_69_cycles.csv").open() as file:
        whole = {r["class"].lower().replace(" ", "-"): r for r in csv.DictReader(file)}
    for name, count in table.counts.items():
        assert count <= int(whole[name]["count"])
        medians = [float(whole[name][str(f)]) for f in FREQUENCIES_HZ]
        assert table.medians_db_hl[name] == pytest.approx(medians, abs=10.0)
