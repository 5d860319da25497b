"""Simulation studies: their rows, how they stop and go on, and their summaries."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

import earshift as es
from earshift.cli import app
from earshift.engine.domain import DOMAINS
from earshift.engine.norms import class_names
from earshift.engine.protocol import PROTOCOLS
from earshift.studies import study
from earshift.studies.study import Case, Ear, Run, paper_cases, run_case, run_study, seed_of

BEST = PROTOCOLS["best"]
EARSHIFT = Path(sys.executable).with_name("earshift")
PATIENCE = 240  # seconds; only a broken program needs them

# One small study, as the library and as the command line spell it.
CASES = paper_cases(
    BEST, 3, ("normal", "mild"), ("differential", "random"), 5, max_tones=4, spread_db=3.0
)
COMMAND = [
    "study", "paper", "--classes", "normal,mild", "--strategies", "differential,random",
    "--reps", "3", "--max-tones", "4", "--seed", "5",
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
    assert f"stopped; what is finished is in {out}" in log.read_text()
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
    def some(**options: Any) -> list[Case]:
        return paper_cases(BEST, 1, ("mild",), ("differential",), **options)

    first = run_study(some(seed=5, max_tones=3), tmp_path)
    assert first["tone"].to_list() == [1, 2, 3]
    for cases in (some(seed=5, max_tones=4), some(seed=6, max_tones=3)):
        before = len(parts_of(tmp_path))
        frame = run_study(cases, tmp_path)
        assert len(parts_of(tmp_path)) == before + 1
        assert not frame.equals(first)
        assert frame.rows() == run_case(cases[0])
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
    {"until_right": True},
]


def test_every_field_of_a_case_is_in_its_key() -> None:
    assert {name for change in CHANGES for name in change} == {f.name for f in fields(Case)}
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


# Rows ------------------------------------------------------------------------------------------

ALL = Case(
    label="a label",
    protocol=BEST,
    strategies=study.STRATEGIES,
    old=Ear.of_class("slight"),
    news=(Ear.of_class("slight"), Ear.of_class("mild")),
    rep=2,
    seed=11,
    max_tones=7,
)


@pytest.fixture(scope="module")
def rows() -> pl.DataFrame:
    """One case with all strategies, same and changed."""
    return study._frame(run_case(ALL))


def test_one_row_per_tone_and_exactly_these_columns(rows: pl.DataFrame) -> None:
    assert rows.schema == {
        "protocol": pl.String,
        "strategy": pl.String,
        "old": pl.String,
        "new": pl.String,
        "rep": pl.Int64,
        "tone": pl.Int64,
        "frequency_hz": pl.Float64,
        "level_db_hl": pl.Float64,
        "heard": pl.Boolean,
        "log_bf": pl.Float64,
        "p_changed": pl.Float64,
    }
    names = ("protocol", "strategy", "old", "new", "rep")
    tones = {key: part["tone"].to_list() for key, part in rows.group_by(names)}
    assert tones == {
        ("a label", strategy, "slight", new, 2): list(
            range(1, (7 if strategy == "differential" else 50) + 1)
        )
        for strategy in ("differential", "bald", "uncertainty", "random")
        for new in ("slight", "mild")
    }
    sigmoid = 1 / (1 + np.exp(-rows["log_bf"].to_numpy()))
    assert rows["p_changed"].to_numpy() == pytest.approx(sigmoid, abs=1e-12)


def test_baselines_run_as_long_as_a_longer_screen() -> None:
    case = replace(ALL, strategies=("random",), news=ALL.news[:1], max_tones=52)
    assert [row[5] for row in run_case(case)] == list(range(1, 53))


def test_every_strategy_meets_the_same_first_exam(rows: pl.DataFrame) -> None:
    """Screens rebuilt against one first exam, recomputed here, show the evidence in the rows."""
    first = es.Exam(seed=seed_of(11, 2, "slight"), max_tones=50)
    ear = es.Listener.of_class("slight", seed=seed_of(11, 2, "slight", "first"))
    while not first.done:
        tone = first.ask()
        first.tell(tone, ear(tone))
    for _, part in rows.group_by("strategy", "new"):
        screen = es.Screen(first, BEST)
        for row in part.sort("tone").head(12).iter_rows(named=True):
            screen.tell(es.Tone(row["frequency_hz"], row["level_db_hl"]), row["heard"])
            if row["tone"] in (1, 7, 12):
                assert row["log_bf"] == pytest.approx(screen.log_bf, abs=1e-9)


def test_every_strategy_meets_the_same_luck(rows: pl.DataFrame) -> None:
    """The n-th tone of any strategy that is easier to hear is heard if the harder one was."""
    compared = 0
    for new in ("slight", "mild"):
        ear = es.Listener.of_class(new)
        answers = {
            strategy: [
                (ear.p_heard(es.Tone(row["frequency_hz"], row["level_db_hl"])), row["heard"])
                for row in rows.filter(
                    pl.col("new") == new, pl.col("strategy") == strategy
                ).iter_rows(named=True)
            ]
            for strategy in study.STRATEGIES
        }
        for one, other in combinations(answers.values(), 2):
            for pair in zip(one, other, strict=False):
                (p_hard, hard), (p_easy, easy) = sorted(pair, key=lambda answer: answer[0])
                assert easy or not hard
                assert hard == easy or p_hard < p_easy
                compared += 0.1 < p_hard < p_easy < 0.9
    assert compared > 20  # pairs of tones where chance had a say


def test_a_strategy_alone_gives_the_rows_it_gives_in_company(rows: pl.DataFrame) -> None:
    alone = study._frame(run_case(replace(ALL, strategies=("random",))))
    assert_same_rows(alone, rows.filter(pl.col("strategy") == "random"))


@pytest.mark.parametrize("option", [{"spread_db": 12.0}, {"lapse": 0.4}, {"guess": 0.4}])
def test_the_listener_is_the_one_asked_for(rows: pl.DataFrame, option: dict[str, float]) -> None:
    """Random tones do not depend on answers, so only the listener can make a difference."""
    case = replace(ALL, strategies=("random",), news=ALL.news[1:], max_tones=50, **option)
    heard = np.array([row[8] for row in run_case(case)])
    usual = rows.filter(pl.col("strategy") == "random", pl.col("new") == "mild")
    ear = es.Listener.of_class("mild", seed=seed_of(11, 2, "slight", "mild", "screen"), **option)
    tones = [es.Tone(*tone) for tone in usual.select("frequency_hz", "level_db_hl").rows()]
    assert heard.tolist() == [ear(tone) for tone in tones]
    assert heard.tolist() != usual["heard"].to_list()


def test_tones_come_from_the_grid_asked_for() -> None:
    case = replace(ALL, strategies=("differential",), domain="audiometer")
    assert {row[6] for row in run_case(case)} <= set(DOMAINS["audiometer"].smooth[0].values)


def test_until_right_stops_once_the_right_model_has_won() -> None:
    limit = math.log(100.0)
    whole = replace(ALL, strategies=("differential",), news=(Ear.of_class("moderate"),))
    full = [row[9] for row in run_case(whole)]
    cut = [row[9] for row in run_case(replace(whole, until_right=True))]
    assert len(cut) < len(full) == 7
    assert cut == full[: len(cut)]
    assert cut[-1] >= limit > max(cut[:-1], default=-math.inf)


def test_seeds_are_the_same_on_every_machine() -> None:
    assert seed_of(0, 3, "mild", "screen") == 196834328537531
    assert seed_of(0, 3, "mild") != seed_of(0, 3, "mild", "screen")
    assert seed_of(1, 23) != seed_of(12, 3)


# Summaries -------------------------------------------------------------------------------------

LIMIT = math.log(100.0)


def frame_of(*screens: tuple[str, str, str, int, list[float]]) -> pl.DataFrame:
    """Rows by hand: (strategy, old, new, rep, log_bf after each tone)."""
    return study._frame(
        [
            ("p", strategy, old, new, rep, tone, 1000.0, 20.0, True, log_bf, 0.5)
            for strategy, old, new, rep, path in screens
            for tone, log_bf in enumerate(path, start=1)
        ]
    )


def summed_up(old: str, new: str, path: list[float], max_tones: int = 4) -> tuple[object, ...]:
    (run,) = study.runs_of(frame_of(("differential", old, new, 0, path)), max_tones)
    return run.tones_to_right, run.reached, run.outcome, run.tones_to_outcome


@pytest.mark.parametrize(
    ("path", "changed", "unchanged"),
    [
        # tones to the right model, whether it got there, how the two-sided rule ends and when
        ([1, 2, 5, 6], (3, True, "right", 3), (5, False, "wrong", 3)),
        ([-1, -5, -6, -7], (5, False, "wrong", 2), (2, True, "right", 2)),
        ([-5, 0, 0, 5], (4, True, "wrong", 1), (1, True, "right", 1)),
        ([1, -1, 4.6, -4.6], (5, False, "undecided", 4), (5, False, "undecided", 4)),
        ([LIMIT, 0, 0, 0], (1, True, "right", 1), (5, False, "wrong", 1)),
        ([-LIMIT, 0, 0, 0], (5, False, "wrong", 1), (1, True, "right", 1)),
        ([0, 0, 0, 5], (4, True, "right", 4), (5, False, "wrong", 4)),
        ([0, 0, 0, 0, 9], (5, False, "undecided", 4), (5, False, "undecided", 4)),  # too late
        ([5], (1, True, "right", 1), (5, False, "wrong", 1)),  # stopped early
    ],
)
def test_a_screen_summed_up(
    path: list[float], changed: tuple[object, ...], unchanged: tuple[object, ...]
) -> None:
    assert summed_up("normal", "mild", [float(x) for x in path]) == changed
    assert summed_up("mild", "mild", [float(x) for x in path]) == unchanged


def test_the_limit_is_the_given_bayes_factor() -> None:
    frame = frame_of(("differential", "normal", "mild", 0, [1.0, 2.0, 3.0]))
    tones = [study.runs_of(frame, 3, factor)[0].tones_to_right for factor in (2.0, 7.0, 20.0, 21.0)]
    assert tones == [1, 2, 3, 4]


def test_rows_may_come_in_any_order_and_screens_keep_theirs() -> None:
    frame = frame_of(
        ("random", "normal", "mild", 1, [0.0, 5.0]),
        ("random", "normal", "mild", 0, [5.0]),
        ("differential", "normal", "mild", 0, [0.0, 0.0, 5.0]),
    )
    runs = study.runs_of(frame, 4)
    assert [(r.label, r.strategy, r.rep, r.tones_to_right) for r in runs] == [
        ("p", "random", 1, 2),
        ("p", "random", 0, 1),
        ("p", "differential", 0, 3),
    ]
    shuffled = study.runs_of(frame.sample(fraction=1.0, shuffle=True, seed=1), 4)
    assert sorted(map(repr, shuffled)) == sorted(map(repr, runs))


def run(tones: int, outcome: str = "right", ending: int = 1, **where: Any) -> Run:
    place = {"strategy": "differential", "old": "normal", "new": "mild", "rep": 0, **where}
    return Run(
        label="p",
        tones_to_right=tones,
        reached=tones <= 30,
        outcome=outcome,
        tones_to_outcome=ending,
        **place,
    )


def test_a_tally_counts_never_as_one_more_than_the_maximum() -> None:
    numbers = study.tally(
        [run(3, "right", 3), run(31, "wrong", 8), run(31, "undecided", 30), run(7, "wrong", 5)]
    )
    assert numbers.runs == 4
    assert numbers.mean_tones == pytest.approx(18.0)
    assert numbers.sd_tones == pytest.approx(np.std([3, 31, 31, 7], ddof=1))
    assert numbers.never == 2
    assert (numbers.right, numbers.wrong, numbers.undecided) == (0.25, 0.5, 0.25)
    assert numbers.mean_tones_two_sided == pytest.approx(46 / 4)


def test_one_run_has_no_spread() -> None:
    assert study.tally([run(3)]).sd_tones == 0.0


def test_paired_differences_pair_what_belongs_together() -> None:
    """Cells differ a lot, strategies by a fixed amount: only pairing can see it exactly."""
    runs = [
        run(base + step, strategy=strategy, new=new, rep=rep)
        for new, base in (("mild", 3), ("severe", 20))
        for rep in range(4)
        for strategy, step in (("differential", 0), ("random", 2))
    ]
    extra = [run(31, strategy="random", rep=99), run(1, new="profound")]  # without a partner
    assert study.paired_difference(runs + extra, "differential", "random") == (-2.0, -2.0, -2.0)
    assert study.paired_difference(runs[::-1], "random", "differential") == (2.0, 2.0, 2.0)


def test_ties_are_no_difference() -> None:
    runs = [run(9, strategy=s, rep=rep) for s in ("differential", "bald") for rep in range(5)]
    assert study.paired_difference(runs, "differential", "bald") == (0.0, 0.0, 0.0)


def test_the_interval_of_a_paired_difference_is_that_of_its_mean() -> None:
    gaps = np.random.default_rng(1).integers(-9, 7, 200)
    runs = [run(20, strategy="random", rep=rep) for rep in range(200)]
    runs += [run(int(20 + gap), rep=rep) for rep, gap in enumerate(gaps)]
    mean, low, high = study.paired_difference(runs, "differential", "random")
    error = gaps.std(ddof=1) / math.sqrt(200)
    assert mean == pytest.approx(gaps.mean())
    assert low == pytest.approx(mean - 1.96 * error, abs=0.2 * error)
    assert high == pytest.approx(mean + 1.96 * error, abs=0.2 * error)


def test_nothing_to_pair_is_an_error() -> None:
    with pytest.raises(ValueError, match="no runs of both differential and bald"):
        study.paired_difference([run(3), run(3, strategy="random")], "differential", "bald")


def test_only_profound_to_profound_cannot_be_decided() -> None:
    names = class_names()
    left_out = [
        (old, new)
        for old in names
        for new in names
        if not study.decidable(run(3, old=old, new=new))
    ]
    assert left_out == [("profound", "profound")]


@pytest.mark.parametrize(
    ("old", "new", "far"),
    [
        ("normal", "normal", "same"),
        ("normal", "slight", "adjacent"),
        ("severe", "moderately-severe", "adjacent"),
        ("normal", "mild", "far"),
        ("profound", "normal", "far"),
        ("mild:3", "mild:3", "same"),
        ("mild:3", "slight:140", "adjacent"),
    ],
)
def test_distances_go_by_the_order_of_the_classes(old: str, new: str, far: str) -> None:
    assert study.distance(run(3, old=old, new=new)) == far


def test_the_paper_has_48_cells_6_same_12_adjacent_30_far() -> None:
    names = class_names()
    cells = [run(3, old=old, new=new) for old in names for new in names]
    kinds = [study.distance(cell) for cell in cells if study.decidable(cell)]
    assert [kinds.count(kind) for kind in study.DISTANCES] == [6, 12, 30]


# Designs ---------------------------------------------------------------------------------------


def test_the_papers_design_is_every_pair_so_many_times() -> None:
    cases = paper_cases(BEST, 3)
    assert sorted((c.rep, c.old.name) for c in cases) == sorted(
        (rep, name) for rep in range(3) for name in class_names()
    )
    for case in cases:
        assert tuple(ear.name for ear in case.news) == class_names()
        assert case.strategies == study.STRATEGIES
        assert case.label == "best"
        assert dict(case.old.thresholds_db_hl) == es.norms.class_median(case.old.name)


def test_names_that_nobody_knows_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown hearing-loss class 'wild'; known: normal, "):
        paper_cases(BEST, classes=("normal", "wild"))
    with pytest.raises(ValueError, match="unknown strategy 'best'; known: differential, "):
        paper_cases(BEST, strategies=("best",))


@pytest.mark.parametrize("twice", [{"classes": ("mild", "mild")}, {"strategies": ("random",) * 2}])
def test_a_name_given_twice_is_refused(twice: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(ValueError, match="twice"):
        paper_cases(BEST, 1, **twice)


def test_every_option_is_tried_once() -> None:
    protocols = study.option_protocols()
    tried, named = protocols[: -len(PROTOCOLS)], protocols[-len(PROTOCOLS) :]
    settings = [(p.theta_g, p.rho_weights, p.evidence, p.hyperprior_g) for p in tried]
    # 3 x 2 x 3 x 2, less fixed theta_g with Laplace: nothing is fitted there
    assert len(settings) == len(set(settings)) == 32
    assert ("fixed", "prior", "laplace", "population") not in settings
    assert named == list(PROTOCOLS.values())
    assert len({p.name for p in protocols}) == len(protocols)
    cases = study.option_cases(2)
    assert len({case.key for case in cases}) == len(cases) == len(protocols) * 7 * 2


def test_the_sensitivity_study_changes_one_thing_at_a_time() -> None:
    cases = study.sensitivity_cases(BEST, 1)
    assert len({case.key for case in cases}) == len(cases)
    usual = paper_cases(BEST, 1, strategies=("differential",), until_right=True)[0]
    by_label = {case.label: case for case in cases if case.old == usual.old}
    changed = {
        label: [
            name
            for name in Case.__dataclass_fields__
            if name != "label" and getattr(case, name) != getattr(usual, name)
        ]
        for label, case in by_label.items()
    }
    assert changed["spread 3 dB"] == changed["lapses 0%, not modelled"] == []
    assert changed["spread 8 dB"] == ["spread_db"]
    assert changed["tone grid audiometer"] == ["domain"]
    assert changed["hyperprior of theta_g, SDs x 2"] == ["protocol"]
    assert changed["lapses 5%, not modelled"] == ["lapse"]
    assert changed["lapses 5%, modelled"] == ["protocol", "lapse"]
    assert by_label["lapses 5%, modelled"].protocol.lapse == 0.05


def test_best_was_one_of_its_candidates() -> None:
    candidates = study.best_candidates()
    assert BEST in [replace(candidate, name="best") for candidate in candidates]
    assert len({candidate.name for candidate in candidates}) == len(candidates)


HEAD = "SEQN,side,500,1000,2000,3000,4000,6000,8000"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Two ears of every class in each half, flat audiograms."""
    lines = [HEAD]
    for number, level in enumerate([10, 20, 35, 50, 65, 85, 100] * 2):
        for person in (2 * number, 2 * number + 1):
            thresholds = ",".join([str(level + person % 2)] * 7)
            lines.append(f"{person},L,{thresholds}")
    path = tmp_path / "ears.csv"
    path.write_text("\n".join(lines))
    return path


