"""Screening for a threshold-shift rule."""

import json
from collections.abc import Mapping

import numpy as np
import pytest

import earshift as es
from earshift.engine import field, shift
from earshift.engine.answers import answers_of
from earshift.engine.cross_hearing import crossing_level
from earshift.engine.domain import DOMAINS
from earshift.engine.norms import hyperprior, tables
from earshift.engine.rules import RULES, Criterion, Rule
from support.helpers import HZ, MILD, NORMAL, run_exam

AUDIOMETER = DOMAINS["audiometer"]


@pytest.fixture(scope="module")
def first() -> es.Exam:
    """A first exam with lapses. Read only."""
    exam = es.Exam(seed=4, domain="audiometer", lapse=0.02, guess=0.01)
    return run_exam(exam, NORMAL, tones=50, lapse=0.02)


def moved(ear: Mapping[float, float], by: Mapping[float, float] | float) -> dict[float, float]:
    return {f: t + (by if isinstance(by, float) else by.get(f, 0.0)) for f, t in ear.items()}


def run_screen(first: es.Exam, ear: Mapping[float, float], rule: str, seed: int = 1) -> es.Screen:
    screen = es.Screen(first, rule=rule, seed=seed)
    listener = es.Listener(ear, spread_db=4.0, lapse=0.02, seed=seed)
    while not screen.done:
        tone = screen.ask()
        screen.tell(tone, listener(tone))
    return screen


@pytest.mark.parametrize("rule", ["osha-sts", "niosh-15", "msha-sts"])
@pytest.mark.parametrize(
    ("by", "decision"),
    [
        (0.0, "unchanged"),
        (25.0, "changed"),
        ({3000.0: 30.0, 4000.0: 35.0, 6000.0: 30.0, 2000.0: 15.0, 8000.0: 20.0}, "changed"),
    ],
)
def test_a_rule_is_decided_as_it_is_in_truth(
    first: es.Exam, rule: str, by: Mapping[float, float] | float, decision: str
) -> None:
    verdict = run_screen(first, moved(NORMAL, by), rule).verdict()
    assert verdict.decision == decision
    assert verdict.rule == rule
    assert verdict.protocol is None
    assert rule in str(verdict)
    assert verdict.converged
    assert set(verdict.evidence_hz) <= set(RULES[rule].frequencies_hz)


def test_an_improvement_does_not_meet_a_rule_about_worse_hearing() -> None:
    reference = run_exam(es.Exam(seed=2, domain="audiometer"), MILD, tones=50)
    verdict = run_screen(reference, moved(MILD, -20.0), "osha-sts").verdict()
    assert verdict.decision == "unchanged"
    assert np.mean([s.shift_db for s in verdict.shifts if s.frequency_hz >= 1000]) < 0


@pytest.mark.parametrize("prevalence", [0.05, 0.12, 0.3, 0.6])
@pytest.mark.parametrize("rule", ["osha-sts", "niosh-15"])
def test_prevalence_is_the_probability_before_the_first_tone(
    first: es.Exam, rule: str, prevalence: float
) -> None:
    settings = es.RuleSettings(prevalence=prevalence, unchanged_at=0.01)
    screen = es.Screen(first, rule=rule, settings=settings)
    assert screen.p_changed == pytest.approx(prevalence, abs=0.015)
    assert screen.log_bf == pytest.approx(0.0, abs=0.2)
    assert screen.decision == "inconclusive"


def test_one_component_agrees_with_plain_linear_algebra(first: es.Exam) -> None:
    """Without answers the samples are the prior: mean, jitter and the link between delta and g."""
    reference = field.fit(answers_of(first.trials, AUDIOMETER), hyperprior(), 0.01, 0.02)
    settings = es.RuleSettings()
    model = shift.ShiftModel(reference, AUDIOMETER, RULES["osha-sts"], settings, seed=0)
    state = model.weigh(answers_of((), AUDIOMETER))
    only = np.zeros(len(model.names))
    only[0] = 1.0
    places = model.rule_places
    draws = state.draw(places, places, only, 40_000, 9)
    delta = draws.delta_db
    mean, cov = reference.latent(places)
    np.testing.assert_allclose(delta.mean(axis=0), 0.0, atol=0.1)
    np.testing.assert_allclose(delta.std(axis=0), settings.retest_sd_db, rtol=0.02)
    np.testing.assert_allclose(draws.slope.mean(), mean[0], rtol=0.01)
    np.testing.assert_array_equal(draws.common_db, 0.0)
    h = draws.offsets + model.k * delta
    np.testing.assert_allclose(h.mean(axis=0), mean[1:], rtol=0.02)
    np.testing.assert_allclose(np.cov(h.T), cov[1:, 1:], rtol=0.1, atol=0.02)
    np.testing.assert_allclose(
        [np.corrcoef(h[:, k], delta[:, k])[0, 1] for k in range(3)], 0.0, atol=0.02
    )


