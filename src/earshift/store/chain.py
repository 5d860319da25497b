"""One chain of hashes over all that is stored: a row that was changed or taken away is seen.

Every transaction that writes ends with a link: the digests of its new rows, and the hash of these
with the link before it. A row that can be erased has a random salt among its columns, which goes
with it: what stays in the chain then says nothing of what it was. Whoever owns the database can
forge the whole chain, but not a head that was kept elsewhere (`Seal`).

The form of a digest never changes: columns without a value are left out, so that a column that a
later schema adds leaves the digests of older rows as they were.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Row,
    Select,
    Table,
    Text,
    bindparam,
    cast,
    exc,
    func,
    insert,
    null,
    select,
    type_coerce,
)

from earshift.store import tables as t
from earshift.store.errors import StoreError

START = "0" * 64  # the hash before the first link
MOST_DIGITS = 20  # of the number of links in a seal
CHAIN_LOCK = 7305140  # of PostgreSQL's advisory locks, as in `store.database`
NEW_ROWS = "earshift_new_rows"  # where a connection keeps what its transaction has added
FOUND = "chain begins"  # the action of the audit's row that says what was there before the chain
ERASED = "erase"  # the action of a line about a row that went without its person
BATCH = 500  # rows read, and links checked, at once


@dataclass(frozen=True)
class Seal:
    """The head of the chain: kept elsewhere, it proves later that nothing before it was changed."""

    links: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.links}-{self.sha256}"

    @classmethod
    def parse(cls, text: str) -> "Seal":
        """A seal as it was printed."""
        links, _, sha256 = text.strip().partition("-")
        number = links.isascii() and links.isdecimal() and len(links) < MOST_DIGITS
        plain = number and len(sha256) == len(START)
        if not plain or set(sha256) - set("0123456789abcdef"):
            raise StoreError(
                "a seal is the number of links, a hyphen and 64 hexadecimal digits",
                got=text,
            )
        return cls(int(links), sha256)


@dataclass(frozen=True)
class Entry:
    """What a link says of one row: with whom it may be erased, if at all, and its digest."""

    table: str
    row_id: int
    people: Sequence[int]
    sha256: str


def note(connection: Connection, table: str, row_id: int) -> None:
    """The transaction has added this row."""
    new = connection.info.get(NEW_ROWS)
    if new is not None:
        new.append((table, row_id))


def note_insert(
    connection: Connection, statement: Any, _many: Any, _given: Any, _options: Any, result: Any
) -> None:
    """Listens to every statement: what is added to a chained table is in the next link."""
    if not getattr(statement, "is_insert", False) or not is_chained(statement.table):
        return
    if result.context.executemany:
        raise RuntimeError(f"rows of {statement.table.name} are added one by one")
    note(connection, statement.table.name, result.inserted_primary_key[0])


def is_chained(table: Table) -> bool:
    """Whether new rows of a table are in a link: the store's own facts are, its notes are not."""
    return bool(table.info.get("chained"))


def chained_tables() -> dict[str, Table]:
    return {name: table for name, table in t.metadata.tables.items() if is_chained(table)}


# Digests


def _raw(column: Column[Any], sqlite: bool) -> Any:
    """The column as the database has it, before any type of ours reads a meaning into it."""
    if sqlite:
        return type_coerce(column, Text).label(column.name)  # which SQLite returns as it is
    if isinstance(column.type, JSON):
        return cast(column, Text).label(column.name)
    return column


