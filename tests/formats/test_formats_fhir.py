"""FHIR: panels of both forms in, bundles out, checked by three validators that also say no."""

import contextlib
import copy
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fhirpathpy
import pytest
from fhir.resources.R4B.bundle import Bundle
from fhirpathpy.models import models
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from test_formats_export import AT, LEFT, RIGHT, visits

from earshift.engine.stimulus import Audiogram
from earshift.engine.values import EARS
from earshift.formats import References, export, fhir, read_references
from earshift.records import ImportedAudiogram, VisitBundle
from earshift.store import Store

__all__ = ["visits"]  # a fixture that both files use

ROOT = Path(__file__).resolve().parents[2]
NODE_MODULES = ROOT / "build" / "fhir_check" / "node_modules"
Json = dict[str, Any]
PANEL = fhir.codes()["panel_air"]


def loinc(code: str) -> Json:
    return {"coding": [{"system": "http://loinc.org", "code": code}]}


def db(value: object, **more: object) -> Json:
    return {"value": value, "unit": "dB", "system": fhir.UCUM, "code": "dB", **more}


def component(ear: str, frequency: float, value: object, **more: object) -> Json:
    code = {"coding": [fhir.threshold_code(ear, frequency)]}
    return {"code": code, "valueQuantity": db(value, **more)}


def panel(*components: Json, **more: object) -> Json:
    return {
        "resourceType": "Observation",
        "status": "final",
        "code": loinc(PANEL),
        "subject": {"reference": "Patient/77"},
        "effectiveDateTime": "2024-05-06T10:00:00+02:00",
        "component": list(components),
        **more,
    }


def read(folder: Path, data: object, **options: Any) -> References:
    path = folder / "file.json"
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return read_references(path, "fhir", **options)


def bundle(*resources: Json) -> Json:
    return {
        "resourceType": "Bundle",
        "type": "collection",
        "entry": [{"resource": resource} for resource in resources],
    }


def reason(found: References) -> str:
    assert not found.accepted
    (rejected,) = found.rejected
    return rejected.reason


# --- Codes ----------------------------------------------------------------------------------------


def check_digit(number: str) -> int:
    """LOINC's last digit, by Luhn's rule: every other digit doubled, from the right."""
    digits = [int(d) for d in reversed(number)]
    doubled = [sum(divmod(2 * d, 10)) if k % 2 == 0 else d for k, d in enumerate(digits)]
    return -sum(doubled) % 10


def test_codes_resolve_both_ways_and_have_sound_check_digits() -> None:
    table = fhir.codes()
    assert "two independent" in table["source"]
    seen = {PANEL, *table["panels_refused"]}
    for ear in EARS:
        assert len(table[ear]) == 11
        for frequency, code in table[ear].items():
            assert fhir.meaning_of_codes()[code] == (ear, float(frequency))
            assert fhir.threshold_code(ear, float(frequency))["code"] == code
            seen.add(code)
    assert len(seen) == 25
    for code in seen:
        number, digit = code.split("-")
        assert check_digit(number) == int(digit), code
    assert table["left"]["500"] == "89024-4"  # left, though many take it for right
    assert table["right"]["250"] == "91374-9"  # in this block right has the lower code


@given(st.sampled_from(EARS), st.floats(100, 20000))
def test_a_frequency_without_a_code_gets_one_of_its_own(ear: str, frequency: float) -> None:
    coding = fhir.threshold_code(ear, frequency)
    assert fhir._ear_and_frequency({"coding": [coding]}, "code") == (ear, frequency)


# --- Import ---------------------------------------------------------------------------------------


def test_a_panel_of_components(tmp_path: Path) -> None:
    patient = {
        "resourceType": "Patient",
        "id": "77",
        "identifier": [
            {"value": "SSN", "type": {"coding": [{"code": "SS"}]}},
            {"value": "MRN 5", "type": {"coding": [{"code": "MR"}]}},
        ],
        "name": [{"given": ["Ann", "B."], "family": "Ö"}],
        "birthDate": "1970-12-31",
        "gender": "female",
    }
    observed = panel(
        component("left", 500, 10),
        component("left", 8000, 85, comparator=">"),
        {"code": loinc("89020-2"), "dataAbsentReason": {"coding": [{"code": "not-performed"}]}},
        component("right", 4000, 22.5),
        {"code": {"text": "comment"}, "valueString": "cooperative"},
    )
    found = read(tmp_path, bundle(patient, observed))
    left, right = sorted(found.accepted, key=lambda item: item.ear)
    assert left.audiogram == Audiogram({500: 10}, no_response_db_hl={8000: 85}).to_dict()
    assert right.audiogram == Audiogram({4000: 22.5}).to_dict()
    assert (left.code, left.name, left.sex) == ("MRN 5", "Ann B. Ö", "female")
    assert left.measured_at == datetime(2024, 5, 6, 8, tzinfo=UTC)
    assert left.source == "file.json, FHIR"
    assert found.rejected == ()


