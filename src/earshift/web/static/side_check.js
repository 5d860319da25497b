// @ts-check
/* Whether the headphones reach both ears, each on its own side. */

import { EARS } from "./ears.js";

const RIGHT_ANSWERS = 2; // for each ear
const OTHER_EAR_NEXT = 0.75; // the ear that still lacks right answers comes more often, not always

/**
 * Which ear comes next, how often each was told right, and which hint a wrong answer calls for. One
 * ear, not both, may be left out: that of somebody who is known to hear nothing there.
 */
export function createSideCheck(random = Math.random) {
  const told = { left: 0, right: 0 };
  /** @type {Ear} */
  let ear = "right";
  /** @type {Ear | null} */
  let leftOut = null;

  /** @param {Ear} side */
  const lacks = (side) => side !== leftOut && told[side] < RIGHT_ANSWERS;
  const progress = () => (EARS.some(lacks) ? "again" : "passed");

  function next() {
    const lacking = EARS.filter(lacks);
    const even = random() < 0.5 ? "left" : "right";
    ear = lacking.length === 1 && random() < OTHER_EAR_NEXT ? lacking[0] : even;
    return ear;
  }

  /**
   * @param {string} answered left, right, both or nothing
   * @returns {string} passed, again, or the name of a hint
   */
  function answer(answered) {
    if (answered === ear) {
      told[ear] += 1;
      return progress();
    }
    if (answered === "nothing") {
      told[ear] = 0; // and says nothing about the other ear
      return ear === leftOut ? "again" : "nothing";
    }
    told.left = 0;
    told.right = 0;
    leftOut = null;
    return answered === "both" ? "mono" : "swapped";
  }

  function leaveOut() {
    leftOut = ear;
    return progress();
  }

  return { next, answer, leaveOut, ear: () => ear, leftOut: () => leftOut };
}
