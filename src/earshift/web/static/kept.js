// @ts-check
/* What was typed outlives a session that ended: it goes through the sign-in and back into its form. */

const KEY = "typed";

/** @typedef {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} Field */
/** @typedef {{ path: string, who: string, fields: Record<string, string | boolean> }} Kept */

/** What somebody changed on this page, and did not send since. @type {Set<Field>} */
const touched = new Set();

/** @param {EventTarget | null} target */
const isField = (target) =>
  target instanceof HTMLSelectElement || target instanceof HTMLTextAreaElement
  || (target instanceof HTMLInputElement && !["password", "file"].includes(target.type));

document.addEventListener("input", ({ target }) => {
  if (isField(target)) touched.add(/** @type {Field} */ (target));
});
document.addEventListener("reset", ({ target }) => {
  for (const field of touched) if (field.form === target) touched.delete(field);
});

/** @param {Field} field */
const isTicked = (field) => field instanceof HTMLInputElement && ["radio", "checkbox"].includes(field.type);

/** @param {Field} field */
const nameOf = (field) => field.id || [field.form?.id, field.name, field.value].join(" ");

/** Whose page this is. */
const who = document.body.dataset.user ?? "";

/** Whether this page is being left for the sign-in: what is kept is for the next one. */
let leaving = false;

/** Keep it for the one who typed it. */
export function keep() {
  leaving = true;
  const fields = [...touched].filter((field) => field.isConnected).map((field) =>
    [nameOf(field), field instanceof HTMLInputElement && isTicked(field) ? field.checked : field.value]);
  const kept = { path: location.pathname, who, fields: Object.fromEntries(fields) };
  if (fields.length > 0) sessionStorage.setItem(KEY, JSON.stringify(kept));
}

/** Put back what this one typed on this page; what another one typed is forgotten. */
export function putBack() {
  if (leaving) return;
  /** @type {Kept | null} */
  const kept = JSON.parse(sessionStorage.getItem(KEY) ?? "null");
  if (kept === null || !who || (kept.path !== location.pathname && kept.who === who)) return;
  sessionStorage.removeItem(KEY);
  if (kept.who !== who) return;
  for (const field of document.querySelectorAll("input, select, textarea")) {
    if (!isField(field)) continue;
    const known = /** @type {Field} */ (field);
    const value = kept.fields[nameOf(known)];
    if (value === undefined) continue;
    if (known instanceof HTMLInputElement && isTicked(known)) known.checked = value === true;
    else known.value = String(value);
    uncover(known);
    for (const event of ["input", "change"]) known.dispatchEvent(new Event(event, { bubbles: true }));
  }
}

/**
 * What was put back is seen.
 * @param {Field} field
 */
function uncover(field) {
  const details = field.closest("details");
  if (details) details.open = true;
  const shows = field.form && document.querySelector(`[aria-controls="${field.form.id}"]`);
  if (!shows) return;
  field.form.hidden = false;
  shows.setAttribute("aria-expanded", "true");
}
