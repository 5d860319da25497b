"""Covariances: the formulas of the method, derivatives, and positive semi-definiteness."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earshift.engine import kernels
from support.helpers import (
    Array,
    draw_theta,
    gaps_of,
    numeric_gradient,
    rows_to_latent,
    tone_covariance,
)

seeds = st.integers(0, 10**6)


def draw_places(rng: np.random.Generator, count: int, axes: int) -> Array:
    return rng.uniform(-1.0, 3.0, (count, axes))


def is_psd(cov: Array) -> bool:
    symmetric = 0.5 * (cov + cov.T)
    return bool(np.linalg.eigvalsh(symmetric).min() >= -1e-9 * np.abs(symmetric).max())


@pytest.mark.parametrize("axes", [1, 2])
def test_the_latent_covariance_is_the_kernel_over_tones(axes: int) -> None:
    rng = np.random.default_rng(1)
    theta, places = draw_theta(rng, axes), draw_places(rng, 6, axes)
    place, i = rng.integers(0, 6, 20), rng.uniform(-6, 5, 20)
    U = rows_to_latent(place, i, 6)
    S = kernels.covariance(theta, gaps_of(places, places))
    np.testing.assert_allclose(
        U @ S @ U.T, tone_covariance(theta, places[place], i), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("axes", [1, 2])
def test_the_cross_covariance_is_the_formula_of_the_method(axes: int) -> None:
    rng = np.random.default_rng(2)
    f, g = draw_theta(rng, axes), draw_theta(rng, axes)
    a, b = draw_places(rng, 4, axes), draw_places(rng, 3, axes)
    out = kernels.cross(f, g, gaps_of(a, b))
    lf, lg = np.exp(f[3:]), np.exp(g[3:])
    peak = np.sqrt(np.exp(f[2] + g[2]) * np.prod(2 * lf * lg / (lf**2 + lg**2)))
    for j in range(4):
        for k in range(3):
            fall = np.exp(-(((a[j] - b[k]) ** 2) / (lf**2 + lg**2)).sum())
            assert out[j + 1, k + 1] == pytest.approx(peak * fall, rel=1e-12)
    assert out[0, 0] == pytest.approx(np.exp(0.5 * (f[1] + g[1])), rel=1e-12)
    assert not out[0, 1:].any()
    assert not out[1:, 0].any()


def test_two_equal_fields_have_the_papers_kernel() -> None:
    rng = np.random.default_rng(3)
    theta, places = draw_theta(rng), draw_places(rng, 5, 1)
    gaps = gaps_of(places, places)
    K = kernels.covariance(theta, gaps)
    np.testing.assert_allclose(
        kernels.two_exams(theta, theta, 0.3, gaps),
        np.kron([[1.0, 0.3], [0.3, 1.0]], K),
        rtol=1e-12,
    )


@given(seed=seeds, axes=st.integers(1, 2), rho=st.floats(-1.0, 1.0), count=st.integers(1, 12))
def test_the_two_exam_covariance_is_positive_semi_definite(
    seed: int, axes: int, rho: float, count: int
) -> None:
    rng = np.random.default_rng(seed)
    f, g = (draw_theta(rng, axes) * rng.choice([1.0, 2.0]) for _ in range(2))
    places = draw_places(rng, count, axes)
    assert is_psd(kernels.two_exams(f, g, rho, gaps_of(places, places)))


@given(seed=seeds, axes=st.integers(1, 2), rho=st.sampled_from([-1.0, 1.0]))
def test_it_stays_so_at_the_ends_of_the_correlation(seed: int, axes: int, rho: float) -> None:
    rng = np.random.default_rng(seed)
    f = draw_theta(rng, axes)
    g = f + rng.choice([0.0, 0.1, 3.0]) * rng.normal(size=f.size)
    places = draw_places(rng, 10, axes)
    assert is_psd(kernels.two_exams(f, g, rho, gaps_of(places, places)))


@given(seed=seeds, axes=st.integers(1, 2))
def test_the_gradient_of_the_covariance_is_right(seed: int, axes: int) -> None:
    rng = np.random.default_rng(seed)
    theta, places = draw_theta(rng, axes), draw_places(rng, 4, axes)
    gaps, Q = gaps_of(places, places), rng.normal(size=(5, 5))
    grad = np.zeros(theta.size)
    kernels.covariance_gradient(theta, gaps, kernels.covariance(theta, gaps), Q, grad)
    numeric = numeric_gradient(lambda t: float((Q * kernels.covariance(t, gaps)).sum()), theta)
    np.testing.assert_allclose(grad, numeric, rtol=1e-5, atol=1e-5)


@given(seed=seeds, axes=st.integers(1, 2))
def test_the_gradient_of_the_cross_covariance_is_right(seed: int, axes: int) -> None:
    rng = np.random.default_rng(seed)
    f, g = draw_theta(rng, axes), draw_theta(rng, axes)
    gaps = gaps_of(draw_places(rng, 4, axes), draw_places(rng, 3, axes))
    Q = rng.normal(size=(5, 4))
    grad = np.zeros(g.size)
    kernels.cross_gradient(f, g, gaps, kernels.cross(f, g, gaps), Q, grad)
    numeric = numeric_gradient(lambda t: float((Q * kernels.cross(f, t, gaps)).sum()), g)
    np.testing.assert_allclose(grad, numeric, rtol=1e-5, atol=1e-5)
