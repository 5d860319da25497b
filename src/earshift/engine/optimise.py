"""Hyperparameters at their most probable value (method.md, sections 2 and 5).

They are MAP under a Gaussian hyperprior. The optimiser works in coordinates in which that
hyperprior is a standard normal and starts at points fixed by the trials alone. It is written here
because a call into a general optimiser costs more than the whole fit of a screen's step does.
"""

import math

import numpy as np

from earshift.engine import ep
from earshift.engine.compiled import compiled
from earshift.engine.evidence import Sites, evidence

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


@compiled
def at(prior, u):
    """theta = centre + chol u."""
    theta = prior.centre.copy()
    for p in range(u.size):
        for q in range(p + 1):
            theta[p] += prior.chol[p, q] * u[q]
    return theta


@compiled
def log_posterior(u, rhos, prior, reference, rows, rates, sites, tol):
    """log [mean_j p(answers | theta, rho_j)] - |u|^2 / 2 at theta = centre + chol u, with gradient.

    The normalisation of the hyperprior is left out: it is the same for all theta. `sites` has a
    row for every rho.
    """
    size = u.size
    theta = at(prior, u)
    n_rho = rhos.size
    log_Z = np.empty(n_rho)
    grads = np.empty((n_rho, size))
    top = -np.inf
    for j in range(n_rho):
        value, slope, _, _, _ = evidence(
            theta, rhos[j], reference, rows, rates, Sites(sites.tau[j], sites.nu[j]), tol
        )
        log_Z[j] = value if math.isfinite(value) else -np.inf
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
                    grad[p] += prior.chol[q, p] * grads[j, q] * math.exp(log_Z[j] - top) / total
    return value, grad


@compiled
def maximise(u, H, rhos, prior, reference, rows, rates, sites):
    """BFGS ascent of `log_posterior` from u with inverse Hessian H; both are changed in place.

    Returns whether the gradient vanished. EP sites are carried from step to step.
    """
    size = u.size
    trial = u.copy()
    step = np.zeros(size)
    grad = np.zeros(size)
    fall = np.zeros(size)
    value, scale, rise = -np.inf, 0.0, 0.0
    steps, shrinks, evaluations, apart = 0, 0, 0, 0
    short = reference.b.size > 0 and (rates.guess > 0.0 or rates.lapse > 0.0)
    most = MAX_EVALUATIONS_LAPSES if short else MAX_EVALUATIONS
    most_shrinks = MAX_SHRINKS_LAPSES if short else MAX_SHRINKS
    while True:
        evaluations += 1
        new_value, new_grad = log_posterior(
            trial, rhos, prior, reference, rows, rates, sites, SEARCH_TOLERANCE
        )
        if steps == 0 and new_value == -np.inf:
            return False
        # Where answers had to be taken apart since, the evidence is another function from here on:
        # the old value and curvature do not count.
        now_apart = 0
        for j in range(rhos.size):
            now_apart += ep.is_apart(sites.tau[j])
        other = now_apart != apart and new_value > -np.inf
        apart = now_apart
        if short and apart > 0:
            most = MAX_EVALUATIONS_APART
        # The small allowance is EP's own tolerance: below it a rise cannot be seen.
        if not (other or new_value >= value + 1e-4 * scale * rise - 1e-7):
            shrinks += 1
            if shrinks == most_shrinks or evaluations >= most:
                return largest(grad) < GRADIENT_ENOUGH
            scale *= 0.4
            for p in range(size):
                trial[p] = u[p] + scale * step[p]
            continue
        if steps > 0 and not other:
            for p in range(size):
                fall[p] = grad[p] - new_grad[p]
                step[p] *= scale
            bfgs(H, step, fall)
        for p in range(size):
            u[p] = trial[p]
            grad[p] = new_grad[p]
        value = new_value
        if largest(grad) < (GRADIENT_ENOUGH if short and apart > 0 else GRADIENT_TOLERANCE):
            return True
        steps += 1
        if steps > MAX_STEPS or evaluations >= most:
            return short and largest(grad) < GRADIENT_ENOUGH
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


@compiled
def largest(v):
    """The largest absolute entry."""
    out = 0.0
    for p in range(v.size):
        out = max(out, abs(v[p]))
    return out


@compiled
def along(H, grad, step):
    """Write the step H grad and return the rise per unit of it, grad' H grad."""
    rise = 0.0
    for p in range(grad.size):
        step[p] = 0.0
        for q in range(grad.size):
            step[p] += H[p, q] * grad[q]
        rise += grad[p] * step[p]
    return rise


@compiled
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
