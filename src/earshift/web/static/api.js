/* The JSON API as a page calls it: the CSRF token goes along, refusals become errors. */

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

let me = null;

/** Who is signed in; asked once per page. */
export function whoAmI() {
  me ??= call("GET", "/api/me");
  return me;
}

export const get = (path) => call("GET", path);
export const post = (path, body = {}) => unsafe("POST", path, JSON.stringify(body));
export const remove = (path) => unsafe("DELETE", path);
export const send = (path, file) => unsafe("POST", path, file, "application/octet-stream");

/** Sign in: nobody is known yet, so there is no token to send. */
export function signIn(name, password) {
  const body = JSON.stringify({ name, password });
  return call("POST", "/api/login", body, { "Content-Type": "application/json" });
}

/** What a path has now, or null where it is as it was when `tag` was given. */
export async function getIfChanged(path, tag) {
  const headers = tag ? { "If-None-Match": tag } : {};
  const response = await reach(path, { headers });
  if (response.status === 304) return { tag, content: null };
  return { tag: response.headers.get("ETag"), content: await contentOf(response) };
}

async function unsafe(method, path, body, type = "application/json") {
  const headers = async () => ({
    "X-CSRF-Token": (await whoAmI()).csrf,
    ...(body === undefined ? {} : { "Content-Type": type }),
  });
  try {
    return await call(method, path, body, await headers());
  } catch (error) {
    // A sign-in in another window brings another token. What was refused was not done: try again.
    if (error.status !== 403) throw error;
    me = null;
    return call(method, path, body, await headers());
  }
}

async function call(method, path, body, headers = {}) {
  return contentOf(await reach(path, { method, body, headers }));
}

async function reach(path, options) {
  try {
    return await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
  } catch {
    throw new Refused(0, null);
  }
}

async function contentOf(response) {
  const empty = response.status === 204;
  const json = !empty && (response.headers.get("Content-Type") ?? "").includes("json");
  const content = json ? await response.json() : null;
  if (response.ok) return content;
  if (response.status === 401 && location.pathname !== "/login") {
    sessionStorage.setItem("next", location.pathname);
    location.assign("/login");
  }
  throw new Refused(response.status, typeof content?.detail === "string" ? content.detail : null);
}
