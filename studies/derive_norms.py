"""Make src/earshift/norms.json: class medians, standard audiograms, population and hyperpriors.

Reads three files of the data folder (see its README): the NHANES 1999-2020 medians per
hearing-loss class, the ten standard audiograms of Bisgaard 2010, and the NHANES 2011-2016 ears.
Only medians, means, covariances and counts are written, nothing about an individual. People with
an odd SEQN are held back for evaluation: their thresholds enter nothing that is fitted here.

    python studies/derive_norms.py ../shared/data

The prior of a change (`change`) rests on published figures alone: retest noise from a
meta-analysis, spread and prevalence of year-to-year changes from a hearing-conservation programme.

The hyperprior is learned in hyperprior.py beside this file. About a minute on one core.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hyperprior import (
    EM_MAX_ITERATIONS,
    EM_TOLERANCE,
    FREQUENCIES_HZ,
    SEED,
    hyperprior,
    hyperprior_sloped,
)
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr
from scipy.stats import multivariate_normal

from earshift.engine import shift

Array = NDArray[np.float64]

OUTPUT = Path(__file__).resolve().parents[1] / "src" / "earshift" / "engine" / "norms.json"

# Year-to-year change of 3,770 noise-exposed workers with repeated audiograms (data README): the SD
# of the change by frequency, and the fraction of ears whose mean 2/3/4 kHz shift was 10 dB or more.
CHANGE_SD_DB = (8.35, 8.35, 8.35, 8.35, 8.35, 10.6, 11.5)  # given as 7.8 to 8.9 up to 4 kHz
STS_FRACTION = (0.10, 0.14)
RETEST_DIFFERENCE_SD_DB = 6.1  # of two manual readings of an ear that did not change
RETEST_COMMON = 0.3  # fraction of that error's variance, common to the frequencies of a session
JITTER_SD_DB = 3.0  # of the true difference between two days
# "Factors affecting laterality of standard threshold shift in occupational hearing conservation
# programs" (abstract): of the people with a standard threshold shift, so many in one ear only.
ONE_EAR_FRACTION = 0.80
# A notch exceeds its neighbours at 2 and 8 kHz by this much.
NOTCH_DB = 10.0
NOTCH_PARTS = 4
NOTCH_COVARIANCE_FLOOR_DB2 = 1.0

NHANES = "NHANES (CDC/NCHS) public-use audiometry files"
EARS_SOURCE = f"{NHANES} AUX_G (2011-12) and AUX_I (2015-16), adults, unweighted"
SPLIT = (
    "People with an even SEQN are the tuning half and make these numbers; people with an odd SEQN "
    "are held back. One ear per person, drawn with a fixed seed."
)


# --- reading ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ears:
    """Complete audiograms: one row of `thresholds` (dB HL, seven frequencies) per ear."""

    person: NDArray[np.int64]
    ear: NDArray[np.str_]
    thresholds: Array
    n_dropped: int


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """Rows of a CSV file, gzipped or not."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        yield from csv.DictReader(file)


def threshold(cell: str) -> float:
    """A threshold in dB HL; NaN for blanks and NHANES codes (666 no response, 888 not obtained)."""
    value = float(cell) if cell.strip() else math.nan
    return value if value <= 130.0 else math.nan


def read_ears(path: Path) -> Ears:
    """Ears with all seven thresholds, sorted so that the file's order cannot matter.

    An ear with a "no response" has no number for that frequency, so it is dropped. A threshold
    found near the maximum level is an ordinary measurement and stays.
    """
    rows = sorted(read_rows(path), key=lambda row: (int(row["SEQN"]), row["ear"]))
    values = np.array([[threshold(row[str(f)]) for f in FREQUENCIES_HZ] for row in rows])
    complete = np.isfinite(values).all(axis=1)
    return Ears(
        person=np.array([int(row["SEQN"]) for row in rows])[complete],
        ear=np.array([row["ear"] for row in rows])[complete],
        thresholds=values[complete],
        n_dropped=int((~complete).sum()),
    )


