"""Finding people, what may be known of them, and the visit that somebody is on today."""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from earshift.clinic.site import site_settings
from earshift.days import local_day
from earshift.days import today as local_today
from earshift.engine.refusal import Conflict, NotFound, Refusal
from earshift.engine.values import BOTH
from earshift.records import ExamRecord, Person, Visit
from earshift.store import Store

SEXES = ("female", "male", "other", "unknown")
EARLIEST_BIRTH = date(1880, 1, 1)


def find_person(store: Store, given: str) -> Person:
    """The person with this id or code; `id:` or `code:` before it says which one is meant."""
    how, colon, rest = given.partition(":")
    explicit = bool(colon) and how in ("id", "code")
    wanted = rest if explicit else given
    by_code = None
    if wanted.strip() and not (explicit and how == "id"):
        by_code = store.person_by_code(wanted)
    by_id = None
    is_number = wanted.isascii() and wanted.isdigit() and len(wanted) <= 18
    if is_number and not (explicit and how == "code"):
        try:
            by_id = store.person(int(wanted))
        except NotFound:
            if by_code is None:
                raise
    by_code, by_id = (_as_one(store, one) for one in (by_code, by_id))
    if by_code is not None and by_id is not None and by_code.id != by_id.id:
        raise Refusal(
            "this is the id of one person and the code of another",
            code="two-people",
            advice=f"say id:{wanted} or code:{wanted}",
            got=wanted,
        )
    found = by_code or by_id
    if found is None:
        raise NotFound("nobody has this id or code", code="no-such-person", got=given)
    return found


def _as_one(store: Store, person: Person | None) -> Person | None:
    """The record that somebody goes by, of whom there are several."""
    if person is None or person.merged_into is None:
        return person
    return store.person(person.merged_into)


def check_birth_date(born: date | None, today: date) -> None:
    """Refuse a date on which nobody who is tested today was born."""
    if born is not None and not EARLIEST_BIRTH <= born <= today:
        raise Refusal(f"a date of birth must lie between {EARLIEST_BIRTH} and today", got=born)


def clean_identity(given: dict[str, Any], today: date) -> dict[str, Any]:
    """What is known of somebody as it is stored: blank text is no text."""
    clean: dict[str, Any] = {
        name: (value.strip() or None) if isinstance(value, str) else value
        for name, value in given.items()
    }
    sex = clean.get("sex")
    if sex is not None and sex not in SEXES:
        raise Refusal(f"sex must be one of {', '.join(SEXES)}", got=sex)
    check_birth_date(clean.get("birth_date"), today)
    return clean


def kept_until(store: Store, person: Person) -> date | None:
    """From which day on the rule and the site no longer ask to keep somebody's records.

    None while they are employed, as far as is known, and of somebody erased. Nothing is erased by
    itself when the day has come.
    """
    if person.left_on is None or person.erased_at is not None:
        return None
    days = site_settings(store)["retention_days"].value
    return person.left_on + timedelta(days=int(days))


def todays_visit(
    store: Store,
    person_id: int,
    *,
    author: str,
    zone: str,
    mode: str = "supervised",
    device_id: int | None = None,
    fresh: bool = False,
    checklist: Mapping[str, Any] | None = None,
) -> Visit:
    """The visit that this person is on today in the site's zone, or a new one.

    Another mode or another device is another visit; so is a `fresh` one, and one with a
    `checklist` of its own.
    """
    today = local_today(zone)
    for visit in [] if fresh or checklist else reversed(store.visits(person_id)):
        same_day = local_day(visit.started_at, zone) == today
        if same_day and (visit.mode, visit.device_id) == (mode, device_id):
            return visit
    return store.open_visit(
        person_id,
        author=author,
        zone=zone,
        mode=mode,
        device_id=device_id,
        checklist=checklist or {},
    )


def unfinished(
    store: Store, person_id: int, ear: str, *, simulated: bool = False
) -> list[ExamRecord]:
    """Exams and screens of this ear that can be resumed, oldest first: real or simulated.

    Of "both", those of either ear as well.
    """
    return [
        record
        for record in store.exams(person_id)
        if record.state in ("open", "paused")
        and (BOTH in (ear, record.ear) or record.ear == ear)
        and (store.visit(record.visit_id).mode == "simulated") == simulated
    ]


def require_none_unfinished(
    store: Store, person_id: int, ear: str, *, simulated: bool = False
) -> None:
    """An ear has one unfinished exam at a time."""
    left = unfinished(store, person_id, ear, simulated=simulated)
    if left:
        whose = "this person" if ear == BOTH else f"the {ear} ear"
        raise Conflict(
            f"{{exam}} of {whose} is not finished", code="unfinished-exam", exam=left[-1].id
        )
