"""What is played and answered: a tone, a stimulus on other axes, and a trial of either."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from earshift.engine.checks import LEVELS_DB, as_heard, decibel, finite, hertz
from earshift.engine.refusal import Refusal


@dataclass(frozen=True, order=True)
class Tone:
    """A pure tone.

    Attributes:
        frequency_hz: in Hz, from 100 to 20000.
        level_db_hl: in dB HL; where nobody has calibrated the equipment, in relative dB.
        ear: "right" or "left" where it matters, else None.

    Raises:
        Refusal: for frequencies and levels that no tone has (kHz for Hz, 999 dB), or an ear that
            is none.

    Examples:
        >>> print(Tone(1000, 40, "left"))
        1000 Hz at 40 dB HL left
    """

    frequency_hz: float
    level_db_hl: float
    ear: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "frequency_hz", hertz(self.frequency_hz, "frequency_hz"))
        level = decibel(self.level_db_hl, "level_db_hl", LEVELS_DB)
        object.__setattr__(self, "level_db_hl", level)
        if self.ear not in (None, "left", "right"):
            raise Refusal("ear must be 'left', 'right' or None", got=self.ear)

    def __str__(self) -> str:
        ear = f" {self.ear}" if self.ear else ""
        return f"{self.frequency_hz:g} Hz at {self.level_db_hl:g} dB HL{ear}"

    def to_dict(self) -> dict[str, Any]:
        """As plain data, without an ear that does not matter.

        Returns:
            Plain values that JSON can hold.
        """
        data = asdict(self)
        if self.ear is None:
            del data["ear"]
        return data


@dataclass(frozen=True, order=True)
class Stimulus:
    """A stimulus on other axes than a tone's: its named values, readable as attributes.

    Attributes:
        values: by name, numbers in their axes' units: a mapping or pairs. Kept as pairs in the
            order of the names.

    Raises:
        Refusal: for values that are not numbers, or that have no names.

    Examples:
        >>> Stimulus({"contrast_db": -20.0, "cycles_per_degree": 4.0}).contrast_db
        -20.0
    """

    values: tuple[tuple[str, float], ...]

    if TYPE_CHECKING:

        def __init__(self, values: Mapping[str, float] | Iterable[tuple[str, float]]) -> None: ...

    def __post_init__(self) -> None:
        try:
            given = dict(self.values)
        except (TypeError, ValueError):
            raise Refusal(
                "a stimulus has values by name, such as {'contrast_db': -20.0}", got=self.values
            ) from None
        clean = tuple(sorted((name, finite(value, name)) for name, value in given.items()))
        object.__setattr__(self, "values", clean)

    def __getattr__(self, name: str) -> float:
        for key, value in object.__getattribute__(self, "values"):
            if key == name:
                return float(value)
        raise AttributeError(f"this stimulus has no {name}")

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:g}" for name, value in self.values)

    def to_dict(self) -> dict[str, Any]:
        """As plain data.

        Returns:
            Plain values that JSON can hold.
        """
        return dict(self.values)


if TYPE_CHECKING:

    class Asked(Tone):
        """What an exam asks: a tone, or on other axes a `Stimulus` with their names.

        Which of the two is not known before the domain is. So a type checker lets both be read.
        """

        def __getattr__(self, name: str) -> float: ...
else:
    Asked = Tone


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

    tone: Asked
    heard: bool

    if TYPE_CHECKING:

        def __init__(self, tone: Tone | Stimulus, heard: bool) -> None: ...

    def to_dict(self) -> dict[str, Any]:
        """As plain data: the tone's and the answer.

        Returns:
            Plain values that JSON can hold; `from_dict` reads them back.
        """
        return {**self.tone.to_dict(), "heard": self.heard}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Trial":
        """A trial from `to_dict`'s data.

        Args:
            data: what `to_dict` gave.

        Returns:
            The trial that was written down.

        Raises:
            Refusal: for an answer that is neither True nor False.
        """
        given = {name: value for name, value in data.items() if name != "heard"}
        heard = as_heard(data.get("heard"))
        if {"frequency_hz", "level_db_hl"} <= given.keys() <= {f.name for f in fields(Tone)}:
            return cls(Tone(**given), heard)
        return cls(Stimulus(given), heard)
