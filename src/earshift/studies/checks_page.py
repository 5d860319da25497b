"""The rules' results page on first exams, calibration, ears of the model, and brute force."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from earshift.engine.persons.design import Stopping
from earshift.studies import figures
from earshift.studies.first_exams import (
    FIELD,
    IDEAL,
    MANUAL,
    MARKS,
    METHOD_WORDS,
    OWN,
    PEER,
    SPREADS_DB,
    UNKNOWN,
)
from earshift.studies.markdown import Page, Target
from earshift.studies.model_checks import CHECKED_TONES
from earshift.studies.rates import Calibration, Proportion, calibration
from earshift.studies.rules import RULE_NAMES

if TYPE_CHECKING:
    import polars as pl

Array = NDArray[np.float64]

RMS_RATIO, RMS_TONES = 1.10, (20, 30, 50)
COVERED, COVERED_EACH = (0.93, 0.97), 0.91
CALIBRATED = 0.03
BOOTSTRAPS = 200
WRONG_SIDE, LIMIT = 0.01, 100.0
PREVALENCES = {"half": 0.5, "as stated": 1.0, "double": 2.0}
BRUTE_LOG_BF, BRUTE_EFFECTIVE = 6.0, 1000.0
BRUTE_WITHIN, BRUTE_SD, BRUTE_ENDS_DB = 0.3, 0.2, 1.0


def targets(frames: Mapping[str, "pl.DataFrame"]) -> Iterator[Target]:
    """What was asked for of all these, and reached."""
    if "exams" in frames:
        yield from _exam_targets(frames["exams"])
    if "calibration" in frames:
        for rule in RULE_NAMES:
            found = _calibrations(frames["calibration"], rule)
            worst = max(found, key=lambda key: found[key][0].error)
            most, chance = found[worst]
            yield Target(
                f"P(rule met) calibrated to {CALIBRATED:g} at the stated prevalence, half and "
                "double of it",
                f"at most {most.error:.3f} ({worst[0]}, {worst[1]} tones, n {most.n}; by chance "
                f"alone {chance:.3f})",
                most.error <= CALIBRATED, rule,
            )  # fmt: skip
    if "model" in frames:
        for rule in RULE_NAMES:
            sides = wrong_sides(frames["model"], rule)
            yield Target(
                "ears of the model: the wrong side ever reaches 100 in at most 1 % (29 of 2,000) "
                "per side",
                "; ".join(f"{side} {p.hits} of {p.n}" for side, p in sides.items()),
                all(p.interval[0] <= WRONG_SIDE for p in sides.values()), rule,
            )  # fmt: skip
    if "brute" in frames:
        yield from _brute_targets(frames["brute"], frames.get("brute_exams"))


def add(page: Page, frames: Mapping[str, "pl.DataFrame"], out: Path) -> None:
    """The tables and pictures of these parts."""
    if "exams" in frames:
        _exam_tables(page, frames["exams"], out)
    if "calibration" in frames:
        _calibration_table(page, frames["calibration"], out)
    if "model" in frames:
        lines = [
            [rule, side, f"{p.hits} of {p.n}", str(p)]
            for rule in RULE_NAMES
            for side, p in wrong_sides(frames["model"], rule).items()
        ]
        page.heading("Ears drawn from the model")
        page.add(
            "Persons of the references' own clouds, changed as the model says, who answer as it "
            "says. How often the Bayes factor ever reaches 100 for the wrong side within 30 tones: "
            "by Ville's inequality at most 1 % on average."
        )
        page.table(("rule", "truth", "wrong side reached", ""), lines)
    if "brute" in frames:
        _brute_tables(page, frames["brute"], frames.get("brute_exams"))


# First exams -----------------------------------------------------------------------------------

SHOWN = (*((OWN, spread) for spread in SPREADS_DB), (IDEAL, 4.0), (FIELD, 4.0), (PEER, 4.0))


def _part(rows: "pl.DataFrame", method: str, spread: float, tones: int | None) -> "pl.DataFrame":
    import polars as pl

    chosen = rows.filter((pl.col("method") == method) & (pl.col("spread_db") == spread))
    return chosen if tones is None else chosen.filter(pl.col("tones") == tones)


def _rms(rows: "pl.DataFrame") -> float:
    return float(np.sqrt(np.mean(rows["error_db"].to_numpy() ** 2))) if rows.height else math.nan


def _covered(rows: "pl.DataFrame") -> tuple[Proportion, float, float]:
    """Intervals that hold the truth: all together, and the frequency with the fewest (Hz, part)."""
    import polars as pl

    known = rows.filter(pl.col("covered") != UNKNOWN)
    everywhere = Proportion(int(known["covered"].sum()), known.height)
    by_hz = {
        float(str(f)): float(part["covered"].to_numpy().mean())
        for (f,), part in known.group_by("frequency_hz", maintain_order=True)
    }
    lowest = min(by_hz, key=lambda f: by_hz[f])
    return everywhere, lowest, by_hz[lowest]


def _exam_targets(rows: "pl.DataFrame") -> Iterator[Target]:
    ideal_ears = set(_part(rows, IDEAL, 4.0, None)["ear"])
    same = rows.filter(rows["ear"].is_in(list(ideal_ears)))
    for tones in RMS_TONES:
        own, ideal = (_rms(_part(same, method, 4.0, tones)) for method in (OWN, IDEAL))
        if math.isfinite(own / ideal):
            yield Target(
                f"first exam, {tones} tones, spread 4 dB: RMS error at most {RMS_RATIO:.2f} times "
                "the ideal observer's",
                f"{own / ideal:.2f} ({own:.2f} and {ideal:.2f} dB, {len(ideal_ears)} ears)",
                own <= RMS_RATIO * ideal,
            )
    for spread in SPREADS_DB:
        part = _part(rows, OWN, spread, MARKS[-1])
        if part.is_empty():
            continue
        everywhere, hz, least = _covered(part)
        good = COVERED[0] <= everywhere.value <= COVERED[1] and least >= COVERED_EACH
        yield Target(
            f"first exam, {MARKS[-1]} tones, spread {spread:g} dB: 95 % intervals cover 93-97 %, "
            "at each frequency at least 91 %",
            f"{everywhere}; lowest {least:.1%} at {hz:g} Hz", good,
        )  # fmt: skip


def _exam_tables(page: Page, rows: "pl.DataFrame", out: Path) -> None:
    lines = []
    curves: dict[str, list[tuple[float, float, int]]] = {}
    for method, spread in SHOWN:
        every = _part(rows, method, spread, None)
        if every.is_empty():
            continue
        cells = [METHOD_WORDS[method], f"{spread:g}", str(every["ear"].n_unique())]
        points = []
        for tones in MARKS:
            part = _part(rows, method, spread, tones)
            cells.append(f"{_rms(part):.2f}, {_covered(part)[0].value:.1%}")
            points.append((float(tones), _rms(part), part.height))
        curves[f"{METHOD_WORDS[method].partition(':')[0]}, spread {spread:g} dB"] = points
        lines.append(cells)
    page.heading("First exams")
    page.add(
        "RMS error in dB over 500-8000 Hz and how many 95 % intervals hold the truth, after so "
        "many tones. 2 % lapses, 1 % guesses. AEPsych runs in an environment of its own (`make "
        "results-peers`), on the first of these ears."
    )
    page.table(("method", "spread (dB)", "ears", *(f"{n} tones" for n in MARKS)), lines)
    manual = _part(rows, MANUAL, 4.0, None)
    if manual.height:
        bias = float(manual["error_db"].to_numpy().mean())
        about = float(np.std(manual["error_db"].to_numpy()))
        used = float(manual.unique("ear")["tones"].to_numpy().mean())
        page.add(
            f"{METHOD_WORDS[MANUAL]} ({manual['ear'].n_unique()} ears): RMS error "
            f"{_rms(manual):.2f} dB in {used:.0f} tones; {about:.2f} dB once its mean of "
            f"{bias:+.1f} dB above the 50 % point is taken off."
        )
    page.summary["exams"] = {
        f"{method} {spread:g}": {
            str(tones): _rms(_part(rows, method, spread, tones)) for tones in MARKS
        }
        for method, spread in (
            (OWN, 2.0),
            (OWN, 4.0),
            (OWN, 8.0),
            (IDEAL, 4.0),
            (FIELD, 4.0),
            (PEER, 4.0),
        )
        if _part(rows, method, spread, None).height
    }
    figures.save_errors(curves, out / "exams.png")
    page.picture("RMS error of first exams by tones", "exams.png")


# Calibration -----------------------------------------------------------------------------------


def _by_chance(p: Array, person: Array) -> float:
    """The error that probabilities which are exactly right show with so few ears, on average."""
    rng = np.random.default_rng(1)
    outcomes = (np.asarray(rng.random(p.size) < p, dtype=float) for _ in range(100))
    errors = [calibration(p, met, person, draws=1).error for met in outcomes]
    return float(np.mean(errors))


def _calibrations(
    rows: "pl.DataFrame", rule: str
) -> dict[tuple[str, int], tuple[Calibration, float]]:
    """By prevalence and tones, beside the error by chance.

    Ears that meet the rule are thinned out to the prevalence.
    """
    import polars as pl

    stated = Stopping().prevalence
    mine = rows.filter(pl.col("rule") == rule)
    short, past = (mine.filter(pl.col("met") == met).sort("draw", "ear") for met in (False, True))
    out = {}
    for name, factor in PREVALENCES.items():
        prevalence = factor * stated
        share = prevalence / (1.0 - prevalence)
        part = pl.concat([short, past.head(max(round(share * short.height), 1))])
        for tones in CHECKED_TONES:
            odds = part[f"log_bf_{tones}"].to_numpy() + math.log(share)
            p = 1.0 / (1.0 + np.exp(-odds))
            person = part["ear"].to_numpy()
            found = calibration(p, part["met"].to_numpy(), person, BOOTSTRAPS)
            out[name, tones] = found, _by_chance(p, person)
    return out


def _calibration_table(page: Page, rows: "pl.DataFrame", out: Path) -> None:
    lines, bins = [], {}
    kept = page.summary["calibration"] = []
    for rule in RULE_NAMES:
        for (name, tones), (c, chance) in _calibrations(rows, rule).items():
            lines.append([
                rule, name, str(tones), str(c.n), f"{c.error:.3f} [{c.low:.3f}, {c.high:.3f}]",
                f"{chance:.3f}", f"{c.brier:.3f}", f"{c.log_score:.3f}",
            ])  # fmt: skip
            kept.append({"rule": rule, "prevalence": name, "tones": tones, **asdict(c)})
            if name == "as stated" and tones in CHECKED_TONES[::2]:
                bins[f"{rule}, {tones} tones"] = c.bins
    page.heading("Calibration of P(rule met)")
    page.add(
        "Real ears that changed as the model's do, at the stated prevalence of "
        f"{Stopping().prevalence:g}, at half and at double of it, which the screen is told; no "
        "stopping. Error: ten bins of equal mass; interval: bootstrap over people; by chance: what "
        "exactly right probabilities show with so few ears."
    )
    page.table(
        ("rule", "prevalence", "tones", "n", "error", "by chance", "Brier", "log score"), lines
    )
    figures.save_calibration(bins, out / "calibration.png")
    page.picture("stated probability against the fraction that met the rule", "calibration.png")


def wrong_sides(rows: "pl.DataFrame", rule: str) -> dict[str, Proportion]:
    """How often the factor ever reached 100 for the wrong side, by truth."""
    import polars as pl

    limit = math.log(LIMIT)
    mine = rows.filter(pl.col("rule") == rule)
    short, past = (mine.filter(pl.col("met") == met) for met in (False, True))
    return {
        "not met": Proportion(int((short["highest"] >= limit).sum()), short.height),
        "met": Proportion(int((past["lowest"] <= -limit).sum()), past.height),
    }


# Brute force -----------------------------------------------------------------------------------


def _comparable(rows: "pl.DataFrame") -> "pl.DataFrame":
    import polars as pl

    return rows.filter(
        (pl.col("exact").abs() <= BRUTE_LOG_BF) & (pl.col("effective") >= BRUTE_EFFECTIVE)
    )


def _brute_numbers(rows: "pl.DataFrame") -> tuple[Array, float, int]:
    """Errors of ln BF, their SD over seeds, and decisions reversed."""
    import polars as pl

    sure = _comparable(rows)
    errors = (sure["log_bf"] - sure["exact"]).to_numpy()
    spread = sure.group_by("rule", "condition", "ear", "tones").agg(pl.col("log_bf").std())
    sd = float(np.sqrt(np.mean(spread["log_bf"].to_numpy() ** 2))) if sure.height else math.nan
    limit = math.log(LIMIT)
    reversed_ = ((rows["log_bf"] >= limit) & (rows["exact"] <= -limit)) | (
        (rows["log_bf"] <= -limit) & (rows["exact"] >= limit)
    )
    return errors, sd, int(reversed_.sum())


def _ends(rows: "pl.DataFrame") -> Array:
    return np.asarray(np.abs((rows["level_db"] - rows["exact_db"]).to_numpy()))


def _brute_targets(screens: "pl.DataFrame", exams: "pl.DataFrame | None") -> Iterator[Target]:
    errors, sd, reversed_ = _brute_numbers(screens)
    if errors.size:
        within = float(np.mean(np.abs(errors) <= BRUTE_WITHIN))
        yield Target(
            f"ln Bayes factor within {BRUTE_WITHIN:g} of brute force in 95 % of states",
            f"{within:.1%} of {errors.size} states", within >= 0.95,
        )  # fmt: skip
        yield Target(
            f"SD over seeds at most {BRUTE_SD:g}; no decision reversed",
            f"{sd:.2f}; {reversed_} reversed", sd <= BRUTE_SD and reversed_ == 0,
        )  # fmt: skip
    if exams is not None and exams.height:
        ends = _ends(exams)
        by_tones = ", ".join(
            f"after {tones} tones {np.quantile(_ends(part), 0.95):.2f} dB"
            for (tones,), part in sorted(exams.partition_by("tones", as_dict=True).items())
        )
        yield Target(
            f"ends of an exam's intervals within {BRUTE_ENDS_DB:g} dB of a much larger cloud's "
            "(95 % of them)",
            f"95 % within {np.quantile(ends, 0.95):.2f} dB ({by_tones}), all within "
            f"{ends.max():.2f} dB",
            float(np.quantile(ends, 0.95)) <= BRUTE_ENDS_DB,
        )


def _brute_tables(page: Page, screens: "pl.DataFrame", exams: "pl.DataFrame | None") -> None:
    import polars as pl

    lines = []
    for rule in RULE_NAMES:
        mine = screens.filter(pl.col("rule") == rule)
        errors, sd, reversed_ = _brute_numbers(mine)
        if not errors.size:
            continue
        lines.append([
            rule, str(mine.unique(["condition", "ear"]).height), str(errors.size),
            f"{np.sqrt(np.mean(errors**2)):.2f}", f"{np.quantile(np.abs(errors), 0.95):.2f}",
            f"{errors.mean():+.2f}", f"{sd:.2f}", str(reversed_),
            f"{mine['least_effective'].to_numpy().min():.0f}",
        ])  # fmt: skip
    page.heading("Against brute force")
    page.add(
        "Screens without stopping; states in which brute force keeps at least "
        f"{BRUTE_EFFECTIVE:g} effective draws on each side and |ln BF| is at most "
        f"{BRUTE_LOG_BF:g}. Differences of ln BF; the last column is the smallest effective size "
        "of either side's cloud."
    )
    page.table(
        (
            "rule", "screens", "states", "RMS", "95 % within", "mean", "SD over seeds", "reversed",
            "least effective",
        ),
        lines,
    )  # fmt: skip
    if exams is not None and exams.height:
        ends = _ends(exams)
        page.add(
            f"{exams['ear'].n_unique()} exams beside a cloud four times as large with more steps: "
            f"ends of the 95 % intervals differ by {np.sqrt(np.mean(ends**2)):.2f} dB RMS, 95 % by "
            f"at most {np.quantile(ends, 0.95):.2f} dB."
        )
