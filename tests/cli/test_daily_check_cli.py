"""The guided daily check at the keyboard."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_clinic_cli import SETTINGS, Run, db, run

__all__ = ["db", "run"]
ASKED = re.compile(r"ear, (\d+) Hz at (-?\d+) dB HL: heard\? $")


@pytest.fixture
def booth(run: Run) -> int:
    run("device", "add", "--name", "booth 1", "--transducer", "supra-aural")
    run(
        *("device", "calibrated", 1, "--done", "2026-01-05", "--due", "2027-12-31"),
        *("--laboratory", "Lab", "--coupler", "IEC 60318-3"),
    )
    return 1


def check(db: Path, threshold: float, *more: str, quit_after: int | None = None) -> tuple[int, str]:
    """Check device 1 as somebody with this threshold everywhere. Gives the exit code and output."""
    arguments = [
        "device",
        "check",
        "1",
        "--listener",
        "mh",
        "--db",
        str(db),
        "--author",
        "t",
        *more,
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "earshift.cli", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **SETTINGS},
    )
    assert process.stdin is not None
    assert process.stderr is not None
    said, answered = "", 0
    while char := process.stderr.read(1).decode():
        said += char
        if not (asked := ASKED.search(said)):
            continue
        if answered == quit_after:
            process.stdin.write(b"quit\n")
        else:
            process.stdin.write(b"y\n" if float(asked[2]) >= threshold else b"n\n")
        process.stdin.flush()
        said += "\n"
        answered += 1
    assert process.stdout is not None
    out = process.stdout.read().decode()
    for pipe in (process.stdin, process.stdout, process.stderr):
        pipe.close()
    return process.wait(60), said + out


def test_a_stranger_is_measured_and_then_checked(run: Run, db: Path, booth: int) -> None:
    code, said = check(db, 20)
    assert code == 0
    assert "It is now known what is usual for mh" in said
    assert json.loads(run("device", "show", booth, "--json"))["daily_check"] == "missing"
    code, said = check(db, 25)
    assert code == 0
    assert "right ear, dB from the usual threshold: 1000 Hz +5" in said
    assert "Device 1 was checked today" in said
    shown = run("device", "show", booth)
    assert "+5" in shown
    assert "passed" in shown
    assert "In order" in shown
    code, said = check(db, 30)
    assert "has to be calibrated before it is used again" in said
    assert "FAILED" in run("device", "show", booth)
    assert "Needs attention" in run("device", "show", booth)
    # A failed device does not say what is usual: that takes a laboratory first.
    code, said = check(db, 30, "--anew")
    assert code == 2
    assert "device calibrated 1" in said


def test_leaving_records_nothing(run: Run, db: Path, booth: int) -> None:
    code, said = check(db, 20, quit_after=4)
    assert (code, "Nothing was recorded." in said) == (3, True)
    assert json.loads(run("device", "show", booth, "--json"))["checks"] == []


def test_a_stored_audiogram_says_what_is_usual(
    run: Run, db: Path, booth: int, tmp_path: Path
) -> None:
    rows = [
        f"mh,2026-01-05,{ear},{hertz},15\n"
        for ear in ("right", "left")
        for hertz in (500, 1000, 2000, 3000, 4000, 6000)
    ]
    file = tmp_path / "mh.csv"
    file.write_text("person,date,ear,frequency_hz,threshold_db_hl\n" + "".join(rows))
    run("import", file)
    code, said = check(db, 15, "--person", "mh")
    assert code == 0
    assert "Device 1 was checked today" in said


def test_a_check_done_elsewhere_is_still_recorded(run: Run, booth: int) -> None:
    typed = ("--listener", "mh", "--right", "1000=0", "--left", "1000=0")
    assert "was checked today" in run("device", "check", booth, *typed)
    assert "belong to a guided check" in run("device", "check", booth, *typed, "--anew", code=2)
    half = ("--listener", "mh", "--right", "1000=0")
    assert "at least one frequency of each ear" in run("device", "check", booth, *half, code=2)
    twice = (*typed, "--right", "1000.0=50")
    assert "a frequency was given twice" in run("device", "check", booth, *twice, code=2)
