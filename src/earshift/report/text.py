"""Stored values as text: numbers rounded for reading, moments in local time, nothing that acts.

No field of a stored result is taken for granted: what is missing or of another kind than expected
is said to be so.
"""

import math
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, TypeVar

from earshift.days import is_noon, local_time
from earshift.engine.amount import in_percent
from earshift.engine.refusal import Refusal
from earshift.report.words import Words

Data = Mapping[str, Any]
T = TypeVar("T")

LONGEST_FACT, LONGEST_TEXT = 200, 800  # characters; a longer one says how much is left out
MISSING = "–"


def harmless(text: str) -> str:
    """Text without characters that act on the page instead of being read: shown by code point.

    Controls, lone surrogates, private characters and overrides of the writing direction. Line
    breaks stay; joiners, which Persian and Indian names need, do too.
    """
    clean = text.replace("\r\n", "\n").replace("\t", " ")
    return "".join(code_point(c) if _acts(c) else c for c in clean)


def _acts(character: str) -> bool:
    if unicodedata.bidirectional(character) in _OVERRIDES:
        return True
    return character != "\n" and unicodedata.category(character) in ("Cc", "Cs", "Co")


_OVERRIDES = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def code_point(character: str) -> str:
    return f"[U+{ord(character):04X}]"


def map_text(value: T, change: Callable[[str], str]) -> T:
    """The same data with every text in it changed."""
    result: Any = value
    if isinstance(value, str):
        result = change(value)
    elif isinstance(value, tuple):
        result = tuple(map_text(each, change) for each in value)
    elif is_dataclass(value) and not isinstance(value, type):
        result = replace(
            value, **{f.name: map_text(getattr(value, f.name), change) for f in fields(value)}
        )
    return result  # type: ignore[no-any-return]


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def decibels(value: float | None) -> str:
    """Whole dB, with a real minus sign and no minus before zero."""
    return MISSING if value is None else f"{round(value):d}".replace("-", "−")


def signed(value: float | None) -> str:
    """Whole dB with a plus sign where it is one."""
    whole = None if value is None else round(value)
    return f"+{whole}" if whole is not None and whole > 0 else decibels(value)


def hertz(value: float) -> str:
    return f"{value:g}" if value < 1e5 else f"{value:.0f}"


def probability(verdict: Data, words: Words) -> str:
    """That a rule is met or hearing has changed."""
    if verdict.get("decision") == "not determinable":
        return words.decisions["not determinable"]
    p = number(verdict.get("p_changed"))
    return words.not_recorded if p is None else percent(p, words)


def percent(p: float, words: Words) -> str:
    """As the verdict's sentence says it, and never a certainty that is only rounding."""
    if p < 0.0005:
        return words.below.format(value="0.1 %")
    return words.beyond.format(value="99.9 %") if p > 0.9995 else in_percent(p)


def counted(value: object, words: Words) -> str:
    count = number(value)
    return words.not_recorded if count is None else f"{count:g}"


def numbers(value: object) -> list[float]:
    """The finite numbers of a list."""
    if not isinstance(value, list | tuple):
        return []
    return [known for each in value if (known := number(each)) is not None]


def pairs(value: object) -> list[tuple[float, float]]:
    """The pairs of a frequency and a level in a list."""
    items = value if isinstance(value, list | tuple) else []
    found = [numbers(item) for item in items]
    return [(pair[0], pair[1]) for pair in found if len(pair) == 2 and pair[0] > 0]


def rows_of(value: object) -> list[Data]:
    items = value if isinstance(value, list | tuple) else []
    return [row for row in items if isinstance(row, Mapping)]


def mapping(value: object) -> Data:
    return value if isinstance(value, Mapping) else {}


def plain(value: object, words: Words) -> str:
    if isinstance(value, bool):
        return words.yes if value else words.no
    return words.not_recorded if value is None or value == "" else str(value)


def paragraph(value: object, words: Words) -> str:
    """A stored text as one paragraph."""
    return shortened(unbroken(str(value)), LONGEST_TEXT, words) if value else words.not_recorded


def one_line(value: str, words: Words) -> str:
    """A stored text as one fact."""
    return shortened(unbroken(value), LONGEST_FACT, words)


def unbroken(text: str) -> str:
    return " ".join(text.split())


def shortened(text: str, longest: int, words: Words) -> str:
    if len(text) <= longest:
        return text
    return words.shortened.format(text=text[:longest], count=len(text) - longest)


def _local(at: datetime, zone: str) -> tuple[datetime, bool]:
    """The moment in the zone, or in UTC where the zone is not known; and whether it is."""
    try:
        return local_time(at, zone), True
    except Refusal:
        return at.astimezone(UTC), False


def day_of(at: datetime, zone: str) -> date:
    """The local day, or that of UTC where the zone is not known."""
    return _local(at, zone)[0].date()


def moment(at: datetime, zone: str, words: Words) -> str:
    """A moment on the clocks of the zone, to the minute."""
    local, known = _local(at, zone)
    day, time = local.date().isoformat(), f"{local:%H:%M}"
    if not known:
        return words.moment_in_utc.format(day=day, time=time, zone=one_line(zone, words))
    if zone.rpartition("/")[2] == "UTC":
        return words.moment_utc.format(day=day, time=time)
    offset = f"{local:%z}"
    return words.moment.format(day=day, time=time, zone=zone, offset=f"{offset[:3]}:{offset[3:5]}")


def from_elsewhere(at: datetime | None, zone: str, words: Words) -> str:
    """When something was measured elsewhere: no hour where only the day is known."""
    if at is None:
        return words.not_recorded
    known = _local(at, zone)[1]
    return day_of(at, zone).isoformat() if known and is_noon(at, zone) else moment(at, zone, words)
