"""How often EP has no fixed point with lapses, and what is done then: `ep_lapses.py EARS`.

Random histories of 5 to 30 tones at 0, 1, 2 and 5 % lapses (half as many guesses): real ears of the
tuning half, each against itself or another one, tones anywhere on the grid. For each of them the
alternative of `best-0.1` (ten correlations), of `best` (eight shifts) and M_f. Prints a table in
Markdown: states without a fixed point, those of which more than 1 % is still without one after
answers are taken apart, the error of the evidence against importance sampling, and the time of
EP and of a screen's whole step.
"""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from earshift.engine import ep, kernels
from earshift.engine.answers import Answers, answers_of
from earshift.engine.change import Hypothesis, conjoint, same
from earshift.engine.domain import DOMAINS
from earshift.engine.evidence import conditioned_prior
from earshift.engine.exam import Exam
from earshift.engine.field import Field
from earshift.engine.norms import hyperprior
from earshift.engine.protocol import PROTOCOLS
from earshift.engine.shifted import (
    KINDS,
    Shifted,
    ShiftPrior,
    misfit_covariance,
    moved,
    shift_prior,
    shifted,
    slope_of,
)
from earshift.engine.tone import Trial
from earshift.simulate.listener import Listener
from earshift.simulate.run import run
from earshift.studies.case import Ear
from earshift.studies.ears import read_ears
from earshift.studies.markdown import table

Array = NDArray[np.float64]
DOMAIN = DOMAINS["fine"]
LAPSES = (0.0, 0.01, 0.02, 0.05)
DRAWS = 100_000


def listener(ear: Ear, lapse: float, seed: int) -> Listener:
    return Listener(dict(ear.thresholds_db_hl), seed=seed, lapse=lapse, guess=lapse / 2)


def references(ears: list[Ear], lapse: float) -> list[Field]:
    out = []
    for ear in ears:
        exam = Exam(seed=3, max_tones=50, domain=DOMAIN, guess=lapse / 2, lapse=lapse)
        run(exam, listener(ear, lapse, 4))
        out.append(exam.field)
    return out


def history(ear: Ear, lapse: float, rng: np.random.Generator) -> Answers:
    """5 to 30 tones anywhere, answered by this ear."""
    answer = listener(ear, lapse, int(rng.integers(1 << 30)))
    tones = [
        DOMAIN.tone(int(rng.integers(DOMAIN.shape[0])), int(rng.integers(DOMAIN.shape[1])))
        for _ in range(int(rng.integers(5, 31)))
    ]
    return answers_of([Trial(tone, answer(tone)) for tone in tones], DOMAIN)


def sampled(m: Array, S: Array, answers: Answers, field: Field) -> tuple[float, float]:
    """Log evidence by plain Monte Carlo from the prior, and its standard error."""
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(S + 1e-10 * np.eye(m.size) * np.diag(S).max())
    z = m + rng.standard_normal((DRAWS, m.size)) @ root.T
    f = z[:, :1] * answers.intensity + z[:, answers.place + 1]
    heard = answers.answer == ep.HEARD
    floor = np.where(heard, field.guess, field.lapse)
    p = floor + (1 - field.guess - field.lapse) * ndtr(np.where(heard, f, -f))
    log_w = np.log(p).sum(axis=1)
    top = log_w.max()
    w = np.exp(log_w - top)
    return top + math.log(w.mean()), float(w.std() / w.mean() / math.sqrt(DRAWS))


def shifts_of_best() -> ShiftPrior:
    best = PROTOCOLS["best"]
    return shift_prior(best.rough_share, DOMAIN.places, best.rough_size)


def least_seconds(work: Callable[[], object]) -> float:
    """Processor time of some work, the least of three: another program's interruptions aside."""
    taken = []
    for _ in range(3):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


def priors_of(field: Field, answers: Answers) -> dict[str, list[tuple[Array, Array]]]:
    """Prior mean and covariance of the latents of every component of both alternatives."""
    protocol = replace(PROTOCOLS["best-0.1"], guess=field.guess, lapse=field.lapse)
    fitted = conjoint(field, answers, protocol, hyperprior())
    gaps = kernels.squared_gaps(answers.places, answers.places)
    reference = field.as_reference(answers.places)
    conjoints = [
        conditioned_prior(theta, rho, reference, gaps)[:2]
        for theta, rho in zip(fitted.thetas, fitted.rhos, strict=True)
    ]
    prior = shifts_of_best()
    mean, cov = field.latent(answers.places)
    k = slope_of(mean)
    shifts = []
    for m, number in zip(moved(mean, prior.sizes, k), prior.kind, strict=True):
        kind, S = KINDS[number], cov.copy()
        S[1:, 1:] += k**2 * misfit_covariance(
            answers.places, answers.places, prior.middle, kind.sd, kind.length, kind.tilt
        )
        shifts.append((m, S))
    return {"best-0.1": conjoints, "best": shifts, "M_f": [(mean, cov)]}


