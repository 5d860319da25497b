"""Hyperparameters at their most probable value (method.md, sections 2 and 5).

They are MAP under a Gaussian hyperprior. The optimiser works in coordinates in which that
hyperprior is a standard normal and starts at points fixed by the trials alone. It is written here
because a call into a general optimiser costs more than the whole fit of a screen's step does.
"""

import math

import numpy as np
from numpy.typing import NDArray

from earshift.engine import ep
from earshift.engine.compiled import compiled, inlined, within
from earshift.engine.evidence import Rates, Reference, Rows, Sites, evidence
from earshift.engine.norms import Whitened

Array = NDArray[np.float64]

SEARCH_TOLERANCE = 1e-5  # EP, while the hyperparameters are still moving
GRADIENT_TOLERANCE = 2e-4  # in the hyperprior's standard deviations
# A search that was cut short is good enough here: the evidence is then off by some 1e-4 nats.
GRADIENT_ENOUGH = 2e-2
MAX_STEPS = 60
MAX_EVALUATIONS, MAX_SHRINKS = 120, 25  # most fits need about a dozen evaluations
# With lapses the evidence may have small jumps, at which a search would go on until its end; a
# screen does not wait for it.
MAX_EVALUATIONS_LAPSES, MAX_SHRINKS_LAPSES = 20, 6
MAX_EVALUATIONS_APART = 8  # where answers are taken apart, which makes each of them dear
HESSIAN_STEP = 2e-3  # in the hyperprior's standard deviations
HESSIAN_TOLERANCE = 1e-6  # of EP, for these differences
NO_HESSIAN = np.empty((0, 0))


@compiled
def at(prior, u):
    """theta = centre + chol u."""
    theta = prior.centre.copy()
    for p in range(u.size):
        for q in range(p + 1):
            theta[p] += prior.chol[p, q] * u[q]
    return theta


@inlined
def log_posterior(u, rhos, prior, reference, rows, rates, sites, tol):
    """log [mean_j p(answers | theta, rho_j)] - |u|^2 / 2 at theta = centre + chol u, with gradient.

    The normalisation of the hyperprior is left out: it is the same for all theta. `sites` has a
    row for every rho. What `evidence` returns at the last rho follows.
    """
    size = u.size
    theta = at(prior, u)
    n_rho = rhos.size
    log_Z = np.empty(n_rho)
    grads = np.empty((n_rho, size))
    top = -np.inf
    for j in range(n_rho):
        one, slope, b, G, ok = evidence(
            theta, rhos[j], reference, rows, rates, Sites(sites.tau[j], sites.nu[j]), tol
        )
        log_Z[j] = one if math.isfinite(one) else -np.inf
        top = max(top, log_Z[j])
        for p in range(size):
            grads[j, p] = slope[p]
    grad = np.zeros(size)
    value = -np.inf
    if top > -np.inf:
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
                        grad[p] += prior.chol[q, p] * grads[j, q] * math.exp(log_Z[j] - top) / total
    return value, grad, (one, slope, b, G, ok)


