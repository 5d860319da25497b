"""Tampering is seen: every attack on what is stored, past the store, on both databases."""

import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from test_store import a_full_person, a_person, a_trial, an_exam

from earshift.clinic.worklist import astray, refresh, worklist
from earshift.store import Seal, Store, StoreError, rows, tables
from earshift.store.chain import ChainReport, chain_as_found, chained_tables
from earshift.store.database import writing
from earshift.store.trials import live_trials, trials_sha256
from support.databases import PostgresqlServer, prepare, raw


@pytest.fixture
def sound(database: str) -> str:
    """A database with rows everywhere and nothing wrong."""
    prepare(database)
    with Store.open(database) as store:
        a_full_person(store)
        report = store.inspect()
        assert (report.problems, report.since) == ((), None)
    return database


def attacked(database: str, *statements: str) -> list[str]:
    """What the check says after raw SQL by somebody who owns the database: no trigger fires."""
    with raw(database) as connection:
        connection.execute("BEGIN")
        if "://" in database:
            tables_ = list(tables.metadata.tables)
            for table in tables_:
                connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL")
            for statement in statements:
                connection.execute(statement)
            for table in tables_:
                connection.execute(f"ALTER TABLE {table} ENABLE TRIGGER ALL")
                made = connection.execute(
                    "SELECT tgname FROM pg_trigger "
                    "WHERE NOT tgisinternal AND tgrelid = %s::regclass",
                    (table,),
                ).fetchall()
                for (name,) in made:
                    connection.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}")
        else:
            made = connection.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
            ).fetchall()
            for name, _ in made:
                connection.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                connection.execute(statement)
            for _, sql in made:
                connection.execute(sql)
        connection.execute("COMMIT")
    with Store.open(database) as store:
        return store.check()


def test_an_attack_that_changes_nothing_is_none(sound: str) -> None:
    assert attacked(sound, "UPDATE trials SET heard = heard") == []


def test_a_third_of_the_audit_is_deleted(sound: str) -> None:
    said = attacked(sound, "DELETE FROM audit WHERE id % 3 = 0")
    assert said[0] == "audit:3 is missing, and nobody erased it"
    assert len(said) == 4


def test_a_verdict_is_forged(sound: str) -> None:
    said = attacked(sound, """UPDATE results SET shown = '{"p": 0.75}'""")
    assert said == ["results:1 is not as it was written"]


def test_an_answer_is_flipped_and_the_result_gets_a_new_hash(sound: str) -> None:
    attacked(sound, "UPDATE trials SET heard = NOT heard WHERE id = 3")
    with Store.open(sound) as store:
        new = trials_sha256(live_trials(store.trials(2)))
    said = attacked(sound, f"UPDATE results SET trials_sha256 = '{new}'")
    assert said == ["trials:3 is not as it was written", "results:1 is not as it was written"]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE identities SET name = 'Ada Byron' WHERE id = 2", "identities:2 is not as"),
        ("UPDATE texts SET text = 'x' WHERE of_table = 'voids'", "texts:"),
        ("DELETE FROM voids", "voids:1 is missing"),
        ("UPDATE audit SET author = 'x' WHERE id = 5", "audit:5 is not as"),
        ("UPDATE exams SET kind = 'x' WHERE id = 1", "exams:1 is not as"),
        ("UPDATE trials SET at = '2020-01-01T00:00:00.000000Z' WHERE id = 1", "trials:1 is not as"),
        ("UPDATE calibrations SET due_on = '2099-01-01'", "calibrations:1 is not as"),
        ("DELETE FROM chain WHERE id = 5", "chain:5 is missing"),
        ("UPDATE chain SET entries = '[]' WHERE id = 4", "chain:4 does not fit"),
        ("UPDATE chain SET sha256 = 'x' WHERE id = 4", "chain:4 does not fit"),
    ],
)
def test_the_first_row_that_does_not_fit_is_named(sound: str, statement: str, said: str) -> None:
    assert attacked(sound, statement)[0].startswith(said)


def test_a_row_that_was_slipped_in_is_named(sound: str) -> None:
    said = attacked(
        sound,
        "INSERT INTO notes (person_id, at, author) VALUES (1, '2026-01-01T00:00:00.000000Z', 'mh')",
    )
    assert said == ["notes:2 is in no link of the chain"]


