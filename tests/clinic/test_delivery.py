"""Limits by who watches and what plays, and what may be compared with what."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pytest

import earshift as es
from earshift.clinic import devices as clinic_devices
from earshift.clinic.people import todays_visit
from earshift.clinic.plan import open_exam, plan_continuation, plan_exam, plan_screen
from earshift.clinic.references import reference_for
from earshift.clinic.session import MovedOn, Session
from earshift.devices.delivery import Delivery
from earshift.devices.sound import Sound, Timing
from earshift.engine.domain import DOMAINS
from earshift.engine.limits import Limits
from earshift.engine.tone import Trial
from earshift.records import ImportedAudiogram, Person
from earshift.store import Store

BROWSER = {"browser": "Chromium", "earphones": "HD 25", "volume": "50 %"}
TABLE = {
    "retspl_db": {"500": 11.0, "8000": 17.5},
    "full_scale_db_spl": {ear: {"500": 110.0, "8000": 110.0} for ear in ("right", "left")},
}
AUDIOMETER = DOMAINS["audiometer"]
HZ = list(AUDIOMETER.smooth[0].values)


@pytest.fixture
def person(store: Store) -> Person:
    return store.add_person(author="mh", code="A1")


def ceilings(limits: Limits, trials: list[Trial], reference: Any = None) -> dict[float, float]:
    """The loudest playable level by frequency; nan where nothing is."""
    mask = limits.allowed(AUDIOMETER, trials, reference)
    levels = np.array(AUDIOMETER.intensity.values)
    return {
        f: float(levels[row].max()) if row.any() else float("nan")
        for f, row in zip(HZ, mask, strict=True)
    }


def trial(hz: float, level: float, heard: bool) -> Trial:
    return Trial(es.Tone(hz, level), heard)


# Ceilings ---------------------------------------------------------------------------------------


def test_the_ceiling_is_forty_before_the_first_answer() -> None:
    for mode in ("supervised", "self"):
        assert set(ceilings(Delivery(mode=mode).limits("right"), []).values()) == {40.0}


@pytest.mark.parametrize(("mode", "after_a_miss"), [("supervised", 60.0), ("self", 50.0)])
def test_levels_rise_step_by_step_near_what_was_answered(mode: str, after_a_miss: float) -> None:
    limits = Delivery(mode=mode).limits("right")
    missed = ceilings(limits, [trial(2000, 40, False)])
    assert missed[2000] == missed[1500] == after_a_miss
    assert missed[4000] == missed[1000] == 40  # an octave away
    heard = ceilings(limits, [trial(2000, 35, True)])
    assert heard[2000] == 55


def test_ten_above_the_reference_once_any_tone_was_heard_today() -> None:
    limits = Delivery().limits("right")
    reference = np.array([60.0 if f >= 3000 else 10.0 for f in HZ])
    assert ceilings(limits, [trial(500, 40, False)], reference)[4000] == 40
    after = ceilings(limits, [trial(500, 20, True)], reference)
    assert after[4000] == 70
    assert after[2000] == 40  # never less than before
    unknown = np.full(len(HZ), np.nan)
    assert ceilings(limits, [trial(500, 20, True)], unknown)[4000] == 40


@pytest.mark.parametrize(
    ("given", "cap"),
    [({}, 90.0), ({"loud_confirmed": True}, 100.0), ({"mode": "self"}, 80.0)],
)
def test_nothing_goes_above_the_cap(given: dict[str, Any], cap: float) -> None:
    limits = Delivery(**given).limits("left")
    loud = [trial(f, 100, False) for f in HZ]
    assert set(ceilings(limits, loud, np.full(len(HZ), 100.0)).values()) == {cap}


def test_a_calibrated_device_is_capped_in_sound_pressure_too() -> None:
    sound = Sound("calibrated", "booth", BROWSER, TABLE["retspl_db"], TABLE["full_scale_db_spl"])
    loud = [trial(f, 100, True) for f in HZ]
    watched = ceilings(Delivery(sound=sound).limits("right"), loud)
    alone = ceilings(
        Delivery(sound=sound, mode="self", answered_by="listener").limits("left"), loud
    )
    assert watched[8000] == 85  # 87.5 dB HL are 105 dB SPL
    assert alone[8000] == 75  # 77.5 dB HL are 95 dB SPL
    assert alone[500] == 80


def test_a_frequency_that_the_device_does_not_play_is_never_asked() -> None:
    half = {ear: {"500": 110.0, "4000": 110.0} for ear in ("right", "left")}
    sound = Sound("calibrated", "booth", BROWSER, TABLE["retspl_db"], half)
    limits = Delivery(sound=sound).limits("right")
    assert np.isnan(ceilings(limits, [])[6000])
    screen = es.Screen(
        es.Audiogram(dict.fromkeys(HZ, 10.0)), rule="niosh-15", domain="audiometer", limits=limits
    )
    verdict = screen.verdict()
    assert verdict.not_determinable_hz == (6000.0,)
    assert "the device does not play it" in str(verdict)
    for _ in range(20):
        tone = screen.ask()
        assert tone.frequency_hz <= 4000
        screen.tell(tone, tone.level_db_hl >= 10)


def test_a_device_that_plays_nothing_soft_clears_nobody() -> None:
    limits = Limits(device=tuple((f, 30.0, 90.0) for f in HZ))
    screen = es.Screen(
        es.Audiogram(dict.fromkeys(HZ, 0.0)), rule="osha-sts", domain="audiometer", limits=limits
    )
    while not screen.done:
        screen.tell(screen.ask(), True)
    assert screen.decision == "not determinable"
    assert "nothing softer than 30 dB HL" in str(screen.verdict())


def test_limits_that_hide_the_reference_give_no_unchanged_without_a_rule_either() -> None:
    """A screen for any change, of an ear whose old thresholds are above the cap."""
    reference = es.Audiogram({500: 20, 1000: 20, 2000: 50, 4000: 95, 8000: 95}, sd_db=3.0)
    limits = Delivery(mode="self").limits("right")
    screen = es.Screen(reference, "best", domain="audiometer", limits=limits, max_tones=60)
    old = {500: 20, 750: 20, 1000: 20, 1500: 35, 2000: 50}
    while not screen.done:
        tone = screen.ask()
        screen.tell(tone, tone.level_db_hl >= old.get(int(tone.frequency_hz), 95))
    assert screen.decision in ("not determinable", "inconclusive")
    assert "the reference lies above the loudest tone, 80 dB HL" in str(screen.verdict())


@pytest.mark.parametrize(
    "wrong",
    [
        {"answered_by": "nobody"},
        {"mode": "party"},
        {"answered_by": "listener"},
        {"mode": "self", "loud_confirmed": True},
    ],
)
def test_deliveries_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"answer|mode|confirmed"):
        Delivery(**wrong)


def test_limits_of_a_device_are_checked_and_survive_the_store() -> None:
    limits = Delivery(sound=Sound("relative")).limits("right")
    assert Limits(**limits.to_dict()) == limits
    for wrong in ((), ((500.0, 1.0),), ((500.0, 1.0, float("nan")),)):
        with pytest.raises(ValueError, match="device"):
            Limits(device=wrong)  # type: ignore[arg-type]


# Comparing devices ------------------------------------------------------------------------------


def finished_exam(
    store: Store, person: Person, device_id: int | None, delivery: Delivery | None = None
) -> int:
    """A short full exam of the right ear; its id."""
    visit = todays_visit(store, person.id, author="mh", zone="UTC", device_id=device_id, fresh=True)
    plan = plan_exam("right", delivery=delivery, seed=1, max_tones=6)
    record = open_exam(store, visit, plan, author="mh")
    session = Session(store, record.id, author="mh")
    while not session.done:
        shown = session.presentation()
        session.answer(shown.level_db_hl is not None and shown.level_db_hl >= 20)
    session.finish()
    return record.id


def a_device(store: Store, calibrated_until: date | None, **given: Any) -> int:
    device = store.add_device(author="mh", name="one", **given)
    if calibrated_until is not None:
        store.add_calibration(
            device.id,
            author="mh",
            done_on=calibrated_until - timedelta(days=365),
            due_on=calibrated_until,
            laboratory="lab",
            coupler="IEC 60318-1",
        )
    return device.id


def test_two_devices_that_nobody_knows_are_not_the_same(store: Store, person: Person) -> None:
    finished_exam(store, person, None)
    assert offset_of(store, person, None) == (6.0, "Reference calibration unknown.")


def offset_of(store: Store, person: Person, device_id: int | None) -> tuple[float, str]:
    plan = plan_screen(store, person.id, "right", device_id=device_id, seed=1)
    assert isinstance(plan.procedure, es.Screen)
    return plan.procedure.settings.device_offset_sd_db, " ".join(plan.delivery.remarks)


def test_the_same_device_has_no_offset(store: Store, person: Person) -> None:
    device = a_device(store, None)
    finished_exam(store, person, device)
    assert offset_of(store, person, device) == (0.0, "")


def test_two_calibrated_devices_may_differ_a_little(store: Store, person: Person) -> None:
    soon = datetime.now(UTC).date() + timedelta(days=30)
    finished_exam(store, person, a_device(store, soon))
    offset, words = offset_of(store, person, a_device(store, soon))
    assert offset == 3.0
    assert "both were calibrated" in words
    expired = a_device(store, soon - timedelta(days=60))
    assert offset_of(store, person, expired) == (6.0, "Reference calibration unknown.")


def test_an_imported_audiogram_may_differ_much_and_the_result_says_so(
    store: Store, person: Person
) -> None:
    item = ImportedAudiogram("A1", "right", es.Audiogram(dict.fromkeys(HZ, 10.0)).to_dict())
    store.import_audiograms([item], author="mh", zone="UTC")
    assert offset_of(store, person, None) == (6.0, "Reference calibration unknown.")


# Without calibration ----------------------------------------------------------------------------


def relative(store: Store, name: str = "phone") -> tuple[int, Delivery]:
    device = store.add_device(author="mh", name=name, fingerprint=BROWSER)
    sound = clinic_devices.sound_of(store, device, datetime.now(UTC).date())
    assert sound is not None
    return device.id, Delivery(sound=sound, answered_by="listener", mode="self")


def begin(
    store: Store, person: Person, device_id: int, delivery: Delivery, kind: str = "exam"
) -> Session:
    visit = todays_visit(
        store, person.id, author="mh", zone="UTC", mode="self", device_id=device_id
    )
    if kind == "exam":
        plan = plan_exam("right", delivery=delivery, seed=1, max_tones=8)
    else:
        plan = plan_screen(
            store, person.id, "right", device_id=device_id, delivery=delivery, seed=1
        )
    record = open_exam(store, visit, plan, author="mh")
    return Session(store, record.id, author="listener")


def hears(session: Session, threshold: float) -> bool:
    level = session.presentation().level_db_hl
    return level is not None and level >= threshold


def test_relative_practice_climbs_from_nothing_and_bounds_everything_after(
    store: Store, person: Person
) -> None:
    session = begin(store, person, *relative(store))
    levels = []
    while session.presentation().kind == "practice":
        levels.append(session.presentation().level_db_hl)
        session.answer(hears(session, 5))
    assert levels == [0, 5, 5]
    assert session.volume_problem == ""
    while not session.done:
        shown = session.presentation()
        assert shown.level_db_hl is None or shown.level_db_hl <= 65  # own level and 60 dB
        session.answer(False)
    result = session.finish()
    assert result.shown["unit"] == "relative dB"
    assert "dB HL" not in str(result.shown)
    assert "not hearing levels" in result.shown["words"]


@pytest.mark.parametrize(("threshold", "said"), [(-10, "volume down"), (90, "volume back up")])
def test_a_volume_that_cannot_be_right_is_said(
    store: Store, person: Person, threshold: float, said: str
) -> None:
    session = begin(store, person, *relative(store))
    while not session.volume_problem:
        assert session.presentation().kind == "practice"
        session.answer(hears(session, threshold))
    assert said in session.volume_problem
    session.begin_practice_again(session.volume_problem)
    assert session.record.state == "paused"
    session.resume()
    assert session.presentation().level_db_hl == 0
    assert session.volume_problem == ""


def test_relative_levels_compare_with_the_same_device_alone(store: Store, person: Person) -> None:
    device_id, delivery = relative(store)
    session = begin(store, person, device_id, delivery)
    while not session.done:
        session.answer(hears(session, 20))
    session.finish()
    screen = begin(store, person, device_id, delivery, "screen")
    assert isinstance(screen.procedure, es.Screen)
    assert screen.procedure.domain.intensity.unit == "relative dB"
    assert screen.procedure.settings.device_offset_sd_db == 3.0
    for other, given in ((relative(store, "tablet")), (None, Delivery())):
        with pytest.raises(ValueError, match=r"no full exam|relative|without calibration"):
            plan_screen(store, person.id, "right", device_id=other, delivery=given)
    with pytest.raises(ValueError, match="relative"):
        plan_screen(store, person.id, "right", reference=session.record.id)


def test_a_screen_without_calibration_waits_for_practice_before_it_says_what_is_out_of_reach(
    store: Store, person: Person
) -> None:
    """Thresholds of 50 relative dB: a shift of 10 dB can be found, as 70 may be played."""
    device_id, delivery = relative(store)
    session = begin(store, person, device_id, delivery)
    while not session.done:
        session.answer(hears(session, 20 if session.presentation().kind == "practice" else 50))
    session.finish()
    screen = begin(store, person, device_id, delivery, "screen")
    assert not screen.done
    while screen.presentation().kind == "practice":
        screen.answer(hears(screen, 20))
    assert not screen.done
    assert screen.presentation().kind in ("tone", "catch")


def test_a_device_plays_as_its_newest_calibration_says(store: Store) -> None:
    today = date(2026, 6, 1)
    by_hand = store.add_device(author="mh", name="audiometer")
    assert clinic_devices.sound_of(store, by_hand, today) is None
    device = store.add_device(author="mh", name="booth", fingerprint=BROWSER)
    sound = clinic_devices.sound_of(store, device, today)
    assert sound is not None
    assert sound.kind == "relative"
    store.add_calibration(
        device.id,
        author="mh",
        done_on=date(2026, 5, 1),
        due_on=date(2027, 5, 1),
        laboratory="lab",
        coupler="IEC 60318-1",
        table=TABLE,
    )
    sound = clinic_devices.sound_of(store, device, today)
    assert sound is not None
    assert (sound.kind, sound.fingerprint) == ("calibrated", BROWSER)
    assert clinic_devices.sound_of(store, device, date(2026, 4, 1)).kind == "relative"  # type: ignore[union-attr]


# Driving ----------------------------------------------------------------------------------------


def a_screen(store: Store, person: Person) -> Session:
    audiogram = es.Audiogram(dict.fromkeys(HZ, 10.0)).to_dict()
    item = ImportedAudiogram("A1", "right", audiogram)
    store.import_audiograms([item], author="mh", zone="UTC")
    visit = todays_visit(store, person.id, author="mh", zone="UTC")
    plan = plan_screen(store, person.id, "right", seed=1)
    return Session(store, open_exam(store, visit, plan, author="mh").id, author="mh")


@pytest.mark.slow
@pytest.mark.parametrize("heard", [True, False])
def test_looking_ahead_shows_what_will_be_asked_and_changes_nothing(
    store: Store, person: Person, heard: bool
) -> None:
    session = a_screen(store, person)
    for answered in range(8):  # one of them in silence
        before = session.presentation()
        session.look_ahead(True)
        session.look_ahead(False)
        assert session.presentation() == before
        assert len(store.trials(session.record.id)) == answered
        session.answer(heard)
        plain = Session(store, session.record.id, author="mh")  # from what is stored alone
        assert session.done == plain.done
        assert session.trial_id == plain.trial_id
        if session.done:
            break
        assert session.presentation() == plain.presentation()


def test_what_is_broken_off_is_kept_void_and_asked_again(store: Store, person: Person) -> None:
    session = a_screen(store, person)
    session.answer(True)
    asked = session.presentation()
    session.break_off("tab hidden")
    assert session.record.state == "paused"
    with pytest.raises(MovedOn, match="paused"):
        session.answer(True)
    loaded = Session(store, session.record.id, author="mh")
    loaded.resume("set-up checked")
    again = loaded.presentation()
    assert (again.frequency_hz, again.level_db_hl) == (asked.frequency_hz, asked.level_db_hl)
    assert again.number == asked.number + 1
    assert store.trials(session.record.id)[-1].void_reason == "tab hidden"


def test_presses_in_silence_make_a_listener_unreliable(store: Store, person: Person) -> None:
    session = a_screen(store, person)
    for _ in range(6):
        session.press(after_onset_ms=-500.0)
    while not session.done and session.tones < 25:
        shown = session.presentation()
        session.answer(shown.level_db_hl is not None and shown.level_db_hl >= 10)
        session.press(after_onset_ms=4000.0)
    loaded = Session(store, session.record.id, author="mh")
    assert loaded.presses == session.presses == len(store.presses(session.record.id))
    assert isinstance(loaded.procedure, es.Screen)
    assert loaded.procedure.reliability == "poor"
    assert loaded.procedure.decision != "unchanged"
    assert "when nothing was played" in loaded.view().to_result()["words"]


def test_a_full_exam_goes_on_from_the_screens_tones(store: Store, person: Person) -> None:
    session = a_screen(store, person)
    while not session.done:
        shown = session.presentation()
        session.answer(shown.level_db_hl is not None and shown.level_db_hl >= 10)
    session.finish()
    plan = plan_continuation(store, session.record)
    visit = store.visit(session.record.visit_id)
    record = open_exam(store, visit, plan, author="mh")
    exam = Session(store, record.id, author="mh")
    assert exam.tones == session.tones > 0
    assert exam.trials == ()
    assert exam.presentation().kind in ("tone", "catch")
    assert exam.presentation().number == 1
    while not exam.done:
        shown = exam.presentation()
        exam.answer(shown.level_db_hl is not None and shown.level_db_hl >= 10)
    exam.finish()
    assert reference_for(store, person.id, "right", record.id).id == record.id
    with pytest.raises(ValueError, match="already a full exam"):
        plan_continuation(store, record)


def test_gaps_are_drawn_within_the_timing_and_again_the_same(store: Store, person: Person) -> None:
    session = a_screen(store, person)
    gaps = []
    for _ in range(5):
        gaps.append(session.gap_ms)
        assert Session(store, session.record.id, author="mh").gap_ms == gaps[-1]
        session.answer(True)
    timing = Timing()
    assert all(timing.gap_min_ms <= gap <= timing.gap_max_ms for gap in gaps)
    assert len(set(gaps)) > 3


def test_an_exam_of_somebody_who_hears_silence_is_no_reference_unless_chosen(
    store: Store, person: Person
) -> None:
    visit = todays_visit(store, person.id, author="mh", zone="UTC")
    plan = plan_exam("right", seed=1, max_tones=10)
    record = open_exam(store, visit, plan, author="mh")
    session = Session(store, record.id, author="mh")
    while not session.done:
        session.answer(True)  # to silence, too
    result = session.finish()
    assert result.shown["reliability"] == "poor"
    assert 0.0 < result.shown["attention"] <= 1.0
    assert result.shown["p_not_listening"] > 0.5
    assert "Reliability poor" in result.shown["words"]
    with pytest.raises(ValueError, match="not reliable"):
        plan_screen(store, person.id, "right")
    chosen = plan_screen(store, person.id, "right", reference=record.id)
    assert chosen.references == {"right": record.id}


def test_unchanged_waits_for_a_silent_trial(store: Store, person: Person) -> None:
    session = a_screen(store, person)
    while not session.procedure.done:
        shown = session.presentation()
        session.answer(shown.level_db_hl is not None and shown.level_db_hl >= 10)
    assert isinstance(session.procedure, es.Screen)
    assert session.procedure.decision == "unchanged"
    if not session.catch_responses:
        with pytest.raises(ValueError, match="silent trial"):
            session.finish()
        assert session.presentation().kind == "catch"
        session.answer(False)
    assert session.finish().shown["verdict"]["decision"] == "unchanged"


def test_an_exam_is_closed_once(store: Store, person: Person) -> None:
    """Two programs that end it at the same moment leave one result."""
    session = a_screen(store, person)
    run = 0
    while not session.done and run < 60:
        shown = session.presentation()
        session.answer(shown.level_db_hl is not None and shown.level_db_hl >= 10)
        run += 1
    other = Session(store, session.record.id, author="other")
    other.finish()
    with pytest.raises(ValueError, match="is done"):
        session.finish()
    assert len(store.results(session.record.id)) == 1
    with pytest.raises(ValueError, match="already"):
        store.add_result(
            session.record.id,
            author="mh",
            shown={},
            settings={},
            engine_version="1",
            closes_as="done",
        )
