"""Pictures of plain results, drawn the way audiologists read them.

Log frequency to the right, dB HL downwards, one octave as long as 20 dB. Shapes carry the meaning,
colour only helps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

OCTAVES_HZ = (125, 250, 500, 1000, 2000, 4000, 8000, 16000)


def _audiogram_axes(axes: Axes, low: float, high: float, loudest: int) -> None:
    """Axes as audiologists draw them, from low to high Hz."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(low, high)
    axes.set_ylim(loudest + 5, -15)
    # One octave is as long as 20 dB: on a base-2 axis a unit of length is one octave.
    axes.set_aspect(1 / 20, adjustable="box", anchor="N")
    octaves = [f for f in OCTAVES_HZ if low <= f <= high]
    axes.xaxis.set_major_locator(FixedLocator(octaves))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{f // 1000}k" if f >= 1000 else f"{f}" for f in octaves])
    axes.set_yticks(range(-10, loudest + 1, 10))
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("frequency (Hz)")
    axes.set_ylabel("hearing level (dB HL)")


STYLES = {
    "differential": ("BADS", "#1f5fa8", "-"),
    "bald": ("BALD on the new exam", "#c2571a", "--"),
    "uncertainty": ("uncertainty", "#2e7d4f", "-."),
    "random": ("random", "#555555", ":"),
}


WRONG_FIRST = "BADS: limit met for the wrong model first"


@dataclass(frozen=True)
class Curve:
    """P(right model) after each tone: median and quartiles over repetitions.

    `wrong` has a point (tone, P) for every run that met the limit for the wrong model first.
    """

    strategy: str
    median: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    wrong: Sequence[tuple[int, float]] = ()


def _draw_curves(axes: Axes, curves: Sequence[Curve]) -> None:
    for curve in curves:
        label, colour, line = STYLES[curve.strategy]
        tones = range(1, len(curve.median) + 1)
        axes.fill_between(tones, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(tones, curve.median, line, color=colour, linewidth=1.4, label=label)
    for curve in curves:
        if curve.wrong and curve.strategy == "differential":
            axes.plot(
                [tone for tone, _ in curve.wrong],
                [p for _, p in curve.wrong],
                "x",
                color="black",
                markersize=5,
                label=WRONG_FIRST,
            )
    axes.set_ylim(-0.05, 1.05)
    axes.grid(color="#dddddd", linewidth=0.5)


def save_strategy_panels(panels: Sequence[tuple[str, Sequence[Curve]]], path: Path) -> Path:
    """The paper's figure: strategies compared, one panel for each pair of conditions."""
    figure = Figure(figsize=(4.2 * len(panels), 3.6), layout="constrained")
    entries: dict[str, Artist] = {}
    for number, (title, curves) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), number + 1)
        _draw_curves(axes, curves)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("tones")
        if number == 0:
            axes.set_ylabel("P(right model)")
        handles, labels = axes.get_legend_handles_labels()
        entries.update(zip(labels, handles, strict=True))
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=4, fontsize=9)
    figure.savefig(path, dpi=140)
    return path


def save_grid(names: Sequence[str], curves: dict[tuple[str, str], Curve], path: Path) -> Path:
    """The paper's grid: P(right model) for every pair, old conditions down, new across."""
    size = len(names)
    figure = Figure(figsize=(1.6 * size + 0.8, 1.35 * size + 0.9), layout="constrained")
    entries: dict[str, Artist] = {}
    for row, old in enumerate(names):
        for column, new in enumerate(names):
            axes = figure.add_subplot(size, size, row * size + column + 1)
            if (old, new) in curves:
                found = curves[(old, new)]
                _draw_curves(axes, [found])
                handles, labels = axes.get_legend_handles_labels()
                entries.update(zip(labels, handles, strict=True))
                if found.wrong:
                    axes.text(
                        0.95, 0.4, f"{len(found.wrong)} wrong", fontsize=7, ha="right",
                        transform=axes.transAxes,
                    )  # fmt: skip
            axes.tick_params(labelsize=6)
            axes.set_yticks([0, 0.5, 1])
            if row == 0:
                axes.set_title(f"new: {new}", fontsize=8)
            if column == 0:
                axes.set_ylabel(f"old: {old}", fontsize=8)
            if row < size - 1:
                axes.set_xticklabels([])
            if column:
                axes.set_yticklabels([])
    figure.supxlabel("tones", fontsize=9)
    figure.supylabel("P(right model): median and quartiles", fontsize=9)
    figure.legend(entries.values(), entries.keys(), loc="outside upper center", ncols=2, fontsize=8)
    figure.savefig(path, dpi=140)
    return path


def save_frontier(
    points: Mapping[str, tuple[float, float, float, float]], chosen: str, path: Path
) -> Path:
    """Wrong calls against tones, a numbered point for each setting; the chosen one is filled.

    A point is mean tones and its standard error, the fraction of wrong calls and its own.
    """
    figure = Figure(figsize=(7.4, 6.4), layout="constrained")
    axes = figure.add_subplot()
    for number, (name, (tones, tones_error, wrong, wrong_error)) in enumerate(
        points.items(), start=1
    ):
        axes.errorbar(
            tones, 100 * wrong, xerr=tones_error, yerr=100 * wrong_error, color="0.6",
            linewidth=0.8, marker="o", markersize=14, markeredgecolor="black",
            markerfacecolor="black" if name == chosen else "white", label=f"{number}  {name}",
        )  # fmt: skip
        axes.annotate(
            str(number), (tones, 100 * wrong), ha="center", va="center", fontsize=8,
            color="white" if name == chosen else "black", zorder=5,
        )  # fmt: skip
    axes.set_ylim(bottom=0.0)
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xlabel("mean tones until either limit is met")
    axes.set_ylabel("wrong calls (%)")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, markerscale=0.5)
    return _saved(figure, path)


