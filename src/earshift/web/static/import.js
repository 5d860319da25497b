/* A file of earlier audiograms: sent as it is, judged by the server. */

import { send } from "./api.js";
import { byId, el, fill, nameOf, onSubmit, t } from "./page.js";

const MOST_BYTES = 10 * 1024 * 1024;

onSubmit(byId("import"), async (form) => {
  const file = form.get("file");
  if (file.size > MOST_BYTES) throw Object.assign(new Error(t("import.too_large")), { status: 413 });
  const outcome = await send(`/api/imports?format=${form.get("format")}`, file);
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
