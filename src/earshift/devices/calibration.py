"""In what state of calibration a device was on a given day.

A level in dB HL means something only against a reference: the sound pressure of an earphone in a
named coupler. A calibration that names no coupler is therefore none, whatever its date, and a
check with a listener's own ears (biological) is kept apart from a measurement.
"""

from collections.abc import Iterable, Mapping
from datetime import date, datetime

from earshift.engine.refusal import Refusal
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
        raise Refusal("a calibration is judged on a local date", got=on)
    if device is None or calibration is None:
        return NONE
    if calibration.device_id != device.id:
        raise Refusal(
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


# The daily check with a listener's own ears (29 CFR 1910.95(h)(5)): from this deviation on the
# device goes to the laboratory before it is used again.
NEEDS_CALIBRATION = "needs calibration"  # a check finds changes since: it is no substitute
FAILING_DEVIATION_DB = 10.0


# In the table of a row that says what is usual for a listener: thresholds, or whose they are.
USUAL, USUAL_PERSON = "usual_db", "usual_person"


def is_usual(one: Calibration) -> bool:
    """Whether this says what is usual for a listener, and nothing of the device."""
    return one.kind == "biological" and (USUAL in one.table or USUAL_PERSON in one.table)


def is_check(one: Calibration) -> bool:
    """Whether this is a daily check."""
    return one.kind == "biological" and not is_usual(one)


def check_fails(deviations_db: Mapping[str, Mapping[str, float]]) -> bool:
    """Whether a biological check finds the device out of order; by ear and frequency."""
    return any(
        abs(deviation) >= FAILING_DEVIATION_DB
        for of_ear in deviations_db.values()
        for deviation in of_ear.values()
    )


def daily_check(calibrations: Iterable[Calibration], on: date) -> str:
    """done, missing or failed on that day; what was never calibrated needs that before any check.

    A failed check counts until the next measurement in a laboratory.
    """
    so_far = [one for one in calibrations if one.done_on <= on]
    measured = [one for one in so_far if one.kind in MEASURED_KINDS]
    if not measured:
        return NEEDS_CALIBRATION
    last = max(measured, key=lambda one: (one.done_on, one.id))
    checks = [one for one in so_far if is_check(one)]
    since = [one for one in checks if (one.done_on, one.id) > (last.done_on, last.id)]
    if any(check_fails(one.table.get("deviations_db", {})) for one in since):
        return "failed"
    return "done" if any(one.done_on == on for one in checks) else "missing"
