"""Hearing-loss classes and the median audiogram of each, from raw thresholds.

An ear's class is its pure-tone average (PTA), the mean of 500, 1000 and 2000 Hz, held against the
table of Clark (1981) that the paper uses. The table gives whole numbers (normal to 15, slight 16 to
25, ...) and leaves the gaps between them open; here a class ends exactly at its upper limit, so a
mean of 15.33 dB is slight. Audiometers that step by 5 dB cannot tell the difference: their means
are multiples of 5/3 dB, none of which falls into a gap.

Thresholds are whole numbers in a narrow range, so counting them (class x frequency x level) gives
exact medians and quartiles of any number of ears in a few kilobytes.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earshift.engine.refusal import Refusal

FREQUENCIES_HZ = (500, 1000, 2000, 3000, 4000, 6000, 8000)
PTA_FREQUENCIES_HZ = (500, 1000, 2000)
CLASS_LIMITS = {  # the highest PTA of each class, dB HL
    "normal": 15.0,
    "slight": 25.0,
    "mild": 40.0,
    "moderate": 55.0,
    "moderately-severe": 70.0,
    "severe": 90.0,
    "profound": math.inf,
}
CLASS_RANGES = ("<= 15", "16-25", "26-40", "41-55", "56-70", "71-90", ">= 91")  # as printed
# Audiometers reach from -10 to 120 dB HL; some a step further. What lies beyond is no threshold.
LOWEST_DB_HL, HIGHEST_DB_HL = -20, 130
LOW_N = 30  # a median of fewer ears is marked

Progress = Callable[[int, int], None]

_N_LEVELS = HIGHEST_DB_HL - LOWEST_DB_HL + 1
_UPPER = np.array(list(CLASS_LIMITS.values())[:-1])
_IN_PTA = [FREQUENCIES_HZ.index(f) for f in PTA_FREQUENCIES_HZ]


@dataclass(frozen=True)
class Ears:
    """Some ears of a file: those with all seven thresholds, and how many lack one and why.

    `thresholds_db_hl` has a row per ear and a column per frequency; `sides` says "L" or "R" for
    each row. `done` of `total` bytes had been read when these ears were complete.
    """

    thresholds_db_hl: NDArray[np.int16]
    sides: NDArray[np.str_]
    left_out: Mapping[str, int]
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class ClassTable:
    """Median and quartile audiograms per hearing-loss class, best hearing first.

    Quartiles interpolate linearly, as numpy's do. A class without ears has None for its audiograms.
    `left_out` counts the ears that lack a threshold, each under one reason.
    """

    counts: Mapping[str, int]
    medians_db_hl: Mapping[str, tuple[float, ...] | None]
    p25_db_hl: Mapping[str, tuple[float, ...] | None]
    p75_db_hl: Mapping[str, tuple[float, ...] | None]
    left_out: Mapping[str, int]
    frequencies_hz: tuple[int, ...] = FREQUENCIES_HZ

    @property
    def n(self) -> int:
        """Ears used."""
        return sum(self.counts.values())

    @property
    def n_left_out(self) -> int:
        return sum(self.left_out.values())

    @property
    def low_n(self) -> tuple[str, ...]:
        """Classes whose median rests on few ears (fewer than `LOW_N`, but at least one)."""
        return tuple(name for name, count in self.counts.items() if 0 < count < LOW_N)

    def rows(self) -> list[dict[str, Any]]:
        """One row per class, for a table."""
        return [
            {
                "class": name,
                "pta_db_hl": limits,
                "ears": self.counts[name],
                "low_n": name in self.low_n,
                "median_db_hl": self.medians_db_hl[name],
                "p25_db_hl": self.p25_db_hl[name],
                "p75_db_hl": self.p75_db_hl[name],
            }
            for name, limits in zip(CLASS_LIMITS, CLASS_RANGES, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, named as in the `class_medians` block of norms.json."""

        def plain(audiograms: Mapping[str, tuple[float, ...] | None]) -> dict[str, Any]:
            return {name: a and list(a) for name, a in audiograms.items()}

        return {
            "n": self.n,
            "left_out": dict(self.left_out),
            "low_n": list(self.low_n),
            "frequencies_hz": list(self.frequencies_hz),
            "counts": dict(self.counts),
            "thresholds_db_hl": plain(self.medians_db_hl),
            "p25_db_hl": plain(self.p25_db_hl),
            "p75_db_hl": plain(self.p75_db_hl),
        }


