"""A psychometric field fitted to trials (method.md, sections 2 and 5).

One piece of mathematics serves the first exam, the paper's M_f and its M_g: a field whose answers
are explained by EP, optionally tied by a correlation rho to a reference field that was fitted
before. Conditioning on the reference once leaves, for the new latent vector,

    mean  c_g + rho C' b_f          covariance  K_g - rho^2 C' G_f C,

with C the cross-covariance at rho = 1 and (b_f, G_f) what EP kept of the old exam. rho = 0 (or no
reference) is a field on its own; rho = 1 with the reference's own theta is "nothing changed".

Hyperparameters are MAP under a Gaussian hyperprior. The optimiser works in coordinates in which
that hyperprior is a standard normal and starts at points fixed by the trials alone. It is written
here because a call into a general optimiser costs more than the whole fit of a screen's step does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri_exp

from earshift.engine import ep, kernels
from earshift.engine.audiogram import Audiogram
from earshift.engine.domain import Domain
from earshift.engine.norms import Hyperprior, Norm, hyperprior
from earshift.engine.tone import Tone

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

SEARCH_TOLERANCE = 1e-5  # EP, while the hyperparameters are still moving
GRADIENT_TOLERANCE = 2e-4  # in the hyperprior's standard deviations
MAX_STEPS = 60


@dataclass(frozen=True)
class Answers:
    """Trials in model units: the distinct places, and for each answer its place and intensity."""

    places: Array  # (F, P)
    place: Ints  # (n,) index into places; a left ear beside a right one counts on from F
    intensity: Array  # (n,)
    answer: Ints  # (n,) ep.HEARD, ep.MISSED or ep.GAUSSIAN
    gauss_tau: Array  # (n,) precision of the Gaussian rows

    @property
    def count(self) -> int:
        return int(self.answer.size)

    @classmethod
    def of(
        cls,
        places: Sequence[tuple[float, ...]],
        intensities: Sequence[float],
        answers: Sequence[int],
        axes: int,
        gauss_tau: Sequence[float] | None = None,
    ) -> "Answers":
        """Collect rows; equal places share one latent."""
        rows = np.array(places, dtype=float).reshape(len(places), axes)
        distinct, index = np.unique(rows, axis=0, return_inverse=True)
        return cls(
            places=distinct,
            place=index.reshape(-1).astype(np.int64),
            intensity=np.array(intensities, dtype=float),
            answer=np.array(answers, dtype=np.int64),
            gauss_tau=np.zeros(len(answers))
            if gauss_tau is None
            else np.array(gauss_tau, dtype=float),
        )


@njit(cache=True, nogil=True, error_model="numpy")
def conditioned_prior(theta, rho, slope_mean, theta_f, b_f, G_f, gaps_ref, gaps):
    """Prior of the latent vector given the reference: mean, covariance, K, C and G_f C."""
    K = kernels.covariance(theta, gaps)
    d = K.shape[0]
    m = np.full(d, theta[0])
    m[0] = slope_mean
    if b_f.size == 0 or rho == 0.0:
        empty = np.zeros((0, d))
        return m, K, K, empty, empty
    link = kernels.cross(theta_f, theta, gaps_ref)
    T = ep.product(G_f, link)
    S = K.copy()
    for r in range(b_f.size):
        for j in range(d):
            h = rho * link[r, j]
            m[j] += h * b_f[r]
            h *= rho
            for k in range(d):
                S[j, k] -= h * T[r, k]
    return m, S, K, link, T


@njit(cache=True, nogil=True, error_model="numpy")
def run_ears_apart(m, K, ia, ib, x, y, gauss_tau, guess, lapse, tau, nu, tol):
    """`ep.run` for two ears that have nothing to do with each other: two small ones, put together.

    m and K are one ear's; ia and ib are entries of both ears' latent vector.
    """
    one = m.size
    b = np.zeros(2 * one)
    G = np.zeros((2 * one, 2 * one))
    log_Z, ok = 0.0, True
    for start in (0, one):
        rows = np.flatnonzero(ia == start)
        own_tau, own_nu = tau[rows], nu[rows]
        value, own_b, own_G, settled = ep.run(
            m, K, ia[rows] - start, ib[rows] - start, x[rows], y[rows], gauss_tau[rows],
            guess, lapse, own_tau, own_nu, tol,
        )  # fmt: skip
        tau[rows] = own_tau
        nu[rows] = own_nu
        b[start : start + one] = own_b
        G[start : start + one, start : start + one] = own_G
        log_Z += value
        ok &= settled
    return log_Z, b, G, ok


@njit(cache=True, nogil=True, error_model="numpy")
def evidence(theta, rho, slope_mean, theta_f, b_f, G_f, gaps_ref, gaps,
             place, x, y, gauss_tau, guess, lapse, tau, nu, tol):  # fmt: skip
    """log p(answers | theta, rho, reference) and its gradient in theta, with EP's b and G.

    With answers of a second ear (see `Answers.place`) there is no reference: rho is then the
    correlation between the ears, and the latent vector is the right ear's, then the left one's.
    """
    m, S, K, link, T = conditioned_prior(theta, rho, slope_mean, theta_f, b_f, G_f, gaps_ref, gaps)
    one = m.size
    ia = np.zeros(x.size, np.int64)
    ib = place + 1
    for n in range(x.size):
        if ib[n] >= one:
            ia[n] = one
            ib[n] += 1
    paired = ia.size > 0 and ia.max() > 0
    if paired and rho == 0.0:
        log_Z, b, G, ok = run_ears_apart(m, K, ia, ib, x, y, gauss_tau, guess, lapse, tau, nu, tol)
    else:
        if paired:
            m = np.concatenate((m, m))
            S = kernels.both_ears(K, rho)
        log_Z, b, G, ok = ep.run(m, S, ia, ib, x, y, gauss_tau, guess, lapse, tau, nu, tol)
    d = b.size
    Q = np.empty((d, d))
    grad = np.zeros(theta.size)
    for j in range(d):
        for k in range(d):
            Q[j, k] = 0.5 * (b[j] * b[k] - G[j, k])
        if j % one > 0:
            grad[0] += b[j]
    if paired:
        Q = kernels.fold_ears(Q, rho)
    kernels.covariance_gradient(theta, gaps, K, Q, grad)
    if link.shape[0] > 0:
        R = ep.product(T, Q)
        for j in range(b_f.size):
            for k in range(d):
                R[j, k] = rho * (b_f[j] * b[k] - 2.0 * rho * R[j, k])
        kernels.cross_gradient(theta_f, theta, gaps_ref, link, R, grad)
    return log_Z, grad, b, G, ok


@njit(cache=True, nogil=True, error_model="numpy")
def log_posterior(u, rhos, centre, chol, slope_mean, theta_f, b_f, G_f, gaps_ref, gaps,
                  place, x, y, gauss_tau, guess, lapse, tau, nu, tol):  # fmt: skip
    """log [mean_j p(answers | theta, rho_j)] - |u|^2 / 2 at theta = centre + chol u, with gradient.

    The normalisation of the hyperprior is left out: it is the same for all theta.
    """
    size = u.size
    theta = at(centre, chol, u)
    n_rho = rhos.size
    log_Z = np.empty(n_rho)
    grads = np.empty((n_rho, size))
    top = -np.inf
    for j in range(n_rho):
        value, slope, _, _, ok = evidence(
            theta, rhos[j], slope_mean, theta_f, b_f, G_f, gaps_ref, gaps,
            place, x, y, gauss_tau, guess, lapse, tau[j], nu[j], tol,
        )  # fmt: skip
        log_Z[j] = value if ok else -np.inf
        top = max(top, log_Z[j])
        for p in range(size):
            grads[j, p] = slope[p]
    grad = np.zeros(size)
    if top == -np.inf:
        return -np.inf, grad
    total = 0.0
    for j in range(n_rho):
        total += math.exp(log_Z[j] - top)
    value = top + math.log(total / n_rho)
    for p in range(size):
        value -= 0.5 * u[p] * u[p]
        grad[p] = -u[p]
        for q in range(p, size):  # chol is lower triangular
            for j in range(n_rho):
                if log_Z[j] > -np.inf:
                    grad[p] += chol[q, p] * grads[j, q] * math.exp(log_Z[j] - top) / total
    return value, grad


@njit(cache=True, nogil=True, error_model="numpy")
def maximise(u, H, rhos, centre, chol, slope_mean, theta_f, b_f, G_f, gaps_ref, gaps,
             place, x, y, gauss_tau, guess, lapse, tau, nu):  # fmt: skip
    """BFGS ascent of `log_posterior` from u with inverse Hessian H; both are changed in place.

    Returns whether the gradient vanished. EP sites are carried from step to step.
    """
    size = u.size
    trial = u.copy()
    step = np.zeros(size)
    grad = np.zeros(size)
    fall = np.zeros(size)
    value, scale, rise = -np.inf, 0.0, 0.0
    steps, shrinks = 0, 0
    while True:
        new_value, new_grad = log_posterior(
            trial, rhos, centre, chol, slope_mean, theta_f, b_f, G_f, gaps_ref, gaps,
            place, x, y, gauss_tau, guess, lapse, tau, nu, SEARCH_TOLERANCE,
        )  # fmt: skip
        if steps == 0 and new_value == -np.inf:
            return False
        # The small allowance is EP's own tolerance: below it a rise cannot be seen.
        if not new_value >= value + 1e-4 * scale * rise - 1e-7:
            shrinks += 1
            if shrinks == 25:
                return largest(grad) < 100.0 * GRADIENT_TOLERANCE
            scale *= 0.4
            for p in range(size):
                trial[p] = u[p] + scale * step[p]
            continue
        if steps > 0:
            for p in range(size):
                fall[p] = grad[p] - new_grad[p]
                step[p] *= scale
            bfgs(H, step, fall)
        for p in range(size):
            u[p] = trial[p]
            grad[p] = new_grad[p]
        value = new_value
        if largest(grad) < GRADIENT_TOLERANCE:
            return True
        steps += 1
        if steps > MAX_STEPS:
            return False
        rise = along(H, grad, step)
        if not rise > 0.0:
            H[:, :] = 0.0
            for p in range(size):
                H[p, p] = 1.0
            rise = along(H, grad, step)
        # No more than two prior SDs at once: far outside, the evidence is flat and misleading.
        length = 0.0
        for p in range(size):
            length += step[p] * step[p]
        scale = min(1.0, 2.0 / math.sqrt(length))
        shrinks = 0
        for p in range(size):
            trial[p] = u[p] + scale * step[p]


@njit(cache=True, nogil=True, error_model="numpy")
def at(centre, chol, u):
    """theta = centre + chol u."""
    theta = centre.copy()
    for p in range(u.size):
        for q in range(p + 1):
            theta[p] += chol[p, q] * u[q]
    return theta


@njit(cache=True, nogil=True, error_model="numpy")
def largest(v):
    """The largest absolute entry."""
    out = 0.0
    for p in range(v.size):
        out = max(out, abs(v[p]))
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def along(H, grad, step):
    """Write the step H grad and return the rise per unit of it, grad' H grad."""
    rise = 0.0
    for p in range(grad.size):
        step[p] = 0.0
        for q in range(grad.size):
            step[p] += H[p, q] * grad[q]
        rise += grad[p] * step[p]
    return rise


