// @ts-check
/* What a new test begins with: as this person was tested last, or as on this workstation. */

import { isAnotherBrowser } from "./browser_device.js";
import { byId, fill, t } from "./dom.js";

/** @typedef {{ devices: Device[], references: PersonFile["references"] }} Known */

const KEPT = "earshift.test";
export const NOTCH = "notch"; // asked in place of a rule

/**
 * As this person was tested last, else as on this workstation, else on the site's usual device or
 * one that is in order. What the address asks for goes before all of it; what an examiner consents
 * to is asked anew each time.
 * @param {HTMLFormElement} form
 * @param {Known} known
 * @param {PersonFile["last_test"]} last
 */
export function fillIn(form, { devices, references }, last) {
  const asked = Object.fromEntries(new URLSearchParams(location.search));
  const usual = devices.find((each) => each.default) ?? devices.find(isReadyHere);
  const here = remembered();
  choose(form, { device: usual?.id, ...here });
  if (last) fillInAs(form, last, here.device ?? usual?.id);
  else if (!canScreen(references)) choose(form, { kind: "exam" });
  choose(form, { kind: asked.kind, ears: asked.ears });
  if ("as" in asked || "kind" in asked) byId("start").focus();
}

/**
 * Whether a device is in order and at hand: an audiometer, or this browser.
 * @param {Device} device
 */
const isReadyHere = ({ in_order: ready, sound, fingerprint }) =>
  ready && (sound === "external" || !isAnotherBrowser(fingerprint));

/**
 * Whether there is anything that an ear can be compared with.
 * @param {PersonFile["references"]} references
 */
const canScreen = (references) => references.some((each) =>
  Object.values(each.ears).some((choices) => choices.some((choice) => choice.reason === null)));

/**
 * @param {HTMLFormElement} form
 * @param {NonNullable<PersonFile["last_test"]>} last
 * @param {string | undefined} usual the device unless the last test names one
 */
function fillInAs(form, last, usual) {
  const rule = last.notch ? NOTCH : last.rule;
  const { kind, device: on, answered_by, mode, ears: tested } = last;
  const others = rule ? { rule } : {};
  choose(form, { kind, device: on ?? usual, answered_by, mode, ears: tested.join(" "), ...others });
  fill(byId("as-last"), t("begin.as_last", { day: last.on }));
  byId("as-last").hidden = false;
}

/**
 * Choose what a form offers; what it does not offer stays as it was.
 * @param {HTMLFormElement} form
 * @param {Record<string, string | null | undefined>} values
 */
function choose(form, values) {
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined) continue;
    const select = document.getElementById(name);
    const offered = select instanceof HTMLSelectElement
      && [...select.options].some((option) => option.value === value);
    if (offered) select.value = value;
    for (const radio of form.querySelectorAll("input")) {
      if (radio.type === "radio" && radio.name === name && radio.value === value) radio.checked = true;
    }
  }
}

/** @returns {Record<string, string>} */
function remembered() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT) ?? "{}");
    return Object.fromEntries(Object.entries(kept).filter(([, value]) => typeof value === "string"));
  } catch {
    return {}; // a browser may keep nothing, or something else
  }
}

/** @param {Record<string, string>} values */
export function remember(values) {
  try {
    localStorage.setItem(KEPT, JSON.stringify(values));
  } catch {
    // the form is filled in by hand then
  }
}
