"""Who is asking: by the session's cookie, an API token or a listener's link.

A route names who may call it by the type of a parameter: `Examiner`, `Reviewer`, `Admin` or
`Listener`.
"""

import hmac
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request, Security
from fastapi.security import HTTPBearer
from fastapi.security.http import HTTPBase

from earshift.clinic.entry import Duty, first_duty
from earshift.store import Store
from earshift.store.accounts import ROLES, Accounts, Key, csrf_token
from earshift.store.errors import StoreTrouble
from earshift.web.security import SAFE_METHODS, Asking, session_of
from earshift.web.settings import Settings

CSRF_HEADER = "X-CSRF-Token"
NO_ACCOUNTS = "there are no accounts; stop the program and add them with `earshift user add`"
ACCOUNT_PAGE = "/account"
# All that somebody reaches who has to do something first.
_ALWAYS = frozenset((ACCOUNT_PAGE, "/api/me", "/api/logout", "/api/account"))
REACHED: dict[Duty, frozenset[str]] = {
    "password": _ALWAYS | {"/api/account/password"},
    "second factor": _ALWAYS
    | {
        "/api/account/confirm",
        "/api/account/second-factor",
        "/api/account/second-factor/offer",
    },
}
DUTY_WORDS: dict[Duty, str] = {
    "password": "change your password first: somebody else has chosen it",
    "second factor": "set up your second factor first: this site asks it of administrators",
}


@dataclass(frozen=True)
class Identity:
    """Who calls. `scope` is the key's: a listener's names its visit and exams."""

    name: str
    role: str
    key_id: int
    kind: str = "session"
    scope: dict[str, Any] = field(default_factory=dict)


def record_view(
    request: Request, identity: Identity, subject: str, action: str = "view", **details: object
) -> None:
    """A line in the audit: this was shown to that user. `details` are nothing that was typed."""
    store: Store = request.app.state.store
    store.add_audit(author=identity.name, action=action, subject=subject, details=details)


def session_secret(request: Request) -> str | None:
    """The session's secret that came with a request."""
    settings: Settings = request.app.state.settings
    return session_of(request.headers, settings)


def session_key(request: Request) -> Key | None:
    """The live session of a request, looked up once."""
    state = request.scope["state"]
    if "session" not in state:
        settings: Settings = request.app.state.settings
        secret = session_secret(request)
        accounts: Accounts = request.app.state.accounts
        state["session"] = (
            None if secret is None else accounts.session(secret, settings.launch_sha256)
        )
    key: Key | None = state["session"]
    return key


def require_session(request: Request, identity: "Identity") -> Key:
    """The session of a user: whoever holds a token only cannot make more keys or users with it."""
    settings: Settings = request.app.state.settings
    if identity.kind != "session":
        raise HTTPException(HTTPStatus.FORBIDDEN, "sign in to do this; an API token cannot")
    if settings.single_user:
        raise HTTPException(HTTPStatus.CONFLICT, NO_ACCOUNTS)
    key = session_key(request)
    assert key is not None
    return key


def require_confirmed(request: Request, identity: "Identity") -> Key:
    """The same, of somebody who has typed the password within the last minutes."""
    key = require_session(request, identity)
    accounts: Accounts = request.app.state.accounts
    if not accounts.confirmed(key):
        raise Asking("password-again", "type your password again to do this")
    return key


# By what a browser calls itself; the first that fits, as they all name one another.
BROWSERS = ("Edg Edge", "OPR Opera", "Firefox", "Chrome", "Safari")
SYSTEMS = (
    *("Windows", "iPhone", "iPad", "Android", "CrOS ChromeOS", "Mac macOS"),
    "Linux",
)


def browser_words(agent: str) -> str:
    """A browser and its system as people know them; nothing of what it sent is repeated."""
    found = [
        next((one.split()[-1] for one in known if one.split()[0] in agent), "")
        for known in (BROWSERS, SYSTEMS)
    ]
    return " on ".join(filter(None, found)) or "another program"


