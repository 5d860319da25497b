"""The daily check of a device, tone by tone, its history, and what the device can play."""

import random
from http import HTTPStatus

from fastapi import APIRouter

from earshift.clinic import daily_check
from earshift.clinic.daily_check import GuidedCheck, Progress
from earshift.clinic.devices import device_today, playable_hz
from earshift.clinic.people import find_person
from earshift.devices import calibration
from earshift.devices.delivery import Delivery
from earshift.engine.values import EARS
from earshift.web import check_models as cm
from earshift.web import models as m
from earshift.web import views
from earshift.web.here import Here
from earshift.web.identity import Examiner

router = APIRouter(prefix="/api/devices/{device}")

SHOWN = 90  # of the past checks


@router.get("/range")
def playable_range(device: m.Id, here: Here, _: Examiner) -> cm.PlayableRange:
    """What can be played at each frequency today; an audiometer by hand has a range of its own."""
    now = device_today(here.store, here.device(device), here.today)
    rows = [
        cm.Playable(frequency_hz=hz, **{ear: now.playable(ear, hz) for ear in EARS})
        for hz in playable_hz(now)
    ]
    return cm.PlayableRange(unit=now.unit, rows=rows)


@router.get("/checks")
def past_checks(device: m.Id, here: Here, user: Examiner) -> cm.Checks:
    """The newest daily checks, and whose usual thresholds are known."""
    found = here.device(device)
    here.viewed(user, f"devices:{found.id}", what="daily checks")
    past = daily_check.past_checks(here.store, found)
    return cm.Checks(
        listeners=[
            cm.KnownListener(name=one.listener, since=one.since, known=bool(one.levels))
            for one in daily_check.known_listeners(here.store, found)
        ],
        count=len(past),
        newest=[
            cm.CheckShown(
                on=one.on,
                listener=one.listener,
                worst_db=one.worst_db,
                failed=one.failed,
                deviations_db={
                    ear: {f"{hz:g}": value for hz, value in of_ear.items()}
                    for ear, of_ear in one.deviations_db.items()
                },
            )
            for one in past[-SHOWN:]
        ],
    )


@router.post("/checks/listeners", status_code=HTTPStatus.CREATED)
def add_listener(device: m.Id, new: cm.NewListener, here: Here, user: Examiner) -> cm.KnownListener:
    """Let somebody's stored audiograms say what is usual for them."""
    known = daily_check.know_by_audiogram(
        here.store,
        here.device(device),
        new.listener,
        find_person(here.store, new.person),
        author=user.name,
        today=here.today,
    )
    return cm.KnownListener(name=known.listener, since=known.since, known=True)


@router.post("/checks/guided")
def guide(device: m.Id, asked: cm.GuidedAsked, here: Here, _: Examiner) -> cm.GuidedStep:
    """What to play after these answers. Nothing is stored."""
    check = _check(device, asked, here)
    progress = check.after(asked.heard)
    return cm.GuidedStep(
        conditions=check.conditions,
        establishes=check.usual is None,
        since=None if check.usual is None else check.usual.since,
        over=progress.level is None,
        play=_play(check, progress, len(asked.heard)),
        points=_points(check, progress),
    )


@router.post("/checks/guided/save", status_code=HTTPStatus.CREATED)
def save_guided(device: m.Id, asked: cm.GuidedAsked, here: Here, user: Examiner) -> cm.GuidedSaved:
    """Store what a walk that is over has found."""
    check = _check(device, asked, here)
    stored = daily_check.record_guided(here.store, check, asked.heard, author=user.name)
    return cm.GuidedSaved(
        establishes=check.usual is None,
        failed=calibration.check_fails(stored.table.get("deviations_db", {})),
        device=views.device(here.store, check.now.device, here.today),
    )


def _check(device: str, asked: cm.GuidedAsked, here: Here) -> GuidedCheck:
    check = daily_check.guided_check(
        here.store, here.device(device), here.today, asked.listener, anew=asked.anew
    )
    check.require(asked.conditions)
    return check


def _play(check: GuidedCheck, progress: Progress, answered: int) -> m.Play:
    delivery = Delivery(sound=check.now.sound)
    point, level = progress.point, progress.level
    presentation = None
    if point is not None and level is not None:
        sound, timing = delivery.sound, delivery.timing
        presentation = m.PresentationShown(
            trial=answered + 1,
            practice=False,
            ear=point.ear,
            frequency_hz=point.frequency_hz,
            level=level,
            dbfs=None if sound is None else sound.dbfs(point.ear, point.frequency_hz, level),
            gap_ms=round(random.uniform(timing.gap_min_ms, timing.gap_max_ms)),
        )
    ear = EARS[-1] if point is None else point.ear
    return m.Play(
        state="over" if point is None else "play",
        exam=m.Counted(now=EARS.index(ear) + 1, of=len(EARS)),
        ear=ear,
        sound=views.sound(delivery),
        timing=m.TimingAsked(**delivery.timing.to_dict()),
        progress=m.Progress(answered=progress.done, at_most=len(check.points)),
        presentation=presentation,
    )


def _points(check: GuidedCheck, progress: Progress) -> list[cm.CheckPoint]:
    deviations = check.deviations(progress)
    usual = {} if check.usual is None else check.usual.levels
    return [
        cm.CheckPoint(
            ear=one.ear,
            frequency_hz=one.frequency_hz,
            usual=usual.get(one.ear, {}).get(one.frequency_hz),
            found=progress.found.get(one.ear, {}).get(one.frequency_hz),
            deviation_db=(off := deviations.get(one.ear, {}).get(one.frequency_hz)),
            fails=off is not None and calibration.check_fails({one.ear: {"": off}}),
            unclear=one in progress.unclear,
        )
        for one in check.points
    ]
