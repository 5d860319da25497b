// The listener's page: set-up, tones and end. It knows the token of its link and nothing else.

import { createPlayer, pageSound } from "./player.js";
import { AGAIN_STEPS, FIRST_STEPS, createSetup } from "./setup.js";

const RETRY_MS = [300, 600, 1200, 2500]; // the last one from then on
const PATIENCE_MS = 15000; // a server that answers later than this is asked again
const LINK_IS_OVER = [401, 403, 404, 410];
const CLICK_FOLLOWS_MS = 1000;

const byId = (id) => document.getElementById(id);
const texts = JSON.parse(byId("texts").textContent);

function text(key, values = {}) {
  return texts[key].replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

function say(place, key, values) {
  byId(place).textContent = text(key, values);
}

// The server -------------------------------------------------------------------------------------

class Refusal extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

// Every call is repeated until the server has answered it; the trial's number makes that harmless.
// What must not be lost with the page (a stop) is kept with it and sent again after a reload.
function connect(token) {
  let waiting = 0;

  function wait(more) {
    waiting += more;
    say("connection", waiting > 0 ? "listen.connection.lost" : "listen.connection.there");
  }

  async function attempt(path, body) {
    const response = await fetch(`/api/listen${path}`, {
      method: body === undefined ? "GET" : "POST",
      headers: { Authorization: `Listener ${token}`, "Content-Type": "application/json" },
      body: JSON.stringify(body),
      cache: "no-store",
      keepalive: body !== undefined,
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    if (response.status >= 500 || response.status === 429) throw new Error("not answered");
    const answer = response.status === 204 ? null : await response.json();
    return { ok: response.ok, status: response.status, answer };
  }

  async function call(path, body) {
    for (let tries = 0; ; tries += 1) {
      const got = await attempt(path, body).catch(() => null);
      if (got && tries > 0) wait(-1);
      if (got?.ok) return got.answer;
      if (got) throw new Refusal(got.status, got.answer?.detail ?? "");
      if (tries === 0) wait(1);
      const pause = RETRY_MS[Math.min(tries, RETRY_MS.length - 1)];
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  async function stop(body) {
    history.replaceState({ stop: body }, "");
    try {
      return await call("/stop", body);
    } catch (error) {
      if (LINK_IS_OVER.includes(error.status)) throw error;
      return await call(""); // nothing to stop any more: what is in force now
    } finally {
      history.replaceState(null, "");
    }
  }

  return {
    play: () => (history.state?.stop ? stop(history.state.stop) : call("")),
    ready: (body) => call("/ready", body),
    answer: (body) => call("/answer", body),
    press: (body) => call("/press", body).catch(() => null), // a refused press is nobody's loss
    stop,
  };
}

// The page ---------------------------------------------------------------------------------------

const server = connect(location.hash.slice(1));
const actions = {};
const sound = pageSound(disturb);
let player = null;
let setup = null;
let checkedBefore = false;
let disturbed = null; // by what, since the ears were checked
let stoppedRun = null; // what the run that was stopped will give

// Trouble outside of the tones: the check of the ears is worth nothing any more.
function disturb(reason) {
  disturbed = reason;
  setup?.restart();
}

function show(name) {
  for (const section of document.querySelectorAll("main > section")) {
    section.hidden = section.id !== name;
  }
  const shown = byId(name);
  byId("panic").hidden = !("sound" in shown.dataset);
  (shown.querySelector(".heard") ?? shown.querySelector("h1")).focus();
}

function showPlay(play) {
  const { now, of } = play.exam;
  const ear = text(`listen.ear.${play.ear}`);
  for (const place of document.querySelectorAll("[data-ear]")) {
    place.dataset.ear = play.ear;
    place.textContent = of > 1 ? text("listen.ear.of", { ear, now, of }) : ear;
  }
  const { answered, at_most: atMost } = play.progress;
  byId("progress").max = Math.max(answered, atMost);
  byId("progress").value = answered;
  say("progress-words", "listen.test.progress", { answered, at_most: atMost });
  say("test-kind", play.presentation?.practice ? "listen.test.practice" : "listen.test.real");
}

function showDevice({ fingerprint }) {
  const known = Boolean(fingerprint?.earphones || fingerprint?.volume);
  byId("device-earphones").hidden = !known;
  byId("device-volume").hidden = !fingerprint?.volume;
  if (known) say("device-earphones", "listen.headphones.device", fingerprint);
  if (fingerprint?.volume) say("device-volume", "listen.volume.stored", fingerprint);
}

// What has to be put right stays in sight as long as the set-up lasts.
function showToMend(sentence) {
  byId("to-mend").hidden = !sentence;
  byId("to-mend").textContent = sentence ?? "";
}

function showProblem(sentence) {
  byId("problem-detail").textContent = sentence;
  show("problem");
}

function showRefusal(error) {
  if (error instanceof Refusal && LINK_IS_OVER.includes(error.status)) show("ended");
  else showProblem(error.message);
}

function showPaused(reason) {
  say("paused-why", `listen.paused.${reason}`);
  show("paused");
}

function showEnd({ released }) {
  byId("released").hidden = !released;
  byId("over-kept").hidden = Boolean(released);
  for (const { words } of released ?? []) {
    const verdict = document.createElement("p");
    verdict.textContent = words;
    byId("released").append(verdict);
  }
  show("over");
}

// From state to state ----------------------------------------------------------------------------

function goOn(play) {
  if (play.state === "check" || play.state === "play") return setUp(play);
  if (play.state === "done") return show("done");
  sound.close();
  return play.state === "over" ? showEnd(play) : show("ended");
}

async function setUp(play) {
  if (play.sound.kind === "external") {
    show("external");
    return;
  }
  showPlay(play);
  showDevice(play.sound);
  const first = !checkedBefore && play.progress.answered === 0 && play.exam.now === 1;
  const page = {
    show,
    say: (place, key) => say(place, `listen.${key}`),
    offer: (place, whether) => (byId(place).hidden = !whether),
    open: sound.open,
    on: (name, action) => (actions[name] = action),
  };
  showToMend(play.problem);
  setup = createSetup(page, play, first ? FIRST_STEPS : AGAIN_STEPS);
  const fingerprint = await setup.passed;
  leaveSetup();
  checkedBefore = true;
  disturbed = null;
  const next = await server.ready({ fingerprint });
  if (disturbed) {
    showPaused(disturbed);
    stoppedRun = server.stop({ trial: null, reason: disturbed }).then((last) => ({ play: last }));
    await stoppedRun;
  } else {
    await test(next);
  }
}

function leaveSetup() {
  showToMend(null);
  setup?.silence();
  setup = null;
}

async function test(play) {
  if (play.state !== "play") {
    await goOn(play);
    return;
  }
  player = createPlayer(sound.open(), server, { onPlay: showPlay, onStop: showPaused });
  show("test");
  const awake = navigator.wakeLock?.request("screen").catch(() => null);
  stoppedRun = player.run(play);
  let outcome;
  try {
    outcome = await stoppedRun;
  } finally {
    player = null;
    awake?.then((lock) => lock?.release());
  }
  if (outcome.error) showProblem(outcome.error.message);
  else if (!outcome.stopped) await goOn(outcome.play);
}

// What an action starts may fail in any of its steps: the page always says so.
async function attemptTo(action) {
  try {
    await action();
  } catch (error) {
    leaveSetup();
    showRefusal(error);
  }
}

function panic() {
  if (player) player.stop("panic");
  else disturb("panic");
}

Object.assign(actions, {
  panic,
  pause: () => player?.stop("pause"),
  resume: async () => {
    sound.open();
    return goOn((await stoppedRun).play);
  },
  retry: async () => goOn(await server.play()),
});

document.addEventListener("click", (event) => {
  const { do: name, value } = event.target.closest("[data-do]")?.dataset ?? {};
  if (name in actions) attemptTo(() => actions[name](value));
});

// The answer: space bar, Enter, a tap or a click, and nothing else. A click that follows a press of
// its own is not another one; a click alone comes from assistive technology.
const heard = byId("heard");
let lastPress = -Infinity;

function press(event) {
  lastPress = event.timeStamp;
  heard.classList.add("pressed");
  setTimeout(() => heard.classList.remove("pressed"), 150);
  player?.press(event);
}

function isAnswerKey(event) {
  const elsewhere = event.target.closest?.("button") ?? heard;
  return player && (event.key === " " || event.key === "Enter") && elsewhere === heard;
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

attemptTo(async () => goOn(await server.play()));
