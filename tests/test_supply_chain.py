"""What is installed is what was pinned: hashes, versions, and a list of all parts."""

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from dependencies import licence, needed, requirements_by_extra  # noqa: E402

PIN = re.compile(r"^([a-z0-9.-]+)==([^ \s\\]+)", re.M)


def pins(name: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / name).read_text(encoding="utf-8")))


def test_hashes_are_of_the_versions_that_are_tested() -> None:
    hashed, all_pins = pins("requirements-hashes.txt"), pins("constraints.txt")
    assert hashed.items() <= all_pins.items()
    wanted = {
        name
        for extra, requirements in requirements_by_extra().items()
        if extra in ("", "clinic", "postgresql")
        for requirement in requirements
        for name in needed(requirement)
    }
    assert wanted <= hashed.keys()


def test_every_pin_has_hashes_and_no_address() -> None:
    text = (ROOT / "requirements-hashes.txt").read_text(encoding="utf-8")
    assert "://" not in text
    for block in re.split(r"\n(?=\S)", text.strip()):
        assert re.match(r"\S+==\S+ \\", block), block
        assert re.findall(r"--hash=sha256:[0-9a-f]{64}", block), block


def test_the_list_of_parts_names_all_that_is_installed(tmp_path: Path) -> None:
    file = tmp_path / "sbom.json"
    command = [sys.executable, str(ROOT / "tools" / "sbom.py"), str(file)]
    subprocess.run(command, check=True, capture_output=True)
    told = json.loads(file.read_text(encoding="utf-8"))
    parts = {part["name"]: part for part in told["components"]}
    for requirements in requirements_by_extra().values():
        for requirement in requirements:
            for name in needed(requirement):
                assert parts[name]["version"] == version(name)
                assert parts[name]["licenses"], name
    references = {part["bom-ref"] for part in told["components"]}
    assert len(references) == len(parts)
    for edge in told["dependencies"]:
        assert set(edge["dependsOn"]) <= references
    whole = {edge["ref"]: set(edge["dependsOn"]) for edge in told["dependencies"]}
    found, queue = set(), [told["metadata"]["component"]["bom-ref"]]
    while queue:
        new = whole[queue.pop()] - found
        found |= new
        queue += new
    assert found == references  # each part is there because another one asks for it


def test_parts_with_conditions_are_named() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    for name in ("fpdf2", "psycopg"):
        assert "LGPL" in licence(name)
        assert f"{name} ({licence(name)})" in page
