"""A search by any part of a code or name: what it finds, and that erasure leaves nothing of it."""

import contextlib
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import func, select

from earshift.store import Store
from earshift.store import tables as t
from earshift.store.database import writing
from earshift.store.errors import StoreTrouble

PEOPLE = {
    "Q17": "Jürgen Groß",
    "q18": "GRETA OLSEN",
    "X_1": "Ana 100%",
    "X91": "李小龙",
    "": "İpek Öz",
}


@pytest.fixture
def named(store: Store) -> Store:
    for code, name in PEOPLE.items():
        store.add_person(author="mh", code=code or None, name=name)
    store.add_person(author="mh")  # of whom nothing is known
    return store


@pytest.mark.parametrize("case", [str.lower, str.upper])
def test_any_part_of_any_length_is_found_in_either_case(named: Store, case: type[str]) -> None:
    everybody = named.people()
    for part in (
        "ü",
        "RG",
        "oß",
        "ss",
        "greta ol",
        "q1",
        "18",
        "小",
        "李小龙",
        "öz",
        "an",
        "a",
        "x",
    ):
        found = named.people(search=case(part))
        assert found, part
        assert found == [  # as reading everybody would: the same people in the same order
            one
            for one in everybody
            if case(part).casefold() in f"{one.code or ''} {one.name or ''}".casefold()
        ]


def test_signs_that_databases_take_for_wildcards_are_letters(named: Store) -> None:
    assert [one.name for one in named.people(search="_")] == ["Ana 100%"]
    assert [one.name for one in named.people(search="%")] == ["Ana 100%"]
    assert named.people(search="\\") == []
    assert named.people(search="zq") == []
    assert named.people(search="'; DROP TABLE names; --") == []
    assert named.people(search="x" * 10_000) == []


def test_pages_of_a_search_go_on_where_the_last_one_ended(store: Store) -> None:
    for number in range(7):
        store.add_person(author="mh", name=f"Kim {number}")
        store.add_person(author="mh", name=f"Lee {number}")
    first = store.people(search="kim", limit=3)
    second = store.people(search="kim", limit=3, after=first[-1].id)
    third = store.people(search="kim", limit=3, after=second[-1].id)
    assert [one.name for one in (*first, *second, *third)] == [f"Kim {n}" for n in range(7)]


def test_nobody_is_found_by_a_name_that_was_corrected(store: Store) -> None:
    person = store.add_person(author="mh", name="Wrong Name")
    store.correct_person(person.id, author="mh", reason="typed wrongly", name="Right Name")
    assert store.people(search="wrong") == []
    assert [one.id for one in store.people(search="right")] == [person.id]


def test_nobody_is_found_after_erasure_and_nothing_of_the_name_is_left(
    store: Store,
) -> None:
    kept = store.add_person(author="mh", name="Kept Kanarie")
    gone = store.add_person(author="mh", code="Zz-canary-77", name="Vanished Kanarie")
    store.correct_person(gone.id, author="mh", reason="married", name="Vanishing Kanarie")
    store.erase_person(gone.id, author="mh", reason="asked by the person")
    assert [one.id for one in store.people(search="kanarie")] == [kept.id]
    for part in ("vanish", "zz", "77"):
        assert store.people(search=part) == []
    with store.engine.connect() as connection:
        rows = connection.execute(select(t.names)).all()
    assert [row.person_id for row in rows] == [kept.id]


def test_the_index_of_an_erased_name_is_overwritten_on_the_disk(tmp_path: Path) -> None:
    place = tmp_path / "store.db"
    with Store.open(str(place)) as store:
        for number in range(40):
            store.add_person(author="mh", name=f"Person {number}")
        gone = store.add_person(author="mh", name="Vanishing Canary")
        store.erase_person(gone.id, author="mh", reason="asked by the person")
    with contextlib.closing(sqlite3.connect(place)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for file in tmp_path.iterdir():
        assert b"canary" not in file.read_bytes().lower(), file.name


def test_what_another_program_writes_is_found_as_well(store: Store) -> None:
    person = store.add_person(author="mh", name="Ann")
    identity = {"person_id": person.id, "name": "Bea", "found_by": " bea", "author": "x"}
    with writing(store.engine) as connection:
        at = connection.execute(select(func.max(t.identities.c.at))).scalar_one()
        connection.execute(t.identities.insert().values(**identity, at=at))
    assert [one.id for one in store.people(search="bea")] == [person.id]
    assert store.people(search="ann") == []


def test_two_rows_for_one_person_cannot_be(store: Store) -> None:
    person = store.add_person(author="mh", name="Ann")
    with pytest.raises(StoreTrouble), writing(store.engine) as connection:
        connection.execute(t.names.insert().values(person_id=person.id, found_by="two"))
