// @ts-check
/* All booths at once, live: who is being tested, how far, and who waits for the examiner. */

import { getIfChanged } from "./api.js";
import { byId, el, fill, t, word } from "./dom.js";
import { decisionBadge, localTime, nameOf, stateText } from "./format.js";
import { complain, say } from "./page.js";
import { isLost } from "./refusal.js";
import { table } from "./table.js";

const LOOK_MS = 2000;

/** @typedef {Answered<"/api/booths/live", "get">} Booths */
/** @typedef {Booths["visits"][number]} Visit */

/** @param {Visit["exams"][number]} exam */
function line(exam) {
  const state = stateText(exam.state, exam.answered);
  const name = t("exam.tab", { ear: word("ear", exam.ear), kind: word("kind", exam.kind), state });
  const over = !["open", "paused"].includes(exam.state);
  const far = t(over ? "booths.answered" : "booths.far", { answered: exam.answered, at_most: exam.at_most });
  return el("li", {},
    el("a", { href: `/exams/${exam.exam}`, class: `ear ${exam.ear}` }, name),
    el("span", { class: "hint" }, ` ${far}`),
    exam.decision ? [" ", decisionBadge(exam.decision)] : null,
    exam.held ? el("p", { class: "caution" }, word("held", exam.held)) : null);
}

/** @param {Visit} visit */
async function booth(visit) {
  const last = visit.exams.map((exam) => exam.last_at ?? "").reduce((a, b) => (a > b ? a : b), "");
  const calls = visit.exams.some((exam) => exam.held);
  return el("section", { class: `card${calls ? " calls" : ""}` },
    el("h2", { dir: "auto" }, visit.device ?? t("booths.no_device")),
    el("p", {}, el("a", { href: `/people/${visit.person.id}`, dir: "auto" }, nameOf(visit.person))),
    el("p", { class: "hint" }, word("booths.by", visit.answered_by),
      last ? ` \u00B7 ${t("booths.last", { at: await localTime(last) })}` : ""),
    el("ul", { class: "plain" }, visit.exams.map(line)));
}

/** @param {Booths} found */
async function show({ visits, today }) {
  const now = visits.filter((visit) => visit.going_on);
  const over = visits.filter((visit) => !visit.going_on);
  const calling = now.filter((visit) => visit.exams.some((exam) => exam.held)).length;
  byId("count").textContent = t("booths.count", { now: now.length, over: over.length, calling, day: today });
  fill(byId("booths"), await Promise.all(now.map(booth)));
  const rows = await Promise.all(over.map(async (visit) => [
    el("a", { href: `/people/${visit.person.id}`, dir: "auto" }, nameOf(visit.person)),
    visit.person.name ? (visit.person.code ?? "") : "",
    await localTime(visit.started_at),
    visit.device ?? "",
    el("ul", { class: "plain" }, visit.exams.map(line)),
  ]));
  const columns = [
    t("person.name"), t("person.code"), t("booths.began"), t("begin.device"), t("booths.tests"),
  ];
  fill(byId("finished"), rows.length
    ? table(t("booths.finished"), columns, rows, { class: "list bare" })
    : el("p", { class: "quiet" }, t("booths.none")));
}

async function follow() {
  /** @type {string | null} */
  let tag = null;
  let lost = false;
  for (;;) {
    if (!document.hidden) {
      try {
        /** @type {{ tag: string | null, content: Booths | null }} */
        const found = await getIfChanged("/api/booths/live", tag);
        tag = found.tag;
        if (found.content) await show(found.content);
        if (lost) say(t("exam.back"));
        lost = false;
      } catch (error) {
        if (!isLost(error)) throw error;
        if (!lost) complain(error);
        lost = true;
      }
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

follow().catch(complain);
