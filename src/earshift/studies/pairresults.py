"""What the study of both ears leaves for readers: asked for and reached, tables, a picture.

Everything is computed from the study's rows; nothing is typed in.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from earshift import __version__
from earshift.engine.rule_settings import P_SAME_CHANGE
from earshift.studies.pairstudy import (
    DRAWN,
    EXAM_TONES,
    JOINT,
    SEPARATE,
    Pair,
    ideal_tones,
    pair_conditions,
    tones_to_reach,
)
from earshift.studies.results import origin
from earshift.studies.ruleresults import calls_by_truth
from earshift.studies.rulestudy import CLEAR_DB, RULE_NAMES, Calls, Share

if TYPE_CHECKING:
    import polars as pl

Array = NDArray[np.float64]

CALL_COLUMNS = "| changed ears found | missed | unchanged ears cleared | called changed |"
ASKED = 0.65  # of the tones of two sittings
BOOTSTRAPS = 500


def write_pair_results(
    frames: Mapping[str, "pl.DataFrame"],
    known: Sequence[Pair],
    half: str,
    command: str,
    out: Path,
) -> dict[str, Any]:
    """results.md and summary.json; returns the summary. `known` are pairs of the tuning half."""
    summary: dict[str, Any] = {"version": __version__, "half": half, "reached": []}
    exams, exam_targets = _exam_lines(frames["exams"], known, summary)
    screens, screen_targets = _screen_lines(frames["screens"], summary)
    lines = [
        f"## Both ears in one sitting, real pairs of ears, {half} half of the people",
        "",
        origin(command, out / "exams"),
        "",
        "Listeners: spread 4 dB, 2 % lapses, 1 % guesses. Two sittings are two exams or screens of "
        "one ear each; both ears is one of both. Tones are those of both ears together.",
        "",
        "### Asked for and reached",
        "",
        "| asked for | reached | |",
        "|---|---|---|",
        *exam_targets,
        *screen_targets,
        "",
        *exams,
        *screens,
    ]
    if "shares" in frames:
        lines += share_lines(frames["shares"], summary)
    (out / "results.md").write_text("\n".join([*lines, ""]), encoding="utf-8")
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return summary


def _target(asked: str, reached: str, good: bool, summary: dict[str, Any]) -> str:
    summary["reached"].append({"asked": asked, "reached": reached, "good": good})
    return f"| {asked} | {reached} | {'yes' if good else '**no**'} |"


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


def _typical_shares(rows: "pl.DataFrame") -> dict[int, float]:
    """By the tones of two sittings: the share that leaves the median person the same error."""
    tones, apart = _squares(rows, SEPARATE)
    counts, joint = _squares(rows, JOINT)
    after = np.median(np.sqrt(joint), axis=0)
    wanted = np.median(np.sqrt(apart), axis=0)
    return {
        int(n): tones_to_reach(counts, after, float(error)) / n
        for n, error in zip(tones, wanted, strict=True)
    }


def _percent(share: float) -> str:
    return f"{share:.0%}" if math.isfinite(share) else "-"


def _ratio_words(needed: float, tones: int, interval: tuple[float, float]) -> str:
    if not math.isfinite(needed):
        return f"not within {2 * EXAM_TONES} tones"
    ends = [f"{end:.0%}" if end < 5.0 else "never" for end in interval]
    return f"{needed / tones:.0%} [{ends[0]}, {ends[1]}]"


def _exam_lines(
    rows: "pl.DataFrame", known: Sequence[Pair], summary: dict[str, Any]
) -> tuple[list[str], list[str]]:
    import polars as pl

    scored = rows.filter(~pl.col("needs_masking"))
    people = scored["person"].n_unique()
    left_out = rows["person"].n_unique() - people
    table = _ratios(scored)
    lines = [
        "### Threshold error (RMS over 500-8000 Hz, both ears)",
        "",
        f"{people} people, exams as a clinic runs them. {left_out} more whose ears differ by "
        "40 dB or more somewhere are left out: there the exam of both ears keeps to tones that "
        "the better ear cannot hear and flags the threshold, and two sittings know nothing of it. "
        "In brackets: bootstrap over people, 95 %. The ideal observer knows the population's "
        "covariance of both ears' thresholds (tuning half) and needs no search: more than it saves "
        "cannot be had from what the ears share, only from a quicker search. The mean square is "
        "ruled by the people whose exam goes astray; the median person gains less.",
        "",
        "| tones of two sittings | RMS error (dB) | tones of both ears for it | share "
        "| share, median person | ideal observer |",
        "|---|---|---|---|---|---|",
    ]
    found = {}
    typical = _typical_shares(scored)
    for tones, rms, needed, interval in table:
        ideal = ideal_tones(known, rms, tones) / tones
        lines.append(
            f"| {tones} | {rms:.2f} | {needed:.0f} | {_ratio_words(needed, tones, interval)} "
            f"| {_percent(typical[tones])} | {_percent(ideal)} |"
        )
        found[tones] = {
            "rms_db": rms,
            "joint_tones": needed if math.isfinite(needed) else None,
            "low": interval[0],
            "high": interval[1],
            "ideal": ideal if math.isfinite(ideal) else None,
            "median_person": typical[tones] if math.isfinite(typical[tones]) else None,
        }
    summary["exams"] = {"people": people, "left_out": left_out, "by_tones": found}
    targets = [
        _target(
            f"the threshold error of two exams of {tones // 2} tones with at most {ASKED:.0%} of "
            "their tones",
            f"{_ratio_words(needed, tones, interval)} ({rms:.1f} dB)",
            needed <= ASKED * tones,
            summary,
        )
        for tones, rms, needed, interval in table
        if tones in (EXAM_TONES, 2 * EXAM_TONES)
    ]
    return [*lines, ""], targets


# Screens ---------------------------------------------------------------------------------------


def _call_cells(past: Calls, short: Calls) -> str:
    """The cells under `CALL_COLUMNS`."""
    return f"| {past.right} | {past.wrong} | {short.right} | {short.wrong} |"


def _tones(rows: "pl.DataFrame") -> tuple[float, float, float]:
    """Tones of a person, both ears together: mean, half its 95 % interval, and median."""
    import polars as pl

    each = rows.group_by("person").agg(pl.col("tones").sum())["tones"].to_numpy()
    few = each.size < 2
    half = math.inf if few else 1.96 * float(each.std(ddof=1)) / math.sqrt(each.size)
    return float(each.mean()), half, float(np.median(each))


def _screen_lines(rows: "pl.DataFrame", summary: dict[str, Any]) -> tuple[list[str], list[str]]:
    import polars as pl

    rows = _whole_pairs(rows)
    lines = [
        "### Screening by rule",
        "",
        "The references are two exams of 50 tones. An ear at least "
        f"{CLEAR_DB:g} dB past the rule counts as changed, at least as much short of it as "
        "unchanged. One: only the right ear changed. Drawn: changes of both ears from the prior, "
        f"alike in {P_SAME_CHANGE:.0%} of people. Undecided ears count 30 tones. In brackets: "
        "Wilson, 95 %.",
        "",
    ]
    targets = []
    for rule in RULE_NAMES:
        lines += [
            f"#### {rule}",
            "",
            f"| condition | | tones | median | share {CALL_COLUMNS}",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        of_rule = rows.filter(pl.col("rule") == rule)
        summary.setdefault("screens", {})[rule] = {}
        for condition in (*pair_conditions(), DRAWN):
            part = of_rule.filter(pl.col("condition") == condition)
            if part.is_empty():  # nobody whose ears can be scored
                continue
            kept: dict[str, dict[str, Any]] = {}
            for method in (SEPARATE, JOINT):
                mine = part.filter(pl.col("method") == method)
                past, short = calls_by_truth(mine, True), calls_by_truth(mine, False)
                tones, half, median = _tones(mine)
                kept[method] = {
                    "tones": tones, "median": median, "people": mine["person"].n_unique(),
                    "found": asdict(past.right), "missed": asdict(past.wrong),
                    "cleared": asdict(short.right), "called": asdict(short.wrong),
                }  # fmt: skip
                share = tones / kept[SEPARATE]["tones"]
                lines.append(
                    f"| {condition} | {method} | {tones:.1f} ± {half:.1f} | {median:g} "
                    f"| {'' if method == SEPARATE else f'{share:.0%}'} "
                    f"{_call_cells(past, short)}"
                )
            summary["screens"][rule][condition] = kept
        lines.append("")
        for condition in ("unchanged", DRAWN):
            kept = summary["screens"][rule].get(condition)
            if kept is None:
                continue
            share = kept[JOINT]["tones"] / kept[SEPARATE]["tones"]
            wrong = "; ".join(
                f"{method}: called changed {Share(**kept[method]['called'])}"
                + (f", missed {Share(**kept[method]['missed'])}" if condition == DRAWN else "")
                for method in (SEPARATE, JOINT)
            )
            targets.append(
                _target(
                    f"{rule}, {condition}: both ears with at most {ASKED:.0%} of the tones of two "
                    "screens at equal error rates",
                    f"{share:.0%} (mean {kept[JOINT]['tones']:.1f} of "
                    f"{kept[SEPARATE]['tones']:.1f} tones, median {kept[JOINT]['median']:g} of "
                    f"{kept[SEPARATE]['median']:g}; {wrong})",
                    share <= ASKED,
                    summary,
                )
            )
    return lines, targets


def _whole_pairs(rows: "pl.DataFrame") -> "pl.DataFrame":
    """Rows of people neither of whose ears is past the loudest level that is scored."""
    import polars as pl

    names = ["rule", "condition", "person"]
    return rows.filter(~pl.col("beyond").any().over(names))


def share_lines(rows: "pl.DataFrame", summary: dict[str, Any]) -> list[str]:
    """What the belief in a tie is worth, and costs."""
    import polars as pl

    rows = _whole_pairs(rows).filter(pl.col("method") == JOINT)
    lines = [
        "### Other beliefs about the ears' tie (osha-sts)",
        "",
        f"`alike_share` is the probability that both ears changed alike; {P_SAME_CHANGE:.2f} is "
        "the default, 0 takes the ears apart. The ears are the same in every row of a condition.",
        "",
        f"| condition | alike_share | tones | median {CALL_COLUMNS}",
        "|---|---|---|---|---|---|---|---|",
    ]
    summary["shares"] = []
    for condition in rows["condition"].unique(maintain_order=True):
        for share in sorted(rows["alike_share"].unique()):
            mine = rows.filter(
                (pl.col("condition") == condition) & (pl.col("alike_share") == share)
            )
            past, short = calls_by_truth(mine, True), calls_by_truth(mine, False)
            tones, half, median = _tones(mine)
            lines.append(
                f"| {condition} | {share:.2f} | {tones:.1f} ± {half:.1f} | {median:g} "
                f"{_call_cells(past, short)}"
            )
            summary["shares"].append({"condition": condition, "share": share, "tones": tones})
    return [*lines, ""]
