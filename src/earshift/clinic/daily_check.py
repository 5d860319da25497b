"""The daily check, guided: tones around the usual thresholds of somebody known, in both ears.

29 CFR 1910.95(h)(5): before each day's use somebody with known, stable thresholds listens. What is
usual for them was measured on the device by an earlier walk of the same kind, or comes from a full
audiogram of theirs that is stored here. The walk is a fold over the answers: whoever keeps those
can break off at any time and go on later.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from earshift.clinic.devices import (
    EARS_AS_COUPLER,
    DeviceToday,
    device_today,
    record_check,
)
from earshift.clinic.levels import SIX_HZ, complete, levels_of
from earshift.devices import calibration
from earshift.devices.calibration import USUAL, USUAL_PERSON
from earshift.engine.ascending import UP_DB, ascending_threshold
from earshift.engine.refusal import Conflict, Plain, Refusal
from earshift.engine.values import EARS, HEARING_LEVEL
from earshift.records import Calibration, Device, Person
from earshift.store import Store

ORDER_HZ = (1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 500.0)  # of examiners: 1 kHz first
STRANGER_DB, STRANGER_RELATIVE_DB = 30.0, 20.0  # where the first tone of somebody unknown begins
NOT_THE_SAME = "since this check began the day or what is known of the device has changed"

Levels = Mapping[str, Mapping[float, float]]  # by ear and frequency


@dataclass(frozen=True)
class Usual:
    """What is usual for a listener on a device, and since when that is known."""

    listener: str
    since: date
    record: Calibration
    levels: Levels
    """Empty where the thresholds were those of somebody whose audiograms are gone."""


@dataclass(frozen=True)
class Point:
    """One frequency of one ear, and between which levels it is looked for."""

    ear: str
    frequency_hz: float
    start: float
    softest: float
    loudest: float


@dataclass(frozen=True)
class Progress:
    """How far a walk is: what was found, and the tone to play next."""

    found: dict[str, dict[float, float]]
    """Threshold by ear and frequency; one step above the loudest level: nothing was heard."""
    unclear: tuple[Point, ...]
    """Where the answers did not agree with each other."""
    point: Point | None
    level: float | None
    """None: it is over."""
    done: int
    """Points that are over."""


@dataclass(frozen=True)
class GuidedCheck:
    """A walk through both ears of one listener on one device, on one day."""

    now: DeviceToday
    listener: str
    usual: Usual | None
    """None: this walk finds out what is usual, and is no check yet."""
    points: tuple[Point, ...] = field(default=())
    newest: int = 0
    """The device's last calibration or check: another one since, and the walk is not this one."""

    @property
    def conditions(self) -> str:
        """The same as long as answers belong to this walk and were not stored."""
        known = None if self.usual is None else self.usual.record.id
        about = [self.now.device.id, str(self.now.day), self.listener, known, self.newest]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]

    def require(self, conditions: str | None) -> None:
        """Refuse answers that were given in another walk."""
        if conditions is not None and conditions != self.conditions:
            raise Conflict(NOT_THE_SAME, code="other-conditions", advice="begin the check anew")

    def after(self, heard: Sequence[bool]) -> Progress:
        """Where the walk is after these answers; more of them than were asked are refused."""
        found: dict[str, dict[float, float]] = {}
        unclear: list[Point] = []
        left = iter(heard)
        for done, point in enumerate(self.points):
            procedure = ascending_threshold(point.start, point.softest, point.loudest)
            level = next(procedure)
            try:
                for one in left:
                    level = procedure.send(bool(one))
            except StopIteration as ended:
                threshold = ended.value
            else:
                return Progress(found, tuple(unclear), point, level, done)
            if threshold is None:
                unclear.append(point)
                continue
            beyond = point.loudest + UP_DB
            found.setdefault(point.ear, {})[point.frequency_hz] = min(threshold, beyond)
        if next(left, None) is not None:
            raise Refusal("there are more answers than tones were asked", got=len(heard))
        return Progress(found, tuple(unclear), None, None, len(self.points))

    def deviations(self, progress: Progress) -> dict[str, dict[float, float]]:
        """How far what was found so far is from what is usual, in dB; positive: less was heard."""
        if self.usual is None:
            return {}
        levels = self.usual.levels
        return {
            ear: {hz: level - levels[ear][hz] for hz, level in of_ear.items()}
            for ear, of_ear in progress.found.items()
        }


def guided_check(
    store: Store,
    device: Device,
    today: date,
    listener: str,
    *,
    anew: bool = False,
) -> GuidedCheck:
    """The walk of a listener: a check against what is usual, or `anew` to find that out.

    Somebody of whom nothing is known here is measured first.
    """
    name = listener.strip()
    if not name:
        raise Refusal("a daily check needs the name of who listens")
    now = device_today(store, device, today)
    known = None if anew else usual_of(store, device, name)
    if known is not None and not all(known.levels.get(ear) for ear in EARS):
        known = None
    points = tuple(
        point for ear in EARS for hz in ORDER_HZ if (point := _point(now, known, ear, hz))
    )
    if {point.ear for point in points} != set(EARS):
        raise Refusal(
            "the device can play none of the frequencies of a check in one of its ears",
            code="nothing-to-check",
            advice="calibrate the device at 500 to 6000 Hz",
        )
    newest = max((one.id for one in store.calibrations(device.id)), default=0)
    return GuidedCheck(now, name, known, points, newest)


