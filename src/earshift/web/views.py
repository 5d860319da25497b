"""Views: stored records in the words of the API. Nothing here writes or decides."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import date
from typing import Any

from earshift import records
from earshift.acts import ShiftFinding
from earshift.clinic.checklist import cautions, quiet_hours
from earshift.clinic.devices import default_device, device_today
from earshift.clinic.findings import findings_of
from earshift.clinic.practice import PROBLEMS
from earshift.clinic.session import CATCH_EVERY, HELD, Session
from earshift.clinic.view import ExamView, KnownProbabilities, TrialView, p_changed_by_tone
from earshift.devices.delivery import Delivery
from earshift.devices.sound import RELATIVE_ZERO_DBFS
from earshift.engine import values
from earshift.engine.exam import Exam
from earshift.engine.rules import ThresholdRule
from earshift.engine.screen import Screen
from earshift.engine.thresholds import Threshold
from earshift.report.findings import as_shown, finding_sentence
from earshift.report.plain import plain_words
from earshift.report.words import ENGLISH
from earshift.store import Store
from earshift.store.accounts import Accounts
from earshift.web import live_models as lm
from earshift.web import models as m

# What an examiner may do with an exam, by its state.
ALWAYS = ("retest", "release")
BY_STATE = {
    "open": ("answer", "undo", "pause", "finish", "abandon", "link"),
    "paused": ("resume", "finish", "abandon", "link"),
    "done": ALWAYS,
    "abandoned": ALWAYS,
}


def people(store: Store, found: Iterable[records.Person]) -> list[m.Person]:
    found = list(found)
    others = [one.merged_into for one in found if one.merged_into is not None]
    handles = store.handles("people", [*(person.id for person in found), *others])
    return [
        m.Person(
            id=handles[person.id],
            code=person.code,
            name=person.name,
            birth_date=person.birth_date,
            sex=person.sex,
            erased=person.erased_at is not None,
            department=person.department,
            job=person.job,
            hired_on=person.hired_on,
            left_on=person.left_on,
            merged_into=handles.get(person.merged_into or 0),
        )
        for person in found
    ]


def person(store: Store, one: records.Person) -> m.Person:
    return people(store, [one])[0]


# Exams


def summary(
    store: Store, exam: records.ExamRecord, findings: Iterable[ShiftFinding] = ()
) -> m.ExamSummary:
    return summaries(store, [exam], findings)[0]


def summaries(
    store: Store, exams: Iterable[records.ExamRecord], findings: Iterable[ShiftFinding] = ()
) -> list[m.ExamSummary]:
    """What each exam says; of a full audiogram that is what was found against its baseline."""
    exams, findings = list(exams), list(findings)
    handles = store.handles("exams", [exam.id for exam in exams])
    visits = store.visits_of({exam.visit_id for exam in exams})
    results = store.newest_results({exam.id for exam in exams})
    visit_handles = store.handles("visits", visits)
    devices = {one.id: one.name for one in store.devices()}
    return [
        _summary(
            exam,
            visits[exam.visit_id],
            results.get(exam.id),
            handles[exam.id],
            visit_handles[exam.visit_id],
            devices,
            [one for one in findings if one.exam_id == exam.id],
        )
        for exam in exams
    ]


def _summary(
    exam: records.ExamRecord,
    visit: records.Visit,
    result: records.ResultRecord | None,
    handle: str,
    visit_handle: str,
    devices: dict[int, str],
    findings: list[ShiftFinding],
) -> m.ExamSummary:
    said: dict[str, Any] = {} if result is None else result.shown
    verdict = said.get("verdict") or {}
    sentence = (said.get("sentence") or said.get("words")) if verdict else None
    if findings:
        sentence = " ".join(finding_sentence(one) for one in findings)
    steps = [shown.get("next_step") for shown in _verdicts(exam, said)]
    rule = exam.design.get("rule")
    return m.ExamSummary(
        id=handle,
        visit=visit_handle,
        ear=exam.ear,
        kind=exam.kind,
        state=exam.state,
        measured_on=records.measured_on(exam, visit),
        mode=visit.mode,
        rule=None if rule is None else rule["name"],
        decision=verdict.get("decision") or _decision(findings),
        next_step=next(filter(None, steps), None),
        words=said.get("words"),
        sentence=sentence,
        p_changed=verdict.get("p_changed"),
        tones=said.get("tones"),
        source=exam.source,
        sound=_sound_kind(exam, visit),
        device=devices.get(visit.device_id or 0),
    )


def _decision(findings: Iterable[ShiftFinding]) -> str | None:
    """Of both ears as of one: a shift of either counts, and no shift has to be said of each."""
    found = [one.decision for one in findings]
    return next((word for word in ("changed", "not determinable", *found) if word in found), None)


def _verdicts(exam: records.ExamRecord, shown: dict[str, Any]) -> list[dict[str, Any]]:
    """The verdict of each tested ear, as it was stored."""
    return [records.shown_of(shown, ear).get("verdict") or {} for ear in exam.ears]


def _sound_kind(exam: records.ExamRecord, visit: records.Visit) -> str:
    if visit.mode in ("imported", "simulated") or exam.kind == "audiogram":
        return "simulated" if visit.mode == "simulated" else "imported"
    sound = exam.delivery.get("sound")
    return "external" if sound is None else str(sound["kind"])


def history(
    store: Store, exams: Iterable[records.ExamRecord], summaries: Iterable[m.ExamSummary]
) -> dict[str, list[m.HistoryPoint]]:
    """Thresholds and P(changed) of each ear over time."""
    exams = list(exams)
    results = store.newest_results({exam.id for exam in exams})
    points: dict[str, list[m.HistoryPoint]] = {ear: [] for ear in values.EARS}
    for exam, said in zip(exams, summaries, strict=True):
        if exam.design.get("hypotheses") is not None:
            continue  # a notch is a shape of today: it says nothing about change
        silent: dict[str, float] = {}
        if exam.kind == "audiogram":
            levels = {f"{f:g}": level for f, level in exam.design["thresholds_db_hl"]}
            silent = {f"{f:g}": level for f, level in exam.design["no_response_db_hl"]}
            points[exam.ear].append(_point(exam, said, {}, levels, silent))
            continue
        for ear in exam.ears if exam.id in results else ():
            shown = results[exam.id].of(ear).shown
            points[ear].append(_point(exam, said, shown, _tested_levels(exam, shown), {}))
    return points


def _tested_levels(exam: records.ExamRecord, shown: dict[str, Any]) -> dict[str, float]:
    """Thresholds where tones were given: elsewhere they are inferred."""
    # Older results do not say where.
    usual = () if exam.kind == "screen" else [t["frequency_hz"] for t in shown["thresholds"]]
    tested = set(shown.get("tested_hz", usual))
    return {
        f"{t['frequency_hz']:g}": t["level_db_hl"]
        for t in shown["thresholds"]
        if t["frequency_hz"] in tested
    }


def _point(
    exam: records.ExamRecord,
    said: m.ExamSummary,
    shown: dict[str, Any],
    levels: dict[str, float],
    silent: dict[str, float],
) -> m.HistoryPoint:
    verdict = shown.get("verdict") or {}
    return m.HistoryPoint(
        on=said.measured_on,
        exam=said.id,
        kind=exam.kind,
        unit=exam.unit,
        thresholds=levels,
        intervals={
            f"{t['frequency_hz']:g}": (t["low_db_hl"], t["high_db_hl"])
            for t in shown.get("thresholds", ())
            if f"{t['frequency_hz']:g}" in levels and "low_db_hl" in t
        },
        no_response=silent,
        p_changed=verdict.get("p_changed"),
        decision=verdict.get("decision"),
    )


def exam(
    store: Store, accounts: Accounts, session: Session, user: str, *, position: m.Counted
) -> m.Exam:
    record = session.record
    visit = store.visit(record.visit_id)
    siblings = [one for one in store.exams(visit.person_id) if one.visit_id == visit.id]
    handles = store.handles("exams", [one.id for one in siblings])
    link = accounts.link_of(visit.id)
    can = list(BY_STATE[record.state])
    if record.kind == "screen" and record.state in ("done", "abandoned"):
        can.append("continue")
    listens, plays = session.delivery.answered_by == "listener", session.delivery.sound is not None
    by_itself = plays and session.held is None
    not_here = {"link": not listens, "release": not listens, "answer": listens, "resume": by_itself}
    not_here["finish"] = not session.trials  # nothing would be known: abandon it
    can = [action for action in can if not not_here.get(action, False)]
    return m.Exam(
        **summary(store, record, findings_of_exam(store, record)).model_dump(),
        person=person(store, store.person(visit.person_id)),
        ears_of_visit=[
            m.EarOfVisit(ear=one.ear, exam=handles[one.id], kind=one.kind, state=one.state)
            for one in siblings
        ],
        answered_by=session.delivery.answered_by,
        play=play(session, position) if record.kind != "audiogram" else None,
        can=can,
        link=None if link is None else m.LinkShown(expires_at=link.expires_at),
        held=session.held,
        released=accounts.released(visit.id),
        remarks=list(session.delivery.remarks),
        cautions=[one.text for one in cautions(visit.checklist, quiet_hours(store), record.ears)],
    )


def findings_of_exam(store: Store, record: records.ExamRecord) -> list[ShiftFinding]:
    """What the rule says of a full exam that is finished, by ear; nothing of any other."""
    if record.kind == "screen" or record.state != "done":
        return []
    return findings_of(store, store.visit(record.visit_id).person_id, {record.id})


def live(
    view: ExamView,
    procedure: Exam | Screen,
    known: KnownProbabilities,
    findings: Iterable[ShiftFinding] = (),
) -> lm.Live:
    """A view in the words of the API; `known` remembers the probabilities worked out before.

    A full exam that is finished is shown with what was found of it against the baseline.
    """
    findings = list(findings)
    ear = None if procedure.ears is None else view.ear
    p_changed = (
        p_changed_by_tone(procedure, known, ear)
        if isinstance(procedure, Screen) and not view.ears
        else []
    )
    verdict = view.verdict
    return lm.Live(
        number=view.presented,
        kind=view.kind,
        ear=view.ear,
        state=view.state,
        unit=view.unit,
        rule=None if view.rule is None else view.rule.name,
        sentence=view.sentence,
        words=view.words,
        decision=view.decision,
        reason=None if verdict is None else verdict.reason or None,
        next_step=None if verdict is None else verdict.next_step or None,
        reliability=view.reliability,
        attention=view.attention,
        p_not_listening=view.p_not_listening,
        notes=list(view.notes),
        tones=view.tones,
        max_tones=view.max_tones,
        catch_trials=view.catch_trials,
        false_alarms=view.false_alarms,
        presses=view.presses,
        trials=[lm.TrialShown(**asdict(trial)) for trial in view.trials],
        thresholds=[_threshold(one) for one in view.thresholds],
        reference=[_threshold(one) for one in view.reference_thresholds],
        tested_hz=list(view.tested_hz),
        reference_tested_hz=list(view.reference_tested_hz),
        **shift_picture(view.to_result()),
        p_changed=[lm.ProbabilityAt(tone=n, p=p) for n, p in enumerate(p_changed, start=1)],
        limits=_limits(procedure),
        ears=[live(one, procedure, known, findings) for one in view.ears],
    ).model_copy(update=_found(view, findings))


def _found(view: ExamView, findings: list[ShiftFinding]) -> dict[str, Any]:
    """What a finding adds to a full exam: sentence, decision, baseline and shifts."""
    if view.ears and findings:
        return {"decision": _decision(findings)}
    for finding in findings:
        if finding.ear == view.ear:
            shown = as_shown(finding)
            stored = [Threshold(**one) for one in shown["reference_thresholds"]]
            sentence = finding_sentence(finding)
            return {
                "sentence": sentence,
                "words": f"{sentence} {view.words}",
                "decision": finding.decision,
                "rule": shown["verdict"]["rule"],
                "reference": [_threshold(one) for one in stored],
                "reference_tested_hz": [one.frequency_hz for one in stored],
                **shift_picture(shown),
            }
    return {}


def live_as_stored(session: Session, result: records.ResultRecord) -> lm.Live:
    """An exam that is over as it was shown then: nothing of a stored result is worked out anew.

    Of the probabilities after each tone only the last one is stored.
    """
    record, shown = session.record, result.shown
    verdict = shown.get("verdict") or {}
    tones = int(shown.get("tones") or 0)
    p_changed = verdict.get("p_changed")
    chosen = result.settings.get("settings") or {}
    stored_limits = None
    if "changed_at" in chosen and "unchanged_at" in chosen:
        stored_limits = lm.DecisionLimits(
            changed_at=chosen["changed_at"], unchanged_at=chosen["unchanged_at"]
        )
    return lm.Live(
        number=len(session.trials),
        kind=record.kind,
        ear=record.ear,
        state=record.state,
        unit=shown.get("unit", record.unit),
        rule=verdict.get("rule"),
        sentence=shown.get("sentence", ""),
        words=shown["words"],
        decision=verdict.get("decision"),
        reason=verdict.get("reason") or None,
        next_step=verdict.get("next_step") or None,
        reliability=verdict.get("reliability", shown.get("reliability")),
        attention=verdict.get("attention", shown.get("attention")),
        p_not_listening=verdict.get("p_not_listening", shown.get("p_not_listening")),
        notes=list(verdict.get("notes", ())),
        tones=tones,
        max_tones=result.settings.get("max_tones") or session.procedure.max_tones,
        catch_trials=shown.get("catch_trials", verdict.get("catch_trials", 0)),
        false_alarms=shown.get("false_alarms", verdict.get("false_alarms", 0)),
        presses=shown.get("presses", 0),
        trials=[lm.TrialShown(**asdict(TrialView.of(trial))) for trial in session.trials],
        thresholds=[_threshold(Threshold(**one)) for one in shown["thresholds"]],
        reference=[_threshold(Threshold(**one)) for one in shown["reference_thresholds"]],
        tested_hz=shown.get("tested_hz", played_hz(session.trials)),
        reference_tested_hz=shown.get("reference_tested_hz", []),
        **shift_picture(shown),
        p_changed=[] if p_changed is None else [lm.ProbabilityAt(tone=tones, p=p_changed)],
        limits=stored_limits,
        ears=[],  # a sitting of both ears came later than the engines that are gone
    )


def played_hz(trials: Iterable[records.TrialRecord]) -> list[float]:
    """Where the tones that count were played: older results do not say it themselves."""
    live = [one for one in trials if one.kind == "tone" and one.voided_at is None]
    return sorted({one.frequency_hz for one in live})


def released(exam: records.ExamRecord, shown: dict[str, Any]) -> m.Released:
    """A stored result for the person tested."""
    told = plain_words(shown, exam.ear)
    verdict = shown.get("verdict") or {}
    return m.Released(
        words=shown["words"],
        decision=verdict.get("decision"),
        ear=exam.ear,
        headline=told.headline,
        plain=[text for text in (told.found, told.sure, told.means, told.next_step) if text],
        caution=ENGLISH.plain_doctor,
        unit=shown.get("unit", exam.unit),
        thresholds=[_threshold(Threshold(**one)) for one in shown["thresholds"]],
        reference=[_threshold(Threshold(**one)) for one in shown["reference_thresholds"]],
        tested_hz=shown.get("tested_hz", []),
        reference_tested_hz=shown.get("reference_tested_hz", []),
    )


def shift_picture(shown: Mapping[str, Any]) -> dict[str, Any]:
    """Of a result as it is stored: shifts, what the rule speaks of, and the rule's own lines."""
    verdict, rule = shown.get("verdict") or {}, shown.get("rule") or {}
    amount = verdict.get("amount")
    toward = -1.0 if rule.get("better") else 1.0
    criteria = [] if rule.get("kind") == ThresholdRule.kind else rule.get("criteria", [])
    return {
        "shifts": [
            lm.ShiftShown(
                frequency_hz=one["frequency_hz"],
                shift=one["shift_db"],
                low=one["low_db"],
                high=one["high_db"],
                censored=one["censored"],
            )
            for one in verdict.get("shifts", ())
            if "frequency_hz" in one
        ],
        "amount": None
        if amount is None
        else lm.AmountShown(
            what=amount["what"],
            frequencies_hz=list(amount["frequencies_hz"]),
            middle=amount["middle_db"],
            low=amount["low_db"],
            high=amount["high_db"],
            rule_db=amount["rule_db"],
            unit=amount["unit"],
            beyond=amount["beyond"],
        ),
        "rule_lines": [
            lm.RuleLine(
                frequencies_hz=list(one["frequencies_hz"]),
                shift=toward * one["at_least_db"],
                combine=one["combine"],
            )
            for one in criteria
        ],
    }


