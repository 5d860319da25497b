"""Links for listeners, and whether they may see a visit's verdicts."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, select

from earshift.store import checks, exams, rows
from earshift.store import tables as t
from earshift.store.accounts.keys import Key, Keys, folded_name, key_of, live_keys
from earshift.store.database import reading, writing
from earshift.store.errors import StoreError

LINK_HOURS = 2.0


@dataclass(frozen=True)
class Link:
    """What a listener's link is for: some exams of one visit, and nothing else."""

    key_id: int
    visit_id: int
    exam_ids: tuple[int, ...]
    unfinished: tuple[int, ...]
    """Those of its exams that are open or paused, in the same order."""
    expires_at: datetime


def _lock_visit(connection: Connection, visit_id: int) -> None:
    rows.row_of(connection, t.visits, visit_id, "visit")
    connection.execute(select(t.visits.c.id).where(t.visits.c.id == visit_id).with_for_update())


def _link_of(visit_id: int) -> ColumnElement[bool]:
    return _of_visit("link", visit_id)


def _release_of(visit_id: int) -> ColumnElement[bool]:
    return _of_visit("release", visit_id)


def _of_visit(kind: str, visit_id: int) -> ColumnElement[bool]:
    k = t.keys.c
    return (k.kind == kind) & (k.name == f"visits:{visit_id}")


def _link(connection: Connection, key: Key) -> Link:
    exam_ids: list[int] = key.scope["exams"]
    states = exams.states_of(connection, exam_ids)
    return Link(
        key_id=key.id,
        visit_id=key.scope["visit"],
        exam_ids=tuple(exam_ids),
        unfinished=tuple(one for one in exam_ids if states.get(one) in ("open", "paused")),
        expires_at=key.expires_at,
    )


class Links(Keys):
    """Calls about listeners' links."""

    def make_link(
        self, visit_id: int, exam_ids: Sequence[int], author: str, hours: float = LINK_HOURS
    ) -> str:
        """The secret of a link to exams of one visit; the visit's earlier links end. It ends with
        the account of its author, if that is a user."""
        author = checks.text(author, "author")
        if not 0 < hours <= LINK_HOURS:
            raise StoreError(
                f"a listener's link must last more than 0 and at most {LINK_HOURS:g} hours"
            )
        secret = secrets.token_urlsafe(16)
        with writing(self.engine) as connection:
            _lock_visit(connection, visit_id)
            of_visit = select(t.exams.c.id).where(t.exams.c.visit_id == visit_id)
            if not exam_ids or set(exam_ids) - set(connection.execute(of_visit).scalars()):
                raise StoreError("a listener's link needs one exam or more, all of its visit")
            self._end(connection, _link_of(visit_id), author, "followed by a new link")
            maker = select(t.users.c.id).where(t.users.c.name == folded_name(author))
            self._add_key(
                connection,
                secret,
                kind="link",
                user_id=connection.execute(maker).scalar_one_or_none(),
                name=f"visits:{visit_id}",
                scope={"visit": visit_id, "exams": list(exam_ids)},
                expires_at=self._clock() + timedelta(hours=hours),
                author=author,
            )
        return secret

    def link(self, secret: str) -> Link | None:
        """The live link with this secret."""
        with reading(self.engine) as connection:
            key = self._live(connection, "link", secret)
            return None if key is None else _link(connection, key)

    def link_of(self, visit_id: int) -> Link | None:
        """The live link of a visit, if it has one."""
        with reading(self.engine) as connection:
            query = live_keys().where(_link_of(visit_id))
            found = connection.execute(query, self._now("link")).first()
            return None if found is None else _link(connection, key_of(found))

    def end_links(self, visit_id: int, author: str, reason: str = "revoked") -> None:
        """End the links of a visit. It may have none."""
        with writing(self.engine) as connection:
            _lock_visit(connection, visit_id)
            self._end(connection, _link_of(visit_id), checks.text(author, "author"), reason)

    def release(self, visit_id: int, author: str, released: bool = True) -> None:
        """Let the listener of a visit see the verdicts, or no longer."""
        author = checks.text(author, "author")
        with writing(self.engine) as connection:
            _lock_visit(connection, visit_id)
            self._end(connection, _release_of(visit_id), author, "release changed")
            if released:
                # A key that nobody holds: it lasts, and ends as the others do.
                self._add_key(
                    connection,
                    secrets.token_urlsafe(32),
                    kind="release",
                    name=f"visits:{visit_id}",
                    scope={},
                    author=author,
                )

    def released(self, visit_id: int) -> bool:
        with reading(self.engine) as connection:
            query = live_keys().where(_release_of(visit_id))
            return connection.execute(query, self._now("release")).first() is not None