@njit(cache=True, nogil=True, error_model="numpy")
def bfgs(H, s, q):
    """Update the inverse Hessian for a step s over which the gradient fell by q."""
    size = s.size
    Hq = np.zeros(size)
    curve = 0.0
    bend = 0.0
    for p in range(size):
        for r in range(size):
            Hq[p] += H[p, r] * q[r]
        curve += s[p] * q[p]
        bend += q[p] * Hq[p]
    if curve > 1e-12:
        for p in range(size):
            for r in range(size):
                H[p, r] += (1.0 + bend / curve) * s[p] * s[r] / curve
                H[p, r] -= (Hq[p] * s[r] + s[p] * Hq[r]) / curve


@njit(cache=True, nogil=True, error_model="numpy")
def latent_grid(theta, rho, slope_mean, theta_f, b_f, G_f, gaps_ref_grid, gaps_ref_used,
                gaps_grid_used, b, G):  # fmt: skip
    """Posterior of (w, h_k) on the grid places: means, Var w, Cov(w, h_k), Var h_k.

    The field's mean is a line and its variance a parabola in intensity at every place, so these
    numbers are the whole prediction on the tone grid.
    """
    K = kernels.cross(theta, theta, gaps_grid_used)
    d, used = K.shape
    alpha = math.exp(theta[kernels.LOG_ALPHA])
    beta = math.exp(theta[kernels.LOG_BETA])
    mean = np.full(d, theta[0])
    mean[0] = slope_mean
    cov_w = np.zeros(d)  # Cov(w, .)
    var = np.full(d, beta)
    var[0] = alpha
    cov_w[0] = alpha
    if b_f.size > 0 and rho != 0.0:
        link = kernels.cross(theta_f, theta, gaps_ref_grid)
        link_used = kernels.cross(theta_f, theta, gaps_ref_used)
        T = ep.product(G_f, link)
        for r in range(b_f.size):
            for k in range(d):
                mean[k] += rho * link[r, k] * b_f[r]
                h = rho * rho * T[r, k]
                var[k] -= h * link[r, k]
                cov_w[k] -= h * link[r, 0]
                for j in range(used):
                    K[k, j] -= h * link_used[r, j]
    KG = ep.product(K, G)
    for k in range(d):
        for j in range(used):
            mean[k] += K[k, j] * b[j]
            var[k] -= KG[k, j] * K[k, j]
            cov_w[k] -= KG[0, j] * K[k, j]
    return mean, cov_w, var


