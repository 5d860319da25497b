"""The clinic's and the listener's routes, on a real app over a real database."""

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import segno
from sqlalchemy import Connection, event

from earshift.clinic import session as sessions
from earshift.clinic.session import Session
from earshift.days import today as local_today
from earshift.store import Store
from earshift.web.settings import Settings
from earshift.web.views import judged_otherwise, live_as_stored
from support.web import ORIGIN, TestClient, client_of, sign_in, with_users

ZONE = "Europe/Berlin"  # not the machine's: its day is another one for an hour or two
BROWSER = {
    "browser": "Chromium",
    "system": "Linux",
    "sample_rate": 48000,
    "channels": 2,
    "earphones": "HD 25",
    "connection": "wired",
    "volume": "50 %",
    "installation": "b0",
}
HEARING = {"500": 10, "1000": 10, "2000": 10, "3000": 15, "4000": 15, "6000": 20, "8000": 20}
FAST = {
    "pulses": 1,
    "pulse_ms": 60,
    "pause_ms": 0,
    "ramp_ms": 20,
    "window_opens_ms": 0,
    "window_closes_ms": 50,
    "gap_min_ms": 0,
    "gap_max_ms": 10,
}


class Desk:
    """An examiner at work: a client that is signed in, with short words for long calls."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.headers = sign_in(client, "bob")

    def get(self, path: str, status: int = 200, **given: Any) -> Any:
        return self._told(self.client.get(f"/api{path}", **given), status)

    def post(self, path: str, body: Any = None, status: int = 200, **given: Any) -> Any:
        body = {} if body is None else body
        if "content" not in given:
            given["json"] = body
        return self._told(self.client.post(f"/api{path}", headers=self.headers, **given), status)

    def delete(self, path: str) -> None:
        self._told(self.client.delete(f"/api{path}", headers=self.headers), 204)

    @staticmethod
    def _told(answer: Any, status: int) -> Any:
        assert answer.status_code == status, answer.text
        kind = answer.headers.get("content-type", "")
        return answer.json() if answer.content and "json" in kind else answer

    def person(self, **given: Any) -> str:
        return str(self.post("/people", {"code": "W-4711", **given}, 201)["id"])

    def reference(self, person: str, ear: str = "right", **given: Any) -> dict[str, Any]:
        body = {"ear": ear, "thresholds": HEARING, "measured_on": "2025-05-05", **given}
        found: dict[str, Any] = self.post(f"/people/{person}/audiograms", body, 201)
        return found

    def device(self, **given: Any) -> str:
        body = {"name": "booth 1", "fingerprint": BROWSER, **given}
        return str(self.post("/devices", body, 201)["id"])

    def calibrated(self, **given: Any) -> str:
        device = self.device()
        today = local_today(ZONE)
        body = {
            "done_on": f"{today - timedelta(days=30)}",
            "due_on": f"{today + timedelta(days=300)}",
            "laboratory": "lab",
            "coupler": "IEC 60318-1 with type 1 adaptor",
            "retspl": "hda200-60318-1",
            "full_scale_db_spl": {e: {"500": 110, "8000": 110} for e in ("right", "left")},
            **given,
        }
        self.post(f"/devices/{device}/calibrations", body, 201)
        return device

    def checked(self, device: str, deviation: float = 0) -> dict[str, Any]:
        measured = {"right": {"1000": deviation}, "left": {"1000": 0}}
        body = {"listener": "mh", "deviations_db": measured}
        found: dict[str, Any] = self.post(f"/devices/{device}/checks", body, 201)
        return found

    def test(self, person: str, status: int = 201, **given: Any) -> Any:
        body = {"kind": "screen", "ears": ["right"], "practice": False, **given}
        return self.post(f"/people/{person}/tests", body, status)

    def supervised(self, ears: tuple[str, ...] = ("right",), **given: Any) -> dict[str, Any]:
        """A person with references, and a screen of theirs begun by hand."""
        person = self.person()
        for ear in ears:
            self.reference(person, ear)
        found: dict[str, Any] = self.test(person, ears=list(ears), **given)
        return found

    def listening(self, person: str, **given: Any) -> tuple["Listener", dict[str, Any]]:
        test = self.test(person, answered_by="listener", **{"timing": FAST, **given})
        link = self.post(f"/visits/{test['visit']}/link", status=201)
        return Listener(self.client, link["url"].partition("#")[2]), test


class Listener:
    """Somebody with a link and nothing else."""

    def __init__(self, client: TestClient, token: str) -> None:
        self.client = TestClient(client.app, base_url=ORIGIN)
        self.token = token

    def call(self, path: str = "", body: Any = None, status: int = 200) -> Any:
        headers = {
            "Authorization": f"Listener {self.token}",
            "Origin": ORIGIN,
        }
        where = f"/api/listen{path}"
        if body is None:
            answer = self.client.get(where, headers=headers)
        else:
            if path == "/answer" and body["heard"]:  # as every page sends it
                body = {"reaction_ms": 300.0, **body}
            answer = self.client.post(where, headers=headers, json=body)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def ready(self, status: int = 200) -> Any:
        return self.call("/ready", {"fingerprint": BROWSER}, status)

    def run(self, threshold: float = 15) -> dict[str, Any]:
        """Check the set-up and answer to the end of all exams."""
        play: dict[str, Any] = self.ready()
        while play["state"] != "over":
            if play["state"] == "check":
                play = self.ready()
            elif play["state"] == "done":
                play = self.call()
            else:
                level = play["presentation"]["level"]
                heard = level is not None and level >= threshold
                play = self.call(
                    "/answer", {"trial": play["presentation"]["trial"], "heard": heard}
                )
        return play


@pytest.fixture
def app_store(database: str) -> Iterator[Store]:
    with_users(database)
    with Store.open(database) as store:
        yield store


@pytest.fixture
def desk(database: str, app_store: Store) -> Iterator[Desk]:
    with client_of(Settings(db=database, zone=ZONE)) as client:
        yield Desk(client)


def answer_to_the_end(desk: Desk, exam: str, threshold: float = 15) -> dict[str, Any]:
    play = desk.get(f"/exams/{exam}")["play"]
    if play["state"] == "check":
        play = desk.post(f"/exams/{exam}/ready", {"fingerprint": BROWSER})
    while play["state"] == "play":
        level = play["presentation"]["level"]
        heard = level is not None and level >= threshold
        body = {"trial": play["presentation"]["trial"], "heard": heard}
        play = desk.post(f"/exams/{exam}/answer", body)
    found: dict[str, Any] = desk.get(f"/exams/{exam}")
    return found


# People -----------------------------------------------------------------------------------------


def test_people_are_added_found_and_corrected(desk: Desk) -> None:
    person = desk.person(name="Zoë Müller", birth_date="1975-12-10", sex="female")
    found = desk.post("/people/search", {"text": "müll"})["people"]
    assert [one["id"] for one in found] == [person]
    changed = desk.post(f"/people/{person}/correct", {"name": "Zoë Meier", "reason": "married"})
    assert (changed["name"], changed["code"]) == ("Zoë Meier", "W-4711")
    desk.post(f"/people/{person}/notes", {"text": "prefers mornings"}, 201)
    file = desk.get(f"/people/{person}")
    assert file["notes"][0]["text"] == "prefers mornings"
    assert file["exams"] == []


def test_a_page_of_people_leads_to_the_next(desk: Desk, app_store: Store) -> None:
    for number in range(60):
        app_store.add_person(author="mh", code=f"c{number}")
    first = desk.post("/people/search", {})
    assert len(first["people"]) == 50
    rest = desk.post("/people/search", {"after": first["next"]})
    assert len(rest["people"]) == 10
    assert rest["next"] is None


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"code": "W-4711"}, 409),
        ({}, 422),
        ({"code": "  ", "name": ""}, 422),
        ({"name": "x", "birth_date": "2999-01-01"}, 422),
        ({"name": "x", "sex": "canary"}, 422),
        ({"name": "x\u0000"}, 422),
        ({"name": "x", "unknown": "canary"}, 422),
    ],
)
def test_people_who_cannot_be_are_refused(desk: Desk, body: Any, status: int) -> None:
    desk.person()
    answer = desk.post("/people", body, status)
    assert answer["detail"]
    assert "canary" not in str(answer)
    assert "W-4711" not in str(answer)


def test_ids_are_random_and_unknown_ones_are_not_found(desk: Desk) -> None:
    person = desk.person()
    assert len(person) >= 20
    assert desk.get(f"/people/{person}")["id"] == person
    for path in ("/people/1", "/people/nobody", "/exams/1", "/devices/1", "/exams/x/live"):
        desk.get(path, 404)


def test_a_typed_reference_is_an_audiogram_of_its_day(desk: Desk) -> None:
    person = desk.person()
    said = desk.reference(person)
    assert (said["kind"], said["measured_on"], said["sound"]) == (
        "audiogram",
        "2025-05-05",
        "imported",
    )
    history = desk.get(f"/people/{person}")["history"]["right"]
    assert history[0]["thresholds"]["4000"] == 15
    assert history[0]["unit"] == "dB HL"
    for wrong in (
        {"thresholds": {}},
        {"thresholds": {"1": 10}},
        {"thresholds": {"1000": 500}},
        {"measured_on": "2999-01-01"},
        {"thresholds": {"1000": 5}, "no_response": {"1000": 90}},
    ):
        body = {"ear": "right", "thresholds": HEARING, **wrong}
        desk.post(f"/people/{person}/audiograms", body, 422)


def test_a_file_is_imported_whole_or_not_at_all(desk: Desk) -> None:
    header = b"code,date,right_500,right_1000,right_2000,right_3000,right_4000\n"
    good = header + b"B7,2025-01-02,5,5,10,10,15\n"
    said = desk.post("/imports", content=good)
    assert (said["added"], said["known"]) == (1, 0)
    assert said["people"][0]["code"] == "B7"
    assert desk.post("/imports", content=good)["known"] == 1
    bad = good + b"B8,2025-01-02,canary,5,10,10,15\n"
    refused = desk.post("/imports", status=422, content=bad)
    assert "row 3" in refused["detail"]
    assert "canary" not in refused["detail"]
    assert desk.post("/people/search", {"text": "B8"})["people"] == []
    desk.post("/imports", status=422, content=b"")
    desk.post("/imports?format=exe", status=422, content=b"x")
    desk.post("/imports?format=fhir", status=422, content=b"{nonsense")


def test_a_preview_names_every_row_and_stores_nothing(desk: Desk) -> None:
    european = b"Nr;Tag;right_500;right_1000\nP1;31.12.2020;5,5;CNT\nP2;31.12.2020;odd;5\n"
    how = "column=Nr%3Dperson&column=Tag%3Ddate&sentinel=CNT%3Dnot+tested&day_first=true"
    known = {
        one["theirs"]: one["ours"]
        for one in desk.post("/imports/columns", content=european)["columns"]
    }
    assert known == {"Nr": "", "Tag": "", "right_500": "right_500", "right_1000": "right_1000"}
    commas = desk.post(f"/imports?preview=true&{how}", content=european)
    assert (commas["sound"], commas["rejected_total"]) == (0, 2)
    seen = desk.post(f"/imports?preview=true&decimal_comma=true&{how}", content=european)
    assert (seen["sound"], seen["added"], seen["preview"]) == (1, 0, True)
    assert seen["rejected"][0]["row"] == 3
    assert "'odd'" in seen["rejected"][0]["reason"]
    assert desk.post("/people/search", {"text": "P1"})["people"] == []
    desk.post(f"/imports?decimal_comma=true&{how}", status=422, content=european)
    done = desk.post(f"/imports?decimal_comma=true&skip_rejected=true&{how}", content=european)
    assert (done["added"], done["rejected_total"]) == (1, 1)
    for wrong in ("timezone=Nowhere", "column=x", "sentinel=99%3Dperhaps", "no_response_db=loud"):
        desk.post(f"/imports?preview=true&{wrong}", status=422, content=european)
    assert desk.post("/imports/columns", content=b"{}")["columns"] == []


def test_a_roster_marks_leavers_only_when_asked(desk: Desk) -> None:
    gone = desk.person(code="gone")
    file = b"code,name,personnel\nnew-1,Nia New,x\n"
    seen = desk.post("/imports/roster?preview=true", content=file)
    assert (seen["new_total"], seen["leavers_total"], seen["leavers_marked"]) == (1, 1, False)
    assert desk.post("/people/search", {"text": "new-1"})["people"] == []
    desk.post("/imports/roster?left_on=2026-01-01", status=422, content=file)
    desk.post("/imports/roster?plan=another", status=409, content=file)
    how = f"mark_leavers=true&left_on=2026-01-01&plan={seen['plan']}"
    desk.post(f"/imports/roster?{how}", content=file)
    assert desk.get(f"/people/{gone}")["left_on"] == "2026-01-01"
    twice = file + b"new-1,Nia Again,x\n"
    desk.post("/imports/roster", status=422, content=twice)
    again = desk.post("/imports/roster?skip_rejected=true", content=twice)
    assert [one["row"] for one in again["rejected"]] == [3]
    unused = desk.post("/imports/roster?preview=true&column=name%3Dnot+used", content=twice)
    assert unused["changed_total"] == 0


def test_a_notch_is_asked_about_without_a_reference_and_is_no_test_of_change(desk: Desk) -> None:
    person = desk.person(hired_on="2020-01-01")
    first = desk.get("/worklist")["items"]
    desk.test(person, 409, notch=True, rule="osha-sts")
    desk.test(person, 409, notch=True, kind="exam")
    exam = desk.test(person, notch=True, ears=["right"])["exams"][0]
    done = answer_to_the_end(desk, exam["id"])
    assert (done["state"], done["rule"], done["decision"]) == ("done", None, "no notch")
    assert "no notch around 3-6 kHz" in done["words"]
    assert desk.get("/worklist")["items"] == first  # still to be tested for the first time
    assert desk.get(f"/people/{person}")["history"]["right"] == []
    assert desk.get(f"/visits/{done['visit']}/report.html").status_code == 200
    more = desk.post(f"/exams/{exam['id']}/continue", {}, 201)
    assert (more["kind"], more["state"]) == ("exam", "open")
    desk.post(f"/exams/{more['id']}/abandon", {"reason": "test"})
    again = desk.post(f"/exams/{exam['id']}/retest", {}, 201)
    assert (again["kind"], again["rule"]) == ("screen", None)


def test_the_usual_device_and_the_last_test_fill_the_form_in(desk: Desk) -> None:
    person = desk.person()
    assert desk.get(f"/people/{person}")["last_test"] is None
    desk.reference(person)
    device = desk.post("/devices", {"name": "booth", "transducer": "insert"}, 201)
    assert (device["default"], device["in_order"]) == (False, False)
    assert [one["name"] for one in desk.get("/worklist")["devices"]] == ["booth"]
    for _ in range(2):
        assert desk.post(f"/devices/{device['id']}/default", {"default": True})["default"]
    desk.test(person, device=device["id"], rule="niosh-15")
    last = desk.get(f"/people/{person}")["last_test"]
    assert last["on"] == f"{local_today(ZONE)}"
    assert (last["kind"], last["ears"], last["rule"]) == ("screen", ["right"], "niosh-15")
    assert (last["device"], last["answered_by"]) == (device["id"], "examiner")
    assert not desk.post(f"/devices/{device['id']}/default", {"default": False})["default"]


def test_a_comparison_across_unknown_devices_is_said_before_with_its_remedy(desk: Desk) -> None:
    person = desk.person()
    typed = desk.reference(person)["id"]
    said = desk.get(f"/people/{person}/comparison")
    assert "even one of 20 dB" in said[typed]
    assert "register the device" in said[typed]
    bare = desk.post("/devices", {"name": "booth"}, 201)["id"]
    assert "record the calibration" in desk.get(f"/people/{person}/comparison?device={bare}")[typed]
    good = desk.calibrated()
    assert (
        "a full exam on today's device"
        in (desk.get(f"/people/{person}/comparison?device={good}")[typed])
    )
    desk.checked(good)
    answer = {"device": good, "kind": "exam", "ears": ["right"]}
    exam = desk.test(person, **answer)["exams"][0]
    answer_to_the_end(desk, exam["id"])
    said = desk.get(f"/people/{person}/comparison?device={good}")
    assert list(said) == [typed]  # the exam on this device is known well enough


def test_visits_are_exported_as_on_the_command_line(desk: Desk, app_store: Store) -> None:
    person = desk.person(name="Exported")
    desk.reference(person)
    desk.get("/export?first=2001-01-01&last=2001-02-01", 422)
    desk.get("/export?first=2026-02-01&last=2026-01-01", 422)
    desk.get("/export?format=bids&identity=true", 422)
    number = app_store.behind("people", person)
    app_store.open_visit(number, author="mh", zone=ZONE, mode="simulated")
    told = desk.get("/export?identity=true&first=2025-05-05&last=2025-05-05")
    with zipfile.ZipFile(io.BytesIO(told.content)) as archive:
        tables = {Path(name).name: archive.read(name).decode() for name in archive.namelist()}
    assert "Exported" in tables["verdicts.csv"] + tables["thresholds.csv"]
    assert "simulated" not in "".join(tables.values())
    assert desk.get("/export?format=fhir")["resourceType"] == "Bundle"
    lines = [one.action for one in app_store.audit(limit=100)]
    assert "export" in lines


# A supervised screen ----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_screen_by_hand_from_the_first_tone_to_the_report(desk: Desk) -> None:
    test = desk.supervised()
    (exam,) = test["exams"]
    assert exam["play"]["sound"]["kind"] == "external"
    assert exam["remarks"] == ["Reference calibration unknown."]
    done = answer_to_the_end(desk, exam["id"])
    assert done["state"] == "done"
    assert done["decision"] == "unchanged"
    assert "Reference calibration unknown." in done["words"]
    live = desk.get(f"/exams/{exam['id']}/live")
    assert [point["tone"] for point in live["p_changed"]] == list(range(1, live["tones"] + 1))
    assert live["p_changed"][-1]["p"] == pytest.approx(done["p_changed"])
    assert len(live["thresholds"]) == 9
    assert live["catch_trials"] >= 1
    pdf = desk.get(f"/visits/{test['visit']}/report.pdf")
    assert pdf.content.startswith(b"%PDF")
    assert "W-4711" in desk.get(f"/visits/{test['visit']}/report.html").text


def test_a_finished_screen_of_an_engine_that_is_gone_is_shown_as_it_was(
    desk: Desk, app_store: Store
) -> None:
    exam = desk.supervised()["exams"][0]["id"]
    answer_to_the_end(desk, exam)
    now = desk.get(f"/exams/{exam}/live")
    session = Session(app_store, app_store.behind("exams", exam), author="bob")
    assert not judged_otherwise(session.record)
    old = {name: value for name, value in session.record.design.items() if name != "engine"}
    assert judged_otherwise(replace(session.record, design=old))
    (result,) = app_store.results(session.record.id)
    before = {**result.shown, "words": "As it was.", "verdict": dict(result.shown["verdict"])}
    before["verdict"] |= {"p_changed": 0.123, "decision": "changed"}
    for name in ("reason", "next_step", "attention", "p_not_listening", "effective_size"):
        del before["verdict"][name]
    settings = {"settings": {"changed_at": 0.95, "unchanged_at": 0.01}, "max_tones": 30}
    shown = live_as_stored(session, replace(result, shown=before, settings=settings))
    assert (shown.words, shown.decision) == ("As it was.", "changed")
    assert [(at.tone, at.p) for at in shown.p_changed] == [(now["tones"], 0.123)]
    assert shown.limits is not None
    assert (shown.limits.changed_at, shown.limits.unchanged_at) == (0.95, 0.01)
    assert (shown.reason, shown.next_step, shown.attention) == (None, None, None)
    alike = ("thresholds", "reference", "trials", "tones", "catch_trials", "unit", "rule")
    said = shown.model_dump(mode="json")
    assert {name: said[name] for name in alike} == {name: now[name] for name in alike}


def test_a_live_view_that_has_not_changed_is_not_sent_again(desk: Desk) -> None:
    exam = desk.supervised()["exams"][0]
    first = desk.client.get(f"/api/exams/{exam['id']}/live")
    tag = {"If-None-Match": first.headers["etag"]}
    assert desk.client.get(f"/api/exams/{exam['id']}/live", headers=tag).status_code == 304
    trial = exam["play"]["presentation"]["trial"]
    desk.post(f"/exams/{exam['id']}/answer", {"trial": trial, "heard": True})
    assert desk.client.get(f"/api/exams/{exam['id']}/live", headers=tag).status_code == 200


def test_an_answer_sent_twice_or_out_of_order_changes_nothing(desk: Desk, app_store: Store) -> None:
    exam = desk.supervised()["exams"][0]
    path = f"/exams/{exam['id']}/answer"
    first = exam["play"]["presentation"]["trial"]
    once = desk.post(path, {"trial": first, "heard": True})
    again = desk.post(path, {"trial": first, "heard": True})
    other = desk.post(path, {"trial": first, "heard": False}, 409)
    assert other["detail"] == "another answer to this tone is stored"
    ahead = desk.post(path, {"trial": first + 7000, "heard": False})
    assert once == again == ahead
    exam_id = app_store.behind("exams", exam["id"])
    assert [trial.heard for trial in app_store.trials(exam_id)] == [True]


@pytest.mark.slow
def test_what_was_answered_elsewhere_is_asked_from_there(
    desk: Desk, database: str, app_store: Store
) -> None:
    """Two workers share nothing but the store."""
    exam = desk.supervised()["exams"][0]
    with client_of(Settings(db=database, zone=ZONE)) as client:
        other = Desk(client)
        for number in range(1, 7):
            worker = desk if number % 2 else other
            play = worker.get(f"/exams/{exam['id']}")["play"]
            if play["state"] != "play":
                break
            trial = play["presentation"]["trial"]
            assert trial == 1000 * number
            level = play["presentation"]["level"]
            heard = level is not None and level >= 15
            worker.post(f"/exams/{exam['id']}/answer", {"trial": trial, "heard": heard})
        assert other.get(f"/exams/{exam['id']}") == desk.get(f"/exams/{exam['id']}")
    asked = [
        (trial.frequency_hz, trial.played_db_hl)
        for trial in app_store.trials(app_store.behind("exams", exam["id"]))
    ]
    assert len(asked) >= 3


def test_a_screen_begun_with_the_first_version_is_finished_here_and_says_so(
    desk: Desk, app_store: Store
) -> None:
    begun = app_store.exam(app_store.behind("exams", desk.supervised()["exams"][0]["id"]))
    design = {name: value for name, value in begun.design.items() if name != "engine"}
    old = app_store.open_exam(
        begun.visit_id,
        author="bob",
        ear="right",
        kind="screen",
        design=design,
        engine_version="0.1.0",
        reference_exam_id=begun.reference_exam_id,
        delivery=begun.delivery,
    )
    exam = app_store.handle("exams", old.id)
    done = answer_to_the_end(desk, exam)
    assert done["decision"] in ("unchanged", "changed")
    assert "started with version 0.1.0" in json.dumps(desk.get(f"/exams/{exam}"))


class Looks:
    """Counts the transactions on a store, reading and writing ones apart."""

    def __init__(self, store: Store) -> None:
        self.reads = self.writes = 0
        event.listen(store.engine, "begin", self._begun)

    def _begun(self, connection: Connection) -> None:
        if connection.get_execution_options().get("earshift_writes", False):
            self.writes += 1
        else:
            self.reads += 1

    def taken(self) -> tuple[int, int]:
        """Since the last time: how many read, how many wrote."""
        taken = self.reads, self.writes
        self.reads = self.writes = 0
        return taken


def looked_ahead(desk: Desk) -> None:
    """Wait until what follows the next answer has been worked out."""
    desk.client.app.state.sessions._worker.submit(lambda: None).result(60)


def test_an_answered_tone_takes_one_look_at_the_store_and_one_write(desk: Desk) -> None:
    """Beside the look-up of the key; what is worked out ahead reads nothing."""
    exam = desk.supervised(ears=("right", "left"))["exams"][0]
    looks, play = Looks(desk.client.app.state.store), exam["play"]
    while play["state"] == "play":
        level = play["presentation"]["level"]
        body = {"trial": play["presentation"]["trial"], "heard": bool(level and level >= 15)}
        looks.taken()
        play = desk.post(f"/exams/{exam['id']}/answer", body)
        looked_ahead(desk)
        last = play["state"] == "done"
        # The session's cookie and the exam; the answer, and after the last one the result, which
        # names the day of the reference: both exams' visits, and that exam.
        assert looks.taken() == ((5, 2) if last else (2, 1))
        again = desk.post(f"/exams/{exam['id']}/answer", body)
        assert again == play
        assert looks.taken() == (2, 0)
    assert play["exam"] == {"now": 1, "of": 2}


def test_a_listeners_answer_takes_one_look_at_the_store_and_one_write(desk: Desk) -> None:
    person = desk.person()
    for ear in ("right", "left"):
        desk.reference(person, ear)
    device = desk.calibrated()
    desk.checked(device)
    listener, _ = desk.listening(person, device=device, ears=["right", "left"])
    play = listener.ready()
    looks = Looks(desk.client.app.state.store)
    while play["state"] == "play":
        level = play["presentation"]["level"]
        body = {"trial": play["presentation"]["trial"], "heard": bool(level and level >= 15)}
        looks.taken()
        play = listener.call("/answer", body)
        looked_ahead(desk)
        # The link and the exam; the answer, and after the last one the result with its reference.
        assert looks.taken() == ((5, 2) if play["state"] == "done" else (2, 1))


@pytest.mark.slow
def test_undo_pause_resume_finish_and_abandon(desk: Desk) -> None:
    exam = desk.supervised()["exams"][0]["id"]
    desk.post(f"/exams/{exam}/undo", status=409)
    first = desk.get(f"/exams/{exam}")["play"]["presentation"]
    second = desk.post(f"/exams/{exam}/answer", {"trial": first["trial"], "heard": True})
    undone = desk.post(f"/exams/{exam}/undo")["play"]["presentation"]
    same = ("practice", "frequency_hz", "level", "dbfs")
    assert [undone[name] for name in same] == [first[name] for name in same]
    # An answer that was on its way to the tone that was asked before the undo counts for nothing.
    late = second["presentation"]["trial"]
    assert late != undone["trial"]
    answered = desk.post(f"/exams/{exam}/answer", {"trial": late, "heard": True})
    assert answered["presentation"] == undone
    assert desk.post(f"/exams/{exam}/pause")["state"] == "paused"
    desk.post(f"/exams/{exam}/pause", status=409)
    answer = {"trial": undone["trial"], "heard": True}
    assert desk.post(f"/exams/{exam}/answer", answer)["state"] == "check"
    assert desk.post(f"/exams/{exam}/resume")["state"] == "open"
    desk.post(f"/exams/{exam}/finish", status=409)  # nothing was answered yet
    desk.post(f"/exams/{exam}/answer", answer)
    assert desk.post(f"/exams/{exam}/finish")["decision"] == "inconclusive"
    desk.post(f"/exams/{exam}/abandon", status=409)
    again = desk.post(f"/exams/{exam}/retest", status=201)
    assert again["rule"] == "osha-sts"
    desk.post(f"/exams/{again['id']}/retest", status=409)
    assert desk.post(f"/exams/{again['id']}/abandon", {"reason": "tired"})["state"] == "abandoned"


@pytest.mark.slow
def test_a_screen_goes_on_to_a_full_audiogram(desk: Desk) -> None:
    exam = desk.supervised()["exams"][0]["id"]
    screened = answer_to_the_end(desk, exam)
    assert "continue" in screened["can"]
    assert "release" not in screened["can"]  # nobody but a listener has a page to show it on
    full = desk.post(f"/exams/{exam}/continue", status=201)
    assert full["kind"] == "exam"
    done = answer_to_the_end(desk, full["id"])
    assert done["state"] == "done"
    assert screened["tones"] < done["tones"] <= 50  # it ends by itself once it is precise enough
    desk.post(f"/exams/{full['id']}/continue", status=409)


def test_another_level_than_asked_may_be_told(desk: Desk, app_store: Store) -> None:
    begun = desk.supervised()["exams"][0]
    exam, first = begun["id"], begun["play"]["presentation"]["trial"]
    body = {"trial": first, "heard": True, "played_db": 35.0}
    following = desk.post(f"/exams/{exam}/answer", body)["presentation"]["trial"]
    (trial,) = app_store.trials(app_store.behind("exams", exam))
    assert trial.played_db_hl == 35
    desk.post(f"/exams/{exam}/answer", {"trial": following, "heard": True, "played_db": 125}, 422)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rule": "no such rule"}, "rule"),
        ({"rule": "asha-1994"}, "verified"),
        ({"rule": "osha-sts", "protocol": "best"}, "not both"),
        ({"answered_by": "listener"}, "device"),
        ({"mode": "self", "loud_confirmed": True}, "supervised"),
        ({"ears": ["left"]}, "left ear"),
    ],
)
def test_tests_that_cannot_be_begun_say_why(desk: Desk, given: Any, said: str) -> None:
    person = desk.person()
    desk.reference(person)
    body = {"kind": "screen", "ears": ["right"], **given}
    answer = desk.client.post(f"/api/people/{person}/tests", json=body, headers=desk.headers)
    assert answer.status_code in (409, 422)
    assert said in answer.json()["detail"]
    assert "no such rule" not in answer.text


def test_one_ear_has_one_unfinished_exam_at_a_time(desk: Desk) -> None:
    person = desk.person()
    desk.reference(person)
    desk.test(person)
    assert "not finished" in desk.test(person, 409)["detail"]


# Devices ----------------------------------------------------------------------------------------


def test_devices_their_calibration_and_daily_check(desk: Desk) -> None:
    person = desk.person()
    desk.reference(person)
    device = desk.calibrated()
    said = desk.get(f"/devices/{device}")
    assert (said["sound"], said["calibration"]["state"]) == ("calibrated", "calibrated")
    assert said["daily_check"]["state"] == "missing"
    refused = desk.test(person, 409, device=device)
    assert "not checked with a listener today" in refused["detail"]
    accepted = desk.test(person, device=device, accept_calibration=True)
    assert "The device was not checked with a listener today." in accepted["warnings"]
    done = answer_to_the_end(desk, accepted["exams"][0]["id"])
    assert "not checked with a listener" in done["words"]
    assert desk.checked(device)["daily_check"]["state"] == "done"
    assert "not checked" not in str(desk.test(person, device=device)["warnings"])


def test_a_failed_check_blocks_until_the_next_calibration(desk: Desk) -> None:
    person = desk.person()
    desk.reference(person)
    device = desk.calibrated()
    assert desk.checked(device, deviation=-10)["daily_check"]["state"] == "failed"
    refused = desk.test(person, 409, device=device, accept_calibration=True)
    assert "calibrated before it is used again" in refused["detail"]
    assert any(one["id"] == device for one in desk.get("/worklist")["devices"])


def test_an_expired_calibration_is_refused_or_marked(desk: Desk) -> None:
    person = desk.person()
    desk.reference(person)
    device = desk.calibrated(done_on="2020-01-01", due_on="2021-01-01")
    desk.checked(device)
    assert "expired on 2021-01-01" in desk.test(person, 409, device=device)["detail"]
    test = desk.test(person, device=device, accept_calibration=True)
    assert "expired on 2021-01-01" in str(test["exams"][0]["remarks"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"coupler": "HA-2 (2 cc, DB 0138)"},  # another coupler than the table's
        {"retspl": "no such table"},
        {"retspl": None},
        {"full_scale_db_spl": None},
        {"full_scale_db_spl": {"right": {"500": 110, "8000": 110}}},
        {"full_scale_db_spl": {e: {"500": 5, "8000": 110} for e in ("right", "left")}},
        {"done_on": "2999-01-01", "due_on": "2999-01-02"},
        {"due_on": "2000-01-01"},
    ],
)
def test_calibrations_that_cannot_be_are_refused(desk: Desk, wrong: Any) -> None:
    device = desk.device()
    body = {
        "done_on": "2026-01-01",
        "due_on": "2027-01-01",
        "laboratory": "lab",
        "coupler": "IEC 60318-1 with type 1 adaptor",
        "retspl": "hda200-60318-1",
        "full_scale_db_spl": {e: {"500": 110, "8000": 110} for e in ("right", "left")},
        **wrong,
    }
    desk.post(f"/devices/{device}/calibrations", body, 422)


def test_the_shipped_tables_and_rules_name_their_sources(desk: Desk) -> None:
    assert all(one["source"] and one["coupler"] for one in desk.get("/retspl"))
    named = {one["name"]: one for one in desk.get("/rules")}
    assert named["osha-sts"]["unverified"] is None
    assert named["asha-1994"]["unverified"]


# The listener -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_listener_answers_both_ears_and_sees_no_verdict(desk: Desk) -> None:
    person = desk.person(name="Canary Name")
    for ear in ("right", "left"):
        desk.reference(person, ear)
    device = desk.calibrated()
    desk.checked(device)
    listener, test = desk.listening(person, ears=["right", "left"], device=device)
    first = listener.call()
    assert (first["state"], first["exam"]) == ("check", {"now": 1, "of": 2})
    assert first["presentation"] is None
    over = listener.run(threshold=10)
    assert over["released"] is None
    assert over["exam"] == {"now": 2, "of": 2}
    for exam in test["exams"]:
        assert desk.get(f"/exams/{exam['id']}")["decision"] == "unchanged"
    desk.post(f"/visits/{test['visit']}/release", {"released": True}, 204)
    released = listener.call()["released"][0]
    assert released["words"].startswith("Right ear: average at 2-4 kHz is")
    assert released["headline"] == "Your right ear hears as before"
    assert "1 in" in " ".join(released["plain"])
    assert released["tested_hz"]
    desk.post(f"/visits/{test['visit']}/release", {"released": False}, 204)
    shown = listener.call()
    assert shown["released"] is None
    assert "Canary" not in str(shown)
    assert "W-4711" not in str(shown)


def test_a_pause_by_the_examiner_is_the_examiners_to_end(desk: Desk) -> None:
    person = desk.person()
    desk.reference(person)
    device = desk.calibrated()
    desk.checked(device)
    listener, test = desk.listening(person, device=device)
    exam = f"/exams/{test['exams'][0]['id']}"
    listener.ready()
    paused = desk.post(f"{exam}/pause", {"reason": "fire drill"})
    assert paused["held"] == "paused by the examiner: fire drill"
    assert "resume" in paused["can"]
    assert (listener.call()["state"], listener.call()["held_by_examiner"]) == ("held", True)
    assert listener.ready()["state"] == "held"
    assert desk.get(exam)["state"] == "paused"
    let_go = desk.post(f"{exam}/resume")
    assert (let_go["held"], let_go["state"]) == (None, "paused")
    assert "resume" not in let_go["can"]
    assert listener.call()["state"] == "check"
    assert listener.ready()["state"] == "play"


def test_a_listener_who_presses_nothing_is_paused_and_the_examiner_told(desk: Desk) -> None:
    person = desk.person()
    desk.reference(person)
    device = desk.calibrated()
    desk.checked(device)
    listener, test = desk.listening(person, device=device, practice=False)
    exam = f"/exams/{test['exams'][0]['id']}"
    for _ in range(2):  # once more after the examiner has looked
        play = listener.ready()
        answered = 0
        while play["state"] == "play":
            body = {"trial": play["presentation"]["trial"], "heard": False}
            play, answered = listener.call("/answer", body), answered + 1
        assert (play["state"], play["held_by_examiner"]) == ("held", False)
        assert answered >= 5
        told = desk.get(exam)
        assert told["held"].startswith("the listener did not press at all")
        desk.post(f"{exam}/resume")
    # Who presses now and then is there.
    play = listener.ready()
    for number in range(12):
        body = {"trial": play["presentation"]["trial"], "heard": number % 4 == 3}
        play = listener.call("/answer", body)
        if play["state"] != "play":
            break
    assert play["state"] != "held"


def test_a_link_is_also_a_picture_to_scan(desk: Desk) -> None:
    person = desk.person()
    desk.reference(person)
    device = desk.calibrated()
    desk.checked(device)
    test = desk.test(person, answered_by="listener", device=device)
    link = desk.post(f"/visits/{test['visit']}/link", status=201)
    rows = link["qr"]
    assert all(len(row) == len(rows) and set(row) <= {"0", "1"} for row in rows)
    same = segno.make_qr(f"{ORIGIN}{link['url']}", error="m").matrix
    assert [[int(one) for one in row] for row in rows] == [[int(one) for one in r] for r in same]


def test_a_link_opens_nothing_but_its_own_exam(desk: Desk) -> None:
    person = desk.person()
    desk.reference(person)
    device = desk.calibrated()
    desk.checked(device)
    listener, test = desk.listening(person, device=device)
    for path in (f"/people/{person}", f"/exams/{test['exams'][0]['id']}", "/devices", "/me"):
        headers = {"Authorization": f"Listener {listener.token}"}
        assert listener.client.get(f"/api{path}", headers=headers).status_code == 401
    desk.delete(f"/visits/{test['visit']}/link")
    assert "ask the examiner" in listener.call(status=401)["detail"]


def test_a_stop_voids_the_tone_and_asks_for_the_set_up_again(desk: Desk, app_store: Store) -> None:
    person = desk.person()
    desk.reference(person)
    device = desk.calibrated()
    desk.checked(device)
    listener, test = desk.listening(person, device=device)
    play = listener.ready()
    assert play["state"] == "play"
    first = play["presentation"]["trial"]
    assert listener.call("/stop", {"trial": first, "reason": "hidden"})["state"] == "check"
    assert listener.call("/answer", {"trial": first, "heard": True})["state"] == "check"
    again = listener.ready()
    assert again["presentation"]["trial"] != first
    assert again["presentation"]["level"] == play["presentation"]["level"]
    exam_id = app_store.behind("exams", test["exams"][0]["id"])
    (void,) = app_store.trials(exam_id)
    assert void.void_reason == "the page was hidden"
    second = again["presentation"]["trial"]
    listener.call("/press", {"trial": second, "after_onset_ms": -300}, 204)
    assert len(app_store.presses(exam_id)) == 1
    # A stop that arrives late, for a tone that was answered meanwhile, changes nothing.
    listener.call("/answer", {"trial": second, "heard": False})
    late = listener.call("/stop", {"trial": second, "reason": "panic"})
    assert late["state"] == "play"


@pytest.mark.slow
def test_an_answer_about_one_ear_never_counts_for_the_other(desk: Desk, app_store: Store) -> None:
    person = desk.person()
    for ear in ("right", "left"):
        desk.reference(person, ear)
    device = desk.calibrated()
    desk.checked(device)
    listener, test = desk.listening(person, ears=["right", "left"], device=device)
    play = listener.ready()
    sent = []
    while play["state"] == "play":
        level = play["presentation"]["level"]
        body = {
            "trial": play["presentation"]["trial"],
            "heard": level is not None and level >= 15,
        }
        sent.append(body)
        play = listener.call("/answer", body)
    assert play["state"] == "done"
    play = listener.ready()
    second = app_store.behind("exams", test["exams"][1]["id"])
    for body in sent:  # all of them once more, out of order
        again = listener.call("/answer", body)
        assert again["presentation"] == play["presentation"]
    assert app_store.trials(second) == ()


def test_another_device_than_planned_is_refused(desk: Desk) -> None:
    person = desk.person()
    desk.reference(person)
    device = desk.calibrated()
    desk.checked(device)
    listener, _ = desk.listening(person, device=device)
    other = {**BROWSER, "volume": "80 %"}
    refused = listener.call("/ready", {"fingerprint": other}, 409)
    assert "planned for" in refused["detail"]
    assert "80" not in refused["detail"]
    listener.call("/ready", {"fingerprint": None}, 409)
    assert listener.ready()["state"] == "play"


@pytest.mark.slow
def test_without_calibration_levels_are_relative_to_the_end(desk: Desk) -> None:
    person = desk.person()
    device = desk.device()
    listener, test = desk.listening(person, kind="exam", device=device, mode="self")
    play = listener.ready()
    assert play["sound"]["unit"] == "relative dB"
    assert play["sound"]["zero_dbfs"] == -90
    assert (play["presentation"]["practice"], play["presentation"]["level"]) == (True, 0)
    listener.run(threshold=20)
    done = desk.get(f"/exams/{test['exams'][0]['id']}")
    assert done["state"] == "done"
    assert "dB HL" not in done["words"]
    history = desk.get(f"/people/{person}")["history"]["right"]
    assert history[0]["unit"] == "relative dB"
    report = desk.get(f"/visits/{test['visit']}/report.html").text
    assert "relative dB" in report
    listener, test = desk.listening(person, device=device, mode="self")
    listener.run(threshold=20)
    assert desk.get(f"/exams/{test['exams'][0]['id']}")["decision"] == "unchanged"
    elsewhere = desk.device(name="tablet")
    refused = desk.test(person, 409, device=elsewhere, answered_by="listener", mode="self")
    assert "uncalibrated levels" in refused["detail"]


def test_a_volume_that_is_wrong_stops_before_the_first_tone(desk: Desk) -> None:
    person = desk.person()
    device = desk.device()
    listener, _ = desk.listening(person, kind="exam", device=device, mode="self")
    play = listener.ready()
    while play["state"] == "play":
        body = {"trial": play["presentation"]["trial"], "heard": True}
        play = listener.call("/answer", body)
    assert play["state"] == "check"
    assert "volume down" in play["problem"]
    assert listener.ready()["presentation"]["level"] == 0


@pytest.mark.slow
def test_a_self_test_stays_below_its_caps(desk: Desk) -> None:
    """Somebody who hears nothing at all climbs as slowly as the limits say, and not above."""
    person = desk.person()
    device = desk.calibrated()
    desk.checked(device)
    listener, _ = desk.listening(person, kind="exam", device=device, mode="self", practice=False)
    play = listener.ready()
    loudest = []
    while play["state"] == "play":
        shown = play["presentation"]
        if shown["level"] is not None:
            loudest.append(shown["level"])
            assert shown["dbfs"] <= play["sound"]["highest_dbfs"]
        play = listener.call("/answer", {"trial": shown["trial"], "heard": False})
    assert max(loudest) <= 80
    assert play["sound"]["cap_db"] == 80
    assert play["sound"]["cap_db_spl"] == 95


# The day ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_worklist_names_the_unfinished_the_changed_and_the_due(desk: Desk) -> None:
    late = desk.person(code="late")
    desk.reference(late, measured_on="2024-01-01")
    begun = desk.person(code="begun")
    desk.reference(begun, measured_on=f"{local_today(ZONE)}")
    exam = desk.test(begun)["exams"][0]["id"]
    # A reference of one ear, without all six frequencies: neither has a full audiogram of both.
    items = {(one["person"]["code"], one["why"]) for one in desk.get("/worklist")["items"]}
    assert items == {("late", "first"), ("begun", "first"), ("begun", "unfinished")}
    done = answer_to_the_end_changed(desk, exam)
    assert done["decision"] == "changed"
    found = desk.get("/worklist?limit=500")
    items = {(one["person"]["code"], one["why"]) for one in found["items"]}
    changed = {("begun", "audiogram"), ("begun", "review")}
    assert items == {("late", "first"), ("begun", "first"), *changed}
    assert (found["total"], found["counts"]["audiogram"]) == (4, 1)
    (line,) = desk.get("/worklist?why=audiogram")["items"]
    assert line["exam"]["id"] == exam
    assert line["words"] == "full audiogram after a change"
    assert desk.get("/worklist?department=nowhere")["total"] == 0
    desk.get("/worklist?why=boredom", 422)


def test_the_site_settles_its_windows_and_a_reviewer_closes(desk: Desk) -> None:
    by_name = {one["name"]: one for one in desk.get("/settings")}
    assert by_name["retest_days"]["source"].startswith("29 CFR 1904.10(b)(4)")
    desk.post("/settings/retest_days", {"value": 21, "reason": "not an examiner's"}, 403)
    desk.headers = sign_in(desk.client, "ada")
    new = desk.post("/settings/retest_days", {"value": 21, "reason": "our physician"})
    assert (new["value"], new["default"], new["reason"]) == (21, 30, "our physician")
    desk.post("/settings/retest_days", {"value": 0, "reason": "x"}, 422)
    desk.post("/settings/retest_days", {"value": True, "reason": "x"}, 422)
    desk.post("/settings/nonsense", {"value": 1, "reason": "x"}, 422)
    person = desk.person(code="A1")
    desk.reference(person, measured_on=f"{local_today(ZONE)}")
    exam = desk.test(person)["exams"][0]["id"]
    desk.post(f"/exams/{exam}/close", {"reason": "not yet"}, 409)
    answer_to_the_end_changed(desk, exam)
    assert desk.get("/worklist?why=audiogram")["total"] == 1
    assert desk.post(f"/exams/{exam}/close", {"reason": "seen by Dr K"})["closed"] is True
    assert desk.get("/worklist?why=audiogram")["total"] == 0
    assert desk.post(f"/exams/{exam}/reopen", {"reason": "mistaken"})["closed"] is False


def test_two_records_of_one_person_are_made_one_and_two_again(desk: Desk) -> None:
    one, other = desk.person(code="A1"), desk.person(code="A2", department="Press")
    desk.reference(other, measured_on="2024-01-01")
    desk.post(f"/people/{one}/merge", {"other": other, "reason": "hired twice"})
    file = desk.get(f"/people/{one}")
    assert (len(file["exams"]), file["others"][0]["code"]) == (1, "A2")
    assert desk.get(f"/people/{other}")["merged_into"] == one
    desk.post(f"/people/{one}/merge", {"other": other, "reason": "again"}, 409)
    desk.post(f"/people/{other}/separate", {"reason": "brothers"})
    assert desk.get(f"/people/{one}")["exams"] == []
    programme = desk.get("/programme")
    assert [group["name"] for group in programme["groups"]] == ["Press", None]
    desk.get("/programme?first=2026-01-02&last=2026-01-01", 422)


def answer_to_the_end_changed(desk: Desk, exam: str) -> dict[str, Any]:
    """A loss of the high frequencies."""
    play = desk.get(f"/exams/{exam}")["play"]
    while play["state"] == "play":
        asked = play["presentation"]
        threshold = 60 if asked["frequency_hz"] >= 1500 else 10
        heard = asked["level"] is not None and asked["level"] >= threshold
        play = desk.post(f"/exams/{exam}/answer", {"trial": asked["trial"], "heard": heard})
    found: dict[str, Any] = desk.get(f"/exams/{exam}")
    return found


def test_a_simulated_person_can_be_tried_and_leaves_nothing(desk: Desk, app_store: Store) -> None:
    choices = desk.get("/try/choices")
    assert "osha-sts" in choices["rules"]
    for change, decision in (("none", "unchanged"), ("all frequencies 15 dB", "changed")):
        body = {"seed": 3, "hearing": choices["hearing"][0], "change": change, "rule": "osha-sts"}
        begun = desk.post("/try", {**body, "tones": 0})
        assert begun["trials"] == []
        ended = desk.post("/try", {**body, "tones": 30})
        assert (ended["state"], ended["decision"]) == ("done", decision)
        assert desk.post("/try", {**body, "tones": 30}) == ended
    for wrong in ({"hearing": "canary"}, {"change": "canary"}, {"rule": "canary"}, {"tones": 31}):
        assert "canary" not in str(desk.post("/try", wrong, 422))
    assert app_store.people() == []


def test_who_looked_at_whom_is_in_the_audit(desk: Desk, app_store: Store) -> None:
    person = desk.person()
    desk.get(f"/people/{person}")
    seen = app_store.audit(subject=f"people:{app_store.behind('people', person)}", limit=1000)
    assert ("bob", "view") in {(entry.author, entry.action) for entry in seen}


@pytest.mark.parametrize("delete_trials", [False, True])
def test_the_audit_names_people_until_they_are_erased(
    desk: Desk, app_store: Store, delete_trials: bool
) -> None:
    person = desk.person()
    code = desk.get(f"/people/{person}")["code"]
    desk.reference(person)
    test = desk.test(person)
    answer_to_the_end(desk, test["exams"][0]["id"])
    desk.post(f"/people/{person}/notes", {"text": "Wears muffs."}, 201)
    device = desk.calibrated()
    desk.checked(device)
    desk.listening(person, device=device)
    desk.person(code="another")
    desk.headers = sign_in(desk.client, "ada")

    def lines() -> list[dict[str, Any]]:
        about = {"person": person, "limit": 500, "first": "2000-01-01"}
        found: list[dict[str, Any]] = desk.get("/audit", params=about)["entries"]
        return found

    known = lines()
    kinds = {one["subject"].partition(":")[0] for one in known}
    assert {"people", "visits", "exams", "trials", "results", "notes", "keys"} <= kinds
    assert {(one["person"]["id"], one["person"]["code"]) for one in known} == {(person, code)}
    assert {one["test"]["id"] for one in known if one["subject"].startswith("trials:")} == {
        test["exams"][0]["id"]
    }
    number = app_store.behind("people", person)
    app_store.erase_person(number, author="ada", reason="other", delete_trials=delete_trials)
    assert all(one["gone"] and one["person"] is None and one["test"] is None for one in lines())
    everything = desk.get("/audit", params={"limit": 500})["entries"]
    assert code not in str(everything)
    assert {one["gone"] for one in everything if one["subject"].startswith("trials:")} == {True}
    assert desk.get("/audit", params={"last": "2000-01-01"})["entries"] == []


def test_practice_comes_first_unless_it_is_not_wanted(desk: Desk) -> None:
    person = desk.person()
    desk.reference(person)
    plain = desk.test(person)["exams"][0]
    assert plain["play"]["presentation"]["practice"] is False
    desk.post(f"/exams/{plain['id']}/abandon")
    practised = desk.test(person, practice=True)["exams"][0]["play"]["presentation"]
    assert (practised["practice"], practised["level"]) == (True, 40)


def test_a_desk_that_plays_checks_its_set_up_first_and_after_trouble(
    desk: Desk, app_store: Store
) -> None:
    person = desk.person()
    desk.reference(person)
    device = desk.calibrated()
    desk.checked(device)
    begun = desk.test(person, device=device)["exams"][0]
    exam = begun["id"]
    assert (begun["state"], begun["play"]["state"]) == ("paused", "check")
    desk.post(f"/exams/{exam}/resume", status=409)
    other = {**BROWSER, "installation": "elsewhere"}
    desk.post(f"/exams/{exam}/ready", {"fingerprint": other}, 409)
    play = desk.post(f"/exams/{exam}/ready", {"fingerprint": BROWSER})
    asked = play["presentation"]
    stopped = desk.post(f"/exams/{exam}/stop", {"trial": asked["trial"], "reason": "device"})
    assert stopped["state"] == "check"
    again = desk.post(f"/exams/{exam}/ready", {"fingerprint": BROWSER})["presentation"]
    assert (again["level"], again["frequency_hz"]) == (asked["level"], asked["frequency_hz"])
    assert again["trial"] != asked["trial"]
    (void,) = app_store.trials(app_store.behind("exams", exam))
    assert void.void_reason == "the audio device changed"
    answer = {"trial": again["trial"], "heard": True, "played_db": 30}
    desk.post(f"/exams/{exam}/answer", answer, 409)


def test_nothing_goes_on_with_a_device_that_failed_or_was_calibrated_anew(desk: Desk) -> None:
    person = desk.person()
    desk.reference(person)
    device = desk.calibrated()
    desk.checked(device)
    exam = desk.test(person, device=device, loud_confirmed=True)["exams"][0]["id"]
    answer_to_the_end(desk, exam)
    again = desk.post(f"/exams/{exam}/retest", status=201)
    assert again["play"]["sound"]["cap_db"] == 90  # louder was confirmed for that exam alone
    desk.post(f"/exams/{again['id']}/abandon")
    desk.checked(device, deviation=15)
    assert "failed" in desk.post(f"/exams/{exam}/retest", status=409)["detail"]
    today = local_today(ZONE)
    body = {
        "done_on": f"{today}",
        "due_on": f"{today + timedelta(days=300)}",
        "laboratory": "lab",
        "coupler": "IEC 60318-1 with type 1 adaptor",
        "retspl": "hda200-60318-1",
        "full_scale_db_spl": {e: {"500": 90, "8000": 90} for e in ("right", "left")},
    }
    desk.post(f"/devices/{device}/calibrations", body, 201)
    assert "calibrated again" in desk.post(f"/exams/{exam}/continue", status=409)["detail"]


@pytest.mark.slow
def test_a_rule_that_is_not_verified_needs_consent_and_says_so(desk: Desk) -> None:
    person = desk.person()
    desk.reference(person)
    exam = desk.test(person, rule="asha-1994", accept_unverified=True)["exams"][0]["id"]
    assert "not verified" in answer_to_the_end(desk, exam)["words"]


@pytest.mark.slow
def test_frequencies_that_were_never_played_have_no_threshold(desk: Desk) -> None:
    """A calibration up to 4 kHz, a floor of 10 to 20 dB HL and a self-test's cap of 80."""
    person = desk.person()
    half = {e: {"500": 110, "4000": 110} for e in ("right", "left")}
    device = desk.calibrated(full_scale_db_spl=half)
    desk.checked(device)
    for threshold, censored in ((0, "below"), (200, "above")):
        listener, test = desk.listening(
            person, kind="exam", device=device, mode="self", practice=False
        )
        listener.run(threshold=threshold)
        exam = test["exams"][0]["id"]
        shown = {t["frequency_hz"]: t for t in desk.get(f"/exams/{exam}/live")["thresholds"]}
        assert set(shown) == {500, 750, 1000, 1500, 2000, 3000, 4000}
        assert {t["censored"] for t in shown.values()} == {censored}
        assert all(10 <= t["level"] <= 80 for t in shown.values())


