"""Pictures of the listener's pages, from the real app and a made-up person.

    python docs/make_screenshots.py docs/images
    python docs/make_screenshots.py --every-page build/pages

The second takes them light and dark, with the end of a test, to be looked at. The tests' own
helpers start the app, the browser and a scripted listener: what is shown is what is tested.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from playwright.sync_api import Browser, ViewportSize, sync_playwright

from support.browser import launch
from support.house import House, open_house

SIZES: dict[str, ViewportSize] = {
    "desktop": {"width": 1280, "height": 860},
    "phone": {"width": 390, "height": 844},
}
UNHURRIED = {"gap_min_ms": 5000, "gap_max_ms": 6000}  # nothing is answered in these pictures


def listener_pages(browser: Browser, house: House, folder: Path, **look: Any) -> None:
    """The way of a listener from the set-up to a pause, at each size."""
    scheme = "".join(f"-{value}" for value in look.values())
    for size, viewport in SIZES.items():
        test = house.invite(f"picture {size}{scheme}", ears=("right", "left"), timing=UNHURRIED)
        context = browser.new_context(viewport=viewport, has_touch=size == "phone", **look)
        listener = house.seat(context.new_page(), test)
        page = listener.page
        for section in ("headphones", "sides", "volume", "room", "instruction", "test", "paused"):
            listener.at(section)
            page.screenshot(path=folder / f"listener-{section}-{size}{scheme}.png")
            if section == "sides":
                while page.locator("#sides").is_visible():
                    listener.tell_the_side()
            elif section == "volume":
                listener.do("play-volume")
                listener.do("volume", "good")
            elif section == "test":
                listener.do("panic")
            elif section != "paused":
                listener.do("next")
        context.close()


def last_pages(browser: Browser, house: House, folder: Path, **look: Any) -> None:
    """What a listener sees while the examiner has paused the test, and at its end."""
    scheme = "".join(f"-{value}" for value in look.values())
    for size, viewport in SIZES.items():
        test = house.invite(f"end {size}{scheme}")
        context = browser.new_context(viewport=viewport, **look)
        listener = house.seat(context.new_page(), test)
        listener.set_up_until("instruction")
        listener.hear(house.hearing(worse_db=30))
        listener.do("next")
        listener.at("test")
        exam = f"/api/exams/{test['exams'][0]['id']}"
        for section in ("held", "over", "released"):
            if section == "held":
                house.clinic.post(f"{exam}/pause")
            elif section == "over":
                house.clinic.post(f"{exam}/resume")
                listener.check_again()
            else:
                house.clinic.post(f"/api/visits/{test['visit']}/release", {"released": True})
            listener.at(section)
            file = folder / f"listener-{section}-{size}{scheme}.png"
            listener.page.screenshot(path=file, full_page=True)
        context.close()


def take(folder: Path, *, every_page: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = launch(playwright)
        with open_house(browser, Path(scratch)) as house:
            if every_page:
                for scheme in ("light", "dark"):
                    listener_pages(browser, house, folder, color_scheme=scheme)
                    last_pages(browser, house, folder, color_scheme=scheme)
            else:
                listener_pages(browser, house, folder)
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[-1]), every_page="--every-page" in sys.argv)
