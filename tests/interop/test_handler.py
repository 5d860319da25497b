"""The loop for experiment scripts."""

import json
import pickle
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


def test_a_threshold_is_estimated_as_quest_does() -> None:
    axis = es.Axis("contrast_db", "dB", range(-50, 1, 5))
    handler = es.Handler(es.Exam(domain=es.Domain(axis), max_tones=30), levels=True)
    for level in handler:
        handler.addData(int(level > -22))
    low, middle, high = (handler.quantile(p) for p in (0.025, 0.5, 0.975))
    (found,) = handler.sitting.thresholds()
    assert (low, middle, high) == pytest.approx((found.low, found.level, found.high))
    assert low < handler.mean() < high
    of_tones = es.Handler(es.Exam.clinical(seed=1))
    assert of_tones.quantile(0.1, 1000) < of_tones.mean(1000) < of_tones.quantile(0.9, 1000)
    for refused in (lambda: of_tones.mean(), lambda: handler.quantile(2.0)):
        with pytest.raises(es.Refusal):
            refused()
    with pytest.raises(es.Refusal, match="screen"):
        es.Handler(es.Screen(es.Audiogram({1000: 10}))).mean(1000)


def test_bad_answers_change_nothing() -> None:
    handler = es.Handler(es.Exam(max_tones=3))
    tone = next(handler)
    for bad in ("yes", 2, None):
        with pytest.raises(ValueError, match="heard"):
            handler.addResponse(bad)
    with pytest.raises(ValueError, match="outside the domain"):
        handler.addResponse(True, intensity=130.0)
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


# In place of a staircase ------------------------------------------------------------------------


@pytest.fixture
def told() -> es.Handler:
    """Two answered tones and one that waits."""
    handler = es.Handler(es.Exam.clinical(seed=1, max_tones=5), extraInfo={"participant": "P1"})
    for heard in (True, False):
        handler.next()
        handler.addOtherData("shown_ms", 100)  # before the answer, as scripts do
        handler.addResponse(heard)
    handler.addOtherData("rt", 0.4)  # and after it
    next(handler)
    return handler


def test_attributes_are_those_of_a_staircase(told: es.Handler) -> None:
    first, second = (trial.tone.level_db_hl for trial in told.sitting.trials)
    assert told.stimulus is not None
    assert told.intensities == [first, second, told.stimulus.level_db_hl]
    assert told.intensity == told.stimulus.level_db_hl
    assert told.data == [1, 0]
    assert told.thisTrialN == 2
    assert told.otherData == {"shown_ms": [100, 100, None], "rt": [None, 0.4, None]}
    assert (told.nTrials, told.finished) == (5, False)
    fresh = es.Handler(es.Exam.clinical(seed=1))
    assert (fresh.thisTrialN, fresh.intensities, fresh.data) == (-1, [], [])
    assert fresh.intensity == fresh.sitting.ask().level_db_hl


def test_a_script_for_levels_gets_levels() -> None:
    listener = es.Listener(MILD, seed=1)
    handler = es.Handler(es.Exam.clinical(seed=1, max_tones=3), levels=True)
    for level in handler:
        assert isinstance(level, float)
        assert handler.stimulus is not None
        assert level == handler.stimulus.level_db_hl
        handler.addResponse(listener(handler.stimulus))
    assert len(handler.data) == 3


def test_other_data_of_an_open_stimulus_goes_with_it_when_the_loop_ends(told: es.Handler) -> None:
    told.addOtherData("rt", 9.9)
    told.finished = True
    assert list(told) == []
    assert [row.get("rt") for row in told.rows] == [None, 0.4]


def test_a_table_has_a_row_for_every_answer(told: es.Handler, tmp_path: Path) -> None:
    written = told.saveAsText(tmp_path / "data")
    assert written.name == "data.tsv"
    lines = written.read_text(encoding="utf-8-sig").splitlines()
    head = lines[0].split("\t")
    assert head == ["participant", "frequency_hz", "level_db_hl", "heard", "shown_ms", "rt"]
    assert len(lines) == 3
    assert told.saveAsText(tmp_path / "data").name == "data_1.tsv"
    assert told.saveAsText(tmp_path / "data", fileCollisionMethod="overwrite") == written
    with pytest.raises(ValueError, match="exists already"):
        told.saveAsText(tmp_path / "data", fileCollisionMethod="fail")
    with pytest.raises(ValueError, match="fileCollisionMethod"):
        told.saveAsText(tmp_path / "other", fileCollisionMethod="ask")
    table = told.saveAsText(tmp_path / "data.csv", matrixOnly=True).read_text(encoding="utf-8-sig")
    assert table.startswith("frequency_hz,level_db_hl,heard")
    odd = told.saveAsText(tmp_path / "odd.txt", delim=";", encoding="utf-8")
    assert odd.read_text(encoding="utf-8").startswith("participant;frequency_hz")


def test_an_exam_reads_what_was_saved(told: es.Handler, tmp_path: Path) -> None:
    told.saveAsJson(tmp_path / "exam.json")
    saved = json.loads((tmp_path / "exam.json").read_text(encoding="utf-8"))
    again = es.Exam.from_dict(saved)
    assert again.trials == told.sitting.trials
    assert again.ask() == told.sitting.ask()
    assert saved["extraInfo"] == {"participant": "P1"}
    text = told.saveAsJson(None)
    assert text is not None
    assert json.loads(text) == saved
    with pytest.raises(ValueError, match="not the data"):
        es.Exam.from_dict({"exam": None})


def test_pickles_and_workbooks_are_refused_with_a_reason(told: es.Handler) -> None:
    with pytest.raises(ValueError, match=r"runs whatever code.*saveAsJson"):
        told.saveAsPickle("exam.psydat")
    with pytest.raises(ValueError, match="runs whatever code"):
        pickle.dumps(told)
    with pytest.raises(ValueError, match="saveAsText"):
        told.saveAsExcel("exam.xlsx")


def test_an_experiment_is_told_of_answers_and_of_the_end(told: es.Handler) -> None:
    class Experiment:
        def __init__(self) -> None:
            self.told: list[object] = []

        def addData(self, name: str, value: object) -> None:
            self.told.append((name, value))

        def loopEnded(self, loop: object) -> None:
            self.told.append(loop)

    experiment = Experiment()
    told.setExp(experiment)
    assert told.getExp() is experiment
    told.addResponse(True)
    told.addOtherData("rt", 0.3)
    told.finished = True
    assert list(told) == []
    assert experiment.told == [(".response", 1), ("rt", 0.3), told]
