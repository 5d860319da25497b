"""Make orthant.json: exact log evidences of small exams, for the tests.

    python make_orthant.py

Needs numpy and scipy, not earshift, so that the two share no code. For P(heard) = Phi(f) and
f ~ N(m, K) the evidence is the Gaussian orthant probability Phi_n(S m; 0, S (I + K) S) with
S = diag(+-1) of the answers. Everything is drawn from the model: theta from a broad Gaussian (its
own, so that a new hyperprior in the package leaves this file alone), tones from the quarter octaves
and 5 dB steps, the field from its prior, the answers from the field. Each value is computed twice
with different seeds, and with more points until the two agree.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import multivariate_normal, norm

Array = NDArray[np.float64]

SEED = 20261115
CASES = 200
LARGEST = 15
TOLERANCE = 5e-3  # nats, between two runs of the quasi-Monte Carlo rule
THETA_MEAN = (6.0, np.log(6.0), np.log(6.0), -0.5)  # c, log alpha, log beta, log l
THETA_SD = (4.0, 0.7, 1.0, 0.6)
FREQUENCIES_HZ = 500 * 2 ** (np.arange(17) / 4)
LEVELS_DB_HL = np.arange(-10, 101, 5)


def exact_log_evidence(
    mean: Array, K: Array, heard: NDArray[np.bool_], seed: int = 0, points: int = 5_000
) -> float:
    """log Phi_n(S m; 0, S (I + K) S) by quasi-Monte Carlo with a fixed seed."""
    s = np.where(heard, 1.0, -1.0)
    n = s.size
    cov = s[:, None] * (np.eye(n) + K) * s
    if n == 1:
        return float(norm.logcdf(s[0] * mean[0] / np.sqrt(cov[0, 0])))
    value = multivariate_normal.cdf(
        s * mean,
        cov=cov,
        maxpts=points * n,
        abseps=1e-12,
        releps=1e-4,
        rng=np.random.default_rng(seed),
    )
    return float(np.log(value))


def make_case(rng: np.random.Generator) -> dict[str, Any]:
    """One exam drawn from the model, and its exact log evidence."""
    n = int(rng.integers(1, LARGEST + 1))
    theta = rng.normal(THETA_MEAN, THETA_SD).round(6)
    c, alpha, beta, length = theta[0], *np.exp(theta[1:])
    frequency_hz, level_db_hl = rng.choice(FREQUENCIES_HZ, n), rng.choice(LEVELS_DB_HL, n)
    phi, i = np.log2(frequency_hz / 1000), (level_db_hl - 50) / 10
    K = alpha * np.outer(i, i) + beta * np.exp(-((phi[:, None] - phi) ** 2) / (2 * length**2))
    mean = np.full(n, c)
    heard = rng.random(n) < norm.cdf(rng.multivariate_normal(mean, K, method="eigh"))
    for points in (5_000, 20_000, 80_000, 320_000):
        values = [exact_log_evidence(mean, K, heard, seed, points) for seed in (1, 2)]
        if abs(values[0] - values[1]) < TOLERANCE:
            break
    else:
        raise RuntimeError(f"the orthant probability is not accurate enough: {values}")
    return {
        "theta": theta.tolist(),
        "frequency_hz": frequency_hz.tolist(),
        "level_db_hl": level_db_hl.tolist(),
        "heard": heard.tolist(),
        "log_evidence": float(np.mean(values)),
    }


def main() -> None:
    """Make all cases and write the file, one case a line."""
    cases = [make_case(np.random.default_rng([SEED, k])) for k in range(CASES)]
    head = json.dumps({"made_by": Path(__file__).name, "seed": SEED})
    lines = ",\n".join(json.dumps(case) for case in cases)
    text = head[:-1] + ', "cases": [\n' + lines + "\n]}\n"
    Path(__file__).with_name("orthant.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
