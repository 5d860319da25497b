"""EP against exact values, a plain reference, another library, and finite differences."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

import earshift as es
from earshift.engine import ep, kernels
from support.helpers import (
    MILD,
    NORMAL,
    Array,
    answers,
    draw_theta,
    gaps_of,
    model_units,
    numeric_gradient,
    rows_to_latent,
    tone_covariance,
)
from support.reference_ep import reference_ep

REFERENCE = Path(__file__).parent / "reference"
ORTHANT = json.loads((REFERENCE / "orthant.json").read_text(encoding="utf-8"))["cases"]
GPY = json.loads((REFERENCE / "gpy_evidences.json").read_text(encoding="utf-8"))["cases"]


def orthant_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_orthant", REFERENCE / "make_orthant.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stored_prior(case: dict) -> tuple[Array, Array]:
    phi, i = model_units(case["frequency_hz"], case["level_db_hl"])
    return np.full(i.size, case["theta"][0]), tone_covariance(case["theta"], phi, i)


def random_prior(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Any mean and any well-conditioned covariance."""
    root = rng.normal(size=(n, n + 2)) * rng.uniform(0.3, 2.0)
    return rng.normal(0.0, 1.5, n), root @ root.T / np.sqrt(n) + 0.05 * np.eye(n)


def random_exam(
    rng: np.random.Generator, n: int, guess: float = 0.0, lapse: float = 0.0
) -> tuple[Array, Array, np.ndarray]:
    """Mean, covariance and answers of an exam drawn from the model."""
    theta = draw_theta(rng)
    phi = rng.choice(np.arange(17) / 4 - 1.0, n)
    i = rng.choice(np.arange(-12, 11) / 2.0, n)
    mean, cov = np.full(n, theta[0]), tone_covariance(theta, phi, i)
    f = rng.multivariate_normal(mean, cov, method="eigh")
    return mean, cov, rng.random(n) < guess + (1.0 - guess - lapse) * norm.cdf(f)


def numeric_log_evidence(
    mean: Array, cov: Array, heard: np.ndarray, guess: float, lapse: float
) -> float:
    """The evidence as an integral: Gauss-Legendre on a box of ten standard deviations."""
    n = mean.size
    nodes, weights = np.polynomial.legendre.leggauss({1: 800, 2: 320, 3: 80}[n])
    edge = 10.0 if n < 3 else 7.5
    values, vectors = np.linalg.eigh(cov)
    root = vectors * np.sqrt(values)
    z = np.stack(np.meshgrid(*[edge * nodes] * n, indexing="ij"), axis=-1).reshape(-1, n)
    density = np.prod(
        np.stack(
            np.meshgrid(*[edge * weights * norm.pdf(edge * nodes)] * n, indexing="ij"), axis=-1
        ).reshape(-1, n),
        axis=1,
    )
    p = guess + (1.0 - guess - lapse) * norm.cdf(mean + z @ root.T)
    likelihood = np.prod(np.where(heard, p, 1.0 - p), axis=1)
    return float(np.log(density @ likelihood))


def test_evidence_and_posterior_equal_a_plain_reference_ep() -> None:
    rng = np.random.default_rng(11)
    for n in (1, 2, 3, 5, 8, 12):
        for _ in range(3):
            mean, cov = random_prior(rng, n)
            heard = rng.random(n) < 0.5
            guess, lapse = rng.choice([0.0, 0.02, 0.1], 2)
            ours = ep.fit(mean, cov, heard, float(guess), float(lapse))
            plain = reference_ep(mean, cov, heard, guess, lapse)
            assert plain.settled
            assert ours.converged
            assert ours.log_evidence == pytest.approx(plain.log_evidence, abs=1e-5)
            np.testing.assert_allclose(ours.mean, plain.mean, atol=1e-5)
            np.testing.assert_allclose(ours.cov, plain.cov, atol=1e-5)


def test_evidence_of_exams_equals_the_plain_reference_although_their_covariance_is_singular() -> (
    None
):
    rng = np.random.default_rng(12)
    for n in (5, 15, 30):
        for _ in range(3):
            mean, cov, heard = random_exam(rng, n)
            ours, plain = ep.fit(mean, cov, heard), reference_ep(mean, cov, heard)
            assert plain.settled
            assert ours.converged
            assert ours.log_evidence == pytest.approx(plain.log_evidence, abs=1e-5)


def test_ep_is_near_the_exact_orthant_probability() -> None:
    assert len(ORTHANT) == 200
    assert max(len(case["heard"]) for case in ORTHANT) == 15
    errors = []
    for case in ORTHANT:
        fitted = ep.fit(*stored_prior(case), case["heard"])
        assert fitted.converged
        errors.append(abs(fitted.log_evidence - case["log_evidence"]))
    assert np.median(errors) <= 0.05
    assert max(errors) <= 0.25


