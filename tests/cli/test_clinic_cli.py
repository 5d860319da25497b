"""The command line of a working day: what is typed, what appears, and what is stored."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import pytest
from typer.testing import CliRunner

from earshift.cli import app
from earshift.cli.app import NOT_FINISHED, STORE_TROUBLE
from earshift.cli.database import EXIT_CODES, login_name
from earshift.clinic.day import backup_warning
from earshift.store import Store
from earshift.store.trials import live_trials
from support.databases import prepare

Run = Callable[..., Any]
AUDIOGRAMS = """person,date,left_500,left_1000,left_2000,left_3000,left_4000,left_6000,\
right_500,right_1000,right_2000,right_3000,right_4000,right_6000
A1,2024-03-01,10,10,15,20,20,25,10,10,15,20,20,25
"""
SETTINGS = {"COLUMNS": "200", "EARSHIFT_AUTHOR": "mh", "EARSHIFT_TIMEZONE": "Europe/Berlin"}


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "clinic.db"


@pytest.fixture
def run(db: Path) -> Run:
    """A command on the test's own database, expected to end with `code`; what it printed."""

    def invoke(*arguments: object, typed: str = "", code: int = 0) -> str:
        given = [str(part) for part in arguments]
        done = CliRunner().invoke(app, given, input=typed, env={**SETTINGS, "EARSHIFT_DB": str(db)})
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == code, done.output
        if code == 2:
            (line,) = [line for line in done.stderr.splitlines() if line.startswith("earshift: ")]
            assert done.stderr.endswith(f"{line}\n")  # at most a progress bar before it
            return line
        return done.output if code else done.stdout

    return invoke


@pytest.fixture
def person(run: Run, db: Path) -> int:
    prepare(db)
    return int(json.loads(run("person", "add", "--code", "A1", "--json"))["id"])


@pytest.fixture
def referred(run: Run, person: int, tmp_path: Path) -> int:
    """The person with imported audiograms of both ears."""
    file = tmp_path / "baselines.csv"
    file.write_text(AUDIOGRAMS, encoding="utf-8")
    run("import", file)
    return person


def events(output: str) -> list[dict[str, Any]]:
    """What was told as JSON; advice for people goes to stderr, which is read along with it."""
    return [json.loads(line) for line in output.splitlines() if not line.startswith("earshift: ")]


def stored(db: Path, exam_id: int) -> list[tuple[str, bool]]:
    with Store.open(db) as store:
        return [(trial.kind, trial.heard) for trial in live_trials(store.trials(exam_id))]


# People -----------------------------------------------------------------------------------------


def test_a_person_from_adding_to_correcting(run: Run) -> None:
    added = run("person", "add", "--code", "K7", "--name", "Zoë [bold]Ünal", "--born", "1980-02-03")
    assert added == "Added person 1 (K7, Zoë [bold]Ünal)\n"
    run("person", "add", "--name", "李雷", "--sex", "male")
    listed = run("person", "list")
    assert "Zoë [bold]Ünal" in listed
    assert "李雷" in listed
    assert "李雷" not in run("person", "list", "--search", "zOË")
    assert "More: earshift person list --after 1" in run("person", "list", "--limit", 1)
    assert [p["id"] for p in json.loads(run("person", "list", "--after", 1, "--json"))] == [2]
    assert "Nobody found" in run("person", "list", "--search", "%")
    run("person", "correct", "K7", "--name", "Zoë Ünal", "--born", "", "--reason", "typing error")
    shown = json.loads(run("person", "show", "K7", "--json"))
    assert (shown["name"], shown["birth_date"], shown["code"]) == ("Zoë Ünal", None, "K7")
    assert "No exams yet" in run("person", "show", 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "--code", "A1"], "already belongs to person 1, got 'A1'"),
        (["add", "--born", "03.02.1980"], "must look like YYYY-MM-DD, got '03.02.1980'"),
        (["add", "--born", "2980-01-01"], "must lie between 1880-01-01 and today"),
        (["add", "--born", "1980-02-30"], "must look like YYYY-MM-DD"),
        (["add", "--sex", "f"], "must be one of female, male"),
        (["add", "--name", "a\x00b"], "cannot be stored"),
        (["add", "--author", " "], "author must not be empty"),
        (["show", "B9"], "nobody has this id or code, got 'B9'; `earshift person list`"),
        (["show", "99"], "there is no person 99; `earshift person list` shows everybody"),
        (["show", "99"], "`earshift person add --code CODE` adds somebody"),
        (["correct", "A1", "--reason", "x"], "nothing to correct"),
        (["correct", "A1", "--reason", " ", "--name", "x"], "reason must not be empty"),
        (["erase", "99", "--reason", "other", "--yes"], "there is no person 99"),
    ],
)
def test_wrong_people_are_refused(run: Run, person: int, arguments: list[str], words: str) -> None:
    before = run("person", "list", "--json")
    assert words in run("person", *arguments, code=2)
    assert run("person", "list", "--json") == before


def test_a_name_cannot_steer_the_terminal(run: Run) -> None:
    run("person", "add", "--name", "Eve\x1b]0;owned\x07\x1b[2J\nforged")
    for output in (run("person", "list"), run("person", "show", 1)):
        assert "\x1b" not in output
        assert "\nforged" not in output