@pytest.mark.slow
def test_without_calibration_the_own_level_is_found_again_after_a_break(desk: Desk) -> None:
    person = desk.person()
    device = desk.device()
    listener, _ = desk.listening(person, kind="exam", device=device, mode="self")

    def practise(play: dict[str, Any], threshold: float) -> tuple[dict[str, Any], list[float]]:
        levels = []
        while play["state"] == "play" and play["presentation"]["practice"]:
            asked = play["presentation"]
            levels.append(asked["level"])
            body = {"trial": asked["trial"], "heard": asked["level"] >= threshold}
            play = listener.call("/answer", body)
        return play, levels

    play, levels = practise(listener.ready(), 20)
    assert levels == [0, 5, 10, 15, 20, 20]
    for _ in range(3):
        body = {"trial": play["presentation"]["trial"], "heard": False}
        play = listener.call("/answer", body)
    listener.call("/stop", {"trial": play["presentation"]["trial"], "reason": "pause"})
    play, levels = practise(listener.ready(), 20)
    assert levels == [10, 15, 20, 20]
    assert play["presentation"]["practice"] is False
    listener.call("/stop", {"trial": play["presentation"]["trial"], "reason": "pause"})
    play, levels = practise(listener.ready(), 5)  # somebody has turned the volume up
    assert play["state"] == "check"
    assert "not what it was" in play["problem"]


