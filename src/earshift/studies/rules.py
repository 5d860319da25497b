"""Screening by a rule on real ears with known shifts: error rates, tones and calibration.

A case is one real ear: a reference exam of it, then, for every condition, screens of the shifted
ear by every method. Truth is the rule on the simulated true shift, retest jitter included. Ears at
least `CLEAR_DB` past the criterion count as changed, at least so much short of it as unchanged;
those in between are for the curve of calls against the margin.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from earshift.engine import shift
from earshift.engine.audiogram import Audiogram
from earshift.engine.exam import Exam
from earshift.engine.rule_settings import RuleSettings
from earshift.engine.rules import RULES, Rule, judge_ear
from earshift.engine.screen import Screen
from earshift.simulate.classical import hughson_westlake
from earshift.simulate.listener import Listener, retest_jitter
from earshift.simulate.run import run, steps
from earshift.studies.case import Case, Ear, Row, seed_of

Array = NDArray[np.float64]

RULE_NAMES = ("osha-sts", "niosh-15")  # msha-sts asks the same of the shift as osha-sts
METHODS = ("rule", "paper", "bald", "random", "hughson-westlake")
CLEAR_DB = 4.0
LOUDEST_DB_HL = 95.0  # ears with a rule frequency beyond, before or after, are reported apart
MAX_TONES = 30
REFERENCE_TONES = 50
SPREAD_DB = 4.0
GUESS = 0.01
LAPSE = 0.02
JITTER_SD_DB = 3.0


@dataclass(frozen=True)
class Condition:
    """What happened to the ear, and how it is tested."""

    name: str
    shape: str = "none"  # none, flat, high, notch or low
    size_db: float = 0.0
    jitter_sd_db: float = JITTER_SD_DB
    gain_db: float = 0.0  # headphones that play louder than the reference's
    lapse: float = LAPSE

    def shift_db(self, octaves: Array) -> Array:
        """The true shift without jitter (octaves re 1 kHz)."""
        if self.shape == "flat":
            return np.full(octaves.size, self.size_db)
        if self.shape == "high":
            return self.size_db / (1.0 + np.exp(-(octaves - math.log2(2.3)) / 0.25))
        if self.shape == "notch":
            return np.asarray(self.size_db * np.exp(-0.5 * ((octaves - 2.0) / 0.5) ** 2))
        if self.shape == "low":
            return np.asarray(self.size_db / (1.0 + np.exp((octaves - math.log2(1.2)) / 0.25)))
        return np.zeros(octaves.size)


def conditions() -> list[Condition]:
    """All of them; the first part is for every method, the lapse sweep for the rule's own."""
    main = [
        Condition("unchanged, no jitter", jitter_sd_db=0.0),
        Condition("unchanged"),
        Condition("unchanged, jitter 5 dB", jitter_sd_db=5.0),
        *(Condition(f"flat {db} dB", "flat", float(db)) for db in (10, 15, 20, 30)),
        *(Condition(f"high {db} dB", "high", float(db)) for db in (15, 20, 30)),
        *(Condition(f"notch {db} dB", "notch", float(db)) for db in (15, 20, 30)),
        *(Condition(f"low {db} dB", "low", float(db)) for db in (20, 30)),
        Condition("improved 15 dB", "flat", -15.0),
        Condition("headphones +5 dB", gain_db=5.0),
    ]
    swept = [c for c in main if c.name in ("unchanged", "flat 20 dB", "high 20 dB", "notch 20 dB")]
    return main + [
        replace(c, name=f"{c.name}, lapses {lapse:.0%}", lapse=lapse)
        for c in swept
        for lapse in (0.0, 0.05, 0.10)
    ]


def reference_exam(ear: Ear, seed: int, lapse: float = LAPSE, spread_db: float = SPREAD_DB) -> Exam:
    """The earlier exam of a real ear, as a clinic would have measured it with earshift."""
    listener = Listener(
        dict(ear.thresholds_db_hl),
        spread_db=spread_db,
        lapse=lapse,
        guess=GUESS,
        seed=seed_of(seed, ear.name, "reference"),
    )
    exam = Exam.clinical(seed=seed_of(seed, ear.name), max_tones=REFERENCE_TONES)
    return run(exam, listener)


