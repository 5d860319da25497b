"""A base install without the extra `clinic`: commands say what to install."""

import subprocess
import sys

WITHOUT = """
import sys
sys.modules["sqlalchemy"] = None
from earshift.cli import app
app(["person", "list"])
"""


def test_a_command_that_needs_an_extra_says_which() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install 'earshift[clinic]'" in done.stderr
    assert "Traceback" not in done.stderr
