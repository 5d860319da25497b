"""A listener who sits at the page: goes through the set-up, hears what is played, and presses.

What is heard is read from the audio graph of the page itself, so the script needs no loudspeaker
and knows nothing that the headphones would not tell a person.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from playwright.sync_api import Page

EARS = """(() => {
  const ears = {
    ctx: null, side: null, peak: null, onset: null, tap: null, blocks: [], plan: [], pressed: [],
    hearing: null, stops: 0, stoppedAt: null,
  };
  window.ears = ears;
  const later = window.setTimeout.bind(window);
  const connect = AudioNode.prototype.connect;
  AudioNode.prototype.connect = function (to, output, input) {
    ears.ctx = this.context;
    if (this instanceof WaveShaperNode) ears.peak = this.curve[2];
    if (to instanceof ChannelMergerNode) ears.side = input === 0 ? "left" : "right";
    if (to === this.context.destination && ears.tap) connect.call(this, ears.tap);
    return connect.apply(this, arguments);
  };
  const start = AudioBufferSourceNode.prototype.start;
  AudioBufferSourceNode.prototype.start = function (when) {
    ears.onset = when;
    for (const { at, how } of ears.plan.shift() ?? []) pressAt(when, at, how);
    if (ears.hearing && !document.getElementById("test").hidden && hears(this.buffer)) {
      pressAt(when, this.buffer.duration + 0.1, " ");
    }
    return start.apply(this, arguments);
  };
  const stop = AudioBufferSourceNode.prototype.stop;
  AudioBufferSourceNode.prototype.stop = function () {
    ears.stops += 1;
    ears.stoppedAt = ears.ctx.currentTime;
    return stop.apply(this, arguments);
  };
  ears.now = () => ears.ctx.currentTime - (ears.ctx.outputLatency || ears.ctx.baseLatency || 0);
  // Pitch from the changes of sign in the first pulse, loudness from the limiter.
  function hears(buffer) {
    const samples = buffer.getChannelData(0);
    const pulse = Math.round(0.06 * buffer.sampleRate);
    let changes = 0;
    for (let n = 1; n < pulse; n += 1) changes += samples[n] * samples[n - 1] < 0 ? 1 : 0;
    const pitch = changes / 2 / 0.06;
    const nearest = (a, b) => (Math.abs(a[0] - pitch) < Math.abs(b[0] - pitch) ? a : b);
    return 20 * Math.log10(ears.peak) >= ears.hearing[ears.side].reduce(nearest)[1];
  }
  function pressAt(onset, at, how) {
    const wait = onset + at - ears.now();
    if (wait > 0) {
      later(pressAt, Math.max(1, wait * 1000), onset, at, how);
      return;
    }
    // A finger is in time however busy the machine is: only this script is late.
    const late = 1000 * (ears.now() - onset - at);
    const inTime = (event) =>
      Object.defineProperty(event, "timeStamp", { value: event.timeStamp - late });
    ears.pressed.push(Math.round(at * 1000));
    const bubbles = { bubbles: true, cancelable: true };
    const button = document.getElementById("heard");
    if (how === "tap") {
      const tap = { ...bubbles, isPrimary: true, button: 0 };
      button.dispatchEvent(inTime(new PointerEvent("pointerdown", tap)));
      button.dispatchEvent(inTime(new MouseEvent("click", bubbles)));
    } else if (how === "click alone") {
      button.dispatchEvent(inTime(new MouseEvent("click", bubbles)));
    } else {
      document.dispatchEvent(inTime(new KeyboardEvent("keydown", { key: how, ...bubbles })));
      document.dispatchEvent(inTime(new KeyboardEvent("keyup", { key: how, ...bubbles })));
    }
  }
  ears.record = async () => {
    await ears.ctx.audioWorklet.addModule("/recorder.js");
    ears.tap = new AudioWorkletNode(ears.ctx, "recorder");
    ears.tap.port.onmessage = ({ data }) => ears.blocks.push(data);
  };
})();"""

CHECK = """() => {
  const click = (which) => document.querySelector(which).click();
  while (!document.getElementById("sides").hidden) {
    click('[data-do="play-side"]');
    click(`[data-do="side"][data-value="${ears.side}"]`);
  }
  click('[data-do="play-volume"]');
  click('[data-do="volume"][data-value="good"]');
}"""


class ScriptedListener:
    """One person at one page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        page.add_init_script(EARS)

    def open(self, address: str) -> None:
        self.page.goto(address)

    def until(self, holds: Callable[[], object], seconds: float = 120) -> None:
        """Let the page go on until something holds."""
        give_up = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < give_up, "waited in vain"
            self.page.wait_for_timeout(25)

    def wait_for(self, condition: str) -> None:
        """Until a condition holds in the page. Playwright's own way breaks the page's policy."""
        self.until(lambda: self.page.evaluate(condition))

    def at(self, section: str) -> None:
        """Wait until this part of the page is shown."""
        self.page.wait_for_selector(f"#{section}:not([hidden])", timeout=240_000)

    def do(self, action: str, value: str | None = None) -> None:
        """Press the button of this name in the part that is shown."""
        which = f'[data-do="{action}"]' + (f'[data-value="{value}"]' if value else "")
        self.page.locator(f"{which}:visible").click()

    def tell_the_side(self) -> None:
        self.do("play-side")
        self.do("side", self.page.evaluate("ears.side"))

    def check_ears_and_volume(self) -> None:
        """Both checks, all answers right, without waiting for the tones to end."""
        self.at("sides")
        self.page.evaluate(CHECK)

    def set_up_until(self, section: str) -> None:
        """The set-up of a first test, up to this part of it."""
        steps = {
            "headphones": lambda: self.do("next"),
            "sides": self.check_ears_and_volume,
            "room": lambda: self.do("next"),
            "instruction": lambda: self.do("next"),
            "test": lambda: None,
        }
        for name, go_on in steps.items():
            self.at(name)
            if name == section:
                return
            go_on()

    def set_up(self) -> None:
        """The whole set-up, up to the first tone."""
        self.set_up_until("test")

    def set_up_desk(self) -> None:
        """The set-up at the examiner's desk, up to its first tone."""
        self.at("headphones")
        self.do("next")
        self.check_ears_and_volume()
        self.at("desk")

    def set_up_to_plan(self, *presentations: list[tuple[float, str]], record: bool = False) -> None:
        """The whole set-up, and `plan` for the tones from the first on."""
        self.set_up_until("instruction")
        if record:
            self.page.evaluate("ears.record()")
        self.plan(*presentations)
        self.do("next")
        self.at("test")

    def check_again(self) -> None:
        """The short set-up after a pause."""
        self.check_ears_and_volume()
        self.at("again")
        self.do("next")
        self.at("test")

    def hear(self, hearing: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        """From now on press for what these ears hear: pairs of Hz and softest dBFS for each."""
        self.page.evaluate("hearing => { ears.hearing = hearing; }", hearing)

    def plan(self, *presentations: list[tuple[float, str]]) -> None:
        """For each coming presentation: at which seconds after its onset to press, and how."""
        plan: list[list[dict[str, Any]]] = [
            [{"at": at, "how": how} for at, how in presses] for presses in presentations
        ]
        self.page.evaluate("plan => { ears.plan = plan; ears.pressed = []; }", plan)
