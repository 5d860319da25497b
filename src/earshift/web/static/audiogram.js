/* The audiogram of one ear, by the conventions of ISO 8253-1: frequency to the right in octaves,
   level downwards, an octave as long as 20 dB; right red circles, left blue crosses; no response is
   an arrow that no line leads to. Levels carry the unit of the data and no other. */

import { decibels, el, fill, svg, t, table, twin, word } from "./page.js";

const OCTAVE = 62;
const DB = OCTAVE / 20;
const OCTAVES_HZ = [125, 250, 500, 1000, 2000, 4000, 8000, 16000];
const BETWEEN_HZ = [750, 1500, 3000, 6000, 12000];
const LEFT = 58;
const TOP = 50;
const EDGE_OCTAVES = 0.45;
const EDGE_DB = 6;

/** A place for an audiogram; `draw` it again whenever there is more to show. */
export function audiogram(place) {
  const picture = el("div", { class: "picture" });
  const legend = el("ul", { class: "legend" });
  const numbers = twin();
  fill(place, picture, legend, numbers.whole);
  return {
    draw(data) {
      const { ear, unit, thresholds = [], reference = [], trials = [], next = null } = data;
      const shown = {
        ear,
        unit,
        now: inOrder(thresholds),
        reference: inOrder(reference),
        tones: trials.filter((trial) => trial.kind === "tone" && !trial.void),
        next: next?.level === null || next?.level === undefined ? null : next,
      };
      fill(picture, drawing(shown));
      fill(legend, legendOf(shown));
      numbers.show(numbersOf(shown));
    },
  };
}

const inOrder = (readings) => [...readings].sort((a, b) => a.frequency_hz - b.frequency_hz);

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
  const x = (frequency) => LEFT + (Math.log2(frequency / lowest) + EDGE_OCTAVES) * OCTAVE;
  // What lies beyond the axis is drawn at its end: the table has the number.
  const y = (level) =>
    TOP + (Math.min(Math.max(level, softest), loudest) - softest + EDGE_DB) * DB;
  return {
    x, y, lowest, highest, softest, loudest,
    right: x(highest) + EDGE_OCTAVES * OCTAVE,
    bottom: y(loudest) + EDGE_DB * DB,
  };
}

const tenBelow = (level) => Math.floor(level / 10) * 10;
const tenAbove = (level) => Math.ceil(level / 10) * 10;

function drawing(shown) {
  const scale = scaleOf(shown);
  const title = t("audiogram.title", { ear: word("ear", shown.ear) });
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
    curve(scale, shown.ear, shown.reference, "reference", 6),
    shown.tones.map((tone) => toneMark(scale.x(tone.frequency_hz), scale.y(tone.level), tone.heard)),
    curve(scale, shown.ear, shown.now, "now", 8),
    shown.next ? nextMark(scale.x(shown.next.frequency_hz), scale.y(shown.next.level)) : null,
  );
}

