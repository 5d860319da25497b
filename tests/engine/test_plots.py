"""Pictures: axes in, axes out, drawn as audiologists read them."""

import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import earshift as es
from earshift.engine import plots
from support.helpers import MILD, run_exam


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    pyplot.switch_backend("Agg")
    yield
    pyplot.close("all")


@pytest.fixture
def ax() -> Axes:
    return Figure(layout="constrained").add_subplot()


@pytest.fixture(scope="module")
def clinical() -> es.Exam:
    exam = es.Exam.clinical(seed=1)
    for level, heard in ((40.0, True), (30.0, False), (30.0, False), (30.0, True), (35.0, True)):
        exam.tell(es.Tone(1000.0, level), heard)
    return exam


@pytest.fixture(scope="module")
def of_both() -> es.Exam:
    exam = es.Exam.clinical(seed=1, ears="both")
    exam.tell(es.Tone(1000.0, 30.0, "left"), True)
    exam.tell(es.Tone(1000.0, 20.0, "right"), False)
    return exam


def curve(ax: Axes, label: str) -> Line2D:
    (found,) = (line for line in ax.get_lines() if line.get_label() == label)
    return found


def drawn(ax: Axes) -> None:
    """Everything can really be painted."""
    FigureCanvasAgg(ax.figure).draw()


def test_an_audiogram_is_drawn_as_audiologists_read_it(of_both: es.Exam, ax: Axes) -> None:
    assert of_both.plot(ax) is ax
    drawn(ax)
    bottom, top = ax.get_ylim()
    assert bottom > top  # louder is further down
    assert ax.get_aspect() == pytest.approx(1 / 20)
    box, (low, high) = ax.get_window_extent(), ax.get_xlim()
    octave = box.width / (math.log2(high) - math.log2(low))
    assert octave == pytest.approx(20.0 * box.height / (bottom - top), rel=1e-6)
    right, left = curve(ax, "right ear (95 % band)"), curve(ax, "left ear (95 % band)")
    assert (right.get_marker(), to_hex(right.get_color())) == ("o", plots.COLOURS["right"])
    assert (left.get_marker(), to_hex(left.get_color())) == ("x", plots.COLOURS["left"])
    assert right.get_markerfacecolor() == "none"


def test_one_of_both_ears_can_be_drawn(of_both: es.Exam, ax: Axes) -> None:
    of_both.plot(ax, ear="left")
    assert [line.get_label() for line in ax.get_lines()] == ["left ear (95 % band)"]
    with pytest.raises(ValueError, match="right"):
        of_both.plot(ax, ear="middle")


def marked(line: Line2D) -> list[float]:
    """Where a line has symbols."""
    places = list(line.get_xdata())
    if line.get_marker() == "None":
        return []
    every = line.get_markevery()
    return places if every is None else [places[k] for k in every]


def test_symbols_stand_only_where_tones_were_given(of_both: es.Exam, ax: Axes) -> None:
    of_both.plot(ax)
    right = curve(ax, "right ear (95 % band)")
    assert len(right.get_xdata()) > 5  # the line goes on
    assert marked(right) == marked(curve(ax, "left ear (95 % band)")) == [1000.0]
    drawn(ax)


def test_a_tone_between_the_usual_ones_has_its_symbol(ax: Axes) -> None:
    exam = es.Exam.clinical(seed=1)
    exam.tell(es.Tone(1100.0, 30.0), True)
    exam.plot(ax)
    assert marked(curve(ax, "threshold (95 % band)")) == [1100.0]


def test_a_reference_has_symbols_where_it_was_measured(clinical: es.Exam) -> None:
    def before(reference: Any, rule: str | None) -> list[float]:
        screen = es.Screen(reference, rule=rule, seed=1)
        ax = screen.plot(Figure().add_subplot())
        assert marked(curve(ax, "now (95 % band)")) == []  # nothing was asked yet
        return marked(curve(ax, "reference (95 % band)"))

    assert before(es.Audiogram({2000: 10, 3000: 15, 4000: 20}), "osha-sts") == [2e3, 3e3, 4e3]
    assert before(clinical, "osha-sts") == [1000.0]
    assert before(es.population_norm(), None) == []