def test_erasing_warns_asks_and_says_that_backups_remain(run: Run, referred: int, db: Path) -> None:
    told = run(
        "person", "erase", "A1", "--reason", "asked by the person", typed="n\n", code=NOT_FINISHED
    )
    assert "29 CFR 1910.95(m)" in told
    assert "2 exams will be kept without a name" in told
    assert "Nothing was erased" in told
    run(
        "person", "erase", "A1", "--reason", "asked by the person", code=NOT_FINISHED
    )  # end of input
    assert json.loads(run("person", "show", "A1", "--json"))["code"] == "A1"
    done = CliRunner().invoke(
        app,
        ["person", "erase", "A1", "--reason", "asked by the person", "--db", str(db)],
        input="y\n",
    )
    assert done.exit_code == 0
    assert "backups" in done.stderr
    assert run("person", "list", "--search", "A1") == f"Nobody found in {db}\n"
    assert "Erased on" in run("person", "show", 1)
    assert len(json.loads(run("person", "show", 1, "--json"))["exams"]) == 2
    assert "was erased" in run("exam", "id:1", "--ear", "right", code=2)


def test_erasing_with_the_answers(run: Run, referred: int) -> None:
    run("person", "erase", "A1", "--reason", "asked by the person", "--delete-trials", "--yes")
    assert json.loads(run("person", "show", 1, "--json"))["exams"] == []


# Exams at the desk ------------------------------------------------------------------------------


def test_an_exam_at_the_keyboard(run: Run, person: int, db: Path) -> None:
    typed = "y\ny\nbanana\nn 35\nundo\n\nY\npause\n\nyes\nquit\ny\n"
    output = run("exam", "A1", "--ear", "right", "--seed", 1, typed=typed, code=NOT_FINISHED)
    assert "Full exam 1 of the right ear of person 1 (A1), visit 1." in output
    assert "1000 Hz at 40 dB HL   (practice, does not count)" in output
    assert output.count("please type one of") == 2  # banana, and Enter
    assert "answer 3 undone" in output
    assert "Paused; every answer is kept." in output
    assert "Continue with: earshift resume 1" in output
    assert stored(db, 1) == [("practice", True), ("tone", True), ("tone", True), ("tone", True)]
    with Store.open(db) as store:
        assert store.exam(1).state == "paused"
        voided = store.trials(1)[2]
        assert (voided.heard, voided.played_db_hl) == (False, 35.0)
        assert (voided.voided_by, store.visit(1).zone) == ("mh", "Europe/Berlin")
    assert "Not finished: earshift resume 1" in run("person", "show", 1)


@pytest.mark.slow
def test_the_resumed_exam_asks_what_the_unbroken_one_would_have(run: Run, person: int) -> None:
    options = (
        "exam",
        "A1",
        "--ear",
        "right",
        "--tones",
        12,
        "--seed",
        5,
        "--no-practice",
        "--json",
    )
    answers = "y\nn\ny\ny\nn\ny\nn\ny\ny\nn\ny\ny\ny\nn\n\n"
    whole = events(run(*options, typed=answers))
    asked = [{**e, "number": 0} for e in whole if e["event"] == "present"]
    assert whole[-1]["event"] == "result"
    lines = answers.splitlines(keepends=True)
    first = events(run(*options, typed="".join(lines[:4]), code=NOT_FINISHED))
    broken = [e for e in first if e["event"] == "present"]
    exam_id = first[0]["exam"]
    for k in range(4, len(lines)):  # broken off before every single answer
        last = k == len(lines) - 1
        part = events(
            run("resume", exam_id, "--no-practice", "--json", typed=lines[k],
                code=0 if last else NOT_FINISHED)
        )  # fmt: skip
        assert part[0]["event"] == "begin"
        presented = [e for e in part if e["event"] == "present"]
        broken += presented[1:]
        if presented:
            assert {**presented[0], "number": 0} == asked[k]
    assert [{**e, "number": 0} for e in broken] == asked
    assert part[-1]["shown"] == whole[-1]["shown"]
    assert "is done; only an open or paused exam" in run("resume", exam_id, code=2)


@pytest.mark.slow
def test_the_last_answer_can_be_taken_back_before_the_result(run: Run, referred: int) -> None:
    options = ("screen", "A1", "--ear", "left", "--seed", 1, "--no-practice", "--json")
    answers: list[str] = []
    told: list[dict[str, Any]] = []
    while not any(event["event"] == "ready" for event in told):  # hears as before, and no silence
        asked = [event for event in told if event["event"] == "present"]
        if asked:
            silent = asked[-1]["kind"] == "catch"
            answers.append("n\n" if silent or asked[-1]["level_db_hl"] < 10.0 else "y\n")
        told = events(run(*options, "--set-aside", typed="".join(answers), code=NOT_FINISHED))
    typed = "".join([*answers, "undo\n", answers[-1], "\n"])
    told = events(run(*options, "--set-aside", typed=typed))
    names = [event["event"] for event in told]
    assert names.count("ready") == 2
    asked = [event for event in told if event["event"] == "present"]
    assert {**asked[-1], "number": 0} == {**asked[-2], "number": 0}
    assert names[-1] == "result"
    assert told[-1]["shown"]["verdict"]["decision"] == "unchanged"


