// @ts-check
/* The listener's page: set-up, tones and end. It knows the token of its link and nothing else. */

import { byId, fill, t, word } from "./dom.js";
import { connect, linkIsOver } from "./listen_server.js";
import { createPlayer, pageSound } from "./player.js";
import { releasedView } from "./released.js";
import { AGAIN_STEPS, FIRST_STEPS, createSetup, showPlannedDevice } from "./setup.js";

const CLICK_FOLLOWS_MS = 1000;
const PRESSED_MS = 150;
const HELD_MS = 1500; // how often a listener who waits for the examiner looks
const RELEASED_MS = 5000; // how often the last page looks for the result

const server = connect(location.hash.slice(1), (lost) => {
  byId("connection").textContent = lost ? t("listen.connection.lost") : "";
});
const sound = pageSound(disturb);
const state = {
  player: /** @type {ReturnType<typeof createPlayer> | null} */ (null),
  setup: /** @type {ReturnType<typeof createSetup> | null} */ (null),
  checkedBefore: false,
  /** By what, since the ears were checked. */
  disturbed: /** @type {StopReason | null} */ (null),
  /** What the run that was stopped will give. */
  stoppedRun: /** @type {Promise<{ play: Play }> | null} */ (null),
};

/**
 * Trouble outside of the tones: the check of the ears is worth nothing any more.
 * @param {StopReason} reason
 */
function disturb(reason) {
  state.disturbed = reason;
  state.setup?.restart();
}

// What is shown

/** @param {string} name */
function show(name) {
  for (const section of document.querySelectorAll("main > section")) {
    if (section instanceof HTMLElement) section.hidden = section.id !== name;
  }
  const shown = byId(name);
  byId("panic").hidden = !("sound" in shown.dataset);
  const first = shown.querySelector(".heard") ?? shown.querySelector("h1");
  if (first instanceof HTMLElement) first.focus();
}

/** @param {Play} play */
function showPlay(play) {
  const { now, of } = play.exam;
  const ear = word("listen.ear", play.ear);
  for (const place of document.querySelectorAll("[data-ear]")) {
    place.setAttribute("data-ear", play.ear);
    place.textContent = of > 1 ? t("listen.ear.of", { ear, now, of }) : ear;
  }
  const { answered, at_most: atMost } = play.progress;
  const progress = byId("progress", HTMLProgressElement);
  progress.max = Math.max(answered, atMost);
  progress.value = answered;
  byId("progress-words").textContent = t("listen.test.progress", { answered, at_most: atMost });
  byId("test-kind").textContent = play.presentation?.practice
    ? t("listen.test.practice")
    : t("listen.test.real");
}

/**
 * What has to be put right stays in sight as long as the set-up lasts.
 * @param {string | null} sentence
 */
function showToFix(sentence) {
  byId("to-fix").hidden = !sentence;
  byId("to-fix").textContent = sentence ?? "";
}

/** @param {unknown} error */
function showError(error) {
  if (linkIsOver(error)) {
    show("ended");
    return;
  }
  byId("problem-detail").textContent = error instanceof Error ? error.message : String(error);
  show("problem");
}

/** @param {StopReason} reason */
function showPaused(reason) {
  byId("paused-why").textContent = word("listen.paused", reason);
  show("paused");
}

/** @param {Play} play */
function showEnd({ released }) {
  byId("released").hidden = !released;
  byId("over-kept").hidden = Boolean(released);
  fill(byId("released"), releasedView(released ?? []));
  show("over");
}

// From state to state

/** @param {Play} play */
async function proceed(play) {
  if (play.state === "check" || play.state === "play") {
    await setUp(play);
  } else if (play.state === "held") {
    await waitForExaminer(play);
  } else if (play.state === "done") {
    show("done");
  } else {
    sound.close();
    if (play.state === "over") await end(play);
    else show("ended");
  }
}

/**
 * Only the examiner lets the test continue.
 * @param {Play} play
 */
async function waitForExaminer({ held_by_examiner: byExaminer }) {
  byId("held-why").textContent = t(byExaminer ? "listen.held.by_examiner" : "listen.held.by_itself");
  show("held");
  let play;
  do {
    await later(HELD_MS);
    play = await server.play();
  } while (play.state === "held");
  await proceed(play);
}

