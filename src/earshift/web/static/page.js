/* What every page needs: the texts, elements made without HTML strings, messages, dates. */

import { whoAmI } from "./api.js";

const TEXTS = JSON.parse(document.getElementById("texts").textContent);

/** The text of a key, with the names in braces filled in. */
export function t(key, values = {}) {
  if (!(key in TEXTS)) throw new Error(key);
  return TEXTS[key].replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
}

/** The word for a value of the API, such as a state; a value without a word stands for itself. */
export function word(group, value) {
  return TEXTS[`${group}.${value}`] ?? String(value);
}

export const byId = (id) => document.getElementById(id);
export const handle = () => document.body.dataset.handle;

/** An element; a function as attribute listens, null and false leave the attribute away. */
export function el(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

/** The same for pictures. */
export function svg(tag, attributes = {}, ...children) {
  return dress(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null));
}

/** Names and values as a list of facts; a value of null leaves its fact away. */
export function facts(list, pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  fill(
    list,
    known.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
}

/** A table; the first cell of a row heads it. */
export function table(caption, columns, rows, attributes = {}) {
  const head = el("tr", {}, columns.map((column) => el("th", { scope: "col" }, column)));
  const body = rows.map(([first, ...rest]) =>
    el("tr", {}, el("th", { scope: "row" }, first), rest.map((cell) => el("td", {}, cell))),
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
    const named = { tabindex: "0", role: "group", "aria-label": caption };
    for (const [name, value] of Object.entries(named)) {
      if (hides) box.setAttribute(name, value);
      else box.removeAttribute(name);
    }
  }).observe(box);
  return box;
}

/** A kept <details>: the numbers behind a picture, open or closed as the reader left it. */
export function twin() {
  const content = el("div");
  const whole = el("details", { class: "twin" }, el("summary", {}, t("chart.table")), content);
  return { whole, show: (...children) => fill(content, ...children) };
}

export function say(text) {
  fill(byId("problem"));
  fill(byId("message"), el("p", {}, text));
}

/** Say what went wrong, in the server's own sentence where there is one. */
export function complain(error) {
  fill(byId("message"));
  fill(byId("problem"), el("p", {}, reasonOf(error)));
  byId("problem").scrollIntoView({ block: "nearest" });
}

/** The page has nothing to show: say why, and nothing else. */
export function giveUp(error) {
  complain(error);
  const kept = ["heading", "problem", "message"];
  for (const part of byId("main").children) part.hidden ||= !kept.includes(part.id);
  byId("main").append(el("p", {}, el("a", { class: "button main", href: "/" }, t("error.home"))));
}

export function reasonOf(error) {
  if (!("status" in error)) throw error;
  if (error.message && error.message !== "null") return error.message;
  return error.status === 0 ? t("error.offline") : word("error", error.status);
}

/** Run an action of a form or a button: no second click meanwhile, failures are shown. */
export async function acting(button, action) {
  if (button.getAttribute("aria-busy") === "true") return;
  button.setAttribute("aria-busy", "true");
  fill(byId("problem"));
  try {
    await action();
  } catch (error) {
    complain(error);
  } finally {
    button.removeAttribute("aria-busy");
  }
}

/** Call `action` with the form's fields when it is sent. */
export function onSubmit(form, action) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const button = event.submitter ?? form.querySelector("[type=submit]");
    acting(button, () => action(new FormData(form)));
  });
}

/** A button that shows and hides the form it controls. */
export function toggles(button) {
  const form = byId(button.getAttribute("aria-controls"));
  button.addEventListener("click", () => {
    form.hidden = !form.hidden;
    button.setAttribute("aria-expanded", String(!form.hidden));
    if (!form.hidden) form.querySelector("input, select, textarea").focus();
  });
}

export function hide(form) {
  form.hidden = true;
  document.querySelector(`[aria-controls="${form.id}"]`).setAttribute("aria-expanded", "false");
}

/** Put the heading of this page and the title of its window. */
export function entitle(heading) {
  byId("heading").textContent = heading;
  document.title = `${heading} - earshift`;
}

export const nameOf = (person) =>
  person.erased ? t("person.erased_name") : (person.name ?? person.code ?? t("person.nameless"));

/** A moment in the time zone of the site. */
export async function localTime(moment) {
  const { zone } = await whoAmI();
  const options = { dateStyle: "medium", timeStyle: "short", timeZone: zone };
  return new Intl.DateTimeFormat(document.documentElement.lang, options).format(new Date(moment));
}

/** A day that is not broken over two lines. */
export const dayText = (day) => el("span", { class: "day" }, day);

/** Today's date in the browser, as the API writes days. */
export function today() {
  const now = new Date();
  const part = (number) => String(number).padStart(2, "0");
  return `${now.getFullYear()}-${part(now.getMonth() + 1)}-${part(now.getDate())}`;
}

/** A probability in per cent; only certainty is shown as 0 or 100. */
export function percent(p) {
  if (p > 0 && p < 0.001) return t("chart.percent", { n: "<0.1" });
  if (p < 1 && p > 0.999) return t("chart.percent", { n: ">99.9" });
  const fine = p < 0.1 || p > 0.95;
  return t("chart.percent", { n: Math.round(100 * p * (fine ? 10 : 1)) / (fine ? 10 : 1) });
}

/** A level as it is read: whole numbers without a decimal. */
export const decibels = (level) => (Math.round(10 * level) / 10).toString().replace("-", "\u2212");

/** The shape that goes with a decision, so that colour is never alone. */
const SHAPES = {
  changed: "\u25B2",
  unchanged: "\u25CF",
  inconclusive: "\u25C6",
  "not determinable": "\u25A0",
};

export function decisionBadge(decision) {
  const shape = el("span", { "aria-hidden": "true" }, SHAPES[decision] ?? "\u25CB");
  const kind = decision.replaceAll(" ", "-");
  return el("span", { class: `badge ${kind}` }, shape, " ", word("decision", decision));
}
