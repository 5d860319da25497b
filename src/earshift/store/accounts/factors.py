"""The second factor: codes of an authenticator app (TOTP, RFC 6238), and recovery codes.

A code works once. The secret that an app shares with the server lies in the database as it is;
of recovery codes only the hashes do.
"""

import hmac
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from earshift.engine.refusal import Refusal
from earshift.store import checks, rows
from earshift.store import tables as t
from earshift.store.accounts.attempts import Attempts, as_typed_code, typable_code
from earshift.store.accounts.keys import Key, User, known_user, sha256, user_of
from earshift.store.accounts.users import NOBODY
from earshift.store.database import reading, writing
from earshift.store.errors import StoreConflict

ISSUER = "earshift"
RECOVERY_CODES = 10
STEP = timedelta(seconds=30)
AROUND = (0, -1, 1)  # steps that count as now: clocks differ, and typing takes a while


class CodeNeeded(Refusal):
    """The password is right, and this user has a second factor."""

    code = "second-factor"

    def __init__(self) -> None:
        super().__init__(
            "type the six digits that your authenticator app shows now, or a recovery code"
        )


class WrongCode(Refusal):
    """The password is right and the code is not, or it was used before."""

    code = "wrong-code"

    def __init__(self, used: bool) -> None:
        super().__init__(
            "this code was used already; wait until your app shows the next one"
            if used
            else "this code is wrong; type the one that your app shows now"
        )


@dataclass(frozen=True)
class Offer:
    """A second factor that somebody may take: nothing is stored until a code proves it."""

    secret: str
    proof: str
    """That the secret comes from here and is for this session."""
    address: str
    """For the app, as text of a QR code."""


def _proof(session: str, secret: str) -> str:
    lasting = session.partition(".")[0].encode(errors="surrogatepass")
    return hmac.new(lasting, f"factor {secret}".encode(), "sha256").hexdigest()


def offer_factor(user: User, session: str) -> Offer:
    """A new secret for the app of a user, who holds this session."""
    import pyotp

    secret = pyotp.random_base32()
    address = pyotp.TOTP(secret).provisioning_uri(name=user.name, issuer_name=ISSUER)
    return Offer(secret, _proof(session, secret), address)


class Factors(Attempts):
    """Calls about second factors."""

    def take_factor(self, key: Key, session: str, secret: str, proof: str, code: str) -> list[str]:
        """Set up a second factor by its first code; in place of one that was there. Gives the
        recovery codes, which are shown this once."""
        assert key.user is not None
        if not hmac.compare_digest(_proof(session, secret), proof):
            raise StoreConflict("this QR code is not of this session any more; begin again")
        recovery = [typable_code(4) for _ in range(RECOVERY_CODES)]
        hashes = [sha256(as_typed_code(one)) for one in recovery]
        with writing(self.engine) as connection:
            user = user_of(known_user(connection, key.user.name, lock=True))
            step = self._step_of(secret, code)
            if step is None:
                raise WrongCode(used=False)
            factor = self._add_factor(connection, user, secret, hashes, user.name, "set up")
            self._note_use(connection, factor, f"step {step}")
        return recovery

    def drop_factor(self, user_name: str, *, author: str, reason: str) -> None:
        """Take somebody's second factor away. Their sessions end, unless it was themselves."""
        author, reason = checks.text(author, "author"), checks.text(reason, "reason")
        with writing(self.engine) as connection:
            user = user_of(known_user(connection, user_name, lock=True))
            if not user.second_factor:
                raise StoreConflict("this user has no second factor")
            self._add_factor(connection, user, None, [], author, reason)
            if author != user.name:
                of_user = t.keys.c.user_id == user.id
                open_now = t.keys.c.kind.in_(("session", "browser", "confirmed"))
                self._end(connection, of_user & open_now, author, reason)

    def recovery_codes_left(self, user: User) -> int:
        with reading(self.engine) as connection:
            factor = _newest(connection, user.id)
            if factor is None:
                return 0
            codes = [f"recovery {one}" for one in factor.recovery_sha256]
            return len(codes) - len(_used(connection, factor.id, codes))

    def _add_factor(
        self,
        connection: Connection,
        user: User,
        secret: str | None,
        hashes: list[str],
        author: str,
        reason: str,
    ) -> int:
        values = {
            "user_id": user.id,
            "secret": secret,
            "recovery_sha256": hashes,
            "at": self._clock(),
            "author": author,
            "reason": reason,
        }
        details = {"user": user.name, "second factor": secret is not None}
        return rows.add_only(connection, t.second_factors, values, author, reason, details)

    def _prove_code(self, user: User, code: str, caller: str, trusted: str | None) -> None:
        """Take a code of a user whose password was right, once, or refuse it."""
        if not user.second_factor:
            return
        if not code.strip():
            raise CodeNeeded
        # Not the hash of any name that is typed: guessing passwords must not slow down codes.
        what = f"code {sha256(user.name)}"
        with writing(self.engine) as connection:
            self._admit(connection, what, caller, trusted)
        with writing(self.engine) as connection:
            known_user(connection, user.name, lock=True)
            refused = self._use_code(connection, user, code)
            if refused is None:
                self._note_attempt(connection, what, caller, trusted, succeeded=True)
            else:
                subject = f"users:{user.id}"
                rows.add_audit(connection, NOBODY, "sign-in refused", subject, "wrong code")
        if refused is not None:
            raise refused

    def _use_code(self, connection: Connection, user: User, code: str) -> WrongCode | None:
        factor = _newest(connection, user.id)
        if factor is None:
            return None  # was taken away this moment
        step = self._step_of(factor.secret, code)
        hashed = sha256(as_typed_code(code))
        if step is not None:
            use = f"step {step}"
        elif hashed in factor.recovery_sha256:
            use = f"recovery {hashed}"
        else:
            return WrongCode(used=False)
        if _used(connection, factor.id, [use]):
            return WrongCode(used=True)
        self._note_use(connection, factor.id, use)
        if step is None:
            rows.add_audit(connection, user.name, "used a recovery code", f"users:{user.id}")
        return None

    def _note_use(self, connection: Connection, factor_id: int, use: str) -> None:
        values = {"factor_id": factor_id, "code": use, "at": self._clock()}
        connection.execute(insert(t.code_uses).values(**values))

    def _step_of(self, secret: str, code: str) -> int | None:
        """The half minute that a code is of, among those that count as now."""
        import pyotp

        typed = "".join(code.split())
        if not (typed.isascii() and typed.isdigit()):
            return None
        app, now = pyotp.TOTP(secret), self._clock()
        matching = [n for n in AROUND if hmac.compare_digest(app.at(now, n), typed)]
        return int(now.timestamp() // STEP.total_seconds()) + matching[0] if matching else None


def _newest(connection: Connection, user_id: int) -> Row[Any] | None:
    f = t.second_factors
    query = select(f).where(f.c.user_id == user_id).order_by(f.c.id.desc()).limit(1)
    found = connection.execute(query).first()
    return None if found is None or found.secret is None else found


def _used(connection: Connection, factor_id: int, uses: list[str]) -> set[str]:
    """Those of some codes that were used before."""
    u = t.code_uses.c
    query = select(u.code).where(u.factor_id == factor_id, u.code.in_(uses))
    return set(connection.execute(query).scalars())
