"""The examiner's pages in a real browser, over the real app and a real database."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, expect

from browser import served
from clinic_day import BROWSER, LONG_NAME, REFERENCE, Clinic, ear
from earshift.web import Settings, create_app
from web import PASSWORD, with_users

PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 900}
TONE = re.compile(r"present (?P<hz>\d+) Hz at (?P<level>[−\d]+) dB HL", re.IGNORECASE)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    db = str(tmp_path_factory.mktemp("examiner") / "clinic.db")
    with_users(db)
    with served(create_app(Settings(db=db))) as address:
        with Clinic(address) as clinic:
            clinic.warm_up()
        yield address


@pytest.fixture(scope="module")
def clinic(address: str) -> Iterator[Clinic]:
    with Clinic(address) as clinic:
        yield clinic


@pytest.fixture(scope="module")
def past(clinic: Clinic) -> dict[str, str]:
    """Addresses of all pages of a clinic in which something has happened."""
    changed = clinic.person("Ada King", "4711", references=("right", "left"))
    screen = clinic.begin(changed, ears=["right", "left"])
    clinic.answer(screen["exams"][0]["id"], ear(REFERENCE, worse_db=30))
    under_way = clinic.answer(screen["exams"][1]["id"], ear(REFERENCE), most=1)
    clinic.post(f"/api/people/{changed}/notes", {"text": "Works in the press shop."})
    nobody = clinic.person(LONG_NAME, "long")
    device = clinic.post("/api/devices", BROWSER)["id"]
    return {
        "login": "/login",
        "today": "/",
        "person": f"/people/{changed}",
        "new person": f"/people/{nobody}",
        "begin": f"/people/{changed}/test",
        "decided": f"/exams/{screen['exams'][0]['id']}",
        "under way": f"/exams/{under_way['id']}",
        "devices": "/devices",
        "device": f"/devices/{device}",
        "import": "/import",
        "try": "/try",
        "about": "/about",
        "docs": "/api/docs",
        "users": "/users",
        "audit": "/audit",
        "nowhere": "/nowhere",
    }


@pytest.fixture(scope="module")
def signed_in(browser: Browser, address: str) -> Iterator[Page]:
    """An administrator's page, signed in once for all tests that only look."""
    context = browser.new_context(viewport=DESK)
    page = context.new_page()
    sign_in(page, address, "ada")
    yield page
    context.close()


@pytest.fixture
def complaints(signed_in: Page) -> Iterator[list[str]]:
    """What the browser complained of, the content security policy's refusals included."""
    found: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and "404" not in message.text:
            found.append(message.text)

    def on_error(error: Error) -> None:
        found.append(str(error))

    signed_in.on("console", on_console)
    signed_in.on("pageerror", on_error)
    yield found
    signed_in.remove_listener("console", on_console)
    signed_in.remove_listener("pageerror", on_error)


def sign_in(page: Page, address: str, name: str) -> None:
    page.goto(f"{address}/")
    expect(page).to_have_url(f"{address}/login")
    page.get_by_label("User name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{address}/")


def settled(page: Page, address: str) -> None:
    """Open a page and wait until its scripts have shown what they were given."""
    page.goto(address)
    page.wait_for_load_state("networkidle" if "/exams/" not in address else "load")
    if "/exams/" in address:
        expect(page.locator("#counts dt").first).to_be_visible()


# A working day


