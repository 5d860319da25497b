// @ts-check
/* Numbers, days and names as they are read on the examiner's pages. */

import { whoAmI } from "./api.js";
import { el, t, word } from "./dom.js";

/** @param {Pick<Person, "erased" | "name" | "code">} person */
export function nameOf(person) {
  if (person.erased) return t("person.erased_name");
  return person.name ?? person.code ?? t("person.nameless");
}

/**
 * How a test stands. One that waits for its first tone was not paused by anybody.
 * @param {string} state
 * @param {number} answered
 */
export const stateText = (state, answered) =>
  state === "paused" && answered === 0 ? t("state.not_begun") : word("state", state);

/**
 * A moment in the time zone of the site, its day as days are written everywhere here.
 * @param {string} moment
 */
export async function localTime(moment) {
  const { zone } = await whoAmI();
  /** @type {Intl.DateTimeFormatOptions} */
  const options = { dateStyle: "short", timeStyle: "short", timeZone: zone };
  return new Intl.DateTimeFormat("sv", options).format(new Date(moment)); // 2026-03-01 14:05
}

/**
 * A day that is not broken over two lines.
 * @param {string} day
 */
export const dayText = (day) => el("span", { class: "day" }, day);

/**
 * As a sentence begins.
 * @param {string} text
 */
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/**
 * As it goes on after a colon.
 * @param {string} text
 */
export const small = (text) => text.charAt(0).toLowerCase() + text.slice(1);

/** Today's date in the browser, as the API writes days. */
export function today() {
  const now = new Date();
  /** @param {number} number */
  const twoDigits = (number) => String(number).padStart(2, "0");
  return `${now.getFullYear()}-${twoDigits(now.getMonth() + 1)}-${twoDigits(now.getDate())}`;
}

/**
 * A probability in per cent as the sentences of a verdict have it: with a digit more where it is
 * close to certain, and only certainty is 0 or 100.
 * @param {number} p
 */
export function percent(p) {
  if (p === 0 || p === 1) return t("chart.percent", { n: 100 * p });
  if (p > 0.9995) return t("chart.percent_over", { n: 99.9 });
  if (p < 0.0005) return t("chart.percent_under", { n: 0.1 });
  return t("chart.percent", { n: (100 * p).toFixed(Math.min(p, 1 - p) < 0.01 ? 1 : 0) });
}

/**
 * A level as it is read: whole numbers without a decimal.
 * @param {number} level
 */
export const decibels = (level) => (Math.round(10 * level) / 10).toString().replace("-", "\u2212");

/** @param {number | string} hz */
export const hertz = (hz) => t("chart.hz", { n: hz });

/** The shape that goes with a decision, so that colour is never alone. */
const SHAPES = new Map([
  ["changed", "\u25B2"],
  ["unchanged", "\u25CF"],
  ["inconclusive", "\u25C6"],
  ["not determinable", "\u25A0"],
]);

/**
 * @param {string} decision
 * @param {string | null} [nextStep] of a test that decided nothing
 */
export function decisionBadge(decision, nextStep = null) {
  const shape = el("span", { "aria-hidden": "true" }, SHAPES.get(decision) ?? "\u25CB");
  const kind = decision.replaceAll(" ", "-");
  const said = nextStep === null ? word("decision", decision) : word("next_step", nextStep);
  return el("span", { class: `badge ${kind}` }, shape, " ", said);
}
