"""Rows, data frames and notebook views of exams, screens, verdicts and audiograms."""

import builtins
import re
import sys
from typing import Any

import pandas
import polars
import pytest

import earshift as es
from support.helpers import MILD, run_exam

PLAIN = (int, float, str, bool, type(None))


def is_plain(rows: list[dict[str, Any]]) -> bool:
    """All rows with the same columns, and nothing but plain values in their cells."""
    same = all(list(row) == list(rows[0]) for row in rows)
    return same and all(type(value) in PLAIN for row in rows for value in row.values())


@pytest.fixture(scope="module")
def clinical() -> es.Exam:
    exam = es.Exam.clinical(seed=1)
    for level, heard in ((40.0, True), (30.0, False), (30.0, False), (35.0, True)):
        exam.tell(es.Tone(1000.0, level), heard)
    return exam


def test_rows_go_into_pandas_and_polars_unchanged(clinical: es.Exam) -> None:
    screen = es.Screen(es.Audiogram(MILD), seed=1)
    screen.tell(es.Tone(1000.0, 40.0), True)
    tables = [
        clinical.rows(),
        clinical.rows("thresholds"),
        screen.rows(),
        screen.verdict().rows(),
        es.Audiogram(MILD, no_response_db_hl={12000: 90}).rows(),
    ]
    for rows in tables:
        there = pandas.DataFrame(rows)
        assert list(there.columns) == list(rows[0])
        back = there.astype(object).where(there.notna(), None).to_dict("records")
        assert back == rows
        assert polars.DataFrame(rows).to_dicts() == rows


def test_a_verdict_is_one_short_line_to_a_programmer() -> None:
    ear = es.Audiogram(MILD)
    one = es.Screen(ear, rule="osha-sts", seed=1)
    one.tell(es.Tone(2000.0, 50.0), True)
    assert re.fullmatch(
        r"<Verdict: inconclusive \(osha-sts\), P = 0\.\d+, 1 tones>", repr(one.verdict())
    )
    both = repr(es.Screen({"right": ear, "left": ear}, ears="both", seed=1).verdict())
    assert both.startswith("<PersonVerdict: inconclusive, right <Verdict: inconclusive (best)")
    assert len(both) < 200


def test_trials_are_rows_in_order(clinical: es.Exam) -> None:
    rows = clinical.rows()
    assert is_plain(rows)
    assert rows[1] == {
        "trial": 2,
        "ear": None,
        "frequency_hz": 1000.0,
        "level_db_hl": 30.0,
        "heard": False,
    }
    assert clinical.rows("trials") == rows


def test_thresholds_are_rows_by_frequency(clinical: es.Exam) -> None:
    rows = clinical.rows("thresholds")
    assert is_plain(rows)
    found = clinical.thresholds()
    assert [row["frequency_hz"] for row in rows] == [one.frequency_hz for one in found]
    assert [row["low_db_hl"] for row in rows] == [one.low_db_hl for one in found]


def test_both_ears_are_rows_of_one_table() -> None:
    exam = es.Exam.clinical(seed=1, ears="both")
    exam.tell(es.Tone(1000.0, 30.0, "left"), True)
    assert exam.rows()[0]["ear"] == "left"
    assert {row["ear"] for row in exam.rows("thresholds")} == {"right", "left"}
    assert {row["ear"] for row in exam.of("left").rows("thresholds")} == {"left"}


def test_other_axes_give_their_names_to_the_columns() -> None:
    domain = es.Domain(
        es.Axis("contrast_db", "dB", range(-50, 1, 5), -25.0, 10.0),
        (es.Axis("cpd", "c/deg", (1, 2, 4), 2.0, 1.0, logarithmic=True),),
    )
    exam = es.Exam(domain=domain)
    exam.tell(es.Stimulus((("contrast_db", -20.0), ("cpd", 2.0))), True)
    assert exam.rows() == [{"trial": 1, "cpd": 2.0, "contrast_db": -20.0, "heard": True}]
    thresholds = exam.rows("thresholds")
    assert is_plain(thresholds)
    assert list(thresholds[0]) == ["cpd", "level", "low", "high", "censored"]
    assert exam.to_frame("thresholds").columns == list(thresholds[0])


def test_a_table_of_something_else_is_refused(clinical: es.Exam) -> None:
    for ask in (clinical.rows, clinical.to_frame):
        with pytest.raises(ValueError, match="trials or thresholds"):
            ask("answers")


def test_frames_have_the_types_of_the_columns(clinical: es.Exam) -> None:
    frame = clinical.to_frame()
    assert dict(frame.schema) == {
        "trial": polars.Int64,
        "ear": polars.String,
        "frequency_hz": polars.Float64,
        "level_db_hl": polars.Float64,
        "heard": polars.Boolean,
    }
    assert frame.rows(named=True) == clinical.rows()
    empty = es.Exam.clinical(seed=1).to_frame()
    assert (empty.height, empty.schema) == (0, frame.schema)


