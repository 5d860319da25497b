/* Before a test: what, how, and the checklist; then the desk, or the listener's link. */

import { get, post } from "./api.js";
import { linkPanel } from "./link.js";
import {
  byId, el, entitle, fill, giveUp, handle, nameOf, onSubmit, reasonOf, t, word,
} from "./page.js";

const YES_NO = ["cold_or_earache", "loud_noise_24h", "tinnitus", "hearing_aids_out"];
const WORDS = [
  "otoscopy_right", "otoscopy_left", "better_ear", "protector", "room_noise",
  "examiner_certificate", "remarks",
];
const form = byId("plan");
let [rules, devices, exams] = [[], [], []];
let baselines = {};

const chosen = (name) => new FormData(form).get(name);
const ears = () => new FormData(form).getAll("ears");
const device = () => devices.find((each) => each.id === chosen("device")) ?? null;

async function load() {
  const [person, ...lists] = await Promise.all([
    get(`/api/people/${handle()}`),
    get("/api/rules"),
    get("/api/devices"),
  ]);
  [rules, devices] = lists;
  ({ exams, baselines } = person);
  entitle(t("begin.heading_of", { name: nameOf(person) }));
  fill(byId("rule"), rules.map((rule) => el("option", { value: rule.name }, word("rule", rule.name))));
  byId("device").append(...devices.map((each) => el("option", { value: each.id }, each.name)));
  refresh();
}

/** What is said and offered follows from what is chosen. */
function refresh() {
  const screen = chosen("kind") === "screen";
  const one = device();
  byId("of-screen").hidden = !screen;
  const rule = rules.find((each) => each.name === chosen("rule"));
  if (rule) fill(byId("rule-text"), t("begin.rule_text", { text: rule.text, source: rule.source }), rule.unverified ? ` ${rule.unverified}` : "");
  byId("unverified").hidden = !rule?.unverified;
  if (screen) fill(byId("references"), ears().map((ear) => referenceField(ear, one)));
  fill(byId("device-state"), one ? deviceLines(one) : []);
  // Who plays by hand answers by hand: nothing comes out of the browser.
  const byHand = one === null || one.sound === "external";
  const listener = form.elements.answered_by[1];
  listener.disabled = byHand;
  if (byHand) form.elements.answered_by[0].checked = true;
  const alone = form.elements.mode[1];
  alone.disabled = chosen("answered_by") === "examiner";
  if (alone.disabled) form.elements.mode[0].checked = true;
  const supervised = chosen("mode") === "supervised";
  byId("of-levels").hidden = one?.sound === "relative"; // its levels are no dB HL
  byId("loud_confirmed").disabled = !supervised;
  if (!supervised) byId("loud_confirmed").checked = false;
  fill(byId("warnings"), warnings());
}

/**
 * What this ear can be compared with; relative levels only with the same device's. The baseline comes
 * first, then the oldest: a slow loss shows against the first exam, not against last year's.
 */
function referencesOf(ear, one) {
  const relative = one?.sound === "relative";
  const fits = (exam) =>
    relative ? exam.sound === "relative" && exam.device === one.name : !["relative", "simulated"].includes(exam.sound);
  const baseline = (exam) => Number(exam.id === baselines[ear]?.exam);
  return exams
    .filter((exam) => exam.ear === ear && exam.kind !== "screen" && exam.state === "done" && fits(exam))
    .sort((one, other) => baseline(other) - baseline(one));
}

function referenceField(ear, one) {
  const known = referencesOf(ear, one);
  const name = word("ear", ear);
  if (known.length === 0) return el("p", { class: "caution" }, t("begin.no_reference", { ear: name }));
  const before = byId(`reference-${ear}`)?.value;
  const options = known.map((exam) => {
    const values = { kind: word("kind", exam.kind), on: exam.measured_on ?? t("person.no_day"), source: exam.source };
    const plain = exam.source ? t("begin.reference_from", values) : t("begin.reference", values);
    const text = exam.id === baselines[ear]?.exam ? t("begin.baseline", { reference: plain }) : plain;
    return el("option", { value: exam.id, selected: exam.id === before }, text);
  });
  return el("div", { class: "field" },
    el("label", { for: `reference-${ear}` }, t("begin.compared", { ear: name })),
    el("select", { id: `reference-${ear}` }, options));
}

