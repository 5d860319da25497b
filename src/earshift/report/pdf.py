"""A report's page on paper, by fpdf2 with an embedded font; no program or font of the system.

The two ears stand side by side. Whatever stands on the page is a column of pieces: lines, rows, a
picture. A column that has no room left moves to the next page whole, and one that is longer than a
page goes on there. The fixed sentences stand at the foot of every page.
"""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from io import BytesIO
from itertools import zip_longest
from pathlib import Path

from fontTools.ttLib import TTFont  # type: ignore[import-untyped]
from fpdf import FPDF
from fpdf.fonts import TTFFont

from earshift.engine.refusal import Refusal
from earshift.report.audiogram import Circle, Drawing, Fill, Label, Stroke
from earshift.report.content import Fact, Page, Section, Table
from earshift.report.text import T, code_point, map_text
from earshift.report.words import Words

PAPERS = ("a4", "letter")
MARGIN, GUTTER = 10.0, 6.0  # mm
INDENT = 2.5  # of text with a bar beside it
SMALLEST_PICTURE = 0.7  # of its own size, before a page has to be turned
SHORT_APPENDIX = 30.0  # mm: pictures shrink rather than leave so little to a page of its own
LABEL = 21.0  # width of the names of facts
SIGN = 10.0  # room for a hand above a line
POINT = 25.4 / 72  # mm
MOST_POINTS = 20  # characters that are named at the foot
# Stands for the number of pages, and leaves room for three digits. Private characters never get
# into a `Page`, so nobody's name can be taken for it.
TOTAL = "\ue000\ue000\ue000"
INK, SHADE = "#000000", "#e4e4e4"


@dataclass(frozen=True)
class Style:
    size: float  # points
    bold: bool = False

    @property
    def line(self) -> float:
        return self.size * POINT * 1.25


BODY, STRONG, CELL = Style(7.5), Style(7.5, bold=True), Style(7.2)
KEY = Style(6.0)
HEADING, TITLE, VERDICT, BANNER = (Style(size, bold=True) for size in (9.5, 14.0, 13.0, 22.0))


@dataclass(frozen=True)
class Piece:
    """Something that is not cut: its height in mm, and how to draw it at (x, y)."""

    height: float
    draw: Callable[[float, float], None]


Column = list[Piece]


def lay_out(page: Page, paper: str, fonts: Sequence[Path], words: Words) -> tuple[bytes, list[str]]:
    """The PDF's bytes, and what its reader should be told."""
    if paper not in PAPERS:
        raise Refusal(f"paper must be one of {', '.join(PAPERS)}, got {paper!r}")
    pdf = FPDF(unit="mm", format=paper, enforce_compliance="PDF/A-3U")
    try:
        font = _Font(pdf, fonts)
        page, words = font.covered(page), font.covered(words)
        lacking = list(font.lacking)
        _Sheet(pdf, page, words, _lacking(lacking, words, most=MOST_POINTS)).fill()
        return bytes(pdf.output()), _lacking(lacking, words, most=len(lacking))
    finally:
        for opened in pdf.fonts.values():
            if isinstance(opened, TTFFont):
                opened.ttfont.close()


def archived(title: str, stored_at: datetime) -> str:
    """What a PDF/A-3u file says of itself; its moment is that of the rows, not of the printing."""
    at = stored_at.astimezone(UTC).isoformat(timespec="seconds")
    return f"""<x:xmpmeta xmlns:x="adobe:ns:meta/">
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
 xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:xmp="http://ns.adobe.com/xap/1.0/"
 xmlns:pdfaid="http://www.aiim.org/pdfa/ns/id/">
<rdf:Description rdf:about="" xmp:CreateDate="{at}" xmp:ModifyDate="{at}" xmp:MetadataDate="{at}">
<pdfaid:part>3</pdfaid:part><pdfaid:conformance>U</pdfaid:conformance>
<dc:title><rdf:Alt><rdf:li xml:lang="x-default">{escape(title)}</rdf:li></rdf:Alt></dc:title>
</rdf:Description></rdf:RDF></x:xmpmeta>"""


