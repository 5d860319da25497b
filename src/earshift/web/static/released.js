// @ts-check
/* What the person tested is told: each ear in plain words, with its audiogram. */

import { audiogram } from "./audiogram.js";
import { el, t } from "./dom.js";

/** @typedef {NonNullable<Play["released"]>[number]} Released */

/** @param {Released[]} released */
export function releasedView(released) {
  const ears = released.map((one) => {
    const picture = el("div");
    if (one.thresholds.length > 0) audiogram(picture).draw(one);
    return el(
      "section",
      { class: "result" },
      el("h2", {}, one.headline),
      one.plain.map((text) => el("p", {}, text)),
      one.thresholds.length > 0 ? el("p", { class: "hint" }, t("listen.over.picture")) : null,
      picture,
    );
  });
  const cautions = [...new Set(released.map((one) => one.caution))];
  return [...ears, ...cautions.map((text) => el("p", { class: "device" }, text))];
}
