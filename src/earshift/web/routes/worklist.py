"""The day: who has to be tested, and which devices need attention."""

from fastapi import APIRouter

from earshift.clinic import worklist as day
from earshift.web import models as m
from earshift.web import views
from earshift.web.here import Clinic, Here
from earshift.web.identity import Examiner

router = APIRouter(prefix="/api")


@router.get("/worklist")
def worklist(here: Here, user: Examiner) -> m.Worklist:
    """Who has to be tested: unfinished exams, retests of changed ears, tests that are due."""
    here.viewed(user, "worklist")
    devices = day.devices_to_see_to(here.store, here.today)
    return m.Worklist(
        today=here.today,
        items=[_item(here, task) for task in day.worklist(here.store)],
        devices=[views.device(here.store, one.device, here.today) for one in devices],
    )


def _item(here: Clinic, task: day.Task) -> m.WorkItem:
    return m.WorkItem(
        person=views.person(here.store, task.person),
        why=task.why,
        on=task.on,
        exam=None if task.exam is None else views.summary(here.store, task.exam),
    )
