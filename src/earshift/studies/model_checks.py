"""Whether the numbers of a screen are what they say: ears of the model, calibration, brute force.

Ears of the model are drawn from a reference's own persons, on either side of the rule, and answer
as the model says. For calibration real ears change as the model's do, and listeners are standard.
Brute force weighs five million persons of the prior by all answers; nobody is moved.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from earshift.engine.persons import cloud
from earshift.engine.persons.answers import AnswerModel
from earshift.engine.persons.design import Design
from earshift.engine.persons.people import Newcomer, Persons
from earshift.engine.persons.posterior import Posterior
from earshift.engine.rules import RULES
from earshift.engine.tone import Tone
from earshift.studies.case import Case, Ear, Row, seed_of
from earshift.studies.rules import RULE_NAMES, Condition, modelled, true_shift
from earshift.studies.sittings import (
    EXAM_HZ,
    HZ,
    MAX_TONES,
    STANDARD,
    Answerer,
    Manner,
    begin_exam,
    begin_screen,
    examined,
    played,
)

Array = NDArray[np.float64]

CHECKED_TONES = (5, 10, 15)
MODEL, REAL = "model", "real"


class ModelPerson(Answerer):
    """Somebody who answers exactly as the model says, attention included."""

    def __init__(self, persons: Persons, which: int, model: AnswerModel, seed: int) -> None:
        rng = np.random.default_rng((seed, 6))
        manner = Manner(
            spread_db=float(np.exp(persons.log_spread[which, 0])),
            lapse=float(persons.lapse[which]),
            guess=float(rng.choice(model.guesses, p=np.array(model.guess_weights))),
        )
        super().__init__(persons.after[which, 0], manner, seed)
        self._chance, self._model = rng, model
        self._attentive = bool(rng.random() >= model.off_at_start)

    def hears(self, tone: Tone) -> bool:
        heard = super().hears(tone) if self._attentive else self.presses()
        stays = self._chance.random() >= self._model.goes_off
        self._attentive = (
            stays if self._attentive else bool(self._chance.random() < self._model.comes_back)
        )
        return heard


@dataclass(frozen=True)
class ModelCase(Case):
    """Screens without stopping, as many of ears that meet the rule as of ears that do not."""

    ear: Ear
    truth: str = MODEL  # or REAL: this very ear with a standard listener
    draws: int = 4
    seed: int = 0
    columns: ClassVar[tuple[str, ...]] = (
        "truth", "rule", "ear", "draw", "met", *(f"log_bf_{n}" for n in CHECKED_TONES),
        "highest", "lowest",
    )  # fmt: skip

    def rows(self) -> list[Row]:
        reference = examined(self.ear, STANDARD, self.seed)
        levels = np.array([level for _, level in self.ear.thresholds_db_hl])
        tones = MAX_TONES if self.truth == MODEL else CHECKED_TONES[-1]
        out: list[Row] = []
        for rule in RULE_NAMES:
            own_seed = seed_of(self.seed, self.ear.name, "source")
            source = begin_screen(reference, RULES[rule], own_seed).state
            if len(source.clouds) < 2:  # too loud for the rule to be judged
                continue
            for side in (0, 1):
                there = source.clouds[side]
                assert there is not None
                for draw in range(self.draws):
                    seed = seed_of(self.seed, self.ear.name, rule, side, draw, self.truth)
                    persons = there.persons
                    person: Answerer
                    if self.truth == MODEL:
                        person = ModelPerson(persons, draw, source.design.answers, seed)
                    else:
                        delta = persons.after[draw, 0] - persons.before[draw, 0]
                        person = Answerer(levels + delta, STANDARD, seed)
                    screen = begin_screen(reference, RULES[rule], seed)
                    path = [state.log_bf() for state in played(screen, person, tones)]
                    out.append((
                        self.truth, rule, self.ear.name, draw, bool(side),
                        *(float(path[n - 1]) for n in CHECKED_TONES),
                        float(max(path)), float(min(path)),
                    ))  # fmt: skip
        return out


# Brute force -----------------------------------------------------------------------------------

BRUTE_TONES = 15
BRUTE_DRAWS = 5_000_000
BATCH = 20_000
REPLICATES = 4
BRUTE_CONDITIONS = ("unchanged", "flat 15 dB", "high 20 dB", "notch 20 dB", "6 kHz alone 30 dB")


def exact_log_evidence(state: Posterior, draws: int, seed: int) -> tuple[Array, Array]:
    """Log P(answers so far | side) after each tone, and effective draws: both (tones, 2)."""
    design, told = state.design, state.told
    rng = np.random.default_rng((seed, 31))
    total, squares, count = np.zeros((len(told), 2)), np.zeros((len(told), 2)), np.zeros(2)
    for _ in range(max(draws // BATCH, 1)):
        persons = design.prior.draw(rng, BATCH, design.answers)
        side = design.sides(persons)
        phis = cloud.phis(persons, told)
        mass = design.answers.at_start(BATCH)
        for k, trial in enumerate(told):
            mass = design.answers.told(mass, phis[k], persons.lapse, trial.heard)
            weights = mass.sum(axis=(0, 1))
            total[k] += np.bincount(side, weights, 2)
            squares[k] += np.bincount(side, weights**2, 2)
        count += np.bincount(side, minlength=2)
    return np.log(total / count), total**2 / squares


@dataclass(frozen=True)
class BruteCase(Case):
    """One screen without stopping, by the cloud with several seeds and by brute force."""

    ear: Ear
    condition: Condition
    rule: str
    draws: int = BRUTE_DRAWS
    seed: int = 0
    columns: ClassVar[tuple[str, ...]] = (
        "rule", "condition", "ear", "tones", "replicate", "log_bf", "exact", "effective",
        "least_effective",
    )  # fmt: skip

    def rows(self) -> list[Row]:
        delta = true_shift(self.ear, self.condition, self.rule, self.seed)
        if delta is None:
            return []
        levels = np.array([level for _, level in self.ear.thresholds_db_hl]) + delta
        seed = seed_of(self.seed, self.ear.name, self.condition.name, self.rule, "brute")
        reference = examined(self.ear, self.condition.reference, self.seed)
        screen = begin_screen(reference, RULES[self.rule], seed)
        person = Answerer(levels, self.condition.manner, seed)
        *_, last = played(screen, person, BRUTE_TONES, silent=False)
        logs, effective = exact_log_evidence(last, self.draws, seed)
        out: list[Row] = []
        for replicate in range(REPLICATES):
            state = Posterior.before_any(replace(last.design, seed=seed_of(seed, replicate)))
            for k, trial in enumerate(last.trials):
                state = state.after(trial)
                out.append((
                    self.rule, self.condition.name, self.ear.name, k + 1, replicate,
                    float(state.log_bf()), float(logs[k, 1] - logs[k, 0]),
                    float(effective[k].min()), float(min(state.effective_size)),
                ))  # fmt: skip
        return out


@dataclass(frozen=True)
class BruteExamCase(Case):
    """One exam: the ends of its intervals, and those of a cloud four times as large and slower."""

    ear: Ear
    spread_db: float
    seed: int = 0
    columns: ClassVar[tuple[str, ...]] = (
        "spread_db", "ear", "tones", "frequency_hz", "end", "level_db", "exact_db",
    )  # fmt: skip

    def rows(self) -> list[Row]:
        levels = [level for _, level in self.ear.thresholds_db_hl]
        seed = seed_of(self.seed, self.ear.name, self.spread_db, "brute")
        person = Answerer(levels, Manner(spread_db=self.spread_db), seed)
        large = Design(
            Newcomer(EXAM_HZ, rounds=16), frequencies_hz=EXAM_HZ, seed=seed + 1, persons=16_000
        )
        out: list[Row] = []
        truth = Posterior.before_any(large)
        for state in played(begin_exam(seed), person, MAX_TONES, silent=False):
            truth = truth.after(state.trials[-1])
            if len(state.trials) in (15, 30):
                own, exact = state.thresholds(HZ), truth.thresholds(HZ)
                out += [
                    (
                        self.spread_db, self.ear.name, len(state.trials), f, end,
                        float(own[which][k]), float(exact[which][k]),
                    )
                    for end, which in (("low", 0), ("high", 2))
                    for k, f in enumerate(HZ)
                ]  # fmt: skip
        return out


def brute_cases(ears: Sequence[Ear], screens: int, seed: int = 0) -> list[BruteCase]:
    """So many screens, conditions and rules in turn."""
    by_name = {c.name: c for c in modelled()}
    cases = []
    for number, ear in enumerate(ears[:screens]):
        condition = by_name[BRUTE_CONDITIONS[number // 2 % len(BRUTE_CONDITIONS)]]
        rule = condition.rules()[number % len(condition.rules())]
        cases.append(BruteCase(ear, condition, rule, seed=seed))
    return cases


def brute_exam_cases(ears: Sequence[Ear], exams: int, seed: int = 0) -> list[BruteExamCase]:
    """So many exams, at spreads of 4, 2 and 8 dB in turn."""
    return [BruteExamCase(e, (4.0, 2.0, 8.0)[k % 3], seed) for k, e in enumerate(ears[:exams])]
