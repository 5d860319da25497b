"""Studies with simulated and real ears, and the audiograms of a population."""

import json
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earshift.cli.app import AsJson, Seed, app, fail
from earshift.engine.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl

    from earshift.studies.case import Case

study = typer.Typer(
    help="Simulation studies: resumable, on local cores or a Dask cluster.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(study, name="study")

Out = Annotated[Path, typer.Option(help="Folder for rows, tables, pictures; resumed if it exists.")]
Jobs = Annotated[int, typer.Option(min=1, help="Local worker processes.")]
Cluster = Annotated[
    str | None, typer.Option(help="Address of a Dask scheduler, e.g. tcp://10.0.0.1:8786.")
]
Reps = Annotated[int, typer.Option(min=1, help="Repetitions of every condition.")]


def _retired(why: str) -> Any:
    """An option of 0.1.0 that is taken as before, so that scripts still run, but warns."""
    says = f"No longer does anything: {why}."

    def warn(context: typer.Context, option: typer.CallbackParam, value: int) -> int:
        source = context.get_parameter_source(str(option.name))
        if source is not None and source.name != "DEFAULT":
            typer.secho(f"earshift: {option.opts[0]}: {says}", fg="yellow", err=True)
        return value

    return typer.Option(min=0, callback=warn, help=says)


Full = Annotated[int, _retired("no full audiograms follow; --exams has those of first exams")]
Frontier = Annotated[int, _retired("all screens decide by one Bayes factor, at no other limits")]
Sensitivity = Annotated[int, _retired("screens of both ears rest on one belief about their tie")]


def _run_study(
    cases: "Sequence[Case]",
    out: Path,
    jobs: int,
    cluster: str | None,
    quiet: bool,
    title: str = "cases",
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

    from earshift.studies.run import run_study

    bar = Progress(
        TextColumn(title),
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
            f"stopped; finished cases are in {out}, and the same command resumes from there",
            err=True,
        )
        raise typer.Exit(130) from None
    except BrokenExecutor:
        raise fail("a worker process was killed; run the same command to resume") from None
    except (ValueError, OSError) as error:
        raise fail(error) from None
    except ImportError as error:
        raise fail(f"{error}; studies need pip install 'earshift[study]'") from None


@contextmanager
def _cases_of_real_ears() -> "Iterator[None]":
    """Around the reading of real ears: one line says what is wrong with them."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise fail(error) from None
    except ImportError as error:
        raise fail(f"{error}; studies need pip install 'earshift[study]'") from None


def _run_parts(
    parts: "Mapping[str, Sequence[Case]]",
    out: Path,
    jobs: int,
    cluster: str | None,
    quiet: bool,
) -> "dict[str, pl.DataFrame]":
    """Run a study of several parts, each in its own folder; empty ones are left out."""
    return {
        name: _run_study(cases, out / name, jobs, cluster, quiet, name)
        for name, cases in parts.items()
        if cases
    }


def _finish_study(summary: dict[str, Any], out: Path, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown((out / "results.md").read_text(encoding="utf-8")))
    typer.echo(f"Everything is in {out}")


def _variants(
    cases: "Sequence[Case]",
    title: str,
    command: str,
    out: Path,
    jobs: int,
    cluster: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a study that compares variants, write its table and show it."""
    from earshift.studies.paper_page import write_variant_results

    frame = _run_study(cases, out, jobs, cluster, as_json)
    _finish_study(write_variant_results(frame, title, command, out, **options), out, as_json)


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
        str | None, typer.Option(help="Comma-separated hearing-loss classes; by default all seven.")
    ] = None,
    max_tones: Annotated[int, typer.Option(min=1, help="Tones of a screen.")] = 30,
    spread: Annotated[float, typer.Option(help="Spread of the simulated listeners, dB.")] = 3.0,
    baseline_reps: Annotated[
        int | None, typer.Option(min=0, help="Repetitions of the baselines, if fewer.")
    ] = None,
    panel_reps: Annotated[
        int, typer.Option(min=0, help="Repetitions of the three panels' pairs, if more.")
    ] = 0,
    jobs: Jobs = 2,
    cluster: Cluster = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """The paper's experiment: every pair of hearing-loss classes, BADS and three baselines.

    Writes one row per tone (tones.parquet), the table of tones to a Bayes factor of 100 beside the
    paper's (results.md, table.csv) and the paper's figures. A screen ends once the right model has
    won and 15 tones are played. If it is stopped or killed, the same command resumes where it left
    off.
    """
    from earshift.engine.protocol import as_protocol
    from earshift.studies.paper import CURVE_TONES, paper_cases
    from earshift.studies.paper_page import write_paper_results

    try:
        settings = as_protocol(protocol)
        names = _words(strategies) or []
        cases = paper_cases(
            settings, reps, _words(classes), names, seed, baseline_reps=baseline_reps,
            panel_reps=panel_reps, max_tones=max_tones, spread_db=spread, until_right=True,
            least_tones=CURVE_TONES,
        )  # fmt: skip
        if not spread > 0:
            raise Refusal(f"spread must be positive, got {spread}")
    except ValueError as error:
        raise fail(error) from None
    frame = _run_study(cases, out, jobs, cluster, as_json)
    command = (
        f"earshift study paper --reps {reps} --protocol {protocol} --strategies {strategies} "
        f"--max-tones {max_tones} --spread {spread:g} --seed {seed}"
    )
    if classes is not None:
        command += f" --classes {classes}"
    if baseline_reps is not None:
        command += f" --baseline-reps {baseline_reps}"
    if panel_reps:
        command += f" --panel-reps {panel_reps}"
    summary = write_paper_results(frame, settings, max_tones, command, out, reps)
    _finish_study(summary, out, as_json)


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
    from earshift.studies.paper import option_cases

    title = "Protocol options (theta_g, rho_weights, evidence, hyperprior_g)"
    command = f"earshift study options --reps {reps} --seed {seed}"
    cases = option_cases(reps, seed)
    _variants(cases, title, command, out, jobs, cluster, as_json, against="paper")


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
    """The paper's experiment with other listeners or assumptions: spread, lapses, priors."""
    from earshift.engine.protocol import as_protocol
    from earshift.studies.paper import sensitivity_cases

    try:
        cases = sensitivity_cases(as_protocol(protocol), reps, seed)
    except ValueError as error:
        raise fail(error) from None
    title = f"Sensitivity of protocol `{protocol}`"
    command = f"earshift study sensitivity --protocol {protocol} --reps {reps} --seed {seed}"
    _variants(cases, title, command, out, jobs, cluster, as_json, against="spread 3 dB")


@study.command("floor")
def study_floor(
    out: Out,
    reps: Reps = 4,
    protocol: Annotated[str, typer.Option(help="Named settings of the change test.")] = (
        "paper-vague"
    ),
    jobs: Jobs = 2,
    cluster: Cluster = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """The paper's experiment when no answer counts as rarer than a floor."""
    from earshift.engine.protocol import as_protocol
    from earshift.studies.paper import floor_cases

    try:
        cases = floor_cases(as_protocol(protocol), reps, seed)
    except ValueError as error:
        raise fail(error) from None
    title = f"A floor under the likelihood, protocol `{protocol}`"
    command = f"earshift study floor --protocol {protocol} --reps {reps} --seed {seed}"
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
    from earshift.engine.protocol import as_protocol
    from earshift.studies.ears import read_ears
    from earshift.studies.paper import best_candidates, ear_cases

    try:
        chosen = (
            best_candidates()
            if protocols == "candidates"
            else [as_protocol(name) for name in _words(protocols) or []]
        )
        known = read_ears(ears, half)
        cases = ear_cases(chosen, known, reps, seed)
    except (ValueError, OSError) as error:
        raise fail(error) from None
    title = f"Real ears (NHANES 2011-2016), {half} half of the people"
    command = (
        f"earshift study ears --half {half} --protocols {protocols} --reps {reps} --seed {seed}"
    )
    named = {ear.name: ear for group in known.values() for ear in group}
    frontier = protocols == "candidates"
    _variants(cases, title, command, out, jobs, cluster, as_json, ears=named, frontier=frontier)


@study.command("rules")
def study_rules(
    out: Out,
    ears: Annotated[Path, typer.Option(help="CSV of real ears: SEQN and thresholds by frequency.")],
    half: Annotated[str, typer.Option(help="Which half of the people: tuning or held-back.")] = (
        "held-back"
    ),
    people: Annotated[int, typer.Option(min=1, help="Ears that count per condition.")] = 300,
    workers: Annotated[
        Path | None, typer.Option(help="CSV of pairs of audiograms of workers, before and after.")
    ] = None,
    pairs: Annotated[int, typer.Option(min=0, help="Pairs of workers.")] = 700,
    exams: Annotated[int, typer.Option(min=0, help="Ears of the study of first exams.")] = 150,
    compared: Annotated[
        int, typer.Option(min=0, help="Ears tested by audiograms as they are taken today.")
    ] = 300,
    bald: Annotated[int, typer.Option(min=0, help="Ears tested by BALD, then compared.")] = 30,
    calibration: Annotated[
        int, typer.Option(min=0, help="Ears for calibration, eight shifts each per rule.")
    ] = 150,
    model: Annotated[
        int, typer.Option(min=0, help="References to draw ears of the model from, eight each.")
    ] = 500,
    brute: Annotated[
        int, typer.Option(min=0, help="Screens checked by brute force, and half as many exams.")
    ] = 20,
    full: Full = 40,
    frontier: Frontier = 60,
    jobs: Jobs = 2,
    cluster: Cluster = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Screening by rule (osha-sts, niosh-15) on real ears with known shifts.

    Calls and tones under every condition, of listeners as the model has them and otherwise; people
    who do not listen; real pairs of workers; first exams; what people do today; and whether the
    probabilities are what they say. msha-sts asks the same of the shift as osha-sts, so its figures
    are the same.
    """
    from earshift.studies import first_exams, model_checks, rules
    from earshift.studies.rules_page import write_rule_results

    most = max(rules.spared(people), exams, compared, bald, calibration, model, brute)
    with _cases_of_real_ears():
        drawn = rules.drawn_ears(ears, half, most, seed)
        parts: dict[str, list[Any]] = {
            "calls": rules.rule_cases(drawn[: rules.spared(people)], seed),
            "workers": [] if workers is None else rules.worker_cases(workers, half, pairs, seed),
            "exams": first_exams.exam_cases(drawn[:exams], exams // 2, seed),
            "compared": rules.compared_cases(drawn, compared, bald, seed),
            "calibration": [
                model_checks.ModelCase(ear, model_checks.REAL, seed=seed)
                for ear in drawn[:calibration]
            ],
            "model": [model_checks.ModelCase(ear, seed=seed) for ear in drawn[:model]],
            "brute": model_checks.brute_cases(drawn, brute, seed),
            "brute_exams": model_checks.brute_exam_cases(drawn, brute // 2, seed),
        }
    frames = _run_parts(parts, out, jobs, cluster, as_json)
    frames |= first_exams.beside_peers(frames, out / "peers.csv")
    command = (
        f"earshift study rules --half {half} --people {people} --pairs {pairs} --exams {exams} "
        f"--compared {compared} --bald {bald} --calibration {calibration} --model {model} "
        f"--brute {brute} --seed {seed}"
    )
    _finish_study(write_rule_results(frames, people, half, command, out), out, as_json)


@study.command("both")
def study_both(
    out: Out,
    ears: Annotated[
        Path, typer.Option(help="CSV of real ears: SEQN, ear (R or L), thresholds by frequency.")
    ],
    half: Annotated[str, typer.Option(help="Which half of the people: tuning or held-back.")] = (
        "held-back"
    ),
    people: Annotated[int, typer.Option(min=2, help="People examined, both ears of each.")] = 150,
    screened: Annotated[int, typer.Option(min=2, help="How many of them are screened.")] = 100,
    sensitivity: Sensitivity = 40,
    jobs: Jobs = 2,
    cluster: Cluster = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Both ears in one sitting on real pairs of ears, beside two sittings of one ear each.

    Threshold error against tones; verdicts and tones of screens by rule (osha-sts, niosh-15) when
    both ears changed, one did, or neither.
    """
    from earshift.studies import pairs
    from earshift.studies.pairs_page import write_pair_results

    with _cases_of_real_ears():
        drawn = pairs.pairs(ears, half, max(people, screened), seed)
        parts = pairs.parts(drawn, people, screened, seed)
        known = pairs.all_pairs(ears, "tuning")
    frames = _run_parts(parts, out, jobs, cluster, as_json)
    command = (
        f"earshift study both --half {half} --people {people} --screened {screened} --seed {seed}"
    )
    _finish_study(write_pair_results(frames, known, half, command, out), out, as_json)


@study.command("notch")
def study_notch(
    out: Out,
    ears: Annotated[Path, typer.Option(help="CSV of real ears: SEQN and thresholds by frequency.")],
    half: Annotated[str, typer.Option(help="Which half of the people: tuning or held-back.")] = (
        "held-back"
    ),
    level: Annotated[int, typer.Option(min=0, help="Ears without a slope or a notch.")] = 200,
    sloping: Annotated[int, typer.Option(min=0, help="Ears with a slope but no notch.")] = 200,
    notched: Annotated[
        int, typer.Option(min=0, help="Ears with a shallow notch, and as many with a deep one.")
    ] = 200,
    jobs: Jobs = 2,
    cluster: Cluster = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Is there a notch around 3-6 kHz? Real ears with and without one, no earlier exam.

    How often the answer is right after each tone, for deep and shallow notches, for ears that slope
    and for level ones.
    """
    from earshift.studies.notch import notch_cases, write_notch_results

    wanted = {"deep": notched, "shallow": notched, "sloping": sloping, "level": level}
    with _cases_of_real_ears():
        cases = notch_cases(ears, half, wanted, seed)
    frame = _run_study(cases, out, jobs, cluster, as_json)
    command = (
        f"earshift study notch --half {half} --level {level} --sloping {sloping} "
        f"--notched {notched} --seed {seed}"
    )
    _finish_study(write_notch_results(frame, half, command, out), out, as_json)


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

    from earshift.formats import read_ears
    from earshift.simulate.classes import FREQUENCIES_HZ, class_medians

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
        raise fail(error) from None
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
