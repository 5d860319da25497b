/* Where the numbers come from: the rules and the reference levels, with their sources. */

import { get } from "./api.js";
import { byId, complain, decibels, el, facts, fill, t, table, word } from "./page.js";

async function showRules() {
  const rules = await get("/api/rules");
  const columns = ["about.rule", "about.text", "about.source", "about.checked"].map((key) => t(key));
  const rows = rules.map((rule) => [word("rule", rule.name), rule.text, rule.source, rule.unverified ?? t("about.verified")]);
  fill(byId("rule-list"), table(t("about.rules"), columns, rows, { class: "list bare" }));
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
    const levels = Object.entries(preset.values).sort(([a], [b]) => a - b);
    const rows = levels.map(([hz, level]) => [t("chart.hz", { n: hz }), decibels(level)]);
    return el("details", { class: "route" }, el("summary", {}, name), list, table(name, columns, rows, { class: "bare" }));
  });
  fill(byId("retspl-list"), parts);
}

Promise.all([showRules(), showLevels()]).catch(complain);
