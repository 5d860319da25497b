"""The store's promises, each on both databases."""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import earshift as es
from earshift.engine.refusal import Conflict, NotFound, Trouble
from earshift.records import (
    Calibration,
    ExamRecord,
    ImportedAudiogram,
    Person,
    TrialCounts,
    TrialRecord,
)
from earshift.store import ExamChanged, NoSuchRow, Store, StoreError, tables
from earshift.store.database import writing
from support.databases import raw

BERLIN = "Europe/Berlin"
NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
AUDIOGRAM = es.Audiogram({500.0: 10.0, 1000.0: 15.0, 4000.0: 40.0}).to_dict()


def a_person(store: Store, code: str = "4711") -> Person:
    return store.add_person(
        author="mh", code=code, name="Ada Lovelace", birth_date=date(1975, 12, 10), sex="f"
    )


def an_exam(store: Store, person: Person | None = None, **given: Any) -> ExamRecord:
    person = person or a_person(store)
    visit = store.open_visit(person.id, author="mh", zone=BERLIN, mode="supervised")
    values = {"ear": "right", "kind": "exam", "design": {"seed": 1}, "engine_version": "0.1"}
    return store.open_exam(visit.id, author="mh", **values | given)


def a_trial(store: Store, exam: ExamRecord, **given: Any) -> TrialRecord:
    values = {
        "kind": "tone",
        "ear": exam.ear,
        "frequency_hz": 1000,
        "asked_db_hl": 40,
        "played_db_hl": 42.5,
        "heard": True,
    }
    return store.append_trial(exam.id, **{"author": "mh"} | values | given)


def a_full_person(store: Store) -> tuple[Person, ExamRecord]:
    """A person with one row in every table."""
    person = a_person(store)
    person = store.correct_person(person.id, author="mh", reason="maiden name", name="Ada King")
    device = store.add_device(author="mh", name="room 2", transducer="insert")
    store.add_calibration(
        device.id,
        author="mh",
        done_on=date(2026, 1, 5),
        due_on=date(2027, 1, 5),
        laboratory="lab",
        coupler="IEC 60318-4",
    )
    visit = store.open_visit(
        person.id, author="mh", zone=BERLIN, mode="supervised", device_id=device.id
    )
    first = store.open_exam(
        visit.id, author="mh", ear="right", kind="exam", design={}, engine_version="0.1"
    )
    a_trial(store, first)
    screen = store.open_exam(
        visit.id,
        author="mh",
        ear="right",
        kind="screen",
        design={"rule": None},
        engine_version="0.1",
        reference_exam_id=first.id,
    )
    trial = a_trial(store, screen)
    a_trial(store, screen, heard=False)
    store.void_trial(trial.id, author="mh", reason="cough")
    store.add_result(
        screen.id, author="mh", shown={"p": 0.25}, settings={"seed": 1}, engine_version="0.1"
    )
    store.add_note(person.id, author="mh", text="wears glasses", visit_id=visit.id)
    return person, screen


# People


def test_a_person_comes_back_as_stored(store: Store) -> None:
    person = a_person(store)
    assert person.created_at is not None
    assert person.created_at.utcoffset() == timedelta(0)
    assert store.person(person.id) == person
    assert store.person_by_code("4711") == person
    assert store.person_by_code("nobody") is None


def test_a_person_may_be_nothing_but_an_id(store: Store) -> None:
    person = store.add_person(author="mh")
    assert replace(store.person(person.id), created_at=None) == Person(id=person.id)


def test_people_come_in_pages_and_are_found_by_part_of_code_or_name(store: Store) -> None:
    ids = [store.add_person(author="mh", code=f"K-{n}", name=f"Öz {n}%").id for n in range(7)]
    assert [p.id for p in store.people(limit=3)] == ids[:3]
    assert [p.id for p in store.people(after=ids[2], limit=3)] == ids[3:6]
    assert [p.id for p in store.people(search="öZ 4")] == ids[4:5]
    assert [p.id for p in store.people(search="k-6")] == ids[6:]
    assert [p.id for p in store.people(search="5%")] == ids[5:6]  # % is no wildcard here
    assert store.people(search="k_6") == []


def test_a_correction_keeps_the_history_and_names_only_fields_in_the_audit(
    store: Store, database: str
) -> None:
    person = a_person(store)
    corrected = store.correct_person(person.id, author="ab", reason="misspelt", name="Ada King")
    assert corrected == replace(person, name="Ada King")
    assert store.person(person.id) == corrected
    assert store.people(search="lovelace") == []
    with raw(database) as connection:
        rows = connection.execute("SELECT name, author FROM identities ORDER BY id")
        assert rows.fetchall() == [("Ada Lovelace", "mh"), ("Ada King", "ab")]
        rows = connection.execute("SELECT of_table, row_id, field, text FROM texts")
        assert rows.fetchall() == [("identities", 2, "reason", "misspelt")]
    entry = store.audit(subject=f"people:{person.id}")[-1]
    assert (entry.action, entry.author, entry.details) == ("correct", "ab", {"fields": ["name"]})


