"""What is done while the disk fails: an answer, an import, an upgrade, a backup, a restore.

Run as a program, with shim.c preloaded, this does one of them again and again, each time with a
fault at another step, and says how it ended, one JSON line each; or once, and writes down all that
it does to the disk.
"""

import argparse
import ctypes
import json
import os
import random
import shutil
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from earshift.cli import app
from earshift.clinic.plan import open_exam, plan_exam
from earshift.clinic.session import Session
from earshift.engine.refusal import Refusal, Trouble
from earshift.store import Store, database
from earshift.store.trials import live_trials

FIXTURES = Path(__file__).parents[1] / "store" / "fixtures"
FOR_EVER = 10**9
BEFORE, ANSWERS = 2, 2  # trials stored before, and taken while the disk fails
PEOPLE = 4
sys.path.insert(0, str(FIXTURES))

from record_store_fixture import summary  # noqa: E402


class Shim:
    """The preloaded library."""

    def __init__(self) -> None:
        self._calls = ctypes.CDLL(None, use_errno=False)
        self._calls.faults_hit.restype = ctypes.c_char_p
        self._calls.faults_disarm.restype = ctypes.c_long

    def watch(self, folder: Path) -> None:
        self._calls.faults_watch(os.fsencode(folder))

    def arm(self, nth: int, error: int = 0, lasts: bool = False, reads: bool = False) -> None:
        self._calls.faults_arm(ctypes.c_long(nth), error, int(lasts), int(reads))

    def disarm(self) -> int:
        """How many calls there were."""
        return int(self._calls.faults_disarm())

    def hit(self) -> str:
        return str(self._calls.faults_hit().decode())

    def log_to(self, file: int) -> None:
        self._calls.faults_log(file)

    def mark(self, words: str) -> None:
        self._calls.faults_mark(words.encode())


Mark = Callable[[str], None]


class Job:
    """Something that people wait for: how it is prepared, done, and looked at afterwards."""

    def prepare(self, folder: Path) -> None:
        raise NotImplementedError

    def do(self, folder: Path, mark: Mark) -> dict[str, Any]:
        """How it ended: an exit code, what was said, and a traceback if there was one."""
        raise NotImplementedError

    def look(self, folder: Path) -> dict[str, Any]:
        """What is stored, and what `db check` says of it."""
        raise NotImplementedError


def _ran(mark: Mark, *words: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, words)
    broken = done.exception if not isinstance(done.exception, SystemExit) else None
    told = "".join(traceback.format_exception(broken)) if broken is not None else None
    if done.exit_code == 0:
        mark("done")
    return {"code": done.exit_code, "said": done.stderr.strip(), "traceback": told}


class Answer(Job):
    """A program opens the database, takes two answers and closes it."""

    def prepare(self, folder: Path) -> None:
        with Store.open(folder / "store.db") as store:
            person = store.add_person(author="mh", code="4711", name="Ada")
            visit = store.open_visit(person.id, author="mh", zone="UTC", mode="supervised")
            plan = plan_exam("right", seed=1, max_tones=20)
            self._answer(Session(store, open_exam(store, visit, plan, author="mh").id, author="mh"))

    @staticmethod
    def _answer(session: Session, mark: Mark = lambda _words: None) -> None:
        for _ in range(ANSWERS):
            tone = session.presentation()
            trial = session.answer(bool(tone.level_db_hl is not None and tone.level_db_hl >= 30))
            mark(f"taken {trial.number}")

    def do(self, folder: Path, mark: Mark) -> dict[str, Any]:
        taken: list[str] = []

        def told(words: str) -> None:
            mark(words)
            taken.append(words)

        try:
            with Store.open(folder / "store.db") as store:
                session = Session(store, 1, author="mh")
                session.resume()
                self._answer(session, told)
        except Refusal as refusal:
            code = 4 if isinstance(refusal, Trouble) else 2
            return {"code": code, "said": str(refusal), "traceback": None, "taken": len(taken)}
        except Exception:
            broken = traceback.format_exc()
            return {"code": 1, "said": "", "traceback": broken, "taken": len(taken)}
        return {"code": 0, "said": "", "traceback": None, "taken": len(taken)}

    def look(self, folder: Path) -> dict[str, Any]:
        with Store.open(folder / "store.db") as store:
            trials = live_trials(store.trials(1))
            told = [[one.number, one.frequency_hz, one.played_db_hl, one.heard] for one in trials]
            return {"trials": told, "problems": store.check()}


