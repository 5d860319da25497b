"""Simulated listeners: their curve, their chance, and what is refused."""

import numpy as np
import pytest
from scipy.stats import norm

import earshift as es
from earshift.engine.norms import class_median
from support.helpers import MILD


def test_the_spline_passes_through_the_given_points() -> None:
    listener = es.Listener(MILD)
    for frequency, level in MILD.items():
        assert listener.threshold(frequency) == pytest.approx(level, abs=1e-9)


def test_a_cubic_in_octaves_is_met_exactly_between_the_points() -> None:
    def curve(hz: float) -> float:
        x = np.log2(hz / 1000.0)
        return float(20.0 + 3.0 * x - 2.0 * x**2 + 1.5 * x**3)

    listener = es.Listener({hz: curve(hz) for hz in (500, 1000, 2000, 4000, 8000)})
    for hz in (600.0, 1300.0, 3000.0, 7000.0):
        assert listener.threshold(hz) == pytest.approx(curve(hz), abs=1e-8)


@pytest.mark.parametrize(("guess", "lapse"), [(0.0, 0.0), (0.1, 0.04)])
def test_half_of_the_audible_range_is_heard_at_threshold(guess: float, lapse: float) -> None:
    listener = es.Listener(MILD, spread_db=4.0, guess=guess, lapse=lapse)
    gain = 1.0 - guess - lapse
    for frequency, level in MILD.items():
        at = [
            listener.p_heard(es.Tone(frequency, level + step)) for step in (-70.0, 0.0, 4.0, 70.0)
        ]
        expected = [guess, guess + 0.5 * gain, guess + gain * norm.cdf(1.0), 1.0 - lapse]
        assert at == pytest.approx(expected, abs=1e-9)


def test_answers_come_at_the_rate_promised() -> None:
    listener = es.Listener(MILD, seed=1, lapse=0.05)
    tone = es.Tone(1000.0, 33.0)
    rate = np.mean([listener(tone) for _ in range(4000)])
    assert rate == pytest.approx(listener.p_heard(tone), abs=0.03)
    assert isinstance(listener(tone), bool)


def test_the_seed_makes_the_answers() -> None:
    tones = [es.Tone(1000.0, 30.0)] * 60

    def run(seed: int | tuple[int, ...]) -> list[bool]:
        listener = es.Listener(MILD, seed=seed)
        return [listener(tone) for tone in tones]

    assert run(5) == run(5)
    assert run((5, 1)) == run((5, 1))
    assert run(5) != run(6)
    assert run((5, 1)) != run((5, 2))


def test_a_class_is_its_median_audiogram() -> None:
    listener = es.Listener.of_class("mild", seed=2)
    for frequency, level in class_median("mild").items():
        assert listener.threshold(frequency) == pytest.approx(level, abs=1e-9)
    with pytest.raises(ValueError, match="unknown hearing-loss class"):
        es.Listener.of_class("wild")


def test_retest_moves_the_thresholds_smoothly_and_by_the_given_amount() -> None:
    moves = np.array(
        [
            [es.Listener(MILD, retest_sd_db=3.0, seed=k).threshold(f) - MILD[f] for f in MILD]
            for k in range(400)
        ]
    )
    assert moves.std(axis=0) == pytest.approx(3.0, rel=0.15)
    assert abs(moves.mean()) < 0.5
    neighbours, far = np.corrcoef(moves.T)[4, 5], np.corrcoef(moves.T)[0, 6]
    assert neighbours > 0.7
    assert abs(far) < 0.2


@pytest.mark.parametrize(
    "options",
    [
        {"thresholds_db_hl": {}},
        {"thresholds_db_hl": {1000.0: 20.0}},
        {"thresholds_db_hl": {1000.0: float("nan"), 2000.0: 20.0}},
        {"thresholds_db_hl": {-1.0: 10.0, 2000.0: 20.0}},
        {"spread_db": 0.0},
        {"spread_db": -3.0},
        {"spread_db": float("inf")},
        {"spread_db": "narrow"},
        {"guess": 0.51},
        {"lapse": -0.1},
        {"retest_sd_db": -1.0},
        {"retest_sd_db": float("nan")},
        {"seed": -1},
        {"seed": 1.5},
        {"seed": "one"},
        {"seed": (1, -2)},
    ],
)
def test_bad_settings_are_refused(options: dict) -> None:
    with pytest.raises(ValueError, match=r"must|needs"):
        es.Listener(**{"thresholds_db_hl": MILD, **options})
