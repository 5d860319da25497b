"""A roster of employees: what an import would change, leavers, duplicates, and the import itself.

People are found by their code. A blank cell and a column that is not there change nothing. Whoever
is known with another date of birth is refused: that is somebody else. Who is not in the roster is
marked as having left when that is asked for; nothing of them is lost.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

from earshift.engine.refusal import Refusal
from earshift.formats.references import Rejected
from earshift.formats.roster import Employee, Roster
from earshift.records import Person
from earshift.store import Store

PAGE = 5000


@dataclass(frozen=True)
class Change:
    """What a roster says otherwise of somebody: field to what was known and what will be."""

    person: Person
    row: int | None
    fields: dict[str, tuple[Any, Any]]


@dataclass(frozen=True)
class RosterPlan:
    """What an import would do; nothing is done yet."""

    new: tuple[Employee, ...]
    changed: tuple[Change, ...]
    same: int
    leavers: tuple[Person, ...]
    """Not in the roster, and not marked as having left."""
    duplicates: tuple[tuple[str, str], ...]
    """Codes of records with one name and date of birth."""
    rejected: tuple[Rejected, ...]


def plan_roster(store: Store, roster: Roster) -> RosterPlan:
    """Compare a roster with what is stored."""
    everybody = {person.id: person for person in _everybody(store)}
    by_code = {one.code: one for one in everybody.values() if one.code is not None}
    new, changed, rejected, same = [], [], list(roster.rejected), 0
    present: set[int] = set()
    for employee in roster.employees:
        person = by_code.get(employee.code)
        if person is None:
            new.append(employee)
            continue
        goes_by = everybody.get(person.merged_into or person.id, person)
        present |= {person.id, goes_by.id}
        born = employee.known.get("birth_date")
        if born is not None and goes_by.birth_date not in (None, born):
            words = "this code is known with another date of birth; correct the person or the file"
            rejected.append(Rejected(employee.row, words, words))
            continue
        fields = _differences(goes_by, employee)
        if fields:
            changed.append(Change(goes_by, employee.row, fields))
        else:
            same += 1
    leavers = tuple(
        one
        for one in everybody.values()
        if one.id not in present and one.code and one.merged_into is None and one.left_on is None
    )
    return RosterPlan(
        tuple(new),
        tuple(changed),
        same,
        leavers,
        _duplicates(everybody.values(), new),
        tuple(sorted(rejected, key=lambda one: one.row)),
    )


def _everybody(store: Store) -> Iterator[Person]:
    last = 0
    while page := store.people(after=last, limit=PAGE):
        yield from (person for person in page if person.erased_at is None)
        last = page[-1].id


def _differences(person: Person, employee: Employee) -> dict[str, tuple[Any, Any]]:
    said = {name: value for name, value in employee.known.items() if name != "code"}
    if person.left_on is not None and "left_on" not in said:
        said["left_on"] = None  # who is in the roster is there again
    return {
        name: (getattr(person, name), value)
        for name, value in said.items()
        if getattr(person, name) != value
    }


def _duplicates(people: Any, new: list[Employee]) -> tuple[tuple[str, str], ...]:
    """Records of one name and date of birth under two codes: perhaps one person."""
    seen: dict[tuple[str, date], str] = {}
    found = []
    known = [(p.name, p.birth_date, p.code or f"id:{p.id}") for p in people if not p.merged_into]
    known += [(e.known.get("name"), e.known.get("birth_date"), e.code) for e in new]
    for name, born, code in known:
        if name is None or born is None:
            continue
        key = (" ".join(name.casefold().split()), born)
        if key in seen:
            found.append((seen[key], code))
        else:
            seen[key] = code
    return tuple(found)


def apply_roster(
    store: Store, plan: RosterPlan, *, author: str, left_on: date | None, skip_rejected: bool
) -> None:
    """Do what a plan says, all of it or nothing; with `left_on`, leavers are marked from that day.

    Rows that are rejected stop it unless they are to be skipped.
    """
    if plan.rejected and not skip_rejected:
        raise Refusal(
            f"{len(plan.rejected)} rows cannot be taken, so nothing was stored",
            code="rejected-rows",
        )
    changes = {
        one.person.id: {name: after for name, (_, after) in one.fields.items()}
        for one in plan.changed
    }
    for person in plan.leavers if left_on is not None else ():
        gone = left_on if person.hired_on is None else max(left_on or date.max, person.hired_on)
        changes[person.id] = {"left_on": gone}
    new = [{"code": one.code, **one.known} for one in plan.new]
    store.change_people(new, changes, author=author, reason="roster")
