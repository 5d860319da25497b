"""The audiogram of the report: strokes by the conventions of the field."""

from typing import Any

import pytest

from earshift.report import ENGLISH, audiogram
from earshift.report.audiogram import (
    COLOURS,
    INK,
    Circle,
    Fill,
    Label,
    Played,
    Reading,
    Stroke,
    draw,
)
from earshift.report.shifts import shift_drawing

# The picture -------------------------------------------------------------------------------------


def picture(ear: str, now: list[Reading], **others: Any) -> audiogram.Drawing:
    return draw(ear, now, others.get("reference", []), others.get("played", []), ENGLISH, "dB", "")


def strokes(drawing: audiogram.Drawing, colour: str) -> list[Stroke]:
    return [m for m in drawing.marks if isinstance(m, Stroke) and m.colour == colour]


def test_an_octave_is_as_long_as_20_db_and_louder_is_lower() -> None:
    def place(frequency_hz: float, level: float) -> audiogram.Point:
        (circle,) = [
            m for m in picture("right", [Reading(frequency_hz, level)]).marks
            if isinstance(m, Circle)
        ]  # fmt: skip
        return circle.centre

    x, y = place(1000, 40)
    assert place(1000, 60) == pytest.approx((x, y + audiogram.OCTAVE_MM))
    for octave in (-3, -1, 1, 3):
        expected = (x + octave * audiogram.OCTAVE_MM, y)
        assert place(1000 * 2.0**octave, 40) == pytest.approx(expected)


def test_shapes_carry_the_ear() -> None:
    readings = [Reading(1000, 20), Reading(2000, 30)]
    right, left = picture("right", readings), picture("left", readings)
    assert len([m for m in right.marks if isinstance(m, Circle)]) == 2
    assert not [m for m in left.marks if isinstance(m, Circle)]
    assert len(strokes(right, audiogram.COLOURS["right"])) == 1  # the line
    assert len(strokes(left, audiogram.COLOURS["left"])) == 1 + 2 * 2  # and the crosses


@pytest.mark.parametrize(("ear", "side"), [("right", -1), ("left", 1)])
def test_no_response_is_an_arrow_outwards_and_no_line_leads_to_it(ear: str, side: int) -> None:
    colour = audiogram.COLOURS[ear]
    alone = picture(ear, [Reading(4000, 100, no_response=True)])
    marks = strokes(alone, colour)
    heard = picture(ear, [Reading(4000, 100)])
    x, y = (
        next(m.centre for m in heard.marks if isinstance(m, Circle))
        if ear == "right"
        else strokes(heard, colour)[0].points[0]
    )
    tip = max((point for stroke in marks for point in stroke.points), key=lambda point: point[1])
    assert (tip[0] - x) * side > 1.0
    assert tip[1] > y + 2.0
    neighbours = [Reading(2000, 30), Reading(8000, 40)]
    joined = picture(ear, [*neighbours, Reading(4000, 100)])
    apart = picture(ear, [*neighbours, Reading(4000, 100, no_response=True)])
    lines = {s for s in strokes(joined, colour) if s.width < 0.4}
    assert len(lines) == 2
    assert not lines & set(strokes(apart, colour))
    assert not [s for s in strokes(apart, colour) if s.width < 0.4]


def test_the_reference_is_grey_and_dashed_and_the_band_is_there() -> None:
    now = [Reading(1000, 40, 30, 55), Reading(2000, 45, 40, 50)]
    drawing = picture("right", now, reference=[Reading(1000, 10), Reading(2000, 10)])
    (line,) = strokes(drawing, audiogram.GREY)
    assert line.dashed
    (own,) = strokes(drawing, audiogram.COLOURS["right"])
    assert not own.dashed
    (band,) = [m for m in drawing.marks if isinstance(m, Fill)]
    (x1, top), (x2, _), (_, low), (_, bottom) = band.points
    assert x2 - x1 == pytest.approx(audiogram.OCTAVE_MM)
    assert (bottom - top) / audiogram.DB_MM == pytest.approx(25.0)
    assert low < bottom


def test_tones_are_small_and_told_apart_without_colour() -> None:
    drawing = picture("left", [], played=[Played(1000, 40, True), Played(1000, 60, False)])
    filled = [m for m in drawing.marks if isinstance(m, Fill) and m.colour == audiogram.INK]
    outlined = [s for s in strokes(drawing, audiogram.INK) if len(s.points) == 4]
    assert len(filled) == len(outlined) == 1


def test_levels_and_frequencies_beyond_the_axes_stay_on_the_paper() -> None:
    far = [Reading(100, -40, -60, 10), Reading(16000, 150, 100, 200, no_response=True)]
    drawing = picture("left", far, reference=far, played=[Played(12500, 130, True)])
    for mark in drawing.marks:
        if isinstance(mark, Fill | Stroke):
            for x, y in mark.points:
                assert 0 <= x <= drawing.width
                assert 0 <= y <= drawing.height


def test_colours_are_legible_in_grey() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    def contrast(one: str, other: str) -> float:
        dark, light = sorted((luminance(one), luminance(other)))
        return (light + 0.05) / (dark + 0.05)

    for ear, colour in audiogram.COLOURS.items():
        assert contrast(colour, "#ffffff") > 6
        assert contrast(colour, audiogram.BANDS[ear]) > 4.5
        assert contrast(audiogram.GREY, audiogram.BANDS[ear]) > 3
        assert contrast(colour, audiogram.GREY) > 1.25  # and the reference is dashed


