"""The guided daily check in a real browser: by hand and played, reloaded, failed and red."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from support.browser import browser, page, playwright
from support.clinic_day import EXTERNAL
from support.house import QUICK, House, open_house
from support.scripted_listener import ScriptedListener
from support.web import PASSWORD

__all__ = ["browser", "page", "playwright"]

THRESHOLD_DB = 20


@pytest.fixture(scope="module")
def house(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with open_house(browser, tmp_path_factory.mktemp("house")) as opened:
        yield opened


def enter(page: Page, house: House, path: str) -> None:
    page.goto(f"{house.address}/login?next={path}")
    page.fill("#name", "bob")
    page.fill("#password", PASSWORD)
    page.click("[type=submit]")
    page.wait_for_url(f"**{path}")


def calibrated(house: House, name: str) -> str:
    device = house.clinic.post("/api/devices", {**EXTERNAL, "name": name})["id"]
    calibration = {
        "done_on": "2026-01-05", "due_on": "2027-12-31", "laboratory": "Lab",
        "coupler": "IEC 60318-3",
    }  # fmt: skip
    house.clinic.post(f"/api/devices/{device}/calibrations", calibration)
    return str(device)


def level_asked(page: Page) -> float:
    text = page.inner_text("#tone").replace("\u2212", "-")
    return float(text.split(" at ")[1].split(" dB")[0])


def answer_by_hand(page: Page, worse_db: float = 0.0, most: int = 1000) -> None:
    """Answer as somebody whose thresholds are all the same."""
    for _ in range(most):
        if page.is_hidden("#test"):
            return
        heard = level_asked(page) >= THRESHOLD_DB + worse_db
        with page.expect_response(lambda told: told.url.endswith("/checks/guided")):
            page.click("#heard" if heard else "#missed")
        expect(page.locator("#answers")).not_to_have_attribute("aria-busy", "true")


def begin(page: Page, name: str = "") -> None:
    page.wait_for_selector("#who:not([hidden])")
    if name:
        page.select_option("#known", "")
        page.fill("#name", name)
    page.click("#begin [type=submit]")
    page.wait_for_selector("#test:not([hidden])")


def test_by_hand_from_a_stranger_to_a_check_that_survives_a_reload(
    page: Page, house: House
) -> None:
    device = calibrated(house, "Booth by hand")
    enter(page, house, f"/devices/{device}/check")
    begin(page, "mh")
    answer_by_hand(page)
    expect(page.locator("#outcome")).to_contain_text("It is now known what is usual for mh")
    assert house.clinic.get(f"/api/devices/{device}")["daily_check"]["state"] == "missing"
    page.click("text=Check now")
    begin(page)
    answer_by_hand(page, most=9)
    shown = page.inner_text("#points")
    page.reload()
    expect(page.locator("#paused-why")).to_contain_text("No answer was lost")
    assert page.inner_text("#points") == shown
    page.click("#resume")
    page.wait_for_selector("#test:not([hidden])")
    asked = page.inner_text("#tone")
    page.click("#missed")
    expect(page.locator("#tone")).not_to_have_text(asked)
    page.click("#undo")
    expect(page.locator("#tone")).to_have_text(asked)
    answer_by_hand(page, worse_db=5)
    expect(page.locator("#outcome")).to_contain_text("Passed")
    assert house.clinic.get(f"/api/devices/{device}")["daily_check"]["state"] == "done"
    page.click("text=To the device")
    expect(page.locator("#history")).to_contain_text("+5")
    expect(page.locator("#history")).to_contain_text("passed")
    page.reload()
    expect(page.locator("#history tbody tr")).to_have_count(1)


def test_a_failed_check_is_red_everywhere(page: Page, house: House) -> None:
    device = calibrated(house, "Booth that fails")
    enter(page, house, f"/devices/{device}/check")
    begin(page, "mh")
    answer_by_hand(page)
    page.click("text=Check now")
    begin(page)
    answer_by_hand(page, worse_db=10)
    expect(page.locator("#outcome .badge.changed")).to_have_text("Failed")
    expect(page.locator("#points .late").first).to_have_text("+10")
    page.click("text=To the device")
    expect(page.locator("#history .late").first).to_be_visible()  # the page and its style are there
    red = page.evaluate(
        "() => { const p = document.createElement('p'); p.style.color = 'var(--bad)';"
        " document.body.append(p); return getComputedStyle(p).color; }"
    )
    expect(page.locator("#history .late").first).to_have_css("color", red)
    expect(page.locator("#blocked .bad")).to_contain_text("daily check failed")
    expect(page.locator("#blocked .bad")).to_have_css("border-left-color", red)
    page.goto(f"{house.address}/devices")
    row = page.locator("tr", has_text="Booth that fails")
    expect(row.locator(".late").first).to_have_css("color", red)
    person = house.clinic.person("Some One", "red", references=("right",))
    page.goto(f"{house.address}/people/{person}/test")
    page.select_option("#device", device)
    expect(page.locator("#device-state .bad")).to_have_css("border-left-color", red)


def quickly(page: Page) -> None:
    """Let the tones of the check be as short as the tests' own."""

    def shorten(route: Route) -> None:
        told = route.fetch()
        if not told.ok:
            route.fulfill(response=told)
            return
        step: dict[str, Any] = told.json()
        step["play"]["timing"] |= QUICK
        if step["play"]["presentation"]:
            step["play"]["presentation"]["gap_ms"] = 10
        route.fulfill(response=told, json=step)

    page.route("**/checks/guided", shorten)


