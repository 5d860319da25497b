"""The paper's experiment: pairs of hearing-loss classes, its options, sensitivity, and real ears.

A case is one first exam of an old ear and all screens of new ears against it. The only place that
sees truth and engine together.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from earshift.engine import norms
from earshift.engine.domain import DOMAINS
from earshift.engine.exam import Exam
from earshift.engine.protocol import OPTIONS, PROTOCOLS, Protocol
from earshift.engine.refusal import Refusal
from earshift.engine.screen import Screen
from earshift.simulate.listener import Listener
from earshift.simulate.run import run, steps
from earshift.studies.case import Case, Ear, Row, seed_of

if TYPE_CHECKING:
    import polars as pl

BASELINES = ("bald", "uncertainty", "random")
STRATEGIES = ("differential", *BASELINES)
BASELINE_TONES = 30
FIRST_TONES = 50
CURVE_TONES = 15  # every screen of the paper's experiment goes on so far: the paper's curves do
PANELS = (("normal", "normal"), ("normal", "slight"), ("moderate", "moderately-severe"))


@dataclass(frozen=True)
class PaperCase(Case):
    """One first exam of an old ear, and screens of new ears against it."""

    label: str  # goes into the rows as `protocol`
    protocol: Protocol
    strategies: tuple[str, ...]
    old: Ear
    news: tuple[Ear, ...]
    rep: int
    seed: int = 0
    max_tones: int = 30
    spread_db: float = 3.0
    lapse: float = 0.0
    guess: float = 0.0
    domain: str = "fine"
    until_right: bool = False  # stop a screen once the right model has won: enough for a table
    least_tones: int = 0  # but not before so many tones: enough for a curve
    columns: ClassVar[tuple[str, ...]] = (
        "protocol", "strategy", "old", "new", "rep", "tone", "frequency_hz", "level_db_hl",
        "heard", "log_bf", "p_changed",
    )  # fmt: skip

    def rows(self) -> list[Row]:
        """Every strategy meets the same first exam and the same listener draws."""
        first = first_exam(
            self.old, self.seed, self.rep, self.spread_db, self.lapse, self.guess, self.domain
        )
        return [
            row
            for new in self.news
            for strategy in self.strategies
            for row in self._screen(first, new, strategy)
        ]

    def _screen(self, first: Exam, new: Ear, strategy: str) -> Iterator[Row]:
        tones = max(self.max_tones, BASELINE_TONES) if strategy in BASELINES else self.max_tones
        names = (self.seed, self.rep, self.old.name, new.name)
        protocol = replace(self.protocol, strategy=strategy)
        screen = Screen(first, protocol, seed=seed_of(*names), max_tones=tones)
        listener = Listener(
            dict(new.thresholds_db_hl),
            spread_db=self.spread_db,
            lapse=self.lapse,
            guess=self.guess,
            seed=seed_of(*names, "screen"),
        )
        limit, won = math.log(self.protocol.bayes_factor), False
        for number, (tone, heard) in enumerate(steps(screen, listener, tones), start=1):
            yield (
                self.label, strategy, self.old.name, new.name, self.rep, number,
                tone.frequency_hz, tone.level_db_hl, heard, screen.log_bf, screen.p_changed,
            )  # fmt: skip
            right = -screen.log_bf if new.name == self.old.name else screen.log_bf
            won = won or right >= limit
            if self.until_right and won and number >= self.least_tones:
                return


@lru_cache(maxsize=1024)
def first_exam(
    old: Ear, seed: int, rep: int, spread_db: float, lapse: float, guess: float, domain: str
) -> Exam:
    """The first exam of an ear; kept, since all protocols refer to it and none changes it."""
    names = (seed, rep, old.name)
    exam = Exam(seed=seed_of(*names), max_tones=FIRST_TONES, domain=DOMAINS[domain])
    listener = Listener(
        dict(old.thresholds_db_hl),
        spread_db=spread_db,
        lapse=lapse,
        guess=guess,
        seed=seed_of(*names, "first"),
    )
    run(exam, listener)
    return exam


# Summaries -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One screen, summed up: when the right model won, and how the two-sided rule ended."""

    label: str
    strategy: str
    old: str
    new: str
    rep: int
    tones_to_right: int  # max_tones + 1 when it never did
    reached: bool
    outcome: str  # right, wrong or undecided, by whichever limit was met first
    tones_to_outcome: int  # max_tones when undecided


