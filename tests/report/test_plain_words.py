"""A result in plain words for the person whose ear it is."""

from typing import Any

import pytest

from earshift.report.plain import one_in, plain_words
from earshift.report.words import ENGLISH

AMOUNT = {
    "what": "mean", "frequencies_hz": [2000.0, 3000.0, 4000.0], "low_db": 11.2, "middle_db": 16.0,
    "high_db": 20.9, "rule_db": 10.0, "unit": "", "beyond": False,
}  # fmt: skip


def shown(decision: str, **changes: Any) -> dict[str, Any]:
    verdict = {"decision": decision, "p_changed": 0.98, "rule": "osha-sts", "amount": AMOUNT}
    return {"verdict": verdict | changes, "rule": {"name": "osha-sts"}}


def test_somebody_whose_hearing_has_changed() -> None:
    told = plain_words(shown("changed"), "right")
    assert told.headline == "Your right ear hears less than before"
    assert told.found == "Tones at 2-4 kHz now have to be 11 to 21 dB louder to be heard."
    assert told.sure == "About 1 in 50 such ears is called wrongly."
    assert "does not say why" in told.means
    assert told.next_step.startswith("Next: a full hearing test")
    beyond = plain_words(shown("changed", amount=AMOUNT | {"beyond": True}), "right")
    assert beyond.found == "Tones at 2-4 kHz now have to be at least 11 dB louder to be heard."


def test_somebody_whose_hearing_has_not() -> None:
    told = plain_words(shown("unchanged", p_changed=0.0001), "left")
    assert told.headline == "Your left ear hears as before"
    assert told.sure == "Fewer than 1 in 1000 such ears are called wrongly."
    assert "next regular test" in told.next_step


@pytest.mark.parametrize(
    ("next_step", "advice"),
    [("more tones", "repeat the test, or go on"), ("better reference", "a full hearing test"),
     ("retest", "in quiet"), ("", "repeat the test")],
)  # fmt: skip
def test_nothing_clear_says_what_would_help_and_calls_nobody(next_step: str, advice: str) -> None:
    told = plain_words(shown("inconclusive", next_step=next_step), "right")
    assert told.headline == "No clear result for your right ear"
    assert (told.found, told.sure) == ("", "")
    assert advice in told.next_step


@pytest.mark.parametrize(
    ("result", "headline"),
    [
        ({**shown("changed"), "rule": {"better": True}}, "Your right ear hears better than before"),
        ({**shown("changed"), "rule": {"kind": "thresholds"}},
         "Your right ear is past the limit that was asked about"),
        ({"verdict": {"decision": "notch", "p_changed": 0.9, "protocol": "notch"}},
         "Your right ear hears some high tones less than their neighbours"),
        ({"verdict": {"decision": "no notch", "p_changed": 0.1}},
         "Your right ear: no dip around 4 kHz"),
        ({"verdict": {"decision": "changed", "p_changed": 0.99}},
         "Your right ear: hearing has changed"),
        ({"verdict": None}, "Your right ear was measured"),
        ({"verdict": {"decision": "not determinable"}},
         "This test cannot say it for your right ear"),
        ({"verdict": {"decision": "bananas"}}, "No clear result for your right ear"),
    ],
)  # fmt: skip
def test_every_question_has_its_words(result: dict[str, Any], headline: str) -> None:
    told = plain_words(result, "right")
    assert told.headline == headline
    assert told.next_step


def test_all_that_can_be_decided_has_a_meaning_and_a_next_step() -> None:
    for decision in ENGLISH.decisions:
        assert decision in ENGLISH.plain_headlines
        assert decision in ENGLISH.plain_means
        assert decision in ENGLISH.plain_next


@pytest.mark.parametrize(
    ("p", "count"),
    [(0.5, 2), (0.06, 15), (0.0199, 50), (0.0011, 1000), (0.0009, None), (0.0, None), (1.0, 2)],
)
def test_natural_frequencies_are_round_numbers(p: float, count: int | None) -> None:
    assert one_in(p) == count
