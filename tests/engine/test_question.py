"""One contract for every question, and exams and screens whose signatures say what they take."""

import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import earshift as es
from earshift.engine.question import CLEARING, Posterior, Question
from support.helpers import MILD, NORMAL, run_exam

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def first() -> es.Exam:
    return run_exam(es.Exam.clinical(seed=1), NORMAL, tones=20)


FIELDS = {
    "change": {"protocol": "best"},
    "running": {"protocol": es.Protocol(evidence="running", rho_points=4)},
}
QUESTIONS = {**FIELDS, "rule": {"rule": "niosh-15"}, "notch": {"hypotheses": "notch"}}


def screen_of(first: es.Exam, name: str, **options: object) -> es.Screen:
    options = {**QUESTIONS[name], "domain": "audiometer", "seed": 2, **options}
    return es.Screen(None if name == "notch" else first, **options)


@pytest.mark.parametrize("name", FIELDS)
def test_every_question_keeps_the_contract(first: es.Exam, name: str) -> None:
    screen = run_exam(screen_of(first, name), MILD, tones=3)
    question: Question = screen._track().question
    posterior: Posterior = question.assess(screen.trials)
    assert posterior.tones == 3
    assert 0.0 <= posterior.p_changed <= 1.0
    assert np.isfinite(posterior.log_bf)
    assert posterior.decision in ("changed", "notch", "inconclusive", "not determinable", *CLEARING)
    assert isinstance(posterior.converged, bool)
    assert all(isinstance(note, str) for note in posterior.notes)
    domain = screen.domain
    probabilities, heard = posterior.hypotheses(domain.places, domain.intensities)
    assert probabilities.sum() == pytest.approx(1.0)
    assert heard.shape == (probabilities.size, *domain.shape)
    for weighed in (True, False):
        before, after = posterior.before_and_after(
            domain.places, 50, np.random.default_rng(0), weighed
        )
        assert before.shape == after.shape == (50, domain.shape[0])
    assert question.settings.max_tones > 0
    assert question.settings.to_dict()["strategy"] == question.settings.strategy


@pytest.mark.parametrize("name", FIELDS)
def test_what_was_known_before_the_last_answer_only_saves_work(first: es.Exam, name: str) -> None:
    screen = run_exam(screen_of(first, name), MILD, tones=3)
    question = screen._track().question
    fold = None
    for number in range(4):
        fold = question.assess(screen.trials[:number], fold)
    assert fold is not None
    at_once = question.assess(screen.trials)
    assert (fold.log_bf, fold.p_changed, fold.decision) == (
        at_once.log_bf, at_once.p_changed, at_once.decision,
    )  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_finds_what_stands_in_its_way(first: es.Exam, name: str) -> None:
    device = tuple((f, -10.0, 90.0) for f in (500.0, 1000.0, 2000.0, 4000.0, 8000.0))
    screen = screen_of(first, name, limits=es.Limits(device=device))
    verdict = screen.verdict()
    assert 3000.0 in verdict.not_determinable_hz
    assert any("the device does not play it" in note for note in verdict.notes)


def test_a_screen_of_both_ears_is_a_screen(first: es.Exam) -> None:
    screen = es.Screen({"right": first, "left": es.Audiogram(MILD)}, ears="both", rule="osha-sts")
    assert type(screen) is es.Screen
    assert type(es.Exam(ears="both")) is es.Exam
    verdict = screen.verdict()
    assert isinstance(verdict, es.PersonVerdict)
    assert isinstance(verdict, es.Verdict)
    assert set(verdict.to_dict()) == {"decision", "tones", "right", "left"}
    each = {ear: screen.of(ear).p_changed for ear in ("right", "left")}
    assert screen.p_changed == verdict.p_changed == max(each.values())
    assert verdict == screen.verdict() != verdict.right
    assert {ear: screen.p_changed(ear) for ear in each} == each


def test_one_ear_of_two_must_be_named(first: es.Exam) -> None:
    both = es.Screen({"right": first, "left": first}, ears="both", rule="osha-sts")
    with pytest.raises(ValueError, match="say which"):
        _ = both.log_bf
    with pytest.raises(ValueError, match="of one ear"):
        es.Screen(first, rule="osha-sts").of("right")
    with pytest.raises(ValueError, match="ears='both'"):
        es.Screen(first, rule="osha-sts", alike_share=0.3)
    with pytest.raises(ValueError, match="ears='both'"):
        es.Exam(ear="right")


def test_signatures_and_help_show_the_parameters() -> None:
    for made in (es.Exam, es.Exam.clinical, es.Screen):
        names = inspect.signature(made).parameters
        assert {"ears", "seed", "max_tones", "domain", "limits", "transducer"} <= set(names)
        assert not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in names.values())
    for known in (es.Exam, es.Screen):
        text = inspect.getdoc(known) or ""
        for name in inspect.signature(known).parameters:
            assert f"    {name}: " in text, f"{known.__name__}: {name} is not described"


@pytest.mark.parametrize(
    "known",
    [
        es.Audiogram, es.Axis, es.Criterion, es.Domain, es.Limits, es.Norm, es.NotchSettings,
        es.PersonVerdict, es.Protocol, es.Rule, es.RuleSettings, es.Stimulus, es.Tone, es.Trial,
        es.Verdict,
    ],
    ids=lambda known: known.__name__,
)  # fmt: skip
def test_every_field_is_described(known: type) -> None:
    text = inspect.getdoc(known) or ""
    for name in inspect.signature(known).parameters:
        assert f"    {name}: " in text, f"{known.__name__}.{name} is not described"


def test_the_type_checker_knows_the_options(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(
        "import earshift as es\n"
        "exam = es.Exam.clinical(seed=1, max_tones=20)\n"
        "es.Exam.clinical(max_tone=20)\n"
        "es.Exam(halton_tone=3)\n"
        'es.Screen(exam, rule="osha-sts", sead=1)\n'
        'print(es.Screen(exam, rule="osha-sts").verdict().decision)\n'
        'both = es.Screen(exam, rule="osha-sts", ears="both").verdict()\n'
        "if isinstance(both, es.PersonVerdict):\n"
        "    print(both.p_changed, both.right.p_changed)\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [*command, str(snippet)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    lines = [line.partition("snippet.py:")[2] for line in done.stdout.splitlines()]
    wrong = [line.partition(":")[0] for line in lines if "[call-arg]" in line]
    assert wrong == ["3", "4", "5"], done.stdout + done.stderr
    assert sum("error:" in line for line in lines) == 3, done.stdout
