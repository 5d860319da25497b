"""Whether what would be published is fit to be: builds it, looks at it, installs it and tests it.

    python tools/release_check.py [--tests PATH ...] [--only base|oldest|newest]

Builds an sdist and a wheel into build/release, checks metadata, licence and contents, installs the
wheel into fresh environments (without extras; with the oldest direct dependencies that are allowed;
with the newest) and runs the fast tests against it, beside an unpacked sdist whose source is gone.
"""

import argparse
import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "release"
FAST = "not browser and not server and not kills and not cluster and not slow"
# They read the source of the package, which is not beside an installed one, or ask for the very
# versions that are pinned.
OF_THE_SOURCE = (
    "tests/test_architecture.py", "tests/test_container.py", "tests/test_refusals.py",
    "tests/test_supply_chain.py", "tests/fhir_check",
)  # fmt: skip
IN_THE_SDIST = (
    "LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Containerfile",
    "Makefile", "constraints.txt", "requirements-hashes.txt", "mkdocs.yml", "pyproject.toml",
    "tests/conftest.py", "docs/index.md",
    "notebooks/notebooks.py", "examples/gap_detection.py",
)  # fmt: skip


class Unfit(Exception):
    """What is wrong with what would be published."""


def demand(condition: bool, what: str) -> None:
    if not condition:
        raise Unfit(what)
    print(f"  ok: {what}", flush=True)


def call(command: Sequence[str | Path], where: Path = ROOT, **more: str) -> None:
    """Run a program; threads of BLAS would only be in each other's way."""
    surroundings = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    surroundings |= {"OPENBLAS_NUM_THREADS": "1", **more}
    done = subprocess.run([str(part) for part in command], cwd=where, env=surroundings, check=False)
    if done.returncode:
        raise Unfit(f"{' '.join(str(part) for part in command)} failed")


def version() -> str:
    text = (ROOT / "src" / "earshift" / "__init__.py").read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "(.+)"$', text, re.M)[0]


def environment(name: str) -> Path:
    """A fresh environment; its Python."""
    folder = FOLDER / f"env-{name}"
    venv.create(folder, with_pip=True, clear=True)
    return folder / "bin" / "python"


def install(python: Path, *what: str | Path) -> None:
    call([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what])


def built() -> tuple[Path, Path]:
    """sdist and wheel, anew."""
    python = environment("tools")
    install(python, "build", "twine")
    out = FOLDER / "dist"
    shutil.rmtree(out, ignore_errors=True)
    call([python, "-m", "build", "--outdir", out, ROOT])
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    call([python, "-m", "twine", "check", "--strict", sdist, wheel])
    return sdist, wheel


def look_at(sdist: Path, wheel: Path) -> None:
    """Metadata, licence files and contents."""
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        (meta,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        data = email.message_from_bytes(packed.read(meta))
    demand(data["Name"] == "earshift", "the wheel is called earshift")
    demand(data["Version"] == version(), f"its version is {version()}")
    demand(data["License-Expression"] == "Apache-2.0", "its licence is Apache-2.0")
    demand(any(n.endswith("licenses/LICENSE") for n in names), "the licence is in the wheel")
    demand("earshift/py.typed" in names, "the wheel says that it is typed")
    demand(not [n for n in names if "/__pycache__/" in n], "no compiled files are in the wheel")
    demand(not [n for n in names if n.startswith("tests/")], "no tests are in the wheel")
    demand(data["Requires-Python"] == ">=3.11", "it says which Python it needs")
    with tarfile.open(sdist) as packed_source:
        inside = {name.partition("/")[2] for name in packed_source.getnames()}
    for path in IN_THE_SDIST:
        demand(path in inside, f"{path} is in the sdist")
    for path in ("docs/migration.md", "CHANGELOG.md", "CITATION.cff"):
        told = (ROOT / path).read_text(encoding="utf-8")
        demand(version() in told, f"{path} speaks of {version()}")


def beside(sdist: Path, name: str) -> Path:
    """The sdist unpacked without its source: tests can only find what is installed."""
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(sdist) as packed:
        packed.extractall(folder, filter="data")
    (inside,) = folder.iterdir()
    shutil.rmtree(inside / "src")
    return inside


def of_the_library(sdist: Path, wheel: Path) -> None:
    """Without extras: the README's Python runs, and clinical commands say what they need."""
    python = environment("base")
    install(python, wheel)
    folder = beside(sdist, "base")
    readme = (folder / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", readme, re.M | re.S)
    call([python, "-c", code], folder, MPLBACKEND="Agg")
    done = subprocess.run(
        [python.with_name("earshift"), "person", "list"],
        capture_output=True,
        text=True,
        check=False,
    )
    demand("earshift[clinic]" in done.stderr, "a command of the clinic names its extra")


def oldest() -> list[str]:
    """Every package that is asked for, pinned to the lowest version that is allowed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"]]
    for extra in ("clinic", "study", "cluster", "postgresql"):
        asked += [one for one in extras[extra] if not one.startswith("earshift[")]
    return [re.sub(r"\[.+\]", "", one).replace(">=", "==") for one in asked]


def tested(sdist: Path, wheel: Path, name: str, tests: Sequence[str]) -> None:
    """The fast tests against the wheel, with the oldest or the newest dependencies."""
    python = environment(name)
    held = FOLDER / f"{name}.txt"
    held.write_text("".join(f"{line}\n" for line in oldest() if name == "oldest"))
    install(python, "-c", held, f"{wheel}[all,dev]")
    call([python, "-m", "pip", "check"])
    folder = beside(sdist, name)
    left_out = [f"--deselect={path}" for path in OF_THE_SOURCE]
    # Old packages use what newer ones among their own requirements have deprecated.
    lenient = ["-W", "default::DeprecationWarning"] if name == "oldest" else []
    parallel = ["-n", "auto", "--dist", "worksteal"]
    call([python, "-m", "pytest", "-q", *parallel, "-m", FAST, *lenient, *left_out, *tests], folder)
    if name == "newest":  # published beside the wheel
        call([python, ROOT / "tools" / "sbom.py", wheel.with_suffix(".cdx.json")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", nargs="*", default=["tests"])
    parser.add_argument("--only", choices=("base", "oldest", "newest"))
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        sdist, wheel = built()
        look_at(sdist, wheel)
        if given.only in (None, "base"):
            of_the_library(sdist, wheel)
        for name in ("oldest", "newest"):
            if given.only in (None, name):
                tested(sdist, wheel, name, given.tests)
    except Unfit as problem:
        sys.exit(f"not fit for release: {problem}")
    print(f"earshift {version()} is fit for release")


if __name__ == "__main__":
    main()
