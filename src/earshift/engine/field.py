"""A psychometric field fitted to trials (method.md, sections 2 and 5).

`Field` is what a fit keeps of an exam: enough to predict any tone, and to condition any later exam
on this one. Fields come from trials (`fit`), from an audiogram or from a population's norm.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from earshift.engine import ep, kernels
from earshift.engine.answers import Answers
from earshift.engine.audiogram import Audiogram
from earshift.engine.compiled import compiled, compiling, inlined
from earshift.engine.domain import Domain
from earshift.engine.evidence import Rates, Reference, Sites, no_reference
from earshift.engine.norms import Hyperprior, Norm, hyperprior
from earshift.engine.optimise import at, evidence_at, maximise
from earshift.engine.thresholds import threshold
from earshift.engine.tone import Tone

Array = NDArray[np.float64]


class GridGaps(NamedTuple):
    """Squared gaps, axis by axis, from the grid that is predicted to the reference's places and to
    those of the answers.
    """

    from_reference: Array
    to_answers: Array


@inlined
def latent_grid(theta, rho, reference, grid, b, G):
    """Posterior of (w, h_k) on the grid places: means, Cov(w, .), variances.

    The field's mean is a line and its variance a parabola in intensity at every place, so these
    numbers are the whole prediction on the tone grid.
    """
    K = kernels.cross(theta, theta, grid.to_answers)
    d, used = K.shape
    alpha = math.exp(theta[kernels.LOG_ALPHA])
    beta = math.exp(theta[kernels.LOG_BETA])
    mean = np.full(d, theta[0])
    mean[0] = reference.slope_mean
    cov_w = np.zeros(d)  # Cov(w, .)
    var = np.full(d, beta)
    var[0] = alpha
    cov_w[0] = alpha
    b_f = reference.b
    if b_f.size > 0 and rho != 0.0:
        link = kernels.cross(reference.theta, theta, grid.from_reference)
        link_used = kernels.cross(reference.theta, theta, reference.gaps)
        T = ep.product(reference.G, link)
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


@compiled
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


@compiled
def add_p_heard(mu, s, guess, lapse, weight, out):
    """Add weight * P(heard) for Gaussian latents to out."""
    gain = 1.0 - guess - lapse
    for k in range(mu.shape[0]):
        for j in range(mu.shape[1]):
            z = mu[k, j] / math.sqrt(2.0 * (1.0 + s[k, j]))
            out[k, j] += weight * (guess + gain * 0.5 * math.erfc(-z))


def conditioned(mean: Array, cov: Array, link: Array, b: Array, G: Array) -> tuple[Array, Array]:
    """Posterior mean m + C b and covariance S - C G C' of latents with cross-covariance C (`link`)
    to those that EP's (b, G) speak of.
    """
    # Own loops and no BLAS: the next tone must not depend on which one a machine has.
    shift = ep.product(link, b.reshape(-1, 1))[:, 0]
    return mean + shift, cov - ep.product(ep.product(link, G), np.ascontiguousarray(link.T))


@dataclass(frozen=True)
class Field:
    """What a fit keeps: hyperparameters, and EP's (b, G) on the places that were played.

    Immutable, and enough to condition any later exam on this one.

    Attributes:
        theta: hyperparameters (c, log alpha, log beta, log l_1 .. log l_P).
        slope_mean: prior mean of the slope, in latent units per unit of intensity.
        places: that were played, (F, P), in model units.
        b: EP's, (F + 1).
        G: EP's, (F + 1, F + 1).
        log_evidence: of the answers, in nats.
        converged: whether the fit settled.
        guess: probability of "heard" without hearing.
        lapse: probability of "missed" in spite of hearing.
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
        return conditioned(mean, prior, link, self.b, self.G)

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

    def as_reference(self, places: Array) -> Reference:
        """As the kernels take it, for answers at these places."""
        gaps = kernels.squared_gaps(self.places, places)
        return Reference(self.theta, self.slope_mean, self.b, self.G, gaps)

    @property
    def rates(self) -> Rates:
        """Guess and lapse rate."""
        return Rates(self.guess, self.lapse)

    @cached_property
    def slope_sure(self) -> float:
        """Posterior probability that loudness helps: P(w > 0)."""
        mean, cov = self.latent(self.places[:1])
        return 0.5 * math.erfc(-mean[0] / math.sqrt(2.0 * max(cov[0, 0], 1e-300)))


def fit(answers: Answers, prior: Hyperprior, guess: float = 0.0, lapse: float = 0.0) -> Field:
    """MAP fit of a field of its own (the first exam; M_f's hyperparameters)."""
    with compiling("exam"):
        return _fit(answers, prior, Rates(guess, lapse))


@dataclass(frozen=True)
class Fitted:
    """MAP hyperparameters of some answers, and the EP sites to start from."""

    answers: Answers
    rates: Rates
    reference: Reference  # none, but for its slope
    theta: Array
    sites: Sites
    settled: bool

    def at(
        self, between_ears: float = 0.0, tolerance: float = ep.TOLERANCE
    ) -> tuple[float, Array, Array, bool]:
        """log evidence, EP's b and G, and whether it settled, at this correlation of the ears."""
        sites = Sites(self.sites.tau.copy(), self.sites.nu.copy())
        log_Z, _, b, G, ok = evidence_at(
            self.theta, 0.0, self.reference, self.answers.rows(between_ears),
            self.rates.chances, sites, tolerance,
        )  # fmt: skip
        return float(log_Z), b, G, bool(ok)


def fit_theta(
    answers: Answers, prior: Hyperprior, rates: Rates, between_ears: float = 0.0
) -> Fitted:
    """MAP hyperparameters, of two ears at this correlation between them.

    Ears that are taken apart cost little: the search for a correlation begins where theirs ended.
    """
    whitened = prior.whitened(answers.places.shape[1])
    size, n = whitened.centre.size, answers.count
    reference = no_reference(whitened.centre, prior.slope_mean, answers.places)
    u, H = np.zeros(size), np.eye(size)
    sites = Sites(np.zeros((1, n)), np.zeros((1, n)))
    settled = True
    steps = () if n == 0 else (0.0,) if between_ears == 0.0 else (0.0, between_ears)
    for step in steps:
        rows = answers.rows(step)
        settled = maximise(u, H, np.zeros(1), whitened, reference, rows, rates.chances, sites)
    theta = at(whitened, u)
    return Fitted(answers, rates, reference, theta, Sites(sites.tau[0], sites.nu[0]), bool(settled))


def _fit(answers: Answers, prior: Hyperprior, rates: Rates) -> Field:
    fitted = fit_theta(answers, prior, rates)
    log_Z, b, G, ok = fitted.at()
    return Field(
        theta=fitted.theta,
        slope_mean=prior.slope_mean,
        places=answers.places,
        b=b,
        G=G,
        log_evidence=log_Z,
        converged=fitted.settled and ok,
        guess=rates.guess,
        lapse=rates.lapse,
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
        answers.places,
        threshold(w0, mean[1:]),
        cov[1:, 1:] / w0**2,
        theta,
        smooth.converged,
        guess,
        lapse,
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
    inverse, _ = ep.invert(S)
    before = np.full(T.size + 1, theta[kernels.C])
    before[0] = w0
    G = inverse - ep.product(ep.product(inverse, cov), inverse)
    return Field(
        theta=theta,
        slope_mean=w0,
        places=places,
        b=ep.product(inverse, (mean - before).reshape(-1, 1))[:, 0],
        G=0.5 * (G + G.T),
        log_evidence=0.0,
        converged=converged,
        guess=guess,
        lapse=lapse,
    )
