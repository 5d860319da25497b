// @ts-check
/* The view of a test as it runs: verdict, counts, audiogram, probability of change, every trial. */

import { audiogram } from "./audiogram.js";
import { byId, el, fill, t, word } from "./dom.js";
import { decibels, decisionBadge, hertz, percent, small, stateText } from "./format.js";
import { probability, questionOf } from "./probability.js";
import { shiftPicture } from "./shifts.js";
import { facts, table } from "./table.js";

const WORTH_SAYING = 0.01; // as in the engine: no decision while the doubt is larger

/** The view that the page's template holds; `draw` it with what `Live` says and the next tone. */
export function liveView() {
  const pictures = picturesByEar();
  let running = false;
  let opened = false;
  /** Of a full exam the thresholds are the result: they need not be asked for. */
  function openNumbers() {
    opened = true;
    for (const numbers of byId("audiogram").querySelectorAll("details")) numbers.open = true;
  }
  return {
    /**
     * @param {Live} live
     * @param {Presentation | null} [next]
     */
    draw(live, next = null) {
      const over = !["open", "paused"].includes(live.state);
      showVerdict(live, over);
      // Spoken once, at the end: a sentence after every tone would be in the way.
      if (over && running) byId("verdict-said").textContent = byId("verdict").textContent;
      running = !over;
      facts(byId("counts"), countsOf(live));
      const notes = live.notes.filter((note) => !live.words.includes(note));
      fill(byId("live-notes"), notes.map((note) => el("li", {}, note)));
      pictures.draw(live, next);
      if (over && !live.decision && !opened) openNumbers();
      fill(byId("tones"), trialsOf(live));
    },
  };
}

/**
 * What is shown of each ear: of a sitting of both its parts, else the test itself.
 * @param {Live} live
 */
const earsOf = (live) => (live.ears.length > 0 ? live.ears : [live]);

/** The pictures of every ear that is tested, with places of their own. */
function picturesByEar() {
  /** @type {Map<string, ReturnType<typeof picturesOf>>} */
  const places = new Map();

  /** @param {Live} live */
  function arrange(live) {
    const ears = earsOf(live).map((part) => part.ear);
    if (ears.join() === [...places.keys()].join()) return;
    places.clear();
    for (const ear of ears) places.set(ear, picturesOf(ear, ears.length > 1));
    for (const name of /** @type {const} */ (["audiogram", "probability", "shifts"])) {
      fill(byId(name), [...places.values()].map((each) => [each.headings[name], each[name].place]));
    }
  }

  /**
   * @param {Live} live
   * @param {Presentation | null} next
   */
  function draw(live, next) {
    arrange(live);
    for (const part of earsOf(live)) {
      const tested = next !== null && (live.ears.length === 0 || next.ear === part.ear);
      places.get(part.ear)?.draw(part, tested ? next : null);
    }
    byId("shifts").hidden = [...places.values()].every((each) => each.shifts.place.hidden);
  }
  return { draw };
}

/**
 * @param {string} ear
 * @param {boolean} named whether the other ear is on the page as well
 */
function picturesOf(ear, named) {
  const heading = () => (named ? el("h3", { class: `ear ${ear}` }, word("ear", ear)) : null);
  const headings = { audiogram: heading(), probability: heading(), shifts: null };
  const audiogramPlace = el("div", {});
  const probabilityPlace = el("div", {});
  const shiftsPlace = el("div", {});
  const shown = {
    audiogram: { place: audiogramPlace, picture: audiogram(audiogramPlace) },
    probability: { place: probabilityPlace, picture: probability(probabilityPlace) },
    shifts: { place: shiftsPlace, picture: shiftPicture(shiftsPlace, named ? ear : null) },
  };
  return {
    ...shown,
    headings,
    /**
     * @param {Live} live
     * @param {Presentation | null} next
     */
    draw(live, next) {
      if (headings.audiogram) {
        const text = { ear: word("ear", ear) };
        headings.audiogram.textContent = next ? t("live.testing", text) : text.ear;
      }
      shown.audiogram.picture.draw({ ...live, next });
      shown.probability.picture.draw(live);
      shown.shifts.picture.draw(live);
    },
  };
}

