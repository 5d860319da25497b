"""What OSHA's rules say of somebody's full audiograms: standard threshold shift, age, 300 log.

Only a full audiogram with all six frequencies is judged, against the baseline of its ear. The shift
is shown with and without age correction; which of them counts is settled by the site. The 25 dB of
the 300 log never are corrected for age (29 CFR 1904.10(b)(3)), and whether a shift is related to
work is a professional's word.
"""

from collections.abc import Collection

from earshift.acts import ShiftFinding, WorkRelation
from earshift.clinic.levels import age_correction, complete, levels_of, unreliable
from earshift.clinic.site import site_settings
from earshift.engine.audiogram import Audiogram
from earshift.engine.rules import AgeCorrection, judge_ear, recordable
from earshift.records import HistoryOfTests, StoredTest
from earshift.store import Store

RULE = "osha-sts"
STS_HZ = (2000.0, 3000.0, 4000.0)


def findings_of(
    store: Store, person_id: int, exam_ids: Collection[int] | None = None
) -> list[ShiftFinding]:
    """Findings of these exams, or of all of the person's, in the order they were taken."""
    history = store.history_of_tests(person_id)
    said = store.work_relations([test.id for test in history.tests])
    corrected = bool(site_settings(store)["age_correction"].value)
    found = []
    for test in history.tests:
        if exam_ids is not None and test.id not in exam_ids:
            continue
        one = _finding(history, test, corrected, said.get(test.id))
        if one is not None:
            found.append(one)
    return found


def _baseline(history: HistoryOfTests, test: StoredTest) -> StoredTest | None:
    """What the ear is compared with, if that was taken before this test."""
    of_ear = [one for one in history.tests if one.ear == test.ear and one.state == "done"]
    usable = [one for one in of_ear if levels_of(one) is not None and not unreliable(one)]
    chosen = history.baselines.get(test.ear)
    baseline = next((one for one in usable if chosen is None or one.id == chosen), None)
    return None if baseline is None or baseline.entered >= test.entered else baseline


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
    )


def _level(now: Audiogram) -> float:
    levels = {**now.thresholds_db_hl, **now.no_response_db_hl}
    return sum(levels[f] for f in STS_HZ) / len(STS_HZ)
