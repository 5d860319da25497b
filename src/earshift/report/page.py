"""What a report says, before it is HTML or PDF: stored rows turned into words, nothing computed.

The numbers are those of the stored results, rounded for reading. Data that are missing or that this
version does not know are said to be so; no field of a stored result is taken for granted.
"""

import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, date, datetime
from itertools import zip_longest
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from earshift.devices import calibration
from earshift.engine.refusal import Refusal
from earshift.engine.values import EARS
from earshift.records import (
    ExamBundle,
    ExamRecord,
    Note,
    Person,
    ResultRecord,
    TrialRecord,
    Visit,
    VisitBundle,
)
from earshift.report.audiogram import Drawing, Played, Reading, draw
from earshift.report.words import Words

Data = Mapping[str, Any]
T = TypeVar("T")

LONGEST_FACT, LONGEST_TEXT = 200, 800  # characters; a longer one says how much is left out


@dataclass(frozen=True)
class Fact:
    label: str
    value: str


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """One exam of one ear, or that there was none."""

    ear: str
    heading: str
    headline: str
    words: str
    facts: tuple[Fact, ...] = ()
    cautions: tuple[str, ...] = ()
    table: Table | None = None
    picture: Drawing | None = None
    small_print: str = ""
    alarming: bool = False  # a stronger frame, for those who only glance


@dataclass(frozen=True)
class NoteText:
    about: str
    text: str


@dataclass(frozen=True)
class Page:
    """A whole report: `rounds` are pairs of right and left ear, in the order they were done."""

    language: str
    title: str
    heading: str
    continued: str
    person_heading: str
    visit_heading: str
    person: tuple[Fact, ...]
    visit: tuple[Fact, ...]
    rounds: tuple[tuple[Section, Section], ...]
    legend: str
    notes_heading: str
    notes: tuple[NoteText, ...]
    sentences: tuple[str, ...]
    stored_at: datetime  # of the newest row on it: the same rows give the same file
    banner: str = ""
    banner_means: str = ""
    cautions: tuple[str, ...] = ()


def compose(bundle: VisitBundle, words: Words) -> Page:
    """The report of a visit in words."""
    visit, person = bundle.visit, bundle.person
    for each in bundle.exams:
        if each.exam.ear not in EARS:
            raise Refusal(f"an ear is 'right' or 'left', got {each.exam.ear!r}")
    kinds = {each.exam.kind for each in bundle.exams}
    simulated = visit.mode == "simulated"
    sections = {
        ear: [_section(each, bundle, words) for each in bundle.exams if each.exam.ear == ear]
        for ear in EARS
    }
    page = Page(
        language=words.language,
        title=words.title.format(visit=visit.id),
        heading=words.heading,
        continued=words.continued.format(heading=words.heading, visit=visit.id, person=person.id),
        person_heading=words.person_section,
        visit_heading=words.visit_section,
        person=_person_facts(person, bundle.visit, words),
        visit=_visit_facts(bundle, words),
        rounds=tuple(
            (right or _untested("right", words), left or _untested("left", words))
            for right, left in zip_longest(sections["right"], sections["left"])
        )
        or ((_untested("right", words), _untested("left", words)),),
        legend=words.legend if bundle.exams else "",
        notes_heading=words.notes,
        notes=tuple(_note(note, bundle, words) for note in bundle.notes),
        sentences=tuple(
            filter(
                None,
                (
                    words.screening if kinds != {"audiogram"} else "",
                    words.not_osha if "screen" in kinds else "",
                    words.see_a_doctor,
                ),
            )
        ),
        stored_at=max(
            [
                visit.started_at,
                *(result.at for each in bundle.exams for result in each.results),
                *(note.at for note in bundle.notes),
            ]
        ),
        banner=words.simulated if simulated else "",
        banner_means=words.simulated_means if simulated else "",
        cautions=_visit_cautions(bundle, words),
    )
    return map_text(page, harmless)


def harmless(text: str) -> str:
    """Text without characters that act on the page instead of being read: shown by code point.

    Controls, lone surrogates, private characters and overrides of the writing direction. Line
    breaks stay; joiners, which Persian and Indian names need, do too.
    """
    clean = text.replace("\r\n", "\n").replace("\t", " ")
    return "".join(code_point(c) if _acts(c) else c for c in clean)


