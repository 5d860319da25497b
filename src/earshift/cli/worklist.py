"""The day on the command line: who has to be tested, closed verdicts, settings of the site."""

import csv
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earshift.cli.app import AsJson, app
from earshift.cli.database import (
    EXIT_CODES,
    Author,
    Database,
    Timezone,
    author_name,
    disclosed,
    looked_into,
    opened,
)
from earshift.cli.people import Reason
from earshift.cli.terminal import as_date, person_label, printable, show_json, table
from earshift.engine.refusal import Refusal

if TYPE_CHECKING:
    from earshift.clinic.day import DayVisit
    from earshift.clinic.site import Settled
    from earshift.clinic.worklist import WorkItem
    from earshift.store import Store

ExamId = Annotated[int, typer.Argument(metavar="EXAM", min=1, help="Id of the exam.")]
Ear = Annotated[
    str | None,
    typer.Option(help="Of an exam of both ears: right or left alone. Default: all that it tested."),
]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV for a spreadsheet.")]
COLUMNS = (
    *("person", "code", "name", "department", "job", "why", "ears"),
    *("since", "by", "overdue_days", "exam"),
)


@app.command(epilog=EXIT_CODES)
def worklist(
    on: Annotated[str | None, typer.Option(help="The list of this day. Default: today.")] = None,
    search: Annotated[str | None, typer.Option(help="Part of a code or name.")] = None,
    department: Annotated[str | None, typer.Option(help="Only this department.")] = None,
    job: Annotated[str | None, typer.Option(help="Only this job.")] = None,
    why: Annotated[
        str | None,
        typer.Option(help="Only unfinished, audiogram, retest, review, letter, first or due."),
    ] = None,
    overdue: Annotated[bool, typer.Option("--overdue", help="Only what is overdue.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most this many lines.")] = 50,
    every: Annotated[bool, typer.Option("--all", help="All lines, however many.")] = False,
    timezone: Timezone = None,
    db: Database = None,
    author: Author = None,
    as_csv: AsCsv = False,
    as_json: AsJson = False,
) -> None:
    """List who has to be tested, why and by when, the most urgent first.

    Everybody is listed who has not left, until both ears are tested in time, no exam is left
    unfinished and no verdict waits. CSV and JSON hold all lines.
    """
    from earshift.clinic.worklist import worklist as of_day
    from earshift.clinic.zones import local_zone
    from earshift.days import today

    with looked_into(db) as store:
        if as_csv and as_json:
            raise Refusal("give --csv or --json, not both")
        whole = every or as_csv or as_json
        found = of_day(
            store,
            today(timezone or local_zone()) if on is None else as_date(on, "the day of the list"),
            search=search,
            department=department,
            job=job,
            why=why,
            overdue=overdue,
            limit=None if whole else limit,
        )
        given = {"search": search, "department": department, "job": job, "why": why}
        by = [name for name, value in given.items() if value] + ["overdue"] * overdue
        disclosed(store, author, "list", "worklist", filters=by, lines=len(found.items))
    if as_json:
        show_json(
            {
                "today": found.today,
                "total": found.total,
                "overdue": found.overdue,
                "counts": found.counts,
                "items": [asdict(item) for item in found.items],
            }
        )
    elif as_csv:
        write_csv(COLUMNS, [_cells(item) for item in found.items])
    elif not found.items:
        typer.echo("Nothing to do")
    else:
        rows = [
            [
                item.person_id,
                item.code,
                item.name,
                item.department,
                f"{item.words} ({' and '.join(item.ears)})",
                item.by,
                f"OVERDUE {item.overdue_days} d" if item.overdue_days else "",
            ]
            for item in found.items
        ]
        columns = ["id", "code", "name", "department", "why", "by", "overdue"]
        table(f"To do on {found.today}", columns, rows)
        left = found.total - len(found.items)
        typer.echo(
            f"{found.total} line{'' if found.total == 1 else 's'}, {found.overdue} of them overdue"
        )
        if left:
            typer.echo(f"and {left} more: earshift worklist --all")


def _cells(item: "WorkItem") -> list[object]:
    return [
        item.person_id,
        item.code,
        item.name,
        item.department,
        item.job,
        item.words,
        " ".join(item.ears),
        item.since,
        item.by,
        item.overdue_days,
        item.exam_id,
    ]


def write_csv(columns: tuple[str, ...], rows: list[list[object]]) -> None:
    """A table on standard output in which no cell is taken for a formula."""
    from earshift.formats.files import guard

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        cells = ["" if cell is None else cell for cell in row]
        writer.writerow([guard(cell) if isinstance(cell, str) else cell for cell in cells])


