// @ts-check
/* The two ears, in the order in which clinics name them. */

/** @type {readonly Ear[]} */
export const EARS = ["right", "left"];
