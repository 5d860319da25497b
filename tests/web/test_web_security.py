"""Who gets in and who does not: strange hosts and origins, missing cookies, spoofed proxies, sizes,
roles route by route, and that what people type is repeated nowhere."""

import getpass
import logging
import socket
import ssl
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from earshift.store import Store
from earshift.store.accounts import FREE_BY_NAME, Accounts, csrf_token, sha256
from earshift.web import create_app
from earshift.web.security import BODY_BYTES, CONTENT_SECURITY_POLICY, UPLOAD_BYTES
from earshift.web.settings import Settings, ready_to_serve
from support.web import (
    ORIGIN,
    PASSWORD,
    Served,
    TestClient,
    client_of,
    make_certificate,
    nginx_program,
    sign_in,
    with_users,
)

CANARY = "Quetzalcoatl-Canary"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    db = str(tmp_path_factory.mktemp("clinic") / "store.db")
    with_users(db)
    return Settings(db=db)


@pytest.fixture
def clinic(settings: Settings) -> Iterator[TestClient]:
    """A client of a clinic with an admin and an examiner, not signed in."""
    with client_of(settings) as client:
        yield client


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[TestClient]:
    """A client of a single user's app, not launched. The launch token is "token"."""
    chosen = Settings(
        db=str(tmp_path / "store.db"), single_user=True, launch_sha256=sha256("token")
    )
    with client_of(chosen) as client:
        yield client


def launched(client: TestClient) -> dict[str, str]:
    told = client.get("/open?token=token", follow_redirects=False)
    assert (told.status_code, told.headers["location"]) == (303, "/")
    return {"Origin": ORIGIN, "X-CSRF-Token": client.get("/api/me").json()["csrf"]}


# Host and Origin


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.2", "", "localhost@evil", "[::2]:8400"],
)
def test_a_foreign_host_is_refused_everywhere(clinic: TestClient, host: str) -> None:
    for path in ("/api/health", "/api/me", "/", "/static/app.css", "/open"):
        told = clinic.get(path, headers={"Host": host})
        assert told.status_code == 400
        assert "host name" in told.json()["detail"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8400", "[::1]:8400"])
def test_this_machine_goes_by_several_names(clinic: TestClient, host: str) -> None:
    assert clinic.get("/api/health", headers={"Host": host}).status_code == 200


def test_an_allowed_host_is_answered_and_no_other(tmp_path: Path) -> None:
    db = str(tmp_path / "store.db")
    with client_of(Settings(db=db, allowed_hosts=("hearing.example.org",))) as client:
        for host, status in (("hearing.example.org:443", 200), ("example.org", 400)):
            assert client.get("/api/health", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "",
        "https://localhost:8400",
        "http://localhost:8401",
        "http://localhost",
        "http://localhost:8400.evil.example",
        "http://127.0.0.1:8400",
    ],
)
def test_a_foreign_origin_is_refused(clinic: TestClient, origin: str) -> None:
    headers = sign_in(clinic, "bob")
    for path, body in (("/api/logout", None), ("/api/login", {"name": "bob", "password": "x"})):
        told = clinic.post(path, json=body, headers=headers | {"Origin": origin})
        assert told.status_code == 403
        assert "another site" in told.json()["detail"]
    assert clinic.get("/api/me").status_code == 200  # nothing happened


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
def test_what_the_browser_calls_cross_site_is_refused(clinic: TestClient, site: str) -> None:
    headers = sign_in(clinic, "bob") | {"Sec-Fetch-Site": site}
    assert clinic.post("/api/logout", headers=headers).status_code == 403


def test_a_cookie_without_an_origin_is_refused_unless_the_browser_vouches(
    clinic: TestClient,
) -> None:
    csrf = {"X-CSRF-Token": sign_in(clinic, "bob")["X-CSRF-Token"]}
    assert clinic.post("/api/logout", headers=csrf).status_code == 403
    none = clinic.post("/api/logout", headers=csrf | {"Sec-Fetch-Site": "none"})
    assert none.status_code == 403
    same = clinic.post("/api/logout", headers=csrf | {"Sec-Fetch-Site": "same-origin"})
    assert same.status_code == 204


def test_the_csrf_token_is_needed_and_is_this_sessions(clinic: TestClient) -> None:
    headers = sign_in(clinic, "bob")
    for wrong in ("", "x", "é", headers["X-CSRF-Token"][:-1], csrf_token("another.session")):
        sent = {"Origin": ORIGIN, "X-CSRF-Token": wrong.encode()}
        assert clinic.post("/api/logout", headers=sent).status_code == 403
    assert clinic.post("/api/logout", headers={"Origin": ORIGIN}).status_code == 403
    assert clinic.post("/api/logout", headers=headers).status_code == 204
    assert clinic.get("/api/me").status_code == 401


# The single user


def test_nothing_answers_without_the_launch_cookie(alone: TestClient) -> None:
    paths = {path.replace("{", "").replace("}", "") for _, path in routes(alone.app)} - {"/open"}
    assert {"/api/health", "/api/openapi.json", "/api/me"} <= paths
    for path in [*paths, "/", "/static/app.css", "/listen", "/nothing-here"]:
        for method in ("GET", "POST"):
            told = alone.request(method, path, headers={"Origin": ORIGIN})
            assert told.status_code == 403, path
            assert "earshift serve" in told.text
    listener = {"Authorization": "Listener whatever"}
    assert alone.get("/api/listen", headers=listener).status_code == 403