def _plain(value: Any) -> Any:
    """A value as it is written down for a digest."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, datetime):
        utc = value.astimezone(UTC).replace(tzinfo=None)
        return utc.isoformat(timespec="microseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else value  # bytes: text that was damaged


def digest_of(table: str, values: Mapping[str, Any]) -> str:
    """The digest of a row's columns as they stand in the database."""
    told = {name: _plain(value) for name, value in values.items() if value is not None}
    return _sha256(json.dumps([table, told], sort_keys=True, separators=(",", ":")))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def owner_of(table: Table) -> Any:
    """SQL for the person whose erasure lets a row go; some go with a second one, too."""
    tables = table.metadata.tables
    if "salt" not in table.c:
        return null()
    if "person_id" in table.c:
        return table.c.person_id
    v, e, r = tables["visits"], tables["exams"], tables["trials"]
    query = select(v.c.person_id)
    if "visit_id" in table.c:
        query = query.where(v.c.id == table.c.visit_id)
    else:
        query = query.where(v.c.id == e.c.visit_id)
        if "exam_id" in table.c:
            query = query.where(e.c.id == table.c.exam_id)
        else:
            query = query.where(e.c.id == r.c.exam_id, r.c.id == table.c.trial_id)
    return query.correlate(table).scalar_subquery()


def _rows_query(table: Table, sqlite: bool) -> Select[Any]:
    columns = [_raw(column, sqlite) for column in table.c]
    return select(*columns, owner_of(table).label("earshift_owner"))


_queries: dict[tuple[Table, bool], Select[Any]] = {}


def _by_ids(table: Table, sqlite: bool) -> Select[Any]:
    key = (table, sqlite)  # not its name: a migration sees older columns
    if key not in _queries:
        ids: Any = bindparam("ids", expanding=True)
        _queries[key] = _rows_query(table, sqlite).where(table.c.id.in_(ids)).order_by(table.c.id)
    return _queries[key]


def _entry(table: str, row: Row[Any]) -> Entry:
    values = dict(row._mapping)
    owners = {values.pop("earshift_owner"), values.get("owner_id") if "salt" in values else None}
    people = sorted(owners - {None})
    return Entry(table, values["id"], people, digest_of(table, values))


def _entries(connection: Connection, table: Table, ids: Sequence[int]) -> list[Entry]:
    query = _by_ids(table, connection.dialect.name == "sqlite")
    return [_entry(table.name, row) for row in connection.execute(query, {"ids": ids})]


# Links


def _told(entries: Iterable[Entry]) -> str:
    told = [[one.table, one.row_id, one.people, one.sha256] for one in entries]
    return json.dumps(told, separators=(",", ":"))


def _linked(before: str, number: int, entries: str) -> str:
    return _sha256(f"{before}\n{number}\n{entries}")


def head(connection: Connection) -> Seal:
    """The newest link."""
    c = t.chain.c
    newest = connection.execute(select(c.id, c.sha256).order_by(c.id.desc()).limit(1)).first()
    return Seal(0, START) if newest is None else Seal(newest.id, newest.sha256)


def link(connection: Connection) -> None:
    """The last thing in a transaction: chain what it has added."""
    new = connection.info.get(NEW_ROWS)
    if not new:
        return
    ids: dict[str, list[int]] = {}
    for table, row_id in new:
        ids.setdefault(table, []).append(row_id)
    told = _told(
        entry
        for table, of_table in ids.items()
        for start in range(0, len(of_table), BATCH)
        for entry in _entries(connection, t.metadata.tables[table], of_table[start : start + BATCH])
    )
    if connection.dialect.name == "postgresql":  # the head is one program's until it commits
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({CHAIN_LOCK})")
    _append(connection, head(connection), told)


def _append(connection: Connection, before: Seal, told: str) -> Seal:
    number = before.links + 1
    new = Seal(number, _linked(before.sha256, number, told))
    values = {"id": number, "entries": told, "sha256": new.sha256}
    connection.execute(insert(t.chain).values(**values))
    return new


