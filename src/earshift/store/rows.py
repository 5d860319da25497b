"""One row in, one record out, each write with its line in the audit.

The shared floor of every part of the store. All functions work inside a transaction that the
caller has begun.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import Connection, CursorResult, Engine, Row, Select, Table, insert, select

from earshift.acts import Closing, FollowUp, Merge, RoomNoise, Signature, WorkRelation
from earshift.records import (
    AuditEntry,
    Baseline,
    Calibration,
    Device,
    ExamRecord,
    Note,
    Person,
    Press,
    ResultRecord,
    SiteSetting,
    TrialRecord,
    Visit,
)
from earshift.store import checks, texts
from earshift.store import tables as t
from earshift.store.errors import NoSuchRow

T = TypeVar("T")


class Part:
    """Calls of one area. `earshift.store.Store` is all of them over one database."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine


_FIELDS: dict[type[Any], tuple[str, ...]] = {
    kind: tuple(field.name for field in fields(kind))
    for kind in (
        AuditEntry,
        Baseline,
        Calibration,
        Closing,
        Device,
        ExamRecord,
        FollowUp,
        Merge,
        Note,
        Person,
        Press,
        ResultRecord,
        RoomNoise,
        Signature,
        SiteSetting,
        TrialRecord,
        Visit,
        WorkRelation,
    )
}


def to_record(kind: type[T], row: Row[Any]) -> T:
    """The record of a row whose columns are named after the record's fields."""
    values = row._mapping
    return kind(**{name: values[name] for name in _FIELDS[kind]})


def to_records(kind: type[T], result: CursorResult[Any]) -> list[T]:
    """The records of all rows, faster than one by one."""
    columns = list(result.keys())
    pick = itemgetter(*(columns.index(name) for name in _FIELDS[kind]))
    return [kind(*pick(row)) for row in result]


def row_of(connection: Connection, table: Table, row_id: int, what: str) -> Row[Any]:
    """The row with this id, or a refusal that there is no such thing."""
    found = connection.execute(
        select(table).where(table.c.id == checks.as_id(row_id, what))
    ).first()
    if found is None:
        raise NoSuchRow("there is no {row}", row=f"{what} {row_id}")
    return found


def add_row(
    connection: Connection,
    table: Table,
    values: Mapping[str, Any],
    author: str,
    reason: str = "",
    details: Mapping[str, Any] | None = None,
    *,
    about: int | None = None,
) -> Row[Any]:
    """A new row with its audit row, as it now stands there."""
    new = add_only(connection, table, values, author, reason, details, about=about)
    return connection.execute(select(*texts.columns(table)).where(table.c.id == new)).one()


def add_only(
    connection: Connection,
    table: Table,
    values: Mapping[str, Any],
    author: str,
    reason: str = "",
    details: Mapping[str, Any] | None = None,
    *,
    about: int | None = None,
) -> int:
    """A new row with its audit row; its id."""
    new = insert_row(connection, table, values)
    add_audit(connection, author, "add", f"{table.name}:{new}", reason, details, about=about)
    return new


def insert_row(
    connection: Connection, table: Table, values: Mapping[str, Any], *also: int | None
) -> int:
    """A new row, and what was typed about it; its id. `also` is whom else that may name."""
    own, typed = texts.parted(table, values)
    key = connection.execute(insert(table).values(**own)).inserted_primary_key
    assert key is not None  # of one row, without RETURNING
    new: int = key[0]
    texts.keep_typed(connection, table, new, typed, *also)
    return new


def add_audit(
    connection: Connection,
    author: str,
    action: str,
    subject: str,
    reason: str = "",
    details: Mapping[str, Any] | None = None,
    *,
    about: int | None = None,
) -> None:
    """A line in the audit. A reason `about` somebody goes with them: the audit outlives it."""
    told = {
        "at": checks.now(),
        "author": author,
        "action": action,
        "subject": subject,
        "reason": reason if about is None else "",
        "details": dict(details or {}),
    }
    key = connection.execute(insert(t.audit).values(**told)).inserted_primary_key
    assert key is not None
    if about is not None and reason:
        texts.keep(connection, "audit", key[0], {"reason": reason}, about)


def grouped(key: str, records: Iterable[T]) -> dict[int, tuple[T, ...]]:
    groups: dict[int, list[T]] = {}
    for record in records:
        groups.setdefault(getattr(record, key), []).append(record)
    return {number: tuple(group) for number, group in groups.items()}


def found_by_id(
    connection: Connection, kind: type[T], query: Select[Any], key: Any, ids: Iterable[int]
) -> dict[int, T]:
    found = to_records(kind, connection.execute(query.where(key.in_(list(ids)))))
    return {number: one for number, (one,) in grouped("id", found).items()}
