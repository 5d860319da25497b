"""An exam or screen made ready for a stored person: nothing is stored before it is opened."""

import secrets
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from datetime import date
from typing import Any

from earshift import __version__
from earshift.clinic.devices import compare_devices
from earshift.clinic.rebuild import rebuild
from earshift.clinic.references import as_reference, reference_for, references
from earshift.days import today as local_today
from earshift.devices.delivery import Delivery
from earshift.engine.audiogram import Audiogram
from earshift.engine.exam import Exam
from earshift.engine.limits import Limits
from earshift.engine.protocol import Protocol
from earshift.engine.reference import audiogram_of
from earshift.engine.refusal import Conflict, Refusal
from earshift.engine.rule_settings import RuleSettings
from earshift.engine.rules import Rule
from earshift.engine.screen import Screen
from earshift.engine.values import EARS
from earshift.engine.verdict import NOTCH
from earshift.records import ExamRecord, Visit
from earshift.store import Store

EXAM_TONES = 50
CLINIC_RULE = "osha-sts"


@dataclass(frozen=True)
class Plan:
    """An exam or screen of one ear that is fit to be begun; nothing is stored yet."""

    ear: str
    procedure: Exam | Screen
    reference_exam_id: int | None = None
    delivery: Delivery = dataclass_field(default_factory=Delivery)


def plan_exam(
    ear: str,
    *,
    delivery: Delivery | None = None,
    limits: Limits | None = None,
    seed: int | None = None,
    max_tones: int = EXAM_TONES,
) -> Plan:
    """A full exam of one ear."""
    delivery = delivery or Delivery()
    exam = Exam.clinical(
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
    reference: int | None = None,
    simulated: bool = False,
    device_id: int | None = None,
    delivery: Delivery | None = None,
    limits: Limits | None = None,
    seed: int | None = None,
    max_tones: int | None = None,
    today: date | None = None,
) -> Plan:
    """A screen of one ear against its stored reference; by default for the clinic's rule.

    What is known of the other ear keeps the screen from tones that it might hear, and a device that
    is not the reference's widens what may be the device's doing.
    """
    if rule is None and protocol is None:
        rule = CLINIC_RULE
    delivery = delivery or Delivery()
    own_device = device_id if delivery.relative else None
    record = reference_for(
        store,
        person_id,
        checked_ear(ear),
        reference,
        simulated=simulated,
        relative_device=own_device,
    )
    today = local_today() if today is None else today
    offset, comparison = compare_devices(store, record, device_id, delivery.relative, today)
    if simulated:  # nobody's ears and nobody's device
        offset, comparison = 0.0, ""
    screen = Screen(
        as_reference(store, record),
        protocol,
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
    return Plan(ear, screen, record.id, replace(delivery, remarks=remarks))


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
    """A screen of one ear for a notch around 3-6 kHz. It asks of today alone: no reference."""
    delivery = delivery or Delivery()
    own_device = device_id if delivery.relative else None
    screen = Screen(
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
    """The full exam of an ear that begins with every tone of its screen."""
    procedure = rebuild(screen, store.trials(screen.id))
    if not isinstance(procedure, Screen):
        raise Conflict("{exam} is already a full exam", exam=screen.id)
    delivery = replace(
        Delivery.from_dict(screen.delivery), continues=screen.id, loud_confirmed=False
    )
    data = procedure.continue_exam(EXAM_TONES).to_dict()
    data["design"]["limits"] = _limits_of_its_own(delivery, screen.ear)
    return Plan(screen.ear, Exam.from_dict(data), delivery=delivery)


def plan_again(store: Store, record: ExamRecord) -> Plan:
    """The same exam of the same ear once more, with other chance: an immediate retest."""
    delivery = replace(Delivery.from_dict(record.delivery), continues=None, loud_confirmed=False)
    own = {"limits": _limits_of_its_own(delivery, record.ear), "seed": _seed(None)}
    again = rebuild(replace(record, design={**record.design, **own}), ())
    return Plan(record.ear, again, record.reference_exam_id, delivery)


def _limits_of_its_own(delivery: Delivery, ear: str) -> dict[str, Any]:
    """As a design keeps them: louder tones are confirmed for one exam, not for the next."""
    return delivery.limits(ear).to_dict()


def _other_ear(
    store: Store, person_id: int, ear: str, simulated: bool, relative_device: int | None
) -> Audiogram | None:
    """The newest thresholds of the other ear, if there are any."""
    other = EARS[1 - EARS.index(ear)]
    usable, _ = references(
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
    return {
        "ear": plan.ear,
        "kind": plan.procedure.kind,
        "design": plan.procedure.to_dict()["design"],
        "engine_version": __version__,
        "reference_exam_id": plan.reference_exam_id,
        "delivery": plan.delivery.to_dict(),
    }


def checked_ear(ear: str) -> str:
    if ear not in EARS:
        raise Refusal(f"ear must be {' or '.join(EARS)}", got=ear)
    return ear


def _seed(seed: int | None) -> int:
    # Without a given seed every exam has its own, so that nobody learns where the silence comes.
    return secrets.randbelow(2**31) if seed is None else seed
