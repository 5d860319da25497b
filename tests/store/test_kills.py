"""kill -9 at random moments: no answer that was taken is lost, and the exam goes on as if unbroken.

The examiner is a process of its own. Loading the engine takes seconds, so a nursery loads it once
and forks an examiner for every life; each opens the database anew, as after a real crash. Run as a
program, this file is the nursery. EARSHIFT_KILLS sets the number of kills (`make soak`: 1000).
The real server is killed too, all of it or one of its workers; less often, as it takes seconds to
start.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import httpx
import pytest

import earshift as es
from earshift.clinic.plan import Plan, open_exam, plan_exam, plan_screen
from earshift.clinic.session import Presentation, Session
from earshift.records import ImportedAudiogram, TrialRecord, Visit
from earshift.store import Store
from earshift.store.accounts import Accounts
from earshift.store.trials import live_trials

if TYPE_CHECKING:
    from support.web import Served

KILLS = int(os.environ.get("EARSHIFT_KILLS", "20"))
LONGEST_PAUSE_SECONDS = 0.05  # between what was said last and the kill: a few answers long
MOST_LINES = 12  # that an examiner says before: short lives make many kills of a processor's minute
AUDIOGRAM = es.Audiogram(dict.fromkeys((500, 1000, 2000, 3000, 4000, 6000, 8000), 15.0))


def content(shown: Presentation | TrialRecord) -> tuple[Any, ...]:
    level = shown.level_db_hl if isinstance(shown, Presentation) else shown.asked_db_hl
    return shown.kind, shown.ear, shown.frequency_hz, level


def heard(asked: tuple[Any, ...]) -> bool:
    """The answer of an ear that depends on nothing but the tone."""
    *_, frequency_hz, level_db_hl = asked
    return bool(level_db_hl is not None and level_db_hl >= 20 + frequency_hz / 500)


# The examiner who is killed ---------------------------------------------------------------------


def say(*words: object) -> None:
    """A line in one piece: a kill must not leave half of one."""
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


def examine(database: str, exam_id: int) -> None:
    """One life: go on with the exam and tell on stdout what was asked and what was taken."""
    with Store.open(database) as store:
        session = Session(store, exam_id, author="examiner")
        if session.record.state == "done":  # what the life before wrote last has only now landed
            return
        session.resume()
        say("resumed", len(session.trials), len(live_trials(session.trials)))
        while not session.done:
            shown = session.presentation()
            say("asked", *content(shown))
            trial = session.answer(heard(content(shown)))
            say("taken", trial.number)
            if trial.number % 5 == 0:  # now and then a slip of the finger
                session.undo()
                say("undone", trial.number)
        session.finish()
        say("finished")


def keep_nursery() -> None:
    """Fork an examiner for every line on stdin, and say when it is dead."""
    rehearse()
    say("ready")
    for line in sys.stdin:
        database, exam_id = line.split()
        child = os.fork()
        if child == 0:
            say("born", os.getpid())
            live_once(database, int(exam_id))
        sys.stdin.readline()  # until then the id is nobody else's, dead or alive
        _, status = os.waitpid(child, 0)
        say("dead", os.waitstatus_to_exitcode(status))


def live_once(database: str, exam_id: int) -> NoReturn:
    """Leaves by the shortest way: what the nursery has open is not the child's to close."""
    failed = False
    try:
        examine(database, exam_id)
    except Exception:
        traceback.print_exc()
        failed = True
    say("over")
    os._exit(failed)


def rehearse() -> None:
    """Load all that is slow to load, so that an examiner's life goes into examining."""
    with contextlib.suppress(ImportError):
        import psycopg  # noqa: F401
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "store.db") as store:
        visit = person_on_visit(store, "rehearsal")
        for plan in islice(plans(store, visit.person_id), 2):
            unbroken(store, visit, plan)


def plans(store: Store, person_id: int) -> Iterator[Plan]:
    """Exams and screens in turn, each with another seed."""
    for seed in count():
        yield plan_exam("right", seed=seed, max_tones=20)
        yield plan_screen(store, person_id, "left", rule="niosh-15", seed=seed)


def person_on_visit(store: Store, code: str) -> Visit:
    measured = datetime(2025, 5, 5, tzinfo=UTC)
    item = ImportedAudiogram(code, "left", AUDIOGRAM.to_dict(), measured)
    store.import_audiograms([item], author="mh", zone="UTC")
    person = store.person_by_code(code)
    assert person is not None
    return store.open_visit(person.id, author="mh", zone="UTC", mode="supervised")


