// @ts-check
/* The whole worklist: filtered, page by page or at once, for the screen, for paper and as a file. */

import { at, get, post, whoAmI } from "./api.js";
import { byId, el, fill, t, word } from "./dom.js";
import { BOTH, EARS } from "./ears.js";
import { nameOf } from "./format.js";
import { acting, complain, formOf, say, typed } from "./page.js";
import { withReason } from "./reason.js";
import { workTable } from "./work.js";

const PAGE = 100;
const AT_ONCE = 500;

/** @type {WorkItem[]} */
let items = [];
/** @type {Worklist | null} */
let newest = null;
let mayClose = false;
let asking = 0;

/** What is asked for, as the form says. */
function asked() {
  const fields = new FormData(formOf("filter"));
  const wanted = ["department", "job", "why", "overdue"].map((name) => [name, typed(fields, name)]);
  return Object.fromEntries(wanted.filter(([, value]) => value !== ""));
}

/**
 * @param {number} start
 * @param {number} limit
 */
async function load(start, limit) {
  asking += 1;
  const mine = asking;
  const work = await get(at("/api/worklist", {}, { ...asked(), start, limit }));
  if (mine !== asking) return; // the filter was changed meanwhile: its own answer is shown
  items = start === 0 ? work.items : [...items, ...work.items];
  newest = work;
  show(work);
}

async function loadAll() {
  await load(0, AT_ONCE);
  while (newest && items.length < newest.total && newest.items.length > 0) {
    await load(items.length, AT_ONCE);
  }
}

/** @param {Worklist} work */
function show(work) {
  const { total, overdue, today } = work;
  byId("count").textContent = t("work.count", { total, overdue, day: today });
  choices("department", work.departments);
  choices("job", work.jobs);
  const csv = new URLSearchParams(asked());
  byId("csv", HTMLAnchorElement).href = `/api/worklist.csv?${csv}`;
  const left = total - items.length;
  byId("more").hidden = left <= 0;
  byId("left").textContent = left > 0 ? t("work.left", { n: left }) : "";
  const caption = t("today.work_on", { day: today });
  fill(
    byId("work"),
    items.length
      ? workTable(items, { caption, close: mayClose ? (item) => startClosing(item).catch(complain) : null })
      : el("p", { class: "quiet" }, t("work.none")),
  );
}

/**
 * What can be chosen; what was chosen stays.
 * @param {"department" | "job"} name
 * @param {string[]} known
 */
function choices(name, known) {
  const select = byId(name, HTMLSelectElement);
  const chosen = select.value;
  const all = el("option", { value: "" }, t("work.all"));
  fill(select, all, known.map((one) => el("option", { value: one }, one)));
  select.value = known.includes(chosen) ? chosen : "";
  select.closest(".field")?.toggleAttribute("hidden", known.length === 0);
}

/**
 * Close what a line says of the ears of its exam: the other ear may call for something else, or be
 * of an exam of its own.
 * @param {WorkItem} item
 */
async function startClosing({ person, why, ears: listed, exam }) {
  if (!exam) return;
  const ears = EARS.filter((ear) => listed.includes(ear) && [ear, BOTH].includes(exam.ear));
  const which = word("the_ear", ears.length > 1 ? BOTH : ears[0]);
  const heading = t("work.close_of", { name: nameOf(person), why: word("why", why), ear: which });
  const words = { heading, hint: t("work.close_hint"), go: t("work.close_save") };
  const closed = await withReason(words, (reason) =>
    post(at("/api/exams/{exam}/close", { exam: exam.id }), { reason, ears }));
  if (!closed) return;
  say(t("work.closed"));
  await load(0, PAGE);
}

formOf("filter").addEventListener("change", () => load(0, PAGE).catch(complain));
byId("next").addEventListener("click", () =>
  acting(byId("next"), () => load(items.length, PAGE)),
);
byId("all").addEventListener("click", () => acting(byId("all"), loadAll));
byId("print").addEventListener("click", () =>
  acting(byId("print"), async () => {
    await loadAll();
    window.print();
  }),
);

whoAmI()
  .then((me) => {
    mayClose = me.role !== "examiner";
    return load(0, PAGE);
  })
  .catch(complain);
