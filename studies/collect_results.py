"""Gather what the studies wrote into docs/results.md: `collect_results.py RESULTS DOCS`.

Part of `make results` and `make results-rules`. Adds nothing but the table of what was asked for
beside what was reached, read from the studies' own summaries. What a study that is not in RESULTS
wrote earlier stays as it is.
"""

import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from earshift.studies.markdown import Target, target_table

TWO_SIDED = "mean_tones_two_sided"
PARTS = {
    "rules": "Screening by rule: is the threshold-shift rule met?",
    "notch": "The noise notch, in a person without an earlier exam",
    "both": "Both ears in one sitting",
    "best": "The paper's experiment with our settings",
    "paper-vague": "The paper's experiment, the reading that gives its times for same and adjacent",
    "literal": "The paper's experiment, its equation taken at its word",
    "paper": "The paper's experiment with the settings closest to its text",
    "best-0.1": "The paper's experiment with the settings of 0.1.0",
    "floor": "Why the paper's far cells are slow: what would give such a table",
    "ears": "Real ears that no setting was chosen on",
    "tuning": "How `best` was chosen",
    "options": "The choices the paper leaves open",
    "sensitivity": "When listeners or assumptions are others",
    "ep": "Where expectation propagation has no fixed point",
}


def targets(
    best: dict[str, Any], vague: dict[str, Any], paper: dict[str, Any], ears: dict[str, Any]
) -> list[str]:
    """What was asked for, and what was reached; then rows for comparison."""
    groups = best["groups"]
    asked = []
    for name, most, aim in (
        ("all", 3.6, 3.2), ("same", 6.0, 4.77), ("adjacent", 5.5, None), ("far", 2.4, None),
    ):  # fmt: skip
        mean = groups[name]["mean_tones_two_sided"]
        what = f"`best`, two-sided, {name}: at most {most:g} tones"
        asked.append(Target(what, f"{mean:.2f}", mean <= most))
        if aim is not None:
            asked.append(
                Target(f"`best`, two-sided, {name}: aim {aim:g}", f"{mean:.2f}", mean <= aim)
            )
    for name, outcome, most in (
        ("all", "wrong", 0.01), ("adjacent", "wrong", 0.03), ("all", "undecided", 0.01),
    ):  # fmt: skip
        share, runs = groups[name][outcome], groups[name]["runs"]
        asked.append(
            Target(
                f"`best`, {name}: {outcome} at most {most:.0%}",
                f"{100 * share:.1f} % ({round(share * runs)} of {runs})",
                share <= most,
            )
        )
    real = ears["variants"]["best"]
    wrong, runs = real["wrong"], real["runs"]
    asked.append(
        Target(
            "`best`, real ears held back: wrong at most 1.5 %",
            f"{100 * wrong:.1f} % ({round(wrong * runs)} of {runs})",
            wrong <= 0.015,
        )
    )
    for name in ("same", "adjacent", "far", "all"):
        ours, theirs = vague["groups"][name]["mean_of_cells"], vague["groups"][name]["paper"]
        what = f"`paper-vague`, {name}: within 15 % of the paper's {theirs:.2f}"
        asked.append(Target(what, f"{ours:.2f}", abs(ours / theirs - 1.0) <= 0.15))
    asked += [
        Target(
            f"BADS ahead of {strategy}, {where}: interval below zero",
            f"{gap:+.1f} [{low:+.1f}, {high:+.1f}]",
            high < 0,
        )
        for where, strategies in best["against_baselines"].items()
        for strategy, (gap, low, high) in strategies.items()
    ]
    closest = paper["groups"]["all"]
    for what, numbers, tones in (
        ("real ears, held back: `best`, two-sided", real, real["weighted_two_sided"]),
        ("`paper` on the paper's experiment, two-sided", closest, closest["mean_tones_two_sided"]),
    ):
        reached = (
            f"{tones:.2f} tones, {100 * numbers['wrong']:.1f} % wrong, "
            f"{100 * numbers['undecided']:.1f} % undecided"
        )
        asked.append(Target(what, reached, None))
    return target_table(asked)


def readme_table(best: dict[str, Any], ears: dict[str, Any]) -> str:
    """What the README says of the paper's own question, between its markers."""
    groups = best["groups"]
    each = (
        (groups["all"], TWO_SIDED),
        (groups["same"], TWO_SIDED),
        (ears["variants"]["best"], "weighted_two_sided"),
    )
    return in_words(
        *(
            (f"{numbers[key]:.1f}", *(f"{100 * numbers[k]:.1f} %" for k in ("right", "wrong")))
            for numbers, key in each
        )
    )


def in_words(every: Sequence[str], same: Sequence[str], real: Sequence[str]) -> str:
    """Mean tones, right and wrong: of all pairs of the paper, unchanged ones, and real ears."""
    return (
        "The paper's own question is whether anything has changed. On its 48 pairs of simulated "
        "listeners it takes {} tones on average (the paper reports 5.2), {} right, {} wrong; on "
        "the unchanged ones among them {} (4.8), {} right, {} wrong; on real ears {}, {} right, {} "
        "wrong. Counted are tones until either side has a Bayes factor of 100; the paper counts "
        "those until the right side has.\n\nWritten by `make results`. "
        "[docs/results.md](docs/results.md) has all conditions."
    ).format(*every, *same, *real)


