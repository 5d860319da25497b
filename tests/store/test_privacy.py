"""What was typed about somebody goes with them: from every query and from every file."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from test_store import AUDIOGRAM, a_person, a_trial

from earshift.clinic.people import kept_until
from earshift.store import NotForgotten, Seal, Store, StoreError, tables
from earshift.store.database import writing
from support.databases import PostgresqlServer, raw

CANARY = "Quokka"  # in every text, name and code of whom is erased
KEPT = "Numbat"  # of the others


def typed(store: Store, mark: str) -> int:
    """A person with something typed everywhere, who listens in a daily check as well."""
    person = store.add_person(author="mh", code=f"{mark}-1", name=f"Ann {mark}", department=mark)
    store.correct_person(person.id, author="mh", reason=f"{mark} reason", job=f"{mark} job")
    other = store.add_person(author="mh", code=f"{mark}-2")
    device = store.add_device(author="mh", name="AC40")
    day = date(2026, 3, 1)
    store.add_calibration(
        device.id, author="mh", done_on=day, due_on=day, laboratory=f"Ann {mark}",
        coupler="ears", kind="biological", table={},
    )  # fmt: skip
    visit = store.open_visit(
        person.id, author="mh", zone="UTC", mode="supervised", checklist={"remarks": f"{mark} ear"}
    )
    opening = {"author": "mh", "ear": "right", "engine_version": "0.1"}
    reference = store.open_exam(
        visit.id, kind="audiogram", design=AUDIOGRAM, source=f"{mark}.csv", **opening
    )
    exam = store.open_exam(
        visit.id, kind="screen", design={}, reference_exam_id=reference.id, **opening
    )
    store.void_trial(a_trial(store, exam).id, author="mh", reason=f"{mark} void")
    store.set_exam_state(exam.id, "paused", author="mh", reason=f"{mark} pause")
    store.set_baseline(person.id, "right", reference.id, author="mh", reason=f"{mark} baseline")
    store.close_verdict(exam.id, author="mh", reason=f"{mark} closing")
    store.say_work_related(exam.id, True, author="mh", name="Dr K", reason=f"{mark} work")
    store.add_follow_up(
        visit.id, "training", author="mh", done_on=day, done_by=f"{mark} by", details=f"{mark} how"
    )
    store.add_note(person.id, author="mh", text=f"{mark} note", visit_id=visit.id)
    store.merge_people(other.id, person.id, author="mh", reason=f"{mark} merge")
    store.sign_visit(store.visit_bundle(visit.id), author="mh", name="Dr K", meaning="reviewed")
    return person.id


def shown(store: Store, person_id: int) -> str:
    """All that can be read of somebody."""
    exams = store.exams(person_id)
    told: list[Any] = [
        store.person(person_id), store.visits(person_id), exams, store.notes(person_id),
        store.baselines(person_id), store.follow_ups(person_id), store.audit(limit=1000),
        [store.closings(exam.id) for exam in exams], store.devices(),
        store.work_relations([exam.id for exam in exams]), store.calibrations(1),
        [store.snapshot(exam.id) for exam in exams], list(store.iter_visit_bundles(person_id)),
    ]  # fmt: skip
    return repr(told)


WORDS = ("reason", "ear", "void", "pause", "baseline", "closing", "work", "by", "how", "note")


def test_what_was_typed_is_read_where_it_belongs(store: Store) -> None:
    person = typed(store, CANARY)
    said = shown(store, person)
    for word in WORDS[1:]:  # the reason of a correction is history
        assert f"{CANARY} {word}" in said
    assert f"{CANARY}.csv" in said
    assert store.calibrations(1)[0].laboratory == f"Ann {CANARY}"
    assert store.check() == []


def files_with(places: list[Path], word: str) -> list[str]:
    found = []
    for place in places:
        for file in [place] if place.is_file() else sorted(place.rglob("*")):
            if not file.is_file() or "pg_wal" in file.parts:
                continue
            with suppress(FileNotFoundError):  # a server at work deletes files of its own
                content = file.read_bytes()
                if word.encode() in content or word.casefold().encode() in content:
                    found.append(file.name)
    return found


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, list[Path]]]:
    """A database, and all files that it lies in; the server is this test's own."""
    if request.param == "sqlite":
        file = tmp_path / "store.db"
        yield str(file), [tmp_path]
        return
    tools = request.getfixturevalue("postgresql_server").tools
    server = PostgresqlServer(tools)
    try:
        yield server.new_database(), [server.folder / "data"]
    finally:
        server.close()


