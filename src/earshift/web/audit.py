"""The audit as admins read it: who saw and did what, and whom and what each line is about."""

from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel
from sqlalchemy import Connection, Select, Text, cast, literal, or_, select, union_all

from earshift.clinic.site import BY_NAME
from earshift.days import zone_info
from earshift.records import AuditEntry
from earshift.store import tables as t
from earshift.store.database import reading
from earshift.store.people import records_of
from earshift.web import models as m
from earshift.web.here import Here
from earshift.web.identity import Admin

router = APIRouter()

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


class AuditPerson(BaseModel):
    id: str
    code: str | None


class AuditTest(BaseModel):
    id: str | None  # of a page of its own: an audiogram from elsewhere has none
    kind: str
    ear: str


class AuditDevice(BaseModel):
    id: str
    name: str


class AuditLine(BaseModel):
    id: int
    at: datetime
    author: str
    action: str
    subject: str
    reason: str
    # What is behind the subject, where it is still known.
    gone: bool = False  # erased, or its person
    person: AuditPerson | None = None
    test: AuditTest | None = None
    device: AuditDevice | None = None
    user: str | None = None
    key: str | None = None  # session, token, link and the like
    setting: str | None = None


class AuditPage(BaseModel):
    entries: list[AuditLine]
    next: int | None


@router.get("/api/audit")
def audit(
    here: Here,
    identity: Admin,
    after: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    newest_first: bool = False,
    author: Annotated[str | None, Query(max_length=200)] = None,
    kind: Annotated[str | None, Query(pattern="^[a-z_]{1,40}$")] = None,
    person: m.Id | None = None,
    first: date | None = None,
    last: date | None = None,
) -> AuditPage:
    """Who saw and did what, oldest first unless asked otherwise, a page at a time.

    `person` picks all lines about somebody and their tests, `first` and `last` days of the site.
    """
    whose = None if person is None else here.row("people", person)
    zone = here.settings.zone
    with reading(here.store.engine) as connection:
        people = None if whose is None else records_of(connection, whose)
    found = here.store.audit(
        after=after,
        limit=limit,
        author=author,
        kind=kind,
        newest_first=newest_first,
        since=None if first is None else _midnight(first, zone),
        before=None if last is None else _midnight(last + timedelta(1), zone),
        subjects=None if people is None else _subjects_of(people),
    )
    with reading(here.store.engine) as connection:
        behind = _Behind(connection, {entry.subject for entry in found})
    here.viewed(identity, "audit" if whose is None else f"people:{whose}", audit=True)
    lines = _in_full(here, found, behind)
    return AuditPage(entries=lines, next=lines[-1].id if len(lines) == limit else None)


def _midnight(day: date, zone: str) -> datetime:
    return datetime.combine(day, time(0), zone_info(zone))


def _subjects_of(people: list[int]) -> Select[Any]:
    """The subjects of all rows that belong to these records of one person."""
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


class _Behind:
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

    def one(self, name: str, subject: str) -> int | None:
        """The nearest row of a table that a subject is or belongs to."""
        if subject.startswith(f"{name}:"):
            found: int | None = self.row(subject).get("id")
            return found
        above = (self.one(name, one) for one in self._above(subject))
        return next((one for one in above if one is not None), None)


def _in_full(here: Here, found: list[AuditEntry], behind: _Behind) -> list[AuditLine]:
    """The lines, each with what is behind it. Whoever was erased has no name and no address."""
    of = {
        name: {entry.id: behind.one(name, entry.subject) for entry in found}
        for name in ("people", "exams", "devices", "users")
    }
    ids = {name: {one for one in of[name].values() if one is not None} for name in of}
    people = here.store.people_of(ids["people"])
    living = {number for number, person in people.items() if person.erased_at is None}
    tests = {
        number: behind.row(f"exams:{number}")
        for number in ids["exams"]
        if behind.one("people", f"exams:{number}") in living
    }
    heard = [number for number, row in tests.items() if row["kind"] != "audiogram"]
    handle = {
        "people": here.store.handles("people", living),
        "exams": here.store.handles("exams", heard),
        "devices": here.store.handles("devices", ids["devices"]),
    }

    def line(entry: AuditEntry) -> AuditLine:
        person, exam, device, user = (of[name][entry.id] for name in of)
        name, _, number = entry.subject.partition(":")
        row, test = behind.row(entry.subject), tests.get(exam or 0)
        shown = AuditLine(
            id=entry.id, at=entry.at, author=entry.author, action=entry.action,
            subject=entry.subject, reason=entry.reason,
        )  # fmt: skip
        shown.gone = number.isdigit() and name in t.metadata.tables and not row
        if person is not None and person in living:
            shown.person = AuditPerson(id=handle["people"][person], code=people[person].code)
        elif person is not None:
            shown.gone = True
        if test is not None:
            page = handle["exams"].get(exam or 0)
            shown.test = AuditTest(id=page, kind=test["kind"], ear=test["ear"])
        if device is not None:
            known = behind.row(f"devices:{device}")["name"]
            shown.device = AuditDevice(id=handle["devices"][device], name=known)
        if user is not None:
            shown.user = behind.row(f"users:{user}")["name"]
        if name == "keys":
            shown.key = row.get("kind")
        if name == "site_settings":
            shown.setting = BY_NAME[row["name"]].text if row.get("name") in BY_NAME else None
        return shown

    return [line(entry) for entry in found]
