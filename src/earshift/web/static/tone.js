// @ts-check
/* The sound of one presentation, built in one way for a live and for an offline context:

     pulses of amplitude 1 -> fade -> limiter -> one ear's channel -> destination

   The limiter is a wave shaper with the curve [-p, 0, p]. It scales the unit tone to its peak p and
   cannot give more than p, whatever comes in. Silence is the same graph with p = 0. Levels are
   checked here once more, against limits of this file that no answer of the server can raise. */

import { EARS } from "./ears.js";

/**
 * Without an ear it is that of the test; level null: silence.
 * @typedef {Pick<Presentation, "frequency_hz" | "level" | "dbfs"> & { ear?: string }} Tone
 */
/** @typedef {{ highest_dbfs: number, cap_db: number, cap_db_spl: number | null }} LevelLimits */

/** @type {Record<string, LevelLimits>} by the kind of the sound */
const HARD_LIMITS = {
  calibrated: { highest_dbfs: -1, cap_db: 100, cap_db_spl: 105 },
  relative: { highest_dbfs: -20, cap_db: 70, cap_db_spl: null },
};
const SAME_DBFS = 0.05; // the server computed the level as well: more than this apart is a fault
const ROUNDING_DB = 1e-6;
const FREQUENCY_OF_SILENCE_HZ = 1000; // any tone will do: it is multiplied by zero
const HIGHEST_FRACTION_OF_RATE = 0.45; // above it the converter's own filter changes the level
const RAMP_MS = [20, 50]; // IEC 60645-1: shorter clicks, longer is no longer a pulse
const FADE_S = 0.01; // short enough to be silent at once, long enough not to click

// Levels -----------------------------------------------------------------------------------------

/**
 * RETSPL and the sound pressure of full scale at a frequency, on straight lines in log frequency.
 * @param {Sound} sound
 * @param {string} ear
 * @param {number} frequencyHz
 */
function calibrationAt(sound, ear, frequencyHz) {
  const rows = sound.table?.[ear];
  if (!Array.isArray(rows) || rows.length === 0) {
    throw new Error(`The calibration has no table for the ${ear} ear: no tone can be played there.`);
  }
  const above = rows.findIndex(([hz]) => hz >= frequencyHz);
  if (above < 0 || (above === 0 && rows[0][0] > frequencyHz)) {
    throw new Error(
      `${frequencyHz} Hz lies outside the calibration of the ${ear} ear ` +
        `(${rows[0][0]} to ${rows[rows.length - 1][0]} Hz): calibrate it or leave it out.`,
    );
  }
  const [highHz, highRetspl, highFull] = rows[above];
  if (highHz === frequencyHz) return { retspl: highRetspl, fullScale: highFull };
  const [lowHz, lowRetspl, lowFull] = rows[above - 1];
  const fraction = Math.log(frequencyHz / lowHz) / Math.log(highHz / lowHz);
  return {
    retspl: lowRetspl + fraction * (highRetspl - lowRetspl),
    fullScale: lowFull + fraction * (highFull - lowFull),
  };
}

/**
 * What has to be added to a level to get dBFS (peak of a sine at full scale = 0) and dB SPL.
 * @param {Sound} sound
 * @param {string} ear
 * @param {number} frequencyHz
 * @returns {{ dbfs: number, dbSpl: number | null }}
 */
function offsets(sound, ear, frequencyHz) {
  if (sound.kind === "calibrated") {
    const { retspl, fullScale } = calibrationAt(sound, ear, frequencyHz);
    return { dbfs: retspl - fullScale, dbSpl: retspl };
  }
  if (sound.kind === "relative") return { dbfs: sound.zero_dbfs ?? NaN, dbSpl: null };
  throw new Error(
    `Sound of the kind "${sound.kind}" does not come from this browser: play it on its audiometer.`,
  );
}

/**
 * @param {Sound} sound
 * @param {string} ear
 * @param {number} frequencyHz
 * @param {number} level
 */
