"""What every request passes before any route sees it, and every answer on its way out.

Host and Origin, who stands behind a proxy, the size of a body, the single user's cookie; headers
that keep a page to itself; a log and errors that never repeat what was sent.
"""

import ipaddress
import json
import logging
import time
import traceback
from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from earshift.engine.refusal import Conflict, NotFound, Refusal, Trouble
from earshift.formats.fhir import once_each
from earshift.store.accounts import BROWSER_KNOWN
from earshift.web.settings import Settings

log = logging.getLogger("earshift.web")

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
UPLOADS, UPLOAD_BYTES = "/api/imports", 10 * 2**20
BODY_BYTES = 64 * 2**10
STATIC = "/static/"
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
ONE_YEAR = "max-age=31536000"
ONCE = (
    *("host", "origin", "authorization", "content-length", "x-csrf-token", "cookie"),
    "x-forwarded-proto",
)
NOT_LAUNCHED = (
    "This earshift is only for the person who started it. Use the link that `earshift serve` "
    "printed. Each link works once, and what it opens ends after 30 minutes of inactivity: press "
    "Enter in the program's window for a new link, or start the program again."
)
FAILED = "something went wrong on the server; see its log"
BROKEN = "the database is not working properly; see the server's log"
TROUBLE = {
    "disk-full": "the server's disk is full: nothing was stored. Tell whoever looks after it",
    "database-busy": "another program is writing for a long time: nothing was stored. Try again",
    "database-read-only": "the database cannot be written to: nothing was stored",
    "database-role": "the server's role in the database may not do this: nothing was stored",
    "database-lost": "the server has lost its database. What was stored before is safe. Try again",
    "disk-broken": "the server's disk refuses to read or write: nothing was stored. "
    "Tell whoever looks after it",
    "disk-unconfirmed": "the server's disk did not confirm what was written. Check whether it was "
    "stored before you repeat it",
    "database-gone": "the database was moved or replaced: nothing was stored. "
    "The server has to be started again",
}


class Guard:
    """Pure ASGI middleware around the whole app, errors included."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        proxy = settings.behind_proxy
        self._proxy = None if proxy is None else ipaddress.ip_network(proxy)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        began = time.perf_counter()
        scope["state"] = dict(scope.get("state") or {})  # a session must never meet another request
        answer = _Answer(scope, send, self._settings)
        try:
            refusal = await self._refusal(scope)
            if refusal is not None:
                await refusal(scope, receive, answer)
            else:
                await self._app(scope, _limited(scope, receive), answer)
        except Exception as error:  # nothing about it may leave, nor may its text be logged
            log.error("%s failed: %s", _route(scope), _where(error))
            if not answer.status:
                await _told(HTTPStatus.INTERNAL_SERVER_ERROR, FAILED)(scope, receive, answer)
        milliseconds = 1000 * (time.perf_counter() - began)
        is_file = scope["path"].startswith(STATIC) and answer.status < 400
        say = log.debug if is_file else log.info
        say("%s %s %.0f ms", _route(scope), answer.status, milliseconds)

    async def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if any(len(headers.getlist(name)) > 1 for name in ONCE):
            return _told(HTTPStatus.BAD_REQUEST, "a header that may appear once was sent twice")
        if self._proxy is not None and (refusal := self._unproxied(scope, headers)):
            return refusal
        if _host_name(headers.get("host", "")) not in self._settings.host_names:
            return _told(
                HTTPStatus.BAD_REQUEST,
                "this server does not answer to that host name; `earshift serve --allowed-host` "
                "adds one",
            )
        if scope["method"] not in SAFE_METHODS and self._foreign(scope, headers):
            return _told(HTTPStatus.FORBIDDEN, "this request came from another site's page")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            return _told(HTTPStatus.BAD_REQUEST, "the length of the body is not a number")
        if int(length[:20]) > _most_bytes(scope):
            return _told(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(scope))
        if self._settings.single_user and scope["path"] != "/open":
            return await self._not_launched(scope, headers)
        return None

    def _unproxied(self, scope: Scope, headers: Headers) -> Response | None:
        """Take the client's address and scheme from the proxy; refuse whoever goes round it."""
        assert self._proxy is not None
        peer = _address((scope.get("client") or ("",))[0])
        is_proxy = peer is not None and peer in self._proxy
        if not is_proxy:
            return _told(HTTPStatus.FORBIDDEN, "this server answers only its proxy")
        if headers.get("x-forwarded-proto", "https") != "https":
            return _told(HTTPStatus.FORBIDDEN, "use an address that begins with https")
        # The last one is what the proxy itself saw; those before it are what it was told, be it in
        # the same header or in one of their own.
        told = ",".join(headers.getlist("x-forwarded-for"))
        client = told.rpartition(",")[2].strip()
        scope["client"] = (client, 0)
        scope["scheme"] = "https"
        return None

    def _foreign(self, scope: Scope, headers: Headers) -> bool:
        """Whether an unsafe request was sent, or may have been sent, by another site's page."""
        site = headers.get("sec-fetch-site")
        if site not in (None, "same-origin", "none"):
            return True
        origin = headers.get("origin")
        if origin is not None:
            return _origin(origin) != _origin(f"{scope['scheme']}://{headers.get('host', '')}")
        # Programs send no Origin, and no cookie; a page that has one says where it comes from.
        by_cookie = session_of(headers, self._settings) is not None
        return by_cookie and "authorization" not in headers and site != "same-origin"

    async def _not_launched(self, scope: Scope, headers: Headers) -> Response | None:
        secret = session_of(headers, self._settings)
        if secret is not None:
            accounts = scope["app"].state.accounts
            launch = self._settings.launch_sha256
            key = await to_thread.run_sync(accounts.session, secret, launch)
            if key is not None:
                scope["state"]["session"] = key
                return None
        if scope["path"].startswith("/api/"):
            return _told(HTTPStatus.FORBIDDEN, NOT_LAUNCHED)
        return not_launched_page()