def test_a_component_with_answers_is_a_gaussian_conditioned_on_its_sites(first: es.Exam) -> None:
    """The samples after some answers have the moments that plain conditioning gives."""
    reference = field.fit(answers_of(first.trials, AUDIOMETER), hyperprior(), 0.01, 0.02)
    settings = es.RuleSettings(device_offset_sd_db=4.0)
    model = shift.ShiftModel(reference, AUDIOMETER, RULES["osha-sts"], settings, seed=0)
    trials = [es.Trial(es.Tone(f, 25.0), f < 3000) for f in (1000.0, 2000.0, 3000.0, 4000.0)]
    answers = answers_of(trials, AUDIOMETER)
    state = model.weigh(answers)
    part = model.names.index("flat, +12 dB")
    only = np.zeros(len(model.names))
    only[part] = 1.0
    draws = state.draw(answers.places, model.rule_places, only, 60_000, 9)
    # The same by hand: prior over (w, g at the tones, delta at the spots, common), f = A x.
    k, n = model.k, answers.places.shape[0]
    m0, S0 = reference.latent(answers.places)
    used, spots = answers.places, model.rule_places
    jitter = model.covariances
    size = 1 + n + 3 + 1
    K = np.zeros((size, size))
    K[: 1 + n, : 1 + n] = S0
    K[1 : 1 + n, 1 : 1 + n] += k**2 * (jitter(used, used)[1] + 16.0)
    K[1 + n : -1, 1 + n : -1] = jitter(spots, spots)[1]
    K[1 : 1 + n, 1 + n : -1] = -k * jitter(used, spots)[1]
    K[1 + n : -1, 1 : 1 + n] = K[1 : 1 + n, 1 + n : -1].T
    K[-1, -1] = 16.0
    K[-1, 1 : 1 + n] = K[1 : 1 + n, -1] = -k * 16.0
    mean = np.concatenate([m0, np.zeros(3), [12.0]])
    mean[1 : 1 + n] -= k * 12.0
    b, G = state.bs[part], state.Gs[part]
    link = K[:, : 1 + n]
    wanted_mean, wanted_cov = mean + link @ b, K - link @ G @ link.T
    got = np.column_stack([draws.slope, draws.offsets, draws.delta_db, draws.common_db])
    np.testing.assert_allclose(got.mean(axis=0), wanted_mean, atol=0.1)
    np.testing.assert_allclose(np.cov(got.T), wanted_cov, rtol=0.05, atol=0.25)


def test_the_monte_carlo_error_at_the_limits_is_below_0_003(first: es.Exam) -> None:
    """Many seeds on the same answers: P(rule met) differs by its Monte-Carlo error alone."""
    ear = moved(NORMAL, 11.0)
    reached = []
    screens = [es.Screen(first, rule="niosh-15", seed=seed) for seed in range(12)]
    listener = es.Listener(ear, spread_db=4.0, seed=3)
    for _ in range(10):
        tone = screens[0].ask()
        heard = listener(tone)
        for screen in screens:
            screen.tell(tone, heard)
        p = np.array([screen.p_changed for screen in screens])
        reached.append(p.std(ddof=1))
        assert p.std(ddof=1) < 0.005  # an SD from 12 seeds is itself known to a fifth
    assert np.mean(reached) < 0.003


def test_low_prevalence_alone_clears_nobody(first: es.Exam) -> None:
    settings = es.RuleSettings(prevalence=0.03, unchanged_at=0.025)
    screen = es.Screen(first, rule="osha-sts", settings=settings)
    screen.tell(es.Tone(8000.0, 95.0), True)  # says next to nothing about 2 to 4 kHz
    assert screen.p_changed < 0.05
    assert screen.decision == "inconclusive"


def test_a_screen_by_rule_survives_the_trip_through_json(first: es.Exam) -> None:
    screen = es.Screen(first, rule="niosh-15", seed=7)
    listener = es.Listener(MILD, seed=3)
    screen.tell_catch(False)
    for _ in range(3):
        again = es.Screen.from_dict(json.loads(json.dumps(screen.to_dict())))
        assert again.ask() == screen.ask()
        assert again.verdict() == screen.verdict()
        screen.tell(screen.ask(), listener(screen.ask()))


