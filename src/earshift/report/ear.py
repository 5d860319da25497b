"""One exam of one ear: the verdict in words, pictures, facts and cautions."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from earshift.engine.rules import rule_meaning, rule_title
from earshift.records import ExamBundle, ResultRecord, TrialRecord, VisitBundle, measured_at
from earshift.report.appendix import worked_out
from earshift.report.audiogram import Played, Reading
from earshift.report.content import Fact, Section, Table
from earshift.report.findings import as_shown, finding_sentence
from earshift.report.shifts import shift_drawing
from earshift.report.tables import picture, readings, shift_table, threshold_table, typed_in
from earshift.report.text import (
    LONGEST_TEXT,
    Data,
    counted,
    day_of,
    decibels,
    from_elsewhere,
    hertz,
    mapping,
    number,
    numbers,
    one_line,
    paragraph,
    percent,
    probability,
    shortened,
    unbroken,
)
from earshift.report.words import Words, headline

WORTH_SAYING = 0.01  # probability that answers do not follow the tones: nobody is told of less


def untested(ear: str, words: Words, tested_before: bool = False) -> Section:
    """An ear that this round of tests says nothing about; an earlier one of the visit may have."""
    if tested_before:
        return Section(ear, words.ears[ear], words.another_result, words=words.another_result_means)
    return Section(ear, words.ears[ear], words.not_tested, words=words.not_tested_means)


def ear_section(
    bundle: ExamBundle, visit: VisitBundle, words: Words, cautions: Sequence[str] = ()
) -> Section:
    """One exam of one ear; `cautions` come before its own."""
    section = _section(bundle, visit, words)
    return replace(section, cautions=(*cautions, *section.cautions))


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
            picture=picture(exam, [], [], played, words) if played else None,
            appendix=worked_out(bundle, None, kind, visit.visit.zone, words),
        )
    shown = result.shown
    verdict = mapping(shown.get("verdict"))
    # Older results do not say where tones were given: of them the trials do.
    tested_hz = numbers(shown.get("tested_hz")) or [tone.frequency_hz for tone in played]
    now = [
        replace(each, tested=each.frequency_hz in tested_hz)
        for each in readings(shown, "thresholds")
    ]
    reference = _reference_readings(bundle, shown)
    section = replace(
        section,
        cautions=(
            *_verdict_cautions(shown, verdict, words),
            *_reference_cautions(bundle, words),
            *_trial_cautions(bundle, result, len(played), kind, words),
        ),
        picture=picture(exam, now, reference, played, words),
        appendix=worked_out(bundle, result, kind, visit.visit.zone, words),
    )
    if verdict:
        decision = str(verdict.get("decision"))
        sentence = paragraph(shown["sentence"], words) if shown.get("sentence") else ""
        said = paragraph(shown.get("words"), words)
        return replace(
            section,
            headline=headline(one_line(decision, words), words, str(verdict.get("next_step"))),
            sentence=sentence,
            words=said.removeprefix(sentence).strip(),
            shifts=shift_drawing(exam.ear, verdict, mapping(shown.get("rule")), tested_hz, words),
            alarming=decision == "changed",
            facts=_screen_facts(bundle, shown, verdict, live, visit.visit.zone, words),
            table=shift_table(exam, now, reference, verdict, tested_hz, words),
        )
    complete = shown.get("complete", exam.state == "done")
    means = words.exam_done_means if complete else words.exam_not_done_means
    stored = paragraph(shown["words"], words) + " " if shown.get("words") else ""
    section = replace(
        section,
        headline=words.exam_done,
        words=stored + means,
        facts=(
            Fact(words.tones, _tones(shown.get("tones"), live, words)),
            Fact(words.catch_trials, _silence(shown, words)),
            *_exam_reliability(shown, words),
        ),
        table=threshold_table(exam, now, words),
    )
    return _against_baseline(section, bundle, visit, now, played, words)


def _against_baseline(
    section: Section,
    bundle: ExamBundle,
    visit: VisitBundle,
    now: list[Reading],
    played: list[Played],
    words: Words,
) -> Section:
    """A full audiogram with what the rule says of it first, and the baseline beside it."""
    exam = bundle.exam
    found = [one for one in visit.findings if (one.exam_id, one.ear) == (exam.id, exam.ear)]
    if not found:
        return section
    (finding,) = found
    shown = as_shown(finding)
    verdict, reference = shown["verdict"], readings(shown, "reference_thresholds")
    # Of a typed or imported audiogram every threshold was measured.
    tested_hz = [each.frequency_hz for each in now if each.tested or exam.kind == "audiogram"]
    marked_hz = () if exam.kind == "audiogram" else tested_hz
    section = replace(
        section,
        headline=headline(finding.decision, words),
        sentence=finding_sentence(finding, words.review),
        alarming=finding.is_shift,
    )
    if not reference:  # signed when a finding did not hold them yet
        return section
    return replace(
        section,
        shifts=shift_drawing(exam.ear, verdict, shown["rule"], tested_hz, words),
        table=shift_table(exam, now, reference, verdict, marked_hz, words),
        picture=picture(exam, now, reference, played, words),
    )


def _audiogram_section(
    section: Section, bundle: ExamBundle, visit: VisitBundle, words: Words
) -> Section:
    exam, section_kind = bundle.exam, words.kinds["audiogram"]
    now = readings(typed_in(exam), "thresholds")
    measured = from_elsewhere(measured_at(exam, visit.visit), visit.visit.zone, words)
    rows = [
        (
            hertz(each.frequency_hz),
            words.no_response.format(value=decibels(each.level_db_hl))
            if each.no_response
            else decibels(each.level_db_hl),
        )
        for each in now
    ]
    section = replace(
        section,
        headline=words.exam_done,
        words=words.audiogram_means,
        facts=(
            Fact(words.measured, measured),
            Fact(words.source, one_line(exam.source, words) or words.not_recorded),
        ),
        table=Table(
            words.table_title_audiogram.format(ear=words.ears[exam.ear]),
            (words.frequency, words.column_threshold),
            tuple(rows),
        ),
        picture=picture(exam, now, [], [], words),
        appendix=worked_out(bundle, None, section_kind, visit.visit.zone, words),
    )
    return _against_baseline(section, bundle, visit, now, [], words)


def _reference_readings(bundle: ExamBundle, shown: Data) -> list[Reading]:
    """The reference's thresholds; an audiogram is measured at all of its frequencies."""
    found = readings(shown, "reference_thresholds")
    if bundle.reference is not None and bundle.reference.kind == "audiogram":
        return found
    tested_hz = numbers(shown.get("reference_tested_hz"))
    return [replace(each, tested=each.frequency_hz in tested_hz) for each in found]


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
    rule = mapping(shown.get("rule"))
    if rule:
        name = str(rule.get("name"))
        meaning = rule_meaning(name, str(rule.get("text")))
        text = words.rule_text.format(
            name=rule_title(name), text=meaning, source=rule.get("source")
        )
    elif verdict.get("rule"):
        text = rule_title(str(verdict["rule"]))
    else:
        text = words.no_rule.format(protocol=verdict.get("protocol"))
    return (
        Fact(words.rule, shortened(unbroken(str(text)), LONGEST_TEXT, words)),
        Fact(words.reference, _reference(bundle, zone, words)),
        Fact(words.p_rule if rule else words.p_change, probability(verdict, words)),
        Fact(words.tones, _tones(shown.get("tones", verdict.get("tones")), live, words)),
        Fact(words.catch_trials, _silence(verdict, words)),
        Fact(words.reliability, _reliability(verdict, words)),
    )


