"""A large import by the real program: others write meanwhile, and a kill -9 is made good by
repeating it."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from test_races import a_test, an_item
from test_store import BERLIN, a_person, a_trial

import earshift as es
from earshift.store import Store, imports
from earshift.store import database as databases
from support.databases import prepare

PEOPLE = 500
HZ = (500, 1000, 2000, 3000, 4000, 6000, 8000)


def a_file(folder: Path, people: int, days: int = 1) -> Path:
    """Audiograms of both ears of so many people, on so many days each."""
    file = folder / "people.csv"
    first = date(2015, 1, 5)
    with file.open("w") as opened:
        opened.write("person,date,ear,frequency_hz,threshold_db_hl\n")
        for person in range(people):
            for day in range(days):
                for ear in ("right", "left"):
                    measured = first + timedelta(days=day)
                    for hertz in HZ:
                        opened.write(f"P{person},{measured},{ear},{hertz},{person % 8 * 5}\n")
    return file


def importing(file: Path, db: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "earshift.cli", "import", str(file), "--db", db]
    return subprocess.Popen(
        [*command, "--timezone", "UTC", "--author", "mh"], stdout=subprocess.DEVNULL
    )


@pytest.mark.slow
@pytest.mark.kills
@pytest.mark.parametrize(("people", "days"), [(PEOPLE, 1), (1, PEOPLE)], ids=["many", "one code"])
def test_an_answer_never_waits_for_all_of_an_import(tmp_path: Path, people: int, days: int) -> None:
    db = str(tmp_path / "store.db")
    prepare(db)
    waits, between = [], 0
    with Store.open(db) as store:
        _, (exam,) = a_test(store, a_person(store, code="answers").id, "right")
        began = time.monotonic()
        with importing(a_file(tmp_path, people, days), db) as program:
            while program.poll() is None:  # from its start on: its first part could be all of it
                asked = time.monotonic()
                a_trial(store, exam)
                waits.append(time.monotonic() - asked)
                between += 1 < store.count_visits() < 1 + people * days
                time.sleep(0.02)
            whole = time.monotonic() - began
        assert program.returncode == 0
        assert store.count_visits() == 1 + people * days
        assert [one.number for one in store.trials(exam.id)] == list(range(1, len(waits) + 1))
        assert store.check() == []
    assert between > 3  # answers had their turn between the parts of the import
    print(
        f"{len(waits)} answers in {whole:.1f} s, {between} of them between parts of the import, "
        f"longest wait {max(waits):.2f} s"
    )


@pytest.mark.slow
@pytest.mark.kills
def test_an_import_that_is_killed_is_completed_by_repeating_it(
    database: str, tmp_path: Path
) -> None:
    people, chance = 60, random.Random(3)
    file = a_file(tmp_path, people)
    prepare(database)
    kills = 0
    with Store.open(database) as store:
        while kills < 3:
            had = store.count_visits()
            with importing(file, database) as program:
                while store.count_visits() == had and program.poll() is None:
                    time.sleep(0.005)
                time.sleep(chance.uniform(0.0, 0.02))
                program.send_signal(signal.SIGKILL)
            if program.returncode == 0:  # it was quicker than we
                break
            kills += 1
            ears = Counter(exam.visit_id for exam in everything(store))
            assert set(ears.values()) == {2}  # nobody's ears were parted
        with importing(file, database) as program:
            pass
        assert program.returncode == 0
        assert store.count_visits() == people
        found = Counter(exam.visit_id for exam in everything(store))
        assert set(found.values()) == {2}
        assert store.check() == []
    assert kills > 0
    print(f"{kills} kills of an import, completed by repeating it")


def everything(store: Store) -> list[Any]:
    return [exam for person in store.people(limit=10**6) for exam in store.exams(person.id)]


def test_what_has_one_code_is_written_in_parts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "HOLD_SECONDS", 0.0)
    day = datetime(2020, 1, 1, tzinfo=UTC)
    right = [an_item(1, "right", measured_at=day + timedelta(days=n)) for n in range(10)]
    left = [an_item(1, "left", measured_at=day + timedelta(days=n)) for n in range(10)]
    before = store.seal().links
    done = store.import_audiograms([*right, *left], author="mh", zone=BERLIN)
    assert len(done.added) == 20
    assert store.seal().links == before + 10  # the ears of a day together, the days not
    assert store.count_visits() == 10
    levels = [
        an_item(2, measured_at=day, audiogram=es.Audiogram({1000.0: float(n)}).to_dict())
        for n in range(50)
    ]
    before = store.seal().links
    store.import_audiograms(levels, author="mh", zone=BERLIN)
    assert store.seal().links >= before + 50 // imports.MOST_TOGETHER
    assert store.check() == []
