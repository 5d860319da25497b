// @ts-check
/* What was chosen on this workstation last, and how a form takes it over. */

const KEPT = "earshift.test";

/**
 * Choose what a form offers; what it does not offer stays as it was.
 * @param {HTMLFormElement} form
 * @param {Record<string, string | null | undefined>} values
 */
export function choose(form, values) {
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined) continue;
    const select = document.getElementById(name);
    const offered = select instanceof HTMLSelectElement
      && [...select.options].some((option) => option.value === value);
    if (offered) select.value = value;
    for (const radio of form.querySelectorAll("input")) {
      if (radio.type === "radio" && radio.name === name) radio.checked = radio.value === value;
    }
  }
}

/** @returns {Record<string, string>} */
export function remembered() {
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
