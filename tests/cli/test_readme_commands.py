"""The commands of README and docs: all of them exist, and those of three pages are run."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from earshift.cli import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
BASELINES = "person,date,R500,R1000,R2000,R3000,R4000,R6000,L2000,L3000,L4000\n" + (
    "4711,2020-05-04,10,10,15,20,25,30,10,10,15\n"
)
# What is not run here, and why; that the command takes these words is tested all the same.
NOT_RUN = {
    "serve": "it serves until it is stopped; tests/cli/test_serve_cli.py starts it",
    "study": "hours; tests/studies run every study with few listeners",
    "audiograms": "needs files of NHANES; tests/studies make such",
    "verdict close 31": "a number of a clinic that has been at work for a while",
    "person separate 17": "as above",
    "person baseline 4711": "as above",
    "db check --seal": "a seal of that clinic",
    "roster import personal.csv": "a file of a site of its own; tests/clinic import such",
    "import hno.csv": "as above",
}
# What a page expects to be there, before the first line that begins so.
BEFORE = {
    # Somebody who says "y" to silence as well is not reliable: the reference comes from a file.
    "README.md": {"screen": ["import baselines.csv --timezone Europe/Berlin"]},
    "command-line.md": {"device check": ["device add --name booth"]},
    "records.md": {
        "exam": ["device check 1 --listener mh --right 1000=0 --left 1000=0"],
        "person merge": ["person add --code 4711-2"],
    },
}
# To a tone "y"; a lone Enter asks again there, and stores the result at the end.
TYPED = "y\n\n" * 200


def commands(page: Path) -> list[str]:
    """The `earshift ...` lines of a page's blocks, each as one line without its comment."""
    found = []
    for language, block in BLOCKS.findall(page.read_text(encoding="utf-8")):
        if language in ("python", "py"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            said = re.search(r"(?:^|[\s/])earshift (?!earshift)(\S.*)", line)
            if said and not line.startswith(("#", "FROM", "<", ">", "podman build")):
                found.append(said[1])
    return found


def inline(page: Path) -> list[str]:
    """Those in the text: `earshift device show 1`."""
    text = BLOCKS.sub("", page.read_text(encoding="utf-8"))
    return [" ".join(said.split()) for said in re.findall(r"`earshift ([a-z][^`]*)`", text)]


def words_of(line: str) -> list[str]:
    return shlex.split(line, comments=True)


def parse(words: list[str]) -> None:
    """Refuse a command, an option or an argument that the command line does not have."""
    command: Any = typer.main.get_command(app)
    words = list(words)
    while hasattr(command, "commands") and words:
        assert words[0] in command.commands, f"there is no command {words[0]}"
        command = command.commands[words.pop(0)]
    context = command.context_class(command, info_name="earshift")
    _, left, _ = command.make_parser(context).parse_args(args=words)
    assert left == [], f"{left} are too many"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README.md", "docs/command-line.md", "docs/records.md"])
def test_the_commands_of_a_page_run_one_after_the_other(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "baselines.csv").write_text(BASELINES, encoding="utf-8")
    (tmp_path / "staff.csv").write_text("code,department\n4711,Press shop\n", encoding="utf-8")
    page = ROOT / name
    before = dict(BEFORE[page.name])
    for line in commands(page):
        if any(line.startswith(words) for words in NOT_RUN):
            continue
        due = [words for words in before if line.startswith(words)]
        for said in [*(one for words in due for one in before.pop(words)), line]:
            env = {"EARSHIFT_DB": "clinic.db", "EARSHIFT_AUTHOR": "mh", "COLUMNS": "200"}
            done = CliRunner().invoke(app, words_of(said), input=TYPED, env=env)
            assert done.exit_code == 0, f"earshift {said}: {done.output[-2000:]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_command_line_takes_what_a_page_says(page: Path) -> None:
    for line in [*commands(page), *inline(page)]:
        # Without what a shell fills in, and what another program takes from it.
        words = words_of(re.sub(r"\$\(.*?\)", "today", line).partition(" | ")[0])
        try:
            parse(words)
        except Exception as error:
            pytest.fail(f"{page.name}: earshift {line}: {error}")
