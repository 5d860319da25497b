"""What counts as changed: the regulations' numbers, and the mistakes other programs made with them.

Numbers and traps are those of the practice notes (29 CFR 1910.95 and 1904.10, 30 CFR 62, NIOSH
98-126); the age table below is written out again, by column, from a transcription of Appendix F.
"""

import itertools
import json
from collections.abc import Callable
from datetime import date

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import earshift as es
from earshift.engine import age_correction, rules
from earshift.engine.rules import (
    RULES,
    AgeCorrection,
    Criterion,
    EarFinding,
    Rule,
    as_rule,
    confirmed,
    judge_ear,
    judge_person,
    recordable,
)

OSHA, NIOSH = RULES["osha-sts"], RULES["niosh-15"]
STS_HZ = (2000.0, 3000.0, 4000.0)
NIOSH_HZ = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0)
HZ = (*NIOSH_HZ, 8000.0)

# Ages 20 to 60. Appendix F as transcribed has 12 for a woman of 51 at 3000 Hz.
TABLE_F = {
    ("male", 2000.0): "3 3 3 3 3 3 4 4 4 4 4 4 5 5 5 5 5 6 6 6 6 6 7 7 7 7 8 8 8 9 9 9 10 10 10 11 "
    "11 11 12 12 13",
    (
        "male",
        3000.0,
    ): "4 4 4 4 5 5 5 6 6 6 6 7 7 7 8 8 9 9 9 10 10 10 11 12 12 13 13 14 14 15 16 16 "
    "17 18 18 19 20 21 22 22 23",
    (
        "male",
        4000.0,
    ): "5 5 5 6 6 7 7 7 8 8 9 9 10 10 11 11 12 12 13 14 14 14 16 16 17 18 19 19 20 21 "
    "22 23 24 25 26 27 28 29 31 32 33",
    ("female", 2000.0): "4 4 4 5 5 5 5 5 5 5 6 6 6 6 6 6 7 7 7 7 7 8 8 8 8 8 9 9 9 9 10 10 10 10 "
    "11 11 11 11 12 12 12",
    ("female", 3000.0): "3 4 4 4 4 4 5 5 5 5 5 6 6 6 6 7 7 7 7 8 8 8 9 9 9 10 10 10 11 11 11 12 12 "
    "13 13 14 14 15 15 16 16",
    ("female", 4000.0): "3 3 4 4 4 4 4 5 5 5 5 5 6 6 6 7 7 7 7 8 8 8 9 9 9 10 10 11 11 11 12 12 13 "
    "13 14 14 15 15 16 16 17",
}
CONFLICT = ("female", 3000.0, 51)

# The worked example of Appendix F: a man, 1 to 6 kHz at 27 and at 32.
EXAMPLE_BASELINE = es.Audiogram({1000: 0, 2000: 0, 3000: 0, 4000: 5, 6000: 5})
EXAMPLE_NOW = es.Audiogram({1000: 5, 2000: 10, 3000: 10, 4000: 25, 6000: 20})
EXAMPLE_AGE = AgeCorrection("male", 27, 32)


def flat(level: float, hz: tuple[float, ...] = HZ, **other: float) -> es.Audiogram:
    """The same level everywhere, but for frequencies given as hz_2000=5."""
    changed = {float(name.removeprefix("hz_")): value for name, value in other.items()}
    return es.Audiogram(dict.fromkeys(hz, level) | changed)


def decide(rule: Rule, *shifts_db: float, at: float = 20.0) -> str:
    """The decision for these shifts at the rule's frequencies, from a flat baseline."""
    baseline = dict.fromkeys(rule.frequencies_hz, at)
    now = {f: at + shift for f, shift in zip(rule.frequencies_hz, shifts_db, strict=True)}
    now_and_then = es.Audiogram(baseline), es.Audiogram(now)
    return judge_ear(rule, *now_and_then, allow_unverified=True).decision


# The rules as published --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["osha-sts", "msha-sts"])
def test_a_standard_threshold_shift_is_a_mean_of_10_db_at_2_3_and_4_khz(name: str) -> None:
    assert RULES[name].criteria == (Criterion(STS_HZ, 10.0, "mean"),)
    assert RULES[name].frequencies_hz == STS_HZ


def test_niosh_is_15_db_at_any_of_six_frequencies_and_says_it_needs_a_retest() -> None:
    assert NIOSH.criteria == tuple(Criterion((f,), 15.0) for f in NIOSH_HZ)
    assert NIOSH.frequencies_hz == NIOSH_HZ
    assert "confirmed by an immediate retest at the same frequency" in NIOSH.text


def test_every_rule_has_a_title_for_people() -> None:
    assert set(rules.TITLES) == set(RULES)
    assert rules.rule_title("osha-sts") == "OSHA standard threshold shift"
    assert rules.rule_title("osha-sts improvement") == "OSHA standard threshold shift improvement"
    assert rules.rule_title("our own") == "our own"
    assert rules.rule_meaning("osha-sts", RULES["osha-sts"].text).startswith("mean shift at 2000")
    assert rules.rule_meaning("our own", "10 dB: or more") == "10 dB: or more"


def test_the_sources_are_named_and_only_checked_rules_are_verified() -> None:
    assert {name: rule.verified for name, rule in RULES.items()} == {
        "osha-sts": True,
        "niosh-15": True,
        "msha-sts": True,
        "asha-1994": False,
        "ctcae-5-grade-1": False,
    }
    assert RULES["osha-sts"].source == "29 CFR 1910.95(g)(10)(i)"
    assert RULES["msha-sts"].source == "30 CFR 62.101"
    assert "98-126" in NIOSH.source
    assert "not verified" in RULES["asha-1994"].source
    assert all(name == rule.name and rule.text for name, rule in RULES.items())


