/* The probability of change, tone by tone, between the limits at which the test decides. */

import { chart } from "./chart.js";
import { byId, percent, t } from "./page.js";

const QUARTERS = [0, 0.25, 0.5, 0.75, 1];

/** Draws what `Live` says into a place; an exam without a question has no such picture. */
export function probability(place) {
  const picture = chart(place, false); // the page's own heading is its title
  return {
    draw({ p_changed: moves, limits, max_tones: most }) {
      byId("probability-card").hidden = moves.length === 0 && !limits;
      const last = Math.max(5, most ?? 0, ...moves.map((move) => move.tone));
      const step = last > 20 ? 10 : last > 10 ? 5 : 1;
      const ticks = [];
      for (let tone = 0; tone <= last; tone += step) ticks.push({ at: tone, text: tone });
      picture.draw({
        title: t("probability.title"),
        x: { low: 0, high: last, ticks, label: t("probability.tones") },
        y: { low: 0, high: 1, ticks: QUARTERS.map((p) => ({ at: p, text: percent(p) })) },
        lines: [{ name: "", points: moves.map((move) => ({ x: move.tone, y: move.p })) }],
        limits: limits
          ? [
              { at: limits.changed_at, text: t("probability.changed_at", { p: percent(limits.changed_at) }) },
              { at: limits.unchanged_at, text: t("probability.unchanged_at", { p: percent(limits.unchanged_at) }) },
            ]
          : [],
        columns: [t("probability.tone"), t("probability.p")],
        rows: moves.map((move) => [move.tone, percent(move.p)]),
      });
    },
  };
}