@njit(cache=True, nogil=True, error_model="numpy")
def moments_on_grid(mean, cov_w, var, intensity):
    """Mean and variance of f on places x intensities."""
    n_places, n_levels = mean.size - 1, intensity.size
    mu = np.empty((n_places, n_levels))
    s = np.empty((n_places, n_levels))
    for k in range(n_places):
        for j in range(n_levels):
            i = intensity[j]
            mu[k, j] = i * mean[0] + mean[k + 1]
            v = i * i * var[0] + 2.0 * i * cov_w[k + 1] + var[k + 1]
            s[k, j] = max(v, 0.0)
    return mu, s


@njit(cache=True, nogil=True, error_model="numpy")
def add_p_heard(mu, s, guess, lapse, weight, out):
    """Add weight * P(heard) for Gaussian latents to out."""
    gain = 1.0 - guess - lapse
    for k in range(mu.shape[0]):
        for j in range(mu.shape[1]):
            z = mu[k, j] / math.sqrt(2.0 * (1.0 + s[k, j]))
            out[k, j] += weight * (guess + gain * 0.5 * math.erfc(-z))


@njit(cache=True, nogil=True, error_model="numpy")
def mixed_ears(weights, rhos, bs, Gs):
    """b and G of the right and the left ear's field, the correlations averaged.

    At one correlation, with e the ear and o the other, b = b_e + rho b_o and
    G = G_ee + rho (G_eo + G_oe) + rho^2 G_oo.
    """
    one = bs.shape[1] // 2
    mean = np.zeros((2, one))
    out = np.zeros((2, one, one))
    for ear in range(2):
        e, o = ear * one, (1 - ear) * one
        for j in range(weights.size):
            for p in range(one):
                mean[ear, p] += weights[j] * (bs[j, e + p] + rhos[j] * bs[j, o + p])
        for j in range(weights.size):
            v, rho = weights[j], rhos[j]
            for p in range(one):
                apart = v * (bs[j, e + p] + rho * bs[j, o + p] - mean[ear, p])
                for q in range(one):
                    across = Gs[j, e + p, o + q] + Gs[j, o + p, e + q]
                    G = Gs[j, e + p, e + q] + rho * (across + rho * Gs[j, o + p, o + q])
                    gap = bs[j, e + q] + rho * bs[j, o + q] - mean[ear, q]
                    out[ear, p, q] += v * G - apart * gap
    return mean, out