def judged_otherwise(record: records.ExamRecord) -> bool:
    """Whether a screen by a rule or for a notch was made by an engine that is no longer there."""
    design = record.design
    asked = design.get("rule") is not None or design.get("hypotheses") is not None
    return record.kind == "screen" and asked and design.get("engine") is None


def _limits(procedure: Exam | Screen) -> lm.DecisionLimits | None:
    """Where the Bayes factor of a rule's or notch's screen lies on the scale of probability."""
    if not isinstance(procedure, Screen):
        return None
    if not procedure.rules and procedure.hypotheses is None:
        return None
    asked = procedure.settings if procedure.rules else procedure.notch
    if asked.device_offset_sd_db > 0.0:
        # Such a screen decides on levels as measured, the probability counts the device as well.
        return None
    changed_at, unchanged_at = asked.decision_limits
    return lm.DecisionLimits(changed_at=changed_at, unchanged_at=unchanged_at)


def _threshold(threshold: Threshold) -> m.ThresholdShown:
    """A threshold as the API gives it: its unit stands beside the list."""
    return m.ThresholdShown(
        frequency_hz=threshold.frequency_hz,
        level=threshold.level_db_hl,
        low=threshold.low_db_hl,
        high=threshold.high_db_hl,
        censored=threshold.censored,
    )


