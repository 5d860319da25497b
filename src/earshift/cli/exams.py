"""Exams and screens of one ear or of both in one sitting, with any audiometer at hand."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earshift.cli.app import NOT_FINISHED, AsJson, app
from earshift.cli.database import (
    EXIT_CODES,
    Author,
    Database,
    Timezone,
    Yes,
    author_name,
    opened,
)
from earshift.cli.desk import Desk
from earshift.cli.people import Who
from earshift.cli.terminal import confirmed
from earshift.engine.refusal import Conflict, Refusal
from earshift.engine.values import BOTH, EARS

if TYPE_CHECKING:
    from earshift.clinic.begin import Wanted
    from earshift.clinic.plan import Plan
    from earshift.devices.delivery import Delivery
    from earshift.engine.limits import Limits
    from earshift.records import Person
    from earshift.store import Store

Ear = Annotated[str, typer.Option(help="right, left, or both in one sitting.")]
Simulate = Annotated[
    str | None,
    typer.Option(help="Let a simulated listener of this hearing-loss class answer, to try it out."),
]
Cap = Annotated[
    float, typer.Option(help="Loudest level in dB HL; above 90 you are asked to confirm it.")
]
OwnSeed = Annotated[
    int | None, typer.Option(min=0, help="Seed of all random numbers. Default: a new one.")
]
Device = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Id of the audiometer in the database. Default: EARSHIFT_DEVICE, else the site's "
        "(`earshift device default`); 0 is none.",
    ),
]
AcceptCalibration = Annotated[
    bool,
    typer.Option(
        "--accept-calibration",
        help="Use the device even if its calibration has expired or today's check is missing; "
        "every result says so.",
    ),
]
Practice = Annotated[
    bool, typer.Option("--practice/--no-practice", help="Start with practice tones.")
]
Checked = Annotated[
    list[str] | None,
    typer.Option(
        "--check",
        help="NAME=VALUE of the checklist, e.g. otoscopy_right=normal, hours_since_noise=16, "
        "tinnitus=no. May be repeated; begins a new visit.",
    ),
]
NewVisit = Annotated[
    bool, typer.Option("--new-visit", help="Start a new visit even if there is one today.")
]
SetAside = Annotated[
    bool, typer.Option("--set-aside", help="Abandon an unfinished exam of this ear first.")
]

REGISTER = (
    "earshift: `earshift device add` and `earshift device calibrated` register it, --device "
    "chooses it"
)


@dataclass(frozen=True)
class _Setting:
    """How an exam is given; the same options for exams and screens."""

    practice: bool
    device_id: int | None
    accept_calibration: bool
    new_visit: bool
    set_aside: bool
    simulate: str | None
    timezone: str | None
    author: str
    as_json: bool
    checklist: dict[str, Any]

    @property
    def mode(self) -> str:
        return "supervised" if self.simulate is None else "simulated"


@app.command(epilog=EXIT_CODES)
def exam(
    context: typer.Context,
    who: Who,
    ear: Ear,
    tones: Annotated[
        int, typer.Option(min=1, max=500, help="Number of tones; of both ears 80 if not given.")
    ] = 50,
    cap: Cap = 90.0,
    seed: OwnSeed = None,
    practice: Practice = True,
    device: Device = None,
    accept_calibration: AcceptCalibration = False,
    new_visit: NewVisit = False,
    check: Checked = None,
    set_aside: SetAside = False,
    simulate: Simulate = None,
    timezone: Timezone = None,
    yes: Yes = False,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Run a full exam of one ear or both, with any audiometer at hand.

    Says which tone to present and takes the answer: y (heard), n (not heard), undo, pause, finish
    or quit. Every answer is stored before the next tone is shown. With --json every event is a line
    of JSON; answers are typed the same way.
    """
    from earshift.clinic.begin import Wanted

    with opened(db) as store:
        setting = _Setting(
            practice, _device(store, device, simulate), accept_calibration, new_visit, set_aside,
            simulate, timezone, author_name(author), as_json, _checklist(check),
        )  # fmt: skip
        person = _person(store, who)
        limits = _limits(cap, yes)
        source = context.get_parameter_source("tones")
        given = source is not None and source.name != "DEFAULT"
        most = tones if given else None  # as many as are usual
        wanted = Wanted("exam", (ear,), seed=seed, max_tones=most, limits=limits)
        _begin(store, person, wanted, setting)