CONDITIONS = {
    "unchanged": ("unchanged", "unchanged ears"),
    "flat 15 dB": ("changed", "flat shifts of 15 dB"),
    "flat 20 dB": ("changed", "flat shifts of 20 dB"),
    "high 20 dB": ("changed", "high-frequency shifts of 20 dB"),
    "notch 25 dB": ("changed", "4 kHz notches of 25 dB"),
    "4 kHz alone 30 dB": ("changed", "4 kHz alone by 30 dB"),
    "three misses, unchanged": ("unchanged", "unchanged, three tones missed in a row"),
}


# What the README shows of them, the worst among it; docs/results.md has all.
TELLING = {
    "osha-sts": ("unchanged", "flat 15 dB", "notch 25 dB"),
    "niosh-15": ("unchanged", "4 kHz alone 30 dB", "three misses, unchanged"),
}


def rules_table(rules: dict[str, Any]) -> str:
    """The README's lines on screening by rule."""
    lines = [
        f"| real ears (NHANES), held back, {rules['people']} a line; at most 30 tones | right "
        "| wrong | open | mean tones |",
        "|---|---|---|---|---|",
    ]
    for rule, numbers in rules["rules"].items():
        for condition in TELLING.get(rule, ()):
            side, name = CONDITIONS[condition]
            calls = numbers["conditions"].get(condition, {}).get(side)
            if calls is None:
                continue
            outcomes = [calls[key] for key in ("right", "wrong", "undecided")]
            cells = " | ".join(f"{100 * each['hits'] / each['n']:.1f} %" for each in outcomes)
            lines.append(f"| {rule}: {name} | {cells} | {calls['tones_mean']:.1f} |")
    return "\n".join(lines)


PLAIN_PICTURES = ("best", "rules", "notch", "tuning")
READINGS = ("paper-vague", "literal", "paper", "best-0.1")


OPENING, CLOSING = "<!-- results: written by make results -->", "<!-- /results -->"


def into_readme(rules: str | None, paper: str | None, path: Path) -> None:
    """Replace what stands between the README's markers: rules and paper, either may stay."""
    before, rest = path.read_text(encoding="utf-8").split(OPENING)
    kept, after = rest.split(CLOSING)
    old_rules, _, old_paper = kept.strip().partition("\n\n")
    tables = f"{rules or old_rules}\n\n{paper or old_paper}"
    path.write_text(f"{before}{OPENING}\n{tables}\n{CLOSING}{after}", encoding="utf-8")


def sections(text: str) -> dict[str, str]:
    """The parts of an earlier page by their titles; the empty title is what stands before them."""
    pieces = re.split(r"(?m)^## (.+)\n", text)
    return {"": pieces[0], **dict(zip(pieces[1::2], pieces[2::2], strict=True))}


def section(results: Path, name: str, docs: Path) -> str:
    """What a study wrote, one heading deeper, its pictures beside docs/results.md."""
    text = (results / name / "results.md").read_text(encoding="utf-8")
    for picture in sorted((results / name).glob("*.png")):
        if name in PLAIN_PICTURES:
            shown = f"results-{picture.name}"
        elif name in READINGS and picture.stem in ("grid", "strategies"):
            shown = f"results-{name}-{picture.name}"
        else:
            kept = [line for line in text.splitlines() if f"({picture.name})" not in line]
            text = "\n".join(kept)
            continue
        shutil.copy(picture, docs / shown)
        text = text.replace(f"({picture.name})", f"({shown})")
    return re.sub(r"(?m)^(#+ )", r"#\1", text).strip()


def main(results: Path, docs: Path) -> None:
    page = docs / "results.md"
    earlier = sections(page.read_text(encoding="utf-8")) if page.exists() else {}
    summary = {
        name: json.loads((results / name / "summary.json").read_text(encoding="utf-8"))
        for name in ("best", "paper-vague", "paper", "ears", "rules")
        if (results / name / "summary.json").exists()
    }
    rules = summary.pop("rules", None)
    whole = len(summary) == 4
    names = ("best", "paper-vague", "paper", "ears")
    best, vague, paper, ears = (summary.get(name, {}) for name in names)
    lines = [
        "# Results",
        "",
        "Written by `make results`; not edited by hand. Simulated listeners: cubic spline through "
        "the thresholds, P(heard) = Phi((level - threshold) / 3 dB), no lapses unless said. The "
        "classes' medians are NHANES's, the paper used NIOSH's.",
        "",
        *(targets(best, vague, paper, ears) if whole else []),
    ]
    parts = ["\n".join(lines) if whole else earlier.get("", "# Results")]
    for name, title in PARTS.items():
        written = (results / name / "results.md").exists()
        body = section(results, name, docs) if written else earlier.get(title, "")
        if body.strip():
            parts.append(f"## {title}\n\n{body.strip()}")
    page.write_text("\n\n".join(part.strip() for part in parts) + "\n", encoding="utf-8")
    into_readme(
        rules_table(rules) if rules else None,
        readme_table(best, ears) if whole else None,
        docs.parent / "README.md",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
