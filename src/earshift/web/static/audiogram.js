// @ts-check
/* The audiogram of one ear, by the conventions of ISO 8253-1: frequency to the right in octaves,
   level downwards, an octave as long as 20 dB; right red circles, left blue crosses; no response is
   an arrow that no line leads to. A symbol says that tones were given at its frequency: between them
   there are line and band alone. Levels carry the unit of the data and no other. */

import { arrow, counted, nextMark, symbol, timesMark, toneMark } from "./audiogram_marks.js";
import { el, fill, svg, t, word } from "./dom.js";
import { decibels, hertz } from "./format.js";
import { numbersBelow, table } from "./table.js";

/**
 * @typedef {Pick<Threshold, "frequency_hz" | "level" | "censored">
 *   & { low: number | null, high: number | null }} Reading no interval where nobody knows it
 * @typedef {{ frequency_hz: number, level: number }} Mark
 * @typedef {{
 *   ear: string, unit: string, now: Reading[], reference: Reading[],
 *   tested: number[] | null, referenceTested: number[] | null,
 *   tones: (Mark & { heard: boolean })[], next: Mark | null,
 * }} Drawn frequencies that were tested in Hz; null where all of them were
 * @typedef {ReturnType<typeof scaleOf>} Scales
 */

const OCTAVE = 62;
const DB = OCTAVE / 20;
const OCTAVES_HZ = [125, 250, 500, 1000, 2000, 4000, 8000, 16000];
const BETWEEN_HZ = [750, 1500, 3000, 6000, 12000];
const LEFT = 58;
const TOP = 50;
const EDGE_OCTAVES = 0.45;
const EDGE_DB = 6;

/**
 * A place for an audiogram; `draw` it again whenever there is more to show.
 * @param {Element} place
 */
export function audiogram(place) {
  const picture = el("div", { class: "picture" });
  const legend = el("ul", { class: "legend" });
  const numbers = numbersBelow();
  fill(place, picture, legend, numbers.whole);
  return {
    /**
     * @param {{
     *   ear: string, unit: string, thresholds?: Reading[], reference?: Reading[],
     *   tested_hz?: number[] | null, reference_tested_hz?: number[] | null,
     *   trials?: Trial[], next?: Presentation | null,
     * }} data
     */
    draw(data) {
      const { ear, unit, thresholds = [], reference = [], trials = [], next = null } = data;
      const shown = {
        ear,
        unit,
        tested: data.tested_hz ?? null,
        referenceTested: data.reference_tested_hz ?? null,
        now: inOrder(thresholds),
        reference: inOrder(reference),
        tones: trials.filter((trial) => trial.kind === "tone" && !trial.void).flatMap(withLevel),
        next: next === null ? null : (withLevel(next)[0] ?? null),
      };
      fill(picture, drawing(shown));
      fill(legend, legendOf(shown));
      numbers.show(numbersOf(shown));
    },
  };
}

/**
 * Silence has no level and is not drawn.
 * @template {{ level: number | null }} T
 * @param {T} tone
 * @returns {(T & { level: number })[]}
 */
const withLevel = (tone) => (tone.level === null ? [] : [{ ...tone, level: tone.level }]);

/** @param {Reading[]} readings */
const inOrder = (readings) => [...readings].sort((a, b) => a.frequency_hz - b.frequency_hz);

/** @param {Drawn} drawn */
function scaleOf({ unit, now, reference, tones, next }) {
  const points = [...now, ...reference, ...tones, ...(next ? [next] : [])];
  const hz = points.map((point) => point.frequency_hz);
  const lowest = Math.min(...hz, 125);
  const highest = Math.max(...hz, 8000);
  // dB HL has the clinic's usual axis; relative levels have no usual one, so the data decide.
  const levels = points.map((point) => point.level);
  const [softest, loudest] =
    unit === "dB HL"
      ? [-10, 120]
      : [Math.min(-10, ...levels.map(tenBelow)), Math.max(90, ...levels.map(tenAbove))];
  /** @param {number} frequency */
  const x = (frequency) => LEFT + (Math.log2(frequency / lowest) + EDGE_OCTAVES) * OCTAVE;
  // What lies beyond the axis is drawn at its end: the table has the number.
  /** @param {number} level */
  const y = (level) =>
    TOP + (Math.min(Math.max(level, softest), loudest) - softest + EDGE_DB) * DB;
  return {
    x, y, lowest, highest, softest, loudest,
    right: x(highest) + EDGE_OCTAVES * OCTAVE,
    bottom: y(loudest) + EDGE_DB * DB,
  };
}

