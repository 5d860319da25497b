// @ts-check
/* What is done before the tones: whether this is the planned device, and whether the headphones sit
   right, reach both ears and are as loud as they were. The check tones obey the limits of all. */

import { fingerprint, isAnotherBrowser } from "./browser_device.js";
import { byId, find } from "./dom.js";
import { EARS } from "./ears.js";
import { playOnce } from "./player.js";
import { createSideCheck } from "./side_check.js";
import { dbfsOfLevel, loudestLevel } from "./tone.js";

const CHECK_HZ = 1000;
// A soft start; a tone that was not heard is followed by a louder one in that ear. Without
// calibration nobody knows how loud the volume is: it starts at the floor, in smaller steps.
const CALIBRATED_LEVELS = { start: 40, step: 10, most: 70 };
const RELATIVE_LEVELS = { start: 0, step: 5, most: 60 };

export const FIRST_STEPS = ["headphones", "sides", "volume", "room", "instruction"];
export const AGAIN_STEPS = ["sides", "volume", "again"];
export const DESK_STEPS = ["headphones", "sides", "volume"];

/**
 * The page on which the steps are shown.
 * @typedef {{
 *   reader: "listen" | "desk",
 *   show: (step: string) => void,
 *   on: (name: string, action: (value: string) => void) => void,
 *   open: () => AudioContext,
 * }} SetupPage `reader` chooses the words; `on` listens to buttons; `open` is called in the click
 *   itself, because some browsers allow sound only there
 */

/**
 * The level of a check tone, which all limits allow.
 * @param {Play} play
 * @param {Ear} ear
 * @param {number} louder how many tones were not heard there
 */
function checkLevel(play, ear, louder) {
  const { start, step, most } =
    play.sound.kind === "calibrated" ? CALIBRATED_LEVELS : RELATIVE_LEVELS;
  const loudest = Math.min(most, loudestLevel(play.sound, ear, CHECK_HZ));
  return Math.min(start + louder * step, loudest);
}

/**
 * @param {AudioContext} ctx
 * @param {Play} play
 * @param {Ear} ear
 * @param {number} louder
 */
function playCheckTone(ctx, play, ear, louder) {
  const level = checkLevel(play, ear, louder);
  const dbfs = dbfsOfLevel(play.sound, ear, CHECK_HZ, level);
  return playOnce(ctx, { ...play, ear }, { frequency_hz: CHECK_HZ, level, dbfs });
}

/**
 * Say which headphones and which volume belong to the device.
 * @param {Sound} sound
 */
export function showPlannedDevice({ fingerprint: planned }) {
  const { earphones, connection, volume } = planned ?? {};
  byId("device-earphones").hidden = !(earphones || volume);
  byId("device-volume").hidden = !volume;
  byId("device-earphones").textContent = find("setup.headphones.device", { earphones, connection });
  byId("device-volume").textContent = find("setup.volume.stored", { volume });
}

/**
 * Go through the steps on the page. `passed` gives the fingerprint of the checked device; on another
 * device than the planned one it never comes.
 * @param {SetupPage} page
 * @param {Play} play
 * @param {string[]} steps
 */
export function createSetup(page, play, steps) {
  const planned = /** @type {Partial<Fingerprint>} */ (play.sound.fingerprint ?? {});
  const tested = EARS.find((ear) => ear === play.ear) ?? EARS[0]; // of both ears, the first
  const state = {
    at: -1,
    louder: { left: 0, right: 0 },
    sides: createSideCheck(),
    sidePlayed: false, // and its answer is awaited
    volumePlayed: false,
    sounding: /** @type {ReturnType<typeof playOnce> | null} */ (null),
  };
  /** @type {(found: Fingerprint) => void} */
  let finished;
  /** @type {Promise<Fingerprint>} */
  const passed = new Promise((resolve) => {
    finished = resolve;
  });

  /**
   * @param {"sides" | "volume"} step
   * @param {string} name
   */
  function hint(step, name) {
    const key = `${step}.${name}`;
    byId(`${step}-hint`).textContent = find(`${page.reader}.${key}`) ?? find(`setup.${key}`);
  }

  /** @param {boolean} whether */
  function offerToLeaveOut(whether) {
    byId("unheard").hidden = !whether;
  }

  function silence() {
    state.sounding?.silence();
    state.sounding = null;
  }

  /** @param {Ear} ear */
  function sound(ear) {
    silence();
    // `open` asks for sound in this click; the clock starts when the browser grants it.
    state.sounding = playCheckTone(page.open(), play, ear, state.louder[ear]);
  }

  /** @param {string} step */
  function begin(step) {
    page.show(step);
    if (step === "sides") {
      state.sides = createSideCheck();
      state.sidePlayed = false;
      offerToLeaveOut(false);
      hint("sides", "first");
    } else if (step === "volume") {
      state.volumePlayed = false;
      byId("left-out").hidden = state.sides.leftOut() === null;
      hint("volume", "first");
    }
  }

  function checkedDevice() {
    const { installation, ...seen } = fingerprint(planned, page.open());
    // A device from before browsers had a number is compared without.
    return planned.installation ? { ...seen, installation } : seen;
  }

  function forward() {
    silence();
    state.at += 1;
    if (state.at < steps.length) begin(steps[state.at]);
    else finished(checkedDevice());
  }

  // Something happened that makes the check of the ears worthless: it starts anew.
  function restart() {
    silence();
    const first = steps.indexOf("sides");
    if (state.at < first) return;
    state.at = first;
    state.louder = { left: 0, right: 0 };
    begin("sides");
  }

  /** @param {string} outcome */
  function continueFrom(outcome) {
    if (outcome === "passed") forward();
    else hint("sides", outcome);
  }

  /** @param {string} answered */
  function answerSide(answered) {
    if (!state.sidePlayed) {
      hint("sides", "play_first");
      return;
    }
    state.sidePlayed = false;
    silence();
    const ear = state.sides.ear();
    const outcome = state.sides.answer(answered);
    if (outcome !== "nothing") {
      continueFrom(outcome);
      return;
    }
    const level = checkLevel(play, ear, state.louder[ear]);
    state.louder[ear] += 1;
    const loudest = level === checkLevel(play, ear, state.louder[ear]);
    const unheard = loudest && state.sides.leftOut() === null;
    offerToLeaveOut(unheard);
    continueFrom(unheard ? "unheard" : outcome);
  }

  function leaveOut() {
    offerToLeaveOut(false);
    const outcome = state.sides.leaveOut();
    continueFrom(outcome === "again" ? "left_out" : outcome);
  }

  // The ear that is tested, unless nothing is heard there.
  function volumeEar() {
    const other = EARS.find((ear) => ear !== tested) ?? tested;
    return state.sides.leftOut() === tested ? other : tested;
  }

  /** @param {string} answered */
  function answerVolume(answered) {
    silence();
    if (!state.volumePlayed) {
      hint("volume", "play_first");
    } else if (answered === "good") {
      forward();
    } else {
      if (answered === "loud") state.louder[volumeEar()] = 0;
      hint("volume", answered);
    }
  }

  page.on("next", () => {
    page.open();
    forward();
  });
  page.on("play-side", () => {
    offerToLeaveOut(false);
    sound(state.sidePlayed ? state.sides.ear() : state.sides.next());
    state.sidePlayed = true;
  });
  page.on("side", answerSide);
  page.on("unheard", leaveOut);
  page.on("play-volume", () => {
    sound(volumeEar());
    state.volumePlayed = true;
  });
  page.on("volume", answerVolume);
  if (isAnotherBrowser(planned)) page.show("another");
  else forward();
  return { passed, restart, silence };
}
