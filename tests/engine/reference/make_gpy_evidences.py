"""Make gpy_evidences.json: log evidences of the psychometric field by GPy's EP, for the tests.

Needs GPy 1.15 and scipy, not earshift, so that the two share no code:

    python make_gpy_evidences.py

writes the JSON beside this file. The model is f ~ GP(c, alpha i i' + beta exp(-(phi - phi')^2 /
(2 l^2))), P(heard) = Phi(f), phi = log2(frequency_hz / 1000), i = (level_db_hl - 50) / 10.

GPy takes the constant mean as a mean function; no rewriting as a zero-mean problem is needed.
Before it writes, the script checks GPy against exact values:

- to rounding where EP itself is exact: one trial, or five trials whose latents are independent;
- on the first 2, 5 and 8 trials of every case against the Gaussian orthant probability. There the
  difference is EP's own error: at most 0.05 nats in the median and 0.25 in the worst case.

EP has converged when two runs that visit the trials in different orders agree.
"""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import GPy
import numpy as np
from GPy.inference.latent_function_inference.expectation_propagation import EP
from numpy.typing import NDArray
from paramz import ObsAr
from scipy.stats import multivariate_normal, norm

Array = NDArray[np.float64]

SEED = 20260802
FREQUENCIES_HZ = 500 * 2 ** (np.arange(17) / 4)
LEVELS_DB_HL = np.arange(-10, 101, 5)
# GPy stops when the mean squared change of the site parameters falls below this.
EPSILON = 1e-20
MAX_SWEEPS = 1000


@dataclass(frozen=True)
class Theta:
    """Hyperparameters, by their letters in the model."""

    c: float
    alpha: float
    beta: float
    l: float  # noqa: E741


@dataclass(frozen=True)
class Recipe:
    """One case to make: its size, its theta, and where the answers come from."""

    name: str
    n: int
    theta: Theta
    answers: str = "model"


RECIPES = (
    Recipe("typical ear", 50, Theta(5.0, 6.0, 6.0, 1.0)),
    Recipe("typical ear, long exam", 100, Theta(5.0, 6.0, 6.0, 1.0)),
    Recipe("zero mean", 60, Theta(0.0, 4.0, 4.0, 0.8)),
    Recipe("negative mean", 50, Theta(-4.0, 3.0, 8.0, 1.2)),
    Recipe("negative mean, long exam", 90, Theta(-2.5, 8.0, 15.0, 0.6)),
    Recipe("good hearing, steep", 75, Theta(8.0, 12.0, 10.0, 1.5)),
    Recipe("shallow and flat", 80, Theta(1.0, 1.0, 1.0, 2.0)),
    Recipe("shallow, rough", 70, Theta(2.0, 1.5, 5.0, 0.4)),
    Recipe("wide range", 65, Theta(3.0, 5.0, 30.0, 0.7)),
    Recipe("wide and smooth", 100, Theta(6.0, 10.0, 30.0, 2.0)),
    Recipe("coin tosses", 60, Theta(4.0, 6.0, 6.0, 1.0), "coin"),
    Recipe(
        "model's answers with one in three reversed", 80, Theta(5.0, 9.0, 12.0, 0.8), "reversed"
    ),
)


def covariance(phi: Array, i: Array, theta: Theta) -> Array:
    """K by numpy: for drawing answers and for the exact check; GPy builds its own."""
    smooth = np.exp(-((phi[:, None] - phi) ** 2) / (2 * theta.l**2))
    return theta.alpha * i[:, None] * i + theta.beta * smooth


def model_units(frequency_hz: Array, level_db_hl: Array) -> tuple[Array, Array]:
    """Octaves re 1 kHz and tens of decibels re 50 dB HL."""
    return np.log2(frequency_hz / 1000), (level_db_hl - 50) / 10


