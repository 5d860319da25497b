"""Rows in and out: what may be stored, the queries, and the records that they give.

All functions here work inside a transaction that `Store` has begun.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, date, datetime
from functools import cache
from operator import itemgetter
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from sqlalchemy import (
    Connection,
    CursorResult,
    Row,
    ScalarSelect,
    Select,
    Table,
    bindparam,
    delete,
    func,
    insert,
    select,
)

from earshift import __version__
from earshift.engine.audiogram import Audiogram
from earshift.engine.checks import finite, whole
from earshift.engine.values import EARS
from earshift.records import (
    AuditEntry,
    Baseline,
    Calibration,
    Device,
    ExamBundle,
    ExamRecord,
    ImportedAudiogram,
    Note,
    Person,
    Press,
    ResultRecord,
    TrialRecord,
    Visit,
    VisitBundle,
)
from earshift.store import tables as t
from earshift.store.database import CODES_LOCK, StoreError

T = TypeVar("T")
_FIELDS: dict[type[Any], tuple[str, ...]] = {
    kind: tuple(field.name for field in fields(kind))
    for kind in (
        AuditEntry,
        Baseline,
        Calibration,
        Device,
        ExamRecord,
        Note,
        Person,
        Press,
        ResultRecord,
        TrialRecord,
        Visit,
    )
}
IDENTITY = ("code", "name", "birth_date", "sex")


def live_trials(trials: Iterable[TrialRecord]) -> list[TrialRecord]:
    """Those that were not voided."""
    return [trial for trial in trials if trial.voided_at is None]


def trials_sha256(trials: Iterable[TrialRecord]) -> str:
    """Fingerprint of trials: all that was asked, played and answered, in order."""
    rows = [
        [
            trial.number,
            trial.kind,
            trial.ear,
            trial.frequency_hz,
            trial.asked_db_hl,
            trial.played_db_hl,
            trial.heard,
            trial.reaction_ms,
            trial.at.astimezone(UTC).isoformat(timespec="microseconds"),
            trial.author,
        ]
        for trial in trials
    ]
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


# Checks of what is handed in


def now() -> datetime:
    return datetime.now(UTC)


def moment(value: object, what: str) -> datetime:
    try:
        return t.as_utc(value, what)
    except (ValueError, OverflowError) as error:
        raise StoreError(str(error)) from None


def day(value: object, what: str) -> date:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise StoreError(f"{what} must be a date, got {value!r}")
    return value


def text(value: object, what: str, *, blank: bool = False) -> str:
    """Text that both databases can hold, without the white space around it."""
    if not isinstance(value, str):
        raise StoreError(f"{what} must be text, got {value!r}")
    if "\x00" in value or not _is_unicode(value):
        raise StoreError(f"{what} holds characters that cannot be stored: {value!r}")
    value = value.strip()
    if not value and not blank:
        raise StoreError(f"{what} must not be empty")
    return value


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_of(value: object, allowed: Sequence[str], what: str) -> str:
    if value not in allowed:
        raise StoreError(f"{what} must be one of {', '.join(allowed)}, got {value!r}")
    return str(value)


def maybe(value: object, what: str) -> float | None:
    return None if value is None else finite(value, what)


def zone_name(value: object) -> str:
    name = text(value, "zone")
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise StoreError(
            f"zone must be the name of a time zone such as Europe/Berlin, got {name!r}"
        ) from None
    return name


def plain(value: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The mapping as JSON gives it back; what is not plain data is refused here and not later."""
    try:
        plain = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"{what} must be plain JSON data: {error}") from None
    if not isinstance(plain, dict):
        raise StoreError(f"{what} must be a mapping, got {value!r}")
    text(json.dumps(plain, ensure_ascii=False), what)
    return plain


def as_identity(**given: Any) -> dict[str, Any]:
    identity = {
        name: None if given[name] is None else text(given[name], name)
        for name in ("code", "name", "sex")
    }
    born = given["birth_date"]
    found_by = " ".join(identity[name] or "" for name in ("code", "name")).casefold()
    return {
        **identity,
        "birth_date": None if born is None else day(born, "birth_date"),
        "found_by": found_by,
    }


# One row


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
    """The row with this id, or a StoreError that there is no such thing."""
    found = connection.execute(select(table).where(table.c.id == as_id(row_id, what))).first()
    if found is None:
        raise StoreError(f"there is no {what} {row_id}")
    return found


