// @ts-check
/* Earlier audiograms or a roster from a file: what it would do is shown first, then done. The file
   is sent as it is and judged by the server. */

import { at, getFile, send } from "./api.js";
import { byId, el, fill, find, t, word } from "./dom.js";
import { nameOf } from "./format.js";
import { acting, complain, formOf, inputOf, onSubmit, say, typed } from "./page.js";
import { Refusal } from "./refusal.js";
import { table } from "./table.js";

// The server's limit. It ends a larger upload half-way, which looks like a lost connection.
const MOST_BYTES = 10 * 1024 * 1024;
const NOT_USED = "not used";

const form = formOf("import");
const go = formOf("go");

/** What was looked at and will be imported, as it was asked for. */
let seen = { plan: "", asked: "" };
let zoneOfSite = "";

const isRoster = () => new FormData(form).get("what") === "roster";

function file() {
  const chosen = inputOf("file").files?.[0];
  if (!chosen) throw new Refusal(422, t("import.no_file"));
  if (chosen.size > MOST_BYTES) throw new Refusal(413, t("import.too_large"));
  return chosen;
}

/**
 * What stands in a field with a line for each.
 * @param {string} id
 */
const lines = (id) =>
  byId(id, HTMLTextAreaElement).value.split("\n").map((line) => line.trim()).filter(Boolean);

/** Columns that the reader gave another meaning than the one they are read by. */
function mapping() {
  const changed = [...byId("columns").querySelectorAll("select")].filter(
    (select) => select.value !== select.dataset.known,
  );
  return changed.map((select) => `${select.dataset.theirs}=${select.value || NOT_USED}`);
}

/** How the file is to be read, as the form says. */
function how() {
  const column = mapping();
  const dayFirst = inputOf("day_first").checked;
  if (isRoster()) {
    const mark = inputOf("mark_leavers").checked;
    const leftOn = inputOf("left_on").value;
    return {
      column, day_first: dayFirst, mark_leavers: mark, ...(mark && leftOn ? { left_on: leftOn } : {}),
    };
  }
  const zone = inputOf("timezone").value.trim();
  const sentinel = [...form.querySelectorAll("textarea[data-meaning]")].flatMap((area) =>
    lines(area.id).map((code) => `${code}=${area.getAttribute("data-meaning")}`),
  );
  return {
    format: byId("format", HTMLSelectElement).value,
    column,
    sentinel,
    no_response_db: lines("no_response_db"),
    ...(zone ? { timezone: zone } : {}),
    decimal_comma: inputOf("decimal_comma").checked,
    day_first: dayFirst,
    every: inputOf("every").checked,
    method_offset: inputOf("method_offset").value || 0,
  };
}

/** The columns of the chosen file, each with what it is read as. */
async function showColumns() {
  fill(byId("columns"));
  byId("mapping").hidden = true;
  if (!inputOf("file").files?.length) return;
  const { columns, meanings, zone } = await send(
    at("/api/imports/columns", {}, { roster: isRoster() }), file(),
  );
  zoneOfSite = zone;
  inputOf("timezone").placeholder = zoneOfSite;
  if (columns.length === 0) return;
  const unknown = columns.filter((column) => column.ours === "").length;
  byId("mapping").hidden = false;
  byId("mapping", HTMLDetailsElement).open = unknown > 0;
  fill(
    byId("columns"),
    el("div", { class: "fields" }, columns.map((column, place) => columnField(column, place, meanings))),
  );
}

/**
 * @param {{ theirs: string, ours: string }} column
 * @param {number} place
 * @param {string[]} meanings
 */
function columnField({ theirs, ours }, place, meanings) {
  const id = `column-${place}`;
  const known = meanings.includes(ours) || ours === "" ? meanings : [ours, ...meanings];
  const options = ["", ...known].map((name) =>
    el("option", { value: name, selected: name === ours }, name ? meaningOf(name) : t("import.not_used")),
  );
  return el("div", { class: "field" },
    el("label", { for: id, dir: "auto" }, theirs || t("import.nameless", { n: place + 1 })),
    el("select", { id, "data-theirs": theirs, "data-known": ours }, options));
}

/** @param {string} name */
function meaningOf(name) {
  const [, ear, hz] = /^(right|left)_([\d.]+)$/.exec(name) ?? [];
  return ear ? t("import.tone", { ear: word("ear", ear), hz }) : find(`column.${name}`) ?? name;
}

/** What belongs to the chosen kind of file alone. */
function offer() {
  for (const part of form.querySelectorAll(".of-audiograms, .of-roster")) {
    part.toggleAttribute("hidden", part.matches(".of-roster") !== isRoster());
  }
  byId("file-hint").textContent = isRoster() ? t("import.file_hint_roster") : t("import.file_hint");
  byId("why").textContent = isRoster() ? t("import.why_roster") : t("import.why");
  inputOf("left_on").disabled = !inputOf("mark_leavers").checked;
}

/**
 * @param {string} title
 * @param {readonly { row: number, reason: string }[]} rows
 * @param {number} total
 */
function reasons(title, rows, total) {
  if (total === 0) return [];
  return [
    table(title, [t("import.row"), t("import.reason")], rows.map((one) => [one.row, one.reason])),
    more(rows.length, total),
  ];
}

/**
 * @param {number} shown
 * @param {number} total
 */
const more = (shown, total) =>
  shown < total ? el("p", { class: "hint" }, t("import.more", { n: total - shown })) : null;

