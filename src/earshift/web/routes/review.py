"""Review and sign-off of visits, letters, follow-ups, and the noise of test rooms."""

from datetime import date
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from earshift import acts
from earshift.clinic import review as clinic
from earshift.clinic.worklist import closed_ears
from earshift.devices.noise import LIMITS, OVER, check_noise
from earshift.engine.refusal import Conflict
from earshift.records import ExamBundle, ExamRecord, VisitBundle, measured_on, visit_day
from earshift.report.audiogram import Reading
from earshift.report.findings import as_shown, finding_sentences, noise_sentence
from earshift.report.tables import readings, typed_in
from earshift.store import Store
from earshift.web import models as m
from earshift.web import review_models as r
from earshift.web import views
from earshift.web.here import Clinic, Here
from earshift.web.identity import Examiner, Reviewer, address_of, require_session

router = APIRouter(prefix="/api")


def _findings(store: Store, found: tuple[acts.ShiftFinding, ...]) -> list[r.FindingShown]:
    handles = store.handles("exams", [one.exam_id for one in found])
    return [
        r.FindingShown(
            exam=handles[one.exam_id],
            sentences=finding_sentences(one),
            **{name: getattr(one, name) for name in r.FindingShown.model_fields.keys() - _OWN},
        )
        for one in found
    ]


_OWN = {"exam", "sentences"}


def _signatures(signatures: tuple[acts.Signature, ...]) -> list[r.SignatureShown]:
    hashes = {one.id: one.sha256 for one in signatures}
    return [
        r.SignatureShown(
            name=one.name,
            meaning=one.meaning,
            author=one.author,
            at=one.at,
            sha256=one.sha256,
            amends=hashes.get(one.amends_id or 0),
        )
        for one in signatures
    ]


def _follow_ups(done: tuple[acts.FollowUp, ...]) -> list[r.FollowUpShown]:
    return [r.FollowUpShown.model_validate(one) for one in done]


def _shown(here: Clinic, visit_id: int) -> r.ReviewShown:
    store = here.store
    found = clinic.review_of(store, visit_id)
    now = found.now
    exams = [one.exam for one in now.exams]
    transducer = "unknown" if now.device is None else now.device.transducer
    return r.ReviewShown(
        person=views.person(store, now.person),
        on=visit_day(now.visit),
        exams=views.summaries(store, exams),
        ears=_compared(store, now),
        cautions=[one.text for one in found.cautions],
        findings=_findings(store, now.findings),
        room_noise=None if now.room_noise is None else noise_sentence(now.room_noise, transducer),
        signatures=_signatures(found.signatures),
        follow_ups=_follow_ups(found.follow_ups),
        seen=found.seen,
        changed_since=found.changed_since,
        obstacle=found.obstacle,
        letter=found.letter_by is not None,
        letter_by=found.letter_by,
        sender=found.site.name,
        closed=_closed(store, exams),
    )


def _compared(store: Store, now: VisitBundle) -> list[r.EarCompared]:
    """Every ear with thresholds, beside its baseline or what its screen was compared with."""
    handles = store.handles("exams", [one.exam.id for one in now.exams])
    findings = {(one.exam_id, one.ear): one for one in now.findings}
    shown = []
    for part in now.of_ears:
        exam, typed = part.exam, part.exam.kind == "audiogram"
        stored = typed_in(exam) if typed else part.results[-1].shown if part.results else {}
        finding = findings.get((exam.id, exam.ear))
        against = stored if finding is None else as_shown(finding)
        thresholds = readings(stored, "thresholds")
        if not thresholds:
            continue
        shown.append(
            r.EarCompared(
                exam=handles[exam.id],
                ear=exam.ear,
                kind=exam.kind,
                unit=exam.unit,
                on=measured_on(exam, now.visit),
                thresholds=[_reading(one) for one in thresholds],
                tested_hz=None if typed else stored.get("tested_hz", views.played_hz(part.trials)),
                reference=[_reading(one) for one in readings(against, "reference_thresholds")],
                reference_on=_reference_day(store, part)
                if finding is None
                else finding.baseline_day,
                reference_tested_hz=against.get("reference_tested_hz"),
                shifts=views.shift_picture(against)["shifts"],
            )
        )
    return shown


def _reading(one: Reading) -> r.ReadingShown:
    known = one.low_db_hl != one.high_db_hl  # where nobody knows the interval its ends are one
    return r.ReadingShown(
        frequency_hz=one.frequency_hz,
        level=one.level_db_hl,
        low=one.low_db_hl if known else None,
        high=one.high_db_hl if known else None,
        censored="above" if one.no_response else "below" if one.better else None,
    )


def _reference_day(store: Store, part: ExamBundle) -> date | None:
    known = part.reference
    return None if known is None else measured_on(known, store.visit(known.visit_id))


def _closed(store: Store, exams: list[ExamRecord]) -> list[r.ClosedEar]:
    handles = store.handles("exams", [one.id for one in exams])
    return [
        r.ClosedEar(
            exam=handles[exam.id], ear=ear, author=said.author, at=said.at, reason=said.reason
        )
        for exam in exams
        for ear, said in closed_ears(store, exam).items()
    ]


@router.get("/visits/{visit_id}/review")
def review(visit_id: m.Id, here: Here, user: Examiner) -> r.ReviewShown:
    """What a visit found, who signed it, and what was done since."""
    number = here.row("visits", visit_id)
    here.viewed(user, f"visits:{number}")
    return _shown(here, number)


