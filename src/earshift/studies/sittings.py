"""Sittings of a study: a first exam, a screen by rule, and the simulated people who answer them.

A case begins an exam or a screen here and nowhere else, and it is the library's own `Exam.clinical`
and `Screen`: what is measured is what people use. People answer as their `Manner` says, which the
engine never sees.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from earshift.engine.exam import ClinicalExam, Exam
from earshift.engine.persons.posterior import Posterior
from earshift.engine.rules import RULES, Rule
from earshift.engine.screen import Screen
from earshift.engine.tone import Tone
from earshift.simulate.listener import Listener
from earshift.studies.case import Ear, seed_of

Array = NDArray[np.float64]

HZ = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)
EXAM_HZ = (500.0, 750.0, 1000.0, 1500.0, 2000.0, 3000.0, 4000.0, 6000.0, 8000.0)
OCTAVES = np.log2(np.array(HZ) / 1000.0)
REFERENCE_TONES = 50
MAX_TONES = 30
SILENT_EVERY = 8  # tones: in the middle of each such run one trial is silent
SECONDS_PER_TRIAL = 4.0  # the tone, the time to answer, and a gap of random length


@dataclass(frozen=True)
class Manner:
    """How somebody answers."""

    spread_db: float = 4.0
    lapse: float = 0.02
    guess: float = 0.01
    drift_db: float = 0.0  # by which thresholds rise over 30 tones; the truth is their mean
    spell: bool = False  # three misses in a row that start anywhere in the first six tones
    responder: str = "listens"  # or never, always, coin: answers without listening


STANDARD = Manner()


class Answerer:
    """A simulated person: `hears(tone)`, and `presses()` when nothing was played."""

    def __init__(self, levels_db: Sequence[float] | Array, manner: Manner, seed: int) -> None:
        self.manner = manner
        self._listener = Listener(
            dict(zip(HZ, map(float, levels_db), strict=True)), spread_db=manner.spread_db,
            lapse=manner.lapse, guess=manner.guess, seed=seed,
        )  # fmt: skip
        self._rng = np.random.default_rng((seed, 5))
        self._spell = int(self._rng.integers(0, 6)) if manner.spell else -3
        self._tones = 0

    def hears(self, tone: Tone) -> bool:
        number, self._tones = self._tones, self._tones + 1
        if self.manner.responder != "listens":
            return self._idle()
        risen = self.manner.drift_db * (number / (MAX_TONES - 1) - 0.5)
        heard = self._listener(Tone(tone.frequency_hz, tone.level_db_hl - risen))
        return heard and not self._spell <= number < self._spell + 3

    __call__ = hears

    def presses(self) -> bool:
        if self.manner.responder != "listens":
            return self._idle()
        return bool(self._rng.random() < self.manner.guess)

    def _idle(self) -> bool:
        return {"never": False, "always": True}.get(
            self.manner.responder, bool(self._rng.random() < 0.5)
        )


def begin_exam(seed: int, tones: int = REFERENCE_TONES) -> ClinicalExam:
    """A first exam with the tones of an audiometer, before any answer."""
    return Exam.clinical(seed=seed, max_tones=tones)


def begin_screen(reference: Exam, rule: Rule, seed: int) -> Screen:
    """A screen by a rule, before any answer."""
    return Screen(reference, rule=rule, seed=seed, max_tones=MAX_TONES)


def played(
    test: ClinicalExam | Screen, person: Answerer, tones: int, silent: bool = True
) -> Iterator[Posterior]:
    """So many tones, silent trials among them: what is known after each."""
    for number in range(1, tones + 1):
        tone = test.ask()
        test.tell(tone, person.hears(tone))
        if silent and number % SILENT_EVERY == SILENT_EVERY // 2:
            test.tell_catch(person.presses())
        yield test.state


def examined(ear: Ear, manner: Manner, seed: int) -> ClinicalExam:
    """The first exam of a real ear, told to its last tone: what a screen has for its reference."""
    levels = [level for _, level in ear.thresholds_db_hl]
    person = Answerer(levels, manner, seed_of(seed, ear.name, manner, "reference"))
    exam = begin_exam(seed_of(seed, ear.name))
    for _ in played(exam, person, REFERENCE_TONES, silent=False):
        pass
    return exam


def margin_db(rule: str, delta_db: Array) -> float:
    """How far true shifts at `HZ` are past a rule."""
    places = [HZ.index(f) for f in RULES[rule].frequencies_hz]
    return float(RULES[rule].margin(delta_db[places]))


def decision_at(state: Posterior, factor: float) -> str:
    """What a screen would have decided with this Bayes factor for its limit."""
    stop = state.design.stopping
    if state.p_idle > stop.doubt or not state.converged:
        return "inconclusive"
    if state.log_bf() >= math.log(factor):
        return "changed"
    cleared = state.log_bf() <= -math.log(factor) and not state.uncleared()
    return "unchanged" if cleared else "inconclusive"
