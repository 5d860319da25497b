"""The report: the stored rows in words, as HTML and PDF; hostile and missing data included."""

import io
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, date, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from fontTools.ttLib import TTFont
from hypothesis import given, settings
from hypothesis import strategies as st
from pypdf import PdfReader

import earshift as es
from earshift import report
from earshift.records import ExamBundle, ExamRecord, Note, Person, VisitBundle
from earshift.report import ENGLISH, Words, audiogram, render_html, write_html, write_pdf
from earshift.report.audiogram import Circle, Fill, Played, Reading, Stroke, draw
from earshift.report.page import compose
from support.helpers import HZ, MILD, NORMAL
from support.report_bundles import (
    CALIBRATION,
    DEVICE,
    PERSON,
    START,
    VISIT,
    examined,
    screened,
    visit_of,
    with_shown,
    with_verdict,
)

DEAF = dict.fromkeys(HZ, 115.0) | {500.0: 70.0, 1000.0: 85.0}
HOSTILE = "<script>alert('1')</script>\"&{{ 7*7 }}{nb}%s{name}"


@pytest.fixture(scope="module")
def changed() -> ExamBundle:
    """A right ear that lost hearing at high frequencies, by a rule."""
    return screened("right", 11, NORMAL, MILD, rule="osha-sts", catches=(False, True, False))


@pytest.fixture(scope="module")
def unchanged() -> ExamBundle:
    return screened("left", 13, NORMAL, NORMAL, rule="osha-sts", seed=4)


@pytest.fixture(scope="module")
def niosh() -> ExamBundle:
    return screened("right", 21, NORMAL, MILD, rule="niosh-15")


@pytest.fixture(scope="module")
def any_change() -> ExamBundle:
    """A left ear screened without a rule."""
    return screened("left", 25, MILD, {f: level + 20 for f, level in MILD.items()})


@pytest.fixture(scope="module")
def full() -> ExamBundle:
    """A full exam of an ear with thresholds beyond the loudest tone."""
    return examined("left", 15, DEAF)


@pytest.fixture(scope="module")
def imported() -> VisitBundle:
    data = es.Audiogram(
        {500: 10, 1000: 15, 2000: 20, 4000: 60}, no_response_db_hl={8000: 100}
    ).to_dict()
    exam = ExamRecord(
        31, 42, "right", "audiogram", "done", data, "0.1.0",
        measured_at=datetime(2020, 5, 1, 22, 30, tzinfo=UTC), source="clinic.csv",
    )  # fmt: skip
    return visit_of(
        ExamBundle(exam),
        visit=replace(VISIT, mode="imported", device_id=None),
        device=None,
        calibration=None,
    )


# Reading what was written -----------------------------------------------------------------------


class Document(HTMLParser):
    """The elements of an HTML page, its visible text, and whether every tag was closed."""

    VOID = ("meta", "circle", "polyline", "polygon")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and self.open[-1] != "style":
            self.texts.append(data.strip())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def page_of(*exams: ExamBundle, **changes: Any) -> str:
    """Visible text of the HTML report."""
    return Document(render_html(visit_of(*exams, **changes))).text


def squeezed(text: str) -> str:
    """Without white space: where a line breaks is no part of what is said."""
    return re.sub(r"\s", "", text)


def pdf_of(
    path: Path, bundle: VisitBundle, paper: str = "a4", **options: Any
) -> tuple[PdfReader, str]:
    """A written PDF and its text without white space."""
    write_pdf(bundle, path, paper, **options)
    reader = PdfReader(io.BytesIO(path.read_bytes()))
    return reader, squeezed("".join(page.extract_text() for page in reader.pages))