def members(*values: tuple[str, int, float]) -> list[Json]:
    return [
        {
            "resourceType": "Observation",
            "id": f"m{k}",
            "status": "final",
            "code": {"coding": [fhir.threshold_code(ear, frequency)]},
            "subject": {"reference": "Patient/77"},
            "valueQuantity": db(value),
        }
        for k, (ear, frequency, value) in enumerate(values)
    ]


def pointing(*names: str, **more: object) -> Json:
    return {
        **panel(**more),
        "component": [],
        "hasMember": [{"reference": name} for name in names],
    }


@pytest.mark.parametrize("how", ["id", "url", "contained"])
def test_a_panel_that_points_to_its_members(tmp_path: Path, how: str) -> None:
    parts = members(("left", 500, 10), ("right", 500, 15))
    if how == "contained":
        data = pointing("#m0", "#m1", contained=parts)
    elif how == "id":
        data = bundle(pointing("Observation/m0", "Observation/m1"), *parts)
    else:
        data = bundle(pointing("urn:uuid:0", "urn:uuid:1"), *parts)
        for number, entry in enumerate(data["entry"][1:]):
            entry["fullUrl"] = f"urn:uuid:{number}"
    found = read(tmp_path, data)
    assert found.rejected == ()
    assert {item.ear: item.audiogram for item in found.accepted} == {
        "left": Audiogram({500: 10}).to_dict(),
        "right": Audiogram({500: 15}).to_dict(),
    }
    assert {item.code for item in found.accepted} == {"77"}


def altered(**more: object) -> Json:
    return {**component("left", 500, 10), **more}


BAD_PANELS: dict[str, tuple[Json, str]] = {
    "bone": (panel(component("left", 500, 10), code=loinc("100652-7")), "bone conduction"),
    "deprecated": (panel(component("left", 500, 10), code=loinc("100653-5")), "deprecated"),
    "bone method": (
        panel(component("left", 500, 10), method={"text": "pure tone, bone conduction"}),
        "not known to be pure-tone air conduction",
    ),
    "unknown method": (
        panel(component("left", 500, 10), method={"coding": [{"display": "tuning fork"}]}),
        "not known to be pure-tone air conduction",
    ),
    "unfinished": (panel(component("left", 500, 10), status="preliminary"), "'preliminary'"),
    "withdrawn": (panel(component("left", 500, 10), status="entered-in-error"), "entered-in-error"),
    "bananas": (panel(component("left", 500, 10), status="bananas"), "bananas"),
    "test data": (
        panel(component("left", 500, 10), meta={"security": [{"code": "HTEST"}]}),
        "nobody's hearing",
    ),
    "SPL": (panel(component("left", 500, 10, code="dB[SPL]")), "unit must be dB"),
    "unit": (panel(component("left", 500, 10, unit="Pa")), "unit must be dB"),
    "no unit": (panel(altered(valueQuantity={"value": 10})), "unit must be dB"),
    "text value": (panel(altered(valueQuantity=db("10"))), "must be a number"),
    "huge": (panel(altered(valueQuantity=db(10**400))), "must be finite"),
    "true": (panel(altered(valueQuantity=db(True))), "must be a number"),
    "sentinel": (panel(component("left", 500, 999)), "999 dB HL is not possible"),
    "ambiguous": (panel(component("left", 500, 99)), "99 may be a threshold or a code"),
    "comparator": (panel(component("left", 500, 10, comparator="<")), "comparator '<'"),
    "integer": (
        panel({"code": loinc("89024-4"), "valueInteger": 10}),
        "must be a valueQuantity, got valueInteger",
    ),
    "no value": (panel({"code": loinc("89024-4")}), "got none"),
    "both": (panel(altered(dataAbsentReason={"text": "x"})), "both a value and a reason"),
    "no response": (
        panel({"code": loinc("89024-4"), "dataAbsentReason": {"text": "No response"}}),
        "give no_response_db_hl",
    ),
    "twice": (panel(component("left", 500, 10), component("left", 500, 10)), "appears twice"),
    "conflict": (panel(component("left", 500, 10), component("left", 500, 20)), "appears twice"),
    "two codes": (
        panel(altered(code={"coding": [*loinc("89024-4")["coding"], *loinc("89025-1")["coding"]]})),
        "two different thresholds",
    ),
    "unknown dB": (panel(altered(code=loinc("89032-7"))), "an unknown code"),
    "empty": (panel(), "holds no threshold"),
    "time": (
        panel(component("left", 500, 10), effectiveDateTime="2024-05-06T10:00:00"),
        "timezone",
    ),
    "year": (panel(component("left", 500, 10), effectiveDateTime="2024"), "not a date or time"),
    "nobody": (panel(component("left", 500, 10), subject={}), "the person (subject) is missing"),
    "surrogate": (
        panel(component("left", 500, 10), subject={"reference": "Patient/\ud800"}),
        "cannot be stored",
    ),
    "components": (panel(component("left", 500, 10), component={}), "must be a list"),
    "component": (panel(component("left", 500, 10), component=[3]), "must be an object"),
    "endless": (panel(*[component("left", 500, 10)] * 201), "more than 200 parts"),
    "absent member": (pointing("Observation/gone"), "is not in the file"),
    "loose": (members(("left", 500, 10))[0], "belongs to no panel"),
    "hollow": ({"resourceType": "Bundle", "entry": [3]}, "holds no resource"),
}


