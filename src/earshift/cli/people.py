"""The people whose hearing is followed."""

from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earshift.cli.app import NOT_FINISHED, AsJson, app, trouble
from earshift.cli.database import (
    EXIT_CODES,
    Author,
    Database,
    Yes,
    author_name,
    disclosed,
    looked_into,
    opened,
)
from earshift.cli.terminal import as_date, confirmed, person_label, printable, show_json, table
from earshift.engine.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from earshift.records import ExamRecord, Person, ResultRecord, Visit

SEXES = "female, male, other or unknown"
RETENTION = (
    "Hearing records often have to be kept: in the United States audiometric test records for as "
    "long as the person is employed (29 CFR 1910.95(m)). Ask whoever is responsible first."
)

people = typer.Typer(
    help="The people whose hearing is followed.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(people, name="person")

Who = Annotated[
    str,
    typer.Argument(
        metavar="PERSON",
        help="Id or code; write id:7 or code:7 if it could be either.",
    ),
]
Code = Annotated[str | None, typer.Option(help="The clinic's own number for the person.")]
Name = Annotated[str | None, typer.Option(help="Name.")]
Born = Annotated[str | None, typer.Option(help="Date of birth, YYYY-MM-DD.")]
Sex = Annotated[str | None, typer.Option(help=f"{SEXES}.")]
Department = Annotated[str | None, typer.Option(help="Department.")]
Job = Annotated[str | None, typer.Option(help="Job.")]
Hired = Annotated[str | None, typer.Option(help="First day at work, YYYY-MM-DD.")]
Left = Annotated[
    str | None, typer.Option(help="Day from which they are no longer at work, YYYY-MM-DD.")
]
Reason = Annotated[str, typer.Option(help="The reason; it is stored with the change.")]


def _identity(
    code: str | None,
    name: str | None,
    born: str | None,
    sex: str | None,
    department: str | None,
    job: str | None,
    hired: str | None,
    left: str | None,
) -> dict[str, Any]:
    """Only what was given; an empty text means that it is not known."""
    from earshift.clinic.people import clean_identity
    from earshift.days import today

    def day(text: str | None, what: str) -> date | str | None:
        return text and as_date(text, what)

    given = {
        "code": code,
        "name": name,
        "birth_date": day(born, "a date of birth"),
        "sex": sex,
        "department": department,
        "job": job,
        "hired_on": day(hired, "the first day at work"),
        "left_on": day(left, "the day of leaving"),
    }
    return clean_identity({k: v for k, v in given.items() if v is not None}, today())


@people.command("add", epilog=EXIT_CODES)
def person_add(
    code: Code = None,
    name: Name = None,
    born: Born = None,
    sex: Sex = None,
    department: Department = None,
    job: Job = None,
    hired: Hired = None,
    left: Left = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Add a person. Everything is optional, but no two people can have the same code."""
    with opened(db) as store:
        identity = _identity(code, name, born, sex, department, job, hired, left)
        person = store.add_person(author=author_name(author), **identity)
    if as_json:
        show_json(asdict(person))
    else:
        typer.echo(f"Added {person_label(person)}")


@people.command("list", epilog=EXIT_CODES)
def person_list(
    search: Annotated[str | None, typer.Option(help="Part of a code or name.")] = None,
    after: Annotated[int, typer.Option(min=0, help="Only people after this id.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most this many.")] = 50,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """List people by id, a page at a time."""
    with looked_into(db) as store:
        found = store.people(after=after, limit=limit + 1, search=search)
        page, more = found[:limit], len(found) > limit
        disclosed(store, author, "list", "people", searched=search is not None, people=len(page))
    if as_json:
        show_json([asdict(person) for person in page])
        return
    if not page:
        from earshift.store.database import address, describe

        # Of a database that is not there, an empty one was looked into elsewhere.
        typer.echo(f"Nobody found in {printable(describe(address(db)))}")
        return
    rows = [
        [
            person.id,
            person.code,
            _known_as(person),
            person.birth_date,
            person.sex,
            person.department,
        ]
        for person in page
    ]
    table("People", ["id", "code", "name", "born", "sex", "department"], rows)
    if more:
        typer.echo(f"More: earshift person list --after {page[-1].id}")


def _known_as(person: "Person") -> str | None:
    if person.erased_at is not None:
        return "(erased)"
    if person.merged_into is not None:
        return f"{person.name or ''} (another record of person {person.merged_into})".strip()
    if person.left_on is not None:
        return f"{person.name or ''} (left on {person.left_on})".strip()
    return person.name


@people.command("show", epilog=EXIT_CODES)
def person_show(
    who: Who, db: Database = None, author: Author = None, as_json: AsJson = False
) -> None:
    """Show a person with all exams and their results."""
    from earshift.clinic.people import find_person, kept_until
    from earshift.clinic.worklist import next_due

    with looked_into(db) as store:
        person = find_person(store, who)
        disclosed(store, author, "view", f"people:{person.id}")
        visits = {visit.id: visit for visit in store.visits(person.id)}
        exams = store.exams(person.id)
        results = {exam.id: store.results(exam.id) for exam in exams}
        notes = store.notes(person.id)
        due, others = next_due(store, person.id), store.merged_into(person.id)
        kept = kept_until(store, person)
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
        typer.echo(f"Erased on {person.erased_at:%Y-%m-%d}")
    for name, value in (
        ("born", person.birth_date),
        ("sex", person.sex),
        ("department", person.department),
        ("job", person.job),
        ("hired", person.hired_on),
        ("left", person.left_on),
        ("next full audiogram due", due),
        ("records are kept at least until", kept),
        ("other records of the same person", ", ".join(f"id:{one.id}" for one in others) or None),
    ):
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


@people.command("note", epilog=EXIT_CODES)
def person_note(
    who: Who,
    text: Annotated[str, typer.Argument(help="What to note; `earshift person show` lists all.")],
    visit: Annotated[
        int | None, typer.Option(min=1, help="Id of the visit it is about; its report shows it.")
    ] = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Write a note about a person, or about one visit of theirs."""
    from earshift.clinic.people import find_person

    with opened(db) as store:
        person = find_person(store, who)
        note = store.add_note(person.id, author=author_name(author), text=text, visit_id=visit)
    if as_json:
        show_json(asdict(note))
    else:
        typer.echo(f"Noted about {person_label(person)}")


def _exam_row(
    exam: "ExamRecord", visit: "Visit", results: "Sequence[ResultRecord]"
) -> list[object]:
    from earshift.engine.rules import rule_title
    from earshift.records import measured_on

    what = f"simulated {exam.kind}" if visit.mode == "simulated" else exam.kind
    said = exam.source
    if results:
        shown = results[-1].shown
        said = f"{shown['tones']} tones"
        if shown["verdict"] is not None:
            said = f"{shown['verdict']['decision']}, {said}"
        if shown["rule"] is not None:
            said = f"{rule_title(shown['rule']['name'])}: {said}"
    day = measured_on(exam, visit) or "unknown"
    return [exam.id, exam.visit_id, day, exam.ear, what, exam.state, said]


def _without_design(exam: "ExamRecord") -> dict[str, Any]:
    return {name: value for name, value in asdict(exam).items() if name != "design"}


@people.command("correct", epilog=EXIT_CODES)
def person_correct(
    who: Who,
    reason: Reason,
    code: Code = None,
    name: Name = None,
    born: Born = None,
    sex: Sex = None,
    department: Department = None,
    job: Job = None,
    hired: Hired = None,
    left: Left = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Correct a person's details. The earlier details are kept.

    An empty text (--name "") means unknown.
    """
    from earshift.clinic.people import find_person

    with opened(db) as store:
        changes = _identity(code, name, born, sex, department, job, hired, left)
        if not changes:
            raise Refusal(
                "nothing to correct: give --code, --name, --born, --sex, --department, --job, "
                "--hired or --left"
            )
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
    reason: Annotated[
        str,
        typer.Option(
            help="asked by the person, no longer needed, stored by mistake, or other. It stays: "
            "no other words are taken."
        ),
    ],
    delete_trials: Annotated[
        bool, typer.Option("--delete-trials", help="Also delete the visits and all answers.")
    ] = False,
    yes: Yes = False,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Erase a person's identity and what was typed about them; a record without a name stays.

    The database's files are written anew, which takes a while for a large one.
    """
    from earshift.clinic.people import find_person
    from earshift.store import NotForgotten

    with opened(db) as store:
        person = find_person(store, who)
        exams = len(store.exams(person.id))
        fate = "deleted as well" if delete_trials else "kept without a name"
        typer.echo(f"{person_label(person)}: {exams} exams will be {fate}.", err=True)
        typer.echo(RETENTION, err=True)
        if not yes and not confirmed("Erase for good?"):
            typer.echo("Nothing was erased", err=True)
            raise typer.Exit(NOT_FINISHED)
        unfinished = None
        try:
            store.erase_person(
                person.id, author=author_name(author), reason=reason, delete_trials=delete_trials
            )
        except NotForgotten as trouble_:
            unfinished = trouble_
        erased = store.person(person.id)
    if as_json:
        show_json(asdict(erased))
    else:
        typer.echo(f"Erased person {erased.id}")
    if unfinished is not None:
        raise trouble(unfinished)
    typer.echo(
        "Earlier backups and exports still contain this person: delete them as well", err=True
    )


@people.command("merge", epilog=EXIT_CODES)
def person_merge(
    who: Who,
    into: Annotated[str, typer.Option(help="The record that stays, by id or code.")],
    reason: Reason,
    yes: Yes = False,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Make two records of one person one: the visits of PERSON are the other's from now on.

    Nothing is moved or lost: `earshift person separate` undoes it.
    """
    from earshift.clinic.people import find_person

    with opened(db) as store:
        person, stays = find_person(store, who), find_person(store, into)
        typer.echo(f"{person_label(person)} is {person_label(stays)}", err=True)
        if not yes and not confirmed("Make them one?"):
            typer.echo("Nothing was changed", err=True)
            raise typer.Exit(NOT_FINISHED)
        merge = store.merge_people(person.id, stays.id, author=author_name(author), reason=reason)
    if as_json:
        show_json(asdict(merge))
    else:
        typer.echo(f"Person {person.id} goes by person {stays.id} from now on")


@people.command("separate", epilog=EXIT_CODES)
def person_separate(
    person_id: Annotated[int, typer.Argument(metavar="ID", min=1, help="Id of the record.")],
    reason: Reason,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Undo a merge: the record has its own visits again."""
    with opened(db) as store:
        merge = store.separate_people(person_id, author=author_name(author), reason=reason)
    if as_json:
        show_json(asdict(merge))
    else:
        typer.echo(f"Person {person_id} is a record of its own again")
