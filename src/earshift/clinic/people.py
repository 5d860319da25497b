"""Finding people, and the visit that somebody is on today."""

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from earshift.engine.refusal import Refusal
from earshift.records import ExamRecord, Person, Visit
from earshift.store import Store


def find_person(store: Store, given: str) -> Person:
    """The person with this id or code; `id:` or `code:` before it says which one is meant."""
    how, colon, rest = given.partition(":")
    explicit = bool(colon) and how in ("id", "code")
    wanted = rest if explicit else given
    by_code = None
    if wanted.strip() and not (explicit and how == "id"):
        by_code = store.person_by_code(wanted)
    by_id = None
    if re.fullmatch("[0-9]{1,18}", wanted) and not (explicit and how == "code"):
        try:
            by_id = store.person(int(wanted))
        except ValueError:
            if by_code is None:
                raise
    if by_code is not None and by_id is not None and by_code.id != by_id.id:
        raise Refusal(
            f"{wanted!r} is the id of one person and the code of another (person {by_code.id}); "
            f"say id:{wanted} or code:{wanted}"
        )
    found = by_code or by_id
    if found is None:
        raise Refusal(f"nobody has the id or code {given!r}; `earshift person list` shows all")
    return found


def todays_visit(
    store: Store,
    person_id: int,
    *,
    author: str,
    zone: str,
    mode: str = "supervised",
    device_id: int | None = None,
    fresh: bool = False,
) -> Visit:
    """The visit that this person is on today in the site's zone, or a new one.

    Another mode or another device is another visit; so is a `fresh` one.
    """
    today = datetime.now(UTC).astimezone(ZoneInfo(zone)).date()
    for visit in [] if fresh else reversed(store.visits(person_id)):
        same_day = visit.started_at.astimezone(ZoneInfo(zone)).date() == today
        if same_day and (visit.mode, visit.device_id) == (mode, device_id):
            return visit
    return store.open_visit(person_id, author=author, zone=zone, mode=mode, device_id=device_id)


def unfinished(
    store: Store, person_id: int, ear: str, *, simulated: bool = False
) -> list[ExamRecord]:
    """Exams and screens of this ear that can be gone on with, oldest first: real or simulated."""
    return [
        record
        for record in store.exams(person_id, ear=ear)
        if record.state in ("open", "paused")
        and (store.visit(record.visit_id).mode == "simulated") == simulated
    ]