def played(page: Page, house: House, worse_db: float = 0.0) -> ScriptedListener:
    listener = ScriptedListener(page)
    house.settle_in(page)
    quickly(page)
    enter(page, house, f"/devices/{house.device}/check")
    page.wait_for_selector("#who:not([hidden])")
    return listener


def test_a_browser_device_plays_the_check_itself(page: Page, house: House) -> None:
    listener = played(page, house)
    page.select_option("#known", "")
    page.fill("#name", "ears")
    page.click("#begin [type=submit]")
    listener.at("headphones")
    listener.do("next")
    listener.check_ears_and_volume()
    listener.hear(house.hearing())
    page.wait_for_selector("#result:not([hidden])", timeout=240_000)
    expect(page.locator("#outcome")).to_contain_text("usual for ears")
    levels = [row.split() for row in page.inner_text("#points").splitlines() if " Hz" in row]
    assert {row[0]: float(row[-1]) for row in levels}["4000"] == 30
    page.click("text=Check now")
    page.click("#begin [type=submit]")
    listener.at("headphones")
    listener.do("next")
    listener.check_ears_and_volume()
    listener.hear(house.hearing(worse_db=20))
    page.wait_for_selector("#test:not([hidden])")
    page.wait_for_timeout(1500)
    page.reload()  # in the middle of the tones
    expect(page.locator("#paused-why")).to_contain_text("No answer was lost")
    listener.hear(house.hearing(worse_db=20))
    page.click("#resume")
    listener.at("headphones")
    listener.do("next")
    listener.check_ears_and_volume()
    listener.hear(house.hearing(worse_db=20))
    page.wait_for_selector("#result:not([hidden])", timeout=240_000)
    expect(page.locator("#outcome .badge.changed")).to_have_text("Failed")
    state = house.clinic.get(f"/api/devices/{house.device}")
    assert state["daily_check"]["state"] == "failed"
    assert state["in_order"] is False


def test_another_browser_does_not_play_it(page: Page, house: House) -> None:
    enter(page, house, f"/devices/{house.device}/check")
    page.wait_for_selector("#who:not([hidden])")
    page.select_option("#known", "")
    page.fill("#name", "ears")
    page.click("#begin [type=submit]")
    page.wait_for_selector("#another:not([hidden])")


def test_a_check_of_yesterday_or_of_another_calibration_begins_anew(
    page: Page, house: House
) -> None:
    device = calibrated(house, "Booth calibrated meanwhile")
    enter(page, house, f"/devices/{device}/check")
    begin(page, "mh")
    answer_by_hand(page, most=3)
    calibration = {
        "done_on": "2026-01-06", "due_on": "2027-12-31", "laboratory": "Lab",
        "coupler": "IEC 60318-3",
    }  # fmt: skip
    house.clinic.post(f"/api/devices/{device}/calibrations", calibration)
    page.click("#heard")
    expect(page.locator("#problem")).to_contain_text("what is known of the device has changed")
    page.wait_for_selector("#who:not([hidden])")
    page.reload()
    page.wait_for_selector("#who:not([hidden])")


def test_what_a_device_can_play_is_shown_when_it_is_saved(page: Page, house: House) -> None:
    enter(page, house, f"/devices/{house.device}")
    rows = page.locator("#range tbody tr")
    expect(rows).to_have_count(9)  # every frequency of a test
    expect(page.locator("#range")).to_contain_text("dB HL")
    told = house.clinic.get(f"/api/devices/{house.device}/range")
    assert told["unit"] == "dB HL"
    at_1k = next(row for row in told["rows"] if row["frequency_hz"] == 1000)
    retspl = house.retspl["1000"]
    assert at_1k["right"] == pytest.approx([max(-10, 110 - 120 - retspl), min(90, 109 - retspl)])
    page.goto(f"{house.address}/devices/{house.uncalibrated}")
    expect(page.locator("#range")).to_contain_text("relative")
    external = house.clinic.post("/api/devices", {**EXTERNAL, "name": "By hand"})["id"]
    page.goto(f"{house.address}/devices/{external}")
    expect(page.locator("#range")).to_contain_text("its own range holds")
    assert house.clinic.get(f"/api/devices/{external}")["in_order"] is False
