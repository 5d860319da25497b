"""The report of a visit, one page for both ears, as HTML and as PDF.

A report shows the stored results and computes none of their numbers: the same rows give the same
page in every later version. Files are written whole or not at all.
"""

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from earshift.engine.refusal import Refusal
from earshift.records import VisitBundle
from earshift.report.content import Caution, Letterhead
from earshift.report.page import compose
from earshift.report.words import ENGLISH, Words

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = [
    "ENGLISH",
    "Caution",
    "Letterhead",
    "Words",
    "render_html",
    "write_html",
    "write_letter",
    "write_pdf",
]


def render_html(
    bundle: VisitBundle,
    *,
    words: Words = ENGLISH,
    site: Letterhead | None = None,
    cautions: Sequence[Caution] = (),
) -> str:
    """The page as one HTML document that needs nothing else: no scripts, no network.

    `site` stands at its head, where it is given; `cautions` stand beside the results.
    """
    return _template().render(page=compose(bundle, words, site, cautions))


def write_html(
    bundle: VisitBundle,
    path: str | Path,
    *,
    words: Words = ENGLISH,
    site: Letterhead | None = None,
    cautions: Sequence[Caution] = (),
) -> Path:
    """Write the page as HTML; the folder must exist."""
    page = render_html(bundle, words=words, site=site, cautions=cautions)
    return _write_whole(Path(path), page.encode())


def write_pdf(
    bundle: VisitBundle,
    path: str | Path,
    paper: str = "a4",
    *,
    fonts: Sequence[str | Path] = (),
    words: Words = ENGLISH,
    site: Letterhead | None = None,
    cautions: Sequence[Caution] = (),
) -> list[str]:
    """Write the page as PDF/A-3u on "a4" or "letter"; the folder must exist.

    Gives back what a reader should know, at present the characters that no font has; the page
    shows them by code point and says so. `fonts` are further TrueType files to look in, for names
    in scripts that the shipped font lacks, such as Chinese or Devanagari.
    """
    from earshift.report.pdf import lay_out

    page = compose(bundle, words, site, cautions)
    content, warnings = lay_out(page, paper, [Path(f) for f in fonts], words)
    _write_whole(Path(path), content)
    return warnings


@cache
def _template() -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("earshift.report")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    return environment.get_template("visit.html")


def _write_whole(path: Path, content: bytes) -> Path:
    """The file is there whole or not at all: an interrupted write leaves the old one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        # Names and hearing are for the owner's eyes, as in the database.
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path


def write_letter(
    bundle: VisitBundle, site: Letterhead, path: str | Path, paper: str = "a4"
) -> Path:
    """Write the letter of a signed visit with a shift, as HTML or PDF by the name of the file."""
    path = Path(path)
    if path.suffix.lower() == ".html":
        from earshift.report.letter import render_letter

        return _write_whole(path, render_letter(bundle, site).encode())
    if path.suffix.lower() != ".pdf":
        raise Refusal("the name of a letter must end in .html or .pdf", got=path.name)
    from earshift.report.letter_pdf import letter_pdf

    return _write_whole(path, letter_pdf(bundle, site, paper))
