// @ts-check
/* A simulated person: step through a test or run it; nothing is stored, nothing sounds. */

import { get, post } from "./api.js";
import { byId, el, fill, t, word } from "./dom.js";
import { liveView } from "./live.js";
import { acting, complain, formOf, onSubmit, typed } from "./page.js";

const MOST_TONES = 30;
const PAUSE_MS = 350;
const CLEAR_CHANGE = "high frequencies 20 dB"; // a first look shows a change being found
const view = liveView();
const form = formOf("person");
const step = byId("step", HTMLButtonElement);
const state = { tones: 0, running: false };

/**
 * @param {string} group
 * @param {string[]} values
 */
const options = (group, values) => values.map((value) => el("option", { value }, word(group, value)));

/** Show the person after so many tones. Gives whether the test is over. */
async function show() {
  const fields = new FormData(form);
  const live = await post("/api/try", {
    hearing: typed(fields, "hearing"),
    change: typed(fields, "change"),
    rule: typed(fields, "rule"),
    seed: Number(typed(fields, "seed")) || 0,
    tones: state.tones,
  });
  byId("live").hidden = false;
  state.tones = live.tones;
  view.draw(live);
  return live.state === "done" || state.tones >= MOST_TONES;
}

async function playNext() {
  state.tones += 1;
  const over = await show();
  step.disabled = over;
  if (over) state.running = false;
  return over;
}

/** @param {boolean} running */
function setRunning(running) {
  state.running = running;
  byId("run").textContent = running ? t("try.stop") : t("try.run");
}

async function run() {
  setRunning(!state.running);
  try {
    while (state.running && !(await playNext())) {
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  } finally {
    setRunning(false);
  }
}

async function restart() {
  state.running = false;
  state.tones = 0;
  step.disabled = false;
  await show();
}

onSubmit(form, playNext);
byId("run").addEventListener("click", () => run().catch(complain));
byId("reset").addEventListener("click", () => acting(byId("reset"), restart));
form.addEventListener("change", () => restart().catch(complain));

byId("live").hidden = true;
get("/api/try/choices")
  .then(async (choices) => {
    fill(byId("hearing"), options("hearing", choices.hearing));
    fill(byId("change"), options("change", choices.change));
    fill(byId("rule"), options("rule", choices.rules));
    byId("change", HTMLSelectElement).value = CLEAR_CHANGE;
    await show();
  })
  .catch(complain);
