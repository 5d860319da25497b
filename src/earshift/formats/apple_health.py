"""References from Apple Health: the `Audiogram`s of an `export.xml`, read as a stream.

An export holds all of one person's health data, often gigabytes; only its audiograms are kept. It
names nobody, so the caller says whose it is (`person`). A `SensitivityPoint` has a frequency in Hz
and a level in dB HL for either ear; where a clamping bound is given, the ear lies beyond it.
"""

import re
from pathlib import Path
from typing import Any
from xml.parsers import expat

from earshift.engine.refusal import Refusal
from earshift.engine.values import EARS
from earshift.formats.files import check_size
from earshift.formats.references import (
    NO_RESPONSE,
    THRESHOLD,
    Collector,
    Ear,
    Options,
    References,
    as_birth_date,
    frequency_hz,
    identifying,
    number_of,
    shown,
)
from earshift.records import ImportedAudiogram

MAX_BYTES = 16_000_000_000
DECIBELS = ("dBHL", "dB HL")
SEXES = {
    "HKBiologicalSexMale": "male",
    "HKBiologicalSexFemale": "female",
    "HKBiologicalSexOther": "other",
}
_ME = "HKCharacteristicTypeIdentifier"


def read(path: Path, options: Options) -> References:
    """The audiograms of an export, one item per ear; rows count the audiograms from 1."""
    check_size(path, MAX_BYTES)
    if options.person is None:
        raise Refusal(
            "an Apple Health export names nobody: say whose it is with person, the person's code"
        )
    reading = _Reading(path, options, identifying(options.person, "person"))
    parser = expat.ParserCreate()
    parser.StartElementHandler = reading.start
    parser.EndElementHandler = reading.end
    parser.EntityDeclHandler = reading.entity
    try:
        with path.open("rb") as file:
            parser.ParseFile(file)
    except expat.ExpatError as error:
        raise Refusal(
            f"{{file}} is not whole XML: {expat.ErrorString(error.code)} in line {error.lineno}",
            file=path,
        ) from None
    except LookupError:
        raise Refusal("{file} is in an encoding that is not known", file=path) from None
    found = reading.found.result()
    if not found.accepted and not found.rejected and not found.left_out:
        raise Refusal("{file} holds no audiogram", file=path)
    return found


class _Reading:
    """What was read so far."""

    def __init__(self, path: Path, options: Options, person: str) -> None:
        self.path, self.options, self.person = path, options, person
        self.found = Collector(path)
        self.row = 0
        self.me: dict[str, str] = {}
        self.audiogram: dict[str, str] | None = None
        self.points: list[dict[str, str]] = []
        self.inside = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if not self.inside:
            if name != "HealthData":
                raise Refusal("{file} is no export of Apple Health", file=self.path)
            self.inside = True
        elif name == "Me":
            self.me = attributes
        elif name == "Audiogram":
            self.row += 1
            self.audiogram, self.points = attributes, []
        elif name == "SensitivityPoint" and self.audiogram is not None:
            self.points.append(attributes)

    def end(self, name: str) -> None:
        if name != "Audiogram" or self.audiogram is None:
            return
        try:
            items = self._items(self.audiogram)
            for item in items:
                self.found.accept(self.row, item)
            if not items:
                self.found.leave_out(self.row, "no threshold of either ear")
        except Refusal as error:
            self.found.reject(self.row, error)
        self.audiogram = None

    def entity(self, *_: Any) -> None:
        # Entities can grow without bound, and an export has none.
        raise Refusal("{file} declares entities, which no export does", file=self.path)

    def _items(self, audiogram: dict[str, str]) -> list[ImportedAudiogram]:
        ears = {ear: Ear() for ear in EARS}
        for point in self.points:
            if point.get("frequencyUnit") != "Hz":
                raise Refusal(
                    "frequencies must be in Hz", got=shown(point.get("frequencyUnit", ""))
                )
            frequency = frequency_hz(point.get("frequencyValue", ""))
            for ear in EARS:
                self._add(ears[ear], frequency, point, ear)
        text = re.sub(r" ([+-]\d{2}):?(\d{2})$", r"\1:\2", audiogram.get("startDate", ""))
        at = self.options.moment(text)
        source = f"Apple Health, {audiogram.get('sourceName', '')}".rstrip(", ")[:200]
        how = (self.options.sd_db, self.options.method_offset_db)
        return [
            ImportedAudiogram(
                code=self.person,
                ear=ear,
                audiogram=readings.audiogram(*how).to_dict(),
                measured_at=at,
                source=f"{self.path.name} ({source})",
                birth_date=as_birth_date(self.me.get(f"{_ME}DateOfBirth", "")),
                sex=SEXES.get(self.me.get(f"{_ME}BiologicalSex", "")),
            )
            for ear, readings in ears.items()
            if not readings.empty
        ]

    def _add(self, readings: Ear, frequency: float, point: dict[str, str], ear: str) -> None:
        value = point.get(f"{ear}EarValue")
        if value is None:
            return
        if point.get(f"{ear}EarUnit") not in DECIBELS:
            raise Refusal("levels must be in dBHL", got=shown(point.get(f"{ear}EarUnit", "")))
        highest = point.get(f"{ear}EarClampingRangeUpperBound")
        level = number_of(value)
        if highest is not None and level >= number_of(highest):
            tried = self.options.tried(frequency, number_of(highest))
            readings.add(frequency, NO_RESPONSE, tried)
        else:
            readings.add(frequency, THRESHOLD, self.options.threshold(level))
