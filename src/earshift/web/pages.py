"""The examiner's pages: HTML shells without data, filled in the browser from the JSON API.

A page knows who is signed in and the handle in its address, nothing else, so that every name and
number passes through one place, the API, and its checks. All English is in `texts/en.json`: the
templates read it by `t(key)`, the scripts from a data block of the page.
"""

import json
from collections.abc import Awaitable, Callable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import Receive, Scope, Send

from earshift import __version__
from earshift.engine.rules import TITLES
from earshift.web.identity import ACCOUNT_PAGE, Admin, Examiner, Identity
from earshift.web.security import Asking

if TYPE_CHECKING:
    from jinja2 import Environment

EXAMINER_PAGES = {
    "/": "today",
    "/worklist": "worklist",
    "/programme": "programme",
    "/settings": "settings",
    "/people/{handle}": "person",
    "/people/{handle}/test": "begin",
    "/visits/{handle}/review": "review",
    "/exams/{handle}": "exam",
    "/devices": "devices",
    "/rooms": "rooms",
    "/devices/{handle}": "device",
    "/devices/{handle}/check": "daily_check",
    "/booths": "booths",
    ACCOUNT_PAGE: "account",
    "/import": "import",
    "/try": "try",
    "/about": "about",
    "/api/docs": "docs",
}
ADMIN_PAGES = {"/users": "users", "/audit": "audit"}
API_SCHEMA = "/api/openapi.json"
LISTENER_TEXTS = "listen."  # which no other page needs

router = APIRouter(include_in_schema=False)


def install(app: FastAPI) -> None:
    """Give an app the pages, their scripts and styles, and errors that a person can read."""
    app.include_router(router)
    app.mount("/static", _Static(packages=[("earshift.web", "static")]), name="static")
    app.add_middleware(_CompressPublic, compresslevel=6)
    app.add_exception_handler(HTTPException, _readable(app.exception_handlers[HTTPException]))


class _CompressPublic(GZipMiddleware):
    """Compress what holds no secret, and no more: how small an answer becomes tells what is in it.

    What is answered to somebody signed in may repeat a part of the request beside a secret.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        public = scope["type"] == "http" and scope["path"].startswith(("/static/", API_SCHEMA))
        await (super().__call__ if public else self.app)(scope, receive, send)


class _Static(StaticFiles):
    """Asked for anew every time, so that an upgrade never meets yesterday's scripts."""

    def file_response(self, *args: Any, **named: Any) -> Response:
        response = super().file_response(*args, **named)
        response.headers["Cache-Control"] = "no-cache"
        return response


@cache
def texts(*prefixes: str) -> dict[str, str]:
    """The English of the pages by key: what begins with a prefix, or all but the listener's.

    Rules have the titles that verdicts and reports give them.
    """
    stored = {f"rule.{name}": title for name, title in TITLES.items()}
    stored |= json.loads((files("earshift.web") / "texts" / "en.json").read_text("utf-8"))
    if prefixes:
        return {key: text for key, text in stored.items() if key.startswith(prefixes)}
    return {key: text for key, text in stored.items() if not key.startswith(LISTENER_TEXTS)}


def render(name: str, **values: Any) -> str:
    """The page made from one template."""
    return _environment().get_template(f"{name}.html").render(name=name, **values)


@router.get("/login")
def login() -> Response:
    return _page("login", None)


@router.get("/listen")
def listen() -> Response:
    """The listener's page. The link's token is in the fragment, which no server ever sees."""
    return _page("listen", None)


def _examiners(name: str) -> Callable[[Request, Identity], Response]:
    def page(request: Request, who: Examiner) -> Response:
        return _page(name, who, **_of_address(request))

    return page


def _admins(name: str) -> Callable[[Request, Identity], Response]:
    def page(request: Request, who: Admin) -> Response:
        return _page(name, who, **_of_address(request))

    return page


for _path, _name in EXAMINER_PAGES.items():
    router.add_api_route(_path, _examiners(_name), name=_name)
for _path, _name in ADMIN_PAGES.items():
    router.add_api_route(_path, _admins(_name), name=_name)


def _of_address(request: Request) -> dict[str, Any]:
    return {
        "handle": str(request.path_params.get("handle", "")),
        "api_address": API_SCHEMA,
        "single_user": request.app.state.settings.single_user,
    }


def _page(name: str, who: Identity | None, status: int = 200, **values: Any) -> Response:
    return HTMLResponse(render(name, who=who, **values), status)


def _readable(as_json: Any) -> Callable[[Request, Exception], Awaitable[Response]]:
    """A page instead of JSON for who came by the address bar; without a sign-in, the way to it."""

    async def explain(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path
        if path.startswith("/api/") and path not in EXAMINER_PAGES:
            response: Response = await as_json(request, error)
            return response
        if isinstance(error, Asking):  # only the page of one's own account is open now
            return RedirectResponse(ACCOUNT_PAGE, 303)
        if error.status_code == 401:
            wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            after = "" if wanted == "/" else f"?next={quote(wanted, safe='')}"
            return RedirectResponse(f"/login{after}", 303)
        known = f"error.{error.status_code}" in texts()
        reason = error.status_code if known else "other"
        return _page("error", None, error.status_code, reason=reason)

    return explain


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("earshift.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def t(key: str, **values: object) -> str:
        return {**texts(), **texts(LISTENER_TEXTS)}[key].format(**values)

    environment.globals.update(t=t, texts=texts, version=__version__)
    return environment
