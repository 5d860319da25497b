"""A session that another program has overtaken: it goes on from there, as a new one would."""

import pytest

import earshift as es
from earshift.clinic.plan import open_exam, plan_screen
from earshift.clinic.session import Session
from earshift.engine.screen import Screen
from earshift.store import Store


@pytest.fixture
def exam_id(store: Store) -> int:
    person = store.add_person(author="mh", code="A1")
    levels = dict.fromkeys((500, 1000, 2000, 3000, 4000, 6000, 8000), 10.0)
    elsewhere = store.open_visit(person.id, author="mh", zone="UTC", mode="imported")
    store.open_exam(
        elsewhere.id,
        author="mh",
        ear="right",
        kind="audiogram",
        design=es.Audiogram(levels).to_dict(),
        engine_version=es.__version__,
    )
    visit = store.open_visit(person.id, author="mh", zone="UTC", mode="supervised")
    plan = plan_screen(store, person.id, "right", seed=1)
    return open_exam(store, visit, plan, author="mh").id


def stands(session: Session) -> tuple[object, ...]:
    assert isinstance(session.procedure, Screen)
    return (
        session.presentation(),
        session.trial_id,
        session.done,
        session.procedure.p_changed,
        session.view(),
    )


def test_a_session_that_was_overtaken_is_as_one_read_from_the_store(
    store: Store, exam_id: int
) -> None:
    one, other = (Session(store, exam_id, author="mh") for _ in range(2))
    one.presentation()
    procedure = one.procedure
    for heard in (True, False, False):
        other.answer(heard)
    other.press(120.0)
    one.refresh()
    assert one.procedure is procedure  # told of what is new, and not folded again
    assert stands(one) == stands(Session(store, exam_id, author="mh"))

    other.undo()  # what was known is no longer so
    one.refresh()
    assert stands(one) == stands(Session(store, exam_id, author="mh"))

    other.break_off("tab hidden")
    other.resume("checked")
    other.answer(True)
    one.refresh()
    assert stands(one) == stands(Session(store, exam_id, author="mh")) == stands(other)
