"""Visits for the tests of the report, measured once for all of them."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

import earshift as es
from earshift.records import ExamBundle, ExamRecord, VisitBundle
from support.helpers import HZ, MILD, NORMAL
from support.report_bundles import VISIT, examined, screened, visit_of

DEAF = dict.fromkeys(HZ, 115.0) | {500.0: 70.0, 1000.0: 85.0}


@pytest.fixture(scope="session")
def changed() -> ExamBundle:
    """A right ear that lost hearing at high frequencies, by a rule."""
    return screened("right", 11, NORMAL, MILD, rule="osha-sts", catches=(False, True, False))


@pytest.fixture(scope="session")
def unchanged() -> ExamBundle:
    return screened("left", 13, NORMAL, NORMAL, rule="osha-sts", seed=4)


@pytest.fixture(scope="session")
def niosh() -> ExamBundle:
    return screened("right", 21, NORMAL, MILD, rule="niosh-15")


@pytest.fixture(scope="session")
def any_change() -> ExamBundle:
    """A left ear screened without a rule."""
    return screened("left", 25, MILD, {f: level + 20 for f, level in MILD.items()})


@pytest.fixture(scope="session")
def full() -> ExamBundle:
    """A full exam of an ear with thresholds beyond the loudest tone."""
    return examined("left", 15, DEAF)


@pytest.fixture(scope="session")
def imported() -> VisitBundle:
    data = es.Audiogram(
        {500: 10, 1000: 15, 2000: 20, 4000: 60}, no_response_db_hl={8000: 100}
    ).to_dict()
    exam = ExamRecord(
        31, 42, "right", "audiogram", "done", data, "0.1.0",
        measured_at=datetime(2020, 5, 1, 22, 30, tzinfo=UTC), source="clinic.csv",
    )  # fmt: skip
    return visit_of(
        ExamBundle(exam),
        visit=replace(VISIT, mode="imported", device_id=None),
        device=None,
        calibration=None,
    )
