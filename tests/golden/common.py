"""What recording and comparing share: plain data, scrubbed of sentences and of the clock."""

import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
# Of computed numbers, which differ in the last digits from processor to processor. Tones and stored
# data are compared exactly.
RELATIVE, ABSOLUTE = 1e-6, 1e-5

# Sentences may be written anew, so only whether there is one is compared. A rule's text and the
# version of the program are of this kind, too, and where the chain stands, which is salted.
SENTENCES = frozenset(
    {"caution", "chained_since", "conclusion", "div", "engine_version", "error", "message", "note",
     "notes", "problem", "problems", "reason", "remarks", "seal", "text", "unverified", "warnings",
     "words"}
)  # fmt: skip
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)([T ]\d\d:\d\d.*)?")
_SPAN = re.compile(r"[{][^}]*[}]")


def plain(data: Any) -> Any:
    """The data as JSON has them: tuples are lists, keys are texts."""
    return json.loads(json.dumps(data, default=str))


def without_sentences(data: Any) -> Any:
    """The data with every sentence replaced by a mark that there is one."""
    if isinstance(data, dict):
        return {
            key: _mark(value) if key in SENTENCES else without_sentences(value)
            for key, value in data.items()
        }
    return [without_sentences(item) for item in data] if isinstance(data, list) else data


def _mark(value: Any) -> Any:
    if isinstance(value, str):
        return "<text>" if value else ""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ["<text>"] if value else []
    return without_sentences(value)


def without_clock(data: Any) -> Any:
    """The data with times of these days replaced by marks."""

    def mark(text: str) -> str:
        found = _TIME.fullmatch(text)
        if not found or not _is_now(found[1]):
            return text
        return "<now>" if found[2] else "<today>"

    return _each_text(data, mark)


def without_folder(data: Any, folder: Path) -> Any:
    """The data with the test's own folder replaced by a mark."""
    return _each_text(data, lambda text: text.replace(str(folder), "<folder>"))


def _each_text(data: Any, change: Callable[[str], str]) -> Any:
    if isinstance(data, dict):
        return {key: _each_text(value, change) for key, value in data.items()}
    if isinstance(data, list):
        return [_each_text(item, change) for item in data]
    return change(data) if isinstance(data, str) else data


def _is_now(day: str) -> bool:
    try:
        given = date.fromisoformat(day)
    except ValueError:
        return False
    return abs(given - datetime.now(UTC).date()) <= timedelta(days=2)


def differences(before: Any, now: Any, *, exact: bool, where: str = "") -> Iterator[str]:
    """Every place at which two plain data differ; the numbers by a tolerance unless `exact`."""
    at = where or "everything"
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *(key for key in now if key not in before)]:
            inner = f"{where}.{key}" if where else str(key)
            if key not in now:
                yield f"{inner} is gone (was {_short(before[key])})"
            elif key not in before:
                if exact:  # what was computed may say more than it did; what is saved may not
                    yield f"{inner} is new ({_short(now[key])})"
            else:
                yield from differences(before[key], now[key], exact=exact, where=inner)
    elif isinstance(before, list) and isinstance(now, list):
        if len(before) != len(now):
            yield f"{at} has {len(now)} items, had {len(before)}"
        for number, (old, new) in enumerate(zip(before, now, strict=False)):
            yield from differences(old, new, exact=exact, where=f"{where}[{number}]")
    elif not _same(before, now, exact):
        yield f"{at} was {_short(before)}, is {_short(now)}"


def _same(before: Any, now: Any, exact: bool) -> bool:
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (before, now))
    if numbers and not exact and float in (type(before), type(now)):
        return math.isclose(before, now, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    if numbers:
        return bool(before == now)
    return type(before) is type(now) and bool(before == now)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:120]} ..."


def told(found: Iterator[str], what: str) -> str:
    """The differences as the message of a failed test; nothing when there are none."""
    lines = list(found)
    more = f"\n  ... and {len(lines) - 20} more" if len(lines) > 20 else ""
    return f"{what} is not as recorded:\n  " + "\n  ".join(lines[:20]) + more if lines else ""


def nameless(path: str) -> str:
    """A path of the API without the names of its parameters, which no client sees."""
    return _SPAN.sub("{}", path)


def load(name: str) -> dict[str, Any]:
    """The recorded entries of one golden file."""
    entries: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    return entries


def write(name: str, entries: dict[str, Any]) -> None:
    """One line for every part of every entry, so that a change shows where it is."""
    lines = []
    for entry, parts in entries.items():
        if isinstance(parts, dict):
            inner = ",\n".join(f"  {_line(part)}: {_line(value)}" for part, value in parts.items())
            lines.append(f" {_line(entry)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {_line(entry)}: {_line(parts)}")
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (HERE / f"{name}.json").write_text(text, encoding="utf-8")


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