def test_a_code_belongs_to_one_person_at_a_time(store: Store) -> None:
    person = a_person(store, "1")
    with pytest.raises(StoreError, match="this code already belongs to person"):
        store.add_person(author="mh", code="1")
    store.correct_person(person.id, author="mh", reason="wrong card", code="2")
    other = store.add_person(author="mh", code="1")
    assert store.person_by_code("1") == other
    assert [p.id for p in store.people()] == [person.id, other.id]


@pytest.mark.parametrize("changes", [{}, {"id": 3}, {"nam": "x"}])
def test_a_correction_of_nothing_or_of_other_things_is_refused(
    store: Store, changes: dict[str, Any]
) -> None:
    person = a_person(store)
    with pytest.raises(StoreError, match="must change at least one of code, name, birth_date, sex"):
        store.correct_person(person.id, author="mh", reason="x", **changes)


# Erasure


@pytest.mark.parametrize("delete_trials", [False, True])
def test_erasing_deletes_identity_and_notes_and_leaves_a_tombstone(
    store: Store, database: str, delete_trials: bool
) -> None:
    other, other_exam = an_other_person(store)
    person, screen = a_full_person(store)
    trials = store.trials(screen.id)
    erased = store.erase_person(
        person.id, author="dpo", reason="asked by the person", delete_trials=delete_trials
    )
    assert erased == store.person(person.id)
    assert erased.erased_at is not None
    assert (erased.code, erased.name, erased.birth_date, erased.sex) == (None,) * 4
    assert store.notes(person.id) == []
    assert store.people(search="ada king") == []
    if delete_trials:
        assert store.visits(person.id) == []
        with pytest.raises(StoreError, match="there is no exam"):
            store.trials(screen.id)
    else:
        wordless = [replace(one, void_reason=None) for one in trials]
        assert list(store.trials(screen.id)) == wordless
    entry = store.audit(subject=f"people:{person.id}")[-1]
    assert (entry.action, entry.author, entry.reason) == ("erase", "dpo", "asked by the person")
    assert entry.details == {"trials_deleted": delete_trials}
    assert store.person(other.id) == other
    assert len(store.trials(other_exam.id)) == 1
    assert store.check() == []


def an_other_person(store: Store) -> tuple[Person, ExamRecord]:
    person = store.add_person(author="mh", code="other")
    exam = an_exam(store, person)
    a_trial(store, exam)
    return person, exam


