"""Both databases for tests: a new SQLite file, and a new database of a real PostgreSQL server."""

import contextlib
import getpass
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from earshift.store import Store

LEFT_OUT = (
    "PostgreSQL group left out: no initdb in PATH or Debian's folders (Debian: postgresql package)"
)
_numbers = count(1)


def postgresql_tools() -> Path | None:
    """The folder with initdb, pg_ctl and pg_dump, if this machine has one."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent  # a link may stand alone, the tools stand together
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name))
    return folders[-1] if folders else None


class PostgresqlServer:
    """A server of our own: its data in a new folder, reached by a socket there and nowhere else."""

    def __init__(self, tools: Path, settings: str = "", folder: Path | None = None) -> None:
        self.tools, self._settings = tools, settings
        self._free: list[str] = []
        # PostgreSQL refuses to run as root, and the other user must be able to enter the folder.
        self._as_user: list[str] = []
        self.folder = folder or Path(tempfile.mkdtemp(prefix="earshift-pg-"))
        if getpass.getuser() == "root":
            user = "postgres" if _has_user("postgres") else "nobody"
            self._as_user = ["runuser", "-u", user, "--"]
            shutil.chown(self.folder, user)
        self._run("initdb", "-A", "trust", "-U", "earshift", "--no-sync", "-E", "UTF8")
        self.start()

    def start(self) -> None:
        options = f"-c listen_addresses= -k {self.folder} {self._settings}"
        self._run("pg_ctl", "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-w", "-m", mode, "stop")

    def revive(self) -> None:
        """Start it if it is not running, whatever it has ended by."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self.stop("immediate")
        self.start()

    def setting(self, name: str, value: str) -> None:
        """Change a setting of the running server, for all that is done from now on."""
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f"ALTER SYSTEM SET {name} = {value}")
            connection.execute("SELECT pg_reload_conf()")

    def _run(self, tool: str, *arguments: str) -> None:
        command = [*self._as_user, str(self.tools / tool), "-D", str(self.folder / "data")]
        subprocess.run(
            [*command, *arguments],
            check=True,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt of the tests is not for the server
        )

    def url(self, database: str) -> str:
        return f"postgresql://earshift@/{database}?host={self.folder}"

    def new_database(self) -> str:
        """The address of an empty database."""
        import psycopg

        if self._free:
            return self._free.pop()
        name = f"test_{next(_numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def give_back(self, url: str) -> None:
        """Empty a database for the next test: much faster than a new one each time."""
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET lock_timeout = '60s'")
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        self._free.append(url)

    def close(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)


def _has_user(name: str) -> bool:
    import pwd

    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    tools = postgresql_tools()
    if tools is None:
        if os.environ.get("CI") == "true":
            pytest.fail(LEFT_OUT)
        pytest.skip(LEFT_OUT)
    # Told to stop, the tests end as by Ctrl-C, and take the server with them.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server = PostgresqlServer(tools)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{tools}{os.pathsep}{path}"  # for pg_dump, which the store looks up
    try:
        yield server
    finally:
        os.environ["PATH"] = path
        server.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database that does not exist yet or is empty, once for each kind."""
    if request.param == "sqlite":
        yield str(tmp_path / "store.db")
        return
    server: PostgresqlServer = request.getfixturevalue("postgresql_server")
    url = server.new_database()
    yield url
    server.give_back(url)


def prepare(database: str | Path) -> None:
    """Make the tables of a new or empty database, as `Store.open` would: a copy is much quicker."""
    if "://" in str(database):
        _prepare_postgresql(str(database))
    elif not Path(database).exists():
        Path(database).write_bytes(_empty_store())
        Path(database).chmod(0o600)  # as the store makes it


@cache
def _empty_store() -> bytes:
    """The file of an SQLite store that nobody has written to."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "store.db"
        Store.open(file).close()
        return file.read_bytes()


_dumped: list[str] = []


def _prepare_postgresql(url: str) -> None:
    import psycopg

    if not _dumped:
        Store.open(url).close()
        command = ["pg_dump", "--no-owner", "--inserts", url]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        lines = done.stdout.splitlines(keepends=True)
        script = "".join(line for line in lines if not line.startswith("\\"))
        _dumped.append(script.replace("CREATE SCHEMA ", "CREATE SCHEMA IF NOT EXISTS "))
        return
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_dumped[0].encode())


@contextmanager
def raw(database: str) -> Iterator[Any]:
    """A connection past the store, as any other program would have it."""
    if database.startswith("postgresql"):
        import psycopg

        with psycopg.connect(database, autocommit=True) as connection:
            yield connection
    else:
        connection = sqlite3.connect(database, isolation_level=None)
        try:
            yield connection
        finally:
            connection.close()


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    """An open, empty store, once for each kind of database."""
    prepare(database)
    with Store.open(database) as opened:
        yield opened
