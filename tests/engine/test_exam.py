"""Exams and screens: the contract of ask and tell, golden sequences, hard cases, verdicts."""

import copy
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import earshift as es
from earshift.engine.domain import AUDIOMETER_HZ, DOMAINS, LEVELS_DB_HL, Axis, Domain
from earshift.engine.limits import allowed
from earshift.engine.protocol import OPTIONS
from earshift.engine.thresholds import PlaceThreshold
from earshift.engine.verdict import PlaceShift
from support.helpers import HZ, MILD, NORMAL, Sitting, run_exam, tell_all

REFERENCE = Path(__file__).parent / "reference"
AUDIOGRAM = es.Audiogram(MILD, no_response_db_hl={750.0: 20.0})
FAST = es.Protocol(rho_points=9, evidence="plug_in", theta_g="shared")


def through_json(sitting: Sitting) -> Sitting:
    return type(sitting).from_dict(json.loads(json.dumps(sitting.to_dict())))


def golden(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((REFERENCE / name).read_text(encoding="utf-8"))
    return loaded


def score_behind_best(sitting: es.Exam | es.Screen, tone: es.Tone) -> float:
    """How far the tone's score lies below the best allowed one."""
    mask = allowed(sitting.limits, sitting.domain, sitting.trials)
    scores = np.where(mask, sitting.scores(), -np.inf)
    for index in np.ndindex(scores.shape):
        if sitting.domain.tone(*index) == tone:
            return float(scores.max() - scores[index])
    raise AssertionError(f"{tone} is no candidate")


# Golden sequences: reference/record_golden.py records them anew.


def test_the_golden_exam_asks_what_it_asked() -> None:
    data = golden("golden_exam.json")
    exam = es.Exam.from_dict({**data, "trials": []})
    trials = [es.Trial.from_dict(row) for row in data["trials"]]
    assert len(trials) == 50
    for number, trial in enumerate(trials):
        if number < exam.halton_tones:
            assert exam.ask() == trial.tone
        else:
            assert score_behind_best(exam, trial.tone) < 1e-6, number
        exam.tell(trial.tone, trial.heard)


def test_the_golden_screen_asks_what_it_asked() -> None:
    data = golden("golden_screen.json")
    screen = es.Screen.from_dict({**data, "trials": []})
    trials = [es.Trial.from_dict(row) for row in data["trials"]]
    assert len(trials) == 15
    assert screen.protocol.name == "paper"
    for number, trial in enumerate(trials):
        assert screen.log_bf == pytest.approx(data["log_bf"][number], abs=1e-3)
        assert score_behind_best(screen, trial.tone) < 1e-6, number
        screen.tell(trial.tone, trial.heard)
    assert screen.log_bf == pytest.approx(data["log_bf"][-1], abs=1e-3)


# The contract of ask and tell.


def test_asking_twice_gives_the_same_tone(short_exam: es.Exam) -> None:
    for sitting in (
        es.Exam(seed=4, halton_tones=2),
        es.Exam(seed=4, halton_tones=0, strategy="random"),
        es.Screen(short_exam, FAST, seed=4),
    ):
        for _ in range(4):
            tone = sitting.ask()
            sitting.scores()
            sitting.thresholds()
            assert sitting.ask() == tone
            sitting.tell(tone, True)


def test_looking_does_not_change_what_is_asked(short_exam: es.Exam) -> None:
    watched = es.Screen(short_exam, FAST, seed=4)
    blind = es.Screen(short_exam, FAST, seed=4)
    listener, other = es.Listener(NORMAL, seed=1), es.Listener(NORMAL, seed=1)
    for _ in range(5):
        watched.verdict()
        assert watched.log_bf == watched.log_bf
        tone = watched.ask()
        watched.tell(tone, listener(tone))
        tone = blind.ask()
        blind.tell(tone, other(tone))
    assert watched.trials == blind.trials


def test_any_tone_may_be_told(short_exam: es.Exam) -> None:
    off_list = es.Tone(1234.0, 33.0)
    for sitting in (es.Exam(), es.Screen(short_exam, FAST)):
        asked = sitting.ask()
        sitting.tell(off_list, True)
        sitting.tell(off_list, False)
        sitting.tell(asked, True)
        assert [t.tone for t in sitting.trials] == [off_list, off_list, asked]
        assert [t.heard for t in sitting.trials] == [True, False, True]
        assert sitting.ask() in all_tones(sitting)
        assert through_json(sitting).trials == sitting.trials


def all_tones(sitting: es.Exam | es.Screen) -> set[es.Tone]:
    return {sitting.domain.tone(*index) for index in np.ndindex(sitting.domain.shape)}


def test_a_told_tone_moves_the_field() -> None:
    exam = es.Exam()
    before = exam.thresholds([1234.0])[0]
    for _ in range(5):
        exam.tell(es.Tone(1234.0, 70.0), False)
        exam.tell(es.Tone(1234.0, 80.0), True)
    after = exam.thresholds([1234.0])[0]
    assert 60.0 < after.level_db_hl < 90.0
    assert after.high_db_hl - after.low_db_hl < before.high_db_hl - before.low_db_hl


def test_done_is_advice(short_exam: es.Exam) -> None:
    exam = run_exam(es.Exam(max_tones=3, halton_tones=2), MILD, tones=3)
    assert exam.done
    assert not run_exam(es.Exam(max_tones=3), MILD, tones=2).done
    run_exam(exam, MILD, tones=6)
    assert len(exam.trials) == 6
    screen = es.Screen(short_exam, FAST, max_tones=2)
    assert not screen.done
    run_exam(screen, NORMAL, tones=8)
    assert screen.done
    assert screen.verdict().tones == 8
    assert screen.ask() in all_tones(screen)


def test_a_screen_ends_when_it_is_decided(mild_exam: es.Exam) -> None:
    screen = es.Screen(mild_exam, max_tones=1000)
    listener = es.Listener(NORMAL, seed=1)
    while not screen.done:
        assert screen.decision == "inconclusive"
        tone = screen.ask()
        screen.tell(tone, listener(tone))
    assert len(screen.trials) < 30
    assert abs(screen.log_bf) >= math.log(screen.protocol.bayes_factor)


def test_a_screen_keeps_its_own_copy_of_the_reference(mild_exam: es.Exam) -> None:
    reference = tell_all(es.Exam(seed=1), mild_exam.trials)
    screens = [es.Screen(reference, FAST, seed=2) for _ in range(2)]
    for _ in range(20):
        reference.tell(es.Tone(1000.0, 0.0), True)
    touched = run_exam(screens[0], MILD, tones=5)
    untouched = run_exam(es.Screen(mild_exam, FAST, seed=2), MILD, tones=5)
    assert touched.trials == untouched.trials
    assert touched.log_bf == untouched.log_bf
    assert through_json(screens[1]).ask() == untouched.from_dict(screens[1].to_dict()).ask()
    assert len(screens[1].to_dict()["design"]["reference"]["data"]["trials"]) == 50


@pytest.mark.parametrize("tones", [0, 1, 4, 5, 12])
@pytest.mark.parametrize("strategy", ["bald", "level_set", "uncertainty", "random"])
def test_an_exam_goes_on_after_the_trip_through_json(tones: int, strategy: str) -> None:
    exam = es.Exam(
        seed=6, domain="audiometer", halton_tones=5, strategy=strategy, guess=0.01, lapse=0.02,
        limits=es.Limits(),
    )  # fmt: skip
    run_exam(exam, MILD, tones=tones)
    back = through_json(exam)
    assert back.to_dict() == exam.to_dict()
    assert back.ask() == exam.ask()
    assert back.thresholds() == exam.thresholds()


@pytest.mark.parametrize("tones", [0, 1, 7])
@pytest.mark.parametrize("kind", ["exam", "audiogram", "norm"])
def test_a_screen_goes_on_after_the_trip_through_json(
    mild_exam: es.Exam, kind: str, tones: int
) -> None:
    reference = {"exam": mild_exam, "audiogram": AUDIOGRAM, "norm": es.population_norm()}[kind]
    screen = run_exam(es.Screen(reference, seed=3, limits=es.Limits()), NORMAL, tones=tones)
    back = through_json(screen)
    assert back.to_dict() == screen.to_dict()
    assert back.ask() == screen.ask()
    assert back.log_bf == screen.log_bf
    assert back.verdict() == screen.verdict()


@pytest.mark.parametrize("evidence", OPTIONS["evidence"])
@pytest.mark.parametrize("theta_g", OPTIONS["theta_g"])
@pytest.mark.parametrize("rho_weights", OPTIONS["rho_weights"])
def test_every_kind_of_evidence_goes_on_after_the_trip_through_json(
    short_exam: es.Exam, evidence: str, theta_g: str, rho_weights: str
) -> None:
    protocol = es.Protocol(evidence=evidence, theta_g=theta_g, rho_weights=rho_weights)
    screen = run_exam(es.Screen(short_exam, protocol, seed=3), NORMAL, tones=4)
    back = through_json(screen)
    assert back.protocol == protocol
    assert back.ask() == screen.ask()
    assert back.log_bf == screen.log_bf
    assert math.isfinite(back.log_bf)


def test_settings_given_as_numpy_numbers_go_through_json(short_exam: es.Exam) -> None:
    exam = es.Exam(seed=np.int64(3), max_tones=np.int32(20), halton_tones=np.int64(2))
    assert through_json(exam).ask() == exam.ask()
    protocol = es.Protocol(rho_points=np.int64(9), prior_changed=np.float64(0.3))
    screen = es.Screen(short_exam, protocol, seed=np.int64(3))
    assert through_json(screen).ask() == screen.ask()


def test_the_seed_decides_ties_and_halton_tones_only(short_exam: es.Exam) -> None:
    one, two = (es.Exam(seed=seed) for seed in (1, 2))
    assert [one.ask(), two.ask()] == [es.Exam(seed=1).ask(), es.Exam(seed=2).ask()]
    assert halton_run(1) == halton_run(1)
    assert halton_run(1) != halton_run(2)
    for make in (
        lambda seed: es.Exam(seed=seed, halton_tones=0, domain="audiometer"),
        lambda seed: es.Screen(short_exam, FAST, seed=seed),
    ):
        trials = run_exam(make(1), NORMAL, tones=6).trials
        first, second = (tell_all(make(seed), trials) for seed in (1, 2))
        np.testing.assert_array_equal(first.scores(), second.scores())
        for sitting in (first, second):
            assert score_behind_best(sitting, sitting.ask()) <= 1e-9


def halton_run(seed: int) -> list[es.Tone]:
    exam = es.Exam(seed=seed, halton_tones=8)
    tones = []
    for _ in range(8):
        tones.append(exam.ask())
        exam.tell(tones[-1], True)
    return tones


def test_halton_tones_look_all_around() -> None:
    tones = halton_run(5)
    assert len(set(tones)) == 8
    assert max(t.frequency_hz for t in tones) > 4000.0
    assert min(t.frequency_hz for t in tones) < 1000.0
    assert max(t.level_db_hl for t in tones) - min(t.level_db_hl for t in tones) > 50.0


# Limits.


def ceiling(limits: es.Limits, trials: tuple[es.Trial, ...], frequency_hz: float) -> float:
    """The rule of `Limits`, spelled out for one frequency."""
    top = limits.start_db_hl
    for trial in trials:
        gap = abs(math.log2(trial.tone.frequency_hz / frequency_hz))
        if gap <= limits.near_octaves + 1e-9:
            rise = limits.above_heard_db if trial.heard else limits.above_missed_db
            top = max(top, trial.tone.level_db_hl + rise)
    return min(top, limits.cap_db_hl)


@settings(max_examples=20)
@given(
    heard=st.lists(st.booleans(), min_size=12, max_size=12),
    cap=st.sampled_from([45.0, 72.0, 90.0]),
    start=st.sampled_from([-10.0, 20.0, 50.0]),
    near=st.sampled_from([0.0, 0.5, 2.0]),
    strategy=st.sampled_from(["bald", "level_set", "uncertainty", "random"]),
)
def test_no_asked_tone_exceeds_the_limits(
    heard: list[bool], cap: float, start: float, near: float, strategy: str
) -> None:
    limits = es.Limits(cap_db_hl=cap, start_db_hl=start, near_octaves=near, above_missed_db=15.0)
    exam = es.Exam(seed=7, domain="audiometer", limits=limits, halton_tones=6, strategy=strategy)
    for answer in heard:
        tone = exam.ask()
        assert tone.level_db_hl <= ceiling(limits, exam.trials, tone.frequency_hz) + 1e-9
        exam.tell(tone, answer)


@settings(max_examples=10)
@given(heard=st.lists(st.booleans(), min_size=6, max_size=6), start=st.sampled_from([0.0, 30.0]))
def test_no_tone_of_a_screen_exceeds_the_limits(
    short_exam: es.Exam, heard: list[bool], start: float
) -> None:
    limits = es.Limits(start_db_hl=start, cap_db_hl=60.0)
    screen = es.Screen(short_exam, FAST, limits=limits)
    for answer in heard:
        tone = screen.ask()
        assert tone.level_db_hl <= ceiling(limits, screen.trials, tone.frequency_hz) + 1e-9
        screen.tell(tone, answer)


def test_limits_that_leave_nothing_are_refused(short_exam: es.Exam) -> None:
    deaf = es.Limits(start_db_hl=-30.0)
    with pytest.raises(ValueError, match="leave no tone"):
        es.Exam(limits=deaf)
    with pytest.raises(ValueError, match="leave no tone"):
        es.Screen(short_exam, limits=deaf)


# What is taken and what is refused.


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (True, True),
        (False, False),
        (np.True_, True),
        (np.False_, False),
        (1, True),
        (0, False),
        (np.int64(1), True),
        (np.uint8(0), False),
    ],
)
def test_heard_takes_what_means_yes_or_no(given: object, expected: bool) -> None:
    exam = es.Exam()
    exam.tell(es.Tone(1000.0, 40.0), given)
    assert exam.trials[0].heard is expected
    assert json.loads(json.dumps(exam.to_dict()))["trials"][0]["heard"] is expected


