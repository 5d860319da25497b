"""How an exam is given: through what sound, within what limits, at what times, and who answers.

It is stored with the exam, so that anybody can say later what was played. What may be compared with
what is decided here, too: levels of one device with those of another, or of none.
"""

from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from datetime import date
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from earshift import calibration
from earshift.records import Device, ExamRecord
from earshift.sound import (
    CONFIRMED_CAPS,
    SELF_CAPS,
    SUPERVISED_CAPS,
    Sound,
    Timing,
    sound_of_calibration,
)
from earshift.stimulus import DOMAINS, Domain, Limits, finite

if TYPE_CHECKING:
    from earshift.store import Store

CAP_DB_HL, CONFIRMED_CAP_DB_HL = SUPERVISED_CAPS[0], CONFIRMED_CAPS[0]
# How far two devices may differ, SD in dB: both calibrated, or one of them with nobody knows what.
CALIBRATED_OFFSET_DB, UNKNOWN_OFFSET_DB = 3.0, 6.0


def supervised_limits(cap_db_hl: float = CAP_DB_HL, confirmed: bool = False) -> Limits:
    """Limits of a test with an examiner: levels rise by at most 20 dB, and 90 dB HL is the cap.

    Up to 100 dB HL only when the examiner has confirmed it.
    """
    cap = finite(cap_db_hl, "cap_db_hl")
    most = CONFIRMED_CAP_DB_HL if confirmed else CAP_DB_HL
    if not cap <= most:
        raise ValueError(
            f"tones may have at most {CAP_DB_HL:g} dB HL, and {CONFIRMED_CAP_DB_HL:g} dB HL after "
            f"the examiner's confirmation; got a cap of {cap:g}"
        )
    return Limits(cap_db_hl=cap, above_heard_db=20.0, above_missed_db=20.0, above_reference_db=10.0)


@dataclass(frozen=True)
class Delivery:
    """How an exam is given: through what sound, at what times, and who answers.

    Without `sound` the examiner presents the tones on an audiometer of their own.
    """

    answered_by: str = "examiner"  # or listener
    mode: str = "supervised"  # or self: nobody watches, and the caps are lower
    sound: Sound | None = None
    timing: Timing = dataclass_field(default_factory=Timing)
    loud_confirmed: bool = False
    practice: bool = True
    remarks: tuple[str, ...] = ()  # what every result has to say about the equipment
    continues: int | None = None  # the screen whose tones a full exam begins with

    def __post_init__(self) -> None:
        if self.answered_by not in ("examiner", "listener"):
            raise ValueError(f"an examiner or a listener answers, got {self.answered_by!r}")
        if self.mode not in ("supervised", "self", "simulated"):
            raise ValueError(f"a test is supervised, self or simulated, got {self.mode!r}")
        if self.sound is None and self.answered_by == "listener":
            raise ValueError("somebody who answers alone needs a device that plays the tones")
        if self.loud_confirmed and self.mode != "supervised":
            raise ValueError("louder tones can be confirmed only for a supervised test")

    @property
    def relative(self) -> bool:
        return self.sound is not None and self.sound.kind == "relative"

    @property
    def domain(self) -> Domain:
        """The frequencies and 5 dB steps of every audiometer, in the unit of the sound."""
        return DOMAINS["relative" if self.relative else "audiometer"]

    @property
    def caps(self) -> tuple[float, float]:
        """The loudest level in dB HL and in dB SPL."""
        if self.mode == "self":
            return SELF_CAPS
        return CONFIRMED_CAPS if self.loud_confirmed else SUPERVISED_CAPS

    def limits(self, ear: str) -> Limits:
        cap_db_hl, cap_db_spl = self.caps
        limits = supervised_limits(min(cap_db_hl, CONFIRMED_CAP_DB_HL), confirmed=True)
        if self.mode == "self":
            limits = replace(limits, above_missed_db=10.0)
        if self.sound is None:
            return limits
        domain = self.domain
        device = self.sound.playable(ear, domain.smooth[0].values, cap_db_spl)
        cap = domain.intensity.values[-1] if self.relative else cap_db_hl
        return replace(limits, cap_db_hl=min(cap, limits.cap_db_hl), device=device)

    def to_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in _PLAIN_OF_DELIVERY}
        return plain | {
            "sound": None if self.sound is None else self.sound.to_dict(),
            "timing": self.timing.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Delivery":
        """Of a stored exam; one from before this was kept says nothing and gets the defaults."""
        given = dict(data)
        if given.get("sound") is not None:
            given["sound"] = Sound.from_dict(given["sound"])
        if "timing" in given:
            given["timing"] = Timing(**given["timing"])
        given["remarks"] = tuple(given.get("remarks", ()))
        return cls(**given)


_PLAIN_OF_DELIVERY = (
    "answered_by", "mode", "loud_confirmed", "practice", "remarks", "continues",
)  # fmt: skip


def sound_of(store: "Store", device: Device, today: date) -> Sound | None:
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
    store: "Store", reference: ExamRecord, device_id: int | None, relative: bool, today: date
) -> tuple[float, str]:
    """How far today's device may differ from the reference's (SD in dB), and what to say of it.

    Levels without calibration compare with those of the same device and with no others.
    """
    visit = store.visit(reference.visit_id)
    same = device_id is not None and device_id == visit.device_id
    if relative or reference.relative:
        if not (relative and reference.relative and same and device_id is not None):
            raise ValueError(
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


def _calibration_state(store: "Store", device_id: int | None, day: date) -> str:
    if device_id is None:
        return calibration.NONE
    return calibration.state(store.device(device_id), store.calibration_on(device_id, day), day)


def why_not_go_on(store: "Store", record: ExamRecord, today: date) -> str | None:
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
