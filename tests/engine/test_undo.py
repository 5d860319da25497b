"""Taking back the last answer leaves an exam that was never told it."""

from collections.abc import Callable

import pytest

import earshift as es
from support.helpers import MILD, tell_all

ANSWERS = [
    (es.Tone(1000.0, 40.0), True),
    (es.Tone(2000.0, 40.0), False),
    (es.Tone(4000.0, 60.0), True),
]
THEN = es.Audiogram(MILD)

ONE: dict[str, Callable[[], es.Exam | es.Screen]] = {
    "field": lambda: es.Exam(seed=1, halton_tones=1),
    "persons": lambda: es.Exam.clinical(seed=1),
    "rule": lambda: es.Screen(THEN, rule="osha-sts", seed=1),
    "fields": lambda: es.Screen(THEN, seed=1),
}


def what(procedure: es.Exam | es.Screen) -> list[object]:
    """All that it says now."""
    said: list[object] = [procedure.trials, procedure.ask(), procedure.to_dict()]
    said.append(procedure.thresholds([1000.0, 4000.0]))
    if isinstance(procedure, es.Screen):
        said += [procedure.log_bf, procedure.verdict([2000.0]), procedure.rows()]
    return said


@pytest.mark.parametrize("kind", ONE)
def test_it_is_as_if_the_answer_had_never_been_given(kind: str) -> None:
    procedure, fresh = ONE[kind](), ONE[kind]()
    for tone, heard in ANSWERS:
        procedure.tell(tone, heard)
        what(procedure)  # whatever is kept of it must go
    assert procedure.undo() == es.Trial(*ANSWERS[-1])
    tell_all(fresh, [es.Trial(*answer) for answer in ANSWERS[:-1]])
    assert what(procedure) == what(fresh)
    # Another answer in its place is another exam.
    for one in (procedure, fresh):
        one.tell(ANSWERS[-1][0], False)
    assert what(procedure) == what(fresh)


@pytest.mark.parametrize(
    "make",
    [
        lambda: es.Exam.clinical(seed=1, ears="both"),
        lambda: es.Screen({"right": THEN, "left": THEN}, ears="both", rule="osha-sts", seed=1),
        lambda: es.Screen({"right": THEN, "left": THEN}, ears="both", seed=1),
    ],
)
def test_of_both_ears_the_last_ear_forgets(make: Callable[[], es.Exam | es.Screen]) -> None:
    procedure, fresh = make(), make()
    told = [es.Trial(es.Tone(1000.0, 40.0, ear), True) for ear in ("right", "left", "right")]
    for trial in told:
        procedure.tell(trial.tone, trial.heard)
        procedure.ask()
    tell_all(fresh, told[:2])
    assert procedure.undo() == told[2]
    assert procedure.ask() == fresh.ask()
    assert procedure.thresholds([1000.0], ear="right") == fresh.thresholds([1000.0], ear="right")
    assert procedure.thresholds([1000.0], ear="left") == fresh.thresholds([1000.0], ear="left")


@pytest.mark.parametrize("kind", ["persons", "rule"])
def test_answers_to_silence_stay(kind: str) -> None:
    procedure = ONE[kind]()
    assert isinstance(procedure, es.Screen | type(es.Exam.clinical()))
    procedure.tell_catch(True)
    procedure.tell(*ANSWERS[0])
    procedure.undo()
    assert procedure.to_dict()["catches"] == [True]


@pytest.mark.parametrize("kind", ONE)
def test_without_an_answer_there_is_nothing_to_take_back(kind: str) -> None:
    with pytest.raises(ValueError, match="no answer to take back"):
        ONE[kind]().undo()


def test_a_fork_is_not_touched() -> None:
    exam = es.Exam.clinical(seed=1)
    exam.tell(*ANSWERS[0])
    other = exam.fork()
    exam.undo()
    assert (len(exam.trials), len(other.trials)) == (0, 1)
