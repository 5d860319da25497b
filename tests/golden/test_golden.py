"""Behaviour is as it was recorded: names, tones, verdicts, commands, the API, lines of JSON.

Sentences are not compared, and more may be offered than before; see the golden files beside this
one and record.py, which wrote them. A difference here is a change for users: wanted, then record
that file anew and say so in the change log, or not wanted, then it is a defect.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from golden import runs, sittings, surface, talks, values
from golden.common import differences, load, plain, told, without_sentences

NAMES, VALUES, FLAGS, API = (load(name) for name in ("names", "values", "cli_flags", "api"))
PAPER, CLINICAL = load("paper"), load("clinical")
FIRST_VERSION, FIRST_FLAGS = load("first_version"), load("first_flags")  # never recorded again
# The only defaults that are others than at first, of studies that were replaced. No flag may go.
NEW_DEFAULTS = {
    "earshift study rules": {"--people": 300, "--compared": 300, "--calibration": 150},
    "earshift study notch": {"--level": 200},
}
CLI_RUNS, JSON_LINES = load("cli_runs"), load("jsonlines")
Lost = Callable[[dict[str, Any], dict[str, Any] | None], Iterator[str]]


def the_same(before: Any, now: Any, what: str, *, exact: bool) -> None:
    found = differences(without_sentences(before), without_sentences(now), exact=exact)
    if message := told(found, what):
        pytest.fail(message, pytrace=False)


def nothing_lost(before: dict[str, Any], now: dict[str, Any] | None, what: str, lost: Lost) -> None:
    if message := told(lost(before, now), what):
        pytest.fail(message, pytrace=False)


def clinical(kind: str) -> dict[str, Any]:
    """The entries of the clinic's engine of one kind."""
    start = f"{kind}: "
    return {
        name.removeprefix(start): entry
        for name, entry in CLINICAL.items()
        if name.startswith(start)
    }


# What is offered --------------------------------------------------------------------------------


@cache
def library_now() -> dict[str, Any]:
    return surface.library()


@cache
def flags_now() -> dict[str, Any]:
    return surface.flags()


@pytest.fixture(scope="module")
def api_now(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return surface.api(tmp_path_factory.mktemp("api"))


def test_the_public_names_are_the_same() -> None:
    assert library_now()["__all__"] == NAMES["__all__"]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "__all__"])
def test_the_library_offers_what_it_did(name: str) -> None:
    nothing_lost(NAMES[name], library_now().get(name), name, surface.lost_of_library)


@pytest.mark.parametrize("command", FLAGS)
def test_a_command_takes_what_it_did(command: str) -> None:
    nothing_lost(FLAGS[command], flags_now().get(command), command, surface.lost_of_command)


@pytest.mark.parametrize("command", FIRST_FLAGS)
def test_a_command_takes_what_it_took_at_first(command: str) -> None:
    """Scripts of 0.1.0 still run: a flag that lost its meaning is taken all the same."""
    before = FIRST_FLAGS[command]
    for name, default in NEW_DEFAULTS.get(command, {}).items():
        assert before[name]["default"] != default, f"{name} is as it was: take it off the list"
        before = {**before, name: {**before[name], "default": default}}
    nothing_lost(before, flags_now().get(command), command, surface.lost_of_command)


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        ([0, None], [1, None], True),
        ([1, None], [0, None], False),
        ([None, None], [1, 500], True),
        ([1, 500], [None, None], False),
        ([1, 400], [1, 500], False),
    ],
)
def test_a_range_may_only_grow(wide: list[Any], narrow: list[Any], covered: bool) -> None:
    plain_flag = {"spellings": ["--n"], "required": False, "default": 1, "flag": False,
                  "several": False, "from": None}  # fmt: skip
    lost = surface.lost_of_command(
        {"--n": {**plain_flag, "range": narrow}}, {"--n": {**plain_flag, "range": wide}}
    )
    assert (list(lost) == []) == covered


@pytest.mark.parametrize("operation", API)
def test_the_api_takes_and_gives_what_it_did(operation: str, api_now: dict[str, Any]) -> None:
    nothing_lost(API[operation], api_now.get(operation), operation, surface.lost_of_api)


