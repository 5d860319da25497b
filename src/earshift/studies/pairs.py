"""Both ears in one sitting on real pairs of ears, beside two sittings of one ear each.

A case is one person of whom both ears were measured. Exams: two of one ear each and one of both,
every one going on to `EXAM_TONES` tones an ear, with the threshold error on the way. Screens: the
same two references, then two screens of one ear each and one of both, under changes of both ears
and of one ear.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from earshift.engine.cross_hearing import INTERAURAL_DB
from earshift.engine.ears import trials_of
from earshift.engine.exam import Exam
from earshift.engine.refusal import Refusal
from earshift.engine.screen import Screen
from earshift.engine.thresholds import Threshold
from earshift.engine.values import EARS
from earshift.simulate.run import run
from earshift.studies.case import Case, Ear, Row, seed_of
from earshift.studies.ears import read_half
from earshift.studies.rules import RULE_NAMES, Condition, dithered, true_shift
from earshift.studies.sittings import (
    HZ,
    REFERENCE_TONES,
    STANDARD,
    Answerer,
    margin_db,
)

Array = NDArray[np.float64]

EXAM_TONES = 50  # of an ear
EVERY = 5  # tones between two looks at the error
SEPARATE, JOINT = "two sittings", "both ears"


@dataclass(frozen=True)
class Pair:
    """Both ears of one person."""

    right: Ear
    left: Ear

    @property
    def name(self) -> str:
        return self.right.name.removesuffix(" right")

    def ear(self, ear: str) -> Ear:
        return self.right if ear == "right" else self.left

    def levels(self, ear: str) -> Array:
        """Thresholds of an ear in dB HL at the audiometric frequencies."""
        return np.array([level for _, level in self.ear(ear).thresholds_db_hl])

    @property
    def needs_masking(self) -> bool:
        """Whether one ear might hear tones at the other's threshold."""
        levels = zip(self.right.thresholds_db_hl, self.left.thresholds_db_hl, strict=True)
        return any(abs(a[1] - b[1]) >= INTERAURAL_DB["unknown"] for a, b in levels)


def all_pairs(path: Path, half: str) -> list[Pair]:
    """Both ears of everybody in one half of the people of whom both were measured."""
    rows, frequencies = read_half(path, half, ears=True)
    known: dict[int, dict[str, Ear]] = {}
    for row in rows.iter_rows(named=True):
        side = {"R": "right", "L": "left"}.get(row["ear"])
        if side is None:
            raise Refusal(f"{path.name}: ear must be R or L, got {row['ear']!r}")
        levels = tuple((float(f), float(row[f])) for f in frequencies)
        known.setdefault(row["SEQN"], {})[side] = Ear(f"person {row['SEQN']} {side}", levels)
    return [Pair(ears["right"], ears["left"]) for ears in known.values() if len(ears) == 2]


def pairs(path: Path, half: str, count: int, seed: int = 0) -> list[Pair]:
    """Both ears of so many people, drawn from one half of them; readings dithered."""
    both = all_pairs(path, half)
    if len(both) < count:
        raise Refusal(f"the {half} half of {path.name} has {len(both)} pairs, not {count}")
    chosen = np.random.default_rng((seed, 23)).permutation(len(both))[:count]
    return [Pair(*(_dithered(both[k].ear(ear), seed) for ear in EARS)) for k in chosen]


def _dithered(ear: Ear, seed: int) -> Ear:
    return dithered(ear.name, [level for _, level in ear.thresholds_db_hl], seed)


def _people(ears: Mapping[str, Sequence[float] | Array], *names: object) -> dict[str, Answerer]:
    """Somebody's two ears: the same answers for any method that asks the same tones."""
    return {ear: Answerer(levels, STANDARD, seed_of(*names, ear)) for ear, levels in ears.items()}


@dataclass(frozen=True)
class PairExamCase(Case):
    """One person: two exams of one ear and one exam of both."""

    pair: Pair
    seed: int = 0
    columns: ClassVar[tuple[str, ...]] = (
        "method", "person", "needs_masking", "tones", "mean_square_db2",
    )  # fmt: skip

    def rows(self) -> list[Row]:
        truth = {ear: self.pair.levels(ear) for ear in EARS}
        names = (self.seed, self.pair.name)
        alone = {
            ear: Exam.clinical(seed=seed_of(*names, ear, "exam"), max_tones=EXAM_TONES)
            for ear in EARS
        }
        together = Exam.clinical(
            ears="both", seed=seed_of(*names, "exam"), max_tones=2 * EXAM_TONES
        )
        out: list[Row] = []

        def look(method: str, tones: int, found: Mapping[str, Sequence[Threshold]]) -> None:
            squares = [
                float(np.mean((np.array([t.level_db_hl for t in found[ear]]) - truth[ear]) ** 2))
                for ear in EARS
            ]
            out.append((
                method, self.pair.name, self.pair.needs_masking, tones, float(np.mean(squares)),
            ))  # fmt: skip

        people = _people(truth, *names)
        for number in range(EVERY, EXAM_TONES + 1, EVERY):
            for ear, exam in alone.items():
                run(exam, people[ear], EVERY)
            look(SEPARATE, 2 * number, {ear: exam.thresholds(HZ) for ear, exam in alone.items()})
        people = _people(truth, *names)
        for number in range(EVERY, 2 * EXAM_TONES + 1, EVERY):
            run(together, people, EVERY)
            look(JOINT, number, {ear: together.thresholds(HZ, ear=ear) for ear in EARS})
        return out


# What could be saved at all --------------------------------------------------------------------


