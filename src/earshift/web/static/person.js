/* One person: who it is, what was measured and found, notes, and a reference typed in. */

import { get, post } from "./api.js";
import { chart } from "./chart.js";
import {
  byId, dayText, decibels, decisionBadge, el, entitle, facts, fill, giveUp, handle, hide, localTime,
  nameOf, onSubmit, percent, say, t, table, toggles, word,
} from "./page.js";

const FREQUENCIES_HZ = [250, 500, 1000, 2000, 3000, 4000, 6000, 8000];
const DRAWN_HZ = [500, 1000, 2000, 4000, 8000]; // more lines than these are a tangle
const EARS = ["right", "left"];
const FEW_EXAMS = 12;
const address = `/api/people/${handle()}`;

async function show() {
  const person = await get(address);
  entitle(nameOf(person));
  byId("heading").dir = "auto";
  facts(byId("identity"), [
    [t("person.name"), person.name],
    [t("person.code"), person.code],
    [t("person.born"), person.birth_date],
    [t("person.sex"), person.sex ? word("sex", person.sex) : null],
  ]);
  byId("erased").hidden = !person.erased;
  byId("actions").hidden = Boolean(person.erased);
  for (const name of ["code", "name", "birth_date", "sex"]) {
    byId("correct").elements[name].value = person[name] ?? "";
  }
  showHistory(person.history);
  showExams(person.exams);
  showBaselines(person);
  await showNotes(person.notes);
}

// History

function showHistory(history) {
  const drawn = EARS.filter((ear) => history[ear].length > 0).map((ear) =>
    el("section", {}, el("h3", { class: `ear ${ear}` }, word("ear", ear)), ...earHistory(ear, history[ear])),
  );
  if (drawn.length === 0) fill(byId("history"), el("p", { class: "quiet" }, t("person.no_history")));
  else fill(byId("history"), el("div", { class: "columns even" }, drawn));
}

function earHistory(ear, points) {
  // Levels of different units are never drawn together.
  const units = [...new Set(points.map((point) => point.unit))];
  const places = units.map((unit) => {
    const place = el("div");
    drawThresholds(place, ear, unit, points.filter((point) => point.unit === unit && point.on));
    return place;
  });
  const screened = points.filter((point) => point.p_changed !== null && point.on);
  if (screened.length > 0) {
    const place = el("div");
    drawChance(place, ear, screened);
    places.push(place);
  }
  return places;
}

function drawThresholds(place, ear, unit, points) {
  if (points.length === 0) return;
  const hz = [...new Set(points.flatMap((point) => Object.keys(point.thresholds)))].map(Number).sort((a, b) => a - b);
  const lines = DRAWN_HZ.filter((each) => hz.includes(each)).map((each) => ({
    name: t("chart.hz", { n: each }),
    points: points
      .filter((point) => each in point.thresholds)
      .map((point) => ({ x: Date.parse(point.on), y: point.thresholds[each] })),
  }));
  const levels = lines.flatMap((line) => line.points.map((point) => point.y));
  const [low, high] = [Math.min(-10, ...levels), Math.max(60, ...levels)];
  const ticks = [];
  for (let level = Math.ceil(low / 20) * 20; level <= high; level += 20) {
    ticks.push({ at: level, text: decibels(level) });
  }
  chart(place).draw({
    title: t("person.thresholds_of", { ear: word("ear", ear), unit }),
    x: dates(points),
    y: { low, high, ticks, down: true },
    lines,
    columns: [t("person.day"), ...hz.map((each) => t("chart.hz", { n: each }))],
    rows: points.map((point) => [
      dayText(point.on),
      ...hz.map((each) => (each in point.thresholds ? decibels(point.thresholds[each]) : "\u2013")),
    ]),
  });
}

function drawChance(place, ear, points) {
  const ticks = [0, 0.5, 1].map((p) => ({ at: p, text: percent(p) }));
  chart(place).draw({
    title: t("person.chance_of", { ear: word("ear", ear) }),
    x: dates(points),
    y: { low: 0, high: 1, ticks },
    lines: [{ name: "", points: points.map((point) => ({ x: Date.parse(point.on), y: point.p_changed, mark: point.decision })) }],
    columns: [t("person.day"), t("probability.p"), t("person.decision")],
    rows: points.map((point) => [
      dayText(point.on),
      percent(point.p_changed),
      point.decision ? word("decision", point.decision) : "\u2013",
    ]),
  });
}

/** The axis of days: from the first to the last, with a mark at both and in the middle. */
function dates(points) {
  const label = t("person.day");
  const days = points.map((point) => Date.parse(point.on));
  const [first, last] = [Math.min(...days), Math.max(...days)];
  const text = (day) => new Date(day).toISOString().slice(0, 7);
  if (first === last) {
    return { low: first - 1, high: first + 1, ticks: [{ at: first, text: points[0].on }], label };
  }
  const months = (last - first) / (30 * 24 * 3600 * 1000);
  const marks = months > 6 ? [first, (first + last) / 2, last] : [first, last];
  return { low: first, high: last, ticks: marks.map((day) => ({ at: day, text: text(day) })), label };
}

// Exams

