// @ts-check
/* One person: who it is, what was measured and found, baselines, notes, a reference typed in. */

import { at, get, post } from "./api.js";
import { byId, el, fill, t, word } from "./dom.js";
import { BOTH, EARS } from "./ears.js";
import { dayText, decisionBadge, hertz, localTime, nameOf } from "./format.js";
import { historyView } from "./history.js";
import {
  acting, formOf, giveUp, handle, hide, inputOf, onSubmit, say, setHeading, toggles, typed,
} from "./page.js";
import { facts, table } from "./table.js";
import { linkTo } from "./work.js";

const FREQUENCIES_HZ = [250, 500, 1000, 2000, 3000, 4000, 6000, 8000];
const FEW_EXAMS = 12;
const names = { person: handle() };

async function show() {
  const person = await get(at("/api/people/{person}", names));
  setHeading(nameOf(person));
  byId("heading").dir = "auto";
  showIdentity(person);
  fill(byId("history"), historyView(person.history, person.baselines));
  showExams(person.exams);
  showBaselines(person);
  showReviews(await get(at("/api/people/{person}/reviews", names)));
  await showNotes(person.notes);
}

// Who it is

/** @param {string | null} day none while somebody is employed */
const keptText = (day) => (day ? t("person.kept_until", { day }) : t("person.kept_employed"));

/** @param {PersonFile} person */
function showIdentity(person) {
  facts(byId("identity"), [
    [t("person.name"), person.name],
    [t("person.code"), person.code],
    [t("person.born"), person.birth_date],
    [t("person.sex"), person.sex ? word("sex", person.sex) : null],
    [t("person.department"), person.department],
    [t("person.job"), person.job],
    [t("person.hired_on"), person.hired_on],
    [t("person.left_on"), person.left_on],
    [t("person.next_due"), person.next_due],
    [t("person.kept"), person.erased ? null : keptText(person.kept_until)],
  ]);
  byId("erased").hidden = !person.erased;
  byId("actions").hidden = person.erased || person.merged_into !== null;
  byId("merged").hidden = person.merged_into === null;
  byId("goes-by", HTMLAnchorElement).href = `/people/${person.merged_into}`;
  const others = person.others.map((other) =>
    el("li", {}, t("person.other_record"), " ", linkTo(other)),
  );
  fill(byId("others"), others);
  for (const name of ["department", "job", "hired_on", "left_on"]) {
    inputOf(name).value = person[/** @type {"department"} */ (name)] ?? "";
  }
  inputOf("code").value = person.code ?? "";
  inputOf("name").value = person.name ?? "";
  inputOf("birth_date").value = person.birth_date ?? "";
  byId("sex", HTMLSelectElement).value = person.sex ?? "";
}

onSubmit(formOf("correct"), async (fields) => {
  const given = [...fields.keys()].map((name) => [name, typed(fields, name).trim() || null]);
  await post(at("/api/people/{person}/correct", names), Object.fromEntries(given));
  inputOf("reason").value = "";
  hide(formOf("correct"));
  say(t("person.corrected"));
  await show();
});

// Two records of one person

onSubmit(formOf("merge"), async (fields) => {
  const text = typed(fields, "other").trim();
  const { people } = await post("/api/people/search", { text, after: null });
  const usable = people.filter(
    (one) => one.id !== names.person && !one.erased && one.merged_into === null,
  );
  const items = usable.map((one) => {
    const button = el("button", { type: "button" }, t("person.merge_this"));
    button.addEventListener("click", () =>
      acting(button, async () => {
        const reason = typed(fields, "reason");
        await post(at("/api/people/{person}/merge", names), { other: one.id, reason });
        formOf("merge").reset();
        fill(byId("candidates"));
        hide(formOf("merge"));
        say(t("person.merge_done"));
        await show();
      }),
    );
    const known = [one.code, one.birth_date, one.department].filter(Boolean).join(", ");
    return el("li", {}, linkTo(one), ` ${known} `, button);
  });
  fill(byId("candidates"), items.length ? items : el("li", {}, t("today.nobody")));
});

onSubmit(formOf("separate"), async (fields) => {
  await post(at("/api/people/{person}/separate", names), { reason: typed(fields, "reason") });
  formOf("separate").reset();
  say(t("person.separated"));
  await show();
});

// Exams

/** @param {ExamSummary[]} exams */
function showExams(exams) {
  if (exams.length === 0) {
    fill(byId("exams"), el("p", { class: "quiet" }, t("person.no_exams")));
    return;
  }
  const newest = [...exams].reverse();
  const text = t("person.all_exams", { n: exams.length });
  const all = el("button", { type: "button", click: () => draw(newest.length) }, text);
  /** @param {number} count */
  const draw = (count) => {
    const columns = [t("person.day"), t("person.ear"), t("person.kind"), t("person.result")];
    const rows = newest.slice(0, count).map(examRow);
    fill(
      byId("exams"),
      table(t("person.exams_newest"), columns, rows, { class: "list" }),
      count < newest.length ? el("p", {}, all) : null,
    );
  };
  draw(FEW_EXAMS);
}

/** @param {ExamSummary} exam */
function examRow(exam) {
  const result = exam.decision
    ? [decisionBadge(exam.decision, exam.next_step), el("span", { class: "hint" }, " ", exam.sentence)]
    : [exam.kind === "audiogram" ? exam.source : word("state", exam.state)];
  return [
    el("a", { href: `/exams/${exam.id}` }, dayText(exam.measured_on ?? t("person.no_day"))),
    word("ear", exam.ear),
    word("kind", exam.kind),
    el("span", {}, result),
  ];
}

// Baselines: what each ear is compared with, and a professional's choice of another

