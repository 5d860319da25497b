"""The thresholds of one ear, as a clinic writes them down."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from earshift.engine.checks import finite
from earshift.engine.refusal import Refusal
from earshift.engine.tone import Tone

DEFAULT_THRESHOLD_SD_DB = 5.0  # Schlauch & Carney simulate audiograms with 5 dB per threshold


@dataclass(frozen=True)
class Audiogram:
    """Thresholds of one ear, as a clinic writes them down: no trials, only results.

    Attributes:
        thresholds_db_hl: frequency in Hz to threshold in dB HL.
        sd_db: standard deviation of a threshold, in dB.
        method_offset_db: what the method reads above the 50 % point, in dB; it is taken off. A
            Hughson-Westlake audiogram in 5 dB steps reads about 2.5 dB high.
        no_response_db_hl: frequency in Hz to the loudest level in dB HL that was tried and not
            heard.
    """

    thresholds_db_hl: Mapping[float, float]
    sd_db: float = DEFAULT_THRESHOLD_SD_DB
    method_offset_db: float = 0.0
    no_response_db_hl: Mapping[float, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("thresholds_db_hl", "no_response_db_hl"):
            given = getattr(self, name)
            if not isinstance(given, Mapping):
                raise Refusal(f"{name} must map frequency in Hz to dB HL", got=given)
            clean = {Tone(f, level).frequency_hz: finite(level, name) for f, level in given.items()}
            for f in clean:
                if not 100.0 <= f <= 20000.0:
                    raise Refusal(
                        f"an audiogram has frequencies from 100 to 20000 Hz (not kHz), got {f:g}"
                    )
            object.__setattr__(self, name, dict(sorted(clean.items())))
        if not self.thresholds_db_hl and not self.no_response_db_hl:
            raise Refusal("an audiogram needs at least one threshold: this one is empty")
        both = self.thresholds_db_hl.keys() & self.no_response_db_hl.keys()
        if both:
            raise Refusal(f"{sorted(both)} Hz have both a threshold and no response")
        for name in ("sd_db", "method_offset_db"):
            object.__setattr__(self, name, finite(getattr(self, name), name))
        if not self.sd_db > 0:
            raise Refusal("sd_db must be positive", got=self.sd_db)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "thresholds_db_hl": [list(item) for item in self.thresholds_db_hl.items()],
            "sd_db": self.sd_db,
            "method_offset_db": self.method_offset_db,
            "no_response_db_hl": [list(item) for item in self.no_response_db_hl.items()],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Audiogram":
        """An audiogram from `to_dict`'s data."""
        return cls(
            thresholds_db_hl=dict(data["thresholds_db_hl"]),
            sd_db=data["sd_db"],
            method_offset_db=data["method_offset_db"],
            no_response_db_hl=dict(data["no_response_db_hl"]),
        )
