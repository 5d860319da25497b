"""The documents are true: their Python runs, every public name is documented, links lead on."""

import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot

import earshift as es

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
# What a page leaves to its reader.
GIVEN: dict[str, dict[str, Any]] = {"protocol.md": {"present": lambda tone: (True, 300.0)}}
# Pages whose Python needs a clinic's database, files of others, or a long exam of both ears.
ELSEWHERE = {"both-ears.md", "formats.md", "records.md", "report.md"}


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


RUN = [page for page in PAGES if blocks(page) and page.name not in ELSEWHERE]


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_the_python_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pyplot.switch_backend("Agg")
    names = dict(GIVEN.get(page.name, {}))
    for number, block in enumerate(blocks(page), start=1):
        exec(compile(block, f"{page.name}, block {number}", "exec"), names)
    pyplot.close("all")


def test_pages_that_are_not_run_have_python() -> None:
    assert {page.name for page in PAGES if blocks(page)} >= ELSEWHERE


def test_every_public_name_is_in_the_reference_and_documented() -> None:
    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    for name in set(es.__all__) - {"__version__"}:
        thing = getattr(es, name)
        assert f"### `{name}`\n\n::: {thing.__module__}.{thing.__name__}\n" in page, name
        assert thing.__doc__, name
        for member, what in vars(thing).items():
            if callable(what) and not member.startswith("_"):
                assert what.__doc__, f"{name}.{member}"
    assert "__version__" in page


def test_every_page_is_in_the_sites_contents() -> None:
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in DOCS.glob("*.md"):
        assert f"- {page.name}\n" in contents, page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_files_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if not re.match(r"[a-z]+:|#", link):
            assert (page.parent / link.partition("#")[0]).exists(), link
