"""Visits as tidy tables, in CSV or Parquet: one row per tone, one per verdict, one per threshold.

Each table knows its columns and their types, so that a file reads back as it was written. In CSV a
missing value is an empty cell, and a text that begins like a formula gets an apostrophe, which
`read` takes off. The table of thresholds is one that `read_references` takes.
"""

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from earshift.days import age_on, local_day
from earshift.engine.audiogram import Audiogram
from earshift.engine.refusal import Refusal
from earshift.formats.files import guard, unguard, whole_folder
from earshift.records import ExamBundle, VisitBundle, measured_at

if TYPE_CHECKING:
    pass

Row = dict[str, Any]

CHUNK = 50_000  # rows of a Parquet part in memory
OLDEST = 90  # ages above count as this one: so few are as old that an age would name them

_VISIT = {"person": int, "visit": int, "visit_at": datetime, "zone": str, "mode": str}
_EXAM = {**_VISIT, "exam": int, "exam_kind": str, "ear": str}
_PERSON = {"age_years": int, "sex": str}
_IDENTITY = {"code": str, "name": str, "birth_date": date}

TABLES: dict[str, dict[str, type]] = {
    "tones": {
        **_EXAM,
        "trial": int,
        "number": int,
        "kind": str,
        "frequency_hz": float,
        "asked_db_hl": float,
        "played_db_hl": float,
        "asked_relative_db": float,
        "played_relative_db": float,
        "heard": bool,
        "reaction_ms": float,
        "at": datetime,
        "voided": bool,
    },
    "verdicts": {
        **_EXAM,
        **_PERSON,
        "state": str,
        "reference_exam": int,
        "result": int,
        "at": datetime,
        "decision": str,
        "p_changed": float,
        "log_bf": float,
        "rule": str,
        "protocol": str,
        "tones": int,
        "converged": bool,
        "catch_trials": int,
        "false_alarms": int,
        "reliability": str,
        "unverified": str,
        "words": str,
        "shifts_json": str,
        "thresholds_json": str,
        "reference_thresholds_json": str,
        "engine_version": str,
        "trials_sha256": str,
    },
    "thresholds": {
        **_EXAM,
        **_PERSON,
        "measured_at": datetime,
        "conduction": str,
        "frequency_hz": float,
        "threshold_db_hl": float,
        "no_response": bool,
        "level_tried_db_hl": float,
        "low_db_hl": float,
        "high_db_hl": float,
        "sd_db": float,
        "method_offset_db": float,
    },
}
# Of a tidy export: nothing nested in a cell, but a row for each frequency.
NESTED = ("shifts_json", "thresholds_json", "reference_thresholds_json")
ESTIMATES: dict[str, type] = {
    **_EXAM,
    **_PERSON,
    "result": int,
    "at": datetime,
    "decision": str,
    "rule": str,
    "protocol": str,
    "quantity": str,
    "frequency_hz": float,
    "unit": str,
    "value": float,
    "low": float,
    "high": float,
    "censored": str,
}
TIDY = {
    **TABLES,
    "verdicts": {name: kind for name, kind in TABLES["verdicts"].items() if name not in NESTED},
    "estimates": ESTIMATES,
}
# Who it was and who wrote it: only on request.
IDENTITY: dict[str, dict[str, type]] = {
    "tones": {**_IDENTITY, "author": str, "voided_by": str, "void_reason": str},
    "verdicts": {**_IDENTITY, "author": str},
    "thresholds": {**_IDENTITY, "author": str, "source": str},
    "estimates": {**_IDENTITY, "author": str},
}


class _Writer(Protocol):
    def write(self, row: Row) -> None: ...


def write(
    visits: Iterable[VisitBundle],
    folder: Path,
    kind: str = "csv",
    *,
    identity: bool = False,
    tidy: bool = False,
) -> int:
    """Write all tables of the visits into a new folder; how many visits there were.

    With `tidy` no cell holds JSON: thresholds and shifts of every result are rows of `estimates`.
    """
    if kind not in ("csv", "parquet"):
        raise Refusal("kind must be csv or parquet", got=kind)
    if kind == "parquet":
        _polars()  # says what is missing before anything is written
    count = 0
    with whole_folder(folder) as part, ExitStack() as stack:
        writers: dict[str, _Writer] = {}
        for name, own in (TIDY if tidy else TABLES).items():
            columns = {**own, **(IDENTITY[name] if identity else {})}
            path = part / f"{name}.{kind}"
            if kind == "csv":
                writers[name] = stack.enter_context(_CsvWriter(path, columns))
            else:
                writers[name] = stack.enter_context(_ParquetWriter(path, columns))
        for visit in visits:
            for name, row in rows(visit):
                if name in writers:
                    writers[name].write(row)
            count += 1
    return count