def runs_of(frame: "pl.DataFrame", max_tones: int, bayes_factor: float = 100.0) -> list[Run]:
    """Sum up every screen of a study, counting at most max_tones."""
    limit = math.log(bayes_factor) - 1e-12
    names = ("protocol", "strategy", "old", "new", "rep")
    out = []
    for key, part in frame.sort("tone").group_by(names, maintain_order=True):
        label, strategy, old, new, rep = key
        log_bf = part["log_bf"].to_numpy()[:max_tones]
        right = -log_bf if old == new else log_bf
        wins, losses = np.flatnonzero(right >= limit), np.flatnonzero(right <= -limit)
        first_win = int(wins[0]) + 1 if wins.size else max_tones + 1
        first_loss = int(losses[0]) + 1 if losses.size else max_tones + 1
        if not wins.size and not losses.size:
            outcome = "undecided"
        else:
            outcome = "right" if first_win < first_loss else "wrong"
        out.append(
            Run(
                label=str(label),
                strategy=str(strategy),
                old=str(old),
                new=str(new),
                rep=int(str(rep)),
                tones_to_right=first_win,
                reached=bool(wins.size),
                outcome=outcome,
                tones_to_outcome=min(first_win, first_loss, max_tones),
            )
        )
    return out


@dataclass(frozen=True)
class Tally:
    """A group of runs in numbers."""

    runs: int
    mean_tones: float  # to the right model, never counting as max + 1
    sd_tones: float
    never: int
    right: float
    wrong: float
    undecided: float
    mean_tones_two_sided: float


def tally(runs: Sequence[Run]) -> Tally:
    """Means over runs; a group that is empty is an error of the caller."""
    tones = np.array([run.tones_to_right for run in runs], dtype=float)
    outcomes = [run.outcome for run in runs]
    fraction = {word: outcomes.count(word) / len(runs) for word in ("right", "wrong", "undecided")}
    return Tally(
        runs=len(runs),
        mean_tones=float(tones.mean()),
        sd_tones=float(tones.std(ddof=1)) if len(runs) > 1 else 0.0,
        never=sum(not run.reached for run in runs),
        right=fraction["right"],
        wrong=fraction["wrong"],
        undecided=fraction["undecided"],
        mean_tones_two_sided=float(np.mean([run.tones_to_outcome for run in runs])),
    )


def decidable(run: Run) -> bool:
    """All cells but profound to profound, where every answer is "not heard" (as in the paper)."""
    return not run.old == run.new == "profound"


DISTANCES = ("same", "adjacent", "far")


def distance(run: Run) -> str:
    """same, adjacent or far, by the order of the classes."""
    order = norms.class_names()
    steps = abs(order.index(class_of(run.old)) - order.index(class_of(run.new)))
    return DISTANCES[min(steps, 2)]


def class_of(ear: str) -> str:
    """The hearing-loss class in an ear's name: a class median is "mild", a real ear "mild:12"."""
    return ear.partition(":")[0]


