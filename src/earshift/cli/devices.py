"""Audiometers and their calibrations, which every report names."""

from dataclasses import asdict
from datetime import date, datetime
from typing import Annotated

import typer

from earshift.cli.app import AsJson, app
from earshift.cli.database import EXIT_CODES, Author, Database, author_name, opened
from earshift.cli.terminal import as_date, printable, show_json, table

devices = typer.Typer(
    help="Audiometers with their transducers and calibrations.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(devices, name="device")


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
    """List all devices with the state of their calibration today."""
    from earshift.devices.calibration import state

    today = datetime.now().astimezone().date()
    with opened(db) as store:
        found = [(device, store.calibration_on(device.id, today)) for device in store.devices()]
    if as_json:
        show_json(
            [
                {
                    **asdict(device),
                    "calibration": None if last is None else asdict(last),
                    "state": state(device, last, today),
                }
                for device, last in found
            ]
        )
        return
    rows = [
        [
            device.id,
            device.name,
            device.transducer,
            device.model,
            device.serial,
            state(device, last, today),
            "" if last is None else last.due_on,
        ]
        for device, last in found
    ]
    columns = ["id", "name", "transducer", "model", "serial", "calibration", "due"]
    table("Devices", columns, rows)


@devices.command("calibrated", epilog=EXIT_CODES)
def device_calibrated(
    device_id: Annotated[int, typer.Argument(metavar="DEVICE", min=1, help="Id of the device.")],
    done: Annotated[str, typer.Option(help="Day of the calibration, YYYY-MM-DD.")],
    due: Annotated[str, typer.Option(help="Day when the next one is due, YYYY-MM-DD.")],
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
    """Record a calibration. Visits from that day on are reported with it."""
    with opened(db) as store:
        calibration = store.add_calibration(
            device_id,
            author=author_name(author),
            done_on=as_date(done, "the day of a calibration", date(1950, 1, 1)),
            due_on=as_date(due, "the day when the next is due", date(1950, 1, 1), future=True),
            laboratory=laboratory,
            coupler=coupler,
            kind=kind,
        )
    if as_json:
        show_json(asdict(calibration))
    else:
        typer.echo(f"Device {device_id} is calibrated until {calibration.due_on}")
