"""How loud a tone may be: limits that rise only with what was answered."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earshift.engine.checks import decibel, finite
from earshift.engine.domain import Domain
from earshift.engine.refusal import Refusal
from earshift.engine.tone import Trial

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def _device_rows(given: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    rows = tuple(tuple(finite(value, "a level of the device") for value in row) for row in given)
    if not rows or any(len(row) != 3 for row in rows):
        raise Refusal(
            "device needs (frequency, softest, loudest) at one frequency or more", got=given
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

    Attributes:
        cap_db_hl: the highest level ever, in dB HL; at most 120.
        start_db_hl: the highest level before anything was answered, in dB HL.
        above_heard_db: how far a tone may rise above one that was heard nearby, in dB.
        above_missed_db: how far a tone may rise above one that was missed nearby, in dB.
        near_octaves: what counts as nearby, in octaves (units of the smooth axes).
        above_reference_db: how far a tone may rise above the ear's own earlier threshold, in dB;
            None to leave it out of account.
        device: what the equipment can and may play: (frequency in Hz, softest, loudest level in
            dB HL). A frequency that is not listed is not played. None for equipment that plays
            everything.

    Raises:
        Refusal: for levels above 120 or below -40 dB HL, or steps that are negative.

    Examples:
        >>> Limits(cap_db_hl=80, start_db_hl=30).above_heard_db
        20.0
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
        for name in ("cap_db_hl", "start_db_hl"):
            decibel(getattr(self, name), name)
        if min(self.above_heard_db, self.above_missed_db, self.near_octaves) < 0:
            raise Refusal(f"limits must not be negative: {self}")

    def allowed(
        self, domain: Domain, trials: Sequence[Trial], reference_db_hl: Array | None = None
    ) -> Mask:
        """Which candidates (places x intensities) may be played now.

        Args:
            domain: of the candidates.
            trials: all answers of this ear so far.
            reference_db_hl: the ear's own earlier threshold at every place, nan where unknown.

        Returns:
            An array of places x levels, True where a tone may be played.
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
        """Softest and loudest level that could ever be played, at every place of the domain.

        Args:
            domain: of the candidates.

        Returns:
            Two arrays of levels in dB HL, one number for each place.

        Raises:
            Refusal: where a device is given and the domain is none of tones.
        """
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
        """The softest and loudest candidate that could ever be played at every place, if any.

        Args:
            domain: of the candidates.

        Returns:
            For each place softest and loudest level in dB HL, or None where nothing can be played.

        Examples:
            >>> domain = Domain.tones([1000, 2000], range(-10, 101, 5))
            >>> Limits(cap_db_hl=80).reach(domain)
            [(-10.0, 80.0), (-10.0, 80.0)]
        """
        ends = []
        for low, high in zip(*self.range_at(domain), strict=True):
            within = [v for v in domain.intensity.values if low - 1e-9 <= v <= high + 1e-9]
            ends.append((within[0], within[-1]) if within else None)
        return ends

    def to_dict(self) -> dict[str, Any]:
        """As plain data.

        Returns:
            Plain values that JSON can hold.
        """
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