def test_the_launch_token_works_once(alone: TestClient) -> None:
    assert alone.get("/open?token=wrong").status_code == 403
    assert alone.get("/open").status_code == 403
    headers = launched(alone)
    me = alone.get("/api/me").json()
    assert (me["single_user"], me["role"], me["name"]) == (True, "admin", "local user")
    alone.cookies.clear()
    assert alone.get("/open?token=token").status_code == 403
    assert alone.get("/api/me", headers=headers).status_code == 403


def test_a_launched_page_needs_its_csrf_token_and_origin_as_well(alone: TestClient) -> None:
    headers = launched(alone)
    assert alone.post("/api/logout", headers={"Origin": ORIGIN}).status_code == 403
    evil = headers | {"Origin": "http://evil.example"}
    assert alone.post("/api/logout", headers=evil).status_code == 403
    assert alone.post("/api/logout", headers=headers).status_code == 204
    assert alone.get("/api/me").status_code == 403


def test_a_new_account_ends_the_single_users_session(alone: TestClient) -> None:
    launched(alone)
    alone.app.state.accounts.add_user("ada", PASSWORD, role="admin", author="test")
    assert alone.get("/api/health").status_code == 403


def test_accounts_are_not_made_by_the_single_user(alone: TestClient) -> None:
    headers = launched(alone)
    new = {"name": "ada", "role": "admin", "password": PASSWORD}
    told = alone.post("/api/users", json=new, headers=headers)
    assert told.status_code == 409
    assert "earshift user add" in told.json()["detail"]
    assert not alone.app.state.accounts.any_users()
    assert alone.post("/api/tokens", json={"name": "x"}, headers=headers).status_code == 409
    login = {"name": "ada", "password": PASSWORD}
    assert alone.post("/api/login", json=login, headers=headers).status_code == 409


# Cookies and headers


