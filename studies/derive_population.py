"""Make src/earshift/engine/persons/population.json: whom to expect, and how hearing changes.

Reads two files of the data folder (see its README): the NHANES 2011-2016 ears and the pairs of
consecutive audiograms of noise-exposed workers. Only weights, means, covariances and counts are
written, nothing about an individual.

    python studies/derive_population.py ../shared/data

People: those with an even SEQN (the tuning half; the odd ones are held back for evaluation) with
both ears measured teach a mixture of Gaussians on fourteen thresholds, seven an ear, that does not
care which ear is which. Readings come in steps of 5 dB; they are spread evenly over their step.

Workers: those with an even number are the learning half. Their differences, less the noise of two
readings, teach how often each family of change happens. About a minute on one core.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from earshift.engine.persons import change

Array = NDArray[np.float64]

OUTPUT = Path(__file__).resolve().parents[1] / "src/earshift/engine/persons/population.json"
FREQUENCIES_HZ = (500, 1000, 2000, 3000, 4000, 6000, 8000)
COMPONENTS = 6
STEP_DB = 5.0
SEED = 20190501
COVARIANCE_FLOOR_DB2 = 4.0  # no direction of a component is narrower than 2 dB
READING_DIFFERENCE_SD_DB = 6.1  # of two manual readings (Mahomed 2013, 29 reports)


def rows_of(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt") as file:
        return list(csv.DictReader(file))


def pairs_of_ears(path: Path) -> Array:
    """Thresholds (people, 2 ears, 7) in dB HL of the tuning half's people with both ears."""
    ears: dict[int, dict[str, list[float]]] = {}
    for row in rows_of(path):
        levels = [float(row[str(f)]) for f in FREQUENCIES_HZ]
        if int(row["SEQN"]) % 2 == 0 and max(levels) <= 130.0:
            ears.setdefault(int(row["SEQN"]), {})[row["ear"]] = levels
    return np.array([[e["L"], e["R"]] for _, e in sorted(ears.items()) if len(e) == 2])


def log_densities(x: Array, means: Array, covs: Array) -> Array:
    """Log density of every row under every Gaussian: (rows, Gaussians)."""
    out = np.empty((x.shape[0], means.shape[0]))
    for k, (mean, cov) in enumerate(zip(means, covs, strict=True)):
        L = np.linalg.cholesky(cov)
        z = np.linalg.solve(L, (x - mean).T)
        out[:, k] = -0.5 * (z**2).sum(axis=0) - np.log(np.diag(L)).sum()
    return out - 0.5 * x.shape[1] * math.log(2.0 * math.pi)


def exchangeable(x: Array, weight: Array) -> tuple[Array, Array]:
    """Mean and covariance of both ears' thresholds that stay the same when the ears swap."""
    size = x.shape[1] // 2
    swap = np.r_[size : 2 * size, 0:size]
    mean = weight @ x / weight.sum()
    mean = 0.5 * (mean + mean[swap])
    gap = x - mean
    cov = (weight * gap.T) @ gap / weight.sum()
    cov = 0.5 * (cov + cov[np.ix_(swap, swap)])
    values, vectors = np.linalg.eigh(cov)
    return mean, (vectors * np.maximum(values, COVARIANCE_FLOOR_DB2)) @ vectors.T


def mixture(x: Array, rng: np.random.Generator) -> tuple[Array, Array, Array, float]:
    """EM from a start ordered by the mean threshold; weights, means, covariances, fit in nats."""
    level = np.argsort(np.argsort(x.mean(axis=1))) / len(x)
    start = np.minimum((COMPONENTS * level + rng.normal(0.0, 0.3, len(x))).clip(0), COMPONENTS - 1)
    share = np.eye(COMPONENTS)[start.astype(int)]
    last = -math.inf
    for _ in range(2000):
        weights = share.mean(axis=0)
        parts = [exchangeable(x, share[:, k]) for k in range(COMPONENTS)]
        means, covs = (np.array(side) for side in zip(*parts, strict=True))
        joint = log_densities(x, means, covs) + np.log(weights)
        total = logsumexp(joint, axis=1)
        share = np.exp(joint - total[:, None])
        if total.mean() - last < 1e-6:
            break
        last = float(total.mean())
    order = np.argsort(means.mean(axis=1))
    return weights[order], means[order], covs[order], float(total.mean())


def roughness(ears: Array) -> dict[str, float]:
    """dB^2 per octave by which a threshold strays from the line between its neighbours.

    The variance of the middle one of three frequencies about that line, less the share of reading
    noise that the three carry, over a b / (a + b) with the distances a and b in octaves.
    """
    octaves = np.log2(np.array(FREQUENCIES_HZ) / 1000.0)
    noise = 0.5 * READING_DIFFERENCE_SD_DB**2
    found = []
    for k in range(1, len(octaves) - 1):
        a, b = octaves[k] - octaves[k - 1], octaves[k + 1] - octaves[k]
        w = a / (a + b)
        gap = ears[:, k] - (1 - w) * ears[:, k - 1] - w * ears[:, k + 1]
        excess = np.var(gap) - noise * (1.0 + w**2 + (1 - w) ** 2)
        found.append(max(excess, 0.0) * (a + b) / (a * b))
    return {"below_2000_hz": float(np.mean(found[:2])), "above_2000_hz": float(np.mean(found[2:]))}


