"""The listener's routes: answer the exams of one link, and nothing else.

No name, history or verdict goes out here unless the examiner has released it. What is asked next
never says whether it is a tone or silence in any other way than by its level.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from earshift.clinic.devices import why_not_go_on
from earshift.clinic.session import Session
from earshift.engine.refusal import Refusal
from earshift.store import Store
from earshift.store.accounts import Accounts
from earshift.web import models as m
from earshift.web import shown
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
    """The exams of one link: the first that is not finished is the one in force."""

    def __init__(self, request: Request, listener: Listener) -> None:
        state = request.app.state
        self._store: Store = state.store
        self._accounts: Accounts = state.accounts
        self.sessions: Sessions = state.sessions
        self.listener: Identity = listener
        self.today = shown.today_in(state.settings.zone)
        self._exams: list[int] = listener.scope["exams"]

    def current(self) -> int:
        """The exam in force; when all are over, the last."""
        for exam_id in self._exams:
            if self._store.exam(exam_id).state in ("open", "paused"):
                with self.sessions.looking(exam_id, self.listener.name) as session:
                    self.sessions.settle(session)
                    if session.record.state in ("open", "paused"):
                        return exam_id
        return self._exams[-1]

    @contextmanager
    def changing(self) -> Iterator[Session]:
        """The session in force, for this request alone."""
        with self.sessions.changing(self.current(), self.listener.name) as session:
            try:
                yield session
            except ValueError as error:
                raise shown.refusal(error) from None

    def of_trial(self, trial: int) -> tuple[int | None, int]:
        """The exam, and the trial's id within it, of a trial as this link counts them."""
        position, trial_id = divmod(trial, TRIALS_OF_EXAM)
        known = 1 <= position <= len(self._exams)
        return self._exams[position - 1] if known else None, trial_id

    def play(self, session: Session) -> m.Play:
        position = self._exams.index(session.record.id) + 1
        answer = shown.play(session, m.Counted(now=position, of=len(self._exams)))
        if answer.presentation is not None:
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
                verdict = result.shown["verdict"] or {}
                yield m.Released(words=result.shown["words"], decision=verdict.get("decision"))


Here = Annotated[Booth, Depends(Booth)]


@router.get("")
def now(here: Here) -> m.Play:
    """Where the listener is: after a reload or a lost connection, at the same tone."""
    with here.sessions.looking(here.current(), here.listener.name) as session:
        return here.play(session)


@router.post("/ready")
def ready(checked: m.Ready, here: Here) -> m.Play:
    """Left, right and volume were checked now; the exam goes on."""
    with here.changing() as session:
        make_ready(session, checked, here.today, "set-up checked by the listener")
        answer = here.play(session)
    if answer.state == "play":
        here.sessions.look_ahead(session.record.id, here.listener.name)
    return answer


@router.post("/answer")
def answer(given: m.GivenAnswer, here: Here) -> m.Play:
    """Sent twice, late or out of order it changes nothing: what is in force comes back."""
    exam_id, trial_id = here.of_trial(given.trial)
    if exam_id != here.current():
        return now(here)
    session = here.sessions.answer(
        exam_id, here.listener.name, trial_id, given.heard, given.reaction_ms
    )
    return here.play(session)


@router.post("/press", status_code=HTTPStatus.NO_CONTENT)
def press(pressed: m.Pressed, here: Here) -> None:
    """A press when nothing was to be answered: kept as a false alarm."""
    exam_id, _ = here.of_trial(pressed.trial)
    if exam_id == here.current():
        here.sessions.press(exam_id, here.listener.name, pressed.after_onset_ms)


@router.post("/stop")
def stop(stopped: m.Stopped, here: Here) -> m.Play:
    """The sound was stopped: what was playing is void, and the set-up has to be checked again."""
    with here.changing() as session:
        exam_id, trial_id = here.of_trial(stopped.trial or 0)
        if stopped.trial is None or exam_id == session.record.id:
            break_off(session, None if stopped.trial is None else trial_id, stopped.reason)
        return here.play(session)


# Shared with the desk at which an examiner answers


def make_ready(session: Session, checked: m.Ready, today: date, reason: str) -> None:
    """Go on after the set-up was checked, on the device that the exam was planned for."""
    wanted = session.delivery.sound
    if wanted is not None and wanted.fingerprint:
        given = None if checked.fingerprint is None else checked.fingerprint.model_dump()
        known = {"installation": "", **wanted.fingerprint}
        if given != known:
            raise Refusal(
                "this is not the device, earphones and volume that the test was planned for"
            )
    if session.record.state != "paused":
        return
    obstacle = why_not_go_on(session.store, session.record, today)
    if obstacle is not None:
        raise Refusal(obstacle)
    session.resume(reason)


def break_off(session: Session, trial_id: int | None, reason: str) -> None:
    """Void what was playing, or pause if nothing was; a stop that comes too late does nothing."""
    if session.record.state != "open":
        return
    if trial_id is None:
        session.pause(REASONS[reason])
    elif trial_id == session.trial_id:
        session.break_off(REASONS[reason])
