"""Pictures: drawn the way audiologists read them, and really on disk."""

from pathlib import Path

import pytest
from PIL import Image

from earshift.studies import figures
from earshift.studies.figures import Curve
from support.helpers import HZ


def assert_picture(path: Path) -> None:
    """A PNG with something on it."""
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    with Image.open(path) as image:
        assert min(image.size) > 100
        assert image.convert("RGB").getcolors(maxcolors=2) is None  # more than two colours


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
