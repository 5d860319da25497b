"""The command line: thin, and quick to answer `--help` (the engine loads when a command runs)."""

from earshift.cli import (
    database,
    devices,
    exams,
    exchange,
    history,
    people,
    protocol,
    review,
    roster,
    serve,
    simulation,
    studies,
    users,
    worklist,
)
from earshift.cli.app import app

__all__ = [
    "app",
    "database",
    "devices",
    "exams",
    "exchange",
    "history",
    "people",
    "protocol",
    "review",
    "roster",
    "serve",
    "simulation",
    "studies",
    "users",
    "worklist",
]
