"""A changed ear as a moved one: evidence, predictions, and what stored designs keep."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

import earshift as es
from earshift.engine import ep
from earshift.engine.answers import answers_of
from earshift.engine.domain import DOMAINS
from earshift.engine.protocol import LATER, PROTOCOLS
from earshift.engine.shifted import (
    KINDS,
    Shifted,
    misfit_covariance,
    moved,
    shift_prior,
    shifted,
    slope_of,
)
from earshift.simulate.run import run
from support.helpers import MILD, NORMAL, run_exam

DOMAIN = DOMAINS["audiometer"]


@pytest.fixture(scope="module")
def first() -> es.Exam:
    return run_exam(es.Exam(seed=1, domain="audiometer"), NORMAL, tones=40)


@pytest.fixture(scope="module")
def fitted(first: es.Exam) -> Shifted:
    screen = run_exam(es.Screen(first, seed=2), MILD, tones=5)
    answers = answers_of(screen.trials, DOMAIN)
    return shifted(first.field, answers, shift_prior(0.25, DOMAIN.places))


def test_the_evidence_is_the_mean_likelihood_of_drawn_fields(fitted: Shifted) -> None:
    rng = np.random.default_rng(0)
    prior, answers, draws = fitted.prior, fitted.answers, 200_000
    mean, cov = fitted.reference.latent(answers.places)
    k, total = slope_of(mean), 0.0
    heard = answers.answer == ep.HEARD
    for c, m in enumerate(moved(mean, prior.sizes, k)):
        kind, S = KINDS[prior.kind[c]], cov.copy()
        S[1:, 1:] += k**2 * misfit_covariance(
            answers.places, answers.places, prior.middle, kind.sd, kind.length, kind.tilt
        )
        z = rng.multivariate_normal(m, S, draws, check_valid="ignore")
        f = z[:, :1] * answers.intensity + z[:, answers.place + 1]
        total += prior.weights[c] * ndtr(np.where(heard, f, -f)).prod(axis=1).mean()
    assert fitted.converged
    assert fitted.log_evidence == pytest.approx(np.log(total), abs=0.15)


def test_a_component_is_the_field_moved_by_its_size(first: es.Exam) -> None:
    nothing = answers_of([], DOMAIN)
    prior = shift_prior(0.0, DOMAIN.places)
    before_any = shifted(first.field, nothing, prior)
    assert before_any.log_evidence == pytest.approx(0.0)
    for component, size in enumerate(prior.sizes):
        mean, _ = before_any.latent_pair(component, DOMAIN.places)
        count = DOMAIN.places.shape[0]
        old, new = mean[1 : count + 1], mean[count + 1 :]
        assert old - new == pytest.approx(np.full(count, size * slope_of(mean)))


def test_predictions_are_averages_of_the_latent_pair(fitted: Shifted) -> None:
    place, levels = DOMAIN.places[3:4], DOMAIN.intensities
    expected = np.zeros(levels.size)
    for component, weight in enumerate(fitted.weights):
        mean, cov = fitted.latent_pair(component, place)
        w, new = 0, 2
        mu = mean[w] * levels + mean[new]
        var = cov[w, w] * levels**2 + 2 * levels * cov[w, new] + cov[new, new]
        expected += weight * ndtr(mu / np.sqrt(1 + var))
    assert fitted.p_heard(place, levels)[0] == pytest.approx(expected, abs=1e-9)


def test_rough_shifts_have_their_share() -> None:
    for share in (0.0, 0.25, 0.6):
        prior = shift_prior(share, DOMAIN.places)
        assert prior.weights.sum() == pytest.approx(1.0)
        assert prior.weights[prior.kind == 1].sum() == pytest.approx(share)
        assert prior.sizes.sum() == 0.0  # as many for the better as for the worse
        assert np.abs(prior.sizes).min() >= 2.0
    with pytest.raises(ValueError, match="rough_share"):
        es.Protocol(rough_share=1.0)


def test_rough_shifts_have_the_size_that_a_protocol_gives_them() -> None:
    prior = shift_prior(0.15, DOMAIN.places, 0.5)
    assert prior.sizes[prior.kind == 1].tolist() == [0.5, -0.5]
    assert np.abs(prior.sizes[prior.kind == 0]).min() == 2.0
    assert PROTOCOLS["best"].to_dict()["rough_size"] == 0.5
    assert "rough_size" not in es.Protocol(alternative="shift").to_dict()
    for bad in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="rough_size"):
            es.Protocol(rough_size=bad)


def test_shifts_of_a_verdict_are_those_of_the_ear(first: es.Exam) -> None:
    worse = {f: level + 30.0 for f, level in NORMAL.items()}
    screen = run_exam(es.Screen(first, seed=2), worse, tones=25)
    assert screen.decision == "changed"
    for shift in screen.verdict().shifts:
        assert shift.shift_db == pytest.approx(30.0, abs=12.0)


# Protocols --------------------------------------------------------------------------------------


def test_settings_of_later_versions_are_left_out_where_nothing_was_chosen() -> None:
    assert set(LATER) & set(PROTOCOLS["paper"].to_dict()) == set()
    assert PROTOCOLS["best"].to_dict()["alternative"] == "shift"
    assert PROTOCOLS["literal"].to_dict()["free_g"] == "mean"
    for protocol in PROTOCOLS.values():
        assert es.Protocol(**protocol.to_dict()) == protocol


def test_a_stored_best_of_0_1_is_rebuilt_as_it_was(first: es.Exam) -> None:
    stored = {**PROTOCOLS["best-0.1"].to_dict(), "name": "best"}
    assert "alternative" not in stored
    data = es.Screen(first, seed=2).to_dict()
    data["design"]["protocol"] = stored
    again = es.Screen.from_dict(data)
    assert replace(again.protocol, name="best-0.1") == PROTOCOLS["best-0.1"]
    assert again.ask() == es.Screen(first, "best-0.1", seed=2).ask()


def test_the_usual_protocol_is_best_and_on_other_axes_that_of_0_1(first: es.Exam) -> None:
    assert es.Screen(first).protocol == PROTOCOLS["best"]
    contrast = es.Domain(
        intensity=es.Axis("contrast_db", "dB", tuple(np.arange(-50.0, 0.1, 5.0)), -25.0, 10.0),
        smooth=(es.Axis("cycles", "c/deg", (1.0, 2.0, 4.0), 4.0, 1.0, logarithmic=True),),
    )
    exam = es.Exam(domain=contrast, halton_tones=3)
    for _ in range(4):
        exam.tell(exam.ask(), True)
    assert es.Screen(exam).protocol == PROTOCOLS["best-0.1"]


def test_one_function_is_found_unchanged_and_changed() -> None:
    """A correlated field may have the same threshold: "unchanged" was out of reach."""
    domain = es.Domain(es.Axis("contrast_db", "dB", range(-50, 1, 2)))
    prior = es.Prior(threshold=-25, threshold_sd=8, spread=3)
    rng = np.random.default_rng(7)

    def sees_from(threshold: float) -> Callable[[es.Stimulus], bool]:
        return lambda grating: bool(
            rng.random() < 0.98 * ndtr((grating.contrast_db - threshold) / 3.0)
        )

    decisions = []
    for shift_db in (0.0, 12.0, -12.0):
        for seed in range(4):
            first = es.Exam(domain=domain, prior=prior, lapse=0.02, seed=seed, max_tones=40)
            screen = es.Screen(run(first, sees_from(-24.0)), seed=seed)
            assert screen.protocol.lapse == 0.02
            run(screen, sees_from(-24.0 + shift_db))
            decisions.append(screen.verdict().decision)
    assert decisions == ["unchanged"] * 4 + ["changed"] * 8
    again = es.Screen.from_dict(screen.to_dict())
    assert again.protocol == screen.protocol


def test_literal_moves_nothing_but_the_mean(first: es.Exam) -> None:
    screen = run_exam(es.Screen(first, "literal", seed=2), MILD, tones=4)
    theta = screen.reference_field.theta
    fitted = screen.state.different.thetas
    assert fitted[:, 1:] == pytest.approx(np.repeat(theta[None, 1:], 50, axis=0), abs=0.01)
    assert np.abs(fitted[:, 0] - theta[0]).max() > 0.5


# EP without a fixed point -----------------------------------------------------------------------


def surprising(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Answers that contradict each other, of a field that is well known: any may be a lapse."""
    n = int(rng.integers(8, 20))
    points = rng.uniform(0.0, 3.0, n)
    cov = 25.0 * np.exp(-0.5 * (points[:, None] - points) ** 2)
    mean = rng.normal(0.0, 6.0, n)
    heard = rng.random(n) < 0.5
    return mean, cov, np.where(heard, ep.HEARD, ep.MISSED).astype(np.int64)


