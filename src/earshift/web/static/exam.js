/* One exam as the examiner sees it: the live view, the desk for answers by hand, what to do next. */

import { get, getIfChanged, post } from "./api.js";
import { linkPanel } from "./link.js";
import { liveView } from "./live.js";
import {
  acting, byId, complain, decibels, el, entitle, fill, giveUp, handle, nameOf, say, t, word,
} from "./page.js";
import { pageSound, playOnce } from "./player.js";
import { DESK_STEPS, createSetup } from "./setup.js";

const POLL_MS = 1000;
const REST_MS = 5000; // of a test that is over
const address = `/api/exams/${handle()}`;
const view = liveView();
let [exam, live, tag, panel] = [null, null, null, null];
let looks = 0;
let answering = false;
const audio = pageSound(trouble);
let [setup, checked] = [null, false]; // the set-up under way, and whether this page has passed it
let [sounding, played] = [null, null]; // what is heard now, and the trial that was played last
let problem = null; // what the last answer has shown to be wrong
let unsent = null; // a stop that the server does not know of yet

// What the server says

async function look() {
  looks += 1;
  const mine = looks; // what was asked earlier and comes later is no longer true
  const answer = await getIfChanged(`${address}/live`, tag);
  if (mine !== looks || (answer.content === null && exam !== null)) return;
  const now = await get(address);
  if (mine !== looks) return;
  tag = answer.tag;
  if (answer.content !== null) live = answer.content;
  show(now);
}

/** Ask about once a second while the page is seen; a lost connection is said once and retried. */
async function follow() {
  let lost = false;
  for (;;) {
    if (!document.hidden && !answering) {
      try {
        await look();
        if (lost) say(t("exam.back"));
        lost = false;
      } catch (error) {
        if (error.status !== 0) throw error;
        if (!lost) complain(error);
        lost = true;
      }
    }
    const over = ["done", "abandoned"].includes(exam?.state);
    await new Promise((resolve) => setTimeout(resolve, over ? REST_MS : POLL_MS));
  }
}

function show(now) {
  exam = now;
  if (exam.play?.state !== "play") leaveChecked();
  const name = nameOf(exam.person);
  const values = { name, kind: word("kind", exam.kind), ear: word("ear", exam.ear) };
  entitle(t("exam.heading_of", values));
  showEars();
  showSetUp();
  showDesk();
  showListener();
  showActions();
  if (live === null) return;
  const notes = [...(exam.remarks ?? []), ...live.notes];
  view.draw({ ...live, notes }, exam.state === "open" ? exam.play?.presentation : null);
}

function showEars() {
  const links = exam.ears_of_visit.map((each) =>
    el("a", { href: `/exams/${each.exam}`, class: `ear ${each.ear}`, "aria-current": each.exam === exam.id ? "page" : null },
      t("exam.tab", { ear: word("ear", each.ear), kind: word("kind", each.kind), state: word("state", each.state) })),
  );
  fill(byId("ears"), links);
  const person = el("a", { href: `/people/${exam.person.id}` }, t("exam.person"));
  const device = exam.device ? t("exam.device", { name: exam.device }) : null;
  const parts = [word("mode", exam.mode), word("sound", exam.sound), exam.measured_on, device];
  fill(byId("about-exam"), person, ` \u00B7 ${parts.filter(Boolean).join(" \u00B7 ")}`);
}

// The desk: tones played by hand or by this browser, answers by button or key

const presentation = () => exam?.play?.presentation ?? null;
const byHand = () => exam.play.sound.kind === "external";
const goesOn = () => exam?.answered_by === "examiner" && ["open", "paused"].includes(exam.state);
const needsSetUp = () => goesOn() && !byHand() && !checked;
const atDesk = () => goesOn() && exam.can.includes("answer") && !needsSetUp();
const mayAnswer = () =>
  atDesk() && presentation() !== null && (byHand() || played === presentation().trial);

