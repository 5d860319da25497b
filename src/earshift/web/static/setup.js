// What is done before the tones: which device this is, and whether the headphones sit right, reach
// both ears and are as loud as they were. The check tones obey the same limits as all others.

import { playOnce } from "./player.js";
import { dbfsOfLevel, loudestLevel } from "./tone.js";

const CHECK_HZ = 1000;
const RIGHT_IN_A_ROW = 2;
// A soft start; a tone that was not heard is followed by a louder one. Without calibration the
// volume is unknown, so it starts near the floor.
const CHECK_LEVELS = {
  calibrated: { start: 40, step: 10, most: 70 },
  relative: { start: 20, step: 10, most: 60 },
};
const OTHER_EAR_NEXT = 0.75; // the ear that still lacks right answers comes more often, not always

// The device ------------------------------------------------------------------------------------

function firstNamed(text, names) {
  return names.find(([mark]) => text.includes(mark))?.[1] ?? "unknown";
}

// Names without versions: an update of the browser does not change the sound.
function browserName(agent) {
  return firstNamed(agent, [
    ["Edg", "Edge"],
    ["OPR", "Opera"],
    ["SamsungBrowser", "Samsung Internet"],
    ["Firefox", "Firefox"],
    ["FxiOS", "Firefox"],
    ["CriOS", "Chrome"],
    ["Chrome", "Chrome"],
    ["Safari", "Safari"],
  ]);
}

function systemName(agent) {
  return firstNamed(agent, [
    ["iPhone", "iOS"],
    ["iPad", "iOS"],
    ["Android", "Android"],
    ["CrOS", "ChromeOS"],
    ["Windows", "Windows"],
    ["Mac OS X", "macOS"],
    ["Linux", "Linux"],
  ]);
}

// What the browser knows of this device, with what the user typed of it: earphones, connection and
// volume can be read by no script.
export function fingerprint({ earphones = "", connection = "unknown", volume = "" }, ctx = null) {
  const audio = ctx ?? new AudioContext();
  const found = {
    browser: browserName(navigator.userAgent),
    system: systemName(navigator.userAgent),
    sample_rate: audio.sampleRate,
    channels: audio.destination.maxChannelCount,
    earphones,
    connection,
    volume,
  };
  if (!ctx) audio.close();
  return found;
}

// The check of the ears --------------------------------------------------------------------------

// A check tone at this ear, at a level that all limits allow. `louder` counts the tones not heard.
function checkTone(ctx, play, ear, louder) {
  const { start, step, most } = CHECK_LEVELS[play.sound.kind];
  const wanted = Math.min(start + louder * step, most);
  const level = Math.min(wanted, loudestLevel(play.sound, ear, CHECK_HZ));
  const dbfs = dbfsOfLevel(play.sound, ear, CHECK_HZ, level);
  return playOnce(ctx, { ...play, ear }, { frequency_hz: CHECK_HZ, level, dbfs });
}

// Which ear comes next, who was right how often, and which hint a wrong answer calls for.
export function createSideCheck(random = Math.random) {
  const right = { left: 0, right: 0 };
  let ear = null;

  function next() {
    const lacking = ["left", "right"].filter((side) => right[side] < RIGHT_IN_A_ROW);
    const even = random() < 0.5 ? "left" : "right";
    ear = lacking.length === 1 && random() < OTHER_EAR_NEXT ? lacking[0] : even;
    return ear;
  }

  // `said` is left, right, both or nothing. Gives "passed", "again" or the name of a hint.
  function answer(said) {
    if (said !== ear) {
      right.left = 0;
      right.right = 0;
      return { both: "mono", nothing: "nothing" }[said] ?? "swapped";
    }
    right[ear] += 1;
    return Object.values(right).every((count) => count >= RIGHT_IN_A_ROW) ? "passed" : "again";
  }

  return { next, answer, ear: () => ear };
}

// The wizard -------------------------------------------------------------------------------------

export const FIRST_STEPS = ["headphones", "sides", "volume", "room", "instruction"];
export const AGAIN_STEPS = ["sides", "volume", "again"];

// Go through the steps on the page. `page` has `show(step)`, `on(name, listener)` for the buttons,
// `say(place, key, values)` and `open()`, which gives the audio context and is called in the click
// itself: some browsers allow sound only there. Gives the fingerprint of the checked device.
export function createSetup(page, play, steps) {
  let sounding = null;
  let louder = 0;
  let sides = null;
  let sidePlayed = false; // and its answer is awaited
  let volumePlayed = false;
  let at = -1;
  let finished;
  const passed = new Promise((resolve) => {
    finished = resolve;
  });
  const typed = play.sound.fingerprint ?? {};

  function silence() {
    sounding?.silence();
    sounding = null;
  }

  function sound(ear) {
    silence();
    const ctx = page.open();
    // `open` has asked for sound in this click; the clock starts when the browser grants it.
    sounding = checkTone(ctx, play, ear, louder);
  }

  function begin(step) {
    page.show(step);
    if (step === "sides") {
      sides = createSideCheck();
      sidePlayed = false;
      page.say("sides-hint", "listen.sides.first");
    } else if (step === "volume") {
      volumePlayed = false;
      page.say("volume-hint", "listen.volume.first");
    }
  }

  function forward() {
    silence();
    at += 1;
    if (at < steps.length) begin(steps[at]);
    else finished(fingerprint(typed, page.open()));
  }

  // Something happened that makes the check of the ears worthless: it starts anew.
  function restart() {
    silence();
    const first = steps.indexOf("sides");
    if (at < first) return;
    at = first;
    louder = 0;
    begin("sides");
  }

  function answerSide(said) {
    if (!sidePlayed) {
      page.say("sides-hint", "listen.sides.play_first");
      return;
    }
    sidePlayed = false;
    silence();
    const outcome = sides.answer(said);
    if (outcome === "nothing") louder += 1;
    if (outcome === "passed") forward();
    else page.say("sides-hint", `listen.sides.${outcome}`);
  }

  function answerVolume(said) {
    silence();
    if (!volumePlayed) {
      page.say("volume-hint", "listen.volume.play_first");
    } else if (said === "good") {
      forward();
    } else {
      if (said === "loud") louder = 0;
      page.say("volume-hint", `listen.volume.${said}`);
    }
  }

  page.on("next", () => {
    page.open();
    forward();
  });
  page.on("play-side", () => {
    sound(sidePlayed ? sides.ear() : sides.next());
    sidePlayed = true;
  });
  page.on("side", answerSide);
  page.on("play-volume", () => {
    sound(play.ear);
    volumePlayed = true;
  });
  page.on("volume", answerVolume);
  forward();
  return { passed, restart, silence };
}
