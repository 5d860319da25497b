"""The package itself: what importing it costs, and the names it offers."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import earshift as es


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, earshift; "
        "print([m for m in ('numba', 'scipy', 'matplotlib', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_can_be_had() -> None:
    for name in es.__all__:
        assert getattr(es, name) is not None
    assert set(es.__all__) <= set(dir(es))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Hearing'"):
        _ = es.Hearing


# What a page leaves to its reader, with its types.
GIVEN = {
    "both-ears.md": "from typing import Any\nlisteners: Any\nright: Any\nleft: Any\n",
    "protocol.md": "def present(tone: object) -> tuple[bool, float]:\n    return True, 300.0\n",
    "records.md": "def present(given: object) -> bool:\n    return True\n",
}


def mypy_strict(folder: Path) -> subprocess.CompletedProcess[str]:
    """What mypy says of the scripts of a folder, as one run."""
    source = Path(es.__file__).parents[1]
    # Errors in the package's own files are no business of a script that imports it, nor are the
    # types that scipy does not have.
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    command += ["--disable-error-code=import-untyped", "--config-file="]
    command += [f"--cache-dir={folder / 'cache'}", *map(str, folder.glob("*.py"))]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(source)},
    )


@pytest.mark.slow
def test_a_users_script_and_the_scripts_of_the_docs_pass_mypy_strict(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parent / "typed" / "user_script.py", tmp_path)
    root = Path(__file__).parents[1]
    for page in (root / "README.md", *(root / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))
        if "earshift" in code:
            script = tmp_path / f"page_{page.stem.replace('-', '_')}.py"
            script.write_text(GIVEN.get(page.name, "") + code, encoding="utf-8")
    done = mypy_strict(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_mypy_finds_what_is_misspelt(tmp_path: Path) -> None:
    lines = ["import earshift as es", "es.Exm()", "es.Exam(sed=3)", "es.Exam().thresholds()[0].lw"]
    (tmp_path / "script.py").write_text("\n".join(lines), encoding="utf-8")
    said = mypy_strict(tmp_path).stdout
    assert re.findall(r"script.py:(\d): error", said) == ["2", "3", "4"], said
