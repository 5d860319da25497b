// @ts-check
/* The devices: in what state each is, and a new one, this browser included. */

import { get, post } from "./api.js";
import { becomeDevice, fingerprint } from "./browser_device.js";
import { byId, el, fill, t, word } from "./dom.js";
import { complain, formOf, onSubmit, typed } from "./page.js";
import { facts, table } from "./table.js";

/** @type {(keyof Fingerprint)[]} */
const BROWSER_FACTS = ["browser", "system", "sample_rate", "channels"];
const sort = byId("sort", HTMLSelectElement);
/** @type {Fingerprint | null} */
let here = null;

/** @param {Device} device */
function useOf(device) {
  if (device.blocked) return el("strong", { class: "late" }, t("devices.blocked"));
  const state = device.in_order ? t("devices.usable") : t("devices.attention");
  return device.default ? t("devices.usual", { state }) : state;
}

/** @param {Device} device */
function checkOf({ daily_check: { state } }) {
  const said = word("daily_check", state);
  return state === "failed" ? el("strong", { class: "late" }, said) : said;
}

/** @param {Device} device */
function row(device) {
  const { calibration } = device;
  const state = word("calibration", calibration.state);
  return [
    el("a", { href: `/devices/${device.id}`, dir: "auto" }, device.name),
    word("sound", device.sound),
    calibration.due_on ? t("devices.until", { state, day: calibration.due_on }) : state,
    checkOf(device),
    useOf(device),
  ];
}

async function show() {
  const devices = await get("/api/devices");
  if (devices.length === 0) {
    fill(byId("list"), el("p", { class: "quiet" }, t("devices.none")));
    return;
  }
  const columns = ["name", "sound", "calibration", "check", "use"];
  const names = columns.map((name) => word("device_column", name));
  fill(byId("list"), table(t("devices.list"), names, devices.map(row), { class: "list bare" }));
}

function choose() {
  const browser = sort.value === "browser";
  byId("of-browser").hidden = !browser;
  if (!browser || here) return;
  becomeDevice();
  const found = fingerprint();
  here = found;
  facts(byId("fingerprint"), BROWSER_FACTS.map((name) => [word("fingerprint", name), found[name]]));
}

sort.addEventListener("change", choose);

onSubmit(formOf("new"), async (fields) => {
  const browser = typed(fields, "sort") === "browser" ? here : null;
  const device = await post("/api/devices", {
    name: typed(fields, "name"),
    transducer: /** @type {"unknown"} */ (typed(fields, "transducer")),
    model: typed(fields, "model"),
    serial: typed(fields, "serial"),
    fingerprint: browser && {
      ...browser,
      earphones: typed(fields, "earphones"),
      connection: /** @type {"unknown"} */ (typed(fields, "connection")),
      volume: typed(fields, "volume"),
    },
  });
  location.assign(`/devices/${device.id}`);
});

show().catch(complain);
