"""Looking after a store: upgrade, backup, restore, check, and that what was erased is gone."""

import glob
import os
import secrets
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, except_, func, select, text, union
from sqlalchemy.engine import URL

from earshift.store import guards, people
from earshift.store import tables as t
from earshift.store.chain import Seal, inspect_chain
from earshift.store.database import (
    connect,
    describe,
    in_use,
    make_folder,
    migrate,
    reading,
    require_current,
    require_sqlite,
    sync_folder,
    version_of,
    weak_settings,
    writing,
)
from earshift.store.errors import NoSuchRow, StoreConflict, StoreError, StoreTrouble
from earshift.store.forgetting import forget
from earshift.store.signatures import sha256_of
from earshift.store.trials import trials_of, trials_sha256

POSTGRESQL_MAGIC = b"PGDMP"
BATCH = 500  # results checked at once
UTC_TEXT = "____-__-__T__:__:__.______Z"


def upgrade(place: Path | URL) -> Path | None:
    """Migrate an older store. An SQLite file is copied beside itself first: the copy's path."""
    if isinstance(place, Path):
        if not place.exists():
            raise NoSuchRow(f"there is no store at {place}")
        require_sqlite(place)
    engine = connect(place)
    try:
        version = version_of(engine)
        if version is not None and version >= t.SCHEMA:
            require_current(version, describe(place))
            return None
        kept = None
        if version is not None and isinstance(place, Path):
            kept = _free_name(place.with_name(f"{place.name}.schema-{version}"))
            _copy_sqlite(place, kept)
        migrate(engine)
        if version is not None:  # what was moved lies in the old places as well
            forget(engine)
        return kept
    finally:
        engine.dispose()


def _free_name(wanted: Path) -> Path:
    name, number = wanted, 1
    while name.exists():
        number += 1
        name = wanted.with_name(f"{wanted.name}-{number}")
    return name


def backup(place: Path | URL, target: Path) -> None:
    """Copy the store into a new file; the copy is of one moment, whoever writes meanwhile."""
    target = target.expanduser().absolute()
    if target.exists():
        raise StoreConflict(f"{target} already exists: give the backup a new name")
    if not target.parent.is_dir():
        raise NoSuchRow(f"there is no folder {target.parent} for the backup")
    if isinstance(place, Path):
        _copy_sqlite(place, target)
        return
    with _appearing(target) as unfinished:
        command, environment = _postgresql_tool("pg_dump", place)
        _run([*command, "--format=custom", f"--file={unfinished}"], environment)


def restore(backup: Path, place: Path | URL) -> None:
    """Make a store from a backup where none is yet; a backup that is not whole is refused."""
    backup = backup.expanduser().absolute()
    try:
        with backup.open("rb") as opened:
            is_dump = opened.read(len(POSTGRESQL_MAGIC)) == POSTGRESQL_MAGIC
    except OSError as error:
        raise StoreError(f"{backup} cannot be read: {error.strerror}") from None
    if is_dump != isinstance(place, URL):
        raise StoreError(
            f"{backup} is a backup of {'PostgreSQL' if is_dump else 'an SQLite file'} and cannot "
            f"be restored into {describe(place)}"
        )
    if isinstance(place, Path):
        try:
            make_folder(place.parent)
        except OSError as error:
            raise StoreTrouble(f"{place} cannot be written: {error.strerror}") from None
        held = in_use(place, alone=True)
        try:
            _restore_sqlite(backup, place)
        finally:
            if held is not None:
                os.close(held)
        return
    engine = connect(place)
    try:
        if version_of(engine) is not None:
            raise StoreConflict(f"{describe(place)} is not empty: restore into an empty database")
        command, environment = _postgresql_tool("pg_restore", place)
        options = ["--no-owner", "--exit-on-error", "--single-transaction"]
        _run([*command, *options, str(backup)], environment)
        require_current(version_of(engine), str(backup))
    finally:
        engine.dispose()