def _acts(character: str) -> bool:
    if unicodedata.bidirectional(character) in _OVERRIDES:
        return True
    return character != "\n" and unicodedata.category(character) in ("Cc", "Cs", "Co")


_OVERRIDES = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def code_point(character: str) -> str:
    return f"[U+{ord(character):04X}]"


def map_text(value: T, change: Callable[[str], str]) -> T:
    """The same data with every text in it changed."""
    result: Any = value
    if isinstance(value, str):
        result = change(value)
    elif isinstance(value, tuple):
        result = tuple(map_text(each, change) for each in value)
    elif is_dataclass(value) and not isinstance(value, type):
        result = replace(
            value, **{f.name: map_text(getattr(value, f.name), change) for f in fields(value)}
        )
    return result  # type: ignore[no-any-return]


# The person and the visit ------------------------------------------------------------------------


def _person_facts(person: Person, visit: Visit, words: Words) -> tuple[Fact, ...]:
    if person.erased_at is not None:
        erased = words.erased.format(day=_day(person.erased_at, visit.zone).isoformat())
        return Fact(words.name, erased), Fact(words.person_id, str(person.id))
    given = (
        (words.name, person.name),
        (words.born, _born(person.birth_date, _day(visit.started_at, visit.zone), words)),
        (words.sex, person.sex),
        (words.code, person.code),
        (words.person_id, str(person.id)),
    )
    return tuple(
        Fact(label, _fact(value, words) if value and value.strip() else words.not_recorded)
        for label, value in given
    )


def _born(born: date | None, on: date, words: Words) -> str | None:
    if born is None:
        return None
    if born > on:
        return words.born_later.format(born=born.isoformat())
    age = on.year - born.year - ((on.month, on.day) < (born.month, born.day))
    return words.born_and_age.format(born=born.isoformat(), age=age)


def _visit_facts(bundle: VisitBundle, words: Words) -> tuple[Fact, ...]:
    visit = bundle.visit
    facts = [
        Fact(words.date, _moment(visit.started_at, visit.zone, words)),
        Fact(words.mode, words.modes.get(visit.mode, visit.mode)),
        Fact(words.examiner, _fact(visit.author, words) or words.not_recorded),
        Fact(words.device, _device(bundle, words)),
        Fact(words.calibration, _calibration(bundle, words)),
        Fact(words.visit_id, str(visit.id)),
    ]
    if visit.checklist:
        items = "; ".join(
            f"{str(name).replace('_', ' ')}: {_plain(value, words)}"
            for name, value in visit.checklist.items()
        )
        facts.append(Fact(words.checklist, _short(_line(items), LONGEST_TEXT, words)))
    return tuple(facts)


def _device(bundle: VisitBundle, words: Words) -> str:
    device = bundle.device
    if device is None:
        return words.not_recorded
    known = device.transducer not in ("", "unknown")
    parts = (
        device.name,
        device.model,
        device.serial and words.serial.format(serial=device.serial),
        words.transducer.format(transducer=device.transducer)
        if known
        else words.transducer_unknown,
    )
    return _fact(", ".join(filter(None, parts)), words)


def _calibration_state(bundle: VisitBundle) -> str:
    visit = bundle.visit
    on = _day(visit.started_at, visit.zone)
    return calibration.state(bundle.device, bundle.calibration, on)


def _calibration(bundle: VisitBundle, words: Words) -> str:
    if bundle.visit.mode == "simulated":
        return words.calibration_simulated
    if bundle.visit.mode == "imported" and bundle.calibration is None:
        return words.not_recorded
    state = words.calibration_states[_calibration_state(bundle)]
    done = bundle.calibration
    if done is None:
        return state
    details = words.calibration_details.format(
        kind=done.kind,
        laboratory=done.laboratory or words.not_recorded,
        done=done.done_on.isoformat(),
        due=done.due_on.isoformat(),
    )
    coupler = done.coupler.strip()
    parts = (state, details, coupler and words.calibration_coupler.format(coupler=coupler))
    return _fact("; ".join(filter(None, parts)), words)


def _visit_cautions(bundle: VisitBundle, words: Words) -> tuple[str, ...]:
    if bundle.visit.mode in ("simulated", "imported"):
        return ()
    state = "unknown device" if bundle.device is None else _calibration_state(bundle)
    warning = words.calibration_warnings.get(state)
    return (warning,) if warning else ()


