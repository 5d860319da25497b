// @ts-check
/* What an examiner can do with an exam now, and the reports of its visit. */

import { at, post } from "./api.js";
import { byId, el, fill, t, word } from "./dom.js";
import { BOTH, EARS } from "./ears.js";
import { acting, say } from "./page.js";

/** @import { ExamState } from "./exam_state.js" */

const CHANGES = /** @type {const} */ (["undo", "pause", "resume", "finish", "abandon"]);
const FOLLOWING = /** @type {const} */ (["retest", "continue"]);
const ORDER = ["undo", "pause", "resume", "finish", "retest", "continue", "release", "abandon"];

/** @param {ExamState} state */
export function createActions(state) {
  const place = byId("actions");

  function show() {
    const { exam } = state;
    const offered = ORDER.filter((name) => exam.can.includes(name));
    const following = nextEar();
    const key = `${offered.join()} ${exam.released} ${following?.exam}`;
    if (place.dataset.offered === key) return;
    place.dataset.offered = key;
    const other = otherEar();
    const made = [
      ...(following ? [nextLink(following)] : []),
      ...(other ? [otherLink(other)] : []),
      ...offered.map((name) => actionButton(name)),
      ...(offered.includes("retest") && exam.ear === BOTH ? EARS.map((ear) => actionButton("retest", ear)) : []),
    ];
    const within = place.contains(document.activeElement);
    fill(place, made.length ? made : el("p", { class: "quiet" }, t("exam.nothing")));
    if (within) (made[0] ?? byId("heading")).focus(); // the button that was pressed is gone
    const report = `/api/visits/${exam.visit}/report`;
    fill(
      byId("reports"),
      el("a", { class: "button", href: `${report}.pdf`, download: "report.pdf" }, t("exam.pdf")),
      el("a", { class: "button", href: `${report}.pdf?paper=letter`, download: "report.pdf" }, t("exam.pdf_letter")),
      el("a", { class: "button", href: `${report}.html`, download: "report.html" }, t("exam.html")),
      exam.state === "done" && exam.mode !== "simulated"
        ? el("a", { class: "button", href: `/visits/${exam.visit}/review` }, t("exam.review"))
        : null,
    );
  }

  /** The exam of this visit that is still to be done when this one is over. */
  function nextEar() {
    const { exam } = state;
    if (!["done", "abandoned"].includes(exam.state)) return null;
    return exam.ears_of_visit.find((one) => ["open", "paused"].includes(one.state)) ?? null;
  }

  /** The ear that this visit has nothing of, when the other one is done. */
  function otherEar() {
    const { exam } = state;
    if (exam.state !== "done" || exam.mode === "simulated") return null;
    const seen = exam.ears_of_visit.map((one) => one.ear);
    return seen.includes(BOTH) ? null : (EARS.find((ear) => !seen.includes(ear)) ?? null);
  }

  /** @param {Ear} ear */
  function otherLink(ear) {
    const { exam } = state;
    const href = `/people/${exam.person.id}/test?kind=${exam.kind}&ears=${ear}`;
    return el("a", { class: "button", href }, t("exam.other_ear", { ear: word("the_ear", ear) }));
  }

  /** @param {Exam["ears_of_visit"][number]} one */
  function nextLink(one) {
    const text = t("exam.next_ear", { ear: word("the_ear", one.ear) });
    return el("a", { class: "button main", id: "next-ear", href: `/exams/${one.exam}` }, text);
  }

  /**
   * @param {string} name
   * @param {Ear} [ear] of both ears, the one that is meant
   */
  function actionButton(name, ear) {
    const hides = name === "release" && state.exam.released;
    const both = name === "retest" && !ear && state.exam.ear === BOTH;
    const text = hides ? t("exam.withhold")
      : ear ? t("exam.retest_ear", { ear: word("the_ear", ear) })
      : both ? t("exam.retest_both") : word("action", name);
    const button = el("button", { type: "button", "data-action": ear ? `${name}-${ear}` : name }, text);
    button.addEventListener("click", () => acting(button, () => act(name, ear)));
    return button;
  }

  /**
   * @param {string} name
   * @param {Ear} [ear]
   */
  async function act(name, ear) {
    state.sounding?.silence();
    if (name === "abandon" && !window.confirm(t("exam.abandon_sure"))) return;
    const following = FOLLOWING.find((each) => each === name);
    if (following) {
      /** @type {Record<string, string>} */
      const of = ear ? { ear } : {};
      const next = await post(at(`/api/exams/{exam}/${following}`, state.names, of), {});
      location.assign(`/exams/${next.id}`);
      return;
    }
    if (name === "release") await release();
    else await change(name);
    await state.lookAnew();
  }

  async function release() {
    const { visit, released } = state.exam;
    await post(at("/api/visits/{visit_id}/release", { visit_id: visit }), { released: !released });
    say(released ? t("exam.withheld") : t("exam.released"));
  }

  /** @param {string} name */
  async function change(name) {
    const known = CHANGES.find((each) => each === name);
    if (!known) return;
    if (known === "undo") {
      // At the desk it names what it was decided at: pressed twice, it is done once.
      const trial = state.atDesk ? state.presentation?.trial : undefined;
      await post(at("/api/exams/{exam}/undo", state.names), trial ? { trial } : {});
    } else {
      await post(at(`/api/exams/{exam}/${known}`, state.names), {});
    }
    say(word("acted", name));
  }

  return { show };
}
