"""The examiner's pages in a real browser, over the real app and a real database."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    FloatRect,
    Locator,
    Page,
    Route,
    ViewportSize,
    expect,
)

from earshift.store.accounts import sha256
from earshift.web import Settings, create_app
from earshift.web.pages import ADMIN_PAGES, EXAMINER_PAGES
from support.browser import PATIENCE_MS, served
from support.clinic_day import BROWSER, LONG_NAME, REFERENCE, Clinic, ear
from support.house import QUICK, become_device
from support.scripted_listener import ScriptedListener
from support.web import PASSWORD, with_users

PHONE: ViewportSize = {"width": 360, "height": 740}
DESK: ViewportSize = {"width": 1280, "height": 900}
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
        "review": f"/visits/{screen['visit']}/review",
        "rooms": "/rooms",
        "devices": "/devices",
        "worklist": "/worklist",
        "programme": "/programme",
        "settings": "/settings",
        "device": f"/devices/{device}",
        "daily check": f"/devices/{device}/check",
        "import": "/import",
        "booths": "/booths",
        "try": "/try",
        "about": "/about",
        "docs": "/api/docs",
        "users": "/users",
        "account": "/account",
        "audit": "/audit",
        "nowhere": "/nowhere",
    }


@pytest.fixture(scope="module")
def signed_in(browser: Browser, address: str) -> Iterator[Page]:
    """An administrator's page, signed in once for all tests that only look."""
    context = browser.new_context(viewport=DESK)
    context.set_default_timeout(2 * PATIENCE_MS)
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
    page.wait_for_load_state("networkidle")  # a form does nothing before its script is there


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
    expect(page.locator("#references")).to_contain_text("Left ear: no usable reference yet")
    keyboard.press("[name=ears]", "ArrowDown")  # one after the other
    keyboard.press("[name=ears]", "ArrowDown")
    expect(page.locator("[name=ears][value=right]")).to_be_checked()
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
    expect(page.locator("#message")).to_contain_text("undone")
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
    expect(page.locator("#work")).to_contain_text("Test not finished")
    page.locator("#work").get_by_role("link", name="Continue").first.click()
    expect(page.locator("#desk")).to_be_visible()
    page.goto(address + past["new person"])
    page.get_by_role("button", name="Correct").click()
    page.locator("#correct").get_by_label("Code").fill("L-2")
    page.get_by_label("Reason for the correction").fill("typed wrongly")
    page.get_by_role("button", name="Save correction").click()
    expect(page.locator("#identity")).to_contain_text("L-2")


def test_a_baseline_is_chosen_with_its_reason(
    signed_in: Page, address: str, clinic: Clinic, past: dict[str, str]
) -> None:
    signed_in.goto(address + past["person"])
    card = signed_in.locator("#baseline-card")
    expect(card.locator("#baselines")).to_contain_text("(the oldest)")
    card.get_by_role("button", name="Should it be revised?").click()
    expect(card.locator("#proposals li")).not_to_have_count(0)
    card.locator("#baseline-exam").select_option(index=0)
    card.get_by_label("Reason, and who decided").fill("first day at work, Dr K")
    card.get_by_role("button", name="Use as baseline").click()
    expect(card.locator("#baselines")).to_contain_text("chosen by")
    expect(card.locator("#baselines")).to_contain_text("first day at work, Dr K")


def test_after_the_first_ear_the_page_leads_to_the_second(
    page: Page, address: str, clinic: Clinic
) -> None:
    person = clinic.person("Ear by Ear", "2-ears", references=())
    screen = clinic.begin(person, ears=["right", "left"], notch=True, rule=None)
    first, second = (one["id"] for one in screen["exams"])
    sign_in(page, address, "bob")
    page.goto(f"{address}/exams/{first}")
    expect(page.get_by_role("button", name="Undo")).to_be_visible()
    expect(page.locator("#next-ear")).to_have_count(0)
    clinic.answer(first, ear(REFERENCE))
    page.get_by_role("link", name="Continue with the left ear").click()
    expect(page).to_have_url(f"{address}/exams/{second}")


def test_who_was_here_before_hears_a_tone_after_two_clicks(
    page: Page, address: str, clinic: Clinic
) -> None:
    person = clinic.person("Rita Returning", "again", references=("right", "left"))
    booth = clinic.post("/api/devices", {"name": "booth R", "transducer": "insert"})["id"]
    before = clinic.begin(person, ears=["right", "left"], rule="niosh-15", device=booth)
    for exam in before["exams"]:
        clinic.answer(exam["id"], ear(REFERENCE))
    sign_in(page, address, "bob")
    page.goto(f"{address}/worklist")
    page.get_by_role("row", name="Rita Returning").get_by_role("link", name="Test as last").click()
    expect(page.locator("#as-last")).to_be_visible()
    expect(page.get_by_label("Rule for change")).to_have_value("niosh-15")
    expect(page.get_by_label("Device", exact=True)).to_have_value(booth)
    expect(page.locator("#device-warnings")).to_contain_text("even one of 20 dB")
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".tone")).to_contain_text("Hz")
    # The next form on this workstation is filled in the same way, also for somebody new.
    new = clinic.person("Nora New", "new-here")
    page.goto(f"{address}/people/{new}/test")
    expect(page.get_by_label("Device", exact=True)).to_have_value(booth)
    expect(page.locator("#as-last")).to_be_hidden()