def strings(value: Any) -> Iterator[str]:
    """Every text in a page's data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from strings(each)
    elif is_dataclass(value):
        for each in fields(value):
            yield from strings(getattr(value, each.name))


# What the page says -----------------------------------------------------------------------------


def test_a_screen_is_shown_as_it_was_stored(changed: ExamBundle) -> None:
    text = page_of(changed)
    shown = changed.results[0].shown
    assert shown["words"] in text
    rule = shown["rule"]
    assert f"{rule['name']}: {rule['text']} ({rule['source']})" in text
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
        "audiogram from elsewhere 10, 2024-02-01, clinic.csv",
        '1 of 3 "heard" (false alarms)',
        f"{shown['tones']} answered",
        f"earshift {es.__version__}. Seed 1. Trials {changed.results[0].trials_sha256[:12]}.",
        f"changed_at {changed.results[0].settings['settings']['changed_at']}",
        "cap_db_hl 90.0",
        "Screening result, not a diagnostic audiogram.",
        "Not an audiogram under 29 CFR 1910.95(h).",
        "Sudden or one-sided loss, pain, discharge or dizziness: see a doctor today, whatever "
        "this says.",
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
    )
    lines = page_of(absurd).split("\n")
    assert "Seen by nobody." in lines
    table = lines[lines.index("Shift (dB)") + 1 :]
    assert table[:4] == ["◆ 750", "33 (−9 to 6)", "0 (−9 to 6)", "+77 (−4 to +88)"]
    assert table[4] == ENGLISH.evidence_key  # and no other row
    assert {"12.3 %", "99 answered"} <= set(lines)


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
    alarming = any(each.get("class") == "verdict alarming" for each in document.all("p"))
    assert alarming == (decision == "changed")


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.9996, "> 99.9 %"), (0.0004, "< 0.1 %"), (0.5, "50.0 %"), (1.0, "> 99.9 %"),
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
        evidence_hz=[3000.0, 4000.0],
        not_determinable_hz=[4000.0],
    )
    lines = page_of(unsaid).split("\n")
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
    assert "RULE NOT VERIFIED. The rule asha-1994 is not verified: ASHA 1994" in text
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
    assert "none given" in good
    assert ENGLISH.poor_reliability not in good
    assert ENGLISH.not_settled not in good


def test_marks_of_the_table_have_a_key(changed: ExamBundle) -> None:
    shifts = [
        {"frequency_hz": 500.0, "shift_db": 1.0, "low_db": 0.0, "high_db": 2.0, "censored": False},
        {"frequency_hz": 1000.0, "shift_db": 9.0, "low_db": 1.0, "high_db": 20.0, "censored": True},
    ]
    marked = with_verdict(changed, shifts=shifts, evidence_hz=[500.0], not_determinable_hz=[1000.0])
    lines = page_of(with_shown(marked, thresholds=[], reference_thresholds=[])).split("\n")
    assert "◆ 500" in lines
    assert "+1 (0 to +2)" in lines
    assert "‡ 1000" in lines
    assert "† +9 (+1 to +20)" in lines
    for key in (ENGLISH.evidence_key, ENGLISH.unsaid_key, ENGLISH.censored_key):
        assert key in lines
    plain = with_verdict(changed, shifts=shifts[:1], evidence_hz=[], not_determinable_hz=[])
    text = page_of(plain)
    for mark in "◆‡†":
        assert mark not in text


def test_a_full_exam_shows_model_estimates(full: ExamBundle) -> None:
    text = page_of(full)
    shown = full.results[0].shown
    assert shown["words"] in text
    assert ENGLISH.exam_done_means in text
    assert ENGLISH.not_osha not in text  # it is no screen
    assert ENGLISH.screening in text
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
    shown = with_shown(full, thresholds=[{"frequency_hz": 2000.0, **row}])
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
        assert "Earlier results of this screen for change exist: 1." in text
    assert "Earlier results" not in page_of(changed)


def test_voided_answers_are_counted_and_not_drawn(changed: ExamBundle) -> None:
    taken_back = replace(
        changed.trials[0], id=9000, voided_at=START, voided_by="jk", void_reason="a cough"
    )
    voided = replace(changed, trials=(*changed.trials, taken_back))
    assert "Taken back or broken off, which count for nothing: 1." in page_of(voided)
    assert "taken back" not in page_of(changed)
    pictures = [compose(visit_of(exam), ENGLISH).rounds[0][0].picture for exam in (changed, voided)]
    assert pictures[0] == pictures[1]


def test_practice_is_counted_apart(changed: ExamBundle) -> None:
    practice = replace(changed.trials[0], id=9001, kind="practice")
    text = page_of(replace(changed, trials=(practice, *changed.trials)))
    assert f"{changed.results[0].shown['tones']} answered, 1 for practice" in text
    assert "the answers have changed" not in text


def test_answers_that_the_result_does_not_count_are_said(changed: ExamBundle) -> None:
    tones = changed.results[0].shown["tones"]
    text = page_of(replace(changed, trials=changed.trials[1:]))
    assert f"({tones} tones then, {tones - 1} now)" in text
    assert "tones then" not in page_of(changed)


def test_another_engine_than_the_exam_began_with_is_said(changed: ExamBundle) -> None:
    older = replace(changed, exam=replace(changed.exam, engine_version="0.0.9"))
    assert f"Begun with earshift 0.0.9, this result made with {es.__version__}." in page_of(older)
    assert "Begun with" not in page_of(changed)


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
        ["Changed", "Not tested"],
    ]


def test_an_imported_audiogram_is_no_result_of_ours(imported: VisitBundle) -> None:
    text = Document(render_html(imported)).text
    for expected in (
        "imported",
        "Right ear: audiogram from elsewhere",
        ENGLISH.audiogram_means,
        "no response at 100",
        "2020-05-02 00:30 (Europe/Berlin, UTC+02:00)",
        "clinic.csv",
        ENGLISH.see_a_doctor,
    ):
        assert expected in text
    for unfit in (ENGLISH.screening, ENGLISH.not_osha, "95 % intervals", "NONE"):
        assert unfit not in text


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
        "Code", "not recorded", "Person", "17",
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
    assert "2026-03-04 23:30 UTC (the zone" in text
    assert "age 45" in text


def test_simulated_in_big_letters(changed: ExamBundle) -> None:
    simulated = visit_of(changed, visit=replace(VISIT, mode="simulated"), device=None,
                         calibration=None)  # fmt: skip
    document = Document(render_html(simulated))
    _title, banner, means, heading, *rest = document.texts
    assert (banner, means, heading) == ("SIMULATED", ENGLISH.simulated_means, "Hearing report")
    assert {"SIMULATED", "none: simulated"} <= set(rest)  # the mode, too


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


# Hostile and damaged data ------------------------------------------------------------------------


def test_names_are_text_and_never_markup(changed: ExamBundle) -> None:
    rule = {**changed.results[0].shown["rule"], "text": HOSTILE, "source": HOSTILE}
    bundle = visit_of(
        with_shown(changed, words=HOSTILE, rule=rule),
        person=replace(PERSON, name=HOSTILE, code=HOSTILE, sex=HOSTILE),
        visit=replace(VISIT, author=HOSTILE, checklist={HOSTILE: HOSTILE}),
        device=replace(DEVICE, name=HOSTILE),
        notes=(Note(1, 17, START, HOSTILE, HOSTILE),),
    )
    document = Document(render_html(bundle))
    worded = with_shown(changed, words="Plain words.")
    plain = Document(render_html(visit_of(worded, notes=(Note(1, 17, START, "a", "b"),))))
    assert [name for name, _ in document.elements] == [name for name, _ in plain.elements]
    assert document.text.count(HOSTILE) >= 10


def test_characters_that_act_on_the_page_are_shown_by_code_point() -> None:
    name = "Bob\u202egnp\x07 \ud800 \ue000 \u2066x\u2069 z\u200dj"
    html = render_html(visit_of(person=replace(PERSON, name=name)))
    html.encode()  # a lone surrogate could not be written
    expected = "Bob[U+202E]gnp[U+0007] [U+D800] [U+E000] [U+2066]x[U+2069] z\u200dj"
    assert expected in Document(html).text


def test_a_very_long_fact_says_how_much_is_left_out() -> None:
    text = page_of(person=replace(PERSON, name="x" * 5000))
    assert "x" * 200 + " … (4800 more characters are in the records)" in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["verdict", "rule", "thresholds", "shifts", "frequency_hz", "level_db_hl", "words",
                 "low_db_hl", "high_db_hl", "censored", "decision", "notes", "evidence_hz", "tones",
                 "reference_thresholds", "catch_trials", "unverified", "settings", "limits"]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)  # fmt: skip


@given(shown=JSON, settings_=JSON, name=st.text(max_size=20))
@settings(max_examples=150)
def test_no_stored_row_breaks_a_report(
    changed: ExamBundle, shown: object, settings_: object, name: str
) -> None:
    def mapping(value: object) -> dict[str, Any]:
        return value if isinstance(value, dict) else {"verdict": value, "thresholds": value}

    result = replace(changed.results[0], shown=mapping(shown), settings=mapping(settings_))
    bundle = visit_of(
        replace(changed, results=(result,)),
        person=replace(PERSON, name=name),
        visit=replace(VISIT, checklist=mapping(shown)),
    )
    document = Document(render_html(bundle))
    assert document.all("svg")


def test_an_ear_that_is_none_is_refused(changed: ExamBundle) -> None:
    with pytest.raises(ValueError, match="'right' or 'left', got 'both'"):
        render_html(visit_of(replace(changed, exam=replace(changed.exam, ear="both"))))


# The HTML file -----------------------------------------------------------------------------------


def test_the_html_needs_nothing_else_and_can_be_read_aloud(
    changed: ExamBundle, unchanged: ExamBundle, niosh: ExamBundle
) -> None:
    html = render_html(visit_of(changed, unchanged, niosh))
    document = Document(html)
    assert not document.all("script")
    assert not document.all("link")
    assert not document.all("img")
    assert not re.search(r"https?:|url\(|@import|src=|href=", html)
    assert document.all("html")[0]["lang"] == "en"
    policy = [m.get("content") for m in document.all("meta") if m.get("http-equiv")]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert len(document.all("h1")) == len(document.all("main")) == 1
    identifiers = [a["id"] for _, a in document.elements if "id" in a]
    assert len(identifiers) == len(set(identifiers))
    pictures = document.all("svg")
    assert len(pictures) == len(document.all("table")) == len(document.all("caption")) == 3
    for picture in pictures:
        assert picture["role"] == "img"
        assert set(str(picture["aria-labelledby"]).split()) <= set(identifiers)
    assert {each["scope"] for each in document.all("th")} == {"row", "col"}


def test_the_picture_is_told_in_words(imported: VisitBundle) -> None:
    text = Document(render_html(imported)).text
    assert (
        "Now, in dB HL: 500 Hz 10, 1000 Hz 15, 2000 Hz 20, 4000 Hz 60, 8000 Hz no response at 100."
        in text
    )


def marked_words() -> Words:
    """Every text of the report between marks, as a translator's trial."""

    def mark(value: Any) -> Any:
        return f"«{value}»" if isinstance(value, str) else {k: f"«{v}»" for k, v in value.items()}

    return Words(**{each.name: mark(getattr(ENGLISH, each.name)) for each in fields(Words)})


