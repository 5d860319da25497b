// Plays presentations and takes the answers. All times are seconds on the audio clock, because that
// is the clock of what is heard; the network is never needed to be silent.

import { buildTone, lengthOf, silenceTone } from "./tone.js";

const LEAD_S = 0.05; // a start in the past would cut the first ramp
const DELIVERY_S = 0.05; // a press in time may be handed over a little later
const SAME_PRESS_S = 0.5; // bounces and double taps belong to the answer they follow
const CLOCK_STANDS_STILL_MS = 1000;

// Of what was written at `currentTime`, how much later it reaches the ear.
function latency(ctx) {
  return ctx.outputLatency || ctx.baseLatency || 0;
}

// The time on the audio clock of what the listener hears now.
function heardNow(ctx) {
  return ctx.currentTime - latency(ctx);
}

// Play one presentation from `onset`. `done` gives true when it was played to its end and false
// when it was silenced. Used by itself where an examiner answers.
export function playOnce(ctx, play, presentation, { onset = ctx.currentTime + LEAD_S } = {}) {
  const { sound, ear, timing } = play;
  const tone = buildTone(ctx, { sound, ear, presentation, timing });
  const start = Math.max(onset, ctx.currentTime);
  let silenced = false;
  const done = new Promise((resolve) => {
    tone.source.addEventListener("ended", () => resolve(!silenced));
    tone.silence = () => {
      if (silenced) return;
      silenced = true;
      silenceTone(ctx, tone);
      resolve(false);
    };
  });
  tone.source.start(start);
  return { onset: start, ends: start + lengthOf(timing), done, silence: tone.silence, tone };
}

// Everything after which what was heard is no longer known. Gives a function that ends the watch.
export function watchForTrouble(ctx, onTrouble) {
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

// The sound of one page, watched from its first use on. `open` gives the context; it must be called
// in a click, before anything is awaited: only there may sound be started.
export function pageSound(onTrouble) {
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

// Run presentations until the server has no more or something stops them. `server` has `answer`,
// `press` and `stop`, each of which sends until it is acknowledged. `onPlay` is told of every new
// presentation, in the same way for tone and silence, and `onStop` of the reason once it is silent.
export function createPlayer(ctx, server, { onPlay, onStop }) {
  let number = null; // of the presentation that is on, or was the last
  let unanswered = null; // the same, as long as its answer is not known
  let current = null;
  let stopped = null; // the reason, once stopped
  let answeredUntil = -Infinity;
  let stop = () => {};

  function settle(trial, answer) {
    clearTimeout(trial.timer);
    trial.open = false;
    unanswered = null;
    trial.settled(answer);
  }

  // The timer follows the audio clock: it is set again as long as that clock is behind.
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

  function present(play, earliest) {
    const { presentation, timing } = play;
    const onset = Math.max(ctx.currentTime, earliest) + presentation.gap_ms / 1000;
    const sounding = playOnce(ctx, play, presentation, { onset });
    return new Promise((settled) => {
      current = {
        sounding,
        opens: sounding.onset + timing.window_opens_ms / 1000,
        closes: sounding.ends + timing.window_closes_ms / 1000,
        open: true,
        clock: null,
        settled,
      };
      closeWhenOver(current);
    });
  }

  // One press of the listener. The event's own time counts, not when it was handed over.
  function press(event) {
    if (stopped || !current) return;
    const at = heardNow(ctx) - Math.max(0, performance.now() - event.timeStamp) / 1000;
    const afterOnset = Math.round((at - current.sounding.onset) * 1000);
    if (current.open && at >= current.opens && at <= current.closes) {
      answeredUntil = Math.max(current.sounding.ends, at + SAME_PRESS_S);
      settle(current, { heard: true, reaction_ms: afterOnset });
    } else if (at > answeredUntil) {
      server.press({ trial: number, after_onset_ms: afterOnset });
    }
  }

  // Gives the last Play of the server, and the reason if the listener or the device stopped it.
  async function run(first) {
    let play = first;
    let earliest = ctx.currentTime;
    const stoppedHere = new Promise((resolve) => {
      stop = (reason) => {
        if (stopped) return;
        stopped = reason;
        current?.sounding.silence();
        clearTimeout(current?.timer);
        onStop(reason);
        resolve(server.stop({ trial: unanswered, reason }));
      };
    });
    const unwatch = watchForTrouble(ctx, (reason) => stop(reason));
    try {
      while (play.state === "play" && !stopped) {
        number = play.presentation.trial;
        unanswered = number;
        onPlay(play);
        const answer = await Promise.race([present(play, earliest), stoppedHere]);
        if (stopped) break;
        play = await Promise.race([server.answer({ trial: number, ...answer }), stoppedHere]);
        earliest = current.sounding.ends;
      }
      return { play: stopped ? await stoppedHere : play, stopped };
    } catch (error) {
      if (error.status === undefined) {
        // Not an answer of the server: the sound was refused or could not be made.
        stop("error");
        return { play: await stoppedHere, stopped, error };
      }
      if (!stopped) current?.sounding.silence();
      throw error;
    } finally {
      unwatch();
    }
  }

  return { run, press, stop: (reason) => stop(reason) };
}
