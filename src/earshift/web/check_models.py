"""What goes over the wire about the daily check of a device, and what a device can play."""

from datetime import date
from typing import Annotated

from pydantic import Field

from earshift.web.models import Answer, Device, Id, Input, Line, Play

Listener = Annotated[Line, Field(min_length=1)]


class Playable(Answer):
    """The softest and the loudest level of one frequency by ear; null: it cannot be played."""

    frequency_hz: float
    right: tuple[float, float] | None
    left: tuple[float, float] | None


class PlayableRange(Answer):
    unit: str
    rows: list[Playable]  # none for an audiometer that is operated by hand


class KnownListener(Answer):
    """Somebody whose usual thresholds are known on a device."""

    name: str
    since: date
    known: bool  # false: they were those of audiograms that are gone


class CheckShown(Answer):
    on: date
    listener: str
    worst_db: float
    failed: bool
    deviations_db: dict[str, dict[str, float]]


class Checks(Answer):
    listeners: list[KnownListener]
    count: int
    newest: list[CheckShown]  # oldest of them first


class NewListener(Input):
    """A listener whose audiograms are stored here, by the code of their record."""

    listener: Listener
    person: Annotated[Line, Field(min_length=1)]


class GuidedAsked(Input):
    """A walk and all answers so far; `conditions` are those that it began under."""

    listener: Listener
    anew: bool = False
    heard: Annotated[list[bool], Field(max_length=1500)]
    conditions: Id | None = None


class CheckPoint(Answer):
    ear: str
    frequency_hz: float
    usual: float | None
    found: float | None
    deviation_db: float | None
    fails: bool  # so far off that the device fails
    unclear: bool


class GuidedStep(Answer):
    """Where a walk is: what was found, and what to play next."""

    conditions: str
    establishes: bool  # it finds out what is usual, and is no check yet
    since: date | None
    over: bool
    play: Play
    points: list[CheckPoint]


class GuidedSaved(Answer):
    establishes: bool
    failed: bool
    device: Device
