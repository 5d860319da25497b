"""One exam of one ear: the verdict in words, facts, cautions and small print."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from earshift.records import ExamBundle, ResultRecord, TrialRecord, VisitBundle, measured_at
from earshift.report.audiogram import Played, Reading
from earshift.report.content import Fact, Section, Table
from earshift.report.tables import picture, readings, shift_table, threshold_table
from earshift.report.text import (
    LONGEST_TEXT,
    Data,
    counted,
    day_of,
    decibels,
    hertz,
    mapping,
    moment,
    number,
    one_line,
    pairs,
    paragraph,
    probability,
    shortened,
    unbroken,
    when,
)
from earshift.report.words import Words, headline


def untested(ear: str, words: Words) -> Section:
    return Section(ear, words.ears[ear], words.not_tested, words.not_tested_means)


def ear_section(bundle: ExamBundle, visit: VisitBundle, words: Words) -> Section:
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
            small_print=words.exam_line.format(
                kind=kind, id=exam.id, version=exam.engine_version, seed=exam.design.get("seed")
            ),
        )
    shown = result.shown
    verdict = mapping(shown.get("verdict"))
    now, reference = readings(shown, "thresholds"), readings(shown, "reference_thresholds")
    section = replace(
        section,
        cautions=(
            *_verdict_cautions(shown, verdict, words),
            *_reference_cautions(bundle, words),
            *_trial_cautions(bundle, result, len(played), kind, words),
        ),
        picture=picture(exam, now, reference, played, words),
        small_print=_small_print(result, visit.visit.zone, words),
    )
    if verdict:
        decision = str(verdict.get("decision"))
        return replace(
            section,
            headline=headline(one_line(decision, words), words),
            words=paragraph(shown.get("words"), words),
            alarming=decision == "changed",
            facts=_screen_facts(bundle, shown, verdict, live, visit.visit.zone, words),
            table=shift_table(exam, now, reference, verdict, words),
        )
    complete = shown.get("complete", exam.state == "done")
    means = words.exam_done_means if complete else words.exam_not_done_means
    stored = paragraph(shown["words"], words) + " " if shown.get("words") else ""
    return replace(
        section,
        headline=words.exam_done,
        words=stored + means,
        facts=(
            Fact(words.tones, _tones(shown.get("tones"), live, words)),
            Fact(words.catch_trials, _silence(shown, words)),
        ),
        table=threshold_table(exam, now, words),
    )


def _audiogram_section(
    section: Section, bundle: ExamBundle, visit: VisitBundle, words: Words
) -> Section:
    exam, section_kind = bundle.exam, words.kinds["audiogram"]
    heard = pairs(exam.design.get("thresholds_db_hl"))
    missed = pairs(exam.design.get("no_response_db_hl"))
    now = [Reading(f, level) for f, level in heard]
    now += [Reading(f, level, no_response=True) for f, level in missed]
    measured = when(measured_at(exam, visit.visit), visit.visit.zone, words)
    rows = [
        (
            hertz(each.frequency_hz),
            words.no_response.format(value=decibels(each.level_db_hl))
            if each.no_response
            else decibels(each.level_db_hl),
        )
        for each in sorted(now, key=lambda each: each.frequency_hz)
    ]
    return replace(
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
    rule = mapping(shown.get("rule"))
    if rule:
        text = words.rule_text.format(
            name=rule.get("name"), text=rule.get("text"), source=rule.get("source")
        )
    else:
        text = verdict.get("rule") or words.no_rule.format(protocol=verdict.get("protocol"))
    reliability = str(verdict.get("reliability"))
    further = []
    attention = number(verdict.get("attention"))
    if attention is not None:
        further.append(Fact(words.attention, f"{100 * attention:.0f} %"))
    for name, label, known in (
        ("reason", words.open_because, words.reasons),
        ("next_step", words.next_step, words.next_steps),
    ):
        said = verdict.get(name)
        if said:
            further.append(Fact(label, known.get(str(said), one_line(str(said), words))))
    return (
        Fact(words.rule, shortened(unbroken(str(text)), LONGEST_TEXT, words)),
        Fact(words.reference, _reference(bundle, zone, words)),
        Fact(words.p_rule if rule else words.p_change, probability(verdict, words)),
        Fact(words.tones, _tones(shown.get("tones", verdict.get("tones")), live, words)),
        Fact(words.catch_trials, _silence(verdict, words)),
        Fact(words.reliability, words.reliabilities.get(reliability, one_line(reliability, words))),
        *further,
    )


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
        kind = mapping(bundle.exam.design.get("reference")).get("kind")
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


def _small_print(result: ResultRecord, zone: str, words: Words) -> str:
    settings = result.settings
    chosen = mapping(settings.get("settings")) or mapping(settings.get("protocol"))
    limits = mapping(settings.get("limits"))
    lines = [
        words.result_line.format(
            id=result.id,
            moment=moment(result.at, zone, words),
            author=one_line(result.author, words),
            version=result.engine_version,
            seed=settings.get("seed"),
        ),
        words.hash_line.format(digest=result.trials_sha256[:12]),
    ]
    if chosen:
        lines.append(words.settings_line.format(settings=_listed(chosen)))
    lines.append(words.limits_line.format(limits=_listed(limits)) if limits else words.no_limits)
    return shortened(unbroken(" ".join(lines)), LONGEST_TEXT, words)


def _listed(settings: Data) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items() if value is not None)
