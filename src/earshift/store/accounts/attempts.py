"""Who may try a password or a code now, and whom a wrong one slows down.

Wrong attempts are counted in the database, for all workers together: by the name that is tried and
by the address it comes from. Whoever is known here (by a browser that signed in before, a running
session, or a pass from an admin) is counted alone, so that strangers who guess lock nobody out.
"""

import ipaddress
import secrets
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, case, func, insert, select

from earshift.engine.refusal import Refusal
from earshift.store import checks
from earshift.store import tables as t
from earshift.store.accounts.keys import (
    User,
    folded_name,
    hold_accounts,
    known_user,
    live_keys,
    sha256,
    user_of,
)
from earshift.store.accounts.users import Users
from earshift.store.database import writing
from earshift.store.errors import StoreConflict

# Guesses that are free, and how far back they count. Then each wrong one doubles the wait.
FREE_BY_NAME, WINDOW_BY_NAME = 5, timedelta(hours=24)
FREE_BY_ADDRESS, WINDOW_BY_ADDRESS = 30, timedelta(hours=1)  # a clinic may share one address
LONGEST_WAIT = timedelta(minutes=15)
BROWSER_KNOWN = timedelta(days=180)
PASS_LASTS = timedelta(minutes=30)
# Without the letters and digits that are taken for one another.
TYPABLE = "abcdefghjkmnpqrstuvwxyz23456789"


