"""The examiner's desk: an exam or screen at the keyboard, with any audiometer at hand."""

import json
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from earshift.cli.advice import advised
from earshift.cli.app import NOT_FINISHED
from earshift.cli.terminal import INFERRED, person_label, printable, read_line, table
from earshift.engine.refusal import Refusal, Trouble
from earshift.engine.values import BOTH, EARS
from earshift.records import shown_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from earshift.acts import ShiftFinding
    from earshift.clinic.session import Presentation, Session
    from earshift.records import ExamRecord, Person

KEYS = (
    "y heard - n not heard - y 45 heard, but 45 dB HL was played - undo - pause - "
    "finish (end early) - quit"
)

SILENCE_HEARD = (
    "Nothing was presented, and it was reported as heard. Instruct the listener again: answer only "
    "to a tone."
)


class Desk:
    """The examiner's desk: shows what to present, reads the answers and stores them.

    Every event is a line for a person or, with `as_json`, a line of JSON for a program.
    """

    def __init__(
        self, session: "Session", person: "Person", simulate: str | None, as_json: bool
    ) -> None:
        self._session, self._person = session, person
        self._simulate, self._as_json = simulate, as_json
        self._cautioned = False

    def run(self) -> None:
        """From here to the result. Leaving before it keeps every answer, and exits with 3."""
        from earshift.store import ExamChanged

        try:
            self._greet()
            while not (self._session.done and self._closed()):
                self._one_presentation()
            self._finish()
        except _EndedEarly:
            return
        except (_Leave, KeyboardInterrupt):
            self._leave()
        except ExamChanged as error:  # the exam is the other program's now: it is not paused here
            self._refuse(error)
            raise typer.Exit(NOT_FINISHED) from None

    def _say(self, event: str, words: str = "", **data: Any) -> None:
        if self._as_json:
            typer.echo(json.dumps({"event": event, **data}))
        elif words:
            typer.echo(words)

    def _greet(self) -> None:
        record, procedure = self._session.record, self._session.procedure
        what = "Full exam" if record.kind == "exam" else "Screen"
        both = record.ear == BOTH
        tested = "both ears" if both else f"the {record.ear} ear"
        against = [
            f"{'the ' + ear + ' ear ' if both else ''}against {self._session.reference_words(ear)}"
            for ear in record.references
        ]
        question = "" if record.kind == "exam" else f"\n{self._question()}"
        self._say(
            "begin",
            f"{what} {record.id} of {tested} of {person_label(self._person)}"
            f"{' ' if against and not both else ''}{', ' if against and both else ''}"
            f"{', '.join(against)}, visit {record.visit_id}.{question}\n"
            f"At most {procedure.max_tones} tones. Present each tone on "
            f"{'the ear that is named' if both else tested} and say whether it was heard:\n{KEYS}",
            exam=record.id,
            visit=record.visit_id,
            person=self._person.id,
            kind=record.kind,
            ear=record.ear,
            reference_exam=record.references if both else record.reference_exam_id,
            tones=self._session.tones,
            max_tones=procedure.max_tones,
        )

    def _question(self) -> str:
        from earshift.engine.rules import rule_meaning, rule_title
        from earshift.engine.screen import Screen

        procedure = self._session.procedure
        assert isinstance(procedure, Screen)
        rule = procedure.rule
        if procedure.hypotheses is not None:
            return "Question: is there a notch around 3-6 kHz?"
        if rule is None:
            return f"Question: has hearing changed at all (protocol {procedure.protocol.name})?"
        meaning = rule_meaning(rule.name, rule.text)
        return f"Question: {rule_title(rule.name)}: {meaning} ({rule.source})"

    def _one_presentation(self) -> None:
        shown = self._session.presentation()
        words, progress = self._progress(shown)
        if shown.kind != "practice" and not self._cautioned and self._session.caution:
            self._cautioned = True
            self._say("caution", self._session.caution, message=self._session.caution)
        self._say("present", f"{shown.number:>4}  {shown}   ({words})", **asdict(shown), **progress)
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
                    raise _EndedEarly
                self._refuse("nothing has been answered yet: there is nothing to show")
            else:
                self._common(command)
                if command == "pause":
                    return

    def _progress(self, shown: "Presentation") -> tuple[str, dict[str, Any]]:
        from earshift.engine.screen import Screen

        procedure, tones = self._session.procedure, self._session.tones
        progress: dict[str, Any] = {"tones": tones}
        words = f"{tones} of {procedure.max_tones} tones"
        if shown.kind == "practice":
            words = "practice, does not count"
        elif isinstance(procedure, Screen) and tones:
            progress["p_changed"] = procedure.p_changed
            asked = "P(changed)" if procedure.rule is None else "P(rule met)"
            asked = asked if procedure.hypotheses is None else "P(notch)"
            ears = EARS if procedure.ears is not None else ()
            p_of_ears = [f"{ear} {procedure.of(ear).p_changed:.3f}" for ear in ears]
            words += f", {asked} {', '.join(p_of_ears) or format(procedure.p_changed, '.3f')}"
        return words, progress

    def _simulated(self, shown: "Presentation") -> bool:
        """A listener drawn anew for every presentation, so that a resumed one answers the same."""
        from earshift.engine.tone import Tone
        from earshift.simulate.listener import Listener

        assert self._simulate is not None
        if shown.level_db_hl is None:
            return False
        chance = (self._session.procedure.seed, shown.number)
        listener = Listener.of_class(self._simulate, seed=chance)
        return listener(Tone(shown.frequency_hz, shown.level_db_hl))

    def _answered(self, heard: bool, level: float | None) -> None:
        trial = self._session.answer(heard, played_db_hl=level)
        self._say("stored", number=trial.number, kind=trial.kind, heard=trial.heard)
        if self._simulate is not None and not self._as_json:
            typer.echo(f"     {'heard' if heard else 'not heard'}")
        if trial.kind == "catch" and trial.heard and not self._as_json:
            typer.secho(f"     {SILENCE_HEARD}", fg="yellow")

    def _undo(self) -> None:
        trial = self._session.undo()
        self._say("undone", f"     answer {trial.number} undone", number=trial.number)

    def _closed(self) -> bool:
        """Whether the result may be stored. The last answer can still be taken back here."""
        if self._simulate is not None:
            return True
        self._say("ready", "Enough tones. Press Enter to show and store the result.")
        while True:
            command, _ = self._read("     Enter, undo or quit? ")
            if command in ("", "finish"):  # not y: a key pressed twice must not end the exam
                return True
            if command == "undo":
                with _refusals(self._refuse):
                    self._undo()
                    return False
            elif command in ("pause", "quit"):
                self._common(command)
            else:
                self._refuse("press Enter to store the result, or type undo")

    def _common(self, command: str) -> None:
        """What every prompt understands."""
        if command == "quit":
            raise _Leave
        if command == "pause":
            self._session.pause()
            self._say("paused", "Paused; every answer is kept.")
            if self._read("     Enter to continue, quit to leave: ")[0] == "quit":
                raise _Leave
            self._session.resume()
            return
        self._refuse(f"please type one of: {KEYS}")

    def _refuse(self, message: object) -> None:
        words = advised(message)
        self._say("refused", f"     {words}", message=words)

    def _read(self, prompt: str) -> tuple[str, float | None]:
        """The next line as a command and a level; the end of input leaves the desk."""
        if not self._as_json:
            typer.echo(prompt, nl=False)
        line = read_line()
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
            self._session.pause("left by the examiner")
        self._say(
            "left",
            f"\nNot finished; every answer is kept. Continue with: earshift resume {record.id}",
            exam=record.id,
            trials=len(self._session.trials),
        )
        raise typer.Exit(NOT_FINISHED)

    def _finish(self) -> None:
        result = self._session.finish()
        record = self._session.record
        found = self._findings(record)
        judged: dict[str, Any] = {"findings": [_said(one) for one in found]} if found else {}
        self._say("result", exam=record.id, visit=record.visit_id, shown=result.shown, **judged)
        if not self._as_json:
            _show_result(record, result.shown, found)
            typer.echo(f"Report: earshift report {record.visit_id} --out FILE.pdf")

    def _findings(self, record: "ExamRecord") -> "list[ShiftFinding]":
        """What the rule says of a full audiogram: such a one has no verdict of its own."""
        if record.kind != "exam":
            return []
        from earshift.clinic.findings import findings_of

        visit = self._session.store.visit(record.visit_id)
        return findings_of(self._session.store, visit.person_id, {record.id})


