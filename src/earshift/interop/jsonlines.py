"""Exams for other programs and languages: one JSON object a line in, one a line out.

`Conversation` holds one exam or screen and answers messages; it never raises for what a client
sends. `converse` runs it over two streams. See docs/protocol.md. Level limits are the server's and
not the client's: a message cannot loosen them, and data saved under looser ones are not loaded.
"""

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import IO, Any

from earshift.devices.delivery import CAP_DB_HL, supervised_limits
from earshift.engine.audiogram import Audiogram
from earshift.engine.checks import finite, whole
from earshift.engine.domain import DOMAINS, Domain, as_domain
from earshift.engine.exam import ClinicalExam, Exam
from earshift.engine.limits import Limits
from earshift.engine.prior import Prior
from earshift.engine.reference import Reference, reference_from_dict
from earshift.engine.refusal import Refusal
from earshift.engine.rule_settings import NotchSettings, RuleSettings
from earshift.engine.screen import Screen
from earshift.engine.thresholds import Location
from earshift.engine.tone import Stimulus, Tone
from earshift.engine.values import EARS, HEARING_LEVEL

VERSION = 1
MAX_LINE_BYTES = 4 * 1024 * 1024
MAX_ERROR = 500
MAX_CANDIDATES = 50_000  # stimuli of a domain: more would make a client wait for ever
KINDS: dict[str, type[Exam] | type[Screen]] = {"exam": Exam, "screen": Screen}
# The fields of every message, needed and further ones, besides do and id.
FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "begin": (("kind",), ("options", "cap_db_hl")),
    "ask": ((), ()),
    "tell": (("heard",), ("stimulus", "trial", "catch")),
    "undo": ((), ("trial",)),
    "verdict": ((), ("places",)),
    "save": ((), ()),
    "load": (("data",), ()),
    "quit": ((), ()),
}
_COMMON = ("ears", "seed", "max_tones", "domain", "other_ear", "transducer")
_OF_FIELDS = {"strategy": "level_set", "halton_tones": 5, "guess": 0.01, "lapse": 0.02}
OPTIONS = {
    "exam": (*_COMMON, "reference", "precision_db", *_OF_FIELDS, "prior"),
    "screen": (*_COMMON, "reference", "rule", "rules", "protocol", "hypotheses", "settings"),
}


