"""Expectation propagation for yes/no answers (method.md, section 2).

Answers are explained by latent numbers z ~ N(m, S). Answer number n sees the latent through two of
its entries, f_n = x_n z[ia_n] + z[ib_n], and is heard with probability

    P(heard | f) = guess + (1 - guess - lapse) Phi(f).

A psychometric field on a list of frequencies is exactly of that form (slope times level, plus one
offset for the frequency), so the posterior lives in a few dozen numbers however many tones were
played, and one update costs O(d^2). `fit` is the plain textbook form (one latent per answer).

The algorithm is GPML Alg. 3.5 written without square roots of the site precisions W, because with
lapses the likelihood is not log-concave and a site may have negative precision: everything goes
through (I + S A)^-1 with A = U' W U. Cavities are kept proper by damping, never by clipping.

With lapses EP may have no fixed point at all: an answer that the others all but rule out is either
a lapse or it overturns them, and no single Gaussian is both. `run_always` then takes the most
surprising answers apart: the evidence is the sum over "it was a lapse" (the answer says nothing)
and "it was not" (the answer is sure), and in each part EP settles. A part in which too many answers
contradict each other for that is taken in once, the most expected first (assumed-density
filtering), and counts as not settled: such an evidence is finite and rough, and small wherever this
happens. How long all this may take is bounded, because somebody waits for the next tone.

A row may also be a Gaussian observation of f_n = 0 (`answer` 0, precision `gauss_tau`): that is how
a threshold read from an audiogram enters.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earshift.engine.checks import check_rates
from earshift.engine.compiled import compiled, inlined, within
from earshift.engine.refusal import Refusal

Array = NDArray[np.float64]

HEARD, MISSED, GAUSSIAN = 1, -1, 0
SURE = 2  # factor on an answer that is known to be no lapse
LEFT_OUT = 3  # an answer that says nothing

SQRT_2PI = math.sqrt(2 * math.pi)
# Steps tried in turn until the sites settle, each next one from empty sites, with the number of
# rounds it is given: a damped step needs many more to reach the same tolerance.
DAMPINGS, ROUNDS = (1.0, 0.5, 0.2), (3, 12, 30)
SWEEPS = 20  # sweeps in a round, which begins with a fresh posterior
TOLERANCE = 1e-8
# When an attempt is given up: never, stagnant, not soon near. No ints: numba would compile what is
# given one once more for each of them.
PATIENT, BRISK, HASTY = 0.0, 1.0, 2.0
STAGNANT = 0.9  # brisk: share of its change that a round keeps where it comes no nearer
SOON, FAR, NEARER = 10, 0.03, 0.1  # hasty: sweeps, the change after them, share kept by a round
MOST_APART = 2  # answers that are taken apart where EP does not settle: 4 parts
MOST_DOUBTFUL = 0.01  # share of the evidence that may come from parts that did not settle


@compiled
def log_ndtr(z: float) -> float:
    """log Phi(z), accurate far into the lower tail."""
    if z > -25.0:
        return math.log(0.5 * math.erfc(-z / math.sqrt(2.0)))
    r = 1.0 / (z * z)
    series = 1.0 - r * (1.0 - 3.0 * r * (1.0 - 5.0 * r * (1.0 - 7.0 * r)))
    return -0.5 * z * z - math.log(-z * SQRT_2PI) + math.log(series)


@within
def log_tilted(y: int, mu: float, s: float, guess: float, lapse: float) -> float:
    """log of one answer's probability under its cavity N(mu, s).

    For y = +-1 the likelihood is floor + (1 - guess - lapse) Phi(y f): the floor is the guess rate
    for a heard tone and the lapse rate for a missed one. A sure answer (+-2) has no floor.
    """
    floor = 0.0 if abs(y) == SURE else guess if y > 0 else lapse
    gain = 1.0 - guess - lapse
    z = (mu if y > 0 else -mu) / math.sqrt(1.0 + s)
    if floor > 0.0:
        return math.log(floor + gain * math.exp(log_ndtr(z)))
    return math.log(gain) + log_ndtr(z)


@within
def tilted_slopes(y: int, mu: float, s: float, guess: float, lapse: float) -> tuple[float, float]:
    """First and second derivative of `log_tilted` in mu."""
    floor = 0.0 if abs(y) == SURE else guess if y > 0 else lapse
    gain = 1.0 - guess - lapse
    root = math.sqrt(1.0 + s)
    z = (mu if y > 0 else -mu) / root
    if z > -25.0:
        mass = floor + gain * 0.5 * math.erfc(-z / math.sqrt(2.0))
        ratio = gain * math.exp(-0.5 * z * z) / (SQRT_2PI * mass)
    elif floor > 0.0:
        ratio = 0.0
    else:
        ratio = math.exp(-0.5 * z * z - log_ndtr(z)) / SQRT_2PI
    g1 = (ratio if y > 0 else -ratio) / root
    g2 = -g1 * g1 - ratio * z / (1.0 + s)
    return g1, g2


@within
def assemble(m, ia, ib, x, tau, nu, A, r):
    """A = U' W U and r = U'(nu - W U m), written into the given arrays."""
    for k in range(m.size):
        r[k] = 0.0
        for j in range(m.size):
            A[k, j] = 0.0
    for n in range(x.size):
        a, b, t = ia[n], ib[n], tau[n]
        A[b, b] += t
        e = nu[n] - t * (x[n] * m[a] + m[b])
        r[b] += e
        if x[n] != 0.0:
            A[a, a] += t * x[n] * x[n]
            A[a, b] += t * x[n]
            A[b, a] += t * x[n]
            r[a] += e * x[n]


@within
def sweep(ia, ib, x, y, guess, lapse, damping, tau, nu, mu, Sigma):
    """One pass over all sites (GPML Alg. 3.5, lines 4-10).

    Returns the largest relative change, and by how much log|I + S A| grew. A site whose cavity is
    improper just now is left for the next pass: the others move first.
    """
    d = mu.size
    u = np.empty(d)
    change = 0.0
    log_det = 0.0
    for n in range(x.size):
        if y[n] == GAUSSIAN or y[n] == LEFT_OUT:
            continue
        a, b, xn = ia[n], ib[n], x[n]
        s = xn * xn * Sigma[a, a] + 2.0 * xn * Sigma[a, b] + Sigma[b, b]
        f = xn * mu[a] + mu[b]
        keep = 1.0 - tau[n] * s
        if not (s > 0.0 and keep > 1e-10):
            change = max(change, 1.0)
            continue
        s_cav = s / keep
        mu_cav = (f - nu[n] * s) / keep
        g1, g2 = tilted_slopes(y[n], mu_cav, s_cav, guess, lapse)
        shrink = 1.0 + s_cav * g2
        if not shrink > 1e-12:
            change = max(change, 1.0)
            continue
        d_tau = -g2 / shrink - tau[n]
        d_nu = (g1 - mu_cav * g2) / shrink - nu[n]
        change = max(change, max(abs(d_tau) * s, abs(d_nu - d_tau * f) * math.sqrt(s)))
        step = damping
        while 1.0 + step * d_tau * s <= 1e-3 and step > 1e-6:
            step *= 0.5
        d_tau *= step
        d_nu *= step
        tau[n] += d_tau
        nu[n] += d_nu
        grow = 1.0 / (1.0 + d_tau * s)
        log_det -= math.log(grow)
        for k in range(d):
            u[k] = xn * Sigma[a, k] + Sigma[b, k]
        scale = d_tau * grow
        shift = (d_nu - d_tau * f) * grow
        for k in range(d):
            mu[k] += shift * u[k]
            w = scale * u[k]
            for j in range(d):
                Sigma[k, j] -= w * u[j]
    return change, log_det


@compiled
def invert(B):
    """B^-1 and log|B| by Gauss-Jordan elimination with row pivoting; B is used up.

    NaN for the log determinant where it is not positive. Plain loops instead of LAPACK: the
    matrices are small, and numba compiles everything again in every caller, so that what stands
    here decides how long a machine's first tone takes.
    """
    d = B.shape[0]
    inverse = np.zeros((d, d))
    for k in range(d):
        inverse[k, k] = 1.0
    log_det = 0.0
    sign = 1.0
    for k in range(d):
        best = k
        for j in range(k + 1, d):
            if abs(B[j, k]) > abs(B[best, k]):
                best = j
        if best != k:
            sign = -sign
            for c in range(d):
                B[k, c], B[best, c] = B[best, c], B[k, c]
                inverse[k, c], inverse[best, c] = inverse[best, c], inverse[k, c]
        pivot = B[k, k]
        if pivot < 0.0:
            sign = -sign
        log_det += math.log(abs(pivot))
        scale = 1.0 / pivot
        for c in range(d):
            B[k, c] *= scale
            inverse[k, c] *= scale
        for j in range(d):
            factor = B[j, k]
            if j != k and factor != 0.0:
                for c in range(d):
                    B[j, c] -= factor * B[k, c]
                    inverse[j, c] -= factor * inverse[k, c]
    return inverse, log_det if sign > 0.0 else math.nan


@compiled
def product(A, B):
    """A B, in plain loops (see `invert`); zeros of A cost nothing, so the sparse factor is A."""
    out = np.zeros((A.shape[0], B.shape[1]))
    for j in range(A.shape[0]):
        for k in range(A.shape[1]):
            a = A[j, k]
            if a != 0.0:
                for c in range(B.shape[1]):
                    out[j, c] += a * B[k, c]
    return out


@within
def kept(A, r, Sigma):
    """b = (I + A S)^-1 r and G = (I + A S)^-1 A, both by way of Sigma = (I + S A)^-1 S."""
    d = r.size
    AS = product(A, Sigma)
    b = r.copy()
    G = np.zeros((d, d))
    for k in range(d):
        for j in range(d):
            b[k] -= AS[k, j] * r[j]
            a = A[k, j]
            if a != 0.0:
                for c in range(d):
                    G[k, c] += a * AS[c, j]
        for c in range(d):
            G[k, c] = A[k, c] - G[k, c]
    return b, G


def run(m, S, ia, ib, x, y, gauss_tau, guess, lapse, tau, nu, tol):
    """EP to its fixed point from the given sites (changed in place): what `settle` returns."""
    return settle(m, S, ia, ib, x, y, gauss_tau, guess, lapse, tau, nu, tol, PATIENT)


@compiled
def run_always(m, S, ia, ib, x, y, gauss_tau, guess, lapse, tau, nu, tol, haste=HASTY):
    """As `run`, with an evidence also where lapses leave no fixed point, at a bounded cost.

    With lapses a step is tried as long as it comes nearer, in haste the undamped one alone; where
    none does, surprising answers are taken apart (`take_apart`). The sites then say so
    (`is_apart`), and from sites that do the attempt is left out: a search that comes back stays on
    one surface.
    """
    lapses = guess > 0.0 or lapse > 0.0
    if not is_apart(tau):
        log_Z, b, G, ok = settle(
            m, S, ia, ib, x, y, gauss_tau, guess, lapse, tau, nu, tol, haste if lapses else PATIENT
        )
        if ok or not lapses:
            return log_Z if ok else -np.inf, b, G, ok
    for n in range(x.size):
        tau[n] = math.nan
        nu[n] = 0.0
    return take_apart(m, S, ia, ib, x, y, gauss_tau, guess, lapse, tol)


@compiled
def is_apart(tau):
    """Whether these sites were left where answers had to be taken apart."""
    apart = False
    for t in tau:
        apart = apart or math.isnan(t)
    return apart


@within
def may_lapse(y, guess, lapse):
    """Whether this may be an answer that has nothing to do with its tone."""
    return (y == HEARD and guess > 0.0) or (y == MISSED and lapse > 0.0)


@within
def by_surprise(m, S, ia, ib, x, y, guess, lapse):
    """The answers that may be lapses, those that the others expect least first."""
    n = x.size
    mu, Sigma = m.copy(), S.copy()
    sweep(ia, ib, x, y, guess, lapse, 1.0, np.zeros(n), np.zeros(n), mu, Sigma)
    expected = np.empty(n)
    order = np.empty(n, np.int64)
    possible = 0
    for k in range(n):
        if not may_lapse(y[k], guess, lapse):
            continue
        a, c = ia[k], ib[k]
        s = x[k] * x[k] * Sigma[a, a] + 2.0 * x[k] * Sigma[a, c] + Sigma[c, c]
        expected[k] = y[k] * (x[k] * mu[a] + mu[c]) / math.sqrt(1.0 + max(s, 0.0))
        place = possible
        while place > 0 and expected[order[place - 1]] > expected[k]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = k
        possible += 1
    return order[:possible]


@compiled
def take_once(m, S, ia, ib, x, y, gauss_tau, guess, lapse):
    """log_Z, b and G by one pass over the answers, the least surprising first."""
    d = m.size
    n = x.size
    mu, Sigma = m.copy(), S.copy()
    tau, nu = np.zeros(n), np.zeros(n)
    u = np.empty(d)
    log_Z = 0.0
    order = by_surprise(m, S, ia, ib, x, y, guess, lapse)
    for turn in range(n + order.size):  # those that are no lapses, then the others
        k = turn if turn < n else order[n + order.size - 1 - turn]
        if y[k] == LEFT_OUT or (turn < n and may_lapse(y[k], guess, lapse)):
            continue
        a, c = ia[k], ib[k]
        s = x[k] * x[k] * Sigma[a, a] + 2.0 * x[k] * Sigma[a, c] + Sigma[c, c]
        f = x[k] * mu[a] + mu[c]
        if y[k] == GAUSSIAN:
            tau[k] = gauss_tau[k]
            spread = s + 1.0 / tau[k]
            log_Z -= 0.5 * (math.log(spread) + f * f / spread) + math.log(SQRT_2PI)
            g1, g2 = -f / spread, -1.0 / spread
        else:
            log_Z += log_tilted(y[k], f, s, guess, lapse)
            g1, g2 = tilted_slopes(y[k], f, s, guess, lapse)
            tau[k] = -g2 / (1.0 + s * g2)
            nu[k] = (g1 - f * g2) / (1.0 + s * g2)
        for j in range(d):
            u[j] = x[k] * Sigma[a, j] + Sigma[c, j]
        for j in range(d):
            mu[j] += g1 * u[j]
            for i in range(d):
                Sigma[j, i] += g2 * u[j] * u[i]
    A = np.empty((d, d))
    r = np.empty(d)
    assemble(m, ia, ib, x, tau, nu, A, r)
    b, G = kept(A, r, Sigma)
    return log_Z, b, G


@inlined
def take_apart(m, S, ia, ib, x, y, gauss_tau, guess, lapse, tol):
    """As `settle` returns it, with the most surprising answers taken apart, as few as will do.

    Evidences of the parts add up; b and G of the sum are those of a mixture, so that both are
    still its derivatives: b = sum v b_c and G = sum v G_c - Cov_v(b_c). Where even the most that
    are taken apart leave parts that do not settle, those are taken in once, and it counts as not
    settled if they matter. A coarse tolerance, of a search, takes one answer apart at most.
    """
    d, n = m.size, x.size
    order = by_surprise(m, S, ia, ib, x, y, guess, lapse)
    most = min(MOST_APART if tol <= TOLERANCE else 1, order.size)
    count = min(1, most)
    answers = np.empty(n, np.int64)
    log_Z = np.empty(1 << most)
    bs = np.empty((1 << most, d))
    Gs = np.empty((1 << most, d * d))
    rough = np.empty(1 << most)
    c = 0
    while c < 1 << count:
        for k in range(n):
            answers[k] = y[k]
        constant = 0.0
        for j in range(count):
            k = order[j]
            if (c >> j) & 1:
                answers[k] = LEFT_OUT
                constant += math.log(guess if y[k] == HEARD else lapse)
            else:
                answers[k] = SURE * y[k]
        value, b, G, ok = settle(
            m, S, ia, ib, x, answers, gauss_tau, guess, lapse, np.zeros(n), np.zeros(n), tol, HASTY
        )
        if not ok:
            if count < most:
                count += 1
                c = 0
                continue
            value, b, G = take_once(m, S, ia, ib, x, answers, gauss_tau, guess, lapse)
        log_Z[c] = value + constant
        rough[c] = 0.0 if ok else 1.0
        for j in range(d):
            bs[c, j] = b[j]
            for k in range(d):
                Gs[c, j * d + k] = G[j, k]
        c += 1
    top = -np.inf
    for c in range(1 << count):
        top = max(top, log_Z[c])
    total = 0.0
    for c in range(1 << count):
        total += math.exp(log_Z[c] - top)
    doubtful = 0.0
    b = np.zeros(d)
    G = np.zeros((d, d))
    for c in range(1 << count):
        share = math.exp(log_Z[c] - top) / total
        doubtful += rough[c] * share
        for j in range(d):
            b[j] += share * bs[c, j]
    for c in range(1 << count):
        share = math.exp(log_Z[c] - top) / total
        for j in range(d):
            for k in range(d):
                spread = (bs[c, j] - b[j]) * (bs[c, k] - b[k])
                G[j, k] += share * (Gs[c, j * d + k] - spread)
    return top + math.log(total), b, G, doubtful < MOST_DOUBTFUL


@compiled
def settle(m, S, ia, ib, x, y, gauss_tau, guess, lapse, tau, nu, tol, haste):
    """EP to its fixed point from the given sites (changed in place).

    Returns log_Z, b, G, converged, where for any latent with cross-covariance S_* to z
    the posterior mean is m_* + S_*' b and the posterior covariance S_** - S_*' G S_*;
    b is also dlog_Z/dm, and (b b' - G)/2 is dlog_Z/dS (at the fixed point).

    Without patience a step of `DAMPINGS` is given up that does not come nearer: the sign that there
    is no fixed point, which only lapses can bring about. In haste the first one alone is tried.
    """
    d = m.size
    n_rows = x.size
    A = np.empty((d, d))
    r = np.empty(d)
    empty = True
    for n in range(n_rows):
        if y[n] == GAUSSIAN:
            tau[n] = gauss_tau[n]
            nu[n] = 0.0
        empty &= tau[n] == 0.0 and nu[n] == 0.0

    converged = False
    rounds = 0
    log_det = 0.0
    last = np.inf
    Sigma = S.copy()
    mu = m.copy()
    attempt = 0
    while not converged:
        if rounds == ROUNDS[attempt]:
            attempt += 1
            if attempt == len(DAMPINGS) or haste == HASTY:
                break
            rounds = 0
            last = np.inf
            empty = False
            for n in range(n_rows):
                if y[n] != GAUSSIAN:
                    tau[n] = 0.0
                    nu[n] = 0.0
        if rounds > 0 or not empty:
            # The posterior of the sites as they are; this also removes the rounding that rank-one
            # updates collect.
            assemble(m, ia, ib, x, tau, nu, A, r)
            B = product(A, S)
            for k in range(d):
                B[k, k] += 1.0
            inverse, log_det = invert(B)
            Sigma = product(S, inverse)
            for k in range(d):
                mu[k] = m[k]
                for j in range(d):
                    mu[k] += Sigma[k, j] * r[j]
        for number in range(SWEEPS):
            change, growth = sweep(
                ia, ib, x, y, guess, lapse, DAMPINGS[attempt], tau, nu, mu, Sigma
            )
            log_det += growth
            if change < tol:
                converged = True
                break
            if haste == HASTY and rounds == 0 and number == SOON - 1 and change > FAR:
                break
        rounds += 1
        if haste == HASTY and not change < min(FAR, NEARER * last):
            rounds = ROUNDS[attempt]
        if haste == BRISK and rounds > 1 and not change < STAGNANT * last:
            rounds = ROUNDS[attempt]
        last = change

    assemble(m, ia, ib, x, tau, nu, A, r)
    b, G = kept(A, r, Sigma)
    log_Z = -0.5 * log_det
    for k in range(d):
        log_Z += 0.5 * r[k] * (mu[k] - m[k])
    ok = True
    for n in range(n_rows):
        if y[n] == LEFT_OUT:
            continue
        a, k, xn, t = ia[n], ib[n], x[n], tau[n]
        m_n = xn * m[a] + m[k]
        log_Z += nu[n] * m_n - 0.5 * t * m_n * m_n
        if y[n] == GAUSSIAN:
            log_Z += 0.5 * math.log(t) - math.log(SQRT_2PI)
            continue
        s = xn * xn * Sigma[a, a] + 2.0 * xn * Sigma[a, k] + Sigma[k, k]
        f = xn * mu[a] + mu[k]
        keep = 1.0 - t * s
        if not (s > 0.0 and keep > 0.0):
            ok = False
            continue
        s_cav = s / keep
        mu_cav = (f - nu[n] * s) / keep
        log_site = log_tilted(y[n], mu_cav, s_cav, guess, lapse)
        # Divide out what the Gaussian site itself integrates to against the same cavity.
        grow = 1.0 + t * s_cav
        quad = s_cav * nu[n] * nu[n] + 2.0 * nu[n] * mu_cav - t * mu_cav * mu_cav
        log_Z += log_site + 0.5 * math.log(grow) - 0.5 * quad / grow
    return log_Z, b, G, converged and ok and math.isfinite(log_Z)


@dataclass(frozen=True)
class Posterior:
    """The Gaussian that EP puts in place of the posterior of the latents.

    Attributes:
        mean: of the latents.
        cov: of the latents.
        log_evidence: of the answers, in nats.
        converged: whether the sites settled.
        grad_mean: derivative of the log evidence in the prior mean.
        grad_cov: derivative in the prior covariance, all entries taken as independent.
    """

    mean: Array
    cov: Array
    log_evidence: float
    converged: bool
    grad_mean: Array
    grad_cov: Array


def fit(
    prior_mean: ArrayLike,
    prior_cov: ArrayLike,
    heard: ArrayLike,
    guess: float = 0.0,
    lapse: float = 0.0,
) -> Posterior:
    """Posterior of latents f ~ N(prior_mean, prior_cov), one yes/no answer for each.

    P(heard | f) = guess + (1 - guess - lapse) Phi(f). Without answers the prior comes back.
    """
    mean = np.array(prior_mean, dtype=float)
    cov = np.array(prior_cov, dtype=float)
    answers = np.asarray(heard)
    n = mean.size
    if mean.ndim != 1 or cov.shape != (n, n) or answers.shape != (n,):
        raise Refusal(
            "ep.fit needs prior_mean of length n, prior_cov n x n and n answers; "
            f"got shapes {mean.shape}, {cov.shape} and {answers.shape}"
        )
    if not (np.isfinite(mean).all() and np.isfinite(cov).all()):
        raise Refusal("ep.fit needs a finite prior mean and covariance")
    if not np.allclose(cov, cov.T, rtol=1e-8, atol=1e-10):
        raise Refusal("ep.fit needs a symmetric prior covariance")
    if not np.isin(answers, (0, 1)).all():
        raise Refusal("ep.fit needs answers that are True/False or 1/0")
    check_rates(guess, lapse)
    if n == 0:
        return Posterior(mean, cov, 0.0, True, np.zeros(0), np.zeros((0, 0)))
    y = np.where(answers.astype(bool), HEARD, MISSED).astype(np.int64)
    index = np.arange(n)
    zeros = np.zeros(n)
    log_Z, b, G, converged = run(
        mean, cov, np.zeros(n, np.int64), index, zeros, y, zeros,
        float(guess), float(lapse), np.zeros(n), np.zeros(n), TOLERANCE,
    )  # fmt: skip
    return Posterior(
        mean=mean + cov @ b,
        cov=cov - cov @ G @ cov,
        log_evidence=float(log_Z),
        converged=bool(converged),
        grad_mean=b,
        grad_cov=0.5 * (np.outer(b, b) - G),
    )
