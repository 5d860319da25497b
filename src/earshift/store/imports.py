"""Audiograms from elsewhere."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from earshift import __version__
from earshift.engine.audiogram import Audiogram
from earshift.engine.refusal import Refusal
from earshift.engine.values import EARS
from earshift.records import ExamRecord, ImportedAudiogram, Person
from earshift.store import checks, exams, people, rows
from earshift.store import tables as t
from earshift.store.database import reading, write_in_parts
from earshift.store.errors import StoreConflict, StoreError
from earshift.store.rows import Part

# Of one person and moment in one transaction: two ears, and seldom a repetition.
MOST_TOGETHER = 20


@dataclass(frozen=True)
class Imported:
    """What an import did: exams now stored, and those that were there before, word for word."""

    added: tuple[ExamRecord, ...]
    known: tuple[ExamRecord, ...]


def import_one(
    connection: Connection,
    item: ImportedAudiogram,
    visits: dict[tuple[int, datetime | None], int],
    author: str,
    zone: str,
) -> tuple[ExamRecord, bool]:
    """The stored exam of an item, and whether it is new. Ears of one moment share a visit."""
    ear = checks.one_of(item.ear, EARS, "ear")
    design = checks.plain(_audiogram(item.audiogram), "audiogram")
    measured = None if item.measured_at is None else checks.moment(item.measured_at, "measured_at")
    person = _imported_person(connection, item, author)
    same = {"ear": ear, "measured_at": measured, "design": design}
    for known in exams.same_audiograms(connection, person.id, same):
        return known, False
    key = (person.id, measured)
    if key not in visits:
        visit = {
            "person_id": person.id,
            "started_at": measured or checks.now(),
            "zone": zone,
            "mode": "imported",
            "author": author,
            "checklist": {},
        }
        visits[key] = rows.add_row(connection, t.visits, visit, author).id
    exam = {
        "visit_id": visits[key],
        "ear": ear,
        "kind": "audiogram",
        "design": design,
        "engine_version": __version__,
        "measured_at": measured,
        "source": checks.text(item.source, "source", blank=True),
    }
    return exams.insert_exam(connection, exam, author), True


def _audiogram(data: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return Audiogram.from_dict(data).to_dict()
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError("this is not the data of an audiogram", got=error) from None


def _given(item: ImportedAudiogram) -> dict[str, Any]:
    return people.as_identity(
        code=checks.text(item.code, "code"),
        name=item.name,
        birth_date=item.birth_date,
        sex=item.sex,
    )


def _imported_person(connection: Connection, item: ImportedAudiogram, author: str) -> Person:
    given = _given(item)
    person = people.find_by_code(connection, given["code"])
    if person is None:
        return people.insert_person(connection, given, author)
    person = people.living_person(connection, person.merged_into or person.id)
    known = {name: getattr(person, name) for name in people.IDENTITY}
    merged = _merged(known, given, person.id)
    if merged == known:
        return person
    return people.insert_correction(
        connection, person, people.as_identity(**merged), author, "import"
    )


def _merged(known: Mapping[str, Any], given: Mapping[str, Any], who: object) -> dict[str, Any]:
    """What is known with what a file adds; what contradicts it would be somebody else's."""
    merged = dict(known)
    for name in ("name", "birth_date", "sex"):
        if given[name] is None:
            continue
        if merged[name] is None:
            merged[name] = given[name]
        elif _alike(merged[name]) != _alike(given[name]):
            raise StoreConflict(
                f"{{person}} is known with another {name.replace('_', ' ')}; "
                "correct the person or the file first",
                person=who,
            )
    return merged


@dataclass
class _Judge:
    """Finds what an import would refuse, by reading alone."""

    connection: Connection
    known: dict[str, dict[str, Any]]  # by code, with what earlier items add
    who: dict[str, object]

    def judge(self, item: ImportedAudiogram) -> None:
        checks.one_of(item.ear, EARS, "ear")
        checks.plain(_audiogram(item.audiogram), "audiogram")
        if item.measured_at is not None:
            checks.moment(item.measured_at, "measured_at")
        checks.text(item.source, "source", blank=True)
        given = _given(item)
        code = given["code"]
        if code not in self.known:
            person = people.find_by_code(self.connection, code)
            if person is None:
                self.known[code] = {name: given[name] for name in people.IDENTITY}
                self.who[code] = "the person of an earlier row"
                return
            person = people.alive(self.connection, person.merged_into or person.id)
            self.known[code] = {name: getattr(person, name) for name in people.IDENTITY}
            self.who[code] = person.id
        self.known[code] = _merged(self.known[code], given, self.who[code])


def _alike(value: object) -> str:
    return " ".join(str(value).casefold().split())


class Imports(Part):
    """The store's calls for audiograms from elsewhere."""

    def refused_imports(
        self, items: Sequence[ImportedAudiogram], *, author: str, zone: str
    ) -> dict[int, Refusal]:
        """Which of these `import_audiograms` would refuse, by their place; nothing is written."""
        checks.text(author, "author")
        checks.zone_name(zone)
        refused: dict[int, Refusal] = {}
        with reading(self.engine) as connection:
            judge = _Judge(connection, {}, {})
            for place, item in enumerate(items):
                try:
                    judge.judge(item)
                except Refusal as refusal:
                    refused[place] = refusal
        return refused

    def import_audiograms(
        self, items: Iterable[ImportedAudiogram], *, author: str, zone: str
    ) -> Imported:
        """Store audiograms from elsewhere: all of them, or none when one is refused.

        A person is found by code or is new. One who is known with another birth date, sex or name
        is refused: that would be somebody else's audiogram. What is stored already is left alone,
        so that an import which was killed is completed by repeating it: it is written in parts,
        with the ears of one person and moment in one of them.
        """
        author, zone = checks.text(author, "author"), checks.zone_name(zone)
        wanted = list(items)
        for place, item in enumerate(wanted, start=1):
            if not isinstance(item, ImportedAudiogram):
                raise StoreError(f"item {place} is not an ImportedAudiogram", got=item)
        for place, refusal in self.refused_imports(wanted, author=author, zone=zone).items():
            raise _named(refusal, place + 1, wanted[place]) from None
        added: list[ExamRecord] = []
        known: list[ExamRecord] = []
        visits: dict[tuple[int, datetime | None], int] = {}

        def write(connection: Connection, one: tuple[int, int, ImportedAudiogram]) -> None:
            _, place, item = one
            try:
                exam, is_new = import_one(connection, item, visits, author, zone)
            except Refusal as refusal:  # of what another program has changed meanwhile
                raise _named(refusal, place, item) from None
            (added if is_new else known).append(exam)

        write_in_parts(
            self.engine,
            _by_moment(wanted),
            write,
            together=lambda _, following: following[0] % MOST_TOGETHER != 0,
        )
        return Imported(tuple(added), tuple(known))


def _by_moment(items: Sequence[ImportedAudiogram]) -> list[tuple[int, int, ImportedAudiogram]]:
    """Items with their places from 1 on, those of one person and moment counted and together."""
    moments: dict[tuple[str, datetime | None], list[tuple[int, int, ImportedAudiogram]]] = {}
    for place, item in enumerate(items, start=1):
        alike = moments.setdefault((item.code, item.measured_at), [])
        alike.append((len(alike), place, item))
    return [one for alike in moments.values() for one in alike]


def _named(refusal: Refusal, place: int, item: ImportedAudiogram) -> Refusal:
    kind = type(refusal) if isinstance(refusal, StoreError) else StoreError
    which = f"audiogram {place} (code {item.code!r})"
    return refusal.within_as(kind, "{audiogram}: ", audiogram=which)