function showExams(exams) {
  if (exams.length === 0) {
    fill(byId("exams"), el("p", { class: "quiet" }, t("person.no_exams")));
    return;
  }
  const newest = [...exams].reverse();
  const all = el("button", { type: "button", click: () => draw(newest.length) }, t("person.all_exams", { n: exams.length }));
  const draw = (count) => {
    const columns = ["person.day", "person.ear", "person.kind", "person.result"].map((key) => t(key));
    const rows = newest.slice(0, count).map(examRow);
    const caption = t("person.exams_newest");
    fill(
      byId("exams"),
      table(caption, columns, rows, { class: "list" }),
      count < newest.length ? el("p", {}, all) : null,
    );
  };
  draw(FEW_EXAMS);
}

function examRow(exam) {
  const result = exam.decision
    ? [decisionBadge(exam.decision), exam.p_changed === null ? null : ` ${percent(exam.p_changed)}`]
    : [exam.kind === "audiogram" ? exam.source : word("state", exam.state)];
  return [
    el("a", { href: `/exams/${exam.id}` }, dayText(exam.measured_on ?? t("person.no_day"))),
    word("ear", exam.ear),
    word("kind", exam.kind),
    el("span", {}, ...result.filter((part) => part !== null)),
  ];
}

// Baselines: what each ear is compared with, and a professional's choice of another

const examText = (exam) =>
  t("person.baseline_exam", {
    ear: word("ear", exam.ear), kind: word("kind", exam.kind), on: exam.measured_on ?? t("person.no_day"),
  });

function showBaselines({ exams, baselines, erased }) {
  const full = exams.filter((exam) => exam.kind !== "screen" && exam.state === "done" && exam.sound !== "simulated");
  byId("baseline-card").hidden = full.length === 0 || Boolean(erased);
  const lines = EARS.filter((ear) => baselines[ear].exam !== null).map((ear) => {
    const exam = examText(full.find((one) => one.id === baselines[ear].exam));
    const { chosen_by: author, reason } = baselines[ear];
    return el("li", {}, author ? t("person.baseline_chosen", { exam, author, reason }) : t("person.baseline_oldest", { exam }));
  });
  fill(byId("baselines"), lines);
  fill(byId("baseline-exam"), full.map((exam) => el("option", { value: `${exam.ear} ${exam.id}` }, examText(exam))));
}

byId("monitor").addEventListener("click", async () => {
  const ears = await get(`${address}/monitoring`);
  const proposed = EARS.filter((ear) => ears[ear].proposal !== null).map((ear) =>
    el("li", { class: "caution" }, `${word("ear", ear)}: ${ears[ear].proposal}`),
  );
  fill(byId("proposals"), proposed.length ? proposed : [el("li", {}, t("person.no_proposal"))]);
});

onSubmit(byId("baseline"), async (form) => {
  const [ear, exam] = form.get("exam").split(" ");
  await post(`${address}/baseline`, { ear, exam, reason: form.get("reason") });
  byId("baseline").reset();
  say(t("person.baseline_saved", { ear: word("ear", ear) }));
  await show();
});

// Notes

async function showNotes(notes) {
  const items = await Promise.all(
    notes.map(async (note) =>
      el("li", {},
        el("p", { class: "hint" }, t("person.note_by", { author: note.author, at: await localTime(note.at) })),
        el("p", { class: "note", dir: "auto" }, note.text),
      ),
    ),
  );
  fill(byId("notes"), items.length ? items : [el("li", { class: "quiet" }, t("person.no_notes"))]);
}

onSubmit(byId("note"), async (form) => {
  await post(`${address}/notes`, { text: form.get("text") });
  byId("note").reset();
  say(t("person.note_saved"));
  await show();
});

// Corrections and a reference typed in

onSubmit(byId("correct"), async (form) => {
  const given = Object.fromEntries([...form].map(([name, value]) => [name, value.trim() || null]));
  await post(`${address}/correct`, given);
  byId("correct").elements.reason.value = "";
  hide(byId("correct"));
  say(t("person.corrected"));
  await show();
});

for (const hz of FREQUENCIES_HZ) {
  const name = t("chart.hz", { n: hz });
  byId("grid").append(
    el("div", { class: "cell" },
      el("label", { for: `hz-${hz}` }, name),
      el("input", { id: `hz-${hz}`, name: `hz-${hz}`, type: "number", step: "any", min: -20, max: 130, inputmode: "numeric" }),
      el("label", { class: "small" },
        el("input", { type: "checkbox", name: `none-${hz}`, "aria-label": t("person.no_response_at", { hz: name }) }),
        " ", t("person.no_response")),
    ),
  );
}

onSubmit(byId("reference"), async (form) => {
  const [thresholds, noResponse] = [{}, {}];
  for (const hz of FREQUENCIES_HZ) {
    if (form.get(`hz-${hz}`) === "") continue;
    (form.has(`none-${hz}`) ? noResponse : thresholds)[hz] = Number(form.get(`hz-${hz}`));
  }
  await post(`${address}/audiograms`, {
    ear: form.get("ear"),
    measured_on: form.get("measured_on") || null,
    thresholds,
    no_response: noResponse,
    source: form.get("source"),
  });
  for (const hz of FREQUENCIES_HZ) {
    byId(`hz-${hz}`).value = "";
    byId("reference").elements[`none-${hz}`].checked = false;
  }
  say(t("person.reference_saved", { ear: word("ear", form.get("ear")) }));
  await show();
});

document.querySelectorAll("[data-shows]").forEach(toggles);
show().catch(giveUp);
