"""`earshift warm`: afterwards everything that exams and screens need is compiled, in one place."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_warm_compiles_into_the_folder_that_it_is_given_and_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "earshift.cli", "warm", "--json"],
        env={**os.environ, "EARSHIFT_CACHE": str(tmp_path), "NUMBA_CACHE_DIR": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    assert Path(told["folder"]) == tmp_path / "kernels"
    assert told["seconds"] >= 0
    compiled = {path.name.partition(".")[0] for path in tmp_path.rglob("*.nbi")}
    assert {"ep", "field", "optimise", "evidence", "choose"} <= compiled