def test_a_screen_that_finds_a_change(run: Run, referred: int, tmp_path: Path) -> None:
    shown = run("screen", "A1", "--ear", "right", "--simulate", "moderate", "--seed", 1)
    assert "against exam" in shown
    assert "Question: OSHA standard threshold shift: mean shift at" in shown
    assert "29 CFR 1910.95(g)(10)(i)" in shown
    assert "present nothing, wait" in shown
    assert "P(rule met)" in shown
    assert re.search(r"\nChanged\nRight ear: average at 2-4 kHz is \d+ to \d+ dB worse", shown)
    assert "reliability good" in shown
    listed = run("person", "show", "A1")
    assert "simulated screen" in listed
    assert "OSHA standard threshold shift: changed" in listed
    visit = json.loads(run("person", "show", "A1", "--json"))["visits"][-1]
    assert visit["mode"] == "simulated"
    page = tmp_path / "report.html"
    run("report", visit["id"], "--out", page)
    text = page.read_text(encoding="utf-8")
    assert "OSHA standard threshold shift: mean shift at" in text
    assert "osha-sts" not in text + shown
    pdf = tmp_path / "report.pdf"
    told = json.loads(run("report", visit["id"], "--out", pdf, "--paper", "letter", "--json"))
    assert told == {"visit": visit["id"], "report": str(pdf), "warnings": []}
    assert pdf.read_bytes().startswith(b"%PDF")


def test_other_questions(run: Run, referred: int) -> None:
    ask = ("screen", "A1", "--ear", "right", "--simulate", "slight", "--seed", 2)
    assert "has hearing changed at all (protocol best)" in run(*ask, "--protocol", "best")
    assert "NIOSH significant threshold shift" in run(*ask, "--rule", "niosh-15")


def test_the_examiner_may_end_early(run: Run, person: int, db: Path) -> None:
    typed = "finish\ny\nn\ny\nfinish\n"
    output = run("exam", "A1", "--ear", "left", "--no-practice", "--seed", 1, typed=typed)
    assert "nothing has been answered yet" in output
    assert "Exam ended early: thresholds measured with" in output
    with Store.open(db) as store:
        assert store.exam(1).state == "abandoned"
        assert store.results(1)[0].shown["complete"] is False
    assert "exam 1: it is abandoned" in run("screen", "A1", "--ear", "left", code=2)


def test_both_ears_of_a_day_share_a_visit(run: Run, person: int) -> None:
    for ear in ("right", "left"):
        run("exam", "A1", "--ear", ear, "--tones", 3, "--simulate", "normal", "--seed", 1)
    run("exam", "A1", "--ear", "left", "--tones", 3, "--simulate", "normal", "--new-visit")
    exams = json.loads(run("person", "show", "A1", "--json"))["exams"]
    assert [exam["visit_id"] for exam in exams] == [1, 1, 2]


def test_a_notch_needs_no_reference(run: Run, person: int) -> None:
    said = run("screen", "A1", "--ear", "right", "--notch", "--simulate", "normal", "--yes")
    assert "Question: is there a notch around 3-6 kHz?" in said
    assert "P(notch)" in said
    assert "otch around 3-6 kHz" in said
    line = run("screen", "A1", "--ear", "both", "--notch", "--rule", "osha-sts", code=2)
    assert "give no rule" in line
    assert "ear must be right, left or both" in run("exam", "A1", "--ear", "neither", code=2)


@pytest.mark.parametrize(
    "reading",
    [
        ["person", "list"],
        ["device", "list"],
        ["worklist"],
        ["today"],
        ["programme"],
        ["site", "show"],
        ["user", "list"],
        ["export", "--format", "csv", "--out", "FOLDER/day"],
    ],
)
def test_looking_makes_no_database(run: Run, db: Path, tmp_path: Path, reading: list[str]) -> None:
    run(*(part.replace("FOLDER", str(tmp_path)) for part in reading))
    assert not db.exists()


def test_upkeep_of_no_database_says_so(run: Run, db: Path, tmp_path: Path) -> None:
    for command in (["check"], ["backup", tmp_path / "copy.db"]):
        assert "there is no database yet" in run("db", *command, code=STORE_TROUBLE)
    assert not db.exists()


def test_notes_a_checklist_and_the_visits_of_today(run: Run, person: int, db: Path) -> None:
    checks = ["--check", "otoscopy_right=wax", "--check", "hours_since_noise=3"]
    checks += ["--check", "tinnitus=no", "--check", "remarks=came late"]
    given = ["exam", "A1", "--ear", "left", "--no-practice", *checks]
    env = {**SETTINGS, "EARSHIFT_DB": str(db)}
    said = CliRunner().invoke(app, given, input="y\nfinish\n", env=env).stderr
    assert "Retest after 14 hours without noise" in said
    assert "earwax" not in said  # in the other ear
    run("person", "note", "A1", "Prefers mornings.", "--visit", 1)
    assert "Prefers mornings." in run("person", "show", "A1")
    assert "there is no visit 9" in run("person", "note", "A1", "x", "--visit", 9, code=2)
    with Store.open(db) as store:
        kept = store.visit(1).checklist
        assert [note.visit_id for note in store.notes(person)] == [1]
    assert kept == {
        "otoscopy_right": "wax",
        "hours_since_noise": 3.0,
        "tinnitus": False,
        "remarks": "came late",
    }
    listed = run("today")
    assert "A1" in listed
    assert "abandoned" in listed
    (visit,) = json.loads(run("today", "--json"))
    assert (visit["visit"], visit["exams"][0]["ear"]) == (1, "left")
    for wrong in ("tinnitus=perhaps", "hours_since_noise=long", "shoes=red", "room_noise=loud"):
        run("exam", "A1", "--ear", "right", "--check", wrong, code=2)


