"""First exams of real ears: threshold error and whether intervals hold the truth, beside others."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from earshift.engine.exam import Exam
from earshift.engine.persons.answers import AnswerModel
from earshift.engine.persons.design import Design
from earshift.engine.persons.people import Newcomer, Persons
from earshift.engine.persons.posterior import Posterior
from earshift.engine.tone import Tone, Trial
from earshift.simulate.classical import hughson_westlake
from earshift.simulate.run import run
from earshift.studies.case import Case, Ear, Row, seed_of
from earshift.studies.sittings import EXAM_HZ, HZ, Answerer, Manner, begin_exam, played

if TYPE_CHECKING:
    import polars as pl

Array = NDArray[np.float64]

MARKS = (10, 20, 30, 40, 50)  # tones after which thresholds are read
SPREADS_DB = (2.0, 4.0, 8.0)
OWN, IDEAL, FIELD, MANUAL, PEER = "earshift", "ideal", "field", "manual", "aepsych"
METHOD_WORDS = {
    OWN: "earshift",
    IDEAL: "ideal observer: the same prior, spread and rates known",
    FIELD: "Gaussian-process field: `Exam.clinical` of version 0.1.0",
    MANUAL: "Hughson-Westlake, 5 dB steps",
    PEER: "AEPsych's Gaussian process and BALD with its defaults: any level and frequency",
}
UNKNOWN = -1  # in place of whether an interval held the truth, where there is none
IDEAL_PERSONS = 8000


@dataclass(frozen=True)
class KnownSpread(Newcomer):
    """A newcomer whose spread is known."""

    spread_db: float = 4.0

    def draw(self, rng: np.random.Generator, count: int, answers: AnswerModel) -> Persons:
        persons = super().draw(rng, count, answers)
        return replace(persons, log_spread=np.full((count, self.ears), math.log(self.spread_db)))


def begin_ideal(manner: Manner, seed: int) -> Posterior:
    """An exam by somebody who knows all about the listener except the thresholds."""
    answers = AnswerModel(
        guesses=(manner.guess,), guess_weights=(1.0,), lapses=(manner.lapse,), lapse_weights=(1.0,),
        off_at_start=0.0, goes_off=0.0, idle_prior=1e-9,
    )  # fmt: skip
    prior = KnownSpread(EXAM_HZ, spread_db=manner.spread_db)
    return Posterior.before_any(
        Design(prior, frequencies_hz=EXAM_HZ, seed=seed, answers=answers, persons=IDEAL_PERSONS)
    )


def ideally_played(state: Posterior, person: Answerer, tones: int) -> Iterator[Posterior]:
    """So many tones that the ideal observer wants: what is known after each."""
    for _ in range(tones):
        place, level = state.best()
        tone = Tone(state.design.frequencies_hz[place], state.design.levels_db[level])
        state = state.after(Trial(tone, person.hears(tone)))
        yield state


@dataclass(frozen=True)
class ExamCase(Case):
    """One real ear examined by one method."""

    ear: Ear
    method: str
    spread_db: float = 4.0
    seed: int = 0
    columns: ClassVar[tuple[str, ...]] = (
        "method", "spread_db", "ear", "tones", "frequency_hz", "error_db", "covered", "width_db",
    )  # fmt: skip

    def rows(self) -> list[Row]:
        manner = Manner(spread_db=self.spread_db)
        truth = np.array([level for _, level in self.ear.thresholds_db_hl])
        person = Answerer(truth, manner, seed_of(self.seed, self.ear.name, self.spread_db))
        seed = seed_of(self.seed, self.ear.name, "exam")
        out: list[Row] = []

        def read(tones: int, low: Array, middle: Array, high: Array) -> None:
            for k, f in enumerate(HZ):
                covered = int(low[k] <= truth[k] <= high[k])
                out.append((
                    self.method, self.spread_db, self.ear.name, tones, f,
                    float(middle[k] - truth[k]), covered, float(high[k] - low[k]),
                ))  # fmt: skip

        if self.method == MANUAL:
            found = hughson_westlake(person)
            return [
                (
                    self.method, self.spread_db, self.ear.name, found.tones, f,
                    float(found.audiogram.thresholds_db_hl[f] - level), UNKNOWN, math.nan,
                )
                for f, level in self.ear.thresholds_db_hl
                if f in found.audiogram.thresholds_db_hl
            ]  # fmt: skip
        if self.method == FIELD:
            exam = Exam(
                seed=seed, max_tones=MARKS[-1], domain="audiometer", strategy="level_set",
                halton_tones=5, guess=manner.guess, lapse=manner.lapse,
            )  # fmt: skip
            for before, tones in zip((0, *MARKS), MARKS, strict=False):
                run(exam, person, tones - before)
                found_at = exam.thresholds(HZ)
                read(
                    tones, *(
                        np.array([getattr(t, name) for t in found_at])
                        for name in ("low_db_hl", "level_db_hl", "high_db_hl")
                    ),
                )  # fmt: skip
            return out
        states = (
            played(begin_exam(seed, MARKS[-1]), person, MARKS[-1], silent=False)
            if self.method == OWN
            else ideally_played(begin_ideal(manner, seed), person, MARKS[-1])
        )
        for state in states:
            if len(state.trials) in MARKS:
                read(len(state.trials), *state.thresholds(HZ))
        return out


def exam_cases(ears: Sequence[Ear], beside: int, seed: int = 0) -> list[ExamCase]:
    """Every ear at every spread; of the first ones also what other methods find, at 4 dB."""
    cases = []
    for number, ear in enumerate(ears):
        cases += [ExamCase(ear, OWN, spread, seed) for spread in SPREADS_DB]
        cases += [ExamCase(ear, method, seed=seed) for method in (IDEAL, MANUAL)]
        if number < beside:
            cases.append(ExamCase(ear, FIELD, seed=seed))
    return cases


def beside_peers(frames: Mapping[str, "pl.DataFrame"], path: Path) -> dict[str, "pl.DataFrame"]:
    """The rows of first exams with those that peers gave, where there are any."""
    import polars as pl

    if "exams" not in frames or not path.exists():
        return {}
    own = frames["exams"]
    return {"exams": pl.concat([own, pl.read_csv(path, schema=own.schema)])}
