"""The command line: thin, and quick to answer `--help` (the engine loads when a command runs)."""

from earshift.cli import (
    clinic,
    database,
    devices,
    exchange,
    monitor,
    protocol,
    serve,
    simulation,
    studies,
    users,
)
from earshift.cli.app import app

__all__ = [
    "app",
    "clinic",
    "database",
    "devices",
    "exchange",
    "monitor",
    "protocol",
    "serve",
    "simulation",
    "studies",
    "users",
]
