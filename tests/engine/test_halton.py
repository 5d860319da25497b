"""The first tones of an exam: the scrambled Halton sequence, digit for digit."""

import numpy as np
import pytest
from scipy.stats import qmc

from earshift.engine.choose import halton_point


@pytest.mark.parametrize("axes", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", [0, 1, 7, 2**40])
def test_points_are_those_of_scipy_to_the_last_bit(axes: int, seed: int) -> None:
    engine = qmc.Halton(d=axes, scramble=True, rng=np.random.default_rng((seed, 3)))
    for number, expected in enumerate(engine.random(60)):
        point = halton_point(number, axes, np.random.default_rng((seed, 3)))
        assert point.tobytes() == expected.tobytes()


def test_a_far_point_is_reached_without_those_before_it() -> None:
    engine = qmc.Halton(d=2, scramble=True, rng=np.random.default_rng(5))
    expected = engine.fast_forward(100_000).random(1)[0]
    assert halton_point(100_000, 2, np.random.default_rng(5)).tobytes() == expected.tobytes()


def test_the_choice_of_tones_does_not_load_scipys_statistics() -> None:
    import subprocess
    import sys

    asked = (
        "import sys, earshift as es; es.Exam(seed=1, halton_tones=2).ask();"
        "assert 'scipy.stats' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", asked], check=True)
