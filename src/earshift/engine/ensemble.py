"""Fields at many hyperparameters, weighed by how well they explain the answers.

A field at its most probable hyperparameters is too sure of itself: its intervals leave out that
slope, variation and lengths are not known either. Here they are drawn from their posterior, with
the guess and the lapse rate where these are to be estimated, by adaptive importance sampling: a
few rounds of draws from a t distribution, each fitted to the weighed draws before it, all weighed
against the mixture of what they were drawn from.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, gammaln, logsumexp, ndtr

from earshift.engine import optimise
from earshift.engine.answers import Answers
from earshift.engine.evidence import Rates, Rows, empty_sites, no_reference
from earshift.engine.field import Field, fit_theta
from earshift.engine.norms import Hyperprior
from earshift.engine.prior import SPREADS_A_STEP, ModelPrior
from earshift.engine.psychometric import Curves
from earshift.engine.thresholds import positive_slope_samples, threshold

Array = NDArray[np.float64]


class Effort(NamedTuple):
    """How many draws are made: rounds, at most, draws in each, and effective ones that suffice."""

    rounds: int
    most_rounds: int
    draws: int
    enough: float


RESULTS = Effort(4, 8, 80, 40.0)
# Between two stimuli only the rates are wanted, and somebody waits.
BETWEEN = Effort(2, 4, 40, 10.0)
DOUBT = 10.0  # nats: an evidence that did not settle is rough, and counts for little
FREEDOM = 5.0  # of the t distribution that is drawn from
WIDER = 1.2  # than the posterior, as far as it is known
FIRST_SD = 0.6  # of the first round, in the prior's SDs
LEAST_SD = 0.05
NEGLIGIBLE = 1e-4  # of the largest weight
STEADY_SLOPE = 0.1  # relative SD that a slope keeps at given hyperparameters
MOST_GUESSES = 0.5


class Point(NamedTuple):
    """Hyperparameters of one field."""

    theta: Array
    slope_mean: float
    rates: Rates


Place = Callable[[Array], tuple[Array, float]]  # from standard normal numbers to theta and slope


@dataclass(frozen=True)
class Unknowns:
    """What is drawn: hyperparameters and rates, as independent standard normal numbers.

    Attributes:
        size: how many hyperparameters there are.
        place: gives theta and the slope's mean.
        rates: those that are given.
        guess: Beta(a, b) of a guess rate to estimate, else None.
        lapse: Beta(a, b) of a lapse rate to estimate, else None.
    """

    size: int
    place: Place
    rates: Rates
    guess: tuple[float, float] | None = None
    lapse: tuple[float, float] | None = None

    @property
    def count(self) -> int:
        """How many numbers are drawn."""
        return self.size + (self.guess is not None) + (self.lapse is not None)

    def at(self, z: Array) -> Point:
        """The hyperparameters that these numbers stand for."""
        theta, slope = self.place(z[: self.size])
        rest = list(z[self.size :])
        guess, lapse = self.rates
        if self.guess is not None:
            guess = min(_rate(self.guess, rest.pop(0)), MOST_GUESSES)
        if self.lapse is not None:
            lapse = min(_rate(self.lapse, rest.pop(0)), MOST_GUESSES)
        return Point(theta, slope, Rates(guess, lapse))


def _rate(beta: tuple[float, float], z: float) -> float:
    return float(betaincinv(*beta, ndtr(z)))


def of_hyperprior(prior: Hyperprior, axes: int) -> tuple[int, Place]:
    """Unknowns of a Gaussian over theta."""
    whitened = prior.whitened(axes)
    return whitened.centre.size, lambda u: (optimise.at(whitened, u), prior.slope_mean)


def of_prior(prior: ModelPrior) -> tuple[int, Place]:
    """Unknowns of somebody's own prior: mean threshold, spread, variation and lengths.

    At a given spread the field's offsets follow the thresholds: h = -w T.
    """
    of_variation, of_spread, of_length = prior.log_factors
    axes = len(prior.lengths)

    def place(z: Array) -> tuple[Array, float]:
        slope = SPREADS_A_STEP * math.exp(of_spread * z[0])
        log_alpha = 2.0 * math.log(STEADY_SLOPE * slope)
        if not axes:
            log_beta = 2.0 * math.log(slope * prior.threshold_sd)
            return np.array([0.0, log_alpha, log_beta]), slope
        log_beta = 2.0 * (math.log(slope * prior.variation) + of_variation * z[2])
        lengths = [math.log(length) + of_length * one
                   for length, one in zip(prior.lengths, z[3:], strict=True)]  # fmt: skip
        return np.array([-slope * prior.threshold_sd * z[1], log_alpha, log_beta, *lengths]), slope

    return (3 + axes if axes else 1), place


@dataclass(frozen=True)
class Ensemble:
    """Fields with their weights, which add up to 1."""

    fields: tuple[Field, ...]
    weights: Array

    def mean_rates(self) -> Rates:
        """Guess and lapse rate, averaged."""
        return Rates(
            float(self.weights @ np.array([field.guess for field in self.fields])),
            float(self.weights @ np.array([field.lapse for field in self.fields])),
        )

    def curves(self, places: Array, count: int, rng: np.random.Generator) -> Curves:
        """Draws of the psychometric functions at the places, in model units."""
        shares = rng.multinomial(count, self.weights)
        draws, rates = [], []
        for field, share in zip(self.fields, shares, strict=True):
            if share:
                mean, cov = field.latent(places)
                draws.append(positive_slope_samples(mean, cov, [0], int(share), rng))
                rates.append(np.tile([field.guess, field.lapse], (int(share), 1)))
        latent, both = np.concatenate(draws), np.concatenate(rates)
        slope = latent[:, :1]
        return Curves(threshold(slope, latent[:, 1:]), 1.0 / slope, both[:, 0], both[:, 1])


def ensemble(
    answers: Answers,
    unknowns: Unknowns,
    begin: Array,
    rng: np.random.Generator,
    effort: Effort = RESULTS,
) -> Ensemble:
    """The posterior of the unknowns, as weighed fields; `begin` is near its mode."""
    size, rows = unknowns.count, answers.rows()
    mean, root = begin, FIRST_SD * np.eye(size)
    drawn: list[Array] = []
    target: list[float] = []
    fields: list[Field] = []
    proposals: list[tuple[Array, Array]] = []
    weights = np.ones(1)
    effective = 0.0
    while len(proposals) < effort.rounds or (
        effective < effort.enough and len(proposals) < effort.most_rounds
    ):
        proposals.append((mean, root))
        normal = rng.standard_normal((effort.draws, size))
        stretch = np.sqrt(FREEDOM / rng.chisquare(FREEDOM, (effort.draws, 1)))
        for z in mean + (normal * stretch) @ root.T:
            field = _field(answers, rows, unknowns.at(z))
            drawn.append(z)
            fields.append(field)
            doubt = 0.0 if field.converged else DOUBT
            target.append(field.log_evidence - doubt - 0.5 * float(z @ z))
        all_z = np.array(drawn)
        each = np.array([_log_t(all_z, *one) for one in proposals])
        log_weights = np.array(target) - logsumexp(each, axis=0)
        weights = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        # A few large weights are no covariance: they are evened out while it is looked for.
        effective = 1.0 / float((weights**2).sum())
        even = np.sqrt(weights) if effective < 4.0 * size else weights
        even = even / even.sum()
        mean = even @ all_z
        apart = all_z - mean
        cov = (even[:, None] * apart).T @ apart + LEAST_SD**2 * np.eye(size)
        root = WIDER * np.linalg.cholesky(cov)
    kept = np.flatnonzero(weights > NEGLIGIBLE * weights.max())
    return Ensemble(tuple(fields[k] for k in kept), weights[kept] / weights[kept].sum())


def _field(answers: Answers, rows: Rows, point: Point) -> Field:
    count = answers.places.shape[0] + 1
    log_Z, b, G, ok = 0.0, np.zeros(count), np.zeros((count, count)), True
    if answers.count:
        log_Z, _, b, G, ok = optimise.evidence_at(
            point.theta, 0.0, no_reference(point.theta, point.slope_mean, answers.places), rows,
            point.rates.chances, empty_sites(answers.count),
        )  # fmt: skip
    return Field(
        theta=point.theta,
        slope_mean=point.slope_mean,
        places=answers.places,
        b=b,
        G=G,
        log_evidence=float(log_Z) if math.isfinite(log_Z) else -math.inf,
        converged=bool(ok),
        guess=point.rates.guess,
        lapse=point.rates.lapse,
    )


def _log_t(z: Array, mean: Array, root: Array) -> Array:
    """Log density of a multivariate t distribution, up to what all of them share."""
    size = mean.size
    u = np.linalg.solve(root, (z - mean).T)
    spread = np.log(np.abs(np.diag(root))).sum()
    constant = gammaln(0.5 * (FREEDOM + size)) - gammaln(0.5 * FREEDOM)
    return np.asarray(
        constant - spread - 0.5 * (FREEDOM + size) * np.log1p((u**2).sum(axis=0) / FREEDOM)
    )


def mode_of(answers: Answers, prior: Hyperprior, unknowns: Unknowns) -> Array:
    """Where to begin: the most probable theta of a Gaussian hyperprior, in its coordinates."""
    whitened = prior.whitened(answers.places.shape[1])
    point = unknowns.at(np.zeros(unknowns.count))
    theta = fit_theta(answers, prior, point.rates).theta
    begin = np.zeros(unknowns.count)
    begin[: unknowns.size] = np.linalg.solve(whitened.chol, theta - whitened.centre)
    return begin


def mode_of_prior(answers: Answers, prior: ModelPrior, unknowns: Unknowns) -> Array:
    """Where to begin with somebody's own prior: its mean, with the threshold that fits best."""
    begin = np.zeros(unknowns.count)
    if prior.lengths:
        point = unknowns.at(begin)
        theta = fit_theta(answers, prior.hyperprior(), point.rates).theta
        begin[1] = -theta[0] / (SPREADS_A_STEP * prior.threshold_sd)
    return begin