def test_catch_trials_decide_the_reliability(first: es.Exam) -> None:
    screen = es.Screen(first, rule="osha-sts")
    assert screen.verdict().reliability == "good"
    for heard, grade in ((False, "good"), (True, "fair"), (True, "poor"), (False, "poor")):
        screen.tell_catch(heard)
        assert screen.verdict().reliability == grade
    assert screen.verdict().catch_trials == 4
    assert screen.verdict().false_alarms == 2
    assert screen.trials == ()


def test_the_full_exam_goes_on_from_the_screen(first: es.Exam) -> None:
    ear = moved(NORMAL, 25.0)
    screen = run_screen(first, ear, "osha-sts")
    exam = screen.continue_exam()
    assert exam.trials == screen.trials
    run_exam(exam, ear, tones=50, seed=9, lapse=0.02)
    errors = [t.level_db_hl - ear[t.frequency_hz] for t in exam.thresholds(HZ)]
    assert np.sqrt(np.mean(np.square(errors))) < 5.0


def test_an_unverified_rule_is_opted_into_and_marked(first: es.Exam) -> None:
    with pytest.raises(ValueError, match="allow_unverified"):
        es.Screen(first, rule="asha-1994")
    verdict = es.Screen(first, rule="asha-1994", allow_unverified=True).verdict()
    assert "not verified" in str(verdict)
    assert "not verified" in str(verdict.to_dict()["unverified"])


def test_a_rule_of_ones_own(first: es.Exam) -> None:
    rule = Rule("mine", (Criterion((6000.0, 8000.0), 12.0),))
    screen = es.Screen(first, rule=rule)
    assert screen.verdict().rule == "mine"
    assert 0.0 < screen.p_changed < 0.5


@pytest.mark.parametrize(
    "options",
    [
        {"rule": "osha-sts", "protocol": "best"},
        {"rule": "unknown"},
        {"rule": 3},
        {"settings": es.RuleSettings()},
        {"rule": "osha-sts", "settings": {"prevalence": 0.1}},
    ],
)
def test_what_does_not_go_together_is_refused(first: es.Exam, options: dict) -> None:
    with pytest.raises(ValueError, match=r".+"):
        es.Screen(first, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"prevalence": 0.0},
        {"prevalence": float("nan")},
        {"unchanged_at": 0.2},
        {"changed_at": 0.1},
        {"changed_at": 1.0},
        {"clearing_ratio": 0.5},
        {"clearing_risk": 0.0},
        {"clearing_excess_db": -50.0},
        {"retest_sd_db": 0.0},
        {"device_offset_sd_db": -1.0},
        {"guess": 0.6},
        {"lapse": "much"},
        {"max_tones": 0},
    ],
)
def test_settings_out_of_range_are_refused(options: dict) -> None:
    with pytest.raises(ValueError, match=r".+"):
        es.RuleSettings(**options)


# Not determinable --------------------------------------------------------------------------------


def test_a_reference_without_the_rules_frequencies_determines_nothing() -> None:
    partial = es.Audiogram({1000.0: 5.0, 2000.0: 5.0, 4000.0: 10.0})
    screen = es.Screen(partial, rule="osha-sts")
    assert screen.done
    assert (screen.p_changed, screen.log_bf) == (es.RuleSettings().prevalence, 0.0)
    verdict = screen.verdict()
    assert verdict.decision == "not determinable"
    assert verdict.not_determinable_hz == (3000.0,)
    assert "3000 Hz" in str(verdict)
    assert es.Screen(es.Audiogram(NORMAL), rule="osha-sts").decision == "inconclusive"


def test_a_missing_frequency_can_still_be_changed_but_never_unchanged() -> None:
    """NIOSH is met by any frequency; clearing needs them all."""
    partial = es.Audiogram({f: t for f, t in NORMAL.items() if f != 500.0}, sd_db=2.0)
    for by, decision in ((30.0, "changed"), (0.0, "not determinable")):
        screen = es.Screen(partial, rule="niosh-15", domain="audiometer")
        listener = es.Listener(moved(NORMAL, by), spread_db=2.0, seed=2)
        while not screen.done:
            tone = screen.ask()
            screen.tell(tone, listener(tone))
        assert screen.decision == decision
        assert screen.verdict().not_determinable_hz == (500.0,)


