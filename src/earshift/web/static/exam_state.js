// @ts-check
/* All that the page of one exam knows: what the server says, and what this browser has played. */

import { at, get, getIfChanged } from "./api.js";

/** @import { playOnce } from "./player.js" */

const ENDED = ["done", "abandoned"];

export class ExamState {
  /** Whether this page has checked the headphones; trouble takes it back. */
  checked = false;
  /** Whether something is being sent; no look at the server meanwhile. */
  busy = false;
  /** What is heard now. @type {ReturnType<typeof playOnce> | null} */
  sounding = null;
  /** The trial that was played last. @type {number | null} */
  played = null;
  /** What the last answer has shown to be wrong. @type {string | null} */
  problem = null;

  /** @type {Exam | null} */
  #exam = null;
  /** @type {Live | null} */
  #live = null;
  /** @type {string | null} */
  #tag = null;
  #looks = 0;
  #onChange;

  /**
   * @param {string} id
   * @param {() => void} onChange called when there is something new to show
   */
  constructor(id, onChange) {
    this.names = { exam: id };
    this.#onChange = onChange;
  }

  /** The exam; asked for only once it was looked at. */
  get exam() {
    if (this.#exam === null) throw new Error("the exam was not looked at yet");
    return this.#exam;
  }

  get live() {
    return this.#live;
  }

  get ended() {
    return this.#exam !== null && ENDED.includes(this.#exam.state);
  }

  get presentation() {
    return this.exam.play?.presentation ?? null;
  }

  /** Whether the examiner plays the tones on an audiometer. */
  get byHand() {
    return this.exam.play?.sound.kind === "external";
  }

  get #examinerAnswers() {
    return this.exam.answered_by === "examiner" && !this.ended;
  }

  get needsSetUp() {
    return this.#examinerAnswers && !this.byHand && !this.checked;
  }

  get atDesk() {
    return this.#examinerAnswers && this.exam.can.includes("answer") && !this.needsSetUp;
  }

  get mayAnswer() {
    const tone = this.presentation;
    return this.atDesk && tone !== null && (this.byHand || this.played === tone.trial);
  }

  /** Look at the exam, and show it where it has changed. */
  async look() {
    this.#looks += 1;
    const mine = this.#looks; // what was asked earlier and comes later is no longer true
    const view = at("/api/exams/{exam}/live", this.names);
    let answer = await getIfChanged(view, this.#tag);
    if (mine !== this.#looks || (answer.content === null && this.#exam !== null)) return;
    const exam = await get(at("/api/exams/{exam}", this.names));
    // It may have ended between the two answers: a verdict "in progress" would stand beside what
    // follows from the end.
    const behind = answer.content !== null && !ENDED.includes(answer.content.state);
    if (ENDED.includes(exam.state) && behind) answer = await getIfChanged(view, null);
    if (mine !== this.#looks) return;
    this.#tag = answer.tag;
    this.#live = answer.content ?? this.#live;
    this.#exam = exam;
    this.show();
  }

  /** Look again after something was done: a look that is under way does not know of it. */
  async lookAnew() {
    this.#tag = null;
    await this.look();
  }

  /** What a look that is under way will say is no longer true. */
  dropLooks() {
    this.#looks += 1;
  }

  show() {
    if (this.exam.play?.state !== "play") this.uncheck();
    this.#onChange();
  }

  /** Silent, and no tone before the headphones were checked again. */
  uncheck() {
    this.checked = false;
    this.played = null;
    this.sounding?.silence();
  }
}
