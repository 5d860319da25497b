// @ts-check
/* The JSON API as a page calls it: the CSRF token goes along, refusals become errors. What a path
   takes and gives is checked against the API's own description. */

import { keep, putBack } from "./kept.js";
import { Refusal } from "./refusal.js";

/** @type {Promise<Answered<"/api/me", "get">> | null} */
let me = null;

/** Calls that the server has not answered yet. */
let running = 0;

/** Who is signed in; asked once per page. */
export function whoAmI() {
  me ??= get("/api/me");
  return me;
}

/**
 * Run something that asks the server. When the page has all that it asked for, what was typed before
 * a session ended is put back: earlier, the page itself would write over it.
 * @template T
 * @param {() => Promise<T>} asking
 */
async function counted(asking) {
  running += 1;
  try {
    return await asking();
  } finally {
    running -= 1;
    setTimeout(() => {
      if (running === 0) putBack();
    });
  }
}

/**
 * The address of a path, with its placeholders filled in; a list is asked as often as it is long.
 * @template {Path} P
 * @param {P} path
 * @param {Record<string, string>} names
 * @param {Record<string, string | number | boolean | readonly string[]>} [query]
 * @returns {Address<P>}
 */
export function at(path, names, query = {}) {
  const filled = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(names[name]));
  const asked = new URLSearchParams(
    Object.entries(query).flatMap(([name, value]) => [value].flat().map((one) => [name, `${one}`])),
  );
  return /** @type {Address<P>} */ (asked.size > 0 ? `${filled}?${asked}` : filled);
}

/**
 * @template {PathOf<"get">} P
 * @param {P | Address<P>} path
 * @returns {Promise<Answered<P, "get">>}
 */
export const get = (path) => call("GET", path);

/**
 * The same for an address that the API does not describe: its description itself.
 * @param {string} address
 * @returns {Promise<any>}
 */
export const getPlain = (address) => call("GET", address);

/**
 * @template {PathOf<"post">} P
 * @param {P | Address<P>} path
 * @param {Sent<P, "post">} body
 * @returns {Promise<Answered<P, "post">>}
 */
export const post = (path, body) => unsafe("POST", path, JSON.stringify(body));

/**
 * @template {PathOf<"delete">} P
 * @param {P | Address<P>} path
 */
export const remove = (path) => unsafe("DELETE", path);

/**
 * Send a file as it is.
 * @template {PathOf<"post">} P
 * @param {P | Address<P>} path
 * @param {File} file
 * @returns {Promise<Answered<P, "post">>}
 */
export const send = (path, file) => unsafe("POST", path, file, "application/octet-stream");

/**
 * A file to be kept, with the name that the server gives it.
 * @template {PathOf<"get">} P
 * @param {P | Address<P>} path
 */
export function getFile(path) {
  return counted(async () => {
    const response = await reach(path, {});
    if (!response.ok) await contentOf(response); // throws
    const said = response.headers.get("Content-Disposition") ?? "";
    return { name: /filename="([^"]+)"/.exec(said)?.[1] ?? "file", content: await response.blob() };
  });
}

/**
 * Sign in: nobody is known yet, so there is no token to send.
 * @param {Sent<"/api/login", "post">} credentials
 */
export function signIn(credentials) {
  const body = JSON.stringify(credentials);
  return call("POST", "/api/login", body, { "Content-Type": "application/json" });
}

/**
 * What a path has now, or null where it is as it was when `tag` was given.
 * @template {PathOf<"get">} P
 * @param {P | Address<P>} path
 * @param {string | null} tag
 * @returns {Promise<{ tag: string | null, content: Answered<P, "get"> | null }>}
 */
export function getIfChanged(path, tag) {
  return counted(async () => {
    const response = await reach(path, { headers: tag ? { "If-None-Match": tag } : {} });
    if (response.status === 304) return { tag, content: null };
    return { tag: response.headers.get("ETag"), content: await contentOf(response) };
  });
}

/**
 * @param {string} method
 * @param {string} path
 * @param {string | File} [body]
 */
async function unsafe(method, path, body, type = "application/json") {
  const headers = async () => ({
    "X-CSRF-Token": (await whoAmI()).csrf ?? "",
    ...(body === undefined ? {} : { "Content-Type": type }),
  });
  try {
    return await call(method, path, body, await headers());
  } catch (error) {
    // A sign-in in another window brings another token. What was refused was not done: try again.
    if (!(error instanceof Refusal) || error.status !== 403 || error.code) throw error;
    me = null;
    return call(method, path, body, await headers());
  }
}

/**
 * @param {string} method
 * @param {string} path
 * @param {string | File} [body]
 * @param {Record<string, string>} [headers]
 */
function call(method, path, body, headers = {}) {
  return counted(async () => contentOf(await reach(path, { method, body, headers })));
}

/**
 * @param {string} path
 * @param {RequestInit} options
 */
async function reach(path, options) {
  try {
    return await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
  } catch {
    throw new Refusal(0);
  }
}

/** @param {Response} response */
async function contentOf(response) {
  const empty = response.status === 204;
  const json = !empty && (response.headers.get("Content-Type") ?? "").includes("json");
  const content = json ? await response.json() : null;
  if (response.ok) return content;
  if (response.status === 401 && location.pathname !== "/login") {
    sessionStorage.setItem("next", location.pathname + location.search);
    keep();
    location.assign("/login");
  }
  const { detail, code } = content ?? {};
  if (String(code).startsWith("first ") && location.pathname !== "/account") {
    location.assign("/account"); // nothing else can be done now
  }
  throw new Refusal(
    response.status, typeof detail === "string" ? detail : "", typeof code === "string" ? code : "",
  );
}