/** @param {number} level */
const tenBelow = (level) => Math.floor(level / 10) * 10;
/** @param {number} level */
const tenAbove = (level) => Math.ceil(level / 10) * 10;

/** @param {Drawn} shown */
function drawing(shown) {
  const scale = scaleOf(shown);
  const title = t("audiogram.title", { ear: word("ear", shown.ear) });
  const marks = counted(shown.tones).map(({ tone, times, aside }) =>
    ({ tone, times, x: scale.x(tone.frequency_hz) + aside, y: scale.y(tone.level) }));
  return svg(
    "svg",
    {
      viewBox: `0 0 ${scale.right + 4} ${scale.bottom + 4}`,
      role: "img",
      "aria-label": `${title}. ${t("chart.see_table")}`,
      class: `audiogram ${shown.ear}`,
    },
    band(scale, shown.now),
    grid(scale, shown.unit),
    curve(scale, shown.ear, shown.reference, "reference", 6, shown.referenceTested),
    marks.map(({ x, y, tone }) => toneMark(x, y, tone.heard)),
    curve(scale, shown.ear, shown.now, "now", 8, shown.tested),
    marks.map(({ x, y, tone, times }) => timesMark(x, y, tone.heard, times)),
    shown.next ? nextMark(scale.x(shown.next.frequency_hz), scale.y(shown.next.level)) : null,
  );
}

/**
 * @param {Scales} scale
 * @param {string} unit
 */
function grid(scale, unit) {
  const { x, y, lowest, highest, softest, loudest, right, bottom } = scale;
  /** @type {Element[]} */
  const marks = [];
  /** @type {(x1: number, y1: number, x2: number, y2: number, kind: string) => unknown} */
  const line = (x1, y1, x2, y2, kind) => marks.push(svg("line", { x1, y1, x2, y2, class: kind }));
  /** @param {number} frequency */
  const within = (frequency) => lowest <= frequency && frequency <= highest;
  for (const frequency of BETWEEN_HZ.filter(within)) {
    line(x(frequency), TOP, x(frequency), bottom, "grid between");
  }
  for (const frequency of OCTAVES_HZ.filter(within)) {
    line(x(frequency), TOP, x(frequency), bottom, "grid");
    const place = { x: x(frequency), y: TOP - 9, "text-anchor": "middle" };
    marks.push(svg("text", place, frequency));
  }
  for (let level = softest; level <= loudest; level += 10) {
    line(LEFT, y(level), right, y(level), level === 0 ? "grid zero" : "grid");
    if (level % 20 === 0) {
      marks.push(svg("text", { x: LEFT - 7, y: y(level) + 5, "text-anchor": "end" }, decibels(level)));
    }
  }
  const middle = (LEFT + right) / 2;
  marks.push(
    svg("rect", { x: LEFT, y: TOP, width: right - LEFT, height: bottom - TOP, class: "frame" }),
    svg("text", { x: middle, y: 18, "text-anchor": "middle" }, t("audiogram.frequency")),
    svg("text", { x: 4, y: 18 }, unit),
  );
  return svg("g", {}, marks);
}

/**
 * The interval of every threshold, joined between neighbours; a lone one is a bar.
 * @param {Scales} scale
 * @param {Reading[]} readings
 */
function band({ x, y }, readings) {
  const known = readings.flatMap(({ frequency_hz: hz, low, high }) =>
    low === null || high === null ? [] : [{ at: x(hz), low: y(low), high: y(high) }],
  );
  if (known.length === 0) return null;
  const [first] = known;
  const sides = known.length > 1 ? known : [-5, 5].map((aside) => ({ ...first, at: first.at + aside }));
  const outline = [
    ...sides.map(({ at, low }) => [at, low]),
    ...sides.map(({ at, high }) => [at, high]).reverse(),
  ];
  return svg("polygon", { points: outline.map((point) => point.join(",")).join(" "), class: "band" });
}

/**
 * @param {Scales} scale
 * @param {string} ear
 * @param {Reading[]} readings
 * @param {string} kind
 * @param {number} radius
 * @param {number[] | null} tested
 */
function curve({ x, y }, ear, readings, kind, radius, tested) {
  /** @param {Reading} reading */
  const heard = (reading) => reading.censored !== "above";
  /** @type {(Element | null)[]} */
  const marks = readings.slice(1).map((reading, index) => {
    const before = readings[index];
    if (!heard(reading) || !heard(before)) return null;
    const [x1, y1] = [x(before.frequency_hz), y(before.level)];
    return svg("line", { x1, y1, x2: x(reading.frequency_hz), y2: y(reading.level) });
  });
  const symbols = tested === null
    ? atUsualFrequencies(readings)
    : readings.filter((reading) => tested.includes(reading.frequency_hz));
  for (const reading of symbols) {
    const [cx, cy] = [x(reading.frequency_hz), y(reading.level)];
    marks.push(symbol(ear, cx, cy, radius), heard(reading) ? null : arrow(ear, cx, cy, radius));
  }
  return svg("g", { class: kind }, marks);
}

