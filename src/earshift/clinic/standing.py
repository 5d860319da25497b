"""What somebody's tests come to: when each ear was tested last, and what its verdicts call for.

A screen is not an audiogram. A full audiogram has thresholds in dB HL at the six frequencies of 29
CFR 1910.95(h)(1); only such a one keeps OSHA's annual date, and only such a one settles what a
screen has raised:

- a screen that found a change calls for a full audiogram;
- one that decided nothing calls for a retest, unless an older change waits already;
- a full audiogram that meets the rule against the baseline calls for a reviewer, and so does one
  that follows either of these and cannot be judged;
- a later "unchanged", by a screen or a full audiogram, ends it; so does a reviewer who closes the
  verdict with a reason, and a professional who makes the audiogram the baseline;
- a reviewer's signature ends the review: of a screen's change the full audiogram is still to be
  done, and of a standard threshold shift that was signed the person is to be told in writing.

An exam that was begun and neither finished nor given up is listed until it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from earshift.clinic.levels import age_correction, complete, levels_of, unreliable
from earshift.clinic.plan import CLINIC_RULE
from earshift.engine.refusal import Refusal
from earshift.engine.rules import AgeCorrection, Rule, as_rule, judge_ear
from earshift.engine.values import EARS
from earshift.engine.verdict import NOTCH
from earshift.records import DoneTest, HistoryOfTests, Person, Standing, StoredTest, Task

UNFINISHED, AUDIOGRAM, RETEST, REVIEW = "unfinished", "audiogram", "retest", "review"
LETTER = "letter"
WAITING, CONFIRMED, NOT_CONFIRMED, CLOSED = "waiting", "confirmed", "not confirmed", "closed"


def standing_of(history: HistoryOfTests, *, age_corrected: bool = False) -> Standing:
    """What one person's tests come to, with or without age correction of OSHA's rule."""
    tasks = [
        Task(UNFINISHED, test.ear, test.day.toordinal(), test.id)
        for test in history.tests
        if test.state in ("open", "paused") and test.day is not None
    ]
    done = [test for test in history.tests if test.state == "done"]
    ears = {
        ear: _Ear(
            [test for test in done if test.ear == ear],
            history.baselines.get(ear),
            history.person if age_corrected else None,
        )
        for ear in EARS
    }
    pending = [
        Task(why, ear, _ordinal(one.test), one.test.id)
        for ear, of_ear in ears.items()
        if (one := of_ear.pending) is not None
        for why in (one.why, *((REVIEW,) if one.why == AUDIOGRAM and not one.test.signed else ()))
    ]
    pending += [
        Task(LETTER, test.ear, test.shift_since.toordinal(), test.id)
        for test in done
        if test.shift_since is not None and not test.letter_sent and not test.closed
    ]
    full_day, full_ears = _oldest({ear: of_ear.full_on for ear, of_ear in ears.items()})
    any_day, any_ears = _oldest({ear: of_ear.tested_on for ear, of_ear in ears.items()})
    return Standing(
        full_day=full_day,
        full_ears=full_ears,
        any_day=any_day,
        any_ears=any_ears,
        tasks=(*tasks, *_together(pending)),
        tested=tuple(
            DoneTest(test.id, ear, test.day.toordinal(), complete(test), of_ear.shift(test))
            for ear, of_ear in ears.items()
            for test in of_ear.tests
            if test.day is not None
        ),
    )


def _ordinal(test: StoredTest) -> int:
    return test.entered[0].toordinal()


def _oldest(last: dict[str, date | None]) -> tuple[int | None, str]:
    """The day that counts for both ears, and the ears that it is due of."""
    never = [ear for ear, day in last.items() if day is None]
    if never:
        return None, " ".join(never)
    oldest = min(day for day in last.values() if day is not None)
    return oldest.toordinal(), " ".join(ear for ear, day in last.items() if day == oldest)


def _together(tasks: Sequence[Task]) -> list[Task]:
    """Both ears in one line where the same is to be done because of the same day."""
    found: dict[tuple[str, int], Task] = {}
    for task in tasks:
        first = found.get((task.why, task.day))
        ears = task.ears if first is None else f"{first.ears} {task.ears}"
        found[task.why, task.day] = replace(first or task, ears=ears)
    return list(found.values())


def _for_a_notch(test: StoredTest) -> bool:
    return test.kind == "screen" and test.design.get("hypotheses") == NOTCH


@dataclass
class _Pending:
    why: str
    test: StoredTest


@dataclass
class _Ear:
    """The finished tests of one ear in their order, folded into what they call for."""

    tests: list[StoredTest]
    chosen: int | None  # the baseline that a professional chose
    aged: Person | None  # whose shifts are corrected for age; None: nobody's are
    pending: _Pending | None = None
    full_on: date | None = None
    tested_on: date | None = None
    shifts: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.levels = {test.id: levels_of(test) for test in self.tests}
        usable = (
            test.id
            for test in self.tests
            if self.levels[test.id] is not None and not unreliable(test)
        )
        self.baseline = next(usable, None) if self.chosen is None else self.chosen
        self.places = {test.id: place for place, test in enumerate(self.tests)}
        for test in self.tests:
            if test.day is not None:
                self._take(test, test.day)

    def shift(self, test: StoredTest) -> str:
        return self.shifts.get(test.id, "")

    def _take(self, test: StoredTest, day: date) -> None:
        if _for_a_notch(test):  # nobody was asked whether anything has changed
            return
        self.tested_on = day if self.tested_on is None else max(day, self.tested_on)
        if test.kind == "screen":
            self._take_screen(test)
        elif complete(test):
            self.full_on = day if self.full_on is None else max(day, self.full_on)
            self._take_full(test)
        elif unreliable(test) and not test.closed and self.pending is None:
            self.pending = _Pending(RETEST, test)

    def _take_screen(self, test: StoredTest) -> None:
        verdict = (test.shown or {}).get("verdict") or {}
        decision = verdict.get("decision")
        if decision == "changed":
            self.shifts[test.id] = CLOSED if test.closed else WAITING
            self.pending = None if test.closed else _Pending(AUDIOGRAM, test)
        elif decision == "unchanged":
            self._settle(NOT_CONFIRMED)
            self.pending = None
        elif not test.closed and self.pending is None:
            self.pending = _Pending(RETEST, test)

    def _take_full(self, test: StoredTest) -> None:
        decision = self._judged(test)
        if decision == "changed":
            self._settle(CONFIRMED)
            self.shifts[test.id] = CONFIRMED
        elif decision == "unchanged":
            self._settle(NOT_CONFIRMED)
        settled = decision == "unchanged" or test.closed or test.signed or test.id == self.chosen
        if settled:
            self.pending = None
        elif decision == "changed" or self.pending is not None:
            self.pending = _Pending(REVIEW, test)

    def _settle(self, word: str) -> None:
        """What a screen raised, a later test has said more about."""
        self.shifts |= {one: word for one, said in self.shifts.items() if said == WAITING}

    def _judged(self, test: StoredTest) -> str | None:
        """What the rule says of a full audiogram against the baseline; None: nothing to go by."""
        raised = None if self.pending is None else self.pending.test
        rule = ((raised.shown or {}).get("verdict") or {}).get("rule") if raised else None
        against = raised.reference_exam_id if raised else None
        reference = against if self.levels.get(against or 0) is not None else self.baseline
        before, now = self.levels.get(reference or 0), self.levels[test.id]
        if before is None or now is None or self.places[reference or 0] >= self.places[test.id]:
            return None
        asked = _known(rule)
        age = self._age(asked, self.tests[self.places[reference or 0]].day, test.day)
        return judge_ear(asked, before, now, age).decision

    def _age(self, rule: Rule, before: date | None, now: date | None) -> AgeCorrection | None:
        if self.aged is None or now is None or rule.name != CLINIC_RULE:
            return None
        age = age_correction(self.aged, before, now)
        return None if isinstance(age, str) else age


def _known(rule: str | None) -> Rule:
    """The rule of a screen if audiograms can be judged by it, else the clinic's."""
    try:
        return as_rule(rule or CLINIC_RULE)
    except Refusal:
        return as_rule(CLINIC_RULE)
