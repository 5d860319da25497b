"""Real ears from a table: SEQN (the person's number), the ear, and thresholds by frequency.

People are split in halves by the parity of their number: `tuning` is the one on which settings and
norms were chosen, `held-back` the one on which nothing was.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from earshift.engine import norms
from earshift.engine.refusal import Refusal
from earshift.simulate.classes import classify
from earshift.studies.case import Ear

if TYPE_CHECKING:
    import polars as pl

HALVES = {"tuning": 0, "held-back": 1}  # by parity of the person's number; norms.json uses 0


def read_half(path: Path, half: str, ears: bool = False) -> tuple["pl.DataFrame", list[str]]:
    """The rows of one half of the people, checked, and the names of the frequencies' columns.

    With `ears`, also which ear it was (R or L).
    """
    import polars as pl

    if half not in HALVES:
        raise Refusal(f"half must be one of {', '.join(HALVES)}, got {half!r}")
    frequencies = [str(int(f)) for f in norms.tables()["class_medians"]["frequencies_hz"]]
    try:
        table = pl.read_csv(path)
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise Refusal(f"{path.name} is not a readable CSV file: {reason}") from None
    numbers = ["SEQN", *frequencies]
    columns = [*numbers, "ear"] if ears else numbers
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise Refusal(f"{path.name} lacks the columns {', '.join(missing)}")
    wanted = table.select(columns)
    bad = [name for name in numbers if not wanted[name].dtype.is_numeric()]
    if bad or any(wanted[name].null_count() for name in wanted.columns):
        raise Refusal(
            f"{path.name} has cells that are not numbers; every ear needs a number in every column"
        )
    return wanted.filter(pl.col("SEQN") % 2 == HALVES[half]), frequencies


def people(path: Path, half: str, count: int | None, seed: int = 0) -> list[Ear]:
    """One ear each of so many people (None: all), drawn from one half of them."""
    rows, frequencies = read_half(path, half)
    ears = rows.sample(fraction=1.0, shuffle=True, seed=seed)
    ears = ears.unique("SEQN", keep="first", maintain_order=True)
    if count is None:
        count = ears.height
    if ears.height < count:
        raise Refusal(f"the {half} half of {path.name} has {ears.height} people, not {count}")
    return [
        Ear(f"person {row['SEQN']}", tuple((float(f), float(row[f])) for f in frequencies))
        for row in ears.head(count).iter_rows(named=True)
    ]


def read_ears(path: Path, half: str) -> dict[str, list[Ear]]:
    """Real ears of one half of the people, by class: a CSV with SEQN and thresholds by frequency.

    The profound class is left out: hardly anybody, and most tones are beyond the domain.
    """
    rows, frequencies = read_half(path, half)
    out: dict[str, list[Ear]] = {name: [] for name in norms.class_names()}
    for row in rows.iter_rows(named=True):
        levels = [float(row[f]) for f in frequencies]
        name = classify(sum(levels[:3]) / 3)
        ears = out[name]
        pairs = tuple((float(f), level) for f, level in zip(frequencies, levels, strict=True))
        ears.append(Ear(f"{name}:{len(ears)}", pairs))
    del out["profound"]
    empty = [name for name, ears in out.items() if not ears]
    if empty:
        raise Refusal(f"the {half} half of {path.name} has no ear of class {', '.join(empty)}")
    return out
