"""Screening by a rule on real ears with known shifts: who is called what, and after how many tones.

A case is one real ear and one manner of answering at its first exam: the reference is measured
once, then the ear is screened under every condition. Truth is the rule on the simulated true shift,
retest jitter included; the jitter is drawn again until the truth is `CLEAR_DB` past the rule or
short of it, so every ear counts. Ears with a threshold beyond `LOUDEST_DB_HL` do not.
"""

import csv
import gzip
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from earshift.engine.exam import ClinicalExam, Exam
from earshift.engine.refusal import Refusal
from earshift.engine.rules import RULES, judge_ear
from earshift.simulate.classical import hughson_westlake
from earshift.simulate.listener import retest_jitter
from earshift.simulate.run import run
from earshift.studies.case import Case, Ear, Row, seed_of
from earshift.studies.ears import people
from earshift.studies.sittings import (
    HZ,
    MAX_TONES,
    OCTAVES,
    STANDARD,
    Answerer,
    Manner,
    begin_screen,
    decision_at,
    examined,
    margin_db,
    played,
)

Array = NDArray[np.float64]

RULE_NAMES = ("osha-sts", "niosh-15")  # msha-sts asks the same of the shift as osha-sts
CLEAR_DB = 4.0
LOUDEST_DB_HL = 95.0
JITTER_SD_DB = 3.0
LOSS_PTA_DB = 25.0
SPARE = 1.2  # ears drawn for each that has to count: some are too loud under some conditions
FACTORS = (100.0, 50.0, 30.0)
MOST_REDRAWS = 500


@dataclass(frozen=True)
class Condition:
    """What happened to the ear, and how the person answers."""

    name: str
    shape: str = "none"  # none, flat, high, notch, low or alone
    size_db: float = 0.0
    hz: float = 0.0  # of a change at one frequency alone
    group: str = "modelled"  # or the way in which the listener is not as assumed, or responders
    manner: Manner = STANDARD
    reference: Manner = STANDARD
    rough_db: float = 0.0  # jitter of each frequency by itself
    given_db: tuple[float, ...] = ()  # the whole true shift, where it was observed

    def shift_db(self) -> Array:
        """The true shift at `HZ` without jitter."""
        if self.shape == "flat":
            return np.full(len(HZ), self.size_db)
        if self.shape == "high":
            return np.asarray(self.size_db / (1.0 + np.exp(-(OCTAVES - math.log2(2.3)) / 0.25)))
        if self.shape == "notch":
            return np.asarray(self.size_db * np.exp(-0.5 * ((OCTAVES - 2.0) / 0.5) ** 2))
        if self.shape == "low":
            return np.asarray(self.size_db / (1.0 + np.exp((OCTAVES - math.log2(1.2)) / 0.25)))
        if self.shape == "alone":
            return np.asarray(self.size_db * (np.array(HZ) == self.hz))
        return np.zeros(len(HZ))

    def rules(self) -> tuple[str, ...]:
        """The rules that it is screened for: one frequency alone is niosh-15's business."""
        return ("niosh-15",) if self.shape == "alone" else RULE_NAMES


def modelled() -> list[Condition]:
    """Listeners as the model has them."""
    return [
        Condition("unchanged"),
        *(Condition(f"flat {db} dB", "flat", float(db)) for db in (15, 20)),
        *(Condition(f"high {db} dB", "high", float(db)) for db in (20, 30)),
        *(Condition(f"notch {db} dB", "notch", float(db)) for db in (20, 25, 30)),
        *(Condition(f"low {db} dB", "low", float(db)) for db in (20, 30)),
        *(Condition(f"{k} kHz alone 30 dB", "alone", 30.0, 1000.0 * k) for k in (4, 6)),
    ]


CARELESS = Manner(spread_db=6.0, lapse=0.06, guess=0.05)
OTHERWISE: dict[str, dict[str, Any]] = {
    "three misses": {"manner": Manner(spell=True)},
    "guesses 5 %": {"manner": Manner(guess=0.05)},
    "guesses 8 %": {"manner": Manner(guess=0.08)},
    "lapses 5 %": {"manner": Manner(lapse=0.05)},
    "lapses 10 %": {"manner": Manner(lapse=0.10)},
    "spread 2 dB": {"manner": Manner(spread_db=2.0), "reference": Manner(spread_db=2.0)},
    "spread 8 dB": {"manner": Manner(spread_db=8.0), "reference": Manner(spread_db=8.0)},
    "rough jitter 4 dB": {"rough_db": 4.0},
    "drift 3 dB": {"manner": Manner(drift_db=3.0)},
    "careless reference": {"reference": CARELESS},
}
RESPONDERS = ("never", "always", "coin")


