"""How the programme goes, for a period, as a page and as a table."""

from dataclasses import asdict
from datetime import date
from typing import Annotated

from fastapi import APIRouter, Query, Response

from earshift.clinic import programme as clinic
from earshift.days import year_before
from earshift.web import day_models as d
from earshift.web.here import Clinic, Here
from earshift.web.identity import Examiner
from earshift.web.routes.worklist import as_csv

router = APIRouter(prefix="/api")

Day = Annotated[date | None, Query()]
By = Annotated[d.ProgrammeBy, Query()]
NUMBERS = (
    *("people", "due", "overdue", "tested", "audiograms"),
    *("confirmed", "not_confirmed", "waiting", "closed"),
)
AFTER = ("letters", "protectors", "trainings", "referrals")  # what was done about shifts


def _found(here: Clinic, first: date | None, last: date | None, by: str) -> clinic.Programme:
    end = last or here.today
    return clinic.programme(here.store, first or year_before(end), end, by)


@router.get("/programme")
def programme(
    here: Here, user: Examiner, first: Day = None, last: Day = None, by: By = "department"
) -> d.Programme:
    """Due, overdue, tested and shifts in a period, for everybody and each group."""
    here.viewed(user, "programme")
    found = _found(here, first, last, by)
    return d.Programme(
        first=found.first,
        last=found.last,
        by=found.by,
        everybody=_group(found.everybody),
        groups=[_group(one) for one in found.groups],
    )


def _group(one: clinic.Group) -> d.ProgrammeGroup:
    return d.ProgrammeGroup(**{**asdict(one), **one.shares})


@router.get("/programme.csv", response_class=Response)
def programme_file(
    here: Here, user: Examiner, first: Day = None, last: Day = None, by: By = "department"
) -> Response:
    """The same as a table for a spreadsheet."""
    here.viewed(user, "programme")
    found = _found(here, first, last, by)
    named = [*((one.name or "", one) for one in found.groups), ("everybody", found.everybody)]
    rows = [
        [
            name,
            *(getattr(one, number) for number in NUMBERS),
            *(cell for share in one.shares.values() for cell in share or ("",) * 3),
            *(getattr(one, number) for number in AFTER),
        ]
        for name, one in named
    ]
    shares = (f"{name}_{what}" for name in clinic.SHIFTS for what in ("share", "low", "high"))
    columns = (by, *NUMBERS, *shares, *AFTER)
    return as_csv(f"programme-{found.first}-{found.last}.csv", columns, rows)
