/* The view of a test as it runs: verdict, counts, audiogram, probability of change, every trial. */

import { audiogram } from "./audiogram.js";
import {
  byId, decibels, decisionBadge, el, facts, fill, percent, t, table, word,
} from "./page.js";
import { probability } from "./probability.js";

/** The view that the page's template holds; `draw` it with what `Live` says and the next tone. */
export function liveView() {
  const ear = audiogram(byId("audiogram"));
  let running = false;
  const chance = probability(byId("probability"));
  return {
    draw(live, next = null) {
      const over = !["open", "paused"].includes(live.state);
      showVerdict(live, over);
      // Spoken once, at the end: a sentence after every tone would be in the way.
      if (over && running) byId("verdict-said").textContent = byId("verdict").textContent;
      running = !over;
      facts(byId("counts"), countsOf(live));
      fill(byId("live-notes"), live.notes.filter((note) => !live.words.includes(note)).map((note) => el("li", {}, note)));
      ear.draw({ ...live, next });
      chance.draw(live);
      fill(byId("tones"), trialsOf(live));
    },
  };
}

/** A verdict is what the test ended with; before that there is only how it stands. */
function showVerdict(live, over) {
  const decision = over ? live.decision : null;
  const line = decision
    ? el("p", { class: "verdict" }, decisionBadge(decision))
    : el("p", { class: "verdict" }, el("span", { class: "badge open" }, word("state", live.state)));
  const said = [line, live.words ? el("p", {}, over ? live.words : t("live.so_far", { words: live.words })) : null];
  fill(byId("verdict"), said.filter(Boolean));
}

function countsOf(live) {
  const last = live.p_changed.at(-1);
  return [
    [t("live.p"), last ? percent(last.p) : null],
    [t("live.rule"), live.rule ? word("rule", live.rule) : null],
    [t("live.count"), live.max_tones ? t("live.count_of", { n: live.tones, most: live.max_tones }) : live.tones],
    [
      t("live.catch"),
      live.catch_trials ? t("live.alarms", { alarms: live.false_alarms, trials: live.catch_trials }) : t("live.no_catch"),
    ],
    [t("live.presses"), live.presses || null],
    [t("live.reliability"), live.reliability ? word("reliability", live.reliability) : null],
  ];
}

function trialsOf(live) {
  if (live.trials.length === 0) return el("p", { class: "quiet" }, t("live.no_tones"));
  const columns = ["number", "what", "frequency"].map((name) => word("column", name));
  const rows = live.trials.map((trial) => [
    trial.number,
    trial.void ? t("live.void", { what: word("trial", trial.kind) }) : word("trial", trial.kind),
    trial.kind === "catch" ? "\u2013" : t("chart.hz", { n: trial.frequency_hz }),
    trial.level === null ? "\u2013" : decibels(trial.level),
    trial.heard ? t("desk.heard") : t("desk.missed"),
  ]);
  columns.push(t("chart.in_unit", { unit: live.unit }), t("column.answer"));
  return table(t("live.trials"), columns, rows.reverse());
}