TONE = es.Tone(1000.0, 40.0)


@pytest.mark.parametrize("kind", ["exam", "screen"])
@pytest.mark.parametrize(
    ("tone", "heard"),
    [
        (TONE, 2),
        (TONE, -1),
        (TONE, "yes"),
        (TONE, None),
        (TONE, 0.5),
        (TONE, float("nan")),
        (TONE, [True]),
        (TONE, np.array([True])),
        ("1000 Hz", True),
        (None, True),
        ((1000.0, 40.0), True),
        ({"frequency_hz": 1000.0, "level_db_hl": 40.0}, True),
        (es.Tone(100.0, 40.0), True),
        (es.Tone(9000.0, 40.0), True),
        (es.Tone(1000.0, 101.0), True),
        (es.Tone(1000.0, -10.5), True),
    ],
)
def test_bad_input_changes_nothing(
    short_exam: es.Exam, kind: str, tone: object, heard: object
) -> None:
    sitting = es.Exam(seed=2) if kind == "exam" else es.Screen(short_exam, FAST, seed=2)
    sitting.tell(TONE, True)
    before, asked = sitting.to_dict(), sitting.ask()
    with pytest.raises(ValueError, match=r"heard must be|expected an earshift\.Tone|outside"):
        sitting.tell(tone, heard)
    assert sitting.to_dict() == before
    assert sitting.ask() == asked


