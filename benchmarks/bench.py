"""How fast earshift is, beside its peers, in one run: `make bench`, or `make bench-peers`.

Times are medians of tell + ask, refit included, on one thread. What counts are the ratios: the
machine is the same for both sides of each. With `--peers PYTHON` (the peers' own environment) the
peers are timed on the same trials; with `--write FOLDER` the page and the plot go there.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

for limit in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[limit] = "1"

import clinical
import numpy as np

import earshift as es
from earshift.engine import ep, kernels
from earshift.engine.answers import answers_of
from earshift.simulate.run import run

HERE = Path(__file__).resolve().parent
# Linux's own record: getrusage of a new process still remembers the parent it was forked from.
PEAK_KB = "[l for l in open('/proc/self/status') if 'VmHWM' in l][0].split()[1]"
GROWTH_TONES = (10, 20, 30, 50, 75, 100, 150, 200)
SCREEN_TONES = 15


def first_exam(tones: int) -> es.Exam:
    """A simulated first exam of so many tones."""
    return run(es.Exam(seed=1, max_tones=tones), es.Listener.of_class("mild", seed=5))


def step_seconds(rebuild: Callable[[], es.Exam | es.Screen], last: es.Trial, repeats: int) -> float:
    """Median seconds of telling the last trial and asking the next tone, nothing cached."""
    times = []
    for _ in range(repeats + 1):
        procedure = rebuild()
        start = time.perf_counter()
        procedure.tell(last.tone, last.heard)
        procedure.ask()
        times.append(time.perf_counter() - start)
    return median(times[1:])


def exam_step(exam: es.Exam, repeats: int = 21) -> float:
    data = exam.to_dict()
    last = es.Trial.from_dict(data["trials"].pop())
    return step_seconds(lambda: es.Exam.from_dict(data), last, repeats)


def screen_step(screen: es.Screen, tones: int, repeats: int = 21) -> float:
    run(screen, es.Listener.of_class("mild", seed=7), tones - len(screen.trials))
    data = screen.to_dict()
    last = es.Trial.from_dict(data["trials"].pop())
    return step_seconds(lambda: es.Screen.from_dict(data), last, repeats)


def dense_problem(exam: es.Exam) -> tuple[Any, Any, Any]:
    """The exam's trials as a plain GP classification problem: mean, covariance, answers."""
    answers = answers_of(exam.trials, exam.domain)
    theta = exam.field.theta
    S = kernels.covariance(theta, kernels.squared_gaps(answers.places, answers.places))
    U = np.zeros((answers.count, S.shape[0]))
    U[:, 0] = answers.intensity
    U[np.arange(answers.count), answers.place + 1] = 1.0
    return np.full(answers.count, theta[0]), U @ S @ U.T, answers.answer > 0


def ep_seconds(exam: es.Exam, repeats: int = 51) -> float:
    mean, cov, heard = dense_problem(exam)
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        ep.fit(mean, cov, heard)
        times.append(time.perf_counter() - start)
    return median(times[1:])


def help_seconds(repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "earshift.cli", "--help"], check=True, stdout=subprocess.DEVNULL
        )
        times.append(time.perf_counter() - start)
    return median(times)