def test_the_worklist_leads_to_the_test_that_ends_its_line(
    page: Page, address: str, clinic: Clinic
) -> None:
    person = clinic.person("Cora Changed", "cora", references=("right", "left"))
    test = clinic.begin(person, ears=["right"])
    clinic.answer(test["exams"][0]["id"], ear(REFERENCE, worse_db=30))
    sign_in(page, address, "bob")
    page.goto(f"{address}/worklist")
    line = page.locator("tr", has_text="Cora").filter(has_text="Full audiogram after a change")
    line.get_by_role("link", name="Full audiogram", exact=True).click()
    expect(page.get_by_role("radio", name="Full exam")).to_be_checked()
    expect(page.get_by_role("radio", name="Right ear", exact=True)).to_be_checked()
    expect(page.locator("#counts-not")).to_be_hidden()
    page.get_by_role("radio", name="Screen for change").check()
    expect(page.locator("#counts-not")).to_contain_text("does not count")
    # Nothing to compare with: a screen is not proposed.
    page.goto(f"{address}/people/{clinic.person('Nora New', 'nora')}/test?ears=nothing")
    expect(page.get_by_role("radio", name="Full exam")).to_be_checked()
    expect(page.locator("input[name=ears]:checked")).to_have_count(1)


def test_a_page_with_nothing_to_show_says_so_and_leads_home(page: Page, address: str) -> None:
    sign_in(page, address, "bob")
    page.goto(f"{address}/people/nonsense")
    expect(page.get_by_role("alert").last).to_contain_text("There is nothing with this id here.")
    expect(page.get_by_role("heading", level=1)).to_have_text("That did not work")
    page.get_by_role("link", name="Go to the start page").click()
    expect(page).to_have_url(f"{address}/")


def test_refusals_are_said_beside_the_button(
    page: Page, address: str, past: dict[str, str]
) -> None:
    """A screen without a reference cannot begin; the server's own sentence says why."""
    sign_in(page, address, "bob")
    settled(page, f"{address}{past['new person']}/test?kind=screen")
    page.get_by_role("button", name="Start the test").click()
    expect(page.locator("#problem")).to_contain_text("to compare with")
    expect(page.locator("#warnings")).to_contain_text("to compare with")


def test_references_are_offered_as_the_server_says(
    page: Page, address: str, clinic: Clinic
) -> None:
    """The baseline is chosen at first, a choice is kept, and what cannot be chosen says why."""
    person = clinic.person("Often tested", "O-1")
    for on, source in (("2020-01-02", "first day"), ("2024-03-04", "works doctor")):
        clinic.post(
            f"/api/people/{person}/audiograms",
            {"ear": "right", "measured_on": on, "thresholds": REFERENCE, "source": source},
        )
    tablet = clinic.post("/api/devices", {**BROWSER, "name": "Tablet for references"})["id"]
    sign_in(page, address, "bob")
    settled(page, f"{address}/people/{person}/test")
    right = page.get_by_label("Right ear: compare with")
    expect(right.locator("option:checked")).to_have_text(
        "audiogram, 2020-01-02 (first day) – baseline"
    )
    expect(right.locator("option")).to_have_count(2)
    right.select_option(label="audiogram, 2024-03-04 (works doctor)")
    page.get_by_label("Left ear", exact=True).uncheck()
    expect(right.locator("option:checked")).to_have_text("audiogram, 2024-03-04 (works doctor)")
    page.get_by_label("Device").select_option(tablet)
    expect(right).to_have_count(0)
    told = page.locator("#references")
    expect(told).to_contain_text("Right ear: no usable reference yet")
    choices = clinic.get(f"/api/people/{person}")["references"]
    (of_tablet,) = [one for one in choices if one["device"] == tablet]
    for choice in of_tablet["ears"]["right"]:
        expect(told).to_contain_text(choice["reason"])


def test_cautions_follow_the_checklist(page: Page, address: str, past: dict[str, str]) -> None:
    sign_in(page, address, "bob")
    settled(page, f"{address}{past['new person']}/test")
    warnings = page.locator("#warnings")
    page.get_by_label("Hours since noise at work").fill("13")
    page.get_by_label("Otoscopy, left ear").select_option("wax")
    page.get_by_label("Hearing aids removed").select_option("no")
    for caution in ("Less than 14 hours", "Left ear: earwax", "must be removed"):
        expect(warnings).to_contain_text(caution)
    page.get_by_label("Hours since noise at work").fill("14")
    page.get_by_label("Otoscopy, left ear").select_option("normal")
    expect(warnings).not_to_contain_text("14 hours")
    expect(warnings).not_to_contain_text("earwax")
    expect(
        page.get_by_label("The listener, on")
    ).to_be_disabled()  # an audiometer plays nothing here
    expect(page.get_by_label("Self-test")).to_be_disabled()