def not_launched_page() -> HTMLResponse:
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>earshift</title>'
        f"<h1>earshift</h1><p>{NOT_LAUNCHED}</p></html>"
    )
    return HTMLResponse(page, HTTPStatus.FORBIDDEN)


def session_of(headers: Headers, settings: Settings) -> str | None:
    """The session's secret in a request's cookie."""
    return cookie_parser(headers.get("cookie", "")).get(settings.cookie) or None


def browser_of(headers: Headers, settings: Settings) -> str:
    """The secret of a browser in which somebody has signed in before."""
    return cookie_parser(headers.get("cookie", "")).get(settings.browser_cookie, "")


class _Answer:
    """Sends an answer with the headers that all have, and cookies that are new."""

    def __init__(self, scope: Scope, send: Send, settings: Settings) -> None:
        self._scope, self._send, self._settings = scope, send, settings
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            if self._settings.secure:
                headers["Strict-Transport-Security"] = ONE_YEAR
            if not (self._scope["path"].startswith(STATIC) and self.status < 400):
                headers["Cache-Control"] = "no-store"
            state = self._scope["state"]
            if "cookie" in state:
                lasts = None if state["cookie"] else 0
                cookie = self._cookie(self._settings.cookie, state["cookie"], lasts)
                headers.append("Set-Cookie", cookie)
            if "browser" in state:
                lasts = int(BROWSER_KNOWN.total_seconds())
                cookie = self._cookie(self._settings.browser_cookie, state["browser"], lasts)
                headers.append("Set-Cookie", cookie)
        await self._send(message)

    def _cookie(self, name: str, secret: str, seconds: int | None) -> str:
        """A cookie for this site's pages only, until the browser closes if no time is given."""
        parts = [f"{name}={secret}", "Path=/", "HttpOnly", "SameSite=Strict"]
        if seconds is not None:
            parts.append(f"Max-Age={seconds}")
        if self._settings.secure:
            parts.append("Secure")
        return "; ".join(parts)


