"""The whole report in words: stored rows turned into text, nothing computed.

The numbers are those of the stored results, rounded for reading. Data that are missing or that this
version does not know are said to be so.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from itertools import zip_longest

from earshift.days import age_on
from earshift.devices import calibration
from earshift.engine.refusal import Refusal
from earshift.engine.values import BOTH, EARS
from earshift.records import Note, Person, Visit, VisitBundle
from earshift.report.content import Caution, Fact, Letterhead, NoteText, Page, Section
from earshift.report.ear import ear_section, untested
from earshift.report.findings import review_sentences
from earshift.report.text import (
    LONGEST_TEXT,
    day_of,
    from_elsewhere,
    harmless,
    map_text,
    moment,
    one_line,
    paragraph,
    plain,
    shortened,
    unbroken,
)
from earshift.report.words import Words


def compose(
    bundle: VisitBundle,
    words: Words,
    site: Letterhead | None = None,
    cautions: Sequence[Caution] = (),
) -> Page:
    """The report of a visit in words, by the site that gives it.

    `cautions` of one ear stand below its verdict, those of both above the two.
    """
    visit, person = bundle.visit, bundle.person
    for each in bundle.of_ears:
        if each.exam.ear not in EARS:
            raise Refusal(f"an ear is 'right' or 'left', got {each.exam.ear!r}")
    kinds = {each.exam.kind for each in bundle.exams}
    simulated = visit.mode == "simulated"
    sections = {
        ear: [
            ear_section(each, bundle, words, [one.text for one in cautions if one.ear == ear])
            for each in bundle.of_ears
            if each.exam.ear == ear
        ]
        for ear in EARS
    }
    page = Page(
        language=words.language,
        title=words.title.format(visit=visit.id),
        heading=words.heading,
        continued=words.continued.format(heading=words.heading, visit=visit.id, person=person.id),
        person_heading=words.person_section,
        visit_heading=words.visit_section,
        person=_person_facts(person, bundle.visit, words),
        visit=_visit_facts(bundle, words),
        rounds=tuple(
            (
                right or untested("right", words, bool(sections["right"])),
                left or untested("left", words, bool(sections["left"])),
            )
            for right, left in zip_longest(sections["right"], sections["left"])
        )
        or ((untested("right", words), untested("left", words)),),
        legend=_legend(sections, words),
        sign_here=_sign_here(bundle, words),
        appendix_heading=words.appendix,
        appendix_means=words.appendix_means if kinds != {"audiogram"} else "",
        notes_heading=words.notes,
        notes=tuple(_note(note, bundle, words) for note in bundle.notes),
        sentences=tuple(
            filter(
                None,
                (
                    words.screening if "screen" in kinds else "",
                    words.not_osha if "screen" in kinds else "",
                    words.not_diagnostic if "exam" in kinds and "screen" not in kinds else "",
                    words.see_a_doctor,
                ),
            )
        ),
        stored_at=max(
            [
                visit.started_at,
                *(result.at for each in bundle.exams for result in each.results),
                *(note.at for note in bundle.notes),
                *(one.at for one in bundle.signatures),
            ]
        ),
        banner=words.simulated if simulated else "",
        banner_means=words.simulated_means if simulated else "",
        cautions=(
            *_visit_cautions(bundle, words),
            *(one.text for one in cautions if not one.ear),
        ),
        site=site or Letterhead(),
        review_heading=words.review.heading,
        review=review_sentences(
            bundle,
            {one.id: moment(one.at, visit.zone, words) for one in bundle.signatures},
            words.review,
        ),
    )
    return map_text(page, harmless)


def _sign_here(bundle: VisitBundle, words: Words) -> tuple[str, ...]:
    """Whose hand the page still lacks."""
    if not bundle.exams:
        return ()
    reviewed = bool(bundle.signatures)
    return (words.examiner_signs,) if reviewed else (words.examiner_signs, words.reviewer_signs)


def _legend(sections: Mapping[str, Sequence[Section]], words: Words) -> str:
    """The key to every symbol that is on the page."""
    every = [section for of_ear in sections.values() for section in of_ear]
    parts = (
        words.legend if every else "",
        words.legend_shifts if any(section.shifts for section in every) else "",
    )
    return " ".join(filter(None, parts))


# The person and the visit ----------------------------------------------------------------------


def _person_facts(person: Person, visit: Visit, words: Words) -> tuple[Fact, ...]:
    if person.erased_at is not None:
        erased = words.erased.format(day=day_of(person.erased_at, visit.zone).isoformat())
        return Fact(words.name, erased), Fact(words.person_id, str(person.id))
    given = (
        (words.name, person.name),
        (words.born, _born(person.birth_date, day_of(visit.started_at, visit.zone), words)),
        (words.sex, person.sex),
        (words.code, person.code),
        (words.person_id, str(person.id)),
    )
    return tuple(
        Fact(label, one_line(value, words) if value and value.strip() else words.not_recorded)
        for label, value in given
    )


def _born(born: date | None, on: date, words: Words) -> str | None:
    if born is None:
        return None
    if born > on:
        return words.born_later.format(born=born.isoformat())
    return words.born_and_age.format(born=born.isoformat(), age=age_on(born, on))


def _visit_facts(bundle: VisitBundle, words: Words) -> tuple[Fact, ...]:
    visit = bundle.visit
    in_words = from_elsewhere if visit.mode == "imported" else moment
    facts = [
        Fact(words.date, in_words(visit.started_at, visit.zone, words)),
        Fact(words.mode, words.modes.get(visit.mode, visit.mode)),
        Fact(words.examiner, one_line(visit.author, words) or words.not_recorded),
        Fact(words.device, _device(bundle, words)),
        Fact(words.calibration, _calibration(bundle, words)),
        Fact(words.visit_id, str(visit.id)),
    ]
    for each in bundle.exams:
        for result in each.results[-1:] if each.exam.ear == BOTH else ():
            said = paragraph(result.shown.get("sentence") or result.shown.get("words"), words)
            facts.append(Fact(words.both_ears, said))
    if visit.checklist:
        items = "; ".join(
            f"{str(name).replace('_', ' ')}: {plain(value, words)}"
            for name, value in visit.checklist.items()
        )
        facts.append(Fact(words.checklist, shortened(unbroken(items), LONGEST_TEXT, words)))
    return tuple(facts)


def _device(bundle: VisitBundle, words: Words) -> str:
    device = bundle.device
    if device is None:
        return words.not_recorded
    known = device.transducer not in ("", "unknown")
    parts = (
        device.name,
        device.model,
        device.serial and words.serial.format(serial=device.serial),
        words.transducer.format(transducer=device.transducer)
        if known
        else words.transducer_unknown,
    )
    return one_line(", ".join(filter(None, parts)), words)


def _calibration_state(bundle: VisitBundle) -> str:
    visit = bundle.visit
    on = day_of(visit.started_at, visit.zone)
    return calibration.state(bundle.device, bundle.calibration, on)


def _calibration(bundle: VisitBundle, words: Words) -> str:
    if bundle.visit.mode == "simulated":
        return words.calibration_simulated
    if bundle.visit.mode == "imported" and bundle.calibration is None:
        return words.not_recorded
    state = words.calibration_states[_calibration_state(bundle)]
    done = bundle.calibration
    if done is None:
        return state
    details = words.calibration_details.format(
        kind=done.kind,
        laboratory=done.laboratory or words.not_recorded,
        done=done.done_on.isoformat(),
        due=done.due_on.isoformat(),
    )
    coupler = done.coupler.strip()
    parts = (state, details, coupler and words.calibration_coupler.format(coupler=coupler))
    return one_line("; ".join(filter(None, parts)), words)


def _visit_cautions(bundle: VisitBundle, words: Words) -> tuple[str, ...]:
    if bundle.visit.mode in ("simulated", "imported"):
        return ()
    state = "unknown device" if bundle.device is None else _calibration_state(bundle)
    warning = words.calibration_warnings.get(state)
    return (warning,) if warning else ()


def _note(note: Note, bundle: VisitBundle, words: Words) -> NoteText:
    ears = {each.exam.id: each.exam.ear for each in bundle.exams}
    ear = ears.get(note.exam_id) if note.exam_id is not None else None
    about = words.note_about if ear is None else words.note_about_ear
    return NoteText(
        about.format(
            moment=moment(note.at, bundle.visit.zone, words),
            author=one_line(note.author, words),
            ear=words.ears.get(ear, words.both_ears) if ear else "",
        ),
        note.text,
    )
