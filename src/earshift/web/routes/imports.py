"""Files from elsewhere: earlier audiograms and rosters, shown before anything is stored."""

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from earshift.clinic.audiograms import ImportedFile, judged_by_store, store_references
from earshift.clinic.roster import RosterPlan, apply_roster, plan_roster
from earshift.clinic.worklist import refresh
from earshift.engine.refusal import Conflict, Refusal
from earshift.engine.values import EARS
from earshift.formats import Rejected
from earshift.web import import_models as im
from earshift.web import views
from earshift.web.here import Clinic, Here
from earshift.web.identity import Examiner
from earshift.web.models import Line

router = APIRouter(prefix="/api")

ROWS_NAMED = 5  # of a file's rejected rows, in a refusal
SHOWN = 200  # lines of a preview
PEOPLE_SHOWN = 20  # of an import
TONES_HZ = (250, 500, 1000, 2000, 3000, 4000, 6000, 8000)

Few = Annotated[list[Line], Field(max_length=100)]
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
Kind = Annotated[str, Field(pattern="^(auto|csv|mie|fhir|nhanes)$")]


class How(BaseModel):
    """How to read a file of audiograms: what its own text does not say."""

    model_config = ConfigDict(extra="forbid")

    format: Kind = "auto"
    column: Few = []  # THEIRS=OURS
    sentinel: Few = []  # TEXT=MEANING of a cell
    no_response_db: Few = []  # a level, or FREQUENCY=LEVEL for each
    timezone: Line | None = None
    decimal_comma: bool = False
    day_first: bool = False
    every: bool = False
    method_offset: Annotated[float, Field(ge=-20, le=20, allow_inf_nan=False)] = 0.0
    skip_rejected: bool = False
    preview: bool = False


async def _content(request: Request) -> bytes:
    content = await request.body()
    if not content:
        raise Refusal("the file is empty")
    return content


Content = Annotated[bytes, Depends(_content)]


@contextmanager
def _on_disk(content: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="earshift-import-") as folder:
        file = Path(folder) / "upload"  # never the client's name
        file.write_bytes(content)
        yield file


@router.post("/imports/columns", openapi_extra=BODY)
def columns(user: Examiner, content: Content, here: Here, roster: bool = False) -> im.FileColumns:
    """The columns of a table, and what each is read as; of other files there are none."""
    from earshift.formats import kind_of_content, sheets
    from earshift.formats import roster as rosters

    names = [*rosters.NAMES] if roster else [*sheets.NAMES]
    if not roster:
        names += [f"{ear}_{f}" for ear in EARS for f in TONES_HZ]
    known: list[tuple[str, str]] = []
    if roster or kind_of_content(content) == "csv":
        with _on_disk(content) as file:
            known = (rosters if roster else sheets).recognised(file)
    return im.FileColumns(
        columns=[im.FileColumn(theirs=theirs, ours=ours) for theirs, ours in known],
        meanings=names,
        zone=here.settings.zone,
    )


@router.post("/imports", openapi_extra=BODY)
def import_file(
    user: Examiner, content: Content, how: Annotated[How, Query()], here: Here
) -> im.Imported:
    """Audiograms from a file: all of its rows, or none when one cannot be taken.

    A preview stores nothing and names every row with its reason; rejected rows may be skipped.
    """
    from earshift.formats import kind_of_content, read_references
    from earshift.formats.references import levels, pairs

    zone = how.timezone or here.settings.zone
    kind = kind_of_content(content) if how.format == "auto" else how.format
    with _on_disk(content) as file:
        found = read_references(
            file,
            kind,
            timezone=zone,
            columns=pairs(how.column, "a column"),
            sentinels=pairs(how.sentinel, "a code"),
            no_response_db_hl=levels(how.no_response_db, "the level tried"),
            baselines_only=not how.every,
            method_offset_db=how.method_offset,
            decimal_comma=how.decimal_comma,
            day_first=how.day_first,
        )
    if how.preview:
        judged = judged_by_store(here.store, found, author=user.name, zone=zone)
        done = ImportedFile(judged)
    else:
        done = store_references(
            here.store, found, author=user.name, zone=zone, skip_rejected=how.skip_rejected
        )
        if done.refused:
            rows = done.found.rejected
            named = "; ".join(f"row {one.row}: {one.sentence}" for one in rows[:ROWS_NAMED])
            raise Refusal(f"{len(rows)} rows cannot be imported, so nothing was stored: {named}")
    return _imported(here, done, how.preview)


