"""Routes to come in and go out, and for admins: users and tokens."""

import secrets
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel, ConfigDict, Field

from earshift import __version__
from earshift.clinic.entry import Duty, first_duty
from earshift.store.accounts import (
    SHORTEST_TOKEN_DAYS,
    TOKEN_DAYS,
    Accounts,
    Key,
    User,
    csrf_token,
)
from earshift.web.identity import (
    NO_ACCOUNTS,
    Admin,
    Examiner,
    Identity,
    address_of,
    browser_words,
    give_session,
    record_view,
    require_confirmed,
    session_key,
    session_secret,
)
from earshift.web.security import browser_of, not_launched_page
from earshift.web.settings import Settings

router = APIRouter()

LAUNCHED_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>earshift</title>'
    '<meta http-equiv="refresh" content="0; url=/"><p><a href="/">earshift</a></p></html>'
)

# What both databases can hold; a password may be anything.
Line = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Password = Annotated[str, Field(min_length=1, max_length=1000)]
Code = Annotated[str, Field(max_length=60, pattern=r"^[^\x00-\x1f\x7f]*$")]
Role = Literal["examiner", "reviewer", "admin"]


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Credentials(_Input):
    name: Line
    password: Password
    code: Code = ""
    admin_pass: Code = ""


class Me(BaseModel):
    name: str
    role: str
    csrf: str | None  # None for a token, which needs none
    single_user: bool
    version: str
    zone: str
    second_factor: bool  # whether a code is asked for beside the password
    first: Duty | None  # what has to be done before anything else


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
    temporary: bool
    second_factor: bool

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


def _accounts(request: Request) -> Accounts:
    accounts: Accounts = request.app.state.accounts
    return accounts


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def me_of(request: Request, identity: Identity, user: User | None, secret: str | None) -> Me:
    """Who somebody is, as their pages need it; `secret` is their session's, if they have one."""
    settings = _settings(request)
    return Me(
        name=identity.name,
        role=identity.role,
        csrf=None if secret is None else csrf_token(secret),
        single_user=settings.single_user,
        version=__version__,
        zone=settings.zone,
        second_factor=user is not None and user.second_factor,
        first=None if user is None else first_duty(request.app.state.store, user),
    )


def begin_session(request: Request, user: User, secret: str) -> Me:
    """Give a browser a new session, and know it from now on."""
    browser = browser_of(request.headers, _settings(request)) or secrets.token_urlsafe(32)
    _accounts(request).know_browser(user, browser)
    give_session(request, secret)
    request.scope["state"]["browser"] = browser
    return me_of(request, Identity(user.name, user.role, 0), user, secret)


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
    if request.headers.get("sec-fetch-site") == "cross-site":
        # From the file that `earshift serve` opens. The browser would not send the new cookie to
        # where such a page is redirected, but it does to where this one leads.
        return HTMLResponse(LAUNCHED_PAGE)
    return RedirectResponse("/", HTTPStatus.SEE_OTHER)


@router.get("/api/me")
def me(request: Request, identity: Examiner) -> Me:
    """Who I am, and the CSRF token of my session."""
    if identity.kind != "session":
        return me_of(request, identity, None, None)
    key = session_key(request)
    user = None if key is None else key.user
    return me_of(request, identity, user, session_secret(request))


@router.post("/api/login")
def login(request: Request, credentials: Credentials) -> Me:
    """Sign in by name and password, and by a code where there is a second factor: a session
    begins, in a cookie. Who is kept waiting for others' wrong passwords can give an admin's
    pass."""
    if _settings(request).single_user:
        raise HTTPException(HTTPStatus.CONFLICT, NO_ACCOUNTS)
    signed_in = _accounts(request).sign_in(
        credentials.name,
        credentials.password,
        address_of(request),
        code=credentials.code,
        browser=browser_of(request.headers, _settings(request)),
        given_pass=credentials.admin_pass,
        agent=browser_words(request.headers.get("user-agent", "")),
    )
    if signed_in is None:
        raise HTTPException(HTTPStatus.UNAUTHORIZED, "wrong user name or password")
    return begin_session(request, *signed_in)


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
    require_confirmed(request, identity)
    user = _accounts(request).add_user(new.name, new.password, role=new.role, author=identity.name)
    return KnownUser.of(user)


@router.post("/api/users/{name}/state")
def change_user(request: Request, identity: Admin, name: Line, change: ChangedUser) -> KnownUser:
    """Another role, state or password. A new password ends the user's sessions and tokens."""
    require_confirmed(request, identity)
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
    require_confirmed(request, identity)
    key, secret = _accounts(request).make_token(
        identity.name, name=new.name, role=new.role, days=new.days, author=identity.name
    )
    return MadeToken(**KnownToken.of(key).model_dump(), token=secret)


@router.delete("/api/tokens/{id}", status_code=HTTPStatus.NO_CONTENT)
def revoke_token(request: Request, identity: Examiner, id: Line) -> None:
    """End a token: one of mine; an admin, anybody's."""
    if identity.kind == "session":
        require_confirmed(request, identity)
    whose = None if identity.role == "admin" else identity.name
    _accounts(request).revoke_token(id, author=identity.name, user_name=whose)