class Keyboard:
    """A hand that has only a keyboard."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def go_to(self, selector: str) -> None:
        for _ in range(120):
            if self.page.evaluate("wanted => document.activeElement.matches(wanted)", selector):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"no Tab reaches {selector}")

    def press(self, selector: str, key: str = "Enter") -> None:
        self.go_to(selector)
        self.page.keyboard.press(key)

    def type(self, selector: str, text: str) -> None:
        self.go_to(selector)
        self.page.keyboard.type(text)


def answer_by_keys(page: Page, hears: Callable[[float], float], most: int = 60) -> None:
    """Present what the desk says, and press H or N, until there is a verdict or `most` is over."""
    for _ in range(most):
        expect(page.locator("#desk:visible, #verdict .badge:not(.open)").first).to_be_visible()
        if not page.locator("#desk").is_visible():
            return
        said = page.locator("#tone").inner_text()
        answered = page.locator("#progress").inner_text()
        asked = TONE.search(said)
        level = float(asked["level"].replace("−", "-")) if asked else -100.0
        page.keyboard.press("h" if asked and level >= hears(float(asked["hz"])) else "n")
        page.wait_for_function(
            "before => document.getElementById('desk').hidden ||"
            " document.getElementById('progress').textContent !== before[0] ||"
            " document.getElementById('tone').textContent !== before[1]",
            arg=[answered, said],
        )


def test_a_working_day_by_keyboard_alone(page: Page, address: str) -> None:
    """From sign-in to the report: a person, a reference, a screen, a retest, a full audiogram."""
    keyboard = Keyboard(page)
    page.goto(f"{address}/")
    keyboard.type("#name", "bob")
    keyboard.type("#password", PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{address}/")

    keyboard.press("#show-new")
    keyboard.type("#code", "D-1")
    keyboard.type("#new #name", "Grace Hall")
    keyboard.press("#new [type=submit]")
    page.wait_for_url(f"{address}/people/*")
    expect(page.locator("#heading")).to_have_text("Grace Hall")
    person = page.url

    keyboard.press("[data-shows=reference]")
    keyboard.type("#source", "paper")
    for hz, level in REFERENCE.items():
        keyboard.type(f"#hz-{hz}", str(level))
    keyboard.press("#reference [type=submit]")
    expect(page.locator("#message")).to_contain_text("Reference saved")
    expect(page.locator("#exams")).to_contain_text("audiogram")

    page.goto(f"{person}/test")
    expect(page.locator("#references")).to_contain_text("Left ear: no reference yet")
    keyboard.press("[name=ears][value=left]", "Space")
    keyboard.press("#practice", "Space")
    expect(page.locator("#practice")).not_to_be_checked()
    keyboard.press("#plan [type=submit]")
    page.wait_for_url(f"{address}/exams/*")
    first = page.url

    answer_by_keys(page, ear(REFERENCE, worse_db=30))
    expect(page.locator("#verdict .badge")).to_contain_text("Changed")
    expect(page.locator("#audiogram .picture .tone").first).to_be_attached()

    with page.expect_download() as pdf:
        keyboard.press("a[href$='report.pdf']")
    assert pdf.value.path().read_bytes().startswith(b"%PDF")
    with page.expect_download() as html:
        keyboard.press("a[href$='report.html']")
    assert "Grace Hall" in html.value.path().read_text()

    keyboard.press("[data-action=retest]")
    page.wait_for_url(lambda url: "/exams/" in url and url != first)
    again = page.url
    answer_by_keys(page, ear(REFERENCE, worse_db=30))
    expect(page.locator("#verdict .badge")).to_contain_text("Changed")

    keyboard.press("[data-action=continue]")
    page.wait_for_url(lambda url: "/exams/" in url and url not in (first, again))
    expect(page.locator("#heading")).to_contain_text("full exam")
    answer_by_keys(page, ear(REFERENCE, worse_db=30), most=3)
    expect(page.locator("#tones tbody tr")).not_to_have_count(0)
    keyboard.press("[data-action=undo]")
    expect(page.locator("#message")).to_contain_text("taken back")
    keyboard.press("[data-action=pause]")
    expect(page.locator("#desk")).to_be_hidden()
    keyboard.press("[data-action=resume]")
    expect(page.locator("#desk")).to_be_visible()
    keyboard.press("[data-action=finish]")
    expect(page.locator("[data-action=retest]")).to_be_visible()

    page.goto(person)
    expect(page.locator("#exams tbody tr")).to_have_count(4)
    expect(page.locator("#history svg").first).to_be_visible()


def test_a_person_is_found_and_corrected_and_work_goes_on(
    page: Page, address: str, past: dict[str, str]
) -> None:
    sign_in(page, address, "bob")
    page.get_by_label("Name or code").fill("ada k")
    page.get_by_role("button", name="Find").click()
    found = page.locator("#found").get_by_role("link", name="Ada King")
    expect(found).to_be_visible()
    expect(page.locator("#work")).to_contain_text("unfinished")
    page.locator("#work").get_by_role("link", name="Go on").first.click()
    expect(page.locator("#desk")).to_be_visible()
    page.goto(address + past["new person"])
    page.get_by_role("button", name="Correct").click()
    page.locator("#correct").get_by_label("Code").fill("L-2")
    page.get_by_label("Why is this corrected?").fill("typed wrongly")
    page.get_by_role("button", name="Save the correction").click()
    expect(page.locator("#identity")).to_contain_text("L-2")


def test_refusals_are_said_beside_the_button(
    page: Page, address: str, past: dict[str, str]
) -> None:
    """A screen without a reference cannot begin; the server's own sentence says why."""
    sign_in(page, address, "bob")
    settled(page, f"{address}{past['new person']}/test")
    page.get_by_role("button", name="Start the test").click()
    expect(page.locator("#problem")).to_contain_text("to compare with")
    expect(page.locator("#warnings")).to_contain_text("to compare with")