def paired_difference(
    runs: Sequence[Run], strategy: str, against: str, draws: int = 10_000
) -> tuple[float, float, float]:
    """Mean difference in tones to the right model, strategy minus the other, with a 95 % interval.

    Paired over (old, new, rep), bootstrapped over the pairs.
    """
    tones = {(r.strategy, r.old, r.new, r.rep): r.tones_to_right for r in runs}
    pairs = [k[1:] for k in tones if k[0] == strategy and (against, *k[1:]) in tones]
    if not pairs:
        raise Refusal(f"no runs of both {strategy} and {against} to compare")
    gaps = np.array([tones[(strategy, *k)] - tones[(against, *k)] for k in pairs], dtype=float)
    rng = np.random.default_rng(0)
    means = gaps[rng.integers(gaps.size, size=(draws, gaps.size))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(gaps.mean()), float(low), float(high)


# Designs ---------------------------------------------------------------------------------------


def paper_cases(
    protocol: Protocol,
    reps: int = 10,
    classes: Sequence[str] | None = None,
    strategies: Sequence[str] = STRATEGIES,
    seed: int = 0,
    label: str | None = None,
    baseline_reps: int | None = None,
    panel_reps: int = 0,
    **options: Any,
) -> list[PaperCase]:
    """The paper's experiment: all pairs of (old, new) classes, so many repetitions of each.

    Baselines may have fewer repetitions, and the pairs of the figure's panels more, of all
    strategies: what they are compared by.
    """
    names = tuple(norms.class_names() if classes is None else classes)
    for what, given in (("class", names), ("strategy", tuple(strategies))):
        if not given:
            raise Refusal(f"name at least one {what}")
        if len(set(given)) != len(given):
            raise Refusal(f"a {what} is given twice: {', '.join(given)}")
    ears = tuple(Ear.of_class(name) for name in names)
    for strategy in strategies:
        if strategy not in STRATEGIES:
            raise Refusal(f"unknown strategy {strategy!r}; known: {', '.join(STRATEGIES)}")
    everywhere = dict.fromkeys(strategies, reps)
    if baseline_reps is not None:
        everywhere |= {name: min(reps, baseline_reps) for name in BASELINES if name in everywhere}
    cases = []
    for rep in range(max(reps, panel_reps)):
        for old in ears:
            on_panels = tuple(new for new in ears if (old.name, new.name) in PANELS)
            full = tuple(name for name in strategies if rep < everywhere[name])
            rest = tuple(name for name in strategies if name not in full)
            for given, news in ((full, ears), (rest, on_panels if rep < panel_reps else ())):
                if given and news:
                    cases.append(
                        PaperCase(
                            label=label or protocol.name,
                            protocol=protocol,
                            strategies=given,
                            old=old,
                            news=news,
                            rep=rep,
                            seed=seed,
                            **options,
                        )
                    )
    return cases


def option_protocols() -> list[Protocol]:
    """Every combination of the choices the paper leaves open, and the named protocols."""
    out = []
    for theta_g, weights, evidence, centre in product(*OPTIONS.values()):
        if theta_g == "fixed" and evidence == "laplace":
            continue  # nothing is fitted, so there is nothing to integrate: the same as plug_in
        out.append(
            Protocol(
                name=f"{theta_g}, {weights}, {evidence}, {centre}",
                theta_g=theta_g,
                rho_weights=weights,
                evidence=evidence,
                hyperprior_g=centre,
            )
        )
    return [*out, *PROTOCOLS.values()]


def option_cases(reps: int, seed: int = 0) -> list[PaperCase]:
    """The paper's experiment under every protocol option; tones counted, curves not needed."""
    return [
        case
        for protocol in option_protocols()
        for case in paper_cases(
            protocol, reps, strategies=("differential",), seed=seed, until_right=True
        )
    ]


def sensitivity_cases(protocol: Protocol, reps: int, seed: int = 0) -> list[PaperCase]:
    """The paper's experiment under one protocol when the listener or the model is another."""
    variants: list[tuple[str, Protocol, dict[str, Any]]] = []
    for spread in (1.0, 2.0, 3.0, 4.0, 6.0, 8.0):
        variants.append((f"spread {spread:g} dB", protocol, {"spread_db": spread}))
    for reading in norms.reading_sds():
        changed = replace(protocol, reading_sd_db=reading)
        variants.append((f"hyperprior for readings of SD {reading:g} dB", changed, {}))
    if protocol.alternative == "shift":
        for share in (0.0, 0.05, 0.15, 0.25):
            changed = replace(protocol, rough_share=share)
            variants.append((f"rough shifts {share:.0%}", changed, {}))
    else:
        for scale in (0.5, 1.0, 2.0, 4.0):
            changed = replace(protocol, prior_scale=scale)
            variants.append((f"hyperprior of theta_g, SDs x {scale:g}", changed, {}))
    for domain in DOMAINS:
        variants.append((f"tone grid {domain}", protocol, {"domain": domain}))
    for lapse in (0.0, 0.01, 0.02, 0.05):
        variants.append((f"lapses {lapse:.0%}, not modelled", protocol, {"lapse": lapse}))
    for lapse in (0.01, 0.02, 0.05):
        aware = replace(protocol, lapse=lapse)
        variants.append((f"lapses {lapse:.0%}, modelled", aware, {"lapse": lapse}))
    return [
        case
        for label, changed, options in variants
        for case in paper_cases(
            changed,
            reps,
            strategies=("differential",),
            seed=seed,
            label=label,
            until_right=True,
            **options,
        )
    ]


FLOORS = (0.0, 0.02, 0.04, 0.05, 0.1)


def floor_cases(protocol: Protocol, reps: int, seed: int = 0) -> list[PaperCase]:
    """The paper's experiment when the model takes no answer for rarer than a floor.

    The listeners neither guess nor lapse. It shows what would make cells slower in which one
    surprising answer decides.
    """
    return [
        case
        for floor in FLOORS
        for case in paper_cases(
            replace(protocol, guess=floor, lapse=floor),
            reps,
            strategies=("differential",),
            seed=seed,
            label=f"{protocol.name}, no answer rarer than {floor:.0%}",
            until_right=True,
        )
    ]


def best_candidates() -> list[Protocol]:
    """The settings among which `best` was chosen, on real ears of the tuning half.

    Rough shifts of about 30 dB, and those without a direction to speak of.
    """
    narrow = PROTOCOLS["best-0.1"]
    moved = Protocol(alternative="shift")
    rough = [(0.0, 3.0), (0.25, 3.0), (0.5, 3.0)] + [(s, 0.5) for s in (0.05, 0.1, 0.15, 0.2, 0.25)]
    return [
        PROTOCOLS["best"],
        *(
            replace(
                moved, name=f"shift, rough {share:.0%} of {10 * size:g} dB",
                rough_share=share, rough_size=size,
            )
            for share, size in rough
            if (share, size) != (PROTOCOLS["best"].rough_share, PROTOCOLS["best"].rough_size)
        ),
        replace(narrow, name="conjoint, correlations -0.5 to 0.7 (best-0.1)"),
        replace(narrow, name="conjoint, SDs x 2", prior_scale=2.0),
        replace(narrow, name="conjoint, correlations -1 to 1", rho_low=-1.0, rho_high=1.0),
    ]  # fmt: skip


def ear_cases(
    protocols: Sequence[Protocol], ears: dict[str, list[Ear]], reps: int, seed: int = 0
) -> list[PaperCase]:
    """Real ears: each old ear against itself and against a random ear of every other class.

    All protocols meet the same ears.
    """
    cases = []
    for protocol in protocols:
        rng = np.random.default_rng((seed, 17))
        for name, group in ears.items():
            for rep in range(reps):
                old = group[rng.integers(len(group))]
                others = [
                    other[rng.integers(len(other))] for key, other in ears.items() if key != name
                ]
                cases.append(
                    PaperCase(
                        label=protocol.name,
                        protocol=protocol,
                        strategies=("differential",),
                        old=old,
                        news=(old, *others),
                        rep=rep,
                        seed=seed,
                        until_right=True,
                    )
                )
    return cases
