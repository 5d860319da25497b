// @ts-check
/* The listener's link: made, shown once, copied, ended. */

import { at, post, remove, whoAmI } from "./api.js";
import { el, fill, t } from "./dom.js";
import { localTime } from "./format.js";
import { acting, say } from "./page.js";
import { qrCode } from "./qr.js";

/**
 * Controls for the link of a visit. The address is known only to who makes it, and only once.
 * @param {Element} place
 * @param {string} visit
 * @param {() => unknown} [changed] called when the link was made or ended
 * @param {() => boolean} [inUse] whether a new link would end one from elsewhere
 */
export function linkPanel(place, visit, changed = () => {}, inUse = () => false) {
  const shown = el("div");
  let given = false; // whether this page has made a link that works
  const make = el("button", { type: "button", class: "main" }, t("link.make"));
  const end = el("button", { type: "button" }, t("link.end"));
  const link = at("/api/visits/{visit_id}/link", { visit_id: visit });
  fill(place, el("p", { class: "hint" }, t("link.what")), shown, el("div", { class: "row" }, make, end));
  make.addEventListener("click", () => {
    if (!(given || inUse()) || window.confirm(t("link.sure"))) acting(make, create);
  });
  end.addEventListener("click", () =>
    acting(end, async () => {
      await remove(link);
      given = false;
      fill(shown);
      show(false);
      say(t("link.ended"));
      changed();
    }),
  );
  async function create() {
    const made = await post(link, {});
    given = true;
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
      here ? null : qrCode(made.qr, t("link.qr")),
      el("div", { class: "field" }, el("label", { for: "listener-link" }, t("link.address")), address),
      el("p", { class: "hint" }, t("link.until", { at: await localTime(made.expires_at) })),
      el("div", { class: "row" }, copy, open),
    );
    show(true);
    address.focus();
    changed();
  }
  /**
   * A new link would end one that works: then that is not the first thing to do.
   * @param {boolean} works
   */
  function show(works) {
    make.textContent = works ? t("link.again") : t("link.make");
    make.classList.toggle("main", !works);
    end.hidden = !works;
  }
  return { create, show };
}
