"""Visits: opening them, notes, and whole visits for reports and exports."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import Connection, Select, func, select

from earshift.acts import RoomNoise
from earshift.engine.values import BOTH
from earshift.records import (
    VISIT_MODES,
    Device,
    ExamBundle,
    ExamRecord,
    Note,
    Person,
    Visit,
    VisitBundle,
)
from earshift.store import checks, devices, exams, people, results, rows, texts, trials
from earshift.store import tables as t
from earshift.store.database import reading, writing
from earshift.store.errors import NoSuchRow, StoreError
from earshift.store.handles import give_handles
from earshift.store.rows import Part

BATCH = 200  # visits held at once when all are read


def bundles_of(connection: Connection, visits: Sequence[Visit]) -> list[VisitBundle]:
    """Visits with all that belongs to them, in a handful of queries however many they are."""
    visit_ids = [visit.id for visit in visits]
    owners = rows.found_by_id(
        connection, Person, people.people_query(), t.people.c.id, {v.person_id for v in visits}
    )
    device_ids = {v.device_id for v in visits if v.device_id is not None}
    used = rows.found_by_id(connection, Device, select(t.devices), t.devices.c.id, device_ids)
    calibrations = rows.grouped("device_id", devices.calibrations_of(connection, device_ids))
    in_order = exams.exams_query().where(t.exams.c.visit_id.in_(visit_ids)).order_by(t.exams.c.id)
    given = rows.to_records(ExamRecord, connection.execute(in_order))
    reference_ids = {number for exam in given for number in exam.references.values()}
    references = rows.found_by_id(
        connection, ExamRecord, exams.exams_query(), t.exams.c.id, reference_ids
    )
    exam_ids = [exam.id for exam in given]
    answered = trials.trials_of(connection, exam_ids)
    stored = results.results_of(connection, exam_ids)
    written = connection.execute(
        select(*texts.columns(t.notes))
        .where(t.notes.c.visit_id.in_(visit_ids))
        .order_by(t.notes.c.id)
    )
    notes = rows.grouped("visit_id", rows.to_records(Note, written))
    of_visit = rows.grouped("visit_id", given)
    return [
        VisitBundle(
            person=owners[visit.person_id],
            visit=visit,
            exams=tuple(
                ExamBundle(
                    exam=exam,
                    trials=answered.get(exam.id, ()),
                    results=stored.get(exam.id, ()),
                    reference=references.get(exam.reference_exam_id or 0),
                    references=tuple(
                        references[number]
                        for number in sorted(set(exam.references.values()))
                        if exam.ear == BOTH and number in references
                    ),
                )
                for exam in of_visit.get(visit.id, ())
            ),
            device=used.get(visit.device_id or 0),
            calibration=devices.in_force(
                calibrations.get(visit.device_id or 0, ()), local_day(visit)
            ),
            notes=notes.get(visit.id, ()),
            room_noise=_noise_of(connection, visit),
        )
        for visit in visits
    ]


def _noise_of(connection: Connection, visit: Visit) -> RoomNoise | None:
    """The newest measurement by the day of a visit: of its device's room, else of the site."""
    if visit.mode in ("simulated", "imported"):
        return None
    n = t.room_noise
    newest = (
        select(n)
        .where(n.c.measured_on <= local_day(visit))
        .order_by(n.c.measured_on.desc(), n.c.id.desc())
        .limit(1)
    )
    own = [] if visit.device_id is None else [n.c.device_id == visit.device_id]
    for where in (*own, n.c.device_id.is_(None)):
        found = connection.execute(newest.where(where)).first()
        if found is not None:
            return rows.to_record(RoomNoise, found)
    return None


@cache
def visits_query() -> Select[Any]:
    """Visits, each as the person's whose records were made one."""
    others = [column for column in texts.columns(t.visits) if column.name != "person_id"]
    return select(*others, people.owner_of_visit().label("person_id"))


def visit_of(connection: Connection, visit_id: int) -> Visit:
    query = visits_query().where(t.visits.c.id == checks.as_id(visit_id, "visit"))
    found = connection.execute(query).first()
    if found is None:
        raise NoSuchRow("there is no {row}", row=f"visit {visit_id}")
    return rows.to_record(Visit, found)


def local_day(visit: Visit) -> date:
    return visit.started_at.astimezone(ZoneInfo(visit.zone)).date()