def test_a_shift_beyond_the_loudest_tone_is_not_determinable(first: es.Exam) -> None:
    loud = es.Audiogram(dict.fromkeys(NORMAL, 88.0))
    assert es.Screen(loud, rule="osha-sts").decision == "inconclusive"  # 98 dB HL can be played
    assert es.Screen(loud, rule="osha-sts", limits=es.Limits()).decision == "not determinable"
    assert es.Screen(loud, rule="niosh-15").decision == "not determinable"
    assert es.Screen(first, rule="niosh-15", limits=es.Limits()).decision == "inconclusive"


@pytest.mark.parametrize(
    ("transducer", "other", "open_hz"),
    [
        ("unknown", 0.0, False),  # 35 + 10 dB HL needed, heard by the other ear from 40
        ("supra-aural", 0.0, False),
        ("insert", 0.0, True),  # ... with inserts from 55
        ("unknown", 6.0, True),
    ],
)
def test_what_the_other_ear_might_hear_is_not_determinable(
    transducer: str, other: float, open_hz: bool
) -> None:
    reference = es.Audiogram(dict.fromkeys(NORMAL, 35.0), sd_db=2.0)
    better = es.Audiogram(dict.fromkeys(NORMAL, other))
    screen = es.Screen(
        reference, rule="osha-sts", other_ear=better, transducer=transducer, domain="audiometer"
    )
    verdict = screen.verdict()
    assert (verdict.not_determinable_hz == ()) == open_hz
    assert (verdict.decision == "not determinable") != open_hz
    again = es.Screen.from_dict(json.loads(json.dumps(screen.to_dict())))
    assert again.verdict() == verdict
    limit = other + (55.0 if transducer == "insert" else 40.0)
    listener = es.Listener(moved(dict.fromkeys(NORMAL, 35.0), 30.0), seed=1)
    for _ in range(8):  # asked or not decided: no tone that the other ear might hear
        tone = screen.ask()
        assert tone.level_db_hl < limit
        screen.tell(tone, listener(tone))


def test_the_other_ears_thresholds_are_read_between_and_beyond_their_frequencies() -> None:
    other = es.Audiogram(
        {1000.0: 2.5, 4000.0: 22.5}, method_offset_db=2.5, no_response_db_hl={8000.0: 90.0}
    )
    assert crossing_level(other, "unknown", 500.0) == 40.0
    assert crossing_level(other, "unknown", 2000.0) == pytest.approx(50.0)
    assert crossing_level(other, "insert", 8000.0) == 145.0
    assert crossing_level(None, "unknown", 1000.0) == np.inf


@pytest.mark.parametrize("options", [{"transducer": "horn"}, {"other_ear": {1000.0: 5.0}}])
def test_strange_transducers_and_ears_are_refused(first: es.Exam, options: dict) -> None:
    with pytest.raises(ValueError, match=r"transducer|other_ear"):
        es.Screen(first, rule="osha-sts", **options)


def test_the_full_exam_keeps_the_other_ear_in_mind() -> None:
    reference = es.Audiogram(dict.fromkeys(NORMAL, 20.0), sd_db=2.0)
    other = es.Audiogram(dict.fromkeys(NORMAL, 0.0))
    screen = es.Screen(reference, rule="osha-sts", other_ear=other, domain="audiometer")
    exam = es.Exam.from_dict(json.loads(json.dumps(screen.continue_exam().to_dict())))
    listener = es.Listener(dict.fromkeys(NORMAL, 70.0), seed=1)
    for _ in range(12):
        tone = exam.ask()
        assert tone.level_db_hl < 40.0
        exam.tell(tone, listener(tone))


def test_loud_tones_without_the_other_ear_are_said(first: es.Exam) -> None:
    screen = es.Screen(first, rule="osha-sts")
    assert screen.verdict().notes == ()
    screen.tell(es.Tone(2000.0, 45.0), True)
    assert any("cross-hearing not checked" in note for note in screen.verdict().notes)


# Nobody is cleared without evidence ---------------------------------------------------------------


def test_a_loss_of_the_low_frequencies_alone_is_not_cleared(first: es.Exam) -> None:
    """NIOSH looks at 500 and 1000 Hz too: tones elsewhere must not clear them."""
    ear = moved(NORMAL, {500.0: 30.0, 1000.0: 22.0, 2000.0: 3.0})
    decisions = [run_screen(first, ear, "niosh-15", seed).decision for seed in range(6)]
    assert decisions.count("changed") >= 4
    assert decisions.count("unchanged") <= 1


def test_somebody_who_reports_silence_is_not_cleared(first: es.Exam) -> None:
    screen = es.Screen(first, rule="osha-sts")
    for _ in range(6):
        screen.tell(screen.ask(), True)
    assert screen.decision == "unchanged"
    screen.tell_catch(True)
    screen.tell_catch(True)
    verdict = screen.verdict()
    assert (verdict.decision, verdict.reliability) == ("inconclusive", "poor")
    assert "2 of 2 silent trials" in str(verdict)


