"""What goes over the wire about the day: the worklist, settings of the site, the programme."""

from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import Field

from earshift.web.models import Answer, Device, Ear, ExamSummary, Input, Line, Person, Words

ProgrammeBy = Literal["department", "job"]


class WorkItem(Answer):
    person: Person
    why: str  # unfinished, audiogram, retest, review, letter, first, due
    words: str
    ears: list[str]
    since: date  # of the test that it follows from, or the first day at work
    on: date  # by when
    overdue_days: int  # 0 until the day after
    exam: ExamSummary | None
    full: bool  # whether only a full audiogram of these ears ends it


class Worklist(Answer):
    today: date
    items: list[WorkItem]
    devices: list[Device]
    total: int  # lines on all pages
    overdue: int
    counts: dict[str, int]  # by reason
    departments: list[str]
    jobs: list[str]
    backup: str | None  # what to say of backups, to who may make one


class DayExam(Answer):
    exam: str
    ear: str
    kind: str
    state: str
    answered: int
    at_most: int
    last_at: datetime | None  # of the newest answer
    decision: str | None
    held: str | None  # why the listener waits for the examiner


class DayVisit(Answer):
    visit: str
    person: Person
    started_at: datetime
    mode: str
    device: str | None
    answered_by: str
    going_on: bool
    exams: list[DayExam]


class Booths(Answer):
    """The visits of today, those that go on first."""

    today: date
    visits: list[DayVisit]


class SiteSetting(Answer):
    """Something that the site settles for itself, with what it rests on."""

    name: str
    text: str
    unit: str  # days, hours, or empty for yes or no and for text
    source: str
    value: int | bool | str
    default: int | bool | str
    lowest: int
    highest: int
    author: str | None  # nobody chose: as delivered
    at: datetime | None
    reason: str | None


class NewSetting(Input):
    value: (
        Annotated[bool, Field(strict=True)]
        | Annotated[int, Field(strict=True, ge=0, le=99_999)]
        | Line
    )
    reason: Words


class NewClosing(Input):
    reason: Words
    ears: Annotated[tuple[Ear, ...], Field(max_length=2)] = ()  # of the exam's; none: all of them


class ClosingShown(Answer):
    closed: bool
    at: datetime
    author: str
    reason: str
    ears: str  # such as "left"; empty: all that the exam tested


class ProgrammeGroup(Answer):
    """People of one department or job; without a name, everybody or those in none."""

    name: str | None
    people: int
    due: int
    overdue: int
    tested: int
    audiograms: int
    confirmed: int
    not_confirmed: int
    waiting: int
    closed: int
    letters: int  # people told in writing of a shift in the period
    protectors: int  # fitted or refitted
    trainings: int
    referrals: int
    # Of the tested, each with a 95 % interval.
    confirmed_share: tuple[float, float, float] | None
    not_confirmed_share: tuple[float, float, float] | None
    waiting_share: tuple[float, float, float] | None
    closed_share: tuple[float, float, float] | None


class Programme(Answer):
    first: date
    last: date
    by: str
    everybody: ProgrammeGroup
    groups: list[ProgrammeGroup]
