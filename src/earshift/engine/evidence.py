"""The evidence of answers for a field, alone or tied to a reference (method.md, sections 2 and 5).

One piece of mathematics serves the first exam, the paper's M_f and its M_g: a field whose answers
are explained by EP, optionally tied by a correlation rho to a reference field that was fitted
before. Conditioning on the reference once leaves, for the new latent vector,

    mean  c_g + rho C' b_f          covariance  K_g - rho^2 C' G_f C,

with C the cross-covariance at rho = 1 and (b_f, G_f) what EP kept of the old exam. rho = 0 (or no
reference) is a field on its own; rho = 1 with the reference's own theta is "nothing changed".

The kernels take what belongs together as named tuples, which numba passes on without a cost.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from earshift.engine import ep, kernels
from earshift.engine.compiled import compiled

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class Rates(NamedTuple):
    """How often an answer has nothing to do with the tone: "heard" and "missed" by chance."""

    guess: float
    lapse: float


class Rows(NamedTuple):
    """The answers as the kernels read them (see `answers.Answers`).

    `gaps` are the squared gaps between their places, axis by axis. `between_ears` is the
    correlation between the fields of two ears; it counts where answers of a left ear follow on
    those of a right one, and only there.
    """

    place: Ints
    x: Array
    y: Ints
    gauss_tau: Array
    gaps: Array
    between_ears: float


class Reference(NamedTuple):
    """What EP kept of the field that the new one is tied to; without one, b is empty.

    `slope_mean` is the prior mean of the slope, of both. `gaps` are the squared gaps from its
    places to those of the answers.
    """

    theta: Array
    slope_mean: float
    b: Array
    G: Array
    gaps: Array


class Sites(NamedTuple):
    """EP's site precisions and precision-weighted means; the kernels change them in place."""

    tau: Array
    nu: Array


def no_reference(theta: Array, slope_mean: float, places: Array) -> Reference:
    """The reference that is not there, for answers at these places."""
    count, axes = places.shape
    none = np.zeros((axes, 0, count))
    return Reference(theta, slope_mean, np.zeros(0), np.zeros((0, 0)), none)


def empty_sites(count: int) -> Sites:
    """Where EP starts without anything known."""
    return Sites(np.zeros(count), np.zeros(count))


@compiled
def conditioned_prior(theta, rho, reference, gaps):
    """Prior of the latent vector given the reference: mean, covariance, K, C and G_f C."""
    K = kernels.covariance(theta, gaps)
    d = K.shape[0]
    m = np.full(d, theta[0])
    m[0] = reference.slope_mean
    b_f = reference.b
    if b_f.size == 0 or rho == 0.0:
        empty = np.zeros((0, d))
        return m, K, K, empty, empty
    link = kernels.cross(reference.theta, theta, reference.gaps)
    T = ep.product(reference.G, link)
    S = K.copy()
    for r in range(b_f.size):
        for j in range(d):
            h = rho * link[r, j]
            m[j] += h * b_f[r]
            h *= rho
            for k in range(d):
                S[j, k] -= h * T[r, k]
    return m, S, K, link, T


@compiled
def run_ears_apart(m, K, ia, ib, rows, rates, sites, tol):
    """`ep.run` for two ears that have nothing to do with each other: two small ones, put together.

    m and K are one ear's; ia and ib are entries of both ears' latent vector.
    """
    one = m.size
    b = np.zeros(2 * one)
    G = np.zeros((2 * one, 2 * one))
    log_Z, ok = 0.0, True
    for start in (0, one):
        own = np.flatnonzero(ia == start)
        own_tau, own_nu = sites.tau[own], sites.nu[own]
        value, own_b, own_G, settled = ep.run_always(
            m, K, ia[own] - start, ib[own] - start, rows.x[own], rows.y[own], rows.gauss_tau[own],
            rates.guess, rates.lapse, own_tau, own_nu, tol, ep.BRISK,
        )  # fmt: skip
        sites.tau[own] = own_tau
        sites.nu[own] = own_nu
        b[start : start + one] = own_b
        G[start : start + one, start : start + one] = own_G
        log_Z += value
        ok &= settled
    return log_Z, b, G, ok


@compiled
def evidence(theta, rho, reference, rows, rates, sites, tol):
    """log p(answers | theta, rho, reference) and its gradient in theta, with EP's b and G.

    With answers of a second ear (see `Rows`) there is no reference, and the latent vector is the
    right ear's, then the left one's.
    """
    m, S, K, link, T = conditioned_prior(theta, rho, reference, rows.gaps)
    one = m.size
    ia = np.zeros(rows.x.size, np.int64)
    ib = rows.place + 1
    for n in range(ib.size):
        if ib[n] >= one:
            ia[n] = one
            ib[n] += 1
    paired = ia.size > 0 and ia.max() > 0
    if paired and rows.between_ears == 0.0:
        log_Z, b, G, ok = run_ears_apart(m, K, ia, ib, rows, rates, sites, tol)
    else:
        if paired:
            m = np.concatenate((m, m))
            S = kernels.both_ears(K, rows.between_ears)
        log_Z, b, G, ok = ep.run_always(
            m, S, ia, ib, rows.x, rows.y, rows.gauss_tau, rates.guess, rates.lapse,
            sites.tau, sites.nu, tol, ep.BRISK if reference.b.size == 0 else ep.HASTY,
        )  # fmt: skip
    d = b.size
    Q = np.empty((d, d))
    grad = np.zeros(theta.size)
    for j in range(d):
        for k in range(d):
            Q[j, k] = 0.5 * (b[j] * b[k] - G[j, k])
        if j % one > 0:
            grad[0] += b[j]
    if paired:
        Q = kernels.fold_ears(Q, rows.between_ears)
    kernels.covariance_gradient(theta, rows.gaps, K, Q, grad)
    if link.shape[0] > 0:
        R = ep.product(T, Q)
        for j in range(reference.b.size):
            for k in range(d):
                R[j, k] = rho * (reference.b[j] * b[k] - 2.0 * rho * R[j, k])
        kernels.cross_gradient(reference.theta, theta, reference.gaps, link, R, grad)
    return log_Z, grad, b, G, ok


def mixture_weights(log_evidence: Array, count: int) -> tuple[Array, float]:
    """Weights of `count` equally likely parts by their log evidence, and that of the mixture.

    A part that is left out has -inf; at least one must be finite. `count` may be smaller than the
    number of parts: those left out are then no part of the mixture.
    """
    top = log_evidence.max()
    mass = np.exp(log_evidence - top)
    return mass / mass.sum(), float(top + np.log(mass.sum() / count))
