"""Where compiled functions are kept: beside the source, or in a folder of the program's own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import earshift
from earshift.engine.compiled import cache_folder

PACKAGE = Path(earshift.__file__).parent


@pytest.fixture
def read_only(tmp_path: Path) -> Path:
    """A copy of the program beside whose modules nothing can be kept, whoever runs it."""
    copied = tmp_path / "code" / "earshift"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    (copied / "engine" / "__pycache__").write_text("no folder")
    return copied.parent


def run(code: Path, *given: str, **around: str) -> str:
    """What a program says that has these environment variables, and no home."""
    kept = {"PATH": os.environ["PATH"], "HOME": os.devnull, "PYTHONPATH": str(code)}
    done = subprocess.run(
        [sys.executable, "-B", *given],
        env={**kept, **around},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


COMPILE = """
from earshift.engine import ep
ep.log_ndtr(0.0)
print(ep.log_ndtr.stats.cache_path)
"""


def test_what_is_compiled_lies_beside_the_source() -> None:
    assert cache_folder() is None


@pytest.mark.parametrize("name", ["EARSHIFT_CACHE", "CACHE_DIRECTORY"])
def test_read_only_code_keeps_it_where_it_is_told_to(
    read_only: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "kept"
    said = run(read_only, "-c", COMPILE, **{name: str(folder)})
    assert Path(said.strip()).is_relative_to(folder)
    assert list(folder.rglob("*.nbi"))


def test_without_any_folder_it_is_compiled_each_time(read_only: Path, tmp_path: Path) -> None:
    said = run(read_only, "-c", COMPILE, TMPDIR=str(tmp_path))
    assert Path(said.strip()).is_relative_to(tmp_path)
