// @ts-check
/* What a server that was asked answers when it refuses; status 0 means that it did not answer. */

/**
 * Whether the server was not reached: by nobody, or only as far as a proxy in front of it.
 * @param {unknown} error
 */
export const isLost = (error) =>
  error instanceof Refusal && (error.status === 0 || [502, 503, 504].includes(error.status));

export class Refusal extends Error {
  /**
   * @param {number} status
   * @param {string} [sentence] the server's own, where it gave one
   */
  constructor(status, sentence = "") {
    super(sentence);
    this.status = status;
  }
}
