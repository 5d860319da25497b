"""Both ears in one sitting: the joint field, the ties of a screen, ears never mixed."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.record_digits import PATH, digits

import earshift as es
from earshift.engine import both_ears as bothears
from earshift.engine import ep, kernels, rules
from earshift.engine.both_ears import CORRELATIONS, answers_of_both, fit_ears
from earshift.engine.cross_hearing import INTERAURAL_DB
from earshift.engine.evidence import Rates
from earshift.engine.field import fit_theta
from earshift.engine.limits import allowed
from earshift.engine.norms import hyperprior
from earshift.engine.reference import audiogram_of
from support.helpers import (
    HZ,
    MILD,
    NORMAL,
    draw_theta,
    field_evidence,
    gaps_of,
    numeric_gradient,
    rows_to_latent,
    run_exam,
)

EARS = ("right", "left")
WORSE = {f: level + 10.0 for f, level in MILD.items()}
seeds = st.integers(0, 2**32 - 1)


def run_both(
    sitting: Any, ears: Mapping[str, Mapping[float, float]], tones: int, seed: int = 0
) -> Any:
    """Ask and answer until that many tones were told, whether the sitting is done or not."""
    listeners = {ear: es.Listener(ears[ear], seed=(seed, k)) for k, ear in enumerate(EARS)}
    while len(sitting.trials) < tones:
        tone = sitting.ask()
        sitting.tell(tone, listeners[tone.ear](tone))
    return sitting


def exam_of_both(**options: Any) -> es.Exam:
    """An exam of both ears' fields with an audiometer's tones."""
    usual = {"strategy": "level_set", "halton_tones": 5, "guess": 0.01, "lapse": 0.02}
    return es.Exam(ears="both", domain="audiometer", **{**usual, **options})


def swapped(trial: es.Trial) -> es.Trial:
    tone = trial.tone
    other = "left" if tone.ear == "right" else "right"
    return es.Trial(es.Tone(tone.frequency_hz, tone.level_db_hl, other), trial.heard)


def tell_all(sitting: Any, trials: Any) -> Any:
    for trial in trials:
        sitting.tell(trial.tone, trial.heard)
    return sitting


def through_json(sitting: Any, kind: Any) -> Any:
    return kind.from_dict(json.loads(json.dumps(sitting.to_dict())))


@pytest.fixture(scope="module")
def both() -> es.Exam:
    """Forty tones of two ears that differ by 10 dB. Read only: tests share it."""
    exam = exam_of_both(seed=1)
    return run_both(exam, {"right": MILD, "left": WORSE}, tones=40)


@pytest.fixture(scope="module")
def references() -> dict[str, es.Exam]:
    return {
        ear: run_exam(es.Exam.clinical(seed=k), MILD, tones=40, seed=k)
        for k, ear in enumerate(EARS)
    }


# Single ears stay as they were.


def test_one_ears_numbers_are_what_they_were_before_both_ears_could_be_tested() -> None:
    """Another order of summation rounds otherwise: hence the last few digits."""
    recorded = json.loads(PATH.read_text(encoding="utf-8"))

    def same(a: Any, b: Any) -> bool:
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
        if isinstance(a, list):
            return len(a) == len(b) and all(map(same, a, b))
        return math.isclose(a, b, rel_tol=1e-10) if isinstance(a, float) else bool(a == b)

    assert same(digits(), recorded)


# The kernel.


@given(seed=seeds, axes=st.integers(1, 2), rho=st.floats(-1.0, 1.0), count=st.integers(1, 12))
def test_the_covariance_of_both_ears_is_the_papers_and_positive_semi_definite(
    seed: int, axes: int, rho: float, count: int
) -> None:
    rng = np.random.default_rng(seed)
    theta, places = draw_theta(rng, axes), rng.normal(size=(count, axes))
    gaps = gaps_of(places, places)
    K = kernels.both_ears(kernels.covariance(theta, gaps), rho)
    np.testing.assert_allclose(K, kernels.two_exams(theta, theta, rho, gaps), rtol=1e-12)
    values = np.linalg.eigvalsh(K)
    assert values[0] >= -1e-9 * values[-1]


@given(seed=seeds)
def test_folding_a_gradient_is_the_transpose_of_doubling_a_covariance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    K, Q, rho = rng.normal(size=(4, 4)), rng.normal(size=(8, 8)), rng.uniform(-1, 1)
    doubled = (Q * kernels.both_ears(K, rho)).sum()
    assert (kernels.fold_ears(Q, rho) * K).sum() == pytest.approx(doubled, abs=1e-9)


# The joint field.


def test_the_joint_evidence_is_that_of_plain_ep_on_all_answers(both: es.Exam) -> None:
    answers = answers_of_both(both.trials[:14], both.domain)
    fitted = fit_theta(answers, hyperprior(), Rates(0.0, 0.0), 0.5)
    F = answers.places.shape[0]
    ear, place = answers.place // F, answers.place % F
    U = np.zeros((answers.count, 2 * (F + 1)))
    for k in (0, 1):
        rows = ear == k
        U[rows, k * (F + 1) : (k + 1) * (F + 1)] = rows_to_latent(
            place[rows], answers.intensity[rows], F
        )
    for rho in (-0.6, 0.0, 0.5, 0.95):
        S = kernels.two_exams(fitted.theta, fitted.theta, rho, answers.rows().gaps)
        mean = np.full(answers.count, fitted.theta[0])
        plain = ep.fit(mean, U @ S @ U.T, answers.answer > 0)
        log_Z, b, G, ok = fitted.at(rho)
        assert ok
        assert log_Z == pytest.approx(plain.log_evidence, abs=1e-5)
        np.testing.assert_allclose(mean + U @ S @ b, plain.mean, atol=1e-4)
        np.testing.assert_allclose(U @ (S - S @ G @ S) @ U.T, plain.cov, atol=1e-4)


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.9])
def test_the_gradient_of_the_joint_evidence_is_right(both: es.Exam, rho: float) -> None:
    answers = answers_of_both(both.trials[:20], both.domain)
    theta = np.array(hyperprior().mean)
    _, grad, settled = field_evidence(theta, answers, between_ears=rho, guess=0.01, lapse=0.02)
    assert settled
    by_steps = numeric_gradient(
        lambda t: field_evidence(t, answers, between_ears=rho, guess=0.01, lapse=0.02)[0], theta
    )
    np.testing.assert_allclose(grad, by_steps, rtol=1e-4, atol=1e-5)


def test_each_ears_field_has_the_moments_of_the_mixture_over_correlations(
    both: es.Exam,
) -> None:
    answers = answers_of_both(both.trials, both.domain)
    fields = fit_ears(answers, hyperprior(), 0.01, 0.02)
    fitted = fit_theta(answers, hyperprior(), Rates(0.01, 0.02), bothears.FITTED_AT)
    places = both.domain.places
    d = places.shape[0] + 1
    link = kernels.cross(fitted.theta, fitted.theta, gaps_of(places, answers.places))
    K = kernels.covariance(fitted.theta, gaps_of(places, places))
    log_Z, means, covs = [], [], []
    for rho in CORRELATIONS:
        value, b, G, _ = fitted.at(rho, bothears.TOLERANCE)
        wide = np.block([[link, rho * link], [rho * link, link]])
        before = np.tile(np.r_[0.0, np.full(d - 1, fitted.theta[0])], 2)
        log_Z.append(value)
        means.append(before + wide @ b)
        covs.append(kernels.both_ears(K, rho) - wide @ G @ wide.T)
    w = np.exp(np.array(log_Z) - max(log_Z))
    w /= w.sum()
    mean = w @ np.array(means)
    cov = sum(
        v * (c + np.outer(m - mean, m - mean)) for v, m, c in zip(w, means, covs, strict=True)
    )
    for k, ear in enumerate(EARS):
        own = slice(k * d, (k + 1) * d)
        m, c = fields[ear].latent(places)
        np.testing.assert_allclose(m, mean[own], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(c, cov[own, own], rtol=1e-7, atol=1e-8)


def test_an_ear_that_was_not_asked_learns_from_the_other_but_stays_less_sure() -> None:
    exam = exam_of_both(seed=2)
    listener = es.Listener(MILD, seed=3)
    for f in HZ:
        for level in (20.0, 35.0, 50.0, 65.0):
            tone = es.Tone(f, level, "right")
            exam.tell(tone, listener(tone))
    right, left = (exam.thresholds(ear=ear) for ear in EARS)
    for a, b in zip(right, left, strict=True):
        assert b.high_db_hl - b.low_db_hl > a.high_db_hl - a.low_db_hl
        assert abs(a.level_db_hl - b.level_db_hl) < 20.0


@pytest.mark.parametrize("seed", range(3))
def test_two_different_ears_are_measured_each_for_itself(seed: int) -> None:
    exam = exam_of_both(seed=seed)
    run_both(exam, {"right": NORMAL, "left": MILD}, tones=exam.max_tones, seed=seed)
    for ear, truth in (("right", NORMAL), ("left", MILD)):
        found = exam.thresholds(HZ, ear=ear)
        errors = [t.level_db_hl - truth[t.frequency_hz] for t in found]
        assert np.sqrt(np.mean(np.square(errors))) < 7.0


# Ears are never mixed.


@pytest.mark.parametrize("strategy", ["level_set", "bald"])
def test_swapping_all_answers_of_an_exam_swaps_all_results(both: es.Exam, strategy: str) -> None:
    one, other = (
        tell_all(exam_of_both(seed=1, strategy=strategy), trials)
        for trials in (both.trials, [swapped(trial) for trial in both.trials])
    )
    places = one.domain.shape[0]
    np.testing.assert_allclose(
        one.scores(), np.roll(other.scores(), places, axis=0), rtol=1e-7, atol=1e-9
    )
    for here, there in (("right", "left"), ("left", "right")):
        for a, b in zip(one.thresholds(ear=here), other.thresholds(ear=there), strict=True):
            assert a.level_db_hl == pytest.approx(b.level_db_hl, abs=1e-6)
            assert a.high_db_hl == pytest.approx(b.high_db_hl, abs=1e-6)
    assert one.ask() == swapped(es.Trial(other.ask(), True)).tone


@pytest.mark.parametrize("question", [{"rule": "osha-sts"}, {"protocol": "best"}])
def test_swapping_all_answers_and_references_of_a_screen_swaps_all_results(
    references: dict[str, es.Exam], question: dict[str, str]
) -> None:
    screen = es.Screen(references, ears="both", seed=4, **question)
    run_both(screen, {"right": MILD, "left": WORSE}, tones=9)
    mirror = es.Screen(
        {"right": references["left"], "left": references["right"]}, ears="both", seed=4, **question
    )
    tell_all(mirror, [swapped(trial) for trial in screen.trials])
    one, other = screen.verdict(), mirror.verdict()
    assert one.decision == other.decision
    for here, there in (("right", "left"), ("left", "right")):
        a, b = getattr(one, here), getattr(other, there)
        assert (a.decision, a.tones) == (b.decision, b.tones)
        assert a.p_changed == pytest.approx(b.p_changed, abs=1e-9)
        assert [s.shift_db for s in a.shifts] == pytest.approx(
            [s.shift_db for s in b.shifts], abs=1e-9
        )


def test_untied_ears_are_two_screens(references: dict[str, es.Exam]) -> None:
    screen = es.Screen(references, ears="both", protocol="best", alike_share=0.0, seed=5)
    run_both(screen, {"right": MILD, "left": WORSE}, tones=8)
    for ear, other in (("right", "left"), ("left", "right")):
        alone = es.Screen(
            references[ear],
            protocol="best",
            seed=5,
            other_ear=audiogram_of(references[other]),
        )
        for trial in screen.trials:
            if trial.tone.ear == ear:
                alone.tell(trial.tone, trial.heard)
        assert screen.p_changed(ear) == pytest.approx(alone.p_changed, abs=1e-9)


def test_what_happened_to_one_ear_makes_the_other_likelier_to_have_changed(
    references: dict[str, es.Exam],
) -> None:
    screen = es.Screen(references, ears="both", protocol="best")
    before = screen.p_changed("left")
    for f in (2000.0, 3000.0, 4000.0):  # 20 dB above the reference and not heard
        screen.tell(es.Tone(f, 70.0, "right"), False)
    assert screen.p_changed("right") > 0.8
    assert before + 0.05 < screen.p_changed("left") < screen.p_changed("right")
    assert screen.verdict().left.tones == 0


# The contract of ask and tell.


@pytest.mark.parametrize("tones", [0, 3, 12])
def test_an_exam_goes_on_after_the_trip_through_json(tones: int) -> None:
    exam = exam_of_both(seed=7, transducer="insert", limits=es.Limits())
    run_both(exam, {"right": MILD, "left": WORSE}, tones=tones)
    again = through_json(exam, es.Exam)
    assert again.to_dict() == exam.to_dict()
    for _ in range(3):
        tone = exam.ask()
        assert again.ask() == tone == exam.ask()
        exam.tell(tone, True)
        again.tell(tone, True)


@pytest.mark.parametrize(
    "question", [{"rule": "osha-sts"}, {"protocol": "best", "alike_share": 0.3}]
)
def test_a_screen_goes_on_after_the_trip_through_json(
    both: es.Exam, question: dict[str, Any]
) -> None:
    screen = es.Screen(both, ears="both", seed=9, **question)
    run_both(screen, {"right": MILD, "left": WORSE}, tones=4)
    screen.tell_catch(False)
    screen.tell_press()
    again = through_json(screen, es.Screen)
    assert again.to_dict() == screen.to_dict()
    assert again.ask() == screen.ask()
    assert again.verdict() == screen.verdict()


def test_the_seed_and_the_trials_decide_the_next_tone(both: es.Exam) -> None:
    first, second = (exam_of_both(seed=11) for _ in range(2))
    ears = {"right": MILD, "left": WORSE}
    assert run_both(first, ears, 12).trials == run_both(second, ears, 12).trials


def test_a_fork_goes_its_own_way(references: dict[str, es.Exam]) -> None:
    screen = es.Screen(references, ears="both", protocol="best", seed=1)
    run_both(screen, {"right": MILD, "left": MILD}, 2)
    before = screen.p_changed("left")
    fork = screen.fork()
    for f in (2000.0, 3000.0, 4000.0):
        fork.tell(es.Tone(f, 70.0, "right"), False)
    assert screen.p_changed("left") == before < fork.p_changed("left")
    assert len(screen.trials) == 2


def test_both_ears_are_asked(both: es.Exam) -> None:
    counts = [sum(trial.tone.ear == ear for trial in both.trials) for ear in EARS]
    assert min(counts) >= 12


def test_an_ear_that_is_decided_is_asked_no_more(references: dict[str, es.Exam]) -> None:
    screen = es.Screen(references, ears="both", rule="osha-sts", seed=1)
    for f in (2000.0, 3000.0, 4000.0):
        for level, heard in ((90.0, True), (75.0, False), (90.0, True), (70.0, False)):
            screen.tell(es.Tone(f, level, "right"), heard)
    assert screen.of("right").decision == "changed"
    assert screen.open_ears == ("left",)
    assert not screen.done
    for _ in range(3):
        if screen.done:
            break
        tone = screen.ask()
        assert tone.ear == "left"
        screen.tell(tone, tone.level_db_hl > MILD.get(tone.frequency_hz, 50.0))


def test_each_ear_gets_at_most_half_of_the_tones(references: dict[str, es.Exam]) -> None:
    screen = es.Screen(references, ears="both", rule="osha-sts", max_tones=6)
    for k in range(3):
        screen.tell(es.Tone(500.0, 40.0, "right"), k % 2 == 0)
    assert "right" not in screen.open_ears


@pytest.mark.parametrize(
    ("right", "left", "person"),
    [
        ("changed", "inconclusive", "changed"),
        ("changed", "not determinable", "changed"),
        ("unchanged", "unchanged", "unchanged"),
        ("unchanged", "inconclusive", "inconclusive"),
        ("unchanged", "not determinable", "not determinable"),
        ("inconclusive", "not determinable", "inconclusive"),
    ],
)
def test_the_person_changed_by_one_ear_and_is_unchanged_by_both(
    right: str, left: str, person: str
) -> None:
    assert rules.person_decision(right, left) == person
    assert rules.person_decision(left, right) == person


def test_a_verdict_speaks_of_the_person_and_of_either_ear(references: dict[str, es.Exam]) -> None:
    screen = es.Screen(references, ears="both", rule="osha-sts", seed=2)
    louder = {f: level + 30.0 for f, level in MILD.items()}
    while not screen.done:
        run_both(screen, {"right": MILD, "left": louder}, len(screen.trials) + 1, seed=3)
    verdict = screen.verdict()
    assert verdict.decision == "changed"
    assert verdict.left.decision == "changed"
    assert verdict.right.decision == "unchanged"
    assert verdict.tones == verdict.right.tones + verdict.left.tones == len(screen.trials)
    assert verdict.to_dict()["left"]["decision"] == "changed"
    assert "Left ear: average at 2-4 kHz is" in str(verdict)


def test_a_reference_that_determines_nothing_leaves_the_person_not_determinable() -> None:
    low = es.Audiogram({500.0: 20.0, 1000.0: 20.0})
    screen = es.Screen({"right": low, "left": es.Audiogram(NORMAL)}, ears="both", rule="osha-sts")
    assert screen.verdict().right.decision == "not determinable"
    assert screen.open_ears == ("left",)


def test_silence_reported_clears_neither_ear(references: dict[str, es.Exam]) -> None:
    screen = es.Screen(references, ears="both", rule="osha-sts", seed=2)
    screen.tell_catch(True)
    screen.tell_catch(True)
    run_both(screen, {"right": MILD, "left": MILD}, 12)
    assert {screen.verdict().right.decision, screen.verdict().left.decision} <= {
        "inconclusive",
        "changed",
    }
    assert screen.verdict().left.reliability == "poor"


def test_the_full_exam_goes_on_from_the_screen(references: dict[str, es.Exam]) -> None:
    screen = es.Screen(references, ears="both", rule="osha-sts", seed=2)
    run_both(screen, {"right": MILD, "left": MILD}, 6)
    exam = screen.continue_exam()
    assert exam.trials == screen.trials
    assert exam.ask().ear in EARS


def test_an_exam_of_both_ears_is_a_reference_of_either(both: es.Exam) -> None:
    screen = es.Screen(both.of("left"), rule="osha-sts")
    assert through_json(screen, es.Screen).p_changed == screen.p_changed
    before = [t.level_db_hl for t in both.of("left").thresholds()]
    assert before == [t.level_db_hl for t in both.thresholds(ear="left")]


# Loudness.


def test_trials_of_one_ear_never_raise_the_ceiling_of_the_other() -> None:
    exam = exam_of_both(seed=3, limits=es.Limits(), halton_tones=4)
    for level in (40.0, 60.0, 80.0):
        exam.tell(es.Tone(1000.0, level, "right"), False)
    mask = exam._playable()
    places = exam.domain.shape[0]
    levels = np.array(exam.domain.intensity.values)
    k = list(exam.domain.smooth[0].values).index(1000.0)
    assert levels[mask[k]].max() == 90.0
    assert levels[mask[places + k]].max() <= 40.0
    asked = [run_both(exam, {"right": MILD, "left": WORSE}, 4 + n).trials[-1] for n in range(12)]
    for n, trial in enumerate(asked):
        own = [t for t in exam.trials[: 3 + n] if t.tone.ear == trial.tone.ear]
        row = list(exam.domain.smooth[0].values).index(trial.tone.frequency_hz)
        top = levels[allowed(es.Limits(), exam.domain, own)[row]].max()
        assert trial.tone.level_db_hl <= top


@pytest.mark.parametrize("transducer", ["supra-aural", "insert"])
def test_what_the_other_ear_might_hear_is_not_asked_and_the_threshold_is_flagged(
    transducer: str,
) -> None:
    good, dead = dict.fromkeys(HZ, 0.0), dict.fromkeys(HZ, 95.0)
    exam = exam_of_both(seed=5, transducer=transducer, limits=es.Limits())
    run_both(exam, {"right": dead, "left": good}, 60)
    away = INTERAURAL_DB[transducer]
    late = [t.tone.level_db_hl for t in exam.trials[40:] if t.tone.ear == "right"]
    assert max(late, default=0.0) < away + 15.0  # of what was thought of the other ear then
    right, left = (exam.thresholds(ear=ear) for ear in EARS)
    assert all(t.cross_hearing for t in right if t.level_db_hl > away + 15.0)
    assert any(t.cross_hearing for t in right)
    assert not any(t.cross_hearing for t in left)


def test_tones_given_too_loud_are_found_again_when_the_other_ear_is_known() -> None:
    exam = exam_of_both(seed=5)
    loud = es.Tone(1000.0, 90.0, "right")
    exam.tell(loud, True)
    assert exam.cross_heard == ()  # nothing is known of the left ear
    run_both(exam, {"right": NORMAL, "left": NORMAL}, 40)
    assert exam.trials[0] in exam.cross_heard


def test_a_screen_does_not_ask_what_the_other_ear_might_hear() -> None:
    good, poor = es.Audiogram(dict.fromkeys(HZ, 0.0)), es.Audiogram(dict.fromkeys(HZ, 60.0))
    screen = es.Screen({"right": poor, "left": good}, ears="both", rule="osha-sts")
    assert screen.verdict().right.decision == "not determinable"
    assert "other ear might hear" in str(screen.verdict().right)
    assert screen.open_ears == ("left",)


# Bad input.


@pytest.mark.parametrize("tone", [es.Tone(1000.0, 40.0), "1000 Hz", None])
def test_a_tone_without_its_ear_is_refused_and_changes_nothing(
    references: dict[str, es.Exam], tone: Any
) -> None:
    for sitting in (
        es.Exam(ears="both"),
        es.Screen(references, ears="both", rule="osha-sts"),
    ):
        with pytest.raises(ValueError, match=r"ear|Tone"):
            sitting.tell(tone, True)
        assert sitting.trials == ()


@pytest.mark.parametrize(
    "options",
    [
        {"ears": "left"},
        {"ears": "two"},
        {"ears": "both", "other_ear": es.Audiogram(MILD)},
        {"ears": "both", "ear": "middle"},
        {"ears": "both", "transducer": "bone"},
        {
            "ears": "both",
            "domain": es.Domain(
                es.Axis("contrast_db", "dB", (-40.0, 0.0), 0.0, 10.0),
                (es.Axis("cycles", "c/deg", (1.0, 2.0), 1.0, 1.0),),
            ),
        },
    ],
)
def test_an_exam_refuses_bad_settings(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"ear|transducer"):
        es.Exam(**options)


@pytest.mark.parametrize(
    ("reference", "options"),
    [
        (es.Audiogram(MILD), {}),
        ({"right": es.Audiogram(MILD)}, {}),
        ({"right": es.Audiogram(MILD), "left": None}, {}),
        ({"right": es.Audiogram(MILD), "left": es.Audiogram(MILD), "third": 1}, {}),
        ({ear: es.Audiogram(MILD) for ear in EARS}, {"alike_share": 1.5}),
        ({ear: es.Audiogram(MILD) for ear in EARS}, {"alike_share": math.nan}),
        (None, {}),
        ({ear: es.Audiogram(MILD) for ear in EARS}, {"hypotheses": "notch", "rule": "osha-sts"}),
        ({ear: es.Audiogram(MILD) for ear in EARS}, {"other_ear": es.Audiogram(MILD)}),
        ({ear: es.Audiogram(MILD) for ear in EARS}, {"max_tones": 0}),
        ({ear: es.Audiogram(MILD) for ear in EARS}, {"protocol": "best"}),
    ],
)
def test_a_screen_refuses_bad_references_and_settings(
    reference: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"reference|one ear|alike_share|max_tones|protocol"):
        es.Screen(reference, **{"ears": "both", "rule": "osha-sts", **options})


def test_one_ear_must_be_named(both: es.Exam) -> None:
    with pytest.raises(ValueError, match="say ear"):
        both.thresholds()
    with pytest.raises(ValueError, match="say ear"):
        _ = both.field
    with pytest.raises(ValueError, match="one ear"):
        es.Exam().thresholds(ear="left")
    with pytest.raises(ValueError, match="'right' or 'left'"):
        es.Screen({ear: es.Audiogram(MILD) for ear in EARS}, ears="both").p_changed("both")


def test_an_exam_of_one_ear_is_no_reference_of_the_other() -> None:
    exam = exam_of_both()
    exam.tell(es.Tone(1000.0, 40.0, "right"), True)
    with pytest.raises(ValueError, match="no trials of the left ear"):
        es.Screen(exam, ears="both", rule="osha-sts")


def test_the_other_ears_reference_is_refused(both: es.Exam) -> None:
    crossed = {"right": both.of("left"), "left": both.of("right")}
    with pytest.raises(ValueError, match="left ear's exam was given as the right"):
        es.Screen(crossed, ears="both", rule="osha-sts")
    left = es.Exam.clinical()
    left.tell(es.Tone(1000.0, 40.0, "left"), True)
    with pytest.raises(ValueError, match="tones of the other ear"):
        es.Screen({"right": left, "left": left}, ears="both", rule="osha-sts")
    same = es.Screen({"right": both, "left": both}, ears="both", rule="osha-sts")
    assert same.to_dict() == es.Screen(both, ears="both", rule="osha-sts").to_dict()


def test_a_population_says_nothing_of_what_the_other_ear_might_hear() -> None:
    norm = es.population_norm()
    screen = es.Screen({"right": norm, "left": norm}, ears="both", protocol="best")
    screen.tell(es.Tone(1000.0, 90.0, "right"), False)
    assert "cross-hearing not checked" in str(screen.verdict().right)


# One model of a person ---------------------------------------------------------------------------


def test_answers_of_one_ear_move_what_is_expected_of_the_other() -> None:
    screen = es.Screen(ears="both", hypotheses="notch", seed=1)
    before = screen.thresholds([2000.0], ear="left")[0].level_db_hl
    for level in (30.0, 45.0, 60.0):
        screen.tell(es.Tone(2000.0, level, ear="right"), heard=False)
    assert screen.thresholds([2000.0], ear="left")[0].level_db_hl > before + 5.0


def test_the_other_ear_tells_a_device_from_an_ear() -> None:
    """Both ears hear through one device: one that hears as before clears the device."""
    then = es.Audiogram(dict.fromkeys((500, 1000, 2000, 3000, 4000, 6000, 8000), 20.0), sd_db=3.0)
    settings = es.RuleSettings(device_offset_sd_db=6.0)
    found = {}
    for ears, reference in (("both", {"right": then, "left": then}), (None, then)):
        screen = es.Screen(reference, ears=ears, rule="osha-sts", settings=settings, seed=1)
        ear = "right" if ears else None
        for hz in (2000.0, 3000.0, 4000.0, 1000.0):
            screen.tell(es.Tone(hz, 30.0, ear=ear), heard=False)
            screen.tell(es.Tone(hz, 45.0, ear=ear), heard=True)
            if ears:
                screen.tell(es.Tone(hz, 20.0, ear="left"), heard=True)
                screen.tell(es.Tone(hz, 10.0, ear="left"), heard=False)
        found[ears] = (screen.of("right") if ears else screen).log_bf
    assert found["both"] > found[None] + 1.0


def test_audiograms_of_both_ears_are_read_together() -> None:
    """Of an ear with one reading the other ear's audiogram says the rest."""
    hz = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)
    one = es.Audiogram({1000.0: 20.0})
    medians = [
        es.Screen(
            {"right": one, "left": es.Audiogram(dict(zip(hz, levels, strict=True)))},
            ears="both", rule="osha-sts", allow_unverified=True, seed=1,
        ).reference_thresholds([4000.0], ear="right")[0].level_db_hl
        for levels in ((20, 20, 20, 20, 20, 20, 20), (20, 20, 30, 50, 60, 60, 60))
    ]  # fmt: skip
    assert medians[1] > medians[0] + 10.0
