"""A log that no flood of requests fills: of lines that are alike only so many are written."""

import logging
import time
from collections import Counter
from collections.abc import Callable

WINDOW_SECONDS = 10.0
ALIKE_IN_WINDOW = 300  # a busy clinic stays below
ALL_IN_WINDOW = 1000


class CalmLog(logging.Filter):
    """Lets the first lines of each kind pass, then says how many more there were."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock, self._began = clock, clock()
        self._written: Counter[object] = Counter()
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this line is written."""
        now = self._clock()
        if now - self._began >= WINDOW_SECONDS:
            left_out, seconds = self._left_out, now - self._began
            self._began, self._left_out = now, 0
            self._written.clear()
            if left_out:
                _append(record, f"(before this, {left_out} lines were left out in {seconds:.0f} s)")
        # Route and status make a kind, the time that it took does not.
        args = record.args[:2] if isinstance(record.args, tuple) else ()
        kind = (record.name, record.levelno, record.msg, args)
        full = record.levelno < logging.ERROR and self._written.total() >= ALL_IN_WINDOW
        if full or self._written[kind] >= ALIKE_IN_WINDOW:
            self._left_out += 1
            return False
        self._written[kind] += 1
        return True


def _append(record: logging.LogRecord, words: str) -> None:
    record.msg, record.args = f"{record.getMessage()} {words}", None