def test_the_listeners_link_is_made_shown_once_and_ended(
    page: Page, address: str, clinic: Clinic
) -> None:
    person = clinic.person("Tablet user", "T-1")
    device = clinic.post("/api/devices", {**BROWSER, "name": "Tablet for links"})["id"]
    sign_in(page, address, "bob")
    settled(page, f"{address}/people/{person}/test")
    page.get_by_label("Full exam").check()
    page.get_by_label("Device").select_option(device)
    expect(page.locator("#warnings")).to_contain_text("relative")
    page.get_by_label("The listener, on").check()
    page.get_by_label("Self-test").check()
    page.get_by_label("calibration is expired or missing").check()
    page.get_by_role("button", name="Start the test").click()
    link = page.get_by_label("The listener's link")
    expect(link).to_have_value(re.compile(rf"^{re.escape(address)}/listen#\S{{20,}}$"))
    page.get_by_role("link", name="Follow the test").click()
    expect(page.locator("#listener-state")).to_be_visible()
    expect(page.locator("#desk")).to_be_hidden()
    expect(page.get_by_label("The listener's link")).to_have_count(0)
    page.get_by_role("button", name="End the link").click()
    expect(page.locator("#message")).to_contain_text("no longer works")
    assert clinic.get(page.url.replace(address, "/api"))["link"] is None


def test_a_device_is_calibrated_checked_and_blocked(page: Page, address: str) -> None:
    sign_in(page, address, "bob")
    page.goto(f"{address}/devices")
    page.get_by_label("Name").fill("Booth 7")
    page.get_by_role("button", name="Add the device").click()
    page.wait_for_url(f"{address}/devices/*")
    expect(page.locator("#of-table")).to_be_hidden()
    page.get_by_label("Laboratory").fill("Example Lab")
    page.get_by_role("button", name="Save the calibration").click()
    expect(page.locator("#message")).to_contain_text("Calibration saved")
    expect(page.locator("#state")).to_contain_text("calibrated")
    page.get_by_label("Who listened").fill("bob")
    for cell in page.locator("#deviations input").all():
        cell.fill("0")
    page.get_by_label("Left ear, 4000 Hz").first.fill("15")
    page.get_by_role("button", name="Save the check").click()
    expect(page.locator("#message")).to_contain_text("blocked")
    expect(page.locator("#blocked")).not_to_be_empty()


