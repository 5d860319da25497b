"""Tones, trials, the domain they come from and the limits they keep (method.md, section 1).

The only place that converts between what people say (Hz, dB HL) and model units (octaves re 1 kHz,
tens of dB re 50 dB HL). The linear kernel has no variance at model intensity 0, so that centre is
part of the model and lives here alone.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from dataclasses import field as dataclass_field
from functools import cached_property
from itertools import product
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from earshift.engine.refusal import Refusal
from earshift.engine.values import HEARING_LEVEL, RELATIVE_LEVEL

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def finite(value: object, what: str) -> float:
    """The value as a float, or a ValueError that names it."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        raise Refusal(f"{what} must be a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Refusal(f"{what} must be finite, got {value!r}")
    return number


def whole(value: object, what: str, least: int) -> int:
    """The value as an int of at least `least`, or a ValueError that names it."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise Refusal(f"{what} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def as_heard(value: object) -> bool:
    """True/False from a bool, a numpy bool or 0/1."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer) and value in (0, 1):
        return bool(value)
    raise Refusal(f"heard must be True/False or 1/0, got {value!r}")


@dataclass(frozen=True, order=True)
class Tone:
    """A pure tone: frequency in Hz, level in dB HL, and the ear when it matters."""

    frequency_hz: float
    level_db_hl: float
    ear: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "frequency_hz", finite(self.frequency_hz, "frequency_hz"))
        object.__setattr__(self, "level_db_hl", finite(self.level_db_hl, "level_db_hl"))
        if self.frequency_hz <= 0:
            raise Refusal(f"frequency_hz must be positive, got {self.frequency_hz!r}")
        if self.ear not in (None, "left", "right"):
            raise Refusal(f"ear must be 'left', 'right' or None, got {self.ear!r}")

    def __str__(self) -> str:
        ear = f" {self.ear}" if self.ear else ""
        return f"{self.frequency_hz:g} Hz at {self.level_db_hl:g} dB HL{ear}"

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        if self.ear is None:
            del data["ear"]
        return data