def classify(pta_db_hl: float) -> str:
    """The hearing-loss class of a pure-tone average; a limit belongs to the better class."""
    if not math.isfinite(pta_db_hl):
        raise Refusal(f"a pure-tone average is a finite number of dB HL; got {pta_db_hl}")
    return list(CLASS_LIMITS)[int(class_indices([pta_db_hl])[0])]


def class_indices(pta_db_hl: ArrayLike) -> NDArray[np.int64]:
    """Position in `CLASS_LIMITS` of each pure-tone average."""
    return np.searchsorted(_UPPER, np.asarray(pta_db_hl, dtype=float), side="left")


def class_medians(chunks: Iterable[Ears], progress: Progress | None = None) -> ClassTable:
    """The class table of all ears in `chunks`; memory does not grow with their number.

    `progress(done, total)` is called after each chunk, in bytes read.
    """
    n_classes, n_frequencies = len(CLASS_LIMITS), len(FREQUENCIES_HZ)
    shape = (n_classes, n_frequencies, _N_LEVELS)
    histogram = np.zeros(math.prod(shape), dtype=np.int64)
    left_out: dict[str, int] = {}
    columns = np.arange(n_frequencies)
    for chunk in chunks:
        levels = chunk.thresholds_db_hl.astype(np.int64) - LOWEST_DB_HL
        if levels.ndim != 2 or levels.shape[1] != n_frequencies:
            raise Refusal(f"expected {n_frequencies} thresholds per ear; got {levels.shape}")
        if levels.size and not 0 <= levels.min() <= levels.max() < _N_LEVELS:
            raise Refusal(f"thresholds must lie in {LOWEST_DB_HL} to {HIGHEST_DB_HL} dB HL")
        # The sum of three whole numbers over three is exact wherever it meets a limit.
        pta = chunk.thresholds_db_hl[:, _IN_PTA].sum(axis=1, dtype=np.int64) / len(_IN_PTA)
        cells = (class_indices(pta)[:, None] * n_frequencies + columns) * _N_LEVELS + levels
        histogram += np.bincount(cells.ravel(), minlength=histogram.size)
        for reason, count in chunk.left_out.items():
            left_out[reason] = left_out.get(reason, 0) + count
        if progress is not None:
            progress(chunk.done, chunk.total)
    return _table(histogram.reshape(shape), left_out)


def _table(histogram: NDArray[np.int64], left_out: dict[str, int]) -> ClassTable:
    counts = {
        name: int(n) for name, n in zip(CLASS_LIMITS, histogram[:, 0].sum(axis=1), strict=True)
    }
    if sum(counts.values()) == 0:
        why = ", ".join(f"{reason}: {n}" for reason, n in left_out.items() if n) or "no rows"
        raise Refusal(f"no ear has all {len(FREQUENCIES_HZ)} thresholds ({why})")

    def audiograms(q: float) -> dict[str, tuple[float, ...] | None]:
        return {
            name: tuple(_quantile(levels, q) for levels in by_frequency) if counts[name] else None
            for name, by_frequency in zip(CLASS_LIMITS, histogram, strict=True)
        }

    return ClassTable(
        counts=counts,
        medians_db_hl=audiograms(0.5),
        p25_db_hl=audiograms(0.25),
        p75_db_hl=audiograms(0.75),
        left_out=left_out,
    )


def _quantile(levels: NDArray[np.int64], q: float) -> float:
    """Quantile of a histogram over levels, between order statistics as `numpy.quantile` does."""
    cumulative = levels.cumsum()
    position = q * (int(cumulative[-1]) - 1)
    rank = math.floor(position)
    low = int(np.searchsorted(cumulative, rank, side="right"))
    high = int(np.searchsorted(cumulative, math.ceil(position), side="right"))
    return LOWEST_DB_HL + low + (high - low) * (position - rank)