@pytest.mark.parametrize("name", BAD_PANELS)
def test_panels_that_are_rejected(tmp_path: Path, name: str) -> None:
    resource, says = BAD_PANELS[name]
    assert says in reason(read(tmp_path, resource))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"status": "registered"}, "registered"),
        ({"subject": {"reference": "Patient/78"}}, "another person"),
        ({"effectiveDateTime": "2024-05-08T10:00:00Z"}, "more than a day"),
        ({"method": {"text": "bone conduction"}}, "not known to be"),
    ],
)
def test_members_must_belong_to_their_panel(tmp_path: Path, change: Json, says: str) -> None:
    (member,) = members(("left", 500, 10))
    found = read(tmp_path, bundle(pointing("Observation/m0"), {**member, **change}))
    assert says in reason(found)


def test_a_name_that_two_resources_share_leads_nowhere(tmp_path: Path) -> None:
    (member,) = members(("left", 500, 10))
    other = {**member, "valueQuantity": db(20)}
    found = read(tmp_path, bundle(pointing("Observation/m0"), member, other))
    assert "is not in the file" in found.rejected[0].reason


def test_two_panels_of_one_time_that_disagree_are_rejected(tmp_path: Path) -> None:
    one, two = panel(component("left", 500, 10)), panel(component("left", 500, 20))
    found = read(tmp_path, bundle(one, two))
    assert [rejected.row for rejected in found.rejected] == [1, 2]
    assert not found.accepted


def test_codes_may_be_explained(tmp_path: Path) -> None:
    observed = panel(component("left", 500, 99), component("left", 1000, 120))
    how = {"sentinels": {"99": "no response", "120": "threshold"}, "no_response_db_hl": 90}
    (item,) = read(tmp_path, observed, **how).accepted
    assert item.audiogram == Audiogram({1000: 120}, no_response_db_hl={500: 90}).to_dict()