class Import(Job):
    """`earshift import` of a few people, each in a transaction of their own."""

    def prepare(self, folder: Path) -> None:
        Store.open(folder / "store.db").close()
        rows = [
            f"A{number},{ear},{hz},{10 + number},2025-05-05"
            for number in range(PEOPLE)
            for ear in ("right", "left")
            for hz in (500, 1000, 2000, 4000)
        ]
        head = "person,ear,frequency_hz,threshold_db_hl,date"
        (folder / "people.csv").write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")

    def do(self, folder: Path, mark: Mark) -> dict[str, Any]:
        database.HOLD_SECONDS = database.PAUSE_SECONDS = 0.0
        where = ("--db", str(folder / "store.db"), "--author", "mh", "--timezone", "UTC")
        return _ran(mark, "import", str(folder / "people.csv"), *where)

    def look(self, folder: Path) -> dict[str, Any]:
        with Store.open(folder / "store.db") as store:
            people = {
                person.code: sorted(exam.ear for exam in store.exams(person.id))
                for person in store.people()
            }
            return {"people": people, "problems": store.check()}


class Upgrade(Job):
    """`earshift db upgrade` of a database of an older version."""

    schema = "0001"

    def prepare(self, folder: Path) -> None:
        with closing(sqlite3.connect(folder / "store.db")) as connection:
            script = (FIXTURES / f"store_schema_{self.schema}.sql").read_text(encoding="utf-8")
            connection.executescript(script)
            connection.execute("PRAGMA journal_mode = WAL")  # as any store has it
        (folder / "store.db").chmod(0o600)

    def do(self, folder: Path, mark: Mark) -> dict[str, Any]:
        return _ran(mark, "db", "upgrade", "--db", str(folder / "store.db"))

    def look(self, folder: Path) -> dict[str, Any]:
        kept = [_schema(file) for file in sorted(folder.glob("store.db.schema-????"))]
        schema = _schema(folder / "store.db")
        Store.upgrade(folder / "store.db")
        with Store.open(folder / "store.db") as store:
            found = {"summary": summary(store), "problems": store.check()}
        return {"schema": schema, "kept": kept, **found}


def _schema(file: Path) -> str:
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found = connection.execute("SELECT version_num FROM earshift_schema").fetchone()
        return str(found[0])


class NewerUpgrade(Upgrade):
    schema = "0004"


class Backup(Job):
    """`earshift db backup`."""

    copy = "copy.db"

    def prepare(self, folder: Path) -> None:
        Answer().prepare(folder)

    def do(self, folder: Path, mark: Mark) -> dict[str, Any]:
        where = ("--db", str(folder / "store.db"))
        return _ran(mark, "db", "backup", str(folder / self.copy), *where)

    def look(self, folder: Path) -> dict[str, Any]:
        there = (folder / self.copy).exists()
        with Store.open(folder / "store.db") as store:
            kept, problems = len(store.trials(1)), store.check()
        if there:
            file = folder / "tried" / "store.db"
            Store.restore(folder / self.copy, file)
            with Store.open(file) as store:
                assert len(store.trials(1)) == kept
                problems += store.check()
            shutil.rmtree(file.parent)
        return {"copy": there, "trials": kept, "problems": problems}


class Restore(Job):
    """`earshift db restore`, into a folder that is not there yet."""

    def prepare(self, folder: Path) -> None:
        Answer().prepare(folder)
        with Store.open(folder / "store.db") as store:
            store.backup(folder / "copy.db")

    def do(self, folder: Path, mark: Mark) -> dict[str, Any]:
        where = ("--db", str(folder / "new" / "store.db"))
        return _ran(mark, "db", "restore", str(folder / "copy.db"), *where)

    def look(self, folder: Path) -> dict[str, Any]:
        there = (folder / "new" / "store.db").exists()
        with Store.open(folder / "new" / "store.db" if there else folder / "store.db") as store:
            return {"copy": there, "trials": len(store.trials(1)), "problems": store.check()}


JOBS: dict[str, Job] = {
    "answer": Answer(),
    "import": Import(),
    "upgrade-0001": Upgrade(),
    "upgrade-0004": NewerUpgrade(),
    "backup": Backup(),
    "restore": Restore(),
}