def _restore_sqlite(backup: Path, target: Path) -> None:
    # A log left by an earlier store of this name would be replayed into the new one.
    for taken in (target, *(target.with_name(target.name + end) for end in ("-wal", "-journal"))):
        if taken.exists():
            raise StoreConflict(f"{taken} already exists: move it away, or restore elsewhere")
    require_sqlite(backup)
    engine = connect(backup)
    try:
        version = version_of(engine)
    finally:
        engine.dispose()
    if version is None:
        raise StoreError(f"{backup} is empty: it is not a backup of a store")
    require_current(version, str(backup))
    _copy_sqlite(backup, target)


def _copy_sqlite(source: Path, target: Path) -> None:
    """An exact, checked, self-contained copy that appears only when it is whole."""
    try:
        with _appearing(target) as unfinished:
            with (
                closing(sqlite3.connect(f"file:{quote(str(source))}?mode=ro", uri=True)) as old,
                closing(sqlite3.connect(unfinished)) as new,
            ):
                old.backup(new)
                new.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
                damage = new.execute("PRAGMA integrity_check(3)").fetchall()
            if damage != [("ok",)]:
                said = "; ".join(damage[0][0].splitlines())
                raise StoreTrouble(f"{source} is damaged: {said}")
    except sqlite3.Error as error:
        raise StoreTrouble(f"{source} cannot be copied: {error}") from None


@contextmanager
def _appearing(target: Path) -> Iterator[Path]:
    """A private file that gets its name when all is written; on the disk when this ends."""
    unfinished = target.with_name(f"{_unfinished(target)}{secrets.token_hex(4)}")
    try:
        _remove_unfinished(target)  # of one that was killed
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        yield unfinished
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(unfinished, target)
        sync_folder(target.parent)
    except OSError as error:
        raise StoreTrouble(f"{target} cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):  # what went wrong before is what has to be said
            _remove_unfinished(target)


def _unfinished(target: Path) -> str:
    return f".{target.name}.unfinished-"


def _remove_unfinished(target: Path) -> None:
    """Remove what is left of copies under this name, with SQLite's own files beside them.

    One that another program is still writing loses its file, and fails when it comes to its name.
    """
    for left in target.parent.glob(f"{glob.escape(_unfinished(target))}*"):
        left.unlink(missing_ok=True)


def _postgresql_tool(name: str, url: URL) -> tuple[list[str], dict[str, str]]:
    """The tool with where to connect; the password goes by the environment, unseen by others."""
    found = shutil.which(name)
    if found is None:
        raise StoreTrouble(
            f"{name} is needed for this and was not found", advice="install PostgreSQL's tools"
        )
    from psycopg.conninfo import make_conninfo

    options = dict(url.translate_connect_args(username="user"))
    options["dbname"] = options.pop("database", None)
    options |= {
        name: ",".join([value] if isinstance(value, str) else value)
        for name, value in url.query.items()
    }
    password = options.pop("password", None)
    environment = dict(os.environ)
    if password is not None:
        environment["PGPASSWORD"] = str(password)
    return [found, f"--dbname={make_conninfo('', **options)}"], environment


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[0]
        raise StoreTrouble(f"{Path(command[0]).name} failed: {said}")


@dataclass(frozen=True)
class Report:
    """What a check found: what is wrong, what is worth knowing, and the head of the chain."""

    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    seal: Seal | None = None
    since: datetime | None = None
    """When an older database was chained as it was found; None for the very beginning."""


def check(engine: Engine, sealed: Sequence[Seal] = ()) -> Report:
    """What is wrong, in words. With seals: also whether all that they stand for is as it was."""
    problems: list[str] = []
    try:
        with reading(engine) as connection:
            problems += guards.wrong_structure(connection)
            return _report(connection, sealed, problems)
    except StoreError as error:  # a file may be too damaged to be checked to the end
        return Report((*problems, str(error)))


def _report(connection: Connection, sealed: Sequence[Seal], problems: list[str]) -> Report:
    if connection.dialect.name == "sqlite":
        found = connection.exec_driver_sql("PRAGMA integrity_check(10)").scalars().all()
        if found != ["ok"]:  # then nothing else can be trusted
            return Report((*problems, *(f"the file is damaged: {said}" for said in found)))
        problems += _sqlite_weakness(connection)
    problems += [
        *weak_settings(connection),
        *guards.wrong_triggers(connection),
        *_times_not_utc(connection),
        *_broken_rows(connection),
    ]
    # The first row that does not fit comes before what follows from it.
    chained = inspect_chain(connection, sealed)
    try:
        changed = [
            *_changed_results(connection),
            *_changed_signed(connection),
            *_changed_names(connection),
        ]
    except (ValueError, TypeError, AttributeError):  # a damaged row, which the chain has named
        changed = []
    return Report(
        problems=(*problems, *chained.problems, *changed),
        notes=(*_inherited(chained.inherited), *_single_role(connection)),
        seal=chained.head,
        since=chained.since,
    )


LOCKED = ("people", "visits", "users")  # rows that are held while something is added to them


def second_role(engine: Engine, role: str = "earshift_serve") -> str | None:
    """SQL, for the owner of the tables, that makes a role for `earshift serve`."""
    if engine.dialect.name == "sqlite":
        return None
    with reading(engine) as connection:
        database, schema = connection.execute(
            text("SELECT quote_ident(current_database()), quote_ident(current_schema())")
        ).one()

    def names(rebuilt: bool) -> str:
        tables = t.metadata.tables.values()
        return ", ".join(f"{schema}.{x.name}" for x in tables if x.info["rebuilt"] is rebuilt)

    # A lock on a row needs the right to update one of its columns; the triggers refuse to do it.
    locks = [f"GRANT UPDATE (id) ON {schema}.{table} TO {role};" for table in LOCKED]
    return "\n".join(
        (
            "-- Run this as the owner of the tables, and again after each upgrade. Then give",
            f"-- the role a password: \\password {role}",
            f"CREATE ROLE {role} LOGIN;",
            f"GRANT CONNECT ON DATABASE {database} TO {role};",
            f"GRANT USAGE ON SCHEMA {schema} TO {role};",
            f"GRANT SELECT ON {schema}.{t.VERSION_TABLE} TO {role};",
            f"GRANT SELECT, INSERT ON {names(rebuilt=False)} TO {role};",
            f"GRANT SELECT, INSERT, DELETE ON {names(rebuilt=True)} TO {role};",
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role};",
            *locks,
        )
    )


