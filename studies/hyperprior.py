"""The hyperprior of theta from audiograms, for derive_norms.py.

Section 2 of the method: a Gaussian over theta = (c, log alpha, log beta, log l). Audiograms teach
the level and shape of the threshold curve (`fit_population`, empirical Bayes), an assumed spread of
the psychometric function supplies the slope (`sample_theta`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FREQUENCIES_HZ = (500, 1000, 2000, 3000, 4000, 6000, 8000)
CENTRE_DB_HL, UNIT_DB = 50.0, 10.0  # i = (level - 50) / 10, method.md section 1
SEED = 20190501
N_SAMPLES = 200_000
THETA = ["c", "log_alpha", "log_beta", "log_l"]

# Manual retests differ by an SD of 6.1 dB (Mahomed 2013, meta-analysis of 29 reports): one reading
# carries 6.1 / sqrt 2, the 5 dB steps included.
THRESHOLD_SD_DB = 4.3
# The learned length l depends on that assumption, so the result shows what others would give.
SENSITIVITY_SD_DB = (2.5, 3.5, 5.5)
SPREAD_MEDIAN_DB = 4.0
SPREAD_LOG_SD = math.log(2.0) / 1.96  # 95 % between 2 and 8 dB
SLOPED_LOG_ALPHA_SD = 0.1

# Limits and number of points of the EM grid; fit_population refuses a grid that cuts off mass.
LOG_B_GRID = (-7.5, 8.5, 40)
LOG_L_GRID = (-4.5, 4.5, 36)
MAX_EDGE_MASS = 1e-4

# Without a floor EM ends at a correlation of -0.99 between m and log b, so that a curve's
# roughness would fix its level to 0.8 dB: more than audiograms in 5 dB steps can support. No
# direction of the Gaussian may be narrower than that reading error; the result says if it acted.
COVARIANCE_FLOOR = 0.25**2
EM_TOLERANCE = 1e-5
EM_MAX_ITERATIONS = 3000


# --- empirical Bayes for the shape of the threshold curve ----------------------------------------


@dataclass(frozen=True)
class PopulationFit:
    """Gaussian over (m, log b, log l) and how EM reached it."""

    mean: Array
    covariance: Array
    log_likelihood: float
    iterations: int
    converged: bool
    floored: bool
    edge_mass: float


@dataclass(frozen=True)
class Likelihood:
    """p(y | m, u) on the grid u = (log b, log l), kept as a Gaussian in m.

    log p(y | m, u) = log_peak - precision (m - centre)^2 / 2, so m needs no grid: its posterior
    given u is Gaussian under a Gaussian prior.
    """

    u: Array  # (grid, 2)
    edge: NDArray[np.bool_]  # (grid,)
    precision: Array  # (grid,)
    centre: Array  # (ears, grid)
    log_peak: Array  # (ears, grid)


def grid_likelihood(curves: Array, octaves: Array, noise_variance: float) -> Likelihood:
    """Likelihood of y ~ N(m 1, b exp(-d^2 / 2 l^2) + v I) over the grid of (log b, log l)."""
    log_b, log_l = np.linspace(*LOG_B_GRID), np.linspace(*LOG_L_GRID)
    n_ears, n_grid = len(curves), len(log_b) * len(log_l)
    centre, log_peak = np.empty((n_ears, n_grid)), np.empty((n_ears, n_grid))
    precision = np.empty(n_grid)
    squared_distance = (octaves[:, None] - octaves[None, :]) ** 2
    for j, length in enumerate(np.exp(log_l)):
        # One eigendecomposition per l serves every b: only the eigenvalues move.
        d, V = np.linalg.eigh(np.exp(-squared_distance / (2 * length**2)))
        d = np.clip(d, 0.0, None)
        z, o = curves @ V, V.sum(axis=0)
        for k, b in enumerate(np.exp(log_b)):
            g = k * len(log_l) + j
            s = b * d + noise_variance
            precision[g] = (o**2 / s).sum()
            centre[:, g] = (z @ (o / s)) / precision[g]
            quadratic = (z**2) @ (1 / s) - precision[g] * centre[:, g] ** 2
            log_peak[:, g] = -0.5 * (np.log(2 * np.pi * s).sum() + quadratic)
    bb, ll = np.meshgrid(log_b, log_l, indexing="ij")
    at_edge = (bb == log_b[0]) | (bb == log_b[-1]) | (ll == log_l[0]) | (ll == log_l[-1])
    u = np.column_stack([bb.ravel(), ll.ravel()])
    return Likelihood(u, at_edge.ravel(), precision, centre, log_peak)


def em_step(like: Likelihood, mean: Array, cov: Array) -> tuple[Array, Array, float, float]:
    """One EM step: new mean and covariance, log likelihood of the old ones, mass at the edge."""
    n_ears, u = len(like.centre), like.u
    Suu_inv = np.linalg.inv(cov[1:, 1:])
    gain = cov[0, 1:] @ Suu_inv
    prior_m = mean[0] + (u - mean[1:]) @ gain
    prior_var = cov[0, 0] - gain @ cov[1:, 0]
    du = u - mean[1:]
    log_prior_u = -0.5 * np.einsum("gi,ij,gj->g", du, Suu_inv, du)
    log_prior_u -= np.log(np.exp(log_prior_u).sum())

    marginal_var = 1 / like.precision + prior_var
    constant = log_prior_u - 0.5 * np.log(like.precision * marginal_var)
    post_var = 1 / (like.precision + 1 / prior_var)
    own = post_var * like.precision  # weight of the ear's own estimate of m

    total_log_likelihood = 0.0
    mass, first, second = np.zeros(len(u)), np.zeros(len(u)), np.zeros(len(u))
    for start in range(0, n_ears, 64):  # blocks small enough to stay in cache
        centre = like.centre[start : start + 64]
        away = centre - prior_m
        log_joint = constant + like.log_peak[start : start + 64]
        log_joint -= 0.5 * away**2 / marginal_var
        top = log_joint.max(axis=1, keepdims=True)
        weight = np.exp(log_joint - top)
        norm = weight.sum(axis=1, keepdims=True)
        weight /= norm
        total_log_likelihood += float((top + np.log(norm)).sum())
        post_m = prior_m + own * away
        mass += weight.sum(axis=0)
        weight *= post_m
        first += weight.sum(axis=0)
        weight *= post_m
        second += weight.sum(axis=0)
    second += mass * post_var

    new_mean = np.concatenate([[first.sum()], mass @ u]) / n_ears
    moment = np.empty((3, 3))
    moment[0, 0] = second.sum()
    moment[0, 1:] = moment[1:, 0] = first @ u
    moment[1:, 1:] = (u * mass[:, None]).T @ u
    new_cov = moment / n_ears - np.outer(new_mean, new_mean)
    edge_mass = float(mass[like.edge].sum() / n_ears)
    return new_mean, new_cov, total_log_likelihood, edge_mass


def fit_population(thresholds: Array, threshold_sd_db: float = THRESHOLD_SD_DB) -> PopulationFit:
    """Learn the Gaussian over (m, log b, log l) of the curves -T(phi) by EM."""
    octaves = np.log2(np.array(FREQUENCIES_HZ) / 1000.0)
    curves = (CENTRE_DB_HL - thresholds) / UNIT_DB
    like = grid_likelihood(curves, octaves, (threshold_sd_db / UNIT_DB) ** 2)
    within = float(curves.var(axis=1).mean())
    mean = np.array([curves.mean(), math.log(within), 0.0])
    cov = np.diag([curves.mean(axis=1).var(), 1.0, 0.5])
    floored, converged, iteration = False, False, 0
    while not converged and iteration < EM_MAX_ITERATIONS:
        iteration += 1
        new_mean, new_cov, log_likelihood, edge_mass = em_step(like, mean, cov)
        eigenvalues, V = np.linalg.eigh(new_cov)
        floored = bool(eigenvalues[0] < COVARIANCE_FLOOR)
        if floored:
            new_cov = (V * np.maximum(eigenvalues, COVARIANCE_FLOOR)) @ V.T
        change = max(abs(new_mean - mean).max(), abs(new_cov - cov).max())
        mean, cov = new_mean, new_cov
        converged = bool(change < EM_TOLERANCE)
    if edge_mass > MAX_EDGE_MASS:
        raise ValueError(
            f"{edge_mass:.2g} of the posterior mass is at the edge of the grid (at most "
            f"{MAX_EDGE_MASS:g} allowed): widen LOG_B_GRID or LOG_L_GRID"
        )
    return PopulationFit(mean, cov, log_likelihood, iteration, converged, floored, edge_mass)


# --- hyperpriors ---------------------------------------------------------------------------------


def skewness(x: Array) -> Array:
    """Skewness of each column."""
    centred = x - x.mean(axis=0)
    return np.asarray((centred**3).mean(axis=0) / (centred**2).mean(axis=0) ** 1.5)


def sample_theta(fit: PopulationFit) -> Array:
    """Draws of theta: an ear's curve times an assumed slope.

    The field is f = w (i - T(phi)): the curve -T with constant m and variance b, times w. Hence
    c = w m, alpha = w^2, beta = w^2 b.
    """
    rng = np.random.default_rng([SEED, 1])  # the same draws for every fit that is compared
    m, log_b, log_l = rng.multivariate_normal(fit.mean, fit.covariance, N_SAMPLES).T
    log_w = math.log(UNIT_DB / SPREAD_MEDIAN_DB) + SPREAD_LOG_SD * rng.standard_normal(N_SAMPLES)
    return np.column_stack([np.exp(log_w) * m, 2 * log_w, 2 * log_w + log_b, log_l])


def describe(fit: PopulationFit) -> dict[str, Any]:
    """The fit of the curves as plain entries."""
    return {
        "parameters": ["m", "log_b", "log_l"],
        "mean": fit.mean,
        "covariance": fit.covariance,
        "log_likelihood": fit.log_likelihood,
        "em_iterations": fit.iterations,
        "em_converged": fit.converged,
        "covariance_floor": COVARIANCE_FLOOR,
        "covariance_floored": fit.floored,
        "grid_edge_mass": fit.edge_mass,
    }


def sensitivity(thresholds: Array) -> list[dict[str, Any]]:
    """The hyperprior under other assumptions about the noise of a threshold."""
    entries = []
    for sd in SENSITIVITY_SD_DB:
        fit = fit_population(thresholds, sd)
        theta = sample_theta(fit)
        entries.append(
            {
                "threshold_noise_sd_db": sd,
                "mean": theta.mean(axis=0),
                "covariance": np.cov(theta.T),
                "curve": describe(fit),
            }
        )
    return entries


def hyperprior(thresholds: Array, source: str, split: str) -> dict[str, Any]:
    """The Gaussian over theta by moments, for a slope w ~ N(0, alpha).

    `source` and `split` say whose thresholds they are, for the record.
    """
    fit = fit_population(thresholds)
    theta = sample_theta(fit)
    return {
        "source": f"{source}; spread of the psychometric function assumed",
        "derivation": f"{split} Each curve (50 - threshold) / 10 is m + GP(0, b exp(-d^2 / 2 l^2)) "
        "+ noise; a Gaussian over (m, log b, log l) was learned by EM, sampled with w = 10 / "
        "spread, turned into c = w m, log_alpha = 2 log w, log_beta = 2 log w + log b, log_l, and "
        "fitted by moments (c is not Gaussian: see skewness).",
        "n": len(thresholds),
        "n_samples": N_SAMPLES,
        "parameters": THETA,
        "units": "latent units; level in 10 dB re 50 dB HL; l in octaves",
        "slope_mean": 0.0,
        "mean": theta.mean(axis=0),
        "covariance": np.cov(theta.T),
        "skewness": skewness(theta),
        "spread": {
            "median_db": SPREAD_MEDIAN_DB,
            "log_sd": SPREAD_LOG_SD,
            "note": "Assumption, not data: SD in dB of a cumulative Gaussian, log-normal, 95 % "
            "between 2 and 8 dB, independent of the audiogram, which has no trials to learn from.",
        },
        "threshold_noise_sd_db": THRESHOLD_SD_DB,
        "threshold_noise_note": "6.1 / sqrt 2: SD of manual retest differences, Mahomed 2013.",
        "curve": describe(fit),
        "sensitivity": sensitivity(thresholds),
    }


def hyperprior_sloped(plain: dict[str, Any]) -> dict[str, Any]:
    """The same for a slope with a positive mean, w ~ N(slope_mean, alpha)."""
    # Moments of the log-normal w = 10 / spread in closed form.
    w0 = UNIT_DB / SPREAD_MEDIAN_DB * math.exp(SPREAD_LOG_SD**2 / 2)
    variance_w = w0**2 * math.expm1(SPREAD_LOG_SD**2)
    # c = w0 m and beta = w0^2 b: with w apart from them, the spread of w must not enter twice.
    curve = plain["curve"]
    rest = [0, 2, 3]
    scale = np.array([w0, 1.0, 1.0])
    mean, covariance = np.empty(4), np.zeros((4, 4))
    mean[rest] = scale * curve["mean"] + np.array([0.0, 2.0 * math.log(w0), 0.0])
    mean[1] = math.log(variance_w)
    covariance[np.ix_(rest, rest)] = curve["covariance"] * np.outer(scale, scale)
    covariance[1, 1] = SLOPED_LOG_ALPHA_SD**2
    return {
        "source": plain["source"],
        "derivation": "As hyperprior, for w ~ N(slope_mean, alpha) with slope_mean = E[w] and "
        "log_alpha ~ N(log Var[w], 0.1^2) independent of the rest; c = slope_mean m and "
        "beta = slope_mean^2 b for the learned (m, b).",
        "n": plain["n"],
        "n_samples": plain["n_samples"],
        "parameters": THETA,
        "units": plain["units"],
        "slope_mean": w0,
        "mean": mean,
        "covariance": covariance,
    }
