"""Export: tables that read back as they were, BIDS without identities, whole files or none."""

import csv
import json
import os
import stat
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import earshift as es
from earshift.engine.audiogram import Audiogram
from earshift.formats import EXPORTS, export, read_references, tables
from earshift.records import (
    Calibration,
    Device,
    ExamBundle,
    ExamRecord,
    Note,
    Person,
    ResultRecord,
    TrialRecord,
    Visit,
    VisitBundle,
)
from support.helpers import MILD, run_exam

AT = datetime(2025, 7, 1, 22, 30, 0, 123456, tzinfo=UTC)  # in Berlin the next day
ANN = Person(1, "=7", "-Ann 'Ö", date(1960, 7, 2), "female", AT)
LEFT = Audiogram(
    {125: 10, 500: -5, 1000: 10, 2000: 15, 3000: 17.5, 4000: 25}, 6.0, 2.5, {8000: 90, 12500: 80}
)
RIGHT = Audiogram({500: 0, 1000: 99, 4000: 120})
SECRETS = ("Ann", "=7", "1960", "Dr Who", "slipped", "secret.csv", "shy")


def trial(number: int, exam: int, tone: es.Tone, heard: bool, **more: Any) -> TrialRecord:
    at = AT + timedelta(seconds=3 * number)
    level = tone.level_db_hl
    record = TrialRecord(
        *(100 * exam + number, exam, number, "tone", "right", tone.frequency_hz),
        *(level, level, heard, at, "Dr Who", 812.5),
    )
    return replace(record, **more)


def results(exam_id: int, shown: dict[str, Any]) -> tuple[ResultRecord, ...]:
    at = AT + timedelta(minutes=9)
    return (ResultRecord(9, exam_id, at, "Dr Who", shown, {"seed": 1}, "0.4.0", "ab" * 32),)


@pytest.fixture(scope="session")
def visits(short_exam: es.Exam) -> list[VisitBundle]:
    """An import, a visit with an exam and a screen, a simulated one, and an erased person's."""
    imported = Visit(1, 1, datetime(2026, 1, 1, tzinfo=UTC), "Europe/Berlin", "imported", "Dr Who")
    before = datetime(2020, 1, 31, 11, tzinfo=UTC)
    old = [
        ExamRecord(
            *(k, 1, ear, "audiogram", "done", audiogram.to_dict(), "0.4.0"),
            measured_at=before,
            source="secret.csv, CSV",
        )
        for k, ear, audiogram in ((1, "left", LEFT), (2, "right", RIGHT))
    ]
    full = short_exam.to_dict()
    exam = ExamRecord(3, 2, "right", "exam", "done", full["design"], "0.4.0")
    screen = es.Screen(LEFT, rule="osha-sts", domain="audiometer", seed=3)
    run_exam(screen, MILD, tones=4)
    screened = ExamRecord(4, 2, "left", "screen", "done", {}, "0.4.0", reference_exam_id=1)
    shown = {
        "verdict": json.loads(json.dumps(screen.verdict().to_dict())),
        "words": str(screen.verdict()),
        "rule": {"name": "osha-sts"},
        "thresholds": [asdict(t) for t in screen.thresholds()],
        "reference_thresholds": [],
        "tones": 4,
    }
    told = list(enumerate(short_exam.trials, start=1))
    trials = [trial(n, 3, t.tone, t.heard) for n, t in told]
    trials[3] = replace(
        trials[3], voided_at=AT, voided_by="Dr Who", void_reason='+slipped, "shy"\nman'
    )
    silent = {"kind": "catch", "asked_db_hl": None, "played_db_hl": None, "reaction_ms": None}
    trials.append(trial(len(told) + 1, 3, es.Tone(1000, 0), False, **silent))
    thresholds = [asdict(t) for t in short_exam.thresholds()]
    thresholds[0] |= {"censored": "below", "level_db_hl": -10.0}
    thresholds[-1] |= {"censored": "above", "level_db_hl": 100.0}
    device = Device(1, "Audiometer A", "insert", "X1", "S/N 7")
    calibration = Calibration(1, 1, date(2025, 1, 2), date(2026, 1, 2), "Lab", "HA-2")
    second = VisitBundle(
        ANN,
        Visit(2, 1, AT, "Europe/Berlin", "supervised", "Dr Who", 1),
        (
            ExamBundle(exam, tuple(trials), results(3, {"thresholds": thresholds, "tones": 20})),
            ExamBundle(screened, (), results(4, shown), old[0]),
        ),
        device,
        calibration,
        (Note(1, 1, AT, "Dr Who", "shy"),),
    )
    nobody = VisitBundle(
        Person(2, created_at=AT),
        Visit(3, 2, AT, "UTC", "simulated", "Dr Who"),
        (
            ExamBundle(replace(screened, id=5, visit_id=3, state="open")),
            ExamBundle(
                replace(screened, id=6, visit_id=3), (), results(6, shown), replace(old[0], id=90)
            ),
        ),
    )
    erased = VisitBundle(
        Person(3, erased_at=AT),
        Visit(4, 3, AT, "America/New_York", "self", "Dr Who"),
        (ExamBundle(replace(exam, id=7, visit_id=4, state="open"), (trials[0],)),),
    )
    return [VisitBundle(ANN, imported, tuple(map(ExamBundle, old))), second, nobody, erased]


