"""How an exam is given: through what sound, within what limits, at what times, and who answers.

It is stored with the exam, so that anybody can say later what was played.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import Any

from earshift.devices.sound import (
    CONFIRMED_CAPS,
    SELF_CAPS,
    SUPERVISED_CAPS,
    Sound,
    Timing,
)
from earshift.engine.checks import finite
from earshift.engine.domain import DOMAINS, Domain
from earshift.engine.limits import Limits
from earshift.engine.refusal import Refusal
from earshift.engine.values import BOTH, EARS

Reach = tuple[float, float, float]

CAP_DB_HL, CONFIRMED_CAP_DB_HL = SUPERVISED_CAPS[0], CONFIRMED_CAPS[0]


def supervised_limits(cap_db_hl: float = CAP_DB_HL, confirmed: bool = False) -> Limits:
    """Limits of a test with an examiner: levels rise by at most 20 dB, and 90 dB HL is the cap.

    Up to 100 dB HL only when the examiner has confirmed it.
    """
    cap = finite(cap_db_hl, "cap_db_hl")
    most = CONFIRMED_CAP_DB_HL if confirmed else CAP_DB_HL
    if not cap <= most:
        raise Refusal(
            f"tones may be at most {CAP_DB_HL:g} dB HL, or {CONFIRMED_CAP_DB_HL:g} dB HL after "
            "the examiner's confirmation",
            got=cap,
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
    references: dict[str, int] | None = None  # of a screen of both ears: each one's exam

    def __post_init__(self) -> None:
        if self.answered_by not in ("examiner", "listener"):
            raise Refusal("answered_by must be examiner or listener", got=self.answered_by)
        if self.mode not in ("supervised", "self", "simulated"):
            raise Refusal("the mode must be supervised, self or simulated", got=self.mode)
        if self.sound is None and self.answered_by == "listener":
            raise Refusal("a listener who answers alone needs a device that plays the tones")
        if self.loud_confirmed and self.mode != "supervised":
            raise Refusal("louder tones can be confirmed only for a supervised test")

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
        """How loud a tone may be; in a sitting of both ears, what both of them may be given."""
        cap_db_hl, cap_db_spl = self.caps
        limits = supervised_limits(min(cap_db_hl, CONFIRMED_CAP_DB_HL), confirmed=True)
        if self.mode == "self":
            limits = replace(limits, above_missed_db=10.0)
        if self.sound is None:
            return limits
        domain = self.domain
        tested = EARS if ear == BOTH else (ear,)
        device = _in_common(
            [self.sound.playable(one, domain.smooth[0].values, cap_db_spl) for one in tested]
        )
        cap = domain.intensity.values[-1] if self.relative else cap_db_hl
        return replace(limits, cap_db_hl=min(cap, limits.cap_db_hl), device=device)

    def to_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in _PLAIN_OF_DELIVERY}
        if self.references is not None:
            plain["references"] = dict(self.references)
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


def _in_common(ears: Sequence[Sequence[Reach]]) -> tuple[Reach, ...]:
    """What every one of these ears can be played: (frequency, softest, loudest level)."""
    first, *others = [{frequency: ends for frequency, *ends in rows} for rows in ears]
    common = tuple(
        (frequency, max(low for low, _ in known), min(high for _, high in known))
        for frequency in first
        if all(frequency in other for other in others)
        for known in [[one[frequency] for one in (first, *others)]]
    )
    if not common:
        raise Refusal("the calibrations of the two ears have no frequency of the exam in common")
    return common


_PLAIN_OF_DELIVERY = (
    "answered_by", "mode", "loud_confirmed", "practice", "remarks", "continues",
)  # fmt: skip