def conditions() -> list[Condition]:
    """All of them: as modelled, listeners that are not as assumed, people who do not listen."""
    main = modelled()
    some = [c for c in main if c.name in ("unchanged", "flat 20 dB", "high 20 dB")]
    others = [
        replace(c, name=f"{group}, {c.name}", group=group, **changes)
        for group, changes in OTHERWISE.items()
        for c in some
    ]
    idle = [
        Condition(f"responder: {who}", group="responders", manner=Manner(responder=who))
        for who in RESPONDERS
    ]
    return [*main, *others, *idle]


def true_shift(ear: Ear, condition: Condition, rule: str, seed: int) -> Array | None:
    """A true shift at `HZ` that counts: clear of the rule and not too loud. None: there is none."""
    levels = np.array([level for _, level in ear.thresholds_db_hl])
    places = [HZ.index(f) for f in RULES[rule].frequencies_hz]
    rng = np.random.default_rng(seed_of(seed, ear.name, condition.name, rule, "jitter"))
    for _ in range(MOST_REDRAWS):
        if condition.given_db:
            delta = np.array(condition.given_db)
        else:
            rough = condition.rough_db * rng.standard_normal(len(HZ))
            delta = condition.shift_db() + retest_jitter(OCTAVES, JITTER_SD_DB, rng) + rough
        if abs(margin_db(rule, delta)) >= CLEAR_DB:
            loudest = np.maximum(levels, levels + delta)[places].max()
            return delta if loudest <= LOUDEST_DB_HL else None
        if condition.given_db:
            return None
    return None


def has_loss(ear: Ear) -> bool:
    """Whether the mean of 500, 1000 and 2000 Hz is above 25 dB HL."""
    return float(np.mean([level for _, level in ear.thresholds_db_hl[:3]])) > LOSS_PTA_DB


@dataclass(frozen=True)
class RuleCase(Case):
    """One real ear and its reference exam, screened under all conditions that share it."""

    ear: Ear
    conditions: tuple[Condition, ...]
    seed: int = 0
    columns: ClassVar[tuple[str, ...]] = (
        "rule", "group", "condition", "ear", "loss", "margin_db", "decision", "reason",
        "reliability", "tones", "silent", "log_bf", "effective", "decision_50", "tones_50",
        "decision_30", "tones_30",
    )  # fmt: skip

    def rows(self) -> list[Row]:
        wanted = [
            (condition, rule, delta)
            for condition in self.conditions
            for rule in condition.rules()
            if (delta := true_shift(self.ear, condition, rule, self.seed)) is not None
        ]
        if not wanted:
            return []
        reference = examined(self.ear, wanted[0][0].reference, self.seed)
        return [self._screen(reference, *which) for which in wanted]

    def _screen(self, reference: Exam, condition: Condition, rule: str, delta: Array) -> Row:
        seed = seed_of(self.seed, self.ear.name, condition.name, rule)
        levels = np.array([level for _, level in self.ear.thresholds_db_hl]) + delta
        person = Answerer(levels, condition.manner, seed)
        screen = begin_screen(reference, RULES[rule], seed)
        sooner: dict[float, tuple[str, int]] = {}
        least = math.inf
        for state in played(screen, person, MAX_TONES):
            for factor in FACTORS[1:]:
                found = decision_at(state, factor)
                if found != "inconclusive":
                    sooner.setdefault(factor, (found, len(state.trials)))
            least = min(least, *state.effective_size)
            if screen.done:
                break
        verdict = screen.verdict(HZ)
        undecided = ("inconclusive", verdict.tones)
        return (
            rule, condition.group, condition.name, self.ear.name, has_loss(self.ear),
            margin_db(rule, delta), verdict.decision, verdict.reason, verdict.reliability,
            verdict.tones, verdict.catch_trials, verdict.log_bf, float(least),
            *sooner.get(50.0, undecided), *sooner.get(30.0, undecided),
        )  # fmt: skip


# Beside other methods ------------------------------------------------------------------------

METHOD_WORDS = {
    "audiograms": "two Hughson-Westlake audiograms",
    "twice": "15 dB twice: the second audiogram confirmed by a third",
    "bald": "BALD 30 tones, then compare",
}
BALD_CONDITIONS = ("unchanged", "flat 20 dB", "high 20 dB", "notch 20 dB", "4 kHz alone 30 dB")