function showDesk() {
  const left = !atDesk() && !needsSetUp() && byId("desk").contains(document.activeElement);
  byId("desk").hidden = !atDesk();
  if (left) byId("verdict-heading").focus();
  if (!atDesk()) return;
  const { presentation: tone, sound, progress } = exam.play;
  byId("answers").hidden = tone === null;
  allowAnswers();
  const text = tone === null ? t("desk.over") : toneText(tone, sound);
  if (byId("tone").textContent !== text) {
    byId("tone").textContent = text;
    byId("played_db").value = "";
  }
  byId("progress").textContent = t("desk.progress", { n: progress.answered, most: progress.at_most });
  byId("play-row").hidden = tone === null || byHand();
  byId("played-otherwise").hidden = !byHand() || (tone?.level ?? null) === null;
}

function toneText(tone, sound) {
  const ear = word("the_ear", exam.ear);
  if (tone.level === null) return t(byHand() ? "desk.silence" : "desk.silence_played", { ear });
  const values = { ear, hz: tone.frequency_hz, level: decibels(tone.level), unit: sound.unit };
  return tone.practice ? t("desk.practice", values) : t("desk.tone", values);
}

async function answer(heard) {
  if (!mayAnswer() || answering) return;
  answering = true;
  try {
    const typed = byId("played_db").value;
    const played = typed === "" || byId("played-otherwise").hidden ? null : Number(typed);
    const body = { trial: presentation().trial, heard, reaction_ms: null, played_db: played };
    problem = (await post(`${address}/answer`, body)).problem;
    byId("played_db").value = "";
    await look();
  } catch (error) {
    complain(error);
  } finally {
    answering = false;
  }
}

function allowAnswers() {
  for (const answer of [byId("heard"), byId("missed")]) answer.disabled = !mayAnswer();
}

async function play() {
  if (!atDesk() || presentation() === null || byHand() || sounding) return;
  const tone = presentation();
  played = null;
  allowAnswers();
  try {
    sounding = playOnce(audio.open(), exam.play, tone);
    if (await sounding.done) played = tone.trial;
  } catch {
    // The player refuses what its own limits forbid, whatever the server asked for.
    stop("error");
  } finally {
    sounding = null;
  }
  allowAnswers();
}

const buttons = { h: byId("heard"), n: byId("missed"), p: byId("play") };
buttons.h.addEventListener("click", () => acting(buttons.h, () => answer(true)));
buttons.n.addEventListener("click", () => acting(buttons.n, () => answer(false)));
buttons.p.addEventListener("click", () => acting(buttons.p, play));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") trouble("panic");
  const typing = event.target.closest("input:not([type=checkbox]), textarea, select");
  if (typing || event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
  const button = buttons[event.key.toLowerCase()];
  if (button && byId("keys").checked && atDesk()) {
    event.preventDefault();
    button.click();
  }
});
byId("keys").checked = localStorage.getItem("desk-keys") !== "off";
byId("keys").addEventListener("change", () =>
  localStorage.setItem("desk-keys", byId("keys").checked ? "on" : "off"),
);

// What this browser plays: no tone before the set-up, and none after trouble without another

function showSetUp() {
  byId("set-up").hidden = !needsSetUp();
  if (!needsSetUp()) {
    setup?.silence();
    setup = null;
    return;
  }
  showToMend(exam.play.problem ?? problem);
  if (setup === null) setUp().catch(complain);
}

function showToMend(sentence) {
  fill(byId("set-up-problem"), sentence ? el("p", { class: "caution", role: "alert" }, sentence) : null);
}

const steps = {};

function showStep(name) {
  for (const step of byId("steps").children) step.hidden = step.id !== name;
  const shown = byId(name);
  byId("set-up-stop").hidden = !("sound" in shown.dataset);
  shown.querySelector("h3").focus();
}

function showDevice({ device, fingerprint }) {
  const { earphones, connection, volume } = fingerprint;
  byId("device-earphones").hidden = false;
  byId("device-earphones").textContent = t("set_up.headphones.device", { device, earphones, connection });
  byId("device-volume").hidden = !volume;
  byId("device-volume").textContent = t("set_up.volume.stored", { volume });
}

