// @ts-check
/* The users and their keys, for an administrator. */

import { at, get, post, remove } from "./api.js";
import { byId, el, fill, t, word } from "./dom.js";
import { localTime } from "./format.js";
import { acting, complain, formOf, onSubmit, say, typed } from "./page.js";
import { table } from "./table.js";

/** The user whose form is open. */
let changing = "";

async function showUsers() {
  const users = await get("/api/users");
  const rows = users.map((user) => [
    user.name,
    word("role", user.role),
    word("user_state", user.state),
    el("button", { type: "button", click: () => change(user) }, t("users.change_of", { name: user.name })),
  ]);
  const columns = [t("users.name"), t("users.role"), t("users.state"), t("users.change")];
  fill(byId("list"), table(t("users.list"), columns, rows, { class: "list bare" }));
}

/** @param {User} user */
function change(user) {
  changing = user.name;
  formOf("change").reset();
  formOf("change").hidden = false;
  byId("change-heading").textContent = t("users.change_of", { name: user.name });
  byId("change-heading").focus();
}

onSubmit(formOf("change"), async (fields) => {
  const given = { role: "new_role", state: "new_state", password: "new_password" };
  const wanted = Object.entries(given)
    .map(([name, field]) => [name, typed(fields, field)])
    .filter(([, value]) => value);
  await post(at("/api/users/{name}/state", { name: changing }), {
    ...Object.fromEntries(wanted),
    reason: typed(fields, "reason"),
  });
  formOf("change").hidden = true;
  say(t("users.changed", { name: changing }));
  await showUsers();
});

onSubmit(formOf("new"), async (fields) => {
  const name = typed(fields, "name");
  const role = /** @type {"examiner" | "reviewer" | "admin"} */ (typed(fields, "role"));
  await post("/api/users", { name, role, password: typed(fields, "password") });
  formOf("new").reset();
  say(t("users.added", { name }));
  await showUsers();
});

async function showTokens() {
  const tokens = await get("/api/tokens");
  const rows = await Promise.all(tokens.map(async (token) => {
    const end = el("button", { type: "button" }, t("users.token_end"));
    end.addEventListener("click", () =>
      acting(end, async () => {
        await remove(at("/api/tokens/{id}", { id: String(token.id) }));
        say(t("users.token_ended"));
        await showTokens();
      }),
    );
    return [token.name, token.expires_at ? await localTime(token.expires_at) : "\u2013", end];
  }));
  const columns = [t("users.token_label"), t("users.token_until"), t("users.change")];
  fill(
    byId("tokens"),
    rows.length
      ? table(t("users.tokens"), columns, rows, { class: "list bare" })
      : el("p", { class: "quiet" }, t("users.no_tokens")),
  );
}

onSubmit(formOf("token"), async (fields) => {
  const made = await post("/api/tokens", { name: typed(fields, "purpose") });
  formOf("token").reset();
  await showTokens();
  const secret = el("code", { class: "address" }, made.token);
  byId("tokens").append(el("p", {}, t("users.token_once")), el("p", {}, secret));
});

Promise.all([showUsers(), showTokens()]).catch(complain);
