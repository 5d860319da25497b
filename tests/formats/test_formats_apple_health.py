"""Audiograms of Apple Health exports, on files of the documented shape."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from earshift.engine.audiogram import Audiogram
from earshift.formats import read_references

HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE HealthData [
<!-- HealthKit Export Version: 13 -->
<!ELEMENT HealthData (ExportDate,Me,(Record|Audiogram)*)>
<!ATTLIST HealthData locale CDATA #REQUIRED>
]>
<HealthData locale="en_US">
 <ExportDate value="2026-01-02 10:00:00 +0100"/>
 <Me HKCharacteristicTypeIdentifierDateOfBirth="1980-02-03"
     HKCharacteristicTypeIdentifierBiologicalSex="HKBiologicalSexFemale"/>
 <Record type="HKQuantityTypeIdentifierHeartRate" value="61" startDate="2026-01-01"/>
"""
TEST = (
    '<Audiogram type="HKDataTypeIdentifierAudiogram" sourceName="Ann’s AirPods" '
    'startDate="2025-12-01 09:30:00 +0100" endDate="2025-12-01 09:36:00 +0100">'
    '<MetadataEntry key="HKExternalUUID" value="x"/>'
)
POINTS = (
    '<SensitivityPoint frequencyValue="1000" frequencyUnit="Hz" leftEarValue="10" '
    'leftEarUnit="dBHL" rightEarValue="15.5" rightEarUnit="dBHL"/>'
    '<SensitivityPoint frequencyValue="8000" frequencyUnit="Hz" leftEarValue="85" '
    'leftEarUnit="dBHL" leftEarClampingRangeUpperBound="85"/>'
)


def export(tmp_path: Path, body: str, head: str = HEAD) -> Path:
    path = tmp_path / "export.xml"
    path.write_text(f"{head}{body}</HealthData>\n", encoding="utf-8")
    return path


def test_both_ears_of_a_test_are_references(tmp_path: Path) -> None:
    found = read_references(export(tmp_path, f"{TEST}{POINTS}</Audiogram>"), person="4711")
    right, left = found.accepted
    assert (right.ear, left.ear, left.code) == ("right", "left", "4711")
    assert left.measured_at == datetime(2025, 12, 1, 8, 30, tzinfo=UTC)
    assert (left.birth_date, left.sex) == (date(1980, 2, 3), "female")
    assert "Ann’s AirPods" in left.source
    heard = Audiogram.from_dict(left.audiogram)
    assert heard.thresholds_db_hl == {1000.0: 10.0}
    assert heard.no_response_db_hl == {8000.0: 85.0}
    assert Audiogram.from_dict(right.audiogram).thresholds_db_hl == {1000.0: 15.5}


@pytest.mark.parametrize(
    ("points", "words"),
    [
        (POINTS.replace('frequencyUnit="Hz"', 'frequencyUnit="kHz"'), "in Hz"),
        (POINTS.replace("dBHL", "dBSPL"), "in dBHL"),
        (POINTS.replace('"1000"', '"1"'), "not kHz"),
        (POINTS.replace('"10"', '"999"'), "not possible"),
        (POINTS.replace('"10"', '"loud"'), "not a number"),
        (POINTS + POINTS, "appears twice"),
    ],
)
def test_a_bad_audiogram_is_rejected_with_the_reason_and_the_next_is_read(
    points: str, words: str, tmp_path: Path
) -> None:
    later = TEST.replace("2025-12-01", "2025-12-02")
    body = f"{TEST}{points}</Audiogram>{later}{POINTS}</Audiogram>"
    found = read_references(export(tmp_path, body), person="4711")
    (rejected,) = found.rejected
    assert rejected.row == 1
    assert words in rejected.reason
    assert len(found.accepted) == 2


def test_an_audiogram_without_points_is_left_out(tmp_path: Path) -> None:
    found = read_references(export(tmp_path, f"{TEST}</Audiogram>"), person="4711")
    assert [one.row for one in found.left_out] == [1]


def test_a_time_without_a_zone_needs_one(tmp_path: Path) -> None:
    body = f"{TEST}{POINTS}</Audiogram>".replace(" +0100", "")
    found = read_references(export(tmp_path, body), person="4711")
    assert "no time zone" in found.rejected[0].reason
    with_zone = read_references(tmp_path / "export.xml", person="4711", timezone="Europe/Berlin")
    assert len(with_zone.accepted) == 2


def test_whose_it_is_has_to_be_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="say whose"):
        read_references(export(tmp_path, f"{TEST}{POINTS}</Audiogram>"))


def test_what_is_no_export_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no audiogram"):
        read_references(export(tmp_path, ""), person="1")
    broken = tmp_path / "broken.xml"
    broken.write_text(f"{HEAD}{TEST}", encoding="utf-8")
    with pytest.raises(ValueError, match="not whole XML"):
        read_references(broken, person="1")
    other = tmp_path / "other.xml"
    other.write_text("<svg/>", encoding="utf-8")
    with pytest.raises(ValueError, match="no export of Apple Health"):
        read_references(other, person="1")
    odd = '<?xml version="1.0" encoding="nowhere"?><HealthData>'
    with pytest.raises(ValueError, match="encoding"):
        read_references(export(tmp_path, "", odd), person="1")
    bomb = '<?xml version="1.0"?><!DOCTYPE HealthData [<!ENTITY a "aaaa">]><HealthData>&a;'
    with pytest.raises(ValueError, match="declares entities"):
        read_references(export(tmp_path, "", bomb), person="1")
