"""Who may come in: users with roles, and the keys that they and their listeners hold.

A key is a session, an API token or a listener link: a random secret of which only the hash is
stored, with an end. Passwords are hashed by argon2, and whoever guesses waits before argon2 is
asked at all. Rows are only added, each with its audit row; of a user the newest state counts.
"""

import hashlib
import hmac
import ipaddress
import secrets
import threading
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    exists,
    func,
    insert,
    select,
)

from earshift.engine.refusal import Refusal
from earshift.store import Store, checks, exams, rows
from earshift.store import tables as t
from earshift.store.database import reading, writing
from earshift.store.errors import NoSuchRow, StoreConflict, StoreError

if TYPE_CHECKING:
    from argon2 import PasswordHasher

ROLES = ("examiner", "admin")  # each may do what those before it may
USER_STATES = ("active", "disabled")
NOBODY = "nobody"  # the author of what a stranger tried

NAME_LENGTH = 64
PASSWORD_LENGTHS = (12, 256)  # the longest keeps a request from being work by its size alone
DIFFERENT_CHARACTERS = 5

SESSION_IDLE = timedelta(minutes=30)
SESSION_LONGEST = timedelta(hours=12)
SESSION_RENEWED = timedelta(minutes=5)  # a key older than this is followed by a new one
SHORTEST_TOKEN_DAYS, TOKEN_DAYS = 0.04, 366.0  # about an hour; the longest is about a year
LINK_HOURS = 2.0

# Guesses that are free, and how far back they count. Then each wrong one doubles the wait.
FREE_BY_NAME, WINDOW_BY_NAME = 5, timedelta(hours=24)
FREE_BY_ADDRESS, WINDOW_BY_ADDRESS = 30, timedelta(hours=1)  # a clinic may share one address
LONGEST_WAIT = timedelta(minutes=15)
COUNTED = 100  # attempts looked at; by then the wait is at its longest

# One number for PostgreSQL's advisory locks, as in `store.database`.
ACCOUNTS_LOCK = 7305139
HASHES_AT_ONCE = 2  # argon2 takes 64 MiB each


class Throttled(Refusal):
    """Too many wrong passwords; `retry_after` is the wait in whole seconds."""

    code = "throttled"

    def __init__(self, wait: timedelta) -> None:
        self.retry_after = max(1, -int(-wait.total_seconds() // 1))
        super().__init__(f"too many wrong passwords; try again in {self.retry_after} seconds")


@dataclass(frozen=True)
class User:
    id: int
    name: str
    role: str
    state: str
    created_at: datetime
    changed_at: datetime

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
        if self.user is None:
            return "admin" if self.kind == "session" else "listener"
        asked: str = self.scope.get("role", self.user.role)
        return min(asked, self.user.role, key=ROLES.index)


@dataclass(frozen=True)
class Link:
    """What a listener's link is for: some exams of one visit, and nothing else."""

    key_id: int
    visit_id: int
    exam_ids: tuple[int, ...]
    unfinished: tuple[int, ...]
    """Those of its exams that are open or paused, in the same order."""
    expires_at: datetime


def sha256(secret: str) -> str:
    # Secrets are random and long, so that a plain hash is as good as a slow one.
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def csrf_token(session: str) -> str:
    """What a page sends beside its session's cookie; the same for as long as the session lasts."""
    lasting = session.partition(".")[0]
    return hmac.new(lasting.encode(errors="surrogatepass"), b"csrf", "sha256").hexdigest()


def as_user_name(name: object) -> str:
    """A user's name as it is stored: one spelling, whatever the case it is typed in."""
    folded = _folded(checks.text(name, "the name of a user"))
    if not 2 <= len(folded) <= NAME_LENGTH or not all(c.isalnum() or c in "._-@" for c in folded):
        raise StoreError(
            f"the name of a user has 2 to {NAME_LENGTH} letters, digits or . _ - @",
            code="user-name",
        )
    if folded == NOBODY:
        raise StoreError(f"no user can be called {NOBODY}; choose another name", code="user-name")
    return folded


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name.strip()).casefold())


