"""Audiograms from elsewhere as references: what all importers share.

A cell is a threshold, a code that the caller explained, or a reason to reject its row. Nothing is
guessed: a number that often stands for something else is rejected until the caller says what it
means, "no response" needs the level that was tried, and a time without a zone needs one.
"""

import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from pathlib import Path

from earshift.days import today, zone_info
from earshift.engine.audiogram import DEFAULT_THRESHOLD_SD_DB, Audiogram
from earshift.engine.checks import finite
from earshift.engine.refusal import Refusal
from earshift.records import ImportedAudiogram
from earshift.simulate.classes import HIGHEST_DB_HL, LOWEST_DB_HL

NO_RESPONSE, NOT_TESTED, THRESHOLD = "no response", "not tested", "threshold"
MEANINGS = (NO_RESPONSE, NOT_TESTED, THRESHOLD)
AMBIGUOUS_DB_HL = (99.0, 120.0)  # within the range of levels, but often written for "no response"
NO_ZONE = "no-zone"  # the code of a time that could be anywhere
MAX_ITEMS = 200_000  # audiograms and rejected rows of one file: some 300 MB of memory
MAX_FREQUENCIES = 100  # of an ear
MAX_TEXT = 200  # characters of a person's code or name

NUMBER = re.compile(r"[+-]?[0-9]{1,5}(\.[0-9]{1,6})?")
COMMA_NUMBER = re.compile(r"[+-]?[0-9]{1,5},[0-9]{1,6}")
DAY_FIRST = re.compile(r"([0-9]{2})[.]([0-9]{2})[.]([0-9]{4})(?![0-9])")
FREQUENCY = re.compile(r"[0-9]{1,5}(\.[0-9]{1,6})?")
SEXES = {
    "m": "male",
    "male": "male",
    "f": "female",
    "female": "female",
    "other": "other",
    "unknown": None,
    "u": None,
    "": None,
}


@dataclass(frozen=True)
class Rejected:
    """A row that was not taken, and why. A table's header is row 1; a bundle's entries count."""

    row: int
    reason: str
    sentence: str = field(default="", compare=False)  # the reason without what the file says
    code: str = field(default="", compare=False)  # of the refusal
    advice: str = field(default="", compare=False)  # which the reason ends with


def rejected(row: int, reason: object) -> Rejected:
    """A row with the reason, as a refusal or in words."""
    if isinstance(reason, Refusal):
        return Rejected(row, str(reason), reason.sentence, reason.code, reason.advice)
    return Rejected(row, str(reason), str(reason))


@dataclass(frozen=True)
class References:
    """What a file gave: audiograms to store, and every row that gave none.

    Rows `left_out` are sound but not wanted: audiograms that are no baseline, people who were not
    tested.
    """

    accepted: tuple[ImportedAudiogram, ...]
    rejected: tuple[Rejected, ...] = ()
    left_out: tuple[Rejected, ...] = ()