/**
 * A curve drawn at many frequencies has symbols and numbers only where clinics measure.
 * @template {{ frequency_hz: number }} T
 * @param {T[]} readings
 */
export function atUsualFrequencies(readings) {
  const usual = new Set([...OCTAVES_HZ, ...BETWEEN_HZ]);
  return readings.length <= 20 ? readings : readings.filter((each) => usual.has(each.frequency_hz));
}

/** @param {Drawn} shown */
function legendOf({ ear, now, reference, tones, next }) {
  /**
   * @param {string} text
   * @param {string} kind
   * @param {Element[]} marks
   */
  const entry = (text, kind, ...marks) => {
    const shape = { viewBox: "0 0 36 24", "aria-hidden": "true", class: `audiogram ${ear}` };
    return el("li", {}, svg("svg", shape, svg("g", { class: kind }, marks)), text);
  };
  const flat = () => svg("line", { x1: 2, y1: 12, x2: 34, y2: 12 });
  const interval = () => svg("rect", { x: 2, y: 4, width: 32, height: 16, class: "band" });
  const unheard = [...now, ...reference].some((reading) => reading.censored === "above");
  const entries = [];
  if (now.length) {
    entries.push(entry(t("audiogram.now", { ear: word("ear", ear) }), "now", flat(), symbol(ear, 18, 12, 7)));
  }
  if (now.some((reading) => reading.low !== null)) entries.push(entry(t("audiogram.band"), "", interval()));
  if (reference.length) {
    entries.push(entry(t("audiogram.reference"), "reference", flat(), symbol(ear, 18, 12, 6)));
  }
  if (unheard) {
    entries.push(entry(t("audiogram.no_response"), "now", symbol(ear, 18, 8, 5), arrow(ear, 18, 8, 5)));
  }
  if (tones.some((tone) => tone.heard)) entries.push(entry(t("audiogram.heard"), "", toneMark(18, 12, true)));
  if (tones.some((tone) => !tone.heard)) entries.push(entry(t("audiogram.missed"), "", toneMark(18, 12, false)));
  if (counted(tones).some(({ times }) => times > 1)) {
    const times = svg("text", { x: 18, y: 17, "text-anchor": "middle", class: "times" }, t("audiogram.times", { n: 2 }));
    entries.push(entry(t("audiogram.repeated"), "", times));
  }
  if (next) entries.push(entry(t("audiogram.next"), "", nextMark(18, 12)));
  return entries;
}

/** @param {Drawn} shown */
function numbersOf({ ear, unit, now, reference }) {
  const all = [...new Set([...now, ...reference].map((reading) => reading.frequency_hz))];
  const frequencies = atUsualFrequencies(all.map((hz) => ({ frequency_hz: hz })));
  /**
   * @param {Reading[]} readings
   * @param {number} hz
   */
  const reading = (readings, hz) => readings.find((each) => each.frequency_hz === hz);
  const rows = inHertz(frequencies).map((hz) => [
    hertz(hz),
    levelText(reading(now, hz)),
    intervalText(reading(now, hz)),
    levelText(reading(reference, hz)),
  ]);
  const columns = [
    t("audiogram.frequency_short"), t("audiogram.now_short"), t("audiogram.interval"),
    t("audiogram.reference_short"),
  ];
  return table(t("audiogram.caption", { ear: word("ear", ear), unit }), columns, rows);
}

/** @param {{ frequency_hz: number }[]} each */
const inHertz = (each) => each.map(({ frequency_hz: hz }) => hz).sort((a, b) => a - b);

/** @param {Reading | undefined} reading */
export function levelText(reading) {
  if (!reading) return "\u2013";
  if (reading.censored === "above") return t("audiogram.above", { n: decibels(reading.level) });
  if (reading.censored === "below") return t("audiogram.below", { n: decibels(reading.level) });
  return decibels(reading.level);
}

/** @param {Reading | undefined} reading */
function intervalText(reading) {
  if (!reading || reading.low === null || reading.high === null) return "\u2013";
  return t("audiogram.from_to", { low: decibels(reading.low), high: decibels(reading.high) });
}
