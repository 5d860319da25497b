"""An exam or screen made ready for a stored person: nothing is stored before it is opened."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from datetime import date
from typing import Any

from earshift import __version__
from earshift.clinic.devices import compare_devices
from earshift.clinic.rebuild import rebuild
from earshift.clinic.references import as_reference, reference_for
from earshift.clinic.references import references as usable_references
from earshift.days import today as local_today
from earshift.devices.delivery import Delivery
from earshift.engine.audiogram import Audiogram
from earshift.engine.ears import the_other
from earshift.engine.exam import Exam
from earshift.engine.field_exam import USUAL_TONES
from earshift.engine.limits import Limits
from earshift.engine.protocol import Protocol
from earshift.engine.reference import audiogram_of
from earshift.engine.refusal import Conflict, Refusal
from earshift.engine.rule_settings import RuleSettings
from earshift.engine.rules import Rule
from earshift.engine.screen import Screen
from earshift.engine.values import BOTH, EARS
from earshift.engine.verdict import NOTCH
from earshift.records import ExamRecord, Visit, visit_day
from earshift.store import Store

EXAM_TONES = USUAL_TONES  # 50, or 80 of both ears
CLINIC_RULE = "osha-sts"


@dataclass(frozen=True)
class Plan:
    """An exam or screen of one ear or of both that is fit to be begun; nothing is stored yet."""

    ear: str
    procedure: Exam | Screen
    references: Mapping[str, int] = dataclass_field(default_factory=dict)  # exam by ear
    delivery: Delivery = dataclass_field(default_factory=Delivery)


def plan_exam(
    ear: str,
    *,
    delivery: Delivery | None = None,
    limits: Limits | None = None,
    seed: int | None = None,
    max_tones: int = EXAM_TONES,
) -> Plan:
    """A full exam of one ear, or of both in one sitting."""
    delivery = delivery or Delivery()
    _require_one_loudness(ear, delivery)
    exam = Exam.clinical(
        ears=_sitting(ear),
        domain=delivery.domain,
        seed=_seed(seed),
        max_tones=max_tones,
        limits=limits or delivery.limits(checked_ear(ear)),
    )
    return Plan(checked_ear(ear), exam, delivery=delivery)


def plan_screen(
    store: Store,
    person_id: int,
    ear: str,
    *,
    rule: str | Rule | None = None,
    protocol: str | Protocol | None = None,
    reference: int | Mapping[str, int] | None = None,
    simulated: bool = False,
    device_id: int | None = None,
    delivery: Delivery | None = None,
    limits: Limits | None = None,
    seed: int | None = None,
    max_tones: int | None = None,
    today: date | None = None,
) -> Plan:
    """A screen of one ear, or of both, against stored references; by default for the clinic's rule.

    `reference` is the exam to compare with, of both ears each one's; else the baselines.

    What is known of the other ear keeps the screen from tones that it might hear, and a device that
    is not the reference's widens what may be the device's doing.
    """
    if rule is None and protocol is None:
        rule = CLINIC_RULE
    delivery = delivery or Delivery()
    _require_one_loudness(ear, delivery)
    own_device = device_id if delivery.relative else None
    chosen = reference if isinstance(reference, Mapping) else {ear: reference}
    found = _references(store, person_id, ear, chosen, simulated, own_device)
    today = local_today() if today is None else today
    compared = next(iter(found.values()))  # both ears' references are of one device
    offset, comparison = compare_devices(store, compared, device_id, delivery.relative, today)
    if simulated:  # nobody's ears and nobody's device
        offset, comparison = 0.0, ""
    given: dict[str, Any] = {one: as_reference(store, record) for one, record in found.items()}
    screen = Screen(
        given if ear == BOTH else given[ear],
        protocol,
        ears=_sitting(ear),
        rule=rule,
        allow_unverified=isinstance(rule, Rule),  # whoever made it one has agreed
        settings=None if rule is None else RuleSettings(device_offset_sd_db=offset),
        other_ear=_other_ear(store, person_id, ear, simulated, own_device),
        transducer="unknown" if device_id is None else store.device(device_id).transducer,
        seed=_seed(seed),
        max_tones=max_tones,
        domain=delivery.domain,
        limits=limits or delivery.limits(ear),
    )
    remarks = (comparison, *delivery.remarks) if comparison else delivery.remarks
    numbers = {one: record.id for one, record in found.items()}
    return Plan(ear, screen, numbers, replace(delivery, remarks=remarks))


def _references(
    store: Store,
    person_id: int,
    ear: str,
    chosen: Mapping[str, int | None],
    simulated: bool,
    relative_device: int | None,
) -> dict[str, ExamRecord]:
    """What each tested ear is compared with. In one sitting both ears share one device's levels."""
    found, missing = {}, {}
    for one in tested_ears(ear):
        try:
            found[one] = reference_for(
                store,
                person_id,
                one,
                chosen.get(one),
                simulated=simulated,
                relative_device=relative_device,
            )
        except Conflict as refusal:
            if ear != BOTH or refusal.code != "no-reference":
                raise
            missing[one] = refusal
    if len(missing) == 2:
        raise next(iter(missing.values()))
    for one in missing:
        raise Conflict(
            f"the {one} ear has nothing to be compared with: both ears cannot be screened in one "
            "sitting",
            code="one-reference",
            advice=f"screen the {the_other(one)} ear alone, and measure the {one} ear by a full "
            "exam",
        )
    devices = {
        None if one.kind == "audiogram" else store.visit(one.visit_id).device_id
        for one in found.values()
    }
    if len(devices) > 1:
        raise Conflict(
            "the references of the two ears were not measured with the same device: in one sitting "
            "their levels would pass for those of one",
            code="two-devices",
            advice="screen one ear after the other, or name references of one device",
        )
    return found