@dataclass(frozen=True)
class ComparedCase(Case):
    """One real ear under the modelled conditions, tested as people do today."""

    ear: Ear
    methods: tuple[str, ...]
    seed: int = 0
    columns: ClassVar[tuple[str, ...]] = (
        "rule", "method", "condition", "ear", "margin_db", "decision", "tones",
    )  # fmt: skip

    def rows(self) -> list[Row]:
        levels = np.array([level for _, level in self.ear.thresholds_db_hl])
        then = hughson_westlake(
            Answerer(levels, STANDARD, seed_of(self.seed, self.ear.name, "audiogram"))
        ).audiogram
        first = examined(self.ear, STANDARD, self.seed) if "bald" in self.methods else None
        out: list[Row] = []
        for condition in modelled():
            for rule in condition.rules():
                delta = true_shift(self.ear, condition, rule, self.seed)
                if delta is None:
                    continue
                seed = seed_of(self.seed, self.ear.name, condition.name, rule)
                person = Answerer(levels + delta, STANDARD, seed)
                found: dict[str, tuple[str, int]] = {}
                now = hughson_westlake(person)
                decision = judge_ear(rule, then, now.audiogram).decision
                found["audiograms"] = (decision, now.tones)
                if rule == "niosh-15":
                    found["twice"] = found["audiograms"]
                    if decision == "changed":
                        again = hughson_westlake(person)
                        both = [
                            {
                                f
                                for f, level in a.audiogram.thresholds_db_hl.items()
                                if level - then.thresholds_db_hl.get(f, level) >= 15.0
                            }
                            for a in (now, again)
                        ]
                        called = "changed" if both[0] & both[1] else "unchanged"
                        found["twice"] = (called, now.tones + again.tones)
                if first is not None and condition.name in BALD_CONDITIONS:
                    found["bald"] = (_bald(first, levels + delta, rule, seed), MAX_TONES)
                out += [
                    (rule, method, condition.name, self.ear.name, margin_db(rule, delta), *call)
                    for method, call in found.items()
                    if method in self.methods
                ]
        return out


def _bald(first: ClinicalExam, levels_db: Array, rule: str, seed: int) -> str:
    """A second exam that asks for what it knows least, and the rule on the two exams' medians."""
    exam = Exam(
        seed=seed, max_tones=MAX_TONES, domain="audiometer", halton_tones=5, guess=STANDARD.guess,
        lapse=STANDARD.lapse,
    )  # fmt: skip
    run(exam, Answerer(levels_db, STANDARD, seed))
    then, now = (np.array([t.level_db_hl for t in e.thresholds(HZ)]) for e in (first, exam))
    return "changed" if margin_db(rule, now - then) >= 0.0 else "unchanged"


# Ears and cases ------------------------------------------------------------------------------


def dithered(name: str, levels_db: Sequence[float], seed: int) -> Ear:
    """An ear whose readings in 5 dB steps are spread over their steps."""
    rng = np.random.default_rng(seed_of(seed, name, "dither"))
    levels = np.array(levels_db) + rng.uniform(-2.5, 2.5, len(HZ))
    return Ear(name, tuple(zip(HZ, map(float, levels), strict=True)))


def drawn_ears(path: Path, half: str, count: int, seed: int = 0) -> list[Ear]:
    """Real ears, one a person, with and without a hearing loss in turn; readings dithered."""
    kinds: dict[bool, list[Ear]] = {True: [], False: []}
    for ear in people(path, half, None, seed):
        kinds[has_loss(ear)].append(ear)
    pairs = zip(kinds[True], kinds[False], strict=False)
    ears = [ear for pair in pairs for ear in pair][:count]
    if len(ears) < count:
        raise Refusal(
            f"the {half} half of {path.name} has {len(ears)} people, half of them with a hearing "
            f"loss, not {count}"
        )
    return [dithered(e.name, [level for _, level in e.thresholds_db_hl], seed) for e in ears]


def worker_cases(path: Path, half: str, count: int, seed: int = 0) -> list[RuleCase]:
    """Real pairs of consecutive audiograms: odd workers for figures, even ones for learning."""
    parity = {"tuning": 0, "held-back": 1}[half]
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["worker"]) % 2 == parity]
    order = np.random.default_rng((seed, 29)).permutation(len(rows))
    cases = []
    for k in order[:count]:
        row = rows[k]
        name = f"worker {row['worker']} pair {k}"
        then, now = (
            dithered(f"{name} {when}", [float(row[f"{when}_{f:g}"]) for f in HZ], seed)
            for when in ("before", "after")
        )
        delta = tuple(
            b - a
            for (_, a), (_, b) in zip(then.thresholds_db_hl, now.thresholds_db_hl, strict=True)
        )
        condition = Condition("pairs of workers", group="workers", given_db=delta)
        cases.append(RuleCase(then, (condition,), seed))
    return cases


def rule_cases(ears: Sequence[Ear], seed: int = 0) -> list[RuleCase]:
    """Every ear under every condition, ear by ear; a case for each kind of reference."""
    every = conditions()
    manners = list(dict.fromkeys(c.reference for c in every))
    return [
        RuleCase(ear, tuple(c for c in every if c.reference == manner), seed)
        for ear in ears
        for manner in manners
    ]


def compared_cases(
    ears: Sequence[Ear], compared: int, bald: int, seed: int = 0
) -> list[ComparedCase]:
    """So many ears tested by audiograms, and so many by BALD."""
    return [
        *(ComparedCase(ear, ("audiograms", "twice"), seed) for ear in ears[:compared]),
        *(ComparedCase(ear, ("bald",), seed) for ear in ears[:bald]),
    ]


def spared(people: int) -> int:
    """How many ears are drawn so that so many count."""
    return math.ceil(SPARE * people)
