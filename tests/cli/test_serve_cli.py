"""`earshift serve`, `user` and `token` from the shell: what it refuses, how it starts and stops."""

import json
import re
import signal
import socket
import sqlite3
import ssl
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from earshift.cli import app
from earshift.store import Store
from support.web import PASSWORD, Served, make_certificate, with_users

runner = CliRunner()


def run(*arguments: str, typed: str | None = None) -> tuple[int, str, str]:
    done = runner.invoke(app, list(arguments), input=typed)
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


# Refusals to start


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "--certificate and --key"),
        (
            ["--host", "0.0.0.0", "--behind-proxy", "10.0.0.1"],
            "earshift user add NAME --role admin",
        ),
        (["--workers", "2"], "earshift user add NAME --role admin"),
        (["--behind-proxy", "127.0.0.1"], "earshift user add NAME --role admin"),
        (["--behind-proxy", "nginx"], "IP address"),
        (["--allowed-host", "https://a.example"], "without a port"),
        (["--certificate", "missing.pem", "--key", "missing.pem"], "no file"),
        (["--timezone", "Mars/Olympus"], "time zone"),
    ],
)
def test_it_refuses_to_start_and_says_what_is_missing(
    db: str, arguments: list[str], words: str
) -> None:
    code, said, told = run("serve", "--db", db, "--no-browser", *arguments)
    assert (code, said) == (2, "")
    assert words in told


