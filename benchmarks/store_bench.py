"""How fast the store is with many people, on both databases: `python benchmarks/store_bench.py`.

Fills a new SQLite file and a new PostgreSQL server of its own with people of 10 exams and 20 trials
each, by plain SQL; then times the calls of a working day, in random order, and measures the memory
that an export of all visits needs. With `--write FOLDER` the page goes there; with `--filled FILE`
the filled SQLite database is kept there, and a copy of it used the next time.
"""

import argparse
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from http import HTTPStatus
from pathlib import Path
from statistics import median, quantiles

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from earshift.clinic.plan import open_exam, plan_exam
from earshift.clinic.session import Session
from earshift.clinic.worklist import refresh, worklist
from earshift.store import Store
from earshift.store.accounts import Accounts
from earshift.store.database import writing
from earshift.web.settings import Settings
from support.databases import PostgresqlServer, postgresql_tools
from support.web import PASSWORD, client_of, sign_in

VISITS, EARS, TRIALS = 5, 2, 5  # for each person, visit and exam
UNFINISHED_EVERY = 50  # of so many people one has an exam that was not finished
TARGET_MS = 20.0
CALLS = {
    "open a person": "a person with all visits and exams",
    "list a page": "50 people from anywhere in the list",
    "find by code": "a person by the exact code",
    "append an answer": "one trial, on the disk",
    "search a name": "part of a name that one person has",
    "search in vain": "two letters that nobody has",
    "worklist": "the first 100 lines and how many there are, when nearly everybody is due",
    "worklist after a test": "the same after something new is known of one person",
}
PAGES = (
    *("/api/me", "/api/worklist", "/api/programme", "/api/programme?by=job"),
    *("/api/booths/live", "/api/settings", "/api/account", "/api/account/sessions"),
    *("/api/devices", "/api/devices/{device}", "/api/devices/{device}/checks"),
    *("/api/devices/{device}/range", "/api/rules", "/api/rooms/noise", "/api/audit", "/api/users"),
    *("/api/people/{person}", "/api/people/{person}/reviews", "/api/people/{person}/comparison"),
    *("/api/people/{person}/monitoring", "/api/visits/{visit}/review"),
    *("/api/exams/{exam}", "/api/exams/{exam}/live"),
)
MOMENT = "'2026-03-01T12:00:00.000000Z'"
STATE = "'0.1', {at}, 'bench'"

# Each fills one table from those before it. {numbers} is a list of 1 .. n.
FILL = (
    "INSERT INTO people (created_at) SELECT {at} FROM {people}",
    "INSERT INTO identities (person_id, code, name, sex, found_by, at, author) "
    "SELECT id, 'C' || id, 'Person ' || id, 'f', 'c' || id || ' person ' || id, {at}, 'bench' "
    "FROM people",
    "INSERT INTO visits (person_id, started_at, zone, mode, author) "
    "SELECT p.id, {at}, 'Europe/Berlin', 'supervised', 'bench' "
    "FROM people p CROSS JOIN {visits} ORDER BY p.id, n.i",
    "INSERT INTO exams (visit_id, ear, kind, design, engine_version) "
    "SELECT v.id, CASE n.i WHEN 1 THEN 'right' ELSE 'left' END, 'exam', '{design}', '0.1' "
    "FROM visits v CROSS JOIN {ears} ORDER BY v.id, n.i",
    "INSERT INTO exam_states (exam_id, state, engine_version, at, author) "
    f"SELECT id, 'open', {STATE} FROM exams",
    "INSERT INTO exam_states (exam_id, state, engine_version, at, author) "
    f"SELECT id, 'done', {STATE} FROM exams WHERE id % {UNFINISHED_EVERY * VISITS * EARS} <> 0",
    "INSERT INTO trials (exam_id, number, kind, ear, frequency_hz, asked_db_hl, played_db_hl, "
    "heard, at, author, reaction_ms) SELECT e.id, n.i, 'tone', e.ear, 1000.0 * n.i, 5.0 * n.i, "
    "5.0 * n.i, n.i > 8, {at}, 'bench', 400.0 FROM exams e CROSS JOIN {trials}",
    "INSERT INTO audit (at, author, action, subject, reason, details) "
    "SELECT {at}, 'bench', 'add', 'trials:' || id, '', '{{}}' FROM trials",
    "INSERT INTO results (exam_id, at, author, shown, settings, engine_version, trial_numbers, "
    "trials_sha256) SELECT id, {at}, 'bench', '{shown}', '{{}}', '0.1', '[]', '' FROM exams",
)


