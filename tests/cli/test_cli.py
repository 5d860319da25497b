"""The command line: what people and programs read, and what happens when something is wrong."""

import csv
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

import earshift
from earshift.cli import app
from earshift.engine.protocol import PROTOCOLS
from earshift.formats.niosh import COLUMNS
from earshift.report.words import headline
from earshift.simulate.classes import FREQUENCIES_HZ

EARSHIFT = Path(sys.executable).with_name("earshift")


def run(*arguments: object) -> Any:
    """A command in this process, on a wide terminal; `stdout` and `stderr` apart."""
    return CliRunner().invoke(app, [str(part) for part in arguments], env={"COLUMNS": "200"})


def ok(*arguments: object) -> Any:
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    return done


def refused(*arguments: object) -> str:
    """The one line that says what is wrong; exit code 2, and no traceback."""
    done = run(*arguments)
    assert isinstance(done.exception, SystemExit), repr(done.exception)
    assert done.exit_code == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("earshift: ")]
    assert done.stderr.endswith(line + "\n")  # at most a progress bar before it
    return line


# Help ------------------------------------------------------------------------------------------


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


ALL = dict(commands(typer.main.get_command(app)))


def test_the_commands() -> None:
    assert {" ".join(path) for path in ALL} >= {
        "", "simulate", "demo", "study", "study paper", "study options", "study sensitivity",
        "study ears", "audiograms", "audiograms classes",
    }  # fmt: skip


@pytest.mark.parametrize("path", ALL, ids=lambda path: " ".join(path) or "earshift")
def test_every_command_explains_itself_and_its_options(path: tuple[str, ...]) -> None:
    done = ok(*path, "--help")
    text = " ".join(done.stdout.split())
    assert text.startswith(f"Usage: {' '.join(('earshift', *path))} ")
    command = ALL[path]
    assert command.help
    assert command.help.split(".")[0].split("\n")[0] in text
    for parameter in command.params:
        for spelling in parameter.opts:
            if spelling.startswith("--"):
                assert f"{spelling} " in text
        if not getattr(parameter, "hidden", False):
            assert parameter.help
            assert parameter.help in text
    for name in getattr(command, "commands", {}):
        assert f" {name} " in text


def test_no_command_at_all_shows_the_help() -> None:
    assert "Usage: earshift" in run().output
    assert "Usage: earshift study" in run("study").output