def test_a_baseline_is_the_oldest_until_somebody_chooses_another(desk: Desk) -> None:
    person = desk.person()
    new = desk.reference(person, measured_on="2025-05-05")["id"]
    old = desk.reference(person, measured_on="2020-01-01")["id"]
    other_ear = desk.reference(person, "left")["id"]
    baselines = desk.get(f"/people/{person}")["baselines"]
    assert baselines["right"]["exam"] == old
    assert baselines["right"]["chosen_by"] is None
    body = {"ear": "right", "exam": other_ear, "reason": "mixed up"}
    assert "ears are never mixed" in desk.post(f"/people/{person}/baseline", body, 409)["detail"]
    body = {"ear": "right", "exam": new, "reason": "persistent shift, seen by Dr B"}
    chosen = desk.post(f"/people/{person}/baseline", body)
    assert (chosen["exam"], chosen["chosen_by"]) == (new, "bob")
    again = desk.get(f"/people/{person}")["baselines"]["right"]
    assert again["reason"] == "persistent shift, seen by Dr B"
    seen = desk.get(f"/people/{person}/monitoring")["right"]
    assert [one["exam"] for one in seen["occasions"]] == [old, new]
    assert seen["baseline"] == again


# What the page before a test shows ------------------------------------------------------------


def _offered(desk: Desk, person: str, device: str | None = None) -> list[dict[str, Any]]:
    lists = desk.get(f"/people/{person}")["references"]
    (found,) = [one["ears"] for one in lists if one["device"] == device]
    assert list(found) == ["right", "left"]
    right: list[dict[str, Any]] = found["right"]
    return right


