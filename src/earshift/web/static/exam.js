// @ts-check
/* One exam as the examiner sees it: set-up, desk, the listener's link, the live view, what next. */

import { byId, el, fill, t, word } from "./dom.js";
import { createDesk } from "./desk.js";
import { createDeskSetup } from "./desk_setup.js";
import { createActions } from "./exam_actions.js";
import { ExamState } from "./exam_state.js";
import { localTime, nameOf } from "./format.js";
import { linkPanel } from "./link.js";
import { liveView } from "./live.js";
import { complain, giveUp, handle, say, setHeading } from "./page.js";
import { pageSound } from "./player.js";
import { isLost } from "./refusal.js";

const POLL_MS = 1000;
const REST_MS = 5000; // of a test that is over

const state = new ExamState(handle(), show);
const audio = pageSound((reason) => setup.trouble(reason));
const setup = createDeskSetup(state, audio);
const desk = createDesk(state, audio, setup.stop);
const actions = createActions(state);
const view = liveView();
/** @type {ReturnType<typeof linkPanel> | null} */
let link = null;

function show() {
  const { exam, live } = state;
  const values = { name: nameOf(exam.person), kind: word("kind", exam.kind), ear: word("ear", exam.ear) };
  setHeading(t("exam.heading_of", values));
  showVisit(exam);
  setup.show();
  desk.show();
  showListener(exam);
  actions.show();
  if (live === null) return;
  const next = exam.state === "open" ? state.presentation : null;
  view.draw({ ...live, notes: [...exam.cautions, ...exam.remarks, ...live.notes] }, next);
}

/**
 * The exams of this visit, and how this one is given.
 * @param {Exam} exam
 */
function showVisit(exam) {
  const links = exam.ears_of_visit.map(({ exam: id, ear, kind, state: standing }) => {
    const current = id === exam.id ? "page" : null;
    const attributes = { href: `/exams/${id}`, class: `ear ${ear}`, "aria-current": current };
    const text = { ear: word("ear", ear), kind: word("kind", kind), state: word("state", standing) };
    return el("a", attributes, t("exam.tab", text));
  });
  fill(byId("ears"), links);
  const person = el("a", { href: `/people/${exam.person.id}` }, t("exam.person"));
  const device = exam.device ? t("exam.device", { name: exam.device }) : null;
  const parts = [word("mode", exam.mode), word("sound", exam.sound), exam.measured_on, device];
  fill(byId("about-exam"), person, ` \u00B7 ${parts.filter(Boolean).join(" \u00B7 ")}`);
}

/** @param {Exam} exam */
function showListener(exam) {
  const listens = exam.answered_by === "listener" && exam.can.includes("link");
  byId("listener").hidden = !listens;
  if (!listens) return;
  link ??= linkPanel(
    byId("link"), exam.visit, () => state.look().catch(complain),
    () => state.exam.link !== null,
  );
  link.show(exam.link !== null);
  byId("listener-state").className = exam.held ? "caution" : "";
  listenerText(exam).then((text) => {
    if (byId("listener-state").textContent !== text) byId("listener-state").textContent = text;
  }, complain);
}

/** @param {Exam} exam */
async function listenerText({ link: given, held, play }) {
  if (!given) return t("exam.no_link");
  const standing = held ? word("held", held) : word("listener", play?.state ?? "check");
  return t("exam.link_until", { state: standing, at: await localTime(given.expires_at) });
}

/** Look about once a second while the page is seen; a lost connection is said once and retried. */
async function follow() {
  let lost = false;
  for (;;) {
    if (!document.hidden && !state.busy) {
      try {
        await state.look();
        if (lost) say(t("exam.back"));
        lost = false;
      } catch (error) {
        if (!isLost(error)) throw error;
        if (!lost) complain(error);
        lost = true;
      }
    }
    await new Promise((resolve) => setTimeout(resolve, state.ended ? REST_MS : POLL_MS));
  }
}

state.look().then(follow, giveUp).catch(complain);