@pytest.mark.parametrize(
    "options",
    [
        {"seed": -1},
        {"seed": 1.5},
        {"seed": "one"},
        {"seed": None},
        {"seed": True},
        {"max_tones": 0},
        {"max_tones": 2.5},
        {"max_tones": "many"},
        {"halton_tones": -1},
        {"halton_tones": 1.5},
        {"domain": "coarse"},
        {"domain": None},
        {"limits": 90.0},
        {"limits": {"cap_db_hl": 90.0}},
        {"strategy": "differential"},
        {"strategy": "clever"},
        {"strategy": None},
        {"guess": 0.51},
        {"guess": "estimated"},
        {"guess": -0.1},
        {"guess": None},
        {"lapse": 0.5},
        {"lapse": float("nan")},
        {"lapse": "2 %"},
    ],
)
def test_an_exam_refuses_bad_settings_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        es.Exam(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"seed": -1},
        {"seed": 0.5},
        {"max_tones": 0},
        {"max_tones": "many"},
        {"domain": "coarse"},
        {"limits": "quiet"},
        {"protocol": "papper"},
        {"protocol": {"rho_points": 0}},
    ],
)
def test_a_screen_refuses_bad_settings(short_exam: es.Exam, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be|unknown|whole number"):
        es.Screen(short_exam, **options)


@pytest.mark.parametrize("reference", [None, "exam", {}, 5, [], es.Tone(1000.0, 40.0), es.Exam])
def test_a_screen_refuses_other_references(reference: object) -> None:
    with pytest.raises(ValueError, match="reference must be"):
        es.Screen(reference)


def test_a_screen_refuses_an_empty_reference_and_another_screen(short_exam: es.Exam) -> None:
    with pytest.raises(ValueError, match="no trials"):
        es.Screen(es.Exam())
    with pytest.raises(ValueError, match="reference must be"):
        es.Screen(es.Screen(short_exam))


@pytest.mark.parametrize("frequencies", [[], [100.0], [9000.0], [float("nan")], ["1 kHz"], [None]])
def test_thresholds_refuse_frequencies_they_do_not_know(frequencies: list) -> None:
    with pytest.raises(ValueError, match=r"frequency|outside"):
        es.Exam().thresholds(frequencies)


def dig(data: dict[str, Any], *path: object) -> tuple[Any, Any]:
    for step in path[:-1]:
        data = data[step]
    return data, path[-1]


def put(value: object, *path: object) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        inside, key = dig(data, *path)
        inside[key] = value

    return change


def drop(*path: object) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        inside, key = dig(data, *path)
        del inside[key]

    return change


MALFORMED = {
    "no kind": drop("kind"),
    "other kind": put("audiogram", "kind"),
    "kind of the sibling": put("visit", "kind"),
    "no schema": drop("schema"),
    "future schema": put(99, "schema"),
    "no design": drop("design"),
    "design is a list": put([1, 2], "design"),
    "design is None": put(None, "design"),
    "no trials": drop("trials"),
    "trials is None": put(None, "trials"),
    "trials is a number": put(3, "trials"),
    "a trial is None": put(None, "trials", 0),
    "a trial is text": put("heard", "trials", 0),
    "a trial without tone": drop("trials", 0, "level_db_hl"),
    "a trial without answer": drop("trials", 0, "heard"),
    "a trial with a bad answer": put("yes", "trials", 0, "heard"),
    "a trial with NaN": put(float("nan"), "trials", 0, "frequency_hz"),
    "a trial outside": put(20.0, "trials", 0, "frequency_hz"),
    "a trial in words": put("loud", "trials", 0, "level_db_hl"),
    "no seed": drop("design", "seed"),
    "bad seed": put("x", "design", "seed"),
    "unknown setting": put(1, "design", "colour"),
    "no domain": drop("design", "domain"),
    "domain is None": put(None, "design", "domain"),
    "domain by name": put("fine", "design", "domain"),
    "domain without axis": drop("design", "domain", "intensity"),
    "axis with a wrong origin": put("x", "design", "domain", "intensity", "origin"),
    "axis without values": put([], "design", "domain", "smooth", 0, "values"),
    "axis values None": put(None, "design", "domain", "smooth", 0, "values"),
    "limits is a number": put(90, "design", "limits"),
    "unknown limit": put({"loudness": 3}, "design", "limits"),
}
MALFORMED_EXAM = {
    **MALFORMED,
    "unknown strategy": put("clever", "design", "strategy"),
    "guess too large": put(0.9, "design", "guess"),
}
MALFORMED_SCREEN = {
    **MALFORMED,
    "no reference": drop("design", "reference"),
    "reference is None": put(None, "design", "reference"),
    "unknown reference": put("tea leaves", "design", "reference", "kind"),
    "unhashable reference": put([], "design", "reference", "kind"),
    "reference without data": drop("design", "reference", "data"),
    "empty reference": put([], "design", "reference", "data", "trials"),
    "no protocol": drop("design", "protocol"),
    "protocol is None": put(None, "design", "protocol"),
    "unknown protocol setting": put(1, "design", "protocol", "colour"),
    "bad protocol setting": put(0, "design", "protocol", "rho_points"),
}


@pytest.mark.parametrize("how", MALFORMED_EXAM)
def test_malformed_data_is_no_exam(short_exam: es.Exam, how: str) -> None:
    data = copy.deepcopy(json.loads(json.dumps(short_exam.to_dict())))
    assert es.Exam.from_dict(data).trials
    MALFORMED_EXAM[how](data)
    with pytest.raises(ValueError, match=r"\w"):
        es.Exam.from_dict(data)


@pytest.mark.parametrize("how", MALFORMED_SCREEN)
def test_malformed_data_is_no_screen(short_exam: es.Exam, how: str) -> None:
    screen = es.Screen(short_exam, FAST)
    screen.tell(TONE, True)
    data = json.loads(json.dumps(screen.to_dict()))
    MALFORMED_SCREEN[how](data)
    with pytest.raises(ValueError, match=r"\w"):
        es.Screen.from_dict(data)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("audiogram", drop("thresholds_db_hl")),
        ("audiogram", put(5, "thresholds_db_hl")),
        ("audiogram", put([1, 2], "thresholds_db_hl")),
        ("audiogram", put("x", "sd_db")),
        ("norm", drop("cov_db2")),
        ("norm", put([[1.0]], "cov_db2")),
        ("norm", put(None, "mean_db_hl")),
    ],
)
def test_malformed_references_are_refused(kind: str, how: Callable) -> None:
    reference = AUDIOGRAM if kind == "audiogram" else es.population_norm()
    data = json.loads(json.dumps(es.Screen(reference, FAST).to_dict()))
    how(data["design"]["reference"]["data"])
    with pytest.raises(ValueError, match=r"\w"):
        es.Screen.from_dict(data)


