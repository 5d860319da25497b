"""What may be stored: checks of what is handed in, in plain words.

Each gives the value back as it is stored, or refuses it.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from earshift.engine.checks import finite, whole
from earshift.store import tables as t
from earshift.store.errors import NoSuchRow, StoreError


def now() -> datetime:
    return datetime.now(UTC)


def moment(value: object, what: str) -> datetime:
    try:
        return t.as_utc(value, what)
    except (ValueError, OverflowError) as error:
        raise StoreError(str(error)) from None


def day(value: object, what: str) -> date:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise StoreError(f"{what} must be a date", got=value)
    return value


def text(value: object, what: str, *, blank: bool = False) -> str:
    """Text that both databases can hold, without the white space around it."""
    if not isinstance(value, str):
        raise StoreError(f"{what} must be text", got=value)
    if "\x00" in value or not _is_unicode(value):
        raise StoreError(f"{what} contains characters that cannot be stored", got=value)
    value = value.strip()
    if not value and not blank:
        raise StoreError(f"{what} must not be empty")
    return value


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_of(value: object, allowed: Sequence[str], what: str) -> str:
    if value not in allowed:
        raise StoreError(f"{what} must be one of {', '.join(allowed)}", got=value)
    return str(value)


def maybe(value: object, what: str) -> float | None:
    return None if value is None else finite(value, what)


def zone_name(value: object) -> str:
    name = text(value, "zone")
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise StoreError(
            "zone must be the name of a time zone such as Europe/Berlin", got=name
        ) from None
    return name


def plain(value: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The mapping as JSON gives it back; what is not plain data is refused here and not later."""
    try:
        plain = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"{what} must be plain JSON data: {error}") from None
    if not isinstance(plain, dict):
        raise StoreError(f"{what} must be a mapping", got=value)
    text(json.dumps(plain, ensure_ascii=False), what)
    return plain


def as_id(value: object, what: str) -> int:
    number = whole(value, f"the id of a {what}", 1)
    if number >= 2**63:
        raise NoSuchRow("there is no {row}", row=f"{what} {number}")
    return number
