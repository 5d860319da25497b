"""The professional's acts: signatures and what was signed, follow-ups, words on work; room noise.

What was signed is canonical JSON (keys sorted, no white space, UTF-8) that is kept word for word
with its SHA-256. It goes with the person; who signed, when, as what, and the hash stay.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, date, datetime
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from sqlalchemy import Connection, Row, select

from earshift.acts import FOLLOW_UPS, MEANINGS, FollowUp, RoomNoise, Signature, WorkRelation
from earshift.days import local_day
from earshift.engine.checks import finite, whole
from earshift.engine.values import BOTH, EARS
from earshift.records import VisitBundle
from earshift.store import checks, exams, people, rows, texts
from earshift.store import tables as t
from earshift.store import visits as visiting
from earshift.store.chain import head
from earshift.store.database import reading, writing
from earshift.store.errors import NoSuchRow, StoreConflict, StoreError, StoreTrouble
from earshift.store.rows import Part

T = TypeVar("T")


def canonical(data: Mapping[str, Any]) -> str:
    """The one text of plain data: equal data give equal bytes."""
    return json.dumps(
        data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def plain_of(value: Any) -> Any:
    """A record as plain data, for canonical JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_of(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain_of(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain_of(one) for one in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value.isoformat() if isinstance(value, date) else value


def record_from(kind: type[T], data: Mapping[str, Any]) -> T:
    """The record that `plain_of` was given. What an older version did not know is as by default."""
    hints = get_type_hints(kind)
    return kind(**{name: _typed(hints[name], data[name]) for name in data if name in hints})


def _typed(hint: Any, value: Any) -> Any:
    if isinstance(hint, UnionType):
        if value is None:
            return None
        hint = next(one for one in get_args(hint) if one is not NoneType)
    if get_origin(hint) is tuple:
        return tuple(_typed(get_args(hint)[0], one) for one in value)
    if is_dataclass(hint) and isinstance(hint, type):
        return record_from(hint, value)
    if hint is datetime or hint is date:
        return hint.fromisoformat(value)
    return value


def _hold_visit(connection: Connection, visit_id: int) -> Row[Any]:
    """A visit whose person is not erased, held: until the transaction ends nobody else signs it."""
    visit_id = checks.as_id(visit_id, "visit")
    of_visit = (
        select(t.people.c.id)
        .join(t.visits, t.visits.c.person_id == t.people.c.id)
        .where(t.visits.c.id == visit_id)
    )
    connection.execute(of_visit.with_for_update(of=t.people))
    found: Row[Any] | None = connection.execute(
        select(t.visits, t.erasures.c.at.label("erased_at"))
        .outerjoin(t.erasures, t.erasures.c.person_id == t.visits.c.person_id)
        .where(t.visits.c.id == visit_id)
    ).first()
    if found is None:
        raise NoSuchRow("there is no {row}", row=f"visit {visit_id}")
    if found.erased_at is not None:
        raise StoreConflict(
            f"{{person}} was erased on {found.erased_at:%Y-%m-%d}", person=found.person_id
        )
    return found


def _newest_signature(connection: Connection, visit_id: int) -> Row[Any] | None:
    s = t.signatures
    query = select(s).where(s.c.visit_id == visit_id).order_by(s.c.id.desc()).limit(1)
    return connection.execute(query).first()


def text_of(connection: Connection, signature: Signature) -> str | None:
    """What was signed; None when it was erased. A text that is not the one signed is trouble."""
    query = select(t.signed.c.content).where(t.signed.c.signature_id == signature.id)
    content: str | None = connection.execute(query).scalar_one_or_none()
    if content is not None and sha256_of(content) != signature.sha256:
        raise StoreTrouble(
            f"signatures:{signature.id} does not match what is stored as signed",
            advice="restore the newest backup that is in order",
        )
    return content


def _with_days(bundle: VisitBundle, today: date) -> VisitBundle:
    """A shift counts from the day on which it was signed first."""
    findings = tuple(
        replace(one, shift_since=(one.shift_since or today) if one.is_shift else None)
        for one in bundle.findings
    )
    return replace(bundle, findings=findings)


def _about(bundle: VisitBundle) -> dict[str, Any]:
    return {
        "exams": [one.exam.id for one in bundle.exams if one.exam.state == "done"],
        "shift_since": {
            f"{one.exam_id} {one.ear}": one.shift_since.isoformat()
            for one in bundle.findings
            if one.shift_since is not None
        },
    }


def _band(hertz: object) -> str:
    text = str(hertz)
    if not (text.isascii() and text.isdigit()):
        raise StoreError("an octave band is a whole number of Hz", got=hertz)
    return text


class Signatures(Part):
    """The store's calls about what professionals say and sign."""

    def sign_visit(
        self,
        seen: VisitBundle,
        *,
        author: str,
        name: str,
        meaning: str,
        site: Mapping[str, Any] | None = None,
        amends: int | None = None,
        reason: str = "",
    ) -> Signature:
        """Sign a visit as it was `seen`, with its findings, and what the `site` has settled.

        `amends` is the id of the visit's newest signature, None for the first: whoever did not see
        what another one signed meanwhile signs nothing. An amendment needs a reason, which is part
        of what is signed.
        """
        author = checks.text(author, "author")
        statement: dict[str, Any] = {
            "author": author,
            "name": checks.text(name, "the printed name"),
            "meaning": checks.one_of(meaning, MEANINGS, "the meaning of a signature"),
            "reason": checks.text(reason, "the reason of an amendment", blank=amends is None),
        }
        with writing(self.engine) as connection:
            visit = _hold_visit(connection, seen.visit.id)
            self._require_as_seen(connection, seen, amends)
            at = checks.now()
            seen = _with_days(seen, local_day(at, seen.visit.zone))
            seen = replace(seen, seal=str(head(connection)))
            matter = {"schema": 1, "visit": plain_of(seen), "site": plain_of(site or {})}
            before = None if amends is None else _newest_signature(connection, visit.id)
            statement["at"] = at.isoformat()
            statement["amends_sha256"] = None if before is None else before.sha256
            content = canonical({**matter, "signature": statement})
            whose = {"person_id": visit.person_id, "owner_id": seen.person.id}
            values = {
                **whose,
                "visit_id": visit.id,
                "amends_id": amends,
                "at": at,
                **{key: statement[key] for key in ("author", "name", "meaning")},
                "sha256": sha256_of(content),
            }
            details = {"visit": visit.id, "meaning": meaning, "sha256": values["sha256"]}
            new = rows.add_row(connection, t.signatures, values, author, details=details)
            kept = {
                "signature_id": new.id,
                **whose,
                "content": content,
                "about": _about(seen),
            }
            rows.add_only(connection, t.signed, kept, author, details={"signature": new.id})
            return rows.to_record(Signature, new)

    def _require_as_seen(
        self, connection: Connection, seen: VisitBundle, amends: int | None
    ) -> None:
        newest = _newest_signature(connection, seen.visit.id)
        if (None if newest is None else newest.id) != amends:
            said = "is not signed yet" if newest is None else "was signed by another meanwhile"
            raise StoreConflict(
                f"{{visit}} {said}",
                code="signed-meanwhile",
                advice="read what stands there now, and sign again as an amendment if need be",
                visit=seen.visit.id,
            )
        now = visiting.bundles_of(connection, [visiting.visit_of(connection, seen.visit.id)])[0]
        if now != replace(seen, findings=()):
            raise StoreConflict(
                "{visit} has changed since it was read, and nothing was signed",
                code="changed-meanwhile",
                advice="read it again before signing",
                visit=seen.visit.id,
            )

    def signatures(self, visit_id: int) -> list[Signature]:
        """All signatures of a visit, newest last; they outlive it."""
        s = t.signatures
        query = select(s).where(s.c.visit_id == checks.as_id(visit_id, "visit")).order_by(s.c.id)
        with reading(self.engine) as connection:
            return rows.to_records(Signature, connection.execute(query))

    def signatures_of(self, person_id: int) -> list[Signature]:
        """All signatures of somebody's visits, newest last."""
        s = t.signatures
        with reading(self.engine) as connection:
            records = people.records_of(connection, checks.as_id(person_id, "person"))
            query = select(s).where(s.c.person_id.in_(records)).order_by(s.c.id)
            return rows.to_records(Signature, connection.execute(query))

    def signed_content(self, signature: Signature) -> dict[str, Any] | None:
        """What was signed, as plain data; None when it was erased with the person."""
        with reading(self.engine) as connection:
            content = text_of(connection, signature)
        if content is None:
            return None
        data: dict[str, Any] = json.loads(content)
        return data

    def add_follow_up(
        self,
        visit_id: int,
        kind: str,
        *,
        author: str,
        done_on: date,
        done_by: str,
        details: str = "",
        done: bool = True,
    ) -> FollowUp:
        """Something that was done because of a shift, or, with `done` False, was not after all."""
        author = checks.text(author, "author")
        values = {
            "visit_id": visit_id,
            "kind": checks.one_of(kind, FOLLOW_UPS, "a follow-up"),
            "done": bool(done),
            "done_on": checks.day(done_on, "the day of a follow-up"),
            "at": checks.now(),
            "author": author,
            "done_by": checks.text(done_by, "who did it"),
            "details": checks.text(details, "details", blank=True),
        }
        with writing(self.engine) as connection:
            values["person_id"] = _hold_visit(connection, visit_id).person_id
            said = {"visit": visit_id, "kind": kind, "done": bool(done)}
            new = rows.add_row(connection, t.follow_ups, values, author, details=said)
            return rows.to_record(FollowUp, new)

    def follow_ups(self, person_id: int) -> list[FollowUp]:
        """All that was said to be done for somebody, newest last."""
        f = t.follow_ups
        with reading(self.engine) as connection:
            records = people.records_of(connection, checks.as_id(person_id, "person"))
            query = select(*texts.columns(f)).where(f.c.person_id.in_(records)).order_by(f.c.id)
            return rows.to_records(FollowUp, connection.execute(query))

    def say_work_related(
        self,
        exam_id: int,
        related: bool | None,
        *,
        author: str,
        name: str,
        reason: str,
        ears: str = "",
    ) -> WorkRelation:
        """A professional's word on whether the shift of an exam, or of these of its ears, is
        related to work."""
        if related is not None and not isinstance(related, bool):
            raise StoreError("related must be True, False or None", got=related)
        author = checks.text(author, "author")
        values = {
            "exam_id": exam_id,
            "related": related,
            "at": checks.now(),
            "author": author,
            "name": checks.text(name, "the printed name"),
            "reason": checks.text(reason, "reason"),
            "ears": checks.text(ears, "ears", blank=True),
        }
        with writing(self.engine) as connection:
            exams.exam_to_extend(connection, exam_id)
            said = {"exam": exam_id, "related": related, **({"ears": ears} if ears else {})}
            new = rows.add_row(connection, t.work_relations, values, author, details=said)
            return rows.to_record(WorkRelation, new)

    def work_relations(self, exam_ids: Iterable[int]) -> dict[tuple[int, str], WorkRelation]:
        """The newest word on each ear of these exams, where one was not taken back."""
        w = t.work_relations
        tested = t.exams.c.ear.label("tested")
        query = select(*texts.columns(w), tested).join(t.exams, t.exams.c.id == w.c.exam_id)
        query = query.where(w.c.exam_id.in_(list(exam_ids))).order_by(w.c.id)
        said: dict[tuple[int, str], WorkRelation] = {}
        with reading(self.engine) as connection:
            found: Iterable[Row[Any]] = connection.execute(query)
            for row in found:
                ears = row.ears.split() or (EARS if row.tested == BOTH else (row.tested,))
                word = rows.to_record(WorkRelation, row)
                said |= {(word.exam_id, ear): word for ear in ears}
        return {of_ear: one for of_ear, one in said.items() if one.related is not None}

    def add_room_noise(
        self,
        *,
        author: str,
        measured_on: date,
        levels: Mapping[str, float],
        room: str = "",
        instrument: str = "",
        device_id: int | None = None,
    ) -> RoomNoise:
        """Levels in dB SPL by octave band in Hz, of the room of a device or of the whole site."""
        author = checks.text(author, "author")
        if not levels:
            raise StoreError("room noise needs the level of at least one octave band")
        values = {
            "measured_on": checks.day(measured_on, "measured_on"),
            "device_id": device_id,
            "room": checks.text(room, "room", blank=True),
            "instrument": checks.text(instrument, "instrument", blank=True),
            "levels": {
                _band(band): finite(level, f"the level at {band} Hz")
                for band, level in levels.items()
            },
            "at": checks.now(),
            "author": author,
        }
        with writing(self.engine) as connection:
            if device_id is not None:
                rows.row_of(connection, t.devices, device_id, "device")
            return rows.to_record(RoomNoise, rows.add_row(connection, t.room_noise, values, author))

    def room_noise(self, *, limit: int = 100) -> list[RoomNoise]:
        """What was measured, newest day first."""
        n = t.room_noise
        query = select(n).order_by(n.c.measured_on.desc(), n.c.id.desc())
        with reading(self.engine) as connection:
            found = connection.execute(query.limit(whole(limit, "limit", 1)))
            return rows.to_records(RoomNoise, found)