def _reliability(stored: Data, words: Words) -> str:
    """How far the answers can be trusted, with what the model makes of the listener."""
    grade = str(stored.get("reliability"))
    text = words.reliabilities.get(grade, one_line(grade, words))
    attention, doubt = number(stored.get("attention")), number(stored.get("p_not_listening"))
    if doubt is not None and doubt > WORTH_SAYING:
        said = words.in_doubt.format(reliability=text, doubt=percent(doubt, words))
        undecided = stored.get("reason") == "listener in doubt"
        return words.too_doubtful.format(said=said) if undecided else said
    if attention is not None:
        return words.attention.format(reliability=text, attention=percent(attention, words))
    return text


def _exam_reliability(shown: Data, words: Words) -> tuple[Fact, ...]:
    if not shown.get("reliability"):
        return ()
    return (Fact(words.reliability, _reliability(shown, words)),)


def _tones(count: object, live: Sequence[TrialRecord], words: Words) -> str:
    practice = sum(trial.kind == "practice" for trial in live)
    text = words.tones_practice if practice else words.tones_answered
    return text.format(tones=counted(count, words), practice=practice)


def _silence(counts: Data, words: Words) -> str:
    trials = counts.get("catch_trials")
    if not trials:
        return words.no_catch_trials
    alarms = counted(counts.get("false_alarms"), words)
    return words.false_alarms.format(alarms=alarms, trials=counted(trials, words))


def _reference(bundle: ExamBundle, zone: str, words: Words) -> str:
    if bundle.reference is None:
        kept = mapping(bundle.exam.design.get("reference"))
        kind = mapping(kept.get(bundle.exam.ear, kept)).get("kind")
        if bundle.exam.reference_exam_id is not None:
            return words.reference_exam.format(
                kind=words.kinds["exam"], id=bundle.exam.reference_exam_id
            )
        return words.reference_norm if kind == "norm" else words.not_recorded
    known = bundle.reference
    kind = words.kinds.get(known.kind, known.kind)
    parts = [words.reference_exam.format(kind=kind, id=known.id)]
    if known.measured_at is not None:
        parts.append(day_of(known.measured_at, zone).isoformat())
    if known.source:
        parts.append(known.source)
    return one_line(", ".join(parts), words)


def _verdict_cautions(shown: Data, verdict: Data, words: Words) -> list[str]:
    cautions = []
    rule = mapping(shown.get("rule"))
    twice = rule.get("confirm_by_retest") or verdict.get("rule") == "niosh-15"
    if twice and verdict.get("decision") == "changed":
        cautions.append(words.retest)
    if verdict.get("unverified"):
        cautions.append(words.unverified.format(text=paragraph(verdict["unverified"], words)))
    sentence = str(shown.get("words"))
    notes = verdict.get("notes")
    for note in notes if isinstance(notes, list | tuple) else ():
        if str(note) not in sentence:
            cautions.append(paragraph(note, words))
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
