"""Devices and their calibrations."""

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from sqlalchemy import Connection, select

from earshift.devices.calibration import is_usual
from earshift.engine.values import TRANSDUCERS
from earshift.records import Calibration, Device
from earshift.store import checks, rows, texts
from earshift.store import tables as t
from earshift.store.database import reading, writing
from earshift.store.errors import StoreError
from earshift.store.rows import Part

CALIBRATION_KINDS = ("acoustic", "exhaustive", "biological")
COLUMNS = texts.columns(t.calibrations, "laboratory")


def calibrations_of(connection: Connection, device_ids: Iterable[int]) -> list[Calibration]:
    query = (
        select(*COLUMNS)
        .where(t.calibrations.c.device_id.in_(device_ids))
        .order_by(t.calibrations.c.done_on, t.calibrations.c.id)
    )
    return rows.to_records(Calibration, connection.execute(query))


def in_force(calibrations: Iterable[Calibration], day: date) -> Calibration | None:
    """The newest calibration up to that day; a biological check only where there is no other."""
    done = [one for one in calibrations if one.done_on <= day and not is_usual(one)]
    measured = [one for one in done if one.kind != "biological"]
    return next(reversed(measured or done), None)


class Devices(Part):
    """The store's calls about devices."""

    def add_device(
        self,
        *,
        author: str,
        name: str,
        transducer: str = "unknown",
        model: str = "",
        serial: str = "",
        fingerprint: Mapping[str, Any] | None = None,
    ) -> Device:
        """A new audiometer or sound card with its transducer."""
        values = {
            "name": checks.text(name, "name"),
            "transducer": checks.one_of(transducer, TRANSDUCERS, "transducer"),
            "model": checks.text(model, "model", blank=True),
            "serial": checks.text(serial, "serial", blank=True),
            "fingerprint": checks.plain(fingerprint or {}, "fingerprint"),
        }
        with writing(self.engine) as connection:
            return rows.to_record(
                Device, rows.add_row(connection, t.devices, values, checks.text(author, "author"))
            )

    def device(self, device_id: int) -> Device:
        with reading(self.engine) as connection:
            return rows.to_record(Device, rows.row_of(connection, t.devices, device_id, "device"))

    def devices(self) -> list[Device]:
        with reading(self.engine) as connection:
            found = connection.execute(select(t.devices).order_by(t.devices.c.id))
            return rows.to_records(Device, found)

    def add_calibration(
        self,
        device_id: int,
        *,
        author: str,
        done_on: date,
        due_on: date,
        laboratory: str,
        coupler: str,
        kind: str = "acoustic",
        table: Mapping[str, Any] | None = None,
    ) -> Calibration:
        """A new calibration of a device. A correction is another one of the same day."""
        done_on, due_on = checks.day(done_on, "done_on"), checks.day(due_on, "due_on")
        if due_on < done_on:
            raise StoreError(f"a calibration of {done_on} cannot be due before, on {due_on}")
        values = {
            "done_on": done_on,
            "due_on": due_on,
            "laboratory": checks.text(laboratory, "laboratory"),
            "coupler": checks.text(coupler, "coupler"),
            "kind": checks.one_of(kind, CALIBRATION_KINDS, "kind"),
            "table": checks.plain(table or {}, "table"),
        }
        author = checks.text(author, "author")
        with writing(self.engine) as connection:
            values["device_id"] = rows.row_of(connection, t.devices, device_id, "device").id
            listener = {"laboratory": values["laboratory"]} if kind == "biological" else {}
            values |= dict.fromkeys(listener, "")
            new = rows.add_only(connection, t.calibrations, values, author)
            texts.keep(connection, "calibrations", new, listener, None)
            query = select(*COLUMNS).where(t.calibrations.c.id == new)
            return rows.to_record(Calibration, connection.execute(query).one())

    def calibrations(self, device_id: int) -> list[Calibration]:
        """All calibrations of a device, oldest first."""
        with reading(self.engine) as connection:
            rows.row_of(connection, t.devices, device_id, "device")
            return calibrations_of(connection, [device_id])

    def calibration_on(self, device_id: int, day: date) -> Calibration | None:
        """The calibration in force that day, expired or not: `due_on` says.

        A biological check counts only for a device that has never been to a laboratory.
        """
        return in_force(self.calibrations(device_id), checks.day(day, "day"))
