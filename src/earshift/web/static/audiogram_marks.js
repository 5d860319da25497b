// @ts-check
/* The marks of an audiogram: thresholds of each ear, no response, tones played, the next tone. */

import { svg, t } from "./dom.js";

/**
 * @param {string} ear
 * @param {number} x
 * @param {number} y
 * @param {number} radius
 */
export function symbol(ear, x, y, radius) {
  if (ear === "right") return svg("circle", { cx: x, cy: y, r: radius });
  const r = 0.85 * radius;
  return svg("path", { d: `M${x - r} ${y - r}L${x + r} ${y + r}M${x - r} ${y + r}L${x + r} ${y - r}` });
}

/**
 * @param {string} ear
 * @param {number} x
 * @param {number} y
 * @param {number} radius
 */
export function arrow(ear, x, y, radius) {
  const side = ear === "right" ? -1 : 1;
  const [start, end] = [0.75 * radius, 2.3 * radius];
  const [tipX, tipY] = [x + side * end, y + end];
  const head = `M${tipX - side * radius} ${tipY}H${tipX}V${tipY - radius}`;
  return svg("path", { d: `M${x + side * start} ${y + start}L${tipX} ${tipY}${head}` });
}

/**
 * Heard: filled, pointing up to softer; not heard: open, pointing down to louder.
 * @param {number} x
 * @param {number} y
 * @param {boolean} heard
 */
export function toneMark(x, y, heard) {
  const up = heard ? -6 : 6;
  const points = `${x - 6},${y - 0.7 * up} ${x + 6},${y - 0.7 * up} ${x},${y + up}`;
  return svg("polygon", { points, class: heard ? "tone heard" : "tone missed" });
}

/**
 * @param {number} x
 * @param {number} y
 */
export function nextMark(x, y) {
  const arms = `M${x - 16} ${y}H${x - 8}M${x + 8} ${y}H${x + 16}M${x} ${y - 16}V${y - 8}M${x} ${y + 8}V${y + 16}`;
  return svg("g", { class: "next" }, svg("circle", { cx: x, cy: y, r: 10 }), svg("path", { d: arms }));
}

/**
 * Tones that were given and answered alike are one mark, with how many there were: many marks beside
 * each other would look like other frequencies. Two answers to one tone stand just apart.
 * @template {{ frequency_hz: number, level: number, heard: boolean }} T
 * @param {T[]} tones
 */
export function counted(tones) {
  /** @type {Map<string, { tone: T, times: number }>} */
  const marks = new Map();
  for (const tone of tones) {
    const alike = `${tone.frequency_hz} ${tone.level} ${tone.heard}`;
    const times = (marks.get(alike)?.times ?? 0) + 1;
    marks.set(alike, { tone, times });
  }
  return [...marks.values()].map(({ tone, times }) => {
    const both = marks.has(`${tone.frequency_hz} ${tone.level} ${!tone.heard}`);
    return { tone, times, aside: both ? (tone.heard ? -5 : 5) : 0 };
  });
}

/**
 * How often a tone was given, beside its mark: heard on the left and not heard on the right, so that
 * both can stand at one level.
 * @param {number} x
 * @param {number} y
 * @param {boolean} heard
 * @param {number} times
 */
export function timesMark(x, y, heard, times) {
  if (times === 1) return null;
  const aside = heard ? { x: x - 8, "text-anchor": "end" } : { x: x + 8 };
  return svg("text", { ...aside, y: y + 5, class: "times" }, t("audiogram.times", { n: times }));
}
