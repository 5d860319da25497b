"""The systemd unit of docs/serve.md: the server works under the very settings that stand there.

They are read from the page and applied by mounts in a namespace of their own, and by setpriv:
read-only code, no home, a state and a cache folder, a private /tmp, another user. For root alone.
PostgreSQL is used by the role that only serves, SQLite in the state folder.
"""

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from earshift.store import Store
from support.databases import PostgresqlServer
from support.machine import left_out
from support.web import PASSWORD, with_users

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
HOST = "hearing.example.org"
REFERENCE = {"500": 10, "1000": 10, "2000": 15, "3000": 20, "4000": 30, "6000": 30, "8000": 25}
SERVING = "earshift_serve"
pytestmark = [pytest.mark.server, pytest.mark.slow]


def unit(kind: str) -> dict[str, str]:
    """The settings of the documented unit."""
    page = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
    page = page.replace("%S", "/var/lib")
    (text,) = re.findall(r"^# /etc/systemd/system/earshift.service\n(.*?)^```", page, re.M | re.S)
    settings: dict[str, str] = {}
    for line in text.replace("\\\n", " ").replace("%C", "/var/cache").splitlines():
        name, is_setting, value = line.partition("=")
        if is_setting:  # a name that is given again adds to it
            settings[name] = f"{settings[name]} {value}" if name in settings else value
    assert f"postgresql://{SERVING}@" in settings["Environment"]
    if kind == "sqlite":
        (other,) = re.findall(r"`Environment=(EARSHIFT_DB=\S+?)`", page)
        settings["Environment"] = re.sub(r"EARSHIFT_DB=\S+", other, settings["Environment"])
    return settings


