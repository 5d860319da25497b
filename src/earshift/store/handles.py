"""The random ids that stand in addresses instead of the numbers of rows."""

import secrets
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection, Engine, func, insert, select

from earshift.store import checks
from earshift.store import tables as t
from earshift.store.database import HANDLES_LOCK, reading, writing
from earshift.store.errors import NoSuchRow
from earshift.store.rows import Part

HANDLES_KEPT = 10_000  # that were looked up, in memory


def handles_of(connection: Connection, kind: str, row_ids: Sequence[int]) -> dict[int, str]:
    h = t.handles
    query = select(h.c.row_id, h.c.handle).where(h.c.kind == kind, h.c.row_id.in_(row_ids))
    return {row.row_id: row.handle for row in connection.execute(query)}


def add_handles(connection: Connection, kind: str, row_ids: Sequence[int]) -> None:
    """New handles; of a row that another program has given one meanwhile, that one stays."""
    table = {"people": t.people, "visits": t.visits, "exams": t.exams, "devices": t.devices}[kind]
    known = connection.execute(select(table.c.id).where(table.c.id.in_(row_ids))).scalars().all()
    if unknown := set(row_ids) - set(known):
        raise NoSuchRow(f"there is no {{row}} of {kind}", row=min(unknown))
    if connection.dialect.name == "postgresql":  # else two programs give the same row one at once
        connection.execute(select(func.pg_advisory_xact_lock(HANDLES_LOCK)))
    taken = handles_of(connection, kind, row_ids)
    give_handles(connection, kind, [row_id for row_id in row_ids if row_id not in taken])


def give_handles(connection: Connection, kind: str, row_ids: Sequence[int]) -> None:
    """Handles of rows that have none: of new ones in their own transaction, so that a page which
    asks for them next finds all of it stored, or nothing."""
    for row_id in row_ids:
        new = {"kind": kind, "row_id": row_id, "handle": secrets.token_urlsafe(16)}
        connection.execute(insert(t.handles).values(**new))


class Handles(Part):
    """The store's calls about ids for addresses."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        # A handle is the same row's for ever: it is looked up once, and not with every answer.
        self._rows_behind: dict[tuple[str, str], int] = {}

    def handles(self, kind: str, row_ids: Iterable[int]) -> dict[int, str]:
        """Random ids for rows of `kind` (people, visits, exams, devices), the same ever after."""
        wanted = list(dict.fromkeys(row_ids))
        with reading(self.engine) as connection:
            found = handles_of(connection, kind, wanted)
        missing = [row_id for row_id in wanted if row_id not in found]
        if missing:
            with writing(self.engine) as connection:
                add_handles(connection, kind, missing)
                found |= handles_of(connection, kind, missing)
        self._remember(kind, found)
        return found

    def handle(self, kind: str, row_id: int) -> str:
        return self.handles(kind, [row_id])[row_id]

    def behind(self, kind: str, handle: str) -> int:
        """The id of the row with this handle; a `NoSuchRow` if there is none."""
        known = self._rows_behind.get((kind, handle))
        if known is not None:
            return known
        query = select(t.handles.c.row_id).where(
            t.handles.c.kind == kind, t.handles.c.handle == checks.text(handle, "id")
        )
        with reading(self.engine) as connection:
            found: int | None = connection.execute(query).scalar_one_or_none()
        if found is None:
            raise NoSuchRow("there is nothing with this id here")
        self._remember(kind, {found: handle})
        return found

    def _remember(self, kind: str, handles: Mapping[int, str]) -> None:
        if len(self._rows_behind) >= HANDLES_KEPT:
            self._rows_behind.clear()
        self._rows_behind.update({(kind, handle): row_id for row_id, handle in handles.items()})
