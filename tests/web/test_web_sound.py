"""The sound, judged by its samples: what the browser renders is measured here with numpy."""

import base64
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Browser, Error, Page, Playwright
from scipy.signal import hilbert

from support.browser import SOUND_WITHOUT_A_CLICK, launch, served
from support.fake_listener import RELATIVE, fake_app

TIMING = {"pulses": 3, "pulse_ms": 225, "pause_ms": 225, "ramp_ms": 35}
ONE_PULSE = {**TIMING, "pulses": 1}
RATES = (44100, 48000)
START_S = 0.1
# Made-up numbers of the right size: 0 dB HL in dB SPL, and dB SPL of a sine at full scale.
TABLE = [[500, 11.0, 112.0], [1000, 5.5, 110.0], [2000, 4.5, 111.5], [8000, 17.5, 104.0]]
CALIBRATED = {
    "kind": "calibrated",
    "unit": "dB HL",
    "channel": {"left": 0, "right": 1},
    "table": {"right": TABLE, "left": [[hz, r, s + 1] for hz, r, s in TABLE]},
    "zero_dbfs": None,
    "floor_dbfs": -120,
    "highest_dbfs": -1,
    "cap_db": 90,
    "cap_db_spl": 105,
}
RENDER = """async ({rate, sound, ear, presentation, timing, drive, silenceAt, seconds}) => {
  const { buildTone, silenceTone } = await import("/static/tone.js");
  const ctx = new OfflineAudioContext(2, Math.round(rate * seconds), rate);
  const tone = buildTone(ctx, { sound, ear, presentation, timing });
  tone.fade.gain.value = drive;
  tone.source.start(0.1);
  if (silenceAt !== null) {
    ctx.suspend(silenceAt).then(() => {
      silenceTone(ctx, tone, { fading: true });
      ctx.resume();
    });
  }
  const out = await ctx.startRendering();
  const text = (channel) => {
    const bytes = new Uint8Array(out.getChannelData(channel).buffer);
    let letters = "";
    for (const byte of bytes) letters += String.fromCharCode(byte);
    return btoa(letters);
  };
  return [text(0), text(1)];
}"""
CALL = """async ([name, ...given]) => {
  const tone = await import("/static/tone.js");
  return tone[name](...given);
}"""

Samples = NDArray[np.float64]


@pytest.fixture(scope="module")
def loud_browser(playwright: Playwright) -> Iterator[Browser]:
    opened = launch(playwright, SOUND_WITHOUT_A_CLICK)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def workshop(loud_browser: Browser) -> Iterator[Page]:
    """A page of the app in which the audio modules can be called."""
    with served(fake_app({})) as address:
        page = loud_browser.new_page()
        page.goto(f"{address}/static/tone.js")
        yield page
        page.close()


def expected_dbfs(frequency_hz: float, level: float, ear: str = "right") -> float:
    """dBFS = level + RETSPL - full scale, on straight lines in log frequency."""
    rows = np.array(CALIBRATED["table"][ear])  # type: ignore[index]
    at = np.interp(math.log2(frequency_hz), np.log2(rows[:, 0]), rows[:, 1] - rows[:, 2])
    return float(level + at)


def presentation(frequency_hz: float, level: float | None, ear: str = "right") -> dict[str, Any]:
    dbfs = None if level is None else expected_dbfs(frequency_hz, level, ear)
    return {"frequency_hz": frequency_hz, "level": level, "dbfs": dbfs}


def rendered(
    workshop: Page,
    given: dict[str, Any],
    *,
    rate: int = 48000,
    ear: str = "right",
    timing: dict[str, Any] | None = None,
    drive: float = 1.0,
    silence_at: float | None = None,
) -> dict[str, Samples]:
    """The samples of both ears."""
    timing = timing or TIMING
    arguments = {
        "rate": rate,
        "sound": CALIBRATED,
        "ear": ear,
        "presentation": given,
        "timing": timing,
        "drive": drive,
        "silenceAt": silence_at,
        "seconds": 0.3 + timing["pulses"] * (timing["pulse_ms"] + timing["pause_ms"]) / 1000,
    }
    left, right = (
        np.frombuffer(base64.b64decode(text), dtype="<f4").astype(float)
        for text in workshop.evaluate(RENDER, arguments)
    )
    return {"left": left, "right": right}


def pulse(samples: Samples, rate: int, number: int = 0) -> Samples:
    period = (TIMING["pulse_ms"] + TIMING["pause_ms"]) / 1000
    start = START_S + number * period
    return samples[round(start * rate) : round((start + TIMING["pulse_ms"] / 1000) * rate)]


