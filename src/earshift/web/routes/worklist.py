"""The day: who has to be tested, what a reviewer closes, and what the site has settled."""

import csv
import io
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from earshift.clinic import site
from earshift.clinic import worklist as day
from earshift.clinic.day import backup_warning
from earshift.formats.files import guard
from earshift.web import day_models as d
from earshift.web import models as m
from earshift.web import views
from earshift.web.here import Clinic, Here
from earshift.web.identity import Admin, Examiner, Reviewer

router = APIRouter(prefix="/api")

Filter = Annotated[m.Line | None, Query()]
COLUMNS = (
    *("code", "name", "department", "job", "why", "ears"),
    *("since", "by", "overdue_days"),
)


@router.get("/worklist")
def worklist(
    here: Here,
    user: Examiner,
    department: Filter = None,
    job: Filter = None,
    why: Filter = None,
    overdue: bool = False,
    start: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> d.Worklist:
    """Who has to be tested, why and by when, the most urgent first: a page of the whole list."""
    found = day.worklist(
        here.store,
        here.today,
        department=department,
        job=job,
        why=why,
        overdue=overdue,
        start=start,
        limit=limit,
    )
    filters = _filters(department=department, job=job, why=why, overdue=overdue)
    here.viewed(user, "worklist", filters=filters, lines=len(found.items))
    devices = day.devices_to_see_to(here.store, here.today)
    return d.Worklist(
        today=found.today,
        items=_items(here, found.items),
        devices=[views.device(here.store, one.device, here.today) for one in devices],
        total=found.total,
        overdue=found.overdue,
        counts=found.counts,
        departments=here.store.employments("department"),
        jobs=here.store.employments("job"),
        backup=backup_warning(here.store) if user.role == "admin" else None,
    )


def _filters(**given: object) -> list[str]:
    """By what a list was narrowed, for the audit: not to what, which somebody may have typed."""
    return [name for name, value in given.items() if value]


def _items(here: Clinic, items: tuple[day.WorkItem, ...]) -> list[d.WorkItem]:
    store = here.store
    people = store.people_of({item.person_id for item in items})
    shown = dict(zip(people, views.people(store, people.values()), strict=True))
    known = store.exams_of({item.exam_id for item in items if item.exam_id is not None})
    exams = dict(zip(known, views.summaries(store, known.values()), strict=True))
    return [
        d.WorkItem(
            person=shown[item.person_id],
            why=item.why,
            words=item.words,
            ears=list(item.ears),
            since=item.since,
            on=item.by,
            overdue_days=item.overdue_days,
            exam=exams.get(item.exam_id or 0),
            full=item.full,
        )
        for item in items
    ]


@router.get("/worklist.csv", response_class=Response)
def worklist_file(
    here: Here,
    user: Examiner,
    department: Filter = None,
    job: Filter = None,
    why: Filter = None,
    overdue: bool = False,
) -> Response:
    """The whole list as a table for a spreadsheet."""
    found = day.worklist(
        here.store, here.today, department=department, job=job, why=why, overdue=overdue
    )
    filters = _filters(department=department, job=job, why=why, overdue=overdue)
    here.viewed(user, "worklist", "export", filters=filters, lines=len(found.items))
    rows = [[_cell(item, name) for name in COLUMNS] for item in found.items]
    return as_csv(f"worklist-{found.today}.csv", COLUMNS, rows)


def _cell(item: day.WorkItem, name: str) -> Any:
    value = item.words if name == "why" else getattr(item, name)
    return " ".join(value) if isinstance(value, tuple) else value


def as_csv(name: str, columns: tuple[str, ...], rows: list[list[Any]]) -> Response:
    """Rows as a CSV file to be kept; no cell is taken for a formula."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in rows:
        cells = ["" if cell is None else cell for cell in row]
        writer.writerow([guard(cell) if isinstance(cell, str) else cell for cell in cells])
    kept = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=kept)


@router.post("/exams/{exam}/close")
def close_verdict(exam: m.Id, why: d.NewClosing, here: Here, user: Reviewer) -> d.ClosingShown:
    """Close a verdict: a reviewer's word that nothing more has to be done about it."""
    said = day.close_verdict(
        here.store, here.row("exams", exam), author=user.name, reason=why.reason, ears=why.ears
    )
    return d.ClosingShown.model_validate(said)


@router.post("/exams/{exam}/reopen")
def reopen_verdict(exam: m.Id, why: d.NewClosing, here: Here, user: Reviewer) -> d.ClosingShown:
    """Take a closing back: the verdict calls again for what it called for before."""
    said = day.reopen_verdict(
        here.store, here.row("exams", exam), author=user.name, reason=why.reason, ears=why.ears
    )
    return d.ClosingShown.model_validate(said)


@router.get("/settings")
def settings(here: Here, user: Examiner) -> list[d.SiteSetting]:
    """Intervals and windows as they count now, each with its source."""
    return [_setting(one) for one in site.site_settings(here.store).values()]


@router.post("/settings/{name}")
def change_setting(name: m.Id, new: d.NewSetting, here: Here, user: Admin) -> d.SiteSetting:
    """Settle something anew, with a reason."""
    return _setting(
        site.change_setting(here.store, name, new.value, author=user.name, reason=new.reason)
    )


def _setting(one: site.Settled) -> d.SiteSetting:
    return d.SiteSetting(
        name=one.setting.name,
        text=one.setting.text,
        unit=one.setting.unit,
        source=one.setting.source,
        value=one.value,
        default=one.setting.value,
        lowest=one.setting.lowest,
        highest=one.setting.highest,
        author=one.author,
        at=one.at,
        reason=one.reason,
    )
