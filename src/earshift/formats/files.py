"""Files that come from strangers and go to strangers: bounded reading, writing whole or not at all.

Nothing is read before its size is known. A file is written beside its place under another name and
moved there when it is complete and on disk; a failure leaves nothing behind.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from earshift.engine.refusal import NotFound, Refusal

GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
FORMULA = re.compile(r"'*[=+\-@\t\r]")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Whoever cannot read a file is told which one: a disk that fails does not say it."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def check_size(path: Path, most: int) -> None:
    """Refuse what is no plain file, what is packed and what is larger than `most` bytes."""
    if not path.is_file():
        if not path.exists():
            raise NotFound("there is no {file}", file=f"file {path}")
        raise Refusal("{file} is not a file", file=path)
    size = path.stat().st_size
    if size > most:
        raise Refusal(
            f"{{file}} is {size / 1e6:.0f} MB; at most {most / 1e6:.0f} MB are read: split it",
            file=path,
        )
    with path.open("rb") as file:
        if file.read(4).startswith((GZIP, ZIP)):
            raise Refusal("{file} is compressed (gzip or zip); decompress it first", file=path)


def decode(path: Path, data: bytes) -> str:
    """The text of a file, which must be UTF-8; a byte order mark is taken off."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None
    if "\0" in text:
        raise Refusal("{file} contains null bytes: it is not a text file in UTF-8", file=path)
    return text


def not_utf8(path: Path, error: UnicodeDecodeError) -> Refusal:
    return Refusal(f"{{file}} is not UTF-8 text ({error.reason}); save it as UTF-8", file=path)


def guard(text: str) -> str:
    """Text that no spreadsheet takes for a formula: an apostrophe goes before a formula's start.

    One goes before apostrophes that precede such a start, too, so that `unguard` undoes it always.
    """
    return f"'{text}" if FORMULA.match(text) else text


def unguard(text: str) -> str:
    """The text as it was before `guard`."""
    return text[1:] if text.startswith("'") and FORMULA.match(text) else text


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """A text file to write, readable by its owner alone, that appears when all of it is written."""
    _refuse_existing(path)
    handle, name = tempfile.mkstemp(dir=_parent(path), prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, readable by its owner alone, that appears when all of it is written."""
    _refuse_existing(path)
    part = Path(tempfile.mkdtemp(dir=_parent(path), prefix=f".{path.name}.", suffix=".part"))
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _refuse_existing(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise Refusal("{file} already exists; give a new name or remove it first", file=path)


def _parent(path: Path) -> Path:
    if not path.absolute().parent.is_dir():
        raise Refusal(
            "there is no {folder} to write {file} into",
            folder=f"folder {path.absolute().parent}",
            file=path.name,
        )
    return path.absolute().parent
