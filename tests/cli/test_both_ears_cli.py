"""Both ears in one sitting on the command line: from the first exam to the exports."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from earshift.cli import app
from earshift.cli.app import NOT_FINISHED
from earshift.clinic.session import Session
from earshift.formats import read_references
from earshift.store import Store
from support.databases import prepare

Run = Callable[..., str]
EARS = ("right", "left")
SETTINGS = {"COLUMNS": "200", "EARSHIFT_AUTHOR": "mh", "EARSHIFT_TIMEZONE": "UTC"}
AUDIOGRAMS = """person,date,left_500,left_1000,left_2000,left_3000,left_4000,left_6000,\
right_500,right_1000,right_2000,right_3000,right_4000,right_6000
A1,2024-03-01,10,10,15,20,20,25,10,10,15,20,20,25
"""


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "clinic.db"
    prepare(path)
    return path


@pytest.fixture
def run(db: Path) -> Run:
    def invoke(*arguments: object, typed: str = "", code: int = 0) -> str:
        given = [str(part) for part in arguments]
        done = CliRunner().invoke(app, given, input=typed, env={**SETTINGS, "EARSHIFT_DB": str(db)})
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == code, done.output
        return done.stderr if code == 2 else done.stdout

    return invoke


@pytest.fixture
def person(run: Run) -> int:
    return int(json.loads(run("person", "add", "--code", "A1", "--json"))["id"])


@pytest.fixture
def referred(run: Run, person: int, tmp_path: Path) -> int:
    file = tmp_path / "baselines.csv"
    file.write_text(AUDIOGRAMS, encoding="utf-8")
    run("import", file)
    return person


def answered(db: Path, exam_id: int, most: int = 200, **levels: float) -> Session:
    """The stored exam answered without the desk, each tone by its ear."""
    with Store.open(db) as store:
        session = Session(store, exam_id, author="mh")
        session.resume()
        while not session.done and most:
            asked = session.presentation()
            level = asked.level_db_hl
            session.answer(level is not None and level >= levels[asked.ear])
            most -= 1
        session.pause()
        return session


def events(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_a_screen_of_both_ears_from_the_first_tone_to_the_exports(
    run: Run, referred: int, db: Path, tmp_path: Path
) -> None:
    begun = run(
        *("screen", "A1", "--ear", "both", "--seed", 1, "--no-practice"),
        typed="quit\n",
        code=NOT_FINISHED,
    )
    assert "Screen 3 of both ears of" in begun
    assert "the right ear against exam" in begun
    assert "the left ear against exam" in begun
    assert "on the ear that is named" in begun
    line = run("exam", "A1", "--ear", "left", code=2)
    assert "exam 3 of the left ear is not finished" in line

    asked = answered(db, 3, 3, right=10, left=50).presentation()
    typed = run("resume", 3, "--no-practice", "--json", typed="y\nundo\nquit\n", code=NOT_FINISHED)
    presented = [one for one in events(typed) if one["event"] == "present"]
    assert [presented[at]["ear"] for at in (0, -1)] == [asked.ear, asked.ear]
    assert presented[0]["frequency_hz"] == presented[-1]["frequency_hz"] == asked.frequency_hz
    answered(db, 3, right=10, left=50)
    result = events(run("resume", 3, "--no-practice", "--json", typed="\n"))[-1]
    assert result["event"] == "result"
    ears = result["shown"]["ears"]
    assert {ear: ears[ear]["verdict"]["decision"] for ear in EARS} == {
        "right": "unchanged",
        "left": "changed",
    }

    shown = run("person", "show", "A1")
    assert "both" in shown
    history = run("person", "history", "A1")
    assert history.index("right ear") < history.index("left ear")
    assert "unchanged" in history
    assert "changed" in run("person", "history", "A1", "--ear", "left")
    work = run("worklist")
    assert "left" in work
    report = tmp_path / "report.html"
    run("report", result["visit"], "--out", report)
    text = report.read_text(encoding="utf-8")
    assert "Right ear: screen" in text
    assert "Left ear: screen" in text
    assert "says nothing about this ear" not in text

    run("export", "--format", "csv", "--out", tmp_path / "tables")
    with (tmp_path / "tables" / "verdicts.csv").open(encoding="utf-8") as file:
        verdicts = [row for row in csv.DictReader(file) if row["exam"] == "3"]
    assert [(row["ear"], row["decision"], row["reference_exam"]) for row in verdicts] == [
        ("right", "unchanged", "1"),
        ("left", "changed", "2"),
    ]
    with (tmp_path / "tables" / "tones.csv").open(encoding="utf-8") as file:
        tones = [row for row in csv.DictReader(file) if row["exam"] == "3"]
    assert [int(row["number"]) for row in tones] == list(range(1, len(tones) + 1))
    assert {row["ear"] for row in tones} == set(EARS)
    run("export", "--format", "bids", "--out", tmp_path / "bids")
    (sidecar,) = [
        json.loads(path.read_text())
        for path in (tmp_path / "bids").rglob("*_beh.json")
        if any(one["Exam"] == 3 for one in json.loads(path.read_text()).get("Exams", ()))
    ]
    assert [(one["Ear"], one["Verdict"]["decision"]) for one in sidecar["Exams"]] == [
        ("right", "unchanged"),
        ("left", "changed"),
    ]


def test_a_full_exam_of_both_ears_goes_out_and_comes_back(
    run: Run, person: int, db: Path, tmp_path: Path
) -> None:
    said = run("exam", "A1", "--ear", "both", "--seed", 2, "--simulate", "mild", "--tones", 12)
    assert "right ear" in said
    assert "left ear" in said
    run("exam", "A1", "--ear", "both", "--no-practice", typed="quit\n", code=NOT_FINISHED)
    with Store.open(db) as store:
        real = store.exams(person)[-1]
        assert real.design["max_tones"] == 80
    answered(db, real.id, right=15, left=30)
    measured = events(run("resume", real.id, "--json", typed="\n"))[-1]["shown"]
    out = tmp_path / "out.json"
    run("export", "--format", "fhir", "--no-simulated", "--out", out)
    found = read_references(out, "fhir")
    assert {one.ear for one in found.accepted} == set(EARS)
    for one in found.accepted:
        kept = dict(one.audiogram["thresholds_db_hl"])
        shown = {
            t["frequency_hz"]: round(t["level_db_hl"], 1)
            for t in measured["ears"][one.ear]["thresholds"]
            if t["censored"] is None
        }
        assert kept == shown
    run("person", "baseline", "A1", "--ear", "left", "--exam", real.id, "--reason", "first day")
    assert "ear must be right or left" in run(
        *("person", "baseline", "A1", "--ear", "both", "--exam", real.id, "--reason", "x"), code=2
    )
    line = run(
        *("screen", "A1", "--ear", "both", "--reference", real.id, "--no-practice"),
        typed="quit\n",
        code=NOT_FINISHED,
    )
    assert f"the right ear against exam {real.id}" in line
    assert f"the left ear against exam {real.id}" in line


def test_one_reference_alone_says_what_to_do(run: Run, person: int, tmp_path: Path) -> None:
    file = tmp_path / "one.csv"
    file.write_text("person,date,right_1000,right_2000\nA1,2024-03-01,10,10\n", encoding="utf-8")
    run("import", file)
    line = run("screen", "A1", "--ear", "both", code=2)
    assert "the left ear has nothing to be compared with" in line
    assert "screen the right ear alone" in line
