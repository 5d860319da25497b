// @ts-check
/* Today: who is waiting, who can be found, which devices need attention. */

import { at, get, post } from "./api.js";
import { byId, el, fill, t, word } from "./dom.js";
import { dayText } from "./format.js";
import { acting, complain, formOf, onSubmit, toggles, typed } from "./page.js";
import { table } from "./table.js";
import { linkTo, workTable } from "./work.js";

const MOST_URGENT = 15;

/** @param {Person[]} people */
function peopleTable(people) {
  const rows = people.map((person) => [
    linkTo(person),
    person.code ?? "",
    dayText(person.birth_date ?? ""),
    el("span", { dir: "auto" }, person.department ?? ""),
  ]);
  const columns = [t("person.name"), t("person.code"), t("person.born"), t("person.department")];
  return table(t("today.found"), columns, rows, { class: "list" });
}

/** @param {string} text */
async function find(text) {
  /** @type {Person[]} */
  const people = [];
  /** @type {string | null} */
  let next = null;
  const more = el("button", { type: "button", click: () => acting(more, load) }, t("today.more"));
  async function load() {
    const answer = await post("/api/people/search", { text: text || null, after: next });
    people.push(...answer.people);
    next = answer.next;
    if (people.length === 0) fill(byId("found"), el("p", {}, t("today.nobody")));
    else fill(byId("found"), peopleTable(people), next ? el("p", {}, more) : null);
  }
  await load();
}

onSubmit(formOf("find"), (fields) => find(typed(fields, "text").trim()));

toggles(byId("show-new"));
onSubmit(formOf("new"), async (fields) => {
  const given = [...fields.keys()].map((name) => [name, typed(fields, name).trim() || null]);
  const person = await post("/api/people", Object.fromEntries(given));
  location.assign(`/people/${person.id}`);
});

/** @param {Worklist} work */
function showWork(work) {
  if (work.total === 0) {
    fill(byId("work"), el("p", { class: "quiet" }, t("today.no_work")));
    return;
  }
  const left = work.total - work.items.length;
  const all = left > 0 ? t("work.left_all", { n: left }) : t("work.whole");
  fill(
    byId("work"),
    el("p", {}, t("work.count", { total: work.total, overdue: work.overdue, day: work.today })),
    workTable(work.items, { caption: t("today.work_on", { day: work.today }) }),
    el("p", {}, el("a", { href: "/worklist" }, all)),
  );
}

/** @param {Device[]} devices */
function showDevices(devices) {
  if (devices.length === 0) {
    fill(byId("devices"), el("p", { class: "quiet" }, t("today.devices_fine")));
    return;
  }
  const items = devices.map((device) =>
    el("li", {},
      el("a", { href: `/devices/${device.id}`, dir: "auto" }, device.name),
      el("p", { class: "hint" }, deviceTrouble(device)),
    ),
  );
  fill(byId("devices"), el("ul", { class: "plain" }, items));
}

/** @param {Device} device */
function deviceTrouble(device) {
  if (device.blocked) return device.blocked;
  const calibration = word("calibration", device.calibration.state);
  return t("today.device_state", { calibration, check: word("daily_check", device.daily_check.state) });
}

get(at("/api/worklist", {}, { limit: MOST_URGENT }))
  .then((work) => {
    showWork(work);
    showDevices(work.devices);
    fill(byId("backup"), work.backup ? el("p", { class: "caution" }, work.backup) : null);
  })
  .catch(complain);
