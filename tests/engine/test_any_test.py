"""Any psychometric test: forced choice, one function, the user's prior, rates and strategy."""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

import earshift as es
from earshift.simulate.run import run

GAPS = es.Domain(es.Axis("gap_ms", "ms", [2.0 * 2 ** (k / 4) for k in range(21)], logarithmic=True))
CONTRAST = es.Domain(
    es.Axis("contrast_db", "dB", range(-50, 1, 5)),
    (es.Axis("cycles_per_degree", "c/deg", (0.5, 1, 2, 4, 8, 16), logarithmic=True),),
)
GAP_PRIOR = es.Prior(threshold=8.0, threshold_sd=1.0, spread=0.5)


def observer(
    threshold_ms: float, seed: int, guess: float = 0.5, lapse: float = 0.02
) -> Callable[[Any], bool]:
    """Chooses the interval with the gap; its spread is half an octave."""
    rng = np.random.default_rng(seed)

    def answer(stimulus: Any) -> bool:
        z = math.log2(stimulus.gap_ms / threshold_ms) / 0.5
        return bool(rng.random() < guess + (1.0 - guess - lapse) * ndtr(z))

    return answer


@pytest.fixture(scope="module")
def gaps() -> es.Exam:
    """Sixty trials with two alternatives, of an observer with a threshold of 6 ms."""
    exam = es.Exam(domain=GAPS, prior=GAP_PRIOR, guess=0.5, lapse=0.02, seed=1, max_tones=60)
    return run(exam, observer(6.0, 1))


def test_two_alternatives_and_one_function(gaps: es.Exam) -> None:
    (found,) = gaps.thresholds()
    assert found.place == ()
    assert found.low < 6.0 < found.high
    assert found.high / found.low < 4.0
    curve = gaps.psychometric()
    assert curve.guess.value == 0.5
    assert curve.slope.low < 0.4 / 0.5 < curve.slope.high
    (steep,) = gaps.thresholds(performance=0.9)
    assert steep.level > found.level
    assert gaps.goodness_of_fit().p > 0.01
    assert gaps.rows("thresholds")[0]["level"] == found.level
    assert list(gaps.rows()[0]) == ["trial", "gap_ms", "heard"]


def test_one_function_is_drawn_trial_by_trial(gaps: es.Exam) -> None:
    from matplotlib import pyplot

    pyplot.switch_backend("Agg")
    assert gaps.plot().get_xlabel() == "trial"
    gaps.psychometric().plot()
    with pytest.raises(ValueError, match="one smooth axis"):
        gaps.plot_field()
    pyplot.close("all")


def test_what_was_saved_asks_the_same_next(gaps: es.Exam) -> None:
    stored = json.loads(json.dumps(gaps.to_dict()))
    again = es.Exam.from_dict(stored)
    assert again.prior == GAP_PRIOR
    assert again.ask() == gaps.ask()
    assert again.to_dict() == gaps.to_dict()
    assert again.thresholds() == gaps.thresholds()


def test_a_screen_takes_rates_and_prior_of_its_reference(gaps: es.Exam) -> None:
    from matplotlib import pyplot

    pyplot.switch_backend("Agg")
    screen = es.Screen(gaps, seed=1, max_tones=40)
    assert (screen.guess, screen.lapse, screen.prior) == (0.5, 0.02, GAP_PRIOR)
    run(screen, observer(24.0, 2))
    assert screen.decision == "changed"
    (shift,) = screen.verdict().shifts
    assert 0.0 < shift.low < 2.0 < shift.high  # two octaves
    assert screen.plot().get_xlabel() == "trial"
    screen.verdict().plot()
    pyplot.close("all")
    again = es.Screen.from_dict(json.loads(json.dumps(screen.to_dict())))
    assert again.ask() == screen.ask()
    assert screen.continue_exam().prior == GAP_PRIOR


def test_the_same_observer_is_not_called_changed(gaps: es.Exam) -> None:
    screen = run(es.Screen(gaps, seed=3, max_tones=25), observer(6.0, 7))
    assert screen.decision != "changed"


def test_of_tones_a_named_protocol_keeps_its_rates_unless_choice_is_forced() -> None:
    yes_no = run(es.Exam(guess=0.02, lapse=0.02, max_tones=12), lambda t: t.level_db_hl > 30)
    assert es.Screen(yes_no).guess == 0.0
    forced = run(es.Exam(guess=0.5, max_tones=12), lambda t: t.level_db_hl > 30)
    assert es.Screen(forced).guess == 0.5
    assert es.Screen(forced, es.Protocol(guess=0.25)).guess == 0.25


def test_a_lapse_rate_is_estimated_when_asked() -> None:
    exam = es.Exam(
        domain=GAPS, prior=es.Prior(threshold=8.0, spread=0.3, lapse=(1, 5)), guess=0.25,
        lapse="estimate", max_tones=30, halton_tones=30,
    )  # fmt: skip
    assert exam.estimated == ("lapse",)
    run(exam, lambda stimulus: stimulus.gap_ms > 4.0)
    careful = exam.lapse_rate()
    for _ in range(6):  # and then clear gaps are missed
        exam.tell(es.Stimulus((("gap_ms", 64.0),)), heard=False)
        exam.tell(es.Stimulus((("gap_ms", 64.0),)), heard=True)
    lapsing = exam.lapse_rate()
    assert careful.value < 0.12
    assert lapsing.value > careful.value + 0.05
    assert exam.lapse == pytest.approx(lapsing.value, abs=0.03)  # by fewer draws
    before = exam.lapse
    curve = exam.psychometric()
    assert curve.lapse.low < curve.lapse.value < curve.lapse.high
    assert exam.to_dict()["design"]["lapse"] == "estimate"
    assert exam.undo().heard
    assert exam.lapse != before