def evidence_of(
    m: Array, S: Array, answers: Answers, field: Field, *, apart: bool
) -> tuple[float, bool]:
    """Log evidence by EP, and whether it settled; `apart` also where it does not by itself."""
    n = answers.count
    value, _, _, ok = (ep.run_always if apart else ep.run)(
        m, S, np.zeros(n, np.int64), answers.place + 1, answers.intensity, answers.answer,
        answers.gauss_tau, field.guess, field.lapse, np.zeros(n), np.zeros(n), ep.TOLERANCE,
    )  # fmt: skip
    return float(value), bool(ok)


def at_as_many(tones: Array, seconds: Array) -> Array:
    """Each time over the median of those at as many tones, give or take two."""
    usual = {n: np.median(seconds[np.abs(tones - n) <= 2]) for n in np.unique(tones)}
    return seconds / np.array([usual[n] for n in tones])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ears", type=Path)
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--sampled", type=int, default=40, help="states compared with sampling")
    given = parser.parse_args()
    rng = np.random.default_rng(1)
    groups = read_ears(given.ears, "tuning")
    ears = [group[int(rng.integers(len(group)))] for group in groups.values() for _ in range(2)]
    known = {lapse: references(ears, lapse) for lapse in LAPSES}
    prior = shifts_of_best()
    states = {(what, lapse): [0, 0, 0] for what in ("best-0.1", "best", "M_f") for lapse in LAPSES}
    seconds: dict[tuple[str, float], list[tuple[int, float, float]]] = {key: [] for key in states}
    errors: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for number in range(given.histories):
        lapse = LAPSES[number % len(LAPSES)]
        which = int(rng.integers(len(ears)))
        field = known[lapse][which]
        new = ears[which] if rng.random() < 0.5 else ears[int(rng.integers(len(ears)))]
        answers = history(new, lapse, rng)
        protocol = replace(PROTOCOLS["best-0.1"], guess=field.guess, lapse=field.lapse)
        fits: dict[str, Callable[[], Hypothesis | Shifted]] = {
            "best-0.1": partial(conjoint, field, answers, protocol, hyperprior()),
            "best": partial(shifted, field, answers, prior),
            "M_f": partial(same, field, answers),
        }
        unchanged = 0.0
        for what in ("M_f", "best-0.1", "best"):
            fit = fits[what]
            inside = least_seconds(fit)
            found = fit()
            levels = DOMAIN.intensities
            whole = inside + least_seconds(partial(found.p_heard, DOMAIN.places, levels))
            if what == "M_f":
                unchanged = whole
            else:
                whole += unchanged
            seconds[what, lapse].append((answers.count, inside, whole))
        for what, parts in priors_of(field, answers).items():
            count = states[what, lapse]
            lost = [p for p in parts if not evidence_of(*p, answers, field, apart=False)[1]]
            count[0] += len(parts)
            count[1] += len(lost)
            for m, S in lost:
                value, ok = evidence_of(m, S, answers, field, apart=True)
                count[2] += not ok
                if len(errors[ok]) < given.sampled:
                    truth, error = sampled(m, S, answers, field)
                    if error < 0.1:
                        errors[ok].append((value - truth, truth))
    rows = []
    for (what, lapse), (total, without, left) in states.items():
        taken = np.array(seconds[what, lapse][20:])  # the first ones compile
        ratios = [at_as_many(taken[:, 0], taken[:, column]) for column in (1, 2)]
        rows.append([
            what, f"{lapse:.0%}", str(total), f"{without} ({without / total:.2%})", str(left),
            f"{1e3 * np.median(taken[:, 1]):.2f}", f"{np.quantile(ratios[0], 0.999):.1f}",
            f"{ratios[0].max():.1f}", f"{1e3 * np.median(taken[:, 2]):.2f}",
            f"{ratios[1].max():.1f}",
        ])  # fmt: skip
    columns = (
        "hypothesis", "lapses", "states", "without a fixed point", "still without",
        "EP, median ms", "99.9 % quantile of EP / median at as many tones", "largest",
        "whole step, median ms", "largest / median at as many tones",
    )  # fmt: skip
    print(f"## EP with lapses: {given.histories} random histories\n")
    print(
        f"Written by `studies/ep_lapses.py --histories {given.histories}`, not edited by hand. "
        "Tones anywhere on the grid, so that many answers refute a component outright; a screen "
        "chooses its tones and meets this less often. A state is one component of a hypothesis, "
        "left as a screen's fit leaves it. A whole step is EP of M_f and of the alternative and "
        "what both expect of every tone; times are the least of three.\n"
    )
    print("\n".join(table(columns, rows)))
    for ok, found in errors.items():
        if found:
            gaps, truths = np.array(found).T
            print(
                f"\n{gaps.size} states {'taken apart' if ok else 'taken in once'}, against {DRAWS} "
                f"draws: error of the log evidence {np.median(np.abs(gaps)):.2f} nats in the "
                f"median, {np.quantile(np.abs(gaps), 0.9):.2f} at the 90 % quantile, at most "
                f"{np.abs(gaps).max():.2f}; log evidence there {np.median(truths):.0f} in the "
                f"median, {truths.max():.0f} at most."
            )


if __name__ == "__main__":
    main()
