"""Exams of one ear or of both: opening them, their states, and what an ear is compared with."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime
from functools import cache
from typing import Any

from sqlalchemy import Connection, Row, ScalarSelect, Select, bindparam, func, select

from earshift.days import local_day
from earshift.engine.values import BOTH, EARS
from earshift.records import (
    EXAM_KINDS,
    EXAM_STATES,
    Baseline,
    ExamRecord,
    TrialCounts,
    in_order,
)
from earshift.store import checks, people, rows, texts
from earshift.store import tables as t
from earshift.store.database import reading, writing
from earshift.store.errors import ExamChanged, NoSuchRow, StoreConflict, StoreError
from earshift.store.handles import give_handles
from earshift.store.rows import Part


@cache
def newest_state(column: Any = t.exam_states.c.state) -> ScalarSelect[Any]:
    """The newest state of an outer query's exam, or another column of its row."""
    states = t.exam_states
    return (
        select(column)
        .where(states.c.exam_id == t.exams.c.id)
        .correlate(t.exams)
        .order_by(states.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )


@cache
def exams_query() -> Select[Any]:
    return select(*texts.columns(t.exams), newest_state().label("state"))


def states_of(connection: Connection, exam_ids: Sequence[int]) -> dict[int, str]:
    """The newest state of each of these exams."""
    query = select(t.exams.c.id, newest_state().label("state")).where(t.exams.c.id.in_(exam_ids))
    return {row.id: row.state for row in connection.execute(query)}


def exam_of(connection: Connection, exam_id: int) -> ExamRecord:
    query = exams_query().where(t.exams.c.id == checks.as_id(exam_id, "exam"))
    found = connection.execute(query).first()
    if found is None:
        raise NoSuchRow("there is no {exam}", exam=exam_id)
    return rows.to_record(ExamRecord, found)


def exam_to_extend(
    connection: Connection, exam_id: int, expected: TrialCounts | None = None
) -> Row[Any]:
    """Ear, kind, state and counts of trials of an exam whose person is not erased.

    With `expected`, an exam that is not open or has other trials is refused as `ExamChanged`: two
    programs must not answer one exam, as what the other did would change the question.

    Holds the person: until the transaction ends nobody else adds to the exam. What a statement
    reads is as old as its start, so the lock comes first and the reading after it.
    """
    exam_id = checks.as_id(exam_id, "exam")
    if connection.execute(_lock_owner(), {"exam_id": exam_id}).first() is None:
        raise NoSuchRow("there is no {exam}", exam=exam_id)
    found = connection.execute(_exam_to_extend(), {"exam_id": exam_id}).one()
    if found.erased_at is not None:
        raise StoreConflict(
            f"{{person}} was erased on {found.erased_at:%Y-%m-%d}", person=found.person_id
        )
    if expected is not None:
        if found.state != "open":
            raise ExamChanged(f"{{exam}} is {found.state} and takes no answers", exam=exam_id)
        if (found.last_number, found.void) != expected:
            raise ExamChanged(
                "another program is also working on {exam}; its answers are kept, this one was "
                "not stored",
                advice="continue there, or load the exam again",
                exam=exam_id,
            )
    return found


def voids_of_exam() -> Select[Any]:
    """The voids of an outer query's exam."""
    of_exam = t.voids.join(t.trials, t.trials.c.id == t.voids.c.trial_id)
    return select(func.count()).select_from(of_exam).where(t.trials.c.exam_id == t.exams.c.id)


def beside(found: Select[Any]) -> ScalarSelect[Any]:
    """A count, or what else is found of an exam, as a column beside the exam's."""
    return found.correlate(t.exams).scalar_subquery()


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
            beside(voids_of_exam()).label("void"),
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


def insert_exam(connection: Connection, values: Mapping[str, Any], author: str) -> ExamRecord:
    state = "done" if values["kind"] == "audiogram" else "open"
    new = rows.add_only(connection, t.exams, values, author)
    add_state(connection, new, state, values["engine_version"], author, "", 0)
    return exam_of(connection, new)


def add_state(
    connection: Connection,
    exam_id: int,
    state: str,
    version: str,
    author: str,
    reason: str,
    after_trial: int,
) -> None:
    values = {
        "exam_id": exam_id,
        "state": state,
        "engine_version": version,
        "at": checks.now(),
        "author": author,
        "reason": reason,
        "after_trial": after_trial,
    }
    rows.insert_row(connection, t.exam_states, values)


def exam_values(
    *,
    ear: str,
    kind: str,
    design: Mapping[str, Any],
    engine_version: str,
    reference_exam_id: int | None = None,
    measured_at: datetime | None = None,
    source: str = "",
    delivery: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What a new exam is, checked, as it is stored."""
    return {
        "ear": checks.one_of(ear, EARS if kind == "audiogram" else (*EARS, BOTH), "ear"),
        "kind": checks.one_of(kind, EXAM_KINDS, "kind"),
        "design": checks.plain(design, "design"),
        "engine_version": checks.text(engine_version, "engine_version"),
        "reference_exam_id": reference_exam_id,
        "measured_at": None if measured_at is None else checks.moment(measured_at, "measured_at"),
        "source": checks.text(source, "source", blank=True),
        "delivery": checks.plain(delivery or {}, "delivery"),
    }


def open_one(
    connection: Connection,
    visit: Row[Any],
    values: Mapping[str, Any],
    author: str,
    *,
    alone: bool,
) -> ExamRecord:
    """A new exam of a visit, whose person is held from here on: of two that want the same ear, the
    second finds the first."""
    owner = people.living_person(connection, _owner_of(connection, visit.id)).id
    ear = values["ear"]
    for tested, reference in _references(values).items():
        check_reference(connection, reference, owner, tested)
    if alone:
        _require_none_unfinished(connection, owner, ear, simulated=visit.mode == "simulated")
    if values["kind"] == "audiogram":
        _require_new(connection, owner, values)
    return insert_exam(connection, {**values, "visit_id": visit.id}, author)


def _references(values: Mapping[str, Any]) -> dict[str, int]:
    """What each ear of a new exam is compared with."""
    ear, one = values["ear"], values["reference_exam_id"]
    if ear != BOTH:
        return {} if one is None else {ear: one}
    if one is not None:
        raise StoreError("an exam of both ears has a reference of each: none for both", got=one)
    given = values["delivery"].get("references") or {}
    return {checks.one_of(ear, EARS, "ear"): number for ear, number in given.items()}


def same_audiograms(
    connection: Connection, person_id: int, values: Mapping[str, Any]
) -> list[ExamRecord]:
    """Audiograms of this ear and moment that say the same, number for number."""
    query = (
        exams_query()
        .join(t.visits, t.visits.c.id == t.exams.c.visit_id)
        .where(
            t.visits.c.person_id.in_(people.records_of(connection, person_id)),
            t.exams.c.kind == "audiogram",
            t.exams.c.ear == values["ear"],
            t.exams.c.measured_at.is_not_distinct_from(values["measured_at"]),
        )
    )
    found = rows.to_records(ExamRecord, connection.execute(query))
    return [one for one in found if one.design == values["design"]]


def _require_new(connection: Connection, person_id: int, values: Mapping[str, Any]) -> None:
    for known in same_audiograms(connection, person_id, values):
        raise StoreConflict(
            f"this audiogram of the {known.ear} ear is stored already, as {{exam}}",
            code="known-audiogram",
            exam=known.id,
        )


def _require_none_unfinished(
    connection: Connection, person_id: int, ear: str, *, simulated: bool
) -> None:
    v = t.visits
    query = (
        select(t.exams.c.id)
        .join(v, v.c.id == t.exams.c.visit_id)
        .where(
            v.c.person_id.in_(people.records_of(connection, person_id)),
            v.c.mode == "simulated" if simulated else v.c.mode != "simulated",
            t.exams.c.ear.in_((*EARS, BOTH) if ear == BOTH else (ear, BOTH)),
            newest_state().in_(("open", "paused")),
        )
        .order_by(t.exams.c.id.desc())
    )
    left = connection.execute(query.limit(1)).scalar_one_or_none()
    if left is not None:
        whose = "this person" if ear == BOTH else f"the {ear} ear"
        raise StoreConflict(
            f"{{exam}} of {whose} is not finished", code="unfinished-exam", exam=left
        )


def check_reference(connection: Connection, exam_id: int, person_id: int, ear: str) -> None:
    reference = rows.row_of(connection, t.exams, exam_id, "exam")
    owner = _owner_of(connection, reference.visit_id)
    if owner != person_id or reference.ear not in (ear, BOTH):
        raise StoreError(
            f"{{exam}} cannot be the reference: it is of {{person_1}}'s {reference.ear} ear, and "
            f"the exam is of {{person_2}}'s {ear} ear",
            exam=exam_id,
            person_1=owner,
            person_2=person_id,
        )


def _owner_of(connection: Connection, visit_id: int) -> int:
    """Whose a visit is, also when the person's records were made one."""
    query = select(people.owner_of_visit()).where(t.visits.c.id == visit_id)
    owner: int = connection.execute(query).scalar_one()
    return owner


def _place(row: Row[Any]) -> tuple[int, date, bool]:
    """Of an exam with its visit's beginning, among others of a person."""
    day = local_day(row.measured_at or row.started_at, row.zone)
    return row.id, day, row.measured_at is None


class Exams(Part):
    """The store's calls about exams and baselines."""

    def open_exam(
        self,
        visit_id: int,
        *,
        author: str,
        ear: str,
        kind: str,
        design: Mapping[str, Any],
        engine_version: str,
        reference_exam_id: int | None = None,
        measured_at: datetime | None = None,
        source: str = "",
        delivery: Mapping[str, Any] | None = None,
        alone: bool = False,
    ) -> ExamRecord:
        """A new exam of one ear or of both, open; an audiogram has no trials and is done at once.

        One that is to be `alone` is refused while an ear of it has another unfinished one. What
        both ears are compared with is named in the delivery, each ear's under `references`.
        """
        author = checks.text(author, "author")
        values = exam_values(
            ear=ear,
            kind=kind,
            design=design,
            engine_version=engine_version,
            reference_exam_id=reference_exam_id,
            measured_at=measured_at,
            source=source,
            delivery=delivery,
        )
        with writing(self.engine) as connection:
            visit = rows.row_of(connection, t.visits, visit_id, "visit")
            opened = open_one(connection, visit, values, author, alone=alone)
            give_handles(connection, "exams", [opened.id])
            return opened

    def exam(self, exam_id: int) -> ExamRecord:
        """The exam with its newest state."""
        with reading(self.engine) as connection:
            return exam_of(connection, exam_id)

    def exams_of(self, exam_ids: Collection[int]) -> dict[int, ExamRecord]:
        """These exams by id; one that nobody knows is left out."""
        with reading(self.engine) as connection:
            return rows.found_by_id(
                connection, ExamRecord, exams_query(), t.exams.c.id, sorted(exam_ids)
            )

    def exams(
        self,
        person_id: int,
        *,
        kind: str | None = None,
        ear: str | None = None,
        state: str | None = None,
    ) -> list[ExamRecord]:
        """A person's exams as they followed each other, newest last: see `records.in_order`.

        With `ear`, those that tested it; of one of both ears, what it is to that ear.
        """
        person_id = checks.as_id(person_id, "person")
        when = (t.visits.c.started_at, t.visits.c.zone)
        query = exams_query().add_columns(*when).join(t.visits, t.visits.c.id == t.exams.c.visit_id)
        if kind is not None:
            query = query.where(t.exams.c.kind == checks.one_of(kind, EXAM_KINDS, "kind"))
        if ear is not None:
            query = query.where(t.exams.c.ear.in_((checks.one_of(ear, EARS, "ear"), BOTH)))
        if state is not None:
            query = query.where(newest_state() == checks.one_of(state, EXAM_STATES, "state"))
        with reading(self.engine) as connection:
            query = query.where(t.visits.c.person_id.in_(people.records_of(connection, person_id)))
            found = in_order(connection.execute(query).all(), _place)
            exams = [rows.to_record(ExamRecord, row) for _, row in found]
            if ear is not None:
                exams = [exam.of(ear) for exam in exams]
            return exams or people.nothing_of(connection, person_id)

    def set_exam_state(
        self,
        exam_id: int,
        state: str,
        *,
        author: str,
        reason: str = "",
        engine_version: str | None = None,
    ) -> ExamRecord:
        """A new state of an exam. Another engine's version than before is recorded with it."""
        author, reason = checks.text(author, "author"), checks.text(reason, "reason", blank=True)
        state = checks.one_of(state, EXAM_STATES, "state")
        with writing(self.engine) as connection:
            exam = exam_to_extend(connection, exam_id)
            if exam.kind == "audiogram":
                raise StoreConflict("{exam} is an audiogram: its state cannot change", exam=exam_id)
            before = connection.execute(
                select(t.exam_states.c.engine_version)
                .where(t.exam_states.c.exam_id == exam_id)
                .order_by(t.exam_states.c.id.desc())
                .limit(1)
            ).scalar_one()
            version = (
                before if engine_version is None else checks.text(engine_version, "engine_version")
            )
            add_state(connection, exam_id, state, version, author, reason, exam.last_number)
            details = {"state": state, "was": exam.state, "engine_version": version}
            if version != before:
                details["engine_version_was"] = before
            rows.add_audit(
                connection, author, f"exam {state}", f"exams:{exam_id}", reason, details,
                about=exam.person_id,
            )  # fmt: skip
            return exam_of(connection, exam_id)

    def set_baseline(
        self, person_id: int, ear: str, exam_id: int, *, author: str, reason: str
    ) -> Baseline:
        """From now on this ear is compared with this exam. Earlier baselines stay as history."""
        author, reason = checks.text(author, "author"), checks.text(reason, "reason")
        values = {
            "person_id": checks.as_id(person_id, "person"),
            "ear": checks.one_of(ear, EARS, "ear"),
            "exam_id": checks.as_id(exam_id, "exam"),
            "at": checks.now(),
            "author": author,
            "reason": reason,
        }
        with writing(self.engine) as connection:
            people.living_person(connection, person_id)
            check_reference(connection, exam_id, person_id, ear)
            new = rows.add_row(connection, t.baselines, values, author, reason, about=person_id)
            return rows.to_record(Baseline, new)

    def baselines(self, person_id: int) -> list[Baseline]:
        """All baselines that were ever chosen for a person's ears, oldest first."""
        b, person_id = t.baselines, checks.as_id(person_id, "person")
        with reading(self.engine) as connection:
            of_person = b.c.person_id.in_(people.records_of(connection, person_id))
            query = select(*texts.columns(b)).where(of_person)
            found = rows.to_records(Baseline, connection.execute(query.order_by(b.c.id)))
            return found or people.nothing_of(connection, person_id)

    def baseline(self, person_id: int, ear: str) -> Baseline | None:
        """The baseline chosen last for this ear, if any was."""
        checks.one_of(ear, EARS, "ear")
        return next((b for b in reversed(self.baselines(person_id)) if b.ear == ear), None)
