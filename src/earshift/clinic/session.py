"""One exam of a stored person, driven trial by trial.

A `Session` is a fold over the stored trials of one exam. It says what to present next (tones,
silent catch trials, practice), writes every answer to the store before anything else happens, and
at the end stores the result as it was shown. The command line and the web drive the same calls.
"""

import copy
import math
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from earshift import __version__
from earshift.clinic.rebuild import carried_trials, live_trials, own_level, rebuild
from earshift.clinic.references import references
from earshift.clinic.view import reference_thresholds, within
from earshift.devices.delivery import Delivery, supervised_limits
from earshift.engine.exam import (
    Exam,
    Screen,
    reliability,
)
from earshift.engine.field import Threshold
from earshift.engine.refusal import Conflict, Refusal
from earshift.engine.stimulus import Tone, as_heard, finite
from earshift.records import ResultRecord, TrialRecord
from earshift.store import Store

CATCH_EVERY = 8  # one silent trial in every eight presentations
VOIDS_OF_TRIAL = 1000  # in a trial's id, its number comes before, and what was taken back after
PRACTICE_HZ, PRACTICE_DB_HL, PRACTICE_TRIES = 1000.0, 40.0, 4
OWN_LEVEL_STEP_DB, OWN_LEVEL_SOUGHT_UP_TO = 5.0, 40.0
TURN_DOWN = "The softest tone was heard: turn the volume down, or check that nothing amplifies it."
VOLUME_MOVED = "The volume is not what it was before the break: set it as it was."
TURN_UP = "No soft tone was heard: turn the volume up to where it was set, and check the earphones."
PROBLEMS = (TURN_DOWN, TURN_UP, VOLUME_MOVED)

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


class MovedOn(Conflict):
    """Another program has closed, paused or answered the exam; nothing was taken here."""


