// @ts-check
/* Who saw and did what, oldest first as it was written. */

import { at, get } from "./api.js";
import { byId, fill, t } from "./dom.js";
import { localTime } from "./format.js";
import { acting, complain } from "./page.js";
import { table } from "./table.js";

const PAGE = 100;
/** @type {string[][]} */
const rows = [];
/** @type {number | null} */
let next = null;

async function load() {
  /** @type {Record<string, number>} */
  const query = next === null ? { limit: PAGE } : { limit: PAGE, after: next };
  const answer = await get(at("/api/audit", {}, query));
  for (const { at: moment, author, action, subject, reason } of answer.entries) {
    rows.push([await localTime(moment), author, action, subject, reason]);
  }
  next = answer.next;
  const columns = [
    t("audit.at"), t("audit.author"), t("audit.action"), t("audit.subject"), t("audit.reason"),
  ];
  fill(byId("entries"), table(t("audit.heading"), columns, rows, { class: "list bare" }));
  byId("more").hidden = next === null;
}

byId("more").addEventListener("click", () => acting(byId("more"), load));
load().catch(complain);