def screen_memory_mb() -> float:
    """Peak memory of a process that runs a first exam and a whole screen."""
    code = (
        "import earshift as es\n"
        "from earshift.simulate.run import run\n"
        "ear = es.Listener.of_class('mild', seed=5)\n"
        "first = run(es.Exam(seed=1), ear)\n"
        "run(es.Screen(first), ear, 30).verdict()\n"
        f"print({PEAK_KB})\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    return int(out) / 1024


def niosh_seconds_and_mb(rows: int = 1_114_966) -> tuple[float, float]:
    """Class medians from a made-up CSV of the published NIOSH file's shape and length."""
    ears = [f"{ear}{name}k" for ear in "LR" for name in ("500", 1, 2, 3, 4, 6, 8)]
    header = ["test_date", "nid", *ears, "gender", "naics", "age_group", "region", "NAICS_descr"]
    rng = np.random.default_rng(1)
    levels = rng.choice([*range(-10, 105, 5), 997, 999], (10_000, 14)).tolist()
    block = [
        ",".join(["2001-01-01", "1", *map(str, row), "M", "322121", "3", "MW", '"Paper, Pulp"'])
        for row in levels
    ]
    code = (
        "import sys, time\n"
        "start = time.perf_counter()\n"
        "from earshift.simulate.classes import class_medians\n"
        "from earshift.formats import read_ears\n"
        "class_medians(read_ears('niosh', sys.argv[1:]))\n"
        f"print(time.perf_counter() - start, {PEAK_KB})\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "niosh.csv"
        with path.open("w", encoding="utf-8") as file:
            file.write(",".join(header) + "\n")
            for start in range(0, rows, len(block)):
                file.write("\n".join(block[: rows - start]) + "\n")
        out = subprocess.run(
            [sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True
        ).stdout.split()
    return float(out[0]), int(out[1]) / 1024


def peers_on(trials: es.Exam, python: str) -> dict[str, Any]:
    """Time the peers on the exam's trials, in their own environment."""
    c, log_alpha, log_beta, log_l = trials.field.theta
    problem = {
        "trials": [trial.to_dict() for trial in trials.trials],
        "theta": {
            "c": c,
            "alpha": float(np.exp(log_alpha)),
            "beta": float(np.exp(log_beta)),
            "l": float(np.exp(log_l)),
        },
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trials.json"
        path.write_text(json.dumps(problem), encoding="utf-8")
        out = subprocess.run(
            [python, str(HERE / "peers.py"), str(path)], check=True, stdout=subprocess.PIPE
        ).stdout
    result: dict[str, Any] = json.loads(out)
    return result


def plot_growth(rows: list[tuple[int, float]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.loglog([n for n, _ in rows], [1e3 * t for _, t in rows], "o-", color="#1f5fa8")
    axes.set_xlabel("tones of the exam so far")
    axes.set_ylabel("tell + ask (ms)")
    axes.set_title("time of one step of the first exam")
    axes.grid(which="both", color="#dddddd", linewidth=0.6)
    figure.savefig(path, dpi=140)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", help="python of the peers' environment")
    parser.add_argument("--write", type=Path, help="folder for benchmarks.md and step-time.png")
    options = parser.parse_args()

    fifty = first_exam(50)
    exam_s, ep_s = exam_step(fifty), ep_seconds(fifty)
    screen_s = screen_step(es.Screen(fifty, "paper", seed=2), SCREEN_TONES)
    lines = [
        f"Machine: {platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}; one thread, medians, refits included.",
        "",
        "| what | earshift | peer | ratio | asked for |",
        "|---|---|---|---|---|",
    ]
    if options.peers:
        peers = peers_on(fifty, options.peers)
        ask = peers["aepsych"]["ask"]["seconds_median"]
        gpy = peers["gpy"]["ep"]["seconds_median"]
        versions = (
            f"AEPsych {peers['aepsych']['versions']['aepsych']}",
            f"GPy {peers['gpy']['versions']['GPy']}",
        )
        lines += [
            f"| next tone of the first exam at 50 tones | {exam_s * 1e3:.1f} ms "
            f"| {versions[0]} ask {ask * 1e3:.0f} ms | {ask / exam_s:.0f} | 100 |",
            f"| next tone of the screen at {SCREEN_TONES} tones, 50 correlations "
            f"| {screen_s * 1e3:.1f} ms | the same ask {ask * 1e3:.0f} ms "
            f"| {ask / screen_s:.0f} | 25 |",
            f"| EP at n = 50, dense | {ep_s * 1e3:.2f} ms | {versions[1]} {gpy * 1e3:.1f} ms "
            f"| {gpy / ep_s:.1f} | 5 |",
        ]
    else:
        lines += [
            f"| next tone of the first exam at 50 tones | {exam_s * 1e3:.1f} ms | | | |",
            f"| next tone of the screen at {SCREEN_TONES} tones, 50 correlations "
            f"| {screen_s * 1e3:.1f} ms | | | |",
            f"| EP at n = 50, dense | {ep_s * 1e3:.2f} ms | | | |",
        ]
    csv_s, csv_mb = niosh_seconds_and_mb()
    growth = [(n, exam_step(first_exam(n), repeats=7)) for n in GROWTH_TONES]
    slope = np.polyfit(np.log([n for n, _ in growth[3:]]), np.log([t for _, t in growth[3:]]), 1)[0]
    lines += [
        "",
        f"| `earshift --help` | {help_seconds():.2f} s | asked for: under 0.5 s |",
        "|---|---|---|",
        f"| peak memory of exam and screen | {screen_memory_mb():.0f} MB | under 400 MB |",
        f"| NIOSH-shaped CSV of 1.1 million rows to class medians | {csv_s:.1f} s, {csv_mb:.0f} MB "
        "| under 10 s, 1 GB |",
        "",
        "Time of one step of the first exam against its tones:",
        "",
        "| tones | " + " | ".join(str(n) for n, _ in growth) + " |",
        "|---|" + "---|" * len(growth),
        "| tell + ask (ms) | " + " | ".join(f"{t * 1e3:.1f}" for _, t in growth) + " |",
        "",
        f"From 50 tones on it grows as n^{slope:.1f}: the latent vector has one entry per "
        "frequency of the domain, so more tones add sites, not dimensions.",
        *clinical.page(peers["aepsych"]["ask"]["cpu_seconds_median"] if options.peers else None),
    ]
    page = "\n".join(lines)
    print(page)
    if options.write:
        options.write.mkdir(parents=True, exist_ok=True)
        plot_growth(growth, options.write / "step-time.png")
        (options.write / "benchmarks.md").write_text(
            "# Speed\n\nWritten by `make bench-peers`; not edited by hand.\n\n"
            f"{page}\n\n![time of one step](step-time.png)\n",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