def test_it_refuses_a_certificate_that_is_none(db: str, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("not a certificate")
    with_tls = ["--certificate", str(nonsense), "--key", str(nonsense)]
    code, _, told = run("serve", "--db", db, *with_tls)
    assert code == 2
    assert "not a certificate and its key" in told


def test_it_refuses_a_port_that_is_taken(db: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        code, _, told = run("serve", "--db", db, "--no-browser", "--port", port)
    assert code == 2
    assert f"port {port}" in told
    assert "another --port" in told


def test_it_refuses_a_database_that_needs_an_upgrade(db: str) -> None:
    Store.open(db).close()
    connection = sqlite3.connect(db)
    connection.execute("UPDATE earshift_schema SET version_num = '0001'")
    connection.commit()
    connection.close()
    code, _, told = run("serve", "--db", db, "--no-browser")
    assert code == 4
    assert "earshift db upgrade" in told


def test_it_refuses_when_the_admins_are_all_disabled(db: str) -> None:
    with_users(db)
    connection = sqlite3.connect(db)  # the program itself would not let it come to this
    connection.execute(
        "INSERT INTO user_states (user_id, role, password_hash, state, at, author, reason) "
        "SELECT user_id, role, password_hash, 'disabled', at, author, '' FROM user_states "
        "WHERE role = 'admin'"
    )
    connection.commit()
    connection.close()
    code, _, told = run("serve", "--db", db, "--no-browser")
    assert code == 2
    assert "no active user is an admin" in told


# Start and stop


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_one_person_starts_it_follows_the_link_and_stops_it(
    tmp_path: Path, stop: signal.Signals
) -> None:
    with Served(tmp_path, "--db", "store.db", "--port", "0", "--timezone", "Europe/Berlin") as it:
        with httpx.Client(base_url=it.address, timeout=60) as page:
            assert page.get("/api/health").status_code == 403
            assert page.get(it.link).status_code == 303
            me = page.get("/api/me").json()
            assert (me["name"], me["zone"], me["single_user"]) == ("tester", "Europe/Berlin", True)
        assert httpx.get(it.link, timeout=60).status_code == 403
        assert it.stop(stop) == 0
        assert it.said[-1] == "Stopped."
        token = it.link.partition("token=")[2]
        assert token not in it.log_text()
        assert "GET /open 303" in it.log_text()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_clinic_starts_it_with_two_workers_and_tls(tmp_path: Path, stop: signal.Signals) -> None:
    with_users(str(tmp_path / "store.db"))
    certificate, key = make_certificate(tmp_path)
    arguments = ["--db", "store.db", "--port", "0", "--workers", "2", "--host", "0.0.0.0"]
    with Served(tmp_path, *arguments, "--certificate", str(certificate), "--key", str(key)) as it:
        assert not any("token=" in line for line in it.said)
        address = it.address.replace("0.0.0.0", "localhost")
        trust = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(base_url=address, verify=trust, timeout=60) as page:
            told = page.post("/api/login", json={"name": "bob", "password": PASSWORD})
            assert told.status_code == 200
            assert told.headers["set-cookie"].startswith("__Host-earshift=")
            assert "server" not in told.headers
            for _ in range(6):
                assert page.get("/api/me").json()["name"] == "bob"
        assert it.stop(stop) == 0
        assert it.said[-1] == "Stopped."
        assert PASSWORD not in it.log_text()


# Users and tokens


def test_users_are_added_listed_disabled_and_enabled(db: str) -> None:
    add = ("user", "add", "Ada", "--role", "admin", "--password-stdin", "--db", db)
    assert run(*add, typed=f"{PASSWORD}\n")[:2] == (0, "Added admin ada\n")
    add = ("user", "add", "bob", "--password-stdin", "--db", db)
    assert run(*add, typed=f"{PASSWORD}\r\n")[:2] == (0, "Added examiner bob\n")
    assert run("user", "disable", "bob", "--reason", "left", "--db", db)[0] == 0
    code, said, _ = run("user", "list", "--json", "--db", db)
    assert code == 0
    known = {user["name"]: (user["role"], user["state"]) for user in json.loads(said)}
    assert known == {"ada": ("admin", "active"), "bob": ("examiner", "disabled")}
    assert "argon2" not in said
    assert run("user", "enable", "bob", "--db", db)[:2] == (0, "bob is active\n")
    assert run("user", "role", "bob", "admin", "--db", db)[:2] == (0, "bob is admin now\n")
    new = ("user", "password", "bob", "--password-stdin", "--db", db)
    assert run(*new, typed="another long password\n")[0] == 0
    assert "bob" in run("user", "list", "--db", db)[1]


def test_a_password_typed_at_a_terminal_is_asked_for_twice_and_not_shown(tmp_path: Path) -> None:
    typed = [f"{PASSWORD}\n", f"{PASSWORD}\n"]
    shown, code = at_a_terminal(tmp_path, ["user", "add", "ada", "--role", "admin"], typed)
    assert code == 0
    assert "not shown" in shown
    assert "Added admin ada" in shown
    assert PASSWORD not in shown
    typed = [f"{PASSWORD}\n", "something else\n"]
    shown, code = at_a_terminal(tmp_path, ["user", "password", "ada"], typed)
    assert code == 2
    assert "the two passwords differ" in shown


def at_a_terminal(folder: Path, arguments: list[str], typed: list[str]) -> tuple[str, int]:
    """Run the program in a pseudo terminal and answer each prompt."""
    import os
    import pty
    import sys

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        program = [sys.executable, "-m", "earshift.cli", *arguments, "--db", "store.db"]
        os.execv(sys.executable, program)
    shown, answered = b"", 0
    while True:
        try:
            read = os.read(terminal, 1024)
        except OSError:  # how Linux says that the other side has closed
            break
        if not read:
            break
        shown += read
        prompts = len(re.findall(rb"(not shown\): |Once more: )", shown))
        while answered < min(prompts, len(typed)):
            os.write(terminal, typed[answered].encode())
            answered += 1
    os.close(terminal)
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize(
    ("arguments", "typed", "words"),
    [
        (["user", "add", "bob", "--password-stdin"], f"{PASSWORD}\n", "first user has to be"),
        (["user", "add", "ada", "--role", "king", "--password-stdin"], f"{PASSWORD}\n", "role"),
        (["user", "add", "ada", "--role", "admin", "--password-stdin"], "short\n", "12 to 256"),
        (["user", "add", "ada", "--role", "admin", "--password-stdin"], "", "12 to 256"),
        (["user", "add", "ada", "--role", "admin"], f"{PASSWORD}\n", "--password-stdin"),
        (["user", "add", "a b", "--role", "admin", "--password-stdin"], f"{PASSWORD}\n", "letters"),
        (["user", "disable", "zoe"], None, "no user"),
        (["user", "password", "zoe", "--password-stdin"], f"{PASSWORD}\n", "no user"),
        (["token", "add", "zoe", "--name", "x"], None, "no user"),
        (["token", "revoke", "nonsense"], None, "no such token"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(
    db: str, arguments: list[str], typed: str | None, words: str
) -> None:
    code, said, told = run(*arguments, "--db", db, typed=typed)
    assert (code, said) == (2, "")
    assert words in told
    assert PASSWORD not in told


def test_tokens_are_made_listed_and_revoked(db: str) -> None:
    with_users(db)
    made = ("token", "add", "ada", "--name", "script", "--role", "examiner", "--db", db)
    code, secret, _ = run(*made)
    assert code == 0
    assert secret.startswith("earshift_")
    code, said, _ = run("token", "list", "--json", "--db", db)
    (listed,) = json.loads(said)
    assert (listed["user"], listed["name"], listed["role"]) == ("ada", "script", "examiner")
    assert secret.strip() not in said
    assert "script" in run("token", "list", "--db", db)[1]
    assert run("token", "revoke", listed["id"], "--db", db)[0] == 0
    assert json.loads(run("token", "list", "--json", "--db", db)[1]) == []