class _EndedEarly(Exception):
    """The examiner has the result shown before the last tone."""


class _Leave(Exception):
    """The examiner leaves the desk."""


@contextmanager
def _refusals(say: "Callable[[object], None]") -> "Iterator[None]":
    """An answer that cannot be taken is said at the desk; trouble ends the exam there."""
    from earshift.store import ExamChanged

    try:
        yield
    except (Trouble, ExamChanged):
        raise
    except Refusal as error:
        say(error)


def _said(finding: "ShiftFinding") -> dict[str, str]:
    from earshift.report.findings import finding_sentence

    return {
        "ear": finding.ear,
        "decision": finding.decision,
        "sentence": finding_sentence(finding),
    }


def _show_result(
    record: "ExamRecord", shown: dict[str, Any], findings: "Sequence[ShiftFinding]"
) -> None:
    verdict = shown["verdict"]
    typer.echo()
    for finding in findings:
        typer.secho(_said(finding)["sentence"], bold=True)
    if verdict is not None:
        from earshift.report.words import headline

        typer.secho(headline(verdict["decision"]), bold=True)
    from earshift.report.findings import as_shown

    parts = [shown_of(shown, ear) for ear in record.ears]
    if record.ear == BOTH and verdict is not None:
        typer.echo(printable(shown["sentence"]))
    for part in parts:
        typer.echo(printable(part["words"]))
    alarms, silent = shown["false_alarms"], shown["catch_trials"]
    grade = "" if verdict is None else f"; reliability {parts[0]['verdict']['reliability']}"
    typer.echo(f"Silent trials reported as heard: {alarms} of {silent}{grade}")
    for ear, part in zip(record.ears, parts, strict=True):
        of_ear = [as_shown(one) for one in findings if one.ear == ear]
        _show_thresholds(ear, part, of_ear[0] if of_ear else part)


def _show_thresholds(ear: str, shown: dict[str, Any], compared: dict[str, Any]) -> None:
    before = {row["frequency_hz"]: _level(row) for row in compared["reference_thresholds"]}
    tested_hz = shown["tested_hz"]
    columns = ["frequency", "threshold, dB HL", "95 % interval"]
    rows = [
        [
            f"{row['frequency_hz']:g} Hz",
            _level(row) if row["frequency_hz"] in tested_hz else f"({_level(row)})",
            f"{row['low_db_hl']:.0f} to {row['high_db_hl']:.0f}",
        ]
        for row in shown["thresholds"]
    ]
    if before:
        columns.append("reference")
        for cells, row in zip(rows, shown["thresholds"], strict=True):
            cells.append(before.get(row["frequency_hz"], ""))
    table(f"{ear} ear", columns, rows)
    if any(row["frequency_hz"] not in tested_hz for row in shown["thresholds"]):
        typer.echo(INFERRED)


def _level(row: dict[str, Any]) -> str:
    sign = {"below": "below ", "above": "above "}.get(row["censored"], "")
    return f"{sign}{row['level_db_hl']:.0f}"
