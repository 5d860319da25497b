"""Is there a notch? Real ears with and without one by the definition, screened without a reference.

A notch: one of 3, 4 and 6 kHz at least 10 dB worse than both 2 and 8 kHz. Nothing is added to the
ears; those within `CLEAR_DB` of the criterion are left out, and readings are dithered over their
5 dB steps.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from earshift import __version__
from earshift.engine.persons.questions import NEIGHBOURS_HZ, NOTCH_DB, NOTCH_HZ
from earshift.engine.refusal import Refusal
from earshift.engine.rule_settings import NotchSettings
from earshift.engine.screen import Screen
from earshift.studies import figures
from earshift.studies.case import Case, Ear, Row, seed_of
from earshift.studies.ears import people
from earshift.studies.markdown import Page, Target
from earshift.studies.rates import Proportion
from earshift.studies.rules import dithered
from earshift.studies.sittings import STANDARD, Answerer, played

if TYPE_CHECKING:
    import polars as pl

CLEAR_DB = 4.0
TONES = 20
FACTOR = NotchSettings().bayes_factor
GROUPS = {
    "deep": "a notch, 10 dB or more past the criterion",
    "shallow": "a notch, 4 to 10 dB past the criterion",
    "sloping": "none, but 3-6 kHz at least 10 dB worse than 2 kHz",
    "level": "none, and no such slope",
}
ASKED_ALL, ASKED_SLOPING, ASKED_EACH = 0.93, 0.85, 0.70


def notch_margin_db(ear: Ear) -> float:
    """How far an ear is past the criterion of a notch."""
    level = dict(ear.thresholds_db_hl)
    return max(level[f] for f in NOTCH_HZ) - max(level[f] for f in NEIGHBOURS_HZ) - NOTCH_DB


def group_of(ear: Ear) -> str | None:
    """To which group an ear belongs; None for one too close to the criterion."""
    margin, level = notch_margin_db(ear), dict(ear.thresholds_db_hl)
    if abs(margin) < CLEAR_DB:
        return None
    if margin > 0.0:
        return "deep" if margin >= 10.0 else "shallow"
    slope = max(level[f] for f in NOTCH_HZ) - level[NEIGHBOURS_HZ[0]]
    return "sloping" if slope >= NOTCH_DB else "level"


@dataclass(frozen=True)
class NotchCase(Case):
    """One real ear, asked to the last tone; what was known after each."""

    ear: Ear
    group: str
    seed: int = 0
    columns: ClassVar[tuple[str, ...]] = (
        "group", "ear", "margin_db", "tones", "log_bf", "decision",
    )  # fmt: skip

    def rows(self) -> list[Row]:
        seed = seed_of(self.seed, self.ear.name, "notch")
        person = Answerer([level for _, level in self.ear.thresholds_db_hl], STANDARD, seed)
        screen = Screen(hypotheses="notch", seed=seed, max_tones=TONES)
        margin = notch_margin_db(self.ear)
        return [
            (
                self.group, self.ear.name, margin, len(state.trials), float(state.log_bf()),
                screen.decision,
            )
            for state in played(screen, person, TONES)
        ]  # fmt: skip


def notch_cases(path: Path, half: str, wanted: Mapping[str, int], seed: int = 0) -> list[NotchCase]:
    """Real ears, one a person, so many of each group, from one half of the people."""
    left = {group: wanted.get(group, 0) for group in GROUPS}
    found: dict[str, list[NotchCase]] = {group: [] for group in GROUPS}
    for ear in people(path, half, None, seed):
        ear = dithered(ear.name, [level for _, level in ear.thresholds_db_hl], seed)
        group = group_of(ear)
        if group is not None and len(found[group]) < left[group]:
            found[group].append(NotchCase(ear, group, seed))
    short = [group for group in GROUPS if len(found[group]) < left[group]]
    if short:
        raise Refusal(
            f"the {half} half of {path.name} has too few ears of the kind {', '.join(short)}: "
            "ask for fewer"
        )
    rounds = max((len(cases) for cases in found.values()), default=0)
    return [cases[k] for k in range(rounds) for cases in found.values() if k < len(cases)]


# The page --------------------------------------------------------------------------------------


def _right(rows: "pl.DataFrame") -> Proportion:
    """Ears whose likelier answer, at even odds, is the true one."""
    right = (rows["log_bf"] > 0.0) == (rows["margin_db"] > 0.0)
    return Proportion(int(right.sum()), rows.height)


def _stopped(rows: "pl.DataFrame") -> dict[str, float]:
    """How screens end that stop at their limit: right, wrong, open, mean tones."""
    ends, tones = [], []
    for _, path in rows.sort("tones").group_by("ear", maintain_order=True):
        log_bf = path["log_bf"].to_numpy()
        over = np.flatnonzero(np.abs(log_bf) >= math.log(FACTOR))
        called = "inconclusive"
        if over.size:
            called = "changed" if log_bf[over[0]] > 0.0 else "unchanged"
        true = "changed" if path["margin_db"][0] > 0.0 else "unchanged"
        ends.append("open" if called == "inconclusive" else "right" if called == true else "wrong")
        tones.append(int(over[0]) + 1 if over.size else TONES)
    out = {word: ends.count(word) / len(ends) for word in ("right", "wrong", "open")}
    return {**out, "mean_tones": float(np.mean(tones))}


def write_notch_results(
    frame: "pl.DataFrame", half: str, command: str, out: Path
) -> dict[str, Any]:
    """results.md, summary.json and the picture; returns the summary."""
    import polars as pl

    page = Page(
        f"The notch on real ears, {half} half of the people", command, out,
        {"version": __version__, "half": half, "groups": {}},
    )  # fmt: skip
    page.add(
        "A notch: one of 3, 4 and 6 kHz at least 10 dB worse than both 2 and 8 kHz. Real ears as "
        f"they are, at least {CLEAR_DB:g} dB past the criterion or short of it, readings dithered "
        "over their 5 dB steps; nobody has an earlier exam. Listeners: spread 4 dB, 2 % lapses, "
        f"1 % guesses. Right: the likelier answer after {TONES} tones, at even odds, is the true "
        f"one. Stopping: at a Bayes factor of {FACTOR:g}. Intervals: Wilson, 95 %."
    )
    last = frame.filter(pl.col("tones") == TONES)
    rows = []
    curves: dict[str, list[tuple[float, float, int]]] = {}
    for group, words in GROUPS.items():
        part = last.filter(pl.col("group") == group)
        if part.is_empty():
            continue
        right = _right(part)
        ended = _stopped(frame.filter(pl.col("group") == group))
        page.summary["groups"][group] = {"right": vars(right), "stopped": ended}
        rows.append([
            f"{group}: {words}", str(part.height), str(right),
            " / ".join(f"{ended[word]:.0%}" for word in ("right", "wrong", "open")),
            f"{ended['mean_tones']:.1f}",
        ])  # fmt: skip
        curves[group] = [
            (
                float(n),
                (
                    p := _right(frame.filter((pl.col("group") == group) & (pl.col("tones") == n)))
                ).value,
                p.n,
            )
            for n in range(1, TONES + 1)
        ]
    page.targets(_targets(page.summary["groups"]))
    page.heading("By group")
    page.table(
        ("ears", "n", f"right after {TONES} tones", "stopping: right / wrong / open", "mean tones"),
        rows,
    )
    page.picture(f"fraction right by tones, {last.height} ears", "notch.png")
    figures.save_right_by_tones({"real ears": curves}, out / "notch.png")
    return page.write()


def _targets(groups: Mapping[str, Any]) -> Sequence[Target]:
    each = {group: Proportion(**numbers["right"]) for group, numbers in groups.items()}
    if not each:
        return []
    mean = float(np.mean([p.value for p in each.values()]))
    worst = min(each, key=lambda group: each[group].value)
    targets = [
        Target(
            f"at least {ASKED_ALL:.0%} right in {TONES} tones, mean of the groups", f"{mean:.1%}",
            mean >= ASKED_ALL,
        ),
        Target(
            f"no group below {ASKED_EACH:.0%}", f"lowest: {worst}, {each[worst]}",
            each[worst].value >= ASKED_EACH,
        ),
    ]  # fmt: skip
    if "sloping" in each:
        sloping = each["sloping"]
        targets.insert(1, Target(
            f"at least {ASKED_SLOPING:.0%} on sloping ears without a notch", str(sloping),
            sloping.value >= ASKED_SLOPING,
        ))  # fmt: skip
    return targets
