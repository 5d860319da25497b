"""What the study of rules leaves for readers: what was asked for and reached, tables, pictures.

Everything is computed from the study's rows; nothing is typed in.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from earshift import __version__
from earshift.engine.rule_settings import RuleSettings
from earshift.studies import figures
from earshift.studies.results import origin
from earshift.studies.rulestudy import (
    CLEAR_DB,
    FULL_TONES,
    METHODS,
    RULE_NAMES,
    Calibration,
    Calls,
    calibration,
    calls_of,
    conditions,
)

if TYPE_CHECKING:
    import polars as pl

METHOD_WORDS = {
    "rule": "rule-directed (earshift)",
    "paper": "the paper's protocol",
    "bald": "BALD 30 tones, then compare",
    "random": "random tones, same model",
    "hughson-westlake": "a second Hughson-Westlake audiogram",
}
GROUPS = ("unchanged", "flat", "high", "notch", "low")


def group_of(condition: str) -> str:
    """unchanged, flat, high, notch or other, without the lapse sweep."""
    if "lapses" in condition:
        return "lapses"
    first = condition.split(",")[0].split()[0]
    return first if first in GROUPS else "other"


def write_rule_results(
    frames: Mapping[str, "pl.DataFrame"], half: str, command: str, out: Path
) -> dict[str, Any]:
    """results.md, summary.json and pictures; returns the summary."""
    import polars as pl

    rows = pl.concat([frames[name] for name in ("calls", "compared") if name in frames])
    scored = rows.filter(~pl.col("beyond"))
    summary: dict[str, Any] = {"version": __version__, "half": half, "rules": {}}
    lines = [
        f"## Screening by rule on real ears, {half} half of the people",
        "",
        origin(command, out / "calls"),
        "",
        "Truth is the rule on the simulated true shift, retest jitter (SD 3 dB, smooth over an "
        f"octave) included. At least {CLEAR_DB:g} dB past the criterion counts as changed, at "
        "least as much short of it as unchanged. Listeners: spread 4 dB, 2 % lapses, 1 % guesses "
        "unless said. At most 30 tones; undecided counts 30. Intervals: Wilson, 95 %; the same "
        "ears recur under all conditions, so pooled intervals are somewhat too narrow. msha-sts "
        "has osha-sts's criterion, and so its figures.",
        "",
    ]
    frontier_lines: list[str] = []
    if "frontier" in frames:
        frontier_lines = _frontier(frames["frontier"], summary)
    calibrated = _calibrations(frames.get("calibration"))
    full = frames.get("full")
    lines += _targets(scored, calibrated, full, summary)
    for rule in RULE_NAMES:
        lines += _conditions_table(scored.filter(pl.col("rule") == rule), rule, summary)
    for rule in RULE_NAMES:
        lines += _methods_table(scored.filter(pl.col("rule") == rule), rule, summary)
    lines += _beyond(rows)
    curves = {
        rule: {
            METHOD_WORDS[method]: _curve(
                scored.filter((pl.col("rule") == rule) & (pl.col("method") == method))
            )
            for method in METHODS
            if method in scored["method"].unique()
        }
        for rule in RULE_NAMES
    }
    figures.save_call_curves(curves, out / "calls.png")
    lines += [
        "### Called changed, against the margin",
        "",
        "All conditions together. The paper's protocol asks whether anything changed: it also "
        "calls improvements and shifts at other frequencies than the rule's.",
        "",
        "![share of ears called changed against the margin](calls.png)",
        "",
    ]
    lines += _calibration_lines(calibrated, summary)
    if calibrated:
        shown = {
            f"{rule}, {tones} tones": c.bins
            for (rule, factor, tones), c in calibrated.items()
            if factor == 1.0
        }
        figures.save_calibration(shown, out / "calibration.png")
        lines += ["![stated probability against share met](calibration.png)", ""]
    if full is not None:
        lines += _full_lines(full, summary)
    lines += frontier_lines
    (out / "results.md").write_text("\n".join([*lines, ""]), encoding="utf-8")
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return summary


def calls_by_truth(rows: "pl.DataFrame", changed: bool) -> Calls:
    """The calls on ears well past the rule, or well short of it."""
    import polars as pl

    past = pl.col("margin_db") >= CLEAR_DB if changed else pl.col("margin_db") <= -CLEAR_DB
    side = rows.filter(past)
    return calls_of(side["decision"].to_list(), side["tones"].to_numpy().astype(float), changed)


def _hardest(rows: "pl.DataFrame", share: str) -> str:
    """The condition of a group with the worst share among those with 50 changed ears or more."""
    import polars as pl

    found = []
    for name in rows["condition"].unique(maintain_order=True):
        calls = calls_by_truth(rows.filter(pl.col("condition") == name), True)
        if calls.ears >= 50:
            value = getattr(calls, share).value
            found.append((value if share == "right" else -value, name, value, calls.ears))
    if len(found) < 2:
        return ""
    _, name, value, ears = min(found)
    return f"; hardest: {name}, {value:.1%} of {ears}"


def _of_groups(rows: "pl.DataFrame", groups: Sequence[str]) -> "pl.DataFrame":
    import polars as pl

    wanted = [name for name in rows["condition"].unique() if group_of(name) in groups]
    return rows.filter(pl.col("condition").is_in(wanted))


def _targets(
    scored: "pl.DataFrame",
    calibrated: "dict[tuple[str, float, int], Calibration]",
    full: "pl.DataFrame | None",
    summary: dict[str, Any],
) -> list[str]:
    """What was asked for, and what was reached."""
    import polars as pl

    table = [
        "### Asked for and reached",
        "",
        "| rule | asked for | reached | |",
        "|---|---|---|---|",
    ]
    reached: list[dict[str, Any]] = []

    def row(rule: str, text: str, value: str, good: bool) -> None:
        table.append(f"| {rule} | {text} | {value} | {'yes' if good else '**no**'} |")
        reached.append({"rule": rule, "asked": text, "reached": value, "good": good})

    for rule in RULE_NAMES:
        mine = scored.filter((pl.col("rule") == rule) & (pl.col("method") == "rule"))
        for group, sensitive, missed in (
            ("flat", 0.95, 0.02),
            ("high", 0.95, 0.02),
            ("notch", 0.90, 0.05),
        ):
            part = _of_groups(mine, [group])
            calls = calls_by_truth(part, True)
            good = calls.right.value >= sensitive
            row(rule, f"{group}: sensitivity {sensitive:.0%}",
                f"{calls.right}, n {calls.ears}{_hardest(part, 'right')}", good)  # fmt: skip
            good = calls.wrong.value <= missed
            row(rule, f"{group}: missed at most {missed:.0%}",
                f"{calls.wrong}{_hardest(part, 'wrong')}", good)  # fmt: skip
        everyone = _of_groups(mine, [*GROUPS, "other"])
        short = calls_by_truth(everyone, False)
        unchanged = calls_by_truth(_of_groups(mine, ["unchanged"]), False)
        row(rule, "specificity 95 %, unchanged ears", str(unchanged.right),
            unchanged.right.value >= 0.95)  # fmt: skip
        not_called = 1.0 - short.wrong.value
        row(rule, "not called changed, all ears short of the rule: 95 %", f"{not_called:.1%}",
            not_called >= 0.95)  # fmt: skip
        past = calls_by_truth(everyone, True)
        n = past.ears + short.ears
        undecided = (past.undecided.hits + short.undecided.hits) / n if n else math.nan
        row(rule, "undecided at most 5 %, all scored ears", f"{undecided:.1%}", undecided <= 0.05)
        row(rule, "undecided at most 5 %, unchanged ears", str(unchanged.undecided),
            unchanged.undecided.value <= 0.05)  # fmt: skip
        row(rule, "tones, unchanged ear: at most 15 (aim 10)", f"{unchanged.tones_mean:.1f}",
            unchanged.tones_mean <= 15.0)  # fmt: skip
        row(rule, "tones, changed ear: at most 10 (aim 6)", f"{past.tones_mean:.1f}",
            past.tones_mean <= 10.0)  # fmt: skip
        errors = [c.error for (name, factor, _), c in calibrated.items()
                  if name == rule and factor == 1.0]  # fmt: skip
        if errors:
            row(rule, "calibration error at most 0.05 at the stated prevalence",
                f"{max(errors):.3f}", max(errors) <= 0.05)  # fmt: skip
    if full is not None:
        errors_db = full["error_db"].to_numpy()
        rms = float(np.sqrt(np.mean(errors_db**2)))
        spreads = full["spread_db"].to_numpy()
        worst = max(
            float(np.sqrt(np.mean(errors_db[spreads == spread] ** 2))) for spread in set(spreads)
        )
        asked = f"full audiogram in {FULL_TONES} tones: at most 4 dB RMS"
        row("osha-sts", f"{asked}, all spreads together", f"{rms:.2f} dB", rms <= 4.0)
        row("osha-sts", f"{asked}, at the hardest spread", f"{worst:.2f} dB", worst <= 4.0)
    summary["targets"] = reached
    return [*table, ""]


def _conditions_table(rows: "pl.DataFrame", rule: str, summary: dict[str, Any]) -> list[str]:
    import polars as pl

    mine = rows.filter(pl.col("method") == "rule")
    out = [
        f"### {rule}: every condition, rule-directed",
        "",
        "| condition | changed ears | called changed | missed | undecided | tones mean, median, "
        "p95 | unchanged ears | called unchanged | called changed | undecided | tones |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    kept: dict[str, Any] = {}
    for condition in conditions():
        part = mine.filter(pl.col("condition") == condition.name)
        if not part.height:
            continue
        past, short = calls_by_truth(part, True), calls_by_truth(part, False)
        kept[condition.name] = {"changed": asdict(past), "unchanged": asdict(short)}
        cells = []
        for calls, shares in ((past, ("right", "wrong")), (short, ("right", "wrong"))):
            cells.append(str(calls.ears))
            if calls.ears:
                cells += [str(getattr(calls, name)) for name in (*shares, "undecided")]
                cells.append(
                    f"{calls.tones_mean:.1f}, {calls.tones_median:.0f}, {calls.tones_p95:.0f}"
                )
            else:
                cells += ["-"] * 4
        out.append(f"| {condition.name} | " + " | ".join(cells) + " |")
    summary["rules"].setdefault(rule, {})["conditions"] = kept
    summary["rules"][rule]["groups"] = {
        group: asdict(calls_by_truth(_of_groups(mine, [group]), group != "unchanged"))
        for group in GROUPS
    }
    return [*out, ""]


def _methods_table(rows: "pl.DataFrame", rule: str, summary: dict[str, Any]) -> list[str]:
    import polars as pl

    ears = rows.filter(pl.col("method") != "rule")["ear"].unique()
    if not len(ears):
        return []
    out = [
        f"### {rule}: beside other methods",
        "",
        f"The same {len(ears)} ears for all. Changed ears: called changed / missed / undecided; "
        "unchanged ears: called unchanged / called changed / undecided; then mean tones.",
        "",
        "| method | " + " | ".join(GROUPS) + " |",
        "|---|" + "---|" * len(GROUPS),
    ]
    kept: dict[str, Any] = {}
    for method in METHODS:
        mine = rows.filter((pl.col("method") == method) & pl.col("ear").is_in(ears.to_list()))
        cells = []
        for group in GROUPS:
            calls = calls_by_truth(_of_groups(mine, [group]), group != "unchanged")
            kept.setdefault(method, {})[group] = asdict(calls)
            shares = (calls.right, calls.wrong, calls.undecided)
            cells.append(
                " / ".join(f"{share.value:.0%}" for share in shares)
                + f", {calls.tones_mean:.1f} tones (n {calls.ears})"
                if calls.ears
                else "-"
            )
        out.append(f"| {METHOD_WORDS[method]} | " + " | ".join(cells) + " |")
    summary["rules"].setdefault(rule, {})["methods"] = kept
    return [*out, ""]


def _beyond(rows: "pl.DataFrame") -> list[str]:
    import polars as pl

    apart = rows.filter(pl.col("beyond") & (pl.col("method") == "rule"))
    out = ["### Ears past 95 dB HL", ""]
    for rule in RULE_NAMES:
        part = apart.filter(pl.col("rule") == rule)
        counts = dict(part["decision"].value_counts().iter_rows())
        words = ", ".join(f"{n} {decision}" for decision, n in sorted(counts.items())) or "none"
        out.append(f"- {rule}: {part.height} screens of such ears, left out above: {words}.")
    return [*out, ""]


def _curve(rows: "pl.DataFrame") -> list[tuple[float, float, int]]:
    """Share called changed in bins of the margin, 2 dB wide."""
    margin = rows["margin_db"].to_numpy()
    called = (rows["decision"] == "changed").to_numpy().astype(float)
    out = []
    for low in np.arange(-20.0, 20.0, 2.0):
        inside = (margin >= low) & (margin < low + 2.0)
        if inside.sum() >= 10:
            out.append((float(low + 1.0), float(called[inside].mean()), int(inside.sum())))
    return out


def _calibrations(rows: "pl.DataFrame | None") -> dict[tuple[str, float, int], Calibration]:
    """By rule, true prevalence over the stated one, and tones."""
    import polars as pl

    if rows is None:
        return {}
    stated = RuleSettings().prevalence
    out = {}
    scored = rows.filter(~pl.col("beyond"))
    for (rule, prevalence, tones), part in scored.group_by(
        "rule", "true_prevalence", "tones", maintain_order=True
    ):
        key = (str(rule), round(float(str(prevalence)) / stated, 3), int(str(tones)))
        out[key] = calibration(
            part["p_changed"].to_numpy(), part["met"].to_numpy(), part["ear"].to_numpy()
        )
    return out


def _calibration_lines(
    calibrated: dict[tuple[str, float, int], Calibration], summary: dict[str, Any]
) -> list[str]:
    if not calibrated:
        return []
    out = [
        "### Calibration of P(rule met)",
        "",
        "Shifts drawn from the stated prior (and at half and double its prevalence while the "
        "screen believes the stated one), no stopping. Error: ten bins of equal mass; interval: "
        "bootstrap over people.",
        "",
        "| rule | true prevalence | tones | n | calibration error | Brier | log score |",
        "|---|---|---|---|---|---|---|",
    ]
    stated = RuleSettings().prevalence
    kept = []
    for (rule, factor, tones), c in calibrated.items():
        out.append(
            f"| {rule} | {factor * stated:.2f} | {tones} | {c.n} | {c.error:.3f} "
            f"[{c.low:.3f}, {c.high:.3f}] | {c.brier:.3f} | {c.log_score:.3f} |"
        )
        kept.append({"rule": rule, "factor": factor, "tones": tones, **asdict(c)})
    summary["calibration"] = kept
    return [*out, ""]


def _full_lines(full: "pl.DataFrame", summary: dict[str, Any]) -> list[str]:
    import polars as pl

    out = [
        "### A full audiogram after the screen",
        "",
        f"`continue_exam` to {FULL_TONES} tones in all, 5 % lapses (the model assumes 2 %), seven "
        "frequencies; RMS error in dB against the true thresholds.",
        "",
    ]
    names = full["condition"].unique(maintain_order=True).to_list()
    out += [
        "| spread of the listener | " + " | ".join(names) + " | all |",
        "|---|" + "---|" * (len(names) + 1),
    ]
    kept = {}
    for spread in full["spread_db"].unique(maintain_order=True):
        part = full.filter(pl.col("spread_db") == spread)
        groups = [part.filter(pl.col("condition") == name) for name in names]
        values = [float(np.sqrt(np.mean(g["error_db"].to_numpy() ** 2))) for g in [*groups, part]]
        kept[f"{spread:g}"] = values[-1]
        out.append(f"| {spread:g} dB | " + " | ".join(f"{v:.1f}" for v in values) + " |")
    summary["full_rms_db"] = kept
    return [*out, ""]


# Other limits --------------------------------------------------------------------------------

# P from which "changed", and the likelihood ratio against the rule from which "unchanged" is said.
LIMITS = tuple(
    (changed, ratio) for changed in (0.95, 0.90, 0.80, 0.70) for ratio in (5.0, 10.0, 20.0)
)


def _frontier(rows: "pl.DataFrame", summary: dict[str, Any]) -> list[str]:
    """Errors and tones that other posterior limits would have given, on the same screens."""
    import polars as pl

    settings = RuleSettings()
    odds = settings.prevalence / (1.0 - settings.prevalence)
    out = [
        "### Other limits: tones against errors",
        "",
        "Screens run on without stopping, as if other limits had stopped them. At the stated "
        "prevalence a likelihood ratio of 10 against the rule is P = 0.013, so it binds before the "
        "posterior limit of 0.02 does.",
        "",
        "| rule | changed at | clearing ratio | changed ears: called, missed, undecided, tones "
        "| unchanged ears: cleared, called changed, undecided, tones |",
        "|---|---|---|---|---|",
    ]
    kept = []
    for rule in RULE_NAMES:
        mine = rows.filter((pl.col("rule") == rule) & ~pl.col("beyond"))
        runs = [
            (float(part["margin_db"][0]), part["p_changed"].to_numpy(), part["risk"].to_numpy())
            for _, part in mine.group_by("condition", "ear", maintain_order=True)
        ]
        for changed_at, ratio in LIMITS:
            sides: dict[bool, list[tuple[str, int]]] = {True: [], False: []}
            for margin, p, risk in runs:
                if abs(margin) < CLEAR_DB:
                    continue
                against = p / np.maximum(1.0 - p, 1e-12) * ratio <= odds
                clear = (p <= 0.05) & against & (risk <= settings.clearing_risk)
                stop = np.flatnonzero((p >= changed_at) | clear)
                decision, tones = "inconclusive", p.size
                if stop.size:
                    decision = "changed" if p[stop[0]] >= changed_at else "unchanged"
                    tones = int(stop[0]) + 1
                sides[margin > 0].append((decision, tones))
            cells = []
            for side in (True, False):
                calls = calls_of(
                    [d for d, _ in sides[side]], np.array([float(t) for _, t in sides[side]]), side
                )
                cells.append(
                    f"{calls.right.value:.1%}, {calls.wrong.value:.1%}, "
                    f"{calls.undecided.value:.1%}, {calls.tones_mean:.1f}"
                )
            out.append(f"| {rule} | {changed_at:g} | {ratio:g} | {cells[0]} | {cells[1]} |")
            kept.append([rule, changed_at, ratio, *cells])
    summary["frontier"] = kept
    return [*out, ""]