def plateau(samples: Samples, rate: int, number: int = 0) -> Samples:
    ramp = round(TIMING["ramp_ms"] / 1000 * rate) + 1
    return pulse(samples, rate, number)[ramp:-ramp]


def frequency_of(samples: Samples, rate: int) -> float:
    """The peak of the spectrum, by a parabola through its three highest values."""
    size = 1 << 19
    spectrum = np.log(np.abs(np.fft.rfft(samples * np.hanning(len(samples)), size)) + 1e-300)
    top = int(np.argmax(spectrum))
    below, at, above = spectrum[top - 1 : top + 2]
    return float((top + 0.5 * (below - above) / (below - 2 * at + above)) * rate / size)


def level_of(samples: Samples, frequency_hz: float, rate: int) -> float:
    """dBFS of the sine of this frequency, by least squares."""
    t = 2 * np.pi * frequency_hz * np.arange(len(samples)) / rate
    found, *_ = np.linalg.lstsq(np.column_stack([np.cos(t), np.sin(t)]), samples, rcond=None)
    return float(20 * np.log10(np.hypot(*found)))


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("frequency_hz", [500, 1000, 1189.207, 3000, 6000, 8000])
def test_frequency_level_and_idle_ear(workshop: Page, rate: int, frequency_hz: float) -> None:
    for ear, idle in (("right", "left"), ("left", "right")):
        given = presentation(frequency_hz, 30, ear)
        ears = rendered(workshop, given, rate=rate, ear=ear)
        for number in range(TIMING["pulses"]):
            flat = plateau(ears[ear], rate, number)
            assert frequency_of(flat, rate) == pytest.approx(frequency_hz, rel=0.001)
            assert level_of(flat, frequency_hz, rate) == pytest.approx(given["dbfs"], abs=0.01)
        assert not ears[idle].any()


@pytest.mark.parametrize("rate", RATES)
def test_level_steps_over_the_whole_range(workshop: Page, rate: int) -> None:
    levels = range(-10, 91, 5)
    for frequency_hz in (500, 4000):
        measured = []
        for level in levels:
            given = presentation(frequency_hz, level)
            samples = rendered(workshop, given, rate=rate, timing=ONE_PULSE)["right"]
            measured.append(level_of(plateau(samples, rate), frequency_hz, rate))
            assert measured[-1] == pytest.approx(given["dbfs"], abs=0.1)
        assert np.diff(measured) == pytest.approx(5.0, abs=0.1)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("ramp_ms", [20, 35, 50])
def test_ramps_are_raised_cosines_and_pauses_silent(
    workshop: Page, rate: int, ramp_ms: int
) -> None:
    timing = {**TIMING, "ramp_ms": ramp_ms, "pulse_ms": 260}
    given = presentation(4000, 60)
    samples = rendered(workshop, given, rate=rate, timing=timing)["right"]
    peak = 10 ** (given["dbfs"] / 20)
    t = np.arange(len(samples)) / rate - START_S
    within = np.mod(t, 0.485)
    sounds = (t >= 0) & (t < 3 * 0.485 - 0.225) & (within < 0.260)
    edge = np.clip(np.minimum(within, 0.260 - within) / (ramp_ms / 1000), 0, 1)
    envelope = np.where(sounds, 0.5 * (1 - np.cos(np.pi * edge)), 0.0)
    measured = np.abs(hilbert(samples)) / peak
    assert np.abs(measured - envelope).max() < 0.01
    one = measured[(t >= 0) & (t < 0.13)]
    rise = (np.argmax(one > 0.9) - np.argmax(one > 0.1)) / rate * 1000
    ten_to_ninety = (np.arccos(-0.8) - np.arccos(0.8)) / np.pi * ramp_ms
    assert rise == pytest.approx(ten_to_ninety, abs=0.5)
    # The border samples lie on either side of a pulse's end, by rounding.
    pauses = (t < -1 / rate) | (within > 0.260 + 1 / rate) | (t > 3 * 0.485 - 0.225)
    assert not samples[pauses].any()


@pytest.mark.parametrize("rate", RATES)
def test_the_plateau_lasts_long_enough(workshop: Page, rate: int) -> None:
    given = presentation(4000, 60)
    first = pulse(rendered(workshop, given, rate=rate)["right"], rate)
    full = np.flatnonzero(np.abs(hilbert(first)) > 0.995 * 10 ** (given["dbfs"] / 20))
    assert (full[-1] - full[0]) / rate >= 0.150