def test_an_erasure_that_was_cut_off_is_completed_by_repeating_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with Store.open(tmp_path / "s.db") as store:
        person = store.add_person(author="mh", name="Xanthippe")
        with monkeypatch.context() as patched:
            patched.setattr("earshift.store.people.forget", killed)
            with pytest.raises(KeyboardInterrupt):
                store.erase_person(person.id, author="mh", reason="other")
        assert b"Xanthippe" in b"".join(file.read_bytes() for file in tmp_path.iterdir())
        with pytest.raises(StoreError, match="was erased on"):
            store.erase_person(person.id, author="mh", reason="other")
        assert b"Xanthippe" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_an_erased_name_is_in_no_byte_of_the_file(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        person = store.add_person(author="mh", name="Xanthippe", code="unmistakable")
        store.add_note(person.id, author="mh", text="lives in Zuffenhausen")
        written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
        assert b"Xanthippe" in written
        store.erase_person(person.id, author="mh", reason="asked by the person")
        left = b"".join(file.read_bytes() for file in tmp_path.iterdir()).lower()
    for word in (b"xanthippe", b"unmistakable", b"zuffenhausen"):
        assert word not in left


def test_the_erased_get_nothing_new(store: Store) -> None:
    person, screen = a_full_person(store)
    visit = store.visits(person.id)[0]
    store.erase_person(person.id, author="mh", reason="asked by the person")
    for call in (
        lambda: store.erase_person(person.id, author="mh", reason="asked by the person"),
        lambda: store.correct_person(person.id, author="mh", reason="x", name="Ada"),
        lambda: store.add_note(person.id, author="mh", text="x"),
        lambda: store.open_visit(person.id, author="mh", zone="UTC", mode="self"),
        lambda: store.open_exam(
            visit.id, author="mh", ear="left", kind="exam", design={}, engine_version="1"
        ),
        lambda: a_trial(store, screen),
    ):
        with pytest.raises(StoreError, match="was erased on"):
            call()


# Append-only

TABLES = sorted(name for name, table in tables.metadata.tables.items() if not table.info["rebuilt"])


@pytest.fixture
def filled(store: Store, database: str) -> str:
    """A database with rows in every table, of one person erased and of one who is not."""
    gone = store.add_person(author="mh", name="gone")
    store.erase_person(gone.id, author="mh", reason="asked by the person")
    person, screen = a_full_person(store)
    store.handle("people", person.id)
    store.add_press(screen.id, author="mh", number=1)
    store.set_baseline(person.id, screen.ear, screen.id, author="mh", reason="first")
    now = datetime.now(UTC)
    with writing(store.engine) as connection:
        for table, values in (
            (tables.users, {"name": "mh", "created_at": now}),
            (
                tables.user_states,
                {
                    "user_id": 1,
                    "role": "admin",
                    "password_hash": "x",
                    "state": "active",
                    "reason": "",
                },
            ),
            (
                tables.keys,
                {
                    "kind": "session",
                    "secret_sha256": "x",
                    "name": "",
                    "scope": {},
                    "created_at": now,
                },
            ),
            (tables.key_ends, {"key_id": 1, "reason": "logout"}),
            (tables.closings, {"exam_id": 1, "closed": True}),
            (tables.merges, {"person_id": 1, "into_id": None}),
            (tables.site_settings, {"name": "retest_days", "value": 21, "reason": "ours"}),
            (
                tables.login_attempts,
                {"name_sha256": "x", "address": "x", "succeeded": True, "at": now},
            ),
            (tables.work_relations, {"exam_id": 1, "related": True, "name": "Dr K"}),
            (
                tables.signatures,
                {
                    "person_id": person.id,
                    "owner_id": person.id,
                    "visit_id": 1,
                    "name": "K",
                    "meaning": "reviewed",
                    "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
                },
            ),
            (
                tables.signed,
                {
                    "signature_id": 1,
                    "person_id": person.id,
                    "owner_id": person.id,
                    "content": "{}",
                    "about": {},
                },
            ),
            (
                tables.follow_ups,
                {
                    "person_id": person.id,
                    "visit_id": 1,
                    "kind": "letter",
                    "done": True,
                    "done_on": now.date(),
                },
            ),
            (
                tables.room_noise,
                {"measured_on": now.date(), "room": "", "instrument": "", "levels": {}},
            ),
            (tables.second_factors, {"user_id": 1, "recovery_sha256": [], "reason": "own"}),
            (tables.code_uses, {"factor_id": 1, "code": "x"}),
        ):
            common = {"at": now, "author": "mh"}
            known = {name: value for name, value in common.items() if name in table.c}
            connection.execute(sqlalchemy.insert(table).values(known | values))
    return database


@pytest.mark.parametrize("table", TABLES)
def test_raw_sql_cannot_change_or_delete_a_row(filled: str, table: str) -> None:
    with raw(filled) as connection:
        before = connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()
        assert before
        column = next(c.name for c in tables.metadata.tables[table].c if c.name != "id")
        attacks = [
            f'UPDATE {table} SET "{column}" = "{column}"',
            f"UPDATE {table} SET id = id + 1000",
            f"DELETE FROM {table}",
            f"DELETE FROM {table} WHERE id = (SELECT max(id) FROM {table})",
        ]
        if filled.startswith("postgresql"):
            attacks += [
                f"TRUNCATE {table} CASCADE",
                f"SET session_replication_role = replica; DELETE FROM {table}",
            ]
        else:
            attacks += [
                f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}",
                f'UPDATE OR REPLACE {table} SET "{column}" = "{column}"',
            ]
        for attack in attacks:
            with pytest.raises(Exception, match="is append-only"):
                connection.execute(attack)
        assert connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall() == before