@dataclass(frozen=True)
class Options:
    """How to read a file: what its own text does not say.

    `sentinels` maps texts of cells to "no response", "not tested" or "threshold" (the number means
    itself). `timezone` is the IANA zone of times that name none. `no_response_db_hl` is the level
    that was tried where a file says "no response" without it: one for all frequencies, or one each.
    `columns` maps names of columns to the names known here. With `baselines_only`, ears that a file
    flags as no baseline are left out. `person` is the code of whom a file is that names nobody.
    `decimal_comma` and `day_first` say that a file writes 12,5 and 31.12.2026; neither is ever
    guessed. The rest goes into the audiograms as it is.
    """

    sentinels: Mapping[str, str] = field(default_factory=dict)
    timezone: str | None = None
    no_response_db_hl: float | Mapping[float, float] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    baselines_only: bool = True
    sd_db: float = DEFAULT_THRESHOLD_SD_DB
    method_offset_db: float = 0.0
    decimal_comma: bool = False
    day_first: bool = False
    person: str | None = None

    def __post_init__(self) -> None:
        for name in ("sentinels", "columns"):
            given = getattr(self, name)
            if not isinstance(given, Mapping) or not all(
                isinstance(text, str) for item in given.items() for text in item
            ):
                raise Refusal(f"{name} must map text to text", got=given)
        meanings = {_code(text): meaning for text, meaning in self.sentinels.items()}
        for text, meaning in meanings.items():
            if meaning not in MEANINGS:
                raise Refusal(
                    f"{{code_1}} must mean one of {', '.join(MEANINGS)}",
                    code_1=repr(text),
                    got=meaning,
                )
        if len(meanings) < len(self.sentinels):
            raise Refusal("a code is given twice", got=dict(self.sentinels))
        object.__setattr__(self, "sentinels", meanings)
        if self.timezone is not None:
            zone_info(self.timezone)
        tried = self.no_response_db_hl
        if isinstance(tried, Mapping):
            tried = {finite(f, "frequency"): level_db_hl(level) for f, level in tried.items()}
        elif tried is not None:
            tried = level_db_hl(tried)
        object.__setattr__(self, "no_response_db_hl", tried)
        Audiogram({1000.0: 0.0}, self.sd_db, self.method_offset_db)  # refuses what makes no sense

    def meaning(self, text: str, known: Mapping[str, str]) -> tuple[str, float]:
        """What a cell says: its meaning and the number (0 if none), or a ValueError.

        `known` holds all codes, the format's own and the caller's.
        """
        text = self.number(text)
        said = known.get(_code(text))
        if said in (NO_RESPONSE, NOT_TESTED):
            return str(said), 0.0
        if not text:
            return NOT_TESTED, 0.0
        if not NUMBER.fullmatch(text):
            raise Refusal(
                "{value} is neither a number nor a code that was explained: map it to "
                f"{' or '.join(repr(m) for m in MEANINGS[:2])}",
                value=shown(text),
            )
        return THRESHOLD, self.threshold(float(text), explained=said == THRESHOLD)

    def number(self, text: str) -> str:
        """A number with a decimal point, as the rest reads it."""
        text = text.strip()
        if not COMMA_NUMBER.fullmatch(text):
            return text
        if not self.decimal_comma:
            raise Refusal(
                "{value} has a decimal comma",
                code="decimal-comma",
                advice="if the whole file is written so, say so (decimal comma)",
                value=shown(text),
            )
        return text.replace(",", ".")

    def day(self, text: str) -> str:
        """A date as 2026-12-31, with what follows it, as the rest reads it."""
        text = text.strip()
        found = DAY_FIRST.match(text)
        if found is None:
            return text
        first, second, year = (int(part) for part in found.groups())
        if not self.day_first:
            begins = "begins with the day" if first > 12 else "may begin with the day or the month"
            raise Refusal(
                f"{{value}} {begins}",
                code="day-first",
                advice="if the whole file has dates such as 31.12.2026, say so (day first)",
                value=shown(text),
            )
        try:
            date(year, second, first)
        except ValueError:
            raise Refusal("{value} is not a date such as 31.12.2026", value=shown(text)) from None
        return f"{found[3]}-{found[2]}-{found[1]}{text[found.end() :]}"

    def threshold(self, value: object, explained: bool = False) -> float:
        """A number as a threshold, unless it is or may be a code for something else."""
        number = finite(value, "a threshold")
        if number in AMBIGUOUS_DB_HL and not explained:
            raise Refusal(
                "{value} may be a threshold or a code: map it to one of "
                f"{', '.join(repr(m) for m in MEANINGS)}",
                value=f"{number:g}",
            )
        return level_db_hl(number)

    def tried(self, frequency_hz: float, level: float | None = None) -> float:
        """The level that got no response: the file's, else the option's, else a ValueError."""
        if level is not None:
            return level_db_hl(level)
        given = self.no_response_db_hl
        found = given.get(frequency_hz) if isinstance(given, Mapping) else given
        if found is None:
            raise Refusal(
                f"no response at {frequency_hz:g} Hz, but the level tried is not known: "
                "give no_response_db_hl"
            )
        return found

    def moment(self, text: str) -> datetime:
        """A time in UTC. A date alone is taken as noon, so that it stays that date nearby."""
        written, text = text.strip(), self.day(text)
        day_alone = re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII) is not None
        try:
            if day_alone:
                local = datetime.combine(date.fromisoformat(text), time(12))
            elif re.match(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}", text, re.ASCII) and len(text) < 40:
                local = datetime.fromisoformat(text)
            else:
                raise ValueError
        except ValueError:
            raise Refusal(
                "{value} is not a date or time such as 2026-05-01 or 2026-05-01 09:30:00",
                value=shown(written),
            ) from None
        if not 1900 <= local.year <= 9000:
            raise Refusal("{value} is not between 1900 and now", value=shown(written))
        if local.tzinfo is None:
            if self.timezone is None:
                raise Refusal(
                    "{value} has no time zone",
                    code=NO_ZONE,
                    advice="name the zone of the file (timezone), such as Europe/Berlin",
                    value=shown(written),
                )
            local = local.replace(tzinfo=zone_info(self.timezone))
            back = local.astimezone(UTC).astimezone(local.tzinfo)
            if back.replace(tzinfo=None) != local.replace(tzinfo=None):
                raise Refusal(
                    f"{{value}} does not exist on the clocks of {self.timezone}", value=written
                )
        now = datetime.now(local.tzinfo)
        if local.date() > now.date() if day_alone else local > now:  # today has come before noon
            raise Refusal("{value} is in the future", value=shown(written))
        return local.astimezone(UTC)


