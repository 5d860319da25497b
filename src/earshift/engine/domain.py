"""The domain that tones come from, and its axes (method.md, section 1).

The only place that converts between what people say (Hz, dB HL) and model units (octaves re 1 kHz,
tens of dB re 50 dB HL). The linear kernel has no variance at model intensity 0, so that centre is
part of the model and lives here alone.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from earshift.engine.checks import AUDIOMETER_DB_HL, LEVELS_DB, decibel, finite, hertz
from earshift.engine.refusal import Refusal
from earshift.engine.tone import Stimulus, Tone
from earshift.engine.values import HEARING_LEVEL, RELATIVE_LEVEL

Array = NDArray[np.float64]

# What a stimulus or a trial calls something else.
_TAKEN_NAMES = frozenset({"values", "to_dict", "heard", "ear"})


@dataclass(frozen=True)
class Axis:
    """One axis of a domain: its candidate values and how they become model units.

    Model value = (x - origin) / scale, or log2(x / origin) / scale on a logarithmic axis.

    Attributes:
        name: of letters, digits and underscores; stimuli have their value under it.
        unit: of the values, for people to read.
        values: the candidates, in that unit; kept sorted.
        origin: the value that becomes 0; by default the middle between the ends.
        scale: so many units (octaves on a logarithmic axis) become 1; positive. By default a
            tenth of the range, or one octave on a logarithmic axis.
        logarithmic: whether equal ratios are equal steps.

    Raises:
        Refusal: without a usable name or values, or with a scale that is not positive.

    Examples:
        >>> Axis("contrast_db", "dB", range(-50, 1, 5)).origin
        -25.0
    """

    name: str
    unit: str
    values: tuple[float, ...]
    origin: float = cast(float, None)  # found from the values
    scale: float = cast(float, None)
    logarithmic: bool = False

    if TYPE_CHECKING:  # any list of values is taken, and the rest may be left out

        def __init__(
            self,
            name: str,
            unit: str,
            values: Iterable[float],
            origin: float | None = None,
            scale: float | None = None,
            logarithmic: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise Refusal(
                "an axis needs a name of letters, digits and underscores, such as contrast_db; "
                f"got {self.name!r}"
            )
        if self.name in _TAKEN_NAMES:
            raise Refusal(f"an axis cannot be called {self.name!r}: the name has a meaning here")
        if isinstance(self.values, str) or not isinstance(self.values, Iterable):
            raise Refusal(f"axis {self.name} needs a list of values", got=self.values)
        values = tuple(sorted({finite(v, f"a value of axis {self.name}") for v in self.values}))
        if not values:
            raise Refusal(f"axis {self.name} has no candidate values: give at least one")
        if self.origin is None:
            low, high = values[0], values[-1]
            middle = math.sqrt(low * high) if self.logarithmic and low > 0 else (low + high) / 2.0
            object.__setattr__(self, "origin", middle)
        if self.scale is None:
            tenth = (values[-1] - values[0]) / 10.0 or 1.0
            object.__setattr__(self, "scale", 1.0 if self.logarithmic else tenth)
        if self.logarithmic and (values[0] <= 0 or self.origin <= 0):
            raise Refusal(
                f"axis {self.name} is logarithmic: all values and its origin must be positive"
            )
        if not finite(self.scale, f"scale of axis {self.name}") > 0:
            raise Refusal(f"axis {self.name} needs a positive scale", got=self.scale)
        finite(self.origin, f"origin of axis {self.name}")
        object.__setattr__(self, "values", values)

    def to_model(self, value: float) -> float:
        """A value in model units.

        Args:
            value: in the axis's unit.

        Returns:
            The number that the model calculates with.
        """
        raw = math.log2(value / self.origin) if self.logarithmic else value - self.origin
        return raw / self.scale

    def from_model(self, value: float) -> float:
        """A model value in the axis's unit.

        Args:
            value: in model units.

        Returns:
            The value in the axis's unit.
        """
        raw = value * self.scale
        return self.origin * 2.0**raw if self.logarithmic else self.origin + raw

    @property
    def span(self) -> float:
        """From the first to the last candidate, in the unit (octaves on a logarithmic axis)."""
        return (self.to_model(self.values[-1]) - self.to_model(self.values[0])) * self.scale

    @cached_property
    def model_values(self) -> Array:
        """The candidates in model units."""
        return np.array([self.to_model(v) for v in self.values])

    def check(self, value: float) -> float:
        """The value itself if it lies within the axis's range, else a ValueError.

        Args:
            value: in the axis's unit.

        Returns:
            The value.

        Raises:
            Refusal: for a value outside the range of the candidates.
        """
        low, high = self.values[0], self.values[-1]
        if not low <= value <= high:
            raise Refusal(
                f"{self.name} {value:g} {self.unit} is outside the domain "
                f"({low:g} to {high:g} {self.unit})"
            )
        return value


def _frequency_axis(values: Sequence[float]) -> Axis:
    return Axis("frequency_hz", "Hz", tuple(values), 1000.0, 1.0, logarithmic=True)


def _level_axis(values: Sequence[float], unit: str) -> Axis:
    return Axis("level_db_hl", unit, tuple(values), 50.0, 10.0)


@dataclass(frozen=True)
class Domain:
    """The tones that may be asked for, as axes with their candidate values.

    Attributes:
        intensity: the axis along which a stimulus becomes easier; a tone's level.
        smooth: the axes along which the threshold changes smoothly; a tone's frequency. None of
            them for a single psychometric function.

    Raises:
        Refusal: for axes of the same name, or an intensity with a single value.

    Examples:
        >>> Domain(Axis("contrast_db", "dB", range(-50, 1, 5))).shape
        (1, 11)
    """

    intensity: Axis
    smooth: tuple[Axis, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "smooth", tuple(self.smooth))
        for axis in (self.intensity, *self.smooth):
            if not isinstance(axis, Axis):
                raise Refusal("the axes of a domain must be earshift.Axis", got=axis)
        if len(set(self.names)) != len(self.names):
            raise Refusal(f"the axes of a domain need different names, got {self.names}")
        if len(self.intensity.values) < 2:
            raise Refusal(
                f"the intensity {self.intensity.name} needs two values or more: without a step "
                "there is no threshold to find"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The axes by name, the intensity first."""
        return self.intensity.name, *(axis.name for axis in self.smooth)

    @classmethod
    def tones(
        cls,
        frequencies_hz: Sequence[float],
        levels_db_hl: Sequence[float],
        unit: str = HEARING_LEVEL,
    ) -> "Domain":
        """An audiometric domain from its two candidate lists.

        Levels of equipment that nobody has calibrated are `RELATIVE_LEVEL`s: they compare with
        those of the same equipment, and with nothing else.

        Args:
            frequencies_hz: the frequencies that may be asked, in Hz.
            levels_db_hl: the levels that may be asked, in dB HL, or in relative dB.
            unit: "dB HL" or "relative dB".

        Returns:
            The domain of all tones with one of these frequencies and one of these levels.

        Raises:
            Refusal: for frequencies and levels that no tone has (kHz for Hz, 999 dB).
        """
        domain = cls(_level_axis(levels_db_hl, unit), (_frequency_axis(frequencies_hz),))
        for frequency_hz in domain.smooth[0].values:
            hertz(frequency_hz, "a frequency of a domain")
        for level in domain.intensity.values:
            ends = AUDIOMETER_DB_HL if unit == HEARING_LEVEL else LEVELS_DB
            decibel(level, "a level of a domain", ends)
        return domain

    @cached_property
    def places(self) -> Array:
        """All combinations of the smooth axes, in model units: (F, P)."""
        rows = list(product(*(axis.model_values for axis in self.smooth)))
        return np.array(rows, dtype=float).reshape(len(rows), len(self.smooth))

    @property
    def intensities(self) -> Array:
        """Candidate intensities in model units, soft to loud."""
        return self.intensity.model_values

    @cached_property
    def _place_values(self) -> list[tuple[float, ...]]:
        return list(product(*(axis.values for axis in self.smooth)))

    @property
    def shape(self) -> tuple[int, int]:
        """How many places and how many intensities there are."""
        return len(self._place_values), len(self.intensity.values)

    @property
    def of_tones(self) -> bool:
        """Whether the axes are a tone's frequency and level."""
        return self.intensity.name == "level_db_hl" and [a.name for a in self.smooth] == [
            "frequency_hz"
        ]

    def tone(self, place: int, level: int) -> Tone:
        """The candidate with these indices: a Tone, or on other axes a Stimulus in its place.

        Args:
            place: the index of its place among the domain's.
            level: the index of its intensity among the axis's values.

        Returns:
            A `Tone`, or on other axes than a tone's a `Stimulus`.
        """
        loud = self.intensity.values[level]
        if self.of_tones:
            return Tone(self._place_values[place][0], loud)
        names = (*(axis.name for axis in self.smooth), self.intensity.name)
        values = zip(names, (*self._place_values[place], loud), strict=True)
        return cast(Tone, Stimulus(tuple(values)))

    def check(self, tone: object) -> Tone:
        """The tone itself if it lies in the domain, else a ValueError. Off-list is fine.

        Args:
            tone: a `Tone`, or on other axes a `Stimulus`.

        Returns:
            The tone.

        Raises:
            Refusal: for a tone outside the domain, or on other axes.
        """
        if not isinstance(tone, Tone if self.of_tones else Stimulus):
            wanted = "earshift.Tone" if self.of_tones else "earshift.Stimulus"
            raise Refusal(f"expected an {wanted}", got=tone)
        for axis in (self.intensity, *self.smooth):
            if not hasattr(tone, axis.name):
                raise Refusal(f"expected a stimulus with {axis.name}", got=tone)
            axis.check(getattr(tone, axis.name))
        return cast(Tone, tone)

    def place_of(self, tone: Tone | Stimulus) -> tuple[float, ...]:
        """The tone's place in model units.

        Args:
            tone: of this domain.

        Returns:
            One number for each smooth axis.
        """
        return tuple(axis.to_model(getattr(tone, axis.name)) for axis in self.smooth)

    def intensity_of(self, tone: Tone | Stimulus) -> float:
        """The tone's intensity in model units.

        Args:
            tone: of this domain.

        Returns:
            One number.
        """
        return self.intensity.to_model(getattr(tone, self.intensity.name))

    def to_dict(self) -> dict[str, Any]:
        """As plain data.

        Returns:
            Plain values that JSON can hold; `from_dict` reads them back.
        """
        return {"intensity": asdict(self.intensity), "smooth": [asdict(a) for a in self.smooth]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Domain":
        """A domain from `to_dict`'s data.

        Args:
            data: as `to_dict` gave it.

        Returns:
            The domain that was written down.
        """
        return cls(Axis(**data["intensity"]), tuple(Axis(**a) for a in data["smooth"]))


LEVELS_DB_HL = tuple(float(level) for level in range(-10, 101, 5))
RELATIVE_LEVELS = tuple(float(level) for level in range(0, 71, 5))
FINE_HZ = tuple(sorted([*(500.0 * 2 ** (k / 4) for k in range(17)), 3000.0, 6000.0]))
AUDIOMETER_HZ = (500.0, 750.0, 1000.0, 1500.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)

DOMAINS: dict[str, Domain] = {
    "fine": Domain.tones(FINE_HZ, LEVELS_DB_HL),
    "audiometer": Domain.tones(AUDIOMETER_HZ, LEVELS_DB_HL),
    "relative": Domain.tones(AUDIOMETER_HZ, RELATIVE_LEVELS, RELATIVE_LEVEL),
}


def as_domain(domain: "str | Domain") -> Domain:
    """A Domain from itself or a preset's name."""
    if isinstance(domain, Domain):
        return domain
    if not isinstance(domain, str) or domain not in DOMAINS:
        raise Refusal(f"unknown domain {domain!r}; presets: {', '.join(DOMAINS)}")
    return DOMAINS[domain]
