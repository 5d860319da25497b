"""What the report of a visit says: the stored rows in words, person and visit."""

import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

import earshift as es
from earshift.days import noon
from earshift.records import ExamBundle, Note, Person, VisitBundle
from earshift.report import ENGLISH, render_html
from earshift.report.page import compose
from support.helpers import MILD, NORMAL
from support.report_bundles import (
    CALIBRATION,
    DEVICE,
    PERSON,
    START,
    VISIT,
    screened,
    visit_of,
    with_shown,
    with_verdict,
)
from support.report_text import Document, page_of

# What the page says -----------------------------------------------------------------------------


def test_a_screen_is_shown_as_it_was_stored(changed: ExamBundle) -> None:
    text = page_of(changed)
    shown = changed.results[0].shown
    assert shown["sentence"].startswith("Right ear: average at 2-4 kHz is ")
    assert f"\nChanged\n{shown['sentence']}\n" in text  # first of all, and by itself
    assert shown["words"].removeprefix(shown["sentence"]).strip() in text
    rule = shown["rule"]
    meaning = rule["text"].removeprefix("standard threshold shift: ")
    assert f"OSHA standard threshold shift: {meaning} ({rule['source']})" in text
    for expected in (
        "Right ear: screen for change",
        "Changed",
        "Anna Müller",
        "B-1042",
        "2026-03-05 00:30 (Europe/Berlin, UTC+01:00)",
        "supervised",
        "jk",
        "Booth 2, MA 25, serial 4711, supra-aural earphones",
        "calibrated; acoustic, Messlabor Nord, 2025-06-01, due 2026-06-01; coupler IEC 60318-3",
        "otoscopy: normal; cold: no",
        "audiogram from another source (record 10), 2024-02-01, clinic.csv",
        '1 of 3 "heard" (false alarms)',
        f"{shown['tones']} answered",
        f"earshift {es.__version__}. Seed 1. "
        f"Fingerprint of the trials: {changed.results[0].trials_sha256[:12]}.",
        "Decides when the answers are 100 times more likely one way than the other. Prevalence "
        f"assumed before the first tone: {100 * es.RuleSettings().prevalence:.0f} %. At most 30 "
        "tones.",
        "Effective sample size behind these numbers: ",
        "; attentive at the last tone: ",
        "Tones could not be louder than 90 dB HL.",
        "Screening result, not a diagnostic audiogram.",
        "Not an audiogram under 29 CFR 1910.95(h).",
        "Sudden or one-sided hearing loss, pain, discharge or dizziness: see a doctor today, "
        "whatever this report says.",
    ):
        assert expected in text
    assert "SIMULATED" not in text


def test_numbers_come_from_the_row_and_not_from_the_method(changed: ExamBundle) -> None:
    """Rows that no engine would give are shown all the same."""
    shift = {"frequency_hz": 750.0, "shift_db": 77.4, "low_db": -3.6, "high_db": 88.0}
    threshold = {"frequency_hz": 750.0, "level_db_hl": -0.4, "low_db_hl": -9.0, "high_db_hl": 5.5}
    absurd = with_shown(
        with_verdict(changed, p_changed=0.1234, shifts=[shift], evidence_hz=[750.0]),
        thresholds=[threshold],
        reference_thresholds=[threshold | {"level_db_hl": 33.0}],
        words="Seen by nobody.",
        tones=99,
        tested_hz=[750.0],
    )
    lines = page_of(absurd).split("\n")
    assert "Seen by nobody." in lines
    table = lines[lines.index("Shift (dB)") + 1 :]
    assert table[:4] == ["◆ 750", "33 (−9 to 6)", "0 (−9 to 6)", "+77 (−4 to +88)"]
    assert table[4:6] == [ENGLISH.tested_key, ENGLISH.apart_key]  # and no other row
    assert {"12 %", "99 answered"} <= set(lines)


