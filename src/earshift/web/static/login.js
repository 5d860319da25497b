// @ts-check
/* Signing in, then on to the page that was wanted. */

import { signIn } from "./api.js";
import { byId } from "./dom.js";
import { formOf, inputOf, onSubmit, say, typed } from "./page.js";
import { asksFor } from "./refusal.js";

/**
 * Show a field that was not needed so far, without what was sent: typed meanwhile, it stays.
 * @param {string} part
 * @param {string} field
 * @param {FormData} sent
 */
function ask(part, field, sent) {
  const first = byId(part).hidden;
  byId(part).hidden = false;
  if (inputOf(field).value === typed(sent, field)) inputOf(field).value = "";
  inputOf(field).focus();
  return first;
}

inputOf("name").focus();
onSubmit(formOf("login"), async (fields) => {
  try {
    await signIn({
      name: typed(fields, "name"),
      password: typed(fields, "password"),
      code: typed(fields, "code"),
      admin_pass: typed(fields, "admin_pass"),
    });
  } catch (error) {
    if (asksFor(error, "second-factor", "wrong-code")) {
      // The first time it is no mistake of anybody's.
      if (ask("with-code", "code", fields) && asksFor(error, "second-factor")) {
        say(error.message);
        return;
      }
    } else if (asksFor(error, "throttled")) {
      ask("with-pass", "admin_pass", fields);
    } else {
      inputOf("password").value = "";
      inputOf("password").focus();
    }
    throw error;
  }
  const asked = new URLSearchParams(location.search).get("next");
  const next = new URL(asked ?? sessionStorage.getItem("next") ?? "/", location.origin);
  sessionStorage.removeItem("next");
  // Never to another site, whatever stands in the address.
  location.assign(next.origin === location.origin ? next.href : "/");
});
