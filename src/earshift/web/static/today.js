/* Today: who is waiting, who can be found, which devices need attention. */

import { get, post } from "./api.js";
import {
  acting, byId, complain, dayText, el, fill, nameOf, onSubmit, t, table, toggles, word,
} from "./page.js";

const linkTo = (person) => el("a", { href: `/people/${person.id}`, dir: "auto" }, nameOf(person));

function peopleTable(people) {
  const rows = people.map((person) => [
    linkTo(person),
    person.code ?? "",
    dayText(person.birth_date ?? ""),
  ]);
  const columns = [t("person.name"), t("person.code"), t("person.born")];
  return table(t("today.found"), columns, rows, { class: "list" });
}

async function find(text) {
  const people = [];
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

onSubmit(byId("find"), (form) => find(form.get("text").trim()));

toggles(byId("show-new"));
onSubmit(byId("new"), async (form) => {
  const given = Object.fromEntries([...form].map(([name, value]) => [name, value.trim() || null]));
  const person = await post("/api/people", given);
  location.assign(`/people/${person.id}`);
});

function workItem(item) {
  const exam = item.exam;
  const what = exam
    ? t("today.exam", { kind: word("kind", exam.kind), ear: word("ear", exam.ear) })
    : "";
  const act = exam && item.why === "unfinished"
    ? el("a", { class: "button", href: `/exams/${exam.id}` }, t("today.resume"))
    : el("a", { class: "button", href: `/people/${item.person.id}/test` }, t("today.test"));
  return [linkTo(item.person), word("why", item.why), what, dayText(item.on), act];
}

function showWork(work) {
  if (work.items.length === 0) {
    fill(byId("work"), el("p", { class: "quiet" }, t("today.no_work")));
    return;
  }
  const columns = ["person.name", "today.why", "today.what", "today.on"].map((key) => t(key));
  const rows = work.items.map(workItem);
  fill(byId("work"), table(t("today.work_on", { day: work.today }), [...columns, t("today.act")], rows, { class: "list" }));
}

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

function deviceTrouble(device) {
  if (device.blocked) return device.blocked;
  const calibration = word("calibration", device.calibration?.state ?? "none");
  const check = word("daily_check", device.daily_check?.state ?? "missing");
  return t("today.device_state", { calibration, check });
}

get("/api/worklist")
  .then((work) => {
    showWork(work);
    showDevices(work.devices);
  })
  .catch(complain);