def chain_as_found(
    connection: Connection, tables: Sequence[Table], before: "ChainReport | None" = None
) -> None:
    """Links for all rows of an older database, whatever they are; the audit says since when.

    `before` is what was found of an older chain whose links are gone: the new ones follow its head,
    and where it did not hold, that is said for good.
    """
    count = sum(connection.execute(select(func.count(x.c.id))).scalar_one() for x in tables)
    if count == 0:
        return
    newest = head(connection) if before is None else before.head
    details: dict[str, Any] = {"rows": count}
    if newest.links:
        details["after"] = str(newest)
    if before is not None and before.problems:
        details["problems"] = list(before.problems)
    values = {
        "at": datetime.now(UTC),
        "author": "earshift",
        "action": FOUND,
        "subject": f"chain:{newest.links + 1}",
        "reason": "",
        "details": details,
    }
    connection.execute(insert(t.audit).values(**values))
    for table in tables:
        query = _rows_query(table, connection.dialect.name == "sqlite")
        last = 0
        while page := connection.execute(
            query.where(table.c.id > last).order_by(table.c.id).limit(BATCH)
        ).all():
            newest = _append(connection, newest, _told(_entry(table.name, row) for row in page))
            last = page[-1].id


# The check


@dataclass(frozen=True)
class ChainReport:
    """What the chain says of the database."""

    head: Seal
    since: datetime | None
    """When what was there before was chained as it was found; None for the very beginning."""
    problems: tuple[str, ...]
    inherited: tuple[str, ...] = ()
    """What was wrong with an older chain when this one began."""


MOST = 10  # rows that are named; the first one matters


def inspect_chain(
    connection: Connection,
    sealed: Sequence[Seal] = (),
    tables: Mapping[str, Table] | None = None,
) -> ChainReport:
    """Read the whole chain and every row that it speaks of, in these `tables` or those of now."""
    tables = chained_tables() if tables is None else tables
    problems: list[str] = []
    permits = _Permits(connection)
    wanted = {seal.links: seal.sha256 for seal in sealed}
    counts = dict.fromkeys(tables, 0)
    began = _beginning(connection)
    before, number = began.after.sha256, began.after.links
    # The last link before a new beginning is no proof either: whoever begins anew may name it.
    for links in [links for links in wanted if 0 < links <= number]:
        del wanted[links]
        problems.append(
            f"link {links}, which was sealed, is gone: the chain began anew after link {number}"
        )
    for link_id, told, sha256 in _links(connection):
        for missing in range(number + 1, link_id):
            problems.append(f"chain:{missing} is missing")
        number = link_id
        if _linked(before, number, told) != sha256:
            problems.append(f"chain:{number} does not fit the one before it")
        before = sha256
        if wanted.pop(number, sha256) != sha256:
            problems.append(f"chain:{number} is not the link that was sealed")
        problems += _misfits(connection, _said(told), permits, counts, tables)
    problems += [
        f"the chain ends at link {number}: link {links}, which was sealed, is missing"
        for links in wanted
        if links
    ]
    problems += _unlinked(connection, counts, tables)
    named = [*problems[:MOST], f"and {len(problems) - MOST} more"]
    return ChainReport(
        head=Seal(number, before),
        since=began.at,
        problems=tuple(problems if len(problems) <= MOST else named),
        inherited=began.problems,
    )


def _links(connection: Connection) -> Iterator[tuple[int, str, str]]:
    c = t.chain.c
    query = select(c.id, c.entries, c.sha256).order_by(c.id).limit(BATCH)
    last = 0
    while page := connection.execute(query.where(c.id > last)).all():
        for row in page:
            yield row.id, row.entries, row.sha256
        last = page[-1].id


def _said(told: str) -> list[Entry]:
    try:
        return [Entry(*one) for one in json.loads(told)]
    except (ValueError, TypeError):
        return []  # a link that cannot be read does not fit either, and that was said


class _Permits:
    """Which rows may be missing: those that the erasure of their person covers."""

    def __init__(self, connection: Connection) -> None:
        e = t.erasures.c
        found = connection.execute(select(e.person_id, e.trials_deleted))
        self._with_trials = {row.person_id: row.trials_deleted for row in found}
        a = t.audit.c
        of_texts = (a.action == ERASED) & a.subject.startswith(f"{t.texts.name}:")
        self._texts = set(connection.execute(select(a.subject).where(of_texts)).scalars())

    def __call__(self, entry: Entry) -> bool:
        covers = t.metadata.tables[entry.table].info.get("erased_with")
        erased = [one for one in entry.people if one in self._with_trials]
        if entry.table == t.texts.name and not entry.people:  # under somebody's name alone
            return f"{entry.table}:{entry.row_id}" in self._texts
        if covers is None or not erased:
            return False
        return covers == "identity" or any(self._with_trials[one] for one in erased)


