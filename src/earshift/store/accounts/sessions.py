"""Signing in, and sessions. Whoever guesses passwords waits before argon2 is asked at all."""

import hmac
import ipaddress
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, insert, select

from earshift.engine.refusal import Refusal
from earshift.store import rows
from earshift.store import tables as t
from earshift.store.accounts.keys import (
    Key,
    User,
    folded_name,
    has_users,
    hold_accounts,
    known_user,
    sha256,
    user_of,
    users_query,
)
from earshift.store.accounts.users import NOBODY, Users, decoy_hash
from earshift.store.database import reading, writing

SESSION_IDLE = timedelta(minutes=30)
SESSION_LONGEST = timedelta(hours=12)
SESSION_RENEWED = timedelta(minutes=5)  # a key older than this is followed by a new one
# Guesses that are free, and how far back they count. Then each wrong one doubles the wait.
FREE_BY_NAME, WINDOW_BY_NAME = 5, timedelta(hours=24)
FREE_BY_ADDRESS, WINDOW_BY_ADDRESS = 30, timedelta(hours=1)  # a clinic may share one address
LONGEST_WAIT = timedelta(minutes=15)
COUNTED = 100  # attempts looked at; by then the wait is at its longest


class Throttled(Refusal):
    """Too many wrong passwords; `retry_after` is the wait in whole seconds."""

    code = "throttled"

    def __init__(self, wait: timedelta) -> None:
        self.retry_after = max(1, -int(-wait.total_seconds() // 1))
        super().__init__(f"too many wrong passwords; try again in {self.retry_after} seconds")


def csrf_token(session: str) -> str:
    """What a page sends beside its session's cookie; the same for as long as the session lasts."""
    lasting = session.partition(".")[0]
    return hmac.new(lasting.encode(errors="surrogatepass"), b"csrf", "sha256").hexdigest()


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


class Sessions(Users):
    """Calls about signing in and out."""

    def sign_in(self, name: str, password: str, address: str) -> tuple[User, str] | None:
        """The user and the secret of a new session, or None: whether it was the name or the
        password is not told, nor how long the answer takes. `Throttled` when guessing must wait.
        """
        folded, caller = folded_name(name), _caller(address)
        decoy = decoy_hash()  # made before it is needed, so that a wrong name takes no longer
        with writing(self.engine) as connection:
            self._admit(connection, sha256(folded), caller)
        with reading(self.engine) as connection:
            found = connection.execute(users_query().where(t.users.c.name == folded)).first()
        right = self._matches(decoy if found is None else found.password_hash, password)
        with writing(self.engine) as connection:
            # Read again: what was disabled or changed meanwhile must not come in.
            now = known_user(connection, folded, lock=True) if right and found else None
            if now is None or found is None or now.password_hash != found.password_hash:
                subject = "users:unknown" if found is None else f"users:{found.id}"
                rows.add_audit(connection, NOBODY, "sign-in refused", subject, "wrong password")
                return None
            user = user_of(now)
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
        hold_accounts(connection)
        attempts, now = t.login_attempts.c, self._clock()

        def recent(column: ColumnElement[Any], value: str, window: timedelta) -> Sequence[Any]:
            query = (
                select(attempts.succeeded, attempts.at)
                # Not those of a clock that was ahead: nobody knows how long ago they were.
                .where(column == value, attempts.at > now - window, attempts.at <= now)
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

    def session(self, secret: str, launch_sha256: str | None = None) -> Key | None:
        """The live session with this secret. One that a launch began is good for that alone,
        and only while there are no users."""
        with reading(self.engine) as connection:
            key = self._live(connection, "session", secret)
            if key is None or key.user is not None:
                return key
            launched = launch_sha256 is not None and key.scope.get("launch") == launch_sha256
            return key if launched and not has_users(connection) else None

    def renew(self, secret: str, key: Key) -> str | None:
        """The secret that follows this one, when it is time. The old one ends by its own clock,
        so that requests on their way with it still arrive."""
        if key.user is None or self._clock() - key.created_at < SESSION_RENEWED:
            return None
        with writing(self.engine) as connection:
            known_user(connection, key.user.name, lock=True)
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
        with writing(self.engine) as connection:
            if key.user is not None:
                known_user(connection, key.user.name, lock=True)
            whose = t.keys.c.user_id.is_not_distinct_from(key.user and key.user.id)
            self._end(connection, whose & (t.keys.c.name == key.name), author, "signed out")
            rows.add_audit(connection, author, "sign out", f"keys:{key.id}")

    def launch(self, token: str, launch_sha256: str, author: str) -> str | None:
        """The session that a launch token opens, once, where there are no users; else None."""
        if not hmac.compare_digest(sha256(token), launch_sha256):
            return None
        with writing(self.engine) as connection:
            used = select(t.keys.c.id).where(t.keys.c.secret_sha256 == launch_sha256)
            if connection.execute(used).first() is not None or has_users(connection):
                return None
            now = self._clock()
            used_up = {"name": "", "scope": {}, "expires_at": now}
            self._add_key(connection, token, kind="launch", author=author, **used_up)
            lasting = secrets.token_urlsafe(32)
            return self._add_session(connection, lasting, now, author, launch=launch_sha256)
