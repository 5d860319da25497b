// @ts-check
/* One device: its state, the daily check by ear, and its calibration table. */

import { at, get, post } from "./api.js";
import { checkHistory } from "./check_history.js";
import { byId, el, fill, t, word } from "./dom.js";
import { EARS } from "./ears.js";
import { decibels, hertz, today } from "./format.js";
import { acting, formOf, giveUp, handle, inputOf, onSubmit, say, setHeading, typed } from "./page.js";
import { facts, table } from "./table.js";

const CHECKED_HZ = [500, 1000, 2000, 4000];
const TABLE_HZ = [250, 500, 1000, 2000, 3000, 4000, 6000, 8000];
const NOT_KNOWN = "\u2013";
const names = { device: handle() };
const preset = byId("retspl", HTMLSelectElement);
/** @type {Retspl[]} */
let presets = [];

/** @param {Device} device */
function show(device) {
  setHeading(device.name);
  const { calibration, daily_check: check } = device;
  const checked = word("daily_check", check.state);
  fill(byId("blocked"), device.blocked ? el("p", { class: "caution bad" }, device.blocked) : null);
  facts(byId("state"), [
    [t("device.default"), device.default ? t("device.default_yes") : null],
    [t("device.sound"), word("sound", device.sound)],
    [t("devices.transducer"), word("transducer", device.transducer)],
    [t("devices.model"), device.model],
    [t("devices.serial"), device.serial],
    [t("device.calibration"), word("calibration", calibration.state)],
    [t("device.done_on"), calibration.done_on],
    [t("device.due_on"), calibration.due_on],
    [t("device.laboratory"), calibration.laboratory],
    [t("device.coupler"), calibration.coupler],
    [t("device.kind"), calibration.kind ? word("calibration_kind", calibration.kind) : null],
    [
      t("device.check"),
      check.on ? t("devices.checked_on", { state: checked, day: check.on }) : checked,
    ],
    ...fingerprintFacts(device),
  ]);
  // Of a device that is blocked nothing helps but a calibration.
  byId("guided").classList.toggle("main", !device.blocked);
  const button = byId("default");
  button.hidden = device.blocked !== null && !device.default;
  button.textContent = device.default ? t("device.not_default") : t("device.make_default");
  button.dataset.default = String(!device.default);
  // An audiometer sets its own levels: there is nothing to convert, so no table.
  byId("of-table").hidden = device.sound === "external";
}

/** What depends on calibrations and checks, shown anew after each. */
async function showAbout() {
  const [range, checks] = await Promise.all([
    get(at("/api/devices/{device}/range", names)),
    get(at("/api/devices/{device}/checks", names)),
  ]);
  fill(byId("range"), rangeOf(range));
  checkHistory(byId("history"), checks);
}

/** @param {PlayableRange} range */
function rangeOf({ unit, rows }) {
  if (rows.length === 0) return el("p", {}, t("device.range_external"));
  /** @param {[number, number] | null} ends */
  const between = (ends) => {
    if (ends === null) return el("span", { class: "late" }, t("device.range_nothing"));
    return t("device.range_between", { low: decibels(ends[0]), high: decibels(ends[1]) });
  };
  const columns = [t("column.frequency"), ...EARS.map((ear) => word("ear", ear))];
  const cells = rows.map((row) =>
    [hertz(row.frequency_hz), ...EARS.map((ear) => between(row[ear]))]);
  const relative = unit !== "dB HL";
  return [
    el("p", { class: relative ? "caution" : "hint" }, relative ? t("device.range_relative") : t("device.range_hint")),
    table(t("device.range_unit", { unit }), columns, cells),
  ];
}

/**
 * @param {Device} device
 * @returns {[string, string][]}
 */
function fingerprintFacts({ fingerprint }) {
  return Object.entries(fingerprint).map(([name, value]) => [
    word("fingerprint", name),
    name === "connection" ? word("connection", value) : String(value),
  ]);
}

/**
 * A table of numbers to type: a row per frequency, a column per ear, what is known before them.
 * @param {Element} place
 * @param {"check" | "full"} name
 * @param {string} caption
 * @param {number[]} frequencies
 * @param {string | null} known the heading of the column for what is known
 */