NO_REFERENCE_B = np.zeros(0)
NO_REFERENCE_G = np.zeros((0, 0))


@dataclass(frozen=True)
class Field:
    """What a fit keeps: hyperparameters, and EP's (b, G) on the places that were played.

    Immutable, and enough to condition any later exam on this one.
    """

    theta: Array
    slope_mean: float
    places: Array
    b: Array
    G: Array
    log_evidence: float
    converged: bool
    guess: float
    lapse: float

    def latent(self, places: Array) -> tuple[Array, Array]:
        """Posterior mean and covariance of (w, h) at any places."""
        gaps = kernels.squared_gaps(places, self.places)
        link = kernels.cross(self.theta, self.theta, gaps)
        prior = kernels.covariance(self.theta, kernels.squared_gaps(places, places))
        mean = np.full(places.shape[0] + 1, self.theta[0])
        mean[0] = self.slope_mean
        return mean + link @ self.b, prior - link @ self.G @ link.T

    def moments(self, places: Array, intensity: Array) -> tuple[Array, Array]:
        """Mean and variance of f on places x intensities."""
        mean, cov = self.latent(places)
        return moments_on_grid(mean, cov[0].copy(), np.diag(cov).copy(), intensity)

    def p_heard(self, places: Array, intensity: Array) -> Array:
        """P(heard) on places x intensities."""
        mu, s = self.moments(places, intensity)
        out = np.zeros(mu.shape)
        add_p_heard(mu, s, self.guess, self.lapse, 1.0, out)
        return out

    @cached_property
    def slope_sure(self) -> float:
        """Posterior probability that loudness helps: P(w > 0)."""
        mean, cov = self.latent(self.places[:1])
        return 0.5 * math.erfc(-mean[0] / math.sqrt(2.0 * max(cov[0, 0], 1e-300)))