@dataclass(frozen=True)
class Shifted:
    """An ear after a change: its true shift and a listener for every screen."""

    ear: Ear
    delta_db: Array
    condition: Condition
    seed: int
    spread_db: float = SPREAD_DB

    def listener(self) -> Listener:
        """The same answers for every method that asks the same tones."""
        moved = {
            f: level + d - self.condition.gain_db
            for (f, level), d in zip(self.ear.thresholds_db_hl, self.delta_db, strict=True)
        }
        return Listener(
            moved, spread_db=self.spread_db, lapse=self.condition.lapse, guess=GUESS, seed=self.seed
        )

    def delta_at(self, rule: Rule) -> Array:
        known = dict(zip((f for f, _ in self.ear.thresholds_db_hl), self.delta_db, strict=True))
        return np.array([known[f] for f in rule.frequencies_hz])

    def beyond(self, rule: Rule) -> bool:
        """Whether a threshold of the rule lies past the loudest level that is scored."""
        levels = dict(self.ear.thresholds_db_hl)
        before = np.array([levels[f] for f in rule.frequencies_hz])
        loudest = np.maximum(before, before + self.delta_at(rule)).max()
        return bool(loudest > LOUDEST_DB_HL)


def shifted(ear: Ear, condition: Condition, seed: int, spread_db: float = SPREAD_DB) -> Shifted:
    """An ear under a condition; its jitter is the same draw under all of them."""
    octaves = np.log2(np.array([f for f, _ in ear.thresholds_db_hl]) / 1000.0)
    rng = np.random.default_rng(seed_of(seed, ear.name, "jitter"))
    delta = condition.shift_db(octaves) + retest_jitter(octaves, condition.jitter_sd_db, rng)
    return Shifted(ear, delta, condition, seed_of(seed, ear.name, condition.name), spread_db)


@dataclass(frozen=True)
class RuleCase(Case):
    """One real ear: its reference exam, and screens of it under all conditions."""

    ear: Ear
    settings: RuleSettings
    conditions: tuple[Condition, ...]
    methods: tuple[str, ...] = ("rule",)
    rules: tuple[str, ...] = RULE_NAMES
    seed: int = 0
    columns: ClassVar[tuple[str, ...]] = (
        "rule", "method", "condition", "ear", "margin_db", "beyond", "decision", "tones",
        "p_changed",
    )  # fmt: skip

    def rows(self) -> list[Row]:
        first = reference_exam(self.ear, self.seed)
        unmoved = Condition("at the reference", jitter_sd_db=0.0)
        then = shifted(self.ear, unmoved, self.seed)
        old_manual = (
            hughson_westlake(then.listener()).audiogram
            if "hughson-westlake" in self.methods
            else None
        )
        out: list[Row] = []
        for condition in self.conditions:
            now = shifted(self.ear, condition, self.seed)
            for method in self.methods:
                calls = _calls(method, first, old_manual, now, self.rules, self.settings)
                for name, (decision, tones, p_changed) in calls.items():
                    rule = RULES[name]
                    out.append((
                        name, method, condition.name, self.ear.name,
                        float(rule.margin(now.delta_at(rule))), now.beyond(rule),
                        decision, tones, p_changed,
                    ))  # fmt: skip
        return out


def _call(screen: Screen, listener: Listener) -> tuple[str, int, float]:
    """How a screen ends: decision, tones (all of them if undecided), P(rule met)."""
    run(screen, listener)
    decided = screen.decision in ("changed", "unchanged")
    return screen.decision, len(screen.trials) if decided else screen.max_tones, screen.p_changed


