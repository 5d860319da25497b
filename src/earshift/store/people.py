"""People: who they are now, who they were said to be before, and their erasure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cache
from typing import Any

from sqlalchemy import Connection, ScalarSelect, Select, delete, func, insert, or_, select

from earshift.acts import ERASURE_REASONS, Merge
from earshift.engine.checks import whole
from earshift.records import Person
from earshift.store import chain, checks, rows, texts
from earshift.store import tables as t
from earshift.store.database import CODES_LOCK, reading, write_in_parts, writing
from earshift.store.errors import NoSuchRow, StoreConflict, StoreError
from earshift.store.forgetting import forget
from earshift.store.handles import give_handles
from earshift.store.rows import Part

EMPLOYMENT = ("department", "job", "hired_on", "left_on")
IDENTITY = ("code", "name", "birth_date", "sex", *EMPLOYMENT)


def as_identity(**given: Any) -> dict[str, Any]:
    identity: dict[str, Any] = {}
    for name in IDENTITY:
        check = checks.day if name in ("birth_date", "hired_on", "left_on") else checks.text
        value = given.get(name)
        identity[name] = None if value is None else check(value, name)
    if identity["hired_on"] and identity["left_on"] and identity["left_on"] < identity["hired_on"]:
        raise StoreError("nobody leaves before they were hired", got=identity["left_on"])
    found_by = " ".join(identity[name] or "" for name in ("code", "name")).casefold()
    return {**identity, "found_by": found_by}


@cache
def newest_merge() -> ScalarSelect[Any]:
    """What a person's record was merged into, if it was and still is."""
    m = t.merges.alias("merged")
    return (
        select(m.c.into_id)
        .where(m.c.person_id == t.people.c.id)
        .correlate(t.people)
        .order_by(m.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )


@cache
def owner_of_visit() -> Any:
    """Whose a visit is: the person's who came, or the one's that the record was merged into."""
    m = t.merges.alias("merged")
    into = (
        select(m.c.into_id)
        .where(m.c.person_id == t.visits.c.person_id)
        .correlate(t.visits)
        .order_by(m.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    return func.coalesce(into, t.visits.c.person_id)


def records_of(connection: Connection, person_id: int) -> list[int]:
    """Ids of all records of one person: their own, and those that were merged into it."""
    m, later = t.merges, t.merges.alias("later")
    newer = select(later.c.id).where(later.c.person_id == m.c.person_id, later.c.id > m.c.id)
    query = select(m.c.person_id).where(m.c.into_id == person_id, ~newer.exists())
    return [person_id, *connection.execute(query).scalars()]


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
            *(i.c[name] for name in EMPLOYMENT),
            newest_merge().label("merged_into"),
        )
        .outerjoin(i, i.c.id == newest)
        .outerjoin(t.erasures, t.erasures.c.person_id == t.people.c.id)
    )


def person_of(connection: Connection, person_id: int) -> Person:
    query = people_query().where(t.people.c.id == checks.as_id(person_id, "person"))
    found = connection.execute(query).first()
    if found is None:
        raise NoSuchRow("there is no {person}", code="no-such-person", person=person_id)
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


def _named(part: str, dialect: str) -> Select[Any]:
    """Ids of the people who have this, case folded, in their code or name now.

    All names are read: they lie together in short rows, and any part of any length is found.
    """
    place = func.instr if dialect == "sqlite" else func.strpos
    return select(t.names.c.person_id).where(place(t.names.c.found_by, part) > 0)


def newest_names() -> Select[Any]:
    """What `names` has to hold: everybody's newest identity, as a search reads it."""
    i = t.identities
    newest = select(func.max(i.c.id)).group_by(i.c.person_id)
    return select(i.c.person_id, i.c.found_by).where(i.c.id.in_(newest))


def living_person(connection: Connection, person_id: int) -> Person:
    """The person, held until the transaction ends, so that nobody erases them meanwhile."""
    person_id = checks.as_id(person_id, "person")
    connection.execute(select(t.people.c.id).where(t.people.c.id == person_id).with_for_update())
    return alive(connection, person_id)


def alive(connection: Connection, person_id: int) -> Person:
    """The person, who is neither erased nor another record of somebody."""
    person = person_of(connection, person_id)
    if person.erased_at is not None:
        raise StoreConflict(
            f"{{person}} was erased on {person.erased_at:%Y-%m-%d}", person=person_id
        )
    if person.merged_into is not None:
        raise StoreConflict(
            "{person_1} is another record of {person_2}",
            code="merged",
            advice="use that one, or separate them again",
            person_1=person_id,
            person_2=person.merged_into,
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
            raise _code_taken(code, other.id)
    row = {"person_id": person_id, "at": checks.now(), "author": author, "reason": reason}
    rows.insert_row(connection, t.identities, {**identity, **row})


def _code_taken(code: str, holder: int | None) -> StoreConflict:
    whose: object = "somebody else of this list" if holder is None else holder
    return StoreConflict(
        "this code already belongs to {person}", code="code-taken", person=whose, got=code
    )


def delete_visits(connection: Connection, person_id: int) -> None:
    """All visits of an erased person, from the leaves up."""
    visits = select(t.visits.c.id).where(t.visits.c.person_id == person_id)
    exams = select(t.exams.c.id).where(t.exams.c.visit_id.in_(visits))
    trials = select(t.trials.c.id).where(t.trials.c.exam_id.in_(exams))
    connection.execute(delete(t.voids).where(t.voids.c.trial_id.in_(trials)))
    connection.execute(delete(t.baselines).where(t.baselines.c.person_id == person_id))
    connection.execute(delete(t.merges).where(t.merges.c.person_id == person_id))
    for table in (t.work_relations, t.closings, t.presses, t.results, t.trials, t.exam_states):
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
        **employment: Any,
    ) -> Person:
        """A new person. Everything may be missing; a code must not be another person's.

        `employment` is department, job, hired_on and left_on.
        """
        if unknown := employment.keys() - set(EMPLOYMENT):
            raise StoreError(f"a person has {', '.join(IDENTITY)}", got=sorted(unknown))
        identity = as_identity(code=code, name=name, birth_date=birth_date, sex=sex, **employment)
        author = checks.text(author, "author")
        with writing(self.engine) as connection:
            person = insert_person(connection, identity, author)
            give_handles(connection, "people", [person.id])
            return person

    def person(self, person_id: int) -> Person:
        """The person as known now."""
        with reading(self.engine) as connection:
            return person_of(connection, person_id)

    def people(self, *, after: int = 0, limit: int = 50, search: str | None = None) -> list[Person]:
        """A page of people by id, those after the id given; `search` is part of a code or name."""
        after, limit = whole(after, "after", 0), whole(limit, "limit", 1)
        query = people_query().where(t.people.c.id > after).order_by(t.people.c.id).limit(limit)
        if search is not None:
            part = checks.text(search, "search").casefold()
            named = _named(part, self.engine.dialect.name).where(t.names.c.person_id > after)
            named = named.order_by(t.names.c.person_id).limit(limit)
            query = query.where(t.people.c.id.in_(named))
        with reading(self.engine) as connection:
            return rows.to_records(Person, connection.execute(query))

    def people_of(self, person_ids: Collection[int]) -> dict[int, Person]:
        """These people by id; whom nobody knows is left out."""
        with reading(self.engine) as connection:
            return rows.found_by_id(
                connection, Person, people_query(), t.people.c.id, sorted(person_ids)
            )

    def person_by_code(self, code: str) -> Person | None:
        """The person who has this code now, if anybody has."""
        with reading(self.engine) as connection:
            return find_by_code(connection, checks.text(code, "code"))

    def correct_person(self, person_id: int, *, author: str, reason: str, **changes: Any) -> Person:
        """Correct what is known of somebody. What was known before stays as history.

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

    def change_people(
        self,
        new: Sequence[Mapping[str, Any]],
        changes: Mapping[int, Mapping[str, Any]],
        *,
        author: str,
        reason: str,
    ) -> None:
        """Add and correct many people: all of them, or none when one is refused.

        They are written in parts; what was killed meanwhile is completed by repeating it.
        """
        author, reason = checks.text(author, "author"), checks.text(reason, "reason")
        self._require_codes(new, changes)

        def write(connection: Connection, one: tuple[int | None, Mapping[str, Any]]) -> None:
            person_id, fields = one
            if person_id is None:
                insert_person(connection, as_identity(**fields), author)
                return
            now = living_person(connection, person_id)
            known = {name: getattr(now, name) for name in IDENTITY}
            identity = as_identity(**{**known, **fields})
            insert_correction(connection, now, identity, author, reason)

        added = [(None, one) for one in new]
        write_in_parts(self.engine, [*changes.items(), *added], write)

    def _require_codes(
        self, new: Sequence[Mapping[str, Any]], changes: Mapping[int, Mapping[str, Any]]
    ) -> None:
        """Refuse, before anything is written, what cannot be stored."""
        taken: dict[str, int | None] = {}
        with reading(self.engine) as connection:
            for person_id, fields in [*changes.items(), *((None, one) for one in new)]:
                now = None if person_id is None else alive(connection, person_id)
                known = {name: getattr(now, name) for name in IDENTITY} if now else {}
                code = as_identity(**{**known, **fields})["code"]
                if code is None or (now is not None and code == now.code):
                    continue
                other = find_by_code(connection, code)
                holder = taken.get(code, person_id) if other is None else other.id
                if code in taken or (other is not None and other.id != person_id):
                    raise _code_taken(code, holder)
                taken[code] = person_id

    def erase_person(
        self, person_id: int, *, author: str, reason: str, delete_trials: bool = False
    ) -> Person:
        """Delete identity, its history and all that was typed about the person; with
        `delete_trials` the visits as well.

        What was signed goes, and what was done after it. A tombstone stays, and so do signatures
        with their hashes; the reason is one of `acts.ERASURE_REASONS`, as it stays too. Backups
        made before still hold everything.

        The files are rewritten at once; `NotForgotten` says that another program is in the way, and
        `Store.forget` does it later. So does erasing a person again, which is refused: a program
        that was killed before it came to that had erased the person.
        """
        author = checks.text(author, "author")
        reason = checks.one_of(reason, ERASURE_REASONS, "the reason of an erasure")
        with reading(self.engine) as connection:
            erased_before = person_of(connection, person_id).erased_at is not None
        if erased_before:
            forget(self.engine)
        with writing(self.engine) as connection:
            living_person(connection, person_id)
            records = records_of(connection, person_id)  # of one person: all of them go
            # The tombstone is the permit that the triggers ask for, and it writes the audit row.
            tombstone = {
                "at": checks.now(),
                "author": author,
                "reason": reason,
                "trials_deleted": bool(delete_trials),
            }
            for one in records:
                connection.execute(insert(t.erasures).values(person_id=one, **tombstone))
                said = select(func.max(t.audit.c.id)).where(t.audit.c.subject == f"people:{one}")
                chain.note(connection, "audit", connection.execute(said).scalar_one())
            i = t.identities.c
            called = select(i.code, i.name).where(i.person_id.in_(records))
            names = {one for row in connection.execute(called) for one in row if one}
            texts.erase(connection, records, names, author)
            for table in (t.notes, t.identities, t.standings, t.tasks, t.tested):
                connection.execute(delete(table).where(table.c.person_id.in_(records)))
            signed, acts = t.signed, t.follow_ups
            connection.execute(
                delete(signed).where(
                    or_(signed.c.person_id.in_(records), signed.c.owner_id.in_(records))
                )
            )
            connection.execute(delete(acts).where(acts.c.person_id.in_(records)))
            for one in records if delete_trials else ():
                delete_visits(connection, one)
            erased = person_of(connection, person_id)
        forget(self.engine, with_trials=bool(delete_trials))
        return erased

    def merge_people(self, person_id: int, into_id: int, *, author: str, reason: str) -> Merge:
        """Make two records of one person one: the visits of the first are the second's from now on.

        Nothing is moved, so that `separate_people` undoes it. A record that others were merged
        into is not merged further.
        """
        author, reason = checks.text(author, "author"), checks.text(reason, "reason")
        if checks.as_id(person_id, "person") == checks.as_id(into_id, "person"):
            raise StoreError("two records are needed to make one", got=person_id)
        with writing(self.engine) as connection:
            for one in sorted((person_id, into_id)):  # in one order, or two programs wait for ever
                living_person(connection, one)
            if len(records_of(connection, person_id)) > 1:
                raise StoreConflict(
                    "other records were merged into {person} already",
                    advice="merge the other way round, or separate those first",
                    person=person_id,
                )
            return _add_merge(connection, person_id, into_id, author, reason)

    def separate_people(self, person_id: int, *, author: str, reason: str) -> Merge:
        """Undo a merge: the record has its own visits again."""
        author, reason = checks.text(author, "author"), checks.text(reason, "reason")
        with writing(self.engine) as connection:
            person = person_of(connection, person_id)
            if person.merged_into is None or person.erased_at is not None:
                raise StoreConflict("{person} is not merged into another record", person=person_id)
            return _add_merge(connection, person_id, None, author, reason)

    def merged_into(self, person_id: int) -> list[Person]:
        """The other records of this person."""
        with reading(self.engine) as connection:
            others = records_of(connection, checks.as_id(person_id, "person"))[1:]
            return [person_of(connection, one) for one in others]


def _add_merge(
    connection: Connection, person_id: int, into_id: int | None, author: str, reason: str
) -> Merge:
    values = {
        "person_id": person_id,
        "into_id": into_id,
        "at": checks.now(),
        "author": author,
        "reason": reason,
    }
    before = person_of(connection, person_id).merged_into
    new = rows.insert_row(connection, t.merges, values, into_id or before)
    details = {"person": person_id, "into": into_id}
    rows.add_audit(connection, author, "add", f"merges:{new}", "", details)
    query = select(*texts.columns(t.merges)).where(t.merges.c.id == new)
    return rows.to_record(Merge, connection.execute(query).one())
