"""A clinic whose calibrated device is the tests' own browser, and people who are invited there."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

import earshift as es
from earshift.days import today
from earshift.web import Settings, create_app
from support.browser import served
from support.clinic_day import REFERENCE, Clinic, ear
from support.scripted_listener import ScriptedListener
from support.web import with_users

QUICK = {
    "pulses": 1,
    "pulse_ms": 60,
    "pause_ms": 0,
    "ramp_ms": 20,
    "window_opens_ms": 50,
    "window_closes_ms": 500,
    "gap_min_ms": 0,
    "gap_max_ms": 50,
}
FULL_SCALE_DB_SPL = 110.0
TYPED = {"earphones": "HDA 200", "connection": "wired", "volume": "8 of 16 bars"}


class House:
    """A running app, an examiner at its API, and two devices that are this very browser."""

    def __init__(self, address: str, clinic: Clinic, fingerprint: dict[str, Any]) -> None:
        self.address, self.clinic, self._fingerprint = address, clinic, fingerprint
        device = {"transducer": "circumaural", "fingerprint": fingerprint}
        self.device = clinic.post("/api/devices", {"name": "Tablet", **device})["id"]
        self.uncalibrated = clinic.post("/api/devices", {"name": "Own telephone", **device})["id"]
        flat = {"500": FULL_SCALE_DB_SPL, "8000": FULL_SCALE_DB_SPL}
        (preset,) = (r for r in clinic.get("/api/retspl") if r["name"] == "hda200-60318-1")
        self.retspl: dict[str, float] = preset["values"]
        calibration = {
            "done_on": str(today("UTC") - timedelta(30)),
            "due_on": str(today("UTC") + timedelta(300)),
            "laboratory": "Example Lab",
            "coupler": preset["coupler"],
            "kind": "acoustic",
            "retspl": preset["name"],
            "full_scale_db_spl": {"right": flat, "left": flat},
            "floor_dbfs": -120,
        }
        clinic.post(f"/api/devices/{self.device}/calibrations", calibration)
        check = {"listener": "bob", "deviations_db": {"right": {"1000": 0}, "left": {"1000": 0}}}
        clinic.post(f"/api/devices/{self.device}/checks", check)

    def invite(self, code: str, ears: tuple[str, ...] = ("right",), **plan: Any) -> dict[str, Any]:
        """A screen of a new person on their own device. Gives the test and its link."""
        known = ("right", "left") if ears == ("both",) else ears
        person = self.clinic.person(f"Secret {code}", code, references=known)
        given = {"answered_by": "listener", "mode": "self", "device": self.device}
        test = self.clinic.begin(person, ears=list(ears), **{**given, "timing": QUICK, **plan})
        link = self.clinic.post(f"/api/visits/{test['visit']}/link")
        return {**test, "url": self.address + link["url"]}

    def hearing(self, worse_db: float = 0.0) -> dict[str, list[tuple[float, float]]]:
        """The softest digital level that a person with the reference's ears hears."""
        threshold = ear(REFERENCE, worse_db)
        pairs = [
            (float(hz), threshold(float(hz)) + retspl - FULL_SCALE_DB_SPL)
            for hz, retspl in self.retspl.items()
        ]
        return {"right": pairs, "left": pairs}

    def settle_in(self, page: Page) -> None:
        """Make the browser of this page, which is new to the app, the device of this house."""
        number = self._fingerprint["installation"]
        page.add_init_script(f'localStorage.setItem("installation", "{number}")')

    def seat(self, page: Page, test: dict[str, Any]) -> ScriptedListener:
        self.settle_in(page)
        listener = ScriptedListener(page)
        listener.open(test["url"])
        return listener

    def decisions(self, test: dict[str, Any]) -> dict[str, str]:
        exams = [self.clinic.get(f"/api/exams/{exam['id']}") for exam in test["exams"]]
        return {exam["ear"]: exam["decision"] for exam in exams}


def become_device(page: Page) -> dict[str, Any]:
    """Make the browser of a page of the app a device. Gives its fingerprint."""
    register = """async (typed) => {
      const device = await import("/static/browser_device.js");
      device.becomeDevice();
      return device.fingerprint(typed);
    }"""
    fingerprint: dict[str, Any] = page.evaluate(register, TYPED)
    return fingerprint


@contextmanager
def open_house(browser: Browser, folder: Path) -> Iterator[House]:
    """A house over a new database in this folder."""
    _compile()
    db = str(folder / "clinic.db")
    with_users(db)
    with served(create_app(Settings(db=db))) as address, Clinic(address) as clinic:
        page = browser.new_page()
        page.goto(f"{address}/static/setup.js")  # any page of the app from which to import
        fingerprint = become_device(page)
        page.close()
        yield House(address, clinic, fingerprint)


def _compile() -> None:
    """A new installation compiles for minutes at its first answers: nobody should sit and wait."""
    audiogram = es.Audiogram({float(hz): level for hz, level in REFERENCE.items()})
    screen = es.Screen(reference=audiogram, rule="osha-sts", domain="audiometer")
    for heard in (True, False, True):
        screen.tell(screen.ask(), heard=heard)
    screen.verdict()