def _note(note: Note, bundle: VisitBundle, words: Words) -> NoteText:
    ears = {each.exam.id: each.exam.ear for each in bundle.exams}
    ear = ears.get(note.exam_id) if note.exam_id is not None else None
    about = words.note_about if ear is None else words.note_about_ear
    return NoteText(
        about.format(
            moment=_moment(note.at, bundle.visit.zone, words),
            author=_fact(note.author, words),
            ear=words.ears[ear] if ear else "",
        ),
        note.text,
    )


# One ear -----------------------------------------------------------------------------------------


def _untested(ear: str, words: Words) -> Section:
    return Section(ear, words.ears[ear], words.not_tested, words.not_tested_means)


def _section(bundle: ExamBundle, visit: VisitBundle, words: Words) -> Section:
    exam = bundle.exam
    kind = words.kinds.get(exam.kind, exam.kind)
    section = Section(
        ear=exam.ear,
        heading=words.section.format(ear=words.ears[exam.ear], kind=kind),
        headline=words.no_result,
        words=words.no_result_states[exam.state].format(kind=kind)
        if exam.state in words.no_result_states
        else exam.state,
    )
    if exam.kind == "audiogram":
        return _audiogram_section(section, bundle, visit, words)
    result = _newest(bundle.results)
    live = [t for t in bundle.trials if t.voided_at is None]
    played = [
        Played(t.frequency_hz, t.played_db_hl, t.heard)
        for t in live
        if t.kind == "tone" and t.played_db_hl is not None
    ]
    if result is None:
        return replace(
            section,
            facts=(Fact(words.tones, _tones(len(played), live, words)),),
            cautions=_trial_cautions(bundle, None, len(played), kind, words),
            picture=_picture(exam, [], [], played, words) if played else None,
            small_print=words.exam_line.format(
                kind=kind, id=exam.id, version=exam.engine_version, seed=exam.design.get("seed")
            ),
        )
    shown = result.shown
    verdict = _mapping(shown.get("verdict"))
    now, reference = _readings(shown, "thresholds"), _readings(shown, "reference_thresholds")
    section = replace(
        section,
        cautions=(
            *_verdict_cautions(shown, verdict, words),
            *_reference_cautions(bundle, words),
            *_trial_cautions(bundle, result, len(played), kind, words),
        ),
        picture=_picture(exam, now, reference, played, words),
        small_print=_small_print(result, visit.visit.zone, words),
    )
    if verdict:
        decision = str(verdict.get("decision"))
        return replace(
            section,
            headline=words.decisions.get(
                decision, words.unknown_decision.format(decision=_fact(decision, words))
            ),
            words=_text(shown.get("words"), words),
            alarming=decision == "changed",
            facts=_screen_facts(bundle, shown, verdict, live, visit.visit.zone, words),
            table=_shift_table(exam, now, reference, verdict, words),
        )
    complete = shown.get("complete", exam.state == "done")
    means = words.exam_done_means if complete else words.exam_not_done_means
    stored = _text(shown["words"], words) + " " if shown.get("words") else ""
    return replace(
        section,
        headline=words.exam_done,
        words=stored + means,
        facts=(
            Fact(words.tones, _tones(shown.get("tones"), live, words)),
            Fact(words.catch_trials, _silence(shown, words)),
        ),
        table=_threshold_table(exam, now, words),
    )


def _audiogram_section(
    section: Section, bundle: ExamBundle, visit: VisitBundle, words: Words
) -> Section:
    exam, section_kind = bundle.exam, words.kinds["audiogram"]
    heard = _pairs(exam.design.get("thresholds_db_hl"))
    missed = _pairs(exam.design.get("no_response_db_hl"))
    now = [Reading(f, level) for f, level in heard]
    now += [Reading(f, level, no_response=True) for f, level in missed]
    measured = _when(exam.measured_at, visit.visit.zone, words)
    rows = [
        (
            _hz(each.frequency_hz),
            words.no_response.format(value=_db(each.level_db_hl))
            if each.no_response
            else _db(each.level_db_hl),
        )
        for each in sorted(now, key=lambda each: each.frequency_hz)
    ]
    return replace(
        section,
        headline=words.exam_done,
        words=words.audiogram_means,
        facts=(
            Fact(words.measured, measured),
            Fact(words.source, _fact(exam.source, words) or words.not_recorded),
        ),
        table=Table(
            words.table_title_audiogram.format(ear=words.ears[exam.ear]),
            (words.frequency, words.column_threshold),
            tuple(rows),
        ),
        picture=_picture(exam, now, [], [], words),
        small_print=words.audiogram_line.format(
            kind=section_kind, id=exam.id, version=exam.engine_version
        ),
    )


