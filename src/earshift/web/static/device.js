/* One device: its state, the daily check by ear, and its calibration table. */

import { get, post } from "./api.js";
import {
  byId, decibels, el, entitle, facts, fill, giveUp, handle, onSubmit, say, t, table, today, word,
} from "./page.js";

const EARS = ["right", "left"];
const CHECKED_HZ = [500, 1000, 2000, 4000];
const TABLE_HZ = [250, 500, 1000, 2000, 3000, 4000, 6000, 8000];
const address = `/api/devices/${handle()}`;
let presets = [];

function show(device) {
  entitle(device.name);
  const { calibration, daily_check: check, fingerprint } = device;
  fill(byId("blocked"), device.blocked ? el("p", { class: "caution" }, device.blocked) : null);
  facts(byId("state"), [
    [t("device.sound"), word("sound", device.sound)],
    [t("devices.transducer"), word("transducer", device.transducer)],
    [t("devices.model"), device.model],
    [t("devices.serial"), device.serial],
    [t("device.calibration"), word("calibration", calibration?.state ?? "none")],
    [t("device.done_on"), calibration?.done_on],
    [t("device.due_on"), calibration?.due_on],
    [t("device.laboratory"), calibration?.laboratory],
    [t("device.coupler"), calibration?.coupler],
    [t("device.kind"), calibration?.kind ? word("calibration_kind", calibration.kind) : null],
    [t("device.check"), check.on ? t("devices.until", { state: word("daily_check", check.state), day: check.on }) : word("daily_check", check.state)],
    ...Object.entries(fingerprint ?? {}).map(([name, value]) => [word("fingerprint", name), value]),
  ]);
  // An audiometer sets its own levels: there is nothing to convert, so no table.
  byId("of-table").hidden = device.sound === "external";
}

/** A table of numbers to type: a row per frequency, a column per ear, `known` before them. */
function entry(place, name, caption, frequencies, known = null) {
  const label = (hz, ear) => t("device.cell", { ear: word("ear", ear), hz: t("chart.hz", { n: hz }) });
  const input = (hz, ear) =>
    el("input", { type: "number", step: "any", name: `${name}-${ear}-${hz}`, "aria-label": label(hz, ear), inputmode: "decimal", required: name === "check" });
  const columns = [t("column.frequency"), ...(known ? [known.name] : []), ...EARS.map((ear) => word("ear", ear))];
  fill(
    place,
    el("caption", {}, caption),
    el("thead", {}, el("tr", {}, columns.map((column) => el("th", { scope: "col" }, column)))),
    el("tbody", {}, frequencies.map((hz) =>
      el("tr", {},
        el("th", { scope: "row" }, t("chart.hz", { n: hz })),
        known ? el("td", { "data-hz": hz }, known.values[hz] === undefined ? "\u2013" : decibels(known.values[hz])) : null,
        EARS.map((ear) => el("td", {}, input(hz, ear)))))),
  );
}

/** The numbers that were typed, by ear and frequency; empty cells are left out. */
function typed(form, name, frequencies) {
  return Object.fromEntries(EARS.map((ear) => [
    ear,
    Object.fromEntries(
      frequencies
        .filter((hz) => form.get(`${name}-${ear}-${hz}`) !== "")
        .map((hz) => [hz, Number(form.get(`${name}-${ear}-${hz}`))]),
    ),
  ]));
}

/** A year is the longest that an acoustic calibration holds. */
function proposeDue() {
  const due = new Date(byId("done_on").value);
  if (Number.isNaN(due.getTime())) return;
  due.setUTCFullYear(due.getUTCFullYear() + 1);
  byId("due_on").value = due.toISOString().slice(0, 10);
}

function showPreset() {
  const preset = presets.find((each) => each.name === byId("retspl").value);
  if (!preset) return;
  for (const cell of byId("table").querySelectorAll("[data-hz]")) {
    const value = preset.values[cell.dataset.hz];
    cell.textContent = value === undefined ? "\u2013" : decibels(value);
  }
  if (byId("coupler").value === "" || presets.some((each) => each.coupler === byId("coupler").value)) {
    byId("coupler").value = preset.coupler;
  }
  const list = el("dl", { class: "facts" });
  facts(list, [
    [t("device.earphone"), preset.earphone],
    [t("device.coupler"), preset.coupler],
    [t("device.source"), preset.source],
    [t("device.status"), word("status", preset.status)],
  ]);
  fill(byId("about-retspl"), list);
}

onSubmit(byId("calibration"), async (form) => {
  const levels = byId("of-table").hidden ? null : typed(form, "full", TABLE_HZ);
  const given = levels !== null && EARS.some((ear) => Object.keys(levels[ear]).length > 0);
  const device = await post(`${address}/calibrations`, {
    done_on: form.get("done_on"),
    due_on: form.get("due_on"),
    laboratory: form.get("laboratory"),
    coupler: form.get("coupler"),
    kind: form.get("kind"),
    ...(given
      ? { retspl: form.get("retspl"), full_scale_db_spl: levels, floor_dbfs: Number(form.get("floor_dbfs")) }
      : {}),
  });
  say(t("device.calibrated"));
  show(device);
});

onSubmit(byId("check"), async (form) => {
  const deviations = typed(form, "check", CHECKED_HZ);
  const device = await post(`${address}/checks`, { listener: form.get("listener"), deviations_db: deviations });
  say(word("checked", device.daily_check.state));
  show(device);
});

entry(byId("deviations"), "check", t("device.deviations"), CHECKED_HZ);
entry(byId("table"), "full", t("device.full_scale"), TABLE_HZ, { name: t("device.zero_hl"), values: {} });
byId("done_on").value = today();
proposeDue();
byId("done_on").addEventListener("change", proposeDue);
byId("retspl").addEventListener("change", showPreset);

Promise.all([get(address), get("/api/retspl")])
  .then(([device, known]) => {
    presets = known;
    fill(byId("retspl"), presets.map((each) => el("option", { value: each.name }, t("device.preset", each))));
    show(device);
    showPreset();
  })
  .catch(giveUp);
