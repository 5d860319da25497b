"""Every word of a report that is not stored with the result, and the headline of every verdict.

A translation is another `Words`; nothing else of the report holds a sentence. What was stored (the
verdict's sentence, a rule's text, notes) is shown as stored. Names in braces are filled in.

A verdict is a headline and a sentence, the same wherever it is read: `headline` gives the first,
the verdict itself (`str(verdict)`, stored with the result) the second.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from earshift.report.findings import ReviewWords


@dataclass(frozen=True)
class Words:
    """English, unless another language is given field by field."""

    language: str = "en"
    review: ReviewWords = field(default_factory=ReviewWords)

    title: str = "Hearing report, visit {visit}"
    heading: str = "Hearing report"
    simulated: str = "SIMULATED"
    simulated_means: str = "No person was tested. The answers come from a computer model."
    continued: str = "{heading}, visit {visit}, person {person}, continued"
    page_number: str = "page {page} of {pages}"
    shortened: str = "{text} … ({count} more characters are in the records)"
    not_recorded: str = "not recorded"
    code_points: str = (
        "Characters missing from the font of this page are shown by code point: {points}"
    )
    more_points: str = "{points} … and {count} more"

    # The person and the visit
    person_section: str = "Person"
    visit_section: str = "Visit"
    name: str = "Name"
    code: str = "Code"
    born: str = "Born"
    born_and_age: str = "{born} (age {age} at the visit)"
    born_later: str = "{born} (after the visit: check the record)"
    sex: str = "Sex"
    person_id: str = "Person no."
    erased: str = "erased on {day}"
    visit_id: str = "Visit no."
    date: str = "Date"
    moment: str = "{day} {time} ({zone}, UTC{offset})"
    moment_utc: str = "{day} {time} UTC"
    moment_in_utc: str = "{day} {time} UTC (unknown time zone: {zone})"
    mode: str = "Mode"
    modes: Mapping[str, str] = field(
        default_factory=lambda: {
            "supervised": "supervised",
            "self": "self-test, unsupervised",
            "simulated": "SIMULATED",
            "imported": "imported",
        }
    )
    examiner: str = "Examiner"
    device: str = "Device"
    serial: str = "serial {serial}"
    transducer: str = "{transducer} earphones"
    transducer_unknown: str = "transducer unknown"
    checklist: str = "Checklist"
    yes: str = "yes"
    no: str = "no"

    # Calibration
    calibration: str = "Calibration"
    calibration_states: Mapping[str, str] = field(
        default_factory=lambda: {
            "calibrated": "calibrated",
            "expired": "EXPIRED",
            "biological": "biological check only",
            "none": "NONE",
            "unknown reference": "UNKNOWN REFERENCE",
        }
    )
    calibration_details: str = "{kind}, {laboratory}, {done}, due {due}"
    calibration_coupler: str = "coupler {coupler}"
    calibration_simulated: str = "none (simulated)"
    calibration_warnings: Mapping[str, str] = field(
        default_factory=lambda: {
            "expired": "The calibration had expired: levels may be wrong.",
            "biological": "Levels were checked by ear only; they were not measured.",
            "unknown device": "There is no record of the audiometer or its calibration: levels "
            "are only as accurate as the examiner's settings.",
            "none": "Not calibrated: these are not hearing levels. Compare them only with tests on "
            "the same device, with the same earphones and volume.",
            "unknown reference": "The calibration record names no coupler: levels cannot be read "
            "as dB HL.",
        }
    )

    both_ears: str = "Both ears"

    # One ear
    ears: Mapping[str, str] = field(
        default_factory=lambda: {"right": "Right ear", "left": "Left ear"}
    )
    kinds: Mapping[str, str] = field(
        default_factory=lambda: {
            "screen": "screen for change",
            "exam": "exam",
            "audiogram": "audiogram from another source",
        }
    )
    section: str = "{ear}: {kind}"
    not_tested: str = "Not tested"
    not_tested_means: str = "This visit says nothing about this ear."
    no_result: str = "No result"
    no_result_states: Mapping[str, str] = field(
        default_factory=lambda: {
            "open": "The {kind} is not finished.",
            "paused": "The {kind} is paused.",
            "abandoned": "The {kind} was abandoned.",
            "done": "The {kind} is finished, but no result was stored.",
        }
    )
    decisions: Mapping[str, str] = field(
        default_factory=lambda: {
            "changed": "Changed",
            "unchanged": "Unchanged",
            "inconclusive": "Inconclusive: retest",
            "not determinable": "Not determinable",
            "notch": "Notch",
            "no notch": "No notch",
        }
    )
    unknown_decision: str = "{decision} (not known to this version)"
    # Nothing decided, and what would help most; without it the decision's own word stands.
    next_steps: Mapping[str, str] = field(
        default_factory=lambda: {
            "more tones": "Inconclusive: more tones needed",
            "better reference": "Inconclusive: better reference needed",
            "retest": "Inconclusive: retest",
        }
    )
    exam_done: str = "Thresholds"
    exam_done_means: str = "Model estimates with 95 % intervals."
    exam_not_done_means: str = "The exam was not completed. Model estimates with 95 % intervals."
    audiogram_means: str = "Copied from another source; not measured with earshift."

    rule: str = "Rule"
    rule_text: str = "{name}: {text} ({source})"
    no_rule: str = "none: any change from the reference counts ({protocol})"
    reference: str = "Reference"
    reference_exam: str = "{kind} (record {id})"
    reference_norm: str = "population norm"
    p_rule: str = "P(rule met)"
    p_change: str = "P(changed)"
    tones: str = "Tones"
    tones_answered: str = "{tones} answered"
    tones_practice: str = "{tones} answered, plus {practice} for practice"
    catch_trials: str = "Silent trials"
    false_alarms: str = '{alarms} of {trials} "heard" (false alarms)'
    no_catch_trials: str = "none played"
    reliability: str = "Reliability"
    reliabilities: Mapping[str, str] = field(
        default_factory=lambda: {
            "good": "good",
            "fair": "fair",
            "poor": "POOR",
            "not assessed": "not assessed: no silent trial was given",
        }
    )
    attention: str = "{reliability}; attentive at the last tone: {attention}"
    in_doubt: str = "{reliability}; probability that the answers do not follow the tones: {doubt}"
    too_doubtful: str = "{said}; a result needs less than 1 %"
    measured: str = "Measured"
    source: str = "Source"

    # Cautions
    retest: str = (
        "Not confirmed until an immediate retest of this ear shows the same shift at the same "
        "frequency."
    )
    unverified: str = "RULE NOT VERIFIED. {text}"
    not_settled: str = "The calculation did not converge fully: treat the numbers with caution."
    poor_reliability: str = "The answers were not reliable: repeat the test."
    earlier_results: str = "Earlier results of this {kind}: {count}. This is the newest."
    voided: str = "Answers undone or interrupted, and not counted: {count}."
    answers_since: str = (
        "The answers have changed since this result ({then} tones then, {now} now); it does not "
        "include the changes."
    )
    other_engine: str = "Started with earshift {begun}; this result was calculated with {made}."
    reference_other_ear: str = "The reference is from the other ear: do not compare them."

    # The table and the picture
    table_title: str = "{ear}: levels in {unit}, with 95 % intervals"
    table_title_audiogram: str = "{ear}: hearing levels in dB HL"
    frequency: str = "Hz"
    column_reference: str = "Reference"
    column_now: str = "Now"
    column_threshold: str = "Threshold"
    column_shift: str = "Shift (dB)"
    column_shift_if_changed: str = "Shift if changed (dB)"
    with_interval: str = "{value} ({low} to {high})"
    beyond: str = "> {value}"
    below: str = "< {value}"
    beyond_from: str = "> {value} (from {low})"
    below_to: str = "< {value} (to {high})"
    no_response: str = "no response at {value}"
    tested_mark: str = "◆"
    tested_key: str = "◆ tones were given at this frequency; elsewhere estimated from neighbours"
    apart_key: str = (
        "Each column is estimated from all answers by itself and rounded, so reference and shift "
        "need not add up exactly to now."
    )
    undetermined_mark: str = "‡"
    undetermined_key: str = "‡ the rule cannot be judged at this frequency"
    censored_mark: str = "†"
    censored_key: str = (
        "† a threshold lies outside the playable levels: the size of the shift is uncertain"
    )
    picture: str = "{ear}: audiogram"
    units: Mapping[str, str] = field(
        default_factory=lambda: {"dB HL": "dB HL", "relative dB": "relative dB"}
    )
    picture_now: str = "Now, in {unit}: {points}."
    picture_reference: str = "Reference: {points}."
    picture_point: str = "{frequency} Hz {level}"
    picture_same: str = "The table has the same numbers."
    axis_frequency: str = "frequency (Hz)"
    shift_picture: str = "{ear}: shift at each frequency"
    shift_axis: str = "shift (dB), worse is down"
    shift_rule: str = "rule: {size} dB"
    shift_columns: Mapping[str, str] = field(
        default_factory=lambda: {"mean": "average", "least": "least", "most": "most"}
    )
    shift_point: str = "{name} {low} to {high}"
    shift_told: str = "95 % intervals of the shift in dB: {points}."
    shift_alone: str = "{name} {low}"
    shifts_told: str = "Shift in dB: {points}."
    legend: str = (
        "Symbols: ○ right ear, × left ear, where tones were given; line and shade: estimate and "
        "95 % interval. Grey dashed: reference. ▲ tone heard, ▽ not heard, repeated ones side by "
        "side. Arrow ↙ ↘: no response up to that level."
    )
    legend_shifts: str = (
        "Shifts: bars are 95 % intervals, ◆ where tones were given, dashed where the rule begins."
    )

    # Small print
    result_line: str = "Result {id}, {moment}, by {author}. earshift {version}. Seed {seed}."
    exam_line: str = "Record {id} ({kind}), started with earshift {version}. Seed {seed}."
    audiogram_line: str = "Record {id} ({kind}), stored by earshift {version}."
    hash_line: str = "Fingerprint of the trials: {digest}."
    settings_line: str = "Settings: {settings}."
    decided_at: str = (
        "Decides when the answers are {factor} times more likely one way than the other. "
        "Prevalence assumed before the first tone: {prevalence}. At most {tones} tones."
    )
    device_offset: str = (
        "Allowance for a level difference from the reference's device: SD {sd} dB. Unchanged is "
        "then said of the levels as measured; the probability also counts that the device might "
        "hide a shift."
    )
    measured_until: str = (
        "Measures until every 95 % interval is within {precision} dB to either side; at most "
        "{tones} tones."
    )
    effective_size: str = "Effective sample size behind these numbers: {sizes}."
    limits: Mapping[str, str] = field(
        default_factory=lambda: {
            "cap_db_hl": "Tones could not be louder than {value} {unit}.",
            "start_db_hl": "Before the first answer they could not be louder than {value} {unit}.",
            "above_heard_db": "A tone could be at most {value} dB louder than one heard at a "
            "neighbouring frequency,",
            "above_missed_db": "and at most {value} dB louder than one not heard there.",
            "above_reference_db": "Once a tone had been heard, tones up to {value} dB above the "
            "earlier threshold were allowed.",
        }
    )
    limits_device: str = "Nothing was asked that the device cannot play."
    limits_line: str = "Other limits: {limits}."
    no_limits: str = "Levels were not limited."
    appendix: str = "How this was worked out"
    appendix_means: str = (
        "Thresholds, shifts and probabilities are estimated together from all answers, by a model "
        "of how people hear and answer; a 95 % interval holds the true value for 95 of 100 such "
        "ears. Where no tone was given, a value follows from its neighbours and from what is "
        "usual."
    )
    another_result: str = "No further test"
    another_result_means: str = "The result for this ear is above."

    # Who stands for it
    examiner_signs: str = "Examiner: name, signature, date"
    reviewer_signs: str = "Reviewed by: name, signature, date"

    notes: str = "Notes"
    note_about: str = "{moment}, {author}"
    note_about_ear: str = "{moment}, {author}, {ear}"

    plain_doctor: str = (
        "Sudden or one-sided hearing loss, pain, discharge or dizziness: see a doctor today, "
        "whatever this test says."
    )

    # For the person whose ear it is. A key is a decision, or what was asked and the decision.
    plain_headlines: Mapping[str, str] = field(
        default_factory=lambda: {
            "changed": "Your {ear} ear: hearing has changed",
            "shift changed": "Your {ear} ear hears less than before",
            "improvement changed": "Your {ear} ear hears better than before",
            "limit changed": "Your {ear} ear is past the limit that was asked about",
            "unchanged": "Your {ear} ear hears as before",
            "improvement unchanged": "Your {ear} ear does not hear better than before",
            "limit unchanged": "Your {ear} ear is within the limit that was asked about",
            "notch": "Your {ear} ear hears some high tones less than their neighbours",
            "no notch": "Your {ear} ear: no dip around 4 kHz",
            "inconclusive": "No clear result for your {ear} ear",
            "not determinable": "This test cannot say it for your {ear} ear",
            "exam": "Your {ear} ear was measured",
        }
    )
    plain_louder: str = "Tones at {where} now have to be {low} to {high} dB louder to be heard."
    plain_at_least: str = "Tones at {where} now have to be at least {low} dB louder to be heard."
    plain_close: str = (
        "At {where} it differs from the earlier test by at most about {most} dB. Two tests of the "
        "same ear often differ by 5 dB."
    )
    plain_wrong: str = "About 1 in {count} such ears is called wrongly."
    plain_hardly_wrong: str = "Fewer than 1 in 1000 such ears are called wrongly."
    plain_means: Mapping[str, str] = field(
        default_factory=lambda: {
            "changed": "This does not say why. Noise on the day before, ear wax or a cold can do "
            "it, and so can lasting damage by noise.",
            "unchanged": "Nothing points to a change that counts. It does not say that hearing is "
            "perfect: only that it is as it was.",
            "improvement unchanged": "Hearing is about as it was, or less.",
            "limit changed": "Soft tones that the limit asks for were not heard.",
            "limit unchanged": "The tones that the limit asks for were heard.",
            "notch": "Such a dip often comes from noise. This test does not say why it is there.",
            "no notch": "The dip that noise often leaves is not there.",
            "inconclusive": "The answers fit both: hearing that has changed, and hearing that has "
            "not. That happens; it is nobody's fault.",
            "not determinable": "Some of the tones that are needed could not be played, or nothing "
            "comparable is known from before.",
            "exam": "The picture shows the softest tones that you hear. Further down means that "
            "tones have to be louder.",
        }
    )
    plain_next: Mapping[str, str] = field(
        default_factory=lambda: {
            "changed": "Next: a full hearing test soon, after a quiet day and night. Until then, "
            "protect your ears in noise.",
            "unchanged": "Next: nothing now. Come to your next regular test.",
            "improvement changed": "Next: ask whether later tests should be compared with this "
            "one.",
            "improvement unchanged": "Next: nothing now. Come to your next regular test.",
            "limit changed": "Next: a full hearing test.",
            "notch": "Next: ask for a full hearing test, and protect your ears in noise.",
            "no notch": "Next: nothing now.",
            "more tones": "Next: repeat the test, or go on with it.",
            "better reference": "Next: a full hearing test, so that later tests have something "
            "sure to be compared with.",
            "retest": "Next: repeat the test in quiet. Press only when you hear a tone.",
            "inconclusive": "Next: repeat the test.",
            "not determinable": "Next: a full hearing test.",
            "exam": "Next: the examiner tells you what follows from it.",
        }
    )

    # Always there
    screening: str = "Screening result, not a diagnostic audiogram."
    not_diagnostic: str = "Full exam: estimated thresholds, not a diagnostic audiogram."
    not_osha: str = "Not an audiogram under 29 CFR 1910.95(h)."
    see_a_doctor: str = (
        "Sudden or one-sided hearing loss, pain, discharge or dizziness: see a doctor today, "
        "whatever this report says."
    )


ENGLISH = Words()


def headline(decision: str, words: Words = ENGLISH, next_step: str = "") -> str:
    """A verdict's decision in a word or two, as every page and the command line say it.

    Where nothing was decided, `next_step` of the verdict says what would help most.

    >>> headline("changed"), headline("inconclusive")
    ('Changed', 'Inconclusive: retest')
    >>> headline("inconclusive", next_step="more tones")
    'Inconclusive: more tones needed'
    """
    if decision == "inconclusive" and next_step in words.next_steps:
        return words.next_steps[next_step]
    return words.decisions.get(decision) or words.unknown_decision.format(decision=decision)
