"""Audiometers, their calibrations and daily checks."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from earshift.cli.app import NOT_FINISHED, AsJson, app
from earshift.cli.database import (
    EXIT_CODES,
    Author,
    Database,
    Timezone,
    author_name,
    disclosed,
    looked_into,
    opened,
)
from earshift.cli.terminal import as_date, printable, read_line, show_json, table
from earshift.devices.calibration import is_usual
from earshift.engine.refusal import Refusal
from earshift.engine.values import EARS

if TYPE_CHECKING:
    from datetime import date

    from earshift.clinic.daily_check import GuidedCheck

WALK_KEYS = "y heard - n not heard - undo - quit (nothing is recorded)"

devices = typer.Typer(
    help="Audiometers with their earphones, calibrations and daily checks.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(devices, name="device")

DeviceId = Annotated[int, typer.Argument(metavar="DEVICE", min=1, help="Id of the device.")]


def _today(timezone: str | None) -> "date":
    from earshift.clinic.zones import as_zone
    from earshift.days import today

    return today(None if timezone is None else as_zone(timezone))


@devices.command("add", epilog=EXIT_CODES)
def device_add(
    name: Annotated[str, typer.Option(help="What it is called here, e.g. booth 2.")],
    transducer: Annotated[
        str, typer.Option(help="supra-aural, circumaural, insert or unknown.")
    ] = "unknown",
    model: Annotated[str, typer.Option(help="Make and model of audiometer and earphones.")] = "",
    serial: Annotated[str, typer.Option(help="Serial numbers.")] = "",
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Add an audiometer with its earphones: one calibrated unit."""
    with opened(db) as store:
        device = store.add_device(
            author=author_name(author), name=name, transducer=transducer, model=model, serial=serial
        )
    if as_json:
        show_json(asdict(device))
    else:
        typer.echo(f"Added device {device.id} ({printable(device.name)})")


@devices.command("list", epilog=EXIT_CODES)
def device_list(db: Database = None, as_json: AsJson = False) -> None:
    """List all devices with their calibration and daily check as of today."""
    from earshift.clinic.devices import device_today

    today = _today(None)
    with looked_into(db) as store:
        found = [device_today(store, device, today) for device in store.devices()]
    if as_json:
        show_json(
            [
                {
                    **asdict(now.device),
                    "calibration": None if now.calibration is None else asdict(now.calibration),
                    "state": now.calibration_state,
                }
                for now in found
            ]
        )
        return
    rows = [
        [
            now.device.id,
            now.device.name,
            now.device.transducer,
            now.device.model,
            now.device.serial,
            now.calibration_state,
            "" if now.calibration is None else now.calibration.due_on,
            now.daily_check,
        ]
        for now in found
    ]
    columns = ["id", "name", "transducer", "model", "serial", "calibration", "due", "daily check"]
    table("Devices", columns, rows)


