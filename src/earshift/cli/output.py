"""What records look like on the terminal: tables for people, JSON for programs."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from earshift.records import Person


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
    Console().print(picture)


def person_label(person: "Person") -> str:
    """How a person is called on the screen."""
    names = [part for part in (person.code, person.name) if part]
    return printable(f"person {person.id}" + (f" ({', '.join(names)})" if names else ""))
