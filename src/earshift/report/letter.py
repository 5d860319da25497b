"""The letter that tells somebody of a standard threshold shift, from what was signed alone.

29 CFR 1910.95(g)(8)(i): in writing, within 21 days of the determination. One page, as HTML and as
PDF, in plain words; it is not a diagnosis and says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from earshift.acts import ShiftFinding
from earshift.engine.refusal import Refusal
from earshift.records import VisitBundle
from earshift.report.content import Letterhead
from earshift.report.findings import decibels
from earshift.report.text import day_of, harmless, map_text

EARS = {"right": "right ear", "left": "left ear"}


@dataclass(frozen=True)
class Letter:
    """The letter, before it is HTML or PDF."""

    title: str
    sender: tuple[str, ...]
    day: str
    receiver: tuple[str, ...]
    greeting: str
    paragraphs: tuple[str, ...]
    steps_heading: str
    steps: tuple[str, ...]
    closing: tuple[str, ...]
    signature: tuple[str, ...]
    small_print: str
    signed_at: datetime


def _long(day: date) -> str:
    return f"{day.day}\N{NO-BREAK SPACE}{day:%B}\N{NO-BREAK SPACE}{day.year}"


def compose_letter(bundle: VisitBundle, site: Letterhead) -> Letter:
    """The letter of a signed visit, from the site as it was signed."""
    shifts = [one for one in bundle.findings if one.is_shift]
    if not bundle.signatures or not shifts:
        raise Refusal("a letter is made from a signed visit with a standard threshold shift")
    person, visit, signature = bundle.person, bundle.visit, bundle.signatures[-1]
    signed_on = _long(day_of(signature.at, visit.zone))
    name = (person.name or "").strip()
    letter = Letter(
        title="Your hearing test",
        sender=tuple(filter(None, (site.name, site.address))),
        day=signed_on,
        receiver=tuple(
            filter(None, (name, person.department, person.code and f"Code {person.code}"))
        ),
        greeting=f"Dear {name}," if name else "To whom this test belongs,",
        paragraphs=_paragraphs(bundle, shifts),
        steps_heading="What happens next",
        steps=_steps(shifts),
        closing=(
            "If anything in this letter is unclear, or if you notice ringing, pain or a sudden "
            "change of your hearing, please ask us or see a physician.",
            "This letter is not a diagnosis: it says what a comparison of two hearing tests has "
            "shown. You may see your records and have a copy of them.",
        ),
        signature=(
            signature.name,
            f"Electronically signed, {signature.meaning}, {signed_on}",
        ),
        small_print=f"Visit {visit.id}. SHA-256 of what was signed: {signature.sha256}",
        signed_at=signature.at,
    )
    return map_text(letter, harmless)


def _paragraphs(bundle: VisitBundle, shifts: Sequence[ShiftFinding]) -> tuple[str, ...]:
    ears = f"your {EARS[shifts[0].ear]}" if len({one.ear for one in shifts}) == 1 else "both ears"
    first = (
        f"your hearing was tested on {_long(shifts[0].day)}. Compared with your earlier test, the "
        f"baseline, we found a change for the worse in {ears}:"
    )
    found = [_found(one) for one in shifts]
    others = [
        f"In your {EARS[one.ear]} no such change was found."
        for one in bundle.findings
        if one.decision == "unchanged"
    ]
    why = (
        "An average that is 10 dB or more worse is called a standard threshold shift (29 CFR "
        "1910.95(g)(10)). Such a change often goes unnoticed; found early, it is a reason to "
        "protect the hearing that you have. The regulation asks that you are told of it in "
        "writing (29 CFR 1910.95(g)(8))."
    )
    return (first[0].upper() + first[1:], *found, *others, why)


def _found(one: ShiftFinding) -> str:
    least = "at least " if one.at_least else ""
    since = "" if one.baseline_day is None else f" of {_long(one.baseline_day)}"
    said = (
        f"{EARS[one.ear].capitalize()}: tones of 2000, 3000 and 4000 Hz, which matter for "
        f"understanding speech, have to be on average {least}{decibels(one.shift_db or 0.0)} dB "
        f"louder to be heard than at your baseline{since}."
    )
    if one.age_counts and one.age_db is not None and one.shift_db is not None:
        rest = decibels(one.shift_db - one.age_db)
        said += f" Of this, {decibels(one.age_db)} dB can be age alone, which leaves {rest} dB."
    return said


def _steps(shifts: Sequence[ShiftFinding]) -> tuple[str, ...]:
    """29 CFR 1910.95(g)(8)(ii), unless a professional found that work has no part in it."""
    said = {one.work_related for one in shifts}
    if said == {False}:
        names = " and ".join(sorted({one.work_said_by for one in shifts}))
        return (
            f"{names} found that the change is not related to your work. Please see a physician "
            "about its cause.",
            "Go on wearing your hearing protectors wherever they are needed.",
        )
    return (
        "Hearing protectors: you will be fitted with them, or those that you have will be fitted "
        "anew, with better ones if they are needed.",
        "Training: you will be shown how to use and look after them. Wear them whenever you are "
        "in noise.",
        "Evaluation: if more tests are needed, or if your ears have trouble with the protectors, "
        "you will be referred for an examination.",
    )


def render_letter(bundle: VisitBundle, site: Letterhead) -> str:
    """The letter as one HTML document that needs nothing else."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("earshift.report")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    return environment.get_template("letter.html").render(letter=compose_letter(bundle, site))
