"""Audiograms in the files others publish: each format knows its columns and its missing codes.

`read_ears` gives the ears of raw survey files in chunks, for `earshift.classes.class_medians`:

    table = class_medians(read_ears("nhanes", ["AUX_G.XPT", "AUX_I.XPT"]))

`nhanes` reads the audiometry files of the US health survey (SAS transport, one row per person, two
ears). `niosh` reads the NIOSH audiogram file (CSV, one row per test, two ears).
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from earshift.classes import Ears

SOURCES = ("nhanes", "niosh")


def read_ears(source: str, paths: Iterable[Path | str]) -> Iterator[Ears]:
    """Chunks of ears from all files of one source.

    The headers of all files are read before this returns, so that a file of the wrong shape is
    refused at once with a ValueError. Every ear counts once per file: NHANES publishes the people
    of 2017-18 (AUX_J) again within 2017-20 (P_AUX) under other numbers, so give only one of them.
    """
    from earshift.formats import nhanes, niosh

    formats = {"nhanes": nhanes, "niosh": niosh}
    if source not in formats:
        raise ValueError(f"unknown source {source!r}; known: {', '.join(SOURCES)}")
    files = [Path(path) for path in paths]
    if not files:
        raise ValueError("no files given")
    seen: set[Path] = set()
    for file in files:
        if file.resolve() in seen:
            raise ValueError(f"{file} is given twice; its ears would count twice")
        seen.add(file.resolve())
        formats[source].check(file)
    sizes = [file.stat().st_size for file in files]

    def chunks() -> Iterator[Ears]:
        for number, file in enumerate(files):
            before = sum(sizes[:number])
            for ears in formats[source].read_ears(file):
                yield replace(ears, done=before + ears.done, total=sum(sizes))

    return chunks()
