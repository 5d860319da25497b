// @ts-check
/* Review of a visit: what was found, signatures, the letter, and what was done about a shift. */

import { withPassword } from "./again.js";
import { at, get, post, whoAmI } from "./api.js";
import { comparedView } from "./compared.js";
import { byId, el, fill, t, word } from "./dom.js";
import { decisionBadge, localTime, nameOf, today } from "./format.js";
import {
  acting, formOf, giveUp, handle, inputOf, onSubmit, say, setHeading, typed,
} from "./page.js";
import { withReason } from "./reason.js";

const names = { visit_id: handle() };

/** @type {ReviewShown | null} */
let shown = null;

/** @param {ReviewShown} review */
async function show(review) {
  shown = review;
  const { person, findings, signatures, obstacle } = review;
  const name = nameOf(person);
  setHeading(t("review.of", { name }));
  fill(byId("of"),
    el("a", { href: `/people/${person.id}`, dir: "auto" }, name),
    t("review.visit_of", { code: person.code ?? "", day: review.on }));
  const reviewer = (await whoAmI()).role !== "examiner";
  const closed = await Promise.all(review.closed.map(async (one) =>
    ({ exam: one.exam, line: closedLine(one, await localTime(one.at), reviewer) })));
  fill(byId("exams"), review.exams.map((exam) =>
    examLine(exam, closed.filter((one) => one.exam === exam.id).map((one) => one.line))));
  byId("compared-card").hidden = review.ears.length === 0;
  fill(byId("compared"), review.ears.map(comparedView));
  fill(byId("cautions"), review.cautions.map((text) => el("p", { class: "caution" }, text)));
  fill(byId("findings"), findings.map(findingText));
  byId("noise").hidden = review.room_noise === null;
  byId("noise").textContent = review.room_noise ?? "";
  fill(byId("signatures"), await Promise.all(signatures.map(signatureLine)));
  if (signatures.length === 0) {
    fill(byId("signatures"), el("li", { class: "quiet" }, t("review.unsigned")));
  }
  byId("changed").hidden = !review.changed_since;
  byId("obstacle").hidden = obstacle === "";
  byId("obstacle").textContent = obstacle === "" ? "" : t("review.obstacle", { why: obstacle });
  byId("not-you").hidden = reviewer;
  formOf("sign").hidden = !reviewer || obstacle !== "";
  const amends = signatures.length > 0;
  byId("amending").hidden = !amends;
  inputOf("reason").required = amends;
  byId("sign-means").textContent = amends ? t("review.amend_means") : t("review.sign_means");
  showWork(reviewer);
  showLetter();
  showFollowUps(review.follow_ups);
}

/**
 * A verdict that a reviewer closed, and the way back.
 * @param {ReviewShown["closed"][number]} closed
 * @param {string} moment
 * @param {boolean} reviewer
 */
function closedLine({ exam, ear, author, reason }, moment, reviewer) {
  const text = t("review.closed", { ear: word("ear", ear), author, at: moment, reason });
  const reopen = el("button", { type: "button", class: "quiet" }, t("review.reopen"));
  const words = {
    heading: t("review.reopen_of", { ear: word("the_ear", ear) }),
    hint: t("review.reopen_hint"), go: t("review.reopen_save"),
  };
  reopen.addEventListener("click", () => acting(reopen, async () => {
    const ears = [/** @type {Ear} */ (ear)];
    const done = await withReason(words, (why) =>
      post(at("/api/exams/{exam}/reopen", { exam }), { reason: why, ears }));
    if (!done) return;
    say(t("review.reopened"));
    await load();
  }));
  return el("p", { class: "hint", dir: "auto" }, text, " ", reviewer ? reopen : null);
}

/**
 * @param {ExamSummary} exam
 * @param {Element[]} closed
 */
function examLine(exam, closed) {
  const result = exam.decision
    ? decisionBadge(exam.decision, exam.next_step)
    : word("state", exam.state);
  const link = el("a", { href: `/exams/${exam.id}` }, t("review.exam", {
    ear: word("ear", exam.ear), kind: word("kind", exam.kind),
  }));
  return el("li", {}, link, " ", result, exam.words ? el("p", { class: "hint" }, exam.words) : null, closed);
}

/** @param {FindingShown} finding */
function findingText(finding) {
  const [first, ...rest] = finding.sentences;
  return el("div", { class: `finding ${finding.ear}` },
    el("p", { class: finding.decision === "changed" ? "caution" : "" }, el("strong", {}, first)),
    rest.map((text) => el("p", {}, text)));
}

/** @param {SignatureShown} signature */
async function signatureLine(signature) {
  const { name, author, sha256 } = signature;
  const moment = await localTime(signature.at);
  const meaning = word("meaning", signature.meaning);
  const values = { name, meaning, at: moment };
  return el("li", {},
    el("p", { dir: "auto" }, el("strong", {},
      signature.amends ? t("review.amended_by", values) : t("review.signed_by", values))),
    el("p", { class: "hint" }, t("review.account", { author })),
    el("p", { class: "hint" }, t("review.hash"), " ", el("code", {}, sha256)));
}