def test_nothing_of_the_engine_is_needed_to_show_a_report() -> None:
    script = (
        "import sys; from datetime import UTC, datetime\n"
        "from earshift.records import Person, Visit, VisitBundle\n"
        "from earshift.report import render_html\n"
        "at = datetime(2026, 1, 1, tzinfo=UTC)\n"
        "render_html(VisitBundle(Person(1), Visit(1, 1, at, 'UTC', 'self', 'a'), ()))\n"
        "names = ('earshift.engine.exam', 'earshift.engine.field', 'numba', 'sqlalchemy', 'fpdf', "
        "'matplotlib')\n"
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_result_of_an_earlier_version_is_shown_as_it_was(changed: ExamBundle) -> None:
    """Its limits were probabilities, and it knew neither reasons nor attention."""
    names = ("reason", "next_step", "attention", "p_not_listening", "effective_size")
    verdict = {k: v for k, v in changed.results[0].shown["verdict"].items() if k not in names}
    old = with_shown(changed, verdict=verdict | {"decision": "inconclusive"})
    design = old.results[0].settings
    before = {"prevalence": 0.05, "changed_at": 0.95, "unchanged_at": 0.01, "max_tones": 30}
    result = replace(old.results[0], settings=design | {"settings": before})
    lines = page_of(replace(old, results=(result,)))
    assert "Inconclusive: retest" in lines
    expected = "Settings: prevalence 0.05, changed_at 0.95, unchanged_at 0.01, max_tones 30."
    assert expected in lines
    assert "fair" in lines.split("\n")  # the reliability alone
    for text in ("times more likely", "Effective sample size", "attentive"):
        assert text not in lines


@pytest.mark.parametrize(
    ("next_step", "words"),
    [
        ("more tones", "Inconclusive: more tones needed"),
        ("better reference", "Inconclusive: better reference needed"),
        ("retest", "Inconclusive: retest"),
        ("a miracle", "Inconclusive: retest"),
    ],
)
def test_what_would_help_is_in_the_headline(
    changed: ExamBundle, next_step: str, words: str
) -> None:
    bundle = with_verdict(changed, decision="inconclusive", reason="evidence", next_step=next_step)
    assert words in page_of(bundle).split("\n")


def test_doubt_about_the_listener_is_said(changed: ExamBundle) -> None:
    doubtful = with_verdict(changed, reliability="poor", p_not_listening=0.912, attention=0.5)
    assert "POOR; probability that the answers do not follow the tones: 91 %" in page_of(
        doubtful
    ).split("\n")


def test_an_exam_says_how_precise_it_was_to_be(full: ExamBundle) -> None:
    text = page_of(full)
    assert "Measures until every 95 % interval is within 5 dB to either side" in text


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        ("changed", "Changed"),
        ("unchanged", "Unchanged"),
        ("inconclusive", "Inconclusive: retest"),
        ("not determinable", "Not determinable"),
        ("<b>bananas</b>", "<b>bananas</b> (not known to this version)"),
    ],
)
def test_every_decision_in_plain_words(changed: ExamBundle, decision: str, words: str) -> None:
    html = render_html(visit_of(with_verdict(changed, decision=decision)))
    document = Document(html)
    assert words in document.texts
    alarming = any(each.get("class") == "verdict alarming" for each in document.all("div"))
    assert alarming == (decision == "changed")


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.9996, "> 99.9 %"), (0.0004, "< 0.1 %"), (0.5, "50 %"), (0.996, "99.6 %"), (1.0, "> 99.9 %"),
     (None, "not recorded"), ("nan", "not recorded"), (float("nan"), "not recorded")],
)  # fmt: skip
def test_a_probability_is_never_rounded_to_certainty(
    changed: ExamBundle, p: object, text: str
) -> None:
    lines = page_of(with_verdict(changed, p_changed=p)).split("\n")
    assert lines[lines.index("P(rule met)") + 1] == text


def test_what_is_not_determinable_has_no_probability(changed: ExamBundle) -> None:
    unsaid = with_verdict(
        changed,
        decision="not determinable",
        p_changed=0.0,
        not_determinable_hz=[4000.0],
    )
    lines = page_of(with_shown(unsaid, tested_hz=[3000.0])).split("\n")
    assert lines[lines.index("P(rule met)") + 1] == "Not determinable"
    assert {"◆ 3000", "‡ 4000"} <= set(lines)


