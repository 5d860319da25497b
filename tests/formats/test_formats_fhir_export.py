"""FHIR out: bundles, checked by three validators that also say no."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fhirpathpy
import pytest
from fhir.resources.R4B.bundle import Bundle
from fhirpathpy.models import models
from pydantic import ValidationError
from test_formats_export import AT, LEFT, RIGHT, visits

from earshift.engine.audiogram import Audiogram
from earshift.formats import References, export, read_references
from earshift.records import ImportedAudiogram, VisitBundle
from earshift.store import Store
from support.fhir_panels import PANEL, Json, component

__all__ = ["visits"]  # a fixture that both files use

ROOT = Path(__file__).resolve().parents[2]
NODE_MODULES = ROOT / "build" / "fhir_check" / "node_modules"


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
    assert any(
        "not a real person's hearing" in r.reason for r in read_references(exported).rejected
    )


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
