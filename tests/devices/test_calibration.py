"""The state of calibration on a local date."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from earshift.devices import calibration
from earshift.records import Calibration, Device

DEVICE = Device(1, "booth 2", "supra-aural")
DONE, DUE = date(2026, 1, 10), date(2027, 1, 10)
MEASURED = Calibration(7, 1, DONE, DUE, "a laboratory", "IEC 60318-3")
DAY = timedelta(days=1)


@pytest.mark.parametrize("kind", ["acoustic", "exhaustive"])
def test_a_measured_calibration_holds_from_the_day_it_was_done_to_the_day_it_is_due(
    kind: str,
) -> None:
    measured = replace(MEASURED, kind=kind)
    for on, expected in (
        (DONE - DAY, "none"),
        (DONE, "calibrated"),
        (DUE, "calibrated"),
        (DUE + DAY, "expired"),
    ):
        assert calibration.state(DEVICE, measured, on) == expected


def test_without_a_device_or_a_calibration_there_is_none() -> None:
    assert calibration.state(None, None, DONE) == "none"
    assert calibration.state(None, MEASURED, DONE) == "none"
    assert calibration.state(DEVICE, None, DONE) == "none"


def test_a_biological_check_is_no_measurement_and_needs_no_coupler() -> None:
    check = replace(MEASURED, kind="biological", coupler="")
    assert calibration.state(DEVICE, check, DUE) == "biological"
    assert calibration.state(DEVICE, check, DUE + DAY) == "expired"


@pytest.mark.parametrize("on", [DONE, DUE + DAY])
@pytest.mark.parametrize("coupler", ["", "  "])
def test_a_table_without_a_coupler_is_no_calibration_at_any_date(coupler: str, on: date) -> None:
    assert calibration.state(DEVICE, replace(MEASURED, coupler=coupler), on) == "unknown reference"


def test_an_unknown_kind_is_not_trusted() -> None:
    assert calibration.state(DEVICE, replace(MEASURED, kind="by ear"), DONE) == "unknown reference"


def test_every_answer_is_a_state() -> None:
    assert len(set(calibration.STATES)) == 5
    kinds = ("acoustic", "biological", "?")
    given = {calibration.state(DEVICE, replace(MEASURED, kind=k), DUE + d * DAY)
             for k in kinds for d in (-400, 0, 1)}  # fmt: skip
    assert given == set(calibration.STATES)


def test_another_devices_calibration_is_refused() -> None:
    with pytest.raises(ValueError, match="belongs to device 2, not to device 1"):
        calibration.state(DEVICE, replace(MEASURED, device_id=2), DONE)


def test_a_moment_is_not_a_date() -> None:
    with pytest.raises(ValueError, match="local date"):
        calibration.state(DEVICE, MEASURED, datetime(2026, 5, 1, tzinfo=UTC))