def test_the_listeners_link_is_made_shown_once_and_ended(
    page: Page, address: str, clinic: Clinic
) -> None:
    person = clinic.person("Tablet user", "T-1")
    device = clinic.post("/api/devices", {**BROWSER, "name": "Tablet for links"})["id"]
    sign_in(page, address, "bob")
    settled(page, f"{address}/people/{person}/test")
    page.get_by_label("Full exam").check()
    page.get_by_label("One ear after the other").check()  # without calibration
    page.get_by_label("Device").select_option(device)
    expect(page.locator("#device-warnings")).to_contain_text("relative")
    page.get_by_label("The listener, on").check()
    page.get_by_label("Self-test").check()
    page.get_by_label("calibration has expired").check()
    page.get_by_role("button", name="Start the test").click()
    link = page.get_by_label("The listener's link")
    expect(page.get_by_role("link", name="Open here")).to_have_count(0)
    expect(link).to_have_value(re.compile(rf"^{re.escape(address)}/listen#\S{{20,}}$"))
    page.get_by_role("link", name="Follow the test").click()
    expect(page.locator("#listener-state")).to_be_visible()
    expect(page.locator("#desk")).to_be_hidden()
    expect(page.get_by_label("The listener's link")).to_have_count(0)
    page.get_by_role("button", name="Deactivate the link").click()
    expect(page.locator("#message")).to_contain_text("no longer works")
    assert clinic.get(page.url.replace(address, "/api"))["link"] is None


def test_who_is_alone_may_open_the_link_here(page: Page, tmp_path: Path) -> None:
    """There is no login in this browser that a listener could find."""
    once = Settings(db=str(tmp_path / "own.db"), single_user=True, launch_sha256=sha256("once"))
    with served(create_app(once)) as address:
        page.goto(f"{address}/open?token=once")
        make = """async ([device, person]) => {
          const { post } = await import("/static/api.js");
          const fingerprint = (await import("/static/browser_device.js")).fingerprint();
          const { id } = await post("/api/devices", { ...device, fingerprint });
          return (await post("/api/people", person)).id;
        }"""
        person = page.evaluate(make, [{"name": "Own"}, {"code": "me"}])
        settled(page, f"{address}/people/{person}/test")
        page.get_by_label("Full exam").check()
        page.get_by_label("Device").select_option("Own")
        page.get_by_label("The listener, on").check()
        page.get_by_label("calibration has expired").check()
        page.get_by_role("button", name="Start the test").click()
        with page.expect_popup() as opened:
            page.get_by_role("link", name="Open here").click()
        expect(opened.value.locator("#headphones")).to_be_visible()


def test_a_device_is_calibrated_checked_and_blocked(page: Page, address: str) -> None:
    sign_in(page, address, "bob")
    page.goto(f"{address}/devices")
    page.get_by_label("Name").fill("Booth 7")
    page.get_by_role("button", name="Add device").click()
    page.wait_for_url(f"{address}/devices/*")
    expect(page.locator("#of-table")).to_be_hidden()
    page.get_by_label("Laboratory").fill("Example Lab")
    page.get_by_role("button", name="Save calibration").click()
    expect(page.locator("#message")).to_contain_text("Calibration saved")
    expect(page.locator("#state")).to_contain_text("calibrated")
    page.get_by_text("Enter a check done elsewhere").click()
    page.get_by_label("Who listened").fill("bob")
    for cell in page.locator("#deviations input").all():
        cell.fill("0")
    page.get_by_label("Left ear, 4000 Hz").first.fill("15")
    page.get_by_role("button", name="Save check").click()
    expect(page.locator("#message")).to_contain_text("blocked")
    expect(page.locator("#blocked")).not_to_be_empty()


def test_this_browser_becomes_a_device(page: Page, address: str, clinic: Clinic) -> None:
    sign_in(page, address, "bob")
    page.goto(f"{address}/devices")
    page.get_by_label("Type of device").select_option("browser")
    expect(page.locator("#fingerprint dt")).to_have_count(4)
    page.locator("#new").get_by_label("Name").fill("This desk")
    page.get_by_label("Headphones", exact=True).fill("wired ones")
    page.get_by_role("button", name="Add device").click()
    page.wait_for_url(f"{address}/devices/*")
    stored = clinic.get(page.url.replace(address, "/api"))["fingerprint"]
    assert stored["earphones"] == "wired ones"
    assert stored["installation"] == page.evaluate('localStorage.getItem("installation")')


# The desk of a browser that plays


LONG_TONE = {**QUICK, "pulses": 5, "pulse_ms": 2000}


class Desk:
    """An examiner at a browser that plays the tones, and an exam that waits there."""

    def __init__(self, page: Page, address: str, clinic: Clinic, **plan: Any) -> None:
        self.page, self.clinic = page, clinic
        self.ears = ScriptedListener(page)
        sign_in(page, address, "bob")
        device = clinic.post("/api/devices", {"name": "Desk", "fingerprint": become_device(page)})
        self.exam = self.begin(device["id"], **plan)
        page.goto(f"{address}/exams/{self.exam}")

    def begin(self, device: str, **plan: Any) -> str:
        person = self.clinic.person("Hand raiser", f"H-{device}")
        wanted = {"kind": "exam", "rule": None, "device": device, "accept_calibration": True}
        test = self.clinic.begin(person, **{**wanted, "timing": QUICK, **plan})
        return str(test["exams"][0]["id"])

    def stored(self) -> dict[str, Any]:
        now: dict[str, Any] = self.clinic.get(f"/api/exams/{self.exam}")
        return now

    def trials(self) -> list[dict[str, Any]]:
        trials: list[dict[str, Any]] = self.clinic.get(f"/api/exams/{self.exam}/live")["trials"]
        return trials

    def play(self) -> None:
        expect(self.page.locator("#heard")).to_be_disabled()
        self.page.keyboard.press("p")
        expect(self.page.locator("#heard")).to_be_enabled()

    def play_and_miss(self) -> None:
        before = self.stored()["play"]["presentation"]["trial"]
        self.play()
        self.page.keyboard.press("n")
        self.ears.until(lambda: self.stored()["play"]["presentation"]["trial"] != before)

    def begin_to_play(self) -> None:
        self.page.evaluate("ears.onset = null")
        self.page.keyboard.press("p")
        self.ears.wait_for("ears.onset !== null && ears.now() > ears.onset + 0.1")