def test_replacing_a_trial_by_its_number_is_refused_too(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        a_full_person(store)
    columns = "exam_id, number, kind, ear, frequency_hz, heard, at, author"
    with raw(str(tmp_path / "s.db")) as connection, pytest.raises(sqlite3.Error, match="append-on"):
        connection.execute(
            f"INSERT OR REPLACE INTO trials ({columns}) "
            f"SELECT {columns.replace('heard', 'NOT heard')} FROM trials"
        )


def test_a_tombstone_permits_no_more_than_it_says(store: Store, database: str) -> None:
    person, _ = a_full_person(store)
    store.erase_person(person.id, author="mh", reason="asked by the person", delete_trials=False)
    with raw(database) as connection:
        for table in ("visits", "exams", "trials", "voids", "results", "exam_states"):
            with pytest.raises(Exception, match="is append-only"):
                connection.execute(f"DELETE FROM {table}")


def test_a_temporary_table_cannot_pose_as_the_tombstones(store: Store, database: str) -> None:
    person, _ = a_full_person(store)
    with raw(database) as connection:
        connection.execute("CREATE TEMP TABLE erasures (person_id int, trials_deleted boolean)")
        connection.execute(
            f"INSERT INTO temp_erasures VALUES ({person.id}, true)".replace(
                "temp_erasures", "pg_temp.erasures" if "://" in database else "temp.erasures"
            )
        )
        for table in ("identities", "trials"):
            with pytest.raises(Exception, match="is append-only"):
                connection.execute(f"DELETE FROM {table}")


def test_a_permit_got_by_raw_sql_still_leaves_its_audit_row(store: Store, database: str) -> None:
    person = a_person(store)
    with raw(database) as connection:
        connection.execute(
            "INSERT INTO erasures (person_id, at, author, reason, trials_deleted) "
            f"VALUES ({person.id}, '2026-01-01T00:00:00.000000Z', 'sly', 'mine', true)"
        )
        connection.execute("DELETE FROM identities")
    entry = store.audit(subject=f"people:{person.id}")[-1]
    assert (entry.author, entry.action, entry.reason) == ("sly", "erase", "mine")


# Devices


def test_the_calibration_in_force(store: Store) -> None:
    device = store.add_device(author="mh", name="A1", transducer="supra-aural", serial="9")
    assert store.device(device.id) == device
    assert store.devices() == [device]

    def calibrate(day: date, kind: str = "acoustic") -> Calibration:
        return store.add_calibration(
            device.id,
            author="mh",
            done_on=day,
            due_on=day + timedelta(days=365),
            laboratory="lab",
            coupler="IEC 60318-3",
            kind=kind,
            table={"1000": 7.0},
        )

    check = calibrate(date(2024, 6, 1), "biological")
    first = calibrate(date(2025, 1, 1))
    calibrate(date(2026, 2, 1), "biological")
    second = calibrate(date(2026, 1, 1))
    corrected = calibrate(date(2026, 1, 1))
    assert store.calibration_on(device.id, date(2024, 5, 31)) is None
    assert store.calibration_on(device.id, date(2024, 12, 31)) == check
    assert store.calibration_on(device.id, date(2025, 12, 31)) == first
    assert store.calibration_on(device.id, date(2029, 1, 1)) == corrected
    assert [one.id for one in store.calibrations(device.id)][2:4] == [second.id, corrected.id]
    with pytest.raises(StoreError, match="cannot be due before"):
        store.add_calibration(
            device.id,
            author="mh",
            done_on=date(2026, 1, 2),
            due_on=date(2026, 1, 1),
            laboratory="l",
            coupler="c",
        )
    with pytest.raises(StoreError, match="coupler must not be empty"):
        store.add_calibration(
            device.id,
            author="mh",
            done_on=date(2026, 1, 2),
            due_on=date(2027, 1, 1),
            laboratory="l",
            coupler=" ",
        )


# Exams and trials


def test_an_exam_keeps_its_states_and_the_versions_it_went_on_under(store: Store) -> None:
    exam = an_exam(store)
    assert exam.state == "open"
    store.set_exam_state(exam.id, "paused", author="mh", reason="lunch")
    assert store.exam(exam.id) == replace(exam, state="paused")
    with pytest.raises(StoreError, match="is paused: reopen it"):
        a_trial(store, exam)
    store.set_exam_state(exam.id, "open", author="mh", engine_version="0.2")
    entry = store.audit(subject=f"exams:{exam.id}")[-1]
    assert entry.details["engine_version"] == "0.2"
    assert entry.details["engine_version_was"] == "0.1"
    assert store.exam(exam.id).engine_version == "0.1"
    a_trial(store, exam)
    store.set_exam_state(exam.id, "done", author="mh")
    assert "engine_version_was" not in store.audit(subject=f"exams:{exam.id}")[-1].details


def test_exams_of_a_person_by_kind_ear_and_state_newest_last(store: Store) -> None:
    person = a_person(store)
    late = an_exam(store, person)
    early = an_exam(store, person, kind="audiogram", ear="left", measured_at=NOON)
    assert early.state == "done"
    assert store.exams(person.id) == [early, late]
    assert store.exams(person.id, kind="audiogram") == [early]
    assert store.exams(person.id, ear="right") == [late]
    assert store.exams(person.id, state="open") == [late]
    assert store.exams(person.id, state="paused") == []
    with pytest.raises(StoreError, match="its state cannot change"):
        store.set_exam_state(early.id, "open", author="mh")


def test_a_reference_is_the_same_ear_of_the_same_person(store: Store) -> None:
    ada, exam = an_other_person(store)
    bob = store.add_person(author="mh", code="bob")
    with pytest.raises(StoreError, match="cannot be the reference"):
        an_exam(store, bob, reference_exam_id=exam.id)
    with pytest.raises(StoreError, match="cannot be the reference"):
        an_exam(store, ada, ear="left", reference_exam_id=exam.id)
    assert an_exam(store, ada, reference_exam_id=exam.id).reference_exam_id == exam.id


def test_trials_are_numbered_and_a_void_one_stays_and_keeps_its_number(store: Store) -> None:
    exam = an_exam(store)
    first = a_trial(store, exam, at=NOON, reaction_ms=412.5, number=1)
    assert first == TrialRecord(
        id=first.id,
        exam_id=exam.id,
        number=1,
        kind="tone",
        ear="right",
        frequency_hz=1000.0,
        asked_db_hl=40.0,
        played_db_hl=42.5,
        heard=True,
        at=NOON,
        author="mh",
        reaction_ms=412.5,
    )
    assert isinstance(first.frequency_hz, float)
    void = store.void_trial(first.id, author="ab", reason="door slammed")
    again = a_trial(store, exam, heard=False)
    assert (void.voided_by, void.void_reason, again.number) == ("ab", "door slammed", 2)
    assert void.voided_at is not None
    assert store.trials(exam.id) == (void, again)
    assert replace(void, voided_at=None, voided_by=None, void_reason=None) == first
    with pytest.raises(StoreError, match="already void"):
        store.void_trial(first.id, author="ab", reason="twice")


def test_a_number_that_is_not_next_is_refused(store: Store) -> None:
    exam = an_exam(store)
    a_trial(store, exam, number=1)
    for number in (1, 3):
        with pytest.raises(StoreError, match="the next one is 2"):
            a_trial(store, exam, number=number)
    assert len(store.trials(exam.id)) == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kind": "noise"}, "one of tone, catch, practice"),
        ({"ear": "left"}, "of the right ear"),
        ({"ear": "middle"}, "one of right, left"),
        ({"frequency_hz": float("nan")}, "finite"),
        ({"asked_db_hl": None}, "needs the levels"),
        ({"kind": "catch"}, "has no levels"),
        ({"heard": 2}, "True/False"),
        ({"reaction_ms": -1.0}, "reaction_ms"),
        ({"at": datetime(2026, 1, 1)}, "time zone"),
        ({"author": "  "}, "author must not be empty"),
        ({"author": "a\x00b"}, "cannot be stored"),
        ({"author": "\ud800"}, "cannot be stored"),
    ],
)
def test_a_wrong_trial_is_refused_and_nothing_is_written(
    store: Store, wrong: dict[str, Any], said: str
) -> None:
    exam = an_exam(store)
    audit = store.audit(limit=1000)
    with pytest.raises(ValueError, match=said):
        a_trial(store, exam, **wrong)
    assert store.trials(exam.id) == ()
    assert store.audit(limit=1000) == audit


