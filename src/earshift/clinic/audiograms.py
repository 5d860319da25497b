"""Audiograms from elsewhere: typed in from paper, or read from a file."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from earshift import __version__
from earshift.days import noon
from earshift.engine.audiogram import Audiogram
from earshift.engine.refusal import Refusal
from earshift.formats import References, Rejected
from earshift.records import ExamRecord
from earshift.store import Store

EARLIEST_MEASURED = date(1930, 1, 1)


def store_typed_audiogram(
    store: Store,
    person_id: int,
    ear: str,
    *,
    thresholds_db_hl: Mapping[float, float],
    no_response_db_hl: Mapping[float, float],
    measured_on: date | None,
    source: str,
    author: str,
    zone: str,
    today: date,
) -> ExamRecord:
    """Store a reference that was typed in from paper. A day without an hour is stored at noon."""
    if measured_on is not None and not EARLIEST_MEASURED <= measured_on <= today:
        raise Refusal(
            f"the day of an audiogram must lie between {EARLIEST_MEASURED} and today",
            got=measured_on,
        )
    audiogram = Audiogram(thresholds_db_hl, no_response_db_hl=no_response_db_hl)
    measured = None if measured_on is None else noon(measured_on, zone)
    planned: dict[str, Any] = {
        "ear": ear,
        "kind": "audiogram",
        "design": audiogram.to_dict(),
        "engine_version": __version__,
        "measured_at": measured,
        "source": source or "typed in",
    }
    joined = None if measured is None else _visit_without(store, person_id, ear, measured)
    if joined is not None:
        return store.open_exam(joined, author=author, **planned)
    _, (exam,) = store.open_test(
        person_id, [planned], author=author, zone=zone, mode="imported", started_at=measured
    )
    return exam


def _visit_without(store: Store, person_id: int, ear: str, measured: datetime) -> int | None:
    """A visit of that day that was entered here and lacks this ear: both are of one paper. What
    somebody has signed is not added to."""
    tested = {(one.visit_id, side) for one in store.exams(person_id) for side in one.ears}
    for visit in store.visits(person_id):
        entered = (visit.mode, visit.started_at) == ("imported", measured)
        if entered and (visit.id, ear) not in tested and not store.signatures(visit.id):
            return visit.id
    return None


@dataclass(frozen=True)
class ImportedFile:
    """What a file held, and what of it was stored."""

    found: References
    added: tuple[ExamRecord, ...] = ()
    known: tuple[ExamRecord, ...] = ()  # stored by an earlier import
    refused: bool = False  # rows were rejected, and so nothing was stored

    def require_some(self, file: str) -> None:
        """Refuse a file of which nothing was taken."""
        if self.refused:
            raise Refusal(
                f"{len(self.found.rejected)} rows cannot be imported, so nothing was stored",
                code="rejected-rows",
            )
        if not self.found.accepted:
            raise Refusal("{file} contains no audiogram that can be imported", file=file)


def judged_by_store(store: Store, found: References, *, author: str, zone: str) -> References:
    """What a file gave, with the rows that the store would refuse among the rejected ones."""
    refused = store.refused_imports(found.accepted, author=author, zone=zone)
    rejected = [
        Rejected(found.accepted[place].row, str(refusal), refusal.sentence)
        for place, refusal in refused.items()
    ]
    return replace(
        found,
        accepted=tuple(one for place, one in enumerate(found.accepted) if place not in refused),
        rejected=tuple(sorted((*found.rejected, *rejected), key=lambda one: one.row)),
    )


def store_references(
    store: Store, found: References, *, author: str, zone: str, skip_rejected: bool = False
) -> ImportedFile:
    """Store what was read: all of it, or nothing when a row was rejected and not to be skipped."""
    found = judged_by_store(store, found, author=author, zone=zone)
    if found.rejected and not skip_rejected:
        return ImportedFile(found, refused=True)
    if not found.accepted:
        return ImportedFile(found)
    stored = store.import_audiograms(found.accepted, author=author, zone=zone)
    return ImportedFile(found, tuple(stored.added), tuple(stored.known))