def ideal_errors(cov: Array, reading_sd_db: float, tones: int) -> Array:
    """RMS error after 0, 1 .. tones readings, each where it takes most of the variance away.

    A Gaussian population of thresholds with this covariance, known to the observer, and readings
    with independent noise: nobody who shares no more than covariances between ears does better.
    """
    out = [np.trace(cov)]
    for _ in range(tones):
        gains = (cov**2).sum(axis=1) / (np.diag(cov) + reading_sd_db**2)
        k = int(gains.argmax())
        cov = cov - np.outer(cov[k], cov[k]) / (cov[k, k] + reading_sd_db**2)
        out.append(np.trace(cov))
    return np.asarray(np.sqrt(np.array(out) / cov.shape[0]))


def ideal_tones(known: Sequence[Pair], rms_db: float, tones: int) -> float:
    """Tones with which an ideal observer of both ears is as good as one of either ear.

    The noise of a reading is such that `tones` readings in two sittings leave `rms_db`. None are
    needed for an error that the population's spread does not exceed; nan where the error is one
    that so few readings cannot leave, however good they are.
    """
    levels = np.array(
        [[t for ear in EARS for _, t in pair.ear(ear).thresholds_db_hl] for pair in known]
    )
    both = np.cov(levels.T)
    one = both.shape[0] // 2
    apart = (both[:one, :one] + both[one:, one:]) / 2.0

    def excess(sd: float) -> float:
        return float(ideal_errors(apart, sd, tones // 2)[-1] - rms_db)

    if ideal_errors(both, 1.0, 0)[0] <= rms_db:
        return 0.0
    if excess(0.1) > 0.0 or excess(1000.0) < 0.0:
        return math.nan
    sd = float(brentq(excess, 0.1, 1000.0))
    together = ideal_errors(both, sd, tones)
    return tones_to_reach(np.arange(tones + 1.0), together, rms_db)


def tones_to_reach(tones: Array, rms_db: Array, wanted_db: float) -> float:
    """Where a falling curve of errors first reaches an error, on a line between looks."""
    below = np.flatnonzero(rms_db <= wanted_db)
    if not below.size:
        return math.inf
    k = int(below[0])
    if k == 0:
        return float(tones[0])
    fraction = (rms_db[k - 1] - wanted_db) / (rms_db[k - 1] - rms_db[k])
    return float(tones[k - 1] + fraction * (tones[k] - tones[k - 1]))


# Screening -------------------------------------------------------------------------------------

UNCHANGED = Condition("unchanged")
CHANGES = (
    Condition("flat 20 dB", "flat", 20.0),
    Condition("high 30 dB", "high", 30.0),
)


def pair_conditions() -> dict[str, dict[str, Condition]]:
    """What happened to each ear, by name."""
    return {
        "unchanged": dict.fromkeys(EARS, UNCHANGED),
        **{f"both {change.name}": dict.fromkeys(EARS, change) for change in CHANGES},
        **{f"one {c.name}": {"left": UNCHANGED, "right": c} for c in CHANGES},
    }


@dataclass(frozen=True)
class PairScreenCase(Case):
    """One person: two screens of one ear and one of both, under all conditions."""

    pair: Pair
    conditions: tuple[str, ...]
    rules: tuple[str, ...] = RULE_NAMES
    seed: int = 0
    columns: ClassVar[tuple[str, ...]] = (
        "rule", "method", "condition", "person", "ear", "margin_db", "decision", "tones",
    )  # fmt: skip

    def rows(self) -> list[Row]:
        references = {
            ear: run(
                Exam.clinical(seed=seed_of(self.seed, self.pair.name, ear)),
                Answerer(
                    self.pair.levels(ear), STANDARD,
                    seed_of(self.seed, self.pair.name, ear, "reference"),
                ),
                REFERENCE_TONES,
            )
            for ear in EARS
        }  # fmt: skip
        out: list[Row] = []
        for name in self.conditions:
            for rule in self.rules:
                deltas = {
                    ear: true_shift(self.pair.ear(ear), condition, rule, self.seed)
                    for ear, condition in pair_conditions()[name].items()
                }
                shifts = {ear: delta for ear, delta in deltas.items() if delta is not None}
                if len(shifts) == len(EARS):  # else an ear is too loud to be scored
                    out += self._screens(references, name, rule, shifts)
        return out

    def _screens(
        self, references: Mapping[str, Exam], name: str, rule: str, shifts: Mapping[str, Array]
    ) -> list[Row]:
        seed = seed_of(self.seed, self.pair.name, name, rule)
        now = {ear: self.pair.levels(ear) + shifts[ear] for ear in EARS}
        calls: dict[tuple[str, str], tuple[str, int]] = {}
        for ear, person in _people(now, seed).items():
            screen = run(Screen(references[ear], rule=rule, seed=seed), person)
            calls[SEPARATE, ear] = (screen.decision, len(screen.trials))
        both = Screen(dict(references), ears="both", rule=rule, seed=seed)
        run(both, _people(now, seed))
        for ear, decision in both.decisions.items():
            calls[JOINT, ear] = (decision, len(trials_of(both.trials, ear)))
        return [
            (rule, method, name, self.pair.name, ear, margin_db(rule, shifts[ear]), *call)
            for (method, ear), call in calls.items()
        ]


def parts(drawn: Sequence[Pair], people: int, screened: int, seed: int = 0) -> dict[str, list[Any]]:
    """All cases of the study, by the part they belong to."""
    every = tuple(pair_conditions())
    return {
        "exams": [PairExamCase(pair, seed) for pair in drawn[:people]],
        "screens": [PairScreenCase(pair, every, seed=seed) for pair in drawn[:screened]],
    }