def _newest(results: Iterable[ResultRecord]) -> ResultRecord | None:
    return max(results, key=lambda result: (result.at, result.id), default=None)


def _screen_facts(
    bundle: ExamBundle,
    shown: Data,
    verdict: Data,
    live: Sequence[TrialRecord],
    zone: str,
    words: Words,
) -> tuple[Fact, ...]:
    rule = _mapping(shown.get("rule"))
    if rule:
        text = words.rule_text.format(
            name=rule.get("name"), text=rule.get("text"), source=rule.get("source")
        )
    else:
        text = verdict.get("rule") or words.no_rule.format(protocol=verdict.get("protocol"))
    reliability = str(verdict.get("reliability"))
    return (
        Fact(words.rule, _short(_line(str(text)), LONGEST_TEXT, words)),
        Fact(words.reference, _reference(bundle, zone, words)),
        Fact(words.p_rule if rule else words.p_change, _probability(verdict, words)),
        Fact(words.tones, _tones(shown.get("tones", verdict.get("tones")), live, words)),
        Fact(words.catch_trials, _silence(verdict, words)),
        Fact(words.reliability, words.reliabilities.get(reliability, _fact(reliability, words))),
    )


def _tones(count: object, live: Sequence[TrialRecord], words: Words) -> str:
    practice = sum(trial.kind == "practice" for trial in live)
    text = words.tones_practice if practice else words.tones_answered
    return text.format(tones=_count(count, words), practice=practice)


def _silence(counts: Data, words: Words) -> str:
    trials = counts.get("catch_trials")
    if not trials:
        return words.no_catch_trials
    alarms = _count(counts.get("false_alarms"), words)
    return words.false_alarms.format(alarms=alarms, trials=_count(trials, words))


def _reference(bundle: ExamBundle, zone: str, words: Words) -> str:
    if bundle.reference is None:
        kind = _mapping(bundle.exam.design.get("reference")).get("kind")
        if bundle.exam.reference_exam_id is not None:
            return words.reference_exam.format(
                kind=words.kinds["exam"], id=bundle.exam.reference_exam_id
            )
        return words.reference_norm if kind == "norm" else words.not_recorded
    known = bundle.reference
    kind = words.kinds.get(known.kind, known.kind)
    parts = [words.reference_exam.format(kind=kind, id=known.id)]
    if known.measured_at is not None:
        parts.append(_day(known.measured_at, zone).isoformat())
    if known.source:
        parts.append(known.source)
    return _fact(", ".join(parts), words)


def _verdict_cautions(shown: Data, verdict: Data, words: Words) -> list[str]:
    cautions = []
    rule = _mapping(shown.get("rule"))
    twice = rule.get("confirm_by_retest") or verdict.get("rule") == "niosh-15"
    if twice and verdict.get("decision") == "changed":
        cautions.append(words.retest)
    if verdict.get("unverified"):
        cautions.append(words.unverified.format(text=_text(verdict["unverified"], words)))
    sentence = str(shown.get("words"))
    notes = verdict.get("notes")
    for note in notes if isinstance(notes, list | tuple) else ():
        if str(note) not in sentence:
            cautions.append(_text(note, words))
    if verdict.get("converged") is False:
        cautions.append(words.not_settled)
    if verdict.get("reliability") == "poor":
        cautions.append(words.poor_reliability)
    return cautions


def _reference_cautions(bundle: ExamBundle, words: Words) -> list[str]:
    known = bundle.reference
    return [words.reference_other_ear] if known and known.ear != bundle.exam.ear else []


