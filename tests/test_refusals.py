"""Refusals are decided on by class and code, and say nothing that is not theirs to say."""

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from earshift.cli.advice import advised
from earshift.engine import refusal as family
from earshift.engine.refusal import Conflict, NotFound, Plain, Refusal, Trouble
from earshift.web.security import detail_of, status_of

SOURCE = Path(family.__file__).parents[1]
FILES = sorted(SOURCE.rglob("*.py"))
KINDS = {
    *("Refusal", "Conflict", "NotFound", "Trouble"),
    *("StoreError", "NoSuchRow", "StoreConflict", "StoreTrouble", "ExamChanged"),
}
# Where what somebody typed, or a file says, reaches people other than who typed it.
SEEN_BY_OTHERS = ("clinic", "devices", "formats", "store", "web")


def trees(*packages: str) -> Iterator[tuple[str, ast.Module]]:
    for file in FILES:
        place = file.relative_to(SOURCE)
        if not packages or place.parts[0] in packages:
            yield str(place), ast.parse(file.read_text(encoding="utf-8"))


def _is_text_of(node: ast.AST, names: set[str]) -> bool:
    """`str(error)`, `repr(error)`, `f"{error}"` or `error.args` of a caught error."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        texts = node.func.id in ("str", "repr", "format") and bool(node.args)
        return texts and isinstance(node.args[0], ast.Name) and node.args[0].id in names
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr == "args" and node.value.id in names
    return False


def _decides(node: ast.AST) -> list[ast.expr]:
    """The expressions that a decision is made on."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return [node.test]
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    if is_method and isinstance(node.func.value, ast.Name) and node.func.value.id == "re":
        return list(node.args)
    searches = ("startswith", "endswith", "find", "index", "replace")
    if is_method and node.func.attr in searches:
        return [node.func.value]
    return []


def prose_decisions(tree: ast.Module) -> list[int]:
    """Lines where something is decided by the text of a caught error."""
    found = set()
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None:
            continue
        for node in ast.walk(handler):
            for part in _decides(node):
                if any(_is_text_of(inner, {handler.name}) for inner in ast.walk(part)):
                    found.add(node.lineno)
    return sorted(found)


def test_nothing_is_decided_by_the_text_of_an_error() -> None:
    found = [f"{place}:{line}" for place, tree in trees() for line in prose_decisions(tree)]
    assert found == []


def test_the_search_finds_what_it_is_for() -> None:
    for line in (
        "if 'there is no' in str(error): pass",
        "x = 404 if 'no' in str(error) else 409",
        "re.sub('got .*', '', str(error))",
        "x = str(error).replace('a', 'b')",
        "x = error.args[0] == 'gone'",
    ):
        tree = ast.parse(f"try:\n    pass\nexcept ValueError as error:\n    {line}\n")
        assert prose_decisions(tree) == [4], line


def test_no_error_is_known_by_the_one_before_it() -> None:
    found = [
        f"{place}:{node.lineno}"
        for place, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "__context__"
    ]
    assert found == []


def sentences(*packages: str) -> Iterator[tuple[str, ast.expr]]:
    for place, tree in trees(*packages):
        for node in ast.walk(tree):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            if is_call and node.func.id in KINDS and node.args:
                yield f"{place}:{node.lineno}", node.args[0]


def test_no_sentence_for_others_quotes_what_was_given() -> None:
    """What was typed goes into `got` or a named place, which only who typed it reads."""
    quoted = [
        place
        for place, sentence in sentences(*SEEN_BY_OTHERS)
        for part in ast.walk(sentence)
        if (isinstance(part, ast.FormattedValue) and part.conversion == ord("r"))
        or (isinstance(part, ast.Constant) and "got " in str(part.value))
    ]
    assert quoted == []


def test_no_library_sentence_gives_the_command_lines_advice() -> None:
    libraries = {file.relative_to(SOURCE).parts[0] for file in FILES} - {
        "cli",
        "interop",
    }  # both speak to who typed
    advice = [
        f"{place} {part.value!r}"
        for place, sentence in sentences(*libraries)
        for part in ast.walk(sentence)
        if isinstance(part, ast.Constant)
        and isinstance(part.value, str)
        and ("`earshift " in part.value or " --" in f" {part.value}")
    ]
    assert advice == []


# The family -------------------------------------------------------------------------------------


def test_a_sentence_for_anybody_names_no_row_no_file_and_nothing_typed() -> None:
    refusal = Conflict(
        "{exam} of {file} is {state}", exam=7, file="/srv/x.csv", state=Plain("open")
    )
    assert str(refusal) == "exam 7 of /srv/x.csv is open"
    assert refusal.sentence == "the exam of the file is open"
    missing = NotFound("there is no {person}", person=3, got="Müller")
    assert str(missing) == "there is no person 3, got 'Müller'"
    assert missing.sentence == "there is no such person"
    several = Refusal("{exam_1} and {exam_2}", exam_1=1, exam_2=2)
    assert (str(several), several.sentence) == ("exam 1 and exam 2", "the exam and the exam")


def test_braces_of_a_file_are_no_places() -> None:
    refusal = Refusal("{column} of {file} is {odd}", column="{file} {x}", file="a{b}.csv")
    assert refusal.sentence == "the column of the file is {odd}"


def test_a_refusal_survives_a_worker_process_and_a_place_before_it() -> None:
    refusal = Conflict("{exam} is done", exam=7, code="closed", advice="begin anew", got=3.0)
    for again in (pickle.loads(pickle.dumps(refusal)), refusal.within("")):
        assert isinstance(again, Conflict)
        assert (str(again), again.sentence, again.code) == (
            "exam 7 is done, got 3; begin anew",
            "the exam is done",
            "closed",
        )
    inside = refusal.within("{row}: ", row="row 3 of x.csv")
    assert (str(inside).partition(",")[0], inside.sentence) == (
        "row 3 of x.csv: exam 7 is done",
        "the row: the exam is done",
    )
    assert isinstance(refusal.within_as(Trouble, "x: "), Trouble)


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (Refusal("x"), 422),
        (NotFound("x"), 404),
        (Conflict("x"), 409),
        (Trouble("x"), 503),
        (Refusal("x", code="throttled"), 429),
    ],
)
def test_a_status_follows_from_class_and_code(refusal: Refusal, status: int) -> None:
    assert status_of(refusal) == status


def test_each_skin_gives_its_own_advice() -> None:
    refusal = Conflict("{exam} of the left ear is not finished", code="unfinished-exam", exam=4)
    assert "`earshift resume 4`" in advised(refusal)
    assert detail_of(refusal).startswith("the exam of the left ear is not finished: continue it")
    assert "earshift" not in detail_of(refusal)
    calibration = Conflict("The device was not checked today.", code="calibration", device=1)
    assert "today. Fix this first" in advised(calibration)