def test_every_write_has_its_audit_row(store: Store, database: str) -> None:
    a_full_person(store)
    found = {(entry.action, entry.subject.split(":")[0]) for entry in store.audit(limit=1000)}
    assert found == {
        ("add", "people"),
        ("correct", "people"),
        ("add", "devices"),
        ("add", "calibrations"),
        ("add", "visits"),
        ("add", "exams"),
        ("add", "trials"),
        ("void", "trials"),
        ("add", "results"),
        ("add", "notes"),
    }
    entries = store.audit(limit=4)
    assert store.audit(after=entries[1].id, limit=2) == entries[2:]
    assert all(entry.author == "mh" for entry in entries)


# Results


def test_a_result_is_kept_as_shown_with_the_hash_of_its_live_trials(store: Store) -> None:
    exam = an_exam(store)
    empty = store.add_result(exam.id, author="mh", shown={}, settings={}, engine_version="1")
    a_trial(store, exam)
    shown = {"verdict": {"p": 0.1 + 0.2, "shifts": [1, 2.5]}, "words": "unverändert ✓"}
    one = store.add_result(exam.id, author="mh", shown=shown, settings={"a": 1}, engine_version="1")
    second = a_trial(store, exam)
    two = store.add_result(exam.id, author="mh", shown={}, settings={}, engine_version="1")
    store.void_trial(second.id, author="mh", reason="x")
    three = store.add_result(exam.id, author="mh", shown={}, settings={}, engine_version="1")
    assert (one.shown, one.settings) == (shown, {"a": 1})
    assert store.results(exam.id) == [empty, one, two, three]
    assert one.trials_sha256 == three.trials_sha256
    assert len({empty.trials_sha256, one.trials_sha256, two.trials_sha256}) == 3
    assert store.check() == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"x", object(), "\ud800"])
