"""The examiner with 5 dB steps: what it finds, in which steps, and when it stops."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import earshift as es
from earshift.engine.ascending import MAX_TONES_PER_FREQUENCY
from earshift.simulate.classical import (
    FREQUENCIES_HZ,
    ManualExam,
    hughson_westlake,
)

LOWEST, HIGHEST = -10.0, 100.0
Answer = Callable[[es.Tone], bool]
Played = dict[float, list[tuple[float, bool]]]


def step(thresholds: Mapping[float, float]) -> Answer:
    """A listener without noise: hears everything from the threshold on and nothing below."""
    return lambda tone: tone.level_db_hl >= thresholds[tone.frequency_hz]


def examine(listener: Answer, hz: tuple[float, ...] = FREQUENCIES_HZ) -> tuple[ManualExam, Played]:
    """The exam, and levels with answers in the order played, for each frequency."""
    played: Played = defaultdict(list)

    def recorded(tone: es.Tone) -> bool:
        heard = listener(tone)
        played[tone.frequency_hz].append((tone.level_db_hl, heard))
        return heard

    return hughson_westlake(recorded, hz), dict(played)


def at_random(seed: int, p_heard: float) -> Answer:
    rng = np.random.default_rng(seed)
    return lambda tone: bool(rng.random() < p_heard)


def noisy(seed: int, spread_db: float = 4.0) -> es.Listener:
    """An ear somewhere between 0 and 60 dB HL, rough from frequency to frequency."""
    rng = np.random.default_rng((11, seed))
    levels = rng.uniform(0.0, 60.0) + rng.normal(0.0, 5.0, len(FREQUENCIES_HZ))
    ear = dict(zip(sorted(FREQUENCIES_HZ), levels.tolist(), strict=True))
    return es.Listener(ear, spread_db=spread_db, seed=(12, seed))


def many_listeners() -> list[Answer]:
    """Orderly, noisy, deaf and random ones."""
    return [
        *(noisy(seed, spread) for seed in range(10) for spread in (2.0, 4.0, 15.0)),
        *(at_random(seed, p) for seed in range(20) for p in (0.1, 0.3, 0.5, 0.7, 0.9)),
        *(es.Listener(dict.fromkeys(FREQUENCIES_HZ, at), spread_db=6.0, seed=seed)
          for at in (-12.0, -8.0, 95.0, 101.0) for seed in range(10)),
        step(dict.fromkeys(FREQUENCIES_HZ, -30.0)),
        step(dict.fromkeys(FREQUENCIES_HZ, 120.0)),
    ]  # fmt: skip


# What it finds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [*range(-10, 101), -9.99, 0.01, 4.99, 5.01, 95.01])
def test_without_noise_it_is_the_softest_step_that_is_heard(threshold: float) -> None:
    exam, _ = examine(step({1000.0: threshold}), (1000.0,))
    assert exam.audiogram.thresholds_db_hl == {1000.0: 5.0 * math.ceil(threshold / 5.0)}
    assert exam.audiogram.no_response_db_hl == {}


@given(at=st.lists(st.floats(-20.0, 110.0), min_size=7, max_size=7))
def test_without_noise_no_frequency_depends_on_those_before(at: list[float]) -> None:
    ear = dict(zip(FREQUENCIES_HZ, at, strict=True))
    exam, played = examine(step(ear))
    assert exam.audiogram.thresholds_db_hl == {
        f: max(5.0 * math.ceil(t / 5.0), LOWEST) for f, t in ear.items() if t <= HIGHEST
    }
    assert exam.audiogram.no_response_db_hl == {f: HIGHEST for f, t in ear.items() if t > HIGHEST}
    assert exam.tones == sum(map(len, played.values()))


@pytest.mark.parametrize("threshold", [100.01, 105.0, 200.0, math.inf])
def test_beyond_the_loudest_level_there_is_no_response(threshold: float) -> None:
    exam, played = examine(step({1000.0: threshold}), (1000.0,))
    assert exam.audiogram.thresholds_db_hl == {}
    assert exam.audiogram.no_response_db_hl == {1000.0: 100.0}
    assert [level for level, _ in played[1000.0]] == [40, 50, 60, 70, 80, 90, 100, 100]


def test_the_method_offset_is_noted_and_not_taken_off() -> None:
    exam = hughson_westlake(step(dict.fromkeys(FREQUENCIES_HZ, 22.0)), method_offset_db=2.5)
    assert exam.audiogram.method_offset_db == 2.5
    assert set(exam.audiogram.thresholds_db_hl.values()) == {25.0}


def test_it_reads_some_db_above_the_50_percent_point_and_takes_60_to_90_tones() -> None:
    # The practice notes' own simulation has +2.4 to +2.6 dB and 65 to 78 tones; the standard error
    # here is 0.1 dB and 1 tone.
    errors, tones = [], []
    for seed in range(200):
        listener = noisy(seed)
        exam = hughson_westlake(listener)
        assert len(exam.audiogram.thresholds_db_hl) == 7
        errors += [
            level - listener.threshold(f) for f, level in exam.audiogram.thresholds_db_hl.items()
        ]
        tones.append(exam.tones)
    assert 1.5 < np.mean(errors) < 3.5
    assert np.std(errors) < 4.0
    assert 60 < np.mean(tones) < 90


# In which steps ----------------------------------------------------------------------------------


def test_the_frequencies_are_1_khz_first_upward_and_then_the_lower_one() -> None:
    assert FREQUENCIES_HZ == (1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0, 500.0)
    _, played = examine(step(dict.fromkeys(FREQUENCIES_HZ, 22.0)))
    assert tuple(played) == FREQUENCIES_HZ


def test_a_whole_sequence() -> None:
    _, played = examine(step({1000.0: 22.0, 2000.0: 61.0, 3000.0: -10.0}), (1000.0, 2000.0, 3000.0))
    levels = {f: [level for level, _ in tones] for f, tones in played.items()}
    assert levels == {
        1000.0: [40, 30, 20, 25, 15, 20, 25],
        2000.0: [45, 55, 65, 55, 60, 65, 55, 60, 65],  # from 20 dB above the last threshold
        3000.0: [85, 75, 65, 55, 45, 35, 25, 15, 5, -5, -10, -10],
    }


def test_steps_are_up_10_to_the_first_response_then_down_10_and_up_5() -> None:
    for listener in many_listeners():
        _, played = examine(listener)
        for tones in played.values():
            found = False
            for (level, heard), (following, _) in pairwise(tones):
                found |= heard
                step_db = -10.0 if heard else 5.0 if found else 10.0
                assert following == min(max(level + step_db, LOWEST), HIGHEST)


def test_levels_stay_on_the_dial() -> None:
    for listener in many_listeners():
        _, played = examine(listener)
        for tones in played.values():
            for level, _ in tones:
                assert LOWEST <= level <= HIGHEST
                assert level % 5.0 == 0.0


# When it stops -----------------------------------------------------------------------------------


def ascending(tones: list[tuple[float, bool]]) -> dict[float, list[bool]]:
    """Answers at levels that were reached 5 dB up, after the clearly audible tone."""
    first = next((k for k, (_, heard) in enumerate(tones) if heard), len(tones))
    answers = defaultdict(list)
    for k in range(first + 1, len(tones)):
        if not tones[k - 1][1]:
            answers[tones[k][0]].append(tones[k][1])
    return answers


def qualifies(answers: list[bool]) -> bool:
    return sum(answers) >= 2 and 2 * sum(answers) >= len(answers)


def test_a_threshold_has_two_of_three_ascending_responses_at_least() -> None:
    seen = {"threshold": 0, "lowest": 0, "none": 0}
    for listener in many_listeners():
        exam, played = examine(listener)
        for f, level in exam.audiogram.thresholds_db_hl.items():
            answers = ascending(played[f])
            before = ascending(played[f][:-1])
            assert not any(map(qualifies, before.values()))  # it stops as soon as it can
            if level == LOWEST:  # cannot be reached from below
                assert played[f][-2:] == [(LOWEST, True)] * 2
                seen["lowest"] += 1
            else:
                assert played[f][-1] == (level, True)
                if level == HIGHEST:  # may have been the clearly audible tone, after a miss
                    assert played[f].count((HIGHEST, True)) >= 2
                else:
                    assert qualifies(answers[level])
                seen["threshold"] += 1
        for f, level in exam.audiogram.no_response_db_hl.items():
            assert level == HIGHEST
            assert played[f][-2:] == [(HIGHEST, False)] * 2
            seen["none"] += 1
    assert min(seen.values()) > 20  # all three were put to the test


def scripted(answers: dict[float, list[bool]], threshold: float) -> Answer:
    """Answers in turn for some levels; a noiseless listener once those are used up."""
    left = {level: list(given) for level, given in answers.items()}

    def listener(tone: es.Tone) -> bool:
        queue = left.get(tone.level_db_hl)
        return queue.pop(0) if queue else tone.level_db_hl >= threshold

    return listener


def test_one_response_in_three_is_not_a_threshold() -> None:
    # 25 dB once by chance, then never again: 30 dB, where two of two ascents were heard.
    exam, played = examine(scripted({25.0: [True]}, threshold=30.0), (1000.0,))
    assert ascending(played[1000.0])[25.0] == [True, False, False]
    assert exam.audiogram.thresholds_db_hl == {1000.0: 30.0}


def test_two_responses_in_three_are_a_threshold() -> None:
    exam, played = examine(scripted({25.0: [True, False, True]}, threshold=30.0), (1000.0,))
    assert ascending(played[1000.0])[25.0] == [True, False, True]
    assert exam.audiogram.thresholds_db_hl == {1000.0: 25.0}


def test_two_responses_in_four_are_a_threshold_and_two_in_five_are_not() -> None:
    answers = iter("x.....xxx..x...x...xx..x...x")  # x: heard
    exam, played = examine(lambda tone: next(answers) == "x", (1000.0,))
    counted = ascending(played[1000.0])
    assert counted[35.0] == [False, True, False, False, True, False]
    assert counted[40.0] == [False, True, False, True]
    assert exam.audiogram.thresholds_db_hl == {1000.0: 40.0}
    assert next(answers, None) is None


def test_heard_on_the_way_down_does_not_count() -> None:
    exam, played = examine(scripted({30.0: [True, True], 20.0: [True]}, threshold=32.0), (1000.0,))
    assert (20.0, True) in played[1000.0]
    assert exam.audiogram.thresholds_db_hl == {1000.0: 35.0}


def test_one_guess_at_the_softest_level_is_not_a_threshold() -> None:
    exam, _ = examine(scripted({-10.0: [True]}, threshold=0.0), (1000.0,))
    assert exam.audiogram.thresholds_db_hl == {1000.0: 0.0}


def test_one_miss_at_the_loudest_level_is_not_no_response() -> None:
    exam, _ = examine(scripted({100.0: [False]}, threshold=100.0), (1000.0,))
    assert exam.audiogram.thresholds_db_hl == {1000.0: 100.0}
    exam, _ = examine(scripted({100.0: [True, False]}, threshold=100.0), (1000.0,))
    assert exam.audiogram.thresholds_db_hl == {1000.0: 100.0}


@pytest.mark.parametrize("p_heard", [0.05, 0.4, 0.5, 0.7, 0.95])
def test_a_coin_toss_does_not_keep_us_for_ever(p_heard: float) -> None:
    for seed in range(350):
        exam, played = examine(at_random(seed, p_heard))
        assert max(map(len, played.values())) <= MAX_TONES_PER_FREQUENCY
        assert exam.tones == sum(map(len, played.values()))


class Evasive:
    """Hears each level once on the way up at one frequency, so that none qualifies there."""

    def __init__(self, frequency_hz: float) -> None:
        self.frequency_hz = frequency_hz
        self.heard_at: set[float] = set()
        self.tones = 0

    def __call__(self, tone: es.Tone) -> bool:
        if tone.frequency_hz != self.frequency_hz:
            return tone.level_db_hl >= 20.0
        self.tones += 1
        new = tone.level_db_hl not in self.heard_at
        self.heard_at.add(tone.level_db_hl)
        return new and tone.level_db_hl > LOWEST


def test_a_threshold_not_found_in_time_is_left_out_not_made_up() -> None:
    listener = Evasive(2000.0)
    exam = hughson_westlake(listener, (1000.0, 2000.0, 3000.0))
    assert listener.tones == MAX_TONES_PER_FREQUENCY
    assert exam.audiogram.thresholds_db_hl == {1000.0: 20.0, 3000.0: 20.0}
    assert exam.audiogram.no_response_db_hl == {}
    with pytest.raises(ValueError, match="at least one threshold"):
        hughson_westlake(Evasive(2000.0), (2000.0,))
