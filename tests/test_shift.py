"""Screening for a threshold-shift rule."""

import json
from collections.abc import Mapping

import numpy as np
import pytest

import earshift as es
from earshift import field, shift
from earshift.exam import answers_of
from earshift.norms import hyperprior
from earshift.rules import RULES, Criterion, Rule
from earshift.stimulus import DOMAINS
from helpers import HZ, MILD, NORMAL, run_exam

AUDIOMETER = DOMAINS["audiometer"]


@pytest.fixture(scope="module")
def first() -> es.Exam:
    """A first exam with lapses. Read only."""
    exam = es.Exam(seed=4, domain="audiometer", lapse=0.02, guess=0.01)
    return run_exam(exam, NORMAL, tones=50, lapse=0.02)


def moved(ear: Mapping[float, float], by: Mapping[float, float] | float) -> dict[float, float]:
    return {f: t + (by if isinstance(by, float) else by.get(f, 0.0)) for f, t in ear.items()}


def run_screen(first: es.Exam, ear: Mapping[float, float], rule: str, seed: int = 1) -> es.Screen:
    screen = es.Screen(first, rule=rule, seed=seed)
    listener = es.Listener(ear, spread_db=4.0, lapse=0.02, seed=seed)
    while not screen.done:
        tone = screen.ask()
        screen.tell(tone, listener(tone))
    return screen


@pytest.mark.parametrize("rule", ["osha-sts", "niosh-15", "msha-sts"])
@pytest.mark.parametrize(
    ("by", "decision"),
    [
        (0.0, "unchanged"),
        (25.0, "changed"),
        ({3000.0: 30.0, 4000.0: 35.0, 6000.0: 30.0, 2000.0: 15.0, 8000.0: 20.0}, "changed"),
    ],
)
def test_a_rule_is_decided_as_it_is_in_truth(
    first: es.Exam, rule: str, by: Mapping[float, float] | float, decision: str
) -> None:
    verdict = run_screen(first, moved(NORMAL, by), rule).verdict()
    assert verdict.decision == decision
    assert verdict.rule == rule
    assert verdict.protocol is None
    assert rule in str(verdict)
    assert verdict.converged
    assert set(verdict.evidence_hz) <= set(RULES[rule].frequencies_hz)


def test_an_improvement_does_not_meet_a_rule_about_worse_hearing() -> None:
    reference = run_exam(es.Exam(seed=2, domain="audiometer"), MILD, tones=50)
    verdict = run_screen(reference, moved(MILD, -20.0), "osha-sts").verdict()
    assert verdict.decision == "unchanged"
    assert all(s.shift_db < 0 for s in verdict.shifts if s.frequency_hz >= 1000)


@pytest.mark.parametrize("prevalence", [0.05, 0.12, 0.3])
@pytest.mark.parametrize("rule", ["osha-sts", "niosh-15"])
def test_prevalence_is_the_probability_before_the_first_tone(
    first: es.Exam, rule: str, prevalence: float
) -> None:
    settings = es.RuleSettings(prevalence=prevalence, unchanged_at=0.01)
    screen = es.Screen(first, rule=rule, settings=settings)
    assert screen.p_changed == pytest.approx(prevalence, abs=0.015)
    assert screen.log_bf == pytest.approx(0.0, abs=0.2)
    assert screen.decision == "inconclusive"


def test_one_component_agrees_with_plain_linear_algebra(first: es.Exam) -> None:
    """Without answers the samples are the prior: mean, jitter and the link between delta and g."""
    reference = field.fit(answers_of(first.trials, AUDIOMETER), hyperprior(), 0.01, 0.02)
    settings = es.RuleSettings()
    model = shift.ShiftModel(reference, AUDIOMETER, RULES["osha-sts"], settings, seed=0)
    state = model.assess(answers_of((), AUDIOMETER))
    only = np.zeros(len(model.names))
    only[0] = 1.0
    places = model.rule_places
    w, g, delta, _ = state.samples(places, places, only, 40_000, 9)
    mean, cov = reference.latent(places)
    np.testing.assert_allclose(delta.mean(axis=0), 0.0, atol=0.1)
    np.testing.assert_allclose(delta.std(axis=0), settings.retest_sd_db, rtol=0.02)
    np.testing.assert_allclose(w.mean(), mean[0], rtol=0.01)
    h = g + model.k * delta
    np.testing.assert_allclose(h.mean(axis=0), mean[1:], rtol=0.02)
    np.testing.assert_allclose(np.cov(h.T), cov[1:, 1:], rtol=0.1, atol=0.02)
    np.testing.assert_allclose(
        [np.corrcoef(h[:, k], delta[:, k])[0, 1] for k in range(3)], 0.0, atol=0.02
    )


