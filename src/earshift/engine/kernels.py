"""Covariances of psychometric fields, and their derivatives (method.md, sections 2 and 4).

A field is f(i, phi) = w i + h(phi) with slope w ~ N(w0, alpha) and h a Gaussian process with
constant mean c and squared-exponential covariance beta exp(-sum_p (phi_p - phi'_p)^2 / (2 l_p^2)).
On a list of places its latent vector is z = (w, h_1 .. h_F), so a covariance here is a matrix over
that vector: slope first, then the places. In tone space that is the kernel
alpha i i' + beta exp(-|phi - phi'|^2 / 2 l^2).

theta = (c, log alpha, log beta, log l_1 .. log l_P), one length for each smooth axis.
"""

import math

import numpy as np
from numpy.typing import NDArray

from earshift.engine.compiled import compiled

Array = NDArray[np.float64]

C, LOG_ALPHA, LOG_BETA, LOG_LENGTH = 0, 1, 2, 3  # positions in theta


def squared_gaps(a: Array, b: Array) -> Array:
    """Squared distances between two lists of places, axis by axis: shape (P, len(a), len(b))."""
    steps = a.T[:, :, None] - b.T[:, None, :]
    return np.ascontiguousarray(steps * steps)


@compiled
def cross(theta_f, theta_g, gaps):
    """Covariance between the latent vectors of two fields at task correlation 1.

    alpha -> sqrt(alpha_f alpha_g); for the places sqrt(beta_f beta_g) times, per axis,
    sqrt(2 l_f l_g / (l_f^2 + l_g^2)) exp(-gap / (l_f^2 + l_g^2)): the only choice that is positive
    semi-definite for any two theta and equals the one-field covariance when they are equal.
    """
    n_axes, rows, cols = gaps.shape
    out = np.zeros((rows + 1, cols + 1))
    out[0, 0] = math.exp(0.5 * (theta_f[LOG_ALPHA] + theta_g[LOG_ALPHA]))
    log_peak = 0.5 * (theta_f[LOG_BETA] + theta_g[LOG_BETA])
    rate = np.empty(n_axes)
    for p in range(n_axes):
        log_lf, log_lg = theta_f[LOG_LENGTH + p], theta_g[LOG_LENGTH + p]
        total = math.exp(2.0 * log_lf) + math.exp(2.0 * log_lg)
        rate[p] = 1.0 / total
        log_peak += 0.5 * (math.log(2.0 / total) + log_lf + log_lg)
    for j in range(rows):
        for k in range(cols):
            e = log_peak
            for p in range(n_axes):
                e -= gaps[p, j, k] * rate[p]
            out[j + 1, k + 1] = math.exp(e)
    return out


def covariance(theta: Array, gaps: Array) -> Array:
    """Prior covariance of (w, h_1 .. h_F) for one field."""
    return np.asarray(cross(theta, theta, gaps))


@compiled
def covariance_gradient(theta, gaps, S, Q, grad):
    """Add sum_jk Q_jk dS_jk/dtheta to grad, for S = covariance(theta, gaps)."""
    n_axes, rows, cols = gaps.shape
    grad[LOG_ALPHA] += Q[0, 0] * S[0, 0]
    for j in range(rows):
        for k in range(cols):
            e = Q[j + 1, k + 1] * S[j + 1, k + 1]
            grad[LOG_BETA] += e
            for p in range(n_axes):
                grad[LOG_LENGTH + p] += e * gaps[p, j, k] * math.exp(-2.0 * theta[LOG_LENGTH + p])


@compiled
def cross_gradient(theta_f, theta_g, gaps, S, Q, grad):
    """Add sum_jk Q_jk dS_jk/dtheta_g to grad, for S = cross(theta_f, theta_g, gaps)."""
    n_axes, rows, cols = gaps.shape
    grad[LOG_ALPHA] += 0.5 * Q[0, 0] * S[0, 0]
    rate = np.empty(n_axes)
    part = np.empty(n_axes)
    for p in range(n_axes):
        lf2 = math.exp(2.0 * theta_f[LOG_LENGTH + p])
        lg2 = math.exp(2.0 * theta_g[LOG_LENGTH + p])
        rate[p] = 1.0 / (lf2 + lg2)
        part[p] = lg2 * rate[p]
    for j in range(rows):
        for k in range(cols):
            e = Q[j + 1, k + 1] * S[j + 1, k + 1]
            grad[LOG_BETA] += 0.5 * e
            for p in range(n_axes):
                slope = 0.5 - part[p] + 2.0 * part[p] * rate[p] * gaps[p, j, k]
                grad[LOG_LENGTH + p] += e * slope


@compiled
def both_ears(K, between):
    """Prior covariance of the latent vectors of two ears, right then left: K_t x K.

    `between` is the correlation of the ears.
    """
    d = K.shape[0]
    out = np.empty((2 * d, 2 * d))
    for j in range(d):
        for k in range(d):
            out[j, k] = out[d + j, d + k] = K[j, k]
            out[j, d + k] = out[d + j, k] = between * K[j, k]
    return out


@compiled
def fold_ears(Q, between):
    """The matrix P with sum P dK = sum Q d both_ears(K, between): a gradient in one ear's terms."""
    d = Q.shape[0] // 2
    out = np.empty((d, d))
    for j in range(d):
        for k in range(d):
            out[j, k] = Q[j, k] + Q[d + j, d + k] + between * (Q[j, d + k] + Q[d + j, k])
    return out


def two_exams(theta_f: Array, theta_g: Array, rho: float, gaps: Array) -> Array:
    """Joint prior covariance of the old and the new exam's latent vectors on one list of places.

    The paper's conjoint kernel K_t x K, for two theta: used by the reference implementation that
    the conditioned path is tested against.
    """
    link = rho * cross(theta_f, theta_g, gaps)
    return np.block([[covariance(theta_f, gaps), link], [link.T, covariance(theta_g, gaps)]])