def test_the_stored_orthant_probabilities_can_be_recomputed() -> None:
    exact = orthant_script().exact_log_evidence
    small = [case for case in ORTHANT if len(case["heard"]) <= 8]
    for case in small[::15]:
        value = exact(*stored_prior(case), np.array(case["heard"]), seed=99)
        assert value == pytest.approx(case["log_evidence"], abs=0.01)


@pytest.mark.parametrize("case", GPY, ids=[case["name"] for case in GPY])
def test_ep_agrees_with_gpy_on_long_exams(case: dict) -> None:
    trials, theta = case["trials"], case["theta"]
    phi, i = model_units([t["frequency_hz"] for t in trials], [t["level_db_hl"] for t in trials])
    letters = [theta["c"], *np.log([theta["alpha"], theta["beta"], theta["l"]])]
    fitted = ep.fit(
        np.full(i.size, theta["c"]), tone_covariance(letters, phi, i), [t["heard"] for t in trials]
    )
    assert fitted.converged
    assert 50 <= len(trials) <= 100
    assert fitted.log_evidence == pytest.approx(case["log_evidence"], abs=0.05)


@pytest.mark.parametrize(("guess", "lapse"), [(0.0, 0.0), (0.02, 0.05), (0.2, 0.0), (0.0, 0.1)])
def test_one_answer_is_exact(guess: float, lapse: float) -> None:
    gain = 1.0 - guess - lapse
    for mean in (-6.0, -1.0, 0.0, 2.5, 8.0):
        for variance in (0.01, 1.0, 40.0):
            p = guess + gain * norm.cdf(mean / np.sqrt(1.0 + variance))
            q = lapse + gain * norm.cdf(-mean / np.sqrt(1.0 + variance))
            for heard, expected in ((True, p), (False, q)):
                fitted = ep.fit([mean], [[variance]], [heard], guess, lapse)
                assert fitted.converged
                assert fitted.log_evidence == pytest.approx(np.log(expected), abs=1e-8)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_ep_with_guesses_and_lapses_is_near_the_numerical_integral(n: int) -> None:
    rng = np.random.default_rng(100 + n)
    errors = []
    for _ in range(8):
        mean, cov = random_prior(rng, n)
        heard = rng.random(n) < 0.5
        guess, lapse = rng.uniform(0.0, 0.1, 2)
        exact = numeric_log_evidence(mean, cov, heard, guess, lapse)
        errors.append(abs(ep.fit(mean, cov, heard, guess, lapse).log_evidence - exact))
    assert max(errors) < (1e-6 if n == 1 else 0.05)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_numerical_integral_agrees_with_the_orthant_probability(n: int) -> None:
    rng = np.random.default_rng(200 + n)
    mean, cov = random_prior(rng, n)
    heard = rng.random(n) < 0.5
    exact = orthant_script().exact_log_evidence(mean, cov, heard, seed=1)
    assert numeric_log_evidence(mean, cov, heard, 0.0, 0.0) == pytest.approx(exact, abs=1e-3)


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 12),
    guess=st.floats(0.0, 0.2),
    lapse=st.floats(0.0, 0.2),
)
def test_flipping_all_answers_mirrors_the_posterior(
    seed: int, n: int, guess: float, lapse: float
) -> None:
    rng = np.random.default_rng(seed)
    _, cov = random_prior(rng, n)
    heard = rng.random(n) < 0.5
    ours = ep.fit(np.zeros(n), cov, heard, guess, lapse)
    flipped = ep.fit(np.zeros(n), cov, ~heard, lapse, guess)
    assert flipped.log_evidence == pytest.approx(ours.log_evidence, abs=1e-7)
    np.testing.assert_allclose(flipped.mean, -ours.mean, atol=1e-6)
    np.testing.assert_allclose(flipped.cov, ours.cov, atol=1e-6)


@given(seed=st.integers(0, 10**6), n=st.integers(2, 20), lapse=st.sampled_from([0.0, 0.03]))
def test_the_order_of_trials_does_not_matter(seed: int, n: int, lapse: float) -> None:
    rng = np.random.default_rng(seed)
    mean, cov, heard = random_exam(rng, n)
    order = rng.permutation(n)
    ours = ep.fit(mean, cov, heard, lapse=lapse)
    shuffled = ep.fit(mean[order], cov[np.ix_(order, order)], heard[order], lapse=lapse)
    assert shuffled.log_evidence == pytest.approx(ours.log_evidence, abs=1e-6)
    np.testing.assert_allclose(shuffled.mean, ours.mean[order], atol=1e-4)