def test_every_word_can_be_translated(changed: ExamBundle, full: ExamBundle) -> None:
    """With all words marked, only stored texts and numbers are left unmarked."""
    exam = replace(changed, trials=changed.trials[:-1])
    bundle = visit_of(exam, full, notes=(Note(1, 17, START, "jk", "Wax."),))
    document = Document(render_html(bundle, words=marked_words()))
    stored = {"Anna Müller", "female", "B-1042", "jk", "Wax.", exam.results[0].shown["words"]}
    for text in document.texts:
        if text not in stored and re.search("[a-zA-Z]", text):
            assert "«" in text, text


def test_html_is_written_whole(tmp_path: Path, changed: ExamBundle) -> None:
    path = tmp_path / "visit.html"
    assert write_html(visit_of(changed), str(path)) == path
    assert path.read_text(encoding="utf-8") == render_html(visit_of(changed))
    assert [each.name for each in tmp_path.iterdir()] == ["visit.html"]


# The picture -------------------------------------------------------------------------------------


def picture(ear: str, now: list[Reading], **others: Any) -> audiogram.Drawing:
    return draw(ear, now, others.get("reference", []), others.get("played", []), ENGLISH, "dB", "")


def strokes(drawing: audiogram.Drawing, colour: str) -> list[Stroke]:
    return [m for m in drawing.marks if isinstance(m, Stroke) and m.colour == colour]