@pytest.mark.parametrize("data", [None, [], "exam", 5, {}])
def test_what_is_no_mapping_is_no_exam(data: object) -> None:
    for cls in (es.Exam, es.Screen):
        with pytest.raises(ValueError, match="not the data of an earshift"):
            cls.from_dict(data)


def test_an_exam_is_not_read_as_a_screen_nor_the_other_way_round(short_exam: es.Exam) -> None:
    with pytest.raises(ValueError, match="expected data of kind 'screen'"):
        es.Screen.from_dict(short_exam.to_dict())
    with pytest.raises(ValueError, match="expected data of kind 'exam'"):
        es.Exam.from_dict(es.Screen(short_exam, FAST).to_dict())


# Hard cases.


def check_thresholds(found: list, frequencies: tuple[float, ...] = HZ) -> None:
    assert [t.frequency_hz for t in found] == list(frequencies)
    for t in found:
        assert all(math.isfinite(v) for v in (t.low_db_hl, t.level_db_hl, t.high_db_hl))
        assert -10.0 <= t.low_db_hl <= t.level_db_hl <= t.high_db_hl <= 100.0
        assert t.censored in (None, "below", "above")


def check_verdict(screen: es.Screen) -> None:
    verdict = screen.verdict()
    assert math.isfinite(verdict.log_bf)
    assert 0.0 <= verdict.p_changed <= 1.0
    assert [s.frequency_hz for s in verdict.shifts] == list(HZ)
    for shift in verdict.shifts:
        assert -110.0 <= shift.low_db <= shift.shift_db <= shift.high_db <= 110.0
    json.dumps(verdict.to_dict())
    assert str(verdict.tones) in str(verdict)


