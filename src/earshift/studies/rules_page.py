"""The results page of the study of rules: asked for and reached, tables, pictures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from earshift import __version__
from earshift.engine.rule_settings import RuleSettings
from earshift.studies import figures
from earshift.studies.markdown import Page, Target
from earshift.studies.rates import Calibration, Calls, calibration, calls_of
from earshift.studies.rules import CLEAR_DB, FULL_TONES, METHODS, RULE_NAMES, conditions

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
    page = Page(
        f"Screening by rule on real ears, {half} half of the people",
        command,
        out,
        {"version": __version__, "half": half, "rules": {}},
        effort_in=out / "calls",
    )
    page.add(
        "Truth is the rule on the simulated true shift, retest jitter (SD 3 dB, smooth over an "
        f"octave) included. At least {CLEAR_DB:g} dB past the criterion counts as changed, at "
        "least as much short of it as unchanged. Listeners: spread 4 dB, 2 % lapses, 1 % guesses "
        "unless said. At most 30 tones; undecided counts 30. Intervals: Wilson, 95 %; the same "
        "ears recur under all conditions, so pooled intervals are somewhat too narrow. msha-sts "
        "has osha-sts's criterion, and so its figures."
    )
    calibrated = _calibrations(frames.get("calibration"))
    full = frames.get("full")
    targets = _targets(scored, calibrated, full)
    page.targets(targets)
    page.summary["targets"] = [
        {"rule": t.rule, "asked": t.asked, "reached": t.reached, "good": t.good} for t in targets
    ]
    for rule in RULE_NAMES:
        _conditions_table(page, scored.filter(pl.col("rule") == rule), rule)
    for rule in RULE_NAMES:
        _methods_table(page, scored.filter(pl.col("rule") == rule), rule)
    _beyond(page, rows)
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
    page.heading("Called changed, against the margin")
    page.add(
        "All conditions together. The paper's protocol asks whether anything changed: it also "
        "calls improvements and shifts at other frequencies than the rule's."
    )
    page.picture("fraction of ears called changed against the margin", "calls.png")
    if calibrated:
        _calibration_table(page, calibrated)
        stated = {
            f"{rule}, {tones} tones": c.bins
            for (rule, factor, tones), c in calibrated.items()
            if factor == 1.0
        }
        figures.save_calibration(stated, out / "calibration.png")
        page.picture("stated probability against the fraction that met the rule", "calibration.png")
    if full is not None:
        _full_table(page, full)
    if "frontier" in frames:
        _frontier(page, frames["frontier"])
    return page.write()


def calls_by_truth(rows: "pl.DataFrame", changed: bool) -> Calls:
    """The calls on ears well past the rule, or well short of it."""
    import polars as pl

    past = pl.col("margin_db") >= CLEAR_DB if changed else pl.col("margin_db") <= -CLEAR_DB
    side = rows.filter(past)
    return calls_of(side["decision"].to_list(), side["tones"].to_numpy().astype(float), changed)


def _hardest(rows: "pl.DataFrame", outcome: str) -> str:
    """The condition with the worst outcome among those with 50 changed ears or more."""
    import polars as pl

    found = []
    for name in rows["condition"].unique(maintain_order=True):
        calls = calls_by_truth(rows.filter(pl.col("condition") == name), True)
        if calls.ears >= 50:
            value = getattr(calls, outcome).value
            found.append((value if outcome == "right" else -value, name, value, calls.ears))
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
) -> list[Target]:
    """What was asked for, and what was reached."""
    import polars as pl

    targets: list[Target] = []

    def row(rule: str, asked: str, reached: str, good: bool) -> None:
        targets.append(Target(asked, reached, good, rule))

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
    return targets


def _conditions_table(page: Page, rows: "pl.DataFrame", rule: str) -> None:
    import polars as pl

    mine = rows.filter(pl.col("method") == "rule")
    lines = []
    kept: dict[str, Any] = {}
    for condition in conditions():
        part = mine.filter(pl.col("condition") == condition.name)
        if not part.height:
            continue
        past, short = calls_by_truth(part, True), calls_by_truth(part, False)
        kept[condition.name] = {"changed": asdict(past), "unchanged": asdict(short)}
        cells = [condition.name]
        for calls in (past, short):
            outcomes = [calls.right, calls.wrong, calls.undecided]
            tones = f"{calls.tones_mean:.1f}, {calls.tones_median:.0f}, {calls.tones_p95:.0f}"
            cells.append(str(calls.ears))
            cells += [*map(str, outcomes), tones] if calls.ears else ["-"] * 4
        lines.append(cells)
    page.heading(f"{rule}: every condition, rule-directed")
    page.table(
        (
            "condition", "changed ears", "called changed", "missed", "undecided",
            "tones mean, median, p95", "unchanged ears", "called unchanged", "called changed",
            "undecided", "tones",
        ),
        lines,
    )  # fmt: skip
    summary = page.summary["rules"].setdefault(rule, {})
    summary["conditions"] = kept
    summary["groups"] = {
        group: asdict(calls_by_truth(_of_groups(mine, [group]), group != "unchanged"))
        for group in GROUPS
    }


def _methods_table(page: Page, rows: "pl.DataFrame", rule: str) -> None:
    import polars as pl

    ears = rows.filter(pl.col("method") != "rule")["ear"].unique()
    if not len(ears):
        return
    lines = []
    kept: dict[str, Any] = {}
    for method in METHODS:
        mine = rows.filter((pl.col("method") == method) & pl.col("ear").is_in(ears.to_list()))
        cells = [METHOD_WORDS[method]]
        for group in GROUPS:
            calls = calls_by_truth(_of_groups(mine, [group]), group != "unchanged")
            kept.setdefault(method, {})[group] = asdict(calls)
            outcomes = (calls.right, calls.wrong, calls.undecided)
            cells.append(
                " / ".join(f"{outcome.value:.0%}" for outcome in outcomes)
                + f", {calls.tones_mean:.1f} tones (n {calls.ears})"
                if calls.ears
                else "-"
            )
        lines.append(cells)
    page.heading(f"{rule}: beside other methods")
    page.add(
        f"The same {len(ears)} ears for all. Changed ears: called changed / missed / undecided; "
        "unchanged ears: called unchanged / called changed / undecided; then mean tones."
    )
    page.table(("method", *GROUPS), lines)
    page.summary["rules"].setdefault(rule, {})["methods"] = kept


def _beyond(page: Page, rows: "pl.DataFrame") -> None:
    import polars as pl

    apart = rows.filter(pl.col("beyond") & (pl.col("method") == "rule"))
    lines = []
    for rule in RULE_NAMES:
        part = apart.filter(pl.col("rule") == rule)
        counts = dict(part["decision"].value_counts().iter_rows())
        words = ", ".join(f"{n} {decision}" for decision, n in sorted(counts.items())) or "none"
        lines.append(f"- {rule}: {part.height} screens of such ears, left out above: {words}.")
    page.heading("Ears past 95 dB HL")
    page.add(*lines)


def _curve(rows: "pl.DataFrame") -> list[tuple[float, float, int]]:
    """Fraction called changed in bins of the margin, 2 dB wide."""
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


def _calibration_table(page: Page, calibrated: dict[tuple[str, float, int], Calibration]) -> None:
    stated = RuleSettings().prevalence
    page.heading("Calibration of P(rule met)")
    page.add(
        "Shifts drawn from the stated prior (and at half and double its prevalence while the "
        "screen believes the stated one), no stopping. Error: ten bins of equal mass; interval: "
        "bootstrap over people."
    )
    page.table(
        ("rule", "true prevalence", "tones", "n", "calibration error", "Brier", "log score"),
        [
            (
                rule, f"{factor * stated:.2f}", str(tones), str(c.n),
                f"{c.error:.3f} [{c.low:.3f}, {c.high:.3f}]", f"{c.brier:.3f}",
                f"{c.log_score:.3f}",
            )
            for (rule, factor, tones), c in calibrated.items()
        ],
    )  # fmt: skip
    page.summary["calibration"] = [
        {"rule": rule, "factor": factor, "tones": tones, **asdict(c)}
        for (rule, factor, tones), c in calibrated.items()
    ]


def _full_table(page: Page, full: "pl.DataFrame") -> None:
    import polars as pl

    names = full["condition"].unique(maintain_order=True).to_list()
    rows, kept = [], {}
    for spread in full["spread_db"].unique(maintain_order=True):
        part = full.filter(pl.col("spread_db") == spread)
        groups = [part.filter(pl.col("condition") == name) for name in names]
        values = [float(np.sqrt(np.mean(g["error_db"].to_numpy() ** 2))) for g in [*groups, part]]
        kept[f"{spread:g}"] = values[-1]
        rows.append([f"{spread:g} dB", *(f"{v:.1f}" for v in values)])
    page.heading("A full audiogram after the screen")
    page.add(
        f"`continue_exam` to {FULL_TONES} tones in all, 5 % lapses (the model assumes 2 %), seven "
        "frequencies; RMS error in dB against the true thresholds."
    )
    page.table(("spread of the listener", *names, "all"), rows)
    page.summary["full_rms_db"] = kept


# Other limits --------------------------------------------------------------------------------

# P from which "changed", and the likelihood ratio against the rule from which "unchanged" is said.
LIMITS = tuple(
    (changed, ratio) for changed in (0.95, 0.90, 0.80, 0.70) for ratio in (5.0, 10.0, 20.0)
)


def _frontier(page: Page, rows: "pl.DataFrame") -> None:
    """Errors and tones that other posterior limits would have given, on the same screens."""
    import polars as pl

    settings = RuleSettings()
    odds = settings.prevalence / (1.0 - settings.prevalence)
    kept: list[tuple[str, float, float, str, str]] = []
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
            kept.append((rule, changed_at, ratio, cells[0], cells[1]))
    page.heading("Other limits: tones against errors")
    page.add(
        "Screens run on without stopping, as if other limits had stopped them. At the stated "
        "prevalence a likelihood ratio of 10 against the rule is P = 0.013, so it binds before the "
        "posterior limit of 0.02 does."
    )
    page.table(
        (
            "rule", "changed at", "clearing ratio",
            "changed ears: called, missed, undecided, tones",
            "unchanged ears: cleared, called changed, undecided, tones",
        ),
        [
            (rule, f"{changed_at:g}", f"{ratio:g}", past, short)
            for rule, changed_at, ratio, past, short in kept
        ],
    )  # fmt: skip
    page.summary["frontier"] = kept
