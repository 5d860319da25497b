"""The documents are true: their Python runs, every public name is documented, links lead on."""

import doctest
import importlib.util
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot

import earshift as es
from earshift.store import Store
from support.databases import prepare

ROOT = Path(__file__).resolve().parents[1]
_spec = importlib.util.spec_from_file_location("notebooks", ROOT / "notebooks" / "notebooks.py")
assert _spec is not None
assert _spec.loader is not None
notebooks: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(notebooks)
NOTEBOOKS: list[Path] = notebooks.NOTEBOOKS
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
EAR = {500: 10, 1000: 10, 2000: 15, 3000: 20, 4000: 25, 6000: 30, 8000: 30}
# What a page leaves to its reader.
GIVEN: dict[str, dict[str, Any]] = {
    "protocol.md": {"present": lambda tone: (True, 300.0)},
    "both-ears.md": {
        "listeners": {"right": es.Listener(EAR, seed=1), "left": es.Listener(EAR, seed=2)},
        "right": es.Audiogram(EAR),
        "left": es.Audiogram(EAR),
    },
}
# Pages whose Python is about a clinic's files and database: they run in turn, in one clinic.
CLINIC = ("formats.md", "records.md", "report.md")
BASELINES = """person,date,R500,R1000,R2000,R3000,R4000,R6000,R8000
4711,2020-05-04,10,10,15,20,25,CNT,NR
"""


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def run_python(page: Path, names: dict[str, Any]) -> dict[str, Any]:
    for number, block in enumerate(blocks(page), start=1):
        exec(compile(block, f"{page.name}, block {number}", "exec"), names)
    return names


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page) and page.name not in CLINIC],
    ids=lambda page: page.name,
)
def test_the_python_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pyplot.switch_backend("Agg")
    run_python(page, dict(GIVEN.get(page.name, {})))
    pyplot.close("all")


def test_the_readmes_first_exam_screen_and_picture_are_twelve_lines() -> None:
    (code,) = blocks(ROOT / "README.md")
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    assert "screen.plot()" in code


def test_the_python_of_a_clinics_pages_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """References from a file, a screen of an ear that hears as before, and its report."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EARSHIFT_DB", "clinic.db")
    (tmp_path / "baselines.csv").write_text(BASELINES, encoding="utf-8")
    prepare(tmp_path / "clinic.db")
    with Store.open("clinic.db") as store:
        store.add_person(code="4711", author="mh")
    names = run_python(DOCS / "formats.md", {})
    assert len(names["found"].accepted) == 1
    with Store.open("clinic.db") as store:
        store.import_audiograms(names["found"].accepted, author="mh", zone="Europe/Berlin")
    listener = es.Listener(EAR, seed=3)

    def present(given: Any) -> bool:
        heard = given.kind == "tone"
        return heard and listener(es.Tone(given.frequency_hz, given.level_db_hl))

    run_python(DOCS / "records.md", {"present": present})
    run_python(DOCS / "report.md", {})
    assert (tmp_path / "visit.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_did(path: Path) -> None:
    again = notebooks.execute(path)["cells"]
    stored = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for now, before in zip(again, stored, strict=True):
        for one, other in zip(now.get("outputs", ()), before.get("outputs", ()), strict=True):
            assert one.get("text") == other.get("text")
            assert one.get("data", {}).keys() == other.get("data", {}).keys()
    assert notebooks.page(path).startswith("# ")


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


PUBLIC = sorted(set(es.__all__) - {"__version__"})


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example_that_runs(name: str) -> None:
    text = inspect.getdoc(getattr(es, name)) or ""
    assert "Raises:" in text or name == "population_norm"
    _, _, example = text.partition("Examples:")
    module = sys.modules[getattr(es, name).__module__]
    test = doctest.DocTestParser().get_doctest(example, dict(vars(module)), name, None, None)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


def test_every_page_is_in_the_sites_contents() -> None:
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    names = [page.name for page in DOCS.glob("*.md")]
    for name in [*names, *(f"notebook-{path.stem}.md" for path in NOTEBOOKS)]:
        assert f"- {name}\n" in contents, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_files_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if not re.match(r"[a-z]+:|#", link):
            assert (page.parent / link.partition("#")[0]).exists(), link
