"""An ear over time: its history against the baseline, and the choice of that."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from earshift.cli.app import AsJson
from earshift.cli.database import (
    EXIT_CODES,
    Author,
    Database,
    author_name,
    disclosed,
    looked_into,
    opened,
)
from earshift.cli.people import Reason, Who, people
from earshift.cli.terminal import INFERRED, person_label, printable, show_json, table
from earshift.engine.values import EARS

if TYPE_CHECKING:
    from earshift.clinic.history import EarHistory


@people.command("history", epilog=EXIT_CODES)
def person_history(
    who: Who,
    ear: Annotated[str | None, typer.Option(help="right or left. Default: both.")] = None,
    rule: Annotated[
        str, typer.Option(help="Rule that full exams are judged by: osha-sts, niosh-15 ...")
    ] = "osha-sts",
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Show every exam of a person's ears against the baseline, with P(changed).

    Says when a persistent shift or an improvement is a reason to revise the baseline. That is for a
    professional to decide: `earshift person baseline`.
    """
    from earshift.clinic.history import ear_history
    from earshift.clinic.people import find_person

    with looked_into(db) as store:
        person = find_person(store, who)
        disclosed(store, author, "view", f"people:{person.id}", what="history")
        wanted = EARS if ear is None else (ear,)
        histories = [ear_history(store, person.id, one, rule) for one in wanted]
    if as_json:
        show_json({"person": person.id, "ears": [asdict(history) for history in histories]})
        return
    typer.echo(person_label(person))
    for history in histories:
        _show(history)


def _show(history: "EarHistory") -> None:
    if not history.occasions:
        typer.echo(f"{history.ear} ear: nothing measured yet")
        return
    from earshift.engine.amount import in_percent
    from earshift.engine.rules import rule_title

    rows = [
        [
            o.exam_id,
            o.day,
            o.kind,
            o.against or "-",
            "-" if o.rule is None else rule_title(o.rule),
            o.decision or "-",
            "-" if o.p_changed is None else in_percent(o.p_changed),
            " ".join(_shift(f, shift, f in o.inferred_hz) for f, shift in o.shifts_db),
            o.note,
        ]
        for o in history.occasions
    ]
    columns = ["exam", "date", "what", "against", "rule", "result", "P", "shift (Hz:dB)", "note"]
    table(f"{history.ear} ear", columns, rows)
    if any(o.inferred_hz for o in history.occasions):
        typer.echo(INFERRED)
    for choice in history.chosen:
        typer.echo(
            f"Baseline: exam {choice.exam_id}, chosen on {choice.at:%Y-%m-%d} by "
            f"{printable(choice.author)}: {printable(choice.reason)}"
        )
    if not history.chosen and history.baseline is not None:
        typer.echo(f"Baseline: exam {history.baseline}, the oldest; none has been chosen")
    if history.proposal is not None:
        exam_id = history.proposal.exam_id
        which = "" if exam_id is None else f" (exam {exam_id})"
        typer.echo(f"For a professional to judge: {history.proposal.words}{which}")


def _shift(frequency_hz: float, shift_db: float, inferred: bool) -> str:
    text = f"{frequency_hz:g}:{shift_db:+.0f}"
    return f"({text})" if inferred else text


@people.command("baseline", epilog=EXIT_CODES)
def person_baseline(
    who: Who,
    ear: Annotated[str, typer.Option(help="right or left.")],
    exam: Annotated[int, typer.Option(help="The full exam or audiogram to compare with.")],
    reason: Reason,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Choose the exam that an ear is compared with from now on; earlier choices are kept."""
    from earshift.clinic.history import revise_baseline
    from earshift.clinic.people import find_person

    with opened(db) as store:
        person = find_person(store, who)
        chosen = revise_baseline(
            store, person.id, ear, exam, author=author_name(author), reason=reason
        )
    if as_json:
        show_json(asdict(chosen))
    else:
        typer.echo(f"From now on the {ear} ear is compared with exam {exam}")
