"""What an exam says at one moment: the view that live page, result, try-it and reports share."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np

from earshift.engine.audiogram import Audiogram
from earshift.engine.exam import ClinicalExam, Exam
from earshift.engine.rules import Rule
from earshift.engine.screen import Screen
from earshift.engine.thresholds import (
    SAMPLES,
    Threshold,
    positive_slope_samples,
    thresholds_from_samples,
)
from earshift.engine.tone import Trial
from earshift.engine.verdict import Verdict, reliability
from earshift.records import TrialRecord

NORMAL_95 = 1.96  # standard deviations on either side of the middle that hold 95 %
_REFERENCE = 12  # a stream of chance apart from those of the engine, which are below ten

# A tone and its answer, and P(changed) after it.
KnownProbabilities = list[tuple[tuple[object, ...], float]]


@dataclass(frozen=True)
class TrialView:
    """One presentation as the examiner sees it."""

    number: int
    kind: str
    frequency_hz: float
    level: float | None
    """As played, in the unit of the exam; silence has none."""
    heard: bool
    void: bool
    at: datetime | None
    """UTC; a simulated listener's answers have no time."""

    @classmethod
    def of(cls, trial: TrialRecord) -> "TrialView":
        return cls(
            number=trial.number,
            kind=trial.kind,
            frequency_hz=trial.frequency_hz,
            level=trial.played_db_hl,
            heard=trial.heard,
            void=trial.voided_at is not None,
            at=trial.at,
        )


@dataclass(frozen=True)
class ExamView:
    """An exam or screen at one moment. Levels are in `unit`, dB HL or relative dB."""

    kind: str
    """exam or screen"""
    ear: str
    state: str
    """open, paused, done or abandoned"""
    unit: str
    rule: Rule | None
    """Of a screen for a rule."""
    verdict: Verdict | None
    """Of a screen with answers."""
    sentence: str
    """A screen's verdict in one sentence; nothing before the first answer."""
    words: str
    """All that the exam says, in sentences; it begins with that one."""
    reliability: str | None
    """good, fair or poor, by the answers to silence; none before the first answer."""
    attention: float | None
    """Probability of having been attentive at the last tone; of clinical exams and screens."""
    p_not_listening: float | None
    """Probability that the answers do not follow the tones; likewise."""
    thresholds: tuple[Threshold, ...]
    """Now, at the frequencies that may be played; none before the first answer."""
    reference_thresholds: tuple[Threshold, ...]
    """Of a screen: what it is compared with."""
    tested_hz: tuple[float, ...]
    """Frequencies at which tones were answered: elsewhere thresholds are inferred."""
    reference_tested_hz: tuple[float, ...]
    """The same of the reference."""
    tones: int
    """Answered tones; practice and silence not counted."""
    max_tones: int
    catch_responses: tuple[bool, ...]
    """Answers to the silent trials: each "heard" is a false alarm."""
    presses: int
    """Presses of the button outside every response window."""
    complete: bool
    """Whether the procedure has what it needs."""
    presented: int
    """Presentations of this exam so far, those that were taken back included."""
    trials: tuple[TrialView, ...]
    """In order; tones that a full exam took over from its screen come first."""

    @property
    def catch_trials(self) -> int:
        return len(self.catch_responses)

    @property
    def false_alarms(self) -> int:
        return sum(self.catch_responses)

    @property
    def decision(self) -> str | None:
        return None if self.verdict is None else self.verdict.decision

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.verdict is None else tuple(self.verdict.notes)

    def to_result(self) -> dict[str, Any]:
        """As it is stored at the end of an exam: see `earshift.records.ResultRecord`."""
        result: dict[str, Any] = {
            "verdict": None if self.verdict is None else self.verdict.to_dict(),
            "rule": None if self.rule is None else self.rule.to_dict(),
            "thresholds": [asdict(one) for one in self.thresholds],
            "reference_thresholds": [asdict(one) for one in self.reference_thresholds],
            "tones": self.tones,
            "catch_trials": self.catch_trials,
            "false_alarms": self.false_alarms,
            "presses": self.presses,
            "unit": self.unit,
            "complete": self.complete,
            "words": self.words,
            "sentence": self.sentence,
            "tested_hz": list(self.tested_hz),
            "reference_tested_hz": list(self.reference_tested_hz),
        }
        if self.kind == "exam":  # a screen's verdict holds it
            result["reliability"] = self.reliability
            result["attention"] = self.attention
            result["p_not_listening"] = self.p_not_listening
        return result


