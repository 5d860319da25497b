"""A letter on paper, by fpdf2 with the report's embedded font."""

from collections.abc import Sequence
from pathlib import Path

from fpdf import FPDF
from fpdf.fonts import TTFFont

from earshift.engine.refusal import Refusal
from earshift.records import VisitBundle
from earshift.report.content import Letterhead
from earshift.report.letter import Letter, compose_letter
from earshift.report.pdf import PAPERS, _Font

MARGIN, FOOT = 25.0, 20.0  # mm
LINE = 5.2  # mm, of text of 10.5 points
TEXT, HEAD, SMALL = 10.5, 13.0, 7.0  # points


def letter_pdf(
    bundle: VisitBundle,
    site: Letterhead,
    paper: str = "a4",
    fonts: Sequence[str | Path] = (),
) -> bytes:
    """The letter of a signed visit as PDF on "a4" or "letter"."""
    if paper not in PAPERS:
        raise Refusal(f"paper must be one of {', '.join(PAPERS)}, got {paper!r}")
    pdf = FPDF(unit="mm", format=paper)
    try:
        font = _Font(pdf, [Path(one) for one in fonts])
        _fill(pdf, font.covered(compose_letter(bundle, site)))
        return bytes(pdf.output())
    finally:
        for opened in pdf.fonts.values():
            if isinstance(opened, TTFFont):
                opened.ttfont.close()


def _fill(pdf: FPDF, letter: Letter) -> None:
    pdf.set_margin(MARGIN)
    pdf.set_auto_page_break(True, FOOT)
    pdf.set_title(letter.title)
    pdf.set_lang("en")
    pdf.set_creation_date(letter.signed_at)
    pdf.add_page()

    def write(text: str, size: float = TEXT, bold: bool = False, after: float = 0.0) -> None:
        pdf.set_font("report", style="B" if bold else "", size=size)
        pdf.set_text_shaping(True)
        height = LINE * size / TEXT
        pdf.multi_cell(0, height, text, align="L", new_x="LMARGIN", new_y="NEXT")
        pdf.ln(after)

    for number, line in enumerate(letter.sender):
        write(line, bold=number == 0)
    pdf.ln(8.0 if letter.sender else 0.0)
    for line in letter.receiver:
        write(line)
    pdf.ln(6.0)
    write(letter.day, after=6.0)
    write(letter.title, HEAD, bold=True, after=3.0)
    for text in (letter.greeting, *letter.paragraphs):
        write(text, after=2.5)
    write(letter.steps_heading, bold=True, after=1.0)
    for number, step in enumerate(letter.steps, 1):
        write(f"{number}.  {step}", after=1.0)
    pdf.ln(2.0)
    for text in letter.closing:
        write(text, after=2.5)
    pdf.ln(6.0)
    for number, line in enumerate(letter.signature):
        write(line, bold=number == 0)
    pdf.ln(6.0)
    write(letter.small_print, SMALL)
