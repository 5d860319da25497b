"""What people see and type: tables, JSON for programs, lines from the keyboard or a pipe."""

import io
import json
import os
import sys
from collections.abc import Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import typer

from earshift.cli.advice import ADVICE
from earshift.engine.refusal import Refusal

if TYPE_CHECKING:
    from earshift.formats.references import Rejected
    from earshift.records import Person

WIDEST = 10_000  # columns of a table on no terminal
MOST_LINES = 50  # of refused rows
MENDED_BY_OPTION = ("day-first", "decimal-comma")  # codes of refused rows
INFERRED = "(in brackets): no tone was given there; estimated from neighbours"
LINE = 200  # characters that a typed line may have; more is a mistake


def printable(value: object) -> str:
    """Text for the terminal: what could steer it is shown as a question mark."""
    text = "" if value is None else str(value)
    return "".join(char if char.isprintable() else "�" for char in text)


def show_json(data: object) -> None:
    typer.echo(json.dumps(data, indent=2, default=str))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    picture = Table(title=Text(printable(title)))
    for name in columns:
        picture.add_column(name)
    for row in rows:
        picture.add_row(*(Text(printable(cell)) for cell in row))
    console = Console()
    needed = console.measure(picture, options=console.options.update(width=WIDEST))
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = max(console.width, needed.maximum)  # a file has no edge
    if needed.minimum <= console.width:
        console.print(picture)
        return
    # Words would be cut: a window as narrow as that gets a line for each cell.
    typer.echo(printable(title))
    for row in rows:
        for name, cell in zip(columns, row, strict=True):
            typer.echo(f"  {name}: {printable(cell)}")
        typer.echo()


def refused_rows(title: str, rows: Sequence["Rejected"]) -> None:
    """A table of rows and reasons: neighbours with the same one in a line, and not thousands.

    What an option of the command would mend is said once below, by the option's own name.
    """
    lines: list[list[Any]] = []
    nowhere = [one for one in rows if one.code == "no-zone"]  # mostly a whole file
    for one in rows:
        if one.code == "no-zone":
            continue
        mended = one.code in MENDED_BY_OPTION
        reason = one.reason.removesuffix(f"; {one.advice}") if mended else one.reason
        if lines and lines[-1][1] == one.row - 1 and lines[-1][2] == reason:
            lines[-1][1] = one.row
        else:
            lines.append([one.row, one.row, reason])
    shown = [
        [str(first) if first == last else f"{first}-{last}", reason]
        for first, last, reason in lines[:MOST_LINES]
    ]
    if shown:
        table(title, ["row", "reason"], shown)
    if len(lines) > MOST_LINES:
        typer.echo(f"and {len(lines) - MOST_LINES} more: --json lists all")
    for code in dict.fromkeys(one.code for one in rows if one.code in MENDED_BY_OPTION):
        advice = ADVICE[code]
        typer.echo(f"{advice[0].upper()}{advice[1:]}")
    if nowhere:
        count = "1 row has" if len(nowhere) == 1 else f"{len(nowhere)} rows have"
        typer.echo(f"{count} a time without a time zone: {ADVICE['no-zone']}")


def person_label(person: "Person") -> str:
    """What a person is called on the screen."""
    names = [part for part in (person.code, person.name) if part]
    return printable(f"person {person.id}" + (f" ({', '.join(names)})" if names else ""))


def as_date(text: str, what: str) -> date:
    """A date as it is typed."""
    try:
        return datetime.strptime(text.strip(), "%Y-%m-%d").date()
    except ValueError:
        raise Refusal(f"{what} must look like YYYY-MM-DD", got=text) from None


def read_line() -> str | None:
    """A line from the keyboard or a pipe; None at its end. One too long is read past, not kept."""
    if isinstance(sys.stdin, io.TextIOWrapper) and sys.stdin.errors != "replace":
        sys.stdin.reconfigure(errors="replace")  # what is no text is a wrong answer, not a crash
    line = sys.stdin.readline(LINE)
    whole = len(line) < LINE or line.endswith("\n")
    while not whole:
        line = "?"
        rest = sys.stdin.readline(LINE)
        whole = len(rest) < LINE or rest.endswith("\n")
    return line or None


def confirmed(question: str) -> bool:
    """A yes from the keyboard. The end of input is a no."""
    typer.echo(f"{question} [y/N] ", nl=False, err=True)
    try:
        answer = read_line()
    except KeyboardInterrupt:
        answer = None
    if answer is None:
        typer.echo(err=True)
        return False
    return answer.strip().casefold() in ("y", "yes")