@pytest.mark.parametrize("name", ["asha-1994", "ctcae-5-grade-1"])
def test_an_unverified_rule_needs_the_callers_word(name: str) -> None:
    for given_rule in (name, RULES[name]):
        with pytest.raises(ValueError, match="not verified against its source"):
            as_rule(given_rule)
        assert as_rule(given_rule, allow_unverified=True) is RULES[name]


@pytest.mark.parametrize("name", ["osha-sts", "niosh-15", "msha-sts"])
def test_a_verified_rule_comes_by_name_or_as_itself(name: str) -> None:
    assert as_rule(name) is RULES[name]
    assert as_rule(RULES[name]) is RULES[name]


@pytest.mark.parametrize("name", ["osha", "OSHA-STS", "", None, 10, ["osha-sts"]])
def test_an_unknown_rule_is_refused_with_the_known_names(name: object) -> None:
    with pytest.raises(ValueError, match="osha-sts, niosh-15, msha-sts"):
        as_rule(name)


@pytest.mark.parametrize(
    ("shifts", "decision"),
    [
        ((0, 0, 20, 0, 0, 0), "changed"),  # 20 dB at one
        ((0, 0, 19.9, 0, 0, 0), "unchanged"),
        ((0, 0, 10, 10, 0, 0), "changed"),  # 10 dB at two adjacent ones
        ((0, 0, 0, 0, 10, 10), "changed"),
        ((0, 10, 0, 10, 0, 10), "unchanged"),  # not adjacent
        ((0, 0, 19, 9.9, 0, 0), "unchanged"),  # both must be 10, not their mean
    ],
)
def test_asha_is_20_db_at_one_frequency_or_10_db_at_two_adjacent(
    shifts: tuple[float, ...], decision: str
) -> None:
    assert decide(RULES["asha-1994"], *shifts) == decision


@pytest.mark.parametrize(
    ("shifts", "decision"),
    [
        ((15, 15, 0, 0, 0, 0), "changed"),
        ((0, 0, 0, 0, 5, 25), "changed"),
        ((0, 0, 0, 0, 5, 24.9), "unchanged"),
        ((29, 0, 29, 0, 29, 0), "unchanged"),  # no two contiguous ones average 15
    ],
)
def test_ctcae_grade_1_averages_two_contiguous_frequencies(
    shifts: tuple[float, ...], decision: str
) -> None:
    assert decide(RULES["ctcae-5-grade-1"], *shifts) == decision


# The worked example and the limit ----------------------------------------------------------------


def test_the_worked_example_is_a_standard_shift_with_and_without_age_correction() -> None:
    raw = judge_ear(OSHA, EXAMPLE_BASELINE, EXAMPLE_NOW)
    assert raw.decision == "changed"
    assert raw.shifts_db == {2000.0: 10.0, 3000.0: 10.0, 4000.0: 20.0}
    assert np.mean(list(raw.shifts_db.values())) == pytest.approx(13.33, abs=0.005)
    assert raw.margin_db == pytest.approx(10 / 3, abs=1e-12)

    corrected = judge_ear(OSHA, EXAMPLE_BASELINE, EXAMPLE_NOW, EXAMPLE_AGE)
    assert corrected.decision == "changed"
    assert corrected.shifts_db == {2000.0: 9.0, 3000.0: 9.0, 4000.0: 17.0}
    assert np.mean(list(corrected.shifts_db.values())) == pytest.approx(11.67, abs=0.005)
    assert corrected.margin_db == pytest.approx(5 / 3, abs=1e-12)


def test_the_worked_examples_age_differences_are_1_1_and_3_db() -> None:
    assert [EXAMPLE_AGE.at(f) for f in STS_HZ] == [1.0, 1.0, 3.0]


def test_the_limit_of_10_db_is_inclusive() -> None:
    assert decide(OSHA, 9.99, 9.99, 9.99) == "unchanged"
    assert decide(OSHA, 10.0, 10.0, 10.0) == "changed"
    assert decide(OSHA, 9.97, 10.0, 10.0) == "unchanged"
    assert decide(OSHA, 5.0, 10.0, 15.0) == "changed"
    assert decide(OSHA, 5.0, 10.0, 10.0) == "unchanged"  # one 5 dB step short: 8.33


def test_the_limit_of_15_db_is_inclusive() -> None:
    for k in range(6):
        shifts = [0.0] * 6
        shifts[k] = 14.99
        assert decide(NIOSH, *shifts) == "unchanged"
        shifts[k] = 15.0
        assert decide(NIOSH, *shifts) == "changed"


@given(
    first=st.integers(-300, 600),
    second=st.integers(-300, 600),
    at=st.lists(st.integers(-100, 900), min_size=3, max_size=3),
)
def test_thirds_and_tenths_that_round_do_not_move_the_limit(
    first: int, second: int, at: list[int]
) -> None:
    # In tenths of a dB: a sum of 300 is a mean of exactly 10.0, one of 299 or 299.7 is not.
    baseline = es.Audiogram({f: level / 10 for f, level in zip(STS_HZ, at, strict=True)})
    for total, decision in ((300, "changed"), (299.7, "unchanged"), (299, "unchanged")):
        shifts = (first, second, total - first - second)
        levels = [(level + shift) / 10 for level, shift in zip(at, shifts, strict=True)]
        assume(min(levels) >= -40.0 and max(levels) <= 140.0)  # what an audiometer can say
        now = es.Audiogram(dict(zip(STS_HZ, levels, strict=True)))
        assert judge_ear(OSHA, baseline, now).decision == decision


# Traps: what other programs did wrong ------------------------------------------------------------