@pytest.mark.parametrize(("ear", "marker"), [("right", "o"), ("left", "x")])
def test_the_one_ear_of_an_exam_can_be_named(
    clinical: es.Exam, ax: Axes, ear: str, marker: str
) -> None:
    clinical.plot(ax, ear=ear)
    drawn(ax)
    line = curve(ax, f"{ear} ear (95 % band)")
    assert (line.get_marker(), to_hex(line.get_color())) == (marker, plots.COLOURS[ear])
    (missed,) = (one for one in ax.collections if one.get_label() == "not heard")
    assert to_hex(missed.get_edgecolor()[0]) == plots.COLOURS[ear]
    screen = es.Screen(clinical, rule="osha-sts", seed=1).plot(Figure().add_subplot(), ear=ear)
    assert curve(screen, f"{ear} ear, reference").get_marker() == marker


@pytest.mark.parametrize("bad", ["middle", "both", 1, ""])
def test_an_ear_that_is_none_is_refused(clinical: es.Exam, of_both: es.Exam, bad: Any) -> None:
    for exam in (clinical, of_both):
        with pytest.raises(ValueError, match="ear must be 'right' or 'left'"):
            exam.plot(Figure().add_subplot(), ear=bad)


def test_tones_of_both_ears_at_one_place_stand_side_by_side(ax: Axes) -> None:
    exam = es.Exam.clinical(seed=1, ears="both")
    for ear in ("right", "left"):
        exam.tell(es.Tone(1000.0, 30.0, ear), True)
    exam.plot(ax)
    (heard,) = (one for one in ax.collections if one.get_label() == "heard")
    right, left = heard.get_offsets()[:, 0]
    assert right < 1000.0 < left


def test_repeated_tones_are_seen(clinical: es.Exam, ax: Axes) -> None:
    clinical.plot(ax)
    drawn(ax)
    assert [text.get_text() for text in ax.texts] == ["2"]  # missed twice at 30 dB HL
    heard, missed = (one for one in ax.collections if isinstance(one, PathCollection))
    at_30 = [x for one in (heard, missed) for x, y in one.get_offsets() if y == 30.0]
    assert len(set(at_30)) == 2  # heard and missed stand side by side
    assert heard.get_facecolor().tolist() != missed.get_facecolor().tolist()


def test_without_axes_there_is_a_new_figure(clinical: es.Exam) -> None:
    before = len(pyplot.get_fignums())
    assert isinstance(clinical.plot(), Axes)
    assert len(pyplot.get_fignums()) == before + 1


@pytest.mark.parametrize("bad", [1, "axes", Figure()])
def test_what_is_no_axes_is_refused(clinical: es.Exam, bad: Any) -> None:
    with pytest.raises(ValueError, match="ax must be matplotlib axes"):
        clinical.plot(bad)


def test_an_exam_of_fields_and_its_heat_map(short_exam: es.Exam, ax: Axes) -> None:
    short_exam.plot(ax)
    drawn(ax)
    field = short_exam.plot_field(Figure().add_subplot())
    drawn(field)
    (bottom, top), (low, high) = field.get_ylim(), field.get_xlim()
    assert low < 500.0 < 8000.0 < high  # marks at its edges are inside the frame
    assert bottom > 100.0 > -10.0 > top
    assert field.figure.axes[1].get_ylabel() == "P(heard)"


def test_a_heat_map_of_both_ears_needs_one(of_both: es.Exam, ax: Axes) -> None:
    drawn(of_both.plot_field(ax, ear="left"))
    with pytest.raises(ValueError, match="both ears"):
        of_both.plot_field()


def test_the_psychometric_function_has_its_answers(clinical: es.Exam, ax: Axes) -> None:
    assert clinical.psychometric(1000.0).plot(ax) is ax
    drawn(ax)
    (answers,) = (one for one in ax.collections if isinstance(one, PathCollection))
    assert answers.get_offsets().tolist() == [
        [30.0, pytest.approx(1 / 3)],
        [35.0, 1.0],
        [40.0, 1.0],
    ]
    assert len(set(answers.get_sizes())) == 2  # three answers are a larger circle than one


def test_an_audiogram_shows_what_was_not_heard(ax: Axes) -> None:
    es.Audiogram({500: 10, 4000: 40}, no_response_db_hl={8000: 90}).plot(ax, ear="left")
    drawn(ax)
    assert curve(ax, "left ear").get_marker() == "x"
    assert len(ax.texts) == 1  # the arrow
    with pytest.raises(ValueError, match="ear must be"):
        es.Audiogram({500: 10}).plot(ear="middle")
    drawn(es.Audiogram({500: 10}).plot())


# Verdicts ---------------------------------------------------------------------------------------