def test_the_desk_plays_through_this_browser_and_no_other(
    page: Page, address: str, clinic: Clinic
) -> None:
    """Answers wait for the tone; levels set for another device are not played on this one."""
    sign_in(page, address, "bob")
    page.goto(f"{address}/devices")
    page.get_by_label("What is it?").select_option("browser")
    expect(page.locator("#fingerprint dt")).to_have_count(4)
    page.locator("#new").get_by_label("Name").fill("This desk")
    page.get_by_label("Earphones", exact=True).fill("wired ones")
    page.get_by_role("button", name="Add the device").click()
    page.wait_for_url(f"{address}/devices/*")
    here = page.url.rpartition("/")[2]
    other = clinic.post("/api/devices", {**BROWSER, "name": "Another desk"})["id"]
    for device, plays in ((here, True), (other, False)):
        person = clinic.person("Hand raiser", f"H-{device}")
        plan = {"kind": "exam", "rule": None, "device": device, "practice": True}
        exam = clinic.begin(person, **plan, accept_calibration=True)["exams"][0]["id"]
        page.goto(f"{address}/exams/{exam}")
        expect(page.locator("#desk")).to_be_visible()
        expect(page.locator("#tone")).to_contain_text("relative dB")
        expect(page.locator("#heard")).to_be_disabled()
        page.keyboard.press("h")  # nothing was played: this is no answer
        page.keyboard.press("p")
        if not plays:
            expect(page.locator("#desk-problem")).to_contain_text("not the device")
            expect(page.locator("#heard")).to_be_disabled()
            continue
        expect(page.locator("#heard")).to_be_enabled()
        page.keyboard.press("n")
        expect(page.locator("#tones tbody tr")).to_have_count(1)
        expect(page.locator("#heard")).to_be_disabled()
    assert "dB HL" not in page.locator("main").inner_text()


def test_a_file_is_imported(page: Page, address: str, tmp_path: Path) -> None:
    file = tmp_path / "old.csv"
    file.write_text(
        "person,date,right_500,right_1000,right_2000,right_3000,right_4000\n"
        "I-1,2020-01-02,5,10,15,20,25\n"
    )
    sign_in(page, address, "bob")
    page.goto(f"{address}/import")
    page.get_by_label("File", exact=True).set_input_files(file)
    page.get_by_role("button", name="Import").click()
    expect(page.locator("#outcome")).to_contain_text("1 audiograms added")
    page.locator("#outcome").get_by_role("link").click()
    expect(page.locator("#exams")).to_contain_text("audiogram")


def test_a_simulated_person_is_stored_nowhere(page: Page, address: str, clinic: Clinic) -> None:
    before = clinic.get("/api/worklist")["items"]
    sign_in(page, address, "bob")
    page.goto(f"{address}/try")
    expect(page.locator("#audiogram .picture svg")).to_be_visible()
    page.get_by_label("Rule for change").select_option("niosh-15")
    page.get_by_label("Change since then").select_option(index=1)
    page.get_by_role("button", name="Next tone").click()
    expect(page.locator("#tones tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Run to the verdict").click()
    expect(page.locator("#verdict .badge")).to_contain_text("Changed", timeout=60_000)
    assert clinic.get("/api/worklist")["items"] == before


def test_users_are_added_and_changed(page: Page, address: str) -> None:
    sign_in(page, address, "ada")
    page.goto(f"{address}/users")
    page.locator("#new").get_by_label("User name").fill("cleo")
    page.get_by_label("First password").fill(PASSWORD)
    page.get_by_role("button", name="Add the user").click()
    page.get_by_role("button", name="Change cleo").click()
    page.locator("#change").get_by_label("State").select_option("disabled")
    page.locator("#change").get_by_label("Why").fill("left the clinic")
    page.get_by_role("button", name="Save the change").click()
    expect(page.locator("#list tr", has_text="cleo")).to_contain_text("disabled")
    page.get_by_label("What it is for").fill("export")
    page.get_by_role("button", name="Make a token").click()
    expect(page.locator("#tokens code")).not_to_be_empty()


def test_a_hidden_page_asks_for_nothing(page: Page, address: str, past: dict[str, str]) -> None:
    sign_in(page, address, "bob")
    settled(page, address + past["under way"])
    with page.expect_request("**/live"):
        pass  # seen, it asks again and again
    page.evaluate("Object.defineProperty(document, 'hidden', { value: true })")
    page.wait_for_timeout(300)  # what was under way may end
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2500)
    assert asked == []


