// @ts-check
/* Who saw and did what, newest first, in words; by whom, about whom or what, and when. */

import { at, get, post } from "./api.js";
import { byId, el, fill, find, t, word } from "./dom.js";
import { localTime } from "./format.js";
import { acting, complain, formOf, onSubmit, typed } from "./page.js";
import { table } from "./table.js";

/** @import { Child } from "./dom.js" */
/** @typedef {Answered<"/api/audit", "get">["entries"][number]} Line */

const PAGE = 250;
const KINDS = [
  "people", "visits", "exams", "trials", "results", "notes", "signatures", "devices", "calibrations",
  "users", "keys", "site_settings", "backup", "audit",
];
/** Names in braces that stay, to be filled with links. */
const LINKS = Object.fromEntries(
  ["person", "test", "device", "user", "setting"].map((name) => [name, `{${name}}`]),
);
/** @type {Line[]} */
let lines = [];
/** @type {number | null} */
let next = null;

/**
 * A link where there is a page, else the words alone.
 * @param {string | null | undefined} href
 * @param {string} text
 */
const linked = (href, text) => (href ? el("a", { href }, text) : text);

/** @param {Line} line */
function personOf({ person, gone }) {
  if (!person) return gone ? t("audit.erased") : t("audit.somebody");
  const text = person.code === null ? t("audit.no_code") : t("audit.person", { code: person.code });
  return linked(`/people/${person.id}`, text);
}

/** @param {Line} line */
function testOf({ test }) {
  if (!test) return t("audit.a_test");
  const kind = word("kind", test.kind);
  const text = test.ear === "both"
    ? t("audit.test_both", { kind })
    : t("audit.test", { kind, ear: word("the_ear", test.ear) });
  return linked(test.id && `/exams/${test.id}`, text);
}

/**
 * What was done, with links to what there is a page of; what has no words stands as it was written.
 * @param {Line} line
 * @param {number} answers how many lines of answers this one stands for
 * @returns {Child}
 */
function said(line, answers) {
  const { action, subject, key, user, device, setting } = line;
  const [kind, number] = subject.split(":");
  const whole = find(`audit_did.${action}.${key ?? kind}`, LINKS) ?? find(`audit_alone.${action}`, LINKS);
  const one = number ? find(`audit_of.${kind}`, LINKS) : find(`audit_all.${kind}`);
  const what = answers > 1
    ? t("audit.answers", { n: answers, test: LINKS.test, person: LINKS.person })
    : one ?? subject;
  const sentence = whole ?? `${word("audit_did", action)} ${what}`;
  /** @type {Record<string, () => Node | string>} */
  const parts = {
    person: () => personOf(line),
    test: () => testOf(line),
    device: () => linked(device && `/devices/${device.id}`, device?.name ?? t("audit.a_device")),
    user: () => user ?? t("audit.no_such_user"),
    setting: () => setting ?? "",
  };
  const words = sentence.split(/\{(\w+)\}/).map((part, n) => (n % 2 ? parts[part]() : part));
  const other = user && user !== line.author && !sentence.includes("{user}");
  return other ? [...words, t("audit.of_user", { user })] : words;
}

/**
 * The answers of one test follow each other, perhaps with looks at it and those of other booths
 * between them: they are one row, until something else was done to the test.
 * @returns {{ line: Line, answers: number }[]}
 */
function rows() {
  const runs = new Map();
  const found = [];
  for (const line of lines) {
    const test = line.test?.id ?? "";
    const answer = test && line.action === "add" && line.subject.startsWith("trials:");
    const run = runs.get(test);
    if (answer && run?.line.author === line.author) {
      run.answers += 1;
      continue;
    }
    const row = { line, answers: answer ? 1 : 0 };
    if (answer) runs.set(test, row);
    else if (line.action !== "view") runs.delete(test);
    found.push(row);
  }
  return found;
}

/** The rows of the table. Lines that would read the same, to the minute, are one. */
async function inWords() {
  /** @type {Map<string, { cells: [string, string, Child, string], times: number }>} */
  const found = new Map();
  for (const { line, answers } of rows()) {
    const moment = await localTime(line.at);
    const reason = reasonOf(line);
    const alike = [moment, line.author, line.action, line.subject, reason, answers].join("\n");
    const known = found.get(alike);
    if (known) known.times += 1;
    else found.set(alike, { cells: [moment, line.author, said(line, answers), reason], times: 1 });
  }
  return [...found.values()].map(({ cells: [moment, author, did, reason], times }) =>
    [moment, author, el("span", {}, did, times > 1 ? t("audit.times", { n: times }) : null), reason]);
}

/**
 * The reason, unless the action has said it.
 * @param {Line} line
 */
function reasonOf({ action, reason, key }) {
  const repeated = reason === word("audit_did", action) || (action === "add" && key === reason);
  return repeated ? "" : reason;
}

/**
 * The id of the one person whom a code or name finds. It is asked for in a body, so that no name
 * stands in an address.
 * @param {string} text
 */
async function personCalled(text) {
  const { people } = await post("/api/people/search", { text });
  const exact = people.filter(({ code }) => code === text);
  const found = exact.length > 0 ? exact : people;
  byId("person-found").textContent = found.length === 1 ? ""
    : found.length === 0 ? t("audit.nobody") : t("audit.several");
  return found.length === 1 ? found[0].id : null;
}

/** @param {boolean} anew */
async function load(anew) {
  const fields = new FormData(formOf("filter"));
  const asked = ["author", "kind", "first", "last"].map((name) => [name, typed(fields, name).trim()]);
  const called = typed(fields, "person").trim();
  byId("person-found").textContent = "";
  const person = called ? await personCalled(called) : "";
  if (person === null) return;
  const answer = await get(at("/api/audit", {}, {
    limit: PAGE,
    newest_first: true,
    ...Object.fromEntries([...asked, ["person", person]].filter(([, value]) => value !== "")),
    ...(anew || next === null ? {} : { after: next }),
  }));
  lines = anew ? answer.entries : [...lines, ...answer.entries];
  next = answer.next;
  const columns = [t("audit.at"), t("audit.author"), t("audit.action"), t("audit.reason")];
  const shown = await inWords();
  fill(byId("entries"), shown.length
    ? table(t("audit.heading"), columns, shown, { class: "list bare" })
    : el("p", { class: "quiet" }, t("audit.none")));
  byId("more").hidden = next === null;
}

byId("kind").append(...KINDS.map((kind) => el("option", { value: kind }, word("audit_kind", kind))));
onSubmit(formOf("filter"), () => load(true));
byId("more").addEventListener("click", () => acting(byId("more"), () => load(false)));
load(true).catch(complain);
