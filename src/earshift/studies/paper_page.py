"""The results pages of the paper's experiment and of the studies that compare its variants."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from earshift import __version__
from earshift.engine import norms
from earshift.engine.protocol import OPTIONS, Protocol
from earshift.simulate.listener import Listener
from earshift.studies import figures
from earshift.studies.case import Ear
from earshift.studies.markdown import Page
from earshift.studies.paper import (
    BASELINE_TONES,
    BASELINES,
    CURVE_TONES,
    DISTANCES,
    PANELS,
    Run,
    Tally,
    decidable,
    distance,
    paired_difference,
    runs_of,
    tally,
)

if TYPE_CHECKING:
    import polars as pl

READINGS = ("paper", "paper-vague", "literal")  # protocols that are readings of the paper
LEAST_SD = 0.3  # of a cell's tones, where all repetitions took the same number
PAPERS_REPS = 10
WEIGHTS = dict(zip(DISTANCES, (6, 12, 30), strict=True))  # cells of the paper's table


def paper_table() -> dict[tuple[str, str], tuple[float, float]]:
    """The paper's table: (old, new) to mean and SD of tones to a Bayes factor of 100."""
    text = resources.files("earshift.studies").joinpath("paper.json").read_text(encoding="utf-8")
    data = json.loads(text)
    names = data["classes"]
    return {
        (old, new): (data["mean"][j][k], data["sd"][j][k])
        for j, old in enumerate(names)
        for k, new in enumerate(names)
        if data["mean"][j][k] is not None
    }


def cells(runs: Sequence[Run]) -> dict[tuple[str, str], list[Run]]:
    """Runs by (old, new)."""
    out: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        out.setdefault((run.old, run.new), []).append(run)
    return out


def mean_of_cells(runs: Sequence[Run]) -> float:
    """Mean over cells of a cell's mean tones, as the paper's table is averaged."""
    return float(np.mean([tally(group).mean_tones for group in cells(runs).values()]))


def curve(
    frame: "pl.DataFrame", strategy: str, old: str, new: str, tones: int, limit: float = math.inf
) -> figures.Curve:
    """P(right model) after each tone: median and quartiles over repetitions.

    A run that has ended keeps its last P. `limit` is the log Bayes factor that decides, for the
    marks of runs that met it for the wrong model first.
    """
    import polars as pl

    chosen = frame.filter(
        (pl.col("strategy") == strategy)
        & (pl.col("old") == old)
        & (pl.col("new") == new)
        & (pl.col("tone") <= tones)
    )
    runs, wrong = [], []
    for _, part in chosen.sort("tone").group_by("rep", maintain_order=True):
        p, log_bf = part["p_changed"].to_numpy(), part["log_bf"].to_numpy()
        right, evidence = (1 - p, -log_bf) if old == new else (p, log_bf)
        runs.append(np.pad(right, (0, tones - right.size), mode="edge"))
        met = np.flatnonzero(np.abs(evidence) >= limit)
        if met.size and evidence[met[0]] < 0:
            wrong.append((int(met[0]) + 1, float(right[met[0]])))
    if not runs:
        return figures.Curve(strategy, [], [], [])
    low, median, high = np.quantile(np.array(runs), (0.25, 0.5, 0.75), axis=0)
    return figures.Curve(strategy, median.tolist(), low.tolist(), high.tolist(), wrong)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _outcome_cells(numbers: Tally) -> list[str]:
    """right, wrong, undecided, and the tones of the two-sided rule."""
    return [
        *(_percent(part) for part in (numbers.right, numbers.wrong, numbers.undecided)),
        f"{numbers.mean_tones_two_sided:.2f}",
    ]


OUTCOMES = ("right", "wrong", "undecided", "tones, two-sided")


