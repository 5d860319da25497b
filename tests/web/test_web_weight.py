"""What a page weighs: all that a browser which has nothing yet transfers to show it."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Request, Response, expect

from earshift.web import Settings, create_app, pages
from support.browser import browser, playwright, served
from support.clinic_day import BROWSER, EXTERNAL, REFERENCE, Clinic, ear
from support.web import PASSWORD, with_users

__all__ = ["browser", "playwright"]
MOST_BYTES = 200_000
PEOPLE = 120  # more than any list shows at once


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """A clinic with a long list, somebody with a long history; and the address of every page."""
    db = str(tmp_path_factory.mktemp("weight") / "clinic.db")
    with_users(db)
    with served(create_app(Settings(db=db))) as address, Clinic(address, "ada") as clinic:
        booth = clinic.post("/api/devices", EXTERNAL)["id"]
        clinic.post("/api/devices", BROWSER)
        year = {"done_on": "2026-01-05", "due_on": "2027-12-31"}
        laboratory = {"laboratory": "Lab", "coupler": "IEC 60318-3"}
        clinic.post(f"/api/devices/{booth}/calibrations", {**year, **laboratory})
        for n in range(100):
            six = dict.fromkeys(REFERENCE, n % 5)
            check = {"listener": f"listener {n % 3}", "deviations_db": {"right": six, "left": six}}
            clinic.post(f"/api/devices/{booth}/checks", check)
        for n in range(PEOPLE):
            clinic.post("/api/people", {"code": f"w{n}", "name": f"Somebody by the name of {n}"})
        person = clinic.person("Followed for years", "old")
        for year_of in range(2006, 2026):
            for side in ("right", "left"):
                old = {"ear": side, "measured_on": f"{year_of}-05-06", "thresholds": REFERENCE}
                clinic.post(f"/api/people/{person}/audiograms", {**old, "source": "works doctor"})
        test = clinic.begin(person, ears=["right", "left"])
        exam = test["exams"][0]["id"]
        clinic.answer(exam, ear(REFERENCE, worse_db=30))
        handles = {"person": person, "begin": person, "review": test["visit"], "exam": exam}
        handles |= {"device": booth, "daily_check": booth}
        every = {**pages.EXAMINER_PAGES, **pages.ADMIN_PAGES, "/login": "login"}
        yield (
            address,
            {name: path.replace("{handle}", handles.get(name, "")) for path, name in every.items()},
        )


PAGES = [*pages.EXAMINER_PAGES.values(), *pages.ADMIN_PAGES.values(), "login", "listen"]


@pytest.mark.parametrize("name", PAGES)
def test_no_page_weighs_more_than_200_kb(
    browser: Browser, addresses: tuple[str, dict[str, str]], name: str
) -> None:
    address, paths = addresses
    context = browser.new_context()
    page = context.new_page()
    if name not in ("login", "listen"):
        asked = {"name": "ada", "password": PASSWORD}
        told = context.request.post(f"{address}/api/login", data=asked, headers={"Origin": address})
        assert told.ok
    transferred: dict[str, int] = {}

    def weigh(response: Response) -> None:
        sizes = response.request.sizes()
        path = re.sub(r"\?.*", "", response.url.removeprefix(address))
        size = sizes["responseBodySize"] + sizes["responseHeadersSize"]
        transferred[path] = transferred.get(path, 0) + size

    def on_finished(request: Request) -> None:
        weigh(request.response() or pytest.fail(request.url))

    page.on("requestfinished", on_finished)
    page.goto(address + paths.get(name, f"/{name}"))
    expect(page.locator("h1:visible").first).to_be_visible()
    page.wait_for_load_state("load")
    page.wait_for_timeout(1000)  # the page of an exam never stops asking
    page.remove_listener("requestfinished", on_finished)
    context.close()
    heaviest = sorted(transferred.items(), key=lambda one: -one[1])[:5]
    assert len(transferred) > 3, "a page without its scripts was not shown"
    assert sum(transferred.values()) <= MOST_BYTES, (sum(transferred.values()), heaviest)