def test_other_frequencies_do_not_enter_the_mean() -> None:
    shifted = flat(0.0, hz_2000=10, hz_3000=10, hz_4000=10)
    assert judge_ear(OSHA, flat(0.0), shifted).decision == "changed"  # all tested: mean 4.3
    improved = flat(-20.0, hz_2000=10, hz_3000=10, hz_4000=10)
    assert judge_ear(OSHA, flat(0.0), improved).decision == "changed"
    elsewhere = flat(60.0, hz_2000=0, hz_3000=0, hz_4000=0)  # all tested: mean 34
    assert judge_ear(OSHA, flat(0.0), elsewhere).decision == "unchanged"


def test_6_khz_is_no_stand_in_for_4_khz() -> None:
    without = es.Audiogram({2000: 30, 3000: 30, 6000: 30, 8000: 30})
    finding = judge_ear(OSHA, flat(0.0), without)
    assert finding.decision == "not determinable"
    assert finding.missing_hz == (4000.0,)


@pytest.mark.parametrize("level", [-10.0, 0.0, 40.0, 90.0])
def test_levels_alone_mean_nothing(level: float) -> None:
    assert judge_ear(OSHA, flat(level), flat(level)).decision == "unchanged"
    assert judge_ear(NIOSH, flat(level), flat(level)).decision == "unchanged"
    # Nor is an STS only one above 25 dB HL: that is nearer to "recordable".
    assert judge_ear(OSHA, flat(level), flat(level + 10)).decision == "changed"
    assert judge_ear(OSHA, flat(level), flat(level - 10)).decision == "unchanged"


def test_improvement_never_counts() -> None:
    for rule in RULES.values():
        assert decide(rule, *[-40.0] * len(rule.frequencies_hz)) == "unchanged"


def test_slow_drift_shows_against_the_baseline_not_against_the_last_test() -> None:
    years = [date(2022, 1, 1), date(2023, 1, 1), date(2024, 1, 1)]
    exams = [flat(0.0), flat(5.0), flat(10.0)]
    against_baseline = judge_ear(OSHA, exams[0], exams[2], dates=(years[0], years[2]))
    against_last = judge_ear(OSHA, exams[1], exams[2], dates=(years[1], years[2]))
    assert against_baseline.decision == "changed"
    assert against_last.decision == "unchanged"
    # The finding says which of the two was asked for.
    assert against_baseline.baseline_date == years[0]
    assert against_last.baseline_date == years[1]


@pytest.mark.parametrize("gone", [c for n in (1, 2) for c in itertools.combinations(STS_HZ, n)])
@pytest.mark.parametrize("shift", [0.0, 9.0, 80.0, -40.0])
def test_two_of_three_frequencies_conclude_nothing(gone: tuple[float, ...], shift: float) -> None:
    rest = tuple(f for f in HZ if f not in gone)
    for baseline, now in (
        (flat(0.0), flat(shift, rest)),
        (flat(0.0, rest), flat(shift)),
        (flat(0.0, rest), flat(shift, rest)),
    ):
        finding = judge_ear(OSHA, baseline, now)
        assert finding.decision == "not determinable"
        assert finding.missing_hz == gone
        assert finding.margin_db is None
        assert finding.shifts_db == {f: shift for f in STS_HZ if f not in gone}


@pytest.mark.parametrize("f", NIOSH_HZ)
def test_one_frequency_is_enough_for_changed_but_all_six_are_needed_for_unchanged(f: float) -> None:
    only = judge_ear(NIOSH, flat(0.0), es.Audiogram({f: 15.0}))
    assert only.decision == "changed"
    assert only.margin_db == pytest.approx(0.0, abs=1e-8)
    assert only.missing_hz == tuple(g for g in NIOSH_HZ if g != f)
    assert judge_ear(NIOSH, flat(0.0), es.Audiogram({f: 10.0})).decision == "not determinable"
    five = tuple(g for g in NIOSH_HZ if g != f)
    assert judge_ear(NIOSH, flat(0.0), flat(10.0, five)).decision == "not determinable"
    assert judge_ear(NIOSH, flat(0.0), flat(10.0, NIOSH_HZ)).decision == "unchanged"


def test_8_khz_is_not_one_of_niosh_frequencies() -> None:
    assert judge_ear(NIOSH, flat(0.0), flat(0.0, hz_8000=60)).decision == "unchanged"


DECISIONS = ("changed", "unchanged", "not determinable")


def finding_of(decision: str) -> EarFinding:
    return EarFinding("osha-sts", decision, {}, None, ())


@pytest.mark.parametrize("left", [*DECISIONS, None])
@pytest.mark.parametrize("right", [*DECISIONS, None])
def test_one_ear_suffices_for_changed_and_both_are_needed_for_unchanged(
    left: str | None, right: str | None
) -> None:
    if "changed" in (left, right):
        expected = "changed"
    elif left == right == "unchanged":
        expected = "unchanged"
    else:
        expected = "not determinable"
    given_ears = {"left": left, "right": right}
    ears = {ear: finding_of(d) if d else None for ear, d in given_ears.items()}
    assert judge_person(ears) == expected
    # An ear that is not there at all counts like one without a finding.
    assert judge_person({ear: f for ear, f in ears.items() if f}) == expected


@pytest.mark.parametrize("ear", ["Left", "L", "both", "", 1, None])
def test_an_ear_by_another_name_is_refused_not_lost(ear: object) -> None:
    with pytest.raises(ValueError, match="'left' and 'right'"):
        judge_person({ear: finding_of("changed"), "right": finding_of("unchanged")})