def _calls(
    method: str,
    first: Exam,
    old_manual: Audiogram | None,
    now: Shifted,
    rules: Sequence[str],
    settings: RuleSettings,
) -> dict[str, tuple[str, int, float]]:
    """What a method says of every rule: decision, tones, P(rule met) where there is one."""
    if method in ("rule", "random"):
        chosen = replace(settings, strategy="differential" if method == "rule" else "random")
        return {
            name: _call(Screen(first, rule=name, settings=chosen, seed=now.seed), now.listener())
            for name in rules
        }
    if method == "paper":  # one answer for all rules: it asks whether anything changed
        screen = Screen(first, "paper", seed=now.seed, max_tones=MAX_TONES)
        decision, tones, _ = _call(screen, now.listener())
        return dict.fromkeys(rules, (decision, tones, math.nan))
    if method == "bald":
        exam = Exam(
            seed=now.seed, max_tones=MAX_TONES, domain=first.domain, halton_tones=5,
            guess=first.guess, lapse=first.lapse,
        )  # fmt: skip
        run(exam, now.listener())
        out = {}
        for name in rules:
            frequencies = RULES[name].frequencies_hz
            before, after = (
                np.array([t.level_db_hl for t in e.thresholds(frequencies)]) for e in (first, exam)
            )
            met = RULES[name].margin(after - before) >= 0
            out[name] = ("changed" if met else "unchanged", MAX_TONES, math.nan)
        return out
    assert old_manual is not None
    manual = hughson_westlake(now.listener())
    return {
        name: (judge_ear(name, old_manual, manual.audiogram).decision, manual.tones, math.nan)
        for name in rules
    }


# Calibration -----------------------------------------------------------------------------------

CHECKED_TONES = (5, 10, 15)


@dataclass(frozen=True)
class CalibrationCase(Case):
    """Real ears with shifts drawn from a prior, screened without stopping."""

    ear: Ear
    settings: RuleSettings  # what the screen believes
    true_prevalence: float
    rules: tuple[str, ...] = RULE_NAMES
    draws: int = 4
    seed: int = 0
    columns: ClassVar[tuple[str, ...]] = (
        "rule", "true_prevalence", "ear", "met", "beyond", "tones", "p_changed",
    )  # fmt: skip

    def rows(self) -> list[Row]:
        first = reference_exam(self.ear, self.seed)
        octaves = np.log2(np.array([f for f, _ in self.ear.thresholds_db_hl]) / 1000.0)
        out: list[Row] = []
        for name in self.rules:
            for draw in range(self.draws):
                seed = seed_of(self.seed, self.ear.name, name, draw, self.true_prevalence)
                delta = draw_shift(
                    octaves, replace(self.settings, prevalence=self.true_prevalence),
                    RULES[name], np.random.default_rng(seed),
                )  # fmt: skip
                now = Shifted(self.ear, delta, Condition("drawn"), seed)
                met = bool(RULES[name].margin(now.delta_at(RULES[name])) >= 0)
                screen = Screen(first, rule=name, settings=self.settings, seed=seed)
                played = steps(screen, now.listener(), max(CHECKED_TONES))
                for number, _ in enumerate(played, start=1):
                    if number in CHECKED_TONES:
                        out.append((
                            name, self.true_prevalence, self.ear.name, met,
                            now.beyond(RULES[name]), number, screen.p_changed,
                        ))  # fmt: skip
        return out


def draw_shift(
    octaves: Array, settings: RuleSettings, rule: Rule, rng: np.random.Generator
) -> Array:
    """A true shift in dB from the prior that a screen with these settings holds."""
    weights = shift.component_weights(rule, settings)
    return change_of(int(rng.choice(weights.size, p=weights)), octaves, settings, rng)


def change_of(part: int, octaves: Array, settings: RuleSettings, rng: np.random.Generator) -> Array:
    """A true shift in dB from one component of the prior of change."""
    mean = shift.shift_means(octaves)[part]
    cov = shift.shift_covariances(octaves, octaves, settings.retest_sd_db)[min(part, 1)]
    root = np.linalg.cholesky(cov + 1e-9 * np.eye(octaves.size))
    return np.asarray(mean + root @ rng.standard_normal(octaves.size))


# A full audiogram after a screen ---------------------------------------------------------------