def test_shifts_have_intervals_and_go_down_when_worse(ax: Axes) -> None:
    screen = run_exam(es.Screen(es.Audiogram(MILD), rule="osha-sts", seed=1), MILD, tones=2)
    verdict = screen.verdict()
    assert verdict.plot(ax) is ax
    drawn(ax)
    bottom, top = ax.get_ylim()
    assert bottom > max(shift.high_db for shift in verdict.shifts)
    assert top < 0.0
    assert list(curve(ax, "shift (95 %)").get_xdata()) == [s.frequency_hz for s in verdict.shifts]


def test_shifts_of_both_ears_stand_side_by_side(ax: Axes) -> None:
    then = es.Audiogram(MILD)
    screen = es.Screen({"right": then, "left": then}, ears="both", rule="osha-sts", seed=1)
    screen.verdict([2000.0, 4000.0]).plot(ax)
    drawn(ax)
    right, left = curve(ax, "right ear, shift (95 %)"), curve(ax, "left ear, shift (95 %)")
    assert (right.get_marker(), left.get_marker()) == ("o", "x")
    assert right.get_xdata()[0] != left.get_xdata()[0]


def test_a_verdict_without_shifts_is_refused() -> None:
    verdict = es.Screen(hypotheses="notch", seed=1, domain="audiometer").verdict()
    with pytest.raises(ValueError, match="no shifts to draw"):
        verdict.plot()


# Screens ----------------------------------------------------------------------------------------


def test_a_screen_shows_its_reference_and_its_decision(ax: Axes) -> None:
    screen = run_exam(es.Screen(es.Audiogram(MILD), rule="osha-sts", seed=1), MILD, tones=2)
    assert screen.plot(ax, frequencies_hz=[1000.0, 4000.0]) is ax
    drawn(ax)
    before, now = curve(ax, "reference (95 % band)"), curve(ax, "now (95 % band)")
    assert before.get_linestyle() == "--"
    assert list(now.get_xdata()) == [1000.0, 4000.0]
    assert screen.decision in ax.get_title()
    assert len([one for one in ax.collections if isinstance(one, PathCollection)]) >= 1


def test_a_screen_of_fields_has_its_reference_too(short_exam: es.Exam, ax: Axes) -> None:
    screen = es.Screen(short_exam, seed=1)
    screen.tell(es.Tone(1000.0, 30.0), True)
    drawn(screen.plot(ax))
    levels = curve(ax, "reference (95 % band)").get_ydata()
    expected = [
        one.level_db_hl for one in short_exam.thresholds(short_exam.domain.smooth[0].values)
    ]
    assert list(levels) == pytest.approx(expected, abs=3.0)


def test_a_screen_without_a_reference_draws_what_is_now(ax: Axes) -> None:
    drawn(es.Screen(hypotheses="notch", seed=1, domain="audiometer").plot(ax))
    assert [line.get_label() for line in ax.get_lines()] == ["now (95 % band)"]


def test_the_probability_of_change_is_drawn_over_tones(ax: Axes) -> None:
    screen = run_exam(es.Screen(es.Audiogram(MILD), rule="osha-sts", seed=1), MILD, tones=3)
    assert screen.plot_p_changed(ax) is ax
    drawn(ax)
    line = ax.get_lines()[0]
    assert list(line.get_xdata()) == [0, 1, 2, 3]
    assert line.get_ydata()[-1] == pytest.approx(screen.p_changed)
    assert ax.get_ylabel() == "P(rule met)"


def test_both_ears_have_their_own_ways(ax: Axes) -> None:
    then = es.Audiogram(MILD)
    screen = es.Screen({"right": then, "left": then}, ears="both", rule="osha-sts", seed=1)
    screen.tell(es.Tone(2000.0, 40.0, "left"), True)
    screen.tell(es.Tone(2000.0, 40.0, "right"), False)
    drawn(screen.plot_p_changed(ax))
    assert list(curve(ax, "left ear").get_xdata()) == [0, 1]
    assert list(curve(ax, "right ear").get_xdata()) == [0, 2]
    both = screen.plot(Figure().add_subplot(), frequencies_hz=[2000.0, 4000.0])
    drawn(both)
    assert "right: " in both.get_title()
    assert "left ear, reference" in {line.get_label() for line in both.get_lines()}


# Other axes -------------------------------------------------------------------------------------

CONTRAST = es.Axis("contrast_db", "dB", range(-50, 1, 5), -25.0, 10.0)
CPD = es.Axis("cpd", "c/deg", (1, 2, 4), 2.0, 1.0, logarithmic=True)
AGE = es.Axis("age", "years", (20, 40, 60), 40.0, 20.0)
DAY = es.Axis("day", "d", (1, 2), 1.0, 1.0)


