// @ts-check
/* The password typed again, and a code where there is a second factor: a small dialog. */

import { whoAmI } from "./api.js";
import { el, fill, t } from "./dom.js";
import { Refusal, asksFor } from "./refusal.js";

/** @typedef {{ password: string, code: string }} Proof */

/**
 * Ask for the password, and send it by `send` until the server takes it. Gives false where somebody
 * thought better of it. Whatever else the server refuses is thrown.
 * @param {string} why
 * @param {(proof: Proof) => Promise<unknown>} send
 * @returns {Promise<boolean>}
 */
export async function withPassword(why, send) {
  const { name, second_factor: coded } = await whoAmI();
  const problem = el("p", { class: "caution", role: "alert", hidden: true });
  const password = el("input", {
    id: "again-password", type: "password", required: true, maxlength: 1000, autocomplete: "current-password",
  });
  const code = el("input", {
    id: "again-code", type: "text", required: true, maxlength: 60, inputmode: "numeric",
    autocomplete: "one-time-code", "aria-describedby": "again-code-hint",
  });
  const go = el("button", { type: "submit", class: "main" }, t("again.go"));
  const cancel = el("button", { type: "button" }, t("again.cancel"));
  const form = el("form", {},
    el("h2", { id: "again-heading" }, t("again.heading")),
    el("p", {}, why),
    problem,
    el("p", { class: "hint" }, t("again.account", { name })),
    el("div", { class: "field" }, el("label", { for: "again-password" }, t("again.password")), password),
    coded
      ? el("div", { class: "field" },
        el("label", { for: "again-code" }, t("login.code")), code,
        el("p", { class: "hint", id: "again-code-hint" }, t("login.code_hint")))
      : null,
    el("div", { class: "row" }, go, cancel));
  const dialog = el("dialog", { class: "card again", "aria-labelledby": "again-heading" }, form);
  document.body.append(dialog);
  return new Promise((resolve, reject) => {
    /** @param {() => void} end */
    const close = (end) => {
      dialog.remove();
      end();
    };
    cancel.addEventListener("click", () => close(() => resolve(false)));
    dialog.addEventListener("cancel", () => close(() => resolve(false)));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (go.getAttribute("aria-busy") === "true") return;
      go.setAttribute("aria-busy", "true");
      try {
        await send({ password: password.value, code: code.value });
        close(() => resolve(true));
      } catch (error) {
        if (!asksFor(error, "wrong-password", "wrong-code", "second-factor", "throttled")) {
          close(() => reject(error));
          return;
        }
        fill(problem, error instanceof Refusal ? error.message : "");
        problem.hidden = false;
        const again = asksFor(error, "wrong-code", "second-factor") && coded ? code : password;
        again.value = "";
        again.focus();
      } finally {
        go.removeAttribute("aria-busy");
      }
    });
    dialog.showModal();
    password.focus();
  });
}
