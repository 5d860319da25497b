"""Psychometric functions of an exam: any performance level, slope, width, rates, fit."""

import math
from typing import Any

import numpy as np
import pytest

import earshift as es
from earshift.engine.psychometric import WIDTH, Curves, goodness_of_fit, rate_estimate
from support.helpers import MILD, run_exam

SPREAD_DB = 3.0  # of a simulated listener


@pytest.fixture(scope="module")
def clinical() -> es.Exam:
    return run_exam(es.Exam.clinical(seed=1), MILD, tones=25)


@pytest.fixture(params=["field", "persons"])
def exam(request: pytest.FixtureRequest, mild_exam: es.Exam, clinical: es.Exam) -> es.Exam:
    return mild_exam if request.param == "field" else clinical


def test_a_higher_performance_needs_a_louder_tone(exam: es.Exam) -> None:
    levels = [
        exam.thresholds([1000.0], performance=p)[0].level_db_hl for p in (0.25, 0.5, 0.75, 0.95)
    ]
    assert levels == sorted(levels)
    assert exam.thresholds([1000.0], performance=0.5) == exam.thresholds([1000.0])


@pytest.mark.parametrize("bad", [0.0, 1.0, 75, "half", math.nan, True])
def test_a_performance_is_between_zero_and_one(mild_exam: es.Exam, bad: Any) -> None:
    with pytest.raises(ValueError, match="performance"):
        mild_exam.thresholds([1000.0], performance=bad)


def test_the_function_at_a_frequency_is_the_listeners(exam: es.Exam) -> None:
    found = exam.psychometric(1000.0)
    assert found.place == (("frequency_hz", 1000.0),)
    assert found.threshold.low < 30.0 < found.threshold.high
    assert found.width.low < WIDTH * SPREAD_DB < found.width.high
    assert found.slope.low < 0.3989 / SPREAD_DB < found.slope.high
    assert list(found.p_heard) == sorted(found.p_heard)
    half = found.guess.value + 0.5 * (1.0 - found.guess.value - found.lapse.value)
    assert np.interp(half, found.p_heard, found.levels) == pytest.approx(
        found.threshold.value, abs=1.0
    )
    assert "1000 Hz: threshold" in str(found)
    assert [row["parameter"] for row in found.rows()] == [
        *("threshold", "slope", "width", "guess", "lapse")
    ]


def test_answers_at_the_frequency_are_counted_by_level() -> None:
    exam = es.Exam.clinical(seed=1)
    for heard in (True, True, False):
        exam.tell(es.Tone(1000.0, 30.0), heard)
    exam.tell(es.Tone(1000.0, 20.0), False)
    exam.tell(es.Tone(2000.0, 20.0), False)
    assert exam.psychometric(1000.0).told == ((20.0, 0, 1), (30.0, 2, 3))


def test_an_ear_of_both_has_its_own_function() -> None:
    exam = es.Exam.clinical(seed=1, ears="both")
    for level, heard in ((20.0, False), (30.0, True), (25.0, True)):
        exam.tell(es.Tone(1000.0, level, "right"), heard)
    assert exam.psychometric(1000.0, ear="right").told
    left = exam.psychometric(1000.0, ear="left")
    assert (left.told, left.ear) == ((), "left")
    assert left.threshold.high - left.threshold.low > 20.0
    with pytest.raises(ValueError, match="both ears"):
        exam.psychometric(1000.0)


def test_a_frequency_outside_the_domain_is_refused(mild_exam: es.Exam) -> None:
    with pytest.raises(ValueError, match="outside the domain"):
        mild_exam.psychometric(1.0)


def test_other_axes_have_functions_too() -> None:
    contrast = es.Axis(
        "contrast", "%", (1, 2, 4, 8, 16, 32), origin=5.0, scale=1.0, logarithmic=True
    )
    size = es.Axis("size", "deg", (1, 2, 4), origin=2.0, scale=1.0, logarithmic=True)
    exam = es.Exam(domain=es.Domain(contrast, (size,)), seed=1)
    for value in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0) * 2:
        exam.tell(es.Stimulus((("contrast", value), ("size", 2.0))), value > 5.0)
    found = exam.psychometric(2.0)
    assert 2.0 < found.threshold.value < 16.0
    assert "per octave" in str(found)
    assert exam.thresholds([2.0], performance=0.9)[0].level > found.threshold.value


# Rates ------------------------------------------------------------------------------------------


