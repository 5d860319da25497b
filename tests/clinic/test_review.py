"""Review and sign-off: what OSHA's rules say, what is signed, and what follows from it."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from test_worklist import both, full, lines, on, screen, taken, visit_on

from earshift.clinic.checklist import cautions
from earshift.clinic.findings import findings_of
from earshift.clinic.programme import programme
from earshift.clinic.review import (
    add_follow_up,
    add_room_noise,
    letter_of,
    report_of,
    require_reviewer,
    review_of,
    reviews_of,
    say_work_related,
    sign,
)
from earshift.clinic.site import change_setting
from earshift.clinic.worklist import close_verdict, worklist
from earshift.days import today
from earshift.devices.noise import check_noise
from earshift.engine.refusal import Refusal
from earshift.records import Person
from earshift.report import render_html
from earshift.report.audiogram import Label
from earshift.report.findings import finding_sentences
from earshift.report.letter import compose_letter, render_letter
from earshift.report.letter_pdf import letter_pdf
from earshift.report.page import compose
from earshift.report.words import ENGLISH
from earshift.store import Store
from earshift.store.accounts import Accounts
from support.report_text import Document

ZONE = "Europe/Berlin"
SIGNER: dict[str, Any] = {"author": "kp", "name": "Dr K. Park", "meaning": "reviewed"}


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "clinic.db") as opened:
        yield opened


@pytest.fixture
def worker(clinic: Store) -> Person:
    """Both ears at 10 dB HL on the first day; the right one at 35 dB HL a hundred days later."""
    person = clinic.add_person(
        author="mh", code="A1", name="Ann Öz", sex="female", birth_date=date(1980, 1, 1)
    )
    both(clinic, person, 0)
    return person


def shifted(store: Store, person: Person, level: float = 35.0) -> tuple[int, int]:
    """A full audiogram of the right ear that is worse: its exam and visit."""
    exam = full(store, person, 100, "right", level)
    return exam, store.exam(exam).visit_id


def text_of(html: str) -> str:
    return " ".join(" ".join(Document(html).texts).split())


def report_page(store: Store, visit_id: int) -> str:
    bundle, site, cautions = report_of(store, visit_id)
    return text_of(render_html(bundle, site=site, cautions=cautions))


# What the checklist says


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"otoscopy_right": "normal", "hours_since_noise": 14.0, "loud_noise_24h": False}, []),
        ({"otoscopy_right": "wax"}, ["Right ear: earwax"]),
        ({"otoscopy_left": "wax"}, []),  # of an ear that was not tested
        ({"otoscopy_right": "collapsing canal"}, ["insert earphones"]),
        ({"otoscopy_right": "other"}, ["Have the ear examined"]),
        ({"loud_noise_24h": True}, ["Retest after 14 hours without noise"]),
        ({"loud_noise_24h": True, "hours_since_noise": 3.0}, ["Less than 14 hours"]),
        ({"hours_since_noise": 13.9}, ["Retest after 14 hours without noise"]),
        ({"cold_or_earache": True, "hearing_aids_out": False}, ["when it is over", "without them"]),
        ({"room_noise": "noisy"}, ["quiet"]),
        ({"hours_since_noise": "3", "otoscopy_right": ["wax"]}, []),  # nothing that we stored
    ],
)
def test_what_a_checklist_says_against_a_result(answers: dict[str, Any], said: list[str]) -> None:
    found = [one.text for one in cautions(answers, 14, ["right"])]
    assert len(found) == len(said)
    assert all(part in text for part, text in zip(said, found, strict=True))


def test_a_site_without_quiet_hours_still_waits_after_loud_noise() -> None:
    (found,) = cautions({"loud_noise_24h": True, "hours_since_noise": 0.0}, 0)
    assert found.text.endswith("Retest after 24 hours without noise.")


def test_a_report_says_beside_the_result_what_the_checklist_says_against_it(
    clinic: Store, worker: Person
) -> None:
    answers = {"otoscopy_right": "wax", "otoscopy_left": "wax", "hours_since_noise": 3.0}
    exam = full(clinic, worker, 100, "right", 35.0, checklist=answers)
    visit = clinic.exam(exam).visit_id
    bundle, site, said = report_of(clinic, visit)
    page = compose(bundle, ENGLISH, site, said)
    assert page.rounds[0][0].cautions[0].startswith("Right ear: earwax")
    assert page.rounds[0][1].cautions == ()  # the left ear was not tested
    assert any("Retest after 14 hours" in text for text in page.cautions)
    sign(clinic, visit, **SIGNER)
    change_setting(clinic, "baseline_quiet_hours", 20, author="kp", reason="our physician")
    assert "Retest after 14 hours" in report_page(clinic, visit)  # as it was signed


# What the rules say


def test_a_shift_is_judged_with_its_number_and_its_baseline(clinic: Store, worker: Person) -> None:
    exam, _ = shifted(clinic, worker)
    (found,) = findings_of(clinic, worker.id, {exam})
    assert (found.decision, found.shift_db, found.level_db_hl) == ("changed", 25.0, 35.0)
    assert (found.day, found.baseline_day) == (on(100), on(0))
    assert found.recordable is None  # nobody has said whether work has a part in it
    first, age, log = finding_sentences(found)
    assert first == (
        "Right ear: average at 2, 3 and 4 kHz is 25 dB worse than at the baseline of 2020-01-06: a "
        "standard threshold shift (10 dB or more; 29 CFR 1910.95(g)(10)(i))."
    )
    assert "this site does not correct for age" in age
    assert "not decided, as nobody has said whether the shift is related to work" in log


def test_a_report_says_first_what_the_rule_says_of_a_full_audiogram(
    clinic: Store, worker: Person
) -> None:
    exam, visit = shifted(clinic, worker)
    (found,) = findings_of(clinic, worker.id, {exam})
    bundle, site, _ = report_of(clinic, visit)
    section = compose(bundle, ENGLISH, site).rounds[0][0]
    assert (section.headline, section.sentence) == ("Changed", finding_sentences(found)[0])
    assert section.alarming
    assert section.table is not None
    assert section.table.columns == ("Hz", "Reference", "Now", "Shift (dB)")
    assert ("4000", "10", "35", "+25") in section.table.rows
    assert section.picture is not None
    assert "Reference: 500 Hz 10" in section.picture.description
    assert section.shifts is not None
    assert section.shifts.description.startswith("Shift in dB: average +25, 500 +25")
    assert "rule: 10 dB" in [mark.text for mark in section.shifts.marks if isinstance(mark, Label)]
    # What an older version signed has the numbers of the rule alone.
    older = replace(found, baseline_db_hl={}, shifts_db={})
    section = compose(replace(bundle, findings=(older,)), ENGLISH, site).rounds[0][0]
    assert section.sentence == finding_sentences(found)[0]
    assert section.shifts is None


@pytest.mark.parametrize(
    ("level", "related", "recordable"),
    [(35.0, True, True), (35.0, False, False), (24.0, True, False), (25.0, True, True)],
)
def test_recordable_needs_25_db_and_a_professionals_word(
    clinic: Store, worker: Person, level: float, related: bool, recordable: bool
) -> None:
    exam, _ = shifted(clinic, worker, level)
    say_work_related(clinic, exam, related, author="kp", name="Dr K", reason="exposed at 92 dBA")
    (found,) = findings_of(clinic, worker.id, {exam})
    assert found.recordable is recordable
    log = finding_sentences(found)[-1]
    assert f"(29 CFR 1904.10): {'yes' if recordable else 'no'}: the average now" in log
    assert "says Dr K" in log


def test_age_correction_is_off_until_the_site_settles_it(clinic: Store) -> None:
    """The worked example of Appendix F: male, 27 to 32 years; 13.33 dB, 11.67 dB corrected."""
    person = clinic.add_person(
        author="mh", code="F1", sex="male", birth_date=on(0) - timedelta(days=27 * 365 + 40)
    )
    five_years = 5 * 365 + 10
    before = {500.0: 0.0, 1000.0: 0.0, 2000.0: 0.0, 3000.0: 0.0, 4000.0: 5.0, 6000.0: 5.0}
    now = {500.0: 5.0, 1000.0: 5.0, 2000.0: 10.0, 3000.0: 10.0, 4000.0: 25.0, 6000.0: 20.0}
    taken(clinic, person, 0, "right", levels=before)
    exam = taken(clinic, person, five_years, "right", levels=now)
    (found,) = findings_of(clinic, person.id, {exam})
    assert found.shift_db == pytest.approx(40 / 3)
    assert found.age_db == pytest.approx(5 / 3)
    assert not found.age_counts
    change_setting(clinic, "age_correction", "yes", author="kp", reason="company policy")
    (found,) = findings_of(clinic, person.id, {exam})
    assert found.age_counts
    assert found.decision == "changed"  # 11.67 dB
    assert "1.7 dB of it are age alone, which leaves 11.7 dB" in finding_sentences(found)[1]


def test_age_correction_can_take_a_shift_away_from_the_worklist(clinic: Store) -> None:
    person = clinic.add_person(
        author="mh", code="M1", sex="male", birth_date=date(1970, 1, 1), hired_on=on(0)
    )
    both(clinic, person, 0)
    ten_years = 3650
    for ear in ("right", "left"):
        full(clinic, person, ten_years, ear, 21.0)
    assert [why for _, why, _ in lines(clinic, ten_years)] == ["review"]
    change_setting(clinic, "age_correction", "yes", author="kp", reason="company policy")
    assert lines(clinic, ten_years) == []
    found = findings_of(clinic, person.id)
    assert [one.decision for one in found] == ["unchanged", "unchanged"]
    assert [one.shift_db for one in found] == [11.0, 11.0]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"birth_date": None}, "the date of birth is not recorded"),
        ({"sex": "other"}, "Appendix F has tables for male and female only"),
        ({"birth_date": date(2020, 3, 1)}, "does not go with the days of the tests"),
    ],
)
def test_who_cannot_be_corrected_for_age_is_judged_without(
    clinic: Store, worker: Person, changes: dict[str, Any], why: str
) -> None:
    change_setting(clinic, "age_correction", "yes", author="kp", reason="company policy")
    clinic.correct_person(worker.id, author="mh", reason="as said", **changes)
    exam, _ = shifted(clinic, worker)
    (found,) = findings_of(clinic, worker.id, {exam})
    assert (found.decision, found.age_counts, found.age_db) == ("changed", False, None)
    assert why in finding_sentences(found)[1]


def test_only_full_audiograms_after_a_baseline_are_judged(clinic: Store, worker: Person) -> None:
    screen(clinic, worker, 50, "right", "changed")
    taken(clinic, worker, 60, "right", levels={2000.0: 60.0, 3000.0: 60.0, 4000.0: 60.0})
    full(clinic, worker, 70, "right", 60.0, reliability="poor")
    assert findings_of(clinic, worker.id) == []


def test_what_was_not_heard_is_at_least(clinic: Store, worker: Person) -> None:
    exam, _ = shifted(clinic, worker)
    (found,) = findings_of(clinic, worker.id, {exam})
    said = finding_sentences(replace(found, at_least=True))
    assert "at least 25 dB worse" in said[0]
    for shift, words in ((-6.0, "6 dB better"), (0.0, "neither worse nor better")):
        one = replace(found, shift_db=shift, decision="unchanged")
        assert f"{words} than at the baseline" in finding_sentences(one)[0]
    unknown = replace(found, shift_db=None, decision="not determinable", age_db=None)
    assert "cannot be said" in finding_sentences(unknown)[0]


# Signing


def test_a_signed_report_is_made_from_what_was_signed(clinic: Store, worker: Person) -> None:
    _, visit = shifted(clinic, worker)
    change_setting(clinic, "site_name", "Mill Clinic", author="kp", reason="ours")
    review = review_of(clinic, visit)
    assert (review.signed, review.signatures, review.obstacle) == (None, (), "")
    seal = clinic.seal()
    signature = sign(clinic, visit, seen=review.seen, **SIGNER)
    change_setting(clinic, "site_name", "Hill Clinic", author="kp", reason="moved")
    clinic.correct_person(worker.id, author="mh", reason="married", name="Ann Young")
    clinic.add_note(worker.id, author="mh", text="written later", visit_id=visit)
    page = report_page(clinic, visit)
    assert "Ann Öz" in page
    assert "Mill Clinic" in page
    assert "Ann Young" not in page
    assert "written later" not in page
    assert "Electronically signed by Dr K. Park, reviewed, on " in page
    assert signature.sha256 in page
    assert str(seal) in page
    assert "25 dB worse than at the baseline of 2020-01-06" in page
    review = review_of(clinic, visit)
    assert review.changed_since
    amended = sign(
        clinic, visit, amends=signature.id, reason="new name", **{**SIGNER, "meaning": "approved"}
    )
    page = report_page(clinic, visit)
    assert "Ann Young" in page
    assert "This amends the signature of Dr K. Park" in page
    assert review_of(clinic, visit).signatures == (signature, amended)
    assert not review_of(clinic, visit).changed_since


def test_what_was_not_seen_is_not_signed(clinic: Store, worker: Person) -> None:
    _, visit = shifted(clinic, worker)
    seen = review_of(clinic, visit).seen
    change_setting(clinic, "age_correction", "yes", author="kp", reason="policy")
    with pytest.raises(Refusal, match="has changed since it was read") as refused:
        sign(clinic, visit, seen=seen, **SIGNER)
    assert refused.value.code == "changed-meanwhile"
    signature = sign(clinic, visit, **SIGNER)
    with pytest.raises(Refusal, match="was signed by another meanwhile"):
        sign(clinic, visit, **SIGNER)
    assert review_of(clinic, visit).signatures == (signature,)


def test_what_is_not_finished_or_nobodys_is_not_signed(clinic: Store, worker: Person) -> None:
    cases = {
        "not finished": clinic.exam(taken(clinic, worker, 10, "left", state="paused")).visit_id,
        "nothing of this visit": visit_on(clinic, worker, 11),
        "simulated": clinic.exam(full(clinic, worker, 12, "left", mode="simulated")).visit_id,
    }
    for said, visit in cases.items():
        with pytest.raises(Refusal, match=said):
            sign(clinic, visit, **SIGNER)
        assert clinic.signatures(visit) == []


def test_only_reviewers_and_admins_sign_where_there_are_users(clinic: Store) -> None:
    assert require_reviewer(clinic, "anybody") == "anybody"
    accounts = Accounts(clinic)
    password = "a long enough password"
    for name, role in (("ada", "admin"), ("rea", "reviewer"), ("ed", "examiner")):
        accounts.add_user(name, password, role=role, author="ada")
    assert require_reviewer(clinic, "rea") == "rea"
    assert require_reviewer(clinic, "ada") == "ada"
    for name in ("ed", "anybody"):
        with pytest.raises(Refusal, match="only a reviewer can do this") as refused:
            require_reviewer(clinic, name)
        assert refused.value.code == "not-a-reviewer"
    accounts.change_user("rea", state="disabled", author="ada", reason="left")
    with pytest.raises(Refusal, match="only a reviewer"):
        require_reviewer(clinic, "rea")


def test_an_erased_person_leaves_signature_and_hash(clinic: Store, worker: Person) -> None:
    _, visit = shifted(clinic, worker)
    signature = sign(clinic, visit, **SIGNER)
    clinic.erase_person(worker.id, author="mh", reason="asked by the person")
    review = review_of(clinic, visit)
    assert (review.signed, review.signatures) == (None, (signature,))
    page = report_page(clinic, visit)
    assert signature.sha256 in page
    assert "What was signed was erased with the person" in page
    assert "Ann" not in page
    with pytest.raises(Refusal, match="the person was erased"):
        sign(clinic, visit, amends=signature.id, reason="x", **SIGNER)
    with pytest.raises(Refusal, match="was erased with the person"):
        letter_of(clinic, visit)


# What follows


def test_the_letter_is_due_21_days_after_the_signature(clinic: Store, worker: Person) -> None:
    _, visit = shifted(clinic, worker)
    with pytest.raises(Refusal, match="the letter follows from the signature"):
        letter_of(clinic, visit)
    sign(clinic, visit, **SIGNER)
    signed_on = today(ZONE)
    due = signed_on + timedelta(days=21)
    assert review_of(clinic, visit).letter_by == due
    (item,) = worklist(clinic, due, why="letter").items
    assert (item.by, item.overdue_days, item.ears) == (due, 0, ("right",))
    assert worklist(clinic, due + timedelta(days=1), why="letter").items[0].overdue_days == 1
    # An amendment starts no new period.
    first = clinic.signatures(visit)[-1]
    sign(clinic, visit, amends=first.id, reason="typing error", **SIGNER)
    assert review_of(clinic, visit).letter_by == due
    add_follow_up(clinic, visit, "letter", author="mh", done_on=signed_on, done_by="mh")
    assert worklist(clinic, due, why="letter").items == ()
    add_follow_up(clinic, visit, "letter", author="mh", done_on=signed_on, done_by="mh", done=False)
    assert worklist(clinic, due, why="letter").total == 1


def test_a_closed_verdict_needs_no_letter(clinic: Store, worker: Person) -> None:
    exam, visit = shifted(clinic, worker)
    close_verdict(clinic, exam, author="kp", reason="wax")
    sign(clinic, visit, **SIGNER)
    assert review_of(clinic, visit).letter_by is None
    with pytest.raises(Refusal, match="there is nothing to tell"):
        letter_of(clinic, visit)


def test_the_letter_says_what_was_signed_in_plain_words(clinic: Store, worker: Person) -> None:
    _, visit = shifted(clinic, worker)
    signature = sign(clinic, visit, **SIGNER)
    clinic.correct_person(worker.id, author="mh", reason="married", name="Ann Young")
    bundle, site = letter_of(clinic, visit)
    page = text_of(render_letter(bundle, site))
    assert "Dear Ann Öz," in page
    assert "on average 25 dB louder to be heard than at your baseline of 6 January 2020" in page
    assert "29 CFR 1910.95(g)(8)" in page
    assert "Hearing protectors: you will be fitted" in page
    assert signature.sha256 in page
    for paper in ("a4", "letter"):
        assert letter_pdf(bundle, site, paper).startswith(b"%PDF")
    with pytest.raises(Refusal, match="paper must be one of"):
        letter_pdf(bundle, site, "a5")
    unrelated = tuple(
        replace(one, work_related=False, work_said_by="Dr K") for one in bundle.findings
    )
    both_ears = (*bundle.findings, replace(bundle.findings[0], ear="left"))
    assert "for the worse in your right ear:" in compose_letter(bundle, site).paragraphs[0]
    worse = compose_letter(replace(bundle, findings=both_ears), site)
    assert "for the worse in both ears:" in worse.paragraphs[0]
    steps = compose_letter(replace(bundle, findings=unrelated), site).steps
    assert steps[0].startswith("Dr K found that the change is not related to your work")
    with pytest.raises(Refusal, match="a letter is made from a signed visit"):
        compose_letter(replace(bundle, findings=()), site)


def test_follow_ups_of_a_shift_are_kept_with_who_and_when(clinic: Store, worker: Person) -> None:
    _, visit = shifted(clinic, worker)
    day = on(110)
    for kind in ("protector", "training", "referral"):
        add_follow_up(clinic, visit, kind, author="mh", done_on=day, done_by="Ms Weber")
    newest, *before = reviews_of(clinic, worker.id)
    assert [one.decision for one in newest.findings] == ["changed"]
    assert [one.findings for one in before] == [(), ()]
    assert [(one.kind, one.done_on, one.done_by) for one in newest.follow_ups] == [
        ("protector", day, "Ms Weber"),
        ("training", day, "Ms Weber"),
        ("referral", day, "Ms Weber"),
    ]
    assert {one.kind for one in review_of(clinic, visit).follow_ups} == {
        *("protector", "training", "referral"),
    }
    tomorrow = today(ZONE) + timedelta(days=2)
    for wrong in (on(99), tomorrow):
        with pytest.raises(Refusal, match="between the visit"):
            add_follow_up(clinic, visit, "training", author="mh", done_on=wrong, done_by="x")
    with pytest.raises(Refusal, match="the letter follows from the signature"):
        add_follow_up(clinic, visit, "letter", author="mh", done_on=day, done_by="x")


def test_the_programme_counts_what_was_done(store: Store) -> None:
    person = store.add_person(author="mh", code="A1", department="Press")
    both(store, person, 0)
    _, visit = shifted(store, person)
    twin = store.add_person(author="mh", code="A2", department="Press")
    done: dict[str, Any] = {"author": "mh", "done_by": "Ms W"}
    for kind in ("protector", "training"):
        add_follow_up(store, visit, kind, done_on=on(110), **done)
    add_follow_up(store, visit, "training", done_on=on(110), done=False, **done)
    (group,) = programme(store, on(100), on(120)).groups
    assert (group.letters, group.protectors, group.trainings, group.referrals) == (0, 1, 0, 0)
    store.merge_people(person.id, twin.id, author="mh", reason="hired twice")
    assert programme(store, on(100), on(120)).everybody.protectors == 1
    assert programme(store, on(111), on(120)).everybody.protectors == 0


def test_a_word_on_work_needs_a_shift(clinic: Store, worker: Person) -> None:
    exam = full(clinic, worker, 100, "right", 12.0)
    with pytest.raises(Refusal, match="no full audiogram with a standard threshold shift"):
        say_work_related(clinic, exam, True, author="kp", name="Dr K", reason="x")


# Room noise

QUIET = {"500": 30, "1000": 30, "2000": 30, "4000": 30, "8000": 30}


@pytest.mark.parametrize(
    ("levels", "transducer", "state", "words"),
    [
        (QUIET, "supra-aural", "within", "within the limits for supra-aural earphones"),
        ({**QUIET, "500": 40}, "supra-aural", "within", "29 CFR 1910.95 Appendix D"),
        ({**QUIET, "500": 40.5}, "supra-aural", "over", "500 Hz 40.5 dB (limit 40)"),
        ({**QUIET, "500": 45}, "insert", "within", "49 CFR 227 Appendix D"),
        ({**QUIET, "4000": 51}, "insert", "over", "4000 Hz 51 dB (limit 50)"),
        ({"500": 30}, "insert", "incomplete", "not measured at 1000 Hz, 2000 Hz"),
        ({"500": 60}, "insert", "over", "TOO LOUD"),
        (QUIET, "circumaural", "no limit known", "no limit known for circumaural earphones"),
        (QUIET, "unknown", "no limit known", "no limit known"),
    ],
)
def test_room_noise_against_the_limits(
    levels: dict[str, float], transducer: str, state: str, words: str
) -> None:
    check = check_noise(levels, transducer)
    assert check.state == state
    assert words in check.words


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ({}, "at least one octave band"),
        ({"700": 30}, "an octave band is one of 125, 250, 500"),
        ({"500": "loud"}, "must be a number of dB SPL from -10 to 140"),
        ({"500": "30,5"}, "must be a number of dB SPL"),
        ({"500": "nan"}, "must be a number of dB SPL"),
        ({"500": 200}, "from -10 to 140"),
    ],
)
def test_wrong_room_noise_is_refused(clinic: Store, levels: dict[str, Any], said: str) -> None:
    day = today(ZONE)
    with pytest.raises(Refusal, match=said):
        add_room_noise(clinic, levels, author="mh", measured_on=day, zone=ZONE)
    with pytest.raises(Refusal, match="today or before"):
        add_room_noise(clinic, QUIET, author="mh", measured_on=day + timedelta(days=1), zone=ZONE)
    assert clinic.room_noise() == []


def test_room_noise_is_on_the_report(clinic: Store, worker: Person) -> None:
    _, visit = shifted(clinic, worker)
    add_room_noise(clinic, QUIET, author="mh", measured_on=on(99), zone=ZONE, room="booth 1")
    page = report_page(clinic, visit)
    assert "Room noise measured on 2020-04-14, booth 1: 500 Hz 30 dB" in page
    assert "no limit known for unknown earphones" in page
