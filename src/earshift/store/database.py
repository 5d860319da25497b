"""Where a store lies and how it is reached: addresses, connections, transactions, migrations.

SQLite and PostgreSQL differ here and in the migrations; nothing else in the store asks which one
it is. What a driver raises leaves as a `StoreError` in plain words, never with a password or a row.
"""

import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, exc, inspect, text
from sqlalchemy.engine import URL, make_url

from earshift.store import chain
from earshift.store.errors import StoreConflict, StoreError, StoreTrouble
from earshift.store.tables import SCHEMA, VERSION_TABLE

T = TypeVar("T")
MIGRATIONS = Path(__file__).parent / "migrations"
WAIT_SECONDS = 30.0  # for another process that is writing; an import may take a while
CONNECT_SECONDS = 10  # for a server that does not answer
SQLITE_MAGIC = b"SQLite format 3\x00"
# Numbers for PostgreSQL's advisory locks; any that no other program in the database locks.
MIGRATION_LOCK, CODES_LOCK, STANDINGS_LOCK, HANDLES_LOCK = 7305137, 7305138, 7305139, 7305142


def address(where: str | Path | None) -> Path | URL:
    """A file or a PostgreSQL URL, from what the user gave or left out."""
    if where is None:
        where = os.environ.get("EARSHIFT_DB") or None
    if where is None:
        from platformdirs import user_data_path

        return user_data_path("earshift", appauthor=False) / "earshift.db"
    if isinstance(where, Path) or "://" not in where:
        if not str(where).strip():
            raise StoreError("the database must be a file or a postgresql:// address", got="")
        return Path(where).expanduser().absolute()
    scheme = where.split("://", 1)[0]
    if scheme not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise StoreError(
            "the database must be a file or a postgresql:// address", got=f"{scheme}://"
        )
    try:
        url = make_url(where)
    except (exc.ArgumentError, ValueError):
        raise StoreError(
            "this postgresql:// address cannot be read; "
            "expected postgresql://user:password@host:port/database"
        ) from None
    password = url.query.get("password")
    if isinstance(password, str):  # moved to where it is hidden whenever the address is shown
        url = url.difference_update_query(["password"]).set(password=password)
    return url.set(drivername="postgresql+psycopg")


def describe(place: Path | URL) -> str:
    """A name for messages, without the password."""
    if isinstance(place, Path):
        return str(place)
    if place.get_backend_name() == "sqlite":
        return str(place.database)
    port = f":{place.port}" if place.port else ""
    host = place.host or place.query.get("host") or "this machine"
    return f"PostgreSQL database {place.database or place.username or ''} on {host}{port}"


def connect(place: Path | URL) -> Engine:
    """An engine whose connections keep every promise of the store. Nothing is opened yet."""
    is_file = isinstance(place, Path)
    url = URL.create("sqlite", database=str(place)) if isinstance(place, Path) else place
    waiting = {"timeout": WAIT_SECONDS} if is_file else {"connect_timeout": CONNECT_SECONDS}
    try:
        engine = create_engine(
            url,
            connect_args=waiting,
            pool_pre_ping=not is_file,  # a server may have been restarted since the last call
            hide_parameters=True,  # rows stay out of messages and logs
            json_serializer=partial(json.dumps, allow_nan=False, ensure_ascii=False),
        )
    except ModuleNotFoundError:
        raise StoreTrouble(
            "PostgreSQL needs its driver: pip install 'earshift[postgresql]'"
        ) from None
    if is_file:
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        event.listen(engine, "connect", _prepare_postgresql)
    event.listen(engine, "after_execute", chain.note_insert)
    return engine


FILE = "earshift_file"  # which file a connection has open, whatever has its name later


def _which(file: str | None) -> tuple[int, int] | None:
    try:
        found = os.stat(file or "")
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _prepare_sqlite(connection: Any, record: Any) -> None:
    record.info[FILE] = _which(connection.execute("PRAGMA database_list").fetchone()[2])
    connection.isolation_level = None  # transactions begin when we say so, not when Python guesses
    for setting in (
        "foreign_keys = ON",
        "synchronous = EXTRA",  # an answer that returned is on the disk, the end of its log too
        "fullfsync = ON",  # and on macOS really so
        "secure_delete = ON",  # what is erased is overwritten
        "trusted_schema = OFF",  # a file from elsewhere runs nothing but its own triggers
    ):
        connection.execute(f"PRAGMA {setting}")