function numberTable(place, name, caption, frequencies, known = null) {
  /**
   * @param {number} hz
   * @param {Ear} ear
   */
  const input = (hz, ear) =>
    el("input", {
      type: "number",
      step: "any",
      name: `${name}-${ear}-${hz}`,
      "aria-label": t("device.cell", { ear: word("ear", ear), hz: hertz(hz) }),
      inputmode: "decimal",
      required: name === "check",
    });
  const columns = [t("column.frequency"), ...(known ? [known] : []), ...EARS.map((ear) => word("ear", ear))];
  const rows = frequencies.map((hz) =>
    el("tr", {},
      el("th", { scope: "row" }, hertz(hz)),
      known ? el("td", { "data-hz": hz }, NOT_KNOWN) : null,
      EARS.map((ear) => el("td", {}, input(hz, ear)))),
  );
  fill(
    place,
    el("caption", {}, caption),
    el("thead", {}, el("tr", {}, columns.map((column) => el("th", { scope: "col" }, column)))),
    el("tbody", {}, rows),
  );
}

/**
 * The numbers that were typed, by ear and frequency; empty cells are left out.
 * @param {FormData} fields
 * @param {"check" | "full"} name
 * @param {number[]} frequencies
 */
function typedNumbers(fields, name, frequencies) {
  /** @param {Ear} ear */
  const ofEar = (ear) =>
    frequencies
      .map((hz) => [hz, typed(fields, `${name}-${ear}-${hz}`)])
      .filter(([, value]) => value !== "")
      .map(([hz, value]) => [hz, Number(value)]);
  return Object.fromEntries(EARS.map((ear) => [ear, Object.fromEntries(ofEar(ear))]));
}

/** A calibration is due again a year later, unless another day is typed. */
function proposeDue() {
  const due = new Date(inputOf("done_on").value);
  if (Number.isNaN(due.getTime())) return;
  due.setUTCFullYear(due.getUTCFullYear() + 1);
  inputOf("due_on").value = due.toISOString().slice(0, 10);
}

function showPreset() {
  const chosen = presets.find((each) => each.name === preset.value);
  if (!chosen) return;
  for (const cell of byId("table").querySelectorAll("td[data-hz]")) {
    const value = chosen.values[cell.getAttribute("data-hz") ?? ""];
    cell.textContent = value === undefined ? NOT_KNOWN : decibels(value);
  }
  const coupler = inputOf("coupler");
  if (coupler.value === "" || presets.some((each) => each.coupler === coupler.value)) {
    coupler.value = chosen.coupler;
  }
  const list = el("dl", { class: "facts" });
  facts(list, [
    [t("device.earphone"), chosen.earphone],
    [t("device.coupler"), chosen.coupler],
    [t("device.source"), chosen.source],
    [t("device.status"), word("status", chosen.status)],
  ]);
  fill(byId("about-retspl"), list);
}

onSubmit(formOf("calibration"), async (fields) => {
  const levels = byId("of-table").hidden ? {} : typedNumbers(fields, "full", TABLE_HZ);
  const given = Object.values(levels).some((ofEar) => Object.keys(ofEar).length > 0);
  const measured = {
    retspl: typed(fields, "retspl"),
    full_scale_db_spl: levels,
    floor_dbfs: Number(typed(fields, "floor_dbfs")),
  };
  const device = await post(at("/api/devices/{device}/calibrations", names), {
    done_on: typed(fields, "done_on"),
    due_on: typed(fields, "due_on"),
    laboratory: typed(fields, "laboratory"),
    coupler: typed(fields, "coupler"),
    kind: /** @type {"acoustic" | "exhaustive"} */ (typed(fields, "kind")),
    ...(given ? measured : {}),
  });
  say(t("device.calibrated"));
  show(device);
  await showAbout();
});

onSubmit(formOf("check"), async (fields) => {
  const device = await post(at("/api/devices/{device}/checks", names), {
    listener: typed(fields, "listener"),
    deviations_db: typedNumbers(fields, "check", CHECKED_HZ),
  });
  say(word("checked", device.daily_check.state));
  show(device);
  await showAbout();
});

byId("default").addEventListener("click", () =>
  acting(byId("default"), async () => {
    const wanted = byId("default").dataset.default === "true";
    show(await post(at("/api/devices/{device}/default", names), { default: wanted }));
    say(wanted ? t("device.made_default") : t("device.made_no_default"));
  }),
);

numberTable(byId("deviations"), "check", t("device.deviations"), CHECKED_HZ);
numberTable(byId("table"), "full", t("device.full_scale"), TABLE_HZ, t("device.zero_hl"));
inputOf("done_on").value = today();
proposeDue();
inputOf("done_on").addEventListener("change", proposeDue);
preset.addEventListener("change", showPreset);

Promise.all([get(at("/api/devices/{device}", names)), get("/api/retspl")])
  .then(([device, known]) => {
    presets = known;
    fill(preset, presets.map((each) => el("option", { value: each.name }, t("device.preset", each))));
    show(device);
    showPreset();
    byId("guided", HTMLAnchorElement).href = `/devices/${names.device}/check`;
    return showAbout();
  })
  .catch(giveUp);