def test_without_a_rule_the_shift_is_said_to_be_conditional(
    any_change: ExamBundle, changed: ExamBundle
) -> None:
    text = page_of(any_change)
    assert "Shift if changed (dB)" in text
    assert "none: any change from the reference counts (best)" in text
    assert "P(changed)" in text
    assert "P(rule met)" not in text
    assert "Shift if changed" not in page_of(changed)


def test_a_niosh_shift_asks_for_a_retest_only_when_there_is_one(
    niosh: ExamBundle, changed: ExamBundle
) -> None:
    assert niosh.results[0].shown["verdict"]["decision"] == "changed"
    assert ENGLISH.retest in page_of(niosh)
    assert ENGLISH.retest not in page_of(with_verdict(niosh, decision="unchanged"))
    assert ENGLISH.retest not in page_of(changed)


def test_an_unverified_rule_is_marked() -> None:
    exam = screened("left", 23, NORMAL, MILD, rule="asha-1994", allow_unverified=True)
    text = page_of(exam)
    assert (
        "RULE NOT VERIFIED. The ASHA 1994 ototoxic change rule is not verified: ASHA 1994" in text
    )
    assert "RULE NOT VERIFIED" not in page_of(with_verdict(exam, unverified=None))


def test_the_verdicts_own_notes_are_said_once(changed: ExamBundle) -> None:
    note = "A shift common to all frequencies: device or hearing, cannot be told apart."
    noted = with_verdict(changed, notes=[note])
    assert page_of(noted).count(note) == 1
    assert page_of(with_shown(noted, words=f"Changed. {note}")).count(note) == 1


def test_doubts_about_the_answers_are_said(changed: ExamBundle) -> None:
    poor = with_verdict(
        changed, reliability="poor", catch_trials=6, false_alarms=4, converged=False
    )
    text = page_of(poor)
    for expected in (
        "POOR",
        '4 of 6 "heard" (false alarms)',
        ENGLISH.poor_reliability,
        ENGLISH.not_settled,
    ):
        assert expected in text
    good = page_of(with_verdict(changed, reliability="good", catch_trials=0))
    assert "none played" in good
    assert ENGLISH.poor_reliability not in good
    assert ENGLISH.not_settled not in good


def test_marks_of_the_table_have_a_key(changed: ExamBundle) -> None:
    shifts = [
        {"frequency_hz": 500.0, "shift_db": 1.0, "low_db": 0.0, "high_db": 2.0, "censored": False},
        {"frequency_hz": 1000.0, "shift_db": 9.0, "low_db": 1.0, "high_db": 20.0, "censored": True},
    ]
    marked = with_verdict(changed, shifts=shifts, not_determinable_hz=[1000.0])
    nothing = {"thresholds": [], "reference_thresholds": []}
    lines = page_of(with_shown(marked, tested_hz=[500.0], **nothing)).split("\n")
    assert "◆ 500" in lines
    assert "+1 (0 to +2)" in lines
    assert "‡ 1000" in lines
    assert "† +9 (+1 to +20)" in lines
    for key in (ENGLISH.tested_key, ENGLISH.undetermined_key, ENGLISH.censored_key):
        assert key in lines
    plain = with_verdict(changed, shifts=shifts[:1], not_determinable_hz=[])
    lines = page_of(with_shown(plain, tested_hz=[8000.0], **nothing)).split("\n")
    assert "500" in lines
    for key in (ENGLISH.tested_key, ENGLISH.undetermined_key, ENGLISH.censored_key):
        assert key not in lines


