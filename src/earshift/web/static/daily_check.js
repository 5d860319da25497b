// @ts-check
/* The daily check of a device, tone by tone. All answers so far go to the server, which says what
   comes next: it keeps nothing before the end, and this page keeps the answers, so that a reload or
   a sign-in in the middle loses none. */

import { at, get, post } from "./api.js";
import { pointsOf } from "./check_history.js";
import { byId, el, fill, t, word } from "./dom.js";
import { decibels } from "./format.js";
import { acting, complain, formOf, giveUp, handle, inputOf, onSubmit, reasonOf, setHeading, typed } from "./page.js";
import { walkMemory } from "./check_walk.js";
import { createPlayer, pageSound } from "./player.js";
import { Refusal } from "./refusal.js";
import { DESK_STEPS, createSetup, showPlannedDevice } from "./setup.js";

/** @import { Walk } from "./check_walk.js" */

const SECTIONS = ["who", "set-up", "test", "paused", "result"];
const CHANGED_MEANWHILE = 409;
const names = { device: handle() };
const memory = walkMemory(names.device);
const known = byId("known", HTMLSelectElement);
/** @type {Walk | null} */
let walk = null;
/** @type {GuidedStep | null} */
let step = null;
/** @type {ReturnType<typeof createPlayer> | null} */
let player = null;
/** @type {ReturnType<typeof createSetup> | null} */
let setup = null;
let checked = false; // headphones, sides and volume, since the last trouble
let pressedAt = -Infinity;
/** @type {Map<string, (value: string) => void>} */
const actions = new Map();
const audio = pageSound((reason) => {
  checked = false;
  setup?.restart();
  player?.stop(reason);
});

/** @param {string} section */
function show(section) {
  for (const one of SECTIONS) byId(one).hidden = one !== section;
  byId(section).querySelector("h2")?.focus();
}

/**
 * Tell an answer; gives what to play next. An answer counts when the server has taken it.
 * @param {boolean[]} heard all answers
 */
async function ask(heard) {
  if (!walk) throw new Error("no check is under way");
  const asked = { ...walk, heard };
  try {
    step = await post(at("/api/devices/{device}/checks/guided", names), asked);
  } catch (error) {
    if (error instanceof Refusal && error.status === CHANGED_MEANWHILE) drop();
    throw error;
  }
  walk = { ...asked, conditions: step.conditions };
  memory.keep(walk);
  byId("points-card").hidden = false;
  fill(byId("points"), pointsOf(step));
  return step;
}

/** Whatever is under way is left; nothing of it is stored. */
function drop() {
  walk = null;
  step = null;
  player?.stop("panic");
  player = null;
  setup?.silence();
  setup = null;
  memory.keep(walk);
  byId("points-card").hidden = true;
  show("who");
}

/** Show what is to be done now: a tone to set, tones that play, or the end. */
async function proceed() {
  if (!step || !walk) return;
  if (step.over) {
    await save();
    return;
  }
  const byHand = step.play.sound.kind === "external";
  if (!byHand && !checked) {
    setUp(step.play);
    return;
  }
  const about = step.establishes ? t("daily_check.finds_usual", walk)
    : t("daily_check.compares", { listener: walk.listener, since: step.since });
  byId("about").textContent = about;
  byId("missed").hidden = !byHand;
  byId("undo").hidden = !byHand;
  byId("stop").hidden = byHand;
  byId("heard-key").textContent = byHand ? "H" : t("daily_check.space");
  if (byId("test").hidden) show("test");
  if (byHand) showTone(step.play);
  else await play(step.play);
}

/** @param {Play} play */
function showTone({ presentation: tone, ear, sound, progress }) {
  const values = { n: progress.answered, of: progress.at_most };
  byId("progress").textContent = t("daily_check.progress", values);
  if (!tone) return;
  const level = tone.level === null ? "" : decibels(tone.level);
  byId("tone").textContent = sound.kind === "external"
    ? t("desk.tone", { ear: word("the_ear", ear), hz: tone.frequency_hz, level, unit: sound.unit })
    : t("daily_check.listen", { ear: word("the_ear", ear) });
}

/** @param {Play} first */
function setUp(first) {
  showPlannedDevice(first.sound);
  show("set-up");
  setup = createSetup({
    reader: "desk",
    show(name) {
      for (const one of byId("steps").children) {
        if (one instanceof HTMLElement) one.hidden = one.id !== name;
      }
      byId(name).querySelector("h3")?.focus();
    },
    open: audio.open,
    on: (name, action) => actions.set(name, action),
  }, first, DESK_STEPS);
  setup.passed.then(() => {
    setup = null;
    checked = true;
    return proceed();
  }).catch(complain);
}

/** @param {Play} first */
async function play(first) {
  /** @param {string} why */
  const pause = (why) => {
    byId("paused-why").textContent = why;
    show("paused");
  };
  const nothing = async () => first;
  player = createPlayer(audio.open(), {
    answer: async ({ heard }) => (await ask([...(walk?.heard ?? []), heard])).play,
    press: () => null, // between the tones: it belongs to none
    stop: nothing,
  }, { onPlay: showTone, onStop: (reason) => walk && pause(word("stopped", reason)) });
  try {
    const { stopped, error } = await player.run(first);
    player = null;
    if (error) throw error;
    if (!stopped) await proceed();
  } catch (error) {
    player = null;
    if (!walk) throw error; // dropped: something has changed meanwhile
    // The answer that was on its way is not counted: its tone comes again.
    pause(error instanceof Refusal ? reasonOf(error) : String(error));
  }
}