def texts(folder: Path) -> str:
    files = [folder] if folder.is_file() else [p for p in folder.rglob("*") if p.is_file()]
    return "\n".join(p.read_text() for p in files)


def expected(visits: list[VisitBundle], table: str, identity: bool) -> list[dict[str, Any]]:
    """The rows as a reader should get them: every column, missing ones as None."""
    columns = {**tables.TABLES[table], **(tables.IDENTITY[table] if identity else {})}
    return [
        {name: None if row.get(name) == "" else row.get(name) for name in columns}
        for visit in visits
        for name, row in tables.rows(visit)
        if name == table
    ]


# --- Tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("identity", [False, True])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_read_back_as_they_were(
    tmp_path: Path, visits: list[VisitBundle], kind: str, identity: bool
) -> None:
    assert export(iter(visits), kind, tmp_path / "out", identity=identity) == 4
    assert {p.name for p in (tmp_path / "out").iterdir()} == {f"{t}.{kind}" for t in tables.TABLES}
    for table in tables.TABLES:
        rows = list(tables.read(tmp_path / "out" / f"{table}.{kind}"))
        assert rows == expected(visits, table, identity)
        assert rows
    assert len(list(tables.read(tmp_path / "out" / f"tones.{kind}"))) == 22


def test_what_a_tone_and_a_verdict_say(tmp_path: Path, visits: list[VisitBundle]) -> None:
    export(visits, "csv", tmp_path / "out")
    tones = list(tables.read(tmp_path / "out" / "tones.csv"))
    assert [row["voided"] for row in tones[:5]] == [False, False, False, True, False]
    assert tones[20]["kind"] == "catch"
    assert tones[20]["played_db_hl"] is None
    exam, *screens = tables.read(tmp_path / "out" / "verdicts.csv")
    assert (exam["decision"], exam["tones"], exam["age_years"]) == (None, 20, 65)
    verdict = visits[1].exams[1].results[0].shown["verdict"]
    assert screens[0]["p_changed"] == verdict["p_changed"]
    assert json.loads(screens[0]["shifts_json"]) == verdict["shifts"]
    assert screens[0]["rule"] == "osha-sts"


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_tidy_export_has_a_row_for_each_frequency_and_no_json(
    tmp_path: Path, visits: list[VisitBundle], kind: str
) -> None:
    export(visits, kind, tmp_path / "out", tidy=True)
    assert {p.stem for p in (tmp_path / "out").iterdir()} == {*tables.TABLES, "estimates"}
    rows = list(tables.read(tmp_path / "out" / f"estimates.{kind}"))
    result = visits[1].exams[1].results[0]
    exam = visits[1].exams[1].exam.id
    shifts = [
        row
        for row in rows
        if (row["exam"], row["result"], row["quantity"]) == (exam, result.id, "shift")
    ]
    shown = result.shown["verdict"]["shifts"]
    assert [(r["frequency_hz"], r["value"], r["low"]) for r in shifts] == [
        (one["frequency_hz"], one["shift_db"], one["low_db"]) for one in shown
    ]
    assert {row["quantity"] for row in rows} >= {"shift", "threshold"}
    assert {row["unit"] for row in rows if row["quantity"] == "shift"} == {"dB"}
    for table in (*tables.TABLES, "estimates"):
        for row in tables.read(tmp_path / "out" / f"{table}.{kind}"):
            assert not any(name.endswith("_json") for name in row)
            assert not any(str(value).startswith(("[", "{")) for value in row.values())


def test_only_tables_are_tidy(tmp_path: Path, visits: list[VisitBundle]) -> None:
    with pytest.raises(ValueError, match="csv or parquet"):
        export(visits, "fhir", tmp_path / "out.json", tidy=True)