# Exams and screens ------------------------------------------------------------------------------


def as_recorded(before: dict[str, Any], entry: sittings.Scripted, name: str) -> None:
    """The same tones first: where they differ, all that follows does."""
    now = sittings.observe(entry)
    the_same(before["saved"]["trials"], now["saved"]["trials"], f"tones of {name}", exact=True)
    the_same(before["next"], now["next"], f"next tone of {name}", exact=True)
    the_same(before["saved"], now["saved"], f"to_dict of {name}", exact=True)
    the_same(before["evidence"], now["evidence"], f"evidence after each tone, {name}", exact=False)
    the_same(before["says"], now["says"], f"what is said in the end, {name}", exact=False)


def goes_on(before: dict[str, Any], name: str) -> None:
    """What was saved then is read now, asks the same next tone, and saves as the same."""
    again = sittings.read_back(before["saved"])
    the_same(before["next"], again.ask().to_dict(), f"next tone of {name}, read back", exact=True)
    the_same(before["saved"], plain(again.to_dict()), f"to_dict of {name}, read back", exact=True)


def of_all(entries: dict[str, Any], known: dict[str, Any]) -> list[str]:
    """The names of the entries; a recorded one without its script, or the reverse, is refused."""
    assert set(entries) == set(known), sorted(set(entries) ^ set(known))
    return list(entries)


@pytest.mark.parametrize("name", of_all(PAPER, sittings.PAPER))
def test_the_papers_path(name: str) -> None:
    as_recorded(PAPER[name], sittings.PAPER[name], name)


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_path_read_back(name: str) -> None:
    goes_on(PAPER[name], name)


@pytest.mark.parametrize("name", of_all(clinical("library"), sittings.CLINICAL))
def test_the_clinics_engine(name: str) -> None:
    as_recorded(clinical("library")[name], sittings.CLINICAL[name], name)


@pytest.mark.parametrize("name", clinical("library"))
def test_the_clinics_engine_read_back(name: str) -> None:
    goes_on(clinical("library")[name], name)


@pytest.mark.parametrize("name", FIRST_VERSION)
def test_what_0_1_0_saved(name: str) -> None:
    """A full exam goes on as it would have; a screen is judged from its answers and says so."""
    before = FIRST_VERSION[name]
    if before["saved"]["kind"] == "exam":
        goes_on(before, name)
        return
    screen = sittings.read_back(before["saved"])
    assert plain([trial.to_dict() for trial in screen.trials]) == before["saved"]["trials"]
    assert "started with version 0.1.0" in str(screen.verdict())


@pytest.mark.parametrize("name", of_all(VALUES, values.VALUES))
def test_what_public_names_give(name: str) -> None:
    the_same(VALUES[name], plain(values.VALUES[name]()), name, exact=False)


# The program ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", of_all(CLI_RUNS, runs.STORIES))
def test_commands(name: str, tmp_path: Path) -> None:
    now = runs.tell(runs.STORIES[name], tmp_path)
    the_same(CLI_RUNS[name], now, f"story {name!r}", exact=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", of_all(clinical("command line"), runs.CLINICAL))
def test_commands_of_the_clinics_engine(name: str, tmp_path: Path) -> None:
    now = runs.tell(runs.CLINICAL[name], tmp_path)
    the_same(clinical("command line")[name], now, f"story {name!r}", exact=False)


@pytest.mark.parametrize("name", of_all(JSON_LINES, talks.TALKS))
def test_lines_of_json(name: str) -> None:
    the_same(JSON_LINES[name], talks.talk(*talks.TALKS[name]), f"talk {name!r}", exact=False)


@pytest.mark.parametrize("name", of_all(clinical("lines of JSON"), talks.CLINICAL))
def test_lines_of_json_of_the_clinics_engine(name: str) -> None:
    now = talks.talk(*talks.CLINICAL[name])
    the_same(clinical("lines of JSON")[name], now, f"talk {name!r}", exact=False)
