"""The report on paper: pages, fonts, scripts, and files that are whole."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fontTools.ttLib import TTFont
from hypothesis import given, settings
from hypothesis import strategies as st
from pypdf import PdfReader

from earshift import report
from earshift.records import ExamBundle, Note
from earshift.report import ENGLISH, Letterhead, render_html, write_html, write_pdf
from earshift.report.page import compose
from support.report_bundles import (
    DEVICE,
    PERSON,
    START,
    VISIT,
    visit_of,
    with_shown,
)
from support.report_text import HOSTILE, pdf_of, squeezed, strings

# The PDF -----------------------------------------------------------------------------------------

POINTS = {"a4": (595.28, 841.89), "letter": (612.0, 792.0)}


@pytest.mark.parametrize("paper", ["a4", "letter"])
def test_the_pdf_says_all_on_one_page_and_how_it_was_worked_out_on_another(
    tmp_path: Path, niosh: ExamBundle, full: ExamBundle, paper: str
) -> None:
    taken_back = replace(niosh.trials[0], id=9000, voided_at=START)
    crowded = replace(niosh, trials=(*niosh.trials, taken_back))
    bundle = visit_of(crowded, full, calibration=None, visit=replace(VISIT, mode="self"))
    reader, text = pdf_of(tmp_path / "visit.pdf", bundle, paper)
    first, second = (squeezed(page.extract_text()) for page in reader.pages)
    page = compose(bundle, ENGLISH)
    for label in page.sign_here:  # letter is short, and this page is crowded
        assert squeezed(label) in (first if paper == "a4" else first + second)
    assert squeezed(page.appendix_heading) not in first
    assert squeezed(page.appendix_heading) in second
    for on_every_page in (page.legend, *page.sentences):
        assert squeezed(on_every_page) in first
        assert squeezed(on_every_page) in second
    assert (reader.pages[0].mediabox.width, reader.pages[0].mediabox.height) == pytest.approx(
        POINTS[paper], abs=0.01
    )
    unseen = {page.language, page.title, page.continued, page.notes_heading, "right", "left"}
    for section in page.rounds[0]:
        assert section.picture is not None
        unseen |= {section.picture.title, section.picture.description}
        unseen |= set(strings(section.picture.marks)) - {"1000", "dB HL", "frequency (Hz)"}
        if section.shifts is not None:
            unseen |= {section.shifts.title, section.shifts.description}
            unseen |= set(strings(section.shifts.marks)) - {ENGLISH.shift_axis}
    for said in strings(page):
        if said not in unseen:
            assert squeezed(said) in text, said
    assert "page1of2" in text


def test_the_file_is_fit_for_an_archive(tmp_path: Path, changed: ExamBundle) -> None:
    """PDF/A-3u says so of itself, brings its colours and fonts, and has no other description."""
    reader, _ = pdf_of(tmp_path / "visit.pdf", visit_of(changed))
    root = reader.trailer["/Root"]
    said = root["/Metadata"].get_data().decode()
    assert "<pdfaid:part>3</pdfaid:part><pdfaid:conformance>U</pdfaid:conformance>" in said
    assert "Hearing report, visit 42" in said
    assert root["/OutputIntents"][0]["/S"] == "/GTS_PDFA1"
    assert "/Info" not in reader.trailer
    assert "/ID" in reader.trailer


def test_the_site_stands_at_the_head(tmp_path: Path, changed: ExamBundle) -> None:
    site = Letterhead("Example Works", "Mill Road 3")
    path = tmp_path / "visit.pdf"
    write_pdf(visit_of(changed), path, site=site)
    text = squeezed(PdfReader(path).pages[0].extract_text())
    assert "HearingreportExampleWorksMillRoad3" in text
    assert "Mill Road 3" in render_html(visit_of(changed), site=site)
    assert 'class="site"' not in render_html(visit_of(changed))


def test_paper_is_a4_or_letter(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a4, letter, got 'a3'"):
        write_pdf(visit_of(), tmp_path / "visit.pdf", "a3")
    assert not list(tmp_path.iterdir())


def test_long_notes_go_on_and_lose_no_word(tmp_path: Path, changed: ExamBundle) -> None:
    words = [f"word{number}" for number in range(3000)]
    notes = (Note(1, 17, START, "jk", " ".join(words)),)
    reader, text = pdf_of(tmp_path / "visit.pdf", visit_of(changed, notes=notes))
    assert len(reader.pages) > 2
    for word in words:
        assert word in text
    for number, page in enumerate(reader.pages, 1):
        each = squeezed(page.extract_text())
        assert squeezed(ENGLISH.see_a_doctor) in each
        assert f"page{number}of{len(reader.pages)}" in each
        if number > 1:
            assert "HearingReport,visit42,person17,continued".lower() in each.lower()


def test_many_pages_are_counted(tmp_path: Path) -> None:
    lines = "\n".join(f"line{number}." for number in range(900))
    notes = (Note(1, 17, START, "jk", lines),)
    reader, text = pdf_of(tmp_path / "visit.pdf", visit_of(notes=notes))
    assert len(reader.pages) > 9
    assert f"page1of{len(reader.pages)}" in text
    assert all(f"line{number}." in text for number in range(900))


def test_a_second_round_begins_a_page(
    tmp_path: Path, changed: ExamBundle, unchanged: ExamBundle, niosh: ExamBundle
) -> None:
    bundle = visit_of(changed, unchanged, niosh, visit=replace(VISIT, mode="simulated"))
    reader, _ = pdf_of(tmp_path / "visit.pdf", bundle)
    first, second, _ = (squeezed(page.extract_text()) for page in reader.pages)
    assert "OSHAstandardthresholdshift:" in first
    assert "NIOSHsignificantthresholdshift:" not in first
    assert "NIOSHsignificantthresholdshift:" in second
    assert "SIMULATED" in first
    assert "SIMULATED" in second


def test_a_text_longer_than_a_page_goes_on(tmp_path: Path, changed: ExamBundle) -> None:
    """Eight hundred characters that the font lacks become six thousand."""
    told = with_shown(changed, words="字" * 780 + "END")
    reader, text = pdf_of(tmp_path / "visit.pdf", visit_of(told))
    assert 780 - len(reader.pages) <= text.count("[U+5B57]") <= 780  # one may span two pages
    assert "END" in text
    assert len(reader.pages) > 1


def test_nothing_leaves_the_paper(tmp_path: Path, changed: ExamBundle) -> None:
    long = "Wolfeschlegelsteinhausenbergerdorff" * 5
    bundle = visit_of(
        changed,
        person=replace(PERSON, name=long, code=long),
        device=replace(DEVICE, name=long),
        visit=replace(VISIT, author=long, checklist={long: long}),
        notes=(Note(1, 17, START, "jk", "W" * 4000),),
    )
    reader, text = pdf_of(tmp_path / "visit.pdf", bundle, "letter")
    assert text.count(long) >= 5
    width = float(reader.pages[0].mediabox.width)
    for page in reader.pages:
        seen: list[tuple[float, float]] = []
        page.extract_text(
            visitor_text=lambda text, cm, tm, font, size, seen=seen: (
                seen.append((tm[4], tm[5])) if text.strip() else None
            )
        )
        assert seen
        assert all(20 < x < width - 20 and 20 < y < 800 for x, y in seen)


def test_the_fonts_are_embedded(tmp_path: Path, changed: ExamBundle) -> None:
    reader, _ = pdf_of(tmp_path / "visit.pdf", visit_of(changed))
    resources: Any = reader.pages[0]["/Resources"]
    for reference in resources["/Font"].values():
        font = reference.get_object()
        descendant = font["/DescendantFonts"][0].get_object()
        assert "/FontFile2" in descendant["/FontDescriptor"]


def test_missing_characters_are_reported_on_the_page_and_to_the_caller(tmp_path: Path) -> None:
    bundle = visit_of(person=replace(PERSON, name="王小明 Wáng"))
    path = tmp_path / "visit.pdf"
    (warning,) = write_pdf(bundle, path)
    assert warning.endswith("by code point: U+738B U+5C0F U+660E")
    _, text = pdf_of(path, bundle)
    assert "[U+738B][U+5C0F][U+660E]Wáng" in text
    assert squeezed(warning) in text
    assert write_pdf(visit_of(), path) == []


def test_a_note_in_a_script_without_a_font_leaves_room_for_itself(tmp_path: Path) -> None:
    """The foot names a few characters of many; the caller gets them all."""
    text = "".join(chr(0x4E00 + k) for k in range(2000))
    bundle = visit_of(notes=(Note(1, 17, START, "jk", text),))
    (warning,) = write_pdf(bundle, tmp_path / "visit.pdf")
    assert warning.count("U+") == 2000
    _, text = pdf_of(tmp_path / "visit.pdf", bundle)
    assert "U+4E13…and1980more" in text


def test_a_font_that_is_given_fills_the_gap(tmp_path: Path) -> None:
    import matplotlib as mpl

    folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
    extra = folder / "STIXGeneral.ttf"
    shipped = TTFont(folder / "DejaVuSans.ttf").getBestCmap()
    character = chr(min(c for c in TTFont(extra).getBestCmap() if c > 0x2000 and c not in shipped))
    bundle = visit_of(person=replace(PERSON, name=f"A{character}B"))
    (warning,) = write_pdf(bundle, tmp_path / "without.pdf")
    assert f"U+{ord(character):04X}" in warning
    assert write_pdf(bundle, tmp_path / "with.pdf", fonts=[extra]) == []
    _, text = pdf_of(tmp_path / "with.pdf", bundle, fonts=[extra])
    assert f"A{character}B" in text


def test_a_file_that_is_no_font_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"not a font", b"\x00\x01\x00\x00" + b"\xff" * 400):
        bad = tmp_path / "bad.ttf"
        bad.write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.ttf must be a TrueType font file"):
            write_pdf(visit_of(), tmp_path / "visit.pdf", fonts=[bad])
    with pytest.raises(ValueError, match=r"zero must be a TrueType font file"):
        write_pdf(visit_of(), tmp_path / "zero.pdf", fonts=["/dev/zero"])
    with pytest.raises(ValueError, match=r"none\.ttf must be a TrueType font file"):
        write_pdf(visit_of(), tmp_path / "visit.pdf", fonts=[tmp_path / "none.ttf"])
    assert not (tmp_path / "visit.pdf").exists()


@pytest.mark.parametrize(
    "name", ["محمد عبد الله الفارسي", "יוסי כהן", "Ελένη Łukasz Đorđe", "علی\u200cرضا"]
)
def test_names_of_other_scripts_are_written_in_their_order(tmp_path: Path, name: str) -> None:
    bundle = visit_of(person=replace(PERSON, name=name))
    assert write_pdf(bundle, tmp_path / "visit.pdf") == []
    _, text = pdf_of(tmp_path / "visit.pdf", bundle)
    assert squeezed(name) in text


def test_hostile_names_are_text_on_paper_too(tmp_path: Path) -> None:
    name = HOSTILE + "\ue000 **bold** __u__ \x00 \ud800"
    bundle = visit_of(person=replace(PERSON, name=name, code="{nb}"))
    _, text = pdf_of(tmp_path / "visit.pdf", bundle)
    shown = HOSTILE + "[U+E000] **bold** __u__ [U+0000] [U+D800]"
    assert squeezed(shown) in text
    assert "page1of1" in text


WRITTEN = st.text(
    st.characters(max_codepoint=0x3000) | st.sampled_from("\u200d\u200f\u202e\xad\u0301ا王😀\n\t"),
    max_size=60,
)


@given(name=WRITTEN, note=WRITTEN)
@settings(max_examples=8)
def test_no_name_breaks_a_pdf(
    tmp_path_factory: pytest.TempPathFactory, name: str, note: str
) -> None:
    path = tmp_path_factory.mktemp("pdf") / "visit.pdf"
    bundle = visit_of(
        person=replace(PERSON, name=name), notes=(Note(1, 17, START, name, note or "."),)
    )
    _, text = pdf_of(path, bundle)
    assert squeezed(ENGLISH.see_a_doctor) in text


def test_the_same_rows_give_the_same_file(tmp_path: Path, changed: ExamBundle) -> None:
    one, other = tmp_path / "one.pdf", tmp_path / "other.pdf"
    write_pdf(visit_of(changed), one)
    write_pdf(visit_of(changed), other)
    assert one.read_bytes() == other.read_bytes()
    assert render_html(visit_of(changed)) == render_html(visit_of(changed))


@pytest.mark.parametrize("write", [write_html, write_pdf])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "visit"
    path.write_text("old")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report.os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write(visit_of(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError):
        write(visit_of(), tmp_path / "no" / "folder.pdf")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(OSError, match="folder"):
        write(visit_of(), folder)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "visit"]