def test_a_recheck_of_the_right_ear_does_not_erase_the_shift_of_the_left() -> None:
    hired, revised, yearly, recheck = (date(year, 3, 1) for year in (2019, 2021, 2024, 2025))
    left = judge_ear(OSHA, flat(0.0), flat(20.0), dates=(hired, yearly))
    right = judge_ear(OSHA, flat(5.0), flat(15.0), dates=(revised, yearly))
    assert judge_person({"left": left, "right": right}) == "changed"

    again = judge_ear(OSHA, flat(5.0), flat(5.0), dates=(revised, recheck))
    assert again.decision == "unchanged"
    assert judge_person({"left": left, "right": again}) == "changed"
    # Each ear keeps its own dates; nothing of the right ear's got into the left's finding.
    assert (left.baseline_date, left.current_date) == (hired, yearly)
    assert (again.baseline_date, again.current_date) == (revised, recheck)
    # And the recheck alone clears nobody.
    assert judge_person({"right": again}) == "not determinable"
    assert judge_person({"left": None, "right": again}) == "not determinable"


def test_half_of_one_ear_and_half_of_the_other_are_not_an_ear() -> None:
    left = judge_ear(OSHA, flat(0.0), es.Audiogram({2000: 0, 3000: 0}))
    right = judge_ear(OSHA, flat(0.0), es.Audiogram({4000: 0}))
    assert judge_person({"left": left, "right": right}) == "not determinable"


def test_a_finding_without_dates_has_none() -> None:
    finding = judge_ear(OSHA, flat(0.0), flat(0.0))
    assert finding.baseline_date is None
    assert finding.current_date is None


@given(
    rule=st.sampled_from(list(RULES.values())),
    baseline=st.lists(st.integers(-2, 12), min_size=7, max_size=7),
    now=st.lists(st.integers(-2, 20), min_size=7, max_size=7),
    gone=st.sets(st.sampled_from([(which, f) for which in (0, 1) for f in HZ]), max_size=6),
)
def test_missing_data_can_only_make_it_not_determinable(
    rule: Rule, baseline: list[int], now: list[int], gone: set[tuple[int, float]]
) -> None:
    full = [{f: 5.0 * k for f, k in zip(HZ, row, strict=True)} for row in (baseline, now)]
    part = [{f: v for f, v in ear.items() if (k, f) not in gone} for k, ear in enumerate(full)]
    known = judge_ear(rule, *map(es.Audiogram, full), allow_unverified=True).decision
    assert known != "not determinable"
    seen = judge_ear(rule, *map(es.Audiogram, part), allow_unverified=True).decision
    assert seen in (known, "not determinable")


@given(
    rule=st.sampled_from(list(RULES.values())),
    baseline=st.dictionaries(st.sampled_from(HZ), st.integers(-10, 60), min_size=1),
    now=st.dictionaries(st.sampled_from(HZ), st.integers(-10, 100), min_size=1),
    worse=st.dictionaries(st.sampled_from(HZ), st.integers(0, 60)),
)
def test_hearing_worse_never_takes_a_change_back(
    rule: Rule, baseline: dict[float, int], now: dict[float, int], worse: dict[float, int]
) -> None:
    before = judge_ear(rule, es.Audiogram(baseline), es.Audiogram(now), allow_unverified=True)
    worsened = {f: level + worse.get(f, 0) for f, level in now.items()}
    after = judge_ear(rule, es.Audiogram(baseline), es.Audiogram(worsened), allow_unverified=True)
    order = ("unchanged", "not determinable", "changed")
    assert order.index(after.decision) >= order.index(before.decision)


@given(
    rule=st.sampled_from(list(RULES.values())),
    baseline=st.dictionaries(st.sampled_from(HZ), st.integers(-100, 600), min_size=1),
    now=st.dictionaries(st.sampled_from(HZ), st.integers(-100, 1000), min_size=1),
    by=st.integers(-400, 400),
)
def test_moving_both_audiograms_alike_changes_nothing(
    rule: Rule, baseline: dict[float, int], now: dict[float, int], by: int
) -> None:
    first, second = (
        judge_ear(
            rule,
            es.Audiogram({f: (level + move) / 10 for f, level in baseline.items()}),
            es.Audiogram({f: (level + move) / 10 for f, level in now.items()}),
            allow_unverified=True,
        )
        for move in (0, by)
    )
    assert first.decision == second.decision
    assert first.missing_hz == second.missing_hz
    assert first.shifts_db == pytest.approx(second.shifts_db, abs=1e-9)


# No response -------------------------------------------------------------------------------------


def no_response_at(f: float, level: float, now: float, hz: tuple[float, ...] = HZ) -> es.Audiogram:
    others = {g: now for g in hz if g != f}
    return es.Audiogram(others, no_response_db_hl={f: level})


def test_no_response_now_counts_as_at_least_the_difference() -> None:
    baseline = flat(0.0, hz_4000=70)
    finding = judge_ear(OSHA, baseline, no_response_at(4000.0, 100.0, now=0.0))
    assert finding.decision == "changed"  # at least 30 dB at 4 kHz: a mean of 10 or more
    assert finding.shifts_db[4000.0] == 30.0  # the level tried: no 120 dB, no 90 dB
    assert finding.missing_hz == ()
    short = judge_ear(OSHA, baseline, no_response_at(4000.0, 99.0, now=0.0))
    assert short.decision == "not determinable"


def test_no_response_can_meet_a_single_criterion() -> None:
    finding = judge_ear(NIOSH, flat(85.0), no_response_at(6000.0, 100.0, now=85.0))
    assert finding.decision == "changed"
    below = judge_ear(NIOSH, flat(86.0), no_response_at(6000.0, 100.0, now=86.0))
    assert below.decision == "not determinable"


def test_no_response_below_the_old_threshold_is_no_improvement() -> None:
    finding = judge_ear(OSHA, flat(90.0), no_response_at(4000.0, 60.0, now=90.0))
    assert finding.decision == "not determinable"


