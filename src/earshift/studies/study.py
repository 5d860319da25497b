"""Simulation studies: design x listener x seed -> rows -> summary.

The only place that sees truth and engine together. A study is a list of cases; a case is one first
exam and all screens against it, and depends on nothing but itself, so cases run in any order, on
local cores or on a Dask cluster, and give the same rows. Every finished case is a file of its own,
written whole or not at all: a killed study goes on where it was.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from typing import Protocol as Interface

import numpy as np

from earshift import __version__
from earshift.engine import norms
from earshift.engine.domain import DOMAINS
from earshift.engine.exam import Exam
from earshift.engine.protocol import OPTIONS, PROTOCOLS, Protocol
from earshift.engine.refusal import Refusal
from earshift.engine.screen import Screen
from earshift.simulate.classes import classify
from earshift.simulate.listener import Listener

if TYPE_CHECKING:
    import polars as pl

BASELINES = ("bald", "uncertainty", "random")
STRATEGIES = ("differential", *BASELINES)
BASELINE_TONES = 50
FIRST_TONES = 50

COLUMNS = (
    "protocol",
    "strategy",
    "old",
    "new",
    "rep",
    "tone",
    "frequency_hz",
    "level_db_hl",
    "heard",
    "log_bf",
    "p_changed",
)
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Ear:
    """A simulated ear: a name for the rows and its true thresholds."""

    name: str
    thresholds_db_hl: tuple[tuple[float, float], ...]

    @classmethod
    def of_class(cls, name: str) -> "Ear":
        return cls(name, tuple(norms.class_median(name).items()))


@dataclass(frozen=True)
class Case:
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
    columns: ClassVar[tuple[str, ...]] = COLUMNS

    @property
    def key(self) -> str:
        return key_of(self)

    def rows(self) -> list[Row]:
        return run_case(self)


def key_of(case: Any) -> str:
    """Names a case's file; changes with anything that changes its rows."""
    text = json.dumps([asdict(case), __version__], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def seed_of(*parts: object) -> int:
    """A seed from names and numbers, the same on every machine."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:6], "big")


def run_case(case: Case) -> list[Row]:
    """All rows of a case. Every strategy meets the same first exam and the same listener draws."""
    options = {"spread_db": case.spread_db, "lapse": case.lapse, "guess": case.guess}
    first = Exam(
        seed=seed_of(case.seed, case.rep, case.old.name),
        max_tones=FIRST_TONES,
        domain=DOMAINS[case.domain],
    )
    listener = Listener(
        dict(case.old.thresholds_db_hl),
        seed=seed_of(case.seed, case.rep, case.old.name, "first"),
        **options,
    )
    while not first.done:
        tone = first.ask()
        first.tell(tone, listener(tone))
    rows: list[Row] = []
    for new in case.news:
        for strategy in case.strategies:
            rows += _screen(case, first, new, strategy, options)
    return rows


def _screen(
    case: Case, first: Exam, new: Ear, strategy: str, options: dict[str, float]
) -> Iterator[Row]:
    tones = max(case.max_tones, BASELINE_TONES) if strategy in BASELINES else case.max_tones
    names = (case.seed, case.rep, case.old.name, new.name)
    screen = Screen(
        first, replace(case.protocol, strategy=strategy), seed=seed_of(*names), max_tones=tones
    )
    listener = Listener(dict(new.thresholds_db_hl), seed=seed_of(*names, "screen"), **options)
    limit = math.log(case.protocol.bayes_factor)
    for number in range(1, tones + 1):
        tone = screen.ask()
        heard = listener(tone)
        screen.tell(tone, heard)
        yield (
            case.label,
            strategy,
            case.old.name,
            new.name,
            case.rep,
            number,
            tone.frequency_hz,
            tone.level_db_hl,
            heard,
            screen.log_bf,
            screen.p_changed,
        )
        right = -screen.log_bf if new.name == case.old.name else screen.log_bf
        if case.until_right and right >= limit:
            return


# Running cases ---------------------------------------------------------------------------------


class Work(Interface):
    """A piece of a study: its own rows, under its own name, depending on nothing but itself."""

    columns: ClassVar[tuple[str, ...]]

    @property
    def key(self) -> str: ...

    def rows(self) -> list[Row]: ...


def run_study(
    cases: Sequence[Work],
    out: Path,
    jobs: int = 1,
    cluster: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> "pl.DataFrame":
    """Run what is missing and return all rows, in the order of the cases."""
    if not cases:
        raise Refusal("a study needs at least one case: name a class, a strategy, a protocol")
    if len({case.key for case in cases}) != len(cases):
        raise Refusal("the same case is given twice, which would count it twice")
    parts = out / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    paths = {case.key: parts / f"{case.key}.parquet" for case in cases}
    missing = [case for case in cases if not paths[case.key].exists()]
    done = len(cases) - len(missing)
    progress(done, len(cases))
    start = time.monotonic()
    with closing(_results(missing, jobs, cluster)) as results:
        for case, rows in results:
            _write_whole(_frame(rows, case.columns), paths[case.key])
            done += 1
            progress(done, len(cases))
    if missing:
        where = f"the cluster at {cluster}" if cluster else f"{jobs} local processes"
        _add_effort(out, len(missing), time.monotonic() - start, where)
    import polars as pl

    frame = pl.concat([pl.read_parquet(paths[case.key]) for case in cases])
    _write_whole(frame, out / "tones.parquet")
    return frame


def _add_effort(out: Path, cases: int, seconds: float, where: str) -> None:
    """Remember how long the study took; a resumed one adds a line."""
    with (out / "effort.txt").open("a", encoding="utf-8") as file:
        file.write(f"{cases} cases in {seconds:.0f} s on {where}\n")


def effort_of(out: Path) -> str:
    """How long the study took, over all runs that were needed."""
    path = out / "effort.txt"
    return "; ".join(path.read_text(encoding="utf-8").splitlines()) if path.exists() else ""


def _frame(rows: list[Row], columns: tuple[str, ...] = COLUMNS) -> "pl.DataFrame":
    import polars as pl

    return pl.DataFrame(rows, schema=list(columns), orient="row", infer_schema_length=None)


def _write_whole(frame: "pl.DataFrame", path: Path) -> None:
    """Write a Parquet file that is there whole or not at all, whenever the process dies."""
    partial = path.with_suffix(f".{os.getpid()}.partial")
    frame.write_parquet(partial)
    os.replace(partial, path)


def _results(
    cases: Sequence[Work], jobs: int, cluster: str | None
) -> Generator[tuple[Work, list[Row]], None, None]:
    if not cases:
        return
    if cluster is not None:
        yield from _on_cluster(cases, cluster)
    elif jobs == 1:
        for case in cases:
            yield case, case.rows()
    else:
        from joblib import Parallel, delayed

        # Worker processes are the parallelism: joblib keeps their linear algebra to one thread.
        pool = Parallel(n_jobs=jobs, return_as="generator_unordered")
        yield from pool(delayed(_case_and_rows)(case) for case in cases)


def _case_and_rows(case: Work) -> tuple[Work, list[Row]]:
    return case, case.rows()


def _rows(case: Work) -> list[Row]:
    return case.rows()


def _on_cluster(cases: Sequence[Work], address: str) -> Iterator[tuple[Work, list[Row]]]:
    try:
        from distributed import Client
        from distributed import as_completed as as_gathered
    except ImportError:
        raise Refusal("a cluster needs the extra parts: pip install 'earshift[cluster]'") from None
    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError, TimeoutError) as error:
        raise Refusal(f"no Dask scheduler answers at {address!r}: {error}") from None
    with client:
        futures = client.map(_rows, cases, key=[f"earshift-{case.key}" for case in cases])
        by_key = {future.key: case for future, case in zip(futures, cases, strict=True)}
        for future in as_gathered(futures):
            if future.status != "finished":
                reason = future.exception() if future.status == "error" else future.status
                raise Refusal(f"the cluster at {address} lost a case: {reason}")
            yield by_key[future.key], future.result()


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
    share = {word: outcomes.count(word) / len(runs) for word in ("right", "wrong", "undecided")}
    return Tally(
        runs=len(runs),
        mean_tones=float(tones.mean()),
        sd_tones=float(tones.std(ddof=1)) if len(runs) > 1 else 0.0,
        never=sum(not run.reached for run in runs),
        right=share["right"],
        wrong=share["wrong"],
        undecided=share["undecided"],
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
    **options: Any,
) -> list[Case]:
    """The paper's experiment: all pairs of (old, new) classes, so many repetitions of each."""
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
    return [
        Case(
            label=label or protocol.name,
            protocol=protocol,
            strategies=tuple(strategies),
            old=old,
            news=ears,
            rep=rep,
            seed=seed,
            **options,
        )
        for rep in range(reps)
        for old in ears
    ]


def option_protocols() -> list[Protocol]:
    """Every combination of the choices the paper leaves open, and the two named protocols."""
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


def option_cases(reps: int, seed: int = 0) -> list[Case]:
    """The paper's experiment under every protocol option; tones counted, curves not needed."""
    return [
        case
        for protocol in option_protocols()
        for case in paper_cases(
            protocol, reps, strategies=("differential",), seed=seed, until_right=True
        )
    ]


def sensitivity_cases(protocol: Protocol, reps: int, seed: int = 0) -> list[Case]:
    """The paper's experiment under one protocol when the listener or the model is another."""
    variants: list[tuple[str, Protocol, dict[str, Any]]] = []
    for spread in (1.0, 2.0, 3.0, 4.0, 6.0, 8.0):
        variants.append((f"spread {spread:g} dB", protocol, {"spread_db": spread}))
    for reading in norms.reading_sds():
        changed = replace(protocol, reading_sd_db=reading)
        variants.append((f"hyperprior for readings of SD {reading:g} dB", changed, {}))
    for scale in (0.5, 1.0, 2.0):
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


def best_candidates() -> list[Protocol]:
    """The settings among which `best` was chosen, on real ears of the tuning half."""
    coherent = Protocol(theta_g="shared", rho_weights="posterior", evidence="laplace")
    tried: list[dict[str, Any]] = [
        {},
        {"theta_g": "per_rho"},
        {"theta_g": "per_rho", "rho_weights": "prior"},
        {"evidence": "running", "rho_weights": "prior"},
        {"hyperprior_g": "population"},
    ]
    for low, high in ((-1.0, 0.8), (-0.5, 0.6), (-0.5, 0.7), (-0.5, 0.8), (0.0, 0.7)):
        tried.append({"rho_points": 10, "rho_low": low, "rho_high": high})
    for scale in (0.7, 1.4):
        narrow = {"rho_points": 10, "rho_low": -0.5, "rho_high": 0.7}
        tried.append({**narrow, "prior_scale": scale})
    return [
        replace(
            coherent,
            name=", ".join(f"{key} {value}" for key, value in changes.items()) or "coherent",
            **changes,
        )
        for changes in tried
    ]


HALVES = {"tuning": 0, "held-back": 1}  # by parity of the person's number; norms.json uses 0


def read_half(path: Path, half: str, ears: bool = False) -> tuple["pl.DataFrame", list[str]]:
    """The rows of one half of the people, checked, and the names of the frequencies' columns.

    With `ears`, also which ear it was (R or L).
    """
    import polars as pl

    if half not in HALVES:
        raise Refusal(f"half must be one of {', '.join(HALVES)}, got {half!r}")
    frequencies = [str(int(f)) for f in norms.tables()["class_medians"]["frequencies_hz"]]
    try:
        table = pl.read_csv(path)
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise Refusal(f"{path.name} is not a readable CSV file: {reason}") from None
    numbers = ["SEQN", *frequencies]
    columns = [*numbers, "ear"] if ears else numbers
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise Refusal(f"{path.name} lacks the columns {', '.join(missing)}")
    wanted = table.select(columns)
    bad = [name for name in numbers if not wanted[name].dtype.is_numeric()]
    if bad or any(wanted[name].null_count() for name in wanted.columns):
        raise Refusal(f"{path.name} has cells that are no numbers; every ear needs all of them")
    return wanted.filter(pl.col("SEQN") % 2 == HALVES[half]), frequencies


def people(path: Path, half: str, count: int | None, seed: int = 0) -> list[Ear]:
    """One ear each of so many people (None: all), drawn from one half of them."""
    rows, frequencies = read_half(path, half)
    ears = rows.sample(fraction=1.0, shuffle=True, seed=seed)
    ears = ears.unique("SEQN", keep="first", maintain_order=True)
    if count is None:
        count = ears.height
    if ears.height < count:
        raise Refusal(f"the {half} half of {path.name} has {ears.height} people, not {count}")
    return [
        Ear(f"person {row['SEQN']}", tuple((float(f), float(row[f])) for f in frequencies))
        for row in ears.head(count).iter_rows(named=True)
    ]


def read_ears(path: Path, half: str) -> dict[str, list[Ear]]:
    """Real ears of one half of the people, by class: a CSV with SEQN and thresholds by frequency.

    The profound class is left out: hardly anybody, and most tones are beyond the domain.
    """
    rows, frequencies = read_half(path, half)
    out: dict[str, list[Ear]] = {name: [] for name in norms.class_names()}
    for row in rows.iter_rows(named=True):
        levels = [float(row[f]) for f in frequencies]
        name = classify(sum(levels[:3]) / 3)
        ears = out[name]
        pairs = tuple((float(f), level) for f, level in zip(frequencies, levels, strict=True))
        ears.append(Ear(f"{name}:{len(ears)}", pairs))
    del out["profound"]
    empty = [name for name, ears in out.items() if not ears]
    if empty:
        raise Refusal(f"the {half} half of {path.name} has no ear of class {', '.join(empty)}")
    return out


def ear_cases(
    protocols: Sequence[Protocol], ears: dict[str, list[Ear]], reps: int, seed: int = 0
) -> list[Case]:
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
                    Case(
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
