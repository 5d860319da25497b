"""Wrong units and impossible values are refused where they enter, with what was expected."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import earshift as es

ONE_FUNCTION = es.Exam(domain=es.Domain(es.Axis("gap_ms", "ms", [2, 4, 8], logarithmic=True)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: es.Audiogram({1000: 999}), "999 at 1000 Hz.*leave the frequency out"),
        (lambda: es.Audiogram({1000: -100}), "from -40 to 140 dB HL"),
        (lambda: es.Audiogram({500: 10}, no_response_db_hl={1000: 888}), "888 at 1000 Hz"),
        (lambda: es.Audiogram({0.5: 10, 1: 15, 4: 40}), "not kHz"),
        (lambda: es.Listener({0.5: 10, 1: 15, 4: 40}), r"100 to 20000 Hz \(not kHz\), got 0.5"),
        (lambda: es.Listener({500: 10, 1000: 999}), r"at 1000 Hz\) must lie .* dB, got 999"),
        (lambda: es.Tone(1, 20), r"100 to 20000 Hz \(not kHz\), got 1"),
        (lambda: es.Tone(1000, 999), "from -140 to 140 dB, got 999"),
        (lambda: es.Domain.tones([0.5, 1, 2], [0, 10, 20]), "not kHz"),
        (lambda: es.Domain.tones([500, 1000], [0, 999]), "from -40 to 140 dB, got 999"),
        (lambda: es.Limits(cap_db_hl=-99), "cap_db_hl must lie from -40"),
        (lambda: es.Criterion((2000,), 999.0), "at_least_db must lie from -40 to 140 dB, got 999"),
        (lambda: es.Stimulus([1.0, 2.0]), "values by name"),  # type: ignore[list-item]
        (lambda: es.Exam().psychometric(), "say at which frequency, in Hz"),
        (lambda: ONE_FUNCTION.psychometric(3.0), "a single psychometric function: leave the place"),
        (lambda: es.Criterion((2, 3, 4), 10.0), "not kHz"),
        (lambda: es.Rule("mine", [es.Criterion((2000,), -10.0)]), "above 0 dB, got -10"),
        (lambda: es.Rule("mine", [es.Criterion((2000,), 0.0)]), "above 0 dB"),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_a_limit_on_thresholds_may_be_any_hearing_level() -> None:
    rule = es.ThresholdRule("better than most", [es.Criterion((2000,), -5.0)])
    assert rule.criteria[0].at_least_db == -5.0


def test_levels_of_equipment_that_nobody_calibrated_may_count_from_its_loudest() -> None:
    domain = es.Domain.tones([500, 1000], range(-120, 1, 5), "relative dB")
    assert domain.tone(0, 0) == es.Tone(500, -120)


def test_a_stimulus_takes_a_mapping() -> None:
    assert es.Stimulus({"b": 2, "a": 1.0}) == es.Stimulus((("a", 1.0), ("b", 2.0)))


def test_the_ends_of_an_audiometer_are_taken() -> None:
    assert es.Audiogram({1000: -20, 2000: 130}).thresholds_db_hl == {1000.0: -20.0, 2000.0: 130.0}


@pytest.mark.parametrize("places", [1000.0, "1000"])
def test_places_come_in_a_list(places: Any) -> None:
    exam = es.Exam(seed=1)
    exam.tell(exam.ask(), heard=True)
    with pytest.raises(es.Refusal, match="in a list"):
        exam.thresholds(places)
    given = exam.thresholds(np.array([1000.0, 2000.0]))  # type: ignore[arg-type]
    assert given == exam.thresholds(iter([1000.0, 2000.0]))  # type: ignore[arg-type]


@pytest.mark.parametrize("thresholds", [None, "mild", [20.0, 30.0]])
def test_a_listener_has_thresholds_by_frequency(thresholds: Any) -> None:
    with pytest.raises(es.Refusal, match="by frequency"):
        es.Listener(thresholds)


def test_a_listener_hears_tones_and_knows_hertz() -> None:
    listener = es.Listener.of_class("mild")
    with pytest.raises(es.Refusal, match=r"earshift\.Tone"):
        listener("x")  # type: ignore[arg-type]
    with pytest.raises(es.Refusal, match="not kHz"):
        listener.threshold(1)


def test_without_answers_nobody_is_said_not_to_listen() -> None:
    reference = es.Audiogram(dict.fromkeys((500, 1000, 2000, 3000, 4000, 6000, 8000), 20.0))
    screen = es.Screen(reference, rule="osha-sts")
    assert "too few answers" in str(screen.verdict())
    assert screen.verdict().next_step == "more tones"