function grid(scale, unit) {
  const { x, y, lowest, highest, softest, loudest, right, bottom } = scale;
  const marks = [];
  const line = (x1, y1, x2, y2, kind) => marks.push(svg("line", { x1, y1, x2, y2, class: kind }));
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

/** The interval of every threshold, joined between neighbours; a lone one is a bar. */
function band({ x, y }, readings) {
  const known = readings
    .filter((reading) => reading.low !== null && reading.high !== null)
    .map((reading) => [x(reading.frequency_hz), y(reading.low), y(reading.high)]);
  if (known.length === 0) return null;
  const sides = known.length > 1 ? known : [-5, 5].map((aside) => [known[0][0] + aside, ...known[0].slice(1)]);
  const outline = [
    ...sides.map(([across, low]) => [across, low]),
    ...sides.map(([across, , high]) => [across, high]).reverse(),
  ];
  return svg("polygon", { points: outline.map((point) => point.join(",")).join(" "), class: "band" });
}

function curve({ x, y }, ear, readings, kind, radius) {
  const heard = (reading) => reading.censored !== "above";
  const marks = readings.slice(1).map((reading, index) => {
    const before = readings[index];
    if (!heard(reading) || !heard(before)) return null;
    const [x1, y1] = [x(before.frequency_hz), y(before.level)];
    return svg("line", { x1, y1, x2: x(reading.frequency_hz), y2: y(reading.level) });
  });
  // A curve drawn at many frequencies has a symbol only where clinics measure.
  const every = readings.length <= 20;
  const usual = new Set([...OCTAVES_HZ, ...BETWEEN_HZ]);
  for (const reading of readings.filter((each) => every || usual.has(each.frequency_hz))) {
    const at = [x(reading.frequency_hz), y(reading.level)];
    marks.push(symbol(ear, ...at, radius), heard(reading) ? null : arrow(ear, ...at, radius));
  }
  return svg("g", { class: kind }, marks);
}

function symbol(ear, x, y, radius) {
  if (ear === "right") return svg("circle", { cx: x, cy: y, r: radius });
  const r = 0.85 * radius;
  return svg("path", { d: `M${x - r} ${y - r}L${x + r} ${y + r}M${x - r} ${y + r}L${x + r} ${y - r}` });
}

function arrow(ear, x, y, radius) {
  const side = ear === "right" ? -1 : 1;
  const [start, end] = [0.75 * radius, 2.3 * radius];
  const [tipX, tipY] = [x + side * end, y + end];
  const head = `M${tipX - side * radius} ${tipY}H${tipX}V${tipY - radius}`;
  return svg("path", { d: `M${x + side * start} ${y + start}L${tipX} ${tipY}${head}` });
}

/** Heard: filled, pointing up to softer; not heard: open, pointing down to louder. */
function toneMark(x, y, heard) {
  const up = heard ? -6 : 6;
  const points = `${x - 6},${y - 0.7 * up} ${x + 6},${y - 0.7 * up} ${x},${y + up}`;
  return svg("polygon", { points, class: heard ? "tone heard" : "tone missed" });
}

function nextMark(x, y) {
  const arms = `M${x - 16} ${y}H${x - 8}M${x + 8} ${y}H${x + 16}M${x} ${y - 16}V${y - 8}M${x} ${y + 8}V${y + 16}`;
  return svg("g", { class: "next" }, svg("circle", { cx: x, cy: y, r: 10 }), svg("path", { d: arms }));
}

function legendOf({ ear, now, reference, tones, next }) {
  const entry = (text, kind, ...marks) =>
    el("li", {}, svg("svg", { viewBox: "0 0 36 24", "aria-hidden": "true", class: `audiogram ${ear}` }, svg("g", { class: kind }, marks)), text);
  const flat = () => svg("line", { x1: 2, y1: 12, x2: 34, y2: 12 });
  const unheard = [...now, ...reference].some((reading) => reading.censored === "above");
  return [
    now.length ? entry(t("audiogram.now", { ear: word("ear", ear) }), "now", flat(), symbol(ear, 18, 12, 7)) : null,
    now.some((reading) => reading.low !== null)
      ? entry(t("audiogram.band"), "", svg("rect", { x: 2, y: 4, width: 32, height: 16, class: "band" }))
      : null,
    reference.length ? entry(t("audiogram.reference"), "reference", flat(), symbol(ear, 18, 12, 6)) : null,
    unheard ? entry(t("audiogram.no_response"), "now", symbol(ear, 18, 8, 5), arrow(ear, 18, 8, 5)) : null,
    tones.some((tone) => tone.heard) ? entry(t("audiogram.heard"), "", toneMark(18, 12, true)) : null,
    tones.some((tone) => !tone.heard) ? entry(t("audiogram.missed"), "", toneMark(18, 12, false)) : null,
    next ? entry(t("audiogram.next"), "", nextMark(18, 12)) : null,
  ];
}

function numbersOf({ ear, unit, now, reference }) {
  const all = [...new Set([...now, ...reference].map((reading) => reading.frequency_hz))];
  const every = all.length <= 20;
  const usual = new Set([...OCTAVES_HZ, ...BETWEEN_HZ]);
  const frequencies = all.filter((hz) => every || usual.has(hz)).sort((a, b) => a - b);
  const at = (readings, hz) => readings.find((reading) => reading.frequency_hz === hz);
  const rows = frequencies.map((hz) => [
    t("chart.hz", { n: hz }),
    levelText(at(now, hz)),
    intervalText(at(now, hz)),
    levelText(at(reference, hz)),
  ]);
  const caption = t("audiogram.caption", { ear: word("ear", ear), unit });
  const columns = ["audiogram.frequency_short", "audiogram.now_short", "audiogram.interval", "audiogram.reference_short"];
  return table(caption, columns.map((key) => t(key)), rows);
}

function levelText(reading) {
  if (!reading) return "\u2013";
  if (reading.censored === "above") return t("audiogram.above", { n: decibels(reading.level) });
  if (reading.censored === "below") return t("audiogram.below", { n: decibels(reading.level) });
  return decibels(reading.level);
}

function intervalText(reading) {
  if (!reading || reading.low === null || reading.high === null) return "\u2013";
  return t("audiogram.from_to", { low: decibels(reading.low), high: decibels(reading.high) });
}
