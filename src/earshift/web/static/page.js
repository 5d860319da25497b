// @ts-check
/* What the examiner's pages do alike: messages, refusals, forms, the heading. */

import { withPassword } from "./again.js";
import { post } from "./api.js";
import { byId, el, fill, t, word } from "./dom.js";
import { capital } from "./format.js";
import { Refusal, asksFor, isLost } from "./refusal.js";

/** The handle in this page's address. */
export const handle = () => document.body.dataset.handle ?? "";

/**
 * Put the heading of this page and the title of its window.
 * @param {string} heading
 */
export function setHeading(heading) {
  byId("heading").textContent = heading;
  document.title = `${heading} - earshift`;
}

/** @param {string} text */
export function say(text) {
  fill(byId("problem"));
  fill(byId("message"), el("p", {}, text, closer("message")));
}

/**
 * A message lies over the page, so that nothing moves under a hand; it goes when it is closed.
 * @param {"message" | "problem"} place
 */
function closer(place) {
  const close = { type: "button", class: "close", "aria-label": t("shell.close"), click: () => fill(byId(place)) };
  return el("button", close, "\u00D7");
}

/**
 * Say what went wrong, in the server's own sentence where there is one.
 * @param {unknown} error
 */
export function complain(error) {
  fill(byId("message"));
  fill(byId("problem"), el("p", {}, reasonOf(error), closer("problem")));
}

/**
 * The page has nothing to show: say why, and nothing else.
 * @param {unknown} error
 */
export function giveUp(error) {
  const reason = reasonOf(error);
  const kept = ["heading", "problem", "message"];
  for (const part of byId("main").children) {
    if (part instanceof HTMLElement) part.hidden ||= !kept.includes(part.id);
  }
  setHeading(t("error.heading"));
  const home = el("a", { class: "button main", href: "/" }, t("error.home"));
  byId("main").append(el("section", { class: "card narrow", role: "alert" }, el("p", {}, reason), el("p", {}, home)));
}

/**
 * @param {unknown} error
 * @returns {string} a sentence
 */
export function reasonOf(error) {
  if (!(error instanceof Refusal)) throw error;
  if (isLost(error)) return t("error.offline");
  const text = capital(error.message || word("error", error.status));
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

/**
 * Run an action of a form or a button: no second click meanwhile, failures are shown. Where the
 * server wants the password first, it is asked for, and the action is run again.
 * @param {Element} button
 * @param {() => unknown} action
 */
export async function acting(button, action) {
  if (button.getAttribute("aria-busy") === "true") return;
  button.setAttribute("aria-busy", "true");
  fill(byId("problem"));
  try {
    try {
      await action();
    } catch (error) {
      if (!asksFor(error, "password-again")) throw error;
      const proved = await withPassword(t("again.why"), (proof) => post("/api/account/confirm", proof));
      if (proved) await action();
    }
  } catch (error) {
    complain(error);
  } finally {
    button.removeAttribute("aria-busy");
  }
}

/**
 * What was typed or chosen in a field of a form.
 * @param {FormData} fields
 * @param {string} name
 */
export const typed = (fields, name) => String(fields.get(name) ?? "");

/**
 * Call `action` with the form's fields when it is sent.
 * @param {HTMLFormElement} form
 * @param {(fields: FormData) => unknown} action
 */
export function onSubmit(form, action) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const button = event.submitter ?? form.querySelector("[type=submit]") ?? form;
    acting(button, () => action(new FormData(form)));
  });
}

/** @param {string} id */
export const formOf = (id) => byId(id, HTMLFormElement);

/** @param {string} id */
export const inputOf = (id) => byId(id, HTMLInputElement);

/**
 * A button that shows and hides the form it controls.
 * @param {Element} button
 */
export function toggles(button) {
  const form = byId(button.getAttribute("aria-controls") ?? "");
  button.addEventListener("click", () => {
    form.hidden = !form.hidden;
    button.setAttribute("aria-expanded", String(!form.hidden));
    const first = form.querySelector("input, select, textarea");
    if (!form.hidden && first instanceof HTMLElement) first.focus();
  });
}

/** @param {HTMLElement} form */
export function hide(form) {
  form.hidden = true;
  document.querySelector(`[aria-controls="${form.id}"]`)?.setAttribute("aria-expanded", "false");
}
