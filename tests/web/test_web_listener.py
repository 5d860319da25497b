"""The listener's page in a real browser: what it takes as an answer, and what makes it silent."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from earshift.records import ExamRecord
from earshift.web import views
from support.browser import served
from support.fake_listener import FAST, RELATIVE, FakeExam, fake_app, tone
from support.house import QUICK, House, open_house
from support.scripted_listener import ScriptedListener

Room = Callable[[FakeExam], ScriptedListener]
LONG_WINDOW = {**FAST, "window_closes_ms": 1500}
LONG_TONE = {**FAST, "pulses": 1, "pulse_ms": 8000}


@pytest.fixture(scope="module")
def clinic() -> Iterator[tuple[str, dict[str, FakeExam]]]:
    exams: dict[str, FakeExam] = {}
    with served(fake_app(exams)) as address:
        yield address, exams


@pytest.fixture
def room(page: Page, clinic: tuple[str, dict[str, FakeExam]]) -> Room:
    """Seats a listener at the page of an exam."""
    address, exams = clinic

    def seat(exam: FakeExam) -> ScriptedListener:
        token = f"token-{len(exams)}"
        exams[token] = exam
        listener = ScriptedListener(page)
        listener.open(f"{address}/listen#{token}")
        return listener

    return seat


# Answers ------------------------------------------------------------------------------------------


def test_every_way_to_answer_counts_once(room: Room) -> None:
    ways = [" ", "Enter", "tap", "click alone"]
    exam = FakeExam([tone(gap_ms=1000) for _ in ways], timing=LONG_WINDOW)
    listener = room(exam)
    listener.set_up_to_plan(*([(0.3, how)] for how in ways))
    listener.at("over")
    answers = exam.told("answer")
    assert [(answer["trial"], answer["heard"]) for answer in answers] == [
        (number, True) for number in range(1, len(ways) + 1)
    ]
    pressed = listener.page.evaluate("ears.pressed")
    assert [answer["reaction_ms"] for answer in answers] == pytest.approx(pressed, abs=50)
    assert exam.told("press") == []


def test_nothing_pressed_is_not_heard(room: Room) -> None:
    exam = FakeExam([tone(), tone(None)])
    listener = room(exam)
    listener.set_up()
    listener.at("over")
    assert exam.told("answer") == [
        {"trial": 1, "heard": False, "reaction_ms": None},
        {"trial": 2, "heard": False, "reaction_ms": None},
    ]


def test_presses_outside_the_window_are_told_and_do_not_answer(room: Room) -> None:
    # The window: from 0.3 s after the onset to 0.5 s after the pulses, which last 0.16 s.
    timing = {**FAST, "window_opens_ms": 300}
    exam = FakeExam([tone(gap_ms=800), tone(gap_ms=2000), tone()], timing=timing)
    listener = room(exam)
    listener.set_up_to_plan([(-0.4, "tap"), (0.02, " "), (1.9, "tap")], [], [])
    listener.at("over")
    assert [answer["heard"] for answer in exam.told("answer")] == [False, False, False]
    presses = exam.told("press")
    assert [press["trial"] for press in presses] == [1, 1, 2]
    assert -800 < presses[0]["after_onset_ms"] < 0 <= presses[1]["after_onset_ms"] < 300
    assert presses[2]["after_onset_ms"] < 0  # it came in the gap before the second tone


def test_one_press_a_window_counts_and_a_double_tap_is_one_answer(room: Room) -> None:
    exam = FakeExam([tone(), tone(gap_ms=1500)], timing=LONG_WINDOW)
    listener = room(exam)
    listener.set_up_to_plan([(0.2, "tap"), (0.3, "tap"), (0.4, " "), (1.2, " ")], [])
    listener.until(lambda: len(exam.told("press")) == 1)
    listener.at("over")
    assert [answer["heard"] for answer in exam.told("answer")] == [True, False]
    (late,) = exam.told("press")  # the one a second later is a press of its own
    assert late["trial"] == 2


def test_a_held_key_is_one_press(room: Room) -> None:
    exam = FakeExam([tone(), tone()], timing={**LONG_WINDOW, "window_closes_ms": 1000})
    listener = room(exam)
    listener.set_up()
    listener.wait_for("ears.now() > ears.onset + 0.15")
    for _ in range(40):  # the browser repeats a key that is held down
        listener.page.keyboard.down(" ")
        listener.page.wait_for_timeout(50)
    listener.page.keyboard.up(" ")
    listener.at("over")
    assert [answer["heard"] for answer in exam.told("answer")] == [True, False]
    assert exam.told("press") == []


def test_the_keys_of_other_buttons_are_not_answers(room: Room) -> None:
    exam = FakeExam([tone()], timing=LONG_TONE)
    listener = room(exam)
    listener.set_up()
    listener.page.locator('[data-do="pause"]').focus()
    listener.page.keyboard.press("Enter")
    listener.at("paused")
    listener.until(lambda: exam.told("stop"))
    assert exam.told("stop") == [{"trial": 1, "reason": "pause"}]
    assert exam.told("answer") == exam.told("press") == []


# Silence ------------------------------------------------------------------------------------------

HIDE = """() => {
  Object.defineProperty(document, "hidden", { value: true, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
SHOW = 'Object.defineProperty(document, "hidden", { value: false, configurable: true })'
TROUBLE = {
    "panic": 'document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }))',
    "pause": """document.querySelector('[data-do="pause"]').click()""",
    "hidden": f"({HIDE})()",
    "device": 'navigator.mediaDevices.dispatchEvent(new Event("devicechange"))',
}


@pytest.mark.parametrize("reason", ["panic", "pause", "hidden", "device"])
def test_trouble_is_silent_at_once_without_the_network(room: Room, reason: str) -> None:
    exam = FakeExam([tone(60.0)], timing=LONG_TONE)
    listener = room(exam)
    page = listener.page
    listener.set_up_to_plan(record=True)
    listener.wait_for("ears.blocks.some(({ loudest }) => loudest > 0.9 * ears.peak)")
    page.context.set_offline(True)
    stopped_at = page.evaluate(
        f"() => {{ ears.stoppedAt = null; {TROUBLE[reason]}; return ears.stoppedAt; }}"
    )
    assert stopped_at is not None  # in the very task of the trouble
    listener.at("paused")  # it does not wait for the server either
    listener.wait_for(f"ears.blocks.at(-1).time > {stopped_at} + 0.5")
    blocks = page.evaluate("ears.blocks")
    block_s = 128 / page.evaluate("ears.ctx.sampleRate")
    silent_from = max(b["time"] + block_s for b in blocks if b["loudest"] > 0)
    assert silent_from - stopped_at <= 0.05
    assert exam.told("stop") == []
    page.context.set_offline(False)
    listener.until(lambda: exam.told("stop"))
    assert exam.told("stop")[0] == {"trial": 1, "reason": reason}
    page.evaluate(SHOW)
    listener.do("resume")
    listener.check_again()  # left, right and volume, then the same tone
    assert exam.told("answer") == []
    assert exam.play()["presentation"]["trial"] == 1


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("interrupted", "ears.ctx.suspend()"),
        ("hidden", 'window.dispatchEvent(new Event("pagehide"))'),
    ],
)
def test_what_takes_the_sound_away_stops_the_test(room: Room, reason: str, cause: str) -> None:
    exam = FakeExam([tone(60.0)], timing=LONG_TONE)
    listener = room(exam)
    listener.set_up()
    listener.wait_for("ears.now() > ears.onset + 0.2")
    listener.page.evaluate(cause)
    listener.at("paused")
    listener.until(lambda: exam.told("stop"))
    assert exam.told("stop") == [{"trial": 1, "reason": reason}]
    listener.do("resume")
    listener.check_again()
    assert listener.page.evaluate("ears.ctx.state") == "running"


def test_leaving_the_page_stops_the_test(room: Room) -> None:
    exam = FakeExam([tone(60.0)], timing=LONG_TONE)
    listener = room(exam)
    listener.set_up()
    listener.page.goto("about:blank")
    listener.until(lambda: exam.told("stop"))
    assert exam.told("stop") == [{"trial": 1, "reason": "hidden"}]


def test_a_tone_above_the_limits_is_not_played(room: Room) -> None:
    exam = FakeExam([{**tone(), "level": 75, "dbfs": -15}], timing=LONG_TONE)
    listener = room(exam)
    listener.set_up_until("instruction")
    listener.page.evaluate("ears.onset = null")
    listener.do("next")
    listener.at("problem")
    assert "exceeds the limit of 70 relative dB" in listener.page.inner_text("#problem-detail")
    assert exam.told("stop") == [{"trial": 1, "reason": "error"}]
    assert listener.page.evaluate("ears.onset") is None


def test_an_exam_that_the_examiner_pauses_is_checked_again(room: Room) -> None:
    exam = FakeExam([tone(), tone()], timing=LONG_WINDOW)
    listener = room(exam)
    listener.set_up()
    exam.ready = False
    listener.at("sides")
    listener.page.keyboard.press("Escape")  # there is nothing to stop here
    listener.check_again()
    listener.at("over")
    assert exam.told("stop") == []
    assert [answer["trial"] for answer in exam.told("answer")] == [1, 1, 2]


def test_a_pause_by_the_examiner_waits_for_the_examiner(room: Room) -> None:
    exam = FakeExam([tone(), tone()], timing=LONG_WINDOW)
    listener = room(exam)
    listener.set_up()
    exam.ready, exam.held = False, True
    listener.at("held")
    assert "Your examiner has paused it." in listener.page.inner_text("#held")
    assert listener.page.locator("#held button").count() == 0
    exam.held = False
    listener.at("sides")
    listener.check_again()
    listener.at("over")


# Set-up -------------------------------------------------------------------------------------------


def test_the_side_must_be_told_right_twice_for_each_ear(room: Room) -> None:
    listener = room(FakeExam([tone()]))
    page = listener.page
    listener.at("headphones")
    assert "Model 200" in page.inner_text("#headphones")
    listener.do("next")
    listener.at("sides")
    listener.do("side", "left")  # nothing was played yet
    assert "play the tone first" in page.inner_text("#sides-hint")
    listener.tell_the_side()
    for said, hint in (("wrong", "other ear"), ("both", "mono"), ("nothing", "louder")):
        listener.do("play-side")
        side = page.evaluate("ears.side")
        other = {"left": "right", "right": "left"}[side]
        listener.do("side", other if said == "wrong" else said)
        assert hint in page.inner_text("#sides-hint")
    right = {"left": 0, "right": 0}
    while page.locator("#sides").is_visible():
        assert min(right.values()) < 2
        listener.tell_the_side()
        right[page.evaluate("ears.side")] += 1
    assert min(right.values()) == 2
    assert "8 of 16 bars" in page.inner_text("#volume")
    listener.do("volume", "good")  # no tone yet
    assert "play the tone first" in page.inner_text("#volume-hint")


def hear_nothing(listener: ScriptedListener, deaf: str) -> list[float]:
    """Answer rightly for somebody with one deaf ear until a way on without it is offered.

    Gives the peaks of the tones that the deaf ear got.
    """
    peaks = []
    while not listener.page.locator("#unheard").is_visible():
        listener.do("play-side")
        side = listener.page.evaluate("ears.side")
        if side == deaf:
            peaks.append(listener.page.evaluate("ears.peak"))
        listener.do("side", "nothing" if side == deaf else side)
    return peaks


def at_the_sides(listener: ScriptedListener) -> None:
    listener.at("headphones")
    listener.do("next")
    listener.at("sides")


def test_a_check_tone_grows_only_in_the_ear_that_heard_nothing(room: Room) -> None:
    listener = room(FakeExam([tone()]))
    at_the_sides(listener)
    level = {"left": 0, "right": 0}
    for _ in range(12):
        listener.do("play-side")
        side = listener.page.evaluate("ears.side")
        peak = listener.page.evaluate("ears.peak")
        assert peak == pytest.approx(10 ** ((level[side] - 90) / 20))  # from the floor, by 5 dB
        listener.do("side", "nothing")
        level[side] += 5


CALIBRATED = {
    **RELATIVE,
    "kind": "calibrated",
    "unit": "dB HL",
    "table": {ear: [[500, 10, 100], [8000, 10, 100]] for ear in ("right", "left")},
    "zero_dbfs": None,
    "highest_dbfs": -1,
    "cap_db": 80,
    "cap_db_spl": 95,
}


@pytest.mark.parametrize(
    ("sound", "levels"),
    [
        (RELATIVE, range(-90, -29, 5)),  # to well below the limit of the player
        (CALIBRATED, range(-50, -19, 10)),  # 40 to 70 dB HL
        ({**CALIBRATED, "cap_db_spl": 65}, (-50, -40, -35)),  # never above the sound's own limit
    ],
)
@pytest.mark.parametrize("deaf", ["left", "right"])
def test_one_deaf_ear_neither_blocks_nor_makes_the_other_one_loud(
    room: Room, sound: dict[str, Any], levels: Sequence[int], deaf: str
) -> None:
    exam = FakeExam([tone()], sound=sound)
    listener = room(exam)
    page = listener.page
    at_the_sides(listener)
    assert hear_nothing(listener, deaf) == pytest.approx([10 ** (dbfs / 20) for dbfs in levels])
    assert "tell your examiner" in page.inner_text("#sides-hint")
    listener.do("unheard")
    assert page.locator("#volume").is_visible() or "not passed" in page.inner_text("#sides-hint")
    while page.locator("#sides").is_visible():
        listener.do("play-side")
        side = page.evaluate("ears.side")
        listener.do("side", "nothing" if side == deaf else side)
    assert "has not passed" in page.inner_text("#volume")
    assert "tell your examiner" in page.inner_text("#volume")
    listener.do("play-volume")
    assert page.evaluate("ears.side") != deaf
    assert page.evaluate("ears.peak") == pytest.approx(10 ** (levels[0] / 20))
    listener.do("volume", "good")
    listener.at("room")


def test_who_hears_nothing_at_all_does_not_get_on(room: Room) -> None:
    listener = room(FakeExam([tone()], sound=CALIBRATED))
    at_the_sides(listener)
    offered = 0
    for _ in range(30):
        listener.do("play-side")
        listener.do("side", "nothing")
        if listener.page.locator("#unheard").is_visible():
            offered += 1
            listener.do("unheard")
    assert offered == 1
    assert listener.page.locator("#sides").is_visible()


SIDE_CHECK = """async (steps) => {
  const { createSideCheck } = await import("/static/side_check.js");
  let chances = [];
  const check = createSideCheck(() => chances.shift());
  return steps.map(([ear, said]) => {
    if (said === "leave out") return check.leaveOut();
    chances = [ear === "left" ? 0 : 0.9, 0.9]; // the ear by lot, not the one that still lacks
    check.next();
    return check.answer(said);
  });
}"""
DEAF = [("right", "nothing"), ("right", "leave out")]


@pytest.mark.parametrize(
    ("steps", "outcomes"),
    [
        (
            [("left", "left"), ("right", "nothing"), ("left", "left"), *[("right", "right")] * 2],
            ["again", "nothing", "again", "again", "passed"],  # the left ear's answers count on
        ),
        (
            [*DEAF, ("left", "left"), ("right", "nothing"), ("left", "left")],
            ["nothing", "again", "again", "again", "passed"],
        ),
        (
            [*DEAF, ("left", "right"), ("left", "left"), ("left", "left")],
            ["nothing", "again", "swapped", "again", "again"],  # and the right ear lacks again
        ),
        (
            [("left", "left"), *DEAF, ("left", "both"), *[("left", "left")] * 2],
            ["again", "nothing", "again", "mono", "again", "again"],
        ),
    ],
)
def test_an_ear_left_out_excuses_no_wrong_side(
    room: Room, steps: list[tuple[str, str]], outcomes: list[str]
) -> None:
    listener = room(FakeExam([tone()]))
    assert listener.page.evaluate(SIDE_CHECK, steps) == outcomes


def test_on_another_device_no_tone_is_played(room: Room) -> None:
    planned = {**RELATIVE["fingerprint"], "installation": "of another tablet"}
    exam = FakeExam([tone()], sound={**RELATIVE, "fingerprint": planned})
    listener = room(exam)
    listener.at("another")
    assert "another device" in listener.page.inner_text("#another")
    listener.page.evaluate('localStorage.setItem("installation", "of another tablet")')
    listener.page.reload()
    listener.set_up()
    (ready,) = exam.told("ready")
    assert ready["fingerprint"]["installation"] == "of another tablet"


def test_a_device_without_a_number_is_known_by_the_rest(room: Room) -> None:
    exam = FakeExam([tone()])
    listener = room(exam)
    listener.page.evaluate("import('/static/browser_device.js').then((of) => of.becomeDevice())")
    listener.set_up()
    assert "installation" not in exam.told("ready")[0]["fingerprint"]


def test_a_browser_keeps_its_number(room: Room) -> None:
    page = room(FakeExam([tone()])).page
    look = """async () => {
      const device = await import("/static/browser_device.js");
      const before = device.fingerprint().installation;
      device.becomeDevice();
      return [before, device.fingerprint().installation];
    }"""
    before, first = page.evaluate(look)
    assert before is None
    assert page.evaluate(look) == [first, first]


def test_what_must_be_mended_stands_in_the_set_up(room: Room) -> None:
    exam = FakeExam([tone(), tone()], problem="Turn the volume down.")
    listener = room(exam)
    listener.at("headphones")
    assert listener.page.inner_text("#to-fix") == "Turn the volume down."
    listener.set_up_until("instruction")
    assert listener.page.inner_text("#to-fix") == "Turn the volume down."
    listener.do("next")
    listener.at("test")
    assert listener.page.locator("#to-fix").is_hidden()


def test_trouble_in_the_set_up_checks_the_ears_again(room: Room) -> None:
    listener = room(FakeExam([tone()]))
    listener.set_up_until("room")
    listener.page.evaluate(TROUBLE["device"])
    listener.at("sides")


def test_trouble_between_set_up_and_first_tone_is_not_forgotten(room: Room) -> None:
    exam = FakeExam([tone()])
    listener = room(exam)
    listener.set_up_until("instruction")
    listener.page.evaluate("ears.onset = null")
    listener.page.context.set_offline(True)  # so the server learns late that all was checked
    listener.do("next")
    listener.page.evaluate(TROUBLE["device"])
    listener.page.context.set_offline(False)
    listener.at("paused")
    listener.until(lambda: exam.told("stop"))
    assert exam.told("stop") == [{"trial": None, "reason": "device"}]
    assert listener.page.evaluate("ears.onset") is None
    listener.do("resume")
    listener.check_again()


def test_the_device_is_told_when_the_listener_is_ready(room: Room) -> None:
    exam = FakeExam([tone()])
    listener = room(exam)
    listener.set_up()
    (ready,) = exam.told("ready")
    assert ready["fingerprint"] == {
        "browser": "Chrome",
        "system": "Linux",
        "sample_rate": listener.page.evaluate("ears.ctx.sampleRate"),
        "channels": 2,
        "earphones": "Model 200",
        "connection": "wired",
        "volume": "8 of 16 bars",
    }


# The network --------------------------------------------------------------------------------------


def test_an_answer_is_sent_until_it_is_acknowledged(room: Room) -> None:
    exam = FakeExam([tone(), tone()])
    listener = room(exam)
    lost = []

    def lose_the_reply(route: Route) -> None:
        if len(lost) < 2:
            lost.append(route.fetch())  # the server got it, the page does not learn of it
            route.abort()
        else:
            route.continue_()

    listener.page.route("**/api/listen/answer", lose_the_reply)
    listener.set_up()
    listener.at("over")
    assert [answer["trial"] for answer in exam.told("answer")] == [1, 1, 1, 2]
    assert exam.answered == 2


def test_a_server_that_is_gone_and_comes_back(room: Room) -> None:
    exam = FakeExam([tone(gap_ms=3000), tone()])
    listener = room(exam)
    listener.set_up()
    listener.page.context.set_offline(True)
    listener.until(lambda: listener.page.inner_text("#connection"))
    assert "keep this page open" in listener.page.inner_text("#connection")
    assert exam.told("answer") == []
    listener.page.context.set_offline(False)
    listener.at("over")
    assert [answer["trial"] for answer in exam.told("answer")] == [1, 2]
    assert listener.page.inner_text("#connection") == ""


def test_a_reload_goes_on_at_the_same_tone(room: Room) -> None:
    exam = FakeExam([tone(), tone(gap_ms=3000), tone()])
    listener = room(exam)
    listener.set_up()
    listener.wait_for("document.getElementById('progress').value === 1")  # the page knows it, too
    listener.page.reload()
    listener.check_again()
    assert exam.told("stop") == [{"trial": 2, "reason": "hidden"}]
    listener.at("over")
    assert [answer["trial"] for answer in exam.told("answer")] == [1, 2, 3]


def test_a_stop_that_was_not_sent_is_sent_after_a_reload(room: Room) -> None:
    exam = FakeExam([tone()], timing=LONG_TONE)
    listener = room(exam)
    listener.page.route("**/api/listen/stop", lambda route: route.abort())
    listener.set_up()
    listener.page.keyboard.press("Escape")
    listener.at("paused")
    assert exam.told("stop") == []
    listener.page.unroute("**/api/listen/stop")
    listener.page.reload()
    listener.at("headphones")
    assert {"trial": 1, "reason": "panic"} in exam.told("stop")


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_link_that_is_over_says_so(room: Room, page: Page, status: int) -> None:
    page.route("**/api/listen", lambda route: route.fulfill(status=status, json={"detail": "no"}))
    listener = room(FakeExam([tone()]))
    listener.at("ended")


def test_what_the_server_refuses_is_shown_in_its_words(room: Room) -> None:
    exam = FakeExam([tone()])
    listener = room(exam)
    refusal = {"detail": "Turn the volume down."}
    listener.page.route(
        "**/api/listen/answer", lambda route: route.fulfill(status=409, json=refusal)
    )
    listener.set_up()
    listener.at("problem")
    assert "Turn the volume down." in listener.page.inner_text("#problem")
    listener.do("retry")
    listener.at("sides")


# Giving nothing away ------------------------------------------------------------------------------

TRACED = ("page", "timer", "request", "sound")
TRACE = """() => {
  window.trace = [];
  const note = (...what) => window.trace.push(what.join(" "));
  new MutationObserver((changes) => {
    for (const { type, target, attributeName } of changes) {
      const place = target.id || target.parentElement?.id || target.className || target.tagName;
      note("page", type, place, attributeName ?? "");
    }
  }).observe(document, { subtree: true, attributes: true, childList: true, characterData: true });
  const { setTimeout: timer, fetch: ask } = window;
  window.setTimeout = (call, ...rest) => (note("timer", call.name), timer(call, ...rest));
  window.fetch = (path, options) => {
    const body = JSON.parse(options.body);
    const shape = Object.entries(body).map(([key, value]) => `${key}:${typeof value}`);
    note("request", options.method, path, ...shape);
    return ask(path, options);
  };
  for (const name of ["AudioBuffer", "AudioBufferSourceNode", "GainNode", "WaveShaperNode",
                      "ChannelMergerNode"]) {
    const Made = window[name];
    window[name] = class extends Made {
      constructor(...given) {
        super(...given);
        note("sound", name, this.length ?? "", this.numberOfInputs ?? "");
      }
    };
  }
  const start = AudioBufferSourceNode.prototype.start;
  AudioBufferSourceNode.prototype.start = function (when) {
    note("sound starts after", Math.round((when - this.context.currentTime) * 10));
    return start.call(this, when);
  };
}"""


def told_apart_by(trial: list[str]) -> dict[str, list[str]]:
    """What of a trial an onlooker, a program or the network could see, each in its own order.

    A timer may be set once more or less, as the audio clock runs, and what it does to the page come
    before or after what the server's reply does; that is chance, not content.
    """
    seen = {kind: [line for line in trial if line.startswith(kind)] for kind in TRACED}
    return {**seen, "timer": sorted(set(seen["timer"])), "page": sorted(seen["page"])}


@pytest.mark.parametrize("presses", [[], [(0.3, " ")], [(-0.1, "tap")]])
def test_tone_and_silence_leave_the_same_trace(
    room: Room, presses: list[tuple[float, str]]
) -> None:
    order = [30.0, None, 60.0, None, 10.0]
    timing = {**FAST, "window_closes_ms": 800}
    exam = FakeExam([tone(level, gap_ms=300) for level in order], timing=timing)
    listener = room(exam)
    listener.set_up_until("instruction")
    listener.page.evaluate(TRACE)
    listener.plan(*[presses] * len(order))
    listener.do("next")
    listener.at("over")
    trials: list[list[str]] = [[]]
    for line in listener.page.evaluate("trace"):
        trials[-1].append(line)
        if line.startswith("request POST /api/listen/answer"):
            trials.append([])
    assert len(trials) == len(order) + 1
    first, *others = [told_apart_by(trial) for trial in trials[1 : len(order)]]
    assert all(first.values()), first
    assert others == [first] * len(others)


def test_the_page_of_a_tone_and_of_silence_are_the_same(room: Room) -> None:
    exam = FakeExam([tone(30.0), tone(None)], timing={**LONG_WINDOW, "window_closes_ms": 5000})
    listener = room(exam)
    listener.set_up()
    shown = []
    for _ in range(2):
        listener.wait_for("ears.now() > ears.onset + 0.2")
        shown.append(
            re.sub(r"\d+ of|value=\"\d+\"", "", listener.page.locator("body").inner_html())
        )
        shown.append(listener.page.locator("#test").aria_snapshot())
        listener.page.evaluate("ears.onset = Infinity")
        listener.page.keyboard.press(" ")
    assert shown[0] == shown[2]
    assert shown[1].replace("0 of", "1 of") == shown[3]


def released_verdict() -> dict[str, Any]:
    """A stored result as the listener is told of it."""
    levels = [
        {"frequency_hz": f, "level_db_hl": 20.0, "low_db_hl": 12.0, "high_db_hl": 28.0,
         "censored": None}
        for f in (1000.0, 2000.0, 4000.0)
    ]  # fmt: skip
    shown = {
        "verdict": {"decision": "unchanged", "p_changed": 0.003, "rule": "osha-sts"},
        "words": "All of it.",
        "thresholds": levels,
        "reference_thresholds": levels,
        "tested_hz": [2000.0, 4000.0],
        "reference_tested_hz": [1000.0, 2000.0, 4000.0],
    }
    exam = ExamRecord(1, 1, "right", "screen", "done", {}, "0")
    return views.released(exam, shown).model_dump()


def test_the_end_shows_a_verdict_only_when_it_was_released(room: Room) -> None:
    exam = FakeExam([])
    listener = room(exam)
    listener.at("over")
    assert "Your examiner will tell you the result" in listener.page.inner_text("#over")
    exam.released = [released_verdict()]
    expect(listener.page.locator("#released")).to_be_visible()  # by itself
    text = listener.page.inner_text("#over")
    assert "Your right ear hears as before" in text
    assert "About 1 in 300 such ears is called wrongly." in text
    assert "Come to your next regular test." in text
    assert "see a doctor today" in text
    assert "Your examiner will tell" not in text
    # A circle where tones were given and on the earlier test, line and band elsewhere.
    assert listener.page.locator("#over .audiogram .now circle").count() == 2 + 1
    assert listener.page.locator("#over .audiogram .reference circle").count() == 3 + 1


# Whole tests on the real app ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def house(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with open_house(browser, tmp_path_factory.mktemp("house")) as opened:
        yield opened


@pytest.mark.parametrize(("worse_db", "decision"), [(0.0, "unchanged"), (30.0, "changed")])
def test_a_whole_screen_from_set_up_to_verdict(
    house: House, page: Page, worse_db: float, decision: str
) -> None:
    test = house.invite(f"whole {decision}", practice=True)
    listener = house.seat(page, test)
    listener.set_up_until("instruction")
    listener.hear(house.hearing(worse_db))
    listener.do("next")
    listener.at("over")
    assert house.decisions(test) == {"right": decision}
    assert "Secret" not in page.content()
    assert "Your examiner will tell you" in page.inner_text("#over")
    house.clinic.post(f"/api/visits/{test['visit']}/release", {"released": True})
    page.reload()
    listener.at("over")
    assert "Your examiner will tell you" not in page.inner_text("#over")
    assert "Right ear" in page.inner_text("#released")


def test_both_ears_with_a_reload_and_a_panic_in_the_middle(house: House, page: Page) -> None:
    slow = {**QUICK, "gap_min_ms": 1200, "gap_max_ms": 1200}
    test = house.invite("both", ears=("right", "left"), timing=slow)
    first, second = (f"/api/exams/{exam['id']}/live" for exam in test["exams"])
    listener = house.seat(page, test)
    listener.set_up_until("instruction")
    listener.hear(house.hearing())
    listener.do("next")
    listener.until(lambda: house.clinic.get(first)["tones"] >= 1)
    # At once, in the page itself: a moment later the tone would be over.
    listener.wait_for(
        "ears.onset > ears.now() + 0.2 && (setTimeout(() => location.reload()), true)"
    )
    listener.at("sides")
    listener.hear(house.hearing())
    listener.check_again()
    listener.at("done")
    listener.do("retry")
    listener.check_again()
    page.keyboard.press("Escape")
    listener.at("paused")
    listener.do("resume")
    listener.check_again()
    listener.at("over")
    assert house.decisions(test) == {"right": "unchanged", "left": "unchanged"}
    trials = [house.clinic.get(path)["trials"] for path in (first, second)]
    for given in trials:
        assert [trial["number"] for trial in given] == list(range(1, len(given) + 1))
        assert sum(trial["void"] for trial in given) == 1


def test_two_people_at_once(house: House, browser: Browser) -> None:
    expected = {"one": (0.0, "unchanged"), "two": (30.0, "changed")}
    seats = {}
    for code, (worse_db, _) in expected.items():
        test = house.invite(code)
        listener = house.seat(browser.new_context().new_page(), test)
        listener.set_up_until("instruction")
        listener.hear(house.hearing(worse_db))
        seats[code] = test, listener
    for _, listener in seats.values():
        listener.do("next")
    for code, (test, listener) in seats.items():
        listener.at("over")
        listener.page.context.close()
        assert house.decisions(test) == {"right": expected[code][1]}


def test_at_real_speed(house: House, page: Page) -> None:
    test = house.invite("real speed", timing=None)
    listener = house.seat(page, test)
    listener.set_up_until("instruction")
    listener.hear(house.hearing())
    listener.do("next")
    listener.at("over")
    assert house.decisions(test) == {"right": "unchanged"}
    given = house.clinic.get(f"/api/exams/{test['exams'][0]['id']}")["play"]["timing"]
    assert (given["pulses"], given["pulse_ms"], given["gap_min_ms"]) == (3, 225, 1000)


def test_keyboard_only(house: House, page: Page) -> None:
    slow = {**QUICK, "gap_min_ms": 1500, "gap_max_ms": 1500}
    test = house.invite("keyboard", timing=slow)
    listener = house.seat(page, test)

    def press_on(action: str, value: str | None = None) -> None:
        """Walk to a button by the tabulator key and press it."""
        for _ in range(20):
            page.keyboard.press("Tab")
            at = page.evaluate("({ ...document.activeElement.dataset })")
            if at.get("do") == action and at.get("value") == value:
                page.keyboard.press("Enter")
                return
        raise AssertionError(f"no way to {action} by keyboard")

    listener.at("headphones")
    press_on("next")
    listener.at("sides")
    while page.locator("#sides").is_visible():
        press_on("play-side")
        press_on("side", page.evaluate("ears.side"))
    press_on("play-volume")
    press_on("volume", "good")
    press_on("next")
    listener.at("instruction")
    listener.hear(house.hearing())
    press_on("next")
    listener.at("test")
    assert page.evaluate("document.activeElement.id") == "heard"
    press_on("pause")
    listener.at("paused")
    press_on("resume")
    listener.check_ears_and_volume()
    listener.at("again")
    press_on("next")
    listener.at("over")
    assert house.decisions(test) == {"right": "unchanged"}


def test_a_volume_at_which_nothing_is_too_soft_is_refused(house: House, page: Page) -> None:
    plan = {"kind": "exam", "rule": None, "practice": True, "device": house.uncalibrated}
    test = house.invite("loud volume", **plan)
    listener = house.seat(page, test)
    listener.set_up_until("instruction")
    listener.hear({ear: [(1000.0, -200.0)] for ear in ("right", "left")})
    listener.do("next")
    listener.at("to-fix")
    assert "volume" in page.inner_text("#to-fix")
    assert page.locator("#sides").is_visible()


def test_a_link_that_was_replaced_is_over(house: House, page: Page) -> None:
    test = house.invite("replaced")
    listener = house.seat(page, test)
    listener.at("headphones")
    house.clinic.post(f"/api/visits/{test['visit']}/link")
    page.reload()
    listener.at("ended")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(house: House, browser: Browser, scheme: Any) -> None:
    test = house.invite(f"axe {scheme}", timing={"gap_min_ms": 5000, "gap_max_ms": 6000})
    context = browser.new_context(color_scheme=scheme, reduced_motion="reduce")
    listener = house.seat(context.new_page(), test)
    axe, found = Axe(), {}

    def look(section: str) -> None:
        listener.at(section)
        found[section] = [v["id"] for v in axe.run(listener.page).response["violations"]]

    look("headphones")
    listener.do("next")
    look("sides")
    while listener.page.locator("#sides").is_visible():
        listener.tell_the_side()
    look("volume")
    listener.do("play-volume")
    listener.do("volume", "good")
    look("room")
    listener.do("next")
    look("instruction")
    listener.do("next")
    look("test")
    listener.do("panic")
    look("paused")
    house.clinic.post(f"/api/exams/{test['exams'][0]['id']}/abandon", {"reason": "axe"})
    listener.page.reload()
    look("ended")
    context.close()
    assert {section: ids for section, ids in found.items() if ids} == {}
