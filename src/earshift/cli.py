"""The command line: thin, and quick to answer `--help` (the engine loads when a command runs)."""

import json
import sys
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import earshift

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from earshift.exam import Exam, Screen
    from earshift.listener import Listener
    from earshift.study import Case

app = typer.Typer(
    name="earshift",
    help="Has this ear's hearing shifted from its reference exam? Decides with a handful of tones.",
    epilog="Research software, not a medical device. See VISION.md and docs/ for what it refuses.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich help costs 0.3 s at every start
    add_completion=False,
    pretty_exceptions_enable=False,
)

Seed = Annotated[int, typer.Option(min=0, help="Where all chance comes from; same seed, same run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output, nothing else.")]

VERDICTS = {
    "changed": "CHANGED: this ear does not hear as it did at the reference exam.",
    "unchanged": "UNCHANGED: this ear hears as it did at the reference exam.",
    "inconclusive": "INCONCLUSIVE: these tones do not decide it.",
}
RULE_VERDICTS = {
    "changed": "CHANGED: the threshold-shift rule is met.",
    "unchanged": "UNCHANGED: the threshold-shift rule is not met.",
    "inconclusive": "INCONCLUSIVE: these tones do not decide whether the rule is met.",
}


def _version(show: bool) -> None:
    if show:
        typer.echo(f"earshift {earshift.__version__}")
        raise typer.Exit()


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Has this ear's hearing shifted from its reference exam?"""


def _fail(message: object) -> typer.Exit:
    typer.secho(f"earshift: {message}", fg="red", err=True)
    return typer.Exit(2)


def _first_exam(listener: "Listener", seed: int, tones: int, quiet: bool, title: str) -> "Exam":
    """A whole first exam of a simulated listener, with a progress bar."""
    from rich.console import Console
    from rich.progress import track

    exam = earshift.Exam(seed=seed, max_tones=tones)
    steps = range(tones)
    console = Console(stderr=True, quiet=quiet)
    for _ in track(steps, description=title, console=console, transient=False):
        tone = exam.ask()
        exam.tell(tone, listener(tone))
    return exam


