"""The study of both ears: pairs of ears, errors, calls, what could be saved, the page."""

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from earshift.cli.app import app
from earshift.studies import pairs, pairs_page
from earshift.studies.case import Ear
from earshift.studies.pairs import (
    JOINT,
    SEPARATE,
    Pair,
    PairExamCase,
    PairScreenCase,
    ideal_errors,
    ideal_tones,
    tones_to_reach,
)
from support.helpers import HZ, MILD, NORMAL


def pair(name: str = "person 1", gap: float = 0.0) -> Pair:
    right = tuple(MILD.items())
    left = tuple((f, level - gap) for f, level in MILD.items())
    return Pair(Ear(f"{name} right", right), Ear(f"{name} left", left))


def write_pairs(path: Path, people: int = 6) -> Path:
    lines = ["SEQN,ear," + ",".join(f"{f:g}" for f in HZ)]
    for seqn in range(people):
        for ear, base in (("R", MILD), ("L", NORMAL if seqn == 3 else MILD)):
            lines.append(f"{seqn},{ear}," + ",".join(f"{v + seqn:g}" for v in base.values()))
    lines.append("99,R," + ",".join("10" for _ in HZ))  # of this person one ear only
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_pairs_are_both_ears_of_one_half_of_the_people(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "ears.csv")
    held_back = pairs.all_pairs(path, "held-back")
    assert [p.name for p in held_back] == ["person 1", "person 3", "person 5"]
    assert dict(held_back[1].left.thresholds_db_hl)[4000.0] == NORMAL[4000.0] + 3
    assert held_back[1].needs_masking
    assert not held_back[0].needs_masking
    drawn = pairs.pairs(path, "tuning", 2, seed=1)
    assert {p.name for p in drawn} <= {"person 0", "person 2", "person 4"}
    assert drawn == pairs.pairs(path, "tuning", 2, seed=1)


@pytest.mark.parametrize(
    ("text", "count", "match"),
    [
        ("SEQN,500\n1,10\n", 1, "lacks the columns"),
        (None, 4, "3 pairs, not 4"),
        ("bad ear", 1, "R or L"),
    ],
)
def test_files_without_pairs_are_refused(
    tmp_path: Path, text: str | None, count: int, match: str
) -> None:
    path = write_pairs(tmp_path / "ears.csv")
    if text == "bad ear":
        path.write_text(path.read_text(encoding="utf-8").replace(",L,", ",B,"), encoding="utf-8")
    elif text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=match):
        pairs.pairs(path, "held-back", count)


@pytest.mark.slow
def test_an_exam_case_follows_both_methods_to_the_end() -> None:
    rows = pl.DataFrame(
        PairExamCase(pair()).rows(), schema=list(PairExamCase.columns), orient="row"
    )
    apart, joint = (rows.filter(pl.col("method") == m) for m in (SEPARATE, JOINT))
    assert apart["tones"].to_list() == list(range(10, 101, 10))
    assert joint["tones"].to_list() == list(range(5, 101, 5))
    for part in (apart, joint):
        errors = np.sqrt(part["mean_square_db2"].to_numpy())
        assert errors[-1] < min(7.0, errors[0])


@pytest.mark.slow
def test_a_screen_case_calls_every_ear_by_both_methods() -> None:
    case = PairScreenCase(pair(), ("unchanged", "one flat 20 dB"), ("osha-sts",))
    frame = pl.DataFrame(case.rows(), schema=list(case.columns), orient="row")
    assert frame.height == 2 * 2 * 2  # conditions x ears x methods
    one = frame.filter(pl.col("condition") == "one flat 20 dB")
    assert set(one.filter(pl.col("ear") == "right")["decision"]) == {"changed"}
    assert set(one.filter(pl.col("ear") == "left")["decision"]) == {"unchanged"}
    margins = frame.group_by("condition", "ear").agg(pl.col("margin_db").n_unique())
    assert set(margins["margin_db"]) == {1}  # the same truth for every method


def test_tones_to_reach_an_error_lie_on_a_line_between_looks() -> None:
    tones, errors = np.array([10.0, 20.0, 30.0]), np.array([8.0, 6.0, 5.0])
    assert tones_to_reach(tones, errors, 7.0) == 15.0
    assert tones_to_reach(tones, errors, 9.0) == 10.0
    assert tones_to_reach(tones, errors, 4.0) == math.inf


def test_the_ideal_observer_gains_what_the_ears_share_and_nothing_else() -> None:
    one = np.array([[100.0, 50.0], [50.0, 100.0]])
    assert ideal_errors(one, 5.0, 1)[0] == 10.0
    apart = np.kron(np.eye(2), one)
    np.testing.assert_allclose(ideal_errors(apart, 5.0, 8)[::2], ideal_errors(one, 5.0, 4))
    alike = np.kron(np.ones((2, 2)), one) + 1e-9 * np.eye(4)
    np.testing.assert_allclose(ideal_errors(alike, 5.0, 4), ideal_errors(one, 5.0, 4), atol=1e-6)


def test_ears_that_are_copies_need_half_of_the_tones() -> None:
    rng = np.random.default_rng(1)

    def ear(name: str, levels: np.ndarray) -> Ear:
        return Ear(name, tuple(zip(HZ, levels.tolist(), strict=True)))

    copies, strangers = [], []
    for k in range(300):
        a, b = rng.normal(30.0, 15.0, (2, len(HZ)))
        copies.append(Pair(ear(f"{k} right", a), ear(f"{k} left", a)))
        strangers.append(Pair(ear(f"{k} right", a), ear(f"{k} left", b)))
    assert ideal_tones(copies, 5.0, 40) == pytest.approx(20.0, abs=1.0)
    assert ideal_tones(strangers, 5.0, 40) == pytest.approx(40.0, abs=3.0)
    assert ideal_tones(copies, 20.0, 40) == 0.0
    assert math.isnan(ideal_tones(copies, 5.0, 2))


@pytest.mark.slow
def test_the_study_writes_its_page_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"unchanged": pairs.pair_conditions()["unchanged"]}
    for module in (pairs, pairs_page):
        monkeypatch.setattr(module, "pair_conditions", lambda: few)
        monkeypatch.setattr(module, "EXAM_TONES", 20)  # half an exam fills the page as well
    path = write_pairs(tmp_path / "ears.csv")
    command = [
        "study", "both", "--ears", str(path), "--half", "held-back", "--people", "2",
        "--screened", "2", "--jobs", "1", "--out", str(tmp_path / "out"),
        "--json",
    ]  # fmt: skip
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    summary = json.loads(first.stdout)
    assert summary["exams"]["people"] + summary["exams"]["left_out"] == 2
    assert set(summary["screens"]) == {"osha-sts", "niosh-15"}
    page = (tmp_path / "out" / "results.md").read_text(encoding="utf-8")
    assert "Asked for and reached" in page
    again = CliRunner().invoke(app, command)
    assert json.loads(again.stdout) == summary
    effort = (tmp_path / "out" / "screens" / "effort.txt").read_text(encoding="utf-8")
    assert len(effort.splitlines()) == 1
