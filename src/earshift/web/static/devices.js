/* The devices: in what state each is, and a new one, this browser included. */

import { get, post } from "./api.js";
import { byId, complain, el, facts, fill, onSubmit, t, table, word } from "./page.js";

const BROWSER_FACTS = ["browser", "system", "sample_rate", "channels"];
let fingerprint = null;

function row(device) {
  const calibration = device.calibration;
  const state = word("calibration", calibration?.state ?? "none");
  return [
    el("a", { href: `/devices/${device.id}`, dir: "auto" }, device.name),
    word("sound", device.sound),
    calibration?.due_on ? t("devices.until", { state, day: calibration.due_on }) : state,
    word("daily_check", device.daily_check.state),
    device.blocked ? el("strong", {}, t("devices.blocked")) : t("devices.usable"),
  ];
}

async function show() {
  const devices = await get("/api/devices");
  if (devices.length === 0) {
    fill(byId("list"), el("p", { class: "quiet" }, t("devices.none")));
    return;
  }
  const columns = ["name", "sound", "calibration", "check", "use"].map((name) => word("device_column", name));
  fill(byId("list"), table(t("devices.list"), columns, devices.map(row), { class: "list bare" }));
}

async function choose() {
  const browser = byId("sort").value === "browser";
  byId("of-browser").hidden = !browser;
  if (!browser || fingerprint) return;
  const setup = await import("./setup.js");
  setup.becomeDevice();
  fingerprint = setup.fingerprint({});
  facts(byId("fingerprint"), BROWSER_FACTS.map((name) => [word("fingerprint", name), fingerprint[name]]));
}

byId("sort").addEventListener("change", () => choose().catch(complain));

onSubmit(byId("new"), async (form) => {
  const browser = form.get("sort") === "browser";
  const typed = ["earphones", "connection", "volume"].map((name) => [name, form.get(name)]);
  const device = await post("/api/devices", {
    name: form.get("name"),
    transducer: form.get("transducer"),
    model: form.get("model"),
    serial: form.get("serial"),
    fingerprint: browser ? { ...fingerprint, ...Object.fromEntries(typed) } : null,
  });
  location.assign(`/devices/${device.id}`);
});

show().catch(complain);