def read(path: Path | str) -> Iterator[Row]:
    """The rows of a table that `write` wrote; the file's name says which table it is."""
    path = Path(path)
    if path.stem not in TIDY or path.suffix not in (".csv", ".parquet"):
        raise Refusal(
            f"{path.name} must be one of {', '.join(f'{name}.csv' for name in TIDY)} or .parquet"
        )
    known = {**TIDY[path.stem], **TABLES.get(path.stem, {}), **IDENTITY[path.stem]}
    if path.suffix == ".parquet":
        yield from _polars().read_parquet(path).iter_rows(named=True)
        return
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, row in enumerate(csv.DictReader(file, strict=True), start=2):
            try:
                if None in row or None in row.values():
                    raise Refusal("it has more or fewer cells than the header")
                yield {name: _parse(cell, known[name]) for name, cell in row.items()}
            except (KeyError, ValueError) as error:
                raise Refusal(
                    f"row {number} of {{file}} is not a row of a table: {error}", file=path
                ) from None


# Rows


def rows(visit: VisitBundle) -> Iterator[tuple[str, Row]]:
    """Every row that a visit gives, with its table's name; all columns, those of identity too."""
    who = {
        "age_years": age_at(visit),
        "sex": visit.person.sex,
        "code": visit.person.code,
        "name": visit.person.name,
        "birth_date": visit.person.birth_date,
    }
    for exam in visit.exams:
        where = {
            "person": visit.person.id,
            "visit": visit.visit.id,
            "visit_at": visit.visit.started_at,
            "zone": visit.visit.zone,
            "mode": visit.visit.mode,
            "exam": exam.exam.id,
            "exam_kind": exam.exam.kind,
            **who,
        }
        for row in _tones(exam):
            yield "tones", {**where, **row}
        for bundle in exam.by_ear():
            of_ear = {**where, "ear": bundle.exam.ear}
            for row in _verdicts(bundle):
                yield "verdicts", {**of_ear, **row}
            for row in _thresholds(visit, bundle):
                yield "thresholds", {**of_ear, **row}
            for row in _estimates(bundle):
                yield "estimates", {**of_ear, **row}


def _tones(bundle: ExamBundle) -> Iterator[Row]:
    unit = "relative_db" if bundle.exam.relative else "db_hl"
    for trial in bundle.trials:
        yield {
            "trial": trial.id,
            "ear": trial.ear,
            "number": trial.number,
            "kind": trial.kind,
            "frequency_hz": trial.frequency_hz,
            f"asked_{unit}": trial.asked_db_hl,
            f"played_{unit}": trial.played_db_hl,
            "heard": trial.heard,
            "reaction_ms": trial.reaction_ms,
            "at": trial.at,
            "voided": trial.voided_at is not None,
            "author": trial.author,
            "voided_by": trial.voided_by,
            "void_reason": trial.void_reason,
        }


def _verdicts(bundle: ExamBundle) -> Iterator[Row]:
    for result in bundle.results:
        shown = result.shown
        verdict = shown.get("verdict") or {}
        yield {
            "state": bundle.exam.state,
            "reference_exam": bundle.exam.reference_exam_id,
            "result": result.id,
            "at": result.at,
            **{
                name: verdict.get(name)
                for name in (
                    *("decision", "p_changed", "log_bf", "rule", "protocol", "converged"),
                    *("catch_trials", "false_alarms", "reliability", "unverified"),
                )
            },
            "tones": verdict.get("tones", shown.get("tones")),
            "words": shown.get("words"),
            "shifts_json": _json(verdict.get("shifts")),
            "thresholds_json": _json(shown.get("thresholds")),
            "reference_thresholds_json": _json(shown.get("reference_thresholds")),
            "engine_version": result.engine_version,
            "trials_sha256": result.trials_sha256,
            "author": result.author,
        }


def _estimates(bundle: ExamBundle) -> Iterator[Row]:
    """Shifts and thresholds of every result as it was shown, one row for each frequency."""
    level = "relative dB" if bundle.exam.relative else "dB HL"
    for result in bundle.results:
        verdict = result.shown.get("verdict") or {}
        common: Row = {
            "result": result.id,
            "at": result.at,
            **{name: verdict.get(name) for name in ("decision", "rule", "protocol")},
            "author": result.author,
        }
        for quantity, found, unit, value, end in (
            ("shift", verdict.get("shifts"), "dB", "shift_db", "db"),
            ("threshold", result.shown.get("thresholds"), level, "level_db_hl", "db_hl"),
            (
                "reference threshold",
                *(result.shown.get("reference_thresholds"), level, "level_db_hl", "db_hl"),
            ),
        ):
            for one in found or ():
                censored = one.get("censored")
                yield {
                    **common,
                    "quantity": quantity,
                    "frequency_hz": one["frequency_hz"],
                    "unit": unit,
                    "value": one[value],
                    "low": one.get(f"low_{end}"),
                    "high": one.get(f"high_{end}"),
                    "censored": "yes" if censored is True else censored or None,
                }