# People have the same tests, and some an unfinished one. How they stand is worked out for one of
# each kind, and copied to the others.
FIRST_OF_KIND = f"CASE WHEN p.id % {UNFINISHED_EVERY} = 0 THEN {UNFINISHED_EVERY} ELSE 1 END"
OTHERS = f"p.id NOT IN (1, {UNFINISHED_EVERY})"
THEIR_EXAM = f"like_.exam_id + {VISITS * EARS} * (p.id - like_.person_id)"
STANDINGS = (
    "INSERT INTO standings (person_id, code, name, found_by, from_day, left_day, full_day, "
    "full_ears, any_day, any_ears) SELECT p.id, i.code, i.name, i.found_by, like_.from_day, "
    "like_.left_day, like_.full_day, like_.full_ears, like_.any_day, like_.any_ears "
    "FROM people p JOIN identities i ON i.person_id = p.id "
    f"JOIN standings like_ ON like_.person_id = {FIRST_OF_KIND} WHERE {OTHERS}",
    "INSERT INTO tasks (person_id, why, ears, day, exam_id) "
    f"SELECT p.id, like_.why, like_.ears, like_.day, {THEIR_EXAM} FROM people p "
    f"JOIN tasks like_ ON like_.person_id = {FIRST_OF_KIND} WHERE {OTHERS}",
    "INSERT INTO tested (person_id, exam_id, ear, day, complete, shift) "
    f"SELECT p.id, {THEIR_EXAM}, like_.ear, like_.day, like_.complete, like_.shift FROM people p "
    f"JOIN tested like_ ON like_.person_id = {FIRST_OF_KIND} WHERE {OTHERS}",
)


def numbers(count: int) -> str:
    return (
        "(WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < "
        f"{count}) SELECT i FROM c) n"
    )


def one_exam() -> tuple[object, object]:
    """The design of a clinic's exam, and what it shows after a few tones."""
    with tempfile.TemporaryDirectory() as folder, Store.open(str(Path(folder) / "one.db")) as store:
        person = store.add_person(author="bench", code="C")
        visit = store.open_visit(person.id, author="bench", zone="UTC", mode="supervised")
        exam = open_exam(store, visit, plan_exam("right", seed=1), author="bench")
        session = Session(store, exam.id, author="bench")
        for heard in (True, True, False, True, False):
            session.answer(heard)
        session.finish()
        return exam.design, store.results(exam.id)[-1].shown


def fill(store: Store, people: int) -> float:
    """Seconds to write everybody."""
    design, shown = (json.dumps(part).replace("'", "''") for part in one_exam())
    values = {
        "at": MOMENT,
        "design": design,
        "shown": shown,
        "people": numbers(people),
        "visits": numbers(VISITS),
        "ears": numbers(EARS),
        "trials": numbers(TRIALS),
    }
    start = time.perf_counter()
    # The one index whose order is not that of the rows is made at the end, as a restore would.
    run(
        store,
        "DROP INDEX audit_of_subject",
        *(statement.format(**values) for statement in FILL),
        "CREATE INDEX audit_of_subject ON audit (subject, id)",
        f"DELETE FROM stale WHERE person_id NOT IN (1, {UNFINISHED_EVERY})",
    )
    refresh(store)
    run(store, *STANDINGS, "ANALYZE")
    return time.perf_counter() - start


