"""An older path of `earshift.clinic.visit`, kept for programs that import it."""

from earshift.clinic.visit import *  # noqa: F403