def fit(answers: Answers, prior: Hyperprior, guess: float = 0.0, lapse: float = 0.0) -> Field:
    """MAP fit of a field of its own (the first exam; M_f's hyperparameters)."""
    with ep.compiling("exam"):
        return _fit(answers, prior, guess, lapse)


@dataclass(frozen=True)
class Fitted:
    """MAP hyperparameters of some answers, and the EP sites to start from at any correlation."""

    answers: Answers
    prior: Hyperprior
    guess: float
    lapse: float
    theta: Array
    gaps: Array
    tau: Array
    nu: Array
    settled: bool

    def at(self, rho: float, tolerance: float = ep.TOLERANCE) -> tuple[float, Array, Array, bool]:
        """log evidence, EP's b and G, and whether it settled, at this correlation between ears."""
        answers = self.answers
        tau, nu = self.tau.copy(), self.nu.copy()
        log_Z, _, b, G, ok = evidence(
            self.theta, rho, self.prior.slope_mean, self.theta, NO_REFERENCE_B, NO_REFERENCE_G,
            _no_gaps(answers), self.gaps, answers.place, answers.intensity, answers.answer,
            answers.gauss_tau, self.guess, self.lapse, tau, nu, tolerance,
        )  # fmt: skip
        return float(log_Z), b, G, bool(ok)


def _no_gaps(answers: Answers) -> Array:
    """The gaps to a reference that is not there."""
    places, axes = answers.places.shape
    return np.zeros((axes, 0, places))


