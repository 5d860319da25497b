"""What a clinic asks: rules, limits, notches and clinical exams under the model of persons."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import earshift as es
from earshift.engine.rules import RULES
from support.helpers import MILD, NORMAL, run_exam

HZ = tuple(MILD)
THEN = es.Audiogram(MILD, sd_db=2.0)
LIMIT = es.ThresholdRule("45 dB at 2 kHz", [es.Criterion((2000.0,), 45.0)])
NOTCHED = dict(zip(HZ, (10.0, 10.0, 10.0, 25.0, 45.0, 30.0, 10.0), strict=True))
Answer = Callable[[es.Tone], bool]


def moved(by_db: float, seed: int = 1) -> Answer:
    return es.Listener({f: level + by_db for f, level in MILD.items()}, seed=seed)


def answered(procedure: Any, answer: Answer, tones: int | None = None) -> Any:
    """Until it is done, or for so many tones."""
    while len(procedure.trials) < tones if tones is not None else not procedure.done:
        tone = procedure.ask()
        procedure.tell(tone, answer(tone))
    return procedure


def through_json(procedure: Any) -> Any:
    return type(procedure).from_dict(json.loads(json.dumps(procedure.to_dict())))


@pytest.fixture(scope="module")
def first() -> es.Exam:
    return run_exam(es.Exam.clinical(seed=1), MILD, tones=40)


KINDS: dict[str, Callable[[es.Exam], Any]] = {
    "exam": lambda _: es.Exam.clinical(seed=3, limits=es.Limits()),
    "exam with a reference": lambda first: es.Exam.clinical(seed=3, reference=first),
    "exam of relative levels": lambda _: es.Exam.clinical(seed=3, domain="relative"),
    "exam of both ears": lambda _: es.Exam.clinical(seed=3, ears="both"),
    "rule": lambda first: es.Screen(first, rule="osha-sts", seed=3),
    "rules": lambda first: es.Screen(first, rules=["osha-sts", "niosh-15"], seed=3),
    "audiogram": lambda _: es.Screen(THEN, rule="niosh-15", seed=3, limits=es.Limits()),
    "norm": lambda _: es.Screen(es.population_norm(), rule="osha-sts", seed=3),
    "improvement": lambda first: es.Screen(first, rule="osha-sts improvement", seed=3),
    "limit": lambda _: es.Screen(rule=LIMIT, seed=3),
    "notch": lambda _: es.Screen(hypotheses="notch", seed=3, domain="audiometer"),
    "notch with a reference": lambda first: es.Screen(first, hypotheses="notch", seed=3),
    "both ears": lambda first: es.Screen(
        {"right": first, "left": THEN}, ears="both", rule="osha-sts", seed=3
    ),
    "a notch in both ears": lambda _: es.Screen(ears="both", hypotheses="notch", seed=3),
}


@pytest.mark.parametrize("kind", KINDS)
def test_unbroken_rebuilt_forked_and_undone_ask_the_same_tone(first: es.Exam, kind: str) -> None:
    unbroken = answered(KINDS[kind](first), moved(5.0), tones=6)
    unbroken.tell_catch(False)
    unbroken.tell_press()
    rebuilt = through_json(unbroken)
    assert rebuilt.to_dict() == unbroken.to_dict()
    assert rebuilt.ask() == unbroken.ask()
    assert np.array_equal(rebuilt.scores(), unbroken.scores())
    fork = unbroken.fork()
    fork.tell(fork.ask(), True)
    fork.tell(fork.ask(), False)
    assert unbroken.ask() == rebuilt.ask()
    retold = KINDS[kind](first)
    for trial in unbroken.trials[:3]:
        retold.tell(trial.tone, trial.heard)
    retold.ask()
    retold.tell_press()
    for trial in unbroken.trials[3:]:
        retold.tell(trial.tone, trial.heard)
    retold.tell_catch(False)
    assert retold.ask() == unbroken.ask()
    assert retold.thresholds(**_ear(retold)) == unbroken.thresholds(**_ear(retold))


def _ear(procedure: Any) -> dict[str, str]:
    return {} if procedure.ears is None else {"ear": "left"}


def test_nothing_is_compiled_for_a_rule() -> None:
    script = (
        "import sys; import earshift as es\n"
        "reference = es.Audiogram({f: 20.0 for f in (500, 1000, 2000, 3000, 4000, 6000, 8000)})\n"
        "screen = es.Screen(reference, rule='osha-sts'); tone = screen.ask()\n"
        "screen.tell(tone, True); screen.ask(); screen.verdict()\n"
        "es.Screen(es.Exam.from_dict(screen.continue_exam().to_dict()), rule='niosh-15').ask()\n"
        "es.Screen(hypotheses='notch').ask()\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


# Decisions -------------------------------------------------------------------------------------


def test_a_shift_is_found_and_none_is_cleared(first: es.Exam) -> None:
    worse = answered(es.Screen(first, rule="osha-sts", seed=2), moved(25.0)).verdict()
    same = answered(es.Screen(first, rule="osha-sts", seed=2), moved(0.0))
    assert (worse.decision, same.decision) == ("changed", "unchanged")
    assert worse.log_bf >= math.log(100.0)
    assert same.log_bf <= -math.log(100.0)
    assert worse.evidence_hz == (2000.0, 3000.0, 4000.0)
    assert worse.reason == worse.next_step == ""
    softest = {f: RULES["osha-sts"].criteria[0].at_least_db + MILD[f] for f in worse.evidence_hz}
    for f, level in softest.items():
        heard = [t.tone.level_db_hl for t in same.trials if t.heard and t.tone.frequency_hz == f]
        assert min(heard) <= level + 7.5  # of what the reference exam found
    middle = {s.frequency_hz: s.shift_db for s in worse.shifts}
    assert middle[3000.0] == pytest.approx(25.0, abs=10.0)


def test_an_improvement_is_found_by_its_own_rule(first: es.Exam) -> None:
    better = answered(es.Screen(first, rule="osha-sts improvement", seed=2), moved(-22.0))
    assert better.verdict().decision == "changed"
    assert "OSHA standard threshold shift improvement rule" in str(better.verdict())
    assert through_json(better).rule == RULES["osha-sts"].improvement
    loss = answered(es.Screen(first, rule="osha-sts", seed=2), moved(-22.0))
    assert loss.decision == "unchanged"


def test_several_rules_share_the_tones_and_have_a_verdict_each(first: es.Exam) -> None:
    names = ["osha-sts", "niosh-15"]
    screen = answered(es.Screen(first, rules=names, seed=2), moved(30.0))
    verdicts = screen.verdicts()
    assert list(verdicts) == names
    assert {v.decision for v in verdicts.values()} == {"changed"}
    assert {v.tones for v in verdicts.values()} == {len(screen.trials)}
    assert screen.verdict() == verdicts["osha-sts"]
    assert screen.rule == RULES["osha-sts"]


def test_a_limit_needs_no_reference() -> None:
    over = answered(es.Screen(rule=LIMIT, seed=1), es.Listener(dict.fromkeys(HZ, 65.0), seed=2))
    under = answered(es.Screen(rule=LIMIT, seed=1), es.Listener(NORMAL, seed=2))
    assert (over.decision, under.decision) == ("changed", "unchanged")
    assert over.verdict().shifts == ()
    assert isinstance(through_json(over).rule, es.ThresholdRule)
    with pytest.raises(ValueError, match="reference must be"):
        es.Screen(rules=[LIMIT, "osha-sts"])


def test_a_notch_is_told_from_a_slope() -> None:
    slope = dict(zip(HZ, (10.0, 15.0, 25.0, 40.0, 50.0, 60.0, 65.0), strict=True))
    for ear, decision in ((NOTCHED, "notch"), (slope, "no notch"), (NORMAL, "no notch")):
        screen = es.Screen(hypotheses="notch", seed=1, domain="audiometer", max_tones=40)
        assert answered(screen, es.Listener(ear, seed=4)).decision == decision
    both = es.Screen(ears="both", hypotheses="notch", seed=1, domain="audiometer", max_tones=80)
    ears = {"right": es.Listener(NOTCHED, seed=5), "left": es.Listener(NORMAL, seed=6)}
    verdict = answered(both, lambda tone: ears[str(tone.ear)](tone)).verdict()
    assert (verdict.right.decision, verdict.decision) == ("notch", "notch")


def test_prevalence_turns_the_factor_into_a_probability_and_does_nothing_else() -> None:
    screens = [
        answered(es.Screen(THEN, rule="osha-sts", settings=es.RuleSettings(prevalence=p)),
                 moved(10.0), tones=6)
        for p in (0.02, 0.3)
    ]  # fmt: skip
    assert screens[0].trials == screens[1].trials
    assert screens[0].log_bf == screens[1].log_bf
    for screen, p in zip(screens, (0.02, 0.3), strict=True):
        odds = screen.log_bf + math.log(p / (1.0 - p))
        assert screen.p_changed == pytest.approx(1.0 / (1.0 + math.exp(-odds)))


def test_what_was_known_after_each_tone_is_known_later(first: es.Exam) -> None:
    screen, seen = es.Screen(first, rule="osha-sts", seed=2), []
    for _ in range(5):
        seen.append(screen.p_changed)
        tone = screen.ask()
        screen.tell(tone, moved(20.0)(tone))
    assert [screen.p_changed_after(n) for n in range(5)] == pytest.approx(seen)
    assert through_json(screen).p_changed_after(2) == pytest.approx(seen[2])


@pytest.mark.parametrize("rule", ["osha-sts", "niosh-15"])
@pytest.mark.parametrize("kind", ["never", "always", "random"])
def test_somebody_who_does_not_listen_is_not_judged(first: es.Exam, rule: str, kind: str) -> None:
    rng = np.random.default_rng(8)
    answer = {"never": lambda _: False, "always": lambda _: True,
              "random": lambda _: bool(rng.random() < 0.5)}[kind]  # fmt: skip
    screen = es.Screen(first, rule=rule, seed=3)
    while not screen.done:
        screen.tell(screen.ask(), answer(None))
        if len(screen.trials) % 8 == 4:
            screen.tell_catch(answer(None))
    verdict = screen.verdict()
    assert (verdict.decision, verdict.reliability) == ("inconclusive", "poor")
    assert (verdict.reason, verdict.next_step) == ("not reliable", "retest")
    assert "do not follow the tones" in str(verdict)
    assert verdict.p_not_listening is not None
    assert verdict.p_not_listening > 0.5


def test_what_one_ear_says_of_the_listener_counts_for_the_other(first: es.Exam) -> None:
    screen = es.Screen({"right": first, "left": first}, ears="both", rule="osha-sts", seed=3)
    while not screen.done:
        screen.tell(screen.ask(), False)
    assert screen.verdict().right.reliability == screen.verdict().left.reliability == "poor"
    assert screen.decision == "inconclusive"


def test_an_open_case_says_why_and_what_would_help() -> None:
    rough = es.Audiogram(MILD, sd_db=9.0)
    verdict = answered(es.Screen(rough, rule="osha-sts", seed=2), moved(9.0)).verdict()
    assert (verdict.decision, verdict.reason) == ("inconclusive", "evidence")
    assert verdict.next_step == "better reference"
    assert "a better reference" in str(verdict)
    assert es.Screen(rough, rule="osha-sts").verdict().next_step == "more tones"
    assert min(verdict.effective_size) > 200.0
    assert 0.0 < float(verdict.attention or 0.0) <= 1.0


def test_silence_reported_decides_nothing(first: es.Exam) -> None:
    screen = es.Screen(first, rule="osha-sts", seed=2)
    for _ in range(3):
        screen.tell_catch(True)
    answered(screen, moved(0.0), tones=10)
    verdict = screen.verdict()
    assert (verdict.decision, verdict.reliability) == ("inconclusive", "poor")
    assert verdict.false_alarms == 3


def test_a_frequency_that_cannot_be_judged_is_named_and_clears_nobody() -> None:
    part = es.Audiogram({f: level for f, level in MILD.items() if f != 6000.0}, sd_db=2.0)
    screen = answered(es.Screen(part, rule="niosh-15", seed=2), moved(0.0))
    verdict = screen.verdict()
    assert verdict.not_determinable_hz == (6000.0,)
    assert verdict.decision in ("not determinable", "inconclusive")
    assert "6000 Hz" in str(verdict)
    found = answered(es.Screen(part, rule="niosh-15", seed=2), moved(30.0))
    assert found.decision == "changed"
    none = es.Screen(es.Audiogram({500.0: 20.0}), rule="osha-sts")
    assert none.done
    assert none.decision == "not determinable"
    assert none.ask().frequency_hz > 0.0


def test_a_device_that_may_be_off_explains_a_shift_of_all() -> None:
    settings = es.RuleSettings(device_offset_sd_db=10.0)
    factors = [
        answered(es.Screen(THEN, rule="osha-sts", seed=2, settings=known), moved(14.0), 10).log_bf
        for known in (None, settings)
    ]
    assert factors[1] < factors[0]


# Exams -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_clinical_exam_is_an_exam_that_stops_by_itself() -> None:
    steady = es.Listener(MILD, seed=3, spread_db=2.0)
    exam = answered(es.Exam.clinical(seed=5, max_tones=80), steady)
    assert isinstance(exam, es.Exam)
    assert len(exam.trials) < 80
    for found in exam.thresholds():
        assert found.high_db_hl - found.level_db_hl <= 5.5
        assert found.level_db_hl == pytest.approx(MILD[found.frequency_hz], abs=6.0)
    assert exam.reliability == "not assessed"
    assert 0.5 < exam.attention <= 1.0
    coarse = answered(es.Exam.clinical(seed=5, precision_db=12.0), es.Listener(MILD, seed=3))
    assert len(coarse.trials) < len(exam.trials)


def test_an_earlier_exam_of_the_ear_saves_tones(first: es.Exam) -> None:
    anew = answered(es.Exam.clinical(seed=5, precision_db=7.0), moved(0.0, seed=4))
    again = answered(
        es.Exam.clinical(seed=5, precision_db=7.0, reference=first), moved(0.0, seed=4)
    )
    assert len(again.trials) < len(anew.trials)
    assert through_json(again).ask() == again.ask()


def test_levels_of_unknown_equipment_are_measured_all_the_same() -> None:
    exam = answered(es.Exam.clinical(seed=2, domain="relative"), moved(-25.0), tones=40)
    for found in exam.thresholds([1000.0, 4000.0]):
        assert found.level_db_hl == pytest.approx(MILD[found.frequency_hz] - 25.0, abs=7.0)


def test_what_is_not_played_is_not_waited_for() -> None:
    device = tuple((f, -10.0, 80.0) for f in (500.0, 1000.0, 2000.0, 4000.0))
    exam = es.Exam.clinical(seed=2, limits=es.Limits(device=device), precision_db=8.0)
    answered(exam, es.Listener(MILD, seed=3, spread_db=2.0))
    assert len(exam.trials) < exam.max_tones
    assert {t.tone.frequency_hz for t in exam.trials} <= {500.0, 1000.0, 2000.0, 4000.0}


def test_silence_and_presses_count_in_an_exam() -> None:
    exam = answered(es.Exam.clinical(seed=2), moved(0.0), tones=12)
    for _ in range(4):
        exam.tell_catch(True)
    assert exam.reliability == "poor"
    assert exam.to_dict()["catches"] == [True] * 4
    dead = answered(es.Exam.clinical(seed=2), lambda _: False, tones=20)
    assert dead.notes
    assert not dead.precise


def test_a_screen_goes_over_into_an_exam_with_all_its_tones(first: es.Exam) -> None:
    screen = answered(es.Screen(first, rule="osha-sts", seed=2, limits=es.Limits()), moved(0.0))
    exam = screen.continue_exam()
    assert exam.trials == screen.trials
    assert exam.limits == screen.limits
    assert through_json(exam).ask() == exam.ask()
    assert type(es.Screen(first, "best").continue_exam()) is es.Exam


def test_an_exam_of_fields_is_a_reference_of_a_rule_and_the_other_way_round(
    first: es.Exam,
) -> None:
    fields = run_exam(es.Exam(domain="audiometer", seed=1), MILD, tones=40)
    found = answered(es.Screen(fields, rule="osha-sts", seed=2), moved(25.0))
    assert found.decision == "changed"
    assert 0.0 <= es.Screen(first, "best").p_changed <= 1.0
    names = [t.frequency_hz for t in es.Screen(first, rule="osha-sts").reference_thresholds(HZ)]
    assert names == list(HZ)


# Data of version 0.1.0 -------------------------------------------------------------------------

OLD_SETTINGS = {
    "prevalence": 0.2, "changed_at": 0.8, "unchanged_at": 0.02, "clearing_ratio": 10.0,
    "clearing_excess_db": 5.0, "clearing_risk": 0.05, "guess": 0.01, "lapse": 0.02,
    "retest_sd_db": 3.0, "device_offset_sd_db": 2.0, "max_tones": 25, "strategy": "differential",
}  # fmt: skip


def test_a_screen_begun_with_0_1_0_is_finished_and_says_so(first: es.Exam) -> None:
    screen = answered(es.Screen(THEN, rule="osha-sts", seed=2), moved(25.0), tones=4)
    data = screen.to_dict()
    del data["design"]["engine"]
    data["design"]["settings"] = OLD_SETTINGS
    old = es.Screen.from_dict(data)
    assert old.trials == screen.trials
    assert old.settings == es.RuleSettings(prevalence=0.2, device_offset_sd_db=2.0, max_tones=25)
    assert "started with version 0.1.0" in str(old.verdict())
    assert "started with version 0.1.0" in str(through_json(answered(old, moved(25.0))).verdict())
    notch = es.Screen(hypotheses="notch").to_dict()
    del notch["design"]["engine"]
    notch["design"]["settings"] = {"population": "any", "prevalence": 0.3, "notch_at": 0.9}
    assert "started with version 0.1.0" in str(es.Screen.from_dict(notch).verdict())


def test_a_full_exam_of_0_1_0_keeps_its_fields() -> None:
    settings = {"strategy": "level_set", "halton_tones": 5, "guess": 0.01, "lapse": 0.02}
    exam = run_exam(es.Exam(domain="audiometer", seed=3, **settings), MILD, tones=8)
    again = through_json(exam)
    assert "engine" not in again.to_dict()["design"]
    assert type(again) is es.Exam
    assert again.ask() == exam.ask()


# Bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: es.RuleSettings(changed_at=0.9), "changed_at"),
        (lambda: es.RuleSettings(guess=0.01, lapse=0.02), "guess, lapse"),
        (lambda: es.NotchSettings(population="any"), "population"),
        (lambda: es.Exam.clinical(strategy="bald"), "strategy"),
        (lambda: es.Screen({"right": THEN, "left": THEN}, ears="both", rule="osha-sts",
                           alike_share=0.3), "alike_share"),
    ],
)  # fmt: skip
def test_what_lost_its_meaning_warns(make: Callable[[], Any], name: str) -> None:
    with pytest.warns(DeprecationWarning, match=name):
        make()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: es.RuleSettings(bayes_factor=1.0), "bayes_factor must be above 1"),
        (lambda: es.RuleSettings(prevalence=1.0), "prevalence must be between"),
        (lambda: es.RuleSettings(device_offset_sd_db=-1.0), "must not be negative"),
        (lambda: es.RuleSettings(max_tones=0), "max_tones must be a whole number"),
        (lambda: es.NotchSettings(prevalence=float("nan")), "prevalence must be finite"),
        (lambda: es.Screen(THEN, rule="osha-sts", rules=["niosh-15"]), "rule or rules"),
        (lambda: es.Screen(THEN, rules="osha-sts"), "must be a list of rules"),
        (lambda: es.Screen(THEN, rules=["osha-sts", "osha-sts"]), "must be different"),
        (lambda: es.Screen(THEN, rules=["osha-sts"], protocol="best"), "not both"),
        (lambda: es.Screen(THEN, rule="osha-sts", settings=es.NotchSettings()), "RuleSettings"),
        (lambda: es.Screen(THEN, rule="tomorrow improvement"), "unknown rule 'tomorrow'"),
        (lambda: es.Screen(rule="osha-sts"), "reference must be"),
        (lambda: es.Screen(es.Exam.clinical(), rule="osha-sts"), "no trials"),
        (lambda: es.Exam.clinical(precision_db=0.0), "precision_db must be positive"),
        (lambda: es.Exam.clinical(reference=es.population_norm()), "Exam or Audiogram"),
        (lambda: es.Exam.clinical(reference={"right": THEN}), "ears='both'"),
        (lambda: es.Exam.clinical(ears="both", reference=THEN), "maps 'right' and 'left'"),
        (lambda: LIMIT.improvement, "no improvement"),
    ],
)
def test_bad_settings_are_refused_in_words(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_data_of_an_unknown_engine_is_refused() -> None:
    for procedure in (es.Exam.clinical(), es.Screen(THEN, rule="osha-sts")):
        data = procedure.to_dict()
        data["design"]["engine"] = "of tomorrow"
        with pytest.raises(ValueError, match="not known here"):
            type(procedure).from_dict(data)


def test_bad_answers_change_nothing() -> None:
    exam = es.Exam.clinical(seed=1)
    before = exam.to_dict()
    for tone, heard in ((es.Tone(1000.0, 40.0), "yes"), (es.Tone(125.0, 40.0), True)):
        with pytest.raises(ValueError, match=r"heard must be|outside the domain"):
            exam.tell(tone, heard)
    with pytest.raises(ValueError, match="heard must be"):
        exam.tell_catch(2)
    assert exam.to_dict() == before
