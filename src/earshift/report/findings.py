"""What was found, signed and measured around a visit, in sentences: for reports, pages and letters.

A standard threshold shift is said with its number, its rule and its baseline; corrections for age
and the 300 log stand beside it, each with what it rests on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from earshift.acts import RoomNoise, ShiftFinding, Signature
from earshift.devices.noise import check_noise, noise_words
from earshift.engine.rules import RULES
from earshift.records import VisitBundle


@dataclass(frozen=True)
class ReviewWords:
    """English, unless another language is given field by field."""

    heading: str = "Review"
    ears: Mapping[str, str] = field(
        default_factory=lambda: {"right": "Right ear", "left": "Left ear"}
    )
    means: Mapping[str, str] = field(
        default_factory=lambda: {
            "changed": "a standard threshold shift",
            "unchanged": "no standard threshold shift",
            "not determinable": "whether this is a standard threshold shift cannot be said",
        }
    )
    shift: str = (
        "{ear}: average at 2, 3 and 4 kHz {size} the baseline {baseline}: {means} "
        "(10 dB or more; 29 CFR 1910.95(g)(10)(i))."
    )
    worse: str = "is {least}{db} dB worse than at"
    better: str = "is {db} dB better than at"
    same: str = "is neither worse nor better than at"
    unknown: str = "cannot be compared with"
    at_least: str = "at least "
    dated: str = "of {day}"
    undated: str = "without a date"
    closed: str = "A reviewer closed this verdict: nothing more has to be done about it."
    age_counts: str = (
        "This site corrects for age (29 CFR 1910.95(g)(10)(ii)): {age} dB of it are age alone, "
        "which leaves {rest} dB."
    )
    age_shown: str = "Corrected for age it would be {rest} dB; this site does not correct for age."
    age_missing: str = "It cannot be corrected for age: {why}."
    recordable: str = "Recordable on the OSHA 300 log (29 CFR 1904.10): {answer}."
    level: str = "the average now is {least}{db} dB HL, without age correction ({limit} dB needed)"
    yes: str = "yes"
    no: str = "no"
    undecided: str = "not decided, as nobody has said whether the shift is related to work"
    unsaid: str = "cannot be said"
    related: str = "related to work, says {name}"
    unrelated: str = "not related to work, says {name}"
    noise: str = "Room noise measured on {day}{where}: {levels} SPL; {check}."
    noise_where: str = ", {room}"
    signed: str = "Electronically signed by {name}, {meaning}, on {at}."
    amends: str = "This amends the signature of {name} of {at}."
    account: str = "Account: {author}. SHA-256 of what was signed: {sha256}."
    seal: str = "Seal of all records at that moment (earshift db check --seal): {seal}."
    from_signed: str = "This report is made from what was signed."
    erased: str = "What was signed was erased with the person; its SHA-256 stays."
    unsigned: str = "Nobody has signed this visit."


ENGLISH_REVIEW = ReviewWords()
LIMIT_DB_HL = 25  # 29 CFR 1904.10(a)
STS = RULES["osha-sts"]


def decibels(value: float) -> str:
    """To one decimal, without a needless .0."""
    return f"{round(value, 1) + 0.0:g}"


def _size(finding: ShiftFinding, words: ReviewWords) -> str:
    if finding.shift_db is None:
        return words.unknown
    if abs(finding.shift_db) < 0.05 and not finding.at_least:
        return words.same
    if finding.shift_db < 0 and not finding.at_least:
        return words.better.format(db=decibels(-finding.shift_db))
    least = words.at_least if finding.at_least else ""
    return words.worse.format(least=least, db=decibels(finding.shift_db))


def _day(day: date | None, words: ReviewWords) -> str:
    return words.undated if day is None else words.dated.format(day=day.isoformat())


def finding_sentences(finding: ShiftFinding, words: ReviewWords = ENGLISH_REVIEW) -> list[str]:
    """What the rules say of one ear's full audiogram."""
    said = [
        words.shift.format(
            ear=words.ears[finding.ear],
            size=_size(finding, words),
            baseline=_day(finding.baseline_day, words),
            means=words.means[finding.decision],
        )
    ]
    worse = finding.shift_db is None or finding.shift_db > 0  # age explains no improvement
    if finding.shift_db is not None and finding.age_db is not None and worse:
        said.append(
            (words.age_counts if finding.age_counts else words.age_shown).format(
                age=decibels(finding.age_db), rest=decibels(finding.shift_db - finding.age_db)
            )
        )
    elif finding.age_missing and worse:
        said.append(words.age_missing.format(why=finding.age_missing))
    if finding.decision == "changed":
        said.append(_recordable(finding, words))
    if finding.closed:
        said.append(words.closed)
    return said


