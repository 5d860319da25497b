"""The package itself: what importing it costs, and the names it offers."""

import os
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


@pytest.mark.slow
def test_a_users_script_passes_mypy_strict(tmp_path: Path) -> None:
    script = Path(__file__).parent / "typed" / "user_script.py"
    source = Path(es.__file__).parents[1]
    # Errors in the package's own files are no business of a script that imports it.
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    command += ["--config-file=", f"--cache-dir={tmp_path}", str(script)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(source)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
