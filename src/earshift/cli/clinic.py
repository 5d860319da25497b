"""A working day: people, exams and screens with any audiometer, reports, import and export."""

import json
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import typer

from earshift.cli.app import RULE_VERDICTS, VERDICTS, AsJson, app, fail
from earshift.cli.database import (
    EXIT_CODES,
    NOT_FINISHED,
    Author,
    Database,
    Yes,
    author_name,
    confirmed,
    is_trouble,
    opened,
    plain_failures,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from earshift.formats import References
    from earshift.records import ExamRecord, Person, Visit
    from earshift.stimulus import Limits
    from earshift.store import Store
    from earshift.visit import Plan, Presentation, Session

SEXES = ("female", "male", "other", "unknown")
RETENTION = (
    "Hearing records often have to be kept: in the United States audiometric test records for as "
    "long as the person is employed (29 CFR 1910.95(m)). Ask whoever is responsible first."
)
LINE = 200  # characters of an answer at the prompt; more is a mistake


def printable(value: object) -> str:
    """Text for the terminal: what could steer it is shown as a question mark."""
    text = "" if value is None else str(value)
    return "".join(char if char.isprintable() else "�" for char in text)


def show_json(data: object) -> None:
    typer.echo(json.dumps(data, indent=2, default=str))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    picture = Table(title=Text(printable(title)))
    for name in columns:
        picture.add_column(name)
    for row in rows:
        picture.add_row(*(Text(printable(cell)) for cell in row))
    Console().print(picture)


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


def _day(text: str) -> date:
    try:
        day = datetime.strptime(text.strip(), "%Y-%m-%d").date()
    except ValueError:
        raise ValueError(f"a date of birth is written YYYY-MM-DD, got {text!r}") from None
    if not date(1880, 1, 1) <= day <= datetime.now().astimezone().date():
        raise ValueError(f"a date of birth lies between 1880 and today, got {day}")
    return day


def _identity(
    code: str | None, name: str | None, born: str | None, sex: str | None
) -> dict[str, Any]:
    """Only what was given; an empty text means that it is not known."""
    if sex and sex not in SEXES:
        raise ValueError(f"sex must be one of {', '.join(SEXES)}, got {sex!r}")
    given = {"code": code, "name": name, "birth_date": _day(born) if born else born, "sex": sex}
    return {field: value or None for field, value in given.items() if value is not None}


def _label(person: "Person") -> str:
    """How a person is called on the screen."""
    names = [part for part in (person.code, person.name) if part]
    return printable(f"person {person.id}" + (f" ({', '.join(names)})" if names else ""))


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
        typer.echo(f"Added {_label(person)}")


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
    from earshift.visit import find_person

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
    typer.echo(_label(person))
    if person.erased_at is not None:
        typer.echo(f"Erased on {person.erased_at:%Y-%m-%d}; the identity is gone")
    for name, value in (("born", person.birth_date), ("sex", person.sex)):
        if value is not None:
            typer.echo(f"{name}: {printable(value)}")
    rows = [
        [
            exam.id,
            exam.visit_id,
            _date_of(exam, visits[exam.visit_id]),
            exam.ear,
            exam.kind,
            exam.state,
            visits[exam.visit_id].mode,
            results[exam.id][-1].shown["words"] if results[exam.id] else exam.source,
        ]
        for exam in exams
    ]
    if rows:
        columns = ["exam", "visit", "date", "ear", "kind", "state", "mode", "result or source"]
        table("Exams", columns, rows)
    else:
        typer.echo("No exams yet")
    for note in notes:
        typer.echo(f"{note.at:%Y-%m-%d} {printable(note.author)}: {printable(note.text)}")
    for exam in exams:
        if exam.state in ("open", "paused"):
            typer.echo(f"Not finished: earshift resume {exam.id}")


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
    from earshift.visit import find_person

    with opened(db) as store:
        changes = _identity(code, name, born, sex)
        if not changes:
            raise ValueError("nothing to correct: give --code, --name, --born or --sex")
        person = find_person(store, who)
        person = store.correct_person(
            person.id, author=author_name(author), reason=reason, **changes
        )
    if as_json:
        show_json(asdict(person))
    else:
        typer.echo(f"Corrected: {_label(person)}")


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
    from earshift.visit import find_person

    with opened(db) as store:
        person = find_person(store, who)
        exams = len(store.exams(person.id))
        fate = "deleted, too" if delete_trials else "kept without a name"
        typer.echo(f"{_label(person)}: {exams} exams will be {fate}.", err=True)
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
Timezone = Annotated[
    str | None,
    typer.Option(
        envvar="EARSHIFT_TIMEZONE",
        show_envvar=False,
        help="The site's time zone, e.g. Europe/Berlin; else EARSHIFT_TIMEZONE or this machine's.",
    ),
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
    from earshift.visit import find_person, plan_exam

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
        int | None, typer.Option(min=1, help="Exam to compare with; else the newest of this ear.")
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
    from earshift.visit import find_person, plan_screen

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
    from earshift.visit import Session

    with opened(db) as store:
        _check_class(simulate)
        session = Session(
            store, exam_id, author=author_name(author), practice=practice and simulate is None
        )
        visit = store.visit(session.record.visit_id)
        if simulate is not None and visit.mode != "simulated":
            raise ValueError(f"exam {exam_id} is of a real person and cannot be simulated")
        session.resume()
        _Desk(session, store.person(visit.person_id), simulate, as_json).run()


def _limits(cap_db_hl: float, yes: bool) -> "Limits":
    """Limits up to the cap; a loud one only when the examiner says so."""
    from earshift.visit import CAP_DB_HL, supervised_limits

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
    from earshift.visit import Session, local_zone, open_exam, todays_visit, unfinished

    _check_class(setting.simulate)
    zone = setting.timezone or local_zone()
    left = unfinished(store, person.id, plan.ear, simulated=setting.mode == "simulated")
    if left and not setting.set_aside:
        raise ValueError(
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
    _Desk(session, person, setting.simulate, setting.as_json).run()


def _check_class(simulate: str | None) -> None:
    if simulate is not None:
        from earshift.norms import class_median

        class_median(simulate)


KEYS = (
    "y heard - n not heard - y 45 heard, but 45 dB HL was played - undo - pause - "
    "finish (end early) - quit"
)


class _Desk:
    """The examiner's desk: shows what to present, reads the answers, tells what became of them.

    Every event is a line for a person or, with `as_json`, a line of JSON for a program.
    """

    def __init__(
        self, session: "Session", person: "Person", simulate: str | None, as_json: bool
    ) -> None:
        self._session, self._person = session, person
        self._simulate, self._as_json = simulate, as_json

    def run(self) -> None:
        """From here to the result. Leaving before it keeps every answer, and exits with 3."""
        try:
            self._greet()
            while not (self._session.done and self._closed()):
                self._one_presentation()
            self._finish()
        except (_Leave, KeyboardInterrupt):
            self._leave()

    def _say(self, event: str, words: str = "", **data: Any) -> None:
        if self._as_json:
            typer.echo(json.dumps({"event": event, **data}))
        elif words:
            typer.echo(words)

    def _greet(self) -> None:
        record, sitting = self._session.record, self._session.sitting
        what = "Full exam" if record.kind == "exam" else "Screen"
        against = ""
        if record.reference_exam_id is not None:
            against = f" against exam {record.reference_exam_id}"
        question = "" if record.kind == "exam" else f"\n{self._question()}"
        self._say(
            "begin",
            f"{what} {record.id} of the {record.ear} ear of {_label(self._person)}{against}, "
            f"visit {record.visit_id}.{question}\n"
            f"At most {sitting.max_tones} tones. Present each tone on the {record.ear} ear and say "
            f"whether it was heard:\n{KEYS}",
            exam=record.id,
            visit=record.visit_id,
            person=self._person.id,
            kind=record.kind,
            ear=record.ear,
            reference_exam=record.reference_exam_id,
            tones=self._session.tones,
            max_tones=sitting.max_tones,
        )

    def _question(self) -> str:
        from earshift.exam import Screen

        sitting = self._session.sitting
        assert isinstance(sitting, Screen)
        if sitting.rule is None:
            return f"Question: has hearing changed at all (protocol {sitting.protocol.name})?"
        return f"Question: {sitting.rule.name}, {sitting.rule.text} ({sitting.rule.source})"

    def _one_presentation(self) -> None:
        shown = self._session.presentation()
        self._say("present", f"{shown.number:>4}  {shown}{self._progress(shown)}", **asdict(shown))
        if self._simulate is not None:
            self._answered(self._simulated(shown), None)
            return
        while True:
            command, level = self._read("     heard? ")
            if command in ("y", "n"):
                with _refusals(self._refuse):
                    self._answered(command == "y", level)
                    return
            elif command == "undo":
                with _refusals(self._refuse):
                    self._undo()
                    return
            elif command == "finish":
                if self._session.tones:
                    self._finish()
                    raise typer.Exit()
                self._refuse("no tone was answered yet: there is nothing to show")
            else:
                self._common(command)
                if command == "pause":
                    return

    def _progress(self, shown: "Presentation") -> str:
        from earshift.exam import Screen

        sitting, tones = self._session.sitting, self._session.tones
        if shown.kind == "practice":
            return "   (practice, counts for nothing)"
        so_far = f"   ({tones} of {sitting.max_tones} tones"
        if not isinstance(sitting, Screen) or not tones:
            return f"{so_far})"
        asked = "P(changed)" if sitting.rule is None else "P(rule met)"
        return f"{so_far}, {asked} {sitting.p_changed:.3f})"

    def _simulated(self, shown: "Presentation") -> bool:
        """A listener drawn anew for every presentation, so that a resumed one answers the same."""
        from earshift.listener import Listener
        from earshift.stimulus import Tone

        assert self._simulate is not None
        if shown.level_db_hl is None:
            return False
        chance = (self._session.sitting.seed, shown.number)
        listener = Listener.of_class(self._simulate, seed=chance)
        return listener(Tone(shown.frequency_hz, shown.level_db_hl))

    def _answered(self, heard: bool, level: float | None) -> None:
        trial = self._session.answer(heard, played_db_hl=level)
        self._say("stored", number=trial.number, kind=trial.kind, heard=trial.heard)
        if self._simulate is not None and not self._as_json:
            typer.echo(f"     {'heard' if heard else 'not heard'}")

    def _undo(self) -> None:
        trial = self._session.undo()
        self._say("undone", f"     answer {trial.number} taken back", number=trial.number)

    def _closed(self) -> bool:
        """Whether the result may be stored. The last answer can still be taken back here."""
        if self._simulate is not None:
            return True
        self._say("ready", "Enough tones. Enter shows and stores the result.")
        while True:
            command, _ = self._read("     Enter, undo or quit? ")
            if command in ("", "finish", "y"):
                return True
            if command == "undo":
                with _refusals(self._refuse):
                    self._undo()
                    return False
            else:
                self._common(command)

    def _common(self, command: str) -> None:
        """What every prompt understands."""
        if command == "quit":
            raise _Leave
        if command == "pause":
            self._session.pause()
            self._say("paused", "Paused; every answer is kept.")
            if self._read("     Enter goes on, quit leaves: ")[0] == "quit":
                raise _Leave
            self._session.resume()
            return
        self._refuse(f"please answer {KEYS}")

    def _refuse(self, message: object) -> None:
        self._say("refused", f"     {message}", message=str(message))

    def _read(self, prompt: str) -> tuple[str, float | None]:
        """The next line as a command and a level; the end of input leaves the desk."""
        if not self._as_json:
            typer.echo(prompt, nl=False)
        line = _read_line()
        if line is None:
            raise _Leave
        words = line.casefold().split()
        known = {"yes": "y", "no": "n", "u": "undo", "p": "pause", "f": "finish", "q": "quit"}
        command = known.get(words[0], words[0]) if words else ""
        if len(words) == 1 or not words:
            return command, None
        if len(words) == 2 and command in ("y", "n"):
            try:
                return command, float(words[1])
            except ValueError:
                pass
        return "?", None

    def _leave(self) -> None:
        record = self._session.record
        if record.state == "open":
            with plain_failures():
                self._session.pause("left by the examiner")
        self._say(
            "left",
            f"\nNot finished; every answer is kept. Go on by: earshift resume {record.id}",
            exam=record.id,
            trials=len(self._session.trials),
        )
        raise typer.Exit(NOT_FINISHED)

    def _finish(self) -> None:
        result = self._session.finish()
        record = self._session.record
        self._say("result", exam=record.id, visit=record.visit_id, shown=result.shown)
        if not self._as_json:
            _show_result(record, result.shown)
            typer.echo(f"Report: earshift report {record.visit_id} --out FILE.pdf")


class _Leave(Exception):  # noqa: N818 - the examiner leaves; nothing is wrong
    """The examiner leaves the desk."""


@contextmanager
def _refusals(say: "Callable[[object], None]") -> "Iterator[None]":
    """An answer that cannot be taken is told at the desk; trouble with the database ends it."""
    try:
        yield
    except ValueError as error:
        if is_trouble(error):
            raise
        say(error)


def _read_line() -> str | None:
    """A line from the keyboard or a pipe; None at its end. One too long is read past, not kept."""
    try:
        line = sys.stdin.readline(LINE)
        whole = len(line) < LINE or line.endswith("\n")
        while not whole:
            line = "?"
            rest = sys.stdin.readline(LINE)
            whole = len(rest) < LINE or rest.endswith("\n")
    except UnicodeDecodeError:
        return "?"
    return line or None


def _show_result(record: "ExamRecord", shown: dict[str, Any]) -> None:
    verdict = shown["verdict"]
    typer.echo()
    if verdict is not None:
        headlines = VERDICTS if shown["rule"] is None else RULE_VERDICTS
        typer.secho(headlines.get(verdict["decision"], verdict["decision"].upper()), bold=True)
    typer.echo(printable(shown["words"]))
    alarms, silent = shown["false_alarms"], shown["catch_trials"]
    grade = "" if verdict is None else f"; reliability {verdict['reliability']}"
    typer.echo(f"Silent trials answered: {alarms} of {silent}{grade}")
    before = {row["frequency_hz"]: row for row in shown["reference_thresholds"]}
    rows = [
        [
            f"{row['frequency_hz']:g} Hz",
            _level(row),
            f"{row['low_db_hl']:.0f} to {row['high_db_hl']:.0f}",
            _level(before[row["frequency_hz"]]) if row["frequency_hz"] in before else "",
        ]
        for row in shown["thresholds"]
    ]
    columns = ["frequency", "threshold, dB HL", "95 % interval", "reference"]
    table(
        f"{record.ear} ear", columns[: 4 if before else 3], [r[: 4 if before else 3] for r in rows]
    )


def _level(row: dict[str, Any]) -> str:
    sign = {"below": "below ", "above": "above "}.get(row["censored"], "")
    return f"{sign}{row['level_db_hl']:.0f}"


# Reports, import, export ------------------------------------------------------------------------


@app.command(epilog=EXIT_CODES)
def report(
    visit_id: Annotated[int, typer.Argument(metavar="VISIT", min=1, help="Id of the visit.")],
    out: Annotated[Path, typer.Option(help="File to write: its name ends in .html or .pdf.")],
    paper: Annotated[str, typer.Option(help="Of a PDF: a4 or letter.")] = "a4",
    font: Annotated[
        list[Path] | None,
        typer.Option(help="Of a PDF: a TrueType file for scripts that the shipped font lacks."),
    ] = None,
    db: Database = None,
    as_json: AsJson = False,
) -> None:
    """Write the report of a visit, one page for both ears, as HTML or PDF.

    It shows the results as they were stored, and never computes them anew.
    """
    kind = out.suffix.lower()
    with opened(db) as store:
        if kind not in (".html", ".pdf"):
            raise ValueError(f"a report is a file that ends in .html or .pdf, got {out.name!r}")
        from earshift.report import write_html, write_pdf

        bundle = store.visit_bundle(visit_id)
        if kind == ".html":
            write_html(bundle, out)
            warnings = []
        else:
            warnings = write_pdf(bundle, out, paper, fonts=font or ())
    if as_json:
        show_json({"visit": visit_id, "report": str(out), "warnings": warnings})
        return
    for warning in warnings:
        typer.secho(f"earshift: {printable(warning)}", fg="yellow", err=True)
    typer.echo(f"Report of visit {visit_id}: {out}")


def _pairs(texts: Sequence[str] | None, what: str) -> dict[str, str]:
    """`--option LEFT=RIGHT`, any number of times; the last = divides, as texts may hold one."""
    pairs = {}
    for text in texts or ():
        left, equals, right = text.rpartition("=")
        if not equals or not left.strip() or not right.strip():
            raise ValueError(f"{what} is written TEXT=MEANING, got {text!r}")
        pairs[left.strip()] = right.strip()
    return pairs


def _levels(texts: Sequence[str] | None) -> float | dict[float, float] | None:
    """One level for all frequencies, or FREQUENCY=LEVEL for each."""
    try:
        if texts is not None and len(texts) == 1 and "=" not in texts[0]:
            return float(texts[0])
        pairs = _pairs(texts, "--no-response-db")
        return {float(f): float(level) for f, level in pairs.items()} or None
    except ValueError:
        raise ValueError(
            "--no-response-db is a level such as 90, or FREQUENCY=LEVEL such as 8000=85; "
            f"got {', '.join(texts or ())}"
        ) from None


@app.command("import", epilog=EXIT_CODES)
def import_references(
    file: Annotated[Path, typer.Argument(help="File with audiograms.")],
    kind: Annotated[
        str | None,
        typer.Option("--format", help="csv, mie, fhir or nhanes; else the file's name decides."),
    ] = None,
    person_column: Annotated[
        str | None, typer.Option(help="Of a CSV: the column with the person's code.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="Of a CSV: THEIRS=OURS, e.g. Untersucht=date. May be repeated."),
    ] = None,
    sentinel: Annotated[
        list[str] | None,
        typer.Option(help="TEXT=MEANING of a cell: no response, not tested or threshold."),
    ] = None,
    no_response_db: Annotated[
        list[str] | None,
        typer.Option(help="Level tried where no response is written: 90, or 8000=85 for each."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--every", help="Also audiograms that the file flags as no baseline.")
    ] = False,
    method_offset: Annotated[
        float, typer.Option(help="dB that the method reads too high; 5 dB steps upward: 2.5.")
    ] = 0.0,
    skip_rejected: Annotated[
        bool, typer.Option("--skip-rejected", help="Store the sound rows though others are not.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and tell, store nothing.")] = (
        False
    ),
    timezone: Timezone = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Store audiograms from elsewhere as references to screen against.

    Lists every row that cannot be taken, with the reason. Then nothing is stored, unless
    --skip-rejected says to store the others. Times without a zone need --timezone.
    """
    from earshift.formats import read_references
    from earshift.visit import local_zone

    with plain_failures():
        columns = _pairs(column, "--column")
        if person_column is not None:
            columns[person_column] = "person"
        found = read_references(
            file,
            kind,
            timezone=timezone,
            columns=columns,
            sentinels=_pairs(sentinel, "--sentinel"),
            no_response_db_hl=_levels(no_response_db),
            baselines_only=not every,
            method_offset_db=method_offset,
        )
    refused = bool(found.rejected) and not skip_rejected
    added, known = [], []
    if not refused and not dry_run and found.accepted:
        with opened(db) as store:
            stored = store.import_audiograms(
                found.accepted, author=author_name(author), zone=timezone or local_zone()
            )
            added, known = [e.id for e in stored.added], [e.id for e in stored.known]
    if as_json:
        show_json(
            {
                "file": str(file),
                "sound": len(found.accepted),
                "rejected": [asdict(row) for row in found.rejected],
                "left_out": [asdict(row) for row in found.left_out],
                "added": added,
                "known": known,
                "dry_run": dry_run,
            }
        )
    else:
        _tell_import(found, added, known, stored=not refused and not dry_run)
    if refused:
        raise fail(
            f"{len(found.rejected)} rows cannot be taken, so nothing was stored: mend the file, "
            "explain its codes by --sentinel, or give --skip-rejected"
        )
    if not found.accepted:
        raise fail(f"{file} holds no audiogram that can be taken")


def _tell_import(
    found: "References", added: Sequence[int], known: Sequence[int], stored: bool
) -> None:
    for title, rows in (("Rejected", found.rejected), ("Left out", found.left_out)):
        if rows:
            table(title, ["row", "reason"], [[row.row, row.reason] for row in rows])
    typer.echo(f"{len(found.accepted)} audiograms are sound")
    if stored:
        again = f"; {len(known)} were stored before" if known else ""
        typer.echo(f"{len(added)} stored{again}")
    else:
        typer.echo("Nothing was stored")


@app.command(epilog=EXIT_CODES)
def export(
    kind: Annotated[str, typer.Option("--format", help="csv, parquet, fhir or bids.")],
    out: Annotated[Path, typer.Option(help="New folder; of fhir, a new file.")],
    who: Annotated[
        str | None, typer.Option("--person", help="One person alone, by id or code.")
    ] = None,
    identity: Annotated[
        bool | None,
        typer.Option(
            "--identity/--no-identity",
            help="Write names, birth dates and codes; by default in FHIR alone.",
        ),
    ] = None,
    db: Database = None,
    as_json: AsJson = False,
) -> None:
    """Write visits for others: tidy tables, a FHIR bundle or a BIDS folder."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from earshift.formats import export as write
    from earshift.visit import find_person

    with opened(db) as store:
        person_id = None if who is None else find_person(store, who).id
        total = store.count_visits() if person_id is None else len(store.visits(person_id))
        bar = Progress(
            TextColumn("visits"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True, quiet=as_json),
        )
        with bar:
            task = bar.add_task("visits", total=total)
            count = write(
                store.iter_visit_bundles(person_id),
                kind,
                out,
                identity=identity,
                progress=lambda done: bar.update(task, completed=done),
            )
    if as_json:
        show_json({"format": kind, "out": str(out), "visits": count})
    else:
        typer.echo(f"{count} visits: {out}")