def finding_sentence(finding: ShiftFinding, words: ReviewWords = ENGLISH_REVIEW) -> str:
    """What a reader sees first: the shift with its rule, and with age where that decides."""
    said = finding_sentences(finding, words)
    return " ".join(said[:2] if finding.age_counts and (finding.shift_db or 0) > 0 else said[:1])


def as_shown(finding: ShiftFinding) -> dict[str, Any]:
    """A finding in the shape of a screen's stored result, for the same pictures and tables.

    Thresholds of audiograms have no intervals: either end is the value itself.
    """
    (criterion,) = STS.criteria
    db = finding.shift_db
    return {
        "verdict": {
            "decision": finding.decision,
            "rule": STS.name,
            "shifts": [
                {
                    "frequency_hz": float(f),
                    "shift_db": shift,
                    "low_db": shift,
                    "high_db": shift,
                    "censored": float(f) in finding.at_least_hz,
                }
                for f, shift in finding.shifts_db.items()
            ],
            "amount": None
            if db is None
            else {
                "what": "mean",
                "frequencies_hz": list(criterion.frequencies_hz),
                "low_db": db,
                "middle_db": db,
                "high_db": db,
                "rule_db": criterion.at_least_db,
                "unit": "",
                "beyond": finding.at_least,
            },
        },
        "rule": STS.to_dict(),
        "reference_thresholds": [
            {
                "frequency_hz": float(f),
                "level_db_hl": level,
                "low_db_hl": level,
                "high_db_hl": level,
                "censored": censored,
            }
            for levels, censored in (
                (finding.baseline_db_hl, None),
                (finding.baseline_no_response_db_hl, "above"),
            )
            for f, level in levels.items()
        ],
    }


def _recordable(finding: ShiftFinding, words: ReviewWords) -> str:
    level = "" if finding.level_db_hl is None else decibels(finding.level_db_hl)
    least = words.at_least if finding.at_least else ""
    reasons = [words.level.format(least=least, db=level, limit=LIMIT_DB_HL)]
    if finding.work_related is not None:
        word = words.related if finding.work_related else words.unrelated
        reasons.append(word.format(name=finding.work_said_by))
    if finding.recordable is None:
        waits = finding.work_related is None and (finding.level_db_hl or 0) >= LIMIT_DB_HL - 1e-9
        answer = words.undecided if waits else words.unsaid
    else:
        answer = words.yes if finding.recordable else words.no
    return words.recordable.format(answer=f"{answer}: {'; '.join(reasons)}")


def noise_sentence(noise: RoomNoise, transducer: str, words: ReviewWords = ENGLISH_REVIEW) -> str:
    """A measurement of the room, and what the limits for these earphones say of it."""
    return words.noise.format(
        day=noise.measured_on.isoformat(),
        where=words.noise_where.format(room=noise.room) if noise.room else "",
        levels=noise_words(noise),
        check=check_noise(noise.levels, transducer).words,
    )


def signature_sentences(
    signatures: tuple[Signature, ...], moments: Mapping[int, str], words: ReviewWords
) -> list[str]:
    """The newest signature, and the one that it amends; `moments` are local times by its id."""
    newest = signatures[-1]
    said = [words.signed.format(name=newest.name, meaning=newest.meaning, at=moments[newest.id])]
    before = [one for one in signatures if one.id == newest.amends_id]
    said += [words.amends.format(name=one.name, at=moments[one.id]) for one in before]
    return [*said, words.account.format(author=newest.author, sha256=newest.sha256)]


def review_sentences(
    bundle: VisitBundle, moments: Mapping[int, str], words: ReviewWords = ENGLISH_REVIEW
) -> tuple[str, ...]:
    """All that a report says of findings, the room and signatures; of a simulated visit nothing."""
    if bundle.visit.mode == "simulated":
        return ()
    said = [" ".join(finding_sentences(one, words)) for one in bundle.findings]
    if bundle.room_noise is not None:
        transducer = "unknown" if bundle.device is None else bundle.device.transducer
        said.append(noise_sentence(bundle.room_noise, transducer, words))
    if not bundle.signatures:
        return tuple(said)
    said.append(" ".join(signature_sentences(bundle.signatures, moments, words)))
    if bundle.seal:
        said.append(words.seal.format(seal=bundle.seal))
    erased = bundle.person.erased_at is not None
    return (*said, words.erased if erased else words.from_signed)
