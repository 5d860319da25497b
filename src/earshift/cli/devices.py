"""Audiometers, their calibrations and daily checks."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from earshift.cli.app import AsJson, app
from earshift.cli.database import (
    EXIT_CODES,
    Author,
    Database,
    Timezone,
    author_name,
    looked_into,
    opened,
)
from earshift.cli.terminal import as_date, printable, show_json, table
from earshift.engine.refusal import Refusal

if TYPE_CHECKING:
    from datetime import date

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
    listener: Annotated[str, typer.Option(help="Who listened: someone whose hearing is known.")],
    right: Annotated[
        list[str],
        typer.Option(help="Right ear: dB from the usual threshold, FREQUENCY=DB, e.g. 1000=5."),
    ],
    left: Annotated[
        list[str], typer.Option(help="The same for the left ear. Both can be repeated.")
    ],
    timezone: Timezone = None,
    db: Database = None,
    author: Author = None,
    as_json: AsJson = False,
) -> None:
    """Record today's check with a listener whose hearing is known.

    A deviation of 10 dB or more blocks the device until it is calibrated.
    """
    from earshift.clinic.devices import device_today, record_check

    with opened(db) as store:
        device, today = store.device(device_id), _today(timezone)
        deviations = {"right": _deviations(right), "left": _deviations(left)}
        check = record_check(
            store,
            device,
            author=author_name(author),
            today=today,
            listener=listener,
            deviations_db=deviations,
        )
        now = device_today(store, device, today)
    if as_json:
        show_json({**asdict(check), "daily_check": now.daily_check})
    else:
        typer.echo(now.blocked or f"Device {device_id} was checked today")


def _deviations(texts: Sequence[str]) -> dict[str, float]:
    """FREQUENCY=DB, any number of times."""
    found = {}
    for text in texts:
        frequency, _, level = text.partition("=")
        try:
            found[f"{float(frequency):g}"] = float(level)
        except ValueError:
            raise Refusal(
                "a deviation must look like FREQUENCY=DB, such as 1000=5", got=text
            ) from None
    return found