def test_an_octave_is_as_long_as_20_db_and_louder_is_lower() -> None:
    def place(frequency_hz: float, level: float) -> audiogram.Point:
        (circle,) = [
            m for m in picture("right", [Reading(frequency_hz, level)]).marks
            if isinstance(m, Circle)
        ]  # fmt: skip
        return circle.centre

    x, y = place(1000, 40)
    assert place(1000, 60) == pytest.approx((x, y + audiogram.OCTAVE_MM))
    for octave in (-3, -1, 1, 3):
        expected = (x + octave * audiogram.OCTAVE_MM, y)
        assert place(1000 * 2.0**octave, 40) == pytest.approx(expected)


def test_shapes_carry_the_ear() -> None:
    readings = [Reading(1000, 20), Reading(2000, 30)]
    right, left = picture("right", readings), picture("left", readings)
    assert len([m for m in right.marks if isinstance(m, Circle)]) == 2
    assert not [m for m in left.marks if isinstance(m, Circle)]
    assert len(strokes(right, audiogram.COLOURS["right"])) == 1  # the line
    assert len(strokes(left, audiogram.COLOURS["left"])) == 1 + 2 * 2  # and the crosses


@pytest.mark.parametrize(("ear", "side"), [("right", -1), ("left", 1)])
def test_no_response_is_an_arrow_outwards_and_no_line_leads_to_it(ear: str, side: int) -> None:
    colour = audiogram.COLOURS[ear]
    alone = picture(ear, [Reading(4000, 100, no_response=True)])
    marks = strokes(alone, colour)
    heard = picture(ear, [Reading(4000, 100)])
    x, y = (
        next(m.centre for m in heard.marks if isinstance(m, Circle))
        if ear == "right"
        else strokes(heard, colour)[0].points[0]
    )
    tip = max((point for stroke in marks for point in stroke.points), key=lambda point: point[1])
    assert (tip[0] - x) * side > 1.0
    assert tip[1] > y + 2.0
    neighbours = [Reading(2000, 30), Reading(8000, 40)]
    joined = picture(ear, [*neighbours, Reading(4000, 100)])
    apart = picture(ear, [*neighbours, Reading(4000, 100, no_response=True)])
    lines = {s for s in strokes(joined, colour) if s.width < 0.4}
    assert len(lines) == 2
    assert not lines & set(strokes(apart, colour))
    assert not [s for s in strokes(apart, colour) if s.width < 0.4]


