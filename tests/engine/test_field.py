"""A field fitted to trials: gradients, the MAP, posteriors, audiograms and norms as fields."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, truncnorm

import earshift as es
from earshift.engine import ep, field
from earshift.engine.answers import Answers
from earshift.engine.domain import DOMAINS
from earshift.engine.field import Field
from earshift.engine.norms import hyperprior
from earshift.engine.thresholds import positive_slope_samples
from support.helpers import (
    MILD,
    Array,
    answers,
    draw_theta,
    field_evidence,
    model_units,
    numeric_gradient,
    tone_covariance,
)

AUDIOMETER = DOMAINS["audiometer"]


def draw_answers(rng: np.random.Generator, n: int, axes: int = 1, lapse: float = 0.0) -> Answers:
    """Answers of a rising field at random places; a few of them wrong by lapse."""
    places = rng.choice(np.arange(9) / 2 - 1.0, (n, axes))
    i = rng.choice(np.arange(-12, 11) / 2.0, n)
    f = 3.0 + 2.5 * i - 2.0 * np.sin(places).sum(axis=1)
    return answers(places, i, rng.random(n) < (1.0 - lapse) * norm.cdf(f))


def frequencies_as_places(frequencies_hz: list[float]) -> Array:
    return model_units(frequencies_hz, [50.0])[0][:, None]


def threshold_samples(fitted: Field, frequencies_hz: list[float]) -> Array:
    """Thresholds in dB HL, drawn from the field: (samples, frequencies)."""
    mean, cov = fitted.latent(frequencies_as_places(frequencies_hz))
    draws = positive_slope_samples(mean, cov, [0], 20_000, np.random.default_rng(0))
    return 50.0 - 10.0 * draws[:, 1:] / draws[:, :1]


def spread_of(levels: Array) -> Array:
    """Half the central 68 %: the SD of a Gaussian, and blind to the few draws with a flat slope."""
    low, high = np.quantile(levels, (0.16, 0.84), axis=0)
    return 0.5 * (high - low)


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("lapse", [0.0, 0.03])
def test_the_gradient_of_the_evidence_is_right_without_a_reference(axes: int, lapse: float) -> None:
    rng = np.random.default_rng(1)
    for n in (1, 6, 25):
        rows, theta = draw_answers(rng, n, axes, lapse), draw_theta(rng, axes)
        _, grad, settled = field_evidence(theta, rows, lapse=lapse)
        assert settled
        numeric = numeric_gradient(
            lambda t, rows=rows: field_evidence(t, rows, lapse=lapse)[0], theta, 1e-4
        )
        np.testing.assert_allclose(grad, numeric, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("rho", [-1.0, -0.4, 0.0, 0.6, 1.0])
def test_the_gradient_of_the_evidence_is_right_with_a_reference(axes: int, rho: float) -> None:
    rng = np.random.default_rng(2)
    for lapse in (0.0, 0.03):
        reference = field.fit(draw_answers(rng, 30, axes, lapse), hyperprior(), 0.0, lapse)
        rows, theta = draw_answers(rng, 8, axes, lapse), draw_theta(rng, axes)
        _, grad, settled = field_evidence(theta, rows, reference, rho, lapse=lapse)
        assert settled
        numeric = numeric_gradient(
            lambda t, rows=rows, reference=reference, lapse=lapse: field_evidence(
                t, rows, reference, rho, lapse=lapse
            )[0],
            theta,
            1e-4,
        )
        np.testing.assert_allclose(grad, numeric, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("axes", [1, 2])
def test_the_evidence_of_a_field_is_that_of_its_trials(axes: int) -> None:
    rng = np.random.default_rng(3)
    rows, theta = draw_answers(rng, 20, axes), draw_theta(rng, axes)
    K = tone_covariance(theta, rows.places[rows.place], rows.intensity)
    dense = ep.fit(np.full(20, theta[0]), K, rows.answer == ep.HEARD)
    assert field_evidence(theta, rows)[0] == pytest.approx(dense.log_evidence, abs=1e-6)


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("lapse", [0.0, 0.03])
def test_the_fitted_hyperparameters_are_a_mode(axes: int, lapse: float) -> None:
    rng = np.random.default_rng(4)
    centre, chol = hyperprior().whitened(axes)
    for n in (3, 15, 50):
        rows = draw_answers(rng, n, axes, lapse)
        fitted = field.fit(rows, hyperprior(), 0.0, lapse)
        mode = np.linalg.solve(chol, fitted.theta - centre)

        def log_posterior(u: Array, rows: Answers = rows) -> float:
            value, _, _ = field_evidence(centre + chol @ u, rows, lapse=lapse)
            return value - 0.5 * float(u @ u)

        assert fitted.converged
        assert np.abs(numeric_gradient(log_posterior, mode, 1e-3)).max() < 5e-3
        best = log_posterior(mode)
        assert best >= log_posterior(np.zeros(mode.size))
        for _ in range(10):
            assert best >= log_posterior(mode + 0.3 * rng.normal(size=mode.size))


def test_the_order_of_trials_does_not_matter_for_the_fit() -> None:
    rng = np.random.default_rng(5)
    for lapse in (0.0, 0.03):
        rows = draw_answers(rng, 30, lapse=lapse)
        order = rng.permutation(30)
        shuffled = Answers(
            rows.places, rows.place[order], rows.intensity[order], rows.answer[order],
            rows.gauss_tau,
        )  # fmt: skip
        one, two = (field.fit(r, hyperprior(), 0.0, lapse) for r in (rows, shuffled))
        assert one.log_evidence == pytest.approx(two.log_evidence, abs=1e-3)
        grid = np.linspace(-1.0, 3.0, 9)[:, None], np.linspace(-6.0, 5.0, 12)
        np.testing.assert_allclose(one.p_heard(*grid), two.p_heard(*grid), atol=1e-3)


def test_a_field_without_answers_is_the_hyperpriors_mode() -> None:
    fitted = field.fit(answers(np.zeros((0, 1)), np.zeros(0), []), hyperprior())
    assert fitted.log_evidence == 0.0
    assert fitted.converged
    np.testing.assert_array_equal(fitted.theta, hyperprior().mean)
    mu, s = fitted.moments(np.array([[0.0]]), np.array([0.0, 2.0]))
    c, alpha, beta = fitted.theta[0], *np.exp(fitted.theta[1:3])
    np.testing.assert_allclose(mu[0], [c, c])
    np.testing.assert_allclose(s[0], [beta, 4.0 * alpha + beta])


@given(seed=st.integers(0, 10**6), n=st.integers(0, 40), axes=st.integers(1, 2))
def test_the_posterior_covariance_is_positive_semi_definite(seed: int, n: int, axes: int) -> None:
    rng = np.random.default_rng(seed)
    lapse = float(rng.choice([0.0, 0.03]))
    fitted = field.fit(draw_answers(rng, n, axes, lapse), hyperprior(), 0.0, lapse)
    mean, cov = fitted.latent(rng.uniform(-1.0, 3.0, (12, axes)))
    assert np.isfinite(mean).all()
    np.testing.assert_allclose(cov, cov.T, atol=1e-8 * np.abs(cov).max())
    prior_scale = np.exp(fitted.theta[1:3]).max()
    assert np.linalg.eigvalsh(0.5 * (cov + cov.T)).min() >= -1e-8 * prior_scale


def test_moments_are_those_of_the_latent_vector() -> None:
    rng = np.random.default_rng(6)
    fitted = field.fit(draw_answers(rng, 20), hyperprior(), 0.02, 0.03)
    places, intensity = np.array([[-0.7], [0.0], [1.3]]), np.array([-4.0, 0.0, 2.5])
    mean, cov = fitted.latent(places)
    mu, s = fitted.moments(places, intensity)
    p = fitted.p_heard(places, intensity)
    for k in range(3):
        for j, i in enumerate(intensity):
            u = np.zeros(4)
            u[0], u[k + 1] = i, 1.0
            assert mu[k, j] == pytest.approx(u @ mean, abs=1e-10)
            assert s[k, j] == pytest.approx(u @ cov @ u, abs=1e-8)
            share = norm.cdf(mu[k, j] / np.sqrt(1.0 + s[k, j]))
            assert p[k, j] == pytest.approx(0.02 + 0.95 * share, abs=1e-10)


def test_an_audiogram_gives_its_thresholds_back() -> None:
    fitted = field.from_audiogram(es.Audiogram(MILD, sd_db=3.0), AUDIOMETER)
    assert fitted.converged
    levels = threshold_samples(fitted, list(MILD))
    np.testing.assert_allclose(np.median(levels, axis=0), list(MILD.values()), atol=3.0)
    np.testing.assert_allclose(spread_of(levels), 3.0, atol=2.5)


def test_the_method_offset_of_an_audiogram_is_taken_off() -> None:
    plain = field.from_audiogram(es.Audiogram(MILD), AUDIOMETER)
    offset = field.from_audiogram(es.Audiogram(MILD, method_offset_db=2.5), AUDIOMETER)
    gap = np.median(threshold_samples(plain, list(MILD)), axis=0) - np.median(
        threshold_samples(offset, list(MILD)), axis=0
    )
    np.testing.assert_allclose(gap, 2.5, atol=0.5)


def test_an_unsure_audiogram_is_held_more_loosely() -> None:
    spreads = [
        spread_of(
            threshold_samples(
                field.from_audiogram(es.Audiogram(MILD, sd_db=sd), AUDIOMETER), list(MILD)
            )
        )
        for sd in (2.0, 10.0)
    ]
    assert (spreads[1] > spreads[0] + 3.0).all()


def test_no_response_puts_the_threshold_above_the_level_tried() -> None:
    measured = {500.0: 50.0, 1000.0: 55.0, 2000.0: 60.0, 4000.0: 70.0, 6000.0: 75.0}
    without = field.from_audiogram(es.Audiogram(measured), AUDIOMETER)
    silent = field.from_audiogram(
        es.Audiogram(measured, no_response_db_hl={8000.0: 90.0}), AUDIOMETER
    )
    assert silent.converged
    before, after = (threshold_samples(f, [8000.0]) for f in (without, silent))
    assert np.median(before) < 85.0
    assert np.median(after) > np.median(before) + 5.0
    assert np.median(after) > 86.0


def test_the_slope_of_an_audiogram_keeps_its_prior_even_beside_a_steep_no_response() -> None:
    prior = hyperprior(sloped=True)
    steep = es.Audiogram({500.0: 10.0, 1000.0: 10.0, 6000.0: 60.0}, no_response_db_hl={8e3: 90.0})
    mean, cov = field.from_audiogram(steep, AUDIOMETER).latent(np.array([[0.0]]))
    assert mean[0] == pytest.approx(prior.slope_mean, rel=1e-3)
    assert cov[0, 0] == pytest.approx(np.exp(prior.mean[1]), rel=1e-2)


def test_an_audiogram_of_no_responses_alone_is_a_field_too() -> None:
    given = es.Audiogram({}, no_response_db_hl={1000.0: 90.0, 4000.0: 90.0})
    fitted = field.from_audiogram(given, AUDIOMETER)
    assert fitted.converged
    assert (np.median(threshold_samples(fitted, [1000.0, 4000.0]), axis=0) > 85.0).all()


def test_a_norm_gives_its_mean_and_sd_back() -> None:
    population = es.population_norm()
    fitted = field.from_norm(population, AUDIOMETER)
    levels = threshold_samples(fitted, list(population.frequencies_hz))
    sd = np.sqrt(np.diag(population.cov_db2))
    np.testing.assert_allclose(np.median(levels, axis=0), population.mean_db_hl, atol=1.5)
    np.testing.assert_allclose(spread_of(levels), sd, rtol=0.2)


def test_samples_have_rising_slopes_and_otherwise_the_moments_of_the_posterior() -> None:
    mean = np.array([3.0, -1.0, 2.0])
    cov = np.array([[0.04, 0.02, 0.0], [0.02, 1.0, 0.5], [0.0, 0.5, 2.0]])
    draws = positive_slope_samples(mean, cov, [0], 40_000, np.random.default_rng(1))
    assert (draws[:, 0] > 0).all()
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.03)
    np.testing.assert_allclose(np.cov(draws.T), cov, atol=0.05)


@pytest.mark.parametrize("mean", [-8.0, -1.0, 0.5])
def test_samples_of_a_doubtful_slope_follow_the_cut_gaussian(mean: float) -> None:
    draws = positive_slope_samples(
        np.array([mean, 0.0]), np.eye(2), [0], 40_000, np.random.default_rng(2)
    )
    exact = truncnorm(-mean, np.inf, loc=mean)
    assert (draws[:, 0] > 0).all()
    assert draws[:, 0].mean() == pytest.approx(exact.mean(), abs=0.02)
    assert draws[:, 0].std() == pytest.approx(exact.std(), abs=0.02)


def test_samples_with_two_slopes_have_both_rising() -> None:
    cov = np.array([[1.0, -0.5, 0.3], [-0.5, 1.0, 0.0], [0.3, 0.0, 1.0]])
    draws = positive_slope_samples(
        np.array([-1.0, 0.2, 0.0]), cov, [0, 2], 2_000, np.random.default_rng(3)
    )
    assert (draws[:, [0, 2]] > 0).all()
    assert (draws[:, 1] < 0).any()


def test_the_slope_is_sure_only_after_rising_answers() -> None:
    before = field.fit(answers(np.zeros((0, 1)), np.zeros(0), []), hyperprior())
    rng = np.random.default_rng(7)
    after = field.fit(draw_answers(rng, 40), hyperprior())
    assert before.slope_sure == pytest.approx(0.5)
    assert after.slope_sure > 0.999
