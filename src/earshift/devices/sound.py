"""From a level to a number that a loudspeaker plays, and what may be played at all.

Calibrated: L_SPL = L_HL + RETSPL(f), and dBFS = L_SPL - S(f, ear), where S is the sound pressure of
a full-scale sine in the coupler that the RETSPL names, at the locked volume. Between the calibrated
frequencies both are lines in log frequency; beyond them nothing is played. Relative: nobody knows
the sound pressure, so a level is counted from a fixed digital one and compares with levels of the
same equipment alone. The browser computes the same and refuses what differs.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from dataclasses import field as dataclass_field
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Any

from earshift.engine.checks import finite, whole
from earshift.engine.refusal import Refusal
from earshift.engine.values import EARS, HEARING_LEVEL, RELATIVE_LEVEL

# Without calibration: 0 relative dB is this digital level, and nothing above the other is played.
RELATIVE_ZERO_DBFS, RELATIVE_HIGHEST_DBFS = -90.0, -20.0
HIGHEST_DBFS = -1.0  # a calibrated tone nearer to full scale might clip
FLOOR_DBFS = -90.0  # one step of 16 bits: what converters commonly still play

# Caps by who watches: dB HL and dB SPL.
SELF_CAPS, SUPERVISED_CAPS, CONFIRMED_CAPS = (80.0, 95.0), (90.0, 105.0), (100.0, 105.0)


@dataclass(frozen=True)
class Retspl:
    """Sound pressure at 0 dB HL of an earphone in a named coupler, with its source."""

    name: str
    earphone: str
    coupler: str
    transducer: str
    status: str  # V1: the standard was read; V2: independent sources agree
    source: str
    db_spl: Mapping[float, float]


@cache
def retspl_presets() -> dict[str, Retspl]:
    """The shipped tables by name; every other one has to be entered with its calibration."""
    text = resources.files("earshift.devices").joinpath("retspl.json").read_text(encoding="utf-8")
    return {
        row["name"]: Retspl(**row | {"db_spl": {float(f): v for f, v in row["db_spl"].items()}})
        for row in json.loads(text)["presets"]
    }


@dataclass(frozen=True)
class Sound:
    """How one device turns levels into digital ones. Tables map frequency in Hz to dB."""

    kind: str  # calibrated or relative
    device: str = ""
    fingerprint: Mapping[str, Any] = dataclass_field(default_factory=dict)
    retspl_db: Mapping[float, float] = dataclass_field(default_factory=dict)
    full_scale_db_spl: Mapping[str, Mapping[float, float]] = dataclass_field(default_factory=dict)
    floor_dbfs: float = FLOOR_DBFS

    def __post_init__(self) -> None:
        if self.kind not in ("calibrated", "relative"):
            raise Refusal("a sound is calibrated or relative", got=self.kind)
        object.__setattr__(self, "floor_dbfs", finite(self.floor_dbfs, "floor_dbfs"))
        if not -140.0 <= self.floor_dbfs < RELATIVE_HIGHEST_DBFS:
            raise Refusal(
                f"floor_dbfs must lie between -140 and {RELATIVE_HIGHEST_DBFS:g}",
                got=self.floor_dbfs,
            )
        object.__setattr__(self, "retspl_db", _by_frequency(self.retspl_db, "retspl"))
        if not isinstance(self.full_scale_db_spl, Mapping):
            raise Refusal("full_scale_db_spl must map right and left to their tables")
        scale = {
            ear: _by_frequency(table, f"full_scale_db_spl of the {ear} ear")
            for ear, table in self.full_scale_db_spl.items()
        }
        object.__setattr__(self, "full_scale_db_spl", scale)
        if self.kind == "calibrated":
            _check_calibrated(self.retspl_db, scale)

    @property
    def unit(self) -> str:
        return HEARING_LEVEL if self.kind == "calibrated" else RELATIVE_LEVEL

    @property
    def highest_dbfs(self) -> float:
        return HIGHEST_DBFS if self.kind == "calibrated" else RELATIVE_HIGHEST_DBFS

    def dbfs(self, ear: str, frequency_hz: float, level: float) -> float:
        """The digital level (peak, re full scale) of a tone of this level."""
        if self.kind == "relative":
            return level + RELATIVE_ZERO_DBFS
        return self.db_spl(frequency_hz, level) - _at(
            self.full_scale_db_spl[ear], frequency_hz, "calibrated"
        )

    def db_spl(self, frequency_hz: float, level: float) -> float:
        """Sound pressure in the coupler of a tone of this hearing level."""
        return level + _at(self.retspl_db, frequency_hz, "reference")

    def playable(
        self, ear: str, frequencies_hz: Iterable[float], cap_db_spl: float
    ) -> tuple[tuple[float, float, float], ...]:
        """(frequency, softest, loudest level) of all tones that do not clip, sink or shout."""
        rows = []
        for frequency in frequencies_hz:
            try:
                zero = self.dbfs(ear, frequency, 0.0)
                most = math.inf
                if self.kind == "calibrated":
                    most = cap_db_spl - self.db_spl(frequency, 0.0)
            except ValueError:
                continue  # beyond the calibrated frequencies
            loudest = min(self.highest_dbfs - zero, most)
            rows.append((float(frequency), self.floor_dbfs - zero, loudest))
        if not rows:
            raise Refusal("the calibration covers none of the frequencies of the exam")
        return tuple(rows)

    def table(self, ear: str) -> list[tuple[float, float, float]]:
        """(frequency, RETSPL, full scale in dB SPL) at every frequency that either table has."""
        scale = self.full_scale_db_spl.get(ear, {})
        if not scale:
            return []
        low = max(min(self.retspl_db), min(scale))
        high = min(max(self.retspl_db), max(scale))
        return [
            (f, _at(self.retspl_db, f, "reference"), _at(scale, f, "calibrated"))
            for f in sorted({*self.retspl_db, *scale})
            if low <= f <= high
        ]

    def to_dict(self) -> dict[str, Any]:
        plain = asdict(self)
        plain["retspl_db"] = _as_text(self.retspl_db)
        plain["full_scale_db_spl"] = {e: _as_text(t) for e, t in self.full_scale_db_spl.items()}
        return plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Sound":
        return cls(**data)


def _by_frequency(given: Mapping[Any, Any], what: str) -> dict[float, float]:
    if not isinstance(given, Mapping):
        raise Refusal(f"{what} must map frequencies in Hz to dB")
    try:
        clean = {float(f): finite(level, what) for f, level in given.items()}
    except (TypeError, ValueError):
        raise Refusal(f"{what} must map frequencies in Hz to dB, all of them numbers") from None
    if any(not 20.0 <= f <= 20000.0 for f in clean):
        raise Refusal(f"{what} has frequencies from 20 to 20000 Hz")
    return dict(sorted(clean.items()))


def _check_calibrated(
    retspl: Mapping[float, float], scale: Mapping[str, Mapping[float, float]]
) -> None:
    if set(scale) != set(EARS):
        raise Refusal("a calibrated sound needs full_scale_db_spl of the right and the left ear")
    if len(retspl) < 2 or any(len(table) < 2 for table in scale.values()):
        raise Refusal("a calibrated sound needs tables of two frequencies or more")
    if not all(min(table) <= 1000.0 <= max(table) for table in (retspl, *scale.values())):
        raise Refusal("a calibrated sound needs tables that cover 1000 Hz, for the practice tones")
    wrong = [v for table in scale.values() for v in table.values() if not 60.0 <= v <= 160.0]
    if wrong:
        raise Refusal(
            "full_scale_db_spl is the sound pressure of a full-scale sine in dB SPL: 60 to 160",
            got=wrong[0],
        )
    if any(not -20.0 <= v <= 90.0 for v in retspl.values()):
        raise Refusal("retspl is the sound pressure at 0 dB HL in dB SPL: -20 to 90")


def _at(table: Mapping[float, float], frequency_hz: float, what: str) -> float:
    """The table's value there, by a line in log frequency; beyond its ends a ValueError."""
    known = list(table.items())
    for (low, a), (high, b) in pairwise(known):
        if low <= frequency_hz <= high:
            share = math.log(frequency_hz / low) / math.log(high / low)
            return a + share * (b - a)
    raise Refusal(
        f"{frequency_hz:g} Hz lies outside the {what} frequencies "
        f"({known[0][0]:g} to {known[-1][0]:g} Hz)"
    )


