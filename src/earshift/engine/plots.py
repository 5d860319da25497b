"""Pictures of results: matplotlib axes in, axes out. Knows numbers alone.

Audiograms are drawn as audiologists read them: log frequency to the right, dB HL downwards, one
octave as long as 20 dB, a red O for the right ear and a blue X for the left. Shapes carry the
meaning, colour only helps. matplotlib loads with the first picture.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Any

from earshift.engine.refusal import Refusal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS: dict[str | None, str] = {"right": "#c8102e", "left": "#1f5fa8", None: "#222222"}
MARKERS: dict[str | None, str] = {"right": "o", "left": "x", None: "D"}
BEFORE = "#777777"
OCTAVES_HZ = (125, 250, 500, 1000, 2000, 4000, 8000, 16000)
APART = 2.0**0.06  # an answer of either kind at one place: so far to either side
BELOW_AXES_INCHES = -0.42  # a legend: below the label of the axis
AUDIOGRAM_INCHES = 4.6  # the width of a new one
BESIDE_AXES_INCHES = 0.7  # of it, for the levels
AROUND_AXES_INCHES = 1.7  # above and below an audiogram: its title, frequencies and legend
TONES_APART = 1.0 / 40.0  # of the range, on an axis that is not logarithmic


@dataclass(frozen=True)
class Scale:
    """One axis of a picture.

    Attributes:
        label: what it shows, with its unit.
        low: its lowest value.
        high: its highest value.
        logarithmic: whether equal ratios are equal steps.
    """

    label: str
    low: float
    high: float
    logarithmic: bool = False


@dataclass(frozen=True)
class Line:
    """Estimates with their 95 % intervals along one axis.

    Attributes:
        label: in the legend.
        x: where; of tones, frequencies in Hz.
        y: the estimates.
        low: lower ends of their intervals.
        high: upper ends of their intervals.
        ear: "right", "left" or None.
        before: of a reference, drawn in grey.
        outside: by its place in x, "above" or "below": only known to lie beyond.
        tested: where tones were given, as values of x: these have symbols, between them is a line
            alone. None where all are measured.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    ear: str | None = None
    before: bool = False
    outside: Mapping[int, str] | None = None
    tested: frozenset[float] | None = None

    @property
    def marked(self) -> list[int]:
        """The places in x that have a symbol."""
        return [k for k, x in enumerate(self.x) if self.tested is None or x in self.tested]


@dataclass(frozen=True)
class Words:
    """How answers are called in a picture: their probability, yes and no."""

    p: str
    yes: str
    no: str


HEARD = Words("P(heard)", "heard", "not heard")
SAID_YES = Words("P(yes)", "yes", "no")  # on other axes than a tone's there is nothing to hear
CORRECT = Words("P(correct)", "correct", "wrong")
CHOICE = 0.2  # guess rate from which on it is a choice among alternatives, and no false alarms


def words_of(of_tones: bool, guess: float) -> Words:
    """The words for answers to tones, to yes-or-no questions and to a forced choice."""
    if guess >= CHOICE:
        return CORRECT
    return HEARD if of_tones else SAID_YES


def label_of(name: str, unit: str) -> str:
    """An axis of a domain in words: gap_ms in ms is "gap (ms)"."""
    known = {"frequency_hz": "frequency", "level_db_hl": "level"}
    words = name.split("_")
    if len(words) > 1 and words[-1].lower() == unit.lower():
        words.pop()
    return f"{known.get(name, ' '.join(words))} ({unit})"


@dataclass(frozen=True)
class Answer:
    """An answered tone or stimulus: where, how loud, whose ear, and whether it was heard."""

    x: float
    y: float
    heard: bool
    ear: str | None = None


def on(ax: "Axes | None", width: float = 5.0, height: float = 5.0) -> "Axes":
    """The axes that were given, or new ones in a figure of this size in inches."""
    if ax is None:
        from matplotlib import pyplot

        made: Axes = pyplot.subplots(figsize=(width, height), layout="constrained")[1]
        return made
    from matplotlib.axes import Axes as Known

    if not isinstance(ax, Known):
        raise Refusal(
            f"ax must be matplotlib axes, got {ax!r}",
            advice="leave it out, or take one from matplotlib.pyplot.subplots()",
        )
    return ax


def on_audiogram(ax: "Axes | None", frequency: Scale, level: Scale) -> "Axes":
    """The same for an audiogram: the figure is as high as its axes and their legend need."""
    octave = (AUDIOGRAM_INCHES - BESIDE_AXES_INCHES) / (log2(frequency.high / frequency.low) + 1)
    height = octave * (level.high - level.low + 10) / 20
    return on(ax, AUDIOGRAM_INCHES, height + AROUND_AXES_INCHES)


