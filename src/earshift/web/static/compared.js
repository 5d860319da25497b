// @ts-check
/* One ear of a visit beside what it was compared with: the audiogram of both, and the shifts. */

import { atUsualFrequencies, audiogram, levelText } from "./audiogram.js";
import { el, t, word } from "./dom.js";
import { hertz } from "./format.js";
import { signed } from "./shifts.js";
import { table } from "./table.js";

/**
 * @typedef {ReviewShown["ears"][number]} Compared
 * @typedef {Compared["shifts"][number]} Shift
 */

/** @param {Compared} one */
export function comparedView(one) {
  const { ear, kind, reference } = one;
  const heading = t("review.exam", { ear: word("ear", ear), kind: word("kind", kind) });
  const picture = el("div");
  audiogram(picture).draw(one);
  return el("section", {},
    el("h3", { class: `ear ${ear}` }, heading),
    el("p", { class: "hint" }, reference.length > 0 ? against(one) : t("review.not_compared")),
    numbersOf(one),
    picture);
}

/** @param {Compared} one */
function against({ kind, on, reference_on: then }) {
  const days = { now: on ?? t("person.no_day"), then: then ?? t("person.no_day") };
  return kind === "screen" ? t("review.against_reference", days) : t("review.against_baseline", days);
}

/** @param {Compared} one */
function numbersOf(one) {
  const { ear, kind, unit, thresholds, reference, shifts } = one;
  const before = reference.length > 0;
  const earlier = kind === "screen" ? t("audiogram.reference_short") : t("review.baseline");
  const all = [...new Set([...thresholds, ...reference].map((each) => each.frequency_hz))];
  const usual = atUsualFrequencies(all.sort((a, b) => a - b).map((hz) => ({ frequency_hz: hz })));
  const rows = usual.map(({ frequency_hz: hz }) => {
    const now = readingText(hz, thresholds, one.tested_hz);
    const then = readingText(hz, reference, one.reference_tested_hz);
    const shift = shifts.find((each) => each.frequency_hz === hz);
    return before ? [hertz(hz), then, now, shiftText(shift)] : [hertz(hz), now];
  });
  const now = t("audiogram.now_short");
  const columns = before ? [earlier, now, t("shifts.shift")] : [now];
  const whole = table(t("audiogram.caption", { ear: word("ear", ear), unit }),
    [t("audiogram.frequency_short"), ...columns], rows);
  const guessed = [one.tested_hz, one.reference_tested_hz].some((tested) => tested !== null);
  return [whole, guessed ? el("p", { class: "hint" }, t("review.in_brackets")) : null];
}

/**
 * A threshold as it is read; in brackets where no tone was given.
 * @param {number} hz
 * @param {Compared["thresholds"]} readings
 * @param {number[] | null} tested
 */
function readingText(hz, readings, tested) {
  const reading = readings.find((each) => each.frequency_hz === hz);
  const text = levelText(reading);
  return reading && tested && !tested.includes(hz) ? t("review.estimated", { level: text }) : text;
}

/** @param {Shift | undefined} shift */
function shiftText(shift) {
  if (!shift) return "\u2013";
  const [value, low, high] = [shift.shift, shift.low, shift.high].map(signed);
  if (shift.low !== shift.high) return t("review.shift", { value, low, high });
  return shift.censored ? t("review.at_least", { value }) : value;
}
