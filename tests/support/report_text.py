"""Reading what a report wrote: the HTML page and the PDF as text."""

import io
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from pypdf import PdfReader

from earshift.records import ExamBundle, VisitBundle
from earshift.report import render_html, write_pdf
from support.report_bundles import visit_of

HOSTILE = "<script>alert('1')</script>\"&{{ 7*7 }}{nb}%s{name}"


class Document(HTMLParser):
    """The elements of an HTML page, its visible text, and whether every tag was closed."""

    VOID = ("meta", "br", "circle", "polyline", "polygon")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and self.open[-1] != "style":
            self.texts.append(data.strip())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def page_of(*exams: ExamBundle, **changes: Any) -> str:
    """Visible text of the HTML report."""
    return Document(render_html(visit_of(*exams, **changes))).text


def squeezed(text: str) -> str:
    """Without white space: where a line breaks is no part of what is said."""
    return re.sub(r"\s", "", text)


def pdf_of(
    path: Path, bundle: VisitBundle, paper: str = "a4", **options: Any
) -> tuple[PdfReader, str]:
    """A written PDF and its text without white space."""
    write_pdf(bundle, path, paper, **options)
    reader = PdfReader(io.BytesIO(path.read_bytes()))
    return reader, squeezed("".join(page.extract_text() for page in reader.pages))


def strings(value: Any) -> Iterator[str]:
    """Every text in a page's data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from strings(each)
    elif is_dataclass(value):
        for each in fields(value):
            yield from strings(getattr(value, each.name))