export function dbfsOfLevel(sound, ear, frequencyHz, level) {
  return level + offsets(sound, ear, frequencyHz).dbfs;
}

/**
 * @param {number | null | undefined} one
 * @param {number} other
 */
function lower(one, other) {
  return one === null || one === undefined ? other : Math.min(one, other);
}

/**
 * @param {Sound} sound
 * @returns {LevelLimits}
 */
function limitsOf(sound) {
  const hard = HARD_LIMITS[sound.kind];
  return {
    highest_dbfs: lower(sound.highest_dbfs, hard.highest_dbfs),
    cap_db: lower(sound.cap_db, hard.cap_db),
    cap_db_spl: hard.cap_db_spl === null ? null : lower(sound.cap_db_spl, hard.cap_db_spl),
  };
}

/**
 * The loudest level that every limit allows here.
 * @param {Sound} sound
 * @param {string} ear
 * @param {number} frequencyHz
 */
export function loudestLevel(sound, ear, frequencyHz) {
  const add = offsets(sound, ear, frequencyHz);
  const limits = limitsOf(sound);
  const bySpl =
    limits.cap_db_spl === null || add.dbSpl === null ? Infinity : limits.cap_db_spl - add.dbSpl;
  return Math.min(limits.cap_db, limits.highest_dbfs - add.dbfs, bySpl);
}

/**
 * @param {number} value
 * @param {number} limit
 * @param {string} unit
 * @param {string} what
 */
function refuseAbove(value, limit, unit, what) {
  // Written so that NaN is refused too.
  if (!(value <= limit + ROUNDING_DB)) {
    throw new Error(`A tone of ${value} ${unit} exceeds ${what} of ${limit} ${unit}: not played.`);
  }
}

/**
 * The peak amplitude of a presentation (0 for silence), or an error that says why it is refused.
 * @param {Sound} sound
 * @param {string} ear
 * @param {Tone} presentation
 */
export function allowedPeak(sound, ear, presentation) {
  if (!EARS.some((each) => each === ear)) throw new Error(`The ear must be left or right, not "${ear}".`);
  const { frequency_hz: frequencyHz, level, dbfs: served } = presentation;
  if (level === null) {
    if (served !== null && served !== undefined) {
      throw new Error(`Silence has no digital level, but the server gave ${served} dBFS.`);
    }
    return 0;
  }
  const add = offsets(sound, ear, frequencyHz);
  const limits = limitsOf(sound);
  const dbfs = level + add.dbfs;
  if (!(Math.abs(dbfs - (served ?? NaN)) <= SAME_DBFS)) {
    throw new Error(
      `The tone's digital level is ${dbfs} dBFS here and ${served} dBFS at the server: not played.`,
    );
  }
  const unit = sound.kind === "calibrated" ? "dB HL" : "relative dB";
  refuseAbove(level, limits.cap_db, unit, "the limit");
  if (limits.cap_db_spl !== null && add.dbSpl !== null) {
    refuseAbove(level + add.dbSpl, limits.cap_db_spl, "dB SPL", "the limit of sound pressure");
  }
  refuseAbove(dbfs, limits.highest_dbfs, "dBFS", "the highest digital level");
  if (!(dbfs >= sound.floor_dbfs - ROUNDING_DB)) {
    throw new Error(
      `A tone of ${dbfs} dBFS is below the device's floor of ${sound.floor_dbfs} dBFS: not played.`,
    );
  }
  return 10 ** (dbfs / 20);
}

// Samples ----------------------------------------------------------------------------------------

/** @param {Timing} timing */
function checkTiming(timing) {
  const { pulses, pulse_ms: pulseMs, pause_ms: pauseMs, ramp_ms: rampMs } = timing;
  if (!(Number.isInteger(pulses) && pulses >= 1 && pauseMs >= 0)) {
    throw new Error(`A tone needs one pulse or more, got ${pulses} with pauses of ${pauseMs} ms.`);
  }
  if (!(rampMs >= RAMP_MS[0] && rampMs <= RAMP_MS[1] && 2 * rampMs <= pulseMs)) {
    throw new Error(
      `Ramps must last ${RAMP_MS[0]} to ${RAMP_MS[1]} ms and fit twice into the pulse, ` +
        `got ${rampMs} ms in a pulse of ${pulseMs} ms.`,
    );
  }
}

