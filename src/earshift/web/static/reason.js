// @ts-check
/* A reason, asked for in a dialog: nothing on the page moves, and what was typed stays if it fails. */

import { el, fill, t } from "./dom.js";
import { reasonOf } from "./page.js";

/**
 * Ask for a reason, and send it by `send` until the server takes it. Gives false where somebody
 * thought better of it.
 * @param {{ heading: string, hint: string, go: string }} words
 * @param {(reason: string) => Promise<unknown>} send
 * @returns {Promise<boolean>}
 */
export function withReason(words, send) {
  const problem = el("p", { class: "caution", role: "alert", hidden: true });
  const reason = el("input", {
    id: "why-reason", type: "text", required: true, maxlength: 500, autocomplete: "off",
    "aria-describedby": "why-hint",
  });
  const go = el("button", { type: "submit", class: "main" }, words.go);
  const cancel = el("button", { type: "button" }, t("closing.not"));
  const form = el("form", { id: "why" },
    el("h2", { id: "why-heading" }, words.heading),
    problem,
    el("div", { class: "field" },
      el("label", { for: "why-reason" }, t("closing.reason")), reason,
      el("p", { class: "hint", id: "why-hint" }, words.hint)),
    el("div", { class: "row" }, go, cancel));
  const dialog = el("dialog", { class: "card again", "aria-labelledby": "why-heading" }, form);
  document.body.append(dialog);
  return new Promise((resolve) => {
    /** @param {boolean} done */
    const close = (done) => {
      dialog.remove();
      resolve(done);
    };
    cancel.addEventListener("click", () => close(false));
    dialog.addEventListener("cancel", () => close(false));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (go.getAttribute("aria-busy") === "true") return;
      go.setAttribute("aria-busy", "true");
      try {
        await send(reason.value);
        close(true);
      } catch (error) {
        fill(problem, reasonOf(error));
        problem.hidden = false;
      } finally {
        go.removeAttribute("aria-busy");
      }
    });
    dialog.showModal();
    reason.focus();
  });
}
