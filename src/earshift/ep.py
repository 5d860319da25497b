"""An older path of `earshift.engine.ep`, kept for programs that import it."""

from earshift.engine.ep import *  # noqa: F403