class Throttled(Refusal):
    """Too many wrong passwords; `retry_after` is the wait in whole seconds."""

    code = "throttled"

    def __init__(self, wait: timedelta) -> None:
        self.retry_after = max(1, -int(-wait.total_seconds() // 1))
        super().__init__(
            f"too many wrong passwords; try again in {_in_words(self.retry_after)}",
            advice="an administrator can give you a pass with which you need not wait",
        )


def _in_words(seconds: int) -> str:
    count, unit = (seconds, "second") if seconds < 120 else (-(-seconds // 60), "minute")
    return f"{count} {unit}{'s' if count != 1 else ''}"


def typable_code(groups: int) -> str:
    """A random code that can be read out and typed: groups of four."""
    return "-".join("".join(secrets.choice(TYPABLE) for _ in range(4)) for _ in range(groups))


def as_typed_code(typed: str) -> str:
    """A code without what people type between its groups."""
    return "".join(c for c in typed.casefold() if c.isalnum())


def caller_of(address: str) -> str:
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


def _browser_name(browser: str, user_id: int) -> str:
    return f"browser:{sha256(f'{browser}.{user_id}')}"


class Attempts(Users):
    """Calls about attempts to get in."""

    def _admit(self, connection: Connection, what: str, caller: str, trusted: str | None) -> None:
        """Refuse whoever guessed too often at `what`: the hash of a name, or a user's codes. An
        attempt counts as wrong until it proves right, so that many at once are not free."""
        hold_accounts(connection)
        a = t.login_attempts.c
        alike = a.trusted.is_not_distinct_from(trusted)
        waits = [self._wait_since_right(connection, (a.name_sha256 == what) & alike)]
        if trusted is None:
            waits.append(self._wait_by_balance(connection, (a.address == caller) & alike))
        if max(waits) > timedelta(0):
            raise Throttled(max(waits))
        self._note_attempt(connection, what, caller, trusted, succeeded=False)

    def _wait_since_right(self, connection: Connection, which: ColumnElement[bool]) -> timedelta:
        """By the wrong attempts since the last right one."""
        a = t.login_attempts.c
        right = select(func.max(a.id)).where(which, a.succeeded).scalar_subquery()
        recent = self._recent(which, WINDOW_BY_NAME) & (a.id > func.coalesce(right, 0))
        wrong = connection.execute(select(func.count()).where(recent)).scalar_one()
        return self._wait(connection, wrong - FREE_BY_NAME, which)

    def _wait_by_balance(self, connection: Connection, which: ColumnElement[bool]) -> timedelta:
        """By all wrong attempts: a right one takes back the one that it was counted as before."""
        a = t.login_attempts.c
        wrong = func.coalesce(func.sum(case((a.succeeded, -1), else_=1)), 0)
        recent = self._recent(which, WINDOW_BY_ADDRESS)
        balance = connection.execute(select(wrong).where(recent)).scalar_one()
        return self._wait(connection, int(balance) - FREE_BY_ADDRESS, which)

    def _recent(self, which: ColumnElement[bool], window: timedelta) -> ColumnElement[bool]:
        # Not those of a clock that was ahead: nobody knows how long ago they were.
        now, at = self._clock(), t.login_attempts.c.at
        return which & (at > now - window) & (at <= now)

    def _wait(self, connection: Connection, too_many: int, which: ColumnElement[bool]) -> timedelta:
        """From the last attempt on, which is the last row whatever the clock has said since."""
        if too_many < 0:
            return timedelta(0)
        a = t.login_attempts.c
        last = select(a.at).where(which).order_by(a.id.desc()).limit(1)
        newest: datetime = connection.execute(last).scalar_one()
        doubled = timedelta(seconds=2.0 ** min(too_many, 30))
        now = self._clock()
        return timedelta(0) if newest > now else newest + min(doubled, LONGEST_WAIT) - now

    def _note_attempt(
        self,
        connection: Connection,
        what: str,
        caller: str,
        trusted: str | None,
        *,
        succeeded: bool,
    ) -> None:
        row = {"name_sha256": what, "address": caller, "trusted": trusted}
        values = {**row, "succeeded": succeeded, "at": self._clock()}
        connection.execute(insert(t.login_attempts).values(**values))

    def _trusted(
        self, connection: Connection, name: str, browser: str, given_pass: str
    ) -> str | None:
        """By what somebody who types this name is known here, if at all."""
        of_name = live_keys().where(t.users.c.name == folded_name(name))
        if given_pass:
            secret = sha256(as_typed_code(given_pass))
            query = of_name.where(t.keys.c.secret_sha256 == secret)
            found = connection.execute(query, self._now("pass")).first()
            if found is not None:
                return f"pass:{found.key_id}"
        if browser:
            users = select(t.users.c.id).where(t.users.c.name == folded_name(name))
            user_id = connection.execute(users).scalar_one_or_none()
            if user_id is not None:
                known = _browser_name(browser, user_id)
                query = of_name.where(t.keys.c.name == known)
                if connection.execute(query, self._now("browser")).first() is not None:
                    return known
        return None

    def know_browser(self, user: User, browser: str) -> None:
        """From now on this browser is one that this user has signed in with."""
        with writing(self.engine) as connection:
            known_user(connection, user.name, lock=True)
            name = _browser_name(browser, user.id)
            query = live_keys().where(t.keys.c.user_id == user.id, t.keys.c.name == name)
            if connection.execute(query, self._now("browser")).first() is None:
                self._add_key(
                    connection,
                    secrets.token_urlsafe(32),  # which nobody holds: the name says it
                    kind="browser",
                    user_id=user.id,
                    name=name,
                    scope={},
                    expires_at=self._clock() + BROWSER_KNOWN,
                    author=user.name,
                )

    def let_in(self, user_name: str, *, author: str) -> str:
        """A pass for somebody whom wrong passwords keep waiting: who types it with the right
        password need not wait. It works once, for half an hour."""
        author, code = checks.text(author, "author"), typable_code(4)
        with writing(self.engine) as connection:
            user = user_of(known_user(connection, user_name, lock=True))
            if not user.active:
                raise StoreConflict("this user is disabled; enable the account first")
            self._add_key(
                connection,
                as_typed_code(code),
                kind="pass",
                user_id=user.id,
                name="",
                scope={},
                expires_at=self._clock() + PASS_LASTS,
                author=author,
            )
        return code

    def _use_up(self, connection: Connection, trusted: str | None, author: str) -> None:
        """End the pass that somebody has come in with."""
        kind, _, number = (trusted or "").partition(":")
        if kind == "pass":
            self._end(connection, t.keys.c.id == int(number), author, "used")