def tuning_half(ears: Ears) -> Ears:
    """Ears of people with an even SEQN."""
    keep = ears.person % 2 == 0
    return Ears(ears.person[keep], ears.ear[keep], ears.thresholds[keep], ears.n_dropped)


def one_ear_each(ears: Ears, rng: np.random.Generator) -> Array:
    """Thresholds of one randomly chosen ear per person."""
    _, first, count = np.unique(ears.person, return_index=True, return_counts=True)
    chosen: Array = ears.thresholds[first + rng.integers(count)]
    return chosen


def both_ears(ears: Ears) -> tuple[Array, Array]:
    """Left and right thresholds of the people who have both."""
    _, first, count = np.unique(ears.person, return_index=True, return_counts=True)
    left = first[count == 2]  # L sorts before R
    if not ((ears.ear[left] == "L") & (ears.ear[left + 1] == "R")).all():
        raise ValueError("expected one L and one R row per person; check the ears file")
    return ears.thresholds[left], ears.thresholds[left + 1]


# --- blocks that are read or averaged ----------------------------------------------------------


def class_medians(data: Path) -> dict[str, Any]:
    """Median threshold per hearing-loss class."""
    counts, medians = {}, {}
    for row in read_rows(data / "canonical_nhanes_1999_2020.csv"):
        name = row["class"].lower().replace(" ", "-")
        counts[name] = int(row["count"])
        medians[name] = [float(row[str(f)]) for f in FREQUENCIES_HZ]
    return {
        "source": f"{NHANES}, all nine cycles 1999-2020, unweighted over ears",
        "derivation": "Ears are classed by the mean of 500, 1000 and 2000 Hz: normal <= 15, slight "
        "16-25, mild 26-40, moderate 41-55, moderately severe 56-70, severe 71-90, profound >= 91 "
        "dB HL; the median is taken per frequency.",
        "n": sum(counts.values()),
        "low_n": {"profound": f"{counts['profound']} ears only: use with care"},
        "frequencies_hz": list(FREQUENCIES_HZ),
        "counts": counts,
        "thresholds_db_hl": medians,
    }


def bisgaard(data: Path) -> dict[str, Any]:
    """The ten standard audiograms."""
    rows = list(read_rows(data / "bisgaard2010_standard_audiograms.csv"))
    frequencies = [key for key in rows[0] if key.isdigit()]
    return {
        "source": "Bisgaard 2010, standard audiograms, tables 2 and 4",
        "derivation": "Copied. N: flat and moderately sloping, S: steeply sloping; up to 6 kHz.",
        "n": len(rows),
        "frequencies_hz": [int(f) for f in frequencies],
        "audiograms": [
            {
                "id": row["id"],
                "category": row["category"],
                "thresholds_db_hl": [float(row[f]) for f in frequencies],
            }
            for row in rows
        ],
    }


def population(ears: Ears, thresholds: Array) -> dict[str, Any]:
    """Mean and covariance over people, and how alike a person's two ears are."""
    left, right = both_ears(ears)
    correlation = [np.corrcoef(a, b)[0, 1] for a, b in zip(left.T, right.T, strict=True)]
    return {
        "source": EARS_SOURCE,
        "derivation": f"{SPLIT} Mean and covariance of the thresholds; Pearson correlation of left "
        "and right per frequency over the same half's people with both ears. Only ears with all "
        "seven thresholds are in the file, so profound losses are under-represented.",
        "n": len(thresholds),
        "n_both_ears": len(left),
        "n_dropped_incomplete": ears.n_dropped,
        "frequencies_hz": list(FREQUENCIES_HZ),
        "mean_db_hl": thresholds.mean(axis=0),
        "sd_db": thresholds.std(axis=0, ddof=1),
        "covariance_db2": np.cov(thresholds.T),
        "between_ear_correlation": correlation,
    }