FULL_TONES = 50
FULL_SPREADS_DB = (1.0, 2.0, 4.0, 8.0)
FULL_LAPSE = 0.05
FULL_CONDITIONS = ("flat 20 dB", "high 20 dB", "notch 20 dB")


@dataclass(frozen=True)
class FullCase(Case):
    """A screen, then `continue_exam` to a full audiogram: error against the true thresholds."""

    ear: Ear
    settings: RuleSettings
    conditions: tuple[Condition, ...]
    rule: str = "osha-sts"
    seed: int = 0
    columns: ClassVar[tuple[str, ...]] = (
        "condition", "spread_db", "ear", "frequency_hz", "error_db", "screen_tones",
    )  # fmt: skip

    def rows(self) -> list[Row]:
        out: list[Row] = []
        for spread in FULL_SPREADS_DB:
            first = reference_exam(self.ear, self.seed, FULL_LAPSE, spread)
            for condition in self.conditions:
                now = shifted(self.ear, replace(condition, lapse=FULL_LAPSE), self.seed, spread)
                listener = now.listener()
                screen = Screen(first, rule=self.rule, settings=self.settings, seed=now.seed)
                run(screen, listener)
                exam = run(screen.continue_exam(FULL_TONES), listener)
                for t in exam.thresholds([f for f, _ in self.ear.thresholds_db_hl]):
                    error = t.level_db_hl - listener.threshold(t.frequency_hz)
                    out.append((
                        condition.name, spread, self.ear.name, t.frequency_hz, error,
                        len(screen.trials),
                    ))  # fmt: skip
        return out


# Other limits ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class FrontierCase(Case):
    """Screens without stopping: what other limits would have cost in tones and errors."""

    ear: Ear
    settings: RuleSettings
    conditions: tuple[Condition, ...]
    rules: tuple[str, ...] = RULE_NAMES
    seed: int = 0
    columns: ClassVar[tuple[str, ...]] = (
        "rule", "condition", "ear", "margin_db", "beyond", "tones", "p_changed", "risk",
    )  # fmt: skip

    def rows(self) -> list[Row]:
        first = reference_exam(self.ear, self.seed)
        out: list[Row] = []
        for condition in self.conditions:
            now = shifted(self.ear, condition, self.seed)
            for name in self.rules:
                rule = RULES[name]
                screen = Screen(first, rule=name, settings=self.settings, seed=now.seed)
                played = steps(screen, now.listener(), MAX_TONES)
                for number, _ in enumerate(played, start=1):
                    out.append((
                        name, condition.name, self.ear.name,
                        float(rule.margin(now.delta_at(rule))), now.beyond(rule), number,
                        screen.p_changed, _clearing_risk(screen),
                    ))  # fmt: skip
        return out


def _clearing_risk(screen: Screen) -> float:
    state = screen.state
    assert isinstance(state, shift.ShiftState)
    return state.clearing_risk if state.model.judged else 1.0


def parts(
    ears: Sequence[Ear],
    people: int,
    compared: int,
    calibrated: int,
    full: int,
    frontier: int,
    seed: int = 0,
) -> dict[str, list[Any]]:
    """All cases of the study, by the part they belong to."""
    settings = RuleSettings()
    every = tuple(conditions())
    main = tuple(c for c in every if c.lapse == LAPSE)
    worse = tuple(c for c in main if c.name in ("unchanged", *FULL_CONDITIONS))
    others = METHODS[1:]
    return {
        "calls": [RuleCase(ear, settings, every, seed=seed) for ear in ears[:people]],
        "compared": [RuleCase(ear, settings, main, others, seed=seed) for ear in ears[:compared]],
        "calibration": [
            CalibrationCase(ear, settings, factor * settings.prevalence, seed=seed)
            for factor in (1.0, 0.5, 2.0)
            for ear in ears[:calibrated]
        ],
        "full": [FullCase(ear, settings, worse, seed=seed) for ear in ears[:full]],
        "frontier": [FrontierCase(ear, settings, main, seed=seed) for ear in ears[:frontier]],
    }