def test_the_version_from_the_installed_program() -> None:
    done = subprocess.run(
        [EARSHIFT, "--version"], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == f"earshift {earshift.__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["study", "paper", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from earshift.cli import app\n"
        f"try:\n    app({arguments!r})\n"
        "finally:\n"
        "    heavy = {'numpy', 'numba', 'scipy', 'matplotlib', 'polars', 'distributed', 'joblib'}\n"
        "    print('loaded:', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.splitlines()[-1] == "loaded: []"
    assert len(done.stdout.splitlines()) > 1


# simulate --------------------------------------------------------------------------------------

QUICK = ("simulate", "--first-tones", 20, "--protocol", "best")


def simulated(*options: object) -> dict[str, Any]:
    done = ok(*QUICK, *options, "--json")
    assert done.stderr == "" or "compiling" in done.stderr
    return json.loads(done.stdout)


def test_simulate_as_json_tells_every_tone_and_the_decision() -> None:
    data = simulated("--old", "normal", "--new", "moderate", "--seed", 3)
    assert data["protocol"] == "best"
    assert data["decision"] == "changed"
    assert data["tones_to_decision"] == len(data["tones"]) > 0
    for row in data["tones"]:
        assert set(row) == {"frequency_hz", "level_db_hl", "heard", "log_bf", "p_changed"}
        assert 500 <= row["frequency_hz"] <= 8000
        assert isinstance(row["heard"], bool)
        assert row["p_changed"] == pytest.approx(1 / (1 + math.exp(-row["log_bf"])))
    evidence = [row["log_bf"] for row in data["tones"]]
    assert evidence[-1] >= math.log(100)
    assert all(abs(x) < math.log(100) for x in evidence[:-1])


def test_simulate_is_what_the_library_gives() -> None:
    data = simulated("--old", "slight", "--new", "mild", "--seed", 8, "--max-tones", 6)
    before = earshift.Listener.of_class("slight", seed=(8, 1))
    after = earshift.Listener.of_class("mild", seed=(8, 2))
    first = earshift.Exam(seed=8, max_tones=20)
    while not first.done:
        tone = first.ask()
        first.tell(tone, before(tone))
    screen = earshift.Screen(first, "best", seed=8, max_tones=6)
    for row in data["tones"]:
        tone = screen.ask()
        screen.tell(tone, after(tone))
        assert row == {
            **screen.trials[-1].to_dict(), "log_bf": screen.log_bf, "p_changed": screen.p_changed
        }  # fmt: skip
    assert screen.done
    assert data["decision"] == screen.decision


def test_simulate_without_a_decision_says_so() -> None:
    data = simulated("--old", "mild", "--new", "mild", "--max-tones", 2)
    assert data["decision"] == "inconclusive"
    assert data["tones_to_decision"] is None
    assert len(data["tones"]) == 2


def test_the_seed_makes_the_simulation() -> None:
    options = ("--max-tones", 4)
    first = simulated(*options, "--seed", 1)
    assert simulated(*options, "--seed", 1) == first
    assert simulated(*options, "--seed", 2)["tones"] != first["tones"]
    assert simulated(*options)["tones"] != first["tones"]


@pytest.mark.parametrize("option", ["--spread", "--lapse", "--guess"])
def test_the_listener_is_the_one_asked_for(option: str) -> None:
    value = {"--spread": 15, "--lapse": 0.45, "--guess": 0.45}[option]
    usual = simulated("--max-tones", 5)
    assert simulated("--max-tones", 5, option, value)["tones"] != usual["tones"]


def test_simulate_for_people_is_the_same_in_a_table() -> None:
    options = ("--old", "slight", "--new", "moderate", "--seed", 4)
    data = simulated(*options)
    done = ok(*QUICK, *options)
    rows = [
        [cell.strip() for cell in line.strip("│ ").split("│")]
        for line in done.stdout.splitlines()
        if re.match(r"│ +\d", line)
    ]
    assert rows == [
        [
            str(number),
            f"{row['frequency_hz']:.0f} Hz",
            f"{row['level_db_hl']:.0f} dB HL",
            "heard" if row["heard"] else "-",
            f"{row['log_bf']:+.2f}",
            f"{row['p_changed']:.3f}",
        ]
        for number, row in enumerate(data["tones"], start=1)
    ]
    assert data["decision"] == "changed"
    assert headline("changed") in done.stdout
    assert "robability" in done.stdout
    assert "slight" in done.stdout
    assert "moderate" in done.stdout


def test_the_verdict_has_a_line_of_its_own() -> None:
    done = ok(*QUICK, "--max-tones", 1)
    assert headline("inconclusive") in done.stdout.splitlines()


def test_every_decision_has_its_words() -> None:
    decisions = ("changed", "unchanged", "inconclusive", "not determinable", "notch", "no notch")
    assert [headline(decision) for decision in decisions] == [
        "Changed", "Unchanged", "Inconclusive: retest", "Not determinable", "Notch", "No notch"
    ]  # fmt: skip
    assert headline("sideways") == "sideways (not known to this version)"


KNOWN = ", ".join(PROTOCOLS)
CLASSES = "normal, slight, mild, moderate, moderately-severe, severe, profound"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--old", "wild"], f"unknown hearing-loss class 'wild'; known: {CLASSES}"),
        (["--new", "wild"], f"unknown hearing-loss class 'wild'; known: {CLASSES}"),
        (["--protocol", "wild"], f"unknown protocol 'wild'; known: {KNOWN}"),
        (["--spread", "0"], "spread_db must be positive, got 0.0"),
        (["--spread", "-3"], "spread_db must be positive, got -3.0"),
        (["--spread", "nan"], "spread_db must be finite, got nan"),
        (["--lapse", "1.5"], "lapse rate must be a number from 0 to below 0.5, got 1.5"),
        (["--lapse", "-0.1"], "lapse rate must be a number from 0 to below 0.5, got -0.1"),
        (["--guess", "0.6"], "guess rate must be a number from 0 to 0.5, got 0.6"),
    ],
)
def test_simulate_refuses_what_makes_no_sense(options: list[str], says: str) -> None:
    assert refused("simulate", *options) == f"earshift: {says}"
    assert run("simulate", *options).stdout == ""


