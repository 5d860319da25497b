"""Signing in, and sessions; whoever does something grave types the password again."""

import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, select

from earshift.engine.refusal import Refusal
from earshift.store import checks, rows
from earshift.store import tables as t
from earshift.store.accounts.attempts import caller_of
from earshift.store.accounts.factors import Factors
from earshift.store.accounts.keys import (
    Key,
    User,
    folded_name,
    has_users,
    key_of,
    known_user,
    live_keys,
    sha256,
    user_of,
    users_query,
)
from earshift.store.accounts.users import NOBODY, as_password, decoy_hash
from earshift.store.database import reading, writing
from earshift.store.errors import NoSuchRow, StoreConflict

HERE = "command line"  # where somebody without an address tries a password
SESSION_IDLE = timedelta(minutes=30)
SESSION_LONGEST = timedelta(hours=12)
SESSION_RENEWED = timedelta(minutes=5)  # a key older than this is followed by a new one
CONFIRMED = timedelta(minutes=5)  # how long a password that was typed again counts
RENEWAL_WAIT = 0.1  # seconds, for another program that writes: whoever reads does not wait for it
LAUNCH_LASTS = timedelta(minutes=10)  # of a link that was asked for while the program ran


class WrongPassword(Refusal):
    """Whoever is signed in typed another password than their own."""

    code = "wrong-password"

    def __init__(self) -> None:
        super().__init__("this is not your password; type it again")


@dataclass(frozen=True)
class OpenSession:
    """A session that has not ended, for whom it belongs to."""

    public_id: str
    began: datetime
    seen: datetime
    """When it was last used, to within five minutes."""
    expires_at: datetime
    address: str
    browser: str


def csrf_token(session: str) -> str:
    """What a page sends beside its session's cookie; the same for as long as the session lasts."""
    lasting = session.partition(".")[0]
    return hmac.new(lasting.encode(errors="surrogatepass"), b"csrf", "sha256").hexdigest()


def session_id(key: Key) -> str:
    """What a session is called in an address; the same however often it was renewed."""
    return sha256(key.name)[:22]


