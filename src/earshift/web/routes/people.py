"""People: their files, baselines, notes, and audiograms typed in from paper."""

from http import HTTPStatus

from fastapi import APIRouter

from earshift.clinic import history
from earshift.clinic.audiograms import store_typed_audiogram
from earshift.clinic.begin import last_test
from earshift.clinic.devices import comparison_caution, device_today
from earshift.clinic.findings import findings_of
from earshift.clinic.people import clean_identity, kept_until
from earshift.clinic.references import EarTests, baseline_exam, choices, ear_tests
from earshift.clinic.worklist import next_due
from earshift.engine.refusal import Refusal
from earshift.engine.values import EARS, RELATIVE_LEVEL
from earshift.records import measured_on
from earshift.web import models as m
from earshift.web import views
from earshift.web.here import Clinic, Here
from earshift.web.identity import Examiner

router = APIRouter(prefix="/api")

PAGE = 50


@router.post("/people/search")
def search_people(wanted: m.PersonSearch, here: Here, user: Examiner) -> m.People:
    """A page of people; in the body, so that no name stands in an address."""
    after = 0 if wanted.after is None else here.row("people", wanted.after)
    text = (wanted.text or "").strip() or None
    found = here.store.people(after=after, limit=PAGE + 1, search=text)
    page = views.people(here.store, found[:PAGE])
    here.viewed(user, "people", "search", searched=text is not None, people=len(page))
    return m.People(people=page, next=page[-1].id if len(found) > PAGE else None)


@router.post("/people", status_code=HTTPStatus.CREATED)
def add_person(new: m.NewPerson, here: Here, user: Examiner) -> m.Person:
    """A new person; a code or a name is needed, and a code must not be another person's."""
    identity = clean_identity(new.model_dump(), here.today)
    if identity["code"] is None and identity["name"] is None:
        raise Refusal("give a code or a name")
    return views.person(here.store, here.store.add_person(author=user.name, **identity))


@router.get("/people/{person}")
def person_file(person: m.Id, here: Here, user: Examiner) -> m.PersonFile:
    """Somebody's exams, notes and history over time."""
    found = here.person(person)
    here.viewed(user, f"people:{found.id}")
    exams = here.store.exams(found.id)
    findings = [] if found.erased_at is not None else findings_of(here.store, found.id)
    summaries = views.summaries(here.store, exams, findings)
    pairs = zip(exams, summaries, strict=True)
    tests = {ear: ear_tests(here.store, found.id, ear) for ear in EARS}
    real = [(exam, one) for exam, one in pairs if one.sound != "simulated"]
    return m.PersonFile(
        **views.person(here.store, found).model_dump(),
        next_due=next_due(here.store, found.id),
        kept_until=kept_until(here.store, found),
        last_test=_last_test(here, found.id),
        others=views.people(here.store, here.store.merged_into(found.id)),
        exams=summaries,
        baselines={ear: _baseline(here, tests[ear]) for ear in EARS},
        references=_references(here, tests),
        notes=[m.NoteShown.model_validate(note) for note in here.store.notes(found.id)],
        history=views.history(here.store, [e for e, _ in real], [s for _, s in real]),
    )


def _last_test(here: Clinic, person_id: int) -> m.LastTest | None:
    found = last_test(here.store, person_id)
    if found is None:
        return None
    number = found.device_id
    device = None if number is None else here.store.handle("devices", number)
    return m.LastTest(**{**vars(found), "ears": list(found.ears)}, device=device)


@router.get("/people/{person}/comparison")
def comparison(
    person: m.Id, here: Here, user: Examiner, device: m.Id | None = None
) -> dict[str, str]:
    """What to know before a screen on this device, by the exam it would be compared with."""
    found = here.person(person)
    here.viewed(user, f"people:{found.id}")
    today = here.today
    now = None if device is None else device_today(here.store, here.device(device), today)
    relative = now is not None and now.unit == RELATIVE_LEVEL
    number = None if now is None else now.device.id
    own = number if relative else None
    usable = [
        choice.record
        for ear in EARS
        for choice in choices(here.store, ear_tests(here.store, found.id, ear), relative_device=own)
        if choice.reason is None
    ]
    cautions = {
        one.id: comparison_caution(here.store, one, number, relative, today) for one in usable
    }
    handles = here.store.handles("exams", list(cautions))
    return {handles[exam]: words for exam, words in cautions.items() if words is not None}


def _references(here: Clinic, tests: dict[str, EarTests]) -> list[m.ReferenceChoices]:
    """What a new screen may be compared with: on any device in dB HL, then on each without."""
    today = here.today
    devices = [device_today(here.store, one, today) for one in here.store.devices()]
    relative = [one.device.id for one in devices if one.unit == RELATIVE_LEVEL]
    return [
        m.ReferenceChoices(
            device=None if number is None else here.store.handle("devices", number),
            ears={ear: _choices(here, tests[ear], number) for ear in EARS},
        )
        for number in (None, *relative)
    ]


