"""Who did what, and what that is about."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import select

from earshift.engine.checks import whole
from earshift.records import AuditEntry
from earshift.store import checks, rows, texts
from earshift.store import tables as t
from earshift.store.database import reading, writing
from earshift.store.rows import Part
from earshift.store.subjects import Behind, subjects_of


class Audit(Part):
    """The store's calls about the audit."""

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
        person: int | None = None,
    ) -> list[AuditEntry]:
        """A page of the audit, oldest first; `subject` such as "exams:12" picks one row's.

        `kind` such as "exams" picks all rows of theirs, `person` those that belong to somebody, and
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
        query = query.order_by(at.desc() if newest_first else at)
        query = query.limit(whole(limit, "limit", 1))
        with reading(self.engine) as connection:
            if person is not None:
                query = query.where(t.audit.c.subject.in_(subjects_of(connection, person)))
            return rows.to_records(AuditEntry, connection.execute(query))

    def what_is_behind(self, subjects: Iterable[str]) -> Behind:
        """The rows that these subjects of audit lines name, and all that those belong to."""
        with reading(self.engine) as connection:
            return Behind(connection, set(subjects))
