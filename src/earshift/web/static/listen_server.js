// @ts-check
/* The listener's server. Every call is repeated until the server has answered it; the trial's number
   makes that harmless. What must not be lost with the page (a stop) is kept with it and sent again
   after a reload. */

import { Refusal } from "./refusal.js";

const RETRY_MS = [300, 600, 1200, 2500]; // the last one from then on
const PATIENCE_MS = 15000; // a server that answers later than this is asked again
const LINK_IS_OVER = [401, 403, 404, 410];

/**
 * Whether the link of this page is no longer good for anything.
 * @param {unknown} error
 */
export const linkIsOver = (error) =>
  error instanceof Refusal && LINK_IS_OVER.includes(error.status);

/**
 * @param {string} token
 * @param {(lost: boolean) => void} onConnection
 */
export function connect(token, onConnection) {
  let waiting = 0;

  /** @param {number} more */
  function wait(more) {
    waiting += more;
    onConnection(waiting > 0);
  }

  /**
   * @param {string} path
   * @param {object} [body]
   */
  async function attempt(path, body) {
    const response = await fetch(`/api/listen${path}`, {
      method: body === undefined ? "GET" : "POST",
      headers: { Authorization: `Listener ${token}`, "Content-Type": "application/json" },
      body: JSON.stringify(body),
      cache: "no-store",
      keepalive: body !== undefined,
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    if (response.status >= 500 || response.status === 429) return null;
    const answer = response.status === 204 ? null : await response.json();
    return { ok: response.ok, status: response.status, answer };
  }

  /**
   * @param {string} path
   * @param {object} [body]
   * @returns {Promise<Play>}
   */
  async function call(path, body) {
    for (let tries = 0; ; tries += 1) {
      const got = await attempt(path, body).catch(() => null);
      if (got && tries > 0) wait(-1);
      if (got?.ok) return got.answer;
      if (got) throw new Refusal(got.status, got.answer?.detail);
      if (tries === 0) wait(1);
      const pause = RETRY_MS[Math.min(tries, RETRY_MS.length - 1)];
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  /** @param {Stopped} stopped */
  async function stop(stopped) {
    history.replaceState({ stop: stopped }, "");
    try {
      return await call("/stop", stopped);
    } catch (error) {
      if (linkIsOver(error)) throw error;
      return await call(""); // nothing to stop any more: what is in force now
    } finally {
      history.replaceState(null, "");
    }
  }

  return {
    play: () => (history.state?.stop ? stop(history.state.stop) : call("")),
    /** @param {Fingerprint} found */
    ready: (found) => call("/ready", { fingerprint: found }),
    /** @param {GivenAnswer} given */
    answer: (given) => call("/answer", given),
    /** @param {Pressed} pressed */
    press: (pressed) => call("/press", pressed).catch(() => null), // a refused press is no loss
    stop,
  };
}