/**
 * Seconds from the onset of the first pulse to the end of the last.
 * @param {Timing} timing
 */
export function lengthOf(timing) {
  return (timing.pulses * timing.pulse_ms + (timing.pulses - 1) * timing.pause_ms) / 1000;
}

/**
 * Pulsed sine of amplitude 1; each pulse starts at phase 0 and includes its two ramps.
 * @param {number} sampleRate
 * @param {number} frequencyHz
 * @param {Timing} timing
 */
export function unitPulses(sampleRate, frequencyHz, timing) {
  checkTiming(timing);
  if (!(frequencyHz > 0 && frequencyHz <= HIGHEST_FRACTION_OF_RATE * sampleRate)) {
    throw new Error(
      `${frequencyHz} Hz cannot be played at a sample rate of ${sampleRate} Hz. ` +
        "Wireless headphones in telephone mode have so low a rate: use wired ones.",
    );
  }
  const pulse = timing.pulse_ms / 1000;
  const ramp = timing.ramp_ms / 1000;
  const period = pulse + timing.pause_ms / 1000;
  const samples = new Float32Array(Math.ceil(lengthOf(timing) * sampleRate));
  for (let n = 0; n < samples.length; n += 1) {
    const t = (n / sampleRate) % period;
    if (t >= pulse) continue;
    const edge = Math.min(t, pulse - t, ramp) / ramp;
    samples[n] = 0.5 * (1 - Math.cos(Math.PI * edge)) * Math.sin(2 * Math.PI * frequencyHz * t);
  }
  return samples;
}

// The graph --------------------------------------------------------------------------------------

/** @typedef {ReturnType<typeof buildTone>} Graph */

/**
 * The same graph for tone and silence, live and offline. `source` is not started yet.
 * @param {BaseAudioContext} ctx
 * @param {{ sound: Sound, ear: string, presentation: Tone, timing: Timing }} what
 */
export function buildTone(ctx, { sound, ear, presentation, timing }) {
  const peak = allowedPeak(sound, ear, presentation);
  if (ctx.destination.channelCount < EARS.length) {
    throw new Error("This sound device has one channel only: left and right cannot be told apart.");
  }
  const frequencyHz = presentation.frequency_hz ?? FREQUENCY_OF_SILENCE_HZ;
  const samples = unitPulses(ctx.sampleRate, frequencyHz, timing);
  const buffer = new AudioBuffer({ length: samples.length, sampleRate: ctx.sampleRate });
  buffer.copyToChannel(samples, 0);
  const source = new AudioBufferSourceNode(ctx, { buffer });
  const fade = new GainNode(ctx, { gain: 1 });
  const limiter = new WaveShaperNode(ctx, { curve: [-peak, 0, peak], oversample: "none" });
  const ears = new ChannelMergerNode(ctx, { numberOfInputs: EARS.length });
  source.connect(fade).connect(limiter).connect(ears, 0, sound.channel[ear]);
  ears.connect(ctx.destination);
  source.addEventListener("ended", () => ears.disconnect());
  return { source, fade, limiter, ears, peak };
}

/**
 * Silent within FADE_S on the audio clock. A context that stands still is cut off without a fade:
 * the fade would be heard when it goes on.
 * @param {BaseAudioContext} ctx
 * @param {Graph} tone
 */
export function silenceTone(ctx, tone, { fading = ctx.state === "running" } = {}) {
  if (!fading) {
    tone.ears.disconnect();
    return;
  }
  const now = ctx.currentTime;
  tone.fade.gain.setValueAtTime(1, now);
  tone.fade.gain.linearRampToValueAtTime(0, now + FADE_S);
  tone.source.stop(now + FADE_S);
}