def run(store: Store, *statements: str) -> None:
    for statement in statements:  # each in its own transaction: one log would hold all of it
        with writing(store.engine) as connection:
            postgresql = connection.dialect.name == "postgresql"
            if postgresql:  # references hold by construction
                connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            connection.exec_driver_sql(statement.replace("%", "%%") if postgresql else statement)


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
        place = (person_id - 1) % (people // UNFINISHED_EVERY) + 1
        exam_id = place * UNFINISHED_EVERY * exams_each
        store.append_trial(
            exam_id,
            author="bench",
            kind="tone",
            ear="left",
            frequency_hz=1000.0,
            asked_db_hl=40.0,
            played_db_hl=40.0,
            heard=True,
        )

    def search(person_id: int) -> None:
        assert store.people(search=f"person {person_id}", limit=50)

    def search_in_vain(_: int) -> None:
        assert not store.people(search="zq", limit=50)

    def list_work(_: int) -> None:
        assert worklist(store, date(2027, 3, 1), limit=100).total >= people

    def list_work_after(person_id: int) -> None:
        store.correct_person(person_id, author="bench", reason="roster", department="Press")
        list_work(person_id)

    refresh(store)
    done = (
        *(open_person, list_page, find, append, search, search_in_vain),
        *(list_work, list_work_after),
    )
    calls = dict(zip(CALLS, done, strict=True))
    return {
        name: milliseconds(call, chance.sample(range(1, people + 1), min(repeats, people)))
        for name, call in calls.items()
    }


def pages(where: str, people: int, repeats: int) -> dict[str, Times]:
    """Times of what each page fetches, through the app itself, without a network."""
    chance = random.Random(2)
    with Store.open(where) as store:
        Accounts(store).add_user("ada", PASSWORD, role="admin", author="bench", temporary=False)
        picked = chance.sample(range(1, people + 1), min(repeats, people))
        persons = store.handles("people", picked)
        visits = store.handles("visits", [VISITS * (one - 1) + 1 for one in picked])
        exams = store.handles("exams", [VISITS * EARS * (one - 1) + 1 for one in picked])
        device = store.handle("devices", store.add_device(author="bench", name="booth").id)
    with client_of(Settings(db=where)) as client:
        headers = sign_in(client, "ada")

        def fetch(path: str, body: object = None) -> Callable[[int], object]:
            def call(person_id: int) -> None:
                place = path.format(
                    device=device,
                    person=persons[person_id],
                    visit=visits[VISITS * (person_id - 1) + 1],
                    exam=exams[VISITS * EARS * (person_id - 1) + 1],
                )
                if body is None:
                    told = client.get(place, headers=headers)
                else:
                    told = client.post(place, json=body, headers=headers)
                assert told.status_code == HTTPStatus.OK, (place, told.text)

            return call

        calls = {path: fetch(path) for path in PAGES}
        calls["/api/people/search"] = fetch("/api/people/search", {"text": "son 9999"})
        for call in calls.values():  # what is made once is not a page's
            call(picked[0])
        return {path: milliseconds(call, picked) for path, call in calls.items()}


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


WRITER = """
import sys, time
from earshift.store import Store, chain
where, chained, seconds, code = sys.argv[1:]
if chained == "free":
    chain.link = lambda connection: None
with Store.open(where) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < float(seconds):
        store.add_person(author="bench", code=code + str(done))
        done += 1
    print(done / (time.perf_counter() - start))
"""


def commits_per_second(where: str, *, chained: bool, seconds: float = 5.0) -> float:
    """Of two programs that write at once into a database which is only for this."""
    Store.open(where).close()
    words = [where, "chained" if chained else "free", str(seconds)]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, *words, f"W{number}-{chained}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    return sum(float(writer.communicate("go\n")[0]) for writer in writers)


def waits_of_answers(where: str, people: int, folder: Path) -> tuple[float, list[float]]:
    """Seconds of an import of so many people by the program itself, and how long each answer waited
    that another program stored meanwhile."""
    file = folder / "people.csv"
    with file.open("w") as opened:
        opened.write("person,date,ear,frequency_hz,threshold_db_hl\n")
        for person in range(people):
            for ear in ("right", "left"):
                for hertz in (500, 1000, 2000, 3000, 4000, 6000, 8000):
                    opened.write(f"P{person},2015-01-05,{ear},{hertz},{person % 8 * 5}\n")
    command = [sys.executable, "-m", "earshift.cli", "import", str(file), "--db", where]
    waits = []
    with Store.open(where) as store:
        person = store.add_person(author="bench", code="answers")
        visit = store.open_visit(person.id, author="bench", zone="UTC", mode="supervised")
        exam = open_exam(store, visit, plan_exam("right", seed=1), author="bench")
        start = time.perf_counter()
        with subprocess.Popen(
            [*command, "--timezone", "UTC", "--author", "bench"], stdout=subprocess.DEVNULL
        ) as program:
            while program.poll() is None:
                asked = time.perf_counter()
                store.append_trial(
                    exam.id, author="bench", kind="tone", ear="right", frequency_hz=1000.0,
                    asked_db_hl=40.0, played_db_hl=40.0, heard=True,
                )  # fmt: skip
                waits.append(time.perf_counter() - asked)
                time.sleep(0.05)
        assert program.returncode == 0
        assert store.count_visits() == people + 1
        return time.perf_counter() - start, waits


@contextmanager
def databases() -> Iterator[dict[str, list[str]]]:
    """Four places for each kind of database; PostgreSQL where the machine has it."""
    with tempfile.TemporaryDirectory(prefix="earshift-bench-") as folder:
        places = {"SQLite": [str(Path(folder) / f"store{number}.db") for number in range(4)]}
        tools = postgresql_tools()
        # Only the size of the log between checkpoints is raised, for the filling: all else,
        # durability above all, is as the server comes.
        server = None if tools is None else PostgresqlServer(tools, "-c max_wal_size=8GB")
        if server is not None:
            places["PostgreSQL"] = [server.new_database() for _ in range(4)]
        try:
            yield places
        finally:
            if server is not None:
                server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=200, help="calls of each kind")
    parser.add_argument("--pages", type=int, default=15, help="fetches of each page's data")
    parser.add_argument("--export", type=int, default=20_000, help="visits to read, at most")
    parser.add_argument("--imported", type=int, default=500, help="people of the import")
    parser.add_argument("--filled", type=Path, metavar="FILE", help="SQLite, to be used again")
    parser.add_argument("--only", choices=["SQLite", "PostgreSQL"], help="one database alone")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write benchmarks-store.md")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the server goes when we go
    lines = [
        "| database | call | median ms | 95th percentile ms | median CPU ms |",
        "|---|---|---|---|---|",
    ]
    fetched = [
        "| database | page's data | median ms | 95th percentile ms | median CPU ms |",
        "|---|---|---|---|---|",
    ]
    memory = [
        "| database | visits | trials | seconds | peak memory MB |",
        "|---|---|---|---|---|",
    ]
    fills = []
    chains = [
        "| database | commits per second of two writers | without the chain |",
        "|---|---|---|",
    ]
    imports = [
        "| database | people imported | seconds | answers meanwhile | median wait ms "
        "| 99th percentile ms | longest ms |",
        "|---|---|---|---|---|---|---|",
    ]
    with databases() as places:
        for kind, (where, chained, free, imported) in places.items():
            if options.only not in (None, kind):
                continue
            rates = (
                commits_per_second(chained, chained=True),
                commits_per_second(free, chained=False),
            )
            chains.append(f"| {kind} | {rates[0]:.0f} | {rates[1]:.0f} |")
            print(chains[-1], flush=True)
            with tempfile.TemporaryDirectory() as folder:
                whole, waits = waits_of_answers(imported, options.imported, Path(folder))
            high = quantiles(waits, n=100, method="inclusive")[-1]
            imports.append(
                f"| {kind} | {options.imported} | {whole:.0f} | {len(waits)} "
                f"| {1e3 * median(waits):.0f} | {1e3 * high:.0f} | {1e3 * max(waits):.0f} |"
            )
            print(imports[-1], flush=True)
            filled = options.filled if kind == "SQLite" else None
            if filled is not None and filled.exists():
                shutil.copyfile(filled, where)
            else:
                with Store.open(where) as store:
                    seconds = fill(store, options.people)
                fills.append(f"{kind} {seconds:.0f} s")
                print(f"{kind}: {options.people} people filled in {seconds:.0f} s", flush=True)
                if filled is not None:
                    shutil.copyfile(where, filled)
            with Store.open(where) as store:
                for call, times in measure(store, options.people, options.repeats).items():
                    high = quantiles(times.passed, n=20)[-1]
                    lines.append(
                        f"| {kind} | {call} | {median(times.passed):.2f} | {high:.2f} "
                        f"| {median(times.cpu):.2f} |"
                    )
                    print(lines[-1], flush=True)
            for path, times in pages(where, options.people, options.pages).items():
                high = quantiles(times.passed, n=20)[-1]
                fetched.append(
                    f"| {kind} | `{path}` | {median(times.passed):.1f} | {high:.1f} "
                    f"| {median(times.cpu):.1f} |"
                )
                print(fetched[-1], flush=True)
            most = min(options.export, options.people * VISITS)
            for visits in (most // 10, most):
                read = export(where, visits)
                memory.append(
                    f"| {kind} | {visits} | {read['trials']:.0f} | {read['seconds']:.1f} "
                    f"| {read['peak_mb']:.0f} |"
                )
                print(memory[-1], flush=True)
    if options.write is not None:
        tables = {
            "lines": lines, "fetched": fetched, "memory": memory, "chains": chains,
            "imports": imports, "fills": fills,
        }  # fmt: skip
        write(options.write, options.people, options.only, tables)


def write(folder: Path, people: int, only: str | None, tables: dict[str, list[str]]) -> None:
    trials = people * VISITS * EARS * TRIALS
    meaning = [f"- {name}: {what}" for name, what in CALLS.items()]
    page = [
        "# How fast the store is",
        "",
        f"{people:,} people with {VISITS * EARS} exams of {TRIALS} trials each: {trials:,} trials, "
        "each with its audit row.",
        f"Written by `python benchmarks/store_bench.py --people {people}"
        f"{'' if only is None else f' --only {only}'} --write docs` with Python "
        f"{platform.python_version()} on {os.cpu_count()} cores that other work shared.",
        f"One of {UNFINISHED_EVERY} people has an exam that was not finished.",
        *([f"Filling took {' and '.join(tables['fills'])}."] if tables["fills"] else []),
        "",
        f"The goal is a median under {TARGET_MS:.0f} ms for opening a person, listing a page and "
        "appending an answer, and under 100 ms for the worklist and a search.",
        "",
        *tables["lines"],
        "",
        *meaning,
        "",
        "CPU time is the program's own, without the server's: on a busy machine it says what the "
        "waiting for other work hides.",
        "",
        "What the pages fetch, through the app and without a network; the goal is under 100 ms:",
        "",
        *tables["fetched"],
        "",
        "An export reads visits in batches of one snapshot. Ten times the visits need no more "
        "memory:",
        "",
        *tables["memory"],
        "",
        "The peak is of the whole process, with Python and its libraries.",
        "",
        "How long an answer waits while another program imports into the same database, which it "
        "should never hold for more than 500 ms:",
        "",
        *tables["imports"],
        "",
        "What the chain of hashes over all that is stored costs two programs that add people:",
        "",
        *tables["chains"],
        "",
    ]
    (folder / "benchmarks-store.md").write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main()