@pytest.mark.parametrize("rate", RATES)
def test_silence_is_the_same_graph_with_exact_zeros(workshop: Page, rate: int) -> None:
    ears = rendered(workshop, presentation(2000, None), rate=rate)
    assert not ears["left"].any()
    assert not ears["right"].any()
    driven = rendered(workshop, presentation(2000, None), rate=rate, drive=4.0)
    assert not driven["right"].any()


@pytest.mark.parametrize("level", [0, 40, 85])
def test_nothing_passes_the_limiter(workshop: Page, level: float) -> None:
    given = presentation(1000, level)
    peak = np.float32(10 ** (given["dbfs"] / 20))
    right = rendered(workshop, given)["right"]
    assert np.abs(right).max() <= peak
    assert np.abs(right).max() > 0.999 * peak
    driven = rendered(workshop, given, drive=4.0)["right"]
    assert np.abs(driven).max() == peak  # it is clipped there, and no sample is above
    assert np.abs(driven).mean() > 1.2 * np.abs(right).mean()


def test_it_is_silent_at_once_wherever_it_is_stopped(workshop: Page) -> None:
    given = presentation(1000, 80)
    peak = 10 ** (given["dbfs"] / 20)
    for silence_at in (0.05, 0.1, 0.15, 0.225, 0.62):
        samples = rendered(workshop, given, silence_at=silence_at)["right"]
        whole = rendered(workshop, given)["right"]
        stopped = round(silence_at * 48000)
        assert whole[stopped + 2400 :].any()
        assert not samples[stopped + 2400 :].any()  # 50 ms
        assert np.array_equal(samples[: stopped - 128], whole[: stopped - 128])
        # No click either: no step from sample to sample that the tone itself does not make.
        assert np.abs(np.diff(samples)).max() < 1.05 * 2 * np.pi * 1000 / 48000 * peak


@pytest.mark.parametrize("frequency_hz", [500, 501, 750, 1000, 1499.9, 4000, 6727.171, 8000])
@pytest.mark.parametrize("ear", ["right", "left"])
def test_digital_level_by_the_calibration(workshop: Page, frequency_hz: float, ear: str) -> None:
    for level in (-10.0, 0.0, 42.5, 70.0):
        found = workshop.evaluate(CALL, ["dbfsOfLevel", CALIBRATED, ear, frequency_hz, level])
        assert found == pytest.approx(expected_dbfs(frequency_hz, level, ear), abs=1e-9)


def test_digital_level_without_calibration(workshop: Page) -> None:
    assert workshop.evaluate(CALL, ["dbfsOfLevel", RELATIVE, "left", 1234, 25]) == -65


