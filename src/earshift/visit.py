"""An older path of what is in `earshift.clinic` now, kept for programs that import it."""

from earshift.clinic.people import *  # noqa: F403
from earshift.clinic.plan import *  # noqa: F403
from earshift.clinic.practice import *  # noqa: F403
from earshift.clinic.rebuild import *  # noqa: F403
from earshift.clinic.references import *  # noqa: F403
from earshift.clinic.session import *  # noqa: F403
from earshift.clinic.view import *  # noqa: F403
from earshift.clinic.zones import *  # noqa: F403
from earshift.records import measured_or_entered_at as measured_at  # noqa: F401
