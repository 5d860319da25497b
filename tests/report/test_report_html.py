"""The report as HTML: hostile and damaged data, the file, every word translated."""

import re
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earshift.records import ExamBundle, Note, VisitBundle
from earshift.report import ENGLISH, Words, render_html, write_html
from support.report_bundles import (
    DEVICE,
    PERSON,
    START,
    VISIT,
    visit_of,
    with_shown,
)
from support.report_text import HOSTILE, Document, page_of

# Hostile and damaged data ------------------------------------------------------------------------


def test_names_are_text_and_never_markup(changed: ExamBundle) -> None:
    rule = {**changed.results[0].shown["rule"], "text": HOSTILE, "source": HOSTILE}
    bundle = visit_of(
        with_shown(changed, words=HOSTILE, rule=rule),
        person=replace(PERSON, name=HOSTILE, code=HOSTILE, sex=HOSTILE),
        visit=replace(VISIT, author=HOSTILE, checklist={HOSTILE: HOSTILE}),
        device=replace(DEVICE, name=HOSTILE),
        notes=(Note(1, 17, START, HOSTILE, HOSTILE),),
    )
    document = Document(render_html(bundle))
    worded = with_shown(changed, words="Plain words.")
    plain = Document(render_html(visit_of(worded, notes=(Note(1, 17, START, "a", "b"),))))
    assert [name for name, _ in document.elements] == [name for name, _ in plain.elements]
    assert document.text.count(HOSTILE) >= 10


def test_characters_that_act_on_the_page_are_shown_by_code_point() -> None:
    name = "Bob\u202egnp\x07 \ud800 \ue000 \u2066x\u2069 z\u200dj"
    html = render_html(visit_of(person=replace(PERSON, name=name)))
    html.encode()  # a lone surrogate could not be written
    expected = "Bob[U+202E]gnp[U+0007] [U+D800] [U+E000] [U+2066]x[U+2069] z\u200dj"
    assert expected in Document(html).text


def test_a_very_long_fact_says_how_much_is_left_out() -> None:
    text = page_of(person=replace(PERSON, name="x" * 5000))
    assert "x" * 200 + " … (4800 more characters are in the records)" in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["verdict", "rule", "thresholds", "shifts", "frequency_hz", "level_db_hl", "words",
                 "low_db_hl", "high_db_hl", "censored", "decision", "notes", "evidence_hz", "tones",
                 "reference_thresholds", "catch_trials", "unverified", "settings", "limits"]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)  # fmt: skip


@given(shown=JSON, settings_=JSON, name=st.text(max_size=20))
@settings(max_examples=150)
def test_no_stored_row_breaks_a_report(
    changed: ExamBundle, shown: object, settings_: object, name: str
) -> None:
    def mapping(value: object) -> dict[str, Any]:
        return value if isinstance(value, dict) else {"verdict": value, "thresholds": value}

    result = replace(changed.results[0], shown=mapping(shown), settings=mapping(settings_))
    bundle = visit_of(
        replace(changed, results=(result,)),
        person=replace(PERSON, name=name),
        visit=replace(VISIT, checklist=mapping(shown)),
    )
    document = Document(render_html(bundle))
    assert document.all("svg")


def test_an_ear_that_is_none_is_refused(changed: ExamBundle) -> None:
    with pytest.raises(ValueError, match="'right' or 'left', got 'neither'"):
        render_html(visit_of(replace(changed, exam=replace(changed.exam, ear="neither"))))


# The HTML file -----------------------------------------------------------------------------------


def test_the_html_needs_nothing_else_and_can_be_read_aloud(
    changed: ExamBundle, unchanged: ExamBundle, niosh: ExamBundle
) -> None:
    html = render_html(visit_of(changed, unchanged, niosh))
    document = Document(html)
    assert not document.all("script")
    assert not document.all("link")
    assert not document.all("img")
    assert not re.search(r"https?:|url\(|@import|src=|href=", html)
    assert document.all("html")[0]["lang"] == "en"
    policy = [m.get("content") for m in document.all("meta") if m.get("http-equiv")]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert len(document.all("h1")) == len(document.all("main")) == 1
    identifiers = [a["id"] for _, a in document.elements if "id" in a]
    assert len(identifiers) == len(set(identifiers))
    pictures = document.all("svg")
    assert len(document.all("table")) == len(document.all("caption")) == 3
    assert len(pictures) == 2 * 3  # shifts and audiogram of each
    for picture in pictures:
        assert picture["role"] == "img"
        assert set(str(picture["aria-labelledby"]).split()) <= set(identifiers)
    assert {each["scope"] for each in document.all("th")} == {"row", "col"}


def test_the_picture_is_told_in_words(imported: VisitBundle) -> None:
    text = Document(render_html(imported)).text
    assert (
        "Now, in dB HL: 500 Hz 10, 1000 Hz 15, 2000 Hz 20, 4000 Hz 60, 8000 Hz no response at 100."
        in text
    )


def marked_words() -> Words:
    """Every text of the report between marks, as a translator's trial."""

    def mark(value: Any) -> Any:
        if is_dataclass(value):
            marked = {each.name: mark(getattr(value, each.name)) for each in fields(value)}
            return type(value)(**marked)
        return f"«{value}»" if isinstance(value, str) else {k: f"«{v}»" for k, v in value.items()}

    return Words(**{each.name: mark(getattr(ENGLISH, each.name)) for each in fields(Words)})


def test_every_word_can_be_translated(changed: ExamBundle, full: ExamBundle) -> None:
    """With all words marked, only stored texts and numbers are left unmarked."""
    exam = replace(changed, trials=changed.trials[:-1])
    bundle = visit_of(exam, full, notes=(Note(1, 17, START, "jk", "Wax."),))
    document = Document(render_html(bundle, words=marked_words()))
    said, sentence = (exam.results[0].shown[name] for name in ("words", "sentence"))
    stored = {"Anna Müller", "female", "B-1042", "jk", "Wax."}
    stored |= {sentence, said.removeprefix(sentence).strip()}
    for text in document.texts:
        if text not in stored and re.search("[a-zA-Z]", text):
            assert "«" in text, text


def test_html_is_written_whole(tmp_path: Path, changed: ExamBundle) -> None:
    path = tmp_path / "visit.html"
    assert write_html(visit_of(changed), str(path)) == path
    assert path.read_text(encoding="utf-8") == render_html(visit_of(changed))
    assert [each.name for each in tmp_path.iterdir()] == ["visit.html"]