def test_rates_that_were_told_are_not_estimated() -> None:
    exam = es.Exam(seed=1, lapse=0.02)
    exam.tell(es.Tone(1000.0, 30.0), True)
    found = exam.psychometric(1000.0)
    assert (found.lapse.low, found.lapse.value, found.lapse.high) == (0.02, 0.02, 0.02)


@pytest.mark.parametrize("kind", [es.Exam, es.Exam.clinical])
def test_missed_loud_tones_raise_the_lapse_rate(kind: type[es.Exam]) -> None:
    found = []
    for misses in (0, 3):
        exam = kind(seed=1)
        for number in range(12):
            exam.tell(es.Tone(1000.0, 20.0), False)
            exam.tell(es.Tone(1000.0, 70.0), number % 4 != 1 or number // 4 >= misses)
            exam.tell(es.Tone(1000.0, 40.0), True)
        found.append(exam.lapse_rate())
    assert found[0].value < found[1].value
    assert found[0].low <= found[0].value <= found[0].high


def test_without_answers_there_is_no_lapse_rate_of_a_field() -> None:
    with pytest.raises(ValueError, match="no answers yet"):
        es.Exam(seed=1).lapse_rate()


def test_the_interval_of_a_rate_holds_its_mass() -> None:
    rates = np.array([0.0, 0.1, 0.2, 0.3])
    assert rate_estimate(rates, np.array([0.0, 1.0, 1.0, 0.0])).value == pytest.approx(0.15)
    sure = rate_estimate(rates, np.array([0.0, 1.0, 0.0, 0.0]))
    assert (sure.low, sure.high) == (0.1, 0.1)


# Fit --------------------------------------------------------------------------------------------


def test_answers_of_the_model_fit(exam: es.Exam) -> None:
    fit = exam.goodness_of_fit()
    assert 0.05 < fit.p < 0.95
    assert fit.low < fit.deviance < fit.high
    assert fit.tones == len(exam.trials)
    assert len(fit.simulated) > 1000
    assert "Deviance" in str(fit)
    assert fit == exam.goodness_of_fit()  # chance comes from the seed


def test_somebody_who_lapses_does_not_fit_a_field_without_lapses() -> None:
    exam = es.Exam(seed=1)
    for _ in range(6):
        for level in (0.0, 10.0, 20.0, 40.0, 50.0, 60.0, 70.0):
            exam.tell(es.Tone(1000.0, level), level > 30.0)
    assert exam.goodness_of_fit().p > 0.3
    for _ in range(3):
        exam.tell(es.Tone(1000.0, 90.0), False)
    assert exam.goodness_of_fit().p < 0.1


def test_the_check_is_of_draws() -> None:
    rng = np.random.default_rng(1)
    p = np.full((2000, 40), 0.9)
    attentive = np.ones(p.shape, dtype=bool)
    guess = np.zeros(2000)
    alone = np.arange(40)
    likely = goodness_of_fit(p, attentive, guess, np.arange(40) >= 4, alone, rng)
    odd = goodness_of_fit(p, attentive, guess, np.arange(40) >= 20, alone, rng)
    assert 0.4 < likely.p < 0.8
    assert odd.p < 0.001
    assert likely.deviance == pytest.approx(-2 * (36 * math.log(0.9) + 4 * math.log(0.1)))


def test_tones_asked_several_times_count_together() -> None:
    rng = np.random.default_rng(1)
    p = np.full((2000, 40), 0.5)
    attentive, guess = np.ones(p.shape, dtype=bool), np.zeros(2000)
    heard, groups = np.arange(40) >= 20, np.arange(40) // 20
    apart = goodness_of_fit(p, attentive, guess, heard, np.arange(40), rng)
    together = goodness_of_fit(p, attentive, guess, heard, groups, rng)
    assert apart.p > 0.4  # one by one every answer is as likely as the other
    assert together.p < 0.001  # but 20 missed, then 20 heard, is not chance
    exact = goodness_of_fit(p, attentive, guess, np.arange(40) % 2 == 0, groups, rng)
    assert exact.deviance == pytest.approx(0.0, abs=1e-9)


def test_nothing_to_judge_is_refused() -> None:
    for exam in (es.Exam(seed=1), es.Exam.clinical(seed=1)):
        with pytest.raises(ValueError, match="no answers yet"):
            exam.goodness_of_fit()


def test_curves_at_a_performance_are_a_quantile_of_the_listener() -> None:
    curves = Curves(np.array([[0.0]]), np.array([[2.0]]), np.array([0.1]), np.array([0.1]))
    level = curves.at_performance(0.75)[:, 0]
    assert curves.p_heard(level, 0)[0, 0] == pytest.approx(0.1 + 0.8 * 0.75)