def test_the_reference_is_grey_and_dashed_and_the_band_is_there() -> None:
    now = [Reading(1000, 40, 30, 55), Reading(2000, 45, 40, 50)]
    drawing = picture("right", now, reference=[Reading(1000, 10), Reading(2000, 10)])
    (line,) = strokes(drawing, audiogram.GREY)
    assert line.dashed
    (own,) = strokes(drawing, audiogram.COLOURS["right"])
    assert not own.dashed
    (band,) = [m for m in drawing.marks if isinstance(m, Fill)]
    (x1, top), (x2, _), (_, low), (_, bottom) = band.points
    assert x2 - x1 == pytest.approx(audiogram.OCTAVE_MM)
    assert (bottom - top) / audiogram.DB_MM == pytest.approx(25.0)
    assert low < bottom


def test_tones_are_small_and_told_apart_without_colour() -> None:
    drawing = picture("left", [], played=[Played(1000, 40, True), Played(1000, 60, False)])
    filled = [m for m in drawing.marks if isinstance(m, Fill) and m.colour == audiogram.INK]
    outlined = [s for s in strokes(drawing, audiogram.INK) if len(s.points) == 4]
    assert len(filled) == len(outlined) == 1


def test_levels_and_frequencies_beyond_the_axes_stay_on_the_paper() -> None:
    far = [Reading(100, -40, -60, 10), Reading(16000, 150, 100, 200, no_response=True)]
    drawing = picture("left", far, reference=far, played=[Played(12500, 130, True)])
    for mark in drawing.marks:
        if isinstance(mark, Fill | Stroke):
            for x, y in mark.points:
                assert 0 <= x <= drawing.width
                assert 0 <= y <= drawing.height


