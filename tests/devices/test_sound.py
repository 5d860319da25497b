"""From levels to digital ones, and what a device may play."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earshift.devices.sound import Sound, Timing, retspl_presets, sound_of_calibration

FULL_SCALE = {500: 105.0, 1000: 106.0, 4000: 110.0, 8000: 100.0}


def calibrated(**given: Any) -> Sound:
    values = {
        "retspl_db": retspl_presets()["hda200-60318-1"].db_spl,
        "full_scale_db_spl": {"right": FULL_SCALE, "left": {**FULL_SCALE, 1000: 104.0}},
        "floor_dbfs": -100.0,
    }
    return Sound("calibrated", "booth 1", **values | given)


def test_levels_follow_the_formula_at_the_calibrated_frequencies() -> None:
    sound = calibrated()
    # 40 dB HL at 1 kHz on HDA 200 is 45.5 dB SPL; full scale is 106 right and 104 left.
    assert sound.dbfs("right", 1000, 40) == pytest.approx(45.5 - 106)
    assert sound.dbfs("left", 1000, 40) == pytest.approx(45.5 - 104)
    assert sound.db_spl(8000, 0) == pytest.approx(17.5)
    assert sound.unit == "dB HL"


def test_between_the_frequencies_the_tables_are_lines_in_octaves() -> None:
    sound = calibrated()
    share = math.log2(2000 / 1000) / math.log2(4000 / 1000)
    assert sound.dbfs("right", 2000, 0) == pytest.approx(4.5 - (106 + share * (110 - 106)))


@pytest.mark.parametrize("frequency", [250, 499.9, 8000.1, 12000])
def test_nothing_is_played_beyond_the_calibrated_frequencies(frequency: float) -> None:
    with pytest.raises(ValueError, match="lies outside the"):
        calibrated().dbfs("right", frequency, 40)


def test_a_device_offers_nothing_that_clips_sinks_or_shouts() -> None:
    rows = {
        f: (low, high) for f, low, high in calibrated().playable("right", (500, 1000, 9000), 95)
    }
    assert set(rows) == {500, 1000}
    low, high = rows[1000]
    assert low == pytest.approx(-100 + 106 - 5.5)  # the floor
    assert high == pytest.approx(95 - 5.5)  # the cap in dB SPL comes before clipping at 99.5
    quiet = calibrated(
        full_scale_db_spl={ear: {500: 80.0, 8000: 80.0} for ear in ("right", "left")}
    )
    ((_, _, loudest),) = quiet.playable("left", (1000,), 105)
    assert loudest == pytest.approx(80 - 1 - 5.5)  # clipping comes first
    with pytest.raises(ValueError, match="none of the frequencies"):
        calibrated().playable("right", (250,), 95)


def test_relative_levels_are_digital_ones_and_never_hearing_levels() -> None:
    sound = Sound("relative", "phone")
    assert sound.dbfs("left", 3000, 30) == -60
    assert sound.unit == "relative dB"
    assert sound.playable("left", (500, 8000), 95) == ((500, 0, 70), (8000, 0, 70))
    assert sound.highest_dbfs == -20


@given(st.floats(-10, 90), st.sampled_from([500.0, 750.0, 1000.0, 1500.0, 3000.0, 6000.0, 8000.0]))
def test_every_playable_level_stays_within_all_caps(level: float, frequency: float) -> None:
    sound = calibrated()
    ((_, low, high),) = sound.playable("left", (frequency,), 95)
    if low <= level <= high:
        assert sound.floor_dbfs - 1e-9 <= sound.dbfs("left", frequency, level) <= -1 + 1e-9
        assert sound.db_spl(frequency, level) <= 95 + 1e-9


def test_a_sound_survives_the_store() -> None:
    for sound in (calibrated(fingerprint={"browser": "x"}), Sound("relative", "phone")):
        assert Sound.from_dict(json.loads(json.dumps(sound.to_dict()))) == sound


def test_the_browser_gets_both_tables_where_both_are_known() -> None:
    rows = calibrated().table("left")
    assert rows[0][0] == 500
    assert rows[-1] == (8000, 17.5, 100.0)
    assert (1000, 5.5, 104.0) in rows
    assert Sound("relative").table("left") == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"full_scale_db_spl": {"right": FULL_SCALE}}, "right and the left"),
        ({"full_scale_db_spl": {"right": {1000: 100}, "left": {1000: 100}}}, "two frequencies"),
        ({"full_scale_db_spl": {e: {500: 10, 8000: 100} for e in ("right", "left")}}, "60 to 160"),
        ({"retspl_db": {500: 200, 8000: 1}}, "-20 to 90"),
        ({"retspl_db": {500: "x", 8000: 1}}, "all of them numbers"),
        ({"retspl_db": {5: 1, 8000: 1}}, "20 to 20000 Hz"),
        ({"retspl_db": [1, 2]}, "must map"),
        ({"floor_dbfs": 0}, "floor_dbfs"),
        ({"floor_dbfs": math.nan}, "floor_dbfs"),
    ],
)
def test_tables_that_cannot_be_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrated(**wrong)


def test_presets_name_their_coupler_and_source_and_are_verified() -> None:
    presets = retspl_presets()
    assert len(presets) == 8
    for preset in presets.values():
        assert preset.status in ("V1", "V2")
        assert preset.source
        assert preset.coupler
        assert max(preset.db_spl) <= 8000
    # Where couplers are mixed up: the same insert earphone in two of them.
    inside, occluded = presets["er3a-ha2"].db_spl, presets["er3a-711"].db_spl
    assert [occluded[f] - inside[f] for f in (250.0, 1000.0, 8000.0)] == [3.5, 5.5, 15.5]
    assert presets["tdh39-6cc"].db_spl[250.0] == 25.5


def test_a_calibration_without_a_table_is_no_sound() -> None:
    assert sound_of_calibration({"1000": 7.0}, "audiometer", {}) is None
    table = {
        "retspl_db": {"500": 11, "8000": 17.5},
        "full_scale_db_spl": {ear: {"500": 100, "8000": 100} for ear in ("right", "left")},
    }
    sound = sound_of_calibration(table, "booth", {"browser": "x"})
    assert sound is not None
    assert sound.dbfs("right", 500, 0) == -89


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ramp_ms": 10}, "ramp_ms"),
        ({"ramp_ms": 60}, "ramp_ms"),
        ({"pulse_ms": 50}, "both its ramps"),
        ({"gap_max_ms": 10}, "gap_max_ms"),
        ({"pulses": 0}, "pulses"),
        ({"gap_min_ms": -1}, "gap_min_ms"),
        ({"pulse_ms": math.inf}, "pulse_ms"),
    ],
)
def test_timings_that_cannot_be_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Timing(**wrong)  # type: ignore[arg-type]


def test_the_usual_timing_is_what_the_standard_describes() -> None:
    timing = Timing()
    assert timing.unusual is None
    assert timing.pulse_ms - 2 * timing.ramp_ms >= 150
    assert 185 <= timing.pause_ms <= 265
    assert "shorter" in (Timing(pulse_ms=100).unusual or "")
    assert "faster" in (Timing(gap_min_ms=0).unusual or "")