def as_password(password: object, name: str) -> str:
    """A password that may be set. What was given is never part of the message."""
    if not isinstance(password, str):
        raise StoreError("a password must be text")
    normal = unicodedata.normalize("NFKC", password)
    shortest, longest = PASSWORD_LENGTHS
    if not shortest <= len(normal) <= longest:
        raise StoreError(
            f"a password has {shortest} to {longest} characters; several words make a good one",
            code="weak-password",
        )
    if len(normal.casefold().replace(name, "")) < shortest // 2:
        raise StoreError(
            "a password must not be the user's name; choose another one", code="weak-password"
        )
    if len(set(normal)) < DIFFERENT_CHARACTERS:
        raise StoreError(
            f"a password has at least {DIFFERENT_CHARACTERS} different characters; choose another",
            code="weak-password",
        )
    return normal


class Accounts:
    """Users and keys in a store. Calls may come from any thread; the clock is for tests."""

    def __init__(self, store: Store, clock: Callable[[], datetime] = checks.now) -> None:
        self._engine, self._clock = store.engine, clock
        self._hashing = threading.BoundedSemaphore(HASHES_AT_ONCE)

    # Users

    def users(self) -> list[User]:
        """All users, by name."""
        with reading(self._engine) as connection:
            found = connection.execute(_users().order_by(t.users.c.name))
            return [_user(row) for row in found]

    def user(self, name: str) -> User:
        with reading(self._engine) as connection:
            return _user(_known_user(connection, name))

    def any_users(self) -> bool:
        with reading(self._engine) as connection:
            return _any_users(connection)

    def any_admin(self) -> bool:
        """Whether somebody could sign in who may add others."""
        return any(user.role == "admin" and user.active for user in self.users())

    def add_user(self, name: str, password: str, *, role: str, author: str) -> User:
        """A new user. The first one is an admin, as nobody else could add more."""
        name, author = as_user_name(name), checks.text(author, "author")
        values = {
            "role": checks.one_of(role, ROLES, "role"),
            "password_hash": self._hash(as_password(password, name)),
            "state": "active",
        }
        with writing(self._engine) as connection:
            _alone(connection)
            if role != "admin" and not _any_users(connection):
                raise StoreConflict("the first user has to be an admin; add one with role admin")
            if connection.execute(_users().where(t.users.c.name == name)).first() is not None:
                raise StoreConflict("there is a user of this name already")
            new = {"name": name, "created_at": self._clock()}
            user = rows.add_row(connection, t.users, new, author)
            self._add_state(connection, user.id, values, author, "new user")
            return _user(_known_user(connection, name))

    def change_user(
        self,
        name: str,
        *,
        author: str,
        reason: str,
        role: str | None = None,
        state: str | None = None,
        password: str | None = None,
    ) -> User:
        """Another role, state or password. A new password and a disabled user end all keys."""
        name, author = as_user_name(name), checks.text(author, "author")
        changes: dict[str, Any] = {}
        if role is not None:
            changes["role"] = checks.one_of(role, ROLES, "role")
        if state is not None:
            changes["state"] = checks.one_of(state, USER_STATES, "state")
        if password is not None:
            changes["password_hash"] = self._hash(as_password(password, name))
        if not changes:
            raise StoreConflict("nothing to change: give a role, a state or a password")
        reason = checks.text(reason, "reason")
        with writing(self._engine) as connection:
            _alone(connection)
            before = _known_user(connection, name)
            kept = {key: before._mapping[key] for key in ("role", "password_hash", "state")}
            self._add_state(connection, before.id, kept | changes, author, reason)
            if not _any_admin(connection):
                raise StoreConflict("this is the last active admin; make another user one first")
            if password is not None or state == "disabled":
                self._end(connection, t.keys.c.user_id == before.id, author, reason)
            return _user(_known_user(connection, name))

    def _add_state(
        self, connection: Connection, user_id: int, values: dict[str, Any], author: str, reason: str
    ) -> None:
        state = {"user_id": user_id, "at": self._clock(), "author": author, "reason": reason}
        changed = {"role": values["role"], "state": values["state"]}
        rows.add_row(connection, t.user_states, values | state, author, reason, changed)

    # Passwords

    def _hash(self, password: str) -> str:
        with self._hashing:
            return _argon2().hash(password)

    def _matches(self, password_hash: str, password: str) -> bool:
        from argon2.exceptions import InvalidHashError, VerificationError

        normal = unicodedata.normalize("NFKC", password).encode(errors="surrogatepass")
        with self._hashing:
            try:
                return _argon2().verify(password_hash, normal)
            except (VerificationError, InvalidHashError):
                return False

    def sign_in(self, name: str, password: str, address: str) -> tuple[User, str] | None:
        """The user and the secret of a new session, or None: whether it was the name or the
        password is not told, nor how long the answer takes. `Throttled` when guessing must wait.
        """
        folded, caller = _folded(name), _caller(address)
        decoy = _decoy()  # made before it is needed, so that a wrong name takes no longer
        with writing(self._engine) as connection:
            self._admit(connection, sha256(folded), caller)
        with reading(self._engine) as connection:
            found = connection.execute(_users().where(t.users.c.name == folded)).first()
        right = self._matches(decoy if found is None else found.password_hash, password)
        with writing(self._engine) as connection:
            # Read again: what was disabled or changed meanwhile must not come in.
            now = _known_user(connection, folded, lock=True) if right and found else None
            if now is None or found is None or now.password_hash != found.password_hash:
                subject = "users:unknown" if found is None else f"users:{found.id}"
                rows.add_audit(connection, NOBODY, "sign-in refused", subject, "wrong password")
                return None
            user = _user(now)
            if not user.active:
                rows.add_audit(
                    connection, NOBODY, "sign-in refused", f"users:{user.id}", "disabled"
                )
                return None
            self._note_attempt(connection, sha256(folded), caller, succeeded=True)
            rows.add_audit(connection, user.name, "sign in", f"users:{user.id}")
            lasting, began = secrets.token_urlsafe(32), self._clock()
            return user, self._add_session(connection, lasting, began, user.name, user)

    def _admit(self, connection: Connection, name_sha256: str, caller: str) -> None:
        """Refuse whoever guessed too often. An attempt counts as wrong until it proves right,
        so that many at once are not free."""
        _alone(connection)
        attempts, now = t.login_attempts.c, self._clock()

        def recent(column: ColumnElement[Any], value: str, window: timedelta) -> Sequence[Any]:
            query = (
                select(attempts.succeeded, attempts.at)
                .where(column == value, attempts.at > now - window)
                .order_by(attempts.id.desc())
                .limit(COUNTED)
            )
            return connection.execute(query).all()

        by_name = recent(attempts.name_sha256, name_sha256, WINDOW_BY_NAME)
        since_success = list(takewhile(lambda row: not row.succeeded, by_name))
        by_address = recent(attempts.address, caller, WINDOW_BY_ADDRESS)
        right = sum(row.succeeded for row in by_address)  # each was counted as wrong before
        wait = max(
            _wait(since_success, len(since_success) - FREE_BY_NAME, now),
            _wait(by_address, len(by_address) - 2 * right - FREE_BY_ADDRESS, now),
        )
        if wait > timedelta(0):
            raise Throttled(wait)
        self._note_attempt(connection, name_sha256, caller, succeeded=False)

    def _note_attempt(
        self, connection: Connection, name_sha256: str, caller: str, *, succeeded: bool
    ) -> None:
        row = {"name_sha256": name_sha256, "address": caller, "succeeded": succeeded}
        connection.execute(insert(t.login_attempts).values(**row, at=self._clock()))

    # Sessions

    def _add_session(
        self,
        connection: Connection,
        lasting: str,
        began: datetime,
        author: str,
        user: User | None = None,
        **scope: str,
    ) -> str:
        """A secret in two parts: one lasts as long as the session, one until it is renewed."""
        secret = f"{lasting}.{secrets.token_urlsafe(32)}"
        last = began + SESSION_LONGEST
        self._add_key(
            connection,
            secret,
            kind="session",
            user_id=user and user.id,
            name=sha256(lasting),
            scope={"began": began.isoformat(), **scope},
            # One person alone would have to start the program again after every break.
            expires_at=last if user is None else min(self._clock() + SESSION_IDLE, last),
            author=author,
        )
        return secret

    def _add_key(
        self, connection: Connection, secret: str, *, author: str, **values: Any
    ) -> Row[Any]:
        values |= {"secret_sha256": sha256(secret), "created_at": self._clock(), "author": author}
        return rows.add_row(connection, t.keys, values, author, values["kind"])

    def session(self, secret: str, launch_sha256: str | None = None) -> Key | None:
        """The live session with this secret. One that a launch began is good for that alone,
        and only while there are no users."""
        with reading(self._engine) as connection:
            key = self._live(connection, "session", secret)
            if key is None or key.user is not None:
                return key
            launched = launch_sha256 is not None and key.scope.get("launch") == launch_sha256
            return key if launched and not _any_users(connection) else None

    def renew(self, secret: str, key: Key) -> str | None:
        """The secret that follows this one, when it is time. The old one ends by its own clock,
        so that requests on their way with it still arrive."""
        if key.user is None or self._clock() - key.created_at < SESSION_RENEWED:
            return None
        with writing(self._engine) as connection:
            _known_user(connection, key.user.name, lock=True)
            live = self._live(connection, "session", secret)
            began = datetime.fromisoformat(key.scope["began"])
            newest = select(func.max(t.keys.c.created_at)).where(
                t.keys.c.user_id == key.user.id, t.keys.c.name == key.name
            )
            followed = connection.execute(newest).scalar_one()
            if live is None or followed is None or self._clock() - followed < SESSION_RENEWED:
                return None
            lasting = secret.partition(".")[0]
            return self._add_session(connection, lasting, began, key.user.name, key.user)

    def sign_out(self, key: Key) -> None:
        """End a session with all its secrets."""
        author = key.author if key.user is None else key.user.name
        with writing(self._engine) as connection:
            if key.user is not None:
                _known_user(connection, key.user.name, lock=True)
            whose = t.keys.c.user_id.is_not_distinct_from(key.user and key.user.id)
            self._end(connection, whose & (t.keys.c.name == key.name), author, "signed out")
            rows.add_audit(connection, author, "sign out", f"keys:{key.id}")

    def launch(self, token: str, launch_sha256: str, author: str) -> str | None:
        """The session that a launch token opens, once, where there are no users; else None."""
        if not hmac.compare_digest(sha256(token), launch_sha256):
            return None
        with writing(self._engine) as connection:
            used = select(t.keys.c.id).where(t.keys.c.secret_sha256 == launch_sha256)
            if connection.execute(used).first() is not None or _any_users(connection):
                return None
            now = self._clock()
            used_up = {"name": "", "scope": {}, "expires_at": now}
            self._add_key(connection, token, kind="launch", author=author, **used_up)
            lasting = secrets.token_urlsafe(32)
            return self._add_session(connection, lasting, now, author, launch=launch_sha256)

    # API tokens

    def make_token(
        self, user_name: str, *, name: str, days: float, author: str, role: str | None = None
    ) -> tuple[Key, str]:
        """A new token of a user and its secret, which is shown this once."""
        author, name = checks.text(author, "author"), checks.text(name, "the name of a token")
        if not SHORTEST_TOKEN_DAYS <= days <= TOKEN_DAYS:
            raise StoreError(f"a token lasts {SHORTEST_TOKEN_DAYS} to {TOKEN_DAYS:g} days")
        with writing(self._engine) as connection:
            user = _user(_known_user(connection, user_name, lock=True))
            role = checks.one_of(role or user.role, ROLES, "role")
            if not user.active:
                raise StoreConflict("this user is disabled and can have no token")
            if ROLES.index(role) > ROLES.index(user.role):
                raise StoreConflict(f"this user is {user.role}: a token cannot be {role}")
            secret = f"earshift_{secrets.token_urlsafe(32)}"
            self._add_key(
                connection,
                secret,
                kind="token",
                user_id=user.id,
                name=name,
                scope={"role": role},
                expires_at=self._clock() + timedelta(days=days),
                author=author,
            )
            made = self._live(connection, "token", secret)
        assert made is not None
        return made, secret

    def token(self, secret: str) -> Key | None:
        """The live token with this secret."""
        with reading(self._engine) as connection:
            return self._live(connection, "token", secret)

    def tokens(self, user_name: str | None = None) -> list[Key]:
        """Live tokens, of all users or of one, oldest first."""
        with reading(self._engine) as connection:
            query = _live_keys().order_by(t.keys.c.id)
            if user_name is not None:
                query = query.where(t.users.c.name == as_user_name(user_name))
            return [_key(row) for row in connection.execute(query, self._now("token"))]

    def revoke_token(self, public_id: str, *, author: str, user_name: str | None = None) -> None:
        """End a token; with `user_name` only one of that user's."""
        found = [key for key in self.tokens(user_name) if key.public_id == public_id]
        if not found:
            raise NoSuchRow("there is no such token")
        with writing(self._engine) as connection:
            self._end(
                connection, t.keys.c.id == found[0].id, checks.text(author, "author"), "revoked"
            )

    # Listeners

    def make_link(
        self, visit_id: int, exam_ids: Sequence[int], author: str, hours: float = LINK_HOURS
    ) -> str:
        """The secret of a link to exams of one visit; the visit's earlier links end."""
        author = checks.text(author, "author")
        if not 0 < hours <= LINK_HOURS:
            raise StoreError(
                f"a listener's link lasts more than 0 and at most {LINK_HOURS:g} hours"
            )
        secret = secrets.token_urlsafe(16)
        with writing(self._engine) as connection:
            _lock_visit(connection, visit_id)
            of_visit = select(t.exams.c.id).where(t.exams.c.visit_id == visit_id)
            if not exam_ids or set(exam_ids) - set(connection.execute(of_visit).scalars()):
                raise StoreError("a listener's link is for one exam or more, all of its visit")
            self._end(connection, _link_of(visit_id), author, "followed by a new link")
            self._add_key(
                connection,
                secret,
                kind="link",
                name=f"visits:{visit_id}",
                scope={"visit": visit_id, "exams": list(exam_ids)},
                expires_at=self._clock() + timedelta(hours=hours),
                author=author,
            )
        return secret

    def link(self, secret: str) -> Link | None:
        """The live link with this secret."""
        with reading(self._engine) as connection:
            key = self._live(connection, "link", secret)
            return None if key is None else _link(connection, key)

    def link_of(self, visit_id: int) -> Link | None:
        """The live link of a visit, if it has one."""
        with reading(self._engine) as connection:
            query = _live_keys().where(_link_of(visit_id))
            found = connection.execute(query, self._now("link")).first()
            return None if found is None else _link(connection, _key(found))

    def end_links(self, visit_id: int, author: str, reason: str = "revoked") -> None:
        """End the links of a visit. It may have none."""
        with writing(self._engine) as connection:
            _lock_visit(connection, visit_id)
            self._end(connection, _link_of(visit_id), checks.text(author, "author"), reason)

    def release(self, visit_id: int, author: str, released: bool = True) -> None:
        """Let the listener of a visit see the verdicts, or no longer."""
        author = checks.text(author, "author")
        with writing(self._engine) as connection:
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
        with reading(self._engine) as connection:
            query = _live_keys().where(_release_of(visit_id))
            return connection.execute(query, self._now("release")).first() is not None

    # Keys

    def _live(self, connection: Connection, kind: str, secret: str) -> Key | None:
        values = self._now(kind) | {"secret_sha256": sha256(secret)}
        found = connection.execute(_live_key(), values).first()
        return None if found is None else _key(found)

    def _now(self, kind: str) -> dict[str, Any]:
        """What the query of live keys is asked with."""
        return {"kind": kind, "now": self._clock()}

    def _end(
        self, connection: Connection, which: ColumnElement[bool], author: str, reason: str
    ) -> None:
        """End every live key of a kind of set."""
        ended = exists().where(t.key_ends.c.key_id == t.keys.c.id)
        unexpired = t.keys.c.expires_at.is_(None) | (t.keys.c.expires_at > self._clock())
        query = select(t.keys.c.id).where(which, ~ended, unexpired)
        for key_id in connection.execute(query).scalars().all():
            end = {"key_id": key_id, "at": self._clock(), "author": author, "reason": reason}
            connection.execute(insert(t.key_ends).values(**end))
            rows.add_audit(connection, author, "end", f"keys:{key_id}", reason)


