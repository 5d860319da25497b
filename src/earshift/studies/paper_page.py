"""The results pages of the paper's experiment and of the studies that compare its variants."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from earshift import __version__
from earshift.engine import norms
from earshift.engine.protocol import Protocol
from earshift.simulate.listener import Listener
from earshift.studies import figures
from earshift.studies.case import Ear
from earshift.studies.markdown import Page
from earshift.studies.paper import (
    BASELINES,
    DISTANCES,
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

PANELS = (("normal", "normal"), ("normal", "slight"), ("moderate", "moderately-severe"))
GRID_TONES = 15


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


def curve(frame: "pl.DataFrame", strategy: str, old: str, new: str, tones: int) -> figures.Curve:
    """P(right model) after each tone: median and quartiles over repetitions."""
    import polars as pl

    chosen = frame.filter(
        (pl.col("strategy") == strategy)
        & (pl.col("old") == old)
        & (pl.col("new") == new)
        & (pl.col("tone") <= tones)
    )
    p = pl.col("p_changed")
    right = (1 - p) if old == new else p
    table = (
        chosen.group_by("tone")
        .agg(
            right.quantile(0.5, "linear").alias("median"),
            right.quantile(0.25, "linear").alias("low"),
            right.quantile(0.75, "linear").alias("high"),
        )
        .sort("tone")
    )
    return figures.Curve(
        strategy, table["median"].to_list(), table["low"].to_list(), table["high"].to_list()
    )


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _outcome_cells(numbers: Tally) -> list[str]:
    """right, wrong, undecided, and the tones of the two-sided rule."""
    return [
        *(_percent(part) for part in (numbers.right, numbers.wrong, numbers.undecided)),
        f"{numbers.mean_tones_two_sided:.1f}",
    ]


OUTCOMES = ("right", "wrong", "undecided", "tones, two-sided")


def write_paper_results(
    frame: "pl.DataFrame", protocol: Protocol, max_tones: int, command: str, out: Path
) -> dict[str, Any]:
    """results.md, table.csv, pictures and summary.json of the paper's experiment."""
    all_runs = runs_of(frame, max_tones, protocol.bayes_factor)
    runs = [run for run in all_runs if run.strategy == "differential"]
    names = [name for name in norms.class_names() if any(run.old == name for run in all_runs)]
    strategies = [s for s in figures.STYLES if any(run.strategy == s for run in all_runs)]
    page = Page(
        f"The paper's experiment, protocol `{protocol.name}`",
        command,
        out,
        {"protocol": protocol.to_dict(), "version": __version__},
    )
    settings = replace(protocol, max_tones=max_tones).to_dict()
    page.add(
        "Settings: "
        + ", ".join(f"{key} {value}" for key, value in settings.items() if key != "name")
        + "."
    )
    if runs:
        _groups(page, [run for run in runs if decidable(run)], max_tones)
        _cell_table(page, runs, names)
        _write_csv(runs, out / "table.csv")
    if runs and len(strategies) > 1:
        _baselines(page, all_runs, strategies, max_tones)
    panels = [pair for pair in PANELS if set(pair) <= set(names)]
    if panels:
        figures.save_strategy_panels(
            [
                (f"{old} to {new}", [curve(frame, s, old, new, 50) for s in strategies])
                for old, new in panels
            ],
            out / "strategies.png",
        )
        page.picture("strategies", "strategies.png")
    if runs:
        grid = {
            (old, new): curve(frame, "differential", old, new, GRID_TONES)
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
            f"Slower than the paper: {', '.join(slower)}. Coherent evidence pays for the freedom "
            "of the alternative: while an ear answers as predicted, a field that could have "
            "followed other answers loses only slowly. docs/method.md says why the paper's plug-in "
            'evidence, as we read it, cannot decide the "same" cells at all.'
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


def _baselines(page: Page, runs: Sequence[Run], strategies: Sequence[str], max_tones: int) -> None:
    others = [strategy for strategy in strategies if strategy in BASELINES]
    page.add(
        f"BADS against each baseline: difference in tones to the right model (both counted to at "
        f"most {max_tones + 1}), paired, mean with 95 % bootstrap interval. Below zero, BADS is "
        "ahead."
    )
    groups = [(f"{old} to {new}", [r for r in runs if (r.old, r.new) == (old, new)])
              for old, new in PANELS]  # fmt: skip
    groups.append(("all cells", [r for r in runs if decidable(r)]))
    kept = page.summary["against_baselines"] = {}
    rows = []
    for name, group in groups:
        if not group:
            continue
        entries = [name]
        for strategy in others:
            mean, low, high = paired_difference(group, "differential", strategy)
            kept.setdefault(name, {})[strategy] = [mean, low, high]
            note = "" if high < 0 else " (not ahead)"
            entries.append(f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]{note}")
        rows.append(entries)
    page.table(("where", *(figures.STYLES[s][0] for s in others)), rows)


def write_variant_results(
    frame: "pl.DataFrame", title: str, command: str, out: Path, max_tones: int = 30
) -> dict[str, Any]:
    """results.md and summary.json of a study that compares labels (protocols or conditions)."""
    runs = [run for run in runs_of(frame, max_tones) if decidable(run)]
    page = Page(title, command, out, {"version": __version__, "variants": {}})
    page.add("Means are weighted like the paper's table: 6 same, 12 adjacent and 30 far cells.")
    rows = []
    for label in dict.fromkeys(run.label for run in runs):
        group = [run for run in runs if run.label == label]
        by_distance = {
            name: tally([r for r in group if distance(r) == name]).mean_tones for name in DISTANCES
        }
        weights = dict(zip(DISTANCES, (6, 12, 30), strict=True))
        mean = sum(weights[name] * by_distance[name] for name in DISTANCES) / 48
        numbers = tally(group)
        page.summary["variants"][label] = {
            **asdict(numbers), **by_distance, "weighted_mean": mean,
        }  # fmt: skip
        rows.append([
            label, str(numbers.runs), f"{mean:.2f}",
            *(f"{by_distance[name]:.1f}" for name in DISTANCES), *_outcome_cells(numbers),
        ])  # fmt: skip
    page.table(("", "runs", "mean tones", *DISTANCES, *OUTCOMES), rows)
    return page.write()


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