def learn_change(path: Path) -> dict[str, Any]:
    """How often hearing changed, and in which family, in the learning half of the workers."""
    gaps = np.array([
        [float(row[f"after_{f}"]) - float(row[f"before_{f}"]) for f in FREQUENCIES_HZ]
        for row in rows_of(path)
        if int(row["worker"]) % 2 == 0
    ])  # fmt: skip
    noise = READING_DIFFERENCE_SD_DB**2 * np.eye(len(FREQUENCIES_HZ))
    sizes = np.concatenate([-np.arange(6.0, 40.0, 3.0)[::-1], np.arange(6.0, 60.0, 3.0)])
    of_size = np.exp(change.log_size_density(sizes))
    of_size /= of_size.sum()
    units = change.shapes(FREQUENCIES_HZ)
    means = (units[:, None, :] * sizes[None, :, None]).reshape(-1, len(FREQUENCIES_HZ))
    jitter, changed = change.covariances(FREQUENCIES_HZ)
    whole = log_densities(gaps, np.zeros((1, len(FREQUENCIES_HZ))), (jitter + noise)[None])
    moved = log_densities(gaps, means, np.repeat((changed + noise)[None], len(means), axis=0))
    by_shape = logsumexp(moved.reshape(len(gaps), len(units), sizes.size) + np.log(of_size), axis=2)
    families = list(change.FAMILIES)
    within = np.array([[float(s.family == f) for s in change.SHAPES] for f in families])
    within /= within.sum(axis=1, keepdims=True)
    by_family = logsumexp(by_shape[:, None, :], axis=2, b=within[None])
    joint = np.column_stack([whole, by_family])
    weights = np.full(joint.shape[1], 1.0 / joint.shape[1])
    for _ in range(500):
        share = joint + np.log(weights)
        share = np.exp(share - logsumexp(share, axis=1, keepdims=True))
        weights = share.mean(axis=0)
    return {
        "source": "pairs of consecutive audiograms of noise-exposed workers, a public copy of "
        "NIOSH occupational audiograms",
        "derivation": "Workers with an even number. Maximum likelihood of the share of each family "
        "of change under the noise of two readings, SD 6.1 dB per frequency. To be held against "
        "the shares in change.py, which were chosen on the tuning half of the ears.",
        "n_pairs": len(gaps),
        "unchanged_share": weights[0],
        "family_shares": dict(zip(families, weights[1:] / weights[1:].sum(), strict=True)),
        "difference_sd_db": gaps.std(axis=0),
        "model_sd_db": np.sqrt(
            np.diag(weights[0] * (jitter + noise) + (1 - weights[0]) * (changed + noise))
            + (1 - weights[0])
            * np.einsum("s,z,sk,z->k", weights[1:] @ within / (1 - weights[0]), of_size,
                        units**2, sizes**2)
        ),
    }  # fmt: skip


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(v) for v in value]
    return round(float(value), 4) if isinstance(value, float | np.floating) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, help="folder with the data files")
    data = parser.parse_args().data
    rng = np.random.default_rng(SEED)
    readings = pairs_of_ears(data / "nhanes_ears_2011_2016.csv.gz")
    dithered = readings + rng.uniform(-STEP_DB / 2, STEP_DB / 2, readings.shape)
    weights, means, covs, fit = mixture(dithered.reshape(len(dithered), -1), rng)
    size = len(FREQUENCIES_HZ)
    result = {
        "thresholds": {
            "source": "NHANES (CDC/NCHS) public-use audiometry files AUX_G (2011-12) and AUX_I "
            "(2015-16), adults, unweighted",
            "derivation": "People with an even SEQN and both ears; readings spread evenly over "
            "their 5 dB step; EM for six Gaussians on both ears' thresholds that stay the same "
            f"when the ears swap. Mean log density {fit:.3f} nats a person.",
            "n_people": len(readings),
            "frequencies_hz": list(FREQUENCIES_HZ),
            "weights": weights,
            "mean_db_hl": means[:, :size],
            "own_covariance_db2": covs[:, :size, :size],
            "cross_covariance_db2": covs[:, :size, size:],
            "roughness_db2_per_octave": roughness(readings[:, 0]),
        },
        "change": learn_change(data / "worker_pairs.csv.gz"),
    }
    OUTPUT.write_text(json.dumps(plain(result), indent=1) + "\n", encoding="utf-8")
    print(
        json.dumps(
            plain(
                {
                    **result["change"],
                    "weights": weights,
                    "means": means[:, :size],
                    "roughness": result["thresholds"]["roughness_db2_per_octave"],
                }
            )
        )
    )


if __name__ == "__main__":
    main()
