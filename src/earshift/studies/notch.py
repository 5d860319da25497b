"""Screening for a notch on real ears with and without an added dip: how often right, by tones.

A case is one real ear that has no notch of its own: screened as it is, and with a dip of 20 dB
added, by every way of choosing tones. Beside them stands what the same two hypotheses make of the
ear when all its thresholds are known, which no number of tones can beat.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from earshift import __version__
from earshift.engine.change import posterior
from earshift.engine.domain import DOMAINS
from earshift.engine.notch import NotchModel, NotchSettings, dip
from earshift.engine.refusal import Refusal
from earshift.engine.screen import Screen
from earshift.engine.verdict import NOTCH
from earshift.simulate.listener import Listener
from earshift.simulate.run import steps
from earshift.studies import figures
from earshift.studies.case import Case, Ear, Row, seed_of
from earshift.studies.ears import people
from earshift.studies.markdown import Page, Target
from earshift.studies.rates import Proportion
from earshift.studies.rules import GUESS, LAPSE, SPREAD_DB

if TYPE_CHECKING:
    import polars as pl

Array = NDArray[np.float64]

DEPTH_DB = 20.0
NOTCH_DB = 10.0
TONES = 20
DOMAIN = "fine"
ALL_KNOWN = "all thresholds known"
KNOWN_SD_DB = 1.0
# What is compared: how tones are chosen, and which population the screen expects.
METHODS = {
    "differential": NotchSettings(),
    "bald": NotchSettings(strategy="bald"),
    "random": NotchSettings(strategy="random"),
    "any": NotchSettings(population="any"),
}
METHOD_WORDS = {
    "differential": "active model selection (earshift)",
    "bald": "BALD",
    "random": "random tones",
    "any": 'active, expecting any slope (population="any")',
    ALL_KNOWN: f"all seven thresholds known to {KNOWN_SD_DB:g} dB, no tones",
}
GROUPS = {
    "level": "3-6 kHz exceed neither 2 nor 8 kHz by 10 dB",
    "sloping": "they exceed 2 or 8 kHz by 10 dB, never both",
}


def group_of(ear: Ear) -> str | None:
    """level, sloping, or None for an ear with a notch of its own."""
    levels = dict(ear.thresholds_db_hl)
    middle = np.array([levels[f] for f in (3000.0, 4000.0, 6000.0)])
    past_2, past_8 = middle - levels[2000.0] >= NOTCH_DB, middle - levels[8000.0] >= NOTCH_DB
    if (past_2 & past_8).any():
        return None
    return "sloping" if (past_2 | past_8).any() else "level"


@dataclass(frozen=True)
class NotchCase(Case):
    """One real ear, with and without a dip, screened to the last tone by every method."""

    ear: Ear
    group: str
    methods: tuple[str, ...]
    seed: int = 0
    columns: ClassVar[tuple[str, ...]] = (
        "group", "method", "ear", "centre_hz", "notch", "tones", "p_notch",
    )  # fmt: skip

    def rows(self) -> list[Row]:
        rng = np.random.default_rng(seed_of(self.seed, self.ear.name, "centre"))
        centre = float(3000.0 * 2.0 ** rng.uniform(0.0, 1.0))
        frequencies = np.array([f for f, _ in self.ear.thresholds_db_hl])
        levels = np.array([level for _, level in self.ear.thresholds_db_hl])
        out: list[Row] = []
        for notch in (False, True):
            truth = levels + (DEPTH_DB * dip(frequencies, centre) if notch else 0.0)
            for method in self.methods:
                rates = (
                    [(0, self._all_known(truth))]
                    if method == ALL_KNOWN
                    else self._screen(dict(zip(frequencies, truth, strict=True)), method, notch)
                )
                out += [
                    (self.group, method, self.ear.name, centre, notch, tones, p)
                    for tones, p in rates
                ]
        return out

    def _screen(self, ear: dict[float, float], method: str, notch: bool) -> list[tuple[int, float]]:
        names = (self.seed, self.ear.name, notch)
        screen = Screen(
            hypotheses=NOTCH, settings=METHODS[method], seed=seed_of(*names), domain=DOMAIN
        )
        listener = Listener(
            ear, spread_db=SPREAD_DB, lapse=LAPSE, guess=GUESS, seed=seed_of(*names, "listener")
        )
        played = steps(screen, listener, TONES)
        return [(number, screen.p_changed) for number, _ in enumerate(played, start=1)]

    def _all_known(self, levels: Array) -> float:
        """P(notch) when every threshold is read without noise worth mentioning."""
        model = NotchModel(DOMAINS[DOMAIN], METHODS["differential"])
        noise = KNOWN_SD_DB**2 * np.eye(levels.size)
        without, having = (
            logsumexp(
                [
                    math.log(part.weight)
                    + multivariate_normal.logpdf(
                        levels, part.norm.mean_db_hl, np.array(part.norm.cov_db2) + noise
                    )
                    for part in parts
                ]
            )
            for parts in (model.without, model.having)
        )
        return posterior(float(having - without), model.settings.prevalence)


def notch_cases(path: Path, half: str, level: int, sloping: int, seed: int = 0) -> list[NotchCase]:
    """Ears without a notch of their own, one a person, from one half of the people."""
    wanted = {"level": level, "sloping": sloping}
    methods = {
        "level": (*METHODS, ALL_KNOWN),
        "sloping": ("differential", "any", ALL_KNOWN),
    }
    cases: list[NotchCase] = []
    for ear in people(path, half, None, seed):
        group = group_of(ear)
        if group is not None and wanted[group] > 0:
            wanted[group] -= 1
            cases.append(NotchCase(ear, group, methods[group], seed))
    short = [group for group, left in wanted.items() if left > 0]
    if short:
        raise Refusal(
            f"the {half} half of {path.name} has too few ears of the kind {', '.join(short)}: "
            "ask for fewer"
        )
    return cases


# Summaries -------------------------------------------------------------------------------------


def right(p_notch: Array, notch: bool) -> NDArray[np.bool_]:
    """Whether the likelier hypothesis is the true one; an even chance is not."""
    return np.asarray(p_notch > 0.5 if notch else p_notch < 0.5)


def _right(part: "pl.DataFrame") -> dict[str, Proportion]:
    """Right by the likelier hypothesis: with a notch, without, and both in equal parts."""
    out = {}
    for name, notch in (("with", True), ("without", False)):
        p = part.filter(part["notch"] == notch)["p_notch"].to_numpy()
        out[name] = Proportion(int(right(p, notch).sum()), int(p.size))
    out["both"] = Proportion(
        out["with"].hits + out["without"].hits, out["with"].n + out["without"].n
    )
    return out


def _stopped(part: "pl.DataFrame", settings: NotchSettings) -> dict[str, float]:
    """How a screen ends that stops at its limits: right, wrong, undecided, mean tones."""
    ends, tones = [], []
    for (notch, _), run in part.sort("tones").group_by(("notch", "ear"), maintain_order=True):
        p = run["p_notch"].to_numpy()
        over = np.flatnonzero((p >= settings.notch_at) | (p <= settings.no_notch_at))
        if not over.size:
            ends.append("undecided")
        else:
            ends.append("right" if (p[over[0]] > 0.5) == notch else "wrong")
        tones.append(int(over[0]) + 1 if over.size else TONES)
    fractions = {word: ends.count(word) / len(ends) for word in ("right", "wrong", "undecided")}
    return {**fractions, "mean_tones": float(np.mean(tones))}


def write_notch_results(
    frame: "pl.DataFrame", half: str, command: str, out: Path
) -> dict[str, Any]:
    """results.md, summary.json and the picture; returns the summary."""
    import polars as pl

    page = Page(
        f"The notch on real ears, {half} half of the people",
        command,
        out,
        {"version": __version__, "half": half, "groups": {}},
    )
    page.add(
        f"With: a Gaussian dip of {DEPTH_DB:g} dB (SD half an octave, centre drawn from 3-6 kHz) "
        "added to a real ear that has no notch of its own. Without: the same ear as it is. "
        f"Listeners: spread {SPREAD_DB:g} dB, {LAPSE:.0%} lapses, {GUESS:.0%} guesses. Right: the "
        f"likelier hypothesis after {TONES} tones is the true one. Intervals: Wilson, 95 %."
    )
    curves: dict[str, dict[str, list[tuple[float, float, int]]]] = {}
    for group, words in GROUPS.items():
        rows = frame.filter(pl.col("group") == group)
        if rows.is_empty():
            continue
        numbers = page.summary["groups"][group] = {}
        # All methods in every panel, so that a line looks the same in each.
        curves[group] = {METHOD_WORDS[method]: [] for method in METHODS}
        lines = []
        for method in rows["method"].unique(maintain_order=True):
            part = rows.filter(pl.col("method") == method)
            last = part.filter(pl.col("tones") == part["tones"].max())
            right_of = _right(last)
            numbers[method] = {name: vars(proportion) for name, proportion in right_of.items()}
            cells = [str(right_of[name]) for name in ("both", "with", "without")]
            if method == ALL_KNOWN:
                cells += ["-", "-"]
            else:
                ended = numbers[method]["stopped"] = _stopped(part, METHODS[method])
                cells += [
                    ", ".join(f"{ended[word]:.1%}" for word in ("right", "wrong", "undecided")),
                    f"{ended['mean_tones']:.1f}",
                ]
                curves[group][METHOD_WORDS[method]] = _curve(part)
            lines.append([METHOD_WORDS[method], *cells])
        page.heading(f"{group.capitalize()} ears: {words} ({rows['ear'].n_unique()} ears)")
        page.table(
            (
                "tones chosen by", f"right after {TONES} tones", "with a notch", "without",
                "stopping at P 0.9 / 0.1: right, wrong, undecided", "mean tones",
            ),
            lines,
        )  # fmt: skip
    if "level" in page.summary["groups"]:
        _judge(page)
    page.picture("fraction right by tones", "notch.png")
    figures.save_right_by_tones(curves, out / "notch.png")
    return page.write()


def _judge(page: Page) -> None:
    """What was asked for beside what was reached, and why not more."""
    level = page.summary["groups"]["level"]
    reached, most = (Proportion(**level[name]["both"]) for name in ("differential", ALL_KNOWN))
    asked = f"at least 95 % right within {TONES} tones, level ears"
    page.targets([Target(asked, str(reached), reached.value >= 0.95)])
    page.add(
        f"With all seven thresholds known the same hypotheses are right in {most.value:.1%} of the "
        "level ears: real ears differ so much that a dip of 20 dB and the ups and downs of an ear "
        "without one overlap. On sloping ears they overlap more, and a screen that expects level "
        "ears takes most slopes for a notch."
    )


def _curve(part: "pl.DataFrame") -> list[tuple[float, float, int]]:
    """Fraction right after every tone, and of how many."""
    out = []
    for number in range(1, TONES + 1):
        both = _right(part.filter(part["tones"] == number))["both"]
        out.append((float(number), both.value, both.n))
    return out
