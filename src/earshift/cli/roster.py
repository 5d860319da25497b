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
    looked_into,
    opened,
)
from earshift.cli.terminal import as_date, confirmed, person_label, printable, show_json, table
from earshift.cli.worklist import AsCsv, write_csv
from earshift.engine.refusal import Refusal

if TYPE_CHECKING:
    from earshift.clinic.programme import Group
    from earshift.clinic.roster import RosterPlan

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

    with opened(db) as store:
        if left_on is not None and not mark_leavers:
            raise Refusal("--left-on goes with --mark-leavers")
        day: date | None = None
        if mark_leavers:
            now = today(timezone or local_zone())
            day = now if left_on is None else as_date(left_on, "the day of leaving")
        found = read_roster(file, columns=pairs(column, "--column"), day_first=day_first)
        plan = plan_roster(store, found)
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
        "leavers": [one.id for one in plan.leavers],
        "mark_leavers": mark_leavers,
        "duplicates": plan.duplicates,
        "rejected": [{"row": one.row, "reason": one.reason} for one in plan.rejected],
        "dry_run": dry_run,
    }


def _show(plan: "RosterPlan", mark_leavers: bool) -> None:
    if plan.rejected:
        table("Rejected", ["row", "reason"], [[one.row, one.reason] for one in plan.rejected])
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
        fate = "will be marked as having left" if mark_leavers else "--mark-leavers marks them"
        typer.echo(f"{len(plan.leavers)} are stored and not in the file: {fate}")
    for one, other in plan.duplicates[:FEW]:
        typer.echo(f"Perhaps one person: {one} and {other} (same name and date of birth)")


@app.command(epilog=EXIT_CODES)
def programme(
    first: Annotated[
        str | None, typer.Option("--from", help="First day. Default: a year before the last.")
    ] = None,
    last: Annotated[str | None, typer.Option("--to", help="Last day. Default: today.")] = None,
    by: Annotated[str, typer.Option(help="department or job.")] = "department",
    timezone: Timezone = None,
    db: Database = None,
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
    rows = [
        *((group.name or "(none)", group) for group in found.groups),
        ("everybody", found.everybody),
    ]
    if as_json:
        data = asdict(found)
        for one, group in zip((*data["groups"], data["everybody"]), _all(rows), strict=True):
            one["confirmed_share"] = group.confirmed_share
        show_json(data)
        return
    if as_csv:
        write_csv((by, *COLUMNS), [[name, *_numbers(group)] for name, group in rows])
        return
    typer.echo(f"{found.first} to {found.last}")
    for name, group in rows:  # lines and no table: nothing is cut on a narrow screen
        typer.echo(f"{printable(name)}: {_words(group)}")


COLUMNS = (
    *("people", "due", "overdue", "tested", "audiograms"),
    *("confirmed", "confirmed_%", "low_%", "high_%", "not_confirmed", "waiting", "closed"),
    *("letters", "protectors", "trainings", "referrals"),
)


def _all(rows: "list[tuple[str, Group]]") -> "list[Group]":
    return [group for _, group in rows]


def _words(group: "Group") -> str:
    share = group.confirmed_share
    of_tested = (
        ""
        if share is None
        else " ({:.1f} % of the tested, 95 % interval {:.1f} to {:.1f} %)".format(
            *(100 * one for one in share)
        )
    )
    return (
        f"{group.people} at work, {group.due} due, {group.overdue} overdue; {group.tested} tested, "
        f"{group.audiograms} with a full audiogram; shifts: {group.confirmed} confirmed"
        f"{of_tested}, {group.not_confirmed} not confirmed, {group.waiting} waiting, "
        f"{group.closed} closed; {group.letters} told in writing, {group.protectors} fitted with "
        f"protectors, {group.trainings} trained, {group.referrals} referred"
    )


def _numbers(group: "Group") -> list[object]:
    share = group.confirmed_share
    per_cent = ["", "", ""] if share is None else [f"{100 * one:.1f}" for one in share]
    return [
        *(group.people, group.due, group.overdue, group.tested, group.audiograms),
        *(group.confirmed, *per_cent, group.not_confirmed, group.waiting, group.closed),
        *(group.letters, group.protectors, group.trainings, group.referrals),
    ]