@devices.command("default", epilog=EXIT_CODES)
def device_default(
    device_id: Annotated[
        int, typer.Argument(metavar="DEVICE", min=0, help="Id of the device; 0 is none.")
    ],
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Choose the device that tests use unless another is named."""
    from earshift.clinic.devices import choose_default_device

    with opened(db) as store:
        choose_default_device(store, device_id or None, author=author_name(author))
    if as_json:
        show_json({"default": device_id or None})
    else:
        typer.echo(f"Tests use device {device_id}" if device_id else "Tests use no device")


@devices.command("calibrated", epilog=EXIT_CODES)
def device_calibrated(
    device_id: DeviceId,
    done: Annotated[str, typer.Option(help="Day of the calibration, YYYY-MM-DD.")],
    due: Annotated[
        str, typer.Option(help="Day when the next one is due, YYYY-MM-DD; two years at most.")
    ],
    laboratory: Annotated[str, typer.Option(help="Who did it.")],
    coupler: Annotated[
        str,
        typer.Option(help="Coupler or ear simulator of the reference levels, e.g. IEC 60318-3."),
    ],
    kind: Annotated[str, typer.Option(help="acoustic, exhaustive or biological.")] = "acoustic",
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Record a calibration. It appears in the reports of visits from that day on."""
    from earshift.clinic.devices import record_calibration

    with opened(db) as store:
        calibration = record_calibration(
            store,
            store.device(device_id),
            author=author_name(author),
            today=_today(None),
            done_on=as_date(done, "the day of a calibration"),
            due_on=as_date(due, "the day when the next is due"),
            laboratory=laboratory,
            coupler=coupler,
            kind=kind,
        )
    if as_json:
        show_json(asdict(calibration))
    else:
        typer.echo(f"Device {device_id} is calibrated until {calibration.due_on}")


@devices.command("check", epilog=EXIT_CODES)
def device_check(
    device_id: DeviceId,
    listener: Annotated[str, typer.Option(help="Who listens: someone whose hearing is known.")],
    right: Annotated[
        list[str] | None,
        typer.Option(help="Right ear: dB from the usual threshold, FREQUENCY=DB, e.g. 1000=5."),
    ] = None,
    left: Annotated[
        list[str] | None, typer.Option(help="The same for the left ear. Both can be repeated.")
    ] = None,
    person: Annotated[
        str | None,
        typer.Option(help="Guided: the stored person whose full audiograms say what is usual."),
    ] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Guided: measure what is usual; no check yet.")
    ] = False,
    timezone: Timezone = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Today's check with a listener whose hearing is known, guided tone by tone.

    It says what to set on the audiometer and asks whether it was heard. With --right and --left a
    check done elsewhere is recorded instead. A deviation of 10 dB or more blocks the device until
    it is calibrated.
    """
    from earshift.clinic.daily_check import guided_check, know_by_audiogram, record_guided
    from earshift.clinic.devices import delivery_by_hand, device_today, record_check
    from earshift.clinic.people import find_person

    with opened(db) as store:
        device, today, name = store.device(device_id), _today(timezone), author_name(author)
        if right or left:
            if person or anew:
                raise Refusal("--person and --anew belong to a guided check, without deviations")
            deviations = {"right": _deviations(right or ()), "left": _deviations(left or ())}
            check = record_check(
                store,
                device,
                author=name,
                today=today,
                listener=listener,
                deviations_db=deviations,
            )
        else:
            delivery_by_hand(device_today(store, device, today), accept_calibration=True)
            if person:
                of_record = find_person(store, person)
                know_by_audiogram(store, device, listener, of_record, author=name, today=today)
            walk = guided_check(store, device, today, listener, anew=anew)
            heard = _walked(walk)
            # What was asked must still be what the device is now.
            now = guided_check(store, device, today, listener, anew=anew)
            now.require(walk.conditions)
            check = record_guided(store, now, heard, author=name)
        after = device_today(store, device, today)
    if as_json:
        show_json({**asdict(check), "daily_check": after.daily_check})
    elif is_usual(check):
        typer.echo(
            f"It is now known what is usual for {printable(listener)}. Today's check is to be done."
        )
    else:
        typer.echo(after.blocked or f"Device {device_id} was checked today")


def _walked(check: "GuidedCheck") -> list[bool]:
    """All answers of a guided check, from the keyboard. Prompts are not part of the output."""
    if check.usual is None:
        typer.echo(f"Finding out what is usual for {printable(check.listener)}.", err=True)
    else:
        since = check.usual.since
        typer.echo(
            f"Compared with what is usual for {printable(check.listener)} since {since}.", err=True
        )
    typer.echo(WALK_KEYS, err=True)
    heard: list[bool] = []
    while (now := check.after(heard)).level is not None:
        assert now.point is not None
        typer.echo(
            f"{now.done + 1:>2} of {len(check.points)}  {now.point.ear} ear, "
            f"{now.point.frequency_hz:g} Hz at {now.level:g} {check.now.unit}: heard? ",
            nl=False,
            err=True,
        )
        try:
            typed = read_line()
        except KeyboardInterrupt:
            typed = None
        word = "quit" if typed is None else typed.strip().casefold()
        if word in ("y", "yes", "n", "no"):
            heard.append(word.startswith("y"))
        elif word == "undo":
            heard = heard[:-1]
        elif word == "quit":
            typer.echo("\nNothing was recorded.", err=True)
            raise typer.Exit(NOT_FINISHED)
        else:
            typer.echo(WALK_KEYS, err=True)
    for ear, of_ear in check.deviations(check.after(heard)).items():
        off = ", ".join(f"{hz:g} Hz {value:+g}" for hz, value in of_ear.items())
        typer.echo(f"{ear} ear, dB from the usual threshold: {off}", err=True)
    return heard


@devices.command("show", epilog=EXIT_CODES)
def device_show(
    device_id: DeviceId,
    timezone: Timezone = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Show a device: its state today, what it can play, and all its daily checks."""
    from earshift.clinic.daily_check import past_checks
    from earshift.clinic.devices import device_today, playable_hz

    with looked_into(db) as store:
        now = device_today(store, store.device(device_id), _today(timezone))
        past = past_checks(store, now.device)
        disclosed(store, author, "view", f"devices:{device_id}", what="daily checks")
    playable = {hz: {ear: now.playable(ear, hz) for ear in EARS} for hz in playable_hz(now)}
    if as_json:
        show_json(
            {
                **asdict(now.device),
                "state": now.calibration_state,
                "in_order": not now.needs_attention,
                "daily_check": now.daily_check,
                "warnings": now.warnings,
                "unit": now.unit,
                "playable": [{"frequency_hz": hz, **ends} for hz, ends in playable.items()],
                "checks": [{**asdict(one), "worst_db": one.worst_db} for one in past],
            }
        )
        return
    typer.echo(f"Device {device_id} ({printable(now.device.name)}): {now.calibration_state}")
    typer.echo("Needs attention" if now.needs_attention else "In order")
    for warning in now.warnings:
        typer.echo(warning)
    if playable:
        rows = [[f"{hz:g}", *(_ends(ends[e]) for e in EARS)] for hz, ends in playable.items()]
        table(f"Softest and loudest level, {now.unit}", ["Hz", *EARS], rows)
    else:
        typer.echo("Its levels are set on the audiometer itself.")
    checks = [
        [one.on, one.listener, f"{one.worst_db:+g}", "FAILED" if one.failed else "passed"]
        for one in past
    ]
    table("Daily checks", ["day", "listener", "largest deviation, dB", "result"], checks)


def _ends(ends: tuple[float, float] | None) -> str:
    return "no tone possible" if ends is None else f"{ends[0]:g} to {ends[1]:g}"


def _deviations(texts: Sequence[str]) -> dict[str, float]:
    """FREQUENCY=DB, any number of times."""
    found = {}
    for text in texts:
        frequency, _, level = text.partition("=")
        try:
            at, deviation = f"{float(frequency):g}", float(level)
        except ValueError:
            raise Refusal(
                "a deviation must look like FREQUENCY=DB, such as 1000=5", got=text
            ) from None
        if at in found:
            raise Refusal("a frequency was given twice for one ear", got=text)
        found[at] = deviation
    return found
