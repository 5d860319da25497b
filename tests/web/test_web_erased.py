"""Pages of somebody who was erased: nothing that was typed, and never an error of the server's.

Every GET of the API's own description is asked for, before and after, and read: reports and letters
by the text that their PDF holds, exports file by file.
"""

import io
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest
from pypdf import PdfReader
from test_web_clinic import ZONE, Desk
from test_web_schema import FINGERPRINT, THRESHOLDS

from earshift.store import Store
from earshift.web import Settings
from support.web import PASSWORD, client_of, sign_in, with_users

CANARIES = (
    "Kanarienvogel",
    "K-1812",
    "typed-source",
    "typed-note",
    "typed-closing",
    "typed-word",
    "typed-end",
)
HIDDEN = {"typed-word", "typed-end"}  # stored, and on no page today
# Asked for by others than an admin who is signed in.
NOT_FOR_ADMINS = {"/api/listen"}
QUERIES = {"/api/export": "?format=csv"}
PAGES = ("/people/{person}", "/exams/{exam}", "/visits/{visit_id}/review", "/worklist")


@pytest.fixture
def settings(database: str) -> Settings:
    with_users(database)
    return Settings(db=database, zone=ZONE)


@pytest.fixture
def desk(settings: Settings) -> Iterator[Desk]:
    with client_of(settings) as client:
        yield Desk(client)


def sign_in_as(desk: Desk, name: str) -> None:
    desk.client.cookies.clear()
    desk.headers = sign_in(desk.client, name)


def reviewed(desk: Desk) -> dict[str, str]:
    """A person with a shift, with something typed wherever a desk and a reviewer can type; the ids
    of paths that speak of them."""
    device = desk.post("/devices", {"name": "tablet", "fingerprint": FINGERPRINT}, 201)["id"]
    person = desk.post("/people", {"code": "K-1812", "name": "Ada Kanarienvogel"}, 201)["id"]
    for day, worse in (("2024-03-01", 0), ("2025-03-01", 20)):
        levels = {hertz: level + worse for hertz, level in THRESHOLDS.items()}
        body = {"ear": "right", "thresholds": levels, "measured_on": day, "source": "typed-source"}
        exam: dict[str, Any] = desk.post(f"/people/{person}/audiograms", body, 201)
    desk.post(f"/people/{person}/notes", {"text": "typed-note"}, 201)
    sign_in_as(desk, "rea")
    word = {"related": True, "name": "Dr Rea", "reason": "typed-word"}
    desk.post(f"/exams/{exam['id']}/work-related", word, 201)
    seen = desk.get(f"/visits/{exam['visit']}/review")["seen"]
    sign = {"name": "Dr Rea", "meaning": "approved", "seen": seen, "password": PASSWORD}
    desk.post(f"/visits/{exam['visit']}/sign", sign, 201)
    desk.post(f"/exams/{exam['id']}/close", {"reason": "typed-closing"})
    tested = desk.test(person, kind="exam", ears=["left"])["exams"][0]["id"]
    for _ in range(2):
        tone = desk.get(f"/exams/{tested}")["play"]["presentation"]
        desk.post(f"/exams/{tested}/answer", {"trial": tone["trial"], "heard": True})
    desk.post(f"/exams/{tested}/finish", {"reason": "typed-end"})
    return {
        "person": person,
        "exam": tested,
        "visit_id": exam["visit"],
        "device": device,
        "name": "bob",
    }


def paths_of(desk: Desk, ids: dict[str, str]) -> list[str]:
    """Every GET of the API's description, and pages, with these ids."""
    described: dict[str, Any] = desk.client.app.openapi()["paths"]  # type: ignore[attr-defined]
    gets = [path for path, methods in described.items() if "get" in methods]
    assert len(gets) > 30
    wanted = [path for path in gets if path not in NOT_FOR_ADMINS]
    return [path.format(**ids) + QUERIES.get(path, "") for path in (*wanted, *PAGES)]


def text_of(answer: Any) -> str:
    """All that an answer says, whatever it is packed in."""
    content: bytes = answer.content
    if content.startswith(b"%PDF"):
        document = PdfReader(io.BytesIO(content))
        kept = [
            part.decode(errors="replace") for all in document.attachments.values() for part in all
        ]
        pages = [page.extract_text() for page in document.pages]
        return "\n".join([*pages, *kept, str(document.metadata), str(document.xmp_metadata)])
    if content.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            return "\n".join(
                packed.read(name).decode(errors="replace") for name in packed.namelist()
            )
    return str(answer.text)


def said(text: str, canary: str) -> bool:
    return canary in re.sub(r"\s+", " ", text) or canary in re.sub(r"\s+", "", text)


@pytest.mark.parametrize("with_trials", [False, True], ids=["answers stay", "answers go"])
def test_the_pages_of_somebody_erased(desk: Desk, settings: Settings, with_trials: bool) -> None:
    ids = reviewed(desk)
    sign_in_as(desk, "ada")
    before = {}
    for path in paths_of(desk, ids):
        answer = desk.client.get(path)
        before[path] = (answer.status_code, text_of(answer))
    bad = {path: status for path, (status, _) in before.items() if status != 200}
    assert bad == {}
    shown = {c for c in CANARIES if any(said(text, c) for _, text in before.values())}
    assert shown >= set(CANARIES) - HIDDEN
    for name in ("report.pdf", "letter.pdf", "report.html", "letter.html"):
        assert said(before[f"/api/visits/{ids['visit_id']}/{name}"][1], "Kanarienvogel"), name

    with Store.open(settings.db) as store:
        number = store.behind("people", ids["person"])
        store.erase_person(
            number, author="ann", reason="asked by the person", delete_trials=with_trials
        )

    for path in before:
        answer = desk.client.get(path)
        assert answer.status_code < 500, (path, answer.text)
        if (
            with_trials
            and path.startswith("/api")
            and (ids["exam"] in path or ids["visit_id"] in path)
        ):
            assert answer.status_code == 404, (path, answer.text)
        for canary in CANARIES:
            assert not said(text_of(answer), canary), (path, canary)
    for canary in ("Kanarienvogel", "K-1812"):
        found = desk.post("/people/search", {"text": canary})
        assert found["people"] == []