def _limited(scope: Scope, receive: Receive) -> Receive:
    """The body, counted as it comes: a length that was announced need not be true, or there."""
    most, got = _most_bytes(scope), 0

    async def counted() -> Message:
        nonlocal got
        message = await receive()
        got += len(message.get("body", b""))
        if got > most:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(scope))
        return message

    return counted


def _most_bytes(scope: Scope) -> int:
    return UPLOAD_BYTES if scope["path"].startswith(UPLOADS) else BODY_BYTES


def _too_large(scope: Scope) -> str:
    return f"this is too large: at most {_most_bytes(scope) // 1024} KiB are accepted here"


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address; one of the fourth version that a socket of the sixth wraps is unwrapped."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _host_name(host: str) -> str:
    """A Host header without its port."""
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isascii() and port.isdigit() else host.lower()


def _origin(text: str) -> str:
    scheme, _, host = text.lower().partition("://")
    default = {"http": ":80", "https": ":443"}.get(scheme, ":")
    return f"{scheme}://{host.removesuffix(default)}"


def _told(status: HTTPStatus, sentence: str) -> JSONResponse:
    return JSONResponse({"detail": sentence}, status)


async def nothing_twice(request: Request) -> None:
    """Refuse JSON in which a key comes twice: one would count, and nobody has said which."""
    if request.url.path.startswith(UPLOADS):  # files, which their own readers judge
        return
    try:
        json.loads(await request.body(), object_pairs_hook=once_each)
    except Refusal:
        raise
    except (ValueError, RecursionError):
        return  # what is no JSON is refused as such


# The log: which route, never which address, as that may hold a name or a token.


def _route(scope: Scope) -> str:
    path = getattr(scope.get("route"), "path", None)
    if path is None:
        path = STATIC if scope["path"].startswith(STATIC) else "(no route)"
    method = scope["method"] if scope["method"] in METHODS else "(other)"
    return f"{method} {path}"


METHODS = (*SAFE_METHODS, "POST", "PUT", "PATCH", "DELETE")


def _where(error: BaseException) -> str:
    """Kind and places of an error without its text, which may hold what somebody typed."""
    parts = []
    cause: BaseException | None = error
    while cause is not None:
        frames = traceback.extract_tb(cause.__traceback__)[-6:]
        places = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames))
        parts.append(f"{type(cause).__name__} at {places}")
        cause = cause.__cause__
    return ", from ".join(parts[:4])


# Errors

OWN_WORDS = {
    HTTPStatus.NOT_FOUND: "there is nothing at this address",
    HTTPStatus.METHOD_NOT_ALLOWED: "this address does not accept this method",
}
# Sentences of the validator that say what was expected and never what was sent.
HARMLESS = frozenset(
    (
        "string_type",
        "int_type",
        "float_type",
        "bool_type",
        "list_type",
        "dict_type",
        "date_type",
        "datetime_type",
        "model_attributes_type",
        "int_parsing",
        "float_parsing",
        "bool_parsing",
        "int_from_float",
        "finite_number",
        "string_too_short",
        "string_too_long",
        "too_short",
        "too_long",
        "literal_error",
        "enum",
        "less_than",
        "less_than_equal",
        "greater_than",
        "greater_than_equal",
    )
)
PLAIN = {
    "missing": "is missing",
    "extra_forbidden": "has an unknown field",
    "json_invalid": "is not JSON",
}


STATUS_BY_CODE = {
    "throttled": HTTPStatus.TOO_MANY_REQUESTS,
    "weak-password": HTTPStatus.CONFLICT,
    "user-name": HTTPStatus.CONFLICT,
    "second-factor": HTTPStatus.FORBIDDEN,
    "wrong-code": HTTPStatus.FORBIDDEN,
    "wrong-password": HTTPStatus.FORBIDDEN,
}
# What a page answers to by asking for something more; it never reads the sentence.
TOLD_BY_CODE = frozenset(STATUS_BY_CODE)


