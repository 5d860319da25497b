"""A disk that fails, fills up or loses power at any step: nothing acknowledged is lost, nothing is
half done, and what is said is a sentence.

The program of jobs.py runs with a library preloaded (shim.c) that fails the n-th call, or writes
all calls down; disk.py makes of these the disks that a power cut may leave. EARSHIFT_FAULTS is how
many steps of each are tried, the first and the last always among them; `make soak` tries all.
"""

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from disk import CUTS, cuts
from jobs import ANSWERS, BEFORE, JOBS, PEOPLE, picked

from earshift.store.tables import SCHEMA

HERE = Path(__file__).parent
STEPS = int(os.environ.get("EARSHIFT_FAULTS", "8"))
FAULTS = {
    "full": ["--error", str(errno.ENOSPC), "--lasts"],
    "broken": ["--error", str(errno.EIO)],
    "gone": ["--error", str(errno.EIO), "--lasts", "--reads"],
}
NO_CC = "faults group left out: no cc in PATH (Debian: gcc and libc6-dev packages)"
UNSURE = "stored before you repeat it"
pytestmark = [pytest.mark.kills, pytest.mark.slow]


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(NO_CC)
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    options = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"]
    command = ["cc", *options, "-o", str(library), str(HERE / "shim.c"), "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return library


def ran(shim: Path, *words: str) -> list[dict[str, Any]]:
    """What the program said, line by line."""
    surroundings = {**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": str(HERE.parent)}
    command = [sys.executable, str(HERE / "jobs.py"), *words]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_sound(job: str, state: Any, whole: Any, taken: int) -> None:
    """What is stored is in order: all that was acknowledged, and of the rest each part whole."""
    assert state["problems"] == []
    if job == "answer":
        assert state["trials"] == whole["trials"][: len(state["trials"])]
        assert len(state["trials"]) >= BEFORE + taken
    elif job == "import":
        assert all(ears == ["left", "right"] for ears in state["people"].values())
    elif job.startswith("upgrade"):
        assert state["summary"] == whole["summary"]
        if state["schema"] == SCHEMA:  # else the copy may not be needed
            assert set(state["kept"]) == {job[-4:]}
    else:
        assert state["trials"] == whole["trials"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("job", JOBS)
def test_a_disk_that_fails(shim: Path, tmp_path: Path, job: str, fault: str) -> None:
    first, *rest = ran(shim, job, str(tmp_path), *FAULTS[fault], "--most", str(STEPS))
    whole = first["state"]
    assert (first["code"], whole["problems"]) == (0, [])
    assert rest[0]["step"] == 1
    assert rest[-1]["step"] == first["steps"]
    for told in rest:
        assert told["traceback"] is None, told
        # A file of the user's that cannot be read is wrong input; all else is the store's trouble.
        unread = told["hit"].startswith(("open people.csv", "read people.csv"))
        assert told["code"] in (0, 2 if unread else 4), told
        assert not unread or "people.csv" in told["said"], told
        assert told["state"] is not None, told["look"]
        assert_sound(job, told["state"], whole, told.get("taken", 0))
        again = told["again"]
        if told["code"] == 0:  # it was said to be done, so it is
            assert told["state"] == whole, told
        else:
            assert told["said"].count("\n") == 0, told
            assert "Errno" not in told["said"], told
            assert again["code"] == 0 or "already exists" in again["said"], told
        if "Nothing was changed" in told["said"] and job == "answer":
            assert len(told["state"]["trials"]) == BEFORE + told["taken"], told
        if "unlink" not in told["hit"] and fault != "gone":  # from a disk that is gone nothing goes
            assert not [name for name in told["left"] if "unfinished" in name], told
        assert again["state"] is not None, again["look"]
        assert again["state"]["problems"] == []
        if job == "answer":
            assert len(again["state"]["trials"]) == len(told["state"]["trials"]) + ANSWERS
        elif job.startswith("upgrade"):
            assert again["state"]["schema"] == SCHEMA
        else:
            assert again["state"] == whole, told
    print(f"{job}, disk {fault}: {len(rest)} of {first['steps']} steps failed, all in order")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_disk_that_fails_under_the_server(shim: Path, tmp_path: Path, fault: str) -> None:
    *requests, end = ran(shim, "request", str(tmp_path), *FAULTS[fault])
    assert end == {"problems": []}
    assert len(requests) > 5
    for told in requests:
        assert told["code"] == (503 if told["hit"] else 200) or told["stored"] == 1, told
        assert told["again"] == 200, told  # the same answer, once more
        assert told["stored again"] == 1, told
        if told["code"] == 503:
            assert "server's" in told["said"], told  # disk, or log
            assert told["stored"] == 0 or UNSURE in told["said"], told
    print(f"a request, disk {fault}: all {len(requests) - 1} steps failed, all in order")


@pytest.mark.parametrize("job", JOBS)
def test_a_power_cut(shim: Path, tmp_path: Path, job: str) -> None:
    log, after = tmp_path / "log", tmp_path / "after"
    (told,) = ran(shim, job, str(tmp_path), "--log", str(log))
    whole = told["state"]
    assert told["code"] == 0
    folder, before = tmp_path / "here", tmp_path / "before"
    steps = sum(1 for _ in cuts(folder, before, log))
    tried = 0
    for step, disk in enumerate(cuts(folder, before, log)):
        if step + 1 not in picked(steps, 3 * STEPS):
            continue
        for how in CUTS:
            for chance in range(2 if how == "torn" else 1):
                shutil.rmtree(after, ignore_errors=True)
                for name, content in disk.cut(how, random.Random(1000 * step + chance)).items():
                    (after / name).parent.mkdir(parents=True, exist_ok=True)
                    (after / name).write_bytes(content)
                    (after / name).chmod(0o600)
                state = JOBS[job].look(after)
                where = (step, how, chance, disk.marks)
                taken = sum(mark.startswith("taken") for mark in disk.marks)
                assert_sound(job, state, whole, taken), where
                if "done" in disk.marks:
                    assert state == whole, where
                tried += 1
    assert len(disk.marks) == (ANSWERS if job == "answer" else 1)
    assert PEOPLE > 1
    print(f"{job}: {tried} disks after a power cut at {steps} steps, all in order")
