"""The command line: thin, and quick to answer `--help` (the engine loads when a command runs)."""

from earshift.cli import simulation, studies
from earshift.cli.app import app

__all__ = ["app", "simulation", "studies"]
