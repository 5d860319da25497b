"""Background noise of a test room, octave band by octave band, against the limits that are known.

Supra-aural earphones go by 29 CFR 1910.95 Appendix D, Table D-1; insert earphones by 49 CFR 227
Appendix D. For other earphones no limit is known here, and none is made up.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from earshift.acts import RoomNoise
from earshift.engine.refusal import Refusal

BANDS_HZ = (125, 250, 500, 1000, 2000, 4000, 8000)  # that may be typed in
LEVELS_DB = (-10.0, 140.0)  # dB SPL that a meter can have shown

# dB SPL by octave band in Hz, and where that is written.
LIMITS: dict[str, tuple[dict[int, float], str]] = {
    "supra-aural": (
        {500: 40.0, 1000: 40.0, 2000: 47.0, 4000: 57.0, 8000: 62.0},
        "29 CFR 1910.95 Appendix D",
    ),
    "insert": (
        {500: 50.0, 1000: 47.0, 2000: 49.0, 4000: 50.0, 8000: 56.0},
        "49 CFR 227 Appendix D",
    ),
}
WITHIN, OVER, INCOMPLETE, NO_LIMIT = "within", "over", "incomplete", "no limit known"


@dataclass(frozen=True)
class NoiseCheck:
    """What the limits for a kind of earphone say of a measurement."""

    transducer: str
    state: str
    """within, over, incomplete, or no limit known."""
    source: str = ""
    over: tuple[tuple[int, float, float], ...] = ()
    """Octave band in Hz, its level and the limit in dB SPL."""
    missing: tuple[int, ...] = ()
    """Octave bands with a limit that were not measured."""

    @property
    def words(self) -> str:
        """In a sentence without its full stop."""
        phones = f"{self.transducer} earphones"
        if self.state == NO_LIMIT:
            return f"no limit known for {phones}"
        if self.state == WITHIN:
            return f"within the limits for {phones} ({self.source})"
        if self.state == INCOMPLETE:
            bands = ", ".join(f"{band} Hz" for band in self.missing)
            return f"not measured at {bands}, so not known to keep {self.source} for {phones}"
        bands = ", ".join(
            f"{band} Hz {level:g} dB (limit {limit:g})" for band, level, limit in self.over
        )
        missing = ", ".join(f"{band} Hz" for band in self.missing)
        and_missing = f"; not measured at {missing}" if missing else ""
        return f"TOO LOUD for {phones}: {bands} ({self.source}){and_missing}"


def check_noise(levels: Mapping[str, float], transducer: str) -> NoiseCheck:
    """Levels in dB SPL by octave band in Hz against the limits for a kind of earphone."""
    if transducer not in LIMITS:
        return NoiseCheck(transducer, NO_LIMIT)
    limits, source = LIMITS[transducer]
    known = {int(band): level for band, level in levels.items()}
    over = tuple(
        (band, known[band], limit)
        for band, limit in limits.items()
        if known.get(band, limit) > limit
    )
    missing = tuple(band for band in limits if band not in known)
    state = OVER if over else INCOMPLETE if missing else WITHIN
    return NoiseCheck(transducer, state, source, over, missing)


def as_levels(given: Mapping[str, object]) -> dict[str, float]:
    """Levels as typed in, checked: octave band in Hz to dB SPL."""
    levels: dict[str, float] = {}
    for band, level in given.items():
        text = str(band).strip()
        if text not in {str(one) for one in BANDS_HZ}:
            bands = ", ".join(map(str, BANDS_HZ))
            raise Refusal(f"an octave band is one of {bands} Hz", got=band)
        try:
            number = float(str(level).strip())
        except ValueError:
            number = float("nan")
        low, high = LEVELS_DB
        if not low <= number <= high:
            raise Refusal(
                f"the level at {text} Hz must be a number of dB SPL from {low:g} to {high:g}",
                got=level,
            )
        levels[text] = number
    if not levels:
        raise Refusal("room noise needs the level of at least one octave band")
    return {str(band): levels[str(band)] for band in BANDS_HZ if str(band) in levels}


def noise_words(noise: RoomNoise) -> str:
    """The levels themselves: "500 Hz 21 dB, 1000 Hz 20 dB"."""
    in_order = sorted(noise.levels.items(), key=lambda pair: int(pair[0]))
    return ", ".join(f"{band} Hz {level:g} dB" for band, level in in_order)
