// @ts-check
/* Today: who is waiting, who can be found, which devices need attention. */

import { get, post } from "./api.js";
import { byId, el, fill, t, word } from "./dom.js";
import { dayText, nameOf } from "./format.js";
import { acting, complain, formOf, onSubmit, toggles, typed } from "./page.js";
import { table } from "./table.js";

/** @param {Person} person */
const linkTo = (person) => el("a", { href: `/people/${person.id}`, dir: "auto" }, nameOf(person));

/** @param {Person[]} people */
function peopleTable(people) {
  const rows = people.map((person) => [
    linkTo(person),
    person.code ?? "",
    dayText(person.birth_date ?? ""),
  ]);
  const columns = [t("person.name"), t("person.code"), t("person.born")];
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

/** @param {WorkItem} item */
function workItem(item) {
  const { exam, person, why } = item;
  const what = exam
    ? t("today.exam", { kind: word("kind", exam.kind), ear: word("ear", exam.ear) })
    : "";
  const act = exam && why === "unfinished"
    ? el("a", { class: "button", href: `/exams/${exam.id}` }, t("today.resume"))
    : el("a", { class: "button", href: `/people/${person.id}/test` }, t("today.test"));
  return [linkTo(person), word("why", why), what, dayText(item.on), act];
}

/** @param {Worklist} work */
function showWork(work) {
  if (work.items.length === 0) {
    fill(byId("work"), el("p", { class: "quiet" }, t("today.no_work")));
    return;
  }
  const columns = [t("person.name"), t("today.why"), t("today.what"), t("today.on"), t("today.act")];
  const caption = t("today.work_on", { day: work.today });
  fill(byId("work"), table(caption, columns, work.items.map(workItem), { class: "list" }));
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

get("/api/worklist")
  .then((work) => {
    showWork(work);
    showDevices(work.devices);
  })
  .catch(complain);
