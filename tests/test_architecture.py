"""The map in docs/architecture.md is the tree: its modules, their order, and who may import whom.

The document is the one place that states the order. A package imports only from packages before it,
a module of the engine only from modules before it, imports inside functions included; so there is
no cycle, and none that a late import hides.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "earshift"
MAP = ROOT / "docs" / "architecture.md"
MOST_LINES = 600
OLD_PATHS = {"classical.py", "ep.py", "monitor.py", "rules.py", "visit.py"}


def mapped() -> dict[str, list[str]]:
    """The map: packages in order, with their modules in order, as paths below src/earshift."""
    packages: dict[str, list[str]] = {}
    for line in MAP.read_text(encoding="utf-8").splitlines():
        if found := re.match(r"## `(\w+)`", line):
            packages[found[1]] = []
        elif found := re.match(r"- `([\w/]+\.py)`: \S", line):
            packages[found[1].partition("/")[0].removesuffix(".py")].append(found[1])
    return packages


def modules() -> list[str]:
    """All Python files of the package but its front and the older import paths."""
    found = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}
    found = {path for path in found if "/migrations/" not in path}
    return sorted(found - OLD_PATHS - {"__init__.py"})


def dotted(path: str) -> str:
    """A module's name from its path."""
    return ".".join(["earshift", *path.removesuffix(".py").removesuffix("/__init__").split("/")])


PATHS = {dotted(path): path for path in modules()}


def imported(path: str) -> Iterator[str]:
    """The modules of the package that a module imports, wherever it does."""
    for node in ast.walk(ast.parse((SOURCE / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name in PATHS:
                yield PATHS[name]
            elif name.rpartition(".")[0] in PATHS:
                yield PATHS[name.rpartition(".")[0]]
            elif name in {f"earshift.{old.removesuffix('.py')}" for old in OLD_PATHS}:
                pytest.fail(f"{path} imports the old path {name}")


def test_the_map_names_every_module_and_every_name_exists() -> None:
    named = [path for paths in mapped().values() for path in paths]
    assert len(named) == len(set(named))
    assert set(modules()) - set(named) == set(), "modules that docs/architecture.md does not name"
    assert set(named) - set(modules()) == set(), "names in docs/architecture.md without a module"


def test_packages_import_only_from_packages_before_them() -> None:
    order = list(mapped())
    wrong = [
        f"{path} imports {other}"
        for path in modules()
        for other in imported(path)
        if order.index(package_of(path)) < order.index(package_of(other))
    ]
    assert not wrong, "\n".join(wrong)


def package_of(path: str) -> str:
    return path.partition("/")[0].removesuffix(".py")


def test_modules_of_the_engine_import_only_from_modules_before_them() -> None:
    order = mapped()["engine"]
    wrong = [
        f"{path} imports {other}"
        for path in order
        for other in imported(path)
        if other != "engine/__init__.py" and order.index(path) <= order.index(other)
    ]
    assert not wrong, "\n".join(wrong)


def test_there_is_no_cycle() -> None:
    graph = {path: set(imported(path)) - {path} for path in modules()}
    while free := [path for path, others in graph.items() if not others & graph.keys()]:
        for path in free:
            del graph[path]
    assert not graph, f"in a cycle, or on the way to one: {sorted(graph)}"


@pytest.mark.parametrize("path", modules())
def test_no_file_is_too_long(path: str) -> None:
    count = len((SOURCE / path).read_text(encoding="utf-8").splitlines())
    assert count <= MOST_LINES, f"{count} lines"
