"""The day in the booths, live, and visits for elsewhere."""

import hashlib
import tempfile
import zipfile
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Header, HTTPException, Query, Response
from pydantic import Field

from earshift.clinic.day import DayVisit, visits_of_day, visits_of_period
from earshift.clinic.session import CATCH_EVERY
from earshift.devices.delivery import Delivery
from earshift.engine.refusal import Refusal
from earshift.web import day_models as d
from earshift.web import views
from earshift.web.here import Clinic, Here
from earshift.web.identity import Examiner
from earshift.web.models import Input

router = APIRouter(prefix="/api")


@router.get("/booths/live", responses={304: {"description": "nothing has changed"}})
def booths(
    here: Here,
    user: Examiner,
    response: Response,
    if_none_match: Annotated[str | None, Header(max_length=200)] = None,
) -> d.Booths:
    """Today's visits, those that go on first. Ask with If-None-Match, and only changes are sent."""
    today = here.today
    found = visits_of_day(here.store, today, here.settings.zone)
    found.sort(key=lambda one: not one.going_on)
    answer = d.Booths(today=today, visits=[_visit(here, one) for one in found])
    tag = f'"{hashlib.sha256(answer.model_dump_json().encode()).hexdigest()[:24]}"'
    if if_none_match == tag:
        raise HTTPException(304)
    if if_none_match is None:  # later looks of the same page are the same look
        here.viewed(user, "booths", visits=len(found))
    response.headers["ETag"] = tag
    return answer


def _visit(here: Clinic, one: DayVisit) -> d.DayVisit:
    visit, device = one.bundle.visit, one.bundle.device
    handles = here.store.handles("exams", [exam.record.id for exam in one.exams])
    return d.DayVisit(
        visit=here.store.handle("visits", visit.id),
        person=views.person(here.store, one.bundle.person),
        started_at=visit.started_at,
        mode=visit.mode,
        device=None if device is None else device.name,
        answered_by=Delivery.from_dict(one.exams[0].record.delivery).answered_by,
        going_on=one.going_on,
        exams=[
            d.DayExam(
                exam=handles[exam.record.id],
                ear=exam.record.ear,
                kind=exam.record.kind,
                state=exam.record.state,
                answered=exam.answered,
                at_most=_at_most(exam.record.design.get("max_tones")),
                last_at=exam.last_at,
                decision=exam.decision,
                held=exam.held,
            )
            for exam in one.exams
        ],
    )


def _at_most(tones: int | None) -> int:
    """Presentations to the end at most, silent ones included."""
    return 0 if tones is None else tones + tones // (CATCH_EVERY - 1) + 1


class Wanted(Input):
    """Which visits, and how they are written; without days, all."""

    format: Literal["csv", "parquet", "fhir", "bids"] = "csv"
    first: date | None = None
    last: date | None = None
    identity: bool | None = None
    tidy: bool = False
    simulated: Annotated[bool, Field(description="also visits of simulated listeners")] = False


@router.get(
    "/export",
    response_class=Response,
    responses={200: {"content": {"application/zip": {}, "application/json": {}}}},
)
def export(wanted: Annotated[Wanted, Query()], here: Here, user: Examiner) -> Response:
    """Visits as a file to keep: tables or BIDS in a ZIP archive, FHIR as JSON."""
    from earshift.formats import export as write

    found = visits_of_period(
        here.store, wanted.first, wanted.last, here.settings.zone, simulated=wanted.simulated
    )
    with tempfile.TemporaryDirectory(prefix="earshift-export-") as folder:
        out = Path(folder) / ("visits.json" if wanted.format == "fhir" else "visits")
        count = write(found, wanted.format, out, identity=wanted.identity, tidy=wanted.tidy)
        if count == 0:
            raise Refusal("there are no visits in these days")
        content = out.read_bytes() if out.is_file() else _zipped(out)
    told = {"format": wanted.format, "visits": count, "with_identity": wanted.identity}
    days = {"from": str(wanted.first or ""), "to": str(wanted.last or "")}
    here.viewed(user, "visits", "export", **told, **days)
    suffix, kind = (
        ("json", "application/fhir+json")
        if wanted.format == "fhir"
        else (
            "zip",
            "application/zip",
        )
    )
    name = f"visits-{wanted.format}-{here.today}.{suffix}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=kind, headers=headers)


def _zipped(folder: Path) -> bytes:
    archive = folder.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as whole:
        for file in sorted(folder.rglob("*")):
            whole.write(file, file.relative_to(folder.parent))
    return archive.read_bytes()