# --- output ----------------------------------------------------------------------------------


def change() -> dict[str, Any]:
    """How large real changes are: the scale at which the prior has the programme's spread.

    A measured change is a real one (in a fraction of ears, solved so that the measured STS are as
    many as the programme's) plus the noise of two readings.
    """
    octaves = np.log2(np.array(FREQUENCIES_HZ) / 1000.0)
    sts = np.isin(FREQUENCIES_HZ, (2000, 3000, 4000)) / 3.0
    same = np.eye(octaves.size)
    noise = RETEST_DIFFERENCE_SD_DB**2 * ((1.0 - RETEST_COMMON) * same + RETEST_COMMON)
    gaps = (octaves[:, None] - octaves[None, :]) ** 2
    residual = shift.RESIDUAL_SD_DB**2 * np.exp(-0.5 * gaps / shift.RESIDUAL_OCTAVES**2)
    target = float(np.mean(np.square(CHANGE_SD_DB)))
    wanted = sum(STS_FRACTION) / 2.0

    by_noise = ndtr(-10.0 / math.sqrt(sts @ noise @ sts))

    def measured_sts(scale: float) -> Array:
        """P(standard threshold shift is measured) of every kind of change."""
        spread = math.sqrt(sts @ (noise + residual) @ sts)
        met: Array = ndtr((shift.change_prior(scale).means(octaves) @ sts - 10.0) / spread)
        return met

    def programme(scale: float) -> tuple[float, float]:
        """Fraction of changed ears, and mean square over the frequencies, at this scale."""
        prior = shift.change_prior(scale)
        by_change = float(prior.weight @ measured_sts(scale))
        fraction = (wanted - by_noise) / (by_change - by_noise)
        means = prior.means(octaves)
        variance = fraction * ((prior.weight @ means**2) + np.diag(residual)) + np.diag(noise)
        return fraction, float(variance.mean())

    scale = float(brentq(lambda s: programme(s)[1] - target, 3.0, 30.0))
    changed = programme(scale)[0]
    # Of two ears that changed alike, and of two that did not: P(both are measured to have an STS).
    alike = (1.0 - changed) * by_noise**2 + changed * float(
        shift.change_prior(scale).weight @ measured_sts(scale) ** 2
    )
    apart = wanted**2
    both = 2.0 * wanted * (1.0 - ONE_EAR_FRACTION) / (2.0 - ONE_EAR_FRACTION)
    return {
        "source": "Change of 3,770 noise-exposed workers from year to year (hearing-conservation "
        "audiograms, no truth labels): SD 7.8-8.9 dB at 500-4000 Hz, 10.6 at 6000, 11.5 at 8000; "
        "mean 2/3/4 kHz shift of 10 dB or more in 10-14 % of ears. Retest noise: Mahomed 2013, "
        "meta-analysis of 29 reports, SD of the difference 6.1 dB.",
        "derivation": "Sizes of a change fall off as exp(-size / size_scale_db). The scale and the "
        "share of changed ears give the programme's mean square over seven frequencies (its mean "
        "change is not known and taken as zero there) and its "
        "share of STS, reading noise added. Flat, sloping and notched changes in equal parts, "
        "low-frequency ones 0.4 of a part, a quarter of all for the better: assumptions.",
        "n": 3770,
        "prevalence": wanted,
        "size_scale_db": scale,
        "share_changed": changed,
        "alike_share": (both - apart) / (alike - apart),
        "alike_source": "Of OSHA shifts in a large industrial sample 80 % were in one ear only "
        "(Factors affecting laterality of standard threshold shift in occupational hearing "
        "conservation programs; abstract).",
        "alike_derivation": "With this probability both ears have the same component of change "
        "(or none), else each its own. Solved so that, reading noise added apart for each ear, "
        "80 % of the people with a measured STS have it in one ear. That the ears are either alike "
        "or unrelated is an assumption.",
        "jitter_sd_db": JITTER_SD_DB,
        "jitter_note": "SD of the true difference between two exams of an unchanged ear, smooth "
        "over an octave. Two simulated 5 dB staircases explain 2.9 dB (listeners of spread 2 dB) "
        "to 5.3 dB (6 dB) of the published 6.1 dB; 5.4 to 3.1 dB are left. The low end is taken: "
        "part of the rest is the headphones' placement and the room.",
    }


