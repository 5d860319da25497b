// @ts-check
/* Before a test: what, how, and the checklist; then the desk, or the listener's link. What may be
   chosen comes from the server and from the form's template; this page only shows it. */

import { at, get, post } from "./api.js";
import { byId, el, fill, t, word } from "./dom.js";
import { BOTH, EARS } from "./ears.js";
import { capital, nameOf } from "./format.js";
import { linkPanel } from "./link.js";
import { complain, formOf, giveUp, handle, inputOf, onSubmit, reasonOf, setHeading, typed } from "./page.js";
import { NOTCH, fillIn, remember } from "./usual.js";

const YES_NO = /** @type {const} */ ([
  "cold_or_earache", "loud_noise_24h", "tinnitus", "hearing_aids_out",
]);
const WORDS = /** @type {const} */ ([
  "otoscopy_right", "otoscopy_left", "better_ear", "protector", "room_noise",
  "examiner_certificate", "remarks",
]);
const REMEMBERED = ["kind", "rule", "device", "answered_by", "mode"];
const names = { person: handle() };
const form = formOf("plan");
const known = {
  rules: /** @type {Rule[]} */ ([]),
  devices: /** @type {Device[]} */ ([]),
  references: /** @type {PersonFile["references"]} */ ([]),
  comparison: /** @type {Record<string, string>} */ ({}),
  screensCount: true, // as a periodic audiogram
};

/** @param {string} name */
const chosen = (name) => typed(new FormData(form), name);
/** As the server takes them: one, both in one sitting, or one after the other. */
const sittings = () => /** @type {NewTest["ears"]} */ (chosen("ears").split(" "));
const ears = () => EARS.filter((ear) => sittings().some((one) => one === ear || one === BOTH));
const device = () => known.devices.find((each) => each.id === chosen("device")) ?? null;
const isScreen = () => chosen("kind") === "screen";
const isNotch = () => isScreen() && chosen("rule") === NOTCH;

async function load() {
  const [person, rules, devices, settings] = await Promise.all([
    get(at("/api/people/{person}", names)),
    get("/api/rules"),
    get("/api/devices"),
    get("/api/settings"),
  ]);
  askForQuiet(settings);
  known.screensCount = settings.find((each) => each.name === "screen_keeps_interval")?.value === true;
  Object.assign(known, { rules, devices, references: person.references });
  setHeading(t("begin.heading_of", { name: nameOf(person) }));
  fill(
    byId("rule"),
    rules.map((rule) => el("option", { value: rule.name }, word("rule", rule.name))),
    el("option", { value: NOTCH }, t("begin.notch")),
  );
  byId("device").append(...devices.map((each) => el("option", { value: each.id }, each.name)));
  fillIn(form, known, person.last_test);
  refresh();
  await compare();
}

/**
 * How long it has to have been quiet before a baseline is the site's to say.
 * @param {SiteSetting[]} settings
 */
function askForQuiet(settings) {
  const n = Number(settings.find((each) => each.name === "baseline_quiet_hours")?.value);
  fill(byId("hours_since_noise-hint"), t("begin.hours_hint", { n }));
}

/** Ask what to know of the chosen device beside each reference, and say it. */
async function compare() {
  const one = chosen("device");
  const found = await get(at("/api/people/{person}/comparison", names, one ? { device: one } : {}));
  if (one !== chosen("device")) return; // another was chosen meanwhile: its own answer is shown
  known.comparison = found;
  refresh();
}

/** @returns {string[]} what to know before a screen is compared with the chosen references */
function comparisonCautions() {
  if (!isScreen() || isNotch()) return [];
  const found = ears().map((ear) => known.comparison[chosen(`reference-${ear}`)]).filter(Boolean);
  return [...new Set(found)];
}

/** What is said and offered follows from what is chosen. */
function refresh() {
  const one = device();
  byId("of-screen").hidden = !isScreen();
  byId("counts-not").hidden = !isScreen() || known.screensCount;
  showRule();
  const compared = isScreen() && !isNotch();
  fill(byId("references"), compared ? ears().map((ear) => referenceField(ear, one)) : []);
  fill(byId("device-state"), one ? deviceLines(one) : []);
  byId("of-levels").hidden = one !== null && one.unit !== "dB HL";
  offerOnlyPossible(one);
  const said = one?.warnings.filter((text) => text !== one.blocked); // that is said above
  const ofDevice = said ?? [t("warning.unlisted")];
  warn("device-warnings", [...ofDevice, ...comparisonCautions()]);
}

/**
 * @param {string} place beside what the warnings are about
 * @param {string[]} texts
 */
function warn(place, texts) {
  fill(byId(place), texts.map((text) => el("p", { class: "caution" }, text)));
}

function showRule() {
  const rule = known.rules.find((each) => each.name === chosen("rule"));
  byId("unverified").hidden = !rule?.unverified;
  if (isNotch()) fill(byId("rule-text"), t("begin.notch_text"));
  if (!rule) return;
  const text = t("begin.rule_text", { text: rule.text, source: rule.source });
  fill(byId("rule-text"), [capital(text), rule.unverified].filter(Boolean).join(" "));
}

/**
 * Grey out what cannot go with what is chosen: who may answer on the device is the server's to say,
 * what goes together in the form is its template's (`data-needs` holds a field and its value).
 * @param {Device | null} one
 */
