"""What professionals say and sign: kept word for word, erased with the person, never changed."""

import json
import threading
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from test_store import a_full_person
from test_store_upkeep import damaged, without_guard

from earshift.acts import Signature
from earshift.engine.refusal import Refusal
from earshift.records import ExamRecord, Person, VisitBundle
from earshift.store import NoSuchRow, Store, StoreConflict, StoreError, StoreTrouble
from earshift.store.signatures import canonical, plain_of, record_from, sha256_of
from support.databases import raw

DAY = date(2026, 3, 2)


def signed(store: Store, visit_id: int, **changes: Any) -> Signature:
    bundle = changes.pop("bundle", None) or store.visit_bundle(visit_id)
    given = {"author": "kp", "name": "Dr K. Park", "meaning": "reviewed", **changes}
    return store.sign_visit(bundle, **given)


@pytest.fixture
def somebody(store: Store) -> tuple[Person, ExamRecord]:
    return a_full_person(store)


def test_what_was_signed_comes_back_word_for_word(
    store: Store, somebody: tuple[Person, ExamRecord]
) -> None:
    _, screen = somebody
    bundle, seal = store.visit_bundle(screen.visit_id), store.seal()
    signature = signed(store, screen.visit_id)
    assert store.signatures(screen.visit_id) == [signature]
    content = store.signed_content(signature)
    assert content is not None
    assert sha256_of(canonical(content)) == signature.sha256
    assert record_from(VisitBundle, content["visit"]) == replace(bundle, seal=str(seal))
    assert content["signature"] == {
        "author": "kp",
        "name": "Dr K. Park",
        "meaning": "reviewed",
        "reason": "",
        "at": signature.at.isoformat(),
        "amends_sha256": None,
    }


def test_a_record_of_an_older_version_comes_back_with_what_it_did_not_know() -> None:
    data = plain_of(Person(7, code="A1", birth_date=date(1980, 2, 29)))
    del data["department"]
    assert record_from(Person, {**data, "new": 1}) == Person(7, "A1", birth_date=date(1980, 2, 29))


