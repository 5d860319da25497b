"""Records what the program does as golden files, against which test_golden.py compares.

Run it from the folder `tests`, for the files that are meant to change and no others:
    python -m golden.record paper clinical ...
Without names it records all of them anew. A golden file is recorded only when a change of behaviour
is wanted and the change log says so.
"""

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import earshift as es
from golden import runs, sittings, surface, talks, values
from golden.common import HERE, plain, without_sentences, write

Entries = dict[str, Any]


def _in_new_folder(work: Callable[[Path], Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return work(Path(folder).resolve())


def _sittings(scripted: Mapping[str, sittings.Scripted]) -> Entries:
    return {name: sittings.observe(entry) for name, entry in scripted.items()}


def _stories(stories: Mapping[str, runs.Story]) -> Entries:
    return {
        name: _in_new_folder(lambda folder, told=story: runs.tell(told, folder))
        for name, story in stories.items()
    }


def _talks(known: Mapping[str, tuple[list[talks.Message], str]]) -> Entries:
    return {name: talks.talk(*what) for name, what in known.items()}


def _plain(given: Any) -> Any:
    return without_sentences(plain(given))


def _named(kind: str, entries: Entries) -> Entries:
    return {f"{kind}: {name}": entry for name, entry in entries.items()}


def clinical() -> Entries:
    """All that has tones or verdicts of the clinic's engine: the one file to record with it."""
    return {
        **_named("library", _sittings(sittings.CLINICAL)),
        **_named("command line", _stories(runs.CLINICAL)),
        **_named("lines of JSON", _talks(talks.CLINICAL)),
    }


FILES: dict[str, Callable[[], Entries]] = {
    "names": surface.library,
    "values": lambda: {name: _plain(give()) for name, give in values.VALUES.items()},
    "paper": lambda: _sittings(sittings.PAPER),
    "clinical": clinical,
    "cli_flags": surface.flags,
    "cli_runs": lambda: _stories(runs.STORIES),
    "api": lambda: _in_new_folder(surface.api),
    "jsonlines": lambda: _talks(talks.TALKS),
}


def record(wanted: list[str]) -> None:
    unknown = [name for name in wanted if name not in FILES]
    if unknown:
        raise SystemExit(f"golden files are {', '.join(FILES)}; got {', '.join(unknown)}")
    print(f"of earshift {es.__version__} in {Path(str(es.__file__)).parent}")
    for name in wanted or FILES:
        entries = FILES[name]()
        write(name, entries)
        print(f"{len(entries)} entries: {(HERE / name).with_suffix('.json').name}")


if __name__ == "__main__":
    record(sys.argv[1:])
