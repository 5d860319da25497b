"""An exam or screen from what is stored of it: design and live trials."""

from collections.abc import Sequence
from typing import Any

from earshift.clinic.practice import detection_level_1khz
from earshift.engine.exam import Exam
from earshift.engine.procedure import SCHEMA
from earshift.engine.refusal import Conflict
from earshift.engine.screen import Screen
from earshift.engine.values import BOTH
from earshift.records import ExamRecord, TrialRecord
from earshift.store import Store
from earshift.store.trials import live_trials

# Without calibration the person's own softest 1 kHz tone is all there is to go by: practice climbs
# to it from nothing, and what follows stays within so many dB above it.
START_ABOVE_OWN_DB, MOST_ABOVE_OWN_DB = 30.0, 60.0


def rebuild(record: ExamRecord, trials: Sequence[TrialRecord], presses: int = 0) -> Exam | Screen:
    """The exam or screen that a stored design and its live trials make.

    A tone counts at the level that was really played. Practice says nothing about the ear; without
    calibration it says how loud the tones may be.
    """
    kinds: dict[str, type[Exam] | type[Screen]] = {"exam": Exam, "screen": Screen}
    if record.kind not in kinds:
        raise Conflict("{exam} is an audiogram: it has no trials", exam=record.id)
    live = live_trials(trials)
    design = record.design
    both = design.get("ears") == BOTH
    if record.relative:
        own = detection_level_1khz(live)
        if own is not None:  # before that nothing but practice is played
            design = {**design, "limits": _above_own(design["limits"], own)}
    return kinds[record.kind].from_dict(
        {
            "kind": record.kind,
            "schema": SCHEMA,
            "design": design,
            "trials": [
                {
                    "frequency_hz": trial.frequency_hz,
                    "level_db_hl": trial.played_db_hl,
                    "heard": trial.heard,
                    **({"ear": trial.ear} if both else {}),
                }
                for trial in live
                if trial.kind == "tone"
            ],
            "catches": [trial.heard for trial in live if trial.kind == "catch"],
            "presses": presses,
        }
    )


def _above_own(limits: dict[str, Any], own: float) -> dict[str, Any]:
    """Limits in relative levels: counted from the person's own level of today."""
    cap = min(limits["cap_db_hl"], own + MOST_ABOVE_OWN_DB)
    return {**limits, "cap_db_hl": cap, "start_db_hl": min(own + START_ABOVE_OWN_DB, cap)}


def carried_trials(store: Store, record: ExamRecord) -> tuple[TrialRecord, ...]:
    """Tones and practice of the screen that an exam goes on from; its silence stays behind."""
    return () if record.continues is None else without_silence(store.trials(record.continues))


def without_silence(trials: Sequence[TrialRecord]) -> tuple[TrialRecord, ...]:
    return tuple(trial for trial in trials if trial.kind != "catch")