def test_the_desk_plays_after_its_set_up(page: Page, address: str, clinic: Clinic) -> None:
    """No tone before the headphones are checked, no answer before the tone was played."""
    desk = Desk(page, address, clinic)
    expect(page.locator("#headphones")).to_contain_text("HDA 200")
    expect(page.locator("#desk")).to_be_hidden()
    assert desk.stored()["play"]["state"] == "check"
    page.keyboard.press("p")  # there is nothing to play yet
    desk.ears.set_up_desk()
    assert desk.stored()["play"]["state"] == "play"
    expect(page.locator("#set-up")).to_be_hidden()
    expect(page.locator("#tone")).to_contain_text("relative dB")
    assert "dB HL" not in page.locator("main").inner_text()
    expect(page.locator("#heard")).to_be_disabled()
    page.keyboard.press("h")  # nothing was played: this is no answer
    desk.play_and_miss()
    expect(page.locator("#tones tbody tr")).to_have_count(1)
    expect(page.locator("#heard")).to_be_disabled()
    assert [trial["heard"] for trial in desk.trials()] == [False]


def test_a_set_up_belongs_to_the_page_that_did_it(page: Page, address: str, clinic: Clinic) -> None:
    desk = Desk(page, address, clinic)
    desk.ears.set_up_desk()
    page.reload()
    desk.ears.set_up_desk()
    desk.play()


def test_the_desk_of_another_browser_plays_nothing(
    page: Page, address: str, clinic: Clinic
) -> None:
    desk = Desk(page, address, clinic)
    twin = {**become_device(page), "installation": "of another desk"}
    for name, fingerprint in (("Twin", twin), ("Other", BROWSER["fingerprint"])):
        device = clinic.post("/api/devices", {"name": name, "fingerprint": fingerprint})["id"]
        page.goto(f"{address}/exams/{desk.begin(device)}")
        expect(page.locator("#another")).to_contain_text("another browser")
        expect(page.locator("#desk")).to_be_hidden()
        assert page.locator("#set-up button:visible").count() == 0


TROUBLE = {
    "panic": "document.querySelector('#desk [data-do=panic]').click()",
    "hidden": """Object.defineProperty(document, "hidden", { value: true, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
        Object.defineProperty(document, "hidden", { value: false, configurable: true });""",
    "device": 'navigator.mediaDevices.dispatchEvent(new Event("devicechange"))',
    "interrupted": "ears.ctx.suspend()",
}


@pytest.mark.parametrize("reason", ["escape", *TROUBLE])
def test_trouble_at_the_desk_is_silence_and_another_set_up(
    page: Page, address: str, clinic: Clinic, reason: str
) -> None:
    desk = Desk(page, address, clinic, timing=LONG_TONE)
    desk.ears.set_up_desk()
    asked = desk.stored()["play"]["presentation"]
    desk.begin_to_play()
    stops = page.evaluate("ears.stops")
    if reason == "escape":
        page.keyboard.press("Escape")
    else:
        page.evaluate(f"() => {{ {TROUBLE[reason]} }}")
    if reason != "interrupted":  # then there is no sound to stop
        assert page.evaluate("ears.stops") == stops + 1
    expect(page.locator("#headphones")).to_be_visible()
    expect(page.locator("#desk")).to_be_hidden()
    page.keyboard.press("h")
    desk.ears.until(lambda: desk.stored()["play"]["state"] == "check")
    assert [trial["void"] for trial in desk.trials()] == [True]
    desk.ears.set_up_desk()
    again = desk.stored()["play"]["presentation"]
    assert again["trial"] != asked["trial"]
    expect(page.locator("#heard")).to_be_disabled()


def test_a_stop_without_the_network_is_told_before_the_test_goes_on(
    page: Page, address: str, clinic: Clinic
) -> None:
    desk = Desk(page, address, clinic, timing=LONG_TONE)
    desk.ears.set_up_desk()
    desk.begin_to_play()
    page.context.set_offline(True)
    page.keyboard.press("Escape")
    expect(page.locator("#headphones")).to_be_visible()
    assert desk.trials() == []
    page.context.set_offline(False)
    desk.ears.set_up_desk()
    assert [trial["void"] for trial in desk.trials()] == [True]


def test_other_headphones_between_two_tones_are_checked_another_page_is_not(
    page: Page, address: str, clinic: Clinic
) -> None:
    desk = Desk(page, address, clinic)
    desk.ears.set_up_desk()
    desk.play()
    page.evaluate(f"() => {{ {TROUBLE['hidden']} }}")
    expect(page.locator("#heard")).to_be_enabled()
    page.evaluate(TROUBLE["device"])
    expect(page.locator("#headphones")).to_be_visible()
    desk.ears.until(lambda: desk.stored()["play"]["state"] == "check")


