"""What somebody's tests come to: when each ear was tested last, and what its verdicts call for.

A screen is not an audiogram. A full audiogram has thresholds in dB HL at the six frequencies of 29
CFR 1910.95(h)(1); only such a one keeps OSHA's annual date, and only such a one settles what a
screen has raised:

- a screen that found a change calls for a full audiogram;
- one that decided nothing calls for a retest, unless an older change waits already;
- a full audiogram that meets the rule against the baseline calls for a reviewer; so does one that
  the baseline has too few frequencies for, and one that follows a screen as above and cannot be
  judged;
- a later "unchanged", by a screen or a full audiogram, ends it; so does a reviewer who closes the
  verdict with a reason. Choosing a baseline ends nothing: it counts for the tests after it;
- a screen for a notch that found one calls for a reviewer, and one that decided nothing for a
  retest, until a later one finds none. It says nothing about a change, and a change nothing of it;
- a reviewer's signature ends the review: of a screen's change the full audiogram is still to be
  done, and of a standard threshold shift that was signed the person is to be told in writing.

An exam that was begun and neither finished nor given up is listed until it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from earshift.clinic.levels import age_correction, baseline_of, complete, levels_of, unreliable
from earshift.clinic.plan import CLINIC_RULE
from earshift.engine.age_correction import AgeCorrection
from earshift.engine.question import NO_NOTCH
from earshift.engine.refusal import Refusal
from earshift.engine.rules import Rule, as_rule, judge_ear
from earshift.engine.values import EARS
from earshift.engine.verdict import NOTCH
from earshift.records import (
    ChosenBaseline,
    DoneTest,
    HistoryOfTests,
    Person,
    Standing,
    StoredTest,
    Task,
)

UNFINISHED, AUDIOGRAM, RETEST, REVIEW = "unfinished", "audiogram", "retest", "review"
LETTER = "letter"
WAITING, CONFIRMED, NOT_CONFIRMED, CLOSED = "waiting", "confirmed", "not confirmed", "closed"


def standing_of(history: HistoryOfTests, *, age_corrected: bool = False) -> Standing:
    """What one person's tests come to, with or without age correction of OSHA's rule."""
    begun = [one for one in history.tests if one.state in ("open", "paused")]
    ears_of = {one.id: [other.ear for other in begun if other.id == one.id] for one in begun}
    tasks = [
        Task(UNFINISHED, " ".join(ears_of[test.id]), test.day.toordinal(), test.id)
        for test in {one.id: one for one in begun}.values()
        if test.day is not None
    ]
    done = [test for test in history.tests if test.state == "done"]
    ears = {
        ear: _Ear(
            [test for test in done if test.ear == ear],
            history.baselines.get(ear, ()),
            history.person if age_corrected else None,
        )
        for ear in EARS
    }
    pending = [
        Task(why, ear, _ordinal(one.test), one.test.id)
        for ear, of_ear in ears.items()
        for one in (of_ear.pending, of_ear.notch)
        if one is not None
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
        # An ear may have two such: a change and a notch.
        ears = " ".join(dict.fromkeys([*(first.ears.split() if first else ()), task.ears]))
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
    chosen: Sequence[ChosenBaseline]  # baselines, as they were chosen
    aged: Person | None  # whose shifts are corrected for age; None: nobody's are
    pending: _Pending | None = None
    notch: _Pending | None = None
    full_on: date | None = None
    tested_on: date | None = None
    shifts: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.levels = {test.id: levels_of(test) for test in self.tests}
        self.places = {test.id: place for place, test in enumerate(self.tests)}
        for test in self.tests:
            if test.day is not None:
                self._take(test, test.day)

    def shift(self, test: StoredTest) -> str:
        return self.shifts.get(test.id, "")

    def _take(self, test: StoredTest, day: date) -> None:
        if _for_a_notch(test):  # nobody was asked whether anything has changed
            self._take_notch(test)
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

    def _take_notch(self, test: StoredTest) -> None:
        decision = ((test.shown or {}).get("verdict") or {}).get("decision")
        if decision == NOTCH:
            self.notch = None if test.closed or test.signed else _Pending(REVIEW, test)
        elif decision == NO_NOTCH:
            self.notch = None
        elif not test.closed and self.notch is None:
            self.notch = _Pending(RETEST, test)

    def _take_full(self, test: StoredTest) -> None:
        decision = self._judged(test)
        if decision == "changed":
            self._settle(CONFIRMED)
            self.shifts[test.id] = CONFIRMED
        elif decision == "unchanged":
            self._settle(NOT_CONFIRMED)
        if decision == "unchanged" or test.closed or test.signed:
            self.pending = None
        elif decision is not None or self.pending is not None:
            self.pending = _Pending(REVIEW, test)

    def _settle(self, word: str) -> None:
        """What a screen raised, a later test has said more about."""
        self.shifts |= {one: word for one, said in self.shifts.items() if said == WAITING}

    def _judged(self, test: StoredTest) -> str | None:
        """What the rules say of a full audiogram; None: there is nothing to go by.

        The clinic's rule is asked against the baseline. Of one that follows a screen, so is the
        screen's rule against what that was compared with, and a change by either is a change.
        """
        before = self.tests[: self.places[test.id]]
        asked = [(as_rule(CLINIC_RULE), baseline_of(test, before, self.chosen))]
        if self.pending is not None:
            raised = self.pending.test
            rule = ((raised.shown or {}).get("verdict") or {}).get("rule")
            against = next((one for one in before if one.id == raised.reference_exam_id), None)
            asked.append((_known(rule), against))
        found = {self._compared(rule, one, test) for rule, one in asked} - {None}
        words = ("changed", "unchanged", *found)
        return next((word for word in words if word in found), None)

    def _compared(self, rule: Rule, reference: StoredTest | None, test: StoredTest) -> str | None:
        then = None if reference is None else self.levels[reference.id]
        now = self.levels[test.id]
        if reference is None or then is None or now is None:
            return None
        return judge_ear(rule, then, now, self._age(rule, reference.day, test.day)).decision

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
