"""What tests ask of the machine itself: a clock that jumps, and a disk that is really small."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NO_FAKETIME = "clock group left out: no libfaketime or cc (Debian: faketime and gcc packages)"
NO_ROOT = "left out: only root may mount a disk of its own"


def left_out(words: str) -> None:
    """A test that this machine cannot run is left out; in CI that is a failure."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(words)


class Clock:
    """A clock for programs that are started with its surroundings: it can be set while they run.

    Only the time of day jumps, as when somebody sets a clock; what counts seconds goes on.
    """

    def __init__(self, folder: Path) -> None:
        found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
        if not found or shutil.which("cc") is None:
            left_out(NO_FAKETIME)
        waits = folder / "waits.so"
        source = str(Path(__file__).with_name("waits.c"))
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(waits), source],
            check=True,
        )
        self._file = folder / "clock"
        self.set("+0")
        self.surroundings = {
            "LD_PRELOAD": f"{waits}:{found[0]}",
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",  # without it every look at the clock reads the file
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def set(self, offset: str) -> None:
        """How far from the right time: "+30d", "-3h", "+0"."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset}\n")
        new.replace(self._file)  # nobody reads half of it
        time.sleep(2.5)  # until everybody has read it, who looks once a second


class SmallDisk:
    """A disk of its own, of a size that can be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def resize(self, size: str) -> None:
        command = ["mount", "-o", f"remount,size={size}", str(self.folder)]
        subprocess.run(command, check=True, capture_output=True)

    @property
    def free(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def fill(self, leave: int = 0) -> Path:
        """Fill it with a file, all but `leave` bytes."""
        file = self.folder / "other-peoples-data"
        with file.open("ab") as opened:
            while self.free > leave:
                try:
                    opened.write(b"x" * min(self.free - leave, 2**16))
                    opened.flush()
                except OSError:  # the last page may be another's by now
                    break
        return file


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[SmallDisk]:
    """A tmpfs of this size in a new folder."""
    if os.geteuid() != 0:
        left_out(NO_ROOT)
    folder.mkdir()
    options = f"size={size},mode=755"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        left_out(NO_ROOT)  # root of a container may not be root enough
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