def test_colours_are_legible_in_grey() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    def contrast(one: str, other: str) -> float:
        dark, light = sorted((luminance(one), luminance(other)))
        return (light + 0.05) / (dark + 0.05)

    for ear, colour in audiogram.COLOURS.items():
        assert contrast(colour, "#ffffff") > 6
        assert contrast(colour, audiogram.BANDS[ear]) > 4.5
        assert contrast(audiogram.GREY, audiogram.BANDS[ear]) > 3
        assert contrast(colour, audiogram.GREY) > 1.25  # and the reference is dashed


# The PDF -----------------------------------------------------------------------------------------

POINTS = {"a4": (595.28, 841.89), "letter": (612.0, 792.0)}


@pytest.mark.parametrize("paper", ["a4", "letter"])
def test_the_pdf_says_all_on_one_page(
    tmp_path: Path, niosh: ExamBundle, full: ExamBundle, paper: str
) -> None:
    taken_back = replace(niosh.trials[0], id=9000, voided_at=START)
    crowded = replace(niosh, trials=(*niosh.trials, taken_back))
    bundle = visit_of(crowded, full, calibration=None, visit=replace(VISIT, mode="self"))
    reader, text = pdf_of(tmp_path / "visit.pdf", bundle, paper)
    assert len(reader.pages) == 1
    assert (reader.pages[0].mediabox.width, reader.pages[0].mediabox.height) == pytest.approx(
        POINTS[paper], abs=0.01
    )
    page = compose(bundle, ENGLISH)
    unseen = {page.language, page.title, page.continued, page.notes_heading, "right", "left"}
    for section in page.rounds[0]:
        assert section.picture is not None
        unseen |= {section.picture.title, section.picture.description}
        unseen |= set(strings(section.picture.marks)) - {"1000", "dB HL", "frequency (Hz)"}
    for said in strings(page):
        if said not in unseen:
            assert squeezed(said) in text, said
    assert "page1of1" in text


