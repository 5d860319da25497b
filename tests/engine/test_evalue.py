"""The anytime-valid factor: what it is, and that it keeps its promise."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

import earshift as es
from earshift.engine import choose
from earshift.engine.change import ChangeQuestion
from earshift.engine.domain import DOMAINS
from earshift.engine.protocol import PROTOCOLS
from earshift.engine.question import Setup
from support.helpers import MILD, NORMAL, run_exam

DOMAIN = DOMAINS["audiometer"]
FIELDS, TONES = 2000, 8


@pytest.fixture(scope="module")
def first() -> es.Exam:
    return run_exam(es.Exam(seed=1, domain="audiometer"), MILD, tones=40)


def setup_of(exam: es.Exam, seed: int = 0) -> Setup:
    return es.Screen(exam, seed=seed)._track().setup


def largest_log_e(
    question: ChangeQuestion, field: np.ndarray, start: object, rng: np.random.Generator
) -> float:
    """The largest that log e becomes within the tones, for a field that is the reference's."""
    everything = np.ones(DOMAIN.shape, dtype=bool)
    posterior, trials, log_e, most = start, (), 0.0, -math.inf
    for _ in range(TONES):
        weights, heard = posterior.hypotheses(DOMAIN.places, DOMAIN.intensities)
        outlook = choose.Outlook(
            rng=rng, guess=0.0, lapse=0.0, latent=None, shape=DOMAIN.shape,
            hypotheses=(weights, heard),
        )  # fmt: skip
        place, level = choose.pick(choose.differential(outlook), everything, rng)
        p = ndtr(field[0] * DOMAIN.intensities[level] + field[place + 1])
        trial = es.Trial(DOMAIN.tone(place, level), bool(rng.random() < p))
        log_e += posterior.log_ratio_of(trial)
        most = max(most, log_e)
        trials = (*trials, trial)
        posterior = question.assess(trials, posterior)
    return most


@pytest.mark.slow
def test_fields_of_the_references_posterior_seldom_reach_a_hundred() -> None:
    """By Ville at most 1 % of them ever do, whatever tones are chosen: 20 of 2,000 are expected at
    most, and 29 leave room for chance (P = 2 % at the worst)."""
    rng = np.random.default_rng(14)
    ears = [
        run_exam(es.Exam(seed=k, domain="audiometer"), ear, tones=30)
        for k, ear in enumerate((NORMAL, MILD))
    ]
    reached = 0
    for exam in ears:
        setup = setup_of(exam)
        question = ChangeQuestion(setup, PROTOCOLS["best"])
        mean, cov = setup.reference.latent(DOMAIN.places)
        fields = rng.multivariate_normal(mean, cov, FIELDS // len(ears), check_valid="ignore")
        start = question.assess(())
        for field in fields:
            reached += largest_log_e(question, field, start, rng) >= math.log(100.0)
    assert reached <= 29


def test_it_is_the_product_of_what_was_said_before_each_answer(first: es.Exam) -> None:
    screen = run_exam(es.Screen(first, seed=3), NORMAL, tones=4, seed=5)
    product = 1.0
    for number, trial in enumerate(screen.trials):
        earlier = es.Screen(first, seed=3)
        for told in screen.trials[:number]:
            earlier.tell(told.tone, told.heard)
        place = np.array([DOMAIN.place_of(trial.tone)])
        level = np.array([DOMAIN.intensity_of(trial.tone)])
        _, heard = earlier.state.hypotheses(place, level)
        p_f, p_g = heard[:, 0, 0] if trial.heard else 1.0 - heard[:, 0, 0]
        product *= p_g / p_f
    assert screen.e_value == pytest.approx(product, rel=1e-9)
    assert screen.e_value_same == pytest.approx(1.0 / product, rel=1e-9)


def test_it_is_near_the_bayes_factor_where_the_alternative_is_one_model(first: es.Exam) -> None:
    for ear in (NORMAL, MILD):
        screen = run_exam(es.Screen(first, seed=2), ear, tones=10, seed=4)
        assert math.log(screen.e_value) == pytest.approx(screen.log_bf, abs=1.0)


def test_before_the_first_tone_it_is_one(first: es.Exam) -> None:
    assert es.Screen(first).e_value == es.Screen(first).e_value_same == 1.0


@pytest.mark.parametrize(
    ("protocol", "both_ways"),
    [
        (PROTOCOLS["best"], True),
        (es.Protocol(theta_g="fixed", rho_points=5), True),
        (es.Protocol(theta_g="fixed", rho_weights="prior", rho_points=5), False),
        (replace(PROTOCOLS["paper"], rho_points=5), False),
        (PROTOCOLS["best-0.1"], False),
    ],
)
def test_the_other_direction_is_offered_where_it_holds(
    first: es.Exam, protocol: es.Protocol, both_ways: bool
) -> None:
    screen = run_exam(es.Screen(first, protocol, seed=2), NORMAL, tones=3)
    assert screen.e_value is not None
    assert (screen.e_value_same is not None) == both_ways


def test_rules_and_notches_have_none(first: es.Exam) -> None:
    for screen in (es.Screen(first, rule="osha-sts"), es.Screen(hypotheses="notch")):
        assert screen.e_value is None
        run_exam(screen, MILD, tones=1)
        assert screen.e_value is screen.e_value_same is None


def test_each_ear_has_its_own(first: es.Exam) -> None:
    screen = es.Screen({"right": first, "left": first}, ears="both")
    with pytest.raises(ValueError, match="both ears"):
        _ = screen.e_value
    assert screen.of("left").e_value == 1.0


def test_a_rebuilt_screen_has_the_same(first: es.Exam) -> None:
    screen = run_exam(es.Screen(first, seed=3), NORMAL, tones=3, seed=5)
    assert es.Screen.from_dict(screen.to_dict()).e_value == screen.e_value
