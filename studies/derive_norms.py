"""Make src/earshift/norms.json: class medians, standard audiograms, population and hyperpriors.

Reads three files of the data folder (see its README): the NHANES 1999-2020 medians per
hearing-loss class, the ten standard audiograms of Bisgaard 2010, and the NHANES 2011-2016 ears.
Only medians, means, covariances and counts are written, nothing about an individual. People with
an odd SEQN are held back for evaluation: their thresholds enter nothing that is fitted here.

    python studies/derive_norms.py ../shared/data

What is said about changes (`change`) rests on published figures alone. The prior of change itself
is in engine/persons/change.py, the population of persons in studies/derive_population.py.

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
    FREQUENCIES_HZ,
    SEED,
    hyperprior,
    hyperprior_sloped,
)
from numpy.typing import NDArray

Array = NDArray[np.float64]

OUTPUT = Path(__file__).resolve().parents[1] / "src" / "earshift" / "engine" / "norms.json"

# Year-to-year change of 3,770 noise-exposed workers with repeated audiograms (data README): the
# fraction of ears whose mean 2/3/4 kHz shift was 10 dB or more.
STS_FRACTION = (0.10, 0.14)
# How often both ears of a person change alike: a screen of both ears without a rule ties them so.
ALIKE = 0.471389

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
    """How often a shift is measured from year to year, and how often in both ears."""
    return {
        "source": "Change of 3,770 noise-exposed workers from year to year (hearing-conservation "
        "audiograms, no truth labels): mean 2/3/4 kHz shift of 10 dB or more in 10-14 % of ears.",
        "n": 3770,
        "prevalence": sum(STS_FRACTION) / 2.0,
        "alike_share": ALIKE,
        "alike_source": "Of OSHA shifts in a large industrial sample 80 % were in one ear only "
        "(Factors affecting laterality of standard threshold shift in occupational hearing "
        "conservation programs; abstract).",
        "alike_derivation": "With this probability both ears changed alike (or neither did), else "
        "each for itself. Solved in version 0.1 so that, reading noise added apart for each ear, "
        "80 % of the people with a measured STS have it in one ear. That the ears are either alike "
        "or unrelated is an assumption.",
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
    }
    norms: dict[str, Any] = tidy(blocks)
    for covariance in (
        norms["population"]["covariance_db2"],
        norms["hyperprior"]["covariance"],
        norms["hyperprior_sloped"]["covariance"],
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
