"""How fast the store is with many people, on both databases: `python benchmarks/store_bench.py`.

Fills a new SQLite file and a new PostgreSQL server of its own with people of 10 exams and 20 trials
each, by plain SQL; then times the calls of a working day, in random order, and measures the memory
that an export of all visits needs. With `--write FOLDER` the page goes there.
"""

import argparse
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median, quantiles

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

import earshift as es
from earshift.clinic.worklist import refresh, worklist
from earshift.store import Store
from earshift.store.database import writing
from support.databases import PostgresqlServer, postgresql_tools

VISITS, EARS, TRIALS = 5, 2, 20  # for each person, visit and exam
TARGET_MS = 20.0
CALLS = {
    "open a person": "a person with all visits and exams",
    "list a page": "50 people from anywhere in the list",
    "find by code": "a person by the exact code",
    "append an answer": "one trial, on the disk",
    "search a name": "part of a name that one person has: reads all names",
    "worklist": "the first 100 lines and how many there are, when nearly everybody is due",
    "worklist after a test": "the same after something new is known of one person",
}
MOMENT = "'2026-03-01T12:00:00.000000Z'"
STATE = "'0.1', {at}, 'bench', ''"

# Each fills one table from those before it. {numbers} is a list of 1 .. n.
FILL = (
    "INSERT INTO people (created_at) SELECT {at} FROM {people}",
    "INSERT INTO identities (person_id, code, name, sex, found_by, at, author, reason) "
    "SELECT id, 'C' || id, 'Person ' || id, 'f', 'c' || id || ' person ' || id, {at}, 'bench', '' "
    "FROM people",
    "INSERT INTO visits (person_id, started_at, zone, mode, author, checklist) "
    "SELECT p.id, {at}, 'Europe/Berlin', 'supervised', 'bench', '{{}}' "
    "FROM people p CROSS JOIN {visits}",
    "INSERT INTO exams (visit_id, ear, kind, design, engine_version, source) "
    "SELECT v.id, CASE n.i WHEN 1 THEN 'right' ELSE 'left' END, 'exam', '{design}', '0.1', '' "
    "FROM visits v CROSS JOIN {ears}",
    "INSERT INTO exam_states (exam_id, state, engine_version, at, author, reason) "
    f"SELECT id, 'open', {STATE} FROM exams",
    "INSERT INTO trials (exam_id, number, kind, ear, frequency_hz, asked_db_hl, played_db_hl, "
    "heard, at, author, reaction_ms) SELECT e.id, n.i, 'tone', e.ear, 1000.0 * n.i, 5.0 * n.i, "
    "5.0 * n.i, n.i > 8, {at}, 'bench', 400.0 FROM exams e CROSS JOIN {trials}",
    "INSERT INTO audit (at, author, action, subject, reason, details) "
    "SELECT {at}, 'bench', 'add', 'trials:' || id, '', '{{}}' FROM trials",
    "INSERT INTO results (exam_id, at, author, shown, settings, engine_version, trial_numbers, "
    "trials_sha256) SELECT id, {at}, 'bench', '{{}}', '{{}}', '0.1', '[]', '' FROM exams",
)


def numbers(count: int) -> str:
    return (
        "(WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < "
        f"{count}) SELECT i FROM c) n"
    )


def fill(store: Store, people: int) -> float:
    """Seconds to write everybody."""
    design = json.dumps(es.Exam(seed=1, domain="audiometer").to_dict()["design"])
    values = {
        "at": MOMENT,
        "design": design,
        "people": numbers(people),
        "visits": numbers(VISITS),
        "ears": numbers(EARS),
        "trials": numbers(TRIALS),
    }
    # The one index whose order is not that of the rows is made at the end, as a restore would.
    statements = [
        "DROP INDEX audit_of_subject",
        *(statement.format(**values) for statement in FILL),
        "CREATE INDEX audit_of_subject ON audit (subject, id)",
        "ANALYZE",
    ]
    start = time.perf_counter()
    for statement in statements:  # each in its own transaction: one log would hold all of it
        with writing(store.engine) as connection:
            if connection.dialect.name == "postgresql":  # references hold by construction
                connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            connection.exec_driver_sql(statement)
    return time.perf_counter() - start


@dataclass(frozen=True)
class Times:
    """Of one kind of call, in milliseconds; CPU time is this process's, without the server's."""

    passed: list[float]
    cpu: list[float]


def milliseconds(call: Callable[[int], object], picks: list[int]) -> Times:
    passed, cpu = [], []
    for pick in picks:
        start, busy = time.perf_counter(), time.process_time()
        call(pick)
        passed.append(1e3 * (time.perf_counter() - start))
        cpu.append(1e3 * (time.process_time() - busy))
    return Times(passed, cpu)