def write_paper_results(
    frame: "pl.DataFrame",
    protocol: Protocol,
    max_tones: int,
    command: str,
    out: Path,
    reps: int | None = None,
) -> dict[str, Any]:
    """results.md, table.csv, pictures and summary.json of the paper's experiment.

    `reps` is the number of repetitions of every cell; further ones, of the panels' cells, count
    for the panels alone. None takes all of them for the table.
    """
    all_runs = runs_of(frame, max_tones, protocol.bayes_factor)
    limit = math.log(protocol.bayes_factor) - 1e-12
    everywhere = [run for run in all_runs if reps is None or run.rep < reps]
    runs = [run for run in everywhere if run.strategy == "differential"]
    names = [name for name in norms.class_names() if any(run.old == name for run in all_runs)]
    strategies = [s for s in figures.STYLES if any(run.strategy == s for run in all_runs)]
    page = Page(
        f"The paper's experiment, protocol `{protocol.name}`",
        command,
        out,
        {"protocol": protocol.to_dict(), "version": __version__},
    )
    settings = replace(protocol, max_tones=max_tones).to_dict()
    left_out = {"name"}
    if protocol.alternative == "shift":  # has no theta_g and no correlations
        settings |= {"rough_share": protocol.rough_share, "rough_size": protocol.rough_size}
        left_out |= {*OPTIONS, "prior_scale", "rho_points", "rho_low", "rho_high"}
    page.add(
        "Settings: "
        + ", ".join(f"{key} {value}" for key, value in settings.items() if key not in left_out)
        + "."
    )
    if runs:
        _groups(page, [run for run in runs if decidable(run)], max_tones)
        _cell_table(page, runs, names)
        if protocol.name in READINGS:
            _agreement(page, runs)
        _write_csv(runs, out / "table.csv")
    if runs and len(strategies) > 1:
        _baselines(page, all_runs, everywhere, strategies, max_tones)
    panels = [pair for pair in PANELS if set(pair) <= set(names)]
    if panels:
        figures.save_strategy_panels(
            [
                (
                    f"{old} to {new}",
                    [curve(frame, s, old, new, BASELINE_TONES, limit) for s in strategies],
                )
                for old, new in panels
            ],
            out / "strategies.png",
        )
        page.picture("strategies", "strategies.png")
    if runs:
        table = frame if reps is None else frame.filter(frame["rep"] < reps)
        grid = {
            (old, new): curve(table, "differential", old, new, CURVE_TONES, limit)
            for old in names
            for new in names
        }
        figures.save_grid(names, grid, out / "grid.png")
        page.picture("P(right model) for every pair", "grid.png")
    figures.save_truths(_truths(names), out / "truths.png")
    page.picture("the true audiograms", "truths.png")
    return page.write()


def _groups(page: Page, runs: Sequence[Run], max_tones: int) -> None:
    paper = paper_table()
    page.add(
        "Tones until the Bayes factor for the right model reaches the limit (a run that never "
        f"does counts {max_tones + 1}), and the two-sided rule that a user lives by: stop at "
        "whichever limit is met first."
    )
    groups = {name: [r for r in runs if distance(r) == name] for name in DISTANCES}
    groups["all"] = list(runs)
    kept = page.summary["groups"] = {}
    rows, slower = [], []
    for name, group in groups.items():
        if not group:
            continue
        numbers, ours = tally(group), mean_of_cells(group)
        theirs = float(np.mean([paper[cell][0] for cell in cells(group) if cell in paper]))
        rows.append([
            f"{name} ({len(cells(group))} cells; paper {theirs:.2f})", str(numbers.runs),
            f"{ours:.2f}", str(numbers.never), *_outcome_cells(numbers),
        ])  # fmt: skip
        kept[name] = {**asdict(numbers), "mean_of_cells": ours, "paper": theirs}
        if ours > theirs:
            slower.append(f"{name} ({ours:.2f} against {theirs:.2f})")
    page.table(("", "runs", "mean tones to the right model", "never", *OUTCOMES), rows)
    if slower:
        page.add(
            f"Slower than the paper: {', '.join(slower)}. How long an unchanged ear takes is "
            'decided by the alternative, not by the ear: the evidence for "same" is what M_g '
            "loses by having expected other answers, and the hyperprior of theta_g, whose width "
            "the paper does not give, says how far it spreads its expectation (docs/method.md)."
        )


