"""How a test begins: the same checks for the browser and the command line, before anything is
stored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date

from earshift.clinic.devices import require_same_conditions
from earshift.clinic.people import require_none_unfinished
from earshift.clinic.plan import (
    EXAM_TONES,
    Plan,
    checked_ear,
    open_exam,
    plan_exam,
    plan_notch,
    plan_screen,
)
from earshift.days import local_day
from earshift.devices.delivery import Delivery
from earshift.engine.limits import Limits
from earshift.engine.protocol import PROTOCOLS
from earshift.engine.refusal import Conflict
from earshift.engine.rules import RULES, Rule, unverified_note
from earshift.engine.screen import Screen
from earshift.engine.values import BOTH, EARS
from earshift.engine.verdict import NOTCH
from earshift.records import ExamRecord
from earshift.store import Store


@dataclass(frozen=True)
class Wanted:
    """What an examiner wants to test."""

    kind: str  # screen or exam
    ears: tuple[str, ...]  # one after the other; or "both" alone, in one sitting
    rule: str | None = None
    protocol: str | None = None
    notch: bool = False  # is there a notch around 3-6 kHz? Needs no reference
    references: Mapping[str, int] = field(default_factory=dict)  # exam by ear; else the baseline
    accept_unverified: bool = False  # the examiner's consent to a rule that is not verified
    seed: int | None = None
    max_tones: int | None = None
    limits: Limits | None = None  # else the delivery's own


@dataclass(frozen=True)
class LastTest:
    """How somebody was tested last, to be tested so again."""

    on: date
    kind: str
    ears: tuple[str, ...]
    rule: str | None
    notch: bool
    device_id: int | None
    mode: str
    answered_by: str


def last_test(store: Store, person_id: int) -> LastTest | None:
    """The newest visit with tones of a real person: what was asked, of which ears, and how."""
    exams = [one for one in store.exams(person_id) if one.kind != "audiogram"]
    for exam in reversed(exams):
        visit = store.visit(exam.visit_id)
        if visit.mode == "simulated":
            continue
        of_visit = [one for one in exams if one.visit_id == visit.id and one.kind == exam.kind]
        rules = exam.design.get("rules") or [exam.design.get("rule")]
        return LastTest(
            on=local_day(visit.started_at, visit.zone),
            kind=exam.kind,
            ears=tuple(ear for ear in (*EARS, BOTH) if any(one.ear == ear for one in of_visit)),
            rule=(rules[0] or {}).get("name"),
            notch=exam.design.get("hypotheses") == NOTCH,
            device_id=visit.device_id,
            mode=visit.mode,
            answered_by=Delivery.from_dict(exam.delivery).answered_by,
        )
    return None


def plan_test(
    store: Store,
    person_id: int,
    wanted: Wanted,
    *,
    delivery: Delivery,
    today: date,
    device_id: int | None = None,
    simulated: bool = False,
    set_aside: bool = False,
) -> list[Plan]:
    """The exams of one test, all of its ears or none; nothing is stored yet.

    An ear has one unfinished exam at a time, unless the old one is to be `set_aside`.
    """
    if BOTH in wanted.ears and len(wanted.ears) > 1:
        raise Conflict("both ears in one sitting are one exam: name no other ear", got=wanted.ears)
    for ear in wanted.ears:
        checked_ear(ear)
        if not set_aside:
            require_none_unfinished(store, person_id, ear, simulated=simulated)
    if wanted.kind == "exam":
        if wanted.notch:
            raise Conflict("a notch is looked for by a screen, not by a full exam")
        most = EXAM_TONES if wanted.max_tones is None else wanted.max_tones
        return [
            plan_exam(
                ear, delivery=delivery, limits=wanted.limits, seed=wanted.seed, max_tones=most
            )
            for ear in wanted.ears
        ]
    if wanted.notch:
        return _plan_notches(store, person_id, wanted, delivery, device_id, simulated)
    rule = _question(wanted)
    plans = [
        plan_screen(
            store,
            person_id,
            ear,
            rule=rule,
            protocol=wanted.protocol,
            reference=wanted.references,
            simulated=simulated,
            device_id=device_id,
            delivery=delivery,
            limits=wanted.limits,
            seed=wanted.seed,
            max_tones=wanted.max_tones,
            today=today,
        )
        for ear in wanted.ears
    ]
    for plan in plans:
        _require_undecided(plan)
    return plans


def _plan_notches(
    store: Store,
    person_id: int,
    wanted: Wanted,
    delivery: Delivery,
    device_id: int | None,
    simulated: bool,
) -> list[Plan]:
    if wanted.rule is not None or wanted.protocol is not None:
        raise Conflict("a notch is a question of its own: give no rule and no protocol with it")
    if wanted.references:
        raise Conflict("a notch is looked for in today's answers alone: give no reference")
    return [
        plan_notch(
            store,
            person_id,
            ear,
            simulated=simulated,
            device_id=device_id,
            delivery=delivery,
            limits=wanted.limits,
            seed=wanted.seed,
            max_tones=wanted.max_tones,
        )
        for ear in wanted.ears
    ]


def _question(wanted: Wanted) -> Rule | None:
    """The rule that is asked about; none when a protocol asks for any change at all."""
    if wanted.rule is not None and wanted.protocol is not None:
        raise Conflict("give a rule or a protocol, not both: they ask different questions")
    if wanted.protocol is not None and wanted.protocol not in PROTOCOLS:
        raise Conflict(f"the protocol must be one of {', '.join(PROTOCOLS)}", got=wanted.protocol)
    if wanted.rule is None:
        return None
    if wanted.rule not in RULES:
        known = [name for name, rule in RULES.items() if wanted.accept_unverified or rule.verified]
        raise Conflict(f"the rule must be one of {', '.join(known)}", got=wanted.rule)
    rule = RULES[wanted.rule]
    note = unverified_note(rule)
    if note is not None and not wanted.accept_unverified:
        raise Conflict(note, code="unverified-rule")
    return rule


def _require_undecided(plan: Plan) -> None:
    """A screen that can say nothing more than it says now is not worth a visit."""
    screen = plan.procedure
    if isinstance(screen, Screen) and screen.done:
        whose = "both ears" if plan.ear == BOTH else f"{plan.ear} ear"
        raise Conflict(f"{whose}: {screen.verdict()}", code="decided-before")


def require_by_hand(record: ExamRecord) -> None:
    """Refuse to present an exam by hand that a device plays in its browser."""
    if Delivery.from_dict(record.delivery).sound is not None:
        raise Conflict(
            "{exam} is played by a browser device", code="plays-in-browser", exam=record.id
        )


def begin_follow_up(
    store: Store,
    record: ExamRecord,
    plan: Callable[[Store, ExamRecord], Plan],
    *,
    today: date,
    author: str,
) -> tuple[ExamRecord, Plan]:
    """Open a retest or a continuation of a finished exam, in the same visit and conditions."""
    if record.state not in ("done", "abandoned"):
        raise Conflict("{exam} is not finished yet", exam=record.id)
    visit = store.visit(record.visit_id)
    require_same_conditions(store, record, today)
    planned = plan(store, record)
    require_none_unfinished(store, visit.person_id, planned.ear)
    return open_exam(store, visit, planned, author=author), planned