def test_a_screens_estimates_are_no_thresholds(tmp_path: Path, visits: list[VisitBundle]) -> None:
    export(visits, "csv", tmp_path / "out")
    rows = list(tables.read(tmp_path / "out" / "thresholds.csv"))
    assert {(row["exam"], row["exam_kind"]) for row in rows} == {
        (1, "audiogram"),
        (2, "audiogram"),
        (3, "exam"),
    }


def test_the_table_of_thresholds_can_be_imported(tmp_path: Path, visits: list[VisitBundle]) -> None:
    export(visits[:1], "csv", tmp_path / "out", identity=True)
    known = {"sentinels": {"99": "threshold", "120": "threshold"}}
    found = read_references(tmp_path / "out" / "thresholds.csv", **known)
    assert found.rejected == ()
    assert {item.ear: item.audiogram for item in found.accepted} == {
        "left": LEFT.to_dict(),
        "right": RIGHT.to_dict(),
    }
    item = found.accepted[0]
    assert (item.code, item.name, item.birth_date, item.sex) == (
        *("=7", "-Ann 'Ö", date(1960, 7, 2), "female"),
    )
    assert item.measured_at == datetime(2020, 1, 31, 11, tzinfo=UTC)


def test_formulas_are_defused_and_numbers_are_not(
    tmp_path: Path, visits: list[VisitBundle]
) -> None:
    export(visits, "csv", tmp_path / "out", identity=True)
    for table, columns in tables.TABLES.items():
        kinds = {**columns, **tables.IDENTITY[table]}
        with (tmp_path / "out" / f"{table}.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                for name, cell in row.items():
                    if kinds[name] is str:
                        assert not cell.startswith(tuple("=+-@\t\r"))
                    else:
                        assert not cell.startswith("'")
    text = texts(tmp_path / "out")
    assert "'=7" in text
    assert "'-Ann" in text
    assert ",-5.0," in text


@given(st.dictionaries(st.sampled_from(["name", "code"]), st.text(st.characters(codec="utf-8"))))
def test_any_text_survives_a_table(
    tmp_path_factory: pytest.TempPathFactory, visits: list[VisitBundle], who: dict[str, str]
) -> None:
    visit = replace(visits[0], person=replace(ANN, **who))
    folder = tmp_path_factory.mktemp("text", numbered=True) / "out"
    export([visit], "csv", folder, identity=True)
    assert list(tables.read(folder / "thresholds.csv")) == expected([visit], "thresholds", True)


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must be one of tones\.csv"):
        list(tables.read(tmp_path / "other.csv"))
    path = tmp_path / "tones.csv"
    for damaged in ("bananas\n1\n", "heard\nmaybe\n", "heard,voided\ntrue\n", "trial\n1,2\n"):
        path.write_text(damaged)
        with pytest.raises(ValueError, match="row 2 of"):
            list(tables.read(path))


@pytest.mark.parametrize(
    ("born", "years"), [(date(1960, 7, 2), 65), (date(1960, 7, 3), 64), (date(1900, 1, 1), 90)]
)
def test_ages_are_of_the_local_date(visits: list[VisitBundle], born: date, years: int) -> None:
    visit = replace(visits[1], person=replace(ANN, birth_date=born))
    assert tables.age_at(visit) == years


def test_parquet_without_polars_says_what_to_install(
    tmp_path: Path, visits: list[VisitBundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ValueError, match=r"pip install 'earshift\[study\]'"):
        export(visits, "parquet", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    assert export(visits, "csv", tmp_path / "out") == 4


# --- Identity -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "fhir", "bids"])
def test_without_identity_nothing_names_anybody(
    tmp_path: Path, visits: list[VisitBundle], kind: str
) -> None:
    export(visits, kind, tmp_path / "out", identity=False)
    text = texts(tmp_path / "out")
    assert [secret for secret in SECRETS if secret in text] == []


@pytest.mark.parametrize(
    ("kind", "named"), [("csv", False), ("fhir", True), ("bids", False), ("parquet", False)]
)
def test_only_fhir_names_people_by_default(
    tmp_path: Path, visits: list[VisitBundle], kind: str, named: bool
) -> None:
    export(visits, kind, tmp_path / "out")
    files = [p for p in [tmp_path / "out", *(tmp_path / "out").rglob("*")] if p.is_file()]
    assert any(b"Ann" in p.read_bytes() for p in files) is named


def test_bids_refuses_identities(tmp_path: Path, visits: list[VisitBundle]) -> None:
    with pytest.raises(ValueError, match="never contains identities"):
        export(visits, "bids", tmp_path / "out", identity=True)


# --- BIDS -----------------------------------------------------------------------------------------


def test_a_bids_folder(tmp_path: Path, visits: list[VisitBundle]) -> None:
    assert export(visits, "bids", tmp_path / "out") == 4
    out = tmp_path / "out"
    files = sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file())
    assert files == [
        "README",
        "dataset_description.json",
        "participants.json",
        "participants.tsv",
        "sub-000001/ses-000002/beh/sub-000001_ses-000002_task-earshift_beh.json",
        "sub-000001/ses-000002/beh/sub-000001_ses-000002_task-earshift_beh.tsv",
        "sub-000003/ses-000004/beh/sub-000003_ses-000004_task-earshift_beh.json",
        "sub-000003/ses-000004/beh/sub-000003_ses-000004_task-earshift_beh.tsv",
    ]
    people = (out / "participants.tsv").read_text().splitlines()
    assert people == ["participant_id\tage\tsex", "sub-000001\t65\tF", "sub-000003\tn/a\tn/a"]
    with (out / files[5]).open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    sidecar = json.loads((out / files[4]).read_text())
    assert set(rows[0]) <= set(sidecar)
    assert (rows[0]["onset"], rows[1]["onset"]) == ("0.0", "3.0")
    assert rows[0]["response_time"] == "0.8125"
    assert rows[20]["level_db_hl"] == "n/a"
    assert [row["voided"] for row in rows[2:5]] == ["0", "1", "0"]
    told = visits[1].exams[0].trials
    assert [float(row["frequency_hz"]) for row in rows] == [t.frequency_hz for t in told]
    assert [row["heard"] for row in rows] == [str(int(t.heard)) for t in told]
    verdict = visits[1].exams[1].results[0].shown["verdict"]
    assert sidecar["Exams"][1]["Verdict"] == verdict
    assert json.loads((out / "dataset_description.json").read_text())["BIDSVersion"]
    assert "2025" not in texts(out)


# --- Whole or not at all --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EXPORTS)
def test_a_failure_leaves_nothing(tmp_path: Path, visits: list[VisitBundle], kind: str) -> None:
    def breaks() -> Iterator[VisitBundle]:
        yield from visits
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        export(breaks(), kind, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", EXPORTS)
def test_nothing_is_overwritten(tmp_path: Path, visits: list[VisitBundle], kind: str) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(ValueError, match="already exists"):
        export(visits, kind, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"
    with pytest.raises(ValueError, match="there is no folder"):
        export(visits, kind, tmp_path / "nowhere" / "out")


@pytest.mark.parametrize("kind", EXPORTS)
def test_only_the_owner_may_read_an_export(
    tmp_path: Path, visits: list[VisitBundle], kind: str
) -> None:
    export(visits, kind, tmp_path / "out")
    assert stat.S_IMODE(os.stat(tmp_path / "out").st_mode) & 0o077 == 0


@pytest.mark.parametrize("kind", EXPORTS)
def test_no_visits_give_an_empty_export(tmp_path: Path, kind: str) -> None:
    assert export([], kind, tmp_path / "out") == 0
    assert (tmp_path / "out").exists()
    if kind in ("csv", "parquet"):
        assert list(tables.read(tmp_path / "out" / f"tones.{kind}")) == []


def test_progress_counts_visits(tmp_path: Path, visits: list[VisitBundle]) -> None:
    seen: list[int] = []
    export(visits, "csv", tmp_path / "out", progress=seen.append)
    assert seen == [1, 2, 3, 4]


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be one of csv, parquet, fhir, bids"):
        export([], "xml", tmp_path / "out")


def test_an_interrupted_export_leaves_no_result(tmp_path: Path) -> None:
    """Killed in the middle: the name is not taken, so nobody mistakes a part for the whole."""
    script = (
        "import os, sys; from earshift.formats import export\n"
        "def visits():\n    os.kill(os.getpid(), 9); yield\n"
        "export(visits(), 'csv', sys.argv[1])"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "out")], check=False)
    assert done.returncode == -9
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet", "fhir"])
def test_memory_does_not_grow_with_the_visits(
    tmp_path: Path, visits: list[VisitBundle], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "CHUNK", 500)

    def many(count: int) -> Iterator[VisitBundle]:
        for number in range(count):
            exam = visits[1].exams[0]
            exam = replace(exam, exam=replace(exam.exam, id=10 + number))
            yield replace(visits[1], visit=replace(visits[1].visit, id=10 + number), exams=(exam,))

    export(many(10), kind, tmp_path / "first")  # loads what has to be loaded
    tracemalloc.start()
    export(many(500), kind, tmp_path / "out")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000  # all rows would take several times as much
