"""Accounts over the wire and in a real browser: a first password, a second factor, sessions, the
password typed again, known browsers and passes."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyotp
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from test_web_security import CALLERS, LISTENER, NOBODY

from earshift.store import Store
from earshift.store.accounts import FREE_BY_NAME, Accounts, sha256
from earshift.web import create_app
from earshift.web.identity import REACHED, browser_words
from earshift.web.settings import Settings
from support.browser import served
from support.web import ORIGIN, PASSWORD, TestClient, client_of, sign_in, with_users

OTHER = "staple and twelve more"
SIZES = ({"width": 360, "height": 740}, {"width": 1280, "height": 900})


class Clinic:
    """A client of an app whose clock a test sets."""

    def __init__(self, client: TestClient) -> None:
        self.client, self.now = client, datetime.now(UTC)
        self.accounts = Accounts(client.app.state.store, lambda: self.now)  # type: ignore[attr-defined]
        client.app.state.accounts = self.accounts  # type: ignore[attr-defined]
        self.headers: dict[str, str] = {"Origin": ORIGIN}

    def sign_in(self, name: str) -> None:
        self.client.cookies.delete("earshift-8400")
        self.headers = sign_in(self.client, name)

    def call(self, method: str, path: str, status: int, **body: Any) -> Any:
        sent = {"json": body} if method == "POST" else {}
        told = self.client.request(method, f"/api{path}", headers=self.headers, **sent)
        assert told.status_code == status, told.text
        return told.json() if told.content else None

    def post(self, path: str, status: int, **body: Any) -> Any:
        return self.call("POST", path, status, **body)

    def enrol(self) -> tuple[pyotp.TOTP, list[str]]:
        offer = self.post("/account/second-factor/offer", 200)
        app = pyotp.TOTP(offer["secret"])
        taken = {"secret": offer["secret"], "proof": offer["proof"], "code": app.at(self.now)}
        codes = self.post("/account/second-factor", 201, **taken)["codes"]
        self.now += timedelta(minutes=1)
        return app, codes


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[Clinic]:
    db = str(tmp_path / "store.db")
    with_users(db)
    with client_of(Settings(db=db), follow_redirects=False) as client:
        yield Clinic(client)


# A first password


def test_until_a_first_password_is_changed_nothing_else_is_reached(clinic: Clinic) -> None:
    clinic.accounts.add_user("cleo", PASSWORD, role="admin", author="ada")
    clinic.sign_in("cleo")
    assert clinic.client.get("/api/me").json()["first"] == "password"
    for route, allowed in CALLERS.items():
        method, _, path = route.partition(" ")
        if allowed & {NOBODY, LISTENER} or path in REACHED["password"]:
            continue
        filled = path.replace("{", "x-").replace("}", "")
        told = clinic.client.request(method, filled, headers=clinic.headers)
        if path.startswith("/api/") and path != "/api/docs":
            assert (told.status_code, told.json().get("code")) == (403, "first password"), route
        else:
            assert (told.status_code, told.headers["location"]) == (303, "/account"), route
    assert clinic.client.get("/account").status_code == 200
    clinic.post("/account/password", 403, password=OTHER, new_password=OTHER)
    again = clinic.post("/account/password", 409, password=PASSWORD, new_password=PASSWORD)
    assert "the old one" in again["detail"]
    me = clinic.post("/account/password", 200, password=PASSWORD, new_password=OTHER)
    assert me["first"] is None
    assert clinic.client.get("/").status_code == 200
    assert clinic.client.get("/api/users").status_code == 200


def test_a_password_that_an_admin_sets_is_a_first_one(clinic: Clinic) -> None:
    clinic.sign_in("ada")
    clinic.post("/users/bob/state", 200, password=OTHER, reason="forgotten")
    new = {"name": "cleo", "role": "examiner", "password": OTHER}
    assert clinic.post("/users", 201, **new)["temporary"]
    for name in ("bob", "cleo"):
        told = clinic.client.post(
            "/api/login", json={"name": name, "password": OTHER}, headers={"Origin": ORIGIN}
        )
        assert told.json()["first"] == "password"


# A second factor


def test_a_second_factor_from_the_qr_code_to_the_recovery_code(clinic: Clinic) -> None:
    clinic.sign_in("bob")
    assert clinic.call("GET", "/account", 200)["second_factor"] is False
    app, recovery = clinic.enrol()
    shown = clinic.call("GET", "/account", 200)
    assert (shown["second_factor"], shown["recovery_codes_left"]) == (True, 10)
    login = {"name": "bob", "password": PASSWORD}
    clinic.headers = {"Origin": ORIGIN}
    assert clinic.post("/login", 403, **login)["code"] == "second-factor"
    assert clinic.post("/login", 403, **login, code="000000")["code"] == "wrong-code"
    # Wrong passwords and names that nobody has are told alike, with and without a code.
    wrong = [
        clinic.post("/login", 401, **login | {"password": OTHER}),
        clinic.post("/login", 401, **login | {"password": OTHER}, code=app.at(clinic.now)),
        clinic.post("/login", 401, name="nobody-here", password=PASSWORD, code="000000"),
    ]
    assert len({str(one) for one in wrong}) == 1
    code = app.at(clinic.now)
    assert clinic.post("/login", 200, **login, code=code)["second_factor"]
    assert "used already" in clinic.post("/login", 403, **login, code=code)["detail"]
    assert clinic.post("/login", 200, **login, code=recovery[0])["second_factor"]
    assert clinic.call("GET", "/account", 200)["recovery_codes_left"] == 9


def test_where_the_site_asks_for_it_an_admin_sets_it_up_first(clinic: Clinic) -> None:
    clinic.sign_in("ada")
    clinic.post("/settings/admin_second_factor", 200, value=True, reason="policy")
    assert clinic.client.get("/api/users").json()["code"] == "first second factor"
    assert clinic.client.get("/").headers["location"] == "/account"
    clinic.enrol()
    assert clinic.client.get("/api/users").status_code == 200
    told = clinic.call("DELETE", "/account/second-factor", 409)
    assert "administrators need a second factor" in told["detail"]
    clinic.sign_in("bob")  # is no administrator
    assert clinic.client.get("/").status_code == 200


def test_an_admin_resets_a_second_factor_and_the_audit_says_so(clinic: Clinic) -> None:
    clinic.sign_in("bob")
    clinic.enrol()
    theirs = clinic.client.cookies["earshift-8400"]
    clinic.sign_in("ada")
    assert (
        clinic.post("/users/bob/second-factor/reset", 200, reason="lost")["second_factor"] is False
    )
    clinic.post("/users/bob/second-factor/reset", 409, reason="lost")
    assert clinic.accounts.session(theirs) is None
    entries = clinic.client.get("/api/audit?newest_first=true").json()["entries"]
    reset = [one for one in entries if one["subject"].startswith("second_factors")]
    assert (reset[0]["author"], reset[0]["reason"]) == ("ada", "lost")
    clinic.sign_in("bob")


# The password again


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/users", {"name": "cleo", "role": "examiner", "password": OTHER}),
        ("POST", "/users/bob/state", {"role": "admin", "reason": "test"}),
        ("POST", "/users/bob/second-factor/reset", {"reason": "test"}),
        ("POST", "/users/bob/pass", {}),
        ("POST", "/tokens", {"name": "script"}),
        ("DELETE", "/tokens/some", {}),
        ("POST", "/account/second-factor/offer", {}),
        ("DELETE", "/account/second-factor", {}),
    ],
)
def test_what_changes_users_tokens_and_roles_needs_the_password_again(
    clinic: Clinic, method: str, path: str, body: dict[str, Any]
) -> None:
    clinic.sign_in("ada")
    clinic.now += timedelta(minutes=6)
    assert clinic.call(method, path, 403, **body)["code"] == "password-again"
    assert clinic.post("/account/confirm", 403, password=OTHER)["code"] == "wrong-password"
    assert clinic.call(method, path, 403, **body)["code"] == "password-again"
    clinic.post("/account/confirm", 204, password=PASSWORD)
    told = clinic.client.request(
        method, f"/api{path}", headers=clinic.headers, **({"json": body} if body else {})
    )
    assert told.status_code in (200, 201, 404, 409), told.text
    clinic.now += timedelta(minutes=6)
    assert clinic.call(method, path, 403, **body)["code"] == "password-again"


# Sessions


def test_own_sessions_are_listed_and_ended_and_an_admin_ends_anybodys(clinic: Clinic) -> None:
    clinic.client.headers["User-Agent"] = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"
    clinic.sign_in("bob")
    first = dict(clinic.client.cookies)
    clinic.sign_in("bob")
    shown = clinic.call("GET", "/account/sessions", 200)
    assert [one["current"] for one in shown] == [True, False]
    assert {one["browser"] for one in shown} == {"Firefox on Linux"}
    assert not set(first.values()) & set(str(shown))
    clinic.call("DELETE", f"/account/sessions/{shown[1]['id']}", 204)
    assert clinic.accounts.session(first["earshift-8400"]) is None
    clinic.call("DELETE", f"/account/sessions/{shown[1]['id']}", 404)
    mine = clinic.client.cookies["earshift-8400"]
    clinic.call("GET", "/users/ada/sessions", 403)
    clinic.sign_in("ada")
    clinic.call("DELETE", f"/account/sessions/{shown[0]['id']}", 404)  # not one of mine
    assert len(clinic.call("GET", "/users/bob/sessions", 200)) == 1
    clinic.post("/users/bob/sessions/end", 204, reason="left a page open")
    assert clinic.accounts.session(mine) is None
    clinic.call("GET", "/users/nobody-here/sessions", 404)


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/140 Safari/537.36 Edg/140", "Edge on Windows"),
        ("Mozilla/5.0 (iPad; CPU OS 18_0 like Mac OS X) Safari/604.1", "Safari on iPad"),
        ("<script>alert(1)</script>", "another program"),
        ("", "another program"),
    ],
)
def test_a_browser_is_named_in_our_own_words(agent: str, words: str) -> None:
    assert browser_words(agent) == words


# Throttling


def test_a_known_browser_and_a_pass_get_by_who_is_guessed_at(clinic: Clinic) -> None:
    clinic.sign_in("bob")
    known = clinic.client.cookies["earshift-8400-known"]
    clinic.client.cookies.clear()
    clinic.headers = {"Origin": ORIGIN}
    wrong = {"name": "bob", "password": "wrong wrong wrong"}
    for _ in range(FREE_BY_NAME):
        clinic.post("/login", 401, **wrong)
    told = clinic.post("/login", 429, **wrong | {"password": PASSWORD})
    assert told["code"] == "throttled"
    assert re.search(r"try again in \d+ (second|minute)", told["detail"])
    clinic.client.cookies.set("earshift-8400-known", known)
    clinic.post("/login", 200, **wrong | {"password": PASSWORD})
    clinic.client.cookies.clear()
    clinic.sign_in("ada")
    made = clinic.post("/users/bob/pass", 201)
    clinic.client.cookies.clear()
    clinic.headers = {"Origin": ORIGIN}
    clinic.post("/login", 429, **wrong | {"password": PASSWORD})
    clinic.post("/login", 200, **wrong | {"password": PASSWORD}, admin_pass=made["code"])


def test_the_cookie_of_a_known_browser_is_for_no_script_and_lasts(clinic: Clinic) -> None:
    told = clinic.client.post("/api/login", json={"name": "bob", "password": PASSWORD})
    (cookie,) = [
        one for one in told.headers.get_list("set-cookie") if one.startswith("earshift-8400-known=")
    ]
    parts = set(cookie.split("; "))
    assert {"HttpOnly", "SameSite=Strict", "Path=/", f"Max-Age={180 * 24 * 3600}"} <= parts
    # It opens nothing by itself.
    clinic.client.cookies.delete("earshift-8400")
    assert clinic.client.get("/api/me").status_code == 401


def test_of_two_forwarded_headers_the_last_one_counts(tmp_path: Path) -> None:
    db = str(tmp_path / "store.db")
    with_users(db)
    with client_of(Settings(db=db, behind_proxy="127.0.0.1"), client=("127.0.0.1", 5)) as client:
        headers = [
            ("X-Forwarded-For", "192.0.2.1"),
            ("X-Forwarded-For", "198.51.100.1, 203.0.113.7"),
        ]
        body = {"name": "bob", "password": PASSWORD}
        assert client.post("/api/login", json=body, headers=headers).status_code == 200
        (session,) = client.app.state.accounts.sessions("bob")  # type: ignore[attr-defined]
        assert session.address == "203.0.113.7"
        twice = [("X-Forwarded-Proto", "https"), ("X-Forwarded-Proto", "http")]
        assert client.get("/api/health", headers=twice).status_code == 400


# A single user


def test_a_single_user_comes_from_a_file_and_has_no_account(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "own.db"), single_user=True, launch_sha256=sha256("once"))
    with client_of(settings, follow_redirects=False) as client:
        told = client.get("/open?token=once", headers={"Sec-Fetch-Site": "cross-site"})
        assert told.status_code == 200  # a redirect would lose the cookie
        assert 'url=/"' in told.text
        assert client.get("/api/account").status_code == 409
        assert 'href="/account"' not in client.get("/").text


# In a browser


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    db = str(tmp_path / "clinic.db")
    with_users(db)
    with Store.open(db) as store:
        Accounts(store).add_user("cleo", PASSWORD, role="admin", author="ada")
    with served(create_app(Settings(db=db))) as address:
        yield address


def look(page: Page) -> None:
    """Nothing serious for axe and nothing wider than the screen, at both sizes, light and dark."""
    too_wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    for size in SIZES:
        page.set_viewport_size(size)  # type: ignore[arg-type]
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
            assert page.evaluate(too_wide) <= 0
            found = Axe().run(page).response["violations"]
            serious = [one for one in found if one["impact"] in ("serious", "critical")]
            assert not serious, [(one["id"], one["nodes"][0]["html"]) for one in serious]


def enter(page: Page, name: str, password: str = PASSWORD) -> None:
    page.get_by_label("User name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def test_a_first_day_with_password_and_second_factor(page: Page, address: str) -> None:
    page.goto(f"{address}/users")
    enter(page, "cleo")
    expect(page).to_have_url(f"{address}/account")
    expect(page.locator("#first")).to_contain_text("Choose your own")
    expect(page.locator("#factor-card")).to_be_hidden()
    look(page)
    page.get_by_label("Current password").fill(PASSWORD)
    page.get_by_label("New password", exact=True).fill(OTHER)
    page.get_by_label("New password again").fill(f"{OTHER}!")
    page.get_by_role("button", name="Change password").click()
    expect(page.locator("#problem p")).to_have_count(0)  # the browser itself says that they differ
    page.get_by_label("New password again").fill(OTHER)
    page.get_by_role("button", name="Change password").click()
    expect(page).to_have_url(f"{address}/")
    page.goto(f"{address}/account")
    page.get_by_role("button", name="Set up").click()
    expect(page.get_by_label("Code from the app")).to_be_focused()  # the key is there
    secret = (page.locator("#secret").text_content() or "").replace(" ", "")
    app = pyotp.TOTP(secret)
    look(page)
    page.get_by_label("Code from the app").fill("000000")
    page.get_by_role("button", name="Turn on").click()
    expect(page.locator("#problem")).to_contain_text("wrong")
    page.get_by_label("Code from the app").fill(app.now())
    page.get_by_role("button", name="Turn on").click()
    codes = page.locator("#codes code")
    expect(codes).to_have_count(10)
    recovery = codes.first.text_content() or ""
    look(page)
    page.get_by_role("button", name="I have written them down").click()
    expect(page.locator("#factor-state")).to_contain_text("Recovery codes left: 10")
    page.get_by_role("button", name="Sign out", exact=True).click()
    expect(page).to_have_url(f"{address}/login")
    enter(page, "cleo", OTHER)
    expect(page.get_by_label("Code of your second factor")).to_be_focused()
    look(page)
    page.get_by_label("Code of your second factor").fill(recovery)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{address}/")


def test_the_dialog_asks_for_the_password_and_does_what_was_wanted(
    page: Page, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("earshift.store.accounts.sessions.Sessions.confirmed", lambda *_: False)
    page.goto(f"{address}/account")
    enter(page, "ada")
    page.get_by_label("Purpose").fill("export")
    page.get_by_role("button", name="Create token").click()
    dialog = page.get_by_role("dialog", name="Confirm that it is you")
    expect(dialog).to_be_visible()
    look(page)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.locator("#tokens code")).to_have_count(0)
    expect(page.get_by_label("Purpose")).to_have_value("export")  # nothing is lost
    page.get_by_role("button", name="Create token").click()
    page.get_by_label("Your password").fill(OTHER)
    page.get_by_role("button", name="Continue").click()
    expect(dialog).to_contain_text("this is not your password")
    monkeypatch.undo()
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_role("button", name="Continue").click()
    expect(page.locator("#tokens code")).not_to_be_empty()


def test_who_has_to_wait_comes_in_by_a_pass_of_an_admin(
    page: Page, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first wait is a second, which may be over before this browser is ready again.
    monkeypatch.setattr(
        "earshift.store.accounts.attempts.Attempts._wait",
        lambda _self, _connection, too_many, _which: timedelta(minutes=too_many >= 0),
    )
    page.goto(f"{address}/users")
    enter(page, "ada")
    page.get_by_role("button", name="Change bob").click()
    expect(page.locator("#sessions")).to_contain_text("Not signed in")
    page.get_by_role("button", name="Give a pass").click()
    given = page.locator("#pass code").text_content() or ""
    look(page)
    page.get_by_role("button", name="Sign out", exact=True).click()
    expect(page).to_have_url(f"{address}/login")
    for _ in range(FREE_BY_NAME + 1):
        enter(page, "bob", "wrong wrong wrong")
        expect(page.locator("#problem p")).to_have_count(1)
        page.locator("#problem .close").click()
    enter(page, "bob")
    page.get_by_label("Pass from an administrator").fill(given)
    look(page)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{address}/")