def test_low_prevalence_alone_clears_nobody(first: es.Exam) -> None:
    settings = es.RuleSettings(prevalence=0.03, unchanged_at=0.025)
    screen = es.Screen(first, rule="osha-sts", settings=settings)
    screen.tell(es.Tone(8000.0, 95.0), True)  # says next to nothing about 2 to 4 kHz
    assert screen.p_changed < 0.05
    assert screen.decision == "inconclusive"


def test_a_screen_by_rule_survives_the_trip_through_json(first: es.Exam) -> None:
    screen = es.Screen(first, rule="niosh-15", seed=7)
    listener = es.Listener(MILD, seed=3)
    screen.tell_catch(False)
    for _ in range(3):
        again = es.Screen.from_dict(json.loads(json.dumps(screen.to_dict())))
        assert again.ask() == screen.ask()
        assert again.verdict() == screen.verdict()
        screen.tell(screen.ask(), listener(screen.ask()))


def test_catch_trials_decide_the_reliability(first: es.Exam) -> None:
    screen = es.Screen(first, rule="osha-sts")
    assert screen.verdict().reliability == "good"
    for heard, grade in ((False, "good"), (True, "fair"), (True, "poor"), (False, "poor")):
        screen.tell_catch(heard)
        assert screen.verdict().reliability == grade
    assert screen.verdict().catch_trials == 4
    assert screen.verdict().false_alarms == 2
    assert screen.trials == ()


def test_the_full_exam_goes_on_from_the_screen(first: es.Exam) -> None:
    ear = moved(NORMAL, 25.0)
    screen = run_screen(first, ear, "osha-sts")
    exam = screen.continue_exam()
    assert exam.trials == screen.trials
    run_exam(exam, ear, tones=50, seed=9, lapse=0.02)
    errors = [t.level_db_hl - ear[t.frequency_hz] for t in exam.thresholds(HZ)]
    assert np.sqrt(np.mean(np.square(errors))) < 5.0


def test_an_unverified_rule_is_opted_into_and_marked(first: es.Exam) -> None:
    with pytest.raises(ValueError, match="allow_unverified"):
        es.Screen(first, rule="asha-1994")
    verdict = es.Screen(first, rule="asha-1994", allow_unverified=True).verdict()
    assert "not verified" in str(verdict)
    assert "not verified" in str(verdict.to_dict()["unverified"])


def test_a_rule_of_ones_own(first: es.Exam) -> None:
    rule = Rule("mine", (Criterion((6000.0, 8000.0), 12.0),))
    screen = es.Screen(first, rule=rule)
    assert screen.verdict().rule == "mine"
    assert 0.0 < screen.p_changed < 0.5


@pytest.mark.parametrize(
    "options",
    [
        {"rule": "osha-sts", "protocol": "best"},
        {"rule": "unknown"},
        {"rule": 3},
        {"settings": es.RuleSettings()},
        {"rule": "osha-sts", "settings": {"prevalence": 0.1}},
    ],
)
def test_what_does_not_go_together_is_refused(first: es.Exam, options: dict) -> None:
    with pytest.raises(ValueError, match=r".+"):
        es.Screen(first, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"prevalence": 0.0},
        {"prevalence": float("nan")},
        {"unchanged_at": 0.2},
        {"changed_at": 0.1},
        {"changed_at": 1.0},
        {"clearing_ratio": 0.5},
        {"clearing_risk": 0.0},
        {"retest_sd_db": 0.0},
        {"device_offset_sd_db": -1.0},
        {"guess": 0.6},
        {"lapse": "much"},
        {"max_tones": 0},
    ],
)
def test_settings_out_of_range_are_refused(options: dict) -> None:
    with pytest.raises(ValueError, match=r".+"):
        es.RuleSettings(**options)


def test_a_reference_without_the_rules_frequencies_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not determinable.*3000"):
        es.Screen(es.Audiogram({1000.0: 5.0, 2000.0: 5.0, 4000.0: 10.0}), rule="osha-sts")
    assert es.Screen(es.Audiogram(NORMAL), rule="osha-sts").p_changed > 0