def plan_notch(
    store: Store,
    person_id: int,
    ear: str,
    *,
    simulated: bool = False,
    device_id: int | None = None,
    delivery: Delivery | None = None,
    limits: Limits | None = None,
    seed: int | None = None,
    max_tones: int | None = None,
) -> Plan:
    """A screen for a notch around 3-6 kHz, of one ear or both. It asks of today: no reference."""
    delivery = delivery or Delivery()
    _require_one_loudness(ear, delivery)
    own_device = device_id if delivery.relative else None
    screen = Screen(
        ears=_sitting(ear),
        hypotheses=NOTCH,
        other_ear=_other_ear(store, person_id, checked_ear(ear), simulated, own_device),
        transducer="unknown" if device_id is None else store.device(device_id).transducer,
        seed=_seed(seed),
        max_tones=max_tones,
        domain=delivery.domain,
        limits=limits or delivery.limits(ear),
    )
    return Plan(ear, screen, delivery=delivery)


def plan_continuation(store: Store, screen: ExamRecord) -> Plan:
    """The full exam of an ear, or of both, that begins with every tone of its screen."""
    procedure = rebuild(screen, store.trials(screen.id))
    if not isinstance(procedure, Screen):
        raise Conflict("{exam} is already a full exam", exam=screen.id)
    delivery = replace(
        Delivery.from_dict(screen.delivery),
        continues=screen.id,
        loud_confirmed=False,
        references=None,
    )
    data = procedure.continue_exam(EXAM_TONES).to_dict()
    data["design"]["limits"] = _limits_of_its_own(delivery, screen.ear)
    return Plan(screen.ear, Exam.from_dict(data), delivery=delivery)


def plan_again(store: Store, record: ExamRecord, ear: str | None = None) -> Plan:
    """The same exam once more, with other chance: an immediate retest.

    Of both ears, one that is named is tested alone.
    """
    delivery = replace(Delivery.from_dict(record.delivery), continues=None, loud_confirmed=False)
    if ear not in (None, record.ear):
        return _plan_one_again(store, record, ear, delivery)
    own = {"limits": _limits_of_its_own(delivery, record.ear), "seed": _seed(None)}
    again = rebuild(replace(record, design={**record.design, **own}), ())
    return Plan(record.ear, again, record.references, delivery)