# --- ears without a notch ------------------------------------------------------------------------


def mixture(thresholds: Array) -> tuple[Array, Array, Array]:
    """A mixture of Gaussians by EM: weights, means and covariances, best hearing first.

    Audiograms of a population are skewed, and one Gaussian would take a deep dip for an ordinary
    tail of it. Started from equal parts of the ears in the order of their mean threshold.
    """
    n, d = thresholds.shape
    membership = np.zeros((n, NOTCH_PARTS))
    order = np.argsort(thresholds.mean(axis=1), kind="stable")
    for part, rows in enumerate(np.array_split(order, NOTCH_PARTS)):
        membership[rows, part] = 1.0
    before = -math.inf
    for _ in range(EM_MAX_ITERATIONS):
        mass = membership.sum(axis=0)
        means = (membership.T @ thresholds) / mass[:, None]
        covs = np.array(
            [
                ((thresholds - m) * r[:, None]).T @ (thresholds - m) / r.sum()
                + NOTCH_COVARIANCE_FLOOR_DB2 * np.eye(d)
                for m, r in zip(means, membership.T, strict=True)
            ]
        )
        logs = np.column_stack(
            [
                np.log(w / n) + multivariate_normal.logpdf(thresholds, m, c)
                for w, m, c in zip(mass, means, covs, strict=True)
            ]
        )
        total = logsumexp(logs, axis=1)
        membership = np.exp(logs - total[:, None])
        if total.mean() - before < EM_TOLERANCE:
            break
        before = float(total.mean())
    return mass / n, means, covs


def without_notch(ears: Ears) -> dict[str, Any]:
    """Populations of ears without a notch, each a mixture of Gaussians."""
    levels = dict(zip(FREQUENCIES_HZ, ears.thresholds.T, strict=True))
    middle = np.array([levels[f] for f in (3000, 4000, 6000)])
    past_2, past_8 = middle - levels[2000], middle - levels[8000]
    kept = {
        "level": (past_2 < NOTCH_DB).all(axis=0) & (past_8 < NOTCH_DB).all(axis=0),
        "any": ~((past_2 >= NOTCH_DB) & (past_8 >= NOTCH_DB)).any(axis=0),
    }
    populations = {}
    for name, keep in kept.items():
        weights, means, covs = mixture(ears.thresholds[keep])
        populations[name] = {
            "n": int(keep.sum()),
            "weights": weights,
            "mean_db_hl": means,
            "covariance_db2": covs,
        }
    return {
        "source": EARS_SOURCE,
        "derivation": "All ears of people with an even SEQN (the tuning half). level: none of 3, 4 "
        f"and 6 kHz exceeds 2 kHz or 8 kHz by {NOTCH_DB:g} dB. any: none of them exceeds both by "
        f"{NOTCH_DB:g} dB, so that sloping losses are in. {NOTCH_PARTS} Gaussians each, by EM.",
        "n": len(ears.thresholds),
        "frequencies_hz": list(FREQUENCIES_HZ),
        "populations": populations,
    }