@cache
def _argon2() -> "PasswordHasher":
    from argon2 import PasswordHasher

    return PasswordHasher()


@cache
def _decoy() -> str:
    """The hash of a password that nobody knows, for names that nobody has."""
    return _argon2().hash(secrets.token_urlsafe(32))


def _wait(attempts: Sequence[Any], too_many: int, now: datetime) -> timedelta:
    if too_many < 0 or not attempts:
        return timedelta(0)
    longest = LONGEST_WAIT.total_seconds()
    wait = timedelta(seconds=min(2.0 ** min(too_many, 30), longest))
    newest: datetime = attempts[0].at
    return newest + wait - now


def _caller(address: str) -> str:
    """What counts as one caller: an address, or a whole network of the sixth version."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


def _alone(connection: Connection) -> None:
    """Hold off others who change users or try passwords; SQLite's writers are alone anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(ACCOUNTS_LOCK)))


def _lock_visit(connection: Connection, visit_id: int) -> None:
    rows.row_of(connection, t.visits, visit_id, "visit")
    connection.execute(select(t.visits.c.id).where(t.visits.c.id == visit_id).with_for_update())


# Every request asks for its key: making a query anew takes longer than running it.


@cache
def _live_keys() -> Select[Any]:
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
def _live_key() -> Select[Any]:
    return _live_keys().where(t.keys.c.secret_sha256 == bindparam("secret_sha256"))