def agreement(
    runs: Sequence[Run],
) -> tuple[int, list[tuple[str, str, float, float, float]]]:
    """How many cells can be compared with the paper's, and those that differ from them.

    By more than two standard errors, sqrt((SD_paper^2 + SD_ours^2) / 10): each as old, new, our
    mean, the paper's, and the difference in standard errors.
    """
    paper, outside, compared = paper_table(), [], 0
    for (old, new), group in cells(runs).items():
        if (old, new) not in paper:
            continue
        compared += 1
        ours, (theirs, spread) = tally(group), paper[(old, new)]
        error = math.sqrt(
            (max(spread, LEAST_SD) ** 2 + max(ours.sd_tones, LEAST_SD) ** 2) / PAPERS_REPS
        )
        gap = (ours.mean_tones - theirs) / error
        if abs(gap) > 2.0:
            outside.append((old, new, ours.mean_tones, theirs, gap))
    return compared, outside


def _agreement(page: Page, runs: Sequence[Run]) -> None:
    compared, outside = agreement(runs)
    by_chance = 0.0455 * compared
    page.summary["agreement"] = {
        "cells": compared,
        "within": compared - len(outside),
        "outside": [list(cell) for cell in outside],
    }
    page.add(
        f"{compared - len(outside)} of {compared} cells agree with the paper's within two standard "
        "errors, sqrt((SD_paper² + SD_ours²) / 10), each SD at least 0.3, tones to the right "
        f"model; {by_chance:.0f} would fall outside by chance. Those that do not agree:"
    )
    page.table(
        ("old", "new", "ours", "paper", "difference in standard errors"),
        [
            [old, new, f"{ours:.1f}", f"{theirs:g}", f"{gap:+.1f}"]
            for old, new, ours, theirs, gap in outside
        ],
    )


def _cell_table(page: Page, runs: Sequence[Run], names: Sequence[str]) -> None:
    paper, by_cell = paper_table(), cells(runs)
    page.add(
        "Cell by cell, ours (mean ± SD; * marks cells where some runs never got there) "
        "and, in brackets, the paper's:"
    )
    rows = []
    for old in names:
        entries = [f"**{old}**"]
        for new in names:
            numbers = tally(by_cell[(old, new)])
            star = "*" if numbers.never else ""
            theirs = paper.get((old, new))
            bracket = f"[{theirs[0]:g} ± {theirs[1]:g}]" if theirs else "[not given]"
            entries.append(f"{numbers.mean_tones:.1f} ± {numbers.sd_tones:.1f}{star} {bracket}")
        rows.append(entries)
    page.table(("old \\ new", *names), rows)


def _complete(runs: Sequence[Run]) -> list[Run]:
    """Those of repetitions that a strategy went through in every cell."""
    size = len(cells(runs))
    done = Counter((run.strategy, run.rep) for run in runs)
    return [run for run in runs if done[(run.strategy, run.rep)] == size]


def _baselines(
    page: Page,
    runs: Sequence[Run],
    everywhere: Sequence[Run],
    strategies: Sequence[str],
    max_tones: int,
) -> None:
    others = [strategy for strategy in strategies if strategy in BASELINES]
    page.add(
        f"BADS against each baseline: difference in tones to the right model (both counted to at "
        f"most {max_tones + 1}), paired, mean with 95 % bootstrap interval. Below zero, BADS is "
        "ahead."
    )
    groups = [(f"{old} to {new}", [r for r in runs if (r.old, r.new) == (old, new)])
              for old, new in PANELS]  # fmt: skip
    groups.append(("all cells", [r for r in _complete(everywhere) if decidable(r)]))
    kept = page.summary["against_baselines"] = {}
    rows, pairs = [], {}
    for name, group in groups:
        if not group:
            continue
        entries = [name]
        for strategy in others:
            if not any(run.strategy == strategy for run in group):
                entries.append("-")
                continue
            mean, low, high = paired_difference(group, "differential", strategy)
            kept.setdefault(name, {})[strategy] = [mean, low, high]
            note = "" if high < 0 else " (not ahead)"
            entries.append(f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]{note}")
        if set(entries[1:]) != {"-"}:
            pairs[name] = min(sum(r.strategy == s for r in group) for s in others)
            rows.append(entries)
    page.table(("where", *(figures.STYLES[s][0] for s in others)), rows)
    page.add("Pairs: " + ", ".join(f"{name} {count}" for name, count in pairs.items()) + ".")