def _thresholds(visit: VisitBundle, bundle: ExamBundle) -> Iterator[Row]:
    """Measured thresholds: an imported audiogram's, or those of a full exam that was completed."""
    exam = bundle.exam
    common: Row = {"conduction": "air", "author": visit.visit.author, "source": exam.source}
    if exam.kind == "audiogram":
        audiogram = Audiogram.from_dict(exam.design)
        common |= {
            "measured_at": measured_at(exam, visit.visit),
            "sd_db": audiogram.sd_db,
            "method_offset_db": audiogram.method_offset_db,
        }
        for frequency, level in audiogram.thresholds_db_hl.items():
            yield {
                **common,
                "frequency_hz": frequency,
                "threshold_db_hl": level,
                "no_response": False,
            }
        for frequency, level in audiogram.no_response_db_hl.items():
            yield {
                **common,
                "frequency_hz": frequency,
                "no_response": True,
                "level_tried_db_hl": level,
            }
    elif (
        exam.kind == "exam" and exam.state == "done" and bundle.results and not exam.relative
    ):  # relative levels are no hearing levels; the tones have them
        for one in bundle.results[-1].shown.get("thresholds") or ():
            above = one.get("censored") == "above"
            yield {
                **common,
                "measured_at": measured_at(exam, visit.visit),
                "frequency_hz": one["frequency_hz"],
                "threshold_db_hl": None if one.get("censored") else one["level_db_hl"],
                "no_response": above,
                "level_tried_db_hl": one["level_db_hl"] if above else None,
                "low_db_hl": one.get("low_db_hl"),
                "high_db_hl": one.get("high_db_hl"),
            }


def age_at(visit: VisitBundle) -> int | None:
    """Completed years on the visit's local date; 90 stands for 90 and more."""
    born = visit.person.birth_date
    if born is None:
        return None
    at = visit.visit.started_at
    if visit.visit.mode == "imported":
        measured = [e.exam.measured_at for e in visit.exams if e.exam.measured_at is not None]
        if not measured:
            return None
        at = measured[0]
    return min(max(age_on(born, local_day(at, visit.visit.zone)), 0), OLDEST)


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, allow_nan=False)


# Cells and files


def _clean(value: Any, kind: type) -> Any:
    """A value as its column's type; an empty text is a missing one, as CSV cannot tell them."""
    if value is None or value == "":
        return None
    if kind is datetime:
        return value.astimezone(UTC)
    return kind(value) if kind is not date else value


# How a value of each type stands in a CSV cell; a text must not pass for a formula.
_CELLS: dict[type, Callable[[Any], str]] = {
    int: str,
    float: lambda value: repr(float(value)),
    str: guard,
    bool: lambda value: "true" if value else "false",
    date: date.isoformat,
    datetime: lambda value: value.astimezone(UTC).isoformat(),
}


def _parse(cell: str, kind: type) -> Any:
    if cell == "":
        return None
    if kind is str:
        return unguard(cell)
    if kind is bool:
        return {"true": True, "false": False}[cell]
    if kind is datetime:
        return datetime.fromisoformat(cell)
    return date.fromisoformat(cell) if kind is date else kind(cell)


class _CsvWriter:
    def __init__(self, path: Path, columns: Mapping[str, type]) -> None:
        self._columns = [(name, _CELLS[kind]) for name, kind in columns.items()]
        self._file = path.open("w", encoding="utf-8", newline="")
        # With CR LF as the end of a line, a cell that holds either of them is quoted.
        self._csv = csv.writer(self._file, lineterminator="\r\n")
        self._csv.writerow(columns)

    def __enter__(self) -> "_CsvWriter":
        return self

    def write(self, row: Row) -> None:
        self._csv.writerow(
            [
                "" if (value := row.get(name)) is None or value == "" else cell(value)
                for name, cell in self._columns
            ]
        )

    def __exit__(self, *_: object) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


class _ParquetWriter:
    """Rows go into parts of a chunk each, which are joined at the end without being read whole."""

    def __init__(self, path: Path, columns: Mapping[str, type]) -> None:
        pl = _polars()
        kinds = {int: pl.Int64, float: pl.Float64, str: pl.String, bool: pl.Boolean}
        self._path = path
        self._columns = columns
        self._schema = {
            name: pl.Datetime("us", "UTC")
            if kind is datetime
            else pl.Date
            if kind is date
            else kinds[kind]
            for name, kind in columns.items()
        }
        self._chunk: list[tuple[Any, ...]] = []
        self._parts: list[Path] = []

    def __enter__(self) -> "_ParquetWriter":
        return self

    def write(self, row: Row) -> None:
        self._chunk.append(tuple(_clean(row.get(n), kind) for n, kind in self._columns.items()))
        if len(self._chunk) >= CHUNK:
            self._flush()

    def _flush(self) -> None:
        part = self._path.with_suffix(f".{len(self._parts)}.part")
        frame = _polars().DataFrame(self._chunk, schema=self._schema, orient="row")
        frame.write_parquet(part)
        self._parts.append(part)
        self._chunk = []

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is not None:
            return
        self._flush()
        _polars().scan_parquet(self._parts).sink_parquet(self._path)
        for part in self._parts:
            part.unlink()


def _polars() -> "Any":
    try:
        import polars
    except ImportError:
        raise Refusal(
            "Parquet needs the package polars: pip install 'earshift[study]', or use csv"
        ) from None
    return polars
