"""Practice tones: learning the task, and without calibration finding the listener's own level.

Levels are in dB HL on a calibrated device. Without calibration they are relative to the device, and
the softest 1 kHz tone that the person hears is all there is to go by. Practice is stored and counts
for nothing in the estimate of the ear.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from earshift.engine.domain import Domain
from earshift.engine.limits import Limits
from earshift.records import TrialRecord

PRACTICE_HZ, PRACTICE_DB_HL, PRACTICE_TRIES = 1000.0, 40.0, 4
STEP_DB = 5.0  # between practice levels
SOUGHT_UP_TO_DB = 40.0  # in relative levels: a person who hears nothing up to here has no sound

TURN_DOWN = "The softest tone was heard: turn the volume down, or check that nothing amplifies it."
VOLUME_MOVED = "The volume is not what it was before the break: set it back."
TURN_UP = "No soft tone was heard: turn the volume back up, and check the headphones."
PROBLEMS = (TURN_DOWN, TURN_UP, VOLUME_MOVED)


def practice_trials(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The practice among trials that were not taken back."""
    return [trial for trial in trials if trial.kind == "practice" and trial.voided_at is None]


def detection_level_1khz(trials: Sequence[TrialRecord]) -> float | None:
    """The level of the practice tone that was heard twice in a row last, if one was."""
    for first, second in reversed(list(pairwise(practice_trials(trials)))):  # the newest counts
        if first.heard and second.heard and first.played_db_hl == second.played_db_hl:
            return first.played_db_hl
    return None


def learning_level(
    practised: Sequence[TrialRecord], limits: Limits, domain: Domain
) -> float | None:
    """Level in dB HL of the next tone to learn the task with; louder after each one missed.

    None when one was heard, or when enough were tried.
    """
    if len(practised) >= PRACTICE_TRIES or any(trial.heard for trial in practised):
        return None
    _, loudest = limits.range_at(domain)
    at_practice = domain.smooth[0].values.index(PRACTICE_HZ)
    wanted = PRACTICE_DB_HL + limits.above_missed_db * len(practised)
    return math.floor(min(wanted, float(loudest[at_practice])) / STEP_DB) * STEP_DB


def climbing_level(
    practised: Sequence[TrialRecord], before: float | None, softest: float
) -> float | None:
    """Without calibration: up from inaudible in small steps, until one tone was heard twice.

    The volume may have been changed in every break, so each is followed by such a climb; `before`
    is the detection level before the break, if it was found. Levels are relative.
    """
    if detection_level_1khz(practised) is not None:
        return None
    if not practised or practised[-1].played_db_hl is None:
        return softest if before is None else max(softest, before - 2 * STEP_DB)
    level = practised[-1].played_db_hl
    return level if practised[-1].heard else level + STEP_DB


def volume_problem(practised: Sequence[TrialRecord], before: float | None, softest: float) -> str:
    """Without calibration: why practice shows that the volume cannot be right; else nothing."""
    if not practised:
        return ""
    level = detection_level_1khz(practised)
    if level == softest:
        return TURN_DOWN
    if level is None:
        following = climbing_level(practised, before, softest)
        return TURN_UP if following is not None and following > SOUGHT_UP_TO_DB else ""
    moved = before is not None and abs(level - before) > STEP_DB
    return VOLUME_MOVED if moved else ""


def missed_practice(practised: Sequence[TrialRecord]) -> str:
    """What practice in dB HL says about the set-up when no tone of it was heard; else nothing."""
    if len(practised) < PRACTICE_TRIES or any(trial.heard for trial in practised):
        return ""
    loudest = max(trial.played_db_hl or 0.0 for trial in practised)
    return (
        f"No practice tone was heard up to {loudest:g} dB HL: check the earphones, the ear, the "
        "instructions and the response before relying on this result."
    )
