"""Who has to be tested: unfinished exams, retests of changed ears, tests that are due."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from earshift.clinic.devices import DeviceToday, device_today
from earshift.days import local_day
from earshift.records import ExamRecord, Person
from earshift.store import Store

DUE_AFTER = timedelta(days=365)  # 29 CFR 1910.95(g)(6): at least annually
RETEST_WITHIN = timedelta(days=30)  # 29 CFR 1904.10(b)(4)


@dataclass(frozen=True)
class Task:
    """One line of the worklist. `on` is the day of an unfinished exam, or when a test is due."""

    person: Person
    why: str  # unfinished, retest, due
    on: date
    exam: ExamRecord | None = None


def worklist(store: Store, now: datetime | None = None) -> list[Task]:
    """Unfinished exams first, then ears to be retested, then people whose yearly test is due."""
    now = datetime.now(UTC) if now is None else now
    since = now - RETEST_WITHIN
    tasks = [_task(store, exam, "unfinished") for exam in store.unfinished_exams(since=since)]
    tasks += [_task(store, exam, "retest", RETEST_WITHIN) for exam in to_retest(store, now)]
    tasks += [
        Task(person, "due", (last + DUE_AFTER).date())
        for person, last in store.people_tested_before(now - DUE_AFTER)
    ]
    return tasks


def _task(store: Store, exam: ExamRecord, why: str, within: timedelta = timedelta(0)) -> Task:
    visit = store.visit(exam.visit_id)
    on = local_day(visit.started_at, visit.zone) + within
    return Task(store.person(visit.person_id), why, on, exam)


def to_retest(store: Store, now: datetime) -> list[ExamRecord]:
    """Screens that found a change and that no later exam of the same ear has followed."""
    found = []
    for exam in store.screens_done_since(now - RETEST_WITHIN):
        results = store.results(exam.id)
        verdict = results[-1].shown["verdict"] if results else None
        if verdict is None or verdict["decision"] != "changed":
            continue
        visit = store.visit(exam.visit_id)
        later = [
            one
            for one in store.exams(visit.person_id, ear=exam.ear)
            if one.id > exam.id and one.state == "done" and one.kind != "audiogram"
        ]
        if not later:
            found.append(exam)
    return found


def devices_to_see_to(store: Store, today: date) -> list[DeviceToday]:
    """Devices that are blocked, expired or not checked today."""
    devices = [device_today(store, device, today) for device in store.devices()]
    return [device for device in devices if device.needs_attention]
