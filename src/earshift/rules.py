"""An older path of `earshift.engine.rules`, kept for programs that import it."""

from earshift.engine.rules import *  # noqa: F403
