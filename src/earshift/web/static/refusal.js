// @ts-check
/* What a server that was asked answers when it refuses; status 0 means that it did not answer. */

/**
 * Whether the server was not reached: by nobody, or only as far as a proxy in front of it.
 * @param {unknown} error
 */
export const isLost = (error) =>
  error instanceof Refusal && (error.status === 0 || [502, 503, 504].includes(error.status));

/**
 * Whether a refusal asks for something more, which its code names.
 * @param {unknown} error
 * @param {string[]} codes
 * @returns {error is Refusal}
 */
export const asksFor = (error, ...codes) => error instanceof Refusal && codes.includes(error.code);

export class Refusal extends Error {
  /**
   * @param {number} status
   * @param {string} [sentence] the server's own, where it gave one
   * @param {string} [code] what a page can do about it
   */
  constructor(status, sentence = "", code = "") {
    super(sentence);
    this.status = status;
    this.code = code;
  }
}