@pytest.mark.parametrize(
    ("sound", "given", "message"),
    [
        (CALIBRATED, presentation(499, 30), "outside the calibration of the right ear"),
        (CALIBRATED, presentation(8001, 30), "outside the calibration"),
        ({**CALIBRATED, "table": None}, presentation(1000, 30), "no table for the right ear"),
        (CALIBRATED, presentation(1000, 95), "exceeds the limit of 90 dB HL"),
        ({**CALIBRATED, "cap_db": 200}, presentation(1000, 101), "the limit of 100 dB HL"),
        ({**CALIBRATED, "cap_db": None}, presentation(1000, 101), "the limit of 100 dB HL"),
        (CALIBRATED, presentation(8000, 88), "the limit of sound pressure of 105 dB SPL"),
        ({**CALIBRATED, "cap_db_spl": None}, presentation(8000, 88), "of 105 dB SPL"),
        ({**CALIBRATED, "cap_db_spl": 95}, presentation(1000, 90), "of 95 dB SPL"),
        ({**CALIBRATED, "highest_dbfs": -30}, presentation(1000, 80), "level of -30 dBFS"),
        ({**CALIBRATED, "floor_dbfs": -90}, presentation(1000, 0), "below the device's floor"),
        (CALIBRATED, {**presentation(1000, 30), "dbfs": -70}, "at the server: not played"),
        (CALIBRATED, {**presentation(1000, 30), "dbfs": None}, "at the server: not played"),
        (CALIBRATED, {"frequency_hz": 1000, "level": None, "dbfs": -60}, "Silence has no digital"),
        (CALIBRATED, {"frequency_hz": 1000, "level": "loud", "dbfs": 1}, "not played"),
        (RELATIVE, {"frequency_hz": 1000, "level": 71, "dbfs": -19}, "limit of 70 relative dB"),
        (
            {**RELATIVE, "zero_dbfs": -60, "highest_dbfs": 0},
            {"frequency_hz": 1000, "level": 50, "dbfs": -10},
            "highest digital level of -20 dBFS",
        ),
        (
            {**RELATIVE, "kind": "external"},
            {"frequency_hz": 1000, "level": 30, "dbfs": -60},
            "play it on its audiometer",
        ),
    ],
)
def test_what_is_not_allowed_is_refused(
    workshop: Page, sound: dict[str, Any], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(Error, match=message):
        workshop.evaluate(CALL, ["allowedPeak", sound, "right", given])


@pytest.mark.parametrize(
    ("sound", "frequency_hz", "loudest"),
    [
        (CALIBRATED, 1000, 90),  # the cap
        ({**CALIBRATED, "cap_db_spl": 95}, 1000, 95 - 5.5),
        (CALIBRATED, 8000, 104 - 17.5 - 1),  # the highest digital level
        (RELATIVE, 1000, 70),
    ],
)
def test_the_limits_themselves_are_allowed(
    workshop: Page, sound: dict[str, Any], frequency_hz: float, loudest: float
) -> None:
    found = workshop.evaluate(CALL, ["loudestLevel", sound, "right", frequency_hz])
    assert found == pytest.approx(loudest)
    dbfs = workshop.evaluate(CALL, ["dbfsOfLevel", sound, "right", frequency_hz, loudest])
    given = {"frequency_hz": frequency_hz, "level": loudest, "dbfs": dbfs}
    peak = workshop.evaluate(CALL, ["allowedPeak", sound, "right", given])
    assert peak == pytest.approx(10 ** (dbfs / 20))


@pytest.mark.parametrize(
    ("rate", "frequency_hz", "timing", "message"),
    [
        (16000, 8000, TIMING, "8000 Hz cannot be played at a sample rate of 16000 Hz"),
        (48000, 1000, {**TIMING, "ramp_ms": 5}, "Ramps must last 20 to 50 ms"),
        (48000, 1000, {**TIMING, "ramp_ms": 60}, "Ramps must last 20 to 50 ms"),
        (48000, 1000, {**TIMING, "pulse_ms": 60}, "fit twice into the pulse"),
        (48000, 1000, {**TIMING, "pulses": 0}, "one pulse or more"),
    ],
)
def test_tones_that_cannot_be_made_are_refused(
    workshop: Page, rate: int, frequency_hz: float, timing: dict[str, Any], message: str
) -> None:
    with pytest.raises(Error, match=message):
        workshop.evaluate(CALL, ["unitPulses", rate, frequency_hz, timing])


def test_a_live_tone_tapped_at_the_ears(workshop: Page) -> None:
    tap = """async ({sound, presentation, timing}) => {
      const { playOnce } = await import("/static/player.js");
      const ctx = new AudioContext();
      await ctx.resume();
      const play = { sound, ear: "left", timing };
      const sounding = playOnce(ctx, play, presentation, { onset: ctx.currentTime + 0.2 });
      const ears = new ChannelSplitterNode(ctx, { numberOfOutputs: 2 });
      const taps = [0, 1].map(() => new AnalyserNode(ctx, { fftSize: 16384 }));
      sounding.tone.ears.connect(ears);
      taps.forEach((tap, channel) => ears.connect(tap, channel));
      while (ctx.currentTime < sounding.onset + 1.0) await new Promise((go) => setTimeout(go, 20));
      const read = taps.map((tap) => {
        const samples = new Float32Array(tap.fftSize);
        tap.getFloatTimeDomainData(samples);
        return Array.from(samples);
      });
      const whole = await sounding.done;
      await ctx.close();
      return { rate: ctx.sampleRate, left: read[0], right: read[1], whole };
    }"""
    given = presentation(3000, 50, "left")
    timing = {**ONE_PULSE, "pulse_ms": 4000}
    live = workshop.evaluate(tap, {"sound": CALIBRATED, "presentation": given, "timing": timing})
    left, rate = np.array(live["left"]), live["rate"]
    assert frequency_of(left, rate) == pytest.approx(3000, rel=0.001)
    assert level_of(left, 3000, rate) == pytest.approx(given["dbfs"], abs=0.1)
    assert np.abs(left).max() <= np.float32(10 ** (given["dbfs"] / 20))
    assert not any(live["right"])
    assert live["whole"] is True