class Visits(Part):
    """The store's calls about visits and notes."""

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
        visit, _ = self.open_test(
            person_id,
            (),
            author=author,
            zone=zone,
            mode=mode,
            device_id=device_id,
            checklist=checklist,
            started_at=started_at,
        )
        return visit

    def open_test(
        self,
        person_id: int,
        planned: Sequence[Mapping[str, Any]],
        *,
        author: str,
        zone: str,
        mode: str,
        device_id: int | None = None,
        checklist: Mapping[str, Any] | None = None,
        started_at: datetime | None = None,
    ) -> tuple[Visit, list[ExamRecord]]:
        """A new visit with its exams, each as `open_exam` takes it: all of them, or nothing.

        Refused while an ear has another unfinished exam.
        """
        author = checks.text(author, "author")
        values = {
            "started_at": checks.now()
            if started_at is None
            else checks.moment(started_at, "started_at"),
            "zone": checks.zone_name(zone),
            "mode": checks.one_of(mode, VISIT_MODES, "mode"),
            "author": author,
            "checklist": checks.plain(checklist or {}, "checklist"),
            "device_id": device_id,
        }
        wanted = [exams.exam_values(**one) for one in planned]
        with writing(self.engine) as connection:
            if device_id is not None:
                rows.row_of(connection, t.devices, device_id, "device")
            values["person_id"] = people.living_person(connection, person_id).id
            row = rows.add_row(connection, t.visits, values, author)
            opened = [
                exams.open_one(connection, row, one, author, alone=one["kind"] != "audiogram")
                for one in wanted
            ]
            give_handles(connection, "visits", [row.id])
            give_handles(connection, "exams", [one.id for one in opened])
            return rows.to_record(Visit, row), opened

    def visit(self, visit_id: int) -> Visit:
        with reading(self.engine) as connection:
            return visit_of(connection, visit_id)

    def visits_of(self, visit_ids: Collection[int]) -> dict[int, Visit]:
        """These visits by id; one that nobody knows is left out."""
        with reading(self.engine) as connection:
            return rows.found_by_id(
                connection, Visit, visits_query(), t.visits.c.id, sorted(visit_ids)
            )

    def visits(self, person_id: int) -> list[Visit]:
        """All visits of a person, in the order they began."""
        person_id = checks.as_id(person_id, "person")
        query = visits_query().order_by(t.visits.c.started_at, t.visits.c.id)
        with reading(self.engine) as connection:
            query = query.where(t.visits.c.person_id.in_(people.records_of(connection, person_id)))
            found = rows.to_records(Visit, connection.execute(query))
            return found or people.nothing_of(connection, person_id)

    def count_visits(self) -> int:
        with reading(self.engine) as connection:
            return connection.execute(select(func.count()).select_from(t.visits)).scalar_one()

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
        author = checks.text(author, "author")
        values = {
            "person_id": person_id,
            "visit_id": visit_id,
            "exam_id": exam_id,
            "at": checks.now(),
            "author": author,
            "text": checks.text(text, "text"),
        }
        with writing(self.engine) as connection:
            people.living_person(connection, person_id)
            if exam_id is not None:
                exam = rows.row_of(connection, t.exams, exam_id, "exam")
                if visit_id not in (None, exam.visit_id):
                    raise StoreError(
                        "{exam} does not belong to {visit}", exam=exam_id, visit=visit_id
                    )
                visit_id = values["visit_id"] = exam.visit_id
            if visit_id is not None:
                visit = visit_of(connection, visit_id)
                if visit.person_id != person_id:
                    raise StoreError(
                        "{visit} does not belong to {person}", visit=visit_id, person=person_id
                    )
            return rows.to_record(Note, rows.add_row(connection, t.notes, values, author))

    def notes(self, person_id: int) -> list[Note]:
        """All notes about a person, oldest first."""
        person_id = checks.as_id(person_id, "person")
        query = select(*texts.columns(t.notes)).order_by(t.notes.c.id)
        with reading(self.engine) as connection:
            query = query.where(t.notes.c.person_id.in_(people.records_of(connection, person_id)))
            found = rows.to_records(Note, connection.execute(query))
            return found or people.nothing_of(connection, person_id)

    def visit_bundle(self, visit_id: int) -> VisitBundle:
        """A visit with all that belongs to it, of one moment."""
        with reading(self.engine) as connection:
            visit = visit_of(connection, visit_id)
            return bundles_of(connection, [visit])[0]

    def iter_visit_bundles(
        self,
        person_id: int | None = None,
        *,
        since: datetime | None = None,
        before: datetime | None = None,
        simulated: bool = True,
    ) -> Iterator[VisitBundle]:
        """All visits, or one person's, by id: all of one moment, a few in memory at a time.

        `since` and `before` take those that began at or after, and before a moment.
        """
        query = visits_query().order_by(t.visits.c.id).limit(BATCH)
        if since is not None:
            query = query.where(t.visits.c.started_at >= checks.moment(since, "since"))
        if before is not None:
            query = query.where(t.visits.c.started_at < checks.moment(before, "before"))
        if not simulated:
            query = query.where(t.visits.c.mode != "simulated")
        with reading(self.engine) as connection:
            if person_id is not None:
                people.person_of(connection, person_id)
                records = people.records_of(connection, person_id)
                query = query.where(t.visits.c.person_id.in_(records))
            last = 0
            while page := connection.execute(query.where(t.visits.c.id > last)).all():
                visits = [rows.to_record(Visit, row) for row in page]
                yield from bundles_of(connection, visits)
                last = visits[-1].id
