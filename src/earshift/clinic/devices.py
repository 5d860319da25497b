"""What a device allows today: how it plays, whether it may be used, and what to say of it.

Every test begins here, from the browser and from the command line: a device whose daily check has
failed is not used, and an expired calibration or a missing check is accepted by the examiner and
then stands on every result.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from earshift.days import local_day
from earshift.devices import calibration
from earshift.devices.delivery import Delivery
from earshift.devices.sound import (
    FLOOR_DBFS,
    Sound,
    Timing,
    retspl_presets,
    sound_of_calibration,
)
from earshift.engine.refusal import Conflict, Refusal
from earshift.engine.values import EARS, HEARING_LEVEL
from earshift.records import Calibration, Device, ExamRecord
from earshift.store import Store

# How far two devices may differ, SD in dB: both calibrated, or one of them with nobody knows what.
CALIBRATED_OFFSET_DB, UNKNOWN_OFFSET_DB = 3.0, 6.0
LONGEST_CALIBRATION = timedelta(days=2 * 366)  # 29 CFR 1910.95(h)(5): exhaustive, every two years
BLOCKED = "A daily check failed: the device has to be calibrated before it is used again."
NOT_CHECKED = "The device was not checked with a listener today."
RELATIVE = (
    "The device is not calibrated: its levels are relative, and a screen can only be compared "
    "with an exam on the same device."
)
DEFAULT_DEVICE = "default_device"  # as the store keeps it among the site's settings
UNKNOWN_COMPARISON = (
    "How far the levels of today and of the reference differ is not known: a shift that is the "
    "same at all frequencies, even one of 20 dB, may be the devices' doing and may not be called "
    "changed."
)
EARS_AS_COUPLER = "a listener's ears"


@dataclass(frozen=True)
class DeviceToday:
    """A device and what it allows on one day."""

    device: Device
    day: date
    sound: Sound | None  # None: an audiometer that is operated by hand
    calibration: Calibration | None  # the one in force
    calibration_state: str  # one of calibration.STATES
    daily_check: str  # done, missing, failed, needs calibration
    checked_on: date | None

    @property
    def unit(self) -> str:
        """The unit of its levels."""
        return HEARING_LEVEL if self.sound is None else self.sound.unit

    def playable(self, ear: str, frequency_hz: float) -> tuple[float, float] | None:
        """The softest and the loudest level that a test may play here; None: no tone at all.

        Of an audiometer that is operated by hand: what a test may ask for.
        """
        delivery = Delivery(sound=self.sound)
        limits, levels = delivery.limits(ear), delivery.domain.intensity.values
        softest, loudest = levels[0], min(levels[-1], limits.cap_db_hl)
        if self.sound is not None:
            rows = {hz: (low, high) for hz, low, high in limits.device or ()}
            if frequency_hz not in rows:
                return None
            low, high = rows[frequency_hz]
            softest, loudest = max(softest, low), min(loudest, high)
        return (softest, loudest) if softest <= loudest else None

    @property
    def answered_by(self) -> tuple[str, ...]:
        """Who can answer: a listener alone needs a device that plays the tones by itself."""
        return ("examiner",) if self.sound is None else ("examiner", "listener")

    @property
    def blocked(self) -> str | None:
        """Why it cannot be used at all."""
        return BLOCKED if self.daily_check == "failed" else None

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the examiner has to accept, and every result then says."""
        found = []
        if self.calibration_state == calibration.EXPIRED:
            assert self.calibration is not None
            found.append(f"The calibration expired on {self.calibration.due_on}.")
        if self.daily_check == "missing":
            found.append(NOT_CHECKED)
        return tuple(found)

    @property
    def warnings(self) -> tuple[str, ...]:
        """All that the examiner should know before a test."""
        relative = self.sound is not None and self.sound.kind == "relative"
        blocked = () if self.blocked is None else (self.blocked,)
        return (*blocked, *self.remarks, *((RELATIVE,) if relative else ()))

    @property
    def needs_attention(self) -> bool:
        """Whether it is not in order: what was never calibrated never is."""
        in_order = self.calibration_state == calibration.CALIBRATED
        return self.blocked is not None or bool(self.remarks) or not in_order


def device_today(store: Store, device: Device, today: date) -> DeviceToday:
    """What this device allows today."""
    calibrations = store.calibrations(device.id)
    in_force = store.calibration_on(device.id, today)
    checks = [one.done_on for one in calibrations if calibration.is_check(one)]
    return DeviceToday(
        device=device,
        day=today,
        sound=_sound(device, in_force),
        calibration=in_force,
        calibration_state=calibration.state(device, in_force, today),
        daily_check=calibration.daily_check(calibrations, today),
        checked_on=max(checks, default=None),
    )