@pytest.mark.parametrize("now", [flat(0.0), no_response_at(4000.0, 100.0, now=0.0)])
def test_no_response_at_the_baseline_leaves_nothing_to_compare(now: es.Audiogram) -> None:
    finding = judge_ear(OSHA, no_response_at(4000.0, 100.0, now=0.0), now)
    assert finding.decision == "not determinable"
    assert finding.missing_hz == (4000.0,)


@given(
    baseline=st.lists(st.integers(-10, 90), min_size=3, max_size=3),
    now=st.lists(st.integers(-10, 100), min_size=3, max_size=3),
    unheard=st.sets(st.sampled_from(STS_HZ), min_size=1),
)
def test_no_response_helps_to_meet_and_never_to_clear(
    baseline: list[int], now: list[int], unheard: set[float]
) -> None:
    before = es.Audiogram(dict(zip(STS_HZ, baseline, strict=True)))
    after = dict(zip(STS_HZ, now, strict=True))
    exact = judge_ear(OSHA, before, es.Audiogram(after)).decision
    bound = es.Audiogram(
        {f: level for f, level in after.items() if f not in unheard},
        no_response_db_hl={f: level for f, level in after.items() if f in unheard},
    )
    expected = "changed" if exact == "changed" else "not determinable"
    assert judge_ear(OSHA, before, bound).decision == expected


# Two methods -------------------------------------------------------------------------------------


def test_what_two_methods_read_differently_is_no_shift() -> None:
    manual = es.Audiogram(dict.fromkeys(STS_HZ, 12.5), method_offset_db=2.5)
    model = flat(20.0)
    assert judge_ear(OSHA, manual, model).shifts_db == dict.fromkeys(STS_HZ, 10.0)
    assert judge_ear(OSHA, manual, model).decision == "changed"
    later = es.Audiogram(dict.fromkeys(STS_HZ, 20.0), method_offset_db=2.5)
    assert judge_ear(OSHA, flat(10.0), later).shifts_db == dict.fromkeys(STS_HZ, 7.5)
    # The same method twice: as written down.
    assert judge_ear(OSHA, manual, later).shifts_db == dict.fromkeys(STS_HZ, 7.5)


# Age correction ----------------------------------------------------------------------------------


def test_the_age_table_is_appendix_f_but_for_the_one_known_conflict() -> None:
    different = {}
    for (sex, f), column in TABLE_F.items():
        values = [float(v) for v in column.split()]
        assert len(values) == 41
        at_20 = AgeCorrection(sex, 20, 20)._value(f, 20)
        for age, value in zip(range(20, 61), values, strict=True):
            shipped = AgeCorrection(sex, 20, age).at(f) + at_20
            if shipped != value:
                different[sex, f, age] = (shipped, value)
    assert different == {CONFLICT: (11.0, 12.0)}  # 30 CFR 62, Table 62-4: 11


def test_the_shipped_table_says_where_it_is_from_and_has_three_frequencies() -> None:
    table = age_correction._age_table()
    assert table["frequencies_hz"] == [2000, 3000, 4000]
    assert table["ages"] == [20, 60]
    assert "30 CFR 62" in table["source"]
    assert "female aged 51 at 3000 Hz" in table["source"]
    for sex in ("male", "female"):
        rows = np.array(table[sex])
        assert rows.shape == (41, 3)
        assert (np.diff(rows, axis=0) >= 0).all()  # nobody's hearing gets better with age


@pytest.mark.parametrize("f", [500.0, 1000.0, 6000.0, 8000.0, 2500.0])
def test_no_unverified_frequency_has_an_age_correction(f: float) -> None:
    with pytest.raises(ValueError, match="no verified age correction"):
        EXAMPLE_AGE.at(f)


@pytest.mark.parametrize("name", ["niosh-15", "asha-1994", "ctcae-5-grade-1"])
@pytest.mark.parametrize("hz", [HZ, STS_HZ])
def test_rules_that_need_other_frequencies_are_not_half_corrected(
    name: str, hz: tuple[float, ...]
) -> None:
    # Whatever was measured: NIOSH does not correct for age, and 2 to 4 kHz alone must not slip by.
    with pytest.raises(ValueError, match="age correction"):
        judge_ear(RULES[name], flat(0.0, hz), flat(15.0, hz), EXAMPLE_AGE, allow_unverified=True)


def test_the_correction_is_a_difference_of_two_table_values() -> None:
    # Taking off the table at the age now would leave 5, 3 and 10 dB: no shift.
    assert judge_ear(OSHA, EXAMPLE_BASELINE, EXAMPLE_NOW, EXAMPLE_AGE).decision == "changed"
    for sex, f in TABLE_F:
        for age in (20, 35, 51, 60):
            assert AgeCorrection(sex, age, age).at(f) == 0.0
        whole = AgeCorrection(sex, 20, 60).at(f)
        assert AgeCorrection(sex, 20, 41).at(f) + AgeCorrection(sex, 41, 60).at(f) == whole


def test_age_correction_can_decide_and_is_off_unless_given() -> None:
    assert judge_ear(OSHA, flat(0.0), flat(10.0)).decision == "changed"
    aged = judge_ear(OSHA, flat(0.0), flat(10.0), EXAMPLE_AGE)
    assert aged.decision == "unchanged"
    assert aged.shifts_db == {2000.0: 9.0, 3000.0: 9.0, 4000.0: 7.0}


@pytest.mark.parametrize("sex", ["male", "female"])
@pytest.mark.parametrize("f", STS_HZ)
def test_ages_outside_the_table_are_its_ends_and_no_row_is_made_up(sex: str, f: float) -> None:
    assert AgeCorrection(sex, 0, 20).at(f) == 0.0
    assert AgeCorrection(sex, 19, 20).at(f) == 0.0  # a row of zeros for 19 would give 3 to 5 dB
    assert AgeCorrection(sex, 60, 95).at(f) == 0.0
    assert AgeCorrection(sex, 16, 45).at(f) == AgeCorrection(sex, 20, 45).at(f)
    assert AgeCorrection(sex, 45, 71).at(f) == AgeCorrection(sex, 45, 60).at(f)


