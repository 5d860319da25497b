"""The fields of both ears of a person, tied by the paper's conjoint kernel (method.md, section 4).

K_t x K with one K for both ears; the correlation between them is marginalised on a grid. An answer
belongs to the ear it was given for; the other ear only learns what the tie says.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from earshift.engine.answers import Answers, answers_of
from earshift.engine.compiled import compiled, compiling
from earshift.engine.domain import Domain
from earshift.engine.evidence import Rates, mixture_weights
from earshift.engine.field import Field, fit_theta
from earshift.engine.norms import Hyperprior
from earshift.engine.tone import Trial
from earshift.engine.values import EARS

Array = NDArray[np.float64]

# The correlations between the ears that are averaged over, all as likely before the first tone, and
# the one at which the hyperparameters are fitted: one fit a tone, not one for every correlation.
# Chosen on the tuning half of the people (docs/method.md).
CORRELATIONS = np.linspace(0.05, 0.95, 7)
FITTED_AT = 0.5
TOLERANCE = 1e-6  # of EP at each correlation


def answers_of_both(trials: Sequence[Trial], domain: Domain) -> Answers:
    """Trials of both ears in model units, the left ear's places counted on from the right one's."""
    answers = answers_of(trials, domain)
    left = np.array([trial.tone.ear == "left" for trial in trials], dtype=np.int64)
    return replace(answers, place=answers.place + left * answers.places.shape[0])


def fit_ears(answers: Answers, prior: Hyperprior, guess: float, lapse: float) -> dict[str, Field]:
    """Both ears' fields under the conjoint kernel, the correlation marginalised.

    The ears share theta. At every correlation the posterior of either ear is a field on the places
    played, and a mixture of such fields has the mean and covariance of one field again: with
    weights v_j, b = sum v_j b_j and G = sum v_j G_j - Cov_v(b_j). So each ear comes out as an
    ordinary `Field`, exact in its first two moments.
    """
    with compiling("exam"):
        fitted = fit_theta(answers, prior, Rates(guess, lapse), FITTED_AT)
        parts = [fitted.at(between, TOLERANCE) for between in CORRELATIONS]
    one = answers.places.shape[0] + 1
    log_Z = np.array([value if ok else -np.inf for value, _, _, ok in parts])
    bs = np.zeros((CORRELATIONS.size, 2 * one))
    Gs = np.zeros((CORRELATIONS.size, 2 * one, 2 * one))
    settled = bool(np.isfinite(log_Z).any())
    if settled:
        for j, (_, b, G, _) in enumerate(parts):
            # Before the left ear's first answer EP knows of the right one only: zeros are left.
            bs[j, : b.size], Gs[j, : b.size, : b.size] = b, G
    else:  # no fixed point anywhere: the prior, and it says so
        log_Z = np.zeros(CORRELATIONS.size)
    weights, log_evidence = mixture_weights(log_Z, CORRELATIONS.size)
    mean_b, mixed_G = mixed_ears(weights, CORRELATIONS, bs, Gs)
    return {
        ear: Field(
            theta=fitted.theta,
            slope_mean=prior.slope_mean,
            places=answers.places,
            b=mean_b[number],
            G=mixed_G[number],
            log_evidence=log_evidence,
            converged=fitted.settled and settled,
            guess=guess,
            lapse=lapse,
        )
        for number, ear in enumerate(EARS)
    }


@compiled
def mixed_ears(weights, between, bs, Gs):
    """b and G of the right and the left ear's field, the correlations averaged.

    At one correlation r, with e the ear and o the other, b = b_e + r b_o and
    G = G_ee + r (G_eo + G_oe) + r^2 G_oo.
    """
    one = bs.shape[1] // 2
    mean = np.zeros((2, one))
    out = np.zeros((2, one, one))
    for ear in range(2):
        e, o = ear * one, (1 - ear) * one
        for j in range(weights.size):
            for p in range(one):
                mean[ear, p] += weights[j] * (bs[j, e + p] + between[j] * bs[j, o + p])
        for j in range(weights.size):
            v, r = weights[j], between[j]
            for p in range(one):
                apart = v * (bs[j, e + p] + r * bs[j, o + p] - mean[ear, p])
                for q in range(one):
                    across = Gs[j, e + p, o + q] + Gs[j, o + p, e + q]
                    G = Gs[j, e + p, e + q] + r * (across + r * Gs[j, o + p, o + q])
                    gap = bs[j, e + q] + r * bs[j, o + q] - mean[ear, q]
                    out[ear, p, q] += v * G - apart * gap
    return mean, out