@dataclass(frozen=True, order=True)
class Stimulus:
    """A stimulus on other axes than a tone's: its named values, readable as attributes.

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
        return dict(self.values)


@dataclass(frozen=True)
class Trial:
    """One tone (or other stimulus) and its answer."""

    tone: Tone
    heard: bool

    def to_dict(self) -> dict[str, Any]:
        return {**self.tone.to_dict(), "heard": self.heard}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Trial":
        given = {name: value for name, value in data.items() if name != "heard"}
        heard = as_heard(data.get("heard"))
        if {"frequency_hz", "level_db_hl"} <= given.keys() <= {f.name for f in fields(Tone)}:
            return cls(Tone(**given), heard)
        return cls(cast(Tone, Stimulus(tuple(given.items()))), heard)


# What a stimulus or a trial calls something else.
_TAKEN_NAMES = frozenset({"values", "to_dict", "heard", "ear"})


@dataclass(frozen=True)
class Axis:
    """One axis of a domain: its candidate values and how they become model units.

    Model value = (x - origin) / scale, or log2(x / origin) / scale on a logarithmic axis.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    origin: float
    scale: float
    logarithmic: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise Refusal(
                "an axis needs a name of letters, digits and underscores, such as contrast_db; "
                f"got {self.name!r}"
            )
        if self.name in _TAKEN_NAMES:
            raise Refusal(f"an axis cannot be called {self.name!r}: the name has a meaning here")
        if isinstance(self.values, str) or not isinstance(self.values, Iterable):
            raise Refusal(f"axis {self.name} needs a list of values, got {self.values!r}")
        values = tuple(sorted({finite(v, f"a value of axis {self.name}") for v in self.values}))
        if not values:
            raise Refusal(f"axis {self.name} has no candidate values: give at least one")
        if self.logarithmic and (values[0] <= 0 or self.origin <= 0):
            raise Refusal(
                f"axis {self.name} is logarithmic: all values and its origin must be positive"
            )
        if not finite(self.scale, f"scale of axis {self.name}") > 0:
            raise Refusal(f"axis {self.name} needs a positive scale, got {self.scale!r}")
        finite(self.origin, f"origin of axis {self.name}")
        object.__setattr__(self, "values", values)

    def to_model(self, value: float) -> float:
        raw = math.log2(value / self.origin) if self.logarithmic else value - self.origin
        return raw / self.scale

    def from_model(self, value: float) -> float:
        raw = value * self.scale
        return self.origin * 2.0**raw if self.logarithmic else self.origin + raw

    @cached_property
    def model_values(self) -> Array:
        return np.array([self.to_model(v) for v in self.values])

    def check(self, value: float) -> float:
        """The value itself if it lies within the axis's range, else a ValueError."""
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
    """The tones that may be asked for: one monotone intensity axis, one or more smooth axes."""

    intensity: Axis
    smooth: tuple[Axis, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "smooth", tuple(self.smooth))
        for axis in (self.intensity, *self.smooth):
            if not isinstance(axis, Axis):
                raise Refusal(f"the axes of a domain must be earshift.Axis, got {axis!r}")
        if not self.smooth:
            raise Refusal("a domain needs at least one smooth axis besides the intensity")
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
        """
        return cls(_level_axis(levels_db_hl, unit), (_frequency_axis(frequencies_hz),))

    @cached_property
    def places(self) -> Array:
        """All combinations of the smooth axes, in model units: (F, P)."""
        return np.array(list(product(*(axis.model_values for axis in self.smooth))))

    @property
    def intensities(self) -> Array:
        """Candidate intensities in model units, soft to loud."""
        return self.intensity.model_values

    @cached_property
    def _place_values(self) -> list[tuple[float, ...]]:
        return list(product(*(axis.values for axis in self.smooth)))

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._place_values), len(self.intensity.values)

    @property
    def of_tones(self) -> bool:
        """Whether the axes are a tone's frequency and level."""
        return self.intensity.name == "level_db_hl" and [a.name for a in self.smooth] == [
            "frequency_hz"
        ]

    def tone(self, place: int, level: int) -> Tone:
        """The candidate with these indices: a Tone, or on other axes a Stimulus in its place."""
        loud = self.intensity.values[level]
        if self.of_tones:
            return Tone(self._place_values[place][0], loud)
        names = (*(axis.name for axis in self.smooth), self.intensity.name)
        values = zip(names, (*self._place_values[place], loud), strict=True)
        return cast(Tone, Stimulus(tuple(values)))

    def check(self, tone: object) -> Tone:
        """The tone itself if it lies in the domain, else a ValueError. Off-list is fine."""
        if not isinstance(tone, Tone if self.of_tones else Stimulus):
            wanted = "earshift.Tone" if self.of_tones else "earshift.Stimulus"
            raise Refusal(f"expected an {wanted}, got {tone!r}")
        for axis in (self.intensity, *self.smooth):
            if not hasattr(tone, axis.name):
                raise Refusal(f"expected a stimulus with {axis.name}, got {tone!r}")
            axis.check(getattr(tone, axis.name))
        return cast(Tone, tone)

    def place_of(self, tone: Tone | Stimulus) -> tuple[float, ...]:
        """The tone's place in model units."""
        return tuple(axis.to_model(getattr(tone, axis.name)) for axis in self.smooth)

    def intensity_of(self, tone: Tone | Stimulus) -> float:
        """The tone's intensity in model units."""
        return self.intensity.to_model(getattr(tone, self.intensity.name))

    def to_dict(self) -> dict[str, Any]:
        return {"intensity": asdict(self.intensity), "smooth": [asdict(a) for a in self.smooth]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Domain":
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


def _device_rows(given: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    rows = tuple(tuple(finite(value, "a level of the device") for value in row) for row in given)
    if not rows or any(len(row) != 3 for row in rows):
        raise Refusal(
            f"device needs (frequency, softest, loudest) at one frequency or more, got {given!r}"
        )
    return rows


@dataclass(frozen=True)
class Limits:
    """How loud a tone may be, as a function of the trials so far and nothing else.

    The ceiling at a place is the cap, or less: the highest of `start_db_hl`, `above_heard_db` over
    a tone heard nearby and `above_missed_db` over one missed nearby, where nearby means within
    `near_octaves`. So levels rise only step by step above what was answered. With
    `above_reference_db`, somebody who has heard any tone is known to hear at all, and may be given
    that much over the ear's own earlier threshold.

    `device` lists what the equipment can and may play: (frequency in Hz, softest, loudest level).
    A frequency that is not listed is not played.
    """

    cap_db_hl: float = 90.0
    start_db_hl: float = 40.0
    above_heard_db: float = 20.0
    above_missed_db: float = 20.0
    near_octaves: float = 0.5
    above_reference_db: float | None = None
    device: tuple[tuple[float, float, float], ...] | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            given = getattr(self, field.name)
            if given is None and field.default is None:
                continue
            clean = _device_rows(given) if field.name == "device" else finite(given, field.name)
            object.__setattr__(self, field.name, clean)
        if self.cap_db_hl > 120:
            raise Refusal(f"cap_db_hl must be at most 120, got {self.cap_db_hl:g}")
        if min(self.above_heard_db, self.above_missed_db, self.near_octaves) < 0:
            raise Refusal(f"limits must not be negative: {self}")

    def allowed(
        self, domain: Domain, trials: Sequence[Trial], reference_db_hl: Array | None = None
    ) -> Mask:
        """Which candidates (places x intensities) may be played now.

        `reference_db_hl` has the ear's own earlier threshold at every place, nan where unknown.
        """
        ceiling = np.full(domain.shape[0], self.start_db_hl)
        if (
            self.above_reference_db is not None
            and reference_db_hl is not None
            and any(trial.heard for trial in trials)
        ):
            ceiling = np.fmax(ceiling, reference_db_hl + self.above_reference_db)
        places = domain.places
        for trial in trials:
            gap = np.sqrt(((places - np.array(domain.place_of(trial.tone))) ** 2).sum(axis=1))
            rise = self.above_heard_db if trial.heard else self.above_missed_db
            near = gap <= self.near_octaves + 1e-9
            level = getattr(trial.tone, domain.intensity.name)
            ceiling[near] = np.maximum(ceiling[near], level + rise)
        softest, loudest = self.range_at(domain)
        ceiling = np.minimum(ceiling, loudest)
        levels = np.array(domain.intensity.values)
        return np.asarray(
            (levels[None, :] <= ceiling[:, None] + 1e-9)
            & (levels[None, :] >= softest[:, None] - 1e-9)
        )

    def range_at(self, domain: Domain) -> tuple[Array, Array]:
        """Softest and loudest level that could ever be played, at every place of the domain."""
        count = domain.shape[0]
        if self.device is None:
            return np.full(count, -np.inf), np.full(count, self.cap_db_hl)
        if not domain.of_tones:
            raise Refusal("what a device can play needs a domain of tones")
        known = {frequency: (low, high) for frequency, low, high in self.device}
        nothing = (np.inf, -np.inf)
        ends = np.array([known.get(f, nothing) for f in domain.smooth[0].values])
        return ends[:, 0], np.minimum(ends[:, 1], self.cap_db_hl)

    def reach(self, domain: Domain) -> list[tuple[float, float] | None]:
        """The softest and loudest candidate that could ever be played at every place, if any."""
        ends = []
        for low, high in zip(*self.range_at(domain), strict=True):
            within = [v for v in domain.intensity.values if low - 1e-9 <= v <= high + 1e-9]
            ends.append((within[0], within[-1]) if within else None)
        return ends

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def allowed(
    limits: Limits | None,
    domain: Domain,
    trials: Sequence[Trial],
    reference_db_hl: Array | None = None,
) -> Mask:
    """The candidates that may be played; a ValueError if the limits leave none."""
    if limits is None:
        return np.ones(domain.shape, dtype=bool)
    mask = limits.allowed(domain, trials, reference_db_hl)
    if not mask.any():
        raise Refusal(
            f"the limits leave no tone to play: softest candidate "
            f"{domain.intensity.values[0]:g} {domain.intensity.unit}, {limits}"
        )
    return mask


DEFAULT_THRESHOLD_SD_DB = 5.0  # Schlauch & Carney simulate audiograms with 5 dB per threshold


@dataclass(frozen=True)
class Audiogram:
    """Thresholds of one ear, as a clinic writes them down: no trials, only results.

    `method_offset_db` is what the method reads above the 50 % point and is taken off; a
    Hughson-Westlake audiogram in 5 dB steps reads about 2.5 dB high. `no_response_db_hl` lists
    frequencies with the loudest level that was tried and not heard.
    """

    thresholds_db_hl: Mapping[float, float]
    sd_db: float = DEFAULT_THRESHOLD_SD_DB
    method_offset_db: float = 0.0
    no_response_db_hl: Mapping[float, float] = dataclass_field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("thresholds_db_hl", "no_response_db_hl"):
            given = getattr(self, name)
            if not isinstance(given, Mapping):
                raise Refusal(f"{name} must map frequency in Hz to dB HL, got {given!r}")
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
            raise Refusal(f"sd_db must be positive, got {self.sd_db!r}")

    def to_dict(self) -> dict[str, Any]:
        return {
            "thresholds_db_hl": [list(item) for item in self.thresholds_db_hl.items()],
            "sd_db": self.sd_db,
            "method_offset_db": self.method_offset_db,
            "no_response_db_hl": [list(item) for item in self.no_response_db_hl.items()],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Audiogram":
        return cls(
            thresholds_db_hl=dict(data["thresholds_db_hl"]),
            sd_db=data["sd_db"],
            method_offset_db=data["method_offset_db"],
            no_response_db_hl=dict(data["no_response_db_hl"]),
        )


# The other ear -----------------------------------------------------------------------------------

# How much louder a tone must be than the other ear's threshold to be heard there, in dB.
INTERAURAL_DB = {"supra-aural": 40.0, "circumaural": 40.0, "insert": 55.0, "unknown": 40.0}


def crossing_level(other_ear: Audiogram | None, transducer: str, frequency_hz: float) -> float:
    """The level in dB HL from which the other ear might hear a tone; infinite if it is unknown.

    Between the audiogram's frequencies the threshold is taken from a line in octaves; beyond them
    it is not known and taken as 0 dB HL, or as the best one where that is lower. "No response"
    counts as a threshold at the level tried: it is higher.
    """
    if transducer not in INTERAURAL_DB:
        raise Refusal(f"transducer must be one of {', '.join(INTERAURAL_DB)}, got {transducer!r}")
    if other_ear is None:
        return math.inf
    if not isinstance(other_ear, Audiogram):
        raise Refusal(f"other_ear must be an earshift.Audiogram or None, got {other_ear!r}")
    levels = {f: t - other_ear.method_offset_db for f, t in other_ear.thresholds_db_hl.items()}
    known = sorted({**other_ear.no_response_db_hl, **levels}.items())
    octaves = [math.log2(f) for f, _ in known]
    unknown = min([0.0, *levels.values()])
    heard_at = np.interp(
        math.log2(frequency_hz),
        octaves,
        [level for _, level in known],
        left=unknown,
        right=unknown,
    )
    return float(heard_at) + INTERAURAL_DB[transducer]


def own_ear_only(domain: Domain, other_ear: Audiogram | None, transducer: str) -> Mask:
    """Which candidates the other ear cannot hear."""
    if other_ear is None:
        crossing_level(None, transducer, 1000.0)  # refuses an unknown transducer
        return np.ones(domain.shape, dtype=bool)
    if not domain.of_tones:
        raise Refusal("the other ear's thresholds need a domain of tones")
    limit = [crossing_level(other_ear, transducer, f) for f in domain.smooth[0].values]
    mask = np.array(domain.intensity.values)[None, :] < np.array(limit)[:, None]
    if not mask.any():
        raise Refusal("the other ear might hear every tone of the domain: nothing can be asked")
    return np.asarray(mask)
