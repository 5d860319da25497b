"""Pictures of the examiner's pages, from the real app with a made-up clinic.

    python docs/screenshots_examiner.py docs/images
    python docs/screenshots_examiner.py --every-page build/pages

The second takes every page, light and dark, to be looked at. Everybody in the pictures is invented,
and the answers are a simple rule's. The tests' own helpers start the app and the browser, so what
is shown is what is tested.
"""

import io
import itertools
import sys
import tempfile
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from earshift.web import Settings, create_app
from support.browser import launch, served
from support.clinic_day import BROWSER, EXTERNAL, REFERENCE, Clinic, ear
from support.web import PASSWORD, with_users

SIZES = {"desktop": {"width": 1280, "height": 860}, "phone": {"width": 390, "height": 844}}
IN_THE_DOCS = ("today", "person", "begin", "desk", "verdict", "device", "try")
PLAIN_PAGES = (
    *("/worklist", "/programme", "/settings", "/devices", "/rooms", "/booths", "/account"),
    *("/import", "/about", "/users", "/audit"),
)
WORSE_EVERY_YEAR = (0, 3, 5, 9, 14)  # dB, of somebody whose hearing has been followed for years


def furnish(clinic: Clinic) -> dict[str, str]:
    """A clinic in the middle of a day; the addresses of the pages to show."""
    booth = clinic.post("/api/devices", EXTERNAL)["id"]
    today = date.today()
    year = {"done_on": str(today - timedelta(200)), "due_on": str(today + timedelta(165))}
    laboratory = {"laboratory": "Example Lab", "coupler": "IEC 60318-3 (6 cc)"}
    clinic.post(f"/api/devices/{booth}/calibrations", {**year, **laboratory})
    flat = dict.fromkeys(("500", "1000", "2000", "4000"), 0)
    check = {"listener": "bob", "deviations_db": {"right": flat, "left": flat}}
    clinic.post(f"/api/devices/{booth}/checks", check)
    tablet = clinic.post("/api/devices", BROWSER)["id"]

    followed = clinic.person("Ada King", "4711")
    for years, worse in enumerate(WORSE_EVERY_YEAR):
        for side in ("right", "left"):
            levels = {
                hz: level + (worse if int(hz) >= 3000 and side == "right" else worse / 4)
                for hz, level in REFERENCE.items()
            }
            on = str(today - timedelta(365 * (len(WORSE_EVERY_YEAR) - years)))
            old = {"ear": side, "measured_on": on, "thresholds": levels, "source": "works doctor"}
            clinic.post(f"/api/people/{followed}/audiograms", old)
    visit = clinic.begin(followed, ears=["right", "left"], device=booth, practice=True)
    right, left = (exam["id"] for exam in visit["exams"])
    clinic.answer(right, ear(REFERENCE, worse_db=38))
    clinic.answer(left, ear(REFERENCE, worse_db=4), most=2)
    note = "Press shop since 2019, wears muffs. Says the television has become too soft."
    clinic.post(f"/api/people/{followed}/notes", {"text": note})

    both = clinic.person("Cora Both", "4715", references=("right", "left"))
    sitting = clinic.begin(both, ears=["both"], device=booth)["exams"][0]["id"]
    clinic.answer(sitting, {"right": ear(REFERENCE, 35), "left": ear(REFERENCE)})
    notched = clinic.person("Nils Notch", "4716")
    notch = clinic.begin(notched, rule=None, notch=True, device=booth)["exams"][0]["id"]
    clinic.answer(notch, ear(REFERENCE, 30))
    full = clinic.begin(notched, kind="exam", rule=None, ears=["left"], device=booth)
    clinic.answer(full["exams"][0]["id"], ear(REFERENCE))
    noise = {"room": "Room 2", "instrument": "Meter 7", "measured_on": str(today)}
    levels = {"500": 20, "1000": 22, "2000": 25, "4000": 30, "8000": 31}
    clinic.post("/api/rooms/noise", {**noise, "device": booth, "levels": levels})

    for name, code in (("Grace Hall", "4712"), ("Ben Ng", "4713"), ("Zoë Müller-Ōta", "4714")):
        person = clinic.person(name, code, references=("right", "left"))
        if name != "Grace Hall":
            exam = clinic.begin(person, device=booth)["exams"][0]["id"]
            clinic.answer(exam, ear(REFERENCE, worse_db=30), most=2 if name == "Ben Ng" else 60)
    return {
        "today": "/",
        "person": f"/people/{followed}",
        "begin": f"/people/{followed}/test",
        "desk": f"/exams/{left}",
        "verdict": f"/exams/{right}",
        "device": f"/devices/{tablet}",
        "try": "/try",
        "both ears": f"/exams/{sitting}",
        "notch": f"/exams/{notch}",
        "full exam": f"/exams/{full['exams'][0]['id']}",
        "review": f"/visits/{visit['visit']}/review",
        "nobody yet": f"/people/{clinic.person(None, '4717')}",
        "daily check": f"/devices/{tablet}/check",
        **{path.strip("/"): path for path in PLAIN_PAGES},
    }


def prepare_try(page: Page) -> None:
    page.get_by_label("Change since then").select_option(index=1)
    page.get_by_label("Rule for change").select_option("niosh-15")
    page.get_by_role("button", name="Run to the verdict").click()
    expect(page.locator("#verdict .badge")).to_contain_text("Changed", timeout=120_000)
    page.evaluate("document.activeElement.blur()")


def prepare_exam(page: Page) -> None:
    expect(page.locator("#counts dt").first).to_be_visible()


EXAMS = ("desk", "verdict", "both ears", "notch", "full exam")
PREPARE: dict[str, Callable[[Page], None]] = {
    "try": prepare_try,
    **dict.fromkeys(EXAMS, prepare_exam),
}


def save_small(shot: bytes, file: Path) -> None:
    """These pages have few colours: a palette makes the picture a third of its size."""
    every_colour = Image.Quantize.MAXCOVERAGE  # the rarest too: a red circle is a few pixels
    with Image.open(io.BytesIO(shot)) as picture:
        small = picture.convert("RGB").quantize(256, every_colour, dither=Image.Dither.NONE)
        small.save(file, optimize=True)


def sign_in(browser: Browser, address: str, size: str, **look: Any) -> Page:
    page = browser.new_page(viewport=SIZES[size], reduced_motion="reduce", **look)
    page.goto(f"{address}/login")
    page.get_by_label("User name").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{address}/")
    return page


def take(folder: Path, *, every_page: bool = False) -> None:
    """All pictures, at the size of a desk and of a phone."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        db = str(Path(scratch) / "clinic.db")
        with_users(db)
        with served(create_app(Settings(db=db))) as address:
            with Clinic(address) as clinic:
                pages = furnish(clinic)
            browser = launch(playwright)
            for size, scheme in itertools.product(SIZES, ("light", "dark")[: 1 + every_page]):
                page = sign_in(browser, address, size, color_scheme=scheme)
                for name in pages if every_page else IN_THE_DOCS:
                    page.goto(address + pages[name])
                    page.wait_for_load_state("load" if "/exams/" in pages[name] else "networkidle")
                    PREPARE.get(name, lambda _: None)(page)
                    look = f"{size}-{scheme}" if every_page else size
                    shot = page.screenshot(full_page=True)
                    save_small(shot, folder / f"examiner-{name.replace(' ', '-')}-{look}.png")
                page.close()
            browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[-1]), every_page="--every-page" in sys.argv)
