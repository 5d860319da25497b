"""What is played and answered: a tone, a stimulus on other axes, and a trial of either."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, cast

from earshift.engine.checks import as_heard, finite
from earshift.engine.refusal import Refusal


@dataclass(frozen=True, order=True)
class Tone:
    """A pure tone.

    Attributes:
        frequency_hz: in Hz, positive.
        level_db_hl: in dB HL; where nobody has calibrated the equipment, in relative dB.
        ear: "right" or "left" where it matters, else None.

    Raises:
        Refusal: for numbers that are not finite, or an ear that is none.

    Examples:
        >>> print(Tone(1000, 40, "left"))
        1000 Hz at 40 dB HL left
    """

    frequency_hz: float
    level_db_hl: float
    ear: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "frequency_hz", finite(self.frequency_hz, "frequency_hz"))
        object.__setattr__(self, "level_db_hl", finite(self.level_db_hl, "level_db_hl"))
        if self.frequency_hz <= 0:
            raise Refusal("frequency_hz must be positive", got=self.frequency_hz)
        if self.ear not in (None, "left", "right"):
            raise Refusal("ear must be 'left', 'right' or None", got=self.ear)

    def __str__(self) -> str:
        ear = f" {self.ear}" if self.ear else ""
        return f"{self.frequency_hz:g} Hz at {self.level_db_hl:g} dB HL{ear}"

    def to_dict(self) -> dict[str, Any]:
        """As plain data, without an ear that does not matter."""
        data = asdict(self)
        if self.ear is None:
            del data["ear"]
        return data


@dataclass(frozen=True, order=True)
class Stimulus:
    """A stimulus on other axes than a tone's: its named values, readable as attributes.

    >>> Stimulus((("contrast_db", -20.0), ("cycles_per_degree", 4.0))).contrast_db
    -20.0

    Attributes:
        values: pairs of a name and a number in that axis's unit; kept in the order of the names.

    Raises:
        Refusal: for values that are not numbers.

    Examples:
        >>> Stimulus((("contrast_db", -20.0), ("cycles_per_degree", 4.0))).contrast_db
        -20.0
    """

    values: tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        clean = tuple(sorted((name, finite(value, name)) for name, value in self.values))
        object.__setattr__(self, "values", clean)

    def __getattr__(self, name: str) -> float:
        for key, value in object.__getattribute__(self, "values"):
            if key == name:
                return float(value)
        raise AttributeError(f"this stimulus has no {name}")

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:g}" for name, value in self.values)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return dict(self.values)


@dataclass(frozen=True)
class Trial:
    """One answered tone.

    Attributes:
        tone: what was played; on other axes than a tone's, a `Stimulus`.
        heard: the answer.

    Raises:
        Refusal: of `from_dict`, for an answer that is neither True nor False.

    Examples:
        >>> Trial(Tone(1000, 40), heard=True).to_dict()
        {'frequency_hz': 1000.0, 'level_db_hl': 40.0, 'heard': True}
    """

    tone: Tone
    heard: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain data: the tone's and the answer."""
        return {**self.tone.to_dict(), "heard": self.heard}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Trial":
        """A trial from `to_dict`'s data."""
        given = {name: value for name, value in data.items() if name != "heard"}
        heard = as_heard(data.get("heard"))
        if {"frequency_hz", "level_db_hl"} <= given.keys() <= {f.name for f in fields(Tone)}:
            return cls(Tone(**given), heard)
        return cls(cast(Tone, Stimulus(tuple(given.items()))), heard)
