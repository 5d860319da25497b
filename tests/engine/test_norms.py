"""The shipped tables and the hyperpriors made from them."""

import json

import numpy as np
import pytest

import earshift as es
from earshift.engine.norms import Hyperprior, class_median, class_names, hyperprior


def test_classes_run_from_the_best_hearing_to_the_worst() -> None:
    names = class_names()
    assert names[0] == "normal"
    assert len(names) == 7
    means = [np.mean([class_median(n)[f] for f in (500.0, 1000.0, 2000.0)]) for n in names]
    assert means == sorted(means)


def test_the_medians_fit_their_classes() -> None:
    """Classes are by the mean of 500, 1000 and 2000 Hz: 26-40 dB HL is mild."""
    mild = class_median("mild")
    assert 26.0 <= np.mean([mild[f] for f in (500.0, 1000.0, 2000.0)]) <= 40.0
    assert list(mild) == [500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0]


def test_an_unknown_class_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"wild.*mild"):
        class_median("wild")


@pytest.mark.parametrize("sloped", [False, True])
def test_hyperpriors_are_proper(sloped: bool) -> None:
    prior = hyperprior(sloped)
    cov = np.array(prior.cov)
    assert cov.shape == (4, 4)
    np.testing.assert_allclose(cov, cov.T)
    assert np.linalg.eigvalsh(cov).min() > 0
    centre, chol = prior.whitened()
    np.testing.assert_allclose(centre, prior.mean)
    np.testing.assert_allclose(chol @ chol.T, cov)
    assert (prior.slope_mean > 0) == sloped


def test_further_axes_get_lengths_of_their_own() -> None:
    prior = hyperprior()
    centre, chol = prior.whitened(3)
    cov = chol @ chol.T
    assert centre.size == 6
    np.testing.assert_allclose(cov[:4, :4], prior.cov)
    np.testing.assert_allclose(cov[4:, 4:], prior.cov[3][3] * np.eye(2))
    assert not cov[:4, 4:].any()
    np.testing.assert_allclose(centre[4:], prior.mean[3])


def test_a_hyperprior_can_be_moved() -> None:
    theta = np.array([1.0, 2.0, 3.0, 4.0])
    moved = hyperprior(sloped=True).centred_on(theta)
    assert isinstance(moved, Hyperprior)
    assert moved.mean == (1.0, 2.0, 3.0, 4.0)
    assert moved.cov == hyperprior(sloped=True).cov
    assert moved.slope_mean == hyperprior(sloped=True).slope_mean


def test_the_population_norm_survives_the_trip_through_json() -> None:
    norm = es.population_norm()
    assert es.Norm.from_dict(json.loads(json.dumps(norm.to_dict()))) == norm
    assert norm.source


@pytest.mark.parametrize(
    "options",
    [
        {"frequencies_hz": ()},
        {"frequencies_hz": (1000.0,)},
        {"frequencies_hz": (1000.0, 1000.0)},
        {"frequencies_hz": (1000.0, -2.0)},
        {"frequencies_hz": (1000.0, float("nan"))},
        {"frequencies_hz": (1000.0, float("inf"))},
        {"frequencies_hz": (1000.0, "2000")},
        {"mean_db_hl": (10.0, float("nan"))},
        {"mean_db_hl": (10.0, None)},
        {"mean_db_hl": (10.0,)},
        {"cov_db2": ((1.0, 0.0), (0.0, -1.0))},
        {"cov_db2": ((1.0, 0.9), (0.1, 1.0))},
        {"cov_db2": ((1.0, 2.0), (2.0, 1.0))},
        {"cov_db2": ((1.0, float("inf")), (float("inf"), 1.0))},
        {"cov_db2": (1.0, 1.0)},
        {"cov_db2": ((1.0, 0.0), (0.0,))},
        {"cov_db2": None},
    ],
)
def test_a_bad_norm_is_refused(options: dict) -> None:
    good = {
        "frequencies_hz": (1000.0, 2000.0),
        "mean_db_hl": (10.0, 12.0),
        "cov_db2": ((25.0, 10.0), (10.0, 36.0)),
    }
    es.Norm(**good)
    with pytest.raises(ValueError, match=r"norm|inhomogeneous|float"):
        es.Norm(**{**good, **options})
