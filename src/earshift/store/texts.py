"""What was typed about people: kept apart from the rows that it belongs to, and read with them.

A row says by its table what is typed about it (`typed` in `store.tables`). The text itself lies in
`texts`, which goes with the identity of the person; a row whose text has gone reads as if nothing
had been typed.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Dialect,
    Select,
    Table,
    Text,
    TypeDecorator,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    type_coerce,
)

from earshift.store import chain, checks
from earshift.store import tables as t

PLAIN_DATA = ("checklist",)  # fields that are no text but data, which is kept as JSON


class JsonText(TypeDecorator[Any]):
    """Plain data as JSON in a column of text."""

    impl = Text
    cache_ok = True

    def process_result_value(self, value: str | None, _dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


def of_row(table: Table, field: str, row_id: Any) -> Select[Any]:
    """The text of a field of a row, if it has one."""
    x = t.texts.c
    return select(x.text).where(x.of_table == table.name, x.row_id == row_id, x.field == field)


def _read(table: Table, field: str) -> ColumnElement[Any]:
    """A typed field as its table's records have it."""
    found = of_row(table, field, table.c.id).correlate(table).scalar_subquery()
    nothing = literal("{}" if field in PLAIN_DATA else "")
    empty = table.c.get(field, nothing)
    value = func.coalesce(found, empty)
    return type_coerce(value, JsonText if field in PLAIN_DATA else Text).label(field)


@cache
def columns(table: Table, *more: str) -> tuple[ColumnElement[Any], ...]:
    """All that a record of a table has: its columns, and what was typed. `more` names columns whose
    text may lie apart, too."""
    apart = (*table.info["typed"], *more)
    own = [column for column in table.c if column.name not in apart]
    return (*own, *(_read(table, field) for field in apart))


def parted(table: Table, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of a new row, and what is typed among them."""
    typed = {name: values[name] for name in table.info["typed"] if values.get(name)}
    return {name: one for name, one in values.items() if name not in table.info["typed"]}, typed


def keep_typed(
    connection: Connection, table: Table, row_id: int, typed: Mapping[str, Any], *also: int | None
) -> None:
    """Keep what was typed about a row that was just added. `also` is whom else it may name."""
    if not typed:
        return
    whose = select(chain.owner_of(table)).where(table.c.id == row_id)
    person_id = connection.execute(whose).scalar_one()
    keep(connection, table.name, row_id, typed, person_id, *also)


def keep(
    connection: Connection,
    table: str,
    row_id: int,
    typed: Mapping[str, Any],
    person_id: int | None,
    *also: int | None,
) -> None:
    """Keep what was typed about somebody; without a person, about whoever has no record."""
    m = t.merges.c
    newest = select(m.into_id).where(m.person_id == person_id).order_by(m.id.desc()).limit(1)
    owner_id = next(iter(also), None) or connection.execute(newest).scalar_one_or_none()
    for field, value in typed.items():
        text = json.dumps(value, ensure_ascii=False) if field in PLAIN_DATA else value
        row = {"of_table": table, "row_id": row_id, "field": field, "text": text}
        whose = {"person_id": person_id, "owner_id": owner_id}
        connection.execute(insert(t.texts).values(**whose, **row))


def erase(connection: Connection, person_ids: list[int], names: Iterable[str], author: str) -> None:
    """All that was typed about these people, also under their names alone.

    Of the latter each has a line in the audit: it is the permit to go, and says later that it did.
    """
    x = t.texts.c
    mine = or_(x.person_id.in_(person_ids), x.owner_id.in_(person_ids))
    connection.execute(delete(t.texts).where(mine))
    called = [re.compile(rf"(?<!\w){re.escape(one.casefold())}(?!\w)") for one in names]
    for row in connection.execute(select(x.id, x.text).where(x.person_id.is_(None))).all():
        if any(one.search(row.text.casefold()) for one in called):
            told = {"author": author, "action": chain.ERASED, "subject": f"{t.texts.name}:{row.id}"}
            empty: dict[str, Any] = {"reason": "", "details": {}}
            connection.execute(insert(t.audit).values(at=checks.now(), **told, **empty))
            connection.execute(delete(t.texts).where(x.id == row.id))