def test_paper_is_a4_or_letter(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a4, letter, got 'a3'"):
        write_pdf(visit_of(), tmp_path / "visit.pdf", "a3")
    assert not list(tmp_path.iterdir())


def test_long_notes_go_on_and_lose_no_word(tmp_path: Path, changed: ExamBundle) -> None:
    words = [f"word{number}" for number in range(3000)]
    notes = (Note(1, 17, START, "jk", " ".join(words)),)
    reader, text = pdf_of(tmp_path / "visit.pdf", visit_of(changed, notes=notes))
    assert len(reader.pages) > 2
    for word in words:
        assert word in text
    for number, page in enumerate(reader.pages, 1):
        each = squeezed(page.extract_text())
        assert squeezed(ENGLISH.see_a_doctor) in each
        assert f"page{number}of{len(reader.pages)}" in each
        if number > 1:
            assert "HearingReport,visit42,person17,continued".lower() in each.lower()


def test_many_pages_are_counted(tmp_path: Path) -> None:
    lines = "\n".join(f"line{number}." for number in range(900))
    notes = (Note(1, 17, START, "jk", lines),)
    reader, text = pdf_of(tmp_path / "visit.pdf", visit_of(notes=notes))
    assert len(reader.pages) > 9
    assert f"page1of{len(reader.pages)}" in text
    assert all(f"line{number}." in text for number in range(900))


def test_a_second_round_begins_a_page(
    tmp_path: Path, changed: ExamBundle, unchanged: ExamBundle, niosh: ExamBundle
) -> None:
    bundle = visit_of(changed, unchanged, niosh, visit=replace(VISIT, mode="simulated"))
    reader, _ = pdf_of(tmp_path / "visit.pdf", bundle)
    first, second = (squeezed(page.extract_text()) for page in reader.pages)
    assert "osha-sts:" in first
    assert "niosh-15:" not in first
    assert "niosh-15:" in second
    assert "SIMULATED" in first
    assert "SIMULATED" in second


def test_a_text_longer_than_a_page_goes_on(tmp_path: Path, changed: ExamBundle) -> None:
    """Eight hundred characters that the font lacks become six thousand."""
    told = with_shown(changed, words="字" * 780 + "END")
    reader, text = pdf_of(tmp_path / "visit.pdf", visit_of(told))
    assert 780 - len(reader.pages) <= text.count("[U+5B57]") <= 780  # one may span two pages
    assert "END" in text
    assert len(reader.pages) > 1


def test_nothing_leaves_the_paper(tmp_path: Path, changed: ExamBundle) -> None:
    long = "Wolfeschlegelsteinhausenbergerdorff" * 5
    bundle = visit_of(
        changed,
        person=replace(PERSON, name=long, code=long),
        device=replace(DEVICE, name=long),
        visit=replace(VISIT, author=long, checklist={long: long}),
        notes=(Note(1, 17, START, "jk", "W" * 4000),),
    )
    reader, text = pdf_of(tmp_path / "visit.pdf", bundle, "letter")
    assert text.count(long) >= 5
    width = float(reader.pages[0].mediabox.width)
    for page in reader.pages:
        seen: list[tuple[float, float]] = []
        page.extract_text(
            visitor_text=lambda text, cm, tm, font, size, seen=seen: (
                seen.append((tm[4], tm[5])) if text.strip() else None
            )
        )
        assert seen
        assert all(20 < x < width - 20 and 20 < y < 800 for x, y in seen)


def test_the_fonts_are_embedded(tmp_path: Path, changed: ExamBundle) -> None:
    reader, _ = pdf_of(tmp_path / "visit.pdf", visit_of(changed))
    resources: Any = reader.pages[0]["/Resources"]
    for reference in resources["/Font"].values():
        font = reference.get_object()
        descendant = font["/DescendantFonts"][0].get_object()
        assert "/FontFile2" in descendant["/FontDescriptor"]


def test_missing_characters_are_reported_on_the_page_and_to_the_caller(tmp_path: Path) -> None:
    bundle = visit_of(person=replace(PERSON, name="王小明 Wáng"))
    path = tmp_path / "visit.pdf"
    (warning,) = write_pdf(bundle, path)
    assert warning.endswith("by code point: U+738B U+5C0F U+660E")
    _, text = pdf_of(path, bundle)
    assert "[U+738B][U+5C0F][U+660E]Wáng" in text
    assert squeezed(warning) in text
    assert write_pdf(visit_of(), path) == []


def test_a_note_in_a_script_without_a_font_leaves_room_for_itself(tmp_path: Path) -> None:
    """The foot names a few characters of many; the caller gets them all."""
    text = "".join(chr(0x4E00 + k) for k in range(2000))
    bundle = visit_of(notes=(Note(1, 17, START, "jk", text),))
    (warning,) = write_pdf(bundle, tmp_path / "visit.pdf")
    assert warning.count("U+") == 2000
    _, text = pdf_of(tmp_path / "visit.pdf", bundle)
    assert "U+4E13…and1980more" in text


def test_a_font_that_is_given_fills_the_gap(tmp_path: Path) -> None:
    import matplotlib as mpl

    folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
    extra = folder / "STIXGeneral.ttf"
    shipped = TTFont(folder / "DejaVuSans.ttf").getBestCmap()
    character = chr(min(c for c in TTFont(extra).getBestCmap() if c > 0x2000 and c not in shipped))
    bundle = visit_of(person=replace(PERSON, name=f"A{character}B"))
    (warning,) = write_pdf(bundle, tmp_path / "without.pdf")
    assert f"U+{ord(character):04X}" in warning
    assert write_pdf(bundle, tmp_path / "with.pdf", fonts=[extra]) == []
    _, text = pdf_of(tmp_path / "with.pdf", bundle, fonts=[extra])
    assert f"A{character}B" in text


def test_a_file_that_is_no_font_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"not a font", b"\x00\x01\x00\x00" + b"\xff" * 400):
        bad = tmp_path / "bad.ttf"
        bad.write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.ttf must be a TrueType font file"):
            write_pdf(visit_of(), tmp_path / "visit.pdf", fonts=[bad])
    with pytest.raises(ValueError, match=r"none\.ttf must be a TrueType font file"):
        write_pdf(visit_of(), tmp_path / "visit.pdf", fonts=[tmp_path / "none.ttf"])
    assert not (tmp_path / "visit.pdf").exists()


