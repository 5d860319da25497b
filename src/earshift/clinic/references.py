"""What an ear may be compared with, and what it is compared with by default."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from earshift.clinic.checklist import HOURS, quiet_hours, too_soon
from earshift.clinic.rebuild import carried_trials, rebuild
from earshift.engine.audiogram import Audiogram
from earshift.engine.exam import Exam
from earshift.engine.refusal import Conflict
from earshift.records import Baseline, ExamRecord, Visit
from earshift.store import Store

UNRELIABLE = "its answers were not reliable"
CAUTION = "Its answers were not reliable: it is used as a reference only if you choose it."


@dataclass(frozen=True)
class EarTests:
    """All tests of an ear in their order, read once for whatever is asked about them."""

    records: Sequence[ExamRecord]
    visits: Mapping[int, Visit]  # of the tests, by id
    unreliable: Collection[int]  # full exams in which silence was reported as heard too often
    chosen: Baseline | None  # by a professional, last


@dataclass(frozen=True)
class Choice:
    """A full exam or audiogram of an ear, and whether a new screen may be compared with it."""

    record: ExamRecord
    visit: Visit
    baseline: bool  # chosen by a professional, or the oldest usable one
    default: bool  # what a screen is compared with when none is named
    reason: str | None  # why it cannot be chosen
    caution: str | None  # what to know before choosing it


def ear_tests(store: Store, person_id: int, ear: str) -> EarTests:
    """The tests of one ear of somebody."""
    records = store.exams(person_id, ear=ear)
    results = store.newest_results({one.id for one in records if one.kind == "exam"})
    return EarTests(
        records,
        store.visits_of({one.visit_id for one in records}),
        {one for one, result in results.items() if result.shown.get("reliability") == "poor"},
        store.baseline(person_id, ear),
    )


def choices(store: Store, tests: EarTests, *, relative_device: int | None = None) -> list[Choice]:
    """All finished full exams and audiograms of a real ear, the default one first.

    Then come the others that may be chosen, oldest first, and then those that may not. What is
    offered here is what `reference_for` takes. `relative_device` is a device without calibration.
    """
    baseline = baseline_exam(tests, relative_device)
    quiet = quiet_hours(store)
    found = []
    for record in tests.records:
        visit = tests.visits[record.visit_id]
        if record.kind == "screen" or record.state != "done" or visit.mode == "simulated":
            continue
        reason = _why_no_reference(record, visit, False, relative_device)
        is_baseline = record.id == baseline
        found.append(
            Choice(
                record,
                visit,
                baseline=is_baseline,
                default=is_baseline and reason is None,
                reason=None if reason is None else f"{reason[0].upper()}{reason[1:]}.",
                caution=None
                if reason is not None
                else _caution(visit, record.id in tests.unreliable, quiet),
            )
        )
    return sorted(found, key=lambda one: (not one.default, one.reason is not None))


def _caution(visit: Visit, unreliable: bool, quiet: int) -> str | None:
    """What to know before an exam is compared with."""
    if unreliable:
        return CAUTION
    if too_soon(visit.checklist, quiet):
        return (
            f"Only {visit.checklist[HOURS]:g} hours after noise: a baseline has {quiet} hours "
            "without it "
            "(29 CFR 1910.95(g)(5); hearing protectors may take their place)."
        )
    return None


def baseline_exam(tests: EarTests, relative_device: int | None = None) -> int | None:
    """The exam that is an ear's baseline: the one chosen last, or the oldest usable one."""
    if tests.chosen is not None:
        return tests.chosen.exam_id
    usable, _ = _usable(tests, False, relative_device)
    return usable[0].id if usable else None


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
            reason = "it belongs to another person"
        elif ear not in record.ears:
            reason = f"it is of the {record.ear} ear, and ears are never mixed"
        if reason is not None:
            raise Conflict("{exam} cannot be the reference: " + reason, exam=exam_id)
        return record.of(ear)
    chosen = store.baseline(person_id, ear)
    if chosen is not None:
        record = store.exam(chosen.exam_id).of(ear)
        reason = _why_no_reference(record, store.visit(record.visit_id), simulated, relative_device)
        if reason is not None:
            raise Conflict(
                f"the baseline of the {ear} ear, {{exam}}, cannot be used here: {reason}",
                code="baseline-unusable",
                exam=record.id,
            )
        return record
    usable, reasons = references(
        store, person_id, ear, simulated=simulated, relative_device=relative_device
    )
    if usable:
        return usable[0]
    named: dict[str, Any] = {f"exam_{place}": number for place, (number, _) in enumerate(reasons)}
    why = "; ".join(f"{{exam_{place}}}: {reason}" for place, (_, reason) in enumerate(reasons))
    raise Conflict(
        f"{{person}} has no full exam or imported audiogram of the {ear} ear to compare with"
        + (f" ({why})" if why else ""),
        code="no-reference",
        person=person_id,
        **named,
    )


def references(
    store: Store,
    person_id: int,
    ear: str,
    *,
    simulated: bool = False,
    relative_device: int | None = None,
) -> tuple[list[ExamRecord], list[tuple[int, str]]]:
    """All that this ear can be compared with, as they were measured, and why not the others.

    The others are pairs of an exam and a reason.
    """
    return _usable(ear_tests(store, person_id, ear), simulated, relative_device)


def _usable(
    tests: EarTests, simulated: bool, relative_device: int | None
) -> tuple[list[ExamRecord], list[tuple[int, str]]]:
    usable, reasons = [], []
    for record in tests.records:
        visit = tests.visits[record.visit_id]
        reason = _why_no_reference(record, visit, simulated, relative_device)
        if reason is None and record.id in tests.unreliable:
            reason = f"{UNRELIABLE}: it is used only if it is chosen"
        if reason is None:
            usable.append(record)
        elif record.kind != "screen":
            reasons.append((record.id, reason))
    return usable, reasons


def _why_no_reference(
    record: ExamRecord, visit: Visit, simulated: bool, relative_device: int | None = None
) -> str | None:
    if visit.mode == "simulated" and not simulated:
        return "its answers were simulated"
    if relative_device is not None and not (record.relative and visit.device_id == relative_device):
        return "uncalibrated levels can only be compared on the same device"
    if relative_device is None and record.relative:
        return "its levels are relative to an uncalibrated device"
    if record.kind == "audiogram":
        return None
    if record.kind != "exam":
        return "a screen is not a full exam"
    return None if record.state == "done" else f"it is {record.state} and not a full exam"


def as_reference(store: Store, record: ExamRecord) -> Exam | Audiogram:
    """A stored full exam or audiogram as a screen of the record's ear takes it."""
    if record.kind == "audiogram":
        return Audiogram.from_dict(record.design)
    procedure = rebuild(record, (*carried_trials(store, record), *store.trials(record.id)))
    assert isinstance(procedure, Exam)
    return procedure if procedure.ears is None else procedure.of(record.ear)