@dataclass(frozen=True)
class Weighted:
    """A mean over runs, weighted like the paper's table, with its standard error."""

    mean: float
    error: float

    @property
    def text(self) -> str:
        return f"{self.mean:.2f} ± {self.error:.2f}"


def weighted(values: Mapping[str, Sequence[float]]) -> Weighted:
    """Of values by distance: 6 same, 12 adjacent and 30 far cells."""
    total = sum(WEIGHTS[name] for name in values)
    mean = sum(WEIGHTS[name] / total * float(np.mean(each)) for name, each in values.items())
    variance = sum(
        (WEIGHTS[name] / total) ** 2 * float(np.var(each, ddof=1)) / len(each)
        for name, each in values.items()
        if len(each) > 1
    )
    return Weighted(mean, math.sqrt(variance))


def _by_distance(runs: Sequence[Run]) -> dict[str, list[Run]]:
    groups = {name: [run for run in runs if distance(run) == name] for name in DISTANCES}
    return {name: group for name, group in groups.items() if group}


def _against(runs: Sequence[Run], others: Sequence[Run]) -> Weighted | None:
    """Difference in tones, two-sided, paired over (old, new, rep); None without pairs."""
    known = {(r.old, r.new, r.rep): r.tones_to_outcome for r in others}
    gaps: dict[str, list[float]] = {}
    for run in runs:
        key = (run.old, run.new, run.rep)
        if key in known:
            gaps.setdefault(distance(run), []).append(run.tones_to_outcome - known[key])
    return weighted(gaps) if gaps else None


def write_variant_results(
    frame: "pl.DataFrame",
    title: str,
    command: str,
    out: Path,
    max_tones: int = 30,
    against: str | None = None,
    ears: Mapping[str, Ear] | None = None,
    frontier: bool = False,
) -> dict[str, Any]:
    """results.md and summary.json of a study that compares labels (protocols or conditions).

    Each is compared with the label `against`, by default the first. With `ears`, real ones by their
    names, the pairs that were judged wrongly are shown. With `frontier`, labels are settings to
    choose from: which of them no other beats in both tones and wrong calls, and a picture.
    """
    runs = [run for run in runs_of(frame, max_tones) if decidable(run)]
    page = Page(title, command, out, {"version": __version__, "variants": {}})
    labels = list(dict.fromkeys(run.label for run in runs))
    usual = labels[0] if against is None else against
    page.add(
        "Means are weighted like the paper's table: 6 same, 12 adjacent and 30 far cells; ± is one "
        f"standard error. Differences are from `{usual}` on the same ears with the same luck, "
        "two-sided; those of less than two standard errors are marked ~ and are no differences "
        "that this table shows."
    )
    rows, close = [], []
    for label in labels:
        group = [run for run in runs if run.label == label]
        parts = _by_distance(group)
        by_distance = {name: tally(each).mean_tones for name, each in parts.items()}
        one_sided = weighted({n: [r.tones_to_right for r in each] for n, each in parts.items()})
        two_sided = weighted({n: [r.tones_to_outcome for r in each] for n, each in parts.items()})
        gap = _against(group, [run for run in runs if run.label == usual])
        told = "-"
        if gap is not None and label != usual:
            near = abs(gap.mean) <= 2.0 * gap.error
            told = f"{gap.mean:+.2f} ± {gap.error:.2f}{' ~' if near else ''}"
            close += [label] if near else []
        numbers = tally(group)
        page.summary["variants"][label] = {
            **asdict(numbers), **by_distance, "weighted_mean": one_sided.mean,
            "weighted_two_sided": two_sided.mean, "two_sided_error": two_sided.error,
            "two_sided": {n: tally(each).mean_tones_two_sided for n, each in parts.items()},
            "wrong_adjacent": sum(r.outcome == "wrong" for r in parts.get("adjacent", [])),
            "difference": None if gap is None else [gap.mean, gap.error],
        }  # fmt: skip
        rows.append([
            label, str(numbers.runs), one_sided.text,
            *(f"{by_distance[n]:.1f}" if n in by_distance else "-" for n in DISTANCES),
            *_outcome_cells(numbers)[:3], two_sided.text, told,
        ])  # fmt: skip
    page.table(("", "runs", "tones to the right model", *DISTANCES, *OUTCOMES, "difference"), rows)
    page.add(f"{len(labels) - 1 - len(close)} of {len(labels) - 1} differences exceed two errors.")
    if frontier:
        _frontier(page, usual)
    if ears is not None:
        _wrong_pairs(page, [r for r in runs if r.label == usual and r.outcome == "wrong"], ears)
    return page.write()


