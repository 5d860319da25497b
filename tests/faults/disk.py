"""The disks that a power cut may leave, replayed from what shim.c wrote down.

A disk has names and contents. A content is safe once its file was synced, a name once its folder
was: what was done since may have reached the disk, whole, in part, or not at all.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

SECTOR = 512  # what a disk writes whole or not at all
SHARED_MEMORY = "-shm"  # of SQLite: written past the calls, and made anew after a crash
CUTS = ("killed", "lost", "named", "torn")
"""What a cut leaves: all that was written (the program alone was killed); nothing that was not
synced; every name, but nothing else that was not synced; or any part of what was not synced."""


class Step(NamedTuple):
    what: str
    path: str
    at: int
    data: bytes


def steps(log: Path) -> list[Step]:
    """What was written down, in order."""
    found, raw, place = [], log.read_bytes(), 0
    while place < len(raw):
        end = raw.index(b"\n", place)
        what, path, at, size = raw[place:end].decode().split("\t")
        place = end + 1 + int(size)
        found.append(Step(what, path, int(at), raw[end + 1 : place]))
    return found


@dataclass
class File:
    now: bytearray
    safe: bytes
    since: list[Step] = field(default_factory=list)

    def change(self, step: Step) -> None:
        self.since.append(step)
        _apply(self.now, step)

    def sync(self) -> None:
        self.safe, self.since = bytes(self.now), []

    def torn(self, chance: random.Random) -> bytes:
        """What was safe, with any of what was written since, sector by sector."""
        left = bytearray(self.safe)
        for step in self.since:
            if step.what == "truncate" and chance.random() < 0.5:
                _apply(left, step)
            for start in range(0, len(step.data), SECTOR):
                if chance.random() < 0.5:
                    part = step.data[start : start + SECTOR]
                    _apply(left, Step("write", step.path, step.at + start, part))
        return bytes(left)


def _apply(content: bytearray, step: Step) -> None:
    size = step.at + len(step.data)
    if step.what == "truncate":
        del content[step.at :]
    content.extend(bytes(max(0, size - len(content))))
    content[step.at : size] = step.data


class Disk:
    """The folder as a program sees it, and what of it is safe."""

    def __init__(self, folder: Path, before: Path) -> None:
        """The folder's name, and another one that holds what was safe in it at first."""
        self.folder = str(folder)
        self.names: dict[str, File | None] = {}  # None is a folder
        for path in before.rglob("*"):
            file = None if path.is_dir() else File(bytearray(path.read_bytes()), path.read_bytes())
            self.names[f"{folder}/{path.relative_to(before)}"] = file
        self.safe = dict(self.names)
        self.marks: list[str] = []

    def take(self, step: Step) -> None:
        """One more step was done."""
        if step.what == "mark":
            self.marks.append(step.data.decode())
        elif not step.path.endswith(SHARED_MEMORY):
            getattr(self, f"_{step.what}")(step)

    def _create(self, step: Step) -> None:
        self.names[step.path] = File(bytearray(), b"")

    def _mkdir(self, step: Step) -> None:
        self.names[step.path] = None

    def _write(self, step: Step) -> None:
        file = self.names.get(step.path)
        if file is not None:  # else it has lost its name, and nobody finds it again
            file.change(step)

    _truncate = _write

    def _sync(self, step: Step) -> None:
        file = self.names.get(step.path)
        if file is not None:
            file.sync()
        elif step.path == self.folder or step.path in self.names:
            inside = step.path.rstrip("/") + "/"

            def here(name: str) -> bool:
                return name.startswith(inside) and "/" not in name[len(inside) :]

            kept = {name: file for name, file in self.safe.items() if not here(name)}
            self.safe = kept | {name: file for name, file in self.names.items() if here(name)}

    def _rename(self, step: Step) -> None:
        self.names[step.data.decode()] = self.names.pop(step.path)

    def _unlink(self, step: Step) -> None:
        self.names.pop(step.path, None)

    def cut(self, how: str, chance: random.Random) -> dict[str, bytes]:
        """The files that are left when the power goes now."""
        names = dict(self.safe if how == "lost" else self.names)
        if how == "torn":
            for name in {*self.safe, *self.names}:
                if chance.random() < 0.5:
                    names.pop(name, None)
                    if name in self.safe:
                        names[name] = self.safe[name]
        left = {}
        for name, file in names.items():
            lost_above = any(
                str(above) not in names
                for above in Path(name).parents
                if str(above).startswith(self.folder + "/")
            )
            if file is None or lost_above:
                continue
            if how == "killed":
                left[name[len(self.folder) + 1 :]] = bytes(file.now)
            else:
                content = file.torn(chance) if how == "torn" else file.safe
                left[name[len(self.folder) + 1 :]] = content
        return left


def cuts(folder: Path, before: Path, log: Path) -> Iterator[Disk]:
    """The disk before the first step and after each one."""
    disk = Disk(folder, before)
    yield disk
    for step in steps(log):
        disk.take(step)
        yield disk
