// @ts-check
/* A file of earlier audiograms: sent as it is, judged by the server. */

import { at, send } from "./api.js";
import { byId, el, fill, t } from "./dom.js";
import { nameOf } from "./format.js";
import { formOf, onSubmit, typed } from "./page.js";
import { Refusal } from "./refusal.js";

// The server's limit. It ends a larger upload half-way, which looks like a lost connection.
const MOST_BYTES = 10 * 1024 * 1024;

onSubmit(formOf("import"), async (fields) => {
  const file = /** @type {File} */ (fields.get("file"));
  if (file.size > MOST_BYTES) throw new Refusal(413, t("import.too_large"));
  const outcome = await send(at("/api/imports", {}, { format: typed(fields, "format") }), file);
  const people = outcome.people.map((person) =>
    el("li", {}, el("a", { href: `/people/${person.id}`, dir: "auto" }, nameOf(person))),
  );
  fill(
    byId("outcome"),
    el("p", {}, t("import.outcome", { added: outcome.added, known: outcome.known })),
    people.length ? el("ul", { class: "plain" }, people) : null,
  );
  byId("done").hidden = false;
  byId("done-heading").focus();
});