def test_what_is_asked_after_an_undo_must_be_played_again(
    page: Page, address: str, clinic: Clinic
) -> None:
    desk = Desk(page, address, clinic)
    desk.ears.set_up_desk()
    desk.play_and_miss()
    expect(page.locator("#tones tbody tr")).to_have_count(1)
    desk.play()
    page.locator("[data-action=undo]").click()
    expect(page.locator("#message")).to_contain_text("undone")
    expect(page.locator("#heard")).to_be_disabled()
    desk.play()


def test_a_refused_set_up_says_why_and_starts_over(
    page: Page, address: str, clinic: Clinic
) -> None:
    desk = Desk(page, address, clinic)
    refusal = {"detail": "The calibration has changed."}
    page.route("**/ready", lambda route: route.fulfill(status=409, json=refusal))
    desk.ears.at("headphones")
    desk.ears.do("next")
    desk.ears.check_ears_and_volume()
    expect(page.locator("#problem")).to_contain_text("The calibration has changed.")
    expect(page.locator("#headphones")).to_be_visible()
    page.unroute("**/ready")
    desk.ears.set_up_desk()


def test_what_must_be_mended_stands_in_the_desks_set_up(
    page: Page, address: str, clinic: Clinic
) -> None:
    def add_problem(route: Route) -> None:
        exam = route.fetch().json()
        exam["play"]["problem"] = "Turn the volume down."
        route.fulfill(json=exam)

    page.route(re.compile(r"/api/exams/[^/]+$"), add_problem)
    desk = Desk(page, address, clinic)
    desk.ears.at("headphones")
    expect(page.locator("#set-up")).to_contain_text("Turn the volume down.")


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_the_set_up_of_the_desk_can_be_used_by_everybody(
    page: Page, address: str, clinic: Clinic, size: ViewportSize
) -> None:
    page.set_viewport_size(size)
    desk = Desk(page, address, clinic)
    desk.ears.at("headphones")
    look_at_everything(page)
    desk.ears.do("next")
    desk.ears.at("sides")
    look_at_everything(page)
    while page.locator("#sides").is_visible():
        desk.ears.tell_the_side()
    look_at_everything(page)


def test_a_file_is_looked_at_explained_and_imported(
    page: Page, address: str, tmp_path: Path
) -> None:
    file = tmp_path / "alt.csv"
    file.write_text(
        "Nummer;Untersucht;right_500;right_1000;right_2000;right_3000;right_4000\n"
        "I-1;02.01.2020;5,0;10;15;20;25\n"
        "I-2;02.01.2020;5,0;10;15;nichts;25\n"
        "I-3;02.01.2020;5,0;10;15;seltsam;25\n"
    )
    sign_in(page, address, "bob")
    page.goto(f"{address}/import")
    page.get_by_label("File", exact=True).set_input_files(file)
    show = page.get_by_role("button", name="Show what it would do")
    page.get_by_label("Nummer", exact=True).select_option("person's code")
    page.get_by_label("Untersucht", exact=True).select_option("date of the test")
    show.click()
    outcome = page.locator("#outcome")
    expect(outcome).to_contain_text("can be imported: 0. Rejected rows: 3")
    expect(outcome).to_contain_text("'02.01.2020' may begin with the day or the month")
    expect(page.get_by_role("button", name="Import now")).to_be_hidden()
    page.get_by_label("Dates begin with the day").check()
    page.get_by_label("Numbers have a decimal comma").check()
    page.get_by_text("Codes and levels").click()
    page.get_by_label("Codes for not tested").fill("nichts")
    page.get_by_label("Time zone of the file").fill("Europe/Vienna")
    show.click()
    expect(outcome).to_contain_text("can be imported: 2. Rejected rows: 1")
    expect(outcome).to_contain_text("'seltsam' is neither a number")
    page.get_by_role("button", name="Import now").click()
    expect(outcome).to_contain_text("Nothing is stored yet")  # the rejected row must be agreed to
    page.get_by_label("Leave the rejected rows out").check()
    page.get_by_role("button", name="Import now").click()
    expect(outcome).to_contain_text("Audiograms added: 2")
    outcome.get_by_role("link", name="I-1").click()
    expect(page.locator("#exams")).to_contain_text("2020-01-02")


def test_a_roster_is_looked_at_before_it_changes_anything(
    page: Page, address: str, clinic: Clinic, tmp_path: Path
) -> None:
    known = clinic.post("/api/people", {"code": "R-1", "name": "Rosa Known"})["id"]
    file = tmp_path / "roster.csv"
    file.write_text("Kennung,name,dept\nR-1,Rosa Known,Press shop\nR-2,Rolf New,Office\n")
    sign_in(page, address, "bob")
    page.goto(f"{address}/import")
    page.get_by_label("A roster").check()
    page.get_by_label("File", exact=True).set_input_files(file)
    page.get_by_label("Kennung", exact=True).select_option("code")
    page.get_by_role("button", name="Show what it would do").click()
    outcome = page.locator("#outcome")
    expect(outcome).to_contain_text("New: 1. Changed: 1. The same: 0. Rejected rows: 0.")
    expect(outcome).to_contain_text("Press shop")
    expect(outcome.get_by_role("table", name="Stored, but not in the file")).to_be_visible()
    page.set_viewport_size(PHONE)
    look_at_everything(page)
    assert clinic.get(f"/api/people/{known}")["department"] is None
    # Somebody else changes the same person meanwhile: what was shown is no longer what would be.
    clinic.post(f"/api/people/{known}/correct", {"job": "fitter", "reason": "test"})
    page.get_by_role("button", name="Import now").click()
    expect(page.locator("#problem")).to_contain_text("look at it once more")
    page.get_by_role("button", name="Show what it would do").click()
    expect(outcome).to_contain_text("Nothing is stored yet")
    page.get_by_role("button", name="Import now").click()
    expect(outcome).to_contain_text("Added: 1. Changed: 1.")
    assert clinic.get(f"/api/people/{known}")["department"] == "Press shop"


