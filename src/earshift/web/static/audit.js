// @ts-check
/* Who saw and did what, newest first, in words; by whom and about what. */

import { at, get } from "./api.js";
import { byId, el, fill, find, t, word } from "./dom.js";
import { localTime } from "./format.js";
import { acting, complain, formOf, onSubmit, typed } from "./page.js";
import { table } from "./table.js";

const PAGE = 100;
const KINDS = [
  "people", "identities", "visits", "exams", "trials", "results", "notes", "devices", "calibrations",
  "users", "keys", "site_settings", "backup", "audit",
];
/** @type {string[][]} */
let rows = [];
/** @type {number | null} */
let next = null;

/**
 * What was done to what, in words; what has none stands as it was written.
 * @param {string} action
 * @param {string} subject such as exams:12
 */
function said(action, subject) {
  const [kind, number] = subject.split(":");
  const what = find(`audit_kind.${kind}`);
  if (what === null) return `${word("audit_did", action)} ${subject}`;
  return `${word("audit_did", action)} ${number ? t("audit.numbered", { what, number }) : what}`;
}

/** @param {boolean} anew */
async function load(anew) {
  const fields = new FormData(formOf("filter"));
  const asked = ["author", "kind"].map((name) => [name, typed(fields, name).trim()]);
  const answer = await get(at("/api/audit", {}, {
    limit: PAGE,
    newest_first: true,
    ...Object.fromEntries(asked.filter(([, value]) => value !== "")),
    ...(anew || next === null ? {} : { after: next }),
  }));
  const lines = await Promise.all(answer.entries.map(async ({ at: moment, author, action, subject, reason }) =>
    [await localTime(moment), author, said(action, subject), reason]));
  rows = anew ? lines : [...rows, ...lines];
  next = answer.next;
  const columns = [t("audit.at"), t("audit.author"), t("audit.action"), t("audit.reason")];
  fill(byId("entries"), rows.length
    ? table(t("audit.heading"), columns, rows, { class: "list bare" })
    : el("p", { class: "quiet" }, t("audit.none")));
  byId("more").hidden = next === null;
}

byId("kind").append(...KINDS.map((kind) => el("option", { value: kind }, word("audit_kind", kind))));
onSubmit(formOf("filter"), () => load(true));
byId("more").addEventListener("click", () => acting(byId("more"), () => load(false)));
load(true).catch(complain);
