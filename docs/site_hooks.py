"""What mkdocs does besides, when `make docs` builds the site: it follows every link.

mkdocs checks the links that it made itself from Markdown. What comes out of docstrings, notebooks
and the theme is only seen in the pages as they are.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag


class _Page(HTMLParser):
    """What a page links to, and what in it can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.links += [given[name] for name in ("href", "src") if name in given]
        self.anchors |= {given[name] for name in ("id", "name") if name in given}


def broken(site: Path) -> Iterator[str]:
    """Every link to a file or an anchor that is not there, with its page."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z][a-z0-9+.-]*:|//", link):
                continue  # another site's
            name, anchor = urldefrag(unquote(link))
            # The page of what is not found stands anywhere: its links begin at the root.
            base = site if name.startswith("/") else path.parent
            target = (base / name.lstrip("/")).resolve() if name else path.resolve()
            if target.is_dir():
                target /= "index.html"
            found = pages.get(target)
            if not target.exists() or (found is not None and anchor not in found.anchors):
                yield f"{path.relative_to(site)} links to {link}, which is not there"


def on_page_content(html: str, **_: object) -> str:
    """Called by mkdocs with every page: a default that stands for "as usual" says its number."""
    return html.replace("USUAL_TONES", "50")


def on_post_build(config: dict[str, str]) -> None:
    """Called by mkdocs when all pages are written."""
    from mkdocs.exceptions import PluginError

    wrong = list(broken(Path(config["site_dir"]).resolve()))
    if wrong:
        raise PluginError("\n".join(wrong))