def test_the_cookie_is_for_this_site_and_no_script(clinic: TestClient) -> None:
    told = clinic.post("/api/login", json={"name": "bob", "password": PASSWORD})
    cookie = told.headers["set-cookie"]
    assert cookie.startswith("earshift-8400=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie


def test_over_tls_the_cookie_is_secure_and_of_this_host(settings: Settings) -> None:
    chosen = Settings(db=settings.db, behind_proxy="127.0.0.1")
    with client_of(chosen, client=("127.0.0.1", 5)) as client:
        told = client.post("/api/login", json={"name": "bob", "password": PASSWORD})
        assert told.headers["set-cookie"].startswith("__Host-earshift=")
        assert told.headers["set-cookie"].endswith("; Secure")
        assert told.headers["strict-transport-security"]


def test_every_answer_carries_the_headers(clinic: TestClient) -> None:
    for told in (
        clinic.get("/api/health"),
        clinic.get("/api/me"),
        clinic.get("/nothing"),
        clinic.get("/api/health", headers={"Host": "evil.example"}),
        clinic.post("/api/login", content=b"{"),
    ):
        assert told.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert told.headers["x-content-type-options"] == "nosniff"
        assert told.headers["x-frame-options"] == "DENY"
        assert told.headers["referrer-policy"] == "no-referrer"
        assert told.headers["cache-control"] == "no-store"
        assert "server" not in told.headers
        assert "access-control-allow-origin" not in told.headers


def test_an_api_token_is_good_in_the_header_only(clinic: TestClient) -> None:
    headers = sign_in(clinic, "bob")
    made = clinic.post("/api/tokens", json={"name": "script", "days": 1}, headers=headers).json()
    clinic.cookies.clear()
    bearer = {"Authorization": f"Bearer {made['token']}"}
    me = clinic.get("/api/me", headers=bearer).json()
    assert (me["name"], me["role"], me["csrf"]) == ("bob", "examiner", None)
    for name in ("token", "access_token", "key"):
        assert clinic.get("/api/me", params={name: made["token"]}).status_code == 401
    clinic.cookies.set("earshift-8400", made["token"])
    assert clinic.get("/api/me").status_code == 401
    clinic.cookies.clear()
    for wrong in ("Bearer", "Bearer x", "Basic Zm9v", f"Listener {made['token']}", "é"):
        sent = {"Authorization": wrong.encode()}
        assert clinic.get("/api/me", headers=sent).status_code == 401
    # It cannot make more keys, and ends when it is revoked.
    assert clinic.post("/api/tokens", json={"name": "x"}, headers=bearer).status_code == 403
    assert clinic.delete(f"/api/tokens/{made['id']}", headers=bearer).status_code == 204
    assert clinic.get("/api/me", headers=bearer).status_code == 401


def test_an_examiner_sees_and_revokes_own_tokens_only(clinic: TestClient) -> None:
    headers = sign_in(clinic, "ada")
    theirs = clinic.post("/api/tokens", json={"name": "admin's"}, headers=headers).json()["id"]
    headers = sign_in(clinic, "bob")
    assert theirs not in [each["id"] for each in clinic.get("/api/tokens").json()]
    assert clinic.delete(f"/api/tokens/{theirs}", headers=headers).status_code == 404
    headers = sign_in(clinic, "ada")
    assert clinic.delete(f"/api/tokens/{theirs}", headers=headers).status_code == 204


def test_a_wrong_token_is_not_made_good_by_a_cookie(clinic: TestClient) -> None:
    sign_in(clinic, "bob")
    assert clinic.get("/api/me", headers={"Authorization": "Bearer x"}).status_code == 401


# Sessions and passwords over the wire


def test_a_session_expires_and_is_renewed_while_used(settings: Settings) -> None:
    now = datetime.now(UTC)
    with client_of(settings) as client:
        client.app.state.accounts = Accounts(client.app.state.store, lambda: now)
        headers = sign_in(client, "bob")
        first = client.cookies["earshift-8400"]
        for _ in range(3):
            now += timedelta(minutes=20)
            assert client.get("/api/me").status_code == 200
        assert client.cookies["earshift-8400"] != first
        assert client.get("/api/me").json()["csrf"] == headers["X-CSRF-Token"]
        now += timedelta(minutes=31)
        assert client.get("/api/me").status_code == 401
        headers = sign_in(client, "bob")
        for _ in range(36):
            now += timedelta(minutes=20)
            last = client.get("/api/me").status_code
        assert last == 401  # twelve hours


def test_guessing_is_answered_429_with_the_time_to_wait(tmp_path: Path) -> None:
    db = str(tmp_path / "store.db")
    with_users(db)
    now = datetime.now(UTC)
    with client_of(Settings(db=db)) as client:
        client.app.state.accounts = Accounts(client.app.state.store, lambda: now)
        wrong = {"name": "bob", "password": "wrong wrong wrong"}
        for _ in range(FREE_BY_NAME):
            assert client.post("/api/login", json=wrong).status_code == 401
        told = client.post("/api/login", json=wrong | {"password": PASSWORD})
        assert told.status_code == 429
        assert int(told.headers["retry-after"]) >= 1
        # What the client says about its address changes nothing.
        spoofed = {"X-Forwarded-For": "203.0.113.9", "Forwarded": "for=203.0.113.9"}
        for _ in range(3):
            assert client.post("/api/login", json=wrong, headers=spoofed).status_code == 429
        assert client.post("/api/login", json=wrong | {"name": "ada"}).status_code == 401


# Proxies


def test_what_a_client_says_about_a_proxy_is_not_believed(settings: Settings) -> None:
    spoofed = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example"}
    with client_of(settings, client=("203.0.113.5", 4)) as client:
        headers = sign_in(client, "bob") | spoofed | {"X-Forwarded-For": "127.0.0.1"}
        assert client.get("/api/me", headers=headers).status_code == 200
        # Had it been believed, this origin would be ours.
        https = headers | {"Origin": "https://localhost:8400"}
        assert client.post("/api/logout", headers=https).status_code == 403


def test_behind_a_proxy_nobody_else_is_answered(settings: Settings) -> None:
    chosen = Settings(db=settings.db, behind_proxy="192.0.2.0/28")
    forwarded = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"}
    peers = {"192.0.2.1": 200, "::ffff:192.0.2.1": 200, "192.0.2.99": 403, "::1": 403, "x": 403}
    for peer, status in peers.items():
        with client_of(chosen, client=(peer, 1)) as client:
            assert client.get("/api/health", headers=forwarded).status_code == status
    with client_of(chosen, client=("192.0.2.1", 1)) as client:
        http = forwarded | {"X-Forwarded-Proto": "http"}
        assert client.get("/api/health", headers=http).status_code == 403


def test_behind_a_proxy_the_address_it_saw_counts_and_not_what_it_was_told(tmp_path: Path) -> None:
    db = str(tmp_path / "store.db")
    with_users(db)
    chosen = Settings(db=db, behind_proxy="127.0.0.1")
    with client_of(chosen, client=("127.0.0.1", 1)) as client:
        body = {"name": "bob", "password": "wrong wrong wrong"}
        for told in ("203.0.113.1, 198.51.100.7", "198.51.100.7", "unknown"):
            sent = {"X-Forwarded-For": told, "X-Forwarded-Proto": "https"}
            client.post("/api/login", json=body, headers=sent)
    from sqlalchemy import select

    from earshift.store import tables as t

    with Store.open(db) as store, store.engine.connect() as connection:
        seen = connection.execute(select(t.login_attempts.c.address)).scalars().all()
    assert list(seen) == ["198.51.100.7", "198.51.100.7", "unknown"]


# Sizes and hostile input


def chunks(size: int) -> Iterator[bytes]:
    """A body of this size whose length nobody announces."""
    for start in range(0, size, 16_384):
        yield b"x" * min(16_384, size - start)


def test_a_body_too_large_is_refused_announced_or_not(clinic: TestClient) -> None:
    headers = sign_in(clinic, "ada")
    json = headers | {"Content-Type": "application/json"}
    for content in (b"x" * (BODY_BYTES + 1), chunks(BODY_BYTES + 1)):
        told = clinic.post("/api/users", content=content, headers=json)
        assert told.status_code == 413
        assert "64 KiB" in told.json()["detail"]
    for content in (b"x" * BODY_BYTES, chunks(BODY_BYTES)):
        assert clinic.post("/api/users", content=content, headers=json).status_code == 422
    upload = b"x" * (UPLOAD_BYTES + 1)
    assert clinic.post("/api/imports", content=upload, headers=headers).status_code == 413


@pytest.mark.parametrize(
    "headers",
    [
        [("Host", "localhost"), ("Host", "evil.example")],
        [("Host", "localhost"), ("Origin", ORIGIN), ("Origin", "http://evil.example")],
        [("Host", "localhost"), ("Content-Length", "5"), ("Content-Length", "50")],
        [("Host", "localhost"), ("Content-Length", "-1")],
        [("Host", "localhost"), ("Content-Length", "9" * 5000)],
        [("Host", "localhost"), ("Content-Length", "²")],
        [("Host", "localhost"), ("Cookie", "a=b"), ("Cookie", "earshift-8400=x")],
        [("Host", "\x00")],
        [],
    ],
)
@pytest.mark.anyio
async def test_hostile_headers_get_a_4xx(settings: Settings, headers: list[Any]) -> None:
    app, told = create_app(settings), []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/api/login",
        "raw_path": b"/api/login",
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8400),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        told.append(message)

    await app(scope, receive, send)
    assert 400 <= told[0]["status"] < 500
    app.state.store.close()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"name": "\\ud800", "password": "x"}',
        b'{"name": "a\\u0000b", "password": "x"}',
        b'{"name": ' + b"[" * 5000 + b"}",
        b'{"name": 1e999, "password": NaN}',
        b"\xff\xfe",
        b'{"name": "' + b"x" * 300 + b'", "password": "x"}',
    ],
)
def test_a_hostile_body_gets_a_4xx(clinic: TestClient, body: bytes) -> None:
    told = clinic.post("/api/login", content=body, headers={"Content-Type": "application/json"})
    assert 400 <= told.status_code < 500
    assert isinstance(told.json()["detail"], str)


