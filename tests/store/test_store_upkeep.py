"""Opening, damage, other programs at the same time, backup, restore, upgrade and check."""

import json
import logging
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from fixtures.record_store_fixture import summary
from sqlalchemy import text
from test_store import a_full_person, a_person, a_trial, an_exam

import earshift as es
from earshift.clinic.worklist import worklist
from earshift.store import Store, StoreError, database, tables
from earshift.store.database import connect, reading, writing
from support.databases import PostgresqlServer, raw

FIXTURES = Path(__file__).parent / "fixtures"
_started: list[subprocess.Popen[str]] = []
AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "WAIT_SECONDS", 1.0)


def python(code: str, *arguments: str, humble: bool = False) -> subprocess.Popen[str]:
    """A real process that runs the code; a humble one obeys permissions even if it is root's."""
    without = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"]
    process = subprocess.Popen(
        [
            *(without if humble and AS_ROOT else []),
            sys.executable,
            "-c",
            textwrap.dedent(code),
            *arguments,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _started.append(process)
    return process


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """When a test fails half-way, its processes do not outlive it."""
    yield
    while _started:
        process = _started.pop()
        if process.returncode is None:
            process.kill()
            process.communicate()


def ready(process: subprocess.Popen[str]) -> None:
    """Wait until the process says so, or show what it died of."""
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        finished(process)
        raise AssertionError("the process ended before it was ready")


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def finished(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


# Where it is


def test_a_new_file_and_folder_are_private(tmp_path: Path) -> None:
    file = tmp_path / "clinic" / "store.db"
    with Store.open(file) as store:
        a_person(store)
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        for made in file.parent.iterdir():  # the log beside it holds the same rows
            assert stat.S_IMODE(made.stat().st_mode) == 0o600
        store.backup(tmp_path / "copy")
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600


def test_the_default_is_the_environment_then_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EARSHIFT_DB", str(tmp_path / "named.db"))
    with Store.open() as store:
        assert store.describe() == str(tmp_path / "named.db")
    monkeypatch.delenv("EARSHIFT_DB")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with Store.open() as store:
        assert Path(store.describe()).is_relative_to(tmp_path)
        assert Path(store.describe()).parent.name == "earshift"


@pytest.mark.parametrize("where", ["mysql://u:secret@h/d", "sqlite:///x.db", "", "  "])
def test_other_addresses_are_refused(where: str) -> None:
    with pytest.raises(StoreError, match="a file or a postgresql:// address") as caught:
        Store.open(where)
    assert "secret" not in str(caught.value)


SECRETS = [
    "postgresql://earshift:s3cret@/{name}?host={folder}",
    "postgresql://earshift@/{name}?host={folder}&password=s3cret",
]


@pytest.mark.parametrize("address", SECRETS)
def test_a_password_is_never_shown(
    postgresql_server: PostgresqlServer,
    address: str,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    caplog.set_level(logging.DEBUG)
    name = postgresql_server.new_database().split("/")[3].split("?")[0]
    url = address.format(name=name, folder=postgresql_server.folder)
    seen = []
    with Store.open(url) as store:
        seen += [store.describe(), repr(store), str(vars(store))]
        assert name in store.describe()
        store.backup(tmp_path / "dump")
        with pytest.raises(StoreError) as caught:
            Store.restore(tmp_path / "dump", url)
        seen.append(str(caught.value))
    for wrong in ("nowhere", "no%20where"):
        with pytest.raises(StoreError) as caught:
            Store.open(address.format(name=wrong, folder=postgresql_server.folder))
        seen.append(str(caught.value))
        assert caught.value.__suppress_context__
    with pytest.raises(StoreError, match="cannot be read") as caught:
        Store.open("postgresql://earshift:s3cret@host:port:port/x")
    seen += [str(caught.value), caplog.text]
    assert all("s3cret" not in text for text in seen)


def test_postgresql_without_its_driver_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)  # as if it were not installed
    with pytest.raises(StoreError, match=r"earshift\[postgresql\]"):
        Store.open("postgresql://localhost/x")


def test_a_server_that_is_not_there_gives_a_clear_message(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"PostgreSQL database x on .*failed"):
        Store.open(f"postgresql://earshift@/x?host={tmp_path}")


# What is on the disk


def test_every_connection_writes_through_to_the_disk(store: Store) -> None:
    needed = (
        {"journal_mode": "wal", "synchronous": 3, "foreign_keys": 1, "secure_delete": 1}
        if store.engine.dialect.name == "sqlite"
        else {"synchronous_commit": "on", "fsync": "on", "full_page_writes": "on"}
    )
    ask = "PRAGMA" if store.engine.dialect.name == "sqlite" else "SHOW"
    with writing(store.engine) as one, reading(store.engine) as two:
        for connection in (one, two):
            found = {
                name: connection.exec_driver_sql(f"{ask} {name}").scalar_one() for name in needed
            }
            assert found == needed


def test_a_database_that_commits_lazily_is_told_not_to(
    postgresql_server: PostgresqlServer,
) -> None:
    url = postgresql_server.new_database()
    name = url.split("/")[3].split("?")[0]
    for lazy, ours in (("off", "on"), ("remote_apply", "remote_apply")):
        with raw(url) as connection:
            connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = {lazy}")
        with Store.open(url) as store, reading(store.engine) as connection:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar_one() == ours


def test_a_server_that_does_not_sync_is_refused(postgresql_server: PostgresqlServer) -> None:
    server = PostgresqlServer(postgresql_server.tools, "-c fsync=off -c full_page_writes=off")
    try:
        with pytest.raises(StoreError, match=r"fsync is off .* full_page_writes is off and has to"):
            Store.open(server.new_database())
    finally:
        server.close()


def test_a_server_that_was_restarted_is_found_again(
    postgresql_server: PostgresqlServer,
) -> None:
    with Store.open(postgresql_server.new_database()) as store:
        person = a_person(store)
        postgresql_server.stop()
        with pytest.raises(StoreError, match="Nothing was changed"):
            a_person(store, "2")
        postgresql_server.start()
        assert store.people() == [person]


# Files that are not ours, or no longer whole


def test_a_foreign_database_is_refused_and_left_alone(database: str) -> None:
    with raw(database) as connection:
        connection.execute("CREATE TABLE patients (id int)")
    before = None if "://" in database else Path(database).read_bytes()
    with pytest.raises(StoreError, match=r"another program's tables.*patients"):
        Store.open(database)
    with pytest.raises(StoreError, match="another program's tables"):
        Store.upgrade(database)
    if before is not None:
        assert Path(database).read_bytes() == before


@pytest.mark.parametrize("content", [b"name,age\n", b"\x00" * 5000, b"SQLite format 2\x00" * 99])
def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.db"
    file.write_bytes(content)
    for call in (Store.open, Store.upgrade):
        with pytest.raises(StoreError, match="is not an SQLite file"):
            call(file)
    assert file.read_bytes() == content
    assert [made.name for made in tmp_path.iterdir()] == ["x.db"]


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a file"):
        Store.open(tmp_path)


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "x.db").touch()
    with Store.open(tmp_path / "x.db") as store:
        assert store.people() == []


@pytest.mark.parametrize("kept", [17, 100, 512, 4096, 20000, 0.5, 0.99])
def test_a_truncated_file_is_refused_or_found_out_by_check(tmp_path: Path, kept: float) -> None:
    file = tmp_path / "x.db"
    with Store.open(file) as store:
        for number in range(50):
            an_exam(store, a_person(store, str(number)))
    whole = file.read_bytes()
    cut = whole[: int(kept if kept > 1 else kept * len(whole))]
    file.write_bytes(cut)
    try:
        with Store.open(file) as store:
            problems = store.check()
    except StoreError as error:
        problems = [str(error)]
    assert problems
    assert "damaged" in problems[0] or "not an SQLite file" in problems[0]
    with pytest.raises(StoreError):
        Store.restore(file, tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


def test_a_newer_schema_is_refused_and_an_older_one_asks_for_an_upgrade(database: str) -> None:
    with Store.open(database) as store:
        person = a_person(store)
    for version, said in (("0999", "written by a newer earshift"), ("0000", "the older schema")):
        with raw(database) as connection:
            connection.execute(f"UPDATE {tables.VERSION_TABLE} SET version_num = '{version}'")
        with pytest.raises(StoreError, match=said):
            Store.open(database)
        if version == "0999":
            with pytest.raises(StoreError, match=said):
                Store.upgrade(database)
    with raw(database) as connection:
        connection.execute(f"UPDATE {tables.VERSION_TABLE} SET version_num = '{tables.SCHEMA}'")
    with Store.open(database) as store:
        assert store.people() == [person]


READ_ONLY = """
    import sys
    from earshift.store import Store, StoreError
    try:
        Store.open(sys.argv[1])
    except StoreError as error:
        print(error)
"""


@pytest.mark.parametrize("protected", ["file", "folder"])
def test_a_read_only_store_is_refused_with_the_reason(tmp_path: Path, protected: str) -> None:
    folder = tmp_path / "clinic"
    file = folder / "x.db"
    with Store.open(file) as store:
        a_person(store)
    before = file.read_bytes()
    (file if protected == "file" else folder).chmod(0o444 if protected == "file" else 0o555)
    said = finished(python(READ_ONLY, str(file), humble=True))
    assert "is read-only" in said
    folder.chmod(0o700)
    assert file.read_bytes() == before


def test_a_locked_database_says_so_and_can_still_be_read(database: str, short_wait: None) -> None:
    with Store.open(database) as store:
        exam = an_exam(store)
        a_trial(store, exam)
        with raw(database) as other:
            if "://" in database:
                other.execute("BEGIN")
                other.execute("SELECT * FROM people FOR UPDATE")
            else:
                other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="another program is writing"):
                a_trial(store, exam)
            assert len(store.trials(exam.id)) == 1
            other.execute("ROLLBACK")
        a_trial(store, exam)
        assert len(store.trials(exam.id)) == 2


FILL = """
    import resource, signal, sys
    from earshift.store import Store, StoreError
    store = Store.open(sys.argv[1])
    if sys.argv[2] == "limit":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (900_000, 900_000))
    done = 0
    try:
        while True:
            store.add_person(author="mh", name="x" * 5000)
            done += 1
    except StoreError as error:
        print(done, error)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of 2 MB, where this user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    mounted = AS_ROOT and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield place if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("full", ["limit", "disk"])
def test_a_full_disk_keeps_all_that_was_stored(
    tmp_path: Path, small_disk: Path | None, full: str
) -> None:
    # Without the right to mount, the limit on the size of a file stands in for the disk.
    by_disk = full == "disk" and small_disk is not None
    file = (small_disk if by_disk and small_disk else tmp_path) / "x.db"
    said = finished(python(FILL, str(file), "disk" if by_disk else "limit"))
    count, message = said.split(" ", 1)
    assert ("the disk is full" if by_disk else "the disk refuses") in message
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
        names = connection.execute("SELECT count(*) FROM identities").fetchone()[0]
        audits = connection.execute("SELECT count(*) FROM audit").fetchone()[0]
        damage = connection.execute("PRAGMA integrity_check").fetchone()[0]
    connection.close()
    assert int(count) == names == audits > 5
    assert damage == "ok"


# Several at once

APPEND = """
    import sys
    from earshift.store import Store
    with Store.open(sys.argv[1]) as store:
        exam = store.exam(int(sys.argv[2]))
        print("ready", flush=True)
        sys.stdin.readline()
        for _ in range(int(sys.argv[3])):
            store.append_trial(exam.id, author=sys.argv[4], kind="tone", ear=exam.ear,
                frequency_hz=1000.0, asked_db_hl=40.0, played_db_hl=40.0, heard=True)
            print("stored", flush=True)
"""


@pytest.mark.slow
def test_two_processes_writing_at_once_lose_nothing(store: Store, database: str) -> None:
    shared, own = an_exam(store), an_exam(store, a_person(store, "2"))
    writers = [
        python(APPEND, database, str(exam.id), "60", author)
        for exam, author in ((shared, "a"), (shared, "b"), (own, "c"))
    ]
    for writer in writers:
        ready(writer)
    for writer in writers:
        go(writer)
    assert [finished(writer).count("stored") for writer in writers] == [60, 60, 60]
    trials = store.trials(shared.id)
    assert [trial.number for trial in trials] == list(range(1, 121))
    assert sorted(trial.author for trial in trials) == ["a"] * 60 + ["b"] * 60
    assert len(store.trials(own.id)) == 60
    assert len({e.subject for e in store.audit(limit=1000) if "trials" in e.subject}) == 180
    assert store.check() == []


def test_threads_may_share_a_store(store: Store) -> None:
    exam = an_exam(store)
    threads = [
        threading.Thread(target=lambda: [a_trial(store, exam) for _ in range(10)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [trial.number for trial in store.trials(exam.id)] == list(range(1, 41))


CREATE = """
    import sys
    from earshift.store import Store
    import alembic.command
    print("ready", flush=True)
    sys.stdin.readline()
    with Store.open(sys.argv[1]) as store:
        store.add_person(author="mh", code=sys.argv[2])
"""


@pytest.mark.slow
def test_two_processes_may_make_the_same_store(database: str) -> None:
    makers = [python(CREATE, database, str(n)) for n in range(3)]
    for maker in makers:
        ready(maker)
    for maker in makers:
        go(maker)
    for maker in makers:
        finished(maker)
    with Store.open(database) as store:
        assert {person.code for person in store.people()} == {"0", "1", "2"}


SAME_CODE = """
    import sys
    from earshift.store import Store, StoreError
    with Store.open(sys.argv[1]) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        for n in range(20):
            try:
                store.add_person(author="mh", code=str(n))
            except StoreError as error:
                assert "already" in str(error), error
"""


@pytest.mark.slow
def test_two_processes_cannot_give_one_code_to_two_people(store: Store, database: str) -> None:
    makers = [python(SAME_CODE, database) for _ in range(2)]
    for maker in makers:
        ready(maker)
    for maker in makers:
        go(maker)
    for maker in makers:
        finished(maker)
    assert sorted(person.code or "" for person in store.people()) == sorted(map(str, range(20)))


# Backup and restore


@pytest.fixture
def elsewhere(database: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A second, empty place of the same kind."""
    if "://" not in database:
        return str(tmp_path / "restored" / "store.db")
    server: PostgresqlServer = request.getfixturevalue("postgresql_server")
    return server.new_database()


def contents(store: Store) -> list[Any]:
    return [store.people(), list(store.iter_visit_bundles()), store.audit(limit=10**6)]


def test_a_backup_restores_to_the_same_store(store: Store, tmp_path: Path, elsewhere: str) -> None:
    person, _ = a_full_person(store)
    gone = store.add_person(author="mh", name="gone")
    store.erase_person(gone.id, author="mh", reason="asked by the person")
    store.backup(tmp_path / "copy")
    Store.restore(tmp_path / "copy", elsewhere)
    with Store.open(elsewhere) as restored:
        assert contents(restored) == contents(store)
        assert restored.check() == []
        with raw(elsewhere) as connection, pytest.raises(Exception, match="append-only"):
            connection.execute("DELETE FROM trials")
        assert restored.add_person(author="mh").id > gone.id
    assert store.person(person.id) == person


def test_backup_and_restore_while_another_process_appends(
    store: Store, database: str, tmp_path: Path, elsewhere: str
) -> None:
    exam = an_exam(store)
    writer = python(APPEND, database, str(exam.id), "1000", "a")
    ready(writer)
    go(writer)
    assert writer.stdout is not None
    assert [writer.stdout.readline() for _ in range(20)] == ["stored\n"] * 20
    store.backup(tmp_path / "copy")
    Store.restore(tmp_path / "copy", elsewhere)
    finished(writer)
    with Store.open(elsewhere) as restored:
        copied = restored.trials(exam.id)
        assert restored.check() == []
    trials = store.trials(exam.id)
    assert len(trials) == 1000
    assert copied == trials[: len(copied)]
    assert 20 <= len(copied) < 1000  # taken in the middle, or this proves nothing


def test_a_backup_overwrites_nothing_and_needs_its_folder(store: Store, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("precious")
    with pytest.raises(StoreError, match="already exists"):
        store.backup(tmp_path / "kept")
    with pytest.raises(StoreError, match="there is no folder"):
        store.backup(tmp_path / "missing" / "copy")
    assert (tmp_path / "kept").read_text() == "precious"


def test_a_restore_overwrites_nothing(store: Store, database: str, tmp_path: Path) -> None:
    person = a_person(store)
    store.backup(tmp_path / "copy")
    with pytest.raises(StoreError, match=r"has .* open|is not empty"):
        Store.restore(tmp_path / "copy", database)
    assert store.people() == [person]


def test_a_log_left_behind_is_never_replayed_into_a_restored_store(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store:
        store.backup(tmp_path / "copy")
    (tmp_path / "b.db-wal").write_bytes(b"of another store")
    with pytest.raises(StoreError, match=r"b\.db-wal already exists"):
        Store.restore(tmp_path / "copy", tmp_path / "b.db")


def test_what_is_no_backup_is_not_restored(tmp_path: Path) -> None:
    target = tmp_path / "new.db"
    (tmp_path / "text").write_text("hello")
    with sqlite3.connect(tmp_path / "foreign.db") as connection:
        connection.execute("CREATE TABLE x (y)")
    connection.close()
    sqlite3.connect(tmp_path / "empty.db").close()
    with Store.open(tmp_path / "newer.db"):
        pass
    with sqlite3.connect(tmp_path / "newer.db") as connection:
        connection.execute(f"UPDATE {tables.VERSION_TABLE} SET version_num = '0999'")
    connection.close()
    for name, said in (
        ("missing", "cannot be read"),
        ("text", "is not an SQLite file"),
        ("foreign.db", "another program's tables"),
        ("empty.db", "is not a backup of a store"),
        ("newer.db", "written by a newer earshift"),
    ):
        with pytest.raises(StoreError, match=said):
            Store.restore(tmp_path / name, target)
        assert not target.exists()
    with pytest.raises(StoreError, match="cannot be restored into PostgreSQL database x"):
        Store.restore(tmp_path / "newer.db", "postgresql://localhost/x")


def test_a_damaged_dump_leaves_an_empty_database(
    postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    with Store.open(postgresql_server.new_database()) as store:
        a_full_person(store)
        store.backup(tmp_path / "dump")
    whole = (tmp_path / "dump").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    target = postgresql_server.new_database()
    with pytest.raises(StoreError, match="pg_restore failed"):
        Store.restore(tmp_path / "cut", target)
    with pytest.raises(StoreError, match="cannot be restored into"):
        Store.restore(tmp_path / "dump", tmp_path / "new.db")
    Store.restore(tmp_path / "dump", target)


def test_postgresql_without_its_tools_says_what_is_missing(
    postgresql_server: PostgresqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(postgresql_server.new_database()) as store:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(StoreError, match="pg_dump is needed"):
            store.backup(tmp_path / "dump")
    assert list(tmp_path.iterdir()) == []


# Schemas


def test_the_migrations_make_the_tables_that_the_code_expects(store: Store) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    assert ScriptDirectory(str(database.MIGRATIONS)).get_current_head() == tables.SCHEMA
    with store.engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": tables.VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, tables.metadata) == []


NEXT_SCHEMA = '''
"""A schema of the future, for the test of upgrades."""
import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("devices", sa.Column("colour", sa.Text))
    {then}
'''


@pytest.fixture
def next_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pretend that this version has one schema more; the file of its migration."""
    folder = tmp_path / "migrations"
    shutil.copytree(database.MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "versions" / "schema_0006.py"
    file.write_text(NEXT_SCHEMA.format(then=""))
    monkeypatch.setattr(database, "MIGRATIONS", folder)
    return file


def pretend_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "SCHEMA", "0006")
    monkeypatch.setattr(tables, "SCHEMA", "0006")


def test_an_upgrade_migrates_and_keeps_a_copy_of_what_was(
    database: str, next_schema: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(database) as store:
        person, screen = a_full_person(store)
        results = store.results(screen.id)
    assert Store.upgrade(database) is None
    pretend_newer(monkeypatch)
    with pytest.raises(StoreError, match="has the older schema"):
        Store.open(database)
    copy = Store.upgrade(database)
    with Store.open(database) as store:
        assert store.person(person.id) == person
        assert store.results(screen.id) == results
        assert store.check() == ["the column devices.colour is not ours"]  # of no code yet
    if "://" in database:
        assert copy is None
    else:
        assert copy == Path(f"{database}.schema-0005")
        with sqlite3.connect(copy) as connection:
            kept = connection.execute("SELECT name FROM identities").fetchall()
        connection.close()
        assert ("Ada King",) in kept
    assert Store.upgrade(database) is None


def test_an_upgrade_that_fails_changes_nothing(
    database: str, next_schema: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(database) as store:
        person = a_person(store)
    next_schema.write_text(NEXT_SCHEMA.format(then='op.execute("SELECT nonsense FROM nowhere")'))
    with monkeypatch.context() as newer:
        pretend_newer(newer)
        with pytest.raises(StoreError, match="Nothing was changed"):
            Store.upgrade(database)
    with Store.open(database) as store:
        assert store.people() == [person]
        assert store.check() == []


@pytest.mark.parametrize("expected", sorted(FIXTURES.glob("store_schema_*.json")), ids=str)
def test_every_schema_ever_released_still_opens_with_the_same_verdicts(
    expected: Path, tmp_path: Path
) -> None:
    file = tmp_path / "old.db"
    with sqlite3.connect(file) as connection:
        connection.executescript(expected.with_suffix(".sql").read_text(encoding="utf-8"))
    connection.close()
    file.chmod(0o600)
    Store.upgrade(file)
    with Store.open(file) as store:
        assert summary(store) == json.loads(expected.read_text(encoding="utf-8"))
        assert store.check() == []
        for bundle in store.iter_visit_bundles():
            for exam in bundle.exams:
                if exam.exam.kind == "screen":
                    assert_replays(exam)


def test_an_upgrade_from_0002_lists_everybody_who_was_stored(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr("earshift.store.database.SCHEMA", "0002")
        older.setattr(tables, "SCHEMA", "0002")
        with Store.open(database) as store, writing(store.engine) as connection:
            at = "2026-03-01T12:00:00.000000Z"
            connection.exec_driver_sql(f"INSERT INTO people (created_at) VALUES ('{at}')")
            connection.exec_driver_sql(
                "INSERT INTO identities (person_id, code, found_by, at, author, reason) "
                f"VALUES (1, 'A1', 'a1', '{at}', 'mh', '')"
            )
    Store.upgrade(database)
    with Store.open(database) as store:
        assert store.check() == []
        person = store.person(1)
        assert (person.code, person.department, person.merged_into) == ("A1", None, None)
        assert [item.code for item in worklist(store, date(2026, 3, 2)).items] == ["A1"]


def assert_replays(exam: Any) -> None:
    """The stored design and trials still rebuild the screen, with its catch trials."""
    live = [trial for trial in exam.trials if trial.voided_at is None]
    screen = es.Screen.from_dict(
        {
            "kind": "screen",
            "schema": 1,
            "design": exam.exam.design,
            "trials": [
                es.Trial(es.Tone(one.frequency_hz, one.played_db_hl), one.heard).to_dict()
                for one in live
                if one.kind == "tone"
            ],
            "catches": [one.heard for one in live if one.kind == "catch"],
        }
    )
    shown = exam.results[-1].shown["verdict"]
    verdict = screen.verdict()
    assert (verdict.decision, verdict.tones) == (shown["decision"], shown["tones"])
    assert verdict.false_alarms == shown["false_alarms"]


# Check


def damaged(database: str, *statements: str) -> list[str]:
    """What check says after raw SQL, with the triggers switched off where they stand in the way."""
    with raw(database) as connection:
        for statement in statements:
            connection.execute(statement)
    with Store.open(database) as store:
        return store.check()


def without_guard(database: str, table: str, statement: str) -> list[str]:
    """The statement between switching the table's triggers off and on again."""
    if "://" in database:
        names = [f"{table}_no_{what}" for what in ("update", "delete")]
        off = [f"ALTER TABLE {table} DISABLE TRIGGER {name}" for name in names]
        on = [f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}" for name in names]
        return [*off, statement, *on]
    with raw(database) as connection:
        rows = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", (table,)
        ).fetchall()
    return [*(f"DROP TRIGGER {name}" for name, _ in rows), statement, *(sql for _, sql in rows)]


@pytest.fixture
def sound(database: str) -> str:
    """A database with rows everywhere and nothing wrong."""
    with Store.open(database) as store:
        a_full_person(store)
        assert store.check() == []
    return database


def test_check_finds_a_changed_answer(sound: str) -> None:
    change = "UPDATE trials SET heard = NOT heard WHERE exam_id = 2 AND number = 2"
    said = damaged(sound, *without_guard(sound, "trials", change))
    assert said == [
        "trials:3 is not as it was written",
        "results:1 does not match the trials it was made from",
    ]


def test_check_finds_a_missing_trial(sound: str) -> None:
    remove = "DELETE FROM trials WHERE exam_id = 2 AND number = 1"
    said = damaged(sound, *without_guard(sound, "voids", "DELETE FROM voids"))
    assert said == ["voids:1 is missing, and nobody erased it"]
    said = damaged(sound, *without_guard(sound, "trials", remove))
    assert said == [
        "exams:2 lacks some of its trials",
        "trials:2 is missing, and nobody erased it",
        "voids:1 is missing, and nobody erased it",
    ]


def test_check_finds_triggers_that_are_gone(sound: str) -> None:
    on = " ON trials" if "://" in sound else ""
    said = damaged(sound, f"DROP TRIGGER trials_no_delete{on}")
    assert said == ["the trigger trials_no_delete is missing or switched off"]


def test_check_finds_triggers_that_are_switched_off(
    postgresql_server: PostgresqlServer,
) -> None:
    url = postgresql_server.new_database()
    Store.open(url).close()
    said = damaged(url, "ALTER TABLE audit DISABLE TRIGGER audit_no_update")
    assert said == ["the trigger audit_no_update is missing or switched off"]


def test_check_finds_identities_that_came_back_after_an_erasure(database: str) -> None:
    with Store.open(database) as store:
        person = a_person(store)
        store.erase_person(person.id, author="mh", reason="asked by the person")
    at = "'2026-01-01T00:00:00.000000Z'"
    said = damaged(
        database,
        "INSERT INTO identities (person_id, name, found_by, at, author) "
        f"VALUES ({person.id}, 'Ada', 'ada', {at}, 'x')",
    )
    assert said == [
        f"people:{person.id} was erased and still has identities",
        "identities:2 is in no link of the chain",
    ]


@pytest.mark.parametrize("time", ["2026-01-01 00:00:00.000000", "2026-01-01T00:00:00.000000+02:00"])
def test_check_finds_times_that_are_not_utc(tmp_path: Path, time: str) -> None:
    file = str(tmp_path / "s.db")
    Store.open(file).close()
    said = damaged(file, f"INSERT INTO people (created_at) VALUES ('{time}')")
    assert said == [
        "people.created_at holds times that are not UTC",
        "people:1 is in no link of the chain",
    ]


def test_check_finds_a_file_that_others_can_read(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    Store.open(file).close()
    file.chmod(0o644)
    assert damaged(str(file)) == [f"{file} can be read by other users: run chmod 600 on it"]


def test_check_finds_rows_that_refer_to_nothing(tmp_path: Path) -> None:
    file = str(tmp_path / "s.db")
    Store.open(file).close()
    said = damaged(
        file,
        "INSERT INTO visits (person_id, started_at, zone, mode, author) "
        "VALUES (99, '2026-01-01T00:00:00.000000Z', 'UTC', 'self', 'x')",
    )
    assert said == [
        "visits:1 refers to a missing row of people",
        "visits:1 is in no link of the chain",
    ]


def test_check_finds_a_damaged_page(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    with Store.open(file) as store:
        for number in range(200):
            a_person(store, str(number))
    content = bytearray(file.read_bytes())
    with sqlite3.connect(file) as connection:
        page = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'identities_by_code'"
        ).fetchone()[0]
    connection.close()
    content[(page - 1) * 4096 : page * 4096] = b"\x55" * 4096
    file.write_bytes(content)
    with Store.open(file) as store:
        assert any("damaged" in problem for problem in store.check())


def test_reading_leaves_no_transaction_open(store: Store) -> None:
    a_full_person(store)
    store.check()
    list(store.iter_visit_bundles())
    engine = connect(store._place)
    try:
        with writing(engine) as connection:
            connection.execute(text("SELECT 1"))
    finally:
        engine.dispose()