def all_alike(heard: bool) -> list[es.Trial]:
    rng = np.random.default_rng(1)
    return [
        es.Trial(es.Tone(float(f), float(i)), heard)
        for f, i in zip(rng.choice(AUDIOMETER_HZ, 60), rng.choice(LEVELS_DB_HL, 60), strict=True)
    ]


def contradictory() -> list[es.Trial]:
    """Soft tones heard, loud ones missed, and every answer also given the other way round."""
    tones = [es.Tone(f, level) for f in HZ for level in (-10.0, 20.0, 60.0, 100.0)]
    upside_down = [es.Trial(tone, tone.level_db_hl < 40.0) for tone in tones]
    return upside_down + [es.Trial(t.tone, not t.heard) for t in upside_down[::2]]


HARD: dict[str, list[es.Trial]] = {
    "all heard": all_alike(True),
    "none heard": all_alike(False),
    "one tone 500 times heard": [es.Trial(TONE, True)] * 500,
    "one tone 500 times missed": [es.Trial(TONE, False)] * 500,
    "one tone 500 times either way": [es.Trial(TONE, k % 2 == 0) for k in range(500)],
    "contradictory": contradictory(),
    "the loudest missed, the softest heard": [
        es.Trial(es.Tone(1000.0, 100.0), False),
        es.Trial(es.Tone(1000.0, -10.0), True),
    ]
    * 20,
    "two almost equal frequencies": [
        es.Trial(es.Tone(1000.0 + 1e-7 * k, 40.0), k % 3 == 0) for k in range(30)
    ],
}