def test_what_is_not_plain_json_is_refused(store: Store, value: object) -> None:
    exam = an_exam(store)
    with pytest.raises(StoreError, match="shown"):
        store.add_result(exam.id, author="mh", shown={"v": value}, settings={}, engine_version="1")
    assert store.results(exam.id) == []


def test_json_in_the_database_is_plain_text(store: Store, database: str) -> None:
    an_exam(store, design={"name": "größer"})
    with raw(database) as connection:
        design = connection.execute("SELECT CAST(design AS TEXT) FROM exams").fetchone()[0]
    assert json.loads(design) == {"name": "größer"}


# Whole visits


def test_a_bundle_holds_all_of_a_visit(store: Store) -> None:
    person, screen = a_full_person(store)
    visit = store.visits(person.id)[0]
    bundle = store.visit_bundle(visit.id)
    assert (bundle.person, bundle.visit) == (person, visit)
    first, second = bundle.exams
    assert (first.reference, second.reference) == (None, first.exam)
    assert second.exam == screen
    assert second.trials == store.trials(screen.id)
    assert list(second.results) == store.results(screen.id)
    assert bundle.device is not None
    assert bundle.calibration == store.calibrations(bundle.device.id)[0]
    assert list(bundle.notes) == store.notes(person.id)


def test_the_calibration_of_a_bundle_is_that_of_the_local_day(store: Store) -> None:
    device = store.add_device(author="mh", name="A1")
    calibration = store.add_calibration(
        device.id,
        author="mh",
        done_on=date(2026, 3, 2),
        due_on=date(2027, 3, 2),
        laboratory="l",
        coupler="c",
    )
    night = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)  # already March 2 in Berlin
    for zone, expected in ((BERLIN, calibration), ("America/New_York", None)):
        visit = store.open_visit(
            store.add_person(author="mh").id,
            author="mh",
            zone=zone,
            mode="self",
            device_id=device.id,
            started_at=night,
        )
        assert store.visit_bundle(visit.id).calibration == expected


def test_a_snapshot_is_all_of_an_exam_and_its_version_moves_with_every_change(
    store: Store,
) -> None:
    person = a_person(store)
    screen = an_exam(store, person, kind="screen")
    carried = a_trial(store, screen)
    exam = an_exam(store, person, delivery={"continues": screen.id})
    first = store.snapshot(exam.id)
    assert first.exam == store.exam(exam.id) == exam
    assert (first.trials, first.presses, first.carried) == ((), 0, (carried,))
    assert first.opened_after == 0
    assert first.of_visit == (exam.id,)
    versions = [first.version]
    for change in (
        lambda: a_trial(store, exam),
        lambda: store.add_press(exam.id, author="mh", number=2),
        lambda: store.void_trial(store.trials(exam.id)[0].id, author="mh", reason="slip"),
        lambda: a_trial(store, exam),
        lambda: store.set_exam_state(exam.id, "paused", author="mh"),
        lambda: store.set_exam_state(exam.id, "open", author="mh"),
        lambda: store.add_result(
            exam.id, author="mh", shown={}, settings={}, engine_version="1", closes_as="done"
        ),
    ):
        change()
        now = store.snapshot(exam.id)
        assert now == store.snapshot(exam.id, known=first)
        assert now.trials == store.trials(exam.id)
        assert now.exam == store.exam(exam.id)
        versions.append(now.version)
    assert versions == sorted(set(versions))
    assert now.counts == (2, 1)
    assert store.snapshot(exam.id, known=now).trials is now.trials
    another = store.open_exam(
        exam.visit_id, author="mh", ear="left", kind="exam", design={}, engine_version="0.1"
    )
    assert store.snapshot(exam.id, known=now).of_visit == (exam.id, another.id)
    with pytest.raises(NoSuchRow, match="there is no exam"):
        store.snapshot(12345)


