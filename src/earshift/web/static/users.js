/* The users and their keys, for an administrator. */

import { get, post, remove } from "./api.js";
import { acting, byId, complain, el, fill, localTime, onSubmit, say, t, table, word } from "./page.js";

let changing = null;

async function showUsers() {
  const users = await get("/api/users");
  const rows = users.map((user) => [
    user.name,
    word("role", user.role),
    word("user_state", user.state),
    el("button", { type: "button", click: () => change(user) }, t("users.change_of", { name: user.name })),
  ]);
  const columns = ["users.name", "users.role", "users.state", "users.change"].map((key) => t(key));
  fill(byId("list"), table(t("users.list"), columns, rows, { class: "list bare" }));
}

function change(user) {
  changing = user.name;
  byId("change").reset();
  byId("change").hidden = false;
  byId("change-heading").textContent = t("users.change_of", { name: user.name });
  byId("change-heading").focus();
}

onSubmit(byId("change"), async (form) => {
  const given = { role: form.get("new_role"), state: form.get("new_state"), password: form.get("new_password") };
  const wanted = Object.fromEntries(Object.entries(given).filter(([, value]) => value));
  await post(`/api/users/${encodeURIComponent(changing)}/state`, { ...wanted, reason: form.get("reason") });
  byId("change").hidden = true;
  say(t("users.changed", { name: changing }));
  await showUsers();
});

onSubmit(byId("new"), async (form) => {
  await post("/api/users", { name: form.get("name"), role: form.get("role"), password: form.get("password") });
  byId("new").reset();
  say(t("users.added", { name: form.get("name") }));
  await showUsers();
});

async function showTokens() {
  const tokens = await get("/api/tokens");
  const rows = await Promise.all(tokens.map(async (token) => {
    const end = el("button", { type: "button" }, t("users.token_end"));
    end.addEventListener("click", () =>
      acting(end, async () => {
        await remove(`/api/tokens/${token.id}`);
        say(t("users.token_ended"));
        await showTokens();
      }),
    );
    return [token.name, token.expires_at ? await localTime(token.expires_at) : "\u2013", end];
  }));
  const columns = ["users.token_label", "users.token_until", "users.change"].map((key) => t(key));
  fill(byId("tokens"), rows.length ? table(t("users.tokens"), columns, rows, { class: "list bare" }) : el("p", { class: "quiet" }, t("users.no_tokens")));
}

onSubmit(byId("token"), async (form) => {
  const made = await post("/api/tokens", { name: form.get("purpose") });
  byId("token").reset();
  await showTokens();
  byId("tokens").append(el("p", {}, t("users.token_once")), el("p", {}, el("code", { class: "address" }, made.token)));
});

Promise.all([showUsers(), showTokens()]).catch(complain);