class Conversation:
    """One client's exam. `handle` answers a line with a line."""

    def __init__(self, limited: bool = True) -> None:
        self.limited = limited
        self.procedure: Exam | Screen | None = None
        self.over = False
        self._actions: dict[str, Callable[..., dict[str, Any]]] = {
            "begin": self._begin,
            "ask": self._ask,
            "tell": self._tell,
            "undo": self._undo,
            "verdict": self._verdict,
            "save": self._save,
            "load": self._load,
            "quit": self._quit,
        }

    def handle(self, line: bytes) -> str:
        """The answer to one line, whatever the line is."""
        message: Any = None
        try:
            message = _parsed(line)
            answer = {"ok": True, **self._answer(message)}
            return json.dumps(_labelled(answer, message), allow_nan=False)
        except (ValueError, OverflowError) as error:
            words = _short(str(error))
        except (KeyError, TypeError, AttributeError, RecursionError, MemoryError) as error:
            words = f"this message could not be understood ({type(error).__name__})"
        return json.dumps(_labelled({"ok": False, "error": words}, message))

    def _answer(self, message: Any) -> dict[str, Any]:
        if not isinstance(message, dict):
            raise Refusal(f'a message is a JSON object such as {{"do": "ask"}}, got {message!r}')
        action = message.get("do")
        if not isinstance(action, str) or action not in FIELDS:
            raise Refusal(f"do must be one of {', '.join(FIELDS)}", got=action)
        given = {name: value for name, value in message.items() if name not in ("do", "id")}
        needed, further = FIELDS[action]
        missing = [name for name in needed if name not in given]
        unknown = [name for name in given if name not in (*needed, *further)]
        if missing:
            raise Refusal(f"a {action} message needs {', '.join(missing)}")
        if unknown:
            raise Refusal(f"a {action} message has no field {', '.join(unknown)}")
        return {"do": action, **self._actions[action](**given)}

    def _open(self) -> Exam | Screen:
        if self.procedure is None:
            raise Refusal("there is no exam yet: begin one, or load one")
        return self.procedure

    def _begin(
        self, kind: str, options: Any = None, cap_db_hl: float = CAP_DB_HL
    ) -> dict[str, Any]:
        if not isinstance(kind, str) or kind not in KINDS:
            raise Refusal(f"kind must be one of {', '.join(KINDS)}", got=kind)
        given = {} if options is None else options
        if not isinstance(given, dict):
            raise Refusal("options must be an object", got=given)
        unknown = [name for name in given if name not in OPTIONS[kind]]
        if unknown:
            whose = "an exam" if kind == "exam" else "a screen"
            known = ", ".join(OPTIONS[kind])
            raise Refusal(f"options of {whose} are {known}; got {', '.join(unknown)}")
        built = self._built(given)
        limits = supervised_limits(cap_db_hl) if self.limited else None
        if kind == "exam":
            self._adopt(_exam(built, limits))
        else:
            if not {"rule", "rules", "protocol", "hypotheses"} & built.keys():
                raise Refusal("a screen needs a rule, a protocol or hypotheses to ask about")
            self._adopt(Screen(**{"domain": "audiometer", **built}, limits=limits))
        return self._where()

    def _built(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """A client's options as the library takes them."""
        built = dict(given)
        if "domain" in built:
            built["domain"] = _domain(built["domain"])
        if built.get("other_ear") is not None:
            built["other_ear"] = _audiogram(built["other_ear"])
        if built.get("reference") is not None:
            built["reference"] = _reference(built["reference"])
        if built.get("prior") is not None:
            built["prior"] = _prior(built["prior"])
        if built.get("settings") is not None:
            kind = NotchSettings if built.get("hypotheses") else RuleSettings
            try:
                with warnings.catch_warnings():  # settings of earlier versions are still accepted
                    warnings.simplefilter("ignore", DeprecationWarning)
                    built["settings"] = kind(**built["settings"])
            except TypeError as error:
                raise Refusal(f"unknown setting: {error}") from None
        return built

    def _adopt(self, procedure: Exam | Screen) -> None:
        if self.limited and not _within(procedure):
            raise Refusal(
                "this exam has no level limits, or looser ones than a supervised test, or other "
                "stimuli than tones in dB HL; for simulation: `earshift protocol --limits none`"
            )
        self.procedure = procedure

    def _where(self) -> dict[str, Any]:
        procedure = self._open()
        return {"trial": len(procedure.trials) + 1, "done": procedure.done}

    def _ask(self) -> dict[str, Any]:
        return {"stimulus": self._open().ask().to_dict(), **self._where()}

    def _tell(
        self, heard: Any, stimulus: Any = None, trial: Any = None, catch: Any = False
    ) -> dict[str, Any]:
        procedure = self._open()
        if not isinstance(catch, bool):
            raise Refusal("catch must be true or false", got=catch)
        due = len(procedure.trials) + 1
        if trial is not None and whole(trial, "trial", 1) != due:
            raise Refusal(f"trial {trial} is not the one to answer now; that is {due}")
        if catch:
            if not isinstance(procedure, Screen | ClinicalExam):
                raise Refusal("silent trials belong to a screen; an exam does not take them")
            procedure.tell_catch(heard)
            return self._where()
        procedure.tell(procedure.ask() if stimulus is None else _stimulus(stimulus), heard)
        return self._where()

    def _undo(self, trial: Any = None) -> dict[str, Any]:
        procedure = self._open()
        last = len(procedure.trials)
        if trial is not None and whole(trial, "trial", 1) != last:
            raise Refusal(f"trial {trial} is not the last one answered, which is {last}")
        return {"taken_back": procedure.undo().to_dict(), **self._where()}

    def _verdict(self, places: Any = None) -> dict[str, Any]:
        procedure = self._open()
        locations = None if places is None else _locations(places)
        answer = {**self._where(), "tones": len(procedure.trials)}
        if procedure.ears is None:
            answer["thresholds"] = [asdict(one) for one in procedure.thresholds(locations)]
        else:
            answer["thresholds"] = {
                ear: [asdict(one) for one in procedure.thresholds(locations, ear=ear)]
                for ear in EARS
            }
        if isinstance(procedure, Exam):
            return answer
        verdict = procedure.verdict(locations)
        answer |= {"verdict": verdict.to_dict(), "words": str(verdict)}
        if len(procedure.rules) > 1:
            each = procedure.verdicts(locations).items()
            answer["verdicts"] = {rule: one.to_dict() for rule, one in each}
        return answer

    def _save(self) -> dict[str, Any]:
        return {"data": self._open().to_dict()}

    def _load(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, dict) or data.get("kind") not in list(KINDS):
            raise Refusal("data must be what save returned, with the kind exam or screen")
        self._adopt(KINDS[data["kind"]].from_dict(data))
        return self._where()

    def _quit(self) -> dict[str, Any]:
        self.over = True
        return {}


def _exam(built: Mapping[str, Any], limits: Limits | None) -> Exam:
    """A clinical exam; one of fields where its settings or other axes than a tone's ask for it."""
    domain = as_domain(built.get("domain", "audiometer"))
    if domain.of_tones and not {*_OF_FIELDS, "prior"} & built.keys():
        return Exam.clinical(**built, limits=limits)
    needless = [name for name in ("reference", "precision_db") if name in built]
    if needless:
        raise Refusal(f"{', '.join(needless)} can be given only for a clinical exam of tones")
    return Exam(**{**_OF_FIELDS, **built, "domain": domain}, limits=limits)


def _short(words: str) -> str:
    """An error that quotes what was sent does not send all of it back."""
    return words if len(words) <= MAX_ERROR else f"{words[:MAX_ERROR]} ..."


def _labelled(answer: dict[str, Any], message: Any) -> dict[str, Any]:
    """The answer with the message's id, if it has one that can be given back."""
    label = message.get("id") if isinstance(message, dict) else None
    return {**answer, "id": label} if isinstance(label, str | int) else answer


def _parsed(line: bytes) -> Any:
    if len(line) > MAX_LINE_BYTES:
        raise Refusal(f"a line has at most {MAX_LINE_BYTES} bytes; this one was left out")

    def refuse(word: str) -> None:
        raise Refusal(f"{word} is not a JSON number")

    try:
        return json.loads(line.decode("utf-8"), parse_constant=refuse)
    except UnicodeDecodeError:
        raise Refusal("a line must be UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise Refusal(f"not JSON: {error}") from None


def _within(procedure: Exam | Screen) -> bool:
    """Whether the limits are no looser than a supervised test's, which speak of tones alone."""
    own, most = procedure.limits, supervised_limits()
    return (
        own is not None
        and procedure.domain.of_tones
        and procedure.domain.intensity.unit == HEARING_LEVEL
        and all(
            (getattr(own, name) or 0.0) <= (getattr(most, name) or 0.0) for name in _LIMIT_NAMES
        )
    )


_LIMIT_NAMES = tuple(name for name in asdict(Limits()) if name != "device")


def _domain(given: Any) -> Domain:
    """A preset by name, lists of frequencies and levels, or a domain's own data."""
    if isinstance(given, dict) and given.keys() == {"frequencies_hz", "levels_db_hl"}:
        domain = Domain.tones(given["frequencies_hz"], given["levels_db_hl"])
    elif isinstance(given, dict):
        try:
            domain = Domain.from_dict(given)
        except (KeyError, TypeError):
            raise Refusal(
                f"domain must be one of {', '.join(DOMAINS)}, an object with frequencies_hz and "
                "levels_db_hl, or one with intensity and smooth axes"
            ) from None
    else:
        domain = as_domain(given)
    count = domain.shape[0] * domain.shape[1]
    if count > MAX_CANDIDATES:
        raise Refusal(f"a domain has at most {MAX_CANDIDATES} stimuli, this one has {count}")
    return domain


def _audiogram(given: Any) -> Audiogram:
    """An audiogram whose thresholds are an object of Hz to dB HL, or its own data."""
    if not isinstance(given, dict):
        raise Refusal("an audiogram is an object with thresholds_db_hl", got=given)
    full = {**Audiogram({1000.0: 0.0}).to_dict(), "thresholds_db_hl": {}, **given}
    for name in ("thresholds_db_hl", "no_response_db_hl"):
        if isinstance(full[name], dict):
            full[name] = [(_hertz(f), level) for f, level in full[name].items()]
    try:
        return Audiogram.from_dict(full)
    except TypeError:
        raise Refusal("an audiogram has thresholds_db_hl: frequency in Hz to dB HL") from None


def _prior(given: Any) -> Prior:
    """What is expected, by the names of a `Prior`'s parameters."""
    if not isinstance(given, dict):
        raise Refusal('prior must be an object such as {"threshold": 8, "spread": 0.5}', got=given)
    try:
        return Prior.from_dict(given)
    except (KeyError, TypeError):
        names = ", ".join(field.name for field in fields(Prior))
        raise Refusal(f"a prior has {names}; got {', '.join(given)}") from None


def _hertz(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Refusal("a frequency in Hz is a number", got=text) from None


def _reference(given: Any) -> Reference | dict[str, Reference]:
    """One reference, or each ear's by its name."""
    if isinstance(given, dict) and given.keys() == set(EARS):
        return {ear: _one_reference(given[ear]) for ear in EARS}
    return _one_reference(given)


def _one_reference(given: Any) -> Reference:
    if not isinstance(given, dict) or not {"kind", "data"} <= given.keys():
        raise Refusal(
            'reference must be an object with kind and data, such as "audiogram", or such objects '
            "of the right and the left ear"
        )
    if given["kind"] == "audiogram":
        return _audiogram(given["data"])
    return reference_from_dict(given)


def _stimulus(given: Any) -> Tone | Stimulus:
    if not isinstance(given, dict):
        raise Refusal("a stimulus is an object such as the one that was asked", got=given)
    if {"frequency_hz", "level_db_hl"} <= given.keys() <= {"frequency_hz", "level_db_hl", "ear"}:
        return Tone(**given)
    return Stimulus(tuple(given.items()))


def _locations(given: Any) -> list[Location]:
    if not isinstance(given, list):
        raise Refusal("places must be a list of numbers or of lists of numbers", got=given)
    return [
        tuple(finite(value, "a place") for value in location)
        if isinstance(location, list)
        else finite(location, "a place")
        for location in given
    ]


def converse(lines: IO[bytes], answers: IO[str], limited: bool = True) -> None:
    """Answer lines until the client quits or its stream ends."""
    talk = Conversation(limited)
    while not talk.over:
        line = lines.readline(MAX_LINE_BYTES + 1)
        if not line:
            return
        while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            # Too long: read to its end without keeping it, and let the answer say so.
            rest = lines.readline(MAX_LINE_BYTES)
            if not rest or rest.endswith(b"\n"):
                break
        if not line.strip():
            continue
        answers.write(talk.handle(line) + "\n")
        answers.flush()
