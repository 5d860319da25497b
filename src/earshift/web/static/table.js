// @ts-check
/* Facts and tables: numbers and words that are read, not drawn. */

import { el, fill, t } from "./dom.js";

/** @import { Child } from "./dom.js" */

/**
 * Names and values as a list of facts; a value that is not known leaves its fact out.
 * @param {Element} list
 * @param {readonly (readonly [string, Child])[]} pairs
 */
export function facts(list, pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  fill(
    list,
    known.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
}

/**
 * A table; the first cell of a row heads it.
 * @param {string} caption
 * @param {readonly Child[]} columns
 * @param {readonly (readonly Child[])[]} rows
 * @param {Record<string, unknown>} [attributes]
 */
export function table(caption, columns, rows, attributes = {}) {
  const head = el("tr", {}, columns.map((column) => el("th", { scope: "col" }, column)));
  // On a small screen the cells of a `labelled` table stand below each other, each with its column.
  const named = columns.map((column) => (typeof column === "string" ? column : null));
  const body = rows.map(([first, ...rest]) =>
    el("tr", {}, el("th", { scope: "row" }, first),
      rest.map((cell, n) => el("td", { "data-label": named[n + 1] }, cell))),
  );
  const whole = el(
    "table",
    attributes,
    el("caption", {}, caption),
    el("thead", {}, head),
    el("tbody", {}, body),
  );
  const box = el("div", { class: "scroll" }, whole);
  // Who has only a keyboard must be able to scroll it, and need not stop at it otherwise.
  new ResizeObserver(() => {
    const hides = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight;
    const reached = { tabindex: "0", role: "group", "aria-label": caption };
    for (const [name, value] of Object.entries(reached)) {
      if (hides) box.setAttribute(name, value);
      else box.removeAttribute(name);
    }
  }).observe(box);
  return box;
}

/** The numbers behind a picture, in a <details> that stays open or closed as the reader left it. */
export function numbersBelow() {
  const content = el("div");
  const whole = el("details", { class: "numbers" }, el("summary", {}, t("chart.table")), content);
  /** @param {Child[]} children */
  const show = (...children) => fill(content, ...children);
  return { whole, show };
}