def run_of(
    mean: np.ndarray, cov: np.ndarray, y: np.ndarray, always: bool
) -> tuple[float, np.ndarray, np.ndarray, bool]:
    n = mean.size
    return (ep.run_always if always else ep.run)(
        mean, cov, np.zeros(n, np.int64), np.arange(n), np.zeros(n), y, np.zeros(n), 0.01, 0.02,
        np.zeros(n), np.zeros(n), ep.TOLERANCE,
    )  # fmt: skip


def test_there_is_an_evidence_where_ep_has_no_fixed_point() -> None:
    rng = np.random.default_rng(5)
    apart, errors = 0, []
    for _ in range(300):
        given = surprising(rng)
        if run_of(*given, always=False)[3]:
            continue
        log_Z, b, G, ok = run_of(*given, always=True)
        assert np.isfinite(log_Z)
        assert log_Z < 0.0
        assert np.isfinite(b).all()
        assert np.isfinite(G).all()
        if not ok:
            continue
        apart += 1
        mean, cov, y = given
        z = rng.multivariate_normal(mean, cov, 100_000, check_valid="ignore")
        heard = y == ep.HEARD
        p = np.where(heard, 0.01, 0.02) + 0.97 * ndtr(np.where(heard, z, -z))
        likelihood = p.prod(axis=1)
        if likelihood.std() < 30.0 * likelihood.mean():  # else the draws do not know either
            errors.append(abs(np.log(likelihood.mean()) - log_Z))
    assert apart >= 5
    assert np.median(errors) < 0.3


