// @ts-check
/* The probability of change, tone by tone, between the limits at which the test decides. */

import { chart } from "./chart.js";
import { byId, t } from "./dom.js";
import { percent } from "./format.js";

const QUARTERS = [0, 0.25, 0.5, 0.75, 1];

/**
 * A place for the picture. An exam without a question about change has none.
 * @param {Element} place
 */
export function probability(place) {
  const picture = chart(place, false); // the page's own heading is its title
  return {
    /** @param {Live} live */
    draw({ p_changed: steps, limits, max_tones: most, rule }) {
      byId("probability-heading").textContent = rule ? t("live.p_rule") : t("live.p");
      byId("probability-card").hidden = steps.length === 0 && !limits;
      const last = Math.max(5, most, ...steps.map((step) => step.tone));
      picture.draw({
        title: t("probability.title"),
        x: { low: 0, high: last, ticks: toneTicks(last), label: t("probability.tones") },
        y: { low: 0, high: 1, ticks: QUARTERS.map((p) => ({ at: p, text: percent(p) })) },
        lines: [{ name: "", points: steps.map((step) => ({ x: step.tone, y: step.p })) }],
        limits: limits ? limitLines(limits) : [],
        columns: [t("probability.tone"), t("probability.p")],
        rows: steps.map((step) => [step.tone, percent(step.p)]),
      });
    },
  };
}

/** @param {number} last */
function toneTicks(last) {
  const step = last > 20 ? 10 : last > 10 ? 5 : 1;
  const ticks = [];
  for (let tone = 0; tone <= last; tone += step) ticks.push({ at: tone, text: String(tone) });
  return ticks;
}

/** @param {NonNullable<Live["limits"]>} limits */
function limitLines({ changed_at: changed, unchanged_at: unchanged }) {
  return [
    { at: changed, text: t("probability.changed_at", { p: percent(changed) }) },
    { at: unchanged, text: t("probability.unchanged_at", { p: percent(unchanged) }) },
  ];
}
