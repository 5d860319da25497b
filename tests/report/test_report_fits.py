"""A site's name and both ears leave room for the signature; what does not fit wastes no page."""

from dataclasses import replace
from pathlib import Path

import pytest
from pypdf import PdfReader

from earshift.records import ExamBundle, Note, VisitBundle
from earshift.report import ENGLISH, Letterhead, write_pdf
from earshift.report.page import compose
from support.report_bundles import START, VISIT, visit_of
from support.report_text import pdf_of, squeezed

SITE = Letterhead("Riverside Works, occupational health", "12 Mill Lane, Springfield, OH 45501")


@pytest.mark.parametrize("paper", ["a4", "letter"])
def test_a_crowded_visit_and_the_lines_to_sign_on(
    tmp_path: Path, niosh: ExamBundle, full: ExamBundle, paper: str
) -> None:
    bundle = visit_of(niosh, full, calibration=None, visit=replace(VISIT, mode="self"))
    path = tmp_path / "visit.pdf"
    write_pdf(bundle, path, paper, site=SITE)
    texts = [squeezed(page.extract_text()) for page in PdfReader(path).pages]
    assert len(texts) == 2
    page = compose(bundle, ENGLISH)
    for label in page.sign_here:
        assert squeezed(label) in (texts[0] if paper == "a4" else "".join(texts))
    assert squeezed(page.appendix_heading) in texts[1]


@pytest.mark.parametrize("lines", range(1, 8))
def test_a_paragraph_stays_together(tmp_path: Path, changed: ExamBundle, lines: int) -> None:
    """Wherever the page ends: what is said of the room or of a finding is read in one place."""
    said = [f"{number}: {'a word and another, ' * 6 * lines}the end." for number in range(9)]
    notes = tuple(Note(n, 17, START, "jk", text, visit_id=42) for n, text in enumerate(said))
    reader, _ = pdf_of(tmp_path / "visit.pdf", visit_of(changed, notes=notes))
    texts = [squeezed(page.extract_text()) for page in reader.pages]
    assert len(texts) > 1
    for text in said:
        assert sum(squeezed(text) in page for page in texts) == 1
    last = next(page for page in texts if squeezed(said[-1]) in page)
    for label in compose(visit_of(changed), ENGLISH).sign_here:
        assert squeezed(label) in last  # nobody signs a page with nothing on it


def test_an_audiogram_from_elsewhere_is_one_page(tmp_path: Path, imported: VisitBundle) -> None:
    notes = (Note(1, 17, START, "jk", "A note of some length. " * 60, visit_id=42),)
    reader, text = pdf_of(tmp_path / "visit.pdf", replace(imported, notes=notes))
    assert len(reader.pages) == 1
    assert squeezed(ENGLISH.appendix) in text
