"""The documents are true: their Python runs, every public name is documented, links lead on."""

import ast
import doctest
import importlib.util
import inspect
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib import pyplot

import earshift as es
from earshift.interop.jsonlines import Conversation
from earshift.store import Store
from support.databases import prepare

ROOT = Path(__file__).resolve().parents[1]


def load(path: Path) -> Any:
    """A module that belongs to no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


notebooks = load(ROOT / "notebooks" / "notebooks.py")
NOTEBOOKS: list[Path] = notebooks.NOTEBOOKS
GENERATED = {f"notebook-{path.stem}.md" for path in NOTEBOOKS}  # pages of the site alone
DOCS = ROOT / "docs"
site_hooks = load(DOCS / "site_hooks.py")
REFERENCE = sorted(DOCS.glob("reference*.md"))
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


def test_the_code_of_other_programs_is_python() -> None:
    """It is compiled and not run: AEPsych, questplus, psignifit and PsychoPy are not installed."""
    text = (DOCS / "coming-from.md").read_text(encoding="utf-8")
    found = re.findall(r"^```py\n(.*?)^```", text, re.M | re.S)
    assert len(found) == 4
    for block in found:
        compile(block, "coming-from.md", "exec")


def test_the_transcript_of_the_json_lines_is_what_is_said() -> None:
    text = (DOCS / "protocol.md").read_text(encoding="utf-8")
    lines = re.findall(r"^([<>]) (.*)$", text, re.M)
    said = [line for who, line in lines if who == ">"]
    talk = Conversation()
    assert len(said) >= 3
    answers = [json.loads(talk.handle(line.encode())) for line in said]
    assert answers == [json.loads(line) for who, line in lines if who == "<"]


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


def rounded(text: str) -> str:
    """Without the digits in which two processors may differ."""
    return re.sub(r"-?\d+\.\d{4,}(e-?\d+)?", lambda number: f"{float(number[0]):.3g}", text)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_did(path: Path) -> None:
    again = notebooks.execute(path)["cells"]
    stored = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for now, before in zip(again, stored, strict=True):
        for one, other in zip(now.get("outputs", ()), before.get("outputs", ()), strict=True):
            assert one.get("text") == other.get("text")
            said, stored_as = one.get("data", {}), other.get("data", {})
            assert said.keys() == stored_as.keys()
            for kind in said.keys() - {"image/png"}:  # of a picture: its words
                assert rounded(said[kind]) == rounded(stored_as[kind])
    assert notebooks.page(path).startswith("# ")


def test_every_public_name_is_in_the_reference_and_documented() -> None:
    page = "".join(one.read_text(encoding="utf-8") for one in REFERENCE)
    for name in set(es.__all__) - {"__version__"}:
        thing = getattr(es, name)
        assert f"## `{name}`\n\n::: {thing.__module__}.{thing.__name__}\n" in page, name
        assert thing.__doc__, name
        for member, what in vars(thing).items():
            if callable(what) and not member.startswith("_"):
                assert what.__doc__, f"{name}.{member}"
    assert "__version__" in page


PUBLIC = sorted(set(es.__all__) - {"__version__"})


# What methods give and nobody makes: docs/reference-results.md has their example.
GIVEN_BACK = {"Threshold", "PlaceThreshold", "Shift", "PlaceShift"}
GIVEN_BACK |= {"Psychometric", "Estimate", "GoodnessOfFit"}


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - GIVEN_BACK))
def test_every_public_name_has_an_example_that_runs(name: str) -> None:
    text = inspect.getdoc(getattr(es, name)) or ""
    assert "Raises:" in text or name in ("population_norm", "Refusal")
    _, _, example = text.partition("Examples:")
    module = sys.modules[getattr(es, name).__module__]
    test = doctest.DocTestParser().get_doctest(example, dict(vars(module)), name, None, None)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


def unnamed(callee: Any, text: str) -> list[str]:
    """The parameters that a docstring does not speak of; those of a parent may be its own."""
    known = [name for name in inspect.signature(callee).parameters if name not in ("self", "cls")]
    return [
        n for n in known if not re.search(rf"^ *\*{{0,2}}{n}:|`{n}`", text, re.M) and n[0] != "_"
    ]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_parameter_of_a_public_name_is_documented(name: str) -> None:
    thing = getattr(es, name)
    text = inspect.getdoc(thing) or ""
    if thing is es.ThresholdRule:  # "Its parameters are those of `Rule`"
        text += inspect.getdoc(es.Rule) or ""
    assert unnamed(thing, text) == []


def methods(name: str) -> list[tuple[str, Any]]:
    """What the reference shows of a class."""
    found = inspect.getmembers(getattr(es, name), inspect.isroutine)
    shown = [(member, what) for member, what in found if member not in ("earlier", "refitted")]
    ours = [(m, w) for m, w in shown if (getattr(w, "__module__", None) or "").startswith("earsh")]
    return [(member, what) for member, what in ours if not member.startswith("_")]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_parameter_of_a_method_is_documented(name: str) -> None:
    for member, what in methods(name):
        assert unnamed(what, inspect.getdoc(what) or "") == [], member


@pytest.mark.parametrize("name", PUBLIC)
def test_the_examples_of_methods_run(name: str) -> None:
    for member, what in methods(name):
        example = (inspect.getdoc(what) or "").partition("Examples:")[2]
        names = dict(vars(sys.modules[what.__module__]))
        test = doctest.DocTestParser().get_doctest(example, names, f"{name}.{member}", None, None)
        assert doctest.DocTestRunner().run(test).failed == 0


def test_what_a_method_gives_and_refuses_is_documented() -> None:
    classes = [one for name in PUBLIC if inspect.isclass(one := getattr(es, name))]
    for one in classes:
        for member, what in inspect.getmembers(one, inspect.isroutine):
            ours = (getattr(what, "__module__", None) or "").startswith("earshift")
            if member.startswith("_") or not ours or member in ("earlier", "refitted"):
                continue
            text = inspect.getdoc(what) or ""
            if inspect.signature(what).return_annotation not in (None, "None"):
                assert "Returns:" in text, f"{one.__name__}.{member}"
            if "raise Refusal" in inspect.getsource(what):
                assert "Raises:" in text, f"{one.__name__}.{member}"


@pytest.mark.parametrize("package", ["engine", "interop", "simulate"])
def test_examples_stand_where_the_reference_shows_them_as_code(package: str) -> None:
    """Elsewhere `>>>` is three quotations in one another."""
    for path in (ROOT / "src" / "earshift" / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                assert ">>>" not in text.partition("Examples:")[0], (path.name, node)


def test_a_link_of_the_site_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = '<h1 id="top-of-it"></h1><a href="{}"></a><a href="https://example.org/x">x</a>'
    (tmp_path / "api").mkdir()
    (tmp_path / "one.html").write_text(page.format("api/two.html#top-of-it"), encoding="utf-8")
    (tmp_path / "api" / "two.html").write_text(page.format("../one.html#there"), encoding="utf-8")
    (tmp_path / "three.html").write_text(page.format("tone"), encoding="utf-8")
    text = "<p>[<code>x</code>][earshift.Nix]</p><pre>[x][y]</pre>"
    (tmp_path / "text.html").write_text(text, encoding="utf-8")
    assert list(site_hooks.broken(tmp_path)) == [
        "api/two.html links to ../one.html#there, which is not there",
        "text.html links to [earshift.Nix], which is not there",
        "three.html links to tone, which is not there",
    ]


def test_tables_scroll_and_other_programs_stand_beside_earshift() -> None:
    code = '<p>in {}:</p>\n<div class="highlight"><pre>x</pre></div>\n'
    html = f"{code.format('short')}<h2>a</h2>{code.format('a')}{code.format('us')}<table></table>"
    page = SimpleNamespace(file=SimpleNamespace(src_uri="coming-from.md"), toc=[])
    made = site_hooks.on_page_content(html, page=page)
    assert made.endswith('<div class="wide"><table></table></div>')
    assert made.count('<div class="beside">') == 1
    assert made.index("<h2>") < made.index('<div class="beside">') < made.index("in a:")


def test_every_page_is_in_the_sites_contents() -> None:
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    names = [page.name for page in DOCS.glob("*.md")]
    for name in [*names, *(f"notebook-{path.stem}.md" for path in NOTEBOOKS)]:
        assert f"- {name}\n" in contents, name


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name
)
def test_links_between_files_lead_somewhere(page: Path) -> None:
    assert list(site_hooks.lost(page)) == []


def test_a_link_of_a_file_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "two.md").write_text("# The top of it\n\n```\n# No heading\n```\n", "utf-8")
    page = tmp_path / "one.md"
    page.write_text(
        "[a](two.md#the-top-of-it), [b](two.md#no-heading), [c](three.md), [d][two], [e][Nix],\n"
        "[`f`][earshift.Nix], [g](#nowhere), `[h][earshift.Nix]`, [i](https://example.org/x)\n\n"
        "[two]: two.md\n",
        encoding="utf-8",
    )
    assert list(site_hooks.lost(page)) == [
        f"one.md links to {link}, which is not there"
        for link in ("two.md#no-heading", "three.md", "#nowhere", "[Nix]", "[earshift.Nix]")
    ]


def test_the_index_lists_every_page() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    names = {page.name for page in DOCS.glob("*.md")} - {"index.md"}
    assert [name for name in sorted(names | GENERATED) if f"]({name})" not in text] == []


def test_the_readme_is_read_in_two_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 650