def test_a_full_exam_shows_model_estimates(full: ExamBundle) -> None:
    text = page_of(full)
    shown = full.results[0].shown
    assert shown["words"] in text
    assert ENGLISH.exam_done_means in text
    assert ENGLISH.not_osha not in text  # it is no screen
    assert ENGLISH.screening not in text
    assert ENGLISH.not_diagnostic in text
    beyond = [row for row in shown["thresholds"] if row["censored"] == "above"]
    assert beyond  # this ear hears nothing at high frequencies
    assert re.search(r"^> 100", text, re.M)
    assert ENGLISH.exam_not_done_means in page_of(with_shown(full, complete=False))


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"level_db_hl": 100.0, "low_db_hl": 85.2, "high_db_hl": 100.0, "censored": "above"},
         "> 100 (from 85)"),
        ({"level_db_hl": 100.0, "low_db_hl": 99.8, "high_db_hl": 100.0, "censored": "above"},
         "> 100"),
        ({"level_db_hl": -10.0, "low_db_hl": -10.0, "high_db_hl": 4.0, "censored": "below"},
         "< −10 (to 4)"),
        ({"level_db_hl": 41.6, "low_db_hl": None, "high_db_hl": None}, "42"),
    ],
)  # fmt: skip
def test_a_threshold_outside_the_levels_is_a_bound(
    full: ExamBundle, row: dict[str, Any], text: str
) -> None:
    shown = with_shown(full, thresholds=[{"frequency_hz": 2000.0, **row}], tested_hz=[1000.0])
    lines = page_of(shown).split("\n")
    assert lines[lines.index("Threshold") + 1 :][:2] == ["2000", text]


def test_the_newest_result_is_shown_and_earlier_ones_are_mentioned(changed: ExamBundle) -> None:
    first = changed.results[0]
    later = replace(first, id=9, at=first.at.replace(hour=23, minute=59))
    later = replace(later, shown={**first.shown, "words": "The later word."})
    for results in ((first, later), (later, first)):
        text = page_of(replace(changed, results=results))
        assert "The later word." in text
        assert first.shown["words"] not in text
        assert "Earlier results of this screen for change: 1." in text
    assert "Earlier results" not in page_of(changed)


def test_voided_answers_are_counted_and_not_drawn(changed: ExamBundle) -> None:
    taken_back = replace(
        changed.trials[0], id=9000, voided_at=START, voided_by="jk", void_reason="a cough"
    )
    voided = replace(changed, trials=(*changed.trials, taken_back))
    assert "Answers undone or interrupted, and not counted: 1." in page_of(voided)
    assert "undone" not in page_of(changed)
    pictures = [compose(visit_of(exam), ENGLISH).rounds[0][0].picture for exam in (changed, voided)]
    assert pictures[0] == pictures[1]


def test_practice_is_counted_apart(changed: ExamBundle) -> None:
    practice = replace(changed.trials[0], id=9001, kind="practice")
    text = page_of(replace(changed, trials=(practice, *changed.trials)))
    assert f"{changed.results[0].shown['tones']} answered, plus 1 for practice" in text
    assert "answers have changed" not in text


def test_answers_that_the_result_does_not_count_are_said(changed: ExamBundle) -> None:
    tones = changed.results[0].shown["tones"]
    text = page_of(replace(changed, trials=changed.trials[1:]))
    assert f"({tones} tones then, {tones - 1} now)" in text
    assert "tones then" not in page_of(changed)


def test_another_engine_than_the_exam_began_with_is_said(changed: ExamBundle) -> None:
    older = replace(changed, exam=replace(changed.exam, engine_version="0.0.9"))
    assert (
        f"Started with earshift 0.0.9; this result was calculated with {es.__version__}."
        in page_of(older)
    )
    assert "Started with" not in page_of(changed)


def test_a_reference_of_the_other_ear_is_no_reference(changed: ExamBundle) -> None:
    assert changed.reference is not None
    crossed = replace(changed, reference=replace(changed.reference, ear="left"))
    assert ENGLISH.reference_other_ear in page_of(crossed)
    assert ENGLISH.reference_other_ear not in page_of(changed)


def test_a_population_norm_is_named_as_reference(changed: ExamBundle) -> None:
    norm = {**changed.exam.design, "reference": {"kind": "norm", "data": {}}}
    exam = replace(changed.exam, design=norm, reference_exam_id=None)
    assert "population norm" in page_of(replace(changed, exam=exam, reference=None))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("open", "The screen for change is not finished."),
        ("paused", "The screen for change is paused."),
        ("abandoned", "The screen for change was abandoned."),
        ("done", "The screen for change is finished, but no result was stored."),
        ("{kind}", "{kind}"),
    ],
)
def test_an_exam_without_a_result_says_why(changed: ExamBundle, state: str, words: str) -> None:
    bare = replace(changed, exam=replace(changed.exam, state=state), results=())
    lines = page_of(bare).split("\n")
    assert "No result" in lines
    assert words in lines
    assert f"{changed.results[0].shown['tones']} answered" in lines
    assert "Changed" not in lines


