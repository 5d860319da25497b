// @ts-check
/* One's own account: password, second factor, where one is signed in, and tokens for programs. */

import { at, get, post, remove, whoAmI } from "./api.js";
import { byId, el, fill, t, word } from "./dom.js";
import { localTime } from "./format.js";
import { acting, formOf, giveUp, inputOf, onSubmit, say, typed } from "./page.js";
import { qrCode } from "./qr.js";
import { sessionRows } from "./sessions.js";
import { table } from "./table.js";

/** @type {{ secret: string, proof: string } | null} */
let offered = null;

// Password

onSubmit(formOf("password"), async (fields) => {
  const wanted = typed(fields, "new");
  inputOf("repeat").setCustomValidity(wanted === typed(fields, "repeat") ? "" : t("account.differ"));
  if (!inputOf("repeat").reportValidity()) return;
  const { first } = await whoAmI();
  await post("/api/account/password", {
    password: typed(fields, "current"), new_password: wanted, code: typed(fields, "code"),
  });
  // A new session has begun, with a token of its own.
  if (first === "password") {
    const next = sessionStorage.getItem("next") ?? "/";
    sessionStorage.removeItem("next");
    location.assign(next.startsWith("/") && !next.startsWith("//") ? next : "/");
  } else {
    sessionStorage.setItem("said", t("account.password_saved"));
    location.reload();
  }
});
inputOf("repeat").addEventListener("input", () => inputOf("repeat").setCustomValidity(""));

// Second factor

async function showFactor() {
  const account = await get("/api/account");
  const { second_factor: on, second_factor_needed: needed, recovery_codes_left: left } = account;
  byId("factor-state").textContent = on
    ? t("account.factor_on", { left })
    : needed ? t("account.factor_needed") : t("account.factor_off");
  byId("factor-begin").textContent = on ? t("account.factor_anew") : t("account.factor_begin");
  byId("factor-begin").classList.toggle("main", !on);
  byId("factor-drop").hidden = !on || needed;
  byId("with-code").hidden = !on;
}

byId("factor-begin").addEventListener("click", () =>
  acting(byId("factor-begin"), async () => {
    const { secret, proof, qr } = await post("/api/account/second-factor/offer", {});
    offered = { secret, proof };
    byId("recovery").hidden = true;
    fill(byId("qr"), qrCode(qr, t("account.qr")));
    byId("secret").textContent = secret.match(/.{1,4}/g)?.join(" ") ?? secret;
    byId("offer").hidden = false;
    inputOf("first_code").focus();
  }),
);

onSubmit(formOf("take"), async (fields) => {
  if (!offered) return;
  const { codes } = await post("/api/account/second-factor", {
    ...offered, code: typed(fields, "first_code"),
  });
  offered = null;
  formOf("take").reset();
  byId("offer").hidden = true;
  fill(byId("qr"));
  byId("secret").textContent = "";
  fill(byId("codes"), codes.map((code) => el("li", {}, el("code", {}, code))));
  byId("recovery").hidden = false;
  byId("recovery-heading").focus();
  await showFactor();
});

byId("kept").addEventListener("click", () => {
  fill(byId("codes"));
  location.reload(); // what had to be done first may be done now
});

byId("factor-drop").addEventListener("click", () =>
  acting(byId("factor-drop"), async () => {
    await remove("/api/account/second-factor");
    say(t("account.factor_dropped"));
    await showFactor();
  }),
);

// Sessions

async function showSessions() {
  const sessions = await get("/api/account/sessions");
  const rows = await sessionRows(sessions, (session) => {
    if (session.current) return el("span", { class: "quiet" }, t("account.this_one"));
    const end = el("button", { type: "button" }, t("account.session_end"));
    end.addEventListener("click", () =>
      acting(end, async () => {
        await remove(at("/api/account/sessions/{id}", { id: session.id }));
        say(t("account.session_ended"));
        await showSessions();
      }),
    );
    return end;
  });
  const columns = [t("account.where"), t("account.since"), t("account.seen"), t("account.end")];
  fill(byId("sessions"), table(t("account.sessions"), columns, rows, { class: "list bare labelled" }));
}

// Tokens

async function showTokens() {
  const { name } = await whoAmI();
  const tokens = await get("/api/tokens");
  const rows = await Promise.all(tokens.map(async (token) => {
    const end = el("button", { type: "button" }, t("account.token_end"));
    end.addEventListener("click", () =>
      acting(end, async () => {
        await remove(at("/api/tokens/{id}", { id: String(token.id) }));
        say(t("account.token_ended"));
        await showTokens();
      }),
    );
    const whose = token.user === name ? token.name : t("account.token_of", { what: token.name, user: token.user });
    return [whose, await localTime(token.expires_at), end];
  }));
  const columns = [t("account.token_label"), t("account.token_until"), t("account.end")];
  fill(
    byId("tokens"),
    rows.length
      ? table(t("account.tokens"), columns, rows, { class: "list bare" })
      : el("p", { class: "quiet" }, t("account.no_tokens")),
  );
}

onSubmit(formOf("token"), async (fields) => {
  const made = await post("/api/tokens", { name: typed(fields, "purpose") });
  formOf("token").reset();
  await showTokens();
  const secret = el("code", { class: "address" }, made.token);
  byId("tokens").append(el("p", {}, t("account.token_once")), el("p", {}, secret));
});

async function load() {
  const { name, role, first } = await whoAmI();
  byId("who").textContent = t("account.who", { name, role: word("role", role) });
  byId("first").hidden = first === null;
  byId("first").textContent = first === null ? "" : word("first", first);
  await showFactor();
  byId("password-card").hidden = first === "second factor";
  byId("factor-card").hidden = first === "password";
  if (first === null) {
    await Promise.all([showSessions(), showTokens()]);
    byId("sessions-card").hidden = false;
    byId("tokens-card").hidden = false;
  }
  const said = sessionStorage.getItem("said");
  sessionStorage.removeItem("said");
  if (said) say(said);
}

load().catch(giveUp);
