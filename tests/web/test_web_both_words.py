"""Each ear of a sitting has its own last word, and what was typed survives the end of a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from earshift.web import Settings, create_app
from support.browser import browser, page, playwright, served
from support.clinic_day import BROWSER, EXTERNAL, REFERENCE, Clinic, ear
from support.web import PASSWORD, with_users

__all__ = ["browser", "page", "playwright"]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    db = str(tmp_path_factory.mktemp("words") / "clinic.db")
    with_users(db)
    with served(create_app(Settings(db=db))) as address:
        yield address


@pytest.fixture(scope="module")
def clinic(address: str) -> Iterator[Clinic]:
    with Clinic(address) as clinic:
        yield clinic


def enter(page: Page, name: str) -> None:
    page.get_by_label("User name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def sign_in(page: Page, address: str, name: str) -> None:
    page.goto(f"{address}/login")
    enter(page, name)
    expect(page).to_have_url(f"{address}/")


def test_one_ear_is_closed_and_reopened(page: Page, address: str, clinic: Clinic) -> None:
    person = clinic.person("Cora Closed", "W-1", references=("right", "left"))
    test = clinic.begin(person, ears=["both"])
    clinic.answer(test["exams"][0]["id"], ear(REFERENCE, worse_db=35))
    sign_in(page, address, "rea")
    page.goto(f"{address}/worklist?")
    page.get_by_label("Reason", exact=True).select_option("audiogram")
    row = page.locator("#work tbody tr", has_text="Cora Closed")
    expect(row).to_have_count(1)  # the others of the list before are gone
    expect(row).to_contain_text("Both ears")
    # Over the API one ear alone; the other stays, and the page closes what its line says.
    with Clinic(address, "rea") as reviewer:
        exam = test["exams"][0]["id"]
        reviewer.post(f"/api/exams/{exam}/close", {"reason": "wax, Dr K", "ears": ["left"]})
    page.get_by_label("Reason", exact=True).select_option("review")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("Right ear")
    top = row.bounding_box()
    row.get_by_role("button", name="Close").click()
    assert row.bounding_box() == top  # a second click hits nothing that slid under it
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Cora Closed")
    expect(dialog).to_contain_text("right ear")
    dialog.get_by_label("Reason, and who decided").fill("  ")
    dialog.get_by_role("button", name="Close the verdict").click()
    expect(dialog.get_by_role("alert")).to_contain_text("needs a reason")
    dialog.get_by_label("Reason, and who decided").fill("cold, Dr K")
    dialog.get_by_role("button", name="Close the verdict").click()
    expect(page.locator("#message")).to_contain_text("The verdict is closed.")
    expect(row).to_have_count(0)
    page.goto(f"{address}/visits/{test['visit']}/review")
    closed = page.locator("#exams")
    expect(closed).to_contain_text("Right ear: closed by rea")
    expect(closed).to_contain_text("wax, Dr K")
    closed.locator("p", has_text="Left ear").get_by_role("button", name="Reopen").click()
    page.get_by_label("Reason, and who decided").fill("it was not wax")
    page.get_by_role("button", name="Reopen the verdict").click()
    expect(page.locator("#message")).to_contain_text("open again")
    expect(closed).not_to_contain_text("Left ear: closed")
    listed = clinic.get("/api/worklist?why=review")["items"]
    assert [one["ears"] for one in listed if one["person"]["id"] == person] == [["left"]]


def test_work_is_said_of_one_ear(page: Page, address: str, clinic: Clinic, tmp_path: Path) -> None:
    person = clinic.person("Wim Work", "W-2", references=("right", "left"))
    body = {"kind": "exam", "ears": ["both"], "practice": False}
    test = clinic.post(f"/api/people/{person}/tests", body)
    clinic.answer(test["exams"][0]["id"], ear(REFERENCE, worse_db=40))
    sign_in(page, address, "rea")
    page.goto(f"{address}/visits/{test['visit']}/review")
    expect(page.locator("#shift option")).to_have_text(["Right ear", "Left ear"])
    page.locator("#shift").select_option(label="Left ear")
    page.locator("#related").select_option("no")
    page.locator("#work_name").fill("Dr Rea")
    page.locator("#work_reason").fill("a burst eardrum")
    page.get_by_role("button", name="Save the answer").click()
    expect(page.locator(".finding.left")).to_contain_text("not related to work, says Dr Rea")
    expect(page.locator(".finding.right")).to_contain_text("nobody has said")


def test_what_was_typed_goes_through_the_sign_in(page: Page, address: str, clinic: Clinic) -> None:
    person = clinic.person("Tess Typed", "W-3")
    sign_in(page, address, "bob")
    page.goto(f"{address}/people/{person}")
    page.wait_for_load_state("networkidle")
    page.get_by_text("Enter an audiogram").click()
    for hertz, level in (("500", "15"), ("4000", "45")):
        page.locator(f"#hz-{hertz}").fill(level)
    page.get_by_label("No response at 8000 Hz").check()
    page.locator("#reference").get_by_label("Left ear").check()
    page.locator("#source").fill("paper of 2019")
    page.context.clear_cookies()
    page.get_by_role("button", name="Save reference").click()
    expect(page.get_by_label("User name")).to_be_visible()
    enter(page, "bob")
    expect(page).to_have_url(f"{address}/people/{person}")
    expect(page.locator("#hz-4000")).to_have_value("45")
    expect(page.locator("#hz-4000")).to_be_visible()
    expect(page.locator("#source")).to_have_value("paper of 2019")
    expect(page.locator("#reference").get_by_label("Left ear")).to_be_checked()
    expect(page.get_by_label("No response at 8000 Hz")).to_be_checked()
    page.get_by_label("No response at 8000 Hz").uncheck()
    page.get_by_role("button", name="Save reference").click()
    expect(page.locator("#message")).to_contain_text("Reference saved")
    page.reload()
    page.wait_for_load_state("networkidle")
    expect(page.locator("#hz-4000")).to_have_value("")


def test_what_one_typed_is_not_shown_to_another(page: Page, address: str, clinic: Clinic) -> None:
    person = clinic.person("Vic Private", "W-4")
    sign_in(page, address, "bob")
    page.goto(f"{address}/people/{person}")
    page.wait_for_load_state("networkidle")
    page.locator("#text").fill("bob's half a thought")
    page.context.clear_cookies()
    page.get_by_role("button", name="Add note").click()
    expect(page.get_by_label("User name")).to_be_visible()
    enter(page, "rea")
    expect(page).to_have_url(f"{address}/people/{person}")
    page.wait_for_load_state("networkidle")
    expect(page.locator("#text")).to_have_value("")
    assert page.evaluate("sessionStorage.getItem('typed')") is None


def test_a_form_filled_in_by_the_page_gets_back_what_was_chosen(
    page: Page, address: str, clinic: Clinic
) -> None:
    person = clinic.person("Cleo Checklist", "W-5", references=("right", "left"))
    sign_in(page, address, "bob")
    page.goto(f"{address}/people/{person}/test")
    page.wait_for_load_state("networkidle")
    page.get_by_label("Left ear", exact=True).check()
    page.get_by_label("Rule for change").select_option("niosh-15")
    page.get_by_label("Remarks").fill("speaks little English")
    page.context.clear_cookies()
    page.get_by_role("button", name="Start the test").click()
    expect(page.get_by_label("User name")).to_be_visible()
    enter(page, "bob")
    expect(page.get_by_label("Remarks")).to_have_value("speaks little English")
    expect(page.get_by_label("Left ear", exact=True)).to_be_checked()
    expect(page.get_by_label("Rule for change")).to_have_value("niosh-15")
    expect(page.locator("#references")).not_to_contain_text("Right ear")


def test_the_form_says_why_both_ears_cannot_be_chosen(
    page: Page, address: str, clinic: Clinic
) -> None:
    person = clinic.person("Una Uncalibrated", "W-6", references=("right", "left"))
    tablet, booth = (clinic.post("/api/devices", one)["id"] for one in (BROWSER, EXTERNAL))
    sign_in(page, address, "bob")
    page.goto(f"{address}/people/{person}/test")
    page.wait_for_load_state("networkidle")
    both, why = page.get_by_label("Both ears in one sitting"), page.locator("#one-by-one")
    page.get_by_label("Device", exact=True).select_option(tablet)
    expect(both).to_be_disabled()
    expect(why).to_be_visible()
    page.get_by_label("Device", exact=True).select_option(booth)
    expect(both).to_be_enabled()
    expect(why).to_be_hidden()


def test_the_quiet_hours_are_the_sites(page: Page, address: str, clinic: Clinic) -> None:
    person = clinic.person("Quin Quiet", "W-7", references=("right",))
    with Clinic(address, "ada") as admin:
        settled = {"value": 16, "reason": "our physician"}
        admin.post("/api/settings/baseline_quiet_hours", settled)
    sign_in(page, address, "bob")
    page.goto(f"{address}/people/{person}/test")
    expect(page.locator("#hours_since_noise-hint")).to_have_text(
        "A baseline needs at least 16 hours."
    )
    page.get_by_label("Hours since noise at work").fill("15")
    page.get_by_label("Remarks").focus()
    expect(page.locator("#warnings")).to_contain_text("Less than 16 hours")
    page.get_by_label("Hours since noise at work").fill("16")
    page.get_by_label("Remarks").focus()
    expect(page.locator("#warnings")).not_to_contain_text("hours since noise")
