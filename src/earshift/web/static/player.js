// @ts-check
/* Plays presentations and takes the answers. All times are seconds on the audio clock, because that
   is the clock of what is heard; the network is never needed to be silent. */

import { Refusal } from "./refusal.js";
import { buildTone, lengthOf, silenceTone } from "./tone.js";

/** @import { Tone } from "./tone.js" */

/**
 * @typedef {{ heard: boolean, reaction_ms: number | null }} Response
 * @typedef {{
 *   sounding: ReturnType<typeof playOnce>, opens: number, closes: number, open: boolean,
 *   clock: number | null, moved: number, timer: number, settled: (response: Response) => void,
 * }} Running a presentation whose answer is awaited, or was the last
 * @typedef {{
 *   answer: (given: GivenAnswer) => Promise<Play>,
 *   press: (pressed: Pressed) => unknown,
 *   stop: (stopped: Stopped) => Promise<Play>,
 * }} Server each call sends until it is acknowledged
 */

const LEAD_S = 0.05; // a start in the past would cut the first ramp
const DELIVERY_S = 0.05; // a press in time may be handed over a little later
const SAME_PRESS_S = 0.5; // bounces and double taps belong to the answer they follow
const CLOCK_STANDS_STILL_MS = 1000;

/**
 * Of what was written at `currentTime`, how much later it reaches the ear.
 * @param {AudioContext} ctx
 */
function latency(ctx) {
  return ctx.outputLatency || ctx.baseLatency || 0;
}

/**
 * The time on the audio clock of what the listener hears now.
 * @param {AudioContext} ctx
 */
function heardNow(ctx) {
  return ctx.currentTime - latency(ctx);
}

/**
 * Play one presentation from `onset`. `done` gives true when it was played to its end and false
 * when it was silenced. Used by itself where an examiner answers.
 * @param {AudioContext} ctx
 * @param {Pick<Play, "sound" | "ear" | "timing">} play
 * @param {Tone} presentation
 */
export function playOnce(ctx, play, presentation, { onset = ctx.currentTime + LEAD_S } = {}) {
  const { sound, timing } = play;
  const ear = presentation.ear ?? play.ear;
  const tone = buildTone(ctx, { sound, ear, presentation, timing });
  const start = Math.max(onset, ctx.currentTime);
  let silenced = false;
  /** @type {(whole: boolean) => void} */
  let finished;
  /** @type {Promise<boolean>} */
  const done = new Promise((resolve) => {
    finished = resolve;
  });
  function silence() {
    if (silenced) return;
    silenced = true;
    silenceTone(ctx, tone);
    finished(false);
  }
  tone.source.addEventListener("ended", () => finished(!silenced));
  tone.source.start(start);
  return { onset: start, ends: start + lengthOf(timing), done, silence, tone };
}

/**
 * Everything after which what was heard is no longer known. Gives a function that ends the watch.
 * @param {AudioContext} ctx
 * @param {(reason: StopReason) => void} onTrouble
 */
export function watchForTrouble(ctx, onTrouble) {
  /** @type {[EventTarget, string, () => unknown][]} */
  const watched = [
    [document, "visibilitychange", () => document.hidden && onTrouble("hidden")],
    [window, "pagehide", () => onTrouble("hidden")],
    [ctx, "statechange", () => ctx.state !== "running" && onTrouble("interrupted")],
  ];
  const devices = navigator.mediaDevices;
  if (devices) watched.push([devices, "devicechange", () => onTrouble("device")]);
  for (const [target, name, listener] of watched) target.addEventListener(name, listener);
  return () => {
    for (const [target, name, listener] of watched) target.removeEventListener(name, listener);
  };
}

/**
 * The sound of one page, watched from its first use on. `open` gives the context; it must be called
 * in a click, before anything is awaited: only there may sound be started.
 * @param {(reason: StopReason) => void} onTrouble
 */
export function pageSound(onTrouble) {
  /** @type {AudioContext | null} */
  let ctx = null;
  return {
    open() {
      if (!ctx) {
        ctx = new AudioContext({ latencyHint: "interactive" });
        watchForTrouble(ctx, onTrouble);
      }
      if (ctx.state !== "running") ctx.resume();
      return ctx;
    },
    close() {
      ctx?.close();
      ctx = null;
    },
  };
}

/**
 * Run presentations until the server has no more or something stops them.
 * @param {AudioContext} ctx
 * @param {Server} server
 * @param {{ onPlay: (play: Play) => void, onStop: (reason: StopReason) => void }} told `onPlay` is
 *   called for every new presentation, in the same way for tone and silence, and `onStop` once it is
 *   silent
 */
