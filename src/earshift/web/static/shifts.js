// @ts-check
/* The shift at each frequency as an interval, and what the rule speaks of beside the rule's line. */

import { el, fill, svg, t, word } from "./dom.js";
import { decibels, hertz } from "./format.js";
import { numbersBelow, table } from "./table.js";

/** @typedef {Live["shifts"][number]} Shift */
/** @typedef {NonNullable<Live["amount"]>} Amount */
/**
 * @typedef {{
 *   name: string, low: number, middle: number, high: number, hz: number[], kind: string,
 * }} Column one interval: of what the rule speaks of, or of a frequency
 */

const USUAL_HZ = [125, 250, 500, 750, 1000, 1500, 2000, 3000, 4000, 6000, 8000, 12000, 16000];
const WIDTH = 480;
const HEIGHT = 300;
const LEFT = 46;
const RIGHT = 52; // room for the name of the rule's line
const TOP = 16;
const BOTTOM = 62;
const LEAST_DB = [-20, 30]; // the axis reaches at least so far
const MOST_DB = [-40, 80]; // and at most: what lies beyond is drawn at its end

/**
 * A place for the picture; a test without a reference has none.
 * @param {HTMLElement} place
 * @param {string | null} [ear] named where the other one's picture is on the page as well
 */
export function shiftPicture(place, ear = null) {
  const heading = el("h3", { class: ear ? `ear ${ear}` : "" },
    ear ? t("shifts.title", { ear: word("the_ear", ear) }) : t("shifts.heading"));
  const picture = el("div", { class: "picture" });
  const legend = el("p", { class: "hint" });
  const numbers = numbersBelow();
  fill(place, heading, picture, legend, numbers.whole);
  return {
    /** @param {Live} live */
    draw(live) {
      const columns = columnsOf(live);
      place.hidden = live.shifts.length === 0 || live.decision === null;
      if (place.hidden) return;
      const lines = ruleLines(live);
      fill(picture, drawing(live.ear, columns, lines));
      legend.textContent = live.rule ? t("shifts.legend_rule") : t("shifts.legend");
      const rows = columns.map((one) => [
        one.name,
        signed(one.middle),
        t("audiogram.from_to", { low: signed(one.low), high: signed(one.high) }),
        one.kind === "amount" ? "\u2013" : one.kind === "tested" ? t("shifts.yes") : t("shifts.no"),
      ]);
      const names = [
        t("audiogram.frequency_short"), t("shifts.shift"), t("audiogram.interval"), t("shifts.tested"),
      ];
      const caption = t("shifts.caption", { ear: word("ear", live.ear) });
      numbers.show(table(caption, names, rows), el("p", { class: "hint" }, t("shifts.apart")));
    },
  };
}

/** @param {number} db */
export const signed = (db) => (Math.round(db) > 0 ? `+${Math.round(db)}` : decibels(Math.round(db)));

/**
 * @param {Live} live
 * @returns {Column[]}
 */
function columnsOf({ shifts, amount, tested_hz: tested }) {
  const usual = shifts.filter((one) => shifts.length <= 12 || USUAL_HZ.includes(one.frequency_hz));
  const each = usual.map((one) => ({
    name: hertz(one.frequency_hz), low: one.low, middle: one.shift, high: one.high,
    hz: [one.frequency_hz], kind: tested.includes(one.frequency_hz) ? "tested" : "inferred",
  }));
  if (amount === null || amount.unit || amount.frequencies_hz.length === 1) return each;
  const name = word("shifts.what", amount.what);
  const { low, middle, high, frequencies_hz: hz } = amount;
  return [{ name, low, middle, high, hz, kind: "amount" }, ...each];
}

/**
 * Where the rule's lines stand: over the frequencies of each size that it names.
 * @param {Live} live
 */
function ruleLines({ rule_lines: lines }) {
  const sizes = [...new Set(lines.map((line) => line.shift))];
  return sizes.map((db) => ({
    db, hz: lines.filter((line) => line.shift === db).flatMap((line) => line.frequencies_hz),
  }));
}

/**
 * @param {string} ear
 * @param {Column[]} columns
 * @param {{ db: number, hz: number[] }[]} lines
 */