def playable_hz(now: DeviceToday) -> tuple[float, ...]:
    """The frequencies of a test, where the device itself says what of them it can play."""
    return () if now.sound is None else Delivery(sound=now.sound).domain.smooth[0].values


def sound_of(store: Store, device: Device, today: date) -> Sound | None:
    """How a device plays in a browser today; an audiometer that is operated by hand does not."""
    return _sound(device, store.calibration_on(device.id, today))


def _sound(device: Device, in_force: Calibration | None) -> Sound | None:
    if not device.fingerprint:
        return None
    if in_force is not None and in_force.kind in calibration.MEASURED_KINDS:
        found = sound_of_calibration(in_force.table, device.name, device.fingerprint)
        if found is not None:
            return found
    return Sound("relative", device.name, device.fingerprint)


def delivery_on(
    now: DeviceToday | None,
    *,
    accept_calibration: bool = False,
    answered_by: str = "examiner",
    mode: str = "supervised",
    timing: Timing | None = None,
    loud_confirmed: bool = False,
    practice: bool = True,
) -> Delivery:
    """How a test is given on a device, or on none that is known; refused if it must not be used.

    `accept_calibration` is the examiner's consent to an expired calibration or a missing daily
    check. The remarks of the delivery then say so on every result.
    """
    remarks: tuple[str, ...] = ()
    if now is not None:
        if now.blocked is not None:
            raise Conflict(now.blocked, code="device-blocked", device=now.device.id)
        if now.remarks and not accept_calibration:
            raise Conflict(" ".join(now.remarks), code="calibration", device=now.device.id)
        remarks = now.remarks
    timing = timing or Timing()
    return Delivery(
        answered_by=answered_by,
        mode=mode,
        sound=None if now is None else now.sound,
        timing=timing,
        loud_confirmed=loud_confirmed,
        practice=practice,
        remarks=remarks if timing.unusual is None else (*remarks, timing.unusual),
    )


def delivery_by_hand(now: DeviceToday | None, *, accept_calibration: bool = False) -> Delivery:
    """How a test is given on an audiometer at hand, without anything that plays by itself."""
    if now is not None and now.sound is not None:
        raise Conflict(
            "{device} plays in its own browser, not by hand",
            code="plays-in-browser",
            device=now.device.id,
        )
    return delivery_on(now, accept_calibration=accept_calibration)


def record_calibration(
    store: Store,
    device: Device,
    *,
    author: str,
    today: date,
    done_on: date,
    due_on: date,
    laboratory: str,
    coupler: str,
    kind: str = "acoustic",
    retspl: str | Mapping[str, float] | None = None,
    full_scale_db_spl: Mapping[str, Mapping[str, float]] | None = None,
    floor_dbfs: float = FLOOR_DBFS,
) -> Calibration:
    """Store a laboratory's calibration. RETSPL belongs to the coupler that it was measured in.

    `retspl` is the name of a shipped table or a table by frequency. A browser's sound needs it
    with `full_scale_db_spl`, the sound pressure of a full-scale sine by ear and frequency.
    """
    table: dict[str, Any] = {}
    if kind in calibration.MEASURED_KINDS:
        table = _table(device, coupler, retspl, full_scale_db_spl, floor_dbfs)
    if done_on > today:
        raise Refusal("the day of a calibration must not be in the future", got=done_on)
    if due_on > done_on + LONGEST_CALIBRATION:
        raise Refusal("the next calibration must be due within two years", got=due_on)
    return store.add_calibration(
        device.id,
        author=author,
        done_on=done_on,
        due_on=due_on,
        laboratory=laboratory,
        coupler=coupler,
        kind=kind,
        table=table,
    )


def _table(
    device: Device,
    coupler: str,
    retspl: str | Mapping[str, float] | None,
    full_scale_db_spl: Mapping[str, Mapping[str, float]] | None,
    floor_dbfs: float,
) -> dict[str, Any]:
    if not device.fingerprint:
        if full_scale_db_spl is not None:
            raise Refusal("an audiometer has its own table; none can be entered here")
        return {}
    if retspl is None or full_scale_db_spl is None:
        raise Refusal(
            "a browser's sound needs retspl and full_scale_db_spl of both ears",
            code="needs-table",
        )
    values, source = retspl, "entered with the calibration"
    if isinstance(retspl, str):
        preset = retspl_presets().get(retspl)
        if preset is None:
            raise Refusal("there is no RETSPL table with this name", got=retspl)
        if device.transducer not in ("unknown", preset.transducer):
            raise Refusal(f"this RETSPL table is only for {preset.transducer} earphones")
        if preset.coupler != coupler:
            raise Refusal(f"this RETSPL table is only for the coupler {preset.coupler}")
        values = {f"{f:g}": level for f, level in preset.db_spl.items()}
        source = f"{preset.name}: {preset.source} ({preset.status})"
    table = {
        "full_scale_db_spl": full_scale_db_spl,
        "retspl_source": source,
        "retspl_db": values,
        "floor_dbfs": floor_dbfs,
    }
    sound_of_calibration(table, device.name, device.fingerprint)  # refuses bad tables
    return table


