"""How long the clinical engine takes: steps, opening, starting, and what it keeps in memory."""

import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence

import numpy as np

import earshift as es
from earshift.engine.clinical import folded
from earshift.simulate.run import run

TONES = 30
SEEDS = range(6)
START = """
import time
import earshift as es
first = es.Audiogram({500: 10, 1000: 10, 2000: 15, 3000: 20, 4000: 25, 6000: 20, 8000: 20})
es.Screen(first, rule="osha-sts").ask()
print(time.process_time())
"""


def _listener(seed: int) -> es.Listener:
    return es.Listener.of_class(("normal", "mild", "moderate")[seed % 3], spread_db=4.0, seed=seed)


def first_exam(seed: int, tones: int) -> es.Exam:
    """A clinical exam of a simulated person, told to its last tone."""
    exam = es.Exam.clinical(seed=seed, max_tones=tones, precision_db=0.1)
    return run(exam, _listener(seed), tones)


def steps(make: Callable[[int], es.Exam | es.Screen]) -> list[float]:
    """Seconds of every tell + ask over 30 tones of several people."""
    times = []
    for seed in SEEDS:
        test, listener = make(seed), _listener(seed)
        tone = test.ask()
        for _ in range(TONES):
            heard = listener(tone)
            start = time.process_time()
            test.tell(tone, heard)
            tone = test.ask()
            times.append(time.process_time() - start)
    return times


def _seconds(job: Callable[[], object]) -> float:
    start = time.process_time()
    job()
    return time.process_time() - start


def rebuild_rows(references: Sequence[es.Exam]) -> list[str]:
    """Opening what was stored: an exam, a screen with its reference anew, and one seen before."""
    exam = first_exam(1, TONES).to_dict()
    screen = run(es.Screen(references[0], rule="osha-sts", seed=3), _listener(0), 15).to_dict()

    def opened(kind: type[es.Exam] | type[es.Screen], data: dict[str, object]) -> float:
        return _seconds(lambda: kind.from_dict(data).ask())

    def cold() -> float:
        folded.cache_clear()
        return opened(es.Screen, screen)

    times = {
        f"open an exam of {TONES} tones": ([opened(es.Exam, exam) for _ in range(5)], "0.5 s"),
        "open a screen, its 50-tone reference not seen before": ([cold() for _ in range(5)], "1.3"),
        "the same once more": ([opened(es.Screen, screen) for _ in range(5)], "0.5"),
    }
    return [
        f"| {what} | {np.median(seconds):.2f} s | at most {asked.removesuffix(' s')} s |"
        for what, (seconds, asked) in times.items()
    ]


def kept_mb(reference: es.Exam) -> float:
    """What an open screen keeps, both look-aheads included."""
    es.Screen(reference, rule="osha-sts", seed=3).ask()  # what all screens share is there now
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    screen = run(es.Screen(reference, rule="osha-sts", seed=4), _listener(0), 15)
    tone = screen.ask()
    ahead = []
    for heard in (True, False):
        fork = screen.fork()
        fork.tell(tone, heard)
        fork.ask()
        ahead.append(fork)
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return kept / 2**20


def start_seconds() -> float:
    """A first rule screen in a new process with nothing compiled."""
    with tempfile.TemporaryDirectory() as empty:
        out = subprocess.run(
            [sys.executable, "-c", START], check=True, capture_output=True, text=True,
            env={"NUMBA_CACHE_DIR": empty, "PYTHONPATH": ":".join(sys.path)},
        ).stdout  # fmt: skip
    return float(out)


def page(ask_seconds: float | None) -> list[str]:
    """The clinical engine's part of the page; `ask_seconds` is the peer's, of one ask."""
    references = [first_exam(seed, 50) for seed in SEEDS]
    kinds: dict[str, tuple[list[float], str]] = {
        "exam": (steps(lambda seed: es.Exam.clinical(seed=seed)), "40 and 90 ms, 20"),
    }
    for rule in ("osha-sts", "niosh-15"):
        kinds[f"screen by {rule}"] = (
            steps(lambda seed, rule=rule: es.Screen(references[seed], rule=rule, seed=seed)),
            "25 and 60 ms, 35",
        )
    lines = [
        "",
        "## The clinical engine",
        "",
        f"Every tell + ask over {TONES} tones of {len(SEEDS)} simulated people; time of the "
        "processor on one thread, whatever else the machine does.",
        "",
        "| what | median | 95th percentile | AEPsych's ask over the median | asked for |",
        "|---|---|---|---|---|",
    ]
    for what, (times, asked) in kinds.items():
        middle, late = np.median(times), np.quantile(times, 0.95)
        ratio = "-" if ask_seconds is None else f"{ask_seconds / middle:.0f}"
        lines.append(
            f"| next tone of a clinical {what} | {middle * 1e3:.1f} ms | {late * 1e3:.1f} ms "
            f"| {ratio} | {asked} |"
        )
    return [
        *lines,
        "",
        "| opening and keeping | | asked for |",
        "|---|---|---|",
        *rebuild_rows(references),
        f"| a first screen by a rule in a new process, nothing compiled | {start_seconds():.1f} s "
        "| under 3 s |",
        f"| kept by an open screen, both look-aheads included | {kept_mb(references[0]):.1f} MB "
        "| at most 4 MB |",
    ]