def _imported(here: Clinic, done: ImportedFile, preview: bool) -> im.Imported:
    visits = {one.visit_id for one in (*done.added, *done.known)}
    owners = {here.store.visit(number).person_id for number in sorted(visits)[:PEOPLE_SHOWN]}
    found = done.found
    return im.Imported(
        added=len(done.added),
        known=len(done.known),
        people=views.people(here.store, [here.store.person(number) for number in sorted(owners)]),
        preview=preview,
        sound=len(found.accepted),
        rejected=_reasons(found.rejected),
        rejected_total=len(found.rejected),
        left_out=_reasons(found.left_out),
        left_out_total=len(found.left_out),
    )


def _reasons(rows: Sequence[Rejected]) -> list[im.RowReason]:
    return [im.RowReason(row=one.row, reason=one.reason) for one in rows[:SHOWN]]


class HowRoster(BaseModel):
    """How to read a roster, and what to do with who is not in it."""

    model_config = ConfigDict(extra="forbid")

    column: Few = []
    day_first: bool = False
    mark_leavers: bool = False
    left_on: date | None = None
    skip_rejected: bool = False
    preview: bool = False
    plan: Line | None = None  # of the preview: when it differs by now, nothing is done


@router.post("/imports/roster", openapi_extra=BODY)
def import_roster(
    user: Examiner, content: Content, how: Annotated[HowRoster, Query()], here: Here
) -> im.RosterChanges:
    """Employees from a table: new ones are added, known ones brought up to date, or just shown."""
    from earshift.formats.references import pairs
    from earshift.formats.roster import read_roster

    if how.left_on is not None and not how.mark_leavers:
        raise Refusal("a day of leaving goes with marking who has left")
    with _on_disk(content) as file:
        found = read_roster(file, columns=pairs(how.column, "a column"), day_first=how.day_first)
    plan = plan_roster(here.store, found)
    name = _name(plan)
    counts = {"changed": len(plan.changed), "leavers": len(plan.leavers)}
    here.viewed(user, "people", "list", what="roster", **counts)
    if not how.preview:
        if how.plan not in (None, name):
            raise Conflict("this would no longer change what was shown: look at it once more")
        left_on = (how.left_on or here.today) if how.mark_leavers else None
        apply_roster(
            here.store,
            plan,
            author=user.name,
            left_on=left_on,
            skip_rejected=how.skip_rejected,
        )
        refresh(here.store)
    return _changes(here, plan, name, how)


def _name(plan: RosterPlan) -> str:
    """A short name of just these changes."""
    return hashlib.sha256(repr(plan).encode()).hexdigest()[:24]


def _changes(here: Clinic, plan: RosterPlan, name: str, how: HowRoster) -> im.RosterChanges:
    changed = plan.changed[:SHOWN]
    people = views.people(here.store, [one.person for one in changed])
    return im.RosterChanges(
        preview=how.preview,
        plan=name,
        new=[
            im.NewEmployee(
                row=one.row,
                code=one.code,
                name=one.known.get("name"),
                department=one.known.get("department"),
            )
            for one in plan.new[:SHOWN]
        ],
        new_total=len(plan.new),
        changed=[
            im.PersonChange(
                row=one.row,
                person=person,
                fields=[
                    im.FieldChange(field=field, before=before, after=after)
                    for field, (before, after) in one.fields.items()
                ],
            )
            for one, person in zip(changed, people, strict=True)
        ],
        changed_total=len(plan.changed),
        same=plan.same,
        leavers=views.people(here.store, plan.leavers[:SHOWN]),
        leavers_total=len(plan.leavers),
        leavers_marked=how.mark_leavers,
        duplicates=list(plan.duplicates[:SHOWN]),
        duplicates_total=len(plan.duplicates),
        rejected=_reasons(plan.rejected),
        rejected_total=len(plan.rejected),
    )