def _prepare_postgresql(connection: Any, _record: object) -> None:
    connection.execute(f"SET lock_timeout = '{WAIT_SECONDS}s'")
    if connection.execute("SHOW synchronous_commit").fetchone()[0] == "off":
        connection.execute("SET synchronous_commit = on")  # other values are as safe or safer
    connection.commit()


def _begin_sqlite(connection: Connection) -> None:
    # A write lock taken late can fail in the middle of a transaction; taken first it only waits.
    writes = connection.get_execution_options().get("earshift_writes", False)
    if writes and connection.info.get(FILE) != _which(connection.engine.url.database):
        # Else an answer would be acknowledged that lies in a file which nobody opens again.
        raise StoreTrouble(
            "{database} was moved, replaced or deleted while it was open. Nothing was stored",
            code="database-gone",
            advice="start this program again",
            database=describe(connection.engine.url),
        )
    if not writes:
        connection.exec_driver_sql("BEGIN")
        return
    wait = connection.get_execution_options().get("earshift_wait", WAIT_SECONDS)
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {round(1000 * wait)}")
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {round(1000 * WAIT_SECONDS)}")


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """One snapshot: all queries see the same moment."""
    options = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with plain_errors(engine), engine.execution_options(**options).connect() as connection:
        yield connection


@contextmanager
def writing(engine: Engine, wait: float = WAIT_SECONDS) -> Iterator[Connection]:
    """One transaction: on the disk when this ends, or nothing happened.

    It waits so many seconds for another program that writes.
    """
    options = {"earshift_writes": True, "earshift_wait": wait}
    with plain_errors(engine), engine.execution_options(**options).begin() as connection:
        if wait != WAIT_SECONDS and connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{wait}s'")
        connection.info[chain.NEW_ROWS] = []
        yield connection
        chain.link(connection)


# Of a long write, and between its parts: who waits for SQLite's lock looks for it every 0.1 s.
HOLD_SECONDS, PAUSE_SECONDS = 0.15, 0.11


def write_in_parts(
    engine: Engine,
    items: Sequence[T],
    write: Callable[[Connection, T], None],
    together: Callable[[T, T], bool] = lambda _one, _next: False,
) -> None:
    """Write many items in transactions that are short enough for others to get their turn.

    Two that belong `together` are in one transaction. Whoever is killed meanwhile has written the
    first ones, whole.
    """
    done = 0
    while done < len(items):
        with writing(engine) as connection:
            began = time.monotonic()
            while done < len(items):
                write(connection, items[done])
                done += 1
                parted = done == len(items) or not together(items[done - 1], items[done])
                if parted and time.monotonic() - began > HOLD_SECONDS:
                    break
        if done < len(items):
            let_others_write(engine)


def let_others_write(engine: Engine) -> None:
    """Wait between two parts of a long write: SQLite gives its lock to whoever asks first."""
    if engine.dialect.name == "sqlite":
        time.sleep(PAUSE_SECONDS)


@contextmanager
def plain_errors(engine: Engine) -> Iterator[None]:
    """What the driver says, in words that help and without rows or passwords."""
    name = describe(engine.url)
    try:
        yield
    except exc.DBAPIError as error:
        if error.connection_invalidated:
            raise StoreTrouble(
                "{database}: the connection was lost. " + UNSURE,
                code="database-lost",
                database=name,
            ) from None
        raise _explained(error.orig, name) from None
    except sqlite3.Error as error:  # of a statement that no transaction may hold
        raise _explained(error, name) from None
    except exc.StatementError as error:  # our own types refused a value
        raise StoreError("this cannot be stored", got=error.orig) from None
    except exc.SQLAlchemyError as error:
        raise StoreTrouble("{database} refused: {reason}", database=name, reason=error) from None


