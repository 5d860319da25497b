"""Full audiograms among somebody's tests: their thresholds, whether they are complete, and ages."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from earshift.days import age_on
from earshift.engine.age_correction import AgeCorrection
from earshift.engine.audiogram import Audiogram
from earshift.engine.values import HEARING_LEVEL, RELATIVE_LEVEL
from earshift.records import ChosenBaseline, Person, StoredTest

SIX_HZ = (500.0, 1000.0, 2000.0, 3000.0, 4000.0, 6000.0)  # 29 CFR 1910.95(h)(1)


def levels_of(test: StoredTest) -> Audiogram | None:
    """The thresholds of an audiogram or a finished full exam, in dB HL; None of anything else."""
    if test.kind == "audiogram":
        return Audiogram.from_dict(test.design)
    if test.kind != "exam" or _unit(test.design) == RELATIVE_LEVEL:
        return None
    return levels_shown(test.shown or {})


def levels_shown(shown: Mapping[str, Any]) -> Audiogram | None:
    """The thresholds of one ear's result as it was shown, in its own unit; None without any."""
    if not shown.get("thresholds"):
        return None
    heard: dict[float, float] = {}
    beyond: dict[float, float] = {}
    for one in shown["thresholds"]:
        (beyond if one["censored"] == "above" else heard)[one["frequency_hz"]] = one["level_db_hl"]
    return Audiogram(heard, no_response_db_hl=beyond)


def _unit(design: dict[str, Any]) -> str:
    domain = design.get("domain")
    return HEARING_LEVEL if domain is None else str(domain["intensity"]["unit"])


def unreliable(test: StoredTest) -> bool:
    """Whether silence was reported as heard too often in a full exam."""
    return test.kind == "exam" and (test.shown or {}).get("reliability") == "poor"


def complete(test: StoredTest) -> bool:
    """Whether this is an audiogram as the regulation has it."""
    known = levels_of(test)
    return (
        known is not None
        and not unreliable(test)
        and all(f in known.thresholds_db_hl or f in known.no_response_db_hl for f in SIX_HZ)
    )


def baseline_of(
    test: StoredTest, before: Sequence[StoredTest], chosen: Sequence[ChosenBaseline]
) -> StoredTest | None:
    """What a test is judged against: the baseline of its ear that was in force when it was taken.

    `before` are the ear's finished tests up to it, in their order. A choice counts from the moment
    it is made, so that it changes nothing that was found before: an audiogram that is made the
    baseline still stands against the one before it.
    """
    by_id = {one.id: one for one in before}
    for choice in reversed(chosen):
        one = by_id.get(choice.exam_id)
        counts = test.known_at is not None and choice.at <= test.known_at
        if one is not None and counts and levels_of(one) is not None:
            return one
    usable = (one for one in before if levels_of(one) is not None and not unreliable(one))
    return next(usable, None)


def age_correction(person: Person, before: date | None, now: date) -> AgeCorrection | str:
    """What age alone explains between two days, by Appendix F; or why that cannot be said."""
    if person.birth_date is None:
        return "the date of birth is not recorded"
    if person.sex not in ("male", "female"):
        return "Appendix F has tables for male and female only"
    if before is None:
        return "the baseline has no date"
    ages = age_on(person.birth_date, before), age_on(person.birth_date, now)
    if not 0 <= ages[0] <= ages[1] <= 120:
        return "the date of birth does not go with the days of the tests"
    return AgeCorrection(person.sex, *ages)
