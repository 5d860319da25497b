"""Sessions over stored exams: what is asked, what is stored, and what survives a break."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

import earshift as es
from earshift.clinic.people import find_person, todays_visit
from earshift.clinic.plan import open_exam, plan_exam, plan_screen
from earshift.clinic.references import reference_for, references
from earshift.clinic.session import Presentation, Session, catch_due
from earshift.clinic.zones import local_zone
from earshift.devices.delivery import supervised_limits
from earshift.engine.reference import audiogram_of
from earshift.records import ImportedAudiogram, Person, Visit
from earshift.store import Store
from earshift.store.trials import live_trials

MH = {"author": "mh"}
AUDIOGRAM = es.Audiogram(dict.fromkeys((500, 1000, 2000, 3000, 4000, 6000, 8000), 20.0)).to_dict()


@pytest.fixture
def person(store: Store) -> Person:
    return store.add_person(author="mh", code="A1")


@pytest.fixture
def visit(store: Store, person: Person) -> Visit:
    return store.open_visit(person.id, author="mh", zone="Europe/Berlin", mode="supervised")


def imported(store: Store, ear: str, code: str = "A1", **changes: Any) -> int:
    item = ImportedAudiogram(code, ear, AUDIOGRAM, datetime(2025, 5, 5, tzinfo=UTC), "paper")
    given = replace(item, **changes)
    return store.import_audiograms([given], author="mh", zone="UTC").added[0].id


def begin_exam(store: Store, visit: Visit, ear: str = "right", **options: Any) -> Session:
    plan = plan_exam(ear, **{"seed": 1, "max_tones": 12, **options})
    return Session(store, open_exam(store, visit, plan, author="mh").id, **MH)


def begin_screen(store: Store, visit: Visit, ear: str = "right", **options: Any) -> Session:
    plan = plan_screen(store, visit.person_id, ear, **{"seed": 1, **options})
    return Session(store, open_exam(store, visit, plan, author="mh").id, **MH)


def hears_above(level: float) -> Callable[[Presentation], bool]:
    return lambda shown: shown.level_db_hl is not None and shown.level_db_hl >= level


def run(session: Session, hears: Callable[[Presentation], bool], most: int = 100) -> None:
    while not session.done and most:
        session.answer(hears(session.presentation()))
        most -= 1


# What is asked ----------------------------------------------------------------------------------


def test_one_in_eight_is_silent_and_never_two_in_a_row() -> None:
    for seed in range(30):
        silent = [catch_due(seed, n) for n in range(80)]
        assert [sum(silent[k : k + 8]) for k in range(0, 80, 8)] == [1] * 10
        assert not silent[0]
        assert not any(a and b for a, b in pairwise(silent))
    places = {next(n for n in range(8) if catch_due(seed, n)) for seed in range(60)}
    assert places == set(range(1, 8))


def test_an_exam_asks_what_the_engine_asks_with_silence_between(store: Store, visit: Visit) -> None:
    session = begin_exam(store, visit)
    plain = plan_exam("right", seed=1, max_tones=12).procedure
    kinds = []
    while not session.done:
        shown = session.presentation()
        assert shown == session.presentation()
        kinds.append(shown.kind)
        if shown.kind == "catch":
            assert shown.level_db_hl is None
            assert "present nothing" in str(shown)
            session.answer(False)
            plain.tell_catch(False)
            continue
        tone = plain.ask()
        assert (shown.frequency_hz, shown.level_db_hl) == (tone.frequency_hz, tone.level_db_hl)
        assert shown.ear == "right"
        plain.tell(tone, tone.level_db_hl >= 25)
        session.answer(tone.level_db_hl >= 25)
    assert kinds.count("tone") == 12
    assert [n for n, kind in enumerate(kinds) if kind == "catch"] == [
        n for n in range(len(kinds)) if catch_due(1, n)
    ]
    assert session.procedure.thresholds() == plain.thresholds()


@pytest.mark.slow
def test_a_session_loaded_anew_at_every_step_asks_the_same(store: Store, visit: Visit) -> None:
    imported(store, "right")
    unbroken = begin_screen(store, visit, max_tones=12)
    twin = store.add_person(author="mh", code="B2")  # nobody has two screens of an ear under way
    imported(store, "right", code="B2")
    another = store.open_visit(twin.id, author="mh", zone="UTC", mode="supervised")
    broken = begin_screen(store, another, max_tones=12)
    number = 0
    while not unbroken.done:
        broken = Session(store, broken.record.id, **MH)
        assert broken.presentation() == unbroken.presentation()
        heard = hears_above(45)(unbroken.presentation())
        unbroken.answer(heard)
        broken.answer(heard)
        number += 1
    assert number > 12  # with silence between
    assert Session(store, broken.record.id, **MH).done
    assert broken.view().to_result() == unbroken.view().to_result()


def test_a_screen_is_not_done_before_a_silent_trial_vouches_for_it(
    store: Store, visit: Visit
) -> None:
    imported(store, "right")
    late = next(s for s in range(99) if not any(catch_due(s, n) for n in range(7)))
    session = begin_screen(store, visit, seed=late, max_tones=2)
    while not session.procedure.done:
        session.answer(hears_above(20)(session.presentation()))
    assert {trial.kind for trial in session.trials} == {"tone"}
    assert not session.done
    assert session.presentation().kind == "catch"
    session.answer(False)
    assert session.done
    shown = session.view().to_result()
    assert (shown["catch_trials"], shown["false_alarms"]) == (1, 0)
    assert shown["verdict"]["catch_trials"] == 1
    assert shown["verdict"]["reliability"] == "good"


def test_practice_comes_first_rises_by_20_db_and_counts_for_nothing(
    store: Store, visit: Visit
) -> None:
    record = begin_exam(store, visit).record
    session = Session(store, record.id, author="mh", practice=True)
    levels = []
    while session.presentation().kind == "practice":
        levels.append(session.presentation().level_db_hl)
        session.answer(False)
    assert levels == [40, 60, 80, 90]
    assert session.tones == 0
    first = session.presentation()
    assert (first.number, first.kind) == (5, "tone")
    assert first == Session(store, record.id, **MH).presentation()
    assert session.procedure.trials == ()
    twin = store.add_person(author="mh", code="B2")  # nobody has two exams of an ear under way
    another = store.open_visit(twin.id, author="mh", zone="UTC", mode="supervised")
    other = begin_exam(store, another)
    assert replace(first, number=1) == other.presentation()


def test_practice_ends_with_the_first_tone_heard_and_is_not_repeated_later(
    store: Store, visit: Visit
) -> None:
    record = begin_exam(store, visit).record
    session = Session(store, record.id, author="mh", practice=True)
    session.answer(True)
    assert session.presentation().kind == "tone"
    session.answer(True)
    assert Session(store, record.id, author="mh", practice=True).presentation().kind != "practice"


# What is stored ---------------------------------------------------------------------------------


def test_an_answer_is_in_the_store_when_it_was_taken(store: Store, visit: Visit) -> None:
    session = begin_exam(store, visit)
    shown = session.presentation()
    session.answer(True, reaction_ms=412.5, played_db_hl=15.0)
    (trial,) = store.trials(session.record.id)
    assert (trial.number, trial.kind, trial.ear, trial.author) == (1, "tone", "right", "mh")
    assert (trial.asked_db_hl, trial.played_db_hl) == (shown.level_db_hl, 15.0)
    assert trial.asked_db_hl != 15.0
    assert (trial.heard, trial.reaction_ms) == (True, 412.5)
    assert session.procedure.trials[0].tone == es.Tone(shown.frequency_hz, 15.0)
    loaded = Session(store, session.record.id, **MH)
    assert loaded.procedure.to_dict() == session.procedure.to_dict()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"heard": "y"}, "heard must be True/False"),
        ({"heard": True, "played_db_hl": 130.0}, "outside the domain"),
        ({"heard": True, "played_db_hl": float("nan")}, "must be finite"),
        ({"heard": True, "reaction_ms": float("inf")}, "must be finite"),
    ],
)
def test_a_bad_answer_changes_nothing(
    store: Store, visit: Visit, given: dict[str, Any], words: str
) -> None:
    session = begin_exam(store, visit)
    shown = session.presentation()
    with pytest.raises(ValueError, match=words):
        session.answer(**given)
    assert store.trials(session.record.id) == ()
    assert session.presentation() == shown


def test_silence_has_no_level(store: Store, visit: Visit) -> None:
    session = begin_exam(store, visit)
    while session.presentation().kind != "catch":
        session.answer(True)
    with pytest.raises(ValueError, match="nothing is to be played"):
        session.answer(True, played_db_hl=30.0)
    trial = session.answer(False)
    assert (trial.asked_db_hl, trial.played_db_hl) == (None, None)


def test_undo_keeps_the_row_and_asks_the_same_again(store: Store, visit: Visit) -> None:
    session = begin_exam(store, visit)
    asked = []
    for _ in range(10):
        asked.append(session.presentation())
        session.answer(len(asked) % 2 == 0)
    for k in range(10):
        voided = session.undo("slipped")
        assert (voided.void_reason, voided.voided_by) == ("slipped", "mh")
        again = session.presentation()
        assert replace(again, number=0) == replace(asked[-1 - k], number=0)
        assert again == Session(store, session.record.id, **MH).presentation()
    assert len(store.trials(session.record.id)) == 10
    assert session.presentation().number == 11
    with pytest.raises(ValueError, match="no answer to undo"):
        session.undo()


def test_the_result_is_stored_as_shown_and_the_exam_is_closed(store: Store, visit: Visit) -> None:
    reference = imported(store, "right")
    session = begin_screen(store, visit)
    # A loss of the high frequencies alone: no device does that.
    run(session, lambda p: hears_above(60 if p.frequency_hz >= 1500 else 10)(p))
    shown = session.view().to_result()
    result = session.finish()
    (stored,) = store.results(session.record.id)
    assert stored == result
    assert stored.shown == json.loads(json.dumps(shown))
    assert stored.shown["verdict"]["decision"] == "changed"
    words = stored.shown["words"]
    assert re.match(
        r"Right ear: average at 2-4 kHz is -?\d+ to \d+ dB worse than in \d{4} \(", words
    )
    assert words.endswith(" Reference calibration unknown.")
    assert (stored.shown["unit"], stored.shown["presses"]) == ("dB HL", 0)
    assert stored.shown["rule"]["name"] == "osha-sts"
    assert stored.engine_version == es.__version__
    assert stored.settings == session.record.design
    levels = {row["frequency_hz"]: row for row in stored.shown["reference_thresholds"]}
    assert set(levels) == {500, 1000, 2000, 3000, 4000, 6000, 8000}
    for row in levels.values():
        assert row["low_db_hl"] < 20 < row["high_db_hl"]
        assert row["level_db_hl"] == pytest.approx(20, abs=1.5)
    record = store.exam(session.record.id)
    assert (record.state, record.reference_exam_id) == ("done", reference)
    with pytest.raises(ValueError, match="is done and takes no answers"):
        session.answer(True)
    with pytest.raises(ValueError, match="is done"):
        session.undo()
    with pytest.raises(ValueError, match="only an open or paused exam"):
        Session(store, record.id, **MH).resume()


def test_a_full_exam_and_one_that_ended_early_say_so(store: Store, visit: Visit) -> None:
    session = begin_exam(store, visit)
    with pytest.raises(ValueError, match="no answers yet"):
        session.finish()
    run(session, hears_above(20), most=3)
    assert session.view().to_result()["complete"] is False
    assert "under way" in session.view().to_result()["words"]
    assert "ended early" in session.view(ended=True).to_result()["words"]
    run(session, hears_above(20))
    shown = session.finish().shown
    assert shown["complete"] is True
    assert (shown["verdict"], shown["rule"], shown["tones"]) == (None, None, 12)
    assert shown["catch_trials"] == len(session.catch_responses) >= 1
    assert len(shown["thresholds"]) == 9


# Breaks -----------------------------------------------------------------------------------------


def test_pause_and_resume(store: Store, visit: Visit) -> None:
    session = begin_exam(store, visit)
    session.answer(True)
    shown = session.presentation()
    session.pause()
    assert store.exam(session.record.id).state == "paused"
    with pytest.raises(ValueError, match="is paused and takes no answers"):
        session.answer(True)
    later = Session(store, session.record.id, author="ks")
    later.resume()
    assert store.exam(session.record.id).state == "open"
    assert later.presentation() == shown
    assert later.answer(True).author == "ks"


def test_what_another_program_finished_during_a_pause_stays_finished(
    store: Store, visit: Visit
) -> None:
    here = begin_exam(store, visit)
    here.answer(True)
    here.pause()
    there = Session(store, here.record.id, **MH)
    there.resume()
    there.finish()
    with pytest.raises(ValueError, match="only an open or paused exam"):
        here.resume()
    assert store.exam(here.record.id).state == "abandoned"


def test_resuming_under_another_version_is_recorded(
    store: Store, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = begin_exam(store, visit)
    session.pause()
    monkeypatch.setattr("earshift.clinic.session.__version__", "9.9.9")
    later = Session(store, session.record.id, **MH)
    later.resume()
    details = store.audit(subject=f"exams:{session.record.id}")[-1].details
    assert details["engine_version"] == "9.9.9"
    assert details["engine_version_was"] == es.__version__
    run(later, hears_above(20))
    assert later.finish().engine_version == "9.9.9"
    assert store.exam(session.record.id).engine_version == es.__version__


def test_two_programs_do_not_answer_one_exam(store: Store, visit: Visit) -> None:
    here = begin_exam(store, visit)
    here.answer(True)
    there = Session(store, here.record.id, **MH)
    here.undo()
    with pytest.raises(ValueError, match="another program"):
        there.answer(True)
    here.answer(False)
    with pytest.raises(ValueError, match="another program"):
        there.undo()
    with pytest.raises(ValueError, match="another program"):
        there.finish()
    assert [t.heard for t in live_trials(store.trials(here.record.id))] == [False]
    there = Session(store, here.record.id, **MH)
    assert there.presentation() == here.presentation()


def test_a_session_is_read_anew_only_when_another_program_changed_something(
    store: Store, visit: Visit
) -> None:
    here = begin_exam(store, visit)
    here.answer(True)
    here.press(300.0)
    here.undo()
    here.pause()
    here.resume()
    procedure = here.procedure
    here.refresh()
    assert here.procedure is procedure  # what it stored itself is no news to it
    there = Session(store, here.record.id, **MH)
    assert there.snapshot.version == here.snapshot.version
    for change in (lambda: there.answer(True), there.press, there.undo, there.pause):
        change()
        here.refresh()
        assert here.procedure.to_dict() == there.procedure.to_dict()
        assert here.snapshot == there.snapshot == store.snapshot(here.record.id)


# References -------------------------------------------------------------------------------------


def test_the_reference_is_the_oldest_full_one_of_the_same_ear(
    store: Store, person: Person, visit: Visit
) -> None:
    with pytest.raises(ValueError, match="no full exam or imported audiogram of the right ear"):
        reference_for(store, person.id, "right")
    left = imported(store, "left")
    old = imported(store, "right")
    assert reference_for(store, person.id, "right").id == old
    assert reference_for(store, person.id, "left").id == left
    session = begin_exam(store, visit)
    assert reference_for(store, person.id, "right").id == old
    run(session, hears_above(20))
    assert reference_for(store, person.id, "right").id == old  # not closed yet
    session.finish()
    assert reference_for(store, person.id, "right").id == old
    newer = session.record.id
    assert reference_for(store, person.id, "right", newer).id == newer
    early = begin_exam(store, visit)
    run(early, hears_above(20), most=4)
    early.finish()
    assert store.exam(early.record.id).state == "abandoned"
    usable, reasons = references(store, person.id, "right")
    assert [record.id for record in usable] == [old, newer]
    assert "abandoned" in reasons[0][1]
    assert reference_for(store, person.id, "left").id == left
    # What was measured first counts, not what was typed in first.
    first = imported(store, "right", measured_at=datetime(2020, 1, 1, tzinfo=UTC), source="archive")
    assert reference_for(store, person.id, "right").id == first


def test_a_chosen_baseline_is_the_reference_and_the_other_ear_keeps_its_own(
    store: Store, person: Person, visit: Visit
) -> None:
    left, old = imported(store, "left"), imported(store, "right")
    session = begin_exam(store, visit)
    run(session, hears_above(20))
    session.finish()
    store.set_baseline(person.id, "right", session.record.id, author="mh", reason="persistent")
    assert reference_for(store, person.id, "right").id == session.record.id
    assert reference_for(store, person.id, "left").id == left
    screen = begin_screen(store, visit)
    assert screen.record.reference_exam_id == session.record.id
    words = screen.reference_words()
    assert "the baseline chosen by mh" in words
    assert f"others: {old}" in words
    # What keeps a tone from crossing the head is what the other ear hears now: its newest exam.
    other = begin_screen(store, visit, "left").procedure.other_ear
    assert other == audiogram_of(session.procedure)  # type: ignore[arg-type]


def test_a_baseline_that_cannot_be_used_here_is_not_passed_over(
    store: Store, person: Person, visit: Visit
) -> None:
    old = imported(store, "right")
    store.set_baseline(person.id, "right", old, author="mh", reason="first")
    with pytest.raises(ValueError, match=rf"baseline of the right ear, exam {old}"):
        reference_for(store, person.id, "right", relative_device=1)


def test_a_screen_against_a_stored_exam_is_the_engines_screen(store: Store, visit: Visit) -> None:
    first = begin_exam(store, visit)
    run(first, hears_above(20))
    first.finish()
    session = begin_screen(store, visit, rule="niosh-15")
    plain = es.Screen(
        first.procedure,  # type: ignore[arg-type]
        rule="niosh-15",
        seed=1,
        domain="audiometer",
        limits=supervised_limits(),
    )
    assert session.record.reference_exam_id == first.record.id
    assert session.procedure.ask() == plain.ask()
    assert session.procedure.to_dict()["design"]["rule"]["name"] == "niosh-15"


def test_what_cannot_be_a_reference(store: Store, person: Person, visit: Visit) -> None:
    other = store.add_person(author="mh", code="B2")
    others = imported(store, "right", code="B2")
    left = imported(store, "left")
    imported(store, "right")
    screen = begin_screen(store, visit)
    screen.abandon("another exam")
    begun = begin_exam(store, visit)
    for exam_id, words in (
        (others, "belongs to another person"),
        (left, "of the left ear"),
        (screen.record.id, "a screen is not a full exam"),
        (begun.record.id, "it is open and not a full exam"),
        (999, "there is no exam 999"),
    ):
        with pytest.raises(ValueError, match=words):
            reference_for(store, person.id, "right", exam_id)
    with pytest.raises(ValueError, match="of the right ear"):
        reference_for(store, other.id, "left", others)


def test_simulated_answers_are_nobodys_reference(store: Store, person: Person) -> None:
    pretended = store.open_visit(person.id, author="mh", zone="UTC", mode="simulated")
    session = begin_exam(store, pretended)
    run(session, hears_above(20))
    session.finish()
    with pytest.raises(ValueError, match="its answers were simulated"):
        reference_for(store, person.id, "right")
    with pytest.raises(ValueError, match="its answers were simulated"):
        reference_for(store, person.id, "right", session.record.id)
    found = reference_for(store, person.id, "right", simulated=True)
    assert found.id == session.record.id


# Opening ----------------------------------------------------------------------------------------


def test_the_clinics_question_is_the_default(store: Store, person: Person) -> None:
    imported(store, "right")
    plan = plan_screen(store, person.id, "right", protocol="best")
    assert isinstance(plan.procedure, es.Screen)
    assert plan.procedure.rule is None
    plan = plan_screen(store, person.id, "right")
    assert isinstance(plan.procedure, es.Screen)
    assert plan.procedure.rule is not None
    assert plan.procedure.rule.name == "osha-sts"
    for options, words in (
        ({"rule": "osha"}, "unknown rule"),
        ({"protocol": "bestest"}, "unknown protocol"),
        ({"rule": "osha-sts", "protocol": "best"}, "not both"),
    ):
        with pytest.raises(ValueError, match=words):
            plan_screen(store, person.id, "right", **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ear must be right, left or both, got 'neither'"):
        plan_exam("neither")


def test_a_planned_screen_is_built_once_and_read_anew_once_answered(
    store: Store, visit: Visit
) -> None:
    imported(store, "right")
    plan = plan_screen(store, visit.person_id, "right", seed=4)
    record = open_exam(store, visit, plan, author="mh")
    begun = Session(store, record.id, author="mh", planned=plan.procedure)
    read = Session(store, record.id, author="mh")
    assert begun.procedure is plan.procedure
    assert begun.procedure.to_dict() == read.procedure.to_dict()
    assert begun.presentation() == read.presentation()
    read.answer(True)
    later = Session(store, record.id, author="mh", planned=plan.procedure)
    assert later.procedure is not plan.procedure
    assert later.presentation() == read.presentation()


def test_limits_of_a_supervised_test() -> None:
    assert supervised_limits().cap_db_hl == 90
    assert supervised_limits(100, confirmed=True).cap_db_hl == 100
    for cap, sure in ((95, False), (105, True), (float("nan"), True)):
        with pytest.raises(ValueError, match=r"at most|finite"):
            supervised_limits(cap, confirmed=sure)
    plan = plan_exam("left")
    assert plan.procedure.limits == supervised_limits()


def test_every_exam_draws_its_own_seed() -> None:
    seeds = {plan_exam("left").procedure.seed for _ in range(20)}
    assert len(seeds) == 20


def test_levels_never_rise_by_more_than_20_db(store: Store, visit: Visit) -> None:
    session = begin_exam(store, visit, max_tones=40)
    loudest = 20.0
    while not session.done:
        shown = session.presentation()
        if shown.level_db_hl is not None:
            assert shown.level_db_hl <= min(loudest + 20, 90)
            loudest = max(loudest, shown.level_db_hl)
        session.answer(False)
    assert loudest == 90


def test_people_are_found_by_id_or_code_and_never_mistaken(store: Store) -> None:
    first = store.add_person(author="mh", code="A1")
    second = store.add_person(author="mh", code=str(first.id))
    third = store.add_person(author="mh", code="id:9")
    assert find_person(store, "A1") == first
    assert find_person(store, str(second.id)) == second
    with pytest.raises(ValueError, match=f"say id:{first.id} or code:{first.id}"):
        find_person(store, str(first.id))
    assert find_person(store, f"id:{first.id}") == first
    assert find_person(store, f"code:{first.id}") == second
    assert find_person(store, "code:id:9") == third
    for nobody in ("a1", "999", "-1", "id:", "code:", "", "id:A1", "code:A2", "9" * 9000, "١"):
        with pytest.raises(ValueError, match=r"nobody has|there is no person"):
            find_person(store, nobody)


def test_exams_of_one_day_share_a_visit(store: Store, person: Person) -> None:
    berlin = {"author": "mh", "zone": "Europe/Berlin"}
    first = todays_visit(store, person.id, **berlin)
    assert todays_visit(store, person.id, **berlin) == first
    assert todays_visit(store, person.id, mode="simulated", **berlin).id != first.id
    assert todays_visit(store, person.id, **berlin) == first
    device = store.add_device(author="mh", name="AC40")
    with_device = todays_visit(store, person.id, device_id=device.id, **berlin)
    assert (with_device.device_id, with_device.id != first.id) == (device.id, True)
    assert todays_visit(store, person.id, fresh=True, **berlin).id != first.id


def test_yesterdays_visit_is_over(store: Store, person: Person) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    old = store.open_visit(
        person.id, author="mh", zone="UTC", mode="supervised", started_at=yesterday
    )
    assert todays_visit(store, person.id, author="mh", zone="UTC").id != old.id


def test_the_machines_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert local_zone() == "Asia/Tokyo"
    monkeypatch.setenv("TZ", ":Europe/Berlin")
    assert local_zone() == "Europe/Berlin"


def test_a_screen_keeps_from_tones_that_the_better_ear_might_hear(
    store: Store, person: Person
) -> None:
    """The right ear is at 35 dB HL, the left hears at 0: tones from 40 dB HL might cross over."""
    for ear, level in (("right", 35.0), ("left", 0.0)):
        thresholds = dict.fromkeys((500, 1000, 2000, 3000, 4000, 6000, 8000), level)
        imported(store, ear, audiogram=es.Audiogram(thresholds, sd_db=2.0).to_dict())
    plain = plan_screen(store, person.id, "right", seed=1).procedure
    assert isinstance(plain, es.Screen)
    assert plain.decision == "not determinable"
    device = store.add_device(author="mh", name="inserts", transducer="insert")
    inserts = plan_screen(store, person.id, "right", seed=1, device_id=device.id).procedure
    assert isinstance(inserts, es.Screen)
    assert inserts.decision == "inconclusive"
    assert inserts.other_ear is not None
    assert inserts.other_ear.thresholds_db_hl[1000.0] == 0.0


def test_practice_that_nobody_heard_is_said_with_the_result(store: Store, person: Person) -> None:
    imported(store, "right")
    visit = todays_visit(store, person.id, author="mh", zone="UTC")
    plan = plan_screen(store, person.id, "right", seed=1)
    record = open_exam(store, visit, plan, author="mh")
    session = Session(store, record.id, author="mh", practice=True)
    assert session.reference_words().startswith("exam 1 of 2025-05-05")
    while not session.done:
        session.answer(False)
    assert "No practice tone was heard" in session.finish().shown["words"]


def test_reports_of_silence_alone_clear_nobody(store: Store, person: Person) -> None:
    """A person who says yes to everything meets more tones, not a verdict."""
    imported(store, "right")
    visit = todays_visit(store, person.id, author="mh", zone="UTC")
    plan = plan_screen(store, person.id, "right", seed=1)
    session = Session(store, open_exam(store, visit, plan, author="mh").id, author="mh")
    for _ in range(8):
        session.answer(True)
    assert not session.done
    assert session.view().to_result()["verdict"]["decision"] == "inconclusive"