def test_simulate_names_the_rules_it_knows() -> None:
    line = refused("simulate", "--rule", "wild")
    assert line.startswith("earshift: unknown rule 'wild'; known: osha-sts, niosh-15, ")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["simulate", "--seed", "-1"], "--seed"),
        (["simulate", "--max-tones", "0"], "--max-tones"),
        (["simulate", "--spread", "wide"], "--spread"),
        (["study", "paper"], "--out"),
        (["study", "paper", "--out", "x", "--jobs", "0"], "--jobs"),
        (["study", "paper", "--out", "x", "--reps", "0"], "--reps"),
        (["audiograms", "classes", "--source", "niosh"], "files"),
        (["audiograms", "classes", "x.csv"], "--source"),
        (["nonsense"], "nonsense"),
    ],
)
def test_arguments_of_the_wrong_kind_are_named(arguments: list[str], names: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    error = done.stderr.splitlines()[-1]
    assert error.startswith("Error: ")
    assert names in error.replace("FILES", "files")


# demo ------------------------------------------------------------------------------------------


def test_the_demo_shows_two_verdicts_and_writes_its_picture(tmp_path: Path) -> None:
    out = tmp_path / "a" / "demo"
    done = ok("demo", "--out", out)
    picture = out / "audiograms.png"
    assert str(picture) in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    with Image.open(picture) as image:
        assert image.convert("RGB").getcolors(maxcolors=2) is None
    same, changed = done.stdout.split("Screen of ")[1:]
    assert same.startswith("an ear that did not change")
    assert headline("unchanged") in same
    assert changed.startswith("an ear that did")
    assert headline("changed") in changed


def test_the_demo_as_json(tmp_path: Path) -> None:
    done = ok("demo", "--out", tmp_path, "--json")
    data = json.loads(done.stdout)
    assert Path(data["picture"]) == tmp_path / "audiograms.png"
    assert Path(data["picture"]).is_file()
    decisions = {ear: screen["decision"] for ear, screen in data["screens"].items()}
    assert decisions == {"slight": "unchanged", "mild": "changed"}
    for screen in data["screens"].values():
        assert screen["tones"] == len(screen["rows"])
        assert screen["log_bf"] == screen["rows"][-1]["log_bf"]
        assert len(screen["shifts"]) == 7


def test_the_demo_names_a_folder_with_brackets(tmp_path: Path) -> None:
    out = tmp_path / "demo[red]"
    assert str(out / "audiograms.png") in ok("demo", "--out", out).stdout


def test_the_demo_says_when_it_cannot_write(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    line = refused("demo", "--out", file / "demo")
    assert str(file / "demo") in line
    assert "cannot write" in line
    assert file.read_text() == "in the way"


# study -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--classes", "normal,wild"], f"unknown hearing-loss class 'wild'; known: {CLASSES}"),
        (
            ["--strategies", "wild"],
            "unknown strategy 'wild'; known: differential, bald, uncertainty, random",
        ),
        (["--strategies", ","], "name at least one strategy"),
        (["--protocol", "wild"], f"unknown protocol 'wild'; known: {KNOWN}"),
        (["--spread", "0"], "spread must be positive, got 0.0"),
        (["--spread", "nan"], "spread must be positive, got nan"),
    ],
)
def test_a_study_refuses_what_makes_no_sense(options: list[str], says: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert refused("study", "paper", "--out", out, *options) == f"earshift: {says}"
    assert not out.exists()


def test_a_study_says_when_it_cannot_write(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    assert str(file) in refused("study", "paper", "--out", file, "--jobs", 1)


def test_a_study_prints_what_it_wrote(tmp_path: Path) -> None:
    options = ["--classes", "normal", "--strategies", "differential", "--reps", 1]
    options += ["--max-tones", 2, "--jobs", 1, "--out", tmp_path]
    done = ok("study", "paper", *options)
    assert str(tmp_path) in done.stdout
    assert "old \\ new" in done.stdout
    text = (tmp_path / "results.md").read_text()
    assert "earshift study paper --reps 1 --protocol best --strategies differential" in text
    assert "--max-tones 2 --spread 3 --seed 0 --classes normal" in text
    again = ok("study", "paper", *options, "--json")
    assert json.loads(again.stdout) == json.loads((tmp_path / "summary.json").read_text())


EARS = ["study", "ears", "--jobs", 1, "--reps", 1, "--protocols", "best"]


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (None, [], "No such file"),
        ("SEQN,500\n1,5\n", [], "lacks the columns 1000, 2000, 3000, 4000, 6000, 8000"),
        ("x\n", ["--half", "best"], "half must be one of tuning, held-back, got 'best'"),
        ("x\n", ["--protocols", "wild"], f"unknown protocol 'wild'; known: {KNOWN}"),
    ],
)
def test_a_study_of_ears_refuses_what_makes_no_sense(
    text: str | None, options: list[str], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "ears.csv"
    if text is not None:
        path.write_text(text)
    assert says in refused(*EARS, "--ears", path, "--out", tmp_path / "out", *options)


HEAD = "SEQN,500,1000,2000,3000,4000,6000,8000\n"


@pytest.mark.parametrize(
    "text",
    ["", HEAD + "1,5,5,5,,5,5,5\n", HEAD + "one,5,5,5,5,5,5,5\n", HEAD + "1,5,5,5,5,5,5,5,5,5\n"],
    ids=["empty", "gap", "text", "ragged"],
)
def test_a_study_of_ears_refuses_a_damaged_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "ears.csv"
    path.write_text(text)
    assert path.name in refused(*EARS, "--ears", path, "--out", tmp_path / "out")


def test_a_study_of_ears_names_a_class_without_ears(tmp_path: Path) -> None:
    path = tmp_path / "ears.csv"
    path.write_text(HEAD + "1,5,5,5,5,5,5,5\n")
    assert "slight" in refused(*EARS, "--ears", path, "--out", tmp_path / "out")


def test_a_study_of_no_classes_is_refused(tmp_path: Path) -> None:
    assert "class" in refused("study", "paper", "--out", tmp_path / "out", "--classes", ",")


@pytest.mark.parametrize(
    ("name", "options"),
    [("rules", {"--full": 0, "--frontier": 60}), ("both", {"--sensitivity": 40}), ("both", {})],
)
def test_options_that_lost_their_meaning_are_taken_and_warn(
    name: str, options: dict[str, int], tmp_path: Path
) -> None:
    """Also where the number given is the default."""
    given = [part for option in options.items() for part in option]
    files = ["--ears", tmp_path / "none.csv", "--out", tmp_path / "out"]
    done = run("study", name, *files, *given)
    *warnings, last = done.stderr.splitlines()
    assert [line.split(": ")[:3] for line in warnings] == [
        ["earshift", option, "No longer does anything"] for option in options
    ]
    assert done.stdout == ""
    assert done.exit_code == 2
    assert "none.csv" in last


@pytest.mark.parametrize(("protocols", "says"), [(",", "protocol"), ("best,best", "twice")])
def test_a_study_of_ears_takes_each_protocol_once(
    protocols: str, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "ears.csv"
    ears = [f"{2 * k + 1}" + f",{level}" * 7 for k, level in enumerate((10, 20, 35, 50, 65, 85))]
    path.write_text(HEAD + "\n".join(ears))
    out = tmp_path / "out"
    assert says in refused(*EARS, "--ears", path, "--out", out, "--protocols", protocols)


# audiograms ------------------------------------------------------------------------------------


def niosh(path: Path, ears: list[tuple[int, int]], columns: tuple[str, ...] = COLUMNS) -> Path:
    """Tests of two ears each, flat audiograms; two more columns that nobody reads."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["ID", *columns, "age"])
        for number, (left, right) in enumerate(ears):
            levels = [left if name.startswith("L") else right for name in columns]
            writer.writerow([number, *levels, 40])
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return niosh(tmp_path / "niosh.csv", [(5, 10), (0, 20), (30, 997), (998, 100)])


def test_class_medians_in_a_table(file: Path) -> None:
    done = ok("audiograms", "classes", "--source", "niosh", file)
    rows = {
        cells[0]: cells[1:]
        for line in done.stdout.splitlines()
        if len(cells := [cell.strip() for cell in line.strip("│┃ ").split("│")]) == 10
    }
    assert list(rows) == CLASSES.split(", ")
    assert rows["normal"] == ["<= 15", "3 (few)", *["5"] * 7]
    assert rows["slight"] == ["16-25", "1 (few)", *["20"] * 7]
    assert rows["moderate"] == ["41-55", "0", *["-"] * 7]
    assert rows["profound"] == [">= 91", "1 (few)", *["100"] * 7]
    for frequency in FREQUENCIES_HZ:
        assert f"{frequency} Hz" in done.stdout
    assert "6 ears used, 2 left out" in done.stdout


def test_class_medians_as_json(file: Path) -> None:
    more = niosh(file.with_name("more.csv"), [(5, 65)])
    done = ok("audiograms", "classes", "--source", "niosh", file, more, "--json")
    assert done.stderr == ""
    data = json.loads(done.stdout)
    assert data["n"] == 8
    assert data["counts"]["normal"] == 4
    assert data["thresholds_db_hl"]["moderately-severe"] == [65.0] * 7
    assert data["thresholds_db_hl"]["normal"] == [float(np.median([5, 10, 0, 5]))] * 7
    assert data["thresholds_db_hl"]["severe"] is None
    assert {k: n for k, n in data["left_out"].items() if n} == {"code-997": 1, "code-998": 1}


def test_missing_columns_are_named(tmp_path: Path) -> None:
    kept = tuple(name for name in COLUMNS if name not in ("L3k", "R8k"))
    path = niosh(tmp_path / "short.csv", [(5, 10)], kept)
    line = refused("audiograms", "classes", "--source", "niosh", path)
    assert f"{path} lacks the columns L3k, R8k" in line


def test_a_missing_file_is_named(tmp_path: Path, file: Path) -> None:
    path = tmp_path / "not-there.csv"
    for source in ("niosh", "nhanes"):
        assert str(path) in refused("audiograms", "classes", "--source", source, path)
    assert str(path) in refused("audiograms", "classes", "--source", "niosh", file, path)


def test_an_unknown_source_is_refused_with_those_that_exist(file: Path) -> None:
    line = refused("audiograms", "classes", "--source", "wild", file)
    assert "'wild'" in line
    assert "nhanes, niosh" in line
