"""Visits as a BIDS data set: per visit a `_beh.tsv` with one row per tone, and its JSON sidecar.

It is made for sharing: no names, codes, birth dates, authors, notes or calendar dates. Tones have
their time in seconds since the visit's first one; visits keep their order by number.
"""

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from earshift import __version__
from earshift.formats.files import whole_folder
from earshift.formats.tables import age_at
from earshift.records import TrialRecord, VisitBundle

TASK = "earshift"
VERSION = "1.10.0"  # of the BIDS specification
COLUMNS: dict[str, dict[str, Any]] = {
    "onset": {
        "Description": "When the answer was taken, from the first of the visit",
        "Units": "s",
    },
    "exam": {"Description": "Number of the exam; the sidecar lists them"},
    "ear": {"Description": "Ear under test", "Levels": {"left": "left", "right": "right"}},
    "trial_type": {
        "Description": "What was presented",
        "Levels": {
            "tone": "a pure tone that counts",
            "catch": "silence, to find false alarms",
            "practice": "a tone that does not count",
        },
    },
    "frequency_hz": {"Description": "Frequency of the tone", "Units": "Hz"},
    "level_db_hl": {"Description": "Hearing level that was played, dB HL", "Units": "dB"},
    "level_relative_db": {
        "Description": "Level that was played on an uncalibrated device, which is no hearing level",
        "Units": "dB",
    },
    "heard": {"Description": "Answer", "Levels": {"1": "heard", "0": "not heard"}},
    "response_time": {"Description": "Time from the tone to the answer", "Units": "s"},
    "voided": {
        "Description": "Whether the answer was taken back",
        "Levels": {"1": "taken back", "0": "stands"},
    },
}
PARTICIPANTS = {
    "age": {
        "Description": "Age at the first visit here; 90 stands for 90 and more",
        "Units": "year",
    },
    "sex": {
        "Description": "Sex as recorded",
        "Levels": {"F": "female", "M": "male", "O": "other"},
    },
}
SEXES = {"female": "F", "male": "M", "other": "O"}
MISSING = "n/a"


def write(visits: Iterable[VisitBundle], folder: Path) -> int:
    """Write the visits as a new data set; how many visits there were, with or without tones."""
    count = 0
    with whole_folder(folder) as part:
        _save(
            part / "dataset_description.json",
            {
                "Name": "earshift exams",
                "BIDSVersion": VERSION,
                "DatasetType": "raw",
                "GeneratedBy": [{"Name": "earshift", "Version": __version__}],
            },
        )
        _save(part / "participants.json", PARTICIPANTS)
        (part / "README").write_text(
            "Exams of hearing: every tone and its answer, without identities or dates.\n"
        )
        with (part / "participants.tsv").open("w", encoding="utf-8", newline="") as file:
            people = csv.writer(file, delimiter="\t", lineterminator="\n")
            people.writerow(["participant_id", *PARTICIPANTS])
            for visit in visits:
                count += 1
                subject = f"sub-{visit.person.id:06d}"
                is_new = not (part / subject).exists()
                if any(exam.trials for exam in visit.exams):
                    _save_visit(part / subject, visit, subject)
                    if is_new:
                        people.writerow([subject, _or_missing(age_at(visit)), _sex(visit)])
    return count


def _save_visit(folder: Path, visit: VisitBundle, subject: str) -> None:
    session = f"ses-{visit.visit.id:06d}"
    place = folder / session / "beh"
    place.mkdir(parents=True)
    name = f"{subject}_{session}_task-{TASK}_beh"
    trials = sorted(
        (trial for exam in visit.exams for trial in exam.trials), key=lambda t: (t.at, t.id)
    )
    with (place / f"{name}.tsv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        table.writerow(COLUMNS)
        relative = {exam.exam.id for exam in visit.exams if exam.exam.relative}
        for trial in trials:
            table.writerow(_row(trial, trials[0], trial.exam_id in relative))
    _save(place / f"{name}.json", _sidecar(visit))


def _row(trial: TrialRecord, first: TrialRecord, relative: bool) -> list[object]:
    seconds = None if trial.reaction_ms is None else round(trial.reaction_ms / 1000, 6)
    return [
        round((trial.at - first.at).total_seconds(), 6),
        trial.exam_id,
        trial.ear,
        trial.kind,
        trial.frequency_hz,
        _or_missing(None if relative else trial.played_db_hl),
        _or_missing(trial.played_db_hl if relative else None),
        int(trial.heard),
        _or_missing(seconds),
        int(trial.voided_at is not None),
    ]


def _sidecar(visit: VisitBundle) -> dict[str, Any]:
    exams = []
    for bundle in visit.of_ears:
        result = bundle.results[-1].shown if bundle.results else {}
        exams.append(
            {
                "Exam": bundle.exam.id,
                "Kind": bundle.exam.kind,
                "Ear": bundle.exam.ear,
                "State": bundle.exam.state,
                "SoftwareVersion": bundle.exam.engine_version,
                "Verdict": result.get("verdict"),
                "Thresholds": result.get("thresholds"),
            }
        )
    device = visit.device
    return {
        "TaskName": TASK,
        "TaskDescription": "Pure tones at hearing levels chosen by the answers so far",
        "Mode": visit.visit.mode,
        "Transducer": "unknown" if device is None else device.transducer,
        "Calibrated": visit.calibration is not None,
        "Exams": exams,
        **COLUMNS,
    }


def _save(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _or_missing(value: object) -> object:
    return MISSING if value is None else value


def _sex(visit: VisitBundle) -> str:
    return SEXES.get(visit.person.sex or "", MISSING)
