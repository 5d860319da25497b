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
  const next = sessionStorage.getItem("next") ?? "/";
  sessionStorage.removeItem("next");
  location.assign(next.startsWith("/") && !next.startsWith("//") ? next : "/");
});