def test_gradients_are_those_of_the_evidence_where_answers_are_taken_apart() -> None:
    rng = np.random.default_rng(5)
    checked = 0
    while checked < 3:
        mean, cov, y = surprising(rng)
        log_Z, b, _, ok = run_of(mean, cov, y, always=True)
        if run_of(mean, cov, y, always=False)[3] or not ok:
            continue
        ends = []
        for step in (1e-4, -1e-4):
            raised = mean.copy()
            raised[0] += step
            ends.append(run_of(raised, cov, y, always=True)[0])
        assert max(abs(end - log_Z) for end in ends) < 0.01
        assert b[0] == pytest.approx((ends[0] - ends[1]) / 2e-4, abs=1e-3)
        checked += 1


def test_sites_say_that_answers_were_taken_apart_and_stay_so() -> None:
    rng = np.random.default_rng(5)
    while True:
        mean, cov, y = surprising(rng)
        n = mean.size
        tau = np.zeros(n)
        rows = (np.zeros(n, np.int64), np.arange(n), np.zeros(n), y, np.zeros(n), 0.01, 0.02)
        first = ep.run_always(mean, cov, *rows, tau, np.zeros(n), ep.TOLERANCE)
        if ep.is_apart(tau):
            break
    again = ep.run_always(mean, cov, *rows, tau, np.zeros(n), ep.TOLERANCE)
    assert again[0] == first[0]
    assert ep.is_apart(tau)
    assert not ep.is_apart(np.zeros(n))
    assert not ep.is_apart(np.zeros(0))


def test_a_refuted_shift_is_estimated_where_ep_does_not_settle(first: es.Exam) -> None:
    """Contradictions at many places: every shift has a finite evidence, and they sum to one."""
    field = replace(first.field, guess=0.01, lapse=0.02)
    rng = np.random.default_rng(8)
    tones = [es.Tone(float(f), float(level)) for f in NORMAL for level in (-10.0, 90.0)]
    trials = [es.Trial(tone, bool(rng.random() < 0.5)) for tone in tones]
    found = shifted(field, answers_of(trials, DOMAIN), shift_prior(0.15, DOMAIN.places, 0.5))
    assert np.isfinite(found.log_evidence)
    assert found.weights.sum() == pytest.approx(1.0)
    assert np.isfinite(found.bs).all()
    assert np.isfinite(found.Gs).all()
