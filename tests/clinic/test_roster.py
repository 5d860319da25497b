"""Employees from a roster, what an import would refuse, and the programme's numbers."""

import csv
import io
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from test_worklist import START, both, full, on, screen
from typer.testing import CliRunner

from earshift.cli import app
from earshift.clinic.programme import programme
from earshift.clinic.roster import apply_roster, plan_roster
from earshift.engine.refusal import Refusal
from earshift.formats import read_references
from earshift.formats.roster import read_roster
from earshift.store import Store

ROSTER = (
    "code,name,birth_date,sex,department,job,hired_on\n"
    "E1,Ann Weber,1980-02-03,f,Press shop,operator,2019-04-01\n"
    "E2,José Ruiz,1975-12-10,m,Foundry,caster,2018-01-15\n"
)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "clinic.db"


@pytest.fixture
def command(db: Path) -> Callable[..., Any]:
    def run(*arguments: object, code: int = 0, typed: str | None = None) -> str:
        environment = {"EARSHIFT_DB": str(db), "EARSHIFT_AUTHOR": "mh", "TZ": "UTC"}
        done = CliRunner().invoke(
            app, [str(one) for one in arguments], input=typed, env=environment
        )
        assert done.exit_code == code, done.output
        return done.output

    return run


def written(tmp_path: Path, text: str, name: str = "roster.csv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_roster_is_added_and_brought_up_to_date(tmp_path: Path, command: Any, db: Path) -> None:
    file = written(tmp_path, ROSTER)
    assert "2 new, 0 changed" in command("roster", "import", file, "--dry-run")
    assert not db.exists()  # looking makes no database
    assert f"Nobody found in {db}" in command("person", "list")
    command("roster", "import", file, typed="n\n", code=3)
    with Store(db) as store:
        assert store.people() == []
    command("roster", "import", file, typed="y\n")
    said = command("roster", "import", file, "--dry-run", "--json")
    again = json.loads(said[: said.rindex("}") + 1])
    assert (again["new"], again["changed"], again["same"]) == ([], [], 2)
    moved = written(tmp_path, "code,department\nE1,Foundry\n", "moved.csv")
    said = command("roster", "import", moved, "--dry-run", "--mark-leavers", "--json")
    (leaver,) = json.loads(said[: said.rindex("}") + 1])["leavers"]
    assert leaver == {"person": 2, "code": "E2", "name": "José Ruiz"}
    shown = command("roster", "import", moved, "--mark-leavers", "--left-on", "2026-01-31", "--yes")
    assert "1 person is stored and not in the file: to be marked as having left" in shown
    assert "person 2 (E2, José Ruiz)" in shown
    with Store(db) as store:
        ann, jose = store.people()
        assert (ann.department, ann.job, ann.left_on) == ("Foundry", "operator", None)
        assert jose.left_on == date(2026, 1, 31)
    assert "left: 2026-01-31" in command("person", "show", "E2")
    # Who is in the next roster is back.
    command("roster", "import", file, "--yes")
    with Store(db) as store:
        assert [one.left_on for one in store.people()] == [None, None]


def test_rows_that_are_refused_stop_it_or_are_skipped(
    tmp_path: Path, command: Any, db: Path
) -> None:
    command("roster", "import", written(tmp_path, ROSTER), "--yes")
    bad = written(
        tmp_path,
        "code,name,birth_date,hired_on\n"
        "E1,Ann Weber,1999-09-09,\n"  # somebody else
        "E3,Mo,31.12.1990,\n"
        "E4,Bo,,2026-13-01\n"
        ",No Code,,\n"
        "E5,Twice,,\nE5,Twice,,\n"
        "E6,Zed,1990-01-01,2020-01-01\n",
    )
    said = command("roster", "import", bad, "--yes", code=2)
    assert "5 rejected" in said
    with Store(db) as store:
        assert len(store.people()) == 2
    command("roster", "import", bad, "--yes", "--skip-rejected")
    with Store(db) as store:
        assert [one.code for one in store.people()] == ["E1", "E2", "E5", "E6"]


def test_columns_are_mapped_and_the_day_may_come_first(tmp_path: Path) -> None:
    text = "Personalnr;Geboren;Abteilung\n7;31.12.1990;Gießerei\n"
    file = written(tmp_path, text)
    names = {"Personalnr": "code", "Geboren": "birth_date", "Abteilung": "department"}
    (one,) = read_roster(file, columns=names, day_first=True).employees
    assert (one.code, one.known["birth_date"]) == ("7", date(1990, 12, 31))
    (refused,) = read_roster(file, columns=names).rejected
    assert "begins with the day" in refused.reason
    wrong = written(tmp_path, text.replace("31.12.", "31.13."))
    (refused,) = read_roster(wrong, columns=names, day_first=True).rejected
    assert refused.reason == "'31.13.1990' is not a date such as 31.12.2026"
    with pytest.raises(Refusal, match="no column for the code"):
        read_roster(file)
    with pytest.raises(Refusal, match="must be one of"):
        read_roster(file, columns={"Geboren": "born"})
    with pytest.raises(Refusal, match="no column of this name"):
        read_roster(file, columns={"Nachname": "name"})


def test_possible_duplicates_are_named_and_merged(tmp_path: Path, command: Any, db: Path) -> None:
    command("roster", "import", written(tmp_path, ROSTER), "--yes")
    twice = written(tmp_path, "code,name,birth_date\nE9,ann  weber,1980-02-03\n")
    assert "Perhaps one person: E1 and E9" in command("roster", "import", twice, "--yes")
    command("person", "merge", "E9", "--into", "E1", "--reason", "hired twice", typed="n\n", code=3)
    command("person", "merge", "E9", "--into", "E1", "--reason", "hired twice", "--yes")
    assert "person 1 (E1" in command("person", "show", "E9")
    with Store(db) as store:
        plan = plan_roster(store, read_roster(twice))
        assert (plan.duplicates, plan.new) == ((), ())
    command("person", "separate", "3", "--reason", "brothers")
    assert "person 3 (E9" in command("person", "show", "E9")


def test_all_of_a_roster_or_nothing(tmp_path: Path, db: Path) -> None:
    with Store(db) as store:
        plan = plan_roster(store, read_roster(written(tmp_path, ROSTER)))
        store.add_person(author="mh", code="E2")  # somebody else was quicker
        with pytest.raises(Refusal, match="this code already belongs"):
            apply_roster(store, plan, author="mh", left_on=None, skip_rejected=False)
        assert [one.code for one in store.people()] == ["E2"]


# Audiograms of European files, and a dry run that finds everything -------------------------------


def test_decimal_commas_and_days_first_are_never_guessed(tmp_path: Path) -> None:
    text = "person;date;left_500;left_1000\nA1;31.12.2024;10,0;5\n"
    file = written(tmp_path, text)
    (refused,) = read_references(file, timezone="UTC", day_first=True).rejected
    assert "decimal comma" in refused.reason
    assert "no response" not in refused.reason
    (refused,) = read_references(file, timezone="UTC", decimal_comma=True).rejected
    assert "begins with the day" in refused.reason
    (one,) = read_references(file, timezone="UTC", decimal_comma=True, day_first=True).accepted
    assert one.audiogram["thresholds_db_hl"] == [[500.0, 10.0], [1000.0, 5.0]]
    assert one.measured_at is not None
    assert one.measured_at.date() == date(2024, 12, 31)


def test_options_that_would_mend_rows_are_named_once(tmp_path: Path, command: Any) -> None:
    text = (
        "code,date,left_500,left_1000\nA1,2020-01-05,5,5\nA2,2020-01-05,5,5\n"
        'A3,2020-01-05,5,"10,5"\nA4,31.12.2020,5,5\nA5,2020-01-05,5,999\n'
    )
    said = command("import", written(tmp_path, text, "audiograms.csv"), "--dry-run", code=2)
    assert (
        said.count("--timezone") == said.count("--day-first") == said.count("--decimal-comma") == 1
    )
    assert "2 rows have a time without a time zone" in said
    assert "999 dB HL is not possible" in said


def test_a_dry_run_finds_what_the_store_would_refuse(
    tmp_path: Path, command: Any, db: Path
) -> None:
    command("person", "add", "--code", "A1", "--name", "Ann", "--born", "1980-01-01")
    file = written(
        tmp_path,
        "person,birth_date,date,left_500\nA1,1999-01-01,2024-01-01,10\nB2,,2024-01-01,10\n",
    )
    tried = json.loads(command("import", file, "--timezone", "UTC", "--dry-run", "--json", code=2)
                       .split("earshift:")[0])  # fmt: skip
    assert [one["row"] for one in tried["rejected"]] == [2]
    assert "another birth date" in tried["rejected"][0]["reason"]
    command("import", file, "--timezone", "UTC", code=2)
    command("import", file, "--timezone", "UTC", "--skip-rejected")
    with Store(db) as store:
        assert [(p.code, len(store.exams(p.id))) for p in store.people()] == [("A1", 0), ("B2", 1)]


# The command line's list and settings -------------------------------------------------------------


def test_the_worklist_as_table_json_and_csv(command: Any, db: Path) -> None:
    with Store(db) as store:
        new = [{"code": f"C{n}", "name": "=Ann", "hired_on": START} for n in range(60)]
        store.change_people(new, {}, author="mh", reason="roster")
    shown = command("worklist", "--on", "2021-01-01")
    assert "OVERDUE" in shown
    assert "60 lines, 60 of them overdue" in shown
    assert "and 10 more: earshift worklist --all" in shown
    assert "more:" not in command("worklist", "--all")
    data = json.loads(command("worklist", "--json", "--why", "first"))
    assert data["total"] == len(data["items"]) == 60
    rows = list(csv.DictReader(io.StringIO(command("worklist", "--csv", "--search", "c59"))))
    assert [(row["code"], row["name"]) for row in rows] == [("C59", "'=Ann")]
    assert "Nothing to do" in command("worklist", "--search", "nobody")
    command("worklist", "--csv", "--json", code=2)
    command("worklist", "--on", "tomorrow", code=2)
    command("worklist", "--why", "boredom", code=2)


def test_settings_and_verdicts_on_the_command_line(command: Any, db: Path) -> None:
    assert "29 CFR 1904.10(b)(4)" in command("site", "show")
    command("site", "set", "retest_days", "21", "--reason", "our physician")
    assert "retest_days = 21 days" in command("site", "show")
    command("site", "set", "retest_days", "many", "--reason", "x", code=2)
    with Store(db) as store:
        person = store.add_person(author="mh", code="A1", hired_on=START)
        both(store, person, 0)
        exam = screen(store, person, 1, "left", "changed")
    assert "full audiogram" in " ".join(command("worklist", "--on", "2020-01-08").split())
    command("verdict", "close", exam, "--reason", "seen by Dr K")
    assert "Nothing to do" in command("worklist", "--on", "2020-01-08")
    command("verdict", "close", exam, "--reason", "again", code=2)
    command("verdict", "reopen", exam, "--reason", "mistaken")
    command("verdict", "close", 99, "--reason", "x", code=2)


# The programme ------------------------------------------------------------------------------------


def test_the_programme_counts_people_and_not_ears(command: Any, db: Path) -> None:
    with Store(db) as store:
        people = [
            store.add_person(author="mh", code=f"P{n}", department=group, job="x", hired_on=START)
            for n, group in enumerate(["Press", "Press", "Press", "Foundry", None])
        ]
        for person in people[:4]:
            both(store, person, 0)
        screen(store, people[0], 100, "left", "changed")
        full(store, people[0], 105, "left", 40.0)
        screen(store, people[1], 100, "left", "changed")
        full(store, people[1], 105, "left", 10.0)
        for ear in ("left", "right"):
            screen(store, people[2], 100, ear, "changed")
        found = programme(store, on(50), on(200))
        foundry, press, nobody = found.groups
        assert (press.name, press.people, press.tested, press.audiograms) == ("Press", 3, 3, 2)
        assert (press.confirmed, press.not_confirmed, press.waiting) == (1, 1, 1)
        assert (foundry.tested, foundry.shares["confirmed_share"], foundry.due) == (0, None, 0)
        assert (nobody.name, nobody.due, nobody.overdue) == (None, 1, 1)
        share = found.everybody.shares["confirmed_share"]
        assert share is not None
        assert share[0] == pytest.approx(1 / 3)
        assert share[1] < share[0] < share[2]
        with pytest.raises(Refusal, match="a period ends"):
            programme(store, on(2), on(1))
        with pytest.raises(Refusal, match="department or job"):
            programme(store, on(1), on(2), "height")
    period = ("--from", "2020-02-25", "--to", "2020-07-24")
    rows = list(csv.DictReader(io.StringIO(command("programme", *period, "--csv"))))
    assert [row["department"] for row in rows] == ["Foundry", "Press", "(none)", "everybody"]
    assert rows[1]["confirmed_%"] == rows[1]["waiting_%"] == "33.3"
    assert float(rows[1]["waiting_low_%"]) < 33.3 < float(rows[1]["waiting_high_%"])
    shown = command("programme", *period)
    assert "1: 33.3 % (6.1" in shown
    assert json.loads(command("programme", *period, "--json"))["everybody"]["confirmed"] == 1
    assert "everybody" in command("programme", *period, "--by", "job")
    command("programme", "--from", "2020-02-01", "--to", "2020-01-01", code=2)