@app.command(epilog=EXIT_CODES)
def screen(
    who: Who,
    ear: Ear,
    rule: Annotated[
        str | None, typer.Option(help="Threshold-shift rule: osha-sts (the default), niosh-15 ...")
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(help="Ask about any change instead, with these settings: best or paper."),
    ] = None,
    notch: Annotated[
        bool,
        typer.Option("--notch", help="Ask whether there is a notch around 3-6 kHz instead."),
    ] = False,
    reference: Annotated[
        int | None,
        typer.Option(min=1, help="Exam to compare with. Default: the baseline of this ear."),
    ] = None,
    tones: Annotated[
        int | None, typer.Option(min=1, max=500, help="Stop undecided after this many tones.")
    ] = None,
    cap: Cap = 90.0,
    seed: OwnSeed = None,
    practice: Practice = True,
    device: Device = None,
    accept_calibration: AcceptCalibration = False,
    new_visit: NewVisit = False,
    check: Checked = None,
    set_aside: SetAside = False,
    simulate: Simulate = None,
    timezone: Timezone = None,
    yes: Yes = False,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Has this ear changed since its reference? A few tones, with any audiometer at hand.

    Works like `earshift exam`, and stops as soon as the answer is clear enough.
    """
    from earshift.clinic.begin import Wanted
    from earshift.clinic.plan import tested_ears

    with opened(db) as store:
        setting = _Setting(
            practice, _device(store, device, simulate), accept_calibration, new_visit, set_aside,
            simulate, timezone, author_name(author), as_json, _checklist(check),
        )  # fmt: skip
        person = _person(store, who)
        wanted = Wanted(
            "screen",
            (ear,),
            rule=rule,
            protocol=protocol,
            notch=notch,
            references={} if reference is None else dict.fromkeys(tested_ears(ear), reference),
            seed=seed,
            max_tones=tones,
            limits=_limits(cap, yes),
        )
        _begin(store, person, wanted, setting)


@app.command(epilog=EXIT_CODES)
def resume(
    exam_id: Annotated[int, typer.Argument(metavar="EXAM", min=1, help="Id of the exam.")],
    practice: Practice = True,
    simulate: Simulate = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Resume an exam or screen after a break or a crash, at the same tone."""
    from earshift.clinic.begin import require_by_hand
    from earshift.clinic.session import Session

    with opened(db) as store:
        _check_class(simulate)
        session = Session(
            store, exam_id, author=author_name(author), practice=practice and simulate is None
        )
        visit = store.visit(session.record.visit_id)
        if simulate is not None and visit.mode != "simulated":
            raise Conflict(
                "{exam} is of a real person: its answers cannot be simulated", exam=exam_id
            )
        require_by_hand(session.record)
        session.resume()
        Desk(session, store.person(visit.person_id), simulate, as_json).run()


def _device(store: "Store", given: int | None, simulate: str | None) -> int | None:
    """The audiometer in use: as given, else this workstation's, else the site's usual one.

    The site's is not used where it plays in a browser.
    """
    from earshift.clinic.devices import default_device

    here = os.environ.get("EARSHIFT_DEVICE", "").strip()
    if given is None and here:
        if not (here.isascii() and here.isdigit() and len(here) < 10):
            raise Refusal("EARSHIFT_DEVICE must be the id of a device", got=here)
        given = int(here)
    if given is not None:
        return given or None
    usual = None if simulate is not None else default_device(store)
    return None if usual is None or store.device(usual).fingerprint else usual


def _checklist(texts: list[str] | None) -> dict[str, Any]:
    from earshift.clinic.checklist import checklist
    from earshift.formats.references import pairs

    return checklist(pairs(texts, "--check"))


def _person(store: "Store", who: str) -> "Person":
    from earshift.clinic.people import find_person

    return find_person(store, who)


def _limits(cap_db_hl: float, yes: bool) -> "Limits":
    """Limits up to the cap; a loud one only when the examiner says so."""
    from earshift.devices.delivery import CAP_DB_HL, supervised_limits

    limits = supervised_limits(cap_db_hl, confirmed=True)
    question = (
        f"Tones of up to {cap_db_hl:g} dB HL can harm hearing if they are long or frequent. Use "
        "them only with an examiner present. Allow them?"
    )
    if cap_db_hl > CAP_DB_HL and not yes and not confirmed(question):
        typer.echo("Not started", err=True)
        raise typer.Exit(NOT_FINISHED)
    return limits


def _begin(store: "Store", person: "Person", wanted: "Wanted", setting: _Setting) -> None:
    """Open what is wanted, in today's visit, and sit down at the desk."""
    from earshift.clinic.begin import plan_test
    from earshift.clinic.checklist import cautions, quiet_hours
    from earshift.clinic.people import todays_visit, unfinished
    from earshift.clinic.plan import open_exam
    from earshift.clinic.session import Session
    from earshift.clinic.zones import as_zone, local_zone
    from earshift.days import today

    _check_class(setting.simulate)
    zone = as_zone(setting.timezone or local_zone())
    simulated = setting.simulate is not None
    (plan,) = plan_test(
        store,
        person.id,
        wanted,
        delivery=_delivery(store, setting, zone),
        today=today(zone),
        device_id=setting.device_id,
        simulated=simulated,
        set_aside=setting.set_aside,
    )
    ears = EARS if plan.ear == BOTH else (plan.ear,)
    for said in cautions(setting.checklist, quiet_hours(store), ears):
        typer.secho(f"earshift: {said.text}", fg="yellow", err=True)
    for caution in _comparison_cautions(store, plan, setting, zone):
        typer.secho(f"earshift: {caution}", fg="yellow", err=True)
        if setting.device_id is None:
            typer.secho(REGISTER, fg="yellow", err=True)
    for record in unfinished(store, person.id, plan.ear, simulated=simulated):
        Session(store, record.id, author=setting.author).abandon("set aside for a new exam")
    visit = todays_visit(
        store,
        person.id,
        author=setting.author,
        zone=zone,
        mode=setting.mode,
        device_id=setting.device_id,
        fresh=setting.new_visit,
        checklist=setting.checklist,
    )
    record = open_exam(store, visit, plan, author=setting.author)
    practice = setting.practice and not simulated
    session = Session(
        store, record.id, author=setting.author, practice=practice, planned=plan.procedure
    )
    Desk(session, person, setting.simulate, setting.as_json).run()


def _comparison_cautions(store: "Store", plan: "Plan", setting: _Setting, zone: str) -> list[str]:
    """What to know before a screen compares with a device that nobody vouches for."""
    from earshift.clinic.devices import comparison_caution
    from earshift.days import today

    if setting.simulate is not None:
        return []
    found = [
        comparison_caution(
            store,
            store.exam(number),
            setting.device_id,
            plan.delivery.relative,
            today(zone),
        )
        for number in plan.references.values()
    ]
    return list(dict.fromkeys(words for words in found if words is not None))


def _delivery(store: "Store", setting: _Setting, zone: str) -> "Delivery":
    """How the exam is given on the device; nothing is played to a simulated listener."""
    from earshift.clinic.devices import delivery_by_hand, device_today
    from earshift.days import today

    if setting.device_id is None or setting.simulate is not None:
        return delivery_by_hand(None)
    device = store.device(setting.device_id)
    return delivery_by_hand(
        device_today(store, device, today(zone)), accept_calibration=setting.accept_calibration
    )


def _check_class(simulate: str | None) -> None:
    if simulate is not None:
        from earshift.engine.norms import class_median

        class_median(simulate)
