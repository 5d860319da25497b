"""A simulated person for the page on which everybody can try a screen without headphones."""

from functools import lru_cache
from typing import Any

from earshift.clinic.view import reference_thresholds
from earshift.engine.exam import Screen
from earshift.engine.norms import class_median, class_names
from earshift.engine.refusal import Refusal
from earshift.engine.rules import RULES
from earshift.engine.stimulus import Audiogram
from earshift.simulate.listener import Listener
from earshift.web.live import probabilities, threshold_shown

CHANGES: dict[str, dict[float, float]] = {
    "none": {},
    "high frequencies 20 dB": {3000.0: 15.0, 4000.0: 20.0, 6000.0: 20.0, 8000.0: 20.0},
    "notch 25 dB": {3000.0: 12.0, 4000.0: 25.0, 6000.0: 12.0},
    "all frequencies 15 dB": dict.fromkeys(
        (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0), 15.0
    ),
}


def choices() -> dict[str, list[str]]:
    verified = [rule.name for rule in RULES.values() if rule.verified]
    return {"hearing": list(class_names()), "change": list(CHANGES), "rules": verified}


def after(*, seed: int, hearing: str, change: str, rule: str, tones: int) -> dict[str, Any]:
    """The live view of a simulated ear's screen after so many tones; same seed, same answers."""
    if change not in CHANGES:
        raise Refusal(f"unknown change; known: {', '.join(CHANGES)}")
    if rule not in choices()["rules"]:
        raise Refusal("unknown rule")
    screen = _screen(seed, hearing, change, rule, tones)
    verdict = screen.verdict() if tones else None
    settings = screen.settings
    return {
        "number": len(screen.trials),
        "kind": "screen",
        "ear": "right",
        "state": "done" if screen.done else "open",
        "unit": screen.domain.intensity.unit,
        "rule": rule,
        "words": "" if verdict is None else str(verdict),
        "decision": None if verdict is None else verdict.decision,
        "reliability": None if verdict is None else verdict.reliability,
        "notes": [] if verdict is None else list(verdict.notes),
        "tones": len(screen.trials),
        "max_tones": screen.max_tones,
        "catch_trials": 0,
        "false_alarms": 0,
        "presses": 0,
        "trials": [
            {
                "number": number,
                "kind": "tone",
                "frequency_hz": trial.tone.frequency_hz,
                "level": trial.tone.level_db_hl,
                "heard": trial.heard,
                "void": False,
                "at": None,
            }
            for number, trial in enumerate(screen.trials, start=1)
        ],
        "thresholds": [threshold_shown(t) for t in screen.thresholds()] if tones else [],
        "reference": [threshold_shown(t) for t in reference_thresholds(screen)],
        "p_changed": probabilities(screen, []),
        "limits": {"changed_at": settings.changed_at, "unchanged_at": settings.unchanged_at},
    }


@lru_cache(maxsize=64)
def _screen(seed: int, hearing: str, change: str, rule: str, tones: int) -> Screen:
    """The screen after so many tones, from the one with a tone less: a page steps through them."""
    if tones == 0:
        before = class_median(hearing)
        return Screen(Audiogram(before), rule=rule, seed=seed, domain="audiometer")
    screen = _screen(seed, hearing, change, rule, tones - 1)
    if screen.done:
        return screen
    screen = screen.fork()
    before = class_median(hearing)
    now = {f: level + CHANGES[change].get(f, 0.0) for f, level in before.items()}
    tone = screen.ask()
    screen.tell(tone, Listener(now, seed=(seed, tones))(tone))
    return screen