LEAST_FREE = 20 * 2**20  # bytes on the disk of an SQLite file; its log alone can take some MB


def unready(engine: Engine) -> list[str]:
    """Why the store could not take an answer now, by codes; nothing when it could."""
    try:
        with writing(engine) as connection:
            if connection.dialect.name == "postgresql":
                read_only = connection.exec_driver_sql("SHOW transaction_read_only").scalar_one()
                return ["database-read-only"] if read_only == "on" else []
        folder = Path(str(engine.url.database)).parent
        return ["disk-full"] if shutil.disk_usage(folder).free < LEAST_FREE else []
    except StoreError as trouble:
        return [trouble.code]


def _single_role(connection: Connection) -> list[str]:
    """PostgreSQL: whether the server of the clinic could switch the triggers off."""
    if connection.dialect.name == "sqlite":
        return []
    of_trials = (
        "FROM pg_class c, {other} WHERE c.relname = 'trials' "
        "AND c.relnamespace = current_schema()::regnamespace AND "
    )
    others = (
        f"SELECT count(*) {of_trials.format(other='aclexplode(c.relacl) a')}"
        "a.privilege_type = 'INSERT' AND a.grantee <> c.relowner"
    )
    if not connection.execute(text(others)).scalar_one():
        return [
            "one role owns and writes all tables, and could switch their guards off; "
            "`earshift db init` prints how to make a second one"
        ]
    owners = (
        f"SELECT count(*) {of_trials.format(other='pg_stat_activity a')}"
        "a.datname = current_database() AND a.usesysid = c.relowner AND a.pid <> pg_backend_pid()"
    )
    if not connection.execute(text(owners)).scalar_one():
        return []
    return [
        "another program is connected as the role that owns the tables; if that is "
        "`earshift serve`, give it the address of the second role"
    ]


def _inherited(problems: Sequence[str]) -> list[str]:
    if not problems:
        return []
    return [f"when the chain began anew, the one before it did not hold: {'; '.join(problems)}"]


