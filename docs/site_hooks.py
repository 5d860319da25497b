"""What mkdocs does besides, when `make docs` builds the site: it follows every link.

mkdocs checks the links that it made itself from Markdown. What comes out of docstrings, notebooks
and the theme is only seen in the pages as they are.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag


class _Page(HTMLParser):
    """What a page links to, and what in it can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {"", "top"}
        self.unresolved: list[str] = []
        self.code = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.code += tag in ("code", "pre")
        given = {name: value or "" for name, value in attrs}
        self.links += [given[name] for name in ("href", "src") if name in given]
        self.anchors |= {given[name] for name in ("id", "name") if name in given}

    def handle_endtag(self, tag: str) -> None:
        self.code -= tag in ("code", "pre")

    def handle_data(self, data: str) -> None:
        # A link by name to nothing stays text. What is left of `[`x`][y]` begins behind the code.
        if not self.code:
            self.unresolved += re.findall(r"\]\[[^\]\s]*\]", data)


def slugs(text: str) -> set[str]:
    """The anchors of a Markdown file, as mkdocs and code hosts make them of its headings."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    titles = re.findall(r"^#+ (.*)$", prose, re.M)
    return {"", *(re.sub(r"[^\w\- ]", "", one).strip().lower().replace(" ", "-") for one in titles)}


def lost(page: Path) -> Iterator[str]:
    """Every link of a Markdown file to a file, a heading or a name that is not there."""
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "``", text, flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)", prose, re.M):
        name, anchor = urldefrag(link[0] or link[1])
        target = page.parent / unquote(name) if name else page
        if re.match(r"[a-z]+:|notebook-", name):
            continue  # another site's, or a page that only the site has
        known = target.suffix != ".md" or not target.exists() or not anchor
        if not target.exists() or not (known or anchor in slugs(target.read_text("utf-8"))):
            yield f"{page.name} links to {link[0] or link[1]}, which is not there"
    for shown, name in re.findall(r"\[([^\]\[]+)\]\[([^\]]*)\]", prose):
        if f"\n[{name or shown}]: " not in prose:
            yield f"{page.name} links to [{name or shown}], which is not there"


def broken(site: Path) -> Iterator[str]:
    """Every link to a file or an anchor that is not there, with its page."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        for name in page.unresolved:
            yield f"{path.relative_to(site)} links to {name[1:]}, which is not there"
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


CODE = r'<div class="highlight"(?:(?!</div>).)*</div>'
PAIR = re.compile(2 * rf"(<p>(?:(?!</?p>).)*</p>\s*{CODE})\s*", re.S)


def on_page_content(html: str, page: Any, **_: object) -> str:
    """Called by mkdocs with every page: a default that stands for "as usual" says its number.

    Tables scroll inside, and on the page about other programs each stands beside earshift.
    """
    for section in [one for top in page.toc for one in top.children]:
        # A class has a heading here and an anchor of its own: it is listed once.
        section.children = [one for one in section.children if one.title != section.title]
    html = html.replace("USUAL_TONES", "50")
    html = re.sub(r"<table\b.*?</table>", r'<div class="wide">\g<0></div>', html, flags=re.S)
    if page.file.src_uri == "coming-from.md":
        html = PAIR.sub(r'<div class="beside"><div>\1</div><div>\2</div></div>', html)
    return html


def on_post_build(config: dict[str, str]) -> None:
    """Called by mkdocs when all pages are written."""
    from mkdocs.exceptions import PluginError

    wrong = list(broken(Path(config["site_dir"]).resolve()))
    for path in sorted(Path(config["docs_dir"]).resolve().parent.glob("*.md")):
        wrong += lost(path)
    if wrong:
        raise PluginError("\n".join(wrong))