def unbroken(store: Store, visit: Visit, plan: Plan) -> list[tuple[Any, ...]]:
    """All that an exam asks which nobody kills."""
    session = Session(store, open_exam(store, visit, plan, author="mh").id, author="mh")
    asked = []
    while not session.done:
        asked.append(content(session.presentation()))
        session.answer(heard(asked[-1]))
    session.finish()
    return asked


# The test ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Life:
    said: list[list[str]]
    killed: bool


class Nursery:
    """The process from which examiners are forked."""

    def __init__(self) -> None:
        one_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **one_thread},
        )
        self._says("ready")

    def _says(self, word: str) -> str:
        said, *rest = self._line()
        assert said == word, (said, rest)
        return " ".join(rest)

    def live(self, database: str, exam_id: int, lines: int, seconds: float) -> Life:
        """A life that is ended so long after the examiner has said so many lines."""
        self._tell(f"{database} {exam_id}")
        child = int(self._says("born"))
        said: list[list[str]] = []
        while len(said) < lines and ["over"] not in said:
            said.append(self._line())
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        self._tell("bury")
        while (line := self._line())[0] != "dead":
            said.append(line)
        assert line[1] in ("0", str(-signal.SIGKILL)), (line, said)
        return Life(said, killed=line[1] != "0")

    def _line(self) -> list[str]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().split()
        assert line, "the nursery is gone"
        return line

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(timeout=30) == 0
        self._process.stdout.close()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    opened = Nursery()
    yield opened
    opened.close()


def test_no_answer_is_lost_and_the_same_is_asked(database: str, nursery: Nursery) -> None:
    chance = random.Random(7)
    kills, answers = 0, 0
    with Store.open(database) as store:
        twin, visit = person_on_visit(store, "twin"), person_on_visit(store, "killed")
        pairs = zip(plans(store, twin.person_id), plans(store, visit.person_id), strict=True)
        while kills < KILLS:
            twins_plan, plan = next(pairs)
            expected = unbroken(store, twin, twins_plan)
            exam_id = open_exam(store, visit, plan, author="mh").id
            while store.exam(exam_id).state == "open":
                before = store.trials(exam_id)
                life = nursery.live(
                    database,
                    exam_id,
                    lines=chance.randrange(MOST_LINES),
                    seconds=chance.uniform(0.0, LONGEST_PAUSE_SECONDS),
                )
                kills += life.killed
                answers += check_life(life, before, store.trials(exam_id), expected)
            assert [content(t) for t in live_trials(store.trials(exam_id))] == expected
            (result, *again) = store.results(exam_id)
            # Killed between the result and the closing of the exam, it is shown and stored again.
            assert all(other.shown == result.shown for other in again)
        assert store.check() == []
    assert answers > KILLS  # the examiners did live long enough to work
    print(f"{kills} kills, {answers} answers told as taken, none lost")


def check_life(
    life: Life,
    before: Sequence[TrialRecord],
    after: Sequence[TrialRecord],
    expected: Sequence[tuple[Any, ...]],
) -> int:
    """All that an examiner said is in the store, and it asked what it should; how many answers."""
    at, had = 0, len(before)
    taken: dict[int, tuple[Any, ...]] = {}
    trials = {trial.number: trial for trial in after}
    for word, *rest in life.said:
        if word == "resumed":
            # A PostgreSQL server finishes what it was told by a client who is dead by now, so one
            # answer may have come to `before` since it was read.
            assert had <= int(rest[0]) <= had + 1
            had, at = int(rest[0]), int(rest[1])
        elif word == "asked":
            assert rest == [str(part) for part in expected[at]]
        elif word == "taken":
            taken[int(rest[0])] = expected[at]
            at += 1
        elif word == "undone":
            assert trials[int(rest[0])].voided_at is not None
            at -= 1
    for number, asked in taken.items():
        assert content(trials[number]) == asked
        assert trials[number].heard == heard(asked)
    assert tuple(trials) == tuple(range(1, len(after) + 1))
    # One answer may be on the disk whose taking was not told any more; never more than one.
    assert had + len(taken) <= len(after) <= had + len(taken) + 1
    kept = [content(trial) for trial in live_trials(after)]
    assert kept == expected[: len(kept)]
    return len(taken)


# The server ---------------------------------------------------------------------------------------