/**
 * A verdict is what the test ended with; before that there is only how it stands.
 * @param {Live} live
 * @param {boolean} over
 */
function showVerdict(live, over) {
  const badge = over && live.decision
    ? decisionBadge(live.decision, live.next_step)
    : el("span", { class: "badge open" }, stateText(live.state, live.trials.length));
  // Older results have all of their words in one.
  const first = live.sentence || live.words;
  const sentence = over ? first : t("live.so_far", { words: first });
  const rest = live.words.slice(first.length).trim();
  fill(
    byId("verdict"),
    el("p", { class: "verdict" }, badge),
    first ? el("p", { class: "sentence" }, sentence) : null,
    live.ears.length > 0 ? live.ears.map(earVerdict) : rest ? el("p", {}, rest) : null,
  );
}

/**
 * One ear's part of a verdict on both.
 * @param {Live} live
 */
function earVerdict({ ear, sentence, words }) {
  const first = sentence || words;
  const rest = words.slice(first.length).trim();
  return el("div", { class: `of-ear ${ear}` },
    first ? el("p", { class: "sentence" }, sentence ? first : t("live.of_exam", { ear: word("ear", ear), words: small(first) })) : null,
    rest ? el("p", {}, rest) : null);
}

/**
 * @param {Live} live
 * @returns {[string, string | number | null][]}
 */
function countsOf(live) {
  const asked = questionOf(earsOf(live)[0]);
  const chances = earsOf(live).map((part) => {
    const last = part.p_changed.at(-1);
    const name = live.ears.length > 0 ? t("live.of_ear", { what: asked, ear: word("the_ear", part.ear) }) : asked;
    return /** @type {[string, string | null]} */ ([name, last ? percent(last.p) : null]);
  });
  const alarms = { alarms: live.false_alarms, trials: live.catch_trials };
  const count = { n: live.tones, most: live.max_tones };
  return [
    ...chances,
    [t("live.rule"), live.rule ? word("rule", live.rule) : null],
    [t("live.count"), live.max_tones ? t("live.count_of", count) : live.tones],
    [t("live.catch"), live.catch_trials ? t("live.alarms", alarms) : t("live.no_catch")],
    [t("live.presses"), live.presses || null],
    [t("live.reliability"), live.reliability ? word("reliability", live.reliability) : null],
    // How well somebody attends says nothing while it is in doubt whether they listen at all.
    [t("live.attention"), live.attention === null || inDoubt(live.p_not_listening) ? null : percent(live.attention)],
    [t("live.not_listening"), inDoubt(live.p_not_listening) ? percent(live.p_not_listening) : null],
  ];
}

/**
 * Whether it is worth saying how likely the answers have nothing to do with the tones.
 * @param {number | null} p
 * @returns {p is number}
 */
const inDoubt = (p) => p !== null && p > WORTH_SAYING;

/** @param {Trial} trial */
function toneText({ kind, frequency_hz: hz }) {
  if (kind === "catch") return t("trial.catch");
  return kind === "practice" ? t("trial.practice", { hz: hertz(hz) }) : hertz(hz);
}

/** @param {Live} live */
function trialsOf(live) {
  if (live.trials.length === 0) return el("p", { class: "quiet" }, t("live.no_tones"));
  const both = live.ears.length > 0;
  const columns = [
    t("column.number"), ...(both ? [t("person.ear")] : []), t("column.tone"),
    t("chart.in_unit", { unit: live.unit }), t("column.answer"),
  ];
  const rows = live.trials.map((trial) => [
    trial.number,
    ...(both ? [word("ear_short", trial.ear)] : []),
    trial.void ? t("live.void", { what: toneText(trial) }) : toneText(trial),
    trial.level === null ? "\u2013" : decibels(trial.level),
    trial.heard ? t("desk.heard") : t("desk.missed"),
  ]);
  return table(t("live.trials"), columns, rows.reverse());
}
