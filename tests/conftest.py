"""Shared by all tests: Hypothesis draws the same examples every time, and two exams to refer to."""

import pytest
from hypothesis import settings

import earshift as es
from support.browser import browser, page, playwright
from support.databases import database, postgresql_server, store
from support.helpers import MILD, run_exam

__all__ = [
    "browser",
    "database",
    "mild_exam",
    "page",
    "playwright",
    "postgresql_server",
    "short_exam",
    "store",
]


# What `make test-fast` leaves out: tests that need another program, or wait in real time.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that use a browser or PostgreSQL are marked by the fixtures they ask for."""
    for item in items:
        asked = set(getattr(item, "fixturenames", ()))
        if asked & {"page", "browser", "playwright"}:
            item.add_marker("browser")
        call = getattr(item, "callspec", None)
        kinds = () if call is None else call.params.values()
        if "postgresql_server" in asked or "postgresql" in kinds:
            item.add_marker("server")


settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("fixed")


@pytest.fixture(scope="session")
def mild_exam() -> es.Exam:
    """A finished first exam of a mildly impaired ear. Read only: tests share it."""
    return run_exam(es.Exam(seed=1), MILD, tones=50)


@pytest.fixture(scope="session")
def short_exam() -> es.Exam:
    """Twenty tones of the same ear on the audiometer's frequencies. Read only: tests share it."""
    return run_exam(es.Exam(seed=1, domain="audiometer", halton_tones=10), MILD, tones=20)
