"""The clinic in the browser: a JSON API over the library's own calls, and the pages that use it."""

import ctypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import Depends, FastAPI

from earshift import __version__
from earshift.store import Store
from earshift.store.accounts import Accounts
from earshift.web import account, audit, listen, pages, signin
from earshift.web.live import Sessions
from earshift.web.routes import (
    checks,
    day,
    devices,
    exams,
    imports,
    people,
    programme,
    review,
    simulated,
    tests,
    visits,
    worklist,
)
from earshift.web.security import Guard, add_error_handlers, nothing_twice
from earshift.web.settings import Settings

__all__ = ["Settings", "create_app", "worker"]


def create_app(settings: Settings) -> FastAPI:
    """The app over one store, which it closes when it stops."""
    store = Store.open(settings.db)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.sessions.warm_up()
        yield
        app.state.sessions.close()
        store.close()

    app = FastAPI(
        title="earshift",
        version=__version__,
        description="Has this ear's hearing changed since its reference exam?",
        docs_url=None,  # the framework's own pages load scripts from elsewhere
        redoc_url=None,
        openapi_url=pages.API_SCHEMA,
        redirect_slashes=False,
        lifespan=lifespan,
        dependencies=[Depends(nothing_twice)],
    )
    app.state.settings, app.state.store = settings, store
    app.state.accounts = Accounts(store)
    app.state.sessions = Sessions(store)
    parts = (
        *(signin, account, audit, people, imports, day, worklist, review, programme),
        *(devices, checks, tests, exams, visits, simulated, listen),
    )
    for part in parts:
        app.include_router(part.router)
    add_error_handlers(app)
    pages.install(app)
    app.add_middleware(Guard, settings=settings)
    return app


def worker() -> FastAPI:
    """The app of one of several worker processes, by the settings that `earshift serve` left."""
    _share_memory()
    return create_app(Settings.from_environment())


def _share_memory() -> None:
    """Let threads share what others have freed: the persons of many exams go through many threads.

    The C library would give each thread a pool of its own, of which nothing comes back. Where it is
    not glibc, there is nothing to set.
    """
    arenas = -8  # M_ARENA_MAX of malloc.h
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(arenas, 2)
