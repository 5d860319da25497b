"""Exams under way: shown, answered, paused, ended, and followed by another."""

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Header, HTTPException, Response

from earshift.clinic.begin import begin_follow_up
from earshift.clinic.plan import Plan, plan_again, plan_continuation
from earshift.clinic.session import HELD, WAITING, Session
from earshift.engine.refusal import Conflict
from earshift.records import ExamRecord
from earshift.store import Store
from earshift.web import live_models as lm
from earshift.web import models as m
from earshift.web import views
from earshift.web.here import Clinic, Here
from earshift.web.identity import Examiner
from earshift.web.listen import break_off, make_ready

router = APIRouter(prefix="/api")


@router.get("/exams/{exam}")
def show_exam(exam: m.Id, here: Here, user: Examiner) -> m.Exam:
    exam_id = here.exam_id(exam)
    here.viewed(user, f"exams:{exam_id}")
    with here.sessions.looking(exam_id, user.name) as session:
        return here.exam(session, user.name)


@router.get("/exams/{exam}/live", responses={304: {"description": "nothing has changed"}})
def live_exam(
    exam: m.Id,
    here: Here,
    user: Examiner,
    response: Response,
    if_none_match: Annotated[str | None, Header(max_length=200)] = None,
) -> lm.Live:
    """The exam as it moves. Ask with If-None-Match, and nothing is sent when nothing changed."""
    exam_id = here.exam_id(exam)
    with here.sessions.looking(exam_id, user.name) as session:
        tag = f'"{exam_id}-{session.snapshot.version}"'
        if if_none_match == tag:
            raise HTTPException(HTTPStatus.NOT_MODIFIED)
        if if_none_match is None:  # later looks of the same page are the same look
            here.viewed(user, f"exams:{exam_id}")
        response.headers["ETag"] = tag
        return here.sessions.live(session)


@router.post("/exams/{exam}/answer")
def answer_exam(exam: m.Id, given: m.ExaminersAnswer, here: Here, user: Examiner) -> m.Play:
    """The examiner answers for a person who raises a hand. Sent twice it changes nothing."""
    with here.sessions.answering(
        here.row("exams", exam),
        user.name,
        given.trial,
        given.heard,
        given.reaction_ms,
        given.played_db,
        answered_by="examiner",
    ) as session:
        return views.play(session, views.position(session.snapshot))


@router.post("/exams/{exam}/ready")
def ready_exam(exam: m.Id, checked: m.Ready, here: Here, user: Examiner) -> m.Play:
    """The examiner has checked the set-up of a device that plays; the exam goes on."""
    with here.changing(exam, user.name, "open", "paused") as session:
        _require_examiners(session)
        make_ready(session, checked, here.today, "set-up checked by the examiner")
        return views.play(session, views.position(session.snapshot))


@router.post("/exams/{exam}/stop")
def stop_exam(exam: m.Id, stopped: m.Stopped, here: Here, user: Examiner) -> m.Play:
    """The sound was stopped at the desk: what was playing is void, and the set-up is to be
    checked again.
    """
    with here.changing(exam, user.name, "open", "paused") as session:
        _require_examiners(session)
        break_off(session, stopped.trial, stopped.reason)
        return views.play(session, views.position(session.snapshot))


def _require_examiners(session: Session) -> None:
    if session.delivery.answered_by == "listener":
        raise Conflict("the listener has to continue, after checking the set-up")


@router.post("/exams/{exam}/undo")
def undo_answer(exam: m.Id, why: m.Undo, here: Here, user: Examiner) -> m.Exam:
    """Take the newest answer back: it stays, void, and the same is asked again.

    With the trial that was in force it is done once, however often it is sent.
    """
    with here.changing(exam, user.name, "open") as session:
        if why.trial in (None, session.trial_id):
            session.undo(why.reason or "taken back by the examiner")
        return here.exam(session, user.name)


@router.post("/exams/{exam}/pause")
def pause_exam(exam: m.Id, why: m.Reason, here: Here, user: Examiner) -> m.Exam:
    with here.changing(exam, user.name, "open") as session:
        session.pause(f"{HELD}: {why.reason}" if why.reason else HELD)
        return here.exam(session, user.name)


@router.post("/exams/{exam}/resume")
def resume_exam(exam: m.Id, why: m.Reason, here: Here, user: Examiner) -> m.Exam:
    """Go on. A listener who answers alone goes on by checking the set-up, once they may."""
    with here.changing(exam, user.name, "open", "paused") as session:
        if session.held is not None:
            session.let_go()
            return here.exam(session, user.name)
        _require_examiners(session)
        if session.delivery.sound is not None:
            raise Conflict("check the set-up to continue the exam")
        session.resume(why.reason or "resumed by the examiner")
        return here.exam(session, user.name)


@router.post("/exams/{exam}/finish")
def finish_exam(exam: m.Id, why: m.Reason, here: Here, user: Examiner) -> m.Exam:
    """End the exam now, with what is known: the result is stored as it is shown."""
    with here.changing(exam, user.name, "open", "paused") as session:
        if not session.tones:
            raise Conflict("nothing has been answered yet: there is nothing to show")
        if session.record.state == "paused":
            session.resume(why.reason or "opened to be finished")
        session.finish()
        return here.exam(session, user.name)


@router.post("/exams/{exam}/abandon")
def abandon_exam(exam: m.Id, why: m.Reason, here: Here, user: Examiner) -> m.Exam:
    """Give the exam up: its answers stay, and it gets no result."""
    with here.changing(exam, user.name, "open", "paused") as session:
        session.abandon(why.reason or "given up by the examiner")
        return here.exam(session, user.name)


@router.post("/exams/{exam}/retest", status_code=HTTPStatus.CREATED)
def retest(
    exam: m.Id, here: Here, user: Examiner, ear: Literal["right", "left"] | None = None
) -> m.Exam:
    """The same question once more, at once and in the same visit; of both ears, or `ear` alone."""
    return _follow(here, exam, user.name, partial(plan_again, ear=ear))


@router.post("/exams/{exam}/continue", status_code=HTTPStatus.CREATED)
def continue_exam(exam: m.Id, here: Here, user: Examiner) -> m.Exam:
    """A full audiogram of the ear that begins with every tone of its screen."""
    return _follow(here, exam, user.name, plan_continuation)


def _follow(
    here: Clinic, handle: str, user: str, plan: Callable[[Store, ExamRecord], Plan]
) -> m.Exam:
    record = here.store.exam(here.exam_id(handle))
    follow_up = begin_follow_up(here.store, record, plan, today=here.today, author=user)
    return opened(here, *follow_up, user)


def opened(here: Clinic, exam: ExamRecord, plan: Plan, user: str) -> m.Exam:
    """A new exam as the examiner sees it; one that a device plays waits for its set-up."""
    with here.sessions.changing(exam.id, user, planned=plan.procedure) as session:
        if session.delivery.sound is not None:
            session.pause(WAITING)
        return here.exam(session, user)