def test_a_password_with_odd_characters_is_wrong_and_no_error(clinic: TestClient) -> None:
    for odd in ("\x00" * 12, "é" * 999, "\u202e" * 20):
        sent = {"name": "bob-" + "b" * 9, "password": odd}
        assert clinic.post("/api/login", json=sent).status_code in (401, 429)


def test_a_failure_inside_is_a_plain_500_without_its_text(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(settings)

    @app.get("/api/broken/{name}")
    def broken(name: str) -> None:
        raise RuntimeError(f"could not find {name}")

    with (
        caplog.at_level(logging.DEBUG),
        TestClient(app, base_url=ORIGIN, raise_server_exceptions=False) as client,
    ):
        told = client.get(f"/api/broken/{CANARY}")
    assert told.status_code == 500
    assert CANARY not in told.text
    ours = [line.getMessage() for line in caplog.records if not line.name.startswith("httpx")]
    assert any("RuntimeError at test_web_security.py" in line for line in ours)
    assert not any(CANARY in line for line in ours)


def test_errors_never_repeat_what_was_sent(
    clinic: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    headers = sign_in(clinic, "ada")
    with caplog.at_level(logging.DEBUG):
        answers = [
            clinic.get(f"/{CANARY}"),
            clinic.get(f"/api/{CANARY}?q={CANARY}"),
            clinic.request(CANARY.replace("-", ""), "/api/me", headers=headers),
            clinic.get(f"/api/audit?after={CANARY}"),
            clinic.get(f"/api/audit?{CANARY}=1&limit=-{CANARY}"),
            clinic.post("/api/login", json={"name": CANARY, "password": CANARY}),
            clinic.post("/api/login", json={CANARY: CANARY}),
            clinic.post("/api/login", json={"name": [CANARY], "password": {CANARY: 1}}),
            clinic.post("/api/login", content=CANARY.encode()),
            clinic.post(
                f"/api/users/{CANARY}/state",
                json={"reason": CANARY, "role": "admin"},
                headers=headers,
            ),
            clinic.post(
                "/api/users",
                json={"name": CANARY, "role": CANARY, "password": CANARY},
                headers=headers,
            ),
            clinic.post(
                "/api/users",
                json={"name": f"{CANARY} x", "role": "admin", "password": CANARY},
                headers=headers,
            ),
            clinic.delete(f"/api/tokens/{CANARY}", headers=headers),
            clinic.get("/api/me", headers={"Authorization": f"Bearer {CANARY}"}),
            clinic.get("/api/me", headers={"Host": CANARY}),
            clinic.post("/api/logout", headers={"Origin": CANARY, "X-CSRF-Token": CANARY}),
        ]
    for told in answers:
        assert 400 <= told.status_code < 500
        assert CANARY.lower() not in told.text.lower() + str(told.headers).lower()
        if "json" in told.headers["content-type"]:
            assert isinstance(told.json()["detail"], str)
    ours = [line.getMessage() for line in caplog.records if not line.name.startswith("httpx")]
    assert ours
    assert not any(CANARY.lower() in line.lower() for line in ours)


# Every route for every role

NOBODY, LISTENER = "nobody", "listener"
EXAMINER, REVIEWER, ADMIN = "examiner", "reviewer", "admin"
EVERYBODY = {NOBODY, LISTENER, EXAMINER, REVIEWER, ADMIN}
USERS = {EXAMINER, REVIEWER, ADMIN}
REVIEWERS = {REVIEWER, ADMIN}
CALLERS = {
    "GET /api/openapi.json": EVERYBODY,
    "GET /api/health": EVERYBODY,
    "GET /api/health/ready": EVERYBODY,
    "GET /open": EVERYBODY,
    "POST /api/login": EVERYBODY,
    "GET /api/me": USERS,
    "GET /api/tokens": USERS,
    "POST /api/tokens": USERS,
    "DELETE /api/tokens/{id}": USERS,
    "GET /api/users": {ADMIN},
    "POST /api/users": {ADMIN},
    "POST /api/users/{name}/state": {ADMIN},
    "GET /api/account": USERS,
    "POST /api/account/confirm": USERS,
    "POST /api/account/password": USERS,
    "POST /api/account/second-factor/offer": USERS,
    "POST /api/account/second-factor": USERS,
    "DELETE /api/account/second-factor": USERS,
    "GET /api/account/sessions": USERS,
    "DELETE /api/account/sessions/{id}": USERS,
    "GET /api/users/{name}/sessions": {ADMIN},
    "POST /api/users/{name}/sessions/end": {ADMIN},
    "POST /api/users/{name}/second-factor/reset": {ADMIN},
    "POST /api/users/{name}/pass": {ADMIN},
    "GET /account": USERS,
    "GET /api/audit": {ADMIN},
    "POST /api/people/search": USERS,
    "POST /api/people": USERS,
    "GET /api/people/{person}": USERS,
    "POST /api/people/{person}/correct": USERS,
    "POST /api/people/{person}/baseline": USERS,
    "GET /api/people/{person}/monitoring": USERS,
    "GET /api/people/{person}/comparison": USERS,
    "POST /api/devices/{device}/default": USERS,
    "POST /api/people/{person}/notes": USERS,
    "POST /api/people/{person}/audiograms": USERS,
    "POST /api/people/{person}/tests": USERS,
    "POST /api/imports": USERS,
    "GET /api/booths/live": USERS,
    "GET /api/export": USERS,
    "POST /api/imports/columns": USERS,
    "POST /api/imports/roster": USERS,
    "GET /api/worklist": USERS,
    "GET /api/worklist.csv": USERS,
    "GET /api/programme": USERS,
    "GET /api/programme.csv": USERS,
    "GET /api/settings": USERS,
    "POST /api/settings/{name}": {ADMIN},
    "POST /api/exams/{exam}/close": REVIEWERS,
    "POST /api/exams/{exam}/reopen": REVIEWERS,
    "GET /api/visits/{visit_id}/review": USERS,
    "GET /api/people/{person}/reviews": USERS,
    "POST /api/visits/{visit_id}/sign": REVIEWERS,
    "POST /api/exams/{exam}/work-related": REVIEWERS,
    "POST /api/visits/{visit_id}/follow-ups": USERS,
    "GET /api/visits/{visit_id}/letter.html": USERS,
    "GET /api/visits/{visit_id}/letter.pdf": USERS,
    "GET /api/rooms/noise": USERS,
    "POST /api/rooms/noise": USERS,
    "POST /api/checklist/cautions": USERS,
    "GET /visits/{handle}/review": USERS,
    "GET /rooms": USERS,
    "POST /api/people/{person}/merge": USERS,
    "POST /api/people/{person}/separate": USERS,
    "GET /api/rules": USERS,
    "GET /api/devices": USERS,
    "POST /api/devices": USERS,
    "GET /api/devices/{device}": USERS,
    "POST /api/devices/{device}/calibrations": USERS,
    "POST /api/devices/{device}/checks": USERS,
    "GET /api/devices/{device}/checks": USERS,
    "GET /api/devices/{device}/range": USERS,
    "POST /api/devices/{device}/checks/listeners": USERS,
    "POST /api/devices/{device}/checks/guided": USERS,
    "POST /api/devices/{device}/checks/guided/save": USERS,
    "GET /api/retspl": USERS,
    "GET /api/exams/{exam}": USERS,
    "GET /api/exams/{exam}/live": USERS,
    "POST /api/exams/{exam}/answer": USERS,
    "POST /api/exams/{exam}/ready": USERS,
    "POST /api/exams/{exam}/stop": USERS,
    "POST /api/exams/{exam}/undo": USERS,
    "POST /api/exams/{exam}/pause": USERS,
    "POST /api/exams/{exam}/resume": USERS,
    "POST /api/exams/{exam}/finish": USERS,
    "POST /api/exams/{exam}/abandon": USERS,
    "POST /api/exams/{exam}/retest": USERS,
    "POST /api/exams/{exam}/continue": USERS,
    "POST /api/visits/{visit_id}/link": USERS,
    "DELETE /api/visits/{visit_id}/link": USERS,
    "POST /api/visits/{visit_id}/release": USERS,
    "GET /api/visits/{visit_id}/report.html": USERS,
    "GET /api/visits/{visit_id}/report.pdf": USERS,
    "GET /api/try/choices": USERS,
    "POST /api/try": USERS,
    "GET /static": EVERYBODY,
    "GET /login": EVERYBODY,
    "GET /listen": EVERYBODY,
    "GET /": USERS,
    "GET /people/{handle}": USERS,
    "GET /people/{handle}/test": USERS,
    "GET /exams/{handle}": USERS,
    "GET /devices": USERS,
    "GET /worklist": USERS,
    "GET /programme": USERS,
    "GET /settings": USERS,
    "GET /devices/{handle}": USERS,
    "GET /devices/{handle}/check": USERS,
    "GET /import": USERS,
    "GET /booths": USERS,
    "GET /try": USERS,
    "GET /about": USERS,
    "GET /api/docs": USERS,
    "GET /users": {ADMIN},
    "GET /audit": {ADMIN},
    "GET /api/listen": {LISTENER},
    "POST /api/listen/ready": {LISTENER},
    "POST /api/listen/answer": {LISTENER},
    "POST /api/listen/press": {LISTENER},
    "POST /api/listen/stop": {LISTENER},
    "POST /api/logout": USERS,  # last: it ends the session that the others are called with
}


def routes(app: Any) -> list[tuple[str, str]]:
    """Method and path of everything the app answers; a mounted folder has the method GET."""
    assert isinstance(app, FastAPI)
    found = []
    for context in iter_route_contexts(app.routes):
        methods = (getattr(context, "methods", None) or {"GET"}) - {"HEAD"}
        found += [(method, str(context.path)) for method in sorted(methods)]
    return found


def test_the_table_of_callers_names_every_route(clinic: TestClient) -> None:
    found = [f"{method} {path}" for method, path in routes(clinic.app)]
    assert len(found) == len(set(found))
    assert set(found) == set(CALLERS), "say in CALLERS who may call a new route"


@pytest.fixture(scope="module")
def link(settings: Settings) -> str:
    """A listener's token."""
    with Store.open(settings.db) as store:
        person = store.add_person(author="test", code="listener")
        visit = store.open_visit(person.id, author="test", zone="UTC", mode="supervised")
        exam = store.open_exam(
            visit.id, author="test", ear="right", kind="exam", design={}, engine_version="test"
        )
        return Accounts(store).make_link(visit.id, [exam.id], "test")


@pytest.mark.parametrize("role", sorted(EVERYBODY))
def test_every_route_lets_in_whom_it_should(clinic: TestClient, link: str, role: str) -> None:
    headers = {"Origin": ORIGIN}
    if role in USERS:
        headers = sign_in(clinic, {ADMIN: "ada", REVIEWER: "rea", EXAMINER: "bob"}[role])
    elif role == LISTENER:
        headers["Authorization"] = f"Listener {link}"
    for route, allowed in CALLERS.items():
        method, _, path = route.partition(" ")
        filled = path.replace("{", "no-such-").replace("}", "")
        told = clinic.request(method, filled, headers=headers, follow_redirects=False)
        sent_away = told.headers.get("location", "").startswith("/login")  # from a page
        refused = sent_away or told.status_code in (401, 403)
        assert refused == (role not in allowed), f"{route} for {role}: {told.status_code}"
        if refused:
            known_but_too_little = role in (EXAMINER, REVIEWER) and ADMIN in allowed
            assert (told.status_code == 403) == known_but_too_little


def test_a_refused_role_and_every_sign_in_is_in_the_audit(clinic: TestClient) -> None:
    with Store.open(clinic.app.state.settings.db) as store:
        before = store.audit(limit=100_000)[-1].id
    headers = sign_in(clinic, "bob")
    assert clinic.get("/api/users").status_code == 403
    clinic.post("/api/logout", headers=headers)
    clinic.post("/api/login", json={"name": "bob", "password": "wrong wrong wrong"})
    sign_in(clinic, "ada")
    assert clinic.get("/api/users").status_code == 200
    page = clinic.get("/api/audit", params={"after": before, "limit": 500}).json()
    told = [(line["author"], line["action"], line["subject"]) for line in page["entries"]]
    for line in (
        ("bob", "sign in", "users:2"),
        ("bob", "refused", "GET /api/users"),
        ("nobody", "sign-in refused", "users:2"),
        ("ada", "view", "users"),
    ):
        assert line in told
    assert any(author == "bob" and action == "sign out" for author, action, _ in told)
    assert page["next"] is None


def test_the_audit_comes_page_by_page(clinic: TestClient) -> None:
    sign_in(clinic, "ada")
    first = clinic.get("/api/audit", params={"limit": 2}).json()
    assert [line["id"] for line in first["entries"]] == [1, 2]
    assert first["next"] == 2
    second = clinic.get("/api/audit", params={"after": 2, "limit": 2}).json()
    assert [line["id"] for line in second["entries"]] == [3, 4]


def test_an_admin_looks_after_users(tmp_path: Path) -> None:
    db = str(tmp_path / "store.db")
    with_users(db)
    with client_of(Settings(db=db)) as client:
        headers = sign_in(client, "ada")
        new = {"name": "Zoe", "role": "examiner", "password": PASSWORD}
        assert client.post("/api/users", json=new, headers=headers).status_code == 201
        assert client.post("/api/users", json=new, headers=headers).status_code == 409
        off = {"state": "disabled", "reason": "left"}
        assert client.post("/api/users/zoe/state", json=off, headers=headers).status_code == 200
        last = client.post("/api/users/ada/state", json=off, headers=headers)
        assert last.status_code == 409
        assert "last active admin" in last.json()["detail"]
        names = {each["name"]: each["state"] for each in client.get("/api/users").json()}
        assert names == {"ada": "active", "bob": "active", "rea": "active", "zoe": "disabled"}
        short = {"password": "short", "reason": "x"}
        told = client.post("/api/users/bob/state", json=short, headers=headers)
        assert told.status_code == 409
        assert "12 to 256" in told.json()["detail"]


# Refusals before start


@pytest.mark.parametrize(
    ("values", "is_file", "words"),
    [
        ({"host": "0.0.0.0"}, True, "unencrypted"),
        ({"host": "::"}, True, "unencrypted"),
        ({"host": "clinic.example"}, True, "unencrypted"),
        ({"behind_proxy": "127.0.0.1"}, True, "no account"),
        ({"host": "0.0.0.0", "behind_proxy": "10.0.0.1"}, True, "no account"),
        ({"workers": 2}, True, "no account"),
        ({"allowed_hosts": ("a.example",)}, True, "no account"),
        ({}, False, "no account"),
    ],
)
def test_without_accounts_it_is_for_one_person_on_this_machine(
    store: Store, values: dict[str, Any], is_file: bool, words: str
) -> None:
    chosen = Settings(launch_sha256="x", **values)
    with pytest.raises(ValueError, match=words):
        ready_to_serve(chosen, Accounts(store), is_file=is_file)


def test_with_accounts_an_admin_has_to_be_there(store: Store) -> None:
    accounts = Accounts(store)
    assert ready_to_serve(Settings(launch_sha256="x"), accounts, is_file=True).single_user
    accounts.add_user("ada", PASSWORD, role="admin", author="test")
    chosen = ready_to_serve(Settings(launch_sha256="x"), accounts, is_file=True)
    assert (chosen.single_user, chosen.launch_sha256) == (False, None)
    open_to_all = Settings(host="0.0.0.0")
    with pytest.raises(ValueError, match="unencrypted"):
        ready_to_serve(open_to_all, accounts, is_file=True)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"port": 70000}, "0 .* to 65535"),
        ({"workers": 0}, "at least one worker"),
        ({"certificate": "a.pem"}, "both"),
        ({"certificate": "no.pem", "key": "no.key"}, "no file"),
        ({"behind_proxy": "proxy.example"}, "IP address"),
        ({"allowed_hosts": ("a.example:443",)}, "without a port"),
        ({"allowed_hosts": ("*",)}, "without a port"),
        ({"single_user": True}, "launch"),
    ],
)
def test_settings_that_cannot_be_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Settings(**values)


