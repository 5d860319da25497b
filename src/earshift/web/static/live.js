// @ts-check
/* The view of a test as it runs: verdict, counts, audiogram, probability of change, every trial. */

import { audiogram } from "./audiogram.js";
import { byId, el, fill, t, word } from "./dom.js";
import { decibels, decisionBadge, hertz, percent } from "./format.js";
import { probability } from "./probability.js";
import { shiftPicture } from "./shifts.js";
import { facts, table } from "./table.js";

const WORTH_SAYING = 0.01; // as in the engine: no decision while the doubt is larger

/** The view that the page's template holds; `draw` it with what `Live` says and the next tone. */
export function liveView() {
  const ear = audiogram(byId("audiogram"));
  const change = probability(byId("probability"));
  const shifts = shiftPicture(byId("shifts"));
  let running = false;
  return {
    /**
     * @param {Live} live
     * @param {Presentation | null} [next]
     */
    draw(live, next = null) {
      const over = !["open", "paused"].includes(live.state);
      showVerdict(live, over);
      // Spoken once, at the end: a sentence after every tone would be in the way.
      if (over && running) byId("verdict-said").textContent = byId("verdict").textContent;
      running = !over;
      facts(byId("counts"), countsOf(live));
      const notes = live.notes.filter((note) => !live.words.includes(note));
      fill(byId("live-notes"), notes.map((note) => el("li", {}, note)));
      ear.draw({ ...live, next });
      change.draw(live);
      shifts.draw(live);
      fill(byId("tones"), trialsOf(live));
    },
  };
}

/**
 * A verdict is what the test ended with; before that there is only how it stands.
 * @param {Live} live
 * @param {boolean} over
 */
function showVerdict(live, over) {
  const badge = over && live.decision
    ? decisionBadge(live.decision, live.next_step)
    : el("span", { class: "badge open" }, word("state", live.state));
  // Older results have all of their words in one.
  const first = live.sentence || live.words;
  const sentence = over ? first : t("live.so_far", { words: first });
  const rest = live.words.slice(first.length).trim();
  fill(
    byId("verdict"),
    el("p", { class: "verdict" }, badge),
    first ? el("p", { class: "sentence" }, sentence) : null,
    rest ? el("p", {}, rest) : null,
  );
}

/**
 * @param {Live} live
 * @returns {[string, string | number | null][]}
 */
function countsOf(live) {
  const last = live.p_changed.at(-1);
  const alarms = { alarms: live.false_alarms, trials: live.catch_trials };
  const count = { n: live.tones, most: live.max_tones };
  return [
    [live.rule ? t("live.p_rule") : t("live.p"), last ? percent(last.p) : null],
    [t("live.rule"), live.rule ? word("rule", live.rule) : null],
    [t("live.count"), live.max_tones ? t("live.count_of", count) : live.tones],
    [t("live.catch"), live.catch_trials ? t("live.alarms", alarms) : t("live.no_catch")],
    [t("live.presses"), live.presses || null],
    [t("live.reliability"), live.reliability ? word("reliability", live.reliability) : null],
    [t("live.attention"), live.attention === null ? null : percent(live.attention)],
    [t("live.not_listening"), inDoubt(live.p_not_listening) ? percent(live.p_not_listening) : null],
  ];
}

/**
 * Whether it is worth saying how likely the answers have nothing to do with the tones.
 * @param {number | null} p
 * @returns {p is number}
 */
const inDoubt = (p) => p !== null && p > WORTH_SAYING;

/** @param {Live} live */
function trialsOf(live) {
  if (live.trials.length === 0) return el("p", { class: "quiet" }, t("live.no_tones"));
  const columns = [
    t("column.number"), t("column.what"), t("column.frequency"),
    t("chart.in_unit", { unit: live.unit }), t("column.answer"),
  ];
  const rows = live.trials.map((trial) => [
    trial.number,
    trial.void ? t("live.void", { what: word("trial", trial.kind) }) : word("trial", trial.kind),
    trial.kind === "catch" ? "\u2013" : hertz(trial.frequency_hz),
    trial.level === null ? "\u2013" : decibels(trial.level),
    trial.heard ? t("desk.heard") : t("desk.missed"),
  ]);
  return table(t("live.trials"), columns, rows.reverse());
}