class Busy(StoreTrouble):
    """Another program holds the database; the same call may work a moment later."""


UNSURE = "Check whether the last change was stored before you repeat it."
BUSY = "another program is writing to it; try again when it has finished"
READ_ONLY = "it is read-only; check the permissions"
FULL = "the disk is full; free some space and try again"
FORBIDDEN = "this role may not do that; use the address of the role that owns the tables"
LOST = "the server cannot be reached"
BROKEN_DISK = "the disk refuses to read or write"
UNCONFIRMED = "the disk did not confirm what was written"
CODES = {
    BUSY: "database-busy",
    READ_ONLY: "database-read-only",
    FULL: "disk-full",
    FORBIDDEN: "database-role",
    LOST: "database-lost",
    BROKEN_DISK: "disk-broken",
    UNCONFIRMED: "disk-unconfirmed",
}
# Written, but perhaps not on the disk: after a crash it may be there or not.
NOT_SYNCED = (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC)
BY_SQLITE_CODE = {
    sqlite3.SQLITE_BUSY: BUSY,
    sqlite3.SQLITE_LOCKED: BUSY,
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_IOERR: BROKEN_DISK,
    sqlite3.SQLITE_NOTADB: "it is not an SQLite file",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore a backup",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check the folder and its permissions",
}
BY_SQLSTATE = {"55P03": BUSY, "40P01": BUSY, "25006": READ_ONLY, "53100": FULL, "42501": FORBIDDEN}


def _explained(error: BaseException | None, name: str) -> StoreTrouble:
    """Trouble in words that help, by the code that the driver gives it."""
    code = getattr(error, "sqlite_errorcode", None)  # its low byte is the kind, the rest details
    meaning = None if code is None else BY_SQLITE_CODE.get(code & 0xFF)
    if code in NOT_SYNCED:
        meaning = UNCONFIRMED
    meaning = meaning or BY_SQLSTATE.get(getattr(error, "sqlstate", None) or "")
    said = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
    said = (said.strip().splitlines() or ["refused without a reason"])[0]
    kind = Busy if meaning is BUSY else StoreTrouble
    lost = code is None and getattr(error, "sqlstate", None) is None
    named = CODES.get(meaning or "", CODES[LOST] if lost else kind.code)
    end = UNSURE if meaning is UNCONFIRMED else "Nothing was changed."
    words = "{database}: " + (meaning or "{reason}") + f". {end}"
    return kind(words, code=named, database=name, reason=said)


def outside_transactions(engine: Engine, statement: str) -> tuple[Any, ...]:
    """Run a statement of SQLite's that no transaction may hold; the row that it gives, if any."""
    with plain_errors(engine), engine.connect() as connection:
        return connection.connection.cursor().execute(statement).fetchone() or ()