@pytest.mark.parametrize(
    "name", ["محمد عبد الله الفارسي", "יוסי כהן", "Ελένη Łukasz Đorđe", "علی\u200cرضا"]
)
def test_names_of_other_scripts_are_written_in_their_order(tmp_path: Path, name: str) -> None:
    bundle = visit_of(person=replace(PERSON, name=name))
    assert write_pdf(bundle, tmp_path / "visit.pdf") == []
    _, text = pdf_of(tmp_path / "visit.pdf", bundle)
    assert squeezed(name) in text


def test_hostile_names_are_text_on_paper_too(tmp_path: Path) -> None:
    name = HOSTILE + "\ue000 **bold** __u__ \x00 \ud800"
    bundle = visit_of(person=replace(PERSON, name=name, code="{nb}"))
    _, text = pdf_of(tmp_path / "visit.pdf", bundle)
    shown = HOSTILE + "[U+E000] **bold** __u__ [U+0000] [U+D800]"
    assert squeezed(shown) in text
    assert "page1of1" in text


WRITTEN = st.text(
    st.characters(max_codepoint=0x3000) | st.sampled_from("\u200d\u200f\u202e\xad\u0301ا王😀\n\t"),
    max_size=60,
)


@given(name=WRITTEN, note=WRITTEN)
@settings(max_examples=8)
def test_no_name_breaks_a_pdf(
    tmp_path_factory: pytest.TempPathFactory, name: str, note: str
) -> None:
    path = tmp_path_factory.mktemp("pdf") / "visit.pdf"
    bundle = visit_of(
        person=replace(PERSON, name=name), notes=(Note(1, 17, START, name, note or "."),)
    )
    _, text = pdf_of(path, bundle)
    assert squeezed(ENGLISH.see_a_doctor) in text


def test_the_same_rows_give_the_same_file(tmp_path: Path, changed: ExamBundle) -> None:
    one, other = tmp_path / "one.pdf", tmp_path / "other.pdf"
    write_pdf(visit_of(changed), one)
    write_pdf(visit_of(changed), other)
    assert one.read_bytes() == other.read_bytes()
    assert render_html(visit_of(changed)) == render_html(visit_of(changed))


@pytest.mark.parametrize("write", [write_html, write_pdf])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "visit"
    path.write_text("old")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report.os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write(visit_of(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError):
        write(visit_of(), tmp_path / "no" / "folder.pdf")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(OSError, match="folder"):
        write(visit_of(), folder)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "visit"]
