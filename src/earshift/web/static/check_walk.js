// @ts-check
/* The answers of a daily check that is under way, kept in this window until they are stored. */

/**
 * @typedef {{ listener: string, anew: boolean, heard: boolean[], conditions: string | null }} Walk
 *   `conditions` are those that it began under, in the server's words
 */

/** @param {string} device */
export function walkMemory(device) {
  const key = `daily check ${device}`;
  return {
    /** @param {Walk | null} walk */
    keep(walk) {
      if (walk) sessionStorage.setItem(key, JSON.stringify(walk));
      else sessionStorage.removeItem(key);
    },
    /** @returns {Walk | null} */
    kept() {
      const found = sessionStorage.getItem(key);
      return found === null ? null : JSON.parse(found);
    },
  };
}
