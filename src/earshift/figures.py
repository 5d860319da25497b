"""Pictures of plain results, drawn the way audiologists read them.

Log frequency to the right, dB HL downwards, one octave as long as 20 dB. Shapes carry the meaning,
colour only helps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from earshift.field import Threshold
from earshift.stimulus import Trial

NOW, BEFORE = "#1f5fa8", "#777777"
OCTAVES_HZ = (125, 250, 500, 1000, 2000, 4000, 8000, 16000)


@dataclass(frozen=True)
class Panel:
    """One audiogram: the reference, the ear now, and the tones that were played."""

    title: str
    reference: Sequence[Threshold]
    now: Sequence[Threshold] = ()
    trials: Sequence[Trial] = ()
    caption: str = ""


def draw_audiogram(axes: Axes, panel: Panel) -> None:
    """Draw one panel on given axes."""
    _curve(axes, panel.reference, BEFORE, "s--", "reference (95 % band)")
    if panel.now:
        _curve(axes, panel.now, NOW, "o-", "now (95 % band)")
    for heard, marker, label in ((True, "^", "heard"), (False, "v", "not heard")):
        tones = [trial.tone for trial in panel.trials if trial.heard == heard]
        if tones:
            axes.plot(
                [tone.frequency_hz for tone in tones],
                [tone.level_db_hl for tone in tones],
                marker,
                color="black",
                markerfacecolor="black" if heard else "white",
                markersize=5,
                linestyle="none",
                label=f"tone {label}",
            )
    shown = [t.frequency_hz for t in (*panel.reference, *panel.now)]
    low, high = min(shown) / 2**0.5, max(shown) * 2**0.5
    axes.set_xscale("log", base=2)
    axes.set_xlim(low, high)
    axes.set_ylim(105, -15)
    # One octave is as long as 20 dB: on a base-2 axis one decade of the transform is one octave.
    axes.set_aspect(1 / 20, adjustable="box", anchor="N")
    octaves = [f for f in OCTAVES_HZ if low <= f <= high]
    axes.xaxis.set_major_locator(FixedLocator(octaves))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{f // 1000}k" if f >= 1000 else f"{f}" for f in octaves])
    axes.set_yticks(range(-10, 101, 10))
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("frequency (Hz)")
    axes.set_ylabel("hearing level (dB HL)")
    axes.set_title("\n".join(filter(None, (panel.title, panel.caption))), fontsize=11)


def _curve(axes: Axes, points: Sequence[Threshold], colour: str, style: str, label: str) -> None:
    frequencies = [t.frequency_hz for t in points]
    axes.fill_between(
        frequencies,
        [t.low_db_hl for t in points],
        [t.high_db_hl for t in points],
        color=colour,
        alpha=0.18,
        linewidth=0,
    )
    axes.plot(
        frequencies,
        [t.level_db_hl for t in points],
        style,
        color=colour,
        markersize=4.5,
        linewidth=1.3,
        label=label,
    )


def save_audiograms(panels: Sequence[Panel], path: Path) -> Path:
    """Write panels side by side as one picture (the suffix of the path says which format)."""
    figure = Figure(figsize=(5.0 * len(panels), 6.6), layout="constrained")
    entries: dict[str, Artist] = {}
    for number, panel in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), number + 1)
        draw_audiogram(axes, panel)
        handles, labels = axes.get_legend_handles_labels()
        entries.update(zip(labels, handles, strict=True))
    figure.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=4, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)
    return path
