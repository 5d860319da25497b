// What is done before the tones: which device this is, and whether the headphones sit right, reach
// both ears and are as loud as they were. The check tones obey the same limits as all others.

import { playOnce } from "./player.js";
import { dbfsOfLevel, loudestLevel } from "./tone.js";

const CHECK_HZ = 1000;
const EARS = ["left", "right"];
const RIGHT_IN_A_ROW = 2;
// A soft start; a tone that was not heard is followed by a louder one in that ear. Without
// calibration nobody knows how loud the volume is: it starts at the floor, in smaller steps.
const CHECK_LEVELS = {
  calibrated: { start: 40, step: 10, most: 70 },
  relative: { start: 0, step: 5, most: 60 },
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

// Two tablets of one make are alike in all that a script can see: a random number of its own tells
// them apart. It is made when this browser becomes a device, and stays in it.
const INSTALLATION = "installation";

export function becomeDevice() {
  if (localStorage.getItem(INSTALLATION) === null) {
    localStorage.setItem(INSTALLATION, crypto.randomUUID());
  }
}

function thisBrowser() {
  const installation = localStorage.getItem(INSTALLATION);
  return {
    browser: browserName(navigator.userAgent),
    system: systemName(navigator.userAgent),
    ...(installation === null ? {} : { installation }),
  };
}

// Whether a test was planned for another browser than this. What the headphones bring along
// (sample rate, channels) is compared when they are on.
function isAnother(planned) {
  const here = thisBrowser();
  const named = ["browser", "system", INSTALLATION].filter((name) => planned[name]);
  return named.some((name) => planned[name] !== here[name]);
}

// What the browser knows of this device, with what the user typed of it: earphones, connection and
// volume can be read by no script.
export function fingerprint({ earphones = "", connection = "unknown", volume = "" }, ctx = null) {
  const audio = ctx ?? new AudioContext();
  const found = {
    ...thisBrowser(),
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

// The level of a check tone, which all limits allow. `louder` counts the tones not heard there.
function checkLevel(play, ear, louder) {
  const { start, step, most } = CHECK_LEVELS[play.sound.kind];
  const loudest = Math.min(most, loudestLevel(play.sound, ear, CHECK_HZ));
  return Math.min(start + louder * step, loudest);
}

function checkTone(ctx, play, ear, louder) {
  const level = checkLevel(play, ear, louder);
  const dbfs = dbfsOfLevel(play.sound, ear, CHECK_HZ, level);
  return playOnce(ctx, { ...play, ear }, { frequency_hz: CHECK_HZ, level, dbfs });
}

// Which ear comes next, who was right how often, and which hint a wrong answer calls for. One ear,
// not both, may be left out: of somebody who is known to hear nothing there.
export function createSideCheck(random = Math.random) {
  const right = { left: 0, right: 0 };
  let ear = null;
  let leftOut = null;

  const lacks = (side) => side !== leftOut && right[side] < RIGHT_IN_A_ROW;
  const progress = () => (EARS.some(lacks) ? "again" : "passed");

  function next() {
    const lacking = EARS.filter(lacks);
    const even = random() < 0.5 ? "left" : "right";
    ear = lacking.length === 1 && random() < OTHER_EAR_NEXT ? lacking[0] : even;
    return ear;
  }

  // `said` is left, right, both or nothing. Gives "passed", "again" or the name of a hint.
  function answer(said) {
    if (said === ear) {
      right[ear] += 1;
      return progress();
    }
    if (said === "nothing") {
      right[ear] = 0; // and says nothing about the other ear
      return ear === leftOut ? "again" : "nothing";
    }
    right.left = 0;
    right.right = 0;
    leftOut = null;
    return said === "both" ? "mono" : "swapped";
  }

  function leaveOut() {
    leftOut = ear;
    return progress();
  }

  return { next, answer, leaveOut, ear: () => ear, leftOut: () => leftOut };
}

// The wizard -------------------------------------------------------------------------------------

export const FIRST_STEPS = ["headphones", "sides", "volume", "room", "instruction"];
export const AGAIN_STEPS = ["sides", "volume", "again"];
export const DESK_STEPS = ["headphones", "sides", "volume"];

// Go through the steps on the page. `page` has `show(step)`, `on(name, listener)` for the buttons,
// `say(place, key)`, `offer(place, whether)` and `open()`, which gives the audio context and is
// called in the click itself: some browsers allow sound only there. `passed` gives the fingerprint
// of the checked device; on another device than the planned one it never comes.
export function createSetup(page, play, steps) {
  const planned = play.sound.fingerprint ?? {};
  let sounding = null;
  let louder = { left: 0, right: 0 };
  let sides = createSideCheck();
  let sidePlayed = false; // and its answer is awaited
  let volumePlayed = false;
  let at = -1;
  let finished;
  const passed = new Promise((resolve) => {
    finished = resolve;
  });

  function silence() {
    sounding?.silence();
    sounding = null;
  }

  function sound(ear) {
    silence();
    const ctx = page.open();
    // `open` has asked for sound in this click; the clock starts when the browser grants it.
    sounding = checkTone(ctx, play, ear, louder[ear]);
  }

  function begin(step) {
    page.show(step);
    if (step === "sides") {
      sides = createSideCheck();
      sidePlayed = false;
      page.offer("unheard", false);
      page.say("sides-hint", "sides.first");
    } else if (step === "volume") {
      volumePlayed = false;
      page.offer("left-out", sides.leftOut() !== null);
      page.say("volume-hint", "volume.first");
    }
  }

  function checkedDevice() {
    const { installation, ...seen } = fingerprint(planned, page.open());
    // A device from before browsers had a number is compared without.
    return planned.installation ? { ...seen, installation } : seen;
  }

  function forward() {
    silence();
    at += 1;
    if (at < steps.length) begin(steps[at]);
    else finished(checkedDevice());
  }

  // Something happened that makes the check of the ears worthless: it starts anew.
  function restart() {
    silence();
    const first = steps.indexOf("sides");
    if (at < first) return;
    at = first;
    louder = { left: 0, right: 0 };
    begin("sides");
  }

  function goOnFrom(outcome) {
    if (outcome === "passed") forward();
    else page.say("sides-hint", `sides.${outcome}`);
  }

  function answerSide(said) {
    if (!sidePlayed) {
      page.say("sides-hint", "sides.play_first");
      return;
    }
    sidePlayed = false;
    silence();
    const ear = sides.ear();
    const outcome = sides.answer(said);
    if (outcome !== "nothing") {
      goOnFrom(outcome);
      return;
    }
    const level = checkLevel(play, ear, louder[ear]);
    louder[ear] += 1;
    const loudest = level === checkLevel(play, ear, louder[ear]);
    const unheard = loudest && sides.leftOut() === null;
    page.offer("unheard", unheard);
    goOnFrom(unheard ? "unheard" : outcome);
  }

  function leaveOut() {
    page.offer("unheard", false);
    const outcome = sides.leaveOut();
    goOnFrom(outcome === "again" ? "left_out" : outcome);
  }

  // The ear that is tested, unless nothing is heard there.
  function volumeEar() {
    return EARS.find((ear) => ear !== play.ear && sides.leftOut() === play.ear) ?? play.ear;
  }

  function answerVolume(said) {
    silence();
    if (!volumePlayed) {
      page.say("volume-hint", "volume.play_first");
    } else if (said === "good") {
      forward();
    } else {
      if (said === "loud") louder[volumeEar()] = 0;
      page.say("volume-hint", `volume.${said}`);
    }
  }

  page.on("next", () => {
    page.open();
    forward();
  });
  page.on("play-side", () => {
    page.offer("unheard", false);
    sound(sidePlayed ? sides.ear() : sides.next());
    sidePlayed = true;
  });
  page.on("side", answerSide);
  page.on("unheard", leaveOut);
  page.on("play-volume", () => {
    sound(volumeEar());
    volumePlayed = true;
  });
  page.on("volume", answerVolume);
  if (isAnother(planned)) page.show("another");
  else forward();
  return { passed, restart, silence };
}