def confined(settings: dict[str, str], folder: Path, caches: Path, sockets: Path, port: int) -> str:
    """A script that applies the settings and runs the unit's programs."""
    assert settings["ProtectSystem"] == "strict"
    assert settings["NoNewPrivileges"] == settings["ProtectHome"] == settings["PrivateTmp"] == "yes"
    state, cache = settings["StateDirectory"], settings["CacheDirectory"]
    needed = " ".join(map(shlex.quote, (sys.base_prefix, str(ROOT), sys.prefix)))
    programs = f"{sys.prefix}/bin/"
    before = settings["ExecStartPre"].replace("/opt/earshift/bin/", programs)
    serve = settings["ExecStart"].replace("/opt/earshift/bin/", programs)
    given = " ".join(map(shlex.quote, settings["Environment"].split()))
    return f"""set -e
mount --make-rprivate /
for where in lib cache; do mount -t tmpfs -o mode=755 tmpfs /var/$where; done
mkdir /var/lib/{state} /var/cache/{cache}
mount --bind {folder}/state /var/lib/{state}
mount --bind {caches} /var/cache/{cache}
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/postgresql
mount --bind {sockets} /run/postgresql
# Python and this project may lie in a home or in /tmp; nothing else of these is there.
for where in {needed}; do mkdir -p "/run/kept$where"; mount --bind "$where" "/run/kept$where"; done
mount -t tmpfs -o mode=755 tmpfs /home
mount -t tmpfs -o mode=755 tmpfs /root
mount -t tmpfs -o mode=1777 tmpfs /tmp
for where in {needed}; do
    [ -z "$(ls -A "$where" 2> /dev/null)" ] || continue
    mkdir -p "$where"
    mount --bind "/run/kept$where" "$where"
    mount -o remount,bind,ro "$where"
done
for where in /home /root /var/lib /var/cache /run /; do mount -o remount,bind,ro $where; done
exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups --no-new-privs \\
    env -i PATH=/usr/bin:/bin HOME=/nonexistent LANG=C.UTF-8 {given} \\
    STATE_DIRECTORY=/var/lib/{state} CACHE_DIRECTORY=/var/cache/{cache} EARSHIFT_AUTHOR=unit \\
    sh -ec 'if touch {ROOT}/src/x 2> /dev/null; then exit 9; fi
        {before} > /tmp/warm
        exec {serve} --port {port}'
"""


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache folder of all runs: a service compiles once."""
    folder = tmp_path_factory.mktemp("caches")
    os.chown(folder, NOBODY, NOBODY)
    return folder


@pytest.fixture(params=["postgresql", "sqlite"])
def prepared(
    request: pytest.FixtureRequest, postgresql_server: PostgresqlServer, tmp_path: Path
) -> Iterator[tuple[str, str, Path]]:
    """Which database, its owner's address and the folder of PostgreSQL's socket."""
    import psycopg

    if os.geteuid() != 0:
        left_out("only root may make read-only mounts")
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    os.chown(state, NOBODY, NOBODY)
    if request.param == "sqlite":
        db = str(state / "earshift.db")
        with_users(db)
        for file in state.iterdir():
            os.chown(file, NOBODY, NOBODY)
        yield "sqlite", db, state
        return
    server = PostgresqlServer(postgresql_server.tools)
    os.chmod(server.folder, 0o755)
    db = server.url("earshift")
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE earshift")
    with_users(db)
    command = [sys.executable, "-m", "earshift.cli", "db", "init", "--db", db]
    done = subprocess.run(command, check=True, capture_output=True)
    with psycopg.connect(db, autocommit=True) as connection:
        connection.execute(done.stdout)
    yield "postgresql", db, server.folder
    server.close()


@pytest.fixture
def service(
    prepared: tuple[str, str, Path], caches: Path, tmp_path: Path
) -> Iterator[httpx.Client]:
    """The service as documented, and a client that stands for its proxy."""
    kind, _, sockets = prepared
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = confined(unit(kind), tmp_path, caches, sockets, port)
    command = ["unshare", "--mount", "bash", "-c", script]  # each becomes the next
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    proxied = {"Host": HOST, "X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"}
    address = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(base_url=address, headers=proxied, timeout=300) as client:
            give_up = time.monotonic() + 900
            while True:
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < give_up, (tmp_path / "log").read_text()
                try:
                    if client.get("/api/health/ready").status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                time.sleep(0.5)
            yield client
    finally:
        process.terminate()
        process.wait(60)


def test_a_test_by_the_papers_protocol_and_its_report(
    service: httpx.Client, prepared: tuple[str, str, Path], caches: Path, tmp_path: Path
) -> None:
    origin = {"Origin": f"https://{HOST}"}
    signed_in = service.post(
        "/api/login", json={"name": "bob", "password": PASSWORD}, headers=origin
    )
    assert signed_in.status_code == 200, signed_in.text
    cookie = signed_in.headers["set-cookie"].partition(";")[0]
    headers = {**origin, "X-CSRF-Token": signed_in.json()["csrf"], "Cookie": cookie}

    def post(path: str, body: Any) -> Any:
        answer = service.post(path, json=body, headers=headers)
        assert answer.is_success, answer.text
        return answer.json()

    person = post("/api/people", {"code": "4711", "name": "Ada"})["id"]
    reference = {"ear": "right", "measured_on": "2024-05-06", "thresholds": REFERENCE}
    post(f"/api/people/{person}/audiograms", reference)
    plan = {"kind": "screen", "ears": ["right"], "protocol": "paper", "practice": False}
    test = post(f"/api/people/{person}/tests", plan)
    exam = test["exams"][0]["id"]
    play = service.get(f"/api/exams/{exam}", headers=headers).json()["play"]
    for _ in range(4):
        tone = play["presentation"]
        heard = tone["level"] is not None and tone["level"] >= 25
        play = post(f"/api/exams/{exam}/answer", {"trial": tone["trial"], "heard": heard})
    post(f"/api/exams/{exam}/finish", {})
    report = service.get(f"/api/visits/{test['visit']}/report.pdf", headers=headers)
    assert report.status_code == 200, report.text
    assert report.content.startswith(b"%PDF")
    assert list((caches / "kernels").rglob("*.nbc"))  # in the unit's own folder
    assert "matplotlib" not in (tmp_path / "log").read_text()  # which would say that it has none
    kind, db, _ = prepared
    with Store.open(db) as store:
        assert len(store.trials(store.behind("exams", exam))) == 4
        assert store.check() == []
    if kind == "postgresql":
        require_serving_role(db)


def require_serving_role(db: str) -> None:
    """All of the service's connections are of the role that can neither change nor delete."""
    import psycopg

    with psycopg.connect(db, autocommit=True) as connection:
        asked = (
            "SELECT DISTINCT usename FROM pg_stat_activity WHERE datname = 'earshift' AND pid <> "
        )
        assert connection.execute(asked + "pg_backend_pid()").fetchall() == [(SERVING,)]
        right = "SELECT bool_or(has_table_privilege(%s, tablename, 'UPDATE, DELETE, TRUNCATE')) "
        found = connection.execute(right + "FROM pg_tables WHERE tablename = 'trials'", [SERVING])
        assert found.fetchone() == (False,)