def test_what_is_offered_as_a_reference_is_what_is_taken(desk: Desk) -> None:
    person = desk.person()
    assert _offered(desk, person) == []
    new = desk.reference(person, measured_on="2025-05-05")["id"]
    old = desk.reference(person, measured_on="2020-01-01", source="archive")["id"]
    first, second = _offered(desk, person)
    assert (first["exam"], first["default"], first["baseline"]) == (old, True, True)
    assert (first["source"], first["measured_on"], first["kind"]) == (
        "archive",
        "2020-01-01",
        "audiogram",
    )
    assert (second["exam"], second["default"], second["baseline"]) == (new, False, False)
    assert {one["reason"] for one in (first, second)} == {None}
    device = desk.device()  # uncalibrated levels: nothing measured elsewhere compares with it
    relative = _offered(desk, person, device)
    assert [one["default"] for one in relative] == [False, False]
    assert all("same device" in one["reason"] for one in relative)
    refused = desk.test(person, 409, device=device, reference={"right": old})
    assert "uncalibrated levels" in refused["detail"]
    chosen = {"ear": "right", "exam": new, "reason": "revised"}
    desk.post(f"/people/{person}/baseline", chosen)
    assert [one["exam"] for one in _offered(desk, person)] == [new, old]
    exam = desk.test(person)["exams"][0]
    assert exam["state"] == "open"


