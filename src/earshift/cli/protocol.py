"""Exams for other programs: JSON lines on standard input and output."""

import os
import sys
from typing import Annotated

import typer

from earshift.cli.app import app, fail


@app.command()
def protocol(
    limits: Annotated[
        str,
        typer.Option(help="Level limits: supervised, or none (for simulated listeners only)."),
    ] = "supervised",
) -> None:
    """Run an exam for another program: one JSON object per line in, and one per line out.

    Messages: begin, ask, tell, undo, verdict, save, load, quit. Nothing is stored. More in
    docs/protocol.md.
    """
    if limits not in ("supervised", "none"):
        raise fail(f"limits must be supervised or none, got {limits!r}")
    from earshift.interop.jsonlines import converse

    try:
        converse(sys.stdin.buffer, sys.stdout, limited=limits == "supervised")
    except BrokenPipeError:  # the client is gone; there is nobody left to answer
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
