"""A clinical audiogram as a handful of strokes in millimetres, for paper and screen alike.

By convention (ISO 8253-1, clause 10): frequency to the right in octaves, dB HL downwards, one
octave as long as 20 dB; right ear red circles, left ear blue crosses, so that the shape carries the
ear; "no response" is the symbol with an arrow, down-left for the right ear and down-right for the
left, and no line leads to it. A symbol says that tones were given at its frequency: elsewhere there
are line and band alone. The HTML page turns the strokes into SVG, the PDF draws them itself.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2

from earshift.report.words import Words

Point = tuple[float, float]

OCTAVE_MM = 10.5
DB_MM = OCTAVE_MM / 20.0
OCTAVES_HZ = (125.0, 250.0, 500.0, 1000.0, 2000.0, 4000.0, 8000.0, 16000.0)
BETWEEN_HZ = (750.0, 1500.0, 3000.0, 6000.0, 12000.0)
SOFTEST_DB, LOUDEST_DB = -10, 120
COLOURS = {"right": "#b3001b", "left": "#0b3fa8"}
BANDS = {"right": "#f6d7db", "left": "#d5e0f5"}
INK, GREY, GRID = "#000000", "#6e6e6e", "#c4c4c4"

_LEFT_MM, _TOP_MM, _RIGHT_MM = 11.0, 8.0, 1.0
_EDGE_OCTAVES, _ABOVE_DB, _BELOW_DB = 0.5, 4.0, 8.0  # room around the outermost symbols


@dataclass(frozen=True)
class Stroke:
    points: tuple[Point, ...]
    colour: str
    width: float
    dashed: bool = False


@dataclass(frozen=True)
class Fill:
    points: tuple[Point, ...]
    colour: str


@dataclass(frozen=True)
class Circle:
    centre: Point
    radius: float
    colour: str
    width: float


@dataclass(frozen=True)
class Label:
    at: Point  # the middle of the text, or its right end
    text: str
    size: float  # mm
    centred: bool = True


Mark = Stroke | Fill | Circle | Label


@dataclass(frozen=True)
class Drawing:
    """Marks in the order of drawing, on a sheet of so many mm, and what they say in words."""

    width: float
    height: float
    marks: tuple[Mark, ...]
    title: str
    description: str


@dataclass(frozen=True)
class Reading:
    """One threshold as it is drawn; the band is missing where nobody knows it."""

    frequency_hz: float
    level_db_hl: float
    low_db_hl: float | None = None
    high_db_hl: float | None = None
    no_response: bool = False  # above the levels played
    better: bool = False  # below them
    tested: bool = True  # tones were given at this frequency; else it is inferred


@dataclass(frozen=True)
class Played:
    """One tone and its answer."""

    frequency_hz: float
    level_db_hl: float
    heard: bool


@dataclass(frozen=True)
class _Scale:
    low_hz: float
    high_hz: float

    def x(self, frequency_hz: float) -> float:
        return _LEFT_MM + (log2(frequency_hz / self.low_hz) + _EDGE_OCTAVES) * OCTAVE_MM

    def y(self, level_db_hl: float) -> float:
        """What lies beyond the axis is drawn at its end: the table has the number."""
        level = min(max(level_db_hl, SOFTEST_DB), LOUDEST_DB)
        return _TOP_MM + (level - SOFTEST_DB + _ABOVE_DB) * DB_MM

    def at(self, reading: Reading) -> Point:
        return self.x(reading.frequency_hz), self.y(reading.level_db_hl)

    @property
    def left(self) -> float:
        return _LEFT_MM

    @property
    def right(self) -> float:
        return self.x(self.high_hz) + _EDGE_OCTAVES * OCTAVE_MM

    @property
    def bottom(self) -> float:
        return self.y(LOUDEST_DB) + _BELOW_DB * DB_MM


def draw(
    ear: str,
    now: Sequence[Reading],
    reference: Sequence[Reading],
    played: Sequence[Played],
    words: Words,
    unit: str,
    description: str,
) -> Drawing:
    """The audiogram of one ear: what it hears now, its reference, and the tones in between."""
    now, reference = _in_order(now), _in_order(reference)
    shown = [each.frequency_hz for each in (*now, *reference)]
    shown += [tone.frequency_hz for tone in played]
    scale = _Scale(min([*shown, OCTAVES_HZ[0]]), max([*shown, 8000.0]))
    marks: list[Mark] = [
        *_band(scale, now, BANDS[ear]),
        *_grid(scale, words, unit),
        *_curve(scale, ear, reference, GREY, radius=1.0, width=0.3, dashed=True),
        *_triangles(scale, played),
        *_curve(scale, ear, now, COLOURS[ear], radius=1.5, width=0.45, dashed=False),
    ]
    return Drawing(
        width=scale.right + _RIGHT_MM,
        height=scale.bottom + _RIGHT_MM,
        marks=tuple(marks),
        title=words.picture.format(ear=words.ears[ear]),
        description=description,
    )


def _in_order(readings: Sequence[Reading]) -> list[Reading]:
    return sorted(readings, key=lambda reading: reading.frequency_hz)


def _grid(scale: _Scale, words: Words, unit: str) -> list[Mark]:
    top = _TOP_MM
    marks: list[Mark] = []
    for frequencies, dashed in ((BETWEEN_HZ, True), (OCTAVES_HZ, False)):
        for frequency in frequencies:
            if not scale.low_hz <= frequency <= scale.high_hz:
                continue
            x = scale.x(frequency)
            marks.append(Stroke(((x, top), (x, scale.bottom)), GRID, 0.15, dashed))
            if not dashed:
                marks.append(Label((x, top - 1.8), f"{frequency:g}", 2.4))
    for level in range(SOFTEST_DB, LOUDEST_DB + 1, 10):
        y = scale.y(level)
        marks.append(
            Stroke(((scale.left, y), (scale.right, y)), GRID, 0.35 if level == 0 else 0.15)
        )
        if level % 20 == 0:
            marks.append(Label((scale.left - 1.0, y), f"{level}", 2.4, centred=False))
    corners = [
        (scale.left, top),
        (scale.right, top),
        (scale.right, scale.bottom),
        (scale.left, scale.bottom),
    ]
    marks.append(Stroke((*corners, corners[0]), INK, 0.2))
    marks.append(Label(((scale.left + scale.right) / 2, top - 5.4), words.axis_frequency, 2.4))
    marks.append(Label((scale.left - 1.0, scale.y(LOUDEST_DB) + 4.0), unit, 2.4, False))
    return marks


def _band(scale: _Scale, readings: Sequence[Reading], colour: str) -> list[Mark]:
    """The interval of every reading, joined between neighbours; a lone one is a bar."""
    known = [
        (scale.x(each.frequency_hz), scale.y(each.low_db_hl), scale.y(each.high_db_hl))
        for each in readings
        if each.low_db_hl is not None and each.high_db_hl is not None
    ]
    if len(known) == 1:
        x, low, high = known[0]
        known = [(x - 0.8, low, high), (x + 0.8, low, high)]
    if not known:
        return []
    upper = [(x, low) for x, low, _ in known]
    lower = [(x, high) for x, _, high in reversed(known)]
    return [Fill((*upper, *lower), colour)]


def _curve(
    scale: _Scale,
    ear: str,
    readings: Sequence[Reading],
    colour: str,
    radius: float,
    width: float,
    dashed: bool,
) -> list[Mark]:
    marks: list[Mark] = []
    for one, next_one in pairwise(readings):
        if not one.no_response and not next_one.no_response:
            marks.append(Stroke((scale.at(one), scale.at(next_one)), colour, width * 0.8, dashed))
    for reading in readings:
        if not reading.tested:
            continue
        marks += _symbol(scale.at(reading), ear, colour, radius, width)
        if reading.no_response:
            marks += _arrow(scale.at(reading), ear, colour, radius, width)
    return marks


def _symbol(at: Point, ear: str, colour: str, radius: float, width: float) -> list[Mark]:
    if ear == "right":
        return [Circle(at, radius, colour, width)]
    x, y = at
    r = 0.9 * radius
    return [
        Stroke(((x - r, y - r), (x + r, y + r)), colour, width),
        Stroke(((x - r, y + r), (x + r, y - r)), colour, width),
    ]


def _arrow(at: Point, ear: str, colour: str, radius: float, width: float) -> list[Mark]:
    side = -1.0 if ear == "right" else 1.0
    x, y = at
    start, end = 0.75 * radius, 2.3 * radius
    tip = (x + side * end, y + end)
    return [
        Stroke(((x + side * start, y + start), tip), colour, width),
        Stroke(((tip[0] - side * radius, tip[1]), tip, (tip[0], tip[1] - radius)), colour, width),
    ]


def _triangles(scale: _Scale, played: Sequence[Played]) -> list[Mark]:
    """Tones that were given more than once stand side by side, so that each can be seen."""
    given: Counter[tuple[float, float]] = Counter()
    marks = []
    for tone in played:
        before = given[tone.frequency_hz, tone.level_db_hl]
        given[tone.frequency_hz, tone.level_db_hl] += 1
        side = 1.0 if before % 2 else -1.0
        marks.append(_triangle(scale, tone, side * ((before + 1) // 2) * 1.7))
    return marks


def _triangle(scale: _Scale, tone: Played, aside: float = 0.0) -> Mark:
    """Heard: filled, pointing up to softer; not heard: open, pointing down to louder."""
    x, y = scale.x(tone.frequency_hz) + aside, scale.y(tone.level_db_hl)
    up = -0.75 if tone.heard else 0.75
    corners = ((x - 0.75, y - up * 0.7), (x + 0.75, y - up * 0.7), (x, y + up))
    return Fill(corners, INK) if tone.heard else Stroke((*corners, corners[0]), INK, 0.2)
