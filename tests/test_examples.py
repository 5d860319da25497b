"""The worked examples on other axes than a tone's run as they are written."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_contrast_sensitivity_tells_the_same_eye_from_a_clouded_one(tmp_path: Path) -> None:
    verdicts = load("contrast_sensitivity").main(tmp_path / "contrast.png")
    same, lost = verdicts.values()
    assert same.decision == "unchanged"
    assert str(same).startswith("No change from the reference")
    assert lost.decision == "changed"
    assert str(lost).startswith("Answers have changed from the reference")
    assert "trials" in str(lost)
    by_place = {dict(shift.place)["cycles_per_degree"]: shift for shift in lost.shifts}
    assert by_place[6.0].low > 0.0  # what was lost, and where
    assert by_place[6.0].shift == pytest.approx(15.0, abs=8.0)
    assert (tmp_path / "contrast.png").stat().st_size > 10_000


def test_the_surface_over_frequency_and_duration_is_found(tmp_path: Path) -> None:
    example = load("tone_duration")
    exam = example.main(tmp_path / "duration.png")
    errors = np.array(example.errors_db(exam))
    assert errors.size == 30
    assert np.sqrt(np.mean(errors**2)) < 4.0
    short, long = exam.thresholds([(1000.0, 10.0), (1000.0, 500.0)])
    assert short.level > long.level + 5.0
    assert (tmp_path / "duration.png").stat().st_size > 10_000


def test_a_gap_is_found_with_two_alternatives(tmp_path: Path) -> None:
    exam = load("gap_detection").main(tmp_path / "gap.png")
    curve = exam.psychometric()
    assert curve.threshold.low < 6.0 < curve.threshold.high
    assert curve.guess.value == 0.5
    assert str(curve).startswith("threshold ")
    assert (tmp_path / "gap.png").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("contrast_sensitivity", "an eye that lost 15 dB"),
        ("tone_duration", "RMS error"),
        ("gap_detection", "slope"),
    ],
)
def test_the_scripts_say_what_they_found(name: str, words: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), str(tmp_path / "picture.png")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert words in done.stdout
