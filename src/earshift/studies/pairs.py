"""Both ears in one sitting on real pairs of ears, beside two sittings of one ear each.

A case is one person of whom both ears were measured. Exams: two of one ear each and one of both,
every one going on to `EXAM_TONES` tones an ear, with the threshold error on the way. Screens: the
same two references, then two screens of one ear each and one of both, under changes of both ears,
of one ear, and of ears drawn from the prior of change.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from earshift.engine import shift
from earshift.engine.both_ears import trials_of
from earshift.engine.cross_hearing import INTERAURAL_DB
from earshift.engine.exam import Exam
from earshift.engine.reference import audiogram_of
from earshift.engine.refusal import Refusal
from earshift.engine.rule_settings import P_SAME_CHANGE, RuleSettings
from earshift.engine.rules import RULES
from earshift.engine.screen import Screen
from earshift.engine.thresholds import Threshold
from earshift.engine.values import EARS
from earshift.simulate.listener import Listener
from earshift.simulate.run import run
from earshift.studies.case import Case, Ear, Row, seed_of
from earshift.studies.ears import read_half
from earshift.studies.rules import (
    GUESS,
    LAPSE,
    MAX_TONES,
    RULE_NAMES,
    SPREAD_DB,
    Condition,
    Shifted,
    change_of,
    reference_exam,
    shifted,
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
    """Both ears of so many people, drawn from one half of them."""
    both = all_pairs(path, half)
    if len(both) < count:
        raise Refusal(f"the {half} half of {path.name} has {len(both)} pairs, not {count}")
    chosen = np.random.default_rng((seed, 23)).permutation(len(both))[:count]
    return [both[k] for k in chosen]


def _mean_square(found: Sequence[Threshold], listener: Listener, low: float, high: float) -> float:
    """Mean squared error of thresholds in dB^2; both sides cut to the levels that can be played."""
    errors = [
        t.level_db_hl - min(max(listener.threshold(t.frequency_hz), low), high) for t in found
    ]
    return float(np.mean(np.square(errors)))


@dataclass(frozen=True)
class PairExamCase(Case):
    """One person: two exams of one ear and one exam of both."""

    pair: Pair
    seed: int = 0
    columns: ClassVar[tuple[str, ...]] = (
        "method", "person", "needs_masking", "tones", "mean_square_db2", "flagged",
    )  # fmt: skip

    def _listener(self, ear: str) -> Listener:
        """The same answers for either method as long as it asks the same tones."""
        return Listener(
            dict(self.pair.ear(ear).thresholds_db_hl), spread_db=SPREAD_DB, guess=GUESS,
            lapse=LAPSE, seed=seed_of(self.seed, self.pair.name, ear),
        )  # fmt: skip

    def rows(self) -> list[Row]:
        frequencies = [f for f, _ in self.pair.right.thresholds_db_hl]
        alone = {
            ear: Exam.clinical(seed=seed_of(self.seed, self.pair.name, ear, "exam")) for ear in EARS
        }
        together = Exam.clinical(ears="both", seed=seed_of(self.seed, self.pair.name, "exam"))
        levels = together.domain.intensity.values
        out: list[Row] = []

        def look(method: str, tones: int, found: dict[str, list[Threshold]]) -> None:
            squares = [
                _mean_square(found[ear], listeners[ear], levels[0], levels[-1]) for ear in EARS
            ]
            flagged = sum(t.cross_hearing for ear in EARS for t in found[ear])
            out.append((
                method, self.pair.name, self.pair.needs_masking, tones, float(np.mean(squares)),
                flagged,
            ))  # fmt: skip

        listeners = {ear: self._listener(ear) for ear in EARS}
        for number in range(EVERY, EXAM_TONES + 1, EVERY):
            for ear, exam in alone.items():
                run(exam, listeners[ear], EVERY)
            found = {ear: exam.thresholds(frequencies) for ear, exam in alone.items()}
            look(SEPARATE, 2 * number, found)
        listeners = {ear: self._listener(ear) for ear in EARS}
        for number in range(EVERY, 2 * EXAM_TONES + 1, EVERY):
            run(together, listeners, EVERY)
            found = {ear: together.thresholds(frequencies, ear=ear) for ear in EARS}
            look(JOINT, number, found)
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
    Condition("notch 30 dB", "notch", 30.0),
)
DRAWN = "drawn from the prior"


def pair_conditions() -> dict[str, tuple[Condition, Condition]]:
    """What happened to the right and to the left ear, by name."""
    return {
        "unchanged": (UNCHANGED, UNCHANGED),
        **{f"both {change.name}": (change, change) for change in CHANGES},
        **{f"one {change.name}": (change, UNCHANGED) for change in CHANGES},
    }


@dataclass(frozen=True)
class PairScreenCase(Case):
    """One person: two screens of one ear and screens of both, under all conditions."""

    pair: Pair
    settings: RuleSettings
    conditions: tuple[str, ...]
    shares: tuple[float, ...] = (P_SAME_CHANGE,)  # P(both ears changed alike) that screens believe
    rules: tuple[str, ...] = RULE_NAMES
    seed: int = 0
    columns: ClassVar[tuple[str, ...]] = (
        "rule", "method", "alike_share", "condition", "person", "ear", "margin_db", "beyond",
        "decision", "tones",
    )  # fmt: skip

    def rows(self) -> list[Row]:
        references = {ear: reference_exam(self.pair.ear(ear), self.seed) for ear in EARS}
        out: list[Row] = []
        for condition in self.conditions:
            for name in self.rules:
                now = self._ears_now(condition, name)
                seed = seed_of(self.seed, self.pair.name, condition)
                out += self._rows(name, condition, now, SEPARATE, 0.0, {
                    ear: self._alone(references, ear, name, now[ear], seed) for ear in EARS
                })  # fmt: skip
                for p_same in self.shares:
                    calls = self._together(references, name, now, seed, p_same)
                    out += self._rows(name, condition, now, JOINT, p_same, calls)
        return out

    def _ears_now(self, condition: str, rule: str) -> dict[str, Shifted]:
        if condition != DRAWN:
            states = zip(EARS, pair_conditions()[condition], strict=True)
            return {ear: shifted(self.pair.ear(ear), c, self.seed) for ear, c in states}
        rng = np.random.default_rng(seed_of(self.seed, self.pair.name, rule, DRAWN))
        octaves = np.log2([f for f, _ in self.pair.right.thresholds_db_hl]) - np.log2(1000.0)
        weights = shift.component_weights(RULES[rule], self.settings)
        right, left = (int(rng.choice(weights.size, p=weights)) for _ in EARS)
        if rng.random() < P_SAME_CHANGE:
            left = right
        return {
            ear: Shifted(
                self.pair.ear(ear), change_of(part, octaves, self.settings, rng),
                Condition(DRAWN), seed_of(self.seed, self.pair.name, rule, ear),
            )
            for ear, part in zip(EARS, (right, left), strict=True)
        }  # fmt: skip

    def _alone(
        self, references: Mapping[str, Exam], ear: str, rule: str, now: Shifted, seed: int
    ) -> tuple[str, int]:
        other = audiogram_of(references[EARS[1 - EARS.index(ear)]])
        screen = Screen(
            references[ear], rule=rule, settings=self.settings, seed=seed, other_ear=other
        )
        run(screen, now.listener())
        return screen.decision, len(screen.trials)

    def _together(
        self,
        references: Mapping[str, Exam],
        rule: str,
        now: Mapping[str, Shifted],
        seed: int,
        p_same: float,
    ) -> dict[str, tuple[str, int]]:
        screen = Screen(
            references,
            ears="both",
            rule=rule,
            settings=self.settings,
            seed=seed,
            alike_share=p_same,
        )
        run(screen, {ear: now[ear].listener() for ear in EARS})
        return {
            ear: (decision, len(trials_of(screen.trials, ear)))
            for ear, decision in screen.decisions.items()
        }

    def _rows(
        self,
        rule: str,
        condition: str,
        now: Mapping[str, Shifted],
        method: str,
        p_same: float,
        calls: Mapping[str, tuple[str, int]],
    ) -> list[Row]:
        """One row an ear; an ear left undecided counts all the tones it might have had."""
        out: list[Row] = []
        for ear, (decision, tones) in calls.items():
            margin = float(RULES[rule].margin(now[ear].delta_at(RULES[rule])))
            counted = MAX_TONES if decision == "inconclusive" else tones
            out.append((
                rule, method, p_same, condition, self.pair.name, ear, margin,
                now[ear].beyond(RULES[rule]), decision, counted,
            ))  # fmt: skip
        return out


# P(both ears changed alike) that screens are tried with, beside the default.
BELIEFS = (0.0, 0.25, P_SAME_CHANGE, 0.75)


def parts(
    drawn: Sequence[Pair], people: int, screened: int, sensitivity: int, seed: int = 0
) -> dict[str, list[Any]]:
    """All cases of the study, by the part they belong to."""
    settings = RuleSettings()
    every = (*pair_conditions(), DRAWN)
    some = ("unchanged", "both high 30 dB", "one high 30 dB", DRAWN)
    return {
        "exams": [PairExamCase(pair, seed) for pair in drawn[:people]],
        "screens": [PairScreenCase(pair, settings, every, seed=seed) for pair in drawn[:screened]],
        "shares": [
            PairScreenCase(pair, settings, some, BELIEFS, ("osha-sts",), seed)
            for pair in drawn[:sensitivity]
        ],
    }
