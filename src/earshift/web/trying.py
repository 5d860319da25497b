"""A simulated person for the page on which everybody can try a screen without headphones."""

from functools import lru_cache

from earshift.clinic.view import TrialView, view_of
from earshift.devices.delivery import supervised_limits
from earshift.engine.audiogram import Audiogram
from earshift.engine.norms import class_median, class_names
from earshift.engine.refusal import Refusal
from earshift.engine.rules import RULES
from earshift.engine.screen import Screen
from earshift.simulate.listener import Listener
from earshift.web import live_models as lm
from earshift.web import views

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


def after(*, seed: int, hearing: str, change: str, rule: str, tones: int) -> lm.Live:
    """The live view of a simulated ear's screen after so many tones; same seed, same answers."""
    known = choices()
    for what, chosen in (("hearing", hearing), ("change", change), ("rules", rule)):
        if chosen not in known[what]:
            raise Refusal(f"{what}: choose one of {', '.join(known[what])}", got=chosen)
    screen = _screen(seed, hearing, change, rule, tones)
    trials = [
        TrialView(
            number=number,
            kind="tone",
            ear="right",
            frequency_hz=trial.tone.frequency_hz,
            level=trial.tone.level_db_hl,
            heard=trial.heard,
            void=False,
            at=None,
        )
        for number, trial in enumerate(screen.trials, start=1)
    ]
    view = view_of(
        screen,
        ear="right",
        state="done" if screen.done else "open",
        trials=trials,
        presented=len(trials),
        judged=tones > 0,
    )
    return views.live(view, screen, [])


@lru_cache(maxsize=64)
def _screen(seed: int, hearing: str, change: str, rule: str, tones: int) -> Screen:
    """The screen after so many tones, from the one with a tone less: a page steps through them."""
    if tones == 0:
        before = class_median(hearing)
        limits = supervised_limits()  # as a person would be tested: no loud tones without need
        return Screen(Audiogram(before), rule=rule, seed=seed, domain="audiometer", limits=limits)
    screen = _screen(seed, hearing, change, rule, tones - 1)
    if screen.done:
        return screen
    screen = screen.fork()
    before = class_median(hearing)
    now = {f: level + CHANGES[change].get(f, 0.0) for f, level in before.items()}
    tone = screen.ask()
    screen.tell(tone, Listener(now, seed=(seed, tones))(tone))
    return screen