def view_of(
    procedure: Exam | Screen,
    *,
    ear: str,
    state: str,
    trials: Iterable[TrialView],
    presented: int,
    catch_responses: Sequence[bool] = (),
    presses: int = 0,
    cautions: Iterable[str] = (),
    ended: bool = False,
    judged: bool = True,
    since: str | None = None,
) -> ExamView:
    """The view of a procedure. Each estimate is computed once.

    `since` is the year or the day of the reference, where it is known.
    `cautions` follow the verdict's words. An exam that has `ended` says so before its state does.
    What is not `judged` has no verdict, words and thresholds yet.
    """
    verdict = procedure.verdict() if judged and isinstance(procedure, Screen) else None
    graded, sentence, words = None, "", ""
    attention: float | None = None
    p_not_listening: float | None = None
    if verdict is not None:
        graded = verdict.reliability
        sentence, words = verdict.sentence(ear, since), verdict.said(ear, since)
        attention, p_not_listening = verdict.attention, verdict.p_not_listening
    elif judged:
        tones = len(procedure.trials)
        doubts: tuple[str, ...] = ()
        graded = reliability(catch_responses, presses, tones)
        if isinstance(procedure, ClinicalExam):
            graded, doubts = procedure.reliability, procedure.notes
            attention, p_not_listening = procedure.attention, procedure.state.p_idle
        under_way = not ended and state in ("open", "paused")
        words = _exam_words(procedure.done, under_way, tones, graded, catch_responses, presses)
        words = " ".join((words, *doubts))
    return ExamView(
        kind=procedure.kind,
        ear=ear,
        state=state,
        unit=procedure.domain.intensity.unit,
        rule=procedure.rule if isinstance(procedure, Screen) else None,
        verdict=verdict,
        sentence=sentence,
        words=" ".join(part for part in (words, *cautions) if part) if judged else "",
        reliability=graded,
        attention=attention,
        p_not_listening=p_not_listening,
        thresholds=tuple(playable_thresholds(procedure)) if judged else (),
        reference_thresholds=(
            tuple(reference_thresholds(procedure)) if isinstance(procedure, Screen) else ()
        ),
        tested_hz=tested_frequencies(procedure.trials),
        reference_tested_hz=(
            reference_tested_frequencies(procedure) if isinstance(procedure, Screen) else ()
        ),
        tones=len(procedure.trials),
        max_tones=procedure.max_tones,
        catch_responses=tuple(catch_responses),
        presses=presses,
        complete=procedure.done,
        presented=presented,
        trials=tuple(trials),
    )


def _exam_words(
    done: bool,
    under_way: bool,
    tones: int,
    graded: str,
    catch_responses: Sequence[bool],
    presses: int,
) -> str:
    """A full exam in a sentence or two."""
    full = "Full exam" if done else "Exam under way" if under_way else "Exam ended early"
    words = f"{full}: thresholds measured with {tones} tones."
    if graded != "good" and (any(catch_responses) or presses):
        words += (
            f" Reliability {graded}: {sum(catch_responses)} of {len(catch_responses)} silent "
            f"trials were reported as heard, and the button was pressed {presses} times when "
            "nothing was played."
        )
    return words


