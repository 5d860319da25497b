"""Reports, imported audiograms and exported visits."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    is_there,
    looked_into,
    opened,
)
from earshift.cli.terminal import as_date, confirmed, printable, refused_rows, show_json
from earshift.engine.refusal import Refusal

if TYPE_CHECKING:
    from earshift.clinic.audiograms import ImportedFile
    from earshift.formats import References


@app.command(epilog=EXIT_CODES)
def report(
    visit_id: Annotated[int, typer.Argument(metavar="VISIT", min=1, help="Id of the visit.")],
    out: Annotated[Path, typer.Option(help="File to write, ending in .html or .pdf.")],
    paper: Annotated[str, typer.Option(help="PDF: a4 or letter.")] = "a4",
    font: Annotated[
        list[Path] | None,
        typer.Option(help="PDF: a TrueType font for scripts that the built-in font lacks."),
    ] = None,
    yes: Yes = False,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Write the report of a visit, one page for both ears, as HTML or PDF.

    It shows the results as they were stored and never recomputes them.
    """
    kind = out.suffix.lower()
    with looked_into(db) as store:
        if kind not in (".html", ".pdf"):
            raise Refusal("the name of a report must end in .html or .pdf", got=out.name)
        if out.exists() and not yes and not confirmed(f"{out} exists. Overwrite it?"):
            typer.echo("Nothing was written", err=True)
            raise typer.Exit(NOT_FINISHED)
        from earshift.clinic.review import report_of
        from earshift.report import write_html, write_pdf

        bundle, site, cautions = report_of(store, visit_id)
        if kind == ".html":
            write_html(bundle, out, site=site, cautions=cautions)
            warnings = []
        else:
            warnings = write_pdf(bundle, out, paper, fonts=font or (), site=site, cautions=cautions)
        disclosed(store, author, "view", f"visits:{visit_id}", what="report")
    if as_json:
        show_json({"visit": visit_id, "report": str(out), "warnings": warnings})
        return
    for warning in warnings:
        typer.secho(f"earshift: {printable(warning)}", fg="yellow", err=True)
    typer.echo(f"Report of visit {visit_id}: {out}")


