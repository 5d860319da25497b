"""One exam of a stored person, driven trial by trial.

A `Session` is a fold over the stored trials of one exam. It says what to present next (tones,
silent catch trials, practice), writes every answer to the store before anything else happens, and
at the end stores the result as it was shown. The command line and the web drive the same calls.
"""

import copy
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np

from earshift import __version__
from earshift.clinic import practice as practising
from earshift.clinic.rebuild import rebuild, without_silence
from earshift.clinic.references import references
from earshift.clinic.view import ExamView, TrialView, reference_thresholds, view_of
from earshift.devices.delivery import Delivery, supervised_limits
from earshift.engine.checks import as_heard, finite
from earshift.engine.exam import ClinicalExam, Exam
from earshift.engine.refusal import Conflict, Refusal
from earshift.engine.screen import Screen
from earshift.engine.tone import Tone
from earshift.records import (
    ExamRecord,
    ExamSnapshot,
    ResultRecord,
    TrialRecord,
    measured_on,
    visit_day,
)
from earshift.store import Store
from earshift.store.errors import ExamChanged
from earshift.store.trials import live_trials

CATCH_EVERY = 8  # one silent trial in every eight presentations
VOIDS_OF_TRIAL = 1000  # in a trial's id, its number comes before, and what was taken back after

# A listener who seems to be away: no press in so many presentations, some of them well above what
# the reference says is heard.
AWAY_AFTER, AWAY_LOUD, AWAY_ABOVE_DB = 5, 2, 15.0
HELD = "paused by the examiner"
AWAY = "the listener did not press at all for several tones, some of them well above the reference"
WAITING = "waiting for the set-up"
MOST_BREAKS = 40  # that a listener may make of one exam alone; then the examiner is asked
RESTLESS = "the listener has stopped and begun again very often"
EARLY_MS = 100.0  # by which a device's clock may be ahead of ours

# Streams of chance apart from those of the engine, which uses the numbers below ten.
_CATCH, _GAP = 11, 13


@dataclass(frozen=True)
class Presentation:
    """What to present next. A catch trial is silence: it has no level."""

    number: int  # the trial's number when it is answered
    kind: str  # tone, catch or practice
    ear: str
    frequency_hz: float
    level_db_hl: float | None

    def __str__(self) -> str:
        if self.level_db_hl is None:
            return f"{self.ear} ear: present nothing, wait"
        return f"{self.ear} ear: {self.frequency_hz:g} Hz at {self.level_db_hl:g} dB HL"


def catch_due(seed: int, answered: int) -> bool:
    """Whether the presentation after so many answered ones is a planned silent one.

    One in every eight, at a place that chance fixes for each eight: never the first of them, so
    that two are never in a row.
    """
    block, place = divmod(answered, CATCH_EVERY)
    return place == np.random.default_rng((seed, block, _CATCH)).integers(1, CATCH_EVERY)


def holds(snapshot: ExamSnapshot) -> str | None:
    """Why the listener of an exam has to wait for the examiner, if they have to."""
    exam, reason = snapshot.exam, snapshot.reason
    waits = exam.state == "paused" and exam.delivery.get("answered_by") == "listener"
    return reason if waits and reason.startswith((HELD, AWAY, RESTLESS)) else None


MovedOn = ExamChanged  # an older name, which programs catch