def test_an_age_is_in_completed_years() -> None:
    assert AgeCorrection("male", 27.0, 31.9).at(4000.0) == 2.0


@pytest.mark.parametrize("sex", ["other", "Other", "", "Male", "m", "F", "unknown", None, 1])
def test_the_shipped_table_refuses_other_sexes(sex: object) -> None:
    with pytest.raises(ValueError, match="'male' and 'female' only"):
        AgeCorrection(sex, 27, 32)


@pytest.mark.parametrize("age", [float("nan"), float("inf"), None, "32", True, -1, 1991, 2024])
def test_an_age_must_be_one(age: object) -> None:
    with pytest.raises(ValueError, match="age_now"):
        AgeCorrection("male", 27, age)
    with pytest.raises(ValueError, match="age_baseline"):
        AgeCorrection("male", age, 32)


def test_nobody_gets_younger() -> None:
    with pytest.raises(ValueError, match="must not be below"):
        AgeCorrection("male", 32, 27)


OWN_TABLE = {f: {30: 1.0, 31: 2.5, 32: 4.0} for f in NIOSH_HZ}


def test_a_table_of_ones_own_serves_any_sex_and_ends_at_its_own_ages() -> None:
    age = AgeCorrection("other", 30, 31, OWN_TABLE)
    assert age.at(500.0) == 1.5
    assert AgeCorrection("other", 18, 80, OWN_TABLE).at(6000.0) == 3.0
    with pytest.raises(ValueError, match="without age correction"):
        judge_ear(NIOSH, flat(0.0), flat(15.0), age)
    own_policy = Rule("15 dB, corrected", NIOSH.criteria)
    finding = judge_ear(own_policy, flat(0.0), flat(15.0), age)
    assert finding.shifts_db == dict.fromkeys(NIOSH_HZ, 13.5)
    assert finding.decision == "unchanged"


def test_a_table_of_ones_own_is_not_filled_up() -> None:
    with pytest.raises(ValueError, match="no 8000 Hz"):
        AgeCorrection("male", 30, 31, OWN_TABLE).at(8000.0)
    gaps = {f: {20: 0.0, 40: 5.0} for f in STS_HZ}
    assert AgeCorrection("male", 20, 40, gaps).at(2000.0) == 5.0
    with pytest.raises(ValueError, match="no age 30 at 2000 Hz"):
        AgeCorrection("male", 20, 30, gaps).at(2000.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "5"])
def test_a_table_with_something_else_than_numbers_clears_nobody(value: object) -> None:
    table = {f: {20: 0.0, 21: value} for f in STS_HZ}
    with pytest.raises(ValueError, match="in the age table"):
        judge_ear(OSHA, flat(0.0), flat(30.0), AgeCorrection("male", 20, 21, table))


# Recordable --------------------------------------------------------------------------------------


def test_recordable_needs_a_shift_and_25_db_in_the_same_ear() -> None:
    left_now, right_now = flat(25.0), flat(5.0)
    left = judge_ear(OSHA, flat(10.0), left_now)
    right = judge_ear(OSHA, flat(-10.0), right_now)
    assert left.decision == right.decision == "changed"
    assert recordable(left, left_now, work_related=True) is True
    assert recordable(right, right_now, work_related=True) is False  # an STS, but hearing is good
    loud = judge_ear(OSHA, flat(60.0), flat(60.0))
    assert recordable(loud, flat(60.0), work_related=True) is False  # poor hearing, but no STS


@pytest.mark.parametrize(
    ("now", "expected"),
    [((25.0, 25.0, 25.0), True), ((24.9, 25.0, 25.1), True), ((15.0, 20.0, 40.0), True),
     ((24.99, 25.0, 25.0), False), ((20.0, 25.0, 25.0), False)],
)  # fmt: skip
def test_25_db_is_a_mean_of_2_3_and_4_khz_and_inclusive(
    now: tuple[float, ...], expected: bool
) -> None:
    current = es.Audiogram(dict(zip(STS_HZ, now, strict=True)) | {500: 0, 1000: 0, 6000: 90})
    finding = judge_ear(OSHA, flat(0.0), current)
    assert recordable(finding, current, work_related=True) is expected


def test_the_25_db_are_not_corrected_for_age_though_the_shift_may_be() -> None:
    baseline, now = flat(10.0), flat(25.0)
    aged = judge_ear(OSHA, baseline, now, EXAMPLE_AGE)
    assert aged.decision == "changed"  # 25 less 1, 1 and 3 dB would be below 25
    assert recordable(aged, now, work_related=True) is True
    old = judge_ear(OSHA, baseline, now, AgeCorrection("male", 27, 60))
    assert old.decision == "unchanged"
    assert recordable(old, now, work_related=True) is False


def test_recordable_is_undetermined_without_a_professional_or_without_data() -> None:
    now = flat(30.0)
    changed = judge_ear(OSHA, flat(0.0), now)
    assert recordable(changed, now) is None
    assert recordable(changed, now, work_related=False) is False
    for f in STS_HZ:
        partial = es.Audiogram({g: 90.0 for g in HZ if g != f})
        assert recordable(changed, partial, work_related=True) is None
        finding = judge_ear(OSHA, flat(0.0), partial)
        assert finding.decision == "not determinable"
        assert recordable(finding, partial, work_related=True) is None
    undetermined = judge_ear(OSHA, flat(0.0, (2000.0, 3000.0)), now)
    assert undetermined.decision == "not determinable"
    assert recordable(undetermined, now, work_related=True) is None


