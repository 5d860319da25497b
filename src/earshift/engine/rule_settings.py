"""`RuleSettings` and `NotchSettings`: how a rule or a notch is screened for."""

import warnings
from collections.abc import Mapping
from dataclasses import InitVar, asdict, dataclass, fields
from typing import Any, ClassVar, Self

from earshift.engine.checks import finite, whole
from earshift.engine.norms import tables
from earshift.engine.refusal import Refusal

_CHANGE = tables()["change"]

# The probability that both ears changed alike, or neither did; else each for itself. It ties the
# ears of a screen without a rule; by a rule each ear is judged for itself.
P_SAME_CHANGE: float = _CHANGE["alike_share"]

BAYES_FACTOR = 100.0
NOTCH_BAYES_FACTOR = 10.0


@dataclass(frozen=True)
class _Settings:
    """What both kinds have: checks, plain data, and keywords that no longer mean anything."""

    def _check(self, without_meaning: Mapping[str, object]) -> None:
        given = sorted(name for name, value in without_meaning.items() if value is not None)
        if given:
            warnings.warn(
                f"{type(self).__name__}: {', '.join(given)} no longer mean anything and are "
                "ignored; a screen decides by its Bayes factor (docs/migration.md)",
                DeprecationWarning,
                stacklevel=4,
            )
        for name, value in self.to_dict().items():
            checked = whole(value, name, 1) if name == "max_tones" else finite(value, name)
            object.__setattr__(self, name, checked)
        prevalence, factor = self.to_dict()["prevalence"], self.to_dict()["bayes_factor"]
        if not 0.0 < prevalence < 1.0:
            raise Refusal("prevalence must be between 0 and 1", got=prevalence)
        if not factor > 1.0:
            raise Refusal("bayes_factor must be above 1", got=factor)

    @property
    def decision_limits(self) -> tuple[float, float]:
        """P(yes) from which on, and up to which, the Bayes factor suffices for yes and for no."""
        known = self.to_dict()
        odds, factor = known["prevalence"] / (1.0 - known["prevalence"]), known["bayes_factor"]
        return odds * factor / (1.0 + odds * factor), odds / factor / (1.0 + odds / factor)

    def to_dict(self) -> dict[str, Any]:
        """As plain data.

        Returns:
            Plain values that JSON can hold; `from_dict` reads them back.
        """
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Settings from `to_dict`'s data, of an earlier version too: what lost its meaning goes.

        Args:
            data: what `to_dict` gave.

        Returns:
            The settings that were written down.
        """
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in known})


@dataclass(frozen=True)
class RuleSettings(_Settings):
    """How a rule is screened for: what is expected, and when to stop.

    Attributes:
        prevalence: probability that the rule is met, before the first tone, at this site. It turns
            the Bayes factor into a probability and does not affect tones or decisions.
        bayes_factor: "changed" when the answers are so many times likelier if the rule is met,
            "unchanged" when they are so many times likelier if it is not.
        device_offset_sd_db: standard deviation in dB by which the device may play louder or softer
            than the reference's; 0 where both are calibrated.
        max_tones: after which the screen is done, decided or not.
        changed_at: of version 0.1.0; warns and is ignored, as all that follow.
        unchanged_at: ignored.
        clearing_ratio: ignored.
        clearing_excess_db: ignored.
        clearing_risk: ignored.
        guess: ignored: how often somebody guesses is found from the answers.
        lapse: ignored, likewise.
        retest_sd_db: ignored.
        strategy: ignored.

    Raises:
        Refusal: for values out of their range.

    Examples:
        >>> RuleSettings(prevalence=0.1, max_tones=40).bayes_factor
        100.0
    """

    prevalence: float = _CHANGE["prevalence"]
    changed_at: InitVar[float | None] = None
    unchanged_at: InitVar[float | None] = None
    clearing_ratio: InitVar[float | None] = None
    clearing_excess_db: InitVar[float | None] = None
    clearing_risk: InitVar[float | None] = None
    guess: InitVar[float | None] = None
    lapse: InitVar[float | None] = None
    retest_sd_db: InitVar[float | None] = None
    device_offset_sd_db: float = 0.0
    max_tones: int = 30
    strategy: InitVar[str | None] = None
    bayes_factor: float = BAYES_FACTOR

    def __post_init__(
        self,
        changed_at: float | None,
        unchanged_at: float | None,
        clearing_ratio: float | None,
        clearing_excess_db: float | None,
        clearing_risk: float | None,
        guess: float | None,
        lapse: float | None,
        retest_sd_db: float | None,
        strategy: str | None,
    ) -> None:
        self._check({
            "changed_at": changed_at, "unchanged_at": unchanged_at,
            "clearing_ratio": clearing_ratio, "clearing_excess_db": clearing_excess_db,
            "clearing_risk": clearing_risk, "guess": guess, "lapse": lapse,
            "retest_sd_db": retest_sd_db, "strategy": strategy,
        })  # fmt: skip
        if self.device_offset_sd_db < 0.0:
            raise Refusal("device_offset_sd_db must not be negative", got=self.device_offset_sd_db)


@dataclass(frozen=True)
class NotchSettings(_Settings):
    """How a notch is screened for: what is expected, and when to stop.

    Attributes:
        prevalence: probability of a notch before the first tone; it turns the Bayes factor into a
            probability.
        max_tones: after which the screen is done, decided or not.
        bayes_factor: "notch" when the answers are so many times likelier with one, "no notch" when
            they are so many times likelier without.
        population: of version 0.1.0; warns and is ignored, as all that follow.
        notch_at: ignored.
        no_notch_at: ignored.
        guess: ignored: how often somebody guesses is found from the answers.
        lapse: ignored, likewise.
        strategy: ignored.

    Raises:
        Refusal: for values out of their range.

    Examples:
        >>> NotchSettings(max_tones=20).max_tones
        20
    """

    population: InitVar[str | None] = None
    prevalence: float = 0.5
    notch_at: InitVar[float | None] = None
    no_notch_at: InitVar[float | None] = None
    guess: InitVar[float | None] = None
    lapse: InitVar[float | None] = None
    max_tones: int = 20
    strategy: InitVar[str | None] = None
    bayes_factor: float = NOTCH_BAYES_FACTOR

    device_offset_sd_db: ClassVar[float] = 0.0  # a notch is a shape: the device moves all alike

    def __post_init__(
        self,
        population: str | None,
        notch_at: float | None,
        no_notch_at: float | None,
        guess: float | None,
        lapse: float | None,
        strategy: str | None,
    ) -> None:
        self._check({
            "population": population, "notch_at": notch_at, "no_notch_at": no_notch_at,
            "guess": guess, "lapse": lapse, "strategy": strategy,
        })  # fmt: skip