@pytest.mark.parametrize("lapse", [0.0, 0.02])
@pytest.mark.parametrize("case", HARD)
def test_an_exam_survives_hard_answers(case: str, lapse: float) -> None:
    exam = tell_all(es.Exam(guess=lapse, lapse=lapse), HARD[case])
    check_thresholds(exam.thresholds())
    assert np.isfinite(exam.scores()).all()
    assert np.isfinite(exam.field.theta).all()
    assert exam.ask() in all_tones(exam)
    run_exam(exam, MILD, tones=len(HARD[case]) + 2)
    check_thresholds(exam.thresholds())


@pytest.mark.parametrize("lapse", [0.0, 0.02])
@pytest.mark.parametrize("case", HARD)
def test_a_screen_survives_hard_answers(short_exam: es.Exam, case: str, lapse: float) -> None:
    protocol = es.Protocol(guess=lapse, lapse=lapse)
    screen = tell_all(es.Screen(short_exam, protocol), HARD[case])
    check_verdict(screen)
    check_thresholds(screen.thresholds())
    assert np.isfinite(screen.scores()).all()
    assert screen.ask() in all_tones(screen)
    if lapse > 0.0:  # no answer can speak louder than 1 : lapse
        assert abs(screen.log_bf) < -len(screen.trials) * math.log(lapse) + 10.0


@pytest.mark.parametrize("case", HARD)
def test_a_screen_survives_a_reference_of_hard_answers(case: str) -> None:
    reference = tell_all(es.Exam(domain="audiometer"), HARD[case])
    screen = run_exam(es.Screen(reference), MILD, tones=3)
    check_verdict(screen)


