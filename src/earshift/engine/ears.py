"""One ear or both: which are tested, and whose a tone is."""

from collections.abc import Mapping, Sequence
from typing import Self

from earshift.engine.refusal import Refusal
from earshift.engine.tone import Trial
from earshift.engine.values import EARS


def tested_ears(ears: str | None) -> tuple[str | None, ...]:
    """The ears of an exam or a screen: both by name, or one that has none."""
    if ears not in (None, "both"):
        raise Refusal("ears must be 'both', or left out for one ear", got=ears)
    return (None,) if ears is None else EARS


def the_other(ear: str) -> str:
    """The other ear."""
    return EARS[1 - EARS.index(ear)]


def ear_of(tone: object) -> str:
    """The ear of a tone, or a refusal: where both ears are tested a tone needs one."""
    ear = getattr(tone, "ear", None)
    if ear not in EARS:
        raise Refusal("both ears are tested: give a tone with ear 'right' or 'left'", got=tone)
    return str(ear)


def trials_of(trials: Sequence[Trial], ear: str | None) -> tuple[Trial, ...]:
    """One ear's trials, in order; where only one ear is tested (None), all of them."""
    return tuple(trial for trial in trials if ear is None or trial.tone.ear == ear)


class ByEar(float):
    """A probability of two ears: as a number the larger one, and either ear's by a call.

    Examples:
        >>> ByEar({"right": 0.1, "left": 0.9})("right")
        0.1
    """

    of: Mapping[str, float]

    def __new__(cls, of: Mapping[str, float]) -> Self:
        largest = super().__new__(cls, max(of.values()))
        largest.of = of
        return largest

    def __call__(self, ear: str) -> float:
        if ear not in self.of:
            raise Refusal("ear must be 'right' or 'left'", got=ear)
        return self.of[ear]
