"""Tests: planned and opened for all of their ears, or for none."""

from http import HTTPStatus

from fastapi import APIRouter

from earshift.clinic.begin import Wanted, plan_test
from earshift.clinic.checklist import cautions, quiet_hours
from earshift.clinic.devices import delivery_on, device_today
from earshift.clinic.plan import stored_plan
from earshift.devices.sound import Timing
from earshift.web import models as m
from earshift.web.here import Here
from earshift.web.identity import Examiner
from earshift.web.routes.exams import opened

router = APIRouter(prefix="/api")


@router.post("/checklist/cautions")
def checklist_cautions(given: m.Checklist, here: Here, user: Examiner) -> list[str]:
    """What a checklist says against a result, before there is one. Nothing is stored."""
    answers = given.model_dump(exclude_none=True)
    return [one.text for one in cautions(answers, quiet_hours(here.store))]


@router.post("/people/{person}/tests", status_code=HTTPStatus.CREATED)
def begin_test(person: m.Id, new: m.NewTest, here: Here, user: Examiner) -> m.Test:
    """Plan and open the exams of one test: all of its ears, or none."""
    found = here.person(person)
    device = None if new.device is None else here.device(new.device)
    delivery = delivery_on(
        None if device is None else device_today(here.store, device, here.today),
        accept_calibration=new.accept_calibration,
        answered_by=new.answered_by,
        mode=new.mode,
        timing=None if new.timing is None else Timing(**new.timing.model_dump()),
        loud_confirmed=new.loud_confirmed,
        practice=new.practice,
    )
    wanted = Wanted(
        kind=new.kind,
        ears=tuple(dict.fromkeys(new.ears)),
        rule=new.rule,
        protocol=new.protocol,
        notch=new.notch,
        references={ear: here.row("exams", exam) for ear, exam in (new.reference or {}).items()},
        accept_unverified=new.accept_unverified,
    )
    device_id = None if device is None else device.id
    plans = plan_test(
        here.store, found.id, wanted, delivery=delivery, today=here.today, device_id=device_id
    )
    visit, exams = here.store.open_test(
        found.id,
        [stored_plan(plan) for plan in plans],
        author=user.name,
        zone=here.settings.zone,
        mode=new.mode,
        device_id=device_id,
        checklist=new.checklist.model_dump(exclude_none=True),
    )
    return m.Test(
        visit=here.store.handle("visits", visit.id),
        exams=[opened(here, *both, user.name) for both in zip(exams, plans, strict=True)],
        warnings=list(delivery.remarks),
    )
