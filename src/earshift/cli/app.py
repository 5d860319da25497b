"""The application itself, and what all commands share: options, verdict words, failure."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import earshift
from earshift.cli.advice import advised
from earshift.engine.refusal import Refusal, Trouble

# Of every command that touches records; docs/records.md explains them.
WRONG_USE, NOT_FINISHED, STORE_TROUBLE = 2, 3, 4

# What the extra `clinic` brings: records, reports and the web app.
CLINIC = {
    "alembic", "argon2", "fastapi", "fpdf", "jinja2", "pydantic", "pyotp", "segno", "sqlalchemy",
    "starlette", "uharfbuzz", "uvicorn",
}  # fmt: skip


NOT_UTF8 = "what was typed is not text in UTF-8"
NOT_SHOWN = "this cannot be written in the encoding {}: set PYTHONUTF8=1"


class Commands(TyperGroup):
    """Commands whose last word is a sentence, also where nothing in them has thought of it."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            with plain_failures():
                return super().invoke(ctx)
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] not in CLINIC:
                raise
            raise fail(
                f"this command needs the package {missing.name}: pip install 'earshift[clinic]'"
            ) from None


app = typer.Typer(
    cls=Commands,
    name="earshift",
    help="Has this ear's hearing changed since its reference exam? Decides with a few tones.",
    epilog="Research software, not a medical device. VISION.md and docs/ say what it does not do.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich help costs 0.3 s at every start
    pretty_exceptions_enable=False,
)

Seed = Annotated[
    int, typer.Option(min=0, help="Seed of all random numbers: the same seed gives the same run.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON, for programs.")]


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
    """Has this ear's hearing changed since its reference exam?"""
    # Arrays here are small: threads within a product wait for each other longer than they work.
    # Numpy reads this when it is loaded, and every process that a command starts does so too.
    for library in ("OPENBLAS", "MKL", "OMP"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")


def fail(message: object) -> typer.Exit:
    """One line that says what is wrong and what to do, and the exit code for wrong use."""
    if isinstance(message, OSError) and message.strerror:  # without its number
        where = "" if message.filename is None else f": {message.filename}"
        message = f"{message.strerror}{where}"
    typer.secho(f"earshift: {advised(message)}", fg="red", err=True)
    return typer.Exit(WRONG_USE)


def trouble(error: object) -> typer.Exit:
    """The same for trouble with the database."""
    fail(error)  # says it
    return typer.Exit(STORE_TROUBLE)


@contextmanager
def plain_failures() -> Iterator[None]:
    """What is refused or goes wrong in any command, as one line and an exit code."""
    try:
        yield
    except BrokenPipeError:  # whoever read has had enough
        raise
    except Trouble as error:
        raise trouble(error) from None
    except UnicodeEncodeError as error:
        typed = any("\udc80" <= char <= "\udcff" for char in str(error.object))
        raise fail(NOT_UTF8 if typed else NOT_SHOWN.format(error.encoding)) from None
    except (Refusal, OSError) as error:
        raise fail(error) from None
