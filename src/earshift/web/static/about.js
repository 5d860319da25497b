// @ts-check
/* Where the numbers come from: the rules and the reference levels, with their sources. */

import { get } from "./api.js";
import { byId, el, fill, t, word } from "./dom.js";
import { capital, decibels, hertz } from "./format.js";
import { complain } from "./page.js";
import { facts, table } from "./table.js";

async function showRules() {
  const rules = await get("/api/rules");
  const columns = [t("about.rule"), t("about.text"), t("about.source"), t("about.checked")];
  const rows = rules.map((rule) => [
    word("rule", rule.name), capital(rule.text), rule.source,
    rule.unverified ? t("about.not_verified") : t("about.verified"),
  ]);
  fill(byId("rule-list"), table(t("about.rules"), columns, rows, { class: "list bare labelled" }));
}

async function showLevels() {
  const presets = await get("/api/retspl");
  const columns = [t("column.frequency"), t("device.zero_hl")];
  const parts = presets.map((preset) => {
    const list = el("dl", { class: "facts" });
    facts(list, [
      [t("device.source"), preset.source],
      [t("device.status"), word("status", preset.status)],
    ]);
    const name = t("device.preset", preset);
    const levels = Object.entries(preset.values).sort(([a], [b]) => Number(a) - Number(b));
    const rows = levels.map(([hz, level]) => [hertz(hz), decibels(level)]);
    const numbers = table(name, columns, rows, { class: "bare" });
    return el("details", { class: "route" }, el("summary", {}, name), list, numbers);
  });
  fill(byId("retspl-list"), parts);
}

Promise.all([showRules(), showLevels()]).catch(complain);
