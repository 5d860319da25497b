// @ts-check
/* A person's hearing over time: thresholds and the probability of change, each ear by itself. */

import { chart } from "./chart.js";
import { el, t, word } from "./dom.js";
import { EARS } from "./ears.js";
import { dayText, decibels, hertz, percent } from "./format.js";

const DRAWN_HZ = [500, 1000, 2000, 4000, 8000]; // more lines than these are a tangle
const MONTH_MS = 30 * 24 * 3600 * 1000;

/** @typedef {HistoryPoint & { on: string }} Dated what was measured on a known day */
/** @typedef {Dated & { p_changed: number }} Screened */

/**
 * @param {Record<string, HistoryPoint[]>} history by ear
 * @returns {Element}
 */
export function historyView(history) {
  const ears = EARS.filter((ear) => history[ear].length > 0);
  if (ears.length === 0) return el("p", { class: "quiet" }, t("person.no_history"));
  const sections = ears.map((ear) => {
    const heading = el("h3", { class: `ear ${ear}` }, word("ear", ear));
    return el("section", {}, heading, earHistory(ear, history[ear]));
  });
  return el("div", { class: "columns even" }, sections);
}

/**
 * @param {Ear} ear
 * @param {HistoryPoint[]} all
 */
function earHistory(ear, all) {
  const points = all.flatMap((point) => (point.on === null ? [] : [{ ...point, on: point.on }]));
  // Levels of different units are never drawn together.
  const charts = [...new Set(points.map((point) => point.unit))].map((unit) =>
    thresholdChart(ear, unit, points.filter((point) => point.unit === unit)),
  );
  const screened = points.flatMap((point) =>
    point.p_changed === null ? [] : [{ ...point, p_changed: point.p_changed }],
  );
  return screened.length > 0 ? [...charts, changeChart(ear, screened)] : charts;
}

/**
 * @param {Ear} ear
 * @param {string} unit
 * @param {Dated[]} points
 */
function thresholdChart(ear, unit, points) {
  const place = el("div");
  const measured = new Set(points.flatMap((point) => Object.keys(point.thresholds)).map(Number));
  const lines = DRAWN_HZ.filter((hz) => measured.has(hz)).map((hz) => ({
    name: hertz(hz),
    points: points
      .filter((point) => hz in point.thresholds)
      .map((point) => ({ x: Date.parse(point.on), y: point.thresholds[hz] })),
  }));
  const levels = lines.flatMap((line) => line.points.map((point) => point.y));
  const [low, high] = [Math.min(-10, ...levels), Math.max(60, ...levels)];
  const ticks = [];
  for (let level = Math.ceil(low / 20) * 20; level <= high; level += 20) {
    ticks.push({ at: level, text: decibels(level) });
  }
  const frequencies = [...measured].sort((a, b) => a - b);
  chart(place).draw({
    title: t("person.thresholds_of", { ear: word("ear", ear), unit }),
    x: days(points),
    y: { low, high, ticks, down: true },
    lines,
    columns: [t("person.day"), ...frequencies.map(hertz)],
    rows: points.map((point) => [
      dayText(point.on),
      ...frequencies.map((hz) =>
        hz in point.thresholds ? decibels(point.thresholds[hz]) : "\u2013",
      ),
    ]),
  });
  return place;
}

/**
 * @param {Ear} ear
 * @param {Screened[]} points
 */
function changeChart(ear, points) {
  const place = el("div");
  const line = points.map((point) => ({
    x: Date.parse(point.on), y: point.p_changed, mark: point.decision,
  }));
  chart(place).draw({
    title: t("person.change_of", { ear: word("ear", ear) }),
    x: days(points),
    y: { low: 0, high: 1, ticks: [0, 0.5, 1].map((p) => ({ at: p, text: percent(p) })) },
    lines: [{ name: "", points: line }],
    columns: [t("person.day"), t("probability.p"), t("person.decision")],
    rows: points.map((point) => [
      dayText(point.on),
      percent(point.p_changed),
      point.decision ? word("decision", point.decision) : "\u2013",
    ]),
  });
  return place;
}

/**
 * The axis of days: from the first to the last, with a tick at both and in the middle.
 * @param {Dated[]} points
 */
function days(points) {
  const label = t("person.day");
  const measured = points.map((point) => Date.parse(point.on));
  const [first, last] = [Math.min(...measured), Math.max(...measured)];
  if (first === last) {
    return { low: first - 1, high: first + 1, ticks: [{ at: first, text: points[0].on }], label };
  }
  const long = last - first > 6 * MONTH_MS;
  const ticks = (long ? [first, (first + last) / 2, last] : [first, last]).map((day) => ({
    at: day, text: new Date(day).toISOString().slice(0, 7),
  }));
  return { low: first, high: last, ticks, label };
}
