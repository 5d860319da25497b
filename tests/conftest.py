"""Shared by all tests: Hypothesis draws the same examples every time, and two exams to refer to."""

import os

# Several workers share the cores: a second thread for matrices this small would only be in the way.
# Set before numpy loads; programs that tests start inherit it.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ.get("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Iterator

import pytest
from argon2 import PasswordHasher
from hypothesis import settings

import earshift as es
from earshift.store.accounts import users
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


# What `make test-fast` leaves out: tests that need another program or wait in real time, known by
# the fixtures they ask for or by their file.
MARKS = {
    "playwright": "browser",
    "postgresql_server": "server",
    "behind_nginx": "server",
    "cluster": "cluster",
    "nursery": "kills",
}
FILES = {
    "test_serve_cli.py": "server",
    "test_serve_clock.py": "server",
    "test_serve_disk.py": "server",
    "test_serve_limits.py": "server",
    "test_web_schema.py": "server",
    "test_study_run.py": "cluster",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in MARKS:
                item.add_marker(MARKS[fixture])
        call = getattr(item, "callspec", None)
        if call is not None and "postgresql" in map(str, call.params.values()):
            item.add_marker("server")
        if item.path.name in FILES:
            item.add_marker(FILES[item.path.name])


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the kernels once, before the workers start: each would compile them for itself."""
    several = bool(getattr(session.config.option, "numprocesses", None))
    if several and not hasattr(session.config, "workerinput"):
        for protocol in ("paper", "best"):
            screen = es.Screen(es.population_norm(), protocol=protocol, domain="audiometer")
            screen.tell(screen.ask(), True)
            screen.ask()
        exam = es.Exam(ears="both", domain="audiometer", halton_tones=0)
        exam.ask()


settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("fixed")


@pytest.fixture(scope="session", autouse=True)
def full_argon2() -> Iterator[PasswordHasher]:
    """The hasher of passwords as users have it; all tests hash with the least work instead.

    It is the real argon2 all the same, and almost every test of the web app needs it.
    """
    cheap, full = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1), users._argon2()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(users, "_argon2", lambda: cheap)
        yield full


@pytest.fixture(scope="session")
def mild_exam() -> es.Exam:
    """A finished first exam of a mildly impaired ear. Read only: tests share it."""
    return run_exam(es.Exam(seed=1), MILD, tones=50)


@pytest.fixture(scope="session")
def short_exam() -> es.Exam:
    """Twenty tones of the same ear on the audiometer's frequencies. Read only: tests share it."""
    return run_exam(es.Exam(seed=1, domain="audiometer", halton_tones=10), MILD, tones=20)
