// @ts-check
/* The users, for an administrator. */

import { at, get, post } from "./api.js";
import { byId, el, fill, t, word } from "./dom.js";
import { acting, complain, formOf, inputOf, onSubmit, say, typed } from "./page.js";
import { sessionRows } from "./sessions.js";
import { table } from "./table.js";

/** The user whose form is open. */
let changing = "";

async function showUsers() {
  const users = await get("/api/users");
  const rows = users.map((user) => [
    user.name,
    word("role", user.role),
    word("user_state", user.state),
    [
      user.temporary ? t("users.temporary") : "",
      user.second_factor ? t("users.with_factor") : "",
    ].filter(Boolean).join(", ") || t("users.own_password"),
    el("button", { type: "button", click: () => change(user) }, t("users.change_of", { name: user.name })),
  ]);
  const columns = [t("users.name"), t("users.role"), t("users.state"), t("users.signs_in"), t("users.change")];
  fill(byId("list"), table(t("users.list"), columns, rows, { class: "list bare labelled" }));
}

/** @param {User} user */
function change(user) {
  changing = user.name;
  formOf("change").reset();
  formOf("change").hidden = false;
  byId("change-heading").textContent = t("users.change_of", { name: user.name });
  byId("change-heading").focus();
  byId("reset-factor").hidden = !user.second_factor;
  fill(byId("pass"));
  fill(byId("sessions"));
  showSessions(user.name).catch(complain);
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

// Help for whoever cannot come in, and an end to what should not go on

/** @param {string} name */
async function showSessions(name) {
  const sessions = await get(at("/api/users/{name}/sessions", { name }));
  const rows = await sessionRows(sessions, () => null);
  const columns = [t("account.where"), t("account.since"), t("account.seen")];
  fill(byId("sessions"), rows.length
    ? table(t("users.sessions"), columns, rows.map((row) => row.slice(0, 3)), { class: "list bare labelled" })
    : el("p", { class: "quiet" }, t("users.no_sessions")));
}

/** The reason that was typed, or nothing where it is missing, which is then said. */
function reason() {
  return inputOf("reason").reportValidity() ? inputOf("reason").value : "";
}

byId("end-sessions").addEventListener("click", () =>
  acting(byId("end-sessions"), async () => {
    const why = reason();
    if (!why) return;
    await post(at("/api/users/{name}/sessions/end", { name: changing }), { reason: why });
    say(t("users.sessions_ended", { name: changing }));
    await showSessions(changing);
  }),
);

byId("reset-factor").addEventListener("click", () =>
  acting(byId("reset-factor"), async () => {
    const why = reason();
    if (!why) return;
    await post(at("/api/users/{name}/second-factor/reset", { name: changing }), { reason: why });
    byId("reset-factor").hidden = true;
    say(t("users.factor_reset", { name: changing }));
    await Promise.all([showUsers(), showSessions(changing)]);
  }),
);

byId("let-in").addEventListener("click", () =>
  acting(byId("let-in"), async () => {
    const { code, minutes } = await post(at("/api/users/{name}/pass", { name: changing }), {});
    fill(byId("pass"),
      el("p", {}, t("users.pass", { name: changing, minutes })),
      el("p", {}, el("code", { class: "address" }, code)));
  }),
);

showUsers().catch(complain);
