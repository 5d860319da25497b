"""Routes to come in and go out, and for admins: users, tokens and the audit."""

from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict, Field

from earshift import __version__
from earshift.store import Store
from earshift.store.accounts import (
    SHORTEST_TOKEN_DAYS,
    TOKEN_DAYS,
    Accounts,
    Key,
    User,
    csrf_token,
)
from earshift.web.identity import (
    Admin,
    Examiner,
    Identity,
    give_session,
    record_view,
    session_key,
    session_secret,
)
from earshift.web.security import not_launched_page
from earshift.web.settings import Settings

router = APIRouter()

# What both databases can hold; a password may be anything.
Line = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Password = Annotated[str, Field(min_length=1, max_length=1000)]
Role = Literal["examiner", "reviewer", "admin"]


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Credentials(_Input):
    name: Line
    password: Password


class Me(BaseModel):
    name: str
    role: str
    csrf: str | None  # None for a token, which needs none
    single_user: bool
    version: str
    zone: str


class NewUser(_Input):
    name: Line
    role: Role
    password: Password


class ChangedUser(_Input):
    reason: Line
    role: Role | None = None
    state: Literal["active", "disabled"] | None = None
    password: Password | None = None


class KnownUser(BaseModel):
    name: str
    role: str
    state: str
    created_at: datetime
    changed_at: datetime

    @classmethod
    def of(cls, user: User) -> "KnownUser":
        return cls.model_validate(user, from_attributes=True)


class NewToken(_Input):
    name: Line
    role: Role | None = None
    days: Annotated[float, Field(ge=SHORTEST_TOKEN_DAYS, le=TOKEN_DAYS)] = 90


class KnownToken(BaseModel):
    id: str
    name: str
    user: str
    role: str
    created_at: datetime
    expires_at: datetime

    @classmethod
    def of(cls, key: Key) -> "KnownToken":
        return cls(
            id=key.public_id,
            name=key.name,
            user="" if key.user is None else key.user.name,
            role=key.role,
            created_at=key.created_at,
            expires_at=key.expires_at,
        )


class MadeToken(KnownToken):
    token: str  # shown this once


class AuditLine(BaseModel):
    id: int
    at: datetime
    author: str
    action: str
    subject: str
    reason: str


class AuditPage(BaseModel):
    entries: list[AuditLine]
    next: int | None


def _accounts(request: Request) -> Accounts:
    accounts: Accounts = request.app.state.accounts
    return accounts


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def _require_session(request: Request, identity: Identity) -> None:
    """Whoever holds a token only cannot make more keys or users with it."""
    if identity.kind != "session":
        raise HTTPException(HTTPStatus.FORBIDDEN, "sign in to do this; an API token cannot")
    _require_accounts(request)


def _require_accounts(request: Request) -> None:
    if _settings(request).single_user:
        raise HTTPException(
            HTTPStatus.CONFLICT,
            "there are no accounts; stop the program and add them with `earshift user add`",
        )


def _me(request: Request, name: str, role: str, secret: str | None) -> Me:
    settings = _settings(request)
    return Me(
        name=name,
        role=role,
        csrf=None if secret is None else csrf_token(secret),
        single_user=settings.single_user,
        version=__version__,
        zone=settings.zone,
    )


@router.get("/api/health")
def health() -> dict[str, str]:
    """Whether the server answers; for a proxy."""
    return {"state": "ok"}


class Readiness(BaseModel):
    """Whether work can begin, and else what it waits for."""

    state: Literal["ready", "not ready"]
    waiting_for: list[str]
    detail: str


@router.get("/api/health/ready", responses={503: {"model": Readiness}})
def ready(request: Request, response: Response) -> Readiness:
    """Whether an answer could be taken now: the database can be written to, the engine is warm."""
    waiting = request.app.state.store.unready()
    if not request.app.state.sessions.warm:
        waiting.append("engine")
    if waiting:
        response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
    detail = f"waiting for {', '.join(waiting)}" if waiting else ""
    return Readiness(state="not ready" if waiting else "ready", waiting_for=waiting, detail=detail)


