"""The study of the notch: which ears belong to it, and its page."""

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from earshift.cli import app
from earshift.studies.case import Ear
from earshift.studies.notch import GROUPS, TONES, NotchCase, group_of, notch_cases, notch_margin_db
from support.helpers import HZ

EARS = {
    "deep": (10, 10, 10, 20, 45, 30, 15),
    "shallow": (10, 10, 10, 15, 31, 20, 15),
    "sloping": (10, 10, 20, 35, 50, 60, 70),
    "level": (10, 10, 10, 10, 12, 10, 10),
}


def ear(levels: tuple[int, ...]) -> Ear:
    return Ear("an ear", tuple(zip(HZ, map(float, levels), strict=True)))


@pytest.mark.parametrize(("group", "levels"), EARS.items())
def test_ears_fall_into_groups_by_the_definition(group: str, levels: tuple[int, ...]) -> None:
    assert group_of(ear(levels)) == group
    assert (notch_margin_db(ear(levels)) > 0.0) == (group in ("deep", "shallow"))


def test_an_ear_close_to_the_criterion_belongs_to_no_group() -> None:
    assert group_of(ear((10, 10, 10, 20, 22, 20, 10))) is None


def test_a_case_follows_the_evidence_to_the_last_tone() -> None:
    case = NotchCase(ear(EARS["deep"]), "deep")
    rows = case.rows()
    assert rows == case.rows()
    assert [row[3] for row in rows] == list(range(1, TONES + 1))
    assert rows[-1][4] > 0.0


@pytest.mark.slow
def test_the_study_writes_its_page(tmp_path: Path) -> None:
    lines = ["SEQN," + ",".join(f"{f:g}" for f in HZ)]
    shapes = [EARS["deep"], (10, 10, 10, 15, 32, 20, 15), EARS["sloping"], EARS["level"]]
    for number in range(16):
        lines.append(f"{2 * number + 1}," + ",".join(map(str, shapes[number % 4])))
    path = tmp_path / "ears.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert {case.group for case in notch_cases(path, "held-back", dict.fromkeys(GROUPS, 1))} == set(
        GROUPS
    )
    out = tmp_path / "out"
    command = ["study", "notch", "--ears", str(path), "--level", "1", "--sloping", "1",
               "--notched", "1", "--jobs", "1", "--out", str(out), "--json"]  # fmt: skip
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert set(summary["groups"]) == set(GROUPS)
    assert "Asked for and reached" in (out / "results.md").read_text(encoding="utf-8")
    assert (out / "notch.png").read_bytes().startswith(b"\x89PNG")
    assert pl.read_parquet(out / "tones.parquet").height == 4 * TONES
    more = CliRunner().invoke(app, [*command[:4], "--level", "99", "--out", str(out)])
    assert more.exit_code == 2
