"""Try it without a person: one simulated listener, and the demo."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import earshift
from earshift.cli.app import AsJson, Seed, app, fail
from earshift.engine.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from earshift.engine.exam import Exam
    from earshift.engine.screen import Screen
    from earshift.simulate.listener import Listener


def _first_exam(listener: "Listener", seed: int, tones: int, quiet: bool, title: str) -> "Exam":
    """A whole first exam of a simulated listener, with a progress bar."""
    from rich.console import Console
    from rich.progress import track

    from earshift.simulate.run import steps

    exam = earshift.Exam(seed=seed, max_tones=tones)
    played = steps(exam, listener, tones)
    console = Console(stderr=True, quiet=quiet)
    for _ in track(played, description=title, total=tones, console=console, transient=False):
        pass
    return exam


@app.command()
def simulate(
    old: Annotated[str, typer.Option(help="Hearing-loss class at the reference exam.")] = "normal",
    new: Annotated[str, typer.Option(help="Hearing-loss class now.")] = "normal",
    protocol: Annotated[
        str | None, typer.Option(help="Settings: best (the default) or paper.")
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="Or a threshold-shift rule: osha-sts, niosh-15 or msha-sts.")
    ] = None,
    seed: Seed = 0,
    max_tones: Annotated[int, typer.Option(min=1, help="Stop after this many tones.")] = 30,
    first_tones: Annotated[int, typer.Option(min=1, help="Tones of the reference exam.")] = 50,
    spread: Annotated[float, typer.Option(help="Spread of the simulated listener, dB.")] = 3.0,
    lapse: Annotated[float, typer.Option(help="Probability of missing an audible tone.")] = 0.0,
    guess: Annotated[float, typer.Option(help="Probability of reporting an inaudible tone.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """One simulated person: a reference exam as class OLD, then a screen as class NEW.

    Classes: normal, slight, mild, moderate, moderately-severe, severe, profound.
    """
    try:
        options = {"spread_db": spread, "lapse": lapse, "guess": guess}
        before = earshift.Listener.of_class(old, seed=(seed, 1), **options)
        after = earshift.Listener.of_class(new, seed=(seed, 2), **options)
        from earshift.engine.protocol import as_protocol
        from earshift.engine.rules import as_rule

        if rule is not None and protocol is not None:
            raise Refusal("give a rule or a protocol, not both: they ask different questions")
        settings = as_protocol(protocol or "best") if rule is None else None
        asked = None if rule is None else as_rule(rule)
    except ValueError as error:
        raise fail(error) from None
    first = _first_exam(before, seed, first_tones, as_json, f"reference exam ({old})")
    screen = earshift.Screen(first, settings, rule=asked, seed=seed, max_tones=max_tones)
    if as_json:
        rows = list(_screen_rows(screen, after))
        typer.echo(json.dumps(_simulation(rows, screen), indent=2))
        return
    _live_table(screen, after, f"screen of an ear that was {old} and is {new}")


def _screen_rows(screen: "Screen", listener: "Listener") -> "Iterator[dict[str, Any]]":
    """Run a screen to its end; one row per tone, with the evidence after it."""
    from earshift.simulate.run import steps

    for tone, heard in steps(screen, listener):
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
    from earshift.report.words import headline

    console.print(f"[bold]{headline(verdict.decision)}[/bold]")
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
        "screens against it:\nthe same ear unchanged, and the ear after its loss has become "
        f"{DEMO_NEW}. The program does not know which is which."
    )
    before = earshift.Listener.of_class(DEMO_OLD, seed=(seed, 1))
    first = _first_exam(before, seed, 50, as_json, "first exam")
    from matplotlib.figure import Figure

    from earshift.report.words import headline

    figure = Figure(figsize=(10.0, 6.4), layout="constrained")
    results = {}
    ears = (("an ear that did not change", DEMO_OLD), ("an ear that did", DEMO_NEW))
    for number, (name, ear) in enumerate(ears, start=1):
        listener = earshift.Listener.of_class(ear, seed=(seed, 2))
        screen = earshift.Screen(first, seed=seed)
        rows = list(_screen_rows(screen, listener))
        verdict = screen.verdict()
        console.print(
            f"\n[bold]Screen of {name}[/bold]: {len(rows)} {'tone' if len(rows) == 1 else 'tones'}"
        )
        console.print(f"  [bold]{headline(verdict.decision)}[/bold]")
        console.print(f"  {verdict}")
        results[ear] = {**verdict.to_dict(), "rows": rows}
        ax = screen.plot(figure.add_subplot(1, 2, number), ear="right")
        after = f"{len(rows)} tone{'s' if len(rows) != 1 else ''}"
        ax.set_title(f"screen of {name}\n{ax.get_title()}, {after}", fontsize=11)
    picture = out / "audiograms.png"
    try:
        out.mkdir(parents=True, exist_ok=True)
        figure.savefig(picture, dpi=140, bbox_inches="tight")  # the legends stand below
    except OSError as error:
        raise fail(f"cannot write the picture to {out}: {error}") from None
    if as_json:
        typer.echo(json.dumps({"picture": str(picture), "screens": results}, indent=2))
    else:
        typer.echo(f"\nThe two audiograms: {picture}")


@app.command()
def warm(as_json: AsJson = False) -> None:
    """Compile the numerical kernels of the paper's protocols now, so that nobody waits later.

    Exams and screens as a clinic runs them need nothing compiled. For whoever installs earshift for
    others, and for images: run it once as the user who runs the program. Compiled code is kept
    beside the program's own, or, where that is read-only, in EARSHIFT_CACHE, systemd's
    CACHE_DIRECTORY or the user's cache folder.
    """
    import time

    from earshift.engine.compiled import cache_folder
    from earshift.engine.protocol import PROTOCOLS
    from earshift.simulate.run import run

    start = time.monotonic()
    for lapse in (0.0, 0.02):
        listener = earshift.Listener.of_class("normal", seed=1)
        first = run(earshift.Exam(seed=1, max_tones=20, guess=lapse / 2, lapse=lapse), listener)
        for name in ("best", "paper"):
            settings = replace(PROTOCOLS[name], guess=lapse / 2, lapse=lapse)
            run(earshift.Screen(first, settings, seed=1), listener, 3)
    both = {ear: earshift.Listener.of_class("normal", seed=1) for ear in ("right", "left")}
    run(earshift.Exam(ears="both", seed=1, max_tones=20), both)
    seconds = round(time.monotonic() - start, 1)
    folder = cache_folder()
    if as_json:
        typer.echo(json.dumps({"seconds": seconds, "folder": folder and str(folder)}))
    else:
        where = "beside the program" if folder is None else f"in {folder}"
        typer.echo(f"Compiled {where}: {seconds:g} s.")
