/* Where the numbers come from: the rules and the reference levels, with their sources. */

import { get } from "./api.js";
import { byId, complain, decibels, fill, t, table, word } from "./page.js";

async function showRules() {
  const rules = await get("/api/rules");
  const columns = ["about.rule", "about.text", "about.source", "about.checked"].map((key) => t(key));
  const rows = rules.map((rule) => [word("rule", rule.name), rule.text, rule.source, rule.unverified ?? t("about.verified")]);
  fill(byId("rule-list"), table(t("about.rules"), columns, rows, { class: "list bare" }));
}

async function showLevels() {
  const presets = await get("/api/retspl");
  const hz = [...new Set(presets.flatMap((preset) => Object.keys(preset.values)))].map(Number).sort((a, b) => a - b);
  const heads = ["device.earphone", "device.coupler", "about.source", "device.status"].map((key) => t(key));
  const rows = presets.map((preset) => [
    preset.earphone,
    preset.coupler,
    preset.source,
    word("status", preset.status),
    ...hz.map((each) => (preset.values[each] === undefined ? "\u2013" : decibels(preset.values[each]))),
  ]);
  fill(byId("retspl-list"), table(t("about.numbers"), [...heads, ...hz.map((each) => t("chart.hz", { n: each }))], rows, { class: "bare" }));
}

Promise.all([showRules(), showLevels()]).catch(complain);
