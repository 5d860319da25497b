"""Routes of one's own account: password, second factor, sessions; and an admin's ways to help."""

from datetime import datetime
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from earshift.clinic.entry import drop_own_factor, needs_second_factor
from earshift.store import Store
from earshift.store.accounts import (
    PASS_LASTS,
    Accounts,
    OpenSession,
    offer_factor,
    session_id,
)
from earshift.web.here import qr_code
from earshift.web.identity import (
    Admin,
    Examiner,
    address_of,
    record_view,
    require_confirmed,
    require_session,
    session_secret,
)
from earshift.web.models import Input
from earshift.web.signin import Code, KnownUser, Line, Me, Password, begin_session

router = APIRouter(prefix="/api")


class Proof(Input):
    """The password again, and a code of the second factor where there is one."""

    password: Password
    code: Code = ""


class OwnPassword(Proof):
    new_password: Password


class OwnAccount(BaseModel):
    name: str
    role: str
    second_factor: bool
    second_factor_needed: bool
    recovery_codes_left: int


class OfferedFactor(BaseModel):
    """A secret for an authenticator app. Nothing is stored before a code has proved it."""

    secret: str
    proof: str
    qr: list[str]


class TakenFactor(Input):
    secret: Annotated[str, Field(pattern="^[A-Z2-7]{32}$")]
    proof: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    code: Annotated[str, Field(min_length=1, max_length=60)]


class RecoveryCodes(BaseModel):
    codes: list[str]  # shown this once


class ShownSession(BaseModel):
    id: str
    began: datetime
    seen: datetime
    expires_at: datetime
    address: str
    browser: str
    current: bool

    @classmethod
    def of(cls, one: OpenSession, current: str) -> "ShownSession":
        values = {name: getattr(one, name) for name in cls.model_fields.keys() - {"id", "current"}}
        return cls(id=one.public_id, current=one.public_id == current, **values)


class Pass(BaseModel):
    code: str  # shown this once
    minutes: int


class Reason(Input):
    reason: Line


def _accounts(request: Request) -> Accounts:
    accounts: Accounts = request.app.state.accounts
    return accounts


@router.get("/account")
def own_account(request: Request, identity: Examiner) -> OwnAccount:
    """My own account."""
    user = require_session(request, identity).user
    assert user is not None
    store: Store = request.app.state.store
    return OwnAccount(
        name=user.name,
        role=user.role,
        second_factor=user.second_factor,
        second_factor_needed=needs_second_factor(store, user),
        recovery_codes_left=_accounts(request).recovery_codes_left(user),
    )


@router.post("/account/confirm", status_code=HTTPStatus.NO_CONTENT)
def confirm(request: Request, identity: Examiner, proof: Proof) -> None:
    """Type the password again. It counts for five minutes, for what needs it."""
    key = require_session(request, identity)
    _accounts(request).confirm(key, proof.password, proof.code, address_of(request))


@router.post("/account/password")
def change_password(request: Request, identity: Examiner, new: OwnPassword) -> Me:
    """A new password of my own. All my other sessions and my API tokens end."""
    key = require_session(request, identity)
    user, secret = _accounts(request).change_own_password(
        key, new.password, new.new_password, new.code, address_of(request)
    )
    return begin_session(request, user, secret)


@router.post("/account/second-factor/offer")
def offer(request: Request, identity: Examiner) -> OfferedFactor:
    """A secret for an authenticator app, as text and as a QR code."""
    key = require_confirmed(request, identity)
    assert key.user is not None
    made = offer_factor(key.user, session_secret(request) or "")
    return OfferedFactor(secret=made.secret, proof=made.proof, qr=qr_code(made.address))


@router.post("/account/second-factor", status_code=HTTPStatus.CREATED)
def take_factor(request: Request, identity: Examiner, taken: TakenFactor) -> RecoveryCodes:
    """Set up the second factor that was offered, by its first code."""
    key = require_confirmed(request, identity)
    codes = _accounts(request).take_factor(
        key, session_secret(request) or "", taken.secret, taken.proof, taken.code
    )
    return RecoveryCodes(codes=codes)


@router.delete("/account/second-factor", status_code=HTTPStatus.NO_CONTENT)
def drop_factor(request: Request, identity: Examiner) -> None:
    """Do without a second factor, where the site allows it."""
    key = require_confirmed(request, identity)
    assert key.user is not None
    drop_own_factor(request.app.state.store, _accounts(request), key.user)


@router.get("/account/sessions")
def sessions(request: Request, identity: Examiner) -> list[ShownSession]:
    """Where I am signed in."""
    current = session_id(require_session(request, identity))
    return [ShownSession.of(one, current) for one in _accounts(request).sessions(identity.name)]


@router.delete("/account/sessions/{id}", status_code=HTTPStatus.NO_CONTENT)
def end_session(request: Request, identity: Examiner, id: Line) -> None:
    """End one of my sessions."""
    require_session(request, identity)
    _accounts(request).end_session(identity.name, id, author=identity.name)


@router.get("/users/{name}/sessions")
def sessions_of(request: Request, identity: Admin, name: Line) -> list[ShownSession]:
    """Where a user is signed in."""
    current = session_id(require_session(request, identity))
    user = _accounts(request).user(name)
    record_view(request, identity, f"users:{user.id}")
    return [ShownSession.of(one, current) for one in _accounts(request).sessions(user.name)]


@router.post("/users/{name}/sessions/end", status_code=HTTPStatus.NO_CONTENT)
def end_sessions_of(request: Request, identity: Admin, name: Line, why: Reason) -> None:
    """End all sessions of a user."""
    require_session(request, identity)
    _accounts(request).end_sessions(name, author=identity.name, reason=why.reason)


@router.post("/users/{name}/second-factor/reset")
def reset_factor(request: Request, identity: Admin, name: Line, why: Reason) -> KnownUser:
    """Take away the second factor of a user who has lost it. Their sessions end."""
    require_confirmed(request, identity)
    _accounts(request).drop_factor(name, author=identity.name, reason=why.reason)
    return KnownUser.of(_accounts(request).user(name))


@router.post("/users/{name}/pass", status_code=HTTPStatus.CREATED)
def let_in(request: Request, identity: Admin, name: Line) -> Pass:
    """A pass for a user whom others' wrong passwords keep waiting. It works once."""
    require_confirmed(request, identity)
    code = _accounts(request).let_in(name, author=identity.name)
    return Pass(code=code, minutes=int(PASS_LASTS.total_seconds() // 60))