def fit_theta(
    answers: Answers, prior: Hyperprior, guess: float, lapse: float, rho: float = 0.0
) -> Fitted:
    """MAP hyperparameters; rho is the correlation between two ears, if there are two.

    Ears that are taken apart cost little: the search for a correlation begins where theirs ended.
    """
    centre, chol = prior.whitened(answers.places.shape[1])
    gaps = kernels.squared_gaps(answers.places, answers.places)
    n = answers.count
    u, H = np.zeros(centre.size), np.eye(centre.size)
    tau, nu = np.zeros((1, n)), np.zeros((1, n))
    settled = True
    for step in (0.0, rho) if n > 0 and rho != 0.0 else (rho,) * (n > 0):
        settled = maximise(
            u, H, np.array([step]), centre, chol, prior.slope_mean,
            centre, NO_REFERENCE_B, NO_REFERENCE_G, _no_gaps(answers), gaps,
            answers.place, answers.intensity, answers.answer, answers.gauss_tau,
            guess, lapse, tau, nu,
        )  # fmt: skip
    return Fitted(
        answers, prior, guess, lapse, at(centre, chol, u), gaps, tau[0], nu[0], bool(settled)
    )


def _fit(answers: Answers, prior: Hyperprior, guess: float, lapse: float) -> Field:
    fitted = fit_theta(answers, prior, guess, lapse)
    log_Z, b, G, ok = fitted.at(0.0)
    return Field(
        theta=fitted.theta,
        slope_mean=prior.slope_mean,
        places=answers.places,
        b=b,
        G=G,
        log_evidence=log_Z,
        converged=fitted.settled and ok,
        guess=guess,
        lapse=lapse,
    )


def from_audiogram(
    audiogram: Audiogram, domain: Domain, guess: float = 0.0, lapse: float = 0.0
) -> Field:
    """The field that an audiogram implies (method.md, section 7).

    A threshold T with SD s is a Gaussian observation of f(T) = 0 with SD w0 s; "no response" is a
    missed tone at the loudest level tried. Thresholds say nothing about the slope: it is held at
    its prior mean w0 while they are smoothed, and gets its prior spread back afterwards.
    """
    prior = hyperprior(sloped=True)
    known_slope = (prior.mean[kernels.C], math.log(1e-6), *prior.mean[kernels.LOG_BETA :])
    sd = prior.slope_mean * audiogram.sd_db / domain.intensity.scale
    rows = [
        (Tone(f, level - audiogram.method_offset_db), ep.GAUSSIAN)
        for f, level in audiogram.thresholds_db_hl.items()
    ]
    rows += [(Tone(f, level), ep.MISSED) for f, level in audiogram.no_response_db_hl.items()]
    answers = Answers.of(
        places=[domain.place_of(tone) for tone, _ in rows],
        intensities=[domain.intensity_of(tone) for tone, _ in rows],
        answers=[answer for _, answer in rows],
        axes=len(domain.smooth),
        gauss_tau=[1.0 / sd**2] * len(rows),
    )
    smooth = fit(answers, replace(prior, mean=known_slope), guess, lapse)
    mean, cov = smooth.latent(answers.places)
    theta = smooth.theta.copy()
    theta[kernels.LOG_ALPHA] = prior.mean[kernels.LOG_ALPHA]
    w0 = prior.slope_mean
    return _from_thresholds(
        answers.places, -mean[1:] / w0, cov[1:, 1:] / w0**2, theta, smooth.converged, guess, lapse
    )


def from_norm(norm: Norm, domain: Domain, guess: float = 0.0, lapse: float = 0.0) -> Field:
    """The field of an unknown member of a population: thresholds are the norm's own."""
    tones = [Tone(f, level) for f, level in zip(norm.frequencies_hz, norm.mean_db_hl, strict=True)]
    places = np.array([domain.place_of(tone) for tone in tones])
    T = np.array([domain.intensity_of(tone) for tone in tones])
    P = np.array(norm.cov_db2) / domain.intensity.scale**2
    return _from_thresholds(
        places, T, P, np.array(hyperprior(sloped=True).mean), True, guess, lapse
    )


