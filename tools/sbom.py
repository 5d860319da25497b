"""What the program consists of, for programs: a CycloneDX 1.6 list of packages (an SBOM).

    python tools/sbom.py FILE

Run it in an environment with all extras: it lists what is installed there, with versions, licences
and what needs what, by the packages' own metadata.
"""

import json
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from dependencies import licence, needed, requirements_by_extra  # noqa: E402


def _reference(name: str) -> str:
    return f"pkg:pypi/{name}@{distribution(name).version}"


def _component(name: str, kind: str = "library") -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": kind,
        "bom-ref": _reference(name),
        "name": name,
        "version": distribution(name).version,
        "purl": _reference(name),
    }
    said = licence(name)
    if said:
        found["licenses"] = [{"license": {"name": said}}]
    return found


def sbom() -> dict[str, Any]:
    """The list, as it is written down."""
    direct = [one for some in requirements_by_extra().values() for one in some]
    brought = {needed(requirement)[0]: needed(requirement) for requirement in direct}
    names = sorted({name for some in brought.values() for name in some})
    edges = {name: needed(name, alone=True)[1:] for name in names if name not in brought}
    edges |= {needed(one)[0]: needed(one, alone=True)[1:] for one in direct}
    edges["earshift"] = list(brought)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component("earshift", "application")},
        "components": [_component(name) for name in names],
        "dependencies": [
            {"ref": _reference(name), "dependsOn": sorted(map(_reference, edges[name]))}
            for name in sorted(edges)
        ],
    }


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(sbom(), indent=2) + "\n", encoding="utf-8")
    print(f"{place}: {len(sbom()['components'])} packages")
