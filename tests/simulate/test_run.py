"""A procedure and a listener, run to the end or for so many tones."""

import pytest

import earshift as es
from earshift.simulate.run import run, steps

EARS = ("right", "left")


def test_a_procedure_runs_until_it_is_done() -> None:
    by_hand, listener = es.Exam(seed=1, max_tones=6), es.Listener.of_class("mild", seed=2)
    while not by_hand.done:
        tone = by_hand.ask()
        by_hand.tell(tone, listener(tone))
    exam = es.Exam(seed=1, max_tones=6)
    assert run(exam, es.Listener.of_class("mild", seed=2)) is exam
    assert exam.trials == by_hand.trials
    assert run(exam, es.Listener.of_class("mild", seed=2)).trials == by_hand.trials  # done


def test_so_many_tones_are_played_whether_it_is_done_or_not() -> None:
    exam = es.Exam(seed=1, max_tones=3)
    listener = es.Listener.of_class("mild", seed=2)
    assert len(run(exam, listener, tones=2).trials) == 2
    assert len(run(exam, listener, tones=4).trials) == 6
    assert len(run(exam, listener, tones=0).trials) == 6


def test_every_step_is_seen_after_it_was_told() -> None:
    exam = es.Exam(seed=1, max_tones=4)
    seen = []
    for number, step in enumerate(steps(exam, es.Listener.of_class("mild")), start=1):
        assert len(exam.trials) == number
        seen.append(step)
    assert seen == [(trial.tone, trial.heard) for trial in exam.trials]


def test_each_ear_has_its_own_listener() -> None:
    exam = es.Exam.clinical(ears="both", seed=1, max_tones=8)
    run(exam, {"right": lambda tone: True, "left": lambda tone: False})
    assert {trial.tone.ear for trial in exam.trials} == set(EARS)
    assert all(trial.heard == (trial.tone.ear == "right") for trial in exam.trials)


def test_a_missing_ear_is_said() -> None:
    exam = es.Exam.clinical(ears="both", seed=1, max_tones=8)
    with pytest.raises(ValueError, match="ear, but listeners only for middle: give one"):
        run(exam, {"middle": lambda tone: True})
