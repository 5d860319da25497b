"""The loop for experiment scripts."""

import json
from pathlib import Path

import pytest

import earshift as es
from support.helpers import MILD, NORMAL


def test_iterating_asks_what_the_exam_asks_and_ends_with_it() -> None:
    listener, same = es.Listener(NORMAL, seed=1), es.Listener(NORMAL, seed=1)
    handler = es.Handler(es.Exam(seed=1, max_tones=8, domain="audiometer"))
    by_hand = es.Exam(seed=1, max_tones=8, domain="audiometer")
    for tone in handler:
        assert tone == by_hand.ask()
        handler.addResponse(listener(tone))
        by_hand.tell(by_hand.ask(), same(by_hand.ask()))
    assert handler.finished
    assert handler.sitting.trials == by_hand.trials
    assert list(handler) == []


def test_a_screen_ends_when_it_is_decided() -> None:
    screen = es.Screen(es.Audiogram(NORMAL), rule="osha-sts", domain="audiometer")
    handler = es.Handler(screen)
    listener = es.Listener(MILD, seed=1)
    for tone in handler:
        handler.addResponse(int(listener(tone)))
    assert screen.decision == "changed"
    assert len(handler.rows) == len(screen.trials) < screen.max_tones


def test_a_forgotten_answer_is_refused() -> None:
    handler = es.Handler(es.Exam(max_tones=3))
    next(handler)
    with pytest.raises(ValueError, match="got no answer"):
        next(handler)
    handler.addResponse(True)
    with pytest.raises(ValueError, match="take one from the loop"):
        handler.addResponse(True)
    assert len(handler.sitting.trials) == 1


def test_bad_answers_change_nothing() -> None:
    handler = es.Handler(es.Exam(max_tones=3))
    tone = next(handler)
    for bad in ("yes", 2, None):
        with pytest.raises(ValueError, match="heard"):
            handler.addResponse(bad)
    with pytest.raises(ValueError, match="outside the domain"):
        handler.addResponse(True, intensity=150.0)
    assert handler.sitting.trials == ()
    handler.addResponse(False, intensity=tone.level_db_hl + 1.0)
    (trial,) = handler.sitting.trials
    assert trial.tone == es.Tone(tone.frequency_hz, tone.level_db_hl + 1.0)


def test_it_can_be_stopped_early() -> None:
    handler = es.Handler(es.Exam())
    for number, _ in enumerate(handler):
        if number == 2:
            handler.finished = True
        else:
            handler.addResponse(True)
    assert len(handler.sitting.trials) == 2


def test_other_data_stays_with_its_answer_and_is_saved(tmp_path: Path) -> None:
    handler = es.Handler(es.Exam(seed=4, max_tones=2))
    with pytest.raises(ValueError, match="no answer yet"):
        handler.addOtherData("reaction_ms", 300)
    for number, _ in enumerate(handler):
        handler.addResponse(True)
        handler.addOtherData("reaction_ms", 300 + number)
    assert [row["reaction_ms"] for row in handler.rows] == [300, 301]
    with pytest.raises(ValueError, match="the exam's own"):
        handler.addOtherData("heard", False)
    handler.saveAsJson(tmp_path / "exam.json")
    saved = json.loads((tmp_path / "exam.json").read_text(encoding="utf-8"))
    assert saved["rows"] == handler.rows
    assert es.Exam.from_dict(saved["exam"]).ask() == handler.sitting.ask()
    handler.addOtherData("odd", object())
    with pytest.raises(ValueError, match="JSON can hold"):
        handler.saveAsJson(tmp_path / "other.json")


def test_other_axes_than_a_tones() -> None:
    domain = es.Domain(
        es.Axis("contrast_db", "dB", (-40.0, -20.0, 0.0), -20.0, 10.0),
        (es.Axis("cycles_per_degree", "c/deg", (1.0, 2.0, 4.0), 2.0, 1.0, logarithmic=True),),
    )
    handler = es.Handler(es.Exam(domain=domain, max_tones=2))
    for _ in handler:
        handler.addResponse(True, intensity=-15.0)
    assert [row["contrast_db"] for row in handler.rows] == [-15.0, -15.0]


def test_only_exams_and_screens_are_handled() -> None:
    with pytest.raises(ValueError, match="Exam or Screen"):
        es.Handler("exam")  # type: ignore[arg-type]


def test_both_ears_in_one_loop() -> None:
    handler = es.Handler(es.Exam(ears="both", max_tones=4, domain="audiometer"))
    for tone in handler:
        assert tone.ear in ("left", "right")
        handler.addResponse(True, intensity=tone.level_db_hl + 1.0)
    assert [row["ear"] for row in handler.rows] == [t.tone.ear for t in handler.sitting.trials]