def _from_thresholds(
    places: Array, T: Array, P: Array, theta: Array, converged: bool, guess: float, lapse: float
) -> Field:
    """A field whose thresholds are N(T, P) at the places, whatever its slope.

    With slope w apart from the thresholds, h = -w T; (b, G) are solved so that the posterior has
    exactly the moments of (w, h).
    """
    w0, var_w = hyperprior(sloped=True).slope_mean, math.exp(theta[kernels.LOG_ALPHA])
    mean = np.concatenate([[w0], -w0 * T])
    cov = np.empty((T.size + 1, T.size + 1))
    cov[0, 0] = var_w
    cov[0, 1:] = cov[1:, 0] = -var_w * T
    cov[1:, 1:] = (w0**2 + var_w) * P + var_w * np.outer(T, T)
    S = kernels.covariance(theta, kernels.squared_gaps(places, places))
    S[np.diag_indices_from(S)] *= 1.0 + 1e-9  # close frequencies make S nearly singular
    inverse = np.linalg.inv(S)
    before = np.full(T.size + 1, theta[kernels.C])
    before[0] = w0
    G = inverse - inverse @ cov @ inverse
    return Field(
        theta=theta,
        slope_mean=w0,
        places=places,
        b=inverse @ (mean - before),
        G=0.5 * (G + G.T),
        log_evidence=0.0,
        converged=converged,
        guess=guess,
        lapse=lapse,
    )


@dataclass(frozen=True)
class Threshold:
    """Where a tone is heard half the time (P = 50 % of the audible range, f = 0).

    `censored` is "below" or "above" when the estimate lies outside the domain's levels; the numbers
    are then cut to its edge. `cross_hearing`, in an exam of both ears, says that the other ear
    might hear a tone of this level, so that finding the threshold would need masking.
    """

    frequency_hz: float
    level_db_hl: float
    low_db_hl: float
    high_db_hl: float
    censored: str | None = None
    cross_hearing: bool = False


@dataclass(frozen=True)
class PlaceThreshold:
    """A threshold on other axes than a tone's: its place by the axes' names, its level in the
    intensity's unit. `censored` as for a tone's.
    """

    place: tuple[tuple[str, float], ...]
    level: float
    low: float
    high: float
    censored: str | None = None


def positive_slope_samples(
    mean: Array, cov: Array, slopes: Sequence[int], count: int, rng: np.random.Generator
) -> Array:
    """Draws of a latent vector whose slope entries are all positive.

    The slopes come first from their joint Gaussian cut at zero (by its conditionals, so that even
    a posterior that doubts the slope gives draws), the rest given them.
    """
    order = [*slopes, *(k for k in range(mean.size) if k not in set(slopes))]
    m, S = mean[order], cov[np.ix_(order, order)]
    # A posterior may be singular (old and new ear the same) and, by rounding, slightly less.
    values, vectors = np.linalg.eigh(0.5 * (S + S.T))
    values = np.maximum(values, 1e-10 * max(values[-1], 1e-10))
    L = np.linalg.cholesky((vectors * values) @ vectors.T)
    noise = rng.standard_normal((count, mean.size))
    uniform = rng.random((count, len(slopes)))
    for k in range(len(slopes)):
        # noise_k must exceed -(what is fixed so far) / L_kk: sample the upper tail by its log mass.
        fixed = m[k] + noise[:, :k] @ L[k, :k]
        log_mass = log_ndtr(fixed / L[k, k])
        noise[:, k] = -ndtri_exp(np.log1p(-uniform[:, k]) + log_mass)
    draws = np.empty((count, mean.size))
    draws[:, order] = m + noise @ L.T
    draws[:, list(slopes)] = np.maximum(draws[:, list(slopes)], 1e-9)
    return draws
