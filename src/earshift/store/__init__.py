"""The store: people, devices, visits, exams, trials, results, notes and who did what.

Rows are only added: a correction, a void and a change of state are rows of their own, with author,
time and reason, and triggers in the database refuse anything else. When a call that writes returns,
what it wrote is on the disk, with its audit row. One SQLite file, or PostgreSQL by its address.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from sqlalchemy.engine import URL

from earshift.store import upkeep
from earshift.store.audit import Audit
from earshift.store.chain import Seal, head
from earshift.store.database import address, describe, in_use, open_database, reading
from earshift.store.devices import Devices
from earshift.store.errors import ExamChanged, NoSuchRow, StoreConflict, StoreError, StoreTrouble
from earshift.store.exams import Exams
from earshift.store.forgetting import NotForgotten, forget
from earshift.store.handles import Handles
from earshift.store.imports import Imported, Imports
from earshift.store.people import People
from earshift.store.results import Results
from earshift.store.signatures import Signatures
from earshift.store.site import Site
from earshift.store.standings import Standings, WorkFilter
from earshift.store.trials import Trials
from earshift.store.visits import Visits

__all__ = [
    "ExamChanged",
    "Imported",
    "NoSuchRow",
    "NotForgotten",
    "Seal",
    "Store",
    "StoreConflict",
    "StoreError",
    "StoreTrouble",
    "WorkFilter",
]


class Store(
    People,
    Devices,
    Visits,
    Exams,
    Trials,
    Results,
    Imports,
    Site,
    Signatures,
    Standings,
    Audit,
    Handles,
):
    """One database of records. A context manager; calls may come from any thread.

    >>> with Store.open("clinic.db") as store:
    ...     person = store.add_person(author="mh", code="4711")
    """

    def __init__(self, place: Path | URL) -> None:
        super().__init__(open_database(place))
        self._held: int | None = None
        try:
            if isinstance(place, Path):
                self._held = in_use(place)
        except BaseException:
            self.engine.dispose()
            raise
        self._place = place

    @classmethod
    def open(cls, where: str | Path | None = None) -> "Store":
        """The store in this file or at this postgresql:// address; an empty one gets its tables.

        Without `where` it is what EARSHIFT_DB says, else a file in the user's data folder.
        """
        return cls(address(where))

    @staticmethod
    def upgrade(where: str | Path | None = None) -> Path | None:
        """Bring an older store to this version's schema. The backup made before, if one was."""
        return upkeep.upgrade(address(where))

    @staticmethod
    def restore(backup: str | Path, where: str | Path | None = None) -> None:
        """Make a store from a backup, where none is yet."""
        upkeep.restore(Path(backup), address(where))

    def backup(self, path: str | Path) -> None:
        """Copy the whole store into a new file, while others may go on writing."""
        upkeep.backup(self._place, Path(path))

    def forget(self) -> None:
        """Write the files anew, so that none of them holds what was erased; every erasure does so
        at once, unless another program was reading."""
        forget(self.engine)

    def check(self) -> list[str]:
        """What is wrong with the store, in words; nothing when all is well."""
        return list(self.inspect().problems)

    def inspect(self, sealed: Sequence[Seal] = ()) -> upkeep.Report:
        """All that a check finds. With seals: also whether what they stand for is as it was."""
        return upkeep.check(self.engine, sealed)

    def seal(self) -> Seal:
        """The head of the chain over all that is stored, to be kept elsewhere."""
        with reading(self.engine) as connection:
            return head(connection)

    def unready(self) -> list[str]:
        """Why the store could not take an answer now, by codes; nothing when it could."""
        return upkeep.unready(self.engine)

    def second_role(self) -> str | None:
        """PostgreSQL: SQL for a role that reads and adds, and owns nothing. None for a file."""
        return upkeep.second_role(self.engine)

    def describe(self) -> str:
        """Where the store is, without a password."""
        return describe(self._place)

    def __repr__(self) -> str:
        return f"Store({self.describe()})"

    def close(self) -> None:
        self.engine.dispose()
        self._let_go()

    def _let_go(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