def address_of(request: Request) -> str:
    """Where a request comes from."""
    return request.client.host if request.client else ""


def give_session(request: Request, secret: str) -> None:
    """Let the answer carry this session's cookie; an empty secret takes the cookie away."""
    request.scope["state"]["cookie"] = secret


def _signed_in(request: Request) -> Identity:
    accounts: Accounts = request.app.state.accounts
    settings: Settings = request.app.state.settings
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        key = accounts.token(token.strip())
    elif scheme:
        key = None
    else:
        key = session_key(request)
    if key is None:
        raise HTTPException(
            HTTPStatus.UNAUTHORIZED, "sign in first", {"WWW-Authenticate": "Bearer"}
        )
    if key.kind == "session":
        secret = session_secret(request) or ""
        sent = request.headers.get(CSRF_HEADER, "")
        if request.method not in SAFE_METHODS and not hmac.compare_digest(
            sent.encode(), csrf_token(secret).encode()
        ):
            raise HTTPException(
                HTTPStatus.FORBIDDEN, f"the header {CSRF_HEADER} is missing or not this session's"
            )
        # A page that is left open asks by itself: only what somebody does keeps a session alive.
        by_itself = request.url.path.endswith("/live")
        if key.user is not None:
            _do_first(request, key)
        if not by_itself:
            with suppress(StoreTrouble):  # the session lasts for a while; what is asked may work
                renewed = accounts.renew(secret, key)
                if renewed is not None:
                    give_session(request, renewed)
    name = settings.author if key.user is None else key.user.name
    return Identity(name, key.role, key.id, key.kind, key.scope)


def _do_first(request: Request, key: Key) -> None:
    assert key.user is not None
    duty = first_duty(request.app.state.store, key.user)
    if duty is not None and request.scope["route"].path not in REACHED[duty]:
        raise Asking(f"first {duty}", DUTY_WORDS[duty])


def _at_least(request: Request, role: str) -> Identity:
    identity = _signed_in(request)
    if ROLES.index(identity.role) < ROLES.index(role):
        store: Store = request.app.state.store
        path = request.scope["route"].path
        store.add_audit(author=identity.name, action="refused", subject=f"{request.method} {path}")
        raise HTTPException(HTTPStatus.FORBIDDEN, f"only users with the role {role} can do this")
    return identity


_BEARER = Security(HTTPBearer(auto_error=False, description="An API token."))
_LINK = Security(
    HTTPBase(
        scheme="Listener",
        scheme_name="Listener",
        auto_error=False,
        description="The token of a listener's link.",
    )
)


def _examiner(request: Request, _: Annotated[Any, _BEARER]) -> Identity:
    return _at_least(request, "examiner")


def _reviewer(request: Request, _: Annotated[Any, _BEARER]) -> Identity:
    return _at_least(request, "reviewer")


def _admin(request: Request, _: Annotated[Any, _BEARER]) -> Identity:
    return _at_least(request, "admin")


def _listener(request: Request, _: Annotated[Any, _LINK]) -> Identity:
    accounts: Accounts = request.app.state.accounts
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    link = accounts.link(token.strip()) if scheme.lower() == "listener" else None
    if link is None:
        raise HTTPException(
            HTTPStatus.UNAUTHORIZED,
            "this link is not valid or has expired; ask the examiner for a new one",
            {"WWW-Authenticate": "Listener"},
        )
    scope = {
        "visit": link.visit_id,
        "exams": list(link.exam_ids),
        "unfinished": list(link.unfinished),
    }
    return Identity(f"listener link {link.key_id}", "listener", link.key_id, "link", scope)


Examiner = Annotated[Identity, Depends(_examiner)]
Reviewer = Annotated[Identity, Depends(_reviewer)]
Admin = Annotated[Identity, Depends(_admin)]
Listener = Annotated[Identity, Depends(_listener)]