/**
 * @param {ExamSummary} exam
 * @param {Ear} ear
 */
const examText = (exam, ear) =>
  t("person.baseline_exam", {
    ear: word("ear", ear),
    kind: word("kind", exam.kind),
    on: exam.measured_on ?? t("person.no_day"),
  });

/** @param {PersonFile} person */
function showBaselines({ exams, baselines, erased }) {
  const full = exams.filter(
    (exam) => exam.kind !== "screen" && exam.state === "done" && exam.sound !== "simulated",
  );
  byId("baseline-card").hidden = full.length === 0 || erased;
  const lines = EARS.flatMap((ear) => {
    const { exam: id, chosen_by: author, reason } = baselines[ear];
    const found = exams.find((each) => each.id === id);
    if (!found) return [];
    const exam = examText(found, ear);
    const values = { exam, author, reason };
    return el("li", {}, author ? t("person.baseline_chosen", values) : t("person.baseline_oldest", { exam }));
  });
  fill(byId("baselines"), lines);
  const options = full.flatMap((exam) =>
    EARS.filter((ear) => exam.ear === ear || exam.ear === BOTH).map((ear) =>
      el("option", { value: `${ear} ${exam.id}` }, examText(exam, ear))));
  fill(byId("baseline-exam"), options);
}

byId("monitor").addEventListener("click", () =>
  acting(byId("monitor"), async () => {
    const ears = await get(at("/api/people/{person}/monitoring", names));
    const proposed = EARS.filter((ear) => ears[ear].proposal !== null).map((ear) =>
      el("li", { class: "caution" }, `${word("ear", ear)}: ${ears[ear].proposal}`),
    );
    fill(byId("proposals"), proposed.length ? proposed : el("li", {}, t("person.no_proposal")));
  }),
);

onSubmit(formOf("baseline"), async (fields) => {
  const [ear, exam] = typed(fields, "exam").split(" ");
  const body = { ear: /** @type {Ear} */ (ear), exam, reason: typed(fields, "reason") };
  await post(at("/api/people/{person}/baseline", names), body);
  formOf("baseline").reset();
  say(t("person.baseline_saved", { ear: word("ear", ear) }));
  await show();
});

// Review, and what was done about shifts

const FEW_REVIEWS = 5;

/** @param {VisitReview[]} reviews */
function showReviews(reviews) {
  const worth = reviews.filter(
    (one, n) => n < FEW_REVIEWS || one.findings.some((found) => found.decision === "changed"),
  );
  const lines = worth.map(({ visit, on, findings, signature, follow_ups }) => {
    const signed = signature
      ? t("person.review_signed", { name: signature.name, meaning: word("meaning", signature.meaning) })
      : t("person.review_unsigned");
    const done = follow_ups.map((one) =>
      el("p", { class: "hint", dir: "auto" }, t("review.follow_done", {
        what: word("follow_up", one.kind), day: one.done_on, by: one.done_by,
      })),
    );
    const found = findings.map((one) =>
      el("p", { class: one.decision === "changed" ? "caution" : "hint" }, one.sentences[0]),
    );
    const link = el("a", { href: `/visits/${visit}/review` }, t("person.review_of", { day: on }));
    return el("li", {}, link, ", ", el("span", { dir: "auto" }, signed), found, done);
  });
  fill(byId("reviews"), lines.length ? lines : el("li", { class: "quiet" }, t("person.no_reviews")));
}

// Notes

/** @param {Note[]} notes */
async function showNotes(notes) {
  const items = await Promise.all(
    notes.map(async (note) => {
      const by = t("person.note_by", { author: note.author, at: await localTime(note.at) });
      const text = el("p", { class: "note", dir: "auto" }, note.text);
      return el("li", {}, el("p", { class: "hint" }, by), text);
    }),
  );
  fill(byId("notes"), items.length ? items : el("li", { class: "quiet" }, t("person.no_notes")));
}

onSubmit(formOf("note"), async (fields) => {
  await post(at("/api/people/{person}/notes", names), { text: typed(fields, "text") });
  formOf("note").reset();
  say(t("person.note_saved"));
  await show();
});

// A reference typed in

const cells = FREQUENCIES_HZ.map((hz) => {
  const level = el("input", {
    id: `hz-${hz}`, type: "number", step: "any", min: -20, max: 130, inputmode: "numeric",
  });
  const name = t("person.no_response_at", { hz: hertz(hz) });
  const none = el("input", { type: "checkbox", name: `none-${hz}`, "aria-label": name });
  byId("grid").append(
    el("div", { class: "cell" },
      el("label", { for: `hz-${hz}` }, hertz(hz)),
      level,
      el("label", { class: "small" }, none, " ", t("person.no_response"))),
  );
  return { hz, level, none };
});

onSubmit(formOf("reference"), async (fields) => {
  const filled = cells.filter(({ level }) => level.value !== "");
  /** @param {boolean} missing */
  const levels = (missing) =>
    Object.fromEntries(
      filled
        .filter(({ none }) => none.checked === missing)
        .map(({ hz, level }) => [hz, Number(level.value)]),
    );
  const ear = /** @type {Ear} */ (typed(fields, "ear"));
  await post(at("/api/people/{person}/audiograms", names), {
    ear,
    measured_on: typed(fields, "measured_on") || null,
    thresholds: levels(false),
    no_response: levels(true),
    source: typed(fields, "source"),
  });
  for (const { level, none } of cells) {
    level.value = "";
    none.checked = false;
  }
  say(t("person.reference_saved", { ear: word("ear", ear) }));
  await show();
});

document.querySelectorAll("[data-shows]").forEach(toggles);
show().catch(giveUp);
