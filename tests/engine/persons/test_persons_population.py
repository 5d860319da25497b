"""Whom to expect: the mixture, its interpolation, and the prior of change."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from earshift.engine.persons import change, population

SEVEN = population.AUDIOMETRIC_HZ


def test_density_is_that_of_the_mixture():
    mixture = population.thresholds(SEVEN)
    x = mixture.draw(np.random.default_rng(1), 5)
    parts = zip(mixture.weights, mixture.means, mixture.covs, strict=True)
    by_hand = sum(w * multivariate_normal.pdf(x, m, c) for w, m, c in parts)
    np.testing.assert_allclose(mixture.log_density(x), np.log(by_hand), rtol=1e-10)


def test_draws_have_the_mixtures_mean_and_a_wider_tail():
    mixture = population.thresholds(SEVEN)
    x = mixture.draw(np.random.default_rng(2), 40_000)
    np.testing.assert_allclose(x.mean(axis=0), mixture.weights @ mixture.means, atol=0.6)
    assert mixture.weights.size == 12
    assert mixture.weights[1::2].sum() == pytest.approx(0.1)


def test_both_ears_have_the_marginals_of_one_and_are_alike():
    one, both = population.thresholds(SEVEN, 1), population.thresholds(SEVEN, 2)
    np.testing.assert_allclose(both.means[:, :7], one.means)
    np.testing.assert_allclose(both.covs[:, 7:, 7:], one.covs)
    x = both.draw(np.random.default_rng(3), 20_000)
    assert np.corrcoef(x[:, 2], x[:, 9])[0, 1] > 0.6


def test_between_nodes_a_line_with_the_roughness_of_a_bridge():
    weights, variance = population.interpolation(SEVEN, 1000.0 * 2**0.5)
    np.testing.assert_allclose(weights[1:3], [0.5, 0.5])
    assert variance == pytest.approx(population.roughness(1414.0) * 0.25)
    weights, variance = population.interpolation(SEVEN, 3000.0)
    assert weights[3] == 1.0
    assert variance == 0.0
    assert population.interpolation(SEVEN, 250.0)[1] == pytest.approx(population.roughness(250.0))


def test_a_reading_at_every_node_leaves_its_own_noise():
    mixture = population.thresholds(SEVEN)
    read = np.array([20.0, 20.0, 25.0, 40.0, 55.0, 60.0, 60.0])
    left = mixture.given(np.eye(7), read, np.full(7, 1e-4))
    np.testing.assert_allclose(left.weights @ left.means, read, atol=0.01)


def test_extra_nodes_between_the_same_two_are_correlated():
    matrix, extra = population.on_nodes(SEVEN, (500.0, 600.0, 800.0, 1000.0))
    assert extra[1, 2] > 0.0
    assert np.linalg.eigvalsh(extra).min() >= -1e-9
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0)


def test_change_prior_density_fits_its_draws():
    prior = change.ChangePrior(SEVEN)
    rng = np.random.default_rng(4)
    shape = np.full((30_000, 1), 4)
    size = np.full((30_000, 1), 20.0)
    delta = prior.draw(rng, shape, size)[:, 0]
    np.testing.assert_allclose(delta.mean(axis=0), 20.0 * change.shapes(SEVEN)[4], atol=0.2)
    cov = change.covariances(SEVEN)[1]
    np.testing.assert_allclose(np.cov(delta.T), cov, atol=1.5)
    gap = prior.log_density(delta[:2, None], shape[:2], size[:2])[:, 0]
    known = multivariate_normal.logpdf(delta[:2], 20.0 * change.shapes(SEVEN)[4], cov)
    assert gap[0] - gap[1] == pytest.approx(known[0] - known[1])


def test_sizes_and_shapes_follow_their_shares():
    rng = np.random.default_rng(5)
    sizes = change.draw_sizes(rng, 50_000)
    assert (sizes < 0).mean() == pytest.approx(change.BETTER_SHARE, abs=0.01)
    assert np.abs(sizes).min() >= change.SMALLEST_DB
    grid = np.arange(-150.0, 250.0, 0.01)
    assert np.exp(change.log_size_density(grid)).sum() * 0.01 == pytest.approx(1.0, abs=0.01)
    shapes = change.draw_shapes(rng, 50_000)
    assert (shapes == change.UNCHANGED).mean() == pytest.approx(1 - change.CHANGED_SHARE, abs=0.01)
    share = np.bincount(shapes[shapes >= 0], minlength=len(change.SHAPES))
    np.testing.assert_allclose(share / share.sum(), change.shape_weights(), atol=0.015)


def test_one_frequency_alone_has_faded_at_its_neighbours():
    alone = next(s for s in change.SHAPES if s.family == "alone" and s.hz == 4000.0)
    at = alone.at(np.log2(np.array(SEVEN) / 1000.0))
    np.testing.assert_allclose(at, [0, 0, 0, 0, 1, 0, 0], atol=1e-12)