def save_truths(ears: Mapping[str, Sequence[tuple[float, float]]], path: Path) -> Path:
    """The true audiograms of the classes, as the simulated listeners have them."""
    figure = Figure(figsize=(7.0, 6.4), layout="constrained")
    axes = figure.add_subplot()
    markers = "osD^vPX*"
    for number, (name, points) in enumerate(ears.items()):
        axes.plot(
            [f for f, _ in points],
            [level for _, level in points],
            color=str(0.1 + 0.09 * number),
            linewidth=1.5,
        )
        knots = points[:: max(1, len(points) // 8)]
        axes.plot(
            [f for f, _ in knots],
            [level for _, level in knots],
            markers[number % len(markers)],
            color=str(0.1 + 0.09 * number),
            label=name,
        )
    _audiogram_axes(axes, 500 / 2**0.5, 8000 * 2**0.5, 120)
    figure.legend(loc="outside right upper", fontsize=9)
    figure.savefig(path, dpi=140, bbox_inches="tight")  # a fixed aspect overruns the layout
    return path


def save_outcomes(
    panels: Mapping[str, Sequence[tuple[str, float, float, float]]], path: Path
) -> Path:
    """Fractions right, open and wrong by condition, a panel per rule; told apart without colour."""
    most = max((len(rows) for rows in panels.values()), default=1)
    figure = Figure(figsize=(5.6 * max(len(panels), 1), 1.4 + 0.28 * most), layout="constrained")
    axes_of = figure.subplots(1, max(len(panels), 1), squeeze=False)[0]
    looks = (("right", "0.85", ""), ("open", "0.55", "///"), ("wrong", "0.0", ""))
    for axes, (rule, rows) in zip(axes_of, panels.items(), strict=False):
        start = [0.0] * len(rows)
        for place, (word, grey, hatch) in enumerate(looks, start=1):
            width = [float(row[place]) for row in rows]
            axes.barh(
                range(len(rows)), width, left=start, color=grey, hatch=hatch, edgecolor="white",
                linewidth=0.0, label=word,
            )  # fmt: skip
            start = [a + b for a, b in zip(start, width, strict=True)]
        axes.set_yticks(range(len(rows)), [row[0] for row in rows], fontsize=8)
        axes.invert_yaxis()
        axes.set_xlim(0.0, 1.0)
        axes.set_xlabel("fraction of ears")
        axes.set_title(rule)
    handles, labels = axes_of[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9)
    return _saved(figure, path)


def save_errors(curves: Mapping[str, Sequence[tuple[float, float, int]]], path: Path) -> Path:
    """RMS error of thresholds against tones, a line per method."""
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    _draw_points(axes, curves)
    axes.set_ylim(
        0.0, 1.05 * max((p[1] for points in curves.values() for p in points), default=1.0)
    )
    axes.set_xlabel("tones")
    axes.set_ylabel("RMS error (dB)")
    axes.legend(fontsize=8, frameon=False)
    return _saved(figure, path)


def save_right_by_tones(
    curves: Mapping[str, Mapping[str, Sequence[tuple[float, float, int]]]], path: Path
) -> Path:
    """Fraction of right answers after each tone, a panel per group of ears."""
    figure = Figure(figsize=(5.2 * len(curves), 4.4), layout="constrained")
    panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for axes, (group, methods) in zip(panels, curves.items(), strict=True):
        axes.axhline(0.93, color="0.6", linewidth=0.8)
        _draw_points(axes, methods)
        axes.set_ylim(0.45, 1.0)
        axes.set_xticks(range(0, 21, 5))
        axes.set_xlabel("tones")
        axes.set_title(group)
    panels[0].set_ylabel("fraction right")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=9)
    return _saved(figure, path)


def save_calibration(bins: Mapping[str, Sequence[tuple[float, float, int]]], path: Path) -> Path:
    """Fraction that met a rule against its stated probability, in bins of equal mass."""
    figure = Figure(figsize=(4.8, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
    _draw_points(axes, bins)
    axes.set_xlabel("stated P(rule met)")
    axes.set_ylabel("fraction that met it")
    axes.legend(fontsize=8, frameon=False)
    return _saved(figure, path)


def _draw_points(axes: Axes, lines: Mapping[str, Sequence[tuple[float, float, int]]]) -> None:
    styles = ("-o", "--s", "-.^", ":D", "--v", "-x")
    for number, (name, points) in enumerate(lines.items()):
        style = styles[number % len(styles)]
        axes.plot([p[0] for p in points], [p[1] for p in points], style, markersize=3.5, label=name)
    axes.set_ylim(-0.03, 1.03)


def _saved(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)
    return path