def sites(mean: Array, cov: Array, heard: np.ndarray, guess: float, lapse: float) -> Array:
    """Site precisions at the fixed point, from what `fit` tells about the gradient."""
    fitted = ep.fit(mean, cov, heard, guess, lapse)
    G = np.outer(fitted.grad_mean, fitted.grad_mean) - 2.0 * fitted.grad_cov
    return np.diag(np.linalg.solve((np.eye(mean.size) - cov @ G).T, G.T).T)


def test_one_surprising_answer_gives_a_negative_site_precision() -> None:
    """The number of method.md: cavity mean 3, variance 1, 2 % lapses."""
    tau = sites(np.array([3.0]), np.eye(1), np.array([False]), 0.0, 0.02)
    assert tau[0] == pytest.approx(-0.36, abs=0.01)


def lapsing_ear(rng: np.random.Generator) -> tuple[Array, Array, np.ndarray, float, float]:
    """Answers of a simulated person who lapses, and the prior of a typical field."""
    n = int(rng.integers(5, 61))
    guess, lapse = float(rng.choice([0.0, 0.02])), float(rng.uniform(0.02, 0.05))
    ear = {f: level + rng.normal(0.0, 8.0) for f, level in (NORMAL, MILD)[n % 2].items()}
    frequency_hz = 500.0 * 2.0 ** (rng.integers(0, 17, n) / 4)
    level_db_hl = rng.choice(np.arange(-10.0, 101.0, 5.0), n)
    spread_db = rng.uniform(2.0, 8.0)
    listener = es.Listener(
        ear, guess=guess, lapse=lapse, spread_db=spread_db, seed=int(rng.integers(10**6))
    )
    heard = [listener(es.Tone(f, i)) for f, i in zip(frequency_hz, level_db_hl, strict=True)]
    phi, i = model_units(frequency_hz, level_db_hl)
    cov = tone_covariance([5.0, 1.8, 1.8, -0.5], phi, i)
    return np.full(n, 5.0), cov, np.array(heard), guess, lapse


@pytest.mark.slow
def test_ep_settles_wherever_a_patient_plain_loop_does() -> None:
    """Surprising answers make sites negative. Some posteriors then have no fixed point at all (a
    cavity turns improper whatever the damping): those few must say so, all others must settle."""
    rng = np.random.default_rng(3)
    unsettled, negative = 0, 0
    for k in range(1000):
        mean, cov, heard, guess, lapse = lapsing_ear(rng)
        fitted = ep.fit(mean, cov, heard, guess, lapse)
        assert np.isfinite(fitted.log_evidence)
        if k < 100:
            negative += bool(sites(mean, cov, heard, guess, lapse).min() < -1e-3)
        if fitted.converged:
            assert fitted.log_evidence < 0.0
            assert np.linalg.eigvalsh(fitted.cov).min() > -1e-7 * np.abs(cov).max()
            continue
        unsettled += 1
        if mean.size <= 20:
            plain = reference_ep(mean, cov, heard, guess, lapse, sweeps=600, tolerance=1e-8)
            assert not plain.settled, f"case {k} has a fixed point and fit did not reach it"
    assert negative >= 30
    assert unsettled <= 20


def test_ep_with_negative_sites_agrees_with_the_reference() -> None:
    rng = np.random.default_rng(22)
    negative = 0
    for _ in range(12):
        n = int(rng.integers(4, 16))
        lapse = float(rng.uniform(0.02, 0.05))
        mean, cov, heard = random_exam(rng, n, 0.0, lapse)
        heard = heard ^ (rng.random(n) < 0.15)
        ours = ep.fit(mean, cov, heard, 0.01, lapse)
        plain = reference_ep(mean, cov, heard, 0.01, lapse)
        assert plain.settled
        assert ours.converged
        assert ours.log_evidence == pytest.approx(plain.log_evidence, abs=1e-5)
        negative += bool(plain.tau.min() < -1e-3)
    assert negative >= 4


def test_gradients_are_those_of_the_evidence() -> None:
    rng = np.random.default_rng(31)
    for n, guess, lapse in ((1, 0.0, 0.0), (4, 0.0, 0.0), (6, 0.03, 0.04), (6, 0.0, 0.02)):
        mean, cov = random_prior(rng, n)
        heard = rng.random(n) < 0.5
        fitted = ep.fit(mean, cov, heard, guess, lapse)

        def log_evidence(m: Array, S: Array, heard=heard, guess=guess, lapse=lapse) -> float:
            return ep.fit(m, S, heard, guess, lapse).log_evidence

        by_mean = numeric_gradient(lambda m, S=cov: log_evidence(m, S), mean, 1e-4)
        np.testing.assert_allclose(fitted.grad_mean, by_mean, atol=2e-6)
        for j in range(n):
            for k in range(j + 1):
                move = np.zeros((n, n))
                move[j, k] = move[k, j] = 1e-4
                slope = (log_evidence(mean, cov + move) - log_evidence(mean, cov - move)) / 2e-4
                expected = fitted.grad_cov[j, k] * (1.0 if j == k else 2.0)
                assert expected == pytest.approx(slope, abs=2e-6)