function offerOnlyPossible(one) {
  const possible = one?.answered_by ?? ["examiner"];
  byId("one-by-one").hidden = one?.sound !== "relative";
  byId("needs-player").hidden = possible.includes("listener");
  for (const input of form.querySelectorAll("input")) {
    if (input.name === "answered_by") input.disabled = !possible.includes(input.value);
    const [name, value] = (input.dataset.needs ?? "").split("=");
    if (name) input.disabled = chosen(name) !== value;
    // Without calibration each ear has its own loudness, and a sitting has but one.
    if (input.name === "ears" && input.value === BOTH) input.disabled = one?.sound === "relative";
    if (!input.disabled || !input.checked) continue;
    input.checked = false;
    const first = form.querySelector(`input[type=radio][name="${input.name}"]:enabled`);
    if (first instanceof HTMLInputElement) first.checked = true;
  }
}

/**
 * What this ear can be compared with on the chosen device, as the server says.
 * @param {Ear} ear
 * @param {Device | null} one
 */
function referenceField(ear, one) {
  const ofDevice = known.references.find((each) => each.device === one?.id);
  const choices = (ofDevice ?? known.references.find((each) => each.device === null))?.ears[ear] ?? [];
  const name = word("ear", ear);
  if (!choices.some((choice) => choice.reason === null)) {
    return el("p", { class: "caution" }, t("begin.no_reference", { ear: name }), " ",
      choices.map((choice) => `${capital(referenceText(choice))}: ${choice.reason}`).join(" "));
  }
  const id = `reference-${ear}`;
  const before = document.getElementById(id);
  const kept = before instanceof HTMLSelectElement ? before.value : null;
  const again = choices.some((choice) => choice.exam === kept && choice.reason === null);
  const options = choices.map((choice) =>
    el("option", {
      value: choice.exam,
      selected: again ? choice.exam === kept : choice.default,
      disabled: choice.reason !== null,
    }, [referenceText(choice), choice.reason ?? choice.caution].filter(Boolean).join(" \u2013 ")),
  );
  const none = choices.some((choice) => choice.default || (again && choice.exam === kept))
    ? null
    : el("option", { value: "", selected: true }, t("begin.choose_reference"));
  return el("div", { class: "field" },
    el("label", { for: id }, t("begin.compared", { ear: name })),
    el("select", { id, name: id }, none, options));
}

/** @param {PersonFile["references"][number]["ears"][string][number]} choice */
function referenceText({ kind, measured_on: day, source, baseline }) {
  const values = { kind: word("kind", kind), on: day ?? t("person.no_day"), source };
  const reference = source ? t("begin.reference_from", values) : t("begin.reference", values);
  return baseline ? t("begin.baseline", { reference }) : reference;
}

/** The references chosen, by ear; an ear that has none is left to the server. */
function references() {
  const pairs = ears().map((ear) => [ear, chosen(`reference-${ear}`)]).filter(([, exam]) => exam);
  return pairs.length ? Object.fromEntries(pairs) : null;
}

/** @param {Device} one */
function deviceLines(one) {
  const state = t("begin.device_state", {
    sound: word("sound", one.sound),
    calibration: word("calibration", one.calibration.state),
    check: word("daily_check", one.daily_check.state),
  });
  const page = el("a", { href: `/devices/${one.id}` }, t("begin.device_page"));
  const line = el("p", { class: "hint" }, state, " ", page);
  return one.blocked ? [el("p", { class: "caution bad" }, one.blocked), line] : [line];
}

/** Ask what the answers to the checklist say against a result, and say it. */
async function caution() {
  const answers = checklist();
  const found = await post("/api/checklist/cautions", answers);
  if (JSON.stringify(answers) === JSON.stringify(checklist())) warn("warnings", found);
}

/** @returns {Checklist} */
function checklist() {
  const yesNo = YES_NO.map((name) => [name, chosen(name) === "" ? null : chosen(name) === "yes"]);
  const words = WORDS.map((name) => [name, chosen(name).trim() || null]);
  const hours = chosen("hours_since_noise");
  return {
    ...Object.fromEntries([...yesNo, ...words]),
    hours_since_noise: hours === "" ? null : Number(hours),
  };
}

/** @returns {NewTest} */
function plan() {
  return {
    kind: isScreen() ? "screen" : "exam",
    ears: sittings(),
    rule: isScreen() && !isNotch() ? chosen("rule") : null,
    notch: isNotch(),
    protocol: null,
    device: chosen("device") || null,
    mode: chosen("mode") === "self" ? "self" : "supervised",
    answered_by: chosen("answered_by") === "listener" ? "listener" : "examiner",
    checklist: checklist(),
    loud_confirmed: inputOf("loud_confirmed").checked && !byId("of-levels").hidden,
    accept_calibration: inputOf("accept_calibration").checked,
    accept_unverified: inputOf("accept_unverified").checked && !byId("unverified").hidden,
    practice: inputOf("practice").checked,
    reference: isScreen() && !isNotch() ? references() : null,
  };
}

async function start() {
  const wanted = plan();
  remember(Object.fromEntries(REMEMBERED.map((name) => [name, chosen(name)])));
  const test = await post(at("/api/people/{person}/tests", names), wanted);
  const first = `/exams/${test.exams[0].id}`;
  if (wanted.answered_by === "examiner") {
    location.assign(first);
    return;
  }
  form.hidden = true;
  byId("started").hidden = false;
  byId("follow", HTMLAnchorElement).href = first;
  fill(byId("started-warnings"), test.warnings.map((text) => el("p", { class: "caution" }, text)));
  byId("started-heading").focus();
  await linkPanel(byId("link"), test.visit).create();
}

form.addEventListener("change", (event) => {
  refresh();
  const changed = event.target instanceof Element ? event.target : null;
  if (changed?.id === "device") compare().catch(complain);
  if (changed?.closest("#checklist")) caution().catch(complain);
});
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