@router.get("/people/{person}/reviews")
def reviews(person: m.Id, here: Here, user: Examiner) -> list[r.VisitReview]:
    """Somebody's visits that can be signed or were, newest first."""
    store, found = here.store, here.person(person)
    here.viewed(user, f"people:{found.id}")
    listed = clinic.reviews_of(store, found.id)
    handles = store.handles("visits", [one.visit.id for one in listed])
    return [
        r.VisitReview(
            visit=handles[one.visit.id],
            on=visit_day(one.visit),
            findings=_findings(store, one.findings),
            signature=next(iter(_signatures(one.signatures)[-1:]), None),
            follow_ups=_follow_ups(one.follow_ups),
        )
        for one in listed
    ]


@router.post("/visits/{visit_id}/sign", status_code=HTTPStatus.CREATED)
def sign(
    visit_id: m.Id, new: r.NewSignature, here: Here, user: Reviewer, request: Request
) -> r.ReviewShown:
    """Sign a visit as it was seen; with `amends`, anew after that signature. The signer types the
    password for each signature, so that nobody signs at a page that another one left open."""
    if not here.settings.single_user:
        key = require_session(request, user)
        here.accounts.prove(key, new.password, new.code, address_of(request))
    number = here.row("visits", visit_id)
    known = {one.sha256: one.id for one in here.store.signatures(number)}
    if new.amends is not None and new.amends not in known:
        raise Conflict("the signature to amend is not one of this visit")
    clinic.sign(
        here.store,
        number,
        author=user.name,
        name=new.name,
        meaning=new.meaning,
        seen=new.seen,
        amends=None if new.amends is None else known[new.amends],
        reason=new.reason,
    )
    return _shown(here, number)


@router.post("/exams/{exam}/work-related", status_code=HTTPStatus.CREATED)
def work_related(exam: m.Id, word: r.NewWorkRelation, here: Here, user: Reviewer) -> None:
    """A professional's word on whether a shift is related to work; null takes it back."""
    number = here.row("exams", exam)
    clinic.say_work_related(
        here.store,
        number,
        word.related,
        author=user.name,
        name=word.name,
        reason=word.reason,
        ears=word.ears,
    )


@router.post("/visits/{visit_id}/follow-ups", status_code=HTTPStatus.CREATED)
def follow_up(visit_id: m.Id, new: r.NewFollowUp, here: Here, user: Examiner) -> None:
    """Something that was done because of a shift; with `done` false, was not after all."""
    clinic.add_follow_up(
        here.store, here.row("visits", visit_id), author=user.name, **new.model_dump()
    )


@router.get("/visits/{visit_id}/letter.html", response_class=HTMLResponse)
def letter_html(visit_id: m.Id, here: Here, user: Examiner) -> HTMLResponse:
    """The letter that tells the person of a shift, from what was signed."""
    from earshift.report.letter import render_letter

    number = here.row("visits", visit_id)
    here.viewed(user, f"visits:{number}")
    kept = {"Content-Disposition": 'attachment; filename="letter.html"'}
    return HTMLResponse(render_letter(*clinic.letter_of(here.store, number)), headers=kept)


@router.get(
    "/visits/{visit_id}/letter.pdf",
    response_class=Response,
    responses={200: {"content": {"application/pdf": {}}}},
)
def letter_file(
    visit_id: m.Id,
    here: Here,
    user: Examiner,
    paper: Annotated[str, Query(pattern="^(a4|letter)$")] = "a4",
) -> Response:
    """The same as PDF."""
    from earshift.report.letter_pdf import letter_pdf

    number = here.row("visits", visit_id)
    here.viewed(user, f"visits:{number}")
    content = letter_pdf(*clinic.letter_of(here.store, number), paper)
    kept = {"Content-Disposition": 'attachment; filename="letter.pdf"'}
    return Response(content, media_type="application/pdf", headers=kept)


@router.get("/rooms/noise")
def room_noise(here: Here, user: Examiner) -> list[r.NoiseShown]:
    """What was measured in the rooms, newest first, against the limits that are known."""
    devices = {one.id: one for one in here.store.devices()}
    shown = []
    for one in here.store.room_noise():
        device = None if one.device_id is None else devices[one.device_id]
        kinds = LIMITS if device is None else [device.transducer]
        checks = [check_noise(one.levels, kind) for kind in kinds]
        shown.append(
            r.NoiseShown(
                measured_on=one.measured_on,
                device=None if device is None else device.name,
                room=one.room,
                instrument=one.instrument,
                levels=one.levels,
                checks=[
                    r.NoiseChecked(words=check.words, too_loud=check.state == OVER)
                    for check in checks
                ],
                author=one.author,
            )
        )
    return shown


@router.post("/rooms/noise", status_code=HTTPStatus.CREATED)
def add_room_noise(new: r.NewNoise, here: Here, user: Examiner) -> None:
    """What a meter showed, octave band by octave band, in dB SPL."""
    clinic.add_room_noise(
        here.store,
        new.levels,
        author=user.name,
        measured_on=new.measured_on,
        zone=here.settings.zone,
        room=new.room,
        instrument=new.instrument,
        device_id=None if new.device is None else here.row("devices", new.device),
    )
