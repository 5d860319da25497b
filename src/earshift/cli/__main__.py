"""`python -m earshift.cli`."""

from earshift.cli import app

app()
