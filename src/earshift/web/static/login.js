// @ts-check
/* Signing in, then on to the page that was wanted. */

import { signIn } from "./api.js";
import { formOf, inputOf, onSubmit, typed } from "./page.js";

inputOf("name").focus();
onSubmit(formOf("login"), async (fields) => {
  try {
    await signIn(typed(fields, "name"), typed(fields, "password"));
  } catch (error) {
    inputOf("password").value = "";
    inputOf("password").focus();
    throw error;
  }
  const asked = new URLSearchParams(location.search).get("next");
  const next = new URL(asked ?? sessionStorage.getItem("next") ?? "/", location.origin);
  sessionStorage.removeItem("next");
  // Never to another site, whatever stands in the address.
  location.assign(next.origin === location.origin ? next.pathname + next.search : "/");
});