def test_the_latent_form_and_the_dense_form_are_one_model() -> None:
    """EP on (w, h_1 .. h_F) must give what EP on one latent per trial gives."""
    rng = np.random.default_rng(41)
    for lapse in (0.0, 0.03):
        theta = draw_theta(rng)
        n = 25
        phi, i = rng.choice([-1.0, 0.0, 1.0, 1.585, 2.0], n), rng.uniform(-5, 5, n)
        heard = rng.random(n) < norm.cdf(theta[0] + 2.0 * i)
        rows = answers(phi, i, heard)
        S = kernels.covariance(theta, gaps_of(rows.places, rows.places))
        m = np.full(S.shape[0], theta[0])
        m[0] = 0.0
        zeros = np.zeros(n)
        log_Z, b, G, converged = ep.run(
            m, S, np.zeros(n, np.int64), rows.place + 1, rows.intensity, rows.answer, zeros,
            0.0, lapse, zeros.copy(), zeros.copy(), ep.TOLERANCE,
        )  # fmt: skip
        U = rows_to_latent(rows.place, rows.intensity, rows.places.shape[0])
        dense = ep.fit(U @ m, U @ S @ U.T, heard, lapse=lapse)
        assert converged
        assert log_Z == pytest.approx(dense.log_evidence, abs=1e-6)
        np.testing.assert_allclose(U @ (m + S @ b), dense.mean, atol=1e-5)
        np.testing.assert_allclose(U @ (S - S @ G @ S) @ U.T, dense.cov, atol=1e-5)


def test_a_gaussian_row_is_a_gaussian_observation_of_zero() -> None:
    m, S = np.array([1.0, -0.5]), np.array([[1.0, 0.3], [0.3, 2.0]])
    x, variance = 1.5, 0.4
    log_Z, b, G, converged = ep.run(
        m, S, np.zeros(1, np.int64), np.ones(1, np.int64), np.array([x]),
        np.array([ep.GAUSSIAN]), np.array([1.0 / variance]), 0.0, 0.0,
        np.zeros(1), np.zeros(1), ep.TOLERANCE,
    )  # fmt: skip
    u = np.array([x, 1.0])
    f, s = u @ m, u @ S @ u + variance
    assert converged
    assert log_Z == pytest.approx(norm.logpdf(0.0, f, np.sqrt(s)), abs=1e-10)
    np.testing.assert_allclose(m + S @ b, m - S @ u * f / s, atol=1e-10)
    np.testing.assert_allclose(S - S @ G @ S, S - np.outer(S @ u, u @ S) / s, atol=1e-10)


def test_log_ndtr_is_right_in_both_tails() -> None:
    for z in (-300.0, -40.0, -25.1, -24.9, -8.0, -1.0, 0.0, 3.0, 9.0, 40.0):
        assert ep.log_ndtr(z) == pytest.approx(norm.logcdf(z), rel=1e-9, abs=1e-15)


def test_no_answers_give_the_prior_back() -> None:
    fitted = ep.fit([], np.zeros((0, 0)), [])
    assert fitted.log_evidence == 0.0
    assert fitted.converged


@pytest.mark.parametrize(
    ("mean", "cov", "heard", "rates"),
    [
        ([0.0, 0.0], [[1.0]], [True], {}),
        ([0.0], [[1.0]], [True, False], {}),
        ([[0.0]], [[1.0]], [[True]], {}),
        ([np.nan], [[1.0]], [True], {}),
        ([0.0], [[np.inf]], [True], {}),
        ([0.0, 0.0], [[1.0, 0.5], [0.1, 1.0]], [True, False], {}),
        ([0.0], [[1.0]], [2], {}),
        ([0.0], [[1.0]], [0.5], {}),
        ([0.0], [[1.0]], ["yes"], {}),
        ([0.0], [[1.0]], [None], {}),
        ([0.0], [[1.0]], [True], {"guess": 0.51}),
        ([0.0], [[1.0]], [True], {"lapse": -0.01}),
        ([0.0], [[1.0]], [True], {"lapse": float("nan")}),
        ([0.0], [[1.0]], [True], {"guess": "0.1"}),
    ],
)
def test_bad_input_is_refused(mean: list, cov: list, heard: list, rates: dict) -> None:
    with pytest.raises(ValueError, match=r"ep\.fit needs|rate must be"):
        ep.fit(mean, cov, heard, **rates)