function drawing(ear, columns, lines) {
  const ends = [...columns.flatMap(({ low, high }) => [low, high]), ...lines.map(({ db }) => db)];
  const softest = Math.max(MOST_DB[0], Math.min(LEAST_DB[0], Math.floor(Math.min(...ends) / 10) * 10));
  const loudest = Math.min(MOST_DB[1], Math.max(LEAST_DB[1], Math.ceil(Math.max(...ends) / 10) * 10));
  const step = (WIDTH - LEFT - RIGHT) / columns.length;
  const bottom = HEIGHT - BOTTOM;
  /** @param {number} index */
  const x = (index) => LEFT + (index + 0.5) * step;
  /** @param {number} db */
  const y = (db) =>
    TOP + ((Math.min(Math.max(db, softest), loudest) - softest) / (loudest - softest)) * (bottom - TOP);
  const marks = [];
  for (let db = softest; db <= loudest; db += 10) {
    marks.push(
      svg("line", { x1: LEFT, y1: y(db), x2: WIDTH - RIGHT, y2: y(db), class: db === 0 ? "grid zero" : "grid" }),
    );
    if (db % 20 === 0) {
      marks.push(svg("text", { x: LEFT - 6, y: y(db) + 5, "text-anchor": "end" }, signed(db)));
    }
  }
  columns.forEach((one, index) => {
    const [first, second] = splitName(one.name);
    const place = { x: x(index), "text-anchor": "middle" };
    marks.push(svg("text", { ...place, y: bottom + 20 }, first), svg("text", { ...place, y: bottom + 37 }, second));
  });
  marks.push(
    svg("rect", { x: LEFT, y: TOP, width: WIDTH - LEFT - RIGHT, height: bottom - TOP, class: "frame" }),
    svg("text", { x: LEFT, y: HEIGHT - 5 }, t("shifts.axis")),
  );
  if (columns[0].kind === "amount") {
    const edge = LEFT + step;
    marks.push(svg("line", { x1: edge, y1: TOP, x2: edge, y2: bottom, class: "frame" }));
  }
  for (const { db, hz } of lines) marks.push(...ruleLine(columns, hz, db, x, y, step));
  columns.forEach((one, index) => marks.push(interval(one, x(index), y)));
  const shape = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: `chart shifts ${ear}` };
  const title = t("shifts.title", { ear: word("the_ear", ear) });
  return svg("svg", { ...shape, "aria-label": `${title}. ${t("chart.see_table")}` }, marks);
}

/**
 * A name of two words stands on two lines: a phone has no room for one.
 * @param {string} name
 */
function splitName(name) {
  const [first, ...rest] = name.split(" ");
  return [first, rest.join(" ")];
}

/**
 * The rule's line over the columns that it speaks of, named once.
 * @param {Column[]} columns
 * @param {number[]} hz
 * @param {number} db
 * @param {(index: number) => number} x
 * @param {(db: number) => number} y
 * @param {number} step
 */
function ruleLine(columns, hz, db, x, y, step) {
  const counted = columns.flatMap((one, index) => (one.hz.some((f) => hz.includes(f)) ? [index] : []));
  const at = y(db);
  const parts = counted.map((index) =>
    svg("line", { x1: x(index) - step / 2, y1: at, x2: x(index) + step / 2, y2: at, class: "limit" }),
  );
  const [first, second] = splitName(t("shifts.rule", { n: decibels(Math.abs(db)) }));
  const place = { x: WIDTH - RIGHT + 5, class: "limit-name" };
  return [
    ...parts,
    svg("text", { ...place, y: at - 2 }, first),
    svg("text", { ...place, y: at + 13 }, second),
  ];
}

/**
 * @param {Column} one
 * @param {number} x
 * @param {(db: number) => number} y
 */
function interval(one, x, y) {
  const [top, middle, bottom] = [y(one.low), y(one.middle), y(one.high)];
  const ends = `M${x - 6} ${top}H${x + 6}M${x - 6} ${bottom}H${x + 6}M${x} ${top}V${bottom}`;
  const marks = [svg("path", { d: ends })];
  if (one.kind === "tested") {
    const diamond = `M${x} ${middle - 8}L${x + 7} ${middle}L${x} ${middle + 8}L${x - 7} ${middle}Z`;
    marks.push(svg("path", { d: diamond, class: "middle" }));
  } else {
    marks.push(svg("path", { d: `M${x - 9} ${middle}H${x + 9}` }));
  }
  return svg("g", { class: `interval ${one.kind}` }, marks);
}
