"""A changed ear as the reference's field with its thresholds moved (method.md, section 5).

f_new(i, phi) = f_old(i, phi) - k (m + r(phi)), k the reference's slope: every threshold is m higher
than before, give or take a misfit r. The mean shift m takes a few sizes, for the worse and for the
better, and each size is a Gaussian over fields: EP conditions it on the new answers and its
evidence weighs it. Nothing is refitted, so that the mixture is one model, fixed before the first
tone.

No smooth shift has a size near zero. An alternative that puts mass there is hardly another model
than "nothing changed", and no answer tells the two apart. Rough ones may: they differ from it at
single frequencies, and keep an ear from being called unchanged before some were tried.

Sizes are in units of the model's intensity and lengths in units of its smooth axes: of a tone, tens
of dB and octaves.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from earshift.engine import ep
from earshift.engine.answers import Answers
from earshift.engine.compiled import compiled, compiling
from earshift.engine.evidence import Rates
from earshift.engine.field import Field, add_p_heard, conditioned, moments_on_grid
from earshift.engine.thresholds import SMALLEST_SLOPE, positive_slope_samples, threshold

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


MOST_DOUBTFUL = 0.01  # weight of components without a fixed point that is not worth a word
NEGLIGIBLE = 8.0  # nats below the best component at which a rough evidence is good enough


class Kind(NamedTuple):
    """Shifts of one kind: their mean sizes, each also with a minus, and what may deviate from it.

    `sd` and `length` are of the smooth misfit; `tilt` is the SD of a slope over each smooth axis,
    per unit of it, around the middle of the domain.
    """

    sizes: tuple[float, ...]
    sd: float
    length: float
    tilt: float


SMOOTH = Kind(sizes=(2.0, 4.0, 6.0), sd=0.8, length=1.0, tilt=0.6)
ROUGH = Kind(sizes=(3.0,), sd=2.0, length=0.7, tilt=1.0)  # a protocol may give another size
KINDS = (SMOOTH, ROUGH)


@dataclass(frozen=True)
class ShiftPrior:
    """The components of a change: a size and a kind each, with their prior weights.

    Attributes:
        sizes: mean shift of every component, (C); positive for the worse.
        kind: index into `KINDS` of every component, (C).
        weights: prior weights, (C).
        middle: of the domain, around which shifts are tilted, (P).
    """

    sizes: Array
    kind: Ints
    weights: Array
    middle: Array


def shift_prior(
    rough_share: float, places: Array, rough_size: float = ROUGH.sizes[0]
) -> ShiftPrior:
    """All sizes of a kind are as likely, worse and better; rough shifts have `rough_share`."""
    sizes, kinds, weights = [], [], []
    known = ((SMOOTH.sizes, 1.0 - rough_share), ((rough_size,), rough_share))
    for number, (of_kind, share) in enumerate(known):
        for size in of_kind if share > 0.0 else ():
            sizes += [size, -size]
            kinds += [number] * 2
            weights += [0.5 * share / len(of_kind)] * 2
    middle = 0.5 * (places.min(axis=0) + places.max(axis=0))
    return ShiftPrior(np.array(sizes), np.array(kinds, np.int64), np.array(weights), middle)


@compiled
def misfit_covariance(a, b, middle, sd, length, tilt):
    """Covariance of the misfit between two lists of places, in squared units of intensity."""
    out = np.empty((a.shape[0], b.shape[0]))
    for j in range(a.shape[0]):
        for k in range(b.shape[0]):
            gap, lean = 0.0, 0.0
            for p in range(a.shape[1]):
                step = (a[j, p] - b[k, p]) / length
                gap += step * step
                lean += (a[j, p] - middle[p]) * (b[k, p] - middle[p])
            out[j, k] = sd * sd * math.exp(-0.5 * gap) + tilt * tilt * lean
    return out


def fit_components(
    means: Array, S: Array, kind: Ints, log_prior: Array, answers: Answers, rates: Rates
) -> tuple[Array, Array, Array, Flags]:
    """EP for every component: prior mean means[c], covariance S[kind[c]], log weight log_prior[c].

    With lapses EP may not settle (see `ep.run_always`). What such a component is worth is first
    estimated by taking its answers in once; it is worked out where that might matter.
    """
    n_parts, d = means.shape
    n = answers.count
    log_Z = np.empty(n_parts)
    bs = np.empty((n_parts, d))
    Gs = np.empty((n_parts, d, d))
    ok = np.empty(n_parts, np.bool_)
    rows = (
        np.zeros(n, np.int64), answers.place + 1, answers.intensity, answers.answer,
        answers.gauss_tau, *rates,
    )  # fmt: skip
    lapses = max(rates) > 0.0
    haste = ep.HASTY if lapses else ep.PATIENT
    for c in range(n_parts):
        log_Z[c], bs[c], Gs[c], ok[c] = ep.settle(
            means[c], S[kind[c]], *rows, np.zeros(n), np.zeros(n), ep.TOLERANCE, haste
        )
    log_Z[~ok] = -np.inf
    if lapses and not ok.all():
        open_ones = np.flatnonzero(~ok)
        for j in open_ones:
            log_Z[j], bs[j], Gs[j] = ep.take_once(means[j], S[kind[j]], *rows)
        least = (log_Z + log_prior).max() - NEGLIGIBLE
        for j in open_ones:
            if log_Z[j] + log_prior[j] > least:
                log_Z[j], bs[j], Gs[j], ok[j] = ep.take_apart(
                    means[j], S[kind[j]], *rows, ep.TOLERANCE
                )
    return log_Z, bs, Gs, ok


class OnGrid(NamedTuple):
    """What every component expects on a grid before the answers.

    `means` (C, d) of the slope and the places; `cov_w` (d) covariances with the slope; `var`
    (kinds, d) and `links` (kinds, d, used) variances and covariances with what was answered.
    """

    means: Array
    cov_w: Array
    var: Array
    links: Array


@compiled
def shifted_p_heard(weights, kind, grid, bs, Gs, intensity, rates):
    """P(heard) on the grid, averaged over the components."""
    d = grid.means.shape[1]
    out = np.zeros((d - 1, intensity.size))
    for c in range(weights.size):
        if not weights[c] > 0.0:
            continue
        link = grid.links[kind[c]]
        mean, cov_w, var = grid.means[c].copy(), grid.cov_w.copy(), grid.var[kind[c]].copy()
        spread = ep.product(link, Gs[c])
        for k in range(d):
            for j in range(link.shape[1]):
                mean[k] += link[k, j] * bs[c, j]
                var[k] -= spread[k, j] * link[k, j]
                cov_w[k] -= spread[0, j] * link[k, j]
        mu, s = moments_on_grid(mean, cov_w, var, intensity)
        add_p_heard(mu, s, rates.guess, rates.lapse, weights[c], out)
    return out


@dataclass(frozen=True)
class Shifted:
    """The new exam as a shift of the reference, fitted: a mixture of Gaussians.

    Attributes:
        reference: the field that is moved.
        answers: of the new exam.
        prior: the components.
        weights: of the components by their evidence, (C).
        bs: EP's of each component.
        Gs: EP's of each component.
        log_evidence: of the answers, in nats.
        converged: whether EP settled wherever it matters.
    """

    reference: Field
    answers: Answers
    prior: ShiftPrior
    weights: Array
    bs: Array
    Gs: Array
    log_evidence: float
    converged: bool

    def p_heard(self, places: Array, intensity: Array) -> Array:
        """P(heard) on places x intensities, in model units."""
        used = self.answers.places
        size = places.shape[0] + 1
        mean, cov = self.reference.latent(np.vstack([places, used]))
        k = slope_of(mean)
        near, old = slice(0, size), [0, *range(size, size + used.shape[0])]
        var = np.empty((len(KINDS), size))
        links = np.empty((len(KINDS), size, len(old)))
        for number, kind in enumerate(KINDS):
            var[number] = np.diag(cov)[near]
            var[number, 1:] += k**2 * np.diag(self._misfit(kind, places, places))
            links[number] = cov[near][:, old]
            links[number, 1:, 1:] += k**2 * self._misfit(kind, places, used)
        grid = OnGrid(self.prior_means(mean[near], k), cov[0, near].copy(), var, links)
        rates = Rates(self.reference.guess, self.reference.lapse)
        return np.asarray(
            shifted_p_heard(self.weights, self.prior.kind, grid, self.bs, self.Gs, intensity, rates)
        )

    def prior_means(self, mean: Array, k: float) -> Array:
        """Mean of (w, h) of every component, given the reference's."""
        return moved(mean, self.prior.sizes, k)

    def _misfit(self, kind: Kind, a: Array, b: Array) -> Array:
        return np.asarray(
            misfit_covariance(a, b, self.prior.middle, kind.sd, kind.length, kind.tilt)
        )

    def latent_pair(self, component: int, places: Array) -> tuple[Array, Array]:
        """Posterior of (w, h old, h new) at the places under one component: mean, covariance."""
        used = self.answers.places
        size = places.shape[0]
        mean, cov = self.reference.latent(np.vstack([places, used]))
        k, kind = slope_of(mean), KINDS[self.prior.kind[component]]
        before = [0, *range(1, size + 1)]
        after, answered = list(range(1, size + 1)), list(range(size + 1, mean.size))
        both = [*before, *after]
        joint = cov[np.ix_(both, both)]
        joint[size + 1 :, size + 1 :] += k**2 * self._misfit(kind, places, places)
        link = cov[np.ix_(both, [0, *answered])]
        link[size + 1 :, 1:] += k**2 * self._misfit(kind, places, used)
        m = mean[both]
        m[size + 1 :] -= k * self.prior.sizes[component]
        return conditioned(m, joint, link, self.bs[component], self.Gs[component])

    def before_and_after(
        self, places: Array, count: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Samples of the old and the new thresholds together, in model units."""
        counts = rng.multinomial(count, self.weights / self.weights.sum())
        size = places.shape[0]
        old, new = [], []
        for component in np.nonzero(counts)[0]:
            mean, cov = self.latent_pair(int(component), places)
            draws = positive_slope_samples(mean, cov, [0], int(counts[component]), rng)
            old.append(threshold(draws[:, :1], draws[:, 1 : size + 1]))
            new.append(threshold(draws[:, :1], draws[:, size + 1 :]))
        return np.concatenate(old), np.concatenate(new)


def slope_of(mean: Array) -> float:
    """Latent units per unit of intensity, from the mean of (w, h): what turns a shift into one."""
    return max(float(mean[0]), SMALLEST_SLOPE)


def moved(mean: Array, sizes: Array, k: float) -> Array:
    """Mean of (w, h) of every component: (C, d)."""
    out = np.repeat(mean[None], sizes.size, axis=0)
    out[:, 1:] -= k * sizes[:, None]
    return out


def shifted(reference: Field, answers: Answers, prior: ShiftPrior) -> Shifted:
    """M_g as a shift of the reference, given the answers."""
    used = answers.places
    mean, cov = reference.latent(used)
    k = slope_of(mean)
    S = np.repeat(cov[None], len(KINDS), axis=0)
    for number, kind in enumerate(KINDS):
        S[number, 1:, 1:] += k**2 * misfit_covariance(
            used, used, prior.middle, kind.sd, kind.length, kind.tilt
        )
    with compiling("screen"):
        log_Z, bs, Gs, ok = fit_components(
            moved(mean, prior.sizes, k), S, prior.kind, np.log(prior.weights), answers,
            reference.rates,
        )  # fmt: skip
    usable = np.isfinite(log_Z)
    if not usable.any():
        return Shifted(reference, answers, prior, prior.weights, bs, Gs, -math.inf, False)
    log_w = np.where(usable, log_Z, -np.inf) + np.log(prior.weights)
    top = log_w.max()
    mass = np.exp(log_w - top)
    weights = mass / mass.sum()
    return Shifted(
        reference=reference,
        answers=answers,
        prior=prior,
        weights=weights,
        bs=bs,
        Gs=Gs,
        log_evidence=float(top + math.log(mass.sum())),
        converged=bool(weights[~(ok & usable)].sum() < MOST_DOUBTFUL),
    )
