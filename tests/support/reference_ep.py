"""Textbook EP in plain numpy: the yardstick for the jitted one.

GPML Alg. 3.5 with sites in natural parameters, nothing clever: every site update recomputes the
whole posterior, moments are matched as moments (GPML eq. 3.58 with a floor added to the
likelihood), every step is halved, and it runs until the sites stand still. The evidence is Minka's
form: log-partition functions of posterior, prior, cavities and marginals.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Reference:
    log_evidence: float
    mean: Array
    cov: Array
    tau: Array
    nu: Array
    settled: bool


def posterior(mean: Array, cov: Array, tau: Array, nu: Array) -> tuple[Array, Array]:
    """Mean and covariance of prior times Gaussian sites; the prior may be singular."""
    Sigma = np.linalg.solve(np.eye(mean.size) + cov * tau[None, :], cov)
    return mean + Sigma @ (nu - tau * mean), Sigma


def tilted_moments(
    y: float, mu: float, s: float, guess: float, lapse: float
) -> tuple[float, float, float]:
    """log Z, mean and variance of N(mu, s) times floor + (1 - guess - lapse) Phi(y f)."""
    floor, gain = (guess if y > 0 else lapse), 1.0 - guess - lapse
    z = y * mu / np.sqrt(1.0 + s)
    log_Z = float(np.logaddexp(np.log(floor) if floor > 0 else -np.inf,
                               np.log(gain) + norm.logcdf(z)))  # fmt: skip
    ratio = gain * np.exp(norm.logpdf(z) - log_Z)
    mean = mu + y * s * ratio / np.sqrt(1.0 + s)
    variance = s - s**2 * ratio / (1.0 + s) * (z + ratio)
    return log_Z, mean, variance


def log_partition(mu: float, s: float) -> float:
    """log of the integral of exp(-f^2 / 2s + f mu/s), constants dropped: they cancel in pairs."""
    return 0.5 * mu**2 / s + 0.5 * np.log(s)


def reference_ep(
    mean: Array,
    cov: Array,
    heard: NDArray[np.bool_],
    guess: float = 0.0,
    lapse: float = 0.0,
    sweeps: int = 1000,
    tolerance: float = 1e-10,
) -> Reference:
    """EP for P(heard | f) = guess + (1 - guess - lapse) Phi(f), f ~ N(mean, cov)."""
    n = mean.size
    y = np.where(heard, 1.0, -1.0)
    tau, nu = np.zeros(n), np.zeros(n)
    settled = False
    for _ in range(sweeps):
        largest = 0.0
        for k in range(n):
            mu, Sigma = posterior(mean, cov, tau, nu)
            s_cav = 1.0 / (1.0 / Sigma[k, k] - tau[k])
            mu_cav = s_cav * (mu[k] / Sigma[k, k] - nu[k])
            if s_cav <= 0:  # no fixed point is near: nothing a plain loop can do
                return Reference(np.nan, mu, Sigma, tau, nu, settled=False)
            _, m_hat, s_hat = tilted_moments(y[k], mu_cav, s_cav, guess, lapse)
            d_tau = (1.0 / s_hat - 1.0 / s_cav) - tau[k]
            d_nu = (m_hat / s_hat - mu_cav / s_cav) - nu[k]
            tau[k] += 0.5 * d_tau
            nu[k] += 0.5 * d_nu
            largest = max(largest, abs(d_tau), abs(d_nu))
        if largest < tolerance * (1.0 + np.abs(nu).max()):
            settled = True
            break

    mu, Sigma = posterior(mean, cov, tau, nu)
    e = nu - tau * mean
    log_Z = 0.5 * e @ Sigma @ e + nu @ mean - 0.5 * tau @ mean**2
    log_Z -= 0.5 * np.linalg.slogdet(np.eye(n) + cov * tau[None, :])[1]
    for k in range(n):
        s_cav = 1.0 / (1.0 / Sigma[k, k] - tau[k])
        mu_cav = s_cav * (mu[k] / Sigma[k, k] - nu[k])
        log_site, _, _ = tilted_moments(y[k], mu_cav, s_cav, guess, lapse)
        log_Z += log_site + log_partition(mu_cav, s_cav) - log_partition(mu[k], Sigma[k, k])
    return Reference(float(log_Z), mu, Sigma, tau, nu, settled)