def test_a_chain_that_was_forged_or_cut_off_does_not_match_its_seal(sound: str) -> None:
    with Store.open(sound) as store:
        before = store.seal()
        a_trial(store, store.exam(2))
        after = store.seal()
        assert after.links == before.links + 1
        assert Seal.parse(str(after)) == after
        assert store.inspect([before, after, Seal(0, "0" * 64)]).problems == ()
        forged = Seal(before.links, "f" * 64)
        assert store.inspect([forged]).problems == (
            f"chain:{before.links} is not the link that was sealed",
        )
    said = attacked(
        sound,
        f"DELETE FROM chain WHERE id = {after.links}",
        "DELETE FROM trials WHERE id = 4",
        "DELETE FROM audit WHERE id = (SELECT max(id) FROM audit)",
    )
    assert said == []  # the end of a chain is known to those alone who keep its seal
    with Store.open(sound) as store:
        assert store.inspect([before]).problems == ()
        assert store.inspect([after]).problems == (
            f"the chain ends at link {before.links}: link {after.links}, which was sealed, "
            "is missing",
        )


def test_a_chain_that_begins_anew_proves_nothing_of_what_was_sealed(sound: str) -> None:
    with Store.open(sound) as store:
        sealed = store.seal()
    attacked(sound, """UPDATE results SET shown = '{"p": 0.75}'""", "DELETE FROM chain")
    with Store.open(sound) as store:
        with writing(store.engine) as connection:
            pretended = ChainReport(head=sealed, since=None, problems=())
            chain_as_found(connection, list(chained_tables().values()), pretended)
        assert store.inspect([sealed]).problems[0] == (
            f"link {sealed.links}, which was sealed, is gone: the chain began anew after link "
            f"{sealed.links}"
        )


@pytest.mark.parametrize(
    "wrong", ["", "12", "12-abc", "9" * 5000 + "-" + "0" * 64, "x-" + "0" * 64, "1-" + "g" * 64]
)
def test_what_is_no_seal_is_refused(wrong: str) -> None:
    with pytest.raises(StoreError, match="a seal is the number of links"):
        Seal.parse(wrong)


# Erasure


@pytest.mark.parametrize("delete_trials", [False, True])
def test_an_erasure_breaks_nothing_and_leaves_nothing_to_guess(
    sound: str, delete_trials: bool
) -> None:
    with Store.open(sound) as store:
        salts = _salts(sound)
        store.erase_person(
            1, author="mh", reason="asked by the person", delete_trials=delete_trials
        )
        assert store.check() == []
    left = _salts(sound)
    gone = {"identities", "notes"} | ({"trials", "results", "voids"} if delete_trials else set())
    for table in gone:
        assert left[table] == []
        assert {len(salt) for salt in salts[table]} == {32}


def _salts(database: str) -> dict[str, list[str]]:
    with raw(database) as connection:
        return {
            name: [row[0] for row in connection.execute(f"SELECT salt FROM {name}").fetchall()]
            for name, table in tables.metadata.tables.items()
            if "salt" in table.c
        }


def test_what_an_erasure_does_not_cover_may_not_be_missing(sound: str) -> None:
    with Store.open(sound) as store:
        store.erase_person(1, author="mh", reason="asked by the person")  # the identity alone
    said = attacked(sound, "DELETE FROM presses", "DELETE FROM results")
    assert said == ["results:1 is missing, and nobody erased it"]


def test_a_tombstone_that_was_slipped_in_is_named(sound: str) -> None:
    said = attacked(
        sound,
        "INSERT INTO erasures (person_id, at, author, reason, trials_deleted) "
        "VALUES (1, '2026-01-01T00:00:00.000000Z', 'mh', 'x', '1')",
        "DELETE FROM notes",
        "DELETE FROM texts",
        "DELETE FROM identities",
        "DELETE FROM standings",
    )
    assert said[0] == "erasures:1 is in no link of the chain"


def test_an_erasure_lets_go_only_the_words_that_it_took(sound: str) -> None:
    """Words about somebody without a record go with whoever is erased under that name."""
    with Store.open(sound) as store:
        listened = {"done_on": date(2026, 3, 1), "due_on": date(2026, 3, 1), "coupler": "ears"}
        for name in ("Ada Lovelace", "Grace Hopper"):
            store.add_calibration(
                1, author="mh", laboratory=name, kind="biological", table={}, **listened
            )
        store.erase_person(1, author="mh", reason="asked by the person")
        assert store.check() == []
    left = "SELECT id FROM texts WHERE person_id IS NULL"
    with raw(sound) as connection:
        ((words,),) = connection.execute(left).fetchall()  # of the other one
        with pytest.raises(Exception, match="append-only"):
            connection.execute("DELETE FROM texts")
    said = attacked(sound, f"DELETE FROM texts WHERE id = {words}")
    assert said == [f"texts:{words} is missing, and nobody erased it"]


# Addresses