def as_id(value: object, what: str) -> int:
    number = whole(value, f"the id of a {what}", 1)
    if number >= 2**63:
        raise StoreError(f"there is no {what} {number}")
    return number


def add_row(
    connection: Connection,
    table: Table,
    values: Mapping[str, Any],
    author: str,
    reason: str = "",
    details: Mapping[str, Any] | None = None,
) -> Row[Any]:
    """A new row with its audit row, as it now stands there."""
    new = add_only(connection, table, values, author, reason, details)
    return connection.execute(select(table).where(table.c.id == new)).one()


def add_only(
    connection: Connection,
    table: Table,
    values: Mapping[str, Any],
    author: str,
    reason: str = "",
    details: Mapping[str, Any] | None = None,
) -> int:
    """A new row with its audit row; its id."""
    new: int = connection.execute(insert(table).values(**values).returning(table.c.id)).scalar_one()
    add_audit(connection, author, "add", f"{table.name}:{new}", reason, details)
    return new


def add_audit(
    connection: Connection,
    author: str,
    action: str,
    subject: str,
    reason: str = "",
    details: Mapping[str, Any] | None = None,
) -> None:
    connection.execute(
        insert(t.audit).values(
            at=now(),
            author=author,
            action=action,
            subject=subject,
            reason=reason,
            details=dict(details or {}),
        )
    )


# People


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
    query = people_query().where(t.people.c.id == as_id(person_id, "person"))
    found = connection.execute(query).first()
    if found is None:
        raise StoreError(f"there is no person {person_id}")
    return to_record(Person, found)


def nothing_of(connection: Connection, person_id: int) -> list[Any]:
    """The empty list of somebody who exists; who does not is refused."""
    person_of(connection, person_id)
    return []


def person_by_code(connection: Connection, code: str) -> Person | None:
    """Who has this code now. Somebody who once had it by mistake does not count."""
    # The ids first: they come from the index on codes, and most often there is one or none.
    once = select(t.identities.c.person_id).where(t.identities.c.code == code).distinct()
    ids = connection.execute(once).scalars().all()
    query = people_query().where(t.people.c.id.in_(ids), t.identities.c.code == code)
    found = connection.execute(query).first() if ids else None
    return None if found is None else to_record(Person, found)


def living_person(connection: Connection, person_id: int) -> Person:
    """The person, held until the transaction ends, so that nobody erases them meanwhile."""
    person_id = as_id(person_id, "person")
    connection.execute(select(t.people.c.id).where(t.people.c.id == person_id).with_for_update())
    person = person_of(connection, person_id)
    if person.erased_at is not None:
        raise StoreError(f"person {person_id} was erased on {person.erased_at:%Y-%m-%d}")
    return person


def add_person(connection: Connection, identity: Mapping[str, Any], author: str) -> Person:
    created = now()
    row = add_row(connection, t.people, {"created_at": created}, author)
    _add_identity(connection, row.id, identity, author, "")
    known = {name: identity[name] for name in IDENTITY}
    return Person(id=row.id, created_at=created, **known)


def correct_person(
    connection: Connection, person: Person, identity: Mapping[str, Any], author: str, reason: str
) -> Person:
    _add_identity(connection, person.id, identity, author, reason)
    changed = [name for name in IDENTITY if getattr(person, name) != identity[name]]
    # Names of the fields alone: the audit outlives the identity.
    add_audit(connection, author, "correct", f"people:{person.id}", "", {"fields": changed})
    return replace(person, **{name: identity[name] for name in IDENTITY})


def _add_identity(
    connection: Connection, person_id: int, identity: Mapping[str, Any], author: str, reason: str
) -> None:
    code = identity["code"]
    if code is not None:
        if connection.dialect.name == "postgresql":  # two programs may add the same code at once
            connection.execute(select(func.pg_advisory_xact_lock(CODES_LOCK)))
        other = person_by_code(connection, code)
        if other is not None and other.id != person_id:
            raise StoreError(f"code {code!r} is person {other.id}'s already")
    row = {"person_id": person_id, "at": now(), "author": author, "reason": reason}
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


# Ids for addresses


def handles_of(connection: Connection, kind: str, row_ids: Sequence[int]) -> dict[int, str]:
    h = t.handles
    query = select(h.c.row_id, h.c.handle).where(h.c.kind == kind, h.c.row_id.in_(row_ids))
    return {row.row_id: row.handle for row in connection.execute(query)}


