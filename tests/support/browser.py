"""A real browser for tests, and a real server for it to visit."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, Page, Playwright, expect, sync_playwright

CHROMIUM = "/usr/bin/chromium"
LEFT_OUT = f"browser group left out: no {CHROMIUM} (Debian: chromium package)"
# Without these the browser looks for its maker's servers and for a graphics card.
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SOUND_WITHOUT_A_CLICK = "--autoplay-policy=no-user-gesture-required"
# A page of a busy machine is late, not wrong.
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)


def launch(playwright: Playwright, *flags: str) -> Browser:
    return playwright.chromium.launch(
        executable_path=CHROMIUM, args=[*QUIET, *flags], timeout=2 * PATIENCE_MS
    )


# Not for the whole session: as long as it is open no test in this thread could run an event loop.
@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    if not Path(CHROMIUM).exists():
        if os.environ.get("CI") == "true":
            pytest.fail(LEFT_OUT)
        pytest.skip(LEFT_OUT)
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """Chromium as a listener has it: sound needs a click first."""
    opened = launch(playwright)
    yield opened
    opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own; a script that fails on it fails the test."""
    context = browser.new_context()
    context.set_default_timeout(2 * PATIENCE_MS)
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    yield opened
    context.close()
    assert problems == []


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The address of the app on a free port of this machine, for as long as the block lasts."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
