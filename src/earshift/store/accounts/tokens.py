"""API tokens: keys of a user for programs."""

import secrets
from datetime import UTC, datetime, timedelta

from earshift.store import checks
from earshift.store import tables as t
from earshift.store.accounts.keys import ROLES, Key, Keys, key_of, known_user, live_keys, user_of
from earshift.store.accounts.users import as_user_name
from earshift.store.database import reading, writing
from earshift.store.errors import NoSuchRow, StoreConflict, StoreError

SHORTEST_TOKEN_DAYS, TOKEN_DAYS = 0.04, 366.0  # about an hour; the longest is about a year


class Tokens(Keys):
    """Calls about API tokens."""

    def make_token(
        self, user_name: str, *, name: str, days: float, author: str, role: str | None = None
    ) -> tuple[Key, str]:
        """A new token of a user and its secret, which is shown this once."""
        author, name = checks.text(author, "author"), checks.text(name, "the name of a token")
        if not SHORTEST_TOKEN_DAYS <= days <= TOKEN_DAYS:
            raise StoreError(f"a token must last {SHORTEST_TOKEN_DAYS} to {TOKEN_DAYS:g} days")
        with writing(self.engine) as connection:
            user = user_of(known_user(connection, user_name, lock=True))
            role = checks.one_of(role or user.role, ROLES, "role")
            if not user.active:
                raise StoreConflict("this user is disabled and cannot have a token")
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
        with reading(self.engine) as connection:
            return self._live(connection, "token", secret)

    def tokens(self, user_name: str | None = None) -> list[Key]:
        """Live tokens, of all users or of one, oldest first."""
        with reading(self.engine) as connection:
            query = live_keys().order_by(t.keys.c.id)
            if user_name is not None:
                query = query.where(t.users.c.name == as_user_name(user_name))
            return [key_of(row) for row in connection.execute(query, self._now("token"))]

    def revoke_token(self, public_id: str, *, author: str, user_name: str | None = None) -> None:
        """End a token; with `user_name` only one of that user's."""
        with writing(self.engine) as connection:
            # Also one that has expired: a clock that was ahead would let it live again.
            query, asked = live_keys(), {"kind": "token", "now": datetime.min.replace(tzinfo=UTC)}
            if user_name is not None:
                query = query.where(t.users.c.name == as_user_name(user_name))
            known = (key_of(row) for row in connection.execute(query, asked))
            found = [key for key in known if key.public_id == public_id]
            if not found:
                raise NoSuchRow("there is no such token")
            self._end(
                connection, t.keys.c.id == found[0].id, checks.text(author, "author"), "revoked"
            )