# How the pages look


PAGES = [
    "login", "today", "person", "new person", "begin", "decided", "under way", "devices", "device",
    "import", "try", "about", "docs", "users", "audit", "nowhere",
]  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_every_page_can_be_used_by_everybody(
    signed_in: Page, address: str, past: dict[str, str], complaints: list[str], name: str
) -> None:
    """No serious finding of axe, nothing wider than a phone, no complaint of the browser."""
    for size in (DESK, PHONE):
        signed_in.set_viewport_size(size)
        settled(signed_in, address + past[name])
        too_wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert signed_in.evaluate(too_wide) <= 0
        found = Axe().run(signed_in).response["violations"]
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert not serious, [(one["id"], one["nodes"][0]["html"]) for one in serious]
    assert complaints == []


def draw(page: Page, data: dict[str, object]) -> None:
    page.evaluate(
        """async (data) => {
          const { audiogram } = await import("/static/audiogram.js");
          document.getElementById("main").replaceChildren();
          audiogram(document.getElementById("main")).draw(data);
        }""",
        data,
    )


def reading(hz: float, level: float, censored: str | None = None) -> dict[str, object]:
    return {
        "frequency_hz": hz,
        "level": level,
        "low": level - 5,
        "high": level + 5,
        "censored": censored,
    }


def trial(kind: str, level: float | None, *, heard: bool, void: bool = False) -> dict[str, object]:
    return {"kind": kind, "frequency_hz": 1000, "level": level, "heard": heard, "void": void}


def test_an_audiogram_keeps_the_conventions(signed_in: Page, address: str) -> None:
    """An octave as long as 20 dB, circles right and crosses left, no line to no response."""
    signed_in.goto(f"{address}/login")
    levels = [reading(500, 10), reading(1000, 20), reading(2000, 40), reading(4000, 90, "above")]
    for side, shape in (("right", "circle"), ("left", "path")):
        draw(
            signed_in,
            {
                "ear": side,
                "unit": "dB HL",
                "thresholds": levels,
                "reference": levels[:2],
                "trials": [
                    trial("tone", 20, heard=True),
                    trial("tone", 15, heard=False),
                    trial("tone", 5, heard=True, void=True),
                    trial("catch", None, heard=False),
                ],
                "next": {"frequency_hz": 2000, "level": 35},
            },
        )
        picture = signed_in.locator(".picture svg")
        assert picture.locator(f".now {shape}").count() == 4 + (side == "left")  # with the arrow
        assert picture.locator(".now line").count() == 2
        assert (
            picture.locator(".tone.heard").count() == picture.locator(".tone.missed").count() == 1
        )
        assert picture.locator(".next").count() == 1
        assert picture.locator(".band").count() == 1
        lengths = [
            [float(line.get_attribute(name) or "nan") for name in ("x1", "x2", "y1", "y2")]
            for line in picture.locator(".now line").all()
        ]
        (x1, x2, _, _), (_, _, y1, y2) = lengths
        assert x2 - x1 == pytest.approx(y2 - y1)  # one octave; from 20 to 40 dB
        assert y2 > y1
        rows = signed_in.locator(".twin tbody tr").all_text_contents()
        assert len(rows) == 4
        assert "none at 90" in rows[-1]


def test_relative_levels_are_never_called_hearing_levels(signed_in: Page, address: str) -> None:
    signed_in.goto(f"{address}/login")
    draw(
        signed_in,
        {
            "ear": "right",
            "unit": "relative dB",
            "thresholds": [reading(1000, 25), reading(2000, 30)],
        },
    )
    shown = signed_in.locator("#main").text_content() or ""
    assert "relative dB" in shown
    assert "dB HL" not in shown
