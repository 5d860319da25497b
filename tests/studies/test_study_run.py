"""Running studies: how they stop and go on, here and on a cluster."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

from earshift.cli import app
from earshift.engine.protocol import PROTOCOLS
from earshift.studies.case import Ear
from earshift.studies.paper import CURVE_TONES, PaperCase, paper_cases
from earshift.studies.run import run_study

BEST = PROTOCOLS["best"]
EARSHIFT = Path(sys.executable).with_name("earshift")
PATIENCE = 240  # seconds; only a broken program needs them

# One small study, as the library and as the command line spell it.
CASES = paper_cases(
    BEST, 12, ("normal", "mild"), ("differential", "random"), 5, max_tones=4, spread_db=3.0,
    until_right=True, least_tones=CURVE_TONES,
)  # fmt: skip
COMMAND = [
    "study", "paper", "--classes", "normal,mild", "--strategies", "differential,random",
    "--reps", "12", "--max-tones", "4", "--seed", "5",
]  # fmt: skip


def parts_of(out: Path) -> dict[str, Path]:
    return {path.stem: path for path in out.glob("parts/*.parquet")}


def rows_in(out: Path) -> pl.DataFrame:
    return pl.read_parquet(out / "tones.parquet")


def assert_same_rows(got: pl.DataFrame, wanted: pl.DataFrame) -> None:
    assert_frame_equal(got, wanted, check_exact=True)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """The rows of the small study, run in one go in this process."""
    return run_study(CASES, tmp_path_factory.mktemp("unbroken"), jobs=1)


@contextmanager
def started(command: Sequence[object], log: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its own process group, all of which is gone at the end; its words in `log`."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=file,
            stderr=file,
            start_new_session=True,
            env={**os.environ, **env},
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)


def wait_until(happened: Callable[[], object], process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.01)


def again(out: Path, *options: str) -> pl.DataFrame:
    """The same command once more, in this process; nothing that was finished is run again."""
    before = {key: path.stat().st_mtime_ns for key, path in parts_of(out).items()}
    done = CliRunner().invoke(app, [*COMMAND, "--out", str(out), "--json", *options])
    assert done.exit_code == 0, done.output
    after = {key: path.stat().st_mtime_ns for key, path in parts_of(out).items()}
    assert set(after) == {case.key for case in CASES}
    assert {key: after[key] for key in before} == before
    return rows_in(out)


# Stopping and going on -------------------------------------------------------------------------


def test_a_killed_study_goes_on_to_the_rows_of_an_unbroken_one(
    unbroken: pl.DataFrame, tmp_path: Path
) -> None:
    out, log = tmp_path / "out", tmp_path / "log"
    with started([EARSHIFT, *COMMAND, "--out", out, "--jobs", 1], log) as process:
        wait_until(lambda: parts_of(out), process, log)
        process.kill()
        assert process.wait(PATIENCE) == -signal.SIGKILL
    assert 0 < len(parts_of(out)) < len(CASES)
    assert not (out / "tones.parquet").exists()
    assert_same_rows(again(out, "--jobs", "1"), unbroken)


@pytest.mark.slow
def test_control_c_says_so_and_leaves_a_study_that_goes_on(
    unbroken: pl.DataFrame, tmp_path: Path
) -> None:
    out, log = tmp_path / "out", tmp_path / "log"
    with started([EARSHIFT, *COMMAND, "--out", out, "--jobs", 2], log) as process:
        wait_until(lambda: parts_of(out), process, log)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers get it too
        assert process.wait(PATIENCE) == 130, log.read_text()
    assert f"stopped; finished cases are in {out}" in log.read_text()
    assert 0 < len(parts_of(out)) < len(CASES)
    assert_same_rows(again(out, "--jobs", "1"), unbroken)


def test_half_written_files_are_not_read(unbroken: pl.DataFrame, tmp_path: Path) -> None:
    case = next(c for c in CASES if (c.old.name, c.rep) == ("mild", 1))
    wanted = unbroken.filter(pl.col("old") == "mild", pl.col("rep") == 1)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / f"{case.key}.4711.partial").write_bytes(b"PAR1 and then the power")
    (tmp_path / "tones.4711.partial").write_bytes(b"PAR1")
    assert_same_rows(run_study([case], tmp_path), wanted)
    assert_same_rows(rows_in(tmp_path), wanted)


def test_what_is_finished_is_read_and_not_run_again(unbroken: pl.DataFrame, tmp_path: Path) -> None:
    """The progress says where it starts, and the rows come from the file that is there."""
    (tmp_path / "parts").mkdir()
    marked = unbroken.filter(pl.col("old") == "mild", pl.col("rep") == 1).with_columns(
        log_bf=pl.lit(7.25)
    )
    case = next(c for c in CASES if (c.old.name, c.rep) == ("mild", 1))
    marked.write_parquet(tmp_path / "parts" / f"{case.key}.parquet")
    seen: list[tuple[int, int]] = []
    frame = run_study([case], tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 1)]
    assert_same_rows(frame, marked)


def test_another_option_does_not_reuse_rows(unbroken: pl.DataFrame, tmp_path: Path) -> None:
    def some(**options: Any) -> list[PaperCase]:
        return paper_cases(BEST, 1, ("mild",), ("differential",), **options)

    first = run_study(some(seed=5, max_tones=3), tmp_path)
    assert first["tone"].to_list() == [1, 2, 3]
    for cases in (some(seed=5, max_tones=4), some(seed=6, max_tones=3)):
        before = len(parts_of(tmp_path))
        frame = run_study(cases, tmp_path)
        assert len(parts_of(tmp_path)) == before + 1
        assert not frame.equals(first)
        assert frame.rows() == cases[0].rows()
    assert_same_rows(run_study(some(seed=5, max_tones=3), tmp_path), first)


CHANGES: list[dict[str, Any]] = [
    {"label": "other"},
    {"protocol": replace(BEST, rho_points=11)},
    {"strategies": ("random", "differential")},
    {"old": Ear("normal", ((500.0, 0.0), (8000.0, 1.0)))},
    {"news": (Ear.of_class("mild"),)},
    {"rep": 1},
    {"seed": 6},
    {"max_tones": 5},
    {"spread_db": 3.5},
    {"lapse": 0.01},
    {"guess": 0.01},
    {"domain": "audiometer"},
    {"until_right": False},
    {"least_tones": 3},
]


def test_every_field_of_a_case_is_in_its_key() -> None:
    assert {name for change in CHANGES for name in change} == {f.name for f in fields(PaperCase)}
    case = CASES[0]
    keys = [case.key, *(replace(case, **change).key for change in CHANGES)]
    assert len(set(keys)) == len(keys)
    assert replace(case).key == case.key


def test_rows_come_in_the_order_of_the_cases(unbroken: pl.DataFrame) -> None:
    order = unbroken.select("old", "rep").unique(maintain_order=True).rows()
    assert order == [(case.old.name, case.rep) for case in CASES]
    assert order != sorted(order)


# The same rows everywhere ----------------------------------------------------------------------


@pytest.mark.slow
def test_two_local_processes_give_the_same_rows(unbroken: pl.DataFrame, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    frame = run_study(CASES, tmp_path, jobs=2, progress=lambda *state: seen.append(state))
    assert_same_rows(frame, unbroken)
    assert_same_rows(rows_in(tmp_path), unbroken)
    assert seen == [(k, len(CASES)) for k in range(len(CASES) + 1)]


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A Dask scheduler with two worker processes: its address, and its process."""
    from distributed import Client

    folder = tmp_path_factory.mktemp("cluster")
    file, log = folder / "scheduler.json", folder / "log"
    dask = [sys.executable, "-m", "dask"]
    common = ["--scheduler-file", file, "--host", "127.0.0.1", "--no-dashboard"]
    workers = ["worker", "--nworkers", 2, "--nthreads", 1]
    env = {"DASK_TEMPORARY_DIRECTORY": str(folder)}
    with (
        started([*dask, "scheduler", "--port", 0, *common], log, **env) as scheduler,
        started([*dask, *workers, *common], folder / "workers", **env),
    ):
        wait_until(lambda: file.exists() and file.read_text().endswith("}"), scheduler, log)
        address = json.loads(file.read_text())["address"]
        with Client(address, timeout=PATIENCE) as client:
            client.wait_for_workers(2, timeout=PATIENCE)
        yield address, scheduler


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_rows(
    unbroken: pl.DataFrame, cluster: tuple[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    from distributed import Client

    address, _ = cluster
    assert_same_rows(again(tmp_path, "--cluster", address), unbroken)
    with Client(address, timeout=PATIENCE) as client:
        story = client.run_on_scheduler(
            lambda dask_scheduler: [(str(e[0]), e[2]) for e in dask_scheduler.transition_log]
        )
    ran = {key for key, state in story if state == "memory"}
    assert {f"earshift-{case.key}" for case in CASES} <= ran


def test_a_cluster_that_goes_away_is_an_error(
    cluster: tuple[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """The last test of this cluster: it kills the scheduler after the first case."""
    address, scheduler = cluster
    cases = [replace(case, seed=6) for case in CASES]

    def progress(done: int, total: int) -> None:
        if done == 1:
            scheduler.kill()

    with pytest.raises((ValueError, OSError), match=r"cluster|scheduler"):
        run_study(cases, tmp_path, cluster=address, progress=progress)
    assert 0 < len(parts_of(tmp_path)) < len(cases)


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    address = "tcp://127.0.0.1:9"  # the discard service, which nobody runs
    done = subprocess.run(
        [EARSHIFT, *COMMAND, "--out", tmp_path / "out", "--cluster", address],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2
    assert f"earshift: no Dask scheduler answers at '{address}'" in done.stderr
    assert "Traceback" not in done.stderr
    assert parts_of(tmp_path / "out") == {}
