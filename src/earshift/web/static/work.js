// @ts-check
/* Lines of the worklist: who, what of which ears, why, by when, and what to do about it. */

import { el, t, word } from "./dom.js";
import { BOTH } from "./ears.js";
import { dayText, nameOf } from "./format.js";
import { table } from "./table.js";

/** @import { Child } from "./dom.js" */

/** Reasons that a reviewer may close. */
const CLOSABLE = ["audiogram", "retest", "review"];

/** @param {Person} person */
export const linkTo = (person) =>
  el("a", { href: `/people/${person.id}`, dir: "auto" }, nameOf(person));

/** @param {WorkItem} item */
function byWhen(item) {
  if (item.overdue_days === 0) return dayText(item.on);
  const late = t("work.overdue_by", { n: item.overdue_days });
  return [dayText(item.on), " ", el("strong", { class: "late" }, late)];
}

/**
 * What would end this line. A periodic test can also be a screen, as last year: it tells of a change
 * at once, even where it does not keep the interval.
 * @param {WorkItem} item
 */
function nextSteps(item) {
  /**
   * @param {string} href
   * @param {string} text
   */
  const step = (href, text) => el("a", { class: "button", href }, text);
  if (item.exam && item.why === "unfinished") return [step(`/exams/${item.exam.id}`, t("today.resume"))];
  if (item.exam && ["review", "letter"].includes(item.why)) {
    const text = item.why === "review" ? t("work.review") : t("work.letter");
    return [step(`/visits/${item.exam.visit}/review`, text)];
  }
  const test = `/people/${item.person.id}/test`;
  const again = item.why === "due" || item.why === "retest";
  return [
    ...(again ? [step(`${test}?as=last`, t("work.as_last"))] : []),
    ...(item.full ? [step(`${test}?kind=exam&ears=${sitting(item.ears)}`, t("work.full"))] : []),
    ...(again || item.full ? [] : [step(test, t("today.test"))]),
  ];
}

/**
 * As the form of a new test names them.
 * @param {string[]} ears
 */
const sitting = (ears) => (ears.length > 1 ? BOTH : ears[0]);

/** @param {WorkItem} item */
const reasonOf = ({ why, full }) => word("why", why === "due" && full ? "due_full" : why);

/**
 * @param {WorkItem[]} items
 * @param {{ caption: string, close?: ((item: WorkItem) => void) | null }} options
 */
export function workTable(items, { caption, close = null }) {
  const departments = items.some(({ person }) => person.department);
  /** @param {WorkItem} item */
  const row = (item) => {
    const ears = item.ears.length > 1 ? t("work.both_ears") : word("ear", item.ears[0]);
    /** @type {HTMLElement[]} */
    const act = nextSteps(item);
    if (close && item.exam && CLOSABLE.includes(item.why)) {
      act.push(el("button", { type: "button", click: () => close(item) }, t("work.close")));
    }
    /** @type {Child[]} */
    const cells = [
      linkTo(item.person),
      item.person.name ? (item.person.code ?? "") : "",
      ...(departments ? [el("span", { dir: "auto" }, item.person.department ?? "")] : []),
      el("span", { class: "why" }, reasonOf(item), el("span", { class: "hint" }, ` ${ears}`)),
      el("span", { class: "by", "data-label": t("work.by") }, byWhen(item)),
      el("span", { class: "acts" }, act),
    ];
    return cells;
  };
  const columns = [
    t("person.name"), t("person.code"), ...(departments ? [t("person.department")] : []),
    t("today.why"), t("work.by"),
    el("span", { class: "on-screen" }, t("today.act")),
  ];
  return table(caption, columns, items.map(row), { class: "list work bare" });
}
