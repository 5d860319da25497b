"""Time zones: which one a site is in."""

import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from earshift.engine.refusal import Refusal


def as_zone(name: str) -> str:
    """The name itself if it is a time zone's."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise Refusal(f"a time zone has a name such as Europe/Berlin, got {name!r}") from None
    return name


def local_zone() -> str:
    """IANA name of this machine's time zone; a ValueError when it has none to be found."""
    candidates = [os.environ.get("TZ", "").lstrip(":")]
    link = Path("/etc/localtime")
    if link.is_symlink():
        candidates.append(str(link.resolve()).rpartition("zoneinfo/")[2])
    if datetime.now().astimezone().tzname() == "UTC":
        candidates.append("UTC")
    for name in candidates:
        with suppress(ValueError):
            return as_zone(name)
    raise Refusal(
        "the time zone of this machine has no name; give one such as Europe/Berlin by --timezone"
    )
