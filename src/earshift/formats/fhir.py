"""References from FHIR R4 JSON: a bundle, or one Observation, with pure-tone air-conduction panels.

A panel (LOINC 89015-2) holds its thresholds as components or points to one Observation each. The
codes of thresholds name ear and frequency but not air or bone: only the panel does, so a threshold
outside a panel is refused, and a bone panel too. The unit must be dB; `>` means no response at that
level. `fhir_bundle` writes what this reads.
"""

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from earshift.engine.checks import finite
from earshift.engine.refusal import Refusal
from earshift.engine.values import EARS
from earshift.formats.files import check_size, decode
from earshift.formats.references import (
    NO_RESPONSE,
    NOT_TESTED,
    THRESHOLD,
    Collector,
    Ear,
    Options,
    References,
    Shown,
    as_birth_date,
    as_sex,
    checked_frequency,
    identifying,
    level_db_hl,
    shown,
)
from earshift.records import ImportedAudiogram

Json = dict[str, Any]

# A name, not an address: codes for what LOINC has none for.
LOCAL = "https://earshift.example/fhir/CodeSystem/earshift"
UCUM = "http://unitsofmeasure.org"
MAX_BYTES = 64_000_000
MAX_VALUES = 2_000_000  # a JSON value may take a hundred times its text in memory
DECIBELS = ("dB", "dB HL", "dB(HL)", "dBHL")
MAX_PARTS = 200  # thresholds and remarks of one panel
LOCAL_THRESHOLD = re.compile(r"threshold-(left|right)-([0-9]{3,5}(\.[0-9]{1,20})?)")
FINISHED = ("final", "amended", "corrected")
METHODS = ("air conduction", "air-conduction", "pure tone", "pure-tone", "hughson", "audiometr")
OTHER_METHODS = ("bone", "sound field", "sound-field", "speech", "otoacoustic", "evoked", "reflex")
TEST_DATA = "HTEST"  # the security label for people who do not exist


