"""Employees from a roster, and how the programme goes."""

from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earshift.cli.app import NOT_FINISHED, AsJson, app
from earshift.cli.database import (
    EXIT_CODES,
    Author,
    Database,
    Timezone,
    Yes,
    author_name,
    disclosed,
    looked_into,
    opened,
)
from earshift.cli.terminal import (
    as_date,
    confirmed,
    person_label,
    refused_rows,
    show_json,
    table,
)
from earshift.cli.worklist import AsCsv, write_csv
from earshift.engine.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from earshift.clinic.programme import Group
    from earshift.clinic.roster import RosterPlan
    from earshift.records import Person

FEW = 20  # lines of a preview

roster = typer.Typer(
    help="Employees from a list of the employer's.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(roster, name="roster")


@roster.command("import", epilog=EXIT_CODES)
def roster_import(
    file: Annotated[Path, typer.Argument(help="CSV: a row for each employee.")],
    column: Annotated[
        list[str] | None,
        typer.Option(help="THEIRS=OURS, e.g. Abteilung=department. May be repeated."),
    ] = None,
    day_first: Annotated[
        bool, typer.Option("--day-first", help="Dates are written 31.12.2026.")
    ] = False,
    mark_leavers: Annotated[
        bool, typer.Option("--mark-leavers", help="Mark who is not in the file as having left.")
    ] = False,
    left_on: Annotated[
        str | None, typer.Option(help="With --mark-leavers: since when. Default: today.")
    ] = None,
    skip_rejected: Annotated[
        bool, typer.Option("--skip-rejected", help="Take the good rows even if others are bad.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    yes: Yes = False,
    timezone: Timezone = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Add employees, and bring what is known of them up to date, after a preview.

    Columns: code, name, birth_date, sex, department, job, hired_on, left_on. People are found by
    their code; blank cells change nothing. Possible duplicates are named: `earshift person merge`.
    """
    from earshift.clinic.roster import apply_roster, plan_roster
    from earshift.clinic.worklist import refresh
    from earshift.clinic.zones import local_zone
    from earshift.days import today
    from earshift.formats.references import pairs
    from earshift.formats.roster import read_roster

    with (looked_into if dry_run else opened)(db) as store:
        if left_on is not None and not mark_leavers:
            raise Refusal("--left-on goes with --mark-leavers")
        day: date | None = None
        if mark_leavers:
            now = today(timezone or local_zone())
            day = now if left_on is None else as_date(left_on, "the day of leaving")
        found = read_roster(file, columns=pairs(column, "--column"), day_first=day_first)
        plan = plan_roster(store, found)
        counts = {"changed": len(plan.changed), "leavers": len(plan.leavers)}
        disclosed(store, author, "list", "people", what="roster", **counts)
        if as_json:
            show_json(_as_data(plan, dry_run, mark_leavers))
        else:
            _show(plan, mark_leavers)
        stopped = bool(plan.rejected) and not skip_rejected
        if dry_run:
            typer.echo("Nothing was changed", err=as_json)
            return
        if not stopped and not yes and not confirmed("Change this?"):
            typer.echo("Nothing was changed", err=True)
            raise typer.Exit(NOT_FINISHED)
        apply_roster(
            store, plan, author=author_name(author), left_on=day, skip_rejected=skip_rejected
        )
        refresh(store)
    typer.echo("Done", err=as_json)


def _as_data(plan: "RosterPlan", dry_run: bool, mark_leavers: bool) -> dict[str, Any]:
    return {
        "new": [{"row": one.row, "code": one.code, **one.known} for one in plan.new],
        "changed": [
            {"person": one.person.id, "row": one.row, "fields": one.fields} for one in plan.changed
        ],
        "same": plan.same,
        "leavers": [{"person": one.id, "code": one.code, "name": one.name} for one in plan.leavers],
        "mark_leavers": mark_leavers,
        "duplicates": plan.duplicates,
        "rejected": [{"row": one.row, "reason": one.reason} for one in plan.rejected],
        "dry_run": dry_run,
    }


def _show(plan: "RosterPlan", mark_leavers: bool) -> None:
    if plan.rejected:
        refused_rows("Rejected", plan.rejected)
    changes = [
        [one.row, person_label(one.person), name, before, after]
        for one in plan.changed
        for name, (before, after) in one.fields.items()
    ]
    if changes:
        table("Changes", ["row", "person", "what", "known", "in the file"], changes[:FEW])
        if len(changes) > FEW:
            typer.echo(f"and {len(changes) - FEW} more: --json lists all")
    typer.echo(
        f"{len(plan.new)} new, {len(plan.changed)} changed, {plan.same} the same, "
        f"{len(plan.rejected)} rejected"
    )
    if plan.leavers:
        _show_leavers(plan.leavers, mark_leavers)
    for one, other in plan.duplicates[:FEW]:
        typer.echo(f"Perhaps one person: {one} and {other} (same name and date of birth)")


def _show_leavers(leavers: "Sequence[Person]", mark_leavers: bool) -> None:
    one = len(leavers) == 1
    fate = "to be marked as having left" if mark_leavers else "--mark-leavers marks them"
    count = "1 person is" if one else f"{len(leavers)} people are"
    typer.echo(f"{count} stored and not in the file: {fate}")
    for person in leavers[:FEW]:
        typer.echo(f"  {person_label(person)}")
    if len(leavers) > FEW:
        typer.echo(f"and {len(leavers) - FEW} more: --json lists all")


@app.command(epilog=EXIT_CODES)
def programme(
    first: Annotated[
        str | None, typer.Option("--from", help="First day. Default: a year before the last.")
    ] = None,
    last: Annotated[str | None, typer.Option("--to", help="Last day. Default: today.")] = None,
    by: Annotated[str, typer.Option(help="department or job.")] = "department",
    timezone: Timezone = None,
    db: Database = None,
    author: Author = None,
    as_csv: AsCsv = False,
    as_json: AsJson = False,
) -> None:
    """Show how the programme goes: due, overdue, tested and shifts in a period, by group."""
    from earshift.clinic.programme import programme as of_period
    from earshift.clinic.zones import local_zone
    from earshift.days import today, year_before

    with looked_into(db) as store:
        if as_csv and as_json:
            raise Refusal("give --csv or --json, not both")
        end = today(timezone or local_zone()) if last is None else as_date(last, "the last day")
        start = year_before(end) if first is None else as_date(first, "the first day")
        found = of_period(store, start, end, by)
        disclosed(store, author, "list", "programme", groups=len(found.groups))
    rows = [
        *((group.name or "(none)", group) for group in found.groups),
        ("everybody", found.everybody),
    ]
    if as_json:
        data = asdict(found)
        for one, group in zip((*data["groups"], data["everybody"]), _all(rows), strict=True):
            one |= group.shares
        show_json(data)
        return
    if as_csv:
        write_csv((by, *COLUMNS), [[name, *_numbers(group)] for name, group in rows])
        return
    typer.echo(f"{found.first} to {found.last}")
    table("Tests", [by, *TESTS], [[name, *_values(group, TESTS)] for name, group in rows])
    title = "People with a shift: how many, and per cent of the tested (95 % interval)"
    table(title, [by, *SHIFTS], [[name, *_shifts(group)] for name, group in rows])
    done = [[name, *_values(group, AFTER)] for name, group in rows]
    table("People for whom something was done after a shift", [by, *AFTER], done)


# What a column is called, and the number in it.
TESTS = {
    "at work": "people",
    "due": "due",
    "overdue": "overdue",
    "tested": "tested",
    "full audiogram": "audiograms",
}
SHIFTS = {
    "confirmed": "confirmed",
    "not confirmed": "not_confirmed",
    "waiting": "waiting",
    "closed": "closed",
}
AFTER = {
    "told in writing": "letters",
    "fitted with protectors": "protectors",
    "trained": "trainings",
    "referred": "referrals",
}
COLUMNS = (
    *TESTS.values(),
    *(f"{name}{what}" for name in SHIFTS.values() for what in ("", "_%", "_low_%", "_high_%")),
    *AFTER.values(),
)


def _all(rows: "list[tuple[str, Group]]") -> "list[Group]":
    return [group for _, group in rows]


def _values(group: "Group", columns: dict[str, str]) -> list[int]:
    return [getattr(group, name) for name in columns.values()]


def _per_cent(group: "Group", name: str) -> list[str]:
    share = group.shares[f"{name}_share"]
    return ["", "", ""] if share is None else [f"{100 * one:.1f}" for one in share]


def _shifts(group: "Group") -> list[str]:
    cells = []
    for name in SHIFTS.values():
        share, low, high = _per_cent(group, name)
        cells.append(
            f"{getattr(group, name)}" + (f": {share} % ({low} to {high})" if share else "")
        )
    return cells


def _numbers(group: "Group") -> list[object]:
    shifts = ((getattr(group, name), *_per_cent(group, name)) for name in SHIFTS.values())
    return [
        *_values(group, TESTS),
        *(cell for of_kind in shifts for cell in of_kind),
        *_values(group, AFTER),
    ]