def test_a_zoneless_time_takes_the_callers_zone(tmp_path: Path) -> None:
    observed = panel(component("left", 500, 10), effectiveDateTime="2024-05-06")
    (item,) = read(tmp_path, observed, timezone="America/Lima").accepted
    assert item.measured_at == datetime(2024, 5, 6, 17, tzinfo=UTC)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not valid JSON"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (b'{"a": "\x00"}', "null bytes"),
        (b"\x1f\x8b\x08", "compressed"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"[" + b"0," * 2_100_000 + b"0]", "about 2,100,001 values"),
        (b'{"a": 1, "a": 2}', "'a' appears twice"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": -Infinity}', "not a number in JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[]", "a JSON list"),
        (b"3", "a JSON int"),
        (b"{}", "resourceType is None"),
        (b'{"resourceType": "Patient"}', "'Patient'"),
        (b'{"resourceType": "Bundle"}', "holds no pure-tone panel"),
        (b'{"resourceType": "Bundle", "entry": {}}', "must be a list"),
        (json.dumps(panel(component("left", 500, 10)))[:-9].encode(), "not valid JSON"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, data: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        read(tmp_path, data)


@pytest.mark.parametrize("depth", range(700, 1000, 20))
def test_nesting_that_is_just_parsed_is_not_shown_whole(tmp_path: Path, depth: int) -> None:
    """What the parser still takes must not break the words about it."""
    nested = json.dumps(panel(status="HERE")).replace('"HERE"', "[" * depth + "]" * depth)
    with contextlib.suppress(ValueError):
        assert "status" in reason(read(tmp_path, nested.encode()))


def test_the_size_is_checked_before_anything_is_read(tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    with path.open("wb") as file:
        file.truncate(fhir.MAX_BYTES + 1)
    with pytest.raises(ValueError, match="at most 64 MB"):
        read_references(path)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
SOUND = bundle(
    {"resourceType": "Patient", "id": "77", "identifier": [{"value": "7"}], "gender": "male"},
    panel(component("left", 500, 10), meta={"security": []}, method={"text": "pure tone"}),
    pointing("Observation/m0", effectivePeriod={"start": "2020-01-01T00:00:00Z"}),
    *members(("right", 500, 15)),
)


def places(data: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data if isinstance(data, list) else ())
    )
    for key, value in items:
        yield from places(value, (*path, key))


@given(st.sampled_from(sorted(places(SOUND), key=repr)), ANYTHING)
def test_anything_anywhere_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, where: tuple[Any, ...], thing: object
) -> None:
    """One piece of a sound file, whichever it is, replaced by arbitrary JSON."""
    data: Any = {"root": copy.deepcopy(SOUND)}
    *way, last = ("root", *where)
    spot = data
    for step in way:
        spot = spot[step]
    spot[last] = thing
    try:
        found = read(tmp_path_factory.mktemp("fuzz", numbered=True), data["root"])
    except ValueError:
        return
    for item in found.accepted:
        assert Audiogram.from_dict(item.audiogram).to_dict() == item.audiogram


@given(st.binary(max_size=300) | st.text(alphabet='{}[]",:0eE-. ntf', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    with pytest.raises(ValueError, match=r"file\.json"):
        read(tmp_path_factory.mktemp("fuzz", numbered=True), data)


# --- Export ---------------------------------------------------------------------------------------


@pytest.fixture
def exported(tmp_path: Path, visits: list[VisitBundle]) -> Path:
    path = tmp_path / "bundle.json"
    export(visits, "fhir", path)
    return path


def resources_of(path: Path, kind: str) -> list[Json]:
    entries = json.loads(path.read_text())["entry"]
    return [e["resource"] for e in entries if e["resource"]["resourceType"] == kind]


def screens_of(path: Path) -> list[Json]:
    return [
        o
        for o in resources_of(path, "Observation")
        if o["code"]["coding"][0]["code"] == "change-screen"
    ]


def test_what_we_write_we_read(tmp_path: Path, visits: list[VisitBundle]) -> None:
    path = tmp_path / "bundle.json"
    export(visits[:1], "fhir", path)
    codes = {"sentinels": {"99": "threshold", "120": "threshold"}}
    found = read_references(path, **codes)
    assert found.rejected == ()
    assert {item.ear: item.audiogram for item in found.accepted} == {
        "left": LEFT.to_dict(),
        "right": RIGHT.to_dict(),
    }
    item, person = found.accepted[0], visits[0].person
    assert (item.code, item.name, item.birth_date, item.sex) == (
        *(person.code, person.name, person.birth_date, person.sex),
    )
    assert item.measured_at == visits[0].exams[0].exam.measured_at


def test_a_full_exam_comes_back_as_its_thresholds(
    tmp_path: Path, visits: list[VisitBundle]
) -> None:
    exam = visits[1].exams[0]
    shown = exam.results[0].shown["thresholds"][1:]  # the first is below what was tested
    result = replace(exam.results[0], shown={"thresholds": shown})
    path = tmp_path / "bundle.json"
    export([replace(visits[1], exams=(replace(exam, results=(result,)),))], "fhir", path)
    (item,) = read_references(path).accepted
    audiogram = Audiogram.from_dict(item.audiogram)
    assert audiogram.thresholds_db_hl == {
        t["frequency_hz"]: round(t["level_db_hl"], 1) for t in shown if t["censored"] is None
    }
    assert audiogram.no_response_db_hl == {8000: 100}
    assert (item.ear, item.measured_at) == ("right", AT)


def test_a_screen_never_gives_thresholds(exported: Path, visits: list[VisitBundle]) -> None:
    screens = screens_of(exported)
    assert len(screens) == 2
    for screen in screens:
        assert not any("loinc" in json.dumps(part["code"]) for part in screen["component"])
    screen, verdict = screens[0], visits[1].exams[1].results[0].shown["verdict"]
    assert screen["component"][0]["valueQuantity"]["value"] == verdict["p_changed"]
    assert screen["valueCodeableConcept"]["coding"][0]["code"] == verdict["decision"]
    assert {"text": "Screening result, not a diagnostic audiogram."} in screen["note"]
    assert "Calibrated (acoustic) on 2025-01-02 with HA-2 by Lab" in json.dumps(screen["note"])


def test_an_exam_that_is_not_completed_gives_none(
    tmp_path: Path, visits: list[VisitBundle]
) -> None:
    exam = visits[1].exams[0]
    for state in ("open", "paused", "abandoned"):
        undone = replace(exam, exam=replace(exam.exam, state=state))
        export([replace(visits[1], exams=(undone,))], "fhir", tmp_path / state)
        assert "entry" not in json.loads((tmp_path / state).read_text())


def test_every_reference_leads_to_an_entry_before_it(exported: Path) -> None:
    seen: set[str] = set()
    for entry in json.loads(exported.read_text())["entry"]:
        for reference in re.findall(r'"reference": "([^"]*)"', json.dumps(entry)):
            assert reference in seen
        assert entry["fullUrl"] not in seen
        seen.add(entry["fullUrl"])


def test_a_screen_is_derived_from_its_reference(exported: Path) -> None:
    by_url = {e["fullUrl"]: e["resource"] for e in json.loads(exported.read_text())["entry"]}
    for screen in screens_of(exported):
        reference = by_url[screen["derivedFrom"][0]["reference"]]
        assert reference["code"]["coding"][0]["code"] == PANEL
        assert reference["effectiveDateTime"] == "2020-01-31T11:00:00+00:00"
        assert len([p for p in reference["component"] if "comparator" in p["valueQuantity"]]) == 2


def test_one_visit_alone_brings_its_reference(tmp_path: Path, visits: list[VisitBundle]) -> None:
    export(visits[1:2], "fhir", tmp_path / "one.json")
    (screen,) = screens_of(tmp_path / "one.json")
    assert "reference" in screen["derivedFrom"][0]
    found = read_references(tmp_path / "one.json")
    assert LEFT.to_dict() in [item.audiogram for item in found.accepted]


def test_a_reference_that_cannot_be_written_is_said_to_be_absent(
    tmp_path: Path, visits: list[VisitBundle]
) -> None:
    screen = replace(visits[1].exams[1], reference=None)
    export([replace(visits[1], exams=(screen,))], "fhir", tmp_path / "x")
    (written,) = screens_of(tmp_path / "x")
    assert written["derivedFrom"] == [{"display": "the reference, which is not in this bundle"}]


def test_simulated_people_are_labelled_and_refused(exported: Path) -> None:
    labelled = [
        o for o in resources_of(exported, "Observation") if "HTEST" in json.dumps(o.get("meta", {}))
    ]
    assert len(labelled) == 2
    assert any("nobody's hearing" in r.reason for r in read_references(exported).rejected)


def test_a_second_result_amends_the_first(tmp_path: Path, visits: list[VisitBundle]) -> None:
    exam = visits[1].exams[0]
    twice = replace(exam, results=(exam.results[0], replace(exam.results[0], id=10)))
    export([replace(visits[1], exams=(twice,))], "fhir", tmp_path / "x")
    assert [o["status"] for o in resources_of(tmp_path / "x", "Observation")] == ["amended"]


def test_reports_say_what_was_concluded(exported: Path) -> None:
    reports = resources_of(exported, "DiagnosticReport")
    assert [report["status"] for report in reports] == ["final", "final", "partial"]
    assert "conclusion" not in reports[0]
    assert "not a diagnostic audiogram" in reports[1]["conclusion"]
    assert len(reports[1]["result"]) == 2


def test_people_and_devices_come_once(exported: Path) -> None:
    assert len(resources_of(exported, "Patient")) == 2  # the erased one has no result
    assert len(resources_of(exported, "Device")) == 1


def by_ear(found: References) -> dict[str, ImportedAudiogram]:
    return {item.ear: replace(item, source="") for item in found.accepted}


def test_from_file_to_store_to_file(tmp_path: Path, visits: list[VisitBundle]) -> None:
    """Imported, stored, exported and imported again: the same audiograms of the same people."""
    export(visits[:1], "fhir", tmp_path / "first.json")
    codes = {"99": "threshold", "120": "threshold"}
    found = read_references(tmp_path / "first.json", sentinels=codes)
    with Store.open(tmp_path / "store.db") as store:
        store.import_audiograms(found.accepted, author="me", zone="Europe/Berlin")
        for kind, out in (("fhir", "again.json"), ("csv", "again")):
            assert export(store.iter_visit_bundles(), kind, tmp_path / out, identity=True) == 1
    for name in ("again.json", "again/thresholds.csv"):
        again = read_references(tmp_path / name, sentinels=codes)
        assert again.rejected == ()
        assert by_ear(again) == by_ear(found)
        assert len(again.accepted) == 2


# --- Validators, each with files that must fail ---------------------------------------------------

Damage = Callable[[Json], object]


def first(bundle: Json, kind: str) -> Json:
    return next(e["resource"] for e in bundle["entry"] if e["resource"]["resourceType"] == kind)


def damaged(path: Path, damage: Damage) -> Json:
    data: Json = json.loads(path.read_text())
    damage(data)
    return data


STRUCTURE: dict[str, Damage] = {
    "no status": lambda b: first(b, "Observation").pop("status"),
    "unknown field": lambda b: first(b, "Observation").update(bananas=1),
    "text for a number": lambda b: first(b, "Observation")["component"][0]["valueQuantity"].update(
        value="loud"
    ),
    "object for a list": lambda b: first(b, "Observation").update(component={}),
    "two values": lambda b: first(b, "Observation").update(valueString="a", valueInteger=1),
    "no such day": lambda b: first(b, "Observation").update(effectiveDateTime="2020-13-01"),
}


def test_structure_by_fhir_resources(exported: Path) -> None:
    Bundle.model_validate_json(exported.read_text())


@pytest.mark.parametrize("name", STRUCTURE)
def test_fhir_resources_refuses_a_broken_structure(exported: Path, name: str) -> None:
    with pytest.raises(ValidationError):
        Bundle.model_validate_json(json.dumps(damaged(exported, STRUCTURE[name])))


@pytest.fixture(scope="session")
def value_sets() -> Callable[[Path], list[str]]:
    """The checker in tests/fhir_check, on Node.js; `make fhir-check` installs it."""
    node = shutil.which("node")
    if node is None or not (NODE_MODULES / "fhir").is_dir():
        missing = "FHIR value sets are left out: no Node.js, or no `make fhir-check` before"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)

    def check(path: Path) -> list[str]:
        done = subprocess.run(
            [node, ROOT / "tests" / "fhir_check" / "check.js", path],
            env={**os.environ, "NODE_PATH": str(NODE_MODULES)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        messages: list[str] = json.loads(done.stdout)[str(path)]
        return messages

    return check


def test_value_sets_by_npm_fhir(exported: Path, value_sets: Callable[[Path], list[str]]) -> None:
    assert value_sets(exported) == []


VALUE_SETS: dict[str, tuple[Damage, str]] = {
    "status": (lambda b: first(b, "Observation").update(status="bananas"), "Observation.status"),
    "comparator": (
        lambda b: first(b, "Observation")["component"][0]["valueQuantity"].update(
            comparator="bananas"
        ),
        "comparator",
    ),
    "report": (
        lambda b: first(b, "DiagnosticReport").update(status="bananas"),
        "DiagnosticReport.status",
    ),
    "gender": (lambda b: first(b, "Patient").update(gender="bananas"), "Patient.gender"),
    "device name": (
        lambda b: first(b, "Device")["deviceName"][0].update(type="bananas"),
        "Device.deviceName",
    ),
    "bundle": (lambda b: b.update(type="bananas"), "Bundle.type"),
    "unknown field": (lambda b: first(b, "Observation").update(bananas=1), "bananas"),
}


@pytest.mark.parametrize("name", VALUE_SETS)
def test_npm_fhir_refuses_codes_that_do_not_exist(
    tmp_path: Path, exported: Path, value_sets: Callable[[Path], list[str]], name: str
) -> None:
    damage, where = VALUE_SETS[name]
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(damaged(exported, damage)))
    assert any(where in message for message in value_sets(path))


# FHIR R4 (4.0.1) invariants of what we write, and three promises of our own; each with a damage
# that breaks it.
LOINC_CODES = "coding.where(system = 'http://loinc.org')"
SCREEN = "entry.resource.ofType(Observation).where(code.coding.code = 'change-screen')"
INVARIANTS: dict[str, tuple[str, Damage]] = {
    "bdl-1": (
        "total.empty() or (type = 'searchset') or (type = 'history')",
        lambda b: b.update(total=3),
    ),
    "bdl-5": (
        "entry.all(resource.exists() or request.exists() or response.exists())",
        lambda b: b["entry"].append({"fullUrl": "urn:uuid:x"}),
    ),
    "bdl-7": (
        "entry.fullUrl.isDistinct()",  # none of our resources has a version
        lambda b: b["entry"].append(b["entry"][0]),
    ),
    "bdl-8": (
        "entry.all(fullUrl.contains('/_history/').not())",
        lambda b: b["entry"][0].update(fullUrl="http://x/_history/1"),
    ),
    "dom-2": (
        "entry.resource.all(contained.contained.empty())",
        lambda b: first(b, "Observation").update(
            contained=[{"resourceType": "Patient", "contained": [{"resourceType": "Patient"}]}]
        ),
    ),
    "obs-6": (
        "entry.resource.ofType(Observation).all(dataAbsentReason.empty() or value.empty())",
        lambda b: [e["resource"].update(dataAbsentReason={"text": "x"}) for e in b["entry"]],
    ),
    "obs-7": (
        "entry.resource.ofType(Observation)"
        ".all(value.empty() or component.code.coding.code.intersect(code.coding.code).empty())",
        lambda b: [
            e["resource"]["component"].append({"code": e["resource"]["code"]})
            for e in b["entry"]
            if "component" in e["resource"]
        ],
    ),
    "qty-3": (
        "entry.resource.ofType(Observation).component.value.ofType(Quantity)"
        ".all(code.empty() or system.exists())",
        lambda b: first(b, "Observation")["component"][0]["valueQuantity"].pop("system"),
    ),
    "a screen has no threshold codes": (
        f"{SCREEN}.component.code.{LOINC_CODES}.empty()",
        lambda b: [
            e["resource"]["component"].append(component("left", 500, 10))
            for e in b["entry"]
            if "derivedFrom" in e["resource"]
        ],
    ),
    "a screen has a probability": (
        f"{SCREEN}.all(component.where(code.coding.code = 'p-changed').value.value <= 1)",
        lambda b: [
            e["resource"]["component"].pop(0) for e in b["entry"] if "derivedFrom" in e["resource"]
        ],
    ),
    "dB and nothing else": (
        f"entry.resource.ofType(Observation).component.where(code.{LOINC_CODES}.exists())"
        ".value.all(unit = 'dB' and code = 'dB' and system = 'http://unitsofmeasure.org')",
        lambda b: first(b, "Observation")["component"][1]["valueQuantity"].update(code="dB[SPL]"),
    ),
}


@pytest.mark.parametrize("name", INVARIANTS)
def test_invariants_by_fhirpath(exported: Path, name: str) -> None:
    expression, damage = INVARIANTS[name]

    def holds(data: Json) -> Any:
        return fhirpathpy.evaluate(data, f"Bundle.({expression})", {}, models["r4"])

    assert holds(json.loads(exported.read_text())) == [True]
    assert holds(damaged(exported, damage)) != [True]