def _code(text: str) -> str:
    """A code as it is looked up: letters in any case, and a number however it is written."""
    text = text.strip().casefold()
    return f"{float(text):g}" if NUMBER.fullmatch(text) else text


class Ear:
    """The readings of one ear as they come in; a frequency that comes twice is refused."""

    def __init__(self) -> None:
        self.thresholds: dict[float, float] = {}
        self.no_response: dict[float, float] = {}
        self.seen: set[float] = set()

    def add(self, frequency_hz: float, meaning: str, level: float) -> None:
        if frequency_hz in self.seen:
            raise Refusal(f"{frequency_hz:g} Hz appears twice")
        if len(self.seen) >= MAX_FREQUENCIES:
            raise Refusal(f"an ear has at most {MAX_FREQUENCIES} frequencies")
        self.seen.add(frequency_hz)
        if meaning == THRESHOLD:
            self.thresholds[frequency_hz] = level
        elif meaning == NO_RESPONSE:
            self.no_response[frequency_hz] = level

    @property
    def empty(self) -> bool:
        return not self.thresholds and not self.no_response

    def audiogram(self, sd_db: float, method_offset_db: float) -> Audiogram:
        return Audiogram(self.thresholds, sd_db, method_offset_db, self.no_response)


class Collector:
    """Gathers what a file gives. Two audiograms of one ear at one time cannot both be right."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._items: dict[tuple[str, str, datetime | None], tuple[int, ImportedAudiogram]] = {}
        self._torn: set[tuple[str, str, datetime | None]] = set()
        self._rejected: list[Rejected] = []
        self._left_out: list[Rejected] = []

    def accept(self, row: int, item: ImportedAudiogram) -> None:
        key = (item.code, item.ear, item.measured_at)
        if key in self._items:
            first, other = self._items[key]
            if other.audiogram == item.audiogram:
                self.reject(row, f"the same {item.ear} ear as in row {first}")
            else:
                del self._items[key]
                self._torn.add(key)
                self.reject(first, f"row {row} differs for the same {item.ear} ear and time")
                self.reject(row, f"row {first} differs for the same {item.ear} ear and time")
        elif key in self._torn:
            self.reject(row, f"other rows differ for the same {item.ear} ear and time")
        else:
            self._items[key] = (row, replace(item, row=row))
            self._bound()

    def reject(self, row: int, reason: object) -> None:
        self._rejected.append(rejected(row, reason))
        self._bound()

    def leave_out(self, row: int, reason: str) -> None:
        self._left_out.append(Rejected(row, reason))
        self._bound()

    def result(self) -> References:
        def by_row(rows: list[Rejected]) -> tuple[Rejected, ...]:
            return tuple(sorted(rows, key=lambda rejected: rejected.row))

        items = sorted(self._items.values(), key=lambda pair: pair[0])
        return References(
            tuple(item for _, item in items), by_row(self._rejected), by_row(self._left_out)
        )

    def _bound(self) -> None:
        if len(self._items) + len(self._rejected) + len(self._left_out) > MAX_ITEMS:
            raise Refusal(
                f"{{file}} holds more than {MAX_ITEMS:,} audiograms and rejected rows: split it",
                file=self.path,
            )


def pairs(texts: Iterable[str] | None, what: str) -> dict[str, str]:
    """LEFT=RIGHT, any number of times; the last = divides, as texts may hold one."""
    found = {}
    for text in texts or ():
        left, equals, right = text.rpartition("=")
        if not equals or not left.strip() or not right.strip():
            raise Refusal(f"{what} must look like TEXT=MEANING", got=text)
        found[left.strip()] = right.strip()
    return found


def levels(texts: Iterable[str] | None, what: str) -> float | dict[float, float] | None:
    """One level for all frequencies, or FREQUENCY=LEVEL for each."""
    given = list(texts or ())
    try:
        if len(given) == 1 and "=" not in given[0]:
            return float(given[0])
        return {float(f): float(level) for f, level in pairs(given, what).items()} or None
    except ValueError:
        raise Refusal(
            f"{what} must be a level such as 90, or FREQUENCY=LEVEL such as 8000=85",
            got=", ".join(given),
        ) from None


def level_db_hl(value: object) -> float:
    """A number that can be a level."""
    number = finite(value, "a level")
    if not LOWEST_DB_HL <= number <= HIGHEST_DB_HL:
        raise Refusal(
            f"{{level}} is not possible: levels go from {LOWEST_DB_HL} to {HIGHEST_DB_HL} dB HL; "
            "if it is a code, say what it means",
            level=f"{number:g} dB HL",
        )
    return number


def number_of(text: str) -> float:
    """A plain decimal number; not what only a programming language takes for one."""
    if not NUMBER.fullmatch(text.strip()):
        raise Refusal("{value} is not a number", value=shown(text))
    return float(text)


def frequency_hz(text: str) -> float:
    """A frequency of a cell, in Hz."""
    if not FREQUENCY.fullmatch(text.strip()):
        raise Refusal("{value} is not a frequency in Hz", value=shown(text))
    return checked_frequency(float(text))


def checked_frequency(value: float) -> float:
    if not 100.0 <= value <= 20000.0:
        raise Refusal("frequencies go from 100 to 20000 Hz (not kHz)", got=value)
    return value


def as_ear(text: str) -> str:
    ears = {"l": "left", "left": "left", "r": "right", "right": "right"}
    ear = ears.get(text.strip().casefold())
    if ear is None:
        raise Refusal("ear must be left or right", got=shown(text))
    return ear


def as_sex(text: str) -> str | None:
    try:
        return SEXES[text.strip().casefold()]
    except KeyError:
        raise Refusal("sex must be male, female, other or blank", got=shown(text)) from None


def as_birth_date(text: str, written: str = "") -> date | None:
    """A birth date, or none; part of a date is no date. `written` is the cell as it stands."""
    text = text.strip()
    written = written.strip() or text
    if not text:
        return None
    try:
        born = date.fromisoformat(text if len(text) == 10 else "")
    except ValueError:
        raise Refusal("birth date must look like 1970-12-31", got=shown(written)) from None
    if born.year < 1880 or born > today("UTC"):
        raise Refusal("{value} cannot be a birth date", value=written)
    return born


def identifying(text: object, what: str) -> str:
    """Text that names a person: short, and of characters that can be stored."""
    if not isinstance(text, str):
        raise Refusal(f"{what} must be text", got=type(text).__name__)
    clean = text.strip()
    if not clean:
        raise Refusal(f"{what} is missing")
    if len(clean) > MAX_TEXT:
        raise Refusal(f"{what} is longer than {MAX_TEXT} characters")
    if any(ord(character) < 32 or 0xD800 <= ord(character) <= 0xDFFF for character in clean):
        raise Refusal(f"{what} contains characters that cannot be stored", got=shown(clean))
    return clean


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


class Shown(str):
    """A piece of a file as a message quotes it."""

    def __repr__(self) -> str:
        return str(self)


def shown(value: object) -> Shown:
    """A piece of a file, short and shallow enough for a message."""
    return Shown(_SHORT.repr(value))
