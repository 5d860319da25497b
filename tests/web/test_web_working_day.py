"""A whole working day in real browsers: from the roster to a signed report.

Three people, an examiner's desk, one tablet on which nobody ever signs in, and a reviewer. Una has
not changed, Carl has, and Ida's test is broken off.
"""

import io
import json
import re
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Route, expect
from pypdf import PdfReader

from earshift.days import today
from support.browser import PATIENCE_MS, browser, playwright
from support.clinic_day import REFERENCE, Clinic, ear
from support.house import QUICK, House, open_house
from support.scripted_listener import ScriptedListener
from support.web import PASSWORD

__all__ = ["browser", "playwright"]
ROSTER = """code,name,birth date,sex,department,job
W-1,Una Unchanged,1980-02-03,female,Press shop,Fitter
W-2,Carl Changed,1975-08-09,male,Press shop,Fitter
W-3,Ida Interrupted,1990-01-02,female,Office,Clerk
"""


@pytest.fixture(scope="module")
def house(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with open_house(browser, tmp_path_factory.mktemp("day")) as opened:
        with Clinic(opened.address, "ada") as admin:
            asked = {"value": True, "reason": "our works doctor settles it so"}
            admin.post("/api/settings/screen_keeps_interval", asked)
        yield opened


class Person:
    """Somebody at a browser of their own, signed in or not."""

    def __init__(self, browser: Browser, house: House, name: str | None) -> None:
        self.context = browser.new_context(accept_downloads=True)
        self.context.set_default_timeout(2 * PATIENCE_MS)
        self.page = self.context.new_page()
        self.house, self.problems = house, list[str]()
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        if name is not None:
            self.page.goto(f"{house.address}/login")
            self.page.fill("#name", name)
            self.page.fill("#password", PASSWORD)
            self.page.get_by_role("button", name="Sign in").click()
            self.page.wait_for_url(f"{house.address}/")

    def go(self, path: str) -> None:
        self.page.goto(self.house.address + path)

    def work(self) -> dict[str, set[str]]:
        """The worklist as it is shown: whom it names, and why."""
        self.go("/worklist")
        expect(self.page.locator("#count")).to_contain_text("to do on")
        found: dict[str, set[str]] = {}
        for row in self.page.locator("#work tbody tr").all():
            name = row.locator("th").inner_text()
            found.setdefault(name, set()).add(" ".join(row.locator(".why").inner_text().split()))
        return found

    def row(self, name: str, why: str) -> Locator:
        return self.page.get_by_role("row", name=name).filter(has_text=why)

    def download(self, link: str) -> bytes:
        with self.page.expect_download(timeout=120_000) as waiting:
            self.page.get_by_role("link", name=link, exact=True).click()
        return Path(waiting.value.path()).read_bytes()

    def leave(self) -> None:
        self.context.close()
        assert self.problems == []


@pytest.fixture
def desk(browser: Browser, house: House) -> Iterator[Person]:
    somebody = Person(browser, house, "bob")
    somebody.page.route("**/api/people/*/tests", _in_quick_time)
    yield somebody
    somebody.leave()


def _in_quick_time(route: Route) -> None:
    """Tones as short as those of the other tests; all else is what the page asked for."""
    asked = json.loads(route.request.post_data or "{}")
    route.continue_(post_data=json.dumps({**asked, "timing": QUICK}))


@pytest.fixture
def tablet(browser: Browser, house: House) -> Iterator[ScriptedListener]:
    """The tablet, which is the calibrated device: nobody signs in on it."""
    somebody = Person(browser, house, None)
    house.settle_in(somebody.page)
    yield ScriptedListener(somebody.page)
    assert [one["name"] for one in somebody.context.cookies()] == []
    somebody.leave()


@pytest.fixture
def reviewer(browser: Browser, house: House) -> Iterator[Person]:
    somebody = Person(browser, house, "rea")
    yield somebody
    somebody.leave()


def audiograms(number: int, day: date, worse_db: float = 0.0) -> str:
    """A file with both ears of one of the people."""
    threshold = ear(REFERENCE, worse_db)
    rows = [
        f"W-{number},{day},{side},{hertz},{threshold(float(hertz)):g}"
        for side in ("right", "left")
        for hertz in REFERENCE
    ]
    return "\n".join(["person,date,ear,frequency_hz,threshold_db_hl", *rows, ""])


def import_file(desk: Person, what: str, file: Path) -> None:
    desk.go("/import")
    desk.page.get_by_label(what).check()
    desk.page.get_by_label("File", exact=True).set_input_files(file)
    desk.page.get_by_role("button", name="Show what it would do").click()
    expect(desk.page.locator("#outcome")).to_contain_text("Rejected rows: 0")
    desk.page.get_by_role("button", name="Import now").click()
    expect(desk.page.locator("#done-heading")).to_contain_text("Import finished")


def start(desk: Person, tablet: ScriptedListener, *, worse_db: float = 0.0) -> None:
    """From the form to the listener's first tone: the address is typed into the tablet."""
    page = desk.page
    page.get_by_label("Screen").first.check()
    page.get_by_label("Device", exact=True).select_option(desk.house.device)
    page.get_by_label("The listener, on").check()
    page.get_by_role("button", name="Start the test").click()
    address = page.get_by_label("The listener's link").input_value()
    tablet.open(f"{desk.house.address}/static/icon.svg")  # from the page of who was here before
    tablet.open(address)
    tablet.set_up_until("instruction")
    tablet.hear(desk.house.hearing(worse_db))
    tablet.do("next")
    tablet.at("test")


def listen_to_the_end(desk: Person, tablet: ScriptedListener) -> None:
    """The examiner follows the test, and lets one continue whom the test itself has stopped."""
    desk.page.get_by_role("link", name="Follow the test").click()
    over, held = tablet.page.locator("#over"), tablet.page.locator("#held")
    for _ in range(4):
        tablet.until(lambda: over.is_visible() or held.is_visible(), seconds=300)
        if over.is_visible():
            return
        expect(desk.page.locator("#listener-state")).to_contain_text("did not press")
        desk.page.get_by_role("button", name="Continue", exact=True).click()
        tablet.check_again()
    raise AssertionError("stopped again and again")


def sign(reviewer: Person, name: str) -> None:
    """The reviewer's signature: whatever is asked for it is answered here."""
    reviewer.page.locator("#sign").get_by_label("Printed name").fill(name)
    reviewer.page.get_by_role("button", name="Sign", exact=True).click()
    reviewer.page.get_by_label("Your password").fill(PASSWORD)
    reviewer.page.get_by_role("button", name="Continue").click()
    expect(reviewer.page.locator("#message")).to_contain_text("The visit is signed.")


def text_of(pdf: bytes) -> str:
    pages = [page.extract_text() for page in PdfReader(io.BytesIO(pdf)).pages]
    return re.sub(r"\s+", " ", " ".join(pages))


def test_from_the_roster_to_the_signed_report(
    desk: Person, tablet: ScriptedListener, reviewer: Person, house: House, tmp_path: Path
) -> None:
    day = today("UTC")
    # The morning: who works here, and how they heard last year.
    roster = tmp_path / "roster.csv"
    roster.write_text(ROSTER, encoding="utf-8")
    import_file(desk, "A roster", roster)
    work = desk.work()
    assert {"Una Unchanged", "Carl Changed", "Ida Interrupted"} == set(work)
    assert all("No full audiogram yet" in " ".join(why) for why in work.values()), work
    earlier = tmp_path / "earlier.csv"
    text = [audiograms(n, day - timedelta(days=400)) for n in (1, 2, 3)]
    earlier.write_text(text[0] + "".join(one.partition("\n")[2] for one in text[1:]), "utf-8")
    import_file(desk, "Earlier audiograms", earlier)
    work = desk.work()
    assert all(why == {"Periodic test Both ears"} for why in work.values()), work
    expect(desk.page.locator("#work .late").first).to_have_text(re.compile("OVERDUE by \\d+ days"))

    # Una has not changed: two clicks from the worklist to her tones.
    desk.row("Una Unchanged", "Periodic").get_by_role("link", name="Test as last").click()
    start(desk, tablet)
    listen_to_the_end(desk, tablet)
    expect(desk.page.locator("#verdict .badge.unchanged")).to_be_visible()
    assert set(desk.work()) == {"Carl Changed", "Ida Interrupted"}

    # Carl has: the verdict says by how much, and a full audiogram is on the list.
    desk.row("Carl Changed", "Periodic").get_by_role("link", name="Test as last").click()
    start(desk, tablet, worse_db=30)
    listen_to_the_end(desk, tablet)
    expect(desk.page.locator("#verdict .badge.changed")).to_be_visible()
    for side in ("right", "left"):
        expect(desk.page.locator(f"#verdict .of-ear.{side}")).to_contain_text(
            re.compile(r"2-4 kHz is \d+ to \d+ dB worse than in \d{4} \(rule: 10 dB\)")
        )
    assert desk.work()["Carl Changed"] == {
        "Full audiogram after a change Both ears",
        "Review: a finding that nobody has signed Both ears",
    }
    full = tmp_path / "full.csv"  # measured in the booth next door
    full.write_text(audiograms(2, day, worse_db=30), encoding="utf-8")
    import_file(desk, "Earlier audiograms", full)
    assert desk.work()["Carl Changed"] == {"Review: a finding that nobody has signed Both ears"}

    # Ida is called away in the middle: her tablet goes dark, and the desk sees it waiting.
    desk.row("Ida Interrupted", "Periodic").get_by_role("link", name="Test as last").click()
    start(desk, tablet)
    tablet.until(lambda: tablet.page.locator("#progress").get_attribute("value") not in (None, "0"))
    tablet.open(f"{house.address}/static/icon.svg")
    assert "Test not finished Both ears" in desk.work()["Ida Interrupted"]

    # The reviewer reads what was found, signs it, and the letter follows from the signature.
    reviewer.work()
    reviewer.row("Carl Changed", "Review").get_by_role("link", name="Review").first.click()
    expect(reviewer.page.locator("#findings")).to_contain_text("a standard threshold shift")
    expect(reviewer.page.locator("#letter-card")).to_be_hidden()
    visit = reviewer.page.url.split("/")[-2]
    sign(reviewer, "Dr Rea Wolf")
    assert reviewer.work()["Carl Changed"] == {"Letter: tell the person of the shift Both ears"}
    reviewer.row("Carl Changed", "Letter").get_by_role("link", name="Letter").click()
    letter = text_of(reviewer.download("Letter (PDF, A4)"))
    assert "Carl Changed" in letter
    assert "Dr Rea Wolf" in letter
    for kind in ("letter", "protector"):
        reviewer.page.locator("#kind").select_option(kind)
        reviewer.page.locator("#done_on").fill(str(day))
        reviewer.page.locator("#follow").get_by_label("Done by").fill("Ms Weber")
        reviewer.page.get_by_role("button", name="Add").click()
        expect(reviewer.page.locator("#follow-ups button")).to_have_count(1 + (kind == "protector"))

    # The report has what was signed.
    signed = house.clinic.get(f"/api/visits/{visit}/review")
    desk.go(f"/visits/{visit}/review")
    report = text_of(desk.download("Report (PDF, A4)"))
    for said in ("Carl Changed", "Dr Rea Wolf", signed["signatures"][0]["sha256"][:16]):
        assert said in report, report
    assert "Nothing is known about this ear" not in report

    # The evening: the programme counts what was done, and only Ida is left.
    desk.go("/programme")
    table = desk.page.locator("#programme")
    expect(table).to_contain_text("Press shop")
    names = table.locator("thead th").all_inner_texts()
    cells = table.locator("tbody tr", has_text="Everybody").locator("th, td").all_inner_texts()
    counts = dict(zip(names, cells, strict=True))
    assert (counts["At work"], counts["Tested"], counts["With a full audiogram"]) == ("3", "2", "1")
    assert counts["Shift confirmed"].startswith("1 ")
    assert (counts["Told in writing"], counts["Protector fitted"]) == ("1", "1")
    work = desk.work()
    assert set(work) == {"Ida Interrupted"}, work
    assert "Test not finished Both ears" in work["Ida Interrupted"]