@pytest.mark.parametrize("delete_trials", [False, True])
def test_no_file_holds_what_was_erased(place: tuple[str, list[Path]], delete_trials: bool) -> None:
    where, files = place
    with Store.open(where) as store:
        typed(store, KEPT)
        erased = typed(store, CANARY)
        if "://" in where:
            with raw(where) as connection:
                connection.execute("ANALYZE")  # now the planner knows names, too
                connection.execute("CHECKPOINT")
        assert files_with(files, CANARY)
        store.erase_person(
            erased, author="mh", reason="asked by the person", delete_trials=delete_trials
        )
        assert CANARY not in shown(store, erased)
        assert KEPT in shown(store, 1)
        assert store.check() == []
        if "://" in where:
            with raw(where) as connection:
                connection.execute("CHECKPOINT")
        assert files_with(files, CANARY) == []
        assert files_with(files, KEPT)
    assert files_with(files, CANARY) == []


def test_a_program_that_reads_is_waited_for_and_then_said(
    store: Store, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = a_person(store)
    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ" if "://" in database else "BEGIN"
    with raw(database) as reader:
        reader.execute(begin)
        reader.execute("SELECT count(*) FROM devices").fetchall()
        monkeypatch.setattr("earshift.store.database.WAIT_SECONDS", 0.5)
        hasty = Store.open(database)  # SQLite's own patience is settled when it is opened
        with hasty, pytest.raises(NotForgotten, match="another program is reading") as refused:
            hasty.erase_person(person.id, author="mh", reason="other")
        assert refused.value.code == "not-forgotten"
        assert store.person(person.id).erased_at is not None
        reader.execute("ROLLBACK")
    store.forget()
    assert store.check() == []


def test_a_reader_that_ends_in_time_stands_in_nobodys_way(store: Store, database: str) -> None:
    person = a_person(store)
    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ" if "://" in database else "BEGIN"
    reading, done = threading.Event(), threading.Event()

    def read() -> None:
        with raw(database) as reader:
            reader.execute(begin)
            reader.execute("SELECT count(*) FROM devices").fetchall()
            reading.set()
            done.wait(1.5)
            reader.execute("ROLLBACK")

    thread = threading.Thread(target=read)
    thread.start()
    assert reading.wait(30)
    store.erase_person(person.id, author="mh", reason="other")
    done.set()
    thread.join()


def test_an_erasure_takes_no_words_of_anybodys(store: Store) -> None:
    person = a_person(store)
    with pytest.raises(StoreError, match="asked by the person, no longer needed"):
        store.erase_person(person.id, author="mh", reason="Ann asked for it")
    assert store.person(person.id).erased_at is None


def test_text_about_two_records_goes_with_either(store: Store, database: str) -> None:
    one, other = a_person(store, "1"), a_person(store, "2")
    store.merge_people(one.id, other.id, author="mh", reason=f"{CANARY} twice")
    store.separate_people(one.id, author="mh", reason=f"{CANARY} not")
    store.erase_person(other.id, author="mh", reason="other")
    with raw(database) as connection:
        texts = connection.execute("SELECT text FROM texts").fetchall()
    assert texts == []
    assert store.check() == []


# Older databases


@pytest.fixture
def old(tmp_path: Path) -> Path:
    file = tmp_path / "old.db"
    script = Path(__file__).parent / "fixtures" / "store_schema_0004.sql"
    with sqlite3.connect(file) as connection:
        connection.executescript(script.read_text(encoding="utf-8"))
    connection.close()
    file.chmod(0o600)
    return file


def test_an_upgrade_moves_the_text_and_says_since_when_the_chain_speaks(old: Path) -> None:
    with sqlite3.connect(old) as connection:
        links, sha256 = connection.execute(
            "SELECT id, sha256 FROM chain ORDER BY id DESC LIMIT 1"
        ).fetchone()
    connection.close()
    Store.upgrade(old)
    with Store.open(old) as store:
        report = store.inspect()
        assert (report.problems, report.notes) == ((), ())
        assert report.since is not None
        # What was sealed before is no longer there to be compared, its last link neither.
        for seal in (Seal(links, sha256), Seal(1, "0" * 64)):
            assert "is gone" in store.inspect([seal]).problems[0]
        audit = store.audit(limit=1000)
        assert [one.reason for one in audit if one.action == "void"] == [
            "headphones were the wrong way round"
        ]
        assert [one.reason for one in audit if one.action == "erase"] == ["other"]
        assert audit[-1].details["after"] == f"{links}-{sha256}"
        store.erase_person(1, author="mh", reason="other")
        assert store.check() == []
    assert files_with([old], "wrong way round") == []
    assert files_with([old], "asked in writing") == []  # of somebody erased before


def test_a_chain_that_did_not_hold_is_remembered(old: Path) -> None:
    with sqlite3.connect(old) as connection:
        made = connection.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'audit_no_update'"
        ).fetchone()[0]
        connection.execute("DROP TRIGGER audit_no_update")
        connection.execute("UPDATE audit SET author = 'sly' WHERE id = 2")
        connection.execute(made)
    connection.close()
    Store.upgrade(old)
    with Store.open(old) as store:
        report = store.inspect()
        assert report.problems == ()
        assert "audit:2 is not as it was written" in report.notes[0]
        begun = store.audit(limit=1000)[-1]
        assert begun.details["problems"] == ["audit:2 is not as it was written"]