def _sqlite_weakness(connection: Connection) -> list[str]:
    orphans = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    problems = [f"{row[0]}:{row[1]} refers to a missing row of {row[2]}" for row in orphans[:10]]
    file = Path(str(connection.engine.url.database))
    if os.name == "posix" and file.stat().st_mode & 0o077:
        problems.append(f"{file} can be read by other users: run chmod 600 on it")
    return problems


def _times_not_utc(connection: Connection) -> list[str]:
    """Moments that do not say UTC: written past the store."""
    problems = []
    for table in t.metadata.sorted_tables:
        for column in table.c:
            if not isinstance(column.type, t.UtcDateTime):
                continue
            if connection.dialect.name == "sqlite":
                wrong = connection.execute(
                    text(f'SELECT count(*) FROM {table.name} WHERE "{column.name}" NOT LIKE :utc'),
                    {"utc": UTC_TEXT},
                ).scalar_one()
            else:
                wrong = connection.execute(
                    text(
                        "SELECT count(*) FROM information_schema.columns WHERE table_name = :t "
                        "AND column_name = :c AND data_type <> 'timestamp with time zone' "
                        "AND table_schema = current_schema()"
                    ),
                    {"t": table.name, "c": column.name},
                ).scalar_one()
            if wrong:
                problems.append(f"{table.name}.{column.name} holds times that are not UTC")
    return problems


def _broken_rows(connection: Connection) -> list[str]:
    """Rows that the store would never have written."""
    gaps = (
        select(t.trials.c.exam_id)
        .group_by(t.trials.c.exam_id)
        .having(func.max(t.trials.c.number) != func.count())
        .limit(10)
    )
    problems = [
        f"exams:{exam} lacks some of its trials" for exam in connection.execute(gaps).scalars()
    ]
    for table in (t.identities, t.notes, t.texts, t.standings, t.signed, t.follow_ups):
        left = (
            select(table.c.person_id)
            .join(t.erasures, t.erasures.c.person_id == table.c.person_id)
            .distinct()
            .limit(10)
        )
        problems += [
            f"people:{person} was erased and still has {table.name}"
            for person in connection.execute(left).scalars()
        ]
    return problems


def _changed_results(connection: Connection) -> list[str]:
    """Results whose trials no longer give the hash that was stored with them."""
    r = t.results
    query = select(r.c.id, r.c.exam_id, r.c.trial_numbers, r.c.trials_sha256)
    problems = []
    last = 0
    while page := connection.execute(
        query.where(r.c.id > last).order_by(r.c.id).limit(BATCH)
    ).all():
        trials = trials_of(connection, list({row.exam_id for row in page}))
        for row in page:
            numbers = set(row.trial_numbers)
            used = [one for one in trials.get(row.exam_id, ()) if one.number in numbers]
            if trials_sha256(used) != row.trials_sha256:
                problems.append(f"results:{row.id} does not match the trials it was made from")
        last = page[-1].id
    return problems


def _changed_signed(connection: Connection) -> list[str]:
    """Signatures whose text is another one, or gone though its person was not erased."""
    s = t.signatures
    erased = select(t.erasures.c.id).where(
        t.erasures.c.person_id.in_((s.c.person_id, s.c.owner_id))
    )
    query = select(s.c.id, s.c.sha256, t.signed.c.content, erased.exists().label("erased"))
    query = query.outerjoin(t.signed, t.signed.c.signature_id == s.c.id).order_by(s.c.id)
    problems = []
    for row in connection.execute(query.execution_options(yield_per=BATCH)):
        if row.content is None and not row.erased:
            problems.append(f"signatures:{row.id} has lost what was signed")
        elif row.content is not None and sha256_of(row.content) != row.sha256:
            problems.append(f"signatures:{row.id} does not match what is stored as signed")
    return problems


def _changed_names(connection: Connection) -> list[str]:
    """Whether a search by name finds everybody, and nobody by another name than the newest."""
    kept = select(t.names.c.person_id, t.names.c.found_by)
    newest = people.newest_names()
    halves = (except_(kept, newest).subquery(), except_(newest, kept).subquery())
    either = union(*(select(half.c.person_id) for half in halves)).subquery()
    wrong = connection.execute(select(func.count()).select_from(either)).scalar_one()
    return [f"names: a search does not find {wrong} of the people as they are called"] * (wrong > 0)
