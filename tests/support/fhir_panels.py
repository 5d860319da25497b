"""FHIR panels of pure-tone thresholds, made for tests, and how they are read."""

import json
from pathlib import Path
from typing import Any

from earshift.formats import References, fhir, read_references

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