@app.command("today", epilog=EXIT_CODES)
def todays_visits(
    timezone: Timezone = None, db: Database = None, author: Author = None, as_json: AsJson = False
) -> None:
    """List today's visits: who, when, on what, and what each test said."""
    from earshift.clinic.day import backup_warning, visits_of_day
    from earshift.clinic.zones import as_zone, local_zone
    from earshift.days import local_time, today

    zone = as_zone(timezone or local_zone())
    with looked_into(db) as store:
        found = visits_of_day(store, today(zone), zone)
        warning = backup_warning(store)
        disclosed(store, author, "list", "today", visits=len(found))
    if as_json:
        show_json([_visit_data(one) for one in found])
        return
    rows = [
        [
            one.bundle.visit.id,
            f"{local_time(one.bundle.visit.started_at, zone):%H:%M}",
            person_label(one.bundle.person),
            "" if one.bundle.device is None else one.bundle.device.name,
            exam.record.id,
            exam.record.ear,
            exam.record.kind,
            exam.record.state,
            exam.decision or "",
        ]
        for one in found
        for exam in one.exams
    ]
    columns = ["visit", "at", "person", "device", "exam", "ear", "what", "state", "result"]
    if rows:
        table("Today", columns, rows)
    else:
        typer.echo("Nobody was tested today")
    if warning is not None:
        typer.secho(f"earshift: {warning} (earshift db backup FILE)", fg="yellow", err=True)


def _visit_data(one: "DayVisit") -> dict[str, Any]:
    return {
        "visit": one.bundle.visit.id,
        "person": one.bundle.person.id,
        "started_at": one.bundle.visit.started_at,
        "device": one.bundle.visit.device_id,
        "exams": [
            {
                "exam": exam.record.id,
                "ear": exam.record.ear,
                "kind": exam.record.kind,
                "state": exam.record.state,
                "decision": exam.decision,
            }
            for exam in one.exams
        ],
    }


def reviewer_name(store: "Store", given: str | None) -> str:
    """Who signs and closes: in a database with users, a reviewer or admin."""
    from earshift.clinic.review import require_reviewer

    return require_reviewer(store, author_name(given))


def of_ears(ears: str) -> str:
    """Which of the exam's ears something is said of, where it is not all of them."""
    return f", {ears} ear" if ears else ""


verdicts = typer.Typer(
    help="A reviewer's word on verdicts that call for something.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(verdicts, name="verdict")


@verdicts.command("close", epilog=EXIT_CODES)
def verdict_close(
    exam_id: ExamId,
    reason: Reason,
    ear: Ear = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Close a verdict: nothing more has to be done about it. It leaves the worklist."""
    from earshift.clinic.worklist import close_verdict

    with opened(db) as store:
        said = close_verdict(
            store,
            exam_id,
            author=reviewer_name(store, author),
            reason=reason,
            ears=() if ear is None else (ear,),
        )
    if as_json:
        show_json(asdict(said))
    else:
        typer.echo(f"The verdict of exam {exam_id}{of_ears(said.ears)} is closed")


@verdicts.command("reopen", epilog=EXIT_CODES)
def verdict_reopen(
    exam_id: ExamId,
    reason: Reason,
    ear: Ear = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Take a closing back: the verdict is on the worklist again."""
    from earshift.clinic.worklist import reopen_verdict

    with opened(db) as store:
        said = reopen_verdict(
            store,
            exam_id,
            author=reviewer_name(store, author),
            reason=reason,
            ears=() if ear is None else (ear,),
        )
    if as_json:
        show_json(asdict(said))
    else:
        typer.echo(f"The verdict of exam {exam_id}{of_ears(said.ears)} is open again")


site = typer.Typer(
    help="Intervals, retest windows and quiet hours of this site, with their sources.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(site, name="site")


@site.command("show", epilog=EXIT_CODES)
def site_show(db: Database = None, as_json: AsJson = False) -> None:
    """Show every setting, what it rests on, and who chose it."""
    from earshift.clinic.site import site_settings

    with looked_into(db) as store:
        settled = site_settings(store)
    if as_json:
        show_json([asdict(one) for one in settled.values()])
        return
    for one in settled.values():
        typer.echo(f"{one.setting.name} = {_value(one)}")
        typer.echo(f"    {one.setting.text}. Source: {one.setting.source}.")
        if one.author is not None:
            typer.echo(
                f"    Set by {printable(one.author)} on {one.at:%Y-%m-%d}: {printable(one.reason)}"
            )


def _value(one: "Settled") -> str:
    if isinstance(one.value, bool):
        return "yes" if one.value else "no"
    return printable(f"{one.value} {one.setting.unit}".strip()) or "not given"


@site.command("set", epilog=EXIT_CODES)
def site_set(
    name: Annotated[str, typer.Argument(help="Name as in `earshift site show`.")],
    value: Annotated[str, typer.Argument(help="A whole number, yes or no, or a text.")],
    reason: Reason,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Change a setting from now on. What counted before stays on record."""
    from earshift.clinic.site import change_setting

    with opened(db) as store:
        settled = change_setting(store, name, value, author=author_name(author), reason=reason)
    if as_json:
        show_json(asdict(settled))
    else:
        typer.echo(f"{name} = {_value(settled)}")
