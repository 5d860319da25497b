"""What the public names give besides exams: listeners, rules, norms, the handler, EP."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import earshift as es
from golden.common import plain
from golden.sittings import AUDIOGRAM, HZ, MILD, NORMAL, OWN_RULE, PARTLY, SHIFTED

CLASSES = ("normal", "slight", "mild", "moderate", "moderately-severe", "severe", "profound")
RULES = ("osha-sts", "niosh-15", "msha-sts", "asha-1994")


def listeners() -> Any:
    found = {}
    for number, name in enumerate(CLASSES):
        listener = es.Listener.of_class(name, seed=(number, 1), lapse=0.05, guess=0.02)
        tones = [es.Tone(f, level) for f in HZ for level in (5.0, 35.0, 65.0)]
        found[name] = {
            "thresholds": [listener.threshold(f) for f in HZ],
            "p_heard": [listener.p_heard(tone) for tone in tones],
            "heard": [listener(tone) for tone in tones],
        }
    moved = es.Listener(MILD, retest_sd_db=5.0, seed=3)
    found["on another day"] = {"thresholds": [moved.threshold(f) for f in HZ]}
    return found


def data() -> Any:
    """Everything that goes to plain data and back."""
    return {
        "audiogram": PARTLY.to_dict(),
        "audiogram again": es.Audiogram.from_dict(plain(PARTLY.to_dict())).to_dict(),
        "norm": es.population_norm().to_dict(),
        "norm again": es.Norm.from_dict(plain(es.population_norm().to_dict())).to_dict(),
        "rule": OWN_RULE.to_dict(),
        "rule again": es.Rule.from_dict(plain(OWN_RULE.to_dict())).to_dict(),
        "limits": es.Limits().to_dict(),
        "protocol": es.Protocol().to_dict(),
        "rule settings": es.RuleSettings().to_dict(),
        "notch settings": asdict(es.NotchSettings()),
        "tone": es.Tone(1000.0, 30.0, "left").to_dict(),
        "trial": es.Trial.from_dict({"frequency_hz": 1000, "level_db_hl": 3, "heard": 1}).to_dict(),
        "stimulus": es.Stimulus((("b", 2.0), ("a", 1.0))).to_dict(),
        "domains": {
            n: es.Exam(domain=n).domain.to_dict() for n in ("fine", "audiometer", "relative")
        },
    }


def judged() -> Any:
    from earshift.rules import AgeCorrection, judge_ear, judge_person, recordable

    now = es.Audiogram(SHIFTED)
    age = AgeCorrection("male", 30, 50)
    found = {name: asdict(judge_ear(name, AUDIOGRAM, now, allow_unverified=True)) for name in RULES}
    met = judge_ear("osha-sts", AUDIOGRAM, now, age, (date(2020, 1, 1), date(2024, 1, 1)), "left")
    same = judge_ear("osha-sts", AUDIOGRAM, AUDIOGRAM, ear="right")
    return {
        **found,
        "own": asdict(judge_ear(OWN_RULE, AUDIOGRAM, now)),
        "corrected for age": asdict(met),
        "missing": asdict(judge_ear("osha-sts", PARTLY, now)),
        "no response": asdict(judge_ear("osha-sts", AUDIOGRAM, PARTLY)),
        "person": judge_person({"left": met, "right": same}),
        "one ear": judge_person({"right": same}),
        "recordable": [recordable(met, now, related) for related in (None, True, False)],
    }


def by_hand() -> Any:
    from earshift.classical import hughson_westlake

    found = {}
    for name, ear in (("normal", NORMAL), ("mild", MILD)):
        exam = hughson_westlake(es.Listener(ear, seed=1), method_offset_db=2.5)
        found[name] = {"audiogram": exam.audiogram.to_dict(), "tones": exam.tones}
    return found


def expectation_propagation() -> Any:
    from earshift import ep

    place = np.arange(4.0)
    cov = 4.0 * np.exp(-0.5 * (place[:, None] - place) ** 2) + 0.1 * np.eye(4)
    fit = ep.fit(place - 1.5, cov, [True, False, True, True], guess=0.01, lapse=0.02)
    return {
        "mean": fit.mean.tolist(),
        "cov": fit.cov.tolist(),
        "log_evidence": fit.log_evidence,
        "converged": fit.converged,
        "grad_mean": fit.grad_mean.tolist(),
        "grad_cov": fit.grad_cov.tolist(),
    }


def handler() -> Any:
    loop = es.Handler(es.Exam(seed=1, max_tones=5, halton_tones=2))
    listener = es.Listener(MILD, seed=1)
    for tone in loop:
        loop.addResponse(listener(tone), intensity=tone.level_db_hl + 1.0)
        loop.addOtherData("reaction_ms", 300)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "exam.json"
        loop.saveAsJson(file)
        saved = json.loads(file.read_text(encoding="utf-8"))
    return {"rows": loop.rows, "finished": loop.finished, "saved": saved}


REFUSED: dict[str, Callable[[], object]] = {
    "exam: strategy": lambda: es.Exam(strategy="differential"),
    "exam: domain": lambda: es.Exam(domain="moon"),
    "exam: seed": lambda: es.Exam(seed=-1),
    "exam: ears": lambda: es.Exam(ears="left"),
    "exam: limits": lambda: es.Exam(limits=90),
    "exam: limits that leave nothing": lambda: es.Exam(limits=es.Limits(cap_db_hl=-20.0)),
    "exam: rates": lambda: es.Exam(guess=0.6),
    "exam: tone outside": lambda: es.Exam().tell(es.Tone(50.0, 30.0), True),
    "exam: answer": lambda: es.Exam().tell(es.Tone(1000.0, 30.0), "yes"),
    "exam: data": lambda: es.Exam.from_dict({"kind": "screen", "schema": 1}),
    "exam: schema": lambda: es.Exam.from_dict({**es.Exam().to_dict(), "schema": 2}),
    "exam: ear of one": lambda: es.Exam().thresholds(ear="left"),
    "both ears: which": lambda: es.Exam(ears="both").thresholds(),
    "both ears: tone without one": lambda: es.Exam(ears="both").tell(es.Tone(1000.0, 30.0), True),
    "screen: no reference": lambda: es.Screen(),
    "screen: empty reference": lambda: es.Screen(es.Exam()),
    "screen: protocol and rule": lambda: es.Screen(AUDIOGRAM, "best", rule="osha-sts"),
    "screen: rule": lambda: es.Screen(AUDIOGRAM, rule="wild"),
    "screen: rule not verified": lambda: es.Screen(AUDIOGRAM, rule="asha-1994"),
    "screen: protocol": lambda: es.Screen(AUDIOGRAM, "wild"),
    "screen: settings without a rule": lambda: es.Screen(AUDIOGRAM, settings=es.RuleSettings()),
    "screen: notch with a protocol": lambda: es.Screen(AUDIOGRAM, "best", hypotheses="notch"),
    "screen: hypotheses": lambda: es.Screen(hypotheses="other"),
    "screen: both ears, one reference": lambda: es.Screen(AUDIOGRAM, ears="both"),
    "rule settings": lambda: es.RuleSettings(prevalence=1.0),
    "notch settings": lambda: es.NotchSettings(bayes_factor=0.5),
    "own protocol": lambda: es.Protocol(evidence="none"),
    "tone": lambda: es.Tone(-1.0, 30.0),
    "tone: ear": lambda: es.Tone(1000.0, 30.0, "both"),
    "audiogram": lambda: es.Audiogram({}),
    "axis": lambda: es.Axis("two words", "", (1.0,), 0.0, 1.0),
    "domain": lambda: es.Domain(es.Axis("a", "", (1.0,), 0.0, 1.0), ()),
    "criterion": lambda: es.Criterion((), 10.0),
    "limits": lambda: es.Limits(cap_db_hl=130.0),
    "listener": lambda: es.Listener({1000.0: 5.0}),
    "listener: class": lambda: es.Listener.of_class("wild"),
    "handler": lambda: es.Handler(None),
    "handler: no stimulus": lambda: es.Handler(es.Exam()).addResponse(True),
}


def refusals() -> Any:
    """Whether each is refused by a ValueError."""
    found = {}
    for name, wrong in REFUSED.items():
        try:
            wrong()
        except ValueError:
            found[name] = "ValueError"
        except Exception as error:
            found[name] = type(error).__name__
        else:
            found[name] = "taken"
    return found


VALUES: dict[str, Callable[[], Any]] = {
    "listeners": listeners,
    "data": data,
    "two audiograms judged": judged,
    "the examiner by hand": by_hand,
    "expectation propagation": expectation_propagation,
    "handler": handler,
    "refusals": refusals,
}
