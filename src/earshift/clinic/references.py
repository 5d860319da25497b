"""What an ear may be compared with, and what it is compared with by default."""

from datetime import datetime

from earshift.clinic.rebuild import carried_trials, rebuild
from earshift.engine.exam import (
    Exam,
)
from earshift.engine.refusal import Refusal
from earshift.engine.stimulus import Audiogram
from earshift.records import ExamRecord, Visit
from earshift.store import Store


def reference_for(
    store: Store,
    person_id: int,
    ear: str,
    exam_id: int | None = None,
    *,
    simulated: bool = False,
    relative_device: int | None = None,
) -> ExamRecord:
    """What a screen of this ear is compared with: its baseline, or another one named by `exam_id`.

    The baseline is the one that was chosen last, or else the oldest full exam or imported
    audiogram: a slow loss shows against the first, not against last year. Trials of a simulated
    listener are nobody's hearing: they serve as a reference only when the screen is simulated too.
    Levels of the uncalibrated `relative_device` compare with its own alone.
    """
    if exam_id is not None:
        record = store.exam(exam_id)
        visit = store.visit(record.visit_id)
        reason = _why_no_reference(record, visit, simulated, relative_device)
        if visit.person_id != person_id:
            reason = "it is another person's"
        elif record.ear != ear:
            reason = f"it is of the {record.ear} ear, and ears are never mixed"
        if reason is not None:
            raise Refusal(f"exam {exam_id} cannot be the reference: {reason}")
        return record
    chosen = store.baseline(person_id, ear)
    if chosen is not None:
        record = store.exam(chosen.exam_id)
        reason = _why_no_reference(record, store.visit(record.visit_id), simulated, relative_device)
        if reason is not None:
            raise Refusal(
                f"the baseline of the {ear} ear, exam {record.id}, cannot be used here: {reason}; "
                "name another exam by --reference"
            )
        return record
    usable, reasons = references(
        store, person_id, ear, simulated=simulated, relative_device=relative_device
    )
    if usable:
        return usable[0]
    raise Refusal(
        f"person {person_id} has no full exam or imported audiogram of the {ear} ear to compare "
        f"with{' (' + '; '.join(reasons) + ')' if reasons else ''}; run `earshift exam` or "
        "`earshift import` first"
    )


def references(
    store: Store,
    person_id: int,
    ear: str,
    *,
    simulated: bool = False,
    relative_device: int | None = None,
) -> tuple[list[ExamRecord], list[str]]:
    """All that this ear can be compared with, as they were measured, and why not the others."""
    usable, reasons = [], []
    for record in store.exams(person_id, ear=ear):
        visit = store.visit(record.visit_id)
        reason = _why_no_reference(record, visit, simulated, relative_device)
        if reason is None and _unreliable(store, record):
            reason = "its answers were not reliable: it serves only when it is chosen"
        if reason is None:
            usable.append((measured_at(record, visit), record.id, record))
        elif record.kind != "screen":
            reasons.append(f"exam {record.id}: {reason}")
    return [record for _, _, record in sorted(usable, key=lambda item: item[:2])], reasons


def _unreliable(store: Store, record: ExamRecord) -> bool:
    """Whether silence was reported as heard too often in a full exam."""
    results = store.results(record.id) if record.kind == "exam" else []
    return bool(results) and results[-1].shown.get("reliability") == "poor"


def measured_at(record: ExamRecord, visit: Visit) -> datetime:
    """When the ear was measured; of an audiogram without a date, when it was imported."""
    return visit.started_at if record.measured_at is None else record.measured_at


def _why_no_reference(
    record: ExamRecord, visit: Visit, simulated: bool, relative_device: int | None = None
) -> str | None:
    if visit.mode == "simulated" and not simulated:
        return "its answers were simulated"
    if relative_device is not None and not (record.relative and visit.device_id == relative_device):
        return "levels without calibration compare only with the same device's"
    if relative_device is None and record.relative:
        return "its levels are relative to an uncalibrated device"
    if record.kind == "audiogram":
        return None
    if record.kind != "exam":
        return "a screen is no full exam"
    return None if record.state == "done" else f"it is {record.state} and not a full exam"


def as_reference(store: Store, record: ExamRecord) -> Exam | Audiogram:
    """A stored full exam or audiogram as a screen takes it."""
    if record.kind == "audiogram":
        return Audiogram.from_dict(record.design)
    sitting = rebuild(record, (*carried_trials(store, record), *store.trials(record.id)))
    assert isinstance(sitting, Exam)
    return sitting