def test_all_booths_are_seen_at_once_and_a_lost_connection_comes_back(
    page: Page, address: str, clinic: Clinic
) -> None:
    exams = {}
    for name in ("booth 1", "booth 2"):
        device = clinic.post("/api/devices", {"name": name})["id"]
        person = clinic.person(f"In {name}", name, references=("right",))
        exams[name] = clinic.begin(person, device=device)["exams"][0]["id"]
    sign_in(page, address, "bob")
    page.goto(f"{address}/booths")
    first = page.locator(".booths .card").filter(has_text="In booth 1")
    expect(first).to_contain_text("0 of at most")
    expect(page.locator(".booths .card").filter(has_text="In booth 2")).to_be_visible()
    page.route("**/api/booths/live", lambda route: route.fulfill(status=502, body="bad gateway"))
    expect(page.locator("#problem")).to_contain_text("not responding")
    page.unroute("**/api/booths/live")
    clinic.answer(exams["booth 1"], ear(REFERENCE), most=1)
    expect(first).to_contain_text("1 of at most")
    expect(page.locator("#message")).to_contain_text("connection is back")
    clinic.post(f"/api/exams/{exams['booth 2']}/abandon", {"reason": "test"})
    expect(page.locator("#finished")).to_contain_text("In booth 2")


def test_visits_are_exported_by_day(page: Page, address: str, clinic: Clinic) -> None:
    sign_in(page, address, "bob")
    page.goto(f"{address}/import")
    page.get_by_label("From").fill("2001-01-01")
    page.get_by_label("To", exact=True).fill("2001-12-31")
    page.get_by_role("button", name="Export").click()
    expect(page.locator("#problem")).to_contain_text("no visits in these days")
    page.get_by_label("To", exact=True).fill("")
    with page.expect_download() as begun:
        page.get_by_role("button", name="Export").click()
    assert begun.value.suggested_filename.startswith("visits-csv-")


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


def test_the_whole_worklist_is_filtered_and_a_verdict_closed(
    page: Page, address: str, clinic: Clinic
) -> None:
    person = clinic.person("Lin Closed", "W-1", references=("right",))
    screen = clinic.begin(person, ears=["right"])
    clinic.answer(screen["exams"][0]["id"], ear(REFERENCE, worse_db=30))
    sign_in(page, address, "ada")
    page.goto(f"{address}/worklist")
    page.get_by_label("Reason", exact=True).select_option("audiogram")
    changed = "Full audiogram after a change"
    row = page.locator("#work tbody tr", has_text="Lin Closed").filter(has_text=changed)
    expect(row).to_have_count(1)
    expect(page.locator("#work tbody tr", has_not_text=changed)).to_have_count(0)
    row.get_by_role("button", name="Close").click()
    page.get_by_label("Reason, and who decided").fill("wax, Dr K")
    page.get_by_role("button", name="Close the verdict").click()
    expect(page.locator("#message")).to_contain_text("The verdict is closed.")
    expect(row).to_have_count(0)
    with page.expect_download() as saved:
        page.get_by_role("link", name="Save as CSV").click()
    assert saved.value.suggested_filename.startswith("worklist-")
    page.goto(f"{address}/settings")
    card = page.locator("section", has_text="After a screen that decided nothing")
    card.get_by_text("Change", exact=True).click()
    card.get_by_label("New value").fill("14")
    card.get_by_label("Reason").fill("our physician")
    card.get_by_role("button", name="Save").click()
    expect(card).to_contain_text("14 days")
    expect(card).to_contain_text("our physician")
    page.goto(f"{address}/programme")
    expect(page.locator("#programme tbody tr").last).to_contain_text("Everybody")


def test_a_deep_link_and_a_note_survive_the_end_of_a_session(
    page: Page, address: str, clinic: Clinic
) -> None:
    person = clinic.person("Noted", "note-1")
    page.goto(f"{address}/people/{person}?from=mail")
    page.get_by_label("User name").fill("bob")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{address}/people/{person}?from=mail")
    page.wait_for_load_state("networkidle")
    page.locator("#text").fill("Half a tho")
    page.context.clear_cookies()
    page.get_by_role("button", name="Add note").click()
    page.get_by_label("User name").fill("bob")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#text")).to_have_value("Half a tho")
    page.wait_for_load_state("networkidle")
    page.get_by_role("button", name="Add note").click()
    expect(page.locator("#notes")).to_contain_text("Half a tho")
    page.reload()
    expect(page.locator("#text")).to_have_value("")
    for elsewhere in ("https://elsewhere.example/", "//elsewhere.example/"):
        page.goto(f"{address}/login?next={elsewhere}")
        page.get_by_label("User name").fill("bob")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        expect(page).to_have_url(f"{address}/")
    page.goto(f"{address}/login?next=/.//elsewhere.example/")
    page.get_by_label("User name").fill("bob")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{address}//elsewhere.example/")  # a page that is not here


