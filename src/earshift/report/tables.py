"""Thresholds and shifts as a table and as a picture."""

from collections.abc import Sequence

from earshift.records import ExamRecord
from earshift.report.audiogram import Drawing, Played, Reading, draw
from earshift.report.content import Table
from earshift.report.text import (
    MISSING,
    Data,
    decibels,
    hertz,
    number,
    numbers,
    pairs,
    rows_of,
    signed,
)
from earshift.report.words import Words


def shift_table(
    exam: ExamRecord,
    now: list[Reading],
    reference: list[Reading],
    verdict: Data,
    tested_hz: Sequence[float],
    words: Words,
) -> Table | None:
    shifts = {
        f: row
        for row in rows_of(verdict.get("shifts"))
        if (f := number(row.get("frequency_hz"))) is not None
    }
    before = {each.frequency_hz: each for each in reference}
    after = {each.frequency_hz: each for each in now}
    undetermined = set(numbers(verdict.get("not_determinable_hz")))
    rows, censored, apart = [], False, False
    frequencies = sorted({*shifts, *before, *after})
    for f in frequencies:
        shift = shifts.get(f, {})
        apart = apart or not _adds_up(before.get(f), number(shift.get("shift_db")), after.get(f))
        text = _interval(
            signed(number(shift.get("shift_db"))),
            signed(number(shift.get("low_db"))),
            signed(number(shift.get("high_db"))),
            words,
        )
        if shift.get("censored"):
            censored = True
            text = f"{words.censored_mark} {text}"
        rows.append(
            (
                "".join(
                    (
                        f"{words.tested_mark} " if f in tested_hz else "",
                        f"{words.undetermined_mark} " if f in undetermined else "",
                        hertz(f),
                    )
                ),
                _level(before.get(f), words),
                _level(after.get(f), words),
                text,
            )
        )
    if not rows:
        return None
    columns = (
        words.frequency,
        words.column_reference,
        words.column_now,
        words.column_shift if verdict.get("rule") else words.column_shift_if_changed,
    )
    key = (
        words.tested_key if any(f in tested_hz for f in frequencies) else "",
        words.undetermined_key if undetermined else "",
        words.censored_key if censored else "",
        words.apart_key if apart else "",
    )
    title = words.table_title_audiogram if exam.kind == "audiogram" else words.table_title
    title = title.format(ear=words.ears[exam.ear], unit=words.units[exam.unit])
    return Table(title, columns, tuple(rows), tuple(filter(None, key)))


def threshold_table(exam: ExamRecord, now: list[Reading], words: Words) -> Table | None:
    if not now:
        return None
    rows = tuple(
        (
            f"{words.tested_mark} {hertz(each.frequency_hz)}"
            if each.tested
            else hertz(each.frequency_hz),
            _level(each, words),
        )
        for each in now
    )
    title = words.table_title.format(ear=words.ears[exam.ear], unit=words.units[exam.unit])
    key = (words.tested_key,) if any(each.tested for each in now) else ()
    return Table(title, (words.frequency, words.column_threshold), rows, key)


def _adds_up(before: Reading | None, shift_db: float | None, after: Reading | None) -> bool:
    """Whether the rounded numbers of a row do; one that lacks a number has nothing to add."""
    if before is None or shift_db is None or after is None:
        return True
    return round(before.level_db_hl) + round(shift_db) == round(after.level_db_hl)


def picture(
    exam: ExamRecord,
    now: list[Reading],
    reference: list[Reading],
    played: list[Played],
    words: Words,
) -> Drawing:
    def points(shown: list[Reading]) -> str:
        return ", ".join(
            words.picture_point.format(
                frequency=hertz(each.frequency_hz),
                level=words.no_response.format(value=decibels(each.level_db_hl))
                if each.no_response
                else decibels(each.level_db_hl),
            )
            for each in shown
        )

    unit = words.units[exam.unit]
    parts = [words.picture_now.format(points=points(now), unit=unit)] if now else []
    if reference:
        parts.append(words.picture_reference.format(points=points(reference)))
    if now:
        parts.append(words.picture_same)
    return draw(exam.ear, now, reference, played, words, unit, " ".join(parts))


def readings(stored: Data, name: str) -> list[Reading]:
    """The stored thresholds that have a frequency and a level, lowest frequency first."""
    found = []
    for row in rows_of(stored.get(name)):
        frequency, level = number(row.get("frequency_hz")), number(row.get("level_db_hl"))
        if frequency is None or frequency <= 0 or level is None:
            continue
        found.append(
            Reading(
                frequency,
                level,
                number(row.get("low_db_hl")),
                number(row.get("high_db_hl")),
                no_response=row.get("censored") == "above",
                better=row.get("censored") == "below",
            )
        )
    return sorted(found, key=lambda reading: reading.frequency_hz)


def typed_in(exam: ExamRecord) -> Data:
    """An audiogram from elsewhere in the shape of a result, for the same pictures and tables."""
    return {
        "thresholds": [
            {"frequency_hz": f, "level_db_hl": level, "censored": censored}
            for name, censored in (("thresholds_db_hl", None), ("no_response_db_hl", "above"))
            for f, level in pairs(exam.design.get(name))
        ]
    }


def _level(reading: Reading | None, words: Words) -> str:
    if reading is None:
        return MISSING
    value = decibels(reading.level_db_hl)
    low, high = decibels(reading.low_db_hl), decibels(reading.high_db_hl)
    if reading.no_response and low == MISSING:
        return words.no_response.format(value=value)
    # An end of the interval that was cut with the estimate says nothing.
    if reading.no_response:
        text = words.beyond if low == value else words.beyond_from
    elif reading.better:
        text = words.below if high in (value, MISSING) else words.below_to
    else:
        return _interval(value, low, high, words)
    return text.format(value=value, low=low, high=high)


def _interval(value: str, low: str, high: str, words: Words) -> str:
    if MISSING in (low, high) or low == value == high:
        return value
    return words.with_interval.format(value=value, low=low, high=high)
