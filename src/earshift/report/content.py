"""What a report holds, before it is HTML or PDF: facts, tables and one section for each ear."""

from dataclasses import dataclass
from datetime import datetime

from earshift.report.audiogram import Drawing


@dataclass(frozen=True)
class Fact:
    label: str
    value: str


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """One exam of one ear, or that there was none."""

    ear: str
    heading: str
    headline: str
    sentence: str = ""  # the verdict in one; older results have all in `words`
    words: str = ""
    facts: tuple[Fact, ...] = ()
    cautions: tuple[str, ...] = ()
    table: Table | None = None
    shifts: Drawing | None = None
    picture: Drawing | None = None
    appendix: tuple[str, ...] = ()
    alarming: bool = False  # a stronger frame, for those who only glance


@dataclass(frozen=True)
class NoteText:
    about: str
    text: str


@dataclass(frozen=True)
class Caution:
    """Something to know beside a result, and what to do about it; of one ear, or of both."""

    text: str
    ear: str = ""


@dataclass(frozen=True)
class Letterhead:
    """Who gives the report: the site's name and address, as the site has settled them."""

    name: str = ""
    address: str = ""


@dataclass(frozen=True)
class Page:
    """A whole report: `rounds` are pairs of right and left ear, in the order they were done."""

    language: str
    title: str
    heading: str
    continued: str
    person_heading: str
    visit_heading: str
    person: tuple[Fact, ...]
    visit: tuple[Fact, ...]
    rounds: tuple[tuple[Section, Section], ...]
    legend: str
    sign_here: tuple[str, ...]
    appendix_heading: str
    appendix_means: str
    notes_heading: str
    notes: tuple[NoteText, ...]
    sentences: tuple[str, ...]
    stored_at: datetime  # of the newest row on it: the same rows give the same file
    banner: str = ""
    banner_means: str = ""
    cautions: tuple[str, ...] = ()
    site: Letterhead = Letterhead()
    review_heading: str = ""
    review: tuple[str, ...] = ()
    """What was found, measured and signed, in sentences."""