# What a player needs


def sound(delivery: Delivery) -> m.SoundShown:
    cap_db_hl, cap_db_spl = delivery.caps
    source = delivery.sound
    if source is None:
        return m.SoundShown(
            kind="external",
            unit=values.HEARING_LEVEL,
            device="",
            fingerprint=None,
            table=None,
            zero_dbfs=None,
            floor_dbfs=0.0,
            highest_dbfs=0.0,
            cap_db=cap_db_hl,
            cap_db_spl=cap_db_spl,
        )
    return m.SoundShown(
        kind=source.kind,
        unit=source.unit,
        device=source.device,
        fingerprint=dict(source.fingerprint),
        table=None if delivery.relative else {ear: source.table(ear) for ear in values.EARS},
        zero_dbfs=RELATIVE_ZERO_DBFS if delivery.relative else None,
        floor_dbfs=source.floor_dbfs,
        highest_dbfs=source.highest_dbfs,
        cap_db=delivery.domain.intensity.values[-1] if delivery.relative else cap_db_hl,
        cap_db_spl=None if delivery.relative else cap_db_spl,
    )


def play(session: Session, position: m.Counted) -> m.Play:
    delivery = session.delivery
    state = {"open": "play", "paused": "check", "done": "done", "abandoned": "ended"}
    presentation = None
    if session.record.state == "open" and not session.done:
        asked = session.presentation()
        level = asked.level_db_hl
        presentation = m.PresentationShown(
            trial=session.trial_id,
            practice=asked.kind == "practice",
            ear=asked.ear,
            frequency_hz=asked.frequency_hz,
            level=level,
            dbfs=None
            if level is None or delivery.sound is None
            else delivery.sound.dbfs(asked.ear, asked.frequency_hz, level),
            gap_ms=session.gap_ms,
        )
    return m.Play(
        state=state[session.record.state] if session.held is None else "held",
        held_by_examiner=(session.held or "").startswith(HELD),
        exam=position,
        ear=session.record.ear,
        sound=sound(delivery),
        timing=m.TimingAsked(**delivery.timing.to_dict()),
        progress=m.Progress(
            answered=session.tones + len(session.catch_responses), at_most=at_most(session)
        ),
        presentation=presentation,
        problem=_problem(session),
    )