class Session:
    """One exam or screen of a stored person, driven trial by trial.

    >>> session = Session(store, exam.id, author="mh")
    >>> while not session.done:
    ...     session.answer(heard=present(session.presentation()))
    >>> session.finish()

    With `practice`, tones to learn the task with come first; they are stored and count for nothing.
    """

    def __init__(self, store: Store, exam_id: int, *, author: str, practice: bool = False) -> None:
        self.store, self.author = store, author
        self._practice = practice
        self._load(exam_id)

    def _load(self, exam_id: int) -> None:
        self.record = self.store.exam(exam_id)
        self.delivery = Delivery.from_dict(self.record.delivery)
        self.trials: tuple[TrialRecord, ...] = self.store.trials(exam_id)
        self.presses = len(self.store.presses(exam_id))
        self._carried = carried_trials(self.store, self.record)
        self.sitting = self._fold()
        self._opened_at = self.store.opened_at(exam_id)

    def _fold(self) -> Exam | Screen:
        return rebuild(self.record, (*self._carried, *self.trials), self.presses)

    @property
    def done(self) -> bool:
        """Advice: the exam has what it needs, and at least one silent trial vouches for it."""
        return self.sitting.done and not self._catch_missing

    @property
    def tones(self) -> int:
        """Tones answered so far; practice and silence not counted."""
        return len(self.sitting.trials)

    @property
    def catches(self) -> list[bool]:
        """Answers to the silent trials: each "heard" is a false alarm."""
        return [trial.heard for trial in live_trials(self.trials) if trial.kind == "catch"]

    @property
    def _catch_missing(self) -> bool:
        # A screen can decide before its first planned silent trial. Nobody would then know whether
        # this person answers to silence, so one is presented before the end.
        return self.tones > 0 and not self.catches

    @property
    def carried(self) -> tuple[TrialRecord, ...]:
        """Of a full exam that goes on from a screen: the screen's tones."""
        return tuple(trial for trial in self._carried if trial.kind == "tone")

    @property
    def trial_id(self) -> int:
        """Of what is to be presented now. Taking an answer back makes it another one.

        An answer that is on its way meanwhile is then an answer to nothing.
        """
        voided = len(self.trials) - len(live_trials(self.trials))
        return (len(self.trials) + 1) * VOIDS_OF_TRIAL + voided

    def presentation(self) -> Presentation:
        """What to present next. The same until it is answered, in this process or another."""
        practice = self._practice_level()
        if practice is not None:
            return self._present("practice", PRACTICE_HZ, practice)
        tone = self.sitting.ask()
        answered = self.tones + len(self.catches)
        if catch_due(self.sitting.seed, answered) or (self.sitting.done and self._catch_missing):
            return self._present("catch", tone.frequency_hz, None)
        return self._present("tone", tone.frequency_hz, tone.level_db_hl)

    def _present(self, kind: str, frequency_hz: float, level: float | None) -> Presentation:
        return Presentation(len(self.trials) + 1, kind, self.record.ear, frequency_hz, level)

    @property
    def _practised(self) -> list[TrialRecord]:
        return [trial for trial in live_trials(self.trials) if trial.kind == "practice"]

    def _practice_level(self) -> float | None:
        """Level of the next practice tone; none once one was heard or the exam has begun."""
        if self.delivery.relative:
            return self._climbing_level()
        tried = self._practised
        if self.tones + len(self.catches) > 0:
            return None
        wanted = self._practice and self.delivery.practice
        if not wanted or len(tried) >= PRACTICE_TRIES or any(t.heard for t in tried):
            return None
        limits = self.sitting.limits or supervised_limits()
        _, loudest = limits.range_at(self.sitting.domain)
        place = self.sitting.domain.smooth[0].values.index(PRACTICE_HZ)
        level = min(PRACTICE_DB_HL + limits.above_missed_db * len(tried), float(loudest[place]))
        return math.floor(level / OWN_LEVEL_STEP_DB) * OWN_LEVEL_STEP_DB

    def _climbing_level(self) -> float | None:
        """Without calibration: up from inaudible in small steps, until one is heard twice.

        The volume may have been changed in every break, so each is followed by such a climb.
        """
        tried = self._practised_now
        if own_level(tried) is not None:
            return None
        lowest = self.sitting.domain.intensity.values[0]
        if not tried or tried[-1].played_db_hl is None:
            known = self._own_before
            return lowest if known is None else max(lowest, known - 2 * OWN_LEVEL_STEP_DB)
        level = tried[-1].played_db_hl
        return level if tried[-1].heard else level + OWN_LEVEL_STEP_DB

    @property
    def _practised_now(self) -> list[TrialRecord]:
        """Practice since the exam was begun or gone on with."""
        return [trial for trial in self._practised if trial.at >= self._opened_at]

    @property
    def _own_before(self) -> float | None:
        """The person's own level before the last break, if it was found."""
        earlier = [t for t in (*self._carried, *self.trials) if t.at < self._opened_at]
        return own_level(live_trials(earlier))

    @property
    def volume_problem(self) -> str:
        """Without calibration: why practice shows that the volume cannot be right, if it does."""
        tried = self._practised_now
        if not self.delivery.relative or not tried:
            return ""
        own, before = own_level(tried), self._own_before
        if own == self.sitting.domain.intensity.values[0]:
            return TURN_DOWN
        if own is None:
            level = self._climbing_level()
            return TURN_UP if level is not None and level > OWN_LEVEL_SOUGHT_UP_TO else ""
        moved = before is not None and abs(own - before) > OWN_LEVEL_STEP_DB
        return VOLUME_MOVED if moved else ""

    @property
    def gap_ms(self) -> int:
        """How long to wait before the next presentation: drawn anew for each, by its number."""
        timing = self.delivery.timing
        rng = np.random.default_rng((self.sitting.seed, len(self.trials), _GAP))
        return round(rng.uniform(timing.gap_min_ms, timing.gap_max_ms))

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
        tone = Tone(asked.frequency_hz, 0.0 if level is None else level)
        self.sitting.domain.check(tone)
        self._refuse_if_moved_on()
        trial = self._append(
            asked, played_db_hl=level, heard=as_heard(heard), reaction_ms=reaction_ms
        )
        self._take(trial)
        return trial

    def _append(self, asked: Presentation, **given: Any) -> TrialRecord:
        return self.store.append_trial(
            self.record.id,
            author=self.author,
            kind=asked.kind,
            ear=asked.ear,
            frequency_hz=asked.frequency_hz,
            asked_db_hl=asked.level_db_hl,
            number=asked.number,
            **given,
        )

    def _take(self, trial: TrialRecord) -> None:
        self.trials = (*self.trials, trial)
        if trial.kind == "tone":
            assert trial.played_db_hl is not None
            self.sitting.tell(Tone(trial.frequency_hz, trial.played_db_hl), trial.heard)
        elif trial.kind == "catch" and isinstance(self.sitting, Screen):
            self.sitting.tell_catch(trial.heard)
        elif trial.kind == "practice" and self.delivery.relative:
            self.sitting = self._fold()  # it says how loud tones may be

    def after(self, heard: bool) -> "Session":
        """The session as it would be if what is asked now were answered so. Nothing is stored."""
        asked = self.presentation()
        other = copy.copy(self)
        other.sitting = self.sitting.fork()
        other._take(
            TrialRecord(
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
        )
        return other

    def break_off(self, reason: str) -> None:
        """Void what is being presented, and set the exam aside until the set-up is checked.

        The row stays: it may have been heard. The same is asked again under another number.
        """
        asked = self.presentation()
        self._refuse_if_moved_on()
        trial = self._append(asked, played_db_hl=asked.level_db_hl, heard=False, void_reason=reason)
        self.trials = (*self.trials, trial)
        self.pause(reason)

    def begin_practice_again(self, reason: str) -> None:
        """Take all practice back and set the exam aside: something in the set-up is wrong."""
        for trial in self._practised_now:
            self.store.void_trial(trial.id, author=self.author, reason=reason)
        self.pause(reason)
        self._load(self.record.id)

    def press(self, after_onset_ms: float | None = None) -> None:
        """Store a press of the button outside every response window."""
        self.store.add_press(
            self.record.id,
            author=self.author,
            number=len(self.trials) + 1,
            after_onset_ms=after_onset_ms,
        )
        self.presses += 1
        if isinstance(self.sitting, Screen):
            self.sitting.tell_press()

    def undo(self, reason: str = "taken back by the examiner") -> TrialRecord:
        """Take the newest answer back: the row stays and is voided, and the same is asked again."""
        live = live_trials(self.trials)
        if not live:
            raise Refusal("there is no answer to take back")
        self._refuse_if_moved_on()
        voided = self.store.void_trial(live[-1].id, author=self.author, reason=reason)
        self.trials = tuple(voided if t.id == voided.id else t for t in self.trials)
        self.sitting = self._fold()
        return voided

    def up_to_date(self) -> bool:
        """Whether the store still says what this session was made from."""
        exam_id = self.record.id
        return (
            self.store.exam(exam_id) == self.record
            and self.store.trials(exam_id) == self.trials
            and len(self.store.presses(exam_id)) == self.presses
        )

    def adopt(self, stored: "Session") -> None:
        """Stand for a session whose stored answer has made come true what this one looked at."""
        self.record, self.trials, self.author = stored.record, stored.trials, stored.author

    def _refuse_if_moved_on(self) -> None:
        """Two programs must not answer one exam: what the other did would change the question."""
        record = self.store.exam(self.record.id)
        if record.state != "open":
            raise MovedOn(f"exam {record.id} is {record.state} and takes no answers")
        if self.store.trials(record.id) != self.trials:
            raise MovedOn(
                f"another program is working on exam {record.id}, too; its answers are kept, "
                "this one was not taken: go on there, or resume here"
            )

    def pause(self, reason: str = "paused by the examiner") -> None:
        """Set the exam aside. Nothing is lost whether this is called or not."""
        self._set_state("paused", reason)

    def resume(self, reason: str = "resumed") -> None:
        """Go on with a paused exam, or one whose program has died; the version is recorded."""
        self._load(self.record.id)  # somebody else may have finished it during the pause
        if self.record.state not in ("open", "paused"):
            raise Refusal(
                f"exam {self.record.id} is {self.record.state}; only an open or paused exam "
                "can be gone on with"
            )
        self._set_state("open", reason)
        # The write above waited for an answer that a dying program may have left on its way.
        self._load(self.record.id)

    def abandon(self, reason: str) -> None:
        """Give the exam up. Its answers stay, and it gets no result."""
        self._set_state("abandoned", reason)

    def _set_state(self, state: str, reason: str) -> None:
        self.record = self.store.set_exam_state(
            self.record.id, state, author=self.author, reason=reason, engine_version=__version__
        )

    def finish(self) -> ResultRecord:
        """Store what is shown at the end, word for word, and close the exam.

        An exam that ends before its last tone is abandoned: it has a result, but is no full exam.
        """
        if not self.tones and not self.sitting.done:
            raise Refusal(f"exam {self.record.id} has no answers yet: there is nothing to show")
        cleared = isinstance(self.sitting, Screen) and self.sitting.decision == "unchanged"
        if cleared and self._catch_missing:
            raise Refusal(
                f"exam {self.record.id} cannot end as unchanged before a silent trial has shown "
                "whether silence is reported, too"
            )
        self._refuse_if_moved_on()
        # What reads records takes an exam that is done for a full one.
        cut_short = isinstance(self.sitting, Exam) and not self.sitting.done
        result = self.store.add_result(
            self.record.id,
            author=self.author,
            shown=self.shown(ended=True),
            settings=self.sitting.to_dict()["design"],
            engine_version=__version__,
            closes_as="abandoned" if cut_short else "done",
        )
        self.record = self.store.exam(self.record.id)
        return result

    def reference_words(self) -> str:
        """The reference of a screen with its date, and whether there are others."""
        number = self.record.reference_exam_id
        assert number is not None
        record = self.store.exam(number)
        visit = self.store.visit(record.visit_id)
        measured = record.measured_at
        if measured is None and record.kind != "audiogram":
            measured = visit.started_at
        zone = ZoneInfo(visit.zone)
        words = f"exam {number} of " + (
            "an unknown date" if measured is None else f"{measured.astimezone(zone):%Y-%m-%d}"
        )
        simulated = self.store.visit(self.record.visit_id).mode == "simulated"
        chosen = self.store.baseline(visit.person_id, record.ear)
        if chosen is not None and chosen.exam_id == number:
            words += f", the baseline chosen by {chosen.author}"
        usable, _ = references(self.store, visit.person_id, record.ear, simulated=simulated)
        others = [other.id for other in usable if other.id != number]
        if others:
            words += f" (others: {', '.join(map(str, others))}; --reference chooses)"
        return words

    @property
    def caution(self) -> str:
        """What the practice tones say about the set-up, if anything."""
        practice = self._practised
        if self.delivery.relative:
            return ""
        if len(practice) < PRACTICE_TRIES or any(trial.heard for trial in practice):
            return ""
        loudest = max(trial.played_db_hl or 0.0 for trial in practice)
        return (
            f"No practice tone was heard up to {loudest:g} dB HL: check earphones, ear, "
            "instruction and response before relying on this."
        )

    def thresholds(self) -> list[Threshold]:
        """Thresholds at the frequencies that may be played; beyond what may be played, bounds."""
        domain, limits = self.sitting.domain, self.sitting.limits
        frequencies = domain.smooth[0].values
        if limits is None:
            return self.sitting.thresholds(list(frequencies))
        reach = {f: r for f, r in zip(frequencies, limits.reach(domain), strict=True) if r}
        return [within(t, *reach[t.frequency_hz]) for t in self.sitting.thresholds(list(reach))]

    def shown(self, ended: bool = False) -> dict[str, Any]:
        """What the exam says now, or when it has `ended`: see `earshift.records.ResultRecord`."""
        thresholds = self.thresholds()
        catches = self.catches
        shown: dict[str, Any] = {
            "verdict": None,
            "rule": None,
            "thresholds": [asdict(threshold) for threshold in thresholds],
            "reference_thresholds": [],
            "tones": self.tones,
            "catch_trials": len(catches),
            "false_alarms": sum(catches),
            "presses": self.presses,
            "unit": self.sitting.domain.intensity.unit,
            "complete": self.sitting.done,
        }
        if isinstance(self.sitting, Exam):
            going_on = not ended and self.record.state in ("open", "paused")
            full = "Exam under way" if going_on else "Exam ended early"
            full = "Full exam" if self.sitting.done else full
            words = f"{full}: thresholds measured with {self.tones} tones."
            reliable = reliability(catches, self.presses, self.tones)
            if reliable != "good":
                words += (
                    f" Reliability {reliable}: {sum(catches)} of {len(catches)} silent trials were "
                    f"reported as heard, and the button was pressed {self.presses} times when "
                    "nothing was played."
                )
            return shown | {"words": self._with_cautions(words), "reliability": reliable}
        verdict = self.sitting.verdict()
        rule = self.sitting.rule
        return shown | {
            "verdict": verdict.to_dict(),
            "words": self._with_cautions(str(verdict)),
            "rule": None if rule is None else rule.to_dict(),
            "reference_thresholds": [asdict(t) for t in reference_thresholds(self.sitting)],
        }

    def _with_cautions(self, words: str) -> str:
        unit = ""
        if self.delivery.relative:
            unit = "Levels are relative to this device: they are no hearing levels."
        parts = (words, self.caution, *self.delivery.remarks, unit)
        return " ".join(part for part in parts if part)