def test_what_is_refused_says_by_its_class_whose_turn_it_is(store: Store, tmp_path: Path) -> None:
    def refused(call: Callable[[], object]) -> StoreError:
        with pytest.raises(StoreError) as caught:
            call()
        return caught.value

    a_person(store)
    text = tmp_path / "text.db"
    text.write_text("no database")
    missing = refused(lambda: store.exam(999))
    taken = refused(lambda: a_person(store))
    wrong = refused(lambda: store.add_person(author=" "))
    broken = refused(lambda: Store.open(text))
    assert [one.code for one in (missing, taken, wrong, broken)] == [
        "not-found",
        "code-taken",
        "invalid",
        "trouble",
    ]
    assert isinstance(missing, NotFound)
    assert isinstance(taken, Conflict)
    assert [isinstance(one, Trouble) for one in (missing, taken, wrong, broken)] == [
        False,
        False,
        False,
        True,
    ]


def test_who_expects_another_exam_than_is_stored_is_refused(store: Store) -> None:
    exam = an_exam(store)
    a_trial(store, exam, expected=TrialCounts(0, 0))
    for wrong in (TrialCounts(0, 0), TrialCounts(1, 1), TrialCounts(2, 0)):
        with pytest.raises(ExamChanged, match="another program"):
            a_trial(store, exam, expected=wrong)
    store.void_trial(store.trials(exam.id)[0].id, author="mh", reason="slip")
    with pytest.raises(ExamChanged, match="another program"):  # the same number of trials
        a_trial(store, exam, expected=TrialCounts(1, 0))
    store.set_exam_state(exam.id, "paused", author="mh")
    with pytest.raises(ExamChanged, match="is paused"):
        a_trial(store, exam, expected=TrialCounts(1, 1))
    assert len(store.trials(exam.id)) == 1


def test_all_visits_stream_in_order_and_of_one_moment(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("earshift.store.visits.BATCH", 2)
    exams = [an_exam(store, store.add_person(author="mh")) for _ in range(5)]
    for exam in exams:
        a_trial(store, exam)
    assert store.count_visits() == 5
    stream = store.iter_visit_bundles()
    bundles = [next(stream)]
    a_trial(store, exams[-1])  # written while the export runs, so not in it
    an_exam(store, store.person(1))
    bundles += stream
    assert [bundle.exams[0].exam for bundle in bundles] == exams
    assert [len(bundle.exams[0].trials) for bundle in bundles] == [1] * 5
    assert bundles[2:3] == list(store.iter_visit_bundles(bundles[2].person.id))


# Times


def test_times_are_utc_and_a_time_without_zone_is_refused(store: Store, database: str) -> None:
    person = a_person(store)
    india = timezone(timedelta(hours=5, minutes=30))
    local = NOON.astimezone(india)
    visit = store.open_visit(person.id, author="mh", zone=BERLIN, mode="self", started_at=local)
    assert store.visit(visit.id).started_at == NOON
    assert store.visit(visit.id).started_at.utcoffset() == timedelta(0)
    with pytest.raises(StoreError, match="must be a datetime with its time zone"):
        store.open_visit(
            person.id,
            author="mh",
            zone=BERLIN,
            mode="self",
            started_at=NOON.replace(tzinfo=None),
        )
    if database.startswith("postgresql"):
        return
    with raw(database) as connection:
        (written,) = connection.execute("SELECT started_at FROM visits").fetchone()
    assert written == "2026-03-01T12:00:00.123456Z"


def test_the_column_itself_refuses_a_naive_time(store: Store) -> None:
    from sqlalchemy import insert

    from earshift.store.database import writing

    with pytest.raises(StoreError, match="time zone"), writing(store.engine) as connection:
        connection.execute(insert(tables.people).values(created_at=datetime(2026, 1, 1)))
    assert store.people() == []


@pytest.mark.parametrize("zone", ["", "Europe/Atlantis", "../etc/passwd", "CEST+2", None])
def test_an_unknown_zone_is_refused(store: Store, zone: Any) -> None:
    person = a_person(store)
    with pytest.raises(StoreError, match="zone"):
        store.open_visit(person.id, author="mh", zone=zone, mode="self")


# Imports


def test_an_import_finds_or_makes_people_and_stores_nothing_twice(store: Store) -> None:
    known = store.add_person(author="mh", code="1", name="Ada Lovelace")
    items = [
        ImportedAudiogram("1", "right", AUDIOGRAM, NOON, "old.csv", birth_date=date(1975, 12, 10)),
        ImportedAudiogram("1", "left", AUDIOGRAM, NOON, "old.csv", name="ada  lovelace"),
        ImportedAudiogram("2", "left", AUDIOGRAM, source="research file"),
    ]
    done = store.import_audiograms(items, author="mh", zone=BERLIN)
    assert len(done.added) == 3
    assert done.known == ()
    right, left, other = done.added
    assert right.visit_id == left.visit_id != other.visit_id
    assert (right.kind, right.state, right.measured_at) == ("audiogram", "done", NOON)
    assert es.Audiogram.from_dict(right.design).to_dict() == AUDIOGRAM
    assert store.visit(right.visit_id).mode == "imported"
    assert store.visit(right.visit_id).started_at == NOON
    assert store.person(known.id).birth_date == date(1975, 12, 10)
    again = store.import_audiograms(items, author="mh", zone=BERLIN)
    assert again.added == ()
    assert again.known == done.added
    assert store.count_visits() == 2


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (ImportedAudiogram("1", "right", {}), "not the data of an audiogram"),
        (ImportedAudiogram("1", "both", AUDIOGRAM), "ear must be one of"),
        (ImportedAudiogram(" ", "left", AUDIOGRAM), "code must not be empty"),
        (ImportedAudiogram("1", "left", AUDIOGRAM, datetime(2026, 1, 1)), "time zone"),
        (ImportedAudiogram("1", "left", AUDIOGRAM, name="Bob"), "known with another name"),
        (
            ImportedAudiogram("1", "left", AUDIOGRAM, birth_date=date(1900, 1, 1)),
            "known with another birth date",
        ),
    ],
)
def test_one_refused_audiogram_leaves_the_whole_import_out(
    store: Store, bad: ImportedAudiogram, said: str
) -> None:
    a_person(store, "1")
    audit = store.audit(limit=1000)
    items = [ImportedAudiogram("new", "right", AUDIOGRAM), bad]
    with pytest.raises(StoreError, match=f"audiogram 2 .*{said}"):
        store.import_audiograms(items, author="mh", zone=BERLIN)
    assert store.person_by_code("new") is None
    assert store.count_visits() == 0
    assert store.audit(limit=1000) == audit


