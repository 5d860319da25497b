"""The program as others use it: commands on a database of their own.

A story is a list of commands in one folder. Of each the exit code is kept and, where it speaks
JSON, all that it says. `CLINICAL` has the stories with tones of the clinic's engine.
"""

import csv
import hashlib
import json
import re
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from golden.common import plain, without_clock, without_folder, without_sentences

FIXTURES = Path(__file__).resolve().parents[1] / "store" / "fixtures"
SETTINGS = {"COLUMNS": "200", "EARSHIFT_AUTHOR": "mh", "EARSHIFT_TIMEZONE": "Europe/Berlin"}
AUDIOGRAMS = """person,date,left_500,left_1000,left_2000,left_3000,left_4000,left_6000,\
right_500,right_1000,right_2000,right_3000,right_4000,right_6000
A1,2024-03-01,10,10,15,20,20,25,10,10,15,20,20,25
A1,2025-03-01,10,10,30,35,35,30,10,15,15,20,25,25
"""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Story = Callable[["Desk"], None]


class Desk:
    """Runs commands in a folder with its own database, and keeps what became of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = folder / "clinic.db"
        self.kept: list[dict[str, Any]] = []

    def run(self, *words: object, typed: str = "", keep: bool = True) -> str:
        """A command. With --json, what it printed is kept as well as its exit code."""
        from earshift.cli import app

        given = [str(word).replace("FOLDER", str(self.folder)) for word in words]
        env = {**SETTINGS, "EARSHIFT_DB": str(self.db)}
        done = CliRunner().invoke(app, given, input=typed, env=env)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        row: dict[str, Any] = {"command": " ".join(map(str, words)), "exit": done.exit_code}
        if typed:
            row["typed"] = typed
        if "--json" in given:
            row["says"] = _parsed(done.stdout)
        if keep:
            self.kept.append(row)
        return done.stdout

    def codes(self, *commands: str) -> None:
        """Commands whose exit codes are kept, and that print nothing for programs."""
        for command in commands:
            self.run(*command.split())

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def keep(self, what: str, value: Any) -> None:
        self.kept.append({"command": f"({what})", "says": value})


def _parsed(text: str) -> Any:
    """One JSON value, or one a line, as a list; nothing when there is none."""
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]


def tell(story: Story, folder: Path) -> dict[str, Any]:
    """What became of every command of a story, by its number and words."""
    desk = Desk(folder)
    story(desk)
    kept = without_sentences(without_folder(plain(desk.kept), folder))
    if story not in OF_EARLIER_DAYS:
        kept = without_clock(kept)
    return {
        f"{number}. {row['command']}": {k: v for k, v in row.items() if k != "command"}
        for number, row in enumerate(kept, start=1)
    }


# Stories ----------------------------------------------------------------------------------------


def simulations(desk: Desk) -> None:
    quick = ("simulate", "--first-tones", 20, "--json")
    desk.run(*quick, "--old", "normal", "--new", "moderate", "--seed", 3)
    desk.run(*quick, "--old", "mild", "--new", "mild", "--protocol", "paper", "--max-tones", 12)
    desk.run(*quick, "--spread", 6, "--lapse", 0.1, "--guess", 0.05, "--max-tones", 8)
    desk.run("simulate", "--json", "--seed", 5, "--max-tones", 10)


def demonstration(desk: Desk) -> None:
    desk.run("demo", "--out", "FOLDER/demo", "--json")
    desk.keep("files", sorted(path.name for path in (desk.folder / "demo").iterdir()))


def people(desk: Desk) -> None:
    desk.run("person", "list", "--json")
    desk.run(
        "person", "add", "--code", "K7", "--name", "Zoë Ünal", "--born", "1980-02-03", "--json"
    )
    desk.run("person", "add", "--name", "李雷", "--sex", "male", "--json")
    desk.run("person", "add", "--json")
    desk.run("person", "list", "--search", "zOË", "--json")
    desk.run("person", "list", "--after", 1, "--limit", 1, "--json")
    desk.run("person", "correct", "K7", "--name", "Zoë", "--born", "", "--reason", "typo", "--json")
    desk.run("person", "show", "K7", "--json")
    desk.run("person", "show", "id:2", "--json")
    desk.run("person", "history", "K7", "--json")
    desk.run("person", "erase", "K7", "--reason", "asked by the person", "--json", typed="n\n")
    desk.run("person", "erase", "K7", "--reason", "asked by the person", "--yes", "--json")
    desk.run("person", "list", "--json")
    desk.run("person", "show", 1, "--json")


def devices(desk: Desk) -> None:
    desk.run("device", "list", "--json")
    desk.run(
        "device", "add", "--name", "booth 2", "--transducer", "insert", "--serial", "7", "--json"
    )
    desk.run("device", "list", "--json")
    given = ("device", "calibrated", 1, "--laboratory", "Lab", "--coupler", "IEC 60318-4", "--json")
    desk.run(*given, "--done", "2020-01-01", "--due", "2021-01-01")
    desk.run("device", "list", "--json")
    desk.run(*given, "--done", "2024-01-01", "--due", "2999-01-01")
    desk.run("device", "list", "--json")
    desk.run("device", "add", "--name", "x", "--transducer", "bone")
    desk.run(*given[:-1], "--done", "2999-01-01", "--due", "2999-01-02")
    desk.run(*given[:-1], "--done", "2020-01-02", "--due", "2020-01-01")
    desk.run(*given[:-1], "--done", "1.1.2020", "--due", "2021-01-01")
    desk.run(*given[:-1], "--done", "2020-01-01", "--due", "2021-01-01", "--kind", "yes")


def exchange(desk: Desk) -> None:
    desk.file("baselines.csv", AUDIOGRAMS)
    desk.file("rejected.csv", AUDIOGRAMS + AUDIOGRAMS.splitlines()[1].replace("A1", "B2") + "x\n")
    desk.file("own.csv", "Akte,Tag,left_2000,left_3000,left_4000\n7,2024-05-01,10,NR,CNT\n")
    desk.run("import", "FOLDER/baselines.csv", "--dry-run", "--json")
    desk.run("import", "FOLDER/baselines.csv", "--json")
    desk.run("import", "FOLDER/baselines.csv", "--json")
    desk.run("import", "FOLDER/rejected.csv", "--json")
    desk.run("import", "FOLDER/rejected.csv", "--skip-rejected", "--json")
    desk.run(
        "import", "FOLDER/own.csv", "--person-column", "Akte", "--column", "Tag=date",
        "--sentinel", "NR=no response", "--sentinel", "CNT=not tested",
        "--no-response-db", "3000=95", "--method-offset", 2.5, "--json",
    )  # fmt: skip
    desk.run("person", "list", "--json")
    desk.run("person", "show", "A1", "--json")
    desk.run("person", "show", "code:7", "--json")
    desk.run("person", "history", "A1", "--json")
    desk.run("person", "history", "A1", "--ear", "left", "--rule", "niosh-15", "--json")
    desk.run(
        "person", "baseline", "A1", "--ear", "left", "--exam", 4, "--reason", "revised", "--json"
    )
    desk.run("person", "history", "A1", "--ear", "left", "--json")
    for kind in ("csv", "parquet", "fhir", "bids"):
        desk.run("export", "--format", kind, "--out", f"FOLDER/{kind}", "--json")
        desk.run("export", "--format", kind, "--out", f"FOLDER/{kind}")
    desk.run("export", "--format", "fhir", "--out", "FOLDER/one.json", "--person", "A1", "--json")
    desk.keep("exported files", _files(desk.folder))
    _keep_tables(desk, desk.folder / "csv")


def _files(folder: Path) -> list[str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(folder)) for path in found)


def _keep_tables(desk: Desk, folder: Path) -> None:
    for path in sorted(folder.glob("*.csv")):
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        desk.keep(f"{path.name}: columns and rows", [lines[0], len(lines) - 1])


def at_the_desk(desk: Desk) -> None:
    """Screens for any change, simulated and typed, broken off and gone on with."""
    desk.file("baselines.csv", AUDIOGRAMS)
    desk.run("import", "FOLDER/baselines.csv", "--json")
    screen = ("screen", "A1", "--ear", "right", "--json")
    desk.run(*screen, "--protocol", "best", "--simulate", "mild", "--seed", 1)
    desk.run(*screen, "--protocol", "paper", "--simulate", "normal", "--seed", 2, "--tones", 8)
    typed = "y\ny\nbanana\nn 35\nundo\n\nY\npause\n\nyes\nquit\n"
    left = ("screen", "A1", "--ear", "left", "--protocol", "best", "--seed", 3)
    desk.run(*left, "--tones", 12, "--reference", 4, "--json", typed=typed)
    desk.run(*left, "--json")  # the first is not finished
    desk.run("resume", 7, "--no-practice", "--json", typed="y\nn\n")
    desk.run("resume", 7, "--json", typed="y\n" * 8 + "finish\n")
    desk.run("resume", 7, "--json")
    desk.run(*left, "--no-practice", "--cap", 60, "--json", typed="n\nn\nfinish\n")
    desk.run("person", "show", "A1", "--json")
    desk.run("person", "history", "A1", "--json")
    for name in ("report.html", "report.pdf"):
        desk.run("report", 4, "--out", f"FOLDER/{name}", "--json")
    _keep_results(desk)


def _keep_results(desk: Desk) -> None:
    """What is stored of every result, and whether its fingerprint is of its trials."""
    connection = sqlite3.connect(desk.db)
    connection.row_factory = sqlite3.Row
    try:
        for row in connection.execute("SELECT * FROM results ORDER BY id").fetchall():
            trials = connection.execute(
                "SELECT * FROM trials WHERE exam_id = ? ORDER BY number", (row["exam_id"],)
            ).fetchall()
            used = json.loads(row["trial_numbers"])
            fingerprint = _fingerprint([t for t in trials if t["number"] in used])
            desk.keep(
                f"result {row['id']} as stored",
                {
                    "exam": row["exam_id"],
                    "shown": json.loads(row["shown"]),
                    "settings": json.loads(row["settings"]),
                    "trial_numbers": used,
                    "fingerprint is of the trials": fingerprint == row["trials_sha256"],
                },
            )
    finally:
        connection.close()


def _fingerprint(trials: list[sqlite3.Row]) -> str:
    """Written out again: number, kind, ear, tone, levels, answer, time and author, in order."""
    rows = [
        [
            *(trial[name] for name in ("number", "kind", "ear", "frequency_hz", "asked_db_hl")),
            trial["played_db_hl"],
            bool(trial["heard"]),
            trial["reaction_ms"],
            datetime.fromisoformat(trial["at"])
            .replace(tzinfo=UTC)
            .isoformat(timespec="microseconds"),
            trial["author"],
        ]
        for trial in trials
    ]
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def in_python(desk: Desk) -> None:
    """The loop that docs/records.md shows."""
    from earshift.store import Store
    from earshift.visit import Session, find_person, open_exam, plan_screen, todays_visit

    desk.file("baselines.csv", AUDIOGRAMS)
    desk.run("import", "FOLDER/baselines.csv", "--json")
    with Store.open(desk.db) as store:
        person = find_person(store, "A1")
        plan = plan_screen(store, person.id, "right", protocol="best", seed=1)
        visit = todays_visit(store, person.id, author="mh", zone="Europe/Berlin")
        session = Session(store, open_exam(store, visit, plan, author="mh").id, author="mh")
        asked = []
        while not session.done:
            shown = session.presentation()
            level = shown.level_db_hl
            asked.append([shown.kind, shown.frequency_hz, level])
            session.answer(heard=level is not None and level >= 22.0)
        desk.keep("asked", asked)
        desk.keep("result", session.finish().shown)


def upkeep(desk: Desk) -> None:
    desk.run("person", "add", "--code", "A1", "--json")
    desk.run("db", "check", "--json")
    desk.run("db", "backup", "FOLDER/copy.db", "--json")
    desk.run("db", "backup", "FOLDER/copy.db")
    desk.run("db", "restore", "FOLDER/copy.db", "--db", "FOLDER/other.db", "--json")
    desk.run("db", "restore", "FOLDER/copy.db", "--db", "FOLDER/other.db")
    desk.run("db", "restore", "FOLDER/none.db", "--db", "FOLDER/third.db")
    desk.run("person", "show", "A1", "--db", "FOLDER/other.db", "--json")
    desk.run("db", "upgrade", "--json")
    connection = sqlite3.connect(desk.db)
    tables = [name for (name,) in connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]  # fmt: skip
    for table in tables:
        columns = [row[1:4] for row in connection.execute(f"PRAGMA table_info({table})")]
        desk.keep(f"columns of {table}", columns)
    desk.keep("schema", connection.execute("SELECT * FROM earshift_schema").fetchall())
    connection.close()


def accounts(desk: Desk) -> None:
    password = "correct horse battery\n"
    desk.run("user", "list", "--json")
    desk.run("user", "add", "bob", "--password-stdin", typed=password)
    desk.run("user", "add", "ada", "--role", "admin", "--password-stdin", typed=password)
    desk.run("user", "add", "bob", "--password-stdin", typed=password)
    desk.run("user", "add", "bob", "--password-stdin", typed=password)
    desk.run("user", "add", "eve", "--password-stdin", typed="short\n")
    desk.run("user", "add", "eve", "--role", "king", "--password-stdin", typed=password)
    desk.run("user", "add", "eve")
    desk.run("user", "list", "--json")
    desk.run("token", "list", "--json")


def wrong_use(desk: Desk) -> None:
    desk.file("baselines.csv", AUDIOGRAMS)
    desk.file("empty.csv", "")
    desk.file("deep.json", "[" * 10_000)
    desk.file("letters.xpt", "x" * 10_000)
    desk.run("import", "FOLDER/baselines.csv", "--json")
    desk.codes(
        "", "nonsense", "--version", "person", "--nonsense", "exam", "exam A1", "screen A1",
        "person add --code A1", "person add --born 03.02.1980", "person add --born 2980-01-01",
        "person add --sex f", "person show B9", "person show 99", "person show id:99",
        "person show code:99", "person correct A1 --reason x", "person correct B9 --reason x",
        "person erase 99 --reason x --yes", "person erase A1 --reason x",
        "person list --limit 0", "person list --after -1",
        "person history B9", "person history A1 --ear both", "person history A1 --rule none",
        "person baseline A1 --ear left --exam 99 --reason x",
        "person baseline A1 --ear left --exam 1 --reason x",
        "exam A1 --ear neither", "exam B2 --ear right", "exam A1 --ear right --cap 120",
        "exam A1 --ear right --cap 125 --yes", "exam A1 --ear right --cap nan",
        "exam A1 --ear right --cap -20", "exam A1 --ear right --cap 100",
        "exam A1 --ear right --tones 0", "exam A1 --ear right --tones 501",
        "exam A1 --ear right --seed -1", "exam A1 --ear right --simulate deaf",
        "exam A1 --ear right --timezone Mars/Base", "exam A1 --ear right --device 9",
        "screen A1 --ear left --rule osha", "screen A1 --ear left --rule asha-1994",
        "screen A1 --ear left --protocol b", "screen A1 --ear left --rule osha-sts --protocol best",
        "screen A1 --ear left --reference 1", "screen A1 --ear left --reference 99",
        "resume 99", "resume 1", "resume 0", "resume x",
        "report 99 --out FOLDER/x.pdf", "report 1 --out FOLDER/x.doc",
        "report 1 --out FOLDER/x.pdf --paper a3", "report 1 --out FOLDER/none/x.html", "report 1",
        "export --format xml --out FOLDER/x", "export --format fhir --out FOLDER/none/x",
        "export --format csv --out FOLDER/x --person Z", "export --format csv",
        "import FOLDER/none.csv", "import FOLDER/empty.csv", "import FOLDER/deep.json",
        "import FOLDER/letters.xpt", "import FOLDER", "import FOLDER/baselines.csv --column Tag",
        "import FOLDER/baselines.csv --sentinel =x",
        "import FOLDER/baselines.csv --sentinel NR=perhaps",
        "import FOLDER/baselines.csv --no-response-db loud",
        "import FOLDER/baselines.csv --format xls", "import FOLDER/baselines.csv --timezone Mars/B",
        "import FOLDER/baselines.csv --person-column Akte",
        "simulate --old wild", "simulate --new wild", "simulate --protocol wild",
        "simulate --rule wild", "simulate --rule osha-sts --protocol best", "simulate --spread 0",
        "simulate --spread nan", "simulate --spread wide", "simulate --lapse 1.5",
        "simulate --guess 0.5", "simulate --seed -1", "simulate --max-tones 0",
        "demo --out FOLDER/empty.csv/demo", "protocol --limits loose",
        "study paper", "study paper --out FOLDER/s --jobs 0", "study paper --out FOLDER/s --reps 0",
        "study paper --out FOLDER/s --classes wild", "study paper --out FOLDER/s --strategies wild",
        "study ears --ears FOLDER/none.csv --out FOLDER/s",
        "audiograms classes --source niosh", "audiograms classes FOLDER/empty.csv",
        "device calibrated 9 --laboratory L --coupler C --done 2020-01-01 --due 2021-01-01",
        "db backup", "db nonsense", "db restore FOLDER/empty.csv --db FOLDER/y.db",
        "user list --nonsense", "serve --workers 0", "serve --port 99999",
    )  # fmt: skip
    desk.keep("people are as they were", _parsed(desk.run("person", "list", "--json", keep=False)))
    desk.keep("no file was written", _files(desk.folder))


def trouble(desk: Desk) -> None:
    """Databases that are none, of others, of another time, or that cannot be written."""
    desk.file("letter.db", "Dear patient, ...")
    for name, statements in (
        ("foreign.db", ("CREATE TABLE songs (title)",)),
        ("future.db", ("CREATE TABLE earshift_schema (version_num)",
                       "INSERT INTO earshift_schema VALUES ('9999')")),
    ):  # fmt: skip
        with sqlite3.connect(desk.folder / name) as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()
    _restored("0001", desk.folder / "older.db")
    secret = "postgresql://mh:geheim@127.0.0.1:1/none?connect_timeout=2"
    for address in ("FOLDER/letter.db", "FOLDER/foreign.db", "FOLDER/future.db", "FOLDER/older.db",
                    secret, "mysql://x/y", "FOLDER", "FOLDER/none/clinic.db"):  # fmt: skip
        desk.run("person", "list", "--db", address)
        desk.run("db", "check", "--db", address)
        desk.run("person", "add", "--db", address)
    desk.run("person", "add", "--code", "A1", "--json")
    screen = ("screen", "A1", "--ear", "right", "--protocol", "best", "--no-practice")
    desk.file("baselines.csv", AUDIOGRAMS)
    desk.run("import", "FOLDER/baselines.csv", "--json")
    with sqlite3.connect(desk.db) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON trials BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    connection.close()
    desk.run(*screen, "--seed", 1, typed="y\n")


def _restored(schema: str, path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript((FIXTURES / f"store_schema_{schema}.sql").read_text(encoding="utf-8"))
    connection.close()
    path.chmod(0o600)  # or the check complains that others can read it


def _kept_store(desk: Desk) -> None:
    """What a database of an earlier day says: read only."""
    desk.run("person", "list", "--json")
    for person in (1, 2):
        desk.run("person", "show", person, "--json")
        desk.run("person", "history", person, "--json")
    desk.run("db", "check", "--json")
    listed = json.loads(desk.run("device", "list", "--json", keep=False))
    for device in listed:
        del device["state"]  # it is of the day on which one looks
    desk.keep("device list", listed)
    desk.run("export", "--format", "csv", "--out", "FOLDER/csv", "--json")
    for path in sorted((desk.folder / "csv").glob("*.csv")):
        with path.open(encoding="utf-8-sig", newline="") as file:
            desk.keep(path.name, list(csv.DictReader(file)))
    desk.run("export", "--format", "fhir", "--out", "FOLDER/bundle.json", "--json")
    bundle = json.loads(_with_numbered_ids((desk.folder / "bundle.json").read_text("utf-8")))
    del bundle["timestamp"]
    desk.keep("bundle.json", bundle)
    _keep_results(desk)


def _with_numbered_ids(text: str) -> str:
    """Random ids numbered as they come, so that what refers to what is still compared."""
    numbers: dict[str, str] = {}
    return _UUID.sub(lambda m: numbers.setdefault(m[0], f"id-{len(numbers) + 1}"), text)


def of_schema_0002(desk: Desk) -> None:
    _restored("0002", desk.db)
    desk.run("db", "upgrade", "--json", keep=False)
    _kept_store(desk)


def of_schema_0001(desk: Desk) -> None:
    _restored("0001", desk.db)
    desk.run("person", "list", "--json")
    upgraded = json.loads(desk.run("db", "upgrade", "--json", keep=False))
    desk.keep("the copy made by db upgrade", Path(upgraded["backup"]).name)
    _kept_store(desk)


def clinical_desk(desk: Desk) -> None:
    desk.file("baselines.csv", AUDIOGRAMS)
    desk.run("import", "FOLDER/baselines.csv", "--json")
    exam = ("exam", "A1", "--ear", "right", "--json")
    desk.run(*exam, "--tones", 14, "--simulate", "mild", "--seed", 1)
    desk.run(*exam, "--tones", 6, "--seed", 2, typed="y\nn\ny\nundo\nquit\n")
    desk.run("resume", 6, "--no-practice", "--json", typed="y\nn\ny\nn\ny\ny\nn\n\n")
    screen = ("screen", "A1", "--ear", "left", "--json")
    desk.run(*screen, "--simulate", "moderate", "--seed", 1)
    desk.run(*screen, "--simulate", "normal", "--seed", 2, "--rule", "niosh-15")
    desk.run(*screen, "--seed", 3, "--reference", 4, typed="y\ny\nn\ny\nfinish\n")
    desk.run("person", "history", "A1", "--json")
    _keep_results(desk)


def clinical_simulation(desk: Desk) -> None:
    quick = ("simulate", "--first-tones", 20, "--json", "--max-tones", 12)
    desk.run(*quick, "--old", "normal", "--new", "moderate", "--rule", "osha-sts", "--seed", 3)
    desk.run(*quick, "--old", "mild", "--new", "mild", "--rule", "niosh-15")


STORIES: dict[str, Story] = {
    "simulations": simulations,
    "demonstration": demonstration,
    "people": people,
    "devices": devices,
    "import and export": exchange,
    "screens at the desk": at_the_desk,
    "a screen in Python": in_python,
    "upkeep of the database": upkeep,
    "accounts": accounts,
    "wrong use": wrong_use,
    "trouble with the database": trouble,
    "a store of schema 0002": of_schema_0002,
    "a store of schema 0001": of_schema_0001,
}
OF_EARLIER_DAYS = (of_schema_0001, of_schema_0002)  # nothing in them is of today
CLINICAL: dict[str, Story] = {
    "at the desk": clinical_desk,
    "simulations": clinical_simulation,
}
