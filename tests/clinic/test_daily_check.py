"""The guided daily check: a fold over answers, against what is usual for somebody known."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path

import pytest

from earshift.clinic import daily_check as dc
from earshift.clinic.audiograms import store_typed_audiogram
from earshift.clinic.devices import device_today, record_calibration
from earshift.engine.refusal import Conflict, Refusal
from earshift.records import Device
from earshift.store import Store
from support.databases import prepare

DAY = date(2026, 3, 2)
NEXT = DAY + timedelta(days=1)
EARS = {
    "right": {500.0: 10.0, 1000.0: 5.0, 2000.0: 15.0, 3000.0: 20.0, 4000.0: 35.0, 6000.0: 30.0},
    "left": {500.0: 0.0, 1000.0: 0.0, 2000.0: 5.0, 3000.0: 10.0, 4000.0: 20.0, 6000.0: 25.0},
}
Hears = Callable[[str, float, float], bool]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    db = str(tmp_path / "clinic.db")
    prepare(db)
    with Store.open(db) as opened:
        yield opened


@pytest.fixture
def booth(store: Store) -> Device:
    device = store.add_device(author="t", name="Booth 1", transducer="supra-aural")
    record_calibration(
        store, device, author="t", today=DAY, done_on=DAY - timedelta(days=9),
        due_on=DAY + timedelta(days=300), laboratory="Lab", coupler="IEC 60318-3",
    )  # fmt: skip
    return device


def somebody(worse_db: float = 0.0, at_hz: float | None = None) -> Hears:
    def hears(ear: str, hz: float, level: float) -> bool:
        return level >= EARS[ear][hz] + (worse_db if at_hz in (None, hz) else 0.0)

    return hears


def left_always(answer: bool) -> Hears:
    return lambda ear, hz, level: answer if ear == "left" else somebody()(ear, hz, level)


def walk(check: dc.GuidedCheck, hears: Hears) -> list[bool]:
    heard: list[bool] = []
    while (now := check.after(heard)).level is not None:
        assert now.point is not None
        heard.append(hears(now.point.ear, now.point.frequency_hz, now.level))
    return heard


def make_known(store: Store, device: Device, day: date = DAY) -> None:
    check = dc.guided_check(store, device, day, "mh")
    assert check.usual is None
    dc.record_guided(store, check, walk(check, somebody()), author="t")


def test_the_first_walk_finds_what_is_usual_and_is_no_check(store: Store, booth: Device) -> None:
    make_known(store, booth)
    known = dc.usual_of(store, booth, "mh")
    assert known is not None
    assert known.levels == EARS
    assert device_today(store, booth, DAY).daily_check == "missing"
    assert device_today(store, booth, DAY).checked_on is None
    assert dc.past_checks(store, booth) == []


@pytest.mark.parametrize(
    ("worse_db", "found", "state"),
    [(0, 0.0, "done"), (5, 5.0, "done"), (-5, -5.0, "done"), (10, 10.0, "failed")],
)
def test_a_check_compares_with_the_usual_thresholds(
    store: Store, booth: Device, worse_db: float, found: float, state: str
) -> None:
    make_known(store, booth)
    check = dc.guided_check(store, booth, NEXT, "mh")
    assert check.usual is not None
    assert len(check.points) == 12
    dc.record_guided(store, check, walk(check, somebody(worse_db)), author="t")
    assert device_today(store, booth, NEXT).daily_check == state
    (past,) = dc.past_checks(store, booth)
    assert past.worst_db == found
    assert past.failed == (state == "failed")
    assert past.on == NEXT
    assert all(set(one.values()) == {found} for one in past.deviations_db.values())


def test_one_frequency_of_one_ear_is_enough_to_fail(store: Store, booth: Device) -> None:
    make_known(store, booth)
    check = dc.guided_check(store, booth, NEXT, "mh")
    heard = walk(
        check, lambda ear, hz, lv: somebody(15 if ear == "left" else 0, 4000.0)(ear, hz, lv)
    )
    dc.record_guided(store, check, heard, author="t")
    now = device_today(store, booth, NEXT)
    assert now.daily_check == "failed"
    assert now.blocked
    assert now.needs_attention


def test_a_dead_earphone_and_one_who_always_presses_fail(store: Store, booth: Device) -> None:
    make_known(store, booth)
    for day, answer, sign in ((NEXT, False, 1), (NEXT + timedelta(days=1), True, -1)):
        check = dc.guided_check(store, booth, day, "mh")
        heard = walk(check, left_always(answer))
        dc.record_guided(store, check, heard, author="t")
        past = dc.past_checks(store, booth)[-1]
        assert past.failed
        assert past.worst_db * sign >= 10
        assert set(past.deviations_db["right"].values()) == {0.0}


def test_every_level_lies_in_what_may_be_played_and_rises_by_ten_at_most(
    store: Store, booth: Device
) -> None:
    check = dc.guided_check(store, booth, DAY, "mh")
    heard: list[bool] = []
    levels: list[tuple[str, float, float]] = []
    while (now := check.after(heard)).level is not None:
        assert now.point is not None
        levels.append((now.point.ear, now.point.frequency_hz, now.level))
        heard.append(False)
    assert all(-10 <= level <= 90 for _, _, level in levels)
    for (ear, hz, before), (ear_2, hz_2, after) in itertools.pairwise(levels):
        assert (ear, hz) != (ear_2, hz_2) or after - before <= 10


def test_answers_can_be_told_in_parts_and_too_many_are_refused(store: Store, booth: Device) -> None:
    check = dc.guided_check(store, booth, DAY, "mh")
    heard = walk(check, somebody())
    with pytest.raises(Refusal) as refused:
        dc.record_guided(store, check, heard[:-1], author="t")
    assert refused.value.code == "unfinished-check"
    with pytest.raises(Refusal, match="more answers"):
        check.after([*heard, True])
    assert store.calibrations(booth.id)[1:] == []


def test_answers_of_another_day_listener_or_calibration_are_not_taken(
    store: Store, booth: Device
) -> None:
    make_known(store, booth)
    check = dc.guided_check(store, booth, DAY, "mh")
    check.require(check.conditions)
    others = [
        dc.guided_check(store, booth, NEXT, "mh"),
        dc.guided_check(store, booth, DAY, "somebody else"),
        dc.guided_check(store, booth, DAY, "mh", anew=True),
    ]
    for other in others:
        with pytest.raises(Conflict) as refused:
            other.require(check.conditions)
        assert refused.value.code == "other-conditions"


def test_a_failed_device_does_not_say_what_is_usual(store: Store, booth: Device) -> None:
    make_known(store, booth)
    check = dc.guided_check(store, booth, DAY, "mh")
    dc.record_guided(store, check, walk(check, somebody(20)), author="t")
    again = dc.guided_check(store, booth, DAY, "mh", anew=True)
    with pytest.raises(Conflict) as refused:
        dc.record_guided(store, again, walk(again, somebody(20)), author="t")
    assert refused.value.code == "device-blocked"


def test_a_full_audiogram_says_what_is_usual_until_it_is_erased(
    store: Store, booth: Device
) -> None:
    person = store.add_person(author="t", code="mh", name="M. H.")
    with pytest.raises(Refusal) as refused:
        dc.know_by_audiogram(store, booth, "mh", person, author="t", today=DAY)
    assert refused.value.code == "no-audiogram"
    for ear, levels in EARS.items():
        _type_in(store, person.id, ear, {hz: level - 2.0 for hz, level in levels.items()})
    known = dc.know_by_audiogram(store, booth, "mh", person, author="t", today=DAY)
    assert known.levels == EARS  # at the steps where an ascending search finds them
    check = dc.guided_check(store, booth, DAY, "mh")
    dc.record_guided(store, check, walk(check, somebody()), author="t")
    assert device_today(store, booth, DAY).daily_check == "done"
    assert "20" not in str(known.record.table.get("usual_db", ""))
    store.erase_person(person.id, author="t", reason="other")
    assert dc.guided_check(store, booth, NEXT, "mh").usual is None


def test_contradicting_answers_are_no_check(store: Store, booth: Device) -> None:
    make_known(store, booth)
    check = dc.guided_check(store, booth, DAY, "mh")
    heard: list[bool] = []
    told: dict[float, list[bool]] = {}
    while (now := check.after(heard)).level is not None:
        assert now.point is not None
        if (now.point.ear, now.point.frequency_hz) != ("right", 1000.0):
            heard.append(somebody()(now.point.ear, now.point.frequency_hz, now.level))
            continue
        # Heard wherever that does not settle it: no level is heard twice and half of the time.
        before = told.setdefault(now.level, [])
        answer = sum(before) + 1 < 2 or 2 * (sum(before) + 1) < len(before) + 1
        before.append(answer)
        heard.append(answer)
    assert [one.frequency_hz for one in check.after(heard).unclear] == [1000.0]
    with pytest.raises(Refusal) as refused:
        dc.record_guided(store, check, heard, author="t")
    assert refused.value.code == "unclear-answers"


def test_what_is_usual_does_not_make_a_device_checked(store: Store) -> None:
    device = store.add_device(author="t", name="Never calibrated")
    make_known(store, device)
    now = device_today(store, device, DAY)
    assert now.calibration_state == "none"
    assert now.needs_attention
    assert now.daily_check == "needs calibration"


def _type_in(store: Store, person: int, ear: str, levels: Mapping[float, float]) -> None:
    store_typed_audiogram(
        store, person, ear, thresholds_db_hl=levels, no_response_db_hl={}, measured_on=DAY,
        source="works doctor", author="t", zone="Europe/Berlin", today=DAY,
    )  # fmt: skip
