"""What a study leaves for readers: results.md, tables and pictures, all written from its rows."""

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
from earshift.studies.study import (
    BASELINES,
    DISTANCES,
    Ear,
    Run,
    Tally,
    decidable,
    distance,
    effort_of,
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


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _tally_row(name: str, numbers: Tally, cell_mean: float) -> str:
    return (
        f"| {name} | {numbers.runs} | {cell_mean:.2f} | {numbers.never} | {_percent(numbers.right)}"
        f" | {_percent(numbers.wrong)} | {_percent(numbers.undecided)} "
        f"| {numbers.mean_tones_two_sided:.1f} |"
    )


TALLY_HEAD = [
    "| | runs | mean tones to the right model | never | right | wrong | undecided "
    "| tones, two-sided |",
    "|---|---|---|---|---|---|---|---|",
]


def write_paper_results(
    frame: "pl.DataFrame", protocol: Protocol, max_tones: int, command: str, out: Path
) -> dict[str, Any]:
    """results.md, table.csv, pictures and summary.json of the paper's experiment."""
    all_runs = runs_of(frame, max_tones, protocol.bayes_factor)
    runs = [run for run in all_runs if run.strategy == "differential"]
    names = [name for name in norms.class_names() if any(run.old == name for run in all_runs)]
    strategies = [s for s in figures.STYLES if any(run.strategy == s for run in all_runs)]
    lines = _heading(replace(protocol, max_tones=max_tones), command, out)
    summary: dict[str, Any] = {"protocol": protocol.to_dict(), "version": __version__}
    if runs:
        counted = [run for run in runs if decidable(run)]
        lines += _groups(counted, max_tones, summary)
        lines += _cell_table(runs, names, max_tones)
        _write_csv(runs, out / "table.csv")
    if runs and len(strategies) > 1:
        lines += _baselines(all_runs, strategies, max_tones, summary)
    panels = [pair for pair in PANELS if set(pair) <= set(names)]
    if panels:
        figures.save_strategy_panels(
            [
                (f"{old} to {new}", [curve(frame, s, old, new, 50) for s in strategies])
                for old, new in panels
            ],
            out / "strategies.png",
        )
        lines += ["", "![strategies](strategies.png)"]
    if runs:
        grid = {
            (old, new): curve(frame, "differential", old, new, GRID_TONES)
            for old in names
            for new in names
        }
        figures.save_grid(names, grid, out / "grid.png")
        lines += ["", "![P(right model) for every pair](grid.png)"]
    figures.save_truths(_truths(names), out / "truths.png")
    lines += ["", "![the true audiograms](truths.png)", ""]
    (out / "results.md").write_text("\n".join(lines), encoding="utf-8")
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return summary


def origin(command: str, out: Path) -> str:
    effort = effort_of(out)
    note = f" {effort}." if effort else ""
    return f"Written by `{command}` (earshift {__version__}), not edited by hand.{note}"


def _heading(protocol: Protocol, command: str, out: Path) -> list[str]:
    settings = ", ".join(
        f"{key} {value}" for key, value in protocol.to_dict().items() if key not in ("name",)
    )
    return [
        f"## The paper's experiment, protocol `{protocol.name}`",
        "",
        origin(command, out),
        "",
        f"Settings: {settings}.",
        "",
    ]


def _groups(runs: Sequence[Run], max_tones: int, summary: dict[str, Any]) -> list[str]:
    paper = paper_table()
    lines = [
        "Tones until the Bayes factor for the right model reaches the limit (a run that never "
        f"does counts {max_tones + 1}), and the two-sided rule that a user lives by: stop at "
        "whichever limit is met first.",
        "",
        *TALLY_HEAD,
    ]
    groups = {name: [r for r in runs if distance(r) == name] for name in DISTANCES}
    groups["all"] = list(runs)
    summary["groups"] = {}
    slower = []
    for name, group in groups.items():
        if not group:
            continue
        ours = mean_of_cells(group)
        theirs = [paper[cell][0] for cell in cells(group) if cell in paper]
        their_mean = float(np.mean(theirs))
        lines.append(
            _tally_row(f"{name} ({len(cells(group))} cells; paper {their_mean:.2f})",
                       tally(group), ours)
        )  # fmt: skip
        summary["groups"][name] = {
            **asdict(tally(group)), "mean_of_cells": ours, "paper": their_mean,
        }  # fmt: skip
        if ours > their_mean:
            slower.append(f"{name} ({ours:.2f} against {their_mean:.2f})")
    if slower:
        lines += [
            "",
            f"Slower than the paper: {', '.join(slower)}. Coherent evidence pays for the freedom "
            "of the alternative: while an ear answers as predicted, a field that could have "
            "followed other answers loses only slowly. docs/method.md says why the paper's plug-in "
            'evidence, as we read it, cannot decide the "same" cells at all.',
        ]
    return lines


def _cell_table(runs: Sequence[Run], names: Sequence[str], max_tones: int) -> list[str]:
    paper, by_cell = paper_table(), cells(runs)
    lines = [
        "",
        "Cell by cell, ours (mean ± SD; * marks cells where some runs never got there) "
        "and, in brackets, the paper's:",
        "",
        "| old \\ new | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for old in names:
        entries = []
        for new in names:
            numbers = tally(by_cell[(old, new)])
            star = "*" if numbers.never else ""
            theirs = paper.get((old, new))
            bracket = f"[{theirs[0]:g} ± {theirs[1]:g}]" if theirs else "[not given]"
            entries.append(f"{numbers.mean_tones:.1f} ± {numbers.sd_tones:.1f}{star} {bracket}")
        lines.append(f"| **{old}** | " + " | ".join(entries) + " |")
    return lines


def _baselines(
    runs: Sequence[Run], strategies: Sequence[str], max_tones: int, summary: dict[str, Any]
) -> list[str]:
    others = [strategy for strategy in strategies if strategy in BASELINES]
    lines = [
        "",
        f"BADS against each baseline: difference in tones to the right model (both counted to at "
        f"most {max_tones + 1}), paired, mean with 95 % bootstrap interval. Below zero, BADS is "
        "ahead.",
        "",
        "| where | "
        + " | ".join(figures.STYLES[s][0] for s in strategies if s in BASELINES)
        + " |",
        "|---|" + "---|" * len([s for s in strategies if s in BASELINES]),
    ]
    groups = [(f"{old} to {new}", [r for r in runs if (r.old, r.new) == (old, new)])
              for old, new in PANELS]  # fmt: skip
    groups.append(("all cells", [r for r in runs if decidable(r)]))
    summary["against_baselines"] = {}
    for name, group in groups:
        if not group:
            continue
        entries = []
        for strategy in others:
            mean, low, high = paired_difference(group, "differential", strategy)
            summary["against_baselines"].setdefault(name, {})[strategy] = [mean, low, high]
            note = "" if high < 0 else " (not ahead)"
            entries.append(f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]{note}")
        lines.append(f"| {name} | " + " | ".join(entries) + " |")
    return lines


def write_variant_results(
    frame: "pl.DataFrame", title: str, command: str, out: Path, max_tones: int = 30
) -> dict[str, Any]:
    """results.md and summary.json of a study that compares labels (protocols or conditions)."""
    runs = [run for run in runs_of(frame, max_tones) if decidable(run)]
    labels = list(dict.fromkeys(run.label for run in runs))
    lines = [
        f"## {title}",
        "",
        origin(command, out),
        "",
        "Means are weighted like the paper's table: 6 same, 12 adjacent and 30 far cells.",
        "",
        "| | runs | mean tones | same | adjacent | far | right | wrong | undecided "
        "| tones, two-sided |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    summary: dict[str, Any] = {"version": __version__, "variants": {}}
    for label in labels:
        group = [run for run in runs if run.label == label]
        by_distance = {
            name: tally([r for r in group if distance(r) == name]).mean_tones for name in DISTANCES
        }
        weights = dict(zip(DISTANCES, (6, 12, 30), strict=True))
        mean = sum(weights[name] * by_distance[name] for name in DISTANCES) / 48
        numbers = tally(group)
        summary["variants"][label] = {**asdict(numbers), **by_distance, "weighted_mean": mean}
        lines.append(
            f"| {label} | {numbers.runs} | {mean:.2f} | "
            + " | ".join(f"{by_distance[name]:.1f}" for name in DISTANCES)
            + f" | {_percent(numbers.right)} | {_percent(numbers.wrong)} "
            f"| {_percent(numbers.undecided)} | {numbers.mean_tones_two_sided:.1f} |"
        )
    (out / "results.md").write_text("\n".join([*lines, ""]), encoding="utf-8")
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return summary


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
