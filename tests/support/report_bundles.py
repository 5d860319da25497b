"""Visits for the tests of the report: real exams of simulated listeners, stored as a visit does."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import earshift as es
from earshift.clinic.view import reference_thresholds, tested_frequencies
from earshift.records import (
    Calibration,
    Device,
    ExamBundle,
    ExamRecord,
    Person,
    ResultRecord,
    TrialRecord,
    Visit,
    VisitBundle,
)
from earshift.simulate.run import run

START = datetime(2026, 3, 4, 23, 30, tzinfo=UTC)  # the next day already in Berlin
PERSON = Person(17, "B-1042", "Anna Müller", date(1980, 3, 5), "female")
DEVICE = Device(3, "Booth 2", "supra-aural", "MA 25", "4711")
CALIBRATION = Calibration(
    8, 3, date(2025, 6, 1), date(2026, 6, 1), "Messlabor Nord", "IEC 60318-3", "acoustic"
)
VISIT = Visit(
    42, 17, START, "Europe/Berlin", "supervised", "jk", 3, {"otoscopy": "normal", "cold": False}
)


def answer(procedure: es.Exam | es.Screen, listener: es.Listener, catches: Sequence[bool]) -> None:
    """Run a procedure to its end, silent trials first: what they say counts with the tones."""
    if isinstance(procedure, es.Screen):
        for heard in catches:
            procedure.tell_catch(heard)
    run(procedure, listener)


def shown_by(procedure: es.Exam | es.Screen, ear: str) -> dict[str, Any]:
    """What a result stores, as JSON gives it back."""
    shown: dict[str, Any] = {
        "verdict": None,
        "words": f"Full exam: thresholds measured with {len(procedure.trials)} tones.",
        "rule": None,
        "thresholds": [asdict(t) for t in procedure.thresholds()],
        "reference_thresholds": [],
        "tones": len(procedure.trials),
        "tested_hz": tested_frequencies(procedure.trials),
    }
    if isinstance(procedure, es.Screen):
        verdict = procedure.verdict()
        shown |= {
            "verdict": verdict.to_dict(),
            "sentence": verdict.sentence(ear, "2024"),
            "words": verdict.said(ear, "2024"),
            "rule": None if procedure.rule is None else procedure.rule.to_dict(),
            "reference_thresholds": [asdict(t) for t in reference_thresholds(procedure)],
        }
    plain: dict[str, Any] = json.loads(json.dumps(shown))
    return plain


def stored(
    procedure: es.Exam | es.Screen,
    ear: str,
    number: int,
    *,
    catches: Sequence[bool] = (),
    reference: ExamRecord | None = None,
) -> ExamBundle:
    """The rows of one ear's exam with its result."""
    design = procedure.to_dict()["design"]
    exam = ExamRecord(
        number, VISIT.id, ear, procedure.kind, "done", design, es.__version__,
        reference.id if reference else None,
    )  # fmt: skip
    at = START + timedelta(minutes=number)
    trials = [
        TrialRecord(
            100 * number + k, number, k, "tone", ear, trial.tone.frequency_hz,
            trial.tone.level_db_hl, trial.tone.level_db_hl, trial.heard, at, "jk",
        )
        for k, trial in enumerate(procedure.trials, 1)
    ]  # fmt: skip
    trials += [
        TrialRecord(100 * number + 90 + k, number, len(trials) + 1 + k, "catch", ear, 1000.0,
                    None, None, heard, at, "jk")
        for k, heard in enumerate(catches)
    ]  # fmt: skip
    digest = hashlib.sha256(repr(trials).encode()).hexdigest()
    result = ResultRecord(
        500 + number, number, at, "jk", shown_by(procedure, ear), design, es.__version__, digest
    )
    return ExamBundle(exam, tuple(trials), (result,), reference)


def screened(
    ear: str,
    number: int,
    old: Mapping[float, float],
    new: Mapping[float, float],
    *,
    catches: Sequence[bool] = (False, False),
    seed: int = 1,
    **options: Any,
) -> ExamBundle:
    """An ear screened against a clinic's audiogram of it."""
    audiogram = es.Audiogram(old)
    screen = es.Screen(audiogram, seed=seed, domain="audiometer", limits=es.Limits(), **options)
    answer(screen, es.Listener(new, seed=seed), catches)
    reference = ExamRecord(
        number - 1, 7, ear, "audiogram", "done", audiogram.to_dict(), es.__version__,
        measured_at=datetime(2024, 2, 1, 9, 0, tzinfo=UTC), source="clinic.csv",
    )  # fmt: skip
    return stored(screen, ear, number, catches=catches, reference=reference)


def examined(ear: str, number: int, truth: Mapping[float, float], tones: int = 30) -> ExamBundle:
    """A full exam of an ear."""
    exam = es.Exam.clinical(seed=2, max_tones=tones, limits=es.Limits())
    answer(exam, es.Listener(truth, seed=3), ())
    return stored(exam, ear, number)


def visit_of(*exams: ExamBundle, **changes: Any) -> VisitBundle:
    """A visit of one calibrated day with these exams."""
    bundle = VisitBundle(PERSON, VISIT, exams, DEVICE, CALIBRATION)
    return replace(bundle, **changes)


def with_shown(bundle: ExamBundle, **changes: Any) -> ExamBundle:
    """The same exam with another newest result."""
    newest = bundle.results[-1]
    return replace(
        bundle, results=(*bundle.results[:-1], replace(newest, shown={**newest.shown, **changes}))
    )


def with_verdict(bundle: ExamBundle, **changes: Any) -> ExamBundle:
    """The same exam with another verdict."""
    return with_shown(bundle, verdict={**bundle.results[-1].shown["verdict"], **changes})