def test_a_device_says_what_it_allows(desk: Desk) -> None:
    by_hand = desk.post("/devices", {"name": "audiometer"}, 201)
    assert (by_hand["answered_by"], by_hand["unit"]) == (["examiner"], "dB HL")
    assert by_hand["warnings"] == []
    relative = desk.get(f"/devices/{desk.device()}")
    assert (relative["answered_by"], relative["unit"]) == (["examiner", "listener"], "relative dB")
    assert "relative" in relative["warnings"][0]
    calibrated = desk.calibrated()
    assert desk.get(f"/devices/{calibrated}")["warnings"] == [
        "The device was not checked with a listener today."
    ]
    failed = desk.checked(calibrated, deviation=12)
    assert failed["warnings"][0] == failed["blocked"]


def test_no_refusal_names_a_row_a_path_or_what_was_typed(desk: Desk) -> None:
    person = desk.person(name="Secret Name")
    other = desk.person(code="W-4712")
    exam = desk.reference(other)["id"]
    refusals = [
        desk.test(person, 409),
        desk.test(person, 409, reference={"right": exam}),
        desk.test(person, 409, rule="canary"),
        desk.post("/people", {"code": "W-4711"}, 409),
        desk.post("/imports?format=nhanes", status=422, content=b"canary"),
        desk.post("/imports", status=422, content=b"person,canary\nx,1\n"),
        desk.post(f"/people/{person}/baseline", {"ear": "left", "exam": exam, "reason": "x"}, 409),
    ]
    for refusal in refusals:
        text = refusal["detail"]
        for secret in ("canary", "W-4711", "W-4712", "Secret", "/tmp", "upload", "earshift ", "--"):
            assert secret not in text, text
        assert not any(f"{kind} {n}" in text for kind in ("exam", "person") for n in range(1, 9))


