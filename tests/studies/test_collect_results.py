"""Gathering results: what was run is new, what was not run stays."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "studies" / "collect_results.py"
CALLS = {
    **{key: {"hits": 5, "n": 10} for key in ("right", "wrong", "undecided")},
    "tones_mean": 8.04,
}


@pytest.fixture
def collect() -> ModuleType:
    spec = importlib.util.spec_from_file_location("collect_results", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_was_not_run_stays_as_it_is(collect: ModuleType, tmp_path: Path) -> None:
    docs, results = tmp_path / "docs", tmp_path / "results"
    (results / "rules").mkdir(parents=True)
    docs.mkdir()
    kept = collect.PARTS["paper"]
    (docs / "results.md").write_text(
        f"# Results\n\n| a | table |\n\n## {collect.PARTS['rules']}\n\nstale\n\n## {kept}\n\nkept\n"
    )
    (tmp_path / "README.md").write_text(
        f"before\n{collect.OPENING}\n| old rules |\n\n| the paper |\n\nA sentence.\n"
        f"{collect.CLOSING}\nafter\n"
    )
    (results / "rules" / "results.md").write_text("## Rules\n\nnew ![calls](calls.png)\n")
    (results / "rules" / "calls.png").write_bytes(b"a picture")
    conditions = {"unchanged": {"unchanged": CALLS}}
    summary = {"people": 12, "rules": {"osha-sts": {"conditions": conditions}}}
    (results / "rules" / "summary.json").write_text(json.dumps(summary))
    for _ in range(2):  # again gives the same
        collect.main(results, docs)
        page = (docs / "results.md").read_text()
        assert page.startswith("# Results\n\n| a | table |\n\n## ")
        assert "### Rules\n\nnew ![calls](results-calls.png)" in page
        assert page.endswith(f"## {kept}\n\nkept\n")
        assert "stale" not in page
        readme = (tmp_path / "README.md").read_text()
        assert "| osha-sts: unchanged ears | 50.0 % | 50.0 % | 50.0 % | 8.0 |" in readme
        assert "12 a line" in readme
        assert readme.endswith(f"| the paper |\n\nA sentence.\n{collect.CLOSING}\nafter\n")
        assert "old rules" not in readme
    assert (docs / "results-calls.png").read_bytes() == b"a picture"
