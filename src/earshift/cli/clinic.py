"""A working day: people, and their exams and screens."""

from dataclasses import asdict, dataclass
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import typer

from earshift.cli.app import AsJson, app
from earshift.cli.database import (
    EXIT_CODES,
    NOT_FINISHED,
    Author,
    Database,
    Timezone,
    Yes,
    author_name,
    opened,
)
from earshift.cli.desk import Desk
from earshift.cli.terminal import as_date, confirmed, person_label, printable, show_json, table
from earshift.engine.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from earshift.clinic.plan import Plan
    from earshift.engine.stimulus import Limits
    from earshift.records import ExamRecord, Person, ResultRecord, Visit
    from earshift.store import Store

SEXES = ("female", "male", "other", "unknown")
RETENTION = (
    "Hearing records often have to be kept: in the United States audiometric test records for as "
    "long as the person is employed (29 CFR 1910.95(m)). Ask whoever is responsible first."
)


# People -----------------------------------------------------------------------------------------

people = typer.Typer(
    help="The people whose hearing is followed.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(people, name="person")

Who = Annotated[
    str,
    typer.Argument(metavar="PERSON", help="Id or code; id:7 or code:7 if both could be meant."),
]
Code = Annotated[str | None, typer.Option(help="The clinic's own number for the person.")]
Name = Annotated[str | None, typer.Option(help="Name.")]
Born = Annotated[str | None, typer.Option(help="Date of birth, YYYY-MM-DD.")]
Sex = Annotated[str | None, typer.Option(help=f"{', '.join(SEXES)}.")]
Reason = Annotated[str, typer.Option(help="Why; kept beside the change.")]


def _identity(
    code: str | None, name: str | None, born: str | None, sex: str | None
) -> dict[str, Any]:
    """Only what was given; an empty text means that it is not known."""
    if sex and sex not in SEXES:
        raise Refusal(f"sex must be one of {', '.join(SEXES)}, got {sex!r}")
    given = {
        "code": code,
        "name": name,
        "birth_date": born and as_date(born, "a date of birth", date(1880, 1, 1)),
        "sex": sex,
    }
    return {field: value or None for field, value in given.items() if value is not None}


@people.command("add", epilog=EXIT_CODES)
def person_add(
    code: Code = None,
    name: Name = None,
    born: Born = None,
    sex: Sex = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Add a person. Everything may be missing; a code must not be another person's."""
    with opened(db) as store:
        person = store.add_person(author=author_name(author), **_identity(code, name, born, sex))
    if as_json:
        show_json(asdict(person))
    else:
        typer.echo(f"Added {person_label(person)}")


@people.command("list", epilog=EXIT_CODES)
def person_list(
    search: Annotated[str | None, typer.Option(help="Part of a code or name.")] = None,
    after: Annotated[int, typer.Option(min=0, help="Only people after this id.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    db: Database = None,
    as_json: AsJson = False,
) -> None:
    """List people by id, a page at a time."""
    with opened(db) as store:
        found = store.people(after=after, limit=limit + 1, search=search)
        place = store.describe()
    page, more = found[:limit], len(found) > limit
    if as_json:
        show_json([asdict(person) for person in page])
        return
    if not page:
        typer.echo(f"Nobody found in {printable(place)}")
        return
    rows = [
        [
            person.id,
            person.code,
            "(erased)" if person.erased_at else person.name,
            person.birth_date,
            person.sex,
        ]
        for person in page
    ]
    table("People", ["id", "code", "name", "born", "sex"], rows)
    if more:
        typer.echo(f"More: earshift person list --after {page[-1].id}")


@people.command("show", epilog=EXIT_CODES)
def person_show(who: Who, db: Database = None, as_json: AsJson = False) -> None:
    """Show a person with all visits, exams and what they said."""
    from earshift.clinic.people import find_person

    with opened(db) as store:
        person = find_person(store, who)
        visits = {visit.id: visit for visit in store.visits(person.id)}
        exams = store.exams(person.id)
        results = {exam.id: store.results(exam.id) for exam in exams}
        notes = store.notes(person.id)
    if as_json:
        show_json(
            {
                **asdict(person),
                "visits": [asdict(visit) for visit in visits.values()],
                "exams": [
                    {**_without_design(exam), "words": [r.shown["words"] for r in results[exam.id]]}
                    for exam in exams
                ],
                "notes": [asdict(note) for note in notes],
            }
        )
        return
    typer.echo(person_label(person))
    if person.erased_at is not None:
        typer.echo(f"Erased on {person.erased_at:%Y-%m-%d}; the identity is gone")
    for name, value in (("born", person.birth_date), ("sex", person.sex)):
        if value is not None:
            typer.echo(f"{name}: {printable(value)}")
    rows = [_exam_row(exam, visits[exam.visit_id], results[exam.id]) for exam in exams]
    if rows:
        table("Exams", ["exam", "visit", "date", "ear", "what", "state", "result"], rows)
    else:
        typer.echo("No exams yet")
    for note in notes:
        typer.echo(f"{note.at:%Y-%m-%d} {printable(note.author)}: {printable(note.text)}")
    for exam in exams:
        if exam.state in ("open", "paused"):
            typer.echo(f"Not finished: earshift resume {exam.id}")


def _exam_row(
    exam: "ExamRecord", visit: "Visit", results: "Sequence[ResultRecord]"
) -> list[object]:
    what = f"simulated {exam.kind}" if visit.mode == "simulated" else exam.kind
    said = exam.source
    if results:
        shown = results[-1].shown
        said = f"{shown['tones']} tones"
        if shown["verdict"] is not None:
            said = f"{shown['verdict']['decision']}, {said}"
        if shown["rule"] is not None:
            said = f"{shown['rule']['name']}: {said}"
    return [exam.id, exam.visit_id, _date_of(exam, visit), exam.ear, what, exam.state, said]


def _without_design(exam: "ExamRecord") -> dict[str, Any]:
    return {name: value for name, value in asdict(exam).items() if name != "design"}


def _date_of(exam: "ExamRecord", visit: "Visit") -> str:
    """The local day on which the ear was measured."""
    at = visit.started_at if exam.measured_at is None else exam.measured_at
    if exam.kind == "audiogram" and exam.measured_at is None:
        return "unknown"
    return f"{at.astimezone(ZoneInfo(visit.zone)):%Y-%m-%d}"


@people.command("correct", epilog=EXIT_CODES)
def person_correct(
    who: Who,
    reason: Reason,
    code: Code = None,
    name: Name = None,
    born: Born = None,
    sex: Sex = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Correct code, name, birth or sex. What was known before stays as history.

    An empty text (--name "") says that it is not known.
    """
    from earshift.clinic.people import find_person

    with opened(db) as store:
        changes = _identity(code, name, born, sex)
        if not changes:
            raise Refusal("nothing to correct: give --code, --name, --born or --sex")
        person = find_person(store, who)
        person = store.correct_person(
            person.id, author=author_name(author), reason=reason, **changes
        )
    if as_json:
        show_json(asdict(person))
    else:
        typer.echo(f"Corrected: {person_label(person)}")


@people.command("erase", epilog=EXIT_CODES)
def person_erase(
    who: Who,
    reason: Reason,
    delete_trials: Annotated[
        bool, typer.Option("--delete-trials", help="Delete the visits with all answers as well.")
    ] = False,
    yes: Yes = False,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Erase a person's identity and notes for good; a tombstone without a name stays."""
    from earshift.clinic.people import find_person

    with opened(db) as store:
        person = find_person(store, who)
        exams = len(store.exams(person.id))
        fate = "deleted, too" if delete_trials else "kept without a name"
        typer.echo(f"{person_label(person)}: {exams} exams will be {fate}.", err=True)
        typer.echo(RETENTION, err=True)
        if not yes and not confirmed("Erase for good?"):
            typer.echo("Nothing was erased", err=True)
            raise typer.Exit(NOT_FINISHED)
        erased = store.erase_person(
            person.id, author=author_name(author), reason=reason, delete_trials=delete_trials
        )
    if as_json:
        show_json(asdict(erased))
    else:
        typer.echo(f"Erased person {erased.id}")
    typer.echo(
        "Backups and exported files made before still hold this person: delete them too", err=True
    )


# Exams and screens ------------------------------------------------------------------------------

Ear = Annotated[str, typer.Option(help="right or left.")]
Simulate = Annotated[
    str | None,
    typer.Option(help="Let a simulated listener of this hearing-loss class answer, for a try."),
]
Cap = Annotated[float, typer.Option(help="Loudest level, dB HL; above 90 asks for confirmation.")]
OwnSeed = Annotated[int | None, typer.Option(min=0, help="Chance comes from here; else drawn.")]
Device = Annotated[int | None, typer.Option(min=1, help="Id of the audiometer in the database.")]
Practice = Annotated[
    bool, typer.Option("--practice/--no-practice", help="Begin with tones to learn the task.")
]
NewVisit = Annotated[
    bool, typer.Option("--new-visit", help="Begin a new visit, though there is one today.")
]
SetAside = Annotated[
    bool, typer.Option("--set-aside", help="Give up an unfinished exam of this ear first.")
]


@dataclass(frozen=True)
class _Setting:
    """How an exam is given; the same options for exams and screens."""

    practice: bool
    device_id: int | None
    new_visit: bool
    set_aside: bool
    simulate: str | None
    timezone: str | None
    author: str
    as_json: bool

    @property
    def mode(self) -> str:
        return "supervised" if self.simulate is None else "simulated"


@app.command(epilog=EXIT_CODES)
def exam(
    who: Who,
    ear: Ear,
    tones: Annotated[int, typer.Option(min=1, max=500, help="How many tones.")] = 50,
    cap: Cap = 90.0,
    seed: OwnSeed = None,
    practice: Practice = True,
    device: Device = None,
    new_visit: NewVisit = False,
    set_aside: SetAside = False,
    simulate: Simulate = None,
    timezone: Timezone = None,
    yes: Yes = False,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """A full exam of one ear, with any audiometer at hand.

    Says which tone to present and takes the answer: y (heard), n (not heard), undo, pause, finish
    or quit. Every answer is stored before the next tone is shown. With --json every event is a line
    of JSON, and answers are read in the same way.
    """
    from earshift.clinic.people import find_person
    from earshift.clinic.plan import plan_exam

    with opened(db) as store:
        setting = _Setting(
            practice, device, new_visit, set_aside, simulate, timezone, author_name(author), as_json
        )
        person = find_person(store, who)
        plan = plan_exam(ear, limits=_limits(cap, yes), seed=seed, max_tones=tones)
        _begin(store, person, plan, setting)


@app.command(epilog=EXIT_CODES)
def screen(
    who: Who,
    ear: Ear,
    rule: Annotated[
        str | None, typer.Option(help="Threshold-shift rule: osha-sts (the default), niosh-15 ...")
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="Or any change at all, by these settings: best, paper.")
    ] = None,
    reference: Annotated[
        int | None, typer.Option(min=1, help="Exam to compare with; else the baseline of this ear.")
    ] = None,
    tones: Annotated[
        int | None, typer.Option(min=1, max=500, help="Stop undecided after so many.")
    ] = None,
    cap: Cap = 90.0,
    seed: OwnSeed = None,
    practice: Practice = True,
    device: Device = None,
    new_visit: NewVisit = False,
    set_aside: SetAside = False,
    simulate: Simulate = None,
    timezone: Timezone = None,
    yes: Yes = False,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Has this ear changed from its reference? A few tones, with any audiometer at hand.

    Works as `earshift exam` does, and stops as soon as the answer is sure enough.
    """
    from earshift.clinic.people import find_person
    from earshift.clinic.plan import plan_screen

    with opened(db) as store:
        setting = _Setting(
            practice, device, new_visit, set_aside, simulate, timezone, author_name(author), as_json
        )
        person = find_person(store, who)
        plan = plan_screen(
            store,
            person.id,
            ear,
            rule=rule,
            protocol=protocol,
            reference=reference,
            simulated=simulate is not None,
            device_id=device,
            limits=_limits(cap, yes),
            seed=seed,
            max_tones=tones,
        )
        _begin(store, person, plan, setting)


@app.command(epilog=EXIT_CODES)
def resume(
    exam_id: Annotated[int, typer.Argument(metavar="EXAM", min=1, help="Id of the exam.")],
    practice: Practice = True,
    simulate: Simulate = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Go on with an exam or screen after a break or a crash: it asks what it would have asked."""
    from earshift.clinic.session import Session

    with opened(db) as store:
        _check_class(simulate)
        session = Session(
            store, exam_id, author=author_name(author), practice=practice and simulate is None
        )
        visit = store.visit(session.record.visit_id)
        if simulate is not None and visit.mode != "simulated":
            raise Refusal(f"exam {exam_id} is of a real person and cannot be simulated")
        session.resume()
        Desk(session, store.person(visit.person_id), simulate, as_json).run()


def _limits(cap_db_hl: float, yes: bool) -> "Limits":
    """Limits up to the cap; a loud one only when the examiner says so."""
    from earshift.devices.delivery import CAP_DB_HL, supervised_limits

    limits = supervised_limits(cap_db_hl, confirmed=True)
    question = (
        f"Tones of up to {cap_db_hl:g} dB HL can harm when they are long or many. "
        "Only with an examiner beside the person. Allow them?"
    )
    if cap_db_hl > CAP_DB_HL and not yes and not confirmed(question):
        typer.echo("Not begun", err=True)
        raise typer.Exit(NOT_FINISHED)
    return limits


def _begin(store: "Store", person: "Person", plan: "Plan", setting: _Setting) -> None:
    """Open what was planned, in today's visit, and sit down at the desk."""
    from earshift.clinic.people import todays_visit, unfinished
    from earshift.clinic.plan import open_exam
    from earshift.clinic.session import Session
    from earshift.clinic.zones import as_zone, local_zone

    _check_class(setting.simulate)
    zone = as_zone(setting.timezone or local_zone())
    left = unfinished(store, person.id, plan.ear, simulated=setting.mode == "simulated")
    if left and not setting.set_aside:
        raise Refusal(
            f"exam {left[-1].id} of this ear is not finished: go on by `earshift resume "
            f"{left[-1].id}`, or give it up by --set-aside"
        )
    for record in left:
        Session(store, record.id, author=setting.author).abandon("set aside for a new exam")
    visit = todays_visit(
        store,
        person.id,
        author=setting.author,
        zone=zone,
        mode=setting.mode,
        device_id=setting.device_id,
        fresh=setting.new_visit,
    )
    record = open_exam(store, visit, plan, author=setting.author)
    practice = setting.practice and setting.simulate is None
    session = Session(store, record.id, author=setting.author, practice=practice)
    Desk(session, person, setting.simulate, setting.as_json).run()


def _check_class(simulate: str | None) -> None:
    if simulate is not None:
        from earshift.engine.norms import class_median

        class_median(simulate)
