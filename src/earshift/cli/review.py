"""Review and sign-off on the command line, letters, follow-ups, and the noise of test rooms."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from earshift.cli.app import AsJson, app
from earshift.cli.database import (
    EXIT_CODES,
    Author,
    Database,
    Timezone,
    author_name,
    disclosed,
    opened,
)
from earshift.cli.people import Reason
from earshift.cli.terminal import as_date, printable, show_json, table
from earshift.cli.users import FromStdin, typed_password
from earshift.cli.worklist import Ear, of_ears, reviewer_name
from earshift.engine.refusal import Refusal

if TYPE_CHECKING:
    from earshift.clinic.review import Review
    from earshift.store import Store

VisitId = Annotated[int, typer.Argument(metavar="VISIT", min=1, help="Id of the visit.")]
ExamId = Annotated[int, typer.Argument(metavar="EXAM", min=1, help="Id of the exam.")]
Name = Annotated[str, typer.Option(help="Printed name, as it is to stand on paper.")]
Day = Annotated[str | None, typer.Option(help="Day, as YYYY-MM-DD. Default: today.")]

reviews = typer.Typer(
    help="Review and sign visits, write letters, keep what was done about shifts.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(reviews, name="review")


@reviews.command("show", epilog=EXIT_CODES)
def review_show(
    visit_id: VisitId, db: Database = None, author: Author = None, as_json: AsJson = False
) -> None:
    """Show what a visit found by OSHA's rules, who signed it, and what was done since."""
    from earshift.clinic.review import review_of

    with opened(db) as store:
        found = review_of(store, visit_id)
        disclosed(store, author, "view", f"visits:{visit_id}", what="review")
    if as_json:
        show_json(_as_data(found))
        return
    for line in _lines(found):
        typer.echo(printable(line))


def _as_data(found: "Review") -> dict[str, object]:
    return {
        "visit": found.now.visit.id,
        "findings": [asdict(one) for one in found.now.findings],
        "signatures": [asdict(one) for one in found.signatures],
        "follow_ups": [asdict(one) for one in found.follow_ups],
        "seen": found.seen,
        "changed_since": found.changed_since,
        "obstacle": found.obstacle,
        "letter_by": found.letter_by,
    }


def _lines(found: "Review") -> list[str]:
    from earshift.clinic.review import FOLLOW_UP_WORDS
    from earshift.report.findings import ENGLISH_REVIEW, finding_sentences, noise_sentence
    from earshift.report.text import moment
    from earshift.report.words import ENGLISH

    now = found.now
    lines = []
    for one in now.of_ears:
        said = one.results[-1].shown.get("words") if one.results else ""
        lines.append(
            f"exam {one.exam.id}, {one.exam.ear} {one.exam.kind}: {said or one.exam.state}"
        )
    lines += [sentence for one in now.findings for sentence in finding_sentences(one)]
    if now.room_noise is not None:
        transducer = "unknown" if now.device is None else now.device.transducer
        lines.append(noise_sentence(now.room_noise, transducer))
    lines += [
        f"Signature {one.id}: {one.name}, {one.meaning}, "
        f"{moment(one.at, now.visit.zone, ENGLISH)}, account {one.author}, SHA-256 {one.sha256}"
        for one in found.signatures
    ] or [ENGLISH_REVIEW.unsigned]
    if found.changed_since:
        lines.append("Something was stored after the newest signature.")
    if found.obstacle:
        lines.append(f"It cannot be signed: {found.obstacle}.")
    sent = any(one.kind == "letter" for one in found.follow_ups)
    if found.letter_by is not None and not sent:
        lines.append(f"The person is to be told in writing by {found.letter_by}.")
    return [
        *lines,
        *(
            f"{FOLLOW_UP_WORDS[one.kind].capitalize()} on {one.done_on} by {one.done_by}"
            for one in found.follow_ups
        ),
    ]


