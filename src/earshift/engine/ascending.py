"""The threshold of one frequency as examiners find it: levels go out, answers come back.

The modified Hughson-Westlake procedure (ANSI S3.21 / ASHA 2005 in its common form): first clearly
audible, then down 10 dB after each response and up 5 dB after each miss; the threshold is the
lowest level heard in at least half of its ascending presentations, two of three at the least.
At the ends of the range there is no further step: the same level is played again, and the same
answer twice running ends it.
"""

import math
from collections.abc import Generator

MAX_TONES_PER_FREQUENCY = 60  # a listener who answers at random must not keep us here for ever
DOWN_DB, UP_DB = 10.0, 5.0


def ascending_threshold(
    start: float, softest: float, loudest: float
) -> Generator[float, bool, float | None]:
    """Yields levels and is sent whether each was heard.

    Returns the threshold; inf for no response at the loudest level, None for not found in time.
    """
    level = start
    tones = 1
    # Clearly audible first: up in larger steps until there is a response.
    heard = yield level
    while not heard and level < loudest:
        level = min(level + DOWN_DB, loudest)
        heard = yield level
        tones += 1
    ascending: dict[float, list[bool]] = {}
    while tones < MAX_TONES_PER_FREQUENCY:
        last_level, last_heard = level, heard
        level = max(level - DOWN_DB, softest) if heard else min(level + UP_DB, loudest)
        heard = yield level
        tones += 1
        if level == last_level and heard == last_heard:
            return softest if heard else math.inf
        if not last_heard:
            answers = ascending.setdefault(level, [])
            answers.append(heard)
            if sum(answers) >= 2 and sum(answers) >= len(answers) / 2:
                return level
    return None
