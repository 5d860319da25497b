/* Who saw and did what, oldest first as it was written. */

import { get } from "./api.js";
import { acting, byId, complain, fill, localTime, t, table } from "./page.js";

const PAGE = 100;
const rows = [];
let next = null;

async function load() {
  const after = next === null ? "" : `&after=${next}`;
  const answer = await get(`/api/audit?limit=${PAGE}${after}`);
  for (const entry of answer.entries) {
    rows.push([await localTime(entry.at), entry.author, entry.action, entry.subject ?? "", entry.reason ?? ""]);
  }
  next = answer.next;
  const columns = ["audit.at", "audit.author", "audit.action", "audit.subject", "audit.reason"].map((key) => t(key));
  fill(byId("entries"), table(t("audit.heading"), columns, rows, { class: "list bare" }));
  byId("more").hidden = next === null;
}

byId("more").addEventListener("click", () => acting(byId("more"), load));
load().catch(complain);
