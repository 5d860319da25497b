"""Trials and presses of an exam, and all that a session is made from in one snapshot."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select

from earshift.engine.checks import as_heard, finite, whole
from earshift.engine.values import BOTH, EARS
from earshift.records import TRIAL_KINDS, ExamSnapshot, Press, TrialCounts, TrialRecord
from earshift.store import checks, exams, rows, texts
from earshift.store import tables as t
from earshift.store.database import reading, writing
from earshift.store.errors import NoSuchRow, StoreConflict, StoreError
from earshift.store.rows import Part


def live_trials(trials: Iterable[TrialRecord]) -> list[TrialRecord]:
    """Those that were not voided."""
    return [trial for trial in trials if trial.voided_at is None]


def trials_sha256(trials: Iterable[TrialRecord]) -> str:
    """Fingerprint of trials: all that was asked, played and answered, in order."""
    told = [
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
    return hashlib.sha256(json.dumps(told, separators=(",", ":")).encode()).hexdigest()


@cache
def trials_query() -> Select[Any]:
    voids = t.voids
    reason = texts.of_row(voids, "reason", voids.c.id).correlate(voids).scalar_subquery()
    return select(
        t.trials,
        voids.c.at.label("voided_at"),
        voids.c.author.label("voided_by"),
        reason.label("void_reason"),
    ).outerjoin(voids, voids.c.trial_id == t.trials.c.id)


def void(
    connection: Connection, trial_id: int, person_id: int, author: str, reason: str
) -> TrialRecord:
    values = {"trial_id": trial_id, "at": checks.now(), "author": author, "reason": reason}
    rows.insert_row(connection, t.voids, values)
    rows.add_audit(connection, author, "void", f"trials:{trial_id}", reason, about=person_id)
    row = connection.execute(trials_query().where(t.trials.c.id == trial_id)).one()
    return rows.to_record(TrialRecord, row)


def trials_of(
    connection: Connection, exam_ids: Sequence[int]
) -> dict[int, tuple[TrialRecord, ...]]:
    query = (
        trials_query()
        .where(t.trials.c.exam_id.in_(exam_ids))
        .order_by(t.trials.c.exam_id, t.trials.c.number)
    )
    return rows.grouped("exam_id", rows.to_records(TrialRecord, connection.execute(query)))


@cache
def _newest() -> Select[Any]:
    """What changes about an exam while it goes on, without the rows themselves."""
    states = select(func.count()).where(t.exam_states.c.exam_id == t.exams.c.id)
    states_of_exam = t.exam_states.alias("opened")
    before = select(func.count()).where(
        t.trials.c.exam_id == states_of_exam.c.exam_id, t.trials.c.at < states_of_exam.c.at
    )
    # By rows; of older ones that do not say it, by what the clock said.
    opened = (
        select(
            func.coalesce(
                states_of_exam.c.after_trial, before.correlate(states_of_exam).scalar_subquery()
            )
        )
        .where(states_of_exam.c.exam_id == t.exams.c.id, states_of_exam.c.state == "open")
        .order_by(states_of_exam.c.id.desc())
        .limit(1)
    )
    answered = select(func.count()).where(t.trials.c.exam_id == t.exams.c.id)
    pressed = select(func.count()).where(t.presses.c.exam_id == t.exams.c.id)
    erased = select(func.count()).where(
        t.erasures.c.person_id == t.visits.c.person_id, t.visits.c.id == t.exams.c.visit_id
    )
    why = texts.of_row(t.exam_states, "reason", exams.newest_state(t.exam_states.c.id))
    return select(
        t.exams.c.visit_id,
        exams.beside(states).label("states"),
        exams.beside(answered).label("trials"),
        exams.beside(exams.voids_of_exam()).label("void"),
        exams.beside(pressed).label("presses"),
        exams.beside(opened).label("opened_after"),
        exams.beside(why).label("reason"),
        exams.beside(erased).label("erased"),
    ).where(t.exams.c.id == bindparam("exam_id"))


@cache
def _of_visit() -> Select[Any]:
    of_visit = (t.exams.c.visit_id == bindparam("visit_id"), t.exams.c.kind != "audiogram")
    return select(t.exams.c.id).where(*of_visit).order_by(t.exams.c.id)


def snapshot_of(
    connection: Connection, exam_id: int, known: ExamSnapshot | None = None
) -> ExamSnapshot:
    exam_id = checks.as_id(exam_id, "exam")
    newest = connection.execute(_newest(), {"exam_id": exam_id}).first()
    if newest is None:
        raise NoSuchRow(f"there is no exam {exam_id}")
    version = newest.states + newest.trials + newest.void + newest.presses + newest.erased
    visit = connection.execute(_of_visit(), {"visit_id": newest.visit_id}).scalars()
    of_visit = tuple(visit)
    if known is not None and (known.exam.id, known.version) == (exam_id, version):
        return replace(known, of_visit=of_visit)
    exam = exams.exam_of(connection, exam_id)
    wanted = [exam_id] if exam.continues is None else [exam_id, exam.continues]
    found = trials_of(connection, wanted)
    return ExamSnapshot(
        exam=exam,
        trials=found.get(exam_id, ()),
        presses=newest.presses,
        carried=found.get(exam.continues or 0, ()),
        opened_after=newest.opened_after or 0,
        reason=newest.reason or "",
        of_visit=of_visit,
        version=version,
    )


class Trials(Part):
    """The store's calls about trials and presses."""

    def snapshot(self, exam_id: int, known: ExamSnapshot | None = None) -> ExamSnapshot:
        """All that a session of an exam is made from, read in one transaction.

        Its `version` says whether anything changed since another one of the same exam. With the
        one that is `known` already, what did not change is not read again.
        """
        with reading(self.engine) as connection:
            return snapshot_of(connection, exam_id, known)

    def append_trial(
        self,
        exam_id: int,
        *,
        author: str,
        kind: str,
        ear: str,
        frequency_hz: float,
        asked_db_hl: float | None,
        played_db_hl: float | None,
        heard: bool,
        reaction_ms: float | None = None,
        at: datetime | None = None,
        number: int | None = None,
        expected: TrialCounts | None = None,
        void_reason: str | None = None,
    ) -> TrialRecord:
        """One presentation and its answer, on the disk when this returns.

        Give the `number` you expect it to get, or all that you expect the exam to hold, and a
        second program that answers the same exam is found out instead of mixed in. A presentation
        that was broken off is stored with `void_reason`: it is void from the start.
        """
        author = checks.text(author, "author")
        values: dict[str, Any] = {
            "kind": checks.one_of(kind, TRIAL_KINDS, "kind"),
            "ear": checks.one_of(ear, EARS, "ear"),
            "frequency_hz": finite(frequency_hz, "frequency_hz"),
            "asked_db_hl": checks.maybe(asked_db_hl, "asked_db_hl"),
            "played_db_hl": checks.maybe(played_db_hl, "played_db_hl"),
            "heard": as_heard(heard),
            "reaction_ms": checks.maybe(reaction_ms, "reaction_ms"),
            "at": checks.now() if at is None else checks.moment(at, "at"),
            "author": author,
        }
        levels = (asked_db_hl, played_db_hl)
        if kind == "catch" and levels != (None, None):
            raise StoreError("a catch trial is silent and has no levels", got=levels)
        if kind != "catch" and None in levels:
            raise StoreError(f"a {kind} trial needs the levels asked and played", got=levels)
        if reaction_ms is not None and reaction_ms < 0:
            raise StoreError("reaction_ms must not be negative", got=reaction_ms)
        with writing(self.engine) as connection:
            exam = exams.exam_to_extend(connection, exam_id, expected)
            if exam.state != "open":
                raise StoreConflict(
                    f"{{exam}} is {exam.state}: reopen it before it takes answers", exam=exam_id
                )
            if exam.ear not in (ear, BOTH):
                raise StoreError(
                    f"{{exam}} is of the {exam.ear} ear and takes no trial of the {ear} ear",
                    exam=exam_id,
                )
            following = exam.last_number + 1
            if number is not None and number != following:
                raise StoreConflict(
                    f"trial {number} of {{exam}} cannot be stored: the next one is {following}. "
                    "Another program may be answering this exam; load it again",
                    exam=exam_id,
                )
            values |= {"exam_id": exam_id, "number": following}
            new = rows.add_only(connection, t.trials, values, author)
            if void_reason is not None:
                reason = checks.text(void_reason, "reason")
                return void(connection, new, exam.person_id, author, reason)
        return TrialRecord(id=new, **values)

    def void_trial(
        self, trial_id: int, *, author: str, reason: str, expected: TrialCounts | None = None
    ) -> TrialRecord:
        """Take a trial back: it stays, flagged, and counts for nothing."""
        author, reason = checks.text(author, "author"), checks.text(reason, "reason")
        with writing(self.engine) as connection:
            trial = rows.row_of(connection, t.trials, trial_id, "trial")
            exam = exams.exam_to_extend(connection, trial.exam_id, expected)
            if connection.execute(
                select(t.voids.c.id).where(t.voids.c.trial_id == trial_id)
            ).first():
                raise StoreConflict("{trial} is already void", trial=trial_id)
            return void(connection, trial_id, exam.person_id, author, reason)

    def trials(self, exam_id: int) -> tuple[TrialRecord, ...]:
        """All trials of an exam in order, voided ones flagged."""
        with reading(self.engine) as connection:
            rows.row_of(connection, t.exams, exam_id, "exam")
            return trials_of(connection, [exam_id]).get(exam_id, ())

    def add_press(
        self, exam_id: int, *, author: str, number: int, after_onset_ms: float | None = None
    ) -> Press:
        """A press of the button when nothing was to be heard."""
        author = checks.text(author, "author")
        values = {
            "exam_id": exam_id,
            "number": whole(number, "number", 1),
            "after_onset_ms": checks.maybe(after_onset_ms, "after_onset_ms"),
            "at": checks.now(),
            "author": author,
        }
        with writing(self.engine) as connection:
            exams.exam_to_extend(connection, exam_id)
            new = rows.add_row(connection, t.presses, values, author)
            return rows.to_record(Press, new)

    def presses(self, exam_id: int) -> list[Press]:
        """All presses of an exam outside its response windows, in order."""
        query = select(t.presses).where(t.presses.c.exam_id == checks.as_id(exam_id, "exam"))
        with reading(self.engine) as connection:
            return rows.to_records(Press, connection.execute(query.order_by(t.presses.c.id)))
