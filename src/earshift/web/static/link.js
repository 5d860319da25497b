// @ts-check
/* The listener's link: made, shown once, copied, ended. */

import { at, post, remove, whoAmI } from "./api.js";
import { el, fill, svg, t } from "./dom.js";
import { localTime } from "./format.js";
import { acting, say } from "./page.js";

/**
 * Controls for the link of a visit. The address is known only to who makes it, and only once.
 * @param {Element} place
 * @param {string} visit
 * @param {() => unknown} [changed] called when the link was made or ended
 * @param {() => boolean} [inUse] whether a new link would end one that may be in use
 */
export function linkPanel(place, visit, changed = () => {}, inUse = () => false) {
  const shown = el("div");
  const make = el("button", { type: "button", class: "main" }, t("link.make"));
  const end = el("button", { type: "button" }, t("link.end"));
  const link = at("/api/visits/{visit_id}/link", { visit_id: visit });
  fill(place, el("p", { class: "hint" }, t("link.what")), shown, el("div", { class: "row" }, make, end));
  make.addEventListener("click", () => {
    if (!inUse() || window.confirm(t("link.sure"))) acting(make, create);
  });
  end.addEventListener("click", () =>
    acting(end, async () => {
      await remove(link);
      fill(shown);
      say(t("link.ended"));
      changed();
    }),
  );
  async function create() {
    const made = await post(link, {});
    const whole = new URL(made.url, location.origin).href;
    const address = el("input", {
      type: "text", readonly: true, value: whole, id: "listener-link", class: "address",
    });
    const copy = el("button", { type: "button" }, t("link.copy"));
    copy.addEventListener("click", async () => {
      address.select();
      try {
        await navigator.clipboard.writeText(whole);
        say(t("link.copied"));
      } catch {
        say(t("link.copy_by_hand")); // a page without TLS has no clipboard
      }
    });
    // The listener's page must not share the browser of an examiner who is signed in.
    const { single_user: alone } = await whoAmI();
    const attributes = { class: "button main", href: made.url, target: "_blank", rel: "noopener" };
    const open = alone ? el("a", attributes, t("link.open")) : null;
    const here = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
    fill(
      shown,
      el("p", {}, here ? t("link.only_here") : t("link.scan")),
      here ? null : picture(made.qr),
      el("div", { class: "field" }, el("label", { for: "listener-link" }, t("link.address")), address),
      el("p", { class: "hint" }, t("link.until", { at: await localTime(made.expires_at) })),
      el("div", { class: "row" }, copy, open),
    );
    make.textContent = t("link.again");
    make.classList.remove("main"); // it would end the link that was just made
    address.focus();
    changed();
  }
  return { create };
}

const QUIET = 4; // modules of white around a QR code

/**
 * A QR code, dark on white whatever the colours of the page.
 * @param {string[]} rows
 */
function picture(rows) {
  const size = rows.length + 2 * QUIET;
  const dark = rows.flatMap((row, y) =>
    [...row].flatMap((one, x) => (one === "1" ? `M${x + QUIET} ${y + QUIET}h1v1h-1z` : [])),
  );
  return svg("svg", { class: "qr", viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": t("link.qr") },
    svg("rect", { width: size, height: size, fill: "#fff" }),
    svg("path", { d: dark.join(""), fill: "#000" }));
}
