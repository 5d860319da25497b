"""Both ears in one sitting, through the API and in a real browser."""

import io
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from pypdf import PdfReader

from support.clinic_day import REFERENCE, ear
from support.house import House, open_house
from support.web import PASSWORD

EARS = ("right", "left")
LEFT_WORSE = {"right": ear(REFERENCE), "left": ear(REFERENCE, worse_db=30)}


@pytest.fixture(scope="module")
def house(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with open_house(browser, tmp_path_factory.mktemp("both")) as house:
        yield house


@pytest.fixture(scope="module")
def screened(house: House) -> dict[str, Any]:
    """Somebody whose left ear has changed, screened at the desk in one sitting."""
    person = house.clinic.person("Bea Both", "both-1", references=EARS)
    test = house.clinic.begin(person, ears=["both"])
    (exam,) = test["exams"]
    done = house.clinic.answer(exam["id"], LEFT_WORSE)
    return {"person": person, **test, "exam": done}


def sign_in(page: Page, address: str) -> None:
    page.goto(f"{address}/login")
    page.fill("#name", "bob")
    page.fill("#password", PASSWORD)
    page.click("[type=submit]")
    page.wait_for_url(lambda url: "/login" not in url)


def raw(house: House, path: str) -> bytes:
    answer = house.clinic._client.get(path)
    assert answer.is_success, answer.text
    return answer.content


def test_the_api_tells_of_the_person_and_of_each_ear(
    house: House, screened: dict[str, Any]
) -> None:
    exam = screened["exam"]
    assert (exam["ear"], exam["state"], exam["decision"]) == ("both", "done", "changed")
    assert "met in the left ear" in exam["sentence"]
    live = house.clinic.get(f"/api/exams/{exam['id']}/live")
    assert [(one["ear"], one["decision"]) for one in live["ears"]] == [
        ("right", "unchanged"),
        ("left", "changed"),
    ]
    for one in live["ears"]:
        assert one["sentence"].startswith(f"{one['ear'].capitalize()} ear: ")
        assert one["thresholds"]
        assert one["reference"]
        assert one["shifts"]
        assert one["p_changed"][-1]["tone"] == one["tones"]
        assert {trial["ear"] for trial in one["trials"]} == {one["ear"]}
    assert live["thresholds"] == live["shifts"] == live["p_changed"] == []
    assert sum(one["tones"] for one in live["ears"]) == live["tones"]
    file = house.clinic.get(f"/api/people/{screened['person']}")
    assert [one["ear"] for one in file["exams"]].count("both") == 1
    assert file["last_test"]["ears"] == ["both"]
    newest = {side: file["history"][side][-1] for side in EARS}
    assert newest["left"]["decision"] == "changed"
    assert newest["right"]["decision"] == "unchanged"
    assert newest["left"]["p_changed"] > 0.9 > newest["right"]["p_changed"]
    seen = house.clinic.get(f"/api/people/{screened['person']}/monitoring")
    assert seen["left"]["occasions"][-1]["decision"] == "changed"


def test_the_report_has_a_result_for_each_ear(house: House, screened: dict[str, Any]) -> None:
    report = f"/api/visits/{screened['visit']}/report"
    html = raw(house, f"{report}.html").decode()
    pdf = "\n".join(
        page.extract_text() for page in PdfReader(io.BytesIO(raw(house, f"{report}.pdf"))).pages
    )
    for text in (html, " ".join(pdf.split())):
        assert "Right ear: screen" in text
        assert "Left ear: screen" in text
        assert "rule is not met in the right ear, met in the left ear" in text
        assert "says nothing about this ear" not in text
        assert "Nothing is known" not in text


def test_the_exports_have_rows_of_each_ear(house: House, screened: dict[str, Any]) -> None:
    bundle = house.clinic.get("/api/export?format=fhir")
    named = [
        one["resource"]["code"]["text"]
        for one in bundle["entry"]
        if one["resource"]["resourceType"] == "Observation"
    ]
    for side in EARS:
        assert f"Screening for change of hearing, {side} ear" in named
        assert f"Pure-tone air-conduction thresholds in dB HL, {side} ear" in named
    assert len({one["fullUrl"] for one in bundle["entry"]}) == len(bundle["entry"])


def test_one_ear_is_tested_again_alone(house: House, screened: dict[str, Any]) -> None:
    exam = screened["exam"]["id"]
    again = house.clinic.post(f"/api/exams/{exam}/retest?ear=left")
    assert (again["ear"], again["rule"]) == ("left", "osha-sts")
    house.clinic.post(f"/api/exams/{again['id']}/abandon")
    both = house.clinic.post(f"/api/exams/{exam}/retest")
    assert both["ear"] == "both"
    house.clinic.post(f"/api/exams/{both['id']}/abandon")
    more = house.clinic.post(f"/api/exams/{exam}/continue")
    assert (more["ear"], more["kind"]) == ("both", "exam")
    house.clinic.post(f"/api/exams/{more['id']}/abandon")


def test_a_listener_is_played_each_tone_in_its_ear(house: House, page: Page) -> None:
    test = house.invite("both sitting", ears=("both",), mode="supervised")
    (exam,) = (one["id"] for one in test["exams"])
    listener = house.seat(page, test)
    listener.set_up_until("instruction")
    listener.hear({"right": house.hearing()["right"], "left": house.hearing(worse_db=30)["left"]})
    expect(page.locator("#instruction [data-ear]")).to_contain_text("Both ears")
    listener.do("next")
    listener.at("over")
    live = house.clinic.get(f"/api/exams/{exam}/live")
    assert {one["ear"]: one["decision"] for one in live["ears"]} == {
        "right": "unchanged",
        "left": "changed",
    }
    tones = [one for one in live["trials"] if one["kind"] == "tone"]
    assert {one["ear"] for one in tones} == set(EARS)
    for one in tones:
        assert one["heard"] == (one["level"] >= LEFT_WORSE[one["ear"]](one["frequency_hz"]))
    house.clinic.post(f"/api/visits/{test['visit']}/release", {"released": True})
    page.reload()
    listener.at("over")
    expect(page.locator("#released")).to_contain_text("Your left ear hears less than before")
    expect(page.locator("#released")).to_contain_text("Your right ear hears as before")


def test_the_examiner_sees_both_ears_and_which_is_tested(house: House, page: Page) -> None:
    person = house.clinic.person("Eve Examined", "both-2", references=EARS)
    sign_in(page, house.address)
    page.goto(f"{house.address}/people/{person}/test")
    expect(page.get_by_label("Both ears in one sitting")).to_be_checked()
    expect(page.get_by_label("Right ear: compare with")).to_be_visible()
    expect(page.get_by_label("Left ear: compare with")).to_be_visible()
    page.get_by_label("Start with practice tones").uncheck()
    page.locator("#plan [type=submit]").click()
    page.wait_for_url(f"{house.address}/exams/*")
    exam = page.url.rpartition("/")[2]
    expect(page.locator("#heading")).to_contain_text("Both ears")
    expect(page.locator("#tone")).to_contain_text("ear")
    asked = house.clinic.get(f"/api/exams/{exam}")["play"]["presentation"]["ear"]
    expect(page.locator(f"#audiogram h3.{asked}")).to_contain_text("being tested now")
    expect(page.locator("#tone")).to_contain_text(f"{asked} ear")
    house.clinic.answer(exam, LEFT_WORSE)
    verdict = page.locator("#verdict")
    expect(verdict.locator(".badge")).to_contain_text("Changed")
    expect(verdict).to_contain_text("rule is not met in the right ear, met in the left ear")
    expect(verdict.locator(".of-ear.left")).to_contain_text("Left ear: average at 2-4 kHz")
    expect(verdict.locator(".of-ear.right")).to_contain_text("Right ear: ")
    for side in EARS:
        expect(page.locator(f"#audiogram svg.audiogram.{side}").first).to_be_visible()
        expect(page.locator(f"#shifts svg.{side}").first).to_be_visible()
    page.get_by_role("button", name="Test the left ear alone again").click()
    page.wait_for_url(lambda url: "/exams/" in url and not url.endswith(exam))
    expect(page.locator("#heading")).to_contain_text("Left ear")


def test_an_undone_answer_and_a_worker_that_dies_change_nothing(house: House) -> None:
    person = house.clinic.person(None, "both-3", references=EARS)
    (exam,) = (one["id"] for one in house.clinic.begin(person, ears=["both"])["exams"])
    house.clinic.answer(exam, LEFT_WORSE, most=3)
    asked = house.clinic.get(f"/api/exams/{exam}")["play"]["presentation"]
    house.clinic.answer(exam, LEFT_WORSE, most=1)
    taken = house.clinic.post(f"/api/exams/{exam}/undo")["play"]["presentation"]
    same = ("ear", "frequency_hz", "level")
    assert [taken[name] for name in same] == [asked[name] for name in same]
    house.clinic.post(f"/api/exams/{exam}/pause")
    after = house.clinic.post(f"/api/exams/{exam}/resume")["play"]["presentation"]
    assert [after[name] for name in same] == [asked[name] for name in same]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"ears": ["both", "left"]}, None),
        ({"ears": ["both", "both"]}, 201),
        ({"ears": ["neither"]}, None),
    ],
)
def test_what_cannot_be_one_sitting_is_refused(
    house: House, given: dict[str, Any], code: int | None
) -> None:
    person = house.clinic.person(None, f"refused {given['ears']}", references=EARS)
    body = {"kind": "screen", "rule": "osha-sts", **given}
    client = house.clinic._client
    answer = client.post(f"/api/people/{person}/tests", json=body, headers=house.clinic._headers)
    assert answer.status_code in ((code,) if code else (409, 422)), answer.text


def test_without_calibration_the_page_says_what_to_do(house: House) -> None:
    person = house.clinic.person(None, "telephone", references=EARS)
    body = {
        "kind": "exam", "ears": ["both"], "device": house.uncalibrated,
        "answered_by": "listener", "mode": "self", "accept_calibration": True,
    }  # fmt: skip
    answer = house.clinic._client.post(
        f"/api/people/{person}/tests", json=body, headers=house.clinic._headers
    )
    assert answer.status_code == 409
    assert "one ear after the other" in answer.text
