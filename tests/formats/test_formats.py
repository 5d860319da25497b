"""Raw survey files of either source, NHANES and NIOSH."""

import csv
import gzip
from pathlib import Path

import pytest

from earshift.formats import SOURCES, cells, nhanes, niosh, read_ears
from earshift.simulate.classes import FREQUENCIES_HZ, class_medians
from support.helpers import DATA, needs_data
from support.surveys import (
    GOOD,
    HEADER,
    LEFT,
    RIGHT,
    Cell,
    aux,
    line,
    niosh_file,
    saved,
)

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
    with pytest.raises(ValueError, match="must be one of nhanes, niosh, got 'nhans'"):
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
