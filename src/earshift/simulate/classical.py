"""What people do today: a modified Hughson-Westlake examiner.

A threshold that is not found in time is left out, not made up.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from earshift.engine.ascending import ascending_threshold
from earshift.engine.audiogram import Audiogram
from earshift.engine.tone import Tone

FREQUENCIES_HZ = (1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0, 500.0)
LOWEST_DB_HL, HIGHEST_DB_HL, START_DB_HL = -10.0, 100.0, 40.0


@dataclass(frozen=True)
class ManualExam:
    """An examiner's audiogram and the number of tones it took."""

    audiogram: Audiogram
    tones: int


def hughson_westlake(
    listener: Callable[[Tone], bool],
    frequencies_hz: Sequence[float] = FREQUENCIES_HZ,
    method_offset_db: float = 0.0,
) -> ManualExam:
    """Measure thresholds in 5 dB steps; 1000 Hz first, each next one from the last threshold."""
    thresholds: dict[float, float] = {}
    no_response: dict[float, float] = {}
    tones = 0
    start = START_DB_HL
    for frequency in frequencies_hz:
        level, used = _threshold(listener, frequency, start)
        tones += used
        if level == math.inf:
            no_response[frequency] = HIGHEST_DB_HL
        elif level is not None:
            thresholds[frequency] = level
            start = min(max(level + 20.0, 30.0), HIGHEST_DB_HL)
    audiogram = Audiogram(
        thresholds, method_offset_db=method_offset_db, no_response_db_hl=no_response
    )
    return ManualExam(audiogram, tones)


def _threshold(
    listener: Callable[[Tone], bool], frequency: float, start: float
) -> tuple[float | None, int]:
    """One frequency: the threshold and its tones; inf for no response, None for not found."""
    procedure = ascending_threshold(start, LOWEST_DB_HL, HIGHEST_DB_HL)
    level, tones = next(procedure), 0
    while True:
        tones += 1
        try:
            level = procedure.send(bool(listener(Tone(frequency, level))))
        except StopIteration as ended:
            return ended.value, tones