def test_a_guess_rate_is_estimated_when_asked() -> None:
    exam = es.Exam(domain=GAPS, prior=GAP_PRIOR, guess="estimate", max_tones=40, halton_tones=40)
    rng = np.random.default_rng(3)
    run(exam, lambda stimulus: stimulus.gap_ms > 12.0 or bool(rng.random() < 0.3))
    assert 0.1 < exam.guess < 0.45
    assert exam.psychometric().guess.low < 0.3 < exam.psychometric().guess.high


def test_rates_are_not_estimated_for_two_ears_at_once() -> None:
    with pytest.raises(ValueError, match="one ear"):
        es.Exam(ears="both", lapse="estimate")


def test_a_prior_says_where_to_look() -> None:
    near = es.Exam(domain=CONTRAST, prior=es.Prior(threshold=-40.0, threshold_sd=3.0, spread=2.0))
    far = es.Exam(domain=CONTRAST, prior=es.Prior(threshold=-10.0, threshold_sd=3.0, spread=2.0))
    low, high = near.thresholds([2.0])[0], far.thresholds([2.0])[0]
    assert low.level == pytest.approx(-40.0, abs=2.0)
    assert high.level == pytest.approx(-10.0, abs=2.0)
    assert near.domain.intensity.origin == -40.0
    assert near.domain.intensity.scale == 5.0
    width = es.Prior(threshold=-40.0, threshold_sd=3.0, spread=2.0, spread_factor=1.2)
    steady = es.Exam(domain=CONTRAST, prior=width).psychometric(2.0).width
    assert steady.high / steady.low < 3.0


def test_a_prior_has_one_length_for_each_smooth_axis() -> None:
    two = es.Domain(CONTRAST.intensity, (*CONTRAST.smooth, es.Axis("size_deg", "deg", (1, 2, 4))))
    exam = es.Exam(domain=two, prior=es.Prior(length=(2.0, 1.5)))
    assert len(exam.hyperprior.mean) == 5
    assert exam.ask()
    with pytest.raises(ValueError, match="2 lengths and the domain 1 smooth"):
        es.Exam(domain=CONTRAST, prior=es.Prior(length=(2.0, 1.5)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"threshold": "low"}, "threshold"),
        ({"threshold_sd": 0.0}, "threshold_sd"),
        ({"variation": -1.0}, "variation"),
        ({"spread": math.nan}, "spread"),
        ({"length": 0.0}, "length"),
        ({"length": (1.0, -1.0)}, "length"),
        ({"length": "1"}, "length"),
        ({"spread_factor": 1.0}, "spread_factor"),
        ({"length_factor": 0.5}, "length_factor"),
        ({"guess": 0.1}, "two numbers"),
        ({"lapse": (0.0, 1.0)}, "lapse"),
    ],
)
def test_a_bad_prior_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        es.Prior(**given)


def test_a_prior_from_elsewhere_is_refused() -> None:
    with pytest.raises(ValueError, match="outside the domain"):
        es.Exam(domain=CONTRAST, prior=es.Prior(threshold=30.0))
    with pytest.raises(ValueError, match=r"earshift\.Prior"):
        es.Exam(domain=CONTRAST, prior={"threshold": -30.0})  # type: ignore[arg-type]


def test_an_axis_finds_its_own_units() -> None:
    linear, ratio = CONTRAST.intensity, GAPS.intensity
    assert (linear.origin, linear.scale, linear.span) == (-25.0, 5.0, 50.0)
    assert (ratio.origin, ratio.scale) == (pytest.approx(math.sqrt(128.0)), 1.0)
    assert ratio.span == pytest.approx(5.0)


def softest(outlook: es.Outlook) -> Any:
    """The softest candidate that is still seen, if only just."""
    seen = outlook.p_mixed() > 0.5
    return np.where(seen, -np.arange(outlook.shape[1]), -np.inf)


def test_a_strategy_of_ones_own_chooses() -> None:
    exam = es.Exam(domain=CONTRAST, strategy=softest, halton_tones=4)
    run(exam, lambda grating: grating.contrast_db > -30, tones=4)
    rows = exam.scores()
    assert rows.shape == CONTRAST.shape
    asked = exam.ask()
    assert rows.max() == rows[:, CONTRAST.intensity.values.index(asked.contrast_db)].max()
    stored = exam.to_dict()
    assert stored["design"]["strategy"] == "own: softest"
    opened = es.Exam.from_dict(json.loads(json.dumps(stored)))
    assert opened.thresholds() == exam.thresholds()
    with pytest.raises(ValueError, match="of the user's own"):
        opened.ask()


def test_a_screen_takes_a_strategy_of_ones_own(gaps: es.Exam) -> None:
    def likely(outlook: es.Outlook) -> Any:
        assert outlook.hypotheses is not None
        weights, seen = outlook.hypotheses
        assert weights.sum() == pytest.approx(1.0)
        assert outlook.domain is not None
        return np.abs(seen[0] - seen[1]) + 0.0 * outlook.domain.intensities

    screen = es.Screen(gaps, es.Protocol(strategy=likely, guess=0.5), max_tones=3)
    run(screen, observer(6.0, 5))
    assert len(screen.trials) == 3
    assert screen.to_dict()["design"]["protocol"]["strategy"] == "own: likely"


@pytest.mark.parametrize(
    "scores", [np.zeros(3), np.full((6, 11), math.nan), 1.0], ids=["shape", "nan", "one number"]
)
def test_scores_that_are_none_are_refused(scores: Any) -> None:
    exam = es.Exam(domain=CONTRAST, strategy=lambda outlook: scores, halton_tones=0)
    with pytest.raises(ValueError, match="one number for each candidate"):
        exam.ask()
