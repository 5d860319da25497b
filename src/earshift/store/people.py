"""People: who they are now, who they were said to be before, and their erasure."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select

from earshift.engine.checks import whole
from earshift.records import Person
from earshift.store import checks, rows
from earshift.store import tables as t
from earshift.store.database import CODES_LOCK, forget, reading, writing
from earshift.store.errors import NoSuchRow, StoreConflict, StoreError
from earshift.store.rows import Part

IDENTITY = ("code", "name", "birth_date", "sex")


def as_identity(**given: Any) -> dict[str, Any]:
    identity = {
        name: None if given[name] is None else checks.text(given[name], name)
        for name in ("code", "name", "sex")
    }
    born = given["birth_date"]
    found_by = " ".join(identity[name] or "" for name in ("code", "name")).casefold()
    return {
        **identity,
        "birth_date": None if born is None else checks.day(born, "birth_date"),
        "found_by": found_by,
    }


@cache  # built once: every call begins with one of these
def people_query() -> Select[Any]:
    """People with the newest of their identities, if it was not erased."""
    i = t.identities
    newest = (
        select(func.max(i.c.id))
        .where(i.c.person_id == t.people.c.id)
        .correlate(t.people)
        .scalar_subquery()
    )
    return (
        select(
            t.people.c.id,
            i.c.code,
            i.c.name,
            i.c.birth_date,
            i.c.sex,
            t.people.c.created_at,
            t.erasures.c.at.label("erased_at"),
        )
        .outerjoin(i, i.c.id == newest)
        .outerjoin(t.erasures, t.erasures.c.person_id == t.people.c.id)
    )


def person_of(connection: Connection, person_id: int) -> Person:
    query = people_query().where(t.people.c.id == checks.as_id(person_id, "person"))
    found = connection.execute(query).first()
    if found is None:
        raise NoSuchRow("there is no {person}", person=person_id)
    return rows.to_record(Person, found)


def nothing_of(connection: Connection, person_id: int) -> list[Any]:
    """The empty list of somebody who exists; who does not is refused."""
    person_of(connection, person_id)
    return []


def find_by_code(connection: Connection, code: str) -> Person | None:
    """Who has this code now. Somebody who once had it by mistake does not count."""
    # The ids first: they come from the index on codes, and most often there is one or none.
    once = select(t.identities.c.person_id).where(t.identities.c.code == code).distinct()
    ids = connection.execute(once).scalars().all()
    query = people_query().where(t.people.c.id.in_(ids), t.identities.c.code == code)
    found = connection.execute(query).first() if ids else None
    return None if found is None else rows.to_record(Person, found)


def living_person(connection: Connection, person_id: int) -> Person:
    """The person, held until the transaction ends, so that nobody erases them meanwhile."""
    person_id = checks.as_id(person_id, "person")
    connection.execute(select(t.people.c.id).where(t.people.c.id == person_id).with_for_update())
    person = person_of(connection, person_id)
    if person.erased_at is not None:
        raise StoreConflict(
            f"{{person}} was erased on {person.erased_at:%Y-%m-%d}", person=person_id
        )
    return person


def insert_person(connection: Connection, identity: Mapping[str, Any], author: str) -> Person:
    created = checks.now()
    row = rows.add_row(connection, t.people, {"created_at": created}, author)
    _add_identity(connection, row.id, identity, author, "")
    known = {name: identity[name] for name in IDENTITY}
    return Person(id=row.id, created_at=created, **known)


def insert_correction(
    connection: Connection, person: Person, identity: Mapping[str, Any], author: str, reason: str
) -> Person:
    _add_identity(connection, person.id, identity, author, reason)
    changed = [name for name in IDENTITY if getattr(person, name) != identity[name]]
    # Names of the fields alone: the audit outlives the identity.
    rows.add_audit(connection, author, "correct", f"people:{person.id}", "", {"fields": changed})
    return replace(person, **{name: identity[name] for name in IDENTITY})


def _add_identity(
    connection: Connection, person_id: int, identity: Mapping[str, Any], author: str, reason: str
) -> None:
    code = identity["code"]
    if code is not None:
        if connection.dialect.name == "postgresql":  # two programs may add the same code at once
            connection.execute(select(func.pg_advisory_xact_lock(CODES_LOCK)))
        other = find_by_code(connection, code)
        if other is not None and other.id != person_id:
            raise StoreConflict(
                "this code already belongs to {person}",
                code="code-taken",
                person=other.id,
                got=code,
            )
    row = {"person_id": person_id, "at": checks.now(), "author": author, "reason": reason}
    connection.execute(insert(t.identities).values(**identity, **row))


def delete_visits(connection: Connection, person_id: int) -> None:
    """All visits of an erased person, from the leaves up."""
    visits = select(t.visits.c.id).where(t.visits.c.person_id == person_id)
    exams = select(t.exams.c.id).where(t.exams.c.visit_id.in_(visits))
    trials = select(t.trials.c.id).where(t.trials.c.exam_id.in_(exams))
    connection.execute(delete(t.voids).where(t.voids.c.trial_id.in_(trials)))
    connection.execute(delete(t.baselines).where(t.baselines.c.person_id == person_id))
    for table in (t.presses, t.results, t.trials, t.exam_states):
        connection.execute(delete(table).where(table.c.exam_id.in_(exams)))
    # A screen goes before the exam it refers to, which is always an older row.
    for exam_id in connection.execute(exams.order_by(t.exams.c.id.desc())).scalars().all():
        connection.execute(delete(t.exams).where(t.exams.c.id == exam_id))
    connection.execute(delete(t.visits).where(t.visits.c.person_id == person_id))


class People(Part):
    """The store's calls about people."""

    def add_person(
        self,
        *,
        author: str,
        code: str | None = None,
        name: str | None = None,
        birth_date: date | None = None,
        sex: str | None = None,
    ) -> Person:
        """A new person. Everything may be missing; a code must not be another person's."""
        identity = as_identity(code=code, name=name, birth_date=birth_date, sex=sex)
        author = checks.text(author, "author")
        with writing(self.engine) as connection:
            return insert_person(connection, identity, author)

    def person(self, person_id: int) -> Person:
        """The person as known now."""
        with reading(self.engine) as connection:
            return person_of(connection, person_id)

    def people(self, *, after: int = 0, limit: int = 50, search: str | None = None) -> list[Person]:
        """A page of people by id, those after the id given; `search` is part of a code or name."""
        query = people_query().where(t.people.c.id > whole(after, "after", 0))
        if search is not None:
            part = checks.text(search, "search").casefold()
            query = query.where(t.identities.c.found_by.contains(part, autoescape=True))
        query = query.order_by(t.people.c.id).limit(whole(limit, "limit", 1))
        with reading(self.engine) as connection:
            return rows.to_records(Person, connection.execute(query))

    def person_by_code(self, code: str) -> Person | None:
        """The person who has this code now, if anybody has."""
        with reading(self.engine) as connection:
            return find_by_code(connection, checks.text(code, "code"))

    def correct_person(self, person_id: int, *, author: str, reason: str, **changes: Any) -> Person:
        """Correct code, name, birth_date or sex. What was known before stays as history.

        The reason is kept with the identity and goes with it, as it may name somebody.
        """
        unknown = changes.keys() - set(IDENTITY)
        if unknown or not changes:
            raise StoreError(
                f"a correction must change at least one of {', '.join(IDENTITY)}", got=list(changes)
            )
        author, reason = checks.text(author, "author"), checks.text(reason, "reason")
        with writing(self.engine) as connection:
            now = living_person(connection, person_id)
            identity = as_identity(**{name: getattr(now, name) for name in IDENTITY} | changes)
            return insert_correction(connection, now, identity, author, reason)

    def erase_person(
        self, person_id: int, *, author: str, reason: str, delete_trials: bool = False
    ) -> Person:
        """Delete identity, its history and all notes; with `delete_trials` the visits as well.

        A tombstone stays. Free text elsewhere (reasons, sources, checklists) belongs to the visits
        and goes only with them. Backups made before still hold everything.
        """
        author, reason = checks.text(author, "author"), checks.text(reason, "reason")
        with writing(self.engine) as connection:
            living_person(connection, person_id)
            # The tombstone is the permit that the triggers ask for, and it writes the audit row.
            connection.execute(
                insert(t.erasures).values(
                    person_id=person_id,
                    at=checks.now(),
                    author=author,
                    reason=reason,
                    trials_deleted=bool(delete_trials),
                )
            )
            for table in (t.notes, t.identities):
                connection.execute(delete(table).where(table.c.person_id == person_id))
            if delete_trials:
                delete_visits(connection, person_id)
            erased = person_of(connection, person_id)
        forget(self.engine)
        return erased
