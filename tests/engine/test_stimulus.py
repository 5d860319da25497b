"""Tones, domains, limits and audiograms: conversions, and what is refused."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import earshift as es
from earshift.engine.cross_hearing import INTERAURAL_DB
from earshift.engine.domain import AUDIOMETER_HZ, DOMAINS, FINE_HZ, LEVELS_DB_HL, as_domain
from earshift.engine.limits import allowed
from earshift.engine.values import TRANSDUCERS

BAD_NUMBERS = [
    float("nan"), float("inf"), -float("inf"), "1000", None, True, [1000.0], 1j, object(),
]  # fmt: skip


@pytest.mark.parametrize("value", BAD_NUMBERS)
def test_a_tone_needs_numbers(value: object) -> None:
    with pytest.raises(ValueError, match="frequency_hz"):
        es.Tone(value, 40.0)
    with pytest.raises(ValueError, match="level_db_hl"):
        es.Tone(1000.0, value)


def test_a_number_too_large_for_a_float_is_refused_like_infinity() -> None:
    with pytest.raises(ValueError, match="frequency_hz"):
        es.Tone(10**400, 40.0)


@pytest.mark.parametrize("frequency", [0.0, -1000.0])
def test_a_frequency_must_be_positive(frequency: float) -> None:
    with pytest.raises(ValueError, match="from 100 to 20000 Hz"):
        es.Tone(frequency, 40.0)


@pytest.mark.parametrize("ear", ["both", "", 1, True])
def test_an_ear_is_left_right_or_not_given(ear: object) -> None:
    with pytest.raises(ValueError, match="ear"):
        es.Tone(1000.0, 40.0, ear)


def test_numpy_numbers_make_plain_tones() -> None:
    tone = es.Tone(np.float32(1000), np.int64(40))
    assert tone == es.Tone(1000.0, 40.0)
    assert json.loads(json.dumps(tone.to_dict())) == {"frequency_hz": 1000.0, "level_db_hl": 40.0}
    assert str(es.Tone(1000, 40, "left")) == "1000 Hz at 40 dB HL left"


def test_model_units_are_octaves_re_1_khz_and_tens_of_db_re_50() -> None:
    domain = DOMAINS["fine"]
    tone = es.Tone(4000.0, 20.0)
    assert domain.place_of(tone) == (2.0,)
    assert domain.intensity_of(tone) == -3.0
    assert domain.intensity.from_model(-3.0) == 20.0
    assert domain.smooth[0].from_model(2.0) == 4000.0


@given(value=st.floats(200.0, 16000.0), level=st.floats(-20.0, 120.0))
def test_conversion_and_back_changes_nothing(value: float, level: float) -> None:
    domain = DOMAINS["fine"]
    axis, intensity = domain.smooth[0], domain.intensity
    assert axis.from_model(axis.to_model(value)) == pytest.approx(value, rel=1e-12)
    assert intensity.from_model(intensity.to_model(level)) == pytest.approx(level, abs=1e-9)


def test_the_presets_are_those_of_the_method() -> None:
    assert AUDIOMETER_HZ == (500, 750, 1000, 1500, 2000, 3000, 4000, 6000, 8000)
    assert {500.0, 1000.0, 3000.0, 6000.0, 8000.0} <= set(FINE_HZ)
    assert len(FINE_HZ) == 19
    assert tuple(range(-10, 101, 5)) == LEVELS_DB_HL
    assert DOMAINS["fine"].shape == (19, 23)
    assert as_domain("audiometer").tone(2, 0) == es.Tone(1000.0, -10.0)


@pytest.mark.parametrize("given", ["coarse", None, 3, ["fine"]])
def test_an_unknown_domain_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match="domain"):
        as_domain(given)


def test_a_domain_checks_tones_but_not_lists() -> None:
    domain = DOMAINS["fine"]
    off_list = es.Tone(1234.0, 33.0)
    assert domain.check(off_list) is off_list
    for tone in (es.Tone(499.0, 40.0), es.Tone(8001.0, 40.0), es.Tone(1000.0, -11.0),
                 es.Tone(1000.0, 100.5)):  # fmt: skip
        with pytest.raises(ValueError, match="outside the domain"):
            domain.check(tone)
    for other in ("1000 Hz", None, (1000.0, 40.0), 1000.0):
        with pytest.raises(ValueError, match="Tone"):
            domain.check(other)


def test_a_domain_survives_the_trip_through_json() -> None:
    own = es.Domain.tones([1000, 250, 2000], [0, 1, 2])
    assert own.smooth[0].values == (250.0, 1000.0, 2000.0)
    assert es.Domain.from_dict(json.loads(json.dumps(own.to_dict()))) == own


def test_a_domain_may_have_two_smooth_axes() -> None:
    level = DOMAINS["fine"].intensity
    frequency = DOMAINS["audiometer"].smooth[0]
    duration = es.Axis("duration_ms", "ms", (50.0, 200.0), 100.0, 1.0, logarithmic=True)
    domain = es.Domain(level, (frequency, duration))
    assert domain.shape == (18, 23)
    np.testing.assert_allclose(domain.places[:2], [[-1.0, -1.0], [-1.0, 1.0]])


@pytest.mark.parametrize(
    "options",
    [
        {"values": ()},
        {"values": (1.0, float("nan"))},
        {"values": ("a",)},
        {"values": (0.0, 1.0), "logarithmic": True},
        {"origin": -1.0, "logarithmic": True},
        {"origin": float("inf")},
        {"scale": 0.0},
        {"scale": -1.0},
        {"scale": "ten"},
    ],
)
def test_a_bad_axis_is_refused(options: dict) -> None:
    good = {"name": "x", "unit": "u", "values": (1.0, 2.0), "origin": 1.0, "scale": 1.0}
    es.Axis(**good)
    with pytest.raises(ValueError, match="axis x"):
        es.Axis(**{**good, **options})


def test_a_domain_needs_different_axes() -> None:
    level = DOMAINS["fine"].intensity
    with pytest.raises(ValueError, match="names"):
        es.Domain(level, (level,))


def test_limits_rise_step_by_step_near_what_was_answered() -> None:
    domain = DOMAINS["audiometer"]
    limits = es.Limits(
        cap_db_hl=80, start_db_hl=40, above_heard_db=10, above_missed_db=20, near_octaves=0.5
    )

    def ceiling(*trials: es.Trial) -> dict[float, float]:
        mask = limits.allowed(domain, trials)
        return {
            f: max(np.array(LEVELS_DB_HL)[row]) for f, row in zip(AUDIOMETER_HZ, mask, strict=True)
        }

    assert set(ceiling().values()) == {40.0}
    missed = es.Trial(es.Tone(1000.0, 40.0), False)
    heard = es.Trial(es.Tone(1000.0, 40.0), True)
    loud = es.Trial(es.Tone(1000.0, 75.0), False)
    after = ceiling(missed)
    assert after[1000.0] == 60.0
    assert after[750.0] == 60.0  # 0.415 octaves away
    assert after[1500.0] == 40.0  # 0.585 octaves away
    assert ceiling(heard)[1000.0] == 50.0
    assert ceiling(missed, heard)[1000.0] == 60.0
    assert ceiling(loud)[1000.0] == 80.0


def test_limits_that_leave_nothing_are_refused() -> None:
    domain = DOMAINS["fine"]
    with pytest.raises(ValueError, match="leave no tone"):
        allowed(es.Limits(start_db_hl=-15.0), domain, ())
    with pytest.raises(ValueError, match="leave no tone"):
        allowed(es.Limits(cap_db_hl=-20.0), domain, ())
    assert allowed(None, domain, ()).all()


@pytest.mark.parametrize(
    "options",
    [
        {"cap_db_hl": 121.0},
        {"cap_db_hl": float("nan")},
        {"start_db_hl": "loud"},
        {"above_heard_db": -1.0},
        {"above_missed_db": -5.0},
        {"near_octaves": -0.5},
        {"near_octaves": float("inf")},
        {"above_heard_db": None},
    ],
)
def test_bad_limits_are_refused(options: dict) -> None:
    with pytest.raises(ValueError, match=r"limits|cap_db_hl|must be"):
        es.Limits(**options)


def test_an_audiogram_survives_the_trip_through_json() -> None:
    given = es.Audiogram(
        {1000: 20, 500: 15.5}, sd_db=4.0, method_offset_db=2.5, no_response_db_hl={8000: 90}
    )
    assert list(given.thresholds_db_hl) == [500.0, 1000.0]
    assert es.Audiogram.from_dict(json.loads(json.dumps(given.to_dict()))) == given


@pytest.mark.parametrize(
    "options",
    [
        {"thresholds_db_hl": {}},
        {"thresholds_db_hl": [(1000.0, 20.0)]},
        {"thresholds_db_hl": None},
        {"thresholds_db_hl": {1000.0: float("nan")}},
        {"thresholds_db_hl": {1000.0: None}},
        {"thresholds_db_hl": {-5.0: 20.0}},
        {"thresholds_db_hl": {"1 kHz": 20.0}},
        {"no_response_db_hl": {1000.0: 90.0}},
        {"no_response_db_hl": {2000.0: float("inf")}},
        {"sd_db": 0.0},
        {"sd_db": -1.0},
        {"sd_db": float("nan")},
        {"sd_db": "5"},
        {"method_offset_db": float("nan")},
        {"method_offset_db": None},
    ],
)
def test_a_bad_audiogram_is_refused(options: dict) -> None:
    with pytest.raises(
        ValueError, match=r"audiogram|_db|frequency_hz|Hz have both a threshold and no response"
    ):
        es.Audiogram(**{"thresholds_db_hl": {1000.0: 20.0}, **options})


@pytest.mark.parametrize(
    ("options", "name"),
    [({"sd_db": np.int64(5)}, "sd_db"), ({"method_offset_db": np.float32(2.5)}, "offset")],
)
def test_an_audiogram_with_numpy_numbers_goes_to_json(options: dict, name: str) -> None:
    given = es.Audiogram({np.float32(1000): np.int64(20)}, **options)
    assert name in json.dumps(given.to_dict())


def test_octaves_are_exact_at_the_rules_frequencies() -> None:
    axis = DOMAINS["fine"].smooth[0]
    assert axis.to_model(3000.0) == math.log2(3.0)
    assert 3000.0 in axis.values


def test_every_transducer_of_a_device_has_its_interaural_attenuation() -> None:
    assert set(INTERAURAL_DB) == set(TRANSDUCERS)


@pytest.mark.parametrize("name", ["", "two words", "heard", "values", "ear", None, 7])
def test_an_axis_without_a_usable_name_is_refused(name: object) -> None:
    with pytest.raises(ValueError, match=r"name|called"):
        es.Axis(name, "dB", (0.0, 1.0), 0.0, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", ["12", 5.0, None, (), (1.0, float("nan")), (1.0, "2")])
def test_an_axis_without_usable_values_is_refused(values: object) -> None:
    with pytest.raises(ValueError, match=r"contrast_db.*|at least one"):
        es.Axis("contrast_db", "dB", values, 0.0, 1.0)  # type: ignore[arg-type]


def test_a_domain_that_can_ask_nothing_is_refused() -> None:
    contrast = es.Axis("contrast_db", "dB", (-20.0, 0.0), 0.0, 10.0)
    place = es.Axis("cycles_per_degree", "c/deg", (1.0, 2.0), 1.0, 1.0, logarithmic=True)
    with pytest.raises(ValueError, match="different names"):
        es.Domain(contrast, (contrast,))
    with pytest.raises(ValueError, match=r"earshift\.Axis"):
        es.Domain(contrast, ("cycles_per_degree",))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"earshift\.Axis"):
        es.Domain(None, (place,))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="two values or more"):
        es.Domain(es.Axis("contrast_db", "dB", (0.0,), 0.0, 10.0), (place,))
    assert es.Domain(contrast, [place]).names == ("contrast_db", "cycles_per_degree")  # type: ignore[arg-type]
