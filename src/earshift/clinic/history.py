"""Serial monitoring: all exams of an ear against its baseline, and when to revise that.

A baseline is an ear's own. It is the oldest full exam or audiogram until somebody chooses another
one, with a name and a reason; every occasion is compared with the baseline that was in force then,
so that a revision changes nothing that was said before. What the rules leave to a professional
(29 CFR 1910.95(g)(9): a persistent shift, a significant improvement) is proposed here and never
done.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import TYPE_CHECKING

import numpy as np

from earshift.clinic.devices import compare_devices
from earshift.clinic.levels import levels_shown
from earshift.clinic.plan import CLINIC_RULE
from earshift.clinic.references import reference_for, references
from earshift.days import local_day
from earshift.engine.audiogram import Audiogram
from earshift.engine.refusal import Refusal
from earshift.engine.rules import Rule, as_rule, judge_ear, rule_title
from earshift.engine.values import EARS
from earshift.records import Baseline, ExamRecord, ResultRecord, Visit, measured_or_entered_at

if TYPE_CHECKING:
    from earshift.store import Store

PERSISTENT, IMPROVED = "persistent shift", "improvement"
UNDATED = "the date is unknown; this is when it was imported"


@dataclass(frozen=True)
class Occasion:
    """One exam, screen or audiogram of an ear, and what it says against the baseline of its time.

    `decision` is None for the baseline itself and for what could not be compared; `note` says why.
    A screen's verdict is the one that was shown at its end, against the exam it was given then. A
    full exam or audiogram is judged by the rule on its thresholds as shown, like what is signed.
    """

    exam_id: int
    kind: str  # one of EXAM_KINDS
    at: datetime
    day: date  # at the site
    against: int | None = None  # the exam it was compared with
    rule: str | None = None
    decision: str | None = None
    p_changed: float | None = None  # of a screen; full exams are compared by their thresholds
    shifts_db: tuple[tuple[float, float], ...] = ()  # frequency in Hz, worse is positive
    inferred_hz: tuple[float, ...] = ()  # of these, where no tone was given
    note: str = ""


@dataclass(frozen=True)
class Proposal:
    """A reason to revise the baseline, for a professional to judge."""

    reason: str  # PERSISTENT or IMPROVED
    exam_id: int | None  # what could become the baseline; none until a full exam is made
    words: str


@dataclass(frozen=True)
class EarHistory:
    """An ear over time."""

    ear: str
    rule: str
    baseline: int | None  # the exam that the next one is compared with
    chosen: tuple[Baseline, ...]  # by whom, when and why; empty: nobody chose, the oldest counts
    occasions: tuple[Occasion, ...]
    proposal: Proposal | None


def propose(occasions: Sequence[Occasion], rule: Rule, baseline: int | None) -> Proposal | None:
    """Whether the occasions so far are a reason to revise the baseline.

    Persistent: the rule was met on the two newest days on which it could be decided. Improved: at
    the newest full exam the ear is better by as much as the rule asks for the worse. (The
    regulation gives no number for a significant improvement; this one is ours.)
    """
    judged = [
        o
        for o in occasions
        if o.against == baseline and o.rule == rule.name and o.decision in ("changed", "unchanged")
    ]
    if not judged:
        return None
    newest = judged[-1]
    before = [o for o in judged if o.day < newest.day]
    if newest.decision == "changed" and before and before[-1].decision == "changed":
        first = before[-1]
        full = [o.exam_id for o in judged if o.day >= first.day and _is_full(o)]
        exam_id = full[-1] if full else None
        step = (
            "the newest full exam could become the baseline"
            if exam_id is not None
            else "a full exam is needed before the baseline can be revised"
        )
        return Proposal(
            PERSISTENT,
            exam_id,
            f"The {rule_title(rule.name)} rule was met on {first.day} and again on {newest.day}: "
            f"a persistent shift, if a professional agrees; {step}.",
        )
    measured = [o for o in judged if _is_full(o)]
    if measured and _better(measured[-1], rule):
        return Proposal(
            IMPROVED,
            measured[-1].exam_id,
            "The newest full exam is better than the baseline by at least the shift that the "
            f"{rule_title(rule.name)} rule requires: it could become the baseline, if a "
            "professional agrees.",
        )
    return None


def _is_full(occasion: Occasion) -> bool:
    return occasion.kind in ("exam", "audiogram")


def _better(occasion: Occasion, rule: Rule) -> bool:
    known = dict(occasion.shifts_db)
    if not all(f in known for f in rule.frequencies_hz):
        return False
    return bool(rule.margin(-np.array([known[f] for f in rule.frequencies_hz])) >= 0)


def ear_history(
    store: "Store", person_id: int, ear: str, rule: str | Rule = CLINIC_RULE
) -> EarHistory:
    """All finished exams, screens and audiograms of an ear in the order they were measured.

    Simulated answers are nobody's hearing and not among them.
    """
    wanted = as_rule(rule)
    _require_one(ear)
    chosen = tuple(b for b in store.baselines(person_id) if b.ear == ear)
    usable, _ = references(store, person_id, ear)
    oldest = usable[0] if usable else None
    known: dict[int, ExamRecord] = {record.id: record for record in usable}
    records = store.exams(person_id, ear=ear)
    results = store.newest_results({record.id for record in records})
    visits = store.visits_of({record.visit_id for record in records})
    occasions = []
    for record in records:
        seen = visits[record.visit_id]
        if seen.mode == "simulated" or record.state != "done":
            continue
        at = measured_or_entered_at(record, seen)
        # A choice counts from the moment it was made; an imported audiogram was measured before.
        earlier = [b for b in chosen if b.at <= max(at, seen.started_at)]
        baseline = known.get(earlier[-1].exam_id) if earlier else oldest
        occasions.append(_occasion(store, record, baseline, wanted, visits, results))
    in_force = chosen[-1].exam_id if chosen else None if oldest is None else oldest.id
    return EarHistory(
        ear, wanted.name, in_force, chosen, tuple(occasions), propose(occasions, wanted, in_force)
    )


def _require_one(ear: str) -> None:
    if ear not in EARS:
        raise Refusal(f"ear must be {' or '.join(EARS)}", got=ear)


def _occasion(
    store: "Store",
    record: ExamRecord,
    baseline: ExamRecord | None,
    rule: Rule,
    visits: Mapping[int, Visit],
    results: Mapping[int, ResultRecord],
) -> Occasion:
    seen = visits[record.visit_id]
    at = measured_or_entered_at(record, seen)
    day = local_day(at, seen.zone)
    undated = record.kind == "audiogram" and record.measured_at is None
    plain = Occasion(record.id, record.kind, at, day, note=UNDATED if undated else "")
    if record.kind == "screen":
        return _as_shown(record, results.get(record.id), plain)
    if baseline is None:
        return _noted(plain, "there is nothing to compare it with")
    if baseline.id == record.id:
        return _noted(plain, "the baseline")
    if measured_or_entered_at(baseline, visits[baseline.visit_id]) > at:
        return _noted(plain, "measured before the baseline")
    try:
        _, words = compare_devices(store, baseline, seen.device_id, record.relative, day)
        before, now = (_levels(one, results.get(one.id)) for one in (baseline, record))
        finding = judge_ear(rule, before, now)
    except Refusal as refusal:  # an occasion that cannot be compared is still an occasion
        return _noted(plain, refusal.sentence)
    shifts = {**_shifts(before, now), **finding.shifts_db}
    return replace(
        _noted(plain, words),
        against=baseline.id,
        rule=rule.name,
        decision=finding.decision,
        shifts_db=tuple(sorted(shifts.items())),
        inferred_hz=_inferred(results.get(record.id), record.ear, shifts),
    )


def _noted(occasion: Occasion, note: str) -> Occasion:
    return replace(occasion, note="; ".join(filter(None, (occasion.note, note))))


def _levels(record: ExamRecord, result: ResultRecord | None) -> Audiogram:
    """The thresholds of a full exam or an audiogram, as they were shown."""
    if record.kind == "audiogram":
        return Audiogram.from_dict(record.design)
    found = None if result is None else levels_shown(result.of(record.ear).shown)
    if found is None:
        raise Refusal("it ended without a result")
    return found


def _shifts(before: Audiogram, now: Audiogram) -> dict[float, float]:
    """At every frequency that has a threshold in both."""
    offset = now.method_offset_db - before.method_offset_db
    return {
        f: level - before.thresholds_db_hl[f] - offset
        for f, level in now.thresholds_db_hl.items()
        if f in before.thresholds_db_hl
    }


def _as_shown(record: ExamRecord, result: ResultRecord | None, plain: Occasion) -> Occasion:
    verdict = None if result is None else result.of(record.ear).shown["verdict"]
    if verdict is None:
        return _noted(plain, "it ended without a result")
    return replace(
        plain,
        against=record.reference_exam_id,
        rule=verdict["rule"],
        decision=verdict["decision"],
        p_changed=verdict["p_changed"],
        shifts_db=tuple((s["frequency_hz"], s["shift_db"]) for s in verdict["shifts"]),
        inferred_hz=_inferred(result, record.ear, [s["frequency_hz"] for s in verdict["shifts"]]),
    )


def _inferred(
    result: ResultRecord | None, ear: str, frequencies_hz: Iterable[float]
) -> tuple[float, ...]:
    """Where a result has no tones; audiograms have none at all, and older results do not say."""
    tested_hz = None if result is None else result.of(ear).shown.get("tested_hz")
    return tuple(f for f in frequencies_hz if tested_hz is not None and f not in tested_hz)


def revise_baseline(
    store: "Store", person_id: int, ear: str, exam_id: int, *, author: str, reason: str
) -> Baseline:
    """Choose the exam that an ear is compared with from now on: a professional's decision."""
    if not isinstance(reason, str) or not reason.strip():
        raise Refusal("choosing a baseline needs a reason")
    _require_one(ear)
    record = reference_for(
        store, person_id, ear, exam_id, relative_device=_own_device(store, exam_id)
    )
    return store.set_baseline(person_id, ear, record.id, author=author, reason=reason)


def _own_device(store: "Store", exam_id: int) -> int | None:
    """The device of an exam whose levels compare with its own alone."""
    record = store.exam(exam_id)
    return store.visit(record.visit_id).device_id if record.relative else None