def _link_of(visit_id: int) -> ColumnElement[bool]:
    return _of_visit("link", visit_id)


def _release_of(visit_id: int) -> ColumnElement[bool]:
    return _of_visit("release", visit_id)


def _of_visit(kind: str, visit_id: int) -> ColumnElement[bool]:
    # Nobody's keys alone: the index of keys begins with the user.
    k = t.keys.c
    return k.user_id.is_(None) & (k.kind == kind) & (k.name == f"visits:{visit_id}")


def _newest_state() -> Any:
    states = t.user_states
    newest = select(func.max(states.c.id)).where(states.c.user_id == t.users.c.id)
    return newest.correlate(t.users).scalar_subquery()


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
    )


@cache
def _users() -> Select[Any]:
    return (
        select(*_user_columns())
        .select_from(t.users)
        .join(t.user_states, t.user_states.c.id == _newest_state())
    )


def _known_user(connection: Connection, name: str, *, lock: bool = False) -> Row[Any]:
    if lock:  # first: what a statement reads is as old as its start
        locked = select(t.users.c.id).where(t.users.c.name == _folded(name)).with_for_update()
        connection.execute(locked)
    found = connection.execute(_users().where(t.users.c.name == _folded(name))).first()
    if found is None:
        raise NoSuchRow("there is no user of this name")
    return found


def _any_users(connection: Connection) -> bool:
    return connection.execute(select(t.users.c.id).limit(1)).first() is not None


def _any_admin(connection: Connection) -> bool:
    states = t.user_states.c
    admins = _users().where(states.role == "admin", states.state == "active")
    return connection.execute(admins.limit(1)).first() is not None


def _user(row: Row[Any]) -> User:
    return User(row.id, row.name, row.role, row.state, row.created_at, row.changed_at)


def _key(row: Row[Any]) -> Key:
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
        user=None if row.id is None else _user(row),
    )


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
