"""A verdict in one sentence, with the rule's own number."""

from dataclasses import replace

import numpy as np
import pytest

import earshift as es
from earshift.engine.amount import Amount, in_khz, in_percent
from earshift.engine.persons.questions import NotchThere, RuleMet
from earshift.engine.rules import RULES, Criterion, Rule, ThresholdRule
from earshift.engine.verdict import PlaceShift, Verdict

STS = Amount("mean", (2000.0, 3000.0, 4000.0), 11.2, 15.8, 20.9, 10.0)
NODES = (1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)
CHANGED = Verdict(
    "changed", 0.98, 4.0, 7, (), True, None, rule="osha-sts", catch_trials=1, amount=STS
)


def test_the_sentence_that_everybody_reads() -> None:
    assert CHANGED.sentence("right", "2021") == (
        "Right ear: average at 2-4 kHz is 11 to 21 dB worse than in 2021 (rule: 10 dB). "
        "Probability 98 %, 7 tones."
    )
    assert CHANGED.sentence("left", "2026-03-14").startswith(
        "Left ear: average at 2-4 kHz is 11 to 21 dB worse than on 2026-03-14 (rule: 10 dB)."
    )
    assert str(CHANGED) == (
        "The OSHA standard threshold shift rule is met: average at 2-4 kHz is 11 to 21 dB worse "
        "than the reference (rule: 10 dB). Probability 98 %, 7 tones."
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"decision": "unchanged", "p_changed": 0.003,
             "amount": replace(STS, low_db=-3.4, high_db=6.2)},
            "Right ear: average at 2-4 kHz is between 3 dB better and 6 dB worse than in 2021 "
            "(rule: 10 dB). Probability that the rule is met: 0.3 %, 7 tones.",
        ),
        (
            {"decision": "unchanged", "p_changed": 0.0, "tones": 1,
             "amount": replace(STS, low_db=-9.0, high_db=-2.0)},
            "Right ear: average at 2-4 kHz is 2 to 9 dB better than in 2021 (rule: 10 dB). "
            "Probability that the rule is met: under 0.1 %, 1 tone.",
        ),
        (
            {"decision": "inconclusive", "p_changed": 0.55, "reason": "evidence",
             "amount": replace(STS, low_db=4.0, high_db=17.0)},
            "Right ear: not decided; average at 2-4 kHz is 4 to 17 dB worse than in 2021 "
            "(rule: 10 dB). Probability that the rule is met: 55 %, 7 tones.",
        ),
        (
            {"decision": "inconclusive", "reason": "not reliable", "p_changed": 0.4},
            "Right ear: not decided whether the OSHA standard threshold shift rule is met "
            "(7 tones).",
        ),
        (
            {"decision": "not determinable", "p_changed": 0.12, "amount": None},
            "Right ear: whether the OSHA standard threshold shift rule is met is not determinable "
            "(7 tones).",
        ),
        (
            {"amount": replace(STS, low_db=30.0, high_db=70.0, beyond=True), "p_changed": 0.99999},
            "Right ear: average at 2-4 kHz is at least 30 dB worse than in 2021 (rule: 10 dB). "
            "Probability over 99.9 %, 7 tones.",
        ),
        (
            {"rule": "osha-sts improvement",
             "amount": replace(STS, low_db=-21.0, high_db=-11.0, rule_db=-10.0)},
            "Right ear: average at 2-4 kHz is 11 to 21 dB better than in 2021 "
            "(rule: 10 dB better). Probability 98 %, 7 tones.",
        ),
        (
            {"rule": "niosh-15",
             "amount": Amount("mean", (4000.0,), 16, 20, 27, 15, any_of_hz=(3000.0, 4000.0))},
            "Right ear: 4 kHz is 16 to 27 dB worse than in 2021 (rule: 15 dB at any of "
            "3 and 4 kHz). Probability 98 %, 7 tones.",
        ),
        (
            {"rule": "fit for duty",
             "amount": Amount("mean", (3000.0, 4000.0), 38, 42, 47, 40, unit="dB HL")},
            "Right ear: average at 3 and 4 kHz is 38 to 47 dB HL (limit: 40 dB HL). "
            "Probability 98 %, 7 tones.",
        ),
        (
            {"decision": "notch", "protocol": "notch", "rule": None,
             "amount": Amount("dip", NODES, 12, 17, 22, 10)},
            "Right ear: a notch around 3-6 kHz; the worst of 3-6 kHz is 12 to 22 dB worse than 2 "
            "and 8 kHz (a notch: 10 dB). Probability 98 %, 7 tones.",
        ),
        (
            {"decision": "no notch", "protocol": "notch", "rule": None, "p_changed": 0.02,
             "amount": Amount("dip", NODES, -12, -3, 4, 10)},
            "Right ear: no notch around 3-6 kHz; the worst of 3-6 kHz is between 12 dB better and "
            "4 dB worse than 2 and 8 kHz (a notch: 10 dB). Probability of a notch: 2 %, 7 tones.",
        ),
        (
            {"rule": None, "protocol": "default", "amount": None},
            "Right ear: hearing has changed since 2021. Probability 98 %, 7 tones.",
        ),
        (
            {"rule": None, "protocol": "default", "amount": None, "decision": "unchanged",
             "p_changed": 0.02},
            "Right ear: no change since 2021. Probability of change: 2 %, 7 tones.",
        ),
    ],
)  # fmt: skip
def test_every_kind_of_verdict_has_its_sentence(changes: dict[str, object], said: str) -> None:
    assert replace(CHANGED, **changes).sentence("right", "2021") == said  # type: ignore[arg-type]


