"""Audiograms and exams in the files of others: each format knows its shape and its missing codes.

`read_references` gives audiograms to screen against, with every row that was rejected and why:

    found = read_references("old.csv", timezone="Europe/Berlin", sentinels={"CNT": "not tested"})

`export` writes visits for others: tidy tables (CSV, Parquet), a FHIR bundle, or a BIDS folder.

`read_ears` gives the ears of raw survey files in chunks, for
`earshift.simulate.classes.class_medians`:

    table = class_medians(read_ears("nhanes", ["AUX_G.XPT", "AUX_I.XPT"]))

`nhanes` reads the audiometry files of the US health survey (SAS transport, one row per person, two
ears). `niosh` reads the NIOSH audiogram file (CSV, one row per test, two ears).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from earshift.engine.refusal import Refusal
from earshift.formats.files import naming
from earshift.formats.references import Options, References, Rejected
from earshift.records import VisitBundle
from earshift.simulate.classes import Ears

__all__ = [
    "EXPORTS",
    "IMPORTS",
    "SOURCES",
    "Options",
    "References",
    "Rejected",
    "export",
    "kind_of_content",
    "read_ears",
    "read_references",
]

SOURCES = ("nhanes", "niosh")
IMPORTS = ("csv", "mie", "fhir", "nhanes", "apple-health")
EXPORTS = ("csv", "parquet", "fhir", "bids")
SUFFIXES = {".csv": "csv", ".tsv": "csv", ".json": "fhir", ".xpt": "nhanes", ".xml": "apple-health"}


def kind_of_content(content: bytes) -> str:
    """The kind of a file without a name, by how it begins."""
    if content.startswith(b"HEADER RECORD"):
        return "nhanes"
    return "fhir" if content.lstrip()[:1] == b"{" else "csv"


def read_references(path: Path | str, kind: str | None = None, **options: Any) -> References:
    """Audiograms from a file, read to its end before any is given; `options` are `Options`'.

    The kind is one of `IMPORTS`; without it the file's name decides (.csv, .json, .xpt, .xml). A
    file that is not of its kind raises a ValueError; a bad row within is listed as rejected.
    """
    from earshift.formats import apple_health, fhir, nhanes, sheets

    file = Path(path)
    kind = SUFFIXES.get(file.suffix.lower()) if kind is None else kind
    if kind not in IMPORTS:
        if kind is None:
            raise Refusal(
                f"{{file}} is of an unknown kind; give one of {', '.join(IMPORTS)}", file=file
            )
        raise Refusal(f"the kind must be one of {', '.join(IMPORTS)}", got=kind)
    try:
        how = Options(**options)
    except TypeError as error:
        raise Refusal(f"unknown option: {error}") from None
    with naming(file):
        if kind == "fhir":
            return fhir.read(file, how)
        if kind == "nhanes":
            return nhanes.read_references(file, how)
        if kind == "apple-health":
            return apple_health.read(file, how)
        return sheets.read(file, how, mie=kind == "mie")


def export(
    visits: Iterable[VisitBundle],
    kind: str,
    out: Path | str,
    *,
    identity: bool | None = None,
    tidy: bool = False,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write visits to a new file (fhir) or folder (the others), whole or not at all; how many.

    `identity` says whether names, birth dates, codes and authors are written; by default they are
    in FHIR alone, and in BIDS they never are. `tidy` (csv, parquet) writes no JSON into cells but a
    table `estimates` with one row for each frequency. `progress` is called with the visits done so
    far.
    """
    from earshift.formats import bids, fhir_bundle, tables

    if kind not in EXPORTS:
        raise Refusal(f"the kind must be one of {', '.join(EXPORTS)}", got=kind)
    if kind == "bids" and identity:
        raise Refusal("a BIDS folder never contains identities; use csv, parquet or fhir")
    if tidy and kind not in ("csv", "parquet"):
        raise Refusal("tidy is for tables: csv or parquet", got=kind)
    counted = _counted(visits, progress)
    if kind == "fhir":
        return fhir_bundle.write(counted, Path(out), identity=identity is not False)
    if kind == "bids":
        return bids.write(counted, Path(out))
    return tables.write(counted, Path(out), kind, identity=bool(identity), tidy=tidy)


def _counted(
    visits: Iterable[VisitBundle], progress: Callable[[int], None] | None
) -> Iterator[VisitBundle]:
    for number, visit in enumerate(visits, start=1):
        yield visit
        if progress is not None:
            progress(number)


def read_ears(source: str, paths: Iterable[Path | str]) -> Iterator[Ears]:
    """Chunks of ears from all files of one source.

    The headers of all files are read before this returns, so that a file of the wrong shape is
    refused at once with a ValueError. Every ear counts once per file: NHANES publishes the people
    of 2017-18 (AUX_J) again within 2017-20 (P_AUX) under other numbers, so give only one of them.
    """
    from earshift.formats import nhanes, niosh

    formats = {"nhanes": nhanes, "niosh": niosh}
    if source not in formats:
        raise Refusal(f"the source must be one of {', '.join(SOURCES)}", got=source)
    files = [Path(path) for path in paths]
    if not files:
        raise Refusal("no files given")
    seen: set[Path] = set()
    for file in files:
        if file.resolve() in seen:
            raise Refusal("{file} is given twice, which would count its ears twice", file=file)
        seen.add(file.resolve())
        formats[source].check(file)
    sizes = [file.stat().st_size for file in files]

    def chunks() -> Iterator[Ears]:
        for number, file in enumerate(files):
            before = sum(sizes[:number])
            for ears in formats[source].read_ears(file):
                yield replace(ears, done=before + ears.done, total=sum(sizes))

    return chunks()