def test_an_ear_that_was_not_tested_is_not_passed_over(unchanged: ExamBundle) -> None:
    right, left = compose(visit_of(unchanged), ENGLISH).rounds[0]
    assert (right.headline, left.headline) == ("Not tested", "Unchanged")
    assert right.words == ENGLISH.not_tested_means
    empty = compose(visit_of(), ENGLISH)
    assert [section.headline for section in empty.rounds[0]] == ["Not tested", "Not tested"]


def test_a_second_exam_of_an_ear_is_a_second_round(
    changed: ExamBundle, unchanged: ExamBundle, niosh: ExamBundle
) -> None:
    rounds = compose(visit_of(changed, unchanged, niosh), ENGLISH).rounds
    assert [[s.ear for s in sections] for sections in rounds] == [["right", "left"]] * 2
    assert [[s.headline for s in sections] for sections in rounds] == [
        ["Changed", "Unchanged"],
        ["Changed", "No further test"],
    ]
    # The visit does know something of that ear: it is above.
    assert rounds[1][1].words == ENGLISH.another_result_means
    assert ENGLISH.not_tested_means not in page_of(changed, unchanged, niosh)


def test_an_imported_audiogram_is_no_result_of_ours(imported: VisitBundle) -> None:
    text = Document(render_html(imported)).text
    for expected in (
        "imported",
        "Right ear: audiogram from another source",
        ENGLISH.audiogram_means,
        "no response at 100",
        "2020-05-02 00:30 (Europe/Berlin, UTC+02:00)",
        "clinic.csv",
        ENGLISH.see_a_doctor,
    ):
        assert expected in text
    for unfit in (ENGLISH.screening, ENGLISH.not_osha, "95 % intervals", "NONE"):
        assert unfit not in text


def test_a_day_without_an_hour_is_given_none(imported: VisitBundle) -> None:
    """An audiogram of which only the day is known is stored at noon."""
    at = noon(date(2026, 11, 15), "UTC")
    visit = replace(imported.visit, started_at=at, zone="UTC")
    (one,) = imported.exams
    typed = replace(one, exam=replace(one.exam, measured_at=at))
    text = Document(render_html(replace(imported, visit=visit, exams=(typed,)))).text
    assert text.count("2026-11-15") == 2  # the visit's day and the ear's
    assert "12:00" not in text


def test_a_screen_at_noon_was_at_noon(changed: ExamBundle) -> None:
    visit = replace(VISIT, started_at=noon(date(2026, 3, 5), "UTC"), zone="UTC")
    text = page_of(changed, visit=visit)
    assert "2026-03-05 12:00 UTC" in text
    assert "UTC+00:00" not in text


# The person and the visit ------------------------------------------------------------------------


def test_age_is_by_the_local_date(changed: ExamBundle) -> None:
    """At 23:30 UTC the birthday has begun in Berlin, and not in Lisbon."""
    assert "1980-03-05 (age 46 at the visit)" in page_of(changed)
    lisbon = replace(VISIT, zone="Europe/Lisbon")
    text = page_of(changed, visit=lisbon)
    assert "1980-03-05 (age 45 at the visit)" in text
    assert "2026-03-04 23:30 (Europe/Lisbon, UTC+00:00)" in text


@pytest.mark.parametrize(
    ("born", "text"),
    [
        (date(2026, 3, 5), "2026-03-05 (age 0 at the visit)"),
        (date(2026, 3, 6), "2026-03-06 (after the visit: check the record)"),
        (date(2024, 2, 29), "2024-02-29 (age 2 at the visit)"),
        (None, "not recorded"),
    ],
)
def test_births_of_all_kinds(born: date | None, text: str) -> None:
    lines = page_of(person=replace(PERSON, birth_date=born)).split("\n")
    assert lines[lines.index("Born") + 1] == text