def add_handles(connection: Connection, kind: str, row_ids: Sequence[int]) -> None:
    """New handles; of a row that another program has given one meanwhile, that one stays."""
    from sqlalchemy.dialects import postgresql, sqlite

    table = {"people": t.people, "visits": t.visits, "exams": t.exams, "devices": t.devices}[kind]
    known = connection.execute(select(table.c.id).where(table.c.id.in_(row_ids))).scalars().all()
    if unknown := set(row_ids) - set(known):
        raise StoreError(f"there is no row {min(unknown)} of {kind}")
    taken = handles_of(connection, kind, row_ids)
    new = [
        {"kind": kind, "row_id": row_id, "handle": secrets.token_urlsafe(16)}
        for row_id in row_ids
        if row_id not in taken
    ]
    if new:
        dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
        connection.execute(dialect.insert(t.handles).on_conflict_do_nothing(), new)


# Exams


@cache
def newest_state() -> ScalarSelect[Any]:
    states = t.exam_states
    return (
        select(states.c.state)
        .where(states.c.exam_id == t.exams.c.id)
        .correlate(t.exams)
        .order_by(states.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )


def exams_in_state(states: Sequence[str], since: datetime) -> Select[Any]:
    """Exams of real people whose newest state is one of these, reached since then; newest first."""
    reached, later = t.exam_states, t.exam_states.alias("later")
    newer = select(later.c.id).where(
        later.c.exam_id == reached.c.exam_id, later.c.id > reached.c.id
    )
    erased = select(t.erasures.c.id).where(t.erasures.c.person_id == t.visits.c.person_id)
    return (
        select(t.exams, reached.c.state)
        .join(reached, reached.c.exam_id == t.exams.c.id)
        .join(t.visits, t.visits.c.id == t.exams.c.visit_id)
        .where(reached.c.at >= since, reached.c.state.in_(states), ~newer.exists())
        .where(t.visits.c.mode != "simulated", ~erased.exists())
        .order_by(reached.c.id.desc())
    )


def last_tested() -> Any:
    """When somebody was last tested, over all of their exams."""
    return func.max(func.coalesce(t.exams.c.measured_at, t.visits.c.started_at))


def last_tests() -> Select[Any]:
    """Everybody who is not erased, by when they were last tested."""
    erased = select(t.erasures.c.id).where(t.erasures.c.person_id == t.visits.c.person_id)
    return (
        select(t.visits.c.person_id, last_tested().label("last"))
        .join(t.exams, t.exams.c.visit_id == t.visits.c.id)
        .where(t.visits.c.mode != "simulated", ~erased.exists())
        .group_by(t.visits.c.person_id)
    )


@cache
def exams_query() -> Select[Any]:
    return select(t.exams, newest_state().label("state"))


def exam_of(connection: Connection, exam_id: int) -> ExamRecord:
    query = exams_query().where(t.exams.c.id == as_id(exam_id, "exam"))
    found = connection.execute(query).first()
    if found is None:
        raise StoreError(f"there is no exam {exam_id}")
    return to_record(ExamRecord, found)


def exam_to_extend(connection: Connection, exam_id: int) -> Row[Any]:
    """Ear, kind, state and last trial's number of an exam whose person is not erased.

    Holds the person: until the transaction ends nobody else adds to the exam. What a statement
    reads is as old as its start, so the lock comes first and the reading after it.
    """
    exam_id = as_id(exam_id, "exam")
    if connection.execute(_lock_owner(), {"exam_id": exam_id}).first() is None:
        raise StoreError(f"there is no exam {exam_id}")
    found = connection.execute(_exam_to_extend(), {"exam_id": exam_id}).one()
    if found.erased_at is not None:
        raise StoreError(f"person {found.person_id} was erased on {found.erased_at:%Y-%m-%d}")
    return found


@cache
def _lock_owner() -> Select[Any]:
    return (
        select(t.people.c.id)
        .join(t.visits, t.visits.c.person_id == t.people.c.id)
        .join(t.exams, t.exams.c.visit_id == t.visits.c.id)
        .where(t.exams.c.id == bindparam("exam_id"))
        .with_for_update(of=t.people)
    )


@cache
def _exam_to_extend() -> Select[Any]:
    last = select(func.max(t.trials.c.number)).where(t.trials.c.exam_id == t.exams.c.id)
    return (
        select(
            t.exams.c.ear,
            t.exams.c.kind,
            t.visits.c.person_id,
            newest_state().label("state"),
            func.coalesce(last.correlate(t.exams).scalar_subquery(), 0).label("last_number"),
            t.erasures.c.at.label("erased_at"),
        )
        .join(t.visits, t.visits.c.id == t.exams.c.visit_id)
        .outerjoin(t.erasures, t.erasures.c.person_id == t.visits.c.person_id)
        .where(t.exams.c.id == bindparam("exam_id"))
    )


def open_exam(connection: Connection, values: Mapping[str, Any], author: str) -> ExamRecord:
    state = "done" if values["kind"] == "audiogram" else "open"
    row = add_row(connection, t.exams, values, author)
    add_state(connection, row.id, state, row.engine_version, author, "")
    return ExamRecord(state=state, **row._mapping)


def add_state(
    connection: Connection, exam_id: int, state: str, version: str, author: str, reason: str
) -> None:
    connection.execute(
        insert(t.exam_states).values(
            exam_id=exam_id,
            state=state,
            engine_version=version,
            at=now(),
            author=author,
            reason=reason,
        )
    )


def check_reference(connection: Connection, exam_id: int, person_id: int, ear: str) -> None:
    reference = row_of(connection, t.exams, exam_id, "exam")
    owner = row_of(connection, t.visits, reference.visit_id, "visit").person_id
    if (owner, reference.ear) != (person_id, ear):
        raise StoreError(
            f"exam {exam_id} cannot be the reference: it is of person {owner}'s {reference.ear} "
            f"ear, and the exam is of person {person_id}'s {ear} ear"
        )


@cache
def trials_query() -> Select[Any]:
    voids = t.voids
    return select(
        t.trials,
        voids.c.at.label("voided_at"),
        voids.c.author.label("voided_by"),
        voids.c.reason.label("void_reason"),
    ).outerjoin(voids, voids.c.trial_id == t.trials.c.id)


def void(connection: Connection, trial_id: int, author: str, reason: str) -> TrialRecord:
    values = {"trial_id": trial_id, "at": now(), "author": author, "reason": reason}
    connection.execute(insert(t.voids).values(values))
    add_audit(connection, author, "void", f"trials:{trial_id}", reason, {})
    row = connection.execute(trials_query().where(t.trials.c.id == trial_id)).one()
    return to_record(TrialRecord, row)


def trials_of(
    connection: Connection, exam_ids: Sequence[int]
) -> dict[int, tuple[TrialRecord, ...]]:
    query = (
        trials_query()
        .where(t.trials.c.exam_id.in_(exam_ids))
        .order_by(t.trials.c.exam_id, t.trials.c.number)
    )
    return _by("exam_id", to_records(TrialRecord, connection.execute(query)))


def results_of(
    connection: Connection, exam_ids: Sequence[int]
) -> dict[int, tuple[ResultRecord, ...]]:
    query = select(t.results).where(t.results.c.exam_id.in_(exam_ids)).order_by(t.results.c.id)
    return _by("exam_id", to_records(ResultRecord, connection.execute(query)))


def _by(key: str, records: Iterable[T]) -> dict[int, tuple[T, ...]]:
    groups: dict[int, list[T]] = {}
    for record in records:
        groups.setdefault(getattr(record, key), []).append(record)
    return {number: tuple(group) for number, group in groups.items()}


# Whole visits


def calibrations_of(connection: Connection, device_ids: Iterable[int]) -> list[Calibration]:
    query = (
        select(t.calibrations)
        .where(t.calibrations.c.device_id.in_(device_ids))
        .order_by(t.calibrations.c.done_on, t.calibrations.c.id)
    )
    return to_records(Calibration, connection.execute(query))


def in_force(calibrations: Iterable[Calibration], day: date) -> Calibration | None:
    """The newest calibration up to that day; a biological check only where there is no other."""
    done = [one for one in calibrations if one.done_on <= day]
    measured = [one for one in done if one.kind != "biological"]
    return next(reversed(measured or done), None)


def bundles_of(connection: Connection, visits: Sequence[Visit]) -> list[VisitBundle]:
    """Visits with all that belongs to them, in a handful of queries however many they are."""
    visit_ids = [visit.id for visit in visits]
    people = _found(
        connection, Person, people_query(), t.people.c.id, {v.person_id for v in visits}
    )
    device_ids = {v.device_id for v in visits if v.device_id is not None}
    devices = _found(connection, Device, select(t.devices), t.devices.c.id, device_ids)
    calibrations = _by("device_id", calibrations_of(connection, device_ids))
    rows = connection.execute(
        exams_query().where(t.exams.c.visit_id.in_(visit_ids)).order_by(t.exams.c.id)
    )
    exams = to_records(ExamRecord, rows)
    reference_ids = {e.reference_exam_id for e in exams if e.reference_exam_id is not None}
    references = _found(connection, ExamRecord, exams_query(), t.exams.c.id, reference_ids)
    exam_ids = [exam.id for exam in exams]
    trials, results = trials_of(connection, exam_ids), results_of(connection, exam_ids)
    rows = connection.execute(
        select(t.notes).where(t.notes.c.visit_id.in_(visit_ids)).order_by(t.notes.c.id)
    )
    notes = _by("visit_id", to_records(Note, rows))
    bundles = _by("visit_id", exams)
    return [
        VisitBundle(
            person=people[visit.person_id],
            visit=visit,
            exams=tuple(
                ExamBundle(
                    exam=exam,
                    trials=trials.get(exam.id, ()),
                    results=results.get(exam.id, ()),
                    reference=references.get(exam.reference_exam_id or 0),
                )
                for exam in bundles.get(visit.id, ())
            ),
            device=devices.get(visit.device_id or 0),
            calibration=in_force(calibrations.get(visit.device_id or 0, ()), local_day(visit)),
            notes=notes.get(visit.id, ()),
        )
        for visit in visits
    ]


def local_day(visit: Visit) -> date:
    return visit.started_at.astimezone(ZoneInfo(visit.zone)).date()


def _found(
    connection: Connection, kind: type[T], query: Select[Any], key: Any, ids: Iterable[int]
) -> dict[int, T]:
    found = to_records(kind, connection.execute(query.where(key.in_(list(ids)))))
    return {number: one for number, (one,) in _by("id", found).items()}


# Imports


def import_one(
    connection: Connection,
    item: ImportedAudiogram,
    visits: dict[tuple[int, datetime | None], int],
    author: str,
    zone: str,
) -> tuple[ExamRecord, bool]:
    """The stored exam of an item, and whether it is new. Ears of one moment share a visit."""
    ear = one_of(item.ear, EARS, "ear")
    design = plain(_audiogram(item.audiogram), "audiogram")
    measured = None if item.measured_at is None else moment(item.measured_at, "measured_at")
    person = _imported_person(connection, item, author)
    known = connection.execute(
        exams_query()
        .join(t.visits, t.visits.c.id == t.exams.c.visit_id)
        .where(
            t.visits.c.person_id == person.id,
            t.exams.c.kind == "audiogram",
            t.exams.c.ear == ear,
            t.exams.c.measured_at.is_not_distinct_from(measured),
        )
    )
    for row in known:
        if row.design == design:
            return to_record(ExamRecord, row), False
    key = (person.id, measured)
    if key not in visits:
        visit = {
            "person_id": person.id,
            "started_at": measured or now(),
            "zone": zone,
            "mode": "imported",
            "author": author,
            "checklist": {},
        }
        visits[key] = add_row(connection, t.visits, visit, author).id
    exam = {
        "visit_id": visits[key],
        "ear": ear,
        "kind": "audiogram",
        "design": design,
        "engine_version": __version__,
        "measured_at": measured,
        "source": text(item.source, "source", blank=True),
    }
    return open_exam(connection, exam, author), True


def _audiogram(data: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return Audiogram.from_dict(data).to_dict()
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"not the data of an audiogram: {error!r}") from None


def _imported_person(connection: Connection, item: ImportedAudiogram, author: str) -> Person:
    given = as_identity(
        code=text(item.code, "code"), name=item.name, birth_date=item.birth_date, sex=item.sex
    )
    person = person_by_code(connection, given["code"])
    if person is None:
        return add_person(connection, given, author)
    person = living_person(connection, person.id)
    merged = {name: getattr(person, name) for name in IDENTITY}
    for name in ("name", "birth_date", "sex"):
        if given[name] is None:
            continue
        if merged[name] is None:
            merged[name] = given[name]
        elif _alike(merged[name]) != _alike(given[name]):
            raise StoreError(
                f"person {person.id} is known with another {name.replace('_', ' ')}; "
                "correct the person or the file first"
            )
    if all(merged[name] == getattr(person, name) for name in IDENTITY):
        return person
    return correct_person(connection, person, as_identity(**merged), author, "import")


def _alike(value: object) -> str:
    return " ".join(str(value).casefold().split())
