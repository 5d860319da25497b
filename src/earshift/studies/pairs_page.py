"""The results page of the study of both ears: asked for and reached, tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from earshift import __version__
from earshift.studies.markdown import Page, Target
from earshift.studies.pairs import (
    EXAM_TONES,
    JOINT,
    SEPARATE,
    Pair,
    ideal_tones,
    pair_conditions,
    tones_to_reach,
)
from earshift.studies.rates import Calls, calls_of
from earshift.studies.rules import CLEAR_DB, RULE_NAMES

if TYPE_CHECKING:
    import polars as pl

Array = NDArray[np.float64]

CALL_COLUMNS = ("changed ears found", "missed", "unchanged ears cleared", "called changed")
BOOTSTRAPS = 500


def write_pair_results(
    frames: Mapping[str, "pl.DataFrame"],
    known: Sequence[Pair],
    half: str,
    command: str,
    out: Path,
) -> dict[str, Any]:
    """results.md and summary.json; returns the summary. `known` are pairs of the tuning half."""
    page = Page(
        f"Both ears in one sitting, real pairs of ears, {half} half of the people",
        command,
        out,
        {"version": __version__, "half": half, "reached": []},
        effort_in=out / "exams",
    )
    page.add(
        "Listeners: spread 4 dB, 2 % lapses, 1 % guesses. Two sittings are two exams or screens of "
        "one ear each; both ears is one of both. Tones are those of both ears together."
    )
    exams, screens = _exam_numbers(frames["exams"], known), _screen_numbers(frames["screens"])
    targets = [*_exam_targets(exams), *_screen_targets(screens)]
    page.targets(targets)
    page.summary["reached"] = [
        {"asked": t.asked, "reached": t.reached, "good": t.good} for t in targets
    ]
    _exam_table(page, exams)
    _screen_tables(page, screens)
    return page.write()


# Exams -----------------------------------------------------------------------------------------


def _squares(rows: "pl.DataFrame", method: str) -> tuple[Array, Array]:
    """Tones, and mean squared errors: people x tones."""
    import polars as pl

    wide = (
        rows.filter(pl.col("method") == method)
        .sort("tones")
        .pivot("tones", index="person", values="mean_square_db2")
        .sort("person")
        .drop("person")
    )
    return np.array([float(name) for name in wide.columns]), wide.to_numpy()


def _ratios(rows: "pl.DataFrame") -> list[tuple[int, float, float, tuple[float, float]]]:
    """For the tones of two sittings: RMS error, tones of both ears for it, interval of the ratio.

    The interval is a bootstrap over people.
    """
    tones, apart = _squares(rows, SEPARATE)
    counts, joint = _squares(rows, JOINT)
    rng = np.random.default_rng(0)
    draws = rng.integers(apart.shape[0], size=(BOOTSTRAPS, apart.shape[0]))
    out = []
    for k, n in enumerate(tones):
        rms = math.sqrt(apart[:, k].mean())
        needed = tones_to_reach(counts, np.sqrt(joint.mean(axis=0)), rms)
        again = [
            tones_to_reach(
                counts, np.sqrt(joint[draw].mean(axis=0)), math.sqrt(apart[draw, k].mean())
            )
            for draw in draws
        ]
        low, high = np.quantile(np.minimum(again, 10.0 * n), (0.025, 0.975)) / n
        out.append((int(n), rms, needed, (float(low), float(high))))
    return out


def _median_person(rows: "pl.DataFrame") -> dict[int, float]:
    """By the tones of two sittings: the fraction that leaves the median person the same error."""
    tones, apart = _squares(rows, SEPARATE)
    counts, joint = _squares(rows, JOINT)
    after = np.median(np.sqrt(joint), axis=0)
    wanted = np.median(np.sqrt(apart), axis=0)
    return {
        int(n): tones_to_reach(counts, after, float(error)) / n
        for n, error in zip(tones, wanted, strict=True)
    }


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{fraction:.0%}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _exam_numbers(rows: "pl.DataFrame", known: Sequence[Pair]) -> dict[str, Any]:
    """What the exams come to, as the summary keeps it; None is never, or not to be had."""
    import polars as pl

    scored = rows.filter(~pl.col("needs_masking"))
    people = scored["person"].n_unique()
    typical = _median_person(scored)
    return {
        "people": people,
        "left_out": rows["person"].n_unique() - people,
        "by_tones": {
            tones: {
                "rms_db": rms,
                "joint_tones": _finite(needed),
                "low": interval[0],
                "high": interval[1],
                "ideal": _finite(ideal_tones(known, rms, tones) / tones),
                "median_person": _finite(typical[tones]),
            }
            for tones, rms, needed, interval in _ratios(scored)
        },
    }


def _ratio_words(tones: int, found: Mapping[str, Any]) -> str:
    if found["joint_tones"] is None:
        return f"not within {2 * EXAM_TONES} tones"
    ends = [f"{end:.0%}" if end < 5.0 else "never" for end in (found["low"], found["high"])]
    return f"{found['joint_tones'] / tones:.0%} [{ends[0]}, {ends[1]}]"


def _exam_targets(exams: Mapping[str, Any]) -> list[Target]:
    return [
        Target(
            f"the threshold error of two exams of {tones // 2} tones: fraction of their tones (an "
            f"ideal observer: {_percent(found['ideal'])})",
            f"{_ratio_words(tones, found)} ({found['rms_db']:.1f} dB)",
            None,
        )
        for tones, found in exams["by_tones"].items()
        if tones in (EXAM_TONES, 2 * EXAM_TONES)
    ]


def _exam_table(page: Page, exams: dict[str, Any]) -> None:
    page.heading("Threshold error (RMS over 500-8000 Hz, both ears)")
    page.add(
        f"{exams['people']} people, exams as a clinic runs them. {exams['left_out']} more whose "
        "ears differ by 40 dB or more somewhere are left out: there the exam of both ears keeps to "
        "tones that the better ear cannot hear and flags the threshold, and two sittings know "
        "nothing of it. In brackets: bootstrap over people, 95 %. The ideal observer knows the "
        "population's covariance of both ears' thresholds (tuning half) and needs no search: more "
        "than it saves cannot be had from what the ears share, only from a quicker search. The "
        "mean square is ruled by the people whose exam goes astray; the median person gains less."
    )
    page.table(
        (
            "tones of two sittings", "RMS error (dB)", "tones of both ears for it", "fraction",
            "fraction, median person", "ideal observer",
        ),
        [
            (
                str(tones), f"{found['rms_db']:.2f}", f"{found['joint_tones'] or math.inf:.0f}",
                _ratio_words(tones, found), _percent(found["median_person"]),
                _percent(found["ideal"]),
            )
            for tones, found in exams["by_tones"].items()
        ],
    )  # fmt: skip
    page.summary["exams"] = exams


# Screens ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Screened:
    """The screens of one method under one condition: tones of a person, and the calls."""

    people: int
    tones: float  # mean over people, both ears together
    half_width: float  # of the mean's 95 % interval
    median: float
    changed: Calls
    unchanged: Calls

    @classmethod
    def of(cls, rows: "pl.DataFrame") -> "Screened":
        import polars as pl

        each = rows.group_by("person").agg(pl.col("tones").sum())["tones"].to_numpy()
        few = each.size < 2
        return cls(
            people=int(each.size),
            tones=float(each.mean()),
            half_width=math.inf if few else 1.96 * float(each.std(ddof=1)) / math.sqrt(each.size),
            median=float(np.median(each)),
            changed=calls_by_truth(rows, True),
            unchanged=calls_by_truth(rows, False),
        )

    def to_dict(self) -> dict[str, Any]:
        """As the summary keeps it."""
        return {
            "tones": self.tones, "median": self.median, "people": self.people,
            "found": asdict(self.changed.right), "missed": asdict(self.changed.wrong),
            "cleared": asdict(self.unchanged.right), "called": asdict(self.unchanged.wrong),
        }  # fmt: skip

    @property
    def tone_cells(self) -> tuple[str, str]:
        return f"{self.tones:.1f} ± {self.half_width:.1f}", f"{self.median:g}"

    @property
    def call_cells(self) -> tuple[str, ...]:
        """The cells under `CALL_COLUMNS`."""
        ears = (self.changed, self.unchanged)
        return tuple(str(part) for calls in ears for part in (calls.right, calls.wrong))


def calls_by_truth(rows: "pl.DataFrame", changed: bool) -> Calls:
    """The calls on ears past the rule, or short of it."""
    side = rows.filter((rows["margin_db"] > 0.0) == changed)
    return calls_of(side["decision"].to_list(), side["tones"].to_numpy().astype(float), changed)


Screens = dict[str, dict[str, dict[str, Screened]]]  # by rule, condition and method


def _screen_numbers(rows: "pl.DataFrame") -> Screens:
    import polars as pl

    found: Screens = {}
    for rule in RULE_NAMES:
        found[rule] = {}
        for condition in pair_conditions():
            part = rows.filter((pl.col("rule") == rule) & (pl.col("condition") == condition))
            if not part.is_empty():  # else nobody whose ears can be scored
                found[rule][condition] = {
                    method: Screened.of(part.filter(pl.col("method") == method))
                    for method in (SEPARATE, JOINT)
                }
    return found


def _screen_targets(screens: Screens) -> list[Target]:
    targets = []
    for rule, conditions in screens.items():
        for condition, methods in conditions.items():
            apart, joint = (methods[method] for method in (SEPARATE, JOINT))
            wrong = "; ".join(
                f"{method} {found.unchanged.wrong.hits + found.changed.wrong.hits} wrong of "
                f"{found.unchanged.ears + found.changed.ears}"
                for method, found in methods.items()
            )
            targets.append(
                Target(
                    f"{rule}, {condition}: fraction of the tones of two screens",
                    f"{joint.tones / apart.tones:.0%} (mean {joint.tones:.1f} of "
                    f"{apart.tones:.1f} tones; {wrong})",
                    None,
                )
            )
    return targets


def _screen_tables(page: Page, screens: Screens) -> None:
    page.heading("Screening by rule")
    page.add(
        "The references are two exams of 50 tones. Every ear is at least "
        f"{CLEAR_DB:g} dB past the rule or short of it. One: only the right ear changed. The "
        "changes of the two ears are not tied to each other; listener and device are the same, and "
        "every answer counts for both ears. In brackets: Wilson, 95 %."
    )
    page.summary["screens"] = {}
    for rule, conditions in screens.items():
        rows = []
        kept = page.summary["screens"][rule] = {}
        for condition, methods in conditions.items():
            kept[condition] = {name: screened.to_dict() for name, screened in methods.items()}
            for method, screened in methods.items():
                fraction = f"{screened.tones / methods[SEPARATE].tones:.0%}"
                rows.append([
                    condition, method, *screened.tone_cells, "" if method == SEPARATE else fraction,
                    *screened.call_cells,
                ])  # fmt: skip
        page.heading(rule, 4)
        page.table(("condition", "", "tones", "median", "fraction", *CALL_COLUMNS), rows)