# A real server behind a real nginx


class Nginx:
    """nginx with the site of docs/nginx.conf, run by the current user in a new folder."""

    def __init__(self, folder: Path, app_address: str) -> None:
        self.folder = folder
        self.certificate, key = make_certificate(folder)
        self.port, http_port = free_port(), free_port()
        site = (ROOT / "docs" / "nginx.conf").read_text()
        for documented, here in {
            "listen 80;": f"listen 127.0.0.1:{http_port};",
            "listen 443 ssl;": f"listen 127.0.0.1:{self.port} ssl;",
            "/etc/ssl/earshift/certificate.pem": str(self.certificate),
            "/etc/ssl/earshift/key.pem": str(key),
            "/var/log/nginx/": f"{folder}/",
            "http://127.0.0.1:8400": app_address,
        }.items():
            assert documented in site
            site = site.replace(documented, here)
        self.http = f"http://127.0.0.1:{http_port}"
        temporary = "".join(
            f"{kind}_temp_path {folder}/{kind};\n"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (folder / "site.conf").write_text(site)
        # Its workers must be able to write here; only root may, and has to, say who they are.
        user = "user root; " if getpass.getuser() == "root" else ""
        (folder / "nginx.conf").write_text(
            f"{user}daemon off; pid {folder}/pid; error_log {folder}/error.log;\n"
            f"events {{}}\nhttp {{ access_log off; {temporary} include {folder}/site.conf; }}\n"
        )
        with (folder / "stderr.log").open("wb") as stderr:
            self.process = subprocess.Popen(
                [nginx_program(), "-p", str(folder), "-c", str(folder / "nginx.conf")],
                stderr=stderr,
                start_new_session=True,
            )

    def client(self, host: str = "localhost") -> httpx.Client:
        trust = ssl.create_default_context(cafile=str(self.certificate))
        headers = {} if host == "localhost" else {"Host": f"{host}:{self.port}"}
        return httpx.Client(
            base_url=f"https://localhost:{self.port}", verify=trust, headers=headers, timeout=60
        )

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)

    def logs(self) -> str:
        return "".join(file.read_text() for file in self.folder.glob("*.log"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def behind_nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Nginx]]:
    nginx_program()
    folder = tmp_path_factory.mktemp("proxy")
    with_users(str(folder / "store.db"))
    arguments = ["--db", "store.db", "--port", "0", "--behind-proxy", "127.0.0.1", "--workers", "2"]
    with Served(folder, *arguments, "--allowed-host", "hearing.example.org") as server:
        nginx = Nginx(folder, server.address)
        try:
            with nginx.client() as client:
                wait_until_it_answers(client)
            yield server, nginx
        finally:
            nginx.stop()