def audiogram(
    ax: "Axes | None",
    lines: Sequence[Line],
    answers: Sequence[Answer] = (),
    *,
    frequency: Scale,
    level: Scale,
    words: Words = HEARD,
) -> "Axes":
    """Thresholds over frequency, with the tones that were answered."""
    ax = on_audiogram(ax, frequency, level)
    audiogram_axes(ax, frequency, level)
    return _thresholds(ax, lines, answers, words)


def thresholds(
    ax: "Axes",
    lines: Sequence[Line],
    answers: Sequence[Answer],
    *,
    place: Scale,
    level: Scale,
    words: Words,
) -> "Axes":
    """Thresholds along one axis of another kind than a tone's."""
    _scaled(ax, place)
    _up(ax, level)
    _grid(ax)
    return _thresholds(ax, lines, answers, words)


def _thresholds(
    ax: "Axes", lines: Sequence[Line], answers: Sequence[Answer], words: Words
) -> "Axes":
    for line in lines:
        _draw(ax, line)
    _draw_answers(ax, answers, words)
    _legend(ax)
    return ax


def audiogram_axes(ax: "Axes", frequency: Scale, level: Scale) -> None:
    """Axes as audiologists draw them; some room is left around."""
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = frequency.low / 2**0.5, frequency.high * 2**0.5
    ax.set_xscale("log", base=2)
    ax.set_xlim(low, high)
    ax.set_ylim(level.high + 5, level.low - 5)
    # One octave is as long as 20 dB: on a base-2 axis a unit of length is one octave.
    ax.set_aspect(1 / 20, adjustable="box", anchor="N")
    octaves = [f for f in OCTAVES_HZ if low <= f <= high]
    ax.xaxis.set_major_locator(FixedLocator(octaves))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticklabels([f"{f // 1000}k" if f >= 1000 else f"{f}" for f in octaves])
    first = -(-level.low // 10) * 10
    ax.set_yticks([first + 10 * k for k in range(int((level.high - first) // 10) + 1)])
    ax.set_xlabel(frequency.label)
    ax.set_ylabel(level.label)
    _grid(ax)


def _scaled(ax: "Axes", scale: Scale) -> None:
    if scale.logarithmic:
        from matplotlib.ticker import ScalarFormatter

        ax.set_xscale("log", base=2)
        ax.set_xlim(scale.low / 2**0.5, scale.high * 2**0.5)
        ax.xaxis.set_major_formatter(ScalarFormatter())
    else:
        gap = 0.05 * (scale.high - scale.low) or 1.0
        ax.set_xlim(scale.low - gap, scale.high + gap)
    ax.set_xlabel(scale.label)


def _up(ax: "Axes", scale: Scale) -> None:
    if scale.logarithmic:
        from matplotlib.ticker import ScalarFormatter

        ax.set_yscale("log", base=2)
        ax.set_ylim(scale.low / 2**0.25, scale.high * 2**0.25)
        ax.yaxis.set_major_formatter(ScalarFormatter())
    else:
        gap = 0.05 * (scale.high - scale.low)
        ax.set_ylim(scale.low - gap, scale.high + gap)
    ax.set_ylabel(scale.label)


def _grid(ax: "Axes") -> None:
    ax.grid(color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)


def _draw(ax: "Axes", line: Line) -> None:
    colour = BEFORE if line.before else COLOURS[line.ear]
    if len(line.low) and len(line.x) > 1:
        ax.fill_between(line.x, line.low, line.high, color=colour, alpha=0.16, linewidth=0)
    elif len(line.low):
        _bars(ax, line, colour)
    ax.plot(
        line.x,
        line.y,
        linestyle="--" if line.before else "-",
        marker=MARKERS[line.ear] if line.marked else None,
        markevery=line.marked or None,
        color=colour,
        markerfacecolor="none",
        markersize=7 if line.ear else 5,
        markeredgewidth=1.5,
        linewidth=1.2,
        label=line.label,
    )
    for number, side in (line.outside or {}).items():
        # As clinics draw "no response": an arrow from the symbol, away from what could be played.
        along = (10, -14) if _points_down(ax, side) else (10, 14)
        ax.annotate(
            "",
            (line.x[number], line.y[number]),
            xytext=along,
            textcoords="offset points",
            arrowprops={"arrowstyle": "<-", "color": colour},
        )


def _points_down(ax: "Axes", side: str) -> bool:
    bottom, top = ax.get_ylim()
    return (side == "above") == (bottom > top)


def _bars(ax: "Axes", line: Line, colour: str, **looks: Any) -> None:
    below = [y - low for y, low in zip(line.y, line.low, strict=True)]
    above = [high - y for y, high in zip(line.y, line.high, strict=True)]
    ax.errorbar(line.x, line.y, [below, above], fmt="none", ecolor=colour, capsize=3, **looks)


def _draw_answers(ax: "Axes", answers: Sequence[Answer], words: Words) -> None:
    """Tones by their answer; a place that was asked several times says how often.

    Marks of one place stand side by side: missed and heard, the right ear's and the left one's.
    """
    counts = Counter(answers)
    at: dict[tuple[float, float], list[Answer]] = {}
    for one in sorted(counts, key=lambda one: (one.heard, one.ear == "left")):
        at.setdefault((one.x, one.y), []).append(one)
    for heard, marker, label in ((True, "^", words.yes), (False, "v", words.no)):
        kind = [one for one in counts if one.heard is heard]
        if not kind:
            continue
        x = [_aside(ax, one, at[one.x, one.y]) for one in kind]
        colours = [COLOURS[one.ear] for one in kind]
        ax.scatter(
            x,
            [one.y for one in kind],
            marker=marker,
            s=26,
            facecolors=colours if heard else "white",
            edgecolors=colours,
            linewidths=0.9,
            label=label,
            zorder=3,
        )
        for place, one in zip(x, kind, strict=True):
            if counts[one] > 1:
                ax.annotate(
                    f"{counts[one]}",
                    (place, one.y),
                    xytext=(5 if heard else -5, 0),
                    textcoords="offset points",
                    ha="left" if heard else "right",
                    va="center",
                    fontsize=7,
                    bbox={"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.7},
                )


def _aside(ax: "Axes", one: Answer, there: Sequence[Answer]) -> float:
    """Where one of the marks of a place is drawn."""
    steps = 2 * there.index(one) - (len(there) - 1)
    if ax.get_xscale() == "log":
        return one.x * float(APART**steps)
    low, high = ax.get_xlim()
    return one.x + steps * TONES_APART * (high - low)


def _legend(ax: "Axes") -> None:
    """Below the axes, each label once."""
    from matplotlib.transforms import ScaledTranslation

    handles, labels = ax.get_legend_handles_labels()
    entries = dict(zip(labels, handles, strict=True))
    if entries:
        ax.legend(
            entries.values(),
            entries.keys(),
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            bbox_transform=ax.transAxes
            + ScaledTranslation(0.0, BELOW_AXES_INCHES, ax.figure.dpi_scale_trans),
            ncols=2,
            fontsize=8,
            frameon=False,
        )


def shifts(
    ax: "Axes",
    lines: Sequence[Line],
    *,
    place: Scale,
    label: str,
    of_tones: bool = True,
    unknown: Sequence[float] = (),
) -> "Axes":
    """Shifts of thresholds with their 95 % intervals; those of tones downwards, as worse is."""
    if of_tones:
        audiogram_axes(ax, place, Scale(label, 0.0, 1.0))
        ax.set_aspect("auto")
        ax.yaxis.set_major_locator(_plain_ticks())
    else:
        _scaled(ax, place)
        _grid(ax)
        if not place.label:  # one function alone: there is nothing to tell places apart by
            ax.set_xticks([])
    ax.set_ylabel(label)
    ax.axhline(0.0, color="#555555", linewidth=0.9)
    for number, line in enumerate(lines):
        # Two ears stand side by side, so that neither hides the other.
        aside = 0.0 if len(lines) == 1 else 0.04 * (2 * number - 1)
        x = [f * 2**aside if place.logarithmic else f for f in line.x]
        beside = Line(line.label, x, line.y, line.low, line.high, line.ear)
        colour = COLOURS[line.ear]
        _bars(ax, beside, colour, elinewidth=1.2)
        for known in (True, False):
            at = [k for k in range(len(x)) if (k not in (line.outside or {})) is known]
            if at:
                ax.plot(
                    [x[k] for k in at],
                    [line.y[k] for k in at],
                    linestyle="none",
                    marker=MARKERS[line.ear],
                    color=colour,
                    markerfacecolor="none",
                    markersize=7,
                    markeredgewidth=1.5,
                    alpha=1.0 if known else 0.35,
                    label=line.label if known else f"{line.label}, beyond the levels",
                )
    for f in unknown:
        ax.axvspan(f / 2**0.12, f * 2**0.12, color="#dddddd", zorder=0, label="not determinable")
    edges = [v for line in lines for v in (*line.low, *line.high)]
    least = 10.0 if of_tones else 0.0  # no change is always in the picture
    low, high = min(-least, *edges), max(least, *edges)
    gap = 0.08 * (high - low)
    ends = (low - gap, high + gap)
    ax.set_ylim(*(reversed(ends) if of_tones else ends))
    _legend(ax)
    return ax


def _plain_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(integer=True, steps=[1, 2, 5, 10])


def probability(
    ax: "Axes",
    trails: Mapping[str | None, Sequence[tuple[int, float, bool]]],
    count: str,
    *,
    label: str,
    words: Words = HEARD,
) -> "Axes":
    """A probability after each of the `count`ed tones or trials, (number, P, heard), by the ear."""
    most = 1
    for ear, points in trails.items():
        numbers = [number for number, _, _ in points]
        most = max([most, *numbers])
        whose = f"{ear} ear" if ear else None
        ax.plot(numbers, [p for _, p, _ in points], color=COLOURS[ear], linewidth=1.2, label=whose)
        _draw_answers(ax, [Answer(n, p, heard, ear) for n, p, heard in points if n], words)
    ax.axhline(0.5, color="#bbbbbb", linewidth=0.8, zorder=0)
    ax.set_xlim(-0.5, most + 0.5)
    ax.set_ylim(-0.04, 1.04)
    ax.xaxis.set_major_locator(_plain_ticks())
    ax.set_xlabel(count)
    ax.set_ylabel(label)
    _grid(ax)
    _legend(ax)
    return ax


def half_way(guess: float, lapse: float) -> float:
    """P(heard) at threshold: half of the way from the guess rate to 1 - lapse rate."""
    return guess + 0.5 * (1.0 - guess - lapse)


def psychometric(
    ax: "Axes",
    line: Line,
    told: Sequence[tuple[float, int, int]],
    *,
    threshold: tuple[float, float, float],
    rates: tuple[float, float],
    level: Scale,
    words: Words = HEARD,
) -> "Axes":
    """P(heard) over level, with the answers there: (level, heard, asked)."""
    colour = COLOURS[line.ear]
    guess, lapse = rates
    ax.fill_between(line.x, line.low, line.high, color=colour, alpha=0.16, linewidth=0)
    ax.plot(line.x, line.y, color=colour, linewidth=1.4, label=line.label)
    middle, low, high = threshold
    half = half_way(guess, lapse)
    ax.plot([low, high], [half, half], color=colour, linewidth=2.4, solid_capstyle="butt")
    ax.plot([middle], [half], marker="|", color=colour, markersize=12, label="threshold")
    if told:
        ax.scatter(
            [at for at, _, _ in told],
            [heard / asked for _, heard, asked in told],
            s=[18.0 * asked for _, _, asked in told],
            facecolors="none",
            edgecolors="#222222",
            label="answers, by how many",
            zorder=3,
        )
    _scaled(ax, level)
    ax.set_ylim(-0.05, 1.05)
    ax.set_ylabel(words.p)
    _grid(ax)
    _legend(ax)
    return ax


def field(
    ax: "Axes",
    places: Sequence[float],
    levels: Sequence[float],
    p_heard: Any,
    answers: Sequence[Answer],
    *,
    place: Scale,
    level: Scale,
    threshold_p: float = 0.5,
    words: Words = HEARD,
    of_tones: bool = True,
) -> "Axes":
    """P(heard) as a heat map (places x levels), a line at the threshold's, and the answers."""
    if of_tones:
        audiogram_axes(ax, place, level)
    else:
        _scaled(ax, place)
    shades = ax.pcolormesh(
        places, levels, p_heard.T, vmin=0.0, vmax=1.0, cmap="cividis", shading="gouraud"
    )
    if not of_tones:
        _up(ax, level)
    ax.grid(visible=False)
    ax.contour(places, levels, p_heard.T, levels=[threshold_p], colors="white", linewidths=1.4)
    _draw_answers(ax, answers, words)
    ax.figure.colorbar(shades, ax=ax, label=words.p, shrink=0.8)
    _legend(ax)
    return ax


def surface(
    ax: "Axes",
    x: Sequence[float],
    y: Sequence[float],
    levels: Any,
    *,
    across: Scale,
    up: Scale,
    label: str,
) -> "Axes":
    """Thresholds over two axes as a heat map (x by y)."""
    shades = ax.pcolormesh(x, y, levels.T, cmap="viridis", shading="nearest")
    ax.set_xlabel(across.label)
    ax.set_ylabel(up.label)
    if across.logarithmic:
        ax.set_xscale("log", base=2)
    if up.logarithmic:
        ax.set_yscale("log", base=2)
    ax.figure.colorbar(shades, ax=ax, label=label)
    return ax
