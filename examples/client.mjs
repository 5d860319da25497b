// An exam from another language: this client of `earshift protocol` runs on Node.js.
//
//   node examples/client.mjs earshift protocol
//
// It screens a simulated ear, whose 4 kHz threshold fell by 30 dB, against its audiogram, and prints
// the verdict. A real client would play the tone where this one asks its simulated listener.

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const [command, ...given] = process.argv.slice(2);
const server = spawn(command, given, { stdio: ["pipe", "pipe", "inherit"] });
const answers = createInterface({ input: server.stdout })[Symbol.asyncIterator]();

// One message out, one answer back, in turn.
async function say(message) {
  server.stdin.write(JSON.stringify(message) + "\n");
  const { value, done } = await answers.next();
  if (done) throw new Error("the server has gone");
  const answer = JSON.parse(value);
  if (!answer.ok) throw new Error(answer.error);
  return answer;
}

const before = { 500: 10, 1000: 10, 2000: 10, 3000: 15, 4000: 15, 6000: 20, 8000: 20 };
const now = { ...before, 2000: 25, 3000: 40, 4000: 45, 6000: 40 };

// The nearest measured frequency will do for this listener.
function heard({ frequency_hz, level_db_hl }) {
  const octaves = (f) => Math.abs(Math.log2(f / frequency_hz));
  const nearest = Object.keys(now).reduce((a, b) => (octaves(b) < octaves(a) ? b : a));
  return level_db_hl >= now[nearest];
}

await say({
  do: "begin",
  kind: "screen",
  options: {
    rule: "osha-sts",
    reference: { kind: "audiogram", data: { thresholds_db_hl: before } },
    seed: 1,
  },
});
let { stimulus, trial, done } = await say({ do: "ask" });
while (!done) {
  ({ done } = await say({ do: "tell", heard: heard(stimulus), trial }));
  if (!done) ({ stimulus, trial } = await say({ do: "ask" }));
}
const { words, verdict } = await say({ do: "verdict", places: [2000, 3000, 4000] });
console.log(words);
for (const { frequency_hz, shift_db } of verdict.shifts) {
  console.log(`  ${frequency_hz} Hz: ${shift_db.toFixed(0)} dB`);
}
await say({ do: "quit" });
