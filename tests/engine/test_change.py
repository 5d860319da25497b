"""The two hypotheses: against joint EP, against each other, and before the first tone."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import earshift as es
from earshift.engine import ep, field, kernels
from earshift.engine.answers import Answers
from earshift.engine.change import Hypothesis, conjoint, same
from earshift.engine.field import Field
from earshift.engine.norms import Hyperprior, hyperprior
from earshift.engine.protocol import OPTIONS, PROTOCOLS, as_protocol
from support.helpers import (
    HZ,
    MILD,
    NORMAL,
    Array,
    answers,
    draw_theta,
    field_evidence,
    gaps_of,
    model_units,
    rows_to_latent,
    run_exam,
    tell_all,
)

NO_ANSWERS = answers(np.zeros((0, 1)), np.zeros(0), [])


def draw_rows(
    rng: np.random.Generator, ear: dict[float, float], n: int, lapse: float = 0.0
) -> Answers:
    """Answers of an ear to random tones."""
    listener = es.Listener(ear, seed=int(rng.integers(10**6)), lapse=lapse, spread_db=5.0)
    hz, db = rng.choice(np.array(HZ), n), rng.choice(np.arange(-10.0, 101.0, 5.0), n)
    heard = [listener(es.Tone(f, i)) for f, i in zip(hz, db, strict=True)]
    return answers(*model_units(hz, db), heard)


def rows_of(trials: tuple[es.Trial, ...]) -> Answers:
    phi, i = model_units(
        [t.tone.frequency_hz for t in trials], [t.tone.level_db_hl for t in trials]
    )
    return answers(phi, i, [t.heard for t in trials])


def joint_log_evidence(
    old: Answers, new: Answers, theta_f: Array, theta_g: Array, rho: float, lapse: float
) -> float:
    """log p(D' | D) by dense EP on both exams at once: the slow form that needs no conditioning."""
    places = np.unique(np.vstack([old.places, new.places]), axis=0)
    blocks = []
    for rows in (old, new):
        index = [int(np.nonzero((places == p).all(axis=1))[0][0]) for p in rows.places]
        blocks.append(rows_to_latent(np.array(index)[rows.place], rows.intensity, places.shape[0]))
    d = places.shape[0] + 1
    U = np.zeros((old.count + new.count, 2 * d))
    U[: old.count, :d], U[old.count :, d:] = blocks
    S = kernels.two_exams(theta_f, theta_g, rho, gaps_of(places, places))
    mean = np.concatenate([np.full(d, theta_f[0]), np.full(d, theta_g[0])])
    mean[[0, d]] = 0.0
    heard = np.concatenate([old.answer, new.answer]) == ep.HEARD
    m, K, n = U @ mean, U @ S @ U.T, old.count
    both = ep.fit(m, K, heard, 0.0, lapse)
    first = ep.fit(m[:n], K[:n, :n], heard[:n], 0.0, lapse)
    assert both.converged
    assert first.converged
    return both.log_evidence - first.log_evidence


def one_rho(rho: float, **settings: object) -> es.Protocol:
    fixed = {"theta_g": "fixed", "evidence": "plug_in", "hyperprior_g": "population"}
    return es.Protocol(rho_points=1, rho_low=rho, rho_high=rho, **{**fixed, **settings})


def centred_on(theta: Array) -> Hyperprior:
    return hyperprior().centred_on(theta)


@pytest.fixture(scope="module")
def finished_exams() -> list[tuple[dict[float, float], Answers, Field]]:
    """Ears, the answers of a whole first exam of each, and the field fitted to them."""
    out = []
    for seed in range(8):
        ear = (NORMAL, MILD)[seed % 2]
        exam = run_exam(es.Exam(seed=seed, domain="audiometer"), ear, tones=50, seed=seed)
        rows = rows_of(exam.trials)
        out.append((ear, rows, field.fit(rows, hyperprior())))
    return out


def conditioning_errors(
    exams: list[tuple[dict[float, float], Answers, Field]],
    rho: float | None,
    draws: int,
    ears: tuple[dict[float, float], ...] | None = None,
) -> Array:
    """|conditioned - joint| in nats; rho None is M_f. Draws that refute the model are left out."""
    rng = np.random.default_rng(1)
    errors = []
    for k in range(draws):
        ear, old, reference = exams[k % len(exams)]
        new = draw_rows(rng, ear if ears is None else ears[k % len(ears)], int(rng.integers(1, 16)))
        if rho is None:
            theta_g, tied = reference.theta, same(reference, new)
        else:
            theta_g = np.array(hyperprior().mean)
            tied = conjoint(reference, new, one_rho(rho), hyperprior())
        if tied.log_evidence > -8.0:
            joint = joint_log_evidence(old, new, reference.theta, theta_g, rho or 1.0, 0.0)
            errors.append(abs(tied.log_evidence - joint))
    assert len(errors) >= draws // 3
    return np.array(errors)


def test_conditioning_on_the_old_exam_agrees_with_joint_ep_when_nothing_changed(
    finished_exams: list,
) -> None:
    """Joint EP also moves the old exam's sites, so the two differ a little; now and then by more
    than 0.02 nats when one new answer is a surprise."""
    errors = conditioning_errors(finished_exams, None, 64)
    assert np.median(errors) < 0.002
    assert np.quantile(errors, 0.95) < 0.02
    assert errors.max() < 0.2


@pytest.mark.parametrize("rho", [-0.5, 0.3, 0.6])
def test_conditioning_agrees_with_joint_ep_at_every_middling_correlation(
    finished_exams: list, rho: float
) -> None:
    assert conditioning_errors(finished_exams, rho, 32, (NORMAL, MILD)).max() < 0.02


def test_conditioning_agrees_with_joint_ep_at_a_high_correlation_most_of_the_time(
    finished_exams: list,
) -> None:
    errors = conditioning_errors(finished_exams, 0.95, 32)
    assert np.median(errors) < 0.005
    assert np.quantile(errors, 0.8) < 0.02


@pytest.mark.parametrize("rho", [-1.0, -0.4, 0.0, 0.7, 1.0])
@pytest.mark.parametrize("lapse", [0.0, 0.03])
def test_conditioning_is_exact_when_the_reference_is_gaussian(rho: float, lapse: float) -> None:
    """Gaussian observations have sites that no new answer can move: no approximation left."""
    sloped = hyperprior(sloped=True)
    phi, i = model_units(list(MILD), list(MILD.values()))
    sd = sloped.slope_mean * 5.0 / 10.0
    observed = field.Answers.of(
        [(p,) for p in phi], list(i), [ep.GAUSSIAN] * phi.size, 1, [sd**-2] * phi.size
    )
    reference = field.fit(observed, sloped, 0.0, lapse)
    rng = np.random.default_rng(2)
    new = draw_rows(rng, NORMAL, 8, lapse)
    theta_g = np.asarray(reference.theta + 0.3 * rng.normal(size=4))
    hypothesis = conjoint(reference, new, one_rho(rho), sloped.centred_on(theta_g))

    extra = np.array([[-0.5], [0.8]])
    stops, where = np.unique(
        np.vstack([phi[:, None], new.places, extra]), axis=0, return_inverse=True
    )
    where = where.reshape(-1)
    d = stops.shape[0] + 1
    n_old = phi.size
    S = kernels.two_exams(reference.theta, theta_g, rho, gaps_of(stops, stops))
    m = np.concatenate([np.full(d, reference.theta[0]), np.full(d, theta_g[0])])
    m[[0, d]] = reference.slope_mean
    rows = n_old + new.count
    ia = np.repeat([0, d], [n_old, new.count]).astype(np.int64)
    ib = np.concatenate([1 + where[:n_old], d + 1 + where[n_old + new.place]]).astype(np.int64)
    log_Z, b, G, converged = ep.run(
        m, S, ia, ib, np.concatenate([i, new.intensity]),
        np.concatenate([np.full(n_old, ep.GAUSSIAN), new.answer]), np.full(rows, sd**-2),
        0.0, lapse, np.zeros(rows), np.zeros(rows), 1e-10,
    )  # fmt: skip
    assert converged
    assert hypothesis.log_evidence == pytest.approx(log_Z - reference.log_evidence, abs=1e-6)

    keep = np.concatenate([[0], 1 + where[-2:], [d], d + 1 + where[-2:]])
    mean, cov = hypothesis.latent_pair(0, extra)
    np.testing.assert_allclose(mean, (m + S @ b)[keep], atol=1e-5)
    np.testing.assert_allclose(cov, (S - S @ G @ S)[np.ix_(keep, keep)], atol=1e-5)


@pytest.mark.parametrize("lapse", [0.0, 0.03])
def test_the_other_field_is_the_same_field_at_correlation_one_and_equal_theta(lapse: float) -> None:
    rng = np.random.default_rng(3)
    places, intensity = np.linspace(-1.0, 3.0, 7)[:, None], np.linspace(-6.0, 5.0, 9)
    reference = field.fit(draw_rows(rng, MILD, 30, lapse), hyperprior(), 0.0, lapse)
    for n in (0, 1, 10):
        new = draw_rows(rng, NORMAL, n, lapse)
        f = same(reference, new)
        g = conjoint(reference, new, one_rho(1.0), centred_on(reference.theta))
        centred = conjoint(reference, new, one_rho(1.0, hyperprior_g="reference"), hyperprior())
        for other in (g, centred):
            assert other.log_evidence == pytest.approx(f.log_evidence, abs=1e-7)
            np.testing.assert_allclose(
                other.p_heard(places, intensity), f.p_heard(places, intensity), atol=1e-8
            )


def test_at_correlation_zero_the_reference_is_ignored() -> None:
    rng = np.random.default_rng(4)
    theta = draw_theta(rng)
    new = draw_rows(rng, NORMAL, 8)
    alone, _, _ = field_evidence(theta, new)
    for ear in (NORMAL, MILD):
        reference = field.fit(draw_rows(rng, ear, 30), hyperprior())
        tied = conjoint(reference, new, one_rho(0.0), centred_on(theta))
        assert tied.log_evidence == pytest.approx(alone, abs=1e-7)


def test_without_new_answers_the_same_field_predicts_what_the_reference_predicts() -> None:
    rng = np.random.default_rng(5)
    reference = field.fit(draw_rows(rng, MILD, 30), hyperprior())
    grid = np.linspace(-1.0, 3.0, 7)[:, None], np.linspace(-6.0, 5.0, 9)
    np.testing.assert_allclose(
        same(reference, NO_ANSWERS).p_heard(*grid), reference.p_heard(*grid), atol=1e-10
    )


def test_the_evidence_of_the_other_field_is_the_mean_over_correlations() -> None:
    rng = np.random.default_rng(6)
    reference = field.fit(draw_rows(rng, MILD, 30), hyperprior())
    new = draw_rows(rng, NORMAL, 6)
    spread = replace(one_rho(0.0), rho_points=7, rho_low=-1.0, rho_high=1.0)
    mixed = conjoint(reference, new, spread, hyperprior())
    single = [
        conjoint(reference, new, one_rho(rho), hyperprior()).log_evidence
        for rho in np.linspace(-1.0, 1.0, 7)
    ]
    expected = np.logaddexp.reduce(single) - np.log(7)
    assert mixed.log_evidence == pytest.approx(expected, abs=1e-7)


def test_weights_of_the_correlations_follow_the_setting() -> None:
    rng = np.random.default_rng(7)
    reference = field.fit(draw_rows(rng, MILD, 30), hyperprior())
    new = draw_rows(rng, MILD, 10)
    flat = conjoint(reference, new, es.Protocol(rho_weights="prior"), hyperprior())
    bent = conjoint(reference, new, es.Protocol(rho_weights="posterior"), hyperprior())
    np.testing.assert_allclose(flat.weights, 1.0 / 50)
    assert bent.weights.sum() == pytest.approx(1.0)
    assert bent.weights[-1] > 2.0 * bent.weights[0]
    assert flat.log_evidence == pytest.approx(bent.log_evidence, abs=1e-9)


def test_refitting_raises_the_penalised_evidence_and_laplace_pays_for_it() -> None:
    """Laplace's value must be near the integral over theta, here by plain sampling."""
    rng = np.random.default_rng(8)
    reference = field.fit(draw_rows(rng, MILD, 30), hyperprior())
    prior = hyperprior()
    centre, chol = prior.whitened(1)
    for n in (1, 4, 8):
        new = draw_rows(rng, NORMAL, n)
        for rho in (0.0, 0.7):
            given = {"hyperprior_g": "population", "theta_g": "per_rho"}
            plug_in = conjoint(reference, new, one_rho(rho, **given), prior)
            laplace = conjoint(
                reference, new, one_rho(rho, **{**given, "evidence": "laplace"}), prior
            )
            fixed = conjoint(reference, new, one_rho(rho), prior)
            draws = centre + np.random.default_rng(9).normal(size=(3000, centre.size)) @ chol.T
            values = [field_evidence(t, new, reference, rho) for t in draws]
            settled = [v for v, _, ok in values if ok]
            assert len(settled) > 2900
            integral = np.logaddexp.reduce(settled) - np.log(len(settled))
            u = np.linalg.solve(chol, plug_in.thetas[0] - centre)
            assert plug_in.log_evidence - 0.5 * u @ u >= fixed.log_evidence - 1e-6
            assert laplace.log_evidence == pytest.approx(integral, abs=0.1)


@pytest.mark.parametrize(
    ("theta_g", "rho_weights", "evidence", "hyperprior_g"), list(product(*OPTIONS.values()))
)
def test_before_the_first_tone_nothing_speaks_for_either_side(
    mild_exam: es.Exam, theta_g: str, rho_weights: str, evidence: str, hyperprior_g: str
) -> None:
    protocol = es.Protocol(
        theta_g=theta_g, rho_weights=rho_weights, evidence=evidence, hyperprior_g=hyperprior_g
    )
    references = (mild_exam, es.Audiogram(MILD), es.population_norm())
    for reference in references:
        screen = es.Screen(reference, protocol)
        assert screen.log_bf == pytest.approx(0.0, abs=1e-12)
        assert screen.p_changed == pytest.approx(0.5, abs=1e-12)
        assert screen.decision == "inconclusive"
    biased = es.Screen(mild_exam, replace(protocol, prior_changed=0.2))
    assert biased.p_changed == pytest.approx(0.2, abs=1e-12)


def shuffled_log_bf(screen: es.Screen, protocol: es.Protocol, seed: int) -> float:
    order = np.random.default_rng(seed).permutation(len(screen.trials))
    again = es.Screen(es.Exam.from_dict(screen.to_dict()["design"]["reference"]["data"]), protocol)
    return tell_all(again, [screen.trials[k] for k in order]).log_bf


@pytest.mark.parametrize("theta_g", OPTIONS["theta_g"])
@pytest.mark.parametrize("evidence", ["plug_in", "laplace"])
def test_the_order_of_tones_does_not_matter_for_the_bayes_factor(
    short_exam: es.Exam, theta_g: str, evidence: str
) -> None:
    for ear, lapse in ((NORMAL, 0.0), (MILD, 0.0), (MILD, 0.03)):
        protocol = es.Protocol(theta_g=theta_g, evidence=evidence, lapse=lapse)
        screen = run_exam(es.Screen(short_exam, protocol, seed=1), ear, tones=12, lapse=lapse)
        for seed in (1, 2):
            assert shuffled_log_bf(screen, protocol, seed) == pytest.approx(screen.log_bf, abs=2e-3)


@pytest.mark.parametrize(("lapse", "tolerance"), [(0.0, 2e-3), (0.02, 0.2)])
@pytest.mark.parametrize("evidence", ["plug_in", "laplace"])
def test_every_correlation_is_fitted_as_if_it_were_alone(
    mild_exam: es.Exam, evidence: str, lapse: float, tolerance: float
) -> None:
    """A fit may start from its neighbour's, and must not end elsewhere for it. With lapses a fit
    may fail (and is left out here): the others must not suffer."""
    for seed in range(4):
        for ear in (NORMAL, MILD):
            protocol = replace(PROTOCOLS["paper"], lapse=lapse, evidence=evidence, rho_points=21)
            screen = es.Screen(mild_exam, protocol, seed=seed)
            run_exam(screen, ear, tones=4 + 3 * seed, seed=seed, lapse=lapse)
            given = screen.reference_field, rows_of(screen.trials)
            alone = [
                conjoint(
                    *given,
                    replace(protocol, rho_points=1, rho_low=float(rho), rho_high=float(rho)),
                    hyperprior(),
                )
                for rho in protocol.rhos
            ]
            settled = [one.log_evidence for one in alone if one.converged]
            assert len(settled) >= 19
            expected = np.logaddexp.reduce(settled) - np.log(21)
            together = conjoint(*given, protocol, hyperprior()).log_evidence
            assert together == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("seed", [0, 3, 7])
def test_an_evidence_without_a_fixed_point_decides_nothing(mild_exam: es.Exam, seed: int) -> None:
    """With lapses EP has no fixed point at some correlations. What it returns there is no evidence:
    the evidence of yes/no answers is a probability, and a few answers of an unchanged ear say
    little either way."""
    protocol = replace(PROTOCOLS["paper"], lapse=0.02)
    screen = es.Screen(mild_exam, protocol, seed=seed)
    for tones in range(1, 9):
        run_exam(screen, MILD, tones=tones, seed=100 * seed + tones, lapse=0.02)
        plug_in = conjoint(
            screen.reference_field,
            rows_of(screen.trials),
            replace(protocol, evidence="plug_in"),
            hyperprior(),
        )
        assert plug_in.log_evidence < 0.05
        assert abs(screen.log_bf) < 10.0


def test_the_running_product_is_a_product_of_predictions(short_exam: es.Exam) -> None:
    protocol = es.Protocol(evidence="running", theta_g="shared")
    screen, log_different = es.Screen(short_exam, protocol), 0.0
    listener = es.Listener(NORMAL, seed=5)
    for _ in range(4):
        tone = screen.ask()
        expected = conjoint(
            screen.reference_field, rows_of(screen.trials), protocol, hyperprior()
        ).p_heard(*one_tone(tone))[0, 0]
        heard = listener(tone)
        screen.tell(tone, heard)
        log_different += np.log(expected if heard else 1.0 - expected)
    unchanged = same(screen.reference_field, rows_of(screen.trials)).log_evidence
    assert screen.log_bf == pytest.approx(log_different - unchanged, abs=1e-6)


def one_tone(tone: es.Tone) -> tuple[Array, Array]:
    phi, i = model_units([tone.frequency_hz], [tone.level_db_hl])
    return phi[:, None], i


def fitted_pair(seed: int, theta_g: str, rho: float, lapse: float) -> tuple[Field, Hypothesis]:
    rng = np.random.default_rng(seed)
    old = draw_rows(rng, (NORMAL, MILD)[seed % 2], int(rng.integers(1, 40)), lapse)
    new = draw_rows(rng, (NORMAL, MILD)[seed // 2 % 2], int(rng.integers(0, 15)), lapse)
    reference = field.fit(old, hyperprior(), 0.0, lapse)
    protocol = one_rho(rho, theta_g=theta_g, hyperprior_g="reference")
    return reference, conjoint(reference, new, protocol, hyperprior())


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    theta_g=st.sampled_from(OPTIONS["theta_g"]),
    rho=st.floats(-1.0, 1.0) | st.sampled_from([-1.0, 1.0]),
    lapse=st.sampled_from([0.0, 0.03]),
)
def test_the_posterior_of_both_exams_together_is_positive_semi_definite(
    seed: int, theta_g: str, rho: float, lapse: float
) -> None:
    reference, hypothesis = fitted_pair(seed, theta_g, rho, lapse)
    places = np.random.default_rng(seed).uniform(-1.0, 3.0, (6, 1))
    mean, cov = hypothesis.latent_pair(0, places)
    assert np.isfinite(mean).all()
    scale = np.exp(np.vstack([reference.theta[1:3], hypothesis.thetas[0, 1:3]])).max()
    np.testing.assert_allclose(cov, cov.T, atol=1e-8 * scale)
    assert np.linalg.eigvalsh(0.5 * (cov + cov.T)).min() >= -1e-8 * scale


def test_predictions_are_averages_of_the_latent_pair(short_exam: es.Exam) -> None:
    screen = run_exam(es.Screen(short_exam, es.Protocol(rho_points=5)), NORMAL, tones=5)
    different = conjoint(
        screen.reference_field, rows_of(screen.trials), screen.protocol, hyperprior()
    )
    place, i = np.array([[0.4]]), 1.7
    p = 0.0
    for component, weight in enumerate(different.weights):
        mean, cov = different.latent_pair(component, place)
        u = np.array([0.0, 0.0, i, 1.0])
        z = u @ mean / np.sqrt(1.0 + u @ cov @ u)
        p += weight * np.exp(ep.log_ndtr(z))
    assert different.p_heard(place, np.array([i]))[0, 0] == pytest.approx(p, abs=1e-8)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("theta_g", "none"),
        ("theta_g", None),
        ("rho_weights", "uniform"),
        ("evidence", "exact"),
        ("hyperprior_g", "flat"),
        ("rho_points", 0),
        ("rho_points", 2.5),
        ("rho_points", True),
        ("rho_low", -1.1),
        ("rho_low", float("nan")),
        ("rho_high", 1.5),
        ("rho_high", -1.5),
        ("rho_high", "1"),
        ("bayes_factor", 1.0),
        ("bayes_factor", -3.0),
        ("bayes_factor", float("inf")),
        ("bayes_factor", None),
        ("prior_changed", 0.0),
        ("prior_changed", 1.0),
        ("prior_changed", float("nan")),
        ("guess", -0.1),
        ("guess", 0.51),
        ("lapse", 0.7),
        ("lapse", "a lot"),
        ("max_tones", 0),
        ("max_tones", 1.5),
        ("max_tones", None),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name.replace("rho_high", "rho_")):
        es.Protocol(**{name: value})


def test_an_unknown_strategy_is_refused(short_exam: es.Exam) -> None:
    with pytest.raises(ValueError, match="strategy"):
        es.Screen(short_exam, es.Protocol(strategy="clever"))


@pytest.mark.parametrize("given", ["papper", None, 7, ["paper"], {"no_such_setting": 1}])
def test_an_unknown_protocol_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match="protocol"):
        as_protocol(given)


def test_protocols_come_by_name_by_settings_or_as_themselves() -> None:
    assert as_protocol("paper") is PROTOCOLS["paper"]
    assert as_protocol(PROTOCOLS["paper"].to_dict()) == PROTOCOLS["paper"]
    own = es.Protocol(rho_points=3)
    assert as_protocol(own) is own
