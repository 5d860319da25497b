"""Records for others: reports, audiograms from elsewhere, visits for elsewhere."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from earshift.cli.app import AsJson, app, fail
from earshift.cli.database import (
    EXIT_CODES,
    Author,
    Database,
    author_name,
    opened,
    plain_failures,
)
from earshift.cli.terminal import printable, show_json, table
from earshift.engine.refusal import Refusal

if TYPE_CHECKING:
    from earshift.formats import References


@app.command(epilog=EXIT_CODES)
def report(
    visit_id: Annotated[int, typer.Argument(metavar="VISIT", min=1, help="Id of the visit.")],
    out: Annotated[Path, typer.Option(help="File to write: its name ends in .html or .pdf.")],
    paper: Annotated[str, typer.Option(help="Of a PDF: a4 or letter.")] = "a4",
    font: Annotated[
        list[Path] | None,
        typer.Option(help="Of a PDF: a TrueType file for scripts that the shipped font lacks."),
    ] = None,
    db: Database = None,
    as_json: AsJson = False,
) -> None:
    """Write the report of a visit, one page for both ears, as HTML or PDF.

    It shows the results as they were stored, and never computes them anew.
    """
    kind = out.suffix.lower()
    with opened(db) as store:
        if kind not in (".html", ".pdf"):
            raise Refusal(f"a report is a file that ends in .html or .pdf, got {out.name!r}")
        from earshift.report import write_html, write_pdf

        bundle = store.visit_bundle(visit_id)
        if kind == ".html":
            write_html(bundle, out)
            warnings = []
        else:
            warnings = write_pdf(bundle, out, paper, fonts=font or ())
    if as_json:
        show_json({"visit": visit_id, "report": str(out), "warnings": warnings})
        return
    for warning in warnings:
        typer.secho(f"earshift: {printable(warning)}", fg="yellow", err=True)
    typer.echo(f"Report of visit {visit_id}: {out}")


def _pairs(texts: Sequence[str] | None, what: str) -> dict[str, str]:
    """`--option LEFT=RIGHT`, any number of times; the last = divides, as texts may hold one."""
    pairs = {}
    for text in texts or ():
        left, equals, right = text.rpartition("=")
        if not equals or not left.strip() or not right.strip():
            raise Refusal(f"{what} is written TEXT=MEANING, got {text!r}")
        pairs[left.strip()] = right.strip()
    return pairs


def _levels(texts: Sequence[str] | None) -> float | dict[float, float] | None:
    """One level for all frequencies, or FREQUENCY=LEVEL for each."""
    try:
        if texts is not None and len(texts) == 1 and "=" not in texts[0]:
            return float(texts[0])
        pairs = _pairs(texts, "--no-response-db")
        return {float(f): float(level) for f, level in pairs.items()} or None
    except ValueError:
        raise Refusal(
            "--no-response-db is a level such as 90, or FREQUENCY=LEVEL such as 8000=85; "
            f"got {', '.join(texts or ())}"
        ) from None


@app.command("import", epilog=EXIT_CODES)
def import_references(
    file: Annotated[Path, typer.Argument(help="File with audiograms.")],
    kind: Annotated[
        str | None,
        typer.Option("--format", help="csv, mie, fhir or nhanes; else the file's name decides."),
    ] = None,
    person_column: Annotated[
        str | None, typer.Option(help="Of a CSV: the column with the person's code.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="Of a CSV: THEIRS=OURS, e.g. Untersucht=date. May be repeated."),
    ] = None,
    sentinel: Annotated[
        list[str] | None,
        typer.Option(help="TEXT=MEANING of a cell: no response, not tested or threshold."),
    ] = None,
    no_response_db: Annotated[
        list[str] | None,
        typer.Option(help="Level tried where no response is written: 90, or 8000=85 for each."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--every", help="Also audiograms that the file flags as no baseline.")
    ] = False,
    method_offset: Annotated[
        float, typer.Option(help="dB that the method reads too high; 5 dB steps upward: 2.5.")
    ] = 0.0,
    skip_rejected: Annotated[
        bool, typer.Option("--skip-rejected", help="Store the sound rows though others are not.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and tell, store nothing.")] = (
        False
    ),
    timezone: Annotated[
        str | None,
        typer.Option(
            envvar="EARSHIFT_TIMEZONE",
            show_envvar=False,
            help="Zone of times in the file that name none, e.g. Europe/Berlin; needed for them.",
        ),
    ] = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Store audiograms from elsewhere as references to screen against.

    Lists every row that cannot be taken, with the reason. Then nothing is stored, unless
    --skip-rejected says to store the others. Times without a zone need --timezone.
    """
    from earshift.clinic.zones import local_zone
    from earshift.formats import read_references

    with plain_failures():
        columns = _pairs(column, "--column")
        if person_column is not None:
            columns[person_column] = "person"
        found = read_references(
            file,
            kind,
            timezone=timezone,
            columns=columns,
            sentinels=_pairs(sentinel, "--sentinel"),
            no_response_db_hl=_levels(no_response_db),
            baselines_only=not every,
            method_offset_db=method_offset,
        )
    refused = bool(found.rejected) and not skip_rejected
    added, known = [], []
    if not refused and not dry_run and found.accepted:
        with opened(db) as store:
            stored = store.import_audiograms(
                found.accepted, author=author_name(author), zone=timezone or local_zone()
            )
            added, known = [e.id for e in stored.added], [e.id for e in stored.known]
    if as_json:
        show_json(
            {
                "file": str(file),
                "sound": len(found.accepted),
                "rejected": [asdict(row) for row in found.rejected],
                "left_out": [asdict(row) for row in found.left_out],
                "added": added,
                "known": known,
                "dry_run": dry_run,
            }
        )
    else:
        _tell_import(found, added, known, stored=not refused and not dry_run)
    if refused:
        raise fail(
            f"{len(found.rejected)} rows cannot be taken, so nothing was stored: mend the file, "
            "explain its codes by --sentinel, or give --skip-rejected"
        )
    if not found.accepted:
        raise fail(f"{file} holds no audiogram that can be taken")


