"""The listener's routes: answer the exams of one link, and nothing else.

No name, history or verdict goes out here unless the examiner has released it. What is asked next
never says whether it is a tone or silence in any other way than by its level.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from earshift.clinic.devices import require_same_conditions
from earshift.clinic.session import RESTLESS, Session
from earshift.days import today
from earshift.engine.refusal import Conflict, Refusal
from earshift.store import Store
from earshift.store.accounts import Accounts
from earshift.web import models as m
from earshift.web import views
from earshift.web.identity import Identity, Listener
from earshift.web.live import Sessions

router = APIRouter(prefix="/api/listen")

# Every trial of a link has an id of its own: one that is sent late, for an ear that is done,
# must not pass for an answer about the other.
TRIALS_OF_EXAM = 10**9
REASONS = {
    "panic": "stopped by the listener",
    "pause": "paused by the listener",
    "hidden": "the page was hidden",
    "device": "the audio device changed",
    "interrupted": "the sound was interrupted",
    "error": "the player refused to play",
}


class Booth:
    """The exams of one link: the first that is not finished is the one in force.

    The look-up of the link says which exams those are; an answer to one of them then needs no more
    than one look at the store.
    """

    def __init__(self, request: Request, listener: Listener) -> None:
        state = request.app.state
        self._store: Store = state.store
        self._accounts: Accounts = state.accounts
        self.sessions: Sessions = state.sessions
        self.listener: Identity = listener
        self.today = today(state.settings.zone)
        self._exams: list[int] = listener.scope["exams"]
        self._unfinished: list[int] = listener.scope["unfinished"]

    @contextmanager
    def looking(self) -> Iterator[Session]:
        """The session in force; when all are over, the last. For this request alone."""
        with ExitStack() as stack:
            for exam_id in self._unfinished:
                looking = self.sessions.looking(exam_id, self.listener.name)
                session = stack.enter_context(looking)
                self.sessions.settle(session)
                if session.record.state in ("open", "paused"):
                    break
                stack.close()
            else:
                looking = self.sessions.looking(self._exams[-1], self.listener.name)
                session = stack.enter_context(looking)
            yield session

    @contextmanager
    def changing(self) -> Iterator[Session]:
        """The same for a request that changes it."""
        with self.looking() as session:
            exam_id = session.record.id
        with self.sessions.changing(exam_id, self.listener.name) as session:
            yield session

    def in_force(self, exam_id: int | None) -> bool:
        """Whether this exam is the first that was not finished when the link was looked up."""
        return exam_id is not None and exam_id == next(iter(self._unfinished), None)

    def of_trial(self, trial: int) -> tuple[int | None, int]:
        """The exam, and the trial's id within it, of a trial as this link counts them."""
        position, trial_id = divmod(trial, TRIALS_OF_EXAM)
        known = 1 <= position <= len(self._exams)
        return self._exams[position - 1] if known else None, trial_id

    def play(self, session: Session) -> m.Play:
        position = self._exams.index(session.record.id) + 1
        answer = views.play(session, m.Counted(now=position, of=len(self._exams)))
        if answer.presentation is not None:
            session.give_out()
            answer.presentation.trial += position * TRIALS_OF_EXAM
        last = position == len(self._exams)
        if answer.state == "done" and last:
            answer.state = "over"
        visit_id: int = self.listener.scope["visit"]
        if answer.state == "over" and self._accounts.released(visit_id):
            answer.released = list(self._verdicts())
        return answer

    def _verdicts(self) -> Iterator[m.Released]:
        for exam_id in self._exams:
            for result in self._store.results(exam_id)[-1:]:
                exam = self._store.exam(exam_id)
                for ear in exam.ears:
                    yield views.released(exam.of(ear), result.of(ear).shown)


Here = Annotated[Booth, Depends(Booth)]


@router.get("")
def now(here: Here) -> m.Play:
    """Where the listener is: after a reload or a lost connection, at the same tone."""
    with here.looking() as session:
        return here.play(session)


@router.post("/ready")
def ready(checked: m.Ready, here: Here) -> m.Play:
    """Left, right and volume were checked now; the exam goes on."""
    with here.changing() as session:
        if session.held is not None:  # the examiner lets them continue
            return here.play(session)
        make_ready(session, checked, here.today, "set-up checked by the listener")
        answer = here.play(session)
    if answer.state == "play":
        here.sessions.look_ahead(session.record.id)
    return answer


@router.post("/answer")
def answer(given: m.GivenAnswer, here: Here) -> m.Play:
    """Sent twice, late or out of order it changes nothing: what is in force comes back."""
    exam_id, trial_id = here.of_trial(given.trial)
    if exam_id is None or not here.in_force(exam_id):
        return now(here)
    if given.heard and given.reaction_ms is None:
        raise Refusal("a press says how long after the tone's onset it came", code="too-early")
    with here.sessions.answering(
        exam_id,
        here.listener.name,
        trial_id,
        given.heard,
        given.reaction_ms,
        answered_by="listener",
    ) as session:
        return here.play(session)


@router.post("/press", status_code=HTTPStatus.NO_CONTENT)
def press(pressed: m.Pressed, here: Here) -> None:
    """A press when nothing was to be answered: kept as a false alarm."""
    exam_id, _ = here.of_trial(pressed.trial)
    if exam_id is not None and here.in_force(exam_id):
        here.sessions.press(exam_id, here.listener.name, pressed.after_onset_ms)


@router.post("/stop")
def stop(stopped: m.Stopped, here: Here) -> m.Play:
    """The sound was stopped: what was playing is void, and the set-up has to be checked again."""
    with here.changing() as session:
        exam_id, trial_id = here.of_trial(stopped.trial or 0)
        if stopped.trial is None or exam_id == session.record.id:
            break_off(session, None if stopped.trial is None else trial_id, stopped.reason)
            if session.restless and session.record.state == "paused" and session.held is None:
                session.pause(RESTLESS)
        return here.play(session)


# Shared with the desk at which an examiner answers


def make_ready(session: Session, checked: m.Ready, today: date, reason: str) -> None:
    """Go on after the set-up was checked, on the device that the exam was planned for."""
    wanted = session.delivery.sound
    if wanted is not None and wanted.fingerprint:
        given = None if checked.fingerprint is None else checked.fingerprint.model_dump()
        known = {"installation": "", **wanted.fingerprint}
        if given != known:
            raise Conflict(
                "this is not the device, headphones and volume that the test was planned for"
            )
    if session.record.state != "paused":
        return
    require_same_conditions(session.store, session.record, today)
    session.resume(reason)


def break_off(session: Session, trial_id: int | None, reason: str) -> None:
    """Void what was playing, or pause if nothing was; a stop that comes too late does nothing."""
    if session.record.state != "open":
        return
    if trial_id is None:
        session.pause(REASONS[reason])
    elif trial_id == session.trial_id:
        session.break_off(REASONS[reason])
