"""A site's name and both ears leave room for the signature; what does not fit wastes no page."""

from dataclasses import replace
from pathlib import Path

import pytest
from pypdf import PdfReader

from earshift.records import ExamBundle
from earshift.report import ENGLISH, Letterhead, write_pdf
from earshift.report.page import compose
from support.report_bundles import VISIT, visit_of
from support.report_text import squeezed

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
