"""The results page of the study of rules: asked for and reached, tables, pictures.

Every condition is judged by itself: it fails when even the lower end of its interval exceeds what
was asked for. Only where that is said are conditions taken together.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from earshift import __version__
from earshift.studies import checks_page, figures
from earshift.studies.markdown import Page, Target
from earshift.studies.rates import Calls, Proportion, calls_of
from earshift.studies.rules import (
    CLEAR_DB,
    LOUDEST_DB_HL,
    METHOD_WORDS,
    OTHERWISE,
    RESPONDERS,
    RULE_NAMES,
    modelled,
)
from earshift.studies.sittings import MAX_TONES, SECONDS_PER_TRIAL

if TYPE_CHECKING:
    import polars as pl

ENOUGH = 300  # ears a condition that the targets are meant for
FEWEST = 20  # ears on a side of a condition below which it is not shown
MODELLED_WRONG, POOLED_WRONG = 0.01, 0.01
OPEN = {"osha-sts": 0.05, "niosh-15": 0.05}
HARDER_OPEN = {
    ("niosh-15", "unchanged"): 0.10,
    **{(rule, name): 0.10 for rule in RULE_NAMES for name in ("high 20 dB", "low 20 dB")},
    **{("niosh-15", f"{k} kHz alone 30 dB"): 0.10 for k in (4, 6)},
    **{(rule, "notch 20 dB"): 0.15 for rule in RULE_NAMES},
}
OTHERWISE_WRONG = {"guesses 8 %": 0.03, "spread 8 dB": 0.03, "careless reference": 0.03}
OTHERWISE_OPEN = {"osha-sts": 0.15, "niosh-15": 0.20}
COIN = {"osha-sts": 0.10, "niosh-15": 0.03}
WORKERS_WRONG = {"osha-sts": 0.02, "niosh-15": 0.04}
WORKERS_OPEN = {"osha-sts": 0.12, "niosh-15": 0.30}
WORKERS_ENOUGH = 100
TONES = {"osha-sts": (8.0, 9.0), "niosh-15": (13.0, 10.0)}  # unchanged ears, changed ears


@dataclass(frozen=True)
class Cell:
    """One condition, the ears on one side of the rule: their calls, beside what was asked for."""

    rule: str
    condition: str
    changed: bool
    calls: Calls
    minutes: float
    unreliable: int
    wrong_asked: float | None = None
    open_asked: float | None = None

    @property
    def name(self) -> str:
        return f"{self.condition} ({'changed' if self.changed else 'unchanged'})"

    @property
    def too_wrong(self) -> bool:
        return exceeds(self.calls.wrong, self.wrong_asked)

    @property
    def too_open(self) -> bool:
        return exceeds(self.calls.undecided, self.open_asked)


def exceeds(found: Proportion, asked: float | None) -> bool:
    """Whether even the lower end of the interval is past what was asked for."""
    return asked is not None and found.n > 0 and found.interval[0] > asked


def cells_of(
    rows: "pl.DataFrame", asked: Mapping[tuple[str, str], tuple[float | None, float | None]]
) -> list[Cell]:
    """A cell for each rule, condition and side with ears enough."""
    import polars as pl

    out = []
    for (rule, condition), part in rows.group_by("rule", "condition", maintain_order=True):
        for changed in (True, False):
            side = part.filter(pl.col("margin_db") > 0.0 if changed else pl.col("margin_db") < 0.0)
            if side.height < FEWEST:
                continue
            tones = side["tones"].to_numpy().astype(float)
            minutes = float((tones + side["silent"].to_numpy()).mean()) * SECONDS_PER_TRIAL / 60.0
            limits = asked.get((str(rule), str(condition)), (None, None))
            out.append(
                Cell(
                    str(rule), str(condition), changed,
                    calls_of(side["decision"].to_list(), tones, changed), minutes,
                    int((side["reason"] == "not reliable").sum()), *limits,
                )
            )  # fmt: skip
    return out


def write_rule_results(
    frames: Mapping[str, "pl.DataFrame"], people: int, half: str, command: str, out: Path
) -> dict[str, Any]:
    """results.md, summary.json and pictures; returns the summary.

    Of every condition the first `people` ears count.
    """
    import polars as pl

    calls = frames["calls"]
    counted = calls.group_by("rule", "condition", maintain_order=True).head(people)
    ears = counted["ear"].n_unique()
    page = Page(
        f"Screening by rule on real ears, {half} half of the people", command, out,
        {"version": __version__, "half": half, "people": people, "rules": {}},
        effort_in=out / "calls",
    )  # fmt: skip
    page.add(
        f"At most {people} ears a condition (of {ears}), half of them with a mean of 500, 1000 and "
        "2000 Hz above 25 dB HL, readings dithered over their 5 dB steps. Truth is the rule on the "
        "simulated true shift, retest jitter (SD 3 dB, smooth over an octave) included and drawn "
        f"again until the ear is {CLEAR_DB:g} dB past the rule or short of it; ears with a "
        f"threshold past {LOUDEST_DB_HL:g} dB HL do not count. References: first exams of 50 "
        f"tones. At most {MAX_TONES} tones, one silent trial in eight; a Bayes factor of 100 "
        "either way. Listeners: spread 4 dB, 2 % lapses, 1 % guesses unless said. Minutes: "
        f"{SECONDS_PER_TRIAL:g} s a trial. Intervals: Wilson, 95 %. A condition fails, in bold, "
        "when the lower end of its interval exceeds what was asked for. msha-sts has osha-sts's "
        "criterion, and so its figures."
    )
    if people < ENOUGH:
        page.add(
            f"These are the first {people} ears of {ENOUGH}: enough to show gross failures, not "
            f"rates near 1 %. The same command with `--people {ENOUGH}` goes on from here."
        )
    main = cells_of(counted.filter(pl.col("group") == "modelled"), _modelled_asked())
    others = cells_of(counted.filter(pl.col("group").is_in(list(OTHERWISE))), _otherwise_asked())
    idle = counted.filter(pl.col("group") == "responders")
    workers = frames.get("workers")
    targets: list[Target] = []
    for rule in RULE_NAMES:
        mine = counted.filter(pl.col("rule") == rule)
        targets += _call_targets(rule, main, "as modelled", MODELLED_WRONG)
        targets += _pooled(rule, main)
        targets += _call_targets(rule, others, "listeners not as assumed", None)
        targets += _responder_targets(rule, mine)
        if workers is not None:
            targets += _worker_targets(rule, workers)
        targets += _tone_targets(rule, main)
    targets += checks_page.targets(frames)
    page.targets(targets)
    page.summary["targets"] = [asdict(t) for t in targets]
    for rule in RULE_NAMES:
        page.heading(f"{rule}: listeners as modelled")
        _cell_table(page, rule, main)
        page.heading(f"{rule}: listeners that are not as assumed")
        _cell_table(page, rule, others)
    figures.save_outcomes(
        {
            rule: [
                (c.name, c.calls.right.value, c.calls.undecided.value, c.calls.wrong.value)
                for c in main
                if c.rule == rule
            ]
            for rule in RULE_NAMES
        },
        out / "calls.png",
    )
    page.picture(f"calls by condition, at most {people} ears each: right, open, wrong", "calls.png")
    _responder_table(page, idle)
    if workers is not None:
        page.heading("Consecutive audiograms of workers")
        page.add(
            f"{workers['ear'].n_unique()} pairs of readings of noise-exposed workers, one year to "
            "the next, taken as the true thresholds (dithered over their 5 dB steps)."
        )
        _plain_table(page, cells_of(workers, {}))
    _frontier(page, counted.filter(pl.col("group") == "modelled"))
    if "compared" in frames:
        _methods(page, counted, frames["compared"])
    checks_page.add(page, frames, out)
    return page.write()


# What was asked for ----------------------------------------------------------------------------


def _modelled_asked() -> dict[tuple[str, str], tuple[float | None, float | None]]:
    return {
        (rule, c.name): (MODELLED_WRONG, HARDER_OPEN.get((rule, c.name), OPEN[rule]))
        for c in modelled()
        for rule in c.rules()
    }


def _otherwise_asked() -> dict[tuple[str, str], tuple[float | None, float | None]]:
    return {
        (rule, f"{group}, {name}"): (
            OTHERWISE_WRONG.get(group, 0.02),
            None if (rule, group) == ("niosh-15", "spread 8 dB") else OTHERWISE_OPEN[rule],
        )
        for rule in RULE_NAMES
        for group in OTHERWISE
        for name in ("unchanged", "flat 20 dB", "high 20 dB")
    }


def _of(rule: str, cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.rule == rule]


def _failing(cells: Sequence[Cell], outcome: str, failing: Sequence[Cell]) -> str:
    """How many conditions fail and which; else the one that is nearest."""

    def words(cell: Cell) -> str:
        found: Proportion = getattr(cell.calls, outcome)
        return f"{cell.name} {found.hits} of {found.n}"

    if failing:
        named = ", ".join(map(words, failing))
        return f"{len(failing)} of {len(cells)} conditions fail: {named}"
    worst = max(cells, key=lambda cell: getattr(cell.calls, outcome).value, default=None)
    return "-" if worst is None else f"none of {len(cells)} fails; most: {words(worst)}"


def _call_targets(
    rule: str, cells: Sequence[Cell], what: str, wrong: float | None
) -> Iterator[Target]:
    mine = _of(rule, cells)
    if not mine:
        return
    limit = "2 or 3 %" if wrong is None else f"{wrong:.0%}"
    bad = [cell for cell in mine if cell.too_wrong]
    yield Target(
        f"{what}: wrong at most {limit} in each condition", _failing(mine, "wrong", bad), not bad,
        rule,
    )  # fmt: skip
    judged = [cell for cell in mine if cell.open_asked is not None]
    bad = [cell for cell in judged if cell.too_open]
    limits = [f"{limit:.0%}" for limit in sorted({cell.open_asked or 0.0 for cell in judged})]
    yield Target(
        f"{what}: open at most {' or '.join(limits)}", _failing(judged, "undecided", bad), not bad,
        rule,
    )  # fmt: skip


def _pooled(rule: str, cells: Sequence[Cell]) -> Iterator[Target]:
    mine = _of(rule, cells)
    wrong = Proportion(sum(c.calls.wrong.hits for c in mine), sum(c.calls.ears for c in mine))
    yield Target(
        f"as modelled, all together: the upper bound of wrong calls at most {POOLED_WRONG:.0%}",
        f"{wrong.hits} of {wrong.n}, {wrong}", wrong.interval[1] <= POOLED_WRONG, rule,
    )  # fmt: skip
    falsely = Proportion(sum(c.unreliable for c in mine), wrong.n)
    yield Target(
        'falsely "not reliable" at most 1 %, as modelled',
        f"{falsely.hits} of {falsely.n}, {falsely}", not exceeds(falsely, 0.01), rule,
    )  # fmt: skip


def mean_of(rows: "pl.DataFrame") -> float:
    """Mean tones."""
    return float(rows["tones"].to_numpy().mean()) if rows.height else math.nan


def decided(rows: "pl.DataFrame") -> Proportion:
    """How many were called changed or unchanged."""
    hits = int(rows["decision"].is_in(["changed", "unchanged"]).sum())
    return Proportion(hits, rows.height)


def _responder_targets(rule: str, rows: "pl.DataFrame") -> Iterator[Target]:
    import polars as pl

    guessing = rows.filter(pl.col("group") == "guesses 8 %")
    falsely = Proportion(int((guessing["reason"] == "not reliable").sum()), guessing.height)
    yield Target(
        'falsely "not reliable" at most 5 % at 8 % guesses',
        f"{falsely.hits} of {falsely.n}, {falsely}", not exceeds(falsely, 0.05), rule,
    )  # fmt: skip
    for who in RESPONDERS:
        found = decided(rows.filter(pl.col("condition") == f"responder: {who}"))
        if who == "coin":
            asked, good = f"at most {COIN[rule]:.0%}", not exceeds(found, COIN[rule])
        else:
            asked, good = "none", found.hits == 0
        yield Target(
            f"answers {who if who != 'coin' else 'by the toss of a coin'}: {asked} decided",
            f"{found.hits} of {found.n}", good, rule,
        )  # fmt: skip


def _worker_targets(rule: str, rows: "pl.DataFrame") -> Iterator[Target]:
    for cell in _of(rule, cells_of(rows, {})):
        if cell.calls.ears < WORKERS_ENOUGH:
            continue
        side = "changed" if cell.changed else "unchanged"
        for what, found, asked in (
            ("wrong", cell.calls.wrong, WORKERS_WRONG[rule]),
            ("open", cell.calls.undecided, WORKERS_OPEN[rule]),
        ):
            yield Target(
                f"pairs of workers, {side}: {what} at most {asked:.0%}",
                f"{found.hits} of {found.n}, {found}", not exceeds(found, asked), rule,
            )  # fmt: skip


def _tone_targets(rule: str, cells: Sequence[Cell]) -> Iterator[Target]:
    for changed, asked in zip((False, True), TONES[rule], strict=True):
        mine = [c for c in _of(rule, cells) if c.changed == changed]
        if not mine:
            continue
        mean = float(np.mean([c.calls.tones_mean for c in mine]))
        minutes = float(np.mean([c.minutes for c in mine]))
        own = next((c for c in mine if c.condition == "unchanged"), None)
        note = f"; condition unchanged {own.calls.tones_mean:.1f}" if own and len(mine) > 1 else ""
        yield Target(
            f"tones, {'changed' if changed else 'unchanged'} ears, mean of the conditions: "
            f"at most {asked:g}",
            f"{mean:.1f} ({minutes:.1f} minutes{note})", mean <= asked, rule,
        )  # fmt: skip


# Tables ----------------------------------------------------------------------------------------


def _bold(text: str, failed: bool) -> str:
    return f"**{text}**" if failed else text


def _cells(cell: Cell) -> list[str]:
    calls = cell.calls
    return [
        cell.condition,
        "changed" if cell.changed else "unchanged",
        str(calls.ears),
        f"{calls.right.value:.1%}",
        _bold(f"{calls.wrong.hits}: {calls.wrong}", cell.too_wrong),
        _bold(f"{calls.undecided.hits}: {calls.undecided}", cell.too_open),
        f"{calls.tones_mean:.1f}, {calls.tones_median:.0f}, {calls.tones_p95:.0f}",
        f"{cell.minutes:.1f}",
        str(cell.unreliable),
    ]


COLUMNS = (
    "condition", "truth", "ears", "right", "wrong", "open", "tones mean, median, p95", "minutes",
    "not reliable",
)  # fmt: skip


def _cell_table(page: Page, rule: str, cells: Sequence[Cell]) -> None:
    mine = _of(rule, cells)
    page.table(COLUMNS, [_cells(cell) for cell in mine])
    kept = page.summary["rules"].setdefault(rule, {}).setdefault("conditions", {})
    for cell in mine:
        side = "changed" if cell.changed else "unchanged"
        kept.setdefault(cell.condition, {})[side] = {**asdict(cell.calls), "minutes": cell.minutes}


def _plain_table(page: Page, cells: Sequence[Cell]) -> None:
    page.table(("rule", *COLUMNS[1:]), [[cell.rule, *_cells(cell)[1:]] for cell in cells])


def _responder_table(page: Page, rows: "pl.DataFrame") -> None:
    import polars as pl

    lines = []
    for rule in RULE_NAMES:
        for who in RESPONDERS:
            part = rows.filter(
                (pl.col("rule") == rule) & (pl.col("condition") == f"responder: {who}")
            )
            poor = Proportion(int((part["reason"] == "not reliable").sum()), part.height)
            lines.append([
                rule, who, str(part.height), f"{decided(part).hits}: {decided(part)}", str(poor),
                f"{mean_of(part):.1f}",
            ])  # fmt: skip
    page.heading("People who do not listen")
    page.table(("rule", "answers", "ears", "decided", "not reliable", "mean tones"), lines)


def _frontier(page: Page, rows: "pl.DataFrame") -> None:
    """What other factors would have cost, on the same tones."""
    import polars as pl

    lines = []
    kept = page.summary["frontier"] = []
    for rule in RULE_NAMES:
        for factor, suffix in ((100, ""), (50, "_50"), (30, "_30")):
            cells = [rule, str(factor)]
            for changed in (True, False):
                side = rows.filter(
                    (pl.col("rule") == rule) & ((pl.col("margin_db") > 0.0) == changed)
                )
                if side.is_empty():
                    cells.append("-")
                    continue
                calls = calls_of(
                    side[f"decision{suffix}"].to_list(),
                    side[f"tones{suffix}"].to_numpy().astype(float), changed,
                )  # fmt: skip
                kept.append({"rule": rule, "factor": factor, "changed": changed, **asdict(calls)})
                cells.append(
                    f"{calls.right.value:.1%} / {calls.wrong.value:.1%} / "
                    f"{calls.undecided.value:.1%}, {calls.tones_mean:.1f} tones (n {calls.ears})"
                )
            lines.append(cells)
    page.heading("Other Bayes factors: tones against errors")
    page.add(
        "The same screens, as if a lower factor had stopped them; modelled conditions together. "
        "Right / wrong / open, then mean tones."
    )
    page.table(("rule", "factor", "changed ears", "unchanged ears"), lines)


def _methods(page: Page, own: "pl.DataFrame", others: "pl.DataFrame") -> None:
    """earshift and what people do today, on the same ears under the same conditions."""
    import polars as pl

    names = [c.name for c in modelled()]
    both = pl.concat([
        own.filter(pl.col("group") == "modelled").with_columns(method=pl.lit("earshift")),
        others,
    ], how="diagonal")  # fmt: skip
    words = {"earshift": "earshift", **METHOD_WORDS}
    for rule in RULE_NAMES:
        lines = []
        for name in names:
            cells = [name]
            for method in words:
                part = both.filter(
                    (pl.col("rule") == rule)
                    & (pl.col("condition") == name)
                    & (pl.col("method") == method)
                )
                if part.is_empty():
                    cells.append("-")
                    continue
                n = part.height
                called = (part["decision"] == "changed").to_numpy()
                cleared = (part["decision"] == "unchanged").to_numpy()
                met = (part["margin_db"] > 0.0).to_numpy()
                right = int((called & met | cleared & ~met).sum())
                wrong = int((called & ~met | cleared & met).sum())
                cells.append(
                    f"{right / n:.0%} / {wrong / n:.0%} / {(n - right - wrong) / n:.0%}, "
                    f"{mean_of(part):.0f} tones (n {n})"
                )
            if any(cell != "-" for cell in cells[1:]):
                lines.append(cells)
        page.heading(f"{rule}: beside what people do today")
        page.add("Right / wrong / open, then mean tones of the second test.")
        page.table(("condition", *words.values()), lines)
