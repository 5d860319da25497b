"""An older path of `earshift.clinic.history`, kept for programs that import it."""

from earshift.clinic.history import *  # noqa: F403