def test_an_address_that_leads_to_somebody_else_is_named(sound: str) -> None:
    with Store.open(sound) as store:
        other = a_person(store, "4712")
        store.handles("people", [1, other.id])
    said = attacked(sound, f"UPDATE handles SET row_id = row_id + {other.id} WHERE id = 1")
    assert said == ["handles:1 is not as it was written"]


def test_rows_that_were_slipped_in_are_named_from_the_first_on(sound: str) -> None:
    at = "2026-01-01T00:00:00.000000Z"
    new = [f"({number}, '{at}')" for number in (930, 910, 920)]
    said = attacked(sound, f"INSERT INTO people (id, created_at) VALUES {', '.join(new)}")
    assert [one.partition(" ")[0] for one in said] == ["people:910", "people:920", "people:930"]


# Triggers


def test_emptied_triggers_are_found(sound: str) -> None:
    with raw(sound) as connection:
        if "://" in sound:
            connection.execute(
                "CREATE OR REPLACE FUNCTION trials_append_only() RETURNS trigger "
                "LANGUAGE plpgsql AS $$ BEGIN RETURN COALESCE(NEW, OLD); END $$"
            )
            wrong = ["trials_no_delete", "trials_no_truncate", "trials_no_update"]
        else:
            made = connection.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
            ).fetchall()
            for name, sql in made:
                connection.execute(f"DROP TRIGGER {name}")
                connection.execute(f"{sql[: sql.index('BEGIN')]} BEGIN SELECT 1; END")
            wrong = sorted(name for name, _ in made)
    with Store.open(sound) as store:
        assert store.check() == [f"the trigger {name} does not do what it should" for name in wrong]


def test_a_trigger_of_somebody_else_is_found(sound: str) -> None:
    with raw(sound) as connection:
        if "://" in sound:
            connection.execute(
                "CREATE FUNCTION nobody() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN NEW.heard := true; RETURN NEW; END $$"
            )
            connection.execute(
                "CREATE TRIGGER deaf BEFORE INSERT ON trials FOR EACH ROW EXECUTE FUNCTION nobody()"
            )
        else:
            connection.execute("CREATE TRIGGER deaf AFTER INSERT ON trials BEGIN SELECT 1; END")
    with Store.open(sound) as store:
        assert store.check() == ["the trigger deaf is not ours"]


# What is worked out from the records: no copy of anything, and yet what a clinic looks at


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM stale",
        "DELETE FROM standings",
        "DELETE FROM tasks",
        "UPDATE standings SET full_day = 999999, any_day = 999999",
        "UPDATE standings SET left_day = 1",
        "INSERT INTO tested (person_id, exam_id, ear, day, complete, shift) "
        "SELECT person_id, exam_id, 'left', 999999, TRUE, '' FROM tasks",
    ],
)
def test_nobody_is_taken_off_a_list_unseen(sound: str, statement: str) -> None:
    with Store.open(sound) as store:
        assert astray(store) == []
        worked_out = statement != "DELETE FROM stale"
        if worked_out:
            worklist(store, date(2026, 7, 24))
            assert astray(store) == []
        listed = worklist(store, date(2026, 7, 24)).items if worked_out else ()
    before = _rows_in(sound, statement)
    attacked(sound, statement)
    assert _rows_in(sound, statement) != before
    with Store.open(sound) as store:
        assert astray(store)
        assert refresh(store, everybody=True) >= 1
        assert astray(store) == []
        assert not worked_out or worklist(store, date(2026, 7, 24)).items == listed


def _rows_in(database: str, statement: str) -> list[Any]:
    table = statement.split()[1 if statement.startswith("UPDATE") else 2]
    with raw(database) as connection:
        return connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()


@pytest.mark.parametrize("statement", ["DELETE FROM names", "UPDATE names SET found_by = 'nobody'"])
def test_nobody_is_made_impossible_to_find_unseen(sound: str, statement: str) -> None:
    (said,) = attacked(sound, statement)
    assert said.startswith("names:")
    with Store.open(sound) as store:
        refresh(store, everybody=True)
        assert store.check() == []


# Single bits


def _cells(file: Path) -> dict[str, range]:
    """Where the rows of each small table lie in an SQLite file."""
    content = file.read_bytes()
    with sqlite3.connect(file) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        roots = connection.execute(
            "SELECT name, rootpage FROM sqlite_master WHERE type = 'table'"
        ).fetchall()
    connection.close()
    found = {}
    for name, root in roots:
        start = (root - 1) * size
        if name in chained_tables() or name == "chain":
            head = content[start + (100 if root == 1 else 0) :]
            first = int.from_bytes(head[5:7], "big")
            if head[0] == 0x0D and 0 < first < size:  # a leaf: all rows are on this page
                found[name] = range(start + first, start + size)
    return found


