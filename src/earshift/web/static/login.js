/* Signing in, then on to the page that was wanted. */

import { signIn } from "./api.js";
import { byId, onSubmit } from "./page.js";

byId("name").focus();
onSubmit(byId("login"), async (form) => {
  try {
    await signIn(form.get("name"), form.get("password"));
  } catch (error) {
    byId("password").value = "";
    byId("password").focus();
    throw error;
  }
  const next = sessionStorage.getItem("next") ?? "/";
  sessionStorage.removeItem("next");
  location.assign(next.startsWith("/") && !next.startsWith("//") ? next : "/");
});
