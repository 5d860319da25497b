// @ts-check
/* The set-up at the desk, for what this browser plays: no tone before it was passed, and none after
   trouble until it was passed again. */

import { at, post } from "./api.js";
import { byId, el, fill, word } from "./dom.js";
import { complain, say } from "./page.js";
import { Refusal } from "./refusal.js";
import { DESK_STEPS, createSetup, showPlannedDevice } from "./setup.js";

/** @import { ExamState } from "./exam_state.js" */

/**
 * @param {ExamState} state
 * @param {{ open: () => AudioContext }} audio
 */
export function createDeskSetup(state, audio) {
  /** @type {ReturnType<typeof createSetup> | null} */
  let setup = null;
  /** A stop that the server does not know of yet. @type {Stopped | null} */
  let unsent = null;
  /** @type {Map<string, (value: string) => void>} */
  const actions = new Map();

  function show() {
    byId("set-up").hidden = !state.needsSetUp;
    if (!state.needsSetUp) {
      setup?.silence();
      setup = null;
      return;
    }
    const { play } = state.exam;
    showToFix(play?.problem ?? state.problem);
    if (setup === null && play !== null) run(play).catch(complain);
  }

  /** @param {string | null} sentence */
  function showToFix(sentence) {
    const alert = { class: "caution", role: "alert" };
    fill(byId("set-up-problem"), sentence ? el("p", alert, sentence) : null);
  }

  /** @param {string} name */
  function showStep(name) {
    for (const step of byId("steps").children) {
      if (step instanceof HTMLElement) step.hidden = step.id !== name;
    }
    const shown = byId(name);
    byId("set-up-stop").hidden = !("sound" in shown.dataset);
    shown.querySelector("h3")?.focus();
  }

  /** @param {Play} play */
  async function run(play) {
    showPlannedDevice(play.sound);
    setup = createSetup(
      {
        reader: "desk",
        show: showStep,
        open: audio.open,
        on: (name, action) => actions.set(name, action),
      },
      play,
      DESK_STEPS,
    );
    const found = await setup.passed;
    setup = null;
    state.problem = null;
    state.checked = true; // what happens from here on takes it back
    state.busy = true;
    state.dropLooks(); // a look that is under way was at an exam that still waited for this
    try {
      await sendStop();
      await post(at("/api/exams/{exam}/ready", state.names), { fingerprint: found });
      await state.lookAnew();
      if (state.atDesk) byId("play").focus();
    } catch (error) {
      complain(error);
      state.uncheck();
      state.show();
    } finally {
      state.busy = false;
    }
  }

  /**
   * Silent at once; the server learns of it, and the set-up comes again whether it does or not.
   * @param {StopReason} reason
   */
  function stop(reason) {
    state.uncheck();
    unsent = { trial: state.presentation?.trial ?? null, reason };
    say(word("stopped", reason));
    state.show();
    sendStop().catch(complain);
  }

  async function sendStop() {
    if (unsent === null) return;
    const stopped = unsent;
    try {
      await post(at("/api/exams/{exam}/stop", state.names), stopped);
    } catch (error) {
      // Another refusal means that there is nothing to stop any more.
      if (!(error instanceof Refusal) || error.status === 0) throw error;
    }
    if (unsent === stopped) unsent = null;
  }

  /**
   * What happens while nothing sounds does no harm, unless it changes what will be heard.
   * @param {StopReason} reason
   */
  function trouble(reason) {
    if (setup) setup.restart();
    else if (state.checked && (state.sounding || reason !== "hidden")) stop(reason);
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") trouble("panic");
  });
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-do]") : null;
    const name = button?.getAttribute("data-do") ?? "";
    if (name === "panic") {
      trouble("panic");
      return;
    }
    try {
      actions.get(name)?.(button?.getAttribute("data-value") ?? "");
    } catch (error) {
      // The player's own sentence: no channel, no such frequency.
      showToFix(error instanceof Error ? error.message : String(error));
    }
  });

  return { show, stop, trouble };
}