/** The references chosen, by ear; an ear that has none is left to the server's refusal. */
function references() {
  const chosenOf = (ear) => byId(`reference-${ear}`)?.value;
  return Object.fromEntries(ears().filter(chosenOf).map((ear) => [ear, chosenOf(ear)]));
}

function deviceLines(one) {
  const calibration = one.calibration?.state ?? "none";
  const lines = [t("begin.device_state", {
    sound: word("sound", one.sound),
    calibration: word("calibration", calibration),
    check: word("daily_check", one.daily_check.state),
  })];
  const line = el("p", { class: "hint" }, lines, " ", el("a", { href: `/devices/${one.id}` }, t("begin.device_page")));
  return one.blocked ? [el("p", { class: "caution" }, one.blocked), line] : [line];
}

/** What an examiner should think of before the first tone (practice of hearing conservation). */
function warnings() {
  const found = [];
  const one = device();
  if (one === null) found.push(t("warning.unlisted"));
  else if (one.sound === "relative") found.push(t("warning.relative"));
  else if (one.calibration?.state === "expired") found.push(t("warning.expired"));
  if (one?.daily_check.state === "missing") found.push(t("warning.check"));
  if (chosen("loud_noise_24h") === "yes") found.push(t("warning.noise"));
  const hours = chosen("hours_since_noise");
  if (chosen("kind") === "exam" && hours !== "" && Number(hours) < 14) found.push(t("warning.hours"));
  if (chosen("cold_or_earache") === "yes") found.push(t("warning.cold"));
  if (chosen("hearing_aids_out") === "no") found.push(t("warning.aids"));
  if (chosen("room_noise") === "noisy") found.push(t("warning.room"));
  for (const ear of ears()) {
    const seen = chosen(`otoscopy_${ear}`);
    if (seen && seen !== "normal") found.push(t("warning.otoscopy", { ear: word("ear", ear) }));
  }
  return found.map((text) => el("p", { class: "caution" }, text));
}

function checklist() {
  const given = {};
  for (const name of YES_NO) if (chosen(name)) given[name] = chosen(name) === "yes";
  for (const name of WORDS) if (chosen(name).trim()) given[name] = chosen(name).trim();
  if (chosen("hours_since_noise") !== "") given.hours_since_noise = Number(chosen("hours_since_noise"));
  return given;
}

async function start() {
  const plan = {
    kind: chosen("kind"),
    ears: ears(),
    rule: chosen("kind") === "screen" ? chosen("rule") : null,
    protocol: null,
    device: chosen("device") || null,
    mode: chosen("mode"),
    answered_by: chosen("answered_by"),
    checklist: checklist(),
    loud_confirmed: byId("loud_confirmed").checked && !byId("of-levels").hidden,
    accept_calibration: byId("accept_calibration").checked,
    accept_unverified: byId("accept_unverified").checked && !byId("unverified").hidden,
    practice: byId("practice").checked,
    reference: chosen("kind") === "screen" ? references() : null,
  };
  const test = await post(`/api/people/${handle()}/tests`, plan);
  const first = `/exams/${test.exams[0].id}`;
  if (plan.answered_by === "examiner") {
    location.assign(first);
    return;
  }
  form.hidden = true;
  byId("started").hidden = false;
  byId("follow").href = first;
  fill(byId("started-warnings"), test.warnings.map((text) => el("p", { class: "caution" }, text)));
  byId("started-heading").focus();
  await linkPanel(byId("link"), test.visit).create();
}

form.addEventListener("change", refresh);
onSubmit(form, async () => {
  try {
    await start();
  } catch (error) {
    // Said beside the button too: the top of a long form is out of sight.
    byId("warnings").append(el("p", { class: "caution" }, reasonOf(error)));
    throw error;
  }
});
load().catch(giveUp);