def in_use(file: Path, *, alone: bool = False) -> int | None:
    """Hold a file beside an SQLite file, with others or `alone`, until its number is closed.

    Whoever has a store open holds it, so that none is restored under this name meanwhile.
    """
    if sys.platform == "win32":  # where a file that is open cannot be moved away
        return None
    import fcntl

    beside = file.with_name(f"{file.name}.in-use")
    try:
        held = os.open(beside, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise StoreTrouble(f"{{file}} cannot be opened: {error.strerror}", file=beside) from None
    try:
        fcntl.flock(held, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise StoreConflict(
            "another program has {file} open" if alone else "{file} is being restored",
            code="in-use",
            advice="end it first" if alone else "try again when that is done",
            file=file,
        ) from None
    return held


def open_database(place: Path | URL) -> Engine:
    """Connect, and make the tables if the database is empty; refuse what is not ours to write."""
    if isinstance(place, Path):
        _make_private(place)
    engine = connect(place)
    try:
        version = version_of(engine)
        if version is None:
            migrate(engine)
            version = version_of(engine)
        require_current(version, describe(place))
        _require_durable(engine)
    except BaseException:
        engine.dispose()
        raise
    return engine


def sync_folder(folder: Path) -> None:
    """The names in a folder are on the disk: a file that was synced has none before that."""
    if sys.platform == "win32":  # where a folder cannot be opened
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_folder(folder: Path) -> None:
    """A folder that only its owner enters, with those above it; on the disk when this returns."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


def _make_private(file: Path) -> None:
    """A file that only its owner reads, in a folder alike; one that is there stays as it is."""
    try:
        make_folder(file.parent)
        if file.exists():
            require_sqlite(file)
        else:
            os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreTrouble(f"{{file}} cannot be opened: {error.strerror}", file=file) from None
    for needed in (file, file.parent):  # SQLite writes its log beside the file
        if not os.access(needed, os.W_OK):
            raise StoreTrouble(
                "{file} is read-only: {place} cannot be written", file=file, place=needed
            )


def require_sqlite(file: Path) -> None:
    """Refuse what is no SQLite file before SQLite touches it. An empty file is fine."""
    if not file.is_file():
        raise StoreTrouble("{file} is not a file", file=file)
    try:
        with file.open("rb") as opened:
            start = opened.read(len(SQLITE_MAGIC))
    except OSError as error:
        raise StoreTrouble(f"{{file}} cannot be read: {error.strerror}", file=file) from None
    if start and start != SQLITE_MAGIC:
        raise StoreTrouble("{file} is not an SQLite file; nothing was changed", file=file)


def version_of(engine: Engine) -> str | None:
    """The schema's version, or None for an empty database; a foreign one is refused."""
    with reading(engine) as connection:
        tables = inspect(connection).get_table_names()
        if VERSION_TABLE in tables:
            query = text(f"SELECT version_num FROM {VERSION_TABLE}")
            version: str | None = connection.execute(query).scalars().first()
            if version is not None:
                return version
    if tables:
        raise StoreTrouble(
            "{database} contains another program's tables; give earshift a database of its own",
            database=describe(engine.url),
            got=sorted(tables)[:3],
        )
    return None


def require_current(version: str | None, name: str) -> None:
    known = str(version or "")
    if known > SCHEMA:
        raise StoreTrouble(
            f"{{database}} was written by a newer earshift (schema {known}, this one knows "
            f"{SCHEMA}); install the newer version",
            database=name,
        )
    if known < SCHEMA:
        raise StoreTrouble(
            f"{{database}} has the older schema {known}, this earshift needs {SCHEMA}",
            code="older-schema",
            database=name,
        )


def _use_write_ahead_log(engine: Engine) -> None:
    """Switch SQLite's log on; two programs that do so at once refuse each other without waiting."""
    give_up = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            outside_transactions(engine, "PRAGMA journal_mode = WAL")
            return
        except Busy:
            if time.monotonic() > give_up:
                raise
        time.sleep(0.02)


def _require_durable(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        _use_write_ahead_log(engine)
    with reading(engine) as connection:
        problems = weak_settings(connection)
    if problems:
        raise StoreTrouble(f"{describe(engine.url)}: {'; '.join(problems)}")


def weak_settings(connection: Connection) -> list[str]:
    """Settings under which an answer that was taken could be lost."""
    if connection.dialect.name == "sqlite":
        ask = "PRAGMA"
        needed: dict[str, tuple[Any, ...]] = {
            "journal_mode": ("wal",),
            "synchronous": (2, 3),
            "foreign_keys": (1,),
        }
    else:
        ask = "SHOW"
        needed = {
            "synchronous_commit": ("on", "local", "remote_write", "remote_apply"),
            "fsync": ("on",),
            "full_page_writes": ("on",),
        }
    found = {name: connection.exec_driver_sql(f"{ask} {name}").scalar_one() for name in needed}
    return [
        f"{name} is {found[name]} and has to be {allowed[0]}, otherwise answers could be lost"
        for name, allowed in needed.items()
        if found[name] not in allowed
    ]


def migrate(engine: Engine) -> None:
    """Bring the tables to this version's schema, in one transaction, one process at a time."""
    from alembic import command
    from alembic.config import Config

    with writing(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        del connection.info[chain.NEW_ROWS]  # a migration chains what it finds
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(MIGRATIONS))
        command.upgrade(config, SCHEMA)
