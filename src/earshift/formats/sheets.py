"""References from CSV: one row per threshold, or one row per test with a column per ear and tone.

A long table has the columns person, ear, frequency_hz and threshold_db_hl; a wide one has person
and columns such as left_500, right4000 or left8 (numbers up to 20 are kHz). Both may have date,
name, birth_date, sex and conduction. The shape of MIE's Enterprise Health is a wide one with a
baseline flag per ear, in which 99 means "no response". Columns that say whether a rule was met are
ignored: they mean different things in different systems.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path

from earshift.engine.refusal import Refusal
from earshift.engine.values import EARS
from earshift.formats.files import check_size, not_utf8, unguard
from earshift.formats.references import (
    MAX_ITEMS,
    NO_RESPONSE,
    NO_ZONE,
    NOT_TESTED,
    Collector,
    Ear,
    Options,
    References,
    Shown,
    as_birth_date,
    as_ear,
    as_sex,
    checked_frequency,
    frequency_hz,
    identifying,
    level_db_hl,
    number_of,
    shown,
)
from earshift.records import ImportedAudiogram

MAX_BYTES = 128_000_000
MAX_LINE = 1_000_000  # characters
MAX_COLUMNS = 2000
MAX_TONES = 100  # columns of thresholds
MAX_ROWS = 3_000_000

# A column may go by several names; the first that a file has counts.
NAMES = {
    "person": ("code", "chart_id", "person", "person_code", "patient_id", "subject_id"),
    "date": ("measured_at", "date", "datetime", "test_datetime", "test_date", "exam_date"),
    "birth_date": ("birth_date", "birthdate", "date_of_birth", "dob"),
    "sex": ("sex", "gender"),
    **{
        name: (name,)
        for name in (
            "name",
            "ear",
            "frequency_hz",
            "threshold_db_hl",
            "no_response",
            "level_tried_db_hl",
            "sd_db",
            "method_offset_db",
            "conduction",
            "mode",
            "left_baseline",
            "right_baseline",
        )
    },
}
# What `_who` looks at.
ABOUT = (
    *("person", "date", "name", "birth_date", "sex"),
    *("sd_db", "method_offset_db", "conduction", "mode"),
)
CHOSEN = "the chosen "
OWN_SENTINELS = {NO_RESPONSE: NO_RESPONSE, NOT_TESTED: NOT_TESTED}  # plain words need no map
MIE_SENTINELS = {**OWN_SENTINELS, "99": NO_RESPONSE}
EAR_AND_TONE = re.compile(
    r"(?P<ear>left|right|l|r)_?(?P<number>[0-9]{1,5}(\.[0-9])?)_?(?P<unit>k|khz|hz)?(_db_hl|_db)?"
)


def read(path: Path, options: Options, mie: bool = False) -> References:
    """The audiograms of a CSV file. A ValueError says what is wrong with the file as a whole."""
    check_size(path, MAX_BYTES)
    rows = table_rows(path)
    header = next(rows, [])
    columns = _columns(path, header, options)
    tones = _ear_columns(path, header, options)
    if "person" not in columns:
        raise Refusal(
            f"{{file}} has no column for the person ({', '.join(NAMES['person'])})",
            file=path,
            got=Shown(", ".join(shown(name) for name in header[:8]) or "none"),
            advice="map one with columns",
        )
    long = {"ear", "frequency_hz", "threshold_db_hl"} <= columns.keys()
    if long == bool(tones):
        raise Refusal(
            "{file} must have either the columns ear, frequency_hz and threshold_db_hl, or a "
            "column per ear and frequency such as left_500; it has "
            f"{'both' if long else 'neither'}",
            file=path,
        )
    if mie and (long or not {"left_baseline", "right_baseline"} <= columns.keys()):
        raise Refusal(
            "{file} is not of the shape mie: it lacks left_baseline, right_baseline or columns "
            "such as left500",
            file=path,
        )
    known = {**(MIE_SENTINELS if mie else OWN_SENTINELS), **options.sentinels}
    sheet = _Sheet(path, options, columns, len(header), known)
    return sheet.long(rows) if long else sheet.wide(rows, tones)


def recognised(path: Path) -> list[tuple[str, str]]:
    """The columns of a file in their order, each with the name it is read by, or an empty one."""
    check_size(path, MAX_BYTES)
    header = next(table_rows(path), [])
    names = {place: name for name, place in _columns(path, header, Options()).items()}
    for (ear, frequency), place in _ear_columns(path, header, Options()).items():
        names[place] = f"{ear}_{frequency:g}"
    return [(unguard(cell).strip(), names.get(place, "")) for place, cell in enumerate(header)]


@dataclass
class _Group:
    """The rows of a long table that make one audiogram."""

    who: "_Who"
    ear: str
    readings: Ear = field(default_factory=Ear)
    rows: list[int] = field(default_factory=list)
    bad_row: int | None = None


@dataclass(frozen=True)
class _Who:
    """What a row says besides thresholds."""

    code: str
    measured_at: datetime | None
    name: str | None
    birth_date: date | None
    sex: str | None
    sd_db: float
    method_offset_db: float
    no_zone: Refusal | None = field(default=None, compare=False)  # once all else is in order


@dataclass(frozen=True)
class _Sheet:
    """A table whose columns are known, and how to take its rows."""

    path: Path
    options: Options
    columns: dict[str, int]
    width: int
    known: dict[str, str]  # codes of cells, the format's and the caller's

    def wide(self, rows: Iterator[list[str]], tones: dict[tuple[str, float], int]) -> References:
        found = Collector(self.path)
        for number, row in numbered(rows):
            try:
                who = self._who(row)
                ears = {ear: Ear() for ear in EARS}
                for (ear, frequency), place in tones.items():
                    self._read(ears[ear], frequency, row[place], None, f"{ear} {frequency:g} Hz: ")
                if all(readings.empty for readings in ears.values()):
                    raise Refusal("it has no threshold")
                flags = {ear: self._is_baseline(row, ear) for ear in EARS}
                items = {
                    ear: self._item(who, ear, readings, flags[ear])
                    for ear, readings in ears.items()
                    if not readings.empty
                }
                if who.no_zone is not None:
                    raise who.no_zone
            except Refusal as error:
                found.reject(number, error)
                continue
            for ear, item in items.items():
                if flags[ear] is False and self.options.baselines_only:
                    found.leave_out(number, f"the {ear} ear is not a baseline")
                else:
                    found.accept(number, item)
        return found.result()

    def long(self, rows: Iterator[list[str]]) -> References:
        found = Collector(self.path)
        groups: dict[tuple[str, str, datetime | None], _Group] = {}
        before: list[str] = []
        for number, row in numbered(rows):
            try:
                # Rows of one audiogram mostly follow each other and say the same of the person.
                about = [self._cell(row, name) for name in ABOUT] if len(row) == self.width else []
                if not about or about != before:
                    who, before = self._who(row), about
                ear = as_ear(self._cell(row, "ear"))
            except Refusal as error:
                found.reject(number, error)
                continue
            group = groups.setdefault((who.code, ear, who.measured_at), _Group(who, ear))
            if len(groups) > MAX_ITEMS:
                raise Refusal(
                    f"{{file}} holds more than {MAX_ITEMS:,} audiograms: split it", file=self.path
                )
            group.rows.append(number)
            try:
                if who != group.who:
                    raise Refusal("it differs from an earlier row of the same audiogram")
                frequency = frequency_hz(self._cell(row, "frequency_hz"))
                self._read(group.readings, frequency, self._reading(row), self._tried(row), "")
            except Refusal as error:
                found.reject(number, error)
                group.rows.pop()
                group.bad_row = group.bad_row or number
        for group in groups.values():
            try:
                # Half an audiogram would pass for a whole one.
                if group.bad_row is not None:
                    raise Refusal(f"row {group.bad_row} of the same audiogram is rejected")
                if group.readings.empty:
                    raise Refusal("this audiogram has no threshold")
                item = self._item(group.who, group.ear, group.readings, None)
                if group.who.no_zone is not None:
                    raise group.who.no_zone
            except Refusal as error:
                for number in group.rows:
                    found.reject(number, error)
            else:
                found.accept(group.rows[0], item)
        return found.result()

    def _cell(self, row: list[str], name: str) -> str:
        place = self.columns.get(name)
        return "" if place is None else unguard(row[place])

    def _who(self, row: list[str]) -> _Who:
        if len(row) != self.width:
            raise Refusal(f"it has {len(row)} fields where the header has {self.width}")
        conduction = self._cell(row, "conduction").strip().casefold()
        if "conduction" in self.columns and conduction not in ("air", "air conduction", "ac"):
            raise Refusal("conduction must be air", got=shown(conduction))
        if self._cell(row, "mode").strip().casefold() == "simulated":
            raise Refusal("it is simulated, not a real person's hearing")
        name = self._cell(row, "name")
        born = self._cell(row, "birth_date")
        measured_at, no_zone = self._moment(self._cell(row, "date").strip())
        return _Who(
            code=identifying(self._cell(row, "person"), "the person"),
            measured_at=measured_at,
            name=identifying(name, "name") if name.strip() else None,
            birth_date=as_birth_date(self.options.day(born), born),
            sex=as_sex(self._cell(row, "sex")),
            sd_db=self._number(row, "sd_db", self.options.sd_db),
            method_offset_db=self._number(row, "method_offset_db", self.options.method_offset_db),
            no_zone=no_zone,
        )

    def _moment(self, text: str) -> tuple[datetime | None, Refusal | None]:
        """When a row was measured. One without a zone is looked at further: it is refused in the
        end, but whatever else is wrong with the row comes first.
        """
        if not text:
            return None, None
        try:
            return self.options.moment(text), None
        except Refusal as refusal:
            if refusal.code != NO_ZONE:
                raise
            return replace(self.options, timezone="UTC").moment(text), refusal

    def _number(self, row: list[str], name: str, otherwise: float) -> float:
        cell = self._cell(row, name).strip()
        return number_of(self.options.number(cell)) if cell else otherwise

    def _reading(self, row: list[str]) -> str:
        """The threshold's cell of a long table; a flag may say "no response" in its place."""
        cell, flag = (self._cell(row, name).strip() for name in ("threshold_db_hl", "no_response"))
        if flag.casefold() not in ("", "true", "false"):
            raise Refusal("no_response must be true, false or blank", got=shown(flag))
        if flag.casefold() != "true":
            return cell
        if cell:
            raise Refusal("it has both a threshold and no response")
        return NO_RESPONSE

    def _tried(self, row: list[str]) -> float | None:
        cell = self._cell(row, "level_tried_db_hl").strip()
        return level_db_hl(number_of(self.options.number(cell))) if cell else None

    def _read(self, ear: Ear, frequency: float, cell: str, tried: float | None, where: str) -> None:
        """Take one cell; an error says where it stands."""
        try:
            meaning, level = self.options.meaning(unguard(cell), self.known)
            if meaning == NO_RESPONSE:
                level = self.options.tried(frequency, tried)
            ear.add(frequency, meaning, level)
        except Refusal as error:
            raise error.within(where) from None

    def _is_baseline(self, row: list[str], ear: str) -> bool | None:
        """Whether the file flags the ear as a baseline; None where it has no flags."""
        if f"{ear}_baseline" not in self.columns:
            return None
        flag = self._cell(row, f"{ear}_baseline").strip().casefold()
        if flag not in ("yes", "no"):
            raise Refusal(f"{ear}_baseline must be YES or NO", got=shown(flag))
        return flag == "yes"

    def _item(self, who: _Who, ear: str, readings: Ear, baseline: bool | None) -> ImportedAudiogram:
        words = {True: ", baseline", False: ", not a baseline", None: ""}[baseline]
        audiogram = readings.audiogram(who.sd_db, who.method_offset_db)
        return ImportedAudiogram(
            code=who.code,
            ear=ear,
            audiogram=audiogram.to_dict(),
            measured_at=who.measured_at,
            source=f"{self.path.name}, CSV{words}",
            name=who.name,
            birth_date=who.birth_date,
            sex=who.sex,
        )