def _frontier(page: Page, chosen: str) -> None:
    """The settings by tones and wrong calls, and which of them are beaten in both."""
    points = {}
    for label, numbers in page.summary["variants"].items():
        wrong, runs = numbers["wrong"], numbers["runs"]
        error = math.sqrt(wrong * (1.0 - wrong) / runs)
        points[label] = (numbers["weighted_two_sided"], numbers["two_sided_error"], wrong, error)
    page.add(
        "The frontier: wrong calls against tones of the two-sided rule, quickest first; ± is one "
        "standard error. A setting that another one beats in both is not on it; where the "
        "difference is within the errors, that says little."
    )
    rows = []
    for label, (tones, tones_error, wrong, error) in sorted(points.items(), key=lambda p: p[1][0]):
        better = [name for name, other in points.items() if other[0] < tones and other[2] <= wrong]
        numbers = page.summary["variants"][label]
        kept = numbers["on_frontier"] = not better
        rows.append([
            label, f"{tones:.2f} ± {tones_error:.2f}",
            *(f"{numbers['two_sided'].get(name, math.nan):.1f}" for name in DISTANCES),
            f"{round(wrong * numbers['runs'])}: {100 * wrong:.1f} ± {100 * error:.1f} %",
            str(numbers["wrong_adjacent"]), "yes" if kept else "no",
        ])  # fmt: skip
    page.table(
        ("", "tones, two-sided", *DISTANCES, "wrong", "of these adjacent", "on the frontier"), rows
    )
    figures.save_frontier(points, chosen, page.out / "frontier.png")
    page.picture("wrong calls against tones for every setting tried", "frontier.png")


def _wrong_pairs(page: Page, wrong: Sequence[Run], ears: Mapping[str, Ear]) -> None:
    """What was judged wrongly, and how far apart those ears are."""
    page.add(f"The {len(wrong)} runs that were judged wrongly, and how far apart the two ears are:")
    rows = []
    for run in sorted(wrong, key=lambda r: (r.old, r.new)):
        gaps = [
            b - a
            for (_, a), (_, b) in zip(
                ears[run.old].thresholds_db_hl, ears[run.new].thresholds_db_hl, strict=True
            )
        ]
        root = math.sqrt(float(np.mean(np.square(gaps))))
        rows.append([
            run.old, run.new, str(run.tones_to_outcome), f"{np.mean(gaps):+.0f}", f"{root:.0f}",
            f"{max(gaps, key=abs):+.0f}",
        ])  # fmt: skip
    page.table(
        ("old", "new", "tones", "mean shift, dB", "root mean square, dB", "largest, dB"), rows
    )


def _write_csv(runs: Sequence[Run], path: Path) -> None:
    lines = ["old,new,runs,mean_tones,sd_tones,never,right,wrong,undecided,mean_tones_two_sided"]
    for (old, new), group in cells(runs).items():
        n = tally(group)
        lines.append(
            f"{old},{new},{n.runs},{n.mean_tones:.4f},{n.sd_tones:.4f},{n.never},"
            f"{n.right:.4f},{n.wrong:.4f},{n.undecided:.4f},{n.mean_tones_two_sided:.4f}"
        )
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def _truths(names: Sequence[str]) -> dict[str, list[tuple[float, float]]]:
    frequencies = [500.0 * 2 ** (k / 12) for k in range(49)]
    out = {}
    for name in names:
        listener = Listener(dict(Ear.of_class(name).thresholds_db_hl))
        out[name] = [(f, listener.threshold(f)) for f in frequencies]
    return out