def _plan_one_again(store: Store, record: ExamRecord, ear: str, delivery: Delivery) -> Plan:
    """The same question of one ear of a sitting of both."""
    if ear not in record.ears:
        raise Conflict(f"{{exam}} did not test the {ear} ear", exam=record.id)
    delivery = replace(delivery, references=None)
    before, visit = rebuild(record, ()), store.visit(record.visit_id)
    if isinstance(before, Exam):
        return plan_exam(ear, delivery=delivery)
    where: dict[str, Any] = {
        "simulated": visit.mode == "simulated",
        "device_id": visit.device_id,
        "delivery": delivery,
    }
    if before.hypotheses is not None:
        return plan_notch(store, visit.person_id, ear, **where)
    planned = plan_screen(
        store,
        visit.person_id,
        ear,
        rule=before.rule,
        protocol=None if before.rule is not None else before.protocol,
        reference=record.references,
        today=visit_day(visit),
        **where,
    )
    return replace(planned, delivery=delivery)  # which has said how the devices compare


def _limits_of_its_own(delivery: Delivery, ear: str) -> dict[str, Any]:
    """As a design keeps them: louder tones are confirmed for one exam, not for the next."""
    return delivery.limits(ear).to_dict()


def _other_ear(
    store: Store, person_id: int, ear: str, simulated: bool, relative_device: int | None
) -> Audiogram | None:
    """The newest thresholds of the other ear, if there are any and it is not tested itself."""
    if ear == BOTH:
        return None
    other = EARS[1 - EARS.index(ear)]
    usable, _ = usable_references(
        store, person_id, other, simulated=simulated, relative_device=relative_device
    )
    return audiogram_of(as_reference(store, usable[-1])) if usable else None


def open_exam(store: Store, visit: Visit, plan: Plan, *, author: str) -> ExamRecord:
    """Store a planned exam or screen; it is ready for its first answer.

    An ear has one unfinished exam at a time, also when two programs open one at once.
    """
    return store.open_exam(visit.id, author=author, alone=True, **stored_plan(plan))


def stored_plan(plan: Plan) -> dict[str, Any]:
    """A planned exam or screen as the store opens it."""
    delivery = plan.delivery
    if plan.ear == BOTH and plan.references:
        delivery = replace(delivery, references=dict(plan.references))
    return {
        "ear": plan.ear,
        "kind": plan.procedure.kind,
        "design": plan.procedure.to_dict()["design"],
        "engine_version": __version__,
        "reference_exam_id": plan.references.get(plan.ear),
        "delivery": delivery.to_dict(),
    }


def checked_ear(ear: str) -> str:
    if ear not in (*EARS, BOTH):
        raise Refusal(f"ear must be {', '.join(EARS)} or {BOTH}", got=ear)
    return ear


def tested_ears(ear: str) -> tuple[str, ...]:
    """The ears that an exam of this ear, or of both, tests."""
    return EARS if checked_ear(ear) == BOTH else (ear,)


def _sitting(ear: str) -> str | None:
    """As the engine says it: "both", or None for one ear."""
    return BOTH if checked_ear(ear) == BOTH else None


def _require_one_loudness(ear: str, delivery: Delivery) -> None:
    """Without calibration practice finds each ear's own loudness, and a sitting has but one."""
    if checked_ear(ear) == BOTH and delivery.relative:
        raise Conflict(
            "without calibration both ears cannot be tested in one sitting",
            code="needs-calibration",
            advice="test one ear after the other, or calibrate the device",
        )


def _seed(seed: int | None) -> int:
    # Without a given seed every exam has its own, so that nobody learns where the silence comes.
    return secrets.randbelow(2**31) if seed is None else seed