@app.command()
def simulate(
    old: Annotated[str, typer.Option(help="Hearing-loss class at the reference exam.")] = "normal",
    new: Annotated[str, typer.Option(help="Hearing-loss class now.")] = "normal",
    protocol: Annotated[
        str | None, typer.Option(help="Settings: best (the default) or paper.")
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="Or a threshold-shift rule: osha-sts, niosh-15, msha-sts.")
    ] = None,
    seed: Seed = 0,
    max_tones: Annotated[int, typer.Option(min=1, help="Stop undecided after so many.")] = 30,
    first_tones: Annotated[int, typer.Option(min=1, help="Tones of the reference exam.")] = 50,
    spread: Annotated[float, typer.Option(help="Spread of the simulated listener, dB.")] = 3.0,
    lapse: Annotated[float, typer.Option(help="Share of audible tones missed.")] = 0.0,
    guess: Annotated[float, typer.Option(help="Share of inaudible tones reported.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """One simulated person: a reference exam as class OLD, then a screen as class NEW.

    Classes: normal, slight, mild, moderate, moderately-severe, severe, profound.
    """
    try:
        options = {"spread_db": spread, "lapse": lapse, "guess": guess}
        before = earshift.Listener.of_class(old, seed=(seed, 1), **options)
        after = earshift.Listener.of_class(new, seed=(seed, 2), **options)
        from earshift.change import as_protocol
        from earshift.rules import as_rule

        if rule is not None and protocol is not None:
            raise ValueError("give a rule or a protocol, not both: they ask different questions")
        settings = as_protocol(protocol or "best") if rule is None else None
        asked = None if rule is None else as_rule(rule)
    except ValueError as error:
        raise _fail(error) from None
    first = _first_exam(before, seed, first_tones, as_json, f"reference exam ({old})")
    screen = earshift.Screen(first, settings, rule=asked, seed=seed, max_tones=max_tones)
    if as_json:
        rows = list(_screen_rows(screen, after))
        typer.echo(json.dumps(_simulation(rows, screen), indent=2))
        return
    _live_table(screen, after, f"screen of an ear that was {old} and is {new}")


def _screen_rows(screen: "Screen", listener: "Listener") -> "Iterator[dict[str, Any]]":
    """Run a screen to its end; one row per tone, with the evidence after it."""
    while not screen.done:
        tone = screen.ask()
        heard = listener(tone)
        screen.tell(tone, heard)
        yield {
            **tone.to_dict(),
            "heard": heard,
            "log_bf": screen.log_bf,
            "p_changed": screen.p_changed,
        }


def _simulation(rows: list[dict[str, Any]], screen: "Screen") -> dict[str, Any]:
    decided = screen.decision != "inconclusive"
    return {
        "protocol": screen.protocol.name if screen.rule is None else None,
        "rule": None if screen.rule is None else screen.rule.name,
        "tones": rows,
        "decision": screen.decision,
        "tones_to_decision": len(rows) if decided else None,
    }


def _live_table(screen: "Screen", listener: "Listener", title: str) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    console = Console()
    table = Table(title=title)
    asked = "P(changed)" if screen.rule is None else "P(rule met)"
    for name in ("tone", "frequency", "level", "answer", "log BF", asked):
        table.add_column(name, justify="right")
    with Live(table, console=console, refresh_per_second=8):
        for number, row in enumerate(_screen_rows(screen, listener), start=1):
            table.add_row(
                str(number),
                f"{row['frequency_hz']:.0f} Hz",
                f"{row['level_db_hl']:.0f} dB HL",
                "heard" if row["heard"] else "-",
                f"{row['log_bf']:+.2f}",
                f"{row['p_changed']:.3f}",
            )
    verdict = screen.verdict()
    if not console.is_terminal:
        console.print()  # a live table ends without a line break in a file
    words = VERDICTS if screen.rule is None else RULE_VERDICTS
    console.print(f"[bold]{words[verdict.decision]}[/bold]")
    console.print(str(verdict))


DEMO_OLD, DEMO_NEW = "slight", "mild"


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("earshift-demo"),
    seed: Seed = 1,
    as_json: AsJson = False,
) -> None:
    """The main job in one go: a simulated person, a first exam, then two screens.

    One screen is of the same ear, unchanged; the other of an ear that has lost hearing since.
    """
    from rich.console import Console

    console = Console(quiet=as_json)
    console.print(
        f"A simulated person with {DEMO_OLD} hearing loss. First a full exam of 50 tones; then two "
        "screens against it:\nthe same ear unchanged, and the ear after it fell to "
        f"{DEMO_NEW} loss. The program does not know which is which."
    )
    before = earshift.Listener.of_class(DEMO_OLD, seed=(seed, 1))
    first = _first_exam(before, seed, 50, as_json, "first exam")
    shown = list(first.domain.smooth[0].values)
    reference = first.thresholds(shown)
    from earshift.figures import Panel, save_audiograms

    panels, results = [], {}
    for name, ear in (("an ear that did not change", DEMO_OLD), ("an ear that did", DEMO_NEW)):
        listener = earshift.Listener.of_class(ear, seed=(seed, 2))
        screen = earshift.Screen(first, seed=seed)
        rows = list(_screen_rows(screen, listener))
        verdict = screen.verdict()
        console.print(f"\n[bold]Screen of {name}[/bold]: {len(rows)} tones")
        console.print(f"  {VERDICTS[verdict.decision]}")
        console.print(f"  {verdict}")
        results[ear] = {**verdict.to_dict(), "rows": rows}
        panels.append(
            Panel(
                title=f"screen of {name}",
                reference=reference,
                now=screen.thresholds(shown),
                trials=screen.trials,
                caption=f"{verdict.decision} (P = {verdict.p_changed:.3f}), {len(rows)} tones",
            )
        )
    try:
        picture = save_audiograms(panels, out / "audiograms.png")
    except OSError as error:
        raise _fail(f"cannot write the picture to {out}: {error}") from None
    if as_json:
        typer.echo(json.dumps({"picture": str(picture), "screens": results}, indent=2))
    else:
        typer.echo(f"\nThe two audiograms: {picture}")


study = typer.Typer(
    help="Simulation studies: resumable, on local cores or a Dask cluster.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(study, name="study")

Out = Annotated[Path, typer.Option(help="Folder for rows, tables and pictures; resumed if there.")]
Jobs = Annotated[int, typer.Option(min=1, help="Local worker processes.")]
Cluster = Annotated[
    str | None, typer.Option(help="Address of a Dask scheduler, e.g. tcp://10.0.0.1:8786.")
]
Reps = Annotated[int, typer.Option(min=1, help="Repetitions of every condition.")]


def _run_study(
    cases: "Sequence[Case]", out: Path, jobs: int, cluster: str | None, quiet: bool
) -> "pl.DataFrame":
    """Run cases under a progress bar with the time left."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from earshift.study import run_study

    bar = Progress(
        TextColumn("cases"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
        console=Console(stderr=True, quiet=quiet),
    )
    try:
        with bar:
            task = bar.add_task("cases", total=len(cases))
            return run_study(
                cases,
                out,
                jobs,
                cluster,
                lambda done, total: bar.update(task, completed=done, total=total),
            )
    except KeyboardInterrupt:
        typer.secho(
            f"stopped; what is finished is in {out}, and the same command goes on from there",
            err=True,
        )
        raise typer.Exit(130) from None
    except BrokenExecutor:
        raise _fail("a worker process was killed; the same command goes on from there") from None
    except (ValueError, OSError) as error:
        raise _fail(error) from None
    except ImportError as error:
        raise _fail(f"{error}; studies need pip install 'earshift[study]'") from None


def _finish_study(summary: dict[str, Any], out: Path, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown((out / "results.md").read_text(encoding="utf-8")))
    typer.echo(f"All of it is in {out}")


def _variants(
    cases: "Sequence[Case]",
    title: str,
    command: str,
    out: Path,
    jobs: int,
    cluster: str | None,
    as_json: bool,
) -> None:
    """Run a study that compares variants, write its table and show it."""
    from earshift.results import write_variant_results

    frame = _run_study(cases, out, jobs, cluster, as_json)
    _finish_study(write_variant_results(frame, title, command, out), out, as_json)


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


@study.command("paper")
def study_paper(
    out: Out,
    reps: Reps = 10,
    protocol: Annotated[str, typer.Option(help="Named settings of the change test.")] = "best",
    strategies: Annotated[
        str, typer.Option(help="Comma-separated: differential, bald, uncertainty, random.")
    ] = "differential,bald,uncertainty,random",
    classes: Annotated[
        str | None, typer.Option(help="Comma-separated hearing-loss classes; all seven if absent.")
    ] = None,
    max_tones: Annotated[int, typer.Option(min=1, help="Tones of a screen.")] = 30,
    spread: Annotated[float, typer.Option(help="Spread of the simulated listeners, dB.")] = 3.0,
    jobs: Jobs = 2,
    cluster: Cluster = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """The paper's experiment: every pair of hearing-loss classes, BADS and three baselines.

    Writes one row per tone (tones.parquet), the table of tones to a Bayes factor of 100 beside the
    paper's (results.md, table.csv) and the paper's figures. Killed or stopped, the same command
    goes on where it was.
    """
    from earshift.change import as_protocol
    from earshift.results import write_paper_results
    from earshift.study import paper_cases

    try:
        settings = as_protocol(protocol)
        names = _words(strategies) or []
        cases = paper_cases(
            settings, reps, _words(classes), names, seed, max_tones=max_tones, spread_db=spread
        )
        if not spread > 0:
            raise ValueError(f"spread must be positive, got {spread}")
    except ValueError as error:
        raise _fail(error) from None
    frame = _run_study(cases, out, jobs, cluster, as_json)
    command = (
        f"earshift study paper --reps {reps} --protocol {protocol} --strategies {strategies} "
        f"--max-tones {max_tones} --spread {spread:g} --seed {seed}"
    )
    if classes is not None:
        command += f" --classes {classes}"
    _finish_study(write_paper_results(frame, settings, max_tones, command, out), out, as_json)


@study.command("options")
def study_options(
    out: Out,
    reps: Reps = 2,
    jobs: Jobs = 2,
    cluster: Cluster = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """The paper's experiment under every protocol option that the paper leaves open."""
    from earshift.study import option_cases

    title = "Protocol options (theta_g, rho_weights, evidence, hyperprior_g)"
    command = f"earshift study options --reps {reps} --seed {seed}"
    _variants(option_cases(reps, seed), title, command, out, jobs, cluster, as_json)


@study.command("sensitivity")
def study_sensitivity(
    out: Out,
    reps: Reps = 2,
    protocol: Annotated[str, typer.Option(help="Named settings of the change test.")] = "best",
    jobs: Jobs = 2,
    cluster: Cluster = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """The paper's experiment when listeners or assumptions are others: spread, lapses, priors."""
    from earshift.change import as_protocol
    from earshift.study import sensitivity_cases

    try:
        cases = sensitivity_cases(as_protocol(protocol), reps, seed)
    except ValueError as error:
        raise _fail(error) from None
    title = f"Sensitivity of protocol `{protocol}`"
    command = f"earshift study sensitivity --protocol {protocol} --reps {reps} --seed {seed}"
    _variants(cases, title, command, out, jobs, cluster, as_json)


@study.command("ears")
def study_ears(
    out: Out,
    ears: Annotated[Path, typer.Option(help="CSV of real ears: SEQN and thresholds by frequency.")],
    half: Annotated[str, typer.Option(help="Which half of the people: tuning or held-back.")] = (
        "held-back"
    ),
    protocols: Annotated[
        str, typer.Option(help="Comma-separated protocols, or `candidates` for the tuning table.")
    ] = "best,paper",
    reps: Reps = 25,
    jobs: Jobs = 2,
    cluster: Cluster = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Real ears: each against itself and against a random ear of every other class."""
    from earshift.change import as_protocol
    from earshift.study import HALVES, best_candidates, ear_cases, read_ears

    try:
        if half not in HALVES:
            raise ValueError(f"half must be one of {', '.join(HALVES)}, got {half!r}")
        chosen = (
            best_candidates()
            if protocols == "candidates"
            else [as_protocol(name) for name in _words(protocols) or []]
        )
        cases = ear_cases(chosen, read_ears(ears, half), reps, seed)
    except (ValueError, OSError) as error:
        raise _fail(error) from None
    title = f"Real ears (NHANES 2011-2016), {half} half of the people"
    command = (
        f"earshift study ears --half {half} --protocols {protocols} --reps {reps} --seed {seed}"
    )
    _variants(cases, title, command, out, jobs, cluster, as_json)


audiograms = typer.Typer(
    help="Audiograms of a population.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(audiograms, name="audiograms")


@audiograms.callback()
def _audiograms() -> None:
    """Audiograms of a population."""


@audiograms.command("classes")
def audiogram_classes(
    files: Annotated[list[Path], typer.Argument(help="Raw files of one source.")],
    source: Annotated[str, typer.Option(help="nhanes (XPT files) or niosh (CSV files).")],
    as_json: AsJson = False,
) -> None:
    """Median audiogram of every hearing-loss class, recomputed from raw files.

    Classes by the mean threshold at 500, 1000 and 2000 Hz. Only ears with all seven thresholds
    count; missing-value codes are never averaged. NHANES publishes the people of 2017-18 (AUX_J)
    again within 2017-20 (P_AUX): give only one of the two.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Table

    from earshift.classes import FREQUENCIES_HZ, class_medians
    from earshift.formats import read_ears

    bar = Progress(
        TextColumn(source),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, quiet=as_json),
    )
    try:
        with bar:
            task = bar.add_task(source, total=None)
            table = class_medians(
                read_ears(source, files),
                lambda done, total: bar.update(task, completed=done, total=total),
            )
    except (ValueError, OSError) as error:
        raise _fail(error) from None
    if as_json:
        typer.echo(json.dumps(table.to_dict(), indent=2))
        return
    picture = Table(title="Median thresholds (dB HL) by hearing-loss class")
    for name in ("class", "PTA", "ears", *(f"{f} Hz" for f in FREQUENCIES_HZ)):
        picture.add_column(name, justify="right")
    for row in table.rows():
        medians = row["median_db_hl"] or ["-"] * len(FREQUENCIES_HZ)
        few = " (few)" if row["low_n"] else ""
        picture.add_row(
            row["class"],
            row["pta_db_hl"],
            f"{row['ears']}{few}",
            *(m if isinstance(m, str) else f"{m:g}" for m in medians),
        )
    console = Console()
    console.print(picture)
    console.print(f"{table.n} ears used, {table.n_left_out} left out: {dict(table.left_out)}")


if __name__ == "__main__":
    sys.exit(app())
