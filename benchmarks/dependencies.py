"""What the base install and each extra bring along: what for, at what cost, under what licence.

Run it in an environment with all extras, `python benchmarks/dependencies.py docs`: it writes
docs/dependencies.md from pyproject.toml and from the files of the installed packages.
"""

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
SERVES = {
    "numpy": "arrays: everything is computed with them",
    "scipy": "special functions, splines of simulated listeners, Halton sequences",
    "numba": "compiles the kernels of psychometric fields (`es.Exam`, screens by a protocol)",
    "matplotlib": "`plot()`, the demo's picture, figures of studies and reports",
    "typer": "the command `earshift`",
    "rich": "tables on the command line",
    "sqlalchemy": "the store: people, exams and results in SQLite or PostgreSQL",
    "alembic": "upgrades of the store's tables",
    "platformdirs": "where compiled kernels and the store lie unless you say so",
    "argon2-cffi": "passwords of the web app",
    "fastapi": "the web app and its API",
    "pydantic": "checks of what the web app is sent",
    "uvicorn": "serves the web app",
    "jinja2": "pages of the web app, reports in HTML",
    "segno": "listeners' links as QR codes",
    "fpdf2": "reports in PDF",
    "uharfbuzz": "names of any script in a PDF",
    "joblib": "studies on several cores",
    "polars": "`to_frame()`, Parquet, tables of studies",
    "distributed": "studies on a Dask cluster",
    "psycopg": "PostgreSQL",
}
MEGABYTE = 1e6
LEFT_OUT = ("dev", "docs", "all")  # extras that nobody runs the program with
# Packages that name a licence in words of their own, as SPDX has them.
SPDX = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
}


def _name(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()


def needed(requirement: str, *, alone: bool = False) -> list[str]:
    """Packages that a requirement brings along on this machine, itself first.

    `alone`: those that it asks for itself, not what these bring along in turn.
    """
    found: list[str] = []
    queue = [Requirement(requirement)]
    while queue:
        wanted = queue.pop(0)
        name = _name(wanted.name)
        if name in found:
            continue
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        if alone and found:
            found.append(name)
            continue
        found.append(name)
        for line in package.requires or ():
            inner = Requirement(line)
            extras = wanted.extras or {""}
            if inner.marker is None or any(inner.marker.evaluate({"extra": e}) for e in extras):
                queue.append(inner)
    return found


def megabytes(name: str) -> float:
    """Size of a package's files on disk, its compiled Python aside."""
    total = 0
    for file in distribution(name).files or ():
        path = Path(str(file.locate()))
        if path.suffix != ".pyc" and path.is_file():
            total += path.stat().st_size
    return total / MEGABYTE


def licence(name: str) -> str:
    """A package's licence as it says itself, in the words of SPDX where it is one of theirs."""
    data = distribution(name).metadata
    said = data.get("License-Expression") or data.get("License") or ""
    if not said or "\n" in said.strip():  # some have the whole text there
        kinds = [kind for kind in data.get_all("Classifier") or () if kind.startswith("License")]
        said = " and ".join(kind.split(" :: ")[-1] for kind in kinds)
    return SPDX.get(said.strip(), said.strip())


def requirements_by_extra() -> dict[str, list[str]]:
    """What the program asks for itself: the base install under "", then each extra's own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: dict[str, list[str]] = {"": project["dependencies"]}
    for extra, requirements in project["optional-dependencies"].items():
        if extra not in LEFT_OUT:
            found[extra] = [one for one in requirements if not one.startswith("earshift[")]
    return found


def licences() -> list[str]:
    """Lines on the licence of every package that any extra brings along."""
    wanted = [one for some in requirements_by_extra().values() for one in some]
    names = sorted({name for requirement in wanted for name in needed(requirement)})
    told = {name: licence(name) for name in names}
    copyleft = [f"{name} ({said})" for name, said in told.items() if "GPL" in said or "MPL" in said]
    return [
        "",
        "## Licences",
        "",
        f"As the packages state them. With conditions on passing them on: {', '.join(copyleft)}.",
        "earshift uses these unchanged, as libraries that can be replaced, so the LGPL asks",
        "nothing of its own code; whoever passes on an image with them keeps their notices",
        "and lets them be replaced. Wheels bundle libraries in C; their notices are in the wheels.",
        "`make sbom` lists packages, versions and licences for programs (CycloneDX).",
        "",
        "| package | licence |",
        "|---|---|",
        *(f"| {name} | {said} |" for name, said in told.items()),
    ]


def table(requirements: list[str], seen: set[str]) -> tuple[list[str], float]:
    """Lines of a table, and megabytes in all; what was seen before costs nothing more."""
    rows, whole = [], 0.0
    for requirement in requirements:
        name = _name(Requirement(requirement).name)
        new = [one for one in needed(requirement) if one not in seen]
        seen.update(new)
        cost = sum(map(megabytes, new))
        whole += cost
        rest = [f"{one} {megabytes(one):.0f}" for one in new[1:] if megabytes(one) >= 1.0]
        brings = ", ".join(rest) or "-"
        rows.append((cost, f"| {name} | {SERVES[name]} | {cost:.1f} | {brings} |"))
    return [line for _, line in sorted(rows, key=lambda row: -row[0])], whole


def page() -> str:
    seen: set[str] = set()
    parts = [
        "# Dependencies",
        "",
        "<!-- Written by `make dependencies` (benchmarks/dependencies.py). -->",
        "",
        "What each package serves, and what it adds on disk in MB, with what it brings along that",
        "no package before it in this page brought. Files of packages as installed on Linux with",
        f"Python {'.'.join(map(str, sys.version_info[:2]))}; caches of compiled Python aside.",
    ]
    head = ["", "| package | serves | MB | of these, brought along |", "|---|---|---|---|"]
    for extra, requirements in requirements_by_extra().items():
        rows, more = table(requirements, seen)
        title = f"Extra `{extra}`: {more:.0f} MB more" if extra else f"Base install: {more:.0f} MB"
        command = f"'earshift[{extra}]'" if extra else "earshift"
        parts += ["", f"## {title}", "", f"`pip install {command}`.", *head, *rows]
    parts += [
        "",
        "`earshift[all]` has all of them. numba and its compiler cannot be left out: `es.Exam` and",
        "screens by a protocol run on compiled kernels. Exams and screens of a clinic",
        "(`Exam.clinical`, `Screen(rule=...)`) never load them.",
        *licences(),
        "",
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    (Path(sys.argv[1]) / "dependencies.md").write_text(page(), encoding="utf-8")