def test_a_report_is_not_overwritten_without_a_word(
    run: Run, referred: int, tmp_path: Path
) -> None:
    out = tmp_path / "visit.html"
    run("report", 1, "--out", out)
    out.write_text("mine")
    assert "Overwrite it?" in run("report", 1, "--out", out, typed="n\n", code=NOT_FINISHED)
    assert out.read_text() == "mine"
    run("report", 1, "--out", out, typed="y\n")
    assert out.read_text() != "mine"
    run("report", 1, "--out", out, "--yes")


def test_an_old_backup_is_said(run: Run, referred: int, db: Path, tmp_path: Path) -> None:
    with Store.open(db) as store:
        assert "No backup" in (backup_warning(store) or "")
    run("db", "backup", tmp_path / "copy.db")
    with Store.open(db) as store:
        assert backup_warning(store) is None
        later = datetime.now(UTC) + timedelta(days=9)
        assert "9 days old" in (backup_warning(store, later) or "")


def test_a_narrow_window_cuts_nothing(run: Run, referred: int, db: Path) -> None:
    env = {**SETTINGS, "COLUMNS": "80", "EARSHIFT_DB": str(db)}
    narrow = CliRunner().invoke(app, ["person", "history", "A1"], env=env).output
    assert "date: 2024-03-01" in narrow
    assert "\u2026" not in narrow
    without = CliRunner().invoke(app, ["person", "history", "A1"], env={**env, "COLUMNS": None})
    assert any(len(line) > 80 for line in without.output.splitlines())  # a pipe has no edge


def test_shells_complete_commands() -> None:
    asked = {"_EARSHIFT_COMPLETE": "complete_bash", "COMP_WORDS": "earshift per", "COMP_CWORD": "1"}
    assert "person" in CliRunner().invoke(app, [], env=asked, prog_name="earshift").output


def test_an_answer_to_silence_is_said_at_once(run: Run, person: int) -> None:
    said = run(
        "exam",
        "A1",
        "--ear",
        "left",
        "--no-practice",
        "--seed",
        3,
        typed="y\n" * 8 + "quit\n",
        code=NOT_FINISHED,
    )
    assert said.count("Nothing was presented, and it was reported as heard") == 1


