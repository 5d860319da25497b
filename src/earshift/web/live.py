"""Exams in progress: what follows each answer is worked out while the tone still plays.

A session is a fold over stored trials, so nothing here is needed to go on: a worker that dies, or
one that never saw the exam, reads it from the store. What is kept is only what would otherwise be
computed while somebody waits. Every request reads the store once; the version of what it finds says
whether what is kept still holds.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from earshift.clinic.plan import CLINIC_RULE
from earshift.clinic.session import AWAY, VOIDS_OF_TRIAL, Session
from earshift.clinic.view import KnownProbabilities
from earshift.engine.exam import Exam
from earshift.engine.norms import population_norm
from earshift.engine.refusal import Conflict
from earshift.engine.screen import Screen
from earshift.store import ExamChanged, Store
from earshift.web import live_models as lm
from earshift.web import views

MOST_PRESSES = 300
KEPT = 200  # exams at once, a few MB each; the one that was answered longest ago is forgotten
FINISHED_KEPT = 8  # of these, with a result: the page that shows it asks a few times more
ASIDE_S = 0.5  # for which work ahead of time waits at most while somebody waits for an answer


@dataclass
class _Open:
    """One exam that this worker has seen; its lock lets one request at a time work on it."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    session: Session | None = None
    probabilities: KnownProbabilities = field(default_factory=list)


