"""What every study is made of: cases that depend on nothing but themselves.

A case has columns and gives rows. Its key is a digest of all its fields and of the version, so that
a finished case is found again, and one with any other setting is not mistaken for it. All chance
comes from seeds that are made of names and numbers: the same on every machine, in any order.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from earshift import __version__
from earshift.engine import norms

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Ear:
    """A simulated ear: a name for the rows and its true thresholds, (Hz, dB HL)."""

    name: str
    thresholds_db_hl: tuple[tuple[float, float], ...]

    @classmethod
    def of_class(cls, name: str) -> "Ear":
        return cls(name, tuple(norms.class_median(name).items()))


@dataclass(frozen=True)
class Case(ABC):
    """A piece of a study: its own rows, under its own key. A study's cases are its subclasses."""

    columns: ClassVar[tuple[str, ...]]

    @property
    def key(self) -> str:
        """Names a case's file; changes with anything that changes its rows."""
        text = json.dumps([asdict(self), __version__], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @abstractmethod
    def rows(self) -> list[Row]:
        """Everything this case has to say; the same at every call."""


def seed_of(*parts: object) -> int:
    """A seed from names and numbers, the same on every machine."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:6], "big")
