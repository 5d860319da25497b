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
from earshift.engine.compiled import compiled, inlined

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class Rates(NamedTuple):
    """How often an answer has nothing to do with the tone: "heard" and "missed" by chance."""

    guess: float
    lapse: float

    @property
    def chances(self) -> "Rates | None":
        """None without any: numba then leaves out all that only lapses can bring about."""
        return self if max(self) > 0.0 else None


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
    K = kernels.cross(theta, theta, gaps)
    d = K.shape[0]
    m = np.empty(d)
    m[0] = reference.slope_mean
    for k in range(1, d):
        m[k] = theta[0]
    b_f = reference.b
    S, link, T = K, K[:0], K[:0]
    if b_f.size > 0 and rho != 0.0:
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


@inlined
def evidence(theta, rho, reference, rows, rates, sites, tol):
    """log p(answers | theta, rho, reference) and its gradient in theta, with EP's b and G.

    With answers of a second ear (see `Rows`) there is no reference, and the latent vector is the
    right ear's, then the left one's. Ears that have nothing to do with each other are two small
    EPs, put together.
    """
    m, S, K, link, T = conditioned_prior(theta, rho, reference, rows.gaps)
    one, n, places = m.size, rows.x.size, rows.gaps.shape[1]
    paired = False
    for k in range(n):
        if rows.place[k] >= places:
            paired = True
    d = 2 * one if paired else one
    between = rows.between_ears
    if paired and between != 0.0:
        S = kernels.both_ears(K, between)
        m_both = np.empty(d)
        for k in range(d):
            m_both[k] = m[k % one]
        m = m_both
    b = np.zeros(d)
    G = np.zeros((d, d))
    log_Z, ok = 0.0, True
    for start in range(0, d, m.size):
        own = np.empty(n, np.int64)
        count = 0
        for k in range(n):
            if start <= one * (rows.place[k] // places) < start + m.size:
                own[count] = k
                count += 1
        ia, ib, y = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
        x, gauss_tau, tau, nu = np.empty(count), np.empty(count), np.empty(count), np.empty(count)
        for k in range(count):
            of = own[k]
            ear = rows.place[of] // places
            ia[k] = ear * one - start
            ib[k] = rows.place[of] + 1 + ear - start
            x[k], y[k], gauss_tau[k] = rows.x[of], rows.y[of], rows.gauss_tau[of]
            tau[k], nu[k] = sites.tau[of], sites.nu[of]
        if rates is None:
            value, own_b, own_G, settled = ep.settle(
                m, S, ia, ib, x, y, gauss_tau, 0.0, 0.0, tau, nu, tol, ep.PATIENT
            )
            if not settled:
                value = -np.inf
        else:
            value, own_b, own_G, settled = ep.run_always(
                m, S, ia, ib, x, y, gauss_tau, rates.guess, rates.lapse, tau, nu, tol,
                ep.BRISK if reference.b.size == 0 else ep.HASTY,
            )  # fmt: skip
        for k in range(count):
            sites.tau[own[k]], sites.nu[own[k]] = tau[k], nu[k]
        log_Z += value
        ok &= settled
        for j in range(m.size):
            b[start + j] = own_b[j]
            for k in range(m.size):
                G[start + j, start + k] = own_G[j, k]
    Q = np.empty((d, d))
    grad = np.zeros(theta.size)
    for j in range(d):
        for k in range(d):
            Q[j, k] = 0.5 * (b[j] * b[k] - G[j, k])
        if j % one > 0:
            grad[0] += b[j]
    if paired:
        Q = kernels.fold_ears(Q, between)
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