export function createPlayer(ctx, server, { onPlay, onStop }) {
  const state = {
    /** Of the presentation that is on, or was the last. */
    number: 0,
    /** The same, as long as its answer is not known. */
    unanswered: /** @type {number | null} */ (null),
    current: /** @type {Running | null} */ (null),
    stopped: /** @type {StopReason | null} */ (null),
    answeredUntil: -Infinity,
  };
  /** @type {(reason: StopReason) => void} */
  let stop = () => {};

  /**
   * @param {Running} trial
   * @param {Response} response
   */
  function settle(trial, response) {
    clearTimeout(trial.timer);
    trial.open = false;
    state.unanswered = null;
    trial.settled(response);
  }

  /**
   * The timer follows the audio clock: it is set again as long as that clock is behind.
   * @param {Running} trial
   */
  function closeWhenOver(trial) {
    const left = trial.closes + DELIVERY_S - heardNow(ctx);
    if (left <= 0) {
      settle(trial, { heard: false, reaction_ms: null });
      return;
    }
    const clock = ctx.currentTime;
    if (clock !== trial.clock) {
      Object.assign(trial, { clock, moved: performance.now() });
    } else if (performance.now() - trial.moved > CLOCK_STANDS_STILL_MS) {
      stop("interrupted");
      return;
    }
    const wait = Math.max(10, Math.min(left * 1000, CLOCK_STANDS_STILL_MS));
    trial.timer = setTimeout(closeWhenOver, wait, trial);
  }

  /**
   * @param {Play} play
   * @param {Presentation} presentation
   * @param {number} earliest
   * @returns {Promise<Response>}
   */
  function present(play, presentation, earliest) {
    const onset = Math.max(ctx.currentTime, earliest) + presentation.gap_ms / 1000;
    const sounding = playOnce(ctx, play, presentation, { onset });
    return new Promise((settled) => {
      state.current = {
        sounding,
        opens: sounding.onset + play.timing.window_opens_ms / 1000,
        closes: sounding.ends + play.timing.window_closes_ms / 1000,
        open: true,
        clock: null,
        moved: 0,
        timer: 0,
        settled,
      };
      closeWhenOver(state.current);
    });
  }

  /**
   * One press of the listener. The event's own time counts, not when it was handed over.
   * @param {Event} event
   */
  function press(event) {
    const { current } = state;
    if (state.stopped || !current) return;
    const at = heardNow(ctx) - Math.max(0, performance.now() - event.timeStamp) / 1000;
    const afterOnset = Math.round((at - current.sounding.onset) * 1000);
    if (current.open && at >= current.opens && at <= current.closes) {
      state.answeredUntil = Math.max(current.sounding.ends, at + SAME_PRESS_S);
      settle(current, { heard: true, reaction_ms: afterOnset });
    } else if (at > state.answeredUntil) {
      server.press({ trial: state.number, after_onset_ms: afterOnset });
    }
  }

  /**
   * Gives the last Play of the server, and the reason if the listener or the device stopped it.
   * @param {Play} first
   * @returns {Promise<{ play: Play, stopped: StopReason | null, error?: unknown }>}
   */
  async function run(first) {
    let play = first;
    let earliest = ctx.currentTime;
    /** @type {Promise<Play>} */
    const stoppedHere = new Promise((resolve) => {
      stop = (reason) => {
        if (state.stopped) return;
        state.stopped = reason;
        state.current?.sounding.silence();
        clearTimeout(state.current?.timer);
        onStop(reason);
        resolve(server.stop({ trial: state.unanswered, reason }));
      };
    });
    const unwatch = watchForTrouble(ctx, (reason) => stop(reason));
    try {
      while (play.state === "play" && !state.stopped) {
        if (!play.presentation) throw new Error("The server named no tone to play.");
        state.number = play.presentation.trial;
        state.unanswered = state.number;
        onPlay(play);
        const presented = present(play, play.presentation, earliest);
        const response = await Promise.race([presented, stoppedHere.then(() => null)]);
        if (state.stopped || response === null) break;
        const given = { trial: state.number, ...response };
        play = await Promise.race([server.answer(given), stoppedHere]);
        earliest = state.current?.sounding.ends ?? earliest;
      }
      return { play: state.stopped ? await stoppedHere : play, stopped: state.stopped };
    } catch (error) {
      if (!(error instanceof Refusal)) {
        // Not an answer of the server: the sound was refused or could not be made.
        stop("error");
        return { play: await stoppedHere, stopped: state.stopped, error };
      }
      if (!state.stopped) state.current?.sounding.silence();
      throw error;
    } finally {
      unwatch();
    }
  }

  /** @param {StopReason} reason */
  const stopNow = (reason) => stop(reason);
  return { run, press, stop: stopNow };
}
