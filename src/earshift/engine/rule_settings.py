"""`RuleSettings`: how a rule is screened for."""

from dataclasses import asdict, dataclass
from typing import Any

from earshift.engine import ep
from earshift.engine.checks import finite, whole
from earshift.engine.norms import tables
from earshift.engine.refusal import Refusal

_CHANGE = tables()["change"]

# The probability that both ears changed alike, or neither did; else each for itself.
P_SAME_CHANGE: float = _CHANGE["alike_share"]


@dataclass(frozen=True)
class RuleSettings:
    """How a rule is screened for: what is expected, and when to stop.

    Attributes:
        prevalence: probability that the rule is met, before the first tone.
        changed_at: "changed" from this probability on that the rule is met.
        unchanged_at: "unchanged" needs at most this probability that it is met,
        clearing_ratio: and a likelihood ratio of at least this against "rule met",
        clearing_excess_db: and that no frequency is so many dB past its criterion,
        clearing_risk: but for at most this probability.
        guess: probability of "heard" without hearing, from 0 to below 0.5.
        lapse: probability of "missed" in spite of hearing, from 0 to below 0.5.
        retest_sd_db: standard deviation in dB of what a threshold differs by from day to day.
        device_offset_sd_db: standard deviation in dB by which the device may play louder or softer
            than the reference's; 0 where both are calibrated.
        max_tones: after which the screen is done, decided or not.
        strategy: by which the next tone is chosen; another one is for studies of what the choice
            is worth.
    """

    prevalence: float = _CHANGE["prevalence"]
    changed_at: float = 0.80
    unchanged_at: float = 0.02
    clearing_ratio: float = 10.0
    clearing_excess_db: float = 5.0
    clearing_risk: float = 0.05
    guess: float = 0.01
    lapse: float = 0.02
    retest_sd_db: float = _CHANGE["jitter_sd_db"]
    device_offset_sd_db: float = 0.0
    max_tones: int = 30
    strategy: str = "differential"

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name not in ("max_tones", "strategy"):
                object.__setattr__(self, name, finite(value, name))
        object.__setattr__(self, "max_tones", whole(self.max_tones, "max_tones", 1))
        if not 0.0 < self.unchanged_at < self.prevalence < self.changed_at < 1.0:
            raise Refusal(
                "settings need 0 < unchanged_at < prevalence < changed_at < 1, got "
                f"{self.unchanged_at}, {self.prevalence}, {self.changed_at}"
            )
        if not self.clearing_ratio >= 1.0 or not 0.0 < self.clearing_risk < 1.0:
            raise Refusal("clearing_ratio must be at least 1, clearing_risk between 0 and 1")
        if not self.retest_sd_db > 0.0 or self.device_offset_sd_db < 0.0:
            raise Refusal("retest_sd_db must be positive, device_offset_sd_db not negative")
        if self.clearing_excess_db < 0.0:
            raise Refusal("clearing_excess_db must not be negative")
        ep.check_rates(self.guess, self.lapse)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)
