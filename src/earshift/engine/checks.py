"""Checks of single values: a number, a whole number, an answer; each names what was wrong."""

import math

import numpy as np

from earshift.engine.refusal import Refusal

HEARD_HZ = (100.0, 20000.0)
AUDIOMETER_DB_HL = (-40.0, 140.0)  # nothing that an audiometer says lies outside
# Of a tone, which may be of equipment that nobody has calibrated: it may count from its loudest.
LEVELS_DB = (-140.0, 140.0)


def finite(value: object, what: str) -> float:
    """The value as a float, or a ValueError that names it."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        raise Refusal(f"{what} must be a number", got=value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Refusal(f"{what} must be finite", got=value)
    return number


def hertz(value: object, what: str) -> float:
    """A frequency that people hear, in Hz, or a refusal: kHz are the usual mistake."""
    number = finite(value, what)
    if not HEARD_HZ[0] <= number <= HEARD_HZ[1]:
        raise Refusal(f"{what} must lie from 100 to 20000 Hz (not kHz)", got=number)
    return number


def decibel(value: object, what: str, ends: tuple[float, float] = AUDIOMETER_DB_HL) -> float:
    """A level in dB between these ends, or a refusal: codes such as 999 are no levels."""
    number = finite(value, what)
    if not ends[0] <= number <= ends[1]:
        raise Refusal(f"{what} must lie from {ends[0]:g} to {ends[1]:g} dB", got=number)
    return number


def whole(value: object, what: str, least: int) -> int:
    """The value as an int of at least `least`, or a ValueError that names it."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise Refusal(f"{what} must be a whole number of at least {least}", got=value)
    return int(value)


def as_heard(value: object) -> bool:
    """True/False from a bool, a numpy bool or 0/1."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer) and value in (0, 1):
        return bool(value)
    raise Refusal("heard must be True/False or 1/0", got=value)


def check_rates(guess: float, lapse: float) -> None:
    """Refuse guess and lapse rates that leave no audible range.

    Whoever chooses blindly between two alternatives is right half of the time, and never more.
    """
    if not (isinstance(guess, int | float) and 0.0 <= guess <= 0.5):
        raise Refusal("guess rate must be a number from 0 to 0.5", got=guess)
    if not (isinstance(lapse, int | float) and 0.0 <= lapse < 0.5):
        raise Refusal("lapse rate must be a number from 0 to below 0.5", got=lapse)
