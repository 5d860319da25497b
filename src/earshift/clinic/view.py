"""What an exam says at one moment: the view that live page, result, try-it and reports share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np

from earshift.engine.audiogram import Audiogram
from earshift.engine.ears import trials_of
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
from earshift.engine.values import EARS
from earshift.engine.verdict import PersonVerdict, Verdict, reliability
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
    ear: str
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
            ear=trial.ear,
            frequency_hz=trial.frequency_hz,
            level=trial.played_db_hl,
            heard=trial.heard,
            void=trial.voided_at is not None,
            at=trial.at,
        )


@dataclass(frozen=True)
class ExamView:
    """An exam or screen at one moment. Levels are in `unit`, dB HL or relative dB.

    One of both ears says of itself what is said of the person, and has a view of each ear.
    """

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
    ears: tuple["ExamView", ...] = ()
    """Of both ears: what is said of each, right first."""

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
            "verdict": self._verdict_to_dict(),
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
        if self.ears:
            result["ears"] = {one.ear: one.to_result() for one in self.ears}
        return result

    def _verdict_to_dict(self) -> dict[str, Any] | None:
        if isinstance(self.verdict, PersonVerdict):  # each ear's stands with the ear
            return {"decision": self.verdict.decision, "tones": self.verdict.tones}
        return None if self.verdict is None else self.verdict.to_dict()


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
    since: Mapping[str, str] | None = None,
) -> ExamView:
    """The view of a procedure. Each estimate is computed once.

    `since` is the year or the day of each ear's reference, where it is known.
    `cautions` follow the verdict's words. An exam that has `ended` says so before its state does.
    What is not `judged` has no verdict, words and thresholds yet.
    """
    verdict = procedure.verdict() if judged and isinstance(procedure, Screen) else None
    before, shown, cautions = since or {}, tuple(trials), tuple(cautions)
    graded: str | None = None
    attention: float | None = None
    p_not_listening: float | None = None
    doubts: tuple[str, ...] = ()
    if verdict is not None:
        graded, attention = verdict.reliability, verdict.attention
        p_not_listening = verdict.p_not_listening
    elif judged:
        graded = reliability(catch_responses, presses, len(procedure.trials))
        if isinstance(procedure, ClinicalExam):
            graded, doubts = procedure.reliability, procedure.notes
            attention, p_not_listening = procedure.attention, procedure.state.p_idle
    under_way = not ended and state in ("open", "paused")
    whole = ExamView(
        kind=procedure.kind,
        ear=ear,
        state=state,
        unit=procedure.domain.intensity.unit,
        rule=procedure.rule if isinstance(procedure, Screen) else None,
        verdict=verdict,
        sentence="",
        words="",
        reliability=graded,
        attention=attention,
        p_not_listening=p_not_listening,
        thresholds=(),
        reference_thresholds=(),
        tested_hz=(),
        reference_tested_hz=(),
        tones=len(procedure.trials),
        max_tones=procedure.max_tones,
        catch_responses=tuple(catch_responses),
        presses=presses,
        complete=procedure.done,
        presented=presented,
        trials=shown,
    )

    def words(said: Verdict | None, whose: str, tones: int) -> str:
        """All that is said of an ear, or of both; nothing before the first answer."""
        if not judged:
            return ""
        if said is not None:
            told = [said.said(whose, before.get(whose))]
        else:
            told = [
                _exam_words(
                    procedure.done, under_way, tones, graded or "", catch_responses, presses
                )
            ]
        return " ".join(part for part in (*told, *doubts, *cautions) if part)

    def of(tested: str | None, whose: str, said: Verdict | None) -> ExamView:
        """What is said of one ear, which is None to a procedure that knows no other."""
        own = trials_of(procedure.trials, tested)
        return replace(
            whole,
            ear=whose,
            verdict=said,
            sentence="" if said is None else said.sentence(whose, before.get(whose)),
            words=words(said, whose, len(own)),
            thresholds=tuple(playable_thresholds(procedure, tested)) if judged else (),
            reference_thresholds=(
                tuple(reference_thresholds(procedure, tested))
                if isinstance(procedure, Screen)
                else ()
            ),
            tested_hz=tested_frequencies(own),
            reference_tested_hz=(
                reference_tested_frequencies(procedure, tested)
                if isinstance(procedure, Screen)
                else ()
            ),
            tones=len(own),
        )

    if procedure.ears is None:
        return of(None, ear, verdict)
    person = verdict if isinstance(verdict, PersonVerdict) else None
    parts = tuple(
        replace(
            of(one, one, None if person is None else getattr(person, one)),
            trials=tuple(trial for trial in shown if trial.ear == one),
            max_tones=-(-procedure.max_tones // 2) if person is not None else whole.max_tones,
        )
        for one in EARS
    )
    sentence = "" if person is None else person.of_person
    told = words(None, ear, whole.tones)
    if person is not None:
        each = (getattr(person, one).said(one, before.get(one)) for one in EARS)
        told = " ".join(part for part in (sentence, *each, *cautions) if part)
    return replace(whole, sentence=sentence, words=told, ears=parts)


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
    if graded in ("fair", "poor") and (any(catch_responses) or presses):
        words += (
            f" Reliability {graded}: {sum(catch_responses)} of {len(catch_responses)} silent "
            f"trials were reported as heard, and the button was pressed {presses} times when "
            "nothing was played."
        )
    return words


def playable_thresholds(procedure: Exam | Screen, ear: str | None = None) -> list[Threshold]:
    """Thresholds at the frequencies that may be played; beyond what may be played, bounds.

    `ear` is for a procedure of both ears, here and below.
    """
    domain, limits = procedure.domain, procedure.limits
    frequencies = domain.smooth[0].values
    if limits is None:
        return procedure.thresholds(list(frequencies), ear=ear)
    reach = {f: r for f, r in zip(frequencies, limits.reach(domain), strict=True) if r}
    found = procedure.thresholds(list(reach), ear=ear)
    return [within(t, *reach[t.frequency_hz]) for t in found]


def p_changed_by_tone(
    screen: Screen, known: KnownProbabilities, ear: str | None = None
) -> list[float]:
    """P(changed) after every tone; `known` is kept up to date, so that none is computed twice.

    What an undo has changed is computed anew. A screen by a rule remembers all of them itself. Of
    one of both ears it is that after each of its own tones.
    """
    if ear is not None:
        own, track = len(trials_of(screen.trials, ear)), screen.of(ear)
        earlier = [track.p_changed_after(count) for count in range(1, own)]
        return [*earlier, track.p_changed] if own else []  # the other ear's answers count, too
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


def _kept_reference(screen: Screen, ear: str | None) -> dict[str, Any] | None:
    """What the screen's design keeps of an ear's reference."""
    kept: dict[str, Any] | None = screen.to_dict()["design"]["reference"]
    return kept if ear is None or kept is None else kept[ear]


def reference_thresholds(screen: Screen, ear: str | None = None) -> list[Threshold]:
    """The reference's thresholds with their band; an audiogram's are as they were written down."""
    axis = screen.domain.smooth[0]
    frequencies = axis.values
    kept = _kept_reference(screen, ear)
    if kept is None:  # a notch or a limit on thresholds does without
        return []
    if kept["kind"] == "audiogram":
        return _as_written(Audiogram.from_dict(kept["data"]), frequencies)
    if screen.rules or screen.hypotheses is not None:
        return screen.reference_thresholds(frequencies, ear=ear)
    field = screen.reference_field if ear is None else screen.of(ear).reference_field
    mean, cov = field.latent(np.array([[axis.to_model(f)] for f in frequencies]))
    draws = positive_slope_samples(
        mean, cov, [0], SAMPLES, np.random.default_rng((screen.seed, _REFERENCE))
    )
    return thresholds_from_samples(
        [(f,) for f in frequencies], -draws[:, 1:] / draws[:, :1], screen.domain
    )


def tested_frequencies(trials: Iterable[Trial]) -> tuple[float, ...]:
    """Where tones were answered, in Hz, each once."""
    return tuple(sorted({trial.tone.frequency_hz for trial in trials}))


def reference_tested_frequencies(screen: Screen, ear: str | None = None) -> tuple[float, ...]:
    """Where the reference was measured, in Hz; a norm was not measured on this person."""
    kept = _kept_reference(screen, ear) or {}
    if kept.get("kind") == "audiogram":
        return tuple(one.frequency_hz for one in reference_thresholds(screen, ear))
    if kept.get("kind") == "exam":
        data = kept["data"]
        spoken_of = data["design"].get("ear")  # of an exam of both ears, the one that is meant
        own = [one for one in data["trials"] if spoken_of in (None, one.get("ear"))]
        return tuple(sorted({float(trial["frequency_hz"]) for trial in own}))
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