def test_messages_move_nothing(page: Page, address: str, past: dict[str, str]) -> None:
    sign_in(page, address, "bob")
    settled(page, f"{address}/import")
    place = "document.getElementById('import').offsetTop"
    before = page.evaluate(place)
    page.get_by_label("From").fill("2001-01-01")
    page.get_by_label("To", exact=True).fill("2001-12-31")
    page.get_by_role("button", name="Export").click()
    expect(page.locator("#problem p")).to_be_visible()
    assert page.evaluate(place) == before
    page.get_by_role("button", name="Close this message").click()
    expect(page.locator("#problem p")).to_have_count(0)


def test_the_audit_reads_newest_first_in_words(page: Page, address: str, clinic: Clinic) -> None:
    person = clinic.person("Audited", "audit-1", references=("right", "left"))
    clinic.get(f"/api/people/{person}")
    booths = [clinic.begin(person, ears=[side])["exams"][0]["id"] for side in ("right", "left")]
    for _ in range(3):  # two booths at once
        for exam in booths:
            clinic.answer(exam, ear(REFERENCE), most=1)
    sign_in(page, address, "ada")
    page.goto(f"{address}/audit")
    entries = page.locator("#entries tbody tr")
    newest = entries.locator("td:nth-of-type(2)")
    expect(entries.first).to_contain_text("ada")  # who has just signed in
    expect(newest.filter(has_text="signed in").first).to_have_text("signed in with a new browser")
    expect(page.locator("#entries")).not_to_contain_text(re.compile(r"(test|answer|user) \d"))
    page.get_by_role("textbox", name="Who", exact=True).fill("bob")
    page.get_by_role("textbox", name="Person").fill("audit-1")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(newest.filter(has_text="answers")).to_have_text(
        [
            "added 3 answers in the screen of the left ear of person audit-1",
            "added 3 answers in the screen of the right ear of person audit-1",
        ]
    )
    expect(newest.filter(has_text="looked at person audit-1")).to_have_count(1)
    expect(page.locator("#entries")).not_to_contain_text("ada")
    said = newest.filter(has_text="3 answers in the screen of the left ear")
    expect(said.get_by_role("link").first).to_have_attribute("href", f"/exams/{booths[1]}")
    expect(said.get_by_role("link").last).to_have_attribute("href", f"/people/{person}")
    page.get_by_label("To", exact=True).fill("2001-12-31")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("#entries")).to_have_text("No entries.")
    page.get_by_role("textbox", name="Person").fill("nobody has this")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("#person-found")).to_have_text("Nobody here has this code or name.")


def test_users_are_added_and_changed(page: Page, address: str) -> None:
    sign_in(page, address, "ada")
    page.goto(f"{address}/users")
    page.locator("#new").get_by_label("User name").fill("cleo")
    page.get_by_label("First password").fill(PASSWORD)
    page.get_by_role("button", name="Add user").click()
    page.get_by_role("button", name="Change cleo").click()
    page.locator("#change").get_by_label("Status").select_option("disabled")
    page.locator("#change").get_by_label("Reason").fill("left the clinic")
    page.get_by_role("button", name="Save changes").click()
    expect(page.locator("#list tr", has_text="cleo")).to_contain_text("disabled")
    page.goto(f"{address}/account")
    page.get_by_label("Purpose").fill("export")
    page.get_by_role("button", name="Create token").click()
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


def test_a_test_that_ends_while_it_is_looked_at_is_shown_whole(
    page: Page, address: str, past: dict[str, str]
) -> None:
    """Its verdict was asked for before the end, and what can be done next after it."""
    asked = 0

    def before_the_end(route: Route) -> None:
        nonlocal asked
        asked += 1
        told = route.fetch()
        route.fulfill(response=told, json={**told.json(), "state": "open"})

    sign_in(page, address, "bob")
    page.route("**/live", before_the_end, times=1)
    page.goto(address + past["decided"])
    expect(page.get_by_role("button", name="Continue to a full exam")).to_be_visible()
    assert page.locator("#verdict .badge.open").count() == 0
    expect(page.locator("#verdict .badge")).to_contain_text("Changed")
    assert asked == 1


# How the pages look


PAGES = [
    "login", "today", "person", "new person", "begin", "decided", "under way", "review", "rooms",
    "devices", "device", "daily check", "worklist", "programme", "settings", "import", "booths",
    "try", "about", "docs", "users", "audit", "account", "nowhere",
]  # fmt: skip


def test_every_page_is_looked_at(past: dict[str, str]) -> None:
    """A page that is added to the app is added to what is looked at here."""
    assert set(PAGES) == set(past)
    looked_at = {address.rstrip("/") for address in past.values()}
    for path in (*EXAMINER_PAGES, *ADMIN_PAGES):
        pattern = re.escape(path.rstrip("/")).replace(r"\{handle\}", "[^/]+")
        assert any(re.fullmatch(pattern, one) for one in looked_at), path


def look_at_everything(page: Page) -> None:
    """Nothing serious for axe, and nothing wider than the screen: who scrolls a table sideways
    does not know what is there."""
    too_wide = """[document.documentElement, ...document.querySelectorAll(".scroll")]
      .filter((box) => box.checkVisibility() && box.scrollWidth > box.clientWidth)
      .map((box) => box.innerText.slice(0, 80))"""
    assert page.evaluate(too_wide) == []
    found = Axe().run(page).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert not serious, [(one["id"], one["nodes"][0]["html"]) for one in serious]


