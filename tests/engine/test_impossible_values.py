"""Wrong units and impossible values are refused where they enter, with what was expected."""

from collections.abc import Callable

import pytest

import earshift as es


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: es.Audiogram({1000: 999}), "999 at 1000 Hz.*leave the frequency out"),
        (lambda: es.Audiogram({1000: -100}), "from -40 to 140 dB HL"),
        (lambda: es.Audiogram({500: 10}, no_response_db_hl={1000: 888}), "888 at 1000 Hz"),
        (lambda: es.Audiogram({0.5: 10, 1: 15, 4: 40}), "not kHz"),
        (lambda: es.Listener({0.5: 10, 1: 15, 4: 40}), r"100 to 20000 Hz \(not kHz\), got 0.5"),
        (lambda: es.Listener({500: 10, 1000: 999}), "999 at 1000 Hz"),
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


def test_the_ends_of_an_audiometer_are_taken() -> None:
    assert es.Audiogram({1000: -20, 2000: 130}).thresholds_db_hl == {1000.0: -20.0, 2000.0: 130.0}