def test_rows_go_into_polars_unchanged(clinical: es.Exam) -> None:
    assert polars.DataFrame(clinical.rows("thresholds")).to_dicts() == clinical.rows("thresholds")


def test_without_polars_the_refusal_says_what_to_do(
    clinical: es.Exam, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name == "polars":
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, "polars")
    with pytest.raises(ValueError, match=r"earshift\[study\].*pandas.DataFrame"):
        clinical.to_frame()


def test_an_audiogram_is_rows_too() -> None:
    one = es.Audiogram({500: 10, 4000: 40}, no_response_db_hl={8000: 90})
    assert is_plain(one.rows())
    assert one.rows()[-1] == {
        "frequency_hz": 8000.0,
        "threshold_db_hl": None,
        "no_response": True,
        "level_tried_db_hl": 90.0,
    }
    assert one.to_frame().height == 3


# Verdicts ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def screen() -> es.Screen:
    return run_exam(es.Screen(es.Audiogram(MILD), rule="osha-sts", seed=1), MILD, tones=3)


def test_a_verdict_has_a_row_for_each_frequency(screen: es.Screen) -> None:
    verdict = screen.verdict([2000.0, 4000.0])
    rows = verdict.rows()
    assert is_plain(rows)
    assert [row["frequency_hz"] for row in rows] == [2000.0, 4000.0]
    assert {(row["rule"], row["decision"], row["tones"]) for row in rows} == {
        ("osha-sts", verdict.decision, 3)
    }
    assert rows[0]["shift_db"] == verdict.shifts[0].shift_db
    assert verdict.to_frame().rows(named=True) == rows


def test_trials_of_a_screen_have_the_probability_of_change(screen: es.Screen) -> None:
    rows = screen.rows()
    assert is_plain(rows)
    assert [row["p_changed"] for row in rows] == [screen.p_changed_after(n) for n in (1, 2, 3)]
    assert rows[-1]["p_changed"] == screen.p_changed
    assert screen.to_frame().schema["p_changed"] == polars.Float64
    assert screen.rows("thresholds")[0]["frequency_hz"] == 500.0


def test_of_tied_ears_each_tone_has_what_was_known_then() -> None:
    then = es.Audiogram(MILD)
    screen = es.Screen({"right": then, "left": then}, ears="both", seed=1)
    said = []
    for ear, level in (("right", 40.0), ("left", 45.0), ("right", 50.0)):
        screen.tell(es.Tone(2000.0, level, ear), False)
        said.append(screen.of(ear).p_changed)
    assert [row["p_changed"] for row in screen.rows()] == pytest.approx(said, rel=1e-9)


def test_a_verdict_without_shifts_is_one_row() -> None:
    verdict = es.Screen(hypotheses="notch", seed=1, domain="audiometer").verdict()
    (row,) = verdict.rows()
    assert (row["decision"], row["shift_db"]) == (verdict.decision, None)
    assert verdict.to_frame().schema["shift_db"] == polars.Float64


def test_a_persons_verdict_has_rows_of_both_ears() -> None:
    then = es.Audiogram(MILD)
    screen = es.Screen({"right": then, "left": then}, ears="both", rule="osha-sts", seed=1)
    screen.tell(es.Tone(2000.0, 40.0, "left"), True)
    verdict = screen.verdict([2000.0])
    assert [(row["ear"], row["tones"]) for row in verdict.rows()] == [("right", 0), ("left", 1)]
    assert "Left ear:" in verdict._repr_html_()


# In a notebook ----------------------------------------------------------------------------------


def test_views_for_a_notebook_are_short_and_escaped(clinical: es.Exam, screen: es.Screen) -> None:
    assert repr(clinical) == "<ClinicalExam: 4 tones of at most 50>"
    assert repr(es.Exam.clinical(ears="both")).startswith("<ClinicalExam: both ears, 0 tones")
    one = es.Audiogram({500: 10})
    verdict = screen.verdict()
    for shown in (clinical, es.Exam(seed=1), screen, verdict, one, clinical.psychometric(1000.0)):
        page = shown._repr_html_()
        assert page.startswith("<div>")
        assert page.count("<td>") == page.count("</td>")
    assert "; no silent trial was given." in verdict._repr_html_()
    rule = es.Rule("<b>mine</b>", [es.Criterion((2000.0,), 10.0)])
    odd = es.Screen(one, rule=rule).verdict()._repr_html_()
    assert "&lt;b&gt;mine" in odd
    assert not re.search(r"<b>|<script", odd)
