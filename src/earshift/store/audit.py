"""Who did what, and the random ids that stand in addresses."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Select, func, insert, select

from earshift.engine.checks import whole
from earshift.records import AuditEntry
from earshift.store import checks, rows, texts
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


class Audit(Part):
    """The store's calls about the audit and ids for addresses."""

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

    def add_audit(
        self, *, author: str, action: str, subject: str, details: Mapping[str, Any] | None = None
    ) -> None:
        """A line in the audit for what changes no row: who looked at what, who logged in."""
        with writing(self.engine) as connection:
            rows.add_audit(connection, checks.text(author, "author"), action, subject, "", details)

    def audit(
        self,
        *,
        after: int = 0,
        limit: int = 100,
        subject: str | None = None,
        author: str | None = None,
        kind: str | None = None,
        newest_first: bool = False,
        since: datetime | None = None,
        before: datetime | None = None,
        subjects: Select[Any] | None = None,
    ) -> list[AuditEntry]:
        """A page of the audit, oldest first; `subject` such as "exams:12" picks one row's.

        `kind` such as "exams" picks all rows of theirs, `subjects` those that a query gives, and
        `author` what somebody did. With `newest_first` the page goes back in time from the line
        `after`, 0 being the newest.
        """
        at = t.audit.c.id
        start = whole(after, "after", 0)
        query = select(*texts.columns(t.audit, "reason"))
        if not newest_first:
            query = query.where(at > start)
        elif start:
            query = query.where(at < start)
        wanted = {"subject": subject, "author": author}
        for name, value in wanted.items():
            if value is not None:
                query = query.where(t.audit.c[name] == value)
        if kind is not None:
            of_kind = t.audit.c.subject.startswith(f"{kind}:", autoescape=True)
            query = query.where(of_kind | (t.audit.c.subject == kind))
        if since is not None:
            query = query.where(t.audit.c.at >= since)
        if before is not None:
            query = query.where(t.audit.c.at < before)
        if subjects is not None:
            query = query.where(t.audit.c.subject.in_(subjects))
        query = query.order_by(at.desc() if newest_first else at)
        query = query.limit(whole(limit, "limit", 1))
        with reading(self.engine) as connection:
            return rows.to_records(AuditEntry, connection.execute(query))
