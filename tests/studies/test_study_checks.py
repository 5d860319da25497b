"""First exams, ears of the model and brute force: their cases, and the page that shows them."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from earshift.studies import checks_page, first_exams, model_checks
from earshift.studies.case import Ear
from earshift.studies.first_exams import FIELD, IDEAL, MANUAL, MARKS, OWN, UNKNOWN, ExamCase
from earshift.studies.markdown import Page
from earshift.studies.model_checks import REAL, BruteCase, BruteExamCase, ModelCase
from earshift.studies.rules import modelled
from earshift.studies.run import frame_of
from support.helpers import HZ, MILD

EAR = Ear("an ear", tuple(MILD.items()))


@pytest.mark.slow
def test_first_exams_are_read_on_the_way_by_every_method() -> None:
    for method in (OWN, IDEAL, FIELD):
        rows = frame_of(ExamCase(EAR, method).rows(), ExamCase.columns)
        assert rows["tones"].unique(maintain_order=True).to_list() == list(MARKS)
        assert rows.height == len(MARKS) * len(HZ)
        last = rows.filter(pl.col("tones") == 50)["error_db"].to_numpy()
        assert np.sqrt(np.mean(last**2)) < 7.0
    manual = frame_of(ExamCase(EAR, MANUAL).rows(), ExamCase.columns)
    assert set(manual["covered"]) == {UNKNOWN}
    assert len(first_exams.exam_cases([EAR, EAR], 1)) == 2 * 5 + 1


@pytest.mark.slow
def test_ears_of_the_model_are_on_the_side_they_were_drawn_from() -> None:
    case = ModelCase(EAR, draws=1)
    rows = frame_of(case.rows(), case.columns)
    assert rows["met"].to_list() == [False, True] * 2
    assert (rows["highest"] >= rows["log_bf_15"]).all()
    assert (rows["lowest"] <= rows["log_bf_5"]).all()
    real = frame_of(ModelCase(EAR, REAL, draws=1).rows(), case.columns)
    assert set(real["truth"]) == {REAL}


@pytest.mark.slow
def test_brute_force_and_the_cloud_agree(tmp_path: Path) -> None:
    condition = {c.name: c for c in modelled()}["flat 15 dB"]
    case = BruteCase(EAR, condition, "osha-sts", draws=100_000)
    screens = frame_of(case.rows(), case.columns)
    early = screens.filter(pl.col("effective") >= 1000.0)
    assert early.height > 0
    assert np.abs((early["log_bf"] - early["exact"]).to_numpy()).max() < 0.6
    exams = frame_of([(4.0, "an ear", 30, 500.0, "low", 10.0, 10.4)], BruteExamCase.columns)
    frames = {"brute": screens, "brute_exams": exams}
    assert any("brute force" in target.asked for target in checks_page.targets(frames))
    page = Page("Checks", "a command", tmp_path, {})
    checks_page.add(page, frames, tmp_path)
    assert any("osha-sts" in line for line in page.lines)


def test_the_wrong_side_is_counted_by_truth() -> None:
    rows = pl.DataFrame({
        "rule": ["osha-sts"] * 4, "met": [False, False, True, True],
        "highest": [5.0, 1.0, 9.0, 9.0], "lowest": [-1.0, -9.0, -1.0, -5.0],
    })  # fmt: skip
    sides = checks_page.wrong_sides(rows, "osha-sts")
    assert (sides["not met"].hits, sides["met"].hits) == (1, 1)
    assert math.isclose(sides["met"].value, 0.5)
    assert model_checks.CHECKED_TONES == (5, 10, 15)
