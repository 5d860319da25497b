"""Simulated listeners: the truth that the engine never sees.

Thresholds are a cubic spline in log frequency; a tone is heard with probability
guess + (1 - guess - lapse) Phi((level - threshold) / spread).
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from earshift.engine.audiogram import Levels
from earshift.engine.checks import check_rates, decibel, finite, hertz, whole
from earshift.engine.norms import class_median
from earshift.engine.refusal import Refusal
from earshift.engine.tone import Tone

ENDS = (-60.0, 200.0)  # of true thresholds in dB: a deaf ear's lies past every audiometer


def retest_jitter(
    octaves: NDArray[np.float64], sd_db: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """A smooth random curve in dB, as thresholds move from day to day: an octave of correlation."""
    gaps = octaves[:, None] - octaves[None, :]
    cov = np.exp(-0.5 * gaps**2) + 1e-9 * np.eye(octaves.size)
    return np.asarray(sd_db * (np.linalg.cholesky(cov) @ rng.standard_normal(octaves.size)))


class Listener:
    """A person with known thresholds who answers tones: `listener(tone)` is True when heard.

    Args:
        thresholds_db_hl: true thresholds in dB HL by frequency in Hz, two or more; a smooth curve
            in log frequency goes through them.
        spread_db: standard deviation of the psychometric function, in dB.
        guess: probability of "heard" without hearing, 0 to 1.
        lapse: probability of "missed" in spite of hearing, 0 to 1.
        retest_sd_db: moves the thresholds of this sitting by a smooth random curve of that standard
            deviation in dB (an octave of correlation), as a real ear's move from day to day.
        seed: of the listener's chance; the same seed gives the same answers.

    Raises:
        Refusal: for fewer than two thresholds, kHz for Hz, or rates that are none.

    Examples:
        >>> listener = Listener({500: 10, 4000: 40}, lapse=0.02, seed=1)
        >>> round(listener.threshold(4000))
        40
    """

    def __init__(
        self,
        thresholds_db_hl: Levels,
        *,
        spread_db: float = 3.0,
        guess: float = 0.0,
        lapse: float = 0.0,
        retest_sd_db: float = 0.0,
        seed: int | tuple[int, ...] = 0,
    ) -> None:
        if not isinstance(thresholds_db_hl, Mapping):
            raise Refusal("a listener has thresholds by frequency", got=thresholds_db_hl)
        if len(thresholds_db_hl) < 2:
            raise Refusal("a listener needs thresholds at two frequencies or more")
        self.spread_db = finite(spread_db, "spread_db")
        if not self.spread_db > 0:
            raise Refusal(f"spread_db must be positive, got {spread_db!r}")
        if not finite(retest_sd_db, "retest_sd_db") >= 0:
            raise Refusal(f"retest_sd_db must not be negative, got {retest_sd_db!r}")
        check_rates(guess, lapse)
        self.guess, self.lapse = guess, lapse
        for number in seed if isinstance(seed, tuple) else (seed,):
            whole(number, "seed", 0)
        self._rng = np.random.default_rng(seed)
        ordered = sorted(
            (
                hertz(f, "a frequency of a listener"),
                decibel(level, f"a threshold (at {f} Hz)", ENDS),
            )
            for f, level in thresholds_db_hl.items()
        )
        octaves = np.array([math.log2(f) for f, _ in ordered])
        levels = np.array([level for _, level in ordered])
        if retest_sd_db > 0:
            levels = levels + retest_jitter(octaves, retest_sd_db, self._rng)
        from scipy.interpolate import CubicSpline  # slow to import, and only needed here

        self._spline = CubicSpline(octaves, levels)

    @classmethod
    def of_class(cls, name: str, **options: object) -> "Listener":
        """A listener with the median audiogram of a hearing-loss class.

        Args:
            name: "normal", "slight", "mild" or another class of the simulations.
            **options: as of `Listener`, such as `lapse` or `seed`.

        Returns:
            The listener.

        Raises:
            Refusal: for a class that is none.
        """
        return cls(class_median(name), **options)  # type: ignore[arg-type]

    def threshold(self, frequency_hz: float) -> float:
        """True level in dB HL at `frequency_hz` that is heard half the time, rates aside.

        Returns:
            A level in dB HL.

        Raises:
            Refusal: for a frequency that nobody hears, such as one in kHz.
        """
        return float(self._spline(math.log2(hertz(frequency_hz, "frequency_hz"))))

    def p_heard(self, tone: Tone) -> float:
        """True probability that this `tone` is reported.

        Returns:
            A probability, rates included.

        Raises:
            Refusal: for what is no `Tone`.
        """
        if not isinstance(tone, Tone):
            raise Refusal("a listener hears an earshift.Tone", got=tone)
        z = (tone.level_db_hl - self.threshold(tone.frequency_hz)) / self.spread_db
        return float(self.guess + (1.0 - self.guess - self.lapse) * ndtr(z))

    def __call__(self, tone: Tone) -> bool:
        return bool(self._rng.random() < self.p_heard(tone))