def test_one_condition_that_fails_is_enough_for_not_recordable() -> None:
    quiet = flat(10.0)
    undetermined = judge_ear(OSHA, flat(0.0, (2000.0, 3000.0)), quiet)
    assert recordable(undetermined, quiet) is False  # below 25 dB whatever the shift was
    assert recordable(judge_ear(OSHA, flat(0.0), quiet), quiet) is False
    assert recordable(finding_of("unchanged"), es.Audiogram({500: 0})) is False
    assert recordable(finding_of("changed"), es.Audiogram({500: 0}), work_related=False) is False


def test_no_response_is_at_least_the_level_tried_when_recording() -> None:
    baseline = flat(0.0, hz_4000=40)
    now = no_response_at(4000.0, 100.0, now=0.0)  # a mean of at least 33 dB HL
    assert recordable(judge_ear(OSHA, baseline, now), now, work_related=True) is True
    low = no_response_at(4000.0, 70.0, now=0.0)  # at least 23: it cannot be said
    finding = judge_ear(OSHA, baseline, low)
    assert finding.decision == "changed"
    assert recordable(finding, low, work_related=True) is None


# Rules of one's own ------------------------------------------------------------------------------


def test_a_rule_of_ones_own_is_judged_like_the_others() -> None:
    rule = Rule("mine", (Criterion((500, 8000), 10, "all"), Criterion((1000,), 30)))
    assert as_rule(rule) is rule
    assert rule.source == "supplied by the user"
    assert rule.frequencies_hz == (500.0, 1000.0, 8000.0)
    assert decide(rule, 10, 0, 10) == "changed"
    assert decide(rule, 60, 0, 9.9) == "unchanged"
    assert decide(rule, 0, 30, 0) == "changed"


@pytest.mark.parametrize(
    "frequencies",
    [(), (2000.0, 2000.0), (2000, 2000.0), (0.0,), (-2000.0,), (float("nan"),), (float("inf"),),
     ("2000",), "2000", (None,), (True,)],
)  # fmt: skip
def test_a_criterion_needs_different_positive_frequencies(frequencies: object) -> None:
    with pytest.raises(ValueError, match="frequenc"):
        Criterion(frequencies, 10.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), None, "10", True])
def test_a_criterion_needs_a_finite_limit(value: object) -> None:
    with pytest.raises(ValueError, match="at_least_db"):
        Criterion((2000.0,), value)


@pytest.mark.parametrize("combine", ["any", "median", "Mean", "", None, ["mean"]])
def test_shifts_combine_by_mean_or_all(combine: object) -> None:
    with pytest.raises(ValueError, match="'mean' or 'all'"):
        Criterion((2000.0, 3000.0), 10.0, combine)


@pytest.mark.parametrize("criteria", [(), [], ("2000",), ({"at_least_db": 10},), (None,)])
def test_a_rule_needs_criteria(criteria: object) -> None:
    with pytest.raises(ValueError, match="at least one"):
        Rule("empty", criteria)


def test_criteria_from_an_iterator_are_kept() -> None:
    # A rule that used its iterator up would have no criterion and clear everybody.
    rule = Rule("lazy", (Criterion((f,), 10.0) for f in STS_HZ))
    assert len(rule.criteria) == 3
    assert decide(rule, 0, 10, 0) == "changed"
    with pytest.raises(ValueError, match="at least one"):
        Rule("lazy", iter(()))


@pytest.mark.parametrize("name", RULES)
def test_a_rule_goes_through_json_and_back(name: str) -> None:
    rule = RULES[name]
    assert Rule.from_dict(json.loads(json.dumps(rule.to_dict()))) == rule


criteria = st.builds(
    Criterion,
    st.lists(st.sampled_from(HZ), min_size=1, max_size=4, unique=True).map(tuple),
    st.integers(1, 40).map(float) | st.floats(0.5, 60.0),
    st.sampled_from(["mean", "all"]),
)
own_rules = st.builds(
    Rule,
    st.text(min_size=1),
    st.lists(criteria, min_size=1, max_size=5).map(tuple),
    st.text(),
    st.text(),
    st.booleans(),
)


@given(rule=own_rules)
def test_any_rule_goes_through_json_and_back(rule: Rule) -> None:
    back = Rule.from_dict(json.loads(json.dumps(rule.to_dict())))
    assert back == rule
    assert back.frequencies_hz == rule.frequencies_hz


@pytest.mark.parametrize(
    "bad", [{"combine": "any"}, {"at_least_db": float("nan")}, {"frequencies_hz": []}]
)
def test_a_bad_rule_is_refused_when_it_is_read(bad: dict[str, object]) -> None:
    data = OSHA.to_dict()
    data["criteria"] = [data["criteria"][0] | bad]
    with pytest.raises(ValueError, match=r"combine|at_least_db|frequencies"):
        Rule.from_dict(data)


# Margins -----------------------------------------------------------------------------------------


def plain_margin(rule: Rule, shifts: dict[float, float]) -> float:
    """dB past the best criterion, in exact words and no numpy."""
    margins = []
    for criterion in rule.criteria:
        values = [shifts[f] for f in criterion.frequencies_hz]
        combined = sum(values) / len(values) if criterion.combine == "mean" else min(values)
        margins.append(combined - criterion.at_least_db)
    return max(margins)


