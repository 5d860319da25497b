"""FHIR in: codes, panels of both forms, files that are refused."""

import contextlib
import copy
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earshift.engine.audiogram import Audiogram
from earshift.engine.values import EARS
from earshift.formats import fhir, read_references
from support.fhir_panels import PANEL, Json, bundle, component, db, loinc, panel, read, reason

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
        "not a real person's hearing",
    ),
    "SPL": (panel(component("left", 500, 10, code="dB[SPL]")), "unit must be dB"),
    "unit": (panel(component("left", 500, 10, unit="Pa")), "unit must be dB"),
    "no unit": (panel(altered(valueQuantity={"value": 10})), "unit must be dB"),
    "text value": (panel(altered(valueQuantity=db("10"))), "must be a number"),
    "huge": (panel(altered(valueQuantity=db(10**400))), "must be finite"),
    "true": (panel(altered(valueQuantity=db(True))), "must be a number"),
    "sentinel": (panel(component("left", 500, 999)), "999 dB HL is not possible"),
    "ambiguous": (panel(component("left", 500, 99)), "99 may be a threshold or a code"),
    "comparator": (panel(component("left", 500, 10, comparator="<")), "'<' is not read"),
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
    "empty": (panel(), "contains no threshold"),
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
    "loose": (members(("left", 500, 10))[0], "outside any panel"),
    "hollow": ({"resourceType": "Bundle", "entry": [3]}, "contains no resource"),
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
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "not a JSON number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[]", "a JSON list"),
        (b"3", "a JSON int"),
        (b"{}", "must be Bundle or Observation, got None"),
        (b'{"resourceType": "Patient"}', "'Patient'"),
        (b'{"resourceType": "Bundle"}', "contains no pure-tone panel"),
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
