// @ts-check
/* The frame around every page: when it can be used, the menu of small screens, and signing out. */

import { post } from "./api.js";
import { byId } from "./dom.js";
import { acting } from "./page.js";

const menu = document.getElementById("menu");
menu?.addEventListener("click", () => {
  const open = menu.getAttribute("aria-expanded") !== "true";
  menu.setAttribute("aria-expanded", String(open));
});

const signOut = document.getElementById("sign-out");
signOut?.addEventListener("click", () =>
  acting(signOut, async () => {
    await post("/api/logout", {});
    location.assign("/login");
  }),
);

// A form that is sent before the page's own script listens would be lost without a word. All scripts
// of the page have run when this event comes.
document.addEventListener("DOMContentLoaded", () => {
  byId("main").inert = false;
});
