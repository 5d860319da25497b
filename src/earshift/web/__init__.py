"""The clinic in the browser: a JSON API over the library's own calls, and the pages that use it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from earshift import __version__
from earshift.store import Store
from earshift.store.accounts import Accounts
from earshift.web import listen, pages, signin
from earshift.web.live import Sessions
from earshift.web.routes import (
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
from earshift.web.security import Guard, add_error_handlers
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
        openapi_url="/api/openapi.json",
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.state.settings, app.state.store = settings, store
    app.state.accounts = Accounts(store)
    app.state.sessions = Sessions(store)
    parts = (
        *(signin, people, imports, day, worklist, review, programme, devices),
        *(tests, exams, visits, simulated, listen),
    )
    for part in parts:
        app.include_router(part.router)
    add_error_handlers(app)
    pages.install(app)
    app.add_middleware(Guard, settings=settings)
    return app


def worker() -> FastAPI:
    """The app of one of several worker processes, by the settings that `earshift serve` left."""
    return create_app(Settings.from_environment())