def test_reasons_next_steps_and_notes_follow_the_sentence() -> None:
    open_ = replace(
        CHANGED, decision="inconclusive", reason="evidence", next_step="more tones", notes=("N.",)
    )
    assert open_.said("right").endswith(
        "The answers are not enough to decide. Next step: more tones. N."
    )


def test_on_other_axes_nobody_hears_anything() -> None:
    place = PlaceShift((("contrast", 0.5),), 0.1, 0.0, 0.2, False)
    there = Verdict("not determinable", 0.5, 0.0, 3, (place,), True, "default")  # type: ignore[arg-type]
    assert str(there) == (
        "Whether answers have changed from the reference is not determinable (3 trials)."
    )


def people(*shifts_db: dict[float, float]) -> tuple[np.ndarray, np.ndarray]:
    before = np.full((len(shifts_db), 1, len(NODES)), 10.0)
    moved = np.array([[[shift.get(f, 0.0) for f in NODES]] for shift in shifts_db])
    return before, before + moved


def test_the_number_is_the_rules_own_over_the_persons() -> None:
    before, after = people(*({2000.0: k, 3000.0: k, 4000.0: k + 3.0} for k in range(21)))
    found = RuleMet(RULES["osha-sts"]).amount(before, after, NODES)
    assert (found.what, found.frequencies_hz, found.rule_db) == (
        "mean", (2000.0, 3000.0, 4000.0), 10.0,
    )  # fmt: skip
    assert found.middle_db == pytest.approx(11.0)
    assert (found.low_db, found.high_db) == pytest.approx((1.5, 20.5))


def test_where_one_frequency_suffices_it_is_named_and_else_the_most_changed() -> None:
    rule = Rule("any", [Criterion((f,), 15.0) for f in (1000.0, 4000.0)])  # type: ignore[arg-type]
    found = RuleMet(rule).amount(*people({4000.0: 20.0}, {4000.0: 30.0}), NODES)
    assert (found.what, found.frequencies_hz) == ("mean", (4000.0,))
    assert found.any_of_hz == (1000.0, 4000.0)
    less = RuleMet(rule).amount(*people({4000.0: 5.0}, {1000.0: 7.0}), NODES)
    assert (less.what, less.frequencies_hz) == ("most", (1000.0, 4000.0))
    assert 5.0 <= less.low_db <= less.high_db <= 7.0
    assert less.words("in 2021") == (
        "of 1 and 4 kHz, the most changed is 5 to 7 dB worse than in 2021 "
        "(rule: 15 dB at any of 1 and 4 kHz)"
    )


def test_two_neighbours_that_both_have_to_shift() -> None:
    rule = Rule("pair", [Criterion((4000.0, 6000.0), 10.0, "all")])  # type: ignore[arg-type]
    found = RuleMet(rule).amount(*people({4000.0: 12.0, 6000.0: 30.0}), NODES)
    assert found.words("in 2021") == (
        "of 4 and 6 kHz, the least changed is 12 dB worse than in 2021 (rule: 10 dB)"
    )


def test_an_improvement_counts_the_other_way() -> None:
    before, after = people({2000.0: -12.0, 3000.0: -12.0, 4000.0: -12.0})
    found = RuleMet(RULES["osha-sts"].improvement).amount(before, after, NODES)
    assert (found.middle_db, found.rule_db) == (pytest.approx(-12.0), -10.0)


def test_a_dip_is_measured_from_the_worse_neighbour() -> None:
    found = NotchThere().amount(*people({4000.0: 25.0, 8000.0: 5.0}), NODES)
    assert (found.what, found.middle_db) == ("dip", pytest.approx(20.0))


def test_a_screen_gives_the_interval_that_its_probability_rests_on() -> None:
    then = {500.0: 10.0, 1000.0: 10.0, 2000.0: 15.0, 3000.0: 20.0, 4000.0: 25.0, 8000.0: 30.0}
    screen = es.Screen(es.Audiogram(then), rule="osha-sts", seed=1, domain="audiometer")
    for f in (2000.0, 3000.0, 4000.0):
        screen.tell(es.Tone(f, 20.0), True)
    verdict = screen.verdict()
    assert verdict.amount is not None
    assert verdict.p_changed < 0.025
    assert verdict.amount.high_db < 10.0
    assert verdict.to_dict()["amount"]["rule_db"] == 10.0
    limit = ThresholdRule("limit", [Criterion((3000.0,), 40.0)])  # type: ignore[arg-type]
    on_levels = es.Screen(es.Audiogram(then), rule=limit, seed=1, domain="audiometer").verdict()
    assert on_levels.amount is not None
    assert on_levels.amount.unit == "dB HL"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((2000.0, 3000.0, 4000.0), "2-4 kHz"),
        ((500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0), "0.5-6 kHz"),
        ((500.0,), "500 Hz"),
        ((6000.0,), "6 kHz"),
        ((4000.0, 3000.0), "3 and 4 kHz"),
        ((500.0, 4000.0, 8000.0), "0.5, 4 and 8 kHz"),
    ],
)
def test_frequencies_as_people_say_them(given: tuple[float, ...], said: str) -> None:
    assert in_khz(given) == said


@pytest.mark.parametrize(
    ("p", "said"),
    [(0.5, "50 %"), (0.984, "98 %"), (0.9949, "99.5 %"), (0.9999, "over 99.9 %"),
     (0.0001, "under 0.1 %"), (0.004, "0.4 %")],
)  # fmt: skip
def test_only_certainty_is_shown_as_certain(p: float, said: str) -> None:
    assert in_percent(p) == said