def _trial_cautions(
    bundle: ExamBundle, result: ResultRecord | None, played: int, kind: str, words: Words
) -> tuple[str, ...]:
    cautions = []
    voided = sum(trial.voided_at is not None for trial in bundle.trials)
    if voided:
        cautions.append(words.voided.format(count=voided))
    if result is not None:
        earlier = len(bundle.results) - 1
        if earlier:
            cautions.append(words.earlier_results.format(kind=kind, count=earlier))
        then = result.shown.get("tones")
        own = bundle.exam.delivery.get("continues") is None  # else it began with others' tones
        if own and bundle.trials and isinstance(then, int) and then != played:
            cautions.append(words.answers_since.format(then=then, now=played))
        if result.engine_version != bundle.exam.engine_version:
            cautions.append(
                words.other_engine.format(
                    begun=bundle.exam.engine_version, made=result.engine_version
                )
            )
    return tuple(cautions)


def _small_print(result: ResultRecord, zone: str, words: Words) -> str:
    settings = result.settings
    chosen = _mapping(settings.get("settings")) or _mapping(settings.get("protocol"))
    limits = _mapping(settings.get("limits"))
    lines = [
        words.result_line.format(
            id=result.id,
            moment=_moment(result.at, zone, words),
            author=_fact(result.author, words),
            version=result.engine_version,
            seed=settings.get("seed"),
        ),
        words.hash_line.format(digest=result.trials_sha256[:12]),
    ]
    if chosen:
        lines.append(words.settings_line.format(settings=_listed(chosen)))
    lines.append(words.limits_line.format(limits=_listed(limits)) if limits else words.no_limits)
    return _short(_line(" ".join(lines)), LONGEST_TEXT, words)


def _listed(settings: Data) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


# Tables and pictures -----------------------------------------------------------------------------


