"""The store: people, devices, visits, exams, trials, results, notes and who did what.

Rows are only added: a correction, a void and a change of state are rows of their own, with author,
time and reason, and triggers in the database refuse anything else. When a call that writes returns,
what it wrote is on the disk, with its audit row. One SQLite file, or PostgreSQL by its address.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Self

from sqlalchemy import delete, func, insert, select
from sqlalchemy.engine import URL

from earshift.engine.checks import as_heard, finite, whole
from earshift.engine.values import EARS, TRANSDUCERS
from earshift.records import (
    EXAM_KINDS,
    EXAM_STATES,
    TRIAL_KINDS,
    VISIT_MODES,
    AuditEntry,
    Baseline,
    Calibration,
    Device,
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
from earshift.store import rows, upkeep
from earshift.store import tables as t
from earshift.store.database import (
    StoreError,
    address,
    describe,
    open_database,
    reading,
    writing,
)

__all__ = ["Imported", "Store", "StoreError"]

CALIBRATION_KINDS = ("acoustic", "exhaustive", "biological")
BATCH = 200  # visits held at once when all are read


@dataclass(frozen=True)
class Imported:
    """What an import did: exams now stored, and those that were there before, word for word."""

    added: tuple[ExamRecord, ...]
    known: tuple[ExamRecord, ...]


class Store:
    """One database of records. A context manager; calls may come from any thread.

    >>> with Store.open("clinic.db") as store:
    ...     person = store.add_person(author="mh", code="4711")
    """

    def __init__(self, place: Path | URL) -> None:
        self._place = place
        self.engine = open_database(place)

    @classmethod
    def open(cls, where: str | Path | None = None) -> "Store":
        """The store in this file or at this postgresql:// address; an empty one gets its tables.

        Without `where` it is what EARSHIFT_DB says, else a file in the user's data folder.
        """
        return cls(address(where))

    @staticmethod
    def upgrade(where: str | Path | None = None) -> Path | None:
        """Bring an older store to this version's schema. The backup made before, if one was."""
        return upkeep.upgrade(address(where))

    @staticmethod
    def restore(backup: str | Path, where: str | Path | None = None) -> None:
        """Make a store from a backup, where none is yet."""
        upkeep.restore(Path(backup), address(where))

    def backup(self, path: str | Path) -> None:
        """Copy the whole store into a new file, while others may go on writing."""
        upkeep.backup(self._place, Path(path))

    def check(self) -> list[str]:
        """What is wrong with the store, in words; nothing when all is well."""
        return upkeep.check(self.engine)

    def describe(self) -> str:
        """Where the store is, without a password."""
        return describe(self._place)

    def __repr__(self) -> str:
        return f"Store({self.describe()})"

    def close(self) -> None:
        self.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # People

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
        identity = rows.as_identity(code=code, name=name, birth_date=birth_date, sex=sex)
        author = rows.text(author, "author")
        with writing(self.engine) as connection:
            return rows.add_person(connection, identity, author)

    def person(self, person_id: int) -> Person:
        """The person as known now."""
        with reading(self.engine) as connection:
            return rows.person_of(connection, person_id)

    def people(self, *, after: int = 0, limit: int = 50, search: str | None = None) -> list[Person]:
        """A page of people by id, those after the id given; `search` is part of a code or name."""
        query = rows.people_query().where(t.people.c.id > whole(after, "after", 0))
        if search is not None:
            part = rows.text(search, "search").casefold()
            query = query.where(t.identities.c.found_by.contains(part, autoescape=True))
        query = query.order_by(t.people.c.id).limit(whole(limit, "limit", 1))
        with reading(self.engine) as connection:
            return rows.to_records(Person, connection.execute(query))

    def person_by_code(self, code: str) -> Person | None:
        """The person who has this code now, if anybody has."""
        with reading(self.engine) as connection:
            return rows.person_by_code(connection, rows.text(code, "code"))

    def correct_person(self, person_id: int, *, author: str, reason: str, **changes: Any) -> Person:
        """Correct code, name, birth_date or sex. What was known before stays as history.

        The reason is kept with the identity and goes with it, as it may name somebody.
        """
        unknown = changes.keys() - set(rows.IDENTITY)
        if unknown or not changes:
            raise StoreError(
                f"a correction changes some of {', '.join(rows.IDENTITY)}, "
                f"got {', '.join(changes) or 'nothing'}"
            )
        author, reason = rows.text(author, "author"), rows.text(reason, "reason")
        with writing(self.engine) as connection:
            now = rows.living_person(connection, person_id)
            identity = rows.as_identity(
                **{name: getattr(now, name) for name in rows.IDENTITY} | changes
            )
            return rows.correct_person(connection, now, identity, author, reason)

    def erase_person(
        self, person_id: int, *, author: str, reason: str, delete_trials: bool = False
    ) -> Person:
        """Delete identity, its history and all notes; with `delete_trials` the visits as well.

        A tombstone stays. Free text elsewhere (reasons, sources, checklists) belongs to the visits
        and goes only with them. Backups made before still hold everything.
        """
        author, reason = rows.text(author, "author"), rows.text(reason, "reason")
        with writing(self.engine) as connection:
            rows.living_person(connection, person_id)
            # The tombstone is the permit that the triggers ask for, and it writes the audit row.
            connection.execute(
                insert(t.erasures).values(
                    person_id=person_id,
                    at=rows.now(),
                    author=author,
                    reason=reason,
                    trials_deleted=bool(delete_trials),
                )
            )
            for table in (t.notes, t.identities):
                connection.execute(delete(table).where(table.c.person_id == person_id))
            if delete_trials:
                rows.delete_visits(connection, person_id)
            erased = rows.person_of(connection, person_id)
        upkeep.forget(self.engine)
        return erased

    # Devices

    def add_device(
        self,
        *,
        author: str,
        name: str,
        transducer: str = "unknown",
        model: str = "",
        serial: str = "",
        fingerprint: Mapping[str, Any] | None = None,
    ) -> Device:
        """A new audiometer or sound card with its transducer."""
        values = {
            "name": rows.text(name, "name"),
            "transducer": rows.one_of(transducer, TRANSDUCERS, "transducer"),
            "model": rows.text(model, "model", blank=True),
            "serial": rows.text(serial, "serial", blank=True),
            "fingerprint": rows.plain(fingerprint or {}, "fingerprint"),
        }
        with writing(self.engine) as connection:
            return rows.to_record(
                Device, rows.add_row(connection, t.devices, values, rows.text(author, "author"))
            )

    def device(self, device_id: int) -> Device:
        with reading(self.engine) as connection:
            return rows.to_record(Device, rows.row_of(connection, t.devices, device_id, "device"))

    def devices(self) -> list[Device]:
        with reading(self.engine) as connection:
            found = connection.execute(select(t.devices).order_by(t.devices.c.id))
            return rows.to_records(Device, found)

    def add_calibration(
        self,
        device_id: int,
        *,
        author: str,
        done_on: date,
        due_on: date,
        laboratory: str,
        coupler: str,
        kind: str = "acoustic",
        table: Mapping[str, Any] | None = None,
    ) -> Calibration:
        """A new calibration of a device. A correction is another one of the same day."""
        done_on, due_on = rows.day(done_on, "done_on"), rows.day(due_on, "due_on")
        if due_on < done_on:
            raise StoreError(f"a calibration of {done_on} cannot be due before, on {due_on}")
        values = {
            "done_on": done_on,
            "due_on": due_on,
            "laboratory": rows.text(laboratory, "laboratory"),
            "coupler": rows.text(coupler, "coupler"),
            "kind": rows.one_of(kind, CALIBRATION_KINDS, "kind"),
            "table": rows.plain(table or {}, "table"),
        }
        author = rows.text(author, "author")
        with writing(self.engine) as connection:
            values["device_id"] = rows.row_of(connection, t.devices, device_id, "device").id
            return rows.to_record(
                Calibration, rows.add_row(connection, t.calibrations, values, author)
            )

    def calibrations(self, device_id: int) -> list[Calibration]:
        """All calibrations of a device, oldest first."""
        with reading(self.engine) as connection:
            rows.row_of(connection, t.devices, device_id, "device")
            return rows.calibrations_of(connection, [device_id])

    def calibration_on(self, device_id: int, day: date) -> Calibration | None:
        """The calibration in force that day, expired or not: `due_on` says.

        A biological check counts only for a device that has never been to a laboratory.
        """
        return rows.in_force(self.calibrations(device_id), rows.day(day, "day"))

    # Visits

    def open_visit(
        self,
        person_id: int,
        *,
        author: str,
        zone: str,
        mode: str,
        device_id: int | None = None,
        checklist: Mapping[str, Any] | None = None,
        started_at: datetime | None = None,
    ) -> Visit:
        """A new visit of a person, now unless `started_at` says when."""
        author = rows.text(author, "author")
        values = {
            "started_at": rows.now()
            if started_at is None
            else rows.moment(started_at, "started_at"),
            "zone": rows.zone_name(zone),
            "mode": rows.one_of(mode, VISIT_MODES, "mode"),
            "author": author,
            "checklist": rows.plain(checklist or {}, "checklist"),
            "device_id": device_id,
        }
        with writing(self.engine) as connection:
            if device_id is not None:
                rows.row_of(connection, t.devices, device_id, "device")
            values["person_id"] = rows.living_person(connection, person_id).id
            return rows.to_record(Visit, rows.add_row(connection, t.visits, values, author))

    def visit(self, visit_id: int) -> Visit:
        with reading(self.engine) as connection:
            return rows.to_record(Visit, rows.row_of(connection, t.visits, visit_id, "visit"))

    def visits(self, person_id: int) -> list[Visit]:
        """All visits of a person, in the order they began."""
        query = (
            select(t.visits)
            .where(t.visits.c.person_id == rows.as_id(person_id, "person"))
            .order_by(t.visits.c.started_at, t.visits.c.id)
        )
        with reading(self.engine) as connection:
            found = rows.to_records(Visit, connection.execute(query))
            return found or rows.nothing_of(connection, person_id)

    def count_visits(self) -> int:
        with reading(self.engine) as connection:
            return connection.execute(select(func.count()).select_from(t.visits)).scalar_one()

    # Exams

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
    ) -> ExamRecord:
        """A new exam of one ear, open; an audiogram has no trials and is done at once."""
        author = rows.text(author, "author")
        values = {
            "ear": rows.one_of(ear, EARS, "ear"),
            "kind": rows.one_of(kind, EXAM_KINDS, "kind"),
            "design": rows.plain(design, "design"),
            "engine_version": rows.text(engine_version, "engine_version"),
            "reference_exam_id": reference_exam_id,
            "measured_at": None if measured_at is None else rows.moment(measured_at, "measured_at"),
            "source": rows.text(source, "source", blank=True),
            "delivery": rows.plain(delivery or {}, "delivery"),
        }
        with writing(self.engine) as connection:
            visit = rows.row_of(connection, t.visits, visit_id, "visit")
            rows.living_person(connection, visit.person_id)
            values["visit_id"] = visit.id
            if reference_exam_id is not None:
                rows.check_reference(connection, reference_exam_id, visit.person_id, ear)
            return rows.open_exam(connection, values, author)

    def exam(self, exam_id: int) -> ExamRecord:
        """The exam with its newest state."""
        with reading(self.engine) as connection:
            return rows.exam_of(connection, exam_id)

    def opened_at(self, exam_id: int) -> datetime:
        """When an exam was opened last: when it was begun, or gone on with after a break."""
        states = t.exam_states
        query = select(func.max(states.c.at)).where(
            states.c.exam_id == rows.as_id(exam_id, "exam"), states.c.state == "open"
        )
        with reading(self.engine) as connection:
            found: datetime | None = connection.execute(query).scalar_one()
        if found is None:
            raise StoreError(f"exam {exam_id} was never open")
        return found

    def exams(
        self,
        person_id: int,
        *,
        kind: str | None = None,
        ear: str | None = None,
        state: str | None = None,
    ) -> list[ExamRecord]:
        """A person's exams by the time they were measured, newest last."""
        query = (
            rows.exams_query()
            .join(t.visits, t.visits.c.id == t.exams.c.visit_id)
            .where(t.visits.c.person_id == rows.as_id(person_id, "person"))
            .order_by(func.coalesce(t.exams.c.measured_at, t.visits.c.started_at), t.exams.c.id)
        )
        if kind is not None:
            query = query.where(t.exams.c.kind == rows.one_of(kind, EXAM_KINDS, "kind"))
        if ear is not None:
            query = query.where(t.exams.c.ear == rows.one_of(ear, EARS, "ear"))
        if state is not None:
            query = query.where(rows.newest_state() == rows.one_of(state, EXAM_STATES, "state"))
        with reading(self.engine) as connection:
            found = rows.to_records(ExamRecord, connection.execute(query))
            return found or rows.nothing_of(connection, person_id)

    def unfinished_exams(self, *, since: datetime, limit: int = 100) -> list[ExamRecord]:
        """Real exams whose newest state, since then, is open or paused; newest last."""
        with reading(self.engine) as connection:
            query = rows.exams_in_state(("open", "paused"), rows.moment(since, "since"))
            found = rows.to_records(ExamRecord, connection.execute(query.limit(limit)))
        return found[::-1]

    def screens_done_since(self, since: datetime, *, limit: int = 500) -> list[ExamRecord]:
        """Real screens that were finished since then; newest last."""
        with reading(self.engine) as connection:
            query = rows.exams_in_state(("done",), rows.moment(since, "since"))
            query = query.where(t.exams.c.kind == "screen").limit(limit)
            found = rows.to_records(ExamRecord, connection.execute(query))
        return found[::-1]

    def people_tested_before(
        self, before: datetime, *, limit: int = 100
    ) -> list[tuple[Person, datetime]]:
        """People whose last exam or audiogram was before then, with its time; longest ago first."""
        with reading(self.engine) as connection:
            last = connection.execute(
                rows.last_tests()
                .having(rows.last_tested() < rows.moment(before, "before"))
                .order_by(rows.last_tested())
                .limit(limit)
            ).all()
            people = {row.person_id: rows.person_of(connection, row.person_id) for row in last}
        return [(people[row.person_id], row.last) for row in last]

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
        author, reason = rows.text(author, "author"), rows.text(reason, "reason", blank=True)
        state = rows.one_of(state, EXAM_STATES, "state")
        with writing(self.engine) as connection:
            exam = rows.exam_to_extend(connection, exam_id)
            if exam.kind == "audiogram":
                raise StoreError(f"exam {exam_id} is an audiogram: it is done and stays so")
            before = connection.execute(
                select(t.exam_states.c.engine_version)
                .where(t.exam_states.c.exam_id == exam_id)
                .order_by(t.exam_states.c.id.desc())
                .limit(1)
            ).scalar_one()
            version = (
                before if engine_version is None else rows.text(engine_version, "engine_version")
            )
            rows.add_state(connection, exam_id, state, version, author, reason)
            details = {"state": state, "was": exam.state, "engine_version": version}
            if version != before:
                details["engine_version_was"] = before
            rows.add_audit(connection, author, f"exam {state}", f"exams:{exam_id}", reason, details)
            return rows.exam_of(connection, exam_id)

    # Trials

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
        void_reason: str | None = None,
    ) -> TrialRecord:
        """One presentation and its answer, on the disk when this returns.

        Give the `number` you expect it to get, and a second program that answers the same exam is
        found out instead of mixed in. A presentation that was broken off is stored with
        `void_reason`: it is void from the start.
        """
        author = rows.text(author, "author")
        values: dict[str, Any] = {
            "kind": rows.one_of(kind, TRIAL_KINDS, "kind"),
            "ear": rows.one_of(ear, EARS, "ear"),
            "frequency_hz": finite(frequency_hz, "frequency_hz"),
            "asked_db_hl": rows.maybe(asked_db_hl, "asked_db_hl"),
            "played_db_hl": rows.maybe(played_db_hl, "played_db_hl"),
            "heard": as_heard(heard),
            "reaction_ms": rows.maybe(reaction_ms, "reaction_ms"),
            "at": rows.now() if at is None else rows.moment(at, "at"),
            "author": author,
        }
        levels = (asked_db_hl, played_db_hl)
        if kind == "catch" and levels != (None, None):
            raise StoreError(f"a catch trial is silent and has no levels, got {levels}")
        if kind != "catch" and None in levels:
            raise StoreError(f"a {kind} trial needs the levels asked and played, got {levels}")
        if reaction_ms is not None and reaction_ms < 0:
            raise StoreError(f"reaction_ms must not be negative, got {reaction_ms!r}")
        with writing(self.engine) as connection:
            exam = rows.exam_to_extend(connection, exam_id)
            if exam.state != "open":
                raise StoreError(
                    f"exam {exam_id} is {exam.state}: set it open before it takes answers"
                )
            if exam.ear != ear:
                raise StoreError(f"exam {exam_id} is of the {exam.ear} ear, got a {ear} trial")
            following = exam.last_number + 1
            if number is not None and number != following:
                raise StoreError(
                    f"trial {number} of exam {exam_id} cannot be stored: the next one is "
                    f"{following}. Another program may be answering this exam; load it again"
                )
            values |= {"exam_id": exam_id, "number": following}
            new = rows.add_only(connection, t.trials, values, author)
            if void_reason is not None:
                return rows.void(connection, new, author, rows.text(void_reason, "reason"))
        return TrialRecord(id=new, **values)

    def void_trial(self, trial_id: int, *, author: str, reason: str) -> TrialRecord:
        """Take a trial back: it stays, flagged, and counts for nothing."""
        author, reason = rows.text(author, "author"), rows.text(reason, "reason")
        with writing(self.engine) as connection:
            trial = rows.row_of(connection, t.trials, trial_id, "trial")
            rows.exam_to_extend(connection, trial.exam_id)
            if connection.execute(
                select(t.voids.c.id).where(t.voids.c.trial_id == trial_id)
            ).first():
                raise StoreError(f"trial {trial_id} is void already")
            return rows.void(connection, trial_id, author, reason)

    def trials(self, exam_id: int) -> tuple[TrialRecord, ...]:
        """All trials of an exam in order, voided ones flagged."""
        with reading(self.engine) as connection:
            rows.row_of(connection, t.exams, exam_id, "exam")
            return rows.trials_of(connection, [exam_id]).get(exam_id, ())

    def add_press(
        self, exam_id: int, *, author: str, number: int, after_onset_ms: float | None = None
    ) -> Press:
        """A press of the button when nothing was to be heard."""
        author = rows.text(author, "author")
        values = {
            "exam_id": exam_id,
            "number": whole(number, "number", 1),
            "after_onset_ms": rows.maybe(after_onset_ms, "after_onset_ms"),
            "at": rows.now(),
            "author": author,
        }
        with writing(self.engine) as connection:
            rows.exam_to_extend(connection, exam_id)
            new = rows.add_row(connection, t.presses, values, author)
            return rows.to_record(Press, new)

    def presses(self, exam_id: int) -> list[Press]:
        """All presses of an exam outside its response windows, in order."""
        query = select(t.presses).where(t.presses.c.exam_id == rows.as_id(exam_id, "exam"))
        with reading(self.engine) as connection:
            return rows.to_records(Press, connection.execute(query.order_by(t.presses.c.id)))

    # Baselines

    def set_baseline(
        self, person_id: int, ear: str, exam_id: int, *, author: str, reason: str
    ) -> Baseline:
        """From now on this ear is compared with this exam. Earlier baselines stay as history."""
        author, reason = rows.text(author, "author"), rows.text(reason, "reason")
        values = {
            "person_id": rows.as_id(person_id, "person"),
            "ear": rows.one_of(ear, EARS, "ear"),
            "exam_id": rows.as_id(exam_id, "exam"),
            "at": rows.now(),
            "author": author,
            "reason": reason,
        }
        with writing(self.engine) as connection:
            rows.living_person(connection, person_id)
            rows.check_reference(connection, exam_id, person_id, ear)
            new = rows.add_row(connection, t.baselines, values, author, reason)
            return rows.to_record(Baseline, new)

    def baselines(self, person_id: int) -> list[Baseline]:
        """All baselines that were ever chosen for a person's ears, oldest first."""
        query = select(t.baselines).where(
            t.baselines.c.person_id == rows.as_id(person_id, "person")
        )
        with reading(self.engine) as connection:
            found = rows.to_records(Baseline, connection.execute(query.order_by(t.baselines.c.id)))
            return found or rows.nothing_of(connection, person_id)

    def baseline(self, person_id: int, ear: str) -> Baseline | None:
        """The baseline chosen last for this ear, if any was."""
        rows.one_of(ear, EARS, "ear")
        return next((b for b in reversed(self.baselines(person_id)) if b.ear == ear), None)

    # Ids for addresses

    def handles(self, kind: str, row_ids: Iterable[int]) -> dict[int, str]:
        """Random ids for rows of `kind` (people, visits, exams, devices), the same ever after."""
        wanted = list(dict.fromkeys(row_ids))
        with reading(self.engine) as connection:
            found = rows.handles_of(connection, kind, wanted)
        missing = [row_id for row_id in wanted if row_id not in found]
        if missing:
            with writing(self.engine) as connection:
                rows.add_handles(connection, kind, missing)
                found |= rows.handles_of(connection, kind, missing)
        return found

    def handle(self, kind: str, row_id: int) -> str:
        return self.handles(kind, [row_id])[row_id]

    def behind(self, kind: str, handle: str) -> int:
        """The id of the row with this handle; a StoreError if there is none."""
        query = select(t.handles.c.row_id).where(
            t.handles.c.kind == kind, t.handles.c.handle == rows.text(handle, "id")
        )
        with reading(self.engine) as connection:
            found = connection.execute(query).scalar_one_or_none()
        if found is None:
            raise StoreError(f"there is no such row of {kind}")
        return int(found)

    # Results

    def add_result(
        self,
        exam_id: int,
        *,
        author: str,
        shown: Mapping[str, Any],
        settings: Mapping[str, Any],
        engine_version: str,
        closes_as: str | None = None,
    ) -> ResultRecord:
        """What was shown at the end of an exam, with a hash of the trials it came from.

        With `closes_as` the exam gets that state at once; one that is closed already is refused.
        """
        author = rows.text(author, "author")
        values = {
            "at": rows.now(),
            "author": author,
            "shown": rows.plain(shown, "shown"),
            "settings": rows.plain(settings, "settings"),
            "engine_version": rows.text(engine_version, "engine_version"),
            "exam_id": exam_id,
        }
        if closes_as is not None:
            rows.one_of(closes_as, ("done", "abandoned"), "closes_as")
        with writing(self.engine) as connection:
            exam = rows.exam_to_extend(connection, exam_id)
            if closes_as is not None:
                if exam.state in ("done", "abandoned"):
                    raise StoreError(f"exam {exam_id} is {exam.state} already")
                rows.add_state(connection, exam_id, closes_as, engine_version, author, "finished")
                rows.add_audit(
                    connection, author, f"exam {closes_as}", f"exams:{exam_id}", "finished",
                    {"state": closes_as, "was": exam.state},
                )  # fmt: skip
            live = rows.live_trials(rows.trials_of(connection, [exam_id]).get(exam_id, ()))
            values["trial_numbers"] = [trial.number for trial in live]
            values["trials_sha256"] = rows.trials_sha256(live)
            return rows.to_record(ResultRecord, rows.add_row(connection, t.results, values, author))

    def results(self, exam_id: int) -> list[ResultRecord]:
        """All results of an exam as they were shown, newest last."""
        with reading(self.engine) as connection:
            rows.row_of(connection, t.exams, exam_id, "exam")
            return list(rows.results_of(connection, [exam_id]).get(exam_id, ()))

    # Notes and audit

    def add_note(
        self,
        person_id: int,
        *,
        author: str,
        text: str,
        visit_id: int | None = None,
        exam_id: int | None = None,
    ) -> Note:
        """Free text about a person, and about one visit or exam of theirs if given."""
        author = rows.text(author, "author")
        values = {
            "person_id": person_id,
            "visit_id": visit_id,
            "exam_id": exam_id,
            "at": rows.now(),
            "author": author,
            "text": rows.text(text, "text"),
        }
        with writing(self.engine) as connection:
            rows.living_person(connection, person_id)
            if exam_id is not None:
                exam = rows.row_of(connection, t.exams, exam_id, "exam")
                if visit_id not in (None, exam.visit_id):
                    raise StoreError(f"exam {exam_id} is not of visit {visit_id}")
                visit_id = values["visit_id"] = exam.visit_id
            if visit_id is not None:
                visit = rows.row_of(connection, t.visits, visit_id, "visit")
                if visit.person_id != person_id:
                    raise StoreError(f"visit {visit_id} is not of person {person_id}")
            return rows.to_record(Note, rows.add_row(connection, t.notes, values, author))

    def notes(self, person_id: int) -> list[Note]:
        """All notes about a person, oldest first."""
        query = (
            select(t.notes)
            .where(t.notes.c.person_id == rows.as_id(person_id, "person"))
            .order_by(t.notes.c.id)
        )
        with reading(self.engine) as connection:
            found = rows.to_records(Note, connection.execute(query))
            return found or rows.nothing_of(connection, person_id)

    def add_audit(
        self, *, author: str, action: str, subject: str, details: Mapping[str, Any] | None = None
    ) -> None:
        """A line in the audit for what changes no row: who looked at what, who logged in."""
        with writing(self.engine) as connection:
            rows.add_audit(connection, rows.text(author, "author"), action, subject, "", details)

    def audit(
        self, *, after: int = 0, limit: int = 100, subject: str | None = None
    ) -> list[AuditEntry]:
        """A page of the audit, oldest first; `subject` such as "exams:12" picks one row's."""
        query = select(t.audit).where(t.audit.c.id > whole(after, "after", 0))
        if subject is not None:
            query = query.where(t.audit.c.subject == subject)
        query = query.order_by(t.audit.c.id).limit(whole(limit, "limit", 1))
        with reading(self.engine) as connection:
            return rows.to_records(AuditEntry, connection.execute(query))

    # Whole visits

    def visit_bundle(self, visit_id: int) -> VisitBundle:
        """A visit with all that belongs to it, of one moment."""
        with reading(self.engine) as connection:
            visit = rows.to_record(Visit, rows.row_of(connection, t.visits, visit_id, "visit"))
            return rows.bundles_of(connection, [visit])[0]

    def iter_visit_bundles(self, person_id: int | None = None) -> Iterator[VisitBundle]:
        """All visits, or one person's, by id: all of one moment, a few in memory at a time."""
        query = select(t.visits).order_by(t.visits.c.id).limit(BATCH)
        with reading(self.engine) as connection:
            if person_id is not None:
                rows.person_of(connection, person_id)
                query = query.where(t.visits.c.person_id == rows.as_id(person_id, "person"))
            last = 0
            while page := connection.execute(query.where(t.visits.c.id > last)).all():
                visits = [rows.to_record(Visit, row) for row in page]
                yield from rows.bundles_of(connection, visits)
                last = visits[-1].id

    # Imports

    def import_audiograms(
        self, items: Iterable[ImportedAudiogram], *, author: str, zone: str
    ) -> Imported:
        """Store audiograms from elsewhere: all of them, or none when one is refused.

        A person is found by code or is new. One who is known with another birth date, sex or name
        is refused: that would be somebody else's audiogram. What is stored already is left alone.
        """
        author, zone = rows.text(author, "author"), rows.zone_name(zone)
        added: list[ExamRecord] = []
        known: list[ExamRecord] = []
        visits: dict[tuple[int, datetime | None], int] = {}
        with writing(self.engine) as connection:
            for place, item in enumerate(items, start=1):
                if not isinstance(item, ImportedAudiogram):
                    raise StoreError(f"item {place} is not an ImportedAudiogram, got {item!r}")
                try:
                    exam, is_new = rows.import_one(connection, item, visits, author, zone)
                except ValueError as error:
                    raise StoreError(f"audiogram {place} (code {item.code!r}): {error}") from None
                (added if is_new else known).append(exam)
        return Imported(tuple(added), tuple(known))