def table_rows(path: Path) -> Iterator[list[str]]:
    """All rows as lists of cells, the header first; blank lines are empty lists."""
    with path.open(encoding="utf-8-sig", newline="") as file:

        def lines() -> Iterator[str]:
            while line := file.readline(MAX_LINE):
                if len(line) == MAX_LINE:
                    raise Refusal(
                        f"{{file}} has a line of more than {MAX_LINE:,} characters: it is not a "
                        "table of audiograms",
                        file=path,
                    )
                if "\0" in line:
                    raise Refusal(
                        "{file} contains null bytes: it is not a text file in UTF-8", file=path
                    )
                yield line

        try:
            first = file.readline(MAX_LINE)
            file.seek(0)
            delimiter = max(",;\t", key=first.count)
            yield from csv.reader(lines(), delimiter=delimiter, strict=True)
        except UnicodeDecodeError as error:
            raise not_utf8(path, error) from None
        except csv.Error as error:
            raise Refusal(f"{{file}} is not a valid CSV file: {error}", file=path) from None


def numbered(rows: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, with the number a spreadsheet shows; the header was row 1."""
    for number, row in enumerate(rows, start=2):
        if number > MAX_ROWS:
            raise Refusal(f"more than {MAX_ROWS:,} rows: split the file")
        if any(cell.strip() for cell in row):
            yield number, row


def _plain(name: str, options: Options) -> str:
    """A column's name in the spelling known here; one that the caller chose goes first."""
    name = unguard(name).strip()
    chosen = options.columns.get(name)
    plain = re.sub(r"[\s\-]+", "_", (chosen or name).strip().casefold())
    return f"{CHOSEN}{plain}" if chosen and plain in NAMES else plain


def _columns(path: Path, header: list[str], options: Options) -> dict[str, int]:
    """Where the columns stand that are not thresholds."""
    if len(header) > MAX_COLUMNS:
        raise Refusal(
            f"{{file}} has {len(header)} columns; at most {MAX_COLUMNS} are read", file=path
        )
    names = [_plain(name, options) for name in header]
    absent = [name for name in options.columns if name not in (cell.strip() for cell in header)]
    if absent:
        raise Refusal(
            "{file} has no column of this name",
            file=path,
            got=Shown(", ".join(shown(name) for name in absent)),
        )
    places: dict[str, int] = {}
    for meaning, spellings in NAMES.items():
        for spelling in (f"{CHOSEN}{meaning}", *spellings):
            if names.count(spelling) > 1:
                raise Refusal(f"{{file}} has the column {spelling} more than once", file=path)
            if spelling in names and meaning not in places:
                places[meaning] = names.index(spelling)
    return places


def _ear_columns(path: Path, header: list[str], options: Options) -> dict[tuple[str, float], int]:
    """Where each ear's tones stand in a wide table."""
    tones: dict[tuple[str, float], int] = {}
    for place, name in enumerate(header):
        match = EAR_AND_TONE.fullmatch(_plain(name, options))
        if match is None:
            continue
        number, unit = float(match["number"]), match["unit"] or ""
        # Nobody tests 8 Hz: a small number without a unit is kHz.
        thousands = unit.startswith("k") or (not unit and number <= 20)
        try:
            frequency = checked_frequency(number * 1000 if thousands else number)
        except Refusal as error:
            raise error.within(
                "{column} of {file}: ", column=f"the column {shown(name)}", file=path
            ) from None
        key = (as_ear(match["ear"]), frequency)
        if key in tones:
            raise Refusal(
                f"{{file}} has the {key[0]} ear at {frequency:g} Hz more than once", file=path
            )
        tones[key] = place
    if len(tones) > MAX_TONES:
        raise Refusal(
            f"{{file}} has {len(tones)} columns of thresholds; at most {MAX_TONES} are read",
            file=path,
        )
    return tones