def _tell_import(
    found: "References", added: Sequence[int], known: Sequence[int], stored: bool
) -> None:
    for title, rows in (("Rejected", found.rejected), ("Left out", found.left_out)):
        if rows:
            table(title, ["row", "reason"], [[row.row, row.reason] for row in rows])
    typer.echo(f"{len(found.accepted)} audiograms are sound")
    if stored:
        again = f"; {len(known)} were stored before" if known else ""
        typer.echo(f"{len(added)} stored{again}")
    else:
        typer.echo("Nothing was stored")


@app.command(epilog=EXIT_CODES)
def export(
    kind: Annotated[str, typer.Option("--format", help="csv, parquet, fhir or bids.")],
    out: Annotated[Path, typer.Option(help="New folder; of fhir, a new file.")],
    who: Annotated[
        str | None, typer.Option("--person", help="One person alone, by id or code.")
    ] = None,
    identity: Annotated[
        bool | None,
        typer.Option(
            "--identity/--no-identity",
            help="Write names, birth dates and codes; by default in FHIR alone.",
        ),
    ] = None,
    db: Database = None,
    as_json: AsJson = False,
) -> None:
    """Write visits for others: tidy tables, a FHIR bundle or a BIDS folder."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from earshift.clinic.people import find_person
    from earshift.formats import export as write

    with opened(db) as store:
        person_id = None if who is None else find_person(store, who).id
        total = store.count_visits() if person_id is None else len(store.visits(person_id))
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
                store.iter_visit_bundles(person_id),
                kind,
                out,
                identity=identity,
                progress=lambda done: bar.update(task, completed=done),
            )
    if as_json:
        show_json({"format": kind, "out": str(out), "visits": count})
    else:
        typer.echo(f"{count} visits: {out}")
