"""What people do today: a modified Hughson-Westlake examiner.

The procedure (ANSI S3.21 / ASHA 2005 in its common form): familiarise at a clearly
audible level, then down 10 dB after each response and up 5 dB after each miss; the threshold is the
lowest level heard in at least half of its ascending presentations, two of three at the least.
At the ends of the range there is no further step: the same level is played again, and the same
answer twice running ends it. A threshold that is not found in time is left out, not made up.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from earshift.engine.audiogram import Audiogram
from earshift.engine.tone import Tone

FREQUENCIES_HZ = (1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0, 500.0)
LOWEST_DB_HL, HIGHEST_DB_HL, START_DB_HL = -10.0, 100.0, 40.0
MAX_TONES_PER_FREQUENCY = 60  # a listener who answers at random must not keep us here for ever


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
    level, tones = start, 0

    def heard_at(level: float) -> bool:
        nonlocal tones
        tones += 1
        return bool(listener(Tone(frequency, level)))

    # Clearly audible first: up in steps of 10 until there is a response.
    heard = heard_at(level)
    while not heard and level < HIGHEST_DB_HL:
        level = min(level + 10.0, HIGHEST_DB_HL)
        heard = heard_at(level)
    ascending: dict[float, list[bool]] = {}
    while tones < MAX_TONES_PER_FREQUENCY:
        last_level, last_heard = level, heard
        level = max(level - 10.0, LOWEST_DB_HL) if heard else min(level + 5.0, HIGHEST_DB_HL)
        heard = heard_at(level)
        if level == last_level and heard == last_heard:
            return (LOWEST_DB_HL if heard else math.inf), tones
        if not last_heard:
            answers = ascending.setdefault(level, [])
            answers.append(heard)
            if sum(answers) >= 2 and sum(answers) >= len(answers) / 2:
                return level, tones
    return None, tones
