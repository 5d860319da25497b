// @ts-check
/* A QR code, dark on white whatever the colours of the page. */

import { svg } from "./dom.js";

const QUIET = 4; // modules of white around a QR code

/**
 * @param {string[]} rows
 * @param {string} label
 */
export function qrCode(rows, label) {
  const size = rows.length + 2 * QUIET;
  const dark = rows.flatMap((row, y) =>
    [...row].flatMap((one, x) => (one === "1" ? `M${x + QUIET} ${y + QUIET}h1v1h-1z` : [])),
  );
  return svg("svg", { class: "qr", viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": label },
    svg("rect", { width: size, height: size, fill: "#fff" }),
    svg("path", { d: dark.join(""), fill: "#000" }));
}
