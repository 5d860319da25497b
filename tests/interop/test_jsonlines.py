"""Exams over JSON lines: every message, every refusal, and a client in another language."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import earshift as es
from earshift.interop import jsonlines as protocol
from earshift.interop.jsonlines import FIELDS, MAX_LINE_BYTES, Conversation, converse
from support.helpers import MILD, NORMAL

ROOT = Path(__file__).resolve().parents[2]
SERVER = [sys.executable, "-m", "earshift.cli", "protocol"]
BY_RULE = {
    "rule": "osha-sts",
    "reference": {
        "kind": "audiogram",
        "data": {"thresholds_db_hl": {f"{f:g}": level for f, level in NORMAL.items()}},
    },
    "seed": 1,
}


def say(talk: Conversation, do: str, **fields: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(talk.handle(json.dumps({"do": do, **fields}).encode()))
    return answer


def good(talk: Conversation, do: str, **fields: Any) -> dict[str, Any]:
    answer = say(talk, do, **fields)
    assert answer["ok"], answer
    assert answer["do"] == do
    return answer


def refused(talk: Conversation, do: str, **fields: Any) -> str:
    answer = say(talk, do, **fields)
    assert answer["ok"] is False
    return str(answer["error"])


def test_an_exam_from_begin_to_quit_is_the_librarys() -> None:
    talk, listener = Conversation(), es.Listener(MILD, seed=2)
    assert good(talk, "begin", kind="exam", options={"seed": 5, "max_tones": 12})["trial"] == 1
    while not (asked := good(talk, "ask"))["done"]:
        tone = es.Tone(**asked["stimulus"])
        good(talk, "tell", heard=listener(tone), trial=asked["trial"])
    from earshift.devices.delivery import supervised_limits

    by_hand = es.Exam.clinical(seed=5, max_tones=12, limits=supervised_limits())
    listener = es.Listener(MILD, seed=2)
    while not by_hand.done:
        by_hand.tell(by_hand.ask(), listener(by_hand.ask()))
    assert talk.procedure is not None
    assert talk.procedure.to_dict() == by_hand.to_dict()
    answer = good(talk, "verdict", places=[1000, 4000])
    assert [t["frequency_hz"] for t in answer["thresholds"]] == [1000.0, 4000.0]
    assert answer["tones"] == 12
    assert "verdict" not in answer
    good(talk, "quit")
    assert talk.over


def test_a_screen_by_rule_with_silent_trials() -> None:
    talk, listener = Conversation(), es.Listener(MILD, seed=2)
    good(talk, "begin", kind="screen", options=BY_RULE)
    while not (asked := good(talk, "ask"))["done"]:
        good(talk, "tell", heard=listener(es.Tone(**asked["stimulus"])))
    before = good(talk, "ask")["trial"]
    assert good(talk, "tell", heard=False, catch=True)["trial"] == before
    answer = good(talk, "verdict")
    assert answer["verdict"]["decision"] == "changed"
    assert answer["verdict"]["catch_trials"] == 1
    assert answer["words"].startswith("The OSHA standard threshold shift rule is met")


def test_a_notch_needs_no_reference() -> None:
    talk = Conversation()
    chosen = {"hypotheses": "notch", "settings": {"population": "any"}}
    good(talk, "begin", kind="screen", options=chosen)
    good(talk, "tell", heard=True)
    assert good(talk, "verdict")["verdict"]["protocol"] == "notch"


def test_saved_data_go_on_elsewhere_and_serve_as_a_reference() -> None:
    talk, other = Conversation(), Conversation()
    good(talk, "begin", kind="exam", options={"seed": 5})
    for _ in range(3):
        good(talk, "tell", heard=True)
    data = good(talk, "save")["data"]
    assert good(other, "load", data=data)["trial"] == 4
    assert good(other, "ask")["stimulus"] == good(talk, "ask")["stimulus"]
    reference = {"kind": "exam", "data": data}
    good(other, "begin", kind="screen", options={"protocol": "best", "reference": reference})
    again = good(other, "save")["data"]
    assert good(talk, "load", data=again)["done"] is False


def test_an_answer_sent_twice_is_taken_once() -> None:
    talk = Conversation()
    good(talk, "begin", kind="exam")
    good(talk, "tell", heard=True, trial=1)
    assert "the one to answer now; that is 2" in refused(talk, "tell", heard=True, trial=1)
    assert talk.procedure is not None
    assert len(talk.procedure.trials) == 1


def test_ids_come_back() -> None:
    talk = Conversation()
    assert good(talk, "begin", kind="exam", id="a1")["id"] == "a1"
    assert say(talk, "tell", id=7)["id"] == 7
    assert "id" not in good(talk, "ask")


# Level limits ------------------------------------------------------------------------------------


def test_limits_are_on_and_no_message_loosens_them() -> None:
    talk = Conversation()
    good(talk, "begin", kind="exam", cap_db_hl=50)
    for _ in range(30):
        asked = good(talk, "ask")["stimulus"]
        assert asked["level_db_hl"] <= 50.0
        good(talk, "tell", heard=False)
    assert "at most 90" in refused(talk, "begin", kind="exam", cap_db_hl=95)
    assert "options of an exam" in refused(talk, "begin", kind="exam", options={"limits": None})


@pytest.mark.parametrize(
    "looser",
    [
        {"limits": None},
        {"limits": es.Limits(cap_db_hl=100.0)},
        {"limits": es.Limits(above_missed_db=40.0)},
        {"limits": es.Limits(start_db_hl=80.0)},
        {"limits": es.Limits(near_octaves=3.0)},
    ],
)
def test_data_with_looser_limits_are_not_loaded(looser: dict[str, Any]) -> None:
    data = es.Exam(**looser).to_dict()
    talk = Conversation()
    assert "--limits none" in refused(talk, "load", data=data)
    assert talk.procedure is None
    good(Conversation(limited=False), "load", data=data)


def test_levels_of_an_uncalibrated_device_have_no_limit_in_db_hl() -> None:
    options = {"domain": "relative"}
    assert "tones in dB HL" in refused(Conversation(), "begin", kind="exam", options=options)


def test_other_stimuli_need_no_limits_said_out_loud() -> None:
    axes = {
        "intensity": {
            "name": "contrast_db", "unit": "dB", "values": [-40, -20, 0], "origin": -20,
            "scale": 10,
        },
        "smooth": [
            {
                "name": "cycles_per_degree", "unit": "c/deg", "values": [1, 2, 4], "origin": 2,
                "scale": 1, "logarithmic": True,
            }
        ],
    }  # fmt: skip
    assert "--limits none" in refused(
        Conversation(), "begin", kind="exam", options={"domain": axes}
    )
    talk = Conversation(limited=False)
    good(talk, "begin", kind="exam", options={"domain": axes})
    asked = good(talk, "ask")["stimulus"]
    assert set(asked) == {"contrast_db", "cycles_per_degree"}
    good(talk, "tell", heard=True, stimulus=asked)
    (there,) = good(talk, "verdict", places=[2])["thresholds"]
    assert there["place"] == [["cycles_per_degree", 2.0]]


# Refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("do", "fields", "words"),
    [
        ("dance", {}, "do must be one of begin"),
        ("ask", {}, "no exam yet"),
        ("tell", {"heard": True}, "no exam yet"),
        ("verdict", {}, "no exam yet"),
        ("save", {}, "no exam yet"),
        ("begin", {}, "needs kind"),
        ("tell", {}, "needs heard"),
        ("load", {}, "needs data"),
        ("load", {"data": 5}, "what save returned"),
        ("load", {"data": {"kind": ["exam"]}}, "what save returned"),
        ("load", {"data": {"kind": "exam"}}, "not the data"),
        ("ask", {"level": 3}, "has no field level"),
        ("begin", {"kind": "dance"}, "exam, screen"),
        ("begin", {"kind": "exam", "options": []}, "options must be an object"),
        ("begin", {"kind": "exam", "options": {"rule": "osha-sts"}}, "options of an exam"),
        ("begin", {"kind": "exam", "options": {"seed": -1}}, "seed"),
        ("begin", {"kind": "exam", "options": {"max_tones": 1.5}}, "max_tones"),
        ("begin", {"kind": "exam", "options": {"domain": "wide"}}, "unknown domain"),
        ("begin", {"kind": "exam", "options": {"domain": {"a": 1}}}, "domain must be"),
        ("begin", {"kind": "exam", "options": {"other_ear": 3}}, "audiogram"),
        ("begin", {"kind": "screen"}, "a rule, a protocol or hypotheses"),
        ("begin", {"kind": "screen", "options": {"rule": "osha-sts"}}, "reference must be"),
        ("begin", {"kind": "screen", "options": {**BY_RULE, "rule": "none"}}, "none"),
        ("begin", {"kind": "screen", "options": {**BY_RULE, "reference": 1}}, "kind and data"),
        (
            "begin",
            {"kind": "screen", "options": {**BY_RULE, "reference": {"kind": "x", "data": 1}}},
            "a reference is one of",
        ),
        (
            "begin",
            {"kind": "screen", "options": {**BY_RULE, "settings": {"speed": 2}}},
            "unknown setting",
        ),
        (
            "begin",
            {
                "kind": "exam",
                "options": {
                    "domain": {
                        "frequencies_hz": list(range(500, 1500)),
                        "levels_db_hl": list(range(100)),
                    }
                },
            },
            "at most 50000 stimuli",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said(do: str, fields: dict[str, Any], words: str) -> None:
    talk = Conversation()
    assert words in refused(talk, do, **fields)
    assert talk.procedure is None


@pytest.mark.parametrize(
    ("do", "fields"),
    [
        ("tell", {"heard": "yes"}),
        ("tell", {"heard": None}),
        ("tell", {"heard": True, "stimulus": 4}),
        ("tell", {"heard": True, "stimulus": {"frequency_hz": 1000}}),
        ("tell", {"heard": True, "stimulus": {"frequency_hz": 9, "level_db_hl": 10}}),
        ("tell", {"heard": True, "stimulus": {"frequency_hz": "a", "level_db_hl": 10}}),
        ("tell", {"heard": True, "trial": "one"}),
        ("tell", {"heard": True, "catch": 1}),
        ("verdict", {"places": 5}),
        ("verdict", {"places": ["a"]}),
        ("verdict", {"places": []}),
        ("verdict", {"places": [[1000, 2000]]}),
        ("verdict", {"places": [1e9]}),
    ],
)
def test_a_refused_message_changes_nothing(do: str, fields: dict[str, Any]) -> None:
    talk = Conversation()
    good(talk, "begin", kind="exam", options={"seed": 1})
    before = good(talk, "save")
    assert refused(talk, do, **fields)
    assert good(talk, "save") == before


def test_silence_counts_in_a_clinical_exam_and_not_in_one_of_fields() -> None:
    talk = Conversation()
    good(talk, "begin", kind="exam", options={"seed": 1})
    good(talk, "tell", heard=True, catch=True)
    assert good(talk, "save")["data"]["catches"] == [True]
    good(talk, "begin", kind="exam", options={"seed": 1, "halton_tones": 5})
    assert "does not take them" in refused(talk, "tell", heard=True, catch=True)


def test_several_rules_have_a_verdict_each() -> None:
    talk = Conversation()
    reference = {"kind": "audiogram", "data": {"thresholds_db_hl": MILD}}
    options = {"reference": reference, "rules": ["osha-sts", "niosh-15"]}
    good(talk, "begin", kind="screen", options=options)
    assert set(good(talk, "verdict")["verdicts"]) == {"osha-sts", "niosh-15"}


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
messages = st.fixed_dictionaries(
    {"do": st.sampled_from([*FIELDS, "dance"]) | values},
    optional=dict.fromkeys(
        ("id", "kind", "options", "heard", "stimulus", "trial", "places", "data"), values
    ),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(max_size=40) | messages | values, max_size=4))
def test_whatever_comes_gets_one_json_answer(lines: list[Any]) -> None:
    talk = Conversation()
    good(talk, "begin", kind="exam", options={"seed": 1})
    for line in lines:
        raw = line if isinstance(line, bytes) else json.dumps(line).encode()
        answer = json.loads(talk.handle(raw))
        assert isinstance(answer["ok"], bool)
        assert answer["ok"] or answer["error"]


@pytest.mark.parametrize(
    "line", [b"[" * 100_000, b'{"do":' * 50_000, b"9" * 10_000, b'{"do": NaN}', b"\xff\xfe"]
)
def test_hostile_lines_are_answered(line: bytes) -> None:
    answer = json.loads(Conversation().handle(line))
    assert answer["ok"] is False
    assert len(answer["error"]) < 1000


def test_an_error_does_not_send_everything_back() -> None:
    answer = Conversation().handle(json.dumps(["x" * 100_000]).encode())
    assert len(answer) < 1000


# Streams -----------------------------------------------------------------------------------------


def talk_over(lines: bytes) -> list[dict[str, Any]]:
    out = io.StringIO()
    converse(io.BytesIO(lines), out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_stream_ends_at_quit_or_at_its_end() -> None:
    assert len(talk_over(b'{"do": "quit"}\n{"do": "ask"}\n')) == 1
    assert talk_over(b"") == []
    answers = talk_over(b'\n\n{"do": "begin", "kind": "exam"}')  # no line break at the end
    assert [answer["ok"] for answer in answers] == [True]


def test_a_line_that_is_too_long_is_left_out_and_the_next_is_answered() -> None:
    for length in (MAX_LINE_BYTES + 1, MAX_LINE_BYTES + 2, 3 * MAX_LINE_BYTES):
        lines = b"x" * length + b'\n{"do": "begin", "kind": "exam"}\n'
        answers = talk_over(lines)
        assert [answer["ok"] for answer in answers] == [False, True]
        assert "bytes" in answers[0]["error"]


def test_the_longest_line_is_still_read() -> None:
    message = b'{"do": "quit", "id": "' + b"x" * 100 + b'"}'
    padded = message + b" " * (MAX_LINE_BYTES - len(message) - 1) + b"\n"
    assert len(padded) == MAX_LINE_BYTES
    (answer,) = talk_over(padded)
    assert answer["ok"]


def test_the_command_answers_line_by_line_and_never_with_a_traceback() -> None:
    lines = b'nonsense\n{"do": "begin", "kind": "exam"}\n{"do": "ask"}\n{"do": "quit"}\n'
    done = subprocess.run(SERVER, input=lines, capture_output=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["ok"] for answer in answers] == [False, True, True, True]
    assert answers[2]["stimulus"]["level_db_hl"] <= 40.0
    assert b"Traceback" not in done.stderr


def test_the_command_says_what_limits_there_are() -> None:
    done = subprocess.run([*SERVER, "--limits", "loose"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "supervised or none" in done.stderr


def test_a_client_that_goes_away_leaves_no_traceback() -> None:
    with subprocess.Popen(
        SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None
        server.stdout.close()
        server.stdin.write(b'{"do": "ask"}\n' * 10)
        server.stdin.close()
        assert b"Traceback" not in server.stderr.read()
        assert server.wait() == 0


def test_the_client_in_javascript_reaches_a_verdict() -> None:
    done = subprocess.run(
        ["node", str(ROOT / "examples" / "client.mjs"), *SERVER],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "The OSHA standard threshold shift rule is met" in done.stdout
    assert "3000 Hz" in done.stdout


def test_the_page_names_every_message_and_option() -> None:
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    for name in (*FIELDS, *(o for options in protocol.OPTIONS.values() for o in options)):
        assert f"`{name}`" in page, name


# Undo and both ears -----------------------------------------------------------------------------


GAPS = {
    "intensity": {"name": "gap_ms", "unit": "ms", "values": [2, 4, 8, 16], "logarithmic": True},
    "smooth": [],
}


def test_a_prior_is_taken_as_the_library_takes_it() -> None:
    talk = Conversation(limited=False)
    prior = {"threshold": 8, "threshold_sd": 1, "spread": 0.5, "lapse": [1, 20]}
    options = {"domain": GAPS, "prior": prior, "guess": 0.5, "lapse": "estimate"}
    say(talk, "begin", kind="exam", options=options)
    say(talk, "tell", heard=True)
    own = es.Exam(
        domain=es.Domain.from_dict(GAPS),
        prior=es.Prior(threshold=8, threshold_sd=1, spread=0.5, lapse=(1, 20)),
        strategy="level_set",
        halton_tones=5,
        guess=0.5,
        lapse="estimate",
    )
    own.tell(own.ask(), True)
    assert say(talk, "save")["data"] == json.loads(json.dumps(own.to_dict()))
    for bad, words in (({"treshold": 8}, "a prior has threshold"), (8, "must be an object")):
        assert words in refused(talk, "begin", kind="exam", options={**options, "prior": bad})


def test_the_last_answer_can_be_taken_back() -> None:
    talk = Conversation()
    good(talk, "begin", kind="exam", options={"seed": 5})
    first = good(talk, "ask")["stimulus"]
    good(talk, "tell", heard=True)
    second = good(talk, "ask")["stimulus"]
    good(talk, "tell", heard=True, trial=2)
    assert "not the last one answered, which is 2" in refused(talk, "undo", trial=1)
    answer = good(talk, "undo", trial=2)
    assert answer["taken_back"] == {**second, "heard": True}
    assert (answer["trial"], good(talk, "ask")["stimulus"]) == (2, second)
    good(talk, "undo")
    assert good(talk, "ask")["stimulus"] == first
    assert "no answer to take back" in refused(talk, "undo")


def test_both_ears_in_one_exam() -> None:
    talk = Conversation()
    good(talk, "begin", kind="exam", options={"seed": 5, "ears": "both"})
    asked = good(talk, "ask")["stimulus"]
    assert asked["ear"] in ("right", "left")
    good(talk, "tell", heard=True)
    answer = good(talk, "verdict", places=[1000])
    assert set(answer["thresholds"]) == {"right", "left"}
    assert [t["frequency_hz"] for t in answer["thresholds"]["left"]] == [1000.0]
    assert "ear" in refused(
        talk, "tell", heard=True, stimulus={"frequency_hz": 1000, "level_db_hl": 30}
    )
    data = good(talk, "save")["data"]
    other = Conversation()
    good(other, "load", data=data)
    assert good(other, "ask")["stimulus"] == good(talk, "ask")["stimulus"]


def test_both_ears_in_one_screen() -> None:
    talk = Conversation()
    options = {**BY_RULE, "ears": "both"}
    assert "right" in refused(talk, "begin", kind="screen", options=options)
    options["reference"] = {"right": BY_RULE["reference"], "left": BY_RULE["reference"]}
    good(talk, "begin", kind="screen", options=options)
    good(talk, "tell", heard=True, stimulus={**good(talk, "ask")["stimulus"]})
    answer = good(talk, "verdict", places=[2000])
    assert {"right", "left", "decision"} <= answer["verdict"].keys()
    assert set(answer["thresholds"]) == {"right", "left"}
    broken = {**options, "reference": {"right": BY_RULE["reference"], "left": 3}}
    assert "reference must be" in refused(talk, "begin", kind="screen", options=broken)
    assert "ears must be" in refused(talk, "begin", kind="exam", options={"ears": "three"})
