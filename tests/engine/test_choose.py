"""Scores over the candidates: exact information, bounds, and one contract for all strategies."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import log_ndtr

import earshift as es
from earshift.engine import choose
from support.helpers import MILD, Array, run_exam, tell_all

LIMITS = es.Limits(cap_db_hl=70.0, start_db_hl=30.0)


def entropy(p: float, q: float) -> float:
    return sum(-v * math.log(v) for v in (p, q) if v > 0.0)


def exact_information(mu: float, sd: float, guess: float, lapse: float) -> float:
    """I(answer; f) for f ~ N(mu, sd^2) by adaptive integration over f."""
    gain = 1.0 - guess - lapse

    def answer_entropy(f: float) -> float:
        return entropy(guess + gain * math.exp(log_ndtr(f)), lapse + gain * math.exp(log_ndtr(-f)))

    def integrand(f: float) -> float:
        z = (f - mu) / sd
        return answer_entropy(f) * math.exp(-0.5 * z * z) / (sd * math.sqrt(2.0 * math.pi))

    ends = [mu + k * sd for k in (-10.0, -3.0, -1.0, 0.0, 1.0, 3.0, 10.0)]
    ends = sorted({*ends, *(f for f in (-9.0, -4.0, -1.5, 0.0, 1.5, 4.0, 9.0)
                            if ends[0] < f < ends[-1])})  # fmt: skip
    expected = sum(quad(integrand, a, b, epsabs=1e-11, epsrel=1e-10)[0] for a, b in pairwise(ends))
    root = math.sqrt(1.0 + sd * sd)
    p = guess + gain * math.exp(log_ndtr(mu / root))
    q = lapse + gain * math.exp(log_ndtr(-mu / root))
    return entropy(p, q) - expected


@pytest.mark.parametrize(("guess", "lapse"), [(0.0, 0.0), (0.02, 0.05), (0.2, 0.0), (0.0, 0.03)])
def test_information_equals_adaptive_integration(guess: float, lapse: float) -> None:
    for sd in (0.01, 0.1, 0.34, 0.36, 1.0, 3.0, 8.0, 16.0, 50.0):
        mu = np.array([-20.0, -8.3, -3.0, -1.0, -0.2, 0.0, 0.7, 2.0, 5.0, 11.0, 20.0])
        ours = choose.information(mu, np.full(mu.size, sd * sd), guess, lapse)
        exact = [exact_information(m, sd, guess, lapse) for m in mu]
        np.testing.assert_allclose(ours, exact, atol=1e-6, err_msg=f"SD {sd}")


@given(
    mu=st.floats(-20.0, 20.0),
    sd=st.floats(0.0, 50.0),
    guess=st.floats(0.0, 0.3),
    lapse=st.floats(0.0, 0.3),
)
def test_information_is_between_nothing_and_one_bit(
    mu: float, sd: float, guess: float, lapse: float
) -> None:
    value = choose.information(np.array([mu]), np.array([sd * sd]), guess, lapse)[0]
    assert 0.0 <= value <= math.log(2.0)


def test_what_is_known_teaches_nothing() -> None:
    mu = np.linspace(-20.0, 20.0, 41)
    np.testing.assert_allclose(choose.information(mu, np.zeros(41), 0.0, 0.0), 0.0, atol=1e-12)


def outlook(p_same: Array, p_different: Array, p_changed: float) -> choose.Outlook:
    def latent() -> tuple[Array, Array]:
        raise AssertionError("the differential score needs no latent")

    return choose.Outlook(
        rng=np.random.default_rng(0), guess=0.0, lapse=0.0, latent=latent, shape=p_same.shape,
        hypotheses=(np.array([1.0 - p_changed, p_changed]), np.array([p_same, p_different])),
    )  # fmt: skip


probabilities = st.lists(st.floats(0.0, 1.0), min_size=6, max_size=6)


@given(same=probabilities, different=probabilities, p_changed=st.floats(0.0, 1.0))
def test_the_differential_score_is_between_nothing_and_what_is_unknown(
    same: list[float], different: list[float], p_changed: float
) -> None:
    scores = choose.differential(
        outlook(np.array(same).reshape(2, 3), np.array(different).reshape(2, 3), p_changed)
    )
    assert (scores >= 0.0).all()
    assert (scores <= entropy(p_changed, 1.0 - p_changed) + 1e-12).all()
    assert (scores <= math.log(2.0)).all()


def test_the_differential_score_is_the_mutual_information() -> None:
    p_same, p_different, p_changed = 0.8, 0.3, 0.4
    joint = np.array(
        [
            [(1 - p_changed) * p_same, (1 - p_changed) * (1 - p_same)],
            [p_changed * p_different, p_changed * (1 - p_different)],
        ]
    )
    independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    mutual = float((joint * np.log(joint / independent)).sum())
    score = choose.differential(outlook(np.array([[p_same]]), np.array([[p_different]]), p_changed))
    assert score[0, 0] == pytest.approx(mutual, abs=1e-12)


def test_hypotheses_that_agree_or_are_settled_leave_nothing_to_learn() -> None:
    p = np.array([[0.1, 0.5, 0.9]])
    np.testing.assert_allclose(choose.differential(outlook(p, p, 0.3)), 0.0, atol=1e-12)
    np.testing.assert_allclose(choose.differential(outlook(p, 1 - p, 1.0)), 0.0, atol=1e-12)


def test_the_differential_score_needs_two_hypotheses() -> None:
    alone = choose.Outlook(
        np.random.default_rng(0), 0.0, 0.0, lambda: (np.zeros((1, 1)), np.ones((1, 1))), (1, 1)
    )
    with pytest.raises(ValueError, match="Screen"):
        choose.differential(alone)


def sitting(kind: str, strategy: str, exam: es.Exam, seed: int = 3) -> es.Exam | es.Screen:
    if kind == "exam":
        return es.Exam(
            seed=seed, domain="audiometer", strategy=strategy, halton_tones=0, limits=LIMITS
        )
    protocol = es.Protocol(strategy=strategy, rho_points=9, evidence="plug_in")
    return es.Screen(exam, protocol, seed=seed, limits=LIMITS)


CONTRACT = [("screen", name) for name in choose.STRATEGIES] + [
    ("exam", name) for name in choose.STRATEGIES if name != "differential"
]


@pytest.mark.parametrize(("kind", "strategy"), CONTRACT)
@pytest.mark.parametrize("tones", [0, 1, 10])
def test_every_strategy_keeps_the_contract(
    short_exam: es.Exam, kind: str, strategy: str, tones: int
) -> None:
    first = run_exam(sitting(kind, strategy, short_exam), MILD, tones=tones)
    scores = first.scores()
    assert scores.shape == first.domain.shape
    assert np.isfinite(scores).all()
    tone = first.ask()
    allowed = LIMITS.allowed(first.domain, first.trials)
    assert tone in {first.domain.tone(*index) for index in np.argwhere(allowed)}
    assert tone == best_allowed(first, scores)

    again = tell_all(sitting(kind, strategy, short_exam), first.trials)
    np.testing.assert_array_equal(again.scores(), scores)
    assert again.ask() == tone


def best_allowed(sitting: es.Exam | es.Screen, scores: Array) -> es.Tone:
    """The best allowed candidate; where several are best, the one that was asked."""
    allowed = LIMITS.allowed(sitting.domain, sitting.trials)
    best = np.where(allowed, scores, -np.inf).max()
    asked = sitting.ask()
    for index in np.argwhere(allowed & (scores >= best - choose.TIE)):
        if sitting.domain.tone(*index) == asked:
            return asked
    raise AssertionError(f"{asked} is not among the best")


def test_ties_are_broken_by_the_generator_and_only_among_the_best() -> None:
    scores = np.array([[1.0, 2.0, 2.0], [2.0 - 1e-12, 5.0, 0.0]])
    allowed = np.array([[True, True, True], [True, False, True]])
    picked = {choose.pick(scores, allowed, np.random.default_rng(k)) for k in range(40)}
    assert picked == {(0, 1), (0, 2), (1, 0)}


def test_level_set_prefers_the_uncertain_threshold() -> None:
    mu, s = np.array([[0.0, 3.0, 0.0]]), np.array([[4.0, 4.0, 0.01]])
    view = choose.Outlook(np.random.default_rng(0), 0.0, 0.0, lambda: (mu, s), (1, 3))
    assert choose.level_set(view).argmax() == 0


def test_uncertainty_prefers_the_even_bet() -> None:
    mu, s = np.array([[-2.0, 0.1, 4.0]]), np.ones((1, 3))
    view = choose.Outlook(np.random.default_rng(0), 0.02, 0.02, lambda: (mu, s), (1, 3))
    assert choose.uncertainty(view).argmax() == 1
