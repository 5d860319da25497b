// @ts-check
/* The probability of change, tone by tone, between the limits at which the test decides. */

import { chart } from "./chart.js";
import { byId, t, word } from "./dom.js";
import { percent, small } from "./format.js";

/** @param {Pick<Live, "amount">} live */
const isNotch = (live) => live.amount?.what === "dip";

/**
 * What the probability is of.
 * @param {Pick<Live, "amount" | "rule">} live
 */
export function questionOf(live) {
  if (isNotch(live)) return t("live.p_notch");
  return live.rule ? t("live.p_rule") : t("live.p");
}

const QUARTERS = [0, 0.25, 0.5, 0.75, 1];

/**
 * A place for the picture. An exam without a question about change has none.
 * @param {Element} place
 */
export function probability(place) {
  const picture = chart(place, false); // the page's own heading is its title
  return {
    /** @param {Live} live */
    draw(live) {
      const { p_changed: steps, limits, max_tones: most } = live;
      byId("probability-heading").textContent = questionOf(live);
      byId("probability-card").hidden = steps.length === 0 && !limits;
      const last = Math.max(5, most, ...steps.map((step) => step.tone));
      picture.draw({
        title: t("probability.title", { what: questionOf(live) }),
        x: { low: 0, high: last, ticks: toneTicks(last), label: t("probability.tones") },
        y: { low: 0, high: 1, ticks: QUARTERS.map((p) => ({ at: p, text: percent(p) })) },
        lines: [{ name: "", points: steps.map((step) => ({ x: step.tone, y: step.p })) }],
        limits: limits ? limitLines(live, limits) : [],
        columns: [t("probability.tone"), questionOf(live)],
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

/**
 * @param {Live} live
 * @param {NonNullable<Live["limits"]>} limits
 */
function limitLines(live, { changed_at: changed, unchanged_at: unchanged }) {
  const [yes, no] = isNotch(live)
    ? [word("decision", "notch"), word("decision", "no notch")]
    : [word("decision", "changed"), word("decision", "unchanged")];
  return [
    { at: changed, text: t("probability.yes_at", { verdict: small(yes), p: percent(changed) }) },
    { at: unchanged, text: t("probability.no_at", { verdict: small(no), p: percent(unchanged) }) },
  ];
}
