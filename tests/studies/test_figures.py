"""Pictures: drawn the way audiologists read them, and really on disk."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

import earshift as es
from earshift.engine.thresholds import Threshold
from earshift.studies import figures
from earshift.studies.figures import Curve, Panel
from support.helpers import HZ, MILD, NORMAL


def thresholds(ear: dict[float, float]) -> list[Threshold]:
    return [Threshold(f, level, level - 6.0, level + 4.0, None) for f, level in ear.items()]


TRIALS = (
    es.Trial(es.Tone(1000.0, 45.0), True),
    es.Trial(es.Tone(2000.0, 10.0), False),
    es.Trial(es.Tone(4000.0, 90.0), True),
)
PANEL = Panel("an ear", thresholds(NORMAL), thresholds(MILD), TRIALS, "changed")


def drawn(panel: Panel, size: tuple[float, float] = (5.0, 6.6), columns: int = 1) -> Axes:
    """A panel's axes after layout, as they would be printed."""
    figure = Figure(figsize=size, layout="constrained")
    axes = [figure.add_subplot(1, columns, number + 1) for number in range(columns)]
    for each in axes:
        figures.draw_audiogram(each, panel)
    figure.draw_without_rendering()
    return axes[-1]


def line(axes: Axes, label: str) -> Line2D:
    (found,) = [each for each in axes.get_lines() if each.get_label() == label]
    return found


def on_paper(axes: Axes, frequency_hz: float, level_db_hl: float) -> np.ndarray:
    return axes.transData.transform((frequency_hz, level_db_hl))


def assert_picture(path: Path) -> None:
    """A PNG with something on it."""
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    with Image.open(path) as image:
        assert min(image.size) > 100
        assert image.convert("RGB").getcolors(maxcolors=2) is None  # more than two colours


@pytest.mark.parametrize(
    ("size", "columns"), [((5.0, 6.6), 1), ((10.0, 6.6), 2), ((12.0, 3.0), 1), ((3.0, 9.0), 1)]
)
def test_an_octave_is_as_long_as_20_db(size: tuple[float, float], columns: int) -> None:
    axes = drawn(PANEL, size, columns)
    start = on_paper(axes, 1000, 40)
    octave = on_paper(axes, 2000, 40) - start
    louder = on_paper(axes, 1000, 60) - start
    assert octave[0] > 10  # pixels
    assert octave == pytest.approx([octave[0], 0.0])
    assert louder == pytest.approx([0.0, -octave[0]], rel=1e-6)  # louder is further down


def test_frequency_is_logarithmic_and_every_level_is_on_the_paper() -> None:
    axes = drawn(PANEL)
    steps = np.diff([on_paper(axes, f, 0)[0] for f in (500, 1000, 2000, 4000, 8000)])
    assert steps == pytest.approx(steps[0])
    bottom, top = axes.get_ylim()
    assert bottom >= 100 > -10 >= top
    assert [text.get_text() for text in axes.get_xticklabels()] == ["500", "1k", "2k", "4k", "8k"]
    assert "dB HL" in axes.get_ylabel()
    assert "Hz" in axes.get_xlabel()


def test_what_is_drawn_is_what_was_given() -> None:
    axes = drawn(PANEL)
    assert axes.get_title() == "an ear\nchanged"
    for label, ear in (("reference (95 % band)", NORMAL), ("now (95 % band)", MILD)):
        assert line(axes, label).get_xydata() == pytest.approx(np.array(list(ear.items())))
    for label, tones in (
        ("tone heard", [(1000, 45), (4000, 90)]),
        ("tone not heard", [(2000, 10)]),
    ):
        assert line(axes, label).get_xydata() == pytest.approx(np.array(tones, dtype=float))
    # The shapes tell them apart without colour.
    shapes = {each.get_marker() for each in axes.get_lines()}
    assert len(shapes) == len(axes.get_lines()) == 4


def test_the_bands_reach_from_low_to_high() -> None:
    axes = drawn(PANEL)
    for band, ear in zip(axes.collections, (NORMAL, MILD), strict=True):
        corners = {tuple(corner) for corner in band.get_paths()[0].vertices}
        for frequency, level in ear.items():
            assert {(frequency, level - 6.0), (frequency, level + 4.0)} <= corners


def test_a_reference_alone_is_enough() -> None:
    axes = drawn(Panel("an ear", thresholds(NORMAL)))
    assert [each.get_label() for each in axes.get_lines()] == ["reference (95 % band)"]
    assert axes.get_title() == "an ear"


@pytest.mark.parametrize("panels", [1, 2])
def test_audiograms_are_written_into_a_new_folder(tmp_path: Path, panels: int) -> None:
    path = tmp_path / "not" / "there" / "yet.png"
    assert figures.save_audiograms([PANEL] * panels, path) == path
    assert_picture(path)
    with Image.open(path) as image:
        assert image.size == (panels * 700, 924)  # 5.0 x 6.6 inches each at 140 dpi


def test_the_suffix_says_the_format(tmp_path: Path) -> None:
    path = figures.save_audiograms([PANEL], tmp_path / "ear.svg")
    assert "<svg" in path.read_text()


def curve(strategy: str) -> Curve:
    return Curve(strategy, [0.5, 0.7, 0.9], [0.4, 0.5, 0.8], [0.6, 0.8, 0.95])


@pytest.mark.slow
def test_the_other_pictures_are_written(tmp_path: Path) -> None:
    curves = [curve(strategy) for strategy in figures.STYLES]
    panels = figures.save_strategy_panels([("a", curves), ("b", curves)], tmp_path / "panels.png")
    names = ["normal", "mild"]
    pairs = {(old, new): curve("differential") for old in names for new in names}
    grid = figures.save_grid(names, pairs, tmp_path / "grid.png")
    ears = {"normal": [(f, 5.0) for f in HZ], "mild": [(f, 35.0) for f in HZ]}
    truths = figures.save_truths(ears, tmp_path / "truths.png")
    points = {"one": (3.0, 0.1, 0.02, 0.004), "another": (3.6, 0.1, 0.01, 0.003)}
    frontier = figures.save_frontier(points, "one", tmp_path / "frontier.png")
    assert [path.name for path in (panels, grid, truths, frontier)] == [
        "panels.png", "grid.png", "truths.png", "frontier.png"
    ]  # fmt: skip
    for path in (panels, grid, truths, frontier):
        assert_picture(path)


@pytest.mark.slow
def test_a_picture_shows_its_data(tmp_path: Path) -> None:
    """Other numbers, another picture; the same numbers, the same."""
    names = ["normal", "mild"]

    def picture(strategy: str, name: str) -> bytes:
        pairs = {("normal", "mild"): curve(strategy)}
        return figures.save_grid(names, pairs, tmp_path / name).read_bytes()

    assert picture("differential", "a.png") == picture("differential", "b.png")
    assert picture("differential", "a.png") != picture("random", "c.png")


def test_every_strategy_of_a_study_has_a_style_of_its_own() -> None:
    from earshift.studies.paper import STRATEGIES

    assert tuple(figures.STYLES) == STRATEGIES
    for position in range(3):
        assert len({style[position] for style in figures.STYLES.values()}) == len(STRATEGIES)