def test_an_old_postgresql_database_moves_its_text(
    postgresql_server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = postgresql_server.new_database()
    at = "2026-03-01T12:00:00.000000Z"
    with monkeypatch.context() as older:
        older.setattr("earshift.store.database.SCHEMA", "0004")
        older.setattr(tables, "SCHEMA", "0004")
        with Store.open(where) as store, writing(store.engine) as connection:
            del connection.info["earshift_new_rows"]
            for statement in (
                f"INSERT INTO people (created_at) VALUES ('{at}'), ('{at}')",
                "INSERT INTO identities (person_id, code, found_by, at, author, reason, salt) "
                f"VALUES (1, 'A1', 'a1', '{at}', 'mh', '{CANARY} why', 's')",
                "INSERT INTO visits (person_id, started_at, zone, mode, author, checklist, salt) "
                f"VALUES (1, '{at}', 'UTC', 'self', 'mh', '{{\"remarks\": \"{CANARY}\"}}', 's')",
                "INSERT INTO merges (person_id, into_id, at, author, reason, salt) "
                f"VALUES (2, 1, '{at}', 'mh', '{CANARY} one', 's')",
                "INSERT INTO audit (at, author, action, subject, reason, details) "
                f"VALUES ('{at}', 'mh', 'view', 'visits:1', '{CANARY}', '{{}}')",
            ):
                connection.exec_driver_sql(statement.replace("%", "%%"))
            connection.info["earshift_new_rows"] = []
    Store.upgrade(where)
    with Store.open(where) as store:
        assert store.visits(1)[0].checklist == {"remarks": CANARY}
        assert store.audit()[0].reason == CANARY
        assert store.check() == []
        assert "did not hold" in store.inspect().notes[0]  # the rows above are in no link
        store.erase_person(1, author="mh", reason="other")
        assert CANARY not in repr(store.audit(limit=1000)) + repr(store.visits(1))
        with raw(where) as connection:
            assert connection.execute("SELECT count(*) FROM texts").fetchone() == (0,)
        assert store.check() == []
    postgresql_server.give_back(where)


# Retention


def test_records_are_kept_for_so_long_after_somebody_has_left(store: Store) -> None:
    employed, gone = a_person(store), a_person(store, "4712")
    left = date(2026, 3, 1)
    gone = store.correct_person(gone.id, author="mh", reason="roster", left_on=left)
    assert kept_until(store, employed) is None
    assert kept_until(store, gone) == left  # OSHA asks for as long as they are employed
    store.set_site_setting("retention_days", 365, author="mh", reason="the law here")
    assert kept_until(store, employed) is None
    assert kept_until(store, gone) == date(2027, 3, 1)
    erased = store.erase_person(gone.id, author="mh", reason="no longer needed")
    assert kept_until(store, erased) is None
    assert kept_until(store, replace(gone, erased_at=erased.erased_at)) is None
