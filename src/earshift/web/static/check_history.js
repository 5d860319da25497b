// @ts-check
/* Daily checks of a device: what one has found so far, and the past ones with how far off each was. */

import { chart } from "./chart.js";
import { el, fill, t, word } from "./dom.js";
import { EARS } from "./ears.js";
import { dayText, decibels, hertz } from "./format.js";
import { table } from "./table.js";

const FAILS_DB = 10; // drawn, not judged: which checks failed is the server's word
const LEAST_DB = 15;

/** @param {Record<string, number>} ofEar */
const worst = (ofEar) =>
  Object.values(ofEar).reduce((most, one) => (Math.abs(one) > Math.abs(most) ? one : most), 0);

/** @param {number} db */
const signed = (db) => (db > 0 ? `+${decibels(db)}` : decibels(db));

/**
 * @param {Element} place
 * @param {Checks} checks
 */
export function checkHistory(place, { count, newest }) {
  if (newest.length === 0) {
    fill(place, el("p", { class: "quiet" }, t("device.no_checks")));
    return;
  }
  const columns = [
    t("device.check_day"), t("device.check_listener"), t("device.check_worst"), t("device.check_outcome"),
  ];
  const rows = newest.toReversed().map((one) => [
    dayText(one.on),
    el("span", { dir: "auto" }, one.listener),
    signed(one.worst_db),
    one.failed ? el("strong", { class: "late" }, t("device.check_failed")) : t("device.check_passed"),
  ]);
  const picture = el("div");
  const shown = count > newest.length
    ? el("p", { class: "hint" }, t("device.checks_shown", { n: newest.length, of: count })) : null;
  const listed = el("div", { class: "checks" }, table(t("device.history"), columns, rows, { class: "bare" }));
  fill(place, picture, shown, listed);
  if (newest.length > 1) draw(picture, newest);
}

/**
 * @param {Element} place
 * @param {Checks["newest"]} newest
 */
function draw(place, newest) {
  const lines = EARS.map((ear) => ({
    name: word("ear_short", ear),
    points: newest.flatMap(({ deviations_db: off, failed }, x) =>
      off[ear] ? [{ x, y: worst(off[ear]), mark: failed ? "changed" : null }] : []),
  }));
  const most = Math.max(LEAST_DB, ...lines.flatMap(({ points }) => points.map(({ y }) => Math.abs(y))));
  const step = most > 40 ? 20 : 10;
  const high = Math.ceil(most / step) * step;
  // Not at the ends: the days stand there.
  const ticks = Array.from({ length: (2 * high) / step - 1 }, (_, n) => (n + 1) * step - high);
  const ends = [0, newest.length - 1].map((n) => ({ at: n, text: newest[n].on }));
  chart(place).draw({
    title: t("device.check_chart"),
    x: { low: 0, high: newest.length - 1, ticks: ends, label: t("device.check_day") },
    y: { low: -high, high, ticks: ticks.map((db) => ({ at: db, text: signed(db) })) },
    lines,
    limits: [FAILS_DB, -FAILS_DB].map((db) => ({ at: db, text: "" })),
    columns: [t("device.check_day"), ...EARS.map((ear) => word("ear", ear))],
    rows: newest.map((one) => [
      one.on, ...EARS.map((ear) => (one.deviations_db[ear] ? signed(worst(one.deviations_db[ear])) : "\u2013")),
    ]),
  });
}

/**
 * What a check has found so far, ear by ear.
 * @param {GuidedStep} now
 */
export function pointsOf({ points, establishes }) {
  const today = t("daily_check.today");
  const compared = [t("daily_check.usual"), today, t("daily_check.off")];
  const columns = [t("column.frequency"), ...(establishes ? [today] : compared)];
  /** @param {number | null} level */
  const number = (level) => (level === null ? "\u2013" : decibels(level));
  return EARS.map((ear) => {
    const rows = points.filter((one) => one.ear === ear).map((one) => {
      const off = one.deviation_db;
      const said = off === null ? "\u2013" : signed(off);
      const found = one.unclear ? t("daily_check.unclear") : number(one.found);
      const cells = establishes ? [found]
        : [number(one.usual), found, one.fails ? el("strong", { class: "late" }, said) : said];
      return [hertz(one.frequency_hz), ...cells];
    });
    return [el("h3", { class: `ear ${ear}` }, word("ear", ear)),
      table(word("ear", ear), columns, rows, { class: "bare" })];
  });
}