/** @param {Answered<"/api/imports", "post">} found */
function ofAudiograms(found) {
  const { added, known, sound, preview, rejected, left_out: left } = found;
  const people = found.people.map((person) =>
    el("li", {}, el("a", { href: `/people/${person.id}`, dir: "auto" }, nameOf(person))),
  );
  return [
    el("p", {}, preview
      ? t("import.would", { sound, rejected: found.rejected_total })
      : t("import.outcome", { added, known })),
    people.length ? el("ul", { class: "plain" }, people) : null,
    ...reasons(t("import.rejected"), rejected, found.rejected_total),
    ...reasons(t("import.left_out"), left, found.left_out_total),
  ];
}

const STACKED = { class: "list labelled" };

/** @param {Answered<"/api/imports/roster", "post">} plan */
function ofRoster(plan) {
  const counts = {
    added: plan.new_total, changed: plan.changed_total, same: plan.same, rejected: plan.rejected_total,
  };
  const changes = plan.changed.flatMap((one) =>
    one.fields.map(({ field, before, after }) => [
      el("a", { href: `/people/${one.person.id}`, dir: "auto" }, nameOf(one.person)), one.row ?? "",
      word("column", field), before ?? t("import.nothing"), after ?? t("import.nothing"),
    ]),
  );
  const leaving = plan.leavers_total === 0 ? [] : [
    table(plan.leavers_marked ? t("import.leavers_marked") : t("import.leavers"),
      [t("person.code"), t("person.name"), t("person.department")],
      plan.leavers.map((one) => [one.code ?? "", one.name ?? "", one.department ?? ""]), STACKED),
    more(plan.leavers.length, plan.leavers_total),
  ];
  return [
    el("p", {}, plan.preview ? t("import.roster_would", counts) : t("import.roster_done", counts)),
    ...reasons(t("import.rejected"), plan.rejected, plan.rejected_total),
    changes.length === 0 ? null : table(t("import.changes"),
      [t("import.person"), t("import.row"), t("import.field"), t("import.before"), t("import.after")],
      changes, STACKED),
    more(plan.changed.length, plan.changed_total),
    plan.new_total === 0 ? null : table(t("import.new"),
      [t("person.code"), t("import.row"), t("person.name"), t("person.department")],
      plan.new.map((one) => [one.code, one.row, one.name ?? "", one.department ?? ""]), STACKED),
    more(plan.new.length, plan.new_total),
    ...leaving,
    plan.duplicates_total === 0 ? null : table(t("import.duplicates"),
      [t("import.one"), t("import.other")], plan.duplicates, STACKED),
  ];
}

/**
 * Look at a file, or import what was looked at.
 * @param {Record<string, string | boolean>} extra
 */
async function ask(extra) {
  const asked = { ...how(), ...extra };
  if (isRoster()) {
    const plan = await send(at("/api/imports/roster", {}, asked), file());
    seen = { plan: plan.plan, asked: JSON.stringify(how()) };
    const useful = plan.new_total + plan.changed_total + (plan.leavers_marked ? plan.leavers_total : 0);
    return { shown: ofRoster(plan), rejected: plan.rejected_total, useful, preview: plan.preview };
  }
  const found = await send(at("/api/imports", {}, asked), file());
  seen = { plan: "", asked: JSON.stringify(how()) };
  const { rejected_total: rejected, sound: useful, preview } = found;
  return { shown: ofAudiograms(found), rejected, useful, preview };
}

/** @param {Awaited<ReturnType<typeof ask>>} answer */
function show({ shown, rejected, useful, preview }) {
  byId("done-heading").textContent = preview ? t("import.would_heading") : t("import.done");
  fill(byId("outcome"), shown);
  if (preview && useful === 0) byId("outcome").append(el("p", { class: "caution" }, t("import.none")));
  go.hidden = !preview || useful === 0;
  byId("skipping").hidden = rejected === 0;
  inputOf("skip_rejected").checked = false;
  inputOf("skip_rejected").required = rejected > 0;
  byId("done").hidden = false;
  byId("done-heading").focus();
}

function forget() {
  byId("done").hidden = true;
}

onSubmit(form, async () => {
  forget();
  show(await ask({ preview: true }));
});
onSubmit(go, async () => {
  if (JSON.stringify(how()) !== seen.asked) throw new Refusal(409, t("import.look_again"));
  const skip = inputOf("skip_rejected").checked;
  const answer = await ask({ skip_rejected: skip, ...(seen.plan ? { plan: seen.plan } : {}) });
  form.reset();
  offer();
  await showColumns();
  show(answer);
});
onSubmit(formOf("export"), async (fields) => {
  const format = typed(fields, "export-format");
  const days = ["first", "last"].map((name) => [name, typed(fields, name)]).filter(([, day]) => day);
  const asked = {
    format,
    ...Object.fromEntries(days),
    identity: fields.has("identity"),
    tidy: fields.has("tidy"),
  };
  const { name, content } = await getFile(at("/api/export", {}, asked));
  const link = el("a", { href: URL.createObjectURL(content), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
  say(t("export.done", { name }));
});
form.addEventListener("change", (event) => {
  const { target } = event;
  forget();
  offer();
  const named = target instanceof HTMLInputElement ? target.name : "";
  if (named === "file" || named === "what") acting(form, showColumns).catch(complain);
});
offer();