def playable_thresholds(procedure: Exam | Screen) -> list[Threshold]:
    """Thresholds at the frequencies that may be played; beyond what may be played, bounds."""
    domain, limits = procedure.domain, procedure.limits
    frequencies = domain.smooth[0].values
    if limits is None:
        return procedure.thresholds(list(frequencies))
    reach = {f: r for f, r in zip(frequencies, limits.reach(domain), strict=True) if r}
    return [within(t, *reach[t.frequency_hz]) for t in procedure.thresholds(list(reach))]


def p_changed_by_tone(screen: Screen, known: KnownProbabilities) -> list[float]:
    """P(changed) after every tone; `known` is kept up to date, so that none is computed twice.

    What an undo has changed is computed anew. A screen by a rule remembers all of them itself.
    """
    if screen.rule is not None:
        return [screen.p_changed_after(count) for count in range(1, len(screen.trials) + 1)]
    for count, trial in enumerate(screen.trials, start=1):
        key = (trial.tone.frequency_hz, trial.tone.level_db_hl, trial.heard)
        if len(known) >= count and known[count - 1][0] == key:
            continue
        del known[count - 1 :]
        known.append((key, screen.p_changed_after(count)))
    del known[len(screen.trials) :]
    return [p for _, p in known]


def within(threshold: Threshold, softest: float, loudest: float) -> Threshold:
    """The threshold with all that lies beyond these levels cut to them and said."""
    level, censored = threshold.level_db_hl, threshold.censored
    if level > loudest or (censored == "above" and level >= loudest):
        censored = "above"
    elif level < softest or (censored == "below" and level <= softest):
        censored = "below"
    cut = [
        min(max(value, softest), loudest)
        for value in (level, threshold.low_db_hl, threshold.high_db_hl)
    ]
    return replace(
        threshold, level_db_hl=cut[0], low_db_hl=cut[1], high_db_hl=cut[2], censored=censored
    )


def reference_thresholds(screen: Screen) -> list[Threshold]:
    """The reference's thresholds with their band; an audiogram's are as they were written down."""
    axis = screen.domain.smooth[0]
    frequencies = axis.values
    kept = screen.to_dict()["design"]["reference"]
    if kept is None:  # a notch or a limit on thresholds does without
        return []
    if kept["kind"] == "audiogram":
        return _as_written(Audiogram.from_dict(kept["data"]), frequencies)
    if screen.rules or screen.hypotheses is not None:
        return screen.reference_thresholds(frequencies)
    mean, cov = screen.reference_field.latent(np.array([[axis.to_model(f)] for f in frequencies]))
    draws = positive_slope_samples(
        mean, cov, [0], SAMPLES, np.random.default_rng((screen.seed, _REFERENCE))
    )
    return thresholds_from_samples(
        [(f,) for f in frequencies], -draws[:, 1:] / draws[:, :1], screen.domain
    )


def tested_frequencies(trials: Iterable[Trial]) -> tuple[float, ...]:
    """Where tones were answered, in Hz, each once."""
    return tuple(sorted({trial.tone.frequency_hz for trial in trials}))


def reference_tested_frequencies(screen: Screen) -> tuple[float, ...]:
    """Where the reference was measured, in Hz; a norm was not measured on this person."""
    kept = screen.to_dict()["design"]["reference"] or {}
    if kept.get("kind") == "audiogram":
        return tuple(one.frequency_hz for one in reference_thresholds(screen))
    if kept.get("kind") == "exam":
        trials = kept["data"]["trials"]
        return tuple(sorted({float(trial["frequency_hz"]) for trial in trials}))
    return ()


def _as_written(audiogram: Audiogram, frequencies: Sequence[float]) -> list[Threshold]:
    """The numbers of an audiogram at these frequencies, with the interval of its own SD."""
    reach = NORMAL_95 * audiogram.sd_db
    known = {f: (level, None) for f, level in audiogram.thresholds_db_hl.items()}
    silent = {f: (level, "above") for f, level in audiogram.no_response_db_hl.items()}
    return [
        Threshold(f, level, level - reach, level + reach, censored)
        for f, (level, censored) in sorted((known | silent).items())
        if f in frequencies
    ]