def _lacking(points: Sequence[str], words: Words, most: int) -> list[str]:
    """The sentence about characters that no font has, if there are any; it names so many."""
    if not points:
        return []
    named = " ".join(points[:most])
    if len(points) > most:
        named = words.more_points.format(points=named, count=len(points) - most)
    return [words.code_points.format(points=named)]


class _Font:
    """The fonts of a page, and what they cannot show."""

    def __init__(self, pdf: FPDF, given: Sequence[Path]) -> None:
        import matplotlib as mpl  # ships DejaVu Sans with its licence

        shipped = Path(mpl.get_data_path()) / "fonts" / "ttf"
        pdf.add_font("report", "", shipped / "DejaVuSans.ttf")
        pdf.add_font("report", "B", shipped / "DejaVuSans-Bold.ttf")
        others = [f"given{number}" for number in range(len(given))]
        for name, path in zip(others, given, strict=True):
            if not path.is_file():  # a device may have no end
                raise Refusal(f"{path} must be a TrueType font file, and is no file")
            try:
                TTFont(BytesIO(path.read_bytes())).getBestCmap()
                pdf.add_font(name, "", path)
            except Exception as error:  # a damaged font fails in as many ways as it has tables
                raise Refusal(f"{path} must be a TrueType font file: {error!r}") from None
        pdf.set_fallback_fonts(others, exact_match=False)
        has = {name: set(f.cmap) for name, f in pdf.fonts.items() if isinstance(f, TTFFont)}
        self._characters = (has["report"] & has["reportB"]).union(*(has[name] for name in others))
        self.lacking: dict[str, None] = {}  # code points, in order

    def covered(self, texts: T) -> T:
        """The same with every character that no font has as its code point."""
        return map_text(texts, self._cover)

    def _cover(self, text: str) -> str:
        shown = []
        for character in unicodedata.normalize("NFC", text):
            if ord(character) not in self._characters and character not in "\n":
                self.lacking[f"U+{ord(character):04X}"] = None
                character = code_point(character)
            shown.append(character)
        return "".join(shown)