@reviews.command("sign", epilog=EXIT_CODES)
def review_sign(
    visit_id: VisitId,
    name: Name,
    meaning: Annotated[
        str, typer.Option(help="reviewed, approved or 'responsible for the result'.")
    ] = "reviewed",
    amends: Annotated[
        int | None, typer.Option(min=1, help="Id of the newest signature, to sign anew after it.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Of an amendment: what is amended, and why.")] = "",
    password_stdin: FromStdin = False,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Sign a visit as it stands. Its report and letter are made from what was signed.

    In a database with users only reviewers and admins sign, by --author, and each signature asks
    for the password of that account, as in the browser; and for a code where there is a second
    factor. With --password-stdin the code is the second line.
    """
    from earshift.clinic.review import sign

    with opened(db) as store:
        signer = reviewer_name(store, author)
        _prove(store, signer, password_stdin)
        signature = sign(
            store,
            visit_id,
            author=signer,
            name=name,
            meaning=meaning,
            amends=amends,
            reason=reason,
        )
    if as_json:
        show_json(asdict(signature))
    else:
        typer.echo(f"Signature {signature.id} of visit {visit_id}, SHA-256 {signature.sha256}")


def _prove(store: "Store", signer: str, from_stdin: bool) -> None:
    """That whoever signs is the one whose account is put under it; where there are no users nobody
    has one."""
    from earshift.clinic.entry import prove_signer
    from earshift.store.accounts import Accounts

    accounts = Accounts(store)
    known = {user.name: user for user in accounts.users()}
    if not known:
        return
    password = typed_password(from_stdin, f"Password of {printable(signer)} (not shown): ")
    coded = known[signer].second_factor
    code = typed_password(from_stdin, "Code of the second factor: ") if coded else ""
    prove_signer(accounts, store, known[signer], password, code)


@reviews.command("letter", epilog=EXIT_CODES)
def review_letter(
    visit_id: VisitId,
    out: Annotated[Path, typer.Option(help="File to write, ending in .html or .pdf.")],
    paper: Annotated[str, typer.Option(help="PDF: a4 or letter.")] = "a4",
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Write the letter that tells the person of a signed standard threshold shift."""
    from earshift.clinic.review import letter_of
    from earshift.report import write_letter

    with opened(db) as store:
        write_letter(*letter_of(store, visit_id), out, paper)
        disclosed(store, author, "view", f"visits:{visit_id}", what="letter")
    if as_json:
        show_json({"visit": visit_id, "letter": str(out)})
    else:
        typer.echo(f"Letter of visit {visit_id}: {out}")


@reviews.command("follow-up", epilog=EXIT_CODES)
def review_follow_up(
    visit_id: VisitId,
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="letter, protector, training or referral.")
    ],
    by: Annotated[str, typer.Option(help="Who did it.")],
    on: Day = None,
    details: Annotated[str, typer.Option(help="Anything else, such as model and size.")] = "",
    taken_back: Annotated[
        bool, typer.Option("--taken-back", help="It was entered by mistake.")
    ] = False,
    timezone: Timezone = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Keep what was done because of a shift: told in writing, protector, training, referral."""
    from earshift.clinic.review import FOLLOW_UP_WORDS, add_follow_up
    from earshift.clinic.zones import local_zone
    from earshift.days import today

    with opened(db) as store:
        day = today(timezone or local_zone()) if on is None else as_date(on, "the day")
        done = add_follow_up(
            store,
            visit_id,
            kind,
            author=author_name(author),
            done_on=day,
            done_by=by,
            details=details,
            done=not taken_back,
        )
    if as_json:
        show_json(asdict(done))
    else:
        said = "Taken back: " if taken_back else ""
        typer.echo(f"{said}{FOLLOW_UP_WORDS[kind]} on {day}")


@reviews.command("work-related", epilog=EXIT_CODES)
def review_work_related(
    exam_id: ExamId,
    answer: Annotated[str, typer.Argument(metavar="ANSWER", help="yes, no, or unsaid.")],
    name: Name,
    reason: Reason,
    ear: Ear = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Keep a professional's word on whether a shift is related to work (29 CFR 1904.10)."""
    from earshift.clinic.review import say_work_related

    with opened(db) as store:
        words = {"yes": True, "no": False, "unsaid": None}
        if answer not in words:
            raise Refusal("the answer is yes, no or unsaid", got=answer)
        said = say_work_related(
            store,
            exam_id,
            words[answer],
            author=reviewer_name(store, author),
            name=name,
            reason=reason,
            ears=() if ear is None else (ear,),
        )
    if as_json:
        show_json(asdict(said))
    else:
        typer.echo(f"Exam {exam_id}{of_ears(said.ears)}, related to work: {answer}")


rooms = typer.Typer(
    help="Background noise of test rooms, against the limits that are known.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(rooms, name="room")


@rooms.command("add", epilog=EXIT_CODES)
def room_add(
    levels: Annotated[
        list[str], typer.Argument(metavar="HZ=DB...", help="Levels in dB SPL, such as 500=31.5.")
    ],
    on: Day = None,
    device: Annotated[
        int | None, typer.Option(min=1, help="Id of the device in it. Default: the whole site.")
    ] = None,
    room: Annotated[str, typer.Option(help="What the room is called.")] = "",
    meter: Annotated[str, typer.Option(help="The sound level meter.")] = "",
    timezone: Timezone = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Keep what a meter showed in a room, octave band by octave band."""
    from earshift.clinic.review import add_room_noise
    from earshift.clinic.zones import local_zone
    from earshift.days import today

    with opened(db) as store:
        zone = timezone or local_zone()
        pairs = [one.split("=") for one in levels]
        if any(len(pair) != 2 for pair in pairs):
            raise Refusal("a level is typed as HZ=DB, such as 500=31.5", got=" ".join(levels))
        noise = add_room_noise(
            store,
            dict(pairs),
            author=author_name(author),
            measured_on=today(zone) if on is None else as_date(on, "the day"),
            zone=zone,
            room=room,
            instrument=meter,
            device_id=device,
        )
        kinds = _kinds(store, noise.device_id)
    if as_json:
        show_json(asdict(noise))
        return
    for line in _noise_checks(noise.levels, kinds):
        typer.echo(line)


def _kinds(store: "Store", device_id: int | None) -> list[str]:
    """The kinds of earphones that a measurement is checked for."""
    from earshift.devices.noise import LIMITS

    return list(LIMITS) if device_id is None else [store.device(device_id).transducer]


def _noise_checks(levels: dict[str, float], kinds: list[str]) -> list[str]:
    from earshift.devices.noise import check_noise

    said = [check_noise(levels, kind).words for kind in kinds]
    return [f"{words[0].upper()}{words[1:]}" for words in said]


@rooms.command("list", epilog=EXIT_CODES)
def room_list(db: Database = None, as_json: AsJson = False) -> None:
    """List what was measured, newest first, and what the limits say of it."""
    from earshift.devices.noise import noise_words

    with opened(db) as store:
        found = store.room_noise()
        kinds = [_kinds(store, one.device_id) for one in found]
    if as_json:
        show_json([asdict(one) for one in found])
    elif not found:
        typer.echo("Nothing was measured yet")
    else:
        rows = [
            [one.measured_on, one.room or "site", noise_words(one), "; ".join(said)]
            for one, of in zip(found, kinds, strict=True)
            for said in [_noise_checks(one.levels, of)]
        ]
        table("Room noise", ["day", "room", "levels, dB SPL", "limits"], rows)