onSubmit(formOf("sign"), async (fields) => {
  if (!shown) return;
  const newest = shown.signatures.at(-1);
  const meaning = /** @type {"reviewed"} */ (typed(fields, "meaning"));
  const what = {
    name: typed(fields, "name").trim(),
    meaning,
    seen: shown.seen,
    amends: newest ? newest.sha256 : null,
    reason: typed(fields, "reason").trim(),
  };
  /** @param {{ password: string, code: string }} proof */
  const sign = async (proof) => {
    shown = await post(at("/api/visits/{visit_id}/sign", names), { ...what, ...proof });
  };
  try {
    if ((await whoAmI()).single_user) await sign({ password: "", code: "" });
    else if (!(await withPassword(t("again.sign"), sign))) return;
    inputOf("reason").value = "";
    say(t("review.signed"));
    await show(shown);
  } catch (error) {
    // What was typed stays; what another one did meanwhile is shown.
    await load();
    throw error;
  }
});

// Work-relatedness

const RELATED = /** @type {Record<string, boolean | null>} */ ({ yes: true, no: false, back: null });

const shiftsFound = () => (shown?.findings ?? []).filter((one) => one.decision === "changed");

/** @param {boolean} reviewer */
function showWork(reviewer) {
  const shifts = shiftsFound();
  byId("work-card").hidden = !reviewer || shifts.length === 0 || shown?.person.erased === true;
  fill(byId("shift"), shifts.map(({ exam, ear }) =>
    el("option", { value: `${ear} ${exam}` }, word("ear", ear))));
  fill(byId("work-said"), shifts.map((one) => el("li", { dir: "auto" }, workSaid(one))));
  offerBack();
}

/** @param {FindingShown} finding */
function workSaid({ ear, work_related: related, work_said_by: name }) {
  const values = { ear: word("ear", ear), name };
  if (related === null) return t("review.work_unsaid", values);
  return related ? t("review.work_said_yes", values) : t("review.work_said_no", values);
}

/** A word that nobody has given cannot be taken back. */
function offerBack() {
  const [ear] = byId("shift", HTMLSelectElement).value.split(" ");
  const said = shiftsFound().some((one) => one.ear === ear && one.work_related !== null);
  for (const option of byId("related", HTMLSelectElement).options) {
    if (option.value === "back") option.disabled = !said;
  }
}

byId("shift").addEventListener("change", offerBack);

onSubmit(formOf("work"), async (fields) => {
  const answer = typed(fields, "related");
  const [ear, exam] = typed(fields, "exam").split(" ");
  await post(at("/api/exams/{exam}/work-related", { exam }), {
    ears: [/** @type {Ear} */ (ear)],
    related: RELATED[answer],
    name: typed(fields, "work_name").trim(),
    reason: typed(fields, "work_reason").trim(),
  });
  formOf("work").reset();
  say(t("review.work_saved"));
  await load();
});

// The letter and what was done

function showLetter() {
  byId("letter-card").hidden = !shown?.letter;
  const named = Boolean(shown?.sender);
  byId("letter-sender").hidden = named;
  byId("sender").hidden = named || shiftsFound().length === 0 || shown?.letter === true;
  const by = shown?.letter_by;
  if (!by) return;
  const sent = shown?.follow_ups.find((one) => one.kind === "letter");
  byId("letter-by").textContent = sent
    ? t("review.letter_sent", { day: sent.done_on, by: sent.done_by })
    : t("review.letter_due", { day: by });
}

/** @param {FollowUpShown[]} done */
function showFollowUps(done) {
  byId("follow-card").hidden = !(shiftsFound().length > 0 || done.length > 0) || shown?.person.erased === true;
  const lines = done.map((one) => {
    const back = el("button", { type: "button", class: "quiet" }, t("review.follow_back"));
    back.addEventListener("click", () =>
      acting(back, async () => {
        await addFollowUp({ ...one, kind: /** @type {"letter"} */ (one.kind), done: false });
        say(t("review.follow_taken_back"));
        await load();
      }),
    );
    const text = t("review.follow_done", {
      what: word("follow_up", one.kind), day: one.done_on, by: one.done_by,
    });
    return el("li", {}, el("span", { dir: "auto" }, text), " ", back,
      one.details ? el("p", { class: "hint", dir: "auto" }, one.details) : null);
  });
  fill(byId("follow-ups"), lines.length ? lines : el("li", { class: "quiet" }, t("review.follow_none")));
}

/** @param {{ kind: "letter" | "protector" | "training" | "referral", done_on: string, done_by: string, details: string, done: boolean }} new_ */
async function addFollowUp({ kind, done_on, done_by, details, done }) {
  await post(at("/api/visits/{visit_id}/follow-ups", names), {
    kind, done_on, done_by, details, done,
  });
}

onSubmit(formOf("follow"), async (fields) => {
  await addFollowUp({
    kind: /** @type {"letter"} */ (typed(fields, "kind")),
    done_on: typed(fields, "done_on"),
    done_by: typed(fields, "done_by").trim(),
    details: typed(fields, "details").trim(),
    done: true,
  });
  formOf("follow").reset();
  inputOf("done_on").value = today();
  say(t("review.follow_saved"));
  await load();
});

async function load() {
  await show(await get(at("/api/visits/{visit_id}/review", names)));
}

for (const link of document.querySelectorAll("a[data-file]")) {
  if (link instanceof HTMLAnchorElement) {
    link.href = `/api/visits/${encodeURIComponent(handle())}/${link.dataset.file}`;
  }
}
inputOf("done_on").value = today();
load().catch(giveUp);
