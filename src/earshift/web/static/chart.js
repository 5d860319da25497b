/* A plain line chart with its numbers as a table: the probability of change, and history. */

import { el, fill, svg, t, table, twin } from "./page.js";

const WIDTH = 480;
const HEIGHT = 270;
const LEFT = 58;
const RIGHT = 78; // room for the names at the ends of lines
const TOP = 16;
const BOTTOM = 44;
const LINE = 18; // between two names

/** A place for a chart; `draw` it again whenever there is more to show.

    x and y are {low, high, ticks: [{at, text}], label}; y.down puts the low values on top. Lines
    are {name, points: [{x, y, mark}]}, limits horizontal lines {at, text}. */
export function chart(place, titled = true) {
  const heading = el("p", { class: "chart-title", "aria-hidden": "true", hidden: !titled });
  const picture = el("div", { class: "picture" });
  const numbers = twin();
  fill(place, heading, picture, numbers.whole);
  return {
    draw({ title, x, y, lines, limits = [], columns, rows }) {
      heading.textContent = title;
      fill(picture, drawing(title, x, y, lines, limits));
      numbers.show(table(title, columns, rows));
    },
  };
}

function drawing(title, x, y, lines, limits) {
  const across = (value) => LEFT + ((value - x.low) / (x.high - x.low || 1)) * (WIDTH - LEFT - RIGHT);
  const share = (value) => (value - y.low) / (y.high - y.low || 1);
  const down = (value) => TOP + (y.down ? share(value) : 1 - share(value)) * (HEIGHT - TOP - BOTTOM);
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
    const place = { x: WIDTH - RIGHT - 6, y: at - 6, "text-anchor": "end", class: "limit-name" };
    marks.push(
      svg("line", { x1: LEFT, y1: at, x2: WIDTH - RIGHT, y2: at, class: "limit" }),
      svg("text", place, limit.text),
    );
  }
  lines.forEach((line, index) => {
    const points = line.points.map((point) => `${across(point.x)},${down(point.y)}`).join(" ");
    marks.push(svg("polyline", { points, class: `line line-${index % 6}` }));
    for (const point of line.points) {
      marks.push(dot(point.mark, across(point.x), down(point.y)));
    }
  });
  marks.push(...names(lines, (line) => down(line.points.at(-1).y)));
  const shape = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "chart" };
  return svg("svg", { ...shape, "aria-label": `${title}. ${t("chart.see_table")}` }, marks);
}

function dot(mark, x, y) {
  if (mark === "changed") return svg("path", { d: `M${x} ${y - 8}L${x + 8} ${y + 6}H${x - 8}Z`, class: "dot" });
  if (mark === "open") return svg("circle", { cx: x, cy: y, r: 5, class: "dot open" });
  return svg("circle", { cx: x, cy: y, r: 4, class: "dot" });
}

/** Names at the lines' ends, moved apart where they would lie on each other. */
function names(lines, height) {
  const named = lines.filter((line) => line.name && line.points.length > 0);
  const placed = named.map((line) => ({ name: line.name, at: height(line) })).sort((a, b) => a.at - b.at);
  placed.forEach((each, index) => {
    if (index > 0) each.at = Math.max(each.at, placed[index - 1].at + LINE);
  });
  const over = placed.length ? Math.max(0, placed.at(-1).at - (HEIGHT - BOTTOM)) : 0;
  return placed.map(({ name, at }) => svg("text", { x: WIDTH - RIGHT + 8, y: at - over + 5 }, name));
}