def draw_answers(
    recipe: Recipe, phi: Array, i: Array, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Answers from the model, spoilt if the recipe says so."""
    if recipe.answers == "coin":
        return rng.random(recipe.n) < 0.5
    theta = recipe.theta
    smooth = covariance(phi, np.zeros_like(i), theta)
    # The slope sits at its prior SD, not drawn: near zero or falling, nearly every answer is alike.
    slope = np.sqrt(theta.alpha)
    f = theta.c + slope * i + rng.multivariate_normal(np.zeros(recipe.n), smooth, method="eigh")
    heard: NDArray[np.bool_] = rng.random(recipe.n) < norm.cdf(f)
    if recipe.answers == "reversed":
        heard ^= rng.random(recipe.n) < 1 / 3
    return heard


def gpy_log_evidence(phi: Array, i: Array, heard: NDArray[np.bool_], theta: Theta) -> float:
    """Log evidence at EP's fixed point; raises if EP did not reach it."""
    smooth = GPy.kern.RBF(1, variance=theta.beta, lengthscale=theta.l, active_dims=[0])
    kernel = smooth + GPy.kern.Linear(1, variances=theta.alpha, active_dims=[1])
    mean = GPy.mappings.Constant(2, 1, value=theta.c)
    x, y = np.column_stack([phi, i]), ObsAr(heard[:, None].astype(float))
    values = []
    for order_seed in (0, 1):
        np.random.seed(order_seed)  # GPy draws its visiting order from the global generator
        ep = EP(epsilon=EPSILON, max_iters=MAX_SWEEPS, ep_mode="nested", always_reset=True)
        likelihood = GPy.likelihoods.Bernoulli()
        values.append(float(ep.inference(kernel, x, likelihood, y, mean_function=mean)[1]))
    if abs(values[0] - values[1]) > 1e-8:
        raise RuntimeError(f"EP has not converged: {values}")
    return values[0]


def exact_log_evidence(phi: Array, i: Array, heard: NDArray[np.bool_], theta: Theta) -> float:
    """The orthant probability Phi_n(S m; 0, S (I + K) S), S = diag(+-1) of the answers."""
    s = np.where(heard, 1.0, -1.0)
    cov = s[:, None] * (np.eye(len(s)) + covariance(phi, i, theta)) * s
    if len(s) == 1:
        return float(norm.logcdf(s[0] * theta.c / np.sqrt(cov[0, 0])))
    accuracy = {"abseps": 1e-12, "releps": 1e-4, "maxpts": 2_000_000}
    return float(np.log(multivariate_normal.cdf(s * theta.c, cov=cov, **accuracy)))


def check_where_ep_is_exact() -> None:
    """At 50 dB HL the linear kernel vanishes and octaves are far apart for l = 0.1."""
    phi, i = np.arange(-1.0, 4.0), np.zeros(5)
    heard = np.array([True, False, True, True, False])
    for c in (-4.0, 0.0, 8.0):
        theta = Theta(c, 6.0, 10.0, 0.1)
        exact = norm.logcdf(np.where(heard, c, -c) / np.sqrt(1 + theta.beta)).sum()
        error = abs(gpy_log_evidence(phi, i, heard, theta) - exact)
        if error > 1e-8:
            raise RuntimeError(f"GPy mishandles the mean {c}: off by {error:.2g} nats")


def small_errors(phi: Array, i: Array, heard: NDArray[np.bool_], theta: Theta) -> list[float]:
    """EP's error on the first 2, 5 and 8 trials; on the first trial alone there must be none."""
    errors = []
    for n in (1, 2, 5, 8):
        part = phi[:n], i[:n], heard[:n], theta
        errors.append(abs(gpy_log_evidence(*part) - exact_log_evidence(*part)))
    if errors[0] > 1e-8:
        raise RuntimeError(f"GPy is off by {errors[0]:.2g} nats at n = 1, {theta}")
    return errors[1:]


def make_case(recipe: Recipe, rng: np.random.Generator) -> tuple[dict[str, Any], list[float]]:
    """The case as it goes into the file, and EP's errors on its first trials."""
    frequency_hz = rng.choice(FREQUENCIES_HZ, recipe.n)
    level_db_hl = rng.choice(LEVELS_DB_HL, recipe.n)
    phi, i = model_units(frequency_hz, level_db_hl)
    heard = draw_answers(recipe, phi, i, rng)
    errors = small_errors(phi, i, heard, recipe.theta)
    log_evidence = gpy_log_evidence(phi, i, heard, recipe.theta)
    print(
        f"{recipe.name}: n {recipe.n}, heard {heard.sum()}, log evidence {log_evidence:.6f}, "
        f"EP's error at n = 2, 5, 8: " + ", ".join(f"{e:.4f}" for e in errors)
    )
    case = {
        "name": recipe.name,
        "theta": asdict(recipe.theta),
        "log_evidence": log_evidence,
        "trials": [
            {"frequency_hz": float(hz), "level_db_hl": int(db), "heard": bool(yes)}
            for hz, db, yes in zip(frequency_hz, level_db_hl, heard, strict=True)
        ],
    }
    return case, errors


def main() -> None:
    """Make all cases, check them, write the file."""
    check_where_ep_is_exact()
    cases, errors = [], []
    for index, recipe in enumerate(RECIPES):
        # A seed of its own for every case: adding one leaves the others alone.
        case, case_errors = make_case(recipe, np.random.default_rng([SEED, index]))
        cases.append(case)
        errors += case_errors
    print(f"EP against exact, {len(errors)} checks: median {np.median(errors):.4f}, ", end="")
    print(f"worst {max(errors):.4f}")
    if np.median(errors) > 0.05 or max(errors) > 0.25:
        raise RuntimeError("GPy is further from the exact evidence than EP should be")
    head = {
        "made_by": Path(__file__).name,
        "date": datetime.now(UTC).date().isoformat(),
        "seed": SEED,
        "versions": {name: version(name) for name in ("GPy", "numpy", "scipy")},
    }
    # One case a line: short enough to diff, long enough not to fill a screen with braces.
    lines = ",\n".join(json.dumps(case) for case in cases)
    text = json.dumps(head)[:-1] + ', "cases": [\n' + lines + "\n]}\n"
    Path(__file__).with_name("gpy_evidences.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