def test_an_amendment_names_the_signature_before(
    store: Store, somebody: tuple[Person, ExamRecord]
) -> None:
    visit = somebody[1].visit_id
    first = signed(store, visit)
    with pytest.raises(StoreError, match="the reason of an amendment must not be empty"):
        signed(store, visit, amends=first.id)
    second = signed(store, visit, amends=first.id, reason="wrong baseline", meaning="approved")
    assert second.amends_id == first.id
    content = store.signed_content(second)
    assert content is not None
    assert content["signature"]["amends_sha256"] == first.sha256
    assert store.signatures(visit) == [first, second]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "  "}, "the printed name must not be empty"),
        ({"meaning": "looked at"}, "the meaning of a signature must be one of reviewed"),
        ({"author": ""}, "author must not be empty"),
        ({"amends": 99, "reason": "x"}, "is not signed yet"),
    ],
)
def test_a_wrong_signature_is_refused_and_nothing_is_written(
    store: Store, somebody: tuple[Person, ExamRecord], changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(StoreError, match=said):
        signed(store, somebody[1].visit_id, **changes)
    assert store.signatures(somebody[1].visit_id) == []


def test_who_has_not_seen_what_stands_there_now_signs_nothing(
    store: Store, somebody: tuple[Person, ExamRecord]
) -> None:
    person, screen = somebody
    seen = store.visit_bundle(screen.visit_id)
    store.add_note(person.id, author="mh", text="earwax", visit_id=screen.visit_id)
    with pytest.raises(StoreConflict, match="has changed since it was read") as refused:
        signed(store, screen.visit_id, bundle=seen)
    assert refused.value.code == "changed-meanwhile"
    with pytest.raises(NoSuchRow, match="there is no visit 999"):
        signed(store, 999, bundle=replace(seen, visit=replace(seen.visit, id=999)))


def test_of_two_reviewers_at_once_one_signs(
    store: Store, database: str, somebody: tuple[Person, ExamRecord]
) -> None:
    visit = somebody[1].visit_id
    seen = store.visit_bundle(visit)
    together = threading.Barrier(2)
    said: list[str] = []

    def sign(name: str) -> None:
        with Store.open(database) as own:
            together.wait()
            try:
                signed(own, visit, bundle=seen, name=name)
                said.append("signed")
            except StoreConflict as refused:
                said.append(refused.code)

    both = [threading.Thread(target=sign, args=(name,)) for name in ("Dr A", "Dr B")]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert sorted(said) == ["signed", "signed-meanwhile"]
    assert len(store.signatures(visit)) == 1


@pytest.mark.parametrize("delete_trials", [False, True])
def test_erasing_takes_what_was_signed_and_leaves_signature_and_hash(
    store: Store, somebody: tuple[Person, ExamRecord], delete_trials: bool
) -> None:
    person, screen = somebody
    signature = signed(store, screen.visit_id)
    store.add_follow_up(screen.visit_id, "letter", author="mh", done_on=DAY, done_by="mh")
    store.say_work_related(screen.id, True, author="kp", name="Dr K", reason="seen")
    store.erase_person(
        person.id, author="mh", reason="asked by the person", delete_trials=delete_trials
    )
    assert store.signatures(screen.visit_id) == [signature] == store.signatures_of(person.id)
    assert store.signed_content(signature) is None
    assert store.follow_ups(person.id) == []
    assert store.check() == []
    refusal = NoSuchRow if delete_trials else StoreConflict
    with pytest.raises(refusal):
        store.add_follow_up(screen.visit_id, "letter", author="mh", done_on=DAY, done_by="mh")


def test_what_names_another_record_goes_with_either(
    store: Store, somebody: tuple[Person, ExamRecord]
) -> None:
    person, screen = somebody
    other = store.add_person(author="mh", name="Ada Byron")
    store.merge_people(person.id, other.id, author="mh", reason="hired twice")
    signature = signed(store, screen.visit_id)
    content = store.signed_content(signature)
    assert content is not None
    assert content["visit"]["person"]["name"] == "Ada Byron"
    store.separate_people(person.id, author="mh", reason="two people after all")
    store.erase_person(other.id, author="mh", reason="asked by the person")
    assert store.signed_content(signature) is None
    assert store.check() == []


def test_a_changed_text_is_found(
    store: Store, database: str, somebody: tuple[Person, ExamRecord]
) -> None:
    signature = signed(store, somebody[1].visit_id)
    change = "UPDATE signed SET content = replace(content, 'reviewed', 'approved')"
    said = damaged(database, *without_guard(database, "signed", change))
    assert said == [
        "signed:1 is not as it was written",
        "signatures:1 does not match what is stored as signed",
    ]
    with pytest.raises(StoreTrouble, match="does not match what is stored as signed"):
        store.signed_content(signature)
    said = damaged(database, *without_guard(database, "signed", "DELETE FROM signed"))
    assert "signatures:1 has lost what was signed" in said


def test_the_text_in_the_database_is_the_canonical_one(
    store: Store, database: str, somebody: tuple[Person, ExamRecord]
) -> None:
    signature = signed(store, somebody[1].visit_id, name="Dr Zoë")
    with raw(database) as connection:
        (text,) = connection.execute("SELECT content FROM signed").fetchone()
    assert text == canonical(json.loads(text))
    assert "Dr Zoë" in text
    assert sha256_of(text) == signature.sha256


def test_follow_ups_and_words_on_work_keep_their_history(
    store: Store, somebody: tuple[Person, ExamRecord]
) -> None:
    person, screen = somebody
    done = store.add_follow_up(
        screen.visit_id, "protector", author="mh", done_on=DAY, done_by="Ms W", details="size M"
    )
    taken_back = store.add_follow_up(
        screen.visit_id, "protector", author="mh", done_on=DAY, done_by="Ms W", done=False
    )
    assert store.follow_ups(person.id) == [done, taken_back]
    for related in (True, False):
        store.say_work_related(screen.id, related, author="kp", name="Dr K", reason="history")
    assert [one.related for one in store.work_relations([screen.id]).values()] == [False]
    store.say_work_related(screen.id, None, author="kp", name="Dr K", reason="not mine")
    assert store.work_relations([screen.id]) == {}
    with pytest.raises(StoreError, match="a follow-up must be one of letter"):
        store.add_follow_up(screen.visit_id, "tea", author="mh", done_on=DAY, done_by="x")
    with pytest.raises(StoreError, match="related must be True, False or None"):
        store.say_work_related(screen.id, "yes", author="kp", name="x", reason="x")  # type: ignore[arg-type]
    with pytest.raises(NoSuchRow):
        store.say_work_related(99, True, author="kp", name="x", reason="x")


def test_a_visit_has_the_room_noise_of_its_device_or_of_the_site(store: Store) -> None:
    person, screen = a_full_person(store)
    day = store.visit(screen.visit_id).started_at.date()
    device = store.visit(screen.visit_id).device_id
    assert store.visit_bundle(screen.visit_id).room_noise is None
    for where, ago, level in ((None, 10, 1.0), (device, 20, 2.0), (device, 30, 3.0), (None, -9, 4)):
        on = day - timedelta(days=ago)
        store.add_room_noise(author="mh", measured_on=on, device_id=where, levels={"500": level})
    noise = store.visit_bundle(screen.visit_id).room_noise
    assert noise is not None
    assert noise.levels == {"500": 2.0}
    elsewhere = store.open_visit(person.id, author="mh", zone="UTC", mode="self")
    noise = store.visit_bundle(elsewhere.id).room_noise
    assert noise is not None
    assert noise.levels == {"500": 1.0}
    for levels, said in (
        ({}, "at least one"),
        ({"500": float("nan")}, "500"),
        ({"x": 3.0}, "octave band"),
    ):
        with pytest.raises(Refusal, match=said):
            store.add_room_noise(author="mh", measured_on=day, levels=levels)
    assert len(store.room_noise()) == 4