def tidy(value: Any) -> Any:
    """Plain JSON values, numbers to six significant digits."""
    if isinstance(value, dict):
        return {key: tidy(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [tidy(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return tidy(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return value


def row(label: str, values: Any, form: str = "8.2f") -> str:
    """One line of the summary."""
    return f"  {label:<24}" + "".join(f" {value:>{form}}" for value in values)


def summary(norms: dict[str, Any]) -> str:
    """What was derived, for a reader at the console."""
    medians, people = norms["class_medians"], norms["population"]
    lines = [f"class medians, {medians['n']} ears (dB HL)", row("Hz", FREQUENCIES_HZ, "8d")]
    lines += [
        row(f"{name} ({medians['counts'][name]})", values, "8.1f")
        for name, values in medians["thresholds_db_hl"].items()
    ]
    lines += [
        f"\nstandard audiograms: {norms['bisgaard']['n']}",
        f"\npopulation, {people['n']} people of the tuning half, one ear each",
        row("Hz", FREQUENCIES_HZ, "8d"),
        row("mean dB HL", people["mean_db_hl"]),
        row("SD dB", people["sd_db"]),
        row("left-right r", people["between_ear_correlation"]),
    ]
    curve = norms["hyperprior"]["curve"]
    lines += [
        f"\ncurve by EM: {curve['em_iterations']} iterations, converged {curve['em_converged']}, "
        f"floored {curve['covariance_floored']}, mass at grid edge {curve['grid_edge_mass']:.1e}",
        row("", curve["parameters"], "9s"),
        row("mean", curve["mean"], "9.4f"),
        row("SD", np.sqrt(np.diag(curve["covariance"])), "9.4f"),
        "  other noise of a threshold (dB): log likelihood, median length in octaves",
    ]
    lines += [
        f"  {entry['threshold_noise_sd_db']:<6} {entry['curve']['log_likelihood']:10.1f} "
        f"{math.exp(entry['curve']['mean'][2]):8.2f}"
        for entry in sorted(
            [norms["hyperprior"], *norms["hyperprior"]["sensitivity"]],
            key=lambda entry: float(entry["threshold_noise_sd_db"]),
        )
    ]
    for name in ("hyperprior", "hyperprior_sloped"):
        block = norms[name]
        covariance = np.array(block["covariance"])
        sd = np.sqrt(np.diag(covariance))
        lines += [
            f"\n{name}, slope mean {block['slope_mean']:.4f}",
            row("", block["parameters"], "9s"),
            row("mean", block["mean"], "9.4f"),
            row("SD", sd, "9.4f"),
        ]
        if "skewness" in block:
            lines.append(row("skewness", block["skewness"], "9.4f"))
        lines += [
            row(f"r with {parameter}", values, "9.4f")
            for parameter, values in zip(
                block["parameters"], covariance / np.outer(sd, sd), strict=True
            )
        ]
    return "\n".join(lines)


def derive(data: Path) -> dict[str, Any]:
    """All blocks, as plain JSON values."""
    ears = tuning_half(read_ears(data / "nhanes_ears_2011_2016.csv.gz"))
    thresholds = one_ear_each(ears, np.random.default_rng([SEED, 0]))
    plain = hyperprior(thresholds, EARS_SOURCE, SPLIT)
    blocks: dict[str, Any] = {
        "about": "Made by studies/derive_norms.py; derived figures only. Change the script, not "
        "this file.",
        "seed": SEED,
        "class_medians": class_medians(data),
        "bisgaard": bisgaard(data),
        "population": population(ears, thresholds),
        "hyperprior": plain,
        "hyperprior_sloped": hyperprior_sloped(plain),
        "change": change(),
        "without_notch": without_notch(ears),
    }
    norms: dict[str, Any] = tidy(blocks)
    for covariance in (
        norms["population"]["covariance_db2"],
        norms["hyperprior"]["covariance"],
        norms["hyperprior_sloped"]["covariance"],
        *(
            covariance
            for block in norms["without_notch"]["populations"].values()
            for covariance in block["covariance_db2"]
        ),
    ):
        np.linalg.cholesky(np.array(covariance))  # rounding must leave it positive definite
    return norms


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with the audiogram files")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="default: %(default)s")
    arguments = parser.parse_args()
    norms = derive(arguments.data)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(norms, indent=1) + "\n")
    print(summary(norms))
    print(f"\nwritten to {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