@pytest.mark.parametrize("strategy", ["bald", "level_set"])
@pytest.mark.parametrize("heard", [True, False])
def test_what_is_always_or_never_heard_is_censored(strategy: str, heard: bool) -> None:
    exam = es.Exam(domain="audiometer", strategy=strategy)
    while not exam.done:
        exam.tell(exam.ask(), heard)
    found = exam.thresholds()
    check_thresholds(found)
    side, edge = ("below", -10.0) if heard else ("above", 100.0)
    assert [t.censored for t in found] == [side] * len(HZ)
    assert [t.level_db_hl for t in found] == [edge] * len(HZ)


def test_the_same_frequency_may_be_wanted_twice(short_exam: es.Exam) -> None:
    one, two = short_exam.thresholds([1000.0, 1000.0])
    assert one.level_db_hl == pytest.approx(two.level_db_hl, abs=0.1)


# What it is for.


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_mild_loss_is_measured_within_10_db(seed: int) -> None:
    listener = es.Listener.of_class("mild", seed=seed)
    exam = es.Exam(seed=seed)
    while not exam.done:
        tone = exam.ask()
        exam.tell(tone, listener(tone))
    assert len(exam.trials) == 50
    assert exam.field.converged
    found = exam.thresholds()
    truth = [listener.threshold(t.frequency_hz) for t in found]
    check_thresholds(found)
    for t, true in zip(found, truth, strict=True):
        assert t.level_db_hl == pytest.approx(true, abs=10.0)
        assert t.censored is None
    covered = [t.low_db_hl <= true <= t.high_db_hl for t, true in zip(found, truth, strict=True)]
    assert sum(covered) >= 5


def screened(exam: es.Exam, ear: Mapping[float, float], seed: int) -> es.Screen:
    screen = es.Screen(exam, "paper", seed=seed)
    listener = es.Listener(ear, seed=100 + seed)
    while not screen.done:
        tone = screen.ask()
        screen.tell(tone, listener(tone))
    return screen


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_ear_gone_from_normal_to_mild_is_called_changed(seed: int) -> None:
    before = run_exam(es.Exam(seed=seed), NORMAL, tones=50, seed=seed)
    screen = screened(before, MILD, seed)
    assert screen.decision == "changed"
    assert len(screen.trials) < 30
    check_verdict(screen)
    shift = {s.frequency_hz: s for s in screen.verdict().shifts}
    assert screen.verdict().converged
    assert np.median([s.shift_db for s in shift.values()]) > 10.0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_ear_that_stayed_is_not_called_changed(seed: int) -> None:
    before = run_exam(es.Exam(seed=seed), MILD, tones=50, seed=seed)
    screen = screened(before, MILD, seed)
    assert screen.decision != "changed"
    assert screen.p_changed < 0.5
    assert len(screen.trials) <= 30
    check_verdict(screen)


@pytest.mark.parametrize("kind", ["audiogram", "norm"])
def test_other_references_can_be_screened_against(kind: str) -> None:
    reference = es.Audiogram(NORMAL) if kind == "audiogram" else es.population_norm()
    worse = {f: level + 70.0 for f, level in NORMAL.items()}
    screen = screened(reference, worse, 1)
    assert screen.decision == "changed"
    check_verdict(screen)
    check_thresholds(screen.thresholds())


def test_a_verdict_says_what_it_rests_on(mild_exam: es.Exam) -> None:
    screen = run_exam(es.Screen(mild_exam, "paper"), NORMAL, tones=6)
    verdict = screen.verdict([1000.0, 4000.0])
    assert verdict.tones == 6
    assert verdict.protocol == "paper"
    assert verdict.log_bf == screen.log_bf
    assert verdict.p_changed == pytest.approx(1.0 / (1.0 + math.exp(-verdict.log_bf)))
    assert verdict.decision == screen.decision
    assert [s.frequency_hz for s in verdict.shifts] == [1000.0, 4000.0]
    assert verdict == screen.verdict([1000.0, 4000.0])


def test_the_bayes_factor_that_decides_is_the_protocols(mild_exam: es.Exam) -> None:
    trials = run_exam(es.Screen(mild_exam, FAST), NORMAL, tones=4).trials
    strict, loose = (
        tell_all(
            es.Screen(mild_exam, es.Protocol(**{**FAST.to_dict(), "bayes_factor": factor})), trials
        )
        for factor in (1e12, 1.5)
    )
    assert strict.log_bf == loose.log_bf
    assert strict.decision == "inconclusive"
    assert loose.decision == "changed"


def test_an_exam_follows_its_domain() -> None:
    own = es.Domain.tones([250, 500, 1000, 2000], range(0, 81, 10))
    exam = run_exam(es.Exam(domain=own, halton_tones=4), {250: 20, 500: 25, 2000: 30}, tones=10)
    candidates = all_tones(exam)
    assert {t.tone for t in exam.trials} <= candidates
    assert [t.frequency_hz for t in exam.thresholds()] == [500.0, 1000.0, 2000.0]
    screen = es.Screen(exam, FAST)
    assert screen.domain == own
    assert es.Screen(exam, FAST, domain="audiometer").domain == DOMAINS["audiometer"]


