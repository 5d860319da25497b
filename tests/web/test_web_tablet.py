"""One test on a tablet with all that comes between: a pause, another link, a server that restarts.

The server is a process of its own, and the examiner's page and the tablet's are real ones.
"""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browser import PATIENCE_MS
from support.clinic_day import Clinic
from support.house import QUICK, House, become_device
from support.scripted_listener import ScriptedListener
from support.web import PASSWORD, Served, with_users


class Restarted:
    """A server that can be stopped and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self._folder = folder
        self._options = ("--db", str(folder / "clinic.db"), "--port", str(port))
        with_users(str(folder / "clinic.db"))
        self.start()
        self.address = self._served.address

    def start(self) -> None:
        self._served = Served(self._folder, *self._options)

    def stop(self) -> None:
        self._served.stop(signal.SIGTERM)
        self._served.__exit__()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Restarted]:
    server = Restarted(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def house(browser: Browser, server: Restarted) -> Iterator[House]:
    page = browser.new_page()
    page.goto(f"{server.address}/static/setup.js")
    fingerprint = become_device(page)
    page.close()
    with Clinic(server.address) as clinic:
        yield House(server.address, clinic, fingerprint)


@pytest.fixture
def desk(browser: Browser, house: House) -> Iterator[Page]:
    """The examiner's page; nothing on it fails."""
    context = browser.new_context()
    context.set_default_timeout(2 * PATIENCE_MS)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{house.address}/login")
    page.get_by_label("User name").fill("bob")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{house.address}/")
    yield page
    context.close()
    assert problems == []


def answers(tablet: ScriptedListener) -> int:
    return int(float(tablet.page.locator("#progress").get_attribute("value") or 0))


def test_a_test_on_a_tablet_with_all_that_comes_between(
    page: Page, desk: Page, house: House, server: Restarted
) -> None:
    # So slow that the first ear is not over before all of this has happened.
    slow = {**QUICK, "gap_min_ms": 2000, "gap_max_ms": 2000}
    test = house.invite("between", ears=("right", "left"), timing=slow)
    tablet = house.seat(page, test)
    tablet.set_up_until("instruction")
    tablet.hear(house.hearing(0))
    tablet.do("next")
    tablet.at("test")
    tablet.until(lambda: answers(tablet) > 0)
    desk.goto(f"{house.address}/exams/{test['exams'][0]['id']}")

    # A new link would end this one: asked first, and left alone.
    asked: list[str] = []
    desk.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    desk.get_by_role("button", name="Create a new link").click()
    assert ["in the middle of the test" in text for text in asked] == [True]
    assert house.clinic.get(f"/api/exams/{test['exams'][0]['id']}")["link"] is not None

    # The examiner's pause says so on the tablet, and only the examiner ends it.
    desk.get_by_role("button", name="Pause", exact=True).click()
    tablet.at("held")
    expect(page.locator("#held")).to_contain_text("Your examiner has paused it.")
    expect(page.locator("#held")).to_contain_text("Only your examiner can continue it.")
    expect(page.locator("button:visible")).to_have_count(0)
    page.keyboard.press("Space")
    page.reload()
    tablet.at("held")
    expect(desk.locator("#listener-state")).to_contain_text("Paused by you")
    desk.get_by_role("button", name="Continue", exact=True).click()
    tablet.at("sides")
    tablet.hear(house.hearing(0))
    tablet.check_again()

    # The server goes away in the middle of the test, and comes back.
    before = answers(tablet)
    server.stop()
    expect(page.locator("#connection")).to_contain_text("keep this page open")
    expect(desk.locator("#problem")).to_contain_text("The server is not responding")
    page.wait_for_timeout(4000)  # longer than it waits between two tries
    expect(page.locator("#problem")).to_be_hidden()
    server.start()
    expect(page.locator("#connection")).to_have_text("")
    expect(desk.locator("#message")).to_contain_text("The connection is back.")
    tablet.until(lambda: answers(tablet) > before or page.locator("#done").is_visible())

    # After the first ear the pages lead to the second, here and there.
    tablet.until(lambda: page.locator("#done, #over").locator("visible=true").count(), 120)
    tablet.do("retry")
    tablet.at("sides")
    desk.get_by_role("link", name="Continue with the left ear").click()
    tablet.check_again()
    tablet.until(lambda: page.locator("#over").is_visible(), 120)

    # The end shows the result by itself, once it was released.
    expect(page.locator("#over-kept")).to_be_visible()
    desk.get_by_role("button", name="Show the result to the listener").click()
    expect(page.locator("#released")).to_be_visible()
    expect(page.locator("#released")).to_contain_text("left ear")
    footer = page.locator("footer").bounding_box()
    assert footer is not None
    assert footer["height"] == 0  # it would lie over the result


def test_a_second_link_on_the_form_asks_too(desk: Page, house: House) -> None:
    person = house.clinic.person("Form", "F-1", references=("right", "left"))
    desk.goto(f"{house.address}/people/{person}/test")
    desk.get_by_label("Device", exact=True).select_option(house.device)
    desk.get_by_label("The listener, on").check()
    desk.get_by_role("button", name="Start the test").click()
    address = desk.get_by_label("The listener's link")
    first = address.input_value()
    asked: list[str] = []
    desk.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    desk.get_by_role("button", name="Create a new link").click()
    assert ["in the middle of the test" in text for text in asked] == [True]
    assert address.input_value() == first
