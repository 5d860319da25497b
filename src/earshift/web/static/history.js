// @ts-check
/* A person's hearing over time: baseline against now, thresholds and the probability of change, each
   ear by itself. */

import { audiogram } from "./audiogram.js";
import { chart } from "./chart.js";
import { el, t, word } from "./dom.js";
import { EARS } from "./ears.js";
import { dayText, decibels, hertz, percent } from "./format.js";

const MONTH_MS = 30 * 24 * 3600 * 1000;

/** @typedef {HistoryPoint & { on: string }} Dated what was measured on a known day */
/** @typedef {Dated & { p_changed: number }} Screened */

/**
 * @param {Record<string, HistoryPoint[]>} history by ear
 * @param {PersonFile["baselines"]} baselines
 * @returns {Element}
 */
export function historyView(history, baselines) {
  const ears = EARS.filter((ear) => history[ear].length > 0);
  if (ears.length === 0) return el("p", { class: "quiet" }, t("person.no_history"));
  const sections = ears.map((ear) => {
    const heading = el("h3", { class: `ear ${ear}` }, word("ear", ear));
    const compared = baselineAgainstNow(ear, history[ear], baselines[ear]?.exam ?? null);
    return el("section", {}, heading, compared, earHistory(ear, history[ear]));
  });
  return el("div", { class: "columns even" }, sections);
}

/**
 * The newest thresholds over those of the baseline, as an audiogram; nothing where there is one test.
 * @param {Ear} ear
 * @param {HistoryPoint[]} points
 * @param {string | null} baseline
 */
function baselineAgainstNow(ear, points, baseline) {
  const then = points.find((point) => point.exam === baseline);
  const now = points.findLast(
    (point) => point !== then && point.unit === then?.unit && readingsOf(point).length > 0,
  );
  if (!then || !now) return null;
  const place = el("div");
  audiogram(place).draw({
    ear, unit: now.unit, thresholds: readingsOf(now), reference: readingsOf(then),
  });
  const on = { then: then.on ?? t("person.no_day"), now: now.on ?? t("person.no_day") };
  const text = now.kind === "screen" ? t("person.against_screen", on) : t("person.against", on);
  return el("div", {}, el("p", { class: "chart-title" }, text), place);
}

/**
 * @param {HistoryPoint} point
 */
function readingsOf({ thresholds, intervals, no_response: silent }) {
  return Object.entries({ ...thresholds, ...silent }).map(([hz, level]) => ({
    frequency_hz: Number(hz), level, low: intervals[hz]?.[0] ?? null, high: intervals[hz]?.[1] ?? null,
    censored: hz in silent ? "above" : null,
  }));
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
  const frequencies = [...measured].sort((a, b) => a - b);
  const lines = frequencies.map((hz) => ({
    name: hertz(hz),
    points: points
      .filter((point) => hz in point.thresholds)
      .map((point) => ({ x: Date.parse(point.on), y: point.thresholds[hz], mark: point.kind })),
  }));
  const names = { ear: word("ear", ear), unit };
  const screened = points.some(
    (point) => point.kind === "screen" && Object.keys(point.thresholds).length > 0,
  );
  const levels = lines.flatMap((line) => line.points.map((point) => point.y));
  const [low, high] = [Math.min(-10, ...levels), Math.max(60, ...levels)];
  const ticks = [];
  for (let level = Math.ceil(low / 20) * 20; level <= high; level += 20) {
    ticks.push({ at: level, text: decibels(level) });
  }
  chart(place).draw({
    ear,
    title: t(screened ? "person.thresholds_of_screens" : "person.thresholds_of", names),
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
    ear,
    title: t("person.change_of", { ear: word("ear", ear) }),
    x: days(points),
    y: { low: 0, high: 1, ticks: [0, 0.5, 1].map((p) => ({ at: p, text: percent(p) })) },
    lines: [{ name: "", points: line }],
    columns: [t("person.day"), t("live.p"), t("person.decision")],
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