@cache
def codes() -> Json:
    """The LOINC codes with their source, as shipped."""
    text = resources.files("earshift.formats").joinpath("loinc.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


@cache
def meaning_of_codes() -> dict[str, tuple[str, float]]:
    """LOINC code to ear and frequency."""
    return {code: (ear, float(f)) for ear in EARS for f, code in codes()[ear].items()}


def threshold_code(ear: str, frequency_hz: float) -> Json:
    """The coding of a threshold: LOINC's if there is one, else our own."""
    for code, meant in meaning_of_codes().items():
        if meant == (ear, frequency_hz):
            return {"system": codes()["system"], "code": code}
    return {"system": LOCAL, "code": f"threshold-{ear}-{float(frequency_hz)!r}".removesuffix(".0")}


def read(path: Path, options: Options) -> References:
    """The audiograms of all panels in a file; one item per ear of a panel."""
    check_size(path, MAX_BYTES)
    found = Collector(path)
    entries = _entries(path, _parse(path), found)
    bundle = _Index(entries)
    members: set[int] = set()
    panels: list[tuple[int, Json]] = []
    loose: list[tuple[int, Json]] = []
    for number, _, resource in entries:
        if resource.get("resourceType") != "Observation":
            continue
        try:
            kind = _kind(resource)
        except Refusal as error:
            found.reject(number, error)
            continue
        if kind == "panel":
            panels.append((number, resource))
        elif kind == "threshold":
            loose.append((number, resource))
        elif kind is not None:
            found.reject(number, f"a panel of {kind} is not read: only air conduction is supported")
    for number, panel in panels:
        try:
            for item in _read_panel(panel, bundle, options, members, path.name):
                found.accept(number, item)
        except Refusal as error:
            found.reject(number, error)
    for number, resource in loose:
        if id(resource) not in members:
            found.reject(
                number,
                f"a threshold outside any panel {codes()['panel_air']} in this file: it is not "
                "known whether it is air or bone conduction",
            )
    result = found.result()
    if not result.accepted and not result.rejected:
        raise Refusal(
            f"{{file}} contains no pure-tone panel (LOINC {codes()['panel_air']})", file=path
        )
    return result


# The file as JSON


def _parse(path: Path) -> Json:
    text = decode(path, path.read_bytes())
    values = sum(text.count(sign) for sign in ",[{")
    if values > MAX_VALUES:
        raise Refusal(
            f"{{file}} holds about {values:,} values; at most {MAX_VALUES:,} are read: split it",
            file=path,
        )
    try:
        data = json.loads(text, parse_constant=_no_number, object_pairs_hook=once_each)
    except RecursionError:
        raise Refusal("{file} is nested too deeply for a FHIR file", file=path) from None
    except Refusal as error:
        raise error.within("{file} is not valid JSON: ", file=path) from None
    except json.JSONDecodeError as error:
        raise Refusal(f"{{file}} is not valid JSON: {error.msg}", file=path) from None
    except ValueError:
        raise Refusal("{file} is not valid JSON: a number is too long", file=path) from None
    if not isinstance(data, dict):
        raise Refusal(
            f"{{file}} is not a FHIR resource but a JSON {type(data).__name__}", file=path
        )
    return data


def _no_number(text: str) -> float:
    raise Refusal(f"{text} is not a JSON number")


def once_each(pairs: list[tuple[str, Any]]) -> Json:
    """For `json.loads`: an object in which no key comes twice, so that nobody reads another one."""
    data: Json = {}
    for name, value in pairs:
        if name in data:
            raise Refusal("{key} appears twice in one object", key=shown(name))
        data[name] = value
    return data


class _Entry(NamedTuple):
    number: int  # its place in the bundle
    full_url: Any
    resource: Json


def _entries(path: Path, data: Json, found: Collector) -> list[_Entry]:
    """Every resource of the file."""
    kind = data.get("resourceType")
    if kind == "Observation":
        return [_Entry(1, None, data)]
    if kind != "Bundle":
        raise Refusal(
            "the resourceType of {file} must be Bundle or Observation", file=path, got=shown(kind)
        )
    entries = []
    for number, entry in enumerate(_list(data.get("entry"), "Bundle.entry"), start=1):
        resource = entry.get("resource") if isinstance(entry, dict) else None
        if isinstance(resource, dict):
            entries.append(_Entry(number, entry.get("fullUrl"), resource))
        else:
            found.reject(number, "this entry contains no resource")
    return entries


def _object(value: Any, what: str) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refusal(f"{what} must be an object", got=shown(value))
    return value


def _list(value: Any, what: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise Refusal(f"{what} must be a list", got=shown(value))
    return value


def _objects(value: Any, what: str) -> Iterator[Json]:
    for item in _list(value, what):
        yield _object(item, what)


def _codings(concept: Any, what: str) -> list[tuple[str, str]]:
    """System and code of all codings of a CodeableConcept."""
    pairs = [
        (coding.get("system"), coding.get("code"))
        for coding in _objects(_object(concept, what).get("coding"), f"{what}.coding")
    ]
    return [(str(s), c) for s, c in pairs if isinstance(s, str | None) and isinstance(c, str)]


def _words(concept: Any, what: str) -> str:
    """All words of a CodeableConcept, for the eye."""
    found = _object(concept, what)
    displays = [c.get("display") for c in _objects(found.get("coding"), f"{what}.coding")]
    return " ".join(w for w in (found.get("text"), *displays) if isinstance(w, str))[:500]


class _Index:
    """Finds resources by the references to them. One that two answer to is found by none."""

    def __init__(self, entries: list[_Entry]) -> None:
        self._by_name: dict[str, Json | None] = {}
        for _, full, resource in entries:
            own = resource.get("id")
            names = {full} if isinstance(full, str) else set()
            if isinstance(own, str):
                names.add(f"{resource.get('resourceType')}/{own}")
            for name in names:
                self._by_name[name] = None if name in self._by_name else resource

    def find(self, reference: Any, contained: dict[str, Json]) -> Json | None:
        if not isinstance(reference, str):
            return None
        return contained.get(reference) or self._by_name.get(reference)


def _contained(resource: Json) -> dict[str, Json]:
    """The resources within a resource, by the references to them."""
    return {f"#{r.get('id')}": r for r in _objects(resource.get("contained"), "contained")}


# What the resources say


def _kind(observation: Json) -> str | None:
    """panel, threshold, the name of a refused panel, or None for what is no audiometry."""
    known = codes()["system"]
    loinc = [code for system, code in _codings(observation.get("code"), "code") if system == known]
    refused = [codes()["panels_refused"][c] for c in loinc if c in codes()["panels_refused"]]
    if refused:
        return str(refused[0])
    if codes()["panel_air"] in loinc:
        return "panel"
    return "threshold" if any(code in meaning_of_codes() for code in loinc) else None


def _ear_and_frequency(concept: Any, what: str) -> tuple[str, float] | None:
    """Which threshold a code means, or None if it means none."""
    meant = set()
    for system, code in _codings(concept, what):
        if system == codes()["system"] and code in meaning_of_codes():
            meant.add(meaning_of_codes()[code])
        elif system == LOCAL and (match := LOCAL_THRESHOLD.fullmatch(code)):
            meant.add((match[1], checked_frequency(float(match[2]))))
    if len(meant) > 1:
        raise Refusal(f"{what} refers to two different thresholds")
    return next(iter(meant), None)


def _local(concept: Any, what: str) -> str | None:
    return next((code for system, code in _codings(concept, what) if system == LOCAL), None)


def _read_panel(
    panel: Json, bundle: _Index, options: Options, members: set[int], file: str
) -> list[ImportedAudiogram]:
    """One item per ear; what was pointed to is noted in `members`, also when it is refused."""
    parts = list(_objects(panel.get("component"), "component"))
    pointers = list(_objects(panel.get("hasMember"), "hasMember"))
    if len(parts) + len(pointers) > MAX_PARTS:
        raise Refusal(f"the panel has more than {MAX_PARTS} parts")
    contained = _contained(panel)
    for reference in pointers:
        member = bundle.find(reference.get("reference"), contained)
        if member is None:
            raise Refusal("{member} is not in the file", member=shown(reference.get("reference")))
        members.add(id(member))
        parts.append(member)
    _require_finished(panel)
    _require_air(panel)
    at = _measured_at(panel, options)
    ears = {ear: Ear() for ear in EARS}
    spread = {"threshold-sd": options.sd_db, "method-offset": options.method_offset_db}
    for part in parts:
        if part.get("resourceType") == "Observation":
            _require_same_sitting(part, panel, at, options)
        which = _ear_and_frequency(part.get("code"), "code")
        if which is not None:
            ear, frequency = which
            try:
                ears[ear].add(frequency, *_value(part, frequency, options))
            except Refusal as error:
                raise error.within(f"{ear} {frequency:g} Hz: ") from None
        elif (own := _local(part.get("code"), "code")) in spread:
            spread[own] = _decibels(_object(part.get("valueQuantity"), "valueQuantity"))
        elif _object(part.get("valueQuantity"), "valueQuantity").get("code") == "dB":
            raise Refusal("a value in dB has an unknown code", got=shown(part.get("code")))
    person = _person(panel, bundle)
    source = f"{file}, FHIR"
    if method := _words(panel.get("method"), "method"):
        source += f", {method[:100]}"
    items = [
        ImportedAudiogram(
            **person,
            ear=ear,
            audiogram=readings.audiogram(spread["threshold-sd"], spread["method-offset"]).to_dict(),
            measured_at=at,
            source=source,
        )
        for ear, readings in ears.items()
        if not readings.empty
    ]
    if not items:
        raise Refusal("the panel contains no threshold")
    return items


def _require_finished(observation: Json) -> None:
    if observation.get("status") not in FINISHED:
        raise Refusal(
            f"its status must be one of {', '.join(FINISHED)}",
            got=shown(observation.get("status")),
        )
    meta = _object(observation.get("meta"), "meta")
    if any(label.get("code") == TEST_DATA for label in _objects(meta.get("security"), "security")):
        raise Refusal("it is labelled as test data (HTEST), not a real person's hearing")


def _require_air(observation: Json) -> None:
    """A method that is named must be one of pure tones by air; else the panel's code says so."""
    if "method" not in observation:
        return
    words = _words(observation["method"], "method").casefold()
    if not any(m in words for m in METHODS) or any(m in words for m in OTHER_METHODS):
        raise Refusal("{method} is not known to be pure-tone air conduction", method=shown(words))


def _require_same_sitting(member: Json, panel: Json, at: datetime | None, options: Options) -> None:
    _require_finished(member)
    _require_air(member)
    subjects = [_object(r.get("subject"), "subject").get("reference") for r in (member, panel)]
    if subjects[0] is not None and subjects[0] != subjects[1]:
        raise Refusal("a member belongs to another person than the panel")
    own = _measured_at(member, options)
    if own is not None and at is not None and abs(own - at) > timedelta(days=1):
        raise Refusal("a member was measured more than a day before or after the panel")


def _measured_at(observation: Json, options: Options) -> datetime | None:
    period = _object(observation.get("effectivePeriod"), "effectivePeriod")
    given = observation.get("effectiveDateTime", observation.get("effectiveInstant"))
    given = period.get("start") if given is None else given
    if given is None:
        return None
    if not isinstance(given, str):
        raise Refusal("the time must be text", got=shown(given))
    return options.moment(given)


def _value(part: Json, frequency_hz: float, options: Options) -> tuple[str, float]:
    """What a component or member says of its frequency, as `Ear.add` takes it."""
    values = [name for name in part if name.startswith("value")]
    absent = part.get("dataAbsentReason")
    if absent is not None:
        if values:
            raise Refusal("it has both a value and a reason for having none")
        words = _words(absent, "dataAbsentReason").casefold()
        if NO_RESPONSE in words:
            return NO_RESPONSE, options.tried(frequency_hz)
        return NOT_TESTED, 0.0
    if values != ["valueQuantity"]:
        raise Refusal("its value must be a valueQuantity", got=Shown(", ".join(values) or "none"))
    quantity = _object(part["valueQuantity"], "valueQuantity")
    level = _decibels(quantity)
    comparator = quantity.get("comparator")
    if comparator == ">":
        return NO_RESPONSE, options.tried(frequency_hz, level)
    if comparator is not None:
        raise Refusal("{comparator} is not read: only > is supported", comparator=shown(comparator))
    explained = options.sentinels.get(f"{level:g}")
    if explained == NO_RESPONSE:
        return NO_RESPONSE, options.tried(frequency_hz)
    if explained == NOT_TESTED:
        return NOT_TESTED, 0.0
    return THRESHOLD, level_db_hl(options.threshold(level, explained == THRESHOLD))


def _decibels(quantity: Json) -> float:
    """The number of a quantity, which must be in dB: the code if there is one, else the unit."""
    code, unit = quantity.get("code"), quantity.get("unit")
    if code != "dB" if code is not None else unit not in DECIBELS:
        raise Refusal("its unit must be dB", got=shown(code if code is not None else unit))
    if unit is not None and unit not in DECIBELS:
        raise Refusal("its unit must be dB", got=shown(unit))
    return finite(quantity.get("value"), "its value")


def _person(panel: Json, bundle: _Index) -> Json:
    """Code, name, birth date and sex: from the patient in the file, else from the reference."""
    subject = _object(panel.get("subject"), "subject")
    reference = subject.get("reference")
    patient = bundle.find(reference, _contained(panel))
    if patient is None or patient.get("resourceType") != "Patient":
        own = _object(subject.get("identifier"), "subject.identifier").get("value")
        if own is None and isinstance(reference, str) and "/" in reference:
            own = reference.rsplit("/", 1)[-1]
        return {"code": identifying("" if own is None else own, "the person (subject)")}
    identifiers = [
        identifier
        for identifier in _objects(patient.get("identifier"), "Patient.identifier")
        if identifier.get("value") is not None
    ]
    medical_record = [
        identifier
        for identifier in identifiers
        if any(code == "MR" for _, code in _codings(identifier.get("type"), "identifier.type"))
    ]
    chosen = medical_record or identifiers
    if len(chosen) > 1:
        raise Refusal("the patient has several identifiers, and none is of type MR")
    code = chosen[0]["value"] if chosen else patient.get("id", "")
    return {
        "code": identifying(code, "the patient's identifier"),
        "name": _name(patient),
        "birth_date": as_birth_date(_text(patient.get("birthDate"), "birthDate")),
        "sex": as_sex(_text(patient.get("gender"), "gender")),
    }


def _text(value: Any, what: str) -> str:
    if value is not None and not isinstance(value, str):
        raise Refusal(f"{what} must be text", got=shown(value))
    return value or ""


def _name(patient: Json) -> str | None:
    for name in _objects(patient.get("name"), "Patient.name"):
        given = [_text(g, "given name") for g in _list(name.get("given"), "given name")]
        whole = _text(name.get("text"), "name") or " ".join(
            [*given, _text(name.get("family"), "family name")]
        )
        if whole.strip():
            return identifying(whole, "the patient's name")
    return None
