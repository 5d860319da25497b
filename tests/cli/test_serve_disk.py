"""The real server on a disk that is really full, and on a PostgreSQL that takes nothing."""

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from earshift.store import Store
from support.clinic_day import Clinic
from support.databases import PostgresqlServer
from support.machine import small_disk
from support.web import Served, with_users

LOST = "the server has lost its database"
READ_ONLY = "the database cannot be written to: nothing was stored"
FULL = "the server's disk is full: nothing was stored"


class Work:
    """People added and answers given through the API, with what was acknowledged."""

    def __init__(self, clinic: Clinic) -> None:
        self.clinic = clinic
        self.people: list[str] = []
        self.answers = 0
        self._numbers = count(1)
        person = clinic.person("Ada", "first")
        self.exam = clinic.begin(person, kind="exam")["exams"][0]["id"]

    def answer(self) -> httpx.Response:
        looked = self.clinic.look(f"/api/exams/{self.exam}")
        if not looked.is_success:  # a look at somebody is written down, too
            return looked
        tone = looked.json()["play"]["presentation"]
        return self.give({"trial": tone["trial"], "heard": (tone["level"] or 0) >= 30})

    def give(self, answer: Mapping[str, Any]) -> httpx.Response:
        told = self.clinic.ask(f"/api/exams/{self.exam}/answer", answer)
        self.answers += told.is_success
        return told

    def add(self) -> httpx.Response:
        code = f"C{next(self._numbers)}"
        told = self.clinic.ask("/api/people", {"code": code, "name": "x" * 150})
        if told.is_success:
            self.people.append(code)
        return told

    def until_refused(self, do: Callable[[], httpx.Response]) -> httpx.Response:
        for _ in range(2000):
            told = do()
            if not told.is_success:
                return told
        raise AssertionError("it was never refused")

    def require_all_in(self, db: str) -> None:
        """All that was acknowledged is there, and of answers nothing else."""
        with Store.open(db) as store:
            there = {one.code for one in store.people(limit=10**6)}
            assert there == {"first", *self.people}
            trials = store.trials(store.behind("exams", self.exam))
            assert [one.number for one in trials] == list(range(1, self.answers + 1))
            assert store.check() == []


def readiness(served: Served) -> tuple[int, Any]:
    told = httpx.get(f"{served.address}/api/health/ready", timeout=60)
    return told.status_code, told.json()["waiting_for"]


def test_a_full_disk_is_said_and_work_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk:
        db = str(disk.folder / "store.db")
        with_users(db)
        with Served(tmp_path, "--db", db, "--port", "0") as served:
            with Clinic(served.address) as clinic:
                work = Work(clinic)
                for _ in range(3):
                    assert work.answer().is_success
                tone = clinic.get(f"/api/exams/{work.exam}")["play"]["presentation"]
                disk.fill()
                answer = {"trial": tone["trial"], "heard": True}
                for refused in (
                    work.until_refused(work.add),
                    work.give(answer),
                    work.answer(),
                    work.add(),
                ):
                    assert refused.status_code == 503, refused.text
                    assert refused.json()["detail"].startswith(FULL), refused.text
                assert httpx.get(f"{served.address}/api/health", timeout=60).status_code == 200
                status, waits = readiness(served)
                assert (status, waits[0]) == (503, "disk-full")
                disk.resize("64m")
                assert work.give(answer).is_success
                for _ in range(3):
                    assert work.answer().is_success
                assert work.add().is_success
                wait_until_ready(served)
            assert "Traceback" not in served.log_text()
        work.require_all_in(db)


def test_a_database_that_is_read_only_is_said_and_work_goes_on_when_it_is_not(
    postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    server = PostgresqlServer(postgresql_server.tools)  # its settings are changed
    try:
        db = server.new_database()
        with_users(db)
        with Served(tmp_path, "--db", db, "--port", "0") as served:
            with Clinic(served.address) as clinic:
                work = Work(clinic)
                assert work.answer().is_success
                tone = clinic.get(f"/api/exams/{work.exam}")["play"]["presentation"]
                answer = {"trial": tone["trial"], "heard": True}
                wait_until_ready(served)
                server.setting("default_transaction_read_only", "on")
                for refused in (work.until_refused(work.add), work.give(answer), work.add()):
                    assert refused.status_code == 503, refused.text
                    assert refused.json()["detail"].startswith(READ_ONLY), refused.text
                assert httpx.get(f"{served.address}/api/health", timeout=60).status_code == 200
                assert readiness(served) == (503, ["database-read-only"])
                server.setting("default_transaction_read_only", "off")
                wait_until_ready(served)
                assert work.give(answer).is_success
                assert work.add().is_success
            assert "Traceback" not in served.log_text()
        work.require_all_in(db)
    finally:
        server.close()


def test_a_full_disk_under_postgresql_is_said_and_work_goes_on_when_there_is_room(
    postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    """Where its log does not fit any more, it ends: then it is started again."""
    place = tmp_path_in_reach()
    with small_disk(place / "disk", "80m") as disk:
        server = PostgresqlServer(postgresql_server.tools, folder=disk.folder)
        try:
            db = server.new_database()
            with_users(db)
            with Served(tmp_path, "--db", db, "--port", "0") as served:
                with Clinic(served.address) as clinic:
                    work = Work(clinic)
                    assert work.answer().is_success
                    disk.fill()
                    refused = work.until_refused(work.add)
                    assert refused.status_code == 503, refused.text
                    assert refused.json()["detail"].startswith((FULL, LOST)), refused.text
                    assert httpx.get(f"{served.address}/api/health", timeout=60).status_code == 200
                    disk.resize("160m")
                    server.revive()
                    wait_until_ready(served)
                    for told in (work.answer(), work.add()):
                        assert told.is_success, told.text
                assert "Traceback" not in served.log_text()
            work.require_all_in(db)
        finally:
            server.close()
    shutil.rmtree(place)


def tmp_path_in_reach() -> Path:
    """A folder that PostgreSQL's user can enter, which that of a test is not."""
    folder = Path(tempfile.mkdtemp(prefix="earshift-"))
    folder.chmod(0o755)
    return folder


def wait_until_ready(served: Served) -> None:
    for _ in range(600):
        if readiness(served) == (200, []):
            return
        time.sleep(0.2)
    raise AssertionError(readiness(served))
