"""Pictures of the listener's pages, from the real app and a made-up person.

    python docs/make_screenshots.py docs/images

The tests' own helpers start the app, the browser and a scripted listener: what is shown is what is
tested.
"""

import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from playwright.sync_api import Browser, ViewportSize, sync_playwright

from support.browser import launch
from support.house import House, open_house

SIZES: dict[str, ViewportSize] = {
    "desktop": {"width": 1280, "height": 860},
    "phone": {"width": 390, "height": 844},
}
UNHURRIED = {"gap_min_ms": 5000, "gap_max_ms": 6000}  # nothing is answered in these pictures


def listener_pages(browser: Browser, house: House, folder: Path) -> None:
    """The way of a listener from the set-up to a pause, at each size."""
    for size, viewport in SIZES.items():
        test = house.invite(f"picture {size}", ears=("right", "left"), timing=UNHURRIED)
        context = browser.new_context(viewport=viewport, has_touch=size == "phone")
        listener = house.seat(context.new_page(), test)
        page = listener.page
        for section in ("headphones", "sides", "volume", "room", "instruction", "test", "paused"):
            listener.at(section)
            page.screenshot(path=folder / f"listener-{section}-{size}.png")
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


def take(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = launch(playwright)
        with open_house(browser, Path(scratch)) as house:
            listener_pages(browser, house, folder)
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
