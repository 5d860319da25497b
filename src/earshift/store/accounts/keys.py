"""Users and the keys that they hold, as rows: what the other modules of accounts stand on.

A key is a session, an API token or a listener link: a random secret of which only the hash is
stored, with an end.
"""

import hashlib
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    bindparam,
    exists,
    func,
    insert,
    select,
)

from earshift.store import rows
from earshift.store import tables as t
from earshift.store.errors import NoSuchRow
from earshift.store.rows import Part

ROLES = ("examiner", "reviewer", "admin")  # each may do what those before it may
# One number for PostgreSQL's advisory locks, as in `store.database`.
ACCOUNTS_LOCK = 7305141


@dataclass(frozen=True)
class User:
    id: int
    name: str
    role: str
    state: str
    created_at: datetime
    changed_at: datetime
    temporary: bool = False
    """Whether somebody else chose the password, which then has to be changed at first use."""
    second_factor: bool = False
    """Whether signing in also asks for a code."""

    @property
    def active(self) -> bool:
        return self.state == "active"


@dataclass(frozen=True)
class Key:
    """A live key without its secret, and whose it is. A single user's session is nobody's."""

    id: int
    kind: str
    public_id: str
    name: str
    scope: dict[str, Any]
    created_at: datetime
    expires_at: datetime
    author: str
    user: User | None

    @property
    def role(self) -> str:
        """What its holder may do: never more than the user may now."""
        if self.kind == "link":
            return "listener"
        if self.user is None:
            return "admin" if self.kind == "session" else "listener"
        asked: str = self.scope.get("role", self.user.role)
        return min(asked, self.user.role, key=ROLES.index)


def sha256(secret: str) -> str:
    # Secrets are random and long, so that a plain hash is as good as a slow one.
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def folded_name(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name.strip()).casefold())


def hold_accounts(connection: Connection) -> None:
    """Hold off others who change users or try passwords; SQLite's writers are alone anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(ACCOUNTS_LOCK)))


def _newest_state() -> Any:
    states = t.user_states
    newest = select(func.max(states.c.id)).where(states.c.user_id == t.users.c.id)
    return newest.correlate(t.users).scalar_subquery()


def _has_factor() -> Any:
    f = t.second_factors
    newest = f.alias()
    last = select(func.max(newest.c.id)).where(newest.c.user_id == t.users.c.id)
    last_id = last.correlate(t.users).scalar_subquery()
    found = select(f.c.secret.is_not(None)).where(f.c.id == last_id)
    return found.correlate(t.users).scalar_subquery().label("second_factor")


def _user_columns() -> tuple[ColumnElement[Any], ...]:
    states = t.user_states.c
    return (
        t.users.c.id,
        t.users.c.name,
        t.users.c.created_at,
        states.role,
        states.state,
        states.password_hash,
        states.at.label("changed_at"),
        states.temporary,
        _has_factor(),
    )


@cache
def users_query() -> Select[Any]:
    return (
        select(*_user_columns())
        .select_from(t.users)
        .join(t.user_states, t.user_states.c.id == _newest_state())
    )


def known_user(connection: Connection, name: str, *, lock: bool = False) -> Row[Any]:
    if lock:  # first: what a statement reads is as old as its start
        locked = select(t.users.c.id).where(t.users.c.name == folded_name(name)).with_for_update()
        connection.execute(locked)
    found = connection.execute(users_query().where(t.users.c.name == folded_name(name))).first()
    if found is None:
        raise NoSuchRow("there is no user with this name")
    return found


def has_users(connection: Connection) -> bool:
    return connection.execute(select(t.users.c.id).limit(1)).first() is not None


def has_admin(connection: Connection) -> bool:
    states = t.user_states.c
    admins = users_query().where(states.role == "admin", states.state == "active")
    return connection.execute(admins.limit(1)).first() is not None


def user_of(row: Row[Any]) -> User:
    return User(
        row.id,
        row.name,
        row.role,
        row.state,
        row.created_at,
        row.changed_at,
        bool(row.temporary),
        bool(row.second_factor),
    )


@cache
def live_keys() -> Select[Any]:
    """Keys of a kind that have not ended, and whose user may still come in."""
    k = t.keys
    now = bindparam("now", type_=t.UtcDateTime())
    return (
        select(*(column.label(f"key_{column.name}") for column in k.c), *_user_columns())
        .outerjoin(t.key_ends, t.key_ends.c.key_id == k.c.id)
        .outerjoin(t.users, t.users.c.id == k.c.user_id)
        .outerjoin(t.user_states, t.user_states.c.id == _newest_state())
        .where(
            k.c.kind == bindparam("kind"),
            t.key_ends.c.id.is_(None),
            k.c.expires_at.is_(None) | (k.c.expires_at > now),
            k.c.user_id.is_(None) | (t.user_states.c.state == "active"),
        )
    )


@cache
def live_key() -> Select[Any]:
    return live_keys().where(t.keys.c.secret_sha256 == bindparam("secret_sha256"))


def key_of(row: Row[Any]) -> Key:
    return Key(
        id=row.key_id,
        kind=row.key_kind,
        # Of the hash again, so that an id in an address is of no use to find the key.
        public_id=sha256(row.key_secret_sha256)[:22],
        name=row.key_name,
        scope=row.key_scope,
        created_at=row.key_created_at,
        expires_at=row.key_expires_at,
        author=row.key_author,
        user=None if row.id is None else user_of(row),
    )


class Keys(Part):
    """What every kind of key shares."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        super().__init__(engine)
        self._clock = clock

    def _add_key(
        self, connection: Connection, secret: str, *, author: str, **values: Any
    ) -> Row[Any]:
        values |= {"secret_sha256": sha256(secret), "created_at": self._clock(), "author": author}
        return rows.add_row(connection, t.keys, values, author, values["kind"])

    def _live(self, connection: Connection, kind: str, secret: str) -> Key | None:
        values = self._now(kind) | {"secret_sha256": sha256(secret)}
        found = connection.execute(live_key(), values).first()
        return None if found is None else key_of(found)

    def _now(self, kind: str) -> dict[str, Any]:
        """What the query of live keys is asked with."""
        return {"kind": kind, "now": self._clock()}

    def _end(
        self, connection: Connection, which: ColumnElement[bool], author: str, reason: str
    ) -> None:
        """End every key of a kind of set, also those that have expired: a clock that was ahead
        and is put back would let them live again."""
        ended = exists().where(t.key_ends.c.key_id == t.keys.c.id)
        query = select(t.keys.c.id).where(which, ~ended)
        for key_id in connection.execute(query).scalars().all():
            end = {"key_id": key_id, "at": self._clock(), "author": author, "reason": reason}
            connection.execute(insert(t.key_ends).values(**end))
            rows.add_audit(connection, author, "end", f"keys:{key_id}", reason)
