"""The audit as admins read it: who saw and did what, and whom and what each line is about."""

from datetime import date, datetime, time, timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from earshift.clinic.site import BY_NAME
from earshift.days import zone_info
from earshift.records import AuditEntry
from earshift.store.subjects import Behind
from earshift.web import models as m
from earshift.web.here import Here
from earshift.web.identity import Admin

router = APIRouter()


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
    found = here.store.audit(
        after=after,
        limit=limit,
        author=author,
        kind=kind,
        newest_first=newest_first,
        since=None if first is None else _midnight(first, zone),
        before=None if last is None else _midnight(last + timedelta(1), zone),
        person=whose,
    )
    behind = here.store.what_is_behind(entry.subject for entry in found)
    here.viewed(identity, "audit" if whose is None else f"people:{whose}", audit=True)
    lines = _in_full(here, found, behind)
    return AuditPage(entries=lines, next=lines[-1].id if len(lines) == limit else None)


def _midnight(day: date, zone: str) -> datetime:
    return datetime.combine(day, time(0), zone_info(zone))


def _in_full(here: Here, found: list[AuditEntry], behind: Behind) -> list[AuditLine]:
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
        name = entry.subject.partition(":")[0]
        row, test = behind.row(entry.subject), tests.get(exam or 0)
        shown = AuditLine(
            id=entry.id, at=entry.at, author=entry.author, action=entry.action,
            subject=entry.subject, reason=entry.reason,
        )  # fmt: skip
        shown.gone = behind.is_gone(entry.subject)
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
