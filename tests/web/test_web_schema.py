"""Every route of the documented API, as every role, with what schemathesis makes of its schema.

A route gets one request that is right, in a state where it can be answered, and then generated ones
with real ids: no answer may be a server's error, and whoever may call a route must reach a 2xx.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyotp
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.generation import GenerationMode
from test_web_security import (
    ADMIN,
    CALLERS,
    CANARY,
    EVERYBODY,
    EXAMINER,
    LISTENER,
    NOBODY,
    REVIEWER,
    USERS,
)

from earshift.store.accounts import csrf_token, offer_factor
from earshift.web.settings import Settings
from support.web import ORIGIN, PASSWORD, TestClient, client_of, with_users

FINGERPRINT = {
    "browser": "test",
    "system": "test",
    "sample_rate": 48000,
    "channels": 2,
    "earphones": "headphones",
    "connection": "wired",
    "volume": "50 %",
}
THRESHOLDS = {"500": 10, "1000": 10, "2000": 10, "3000": 15, "4000": 20, "6000": 20, "8000": 15}
CSV = b"person,date,ear,frequency_hz,threshold_db_hl\nupload-%d,2025-01-02,right,1000,20\n"


@dataclass(frozen=True)
class Right:
    """A request that a route answers: ids for its path, and the rest."""

    ids: dict[str, str] = field(default_factory=dict)
    json: Any = None
    content: bytes | None = None


class World:
    """People, exams and devices in whatever state a route needs, made through the API itself."""

    def __init__(self, client: TestClient) -> None:
        self._client = client
        self.app: Any = client.app
        self._numbers = count(1)
        self._sessions: dict[str, dict[str, str]] = {}
        self.owner: dict[str, str] = {}
        self._headers = self.session("bob")
        self.person = self.new_person()
        self.device = self.post("devices", name="tablet", fingerprint=FINGERPRINT)["id"]
        self.link = self.listened()[1]
        self.screened = self.new_screen()

    def signed_in(self, name: str) -> dict[str, str]:
        """The headers of a new session; not by the API, which counts attempts."""
        signed_in = self.app.state.accounts.sign_in(name, PASSWORD, "192.0.2.1")
        assert signed_in is not None
        cookie = f"{self.app.state.settings.cookie}={signed_in[1]}"
        return {"Origin": ORIGIN, "X-CSRF-Token": csrf_token(signed_in[1]), "Cookie": cookie}

    def session(self, name: str) -> dict[str, str]:
        """The headers of a session that goes on."""
        if name not in self._sessions:
            self._sessions[name] = self.signed_in(name)
        return self._sessions[name]

    def send(self, case: Any, headers: dict[str, str]) -> Any:
        """The answer to a generated request, from the app itself."""
        case.headers.pop("Authorization", None)
        asked = requests.Request(**case.as_transport_kwargs(base_url=ORIGIN, headers=headers))
        sent = asked.prepare()
        self._client.cookies.clear()
        return self._client.request(
            str(sent.method), str(sent.url), content=sent.body, headers=dict(sent.headers)
        )

    def request(
        self, method: str, path: str, query: dict[str, str], body: Any, headers: dict[str, str]
    ) -> Any:
        self._client.cookies.clear()
        sent = {"content": body} if isinstance(body, bytes) else {"json": body}
        return self._client.request(method, path, params=query, headers=headers, **sent)

    def number(self) -> int:
        return next(self._numbers)

    def post(self, path: str, by: str | None = None, **body: Any) -> Any:
        self._client.cookies.clear()
        headers = self._headers if by is None else self.session(by)
        told = self._client.post(f"/api/{path}", json=body, headers=headers)
        assert told.is_success, f"{path}: {told.status_code} {told.text}"
        return told.json() if told.content else None

    def new_person(self) -> str:
        person: str = self.post("people", code=f"P{self.number()}")["id"]
        for ear in ("right", "left"):
            self.post(f"people/{person}/audiograms", ear=ear, thresholds=THRESHOLDS)
        return person

    def new_thresholds(self) -> dict[str, int]:
        """No audiogram that was stored before: the same one twice is refused."""
        tens, ones = divmod(self.number(), 60)
        return {**THRESHOLDS, "500": tens, "1000": ones}

    def new_reference(self) -> str:
        """An audiogram of the left ear of the person."""
        levels = self.new_thresholds()
        made = self.post(f"people/{self.person}/audiograms", ear="left", thresholds=levels)
        return str(made["id"])

    def new_exam(self, *, answers: int = 0) -> str:
        """An open exam of a new person that the examiner answers."""
        test = self.post(
            f"people/{self.new_person()}/tests", kind="exam", ears=["right"], practice=False
        )
        self.answer(test["exams"][0], answers)
        exam: str = test["exams"][0]["id"]
        return exam

    def new_screen(self) -> dict[str, Any]:
        """The test of a new person whose screen is over."""
        test: dict[str, Any] = self.post(
            f"people/{self.new_person()}/tests",
            kind="screen",
            ears=["right"],
            rule="osha-sts",
            practice=False,
        )
        self.answer(test["exams"][0], 1, heard=False)  # too little to decide, and so to end early
        self.post(f"exams/{test['exams'][0]['id']}/finish")
        return test

    def answer(self, exam: dict[str, Any], answers: int, *, heard: bool = True) -> None:
        shown = exam["play"]["presentation"]
        for _ in range(answers):
            told = self.post(f"exams/{exam['id']}/answer", trial=shown["trial"], heard=heard)
            shown = told["presentation"]

    def listened(self, *, ready: bool = False) -> tuple[str, str]:
        """A visit whose exam a listener answers alone, and the token of its link."""
        test = self.post(
            f"people/{self.new_person()}/tests",
            kind="exam",
            ears=["right"],
            device=self.device,
            practice=False,
            answered_by="listener",
            accept_calibration=True,
        )
        link: str = self.post(f"visits/{test['visit']}/link")["url"].partition("#")[2]
        if ready:
            told = self._client.post(
                "/api/listen/ready",
                json={"fingerprint": FINGERPRINT},
                headers={"Authorization": f"Listener {link}", "Origin": ORIGIN},
            )
            assert told.is_success, told.text
        return test["visit"], link

    def shifted(self, *, signed: bool = False) -> dict[str, Any]:
        """An audiogram with a standard threshold shift, whose visit a reviewer has signed."""
        person = self.post("people", code=f"P{self.number()}")["id"]
        for year, worse in (("2024", 0), ("2025", 20)):
            levels = {hertz: level + worse for hertz, level in THRESHOLDS.items()}
            exam: dict[str, Any] = self.post(
                f"people/{person}/audiograms",
                ear="right",
                thresholds=levels,
                measured_on=f"{year}-03-01",
            )
        if signed:
            self.post(f"visits/{exam['visit']}/sign", by="rea", **self.signature(exam["visit"]))
        return exam

    def signature(self, visit: str) -> dict[str, Any]:
        """What somebody sends who has just read the visit."""
        seen = self.review(visit)["seen"]
        return {"name": "Dr R", "meaning": "reviewed", "seen": seen, "password": PASSWORD}

    def review(self, visit: str) -> dict[str, Any]:
        told = self.request("GET", f"/api/visits/{visit}/review", {}, None, self._headers)
        shown: dict[str, Any] = told.json()
        return shown

    def new_user(self) -> str:
        name = f"user{self.number()}"
        self.app.state.accounts.add_user(name, PASSWORD, role="examiner", author="test")
        return name

    def new_owner(self, like: str) -> str:
        """A new account with the role of this user: the next call about one is theirs."""
        accounts, name = self.app.state.accounts, f"own{self.number()}"
        role = accounts.user(like).role
        accounts.add_user(name, PASSWORD, role=role, author="test", temporary=False)
        self.owner = self.signed_in(name)
        return name

    def offered(self, like: str) -> dict[str, str]:
        """What sets up the second factor of a new account."""
        user = self.app.state.accounts.user(self.new_owner(like))
        offer = offer_factor(user, self.owner["Cookie"].partition("=")[2])
        code = pyotp.TOTP(offer.secret).now()
        return {"secret": offer.secret, "proof": offer.proof, "code": code}

    def enrolled(self, like: str) -> str:
        """A new account that has a second factor."""
        accounts, offered = self.app.state.accounts, self.offered(like)
        secret = self.owner["Cookie"].partition("=")[2]
        key = accounts.session(secret)
        accounts.take_factor(key, secret, **offered)
        return str(key.user.name)

    def new_token(self, user: str) -> str:
        made, _ = self.app.state.accounts.make_token(user, name="test", days=1, author="test")
        return str(made.public_id)


def _in_state(change: str | None, answers: int = 0) -> Callable[[World, str], Right]:
    def prepared(world: World, _: str) -> Right:
        exam = world.new_exam(answers=answers)
        if change is not None:
            world.post(f"exams/{exam}/{change}")
        return Right({"exam": exam}, json={})

    return prepared


def _screened(world: World, _: str) -> Right:
    return Right({"exam": world.screened["exams"][0]["id"]})


def _closed(world: World, _: str) -> Right:
    exam = world.new_screen()["exams"][0]["id"]
    world.post(f"exams/{exam}/close", by="ada", reason="test")
    return Right({"exam": exam}, json={"reason": "test"})


def _to_know(world: World, _: str) -> Right:
    code = f"K{world.number()}"
    person = world.post("people", code=code)["id"]
    for ear in ("right", "left"):
        world.post(f"people/{person}/audiograms", ear=ear, thresholds=THRESHOLDS)
    device = world.post("devices", name="booth")["id"]
    return Right({"device": device}, json={"listener": "test", "person": code})


def _walked(world: World, _: str) -> Right:
    """A guided daily check with all of its answers."""
    device = world.post("devices", name="booth")["id"]
    asked: dict[str, Any] = {"listener": "test", "anew": True, "heard": []}
    while not (step := world.post(f"devices/{device}/checks/guided", **asked))["over"]:
        asked["heard"].append(step["play"]["presentation"]["level"] >= 20)
    return Right({"device": device}, json={**asked, "conditions": step["conditions"]})


def _merged(world: World, _: str) -> Right:
    person, other = world.new_person(), world.new_person()
    world.post(f"people/{person}/merge", other=other, reason="test")
    return Right({"person": other}, json={"reason": "test"})


def _reported(world: World, _: str) -> Right:
    return Right({"visit_id": world.screened["visit"]})


def _to_sign(world: World, _: str) -> Right:
    visit = world.shifted()["visit"]
    return Right({"visit_id": visit}, json=world.signature(visit))


def _own(**body: str) -> Callable[[World, str], Right]:
    def prepared(world: World, user: str) -> Right:
        world.new_owner(user)
        return Right(json=body or None)

    return prepared


def _own_session(world: World, user: str) -> Right:
    name = world.new_owner(user)
    return Right({"id": world.app.state.accounts.sessions(name)[0].public_id})


def _own_factor(world: World, user: str) -> Right:
    world.enrolled(user)
    return Right()


def _followed(world: World, _: str) -> Right:
    visit = world.shifted()["visit"]
    done = {"kind": "training", "done_on": world.review(visit)["on"], "done_by": "Ms W"}
    return Right({"visit_id": visit}, json=done)


def _to_tell(world: World, _: str) -> Right:
    return Right({"visit_id": world.shifted(signed=True)["visit"]})


# The right request of each route that is more than its path. The second argument is who calls.
RIGHT: dict[str, Callable[[World, str], Right]] = {
    "POST /api/login": lambda w, _: Right(json={"name": "bob", "password": PASSWORD}),
    "POST /api/users": lambda w, _: Right(
        json={"name": f"user{w.number()}", "role": "examiner", "password": PASSWORD}
    ),
    "POST /api/users/{name}/state": lambda w, _: Right(
        {"name": w.new_user()}, json={"reason": "test", "state": "disabled"}
    ),
    "GET /api/account": _own(),
    "POST /api/account/confirm": _own(password=PASSWORD),
    "POST /api/account/password": _own(password=PASSWORD, new_password=f"{PASSWORD} two"),
    "POST /api/account/second-factor/offer": _own(),
    "POST /api/account/second-factor": lambda w, user: Right(json=w.offered(user)),
    "DELETE /api/account/second-factor": _own_factor,
    "GET /api/account/sessions": _own(),
    "DELETE /api/account/sessions/{id}": _own_session,
    "GET /api/users/{name}/sessions": lambda w, _: Right({"name": "bob"}),
    "POST /api/users/{name}/sessions/end": lambda w, _: Right(
        {"name": w.new_user()}, json={"reason": "test"}
    ),
    "POST /api/users/{name}/second-factor/reset": lambda w, _: Right(
        {"name": w.enrolled("bob")}, json={"reason": "test"}
    ),
    "POST /api/users/{name}/pass": lambda w, _: Right({"name": w.new_user()}),
    "POST /api/tokens": lambda w, _: Right(json={"name": "test"}),
    "DELETE /api/tokens/{id}": lambda w, user: Right({"id": w.new_token(user)}),
    "POST /api/people/search": lambda w, _: Right(json={"text": "P1"}),
    "POST /api/people": lambda w, _: Right(json={"code": f"new{w.number()}"}),
    "GET /api/people/{person}": lambda w, _: Right({"person": w.person}),
    "POST /api/people/{person}/correct": lambda w, _: Right(
        {"person": w.person}, json={"reason": "test", "name": "Somebody"}
    ),
    "POST /api/people/{person}/baseline": lambda w, _: Right(
        {"person": w.person}, json={"ear": "left", "exam": w.new_reference(), "reason": "test"}
    ),
    "GET /api/people/{person}/monitoring": lambda w, _: Right({"person": w.person}),
    "GET /api/people/{person}/comparison": lambda w, _: Right({"person": w.person}),
    "POST /api/people/{person}/notes": lambda w, _: Right({"person": w.person}, json={"text": "x"}),
    "POST /api/people/{person}/audiograms": lambda w, _: Right(
        {"person": w.person}, json={"ear": "left", "thresholds": w.new_thresholds()}
    ),
    "POST /api/checklist/cautions": lambda w, _: Right(json={"otoscopy_left": "wax"}),
    "POST /api/people/{person}/tests": lambda w, _: Right(
        {"person": w.new_person()}, json={"kind": "exam", "ears": ["right"]}
    ),
    "POST /api/people/{person}/merge": lambda w, _: Right(
        {"person": w.new_person()}, json={"other": w.new_person(), "reason": "test"}
    ),
    "POST /api/people/{person}/separate": _merged,
    "POST /api/settings/{name}": lambda w, _: Right(
        {"name": "baseline_quiet_hours"},
        json={"value": 15 + w.number() % 9, "reason": "test"},
    ),
    "POST /api/exams/{exam}/close": lambda w, _: Right(
        {"exam": w.new_screen()["exams"][0]["id"]}, json={"reason": "test"}
    ),
    "POST /api/exams/{exam}/reopen": _closed,
    "GET /api/visits/{visit_id}/review": _reported,
    "GET /api/people/{person}/reviews": lambda w, _: Right({"person": w.person}),
    "POST /api/visits/{visit_id}/sign": _to_sign,
    "POST /api/exams/{exam}/work-related": lambda w, _: Right(
        {"exam": w.shifted()["id"]}, json={"related": True, "name": "Dr R", "reason": "test"}
    ),
    "POST /api/visits/{visit_id}/follow-ups": _followed,
    "GET /api/visits/{visit_id}/letter.html": _to_tell,
    "GET /api/visits/{visit_id}/letter.pdf": _to_tell,
    "POST /api/rooms/noise": lambda w, _: Right(
        json={"measured_on": "2026-01-02", "levels": {"500": 30}}
    ),
    "POST /api/imports": lambda w, _: Right(content=CSV % w.number()),
    "GET /api/booths/live": lambda w, _: Right(),
    "GET /api/export": lambda w, _: Right(),
    "POST /api/imports/columns": lambda w, _: Right(content=CSV % w.number()),
    "POST /api/imports/roster": lambda w, _: Right(content=b"code\nroster-%d\n" % w.number()),
    "POST /api/devices/{device}/default": lambda w, _: Right({"device": w.device}, json={}),
    "POST /api/devices": lambda w, _: Right(json={"name": "booth"}),
    "GET /api/devices/{device}": lambda w, _: Right({"device": w.device}),
    "POST /api/devices/{device}/calibrations": lambda w, _: Right(
        {"device": w.post("devices", name="booth")["id"]},
        json={
            "done_on": "2026-01-01",
            "due_on": "2027-01-01",
            "laboratory": "test",
            "coupler": "IEC 60318-4",
        },
    ),
    "POST /api/devices/{device}/checks": lambda w, _: Right(
        {"device": w.post("devices", name="booth")["id"]},
        json={"listener": "test", "deviations_db": {"right": {"1000": 0}, "left": {"1000": 5}}},
    ),
    "GET /api/devices/{device}/checks": lambda w, _: Right({"device": w.device}),
    "GET /api/devices/{device}/range": lambda w, _: Right({"device": w.device}),
    "POST /api/devices/{device}/checks/listeners": _to_know,
    "POST /api/devices/{device}/checks/guided": lambda w, _: Right(
        {"device": w.device}, json={"listener": "test", "heard": []}
    ),
    "POST /api/devices/{device}/checks/guided/save": _walked,
    "GET /api/exams/{exam}": _screened,
    "GET /api/exams/{exam}/live": _screened,
    "POST /api/exams/{exam}/answer": lambda w, _: Right(
        {"exam": w.new_exam()}, json={"trial": 1, "heard": True}
    ),
    "POST /api/exams/{exam}/ready": lambda w, _: Right(
        {"exam": w.new_exam()}, json={"fingerprint": None}
    ),
    "POST /api/exams/{exam}/stop": lambda w, _: Right(
        {"exam": w.new_exam()}, json={"trial": 1, "reason": "panic"}
    ),
    "POST /api/exams/{exam}/undo": _in_state(None, answers=1),
    "POST /api/exams/{exam}/pause": _in_state(None),
    "POST /api/exams/{exam}/resume": _in_state("pause"),
    "POST /api/exams/{exam}/finish": _in_state(None, answers=2),
    "POST /api/exams/{exam}/abandon": _in_state(None),
    "POST /api/exams/{exam}/retest": _in_state("abandon"),
    "POST /api/exams/{exam}/continue": lambda w, _: Right(
        {"exam": w.new_screen()["exams"][0]["id"]}
    ),
    "POST /api/visits/{visit_id}/link": lambda w, _: Right({"visit_id": w.listened()[0]}),
    "DELETE /api/visits/{visit_id}/link": lambda w, _: Right({"visit_id": w.listened()[0]}),
    "POST /api/visits/{visit_id}/release": lambda w, _: Right(
        {"visit_id": w.screened["visit"]}, json={"released": True}
    ),
    "GET /api/visits/{visit_id}/report.html": _reported,
    "GET /api/visits/{visit_id}/report.pdf": _reported,
    "POST /api/try": lambda w, _: Right(json={"tones": 1}),
    "POST /api/listen/ready": lambda w, _: Right(json={"fingerprint": FINGERPRINT}),
    "POST /api/listen/answer": lambda w, _: Right(
        json={"trial": 1, "heard": True, "reaction_ms": 300}
    ),
    "POST /api/listen/press": lambda w, _: Right(json={"trial": 1, "after_onset_ms": 10}),
    "POST /api/listen/stop": lambda w, _: Right(json={"trial": 1, "reason": "panic"}),
}
# Each generated request needs a state of its own here, and making one takes a while.
STATEFUL = ("/exams/{exam}/", "/link", "/tests", "/users", "/sign", "/follow-ups", "/letter")
# Requests by the schema and against it, for each route. More find more: EARSHIFT_REQUESTS=10.
TIMES = int(os.environ.get("EARSHIFT_REQUESTS", "1"))
NAMES = {ADMIN: "ada", REVIEWER: "rea", EXAMINER: "bob"}
GENERATED = {ADMIN: (3, 1), REVIEWER: (1, 0), EXAMINER: (2, 1), LISTENER: (1, 1), NOBODY: (1, 0)}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("schema")
    db = str(folder / "store.db")
    with_users(db)
    with client_of(Settings(db=db)) as client:
        yield World(client)


@pytest.mark.parametrize("role", sorted(EVERYBODY))
def test_no_route_fails_and_whoever_may_call_it_can(
    world: World, role: str, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = schemathesis.openapi.from_dict(world.app.openapi())
    calls: Counter[str] = Counter()
    good: Counter[str] = Counter()
    for found in schema.get_all_operations():
        operation = found.ok()
        route = f"{operation.method.upper()} {operation.path}"
        for case in _cases(world, role, route, operation):
            told = world.send(case, _credentials(world, role, route))
            what = f"{route} as {role}: {told.status_code} {told.content[:300]!r}"
            assert told.status_code < 500, what
            if told.status_code >= 400:
                assert isinstance(told.json()["detail"], str), what
            if role not in CALLERS[route]:
                assert told.status_code in (401, 403, 422), what
            calls[route] += 1
            good[route] += 200 <= told.status_code < 300
    with capsys.disabled():
        print(f"\n2xx as {role}, of all requests to what that role may call:")
        may = [route for route in calls if role in CALLERS[route]]
        print("\n".join(f"  {good[route]}/{calls[route]}  {route}" for route in may))
    never = [route for route in calls if role in CALLERS[route] and not good[route]]
    assert not never, f"no request was answered: {never}"
    assert not [route for route in calls if role not in CALLERS[route] and good[route]]


def _credentials(world: World, role: str, route: str) -> dict[str, str]:
    if role in USERS:
        name = NAMES[role]
        if "/api/account" in route and world.owner:
            return world.owner
        # Some calls want a password that was typed within the last minutes, one ends the session.
        anew = any(part in route for part in ("/logout", "/users", "/tokens"))
        return world.signed_in(name) if anew else world.session(name)
    if role == LISTENER:
        ready = route.rpartition("/")[2] in ("answer", "press", "stop")
        link = world.listened(ready=ready)[1] if "/listen" in route else world.link
        return {"Origin": ORIGIN, "Authorization": f"Listener {link}"}
    return {"Origin": ORIGIN}


def _cases(world: World, role: str, route: str, operation: Any) -> Iterator[Any]:
    """The request that is right, and generated ones with the ids of the right one."""
    positive, negative = GENERATED[role]
    if any(part in route for part in STATEFUL):
        positive, negative = min(positive, 1), min(negative, 1)
    positive, negative = TIMES * positive, TIMES * negative
    may = role in CALLERS[route]
    right = RIGHT.get(route, lambda *_: Right())
    user = NAMES.get(role, "bob")
    if may:
        now = right(world, user)
        body = {} if now.json is None else {"body": now.json, "media_type": "application/json"}
        if now.content is not None:
            body = {"body": now.content, "media_type": "application/octet-stream"}
        yield operation.Case(path_parameters=now.ids, **body)
    for case in _drawn(operation, GenerationMode.POSITIVE, positive):
        if case.path_parameters and may:
            case.path_parameters = right(world, user).ids
        yield case
    if may and (operation.body or operation.query or operation.path_parameters):
        yield from _drawn(operation, GenerationMode.NEGATIVE, negative)


def _drawn(operation: Any, mode: GenerationMode, number: int) -> list[Any]:
    cases: list[Any] = []
    if not number:
        return cases

    @settings(
        max_examples=number,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def draw(case: Any) -> None:
        cases.append(case)

    draw()
    return cases


def test_no_error_and_no_log_repeats_what_was_sent(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    schema = world.app.openapi()
    refused = 0
    with caplog.at_level(logging.DEBUG):
        for route in CALLERS:
            method, _, path = route.partition(" ")
            documented = schema["paths"].get(path, {}).get(method.lower())
            if documented is None or path == "/api/logout":
                continue
            role = LISTENER if "/listen" in path else ADMIN
            headers = _credentials(world, role, route)
            right = RIGHT.get(route, lambda *_: Right())(world, "ada")
            for ids, query, body in _with_canaries(schema, documented, right):
                told = world.request(method, path.format(**ids), query, body, headers)
                assert told.status_code < 500, f"{route}: {told.text}"
                if told.status_code >= 400:
                    refused += 1
                    assert CANARY.lower() not in f"{told.text} {told.headers}".lower(), route
    assert refused > 100
    logged = [line.getMessage() for line in caplog.records if not line.name.startswith("httpx")]
    assert len(logged) > refused
    assert not [line for line in logged if CANARY.lower() in line.lower()]


def _with_canaries(
    schema: dict[str, Any], documented: dict[str, Any], right: Right
) -> Iterator[tuple[dict[str, str], dict[str, str], Any]]:
    """The right request of a route with a canary in one place after the other."""
    body = right.content or right.json
    names = [one["name"] for one in documented.get("parameters", ()) if one["in"] == "query"]
    for name in (*names, CANARY):
        yield right.ids, {name: CANARY}, body
    for name in right.ids:
        yield {**right.ids, name: CANARY}, {}, body
    yield right.ids, {}, CANARY.encode()
    if isinstance(right.json, dict) and "requestBody" in documented:
        wanted = documented["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        fields = schema["components"]["schemas"][wanted.rpartition("/")[2]]["properties"]
        for name in (*fields, CANARY):
            for value in (CANARY, [CANARY], {CANARY: CANARY}, f"{CANARY}\x00"):
                yield right.ids, {}, {**right.json, name: value}