def picked(steps: int, most: int) -> list[int]:
    """So many of all steps, spread over them; the first and the last always."""
    if steps <= most:
        return list(range(1, steps + 1))
    chance = random.Random(steps)
    return sorted({1, steps, *chance.sample(range(2, steps), most - 2)})


def faults(job: Job, folder: Path, how: dict[str, Any], most: int) -> Iterator[dict[str, Any]]:
    """Do a job with a fault at each step, and then once more without."""
    shim, before, here = Shim(), folder / "before", folder / "here"
    shim.watch(here)

    def ran(nth: int) -> tuple[dict[str, Any], int]:
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(before, here)
        shim.arm(nth, **how)
        ended = job.do(here, shim.mark)
        return ended, shim.disarm()

    ended, steps = ran(FOR_EVER)
    yield {"steps": steps, **ended, **_looked(job, here)}
    for nth in picked(steps, most):
        ended, _ = ran(nth)
        told = {"step": nth, "hit": shim.hit(), **ended, **_looked(job, here)}
        told["left"] = sorted(path.name for path in here.rglob("*"))
        told["again"] = {**job.do(here, shim.mark), **_looked(job, here)}
        yield told


def requests(folder: Path, how: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Answers by the web app, with a fault at each step of one; and the same answer once more."""
    sys.path[:0] = [str(Path(__file__).parents[1] / "web")]
    from test_web_clinic import Desk

    from earshift.web.settings import Settings
    from support.web import client_of, with_users

    shim, file = Shim(), folder / "here" / "store.db"
    file.parent.mkdir()
    with_users(str(file))
    shim.watch(file.parent)
    with client_of(Settings(db=str(file), zone="UTC")) as client:
        desk = Desk(client)
        store = client.app.state.store  # type: ignore[attr-defined]

        def exam() -> tuple[str, int]:
            person = desk.person(code=f"P{len(store.people())}")
            found = desk.test(person, kind="exam")["exams"][0]["id"]
            return found, store.behind("exams", found)

        def answer(handle: str, trial: int) -> tuple[int, Any]:
            body = {"trial": trial, "heard": trial % 2 == 0}
            sent = client.post(f"/api/exams/{handle}/answer", headers=desk.headers, json=body)
            return sent.status_code, sent.json()

        (handle, row), nth, steps = exam(), 0, FOR_EVER
        while nth < steps:
            nth += 1
            play = desk.get(f"/exams/{handle}")["play"]
            if play is None or "presentation" not in play or play["presentation"]["trial"] > 15:
                handle, row = exam()
                play = desk.get(f"/exams/{handle}")["play"]
            trial, before = play["presentation"]["trial"], len(store.trials(row))
            shim.arm(nth, **how)
            code, said = answer(handle, trial)
            calls = shim.disarm()
            if not shim.hit():
                steps = calls  # this one was without a fault: there are no more steps
            now = len(store.trials(row))
            again = answer(handle, trial)[0]
            yield {
                "step": nth,
                "hit": shim.hit(),
                "code": code,
                "said": said.get("detail", ""),
                "stored": now - before,
                "again": again,
                "stored again": len(store.trials(row)) - before,
            }
        yield {"problems": store.check()}


def _looked(job: Job, folder: Path) -> dict[str, Any]:
    try:
        return {"state": job.look(folder)}
    except Exception:
        return {"state": None, "look": traceback.format_exc()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=[*JOBS, "request"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--error", type=int)
    parser.add_argument("--lasts", action="store_true")
    parser.add_argument("--reads", action="store_true")
    parser.add_argument("--most", type=int, default=FOR_EVER)
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    how = {"error": given.error, "lasts": given.lasts, "reads": given.reads}
    if given.job == "request":
        for told in requests(given.folder, how):
            print(json.dumps(told), flush=True)
        return
    job = JOBS[given.job]
    (given.folder / "before").mkdir()
    job.prepare(given.folder / "before")
    if given.log is None:
        for told in faults(job, given.folder, how, given.most):
            print(json.dumps(told), flush=True)
        return
    shim, here = Shim(), given.folder / "here"
    shutil.copytree(given.folder / "before", here)
    shim.watch(here)
    with given.log.open("wb") as log:
        shim.log_to(log.fileno())
        ended = job.do(here, shim.mark)
        shim.log_to(-1)
    print(json.dumps({**ended, **_looked(job, here)}))


if __name__ == "__main__":
    main()