def measure(store: Store, people: int, repeats: int) -> dict[str, Times]:
    """Times of each call, on people picked at random, every one of them once at most."""
    chance = random.Random(1)
    exams_each = VISITS * EARS

    def open_person(person_id: int) -> None:
        store.person(person_id)
        assert len(store.visits(person_id)) == VISITS
        assert len(store.exams(person_id)) == exams_each

    def list_page(person_id: int) -> None:
        assert store.people(after=max(0, person_id - 51), limit=50)

    def find(person_id: int) -> None:
        assert store.person_by_code(f"C{person_id}") is not None

    def append(person_id: int) -> None:
        exam_id = (person_id - 1) * exams_each + 1
        store.append_trial(
            exam_id,
            author="bench",
            kind="tone",
            ear="right",
            frequency_hz=1000.0,
            asked_db_hl=40.0,
            played_db_hl=40.0,
            heard=True,
            number=TRIALS + 1,
        )

    def search(person_id: int) -> None:
        assert store.people(search=f"person {person_id}", limit=50)

    def list_work(_: int) -> None:
        assert worklist(store, date(2027, 3, 1), limit=100).total >= people

    def list_work_after(person_id: int) -> None:
        store.correct_person(person_id, author="bench", reason="roster", department="Press")
        list_work(person_id)

    refresh(store)
    done = (open_person, list_page, find, append, search, list_work, list_work_after)
    calls = dict(zip(CALLS, done, strict=True))
    return {
        name: milliseconds(call, chance.sample(range(1, people + 1), min(repeats, people)))
        for name, call in calls.items()
    }


def export(where: str, visits: int) -> dict[str, float]:
    """In a process of its own: read so many visits as an export does; time and peak memory."""
    code = (
        "import sys, time, itertools\n"
        "from earshift.store import Store\n"
        "with Store.open(sys.argv[1]) as store:\n"
        "    start = time.perf_counter()\n"
        "    stream = itertools.islice(store.iter_visit_bundles(), int(sys.argv[2]))\n"
        "    trials = sum(len(exam.trials) for visit in stream for exam in visit.exams)\n"
        "    print(time.perf_counter() - start, trials)\n"
        "print([l for l in open('/proc/self/status') if 'VmHWM' in l][0].split()[1])\n"
    )
    command = [sys.executable, "-c", code, where, str(visits)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return {"seconds": float(out[0]), "trials": float(out[1]), "peak_mb": int(out[2]) / 1024}


@contextmanager
def databases() -> Iterator[dict[str, str]]:
    """A place for each kind of database; PostgreSQL where the machine has it."""
    with tempfile.TemporaryDirectory(prefix="earshift-bench-") as folder:
        places = {"SQLite": str(Path(folder) / "store.db")}
        tools = postgresql_tools()
        # Only the size of the log between checkpoints is raised, for the filling: all else,
        # durability above all, is as the server comes.
        server = None if tools is None else PostgresqlServer(tools, "-c max_wal_size=8GB")
        if server is not None:
            places["PostgreSQL"] = server.new_database()
        try:
            yield places
        finally:
            if server is not None:
                server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=200, help="calls of each kind")
    parser.add_argument("--export", type=int, default=20_000, help="visits to read, at most")
    parser.add_argument("--only", choices=["SQLite", "PostgreSQL"], help="one database alone")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write benchmarks-store.md")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the server goes when we go
    lines = [
        "| database | call | median ms | 95th percentile ms | median CPU ms |",
        "|---|---|---|---|---|",
    ]
    memory = [
        "| database | visits | trials | seconds | peak memory MB |",
        "|---|---|---|---|---|",
    ]
    fills = []
    with databases() as places:
        for kind, where in places.items():
            if options.only not in (None, kind):
                continue
            with Store.open(where) as store:
                seconds = fill(store, options.people)
                fills.append(f"{kind} {seconds:.0f} s")
                print(f"{kind}: {options.people} people filled in {seconds:.0f} s", flush=True)
                for call, times in measure(store, options.people, options.repeats).items():
                    high = quantiles(times.passed, n=20)[-1]
                    lines.append(
                        f"| {kind} | {call} | {median(times.passed):.2f} | {high:.2f} "
                        f"| {median(times.cpu):.2f} |"
                    )
                    print(lines[-1], flush=True)
            most = min(options.export, options.people * VISITS)
            for visits in (most // 10, most):
                read = export(where, visits)
                memory.append(
                    f"| {kind} | {visits} | {read['trials']:.0f} | {read['seconds']:.1f} "
                    f"| {read['peak_mb']:.0f} |"
                )
                print(memory[-1], flush=True)
    if options.write is not None:
        write(options.write, options.people, lines, memory, fills)


def write(folder: Path, people: int, lines: list[str], memory: list[str], fills: list[str]) -> None:
    trials = people * VISITS * EARS * TRIALS
    meaning = [f"- {name}: {what}" for name, what in CALLS.items()]
    page = [
        "# How fast the store is",
        "",
        f"{people:,} people with {VISITS * EARS} exams of {TRIALS} trials each: {trials:,} trials, "
        "each with its audit row.",
        f"Written by `python benchmarks/store_bench.py --people {people} --write docs` with Python "
        f"{platform.python_version()} on {os.cpu_count()} cores that other work shared.",
        f"Filling took {' and '.join(fills)}.",
        "",
        f"The goal is a median under {TARGET_MS:.0f} ms for opening a person, listing a page and "
        "appending an answer, and under 100 ms for the worklist.",
        "",
        *lines,
        "",
        *meaning,
        "",
        "CPU time is the program's own, without the server's: on a busy machine it says what the "
        "waiting for other work hides.",
        "",
        "An export reads visits in batches of one snapshot. Ten times the visits need no more "
        "memory:",
        "",
        *memory,
        "",
        "The peak is of the whole process, with Python and its libraries.",
        "",
    ]
    (folder / "benchmarks-store.md").write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main()
