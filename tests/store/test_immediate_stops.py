"""PostgreSQL is stopped at once in the middle of writes: what was acknowledged is there afterwards.

An immediate stop is what a crash of the server is: nothing is finished, nothing written out, and
the next start recovers from the log. EARSHIFT_STOPS is how many there are.
"""

import os
import random
import threading
import time

import pytest
from test_races import a_test
from test_store import a_person, a_trial

from earshift.store import Store, StoreError
from support.databases import PostgresqlServer

STOPS = int(os.environ.get("EARSHIFT_STOPS", "3"))
WRITERS = 2


class Writer(threading.Thread):
    """Adds people and answers of an exam in turn until it is told to stop; remembers what the store
    has acknowledged."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__()
        self.url, self.code = url, name
        self.acknowledged: list[str] = []
        self.answers: list[int] = []
        self.exam_id = 0
        self.troubles: list[str] = []
        self.over = threading.Event()

    def run(self) -> None:
        with Store.open(self.url) as store:
            _, (exam,) = a_test(store, a_person(store, code=f"{self.code}listener").id, "right")
            self.exam_id = exam.id
            number = 0
            while not self.over.is_set():
                number += 1
                try:
                    person = store.add_person(author="mh", code=f"{self.code}{number}", name="Ada")
                    assert person.code is not None
                    self.acknowledged.append(person.code)
                    answered = a_trial(store, exam, heard=number % 3 == 0, asked_db_hl=number % 90)
                    self.answers.append(answered.number)
                except StoreError as error:
                    self.troubles.append(error.code)
                    time.sleep(0.05)


@pytest.mark.kills
def test_nothing_acknowledged_is_lost(postgresql_server: PostgresqlServer) -> None:
    server = PostgresqlServer(postgresql_server.tools)  # of its own: others are writing to that one
    chance = random.Random(5)
    try:
        url = server.new_database()
        Store.open(url).close()
        writers = [Writer(url, f"W{number}-") for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        try:
            for _ in range(STOPS):
                had = [len(writer.answers) for writer in writers]
                while any(len(w.answers) <= n for w, n in zip(writers, had, strict=True)):
                    time.sleep(0.01)
                time.sleep(chance.uniform(0.0, 0.1))
                server.stop("immediate")
                server.start()
        finally:
            for writer in writers:
                writer.over.set()
                writer.join()
        with Store.open(url) as store:
            there = {person.code for person in store.people(limit=10**6)}
            trials = {writer.exam_id: store.trials(writer.exam_id) for writer in writers}
            assert store.check() == []
        for writer in writers:
            assert set(writer.acknowledged) <= there
            assert set(writer.troubles) == {"database-lost"}  # said as such, and nothing else
            # At most one for each stop is there though nobody was told.
            extra = {code for code in there if code and code.startswith(writer.code)}
            assert len(extra - set(writer.acknowledged) - {f"{writer.code}listener"}) <= STOPS
            stored = [trial.number for trial in trials[writer.exam_id]]
            assert stored == list(range(1, len(stored) + 1))
            assert set(writer.answers) <= set(stored)
            assert len(stored) - len(writer.answers) <= STOPS
        people = sum(len(writer.acknowledged) for writer in writers)
        answers = sum(len(writer.answers) for writer in writers)
        print(
            f"{STOPS} immediate stops, {people} people and {answers} answers acknowledged, "
            "none lost"
        )
    finally:
        server.close()
