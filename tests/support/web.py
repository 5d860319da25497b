"""What tests of the web app share: a client, an app with accounts, a real server, a real nginx."""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from earshift.store import Store
from earshift.store.accounts import Accounts
from earshift.web import create_app
from earshift.web.settings import Settings
from support.databases import prepare

with warnings.catch_warnings():
    # Starlette asks for the successor of httpx, which no other tool here takes yet.
    warnings.filterwarnings("ignore", message="Using `httpx`")
    from starlette.testclient import TestClient

__all__ = ["TestClient"]

ORIGIN = "http://localhost:8400"
PASSWORD = "correct horse battery"
NO_NGINX = "nginx group left out: no nginx in PATH or /usr/sbin (Debian: nginx package)"


def with_users(db: str) -> None:
    """An admin, a reviewer and an examiner in a new database."""
    prepare(db)
    with Store.open(db) as store:
        accounts = Accounts(store)
        for name, role in (("ada", "admin"), ("bob", "examiner"), ("rea", "reviewer")):
            accounts.add_user(name, PASSWORD, role=role, author="test", temporary=False)


@contextmanager
def client_of(settings: Settings, **options: Any) -> Iterator[TestClient]:
    """A client of the app, which is closed with it. Its errors come back as answers."""
    with TestClient(
        create_app(settings), base_url=ORIGIN, raise_server_exceptions=False, **options
    ) as client:
        yield client


def sign_in(client: Any, name: str, origin: str = ORIGIN) -> dict[str, str]:
    """The headers of a signed-in page. The client keeps the cookie."""
    told = client.post(
        "/api/login", json={"name": name, "password": PASSWORD}, headers={"Origin": origin}
    )
    assert told.status_code == 200, told.text
    return {"Origin": origin, "X-CSRF-Token": told.json()["csrf"]}


class Served:
    """`earshift serve` as a process of its own."""

    def __init__(
        self, folder: Path, *arguments: str, surroundings: Mapping[str, str] | None = None
    ) -> None:
        self.log = folder / "serve.log"
        self.said: list[str] = []
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "earshift.cli", "serve", "--no-browser", *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env=os.environ
                | {"BROWSER": "false", "EARSHIFT_AUTHOR": "tester"}
                | dict(surroundings or {}),
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.address = self._wait_for(r"at (https?://\S+)/$")

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))

    def _wait_for(self, pattern: str, seconds: float = 120.0) -> str:
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            for line in list(self.said):
                if found := re.search(pattern, line):
                    return found[1]
            if self.process.poll() is not None and not self._reader.is_alive():
                break
            time.sleep(0.05)
        raise AssertionError(f"the server did not say it serves: {self.said}, {self.log_text()}")

    @property
    def link(self) -> str:
        """The single user's link."""
        return self._wait_for(r"(http://\S+/open\?token=\S+)")

    def log_text(self) -> str:
        return self.log.read_text()

    def stop(self, signal: int) -> int:
        self.process.send_signal(signal)
        code = self.process.wait(60)
        self._reader.join(10)
        return code

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(30)
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


def nginx_program() -> str:
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(NO_NGINX)
    return str(found)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine that only tests trust, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    names = "subjectAltName=DNS:localhost,DNS:hearing.example.org,IP:127.0.0.1"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", names),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key