@router.get("/open", include_in_schema=False)
def launch(request: Request, token: str = "") -> Response:
    settings = _settings(request)
    if settings.launch_sha256 is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    secret = _accounts(request).launch(token, settings.launch_sha256, settings.author)
    if secret is None:
        return not_launched_page()
    give_session(request, secret)
    return RedirectResponse("/", HTTPStatus.SEE_OTHER)


@router.get("/api/me")
def me(request: Request, identity: Examiner) -> Me:
    """Who I am, and the CSRF token of my session."""
    secret = session_secret(request) if identity.kind == "session" else None
    return _me(request, identity.name, identity.role, secret)


@router.post("/api/login")
def login(request: Request, credentials: Credentials) -> Me:
    """Sign in by name and password: a session begins, in a cookie."""
    _require_accounts(request)
    address = request.client.host if request.client else ""
    signed_in = _accounts(request).sign_in(credentials.name, credentials.password, address)
    if signed_in is None:
        raise HTTPException(HTTPStatus.UNAUTHORIZED, "wrong user name or password")
    user, secret = signed_in
    give_session(request, secret)
    return _me(request, user.name, user.role, secret)


@router.post("/api/logout", status_code=HTTPStatus.NO_CONTENT)
def logout(request: Request, identity: Examiner) -> None:
    """End this session."""
    key = session_key(request)
    if identity.kind != "session" or key is None:
        raise HTTPException(HTTPStatus.CONFLICT, "a token cannot sign out; revoke it instead")
    _accounts(request).sign_out(key)
    give_session(request, "")


@router.get("/api/users")
def users(request: Request, identity: Admin) -> list[KnownUser]:
    record_view(request, identity, "users")
    return [KnownUser.of(user) for user in _accounts(request).users()]


@router.post("/api/users", status_code=HTTPStatus.CREATED)
def add_user(request: Request, identity: Admin, new: NewUser) -> KnownUser:
    _require_session(request, identity)
    user = _accounts(request).add_user(new.name, new.password, role=new.role, author=identity.name)
    return KnownUser.of(user)


@router.post("/api/users/{name}/state")
def change_user(request: Request, identity: Admin, name: Line, change: ChangedUser) -> KnownUser:
    """Another role, state or password. A new password ends the user's sessions and tokens."""
    _require_session(request, identity)
    user = _accounts(request).change_user(
        name,
        author=identity.name,
        reason=change.reason,
        role=change.role,
        state=change.state,
        password=change.password,
    )
    return KnownUser.of(user)


@router.get("/api/tokens")
def tokens(request: Request, identity: Examiner) -> list[KnownToken]:
    """My own API tokens; an admin sees everybody's."""
    whose = None if identity.role == "admin" else identity.name
    return [KnownToken.of(key) for key in _accounts(request).tokens(whose)]


@router.post("/api/tokens", status_code=HTTPStatus.CREATED)
def make_token(request: Request, identity: Examiner, new: NewToken) -> MadeToken:
    """A new API token of mine. Its secret is in this answer and nowhere else."""
    _require_session(request, identity)
    key, secret = _accounts(request).make_token(
        identity.name, name=new.name, role=new.role, days=new.days, author=identity.name
    )
    return MadeToken(**KnownToken.of(key).model_dump(), token=secret)


@router.delete("/api/tokens/{id}", status_code=HTTPStatus.NO_CONTENT)
def revoke_token(request: Request, identity: Examiner, id: Line) -> None:
    """End a token: one of mine; an admin, anybody's."""
    whose = None if identity.role == "admin" else identity.name
    _accounts(request).revoke_token(id, author=identity.name, user_name=whose)


@router.get("/api/audit")
def audit(
    request: Request,
    identity: Admin,
    after: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> AuditPage:
    """Who saw and did what, oldest first, a page at a time."""
    store: Store = request.app.state.store
    found = store.audit(after=after, limit=limit)
    record_view(request, identity, "audit")
    lines = [AuditLine.model_validate(entry, from_attributes=True) for entry in found]
    return AuditPage(entries=lines, next=lines[-1].id if len(lines) == limit else None)