def test_an_unfinished_exam_is_not_forgotten(run: Run, person: int) -> None:
    run("exam", "A1", "--ear", "right", code=NOT_FINISHED)
    refusal = run("exam", "A1", "--ear", "right", code=2)
    assert "exam 1 of the right ear is not finished" in refusal
    assert "--set-aside" in refusal
    assert "earshift resume 1" in refusal
    run("exam", "A1", "--ear", "left", code=NOT_FINISHED)
    run("exam", "A1", "--ear", "right", "--simulate", "mild", "--tones", 2)  # no real person's
    run("exam", "A1", "--ear", "right", "--set-aside", code=NOT_FINISHED)
    states = {e["id"]: e["state"] for e in json.loads(run("person", "show", 1, "--json"))["exams"]}
    assert states == {1: "abandoned", 2: "paused", 3: "done", 4: "paused"}
    assert "is abandoned" in run("resume", 1, code=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["exam", "A1", "--ear", "neither"], "ear must be right, left or both"),
        (["exam", "B2", "--ear", "right"], "nobody has this id or code"),
        (["exam", "A1", "--ear", "right", "--cap", "120"], "at most 90 dB HL"),
        (["exam", "A1", "--ear", "right", "--cap", "nan"], "must be finite"),
        (["exam", "A1", "--ear", "right", "--cap", "-20"], "leave no tone to play"),
        (["exam", "A1", "--ear", "right", "--simulate", "deaf"], "deaf"),
        (
            ["exam", "A1", "--ear", "right", "--timezone", "Mars/Base"],
            "a time zone has a name such as",
        ),
        (["exam", "A1", "--ear", "right", "--device", "9"], "there is no device 9"),
        (["screen", "A1", "--ear", "left", "--rule", "osha"], "the rule must be one of osha-sts"),
        (["screen", "A1", "--ear", "left", "--rule", "asha-1994"], "not verified"),
        (
            ["screen", "A1", "--ear", "left", "--protocol", "b"],
            "the protocol must be one of paper, paper-vague, literal, best, best-0.1, got 'b'",
        ),
        (["screen", "A1", "--ear", "left", "--rule", "osha-sts", "--protocol", "best"], "not both"),
        (["screen", "A1", "--ear", "left", "--reference", "1"], "ears are never mixed"),
        (["screen", "A1", "--ear", "left", "--reference", "99"], "there is no exam 99"),
        (["resume", "99"], "there is no exam 99"),
        (["resume", "1"], "it has no trials"),
        (["report", "99", "--out", "x.pdf"], "there is no visit 99"),
        (["report", "1", "--out", "x.doc"], ".html or .pdf"),
        (["report", "1", "--out", "x.pdf", "--paper", "a3"], "a3"),
        (["report", "1", "--out", "/nowhere/x.html"], "No such file"),
        (["export", "--format", "xml", "--out", "x"], "the kind must be one of csv"),
        (["export", "--format", "fhir", "--out", "/nowhere/x"], "there is no folder"),
        (["export", "--format", "csv", "--out", "x", "--person", "Z"], "nobody has"),
    ],
)
def test_misuse_is_refused_and_changes_nothing(
    run: Run, referred: int, db: Path, arguments: list[str], words: str,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    before = _everything(db)
    assert words in run(*arguments, code=2)
    assert _everything(db) == before
    assert not (tmp_path / "x").exists()


def _everything(db: Path) -> list[str]:
    with sqlite3.connect(db) as connection:
        return list(connection.iterdump())


def test_loud_tones_need_a_word(run: Run, person: int, db: Path) -> None:
    loud = ("exam", "A1", "--ear", "right", "--cap", 100)
    assert "Not started" in run(*loud, typed="n\n", code=NOT_FINISHED)
    with Store.open(db) as store:
        assert store.exams(person) == []
    run(*loud, typed="y\nquit\n", code=NOT_FINISHED)
    run(*loud, "--set-aside", "--yes", code=NOT_FINISHED)
    with Store.open(db) as store:
        caps = [exam.design["limits"]["cap_db_hl"] for exam in store.exams(person)]
    assert caps == [100.0, 100.0]


def test_a_real_exam_is_never_answered_by_a_simulation(run: Run, person: int) -> None:
    run("exam", "A1", "--ear", "right", code=NOT_FINISHED)
    assert "cannot be simulated" in run("resume", 1, "--simulate", "normal", code=2)


@pytest.mark.parametrize(
    "line",
    ["y" * 100_000, "y 1e400", "y nan", "y 45 45", "ja", "\udcff", "n -400", "y\x00", "1", "y;n"],
)
def test_wrong_lines_are_not_answers(run: Run, person: int, db: Path, line: str) -> None:
    typed = line.encode("utf-8", "surrogateescape").decode("latin-1")
    output = run("exam", "A1", "--ear", "right", typed=f"{typed}\ny\n", code=NOT_FINISHED)
    said = ("please type one of", "must be finite", "outside", "must lie from")
    assert any(one in output for one in said)
    assert stored(db, 1) == [("practice", True)]


def test_an_audiometer_and_its_calibration(run: Run, person: int, db: Path) -> None:
    run("device", "add", "--name", "booth 2", "--transducer", "insert", "--serial", "77/1")
    assert json.loads(run("device", "list", "--json"))[0]["state"] == "none"
    given = ("device", "calibrated", 1, "--laboratory", "Lab", "--coupler", "IEC 60318-4")
    run(*given, "--done", "2020-01-01", "--due", "2021-01-01")
    assert "expired" in run("device", "list")
    now = datetime.now().astimezone().date()
    today, soon = f"{now}", f"{now + timedelta(days=365)}"
    assert f"calibrated until {soon}" in run(*given, "--done", today, "--due", soon)
    (listed,) = json.loads(run("device", "list", "--json"))
    assert (listed["state"], listed["calibration"]["coupler"]) == ("calibrated", "IEC 60318-4")
    run("device", "check", 1, "--listener", "mh", "--right", "1000=0", "--left", "1000=-5")
    run("exam", "A1", "--ear", "right", "--device", 1, code=NOT_FINISHED)
    with Store.open(db) as store:
        bundle = store.visit_bundle(1)
    assert bundle.device is not None
    assert bundle.device.name == "booth 2"
    for wrong, words in (
        (("--done", "2999-01-01", "--due", "2999-01-02"), "must not be in the future"),
        (("--done", "2020-01-02", "--due", "2020-01-01"), "cannot be due before"),
        (("--done", "2020-01-01", "--due", "2022-01-04"), "due within two years"),
        (("--done", "1.1.2020", "--due", "2021-01-01"), "must look like YYYY-MM-DD"),
        (("--done", "2020-01-01", "--due", "2021-01-01", "--kind", "yes"), "kind must be one of"),
        (("--done", "2020-01-01", "--due", "2021-01-01", "--coupler", " "), "must not be empty"),
    ):
        assert words in run(*given, *wrong, code=2)
    assert "transducer must be one of" in run(
        "device", "add", "--name", "x", "--transducer", "bone", code=2
    )


def test_the_usual_device_is_used_and_an_unknown_comparison_is_said(
    run: Run, referred: int, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("device", "add", "--name", "booth", "--transducer", "insert")
    said = run("screen", "A1", "--ear", "left", "--no-practice", typed="quit\n", code=NOT_FINISHED)
    assert "even one of 20 dB" in said
    assert "register the device" in said
    assert "`earshift device add`" in said
    assert run("device", "default", 1) == "Tests use device 1\n"
    begun = ["--no-practice", "--set-aside", "--new-visit"]
    run("screen", "A1", "--ear", "left", *begun, typed="quit\n", code=NOT_FINISHED)
    run("screen", "A1", "--ear", "left", "--device", 0, *begun, typed="quit\n", code=NOT_FINISHED)
    with Store.open(db) as store:
        visits = [store.visit(one.visit_id).device_id for one in store.exams(referred)][-3:]
    assert visits == [None, 1, None]
    assert "there is no device 7" in run("device", "default", 7, code=2)
    monkeypatch.setenv("EARSHIFT_DEVICE", "7")
    assert "there is no device 7" in run("exam", "A1", "--ear", "right", code=2)
    monkeypatch.setenv("EARSHIFT_DEVICE", "booth")
    assert "must be the id of a device" in run("exam", "A1", "--ear", "right", code=2)


def test_a_device_is_used_as_the_browser_would_use_it(run: Run, referred: int, db: Path) -> None:
    run("device", "add", "--name", "booth 2")
    given = ("device", "calibrated", 1, "--laboratory", "Lab", "--coupler", "IEC 60318-4")
    run(*given, "--done", "2020-01-01", "--due", "2021-01-01")
    ask = ("screen", "A1", "--ear", "right", "--device", 1)
    refused = run(*ask, code=2)
    assert "The calibration expired on 2021-01-01." in refused
    assert "not checked with a listener today" in refused
    assert "--accept-calibration" in refused
    run(*ask, "--accept-calibration", code=NOT_FINISHED)
    with Store.open(db) as store:
        exam = store.exams(referred, ear="right")[-1]
    assert "The calibration expired on 2021-01-01." in exam.delivery["remarks"]
    check = ("device", "check", 1, "--listener", "mh", "--left", "1000=0")
    assert "FREQUENCY=DB" in run(*check, "--right", "loud", code=2)
    assert "has to be calibrated" in run(*check, "--right", "1000=10")
    again = (*ask, "--set-aside", "--accept-calibration")
    assert "calibrated before it is used again" in run(*again, code=2)
    run("exam", "A1", "--ear", "left", "--device", 1, "--simulate", "mild", "--tones", 2)


def test_a_device_that_plays_in_the_browser_is_not_played_by_hand(
    run: Run, referred: int, db: Path
) -> None:
    with Store.open(db) as store:
        store.add_device(author="mh", name="tablet", fingerprint={"browser": "x"})
    refused = run("exam", "A1", "--ear", "right", "--device", 1, code=2)
    assert "plays in its own browser" in refused
    assert "earshift serve" in refused
    table = run(
        "device", "calibrated", 1, "--laboratory", "Lab", "--coupler", "x", "--done", "2020-01-01",
        "--due", "2021-01-01", code=2,
    )  # fmt: skip
    assert "full_scale_db_spl" in table


# Import and export ------------------------------------------------------------------------------


def test_nothing_is_half_imported(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "baselines.csv"
    file.write_text(AUDIOGRAMS + AUDIOGRAMS.splitlines()[1].replace("A1", "B2") + "x\n")
    told = CliRunner().invoke(
        app, ["import", str(file)], env={**SETTINGS, "EARSHIFT_DB": str(tmp_path / "clinic.db")}
    )
    assert told.exit_code == 2
    assert "Rejected" in told.stdout
    assert "right 6000 Hz" in told.stdout
    assert "nothing was stored" in told.stderr
    assert json.loads(run("person", "list", "--json")) == []
    tried = json.loads(run("import", file, "--skip-rejected", "--dry-run", "--json"))
    assert (tried["sound"], tried["added"], tried["dry_run"]) == (2, [], True)
    assert [row["row"] for row in tried["rejected"]] == [3]
    assert json.loads(run("person", "list", "--json")) == []
    assert "2 stored" in run("import", file, "--skip-rejected")
    assert "0 stored; 2 were stored before" in run("import", file, "--skip-rejected")


def test_a_file_in_its_own_words(run: Run, tmp_path: Path, db: Path) -> None:
    file = tmp_path / "hno.csv"
    file.write_text("Akte,Tag,left_2000,left_3000,left_4000\n7,2024-05-01,10,NR,CNT\n")
    run(
        "import", file, "--person-column", "Akte", "--column", "Tag=date",
        "--sentinel", "NR=no response", "--sentinel", "CNT=not tested",
        "--no-response-db", "3000=95",
    )  # fmt: skip
    with Store.open(db) as store:
        person = store.person_by_code("7")
        assert person is not None
        (exam,) = store.exams(person.id)
    assert exam.design["no_response_db_hl"] == [[3000.0, 95.0]]
    assert exam.design["thresholds_db_hl"] == [[2000.0, 10.0]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--column", "Tag"], "--column must look like TEXT=MEANING, got 'Tag'"),
        (["--sentinel", "=x"], "--sentinel must look like TEXT=MEANING"),
        (["--sentinel", "NR=perhaps"], "must mean one of"),
        (["--no-response-db", "loud"], "--no-response-db must be a level such as 90"),
        (["--format", "xls"], "the kind must be one of csv"),
        (["--timezone", "Mars/Base"], "Mars/Base"),
        (["--person-column", "Akte"], "no column"),
    ],
)
def test_wrong_import_options(run: Run, tmp_path: Path, options: list[str], words: str) -> None:
    file = tmp_path / "baselines.csv"
    file.write_text(AUDIOGRAMS)
    assert words in run("import", file, *options, code=2)


def test_files_that_are_no_audiograms(run: Run, tmp_path: Path) -> None:
    for name, content in (("a.csv", b""), ("b.json", b"[" * 10_000), ("c.xpt", b"x" * 10_000)):
        (tmp_path / name).write_bytes(content)
        run("import", tmp_path / name, code=2)
    assert "there is no file" in run("import", tmp_path / "none.csv", code=2)


def test_exports_of_the_day(run: Run, referred: int, tmp_path: Path) -> None:
    run("screen", "A1", "--ear", "right", "--simulate", "mild", "--seed", 1)
    for kind in ("csv", "parquet", "fhir", "bids"):
        out = tmp_path / f"out-{kind}"
        told = json.loads(run("export", "--format", kind, "--out", out, "--json"))
        assert told == {"format": kind, "out": str(out), "visits": 2}
        assert out.exists()
        assert "already exists" in run("export", "--format", kind, "--out", out, code=2)
    whole = tmp_path / "one.json"
    run("export", "--format", "fhir", "--out", whole, "--person", "A1")
    assert json.loads(whole.read_text(encoding="utf-8"))["resourceType"] == "Bundle"


# The database -----------------------------------------------------------------------------------


def test_exports_by_day_and_without_simulations(run: Run, referred: int, tmp_path: Path) -> None:
    run("screen", "A1", "--ear", "left", "--simulate", "normal")
    options = ["export", "--format", "csv", "--json", "--out"]
    assert json.loads(run(*options, tmp_path / "all"))["visits"] == 2
    assert json.loads(run(*options, tmp_path / "real", "--no-simulated"))["visits"] == 1
    day = ["--from", "2024-03-01", "--to", "2024-03-01"]
    assert json.loads(run(*options, tmp_path / "day", *day))["visits"] == 1
    before = ["--to", "2024-02-29"]
    assert json.loads(run(*options, tmp_path / "none", *before))["visits"] == 0
    wrong = ["--from", "2024-03-02", "--to", "2024-03-01"]
    assert "before the first" in run("export", "--format", "csv", "--out", "x", *wrong, code=2)


def test_rows_refused_for_one_reason_are_told_in_one_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "many.csv"
    head = "person,date,ear,frequency_hz,threshold_db_hl\nB2,2024-03-01,right,500,10\n"
    file.write_text(head + "A1,2024-03-01,right,500,loud\n" * 70, encoding="utf-8")
    said = run("import", file, "--dry-run", "--skip-rejected")
    assert said.count("loud") == 1
    assert "3-72" in said
    mixed = [f"A1,2024-03-01,right,500,loud{number}\n" for number in range(70)]
    file.write_text(head + "".join(mixed), encoding="utf-8")
    assert "and 20 more: --json lists all" in run("import", file, "--dry-run", "--skip-rejected")
    listed = json.loads(run("import", file, "--skip-rejected", "--dry-run", "--json"))
    assert len(listed["rejected"]) == 70


def test_a_list_that_hides_somebody_is_found_and_made_anew(
    run: Run, referred: int, db: Path
) -> None:
    assert "A1" in run("worklist")
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("DELETE FROM tasks")
        connection.execute("DELETE FROM standings")
    assert "A1" not in run("worklist")
    assert "do not show 1 of the people" in run("db", "check", code=STORE_TROUBLE)
    assert json.loads(run("db", "rebuild", "--json"))["people"] >= 1
    assert "No problems found" in run("db", "check")
    assert "A1" in run("worklist")


def test_backup_check_and_restore(run: Run, referred: int, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    assert "No problems found" in run("db", "check")
    run("db", "backup", copy)
    assert "already exists" in run("db", "backup", copy, code=STORE_TROUBLE)
    other = tmp_path / "other.db"
    run("db", "restore", copy, "--db", other)
    assert run("person", "show", "A1", "--json", "--db", other) == run(
        "person", "show", "A1", "--json"
    )
    assert "already exists" in run("db", "restore", copy, "--db", other, code=STORE_TROUBLE)
    upgraded = json.loads(run("db", "upgrade", "--json"))
    assert upgraded["backup"] is None


def test_trouble_with_the_database(run: Run, tmp_path: Path) -> None:
    text = tmp_path / "letter.db"
    text.write_text("Dear patient, ...")
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE songs (title)")
    connection.close()
    secret = "postgresql://mh:geheim@127.0.0.1:1/none?connect_timeout=2"
    for address in (text, foreign, secret, "mysql://x/y", tmp_path):
        told = run("person", "list", "--db", address, code=STORE_TROUBLE)
        assert told.startswith("earshift: ")
        assert told.count("\n") == 1
        assert "geheim" not in told
    assert text.read_text() == "Dear patient, ..."


def test_a_database_that_breaks_during_an_exam(run: Run, person: int, db: Path) -> None:
    run("exam", "A1", "--ear", "right", typed="y\n", code=NOT_FINISHED)
    holder = sqlite3.connect(db, isolation_level=None)
    holder.execute(
        "CREATE TRIGGER full BEFORE INSERT ON trials BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    told = run("resume", 1, typed="y\n", code=STORE_TROUBLE)
    assert "earshift: " in told
    holder.execute("DROP TRIGGER full")
    holder.close()
    assert stored(db, 1) == [("practice", True)]
    run("resume", 1, typed="y\n", code=NOT_FINISHED)
    assert len(stored(db, 1)) == 2


def test_every_command_tells_its_exit_codes(run: Run) -> None:
    for command in ("exam", "screen", "resume", "report", "import", "export", "person add",
                    "person erase", "db check"):  # fmt: skip
        assert EXIT_CODES in " ".join(run(*command.split(), "--help").split())


# Real processes ---------------------------------------------------------------------------------


class Examiner:
    """`earshift ... --json` as a process of its own, driven line by line."""

    def __init__(self, db: Path, *arguments: object) -> None:
        command = [sys.executable, "-m", "earshift.cli", *map(str, arguments), "--json"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **SETTINGS, "EARSHIFT_DB": str(db)},
        )

    def until(self, event: str) -> dict[str, Any]:
        for line in _open(self.process.stdout):
            told: dict[str, Any] = json.loads(line)
            if told["event"] == event:
                return told
        raise AssertionError(_open(self.process.stderr).read())

    def type(self, line: str) -> None:
        print(line, file=_open(self.process.stdin), flush=True)

    def end(self) -> int:
        """Its exit code, and nothing left open."""
        with self.process:
            self.process.communicate(timeout=60)
        return self.process.returncode


def _open(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


@pytest.fixture
def examiner(db: Path) -> Iterator[Callable[..., Examiner]]:
    started: list[Examiner] = []

    def start(*arguments: object) -> Examiner:
        started.append(Examiner(db, *arguments))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.end()


@pytest.mark.slow
def test_killed_and_interrupted_and_resumed(
    run: Run, person: int, db: Path, examiner: Callable[..., Examiner]
) -> None:
    one = examiner("exam", "A1", "--ear", "right", "--no-practice", "--seed", 3)
    one.until("present")
    for _ in range(3):
        one.type("y")
        one.until("stored")
    expected = one.until("present")
    one.process.send_signal(signal.SIGKILL)
    assert one.end() == -signal.SIGKILL
    assert len(stored(db, 1)) == 3
    two = examiner("resume", 1, "--no-practice")
    assert two.until("begin")["tones"] == 3 - sum(kind == "catch" for kind, _ in stored(db, 1))
    assert two.until("present") == expected
    two.process.send_signal(signal.SIGINT)  # Ctrl-C at the prompt
    assert two.until("left")["trials"] == 3
    assert two.end() == NOT_FINISHED
    with Store.open(db) as store:
        assert store.exam(1).state == "paused"


@pytest.mark.slow
def test_two_examiners_at_one_exam(
    run: Run, person: int, db: Path, examiner: Callable[..., Examiner]
) -> None:
    one = examiner("exam", "A1", "--ear", "right", "--no-practice")
    one.until("present")
    two = examiner("resume", 1, "--no-practice")
    two.until("present")
    one.type("y")
    one.until("stored")
    two.type("n")
    assert "another program" in two.until("refused")["message"]
    assert two.end() == NOT_FINISHED
    one.until("present")
    one.type("n")  # the first goes on undisturbed
    one.until("stored")
    assert [heard for _, heard in stored(db, 1)] == [True, False]


@pytest.mark.slow
def test_a_backup_while_an_exam_runs(
    run: Run, person: int, db: Path, tmp_path: Path, examiner: Callable[..., Examiner]
) -> None:
    one = examiner("exam", "A1", "--ear", "right", "--simulate", "mild", "--tones", 40)
    one.until("stored")
    time.sleep(0.05)
    run("db", "backup", tmp_path / "copy.db")
    whole = one.until("result")
    assert one.end() == 0
    assert whole["shown"]["tones"] > 20  # it ends when it knows enough
    run("db", "restore", tmp_path / "copy.db", "--db", tmp_path / "again.db")
    assert "No problems found" in run("db", "check", "--db", tmp_path / "again.db")
    copied, all_of_it = stored(tmp_path / "again.db", 1), stored(db, 1)
    assert copied == all_of_it[: len(copied)]


@pytest.mark.parametrize(
    ("command", "action", "subject"),
    [
        (["person", "list", "--search", "canary"], "list", "people"),
        (["person", "show", "A1"], "view", "people:1"),
        (["person", "history", "A1"], "view", "people:1"),
        (["worklist", "--department", "canary"], "list", "worklist"),
        (["today"], "list", "today"),
        (["programme"], "list", "programme"),
        (["report", "1", "--out", "FOLDER/visit.html"], "view", "visits:1"),
        (["review", "show", "1"], "view", "visits:1"),
        (["export", "--format", "csv", "--out", "FOLDER/day"], "export", None),
        (["db", "backup", "FOLDER/copy.db"], "made", "backup"),
        (["db", "backup", "FOLDER/copy.db"], "export", "database"),
        (["roster", "import", "FOLDER/roster.csv", "--dry-run"], "list", "people"),
        (["device", "show", "1"], "view", "devices:1"),
        (["user", "list"], "list", "users"),
    ],
)
def test_a_look_is_one_line_in_the_audit(
    run: Run,
    referred: int,
    db: Path,
    tmp_path: Path,
    command: list[str],
    action: str,
    subject: str | None,
) -> None:
    (tmp_path / "roster.csv").write_text("code,name\nA2,canary\n")
    with Store.open(db) as store:
        store.add_device(author="mh", name="booth", transducer="supra-aural")
        before = len(store.audit(limit=1000))
    run(*(part.replace("FOLDER", str(tmp_path)) for part in command))
    with Store.open(db) as store:
        new = store.audit(limit=1000)[before:]
    lines = [one for one in new if one.action == action]
    assert len(lines) == 1
    assert subject in (None, lines[0].subject)
    assert lines[0].author == "mh"
    assert lines[0].details["login"] == login_name()
    assert not any("canary" in f"{one.subject} {one.reason} {one.details}" for one in new)


@pytest.mark.parametrize(
    "words",
    [
        ("user", "sessions", "\udcff"),
        ("worklist", "--search", "\udcff"),
        ("worklist", "--department", "\udcff"),
        ("person", "list", "--db", "x" * 303),
        ("db", "check", "--seal", "9" * 5000 + "-" + "0" * 64),
    ],
)
def test_whatever_is_typed_gets_a_sentence(run: Run, person: int, words: tuple[str, ...]) -> None:
    assert run(*words, code=2).startswith("earshift: ")