SERVER_KILLS = max(2, KILLS // 20)


class Client(threading.Thread):
    """Answers an exam at the server's API until it is done or told to stop, whatever fails."""

    def __init__(self, address: str, token: str, exam: str) -> None:
        super().__init__()
        self._client = httpx.Client(
            base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=60
        )
        self._path = f"/api/exams/{exam}"
        self.over = threading.Event()
        self.done = False
        self.taken: list[tuple[Any, ...]] = []  # what was asked and acknowledged
        self.broken = 0
        self.problems: list[str] = []

    def run(self) -> None:
        with self._client:
            while not self.over.is_set():
                try:
                    self._step()
                except httpx.TransportError:  # what a kill looks like from here
                    self.broken += 1
                    time.sleep(0.02)
                if self.done or self.problems:
                    break

    def _step(self) -> None:
        now = self._said(self._client.get(self._path))
        if now["state"] != "open":  # the last answer has ended it
            self.done = True
            return
        tone = now["play"] and now["play"]["presentation"]
        if not tone:
            self._said(self._client.post(f"{self._path}/finish", json={}))
            self.done = True
            return
        asked = ("tone", tone["ear"], tone["frequency_hz"], tone["level"])
        answer = {"trial": tone["trial"], "heard": heard(asked)}
        self._said(self._client.post(f"{self._path}/answer", json=answer))
        self.taken.append(asked[1:])

    def _said(self, answer: httpx.Response) -> Any:
        if not answer.is_success:
            self.problems.append(f"{answer.request.method} {answer.status_code} {answer.text}")
            raise httpx.TransportError("refused")
        return answer.json() if answer.content else {}

    def wait_for(self, answers: int) -> None:
        """Until so many more are taken, or there is nothing more to answer."""
        enough, give_up = len(self.taken) + answers, time.monotonic() + 300
        while len(self.taken) < enough and self.is_alive():
            assert time.monotonic() < give_up
            time.sleep(0.002)


def workers_of(served: "Served") -> list[int]:
    children = Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children").read_text()
    return [
        int(child)
        for child in children.split()
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


@pytest.mark.kills
@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_that_is_killed_in_mid_answers(
    database: str, tmp_path: Path, workers: int
) -> None:
    from support.web import Served, with_users  # which the nursery does not find

    with_users(database)
    chance = random.Random(workers)
    kills = worker_kills = answers = 0
    with Store.open(database) as store:
        _, token = Accounts(store).make_token("bob", name="booth", days=1, author="test")
        twin, visit = person_on_visit(store, "twin"), person_on_visit(store, "killed")
        pairs = zip(plans(store, twin.person_id), plans(store, visit.person_id), strict=True)
        while kills < SERVER_KILLS:
            twins_plan, plan = next(pairs)
            expected = unbroken(store, twin, twins_plan)
            exam = open_exam(store, visit, plan, author="mh")
            while store.exam(exam.id).state == "open" and kills < SERVER_KILLS:
                before = len(store.trials(exam.id))
                options = ("--port", "0", "--workers", str(workers))
                with Served(tmp_path, "--db", database, *options) as served:
                    client = Client(served.address, token, store.handle("exams", exam.id))
                    client.start()
                    client.wait_for(chance.randrange(1, 5))
                    if workers > 1:
                        time.sleep(chance.uniform(0.0, LONGEST_PAUSE_SECONDS))
                        os.kill(chance.choice(workers_of(served)), signal.SIGKILL)
                        worker_kills += 1
                        client.wait_for(chance.randrange(1, 4))  # the others go on
                    time.sleep(chance.uniform(0.0, LONGEST_PAUSE_SECONDS))
                    os.killpg(served.process.pid, signal.SIGKILL)
                    kills += 1
                    client.over.set()
                    client.join()
                assert client.problems == []
                trials = store.trials(exam.id)
                there = [content(trial) for trial in trials]
                assert [trial.number for trial in trials] == list(range(1, len(trials) + 1))
                tones = [asked for asked in there if asked[0] != "practice"]
                assert tones == expected[: len(tones)]
                assert all(trial.heard == heard(content(trial)) for trial in trials)
                # All that was acknowledged, in order; for each kill one may be there untold.
                unheard_of = len(trials) - before - len(client.taken)
                assert 0 <= unheard_of <= 1 + (workers > 1)
                left = iter(asked[1:] for asked in there[before:])
                assert all(asked in left for asked in client.taken)
                answers += len(client.taken)
            if store.exam(exam.id).state == "open":
                store.set_exam_state(exam.id, "abandoned", author="mh")
        assert store.check() == []
    assert answers >= kills
    print(
        f"{kills} kills of a server, {worker_kills} of a worker of it, "
        f"{answers} answers acknowledged, none lost"
    )


if __name__ == "__main__":
    keep_nursery()
