"""The Containerfile: what it must hold, and its commands, which run here without a container."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "Containerfile").read_text(encoding="utf-8")


def test_the_app_runs_as_somebody_without_rights() -> None:
    last_stage = TEXT[TEXT.rindex("\nFROM ") :]
    assert last_stage.index("useradd --system") < last_stage.index("\nUSER earshift")
    assert last_stage.index("\nUSER earshift") < last_stage.index("\nCMD ")


def test_kernels_are_compiled_while_it_is_built() -> None:
    assert "NUMBA_CPU_NAME=generic" in TEXT  # on whatever machine it runs later
    assert TEXT.index("NUMBA_CACHE_DIR=") < TEXT.index("earshift simulate") < TEXT.index("\nUSER ")


def test_what_it_copies_and_installs_is_there() -> None:
    for line in re.findall(r"^COPY (?!--from)(.+)$", TEXT, re.M):
        for name in line.split()[:-1]:
            assert (ROOT / name).exists(), name
    extras = re.findall(r"'\.\[(.+?)\]'", TEXT)[0].split(",")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f"\n{extra} = [" in project for extra in extras)


def test_its_health_check_asks_the_port_it_serves() -> None:
    check = json.loads(re.findall(r"HEALTHCHECK[^[]*(\[.+\])", TEXT)[0])
    assert check[:2] == ["python", "-c"]
    compile(check[2], "health check", "exec")
    assert f":{re.findall(r'^EXPOSE (.+)$', TEXT, re.M)[0]}/api/health" in check[2]
    done = subprocess.run(
        [sys.executable, *check[1:2], check[2].replace(":8400", ":9")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0  # nobody answers there


@pytest.mark.slow
def test_the_commands_of_the_build_are_those_of_the_program() -> None:
    for line in re.findall(r"(?:&& |CMD \[)(\"?earshift\"?.*?)(?: >|\]| \\\\)", TEXT):
        words = [word.strip('",') for word in line.split()]
        options = [word for word in words if word.startswith("--")]
        asked = [sys.executable, "-m", "earshift.cli", words[1], "--help"]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        for option in options:
            assert option in done.stdout, option