class Asking(HTTPException):
    """Refused until something else is done, which the code names."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(HTTPStatus.FORBIDDEN, sentence)
        self.code = code


STATUS_BY_KIND: tuple[tuple[type[Refusal], HTTPStatus], ...] = (
    (Trouble, HTTPStatus.SERVICE_UNAVAILABLE),
    (NotFound, HTTPStatus.NOT_FOUND),
    (Conflict, HTTPStatus.CONFLICT),
    (Refusal, HTTPStatus.UNPROCESSABLE_ENTITY),
)
# What somebody can do about it here. The command line has advice of its own.
ADVICE = {
    "calibration": "Fix this first, or accept it: every result will say so.",
    "unfinished-exam": "continue it, or abandon it first",
    "unverified-rule": "Accept this, and every result will say so.",
}
LONGEST_DETAIL = 500


def status_of(refusal: Refusal) -> HTTPStatus:
    """The status that a refusal has, by its code or else its class."""
    known = STATUS_BY_CODE.get(refusal.code)
    return known or next(status for kind, status in STATUS_BY_KIND if isinstance(refusal, kind))


def detail_of(refusal: Refusal) -> str:
    """What a refusal says here: never what was sent, a row's number or a path of the server."""
    sentence, advice = refusal.sentence, ADVICE.get(refusal.code, refusal.advice)
    if advice:
        sentence += f"{' ' if sentence.endswith('.') else ': '}{advice}"
    return sentence[:LONGEST_DETAIL]


def add_error_handlers(app: FastAPI) -> None:
    """Every refusal is `{"detail": sentence}`, and no sentence repeats what was sent."""

    async def refused_by_library(request: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        if isinstance(error, Trouble):
            log.error("%s failed: %s", _route(request.scope), _where(error))
        wait = getattr(error, "retry_after", None)
        headers = None if wait is None else {"Retry-After": str(wait)}
        trouble = isinstance(error, Trouble)
        detail = TROUBLE.get(error.code, BROKEN) if trouble else detail_of(error)
        told = {"detail": detail} | ({"code": error.code} if error.code in TOLD_BY_CODE else {})
        return JSONResponse(told, status_of(error), headers)

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        status = HTTPStatus(error.status_code)
        if status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):  # these have no body
            return Response(status_code=status, headers=error.headers)
        detail = (
            OWN_WORDS.get(status, error.detail) if error.detail == status.phrase else error.detail
        )
        told = {"detail": detail} | ({"code": error.code} if isinstance(error, Asking) else {})
        return JSONResponse(told, error.status_code, error.headers)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _told(HTTPStatus.UNPROCESSABLE_ENTITY, _bad_input(request.app, error.errors()))

    app.add_exception_handler(Refusal, refused_by_library)
    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(RequestValidationError, invalid)


def _bad_input(app: FastAPI, errors: Iterable[dict[str, Any]]) -> str:
    known = _names(app)
    sentences = []
    for error in errors:
        kind, message = error["type"], error["msg"]
        # A key that is not ours was typed by somebody, and so was what stands at a place in text.
        names = [str(part) for part in error["loc"][1:] if part in known]
        told = PLAIN.get(kind, "is not valid")
        if kind in HARMLESS:
            told += f": {message[:1].lower()}{message[1:]}"
        place = ".".join(names)
        sentences.append(f"{place or 'the input'} {told}")
    return "; ".join(dict.fromkeys(sentences[:5])) or "the input is not valid"


def _names(app: FastAPI) -> frozenset[str]:
    """The names of all fields and parameters that the app documents."""
    if not hasattr(app.state, "field_names"):
        names: set[str] = set()
        found: list[Any] = [app.openapi()]
        while found:
            item = found.pop()
            if isinstance(item, dict):
                names |= item.get("properties", {}).keys() if "properties" in item else set()
                if "in" in item and isinstance(item.get("name"), str):
                    names.add(item["name"])
                found += item.values()
            elif isinstance(item, list):
                found += item
        app.state.field_names = frozenset(names)
    field_names: frozenset[str] = app.state.field_names
    return field_names