def _point(now: DeviceToday, usual: Usual | None, ear: str, hz: float) -> Point | None:
    playable = now.playable(ear, hz)
    if playable is None:
        return None
    # The outermost steps of an audiometer.
    softest = math.ceil(playable[0] / UP_DB) * UP_DB
    loudest = math.floor(playable[1] / UP_DB) * UP_DB
    if softest > loudest:
        return None
    if usual is None:
        start = STRANGER_DB if now.unit == HEARING_LEVEL else STRANGER_RELATIVE_DB
    elif hz in usual.levels[ear]:
        start = math.ceil(usual.levels[ear][hz] / UP_DB) * UP_DB + UP_DB
    else:
        return None
    return Point(ear, hz, min(max(start, softest), loudest), softest, loudest)


def usual_of(store: Store, device: Device, listener: str) -> Usual | None:
    """What is usual for this listener on this device, if that is known."""
    return next((one for one in known_listeners(store, device) if one.listener == listener), None)


def known_listeners(store: Store, device: Device) -> list[Usual]:
    """Everybody whose usual thresholds are known on a device, the latest of each; by name."""
    newest: dict[str, Calibration] = {}
    for one in store.calibrations(device.id):
        if calibration.is_usual(one):
            newest[one.laboratory] = one
    return [
        Usual(name, one.done_on, one, _levels(store, one.table))
        for name, one in sorted(newest.items())
    ]


def _levels(store: Store, table: Mapping[str, Any]) -> Levels:
    if USUAL in table:
        return {
            ear: {float(hz): float(level) for hz, level in of_ear.items()}
            for ear, of_ear in table[USUAL].items()
        }
    return _of_audiograms(store, int(table[USUAL_PERSON]))


def _of_audiograms(store: Store, person_id: int) -> dict[str, dict[float, float]]:
    """The newest full audiogram of each ear, at the steps where an ascending search finds it."""
    found: dict[str, dict[float, float]] = {}
    if store.person(person_id).erased_at is not None:
        return found
    for test in sorted(store.history_of_tests(person_id).tests, key=lambda one: one.entered):
        levels = levels_of(test)
        if levels is not None and test.state == "done" and complete(test):
            found[test.ear] = {
                hz: math.ceil(level / UP_DB) * UP_DB
                for hz, level in levels.thresholds_db_hl.items()
                if hz in SIX_HZ
            }
    return found


def know_by_audiogram(
    store: Store, device: Device, listener: str, person: Person, *, author: str, today: date
) -> Usual:
    """Let full audiograms of a stored person say what is usual for a listener.

    No threshold is copied: with the person's records they are gone.
    """
    if device_today(store, device, today).unit != HEARING_LEVEL:
        raise Refusal(
            "audiograms are in dB HL, and the levels of this device are relative",
            code="relative-levels",
            advice="let the check find out what is usual on this device",
        )
    levels = _of_audiograms(store, person.id)
    if not all(levels.get(ear) for ear in EARS):
        raise Refusal(
            "there is no full audiogram of both ears of this person",
            code="no-audiogram",
            advice="let the check find out what is usual on this device",
        )
    record = _make_known(store, device, listener, {USUAL_PERSON: person.id}, author, today)
    return Usual(record.laboratory, today, record, levels)


def _make_known(
    store: Store, device: Device, listener: str, table: Mapping[str, Any], author: str, today: date
) -> Calibration:
    return store.add_calibration(
        device.id,
        author=author,
        done_on=today,
        due_on=today,
        laboratory=listener.strip(),
        coupler=EARS_AS_COUPLER,
        kind="biological",
        table=table,
    )


def record_guided(
    store: Store, check: GuidedCheck, heard: Sequence[bool], *, author: str
) -> Calibration:
    """Store what a walk that is over has found: today's check, or what is usual from now on."""
    progress = check.after(heard)
    if progress.level is not None:
        raise Refusal("the check is not over yet", code="unfinished-check", got=len(heard))
    if progress.unclear:
        where = ", ".join(f"{one.ear} {one.frequency_hz:g} Hz" for one in progress.unclear)
        raise Refusal(
            "the answers do not agree with each other, so no threshold was found at {where}",
            code="unclear-answers",
            advice="do the check anew in a quiet room",
            where=Plain(where),
        )
    device, today = check.now.device, check.now.day
    if check.usual is not None:
        deviations = _as_text(check.deviations(progress))
        return record_check(
            store,
            device,
            author=author,
            today=today,
            listener=check.listener,
            deviations_db=deviations,
        )
    if check.now.blocked is not None:
        raise Conflict(check.now.blocked, code="device-blocked", device=device.id)
    known = {USUAL: _as_text(progress.found)}
    return _make_known(store, device, check.listener, known, author, today)


def _as_text(by_ear: Levels) -> dict[str, dict[str, float]]:
    return {ear: {f"{hz:g}": v for hz, v in of_ear.items()} for ear, of_ear in by_ear.items()}


@dataclass(frozen=True)
class PastCheck:
    """A daily check that was done: by whom, how far off, and whether the device failed it."""

    on: date
    listener: str
    deviations_db: dict[str, dict[float, float]]
    failed: bool

    @property
    def worst_db(self) -> float:
        """The largest deviation, with its sign."""
        every = [one for of_ear in self.deviations_db.values() for one in of_ear.values()]
        return max(every, key=abs, default=0.0)


def past_checks(store: Store, device: Device) -> list[PastCheck]:
    """All daily checks of a device, oldest first."""
    return [
        PastCheck(
            one.done_on,
            one.laboratory,
            {
                ear: {float(hz): float(value) for hz, value in of_ear.items()}
                for ear, of_ear in one.table.get("deviations_db", {}).items()
            },
            calibration.check_fails(one.table.get("deviations_db", {})),
        )
        for one in store.calibrations(device.id)
        if calibration.is_check(one)
    ]
