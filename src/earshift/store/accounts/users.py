"""Users: names, roles and passwords. Passwords are hashed by argon2."""

import secrets
import threading
import unicodedata
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Engine, Row

from earshift.store import checks, rows
from earshift.store import tables as t
from earshift.store.accounts.keys import (
    ROLES,
    Keys,
    User,
    folded_name,
    has_admin,
    has_users,
    hold_accounts,
    known_user,
    user_of,
    users_query,
)
from earshift.store.database import reading, writing
from earshift.store.errors import StoreConflict, StoreError

if TYPE_CHECKING:
    from argon2 import PasswordHasher


USER_STATES = ("active", "disabled")
NOBODY = "nobody"  # the author of what a stranger tried
NAME_LENGTH = 64
PASSWORD_LENGTHS = (12, 256)  # the longest keeps a request from being work by its size alone
DIFFERENT_CHARACTERS = 5
HASHES_AT_ONCE = 2  # argon2 takes 64 MiB each


def as_user_name(name: object) -> str:
    """A user's name as it is stored: one spelling, whatever the case it is typed in.

    Names of accounts that are there already may have letters that new ones may not.
    """
    folded = folded_name(checks.text(name, "the name of a user"))
    if not 2 <= len(folded) <= NAME_LENGTH or not all(c.isalnum() or c in "._-@" for c in folded):
        raise StoreError(
            f"the name of a user has 2 to {NAME_LENGTH} letters, digits or . _ - @",
            code="user-name",
        )
    if folded == NOBODY:
        raise StoreError(f"no user can be called {NOBODY}; choose another name", code="user-name")
    return folded


def as_new_user_name(name: object) -> str:
    """The name of a new account: in letters that nobody can take for others."""
    if isinstance(name, str) and not name.isascii():
        raise StoreError(
            "the name of an account is written with the letters a to z, digits and . _ - @; "
            "leave out accents and other alphabets",
            code="user-name",
        )
    return as_user_name(name)


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


@cache
def _argon2() -> "PasswordHasher":
    from argon2 import PasswordHasher

    return PasswordHasher()


@cache
def decoy_hash() -> str:
    """The hash of a password that nobody knows, for names that nobody has."""
    return _argon2().hash(secrets.token_urlsafe(32))


def _kept(before: Row[Any]) -> dict[str, Any]:
    columns = ("role", "password_hash", "state", "temporary")
    return {name: before._mapping[name] for name in columns}


def _own_keys(user_id: int) -> ColumnElement[bool]:
    """All that a user holds; not the links of listeners, who may be in the middle of a test."""
    return (t.keys.c.user_id == user_id) & (t.keys.c.kind != "link")


class Users(Keys):
    """Calls about users and their passwords."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        super().__init__(engine, clock)
        self._hashing = threading.BoundedSemaphore(HASHES_AT_ONCE)

    def users(self) -> list[User]:
        """All users, by name."""
        with reading(self.engine) as connection:
            found = connection.execute(users_query().order_by(t.users.c.name))
            return [user_of(row) for row in found]

    def user(self, name: str) -> User:
        with reading(self.engine) as connection:
            return user_of(known_user(connection, name))

    def any_users(self) -> bool:
        with reading(self.engine) as connection:
            return has_users(connection)

    def any_admin(self) -> bool:
        """Whether somebody could sign in who may add others."""
        return any(user.role == "admin" and user.active for user in self.users())

    def add_user(
        self, name: str, password: str, *, role: str, author: str, temporary: bool = True
    ) -> User:
        """A new user. The first one is an admin, as nobody else could add more. A `temporary`
        password has to be changed at the first sign-in."""
        name, author = as_new_user_name(name), checks.text(author, "author")
        values = {
            "role": checks.one_of(role, ROLES, "role"),
            "password_hash": self._hash(as_password(password, name)),
            "state": "active",
            "temporary": temporary,
        }
        with writing(self.engine) as connection:
            hold_accounts(connection)
            if role != "admin" and not has_users(connection):
                raise StoreConflict("the first user has to be an admin; add one with role admin")
            if connection.execute(users_query().where(t.users.c.name == name)).first() is not None:
                raise StoreConflict("there is already a user with this name")
            new = {"name": name, "created_at": self._clock()}
            user = rows.add_row(connection, t.users, new, author)
            self._add_state(connection, user.id, values, author, "new user")
            return user_of(known_user(connection, name))

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
        """Another role, state or password, which the user then has to change at first use. A new
        password ends sessions and tokens; a disabled user's links for listeners end as well."""
        name, author = as_user_name(name), checks.text(author, "author")
        changes: dict[str, Any] = {}
        if role is not None:
            changes["role"] = checks.one_of(role, ROLES, "role")
        if state is not None:
            changes["state"] = checks.one_of(state, USER_STATES, "state")
        if password is not None:
            changes["password_hash"] = self._hash(as_password(password, name))
            changes["temporary"] = True
        if not changes:
            raise StoreConflict("nothing to change: give a role, a state or a password")
        reason = checks.text(reason, "reason")
        with writing(self.engine) as connection:
            hold_accounts(connection)
            before = known_user(connection, name)
            self._add_state(connection, before.id, _kept(before) | changes, author, reason)
            if not has_admin(connection):
                raise StoreConflict("this is the last active admin; make another user one first")
            if state == "disabled":
                self._end(connection, t.keys.c.user_id == before.id, author, reason)
            elif password is not None:
                self._end(connection, _own_keys(before.id), author, reason)
            return user_of(known_user(connection, name))

    def _set_own_password(self, connection: Connection, before: Row[Any], hashed: str) -> None:
        """A password that the user chose: it ends all ways in that the old one opened."""
        changes = {"password_hash": hashed, "temporary": False}
        reason = "own new password"
        self._add_state(connection, before.id, _kept(before) | changes, before.name, reason)
        self._end(connection, _own_keys(before.id), before.name, reason)

    def _add_state(
        self, connection: Connection, user_id: int, values: dict[str, Any], author: str, reason: str
    ) -> None:
        state = {"user_id": user_id, "at": self._clock(), "author": author, "reason": reason}
        changed = {"role": values["role"], "state": values["state"]}
        rows.add_row(connection, t.user_states, values | state, author, reason, changed)

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