def _misfits(
    connection: Connection,
    said: Sequence[Entry],
    permits: _Permits,
    counts: dict[str, int],
    tables: Mapping[str, Table],
) -> list[str]:
    """Rows that are not as a link says, and are not erased."""
    ids: dict[str, list[int]] = {}
    for entry in said:
        if entry.table in counts:
            ids.setdefault(entry.table, []).append(entry.row_id)
    there: dict[tuple[str, int], str | None] = {}
    for table, of_table in ids.items():
        for start in range(0, len(of_table), BATCH):
            there |= _digests(connection, tables[table], of_table[start : start + BATCH])
    problems = []
    for entry in said:
        place = f"{entry.table}:{entry.row_id}"
        if entry.table not in counts:
            problems.append(f"{place} is of a table that is not chained")
            continue
        if (entry.table, entry.row_id) in there:
            counts[entry.table] += 1
            found = there[entry.table, entry.row_id]
            if found is None:
                problems.append(f"{place} cannot be read")
            elif found != entry.sha256:
                problems.append(f"{place} is not as it was written")
        elif not permits(entry):
            problems.append(f"{place} is missing, and nobody erased it")
    return problems


def _digests(
    connection: Connection, table: Table, ids: Sequence[int]
) -> dict[tuple[str, int], str | None]:
    """Digests of the rows that are there; None for one that is damaged."""
    try:
        return {(one.table, one.row_id): one.sha256 for one in _entries(connection, table, ids)}
    except (exc.SQLAlchemyError, ValueError, OverflowError):
        if connection.dialect.name != "sqlite":
            raise  # a server does not give half a row
        if len(ids) == 1:
            return {(table.name, ids[0]): None}
    found: dict[tuple[str, int], str | None] = {}
    for one in ids:
        found |= _digests(connection, table, [one])
    return found


def _unlinked(
    connection: Connection, counts: Mapping[str, int], tables: Mapping[str, Table]
) -> list[str]:
    """Rows that no link speaks of: written past the store."""
    more = {
        name
        for name, linked in counts.items()
        if connection.execute(select(func.count(tables[name].c.id))).scalar_one() > linked
    }
    if not more:
        return []
    linked: dict[str, set[int]] = {name: set() for name in more}
    for _, told, _ in _links(connection):
        for entry in _said(told):
            if entry.table in more:
                linked[entry.table].add(entry.row_id)
    problems = []
    for name in sorted(more):
        query = select(tables[name].c.id).order_by(tables[name].c.id)
        ids = connection.execute(query).scalars().all()
        past = [one for one in ids if one not in linked[name]]
        problems += [f"{name}:{one} is in no link of the chain" for one in past]
        twice = sorted({one for one, following in pairwise(ids) if one == following})
        problems += [f"{name}:{one} is there more than once" for one in twice]
    return problems


@dataclass(frozen=True)
class _Beginning:
    """Since when the chain speaks, and after which link of an older one."""

    at: datetime | None = None
    after: Seal = Seal(0, START)
    problems: tuple[str, ...] = ()


def _beginning(connection: Connection) -> _Beginning:
    a = t.audit.c
    query = select(a.at, a.details).where(a.action == FOUND).order_by(a.id.desc()).limit(1)
    try:
        found = connection.execute(query).first()
        if found is None:
            return _Beginning()
        after = found.details.get("after")
        return _Beginning(
            found.at,
            Seal(0, START) if after is None else Seal.parse(after),
            tuple(found.details.get("problems", ())),
        )
    except (ValueError, TypeError, AttributeError):  # damaged, and named as such
        return _Beginning()