# What is not there


def test_ids_that_do_not_exist_are_named(store: Store) -> None:
    for call, what in (
        (store.person, "person"),
        (store.device, "device"),
        (store.visit, "visit"),
        (store.exam, "exam"),
        (store.trials, "exam"),
        (store.results, "exam"),
        (store.notes, "person"),
        (store.visits, "person"),
        (store.calibrations, "device"),
    ):
        for number in (99, 2**63 - 1, 2**70):
            with pytest.raises(StoreError, match=f"there is no {what} {number}"):
                call(number)  # type: ignore[operator]
        for wrong in (0, "1", None, True):
            with pytest.raises(ValueError, match="whole number"):
                call(wrong)  # type: ignore[operator]


def test_notes_belong_to_their_person(store: Store) -> None:
    ada, exam = an_other_person(store)
    bob = store.add_person(author="mh")
    with pytest.raises(StoreError, match="does not belong to person"):
        store.add_note(bob.id, author="mh", text="x", exam_id=exam.id)
    note = store.add_note(ada.id, author="mh", text="loud street", exam_id=exam.id)
    assert note.visit_id == exam.visit_id


# Round trip

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
WORDS = TEXTS.filter(lambda text: bool(text.strip()))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
MOMENTS = st.datetimes(min_value=datetime(1900, 1, 1), timezones=st.timezones())
_codes = count(1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=WORDS,
    born=st.none() | st.dates(),
    design=st.dictionaries(TEXTS, PLAIN, max_size=3),
    levels=st.tuples(FLOATS, FLOATS),
    heard=st.booleans(),
    reaction=st.none() | st.floats(0, 1e6),
    at=MOMENTS,
)
def test_what_goes_in_comes_out(
    store: Store,
    name: str,
    born: date | None,
    design: dict[str, Any],
    levels: tuple[float, float],
    heard: bool,
    reaction: float | None,
    at: datetime,
) -> None:
    person = store.add_person(author=name, name=name, birth_date=born, code=str(next(_codes)))
    assert (person.name, person.birth_date) == (name.strip(), born)
    assert store.person(person.id) == person
    exam = an_exam(store, person, design=design)
    assert store.exam(exam.id) == exam
    assert exam.design == design
    trial = a_trial(
        store,
        exam,
        asked_db_hl=levels[0],
        played_db_hl=levels[1],
        heard=heard,
        reaction_ms=reaction,
        at=at,
    )
    assert (trial.asked_db_hl, trial.played_db_hl) == levels
    assert (trial.heard, trial.reaction_ms, trial.at) == (heard, reaction, at)
    assert store.trials(exam.id) == (trial,)
    result = store.add_result(
        exam.id, author="mh", shown=design, settings=design, engine_version="1"
    )
    assert store.results(exam.id) == [result]
    assert store.check() == []
