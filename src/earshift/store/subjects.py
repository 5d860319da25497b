"""What the lines of the audit are about: the rows behind them, and all that those belong to."""

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, Select, Text, cast, literal, or_, select, union_all

from earshift.store import tables as t
from earshift.store.people import records_of

# Whose a row is: the columns that lead from it to another, the nearest first.
BELONGS = {
    "trial_id": "trials",
    "exam_id": "exams",
    "visit_id": "visits",
    "person_id": "people",
    "user_id": "users",
    "device_id": "devices",
}
SAID = ("id", "name", "kind", "ear", *BELONGS)  # all that a line says of the rows behind it
OF_VISITS = ("link", "release")  # keys whose name is the visit's row


def subjects_of(connection: Connection, person_id: int) -> Select[Any]:
    """The subjects of all rows that belong to the records of one person."""
    people = records_of(connection, person_id)
    own = {"people": select(t.people.c.id).where(t.people.c.id.in_(people))}

    def ids_of(name: str) -> Select[Any] | None:
        if name not in own:
            columns = t.metadata.tables[name].c
            above = [(via, ids_of(BELONGS[via])) for via in BELONGS if via in columns]
            belongs = [columns[via].in_(ids) for via, ids in above if ids is not None]
            if not belongs:
                return None
            own[name] = select(columns.id).where(or_(*belongs))
        return own[name]

    audited = [table for table in t.metadata.sorted_tables if table.info["chained"]]
    parts = []
    for name in [table.name for table in audited if table is not t.texts]:
        ids = ids_of(name)
        if ids is not None:
            row = ids.subquery()
            parts.append(select((literal(f"{name}:") + cast(row.c.id, Text)).label("subject")))
    visits = own["visits"].subquery()
    of_visit = t.keys.c.name == literal("visits:") + cast(visits.c.id, Text)
    links = select(t.keys.c.id).where(of_visit, t.keys.c.kind.in_(OF_VISITS)).subquery()
    parts.append(select((literal("keys:") + cast(links.c.id, Text)).label("subject")))
    return select(union_all(*parts).subquery().c.subject)


class Behind:
    """The rows that lines are about, and all that those belong to."""

    def __init__(self, connection: Connection, subjects: set[str]) -> None:
        self._rows: dict[str, Mapping[str, Any]] = {}
        wanted = subjects
        while wanted:
            self._read(connection, wanted)
            above = {one for subject in wanted for one in self._above(subject)}
            wanted = above - self._rows.keys()

    def _read(self, connection: Connection, subjects: set[str]) -> None:
        ids: dict[str, list[int]] = {}
        for subject in subjects:
            name, _, number = subject.partition(":")
            if name in t.metadata.tables and number.isdigit():
                ids.setdefault(name, []).append(int(number))
        for name, of_table in ids.items():
            columns = t.metadata.tables[name].c
            said = [columns[one] for one in SAID if one in columns]
            for row in connection.execute(select(*said).where(columns.id.in_(of_table))):
                self._rows[f"{name}:{row.id}"] = row._asdict()

    def _above(self, subject: str) -> Iterator[str]:
        row = self._rows.get(subject, {})
        if subject.startswith("keys:") and row.get("kind") in OF_VISITS:
            yield row["name"]
        for column, name in BELONGS.items():
            if row.get(column) is not None:
                yield f"{name}:{row[column]}"

    def row(self, subject: str) -> Mapping[str, Any]:
        return self._rows.get(subject, {})

    def is_gone(self, subject: str) -> bool:
        """Whether a row that there was is there no more."""
        name, _, number = subject.partition(":")
        return number.isdigit() and name in t.metadata.tables and subject not in self._rows

    def one(self, name: str, subject: str) -> int | None:
        """The nearest row of a table that a subject is or belongs to."""
        if subject.startswith(f"{name}:"):
            found: int | None = self.row(subject).get("id")
            return found
        above = (self.one(name, one) for one in self._above(subject))
        return next((one for one in above if one is not None), None)
