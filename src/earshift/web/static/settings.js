// @ts-check
/* What the site settles for itself, each with its source; changed with a reason. */

import { at, get, post, whoAmI } from "./api.js";
import { byId, el, fill, t } from "./dom.js";
import { localTime } from "./format.js";
import { complain, onSubmit, say, typed } from "./page.js";

/** @param {SiteSetting} setting */
function shown(setting) {
  if (typeof setting.value === "boolean") return setting.value ? t("settings.yes") : t("settings.no");
  if (typeof setting.value === "string") return setting.value || t("settings.not_given");
  return t("settings.amount", { n: setting.value, unit: setting.unit });
}

/** @param {SiteSetting} setting */
function valueInput(setting) {
  const shared = { id: `value-${setting.name}`, name: "value", required: true };
  if (typeof setting.value === "boolean") {
    const options = [["true", t("settings.yes")], ["false", t("settings.no")]].map(([value, text]) =>
      el("option", { value, selected: value === String(setting.value) }, text),
    );
    return el("select", shared, options);
  }
  const { lowest: min, highest: max, value } = setting;
  if (typeof value === "string") {
    return el("input", { ...shared, type: "text", required: min > 0, maxlength: max, value });
  }
  return el("input", { ...shared, type: "number", inputmode: "numeric", min, max, step: 1, value });
}

/**
 * @param {SiteSetting} setting
 * @param {string} text
 */
function valueOf(setting, text) {
  if (typeof setting.value === "string") return text;
  return typeof setting.value === "boolean" ? text === "true" : Number(text);
}

/**
 * @param {SiteSetting} setting
 * @param {boolean} mayChange
 */
async function card(setting, mayChange) {
  const { name, author, at: when, reason } = setting;
  const chosen = author && when
    ? el("p", { class: "hint" }, t("settings.chosen", { author, reason, at: await localTime(when) }))
    : el("p", { class: "hint" }, t("settings.delivered"));
  const form = el("form", { class: "change" },
    el("div", { class: "row" },
      el("div", { class: "field" },
        el("label", { for: `value-${name}` }, t("settings.value")), valueInput(setting)),
      el("div", { class: "field grow" },
        el("label", { for: `reason-${name}` }, t("settings.reason")),
        el("input", { id: `reason-${name}`, name: "reason", required: true, maxlength: 500 })),
      el("button", { type: "submit" }, t("settings.save"))));
  onSubmit(form, async (fields) => {
    const typedValue = typed(fields, "value");
    const value = valueOf(setting, typedValue);
    await post(at("/api/settings/{name}", { name }), { value, reason: typed(fields, "reason") });
    say(t("settings.saved"));
    await show();
  });
  return el("section", { class: "card narrow" },
    el("h2", {}, setting.text),
    el("p", { class: "setting" }, shown(setting)),
    el("p", { class: "hint" }, t("settings.source", { source: setting.source })),
    chosen,
    mayChange ? el("details", {}, el("summary", {}, t("settings.change")), form) : null);
}

async function show() {
  const [settings, me] = await Promise.all([get("/api/settings"), whoAmI()]);
  const mayChange = me.role === "admin";
  fill(byId("settings"), await Promise.all(settings.map((one) => card(one, mayChange))));
}

show().catch(complain);
