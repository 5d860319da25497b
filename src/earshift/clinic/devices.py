"""What a device allows today: how it plays, what its levels compare with, whether to go on."""

from datetime import date
from zoneinfo import ZoneInfo

from earshift.devices import calibration
from earshift.devices.delivery import Delivery
from earshift.devices.sound import Sound, sound_of_calibration
from earshift.engine.refusal import Refusal
from earshift.records import Device, ExamRecord
from earshift.store import Store

# How far two devices may differ, SD in dB: both calibrated, or one of them with nobody knows what.
CALIBRATED_OFFSET_DB, UNKNOWN_OFFSET_DB = 3.0, 6.0


def sound_of(store: Store, device: Device, today: date) -> Sound | None:
    """How a device plays in a browser today; an audiometer that is operated by hand does not."""
    if not device.fingerprint:
        return None
    latest = store.calibration_on(device.id, today)
    if latest is not None and latest.kind in calibration.MEASURED_KINDS:
        found = sound_of_calibration(latest.table, device.name, device.fingerprint)
        if found is not None:
            return found
    return Sound("relative", device.name, device.fingerprint)


def compare_devices(
    store: Store, reference: ExamRecord, device_id: int | None, relative: bool, today: date
) -> tuple[float, str]:
    """How far today's device may differ from the reference's (SD in dB), and what to say of it.

    Levels without calibration compare with those of the same device and with no others.
    """
    visit = store.visit(reference.visit_id)
    same = device_id is not None and device_id == visit.device_id
    if relative or reference.relative:
        if not (relative and reference.relative and same and device_id is not None):
            raise Refusal(
                f"exam {reference.id} cannot be the reference: levels without calibration compare "
                "only with those of the same device, earphones and volume"
            )
        return CALIBRATED_OFFSET_DB, ""
    if reference.kind == "audiogram":
        return UNKNOWN_OFFSET_DB, "Reference calibration unknown."
    if same:
        return 0.0, ""
    then = visit.started_at.astimezone(ZoneInfo(visit.zone)).date()
    states = [
        _calibration_state(store, one, day)
        for one, day in ((visit.device_id, then), (device_id, today))
    ]
    if states == [calibration.CALIBRATED, calibration.CALIBRATED]:
        return CALIBRATED_OFFSET_DB, "Another device than the reference's, both calibrated."
    return UNKNOWN_OFFSET_DB, "Reference calibration unknown."


def _calibration_state(store: Store, device_id: int | None, day: date) -> str:
    if device_id is None:
        return calibration.NONE
    return calibration.state(store.device(device_id), store.calibration_on(device_id, day), day)


def why_not_go_on(store: Store, record: ExamRecord, today: date) -> str | None:
    """Why an exam that a device plays cannot be gone on with, retested or continued today.

    Its levels are those of its own day and calibration: another day or another table would play
    other ones than it says.
    """
    visit = store.visit(record.visit_id)
    if visit.started_at.astimezone(ZoneInfo(visit.zone)).date() != today:
        return "this visit was on another day: give the exam up, and begin a new test"
    if visit.device_id is None:
        return None
    device = store.device(visit.device_id)
    if calibration.daily_check(store.calibrations(device.id), today) == "failed":
        return "a daily check of the device has failed: it has to be calibrated first"
    if sound_of(store, device, today) != Delivery.from_dict(record.delivery).sound:
        return "the device was calibrated anew: give the exam up, and begin a new test"
    return None