@pytest.mark.parametrize("name", PAGES)
def test_every_page_can_be_used_by_everybody(
    signed_in: Page, address: str, past: dict[str, str], complaints: list[str], name: str
) -> None:
    """No serious finding of axe, nothing wider than a phone, no complaint of the browser."""
    for size in (DESK, PHONE):
        signed_in.set_viewport_size(size)
        settled(signed_in, address + past[name])
        look_at_everything(signed_in)
    signed_in.emulate_media(color_scheme="dark", reduced_motion="reduce")  # at once
    look_at_everything(signed_in)
    signed_in.emulate_media(color_scheme="light")
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


def test_tones_given_again_are_counted_at_their_own_frequency(
    signed_in: Page, address: str
) -> None:
    signed_in.goto(f"{address}/login")
    answers = [trial("tone", 15, heard=heard) for heard in (False, False, False, True, False)]
    draw(signed_in, {"ear": "right", "unit": "dB HL", "trials": answers})
    marks = signed_in.locator("main .picture .tone")
    expect(marks).to_have_count(2)
    left, right = sorted(map(place_of, marks.all()), key=lambda box: box["x"])
    assert 0 < right["x"] - left["x"] < left["width"]  # both answers can be seen, at one frequency
    expect(signed_in.locator("main .picture .times")).to_have_text("×4")
    expect(signed_in.locator("main .legend")).to_contain_text("given that often")


def place_of(mark: Locator) -> FloatRect:
    box = mark.bounding_box()
    assert box is not None
    return box


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
        rows = signed_in.locator(".numbers tbody tr").all_text_contents()
        assert len(rows) == 4
        assert "no response at 90" in rows[-1]


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


def test_what_was_not_tested_does_not_look_tested(signed_in: Page, address: str) -> None:
    signed_in.goto(f"{address}/login")
    twice = [trial("tone", 20, heard=True), trial("tone", 20, heard=False)]
    levels = [reading(500, 10), reading(1000, 20), reading(2000, 40)]
    data: dict[str, object] = {
        "ear": "right", "unit": "dB HL", "thresholds": levels, "tested_hz": [1000],
        "reference": levels, "reference_tested_hz": [500, 1000], "trials": twice,
    }  # fmt: skip
    draw(signed_in, data)
    picture = signed_in.locator(".picture svg")
    assert picture.locator(".now circle").count() == 1
    assert picture.locator(".now line").count() == 2
    assert picture.locator(".reference circle").count() == 2
    places = [mark.get_attribute("points") for mark in picture.locator(".tone").all()]
    middles = {(points or "").split(" ")[2].split(",")[0] for points in places}
    assert len(middles) == 2  # the same tone twice, side by side


def test_the_verdict_is_a_sentence_then_a_picture_then_the_rest(
    signed_in: Page, address: str, past: dict[str, str]
) -> None:
    signed_in.set_viewport_size(DESK)
    settled(signed_in, address + past["decided"])
    sentence = signed_in.locator("#verdict .sentence").text_content() or ""
    assert re.fullmatch(
        r"Right ear: average at 2-4 kHz is \d+ to \d+ dB worse than in \d{4} \(rule: 10 dB\)\. "
        r"Probability [\d.]+ %, \d+ tones\.",
        sentence,
    )
    shifts = signed_in.locator("#shifts .picture svg")
    expect(shifts).to_be_visible()
    assert shifts.locator(".interval.amount").count() == 1
    assert shifts.locator(".interval.tested .middle").count() >= 1
    assert shifts.locator(".limit").count() == 4  # over the average and its three frequencies
    expect(shifts).to_contain_text("10 dB")
    tops = [
        (signed_in.locator(place).bounding_box() or {"y": 0.0})["y"]
        for place in ("#verdict .sentence", "#shifts .picture", "#counts")
    ]
    assert tops == sorted(tops)
    for paper in ("a4", "letter"):
        with signed_in.expect_download() as saved:
            name = {"a4": "PDF, A4", "letter": "PDF, US Letter"}[paper]
            signed_in.get_by_role("link", name=name).click()
        assert Path(saved.value.path()).read_bytes().startswith(b"%PDF")


def test_a_persons_page_says_the_verdict_and_draws_baseline_against_now(
    signed_in: Page, address: str, past: dict[str, str]
) -> None:
    settled(signed_in, address + past["person"])
    expect(signed_in.locator("#exams")).to_contain_text("Right ear: average at 2-4 kHz is")
    against = signed_in.locator("#history .audiogram.right:has(.now):has(.reference)").first
    expect(against).to_be_visible()
    levels = signed_in.locator("#history .chart.right").first
    expect(levels).to_contain_text("3000 Hz")
    assert levels.locator("polyline.line").count() == len(REFERENCE)  # every frequency has its line
    assert levels.locator(".dot.open").count() >= 1  # from the screen


def test_the_site_gets_its_name(signed_in: Page, address: str) -> None:
    settled(signed_in, f"{address}/settings")
    card = signed_in.locator("section.card", has_text="The site's name")
    expect(card.locator(".setting")).to_have_text("not given")
    card.locator("summary").click()
    card.get_by_label("New value").fill("Example Works")
    card.get_by_label("Reason").fill("as on our letters")
    card.get_by_role("button").click()
    expect(card.locator(".setting")).to_have_text("Example Works")
