"""An older path of `earshift.simulate.classical`, kept for programs that import it."""

from earshift.simulate.classical import *  # noqa: F403
