"""Review and sign-off over the API and in a real browser."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from test_web_clinic import ZONE, Desk
from test_web_schema import THRESHOLDS

from earshift.days import today
from earshift.web import Settings, create_app
from support.browser import served
from support.web import PASSWORD, client_of, sign_in, with_users


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    db = str(tmp_path_factory.mktemp("review") / "clinic.db")
    with_users(db)
    return Settings(db=db, zone=ZONE)


@pytest.fixture(scope="module")
def desk(settings: Settings) -> Iterator[Desk]:
    with client_of(settings) as client:
        yield Desk(client)


def become(desk: Desk, name: str) -> None:
    desk.client.cookies.clear()
    desk.headers = sign_in(desk.client, name)


def shifted(desk: Desk, code: str) -> dict[str, Any]:
    """The second of two typed audiograms, 20 dB worse."""
    person = desk.post("/people", {"code": code, "name": f"Name of {code}"}, 201)["id"]
    for day, worse in (("2024-03-01", 0), ("2025-03-01", 20)):
        levels = {hertz: level + worse for hertz, level in THRESHOLDS.items()}
        body = {"ear": "right", "thresholds": levels, "measured_on": day, "source": "paper"}
        exam: dict[str, Any] = desk.post(f"/people/{person}/audiograms", body, 201)
    return {**exam, "person": person}


def signature(desk: Desk, visit: str, **changes: Any) -> dict[str, Any]:
    shown = desk.get(f"/visits/{visit}/review")
    signed = {"name": "Dr Rea", "meaning": "approved", "seen": shown["seen"]}
    return {**signed, "password": PASSWORD, **changes}


def test_a_visit_is_reviewed_signed_and_followed_up(desk: Desk) -> None:
    become(desk, "bob")
    exam = shifted(desk, "S1")
    visit = f"/visits/{exam['visit']}"
    shown = desk.get(f"{visit}/review")
    assert [one["decision"] for one in shown["findings"]] == ["changed"]
    assert "20 dB worse than at the baseline of 2024-03-01" in shown["findings"][0]["sentences"][0]
    assert (shown["signatures"], shown["letter"], shown["obstacle"]) == ([], False, "")
    desk.post(f"{visit}/sign", signature(desk, exam["visit"]), 403)
    word = {"related": True, "name": "Dr Rea", "reason": "exposed"}
    desk.post(f"/exams/{exam['id']}/work-related", word, 403)
    desk.post(f"/exams/{exam['id']}/close", {"reason": "x"}, 403)
    assert "follows from the signature" in desk.get(f"{visit}/letter.html", 409)["detail"]

    become(desk, "rea")
    desk.post(f"/exams/{exam['id']}/work-related", word, 201)
    sent = signature(desk, exam["visit"])
    signed = desk.post(f"{visit}/sign", sent, 201)
    (one,) = signed["signatures"]
    assert (one["name"], one["meaning"], one["author"]) == ("Dr Rea", "approved", "rea")
    assert signed["letter_by"] == str(today(ZONE) + timedelta(days=21))
    # Another reviewer who read the page before: nothing is signed over what is there.
    again = desk.post(f"{visit}/sign", sent, 409)
    assert "signed by another meanwhile" in again["detail"]
    wrong = {**sent, "amends": "0" * 64}
    assert "not one of this visit" in desk.post(f"{visit}/sign", wrong, 409)["detail"]
    amended = {**sent, "amends": one["sha256"], "reason": "spelling"}
    assert len(desk.post(f"{visit}/sign", amended, 201)["signatures"]) == 2

    become(desk, "bob")
    letter = desk.client.get(f"/api{visit}/letter.pdf", params={"paper": "letter"})
    assert letter.content.startswith(b"%PDF")
    assert "Dear Name of S1," in desk.client.get(f"/api{visit}/letter.html").text
    report = desk.client.get(f"/api{visit}/report.html").text
    assert "Electronically signed by Dr Rea, approved" in report
    assert "Recordable on the OSHA 300 log (29 CFR 1904.10): yes" in report
    lines = desk.get("/worklist?why=letter")["items"]
    assert [line["person"]["code"] for line in lines] == ["S1"]
    done = {"kind": "letter", "done_on": str(today(ZONE)), "done_by": "Ms W"}
    desk.post(f"{visit}/follow-ups", done, 201)
    assert desk.get("/worklist?why=letter")["items"] == []
    newest, _ = desk.get(f"/people/{exam['person']}/reviews")
    assert [one["kind"] for one in newest["follow_ups"]] == ["letter"]
    assert newest["signature"]["meaning"] == "approved"
    counted = desk.get("/programme")["everybody"]
    assert (counted["letters"], counted["referrals"]) == (1, 0)
    first, *_ = desk.client.get("/api/programme.csv").text.splitlines()
    assert first.endswith("letters,protectors,trainings,referrals")


def test_the_checklist_speaks_beside_the_verdict(desk: Desk) -> None:
    become(desk, "bob")
    answers = {"otoscopy_right": "wax", "hours_since_noise": 3}
    test = desk.supervised(checklist=answers)
    said = ["Right ear: earwax", "Less than 14 hours since noise"]
    for shown in (
        desk.post("/checklist/cautions", answers),
        desk.get(f"/exams/{test['exams'][0]['id']}")["cautions"],
        desk.get(f"/visits/{test['visit']}/review")["cautions"],
    ):
        assert [text[: len(part)] for text, part in zip(shown, said, strict=True)] == said


def test_a_reviewer_sees_each_ear_beside_its_baseline(desk: Desk) -> None:
    become(desk, "bob")
    exam = shifted(desk, "S11")
    (ear,) = desk.get(f"/visits/{exam['visit']}/review")["ears"]
    assert (ear["ear"], ear["kind"], ear["exam"]) == ("right", "audiogram", exam["id"])
    assert (ear["on"], ear["reference_on"]) == ("2025-03-01", "2024-03-01")
    now, before = (
        {f"{one['frequency_hz']:g}": one["level"] for one in ear[name]}
        for name in ("thresholds", "reference")
    )
    assert before == THRESHOLDS
    assert now == {hertz: level + 20 for hertz, level in THRESHOLDS.items()}
    assert {one["shift"] for one in ear["shifts"]} == {20}
    assert all(one["low"] is None for one in ear["thresholds"])  # nobody knows an interval


def test_a_screen_is_reviewed_beside_its_reference(desk: Desk) -> None:
    become(desk, "bob")
    person = desk.person(code="S12")
    desk.reference(person)
    test = desk.test(person)
    (exam,) = test["exams"]
    for _ in range(3):
        trial = desk.get(f"/exams/{exam['id']}")["play"]["presentation"]["trial"]
        desk.post(f"/exams/{exam['id']}/answer", {"trial": trial, "heard": True})
    assert desk.get(f"/visits/{test['visit']}/review")["ears"] == []  # it is still going on
    desk.post(f"/exams/{exam['id']}/finish")
    (ear,) = desk.get(f"/visits/{test['visit']}/review")["ears"]
    assert (ear["kind"], ear["reference_on"]) == ("screen", "2025-05-05")
    assert ear["tested_hz"]
    assert ear["shifts"]
    assert all(one["low"] < one["high"] for one in ear["thresholds"])


def test_whether_a_shift_is_related_to_work_has_to_be_said(desk: Desk) -> None:
    become(desk, "rea")
    exam = shifted(desk, "S10")
    desk.post(f"/exams/{exam['id']}/work-related", {"name": "Dr Rea", "reason": "exposed"}, 422)
    (found,) = desk.get(f"/visits/{exam['visit']}/review")["findings"]
    assert found["work_related"] is None


def test_what_was_read_before_a_change_is_not_signed(desk: Desk) -> None:
    become(desk, "rea")
    exam = shifted(desk, "S2")
    sent = signature(desk, exam["visit"])
    desk.post(f"/people/{exam['person']}/correct", {"reason": "typing error", "name": "Other"})
    told = desk.post(f"/visits/{exam['visit']}/sign", sent, 409)
    assert "has changed since it was read" in told["detail"]
    assert desk.get(f"/visits/{exam['visit']}/review")["signatures"] == []


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "a\nb"},
        {"meaning": "looked at"},
        {"seen": "short"},
        {"amends": "x"},
        {"extra": 1},
    ],
)
def test_a_signature_that_is_none_is_refused(desk: Desk, changes: dict[str, Any]) -> None:
    become(desk, "rea")
    exam = shifted(desk, f"bad {sorted(changes.items())}")
    desk.post(f"/visits/{exam['visit']}/sign", signature(desk, exam["visit"], **changes), 422)
    assert desk.get(f"/visits/{exam['visit']}/review")["signatures"] == []


def test_room_noise_is_kept_and_checked(desk: Desk) -> None:
    become(desk, "bob")
    device = desk.post("/devices", {"name": "booth", "transducer": "insert"}, 201)["id"]
    day = today(ZONE)
    new = {"measured_on": str(day), "device": device, "levels": {"500": 51, "1000": 20}}
    desk.post("/rooms/noise", new, 201)
    (shown,) = desk.get("/rooms/noise")
    (check,) = shown["checks"]
    assert check["too_loud"]
    assert check["words"].startswith("TOO LOUD for insert earphones: 500 Hz 51 dB (limit 50)")
    for bad, status in (
        ({**new, "levels": {}}, 422),
        ({**new, "levels": {"500": 500}}, 422),
        ({**new, "levels": {"501": 30}}, 422),
        ({**new, "measured_on": str(day + timedelta(days=1))}, 422),
        ({**new, "device": "nowhere"}, 404),
    ):
        desk.post("/rooms/noise", bad, status)
    assert len(desk.get("/rooms/noise")) == 1


# In a browser


@pytest.fixture(scope="module")
def address(settings: Settings, desk: Desk) -> Iterator[str]:
    with served(create_app(settings)) as address:
        yield address


def enter(page: Page, address: str, name: str) -> None:
    page.goto(f"{address}/login")
    page.fill("#name", name)
    page.fill("#password", PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{address}/")


def confirm(page: Page) -> None:
    """Every signature asks for the password."""
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_role("button", name="Continue").click()


def test_nobody_signs_without_the_password_of_the_account(desk: Desk) -> None:
    become(desk, "bob")
    exam = shifted(desk, "S9")
    become(desk, "rea")
    for wrong in ("", "wrong wrong wrong"):
        sent = signature(desk, exam["visit"], password=wrong)
        assert desk.post(f"/visits/{exam['visit']}/sign", sent, 403)["code"] == "wrong-password"
    assert desk.get(f"/visits/{exam['visit']}/review")["signatures"] == []
    right = signature(desk, exam["visit"])
    assert len(desk.post(f"/visits/{exam['visit']}/sign", right, 201)["signatures"]) == 1


def test_a_reviewer_goes_from_the_worklist_to_the_letter(
    page: Page, address: str, desk: Desk, tmp_path: Path
) -> None:
    become(desk, "bob")
    shifted(desk, "P1")
    enter(page, address, "rea")
    page.goto(f"{address}/worklist")
    page.get_by_label("Reason", exact=True).select_option("review")
    page.get_by_role("row", name="P1").get_by_role("link", name="Review").click()
    expect(page.locator("#findings")).to_contain_text("a standard threshold shift")
    expect(page.get_by_text("Nobody has signed this visit.")).to_be_visible()
    compared = page.locator("#compared")
    expect(compared.get_by_role("img", name="Audiogram, Right ear")).to_be_visible()
    expect(compared.get_by_role("row", name="4000 Hz").first).to_contain_text("+20")
    sender = page.locator("#sender")
    expect(sender).to_contain_text("the letter would have no sender")
    expect(sender.get_by_role("link", name="Settings")).to_have_attribute("href", "/settings")
    page.locator("#sign").get_by_label("Printed name").fill("Dr Rea Wolf")
    # Meanwhile somebody stores something: it is not signed unseen, and what was typed stays.
    other = page.context.new_page()
    other.goto(page.url)
    other.locator("#work").get_by_label("Printed name").fill("Dr Rea Wolf")
    other.locator("#work").get_by_label("Reason").fill("exposed at 92 dBA")
    other.get_by_role("button", name="Save the answer").click()
    answer = other.locator("#work").get_by_label("Answer")
    expect(answer).to_have_value("")  # nobody answers by pressing the button alone
    expect(answer).to_be_focused()
    expect(other.locator("#work-said")).to_contain_text("nobody has answered yet")
    answer.select_option("yes")
    other.get_by_role("button", name="Save the answer").click()
    expect(other.get_by_text("The answer is saved.")).to_be_visible()
    expect(other.locator("#work-said")).to_contain_text("related to work, says Dr Rea Wolf")
    expect(answer).to_have_value("")
    other.close()
    page.get_by_role("button", name="Sign", exact=True).click()
    confirm(page)
    expect(page.locator("#problem")).to_contain_text("has changed since it was read")
    expect(page.locator("#findings")).to_contain_text("related to work, says Dr Rea Wolf")
    page.get_by_role("button", name="Sign", exact=True).click()
    confirm(page)
    expect(page.locator("#message")).to_contain_text("The visit is signed.")
    expect(page.locator("#signatures")).to_contain_text("Dr Rea Wolf, reviewed")
    expect(page.locator("#letter-sender")).to_contain_text("This letter has no sender")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Letter (PDF, A4)").click()
    saved = tmp_path / "letter.pdf"
    waiting.value.save_as(saved)
    assert saved.read_bytes().startswith(b"%PDF")
    page.locator("#follow").get_by_label("Done by").fill("Ms Weber")
    page.locator("#done_on").fill(str(today(ZONE)))
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_text("The person was told on")).to_be_visible()
    page.get_by_role("button", name="Take back").click()
    expect(page.get_by_text("The person is to be told in writing by")).to_be_visible()


def test_an_examiner_reads_and_does_not_sign(page: Page, address: str, desk: Desk) -> None:
    become(desk, "bob")
    exam = shifted(desk, "P2")
    enter(page, address, "bob")
    page.goto(f"{address}/visits/{exam['visit']}/review")
    expect(page.get_by_text("Only reviewers and administrators can sign.")).to_be_visible()
    expect(page.locator("#sign")).to_be_hidden()
    expect(page.locator("#work-card")).to_be_hidden()
    page.goto(f"{address}/people/{exam['person']}")
    expect(page.locator("#reviews")).to_contain_text("not signed")


def test_a_form_is_not_sent_before_its_script_listens(page: Page, address: str) -> None:
    enter(page, address, "bob")
    held: list[Route] = []
    page.route("**/static/rooms.js", lambda route: held.append(route))
    page.goto(f"{address}/rooms", wait_until="commit")
    save = page.get_by_role("button", name="Save")
    with pytest.raises(PlaywrightTimeout):  # nothing takes the click, so nobody thinks it was taken
        save.click(timeout=1000)
    while not held:
        page.wait_for_timeout(25)
    held[0].continue_()
    page.get_by_label("Room", exact=True).fill("quiet room")
    save.click()
    expect(page.locator("#problem")).to_be_visible()
    expect(page.get_by_label("Room", exact=True)).to_have_value("quiet room")


def test_room_noise_is_typed_in(page: Page, address: str) -> None:
    enter(page, address, "bob")
    page.goto(f"{address}/devices")
    page.get_by_role("link", name="Room noise").click()
    page.locator("#measured_on").fill(str(today(ZONE)))
    page.get_by_label("Room", exact=True).fill("quiet room")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#problem")).to_be_visible()
    expect(page.get_by_label("Room", exact=True)).to_have_value("quiet room")
    for band in (500, 1000, 2000, 4000, 8000):
        page.locator(f"#band-{band}").fill("30.5")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#message")).to_contain_text("saved")
    expect(page.locator("#list")).to_contain_text("within the limits for supra-aural earphones")
