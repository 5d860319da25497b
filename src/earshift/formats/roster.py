"""Employees from CSV: one row each, without audiograms.

Columns are code, name, birth_date, sex, department, job, hired_on and left_on; common other names
are known, and any column can be mapped, also to "not used". Nothing is guessed: dates are
2026-12-31 unless the caller says that the day comes first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from earshift.engine.refusal import Refusal
from earshift.formats.files import check_size, naming, unguard
from earshift.formats.references import (
    Options,
    Rejected,
    Shown,
    as_birth_date,
    as_sex,
    identifying,
    rejected,
    shown,
)
from earshift.formats.sheets import numbered, table_rows

MAX_BYTES = 64_000_000
MAX_EMPLOYEES = 200_000
NAMES = {
    "code": ("code", "employee_id", "employee_number", "personnel_number", "person", "chart_id"),
    "name": ("name", "full_name", "employee_name"),
    "birth_date": ("birth_date", "birthdate", "date_of_birth", "dob"),
    "sex": ("sex", "gender"),
    "department": ("department", "dept", "unit"),
    "job": ("job", "job_title", "position"),
    "hired_on": ("hired_on", "hire_date", "hired", "date_hired"),
    "left_on": ("left_on", "leave_date", "left", "termination_date"),
}


NOT_USED = "not used"


@dataclass(frozen=True)
class Employee:
    """A row of a roster. `known` holds what it says; a blank cell says nothing."""

    row: int
    code: str
    known: Mapping[str, Any]


@dataclass(frozen=True)
class Roster:
    """What a file gave: employees, and every row that gave none."""

    employees: tuple[Employee, ...]
    rejected: tuple[Rejected, ...] = ()
    fields: tuple[str, ...] = ()
    """What the file has columns for."""


def read_roster(
    path: Path | str, *, columns: Mapping[str, str] | None = None, day_first: bool = False
) -> Roster:
    """The employees of a CSV file; `columns` maps names of its columns to ours."""
    file = Path(path)
    with naming(file):
        return _read(file, Options(columns=columns or {}, day_first=day_first))


def _read(file: Path, options: Options) -> Roster:
    check_size(file, MAX_BYTES)
    rows = table_rows(file)
    header = next(rows, [])
    places = _places(file, header, options)
    found: dict[str, Employee] = {}
    refused: list[Rejected] = []
    for number, row in numbered(rows):
        try:
            if len(row) != len(header):
                raise Refusal(f"it has {len(row)} fields where the header has {len(header)}")
            employee = _employee(number, row, places, options)
            if employee.code in found:
                raise Refusal(f"row {found[employee.code].row} has the same code")
        except Refusal as refusal:
            refused.append(rejected(number, refusal))
            continue
        found[employee.code] = employee
        if len(found) > MAX_EMPLOYEES:
            raise Refusal(f"{{file}} holds more than {MAX_EMPLOYEES:,} employees", file=file)
    return Roster(tuple(found.values()), tuple(refused), tuple(places))


def recognised(path: Path) -> list[tuple[str, str]]:
    """The columns of a file in their order, each with the name it is read by, or an empty one."""
    check_size(path, MAX_BYTES)
    header = next(table_rows(path), [])
    names = {place: name for name, place in _found(path, header, Options()).items()}
    return [(unguard(cell).strip(), names.get(place, "")) for place, cell in enumerate(header)]


def _places(file: Path, header: list[str], options: Options) -> dict[str, int]:
    """Where each field stands; people are found by their code, so there must be one."""
    places = _found(file, header, options)
    if "code" not in places:
        raise Refusal(
            f"{{file}} has no column for the code ({', '.join(NAMES['code'])})",
            file=file,
            got=Shown(", ".join(shown(name) for name in header[:8]) or "none"),
            advice="map one with columns",
        )
    return places


def _found(file: Path, header: list[str], options: Options) -> dict[str, int]:
    """Where each field stands; a column that was mapped is that alone, whatever its name."""
    cells = [unguard(cell).strip() for cell in header]
    absent = [name for name in options.columns if name not in cells]
    if absent:
        raise Refusal(
            "{file} has no column of this name",
            file=file,
            got=Shown(", ".join(shown(name) for name in absent)),
        )
    for theirs, ours in options.columns.items():
        if ours not in (*NAMES, NOT_USED):
            known = ", ".join((*NAMES, NOT_USED))
            raise Refusal(f"{{column}} must be one of {known}", column=shown(theirs), got=ours)
    plain = [cell.casefold().replace(" ", "_").replace("-", "_") for cell in cells]
    places: dict[str, int] = {}
    for field, spellings in NAMES.items():
        chosen = [theirs for theirs, ours in options.columns.items() if ours == field]
        wanted = [cells.index(name) for name in chosen]
        wanted = wanted or [
            place
            for place, name in enumerate(plain)
            if name in spellings and cells[place] not in options.columns
        ]
        if len(wanted) > 1:
            raise Refusal(f"{{file}} has more than one column for {field}", file=file)
        if wanted:
            places[field] = wanted[0]
    return places


def _employee(number: int, row: list[str], places: dict[str, int], options: Options) -> Employee:
    cells = {field: unguard(row[place]).strip() for field, place in places.items()}
    known: dict[str, Any] = {}
    for field, text in cells.items():
        if not text:
            continue
        if field == "birth_date":
            known[field] = as_birth_date(options.day(text), text)
        elif field == "sex":
            known[field] = as_sex(text)
        elif field in ("hired_on", "left_on"):
            known[field] = _day(options.day(text), field, text)
        else:
            known[field] = identifying(text, field)
    code = identifying(cells["code"], "the code")
    if known.get("left_on") and known.get("hired_on") and known["left_on"] < known["hired_on"]:
        raise Refusal("left_on is before hired_on", got=known["left_on"])
    return Employee(number, code, {name: one for name, one in known.items() if one is not None})


def _day(text: str, field: str, written: str) -> date:
    try:
        day = date.fromisoformat(text if len(text) == 10 else "")
    except ValueError:
        raise Refusal(f"{field} must look like 2026-12-31", got=shown(written)) from None
    if not 1930 <= day.year <= 2200:
        raise Refusal(f"{{value}} cannot be {field}", value=written)
    return day