def wait_until_it_answers(client: httpx.Client) -> None:
    import time

    for _ in range(1200):
        try:
            if client.get("/api/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("no answer through nginx")


@pytest.mark.parametrize("host", ["localhost", "hearing.example.org"])
def test_signing_in_through_nginx(behind_nginx: tuple[Served, Nginx], host: str) -> None:
    _, nginx = behind_nginx
    origin = f"https://{host}:{nginx.port}"
    with nginx.client(host) as client:
        told = client.post(
            "/api/login", json={"name": "bob", "password": PASSWORD}, headers={"Origin": origin}
        )
        assert told.status_code == 200, told.text
        cookie = told.headers["set-cookie"]
        assert cookie.startswith("__Host-earshift=")
        assert "; Secure" in cookie
        sent = {
            "Cookie": cookie.partition(";")[0],
            "Origin": origin,
            "X-CSRF-Token": told.json()["csrf"],
        }
        client.cookies.clear()
        for _ in range(6):  # whichever worker answers
            assert client.get("/api/me", headers=sent).status_code == 200
        http = sent | {"Origin": origin.replace("https", "http")}
        assert client.post("/api/logout", headers=http).status_code == 403
        assert client.post("/api/logout", headers=sent).status_code == 204
        for _ in range(6):
            assert client.get("/api/me", headers=sent).status_code == 401


def test_nginx_passes_no_foreign_host_origin_or_size(behind_nginx: tuple[Served, Nginx]) -> None:
    _, nginx = behind_nginx
    with nginx.client("evil.example") as client:
        assert client.get("/api/health").status_code == 400
    with nginx.client() as client:
        evil = {"Origin": "https://evil.example"}
        told = client.post("/api/login", json={"name": "bob", "password": PASSWORD}, headers=evil)
        assert told.status_code == 403
        announced = client.post("/api/login", content=b"x" * (BODY_BYTES + 1))
        assert announced.status_code == 413
        assert client.post("/api/login", content=chunks(BODY_BYTES + 1)).status_code == 413
        assert client.post("/api/imports", content=b"x" * (UPLOAD_BYTES + 1)).status_code == 413


def test_nobody_goes_round_nginx_or_spoofs_an_address(
    behind_nginx: tuple[Served, Nginx],
) -> None:
    server, nginx = behind_nginx
    # Straight to the app, as the proxy's own machine is allowed to, but not without TLS.
    straight = httpx.get(
        f"{server.address}/api/health", headers={"X-Forwarded-Proto": "http"}, timeout=60
    )
    assert straight.status_code == 403
    plain = httpx.get(f"{nginx.http}/api/me", headers={"Host": "hearing.example.org"}, timeout=60)
    assert plain.status_code == 301
    assert plain.headers["location"] == "https://hearing.example.org/api/me"
    with nginx.client() as client:
        spoofed = {"X-Forwarded-For": "203.0.113.77", "X-Forwarded-Proto": "http"}
        body = {"name": "carol", "password": "wrong wrong wrong"}
        assert client.post("/api/login", json=body, headers=spoofed).status_code == 401
    from sqlalchemy import select

    from earshift.store import tables as t

    db = nginx.folder / "store.db"
    with Store.open(db) as store, store.engine.connect() as connection:
        seen = set(connection.execute(select(t.login_attempts.c.address)).scalars())
    assert seen == {"127.0.0.1"}


def signed_in(client: httpx.Client, nginx: Nginx) -> dict[str, str]:
    """The headers of a page of bob's; the cookie goes with them, as the host may be another."""
    origin = f"https://localhost:{nginx.port}"
    headers = sign_in(client, "bob", origin)
    cookie = client.cookies["__Host-earshift"]
    client.cookies.clear()
    return headers | {"Cookie": f"__Host-earshift={cookie}"}


def test_the_workers_count_wrong_passwords_together(behind_nginx: tuple[Served, Nginx]) -> None:
    _, nginx = behind_nginx
    with nginx.client() as client:
        told = []
        while 429 not in told and len(told) < 3 * FREE_BY_NAME:
            body = {"name": "dora", "password": "wrong wrong wrong"}
            answer = client.post("/api/login", json=body)
            told.append(answer.status_code)
    assert told[:FREE_BY_NAME] == [401] * FREE_BY_NAME
    assert told[-1] == 429
    assert int(answer.headers["retry-after"]) >= 1


def test_a_canary_is_in_no_log_of_server_or_nginx(behind_nginx: tuple[Served, Nginx]) -> None:
    server, nginx = behind_nginx
    with nginx.client() as client:
        headers = signed_in(client, nginx)
        new = {"name": CANARY, "code": CANARY, "birth_date": "1980-02-03"}
        told = client.post("/api/people", json=new, headers=headers)
        assert told.status_code == 201, told.text
        person = told.json()["id"]
        found = client.post("/api/people/search", json={"text": CANARY}, headers=headers).json()
        assert [each["name"] for each in found["people"]] == [CANARY]
        note = {"text": f"{CANARY} called"}
        assert client.post(f"/api/people/{person}/notes", json=note, headers=headers).is_success
        assert client.get(f"/api/people/{person}", headers=headers).json()["name"] == CANARY
        assert client.post("/api/people", json=new, headers=headers).status_code == 409
        client.post("/api/login", json={"name": CANARY, "password": CANARY})
        client.get(f"/api/audit?after={CANARY}")
        client.get(f"/{CANARY}?name={CANARY}", headers={"Referer": f"https://x/{CANARY}"})
        client.post(f"/api/users/{CANARY}/state", content=CANARY.encode())
        client.get("/api/me", headers={"Authorization": f"Bearer {CANARY}"})
        client.get("/api/me", headers={"Cookie": f"__Host-earshift={CANARY}"})
    logged = server.log_text() + nginx.logs()
    assert "POST /api/login 401" in logged
    assert "POST /api/people/search 200" in logged
    for secret in (CANARY, PASSWORD, headers["X-CSRF-Token"], headers["Cookie"].partition("=")[2]):
        assert secret.lower() not in logged.lower()
        assert secret.lower() not in "".join(server.said).lower()