def record_check(
    store: Store,
    device: Device,
    *,
    author: str,
    today: date,
    listener: str,
    deviations_db: Mapping[str, Mapping[str, float]],
) -> Calibration:
    """Store a daily check with somebody whose hearing is known.

    `deviations_db` says by ear and frequency how far today's thresholds are from the usual ones;
    `calibration.FAILING_DEVIATION_DB` or more blocks the device until it is calibrated.
    """
    if not all(deviations_db.get(ear) for ear in EARS):
        raise Refusal("a daily check needs at least one frequency of each ear")
    return store.add_calibration(
        device.id,
        author=author,
        done_on=today,
        due_on=today,
        laboratory=listener,
        coupler=EARS_AS_COUPLER,
        kind="biological",
        table={"deviations_db": deviations_db},
    )


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
            raise Conflict(
                "{exam} cannot be the reference: uncalibrated levels can only be compared on the "
                "same device, with the same earphones and volume",
                exam=reference.id,
            )
        return CALIBRATED_OFFSET_DB, ""
    if reference.kind == "audiogram":
        return UNKNOWN_OFFSET_DB, "Reference calibration unknown."
    if same:
        return 0.0, ""
    then = local_day(visit.started_at, visit.zone)
    states = [
        _calibration_state(store, one, day)
        for one, day in ((visit.device_id, then), (device_id, today))
    ]
    if states == [calibration.CALIBRATED, calibration.CALIBRATED]:
        return CALIBRATED_OFFSET_DB, "Not the reference's device, but both were calibrated."
    return UNKNOWN_OFFSET_DB, "Reference calibration unknown."


def comparison_caution(
    store: Store, reference: ExamRecord, device_id: int | None, relative: bool, today: date
) -> str | None:
    """What to know before a screen compares levels of which one nobody vouches for, and the remedy.

    None where the devices are known well enough.
    """
    offset, _ = compare_devices(store, reference, device_id, relative, today)
    if offset < UNKNOWN_OFFSET_DB:
        return None
    return f"{UNKNOWN_COMPARISON} {_remedy(store, reference, device_id, today)}"


def _remedy(store: Store, reference: ExamRecord, device_id: int | None, today: date) -> str:
    if device_id is None:
        return "Remedy: register the device with its calibration, and choose it for the test."
    if _calibration_state(store, device_id, today) != calibration.CALIBRATED:
        return "Remedy: record the calibration of today's device."
    if reference.kind == "audiogram" or store.visit(reference.visit_id).device_id is None:
        return (
            "Remedy: a full exam on today's device, chosen as the baseline; later screens are then "
            "compared with that."
        )
    return "Remedy: record the calibration that the reference's device had then."


def default_device(store: Store) -> int | None:
    """The device that the site uses unless another is chosen."""
    chosen = store.site_settings().get(DEFAULT_DEVICE)
    return None if chosen is None or chosen.value is None else int(chosen.value)


def choose_default_device(store: Store, device_id: int | None, *, author: str) -> None:
    """Let the site use this device unless another is chosen; None: no device in particular."""
    if device_id is not None:
        store.device(device_id)
    if device_id != default_device(store):
        reason = "chosen as the usual device" if device_id else "no usual device any more"
        store.set_site_setting(DEFAULT_DEVICE, device_id, author=author, reason=reason)


def _calibration_state(store: Store, device_id: int | None, day: date) -> str:
    if device_id is None:
        return calibration.NONE
    return calibration.state(store.device(device_id), store.calibration_on(device_id, day), day)


def require_same_conditions(store: Store, record: ExamRecord, today: date) -> None:
    """Refuse to resume, retest or continue an exam on another day or with another calibration.

    Its levels are those of its own day and calibration: any other would play other ones than it
    says.
    """
    visit = store.visit(record.visit_id)
    if local_day(visit.started_at, visit.zone) != today:
        raise Conflict(
            "this visit was on another day", advice="abandon the exam and start a new test"
        )
    if visit.device_id is None:
        return
    device = store.device(visit.device_id)
    if calibration.daily_check(store.calibrations(device.id), today) == "failed":
        raise Conflict(
            "the device failed a daily check: it has to be calibrated first",
            code="device-blocked",
            device=device.id,
        )
    if sound_of(store, device, today) != Delivery.from_dict(record.delivery).sound:
        raise Conflict(
            "the device has been calibrated again since",
            advice="abandon the exam and start a new test",
        )
