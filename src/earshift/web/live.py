"""Exams in progress: what follows each answer is worked out while the tone still plays.

A session is a fold over stored trials, so nothing here is needed to go on: a worker that dies, or
one that never saw the exam, reads it from the store. What is kept is only what would otherwise be
computed while somebody waits: the session as it would be after either answer.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from earshift.clinic.plan import CLINIC_RULE
from earshift.clinic.session import MovedOn, Session
from earshift.clinic.view import reference_thresholds
from earshift.engine.exam import Screen
from earshift.engine.field import Threshold
from earshift.engine.norms import population_norm
from earshift.records import TrialRecord
from earshift.store import Store

# What was told up to a tone, and P(changed) after it.
Known = list[tuple[tuple[object, ...], float]]
MOST_PRESSES = 300
KEPT = 100  # exams at once, some 20 MB each; the one that was answered longest ago is forgotten


@dataclass
class _Open:
    """One exam that this worker has seen; its lock lets one request at a time work on it."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    session: Session | None = None
    ahead: dict[bool, Session] = field(default_factory=dict)
    probabilities: Known = field(default_factory=list)


class Sessions:
    """The exams that are going on in this process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: OrderedDict[int, _Open] = OrderedDict()
        self._lock = threading.Lock()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lookahead")

    def warm_up(self) -> None:
        """Load the compiled engine in the background, so that the first listener does not wait."""
        threading.Thread(target=_warm_up, daemon=True).start()

    def close(self) -> None:
        # What is being worked out reads the store, which is closed next.
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _of(self, exam_id: int) -> _Open:
        with self._lock:
            found = self._open.setdefault(exam_id, _Open())
            self._open.move_to_end(exam_id)
            while len(self._open) > KEPT:
                self._open.popitem(last=False)
            return found

    @contextmanager
    def looking(self, exam_id: int, author: str) -> Iterator[Session]:
        """The session as stored now, for this request alone as long as it looks."""
        entry = self._of(exam_id)
        with entry.lock:
            yield self._current(entry, exam_id, author)

    @contextmanager
    def changing(self, exam_id: int, author: str) -> Iterator[Session]:
        """The same for a request that changes it otherwise than by an answer."""
        entry = self._of(exam_id)
        with entry.lock:
            try:
                yield self._current(entry, exam_id, author)
            finally:  # what was worked out ahead was for another question
                entry.session, entry.ahead = None, {}

    def _current(self, entry: _Open, exam_id: int, author: str) -> Session:
        session = entry.session
        if session is not None and session.up_to_date():
            session.author = author
            return session
        entry.ahead = {}
        entry.session = Session(self._store, exam_id, author=author, practice=True)
        return entry.session

    def answer(
        self,
        exam_id: int,
        author: str,
        trial_id: int,
        heard: bool,
        reaction_ms: float | None = None,
        played_db: float | None = None,
    ) -> Session:
        """Store an answer to this trial, if that is the one in force now.

        Sent twice, late or out of order it changes nothing. When the last tone is answered, the
        result is stored and the exam closed.
        """
        entry = self._of(exam_id)
        with entry.lock:
            session = self._current(entry, exam_id, author)
            self.settle(session)
            if session.record.state != "open" or session.trial_id != trial_id:
                return session
            ahead, entry.ahead = entry.ahead, {}
            try:
                session.answer(heard, reaction_ms, played_db)
            except MovedOn:  # through another worker, or by the examiner, at this very moment
                entry.session = None
                return self._current(entry, exam_id, author)
            if heard in ahead and played_db is None:
                ahead[heard].adopt(session)
                session = entry.session = ahead[heard]
            if session.volume_problem:
                session.begin_practice_again(session.volume_problem)
            self.settle(session)
            if session.record.state == "open":
                self.look_ahead(exam_id, author)
            return session

    def press(self, exam_id: int, author: str, after_onset_ms: float | None) -> None:
        """Store a press in silence. Beyond some hundreds nothing more is learnt from them."""
        entry = self._of(exam_id)
        with entry.lock:
            session = self._current(entry, exam_id, author)
            if session.record.state == "open" and session.presses < MOST_PRESSES:
                session.press(after_onset_ms)
                entry.ahead = {}  # it counts for how reliable the answers are
                self.look_ahead(exam_id, author)

    def settle(self, session: Session) -> None:
        """Store the result of an exam whose last tone was answered.

        A server that died between the two has left that to whoever comes next.
        """
        if session.record.state == "open" and session.done:
            session.finish()

    def look_ahead(self, exam_id: int, author: str) -> None:
        """Work out what follows either answer, in the background."""
        self._worker.submit(self._look_ahead, exam_id, author)

    def _look_ahead(self, exam_id: int, author: str) -> None:
        entry = self._of(exam_id)
        with entry.lock:
            session = self._current(entry, exam_id, author)
            if entry.ahead or session.record.state != "open" or session.done:
                return  # it was answered meanwhile
            for heard in (True, False):
                ahead = session.after(heard)
                if not ahead.done:
                    ahead.presentation()  # its tone is chosen now, and kept
                entry.ahead[heard] = ahead

    # What an examiner sees

    def live(self, exam_id: int, author: str) -> dict[str, Any]:
        """The exam as it stands: trials, thresholds, probability of change after every tone."""
        entry = self._of(exam_id)
        with entry.lock:
            session = self._current(entry, exam_id, author)
            return live_view(session, entry.probabilities)


def _warm_up() -> None:
    screen = Screen(population_norm(), rule=CLINIC_RULE, domain="audiometer")
    screen.tell(screen.ask(), True)
    screen.ask()
    screen.verdict()


def live_view(session: Session, known: Known | None = None) -> dict[str, Any]:
    """A session in the words of the API; `known` remembers what was worked out before."""
    sitting, record = session.sitting, session.record
    shown = session.shown() if session.tones or record.state == "done" else None
    verdict = shown["verdict"] if shown else None
    limits = None
    if isinstance(sitting, Screen) and sitting.rule is not None:
        settings = sitting.settings
        limits = {"changed_at": settings.changed_at, "unchanged_at": settings.unchanged_at}
    reference = reference_thresholds(sitting) if isinstance(sitting, Screen) else []
    thresholds = session.thresholds() if shown else []
    return {
        "number": len(session.trials),
        "kind": record.kind,
        "ear": record.ear,
        "state": record.state,
        "unit": sitting.domain.intensity.unit,
        "rule": sitting.rule.name if isinstance(sitting, Screen) and sitting.rule else None,
        "words": shown["words"] if shown else "",
        "decision": verdict["decision"] if verdict else None,
        "reliability": sitting.reliability if isinstance(sitting, Screen) and shown else None,
        "notes": list(verdict["notes"]) if verdict else [],
        "tones": session.tones,
        "max_tones": sitting.max_tones,
        "catch_trials": len(session.catches),
        "false_alarms": sum(session.catches),
        "presses": session.presses,
        "trials": [trial_shown(trial) for trial in (*session.carried, *session.trials)],
        "thresholds": [threshold_shown(t) for t in thresholds],
        "reference": [threshold_shown(t) for t in reference],
        "p_changed": probabilities(sitting, [] if known is None else known)
        if isinstance(sitting, Screen)
        else [],
        "limits": limits,
    }


def probabilities(screen: Screen, known: Known) -> list[dict[str, Any]]:
    """P(changed) after every tone. What an undo has changed is worked out anew."""
    for count in range(1, len(screen.trials) + 1):
        trial = screen.trials[count - 1]
        key = (trial.tone.frequency_hz, trial.tone.level_db_hl, trial.heard)
        if len(known) >= count and known[count - 1][0] == key:
            continue
        del known[count - 1 :]
        known.append((key, screen.p_changed_after(count)))
    del known[len(screen.trials) :]
    return [{"tone": n, "p": p} for n, (_, p) in enumerate(known, start=1)]


def threshold_shown(threshold: Threshold) -> dict[str, Any]:
    """A threshold as the API gives it: its unit stands beside the list."""
    return {
        "frequency_hz": threshold.frequency_hz,
        "level": threshold.level_db_hl,
        "low": threshold.low_db_hl,
        "high": threshold.high_db_hl,
        "censored": threshold.censored,
    }


def trial_shown(trial: TrialRecord) -> dict[str, Any]:
    return {
        "number": trial.number,
        "kind": trial.kind,
        "frequency_hz": trial.frequency_hz,
        "level": trial.played_db_hl,
        "heard": trial.heard,
        "void": trial.voided_at is not None,
        "at": trial.at,
    }