def test_real_ears_come_by_half_and_class(people: Path) -> None:
    for half, odd in (("tuning", 0), ("held-back", 1)):
        ears = study.read_ears(people, half)
        assert tuple(ears) == class_names()[:-1]
        for level, (name, group) in zip((10, 20, 35, 50, 65, 85), ears.items(), strict=True):
            assert [ear.name for ear in group] == [f"{name}:0", f"{name}:1"]
            for ear in group:
                assert [f for f, _ in ear.thresholds_db_hl] == [
                    500, 1000, 2000, 3000, 4000, 6000, 8000
                ]  # fmt: skip
                assert {level for _, level in ear.thresholds_db_hl} == {level + odd}


def test_a_file_that_is_not_of_ears_says_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "ears.csv"
    path.write_text("SEQN,500,1000,2000,3000,4000,8000\n1,5,5,5,5,5,5\n")
    with pytest.raises(ValueError, match=r"ears\.csv lacks the columns 6000$"):
        study.read_ears(path, "tuning")


def test_all_protocols_meet_the_same_real_ears(people: Path) -> None:
    ears = study.read_ears(people, "tuning")
    cases = study.ear_cases([BEST, PROTOCOLS["paper"]], ears, reps=5, seed=3)
    best, paper = ([c for c in cases if c.label == label] for label in ("best", "paper"))
    assert [(c.old, c.news, c.rep) for c in best] == [(c.old, c.news, c.rep) for c in paper]
    assert len(best) == 6 * 5
    for case in best:
        assert case.news[0] == case.old
        classes = [study.class_of(ear.name) for ear in case.news]
        assert sorted(classes) == sorted(ears)
        assert case.until_right
    assert len({case.news for case in best}) > 6  # not always the same ears
    other = study.ear_cases([BEST], ears, reps=5, seed=4)
    assert [c.news for c in other] != [c.news for c in best]