def _choices(here: Clinic, tests: EarTests, relative_device: int | None) -> list[m.ReferenceChoice]:
    found = choices(here.store, tests, relative_device=relative_device)
    handles = here.store.handles("exams", [one.record.id for one in found])
    return [
        m.ReferenceChoice(
            exam=handles[one.record.id],
            kind=one.record.kind,
            measured_on=measured_on(one.record, one.visit),
            source=one.record.source,
            baseline=one.baseline,
            default=one.default,
            reason=one.reason,
            caution=one.caution,
        )
        for one in found
    ]


def _baseline(here: Clinic, tests: EarTests) -> m.EarBaseline:
    chosen = tests.chosen
    return m.EarBaseline(
        exam=_handle(here, baseline_exam(tests)),
        chosen_by=None if chosen is None else chosen.author,
        reason=None if chosen is None else chosen.reason,
    )


def _handle(here: Clinic, exam_id: int | None) -> str | None:
    return None if exam_id is None else here.store.handle("exams", exam_id)


@router.get("/people/{person}/monitoring")
def monitoring(person: m.Id, here: Here, user: Examiner) -> dict[str, m.EarMonitored]:
    """Every exam of each ear against its baseline, and whether that should be revised."""
    found = here.person(person)
    here.viewed(user, f"people:{found.id}")
    return {ear: _monitored(here, found.id, ear) for ear in EARS}


def _monitored(here: Clinic, person_id: int, ear: str) -> m.EarMonitored:
    of_ear = history.ear_history(here.store, person_id, ear)
    proposal = of_ear.proposal
    return m.EarMonitored(
        baseline=_baseline(here, ear_tests(here.store, person_id, ear)),
        occasions=[
            m.OccasionShown(
                exam=here.store.handle("exams", one.exam_id),
                kind=one.kind,
                on=one.day,
                against=_handle(here, one.against),
                rule=one.rule,
                decision=one.decision,
                p_changed=one.p_changed,
                shifts_db={f"{f:g}": shift for f, shift in one.shifts_db},
                note=one.note,
            )
            for one in of_ear.occasions
        ],
        proposal=None if proposal is None else proposal.words,
        proposed_exam=None if proposal is None else _handle(here, proposal.exam_id),
    )


@router.post("/people/{person}/baseline")
def choose_baseline(person: m.Id, new: m.NewBaseline, here: Here, user: Examiner) -> m.EarBaseline:
    """Choose what an ear is compared with from now on: a professional's decision, kept for good."""
    found = here.person(person)
    exam_id = here.row("exams", new.exam)
    history.revise_baseline(
        here.store, found.id, new.ear, exam_id, author=user.name, reason=new.reason
    )
    return _baseline(here, ear_tests(here.store, found.id, new.ear))


@router.post("/people/{person}/correct")
def correct_person(
    person: m.Id, correction: m.PersonCorrection, here: Here, user: Examiner
) -> m.Person:
    """Correct what is known of somebody; fields that are not sent stay, null takes away."""
    found = here.person(person)
    changes = correction.model_dump(exclude_unset=True)
    reason = changes.pop("reason")
    changes = clean_identity(changes, here.today)
    if not changes:
        raise Refusal("there is nothing to correct")
    changed = here.store.correct_person(found.id, author=user.name, reason=reason, **changes)
    return views.person(here.store, changed)


@router.post("/people/{person}/merge")
def merge_people(person: m.Id, merging: m.Merging, here: Here, user: Examiner) -> m.Person:
    """Make another record of the same person part of this one; it can be undone."""
    found, other = here.person(person), here.row("people", merging.other)
    here.store.merge_people(other, found.id, author=user.name, reason=merging.reason)
    return views.person(here.store, found)


@router.post("/people/{person}/separate")
def separate_people(person: m.Id, why: m.NeededReason, here: Here, user: Examiner) -> m.Person:
    """Undo a merge: this record has its own visits again."""
    found = here.person(person)
    here.store.separate_people(found.id, author=user.name, reason=why.reason)
    return views.person(here.store, here.store.person(found.id))


@router.post("/people/{person}/notes", status_code=HTTPStatus.CREATED)
def add_note(person: m.Id, note: m.NewNote, here: Here, user: Examiner) -> m.NoteShown:
    found = here.person(person)
    return m.NoteShown.model_validate(
        here.store.add_note(found.id, author=user.name, text=note.text)
    )


@router.post("/people/{person}/audiograms", status_code=HTTPStatus.CREATED)
def type_audiogram(
    person: m.Id, typed: m.NewAudiogram, here: Here, user: Examiner
) -> m.ExamSummary:
    """A reference typed in from paper."""
    exam = store_typed_audiogram(
        here.store,
        here.person(person).id,
        typed.ear,
        thresholds_db_hl={float(f): level for f, level in typed.thresholds.items()},
        no_response_db_hl={float(f): level for f, level in typed.no_response.items()},
        measured_on=typed.measured_on,
        source=typed.source,
        author=user.name,
        zone=here.settings.zone,
        today=here.today,
    )
    return views.summary(here.store, exam, views.findings_of_exam(here.store, exam))