def _dump(file: Path) -> Any:
    with suppress(sqlite3.Error, UnicodeDecodeError), sqlite3.connect(file) as connection:
        return list(connection.iterdump())
    return None


def test_flipped_bits_are_found(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    prepare(file)
    with Store.open(file) as store:
        a_full_person(store)
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    whole, before, cells = file.read_bytes(), _dump(file), _cells(file)
    assert {"trials", "results", "identities", "audit", "exam_states"} <= cells.keys()
    rng = random.Random(16)
    missed = []
    for name, where in sorted(cells.items()):
        for _ in range(4):
            place, bit = rng.choice(where), rng.randrange(8)
            content = bytearray(whole)
            content[place] ^= 1 << bit
            file.write_bytes(content)
            try:
                with Store.open(file) as store:
                    said = store.check()
            except StoreError as error:
                said = [str(error)]
            if not said and _dump(file) != before:
                missed.append((name, place, bit))
    assert missed == []


# Old databases and other programs


def test_an_old_database_is_chained_as_it_was_found(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = "2026-03-01T12:00:00.000000Z"
    with monkeypatch.context() as older:
        older.setattr("earshift.store.database.SCHEMA", "0003")
        older.setattr(tables, "SCHEMA", "0003")
        with Store.open(database) as store, writing(store.engine) as connection:
            for number in range(1, 4):
                connection.exec_driver_sql(f"INSERT INTO people (created_at) VALUES ('{at}')")
                connection.exec_driver_sql(
                    "INSERT INTO identities (person_id, code, found_by, at, author, reason) "
                    f"VALUES ({number}, 'A{number}', 'a{number}', '{at}', 'mh', '')"
                )
    Store.upgrade(database)
    with Store.open(database) as store:
        report = store.inspect()
        assert report.problems == ()
        assert report.since is not None
        assert [entry.action for entry in store.audit()] == ["chain begins"] * 2
        assert store.audit()[0].details == {"rows": 6}
        assert store.audit()[1].details["rows"] == 7  # with the line of schema 0004
        assert len(set(_salts(database)["identities"])) == 3
        a_person(store)
        assert store.check() == []
    said = attacked(database, "UPDATE identities SET code = 'A9' WHERE id = 2")
    assert said == ["identities:2 is not as it was written"]


def test_writers_at_once_make_one_chain(store: Store) -> None:
    exams = [an_exam(store, a_person(store, str(number))) for number in range(4)]
    before = store.seal().links

    def answer(exam: Any) -> None:
        for _ in range(5):
            a_trial(store, exam)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(answer, exams))
    assert store.seal().links == before + 20
    assert store.check() == []


def test_what_is_not_committed_is_not_chained(store: Store) -> None:
    before = store.seal()
    with suppress(RuntimeError), writing(store.engine) as connection:
        rows.add_audit(connection, "mh", "look", "people:1")
        raise RuntimeError
    assert store.seal() == before
    assert store.check() == []


# PostgreSQL's second role


def test_the_second_role_can_serve_and_cannot_tamper(
    postgresql_server: PostgresqlServer,
) -> None:
    import psycopg

    url = postgresql_server.new_database()
    with Store.open(url) as store:
        person, screen = a_full_person(store)
        sql = store.second_role()
        assert sql is not None
        assert store.inspect().notes != ()
    with raw(url) as connection:
        connection.execute("DROP ROLE IF EXISTS earshift_serve")
        connection.execute(sql)
    served = url.replace("earshift@", "earshift_serve@")
    try:
        with Store.open(served) as store:
            a_trial(store, screen)
            store.handle("people", person.id)
            assert {item.code for item in worklist(store, date(2027, 3, 2)).items} == {"4711"}
            with pytest.raises(StoreError, match="this role may not do that"):
                store.erase_person(person.id, author="mh", reason="asked by the person")
            assert store.inspect().problems == store.inspect().notes == ()
            with Store.open(url):  # a second role is of no use to a server that does not take it
                (said,) = store.inspect().notes
                assert "connected as the role that owns the tables" in said
        with psycopg.connect(served, autocommit=True) as connection:
            for attack in (
                "UPDATE trials SET heard = NOT heard",
                "DELETE FROM audit",
                "TRUNCATE audit",
                "ALTER TABLE trials DISABLE TRIGGER trials_no_update",
                "DROP FUNCTION trials_append_only() CASCADE",
                "UPDATE people SET id = 9",
            ):
                with pytest.raises(psycopg.Error):
                    connection.execute(attack)
    finally:
        with raw(url) as connection:
            connection.execute("DROP OWNED BY earshift_serve")
            connection.execute("DROP ROLE earshift_serve")
        postgresql_server.give_back(url)
