"""Lines of JSON: what another program sends to `earshift protocol`, and what it gets.

`CLINICAL` has the conversations with tones of the clinic's engine.
"""

import json
from collections.abc import Iterator
from typing import Any

from typer.testing import CliRunner

from golden.common import plain, without_sentences

Message = dict[str, Any] | str
BY_HAND = {
    "strategy": "bald", "halton_tones": 3, "guess": 0.0, "lapse": 0.0, "domain": "fine", "seed": 3,
}  # fmt: skip
BEFORE = {
    "kind": "audiogram",
    "data": {"thresholds_db_hl": {"500": 10, "1000": 5, "2000": 5, "3000": 5, "4000": 10}},
}
LOST = (False, True, True, False, True, False, True, True)


def _answers(*heard: bool) -> Iterator[Message]:
    for number, answer in enumerate(heard, start=1):
        yield {"do": "ask"}
        yield {"do": "tell", "heard": answer, "trial": number, "id": number}


def _exam_talk(options: dict[str, Any]) -> list[Message]:
    return [
        {"do": "begin", "kind": "exam", "options": options, "id": "a1"},
        *_answers(*LOST),
        {"do": "ask"},
        {"do": "verdict"},
        {"do": "verdict", "places": [1000, 4000]},
        {"do": "save"},
        {"do": "quit"},
    ]


def _screen_talk(options: dict[str, Any]) -> list[Message]:
    return [
        {"do": "begin", "kind": "screen", "options": options, "cap_db_hl": 80},
        *_answers(*LOST),
        {"do": "tell", "heard": True, "catch": True},
        {"do": "tell", "heard": False, "stimulus": {"frequency_hz": 1000, "level_db_hl": 30}},
        {"do": "ask"},
        {"do": "verdict", "places": [500, 2000]},
        {"do": "save"},
        {"do": "quit"},
    ]


REFUSED: list[Message] = [
    {"do": "ask"},
    {"do": "verdict"},
    {"do": "nothing"},
    {},
    "[1]",
    "not JSON",
    '{"do": "begin", "kind": "exam", "options": {"guess": NaN}}',
    {"do": "begin"},
    {"do": "begin", "kind": "game"},
    {"do": "begin", "kind": "exam", "options": {"loudness": 1}},
    {"do": "begin", "kind": "exam", "options": {"seed": -1}},
    {"do": "begin", "kind": "exam", "options": {"domain": "moon"}},
    {"do": "begin", "kind": "exam", "cap_db_hl": 100},
    {"do": "begin", "kind": "screen"},
    {"do": "begin", "kind": "screen", "options": {"rule": "wild", "reference": BEFORE}},
    {"do": "begin", "kind": "screen", "options": {"protocol": "best"}},
    {"do": "load", "data": {}},
    {"do": "begin", "kind": "exam", "options": BY_HAND},
    {"do": "tell"},
    {"do": "tell", "heard": "yes", "id": 7},
    {"do": "tell", "heard": True, "trial": 2},
    {"do": "tell", "heard": True, "catch": True},
    {"do": "tell", "heard": True, "stimulus": {"frequency_hz": 50, "level_db_hl": 30}},
    {"do": "verdict", "places": [50]},
    {"do": "ask", "more": 1},
    {"do": "tell", "heard": True, "trial": 1},
    {"do": "tell", "heard": True, "trial": 1},
    {"do": "ask", "id": "last"},
]


def _two_axes() -> dict[str, Any]:
    axis = {"unit": "dB", "origin": -25.0, "scale": 10.0, "logarithmic": False}
    return {
        "intensity": {**axis, "name": "contrast_db", "values": list(range(-50, 1, 5))},
        "smooth": [{"name": "cycles", "unit": "c/deg", "values": [1, 2, 4, 8], "origin": 4.0,
                    "scale": 1.0, "logarithmic": True}],
    }  # fmt: skip


TALKS: dict[str, tuple[list[Message], str]] = {
    "an exam": (_exam_talk(BY_HAND), "supervised"),
    "an exam on other axes": (_exam_talk({**BY_HAND, "domain": _two_axes()})[:-3], "none"),
    "a screen for any change": (
        _screen_talk({"protocol": "best", "reference": BEFORE, "seed": 1}),
        "supervised",
    ),
    "refusals": (REFUSED, "supervised"),
}
CLINICAL: dict[str, tuple[list[Message], str]] = {
    "an exam": (_exam_talk({"seed": 3, "domain": "audiometer"}), "supervised"),
    "a screen by a rule": (
        _screen_talk({"rule": "osha-sts", "reference": BEFORE, "seed": 1}),
        "supervised",
    ),
    "a screen for a notch": (
        _screen_talk({"hypotheses": "notch", "settings": {"population": "any"}}),
        "supervised",
    ),
}


def talk(messages: list[Message], limits: str) -> dict[str, Any]:
    """Every message with its answer. At the end what was saved is loaded and asked again."""
    said = _converse(messages, limits)
    transcript = dict(zip(map(_numbered, enumerate(messages, start=1)), said, strict=True))
    saved = [answer["data"] for answer in said if "data" in answer]
    if saved:
        again: list[Message] = [{"do": "load", "data": saved[-1]}, {"do": "ask"}]
        loaded, asked = _converse(again, limits)
        transcript["load what was saved"] = loaded
        transcript["ask after loading"] = asked
    return without_sentences(plain(transcript))


def _numbered(numbered: tuple[int, Message]) -> str:
    number, message = numbered
    return f"{number}. {message if isinstance(message, str) else json.dumps(message)}"


def _converse(messages: list[Message], limits: str) -> list[dict[str, Any]]:
    from earshift.cli import app

    lines = [m if isinstance(m, str) else json.dumps(m) for m in messages]
    done = CliRunner().invoke(app, ["protocol", "--limits", limits], input="\n".join(lines) + "\n")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]
