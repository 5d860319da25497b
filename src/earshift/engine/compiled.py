"""Compiled functions, and where their compiled form is kept from one run to the next.

Numba keeps it beside the source. Where the program may not write there, as in a service whose code
is read-only, it goes to a folder of this program's own; without any, it is compiled in every run.
"""

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

from numba import config, njit


def _writable(folder: Path) -> bool:
    """Whether files can be made in a folder, which is made if it is missing."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def cache_folder() -> Path | None:
    """A folder for compiled functions, None where numba's usual place will do.

    `EARSHIFT_CACHE`, systemd's `CACHE_DIRECTORY` and the user's cache folder are tried in turn.
    """
    given = os.environ.get("EARSHIFT_CACHE")
    if not given and _writable(Path(__file__).parent / "__pycache__"):
        return None
    from platformdirs import user_cache_path

    service = os.environ.get("CACHE_DIRECTORY", "").split(":")[0]
    tried = [Path(one) / "kernels" for one in (given, service) if one]
    for folder in (*tried, user_cache_path("earshift") / "kernels"):
        if _writable(folder):
            return folder
    # Of this process alone: nobody else's code may be loaded from a place that all can write to.
    return Path(tempfile.mkdtemp(prefix="earshift-kernels-"))


if not config.CACHE_DIR:
    config.CACHE_DIR = str(cache_folder() or "")

_options = {"cache": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
compiled = njit(**_options)
# Called by compiled functions alone, which spares what Python would need to call it.
within = njit(**_options, no_cpython_wrapper=True)
# Part of its caller: numba brings all that a function calls into its compiled form once more, so a
# large function with a single caller is none of its own. Dear inside large callers, for small ones.
inlined = njit(**_options, inline="always")

_compiled: set[str] = set()


@contextmanager
def compiling(part: str) -> Iterator[None]:
    """Around the first use of jitted code: says so when it has to be compiled first.

    Compiled code is cached on disk, so this happens once on a machine; a cached start is quick and
    stays silent.
    """
    if part in _compiled:
        yield
        return
    notice = Timer(
        3.0,
        logging.getLogger("earshift").warning,
        ["compiling the numerical kernels of the %s: once on this machine, under a minute", part],
    )
    notice.daemon = True
    notice.start()
    try:
        yield
        _compiled.add(part)
    finally:
        notice.cancel()