class _Sheet:
    """Paper with the report's head and foot, and a place that moves down."""

    def __init__(self, pdf: FPDF, page: Page, words: Words, warnings: Sequence[str]) -> None:
        self.pdf = pdf
        self.pdf.set_margin(MARGIN)
        self.pdf.set_auto_page_break(False)
        self.pdf.c_margin = 0.0
        self.pdf.alias_nb_pages(TOTAL)
        self.pdf.set_title(page.title)
        self.pdf.set_lang(page.language)
        self.pdf.set_creation_date(page.stored_at)
        self.pdf.set_xmp_metadata(archived(page.title, page.stored_at))
        self.page, self.words = page, words
        self.width = self.pdf.epw
        self.half = (self.width - GUTTER) / 2
        self.pdf.add_page()  # text can only be measured on a page
        self.foot = [
            *self._lines(page.legend, KEY, self.width),
            *self._lines(" ".join(page.sentences), STRONG, self.width),
            *(line for text in warnings for line in self._lines(text, BODY, self.width)),
        ]
        self.bottom = self.pdf.h - MARGIN - _height(self.foot) - 2.0 - BODY.line
        self._furnish()

    def _turn(self) -> None:
        """Go on at the top of a new page."""
        self.pdf.add_page()
        self._furnish()

    def _furnish(self) -> None:
        """Head and foot of a page."""
        head: Column = []
        if self.page.banner:
            head += self._lines(self.page.banner, BANNER, self.width, centred=True)
            head += self._lines(self.page.banner_means, STRONG, self.width, centred=True)
        if self.pdf.page_no() > 1:
            head += self._lines(self.page.continued, STRONG, self.width)
        self._draw(head, MARGIN, MARGIN)
        y = self.bottom + 1.5
        self._rule(MARGIN, y, self.width, 0.4)
        self._draw(self.foot, MARGIN, y + 0.5)
        number = self.words.page_number.format(page=self.pdf.page_no(), pages=TOTAL)
        self._write(MARGIN, y + 0.5 + _height(self.foot), self.width, number, BODY, "R")
        self.top = self.y = MARGIN + _height(head) + 1.0

    def fill(self) -> None:
        """Put the whole report on paper."""
        for columns in self._opening():
            self._place(columns)
        for number, sections in enumerate(self.page.rounds):
            if number:
                self._turn()
            for pair in self._ears(sections, last=sections is self.page.rounds[-1]):
                self._place(pair)
        for paragraph in self._closing():
            self._place([paragraph])
        appendix = self._appendix()
        whole = sum(map(_height, appendix))
        if self.pdf.page_no() == 1 and self.y + whole > self.bottom:
            self._turn()  # what was found has a page of its own
        for paragraph in appendix:
            self._place([paragraph])

    def _place(self, columns: Sequence[Column]) -> None:
        """Columns side by side at the present place, which then moves below them."""
        height = max(map(_height, columns))
        if height > self.bottom - self.top and max(map(len, columns)) > 1:
            for row in zip_longest(*columns):
                self._place([[piece] if piece else [] for piece in row])
            return
        if self.y + height > self.bottom:
            self._turn()
        for number, column in enumerate(columns):
            self._draw(column, MARGIN + number * (self.half + GUTTER), self.y)
        self.y += height

    def _draw(self, column: Column, x: float, y: float) -> None:
        for piece in column:
            piece.draw(x, y)
            y += piece.height

    # What stands on the page

    def _opening(self) -> list[list[Column]]:
        page = self.page
        person = [*self._heading(page.person_heading), *self._facts(page.person)]
        visit = [*self._heading(page.visit_heading), *self._facts(page.visit)]
        cautions = [line for text in page.cautions for line in self._caution(text, self.width)]
        cautions = [_space(1.0), *cautions]
        site = [
            *self._lines(page.site.name, HEADING, self.half),
            *self._lines(page.site.address, BODY, self.half),
        ]
        heading = self._lines(page.heading, TITLE, self.half if site else self.width)
        return [[heading, site], [person, visit], [cautions]]

    def _ears(self, sections: Sequence[Section], last: bool) -> list[tuple[Column, ...]]:
        """Both ears' columns, with pictures that are smaller when the page would be too short.

        It had best hold what follows the last ones too, with a short appendix or without, else the
        lines to sign on.
        """
        sizes = []
        for scale in (1.0, 0.9, 0.8, SMALLEST_PICTURE):
            columns = [self._section(section, scale) for section in sections]
            pairs = list(zip(*columns, strict=True))
            sizes.append((pairs, sum(max(map(_height, pair)) for pair in pairs)))
        below = [_height(self._sign_here())]
        if last:
            below.append(sum(map(_height, self._closing())))
            appendix = sum(map(_height, self._appendix()))
            below.append(below[-1] + (appendix if appendix <= SHORT_APPENDIX else 0.0))
        for more in reversed(below):
            for pairs, height in sizes:
                if self.y + height + more <= self.bottom:
                    return pairs
        return pairs

    def _section(self, section: Section, scale: float) -> list[Column]:
        """One ear, always as many columns, so that both ears' stand level."""
        bar = 1.6 if section.alarming else 0.5
        shade = section.alarming
        verdict = [
            *self._lines(section.headline, VERDICT, self.half, bar=bar, shade=shade),
            *self._lines(section.sentence, STRONG, self.half, bar=bar, shade=shade),
            *self._lines(section.words, BODY, self.half, bar=bar, shade=shade),
            _space(1.0),
        ]
        return [
            self._heading(section.heading),
            verdict,
            [line for text in section.cautions for line in self._caution(text, self.half)],
            [self._picture(section.shifts, scale)] if section.shifts else [],
            [self._picture(section.picture, scale)] if section.picture else [],
            self._table(section.table) if section.table else [],
            [_space(1.0), *self._facts(section.facts)],
        ]

    def _closing(self) -> list[Column]:
        """Review and notes, each paragraph a column; the lines to sign on go with the last one."""
        page = self.page
        review = [self._lines(text, BODY, self.width) for text in page.review]
        notes = [
            [
                *self._lines(note.about, STRONG, self.width),
                *self._lines(note.text, BODY, self.width),
            ]
            for note in page.notes
        ]
        for heading, paragraphs in ((page.review_heading, review), (page.notes_heading, notes)):
            if paragraphs:
                paragraphs[0] = [*self._heading(heading, self.width), *paragraphs[0]]
        *before, final = [*review, *notes] or [[]]
        return [*before, [*final, *self._sign_here()]]

    def _sign_here(self) -> Column:
        """Lines to sign on, side by side."""
        labels = self.page.sign_here
        if not labels:
            return []
        width = (self.width - GUTTER * (len(labels) - 1)) / len(labels)

        def draw(x: float, y: float) -> None:
            for number, label in enumerate(labels):
                left = x + number * (width + GUTTER)
                self._rule(left, y + SIGN, width, 0.2)
                self._write(left, y + SIGN + 0.4, width, label, KEY, "L")

        return [Piece(SIGN + KEY.line + 1.0, draw)]

    def _appendix(self) -> list[Column]:
        """What stands behind each section, from the settings to the fingerprint, by paragraphs."""
        paragraphs: list[Column] = []
        above = self._heading(self.page.appendix_heading, self.width)
        above += self._lines(self.page.appendix_means, BODY, self.width)
        for section in (one for pair in self.page.rounds for one in pair if one.appendix):
            above += [_space(1.5), *self._lines(section.heading, STRONG, self.width)]
            for text in section.appendix:
                paragraphs.append([*above, *self._lines(text, BODY, self.width)])
                above = []
        return paragraphs

    def _heading(self, text: str, width: float | None = None) -> Column:
        width = width or self.half
        rule = Piece(1.0, lambda x, y: self._rule(x, y + 0.3, width, 0.2))
        return [_space(1.2), *self._lines(text, HEADING, width), rule]

    def _facts(self, facts: Sequence[Fact]) -> Column:
        column: Column = []
        for fact in facts:
            names = self._lines(fact.label, BODY, LABEL - 1.0)
            values = self._lines(fact.value, BODY, self.half - LABEL)
            for name, value in zip_longest(names, values):
                column.append(_beside(name, value))
        return column

    def _caution(self, text: str, width: float) -> Column:
        return [*self._lines(text, STRONG, width, bar=0.8), _space(0.8)]

    def _table(self, table: Table) -> Column:
        rest = self.half - 13.0
        widths = [13.0, 40.0]
        if len(table.columns) > 2:
            widths = [13.0, 0.29 * rest, 0.33 * rest, 0.38 * rest]
        title, row_height = self._lines(table.title, STRONG, self.half), CELL.line + 0.2

        def row(cells: Sequence[str], style: Style, rule: float) -> Piece:
            def draw(x: float, y: float) -> None:
                self._rule(x, y + row_height - 0.1, sum(widths), rule)
                for cell, width in zip(cells, widths, strict=True):
                    self._write(x, y, width, cell, style, "R")
                    x += width

            return Piece(row_height, draw)

        return [
            _space(0.5),
            *title,
            row(table.columns, Style(CELL.size, bold=True), 0.25),
            *(row(cells, CELL, 0.08) for cells in table.rows),
            *(line for text in table.key for line in self._lines(text, KEY, self.half)),
        ]

    def _picture(self, drawing: Drawing, scale: float) -> Piece:
        scale *= min(1.0, self.half / drawing.width)

        def draw(x: float, y: float) -> None:
            def at(point: tuple[float, float]) -> tuple[float, float]:
                return x + scale * point[0], y + scale * point[1]

            for mark in drawing.marks:
                if isinstance(mark, Fill):
                    self.pdf.set_fill_color(mark.colour)
                    self.pdf.polygon([at(point) for point in mark.points], style="F")
                elif isinstance(mark, Label):
                    self._label(*at(mark.at), mark, scale)
                else:
                    self.pdf.set_draw_color(mark.colour)
                    self.pdf.set_line_width(scale * mark.width)
                    self._outline(mark, at, scale)

        return Piece(scale * drawing.height, draw)

    def _outline(
        self,
        mark: Stroke | Circle,
        at: Callable[[tuple[float, float]], tuple[float, float]],
        scale: float,
    ) -> None:
        if isinstance(mark, Circle):
            (x, y), radius = at(mark.centre), scale * mark.radius
            self.pdf.ellipse(x - radius, y - radius, 2 * radius, 2 * radius, style="D")
            return
        if mark.dashed:
            self.pdf.set_dash_pattern(dash=1.0, gap=0.8)
        self.pdf.polyline([at(point) for point in mark.points])
        self.pdf.set_dash_pattern()

    def _label(self, x: float, y: float, label: Label, scale: float) -> None:
        size = scale * label.size
        self.pdf.set_font("report", size=size / POINT)
        width = self.pdf.get_string_width(label.text)
        self.pdf.text(x - width * (0.5 if label.centred else 1.0), y + 0.36 * size, label.text)

    # Lines of text

    def _lines(
        self,
        text: str,
        style: Style,
        width: float,
        *,
        centred: bool = False,
        bar: float = 0.0,
        shade: bool = False,
    ) -> Column:
        """A text broken into lines, each a piece; with a bar of that width beside it if asked."""
        if not text:
            return []
        indent = INDENT if bar else 0.0
        self._prepare(text, style)
        broken = self.pdf.multi_cell(
            width - indent, style.line, text, align="L", dry_run=True, output="LINES"
        )

        def line(words: str) -> Piece:
            def draw(x: float, y: float) -> None:
                if shade:
                    self.pdf.set_fill_color(SHADE)
                    self.pdf.rect(x, y, width, style.line + 0.05, style="F")
                if bar:
                    self.pdf.set_fill_color(INK)
                    self.pdf.rect(x, y, bar, style.line + 0.05, style="F")
                self._write(x + indent, y, width - indent, words, style, "C" if centred else "L")

            return Piece(style.line, draw)

        assert isinstance(broken, list)
        return [line(str(words)) for words in broken]

    def _write(self, x: float, y: float, width: float, text: str, style: Style, align: str) -> None:
        self._prepare(text, style)
        self.pdf.set_xy(x, y)
        self.pdf.cell(width, style.line, text, align=align)

    def _prepare(self, text: str, style: Style) -> None:
        self.pdf.set_font("report", style="B" if style.bold else "", size=style.size)
        # Letters that join, combine or run to the left; others need no shaping.
        self.pdf.set_text_shaping(
            any(
                unicodedata.bidirectional(c) in ("R", "AL")
                or unicodedata.category(c)[0] == "M"
                or c in "\u200c\u200d"
                for c in text
            )
        )

    def _rule(self, x: float, y: float, width: float, thickness: float) -> None:
        self.pdf.set_draw_color(INK)
        self.pdf.set_line_width(thickness)
        self.pdf.line(x, y, x + width, y)


def _height(column: Column) -> float:
    return sum(piece.height for piece in column)


def _space(height: float) -> Piece:
    return Piece(height, lambda x, y: None)


def _beside(name: Piece | None, value: Piece | None) -> Piece:
    """The name of a fact and its value on one line."""

    def draw(x: float, y: float) -> None:
        if name:
            name.draw(x, y)
        if value:
            value.draw(x + LABEL, y)

    return Piece(max(piece.height for piece in (name, value) if piece), draw)