# Device or hearing -------------------------------------------------------------------------------


def screen_with_offset(first: es.Exam, ear: Mapping[float, float], sd_db: float) -> es.Screen:
    settings = es.RuleSettings(device_offset_sd_db=sd_db)
    screen = es.Screen(first, rule="osha-sts", settings=settings, seed=5)
    listener = es.Listener(ear, spread_db=4.0, lapse=0.02, seed=5)
    while not screen.done:
        tone = screen.ask()
        screen.tell(tone, listener(tone))
    return screen


def test_with_an_offset_a_flat_shift_is_device_or_hearing(first: es.Exam) -> None:
    verdict = screen_with_offset(first, moved(NORMAL, 25.0), 6.0).verdict()
    assert verdict.decision == "not determinable"
    assert any("device or hearing, cannot be told apart" in note for note in verdict.notes)
    assert all(s.shift_db > 10 for s in verdict.shifts)  # what was measured is still shown


def test_with_an_offset_a_local_loss_is_still_found_and_none_is_still_cleared(
    first: es.Exam,
) -> None:
    local = {2000.0: 20.0, 3000.0: 35.0, 4000.0: 40.0, 6000.0: 40.0, 8000.0: 40.0}
    assert screen_with_offset(first, moved(NORMAL, local), 6.0).decision == "changed"
    assert screen_with_offset(first, NORMAL, 3.0).decision == "unchanged"


def test_without_an_offset_nothing_is_blamed_on_the_device(first: es.Exam) -> None:
    verdict = run_screen(first, moved(NORMAL, 25.0), "osha-sts").verdict()
    assert verdict.decision == "changed"
    assert not any("device" in note for note in verdict.notes)


def test_niosh_asks_for_a_retest_when_changed_and_only_then(first: es.Exam) -> None:
    changed = run_screen(first, moved(NORMAL, 30.0), "niosh-15").verdict()
    assert "immediate retest" in str(changed)
    unchanged = run_screen(first, NORMAL, "niosh-15").verdict()
    assert "immediate retest" not in str(unchanged)


# The prior of change -----------------------------------------------------------------------------


def test_the_prior_of_change_has_the_shapes_and_both_directions() -> None:
    prior = shift.change_prior()
    octaves = np.log2(np.array([500.0, 1000.0, 4000.0, 8000.0]) / 1000.0)
    means = dict(zip(prior.names, prior.means(octaves), strict=True))
    np.testing.assert_array_equal(means["flat, +23 dB"], 23.0)
    np.testing.assert_allclose(means["notch at 4000 Hz, +23 dB"][2], 23.0)
    assert means["notch at 4000 Hz, +23 dB"][0] < 0.1
    assert means["above 2300 Hz, +23 dB"][0] < 0.1 < 22.0 < means["above 2300 Hz, +23 dB"][3]
    better = np.array([size < 0 for size in prior.size_db])
    assert prior.weight[better].sum() == pytest.approx(shift.BETTER_SHARE)
    assert prior.weight.sum() == pytest.approx(1.0)


def test_the_scale_of_changes_gives_the_programmes_spread() -> None:
    """The shipped scale is where mean square and share of STS are those of the programme."""
    block = tables()["change"]
    prior = shift.change_prior(block["size_scale_db"])
    octaves = np.log2(np.array(HZ) / 1000.0)
    rng = np.random.default_rng(0)
    n = 400_000
    changed = rng.random(n) < block["share_changed"]
    part = rng.choice(prior.weight.size, n, p=prior.weight)
    gaps = (octaves[:, None] - octaves[None, :]) ** 2
    residual = 16.0 * np.exp(-0.5 * gaps / 0.7**2)
    real = (
        prior.means(octaves)[part]
        + rng.standard_normal((n, 7)) @ np.linalg.cholesky(residual + 1e-9 * np.eye(7)).T
    )
    common = np.sqrt(0.3) * rng.standard_normal((n, 1))
    noise = 6.1 * (common + np.sqrt(0.7) * rng.standard_normal((n, 7)))
    measured = np.where(changed[:, None], real, 0.0) + noise
    wanted = np.mean(np.square([8.35] * 5 + [10.6, 11.5]))
    assert np.square(measured).mean() == pytest.approx(wanted, rel=0.01)
    assert (measured[:, 2:5].mean(axis=1) >= 10.0).mean() == pytest.approx(0.12, abs=0.002)
