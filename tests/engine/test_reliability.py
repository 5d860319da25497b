"""Reliability: what answers to silence say; nothing is claimed where there was no silence."""

import pytest

import earshift as es
from earshift.engine.verdict import reliability
from support.helpers import MILD, run_exam


@pytest.mark.parametrize(
    ("catches", "presses", "grade"),
    [
        ([], 0, "not assessed"),
        ([], 1, "not assessed"),
        ([], 2, "fair"),
        ([], 12, "poor"),
        ([False], 0, "good"),
        ([False, False, False, True], 0, "fair"),
        ([True], 0, "poor"),
    ],
)
def test_the_grades(catches: list[bool], presses: int, grade: str) -> None:
    assert reliability(catches, presses, tones=10) == grade


def test_before_the_first_answer_nothing_is_assessed() -> None:
    assert es.Screen(es.Audiogram(MILD), rule="osha-sts").verdict().reliability == "not assessed"


@pytest.mark.parametrize("rule", ["osha-sts", None])
def test_a_silent_trial_makes_the_difference(rule: str | None) -> None:
    screen = run_exam(es.Screen(es.Audiogram(MILD), rule=rule, seed=1), MILD, tones=12)
    assert screen.reliability == screen.verdict().reliability == "not assessed"
    assert "Reliability not assessed; no silent trial was given." in screen.verdict()._repr_html_()
    screen.tell_catch(False)
    assert screen.reliability == "good"
    screen.tell_catch(True)
    assert screen.verdict().reliability == "fair"


def test_an_exam_says_so_too() -> None:
    exam = run_exam(es.Exam.clinical(seed=1), MILD, tones=15)
    assert exam.reliability == "not assessed"
