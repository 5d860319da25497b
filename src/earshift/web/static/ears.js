// @ts-check
/* The two ears, in the order in which clinics name them. */

/** @type {readonly Ear[]} */
export const EARS = ["right", "left"];

/** What a test of both in one sitting is of; its tones have their own ear. */
export const BOTH = "both";