@app.command("import", epilog=EXIT_CODES)
def import_references(
    file: Annotated[Path, typer.Argument(help="File with audiograms.")],
    kind: Annotated[
        str | None,
        typer.Option("--format", help="csv, mie, fhir, nhanes or apple-health. Default: by name."),
    ] = None,
    person_column: Annotated[
        str | None, typer.Option(help="CSV: the column with the person's code.")
    ] = None,
    person: Annotated[
        str | None,
        typer.Option(help="Apple Health: code of the person whose export it is."),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="CSV: THEIRS=OURS, e.g. Untersucht=date. May be repeated."),
    ] = None,
    sentinel: Annotated[
        list[str] | None,
        typer.Option(help="TEXT=MEANING of a cell: no response, not tested or threshold."),
    ] = None,
    no_response_db: Annotated[
        list[str] | None,
        typer.Option(help="Level tried where there was no response: 90, or 8000=85 for each."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--every", help="Also import audiograms flagged as not a baseline.")
    ] = False,
    method_offset: Annotated[
        float, typer.Option(help="dB by which the method reads too high, e.g. 2.5 for 5 dB steps.")
    ] = 0.0,
    skip_rejected: Annotated[
        bool, typer.Option("--skip-rejected", help="Store the other rows if some are rejected.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report every row that would be refused; no storing.")
    ] = False,
    decimal_comma: Annotated[
        bool, typer.Option("--decimal-comma", help="CSV: numbers are written 12,5.")
    ] = False,
    day_first: Annotated[
        bool, typer.Option("--day-first", help="CSV: dates are written 31.12.2026.")
    ] = False,
    timezone: Annotated[
        str | None,
        typer.Option(
            envvar="EARSHIFT_TIMEZONE",
            show_envvar=False,
            help="Time zone of times in the file that name none, e.g. Europe/Berlin.",
        ),
    ] = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Import audiograms from other sources, as references for screens.

    Lists every row that cannot be imported, with the reason. Nothing is stored then, unless
    --skip-rejected is given. Times without a zone need --timezone.
    """
    from earshift.clinic.audiograms import ImportedFile
    from earshift.formats import read_references
    from earshift.formats.references import levels, pairs

    columns = pairs(column, "--column")
    if person_column is not None:
        columns[person_column] = "person"
    found = read_references(
        file,
        kind,
        timezone=timezone,
        columns=columns,
        sentinels=pairs(sentinel, "--sentinel"),
        no_response_db_hl=levels(no_response_db, "--no-response-db"),
        baselines_only=not every,
        method_offset_db=method_offset,
        decimal_comma=decimal_comma,
        day_first=day_first,
        person=person,
    )
    if found.accepted and (not dry_run or is_there(db)):
        found = _judged(found, db, author, timezone)
    done = ImportedFile(found, refused=bool(found.rejected) and not skip_rejected)
    stores = not done.refused and not dry_run
    if stores and found.accepted:
        done = _store(found, db, author, timezone)
    if as_json:
        _show_import_as_json(file, done, dry_run)
    else:
        _show_import(done, stores)
    done.require_some(str(file))


def _judged(
    found: "References", db: str | None, author: str | None, timezone: str | None
) -> "References":
    from earshift.clinic.audiograms import judged_by_store
    from earshift.clinic.zones import local_zone

    with opened(db) as store:
        return judged_by_store(
            store, found, author=author_name(author), zone=timezone or local_zone()
        )


def _store(
    found: "References", db: str | None, author: str | None, timezone: str | None
) -> "ImportedFile":
    from earshift.clinic.audiograms import store_references
    from earshift.clinic.zones import local_zone

    with opened(db) as store:
        return store_references(
            store,
            found,
            author=author_name(author),
            zone=timezone or local_zone(),
            skip_rejected=True,
        )


def _show_import_as_json(file: Path, done: "ImportedFile", dry_run: bool) -> None:
    found = done.found
    show_json(
        {
            "file": str(file),
            "sound": len(found.accepted),
            "rejected": [{"row": one.row, "reason": one.reason} for one in found.rejected],
            "left_out": [{"row": one.row, "reason": one.reason} for one in found.left_out],
            "added": [exam.id for exam in done.added],
            "known": [exam.id for exam in done.known],
            "dry_run": dry_run,
        }
    )


def _show_import(done: "ImportedFile", stored: bool) -> None:
    found = done.found
    for title, rows in (("Rejected", found.rejected), ("Left out", found.left_out)):
        if rows:
            refused_rows(title, rows)
    typer.echo(f"{len(found.accepted)} audiograms can be imported")
    if stored:
        again = f"; {len(done.known)} were stored before" if done.known else ""
        typer.echo(f"{len(done.added)} stored{again}")
    else:
        typer.echo("Nothing was stored")


@app.command(epilog=EXIT_CODES)
def export(
    kind: Annotated[str, typer.Option("--format", help="csv, parquet, fhir or bids.")],
    out: Annotated[Path, typer.Option(help="New folder; for fhir, a new file.")],
    who: Annotated[
        str | None, typer.Option("--person", help="Only this person, by id or code.")
    ] = None,
    identity: Annotated[
        bool | None,
        typer.Option(
            "--identity/--no-identity",
            help="Write names, birth dates and codes. Default: only in FHIR.",
        ),
    ] = None,
    tidy: Annotated[
        bool,
        typer.Option("--tidy", help="Tables: one row per frequency instead of JSON in cells."),
    ] = False,
    first: Annotated[
        str | None, typer.Option("--from", help="Only visits from this day on, YYYY-MM-DD.")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", help="Only visits up to this day, YYYY-MM-DD.")
    ] = None,
    simulated: Annotated[
        bool,
        typer.Option(
            "--simulated/--no-simulated", help="Also visits of simulated listeners, or not."
        ),
    ] = True,
    timezone: Timezone = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Export visits as tidy tables, a FHIR bundle or a BIDS folder."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from earshift.clinic.day import visits_of_period
    from earshift.clinic.people import find_person
    from earshift.clinic.zones import as_zone, local_zone
    from earshift.formats import export as write

    with looked_into(db) as store:
        person_id = None if who is None else find_person(store, who).id
        start = None if first is None else as_date(first, "the first day")
        end = None if last is None else as_date(last, "the last day")
        by_day = first is not None or last is not None
        zone = as_zone(timezone or local_zone()) if by_day else "UTC"
        some = by_day or not simulated  # how many is known when they were read
        total = None if some else store.count_visits()
        if person_id is not None and not some:
            total = len(store.visits(person_id))
        bar = Progress(
            TextColumn("visits"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True, quiet=as_json),
        )
        with bar:
            task = bar.add_task("visits", total=total)
            count = write(
                visits_of_period(store, start, end, zone, person_id=person_id, simulated=simulated),
                kind,
                out,
                identity=identity,
                tidy=tidy,
                progress=lambda done: bar.update(task, completed=done),
            )
        subject = "visits" if person_id is None else f"people:{person_id}"
        told = {
            "format": kind,
            "visits": count,
            "with_identity": identity,
            "from": start,
            "to": end,
        }
        plain = {name: None if one is None else str(one) for name, one in told.items()}
        disclosed(store, author, "export", subject, **plain)
    if as_json:
        show_json({"format": kind, "out": str(out), "visits": count})
    else:
        typer.echo(f"{count} visits: {out}")
