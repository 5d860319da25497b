// @ts-check
/* What a server that was asked answers when it refuses; status 0 means that it did not answer. */

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