@compiled
def search(climb, u, H, rhos, prior, reference, rows, rates, sites, tol, hessian):
    """BFGS ascent of `log_posterior` from u with inverse Hessian H; both are changed in place.

    Then minus the Hessian at the end, by differences of the gradient, if `hessian` has room for it.
    Returns whether the gradient vanished, and what `evidence` said last: if nothing is climbed and
    no Hessian asked for, the evidence at u. EP sites are carried from step to step.

    All that is fitted comes through here, by one call of `evidence`: each further one, and each
    other compiled function above it, would have numba compile all of EP once more.
    """
    size = u.size
    trial = u.copy()
    step = np.zeros(size)
    grad = np.zeros(size)
    fall = np.zeros(size)
    value, scale, rise = -np.inf, 0.0, 0.0
    steps, shrinks, evaluations, apart, column = 0, 0, 0, 0, 0
    short = reference.b.size > 0 and rates is not None
    most = MAX_EVALUATIONS_LAPSES if short else MAX_EVALUATIONS
    most_shrinks = MAX_SHRINKS_LAPSES if short else MAX_SHRINKS
    found, ended = False, False
    while True:
        new_value, new_grad, last = log_posterior(
            trial, rhos, prior, reference, rows, rates, sites, tol
        )
        if not climb:
            for p in range(size):
                trial[p] = u[p]
                if column == 0:
                    grad[p] = new_grad[p]
                else:
                    hessian[column - 1, p] = (grad[p] - new_grad[p]) / HESSIAN_STEP
            if column == hessian.shape[0]:
                return found, last
            trial[column] += HESSIAN_STEP
            column += 1
            continue
        evaluations += 1
        # Where answers had to be taken apart since, the evidence is another function from here on:
        # the old value and curvature do not count.
        now_apart = 0
        for j in range(rhos.size):
            now_apart += ep.is_apart(sites.tau[j])
        other = now_apart != apart and new_value > -np.inf
        apart = now_apart
        if short and apart > 0:
            most = MAX_EVALUATIONS_APART
        if steps == 0 and new_value == -np.inf:
            ended = True
        # The small allowance is EP's own tolerance: below it a rise cannot be seen.
        elif not (other or new_value >= value + 1e-4 * scale * rise - 1e-7):
            shrinks += 1
            scale *= 0.4
            if shrinks == most_shrinks or evaluations >= most:
                ended, found = True, largest(grad) < GRADIENT_ENOUGH
        else:
            if steps > 0 and not other:
                for p in range(size):
                    fall[p] = grad[p] - new_grad[p]
                    step[p] *= scale
                bfgs(H, step, fall)
            for p in range(size):
                u[p] = trial[p]
                grad[p] = new_grad[p]
            value = new_value
            steps += 1
            if largest(grad) < (GRADIENT_ENOUGH if short and apart > 0 else GRADIENT_TOLERANCE):
                ended, found = True, True
            elif steps > MAX_STEPS or evaluations >= most:
                ended, found = True, short and largest(grad) < GRADIENT_ENOUGH
            else:
                rise = along(H, grad, step)
                if not rise > 0.0:
                    for p in range(size):
                        for q in range(size):
                            H[p, q] = 1.0 if p == q else 0.0
                    rise = along(H, grad, step)
                # No more than two prior SDs at once: far outside, the evidence is flat and
                # misleading.
                length = 0.0
                for p in range(size):
                    length += step[p] * step[p]
                scale = min(1.0, 2.0 / math.sqrt(length))
                shrinks = 0
        for p in range(size):
            trial[p] = u[p] if ended else u[p] + scale * step[p]
        if ended:
            if hessian.size == 0:
                return found, last
            climb = False
            tol = HESSIAN_TOLERANCE


@within
def largest(v):
    """The largest absolute entry."""
    out = 0.0
    for p in range(v.size):
        out = max(out, abs(v[p]))
    return out


@within
def along(H, grad, step):
    """Write the step H grad and return the rise per unit of it, grad' H grad."""
    rise = 0.0
    for p in range(grad.size):
        step[p] = 0.0
        for q in range(grad.size):
            step[p] += H[p, q] * grad[q]
        rise += grad[p] * step[p]
    return rise


@within
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


def maximise(
    u: Array,
    H: Array,
    rhos: Array,
    prior: Whitened,
    reference: Reference,
    rows: Rows,
    rates: Rates | None,
    sites: Sites,
    hessian: Array = NO_HESSIAN,
) -> bool:
    """Move u to the mode and H with it, as `search` does; whether it was found."""
    given = rhos, prior, reference, rows, rates, sites
    return bool(search(True, u, H, *given, SEARCH_TOLERANCE, hessian)[0])


def evidence_at(
    theta: Array,
    rho: float,
    reference: Reference,
    rows: Rows,
    rates: Rates | None,
    sites: Sites,
    tol: float = ep.TOLERANCE,
) -> tuple[float, Array, Array, Array, bool]:
    """What `evidence` says of these hyperparameters; the sites are changed in place."""
    size = theta.size
    here = Whitened(theta, np.zeros((size, size)))
    both = Sites(sites.tau[None], sites.nu[None])
    given = np.array([rho]), here, reference, rows, rates, both
    _, (log_Z, grad, b, G, ok) = search(
        False, np.zeros(size), NO_HESSIAN, *given, float(tol), NO_HESSIAN
    )
    return log_Z, grad, b, G, ok