class Sessions(Factors):
    """Calls about signing in and out."""

    def sign_in(
        self,
        name: str,
        password: str,
        address: str,
        *,
        code: str = "",
        browser: str = "",
        given_pass: str = "",
        agent: str = "",
    ) -> tuple[User, str] | None:
        """The user and the secret of a new session, or None: whether it was the name or the
        password is not told, nor how long the answer takes. `Throttled` when guessing must wait,
        `CodeNeeded` or `WrongCode` where only the second factor is missing. `browser` is the
        secret of one that signed in before, `given_pass` one from an admin.
        """
        folded, caller = folded_name(name), caller_of(address)
        with reading(self.engine) as connection:
            trusted = self._trusted(connection, folded, browser, given_pass)
        found = self._prove_password(folded, password, caller, trusted)
        if found is None:
            return None
        self._prove_code(user_of(found), code, caller, trusted)
        with writing(self.engine) as connection:
            user = self._still(connection, found)
            if user is None:
                return None
            rows.add_audit(connection, user.name, "sign in", f"users:{user.id}")
            self._use_up(connection, trusted, user.name)
            scope = {"address": caller, "browser": agent}
            return user, self._begin_session(connection, user, scope)

    def _prove_password(
        self, folded: str, password: str, caller: str, trusted: str | None
    ) -> Row[Any] | None:
        """The active user with this name, if the password is right. Unknown names, wrong passwords
        and disabled users take the same way and the same time."""
        decoy = decoy_hash()  # made before it is needed, so that a wrong name takes no longer
        with writing(self.engine) as connection:
            self._admit(connection, sha256(folded), caller, trusted)
        with reading(self.engine) as connection:
            found = connection.execute(users_query().where(t.users.c.name == folded)).first()
        right = self._matches(decoy if found is None else found.password_hash, password)
        with writing(self.engine) as connection:
            user = self._still(connection, found) if right and found is not None else None
            if user is None:
                subject = "users:unknown" if found is None else f"users:{found.id}"
                why = "disabled" if right and found is not None else "wrong password"
                rows.add_audit(connection, NOBODY, "sign-in refused", subject, why)
                return None
            self._note_attempt(connection, sha256(folded), caller, trusted, succeeded=True)
            return found

    def _still(self, connection: Connection, found: Row[Any]) -> User | None:
        """Read again: who was disabled or has a new password meanwhile must not come in."""
        now = known_user(connection, found.name, lock=True)
        user = user_of(now)
        return user if user.active and now.password_hash == found.password_hash else None

    # Typed again by whoever is signed in

    def prove(self, key: Key, password: str, code: str, address: str) -> None:
        """That whoever holds a session is its user: by the password, and a code where there is a
        second factor. A single user has neither."""
        if key.user is not None:
            self._prove_again(key, password, code, address)

    def prove_here(self, name: str, password: str, code: str = "") -> None:
        """The same for somebody at this machine, who has no session."""
        found = self._prove_password(folded_name(name), password, HERE, None)
        if found is None:
            raise WrongPassword
        self._prove_code(user_of(found), code, HERE, None)

    def confirm(self, key: Key, password: str, code: str, address: str) -> None:
        """The same, and it counts for some minutes."""
        if key.user is None:
            return
        found = self._prove_again(key, password, code, address)
        with writing(self.engine) as connection:
            if self._still(connection, found) is None:
                raise WrongPassword
            self._add_key(
                connection,
                secrets.token_urlsafe(32),  # which nobody holds: the session does
                kind="confirmed",
                user_id=key.user.id,
                name=key.name,
                scope={},
                expires_at=self._clock() + CONFIRMED,
                author=key.user.name,
            )

    def confirmed(self, key: Key) -> bool:
        """Whether the password of a session's user was typed within the last minutes."""
        if key.user is None:
            return True
        began = datetime.fromisoformat(key.scope["began"])
        if timedelta(0) <= self._clock() - began < CONFIRMED:
            return True
        of_session = (t.keys.c.user_id == key.user.id) & (t.keys.c.name == key.name)
        with reading(self.engine) as connection:
            query = live_keys().where(of_session)
            return connection.execute(query, self._now("confirmed")).first() is not None

    def _prove_again(self, key: Key, password: str, code: str, address: str) -> Row[Any]:
        assert key.user is not None
        # Counted for this session alone: a page that was left open locks nobody out elsewhere.
        caller, trusted = caller_of(address), f"session:{key.name}"
        found = self._prove_password(key.user.name, password, caller, trusted)
        if found is None:
            raise WrongPassword
        self._prove_code(user_of(found), code, caller, trusted)
        return found

    def change_own_password(
        self, key: Key, password: str, new: str, code: str, address: str
    ) -> tuple[User, str]:
        """A user's own new password, and a new session: all that was open before ends."""
        assert key.user is not None
        normal = as_password(new, key.user.name)
        found = self._prove_again(key, password, code, address)
        hashed = self._other_password(found, normal)
        with writing(self.engine) as connection:
            if self._still(connection, found) is None:
                raise WrongPassword
            self._set_own_password(connection, found, hashed)
            user = user_of(known_user(connection, found.name))
            scope = {name: key.scope.get(name, "") for name in ("address", "browser")}
            return user, self._begin_session(connection, user, scope)

    def change_own_password_here(self, name: str, password: str, new: str) -> None:
        """The same for somebody at this machine, who has no session: all of theirs end."""
        normal = as_password(new, folded_name(name))
        found = self._prove_password(folded_name(name), password, HERE, None)
        if found is None:
            raise WrongPassword
        hashed = self._other_password(found, normal)
        with writing(self.engine) as connection:
            if self._still(connection, found) is None:
                raise WrongPassword
            self._set_own_password(connection, found, hashed)

    def _other_password(self, found: Row[Any], new: str) -> str:
        if self._matches(found.password_hash, new):
            raise StoreConflict(
                "the new password is the old one; choose another", code="weak-password"
            )
        return self._hash(new)

    # Sessions

    def _begin_session(self, connection: Connection, user: User, scope: dict[str, str]) -> str:
        lasting = secrets.token_urlsafe(32)
        return self._add_session(connection, lasting, self._clock(), user.name, scope, user)

    def sessions(self, user_name: str) -> list[OpenSession]:
        """The sessions of a user that have not ended, newest first."""
        query = live_keys().where(t.users.c.name == folded_name(user_name)).order_by(t.keys.c.id)
        with reading(self.engine) as connection:
            found = [key_of(row) for row in connection.execute(query, self._now("session"))]
        newest = {key.name: key for key in found}
        return [
            OpenSession(
                public_id=session_id(key),
                began=datetime.fromisoformat(key.scope["began"]),
                seen=key.created_at,
                expires_at=key.expires_at,
                address=key.scope.get("address", ""),
                browser=key.scope.get("browser", ""),
            )
            for key in sorted(newest.values(), key=lambda one: one.id, reverse=True)
        ]

    def end_session(self, user_name: str, public_id: str, *, author: str) -> None:
        """End one session of a user."""
        author = checks.text(author, "author")
        query = live_keys().where(t.users.c.name == folded_name(user_name))
        with writing(self.engine) as connection:
            user = known_user(connection, user_name, lock=True)
            found = [key_of(row) for row in connection.execute(query, self._now("session"))]
            names = {key.name for key in found if session_id(key) == public_id}
            if not names:
                raise NoSuchRow("there is no such session; it may have ended already")
            whose = (t.keys.c.user_id == user.id) & t.keys.c.name.in_(names)
            self._end(connection, whose, author, "session ended")

    def end_sessions(self, user_name: str, *, author: str, reason: str) -> int:
        """End all sessions of a user; how many there were."""
        author, reason = checks.text(author, "author"), checks.text(reason, "reason")
        ended = len(self.sessions(user_name))
        with writing(self.engine) as connection:
            user = known_user(connection, user_name, lock=True)
            open_now = t.keys.c.kind.in_(("session", "confirmed"))
            self._end(connection, (t.keys.c.user_id == user.id) & open_now, author, reason)
        return ended

    def _add_session(
        self,
        connection: Connection,
        lasting: str,
        began: datetime,
        author: str,
        scope: dict[str, str],
        user: User | None = None,
        at_least: datetime | None = None,
    ) -> str:
        """A secret in two parts: one lasts as long as the session, one until it is renewed.

        It lasts as long as the one before it `at_least`, also when the clock was put back.
        """
        secret = f"{lasting}.{secrets.token_urlsafe(32)}"
        ends = min(self._clock() + SESSION_IDLE, began + SESSION_LONGEST)
        self._add_key(
            connection,
            secret,
            kind="session",
            user_id=user and user.id,
            name=sha256(lasting),
            scope={"began": began.isoformat(), **scope},
            expires_at=max(ends, at_least or ends),
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
        """The secret that follows this one, when it is time. The old one lasts until the new one is
        followed or its own end, so that requests on their way with it still arrive."""
        if self._just(key.created_at):
            return None
        with writing(self.engine, RENEWAL_WAIT) as connection:
            if key.user is not None:
                known_user(connection, key.user.name, lock=True)
            live = self._live(connection, "session", secret)
            whose = t.keys.c.user_id.is_not_distinct_from(key.user and key.user.id)
            of_session = whose & (t.keys.c.kind == "session") & (t.keys.c.name == key.name)
            newest = select(t.keys.c.created_at).where(of_session).order_by(t.keys.c.id.desc())
            followed = connection.execute(newest.limit(1)).scalar_one()
            if live is None or self._just(followed):
                return None
            lasting, scope = secret.partition(".")[0], dict(key.scope)
            began = datetime.fromisoformat(scope.pop("began"))
            author = key.author if key.user is None else key.user.name
            self._end(connection, of_session & (t.keys.c.id < live.id), author, "followed")
            return self._add_session(
                connection, lasting, began, author, scope, key.user, live.expires_at
            )

    def _just(self, moment: datetime) -> bool:
        # A moment that lies ahead is of a clock that was set back since.
        return timedelta(0) <= self._clock() - moment < SESSION_RENEWED

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
        with writing(self.engine) as connection:
            now = self._clock()
            again = self._live(connection, "launch", token)
            if again is not None and again.name == launch_sha256:
                self._end(connection, t.keys.c.id == again.id, author, "used")
            elif hmac.compare_digest(sha256(token), launch_sha256):
                used = select(t.keys.c.id).where(t.keys.c.secret_sha256 == launch_sha256)
                if connection.execute(used).first() is not None:
                    return None
                used_up = {"name": "", "scope": {}, "expires_at": now}
                self._add_key(connection, token, kind="launch", author=author, **used_up)
            else:
                return None
            if has_users(connection):
                return None
            lasting = secrets.token_urlsafe(32)
            scope = {"launch": launch_sha256}
            return self._add_session(connection, lasting, now, author, scope)

    def offer_launch(self, launch_sha256: str, author: str) -> str:
        """Another launch token of a program that runs, for whoever was away for too long."""
        token = secrets.token_urlsafe(32)
        with writing(self.engine) as connection:
            self._add_key(
                connection,
                token,
                kind="launch",
                name=launch_sha256,
                scope={},
                expires_at=self._clock() + LAUNCH_LASTS,
                author=author,
            )
        return token
