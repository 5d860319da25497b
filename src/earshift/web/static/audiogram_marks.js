// @ts-check
/* The marks of an audiogram: thresholds of each ear, no response, tones played, the next tone. */

import { svg } from "./dom.js";

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
 * Tones that were given more than once stand beside each other, so that each can be seen.
 * @template {{ frequency_hz: number, level: number }} T
 * @param {T[]} tones
 */
export function sideBySide(tones) {
  /** @type {Map<string, number>} */
  const given = new Map();
  return tones.map((tone) => {
    const place = `${tone.frequency_hz} ${tone.level}`;
    const before = given.get(place) ?? 0;
    given.set(place, before + 1);
    const side = before % 2 === 1 ? 1 : -1;
    return { tone, aside: side * Math.ceil(before / 2) * 13 };
  });
}
