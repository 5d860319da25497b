// @ts-check
/* The desk: tones played by hand or by this browser, answers by button or key. */

import { at, post } from "./api.js";
import { byId, t, word } from "./dom.js";
import { decibels } from "./format.js";
import { acting, complain, inputOf } from "./page.js";
import { playOnce } from "./player.js";

/** @import { ExamState } from "./exam_state.js" */

const KEYS_SETTING = "desk-keys";

/**
 * @param {ExamState} state
 * @param {{ open: () => AudioContext }} audio
 * @param {(reason: StopReason) => void} stop
 */
export function createDesk(state, audio, stop) {
  const desk = byId("desk");
  const otherLevel = inputOf("played_db");
  const buttons = {
    heard: byId("heard", HTMLButtonElement),
    missed: byId("missed", HTMLButtonElement),
    play: byId("play", HTMLButtonElement),
  };

  function show() {
    const left = !state.atDesk && !state.needsSetUp && desk.contains(document.activeElement);
    desk.hidden = !state.atDesk;
    if (left) byId("verdict-heading").focus();
    const { play } = state.exam;
    if (!state.atDesk || play === null) return;
    const { presentation: tone, progress } = play;
    byId("answers").hidden = tone === null;
    allowAnswers();
    const text = tone === null ? t("desk.over") : toneText(tone, play.sound.unit);
    if (byId("tone").textContent !== text) {
      byId("tone").textContent = text;
      otherLevel.value = "";
    }
    const values = { n: progress.answered, most: progress.at_most };
    byId("progress").textContent = t("desk.progress", values);
    byId("play-row").hidden = tone === null || state.byHand;
    byId("played-otherwise").hidden = !state.byHand || (tone?.level ?? null) === null;
  }

  /**
   * @param {Presentation} tone
   * @param {string} unit
   */
  function toneText(tone, unit) {
    const ear = word("the_ear", tone.ear);
    if (tone.level === null) {
      return state.byHand ? t("desk.silence", { ear }) : t("desk.silence_played", { ear });
    }
    const values = { ear, hz: tone.frequency_hz, level: decibels(tone.level), unit };
    return tone.practice ? t("desk.practice", values) : t("desk.tone", values);
  }

  function allowAnswers() {
    buttons.heard.disabled = !state.mayAnswer;
    buttons.missed.disabled = !state.mayAnswer;
  }

  /** @param {boolean} heard */
  async function answer(heard) {
    const tone = state.presentation;
    if (!state.mayAnswer || tone === null || state.busy) return;
    state.busy = true;
    try {
      const typed = byId("played-otherwise").hidden ? "" : otherLevel.value;
      const { problem } = await post(at("/api/exams/{exam}/answer", state.names), {
        trial: tone.trial,
        heard,
        reaction_ms: null,
        played_db: typed === "" ? null : Number(typed),
      });
      state.problem = problem;
      otherLevel.value = "";
      await state.look();
    } catch (error) {
      complain(error);
    } finally {
      state.busy = false;
    }
  }

  async function playTone() {
    const { play } = state.exam;
    const tone = state.presentation;
    if (!state.atDesk || play === null || tone === null || state.byHand || state.sounding) return;
    state.played = null;
    allowAnswers();
    try {
      state.sounding = playOnce(audio.open(), play, tone);
      if (await state.sounding.done) state.played = tone.trial;
    } catch {
      // The player refuses what its own limits forbid, whatever the server asked for.
      stop("error");
    } finally {
      state.sounding = null;
    }
    allowAnswers();
  }

  buttons.heard.addEventListener("click", () => acting(buttons.heard, () => answer(true)));
  buttons.missed.addEventListener("click", () => acting(buttons.missed, () => answer(false)));
  buttons.play.addEventListener("click", () => acting(buttons.play, playTone));

  const keys = new Map([["h", buttons.heard], ["n", buttons.missed], ["p", buttons.play]]);
  const keysWanted = inputOf("keys");
  keysWanted.checked = localStorage.getItem(KEYS_SETTING) !== "off";
  keysWanted.addEventListener("change", () =>
    localStorage.setItem(KEYS_SETTING, keysWanted.checked ? "on" : "off"),
  );
  document.addEventListener("keydown", (event) => {
    const place = event.target instanceof Element ? event.target : null;
    if (place?.closest("input:not([type=checkbox]), textarea, select")) return;
    if (event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
    const button = keys.get(event.key.toLowerCase());
    if (button && keysWanted.checked && !desk.hidden) {
      event.preventDefault();
      button.click();
    }
  });

  return { show };
}
