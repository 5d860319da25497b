"""What OSHA's rules say of somebody's full audiograms: standard threshold shift, age, 300 log.

Only a full audiogram with all six frequencies is judged, against the baseline of its ear that was
in force when it was taken: one that is chosen later takes nothing back. The shift is shown with and
without age correction; which of them counts is settled by the site. The 25 dB of the 300 log never
are corrected for age (29 CFR 1904.10(b)(3)), and whether a shift is related to work is a
professional's word.
"""

from collections.abc import Collection

from earshift.acts import ShiftFinding, WorkRelation
from earshift.clinic.levels import age_correction, baseline_of, complete, levels_of
from earshift.clinic.site import site_settings
from earshift.engine.age_correction import AgeCorrection
from earshift.engine.audiogram import Audiogram
from earshift.engine.rules import judge_ear, recordable
from earshift.records import HistoryOfTests, StoredTest
from earshift.store import Store

RULE = "osha-sts"
STS_HZ = (2000.0, 3000.0, 4000.0)


def findings_of(
    store: Store, person_id: int, exam_ids: Collection[int] | None = None
) -> list[ShiftFinding]:
    """Findings of these exams, or of all of the person's, in the order they were taken."""
    history = store.history_of_tests(person_id)
    said = store.work_relations({test.id for test in history.tests})
    corrected = bool(site_settings(store)["age_correction"].value)
    found = []
    for test in history.tests:
        if exam_ids is not None and test.id not in exam_ids:
            continue
        one = _finding(history, test, corrected, said.get((test.id, test.ear)))
        if one is not None:
            found.append(one)
    return found


def _baseline(history: HistoryOfTests, test: StoredTest) -> StoredTest | None:
    of_ear = [one for one in history.tests if one.ear == test.ear and one.state == "done"]
    before = [one for one in of_ear if one.entered < test.entered]
    return baseline_of(test, before, history.baselines.get(test.ear, ()))


def _finding(
    history: HistoryOfTests, test: StoredTest, corrected: bool, word: WorkRelation | None
) -> ShiftFinding | None:
    if test.state != "done" or test.day is None or not complete(test):
        return None
    baseline = _baseline(history, test)
    before, now = None if baseline is None else levels_of(baseline), levels_of(test)
    if baseline is None or before is None or now is None:
        return None
    said = age_correction(history.person, baseline.day, test.day)
    age = said if isinstance(said, AgeCorrection) else None
    plain = judge_ear(RULE, before, now)
    finding = judge_ear(RULE, before, now, age) if corrected else plain
    work_related = None if word is None else word.related
    shifts = [plain.shifts_db[f] for f in STS_HZ if f in plain.shifts_db]
    silent_hz = sorted(now.no_response_db_hl.keys() & before.thresholds_db_hl.keys())
    return ShiftFinding(
        exam_id=test.id,
        ear=test.ear,
        day=test.day,
        baseline_exam_id=baseline.id,
        baseline_day=baseline.day,
        decision=finding.decision,
        shift_db=sum(shifts) / len(STS_HZ) if len(shifts) == len(STS_HZ) else None,
        level_db_hl=_level(now),
        at_least=any(f in now.no_response_db_hl for f in STS_HZ),
        age_db=None if age is None else sum(age.at(f) for f in STS_HZ) / len(STS_HZ),
        age_counts=corrected and age is not None,
        age_missing=said if isinstance(said, str) else "",
        work_related=work_related,
        work_said_by="" if word is None else word.name,
        recordable=recordable(finding, now, work_related),
        closed=test.closed,
        shift_since=test.shift_since,
        baseline_db_hl={f"{f:g}": level for f, level in before.thresholds_db_hl.items()},
        baseline_no_response_db_hl={f"{f:g}": db for f, db in before.no_response_db_hl.items()},
        shifts_db={f"{f:g}": shift for f, shift in _shifts(before, now).items()},
        at_least_hz=tuple(silent_hz),
    )


def _shifts(before: Audiogram, now: Audiogram) -> dict[float, float]:
    """At every frequency with a threshold then, as the rule has them at its own."""
    offset = now.method_offset_db - before.method_offset_db
    levels = {**now.no_response_db_hl, **now.thresholds_db_hl}
    return {
        f: levels[f] - level - offset
        for f, level in sorted(before.thresholds_db_hl.items())
        if f in levels
    }


def _level(now: Audiogram) -> float:
    levels = {**now.thresholds_db_hl, **now.no_response_db_hl}
    return sum(levels[f] for f in STS_HZ) / len(STS_HZ)
