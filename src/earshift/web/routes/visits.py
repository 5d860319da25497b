"""Visits: the listener's link, what may be seen of the verdict, and the reports."""

import tempfile
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from earshift.clinic.review import report_of
from earshift.devices.delivery import Delivery
from earshift.engine.refusal import Conflict
from earshift.store.accounts import LINK_HOURS
from earshift.web import models as m
from earshift.web.here import Here, qr_code
from earshift.web.identity import Examiner

router = APIRouter(prefix="/api")


@router.post("/visits/{visit_id}/link", status_code=HTTPStatus.CREATED)
def make_link(visit_id: m.Id, here: Here, user: Examiner, request: Request) -> m.NewLink:
    """A link for the person tested: it can answer this visit's exams, and nothing else."""
    visit = here.visit(visit_id)
    exams = [
        exam.id
        for exam in here.store.exams(visit.person_id)
        if exam.visit_id == visit.id
        and exam.state in ("open", "paused")
        and Delivery.from_dict(exam.delivery).answered_by == "listener"
    ]
    if not exams:
        raise Conflict("this visit has no unfinished exam for a listener to answer")
    secret = here.accounts.make_link(visit.id, sorted(exams), user.name)
    if here.settings.single_user and visit.mode == "self":  # whoever tests themselves may know
        here.accounts.release(visit.id, user.name)
    expires = datetime.now(UTC) + timedelta(hours=LINK_HOURS)
    url = f"/listen#{secret}"
    # A page says where it came from; a program may not.
    origin = request.headers.get("origin") or str(request.base_url).rstrip("/")
    return m.NewLink(url=url, qr=qr_code(f"{origin}{url}"), expires_at=expires)


@router.delete("/visits/{visit_id}/link", status_code=HTTPStatus.NO_CONTENT)
def end_link(visit_id: m.Id, here: Here, user: Examiner) -> None:
    here.accounts.end_links(here.row("visits", visit_id), user.name)


@router.post("/visits/{visit_id}/release", status_code=HTTPStatus.NO_CONTENT)
def release(visit_id: m.Id, wanted: m.Release, here: Here, user: Examiner) -> None:
    """Let the person tested see the verdict, or no longer."""
    here.accounts.release(here.row("visits", visit_id), user.name, wanted.released)


@router.get("/visits/{visit_id}/report.html", response_class=HTMLResponse)
def report_html(visit_id: m.Id, here: Here, user: Examiner) -> HTMLResponse:
    """The visit's report as a page that needs nothing else."""
    from earshift.report import render_html

    number = here.row("visits", visit_id)
    here.viewed(user, f"visits:{number}")
    bundle, site, cautions = report_of(here.store, number)
    page = render_html(bundle, site=site, cautions=cautions)
    return HTMLResponse(page, headers={"Content-Disposition": 'attachment; filename="report.html"'})


@router.get(
    "/visits/{visit_id}/report.pdf",
    response_class=Response,
    responses={200: {"content": {"application/pdf": {}}}},
)
def report_pdf(
    visit_id: m.Id,
    here: Here,
    user: Examiner,
    paper: Annotated[str, Query(pattern="^(a4|letter)$")] = "a4",
) -> Response:
    """The visit's report as PDF."""
    from earshift.report import write_pdf

    number = here.row("visits", visit_id)
    here.viewed(user, f"visits:{number}")
    with tempfile.TemporaryDirectory(prefix="earshift-report-") as folder:
        file = Path(folder) / "report.pdf"
        bundle, site, cautions = report_of(here.store, number)
        write_pdf(bundle, file, paper, site=site, cautions=cautions)
        content = file.read_bytes()
    return Response(
        content,
        media_type="application/pdf",
        headers={"Content-Disposition": 'attachment; filename="report.pdf"'},
    )