CONTRAST = Domain(
    Axis("contrast_db", "dB", tuple(range(-50, 1, 5)), -25.0, 10.0),
    (
        Axis("cycles_per_degree", "c/deg", (0.5, 1, 2, 4, 8, 16), 4.0, 1.0, logarithmic=True),
        Axis("duration_ms", "ms", (50, 100, 200), 100.0, 1.0, logarithmic=True),
    ),
)


def sees(stimulus: es.Stimulus, limit_db: float) -> bool:
    return stimulus.contrast_db > limit_db


def test_exams_and_screens_work_on_other_axes_than_tones() -> None:
    exam = es.Exam(domain=CONTRAST, max_tones=25, seed=2)
    while not exam.done:
        stimulus = exam.ask()
        assert exam.ask() == stimulus
        exam.tell(stimulus, sees(stimulus, -30.0))
    assert through_json(exam).ask() == exam.ask()
    for limit_db, decision in ((-30.0, "unchanged"), (-5.0, "changed")):
        screen = es.Screen(exam, "best")
        while not screen.done:
            screen.tell(screen.ask(), sees(screen.ask(), limit_db))
        assert screen.verdict().decision == decision
        assert through_json(screen).ask() == screen.ask()
    with pytest.raises(ValueError, match="cycles_per_degree, duration_ms"):
        exam.thresholds([4.0])
    with pytest.raises(ValueError, match="outside the domain"):
        exam.thresholds([(99.0, 100.0)])
    with pytest.raises(ValueError, match="at least one place"):
        exam.thresholds([])
    (there,) = exam.thresholds([(4.0, 100.0)])
    assert isinstance(there, PlaceThreshold)
    assert there.place == (("cycles_per_degree", 4.0), ("duration_ms", 100.0))
    assert there.low <= there.level <= there.high
    assert abs(there.level + 30.0) < 6.0
    assert len(exam.thresholds()) == 18
    (worse,) = screen.verdict([(4.0, 100.0)]).shifts
    assert isinstance(worse, PlaceShift)
    assert worse.place == there.place
    assert worse.shift > 15.0  # decided after a few trials: the interval is still wide
    assert worse.low <= worse.shift <= worse.high


@pytest.mark.parametrize(
    "stimulus",
    [
        es.Tone(1000.0, 20.0),
        es.Stimulus((("contrast_db", -20.0),)),
        es.Stimulus((("contrast_db", -20.0), ("cycles_per_degree", 99.0), ("duration_ms", 100.0))),
    ],
)
def test_a_stimulus_of_other_axes_is_refused(stimulus: object) -> None:
    exam = es.Exam(domain=CONTRAST)
    with pytest.raises(ValueError, match=r"expected|outside"):
        exam.tell(stimulus, True)
    assert exam.trials == ()


DURATIONS = Domain(
    Axis("level_db_hl", "dB HL", tuple(range(-10, 101, 5)), 50.0, 10.0),
    (
        Axis("frequency_hz", "Hz", (500, 1000, 2000, 4000), 1000.0, 1.0, logarithmic=True),
        Axis("duration_ms", "ms", (20, 50, 200), 200.0, 1.0, logarithmic=True),
    ),
)


def test_a_tone_with_a_third_axis_is_a_stimulus_and_goes_through_json() -> None:
    exam = es.Exam(domain=DURATIONS, max_tones=5)
    for _ in range(5):
        stimulus = exam.ask()
        assert isinstance(stimulus, es.Stimulus)
        exam.tell(stimulus, stimulus.level_db_hl > 30.0)
    back = through_json(exam)
    assert back.trials == exam.trials
    assert back.ask() == exam.ask()


def test_a_reference_on_other_axes_is_refused() -> None:
    tones = es.Exam(domain="audiometer")
    tones.tell(es.Tone(1000.0, 40.0), True)
    with pytest.raises(ValueError, match=r"axes level_db_hl, frequency_hz.*contrast_db"):
        es.Screen(tones, domain=CONTRAST)
    for reference in (es.Audiogram({1000.0: 20.0}), es.population_norm()):
        with pytest.raises(ValueError, match="for tones alone"):
            es.Screen(reference, domain=CONTRAST)
    seen = es.Exam(domain=CONTRAST)
    seen.tell(seen.ask(), True)
    with pytest.raises(ValueError, match=r"needs? a domain of tones"):
        es.Screen(seen, rule="osha-sts")