/** @param {boolean} heard */
async function answer(heard) {
  if (!walk) return;
  await ask([...walk.heard, heard]);
  await proceed();
}

async function save() {
  if (!walk || !step) return;
  const unclear = step.points.some((one) => one.unclear);
  const { listener } = walk;
  try {
    const saved = await post(at("/api/devices/{device}/checks/guided/save", names), walk);
    walk = null;
    memory.keep(walk);
    const said = saved.establishes ? t("daily_check.known_now", { listener })
      : saved.failed ? t("daily_check.saved_failed") : t("daily_check.saved_passed");
    const kind = saved.failed ? "badge changed" : "badge unchanged";
    const mark = saved.establishes ? null
      : el("p", { class: "verdict" },
        el("span", { class: kind }, saved.failed ? t("daily_check.badge_failed") : t("daily_check.badge_passed")));
    fill(byId("outcome"), mark, el("p", {}, said));
    const back = el("a", { class: "button main", href: `/devices/${names.device}` }, t("daily_check.to_device"));
    const again = { type: "button", click: () => location.reload() };
    fill(byId("after"), back, saved.establishes ? el("button", again, t("daily_check.check_now")) : null);
    show("result");
  } catch (error) {
    if (unclear) {
      fill(byId("outcome"), el("p", { class: "caution" }, reasonOf(error)));
      fill(byId("after"), el("button", { type: "button", class: "main", click: drop }, t("daily_check.again")));
      show("result");
      return;
    }
    byId("paused-why").textContent = reasonOf(error);
    show("paused");
  }
}

function choose() {
  const stranger = known.value === "";
  byId("stranger").hidden = !stranger;
  byId("of-known").hidden = stranger;
  inputOf("name").required = stranger;
}

onSubmit(formOf("begin"), async (fields) => {
  const listener = (known.value || typed(fields, "name")).trim();
  const person = known.value ? "" : typed(fields, "person").trim();
  if (person) await post(at("/api/devices/{device}/checks/listeners", names), { listener, person });
  walk = { listener, anew: Boolean(known.value) && inputOf("anew").checked, heard: [], conditions: null };
  await ask([]);
  await proceed();
});

byId("missed").addEventListener("click", () => acting(byId("answers"), () => answer(false)));
byId("undo").addEventListener("click", () =>
  acting(byId("answers"), async () => {
    if (!walk?.heard.length) return;
    await ask(walk.heard.slice(0, -1));
    await proceed();
  }),
);
byId("stop").addEventListener("click", () => player?.stop("pause"));
byId("resume").addEventListener("click", () =>
  acting(byId("resume"), async () => {
    audio.open();
    if (walk) await ask(walk.heard);
    await proceed();
  }),
);
for (const id of ["drop", "drop-paused"]) byId(id).addEventListener("click", drop);

// Played here a press is timed by the sound; by hand it is an answer like the other.
/** @param {Event} event */
function press(event) {
  if (byId("test").hidden) return;
  if (player) player.press(event);
  else if (step?.play.sound.kind === "external") acting(byId("answers"), () => answer(true));
}
byId("heard").addEventListener("pointerdown", (event) => {
  if (!player || !event.isPrimary || event.button !== 0) return;
  pressedAt = event.timeStamp;
  press(event);
});
byId("heard").addEventListener("click", (event) => {
  if (event.timeStamp - pressedAt > 1000) press(event);
});
document.addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.altKey || event.metaKey || byId("test").hidden) return;
  if (player) keyOfListener(event);
  else byId("test").querySelector(`[data-key="${CSS.escape(event.key.toLowerCase())}"]`)?.dispatchEvent(new Event("click"));
});

/** @param {KeyboardEvent} event */
function keyOfListener(event) {
  if (event.key === "Escape") player?.stop("panic");
  if (event.key !== " ") return;
  event.preventDefault();
  press(event);
}

document.addEventListener("keyup", (event) => {
  if (player && event.key === " ") event.preventDefault(); // no second press when the key goes up
});
document.addEventListener("click", (event) => {
  const button = event.target instanceof Element ? event.target.closest("[data-do]") : null;
  try {
    actions.get(button?.getAttribute("data-do") ?? "")?.(button?.getAttribute("data-value") ?? "");
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    fill(byId("set-up-problem"), el("p", { class: "caution", role: "alert" }, said));
  }
});
known.addEventListener("change", choose);

Promise.all([get(at("/api/devices/{device}", names)), get(at("/api/devices/{device}/checks", names))])
  .then(async ([device, { listeners }]) => {
    setHeading(t("daily_check.heading_of", { name: device.name }));
    byId("back", HTMLAnchorElement).href = `/devices/${names.device}`;
    fill(byId("blocked"), device.blocked ? el("p", { class: "caution bad" }, device.blocked) : null);
    fill(
      known,
      listeners.filter((one) => one.known).map((one) =>
        el("option", { value: one.name }, t("daily_check.known_since", { name: one.name, day: one.since }))),
      el("option", { value: "" }, t("daily_check.somebody_new")),
    );
    choose();
    walk = memory.kept();
    if (!walk) {
      show("who");
      return;
    }
    const { listener } = walk;
    await ask(walk.heard);
    byId("paused-why").textContent = t("daily_check.interrupted", { listener });
    show("paused");
  })
  .catch((error) => (error instanceof Refusal && error.status === CHANGED_MEANWHILE ? complain(error) : giveUp(error)));