class Session:
    """One exam or screen of a stored person, driven trial by trial.

    >>> session = Session(store, exam.id, author="mh")
    >>> while not session.done:
    ...     session.answer(heard=present(session.presentation()))
    >>> session.finish()

    With `practice`, tones to learn the task with come first; they are stored and count for nothing.
    An exam that was just opened is `planned` already and need not be built from the store again.
    """

    def __init__(
        self,
        store: Store,
        exam_id: int,
        *,
        author: str,
        practice: bool = False,
        planned: Exam | Screen | None = None,
    ) -> None:
        self.store, self.author = store, author
        self._practice = practice
        self._given_out = (0, 0.0)  # which trial, and when
        self._begin_from(store.snapshot(exam_id), planned)

    def _begin_from(self, snapshot: ExamSnapshot, planned: Exam | Screen | None = None) -> None:
        self.snapshot = snapshot
        self.delivery = Delivery.from_dict(snapshot.exam.delivery)
        self._carried = without_silence(snapshot.carried)
        answered = self.trials or self._carried or self.presses
        self.procedure = self._fold() if planned is None or answered else planned
        self._forget()

    def _fold(self) -> Exam | Screen:
        return rebuild(self.record, (*self._carried, *self.trials), self.presses)

    def _forget(self) -> None:
        """Drop what was computed for a question that is no longer asked."""
        self._next: Presentation | None = None
        self._ahead: dict[bool, Session] = {}

    def _stored(self, rows: int, **changed: Any) -> None:
        """Take into account what this session itself has stored, in so many rows."""
        self.snapshot = replace(self.snapshot, version=self.snapshot.version + rows, **changed)
        self._forget()

    def refresh(self) -> None:
        """Read the store once; what another program has changed is taken over."""
        snapshot = self.store.snapshot(self.record.id, self.snapshot)
        if snapshot.version == self.snapshot.version:
            self.snapshot = snapshot
        else:
            self._go_on_from(snapshot)

    def _go_on_from(self, snapshot: ExamSnapshot) -> None:
        """Take a newer snapshot over. Answers that only came on top are told, else all are folded.

        Telling gives what folding gives; it is the first fold of an exam that takes long.
        """
        known, count = self.snapshot, len(self.snapshot.trials)
        new = snapshot.trials[count:]
        on_top = (
            snapshot.trials[:count] == known.trials
            and snapshot.carried == known.carried
            and snapshot.exam.design == known.exam.design
            and snapshot.presses >= known.presses
        )
        if not on_top:
            self._begin_from(snapshot)
            return
        self.snapshot = snapshot
        self.delivery = Delivery.from_dict(snapshot.exam.delivery)
        self._forget()
        for trial in live_trials(new):
            self._tell(trial)
        if isinstance(self.procedure, Screen | ClinicalExam):
            for _ in range(snapshot.presses - known.presses):
                self.procedure.tell_press()

    @property
    def record(self) -> ExamRecord:
        return self.snapshot.exam

    @property
    def trials(self) -> tuple[TrialRecord, ...]:
        """All presentations so far, those that were taken back included."""
        return self.snapshot.trials

    @property
    def presses(self) -> int:
        """How often the button was pressed outside every response window."""
        return self.snapshot.presses

    @property
    def done(self) -> bool:
        """Advice: the exam has what it needs, and at least one silent trial vouches for it."""
        return self.procedure.done and not self._catch_missing

    @property
    def tones(self) -> int:
        """Tones answered so far; practice and silence not counted."""
        return len(self.procedure.trials)

    @property
    def catch_responses(self) -> list[bool]:
        """Answers to the silent trials: each "heard" is a false alarm."""
        return [trial.heard for trial in live_trials(self.trials) if trial.kind == "catch"]

    @property
    def _catch_missing(self) -> bool:
        # A screen can decide before its first planned silent trial. Nobody would then know whether
        # this person answers to silence, so one is presented before the end.
        return self.tones > 0 and not self.catch_responses

    @property
    def trial_id(self) -> int:
        """Of what is to be presented now. Taking an answer back makes it another one.

        An answer that is on its way meanwhile is then an answer to nothing.
        """
        answered, void = self.snapshot.counts
        return (answered + 1) * VOIDS_OF_TRIAL + void

    def presentation(self) -> Presentation:
        """What to present next. The same until it is answered, in this process or another."""
        if self._next is None:
            self._next = self._choose_next()
        return self._next

    def _choose_next(self) -> Presentation:
        practice = self._practice_tone()
        if practice is not None:
            return self._present("practice", practice, practice.level_db_hl)
        tone = self.procedure.ask()
        answered = self.tones + len(self.catch_responses)
        if catch_due(self.procedure.seed, answered) or (
            self.procedure.done and self._catch_missing
        ):
            return self._present("catch", tone, None)
        return self._present("tone", tone, tone.level_db_hl)

    def _present(self, kind: str, tone: Tone, level: float | None) -> Presentation:
        ear = tone.ear or self.record.ear  # silence is listened for where its tone would have been
        return Presentation(len(self.trials) + 1, kind, ear, tone.frequency_hz, level)

    def _practice_tone(self) -> Tone | None:
        """The next practice tone; none once one was heard in each ear or the exam has begun."""
        if self.delivery.relative:
            level = practising.climbing_level(
                self._practised_now, self._level_before, self._softest
            )
            return None if level is None else Tone(practising.PRACTICE_HZ, level)
        begun = self.tones + len(self.catch_responses) > 0
        if begun or not (self._practice and self.delivery.practice):
            return None
        limits = self.procedure.limits or supervised_limits()
        for ear, practised in self._practised_by_ear.items():
            level = practising.learning_level(practised, limits, self.procedure.domain)
            if level is not None:
                return Tone(practising.PRACTICE_HZ, level, ear)
        return None

    @property
    def _practised_by_ear(self) -> dict[str, list[TrialRecord]]:
        practised = practising.practice_trials(self.trials)
        return {ear: [one for one in practised if one.ear == ear] for ear in self.record.ears}

    @property
    def _softest(self) -> float:
        return self.procedure.domain.intensity.values[0]

    @property
    def _practised_now(self) -> list[TrialRecord]:
        """Practice since the exam was begun or resumed."""
        opened = self.snapshot.opened_after
        return [one for one in practising.practice_trials(self.trials) if one.number > opened]

    @property
    def _level_before(self) -> float | None:
        """The detection level at 1 kHz before the last break, if it was found."""
        earlier = self.trials[: self.snapshot.opened_after]
        return practising.detection_level_1khz([*self._carried, *earlier])

    @property
    def volume_problem(self) -> str:
        """Without calibration: why practice shows that the volume cannot be right, if it does."""
        if not self.delivery.relative:
            return ""
        return practising.volume_problem(self._practised_now, self._level_before, self._softest)

    @property
    def gap_ms(self) -> int:
        """How long to wait before the next presentation: drawn anew for each, by its number."""
        timing = self.delivery.timing
        rng = np.random.default_rng((self.procedure.seed, len(self.trials), _GAP))
        return round(rng.uniform(timing.gap_min_ms, timing.gap_max_ms))

    def give_out(self) -> None:
        """What is to be presented now goes to a device that plays it: nobody answers before that
        can have been. Given out again it is still the first time that counts."""
        if self._given_out[0] != self.trial_id:
            self._given_out = (self.trial_id, time.monotonic())

    def _require_played(self) -> None:
        """Refuse an answer to what cannot have been heard yet. Who did not give it out, another
        worker or one that was started again, does not know and refuses nothing."""
        trial_id, given_at = self._given_out
        soonest_ms = self.gap_ms + self.delivery.timing.window_opens_ms - EARLY_MS
        if trial_id == self.trial_id and 1000 * (time.monotonic() - given_at) < soonest_ms:
            raise Refusal(
                "this is an answer to a tone before it can have been played", code="too-early"
            )

    def answer(
        self, heard: object, reaction_ms: float | None = None, played_db_hl: float | None = None
    ) -> TrialRecord:
        """Store the answer to `presentation()`; when this returns, it is on the disk.

        `played_db_hl` says that another level was played than the one asked for. Bad input and a
        store that refuses change nothing.
        """
        asked = self.presentation()
        level = asked.level_db_hl
        if level is None and played_db_hl is not None:
            raise Refusal("a silent trial has no level; nothing is to be played")
        if played_db_hl is not None:
            level = finite(played_db_hl, "played_db_hl")
        opens = self.delivery.timing.window_opens_ms
        early = as_heard(heard) and reaction_ms is not None and reaction_ms < opens
        if early and self.delivery.sound is not None:  # an audiometer has a window of its own
            raise Refusal(
                f"nobody answers a tone within {opens:g} ms of its onset",
                code="too-early",
                got=reaction_ms,
            )
        self._require_played()
        tone = Tone(asked.frequency_hz, 0.0 if level is None else level)
        self.procedure.domain.check(tone)
        trial = self._append(
            asked, played_db_hl=level, heard=as_heard(heard), reaction_ms=reaction_ms
        )
        ahead = self._ahead.get(trial.heard) if played_db_hl is None else None
        self._stored(1, trials=(*self.trials, trial))
        if ahead is None:
            self._tell(trial)
        else:  # what the answer means and what follows it is known already
            self.procedure, self._next = ahead.procedure, ahead._next
        return trial

    def _append(self, asked: Presentation, **given: Any) -> TrialRecord:
        return self.store.append_trial(
            self.record.id,
            author=self.author,
            kind=asked.kind,
            ear=asked.ear,
            frequency_hz=asked.frequency_hz,
            asked_db_hl=asked.level_db_hl,
            expected=self.snapshot.counts,
            **given,
        )

    def _tell(self, trial: TrialRecord) -> None:
        """Let the procedure know of a trial that is among the session's already."""
        if trial.kind == "tone":
            assert trial.played_db_hl is not None
            ear = None if self.procedure.ears is None else trial.ear
            self.procedure.tell(Tone(trial.frequency_hz, trial.played_db_hl, ear), trial.heard)
        elif trial.kind == "catch" and isinstance(self.procedure, Screen | ClinicalExam):
            self.procedure.tell_catch(trial.heard)
        elif trial.kind == "practice" and self.delivery.relative:
            self.procedure = self._fold()  # it says how loud tones may be

    def look_ahead(self, heard: bool) -> None:
        """Work out what follows this answer, before it is given. Nothing is read or stored."""
        if self.record.state == "open" and heard not in self._ahead and not self.done:
            self._ahead[heard] = self._after(heard)

    def _after(self, heard: bool) -> "Session":
        """The session as it would be if what is asked now were answered so."""
        asked = self.presentation()
        trial = TrialRecord(
            id=0,
            exam_id=self.record.id,
            number=asked.number,
            kind=asked.kind,
            ear=asked.ear,
            frequency_hz=asked.frequency_hz,
            asked_db_hl=asked.level_db_hl,
            played_db_hl=asked.level_db_hl,
            heard=heard,
            at=datetime.now(UTC),
            author=self.author,
        )
        after = copy.copy(self)
        after.procedure = self.procedure.fork()
        after._stored(1, trials=(*self.trials, trial))
        after._tell(trial)
        if not after.done:
            after.presentation()  # its tone is chosen now, and kept
        return after

    def break_off(self, reason: str) -> None:
        """Void what is being presented, and set the exam aside until the set-up is checked.

        The row stays: it may have been heard. The same is asked again under another number.
        """
        asked = self.presentation()
        trial = self._append(asked, played_db_hl=asked.level_db_hl, heard=False, void_reason=reason)
        self._stored(2, trials=(*self.trials, trial))
        self.pause(reason)

    @property
    def held(self) -> str | None:
        """Why a listener who answers alone has to wait for the examiner; None: they need not."""
        return holds(self.snapshot)

    def let_go(self) -> None:
        """Let the listener of a held exam check the set-up and continue."""
        self._set_state("paused", WAITING)

    @property
    def away(self) -> bool:
        """Whether the listener seems to be away, by the presentations since the last break."""
        since = live_trials(self.trials[self.snapshot.opened_after :])
        last = [one for one in since if one.kind != "practice"][-AWAY_AFTER:]
        if len(last) < AWAY_AFTER or any(one.heard for one in last):
            return False
        return sum(self._well_above_reference(one) for one in last) >= AWAY_LOUD

    def _well_above_reference(self, trial: TrialRecord) -> bool:
        """Whether a tone was well above what its ear heard at the reference."""
        if trial.played_db_hl is None or not isinstance(self.procedure, Screen):
            return False
        ear = None if self.procedure.ears is None else trial.ear
        known = reference_thresholds(self.procedure, ear)
        if not known:
            return False
        octaves = np.log2([one.frequency_hz for one in known])
        levels = [one.level_db_hl for one in known]
        usual = np.interp(np.log2(trial.frequency_hz), octaves, levels)
        return bool(trial.played_db_hl >= usual + AWAY_ABOVE_DB)

    def begin_practice_again(self, reason: str) -> None:
        """Take all practice back and set the exam aside: something in the set-up is wrong."""
        for trial in self._practised_now:
            self.store.void_trial(trial.id, author=self.author, reason=reason)
        self.pause(reason)
        self.refresh()

    def press(self, after_onset_ms: float | None = None) -> None:
        """Store a press of the button outside every response window."""
        self.store.add_press(
            self.record.id,
            author=self.author,
            number=len(self.trials) + 1,
            after_onset_ms=after_onset_ms,
        )
        self._stored(1, presses=self.presses + 1)
        if isinstance(self.procedure, Screen | ClinicalExam):
            self.procedure.tell_press()

    def undo(self, reason: str = "taken back by the examiner") -> TrialRecord:
        """Take the newest answer back: the row stays and is voided, and the same is asked again."""
        live = live_trials(self.trials)
        if not live:
            raise Conflict("there is no answer to undo")
        voided = self.store.void_trial(
            live[-1].id, author=self.author, reason=reason, expected=self.snapshot.counts
        )
        self._stored(1, trials=tuple(voided if t.id == voided.id else t for t in self.trials))
        self.procedure = self._fold()
        return voided

    @property
    def restless(self) -> bool:
        """Whether the exam was set aside so often that somebody has to look."""
        return self.snapshot.states > 2 * MOST_BREAKS

    def pause(self, reason: str = HELD) -> None:
        """Set the exam aside. Nothing is lost whether this is called or not."""
        self._set_state("paused", reason)

    def resume(self, reason: str = "resumed") -> None:
        """Go on with a paused exam, or one whose program has died; the version is recorded."""
        self.refresh()  # somebody else may have finished it during the pause
        if self.record.state not in ("open", "paused"):
            raise Conflict(
                f"{{exam}} is {self.record.state}; only an open or paused exam can be resumed",
                exam=self.record.id,
            )
        self._set_state("open", reason)
        # The write above waited for an answer that a dying program may have left on its way.
        self._go_on_from(self.store.snapshot(self.record.id))

    def abandon(self, reason: str) -> None:
        """Give the exam up. Its answers stay, and it gets no result."""
        self._set_state("abandoned", reason)

    def _set_state(self, state: str, reason: str) -> None:
        record = self.store.set_exam_state(
            self.record.id, state, author=self.author, reason=reason, engine_version=__version__
        )
        self._stored(1, exam=record, reason=reason)

    def finish(self) -> ResultRecord:
        """Store what is shown at the end, word for word, and close the exam.

        An exam that ends before its last tone is abandoned: it has a result, but is no full exam.
        """
        if not self.tones and not self.procedure.done:
            raise Conflict(
                "{exam} has no answers yet: there is nothing to show", exam=self.record.id
            )
        cleared = {"unchanged", "no notch"} & self._decisions
        if cleared and self._catch_missing:
            raise Conflict(
                f"{{exam}} cannot end as {cleared.pop()} before at least one silent trial has been "
                "answered",
                exam=self.record.id,
            )
        # What reads records takes an exam that is done for a full one.
        cut_short = isinstance(self.procedure, Exam) and not self.procedure.done
        closes_as = "abandoned" if cut_short else "done"
        result = self.store.add_result(
            self.record.id,
            author=self.author,
            shown=self.view(ended=True).to_result(),
            settings=self.procedure.to_dict()["design"],
            engine_version=__version__,
            closes_as=closes_as,
            expected=self.snapshot.counts,
        )
        self._stored(1, exam=replace(self.record, state=closes_as))
        return result

    @property
    def _decisions(self) -> set[str]:
        """What a screen decides now of its ear, or of each; nothing of an exam."""
        if not isinstance(self.procedure, Screen):
            return set()
        if self.procedure.ears is None:
            return {self.procedure.decision}
        return set(self.procedure.decisions.values())

    def reference_words(self, ear: str | None = None) -> str:
        """What a screen compares its ear with, of both this one: the exam with its date, and
        whether there are others."""
        ear = ear or self.record.ear
        number = self.record.references[ear]
        record = self.store.exam(number)
        visit = self.store.visit(record.visit_id)
        day = measured_on(record, visit)
        words = f"exam {number} of {'an unknown date' if day is None else day}"
        simulated = self.store.visit(self.record.visit_id).mode == "simulated"
        chosen = self.store.baseline(visit.person_id, ear)
        if chosen is not None and chosen.exam_id == number:
            words += f", the baseline chosen by {chosen.author}"
        usable, _ = references(self.store, visit.person_id, ear, simulated=simulated)
        others = [other.id for other in usable if other.id != number]
        if others:
            words += f" (others: {', '.join(map(str, others))})"
        return words

    @property
    def caution(self) -> str:
        """What the practice tones say about the set-up, if anything."""
        if self.delivery.relative:
            return ""
        said = {practising.missed_practice(one) for one in self._practised_by_ear.values()}
        return " ".join(sorted(said - {""}))

    def view(self, ended: bool = False) -> ExamView:
        """What the exam says now, or when it has `ended`. Before the first answer that is little.

        An exam that is closed is judged by whatever answers it has.
        """
        unit = "Levels are relative to this device: they are not hearing levels."
        carried = [trial for trial in self._carried if trial.kind == "tone"]
        return view_of(
            self.procedure,
            ear=self.record.ear,
            state=self.record.state,
            trials=[TrialView.of(trial) for trial in (*carried, *self.trials)],
            presented=len(self.trials),
            catch_responses=self.catch_responses,
            presses=self.presses,
            cautions=(self.caution, *self.delivery.remarks, unit if self.delivery.relative else ""),
            ended=ended,
            judged=ended or self.tones > 0 or self.record.state == "done",
            since=self._since,
        )

    @cached_property
    def _since(self) -> dict[str, str]:
        """When each ear's reference was measured, as a verdict says it: the year, or in this one
        the day. An ear without a reference, or with one whose day nobody knows, is not in it.
        """
        now = visit_day(self.store.visit(self.record.visit_id))
        found = {}
        for ear, number in self.record.references.items():
            then = self.store.exam(number)
            day = measured_on(then, self.store.visit(then.visit_id))
            if day is not None:
                found[ear] = day.isoformat() if day.year == now.year else str(day.year)
        return found
