"""Devices, their calibrations and daily checks; rules and reference levels to choose from."""

from http import HTTPStatus

from fastapi import APIRouter

from earshift.clinic.devices import (
    choose_default_device,
    default_device,
    record_calibration,
    record_check,
)
from earshift.devices.sound import retspl_presets
from earshift.engine import rules
from earshift.web import models as m
from earshift.web import views
from earshift.web.here import Here
from earshift.web.identity import Examiner

router = APIRouter(prefix="/api")


@router.get("/rules")
def list_rules(_: Examiner) -> list[m.RuleShown]:
    return [
        m.RuleShown(
            name=rule.name,
            text=rule.text,
            source=rule.source,
            unverified=rules.unverified_note(rule),
        )
        for rule in rules.RULES.values()
    ]


@router.get("/devices")
def list_devices(here: Here, _: Examiner) -> list[m.Device]:
    return [views.device(here.store, one, here.today) for one in here.store.devices()]


@router.post("/devices", status_code=HTTPStatus.CREATED)
def add_device(new: m.NewDevice, here: Here, user: Examiner) -> m.Device:
    """An audiometer, or with a fingerprint this browser with its earphones."""
    values = new.model_dump()
    values["fingerprint"] = values["fingerprint"] or {}
    added = here.store.add_device(author=user.name, **values)
    return views.device(here.store, added, here.today)


@router.get("/devices/{device}")
def show_device(device: m.Id, here: Here, _: Examiner) -> m.Device:
    return views.device(here.store, here.device(device), here.today)


@router.post("/devices/{device}/default")
def make_default(device: m.Id, wanted: m.DefaultDevice, here: Here, user: Examiner) -> m.Device:
    """Use this device unless another is chosen, or no longer."""
    found = here.device(device)
    chosen = found.id if wanted.default else None
    if wanted.default or default_device(here.store) == found.id:
        choose_default_device(here.store, chosen, author=user.name)
    return views.device(here.store, found, here.today)


@router.post("/devices/{device}/calibrations", status_code=HTTPStatus.CREATED)
def add_calibration(device: m.Id, new: m.NewCalibration, here: Here, user: Examiner) -> m.Device:
    """A laboratory's calibration. RETSPL belongs to the coupler that it was measured in."""
    found = here.device(device)
    record_calibration(here.store, found, author=user.name, today=here.today, **new.model_dump())
    return views.device(here.store, found, here.today)


@router.get("/retspl")
def list_retspl(_: Examiner) -> list[m.RetsplShown]:
    """The shipped tables of sound pressure at 0 dB HL, each with its coupler and source."""
    return [
        m.RetsplShown(
            name=one.name,
            earphone=one.earphone,
            coupler=one.coupler,
            status=one.status,
            source=one.source,
            values={f"{f:g}": level for f, level in one.db_spl.items()},
        )
        for one in retspl_presets().values()
    ]


@router.post("/devices/{device}/checks", status_code=HTTPStatus.CREATED)
def add_check(device: m.Id, check: m.NewCheck, here: Here, user: Examiner) -> m.Device:
    """A daily check with somebody whose hearing is known; 10 dB or more blocks the device."""
    found = here.device(device)
    record_check(here.store, found, author=user.name, today=here.today, **check.model_dump())
    return views.device(here.store, found, here.today)
