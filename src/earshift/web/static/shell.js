// @ts-check
/* The frame around every page: the menu of small screens, and signing out. */

import { post } from "./api.js";
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