@given(rule=own_rules | st.sampled_from(list(RULES.values())), data=st.data())
def test_margins_on_arrays_are_a_plain_loops(rule: Rule, data: st.DataObject) -> None:
    hz = rule.frequencies_hz
    whole_db = st.integers(-40, 60).map(float)
    flat_list = data.draw(st.lists(whole_db, min_size=6 * len(hz), max_size=6 * len(hz)))
    shifts = np.array(flat_list).reshape(2, 3, len(hz))
    margins = rule.margin(shifts)
    assert margins.shape == (2, 3)
    for at in np.ndindex(2, 3):
        one = dict(zip(hz, shifts[at], strict=True))
        expected = plain_margin(rule, one)
        assert margins[at] == pytest.approx(expected, abs=1e-8)
        assert float(rule.margin(shifts[at])) == pytest.approx(float(margins[at]), abs=1e-12)
        # Met is a margin of 0 or more, and that is what the audiograms' comparison says.
        met = margins[at] >= 0
        assert met == (expected >= -1e-9)
        unshifted = es.Audiogram(dict.fromkeys(hz, 0.0))
        finding = judge_ear(rule, unshifted, es.Audiogram(one), allow_unverified=True)
        assert finding.decision == ("changed" if met else "unchanged")
        assert finding.margin_db == pytest.approx(expected, abs=1e-9)


def test_a_margin_of_exactly_the_limit_is_met() -> None:
    assert OSHA.margin(np.array([10.0, 10.0, 10.0])) >= 0
    assert OSHA.margin(np.array([9.99, 9.99, 9.99])) < 0
    assert NIOSH.margin(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 15.0])) >= 0


@pytest.mark.parametrize("shape", [(2,), (4,), (7,), (3, 7), (0,), ()])
def test_shifts_at_other_frequencies_than_the_rules_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="3 frequencies"):
        OSHA.margin(np.zeros(shape))


# What a finding carries ---------------------------------------------------------------------------


def test_a_finding_names_its_rule_its_ear_and_what_met_it() -> None:
    finding = judge_ear("niosh-15", flat(0.0), flat(0.0, hz_4000=20), ear="left")
    assert (finding.rule, finding.ear, finding.decision) == ("niosh-15", "left", "changed")
    assert finding.met == (Criterion((4000.0,), 15.0),)
    assert finding.unverified is None


def test_an_unverified_rule_is_gated_and_marked_on_two_audiograms_too() -> None:
    with pytest.raises(ValueError, match="allow_unverified"):
        judge_ear("asha-1994", flat(0.0), flat(20.0))
    finding = judge_ear("asha-1994", flat(0.0), flat(20.0), allow_unverified=True)
    assert finding.unverified is not None
    assert "not verified" in finding.unverified


def test_swapped_dates_and_strange_ears_are_refused() -> None:
    with pytest.raises(ValueError, match="swapped"):
        judge_ear(OSHA, flat(0.0), flat(0.0), dates=(date(2026, 1, 2), date(2026, 1, 1)))
    with pytest.raises(ValueError, match="ear must be"):
        judge_ear(OSHA, flat(0.0), flat(0.0), ear="both")


@pytest.mark.parametrize(
    ("retest", "decision"),
    [
        (flat(0.0, hz_4000=15), "changed"),
        (flat(0.0, hz_4000=14), "unchanged"),
        (flat(0.0, hz_3000=40), "unchanged"),  # another frequency confirms nothing
        (
            es.Audiogram(dict.fromkeys((500.0, 1000.0, 2000.0, 3000.0, 6000.0), 0.0)),
            "not determinable",
        ),
    ],
)
def test_a_shift_by_niosh_stands_when_the_retest_shows_it_at_the_same_frequency(
    retest: es.Audiogram, decision: str
) -> None:
    first = judge_ear(NIOSH, flat(0.0), flat(0.0, hz_4000=20), ear="right")
    assert first.decision == "changed"
    assert confirmed(first, judge_ear(NIOSH, flat(0.0), retest, ear="right")).decision == decision


def test_a_retest_of_the_other_ear_or_by_another_rule_confirms_nothing() -> None:
    first = judge_ear(NIOSH, flat(0.0), flat(20.0), ear="right")
    for other in (
        judge_ear(NIOSH, flat(0.0), flat(20.0), ear="left"),
        judge_ear(OSHA, flat(0.0), flat(20.0), ear="right"),
    ):
        with pytest.raises(ValueError, match="same rule on the same ear"):
            confirmed(first, other)
    unchanged = judge_ear(NIOSH, flat(0.0), flat(0.0), ear="right")
    assert confirmed(unchanged, first) is unchanged


def test_ears_and_rules_are_not_mixed_in_a_person() -> None:
    left = judge_ear(OSHA, flat(0.0), flat(0.0), ear="left")
    with pytest.raises(ValueError, match="left ear was given as the right"):
        judge_person({"right": left})
    with pytest.raises(ValueError, match="same rule"):
        judge_person({"left": left, "right": judge_ear(NIOSH, flat(0.0), flat(0.0))})
    with pytest.raises(ValueError, match="STS"):
        recordable(judge_ear(NIOSH, flat(0.0), flat(0.0)), flat(0.0))


def test_a_retest_that_cannot_be_judged_at_that_frequency_decides_nothing() -> None:
    """No response at a level short of the criterion, though another frequency meets it."""
    first = judge_ear(NIOSH, flat(80.0), flat(80.0, hz_4000=96))
    levels = dict.fromkeys((*NIOSH_HZ[:4], 6000.0), 80.0) | {6000.0: 96.0}
    quiet = es.Audiogram(levels, no_response_db_hl={4000.0: 90.0})
    retest = judge_ear(NIOSH, flat(80.0), quiet)
    assert retest.decision == "changed"
    assert confirmed(first, retest).decision == "not determinable"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Criterion(2000.0, 10.0),  # type: ignore[arg-type]
        lambda: Criterion(None, 10.0),  # type: ignore[arg-type]
        lambda: Rule("x", None),  # type: ignore[arg-type]
        lambda: Rule("x", Criterion((2000.0,), 10.0)),  # type: ignore[arg-type]
        lambda: Rule(3, (Criterion((2000.0,), 10.0),)),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_rule_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"needs"):
        make()
