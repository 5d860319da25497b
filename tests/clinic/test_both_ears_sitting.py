"""Both ears in one sitting: one stored exam, whose tones have their own ear."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import earshift as es
from earshift.clinic.begin import Wanted, begin_follow_up, last_test, plan_test
from earshift.clinic.history import ear_history, revise_baseline
from earshift.clinic.plan import (
    open_exam,
    plan_again,
    plan_continuation,
    plan_exam,
    plan_notch,
    plan_screen,
)
from earshift.clinic.references import choices, ear_tests, reference_for
from earshift.clinic.review import review_of, sign
from earshift.clinic.session import Presentation, Session
from earshift.clinic.standing import standing_of
from earshift.clinic.worklist import worklist
from earshift.days import today
from earshift.devices.delivery import Delivery
from earshift.devices.sound import Sound
from earshift.engine.refusal import Conflict, Refusal
from earshift.records import ImportedAudiogram, Person, Visit
from earshift.store import Store, StoreConflict
from earshift.store.errors import StoreError

MH = {"author": "mh"}
LEVELS = es.Audiogram(dict.fromkeys((500, 1000, 2000, 3000, 4000, 6000, 8000), 20.0)).to_dict()
EARS = ("right", "left")


@pytest.fixture
def person(store: Store) -> Person:
    return store.add_person(author="mh", code="A1")


@pytest.fixture
def visit(store: Store, person: Person) -> Visit:
    return store.open_visit(person.id, author="mh", zone="UTC", mode="supervised")


def imported(store: Store, *ears: str, code: str = "A1", **changes: Any) -> dict[str, int]:
    item = ImportedAudiogram(code, "right", LEVELS, datetime(2025, 5, 5, tzinfo=UTC), "paper")
    items = [replace(item, ear=ear, **changes) for ear in ears]
    added = store.import_audiograms(items, author="mh", zone="UTC").added
    return {one.ear: one.id for one in added}


def begin(store: Store, visit: Visit, plan: Any, **options: Any) -> Session:
    record = open_exam(store, visit, plan, author="mh")
    return Session(store, record.id, author="mh", **options)


def screening(store: Store, visit: Visit, **options: Any) -> Session:
    plan = plan_screen(store, visit.person_id, "both", **{"seed": 1, **options})
    return begin(store, visit, plan)


def hears(**levels: float) -> Callable[[Presentation], bool]:
    return lambda shown: shown.level_db_hl is not None and shown.level_db_hl >= levels[shown.ear]


def run(session: Session, hears: Callable[[Presentation], bool]) -> Session:
    while not session.done:
        session.answer(hears(session.presentation()))
    return session


@pytest.fixture
def finished(store: Store, visit: Visit) -> Session:
    """A screen whose left ear has become worse by 25 dB, and whose right ear has not."""
    imported(store, *EARS)
    session = run(screening(store, visit), hears(right=15, left=45))
    session.finish()
    return session


# The sitting itself


def test_one_sitting_is_one_exam_that_says_something_of_each_ear(
    store: Store, finished: Session
) -> None:
    (record,) = [one for one in store.exams(1) if one.kind == "screen"]
    assert (record.ear, record.state, record.reference_exam_id) == ("both", "done", None)
    assert record.references == {"right": 1, "left": 2}
    (result,) = store.results(record.id)
    assert result.shown["verdict"]["decision"] == "changed"
    assert "met in the left ear" in result.shown["sentence"]
    assert "not met in the right ear" in result.shown["sentence"]
    ears = result.shown["ears"]
    assert {ear: ears[ear]["verdict"]["decision"] for ear in EARS} == {
        "right": "unchanged",
        "left": "changed",
    }
    assert ears["left"]["sentence"].startswith("Left ear: average at 2-4 kHz")
    assert "2025" in ears["left"]["sentence"]
    for ear in EARS:
        assert ears[ear]["sentence"] in result.shown["words"]
        assert ears[ear]["thresholds"]
        assert ears[ear]["reference_thresholds"]
    assert ears["right"]["tones"] + ears["left"]["tones"] == result.shown["tones"]
    trials = store.trials(record.id)
    assert {trial.ear for trial in trials if trial.kind == "tone"} == set(EARS)
    assert any(trial.kind == "catch" for trial in trials)


@pytest.mark.slow
@settings(
    max_examples=4,
    deadline=None,
    phases=[Phase.generate],  # a smaller case would take minutes to find
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 999),
    right=st.sampled_from((10, 20, 45)),
    left=st.sampled_from((10, 20, 45)),
    undone=st.sets(st.integers(2, 12), max_size=2),
    pressed=st.sets(st.integers(1, 12), max_size=2),
)
def test_what_the_store_holds_says_the_same_after_every_answer(
    store: Store, seed: int, right: float, left: float, undone: set[int], pressed: set[int]
) -> None:
    code = f"P{store.count_visits()}"
    somebody = store.add_person(author="mh", code=code)
    imported(store, *EARS, code=code)
    visit = store.open_visit(somebody.id, author="mh", zone="UTC", mode="supervised")
    session = screening(store, visit, seed=seed, max_tones=12)
    answer = hears(right=right, left=left)
    step = 0
    while not session.done:
        step += 1
        if step in pressed:
            session.press()
        for heard in (True, False):
            session.look_ahead(heard)
        session.answer(answer(session.presentation()))
        if step in undone:
            session.undo()
        anew = Session(store, session.record.id, author="mh")
        assert anew.done == session.done
        assert anew.view().to_result() == session.view().to_result()
        if not session.done:
            assert anew.presentation() == session.presentation()
    assert session.tones >= 2
    anew = Session(store, session.record.id, **MH)
    said = json.loads(json.dumps(anew.view().to_result()))  # as it is stored
    assert session.finish().shown == said


def test_a_full_exam_of_both_ears_measures_each(store: Store, visit: Visit) -> None:
    session = begin(store, visit, plan_exam("both", seed=3, max_tones=16))
    assert plan_exam("both").procedure.max_tones == 80
    run(session, hears(right=10, left=50))
    shown = session.finish().shown
    assert shown["words"].startswith("Full exam: thresholds measured with 16 tones.")
    middle = {
        ear: {t["frequency_hz"]: t["level_db_hl"] for t in shown["ears"][ear]["thresholds"]}[1000.0]
        for ear in EARS
    }
    assert middle["right"] < 25 < middle["left"]
    assert shown["ears"]["left"]["tested_hz"]
    tones = [t.heard for t in store.trials(session.record.id) if t.kind == "tone"]
    assert len(tones) == 16


def test_a_notch_is_looked_for_in_both_ears(store: Store, visit: Visit) -> None:
    plan = plan_notch(store, visit.person_id, "both", seed=1, max_tones=10)
    session = run(begin(store, visit, plan), hears(right=15, left=15))
    shown = session.finish().shown
    assert set(shown["ears"]) == set(EARS)
    assert "notch around 3-6 kHz" in shown["sentence"]
    assert session.record.references == {}


def test_practice_is_given_to_each_ear(store: Store, visit: Visit) -> None:
    session = begin(store, visit, plan_exam("both", seed=3), practice=True)
    heard = []
    while (shown := session.presentation()).kind == "practice":
        assert shown.level_db_hl is not None
        answer = shown.ear == "right" or shown.level_db_hl >= 60
        heard.append((shown.ear, shown.level_db_hl, answer))
        session.answer(answer)
    assert heard == [("right", 40.0, True), ("left", 40.0, False), ("left", 60.0, True)]


def test_the_sitting_goes_on_with_the_ear_that_is_not_decided(
    store: Store, finished: Session
) -> None:
    screen = finished.procedure
    assert isinstance(screen, es.Screen)
    assert screen.decisions == {"right": "unchanged", "left": "changed"}
    assert screen.open_ears == ()


def test_an_undone_answer_is_asked_again_in_the_same_ear(store: Store, visit: Visit) -> None:
    imported(store, *EARS)
    session = screening(store, visit)
    for _ in range(3):
        session.answer(True)
    asked = session.presentation()
    session.answer(False)
    taken = session.undo()
    again = session.presentation()
    assert taken.ear == asked.ear
    assert (again.ear, again.frequency_hz, again.level_db_hl) == (
        asked.ear,
        asked.frequency_hz,
        asked.level_db_hl,
    )


def test_a_paused_sitting_goes_on_at_the_same_tone(store: Store, visit: Visit) -> None:
    imported(store, *EARS)
    session = screening(store, visit)
    for _ in range(4):
        session.answer(True)
    asked = session.presentation()
    session.pause()
    other = Session(store, session.record.id, author="mh")
    other.resume()
    assert other.presentation() == asked


# What is refused


def test_an_ear_has_one_unfinished_exam_whichever_sitting_it_is_of(
    store: Store, visit: Visit
) -> None:
    imported(store, *EARS)
    session = screening(store, visit)
    for ear in (*EARS, "both"):
        with pytest.raises(StoreConflict, match="not finished") as caught:
            open_exam(store, visit, plan_exam(ear), author="mh")
        assert caught.value.code == "unfinished-exam"
        with pytest.raises(Conflict, match="not finished"):
            plan_test(store, 1, Wanted("exam", (ear,)), delivery=Delivery(), today=today("UTC"))
    session.abandon("enough")
    right = open_exam(store, visit, plan_exam("right"), author="mh")
    with pytest.raises(StoreConflict, match="not finished"):
        open_exam(store, visit, plan_exam("both"), author="mh")
    assert open_exam(store, visit, plan_exam("left"), author="mh").id > right.id


def test_one_reference_alone_says_what_to_do(store: Store, person: Person) -> None:
    imported(store, "right")
    with pytest.raises(Conflict, match="the left ear has nothing to be compared with") as caught:
        plan_screen(store, person.id, "both")
    assert caught.value.code == "one-reference"
    assert "screen the right ear alone" in str(caught.value.advice)


def test_no_reference_at_all_is_said_as_ever(store: Store, person: Person) -> None:
    with pytest.raises(Conflict) as caught:
        plan_screen(store, person.id, "both")
    assert caught.value.code == "no-reference"


def test_references_of_two_devices_are_not_taken_for_one(store: Store, person: Person) -> None:
    imported(store, "left")
    booth = store.add_device(author="mh", name="booth", transducer="insert").id
    there = store.open_visit(person.id, author="mh", zone="UTC", mode="supervised", device_id=booth)
    run(begin(store, there, plan_exam("right", max_tones=10)), hears(right=20)).finish()
    with pytest.raises(Conflict, match="not measured with the same device") as caught:
        plan_screen(store, person.id, "both")
    assert caught.value.code == "two-devices"
    assert "one ear after the other" in str(caught.value.advice)


def test_without_calibration_one_ear_follows_the_other(store: Store, person: Person) -> None:
    sound = Sound(kind="relative", device="laptop", fingerprint={"volume": 0.5})
    given = Delivery(sound=sound, answered_by="listener")
    for plan in (
        lambda: plan_exam("both", delivery=given),
        lambda: plan_screen(store, person.id, "both", delivery=given),
        lambda: plan_notch(store, person.id, "both", delivery=given),
    ):
        with pytest.raises(Conflict) as caught:
            plan()
        assert caught.value.code == "needs-calibration"
        assert "one ear after the other" in str(caught.value.advice)


def test_both_ears_in_one_sitting_go_with_no_other(store: Store, person: Person) -> None:
    wanted = Wanted("exam", ("both", "right"))
    with pytest.raises(Conflict, match="one exam"):
        plan_test(store, person.id, wanted, delivery=Delivery(), today=today("UTC"))
    with pytest.raises(Refusal, match="ear must be right, left or both"):
        plan_exam("neither")


def test_the_store_takes_no_wrong_ears(store: Store, visit: Visit) -> None:
    ids = imported(store, *EARS)
    plan = plan_screen(store, visit.person_id, "both")
    swapped = replace(plan, references={"right": ids["left"], "left": ids["right"]})
    with pytest.raises(StoreError, match="cannot be the reference"):
        open_exam(store, visit, swapped, author="mh")
    with pytest.raises(StoreError, match="reference of each"):
        store.open_exam(
            visit.id, author="mh", ear="both", kind="screen", design={}, engine_version="1",
            reference_exam_id=ids["left"],
        )  # fmt: skip
    with pytest.raises(StoreError, match="ear must be one of right, left"):
        store.open_exam(
            visit.id, author="mh", ear="both", kind="audiogram", design={}, engine_version="1"
        )
    record = open_exam(store, visit, plan, author="mh")
    with pytest.raises(StoreError, match="ear must be one of right, left"):
        store.append_trial(
            record.id, author="mh", kind="tone", ear="both", frequency_hz=1000, asked_db_hl=30,
            played_db_hl=30, heard=True,
        )  # fmt: skip


# What follows


def test_it_counts_for_both_ears(store: Store, finished: Session, person: Person) -> None:
    history = store.history_of_tests(person.id)
    standing = standing_of(history)
    assert {(one.ear, one.shift) for one in standing.tested if one.exam_id == 3} == {
        ("right", ""),
        ("left", "waiting"),
    }
    assert {(task.why, task.ears) for task in standing.tasks} == {
        ("audiogram", "left"),
        ("review", "left"),
    }
    decisions = {ear: ear_history(store, person.id, ear).occasions[-1] for ear in EARS}
    assert decisions["right"].decision == "unchanged"
    assert decisions["left"].decision == "changed"
    assert (decisions["right"].against, decisions["left"].against) == (1, 2)
    last = last_test(store, person.id)
    assert last is not None
    assert last.ears == ("both",)


def test_an_unfinished_one_is_one_line_of_the_worklist(
    store: Store, visit: Visit, person: Person
) -> None:
    imported(store, *EARS)
    session = screening(store, visit)
    found = [one for one in worklist(store, today("UTC")).items if one.why == "unfinished"]
    assert [(one.ears, one.exam_id) for one in found] == [(EARS, session.record.id)]


def test_either_ear_of_an_exam_can_be_a_reference_and_a_baseline(
    store: Store, visit: Visit, person: Person
) -> None:
    exam = run(begin(store, visit, plan_exam("both", seed=2)), hears(right=10, left=35))
    exam.finish()
    number = exam.record.id
    for ear in EARS:
        assert [one.record.id for one in choices(store, ear_tests(store, person.id, ear))] == [
            number
        ]
        assert reference_for(store, person.id, ear).ear == ear
        revise_baseline(store, person.id, ear, number, author="mh", reason="first")
    assert standing_of(store.history_of_tests(person.id)).full_day is not None

    alone = plan_screen(store, person.id, "left", seed=1)
    assert alone.references == {"left": number}
    single = run(begin(store, visit, alone), hears(left=35))
    said = single.finish().shown
    assert said["verdict"]["decision"] == "unchanged"
    left = [t for t in store.trials(number) if (t.kind, t.ear) == ("tone", "left")]
    assert set(said["reference_tested_hz"]) == {t.frequency_hz for t in left}

    both = run(screening(store, visit), hears(right=10, left=35))
    assert both.record.references == {"right": number, "left": number}
    ears = both.finish().shown["ears"]
    assert {ears[ear]["verdict"]["decision"] for ear in EARS} == {"unchanged"}
    occasions = ear_history(store, person.id, "left").occasions
    assert [one.decision for one in occasions] == [None, "unchanged", "unchanged"]


def test_a_retest_is_of_both_ears_or_of_one(store: Store, finished: Session) -> None:
    record = store.exam(finished.record.id)
    day = today("UTC")
    again, _ = begin_follow_up(store, record, plan_again, today=day, author="mh")
    assert (again.ear, again.references) == ("both", record.references)
    assert again.design["seed"] != record.design["seed"]
    store.set_exam_state(again.id, "abandoned", author="mh")

    def one(store: Store, record: Any) -> Any:
        return plan_again(store, record, ear="left")

    left, plan = begin_follow_up(store, record, one, today=day, author="mh")
    assert (left.ear, left.references) == ("left", {"left": 2})
    assert plan.procedure.ears is None
    assert left.design["rule"] == record.design["rule"]
    assert left.design["settings"] == record.design["settings"]
    assert left.delivery["remarks"] == record.delivery["remarks"]
    assert left.design["other_ear"] is not None  # what the right ear hears is known
    shown = run(Session(store, left.id, author="mh"), hears(left=45)).finish().shown
    assert shown["sentence"].startswith("Left ear: ")
    with pytest.raises(Conflict, match="did not test the right ear"):
        plan_again(store, store.exam(left.id), ear="right")


def test_a_continuation_begins_with_the_tones_of_both_ears(store: Store, finished: Session) -> None:
    record = store.exam(finished.record.id)
    more, plan = begin_follow_up(store, record, plan_continuation, today=today("UTC"), author="mh")
    assert (more.ear, more.kind, more.references) == ("both", "exam", {})
    assert more.continues == record.id
    session = Session(store, more.id, author="mh")
    assert session.tones == finished.tones
    assert session.procedure.trials == plan.procedure.trials
    assert session.procedure.max_tones == 80
    run(session, hears(right=15, left=45)).finish()
    assert store.exam(more.id).state in ("done", "abandoned")


def test_a_signed_sitting_opens_as_it_was_signed(
    store: Store, finished: Session, person: Person
) -> None:
    visit_id = finished.record.visit_id
    sign(store, visit_id, author="mh", name="M. H.", meaning="reviewed")
    review = review_of(store, visit_id)
    assert review.signed is not None
    assert not review.changed_since
    (bundle,) = [one for one in review.signed.exams if one.exam.ear == "both"]
    assert {one.id for one in bundle.references} == {1, 2}
    right, left = bundle.by_ear()
    assert (right.exam.ear, left.exam.ear) == EARS
    assert right.reference is not None
    assert right.reference.ear == "right"
    standing = standing_of(store.history_of_tests(person.id))
    assert {(task.why, task.ears) for task in standing.tasks} == {("audiogram", "left")}


def test_shifts_of_both_ears_are_signed_each_for_itself(
    store: Store, visit: Visit, person: Person
) -> None:
    imported(store, *EARS)
    exam = run(begin(store, visit, plan_exam("both", seed=2)), hears(right=20, left=50))
    exam.finish()
    sign(store, visit.id, author="mh", name="M. H.", meaning="reviewed")
    since = {
        one.ear: one.shift_since
        for one in store.history_of_tests(person.id).tests
        if one.id == exam.record.id
    }
    assert since["right"] is None
    assert since["left"] is not None
    tasks = standing_of(store.history_of_tests(person.id)).tasks
    assert {(task.why, task.ears) for task in tasks} == {("letter", "left")}


def test_records_that_are_merged_and_erased_take_it_with_them(
    store: Store, finished: Session, person: Person
) -> None:
    other = store.add_person(author="mh", code="B2")
    store.merge_people(person.id, other.id, author="mh", reason="the same person")
    assert [one.ear for one in store.exams(other.id)] == ["right", "left", "both"]
    assert ear_history(store, other.id, "left").occasions[-1].decision == "changed"
    store.erase_person(other.id, author="mh", reason="other")
    assert store.trials(finished.record.id)  # nobody's any more
    assert store.visit_bundle(finished.record.visit_id).person.name is None
