// @ts-check
/* Lines of the worklist: who, what of which ears, why, by when, and what to do about it. */

import { el, t, word } from "./dom.js";
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

/** @param {WorkItem} item */
function nextStep(item) {
  if (item.exam && item.why === "unfinished") {
    return el("a", { class: "button", href: `/exams/${item.exam.id}` }, t("today.resume"));
  }
  if (item.exam && ["review", "letter"].includes(item.why)) {
    const text = item.why === "review" ? t("work.review") : t("work.letter");
    return el("a", { class: "button", href: `/visits/${item.exam.visit}/review` }, text);
  }
  const again = item.why === "due" || item.why === "retest";
  return el("a", { class: "button", href: `/people/${item.person.id}/test${again ? "?as=last" : ""}` },
    again ? t("work.as_last") : t("today.test"));
}

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
    const act = [nextStep(item)];
    if (close && item.exam && CLOSABLE.includes(item.why)) {
      act.push(el("button", { type: "button", click: () => close(item) }, t("work.close")));
    }
    /** @type {Child[]} */
    const cells = [
      linkTo(item.person),
      item.person.name ? (item.person.code ?? "") : "",
      ...(departments ? [el("span", { dir: "auto" }, item.person.department ?? "")] : []),
      el("span", { class: "why" }, word("why", item.why), el("span", { class: "hint" }, ` ${ears}`)),
      el("span", { class: "by" }, byWhen(item)),
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