def _as_text(table: Mapping[float, float]) -> dict[str, float]:
    return {f"{f:g}": level for f, level in table.items()}


def sound_of_calibration(
    table: Mapping[str, Any], device: str, fingerprint: Mapping[str, Any]
) -> Sound | None:
    """The calibrated sound that a calibration's table describes; none if it holds no table."""
    if "full_scale_db_spl" not in table:
        return None
    return Sound(
        kind="calibrated",
        device=device,
        fingerprint=fingerprint,
        retspl_db=table["retspl_db"],
        full_scale_db_spl=table["full_scale_db_spl"],
        floor_dbfs=table.get("floor_dbfs", FLOOR_DBFS),
    )


LONGEST_PULSE_MS = 2000.0

# Timing ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """When a tone sounds and when an answer counts, in milliseconds.

    Pulsed tones as IEC 60645-1 describes them: 225 ms on and off, ramps of 20 to 50 ms.
    The window opens after the onset and closes after the last pulse has ended.
    """

    pulses: int = 3
    pulse_ms: float = 225.0
    pause_ms: float = 225.0
    ramp_ms: float = 35.0
    window_opens_ms: float = 100.0
    window_closes_ms: float = 2000.0
    gap_min_ms: float = 1000.0
    gap_max_ms: float = 2500.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "pulses", whole(self.pulses, "pulses", 1))
        for name, value in asdict(self).items():
            if name != "pulses":
                object.__setattr__(self, name, finite(value, name))
            if not 0 <= value <= 10_000:
                raise Refusal(f"{name} must lie between 0 and 10000", got=value)
        if not 20 <= self.ramp_ms <= 50:
            raise Refusal("ramp_ms must lie between 20 and 50", got=self.ramp_ms)
        if self.pulse_ms < 2 * self.ramp_ms:
            raise Refusal("a pulse must hold both its ramps")
        if self.pulse_ms > LONGEST_PULSE_MS:
            raise Refusal(f"a pulse lasts at most {LONGEST_PULSE_MS:g} ms")
        ends = self.pulses * self.pulse_ms + (self.pulses - 1) * self.pause_ms
        if not self.window_opens_ms < ends + self.window_closes_ms:
            raise Refusal("the response window must open before it closes")
        if self.gap_max_ms < self.gap_min_ms:
            raise Refusal("gap_max_ms must not be below gap_min_ms")

    @property
    def unusual(self) -> str | None:
        """What an examiner should know about these settings, if anything."""
        if self.pulse_ms < 200 or self.pulse_ms - 2 * self.ramp_ms < 150:
            return "The tones are shorter than the 200 ms that audiometry requires."
        if self.window_opens_ms > 300:
            return "Answers in the first moments after a tone's onset do not count."
        if self.window_closes_ms < 500 or self.gap_min_ms < 500:
            return "The tones follow each other faster than people can answer."
        return None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