def test_a_listener_who_stops_very_often_waits_for_the_examiner(
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "MOST_BREAKS", 3)
    person = desk.person()
    desk.reference(person)
    device = desk.calibrated()
    desk.checked(device)
    listener, test = desk.listening(person, device=device)
    for _ in range(20):
        play = listener.ready()
        if play["state"] != "play":
            break
        trial = play["presentation"]["trial"]
        listener.call("/stop", {"trial": trial, "reason": "hidden"})
        listener.call("/stop", {"trial": None, "reason": "hidden"})
    assert play["state"] != "play"
    exam = test["exams"][0]["id"]
    assert desk.get(f"/exams/{exam}")["held"] == sessions.RESTLESS
    desk.post(f"/exams/{exam}/resume")
    assert listener.ready()["state"] == "play"


def test_nobody_answers_before_the_tone_could_be_heard(
    desk: Desk,
    app_store: Store,
) -> None:
    person = desk.person()
    desk.reference(person)
    device = desk.calibrated()
    desk.checked(device)
    heard_from = {**FAST, "window_opens_ms": 100, "window_closes_ms": 500}
    listener, test = desk.listening(person, device=device, timing=heard_from)
    trial = listener.ready()["presentation"]["trial"]
    early = {"trial": trial, "heard": True, "reaction_ms": 12.0}
    assert "within" in listener.call("/answer", early, 422)["detail"]
    exam_id = app_store.behind("exams", test["exams"][0]["id"])
    assert app_store.trials(exam_id) == ()
    listener.call("/answer", {**early, "reaction_ms": 340.0})
    assert len(app_store.trials(exam_id)) == 1
