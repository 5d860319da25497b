"""The shift at each frequency as an interval, and the rule's line; drawn like the audiogram.

What the rule speaks of, such as an average, stands first. A diamond says that tones were given at a
frequency; elsewhere there is the bar alone. Worse is down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor

from earshift.engine.rules import ThresholdRule
from earshift.report.audiogram import (
    COLOURS,
    GREY,
    GRID,
    INK,
    Drawing,
    Fill,
    Label,
    Mark,
    Stroke,
)
from earshift.report.text import Data, hertz, mapping, number, numbers, rows_of, signed
from earshift.report.words import Words

WIDTH_MM, PLOT_MM = 85.5, 24.0
LEFT_MM, TOP_MM, RIGHT_MM, BOTTOM_MM = 11.0, 5.5, 13.5, 4.5
LEAST_DB, MOST_DB = (-20.0, 30.0), (-140.0, 140.0)  # of the axis; no ear shifts by more
ROOM_DB = 2.0  # between the outermost cap and the frame


@dataclass(frozen=True)
class _Bar:
    name: str
    low_db: float
    middle_db: float
    high_db: float
    frequencies_hz: tuple[float, ...]
    tested: bool = False
    of_rule: bool = False


def shift_drawing(
    ear: str, verdict: Data, rule: Data, tested_hz: Sequence[float], words: Words
) -> Drawing | None:
    """The picture of stored shifts; none where there was nothing to compare with."""
    bars = [*_of_rule(mapping(verdict.get("amount")), words), *_by_frequency(verdict, tested_hz)]
    if not any(not bar.of_rule for bar in bars):
        return None
    lines = _rule_lines(rule)
    ends = [value for bar in bars for value in (bar.low_db, bar.high_db)] + [db for db, _ in lines]
    axis = _Axis(
        max(MOST_DB[0], min(LEAST_DB[0], 10 * floor((min(ends) - ROOM_DB) / 10))),
        min(MOST_DB[1], max(LEAST_DB[1], 10 * ceil((max(ends) + ROOM_DB) / 10))),
        len(bars),
    )
    marks: list[Mark] = _grid(axis, words)
    for number_, bar in enumerate(bars):
        marks.append(Label((axis.x(number_), TOP_MM + PLOT_MM + 2.4), bar.name, 2.2))
    for db, where in lines:
        for number_, bar in enumerate(bars):
            if where & set(bar.frequencies_hz):
                x, half, y = axis.x(number_), axis.step / 2, axis.y(db)
                marks.append(Stroke(((x - half, y), (x + half, y)), INK, 0.35, dashed=True))
        text = words.shift_rule.format(size=f"{abs(db):g}")
        marks.append(Label((WIDTH_MM, axis.y(db)), text, 2.1, centred=False))
    for number_, bar in enumerate(bars):
        marks += _bar(axis, number_, bar, COLOURS[ear])
    points = all(bar.low_db == bar.high_db for bar in bars)  # two audiograms have no intervals
    point = words.shift_alone if points else words.shift_point
    told = ", ".join(
        point.format(name=bar.name, low=signed(bar.low_db), high=signed(bar.high_db))
        for bar in bars
    )
    return Drawing(
        width=WIDTH_MM,
        height=TOP_MM + PLOT_MM + BOTTOM_MM,
        marks=tuple(marks),
        title=words.shift_picture.format(ear=words.ears[ear]),
        description=(words.shifts_told if points else words.shift_told).format(points=told),
    )


@dataclass(frozen=True)
class _Axis:
    low_db: float
    high_db: float
    bars: int

    @property
    def right(self) -> float:
        return WIDTH_MM - RIGHT_MM

    @property
    def step(self) -> float:
        return (self.right - LEFT_MM) / self.bars

    def x(self, bar: int) -> float:
        return LEFT_MM + (bar + 0.5) * self.step

    def y(self, db: float) -> float:
        """What lies beyond the axis is drawn at its end: the table has the number."""
        within = min(max(db, self.low_db), self.high_db)
        return TOP_MM + (within - self.low_db) / (self.high_db - self.low_db) * PLOT_MM


def _of_rule(amount: Data, words: Words) -> list[_Bar]:
    ends = [number(amount.get(name)) for name in ("low_db", "middle_db", "high_db")]
    where = tuple(numbers(amount.get("frequencies_hz")))
    low, middle, high = ends
    if low is None or middle is None or high is None or amount.get("unit") or len(where) < 2:
        return []
    name = words.shift_columns.get(str(amount.get("what")), words.rule)
    return [_Bar(name, low, middle, high, where, of_rule=True)]


def _by_frequency(verdict: Data, tested_hz: Sequence[float]) -> list[_Bar]:
    bars = []
    for row in rows_of(verdict.get("shifts")):
        names = ("frequency_hz", "low_db", "shift_db", "high_db")
        f, low, middle, high = (number(row.get(name)) for name in names)
        if f is not None and low is not None and middle is not None and high is not None:
            bars.append(_Bar(hertz(f), low, middle, high, (f,), tested=f in tested_hz))
    return sorted(bars, key=lambda bar: bar.frequencies_hz)


def _rule_lines(rule: Data) -> list[tuple[float, set[float]]]:
    """Each size that the rule names, and the frequencies that it names it for."""
    if rule.get("kind") == ThresholdRule.kind:
        return []
    toward = -1.0 if rule.get("better") else 1.0
    lines: dict[float, set[float]] = {}
    for criterion in rows_of(rule.get("criteria")):
        size = number(criterion.get("at_least_db"))
        if size is not None:
            lines.setdefault(toward * size, set()).update(numbers(criterion.get("frequencies_hz")))
    return sorted(lines.items())


def _grid(axis: _Axis, words: Words) -> list[Mark]:
    marks: list[Mark] = []
    first = int(-(-axis.low_db // 10)) * 10
    for db in range(first, int(axis.high_db) + 1, 10):
        y = axis.y(db)
        marks.append(Stroke(((LEFT_MM, y), (axis.right, y)), GRID, 0.35 if db == 0 else 0.15))
        if db % 20 == 0:
            marks.append(Label((LEFT_MM - 1.0, y), signed(float(db)), 2.4, centred=False))
    bottom = TOP_MM + PLOT_MM
    corners = [(LEFT_MM, TOP_MM), (axis.right, TOP_MM), (axis.right, bottom), (LEFT_MM, bottom)]
    marks.append(Stroke((*corners, corners[0]), INK, 0.2))
    marks.append(Label(((LEFT_MM + axis.right) / 2, 2.6), words.shift_axis, 2.4))
    return marks


def _bar(axis: _Axis, place: int, bar: _Bar, colour: str) -> list[Mark]:
    x = axis.x(place)
    low, middle, high = (axis.y(db) for db in (bar.low_db, bar.middle_db, bar.high_db))
    known = bar.tested or bar.of_rule
    ink, width = (colour if known else GREY), (0.8 if bar.of_rule else 0.4 if known else 0.2)
    marks: list[Mark] = [
        Stroke(((x, low), (x, high)), ink, width),
        Stroke(((x - 0.9, low), (x + 0.9, low)), ink, width),
        Stroke(((x - 0.9, high), (x + 0.9, high)), ink, width),
    ]
    if bar.tested:
        diamond = ((x, middle - 1.3), (x + 1.1, middle), (x, middle + 1.3), (x - 1.1, middle))
        marks.append(Fill(diamond, ink))
    else:
        marks.append(Stroke(((x - 1.4, middle), (x + 1.4, middle)), ink, width))
    return marks