def position(snapshot: records.ExamSnapshot) -> m.Counted:
    """Which of the visit's exams this is, and how many there are."""
    of_visit = snapshot.of_visit
    return m.Counted(now=of_visit.index(snapshot.exam.id) + 1, of=len(of_visit))


def at_most(session: Session) -> int:
    """Presentations to the end at most, silent ones included: the listener counts those, too."""
    tones = session.procedure.max_tones
    return tones + tones // (CATCH_EVERY - 1) + 1


def _problem(session: Session) -> str | None:
    """What has to be put right before the exam can go on: practice that was taken back says it."""
    if session.record.state != "paused" or not session.trials:
        return None
    last = session.trials[-1]
    return last.void_reason if last.kind == "practice" and last.void_reason in PROBLEMS else None


# Devices


def device(store: Store, one: records.Device, today: date) -> m.Device:
    now = device_today(store, one, today)
    in_force = now.calibration
    return m.Device(
        id=store.handle("devices", one.id),
        name=one.name,
        transducer=one.transducer,
        model=one.model,
        serial=one.serial,
        fingerprint=one.fingerprint,
        sound="external" if now.sound is None else now.sound.kind,
        unit=now.unit,
        answered_by=list(now.answered_by),
        calibration=m.CalibrationShown(
            state=now.calibration_state,
            done_on=None if in_force is None else in_force.done_on,
            due_on=None if in_force is None else in_force.due_on,
            laboratory=None if in_force is None else in_force.laboratory,
            coupler=None if in_force is None else in_force.coupler,
            kind=None if in_force is None else in_force.kind,
        ),
        daily_check=m.DailyCheck(state=now.daily_check, on=now.checked_on),
        blocked=now.blocked,
        default=one.id == default_device(store),
        in_order=not now.needs_attention,
        warnings=list(now.warnings),
    )
