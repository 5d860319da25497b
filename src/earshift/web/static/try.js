/* A simulated person: step through a test or run it; nothing is stored, nothing sounds. */

import { get, post } from "./api.js";
import { liveView } from "./live.js";
import { acting, byId, complain, el, fill, onSubmit, t, word } from "./page.js";

const MOST_TONES = 30;
const PAUSE_MS = 350;
const view = liveView();
const form = byId("person");
let tones = 0;
let running = false;

const options = (group, values) => values.map((value) => el("option", { value }, word(group, value)));

async function show() {
  const given = Object.fromEntries(new FormData(form));
  const live = await post("/api/try", { ...given, seed: Number(given.seed) || 0, tones });
  byId("live").hidden = false;
  tones = live.tones;
  view.draw(live);
  return live.state === "done" || tones >= MOST_TONES;
}

async function step() {
  tones += 1;
  const over = await show();
  byId("step").disabled = over;
  if (over) running = false;
  return over;
}

async function run() {
  running = !running;
  byId("run").textContent = running ? t("try.stop") : t("try.run");
  while (running && !(await step())) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  running = false;
  byId("run").textContent = t("try.run");
}

async function restart() {
  running = false;
  tones = 0;
  byId("step").disabled = false;
  await show();
}

onSubmit(form, step);
byId("run").addEventListener("click", () => run().catch((error) => {
  running = false;
  byId("run").textContent = t("try.run");
  complain(error);
}));
byId("reset").addEventListener("click", () => acting(byId("reset"), restart));
form.addEventListener("change", () => restart().catch(complain));

byId("live").hidden = true;
get("/api/try/choices")
  .then(async (choices) => {
    fill(byId("hearing"), options("hearing", choices.hearing));
    fill(byId("change"), options("change", choices.change));
    fill(byId("rule"), options("rule", choices.rules));
    await show();
  })
  .catch(complain);