/**
 * The end, and the result as soon as it is released.
 * @param {Play} play
 */
async function end(play) {
  showEnd(play);
  let { released } = play;
  while (!released) {
    await later(RELEASED_MS);
    if (document.hidden) continue;
    const now = await server.play();
    ({ released } = now);
    if (released) showEnd(now);
  }
}

/** @param {number} ms */
const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** @type {Record<string, (value: string) => unknown>} */
const actions = {
  panic,
  pause: () => state.player?.stop("pause"),
  resume: async () => {
    sound.open();
    const stopped = await state.stoppedRun;
    if (stopped) await proceed(stopped.play);
  },
  retry: async () => proceed(await server.play()),
};

/** @param {Play} play */
async function setUp(play) {
  if (play.sound.kind === "external") {
    show("external");
    return;
  }
  showPlay(play);
  showPlannedDevice(play.sound);
  showToFix(play.problem);
  const first = !state.checkedBefore && play.progress.answered === 0 && play.exam.now === 1;
  state.setup = createSetup(
    { reader: "listen", show, open: sound.open, on: (name, action) => (actions[name] = action) },
    play,
    first ? FIRST_STEPS : AGAIN_STEPS,
  );
  const found = await state.setup.passed;
  leaveSetup();
  state.checkedBefore = true;
  state.disturbed = null;
  const next = await server.ready(found);
  const reason = /** @type {StopReason | null} */ (state.disturbed); // while the server was asked
  if (reason) {
    showPaused(reason);
    state.stoppedRun = server.stop({ trial: null, reason }).then((last) => ({ play: last }));
    await state.stoppedRun;
  } else {
    await test(next);
  }
}

function leaveSetup() {
  showToFix(null);
  state.setup?.silence();
  state.setup = null;
}

/** @param {Play} play */
async function test(play) {
  if (play.state !== "play") {
    await proceed(play);
    return;
  }
  state.player = createPlayer(sound.open(), server, { onPlay: showPlay, onStop: showPaused });
  show("test");
  const awake = navigator.wakeLock?.request("screen").catch(() => null);
  const run = state.player.run(play);
  state.stoppedRun = run;
  let outcome;
  try {
    outcome = await run;
  } finally {
    state.player = null;
    awake?.then((lock) => lock?.release());
  }
  if (outcome.error) showError(outcome.error);
  else if (!outcome.stopped) await proceed(outcome.play);
}

/**
 * What an action starts may fail in any of its steps: the page always says so.
 * @param {() => unknown} action
 */
async function attempt(action) {
  try {
    await action();
  } catch (error) {
    leaveSetup();
    showError(error);
  }
}

function panic() {
  if (state.player) state.player.stop("panic");
  else disturb("panic");
}

document.addEventListener("click", (event) => {
  const button = event.target instanceof Element ? event.target.closest("[data-do]") : null;
  const action = actions[button?.getAttribute("data-do") ?? ""];
  if (action) attempt(() => action(button?.getAttribute("data-value") ?? ""));
});

// The answer: space bar, Enter, a tap or a click, and nothing else. A click that follows a press of
// its own is not another one; a click alone comes from assistive technology.
const heard = byId("heard");
let lastPress = -Infinity;

/** @param {Event} event */
function press(event) {
  lastPress = event.timeStamp;
  heard.classList.add("pressed");
  setTimeout(() => heard.classList.remove("pressed"), PRESSED_MS);
  state.player?.press(event);
}

/** @param {KeyboardEvent} event */
function isAnswerKey(event) {
  if (!state.player || (event.key !== " " && event.key !== "Enter")) return false;
  const button = event.target instanceof Element ? event.target.closest("button") : null;
  return button === null || button === heard;
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") panic();
  if (!isAnswerKey(event)) return;
  event.preventDefault();
  if (!event.repeat) press(event);
});
document.addEventListener("keyup", (event) => {
  if (isAnswerKey(event)) event.preventDefault(); // no second press when the key goes up
});
heard.addEventListener("pointerdown", (event) => {
  if (event.isPrimary && event.button === 0) press(event);
});
heard.addEventListener("click", (event) => {
  if (event.timeStamp - lastPress > CLICK_FOLLOWS_MS) press(event);
});

window.addEventListener("hashchange", () => location.reload());

attempt(async () => proceed(await server.play()));
