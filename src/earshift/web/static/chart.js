// @ts-check
/* A plain line chart with its numbers as a table: the probability of change, and history. */

import { el, fill, svg, t } from "./dom.js";
import { numbersBelow, table } from "./table.js";

/** @import { Child } from "./dom.js" */

/**
 * @typedef {{ at: number, text: string }} Tick
 * @typedef {{ low: number, high: number, ticks: Tick[] }} Scale
 * @typedef {Scale & { label: string }} Across
 * @typedef {Scale & { down?: boolean }} Upward `down` puts the low values on top
 * @typedef {{ x: number, y: number, mark?: string | null }} Point
 * @typedef {{ name: string, points: Point[] }} Line named at its end
 * @typedef {{
 *   title: string, x: Across, y: Upward, lines: Line[], limits?: Tick[], ear?: string,
 *   columns: Child[], rows: Child[][],
 * }} ChartData limits are horizontal lines; a chart of one ear has its colour
 */

const WIDTH = 480;
const HEIGHT = 290;
const LEFT = 58;
const RIGHT = 88; // room for the names at the ends of lines
const TOP = 16;
const BOTTOM = 44;
const LINE = 18; // between two names

/**
 * A place for a chart; `draw` it again whenever there is more to show.
 * @param {Element} place
 * @param {boolean} titled whether it shows its title
 */
export function chart(place, titled = true) {
  const heading = el("p", { class: "chart-title", "aria-hidden": "true", hidden: !titled });
  const picture = el("div", { class: "picture" });
  const numbers = numbersBelow();
  fill(place, heading, picture, numbers.whole);
  return {
    /** @param {ChartData} data */
    draw({ title, x, y, lines, limits = [], ear = "", columns, rows }) {
      heading.textContent = title;
      fill(picture, drawing(title, x, y, lines, limits, ear));
      numbers.show(table(title, columns, rows));
    },
  };
}

/**
 * @param {string} title
 * @param {Across} x
 * @param {Upward} y
 * @param {Line[]} lines
 * @param {Tick[]} limits
 * @param {string} ear
 */
function drawing(title, x, y, lines, limits, ear) {
  /** @param {number} value */
  const across = (value) => LEFT + ((value - x.low) / (x.high - x.low || 1)) * (WIDTH - LEFT - RIGHT);
  /** @param {number} value */
  const fraction = (value) => (value - y.low) / (y.high - y.low || 1);
  /** @param {number} value */
  const down = (value) =>
    TOP + (y.down ? fraction(value) : 1 - fraction(value)) * (HEIGHT - TOP - BOTTOM);
  const bottom = HEIGHT - BOTTOM;
  const marks = [];
  for (const tick of y.ticks) {
    const at = down(tick.at);
    marks.push(
      svg("line", { x1: LEFT, y1: at, x2: WIDTH - RIGHT, y2: at, class: "grid" }),
      svg("text", { x: LEFT - 7, y: at + 5, "text-anchor": "end" }, tick.text),
    );
  }
  for (const tick of x.ticks) {
    const at = across(tick.at);
    marks.push(
      svg("line", { x1: at, y1: bottom, x2: at, y2: bottom + 5, class: "frame" }),
      svg("text", { x: at, y: bottom + 20, "text-anchor": "middle" }, tick.text),
    );
  }
  marks.push(
    svg("rect", { x: LEFT, y: TOP, width: WIDTH - LEFT - RIGHT, height: bottom - TOP, class: "frame" }),
    svg("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, x.label),
  );
  for (const limit of limits) {
    const at = down(limit.at);
    const above = at - TOP > LINE; // else the name would lie on the frame
    const lower = above ? at - 6 : at + LINE - 4;
    // Where a test's line seldom is: a high limit is named on the right, as few tests are so long, a
    // low one on the left, as none begins there.
    const aside = fraction(limit.at) > 0.5
      ? { x: WIDTH - RIGHT - 6, "text-anchor": "end" }
      : { x: LEFT + 6 };
    const place = { ...aside, y: lower, class: "limit-name" };
    marks.push(
      svg("line", { x1: LEFT, y1: at, x2: WIDTH - RIGHT, y2: at, class: "limit" }),
      svg("text", place, limit.text),
    );
  }
  lines.forEach((line, index) => {
    const points = line.points.map((point) => `${across(point.x)},${down(point.y)}`).join(" ");
    marks.push(svg("polyline", { points, class: `line line-${index % 8}` }));
    for (const point of line.points) {
      marks.push(dot(point.mark, across(point.x), down(point.y)));
    }
  });
  marks.push(...namesAtEnds(lines, across, down));
  const shape = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: `chart ${ear}` };
  return svg("svg", { ...shape, "aria-label": `${title}. ${t("chart.see_table")}` }, marks);
}

/**
 * @param {string | null | undefined} mark
 * @param {number} x
 * @param {number} y
 */
function dot(mark, x, y) {
  if (mark === "changed") {
    return svg("path", { d: `M${x} ${y - 8}L${x + 8} ${y + 6}H${x - 8}Z`, class: "dot" });
  }
  return svg("circle", { cx: x, cy: y, r: 4, class: mark === "screen" ? "dot open" : "dot" });
}

/**
 * Names at the lines' ends, moved apart where they would lie on each other; a thin line leads from
 * each to its own.
 * @param {Line[]} lines
 * @param {(value: number) => number} across
 * @param {(value: number) => number} down
 */
function namesAtEnds(lines, across, down) {
  const named = lines.flatMap(({ name, points }) => {
    const last = points.at(-1);
    return name && last ? [{ name, at: down(last.y), x: across(last.x), y: down(last.y) }] : [];
  });
  named.sort((a, b) => a.at - b.at);
  named.forEach((each, index) => {
    if (index > 0) each.at = Math.max(each.at, named[index - 1].at + LINE);
  });
  const over = Math.max(0, (named.at(-1)?.at ?? 0) - (HEIGHT - BOTTOM));
  const edge = WIDTH - RIGHT;
  return named.flatMap(({ name, at, x, y }) => [
    // Of a line that ends earlier: dotted and level, so that nobody takes it for measured.
    ...(x < edge ? [svg("line", { x1: x, y1: y, x2: edge, y2: y, class: "lead ended" })] : []),
    svg("line", { x1: edge, y1: y, x2: edge + 12, y2: at - over, class: "lead" }),
    svg("text", { x: WIDTH - RIGHT + 15, y: at - over + 5 }, name),
  ]);
}