async function setUp() {
  showDevice(exam.play.sound);
  const page = {
    show: showStep,
    say: (place, key) => (byId(place).textContent = word("set_up", key)),
    offer: (place, whether) => (byId(place).hidden = !whether),
    open: audio.open,
    on: (name, action) => (steps[name] = action),
  };
  setup = createSetup(page, exam.play, DESK_STEPS);
  const fingerprint = await setup.passed;
  [setup, problem] = [null, null];
  checked = true; // what happens from here on takes it back
  answering = true;
  looks += 1; // a look that is under way was at an exam that still waited for this
  try {
    await sendStop();
    await post(`${address}/ready`, { fingerprint });
    tag = null;
    await look();
    if (atDesk()) byId("play").focus();
  } catch (error) {
    complain(error);
    leaveChecked();
    show(exam);
  } finally {
    answering = false;
  }
}

function leaveChecked() {
  checked = false;
  played = null;
  sounding?.silence();
}

/** What happens while nothing sounds does no harm, unless it changes what will be heard. */
function trouble(reason) {
  if (setup) setup.restart();
  else if (checked && (sounding || reason !== "hidden")) stop(reason);
}

/** Silent at once; the server learns of it, and the set-up comes again whether it does or not. */
function stop(reason) {
  leaveChecked();
  unsent = { trial: presentation()?.trial ?? null, reason };
  say(word("stopped", reason));
  show(exam);
  sendStop().catch(complain);
}

async function sendStop() {
  if (unsent === null) return;
  const stopped = unsent;
  try {
    await post(`${address}/stop`, stopped);
  } catch (error) {
    if (error.status === 0) throw error; // else there is nothing to stop any more
  }
  if (unsent === stopped) unsent = null;
}

document.addEventListener("click", (event) => {
  const { do: name, value } = event.target.closest("[data-do]")?.dataset ?? {};
  if (name === "panic") trouble("panic");
  else if (name in steps) {
    try {
      steps[name](value);
    } catch (error) {
      showToMend(error.message); // the player's own sentence: no channel, no such frequency
    }
  }
});

// The listener's side

function showListener() {
  const listens = exam.answered_by === "listener" && exam.can.includes("link");
  byId("listener").hidden = !listens;
  if (!listens) return;
  panel ??= linkPanel(byId("link"), exam.visit, () => look().catch(complain));
  const state = exam.link ? word("listener", exam.play?.state ?? "check") : t("exam.no_link");
  if (byId("listener-state").textContent !== state) byId("listener-state").textContent = state;
}

// What can be done now

const ACTIONS = ["undo", "pause", "resume", "finish", "retest", "continue", "release", "abandon"];
const ANOTHER_EXAM = ["retest", "continue"];

function showActions() {
  const makesSense = (name) =>
    exam.kind !== "audiogram" &&
    (name !== "release" || exam.answered_by === "listener") &&
    (name !== "resume" || byHand()); // what a browser plays goes on by its set-up
  const offered = ACTIONS.filter((name) => exam.can.includes(name) && makesSense(name));
  const key = `${offered.join()} ${exam.released}`;
  if (byId("actions").dataset.offered === key) return;
  byId("actions").dataset.offered = key;
  const made = offered.map((name) => {
    const text = name === "release" && exam.released ? t("exam.withhold") : word("action", name);
    const button = el("button", { type: "button", "data-action": name }, text);
    button.addEventListener("click", () => acting(button, () => act(name)));
    return button;
  });
  const within = byId("actions").contains(document.activeElement);
  fill(byId("actions"), made.length ? made : el("p", { class: "quiet" }, t("exam.nothing")));
  if (within) (made[0] ?? byId("heading")).focus(); // the button that was pressed is gone
  const report = `/api/visits/${exam.visit}/report`;
  fill(
    byId("reports"),
    el("a", { class: "button", href: `${report}.pdf`, download: "report.pdf" }, t("exam.pdf")),
    el("a", { class: "button", href: `${report}.html`, download: "report.html" }, t("exam.html")),
  );
}

async function act(name) {
  sounding?.silence();
  if (name === "abandon" && !window.confirm(t("exam.abandon_sure"))) return;
  if (name === "release") {
    await post(`/api/visits/${exam.visit}/release`, { released: !exam.released });
    say(exam.released ? t("exam.withheld") : t("exam.released"));
  } else if (ANOTHER_EXAM.includes(name)) {
    location.assign(`/exams/${(await post(`${address}/${name}`)).id}`);
    return;
  } else {
    await post(`${address}/${name}`, {});
    say(word("acted", name));
  }
  tag = null;
  await look();
}

look().then(follow, giveUp).catch(complain);
