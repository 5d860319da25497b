"""NHANES audiometry (CDC/NCHS `AUX_*.XPT`): one row per person, seven thresholds per ear.

The first of the two 1000 Hz readings counts. Code 666 is "no response" at the loudest tone and 888
"could not obtain"; people who were not tested have blanks. The file does not say how loud the
loudest tone was: 100 dB HL (90 at 8000 Hz) by machine, more by hand. So much was tried in any case.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from earshift.engine.refusal import Refusal
from earshift.formats.cells import (
    MISSING,
    NO_THRESHOLD,
    NOT_A_THRESHOLD,
    Sentinels,
    missing_columns,
)
from earshift.formats.files import check_size
from earshift.formats.references import NO_RESPONSE, THRESHOLD, Collector, Ear, Options, References
from earshift.formats.xpt import Xpt
from earshift.records import ImportedAudiogram
from earshift.simulate.classes import FREQUENCIES_HZ, Ears

SIDES = ("R", "L")
COLUMNS = tuple(
    f"AUXU{frequency}{side}"
    for side in SIDES
    for frequency in ("500", "1K1", "2K", "3K", "4K", "6K", "8K")
)
SENTINELS = Sentinels({666: "no-response", 888: "could-not-obtain"})
EARS_BY_SIDE = {"R": "right", "L": "left"}
TRIED_DB_HL = {f: 90.0 if f == 8000 else 100.0 for f in FREQUENCIES_HZ}
MAX_BYTES = 256_000_000


def check(path: Path) -> None:
    """Refuse a file of the wrong shape with a ValueError; only its header is read."""
    _open(path)


def read_ears(path: Path) -> Iterator[Ears]:
    """The ears of the file in chunks, right and left of each person in turn."""
    file = _open(path)
    for values, done in file.numbers(COLUMNS):
        yield SENTINELS.ears(SENTINELS.encode(values), SIDES, done, file.size)


def read_references(path: Path, options: Options) -> References:
    """Every tested ear as a reference; SEQN is the person's code. The times are not published."""
    check_size(path, MAX_BYTES)
    file = _open(path)
    missing_columns(path, ["SEQN"], [variable.name for variable in file.variables])
    found = Collector(path)
    row = 0
    for values, _ in file.numbers(("SEQN", *COLUMNS)):
        for number, codes in zip(values[:, 0], SENTINELS.encode(values[:, 1:]), strict=True):
            row += 1
            if not (np.isfinite(number) and 0 < number < 1e9 and number == int(number)):
                found.reject(row, Refusal("SEQN is not a person's number", got=float(number)))
                continue
            for side, ear_codes in zip(SIDES, codes.reshape(len(SIDES), -1), strict=True):
                ear = EARS_BY_SIDE[side]
                try:
                    readings = _readings(ear_codes.tolist(), options)
                except Refusal as error:
                    found.reject(row, error.within(f"{ear} ear: "))
                    continue
                if readings.empty:
                    found.leave_out(row, f"the {ear} ear was not tested")
                    continue
                found.accept(
                    row,
                    ImportedAudiogram(
                        code=str(int(number)),
                        ear=ear,
                        audiogram=readings.audiogram(
                            options.sd_db, options.method_offset_db
                        ).to_dict(),
                        source=f"{path.name}, NHANES audiometry",
                    ),
                )
    return found.result()


def _readings(codes: list[int], options: Options) -> Ear:
    """One ear's thresholds from its codes, in the order of the frequencies."""
    ear = Ear()
    for frequency, code in zip(FREQUENCIES_HZ, codes, strict=True):
        if code < NO_THRESHOLD:
            ear.add(frequency, THRESHOLD, float(code))
        elif code == SENTINELS.code("no-response"):
            given = options.no_response_db_hl
            level = TRIED_DB_HL[frequency] if given is None else options.tried(frequency)
            ear.add(frequency, NO_RESPONSE, level)
        elif code == SENTINELS.code(NOT_A_THRESHOLD):
            raise Refusal(f"the number at {frequency:g} Hz cannot be a threshold")
        else:
            assert code in (SENTINELS.code(MISSING), SENTINELS.code("could-not-obtain"))
    return ear


def _open(path: Path) -> Xpt:
    file = Xpt.open(path)
    missing_columns(path, COLUMNS, [variable.name for variable in file.variables])
    return file
