"""The listener's routes: answer the exams of one link, and nothing else.

No name, history or verdict goes out here unless the examiner has released it. What is asked next
never says whether it is a tone or silence in any other way than by its level.
"""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request

from earshift.accounts import Accounts
from earshift.store import Store
from earshift.visit import Session
from earshift.web import models as m
from earshift.web import shown
from earshift.web.identity import Identity, Listener
from earshift.web.live import Sessions

router = APIRouter(prefix="/api/listen")

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
        self._exams: list[int] = listener.scope["exams"]

    def current(self) -> Session:
        """The session in force; when all exams are over, the last."""
        for exam_id in self._exams:
            session = self.sessions.load(exam_id, self.listener.name)
            if session.record.state in ("open", "paused"):
                return session
        return session

    def play(self, session: Session, problem: str | None = None) -> m.Play:
        number = self._exams.index(session.record.id) + 1
        answer = shown.play(session, m.Counted(now=number, of=len(self._exams)), problem)
        last = number == len(self._exams)
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
    return here.play(here.current())


@router.post("/ready")
def ready(checked: m.Ready, here: Here) -> m.Play:
    """Left, right and volume were checked now; the exam goes on."""
    session = here.current()
    wanted = session.delivery.sound
    if wanted is not None and wanted.fingerprint:
        given = None if checked.fingerprint is None else checked.fingerprint.model_dump()
        if given != dict(wanted.fingerprint):
            raise HTTPException(
                HTTPStatus.CONFLICT,
                "this is not the device, earphones and volume that the test was planned for",
            )
    if session.record.state == "paused":
        try:
            session.resume("set-up checked by the listener")
        except ValueError as error:
            raise shown.refusal(error) from None
        here.sessions.look_ahead(session.record.id)
    return here.play(session)


@router.post("/answer")
def answer(given: m.GivenAnswer, here: Here) -> m.Play:
    """Sent twice, late or out of order it changes nothing: what is in force comes back."""
    session = here.current()
    practised = len(session.trials)
    session = here.sessions.answer(
        session.record.id, here.listener.name, given.trial, given.heard, given.reaction_ms
    )
    problem = None
    if session.record.state == "paused" and len(session.trials) > practised:
        problem = session.trials[-1].void_reason
    return here.play(session, problem)


@router.post("/press", status_code=HTTPStatus.NO_CONTENT)
def press(pressed: m.Pressed, here: Here) -> None:
    """A press when nothing was to be answered: kept as a false alarm."""
    session = here.current()
    if session.record.state == "open" and pressed.trial <= len(session.trials) + 1:
        session.press(pressed.after_onset_ms)


@router.post("/stop")
def stop(stopped: m.Stopped, here: Here) -> m.Play:
    """The sound was stopped: what was playing is void, and the set-up has to be checked again."""
    session = here.current()
    if session.record.state == "open":
        reason = REASONS[stopped.reason]
        playing = stopped.trial is not None and not session.done
        try:
            if playing and session.presentation().number == stopped.trial:
                session.break_off(reason)
            elif stopped.trial is None or stopped.trial > len(session.trials):
                session.pause(reason)
        except ValueError as error:
            raise shown.refusal(error) from None
    return here.play(session)