def seen(*axes: es.Axis) -> es.Exam:
    exam = es.Exam(domain=es.Domain(CONTRAST, axes), seed=1)
    middle = {axis.name: axis.values[1] for axis in axes}
    for contrast, heard in ((-40.0, False), (-20.0, True), (-20.0, False), (-10.0, True)):
        exam.tell(es.Stimulus((("contrast_db", contrast), *middle.items())), heard)
    return exam


@pytest.mark.parametrize("axis", [CPD, AGE])
def test_thresholds_along_another_axis(axis: es.Axis, ax: Axes) -> None:
    exam = seen(axis)
    exam.plot(ax)
    drawn(ax)
    bottom, top = ax.get_ylim()
    assert bottom < top  # nothing to hear: more is up
    assert axis.name in ax.get_xlabel()
    drawn(exam.plot_field(Figure().add_subplot()))
    drawn(es.Screen(exam, seed=1).verdict().plot(Figure().add_subplot()))


def test_one_function_alone_has_its_own_pictures(ax: Axes) -> None:
    exam = seen()
    drawn(exam.plot(ax))
    screen = es.Screen(exam, seed=1)
    screen.tell(es.Stimulus((("contrast_db", -20.0),)), True)
    shift = screen.verdict().plot(Figure().add_subplot())
    drawn(shift)
    (mark,) = (line for line in shift.get_lines() if str(line.get_label()).startswith("shift"))
    assert list(mark.get_xdata()) == [0.0]
    assert (shift.get_xlabel(), list(shift.get_xticks())) == ("", [])
    assert screen.plot_p_changed(Figure().add_subplot()).get_xlabel() == "trials"
    with pytest.raises(ValueError, match="have no ear"):
        exam.plot(ear="right")


def chosen(*axes: es.Axis) -> es.Exam:
    """The right one of two alternatives, always at -20 dB and above, half of the time below."""
    exam = es.Exam(domain=es.Domain(CONTRAST, axes), guess=0.5, lapse=0.02, seed=1)
    middle = {axis.name: axis.values[1] for axis in axes}
    for trial in range(16):
        level = -45.0 + 5.0 * (trial % 8)
        right = level >= -20.0 or trial >= 8
        exam.tell(es.Stimulus((("contrast_db", level), *middle.items())), right)
    return exam


def test_the_line_of_a_heat_map_is_the_threshold_and_not_the_floor(ax: Axes) -> None:
    exam = chosen(CPD)
    drawn(exam.plot_field(ax))
    (line,) = (one for one in ax.collections if isinstance(one, ContourSet))
    assert list(line.levels) == [pytest.approx(0.5 + 0.5 * 0.48)]
    assert ax.figure.axes[1].get_ylabel() == "P(correct)"


def test_answers_are_called_what_they_are(ax: Axes) -> None:
    choice = chosen().psychometric().plot(ax)
    assert (choice.get_xlabel(), choice.get_ylabel()) == ("contrast (dB)", "P(correct)")
    either = chosen(CPD).plot(Figure().add_subplot())
    assert {"correct", "wrong"} < set(either.get_legend_handles_labels()[1])
    yes_no = seen(CPD).plot(Figure().add_subplot())
    assert {"yes", "no"} < set(yes_no.get_legend_handles_labels()[1])


def test_shifts_on_other_axes_have_a_unit_and_a_zero_line(ax: Axes) -> None:
    screen = es.Screen(seen(CPD), seed=1)
    for level in (-20.0, -10.0, 0.0):  # nothing is seen any more: all shifts are large
        screen.tell(es.Stimulus((("contrast_db", level), (CPD.name, CPD.values[1]))), False)
    screen.verdict().plot(ax)
    assert ax.get_ylabel() == "shift (dB, harder is up)"
    low, high = ax.get_ylim()
    assert low < 0.0 < high


def test_two_axes_are_a_heat_map_and_three_are_too_many(ax: Axes) -> None:
    drawn(seen(CPD, AGE).plot(ax))
    for draw in (seen(CPD, AGE, DAY).plot, seen(CPD, AGE).plot_field):
        with pytest.raises(ValueError, match="smooth ax"):
            draw()
    with pytest.raises(ValueError, match="several axes"):
        es.Screen(seen(CPD, AGE), seed=1).verdict().plot()


def test_matplotlib_loads_with_the_first_picture_alone() -> None:
    code = (
        "import sys, earshift as es; exam = es.Exam.clinical(seed=1); exam.rows(); repr(exam); "
        "print('matplotlib' in sys.modules, 'polars' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