def _shift_table(
    exam: ExamRecord, now: list[Reading], reference: list[Reading], verdict: Data, words: Words
) -> Table | None:
    shifts = {
        f: row
        for row in _rows(verdict.get("shifts"))
        if (f := _number(row.get("frequency_hz"))) is not None
    }
    before = {each.frequency_hz: each for each in reference}
    after = {each.frequency_hz: each for each in now}
    unsaid = set(_frequencies(verdict.get("not_determinable_hz")))
    evidence = set(_frequencies(verdict.get("evidence_hz"))) - unsaid
    rows, censored = [], False
    for f in sorted({*shifts, *before, *after}):
        shift = shifts.get(f, {})
        text = _interval(
            _signed(_number(shift.get("shift_db"))),
            _signed(_number(shift.get("low_db"))),
            _signed(_number(shift.get("high_db"))),
            words,
        )
        if shift.get("censored"):
            censored = True
            text = f"{words.censored_mark} {text}"
        rows.append(
            (
                "".join(
                    (
                        f"{words.evidence_mark} " if f in evidence else "",
                        f"{words.unsaid_mark} " if f in unsaid else "",
                        _hz(f),
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
        words.evidence_key if evidence else "",
        words.unsaid_key if unsaid else "",
        words.censored_key if censored else "",
    )
    title = words.table_title.format(ear=words.ears[exam.ear], unit=words.units[exam.unit])
    return Table(title, columns, tuple(rows), tuple(filter(None, key)))


def _threshold_table(exam: ExamRecord, now: list[Reading], words: Words) -> Table | None:
    if not now:
        return None
    rows = tuple((_hz(each.frequency_hz), _level(each, words)) for each in now)
    title = words.table_title.format(ear=words.ears[exam.ear], unit=words.units[exam.unit])
    return Table(title, (words.frequency, words.column_threshold), rows)


def _picture(
    exam: ExamRecord,
    now: list[Reading],
    reference: list[Reading],
    played: list[Played],
    words: Words,
) -> Drawing:
    def points(readings: list[Reading]) -> str:
        return ", ".join(
            words.picture_point.format(
                frequency=_hz(each.frequency_hz),
                level=words.no_response.format(value=_db(each.level_db_hl))
                if each.no_response
                else _db(each.level_db_hl),
            )
            for each in readings
        )

    unit = words.units[exam.unit]
    parts = [words.picture_now.format(points=points(now), unit=unit)] if now else []
    if reference:
        parts.append(words.picture_reference.format(points=points(reference)))
    if now:
        parts.append(words.picture_same)
    return draw(exam.ear, now, reference, played, words, unit, " ".join(parts))


def _readings(shown: Data, name: str) -> list[Reading]:
    """The stored thresholds that have a frequency and a level, lowest frequency first."""
    readings = []
    for row in _rows(shown.get(name)):
        frequency, level = _number(row.get("frequency_hz")), _number(row.get("level_db_hl"))
        if frequency is None or frequency <= 0 or level is None:
            continue
        readings.append(
            Reading(
                frequency,
                level,
                _number(row.get("low_db_hl")),
                _number(row.get("high_db_hl")),
                no_response=row.get("censored") == "above",
                better=row.get("censored") == "below",
            )
        )
    return sorted(readings, key=lambda reading: reading.frequency_hz)


def _level(reading: Reading | None, words: Words) -> str:
    if reading is None:
        return _MISSING
    value = _db(reading.level_db_hl)
    low, high = _db(reading.low_db_hl), _db(reading.high_db_hl)
    # An end of the interval that was cut with the estimate says nothing.
    if reading.no_response:
        text = words.beyond if low in (value, _MISSING) else words.beyond_from
    elif reading.better:
        text = words.below if high in (value, _MISSING) else words.below_to
    else:
        return _interval(value, low, high, words)
    return text.format(value=value, low=low, high=high)


def _interval(value: str, low: str, high: str, words: Words) -> str:
    if _MISSING in (low, high):
        return value
    return words.with_interval.format(value=value, low=low, high=high)


# Values ------------------------------------------------------------------------------------------

_MISSING = "–"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _db(value: float | None) -> str:
    """Whole dB, with a real minus sign and no minus before zero."""
    return _MISSING if value is None else f"{round(value):d}".replace("-", "−")


def _signed(value: float | None) -> str:
    whole = None if value is None else round(value)
    return f"+{whole}" if whole is not None and whole > 0 else _db(value)


def _hz(value: float) -> str:
    return f"{value:g}" if value < 1e5 else f"{value:.0f}"


def _probability(verdict: Data, words: Words) -> str:
    """One decimal, and never a certainty that is only rounding."""
    if verdict.get("decision") == "not determinable":
        return words.decisions["not determinable"]
    number = _number(verdict.get("p_changed"))
    if number is None:
        return words.not_recorded
    if number < 0.001:
        return words.below.format(value="0.1 %")
    if number > 0.999:
        return words.beyond.format(value="99.9 %")
    return f"{100 * number:.1f} %"


def _count(value: object, words: Words) -> str:
    number = _number(value)
    return words.not_recorded if number is None else f"{number:g}"


def _frequencies(value: object) -> list[float]:
    if not isinstance(value, list | tuple):
        return []
    return [number for each in value if (number := _number(each)) is not None]


def _pairs(value: object) -> list[tuple[float, float]]:
    items = value if isinstance(value, list | tuple) else []
    pairs = [_frequencies(item) for item in items]
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2 and pair[0] > 0]


def _rows(value: object) -> list[Data]:
    items = value if isinstance(value, list | tuple) else []
    return [row for row in items if isinstance(row, Mapping)]


def _mapping(value: object) -> Data:
    return value if isinstance(value, Mapping) else {}


def _plain(value: object, words: Words) -> str:
    if isinstance(value, bool):
        return words.yes if value else words.no
    return words.not_recorded if value is None or value == "" else str(value)


def _text(value: object, words: Words) -> str:
    return _short(_line(str(value)), LONGEST_TEXT, words) if value else words.not_recorded


def _fact(value: str, words: Words) -> str:
    return _short(_line(value), LONGEST_FACT, words)


def _line(text: str) -> str:
    return " ".join(text.split())


def _short(text: str, longest: int, words: Words) -> str:
    if len(text) <= longest:
        return text
    return words.shortened.format(text=text[:longest], count=len(text) - longest)


def _local(at: datetime, zone: str) -> tuple[datetime, bool]:
    """The moment in the zone, or in UTC where the zone is not known; and whether it is."""
    try:
        return at.astimezone(ZoneInfo(zone)), True
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return at.astimezone(UTC), False


def _day(at: datetime, zone: str) -> date:
    return _local(at, zone)[0].date()


def _when(at: datetime | None, zone: str, words: Words) -> str:
    return words.not_recorded if at is None else _moment(at, zone, words)


def _moment(at: datetime, zone: str, words: Words) -> str:
    local, known = _local(at, zone)
    day, time = local.date().isoformat(), f"{local:%H:%M}"
    if not known:
        return words.moment_in_utc.format(day=day, time=time, zone=_fact(zone, words))
    offset = f"{local:%z}"
    return words.moment.format(day=day, time=time, zone=zone, offset=f"{offset[:3]}:{offset[3:5]}")
