"""In what state of calibration a device was on a given day.

A level in dB HL means something only against a reference: the sound pressure of an earphone in a
named coupler. A calibration that names no coupler is therefore none, whatever its date, and a
check with a listener's own ears (biological) is kept apart from a measurement.
"""

from datetime import date, datetime

from earshift.records import Calibration, Device

CALIBRATED = "calibrated"
EXPIRED = "expired"
BIOLOGICAL = "biological"
NONE = "none"
UNKNOWN_REFERENCE = "unknown reference"
STATES = (CALIBRATED, EXPIRED, BIOLOGICAL, NONE, UNKNOWN_REFERENCE)

MEASURED_KINDS = ("acoustic", "exhaustive")


def state(device: Device | None, calibration: Calibration | None, on: date) -> str:
    """One of `STATES` for a device on a local date; the due date itself is still in time.

    `calibration` is the one in force; one that was done later than that day does not count.
    """
    if isinstance(on, datetime) or not isinstance(on, date):
        raise ValueError(f"a calibration is judged on a local date, got {on!r}")
    if device is None or calibration is None:
        return NONE
    if calibration.device_id != device.id:
        raise ValueError(
            f"calibration {calibration.id} belongs to device {calibration.device_id}, not to "
            f"device {device.id}: give the device's own calibration or None"
        )
    if on < calibration.done_on:
        return NONE
    biological = calibration.kind == "biological"
    if not biological and not (calibration.kind in MEASURED_KINDS and calibration.coupler.strip()):
        return UNKNOWN_REFERENCE
    if on > calibration.due_on:
        return EXPIRED
    return BIOLOGICAL if biological else CALIBRATED