def test_a_person_without_anything_but_an_id() -> None:
    lines = page_of(person=Person(17)).split("\n")
    start = lines.index("Name")
    assert lines[start : start + 10] == [
        "Name", "not recorded", "Born", "not recorded", "Sex", "not recorded",
        "Code", "not recorded", "Person no.", "17",
    ]  # fmt: skip


def test_an_erased_person_leaves_no_identity() -> None:
    erased = Person(17, "B-1042", "Anna Müller", erased_at=datetime(2026, 5, 1, 23, 0, tzinfo=UTC))
    html = render_html(visit_of(person=erased))
    assert "erased on 2026-05-02" in html  # the local day
    assert "Anna" not in html
    assert "B-1042" not in html


def test_the_name_is_nowhere_but_in_its_place() -> None:
    """Not in the title, which browsers remember and programs list."""
    html = render_html(visit_of())
    assert html.count("Anna Müller") == 1


@pytest.mark.parametrize("zone", ["Mars/Phobos", "", "../../etc/passwd", "Europe", "a\x00b"])
def test_an_unknown_zone_falls_back_to_utc_and_says_so(zone: str) -> None:
    text = page_of(visit=replace(VISIT, zone=zone))
    assert "2026-03-04 23:30 UTC (unknown time zone:" in text
    assert "age 45" in text


def test_simulated_in_big_letters(changed: ExamBundle) -> None:
    simulated = visit_of(changed, visit=replace(VISIT, mode="simulated"), device=None,
                         calibration=None)  # fmt: skip
    document = Document(render_html(simulated))
    _title, banner, means, heading, *rest = document.texts
    assert (banner, means, heading) == ("SIMULATED", ENGLISH.simulated_means, "Hearing report")
    assert {"SIMULATED", "none (simulated)"} <= set(rest)  # the mode, too


@pytest.mark.parametrize(
    ("mode", "text"), [("self", "self-test, unsupervised"), ("by <post>", "by <post>")]
)
def test_modes(mode: str, text: str) -> None:
    assert text in page_of(visit=replace(VISIT, mode=mode)).split("\n")


@pytest.mark.parametrize(
    ("changes", "state", "warned"),
    [
        ({}, "calibrated", ""),
        ({"due_on": date(2026, 3, 5)}, "calibrated", ""),
        ({"due_on": date(2026, 3, 4)}, "EXPIRED", "expired"),
        ({"kind": "biological", "coupler": ""}, "biological check only", "biological"),
        ({"coupler": ""}, "UNKNOWN REFERENCE", "unknown reference"),
    ],
)
def test_the_state_of_calibration_on_the_local_day(
    changes: dict[str, Any], state: str, warned: str
) -> None:
    lines = page_of(calibration=replace(CALIBRATION, **changes)).split("\n")
    assert lines[lines.index("Calibration") + 1].split(";")[0] == state
    for known, warning in ENGLISH.calibration_warnings.items():
        assert (warning in lines) == (known == warned)


def test_without_a_calibration_levels_are_not_db_hl() -> None:
    for changes, warning in (
        ({"calibration": None}, "none"),
        ({"calibration": None, "device": None}, "unknown device"),
    ):
        lines = page_of(**changes).split("\n")
        assert "NONE" in lines
        assert ENGLISH.calibration_warnings[warning] in lines


def test_a_device_of_which_little_is_known() -> None:
    text = page_of(device=replace(DEVICE, model="", serial="", transducer="unknown"))
    assert "Booth 2, transducer unknown" in text


def test_notes_keep_their_lines_and_their_ear(changed: ExamBundle) -> None:
    notes = (
        Note(1, 17, START, "jk", "First line\n\nthird line", visit_id=42),
        Note(2, 17, START, "mh", "Wax.", visit_id=42, exam_id=11),
    )
    text = page_of(changed, notes=notes)
    assert "First line\n\nthird line" in text
    assert "2026-03-05 00:30 (Europe/Berlin, UTC+01:00), mh, Right ear" in text
