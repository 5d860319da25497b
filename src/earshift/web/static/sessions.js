// @ts-check
/* Sessions as rows of a table: where, since when, last used, and what can be done. */

import { localTime } from "./format.js";

/** @import { Child } from "./dom.js" */

/**
 * @param {ShownSession[]} sessions
 * @param {(session: ShownSession) => Child} action
 * @returns {Promise<Child[][]>}
 */
export const sessionRows = (sessions, action) =>
  Promise.all(sessions.map(async (session) => [
    [session.browser, session.address].filter(Boolean).join(", "),
    await localTime(session.began),
    await localTime(session.seen),
    action(session),
  ]));