class Sessions:
    """The exams that are going on in this process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: OrderedDict[int, _Open] = OrderedDict()
        self._lock = threading.Lock()
        self._finished: OrderedDict[int, None] = OrderedDict()
        self._waiting = 0  # requests that work on an exam now
        self._nobody_waits = threading.Condition(self._lock)
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lookahead")
        self._warm = threading.Event()

    def warm_up(self) -> None:
        """Load the engine and its tables in the background: the first listener does not wait."""

        def work() -> None:
            _warm_up()
            self._warm.set()

        threading.Thread(target=work, daemon=True).start()

    @property
    def warm(self) -> bool:
        """Whether the engine and its tables are loaded."""
        return self._warm.is_set()

    def close(self) -> None:
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _of(self, exam_id: int) -> _Open:
        with self._lock:
            found = self._open.setdefault(exam_id, _Open())
            self._open.move_to_end(exam_id)
            while len(self._open) > KEPT:
                self._open.popitem(last=False)
            return found

    @contextmanager
    def _alone(self, exam_id: int) -> Iterator[_Open]:
        """The exam for this request alone; work ahead of time steps aside meanwhile."""
        entry = self._of(exam_id)
        with self._lock:
            self._waiting += 1
        try:
            with entry.lock:
                yield entry
                if entry.session is not None:
                    self._keep_few(exam_id, finished=entry.session.record.state == "done")
        finally:
            with self._nobody_waits:
                self._waiting -= 1
                self._nobody_waits.notify()

    def _keep_few(self, exam_id: int, finished: bool) -> None:
        """Forget all but the newest of the exams that are finished."""
        with self._lock:
            self._finished.pop(exam_id, None)
            if finished:
                self._finished[exam_id] = None
            while len(self._finished) > FINISHED_KEPT:
                self._open.pop(self._finished.popitem(last=False)[0], None)

    @contextmanager
    def looking(self, exam_id: int, author: str) -> Iterator[Session]:
        """The session as stored now, for this request alone as long as it looks."""
        with self._alone(exam_id) as entry:
            yield self._current(entry, exam_id, author)

    @contextmanager
    def changing(
        self, exam_id: int, author: str, planned: Exam | Screen | None = None
    ) -> Iterator[Session]:
        """The same for a request that changes it otherwise than by an answer.

        An exam that was just opened is `planned` already.
        """
        with self._alone(exam_id) as entry:
            session = self._current(entry, exam_id, author, planned)
            entry.session = None  # what fails halfway is read anew
            yield session
            entry.session = session

    def _current(
        self, entry: _Open, exam_id: int, author: str, planned: Exam | Screen | None = None
    ) -> Session:
        """The session as the store has it at this moment, by one look at the store."""
        if entry.session is None:
            entry.session = Session(
                self._store, exam_id, author=author, practice=True, planned=planned
            )
        else:
            entry.session.author = author
            entry.session.refresh()
        return entry.session

    @contextmanager
    def answering(
        self,
        exam_id: int,
        author: str,
        trial_id: int,
        heard: bool,
        reaction_ms: float | None = None,
        played_db: float | None = None,
        *,
        answered_by: str,
    ) -> Iterator[Session]:
        """Store an answer to this trial, if that is the one in force now; the session after it.

        Sent twice, late or out of order it changes nothing; another answer of an examiner to a tone
        that was answered is refused. When the last tone is answered, the
        result is stored and the exam closed.
        """
        with self._alone(exam_id) as entry:
            session = self._current(entry, exam_id, author)
            self.settle(session)
            delivery = session.delivery
            if delivery.answered_by != answered_by:
                raise Conflict(f"this exam is answered by the {delivery.answered_by}")
            if played_db is not None and delivery.sound is not None:
                raise Conflict("the device plays only the level that was asked for")
            if session.record.state == "open" and session.trial_id == trial_id:
                self._answer(session, heard, reaction_ms, played_db)
            elif answered_by == "examiner" and _contradicts(session, trial_id, heard):
                raise Conflict("another answer to this tone is stored")
            yield session
            if session.record.state == "open":
                self.look_ahead(exam_id)

    def _answer(
        self, session: Session, heard: bool, reaction_ms: float | None, played_db: float | None
    ) -> None:
        try:
            session.answer(heard, reaction_ms, played_db)
        except ExamChanged:  # through another worker, or by the examiner, at this very moment
            session.refresh()
            return
        if session.volume_problem:
            session.begin_practice_again(session.volume_problem)
        elif _watched(session) and not session.done and session.away:
            session.pause(AWAY)
        self.settle(session)

    def press(self, exam_id: int, author: str, after_onset_ms: float | None) -> None:
        """Store a press in silence. Beyond some hundreds nothing more is learnt from them."""
        with self.looking(exam_id, author) as session:
            if session.record.state == "open" and session.presses < MOST_PRESSES:
                session.press(after_onset_ms)
                self.look_ahead(exam_id)

    def settle(self, session: Session) -> None:
        """Store the result of an exam whose last tone was answered.

        A server that died between the two has left that to whoever comes next.
        """
        if session.record.state == "open" and session.done:
            session.finish()

    def look_ahead(self, exam_id: int) -> None:
        """Work out what follows either answer, in the background."""
        self._worker.submit(self._look_ahead, exam_id)

    def _look_ahead(self, exam_id: int) -> None:
        # The store is not asked: if it has changed, whoever answers next will find out.
        for heard in (True, False):
            with self._nobody_waits:
                self._nobody_waits.wait_for(lambda: self._waiting == 0, ASIDE_S)
                entry = self._open.get(exam_id)
            if entry is None:
                return
            with entry.lock:
                if entry.session is not None:
                    entry.session.look_ahead(heard)

    # What an examiner sees

    def live(self, session: Session) -> lm.Live:
        """The exam as it stands: trials, thresholds, probability of change after every tone.

        A finished screen of an engine that is no longer there is shown as it was stored.
        """
        if session.record.state in ("done", "abandoned") and views.judged_otherwise(session.record):
            stored = self._store.results(session.record.id)
            if stored:
                return views.live_as_stored(session, stored[-1])
        return views.live(
            session.view(),
            session.procedure,
            self._of(session.record.id).probabilities,
            views.findings_of_exam(self._store, session.record),
        )


def _contradicts(session: Session, trial_id: int, heard: bool) -> bool:
    """Whether somebody else has answered this trial otherwise."""
    number = trial_id // VOIDS_OF_TRIAL + trial_id % VOIDS_OF_TRIAL
    stored = [one for one in session.trials if one.number == number and one.voided_at is None]
    return any(one.heard != heard for one in stored)


def _watched(session: Session) -> bool:
    """Whether a listener answers alone, but an examiner is there to be called."""
    delivery = session.delivery
    return delivery.answered_by == "listener" and delivery.mode == "supervised"


def _warm_up() -> None:
    screen = Screen(population_norm(), rule=CLINIC_RULE, domain="audiometer")
    screen.tell(screen.ask(), True)
    screen.ask()
    screen.verdict()
