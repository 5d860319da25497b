// @ts-check
/* Background noise of the test rooms: typed in from a meter, shown against the limits. */

import { get, post } from "./api.js";
import { byId, el, fill, t } from "./dom.js";
import { decibels, hertz, today } from "./format.js";
import { complain, formOf, inputOf, onSubmit, say, typed } from "./page.js";

const BANDS_HZ = [125, 250, 500, 1000, 2000, 4000, 8000];

const cells = BANDS_HZ.map((hz) => {
  const level = el("input", {
    id: `band-${hz}`, type: "number", step: "any", min: -10, max: 140, inputmode: "decimal",
  });
  byId("grid").append(
    el("div", { class: "cell" }, el("label", { for: `band-${hz}` }, hertz(hz)), level));
  return { hz, level };
});

/** @param {NoiseShown} noise */
function line(noise) {
  const where = [noise.room, noise.device].filter(Boolean).join(", ") || t("rooms.whole_site");
  const levels = Object.entries(noise.levels)
    .map(([hz, level]) => t("rooms.level", { hz: hertz(hz), db: decibels(level) })).join(", ");
  const by = [noise.author, noise.instrument].filter(Boolean).join(", ");
  return el("li", {},
    el("p", {}, el("strong", {}, noise.measured_on), " ", el("span", { dir: "auto" }, where)),
    el("p", {}, levels),
    noise.checks.map((check) =>
      el("p", { class: check.too_loud ? "caution" : "hint" }, check.words)),
    el("p", { class: "hint", dir: "auto" }, by));
}

async function show() {
  const [noise, devices] = await Promise.all([get("/api/rooms/noise"), get("/api/devices")]);
  fill(byId("list"), noise.length ? noise.map(line) : el("li", { class: "quiet" }, t("rooms.none")));
  const whole = el("option", { value: "" }, t("rooms.whole_site"));
  fill(byId("device"), whole, devices.map((one) => el("option", { value: one.id }, one.name)));
}

onSubmit(formOf("new"), async (fields) => {
  const typedIn = cells.filter(({ level }) => level.value !== "");
  await post("/api/rooms/noise", {
    measured_on: typed(fields, "measured_on"),
    device: typed(fields, "device") || null,
    room: typed(fields, "room").trim(),
    instrument: typed(fields, "instrument").trim(),
    levels: Object.fromEntries(typedIn.map(({ hz, level }) => [hz, Number(level.value)])),
  });
  for (const { level } of cells) level.value = "";
  say(t("rooms.saved"));
  await show();
});

inputOf("measured_on").value = today();
show().catch(complain);