# Shifts -----------------------------------------------------------------------------------------


def test_what_was_not_tested_has_no_symbol() -> None:
    tested, inferred = Reading(1000.0, 20.0), Reading(2000.0, 30.0, tested=False)
    marks = draw("right", [tested, inferred], [], [], ENGLISH, "dB HL", "").marks
    assert [mark for mark in marks if isinstance(mark, Circle)] == [
        mark for mark in draw("right", [tested], [], [], ENGLISH, "dB HL", "").marks
        if isinstance(mark, Circle)
    ]  # fmt: skip
    assert any(isinstance(mark, Stroke) and mark.colour == COLOURS["right"] for mark in marks)


def test_repeated_tones_stand_side_by_side() -> None:
    tones = [Played(1000.0, 30.0, True)] * 2 + [Played(1000.0, 30.0, False)]
    marks = draw("left", [], [], tones, ENGLISH, "dB HL", "").marks
    heard = [mark for mark in marks if isinstance(mark, Fill) and mark.colour == INK]
    assert len({mark.points for mark in heard}) == 2


def test_shifts_are_bars_with_the_rules_line_and_diamonds_where_tones_were_given() -> None:
    row = {"shift_db": 20.0, "low_db": 8.0, "high_db": 33.0}
    verdict = {
        "shifts": [{"frequency_hz": f, **row} for f in (1000.0, 2000.0, 4000.0)],
        "amount": {"what": "mean", "frequencies_hz": [2000.0, 4000.0], "low_db": 10.0,
                   "middle_db": 20.0, "high_db": 30.0, "unit": ""},
    }  # fmt: skip
    rule = {"criteria": [{"frequencies_hz": [2000.0, 4000.0], "at_least_db": 10.0}]}
    drawing = shift_drawing("left", verdict, rule, [2000.0], ENGLISH)
    assert drawing is not None
    names = [mark.text for mark in drawing.marks if isinstance(mark, Label)]
    assert {"average", "1000", "2000", "4000", "rule: 10 dB"} <= set(names)
    diamonds = [mark for mark in drawing.marks if isinstance(mark, Fill)]
    assert [mark.colour for mark in diamonds] == [COLOURS["left"]]
    dashed = [mark for mark in drawing.marks if isinstance(mark, Stroke) and mark.dashed]
    assert len(dashed) == 3  # over the average and over both frequencies of the rule
    assert drawing.description == (
        "95 % intervals of the shift in dB: average +10 to +30, 1000 +8 to +33, 2000 +8 to +33, "
        "4000 +8 to +33."
    )


@pytest.mark.parametrize(("low", "high"), [(40.0, 66.0), (-47.0, 3.0), (10.0, 60.0)])
def test_the_axis_of_shifts_holds_every_bar_whole(low: float, high: float) -> None:
    row = {"frequency_hz": 4000.0, "low_db": low, "shift_db": (low + high) / 2, "high_db": high}
    drawing = shift_drawing("left", {"shifts": [row]}, {}, [4000.0], ENGLISH)
    assert drawing is not None
    frame = next(m for m in drawing.marks if isinstance(m, Stroke) and len(m.points) == 5)
    edges = [y for _, y in frame.points]
    caps = [m for m in drawing.marks if isinstance(m, Stroke) and m.colour == COLOURS["left"]]
    heights = [y for mark in caps for _, y in mark.points]
    assert min(edges) < min(heights)
    assert max(heights) < max(edges)
    names = [float(m.text.replace("−", "-")) for m in drawing.marks
             if isinstance(m, Label) and not m.centred]  # fmt: skip
    assert min(names) - 20 < low
    assert high < max(names) + 20


def test_an_improvement_lies_on_the_other_side_and_a_limit_on_levels_has_no_line() -> None:
    row = {"frequency_hz": 2000.0, "shift_db": -20.0, "low_db": -33.0, "high_db": -8.0}
    better = {"criteria": [{"frequencies_hz": [2000.0], "at_least_db": 10.0}], "better": True}
    up = shift_drawing("left", {"shifts": [row]}, better, [], ENGLISH)
    limit = shift_drawing("left", {"shifts": [row]}, {**better, "kind": "thresholds"}, [], ENGLISH)
    assert up is not None
    assert limit is not None
    zero = next(m.at[1] for m in up.marks if isinstance(m, Label) and m.text == "0")
    (line,) = [mark for mark in up.marks if isinstance(mark, Stroke) and mark.dashed]
    assert line.points[0][1] < zero
    assert not [mark for mark in limit.marks if isinstance(mark, Stroke) and mark.dashed]


def test_without_shifts_there_is_no_picture_of_them() -> None:
    amount = {"what": "dip", "frequencies_hz": [2000.0, 8000.0], "low_db": 1.0, "middle_db": 2.0,
              "high_db": 3.0, "unit": ""}  # fmt: skip
    assert shift_drawing("right", {"shifts": [], "amount": amount}, {}, [], ENGLISH) is None
    broken = {"shifts": [{"frequency_hz": 1000.0, "shift_db": "x"}], "amount": "nonsense"}
    assert shift_drawing("right", broken, {}, [], ENGLISH) is None
